// Loop and Scan. Those with few iterations, whose number is known at import,
// are written out: the body's nodes once for each iteration. Others become
// loops of the network (run_loop.c). Loop-carried values may change their
// shape.
#include <assert.h>

#include "core/view.h"
#include "onnx/control/loop.h"
#include "onnx/held.h"

static const char* onnx_value_name(const Onnx__ValueInfoProto* value) {
  return value->name ? value->name : "";
}

// ---- Beginning and end -----------------------------------------------------

static rabbet_status_t onnx_loop_check(const onnx_loop_t* loop,
                                       size_t input_count) {
  const rabbet_onnx_node_t* node = loop->node;
  size_t states = loop->first_output + loop->state_count;
  if (!loop->body || node->scope->depth + 2 >= RABBET_ONNX_MAX_SCOPES) {
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "the body is missing, or nested over %d deep",
                         RABBET_ONNX_MAX_SCOPES / 2);
  }
  if (loop->body->n_input != input_count) {
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "the body has %zu inputs; for those of the node it "
                         "must have %zu",
                         loop->body->n_input, input_count);
  }
  if (loop->body->n_output < states ||
      loop->body->n_output - loop->first_output < node->output_count) {
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "the body has %zu outputs; for %zu states and the %zu "
                         "outputs of the node these are too few",
                         loop->body->n_output, loop->state_count,
                         node->output_count);
  }
  return rabbet_ok();
}

static rabbet_status_t onnx_loop_allocate(onnx_loop_t* loop) {
  rabbet_arena_t* arena = &loop->node->importer->arena;
  // onnx_loop_check() was OK.
  assert(loop->first_input + loop->state_count <= loop->body->n_input);
  assert(loop->first_output + loop->state_count <= loop->body->n_output);
  loop->stack_count =
      loop->body->n_output - loop->first_output - loop->state_count;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(arena, loop->body->n_input,
                                                     sizeof(*loop->inputs),
                                                     (void**)&loop->inputs));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, loop->body->n_output, sizeof(*loop->outputs),
      (void**)&loop->outputs));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, loop->stack_count, sizeof(*loop->stacks), (void**)&loop->stacks));
  RABBET_RETURN_IF_ERROR(rabbet_arena_printf(arena, &loop->shared.prefix, "%s/",
                                             loop->node->name));
  RABBET_RETURN_IF_ERROR(rabbet_onnx_scope_enter(&loop->shared, loop->body));
  // Nodes are imported in the scope of each iteration.
  loop->shared.nodes = NULL;
  loop->shared.node_count = 0;
  return rabbet_ok();
}

// `input_count` inputs of the body; the node's input `from` is the first state.
static void onnx_loop_begin(onnx_loop_t* loop, rabbet_onnx_node_t* node,
                            size_t input_count, size_t from) {
  loop->node = node;
  loop->body = rabbet_onnx_attr_graph(node, "body");
  rabbet_onnx_scope_initialize(node->importer, node->scope, &loop->shared);
  if (rabbet_onnx_ok(node)) {
    rabbet_onnx_fail(node, onnx_loop_check(loop, input_count));
  }
  if (rabbet_onnx_ok(node)) {
    rabbet_onnx_fail(node, onnx_loop_allocate(loop));
  }
  for (size_t i = 0; i < loop->state_count && rabbet_onnx_ok(node); ++i) {
    loop->inputs[loop->first_input + i] = rabbet_onnx_required(node, from + i);
  }
}

static void onnx_loop_end(onnx_loop_t* loop) {
  for (size_t i = 0; loop->stacks && i < loop->stack_count; ++i) {
    rabbet_vec_free(loop->node->importer->network->allocator, &loop->stacks[i]);
  }
  rabbet_onnx_scope_deinitialize(&loop->shared);
}

// ---- An iteration ----------------------------------------------------------

rabbet_status_t rabbet_onnx_loop_run(onnx_loop_t* loop,
                                     rabbet_onnx_scope_t* scope,
                                     const char* prefix) {
  const Onnx__GraphProto* body = loop->body;
  scope->prefix = prefix;
  scope->nodes = body->node;
  scope->node_count = body->n_node;
  for (size_t i = 0; i < body->n_input; ++i) {
    RABBET_RETURN_IF_ERROR(rabbet_onnx_scope_bind(
        scope, onnx_value_name(body->input[i]), loop->inputs[i]));
  }
  RABBET_RETURN_IF_ERROR(rabbet_onnx_import_nodes(scope));
  for (size_t i = 0; i < body->n_output; ++i) {
    RABBET_RETURN_IF_ERROR(rabbet_onnx_scope_lookup(
        scope, onnx_value_name(body->output[i]), &loop->outputs[i]));
  }
  return rabbet_ok();
}

