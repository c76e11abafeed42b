#include "device/common/pointwise.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "core/view.h"

// ---- Iteration space -------------------------------------------------------

// Axes of the memory of a tensor of `dims` in `format`: extents, and for each
// the logical axis that it walks and by how many logical steps.
typedef struct pw_axes_t {
  int rank;
  int64_t extent[RABBET_PW_MAX_AXES];
  int logical[RABBET_PW_MAX_AXES];
  int64_t step[RABBET_PW_MAX_AXES];
} pw_axes_t;

static void pw_axes_add(pw_axes_t* axes, int64_t extent, int logical,
                        int64_t step) {
  assert(axes->rank >= 0 && axes->rank < RABBET_PW_MAX_AXES);
  axes->extent[axes->rank] = extent;
  axes->logical[axes->rank] = logical;
  axes->step[axes->rank++] = step;
}

// False if the format pads: padding must stay zero, and functions of zero need
// not be zero.
static bool pw_axes(const rabbet_dims_t* dims, rabbet_format_t format,
                    pw_axes_t* out) {
  out->rank = 0;
  const rabbet_format_info_t* info = rabbet_format_info(format);
  int64_t block = info->block;
  bool has_channels = format != RABBET_FORMAT_LINEAR;
  if (has_channels && dims->rank < info->min_rank) return false;
  if (has_channels && dims->d[1] % block != 0) return false;
  for (int axis = 0; axis < dims->rank; ++axis) {
    if (axis == 1 && has_channels) {
      if (!info->channels_last) {
        pw_axes_add(out, dims->d[1] / block, 1, block);
      }
    } else {
      pw_axes_add(out, dims->d[axis], axis, 1);
    }
  }
  if (has_channels) {
    pw_axes_add(out, info->channels_last ? dims->d[1] : block, 1, 1);
  }
  return true;
}

// The strides of an operand over the axes; false if its shape does not fit. An
// operand with the full shape at the optimum has the space's format, even if it
// is broadcast in a run; other operands are LINEAR.
static bool pw_strides(const pw_axes_t* axes, const rabbet_dims_t* full,
                       const rabbet_dims_t* dims, bool has_format,
                       int64_t* out_strides) {
  if (dims->rank != full->rank) return false;
  int64_t linear[RABBET_MAX_RANK];
  int64_t next = 1;
  for (int axis = dims->rank - 1; axis >= 0; --axis) {
    if (dims->d[axis] != full->d[axis] && dims->d[axis] != 1) return false;
    linear[axis] = dims->d[axis] == 1 ? 0 : next;
    next *= dims->d[axis];
  }
  next = 1;
  for (int i = axes->rank - 1; i >= 0; --i) {
    int axis = axes->logical[i];
    if (axes->extent[i] == 1) {
      out_strides[i] = 0;
    } else if (!has_format) {
      out_strides[i] = linear[axis] * axes->step[i];
    } else {
      bool spread = dims->d[axis] != full->d[axis];
      out_strides[i] = spread ? 0 : next;
      if (!spread) next *= axes->extent[i];
    }
  }
  return true;
}

static bool pw_mergeable(const rabbet_pw_space_t* space, int outer, int inner) {
  for (int i = 0; i < space->operand_count; ++i) {
    if (space->stride[i][outer] !=
        space->stride[i][inner] * space->extent[inner]) {
      return false;
    }
  }
  return true;
}

// Drops axes of extent 1 and merges neighbours, from the last to the first.
static void pw_merge(rabbet_pw_space_t* space) {
  rabbet_pw_space_t from = *space;
  int kept[RABBET_PW_MAX_AXES], count = 0;  // innermost first
  for (int axis = from.rank - 1; axis >= 0; --axis) {
    if (from.extent[axis] == 1 && from.rank > 1) continue;
    if (count > 0 && pw_mergeable(&from, axis, kept[count - 1])) {
      from.extent[kept[count - 1]] *= from.extent[axis];
      continue;
    }
    kept[count++] = axis;
  }
  space->rank = count;
  for (int i = 0; i < count; ++i) {
    int axis = kept[count - 1 - i];
    space->extent[i] = from.extent[axis];
    for (int k = 0; k < from.operand_count; ++k) {
      space->stride[k][i] = from.stride[k][axis];
    }
  }
  if (count == 0) {
    space->rank = 1;
    space->extent[0] = 1;
    for (int k = 0; k < from.operand_count; ++k)
      space->stride[k][0] = 0;
  }
  assert(space->rank >= 1 && space->rank <= from.rank + 1);
}

int32_t rabbet_pw_operand(const rabbet_group_t* group, int operand) {
  return rabbet_group_boundary(group, (size_t)operand);
}

