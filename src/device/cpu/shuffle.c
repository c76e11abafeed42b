// Transpose, reshape, transpose: one strided move wherever strides can say it,
// else two with the tensor between them in the workspace.
#include "device/cpu/cpu.h"
#include "device/cpu/move.h"

struct rabbet_kernel_state_t {
  rabbet_move_t first, second;
  bool has_second;
};

// ---- Shapes ----------------------------------------------------------------

// The box with its logical axes in another order, or moved back from it.
static void rabbet_shuffle_permute(const rabbet_group_node_t* node,
                                   const char* name, bool inverse,
                                   rabbet_box_t* box) {
  size_t count = 0;
  const int64_t* axes =
      rabbet_attr_ints(node->attrs, node->op->attr_count, name, &count);
  if (count == 0) return;
  rabbet_box_t from = *box;
  int32_t place[RABBET_MAX_RANK + 1], rank = from.axis[from.rank - 1] + 1;
  for (int32_t i = 0; i < rank; ++i) {
    // place[i]: which logical axis comes to position i.
    if (inverse) {
      place[axes[i]] = i;
    } else {
      place[i] = (int32_t)axes[i];
    }
  }
  box->rank = 0;
  for (int32_t i = 0; i < rank; ++i) {
    for (int32_t k = 0; k < from.rank; ++k) {
      if (from.axis[k] != place[i]) continue;
      box->axis[box->rank] = i;
      box->extent[box->rank] = from.extent[k];
      box->stride[box->rank++] = from.stride[k];
    }
  }
}

static bool rabbet_shuffle_is_row_major(const rabbet_box_t* box) {
  int64_t next = 1;
  for (int32_t i = box->rank - 1; i >= 0; --i) {
    if (box->extent[i] != 1 && box->stride[i] != next) return false;
    next *= box->extent[i];
  }
  return true;
}

static void rabbet_shuffle_row_major(rabbet_box_t* box) {
  int64_t next = 1;
  for (int32_t i = box->rank - 1; i >= 0; --i) {
    box->stride[i] = next;
    next *= box->extent[i];
  }
}

// Splits axes of both boxes, which hold the same elements in the same order,
// so that they have the same extents. False where an axis of one would have to
// be cut at a place that is no divisor.
static bool rabbet_shuffle_refine(const rabbet_box_t* a, const rabbet_box_t* b,
                                  int64_t* extents, int64_t* sources,
                                  int64_t* targets, int32_t* out_rank) {
  int32_t i = a->rank - 1, k = b->rank - 1, rank = 0;
  int64_t in_a = 1, in_b = 1;  // what is taken off the current axes
  while (i >= 0 && k >= 0 && rank < RABBET_BOX_AXES) {
    int64_t left_a = a->extent[i] / in_a, left_b = b->extent[k] / in_b;
    int64_t part = left_a < left_b ? left_a : left_b;
    if (left_a % part != 0 || left_b % part != 0) return false;
    if (part > 1) {
      extents[rank] = part;
      sources[rank] = a->stride[i] * in_a;
      targets[rank++] = b->stride[k] * in_b;
    }
    in_a *= part;
    in_b *= part;
    if (in_a == a->extent[i]) --i, in_a = 1;
    if (in_b == b->extent[k]) --k, in_b = 1;
    // Axes of one element stand in no one's way.
    while (i >= 0 && in_a == 1 && a->extent[i] == 1)
      --i;
    while (k >= 0 && in_b == 1 && b->extent[k] == 1)
      --k;
  }
  *out_rank = rank;
  return i < 0 && k < 0;
}

static void rabbet_shuffle_plan(const rabbet_box_t* source,
                                const rabbet_box_t* target, int64_t size,
                                rabbet_move_t* out_move) {
  rabbet_move_plan(source->rank, source->extent, source->stride, target->stride,
                   size, out_move);
}

// ---- The class -------------------------------------------------------------

// Whether the memory stays as it is: a LINEAR reshape.
static bool rabbet_shuffle_is_reshape(const rabbet_group_node_t* node,
                                      rabbet_format_t from,
                                      rabbet_format_t to) {
  size_t first = 0, second = 0;
  (void)rabbet_attr_ints(node->attrs, node->op->attr_count, "first_transpose",
                         &first);
  (void)rabbet_attr_ints(node->attrs, node->op->attr_count, "second_transpose",
                         &second);
  return first == 0 && second == 0 && from == RABBET_FORMAT_LINEAR &&
         to == RABBET_FORMAT_LINEAR;
}

static rabbet_status_t rabbet_cpu_shuffle_body(rabbet_proposal_t* proposal) {
  const rabbet_group_t* group = proposal->propose->group;
  const rabbet_group_node_t* node = proposal->node;
  int32_t in = node->inputs[0], out = node->outputs[0];
  const rabbet_format_t formats[] = {RABBET_FORMAT_LINEAR, RABBET_FORMAT_HWC,
                                     rabbet_cpu_blocked_format()};
  rabbet_dtype_t types[4];
  int count =
      rabbet_compute_types(proposal->propose, group->values[in].dtype, types);
  for (int i = 0; i < 9; ++i) {
    rabbet_box_t box;
    rabbet_format_t from = formats[i / 3], to = formats[i % 3];
    if (!rabbet_box(&group->values[in].dims, from, &box) ||
        !rabbet_box(&group->values[out].dims, to, &box)) {
      continue;
    }
    int32_t over = rabbet_shuffle_is_reshape(node, from, to)
                       ? rabbet_group_input_of(group, in)
                       : -1;
    for (int t = 0; t < count; ++t) {
      rabbet_proposal_set_input(proposal, 0, types[t], from);
      rabbet_proposal_set_output(proposal, types[t], to);
      RABBET_RETURN_IF_ERROR(
          rabbet_proposal_offer(proposal, "strided move", over));
    }
  }
  return rabbet_ok();
}