static rabbet_status_t onnx_loop_collect(onnx_loop_t* loop) {
  for (size_t i = 0; i < loop->state_count; ++i) {
    loop->inputs[loop->first_input + i] = loop->outputs[loop->first_output + i];
  }
  for (size_t i = 0; i < loop->stack_count; ++i) {
    RABBET_RETURN_IF_ERROR(RABBET_VEC_PUSH(
        loop->node->importer->network->allocator, &loop->stacks[i],
        loop->outputs[loop->first_output + loop->state_count + i]));
  }
  return rabbet_ok();
}

static void onnx_loop_iterate(onnx_loop_t* loop) {
  rabbet_onnx_node_t* node = loop->node;
  if (!rabbet_onnx_ok(node)) return;
  // An iteration counts as one node at least, so that empty bodies are limited,
  // too.
  rabbet_onnx_fail(node, rabbet_onnx_spend(node->importer, 1));
  rabbet_onnx_fail(node, rabbet_onnx_spend_bytes(node->importer, 0));
  if (!rabbet_onnx_ok(node)) return;
  rabbet_onnx_scope_t scope;
  rabbet_onnx_scope_initialize(node->importer, &loop->shared, &scope);
  const char* prefix = NULL;
  rabbet_status_t status =
      rabbet_arena_printf(&node->importer->arena, &prefix, "%s[%lld]/",
                          node->name, (long long)loop->trips);
  if (rabbet_is_ok(status)) status = rabbet_onnx_loop_run(loop, &scope, prefix);
  if (rabbet_is_ok(status)) status = onnx_loop_collect(loop);
  rabbet_onnx_scope_deinitialize(&scope);
  rabbet_onnx_fail(
      node, RABBET_ANNOTATE(status, "iteration %lld", (long long)loop->trips));
  loop->trips++;
}

// ---- Results ---------------------------------------------------------------

// An empty output of a loop with 0 iterations, of the shape that the body
// declares. Extents that it does not fix are 0, as in loops of a run and in
// ONNX Runtime.
static rabbet_tensor_t* onnx_loop_nothing(onnx_loop_t* loop, size_t index,
                                          int64_t axis) {
  rabbet_onnx_node_t* node = loop->node;
  const Onnx__ValueInfoProto* info =
      loop->body->output[loop->first_output + loop->state_count + index];
  const Onnx__TypeProto* type = info->type;
  bool is_tensor =
      type && type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
  const Onnx__TensorShapeProto* shape =
      is_tensor ? type->tensor_type->shape : NULL;
  bool is_known = shape && shape->n_dim < RABBET_MAX_RANK;
  if (!is_known) {
    RABBET_ONNX_FAIL(
        node, RABBET_STATUS_UNSUPPORTED,
        "the loop has 0 iterations, and its body does not declare the rank of "
        "'%s', which the empty result needs",
        onnx_value_name(info));
  }
  rabbet_dims_t dims = {.rank = is_known ? (int32_t)shape->n_dim + 1 : 0};
  int at = rabbet_onnx_axis(node, axis, is_known ? dims.rank : 1);
  for (int i = 0, from = 0; i < dims.rank; ++i) {
    if (i == at) continue;
    const Onnx__TensorShapeProto__Dimension* dim = shape->dim[from++];
    bool is_fixed =
        dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
    dims.d[i] = is_fixed && dim->dim_value > 0 ? dim->dim_value : 0;
  }
  rabbet_dtype_t dtype = RABBET_DTYPE_NONE;
  bool narrowed = false;
  if (rabbet_onnx_ok(node)) {
    rabbet_onnx_fail(
        node, rabbet_onnx_node_dtype(node, type->tensor_type->elem_type, &dtype,
                                     &narrowed));
  }
  int64_t count = 0;
  void* room = rabbet_onnx_weights_room(node, dtype, &dims, &count);
  return room ? rabbet_onnx_weights(node, dtype, room, &dims) : NULL;
}

