// Constant folding, by the catalogue's own kernels.

#include <assert.h>
#include <string.h>

#include "base/math.h"
#include "builder/ir/passes.h"
#include "core/view.h"
#include "ops/cost.h"
#include "ops/enums.h"
#include "ops/evaluate.h"
#include "ops/rules.h"

// A result may have this many bytes, or twice those of its operands. Products,
// gathers and sums may have more, as of tables of positions that a network
// computes, or that are looked up, and masks: computing them in each run costs
// more than reading them.
#define FOLD_SMALL ((size_t)1 << 20)
#define FOLD_TABLE ((size_t)16 << 20)
// All results together may have FOLD_GROWTH bytes and FOLD_GROWTH_OF_OWN times
// those of the network's own constants. Without a limit, a small file could ask
// for constants that double repeatedly.
#define FOLD_GROWTH ((size_t)256 << 20)
#define FOLD_GROWTH_OF_OWN 2
// Most steps (ops/cost.h) for one result, and for all results, which may take
// FOLD_STEPS_OF_OWN more for each byte of the network's own constants. More
// work is left to the device's kernels, which are much faster than the
// reference kernels.
#define FOLD_STEPS ((double)(1 << 30))
#define FOLD_STEPS_OF_ALL (4 * FOLD_STEPS)
#define FOLD_STEPS_OF_OWN 64
// Results from this size on are freed when their last reader is gone.
#define FOLD_BLOCK ((size_t)4 << 10)

// Sets the limits, from the network's own constants before folding.
static rabbet_status_t fold_begin(rabbet_build_t* build) {
  rabbet_fold_t* fold = &build->fold;
  size_t own = 0;
  fold->first_block = fold->blocks.count;
  if (fold->growth_limit > 0) return rabbet_ok();
  for (size_t i = 0; i < build->ir.values.count; ++i) {
    const rabbet_ir_value_t* value = build->ir.values.data[i];
    rabbet_dims_t dims = rabbet_ir_dims(&build->ir, value);
    size_t bytes = 0;
    if (!value->constant) continue;
    RABBET_RETURN_IF_ERROR(
        rabbet_tensor_bytes(value->dtype, RABBET_FORMAT_LINEAR, &dims, &bytes));
    if (!rabbet_checked_add(own, bytes, &own)) own = SIZE_MAX / 8;
  }
  if (own > SIZE_MAX / 8) own = SIZE_MAX / 8;
  fold->growth_limit = FOLD_GROWTH + FOLD_GROWTH_OF_OWN * own;
  fold->steps_limit = FOLD_STEPS_OF_ALL + FOLD_STEPS_OF_OWN * (double)own;
  return rabbet_ok();
}

// Bytes that are left under the limit. Dequantized weights count, but are
// computed even above it.
static size_t fold_room(const rabbet_build_t* build) {
  const rabbet_fold_t* fold = &build->fold;
  return fold->growth < fold->growth_limit ? fold->growth_limit - fold->growth
                                           : 0;
}

// Tables of positions, and sums of such and of masks.
static bool fold_is_table(const rabbet_ir_t* ir, const rabbet_ir_node_t* node) {
  return rabbet_op_is(node->op, RABBET_OP_MATRIX_MULTIPLY) ||
         rabbet_op_is(node->op, RABBET_OP_GATHER) ||
         (rabbet_op_is(node->op, RABBET_OP_ELEMENTWISE) &&
          rabbet_ir_int(node, "op") == RABBET_ELEMENTWISE_SUM &&
          rabbet_dtype_is_float(rabbet_ir_output(ir, node, 0)->dtype));
}

static bool fold_may_grow(const rabbet_build_t* build,
                          const rabbet_ir_node_t* node, size_t bytes_in,
                          size_t bytes_out) {
  size_t small = fold_is_table(&build->ir, node) ? FOLD_TABLE : FOLD_SMALL;
  if (bytes_out > small && bytes_out / 2 > bytes_in) return false;
  return bytes_out <= fold_room(build);
}

static bool fold_is_quick(rabbet_build_t* build, const rabbet_op_eval_t* eval) {
  rabbet_fold_t* fold = &build->fold;
  double steps = rabbet_op_steps(eval);
  // Operators that visit their elements once are as quick as reading them.
  if (steps > FOLD_STEPS && rabbet_op_is_slow(eval->op)) return false;
  if (steps > fold->steps_limit - fold->steps) return false;
  fold->steps += steps;
  return true;
}

