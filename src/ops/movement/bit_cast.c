#include "ops/movement/bit_cast.h"

#include <string.h>

#include "ops/rules.h"
#include "ops/walk.h"

#define BIT_CAST_TYPES RABBET_T_ANY

static const rabbet_op_enumerator_t bit_cast_types[] = {
    {"FLOAT", RABBET_DTYPE_FLOAT},   {"HALF", RABBET_DTYPE_HALF},
    {"INT8", RABBET_DTYPE_INT8},     {"INT32", RABBET_DTYPE_INT32},
    {"BOOL", RABBET_DTYPE_BOOL},     {"UINT8", RABBET_DTYPE_UINT8},
    {"FP8", RABBET_DTYPE_FP8},       {"BF16", RABBET_DTYPE_BF16},
    {"INT64", RABBET_DTYPE_INT64},   {"E8M0", RABBET_DTYPE_E8M0},
    {"DOUBLE", RABBET_DTYPE_DOUBLE}, {NULL, 0},
};

void rabbet_bit_cast(rabbet_dtype_t from, const void* source, rabbet_dtype_t to,
                     void* target, int64_t count) {
  size_t from_size = (size_t)rabbet_dtype_bits(from) / 8;
  size_t to_size = (size_t)rabbet_dtype_bits(to) / 8;
  const char* x = source;
  char* y = target;
  for (int64_t i = 0; i < count; ++i) {
    uint64_t bits = 0;
    memcpy(&bits, x + (size_t)i * from_size, from_size);
    if (to == RABBET_DTYPE_BOOL) bits = (uint8_t)bits != 0;
    memcpy(y + (size_t)i * to_size, &bits, to_size);
  }
}

static rabbet_status_t bit_cast_infer_types(const rabbet_op_infer_t* infer) {
  infer->outputs[0].dtype = (rabbet_dtype_t)RABBET_OP_INT(infer, "to_type");
  return rabbet_ok();
}

static rabbet_status_t bit_cast_infer_values(const rabbet_op_infer_t* infer) {
  (void)infer;  // bits are no expressions
  return rabbet_ok();
}

static rabbet_status_t bit_cast_reference(const rabbet_op_eval_t* eval) {
  const rabbet_view_t* x = &eval->inputs[0];
  const rabbet_view_t* y = &eval->outputs[0];
  rabbet_bit_cast(x->dtype, x->data, y->dtype, y->data,
                  rabbet_count_of(&y->dims));
  return rabbet_ok();
}

static const rabbet_op_operand_t bit_cast_inputs[] = {
    {"input", 0, BIT_CAST_TYPES}};
static const rabbet_op_operand_t bit_cast_outputs[] = {
    {"output", 0, BIT_CAST_TYPES}};
static const rabbet_op_attr_t bit_cast_attrs[] = {
    {"to_type", RABBET_ATTR_INT, true, 0, 0, bit_cast_types},
};

const rabbet_op_t rabbet_op_bit_cast = {
    .name = "bit_cast",
    .layer_type = "BIT_CAST",
    .inputs = bit_cast_inputs,
    .input_count = RABBET_OP_COUNT_OF(bit_cast_inputs),
    .outputs = bit_cast_outputs,
    .output_count = RABBET_OP_COUNT_OF(bit_cast_outputs),
    .attrs = bit_cast_attrs,
    .attr_count = RABBET_OP_COUNT_OF(bit_cast_attrs),
    .infer_types = bit_cast_infer_types,
    .infer_shapes = rabbet_op_same_shape,
    .infer_values = bit_cast_infer_values,
    .reference = bit_cast_reference,
};
