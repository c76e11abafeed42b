// Random tensors. Those without a seed get one of their own from their name, so
// that two nodes differ and results are reproducible.
#include <string.h>

#include "core/view.h"
#include "onnx/index.h"
#include "onnx/operators.h"

static int64_t onnx_seed(rabbet_onnx_node_t* node) {
  double given = rabbet_onnx_attr_float(node, "seed", 0);
  uint64_t seed = 0;
  if (rabbet_onnx_has_attr(node, "seed")) {
    memcpy(&seed, &given, sizeof(seed));
  } else {
    seed = UINT64_C(14695981039346656037);  // FNV-1a
    for (const char* c = node->proto->output[0]; *c; ++c)
      seed = (seed ^ (uint8_t)*c) * UINT64_C(1099511628211);
  }
  return (int64_t)(seed & INT64_MAX);
}

static rabbet_dtype_t onnx_random_type(rabbet_onnx_node_t* node,
                                       rabbet_dtype_t fallback) {
  rabbet_dtype_t dtype = fallback;
  if (rabbet_onnx_has_attr(node, "dtype"))
    rabbet_onnx_fail(
        node, rabbet_onnx_node_dtype(
                  node, (int32_t)rabbet_onnx_attr_int(node, "dtype", 1), &dtype,
                  NULL));
  if (rabbet_onnx_ok(node) && !rabbet_dtype_is_float(dtype))
    RABBET_ONNX_FAIL(
        node, RABBET_STATUS_UNSUPPORTED,
        "random numbers cannot have type %s; expected FLOAT, HALF or BF16",
        rabbet_dtype_name(dtype));
  return dtype;
}

// `shape`: an INT64 tensor, or NULL for the attribute. Numbers of DOUBLE are
// drawn as FLOAT.
static rabbet_tensor_t* onnx_random(rabbet_onnx_node_t* node,
                                    rabbet_tensor_t* shape,
                                    rabbet_dtype_t dtype) {
  bool normal = !strcmp(node->variant, "RANDOM_NORMAL");
  rabbet_onnx_ints_t dims = rabbet_onnx_attr_ints(node, "shape");
  double alpha = normal ? rabbet_onnx_attr_float(node, "mean", 0)
                        : rabbet_onnx_attr_float(node, "low", 0);
  double beta = normal ? rabbet_onnx_attr_float(node, "scale", 1)
                       : rabbet_onnx_attr_float(node, "high", 1);
  if (!rabbet_onnx_ok(node)) return NULL;
  rabbet_attr_t attrs[] = {
      RABBET_ONNX_INT(
          "operation",
          rabbet_onnx_enumerator(node, "fill", "operation", node->variant)),
      RABBET_ONNX_INTS("shape", dims.data, shape ? 0 : dims.count),
      RABBET_ONNX_FLOAT("alpha", alpha),
      RABBET_ONNX_FLOAT("beta", beta),
      RABBET_ONNX_INT(
          "to_type", dtype == RABBET_DTYPE_DOUBLE ? RABBET_DTYPE_FLOAT : dtype),
      RABBET_ONNX_INT("seed", onnx_seed(node))};
  return rabbet_onnx_cast(
      node,
      rabbet_onnx_layer(node, "fill", &shape, shape ? 1 : 0, attrs,
                        sizeof(attrs) / sizeof(attrs[0])),
      dtype);
}

static void onnx_import_random(rabbet_onnx_node_t* node) {
  rabbet_dtype_t dtype = onnx_random_type(node, RABBET_DTYPE_FLOAT);
  node->outputs[0] = onnx_random(node, NULL, dtype);
}

static void onnx_import_random_like(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  rabbet_dtype_t own = rabbet_onnx_dtype_of(node, x);
  rabbet_dtype_t dtype = onnx_random_type(node, own);
  node->outputs[0] = onnx_random(node, rabbet_onnx_shape(node, x), dtype);
}

// ---- Random choices --------------------------------------------------------

