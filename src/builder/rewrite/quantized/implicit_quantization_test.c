// Ranges become the pairs of nodes that a network could have had itself.
#include "build_check.h"
#include "rabbet/refit.h"

static unsigned first_random = 1;  // of weights
static float input_range = 0.9f, middle_range = 1.7f;

static rabbet_tensor_t* quantized(net_t* net, const char* name,
                                  rabbet_tensor_t* x, rabbet_tensor_t* scale) {
  char text[32];
  snprintf(text, sizeof(text), "%s q", name);
  rabbet_tensor_t* q = net_add(
      net, text,
      (net_layer_t){.op = "quantize", .inputs = {x, scale}, .input_count = 2});
  snprintf(text, sizeof(text), "%s dq", name);
  return net_add(
      net, text,
      (net_layer_t){
          .op = "dequantize", .inputs = {q, scale}, .input_count = 2});
}

static rabbet_tensor_t* by_range(net_t* net, const char* name,
                                 rabbet_tensor_t* x, float range) {
  double scale = range / 127.0f;
  return quantized(
      net, name, x,
      net_weights(net, RABBET_DTYPE_FLOAT, DIMS(1, 1, 1, 1), &scale));
}

// With the scales that the builder gives to weights [outer][channels][inner].
static rabbet_tensor_t* by_weights(net_t* net, const char* name,
                                   rabbet_tensor_t* w, int axis) {
  rabbet_dims_t dims = w->given_dims, scales = {.rank = dims.rank};
  int64_t inner = 1, outer = 1, channels = dims.d[axis];
  double numbers[16] = {0};
  for (int i = 0; i < dims.rank; ++i) {
    scales.d[i] = i == axis ? channels : 1;
    if (i < axis) outer *= dims.d[i];
    if (i > axis) inner *= dims.d[i];
  }
  const float* data = w->constant;
  for (int64_t i = 0; i < outer * channels * inner; ++i) {
    double* number = &numbers[i / inner % channels];
    *number = fmax(*number, fabsf(data[i]));
  }
  for (int64_t i = 0; i < channels; ++i)
    numbers[i] = (float)numbers[i] / 127.0f;
  return quantized(net, name, w,
                   net_weights(net, RABBET_DTYPE_FLOAT, scales, numbers));
}

static rabbet_tensor_t* conv(net_t* net, const char* name, rabbet_tensor_t* x,
                             rabbet_tensor_t* w) {
  return net_add(
      net, name,
      (net_layer_t){.op = "convolution", .inputs = {x, w}, .input_count = 2});
}

static rabbet_tensor_t* product(net_t* net, const char* name,
                                rabbet_tensor_t* x, rabbet_tensor_t* w) {
  return net_add(
      net, name,
      (net_layer_t){
          .op = "matrix_multiply", .inputs = {x, w}, .input_count = 2});
}

static void ask_for_bytes(rabbet_tensor_t* tensor) {
  RABBET_EXPECT_OK(
      rabbet_layer_set_precision(tensor->producer, RABBET_DTYPE_INT8));
}

// relu(x * w0), then a product, with nodes of its own or with ranges.
static net_t sample(bool explicit_nodes, bool ask) {
  net_t net = net_begin(0, rabbet_allocator_system());
  net.random = first_random;
  rabbet_tensor_t* x =
      net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(1, 4, 5, 6));
  rabbet_tensor_t *w0 = WEIGHTS(&net, 6, 4, 1, 1),
                  *w1 = WEIGHTS(&net, 1, 1, 6, 3);
  if (explicit_nodes) {
    rabbet_tensor_t* a = conv(&net, "conv", by_range(&net, "x", x, input_range),
                              by_weights(&net, "w0", w0, 0));
    a = net_activation(&net, "relu", "RELU", a);
    net_output(&net,
               product(&net, "product", by_range(&net, "a", a, middle_range),
                       by_weights(&net, "w1", w1, 3)),
               "y");
    return net;
  }
  rabbet_tensor_t* c = conv(&net, "conv", x, w0);
  rabbet_tensor_t* a = net_activation(&net, "relu", "RELU", c);
  rabbet_tensor_t* y = product(&net, "product", a, w1);
  RABBET_EXPECT_OK(rabbet_tensor_set_range(x, -0.2f, input_range));
  RABBET_EXPECT_OK(rabbet_tensor_set_range(a, -middle_range, 0.5f));
  if (ask) ask_for_bytes(c), ask_for_bytes(a), ask_for_bytes(y);
  net_output(&net, y, "y");
  return net;
}

