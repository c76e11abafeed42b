// Every allocation of a build fails in turn: a clean error, nothing leaks.
#include "build_check.h"
#include "faults/fault_allocator.h"
#include "rabbet/carried.h"
#include "test_plugins.h"

typedef struct fault_case_t {
  rabbet_network_t* network;
  rabbet_builder_config_t* config;
} fault_case_t;

static rabbet_status_t build(rabbet_allocator_t allocator, void* user_data) {
  const fault_case_t* c = user_data;
  void* plan = NULL;
  size_t size = 0;
  rabbet_build_report_t* report = NULL;
  rabbet_status_t status = rabbet_build_plan(c->network, c->config, allocator,
                                             &plan, &size, &report);
  rabbet_build_report_destroy(report);
  rabbet_free_aligned(allocator, plan, 64);
  return status;
}

static rabbet_tensor_t* conv(net_t* net, const char* name, rabbet_tensor_t* x) {
  return net_add(net, name,
                 (net_layer_t){.op = "convolution",
                               .inputs = {x, WEIGHTS(net, 4, 4, 1, 1)},
                               .input_count = 2});
}

static rabbet_tensor_t* places(net_t* net, const char* name,
                               rabbet_tensor_t* x) {
  return net_add(
      net, name,
      (net_layer_t){.op = "non_zero", .inputs = {x}, .input_count = 1});
}

// Full blocks, and a cut-off last block.
static rabbet_tensor_t* quantize(net_t* net, const char* name,
                                 rabbet_tensor_t* x, rabbet_tensor_t* scale,
                                 int64_t block) {
  return net_add(
      net, name,
      (net_layer_t){.op = "quantize",
                    .inputs = {x, scale},
                    .input_count = 2,
                    .attrs = {INTS_ATTR("block_shape", 1, block, -1, -1)},
                    .attr_count = 1});
}

// Something of everything: rules, folding, fusion, plugins in place, views,
// sizes that a run tells or the build.
static net_t sample(void) {
  net_t net = net_begin(0, rabbet_allocator_system());
  rabbet_tensor_t* x =
      net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(1, 4, 6, 6));
  rabbet_tensor_t* y = conv(&net, "c1", x);
  y = net_binary(&net, "scale", "PROD", y, WEIGHTS(&net, 1, 4, 1, 1));
  y = net_binary(&net, "shift", "SUM", y,
                 net_unary(&net, "folded", "EXP", WEIGHTS(&net, 1, 4, 1, 1)));
  y = net_activation(&net, "r1", "RELU", y);
  y = net_binary(&net, "sum", "SUM", conv(&net, "c2", y), y);
  y = net_plugin(&net, "bump", "b", y);
  net_output(&net, net_plugin(&net, "bump", "b2", x), "x1");
  net_output(&net, quantize(&net, "q2", x, WEIGHTS(&net, 1, 2, 1, 1), 2), "q2");
  net_output(&net, quantize(&net, "q3", x, WEIGHTS(&net, 1, 2, 1, 1), 3), "q3");
  net_output(&net, places(&net, "found", x), "places");
  net_output(&net,
             net_add(&net, "chosen",
                     (net_layer_t){
                         .op = "gather",
                         .inputs = {x, places(&net, "known", WEIGHTS(&net, 1))},
                         .input_count = 2}),
             "chosen");
  net_output(&net,
             net_add(&net, "flat",
                     (net_layer_t){.op = "shuffle",
                                   .inputs = {y},
                                   .input_count = 1,
                                   .attrs = {INTS_ATTR("reshape_dims", 1, -1)},
                                   .attr_count = 1}),
             "y");
  return net;
}

static void without_timing(void** state) {
  (void)state;
  net_t net = sample();
  fault_case_t c = {net.network, check_config(0)};
  RABBET_EXPECT_OK(rabbet_network_validate(net.network));
  int64_t calls = rabbet_fault_run(build, &c);
  assert_true(calls > 20);
  rabbet_builder_config_release(c.config);
  net_end(&net);
}

