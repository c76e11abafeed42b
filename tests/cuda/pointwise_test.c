// Chains of element-wise layers on the CUDA device: one kernel, however long,
// and no conversion where the network is entered and left in a narrow type.
#include "cuda/made.h"

enum { CHANNELS = 6, PIXELS = 16, CYCLES = 25 };

// Layers of x by numbers for each channel, numbers for all, and x itself: more
// operands than fit into 64 bits.
static net_t chain(rabbet_dtype_t dtype) {
  net_t net = net_begin(0, SYSTEM);
  rabbet_tensor_t* x =
      net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(2, CHANNELS, PIXELS));
  rabbet_tensor_t* y = x;
  for (int i = 0; i < 5 * CYCLES; ++i) {
    static const char* const ops[] = {"PROD", "SUM", "PROD", "SUM", "MIN"};
    char name[16];
    snprintf(name, sizeof(name), "layer%d", i);
    rabbet_tensor_t* operand = i % 5 < 2    ? WEIGHTS(&net, 1, CHANNELS, 1)
                               : i % 5 == 2 ? net_scalar(&net, 3, 0.25)
                               : i % 5 == 3 ? x
                                            : net_scalar(&net, 3, 2);
    y = net_binary(&net, name, ops[i % 5], y, operand);
  }
  y = net_activation(&net, "relu", "RELU", y);
  net_output(&net, y, "y");
  RABBET_EXPECT_OK(rabbet_tensor_set_dtype(x, dtype));
  RABBET_EXPECT_OK(rabbet_tensor_set_dtype(y, dtype));
  return net;
}

static built_t build(const net_t* net, rabbet_timing_cache_t* cache,
                     bool known) {
  rabbet_builder_config_t* config = check_config(3);
  RABBET_EXPECT_OK(rabbet_builder_config_set_device(config, "cuda"));
  RABBET_EXPECT_OK(rabbet_builder_config_set(
      config, RABBET_BUILDER_OPTION_FLAGS, 1 << RABBET_BUILDER_FP16));
  RABBET_EXPECT_OK(rabbet_builder_config_set(
      config, RABBET_BUILDER_OPTION_ERROR_ON_TIMING_CACHE_MISS, known));
  rabbet_builder_config_set_timing_cache(config, cache);
  built_t built = cache && !known ? check_build_until_sure(net->network, config)
                                  : check_build(net->network, config);
  rabbet_builder_config_release(config);
  return built;
}

static void one_kernel(rabbet_dtype_t dtype, double tolerance) {
  made_t made = {.net = chain(dtype)};
  made.oracle = calloc(1, sizeof(*made.oracle));
  oracle_run(made.oracle, made.net.network);
  made.built = build(&made.net, NULL, false);
  assert_int_equal(rabbet_engine_layer_count(made.built.engine), 1);
  rabbet_context_t* context = NULL;
  const rabbet_network_t* network = made.net.network;
  const rabbet_view_t* x = &made.oracle->views[network->inputs.data[0]->id];
  const rabbet_view_t* y = &made.oracle->views[network->outputs.data[0]->id];
  double input[2 * CHANNELS * PIXELS], output[2 * CHANNELS * PIXELS];
  RABBET_EXPECT_OK(rabbet_context_create(made.built.engine, SYSTEM, &context));
  for (int64_t i = 0; i < 2 * CHANNELS * PIXELS; ++i)
    rabbet_store_double(dtype, input, i,
                        rabbet_load_double(x->dtype, x->data, i));
  RABBET_EXPECT_OK(rabbet_context_set_host_address(context, 0, input));
  RABBET_EXPECT_OK(rabbet_context_set_host_address(context, 1, output));
  stand_in()->clear_log();
  RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
  assert_int_equal(stand_in()->calls("cuLaunchKernelEx"), 1);
  for (int64_t i = 0; i < 2 * CHANNELS * PIXELS; ++i) {
    double expected = rabbet_load_double(y->dtype, y->data, i);
    double found = rabbet_load_double(dtype, output, i);
    if (fabs(expected - found) > tolerance * (1 + fabs(expected)))
      fail_msg("element %d: expected %g, found %g", (int)i, expected, found);
  }
  rabbet_context_destroy(context);
  unmake(&made);
}

static void long_chains(void** state) {
  (void)state;
  one_kernel(RABBET_DTYPE_FLOAT, 1e-5);
  // The input's rounding comes to the result once for each time it is added.
  one_kernel(RABBET_DTYPE_HALF, 2e-3);
}

static rabbet_tensor_t* window(net_t* net, const char* name, rabbet_tensor_t* x,
                               int64_t axis, int64_t first, int64_t size) {
  return net_add(net, name,
                 (net_layer_t){.op = "slice",
                               .inputs = {x},
                               .input_count = 1,
                               .attrs = {INTS_ATTR("axes", axis),
                                         INTS_ATTR("start", first),
                                         INTS_ATTR("shape", size)},
                               .attr_count = 3});
}

// The halves of a gate are read where they lie. A single column is not: it has
// gaps, so that its slice stays a layer.
static void gates(void** state) {
  (void)state;
  const struct {
    rabbet_dims_t dims;
    int64_t axis, size;
    size_t layers;
  } cases[] = {
      {DIMS(3, 5, 40), 2, 20, 1},  {DIMS(3, 5, 34), 2, 17, 1},
      {DIMS(2, 8, 3, 7), 1, 4, 1}, {DIMS(6, 9), 0, 3, 1},
      {DIMS(7, 2), 1, 1, 3},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
    made_t made = {.net = net_begin(0, SYSTEM)};
    net_t* net = &made.net;
    rabbet_tensor_t* x = net_input(net, "x", RABBET_DTYPE_FLOAT, cases[i].dims);
    rabbet_tensor_t* up = window(net, "up", x, cases[i].axis, 0, cases[i].size);
    rabbet_tensor_t* gate =
        window(net, "gate", x, cases[i].axis, cases[i].size, cases[i].size);
    gate = net_activation(net, "sigmoid", "SIGMOID", gate);
    net_output(net, net_binary(net, "gated", "PROD", up, gate), "y");
    make(&made, 3, 0);
    assert_int_equal(rabbet_engine_layer_count(made.built.engine),
                     cases[i].layers);
    run(&made, 1e-6);
    unmake(&made);
  }
}

// Times hold for one version of the compiler.
static void other_versions(void** state) {
  (void)state;
  rabbet_timing_cache_t* cache = NULL;
  net_t net = chain(RABBET_DTYPE_FLOAT);
  RABBET_EXPECT_OK(rabbet_timing_cache_create(NULL, 0, SYSTEM, &cache));
  const char* versions[] = {NULL, NULL, "12.9", "12.9", NULL};
  const bool known[] = {false, true, false, true, true};
  for (int i = 0; i < 5; ++i) {
    if (versions[i])
      setenv("RABBET_STAND_IN_NVRTC", versions[i], true);
    else
      unsetenv("RABBET_STAND_IN_NVRTC");
    built_t built = build(&net, cache, known[i]);
    bool measured =
        !strstr(rabbet_build_report_text(built.report), "; 0 measurements");
    assert_int_equal(measured, !known[i]);
    check_built_end(&built);
  }
  rabbet_timing_cache_release(cache);
  net_end(&net);
  assert_int_equal(stand_in()->take_misuses(), 0);
}

int main(void) {
  stand_in();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(long_chains),
      cmocka_unit_test(gates),
      cmocka_unit_test(other_versions),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
