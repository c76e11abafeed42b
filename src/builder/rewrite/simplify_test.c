// Simplification: removed nodes, and unchanged numbers. At level 0 the null
// device fuses everything fusible into one step, so that the number of steps
// shows the remaining nodes.
#include <sys/mman.h>
#include <unistd.h>

#include "build_check.h"

static rabbet_tensor_t* conv(net_t* net, const char* name, rabbet_tensor_t* x,
                             int64_t in, int64_t out, int64_t k) {
  return net_add(net, name,
                 (net_layer_t){.op = "convolution",
                               .inputs = {x, WEIGHTS(net, out, in, k, k)},
                               .input_count = 2});
}

static void batch_normalization_goes_into_weights(void** state) {
  (void)state;
  net_t net = net_begin(0, rabbet_allocator_system());
  rabbet_tensor_t* x =
      net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(2, 3, 6, 6));
  rabbet_tensor_t* y = conv(&net, "conv", x, 3, 5, 3);
  y = net_binary(&net, "shift0", "SUB", y, WEIGHTS(&net, 1, 5, 1, 1));
  y = net_binary(&net, "scale", "PROD", WEIGHTS(&net, 1, 5, 1, 1), y);
  y = net_binary(&net, "shift", "SUM", y, WEIGHTS(&net, 1, 5, 1, 1));
  y = net_binary(&net, "divide", "DIV", y, net_scalar(&net, 4, 3));
  net_output(&net, y, "y");
  EXPECT_STEPS(check_network(&net, 0, 1e-5), 1);
  expect_report(&net, "conv ", true);
  expect_report(&net, " + ", false);
  net_end(&net);
}

static rabbet_tensor_t* deconv(net_t* net, const char* name, rabbet_tensor_t* x,
                               rabbet_tensor_t* weights, int64_t groups) {
  return net_add(net, name,
                 (net_layer_t){.op = "deconvolution",
                               .inputs = {x, weights},
                               .input_count = 2,
                               .attrs = {INTS_ATTR("stride_nd", 2, 2),
                                         INT_ATTR("num_groups", groups)},
                               .attr_count = 2});
}

static void batch_normalization_goes_into_deconvolution(void** state) {
  (void)state;
  net_t net = net_begin(0, rabbet_allocator_system());
  rabbet_tensor_t* x =
      net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(2, 4, 3, 3));
  rabbet_tensor_t* y = deconv(&net, "deconv", x, WEIGHTS(&net, 4, 5, 3, 2), 1);
  y = net_binary(&net, "scale", "PROD", WEIGHTS(&net, 1, 5, 1, 1), y);
  y = net_binary(&net, "shift", "SUM", y, WEIGHTS(&net, 1, 5, 1, 1));
  y = net_binary(&net, "divide", "DIV", y, net_scalar(&net, 4, 3));
  net_output(&net, y, "y");
  EXPECT_STEPS(check_network(&net, 0, 1e-5), 1);
  expect_report(&net, "deconv ", true);
  expect_report(&net, " + ", false);
  // Groups have maps of their own.
  rabbet_tensor_t* z = deconv(&net, "grouped", x, WEIGHTS(&net, 4, 3, 2, 2), 2);
  net_output(&net,
             net_binary(&net, "maps", "PROD", z, WEIGHTS(&net, 1, 6, 1, 1)),
             "z");
  check_network(&net, 0, 1e-5);
  net_end(&net);
}

// A convolution that others read too must keep its weights.
static void shared_convolution_keeps_weights(void** state) {
  (void)state;
  net_t net = net_begin(0, rabbet_allocator_system());
  rabbet_tensor_t* x =
      net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(1, 3, 4, 4));
  rabbet_tensor_t* y = conv(&net, "conv", x, 3, 4, 1);
  net_output(&net,
             net_binary(&net, "scale", "PROD", y, WEIGHTS(&net, 1, 4, 1, 1)),
             "scaled");
  net_output(&net, net_unary(&net, "neg", "NEG", y), "plain");
  check_network(&net, 0, 1e-5);
  // Varies along another axis: not a matter of channels.
  rabbet_tensor_t* z = conv(&net, "conv2", x, 3, 4, 1);
  net_output(&net,
             net_binary(&net, "rows", "PROD", z, WEIGHTS(&net, 1, 1, 4, 1)),
             "rows_out");
  check_network(&net, 0, 1e-5);
  expect_report(&net, "conv2 + rows", true);
  net_end(&net);
}

static void matrix_product_takes_scale_and_transposes(void** state) {
  (void)state;
  net_t net = net_begin(0, rabbet_allocator_system());
  rabbet_tensor_t* x = net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(2, 6, 4));
  rabbet_tensor_t* product = net_add(
      &net, "mm",
      (net_layer_t){
          .op = "matrix_multiply",
          .inputs = {TRANSPOSE(&net, "t", x, 0, 2, 1), WEIGHTS(&net, 1, 6, 5)},
          .input_count = 2});
  rabbet_tensor_t* y =
      net_binary(&net, "scale", "PROD", product, WEIGHTS(&net, 1, 1, 5));
  net_output(&net, y, "y");
  EXPECT_STEPS(check_network(&net, 0, 1e-5), 1);
  expect_report(&net, " + ", false);
  net_end(&net);
}