static rabbet_tensor_t* onnx_loop_stack(onnx_loop_t* loop, size_t index,
                                        int64_t axis, bool reverse) {
  rabbet_onnx_node_t* node = loop->node;
  assert(index < loop->stack_count);
  rabbet_onnx_tensors_t* values = &loop->stacks[index];
  if (values->count == 0) return onnx_loop_nothing(loop, index, axis);
  const rabbet_tensor_t* any = values->data[0];
  int rank = rabbet_onnx_rank(node, values->data[0]) + 1;
  int at = rabbet_onnx_axis(node, axis, rank);
  for (size_t i = 0; i < values->count; ++i) {
    values->data[i] =
        rabbet_onnx_unsqueeze(node, values->data[i], 1u << at, rank);
  }
  for (size_t i = 0; reverse && i < values->count / 2; ++i) {
    rabbet_tensor_t* first = values->data[i];
    values->data[i] = values->data[values->count - 1 - i];
    values->data[values->count - 1 - i] = first;
  }
  rabbet_tensor_t* stack =
      rabbet_onnx_concat(node, values->data, values->count, at);
  rabbet_onnx_hold_like(node, stack, any);
  return stack;
}

// `axes` and `reversals` of the stacks, one for each, or none.
static void onnx_loop_results(onnx_loop_t* loop, rabbet_onnx_ints_t axes,
                              rabbet_onnx_ints_t reversals) {
  rabbet_onnx_node_t* node = loop->node;
  for (size_t i = 0; i < node->output_count && rabbet_onnx_ok(node); ++i) {
    if (i < loop->state_count) {
      node->outputs[i] = loop->inputs[loop->first_input + i];
      continue;
    }
    if (!rabbet_onnx_wants(node, i)) continue;
    size_t stack = i - loop->state_count;
    int64_t axis = stack < axes.count ? axes.data[stack] : 0;
    bool reverse = stack < reversals.count && reversals.data[stack] != 0;
    node->outputs[i] = onnx_loop_stack(loop, stack, axis, reverse);
  }
}

// ---- Loop ------------------------------------------------------------------

// The number in a tensor, `fallback` without one; false if it is not known.
static bool onnx_loop_number(rabbet_onnx_node_t* node, rabbet_tensor_t* x,
                             int64_t fallback, int64_t* out_number) {
  *out_number = fallback;
  if (!rabbet_onnx_ok(node) || !x) return true;
  rabbet_onnx_ints_t known = rabbet_onnx_try_ints(node, x);
  bool is_known = known.present && known.count == 1;
  if (is_known) *out_number = known.data[0];
  return is_known;
}

// The iteration's number is a scalar, or one element where the body says so:
// exporters pass it on as the bounds of a Slice.
static int32_t onnx_loop_number_rank(const onnx_loop_t* loop) {
  const Onnx__TypeProto* type = loop->body->input[0]->type;
  bool is_tensor =
      type && type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
  const Onnx__TensorShapeProto* shape =
      is_tensor ? type->tensor_type->shape : NULL;
  return shape && shape->n_dim == 1 ? 1 : 0;
}

// Counts and conditions may have axes of one element.
static rabbet_tensor_t* onnx_loop_scalar(rabbet_onnx_node_t* node,
                                         rabbet_tensor_t* x) {
  int rank = x ? rabbet_onnx_rank(node, x) : 0;
  return rank > 0 ? rabbet_onnx_squeeze(node, x, (1u << rank) - 1) : x;
}

static void onnx_loop_in_run(onnx_loop_t* loop, int64_t most) {
  rabbet_onnx_node_t* node = loop->node;
  rabbet_tensor_t* count = rabbet_onnx_input(node, 0);
  rabbet_onnx_run_loop_t run = {.number_rank = onnx_loop_number_rank(loop)};
  // The states, which iterations that were written out have replaced.
  for (size_t i = 0; i < loop->state_count; ++i)
    loop->inputs[loop->first_input + i] = rabbet_onnx_required(node, 2 + i);
  run.condition = onnx_loop_scalar(node, rabbet_onnx_input(node, 1));
  if (most < INT64_MAX) run.count = onnx_loop_scalar(node, count);
  rabbet_onnx_run_loop(loop, &run);
}

// Writes iterations out while it is known that the loop goes on.
static bool onnx_loop_write_out(onnx_loop_t* loop, int64_t most) {
  rabbet_onnx_node_t* node = loop->node;
  rabbet_tensor_t* condition = rabbet_onnx_input(node, 1);
  if (!condition) {
    condition = rabbet_onnx_number(node, RABBET_DTYPE_BOOL, 0, 1);
  }
  while (rabbet_onnx_ok(node) && loop->trips < most) {
    int64_t goes_on = 0;
    if (!onnx_loop_number(node, condition, 0, &goes_on) ||
        (goes_on && loop->trips >= RABBET_ONNX_MAX_TRIPS))
      return false;
    if (!goes_on) break;
    loop->inputs[0] =
        rabbet_onnx_number(node, RABBET_DTYPE_INT64,
                           onnx_loop_number_rank(loop), (double)loop->trips);
    loop->inputs[1] = condition;
    onnx_loop_iterate(loop);
    condition = rabbet_onnx_ok(node) ? loop->outputs[0] : NULL;
  }
  return true;
}

