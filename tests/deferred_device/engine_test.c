// The runtime on a device whose memory is not the host's.
#include <math.h>

#include "deferred_device.h"
#include "plan_samples.h"
#include "rabbet/engine.h"
#include "test_plugins.h"

#define SYSTEM rabbet_allocator_system()
#define ROOM 64

static rabbet_device_t* device;

// sample_static with a large constant that nothing reads.
static void sample_unread(maker_t* m) {
  static const int64_t dims[] = {1000};
  static const float numbers[1000];
  sample_static(m);
  maker_constant(m, "unread", RABBET_DTYPE_FLOAT, maker_shape(m, 1, dims),
                 numbers);
}

static rabbet_context_t* make_context(void (*sample)(maker_t* maker)) {
  maker_t maker;
  void* data = NULL;
  size_t size = 0;
  rabbet_engine_t* engine = NULL;
  rabbet_context_t* context = NULL;
  maker_begin(&maker, SYSTEM);
  sample(&maker);
  maker.plan->device = "defer";
  maker_write(&maker, SYSTEM, &data, &size);
  maker_end(&maker);
  RABBET_EXPECT_OK(
      rabbet_engine_deserialize(data, size, NULL, SYSTEM, &engine));
  rabbet_free_aligned(SYSTEM, data, RABBET_PLAN_ALIGNMENT);
  RABBET_EXPECT_OK(rabbet_context_create(engine, SYSTEM, &context));
  rabbet_engine_release(engine);
  return context;
}

// Room on the device for an input or output.
static void* place(rabbet_context_t* context, const char* name) {
  void* memory = NULL;
  int32_t io = rabbet_engine_find_io(rabbet_context_engine(context), name);
  RABBET_EXPECT_OK(device->vtable->allocate(device, ROOM, &memory));
  RABBET_EXPECT_OK(rabbet_context_set_address(context, (size_t)io, memory));
  return memory;
}

static void put(void* memory, const void* data, size_t size) {
  RABBET_EXPECT_OK(
      device->vtable->copy_to_device(device, memory, data, size, NULL));
}

static void expect(const void* memory, const float* expected, size_t count) {
  float found[ROOM / sizeof(float)];
  RABBET_EXPECT_OK(device->vtable->copy_to_host(device, found, memory,
                                                count * sizeof(float), NULL));
  for (size_t i = 0; i < count; ++i)
    assert_float_equal(found[i], expected[i], 1e-6f);
}

static void set_shape(rabbet_context_t* context, size_t io, int32_t rank,
                      int64_t d0, int64_t d1) {
  rabbet_dims_t dims = {.rank = rank, .d = {d0, d1}};
  RABBET_EXPECT_OK(rabbet_context_set_input_shape(context, io, &dims));
}

static void constants(void** state) {
  (void)state;
  rabbet_context_t* context = make_context(sample_static);
  static const float x[] = {1, 2, 3, -4, -5, 6};
  static const float expected[] = {0, 1.5f, 3, 0, 0, 7.5f};
  void *deferred_x = place(context, "x"), *deferred_y = place(context, "y");
  put(deferred_x, x, sizeof(x));
  RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
  expect(deferred_y, expected, 6);
  rabbet_context_destroy(context);
  device->vtable->free(device, deferred_x);
  device->vtable->free(device, deferred_y);
}

// A constant that no kernel reads is not there; one that a kernel keeps is its
// own.
static void constants_of_kernels(void** state) {
  (void)state;
  static const float x[] = {1, 2, 3, -4, -5, 6};
  static const float expected[] = {0, 1.5f, 3, 0, 0, 7.5f};
  int before = deferred_counts()->allocated;
  rabbet_context_t* context = make_context(sample_static);
  // 24 bytes of "w", aligned.
  assert_int_equal(deferred_counts()->allocated - before, 256);
  rabbet_context_destroy(context);
  assert_int_equal(deferred_counts()->allocated, before);
  deferred_set_owning(true);
  context = make_context(sample_unread);
  deferred_set_owning(false);
  // The kernel's copy of "w", and the least that an engine allocates.
  assert_int_equal(deferred_counts()->allocated - before, 24 + 256);
  void *deferred_x = place(context, "x"), *deferred_y = place(context, "y");
  put(deferred_x, x, sizeof(x));
  RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
  expect(deferred_y, expected, 6);
  rabbet_context_destroy(context);
  device->vtable->free(device, deferred_x);
  device->vtable->free(device, deferred_y);
  assert_int_equal(deferred_counts()->allocated, before);
}

