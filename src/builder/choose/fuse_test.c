// Fusion: the groups that are formed, and that they compute the same.
#include "build_check.h"

static rabbet_tensor_t* conv1x1(net_t* net, const char* name,
                                rabbet_tensor_t* x, int64_t in, int64_t out) {
  return net_add(net, name,
                 (net_layer_t){.op = "convolution",
                               .inputs = {x, WEIGHTS(net, out, in, 1, 1)},
                               .input_count = 2});
}

// The null device has one kernel for everything; one step less is always
// better at level 0.
static void residual_block(void** state) {
  (void)state;
  net_t net = net_begin(0, rabbet_allocator_system());
  rabbet_tensor_t* x =
      net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(1, 4, 3, 3));
  rabbet_tensor_t* a = conv1x1(&net, "a", x, 4, 6);
  rabbet_tensor_t* b =
      conv1x1(&net, "b", net_activation(&net, "r1", "RELU", a), 6, 4);
  rabbet_tensor_t* c = conv1x1(&net, "c", x, 4, 4);
  rabbet_tensor_t* sum = net_binary(&net, "sum", "SUM", b, c);
  net_output(&net, net_activation(&net, "r2", "RELU", sum), "y");
  // a + r1, c, b + sum + r2 (or b, c + sum + r2)
  EXPECT_STEPS(check_network(&net, 0, 1e-5), 3);
  check_network(&net, 3, 1e-5);
  check_network(&net, 5, 1e-5);
  net_end(&net);
}

static void long_chain(void** state) {
  (void)state;
  net_t net = net_begin(0, rabbet_allocator_system());
  rabbet_tensor_t* x = net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(4, 5));
  rabbet_tensor_t* y = x;
  for (int i = 0; i < 60; ++i) {
    char name[32];
    snprintf(name, sizeof(name), "n%d", i);
    y = i % 3 == 0   ? net_binary(&net, name, "SUM", y, WEIGHTS(&net, 1, 5))
        : i % 3 == 1 ? net_activation(&net, name, "TANH", y)
                     : net_binary(&net, name, "PROD", y, i % 2 ? x : y);
  }
  net_output(&net, y, "y");
  EXPECT_STEPS(check_network(&net, 0, 1e-5), 1);
  check_network(&net, 3, 1e-5);
  net_end(&net);
}

// A value that is needed elsewhere ends a group.
static void exits(void** state) {
  (void)state;
  net_t net = net_begin(0, rabbet_allocator_system());
  rabbet_tensor_t* x = net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(2, 8));
  rabbet_tensor_t* a = net_activation(&net, "a", "TANH", x);
  rabbet_tensor_t* b = net_unary(&net, "b", "EXP", a);
  net_output(&net, b, "kept");
  net_output(&net, net_unary(&net, "c", "NEG", b), "y");
  rabbet_tensor_t* small = net_add(
      &net, "small",
      (net_layer_t){.op = "reduce",
                    .inputs = {b},
                    .input_count = 1,
                    .attrs = {ENUM_ATTR("op", "SUM"), INT_ATTR("axes", 2),
                              INT_ATTR("keep_dims", 1)},
                    .attr_count = 3});
  // Another shape than its reader's: a group of its own.
  rabbet_tensor_t* half = net_unary(&net, "half", "RECIP", small);
  net_output(&net, net_binary(&net, "scaled", "PROD", b, half), "scaled");
  EXPECT_STEPS(check_network(&net, 0, 1e-5), 4);
  check_network(&net, 5, 1e-5);
  net_end(&net);
}

