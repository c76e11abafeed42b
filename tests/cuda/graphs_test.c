// Groups that cuDNN computes as one graph: convolutions and products with what
// follows them, attention.
#include "cuda/made.h"

// As the heuristics say, and by times, which say nothing on this GPU: the fused
// way is among those tried, and whichever is taken equals the oracle.
static void check_body(rabbet_tensor_t* (*body)(net_t* net), uint32_t flags,
                       double tolerance) {
  for (int level = 0; level <= 3; level += 3) {
    made_t made = {.net = net_begin(flags, SYSTEM)};
    stand_in()->clear_log();
    net_output(&made.net, body(&made.net), "y");
    make(&made, level, 0);
    if (level > 0) assert_true(stand_in()->calls("cudnnBackendExecute") > 0);
    run(&made, tolerance);
    unmake(&made);
  }
}

// ---- Convolutions ----------------------------------------------------------

static rabbet_tensor_t* conv(net_t* net, rabbet_tensor_t* x, rabbet_tensor_t* w,
                             rabbet_tensor_t* bias, int64_t groups,
                             int64_t down, int64_t across) {
  return net_add(net, "conv",
                 (net_layer_t){.op = "convolution",
                               .inputs = {x, w, bias},
                               .input_count = bias ? 3 : 2,
                               .attrs = {INTS_ATTR("pre_padding", 1, 1),
                                         INTS_ATTR("post_padding", 1, 1),
                                         INTS_ATTR("stride_nd", down, across),
                                         INT_ATTR("num_groups", groups)},
                               .attr_count = 4});
}

static rabbet_tensor_t* bias_residual_and_relu(net_t* net) {
  rabbet_tensor_t* x =
      net_input(net, "x", RABBET_DTYPE_FLOAT, DIMS(2, 6, 5, 4));
  rabbet_tensor_t* y =
      conv(net, x, WEIGHTS(net, 6, 6, 3, 3), WEIGHTS(net, 6), 1, 1, 1);
  y = net_binary(net, "residual", "SUM", x, y);
  return net_activation(net, "relu", "RELU", y);
}

static rabbet_tensor_t* groups_and_swish(net_t* net) {
  rabbet_tensor_t* x =
      net_input(net, "x", RABBET_DTYPE_FLOAT, DIMS(1, 4, 6, 6));
  rabbet_tensor_t* y = conv(net, x, WEIGHTS(net, 8, 2, 3, 3), NULL, 2, 1, 1);
  return net_binary(net, "swish", "PROD",
                    net_activation(net, "gate", "SIGMOID", y), y);
}

static rabbet_tensor_t* strides_and_scale(net_t* net) {
  rabbet_tensor_t* x =
      net_input(net, "x", RABBET_DTYPE_FLOAT, DIMS(2, 3, 8, 7));
  rabbet_tensor_t* y =
      conv(net, x, WEIGHTS(net, 5, 3, 3, 3), WEIGHTS(net, 5), 1, 2, 3);
  y = net_activation(net, "tanh", "TANH", y);
  y = net_binary(net, "scale", "PROD", y, WEIGHTS(net, 1, 5, 1, 1));
  return net_binary(net, "less", "SUB", net_scalar(net, 4, 0.5), y);
}

static void convolutions(void** state) {
  (void)state;
  check_body(bias_residual_and_relu, 0, 1e-5);
  check_body(groups_and_swish, 0, 1e-5);
  check_body(strides_and_scale, 0, 1e-5);
}

// ---- Products --------------------------------------------------------------

static rabbet_tensor_t* gelu_and_residual(net_t* net) {
  rabbet_tensor_t* x = net_input(net, "x", RABBET_DTYPE_FLOAT, DIMS(2, 5, 12));
  rabbet_tensor_t* more =
      net_input(net, "more", RABBET_DTYPE_FLOAT, DIMS(2, 5, 8));
  rabbet_tensor_t* y =
      net_add(net, "product",
              (net_layer_t){.op = "matrix_multiply",
                            .inputs = {x, WEIGHTS(net, 1, 12, 8)},
                            .input_count = 2});
  y = net_binary(net, "bias", "SUM", y, WEIGHTS(net, 1, 1, 8));
  y = net_activation(net, "gelu", "GELU_ERF", y);
  return net_binary(net, "residual", "SUM", y, more);
}

static void products(void** state) {
  (void)state;
  check_body(gelu_and_residual, 0, 1e-5);
}

// ---- Attention -------------------------------------------------------------

enum { BATCH = 2, HEADS = 3, LENGTH = 5, OTHER = 7, WIDTH = 8 };

// [batch, length, heads width] -> [batch, heads, length, width]
static rabbet_tensor_t* split(net_t* net, const char* name, rabbet_tensor_t* x,
                              int64_t length) {
  return net_add(
      net, name,
      (net_layer_t){
          .op = "shuffle",
          .inputs = {x},
          .input_count = 1,
          .attrs = {INTS_ATTR("reshape_dims", BATCH, length, HEADS, WIDTH),
                    INTS_ATTR("second_transpose", 0, 2, 1, 3)},
          .attr_count = 2});
}