typedef struct heard_t {
  int count;
  float milliseconds[4];
} heard_t;

static void hear(void* user_data, const char* layer, float milliseconds) {
  heard_t* heard = user_data;
  (void)layer;
  assert_true(heard->count < 4);
  heard->milliseconds[heard->count++] = milliseconds;
}

// Layers' times are the device's, also where the host waits in between.
static void times(void** state) {
  (void)state;
  static void (*const made[])(maker_t*) = {sample_static, sample_reads};
  for (int i = 0; i < 2; ++i) {
    rabbet_context_t* context = make_context(made[i]);
    static const float x[] = {0, 1, 0, -2, 3, 4};
    void *deferred_x = place(context, "x"), *deferred_y = place(context, "y");
    heard_t heard = {0};
    put(deferred_x, x, sizeof(x));
    if (i == 1) set_shape(context, 0, 1, 5, 0);
    RABBET_EXPECT_OK(rabbet_context_set_profiler(
        context, (rabbet_profiler_t){&heard, hear}));
    RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
    assert_int_equal(heard.count, i == 0 ? 2 : 3);
    // The plugin does nothing on the device; other steps take a microsecond.
    for (int k = 0; k < heard.count; ++k)
      assert_float_equal(heard.milliseconds[k], i == 1 && k == 0 ? 0 : 0.001f,
                         1e-7f);
    rabbet_context_destroy(context);
    device->vtable->free(device, deferred_x);
    device->vtable->free(device, deferred_y);
  }
}

// Runs follow each other while the device has not begun with the first.
static void runs_in_a_row(void** state) {
  (void)state;
  enum { RUNS = 12 };
  rabbet_context_t* contexts[2] = {make_context(sample_dynamic),
                                   make_context(sample_dynamic)};
  static const float a[] = {1, 2,  3,  4,  5,  6,  7,  8,
                            9, 10, 11, 12, 13, 14, 15, 16},
                     b[16];
  void *deferred_a = place(contexts[0], "a"),
       *deferred_b = place(contexts[0], "b");
  void* deferred_n[2][RUNS];
  put(deferred_a, a, sizeof(a));
  put(deferred_b, b, sizeof(b));
  RABBET_EXPECT_OK(rabbet_context_set_address(contexts[1], 0, deferred_a));
  RABBET_EXPECT_OK(rabbet_context_set_address(contexts[1], 1, deferred_b));
  void *deferred_y = place(contexts[0], "y"),
       *deferred_m = place(contexts[0], "m");
  RABBET_EXPECT_OK(rabbet_context_set_address(contexts[1], 2, deferred_y));
  RABBET_EXPECT_OK(rabbet_context_set_address(contexts[1], 4, deferred_m));
  deferred_set_lazy(true);
  for (int i = 0; i < RUNS; ++i) {
    for (int k = 0; k < 2; ++k) {
      // More shapes than are kept.
      int64_t batch = i % 9;
      deferred_n[k][i] = place(contexts[k], "n");
      set_shape(contexts[k], 0, 2, batch, 2);
      set_shape(contexts[k], 1, 2, batch, 2);
      RABBET_EXPECT_OK(rabbet_context_execute(contexts[k], NULL));
    }
  }
  RABBET_EXPECT_OK(device->vtable->synchronize(device, NULL));
  deferred_set_lazy(false);
  for (int i = 0; i < RUNS; ++i) {
    for (int k = 0; k < 2; ++k) {
      int32_t twice = -1;
      RABBET_EXPECT_OK(device->vtable->copy_to_host(device, &twice,
                                                    deferred_n[k][i], 4, NULL));
      assert_int_equal(twice, 2 * (i % 9));
      device->vtable->free(device, deferred_n[k][i]);
    }
  }
  rabbet_context_destroy(contexts[0]);
  rabbet_context_destroy(contexts[1]);
  assert_int_equal(deferred_counts()->pinned, 0);
  void* rest[] = {deferred_a, deferred_b, deferred_y, deferred_m};
  for (int i = 0; i < 4; ++i)
    device->vtable->free(device, rest[i]);
}