static void attention_scores(void** state) {
  (void)state;
  net_t net = net_begin(0, rabbet_allocator_system());
  rabbet_tensor_t* q =
      net_input(&net, "q", RABBET_DTYPE_FLOAT, DIMS(1, 2, 4, 8));
  rabbet_tensor_t* k =
      net_input(&net, "k", RABBET_DTYPE_FLOAT, DIMS(1, 2, 4, 8));
  rabbet_tensor_t* mask =
      net_input(&net, "mask", RABBET_DTYPE_FLOAT, DIMS(1, 1, 4, 4));
  rabbet_tensor_t* scores =
      net_add(&net, "qk",
              (net_layer_t){.op = "matrix_multiply",
                            .inputs = {q, k},
                            .input_count = 2,
                            .attrs = {ENUM_ATTR("op1", "TRANSPOSE")},
                            .attr_count = 1});
  rabbet_tensor_t* scaled =
      net_binary(&net, "scale", "PROD", scores, net_scalar(&net, 4, 0.35));
  rabbet_tensor_t* masked = net_binary(&net, "mask_add", "SUM", scaled, mask);
  net_output(&net,
             net_add(&net, "softmax",
                     (net_layer_t){.op = "softmax",
                                   .inputs = {masked},
                                   .input_count = 1,
                                   .attrs = {INT_ATTR("axes", 8)},
                                   .attr_count = 1}),
             "y");
  EXPECT_STEPS(check_network(&net, 0, 1e-5), 2);
  check_network(&net, 3, 1e-5);
  check_network(&net, 5, 1e-5);
  net_end(&net);
}

static rabbet_tensor_t* turn(net_t* net, const char* name, rabbet_tensor_t* x) {
  return net_add(
      net, name,
      (net_layer_t){.op = "shuffle",
                    .inputs = {x},
                    .input_count = 1,
                    .attrs = {INTS_ATTR("first_transpose", 0, 2, 1, 3)},
                    .attr_count = 1});
}

// All of attention may be one group, with transposes and scales around it,
// unless values between have other readers.
static void attention(void** state) {
  (void)state;
  for (int way = 0; way < 4; ++way) {
    bool kept = way == 1, turned = way >= 2, before = way == 3;
    net_t net = net_begin(0, rabbet_allocator_system());
    rabbet_tensor_t* inputs[3];
    const char* const names[3] = {"q", "k", "v"};
    for (int i = turned; i < 3; ++i)
      inputs[i] =
          net_input(&net, names[i], RABBET_DTYPE_FLOAT, DIMS(2, 2, 4, 8));
    if (turned)
      inputs[0] =
          turn(&net, "turn_q",
               net_input(&net, "q4", RABBET_DTYPE_FLOAT, DIMS(2, 4, 2, 8)));
    if (before) {
      inputs[0] = net_binary(&net, "scale_q", "PROD", net_scalar(&net, 4, 0.6),
                             inputs[0]);
      inputs[1] = net_binary(&net, "scale_k", "DIV", inputs[1],
                             net_scalar(&net, 4, 1.6));
    }
    rabbet_tensor_t* mask =
        net_input(&net, "mask", RABBET_DTYPE_FLOAT, DIMS(2, 1, 1, 4));
    rabbet_tensor_t* scores =
        net_add(&net, "qk",
                (net_layer_t){.op = "matrix_multiply",
                              .inputs = {inputs[0], inputs[1]},
                              .input_count = 2,
                              .attrs = {ENUM_ATTR("op1", "TRANSPOSE")},
                              .attr_count = 1});
    rabbet_tensor_t* scaled =
        net_binary(&net, "scale", "PROD", scores, net_scalar(&net, 4, 0.35));
    rabbet_tensor_t* masked = net_binary(&net, "mask_add", "SUM", mask, scaled);
    rabbet_tensor_t* weights =
        net_add(&net, "softmax",
                (net_layer_t){.op = "softmax",
                              .inputs = {masked},
                              .input_count = 1,
                              .attrs = {INT_ATTR("axes", 8)},
                              .attr_count = 1});
    if (kept) net_output(&net, scaled, "kept");
    rabbet_tensor_t* y = net_add(&net, "pv",
                                 (net_layer_t){.op = "matrix_multiply",
                                               .inputs = {weights, inputs[2]},
                                               .input_count = 2});
    net_output(&net, turned ? turn(&net, "turn_y", y) : y, "y");
    EXPECT_STEPS(check_network(&net, 0, 1e-5), kept ? 3 : 1);
    check_network(&net, 3, 1e-5);
    check_network(&net, 5, 1e-5);
    net_end(&net);
  }
}

