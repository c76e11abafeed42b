// Groups that begin with a product, on the CUDA device: what is fused computes
// the same, and the plan keeps the algorithm that was chosen.
#include "cuda/made.h"
#include "device/device.h"

static rabbet_tensor_t* product(net_t* net, rabbet_tensor_t* a, const char* op0,
                                rabbet_tensor_t* b, const char* op1) {
  return net_add(
      net, "product",
      (net_layer_t){.op = "matrix_multiply",
                    .inputs = {a, b},
                    .input_count = 2,
                    .attrs = {ENUM_ATTR("op0", op0), ENUM_ATTR("op1", op1)},
                    .attr_count = 2});
}

// ---- What is fused ---------------------------------------------------------

typedef rabbet_tensor_t* (*body_t)(net_t* net);

static rabbet_tensor_t* bias_and_relu(net_t* net) {
  rabbet_tensor_t* x = net_input(net, "x", RABBET_DTYPE_FLOAT, DIMS(2, 5, 12));
  rabbet_tensor_t* y = product(net, x, "NONE", WEIGHTS(net, 1, 12, 8), "NONE");
  y = net_binary(net, "bias", "SUM", y, WEIGHTS(net, 1, 1, 8));
  return net_activation(net, "relu", "RELU", y);
}

static rabbet_tensor_t* residual_bias_and_gelu(net_t* net) {
  rabbet_tensor_t* x = net_input(net, "x", RABBET_DTYPE_FLOAT, DIMS(6, 12));
  rabbet_tensor_t* more =
      net_input(net, "more", RABBET_DTYPE_FLOAT, DIMS(6, 8));
  rabbet_tensor_t* y =
      product(net, x, "NONE", WEIGHTS(net, 8, 12), "TRANSPOSE");
  y = net_binary(net, "residual", "SUM", more, y);
  y = net_binary(net, "bias", "SUM", y, WEIGHTS(net, 1, 8));
  return net_activation(net, "gelu", "GELU_TANH", y);
}

static rabbet_tensor_t* scaled_scores(net_t* net) {
  rabbet_tensor_t* q =
      net_input(net, "q", RABBET_DTYPE_FLOAT, DIMS(2, 3, 4, 8));
  rabbet_tensor_t* k =
      net_input(net, "k", RABBET_DTYPE_FLOAT, DIMS(2, 3, 5, 8));
  rabbet_tensor_t* m =
      net_input(net, "m", RABBET_DTYPE_FLOAT, DIMS(2, 3, 4, 5));
  rabbet_tensor_t* y = product(net, q, "NONE", k, "TRANSPOSE");
  y = net_binary(net, "scale", "DIV", y, net_scalar(net, 4, 2.5));
  return net_binary(net, "mask", "SUM", y, m);
}

// Axes that no stride joins: the last two are broadcast apart.
static rabbet_tensor_t* broadcast_batches(net_t* net) {
  rabbet_tensor_t* a =
      net_input(net, "a", RABBET_DTYPE_FLOAT, DIMS(2, 1, 3, 4, 5));
  rabbet_tensor_t* b =
      net_input(net, "b", RABBET_DTYPE_FLOAT, DIMS(1, 3, 3, 6, 5));
  return net_activation(net, "relu", "RELU",
                        product(net, a, "NONE", b, "TRANSPOSE"));
}

static rabbet_tensor_t* turned_and_vector(net_t* net) {
  rabbet_tensor_t* a = net_input(net, "a", RABBET_DTYPE_FLOAT, DIMS(3, 5, 4));
  rabbet_tensor_t* b = net_input(net, "b", RABBET_DTYPE_FLOAT, DIMS(3, 5));
  return net_activation(net, "relu", "RELU",
                        product(net, a, "TRANSPOSE", b, "VECTOR"));
}

static void fused(void** state) {
  (void)state;
  const body_t bodies[] = {bias_and_relu, residual_bias_and_gelu, scaled_scores,
                           broadcast_batches, turned_and_vector};
  for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); ++i)
    for (int level = 0; level <= 1; ++level) {  // fused unless times forbid it
      made_t made = {.net = net_begin(0, SYSTEM)};
      net_output(&made.net, bodies[i](&made.net), "y");
      make(&made, level, 0);
      assert_int_equal(rabbet_engine_layer_count(made.built.engine), 1);
      run(&made, 1e-5);
      unmake(&made);
    }
}

