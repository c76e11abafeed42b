#include "device/cpu/pointwise/pointwise_program.h"

#include <assert.h>
#include <string.h>

#include "base/vec.h"
#include "ops/enums.h"

// ---- Operators to instructions ---------------------------------------------

#define PW_NUMBER(kind, name, number) [number] = RABBET_PW_##name,
static const rabbet_pw_op_t binary_ops[] = {RABBET_ELEMENTWISES(PW_NUMBER)};
static const rabbet_pw_op_t unary_ops[] = {RABBET_UNARIES(PW_NUMBER)};
static const rabbet_pw_op_t activations[] = {RABBET_ACTIVATIONS(PW_NUMBER)};
#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static int64_t rabbet_node_int(const rabbet_group_node_t* node,
                               const char* name) {
  return rabbet_attr_int(node->attrs, node->op->attr_count, name, 0);
}

static rabbet_dtype_t node_output_dtype(const rabbet_group_t* group,
                                        const rabbet_group_node_t* node) {
  return group->values[node->outputs[0]].dtype;
}

// The instruction of a cast, which rounds to its type. Casts that change
// nothing in this lane type have none.
static rabbet_pw_op_t cast_op(const rabbet_group_t* group,
                              const rabbet_group_node_t* node) {
  switch (node_output_dtype(group, node)) {
    case RABBET_DTYPE_HALF:
      return RABBET_PW_ROUND_HALF;
    case RABBET_DTYPE_BF16:
      return RABBET_PW_ROUND_BF16;
    case RABBET_DTYPE_BOOL:
      return RABBET_PW_TO_BOOL;
    default:
      return RABBET_PW_OP_COUNT;
  }
}

static int32_t node_zero_point(const rabbet_group_node_t* node) {
  return node->input_count > 2 ? node->inputs[2] : -1;
}

// The node's instruction; RABBET_PW_OP_COUNT: none, the output is the input.
static bool node_op(const rabbet_group_t* group,
                    const rabbet_group_node_t* node, rabbet_pw_op_t* out_op) {
  if (rabbet_op_is(node->op, RABBET_OP_IDENTITY) ||
      rabbet_op_is(node->op, RABBET_OP_CAST)) {
    *out_op = cast_op(group, node);
    return true;
  }
  if (rabbet_op_is(node->op, RABBET_OP_SELECT)) {
    *out_op = RABBET_PW_SELECT;
    return true;
  }
  if (rabbet_op_is(node->op, RABBET_OP_QUANTIZE)) {
    *out_op = node_output_dtype(group, node) == RABBET_DTYPE_FP8
                  ? RABBET_PW_ROUND_FP8
                  : RABBET_PW_ROUND;
    return true;
  }
  if (rabbet_op_is(node->op, RABBET_OP_DEQUANTIZE)) {
    // pw_emit_dequantize handles zero points.
    *out_op = node_zero_point(node) < 0 ? RABBET_PW_PROD : RABBET_PW_ROUND;
    return true;
  }
  const struct {
    rabbet_op_id_t id;
    const char* attr;
    const rabbet_pw_op_t* ops;
    size_t count;
  } tables[] = {
      {RABBET_OP_ELEMENTWISE, "op", binary_ops, COUNT_OF(binary_ops)},
      {RABBET_OP_UNARY, "op", unary_ops, COUNT_OF(unary_ops)},
      {RABBET_OP_ACTIVATION, "type", activations, COUNT_OF(activations)},
  };
  for (size_t i = 0; i < COUNT_OF(tables); ++i) {
    if (!rabbet_op_is(node->op, tables[i].id)) continue;
    int64_t number = rabbet_node_int(node, tables[i].attr);
    if (number < 0 || (size_t)number >= tables[i].count) return false;
    *out_op = tables[i].ops[number];
    return true;
  }
  return false;
}