static rabbet_dtype_t onnx_choice_type(rabbet_onnx_node_t* node,
                                       rabbet_dtype_t fallback) {
  rabbet_dtype_t dtype = fallback;
  if (rabbet_onnx_has_attr(node, "dtype"))
    rabbet_onnx_fail(
        node, rabbet_onnx_node_dtype(
                  node, (int32_t)rabbet_onnx_attr_int(node, "dtype", 1), &dtype,
                  NULL));
  return dtype;
}

static void onnx_import_bernoulli(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  rabbet_dtype_t dtype = onnx_choice_type(node, rabbet_onnx_dtype_of(node, x));
  rabbet_tensor_t* random =
      onnx_random(node, rabbet_onnx_shape(node, x), RABBET_DTYPE_FLOAT);
  rabbet_tensor_t* y = rabbet_onnx_binary(
      node, "LESS", random, rabbet_onnx_cast(node, x, RABBET_DTYPE_FLOAT));
  node->outputs[0] = rabbet_onnx_cast(node, y, dtype);
}

// The class of a random number is the count of cumulative probabilities that do
// not exceed it.
static void onnx_import_multinomial(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  int64_t samples = rabbet_onnx_attr_int(node, "sample_size", 1);
  rabbet_dtype_t dtype = onnx_choice_type(node, RABBET_DTYPE_INT32);
  rabbet_onnx_check_rank(node, "input 0 ('input')", x, 2);
  if (rabbet_onnx_ok(node) && samples < 0)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "sample_size is %lld; expected 0 or more",
                     (long long)samples);
  if (!rabbet_onnx_ok(node)) return;
  const rabbet_onnx_index_t shape[] = {rabbet_onnx_extent(node, x, 0),
                                       rabbet_onnx_index(samples),
                                       rabbet_onnx_index(1)};
  rabbet_onnx_index_t last = rabbet_onnx_index_op(
      node, "SUB", rabbet_onnx_extent(node, x, 1), rabbet_onnx_index(1));
  rabbet_tensor_t* random = onnx_random(
      node, rabbet_onnx_index_vector(node, shape, 3), RABBET_DTYPE_FLOAT);
  x = rabbet_onnx_softmax(node, rabbet_onnx_cast(node, x, RABBET_DTYPE_FLOAT),
                          1);
  const rabbet_attr_t axis = RABBET_ONNX_INT("axis", 1);
  x = rabbet_onnx_layer(node, "cumulative", &x, 1, &axis, 1);
  x = rabbet_onnx_unsqueeze(node, x, 1u << 1, 3);
  rabbet_tensor_t* below = rabbet_onnx_unary(
      node, "NOT", rabbet_onnx_binary(node, "LESS", random, x));
  below = rabbet_onnx_cast(node, below, RABBET_DTYPE_INT64);
  rabbet_tensor_t* y = rabbet_onnx_reduce(node, "SUM", below, 1u << 2, false);
  // Rounded sums may end below 1.
  y = rabbet_onnx_binary(node, "MIN", y,
                         rabbet_onnx_index_vector(node, &last, 1));
  node->outputs[0] = rabbet_onnx_cast(node, y, dtype);
}

RABBET_ONNX_OPERATORS(random) = {
    RABBET_ONNX_OP(Bernoulli, bernoulli, "RANDOM_UNIFORM", 15, 22),
    RABBET_ONNX_OP(Multinomial, multinomial, "RANDOM_UNIFORM", 7, 22),
    RABBET_ONNX_OP(RandomNormal, random, "RANDOM_NORMAL", 1, 22),
    RABBET_ONNX_OP(RandomNormalLike, random_like, "RANDOM_NORMAL", 1, 22),
    RABBET_ONNX_OP(RandomUniform, random, "RANDOM_UNIFORM", 1, 22),
    RABBET_ONNX_OP(RandomUniformLike, random_like, "RANDOM_UNIFORM", 1, 22),
    {0},
};
