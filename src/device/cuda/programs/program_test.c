// Programs: compiled, kept, taken from a plan.
#include "device/cuda/programs/program.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/store.h"
#include "cuda_stand_in/device.h"
#include "faults/fault_allocator.h"

static const char add_text[] =
    "#include \"device/cuda/programs/number.cuh\"\n"
    "extern \"C\" __global__ void __launch_bounds__(256)\n"
    "add(const T0* __restrict__ a, const T0* b, T0* out, long long count) {\n"
    "  turn_t turn;\n"
    "  long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;\n"
    "  if (i < count) out[i] = a[i] + b[i];\n"
    "}\n"
    "extern \"C\" __global__ void hasty(T0* out, long long count) {\n"
    "  long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;\n"
    "  if (i >= count) return;\n"
    "  turn_t turn;\n"
    "  out[i] = 1;\n"
    "}\n"
    "// Sums of the numbers of each block.\n"
    "extern \"C\" __global__ void sums(const T0* a, T0* out, int count) {\n"
    "  turn_t turn;\n"
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
  // A compiled program stays for the next kernel that wants it.
  stand_in()->clear_log();
  RABBET_EXPECT_OK(
      rabbet_cuda_program_get(device, &add_source, NULL, 0, &same));
  assert_ptr_equal(program, same);
  assert_int_equal(stand_in()->calls("cuModuleLoadData"), 0);
  run_add(device, same);
  rabbet_cuda_program_release(same);
  stand_in_device_close(device);
  stand_in_expect_clean();
}

// ---- What other builds compiled --------------------------------------------

static char store_folder[] = "/tmp/rabbet_programs_XXXXXX";

static rabbet_cuda_device_t* open_with_store(void) {
  rabbet_cuda_device_t* device = stand_in_device_open();
  RABBET_EXPECT_OK(rabbet_store_create(
      rabbet_allocator_system(), (rabbet_logger_t){0}, &device->base.store));
  return device;
}

// With `compiles` false, the compiler refuses everything.
static rabbet_status_t get_from_store(const rabbet_cuda_source_t* source,
                                      bool compiles) {
  rabbet_cuda_device_t* device = open_with_store();
  rabbet_cuda_program_t* program = NULL;
  if (!compiles) setenv("RABBET_STAND_IN_FLAGS", "--no-such-flag", 1);
  rabbet_status_t status =
      rabbet_cuda_program_get(device, source, NULL, 0, &program);
  unsetenv("RABBET_STAND_IN_FLAGS");
  if (rabbet_is_ok(status)) run_add(device, program);
  rabbet_cuda_program_release(program);
  rabbet_device_release(&device->base);
  stand_in_expect_clean();
  return status;
}

static void damage_store(void) {
  char command[128];
  snprintf(command, sizeof(command), "truncate -s 100 %s/0* %s/[1-9a-f]*",
           store_folder, store_folder);
  assert_int_not_equal(system(command), -1);
}

static void taken_from_a_store(void** state) {
  (void)state;
  const char* const options[] = {"-DT0=float", "-DOTHER"};
  rabbet_cuda_source_t other = add_source, exact = add_source;
  other.options = options;
  other.option_count = 2;
  exact.specific = true;
  assert_non_null(mkdtemp(store_folder));
  setenv("RABBET_PROGRAM_CACHE", store_folder, 1);
  RABBET_EXPECT_ERROR(get_from_store(&add_source, false),
                      RABBET_STATUS_INVALID_ARGUMENT, "--no-such-flag");
  RABBET_EXPECT_OK(get_from_store(&add_source, true));
  RABBET_EXPECT_OK(get_from_store(&add_source, false));
  // Other options, another kind of code, another compiler.
  RABBET_EXPECT_ERROR(get_from_store(&other, false),
                      RABBET_STATUS_INVALID_ARGUMENT, "--no-such-flag");
  RABBET_EXPECT_ERROR(get_from_store(&exact, false),
                      RABBET_STATUS_INVALID_ARGUMENT, "--no-such-flag");
  setenv("RABBET_STAND_IN_NVRTC", "12.4", 1);
  RABBET_EXPECT_ERROR(get_from_store(&add_source, false),
                      RABBET_STATUS_INVALID_ARGUMENT, "--no-such-flag");
  unsetenv("RABBET_STAND_IN_NVRTC");
  // Damaged files are compiled again, and kept again.
  damage_store();
  RABBET_EXPECT_ERROR(get_from_store(&add_source, false),
                      RABBET_STATUS_INVALID_ARGUMENT, "--no-such-flag");
  RABBET_EXPECT_OK(get_from_store(&add_source, true));
  RABBET_EXPECT_OK(get_from_store(&add_source, false));
  char command[64];
  snprintf(command, sizeof(command), "rm -r %s", store_folder);
  assert_int_equal(system(command), 0);
  setenv("RABBET_PROGRAM_CACHE", "none", 1);
}

