#include "onnx/held.h"

#include <stdio.h>
#include <string.h>

#include "onnx/file/model.h"

enum { ONNX_UINT64 = 13 };

// ---- Types -----------------------------------------------------------------

int32_t rabbet_onnx_held(const rabbet_onnx_importer_t* importer,
                         const rabbet_tensor_t* tensor) {
  const int32_t* found = rabbet_map_get(&importer->held, (const char*)&tensor,
                                        sizeof(const void*));
  return found ? *found : 0;
}

rabbet_status_t rabbet_onnx_hold(rabbet_onnx_importer_t* importer,
                                 const char* name, rabbet_tensor_t* tensor,
                                 int32_t onnx_type) {
  struct {
    const rabbet_tensor_t* tensor;
    int32_t held;
  } entry = {tensor, onnx_type}, *kept = NULL;
  const rabbet_onnx_type_t* type = rabbet_onnx_type(onnx_type);
  if (!type || type->holds == RABBET_ONNX_HOLDS_ITSELF) return rabbet_ok();
  if (onnx_type == ONNX_UINT64)
    rabbet_log(importer->network->logger, RABBET_SEVERITY_WARNING,
               "'%s' is UINT64 and becomes INT64: values must be below 2^63",
               name);
  RABBET_RETURN_IF_ERROR(rabbet_arena_copy(&importer->arena, &entry,
                                           sizeof(entry), (void**)&kept));
  return rabbet_map_set(&importer->held, (const char*)&kept->tensor,
                        sizeof(const void*), &kept->held);
}

void rabbet_onnx_hold_like(rabbet_onnx_node_t* node, rabbet_tensor_t* y,
                           const rabbet_tensor_t* x) {
  if (!rabbet_onnx_ok(node)) return;
  int32_t held = rabbet_onnx_held(node->importer, x);
  if (held != 0 && rabbet_onnx_held(node->importer, y) == 0)
    rabbet_onnx_fail(node,
                     rabbet_onnx_hold(node->importer, node->name, y, held));
}

// 0 for INT4 and FP4, which plugins make.
static int32_t held_type(rabbet_onnx_node_t* node, rabbet_tensor_t* tensor) {
  int32_t held = rabbet_onnx_held(node->importer, tensor);
  return held ? held : rabbet_onnx_type_of(rabbet_onnx_dtype_of(node, tensor));
}

int32_t rabbet_onnx_type_in_model(rabbet_onnx_node_t* node,
                                  rabbet_tensor_t* tensor) {
  int32_t type = rabbet_onnx_ok(node) ? held_type(node, tensor) : 0;
  if (rabbet_onnx_ok(node) && type == 0)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "input '%s' is %s, which the operator does not take",
                     rabbet_tensor_name(tensor),
                     rabbet_dtype_name(rabbet_onnx_dtype_of(node, tensor)));
  return type;
}

// ---- Ranges ----------------------------------------------------------------

static bool held_is_whole(const rabbet_onnx_type_t* type) {
  return type && (type->holds == RABBET_ONNX_HOLDS_SIGNED ||
                  type->holds == RABBET_ONNX_HOLDS_UNSIGNED);
}

rabbet_tensor_t* rabbet_onnx_wrap(rabbet_onnx_node_t* node, rabbet_tensor_t* x,
                                  int32_t onnx_type) {
  const rabbet_onnx_type_t* type = rabbet_onnx_type(onnx_type);
  // The low 64 bits of a result are right as they are.
  if (!rabbet_onnx_ok(node) || !held_is_whole(type) || type->bits == 64)
    return x;
  rabbet_dtype_t dtype = rabbet_onnx_dtype_of(node, x);
  bool is_signed = type->holds == RABBET_ONNX_HOLDS_SIGNED;
  double codes = (double)(INT64_C(1) << type->bits);
  // Layers compute with the bits of INT32 and INT64 alone.
  if (rabbet_dtype_bits(dtype) < 32)
    x = rabbet_onnx_cast(node, x, RABBET_DTYPE_INT32);
  if (is_signed) x = rabbet_onnx_with_number(node, "SUM", x, codes / 2);
  x = rabbet_onnx_with_number(node, "AND", x, codes - 1);
  if (is_signed) x = rabbet_onnx_with_number(node, "SUB", x, codes / 2);
  return rabbet_onnx_cast(node, x, dtype);
}