// Memory for a result; `out_block` is its number from 1, 0: the arena has it.
static rabbet_status_t fold_allocate(rabbet_build_t* build, size_t bytes,
                                     void** out_data, int32_t* out_block) {
  rabbet_fold_t* fold = &build->fold;
  *out_block = 0;
  fold->growth += bytes;
  if (bytes < FOLD_BLOCK || fold->blocks.count >= INT32_MAX)
    return rabbet_arena_allocate(&build->arena, bytes + 1, out_data);
  rabbet_fold_block_t block = {.bytes = bytes};
  RABBET_RETURN_IF_ERROR(rabbet_allocate_aligned(
      build->allocator, bytes, RABBET_FOLD_ALIGNMENT, &block.data));
  rabbet_status_t status =
      RABBET_VEC_PUSH(build->allocator, &fold->blocks, block);
  if (!rabbet_is_ok(status)) {
    rabbet_free_aligned(build->allocator, block.data, RABBET_FOLD_ALIGNMENT);
    return status;
  }
  *out_data = block.data;
  *out_block = (int32_t)fold->blocks.count;
  return rabbet_ok();
}

// After the node is dead: frees inputs that only it read and that this pass
// made. Other values may point to results of earlier passes.
static void fold_release_inputs(rabbet_build_t* build,
                                const rabbet_ir_node_t* node) {
  rabbet_fold_t* fold = &build->fold;
  for (size_t i = 0; i < node->input_count; ++i) {
    rabbet_ir_value_t* value = rabbet_ir_input(&build->ir, node, i);
    if (!value || value->uses > 0 || value->output >= 0 ||
        value->is_read_by_host || value->producer ||
        (size_t)value->fold_block <= fold->first_block)
      continue;
    assert((size_t)value->fold_block <= fold->blocks.count);
    rabbet_fold_block_t* block = &fold->blocks.data[value->fold_block - 1];
    assert(block->data == value->constant && fold->growth >= block->bytes);
    rabbet_free_aligned(build->allocator, block->data, RABBET_FOLD_ALIGNMENT);
    fold->growth -= block->bytes;
    *block = (rabbet_fold_block_t){0};
    value->constant = NULL;
    value->fold_block = 0;
  }
}

void rabbet_fold_deinitialize(rabbet_build_t* build) {
  for (size_t i = 0; i < build->fold.blocks.count; ++i)
    rabbet_free_aligned(build->allocator, build->fold.blocks.data[i].data,
                        RABBET_FOLD_ALIGNMENT);
  rabbet_vec_free(build->allocator, &build->fold.blocks);
}

static bool fold_is_constant(const rabbet_ir_t* ir,
                             const rabbet_ir_node_t* node) {
  if (node->plugin || !node->op->reference ||
      (node->op->flags & RABBET_OP_NO_FOLD) != 0 ||
      rabbet_ir_has_wishes(ir, node))
    return false;
  for (size_t i = 0; i < node->input_count; ++i) {
    const rabbet_ir_value_t* input = rabbet_ir_input(ir, node, i);
    if (input && !input->constant) return false;
  }
  return true;
}

static rabbet_status_t fold_view(const rabbet_ir_t* ir,
                                 const rabbet_ir_value_t* value,
                                 rabbet_view_t* out_view, size_t* bytes) {
  *out_view = (rabbet_view_t){.dtype = RABBET_DTYPE_NONE};
  if (!value) return rabbet_ok();
  assert(value->shape.rank >= 0);
  size_t size = 0;
  *out_view = (rabbet_view_t){.data = (void*)value->constant,
                              .dtype = value->dtype,
                              .format = RABBET_FORMAT_LINEAR,
                              .dims = rabbet_ir_dims(ir, value)};
  RABBET_RETURN_IF_ERROR(rabbet_tensor_bytes(value->dtype, RABBET_FORMAT_LINEAR,
                                             &out_view->dims, &size));
  *bytes += size;
  return rabbet_ok();
}

static bool fold_shapes_known(const rabbet_ir_t* ir,
                              const rabbet_ir_node_t* node) {
  for (size_t i = 0; i < node->output_count; ++i) {
    rabbet_dims_t dims = rabbet_ir_dims(ir, rabbet_ir_output(ir, node, i));
    for (int32_t k = 0; k < dims.rank; ++k)
      if (dims.d[k] < 0) return false;
  }
  return true;
}