// All times are in the cache, so that each build goes the same way.
static void with_known_times(void** state) {
  (void)state;
  net_t net = sample();
  fault_case_t c = {net.network, check_config(3)};
  RABBET_EXPECT_OK(rabbet_builder_config_set(
      c.config, RABBET_BUILDER_OPTION_PROFILING_VERBOSITY,
      RABBET_PROFILING_LAYER_NAMES_ONLY));
  rabbet_timing_cache_t* cache = NULL;
  RABBET_EXPECT_OK(
      rabbet_timing_cache_create(NULL, 0, rabbet_allocator_system(), &cache));
  rabbet_builder_config_set_timing_cache(c.config, cache);
  built_t known = check_build_until_sure(c.network, c.config);
  check_built_end(&known);
  rabbet_fault_run(build, &c);
  rabbet_timing_cache_release(cache);
  rabbet_builder_config_release(c.config);
  net_end(&net);
}

// Products of 8 bits, asked for and not.
static void with_ranges(void** state) {
  (void)state;
  net_t net = sample();
  for (size_t i = 0; i < net.network->tensors.count; ++i)
    RABBET_EXPECT_OK(
        rabbet_tensor_set_range(net.network->tensors.data[i], -2, 2));
  for (int asked = 0; asked < 2; ++asked) {
    fault_case_t c = {net.network, check_config(0)};
    RABBET_EXPECT_OK(rabbet_builder_config_set(
        c.config, RABBET_BUILDER_OPTION_FLAGS, 1 << RABBET_BUILDER_INT8));
    for (size_t i = 0; asked && i < net.network->layers.count; ++i)
      if (strcmp(net.network->layers.data[i]->op->name, "convolution") == 0)
        RABBET_EXPECT_OK(rabbet_layer_set_precision(net.network->layers.data[i],
                                                    RABBET_DTYPE_INT8));
    RABBET_EXPECT_OK(rabbet_network_validate(net.network));
    RABBET_EXPECT_OK(build(rabbet_allocator_system(), &c));
    rabbet_fault_run(build, &c);
    rabbet_builder_config_release(c.config);
  }
  net_end(&net);
}

static rabbet_status_t collect(void* user_data,
                               const rabbet_plugin_key_t* plugins,
                               size_t plugin_count, const char* const* modules,
                               size_t module_count,
                               rabbet_carried_sink_t sink) {
  static const char* const needed[] = {"numpy 2.1.0"};
  (void)user_data;
  assert_int_equal(plugin_count, 1);
  assert_string_equal(plugins[0].name, "bump");
  rabbet_carried_t carried = {.kind = RABBET_CARRIED_PYTHON,
                              .name = "ops",
                              .data = "x = 1\n",
                              .size = 6,
                              .requirements = needed,
                              .requirement_count = 1};
  rabbet_status_t status = sink.add(sink.context, &carried);
  for (size_t i = 0; rabbet_is_ok(status) && i < module_count; ++i) {
    carried.name = modules[i];
    status = sink.add(sink.context, &carried);
  }
  return status;
}

static rabbet_status_t run_modules(void* user_data,
                                   const rabbet_carried_t* modules,
                                   size_t count) {
  (void)user_data, (void)modules, (void)count;
  return rabbet_ok();
}

static rabbet_status_t load_plugins(void* user_data, const char* const* plugins,
                                    size_t count) {
  (void)user_data, (void)plugins, (void)count;
  return rabbet_ok();
}

static void close_host(void* user_data) {
  (void)user_data;
}