// ---- Quantized products ----------------------------------------------------

static rabbet_tensor_t* scaled(net_t* net, const char* name, const char* op,
                               rabbet_tensor_t* x, rabbet_dtype_t dtype,
                               double scale) {
  return net_add(
      net, name,
      (net_layer_t){
          .op = op,
          .inputs = {x, net_weights(net, RABBET_DTYPE_FLOAT,
                                    (rabbet_dims_t){.rank = 0}, &scale)},
          .input_count = 2,
          .attrs = {INT_ATTR("to_type", dtype)},
          .attr_count = 1});
}

// From 8 bits to 8 bits by one product and one kernel for all that follows; the
// weights are turned when the plan is made.
static void quantized(void** state) {
  (void)state;
  const rabbet_dtype_t types[] = {RABBET_DTYPE_INT8, RABBET_DTYPE_FP8};
  for (int i = 0; i < 2; ++i) {
    made_t made = {.net = net_begin(0, SYSTEM)};
    net_t* net = &made.net;
    rabbet_tensor_t* x =
        net_input(net, "x", RABBET_DTYPE_FLOAT, DIMS(2, 5, 32));
    rabbet_tensor_t* q = scaled(net, "q", "quantize", x, types[i], 0.05);
    rabbet_tensor_t* w = net_weights(net, types[i], DIMS(1, 32, 16), NULL);
    rabbet_tensor_t* y = product(
        net, scaled(net, "d", "dequantize", q, RABBET_DTYPE_FLOAT, 0.05),
        "NONE", scaled(net, "w", "dequantize", w, RABBET_DTYPE_FLOAT, 0.5),
        "NONE");
    y = net_binary(net, "bias", "SUM", y, WEIGHTS(net, 1, 1, 16));
    y = net_activation(net, "relu", "RELU", y);
    y = scaled(net, "qy", "quantize", y, types[i], 0.05);
    net_output(
        net, scaled(net, "dy", "dequantize", y, RABBET_DTYPE_FLOAT, 0.05), "y");
    make(&made, 0, 0);
    // q; d + w + product + bias + relu + qy; dy
    assert_int_equal(rabbet_engine_layer_count(made.built.engine), 3);
    stand_in()->clear_log();
    run(&made, 0.05);
    assert_int_equal(stand_in()->calls("cublasLtMatmul"), 1);
    assert_int_equal(stand_in()->calls("cuLaunchKernelEx"), 3);
    // Only what follows a kernel of our own overlaps with it.
    const char* matmul = strstr(stand_in()->log(), "cublasLtMatmul");
    const char* first = strstr(matmul, "cuLaunchKernelEx");
    const char* second = strstr(first + 1, "cuLaunchKernelEx");
    const char* overlap = strstr(stand_in()->log(), ", overlaps 1");
    assert_non_null(second);
    assert_true(overlap > second);
    unmake(&made);
  }
}

// The same for a convolution, with what is added to it in 8 bits, too; a scale
// for each channel.
static void quantized_convolution(void** state) {
  (void)state;
  made_t made = {.net = net_begin(0, SYSTEM)};
  net_t* net = &made.net;
  const rabbet_dtype_t real = RABBET_DTYPE_FLOAT, bytes = RABBET_DTYPE_INT8;
  double scales[8];
  for (int i = 0; i < 8; ++i)
    scales[i] = 0.1 + i / 16.0;
  rabbet_tensor_t* x = net_input(net, "x", real, DIMS(1, 8, 6, 5));
  rabbet_tensor_t* q = scaled(net, "q", "quantize", x, bytes, 0.0625);
  rabbet_tensor_t* d = scaled(net, "d", "dequantize", q, real, 0.0625);
  rabbet_tensor_t* w = net_add(
      net, "w",
      (net_layer_t){.op = "dequantize",
                    .inputs = {net_weights(net, bytes, DIMS(8, 8, 1, 1), NULL),
                               net_weights(net, real, DIMS(8), scales)},
                    .input_count = 2,
                    .attrs = {INT_ATTR("axis", 0)},
                    .attr_count = 1});
  rabbet_tensor_t* y = net_add(net, "conv",
                               (net_layer_t){.op = "convolution",
                                             .inputs = {d, w, WEIGHTS(net, 8)},
                                             .input_count = 3});
  y = net_binary(net, "sum", "SUM", y, d);
  y = net_activation(net, "relu", "RELU", y);
  y = scaled(net, "qy", "quantize", y, bytes, 0.125);
  net_output(net, scaled(net, "dy", "dequantize", y, real, 0.125), "y");
  make(&made, 0, 0);
  stand_in()->clear_log();
  run(&made, 0.13);
  // q; d + w + conv + d + sum + relu + qy; dy; and conversions to channels
  // last.
  assert_int_equal(stand_in()->calls("cudnnBackendExecute"), 1);
  assert_true(stand_in()->calls("cuLaunchKernelEx") <= 4);
  unmake(&made);
}

