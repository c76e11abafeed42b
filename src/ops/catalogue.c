#include <string.h>
#include <strings.h>

#include "ops/op.h"

#define RABBET_OP(id, name, ...) extern const rabbet_op_t rabbet_op_##name;
#include "ops/ops.def"

static const rabbet_op_t* const catalogue_ops[RABBET_OP_COUNT] = {
#define RABBET_OP(id, name, ...) [RABBET_OP_##id] = &rabbet_op_##name,
#include "ops/ops.def"
};

const rabbet_op_t* rabbet_op_get(rabbet_op_id_t id) {
  return (unsigned)id < RABBET_OP_COUNT ? catalogue_ops[id] : NULL;
}

const rabbet_op_t* rabbet_op_find(const char* name) {
  for (int i = 0; name && i < RABBET_OP_COUNT; ++i) {
    if (strcmp(catalogue_ops[i]->name, name) == 0) return catalogue_ops[i];
  }
  return NULL;
}

rabbet_op_id_t rabbet_op_id(const rabbet_op_t* op) {
  int id = 0;
  while (id < RABBET_OP_COUNT && catalogue_ops[id] != op)
    ++id;
  return (rabbet_op_id_t)id;
}

const rabbet_op_operand_t* rabbet_op_input(const rabbet_op_t* op,
                                           size_t index) {
  if (index < op->input_count) return &op->inputs[index];
  if (op->input_count == 0) return NULL;
  const rabbet_op_operand_t* last = &op->inputs[op->input_count - 1];
  return last->flags & RABBET_OPERAND_VARIADIC ? last : NULL;
}

size_t rabbet_op_min_inputs(const rabbet_op_t* op) {
  size_t count = 0;
  for (size_t i = 0; i < op->input_count; ++i) {
    if (!(op->inputs[i].flags & RABBET_OPERAND_OPTIONAL)) count = i + 1;
  }
  return count;
}

size_t rabbet_op_max_inputs(const rabbet_op_t* op) {
  if (op->input_count > 0 &&
      op->inputs[op->input_count - 1].flags & RABBET_OPERAND_VARIADIC) {
    return SIZE_MAX;
  }
  return op->input_count;
}

bool rabbet_op_makes_sizes(const rabbet_op_t* op) {
  for (size_t i = 0; i < op->output_count; ++i) {
    if (op->outputs[i].flags & RABBET_OPERAND_SIZE) return true;
  }
  return false;
}

size_t rabbet_op_shown_outputs(const rabbet_op_t* op) {
  size_t count = op->output_count;
  while (count > 0 && op->outputs[count - 1].flags & RABBET_OPERAND_HIDDEN) {
    --count;
  }
  return count;
}

const char* rabbet_op_enumerator_name(const rabbet_op_attr_t* attr,
                                      int64_t value) {
  for (const rabbet_op_enumerator_t* e = attr->enumerators; e && e->name; ++e) {
    if (e->value == value) return e->name;
  }
  return NULL;
}
