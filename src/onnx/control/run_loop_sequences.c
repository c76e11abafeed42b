// Sequences as states of a loop.
//
// A sequence that the body only adds to, as many tensors of one shape in each
// iteration, is an output of the loop that stacks them. Any other is carried as
// one tensor that grows; that it is one is known when the body was imported.
#include "onnx/control/run_loop.h"

#include "onnx/held.h"

// The tensor or list in the place of the state in the body.
rabbet_tensor_t* rabbet_onnx_state_binding(const rabbet_onnx_loop_work_t* work,
                                           rabbet_onnx_state_t* state) {
  rabbet_onnx_node_t* node = work->node;
  if (state->kind == RABBET_ONNX_STATE_TENSOR)
    return rabbet_onnx_loop_result(work, state->carried[0].layer);
  const rabbet_onnx_list_t* from = state->list;
  rabbet_onnx_list_t* list = rabbet_onnx_list_make(node, from->dtype, 0);
  if (!list) return NULL;
  if (state->kind == RABBET_ONNX_STATE_ADDED_TO)
    list->rest = &state->rest;
  else
    list->told = (rabbet_onnx_told_t){
        .tensor = rabbet_onnx_loop_result(work, state->carried[0].layer),
        .ends = state->count > 1
                    ? rabbet_onnx_loop_result(work, state->carried[1].layer)
                    : NULL,
        .axis = state->axis};
  return rabbet_onnx_list_handle(list);
}

// Whether an expression is of a tensor that the loop makes anew each time;
// known of those before it.
static bool expr_is_inside(const rabbet_onnx_loop_work_t* work,
                           rabbet_expr_t number) {
  const rabbet_expr_graph_t* graph = work->node->importer->network->graph;
  const rabbet_expr_node_t* expr = rabbet_expr_node(graph, number);
  if (expr->op == RABBET_EXPR_CONSTANT) return false;
  if (expr->op == RABBET_EXPR_SYMBOL)
    return rabbet_expr_symbol(graph, (size_t)expr->a)->tensor >=
           work->first_tensor;
  return work->inside.data[expr->a] || work->inside.data[expr->b];
}

// The same of an extent. Operands come before their users, which may share them
// so often that a walk from the extent down would not end.
static bool is_inside(rabbet_onnx_loop_work_t* work, rabbet_expr_t extent) {
  rabbet_onnx_importer_t* importer = work->node->importer;
  while (work->inside.count <= (size_t)extent && rabbet_onnx_ok(work->node)) {
    bool inside = expr_is_inside(work, (rabbet_expr_t)work->inside.count);
    rabbet_onnx_fail(work->node, RABBET_VEC_PUSH(importer->network->allocator,
                                                 &work->inside, inside));
  }
  return rabbet_onnx_ok(work->node) && work->inside.data[extent];
}

static bool has_one_shape(rabbet_onnx_loop_work_t* work,
                          const rabbet_tensor_t* x,
                          const rabbet_tensor_t* like) {
  bool same = x->shape.rank == like->shape.rank;
  for (int32_t i = 0; same && i < x->shape.rank; ++i)
    same = x->shape.d[i] == like->shape.d[i] && !is_inside(work, x->shape.d[i]);
  return same;
}

// Whether the body did nothing but add tensors of one shape.
bool rabbet_onnx_state_only_adds(rabbet_onnx_loop_work_t* work,
                                 const rabbet_onnx_state_t* state,
                                 const rabbet_onnx_list_t* next) {
  if (state->rest.is_read || next->rest != &state->rest || next->told.tensor)
    return false;
  for (size_t i = 0; i < next->count; ++i)
    if (!has_one_shape(work, next->items[i], next->items[0])) return false;
  return true;
}

// An extent of the sequence's tensors before the loop: a constant, or that of a
// tensor made before it (all that follow from those have been made). Fails for
// others.
static rabbet_onnx_index_t outer_extent(const rabbet_onnx_loop_work_t* work,
                                        rabbet_expr_t extent) {
  rabbet_onnx_node_t* node = work->node;
  const rabbet_network_t* network = node->importer->network;
  const rabbet_expr_node_t* expr = rabbet_expr_node(network->graph, extent);
  if (expr->op == RABBET_EXPR_CONSTANT) return rabbet_onnx_index(expr->value);
  for (int32_t t = 0; t < work->first_tensor; ++t) {
    rabbet_tensor_t* tensor = network->tensors.data[t];
    for (int32_t axis = 0; tensor && axis < tensor->shape.rank; ++axis)
      if (tensor->shape.d[axis] == extent)
        return rabbet_onnx_extent(node, tensor, axis);
  }
  RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                   "a sequence begins empty, and an extent of the tensors that "
                   "the loop inserts is computed in it");
  return rabbet_onnx_index(0);
}