static rabbet_status_t fold_evaluate(rabbet_build_t* build,
                                     rabbet_ir_node_t* node,
                                     rabbet_op_eval_t* eval,
                                     rabbet_view_t* outputs, bool keep) {
  rabbet_ir_t* ir = &build->ir;
  assert(!node->dead && node->op->reference);
  for (size_t i = 0; i < node->output_count; ++i) {
    size_t bytes = 0;
    rabbet_ir_value_t* value = rabbet_ir_output(ir, node, i);
    RABBET_RETURN_IF_ERROR(rabbet_tensor_bytes(
        outputs[i].dtype, RABBET_FORMAT_LINEAR, &outputs[i].dims, &bytes));
    RABBET_RETURN_IF_ERROR(
        fold_allocate(build, bytes, &outputs[i].data, &value->fold_block));
  }
  RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(node->op->reference(eval),
                                         "evaluating layer '%s'", node->name));
  if (!keep) rabbet_ir_kill(ir, node);
  for (size_t i = 0; i < node->output_count; ++i) {
    rabbet_ir_value_t* value = rabbet_ir_output(ir, node, i);
    value->constant = outputs[i].data;
    value->values = NULL;
    value->value_count = 0;
  }
  if (!keep) fold_release_inputs(build, node);
  return rabbet_ok();
}

// `keep`: the node stays, for kernels that fuse it.
static rabbet_status_t fold_node(rabbet_build_t* build, rabbet_ir_node_t* node,
                                 bool keep) {
  rabbet_ir_t* ir = &build->ir;
  rabbet_view_t *inputs = NULL, *outputs = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &build->arena, node->input_count, sizeof(*inputs), (void**)&inputs));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &build->arena, node->output_count, sizeof(*outputs), (void**)&outputs));
  size_t bytes_in = 0, bytes_out = 0;
  for (size_t i = 0; i < node->input_count; ++i)
    RABBET_RETURN_IF_ERROR(
        fold_view(ir, rabbet_ir_input(ir, node, i), &inputs[i], &bytes_in));
  for (size_t i = 0; i < node->output_count; ++i)
    RABBET_RETURN_IF_ERROR(
        fold_view(ir, rabbet_ir_output(ir, node, i), &outputs[i], &bytes_out));
  rabbet_op_eval_t eval = {.op = node->op,
                           .allocator = build->allocator,
                           .attrs = node->attrs,
                           .attr_count = node->op->attr_count,
                           .inputs = inputs,
                           .input_count = node->input_count,
                           .outputs = outputs,
                           .output_count = node->output_count};
  // Weights in 8 bits represent the same numbers as those in 32 bits.
  if ((!rabbet_op_is(node->op, RABBET_OP_DEQUANTIZE) &&
       !fold_may_grow(build, node, bytes_in, bytes_out)) ||
      !fold_is_quick(build, &eval))
    return rabbet_ok();
  return fold_evaluate(build, node, &eval, outputs, keep);
}

// Folds an operator with data-dependent output sizes (NonZero, NMS): its size
// outputs become constants together with its data outputs.
static rabbet_status_t fold_keep(rabbet_build_t* build,
                                 rabbet_ir_value_t* value,
                                 const rabbet_view_t* output) {
  size_t bytes = 0;
  void* data = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_tensor_bytes(
      output->dtype, RABBET_FORMAT_LINEAR, &output->dims, &bytes));
  RABBET_RETURN_IF_ERROR(
      fold_allocate(build, bytes, &data, &value->fold_block));
  memcpy(data, output->data, bytes);
  value->constant = data;
  value->values = NULL;
  value->value_count = 0;
  return rabbet_ok();
}

static rabbet_status_t fold_sized(rabbet_build_t* build,
                                  rabbet_ir_node_t* node) {
  rabbet_ir_t* ir = &build->ir;
  rabbet_view_t *inputs = NULL, *outputs = NULL;
  size_t bytes_in = 0, bytes_out = 0;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &build->arena, node->input_count, sizeof(*inputs), (void**)&inputs));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &build->arena, node->output_count, sizeof(*outputs), (void**)&outputs));
  for (size_t i = 0; i < node->input_count; ++i)
    RABBET_RETURN_IF_ERROR(
        fold_view(ir, rabbet_ir_input(ir, node, i), &inputs[i], &bytes_in));
  const rabbet_op_eval_t eval = {.op = node->op,
                                 .attrs = node->attrs,
                                 .attr_count = node->op->attr_count,
                                 .inputs = inputs,
                                 .input_count = node->input_count};
  if (!fold_is_quick(build, &eval)) return rabbet_ok();
  size_t most = fold_room(build);
  bool too_large = false;
  rabbet_status_t status = rabbet_op_evaluate_small(
      node->op->name, node->attrs, node->op->attr_count, inputs,
      node->input_count, most, build->allocator, outputs, &too_large);
  if (too_large) {
    rabbet_status_ignore(status);
    return rabbet_ok();
  }
  RABBET_RETURN_IF_ERROR(
      RABBET_ANNOTATE(status, "evaluating layer '%s'", node->name));
  for (size_t i = 0; i < node->output_count && rabbet_is_ok(status); ++i) {
    size_t bytes = 0;
    status = rabbet_tensor_bytes(outputs[i].dtype, RABBET_FORMAT_LINEAR,
                                 &outputs[i].dims, &bytes);
    bytes_out += bytes;
  }
  bool keep = fold_may_grow(build, node, bytes_in, bytes_out);
  for (size_t i = 0; i < node->output_count; ++i) {
    if (keep && rabbet_is_ok(status))
      status = fold_keep(build, rabbet_ir_output(ir, node, i), &outputs[i]);
    rabbet_free_aligned(build->allocator, outputs[i].data, 64);
  }
  if (keep && rabbet_is_ok(status)) rabbet_ir_kill(ir, node);
  return status;
}