// ---- Threads ---------------------------------------------------------------

enum { GETTERS = 4 };

typedef struct getter_t {
  rabbet_cuda_device_t* device;
  int number;
  rabbet_cuda_program_t *own, *common;
} getter_t;

static void* get_in_thread(void* context) {
  getter_t* getter = context;
  char own[32];
  const char* const options[] = {"-DT0=float", own};
  rabbet_cuda_source_t source = add_source;
  snprintf(own, sizeof(own), "-DGETTER=%d", getter->number);
  source.options = options;
  source.option_count = 2;
  RABBET_EXPECT_OK(
      rabbet_cuda_program_get(getter->device, &source, NULL, 0, &getter->own));
  RABBET_EXPECT_OK(rabbet_cuda_program_get(getter->device, &add_source, NULL, 0,
                                           &getter->common));
  return NULL;
}

// Does not wait for another thread, but asks again.
static void* get_now_in_thread(void* context) {
  getter_t* getter = context;
  rabbet_status_code_t code = RABBET_STATUS_UNAVAILABLE;
  while (code == RABBET_STATUS_UNAVAILABLE) {
    rabbet_status_t status = rabbet_cuda_program_get_now(
        getter->device, &add_source, NULL, 0, &getter->common);
    code = rabbet_status_code(status);
    assert_true(rabbet_is_ok(status) == (getter->common != NULL));
    rabbet_status_ignore(status);
  }
  assert_int_equal(code, RABBET_STATUS_OK);
  return NULL;
}

static void threads_that_do_not_wait(void** state) {
  (void)state;
  rabbet_cuda_device_t* device = stand_in_device_open();
  getter_t getters[GETTERS];
  pthread_t threads[GETTERS];
  stand_in()->clear_log();
  for (int i = 0; i < GETTERS; ++i) {
    getters[i] = (getter_t){.device = device};
    assert_int_equal(
        pthread_create(&threads[i], NULL, get_now_in_thread, &getters[i]), 0);
  }
  for (int i = 0; i < GETTERS; ++i)
    pthread_join(threads[i], NULL);
  assert_int_equal(stand_in()->calls("cuModuleLoadData"), 1);
  for (int i = 0; i < GETTERS; ++i) {
    assert_ptr_equal(getters[i].common, getters[0].common);
    rabbet_cuda_program_release(getters[i].common);
  }
  stand_in_device_close(device);
  stand_in_expect_clean();
}