// A tensor with no elements along `axis`, which is the sample's, or one in
// front of its axes.
static rabbet_tensor_t* nothing(const rabbet_onnx_loop_work_t* work,
                                rabbet_dtype_t dtype,
                                const rabbet_tensor_t* sample, int axis,
                                bool stacked) {
  rabbet_onnx_node_t* node = work->node;
  rabbet_onnx_index_t dims[RABBET_MAX_RANK];
  int rank = sample->shape.rank + stacked;
  if (rank > RABBET_MAX_RANK)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "the sequence's tensors have rank %d; a stack of them "
                     "would have more than %d axes",
                     sample->shape.rank, RABBET_MAX_RANK);
  for (int i = 0; i < rank && rabbet_onnx_ok(node); ++i)
    dims[i] = i == axis ? rabbet_onnx_index(0)
                        : outer_extent(work, sample->shape.d[i - stacked]);
  rabbet_tensor_t* number = rabbet_onnx_number(node, dtype, rank, 0);
  rabbet_tensor_t* none = rabbet_onnx_spread(node, number, dims, rank);
  rabbet_onnx_hold_like(node, none, sample);
  return none;
}

// The axis along which the sequence's tensors are joined: the first one whose
// extent the body makes, or of which they are not known to have one. -1: there
// is none, so that they can be stacked.
static int joining_axis(rabbet_onnx_loop_work_t* work, rabbet_tensor_t* sample,
                        rabbet_tensor_t* item) {
  for (int32_t i = 0; i < item->shape.rank; ++i)
    if (is_inside(work, item->shape.d[i])) return i;
  return rabbet_onnx_shapes_differ(work->node, sample, item);
}

static int joining_axis_of_all(rabbet_onnx_loop_work_t* work,
                               const rabbet_onnx_state_t* state,
                               const rabbet_onnx_list_t* next,
                               rabbet_tensor_t* sample) {
  int axis = joining_axis(work, sample, sample);
  const rabbet_onnx_inserted_t* last = state->rest.inserted;
  for (; last && axis < 0; last = last->before)
    axis = joining_axis(work, sample, last->item);
  for (size_t i = 0; i < state->list->count && axis < 0; ++i)
    axis = joining_axis(work, sample, state->list->items[i]);
  for (size_t i = 0; i < next->count && axis < 0; ++i)
    axis = joining_axis(work, sample, next->items[i]);
  return axis;
}

// From now on the state is carried.
void rabbet_onnx_state_carry(rabbet_onnx_loop_work_t* work,
                             rabbet_onnx_state_t* state,
                             const rabbet_onnx_list_t* next) {
  rabbet_onnx_node_t* node = work->node;
  const rabbet_onnx_list_t* list = state->list;
  rabbet_tensor_t* sample = state->rest.sample;
  if (!sample && list->count > 0) sample = list->items[0];
  if (!sample && next->count > 0) sample = next->items[0];
  rabbet_onnx_told_t like = list->told.ends ? list->told : next->told;
  int axis = sample && !like.ends
                 ? joining_axis_of_all(work, state, next, sample)
                 : -1;
  // Only whether there are ends is looked at.
  if (axis >= 0) like = (rabbet_onnx_told_t){.ends = sample, .axis = axis};
  // Of the rest, the loop around this one knows that it is read.
  if (list->rest) list->rest->is_read = true;
  if (next->rest) next->rest->is_read = true;
  if (list->rest && !list->rest->sample)
    list->rest->sample = state->rest.sample;
  bool is_empty = !list->told.tensor && list->count == 0;
  if (is_empty && !sample)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "a sequence begins empty, and the shape of its tensors is "
                     "not known from the body");
  if (!rabbet_onnx_ok(node)) return;
  rabbet_onnx_told_t told = {.axis = like.axis};
  if (is_empty) {
    told.tensor = nothing(work, list->dtype, sample, like.ends ? like.axis : 0,
                          !like.ends);
    if (like.ends)
      told.ends = rabbet_onnx_spread(
          node, rabbet_onnx_number(node, RABBET_DTYPE_INT64, 1, 0),
          (const rabbet_onnx_index_t[]){rabbet_onnx_index(0)}, 1);
  } else {
    told = rabbet_onnx_list_told(node, list, like);
  }
  state->kind = RABBET_ONNX_STATE_CARRIED;
  state->axis = told.axis;
  state->count = told.ends ? 2 : 1;
  state->carried[0] = (rabbet_onnx_carried_t){
      .initial = told.tensor, .varying = INT64_C(1) << told.axis};
  state->carried[1] =
      (rabbet_onnx_carried_t){.initial = told.ends, .varying = 1};
}

// The next values of a carried sequence.
void rabbet_onnx_state_follow(const rabbet_onnx_loop_work_t* work,
                              rabbet_onnx_state_t* state,
                              const rabbet_onnx_list_t* next) {
  const rabbet_onnx_told_t like = {.ends = state->carried[1].initial,
                                   .axis = state->axis};
  rabbet_onnx_told_t told = rabbet_onnx_list_told(work->node, next, like);
  if (next->rest) next->rest->is_read = true;
  if (rabbet_onnx_ok(work->node) &&
      (!told.ends != (state->count < 2) || told.axis != state->axis))
    RABBET_ONNX_FAIL(work->node, RABBET_STATUS_UNSUPPORTED,
                     "the sequence's tensors are of one shape before the loop, "
                     "and of several in it, or differ along another axis");
  state->carried[0].next = told.tensor;
  state->carried[1].next = told.ends;
}