// Whether an 8-bit value is only converted. FLOAT lanes can hold such values,
// but not ones that are computed with, which would have to wrap around.
static bool pw_is_quantized(const rabbet_group_t* group, int32_t value) {
  for (size_t i = 0; i < group->node_count; ++i) {
    const rabbet_group_node_t* node = &group->nodes[i];
    bool makes = node->outputs[0] == value, reads = false;
    for (size_t k = 0; k < node->input_count; ++k)
      reads = reads || node->inputs[k] == value;
    if ((makes || reads) && !rabbet_op_is(node->op, RABBET_OP_QUANTIZE) &&
        !rabbet_op_is(node->op, RABBET_OP_DEQUANTIZE))
      return false;
  }
  return true;
}

bool rabbet_pw_lane(const rabbet_group_t* group, rabbet_pw_lane_t* out_lane) {
  const uint32_t narrow = 1u << RABBET_DTYPE_INT8 | 1u << RABBET_DTYPE_UINT8 |
                          1u << RABBET_DTYPE_FP8;
  uint32_t types = 0;
  for (size_t i = 0; i < group->value_count; ++i) {
    if (group->values[i].dtype < 0) return false;
    uint32_t type = 1u << group->values[i].dtype;
    if (type & narrow && pw_is_quantized(group, (int32_t)i))
      type = 1u << RABBET_DTYPE_FLOAT;
    types |= type;
  }
  const uint32_t truth = 1u << RABBET_DTYPE_BOOL;
  const uint32_t lanes[RABBET_PW_LANE_COUNT] = {
      truth | 1u << RABBET_DTYPE_FLOAT | 1u << RABBET_DTYPE_HALF |
          1u << RABBET_DTYPE_BF16,
      truth | 1u << RABBET_DTYPE_INT32,
      truth | 1u << RABBET_DTYPE_INT64,
      truth | 1u << RABBET_DTYPE_DOUBLE,
  };
  for (int lane = 0; lane < RABBET_PW_LANE_COUNT; ++lane) {
    if (types & ~lanes[lane]) continue;
    *out_lane = (rabbet_pw_lane_t)lane;
    return true;
  }
  return false;
}

bool rabbet_pw_supports(const rabbet_group_t* group, rabbet_pw_lane_t lane) {
  const rabbet_pw_machine_t* machine = rabbet_pw_machine();
  for (size_t i = 0; i < group->node_count; ++i) {
    rabbet_pw_op_t op;
    if (!node_op(group, &group->nodes[i], &op)) return false;
    if (op != RABBET_PW_OP_COUNT && !machine->ops[lane][op][0]) return false;
  }
  return true;
}

// ---- Compiling -------------------------------------------------------------

enum { NOWHERE = -1 };

// The state of a value while instructions are emitted.
typedef struct pw_value_t {
  int base;   // an input or a slot that has it, or NOWHERE
  bool cell;  // base holds one element
  int uses;   // number of remaining reads
} pw_value_t;

typedef struct pw_compiler_t {
  const rabbet_group_t* group;
  const rabbet_pw_machine_t* machine;
  rabbet_allocator_t allocator;
  rabbet_pw_program_t* program;
  RABBET_VEC(rabbet_pw_insn_t) insns;
  pw_value_t* values;
  int32_t* same_as;  // for values without instruction: the equal value
  int acc;           // value in the accumulator, or NOWHERE
  RABBET_VEC(int) free_slots;
} pw_compiler_t;

static rabbet_status_t pw_emit(pw_compiler_t* compiler, rabbet_pw_op_t op,
                               rabbet_pw_form_t form, int operand, int other,
                               double alpha, double beta) {
  rabbet_pw_insn_t insn = {
      .run = compiler->machine->ops[compiler->program->lane][op][form],
      .operand = operand,
      .other = other,
      .alpha = alpha,
      .beta = beta};
  if (!insn.run) {
    return RABBET_STATUS(RABBET_STATUS_INTERNAL,
                         "pointwise: no instruction %d in form %d", (int)op,
                         (int)form);
  }
  return RABBET_VEC_PUSH(compiler->allocator, &compiler->insns, insn);
}

static rabbet_status_t pw_emit_memory(pw_compiler_t* compiler,
                                      rabbet_pw_op_t op, int base) {
  return pw_emit(compiler, op, RABBET_PW_ACC_TILE, base, 0, 0, 0);
}