static void transposes_cancel(void** state) {
  (void)state;
  net_t net = net_begin(0, rabbet_allocator_system());
  rabbet_tensor_t* x =
      net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(2, 3, 4, 5));
  rabbet_tensor_t* y = TRANSPOSE(&net, "a", x, 0, 2, 3, 1);
  y = TRANSPOSE(&net, "b", y, 0, 3, 1, 2);
  y = RESHAPE(&net, "c", y, 6, 20);
  y = RESHAPE(&net, "d", y, 2, 3, 4, 5);
  net_output(&net, net_unary(&net, "neg", "NEG", y), "y");
  EXPECT_STEPS(check_network(&net, 0, 0), 1);
  // Two that do not cancel become one.
  rabbet_tensor_t* z = TRANSPOSE(&net, "e", x, 1, 0, 2, 3);
  z = TRANSPOSE(&net, "f", z, 0, 3, 2, 1);
  net_output(&net, net_unary(&net, "neg2", "NEG", z), "z");
  EXPECT_STEPS(check_network(&net, 0, 0), 3);
  net_end(&net);
}

// Joining axes, permuting and splitting them again is a permutation.
static void transposes_of_joined_axes(void** state) {
  (void)state;
  net_t net = net_begin(0, rabbet_allocator_system());
  rabbet_tensor_t* x =
      net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(2, 3, 4, 5));
  rabbet_tensor_t* y = TRANSPOSE(&net, "heads", x, 0, 2, 1, 3);
  y = RESHAPE(&net, "join", y, 8, 3, 5);
  y = TRANSPOSE(&net, "turn", y, 0, 2, 1);
  y = RESHAPE(&net, "split", y, 2, 4, 5, 3);
  net_output(&net, net_unary(&net, "neg", "NEG", y), "y");
  EXPECT_STEPS(check_network(&net, 0, 0), 2);
  // Split elsewhere it is no such permutation.
  rabbet_tensor_t* z = RESHAPE(&net, "join2", x, 6, 4, 5);
  z = TRANSPOSE(&net, "turn2", z, 2, 0, 1);
  z = RESHAPE(&net, "split2", z, 5, 3, 2, 4);
  net_output(&net, net_unary(&net, "neg2", "NEG", z), "z");
  check_network(&net, 0, 0);
  net_end(&net);
}

// Moving axes of extent 1 is no work.
static void views(void** state) {
  (void)state;
  net_t net = net_begin(0, rabbet_allocator_system());
  rabbet_tensor_t* x =
      net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(3, 1, 4, 1));
  rabbet_tensor_t* y = net_unary(&net, "neg", "NEG", x);
  y = TRANSPOSE(&net, "a", y, 1, 0, 3, 2);
  y = net_add(
      &net, "sum",
      (net_layer_t){.op = "reduce",
                    .inputs = {y},
                    .input_count = 1,
                    .attrs = {ENUM_ATTR("op", "SUM"), INT_ATTR("axes", 8),
                              INT_ATTR("keep_dims", 1)},
                    .attr_count = 3});
  net_output(&net, y, "y");
  EXPECT_STEPS(check_network(&net, 0, 1e-6), 2);
  net_end(&net);
}

static void nothing_left(void** state) {
  (void)state;
  net_t net = net_begin(0, rabbet_allocator_system());
  rabbet_tensor_t* x = net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(2, 3, 4));
  rabbet_tensor_t* y =
      net_binary(&net, "add0", "SUM", x, net_scalar(&net, 3, 0));
  y = net_binary(&net, "mul1", "PROD", net_scalar(&net, 3, 1), y);
  y = net_binary(&net, "pow1", "POW", y, net_scalar(&net, 3, 1));
  y = net_add(&net, "all",
              (net_layer_t){.op = "slice",
                            .inputs = {y},
                            .input_count = 1,
                            .attrs = {INTS_ATTR("start", 0, 0, 0),
                                      INTS_ATTR("shape", 2, 3, 4),
                                      INTS_ATTR("stride", 1, 1, 1)},
                            .attr_count = 3});
  y = net_add(&net, "one",
              (net_layer_t){.op = "concatenation",
                            .inputs = {y},
                            .input_count = 1,
                            .attrs = {INT_ATTR("axis", 1)},
                            .attr_count = 1});
  y = net_add(&net, "same",
              (net_layer_t){.op = "identity", .inputs = {y}, .input_count = 1});
  net_output(&net, net_unary(&net, "exp", "EXP", y), "y");
  EXPECT_STEPS(check_network(&net, 0, 1e-6), 1);
  expect_report(&net, "exp ", true);
  expect_report(&net, " + ", false);
  net_end(&net);
}

// 1 / x is not x / 1, and a neutral number that broadcasts changes the shape.
static void almost_nothing(void** state) {
  (void)state;
  net_t net = net_begin(0, rabbet_allocator_system());
  rabbet_tensor_t* x = net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(1, 3));
  double ones[6] = {1, 1, 1, 1, 1, 1};
  net_output(&net, net_binary(&net, "inv", "DIV", net_scalar(&net, 2, 1), x),
             "inverse");
  net_output(
      &net,
      net_binary(&net, "wide", "PROD", x,
                 net_weights(&net, RABBET_DTYPE_FLOAT, DIMS(2, 3), ones)),
      "wider");
  net_output(&net, net_binary(&net, "minus", "SUB", net_scalar(&net, 2, 0), x),
             "minus_x");
  EXPECT_STEPS(check_network(&net, 0, 1e-6), 3);
  net_end(&net);
}

