#include "ops/evaluate.h"

#include <assert.h>
#include <string.h>

#include "base/suggest.h"
#include "core/view.h"

#define RABBET_EVALUATE_ALIGNMENT 64

typedef struct evaluate_t {
  rabbet_allocator_t allocator;
  rabbet_arena_t arena;
  rabbet_expr_graph_t* graph;
  rabbet_op_infer_t infer;
  size_t max_bytes;  // of an output
  bool too_large;    // one has more
} evaluate_t;

static const char* evaluate_name(const void* list, size_t index) {
  (void)list;
  return rabbet_op_get((rabbet_op_id_t)index)->name;
}

static rabbet_status_t evaluate_find(const char* name,
                                     const rabbet_op_t** out_op) {
  *out_op = rabbet_op_find(name);
  if (*out_op && (*out_op)->reference) return rabbet_ok();
  char text[128];
  return RABBET_STATUS(
      RABBET_STATUS_NOT_FOUND,
      "there is no operator '%s' with a reference kernel%s", name,
      rabbet_suggest_print(name, evaluate_name, NULL, RABBET_OP_COUNT, text,
                           sizeof text));
}

static rabbet_status_t evaluate_infer(evaluate_t* e, const rabbet_attr_t* attrs,
                                      size_t attr_count,
                                      const rabbet_view_t* inputs) {
  const rabbet_op_t* op = e->infer.op;
  rabbet_attr_t* complete = NULL;
  rabbet_op_value_t *in = NULL, *out = NULL;
  int32_t* numbers = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &e->arena, op->output_count, sizeof(*numbers), (void**)&numbers));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &e->arena, op->attr_count, sizeof(*complete), (void**)&complete));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &e->arena, e->infer.input_count, sizeof(*in), (void**)&in));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &e->arena, op->output_count, sizeof(*out), (void**)&out));
  RABBET_RETURN_IF_ERROR(
      rabbet_op_complete_attrs(op, attrs, attr_count, &e->arena, complete));
  for (size_t i = 0; i < e->infer.input_count; ++i) {
    in[i].present = inputs[i].dtype != RABBET_DTYPE_NONE;
    if (!in[i].present) continue;
    in[i].dtype = inputs[i].dtype;
    in[i].constant = inputs[i].data;
    RABBET_RETURN_IF_ERROR(
        rabbet_shape_from_dims(e->graph, &inputs[i].dims, &in[i].shape));
  }
  for (size_t i = 0; i < op->output_count; ++i) {
    out[i].dtype = RABBET_DTYPE_NONE;
    numbers[i] = (int32_t)i;
  }
  e->infer.attrs = complete;
  e->infer.attr_count = op->attr_count;
  e->infer.inputs = in;
  e->infer.outputs = out;
  e->infer.output_count = op->output_count;
  e->infer.output_tensors = numbers;
  return rabbet_op_infer(&e->infer);
}

static rabbet_status_t evaluate_room(evaluate_t* e, rabbet_view_t* output) {
  size_t size = 0;
  assert(!output->data);
  RABBET_RETURN_IF_ERROR(
      rabbet_tensor_bytes(output->dtype, output->format, &output->dims, &size));
  e->too_large = size > e->max_bytes;
  if (e->too_large)
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                         "the result has %zu bytes; the limit is %zu", size,
                         e->max_bytes);
  return rabbet_allocate_aligned(e->allocator, size > 0 ? size : 1,
                                 RABBET_EVALUATE_ALIGNMENT, &output->data);
}

static bool evaluate_is_size(const evaluate_t* e, size_t output) {
  return e->infer.op->outputs[output].flags & RABBET_OPERAND_SIZE;
}

static void evaluate_views(const evaluate_t* e, rabbet_view_t* outputs) {
  for (size_t i = 0; i < e->infer.output_count; ++i) {
    outputs[i].dtype = e->infer.outputs[i].dtype;
    outputs[i].format = RABBET_FORMAT_LINEAR;
    outputs[i].dims = rabbet_shape_dims(e->graph, &e->infer.outputs[i].shape);
  }
}

static rabbet_status_t evaluate_run(const evaluate_t* e,
                                    const rabbet_view_t* inputs,
                                    const rabbet_view_t* outputs) {
  const rabbet_op_eval_t eval = {
      .op = e->infer.op,
      .allocator = e->allocator,
      .attrs = e->infer.attrs,
      .attr_count = e->infer.attr_count,
      .inputs = inputs,
      .input_count = e->infer.input_count,
      .outputs = outputs,
      .output_count = e->infer.output_count,
  };
  return e->infer.op->reference(&eval);
}

// ---- Data-dependent sizes --------------------------------------------------