static int pw_new_slot(pw_compiler_t* compiler) {
  if (compiler->free_slots.count > 0) {
    return compiler->free_slots.data[--compiler->free_slots.count];
  }
  rabbet_pw_program_t* program = compiler->program;
  return program->input_count + program->output_count + program->slot_count++;
}

static bool pw_is_slot(const pw_compiler_t* compiler, int base) {
  return base >=
         compiler->program->input_count + compiler->program->output_count;
}

// Stores the accumulator's value into a slot, if it will be read again and has
// no base.
static rabbet_status_t pw_spill(pw_compiler_t* compiler) {
  if (compiler->acc == NOWHERE) return rabbet_ok();
  pw_value_t* value = &compiler->values[compiler->acc];
  if (value->uses == 0 || value->base != NOWHERE) return rabbet_ok();
  value->base = pw_new_slot(compiler);
  value->cell = false;
  return pw_emit_memory(compiler, RABBET_PW_STORE, value->base);
}

static rabbet_status_t pw_to_acc(pw_compiler_t* compiler, int value) {
  if (compiler->acc == value) return rabbet_ok();
  assert(compiler->values[value].base != NOWHERE);
  RABBET_RETURN_IF_ERROR(pw_spill(compiler));
  compiler->acc = value;
  return pw_emit_memory(
      compiler,
      compiler->values[value].cell ? RABBET_PW_LOAD_CELL : RABBET_PW_LOAD,
      compiler->values[value].base);
}

// Makes sure that a value has a tile, for instructions that read one.
static rabbet_status_t pw_to_tile(pw_compiler_t* compiler, int value) {
  pw_value_t* state = &compiler->values[value];
  if (state->base != NOWHERE && !state->cell) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(pw_to_acc(compiler, value));
  state->base = pw_new_slot(compiler);
  state->cell = false;
  return pw_emit_memory(compiler, RABBET_PW_STORE, state->base);
}

static rabbet_status_t pw_used(pw_compiler_t* compiler, int value) {
  pw_value_t* state = &compiler->values[value];
  assert(state->uses > 0);
  if (--state->uses > 0 || state->base == NOWHERE ||
      !pw_is_slot(compiler, state->base)) {
    return rabbet_ok();
  }
  return RABBET_VEC_PUSH(compiler->allocator, &compiler->free_slots,
                         state->base);
}

static rabbet_status_t pw_emit_binary(pw_compiler_t* compiler,
                                      rabbet_pw_op_t op, int a, int b) {
  bool reversed = compiler->acc == b && a != b;
  int operand = reversed ? a : b;
  if (!reversed) {
    if (b == a || compiler->values[b].base == NOWHERE) {
      RABBET_RETURN_IF_ERROR(pw_to_tile(compiler, b));
    }
    RABBET_RETURN_IF_ERROR(pw_to_acc(compiler, a));
  } else if (compiler->values[a].base == NOWHERE) {
    return RABBET_STATUS(RABBET_STATUS_INTERNAL,
                         "pointwise: an operand has no register or memory");
  }
  int accumulated = compiler->acc;
  // The remaining reads exclude this one.
  RABBET_RETURN_IF_ERROR(pw_used(compiler, accumulated));
  RABBET_RETURN_IF_ERROR(pw_spill(compiler));
  bool cell = compiler->values[operand].cell;
  rabbet_pw_form_t form =
      reversed ? (cell ? RABBET_PW_CELL_ACC : RABBET_PW_TILE_ACC)
               : (cell ? RABBET_PW_ACC_CELL : RABBET_PW_ACC_TILE);
  RABBET_RETURN_IF_ERROR(
      pw_emit(compiler, op, form, compiler->values[operand].base, 0, 0, 0));
  return pw_used(compiler, operand);
}