static rabbet_tensor_t* mean(net_t* net, const char* name, rabbet_tensor_t* x) {
  return net_add(
      net, name,
      (net_layer_t){.op = "reduce",
                    .inputs = {x},
                    .input_count = 1,
                    .attrs = {ENUM_ATTR("op", "AVG"), INT_ATTR("axes", 4),
                              INT_ATTR("keep_dims", 1)},
                    .attr_count = 3});
}

static void written_out_normalization(void** state) {
  (void)state;
  for (int form = 0; form < 3; ++form) {
    net_t net = net_begin(0, rabbet_allocator_system());
    rabbet_tensor_t* x =
        net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(2, 3, 8));
    rabbet_tensor_t* d = net_binary(&net, "d", "SUB", x, mean(&net, "mean", x));
    rabbet_tensor_t* square =
        form == 1 ? net_binary(&net, "sq", "PROD", d, d)
                  : net_binary(&net, "sq", "POW", d, net_scalar(&net, 3, 2));
    rabbet_tensor_t* root =
        net_unary(&net, "root", "SQRT",
                  net_binary(&net, "eps", "SUM", mean(&net, "var", square),
                             net_scalar(&net, 3, 1e-3)));
    rabbet_tensor_t* y =
        form == 1 ? net_binary(&net, "norm", "PROD",
                               net_unary(&net, "inv", "RECIP", root), d)
                  : net_binary(&net, "norm", "DIV", d, root);
    y = net_binary(&net, "scale", "PROD", y, WEIGHTS(&net, 1, 1, 8));
    y = net_binary(&net, "bias", "SUM", y, WEIGHTS(&net, 1, 1, 8));
    net_output(&net, y, "y");
    // The type that it leaves the network in makes no difference.
    if (form == 2)
      RABBET_EXPECT_OK(rabbet_tensor_set_dtype(y, RABBET_DTYPE_HALF));
    else
      EXPECT_STEPS(check_network(&net, 0, 1e-5), 1);
    expect_report(&net, "norm ", true);
    expect_report(&net, form == 2 ? "FLOAT -> HALF" : "norm ", true);
    expect_report(&net, " + ", false);
    net_end(&net);
  }
}

// Between a transpose and its inverse, the axes are others; not if the second
// is another transpose.
static void transposed_normalization(void** state) {
  (void)state;
  for (int other = 0; other < 2; ++other) {
    net_t net = net_begin(0, rabbet_allocator_system());
    rabbet_tensor_t* x =
        net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(2, 8, 3, 5));
    rabbet_tensor_t* last = TRANSPOSE(&net, "turn", x, 0, 2, 3, 1);
    rabbet_tensor_t* y =
        net_add(&net, "norm",
                (net_layer_t){.op = "normalization",
                              .inputs = {last, WEIGHTS(&net, 1, 1, 1, 8),
                                         WEIGHTS(&net, 1, 1, 1, 8)},
                              .input_count = 3,
                              .attrs = {INT_ATTR("axes", 8)},
                              .attr_count = 1});
    y = other ? TRANSPOSE(&net, "back", y, 0, 3, 2, 1)
              : TRANSPOSE(&net, "back", y, 0, 3, 1, 2);
    net_output(&net, y, "y");
    if (other)
      check_network(&net, 0, 1e-5);
    else
      EXPECT_STEPS(check_network(&net, 0, 1e-5), 1);
    expect_report(&net, "turn", other);
    expect_report(&net, "back", other);
    net_end(&net);
  }
}

// Instances that a reshape makes of groups of channels are normalized as
// groups, with scale and bias for each channel; unless each group has a scale.
static void group_normalization(void** state) {
  (void)state;
  for (int other = 0; other < 2; ++other) {
    net_t net = net_begin(0, rabbet_allocator_system());
    rabbet_tensor_t* x =
        net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(2, 8, 3, 5));
    rabbet_tensor_t* y = RESHAPE(&net, "there", x, 2, 4, -1);
    y = net_add(&net, "norm",
                (net_layer_t){.op = "normalization",
                              .inputs = {y, WEIGHTS(&net, 1, 4, 1)},
                              .input_count = other ? 2 : 1,
                              .attrs = {INT_ATTR("axes", 4)},
                              .attr_count = 1});
    y = RESHAPE(&net, "back", y, 2, 8, 3, 5);
    y = net_binary(&net, "scale", "PROD", y, WEIGHTS(&net, 1, 8, 1, 1));
    y = net_binary(&net, "bias", "SUM", y, WEIGHTS(&net, 1, 8, 1, 1));
    net_output(&net, y, "y");
    if (other)
      check_network(&net, 0, 1e-5);
    else
      EXPECT_STEPS(check_network(&net, 0, 1e-5), 1);
    expect_report(&net, "there", other);
    expect_report(&net, "bias", other);
    net_end(&net);
  }
}