// ---- Plans -----------------------------------------------------------------

#define TF32 2e-3  // 10 bits of mantissa, products of 12

static void sample(made_t* made) {
  *made = (made_t){.net = net_begin(0, SYSTEM)};
  net_output(&made->net, bias_and_relu(&made->net), "y");
  make(made, 3, 1 << RABBET_BUILDER_TF32);
}

// A plan is run by the algorithm that it keeps; nothing is searched.
static void kept_algorithm(void** state) {
  (void)state;
  made_t made;
  sample(&made);
  stand_in()->clear_log();
  run(&made, TF32);
  assert_int_equal(stand_in()->calls("cublasLtMatmulAlgoGetHeuristic"), 0);
  assert_int_equal(stand_in()->calls("cublasLtMatmulAlgoCheck"), 1);
  assert_int_equal(stand_in()->calls("cublasLtMatmul"), 1);
  unmake(&made);
}

// A run that fails says so; the next one works.
static void failing_call(void** state) {
  (void)state;
  made_t made;
  rabbet_context_t* context = NULL;
  float output[2 * 5 * 8];
  sample(&made);
  RABBET_EXPECT_OK(rabbet_context_create(made.built.engine, SYSTEM, &context));
  RABBET_EXPECT_OK(rabbet_context_set_host_address(
      context, 0,
      made.oracle->views[made.net.network->inputs.data[0]->id].data));
  RABBET_EXPECT_OK(rabbet_context_set_host_address(context, 1, output));
  stand_in()->fail_call("cublasLtMatmul", 0, 700);
  rabbet_status_t status = rabbet_context_execute(context, NULL);
  stand_in()->stop_failing();
  assert_int_equal(rabbet_status_code(status), RABBET_STATUS_INTERNAL);
  assert_non_null(strstr(rabbet_status_message(status), "cublasLtMatmul"));
  rabbet_status_ignore(status);
  rabbet_context_destroy(context);
  run(&made, TF32);
  unmake(&made);
}

// Addresses that a caller gives may be aligned to elements alone.
static void unaligned_addresses(void** state) {
  (void)state;
  made_t made;
  rabbet_context_t* context = NULL;
  rabbet_device_t* device = NULL;
  char* memory[2];
  float output[2 * 5 * 8];
  sample(&made);
  const rabbet_network_t* network = made.net.network;
  const rabbet_view_t* x = &made.oracle->views[network->inputs.data[0]->id];
  RABBET_EXPECT_OK(rabbet_device_create("cuda", SYSTEM, &device));
  RABBET_EXPECT_OK(rabbet_context_create(made.built.engine, SYSTEM, &context));
  for (int i = 0; i < 2; ++i) {
    RABBET_EXPECT_OK(
        device->vtable->allocate(device, 1024, (void**)&memory[i]));
    RABBET_EXPECT_OK(rabbet_context_set_address(context, (size_t)i,
                                                memory[i] + sizeof(float)));
  }
  RABBET_EXPECT_OK(
      device->vtable->copy_to_device(device, memory[0] + sizeof(float), x->data,
                                     2 * 5 * 12 * sizeof(float), NULL));
  for (int i = 0; i < 2; ++i) {
    stand_in()->clear_log();
    RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
    assert_int_equal(stand_in()->calls("cublasLtMatmulAlgoGetHeuristic"),
                     i == 0);
    RABBET_EXPECT_OK(device->vtable->copy_to_host(
        device, output, memory[1] + sizeof(float), sizeof(output), NULL));
    RABBET_EXPECT_OK(device->vtable->synchronize(device, NULL));
    check_equal(&made.oracle->views[network->outputs.data[0]->id], output, TF32,
                "y");
  }
  rabbet_context_destroy(context);
  for (int i = 0; i < 2; ++i)
    device->vtable->free(device, memory[i]);
  rabbet_device_release(device);
  unmake(&made);
}