static rabbet_status_t pw_emit_select(pw_compiler_t* compiler, const int* in) {
  RABBET_RETURN_IF_ERROR(pw_to_tile(compiler, in[1]));
  RABBET_RETURN_IF_ERROR(pw_to_tile(compiler, in[2]));
  RABBET_RETURN_IF_ERROR(pw_to_acc(compiler, in[0]));
  RABBET_RETURN_IF_ERROR(pw_used(compiler, in[0]));
  RABBET_RETURN_IF_ERROR(pw_spill(compiler));
  assert(!compiler->values[in[1]].cell && !compiler->values[in[2]].cell);
  RABBET_RETURN_IF_ERROR(pw_emit(compiler, RABBET_PW_SELECT, RABBET_PW_ACC_TILE,
                                 compiler->values[in[1]].base,
                                 compiler->values[in[2]].base, 0, 0));
  RABBET_RETURN_IF_ERROR(pw_used(compiler, in[1]));
  return pw_used(compiler, in[2]);
}

static rabbet_status_t pw_emit_unary(pw_compiler_t* compiler,
                                     const rabbet_group_node_t* node,
                                     rabbet_pw_op_t op, int in) {
  RABBET_RETURN_IF_ERROR(pw_to_acc(compiler, in));
  RABBET_RETURN_IF_ERROR(pw_used(compiler, in));
  RABBET_RETURN_IF_ERROR(pw_spill(compiler));
  return pw_emit(
      compiler, op, RABBET_PW_ACC_TILE, 0, 0,
      rabbet_attr_float(node->attrs, node->op->attr_count, "alpha", 0),
      rabbet_attr_float(node->attrs, node->op->attr_count, "beta", 0));
}

// Emits an instruction on the accumulator and a boundary input or another
// value's tile.
static rabbet_status_t pw_emit_with(pw_compiler_t* compiler, rabbet_pw_op_t op,
                                    int operand) {
  const pw_value_t* value = &compiler->values[operand];
  if (value->base == NOWHERE)
    return RABBET_STATUS(RABBET_STATUS_INTERNAL,
                         "pointwise: an operand has no register or memory");
  RABBET_RETURN_IF_ERROR(pw_emit(
      compiler, op, value->cell ? RABBET_PW_ACC_CELL : RABBET_PW_ACC_TILE,
      value->base, 0, 0, 0));
  return pw_used(compiler, operand);
}

static rabbet_status_t pw_emit_quantize(pw_compiler_t* compiler,
                                        const rabbet_group_node_t* node,
                                        const int in[3]) {
  rabbet_dtype_t to = node_output_dtype(compiler->group, node);
  bool is_whole = to != RABBET_DTYPE_FP8;
  double low = to == RABBET_DTYPE_INT8 ? INT8_MIN : 0;
  double high = to == RABBET_DTYPE_INT8 ? INT8_MAX : UINT8_MAX;
  RABBET_RETURN_IF_ERROR(pw_emit_binary(compiler, RABBET_PW_DIV, in[0], in[1]));
  if (is_whole)
    RABBET_RETURN_IF_ERROR(pw_emit_memory(compiler, RABBET_PW_ROUND, 0));
  if (in[2] != NOWHERE)
    RABBET_RETURN_IF_ERROR(pw_emit_with(compiler, RABBET_PW_SUM, in[2]));
  return is_whole ? pw_emit(compiler, RABBET_PW_CLIP_QUANTIZED,
                            RABBET_PW_ACC_TILE, 0, 0, low, high)
                  : pw_emit_memory(compiler, RABBET_PW_ROUND_FP8, 0);
}

static rabbet_status_t pw_emit_dequantize(pw_compiler_t* compiler,
                                          const int in[3]) {
  if (in[2] == NOWHERE)
    return pw_emit_binary(compiler, RABBET_PW_PROD, in[0], in[1]);
  RABBET_RETURN_IF_ERROR(pw_emit_binary(compiler, RABBET_PW_SUB, in[0], in[2]));
  return pw_emit_with(compiler, RABBET_PW_PROD, in[1]);
}

