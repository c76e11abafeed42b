// Refitting an engine and looking at its debug tensors, while allocations fail.
#include "rabbet/refit.h"

#include "build_check.h"
#include "faults/fault_allocator.h"

#define SYSTEM rabbet_allocator_system()
enum { COUNT = 1 * 2 * 3 * 3 };

typedef struct refit_plan_t {
  void* data;
  size_t size;
  float kernel[4];  // [2, 2, 1, 1]
  float scale;
} refit_plan_t;

// y = relu(kernel x) * scale, its relu a debug tensor.
static rabbet_network_t* make_network(const refit_plan_t* plan) {
  net_t net = net_begin(0, SYSTEM);
  double kernel[4], scale = plan->scale;
  for (int i = 0; i < 4; ++i)
    kernel[i] = plan->kernel[i];
  rabbet_tensor_t* x =
      net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(1, 2, 3, 3));
  rabbet_tensor_t* w =
      net_weights(&net, RABBET_DTYPE_FLOAT, DIMS(2, 2, 1, 1), kernel);
  rabbet_tensor_t* y = net_add(
      &net, "conv",
      (net_layer_t){.op = "convolution", .inputs = {x, w}, .input_count = 2});
  y = net_activation(&net, "relu", "RELU", y);
  RABBET_EXPECT_OK(rabbet_tensor_set_name(y, "middle"));
  RABBET_EXPECT_OK(rabbet_tensor_set_debug(y, true));
  net_output(&net,
             net_binary(&net, "scale", "PROD", y,
                        net_weights(&net, RABBET_DTYPE_FLOAT, DIMS(1, 1, 1, 1),
                                    &scale)),
             "y");
  return net.network;
}

static refit_plan_t make_plan(int64_t flags) {
  refit_plan_t plan = {.kernel = {1, 2, -3, 4}, .scale = 2};
  rabbet_network_t* network = make_network(&plan);
  rabbet_builder_config_t* config = check_config(0);
  RABBET_EXPECT_OK(
      rabbet_builder_config_set(config, RABBET_BUILDER_OPTION_FLAGS, flags));
  RABBET_EXPECT_OK(
      rabbet_build_plan(network, config, SYSTEM, &plan.data, &plan.size, NULL));
  rabbet_builder_config_release(config);
  rabbet_network_release(network);
  return plan;
}

static const float new_kernel[4] = {0.5f, -1, 2, 3};
static const float new_scale[1] = {-4};

static rabbet_status_t set_all(rabbet_refitter_t* refitter) {
  for (size_t i = 0; i < rabbet_refitter_count(refitter); ++i) {
    rabbet_refit_info_t info = {.struct_size = sizeof(info)};
    rabbet_weights_t weights = {.dtype = RABBET_DTYPE_FLOAT};
    RABBET_RETURN_IF_ERROR(rabbet_refitter_info(refitter, i, &info));
    RABBET_RETURN_IF_ERROR(rabbet_dims_count(&info.dims, &weights.count));
    weights.data = weights.count == 4 ? new_kernel : new_scale;
    RABBET_RETURN_IF_ERROR(rabbet_refitter_set(refitter, i, weights));
  }
  return rabbet_ok();
}

static rabbet_status_t refit(rabbet_engine_t* engine,
                             rabbet_allocator_t allocator) {
  rabbet_refitter_t* refitter = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_refitter_create(engine, allocator, &refitter));
  rabbet_status_t status = set_all(refitter);
  if (rabbet_is_ok(status)) status = rabbet_refitter_commit(refitter);
  rabbet_refitter_destroy(refitter);
  return status;
}

typedef struct seen_t {
  int calls;
  float middle[COUNT];
} seen_t;

static void see(void* user_data, const rabbet_debug_tensor_t* tensor) {
  seen_t* seen = user_data;
  assert_string_equal(tensor->name, "middle");
  assert_int_equal(tensor->dtype, RABBET_DTYPE_FLOAT);
  assert_int_equal(tensor->format, RABBET_FORMAT_LINEAR);
  memcpy(seen->middle, tensor->data, sizeof(seen->middle));
  ++seen->calls;
}

static rabbet_status_t run(rabbet_context_t* context, const float* kernel,
                           float scale) {
  _Alignas(64) float x[COUNT], y[COUNT] = {0};
  seen_t seen = {0};
  for (int i = 0; i < COUNT; ++i)
    x[i] = (float)(i % 7) - 3;
  rabbet_context_set_debug_listener(context,
                                    (rabbet_debug_listener_t){&seen, see});
  RABBET_RETURN_IF_ERROR(
      rabbet_context_set_debug_state(context, "middle", true));
  RABBET_RETURN_IF_ERROR(rabbet_context_set_address(context, 0, x));
  RABBET_RETURN_IF_ERROR(rabbet_context_set_address(context, 1, y));
  RABBET_RETURN_IF_ERROR(rabbet_context_execute(context, NULL));
  assert_int_equal(seen.calls, 1);
  for (int i = 0; i < COUNT; ++i) {
    int row = i / 9, at = i % 9;
    float sum = kernel[2 * row] * x[at] + kernel[2 * row + 1] * x[9 + at];
    float middle = sum > 0 ? sum : 0;
    assert_true(fabsf(seen.middle[i] - middle) < 1e-4f);
    assert_true(fabsf(y[i] - middle * scale) < 1e-4f);
  }
  return rabbet_ok();
}