// ---- Symbols with known values ---------------------------------------------

static rabbet_status_t fold_symbol(void* context, rabbet_expr_graph_t* target,
                                   const rabbet_symbol_t* symbol,
                                   rabbet_expr_t* out_expr) {
  const rabbet_ir_t* ir = context;
  const rabbet_ir_value_t* value = rabbet_ir_value(ir, symbol->tensor);
  if (symbol->kind != RABBET_SYMBOL_VALUE || !value->constant)
    return rabbet_expr_of_symbol(target, symbol, out_expr);
  assert(symbol->index >= 0);
  return rabbet_expr_constant(
      target, rabbet_load_int64(value->dtype, value->constant, symbol->index),
      out_expr);
}

static bool fold_has_known_symbol(const rabbet_ir_t* ir) {
  for (size_t i = 0; i < rabbet_expr_symbol_count(ir->graph); ++i) {
    const rabbet_symbol_t* symbol = rabbet_expr_symbol(ir->graph, i);
    if (symbol->kind == RABBET_SYMBOL_VALUE &&
        rabbet_ir_value(ir, symbol->tensor)->constant)
      return true;
  }
  return false;
}

static rabbet_status_t fold_renumber(rabbet_build_t* build,
                                     const rabbet_expr_t* map) {
  rabbet_ir_t* ir = &build->ir;
  for (size_t i = 0; i < ir->values.count; ++i) {
    rabbet_ir_value_t* value = ir->values.data[i];
    if (value->constant) value->is_read_by_host = false;
    for (int32_t k = 0; k < value->shape.rank; ++k)
      value->shape.d[k] = map[value->shape.d[k]];
    if (!value->values) continue;
    rabbet_expr_t* values = NULL;
    RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
        &build->arena, value->value_count, sizeof(*values), (void**)&values));
    for (size_t k = 0; k < value->value_count; ++k)
      values[k] = map[value->values[k]];
    value->values = values;
  }
  return rabbet_ok();
}

static rabbet_status_t fold_substitute(rabbet_build_t* build) {
  rabbet_ir_t* ir = &build->ir;
  if (!fold_has_known_symbol(ir)) return rabbet_ok();
  rabbet_expr_graph_t* graph = NULL;
  rabbet_expr_t* map = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &build->arena, rabbet_expr_node_count(ir->graph), sizeof(*map),
      (void**)&map));
  RABBET_RETURN_IF_ERROR(rabbet_expr_graph_create(build->allocator, &graph));
  rabbet_status_t status =
      rabbet_ir_copy_exprs(ir->graph, NULL, fold_symbol, ir, graph, map);
  if (rabbet_is_ok(status)) status = fold_renumber(build, map);
  if (!rabbet_is_ok(status)) {
    rabbet_expr_graph_destroy(graph);
    return status;
  }
  rabbet_expr_graph_destroy(ir->graph);
  ir->graph = graph;
  return rabbet_ok();
}

rabbet_status_t rabbet_pass_fold(rabbet_build_t* build) {
  rabbet_ir_t* ir = &build->ir;
  RABBET_RETURN_IF_ERROR(fold_begin(build));
  for (size_t i = 0; i < ir->nodes.count; ++i) {
    rabbet_ir_node_t* node = ir->nodes.data[i];
    if (fold_is_constant(ir, node) && rabbet_op_makes_sizes(node->op))
      RABBET_RETURN_IF_ERROR(fold_sized(build, node));
    else if (fold_is_constant(ir, node) && fold_shapes_known(ir, node) &&
             !rabbet_ir_is_factor(ir, node) && !rabbet_ir_is_packed(ir, node))
      RABBET_RETURN_IF_ERROR(fold_node(build, node, false));
  }
  RABBET_RETURN_IF_ERROR(fold_substitute(build));
  return rabbet_ir_sweep(ir);
}