static rabbet_builder_config_t* bytes_config(int level) {
  rabbet_builder_config_t* config = check_config(level);
  RABBET_EXPECT_OK(rabbet_builder_config_set(
      config, RABBET_BUILDER_OPTION_FLAGS, 1 << RABBET_BUILDER_INT8));
  return config;
}

static void as_explicit_nodes(void** state) {
  (void)state;
  net_t twin = sample(true, false), net = sample(false, true);
  oracle_t* oracle = calloc(1, sizeof(*oracle));
  oracle_run(oracle, twin.network);
  for (int level = 0; level <= 5; level += 1) {
    rabbet_builder_config_t* config = bytes_config(level);
    built_t built = check_build(net.network, config);
    // The two round halves alike: their sums are the same.
    check_run(&built, oracle, 2e-5);
    check_built_end(&built);
    rabbet_builder_config_release(config);
  }
  oracle_end(oracle);
  free(oracle);
  net_end(&net);
  net_end(&twin);
}

static void set_weights(rabbet_refitter_t* refitter, const net_t* net,
                        const char* name) {
  size_t index = 0;
  rabbet_weights_t weights;
  RABBET_EXPECT_OK(rabbet_refitter_find(refitter, name, &index));
  assert_true(rabbet_tensor_weights(
      rabbet_network_find_tensor(net->network, name), &weights));
  RABBET_EXPECT_OK(rabbet_refitter_set(refitter, index, weights));
}

// New ranges and weights equal a build with them.
static void refitted(void** state) {
  (void)state;
  net_t old = sample(false, true);
  rabbet_builder_config_t* config = bytes_config(0);
  RABBET_EXPECT_OK(rabbet_builder_config_set(
      config, RABBET_BUILDER_OPTION_FLAGS,
      1 << RABBET_BUILDER_INT8 | 1 << RABBET_BUILDER_REFIT));
  built_t built = check_build(old.network, config);
  rabbet_refitter_t* refitter = NULL;
  RABBET_EXPECT_OK(rabbet_refitter_create(
      built.engine, rabbet_allocator_system(), &refitter));
  assert_int_equal(rabbet_refitter_range_count(refitter), 2);
  const char* tensor = NULL;
  float range = 0;
  size_t index = 0;
  RABBET_EXPECT_OK(rabbet_refitter_find_range(refitter, "x", &index));
  RABBET_EXPECT_OK(rabbet_refitter_range(refitter, index, &tensor, &range));
  assert_true(strcmp(tensor, "x") == 0 && fabsf(range - input_range) < 1e-6f);
  RABBET_EXPECT_ERROR(rabbet_refitter_set_range(refitter, index, 0, 0),
                      RABBET_STATUS_INVALID_ARGUMENT, "'x': [0, 0] is no");
  RABBET_EXPECT_ERROR(rabbet_refitter_range(refitter, 2, &tensor, &range),
                      RABBET_STATUS_OUT_OF_RANGE, "range 2: 2 can be");
  RABBET_EXPECT_ERROR(rabbet_refitter_find_range(refitter, "y", &index),
                      RABBET_STATUS_NOT_FOUND, "does not read tensor 'y'");
  RABBET_EXPECT_OK(rabbet_refitter_find_range(refitter, "x", &index));
  RABBET_EXPECT_OK(rabbet_refitter_set_range(refitter, index, -0.6f, 0.1f));
  // Other weights; both get nodes of their own.
  input_range = 0.6f;
  first_random = 99;
  net_t twin = sample(true, false), other = sample(false, true);
  set_weights(refitter, &other, "weights0");
  set_weights(refitter, &other, "weights1");
  RABBET_EXPECT_OK(rabbet_refitter_commit(refitter));
  oracle_t* oracle = calloc(1, sizeof(*oracle));
  oracle_run(oracle, twin.network);
  check_run(&built, oracle, 2e-5);
  oracle_end(oracle);
  free(oracle);
  input_range = 0.9f;
  first_random = 1;
  rabbet_refitter_destroy(refitter);
  check_built_end(&built);
  rabbet_builder_config_release(config);
  net_end(&twin);
  net_end(&other);
  net_end(&old);
}