// ---- The engine alone -------------------------------------------------------

static void weights_are_replaced(void** state) {
  (void)state;
  refit_plan_t plan = make_plan(1 << RABBET_BUILDER_REFIT);
  rabbet_engine_t* engine = NULL;
  rabbet_context_t *first = NULL, *second = NULL;
  RABBET_EXPECT_OK(
      rabbet_engine_deserialize(plan.data, plan.size, NULL, SYSTEM, &engine));
  RABBET_EXPECT_OK(rabbet_context_create(engine, SYSTEM, &first));
  RABBET_EXPECT_OK(run(first, plan.kernel, plan.scale));
  RABBET_EXPECT_OK(rabbet_context_create(engine, SYSTEM, &second));
  RABBET_EXPECT_OK(refit(engine, SYSTEM));
  // One that has run before, and one that has not.
  RABBET_EXPECT_OK(run(first, new_kernel, new_scale[0]));
  RABBET_EXPECT_OK(run(second, new_kernel, new_scale[0]));
  rabbet_context_destroy(first);
  RABBET_EXPECT_OK(refit(engine, SYSTEM));
  RABBET_EXPECT_OK(run(second, new_kernel, new_scale[0]));
  rabbet_context_destroy(second);
  rabbet_engine_release(engine);
  rabbet_free_aligned(SYSTEM, plan.data, 64);
}

// ---- While allocations fail -------------------------------------------------

static rabbet_status_t supply_and_run(rabbet_allocator_t allocator,
                                      void* user_data) {
  const refit_plan_t* plan = user_data;
  rabbet_engine_t* engine = NULL;
  rabbet_context_t* context = NULL;
  void* stripped = NULL;
  size_t size = 0;
  rabbet_status_t status = rabbet_engine_deserialize(plan->data, plan->size,
                                                     NULL, allocator, &engine);
  if (rabbet_is_ok(status)) status = refit(engine, allocator);
  if (rabbet_is_ok(status))
    status = rabbet_context_create(engine, allocator, &context);
  if (rabbet_is_ok(status)) status = run(context, new_kernel, new_scale[0]);
  if (rabbet_is_ok(status))
    status = rabbet_engine_stripped_plan(engine, allocator, &stripped, &size);
  if (rabbet_is_ok(status)) {
    assert_int_equal(size, plan->size);
    assert_memory_equal(stripped, plan->data, size);
  }
  rabbet_free_aligned(allocator, stripped, 64);
  rabbet_context_destroy(context);
  rabbet_engine_release(engine);
  return status;
}

static void stripped_plans_under_faults(void** state) {
  (void)state;
  refit_plan_t plan = make_plan(1 << RABBET_BUILDER_STRIP_PLAN);
  assert_true(rabbet_fault_run(supply_and_run, &plan) > 20);
  rabbet_free_aligned(SYSTEM, plan.data, 64);
}

// An engine whose refit failed refuses to run until it is refitted.
static void refitting_again_after_failure(void** state) {
  (void)state;
  refit_plan_t plan = make_plan(1 << RABBET_BUILDER_REFIT);
  bool failed = true;
  for (int64_t fail_at = 0; failed; ++fail_at) {
    rabbet_fault_allocator_t fault;
    rabbet_engine_t* engine = NULL;
    rabbet_context_t* context = NULL;
    rabbet_fault_initialize(-1, false, &fault);
    rabbet_allocator_t allocator = rabbet_fault_allocator(&fault);
    RABBET_EXPECT_OK(rabbet_engine_deserialize(plan.data, plan.size, NULL,
                                               allocator, &engine));
    RABBET_EXPECT_OK(rabbet_context_create(engine, allocator, &context));
    RABBET_EXPECT_OK(run(context, plan.kernel, plan.scale));
    fault.fail_at = fault.calls + fail_at;
    rabbet_status_t status = refit(engine, allocator);
    failed = fault.failed > 0;
    assert_int_equal(rabbet_status_code(status),
                     failed ? RABBET_STATUS_OUT_OF_MEMORY : RABBET_STATUS_OK);
    rabbet_status_ignore(status);
    fault.fail_at = -1;
    RABBET_EXPECT_OK(refit(engine, allocator));
    RABBET_EXPECT_OK(run(context, new_kernel, new_scale[0]));
    rabbet_context_destroy(context);
    rabbet_engine_release(engine);
    rabbet_fault_deinitialize(&fault);
  }
  rabbet_free_aligned(SYSTEM, plan.data, 64);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(weights_are_replaced),
      cmocka_unit_test(stripped_plans_under_faults),
      cmocka_unit_test(refitting_again_after_failure),
  };
  return cmocka_run_group_tests_name("refit", tests, NULL, NULL);
}