static void threads_compile_each_once(void** state) {
  (void)state;
  rabbet_cuda_device_t* device = stand_in_device_open();
  getter_t getters[GETTERS];
  pthread_t threads[GETTERS];
  stand_in()->clear_log();
  for (int i = 0; i < GETTERS; ++i) {
    getters[i] = (getter_t){.device = device, .number = i};
    assert_int_equal(
        pthread_create(&threads[i], NULL, get_in_thread, &getters[i]), 0);
  }
  for (int i = 0; i < GETTERS; ++i)
    pthread_join(threads[i], NULL);
  assert_int_equal(stand_in()->calls("cuModuleLoadData"), GETTERS + 1);
  for (int i = 0; i < GETTERS; ++i) {
    assert_ptr_equal(getters[i].common, getters[0].common);
    run_add(device, getters[i].own);
    rabbet_cuda_program_release(getters[i].own);
    rabbet_cuda_program_release(getters[i].common);
  }
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

// Kernels of different shapes may have the same function.
static void shared_memory_is_permitted(void** state) {
  (void)state;
  rabbet_cuda_device_t* device = stand_in_device_open();
  const rabbet_device_vtable_t* v = device->base.vtable;
  rabbet_cuda_program_t* program = NULL;
  RABBET_EXPECT_OK(
      rabbet_cuda_program_get(device, &add_source, NULL, 0, &program));
  void *a = NULL, *out = NULL, *token = NULL;
  put(device, NULL, 256 * sizeof(float), &a);
  put(device, NULL, sizeof(float), &out);
  rabbet_cuda_launch_t launch = {
      .grid = {1, 1, 1}, .block = {256, 1, 1}, .shared_bytes = 100000};
  RABBET_EXPECT_OK(
      rabbet_cuda_program_function(program, "sums", &launch.function));
  RABBET_EXPECT_OK(rabbet_cuda_launch_permit(device, launch.function, 100000));
  RABBET_EXPECT_OK(rabbet_cuda_launch_permit(device, launch.function, 64));
  int count = 256;
  RABBET_EXPECT_OK(v->begin_run(&device->base, 1, &token));
  RABBET_EXPECT_OK(
      rabbet_cuda_launch(device, &launch, (void*[]){&a, &out, &count}, NULL));
  v->end_run(&device->base, token);
  RABBET_EXPECT_OK(v->synchronize(&device->base, NULL));
  RABBET_EXPECT_ERROR(
      rabbet_cuda_launch_permit(device, launch.function, 1 << 20),
      RABBET_STATUS_INCOMPATIBLE,
      "needs 1048704 bytes of shared memory in a block; this GPU has 232448");
  v->free(&device->base, a);
  v->free(&device->base, out);
  rabbet_cuda_program_release(program);
  stand_in_device_close(device);
  stand_in_expect_clean();
}

// ---- Artifacts in plans ----------------------------------------------------

typedef struct kept_t {
  rabbet_artifact_t artifact;
  char name[64];
  uint8_t data[1 << 17];
} kept_t;

static rabbet_status_t keep(void* context, const rabbet_artifact_t* artifact) {
  kept_t* kept = context;
  assert_true(artifact->size <= sizeof(kept->data));
  kept->artifact = *artifact;
  kept->artifact.data = kept->data;
  kept->artifact.name = kept->name;
  snprintf(kept->name, sizeof(kept->name), "%s", artifact->name);
  memcpy(kept->data, artifact->data, artifact->size);
  return rabbet_ok();
}

// On a device of its own, as a device keeps its compiled programs.
static void keep_add(kept_t* out_kept) {
  rabbet_cuda_device_t* device = stand_in_device_open();
  rabbet_cuda_program_t* program = NULL;
  RABBET_EXPECT_OK(
      rabbet_cuda_program_get(device, &add_source, NULL, 0, &program));
  RABBET_EXPECT_OK(rabbet_cuda_program_artifact(
      program, (rabbet_artifact_sink_t){.context = out_kept, .add = keep}));
  rabbet_cuda_program_release(program);
  stand_in_device_close(device);
}

// No compiler is needed.
static void taken_from_a_plan(void** state) {
  (void)state;
  static kept_t kept;
  keep_add(&kept);
  rabbet_cuda_device_t* device = stand_in_device_open();
  rabbet_cuda_program_t* program = NULL;
  assert_string_equal(kept.artifact.name, "add.cu");
  setenv("RABBET_STAND_IN_CACHE", "/proc/nowhere", 1);
  RABBET_EXPECT_ERROR(
      rabbet_cuda_program_get(device, &add_source, NULL, 0, &program),
      RABBET_STATUS_INVALID_ARGUMENT, "compiling 'add.cu' for sm_90");
  rabbet_artifact_t artifacts[] = {{.name = "another", .data = "", .size = 0},
                                   kept.artifact};
  stand_in()->clear_log();
  RABBET_EXPECT_OK(
      rabbet_cuda_program_get(device, &add_source, artifacts, 2, &program));
  assert_non_null(strstr(stand_in()->log(), "cubin of sm_90"));
  run_add(device, program);
  static kept_t again;
  RABBET_EXPECT_OK(rabbet_cuda_program_artifact(
      program, (rabbet_artifact_sink_t){.context = &again, .add = keep}));
  assert_int_equal(again.artifact.size, kept.artifact.size);
  assert_memory_equal(again.data, kept.data, kept.artifact.size);
  rabbet_cuda_program_release(program);
  unsetenv("RABBET_STAND_IN_CACHE");
  stand_in_device_close(device);
  stand_in_expect_clean();
}

static void taken_on_another_gpu(void** state) {
  (void)state;
  static kept_t kept;
  const struct {
    int major, minor;
    const char* image;
  } rows[] = {{10, 0, ", PTX"}, {9, 5, "cubin of sm_90"}};
  rabbet_cuda_device_t* device = NULL;
  keep_add(&kept);
  setenv("RABBET_STAND_IN_CACHE", "/proc/nowhere", 1);
  for (size_t i = 0; i < 2; ++i) {
    rabbet_cuda_program_t* program = NULL;
    stand_in()->set_capability(rows[i].major, rows[i].minor);
    device = stand_in_device_open();
    stand_in()->clear_log();
    RABBET_EXPECT_OK(rabbet_cuda_program_get(device, &add_source,
                                             &kept.artifact, 1, &program));
    assert_non_null(strstr(stand_in()->log(), rows[i].image));
    run_add(device, program);
    rabbet_cuda_program_release(program);
    stand_in_device_close(device);
  }
  unsetenv("RABBET_STAND_IN_CACHE");
  stand_in()->set_capability(9, 0);
  stand_in_expect_clean();
}

// Machine code for one architecture alone has PTX for the others.
static void specific(void** state) {
  (void)state;
  static kept_t kept;
  const rabbet_cuda_source_t source = {
      .name = "specific.cu",
      .text =
          "#include \"device/cuda/programs/number.cuh\"\n"
          "#ifdef __CUDA_ARCH_FEAT_SM90_ALL\n#define NAME here\n"
          "#else\n#define NAME elsewhere\n#endif\n"
          "extern \"C\" __global__ void NAME() { turn_t turn; }\n",
      .specific = true};
  rabbet_cuda_device_t* device = stand_in_device_open();
  rabbet_cuda_program_t* program = NULL;
  CUfunction function = NULL;
  RABBET_EXPECT_OK(rabbet_cuda_program_get(device, &source, NULL, 0, &program));
  RABBET_EXPECT_OK(rabbet_cuda_program_function(program, "here", &function));
  RABBET_EXPECT_OK(rabbet_cuda_program_artifact(
      program, (rabbet_artifact_sink_t){.context = &kept, .add = keep}));
  rabbet_cuda_program_release(program);
  stand_in_device_close(device);
  stand_in()->set_capability(10, 0);
  device = stand_in_device_open();
  RABBET_EXPECT_OK(
      rabbet_cuda_program_get(device, &source, &kept.artifact, 1, &program));
  RABBET_EXPECT_OK(
      rabbet_cuda_program_function(program, "elsewhere", &function));
  rabbet_cuda_program_release(program);
  stand_in_device_close(device);
  stand_in()->set_capability(9, 0);
  stand_in_expect_clean();
}

// The PTX is compiled for plans alone, from a source that the caller may have
// changed since.
static void ptx_when_kept(void** state) {
  (void)state;
  static kept_t kept;
  char text[512], option[32] = "-DNAME=here";
  snprintf(text, sizeof(text),
           "#include \"device/cuda/programs/number.cuh\"\n"
           "#ifndef __CUDA_ARCH_FEAT_SM90_ALL\n#error not elsewhere\n#endif\n"
           "extern \"C\" __global__ void NAME() { turn_t turn; }\n");
  const char* options[] = {option};
  const rabbet_cuda_source_t source = {.name = "here.cu",
                                       .text = text,
                                       .options = options,
                                       .option_count = 1,
                                       .specific = true};
  rabbet_cuda_device_t* device = stand_in_device_open();
  rabbet_cuda_program_t* program = NULL;
  CUfunction function = NULL;
  RABBET_EXPECT_OK(rabbet_cuda_program_get(device, &source, NULL, 0, &program));
  RABBET_EXPECT_OK(rabbet_cuda_program_function(program, "here", &function));
  memset(text, 0, sizeof(text));
  memset(option, 0, sizeof(option));
  for (int i = 0; i < 2; ++i)
    RABBET_EXPECT_ERROR(
        rabbet_cuda_program_artifact(
            program, (rabbet_artifact_sink_t){.context = &kept, .add = keep}),
        RABBET_STATUS_INVALID_ARGUMENT, "not elsewhere");
  RABBET_EXPECT_OK(rabbet_cuda_program_function(program, "here", &function));
  rabbet_cuda_program_release(program);
  stand_in_device_close(device);
  stand_in_expect_clean();
}

static void expect_damaged(rabbet_cuda_device_t* device,
                           const rabbet_artifact_t* artifact) {
  rabbet_cuda_program_t* program = NULL;
  RABBET_EXPECT_ERROR(
      rabbet_cuda_program_get(device, &add_source, artifact, 1, &program),
      RABBET_STATUS_DATA_LOSS,
      "the compiled kernel 'add.cu' in the plan is damaged");
  assert_null(program);
}

// A plan comes from anywhere.
static void damaged(void** state) {
  (void)state;
  static kept_t kept;
  keep_add(&kept);
  rabbet_cuda_device_t* device = stand_in_device_open();
  const size_t size = kept.artifact.size;
  const size_t sizes[] = {0, 1, 63, 64, 65, size / 2, size - 1};
  for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); ++i) {
    kept.artifact.size = sizes[i];
    expect_damaged(device, &kept.artifact);
  }
  kept.artifact.size = size;
  // The magic number, and the sizes of the parts.
  const size_t bytes[] = {0, 3, 16, 23, 24, 31};
  for (size_t i = 0; i < sizeof(bytes) / sizeof(bytes[0]); ++i) {
    kept.data[bytes[i]] ^= 0x81;
    expect_damaged(device, &kept.artifact);
    kept.data[bytes[i]] ^= 0x81;
  }
  kept.data[size - 1] = 'x';  // the PTX has no end
  expect_damaged(device, &kept.artifact);
  kept.data[size - 1] = 0;
  kept.data[64] ^= 1;  // the driver refuses the code
  rabbet_cuda_program_t* program = NULL;
  RABBET_EXPECT_ERROR(
      rabbet_cuda_program_get(device, &add_source, &kept.artifact, 1, &program),
      RABBET_STATUS_INTERNAL, "loading the kernel 'add.cu' (machine code)");
  stand_in_device_close(device);
  stand_in_expect_clean();
}

