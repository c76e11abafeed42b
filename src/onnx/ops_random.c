// Random tensors. Those without a seed get one of their own from their name, so
// that two nodes differ and a model's results can be had again.
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
        node, rabbet_onnx_dtype((int32_t)rabbet_onnx_attr_int(node, "dtype", 1),
                                &dtype, NULL));
  if (rabbet_onnx_ok(node) && !rabbet_dtype_is_float(dtype))
    RABBET_ONNX_FAIL(
        node, RABBET_STATUS_UNSUPPORTED,
        "random numbers cannot have type %s; expected FLOAT, HALF or BF16",
        rabbet_dtype_name(dtype));
  return dtype;
}

// `shape`: an INT64 tensor, or NULL for the attribute.
static void onnx_random(rabbet_onnx_node_t* node, rabbet_tensor_t* shape,
                        rabbet_dtype_t dtype) {
  bool normal = !strcmp(node->variant, "RANDOM_NORMAL");
  rabbet_onnx_ints_t dims = rabbet_onnx_attr_ints(node, "shape");
  double alpha = normal ? rabbet_onnx_attr_float(node, "mean", 0)
                        : rabbet_onnx_attr_float(node, "low", 0);
  double beta = normal ? rabbet_onnx_attr_float(node, "scale", 1)
                       : rabbet_onnx_attr_float(node, "high", 1);
  if (!rabbet_onnx_ok(node)) return;
  rabbet_attr_t attrs[] = {
      RABBET_ONNX_INT(
          "operation",
          rabbet_onnx_enumerator(node, "fill", "operation", node->variant)),
      RABBET_ONNX_INTS("shape", dims.data, shape ? 0 : dims.count),
      RABBET_ONNX_FLOAT("alpha", alpha),
      RABBET_ONNX_FLOAT("beta", beta),
      RABBET_ONNX_INT("to_type", dtype),
      RABBET_ONNX_INT("seed", onnx_seed(node))};
  node->outputs[0] = rabbet_onnx_layer(node, "fill", &shape, shape ? 1 : 0,
                                       attrs, sizeof(attrs) / sizeof(attrs[0]));
}

static void onnx_import_random(rabbet_onnx_node_t* node) {
  onnx_random(node, NULL, onnx_random_type(node, RABBET_DTYPE_FLOAT));
}

static void onnx_import_random_like(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  rabbet_dtype_t own = rabbet_onnx_dtype_of(node, x);
  onnx_random(node, rabbet_onnx_shape(node, x), onnx_random_type(node, own));
}

RABBET_ONNX_OPERATORS(random) = {
    RABBET_ONNX_OP(RandomNormal, random, "RANDOM_NORMAL", 1, 22),
    RABBET_ONNX_OP(RandomNormalLike, random_like, "RANDOM_NORMAL", 1, 22),
    RABBET_ONNX_OP(RandomUniform, random, "RANDOM_UNIFORM", 1, 22),
    RABBET_ONNX_OP(RandomUniformLike, random_like, "RANDOM_UNIFORM", 1, 22),
    {0},
};
