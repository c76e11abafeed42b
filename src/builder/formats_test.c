// Types and formats, on the CPU: weakly typed networks, formats asked for at
// inputs and outputs, conversions between them.
#include "build_check.h"

static bool cpu_is_there(void) {
  net_t net = net_begin(0, rabbet_allocator_system());
  net_output(&net,
             net_activation(&net, "r", "RELU",
                            net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(1))),
             "y");
  rabbet_builder_config_t* config = check_config(0);
  RABBET_EXPECT_OK(rabbet_builder_config_set_device(config, "cpu"));
  void* plan = NULL;
  size_t size = 0;
  rabbet_status_t status = rabbet_build_plan(
      net.network, config, rabbet_allocator_system(), &plan, &size, NULL);
  bool there = rabbet_status_code(status) != RABBET_STATUS_UNAVAILABLE;
  if (there)
    RABBET_EXPECT_OK(status);
  else
    rabbet_status_ignore(status);
  rabbet_free_aligned(rabbet_allocator_system(), plan, 64);
  rabbet_builder_config_release(config);
  net_end(&net);
  return there;
}

static rabbet_tensor_t* conv(net_t* net, const char* name, rabbet_tensor_t* x,
                             int64_t channels) {
  return net_add(
      net, name,
      (net_layer_t){.op = "convolution",
                    .inputs = {x, WEIGHTS(net, channels, channels, 3, 3)},
                    .input_count = 2,
                    .attrs = {INTS_ATTR("pre_padding", 1, 1),
                              INTS_ATTR("post_padding", 1, 1)},
                    .attr_count = 2});
}

enum { CHANNELS = 20, SIZE = 6 };

static net_t sample(void) {
  net_t net = net_begin(0, rabbet_allocator_system());
  rabbet_tensor_t* x =
      net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(1, CHANNELS, SIZE, SIZE));
  rabbet_tensor_t* a =
      net_activation(&net, "r1", "RELU", conv(&net, "c1", x, CHANNELS));
  rabbet_tensor_t* b =
      net_binary(&net, "sum", "SUM", conv(&net, "c2", a, CHANNELS), a);
  net_output(&net, net_activation(&net, "r2", "RELU", b), "y");
  return net;
}

static rabbet_builder_config_t* cpu_config(int level, int64_t flags) {
  rabbet_builder_config_t* config = check_config(level);
  RABBET_EXPECT_OK(rabbet_builder_config_set_device(config, "cpu"));
  RABBET_EXPECT_OK(
      rabbet_builder_config_set(config, RABBET_BUILDER_OPTION_FLAGS, flags));
  return config;
}

// Half precision inside, single outside: near, and the caller sees FP32.
static void weakly_typed(void** state) {
  (void)state;
  if (!cpu_is_there()) skip();
  net_t net = sample();
  oracle_t* oracle = calloc(1, sizeof(*oracle));
  oracle_run(oracle, net.network);
  const int64_t flags[] = {1 << RABBET_BUILDER_FP16, 1 << RABBET_BUILDER_BF16,
                           1 << RABBET_BUILDER_FP16 | 1 << RABBET_BUILDER_BF16};
  for (size_t i = 0; i < 3; ++i)
    for (int level = 0; level <= 3; level += 3) {
      rabbet_builder_config_t* config = cpu_config(level, flags[i]);
      built_t built = check_build(net.network, config);
      assert_int_equal(rabbet_engine_io(built.engine, 0)->dtype,
                       RABBET_DTYPE_FLOAT);
      check_run(&built, oracle, i == 0 ? 0.02 : 0.15);
      check_built_end(&built);
      rabbet_builder_config_release(config);
    }
  oracle_end(oracle);
  free(oracle);
  net_end(&net);
}

// The precision of one layer and the type of an output are demands.
static void precision_and_output_type(void** state) {
  (void)state;
  if (!cpu_is_there()) skip();
  net_t net = sample();
  rabbet_network_t* network = net.network;
  for (size_t i = 0; i < rabbet_network_layer_count(network); ++i) {
    rabbet_layer_t* layer = rabbet_network_layer(network, i);
    if (strcmp(rabbet_layer_name(layer), "c2") == 0)
      RABBET_EXPECT_OK(rabbet_layer_set_precision(layer, RABBET_DTYPE_BF16));
  }
  rabbet_builder_config_t* config = cpu_config(0, 0);
  built_t built = check_build(network, config);
  const char* text = rabbet_build_report_text(built.report);
  const char* row = strstr(text, "\nc2 ");
  assert_non_null(row);
  assert_true(strncmp(row + strcspn(row, "BFH"), "BF16", 4) == 0);
  check_built_end(&built);
  rabbet_builder_config_release(config);
  net_end(&net);
}

static void to_hwc(const float* from, float* to, bool back) {
  for (int c = 0; c < CHANNELS; ++c)
    for (int i = 0; i < SIZE * SIZE; ++i)
      if (back)
        to[c * SIZE * SIZE + i] = from[i * CHANNELS + c];
      else
        to[i * CHANNELS + c] = from[c * SIZE * SIZE + i];
}

// Formats that the caller asks for at the boundary.
static void formats_at_the_boundary(void** state) {
  (void)state;
  if (!cpu_is_there()) skip();
  net_t net = sample();
  oracle_t* oracle = calloc(1, sizeof(*oracle));
  oracle_run(oracle, net.network);
  rabbet_tensor_t* x = rabbet_network_input(net.network, 0);
  rabbet_tensor_t* y = rabbet_network_output(net.network, 0);
  RABBET_EXPECT_OK(
      rabbet_tensor_set_allowed_formats(x, (uint64_t)1 << RABBET_FORMAT_HWC));
  RABBET_EXPECT_OK(
      rabbet_tensor_set_allowed_formats(y, (uint64_t)1 << RABBET_FORMAT_HWC));
  for (int level = 0; level <= 3; level += 3) {
    rabbet_builder_config_t* config = cpu_config(level, 0);
    built_t built = check_build(net.network, config);
    float in[CHANNELS * SIZE * SIZE], out[CHANNELS * SIZE * SIZE],
        plain[CHANNELS * SIZE * SIZE];
    for (int i = 0; i < 2; ++i)
      assert_int_equal(rabbet_engine_io(built.engine, (size_t)i)->format,
                       RABBET_FORMAT_HWC);
    to_hwc(oracle->views[x->id].data, in, false);
    rabbet_context_t* context = NULL;
    RABBET_EXPECT_OK(rabbet_context_create(
        built.engine, rabbet_allocator_system(), &context));
    RABBET_EXPECT_OK(rabbet_context_set_address(context, 0, in));
    RABBET_EXPECT_OK(rabbet_context_set_address(context, 1, out));
    RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
    to_hwc(out, plain, true);
    check_equal(&oracle->views[y->id], plain, 1e-4, "y");
    rabbet_context_destroy(context);
    check_built_end(&built);
    rabbet_builder_config_release(config);
  }
  oracle_end(oracle);
  free(oracle);
  net_end(&net);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(weakly_typed),
      cmocka_unit_test(precision_and_output_type),
      cmocka_unit_test(formats_at_the_boundary),
  };
  return cmocka_run_group_tests_name("formats", tests, NULL, NULL);
}