// The iteration space of the group for these shapes (by value number) and this
// format; false if shapes or format do not allow one. Before formats are
// chosen, all values of the full shape are taken to have this format.
static bool pw_space(const rabbet_group_t* group, const rabbet_dims_t* dims,
                     rabbet_format_t format, bool chosen,
                     rabbet_pw_space_t* out_space) {
  const rabbet_dims_t* full = &dims[group->outputs[0]];
  pw_axes_t axes;
  if (full->rank < 0 || !pw_axes(full, format, &axes)) return false;
  out_space->rank = axes.rank;
  memcpy(out_space->extent, axes.extent, sizeof(axes.extent));
  out_space->operand_count = (int)(group->input_count + group->output_count);
  assert(out_space->operand_count <= RABBET_PW_MAX_OPERANDS);
  for (int i = 0; i < out_space->operand_count; ++i) {
    int32_t value = rabbet_pw_operand(group, i);
    bool is_full = rabbet_dims_equal(&dims[value], full);
    bool has_format = chosen ? group->values[value].format == format : is_full;
    if (!is_full && i >= (int)group->input_count) return false;
    if (!pw_strides(&axes, full, &dims[value], has_format,
                    out_space->stride[i])) {
      return false;
    }
  }
  pw_merge(out_space);
  for (int i = 0; i < out_space->operand_count; ++i) {
    if (out_space->stride[i][out_space->rank - 1] > 1) return false;
  }
  return true;
}

// Every node is computed for the whole space. So values inside the group must
// have the full shape, or be computed from broadcast values only.
static bool pw_inner_shapes_fit(const rabbet_group_t* group,
                                const rabbet_dims_t* dims) {
  const rabbet_dims_t* full = &dims[group->outputs[0]];
  for (size_t i = 0; i < group->node_count; ++i) {
    for (size_t k = 0; k < group->nodes[i].output_count; ++k) {
      if (!rabbet_dims_equal(&dims[group->nodes[i].outputs[k]], full)) {
        return false;
      }
    }
  }
  return true;
}

rabbet_status_t rabbet_pw_plan(const rabbet_group_t* group,
                               const rabbet_dims_t* dims,
                               rabbet_pw_space_t* out_space) {
  rabbet_format_t format = group->values[group->outputs[0]].format;
  if (pw_inner_shapes_fit(group, dims) &&
      pw_space(group, dims, format, true, out_space)) {
    return rabbet_ok();
  }
  char text[128];
  return RABBET_STATUS(
      RABBET_STATUS_INVALID_ARGUMENT,
      "layer '%s': its inputs do not broadcast to its output %s in format %s",
      group->nodes[0].name,
      rabbet_dims_print(&dims[group->outputs[0]], text, sizeof(text)),
      rabbet_format_name(format));
}

// ---- Proposing -------------------------------------------------------------

bool rabbet_pw_is_pointwise(const rabbet_group_t* group) {
  if (group->node_count == 0 || group->output_count == 0 ||
      group->input_count + group->output_count > RABBET_PW_MAX_OPERANDS) {
    return false;
  }
  for (size_t i = 0; i < group->node_count; ++i) {
    if (!(group->nodes[i].op->flags & RABBET_OP_POINTWISE)) return false;
  }
  return true;
}

typedef struct pw_proposal_t {
  const rabbet_propose_t* propose;
  const rabbet_pw_offers_t* offers;
  rabbet_candidate_sink_t sink;
  const rabbet_dims_t* dims;
  rabbet_type_format_t* tensors;
  int32_t* in_place;
} pw_proposal_t;

// The input that an output may overwrite: one of the same shape and element
// size, whose elements are read just before the output's are written. -1: none.
static int32_t pw_in_place(const pw_proposal_t* proposal, size_t output,
                           uint64_t* taken) {
  const rabbet_group_t* group = proposal->propose->group;
  const rabbet_type_format_t* own =
      &proposal->tensors[group->input_count + output];
  for (size_t i = 0; i < group->input_count && i < 64; ++i) {
    if ((*taken >> i & 1) || group->values[group->inputs[i]].constant ||
        rabbet_dtype_bits(proposal->tensors[i].dtype) !=
            rabbet_dtype_bits(own->dtype) ||
        !rabbet_dims_equal(&proposal->dims[group->inputs[i]],
                           &proposal->dims[group->outputs[output]])) {
      continue;
    }
    assert((*taken >> i & 1) == 0);  // one output for each input's memory
    *taken |= 1ull << i;
    return (int32_t)i;
  }
  return -1;
}

