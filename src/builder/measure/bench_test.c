// How kernels are timed: a device whose clock the test turns.
#include "builder/measure/bench.h"

#include <math.h>

#include "check.h"
#include "core/view.h"

// Nanoseconds: a kernel, enqueuing one call (the first ones, then all others),
// and a graph's overhead.
typedef struct clock_case_t {
  int64_t kernel, asking[4], asked, launch;
  bool can_record, can_chain, is_minor, is_recording;
  int calls, recorded, graphs, replays;
  int64_t now;
} clock_case_t;

static clock_case_t clock_case;

static rabbet_status_t clock_run(void* context) {
  clock_case_t* c = context;
  if (c->is_recording) {
    c->recorded++;
    return rabbet_ok();
  }
  c->now += c->kernel + (c->calls < 4 ? c->asking[c->calls] : c->asked);
  c->calls++;
  return rabbet_ok();
}

static void clock_set_stream(void* context, void* stream) {
  (void)context, (void)stream;
}

static rabbet_status_t clock_time(rabbet_device_t* device, void* stream,
                                  int count, rabbet_status_t (*body)(void*),
                                  void* context, int64_t* out_ns) {
  (void)device, (void)stream;
  int64_t begin = clock_case.now;
  for (int i = 0; i < count; ++i)
    RABBET_RETURN_IF_ERROR(body(context));
  *out_ns = clock_case.now - begin;
  return rabbet_ok();
}

static rabbet_status_t clock_time_each(rabbet_device_t* device, void* stream,
                                       int count,
                                       rabbet_status_t (*body)(void*),
                                       void* context, int64_t* out_ns) {
  assert_in_range(count, 1, RABBET_DEVICE_TIMES);
  RABBET_RETURN_IF_ERROR(body(context));
  for (int i = 0; i < count; ++i)
    RABBET_RETURN_IF_ERROR(
        clock_time(device, stream, 1, body, context, &out_ns[i]));
  return rabbet_ok();
}

static rabbet_status_t clock_stream(rabbet_device_t* device, void** stream) {
  (void)device;
  *stream = &clock_case;
  return rabbet_ok();
}

static void clock_destroy(rabbet_device_t* device, void* what) {
  (void)device, (void)what;
}

static rabbet_status_t clock_begin(rabbet_device_t* device, void* stream) {
  (void)device, (void)stream;
  clock_case.is_recording = true;
  clock_case.recorded = 0;
  return rabbet_ok();
}

static rabbet_status_t clock_end(rabbet_device_t* device, void* stream,
                                 void** graph) {
  (void)device, (void)stream;
  clock_case.is_recording = false;
  clock_case.graphs++;
  *graph = &clock_case;
  return rabbet_ok();
}

static rabbet_status_t clock_launch(rabbet_device_t* device, void* graph,
                                    void* stream) {
  (void)device, (void)graph, (void)stream;
  clock_case.replays++;
  clock_case.now += clock_case.launch + clock_case.recorded * clock_case.kernel;
  return rabbet_ok();
}

static double measure(clock_case_t given, double best_us) {
  const rabbet_device_vtable_t vtable = {
      .time = clock_time,
      .time_each = given.can_chain ? clock_time_each : NULL,
      .create_stream = clock_stream,
      .destroy_stream = clock_destroy,
      .record_begin = given.can_record ? clock_begin : NULL,
      .record_end = clock_end,
      .launch_graph = clock_launch,
      .destroy_graph = clock_destroy};
  rabbet_device_t device = {.vtable = &vtable};
  rabbet_builder_config_t* config = NULL;
  RABBET_EXPECT_OK(
      rabbet_builder_config_create(rabbet_allocator_system(), &config));
  rabbet_build_t build = {.allocator = rabbet_allocator_system(),
                          .config = config,
                          .device = &device,
                          .level = 3};
  RABBET_EXPECT_OK(rabbet_bench_create(&build, &build.bench));
  clock_case = given;
  const rabbet_bench_body_t body = {.run = clock_run,
                                    .context = &clock_case,
                                    .best_us = best_us,
                                    .is_minor = given.is_minor,
                                    .set_stream = clock_set_stream};
  rabbet_timing_t timing = {.us = 0};
  RABBET_EXPECT_OK(rabbet_bench_time(&build, &body, &timing));
  rabbet_bench_destroy(build.bench);
  rabbet_builder_config_release(config);
  return timing.us;
}