// A difference from another tensor's mean is normalized without a mean.
static void almost_normalization(void** state) {
  (void)state;
  net_t net = net_begin(0, rabbet_allocator_system());
  rabbet_tensor_t* x = net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(2, 3, 8));
  rabbet_tensor_t* z = net_input(&net, "z", RABBET_DTYPE_FLOAT, DIMS(2, 3, 8));
  rabbet_tensor_t* d = net_binary(&net, "d", "SUB", x, mean(&net, "mean", z));
  rabbet_tensor_t* root = net_unary(
      &net, "root", "SQRT",
      net_binary(&net, "eps", "SUM",
                 mean(&net, "var", net_binary(&net, "sq", "PROD", d, d)),
                 net_scalar(&net, 3, 1e-3)));
  net_output(&net, net_binary(&net, "div", "DIV", d, root), "y");
  check_network(&net, 0, 1e-5);
  expect_report(&net, "div ", true);
  net_end(&net);
}

static rabbet_tensor_t* cast(net_t* net, const char* name, rabbet_tensor_t* x,
                             const char* type) {
  return net_add(net, name,
                 (net_layer_t){.op = "cast",
                               .inputs = {x},
                               .input_count = 1,
                               .attrs = {ENUM_ATTR("to_type", type)},
                               .attr_count = 1});
}

// RMS normalization of HALF, as exporters write it: in FLOAT, with the weights
// before or behind the cast back.
static void written_out_rms(void** state) {
  (void)state;
  for (int form = 0; form < 4; ++form) {
    net_t net =
        net_begin(RABBET_NETWORK_STRONGLY_TYPED, rabbet_allocator_system());
    rabbet_tensor_t* x = net_input(&net, "x", RABBET_DTYPE_HALF, DIMS(2, 3, 8));
    rabbet_tensor_t* wide = cast(&net, "wide", x, "FLOAT");
    rabbet_tensor_t* square =
        form == 1 ? net_binary(&net, "sq", "PROD", wide, wide)
                  : net_binary(&net, "sq", "POW", wide, net_scalar(&net, 3, 2));
    rabbet_tensor_t* sum = net_binary(
        &net, "eps", "SUM", mean(&net, "var", square), net_scalar(&net, 3, 1));
    rabbet_tensor_t* root = net_unary(&net, "root", "SQRT", sum);
    rabbet_tensor_t* y = NULL;
    if (form == 0)
      y = net_binary(&net, "norm", "DIV", wide, root);
    else if (form == 1)
      y = net_binary(&net, "norm", "PROD", wide,
                     net_unary(&net, "inv", "RECIP", root));
    else if (form == 2)
      y = net_binary(
          &net, "norm", "PROD", wide,
          net_binary(&net, "inv", "DIV", net_scalar(&net, 3, 1), root));
    else
      y = net_binary(
          &net, "norm", "PROD", wide,
          net_binary(&net, "inv", "POW", sum, net_scalar(&net, 3, -0.5)));
    if (form & 1)
      y = net_binary(&net, "scale", "PROD", y, WEIGHTS(&net, 1, 1, 8));
    y = cast(&net, "back", y, "HALF");
    if (!(form & 1))
      y = net_binary(&net, "scale", "PROD", y,
                     cast(&net, "w", WEIGHTS(&net, 1, 1, 8), "HALF"));
    net_output(&net, y, "y");
    EXPECT_STEPS(check_network(&net, 0, 2e-3), 1);
    expect_report(&net, "norm ", true);
    expect_report(&net, " + ", false);
    net_end(&net);
  }
}

// ---- Products of one row ----------------------------------------------------

// x[1, 1, 32] times [columns, 32], transposed, plus a bias.
static rabbet_tensor_t* projected(net_t* net, const char* name,
                                  rabbet_tensor_t* x, int64_t columns) {
  rabbet_tensor_t* product =
      net_add(net, name,
              (net_layer_t){.op = "matrix_multiply",
                            .inputs = {x, WEIGHTS(net, 1, columns, 32)},
                            .input_count = 2,
                            .attrs = {ENUM_ATTR("op1", "TRANSPOSE")},
                            .attr_count = 1});
  char bias[16];
  snprintf(bias, sizeof(bias), "%s bias", name);
  return net_binary(net, bias, "SUM", product, WEIGHTS(net, 1, 1, columns));
}

// A step that is never fused.
static rabbet_tensor_t* last(net_t* net, const char* name, rabbet_tensor_t* x) {
  return net_add(net, name,
                 (net_layer_t){.op = "topk",
                               .inputs = {x},
                               .input_count = 1,
                               .attrs = {ENUM_ATTR("op", "MAX"),
                                         INT_ATTR("k", 3), INT_ATTR("axes", 4)},
                               .attr_count = 3});
}

// Products of one row are one, where nothing point-wise follows; each result is
// a part of it.
static void products_of_a_row(void** state) {
  (void)state;
  for (int64_t rows = 1; rows <= 2; ++rows) {
    net_t net = net_begin(0, rabbet_allocator_system());
    rabbet_tensor_t* x =
        net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(1, rows, 32));
    net_output(&net, last(&net, "a", projected(&net, "q", x, 128)), "a");
    net_output(&net, last(&net, "b", projected(&net, "k", x, 64)), "b");
    net_output(&net, last(&net, "c", projected(&net, "v", x, 64)), "c");
    rabbet_tensor_t* gate =
        net_activation(&net, "gate", "RELU", projected(&net, "g", x, 64));
    net_output(&net, gate, "d");
    EXPECT_STEPS(check_network(&net, 0, 1e-5), rows == 1 ? 5 : 7);
    expect_report(&net, "q | k | v", rows == 1);
    net_end(&net);
  }
}