// ---- Kernels that overlap --------------------------------------------------

typedef struct adder_t {
  rabbet_cuda_device_t* device;
  rabbet_cuda_program_t* program;
  rabbet_cuda_launch_t launch;
  void *memory, *token;
} adder_t;

// Begins a run.
static adder_t adder_begin(rabbet_cuda_device_t* device,
                           const rabbet_artifact_t* artifact) {
  adder_t adder = {.device = device,
                   .launch = {.grid = {4, 1, 1}, .block = {256, 1, 1}}};
  const rabbet_device_vtable_t* v = device->base.vtable;
  put(device, NULL, 4000, &adder.memory);
  RABBET_EXPECT_OK(rabbet_cuda_program_get(device, &add_source, artifact,
                                           artifact ? 1 : 0, &adder.program));
  RABBET_EXPECT_OK(rabbet_cuda_program_function(adder.program, "add",
                                                &adder.launch.function));
  RABBET_EXPECT_OK(v->begin_run(&device->base, 1, &adder.token));
  return adder;
}

// Launches it; returns whether it may overlap with the previous one.
static bool adder_overlaps(adder_t* adder, void* stream) {
  int64_t count = 1000;
  void* parameters[] = {&adder->memory, &adder->memory, &adder->memory, &count};
  stand_in()->clear_log();
  RABBET_EXPECT_OK(
      rabbet_cuda_launch(adder->device, &adder->launch, parameters, stream));
  return strstr(stand_in()->log(), ", overlaps 1") != NULL;
}