// A library and source of plugins in the plan.
static void with_carried_code(void** state) {
  (void)state;
  static const char* const libraries[] = {LIBRARIES "library_good.so"};
  static const char* const modules[] = {"helpers", "more"};
  const rabbet_source_host_t host = {.struct_size = sizeof(host),
                                     .collect = collect,
                                     .run = run_modules,
                                     .load = load_plugins,
                                     .close = close_host};
  net_t net = net_begin(0, rabbet_allocator_system());
  rabbet_tensor_t* x = net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(2, 2));
  net_output(&net, net_plugin(&net, "bump", "b", x), "y");
  fault_case_t c = {net.network, check_config(0)};
  RABBET_EXPECT_OK(rabbet_source_host_set(&host));
  RABBET_EXPECT_OK(
      rabbet_builder_config_set_plugin_libraries(c.config, libraries, 1));
  RABBET_EXPECT_OK(
      rabbet_builder_config_set_source_modules(c.config, modules, 2));
  RABBET_EXPECT_OK(rabbet_builder_config_set(
      c.config, RABBET_BUILDER_OPTION_KEEP_PLUGIN_SOURCE, 1));
  assert_string_equal(rabbet_builder_config_plugin_library(c.config, 0),
                      libraries[0]);
  assert_null(rabbet_builder_config_plugin_library(c.config, 1));
  assert_string_equal(rabbet_builder_config_source_module(c.config, 1), "more");
  RABBET_EXPECT_OK(rabbet_network_validate(net.network));
  RABBET_EXPECT_OK(build(rabbet_allocator_system(), &c));
  rabbet_fault_run(build, &c);
  RABBET_EXPECT_OK(rabbet_source_host_set(NULL));
  RABBET_EXPECT_ERROR(build(rabbet_allocator_system(), &c),
                      RABBET_STATUS_FAILED_PRECONDITION,
                      "source of plugins: there is no Python in this process");
  rabbet_builder_config_release(c.config);
  net_end(&net);
}

// An entry for each profile; they share the IR and its constants.
static void with_profiles(void** state) {
  (void)state;
  net_t net = net_begin(0, rabbet_allocator_system());
  rabbet_tensor_t* x =
      net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(-1, 4, 2, 2));
  net_output(&net, conv(&net, "c1", x), "y");
  fault_case_t c = {net.network, check_config(0)};
  for (int64_t opt = 1; opt < 3; ++opt)
    check_add_profile(c.config, "x", DIMS(1, 4, 2, 2), DIMS(opt, 4, 2, 2),
                      DIMS(4, 4, 2, 2));
  RABBET_EXPECT_OK(rabbet_network_validate(net.network));
  RABBET_EXPECT_OK(build(rabbet_allocator_system(), &c));
  rabbet_fault_run(build, &c);
  rabbet_builder_config_release(c.config);
  net_end(&net);
}

// Kernels are made and run under failing allocations too.
static void with_measuring(void** state) {
  (void)state;
  net_t net = net_begin(0, rabbet_allocator_system());
  rabbet_tensor_t* x =
      net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(1, 4, 2, 2));
  net_output(&net, net_activation(&net, "r1", "RELU", conv(&net, "c1", x)),
             "y");
  fault_case_t c = {net.network, check_config(1)};
  RABBET_EXPECT_OK(rabbet_builder_config_set(
      c.config, RABBET_BUILDER_OPTION_PROFILING_VERBOSITY,
      RABBET_PROFILING_DETAILED));
  RABBET_EXPECT_OK(
      rabbet_builder_config_set(c.config, RABBET_BUILDER_OPTION_AVG_TIMING, 1));
  RABBET_EXPECT_OK(rabbet_network_validate(net.network));
  rabbet_fault_run(build, &c);
  rabbet_builder_config_release(c.config);
  net_end(&net);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(without_timing), cmocka_unit_test(with_known_times),
      cmocka_unit_test(with_ranges),    cmocka_unit_test(with_carried_code),
      cmocka_unit_test(with_profiles),  cmocka_unit_test(with_measuring),
  };
  return cmocka_run_group_tests_name("faults", tests, test_plugins_setup,
                                     test_plugins_teardown);
}