static void onnx_import_loop(rabbet_onnx_node_t* node) {
  size_t states = node->proto->n_input > 2 ? node->proto->n_input - 2 : 0;
  onnx_loop_t loop = {
      .first_input = 2, .first_output = 1, .state_count = states};
  const rabbet_onnx_ints_t none = {0};
  onnx_loop_begin(&loop, node, states + 2, 2);
  int64_t most = 0;
  bool is_known =
      onnx_loop_number(node, rabbet_onnx_input(node, 0), INT64_MAX, &most);
  bool few = is_known && (most <= RABBET_ONNX_MAX_TRIPS || most == INT64_MAX);
  if (!is_known) most = 0;
  if (few && onnx_loop_write_out(&loop, most))
    onnx_loop_results(&loop, none, none);
  else if (rabbet_onnx_ok(node))
    onnx_loop_in_run(&loop, most);
  onnx_loop_end(&loop);
}

// ---- Scan ------------------------------------------------------------------

typedef struct onnx_scan_t {
  onnx_loop_t loop;
  size_t slice_count;
  rabbet_onnx_ints_t axes, reversals;
} onnx_scan_t;

static int onnx_scan_axis(const onnx_scan_t* scan, size_t index,
                          rabbet_tensor_t* x) {
  rabbet_onnx_node_t* node = scan->loop.node;
  return rabbet_onnx_axis(node,
                          index < scan->axes.count ? scan->axes.data[index] : 0,
                          rabbet_onnx_rank(node, x));
}

// Slices of scan inputs, which all have the same number of them; -1: a run
// tells it.
static int64_t onnx_scan_length(const onnx_scan_t* scan) {
  rabbet_onnx_node_t* node = scan->loop.node;
  int64_t length = -1;
  for (size_t i = 0; i < scan->slice_count && rabbet_onnx_ok(node); ++i) {
    rabbet_tensor_t* x = rabbet_onnx_required(node, scan->loop.state_count + i);
    int axis = onnx_scan_axis(scan, i, x);
    rabbet_dims_t dims = rabbet_onnx_dims(node, x);
    if (!rabbet_onnx_ok(node)) break;
    int64_t extent = dims.d[axis];
    if (length >= 0 && extent >= 0 && extent != length) {
      RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                       "scan input '%s' has %lld slices, but others have %lld",
                       rabbet_tensor_name(x), (long long)extent,
                       (long long)length);
    }
    if (extent >= 0) length = extent;
  }
  return length;
}

// A scan in a run, of as many iterations as the first scan input has slices.
static void onnx_scan_in_run(onnx_scan_t* scan) {
  onnx_loop_t* loop = &scan->loop;
  rabbet_onnx_node_t* node = loop->node;
  rabbet_arena_t* arena = &node->importer->arena;
  size_t count = scan->slice_count;
  int* axes = NULL;
  bool* reversals = NULL;
  rabbet_onnx_fail(node, rabbet_arena_allocate_array(
                             arena, count, sizeof(*axes), (void**)&axes));
  rabbet_onnx_fail(node,
                   rabbet_arena_allocate_array(arena, count, sizeof(*reversals),
                                               (void**)&reversals));
  for (size_t i = 0; i < count && rabbet_onnx_ok(node); ++i) {
    loop->inputs[loop->state_count + i] =
        rabbet_onnx_required(node, loop->state_count + i);
    axes[i] = onnx_scan_axis(scan, i, loop->inputs[loop->state_count + i]);
    reversals[i] = i < scan->reversals.count && scan->reversals.data[i] != 0;
  }
  if (!rabbet_onnx_ok(node)) return;
  const int64_t at = axes[0];
  rabbet_tensor_t* shape =
      rabbet_onnx_shape(node, loop->inputs[loop->state_count]);
  rabbet_tensor_t* extent[] = {
      shape, rabbet_onnx_number(node, RABBET_DTYPE_INT64, 0, (double)at)};
  const rabbet_attr_t axis = RABBET_ONNX_INT("axis", 0);
  const rabbet_onnx_run_loop_t run = {
      .count = rabbet_onnx_layer(node, "gather", extent, 2, &axis, 1),
      .number_rank = -1,
      .slices = loop->inputs + loop->state_count,
      .slice_count = count,
      .slice_axes = axes,
      .slice_reversals = reversals,
      .axes = rabbet_onnx_attr_ints(node, "scan_output_axes"),
      .reversals = rabbet_onnx_attr_ints(node, "scan_output_directions")};
  rabbet_onnx_run_loop(loop, &run);
}