static void adder_end(adder_t* adder) {
  const rabbet_device_vtable_t* v = adder->device->base.vtable;
  v->end_run(&adder->device->base, adder->token);
  RABBET_EXPECT_OK(v->synchronize_all(&adder->device->base));
  rabbet_cuda_program_release(adder->program);
  v->free(&adder->device->base, adder->memory);
}

// Whether kernels on the device, as it is, overlap.
static bool device_overlaps(rabbet_cuda_device_t* device,
                            const rabbet_artifact_t* artifact) {
  adder_t adder = adder_begin(device, artifact);
  assert_false(adder_overlaps(&adder, NULL));
  bool overlaps = adder_overlaps(&adder, NULL);
  adder_end(&adder);
  return overlaps;
}

// Only with a program's kernel that is before it in the stream.
static void kernels_overlap_with_their_kind(void** state) {
  (void)state;
  rabbet_cuda_device_t* device = stand_in_device_open();
  void* stream = NULL;
  RABBET_EXPECT_OK(device->base.vtable->create_stream(&device->base, &stream));
  adder_t adder = adder_begin(device, NULL);
  assert_false(adder_overlaps(&adder, NULL));
  assert_true(adder_overlaps(&adder, NULL));
  assert_true(adder_overlaps(&adder, NULL));
  assert_false(adder_overlaps(&adder, stream));
  assert_true(adder_overlaps(&adder, stream));
  rabbet_cuda_launch_other(stream);
  assert_false(adder_overlaps(&adder, stream));
  assert_true(adder_overlaps(&adder, stream));
  adder_end(&adder);
  adder = adder_begin(device, NULL);
  assert_false(adder_overlaps(&adder, stream));
  adder_end(&adder);
  device->base.vtable->destroy_stream(&device->base, stream);
  stand_in_device_close(device);
  stand_in_expect_clean();
}

// The call that is enqueued before a library's kernel, or NULL.
static const char* closed_by(adder_t* adder, void* stream) {
  static const char* const calls[] = {"cuMemsetD8Async", "cuGraphAddEmptyNode"};
  stand_in()->clear_log();
  RABBET_EXPECT_OK(rabbet_cuda_launch_close(adder->device, stream));
  for (int i = 0; i < 2; ++i)
    if (strstr(stand_in()->log(), calls[i])) return calls[i];
  return NULL;
}