// The time that launching takes is no reason to give up a kernel that is timed
// without it, even if it is once much longer than usual.
static void short_kernels_are_not_given_up(void** state) {
  (void)state;
  double us = measure((clock_case_t){.kernel = 1700,
                                     .asking = {90000, 7000, 7000, 7000},
                                     .asked = 7000,
                                     .launch = 3000,
                                     .can_record = true},
                      1.8);
  assert_true(us >= 1.7 && us < 1.8);
  us = measure((clock_case_t){.kernel = 1700,
                              .asking = {90000, 60000, 50000, 7000},
                              .asked = 7000,
                              .launch = 3000,
                              .can_record = true},
               1.8);
  assert_true(us >= 1.7 && us < 1.8);
}

// The first call took long; the recording is as long as a short kernel needs.
static void recordings_are_long_enough(void** state) {
  (void)state;
  double us = measure((clock_case_t){.kernel = 1000,
                                     .asking = {90000, 90000, 90000, 90000},
                                     .launch = 5000,
                                     .can_record = true},
                      0);
  assert_true(us >= 1.0 && us < 1.1);
  assert_int_equal(clock_case.graphs, 2);
}

static void slow_kernels_are_given_up(void** state) {
  (void)state;
  double us = measure(
      (clock_case_t){.kernel = 200000, .asked = 7000, .can_record = true}, 1.8);
  assert_true(us >= 200);
  assert_int_equal(clock_case.graphs, 0);
  assert_int_equal(clock_case.calls, 4);
  // Without recordings the call itself is timed.
  us = measure((clock_case_t){.kernel = 8000}, 1.8);
  assert_true(us == 8);
  assert_int_equal(clock_case.calls, 2);
}

// A kernel that is not the best gets three samples, one that may be eight;
// a replay that is not timed precedes each of them, or several together.
static void few_samples_of_kernels_that_are_behind(void** state) {
  (void)state;
  const clock_case_t behind = {.kernel = 2000, .can_record = true};
  const clock_case_t best = {.kernel = 1500, .can_record = true};
  assert_true(measure(behind, 1.4) == 2);
  assert_int_equal(clock_case.replays, 2 + 2 * 3);
  assert_true(measure(best, 1.4) == 1.5);
  assert_int_equal(clock_case.replays, 2 + 2 * 8);
  assert_true(measure(behind, 0) == 2);
  assert_int_equal(clock_case.replays, 2 + 2 * 8);
  clock_case_t chained = behind;
  chained.can_chain = true;
  assert_true(measure(chained, 1.4) == 2);
  assert_int_equal(clock_case.replays, 2 + 4);
  chained.kernel = best.kernel;
  assert_true(measure(chained, 1.4) == 1.5);
  assert_int_equal(clock_case.replays, 2 + 4 + 6);
  clock_case_t minor = best;
  minor.is_minor = true;
  assert_true(measure(minor, 1.4) == 1.5);
  assert_int_equal(clock_case.replays, 2 + 2 * 3);
  assert_true(measure(minor, 0) == 1.5);
  assert_int_equal(clock_case.replays, 2 + 2 * 3);
}

// With zeros some functions take their slow ways, and others their fast ones.
static void inputs_are_usual_numbers(void** state) {
  (void)state;
  static const rabbet_dtype_t dtypes[] = {RABBET_DTYPE_FLOAT, RABBET_DTYPE_HALF,
                                          RABBET_DTYPE_BF16,
                                          RABBET_DTYPE_DOUBLE};
  enum { COUNT = 5000 };
  rabbet_build_t build = {.allocator = rabbet_allocator_system()};
  rabbet_builder_config_t* config = NULL;
  RABBET_EXPECT_OK(rabbet_builder_config_create(build.allocator, &config));
  RABBET_EXPECT_OK(rabbet_device_create("cpu", build.allocator, &build.device));
  build.config = config;
  RABBET_EXPECT_OK(rabbet_bench_create(&build, &build.bench));
  for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); ++i) {
    size_t element = (size_t)rabbet_dtype_bits(dtypes[i]) / 8;
    void* memory = NULL;
    RABBET_EXPECT_OK(
        rabbet_bench_acquire(&build, dtypes[i], COUNT * element, &memory));
    for (int64_t k = 0; k < COUNT; ++k) {
      double x = fabs(rabbet_load_double(dtypes[i], memory, k));
      assert_true(x > 0.9e-3 && x <= 1);
    }
  }
  rabbet_bench_destroy(build.bench);
  rabbet_device_release(build.device);
  rabbet_builder_config_release(config);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(short_kernels_are_not_given_up),
      cmocka_unit_test(recordings_are_long_enough),
      cmocka_unit_test(slow_kernels_are_given_up),
      cmocka_unit_test(few_samples_of_kernels_that_are_behind),
      cmocka_unit_test(inputs_are_usual_numbers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