// Random graphs of point-wise nodes, matrix products and reductions.
static rabbet_tensor_t* random_node(net_t* net, unsigned* random, int number,
                                    rabbet_tensor_t* const* made, int count) {
  char name[32];
  snprintf(name, sizeof(name), "n%d", number);
  unsigned kind = (unsigned)(net_random(random) * 4 + 4);
  rabbet_tensor_t* a = made[(int)((net_random(random) + 1) / 2.0001 * count)];
  rabbet_tensor_t* b = made[(int)((net_random(random) + 1) / 2.0001 * count)];
  if (kind < 4) return net_binary(net, name, "SUM", a, b);
  if (kind < 5) return net_activation(net, name, "TANH", a);
  if (kind < 6) return net_unary(net, name, "NEG", a);
  if (kind < 7)
    return net_add(net, name,
                   (net_layer_t){.op = "matrix_multiply",
                                 .inputs = {a, WEIGHTS(net, 4, 4)},
                                 .input_count = 2});
  return net_add(net, name,
                 (net_layer_t){.op = "softmax",
                               .inputs = {a},
                               .input_count = 1,
                               .attrs = {INT_ATTR("axes", 2)},
                               .attr_count = 1});
}

static rabbet_tensor_t* scaled(net_t* net, const char* name, const char* op,
                               rabbet_tensor_t* x, double scale) {
  return net_add(net, name,
                 (net_layer_t){.op = op,
                               .inputs = {x, net_scalar(net, 0, scale)},
                               .input_count = 2});
}

static rabbet_tensor_t* quantized_conv(net_t* net, const char* name,
                                       rabbet_tensor_t* x) {
  char weights[16];
  snprintf(weights, sizeof(weights), "w of %s", name);
  rabbet_tensor_t* w =
      scaled(net, weights, "dequantize",
             net_weights(net, RABBET_DTYPE_INT8, DIMS(4, 4, 1, 1), NULL), 0.25);
  return net_add(
      net, name,
      (net_layer_t){.op = "convolution", .inputs = {x, w}, .input_count = 2});
}

// A quantized product has in its group the nodes that dequantize its factors
// and quantize its result; each of several readers of a tensor dequantizes it.
static void quantized(void** state) {
  (void)state;
  net_t net = net_begin(0, rabbet_allocator_system());
  rabbet_tensor_t* x =
      net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(1, 4, 3, 3));
  rabbet_tensor_t* q = scaled(&net, "q", "quantize", x, 0.02);
  rabbet_tensor_t* d = scaled(&net, "d", "dequantize", q, 0.02);
  rabbet_tensor_t* a =
      net_activation(&net, "r", "RELU", quantized_conv(&net, "a", d));
  rabbet_tensor_t* qa = scaled(&net, "qa", "quantize", a, 0.03);
  rabbet_tensor_t* da = scaled(&net, "da", "dequantize", qa, 0.03);
  rabbet_tensor_t* sum =
      net_binary(&net, "sum", "SUM", quantized_conv(&net, "b", da), d);
  net_output(&net, scaled(&net, "qs", "quantize", sum, 0.05), "y");
  // q, w + d + a + r + qa, w + da + b + d + sum + qs
  EXPECT_STEPS(check_network(&net, 0, 0), 3);
  check_network(&net, 3, 0);
  check_network(&net, 5, 0);
  net_end(&net);
}

static void random_graphs(void** state) {
  (void)state;
  for (unsigned seed = 1; seed <= 60; ++seed) {
    unsigned random = seed * 7919;
    net_t net = net_begin(0, rabbet_allocator_system());
    rabbet_tensor_t* made[24] = {
        net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(3, 4)),
        net_input(&net, "z", RABBET_DTYPE_FLOAT, DIMS(3, 4))};
    int count = 2;
    for (; count < 16; ++count)
      made[count] = random_node(&net, &random, count, made, count);
    net_output(&net, made[count - 1], "y");
    if (seed % 2) net_output(&net, made[count - 4], "also");
    check_network(&net, (int)(seed % 6), 1e-4);
    net_end(&net);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(residual_block), cmocka_unit_test(long_chain),
      cmocka_unit_test(exits),          cmocka_unit_test(attention_scores),
      cmocka_unit_test(attention),      cmocka_unit_test(quantized),
      cmocka_unit_test(random_graphs),
  };
  return cmocka_run_group_tests_name("fuse", tests, NULL, NULL);
}