// A program's kernel admits the next one early. A library's next kernel would
// begin then, too, and read before the program's kernel has written.
static void libraries_await_programs(void** state) {
  (void)state;
  rabbet_cuda_device_t* device = stand_in_device_open();
  const rabbet_device_vtable_t* v = device->base.vtable;
  void *stream = NULL, *graph = NULL;
  RABBET_EXPECT_OK(v->create_stream(&device->base, &stream));
  adder_t adder = adder_begin(device, NULL);
  assert_null(closed_by(&adder, stream));  // each run closes its own
  assert_false(adder_overlaps(&adder, stream));
  assert_string_equal(closed_by(&adder, stream), "cuMemsetD8Async");
  assert_null(closed_by(&adder, stream));
  rabbet_cuda_launch_other(stream);
  assert_string_equal(closed_by(&adder, stream), "cuMemsetD8Async");
  RABBET_EXPECT_OK(v->record_begin(&device->base, stream));
  assert_false(adder_overlaps(&adder, stream));
  assert_string_equal(closed_by(&adder, stream), "cuGraphAddEmptyNode");
  assert_null(closed_by(&adder, stream));
  assert_false(adder_overlaps(&adder, stream));
  RABBET_EXPECT_OK(v->record_end(&device->base, stream, &graph));
  RABBET_EXPECT_OK(v->launch_graph(&device->base, graph, stream));
  assert_null(closed_by(&adder, stream));  // a graph ends as a whole
  v->destroy_graph(&device->base, graph);
  adder_end(&adder);
  v->destroy_stream(&device->base, stream);
  stand_in_device_close(device);
  stand_in_expect_clean();
}

static void devices_overlap(void** state) {
  (void)state;
  static kept_t old;
  stand_in()->set_capability(8, 0);
  rabbet_cuda_device_t* device = stand_in_device_open();
  assert_false(device_overlaps(device, NULL));
  stand_in_device_close(device);
  keep_add(&old);
  stand_in()->set_capability(9, 0);
  device = stand_in_device_open();
  assert_true(device_overlaps(device, NULL));
  stand_in_device_close(device);
  const char* const values[] = {"0", "1"};
  for (int i = 0; i < 2; ++i) {
    setenv("RABBET_CUDA_OVERLAP", values[i], 1);
    device = stand_in_device_open();
    unsetenv("RABBET_CUDA_OVERLAP");
    assert_int_equal(device_overlaps(device, NULL), i);
    stand_in_device_close(device);
  }
  // Code for older GPUs has no instruction that waits.
  device = stand_in_device_open();
  assert_false(device_overlaps(device, &old.artifact));
  assert_false(device_overlaps(device, NULL));
  stand_in_device_close(device);
  stand_in_expect_clean();
}

// A device of its own with a function of add_source and memory.
typedef struct loaded_t {
  rabbet_cuda_device_t* device;
  rabbet_cuda_program_t* program;
  CUfunction function;
  void* data;
} loaded_t;

static loaded_t load(const char* function, size_t bytes) {
  loaded_t loaded = {.device = stand_in_device_open()};
  put(loaded.device, NULL, bytes, &loaded.data);
  RABBET_EXPECT_OK(rabbet_cuda_program_get(loaded.device, &add_source, NULL, 0,
                                           &loaded.program));
  RABBET_EXPECT_OK(
      rabbet_cuda_program_function(loaded.program, function, &loaded.function));
  return loaded;
}

static void unload(const loaded_t* loaded) {
  rabbet_cuda_device_t* device = loaded->device;
  rabbet_cuda_program_release(loaded->program);
  device->base.vtable->free(&device->base, loaded->data);
  stand_in_device_close(device);
  stand_in_expect_clean();
}

// As cudaDeviceReset does for a program after a kernel went wrong: the process
// keeps the context, and with it the error.
static void mend_context(void) {
  CUresult (*reset)(CUdevice device) = NULL;
  void* library = dlopen(getenv("RABBET_CUDA_DRIVER"), RTLD_NOW | RTLD_LOCAL);
  *(void**)&reset = dlsym(library, "cuDevicePrimaryCtxReset_v2");
  assert_non_null(reset);
  assert_int_equal(reset(0), 0);
}