static rabbet_tensor_t* tanh_of(net_t* net, const char* name,
                                rabbet_tensor_t* x) {
  return net_add(net, name,
                 (net_layer_t){.op = "activation",
                               .inputs = {x},
                               .input_count = 1,
                               .attrs = {ENUM_ATTR("type", "TANH")},
                               .attr_count = 1});
}

// 1 + erf(x / sqrt(2)) or the tanh form, as exporters write them.
static rabbet_tensor_t* gelu_gate(net_t* net, int form, rabbet_tensor_t* x) {
  rabbet_tensor_t* one = net_scalar(net, 2, 1);
  if (form == 0)
    return net_binary(net, "gate", "SUM",
                      net_unary(net, "erf", "ERF",
                                net_binary(net, "div", "DIV", x,
                                           net_scalar(net, 2, 1.41421356))),
                      one);
  if (form == 1)
    return net_binary(net, "gate", "SUM", one,
                      net_unary(net, "erf", "ERF",
                                net_binary(net, "div", "PROD", x,
                                           net_scalar(net, 2, 0.70710678))));
  rabbet_tensor_t* cube =
      net_binary(net, "cube", "POW", x, net_scalar(net, 2, 3));
  rabbet_tensor_t* sum = net_binary(
      net, "sum", "SUM", x,
      net_binary(net, "c", "PROD", cube, net_scalar(net, 2, 0.044715)));
  return net_binary(
      net, "gate", "SUM",
      tanh_of(net, "tanh",
              net_binary(net, "k", "PROD", sum, net_scalar(net, 2, 0.7978846))),
      one);
}

static void written_out_gelu(void** state) {
  (void)state;
  for (int form = 0; form < 3; ++form) {
    net_t net = net_begin(0, rabbet_allocator_system());
    rabbet_tensor_t* x = net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(3, 8));
    rabbet_tensor_t* gate = gelu_gate(&net, form, x);
    rabbet_tensor_t* half = net_scalar(&net, 2, 0.5);
    rabbet_tensor_t* y =
        form == 1 ? net_binary(&net, "gelu", "PROD",
                               net_binary(&net, "a", "PROD", half, x), gate)
                  : net_binary(&net, "gelu", "PROD",
                               net_binary(&net, "a", "PROD", gate, x), half);
    net_output(&net, y, "y");
    assert_int_equal(check_network(&net, 0, 1e-5), 1);
    expect_report(&net, "gelu ", true);
    expect_report(&net, " + ", false);
    net_end(&net);
  }
}

// Half of the gate of another tensor is no GELU.
static void almost_gelu(void** state) {
  (void)state;
  net_t net = net_begin(0, rabbet_allocator_system());
  rabbet_tensor_t* x = net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(3, 8));
  rabbet_tensor_t* z = net_input(&net, "z", RABBET_DTYPE_FLOAT, DIMS(3, 8));
  rabbet_tensor_t* y = net_binary(&net, "a", "PROD", z, gelu_gate(&net, 0, x));
  net_output(&net, net_binary(&net, "b", "PROD", y, net_scalar(&net, 2, 0.5)),
             "y");
  check_network(&net, 0, 1e-5);
  expect_report(&net, "erf", true);
  net_end(&net);
}

// Numbers that the rules look for, in constants that make the result wider.
static void wide_numbers(void** state) {
  (void)state;
  const double halves[] = {0.5, 0.5}, small[] = {1e-3, 1e-3};
  net_t net = net_begin(0, rabbet_allocator_system());
  rabbet_tensor_t* x = net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(1, 8));
  rabbet_tensor_t* z = net_input(&net, "z", RABBET_DTYPE_FLOAT, DIMS(1, 3, 8));
  rabbet_tensor_t* y = net_binary(&net, "a", "PROD", x, gelu_gate(&net, 0, x));
  y = net_binary(&net, "b", "PROD", y,
                 net_weights(&net, RABBET_DTYPE_FLOAT, DIMS(2, 1), halves));
  net_output(&net, net_unary(&net, "y", "NEG", y), "y");
  y = mean(&net, "var", net_binary(&net, "sq", "PROD", z, z));
  y = net_binary(&net, "eps", "SUM", y,
                 net_weights(&net, RABBET_DTYPE_FLOAT, DIMS(2, 1, 1), small));
  y = net_binary(&net, "rms", "DIV", z, net_unary(&net, "root", "SQRT", y));
  net_output(&net, net_unary(&net, "w", "NEG", y), "w");
  check_network(&net, 0, 1e-5);
  expect_report(&net, "erf", true);
  expect_report(&net, "root", true);
  net_end(&net);
}