static rabbet_status_t pw_emit_node(pw_compiler_t* compiler,
                                    const rabbet_group_node_t* node) {
  int in[3] = {NOWHERE, NOWHERE, NOWHERE};
  for (size_t i = 0; i < node->input_count && i < 3; ++i) {
    if (node->inputs[i] >= 0) in[i] = compiler->same_as[node->inputs[i]];
  }
  rabbet_pw_op_t op;
  if (!node_op(compiler->group, node, &op)) {
    return RABBET_STATUS(RABBET_STATUS_INTERNAL,
                         "pointwise: layer '%s' (%s) is not element-wise",
                         node->name, node->op->name);
  }
  if (op == RABBET_PW_OP_COUNT) return rabbet_ok();  // passes through
  if (rabbet_op_is(node->op, RABBET_OP_QUANTIZE)) {
    RABBET_RETURN_IF_ERROR(pw_emit_quantize(compiler, node, in));
  } else if (rabbet_op_is(node->op, RABBET_OP_DEQUANTIZE)) {
    RABBET_RETURN_IF_ERROR(pw_emit_dequantize(compiler, in));
  } else if (op == RABBET_PW_SELECT) {
    RABBET_RETURN_IF_ERROR(pw_emit_select(compiler, in));
  } else if (in[1] != NOWHERE) {
    RABBET_RETURN_IF_ERROR(pw_emit_binary(compiler, op, in[0], in[1]));
  } else {
    RABBET_RETURN_IF_ERROR(pw_emit_unary(compiler, node, op, in[0]));
  }
  compiler->acc = node->outputs[0];
  return rabbet_ok();
}

// ---- Products that are summed ----------------------------------------------

typedef struct pw_fused_t {
  rabbet_pw_op_t op;  // RABBET_PW_OP_COUNT: not fused
  int factors[2];
  int addend;
  int result;
} pw_fused_t;

// Fuses the product of node `at` with the sum or difference of `next`, if
// nothing else reads the product.
static pw_fused_t pw_fuse(const pw_compiler_t* compiler,
                          const rabbet_group_node_t* at,
                          const rabbet_group_node_t* next) {
  pw_fused_t fused = {.op = RABBET_PW_OP_COUNT};
  rabbet_pw_op_t first = RABBET_PW_OP_COUNT, second = RABBET_PW_OP_COUNT;
  if (compiler->program->lane != RABBET_PW_FLOAT ||
      !node_op(compiler->group, at, &first) || first != RABBET_PW_PROD ||
      !node_op(compiler->group, next, &second) ||
      (second != RABBET_PW_SUM && second != RABBET_PW_SUB) ||
      compiler->values[at->outputs[0]].uses != 1)
    return fused;
  const int32_t* same_as = compiler->same_as;
  int left = same_as[next->inputs[0]], right = same_as[next->inputs[1]];
  if (left != at->outputs[0] && right != at->outputs[0]) return fused;
  bool product_first = left == at->outputs[0];
  fused.op = second == RABBET_PW_SUM ? RABBET_PW_PROD_SUM
             : product_first         ? RABBET_PW_PROD_SUB
                                     : RABBET_PW_PROD_SUB_FROM;
  fused.factors[0] = same_as[at->inputs[0]];
  fused.factors[1] = same_as[at->inputs[1]];
  fused.addend = product_first ? right : left;
  fused.result = next->outputs[0];
  return fused;
}

static rabbet_status_t pw_emit_fused(pw_compiler_t* compiler,
                                     const pw_fused_t* fused) {
  int a = fused->factors[0], b = fused->factors[1], c = fused->addend;
  const pw_value_t* values = compiler->values;
  if (values[c].base == NOWHERE)
    RABBET_RETURN_IF_ERROR(pw_to_tile(compiler, c));
  if (compiler->acc == b) {
    b = a;
    a = fused->factors[1];
  }
  if (values[b].base == NOWHERE)
    RABBET_RETURN_IF_ERROR(pw_to_tile(compiler, b));
  RABBET_RETURN_IF_ERROR(pw_to_acc(compiler, a));
  RABBET_RETURN_IF_ERROR(pw_used(compiler, a));
  RABBET_RETURN_IF_ERROR(pw_spill(compiler));
  int form = (values[b].cell ? RABBET_PW_FUSED_CELL : 0) |
             (values[c].cell ? RABBET_PW_FUSED_OTHER_CELL : 0);
  RABBET_RETURN_IF_ERROR(pw_emit(compiler, fused->op, (rabbet_pw_form_t)form,
                                 values[b].base, values[c].base, 0, 0));
  RABBET_RETURN_IF_ERROR(pw_used(compiler, b));
  RABBET_RETURN_IF_ERROR(pw_used(compiler, c));
  compiler->acc = fused->result;
  return rabbet_ok();
}