// The stand-in finds threads that end before the kernel before theirs.
static void kernels_that_do_not_wait(void** state) {
  (void)state;
  loaded_t loaded = load("hasty", 4000);
  rabbet_cuda_device_t* device = loaded.device;
  const rabbet_device_vtable_t* v = device->base.vtable;
  void *data = loaded.data, *token = NULL;
  rabbet_cuda_launch_t launch = {
      .function = loaded.function, .grid = {3, 1, 1}, .block = {256, 1, 1}};
  int64_t count = 768;  // no thread is past it
  void* parameters[] = {&data, &count};
  RABBET_EXPECT_OK(v->begin_run(&device->base, 1, &token));
  for (int i = 0; i < 2; ++i)
    RABBET_EXPECT_OK(rabbet_cuda_launch(device, &launch, parameters, NULL));
  RABBET_EXPECT_OK(v->synchronize(&device->base, NULL));
  assert_int_equal(stand_in()->take_misuses(), 0);
  count = 767;
  RABBET_EXPECT_OK(rabbet_cuda_launch(device, &launch, parameters, NULL));
  v->end_run(&device->base, token);
  RABBET_EXPECT_ERROR(v->synchronize(&device->base, NULL),
                      RABBET_STATUS_INTERNAL, "cuStreamSynchronize");
  assert_int_equal(stand_in()->take_misuses(), 1);
  unload(&loaded);
  mend_context();
}

// ---- Failures --------------------------------------------------------------

static void errors_in_sources(void** state) {
  (void)state;
  rabbet_cuda_device_t* device = stand_in_device_open();
  rabbet_cuda_program_t* program = NULL;
  rabbet_cuda_source_t source = add_source;
  source.text = "\nint wrong(;\n";
  RABBET_EXPECT_ERROR(
      rabbet_cuda_program_get(device, &source, NULL, 0, &program),
      RABBET_STATUS_INVALID_ARGUMENT, "add.cu:2:");
  assert_null(program);
  source.text = NULL;
  RABBET_EXPECT_ERROR(
      rabbet_cuda_program_get(device, &source, NULL, 0, &program),
      RABBET_STATUS_INTERNAL, "there is no kernel file 'add.cu'");
  const char* const options[] = {"-DT0=float", "--no-such-option"};
  source = add_source;
  source.options = options;
  source.option_count = 2;
  RABBET_EXPECT_ERROR(
      rabbet_cuda_program_get(device, &source, NULL, 0, &program),
      RABBET_STATUS_INVALID_ARGUMENT, "--no-such-option");
  RABBET_EXPECT_OK(
      rabbet_cuda_program_get(device, &add_source, NULL, 0, &program));
  CUfunction function = NULL;
  RABBET_EXPECT_ERROR(
      rabbet_cuda_program_function(program, "subtract", &function),
      RABBET_STATUS_INTERNAL, "kernel 'subtract' of 'add.cu'");
  rabbet_cuda_program_release(program);
  stand_in_device_close(device);
  stand_in_expect_clean();
}

static rabbet_status_t get_with(rabbet_cuda_device_t* device) {
  rabbet_cuda_program_t* program = NULL;
  CUfunction function = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_cuda_program_get(device, &add_source, NULL, 0, &program));
  rabbet_status_t status =
      rabbet_cuda_program_function(program, "add", &function);
  rabbet_cuda_program_release(program);
  return status;
}

static rabbet_status_t open_and_get(rabbet_allocator_t allocator,
                                    void* user_data) {
  (void)user_data;
  rabbet_device_t* device = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_device_open(0, allocator, &device));
  rabbet_status_t status = get_with(rabbet_cuda(device));
  device->vtable->destroy(device);
  return status;
}

static rabbet_status_t open_and_get_anyhow(void* context) {
  (void)context;
  return open_and_get(rabbet_allocator_system(), NULL);
}

static void everything_fails(void** state) {
  (void)state;
  stand_in();
  assert_true(rabbet_fault_run(open_and_get, NULL) > 3);
  stand_in_expect_clean();
  assert_true(stand_in_fail_each(open_and_get_anyhow, NULL) > 10);
}

// A kernel's error is reported by the next wait and all later calls.
static void kernels_go_wrong(void** state) {
  (void)state;
  loaded_t loaded = load("add", 4000);
  rabbet_cuda_device_t* device = loaded.device;
  const rabbet_device_vtable_t* v = device->base.vtable;
  void *data = loaded.data, *token = NULL;
  rabbet_cuda_launch_t launch = {
      .function = loaded.function, .grid = {40, 1, 1}, .block = {256, 1, 1}};
  int64_t count = 10000;  // of which there are 1000
  void* parameters[] = {&data, &data, &data, &count};
  RABBET_EXPECT_OK(v->begin_run(&device->base, 1, &token));
  launch.block[0] = 512;  // more than its launch bounds
  RABBET_EXPECT_ERROR(rabbet_cuda_launch(device, &launch, parameters, NULL),
                      RABBET_STATUS_INTERNAL, "cuLaunchKernelEx");
  launch.block[0] = 256;
  RABBET_EXPECT_OK(rabbet_cuda_launch(device, &launch, parameters, NULL));
  v->end_run(&device->base, token);
  RABBET_EXPECT_ERROR(v->synchronize(&device->base, NULL),
                      RABBET_STATUS_INTERNAL, "an illegal memory access");
  RABBET_EXPECT_ERROR(v->fill(&device->base, data, 0, 4, NULL),
                      RABBET_STATUS_INTERNAL, "an illegal memory access");
  assert_true(stand_in()->take_misuses() > 0);
  unload(&loaded);
  mend_context();
}