// Values that the host writes for steps and for outputs.
static void host_values(void** state) {
  (void)state;
  rabbet_context_t* context = make_context(sample_dynamic);
  static const char* const names[] = {"a", "b", "y", "n", "m"};
  static const float a[] = {1, 2, 3, 4, 5, 6}, b[] = {-3, 0, 1, -9, 0, 1};
  void* memory[5];
  for (int i = 0; i < 5; ++i)
    memory[i] = place(context, names[i]);
  put(memory[0], a, sizeof(a));
  put(memory[1], b, sizeof(b));
  for (int64_t batch = 3; batch >= 1; --batch) {
    set_shape(context, 0, 2, batch, 2);
    set_shape(context, 1, 2, batch, 2);
    RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
    float expected[6], less = (float)batch - 1;
    int32_t twice = 0;
    for (int64_t i = 0; i < 2 * batch; ++i)
      expected[i] = fmaxf(a[i] + b[i], 0);
    expect(memory[2], expected, (size_t)batch * 2);
    expect(memory[4], &less, 1);
    RABBET_EXPECT_OK(
        device->vtable->copy_to_host(device, &twice, memory[3], 4, NULL));
    assert_int_equal(twice, 2 * batch);
  }
  rabbet_context_destroy(context);
  for (int i = 0; i < 5; ++i)
    device->vtable->free(device, memory[i]);
}

static void read_back(void** state) {
  (void)state;
  rabbet_context_t* context = make_context(sample_reads);
  static const float x[] = {0, 1, 0, -2, 3};
  static const float expected[] = {2, -2, 6};
  void *deferred_x = place(context, "x"), *deferred_y = place(context, "y");
  rabbet_dims_t dims;
  put(deferred_x, x, sizeof(x));
  set_shape(context, 0, 1, 5, 0);
  RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
  RABBET_EXPECT_OK(rabbet_context_shape(context, 1, &dims));
  assert_int_equal(dims.d[0], 3);
  expect(deferred_y, expected, 3);
  rabbet_context_destroy(context);
  device->vtable->free(device, deferred_x);
  device->vtable->free(device, deferred_y);
}

// A shape input lies on the host; the step that reads it gets a copy.
static void shape_inputs(void** state) {
  (void)state;
  rabbet_context_t* context = make_context(sample_shape_input);
  static const float x[] = {1, 2, 3, 4, 5, 6, 7, 8};
  void *deferred_x = place(context, "x"), *deferred_y = place(context, "y");
  int32_t s = 0;
  put(deferred_x, x, sizeof(x));
  RABBET_EXPECT_OK(rabbet_context_set_address(context, 1, &s));
  for (s = 0; s <= 8; ++s) {
    RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
    expect(deferred_y, x, (size_t)s);
  }
  rabbet_context_destroy(context);
  device->vtable->free(device, deferred_x);
  device->vtable->free(device, deferred_y);
}

static void* give_room(void* user_data, const char* name, void* current,
                       size_t size, size_t alignment, void* stream) {
  (void)name, (void)current, (void)alignment, (void)stream;
  assert_true(size <= ROOM);
  return user_data;
}

