// Operators on the bits of numbers.
#include <string.h>

#include "onnx/file/model.h"
#include "onnx/held.h"
#include "onnx/operators.h"

// INT32 and INT64 have bits in elementwise layers; others are cast there and
// back, which keeps their numbers.
static rabbet_dtype_t onnx_bits_dtype(rabbet_onnx_node_t* node,
                                      rabbet_tensor_t* x) {
  rabbet_dtype_t dtype = rabbet_onnx_dtype_of(node, x);
  if (rabbet_onnx_ok(node) && !rabbet_dtype_is_integer(dtype))
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "input 0 ('%s') is %s; expected integers",
                     rabbet_tensor_name(x), rabbet_dtype_name(dtype));
  return dtype == RABBET_DTYPE_INT64 ? dtype : RABBET_DTYPE_INT32;
}

static void onnx_import_bits(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* a = rabbet_onnx_required(node, 0);
  rabbet_tensor_t* b = rabbet_onnx_required(node, 1);
  rabbet_dtype_t work = onnx_bits_dtype(node, a);
  rabbet_tensor_t* y =
      rabbet_onnx_binary(node, node->variant, rabbet_onnx_cast(node, a, work),
                         rabbet_onnx_cast(node, b, work));
  node->outputs[0] = rabbet_onnx_cast(node, y, rabbet_onnx_dtype_of(node, a));
}

// -1 - x, or 255 - x of UINT8.
static void onnx_import_bits_not(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  rabbet_dtype_t work = onnx_bits_dtype(node, x);
  rabbet_dtype_t dtype = rabbet_onnx_dtype_of(node, x);
  rabbet_tensor_t* all =
      rabbet_onnx_number(node, work, rabbet_onnx_rank(node, x),
                         dtype == RABBET_DTYPE_UINT8 ? 255 : -1);
  rabbet_tensor_t* y =
      rabbet_onnx_binary(node, "SUB", all, rabbet_onnx_cast(node, x, work));
  node->outputs[0] = rabbet_onnx_cast(node, y, dtype);
}

// ---- BitShift --------------------------------------------------------------

// Reduces x, an INT64, to the range of `dtype`, as a cast in C does.
static rabbet_tensor_t* onnx_bits_wrap(rabbet_onnx_node_t* node,
                                       rabbet_tensor_t* x,
                                       rabbet_dtype_t dtype) {
  int bits = rabbet_dtype_bits(dtype);
  if (bits >= 64) return x;
  double whole = (double)(INT64_C(1) << bits);
  x = rabbet_onnx_with_number(node, "AND", x, whole - 1);
  if (dtype == RABBET_DTYPE_UINT8) return x;
  x = rabbet_onnx_with_number(node, "XOR", x, whole / 2);
  return rabbet_onnx_with_number(node, "SUB", x, whole / 2);
}

// A shift by 63 is done as 62 and 1: 2^63 is no INT64.
static rabbet_tensor_t* onnx_bits_shifted(rabbet_onnx_node_t* node,
                                          const char* op, rabbet_tensor_t* x,
                                          rabbet_tensor_t* by) {
  rabbet_tensor_t* most = rabbet_onnx_with_number(node, "MIN", by, 62);
  most = rabbet_onnx_with_number(node, "MAX", most, 0);
  rabbet_tensor_t* two = rabbet_onnx_number(node, RABBET_DTYPE_INT64,
                                            rabbet_onnx_rank(node, by), 2);
  rabbet_tensor_t* rest = rabbet_onnx_with_number(node, "SUB", by, 62);
  rest = rabbet_onnx_with_number(node, "MIN", rest, 1);
  rest = rabbet_onnx_with_number(node, "MAX", rest, 0);
  x = rabbet_onnx_binary(node, op, x,
                         rabbet_onnx_binary(node, "POW", two, most));
  return rabbet_onnx_binary(node, op, x,
                            rabbet_onnx_with_number(node, "SUM", rest, 1));
}

