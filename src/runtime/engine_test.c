#include "rabbet/engine.h"

#include "plan_samples.h"

static rabbet_engine_t* make_engine(void (*sample)(maker_t* maker)) {
  maker_t maker;
  maker_begin(&maker, rabbet_allocator_system());
  sample(&maker);
  void* data = NULL;
  size_t size = 0;
  maker_write(&maker, rabbet_allocator_system(), &data, &size);
  maker_end(&maker);
  rabbet_engine_t* engine = NULL;
  RABBET_EXPECT_OK(rabbet_engine_deserialize(
      data, size, NULL, rabbet_allocator_system(), &engine));
  rabbet_free_aligned(rabbet_allocator_system(), data, RABBET_PLAN_ALIGNMENT);
  return engine;
}

static rabbet_context_t* make_context(rabbet_engine_t* engine) {
  rabbet_context_t* context = NULL;
  RABBET_EXPECT_OK(
      rabbet_context_create(engine, rabbet_allocator_system(), &context));
  rabbet_engine_release(engine);
  return context;
}

static void run_static(void** state) {
  (void)state;
  rabbet_context_t* context = make_context(make_engine(sample_static));
  float x[6] = {1, 2, 3, -4, -5, 6}, y[6] = {0};
  RABBET_EXPECT_OK(rabbet_context_set_address(context, 0, x));
  RABBET_EXPECT_OK(rabbet_context_set_address(context, 1, y));
  RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
  static const float expected[6] = {0, 1.5f, 3, 0, 0, 7.5f};
  assert_memory_equal(y, expected, sizeof(expected));
  rabbet_context_destroy(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(run_static),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