rabbet_tensor_t* rabbet_onnx_saturate(rabbet_onnx_node_t* node,
                                      rabbet_tensor_t* x, int32_t onnx_type) {
  const rabbet_onnx_type_t* type = rabbet_onnx_type(onnx_type);
  if (!rabbet_onnx_ok(node) || !held_is_whole(type) || type->bits > 16)
    return x;
  double codes = (double)(1 << type->bits);
  double low = type->holds == RABBET_ONNX_HOLDS_SIGNED ? -codes / 2 : 0;
  x = rabbet_onnx_with_number(node, "MAX", x, low);
  return rabbet_onnx_with_number(node, "MIN", x, low + codes - 1);
}

// ---- Conversion ------------------------------------------------------------

// The low bits of the number, as casts between integers have it.
static rabbet_tensor_t* held_cast_whole(rabbet_onnx_node_t* node,
                                        rabbet_tensor_t* x, int32_t onnx_type) {
  const rabbet_onnx_type_t* type = rabbet_onnx_type(onnx_type);
  bool narrows = rabbet_onnx_dtype_of(node, x) != RABBET_DTYPE_BOOL &&
                 rabbet_onnx_held(node->importer, x) != onnx_type;
  // A cast from a floating type to one of 8 bits would clamp.
  if (rabbet_dtype_bits(type->dtype) < 32 && rabbet_onnx_is_float(node, x))
    x = rabbet_onnx_cast(node, x, RABBET_DTYPE_INT32);
  x = rabbet_onnx_cast(node, x, type->dtype);
  return narrows ? rabbet_onnx_wrap(node, x, onnx_type) : x;
}

rabbet_tensor_t* rabbet_onnx_convert(rabbet_onnx_node_t* node,
                                     rabbet_tensor_t* x, int32_t onnx_type) {
  rabbet_dtype_t dtype = RABBET_DTYPE_NONE;
  if (!rabbet_onnx_ok(node)) return NULL;
  rabbet_onnx_fail(node, rabbet_onnx_node_dtype(node, onnx_type, &dtype, NULL));
  if (!rabbet_onnx_ok(node)) return NULL;
  const rabbet_onnx_type_t* type = rabbet_onnx_type(onnx_type);
  const rabbet_onnx_real_t* real = rabbet_onnx_real(type);
  bool saturates = rabbet_onnx_attr_int(node, "saturate", 1) != 0;
  bool alike = held_type(node, x) == onnx_type;
  rabbet_tensor_t* y = x;
  if (!alike && held_is_whole(type)) {
    y = held_cast_whole(node, x, onnx_type);
  } else if (!alike && real &&
             (type->holds == RABBET_ONNX_HOLDS_REAL || !saturates)) {
    y = rabbet_onnx_cast(node, rabbet_onnx_round(node, x, onnx_type, saturates),
                         dtype);
  } else if (!alike && dtype == RABBET_DTYPE_E8M0) {
    y = rabbet_onnx_round_to_power(node, x, saturates);
  } else {
    y = rabbet_onnx_cast(node, x, dtype);
  }
  // The tensor itself goes on to hold what it held.
  if (y == x) y = rabbet_onnx_layer(node, "identity", &x, 1, NULL, 0);
  if (rabbet_onnx_ok(node) && rabbet_onnx_held(node->importer, y) == 0)
    rabbet_onnx_fail(
        node, rabbet_onnx_hold(node->importer, node->name, y, onnx_type));
  return y;
}

// ---- Operators -------------------------------------------------------------

typedef enum held_effect_t {
  HELD_WRAPS,  // results have the type, and may leave its range
  HELD_KEEPS,  // results are elements of the inputs, or within their range
  HELD_ENDS,   // results have a type of their own
} held_effect_t;