static void addresses_are_not_aligned(void** state) {
  (void)state;
  loaded_t loaded = load("add", 4096);
  rabbet_cuda_device_t* device = loaded.device;
  const rabbet_device_vtable_t* v = device->base.vtable;
  void *data = loaded.data, *token = NULL;
  rabbet_cuda_launch_t launch = {
      .function = loaded.function, .grid = {1, 1, 1}, .block = {32, 1, 1}};
  int64_t count = 32;
  char* odd = (char*)data + 2;
  void* parameters[] = {&odd, &data, &data, &count};
  RABBET_EXPECT_OK(v->begin_run(&device->base, 1, &token));
  RABBET_EXPECT_OK(rabbet_cuda_launch(device, &launch, parameters, NULL));
  v->end_run(&device->base, token);
  RABBET_EXPECT_ERROR(v->synchronize(&device->base, NULL),
                      RABBET_STATUS_INTERNAL, "an illegal memory access");
  assert_int_equal(stand_in()->take_misuses(), 1);
  unload(&loaded);
  mend_context();
}

// The stand-in finds addresses of the host's memory where a GPU would fault,
// although its kernels could read there, and the device's where the host's
// belong. Pinned memory is reached by both.
static void addresses_are_the_hosts(void** state) {
  (void)state;
  loaded_t loaded = load("add", 4000);
  rabbet_cuda_device_t* device = loaded.device;
  const rabbet_device_vtable_t* v = device->base.vtable;
  static float here[1000];
  void *data = loaded.data, *wrong = here, *token = NULL, *pinned = NULL;
  rabbet_cuda_launch_t launch = {
      .function = loaded.function, .grid = {4, 1, 1}, .block = {256, 1, 1}};
  int64_t count = 1000;
  RABBET_EXPECT_OK(v->allocate_host(&device->base, 4000, &pinned));
  void* parameters[] = {&data, &pinned, &data, &count};
  RABBET_EXPECT_OK(v->begin_run(&device->base, 1, &token));
  RABBET_EXPECT_OK(rabbet_cuda_launch(device, &launch, parameters, NULL));
  RABBET_EXPECT_OK(v->synchronize(&device->base, NULL));
  RABBET_EXPECT_ERROR(v->copy_to_host(&device->base, data, data, 4, NULL),
                      RABBET_STATUS_INTERNAL, "cuMemcpyDtoHAsync");
  RABBET_EXPECT_ERROR(v->copy_to_device(&device->base, data, data, 4, NULL),
                      RABBET_STATUS_INTERNAL, "cuMemcpyHtoDAsync");
  assert_int_equal(stand_in()->take_misuses(), 2);
  v->free_host(&device->base, pinned);
  parameters[1] = &wrong;
  RABBET_EXPECT_OK(rabbet_cuda_launch(device, &launch, parameters, NULL));
  v->end_run(&device->base, token);
  RABBET_EXPECT_ERROR(v->synchronize(&device->base, NULL),
                      RABBET_STATUS_INTERNAL, "an illegal memory access");
  assert_int_equal(stand_in()->take_misuses(), 1);
  unload(&loaded);
  mend_context();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(compiled),
      cmocka_unit_test(taken_from_a_store),
      cmocka_unit_test(threads_compile_each_once),
      cmocka_unit_test(threads_that_do_not_wait),
      cmocka_unit_test(threads_work_together),
      cmocka_unit_test(taken_from_a_plan),
      cmocka_unit_test(taken_on_another_gpu),
      cmocka_unit_test(specific),
      cmocka_unit_test(ptx_when_kept),
      cmocka_unit_test(damaged),
      cmocka_unit_test(kernels_overlap_with_their_kind),
      cmocka_unit_test(libraries_await_programs),
      cmocka_unit_test(devices_overlap),
      cmocka_unit_test(kernels_that_do_not_wait),
      cmocka_unit_test(shared_memory_is_permitted),
      cmocka_unit_test(errors_in_sources),
      cmocka_unit_test(everything_fails),
      cmocka_unit_test(kernels_go_wrong),
      cmocka_unit_test(addresses_are_not_aligned),
      cmocka_unit_test(addresses_are_the_hosts),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
