// The user's choice among candidates, as the C interface has it.
#include "build_check.h"
#include "faults/fault_allocator.h"

typedef struct answers_t {
  size_t indices[8], count;
  bool fails;  // select
  bool all;    // every candidate, whatever `indices` say
  size_t asked, reported;
} answers_t;

static rabbet_status_t answer(void* user_data,
                              const rabbet_algorithm_context_t* context,
                              const rabbet_algorithm_t* algorithms,
                              size_t count, size_t* indices,
                              size_t* out_count) {
  answers_t* answers = user_data;
  ++answers->asked;
  assert_true(count > 0 && context->name[0] && context->output_count == 1);
  for (size_t i = 0; i < count; ++i)
    assert_true(algorithms[i].kernel && algorithms[i].implementation >= 0);
  if (answers->fails)
    return RABBET_STATUS(RABBET_STATUS_UNAVAILABLE, "not today");
  *out_count = answers->all ? count : answers->count;
  for (size_t i = 0; i < *out_count && i < count; ++i)
    indices[i] = answers->all ? i : answers->indices[i];
  return rabbet_ok();
}

static rabbet_status_t report(void* user_data,
                              const rabbet_algorithm_context_t* contexts,
                              const rabbet_algorithm_t* algorithms,
                              size_t count) {
  answers_t* answers = user_data;
  answers->reported = count;
  for (size_t i = 0; i < count; ++i)
    assert_true(contexts[i].name && algorithms[i].tensors);
  return rabbet_ok();
}

static net_t sample(void) {
  net_t net = net_begin(0, rabbet_allocator_system());
  rabbet_tensor_t* x = net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(2, 8));
  rabbet_tensor_t* y = net_activation(&net, "a", "TANH", x);
  net_output(&net, net_binary(&net, "b", "SUM", y, WEIGHTS(&net, 1, 8)), "y");
  return net;
}

static rabbet_status_t build(rabbet_network_t* network, answers_t* answers,
                             int64_t flags, rabbet_allocator_t allocator) {
  rabbet_builder_config_t* config = check_config(0);
  RABBET_EXPECT_OK(
      rabbet_builder_config_set(config, RABBET_BUILDER_OPTION_FLAGS, flags));
  rabbet_builder_config_set_selector(
      config, (rabbet_algorithm_selector_t){answers, answer, report});
  void* plan = NULL;
  size_t size = 0;
  rabbet_status_t status =
      rabbet_build_plan(network, config, allocator, &plan, &size, NULL);
  rabbet_free_aligned(allocator, plan, 64);
  rabbet_builder_config_release(config);
  return status;
}

static void answers_of_all_kinds(void** state) {
  (void)state;
  rabbet_allocator_t system = rabbet_allocator_system();
  net_t net = sample();
  answers_t all = {.all = true};
  RABBET_EXPECT_OK(build(net.network, &all, 0, system));
  assert_true(all.asked > 0 && all.reported > 0);
  answers_t failing = {.fails = true};
  RABBET_EXPECT_ERROR(build(net.network, &failing, 0, system),
                      RABBET_STATUS_UNAVAILABLE, "not today");
  answers_t beyond = {.indices = {99}, .count = 1};
  RABBET_EXPECT_ERROR(build(net.network, &beyond, 0, system),
                      RABBET_STATUS_OUT_OF_RANGE, "chose algorithm 99; there");
  answers_t many = {.count = 8};
  RABBET_EXPECT_ERROR(build(net.network, &many, 0, system),
                      RABBET_STATUS_INVALID_ARGUMENT, "chose 8 of");
  answers_t none = {.count = 0};
  RABBET_EXPECT_ERROR(build(net.network, &none, 0, system),
                      RABBET_STATUS_FAILED_PRECONDITION, "left no other way");
  RABBET_EXPECT_ERROR(
      build(net.network, &none, 1 << RABBET_BUILDER_REJECT_EMPTY_ALGORITHMS,
            system),
      RABBET_STATUS_FAILED_PRECONDITION, "REJECT_EMPTY_ALGORITHMS");
  net_end(&net);
}

static rabbet_status_t build_again(rabbet_allocator_t allocator,
                                   void* user_data) {
  answers_t all = {.all = true};
  return build(user_data, &all, 0, allocator);
}

static void failing_allocations(void** state) {
  (void)state;
  net_t net = sample();
  RABBET_EXPECT_OK(rabbet_network_validate(net.network));
  assert_true(rabbet_fault_run(build_again, net.network) > 20);
  net_end(&net);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(answers_of_all_kinds),
      cmocka_unit_test(failing_allocations),
  };
  return cmocka_run_group_tests_name("select", tests, NULL, NULL);
}