static rabbet_tensor_t* onnx_scan_slice(const onnx_scan_t* scan, size_t index,
                                        int64_t length) {
  rabbet_onnx_node_t* node = scan->loop.node;
  rabbet_tensor_t* x = rabbet_onnx_input(node, scan->loop.state_count + index);
  assert(scan->loop.trips < length);
  bool reverse =
      index < scan->reversals.count && scan->reversals.data[index] != 0;
  int64_t at = reverse ? length - 1 - scan->loop.trips : scan->loop.trips;
  rabbet_tensor_t* inputs[] = {
      x, rabbet_onnx_number(node, RABBET_DTYPE_INT64, 0, (double)at)};
  const rabbet_attr_t axis =
      RABBET_ONNX_INT("axis", onnx_scan_axis(scan, index, x));
  rabbet_tensor_t* slice =
      rabbet_onnx_layer(node, "gather", inputs, 2, &axis, 1);
  rabbet_onnx_hold_like(node, slice, x);
  return slice;
}

static void onnx_scan_run(rabbet_onnx_node_t* node, const char* directions) {
  int64_t slices = rabbet_onnx_attr_int(node, "num_scan_inputs", 0);
  size_t inputs = node->proto->n_input;
  if (slices < 1 || slices > (int64_t)inputs) {
    RABBET_ONNX_FAIL(
        node, RABBET_STATUS_INVALID_ARGUMENT,
        "num_scan_inputs is %lld; expected 1 to %zu, the number of "
        "inputs",
        (long long)slices, inputs);
    return;
  }
  onnx_scan_t scan = {.loop = {.state_count = inputs - (size_t)slices},
                      .slice_count = (size_t)slices,
                      .axes = rabbet_onnx_attr_ints(node, "scan_input_axes"),
                      .reversals = rabbet_onnx_attr_ints(node, directions)};
  onnx_loop_begin(&scan.loop, node, inputs, 0);
  int64_t length = onnx_scan_length(&scan);
  if (length < 0 || length > RABBET_ONNX_MAX_TRIPS) {
    if (rabbet_onnx_ok(node)) onnx_scan_in_run(&scan);
    onnx_loop_end(&scan.loop);
    return;
  }
  while (rabbet_onnx_ok(node) && scan.loop.trips < length) {
    for (size_t i = 0; i < scan.slice_count; ++i) {
      scan.loop.inputs[scan.loop.state_count + i] =
          onnx_scan_slice(&scan, i, length);
    }
    onnx_loop_iterate(&scan.loop);
  }
  onnx_loop_results(&scan.loop, rabbet_onnx_attr_ints(node, "scan_output_axes"),
                    rabbet_onnx_attr_ints(node, "scan_output_directions"));
  onnx_loop_end(&scan.loop);
}

// ---- Scan before opset 9 ---------------------------------------------------

// Input 0 holds lengths, the others have a batch axis in front. Each sequence
// is scanned by itself.
static void onnx_scan_sequence(rabbet_onnx_node_t* node, int64_t at,
                               rabbet_tensor_t** outputs) {
  // Input 0, the lengths, is dropped; others were required.
  assert(node->input_count > 1 && node->proto->n_input > 1);
  rabbet_arena_t* arena = &node->importer->arena;
  Onnx__NodeProto proto = *node->proto;
  rabbet_onnx_node_t one = *node;
  one.proto = &proto;
  one.outputs = outputs;
  one.layer_count = 0;
  proto.input++;
  proto.n_input--;
  one.input_count--;
  rabbet_onnx_fail(&one, rabbet_arena_printf(arena, &one.name, "%s[%lld]",
                                             node->name, (long long)at));
  rabbet_onnx_fail(&one, rabbet_arena_allocate_array(arena, one.input_count,
                                                     sizeof(*one.inputs),
                                                     (void**)&one.inputs));
  for (size_t i = 0; i < one.input_count && rabbet_onnx_ok(&one); ++i) {
    rabbet_tensor_t* inputs[] = {
        node->inputs[i + 1],
        rabbet_onnx_number(&one, RABBET_DTYPE_INT64, 0, (double)at)};
    const rabbet_attr_t axis = RABBET_ONNX_INT("axis", 0);
    one.inputs[i] = rabbet_onnx_layer(&one, "gather", inputs, 2, &axis, 1);
  }
  if (rabbet_onnx_ok(&one)) onnx_scan_run(&one, "directions");
  node->status = one.status;
}