// Finds values that equal others, and counts the reads of each value.
static void pw_count_uses(pw_compiler_t* compiler) {
  const rabbet_group_t* group = compiler->group;
  for (size_t i = 0; i < group->value_count; ++i) {
    compiler->same_as[i] = (int32_t)i;
    compiler->values[i].base = NOWHERE;
  }
  for (size_t i = 0; i < group->node_count; ++i) {
    const rabbet_group_node_t* node = &group->nodes[i];
    rabbet_pw_op_t op;
    bool passes = node_op(group, node, &op) && op == RABBET_PW_OP_COUNT;
    if (passes) {
      compiler->same_as[node->outputs[0]] = compiler->same_as[node->inputs[0]];
      continue;
    }
    for (size_t k = 0; k < node->input_count; ++k) {
      if (node->inputs[k] >= 0)
        ++compiler->values[compiler->same_as[node->inputs[k]]].uses;
    }
  }
  for (size_t i = 0; i < group->output_count; ++i) {
    ++compiler->values[compiler->same_as[group->outputs[i]]].uses;
  }
}

// Converts inputs of types other than the lanes' into slots.
static rabbet_status_t pw_emit_inputs(pw_compiler_t* compiler,
                                      const rabbet_pw_access_t* access) {
  static const rabbet_pw_op_t loads[RABBET_DTYPE_COUNT] = {
      [RABBET_DTYPE_HALF] = RABBET_PW_LOAD_HALF,
      [RABBET_DTYPE_BF16] = RABBET_PW_LOAD_BF16,
      [RABBET_DTYPE_BOOL] = RABBET_PW_LOAD_BOOL,
      [RABBET_DTYPE_INT8] = RABBET_PW_LOAD_INT8,
      [RABBET_DTYPE_UINT8] = RABBET_PW_LOAD_UINT8,
      [RABBET_DTYPE_FP8] = RABBET_PW_LOAD_FP8,
  };
  const rabbet_group_t* group = compiler->group;
  for (size_t i = 0; i < group->input_count; ++i) {
    pw_value_t* value = &compiler->values[group->inputs[i]];
    assert(group->values[group->inputs[i]].dtype >= 0);
    rabbet_pw_op_t load = loads[group->values[group->inputs[i]].dtype];
    value->base = (int)i;
    value->cell = access[i] == RABBET_PW_CELL;
    // Cells are converted when they are set.
    if (load == RABBET_PW_LOAD || value->cell || value->uses == 0) continue;
    value->base = pw_new_slot(compiler);
    RABBET_RETURN_IF_ERROR(pw_emit_memory(compiler, load, (int)i));
    RABBET_RETURN_IF_ERROR(
        pw_emit_memory(compiler, RABBET_PW_STORE, value->base));
  }
  return rabbet_ok();
}

// Stores all outputs at the end, so that an output may overwrite an input.
static rabbet_status_t pw_emit_outputs(pw_compiler_t* compiler) {
  static const rabbet_pw_op_t stores[RABBET_DTYPE_COUNT] = {
      [RABBET_DTYPE_FLOAT] = RABBET_PW_STORE,
      [RABBET_DTYPE_INT32] = RABBET_PW_STORE,
      [RABBET_DTYPE_INT64] = RABBET_PW_STORE,
      [RABBET_DTYPE_DOUBLE] = RABBET_PW_STORE,
      [RABBET_DTYPE_HALF] = RABBET_PW_STORE_HALF,
      [RABBET_DTYPE_BF16] = RABBET_PW_STORE_BF16,
      [RABBET_DTYPE_BOOL] = RABBET_PW_STORE_BOOL,
      [RABBET_DTYPE_INT8] = RABBET_PW_STORE_INT8,
      [RABBET_DTYPE_UINT8] = RABBET_PW_STORE_UINT8,
      [RABBET_DTYPE_FP8] = RABBET_PW_STORE_FP8,
  };
  const rabbet_group_t* group = compiler->group;
  for (size_t i = 0; i < group->output_count; ++i) {
    int32_t value = compiler->same_as[group->outputs[i]];
    RABBET_RETURN_IF_ERROR(pw_to_acc(compiler, value));
    RABBET_RETURN_IF_ERROR(
        pw_emit_memory(compiler, stores[group->values[group->outputs[i]].dtype],
                       compiler->program->input_count + (int)i));
  }
  return pw_emit_memory(compiler, RABBET_PW_END, 0);
}

