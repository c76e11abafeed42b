// Whole builds: network -> plan -> engine -> numbers.
#include "build_check.h"

static rabbet_tensor_t* conv(net_t* net, const char* name, rabbet_tensor_t* x,
                             int64_t in, int64_t out, int64_t k) {
  return net_add(
      net, name,
      (net_layer_t){
          .op = "convolution",
          .inputs = {x, WEIGHTS(net, out, in, k, k), WEIGHTS(net, out)},
          .input_count = 3,
          .attrs = {INTS_ATTR("pre_padding", k / 2, k / 2),
                    INTS_ATTR("post_padding", k / 2, k / 2)},
          .attr_count = 2});
}

static void one_layer(void** state) {
  (void)state;
  net_t net = net_begin(0, rabbet_allocator_system());
  rabbet_tensor_t* x =
      net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(2, 3, 5, 5));
  net_output(&net, net_activation(&net, "relu", "RELU", x), "y");
  for (int level = 0; level <= 5; ++level)
    EXPECT_STEPS(check_network(&net, level, 0), 1);
  net_end(&net);
}

static void small_convolutional_net(void** state) {
  (void)state;
  net_t net = net_begin(0, rabbet_allocator_system());
  rabbet_tensor_t* x =
      net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(1, 3, 8, 8));
  rabbet_tensor_t* a =
      net_activation(&net, "relu1", "RELU", conv(&net, "conv1", x, 3, 8, 3));
  rabbet_tensor_t* b =
      net_activation(&net, "relu2", "RELU", conv(&net, "conv2", a, 8, 8, 3));
  rabbet_tensor_t* sum =
      net_binary(&net, "add", "SUM", conv(&net, "conv3", b, 8, 8, 1), a);
  net_output(&net, net_activation(&net, "relu3", "RELU", sum), "y");
  net_output(&net, b, "middle");
  check_network(&net, 0, 1e-5);
  check_network(&net, 3, 1e-5);
  net_end(&net);
}

// Outputs that no kernel of their own makes.
static void outputs_of_all_kinds(void** state) {
  (void)state;
  net_t net = net_begin(0, rabbet_allocator_system());
  rabbet_tensor_t* x = net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(2, 3, 4));
  rabbet_tensor_t* view =
      net_add(&net, "view",
              (net_layer_t){.op = "shuffle",
                            .inputs = {x},
                            .input_count = 1,
                            .attrs = {INTS_ATTR("reshape_dims", 6, 4)},
                            .attr_count = 1});
  net_output(&net, view, "view_of_input");
  rabbet_tensor_t* relu = net_activation(&net, "relu", "RELU", view);
  rabbet_tensor_t* back =
      net_add(&net, "back",
              (net_layer_t){.op = "shuffle",
                            .inputs = {relu},
                            .input_count = 1,
                            .attrs = {INTS_ATTR("reshape_dims", 24)},
                            .attr_count = 1});
  net_output(&net, back, "view_of_relu");
  net_output(&net, relu, "relu");
  rabbet_tensor_t* shape =
      net_add(&net, "shape",
              (net_layer_t){.op = "shape", .inputs = {x}, .input_count = 1});
  net_output(&net, shape, "shape_of_input");
  net_output(&net,
             net_add(&net, "constant",
                     (net_layer_t){.op = "identity",
                                   .inputs = {WEIGHTS(&net, 3)},
                                   .input_count = 1}),
             "constant");
  check_network(&net, 0, 0);
  check_network(&net, 3, 0);
  net_end(&net);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_layer),
      cmocka_unit_test(small_convolutional_net),
      cmocka_unit_test(outputs_of_all_kinds),
  };
  return cmocka_run_group_tests_name("build", tests, NULL, NULL);
}