// A rule that finds its pattern but may not replace the result, whose type the
// user wishes for, is not tried without end.
static void wished_types(void** state) {
  (void)state;
  net_t net = net_begin(0, rabbet_allocator_system());
  rabbet_tensor_t* x = net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(3, 8));
  rabbet_tensor_t* z = net_input(&net, "z", RABBET_DTYPE_FLOAT, DIMS(2, 3, 8));
  rabbet_tensor_t* gelu =
      net_binary(&net, "b", "PROD",
                 net_binary(&net, "a", "PROD", x, gelu_gate(&net, 0, x)),
                 net_scalar(&net, 2, 0.5));
  rabbet_tensor_t* rms = net_binary(
      &net, "rms", "DIV", z,
      net_unary(
          &net, "root", "SQRT",
          net_binary(&net, "eps", "SUM",
                     mean(&net, "var", net_binary(&net, "sq", "PROD", z, z)),
                     net_scalar(&net, 3, 1e-3))));
  RABBET_EXPECT_OK(rabbet_tensor_set_dtype(gelu, RABBET_DTYPE_FLOAT));
  RABBET_EXPECT_OK(rabbet_tensor_set_dtype(rms, RABBET_DTYPE_FLOAT));
  net_output(&net, net_unary(&net, "y", "NEG", gelu), "y");
  net_output(&net, net_unary(&net, "w", "NEG", rms), "w");
  check_network(&net, 0, 1e-5);
  expect_report(&net, "erf", true);
  expect_report(&net, "root", true);
  net_end(&net);
}

// Rules that look for a constant's number read no element of a constant without
// elements: here its memory must not be read at all.
static void constant_without_elements(void** state) {
  (void)state;
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  void* none = mmap(NULL, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_ptr_not_equal(none, MAP_FAILED);
  net_t net = net_begin(0, rabbet_allocator_system());
  rabbet_tensor_t* x = net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(3, 1));
  rabbet_dims_t dims = DIMS(3, 0);
  rabbet_weights_t weights = {RABBET_DTYPE_FLOAT, none, 0};
  rabbet_tensor_t* empty = NULL;
  RABBET_EXPECT_OK(rabbet_network_add_weights(net.network, "empty", weights,
                                              &dims, false, &empty));
  net_output(&net, net_binary(&net, "product", "PROD", x, empty), "y");
  check_network(&net, 0, 0);
  net_end(&net);
  munmap(none, page);
}

static void padding_goes_into_convolution(void** state) {
  (void)state;
  net_t net = net_begin(0, rabbet_allocator_system());
  rabbet_tensor_t* x =
      net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(1, 2, 5, 5));
  rabbet_tensor_t* padded =
      net_add(&net, "pad",
              (net_layer_t){.op = "slice",
                            .inputs = {x},
                            .input_count = 1,
                            .attrs = {INTS_ATTR("start", 0, 0, -1, -2),
                                      INTS_ATTR("shape", 1, 2, 9, 8),
                                      INTS_ATTR("stride", 1, 1, 1, 1),
                                      ENUM_ATTR("mode", "FILL")},
                            .attr_count = 4});
  net_output(&net, conv(&net, "conv", padded, 2, 3, 3), "y");
  EXPECT_STEPS(check_network(&net, 0, 1e-5), 1);
  // Padding of channels, or by repeating, is something else.
  rabbet_tensor_t* wrapped =
      net_add(&net, "wrap",
              (net_layer_t){.op = "slice",
                            .inputs = {x},
                            .input_count = 1,
                            .attrs = {INTS_ATTR("start", 0, 0, -1, -1),
                                      INTS_ATTR("shape", 1, 2, 7, 7),
                                      INTS_ATTR("stride", 1, 1, 1, 1),
                                      ENUM_ATTR("mode", "WRAP")},
                            .attr_count = 4});
  net_output(&net, conv(&net, "conv2", wrapped, 2, 3, 3), "z");
  EXPECT_STEPS(check_network(&net, 0, 1e-5), 3);
  net_end(&net);
}

// A crop of a convolution's result shortens its padding, unless the crop is
// longer than the padding, or the whole result is read as well.
static void crop_goes_into_convolution(void** state) {
  (void)state;
  static const struct {
    int64_t stride[2], padding[2], start[2], size[2];
    bool is_read, stays;
  } cases[] = {
      {{1, 1}, {2, 2}, {0, 0}, {6, 5}, false, false},
      {{1, 1}, {2, 2}, {1, 2}, {6, 5}, false, false},
      {{2, 3}, {2, 4}, {1, 1}, {2, 2}, false, false},
      {{1, 1}, {2, 2}, {0, 0}, {7, 4}, false, true},
      {{1, 1}, {2, 1}, {0, 2}, {7, 3}, false, true},
      {{1, 1}, {2, 2}, {0, 0}, {6, 5}, true, true},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
    net_t net = net_begin(0, rabbet_allocator_system());
    rabbet_tensor_t* x =
        net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(1, 2, 5, 5));
    const int64_t *s = cases[i].stride, *p = cases[i].padding;
    rabbet_tensor_t* y =
        net_add(&net, "conv",
                (net_layer_t){.op = "convolution",
                              .inputs = {x, WEIGHTS(&net, 3, 2, 3, 3)},
                              .input_count = 2,
                              .attrs = {INTS_ATTR("stride_nd", s[0], s[1]),
                                        INTS_ATTR("pre_padding", p[0], p[1]),
                                        INTS_ATTR("post_padding", p[0], p[1])},
                              .attr_count = 3});
    const int64_t *at = cases[i].start, *to = cases[i].size;
    rabbet_tensor_t* cut =
        net_add(&net, "cut",
                (net_layer_t){.op = "slice",
                              .inputs = {y},
                              .input_count = 1,
                              .attrs = {INTS_ATTR("start", 0, 0, at[0], at[1]),
                                        INTS_ATTR("shape", 1, 3, to[0], to[1]),
                                        INTS_ATTR("stride", 1, 1, 1, 1)},
                              .attr_count = 3});
    net_output(&net, cut, "y");
    if (cases[i].is_read) net_output(&net, y, "whole");
    EXPECT_STEPS(check_network(&net, 0, 1e-5), cases[i].stays ? 2 : 1);
    net_end(&net);
  }
}

