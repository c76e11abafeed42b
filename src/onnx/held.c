#include "onnx/held.h"

#include <stdio.h>
#include <string.h>

#include "onnx/file/model.h"

enum { ONNX_UINT16 = 4, ONNX_INT16 = 5, ONNX_UINT32 = 12, ONNX_UINT64 = 13 };

// ---- Types -----------------------------------------------------------------

int32_t rabbet_onnx_held(const rabbet_onnx_importer_t* importer,
                         const rabbet_tensor_t* tensor) {
  const int32_t* found = rabbet_map_get(&importer->held, (const char*)&tensor,
                                        sizeof(const void*));
  return found ? *found : 0;
}

static bool held_is_foreign(int32_t onnx_type) {
  return onnx_type == ONNX_UINT16 || onnx_type == ONNX_INT16 ||
         onnx_type == ONNX_UINT32 || onnx_type == ONNX_UINT64;
}

rabbet_status_t rabbet_onnx_hold(rabbet_onnx_importer_t* importer,
                                 const char* name, rabbet_tensor_t* tensor,
                                 int32_t onnx_type) {
  struct {
    const rabbet_tensor_t* tensor;
    int32_t type;
  } entry = {tensor, onnx_type}, *kept = NULL;
  if (!held_is_foreign(onnx_type)) return rabbet_ok();
  if (onnx_type == ONNX_UINT64)
    rabbet_log(importer->network->logger, RABBET_SEVERITY_WARNING,
               "'%s' is UINT64 and becomes INT64: values must be below 2^63",
               name);
  RABBET_RETURN_IF_ERROR(rabbet_arena_copy(&importer->arena, &entry,
                                           sizeof(entry), (void**)&kept));
  return rabbet_map_set(&importer->held, (const char*)&kept->tensor,
                        sizeof(const void*), &kept->type);
}

// ---- Ranges ----------------------------------------------------------------

rabbet_tensor_t* rabbet_onnx_wrap(rabbet_onnx_node_t* node, rabbet_tensor_t* x,
                                  int32_t onnx_type) {
  const double sign = 32768;
  switch (onnx_type) {
    case ONNX_UINT16:
      return rabbet_onnx_with_number(node, "AND", x, 65535);
    case ONNX_UINT32:
      return rabbet_onnx_with_number(node, "AND", x, 4294967295.0);
    case ONNX_INT16:
      x = rabbet_onnx_with_number(node, "SUM", x, sign);
      x = rabbet_onnx_with_number(node, "AND", x, 65535);
      return rabbet_onnx_with_number(node, "SUB", x, sign);
    default:  // the low 64 bits of a result are right as they are
      return x;
  }
}

rabbet_tensor_t* rabbet_onnx_saturate(rabbet_onnx_node_t* node,
                                      rabbet_tensor_t* x, int32_t onnx_type) {
  if (onnx_type != ONNX_UINT16 && onnx_type != ONNX_INT16) return x;
  bool is_signed = onnx_type == ONNX_INT16;
  x = rabbet_onnx_with_number(node, "MAX", x, is_signed ? -32768 : 0);
  return rabbet_onnx_with_number(node, "MIN", x, is_signed ? 32767 : 65535);
}

// ---- Operators -------------------------------------------------------------

typedef enum held_effect_t {
  HELD_WRAPS,  // results have the type, and may leave its range
  HELD_KEEPS,  // results are elements of the inputs, or within their range
  HELD_ENDS,   // results have a type of their own
} held_effect_t;

static const struct {
  held_effect_t effect;
  const char* operators;  // each between spaces
} held_effects[] = {
    {HELD_WRAPS,
     " Abs Add BitShift BitwiseNot CumSum Div Mul Neg Pow Range ReduceL1 "
     "ReduceProd ReduceSum ReduceSumSquare Sub Sum "},
    {HELD_KEEPS,
     " BitwiseAnd BitwiseOr BitwiseXor Clip Compress Concat DepthToSpace "
     "Expand "
     "Flatten Gather GatherElements GatherND Identity Max Min Mod Pad "
     "ReduceMax ReduceMin Relu Reshape ReverseSequence ScatterElements "
     "ScatterND Sign Slice SpaceToDepth Split Squeeze Tile TopK Transpose "
     "Trilu "
     "Unique Unsqueeze Where QuantizeLinear "},
    {HELD_ENDS,
     " ArgMax ArgMin Cast CastLike DequantizeLinear Equal EyeLike Greater "
     "GreaterOrEqual Less LessOrEqual NonZero OneHot Shape Size "
     "RandomNormalLike RandomUniformLike "},
};

// False for an operator that none of the lists has.
static bool held_effect(const rabbet_onnx_node_t* node,
                        held_effect_t* out_effect) {
  char wanted[64];
  snprintf(wanted, sizeof(wanted), " %s ", node->proto->op_type);
  for (size_t i = 0; i < sizeof(held_effects) / sizeof(held_effects[0]); ++i) {
    *out_effect = held_effects[i].effect;
    if (!node->domain[0] && strstr(held_effects[i].operators, wanted))
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
  if (!held_effect(node, &effect)) {
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