// Operators of control flow and of sequences remember types by themselves.
static const struct {
  held_effect_t effect;
  const char* domain;
  const char* operators;  // each between spaces
} held_effects[] = {
    {HELD_WRAPS, "",
     " Abs Add BitShift BitwiseNot Col2Im CumProd CumSum Div Mul Neg PRelu Pow "
     "Range ReduceL1 ReduceProd ReduceSum ReduceSumSquare Shrink Sub Sum "},
    {HELD_KEEPS, "",
     " BitwiseAnd BitwiseOr BitwiseXor CenterCropPad Clip Compress Concat "
     "DepthToSpace Dropout Expand Flatten Gather GatherElements GatherND "
     "Identity Max Min Mod Pad QuantizeLinear ReduceL2 ReduceMax ReduceMean "
     "ReduceMin Relu Reshape Resize ReverseSequence Scatter ScatterElements "
     "ScatterND Sign Slice SpaceToDepth Split Squeeze TensorScatter Tile TopK "
     "Transpose Trilu Unique Unsqueeze Upsample Where "},
    {HELD_ENDS, "",
     " ArgMax ArgMin BitCast Cast CastLike ConcatFromSequence DequantizeLinear "
     "Equal EyeLike Greater GreaterOrEqual If IsInf IsNaN Less LessOrEqual "
     "Loop NonZero OneHot Optional OptionalGetElement OptionalHasElement "
     "RandomNormalLike RandomUniformLike Scan SequenceAt SequenceConstruct "
     "SequenceErase SequenceInsert SequenceMap Shape Size SplitToSequence "},
    {HELD_KEEPS, "com.microsoft", " QuantizeLinear "},
    {HELD_ENDS, "com.microsoft", " DequantizeLinear "},
};

// False for an operator that none of the lists has.
static bool held_effect(const rabbet_onnx_node_t* node,
                        held_effect_t* out_effect) {
  char wanted[64];
  snprintf(wanted, sizeof(wanted), " %s ", node->proto->op_type);
  for (size_t i = 0; i < sizeof(held_effects) / sizeof(held_effects[0]); ++i) {
    *out_effect = held_effects[i].effect;
    if (!strcmp(node->domain, held_effects[i].domain) &&
        strstr(held_effects[i].operators, wanted))
      return true;
  }
  return false;
}

// The type that an input holds. A power has the type of its base.
static int32_t held_by_inputs(const rabbet_onnx_node_t* node) {
  int32_t found = 0;
  size_t count = node->input_count;
  if (!strcmp(node->proto->op_type, "Pow") && count > 0) count = 1;
  for (size_t i = 0; i < count && !found; ++i)
    if (node->inputs[i])
      found = rabbet_onnx_held(node->importer, node->inputs[i]);
  return found;
}

void rabbet_onnx_hold_outputs(rabbet_onnx_node_t* node) {
  held_effect_t effect = HELD_ENDS;
  int32_t type = rabbet_onnx_ok(node) ? held_by_inputs(node) : 0;
  if (type == 0) return;
  bool is_real = rabbet_onnx_type(type)->holds == RABBET_ONNX_HOLDS_REAL;
  if (!held_effect(node, &effect) || (is_real && effect == HELD_WRAPS)) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "the operator is not imported for %s, which networks hold "
                     "in a wider type; cast its inputs to INT32, INT64 or "
                     "FLOAT",
                     rabbet_onnx_type_name(type));
    return;
  }
  // Other outputs are positions or counts. The parts of a Split are not.
  bool all = !strcmp(node->proto->op_type, "Split");
  for (size_t i = 0; i < (all ? node->output_count : 1); ++i) {
    rabbet_tensor_t** y = &node->outputs[i];
    if (effect == HELD_ENDS || !*y) continue;
    if (effect == HELD_WRAPS) *y = rabbet_onnx_wrap(node, *y, type);
    if (rabbet_onnx_ok(node) && rabbet_onnx_held(node->importer, *y) == 0)
      rabbet_onnx_fail(node,
                       rabbet_onnx_hold(node->importer, node->name, *y, type));
  }
}
