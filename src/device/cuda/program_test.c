// Programs: compiled, kept, taken from a plan.
#include "device/cuda/program.h"

#include "cuda_stand_in/device.h"
#include "faults/fault_allocator.h"

static const char add_text[] =
    "#include \"number.cuh\"\n"
    "extern \"C\" __global__ void __launch_bounds__(256)\n"
    "add(const T0* __restrict__ a, const T0* b, T0* out, long long count) {\n"
    "  long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;\n"
    "  if (i < count) out[i] = a[i] + b[i];\n"
    "}\n"
    "// Sums of the numbers of each block.\n"
    "extern \"C\" __global__ void sums(const T0* a, T0* out, int count) {\n"
    "  __shared__ float parts[32];\n"
    "  extern __shared__ __align__(16) unsigned char dynamic[];\n"
    "  float* seen = (float*)dynamic;\n"
    "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
    "  float sum = i < count ? a[i] : 0;\n"
    "  seen[threadIdx.x] = sum;\n"
    "  for (int step = 16; step > 0; step /= 2)\n"
    "    sum += __shfl_xor_sync(0xffffffffu, sum, step);\n"
    "  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;\n"
    "  __syncthreads();\n"
    "  if (threadIdx.x != 0) return;\n"
    "  sum = 0;\n"
    "  for (int w = 0; w < blockDim.x / 32; ++w) sum += parts[w];\n"
    "  float check = 0;\n"
    "  for (int k = 0; k < blockDim.x; ++k) check += seen[k];\n"
    "  out[blockIdx.x] = check == sum ? sum : -1;\n"
    "}\n";

static const char* const add_options[] = {"-DT0=float"};
static const rabbet_cuda_source_t add_source = {.name = "add.cu",
                                                .text = add_text,
                                                .options = add_options,
                                                .option_count = 1};

static void put(rabbet_cuda_device_t* device, const void* data, size_t size,
                void** out_memory) {
  const rabbet_device_vtable_t* v = device->base.vtable;
  RABBET_EXPECT_OK(v->allocate(&device->base, size, out_memory));
  if (data)
    RABBET_EXPECT_OK(
        v->copy_to_device(&device->base, *out_memory, data, size, NULL));
}

static void run_add(rabbet_cuda_device_t* device,
                    rabbet_cuda_program_t* program) {
  enum { COUNT = 1000 };
  float a[COUNT], b[COUNT], found[COUNT] = {0};
  for (int i = 0; i < COUNT; ++i) {
    a[i] = (float)i;
    b[i] = (float)(i % 7);
  }
  void *pa = NULL, *pb = NULL, *out = NULL, *token = NULL;
  put(device, a, sizeof(a), &pa);
  put(device, b, sizeof(b), &pb);
  put(device, NULL, sizeof(a), &out);
  rabbet_cuda_launch_t launch = {.grid = {4, 1, 1}, .block = {256, 1, 1}};
  RABBET_EXPECT_OK(
      rabbet_cuda_program_function(program, "add", &launch.function));
  const rabbet_device_vtable_t* v = device->base.vtable;
  int64_t count = COUNT;
  RABBET_EXPECT_OK(v->begin_run(&device->base, 1, &token));
  RABBET_EXPECT_OK(rabbet_cuda_launch(device, &launch,
                                      (void*[]){&pa, &pb, &out, &count}, NULL));
  v->end_run(&device->base, token);
  RABBET_EXPECT_OK(
      v->copy_to_host(&device->base, found, out, sizeof(found), NULL));
  RABBET_EXPECT_OK(v->synchronize(&device->base, NULL));
  for (int i = 0; i < COUNT; ++i)
    assert_true(found[i] == (float)(i + i % 7));
  v->free(&device->base, pa);
  v->free(&device->base, pb);
  v->free(&device->base, out);
}

static void compiled(void** state) {
  (void)state;
  rabbet_cuda_device_t* device = stand_in_device_open();
  rabbet_cuda_program_t *program = NULL, *same = NULL;
  RABBET_EXPECT_OK(
      rabbet_cuda_program_get(device, &add_source, NULL, 0, &program));
  RABBET_EXPECT_OK(
      rabbet_cuda_program_get(device, &add_source, NULL, 0, &same));
  assert_ptr_equal(program, same);
  run_add(device, program);
  rabbet_cuda_program_release(program);
  rabbet_cuda_program_release(same);
  stand_in_device_close(device);
  stand_in_expect_clean();
}

static void threads_work_together(void** state) {
  (void)state;
  rabbet_cuda_device_t* device = stand_in_device_open();
  const rabbet_device_vtable_t* v = device->base.vtable;
  rabbet_cuda_program_t* program = NULL;
  RABBET_EXPECT_OK(
      rabbet_cuda_program_get(device, &add_source, NULL, 0, &program));
  float a[512], found[2] = {0};
  for (int i = 0; i < 512; ++i)
    a[i] = (float)(i % 10);
  void *pa = NULL, *out = NULL, *token = NULL;
  put(device, a, sizeof(a), &pa);
  put(device, NULL, sizeof(found), &out);
  rabbet_cuda_launch_t launch = {
      .grid = {2, 1, 1}, .block = {256, 1, 1}, .shared_bytes = 1024};
  RABBET_EXPECT_OK(
      rabbet_cuda_program_function(program, "sums", &launch.function));
  int count = 500;
  RABBET_EXPECT_OK(v->begin_run(&device->base, 1, &token));
  RABBET_EXPECT_OK(
      rabbet_cuda_launch(device, &launch, (void*[]){&pa, &out, &count}, NULL));
  v->end_run(&device->base, token);
  RABBET_EXPECT_OK(
      v->copy_to_host(&device->base, found, out, sizeof(found), NULL));
  RABBET_EXPECT_OK(v->synchronize(&device->base, NULL));
  float expected[2] = {0, 0};
  for (int i = 0; i < count; ++i)
    expected[i / 256] += a[i];
  assert_true(found[0] == expected[0]);
  assert_true(found[1] == expected[1]);
  v->free(&device->base, pa);
  v->free(&device->base, out);
  rabbet_cuda_program_release(program);
  stand_in_device_close(device);
  stand_in_expect_clean();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(compiled),
      cmocka_unit_test(threads_work_together),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