static rabbet_tensor_t* attention_of(net_t* net, rabbet_tensor_t* q,
                                     rabbet_tensor_t* k, rabbet_tensor_t* v) {
  const double scale = 0.35;
  rabbet_tensor_t* mask =
      net_input(net, "mask", RABBET_DTYPE_HALF, DIMS(BATCH, 1, 1, OTHER));
  rabbet_tensor_t* scores =
      net_add(net, "qk",
              (net_layer_t){.op = "matrix_multiply",
                            .inputs = {q, k},
                            .input_count = 2,
                            .attrs = {ENUM_ATTR("op1", "TRANSPOSE")},
                            .attr_count = 1});
  rabbet_tensor_t* scaled =
      net_binary(net, "scale", "PROD", scores,
                 net_weights(net, RABBET_DTYPE_HALF, DIMS(1, 1, 1, 1), &scale));
  rabbet_tensor_t* masked = net_binary(net, "masked", "SUM", mask, scaled);
  rabbet_tensor_t* weights =
      net_add(net, "softmax",
              (net_layer_t){.op = "softmax",
                            .inputs = {masked},
                            .input_count = 1,
                            .attrs = {INT_ATTR("axes", 8)},
                            .attr_count = 1});
  return net_add(
      net, "pv",
      (net_layer_t){
          .op = "matrix_multiply", .inputs = {weights, v}, .input_count = 2});
}

static rabbet_tensor_t* plain_attention(net_t* net) {
  rabbet_tensor_t* q =
      net_input(net, "q", RABBET_DTYPE_HALF, DIMS(BATCH, HEADS, LENGTH, WIDTH));
  rabbet_tensor_t* k =
      net_input(net, "k", RABBET_DTYPE_HALF, DIMS(BATCH, HEADS, OTHER, WIDTH));
  rabbet_tensor_t* v =
      net_input(net, "v", RABBET_DTYPE_HALF, DIMS(BATCH, HEADS, OTHER, WIDTH));
  return attention_of(net, q, k, v);
}

static rabbet_tensor_t* attention_with_heads_split(net_t* net) {
  rabbet_tensor_t* q = net_input(net, "q", RABBET_DTYPE_HALF,
                                 DIMS(BATCH, LENGTH, HEADS * WIDTH));
  rabbet_tensor_t* k =
      net_input(net, "k", RABBET_DTYPE_HALF, DIMS(BATCH, OTHER, HEADS * WIDTH));
  rabbet_tensor_t* v =
      net_input(net, "v", RABBET_DTYPE_HALF, DIMS(BATCH, OTHER, HEADS * WIDTH));
  rabbet_tensor_t* y = attention_of(net, split(net, "split q", q, LENGTH),
                                    split(net, "split k", k, OTHER),
                                    split(net, "split v", v, OTHER));
  return net_add(
      net, "join",
      (net_layer_t){
          .op = "shuffle",
          .inputs = {y},
          .input_count = 1,
          .attrs = {INTS_ATTR("first_transpose", 0, 2, 1, 3),
                    INTS_ATTR("reshape_dims", BATCH, LENGTH, HEADS * WIDTH)},
          .attr_count = 2});
}

static void attention(void** state) {
  (void)state;
  check_body(plain_attention, 0, 4e-3);
  check_body(attention_with_heads_split, 0, 4e-3);
}

// Scores as the sum of two products. With slices within reach the search
// follows the first product, with less reach the second one, whose transpose of
// q is outside of the cluster.
static void attention_with_two_products(void** state) {
  (void)state;
  made_t made = {.net = net_begin(0, SYSTEM)};
  net_t* net = &made.net;
  rabbet_tensor_t* q = net_input(net, "q", RABBET_DTYPE_HALF,
                                 DIMS(BATCH, LENGTH, HEADS * WIDTH));
  rabbet_tensor_t* k =
      net_input(net, "k", RABBET_DTYPE_HALF, DIMS(BATCH, HEADS, OTHER, WIDTH));
  rabbet_tensor_t* v =
      net_input(net, "v", RABBET_DTYPE_HALF, DIMS(BATCH, HEADS, OTHER, WIDTH));
  rabbet_tensor_t* a =
      net_input(net, "a", RABBET_DTYPE_HALF, DIMS(1, 1, LENGTH, WIDTH));
  rabbet_tensor_t* b =
      net_input(net, "b", RABBET_DTYPE_HALF, DIMS(1, 1, WIDTH, OTHER));
  rabbet_tensor_t* shared =
      net_add(net, "ab",
              (net_layer_t){
                  .op = "matrix_multiply", .inputs = {a, b}, .input_count = 2});
  rabbet_tensor_t* scores =
      net_add(net, "qk",
              (net_layer_t){.op = "matrix_multiply",
                            .inputs = {split(net, "split q", q, LENGTH), k},
                            .input_count = 2,
                            .attrs = {ENUM_ATTR("op1", "TRANSPOSE")},
                            .attr_count = 1});
  rabbet_tensor_t* weights = net_add(
      net, "softmax",
      (net_layer_t){.op = "softmax",
                    .inputs = {net_binary(net, "sum", "SUM", shared, scores)},
                    .input_count = 1,
                    .attrs = {INT_ATTR("axes", 8)},
                    .attr_count = 1});
  net_output(net,
             net_add(net, "pv",
                     (net_layer_t){.op = "matrix_multiply",
                                   .inputs = {weights, v},
                                   .input_count = 2}),
             "y");
  make(&made, 3, 0);
  run(&made, 4e-3);
  unmake(&made);
}

// ---- Plans -----------------------------------------------------------------

// A loaded plan makes its execution plans from what it keeps.
static void kept_plan(void** state) {
  (void)state;
  made_t made = {.net = net_begin(0, SYSTEM)};
  net_output(&made.net, bias_residual_and_relu(&made.net), "y");
  make(&made, 3, 0);
  stand_in()->clear_log();
  run(&made, 1e-5);
  const char* log = stand_in()->log();
  assert_non_null(strstr(log, "cudnnBackendExecute"));
  assert_int_equal(stand_in()->calls("cudnnBackendExecute"), 1);
  unmake(&made);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(convolutions),
      cmocka_unit_test(products),
      cmocka_unit_test(attention),
      cmocka_unit_test(attention_with_two_products),
      cmocka_unit_test(kept_plan),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