static rabbet_status_t rabbet_cpu_shuffle_propose(
    const rabbet_propose_t* propose, rabbet_candidate_sink_t sink) {
  if (!rabbet_node_is(propose->group, RABBET_OP_SHUFFLE)) return rabbet_ok();
  return rabbet_proposal_make(propose, sink, &rabbet_cpu_shuffle, NULL,
                              rabbet_cpu_shuffle_body);
}

static rabbet_status_t rabbet_shuffle_boxes(const rabbet_node_kernel_t* kernel,
                                            const rabbet_dims_t* in,
                                            const rabbet_dims_t* out,
                                            rabbet_box_t* source,
                                            rabbet_box_t* target) {
  const rabbet_group_node_t* node = kernel->node;
  const rabbet_group_value_t* values = kernel->group->values;
  int64_t in_count = 0, out_count = 0;
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(in, &in_count));
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(out, &out_count));
  char a[128], b[128];
  if (in_count != out_count) {
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                         "a tensor of shape %s cannot be shuffled to %s: the "
                         "numbers of elements differ",
                         rabbet_dims_print(in, a, sizeof(a)),
                         rabbet_dims_print(out, b, sizeof(b)));
  }
  if (!rabbet_box(in, values[node->inputs[0]].format, source) ||
      !rabbet_box(out, values[node->outputs[0]].format, target)) {
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "shapes %s and %s have padding in the formats that "
                         "the kernel was chosen for",
                         rabbet_dims_print(in, a, sizeof(a)),
                         rabbet_dims_print(out, b, sizeof(b)));
  }
  if (source->rank > 0)
    rabbet_shuffle_permute(node, "first_transpose", false, source);
  if (target->rank > 0)
    rabbet_shuffle_permute(node, "second_transpose", true, target);
  return rabbet_ok();
}

static rabbet_status_t rabbet_cpu_shuffle_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    rabbet_kernel_state_t** out_state, size_t* out_workspace) {
  const rabbet_node_kernel_t* kernel = (const rabbet_node_kernel_t*)base;
  const rabbet_dims_t* in = &shapes->dims[kernel->node->inputs[0]];
  const rabbet_dims_t* out = &shapes->dims[kernel->node->outputs[0]];
  rabbet_dtype_t dtype = kernel->group->values[kernel->node->inputs[0]].dtype;
  int64_t size = rabbet_dtype_bits(dtype) / 8, count = 0;
  rabbet_box_t source, target;
  *out_workspace = 0;
  RABBET_RETURN_IF_ERROR(
      rabbet_shuffle_boxes(kernel, in, out, &source, &target));
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(in, &count));
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(**out_state), out_state));
  rabbet_kernel_state_t* state = *out_state;
  if (count == 0) return rabbet_ok();
  int64_t extents[RABBET_BOX_AXES], sources[RABBET_BOX_AXES],
      targets[RABBET_BOX_AXES];
  int32_t rank = 0;
  if (rabbet_shuffle_is_row_major(&source)) {
    source = target;
    rabbet_shuffle_row_major(&source);
    rabbet_shuffle_plan(&source, &target, size, &state->first);
  } else if (rabbet_shuffle_is_row_major(&target)) {
    target = source;
    rabbet_shuffle_row_major(&target);
    rabbet_shuffle_plan(&source, &target, size, &state->first);
  } else if (rabbet_shuffle_refine(&source, &target, extents, sources, targets,
                                   &rank)) {
    rabbet_move_plan(rank, extents, sources, targets, size, &state->first);
  } else {
    rabbet_box_t between = source;
    rabbet_shuffle_row_major(&between);
    rabbet_shuffle_plan(&source, &between, size, &state->first);
    between = target;
    rabbet_shuffle_row_major(&between);
    rabbet_shuffle_plan(&between, &target, size, &state->second);
    state->has_second = true;
    *out_workspace = (size_t)(count * size);
  }
  return rabbet_ok();
}

static rabbet_status_t rabbet_cpu_shuffle_enqueue(
    rabbet_kernel_t* base, rabbet_kernel_state_t* state,
    const rabbet_kernel_call_t* call) {
  const rabbet_node_kernel_t* kernel = (const rabbet_node_kernel_t*)base;
  const void* source = call->inputs[rabbet_group_input_of(
      kernel->group, kernel->node->inputs[0])];
  void* between = state->has_second ? call->workspace : call->outputs[0];
  rabbet_move_run(&state->first, source, between);
  if (state->has_second) {
    rabbet_move_run(&state->second, between, call->outputs[0]);
  }
  return rabbet_ok();
}

RABBET_NODE_CLASS(rabbet_cpu_shuffle, "cpu.shuffle", 1);