// A causal BOOL mask becomes one of numbers, which take four times the memory,
// unless a row keeps nothing.
static void mask_is_added(void** state) {
  (void)state;
  enum { LENGTH = 64 };
  for (int empty_row = 0; empty_row < 2; ++empty_row) {
    net_t net = net_begin(0, rabbet_allocator_system());
    double keep[LENGTH * LENGTH];
    for (int i = 0; i < LENGTH * LENGTH; ++i)
      keep[i] = i % LENGTH <= i / LENGTH && !(empty_row && i < LENGTH);
    rabbet_tensor_t* x =
        net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(1, 2, LENGTH, LENGTH));
    rabbet_tensor_t* mask =
        net_weights(&net, RABBET_DTYPE_BOOL, DIMS(1, 1, LENGTH, LENGTH), keep);
    rabbet_tensor_t* masked =
        net_add(&net, "mask",
                (net_layer_t){.op = "select",
                              .inputs = {mask, x, net_scalar(&net, 4, -3e38)},
                              .input_count = 3});
    net_output(&net,
               net_add(&net, "softmax",
                       (net_layer_t){.op = "softmax",
                                     .inputs = {masked},
                                     .input_count = 1,
                                     .attrs = {INT_ATTR("axes", 8)},
                                     .attr_count = 1}),
               "y");
    EXPECT_STEPS(check_network(&net, 0, 1e-6), 1);
    expect_report(&net, "constants 16.0 KiB", !empty_row);
    net_end(&net);
  }
}

// What repeats a constant that is too large to be kept repeated: layers of
// constants are computed before it, and a layer with another operand of these
// extents does without it. A softmax along the repeated axis must stay.
static void repeated_constants(void** state) {
  (void)state;
  enum { BATCH = 4, ROWS = 300 };
  for (int along = 0; along < 2; ++along) {
    net_t net = net_begin(0, rabbet_allocator_system());
    rabbet_tensor_t* x =
        net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(BATCH, 8, ROWS));
    rabbet_tensor_t* repeated =
        net_add(&net, "repeat",
                (net_layer_t){.op = "slice",
                              .inputs = {WEIGHTS(&net, 1, ROWS, ROWS)},
                              .input_count = 1,
                              .attrs = {INTS_ATTR("start", 0, 0, 0),
                                        INTS_ATTR("shape", BATCH, ROWS, ROWS),
                                        INTS_ATTR("stride", 0, 1, 1)},
                              .attr_count = 3});
    rabbet_tensor_t* product =
        net_add(&net, "linear",
                (net_layer_t){.op = "matrix_multiply",
                              .inputs = {repeated, WEIGHTS(&net, 1, ROWS, 8)},
                              .input_count = 2});
    product = net_binary(&net, "bias", "SUM", product, WEIGHTS(&net, 1, 1, 8));
    product = TRANSPOSE(&net, "turn",
                        net_activation(&net, "relu", "RELU", product), 0, 2, 1);
    product = net_add(&net, "shares",
                      (net_layer_t){.op = "softmax",
                                    .inputs = {product},
                                    .input_count = 1,
                                    .attrs = {INT_ATTR("axes", along ? 1 : 4)},
                                    .attr_count = 1});
    net_output(&net, net_binary(&net, "mixed", "PROD", x, product), "y");
    EXPECT_STEPS(check_network(&net, 0, 1e-5), along ? 2 : 1);
    static const char* const names[] = {"repeat", "linear", "bias", "relu"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i)
      expect_report(&net, names[i], false);
    expect_report(&net, "shares", along);
    // The result for one position of the batch.
    expect_report(&net, "constants 9.4 KiB", true);
    net_end(&net);
  }
}