// Without the flag ranges have no effect.
static void without_the_flag(void** state) {
  (void)state;
  net_t net = sample(false, false);
  check_network(&net, 3, 1e-5);
  net_end(&net);
}

// A pair that may be left out gives nearly the same value either way.
static void near(void** state) {
  (void)state;
  net_t net = sample(false, false);
  oracle_t* oracle = calloc(1, sizeof(*oracle));
  oracle_run(oracle, net.network);
  for (int level = 0; level <= 5; ++level) {
    rabbet_builder_config_t* config = bytes_config(level);
    built_t built = check_build(net.network, config);
    check_run(&built, oracle, 0.5);
    check_built_end(&built);
    rabbet_builder_config_release(config);
  }
  oracle_end(oracle);
  free(oracle);
  net_end(&net);
}

static void expect_failure(net_t* net, const char* part) {
  rabbet_builder_config_t* config = bytes_config(0);
  void* plan = NULL;
  size_t size = 0;
  rabbet_status_t status = rabbet_build_plan(
      net->network, config, rabbet_allocator_system(), &plan, &size, NULL);
  rabbet_status_code_t code = rabbet_status_code(status);
  assert_int_not_equal(code, RABBET_STATUS_OK);
  RABBET_EXPECT_ERROR(status, code, part);
  assert_null(plan);
  rabbet_builder_config_release(config);
  net_end(net);
}

static void mistakes(void** state) {
  (void)state;
  net_t net = net_begin(0, rabbet_allocator_system());
  rabbet_tensor_t* x =
      net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(1, 4, 2, 2));
  RABBET_EXPECT_ERROR(rabbet_tensor_set_range(x, 1, -1),
                      RABBET_STATUS_INVALID_ARGUMENT, "'x': [1, -1] is no");
  RABBET_EXPECT_ERROR(rabbet_tensor_set_range(x, 0, 0),
                      RABBET_STATUS_INVALID_ARGUMENT, "not both 0");
  RABBET_EXPECT_ERROR(rabbet_tensor_set_range(x, -1, INFINITY),
                      RABBET_STATUS_INVALID_ARGUMENT, "finite");
  float low = 1, high = 1;
  assert_false(rabbet_tensor_range(x, &low, &high));
  assert_true(low == 0 && high == 0);
  rabbet_tensor_t* c = conv(&net, "c", x, WEIGHTS(&net, 4, 4, 1, 1));
  ask_for_bytes(c);
  net_output(&net, c, "y");
  expect_failure(&net,
                 "layer 'c' is set to compute in INT8, but the range of its "
                 "input 'x' is not known");

  net = net_begin(0, rabbet_allocator_system());
  x = net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(1, 4, 2, 2));
  RABBET_EXPECT_OK(rabbet_tensor_set_range(x, -1, 1));
  assert_true(rabbet_tensor_range(x, &low, &high));
  assert_true(low == -1 && high == 1);
  const double bad[] = {1, NAN, 3, 4};
  c = conv(&net, "c", x,
           net_weights(&net, RABBET_DTYPE_FLOAT, DIMS(1, 4, 1, 1), bad));
  ask_for_bytes(c);
  net_output(&net, c, "y");
  expect_failure(&net, "hold infinities or NaN");

  net = net_begin(0, rabbet_allocator_system());
  x = net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(1, 4, 2, 2));
  rabbet_tensor_t* w =
      net_input(&net, "w", RABBET_DTYPE_FLOAT, DIMS(4, 4, 1, 1));
  c = conv(&net, "c", x, w);
  ask_for_bytes(c);
  net_output(&net, c, "y");
  expect_failure(&net, "its kernel is not constant");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(as_explicit_nodes), cmocka_unit_test(refitted),
      cmocka_unit_test(without_the_flag),  cmocka_unit_test(near),
      cmocka_unit_test(mistakes),
  };
  return cmocka_run_group_tests_name("implicit", tests, NULL, NULL);
}