// Whether an operand that is broadcast at the optimum, and therefore LINEAR,
// has strides in the format's order for any shape. Channels are innermost in
// that order, so the operand needs a single channel, or contiguous ones.
static bool pw_keeps_up(const rabbet_group_value_t* value,
                        rabbet_format_t format) {
  if (format == RABBET_FORMAT_LINEAR || value->max.rank < 2 ||
      value->max.d[1] == 1)
    return true;
  for (int axis = 2; axis < value->max.rank; ++axis)
    if (value->max.d[axis] != 1) return false;
  return true;
}

static rabbet_status_t pw_offer_one(pw_proposal_t* proposal,
                                    rabbet_format_t format,
                                    rabbet_dtype_t dtype) {
  const rabbet_group_t* group = proposal->propose->group;
  rabbet_pw_space_t space;
  if (!pw_space(group, proposal->dims, format, false, &space)) {
    return rabbet_ok();
  }
  const rabbet_dims_t* full = &proposal->dims[group->outputs[0]];
  for (int i = 0; i < space.operand_count; ++i) {
    int32_t value = rabbet_pw_operand(group, i);
    rabbet_type_format_t* tensor = &proposal->tensors[i];
    bool is_full = rabbet_dims_equal(&proposal->dims[value], full);
    if (is_full ? !rabbet_format_is_filled(&group->values[value], format)
                : !pw_keeps_up(&group->values[value], format))
      return rabbet_ok();
    tensor->dtype = group->values[value].dtype;
    tensor->format = is_full ? format : RABBET_FORMAT_LINEAR;
    bool is_real = tensor->dtype == RABBET_DTYPE_FLOAT ||
                   tensor->dtype == RABBET_DTYPE_HALF ||
                   tensor->dtype == RABBET_DTYPE_BF16;
    if (is_full && is_real && dtype != RABBET_DTYPE_NONE) tensor->dtype = dtype;
  }
  uint64_t taken = 0;
  for (size_t i = 0; i < group->output_count; ++i) {
    proposal->in_place[i] = pw_in_place(proposal, i, &taken);
  }
  for (size_t i = 0; i < proposal->offers->tactic_count; ++i) {
    rabbet_candidate_t candidate = {.kernel = proposal->offers->kernel,
                                    .tactic = (int32_t)i,
                                    .tensors = proposal->tensors,
                                    .in_place = proposal->in_place};
    snprintf(candidate.tactic_name, sizeof(candidate.tactic_name), "%s",
             proposal->offers->tactics[i]);
    RABBET_RETURN_IF_ERROR(
        rabbet_offer(proposal->propose, proposal->sink, &candidate));
  }
  return rabbet_ok();
}

static rabbet_status_t pw_offer_formats(pw_proposal_t* proposal,
                                        rabbet_dtype_t dtype) {
  for (size_t i = 0; i < proposal->offers->format_count; ++i) {
    RABBET_RETURN_IF_ERROR(
        pw_offer_one(proposal, proposal->offers->formats[i], dtype));
  }
  return rabbet_ok();
}

static rabbet_status_t pw_offer_all(pw_proposal_t* proposal) {
  RABBET_RETURN_IF_ERROR(pw_offer_formats(proposal, RABBET_DTYPE_NONE));
  static const rabbet_dtype_t others[] = {RABBET_DTYPE_FLOAT, RABBET_DTYPE_HALF,
                                          RABBET_DTYPE_BF16};
  for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); ++i) {
    if (proposal->propose->extra_dtypes >> others[i] & 1) {
      RABBET_RETURN_IF_ERROR(pw_offer_formats(proposal, others[i]));
    }
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_pw_offer(const rabbet_propose_t* propose,
                                rabbet_candidate_sink_t sink,
                                const rabbet_pw_offers_t* offers) {
  const rabbet_group_t* group = propose->group;
  rabbet_arena_t arena;
  rabbet_arena_initialize(propose->allocator, &arena);
  pw_proposal_t proposal = {.propose = propose, .offers = offers, .sink = sink};
  rabbet_dims_t* dims = NULL;
  rabbet_status_t status = rabbet_arena_allocate_array(
      &arena, group->value_count, sizeof(*dims), (void**)&dims);
  if (rabbet_is_ok(status)) {
    status = rabbet_arena_allocate_array(
        &arena, group->input_count + group->output_count,
        sizeof(*proposal.tensors), (void**)&proposal.tensors);
  }
  if (rabbet_is_ok(status)) {
    status = rabbet_arena_allocate_array(&arena, group->output_count,
                                         sizeof(int32_t),
                                         (void**)&proposal.in_place);
  }
  if (rabbet_is_ok(status)) {
    for (size_t i = 0; i < group->value_count; ++i) {
      dims[i] = group->values[i].dims;
    }
    proposal.dims = dims;
    if (pw_inner_shapes_fit(group, dims)) {
      status = pw_offer_all(&proposal);
    }
  }
  rabbet_arena_deinitialize(&arena);
  return status;
}