// A shift by less than 0 or by all bits gives 0, or -1 for negative numbers to
// the right.
static void onnx_import_bit_shift(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  rabbet_tensor_t* by = rabbet_onnx_required(node, 1);
  const char* direction = rabbet_onnx_attr_string(node, "direction", "");
  bool left = !strcmp(direction, "LEFT");
  (void)onnx_bits_dtype(node, x);
  rabbet_dtype_t dtype = rabbet_onnx_dtype_of(node, x);
  if (rabbet_onnx_ok(node) && !left && strcmp(direction, "RIGHT") != 0)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "direction is '%s'; LEFT and RIGHT exist", direction);
  x = rabbet_onnx_cast(node, x, RABBET_DTYPE_INT64);
  by = rabbet_onnx_cast(node, by, RABBET_DTYPE_INT64);
  rabbet_tensor_t* tensors[] = {x, by};
  rabbet_onnx_align(node, tensors, 2);
  rabbet_tensor_t* y = onnx_bits_shifted(node, left ? "PROD" : "FLOOR_DIV",
                                         tensors[0], tensors[1]);
  if (left) y = onnx_bits_wrap(node, y, dtype);
  rabbet_tensor_t* sign = rabbet_onnx_with_number(node, "MIN", tensors[0], 0);
  sign = rabbet_onnx_with_number(node, "MAX", sign, left ? 0 : -1);
  rabbet_tensor_t* none = rabbet_onnx_binary(
      node, "OR", rabbet_onnx_with_number(node, "LESS", tensors[1], 0),
      rabbet_onnx_with_number(node, "GREATER", tensors[1],
                              (double)(rabbet_dtype_bits(dtype) - 1)));
  y = rabbet_onnx_select(node, none, sign, y);
  node->outputs[0] = rabbet_onnx_cast(node, y, dtype);
}

// ---- BitCast ---------------------------------------------------------------

static void onnx_import_bit_cast(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  int32_t to = (int32_t)rabbet_onnx_attr_int(node, "to", 0);
  rabbet_dtype_t dtype = RABBET_DTYPE_NONE;
  rabbet_onnx_fail(
      node, RABBET_ANNOTATE(rabbet_onnx_node_dtype(node, to, &dtype, NULL),
                            "attribute 'to'"));
  int32_t numbers[] = {rabbet_onnx_type_in_model(node, x), to};
  if (!rabbet_onnx_ok(node)) return;
  const rabbet_onnx_type_t *from = rabbet_onnx_type(numbers[0]),
                           *type = rabbet_onnx_type(to);
  for (int i = 0; i < 2; ++i) {
    const rabbet_onnx_type_t* one = rabbet_onnx_type(numbers[i]);
    rabbet_dtype_t place = one->dtype;
    bool narrowed = false;
    rabbet_onnx_fail(
        node, rabbet_onnx_node_dtype(node, numbers[i], &place, &narrowed));
    if (one->holds == RABBET_ONNX_HOLDS_REAL || narrowed)
      RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                       "the bits of %s are not those of %s, which networks "
                       "have in its place",
                       one->name, rabbet_dtype_name(place));
  }
  if (rabbet_onnx_ok(node) && from->bits != type->bits)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "input 0 is %s of %d bits; attribute 'to' is %s of %d, "
                     "expected equal widths",
                     from->name, from->bits, type->name, type->bits);
  node->outputs[0] =
      rabbet_onnx_wrap(node, rabbet_onnx_bits_as(node, x, dtype), to);
  if (rabbet_onnx_ok(node))
    rabbet_onnx_fail(node, rabbet_onnx_hold(node->importer, node->name,
                                            node->outputs[0], to));
}

RABBET_ONNX_OPERATORS(bits) = {
    RABBET_ONNX_OP(BitCast, bit_cast, "", 26),
    RABBET_ONNX_OP(BitShift, bit_shift, "", 11, 28),
    RABBET_ONNX_OP(BitwiseAnd, bits, "AND", 18),
    RABBET_ONNX_OP(BitwiseNot, bits_not, "", 18),
    RABBET_ONNX_OP(BitwiseOr, bits, "OR", 18),
    RABBET_ONNX_OP(BitwiseXor, bits, "XOR", 18),
    {0},
};
