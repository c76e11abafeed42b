// Rounding to real numbers of 8 bits and fewer.
#include <math.h>
#include <string.h>

#include "onnx/file/model.h"
#include "onnx/held.h"

// FLOAT: 23 bits of the mantissa below the exponent's 8.
enum { MANTISSA = 23, BIAS = 127 };

rabbet_tensor_t* rabbet_onnx_bits_as(rabbet_onnx_node_t* node,
                                     rabbet_tensor_t* x, rabbet_dtype_t dtype) {
  const rabbet_attr_t attrs[] = {RABBET_ONNX_INT("to_type", dtype)};
  return rabbet_onnx_layer(node, "bit_cast", &x, 1, attrs, 1);
}

// Elements for which the comparison with `bound` holds become `value`.
static rabbet_tensor_t* reals_replace(rabbet_onnx_node_t* node,
                                      rabbet_tensor_t* x, const char* op,
                                      double bound, double value) {
  rabbet_tensor_t* number = rabbet_onnx_number(
      node, RABBET_DTYPE_FLOAT, rabbet_onnx_rank(node, x), value);
  return rabbet_onnx_select(node, rabbet_onnx_with_number(node, op, x, bound),
                            number, x);
}

// The distance between neighbours of the type in the binade of x: a power of
// two, from the bits of x's exponent.
static rabbet_tensor_t* reals_spacing(rabbet_onnx_node_t* node,
                                      rabbet_tensor_t* x,
                                      const rabbet_onnx_real_t* real) {
  const double unit = 1 << MANTISSA;
  rabbet_tensor_t* exponent = rabbet_onnx_with_number(
      node, "AND", rabbet_onnx_bits_as(node, x, RABBET_DTYPE_INT32),
      255 * unit);
  exponent = rabbet_onnx_with_number(node, "MAX", exponent,
                                     (BIAS + 1 - real->bias) * unit);
  exponent = rabbet_onnx_with_number(node, "SUB", exponent,
                                     real->mantissa_bits * unit);
  return rabbet_onnx_bits_as(node, exponent, RABBET_DTYPE_FLOAT);
}

rabbet_tensor_t* rabbet_onnx_round(rabbet_onnx_node_t* node, rabbet_tensor_t* x,
                                   int32_t onnx_type, bool saturates) {
  const rabbet_onnx_real_t* real =
      rabbet_onnx_real(rabbet_onnx_type(onnx_type));
  x = rabbet_onnx_cast(node, x, RABBET_DTYPE_FLOAT);
  rabbet_tensor_t* spacing = reals_spacing(node, x, real);
  rabbet_tensor_t* y = rabbet_onnx_unary(
      node, "ROUND", rabbet_onnx_binary(node, "DIV", x, spacing));
  y = rabbet_onnx_binary(node, "PROD", y, spacing);
  double beyond =
      saturates || real->specials == RABBET_ONNX_REAL_FINITE ? real->largest
      : real->specials == RABBET_ONNX_REAL_INFINITE          ? (double)INFINITY
                                                             : (double)NAN;
  y = reals_replace(node, y, "GREATER", real->largest, beyond);
  y = reals_replace(node, y, "LESS", -real->largest, -beyond);
  if (real->specials == RABBET_ONNX_REAL_UNSIGNED_ZERO)
    y = reals_replace(node, y, "EQUAL", 0, 0);
  if (real->specials == RABBET_ONNX_REAL_FINITE)
    y = rabbet_onnx_select(node, rabbet_onnx_unary(node, "ISNAN", y),
                           rabbet_onnx_number(node, RABBET_DTYPE_FLOAT,
                                              rabbet_onnx_rank(node, y), 0),
                           y);
  return y;
}

// Added to the bits of a positive number before those of its mantissa are
// dropped.
static double reals_increment(rabbet_onnx_node_t* node) {
  const char* mode = rabbet_onnx_attr_string(node, "round_mode", "up");
  if (!strcmp(mode, "up")) return (1 << MANTISSA) - 1;
  if (!strcmp(mode, "nearest")) return 1 << (MANTISSA - 1);
  if (rabbet_onnx_ok(node) && strcmp(mode, "down") != 0)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "round_mode is '%s'; up, down and nearest exist", mode);
  return 0;
}

rabbet_tensor_t* rabbet_onnx_round_to_power(rabbet_onnx_node_t* node,
                                            rabbet_tensor_t* x,
                                            bool saturates) {
  enum { CODE_NAN = 255, CODE_LARGEST = 254 };
  x = rabbet_onnx_cast(node, x, RABBET_DTYPE_FLOAT);
  int rank = rabbet_onnx_rank(node, x);
  rabbet_tensor_t* code = rabbet_onnx_with_number(
      node, "SUM", rabbet_onnx_bits_as(node, x, RABBET_DTYPE_INT32),
      reals_increment(node));
  code = rabbet_onnx_with_number(node, "FLOOR_DIV", code, 1 << MANTISSA);
  code = rabbet_onnx_with_number(node, "MIN", code,
                                 saturates ? CODE_LARGEST : CODE_NAN);
  // Negative numbers and NaN; and zero, which is no power.
  rabbet_tensor_t* none = rabbet_onnx_with_number(node, "LESS", x, 0);
  none =
      rabbet_onnx_binary(node, "OR", none, rabbet_onnx_unary(node, "ISNAN", x));
  if (!saturates)
    none = rabbet_onnx_binary(node, "OR", none,
                              rabbet_onnx_with_number(node, "EQUAL", x, 0));
  code = rabbet_onnx_select(
      node, none, rabbet_onnx_number(node, RABBET_DTYPE_INT32, rank, CODE_NAN),
      code);
  return rabbet_onnx_bits_as(node, code, RABBET_DTYPE_E8M0);
}