// Computes the dims from the size outputs.
static rabbet_status_t evaluate_dims(evaluate_t* e, rabbet_view_t* outputs) {
  size_t symbols = rabbet_expr_symbol_count(e->graph);
  int64_t *sizes = NULL, *values = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &e->arena, symbols, sizeof(*sizes), (void**)&sizes));
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate_array(&e->arena, rabbet_expr_node_count(e->graph),
                                  sizeof(*values), (void**)&values));
  for (size_t i = 0; i < symbols; ++i) {
    int32_t output = rabbet_expr_symbol(e->graph, i)->tensor;
    assert(output >= 0 && (size_t)output < e->infer.output_count);
    assert(evaluate_is_size(e, (size_t)output) && outputs[output].data);
    const rabbet_view_t* size = &outputs[output];
    sizes[i] = rabbet_load_int64(size->dtype, size->data, 0);
  }
  RABBET_RETURN_IF_ERROR(rabbet_expr_evaluate(e->graph, sizes, values, NULL));
  for (size_t i = 0; i < e->infer.output_count; ++i) {
    for (int32_t k = 0; k < outputs[i].dims.rank; ++k)
      outputs[i].dims.d[k] = values[e->infer.outputs[i].shape.d[k]];
  }
  return rabbet_ok();
}

// Computes the size outputs first, so that outputs are allocated with their
// final sizes.
static rabbet_status_t evaluate_sizes(evaluate_t* e,
                                      const rabbet_view_t* inputs,
                                      rabbet_view_t* outputs) {
  for (size_t i = 0; i < e->infer.output_count; ++i) {
    if (evaluate_is_size(e, i))
      RABBET_RETURN_IF_ERROR(evaluate_room(e, &outputs[i]));
  }
  RABBET_RETURN_IF_ERROR(evaluate_run(e, inputs, outputs));
  return evaluate_dims(e, outputs);
}

static rabbet_status_t evaluate_all(evaluate_t* e, const rabbet_view_t* inputs,
                                    rabbet_view_t* outputs) {
  evaluate_views(e, outputs);
  if (rabbet_op_makes_sizes(e->infer.op))
    RABBET_RETURN_IF_ERROR(evaluate_sizes(e, inputs, outputs));
  for (size_t i = 0; i < e->infer.output_count; ++i) {
    if (!outputs[i].data) RABBET_RETURN_IF_ERROR(evaluate_room(e, &outputs[i]));
  }
  return evaluate_run(e, inputs, outputs);
}

rabbet_status_t rabbet_op_evaluate_small(
    const char* op_name, const rabbet_attr_t* attrs, size_t attr_count,
    const rabbet_view_t* inputs, size_t input_count, size_t max_bytes,
    rabbet_allocator_t allocator, rabbet_view_t* outputs, bool* out_too_large) {
  const rabbet_op_t* op = NULL;
  if (out_too_large) *out_too_large = false;
  RABBET_RETURN_IF_ERROR(evaluate_find(op_name, &op));
  memset(outputs, 0, op->output_count * sizeof(*outputs));
  evaluate_t e = {.allocator = allocator, .max_bytes = max_bytes};
  rabbet_arena_initialize(allocator, &e.arena);
  rabbet_status_t status = rabbet_expr_graph_create(allocator, &e.graph);
  if (rabbet_is_ok(status)) {
    e.infer = (rabbet_op_infer_t){.op = op,
                                  .graph = e.graph,
                                  .arena = &e.arena,
                                  .input_count = input_count,
                                  .strongly_typed = true};
    status = evaluate_infer(&e, attrs, attr_count, inputs);
  }
  if (rabbet_is_ok(status)) status = evaluate_all(&e, inputs, outputs);
  for (size_t i = 0; !rabbet_is_ok(status) && i < op->output_count; ++i) {
    rabbet_free_aligned(allocator, outputs[i].data, RABBET_EVALUATE_ALIGNMENT);
    outputs[i].data = NULL;
  }
  if (out_too_large) *out_too_large = e.too_large;
  rabbet_expr_graph_destroy(e.graph);
  rabbet_arena_deinitialize(&e.arena);
  return RABBET_ANNOTATE(status, "operator '%s'", op->name);
}

rabbet_status_t rabbet_op_evaluate(
    const char* op_name, const rabbet_attr_t* attrs, size_t attr_count,
    const rabbet_view_t* inputs, size_t input_count,
    rabbet_allocator_t allocator, rabbet_view_t* outputs) {
  return rabbet_op_evaluate_small(op_name, attrs, attr_count, inputs,
                                  input_count, SIZE_MAX, allocator, outputs,
                                  NULL);
}