static rabbet_status_t pw_emit_all(pw_compiler_t* compiler,
                                   const rabbet_pw_access_t* access) {
  const rabbet_group_t* group = compiler->group;
  pw_count_uses(compiler);
  RABBET_RETURN_IF_ERROR(pw_emit_inputs(compiler, access));
  // An output may overwrite an input. If that input is itself another output,
  // it must be read before: with several outputs, such inputs are copied to
  // slots.
  for (size_t i = 0; group->output_count > 1 && i < group->output_count; ++i) {
    int32_t value = compiler->same_as[group->outputs[i]];
    if (compiler->values[value].base == NOWHERE ||
        pw_is_slot(compiler, compiler->values[value].base)) {
      continue;
    }
    RABBET_RETURN_IF_ERROR(pw_to_acc(compiler, value));
    compiler->values[value].base = NOWHERE;
    RABBET_RETURN_IF_ERROR(pw_spill(compiler));
  }
  for (size_t i = 0; i < group->node_count; ++i) {
    pw_fused_t fused = {.op = RABBET_PW_OP_COUNT};
    if (i + 1 < group->node_count)
      fused = pw_fuse(compiler, &group->nodes[i], &group->nodes[i + 1]);
    if (fused.op != RABBET_PW_OP_COUNT) {
      RABBET_RETURN_IF_ERROR(pw_emit_fused(compiler, &fused));
      ++i;  // computed, too
    } else {
      RABBET_RETURN_IF_ERROR(pw_emit_node(compiler, &group->nodes[i]));
    }
  }
  return pw_emit_outputs(compiler);
}

rabbet_status_t rabbet_pw_compile(const rabbet_group_t* group,
                                  const rabbet_pw_access_t* access,
                                  rabbet_allocator_t allocator,
                                  rabbet_pw_program_t* out_program) {
  memset(out_program, 0, sizeof(*out_program));
  if (!rabbet_pw_lane(group, &out_program->lane)) {
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "pointwise: the group mixes types");
  }
  out_program->input_count = (int)group->input_count;
  out_program->output_count = (int)group->output_count;
  pw_compiler_t compiler = {.group = group,
                            .machine = rabbet_pw_machine(),
                            .allocator = allocator,
                            .program = out_program,
                            .acc = NOWHERE};
  rabbet_status_t status = rabbet_allocate(
      allocator, (group->value_count + 1) * sizeof(*compiler.values),
      (void**)&compiler.values);
  if (rabbet_is_ok(status)) {
    status =
        rabbet_allocate(allocator, (group->value_count + 1) * sizeof(int32_t),
                        (void**)&compiler.same_as);
  }
  if (rabbet_is_ok(status)) status = pw_emit_all(&compiler, access);
  rabbet_free(allocator, compiler.values);
  rabbet_free(allocator, compiler.same_as);
  rabbet_vec_free(allocator, &compiler.free_slots);
  if (!rabbet_is_ok(status)) {
    rabbet_vec_free(allocator, &compiler.insns);
    return status;
  }
  assert(compiler.insns.count > 0);
  out_program->insns = compiler.insns.data;
  out_program->insn_count = compiler.insns.count;
  return rabbet_ok();
}

void rabbet_pw_program_free(rabbet_allocator_t allocator,
                            rabbet_pw_program_t* program) {
  rabbet_free(allocator, program->insns);
  memset(program, 0, sizeof(*program));
}