// Whether only a product reads the node, as its second factor: kernels fuse it
// with the product.
static bool fold_is_taken(const rabbet_ir_t* ir, const rabbet_ir_node_t* node) {
  const rabbet_ir_value_t* value = rabbet_ir_output(ir, node, 0);
  if (value->uses != 1 || value->output >= 0) return false;
  for (size_t i = (size_t)node->index + 1; i < ir->nodes.count; ++i) {
    const rabbet_ir_node_t* reader = ir->nodes.data[i];
    if (rabbet_ir_is_quantized(ir, reader) &&
        reader->inputs[1] == node->outputs[0])
      return true;
  }
  return false;
}

// Whether a product reads the node with its weights as they are.
static bool fold_is_packed(const rabbet_ir_t* ir,
                           const rabbet_ir_node_t* node) {
  const rabbet_ir_value_t* value = rabbet_ir_output(ir, node, 0);
  if (value->uses != 1 || value->output >= 0) return false;
  for (size_t i = (size_t)node->index + 1; i < ir->nodes.count; ++i)
    if (rabbet_ir_packed_factor(ir, ir->nodes.data[i]) == node) return true;
  return false;
}

static bool fold_reads_refittable(const rabbet_ir_t* ir,
                                  const rabbet_ir_node_t* node) {
  for (size_t i = 0; i < node->input_count; ++i) {
    const rabbet_ir_value_t* input = rabbet_ir_input(ir, node, i);
    if (input && input->is_refittable) return true;
  }
  return false;
}

rabbet_status_t rabbet_fold_factors(rabbet_build_t* build) {
  rabbet_ir_t* ir = &build->ir;
  RABBET_RETURN_IF_ERROR(fold_begin(build));
  for (size_t i = 0; i < ir->nodes.count; ++i) {
    rabbet_ir_node_t* node = ir->nodes.data[i];
    // An optional node's output already has its constant.
    if (node->is_optional || fold_reads_refittable(ir, node)) continue;
    if (fold_is_constant(ir, node) && fold_is_packed(ir, node))
      rabbet_ir_output(ir, node, 0)->is_deferred = true;
    else if (rabbet_op_is(node->op, RABBET_OP_DEQUANTIZE) &&
             fold_is_constant(ir, node) && fold_shapes_known(ir, node))
      RABBET_RETURN_IF_ERROR(fold_node(build, node, fold_is_taken(ir, node)));
    else if (fold_is_constant(ir, node) && fold_shapes_known(ir, node))
      RABBET_RETURN_IF_ERROR(fold_node(build, node, false));
  }
  return rabbet_ir_sweep(ir);
}

// ---- Deferred constants -----------------------------------------------------

rabbet_status_t rabbet_fold_reserve(rabbet_build_t* build,
                                    rabbet_ir_value_t* value) {
  assert(value->is_deferred && value->producer);
  if (value->constant) return rabbet_ok();
  rabbet_dims_t dims = rabbet_ir_dims(&build->ir, value);
  size_t bytes = 0;
  void* data = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_tensor_bytes(value->dtype, RABBET_FORMAT_LINEAR, &dims, &bytes));
  RABBET_RETURN_IF_ERROR(
      fold_allocate(build, bytes, &data, &value->fold_block));
  value->constant = data;
  return rabbet_ok();
}

rabbet_status_t rabbet_fold_deferred(rabbet_build_t* build,
                                     rabbet_ir_value_t* value) {
  rabbet_ir_t* ir = &build->ir;
  const rabbet_ir_node_t* node = value->producer;
  rabbet_view_t *inputs = NULL, output;
  size_t bytes = 0;
  if (!value->is_deferred) return rabbet_ok();
  assert(node && node->output_count == 1);
  RABBET_RETURN_IF_ERROR(rabbet_fold_reserve(build, value));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &build->arena, node->input_count, sizeof(*inputs), (void**)&inputs));
  for (size_t i = 0; i < node->input_count; ++i)
    RABBET_RETURN_IF_ERROR(
        fold_view(ir, rabbet_ir_input(ir, node, i), &inputs[i], &bytes));
  RABBET_RETURN_IF_ERROR(fold_view(ir, value, &output, &bytes));
  const rabbet_op_eval_t eval = {.op = node->op,
                                 .allocator = build->allocator,
                                 .attrs = node->attrs,
                                 .attr_count = node->op->attr_count,
                                 .inputs = inputs,
                                 .input_count = node->input_count,
                                 .outputs = &output,
                                 .output_count = 1};
  RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(node->op->reference(&eval),
                                         "evaluating layer '%s'", node->name));
  value->is_deferred = false;
  return rabbet_ok();
}