static void late_sizes(void** state) {
  (void)state;
  rabbet_context_t* context = make_context(sample_late);
  static const float x[] = {4, -1, 2, 3, 5, 6, 7, 8};
  static const float expected[] = {4, 0, 2, 3};
  void *deferred_x = place(context, "x"), *deferred_z = place(context, "z");
  put(deferred_x, x, sizeof(x));
  RABBET_EXPECT_OK(rabbet_context_set_output_allocator(
      context, 1,
      (rabbet_output_allocator_t){.user_data = deferred_z,
                                  .reallocate = give_room}));
  RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
  expect(deferred_z, expected, 4);
  rabbet_context_destroy(context);
  device->vtable->free(device, deferred_x);
  device->vtable->free(device, deferred_z);
}

// Inputs and outputs in the host's memory: copied by the run, in both ways of
// giving memory, and back to device memory.
static void host_addresses(void** state) {
  (void)state;
  rabbet_context_t* context = make_context(sample_dynamic);
  static const char* const names[] = {"a", "b", "y", "n", "m"};
  static const float a[] = {1, 2, 3, 4, 5, 6}, b[] = {-3, 0, 1, -9, 0, 1};
  float y[6], m = 0;
  int32_t n = 0;
  void* memory[] = {(void*)(uintptr_t)a, (void*)(uintptr_t)b, y, &n, &m};
  for (size_t i = 0; i < 5; ++i) {
    int32_t io =
        rabbet_engine_find_io(rabbet_context_engine(context), names[i]);
    RABBET_EXPECT_OK(
        rabbet_context_set_host_address(context, (size_t)io, memory[i]));
  }
  for (int64_t batch = 1; batch <= 3; ++batch) {
    set_shape(context, 0, 2, batch, 2);
    set_shape(context, 1, 2, batch, 2);
    RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
    for (int64_t i = 0; i < 2 * batch; ++i)
      assert_float_equal(y[i], fmaxf(a[i] + b[i], 0), 0);
    assert_int_equal(n, 2 * batch);
    assert_float_equal(m, (float)batch - 1, 0);
  }
  void* deferred_a = place(context, "a");
  put(deferred_a, b, sizeof(b));
  RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
  for (int64_t i = 0; i < 6; ++i)
    assert_float_equal(y[i], fmaxf(b[i] + b[i], 0), 0);
  rabbet_context_destroy(context);
  device->vtable->free(device, deferred_a);
}

static void host_output_allocator(void** state) {
  (void)state;
  rabbet_context_t* context = make_context(sample_late);
  static const float x[] = {4, -1, 2, 3, 5, 6, 7, 8};
  static const float expected[] = {4, 0, 2, 3};
  float z[ROOM / sizeof(float)];
  RABBET_EXPECT_OK(
      rabbet_context_set_host_address(context, 0, (void*)(uintptr_t)x));
  RABBET_EXPECT_OK(rabbet_context_set_output_allocator(
      context, 1,
      (rabbet_output_allocator_t){
          .user_data = z, .reallocate = give_room, .host = true}));
  for (int run = 0; run < 2; ++run) {
    memset(z, 0, sizeof(z));
    RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
    assert_memory_equal(z, expected, sizeof(expected));
  }
  rabbet_context_destroy(context);
}

static int setup(void** state) {
  (void)state;
  setenv("RABBET_LIBRARY_PATH", RABBET_DEFERRED_FOLDER, 1);
  test_plugins_register();
  RABBET_EXPECT_OK(rabbet_device_create("defer", SYSTEM, &device));
  return 0;
}

static int teardown(void** state) {
  (void)state;
  rabbet_device_release(device);
  test_plugins_deregister();
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(constants),
      cmocka_unit_test(host_values),
      cmocka_unit_test(read_back),
      cmocka_unit_test(shape_inputs),
      cmocka_unit_test(late_sizes),
      cmocka_unit_test(host_addresses),
      cmocka_unit_test(host_output_allocator),
      cmocka_unit_test(constants_of_kernels),
      cmocka_unit_test(times),
      cmocka_unit_test(runs_in_a_row),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