static void duplicates_and_constants(void** state) {
  (void)state;
  net_t net = net_begin(0, rabbet_allocator_system());
  rabbet_tensor_t* x = net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(2, 3));
  rabbet_tensor_t* w = net_unary(&net, "exp_w", "EXP", WEIGHTS(&net, 3, 4));
  rabbet_tensor_t* t = TRANSPOSE(&net, "t", w, 1, 0);
  rabbet_tensor_t* back = TRANSPOSE(&net, "back", t, 1, 0);
  rabbet_tensor_t* both[2];
  for (int i = 0; i < 2; ++i) {
    // Each has a number of its own, which is the same.
    rabbet_tensor_t* scaled = net_binary(&net, i ? "scaled1" : "scaled0", "POW",
                                         x, net_scalar(&net, 2, 2));
    both[i] = net_add(&net, i ? "mm1" : "mm0",
                      (net_layer_t){.op = "matrix_multiply",
                                    .inputs = {scaled, back},
                                    .input_count = 2});
  }
  net_output(
      &net,
      net_binary(&net, "sum", "SUM", net_activation(&net, "a", "RELU", both[0]),
                 net_activation(&net, "b", "TANH", both[1])),
      "y");
  EXPECT_STEPS(check_network(&net, 0, 1e-5), 2);
  expect_report(&net, "mm1", false);
  expect_report(&net, "scaled1", false);
  net_end(&net);
}

// Layers of equal numbers are the same, whoever made the numbers.
static void duplicates_of_equal_numbers(void** state) {
  (void)state;
  static const double numbers[] = {0.5, 0.5, 0.25};
  net_t net = net_begin(0, rabbet_allocator_system());
  rabbet_tensor_t* x = net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(2, 3));
  rabbet_tensor_t* w = WEIGHTS(&net, 3, 4);
  rabbet_tensor_t* y[3];
  for (int i = 0; i < 3; ++i) {
    char sum[8], mm[8];
    snprintf(sum, sizeof(sum), "add%d", i);
    snprintf(mm, sizeof(mm), "mm%d", i);
    y[i] = net_add(
        &net, mm,
        (net_layer_t){.op = "matrix_multiply",
                      .inputs = {net_binary(&net, sum, "SUM", x,
                                            net_scalar(&net, 2, numbers[i])),
                                 w},
                      .input_count = 2});
  }
  net_output(&net, net_activation(&net, "a", "RELU", y[0]), "y0");
  net_output(&net, net_activation(&net, "b", "TANH", y[1]), "y1");
  net_output(&net, net_activation(&net, "c", "TANH", y[2]), "y2");
  check_network(&net, 0, 1e-5);
  expect_report(&net, "mm0", true);
  expect_report(&net, "mm1", false);
  expect_report(&net, "mm2", true);
  net_end(&net);
}

// Shape arithmetic vanishes; as an output it is still right.
static void shape_arithmetic(void** state) {
  (void)state;
  net_t net = net_begin(0, rabbet_allocator_system());
  rabbet_tensor_t* x = net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(2, 3, 4));
  rabbet_tensor_t* shape =
      net_add(&net, "shape",
              (net_layer_t){.op = "shape", .inputs = {x}, .input_count = 1});
  double index[1] = {2};
  rabbet_tensor_t* last = net_add(
      &net, "last",
      (net_layer_t){.op = "gather",
                    .inputs = {shape, net_weights(&net, RABBET_DTYPE_INT32,
                                                  DIMS(1), index)},
                    .input_count = 2});
  double minus[1] = {-1};
  rabbet_tensor_t* target = net_add(
      &net, "target",
      (net_layer_t){
          .op = "concatenation",
          .inputs = {net_weights(&net, RABBET_DTYPE_INT64, DIMS(1), minus),
                     last},
          .input_count = 2,
          .attrs = {INT_ATTR("axis", 0)},
          .attr_count = 1});
  rabbet_tensor_t* flat = net_add(
      &net, "flat",
      (net_layer_t){.op = "shuffle",
                    .inputs = {net_unary(&net, "neg", "NEG", x), target},
                    .input_count = 2});
  net_output(&net, net_unary(&net, "exp", "EXP", flat), "y");
  net_output(&net, target, "target_out");
  check_network(&net, 0, 1e-6);
  expect_report(&net, "gather", false);
  expect_report(&net, "concatenation", false);
  net_end(&net);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(batch_normalization_goes_into_weights),
      cmocka_unit_test(batch_normalization_goes_into_deconvolution),
      cmocka_unit_test(shared_convolution_keeps_weights),
      cmocka_unit_test(matrix_product_takes_scale_and_transposes),
      cmocka_unit_test(transposes_cancel),
      cmocka_unit_test(transposes_of_joined_axes),
      cmocka_unit_test(views),
      cmocka_unit_test(nothing_left),
      cmocka_unit_test(almost_nothing),
      cmocka_unit_test(written_out_normalization),
      cmocka_unit_test(group_normalization),
      cmocka_unit_test(transposed_normalization),
      cmocka_unit_test(almost_normalization),
      cmocka_unit_test(written_out_rms),
      cmocka_unit_test(products_of_a_row),
      cmocka_unit_test(written_out_gelu),
      cmocka_unit_test(almost_gelu),
      cmocka_unit_test(wide_numbers),
      cmocka_unit_test(wished_types),
      cmocka_unit_test(constant_without_elements),
      cmocka_unit_test(padding_goes_into_convolution),
      cmocka_unit_test(crop_goes_into_convolution),
      cmocka_unit_test(mask_is_added),
      cmocka_unit_test(repeated_constants),
      cmocka_unit_test(duplicates_and_constants),
      cmocka_unit_test(duplicates_of_equal_numbers),
      cmocka_unit_test(shape_arithmetic),
  };
  return cmocka_run_group_tests_name("simplify", tests, NULL, NULL);
}