// Lengths that are given must be those of the input.
static void onnx_scan_check_lengths(rabbet_onnx_node_t* node, int64_t length) {
  rabbet_tensor_t* given = rabbet_onnx_input(node, 0);
  if (!given || !rabbet_onnx_ok(node)) return;
  rabbet_onnx_ints_t lengths =
      rabbet_onnx_constant_ints(node, "input 0 (sequence_lens)", given);
  for (size_t i = 0; i < lengths.count; ++i)
    if (lengths.data[i] != length)
      RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                       "element %zu of input 0 (sequence_lens) is %lld; only "
                       "sequences as long as the input (%lld) are imported",
                       i, (long long)lengths.data[i], (long long)length);
}

// Each state and scan input must have an entry for each sequence.
static void onnx_scan_check_batch(rabbet_onnx_node_t* node, int64_t sequences) {
  for (size_t i = 1; i < node->input_count && rabbet_onnx_ok(node); ++i) {
    rabbet_dims_t dims = rabbet_onnx_dims(node, node->inputs[i]);
    if (dims.rank > 0 && dims.d[0] == sequences) continue;
    char text[128];
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "input %zu has shape %s; expected a batch axis of %lld "
                     "sequences, as the last input has",
                     i, rabbet_dims_print(&dims, text, sizeof text),
                     (long long)sequences);
  }
}

static void onnx_scan_batch(rabbet_onnx_node_t* node) {
  rabbet_arena_t* arena = &node->importer->arena;
  rabbet_tensor_t* last = NULL;
  for (size_t i = 1; i < node->proto->n_input; ++i)
    last = rabbet_onnx_required(node, i);
  rabbet_dims_t dims = rabbet_onnx_dims(node, last);
  if (rabbet_onnx_ok(node) && (dims.rank < 2 || dims.d[0] < 1 || dims.d[1] < 0))
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "before opset 9 the scan inputs need a batch axis and a "
                     "sequence axis of known extents");
  if (rabbet_onnx_ok(node)) onnx_scan_check_batch(node, dims.d[0]);
  if (rabbet_onnx_ok(node)) onnx_scan_check_lengths(node, dims.d[1]);
  size_t count = rabbet_onnx_ok(node) ? (size_t)dims.d[0] : 0;
  rabbet_onnx_fail(node, rabbet_onnx_spend(node->importer, count));
  size_t outputs = node->output_count;
  rabbet_tensor_t **made = NULL, **parts = NULL;
  rabbet_onnx_fail(
      node, rabbet_arena_allocate_array(arena, count * outputs, sizeof(*made),
                                        (void**)&made));
  rabbet_onnx_fail(node, rabbet_arena_allocate_array(
                             arena, count, sizeof(*parts), (void**)&parts));
  for (size_t b = 0; b < count && rabbet_onnx_ok(node); ++b)
    onnx_scan_sequence(node, (int64_t)b, made + b * outputs);
  for (size_t i = 0; i < outputs && rabbet_onnx_ok(node); ++i) {
    if (!rabbet_onnx_wants(node, i)) continue;
    for (size_t b = 0; b < count; ++b) {
      parts[b] = made[b * outputs + i];
      int rank = rabbet_onnx_rank(node, parts[b]) + 1;
      parts[b] = rabbet_onnx_unsqueeze(node, parts[b], 1, rank);
    }
    node->outputs[i] = rabbet_onnx_concat(node, parts, count, 0);
    if (count > 0) rabbet_onnx_hold_like(node, node->outputs[i], made[i]);
  }
}

static void onnx_import_scan(rabbet_onnx_node_t* node) {
  if (node->opset < 9)
    onnx_scan_batch(node);
  else
    onnx_scan_run(node, "scan_input_directions");
}

RABBET_ONNX_OPERATORS(loop) = {
    RABBET_ONNX_LIST_OP(Loop, loop, "", 1, 11, 13, 16, 19, 21, 23, 24, 25),
    RABBET_ONNX_OP(Scan, scan, "", 8, 9, 11, 16, 19, 21, 23, 24, 25),
    {0},
};
