// Loads and runs sample plans on the null device.
#ifndef RABBET_TESTS_RUN_CHECK_H_
#define RABBET_TESTS_RUN_CHECK_H_

#include "plan_samples.h"
#include "rabbet/engine.h"

#define SYSTEM rabbet_allocator_system()

static inline rabbet_status_t run_load(void (*sample)(maker_t* maker),
                                       const rabbet_engine_options_t* options,
                                       rabbet_engine_t** out_engine) {
  void* data = NULL;
  size_t size = 0;
  maker_bytes(sample, SYSTEM, &data, &size);
  rabbet_status_t status =
      rabbet_engine_deserialize(data, size, options, SYSTEM, out_engine);
  rabbet_free_aligned(SYSTEM, data, RABBET_PLAN_ALIGNMENT);
  return status;
}

static inline rabbet_context_t* run_context(void (*sample)(maker_t* maker)) {
  rabbet_engine_t* engine = NULL;
  rabbet_context_t* context = NULL;
  RABBET_EXPECT_OK(run_load(sample, NULL, &engine));
  RABBET_EXPECT_OK(rabbet_context_create(engine, SYSTEM, &context));
  rabbet_engine_release(engine);
  return context;
}

static inline size_t run_io(rabbet_context_t* context, const char* name) {
  int32_t io = rabbet_engine_find_io(rabbet_context_engine(context), name);
  assert_true(io >= 0);
  return (size_t)io;
}

static inline void run_bind(rabbet_context_t* context, const char* name,
                            void* address) {
  RABBET_EXPECT_OK(
      rabbet_context_set_address(context, run_io(context, name), address));
}

static inline rabbet_status_t run_shape1(rabbet_context_t* context,
                                         const char* name, int64_t d0) {
  rabbet_dims_t dims = {.rank = 1, .d = {d0}};
  return rabbet_context_set_input_shape(context, run_io(context, name), &dims);
}

static inline rabbet_status_t run_shape2(rabbet_context_t* context,
                                         const char* name, int64_t d0,
                                         int64_t d1) {
  rabbet_dims_t dims = {.rank = 2, .d = {d0, d1}};
  return rabbet_context_set_input_shape(context, run_io(context, name), &dims);
}

static inline int64_t run_dim0(rabbet_context_t* context, const char* name) {
  rabbet_dims_t dims;
  RABBET_EXPECT_OK(rabbet_context_shape(context, run_io(context, name), &dims));
  return dims.d[0];
}

static inline void run_expect(const float* found, const float* expected,
                              size_t count) {
  for (size_t i = 0; i < count; ++i)
    assert_float_equal(found[i], expected[i], 1e-6f);
}

#endif  // RABBET_TESTS_RUN_CHECK_H_