// One line says what is missing and how to get it.
static void missing_library(void** state) {
  (void)state;
  const char* path = getenv("RABBET_CUBLASLT");
  assert_non_null(path);
  char* before = strdup(path);
  made_t made = {.net = net_begin(0, SYSTEM)};
  net_output(&made.net, bias_and_relu(&made.net), "y");
  RABBET_EXPECT_OK(rabbet_network_infer(made.net.network));
  rabbet_builder_config_t* config = check_config(0);
  RABBET_EXPECT_OK(rabbet_builder_config_set_device(config, "cuda"));
  setenv("RABBET_CUBLASLT", "/nowhere/libcublasLt.so", 1);
  void* plan = NULL;
  size_t size = 0;
  rabbet_status_t status =
      rabbet_build_plan(made.net.network, config, SYSTEM, &plan, &size, NULL);
  setenv("RABBET_CUBLASLT", before, 1);
  assert_int_equal(rabbet_status_code(status), RABBET_STATUS_UNAVAILABLE);
  assert_non_null(strstr(rabbet_status_message(status), "RABBET_CUBLASLT"));
  rabbet_status_ignore(status);
  rabbet_builder_config_release(config);
  net_end(&made.net);
  free(before);
}

// Columns of zeros make the rows of a vocabulary whole vectors, and the sum
// behind the product reads the others. Products of this size take the host a
// second, so the one whose weights lie along the sum is not run.
static void odd_columns(void** state) {
  (void)state;
  enum { WORDS = 16389 };
  for (int turned = 0; turned < 2; ++turned) {
    made_t made = {.net = net_begin(0, SYSTEM)};
    net_t* net = &made.net;
    rabbet_tensor_t* x =
        net_input(net, "x", RABBET_DTYPE_FLOAT, DIMS(1, 128, 256));
    rabbet_tensor_t* w =
        turned ? WEIGHTS(net, 1, WORDS, 256) : WEIGHTS(net, 1, 256, WORDS);
    rabbet_tensor_t* y =
        product(net, x, "NONE", w, turned ? "TRANSPOSE" : "NONE");
    net_output(
        net, net_binary(net, "bias", "SUM", y, WEIGHTS(net, 1, 1, WORDS)), "y");
    if (turned) {
      rabbet_builder_config_t* config = check_config(0);
      RABBET_EXPECT_OK(rabbet_builder_config_set_device(config, "cuda"));
      RABBET_EXPECT_OK(rabbet_builder_config_set(
          config, RABBET_BUILDER_OPTION_FLAGS, 1 << RABBET_BUILDER_FP16));
      made.built = check_build(net->network, config);
      rabbet_builder_config_release(config);
    } else {
      make(&made, 0, 1 << RABBET_BUILDER_FP16);
      stand_in()->clear_log();
      run(&made, 2e-2);
      assert_non_null(strstr(stand_in()->log(), "cublasLtMatmul m 16392,"));
    }
    // One layer if the weights stayed as they are.
    assert_int_equal(rabbet_engine_layer_count(made.built.engine), 2);
    if (turned) {
      check_built_end(&made.built);
      net_end(net);
    } else {
      unmake(&made);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(fused),
      cmocka_unit_test(kept_algorithm),
      cmocka_unit_test(failing_call),
      cmocka_unit_test(unaligned_addresses),
      cmocka_unit_test(missing_library),
      cmocka_unit_test(quantized),
      cmocka_unit_test(quantized_convolution),
      cmocka_unit_test(odd_columns),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
