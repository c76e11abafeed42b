// Data that kernels keep in a plan: from the build through the file to the
// engine.
#include "build_check.h"
#include "deferred_device.h"
#include "plan/plan.h"

#define SYSTEM rabbet_allocator_system()

static built_t build(const char* name) {
  net_t net = net_begin(0, SYSTEM);
  rabbet_tensor_t* x = net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(2, 8));
  rabbet_tensor_t* sum = net_binary(&net, "add", "sum", x, WEIGHTS(&net, 2, 8));
  rabbet_tensor_t* root = net_unary(&net, "abs", "abs", sum);
  net_output(&net, net_unary(&net, "exp", "exp", root), "y");
  RABBET_EXPECT_OK(rabbet_network_set_name(net.network, name));
  rabbet_builder_config_t* config = check_config(1);
  RABBET_EXPECT_OK(rabbet_builder_config_set_device(config, "defer"));
  built_t built = {0};
  RABBET_EXPECT_OK(rabbet_build_plan(net.network, config, SYSTEM, &built.plan,
                                     &built.size, &built.report));
  rabbet_builder_config_release(config);
  net_end(&net);
  return built;
}

static void kept_in_the_plan(void** state) {
  (void)state;
  built_t built = build("model");
  rabbet_plan_t* plan = NULL;
  RABBET_EXPECT_OK(
      rabbet_plan_read(built.plan, built.size, NULL, SYSTEM, &plan));
  assert_true(plan->artifact_count > 0);
  assert_true(plan->artifact_count <= plan->sequences[0].step_count);
  for (size_t s = 0; s < plan->sequences[0].step_count; ++s) {
    const rabbet_plan_step_t* step = &plan->sequences[0].steps[s];
    char code[96];
    snprintf(code, sizeof(code), "code of %s.cu",
             step->group.nodes[0].op->name);
    assert_int_equal(step->artifact_count, 1);
    const rabbet_artifact_t* found = &plan->artifacts[step->artifacts[0]];
    assert_string_equal(found->data, code);
    assert_string_equal(found->name, code + 8);
  }
  rabbet_plan_destroy(plan);
  check_built_end(&built);
}

// An engine compiles nothing that the plan has.
static void given_to_kernels(void** state) {
  (void)state;
  built_t built = build("model");
  assert_true(deferred_counts()->compiled > 0);
  deferred_counts()->compiled = 0;
  RABBET_EXPECT_OK(rabbet_engine_deserialize(built.plan, built.size, NULL,
                                             SYSTEM, &built.engine));
  assert_int_equal(deferred_counts()->compiled, 0);
  char* text = NULL;
  RABBET_EXPECT_OK(rabbet_engine_inspect(built.engine, NULL, -1,
                                         RABBET_INSPECT_TEXT, SYSTEM, &text));
  assert_non_null(strstr(text, "keeps  elementwise.cu: 23 bytes\n"));
  rabbet_free(SYSTEM, text);
  RABBET_EXPECT_OK(rabbet_engine_inspect(built.engine, NULL, -1,
                                         RABBET_INSPECT_JSON, SYSTEM, &text));
  assert_non_null(strstr(text, "{\"Name\": \"elementwise.cu\", \"Key\": \""));
  assert_non_null(strstr(text, "\", \"Bytes\": 23}"));
  rabbet_free(SYSTEM, text);
  check_built_end(&built);
}

// The plan with other code, whose steps are returned.
static size_t damage(const built_t* built, void** data, size_t* size) {
  rabbet_plan_t* plan = NULL;
  RABBET_EXPECT_OK(
      rabbet_plan_read(built->plan, built->size, NULL, SYSTEM, &plan));
  plan->artifacts[0].data = "code of nothing at all; long enough for any";
  rabbet_plan_blob_t weights = {0, plan->weights, plan->weights_size};
  RABBET_EXPECT_OK(rabbet_plan_write(plan, &weights, 1, SYSTEM, data, size));
  size_t steps = plan->sequences[0].step_count;
  rabbet_plan_destroy(plan);
  return steps;
}

// Of a plan that is not trusted no code is looked at, not even damaged code:
// all is compiled anew.
static void not_trusted(void** state) {
  (void)state;
  built_t built = build("model");
  void* data = NULL;
  size_t size = 0, steps = damage(&built, &data, &size);
  rabbet_engine_options_t options = {.struct_size = sizeof(options),
                                     .untrusted = true};
  deferred_counts()->compiled = 0;
  RABBET_EXPECT_OK(
      rabbet_engine_deserialize(data, size, &options, SYSTEM, &built.engine));
  assert_int_equal(deferred_counts()->compiled, steps);
  rabbet_engine_t* engine = NULL;
  options.host_code_allowed = true;
  RABBET_EXPECT_ERROR(
      rabbet_engine_deserialize(data, size, &options, SYSTEM, &engine),
      RABBET_STATUS_INVALID_ARGUMENT, "only one of both can be");
  rabbet_free_aligned(SYSTEM, data, RABBET_PLAN_ALIGNMENT);
  check_built_end(&built);
}

// The file's bytes are whole but not what the kernel wants.
static void damaged_code(void** state) {
  (void)state;
  built_t built = build("model");
  void* data = NULL;
  size_t size = 0;
  damage(&built, &data, &size);
  RABBET_EXPECT_ERROR(
      rabbet_engine_deserialize(data, size, NULL, SYSTEM, &built.engine),
      RABBET_STATUS_DATA_LOSS, "the code is damaged");
  rabbet_free_aligned(SYSTEM, data, RABBET_PLAN_ALIGNMENT);
  check_built_end(&built);
}

static void equal_builds_give_equal_bytes(void** state) {
  (void)state;
  built_t a = build("model"), b = build("model");
  assert_int_equal(a.size, b.size);
  rabbet_plan_t *first = NULL, *second = NULL;
  RABBET_EXPECT_OK(rabbet_plan_read(a.plan, a.size, NULL, SYSTEM, &first));
  RABBET_EXPECT_OK(rabbet_plan_read(b.plan, b.size, NULL, SYSTEM, &second));
  // Times differ from build to build; what is kept must not.
  assert_int_equal(first->artifact_count, second->artifact_count);
  for (size_t i = 0; i < first->artifact_count; ++i) {
    assert_int_equal(
        rabbet_hash_compare(first->artifacts[i].key, second->artifacts[i].key),
        0);
    assert_memory_equal(first->artifacts[i].data, second->artifacts[i].data,
                        first->artifacts[i].size);
  }
  rabbet_plan_destroy(first);
  rabbet_plan_destroy(second);
  check_built_end(&a);
  check_built_end(&b);
}

static int setup(void** state) {
  (void)state;
  return setenv("RABBET_LIBRARY_PATH", RABBET_DEFERRED_FOLDER, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(kept_in_the_plan),
      cmocka_unit_test(given_to_kernels),
      cmocka_unit_test(damaged_code),
      cmocka_unit_test(not_trusted),
      cmocka_unit_test(equal_builds_give_equal_bytes),
  };
  return cmocka_run_group_tests(tests, setup, NULL);
}
