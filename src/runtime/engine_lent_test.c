#include <stdlib.h>
#include <string.h>

#include "run_check.h"
#include "runtime/runtime.h"

enum {
  COUNT = 1 << 15,
  SMALL = 1 << 10,  // of too few bytes to be looked for
};

static void fill(float* out, size_t count) {
  for (size_t i = 0; i < count; ++i)
    out[i] = (float)(i * 7 % 1001) - 500;
}

static int32_t add_sum(maker_t* m, const char* name, int32_t y, int64_t count) {
  static float numbers[COUNT];
  fill(numbers, (size_t)count);
  const rabbet_shape_t shape = maker_shape(m, 1, &count);
  int32_t w = maker_constant(m, name, RABBET_DTYPE_FLOAT, shape, numbers);
  sample_add(m, name, m->ios[count == SMALL].value, w, y);
  return w;
}

// y = x + big and b = a + small; constants are the values 4 and 5.
enum { BIG = 4, LITTLE = 5 };
static void sample_sums(maker_t* m) {
  static const int64_t big[] = {COUNT}, small[] = {SMALL};
  const rabbet_dtype_t type = RABBET_DTYPE_FLOAT;
  maker_io(m, "x", true, type, maker_shape(m, 1, big));
  maker_io(m, "a", true, type, maker_shape(m, 1, small));
  int32_t y = maker_io(m, "y", false, type, maker_shape(m, 1, big));
  int32_t b = maker_io(m, "b", false, type, maker_shape(m, 1, small));
  assert_int_equal(add_sum(m, "big", y, COUNT), BIG);
  assert_int_equal(add_sum(m, "small", b, SMALL), LITTLE);
}

// Memory of the caller, aligned as a plan's constants are.
static float* numbers_of(size_t count) {
  void* made = NULL;
  assert_int_equal(
      posix_memalign(&made, RABBET_PLAN_ALIGNMENT, (count + 1) * sizeof(float)),
      0);
  fill(made, count);
  return made;
}

static rabbet_weights_t weights_of(const float* data, int64_t count) {
  return (rabbet_weights_t){
      .dtype = RABBET_DTYPE_FLOAT, .data = data, .count = count};
}

static rabbet_engine_t* load(const rabbet_weights_t* lent, size_t count) {
  const rabbet_engine_options_t options = {.struct_size = sizeof(options),
                                           .device = "null",
                                           .lent = lent,
                                           .lent_count = count};
  rabbet_engine_t* engine = NULL;
  RABBET_EXPECT_OK(run_load(sample_sums, &options, &engine));
  return engine;
}

static const uint8_t* lent_of(const rabbet_engine_t* engine, size_t value) {
  return engine->plan->sequences[0].values[value].lent;
}

static void expect_sums(rabbet_engine_t* engine) {
  static float x[COUNT], y[COUNT], a[SMALL], b[SMALL], wanted[COUNT];
  rabbet_context_t* context = NULL;
  RABBET_EXPECT_OK(rabbet_context_create(engine, SYSTEM, &context));
  run_bind(context, "x", x);
  run_bind(context, "a", a);
  run_bind(context, "y", y);
  run_bind(context, "b", b);
  RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
  fill(wanted, COUNT);
  run_expect(y, wanted, COUNT);
  run_expect(b, wanted, SMALL);
  rabbet_context_destroy(context);
}

// Of the memory that has the constant's size only what is equal is read.
static void equal_memory_is_read(void** state) {
  (void)state;
  float* equal = numbers_of(COUNT);
  float* first = numbers_of(COUNT);
  float* last = numbers_of(COUNT);
  float* small = numbers_of(SMALL);
  first[0] += 1;
  last[COUNT - 1] += 1;
  const rabbet_weights_t lent[] = {
      weights_of(small, SMALL),     weights_of(first, COUNT),
      weights_of(last, COUNT),      weights_of(equal, COUNT),
      weights_of(equal, COUNT / 2), weights_of(NULL, COUNT),
      weights_of(equal, INT64_MAX), weights_of(equal, -1)};
  rabbet_engine_t* engine = load(lent, sizeof(lent) / sizeof(*lent));
  assert_ptr_equal(lent_of(engine, BIG), equal);
  assert_null(lent_of(engine, LITTLE));
  expect_sums(engine);
  // It is read there, and not in the plan.
  assert_ptr_equal(engine->plan->sequences[0].steps[0].group.values[1].constant,
                   equal);
  rabbet_engine_release(engine);
  free(equal);
  free(first);
  free(last);
  free(small);
}

static void unaligned_memory_is_left(void** state) {
  (void)state;
  float* numbers = numbers_of(COUNT);
  memmove(numbers + 1, numbers, COUNT * sizeof(float));
  const rabbet_weights_t lent = weights_of(numbers + 1, COUNT);
  rabbet_engine_t* engine = load(&lent, 1);
  assert_null(lent_of(engine, BIG));
  expect_sums(engine);
  rabbet_engine_release(engine);
  free(numbers);
}

static void missing_list_is_refused(void** state) {
  (void)state;
  const rabbet_engine_options_t options = {
      .struct_size = sizeof(options), .device = "null", .lent_count = 2};
  rabbet_engine_t* engine = NULL;
  RABBET_EXPECT_ERROR(run_load(sample_sums, &options, &engine),
                      RABBET_STATUS_INVALID_ARGUMENT, "lent_count is 2");
  assert_null(engine);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(equal_memory_is_read),
      cmocka_unit_test(unaligned_memory_is_left),
      cmocka_unit_test(missing_list_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
