#include "device/common/pointwise.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "core/view.h"
#include "device/common/slice.h"

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

// Where an operand lies: `dims` of it, within a tensor of the extents `whole`
// from element `start` on.
typedef struct pw_place_t {
  const rabbet_dims_t *dims, *whole;
  int64_t start[RABBET_MAX_RANK];
} pw_place_t;

// The strides of an operand over the axes; false if its shape does not fit. An
// operand with the full shape at the optimum has the space's format, even if it
// is broadcast in a run; other operands are LINEAR.
static bool pw_strides(const pw_axes_t* axes, const rabbet_dims_t* full,
                       const pw_place_t* place, bool has_format,
                       int64_t* out_strides, int64_t* out_offset) {
  const rabbet_dims_t *dims = place->dims, *whole = place->whole;
  if (dims->rank != full->rank) return false;
  int64_t linear[RABBET_MAX_RANK];
  int64_t next = 1, offset = 0;
  for (int axis = dims->rank - 1; axis >= 0; --axis) {
    if (dims->d[axis] != full->d[axis] && dims->d[axis] != 1) return false;
    linear[axis] = dims->d[axis] == 1 ? 0 : next;
    offset += place->start[axis] * next;
    next *= whole->d[axis];
  }
  if (has_format) offset = 0;
  next = 1;
  for (int i = axes->rank - 1; i >= 0; --i) {
    int axis = axes->logical[i];
    bool spread = dims->d[axis] != full->d[axis];
    if (!has_format) {
      out_strides[i] = axes->extent[i] == 1 ? 0 : linear[axis] * axes->step[i];
      continue;
    }
    out_strides[i] = axes->extent[i] == 1 || spread ? 0 : next;
    offset += place->start[axis] * next;
    if (whole != dims)
      next *= whole->d[axis];
    else if (!spread)
      next *= axes->extent[i];
  }
  *out_offset = offset;
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
                     const pw_place_t* places, rabbet_format_t format,
                     bool chosen, rabbet_pw_space_t* out_space) {
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
    pw_place_t place = {.dims = &dims[value], .whole = &dims[value]};
    if (places && places[i].whole) place = places[i];
    // In formats with blocks a part's channels need not be whole blocks.
    if (place.whole != place.dims && rabbet_format_info(format)->block != 1)
      return false;
    if (!pw_strides(&axes, full, &place, has_format, out_space->stride[i],
                    &out_space->offset[i])) {
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

// Of the plain group's inputs; those that are no slices have no `whole`.
static rabbet_status_t pw_places(const rabbet_group_t* group,
                                 const rabbet_pw_parts_t* parts,
                                 const rabbet_dims_t* dims,
                                 const int64_t* const* host_values,
                                 rabbet_allocator_t allocator,
                                 pw_place_t* places) {
  memset(places, 0, RABBET_PW_MAX_OPERANDS * sizeof(*places));
  for (size_t i = 0; parts && i < parts->plain.input_count; ++i) {
    const rabbet_group_node_t* node = parts->slices[i];
    rabbet_slice_t slice;
    if (!node) continue;
    RABBET_RETURN_IF_ERROR(rabbet_slice_parameters(
        group, node, dims, host_values, allocator, &slice));
    places[i].dims = &dims[node->outputs[0]];
    places[i].whole = &dims[node->inputs[0]];
    for (int axis = 0; axis < slice.rank; ++axis) {
      places[i].start[axis] = slice.start[axis];
      if (slice.stride[axis] != 1 || slice.mode != RABBET_SAMPLE_STRICT_BOUNDS)
        return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                             "layer '%s': element-wise kernels read slices "
                             "of stride 1 within their input; axis %d has "
                             "stride %lld, or a mode",
                             node->name, axis, (long long)slice.stride[axis]);
    }
  }
  return rabbet_ok();
}

static rabbet_status_t pw_plan(const rabbet_group_t* group,
                               const rabbet_dims_t* dims,
                               const pw_place_t* places,
                               rabbet_pw_space_t* out_space) {
  rabbet_format_t format = group->values[group->outputs[0]].format;
  if (pw_inner_shapes_fit(group, dims) &&
      pw_space(group, dims, places, format, true, out_space)) {
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

rabbet_status_t rabbet_pw_plan(const rabbet_group_t* group,
                               const rabbet_dims_t* dims,
                               rabbet_pw_space_t* out_space) {
  return pw_plan(group, dims, NULL, out_space);
}

rabbet_status_t rabbet_pw_plan_parts(const rabbet_group_t* group,
                                     const rabbet_pw_parts_t* parts,
                                     const rabbet_kernel_shapes_t* shapes,
                                     rabbet_allocator_t allocator,
                                     rabbet_pw_space_t* out_space) {
  pw_place_t places[RABBET_PW_MAX_OPERANDS];
  RABBET_RETURN_IF_ERROR(pw_places(group, parts, shapes->dims,
                                   shapes->host_values, allocator, places));
  return pw_plan(&parts->plain, shapes->dims, places, out_space);
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
  const rabbet_group_t* plain;  // the group, or without its slices
  pw_place_t places[RABBET_PW_MAX_OPERANDS];
} pw_proposal_t;

// The whole group's operand that is the plain group's operand i.
static size_t pw_whole_operand(const pw_proposal_t* proposal, size_t i) {
  const rabbet_pw_parts_t* parts = proposal->offers->parts;
  size_t inputs = proposal->plain->input_count;
  if (i >= inputs) return proposal->propose->group->input_count + (i - inputs);
  return parts ? (size_t)parts->from[i] : i;
}

// Whether the group reads the input as a slice, too.
static bool pw_is_sliced(const pw_proposal_t* proposal, size_t input) {
  const rabbet_pw_parts_t* parts = proposal->offers->parts;
  for (size_t i = 0; parts && i < parts->plain.input_count; ++i)
    if (parts->slices[i] && parts->from[i] == (int32_t)input) return true;
  return false;
}

// The input that an output may overwrite: one of the same shape and element
// size, whose elements are read just before the output's are written. -1: none.
static int32_t pw_in_place(const pw_proposal_t* proposal, size_t output,
                           uint64_t* taken) {
  const rabbet_group_t* group = proposal->propose->group;
  const rabbet_type_format_t* own =
      &proposal->tensors[group->input_count + output];
  for (size_t i = 0; i < group->input_count && i < 64; ++i) {
    if ((*taken >> i & 1) || group->values[group->inputs[i]].constant ||
        pw_is_sliced(proposal, i) ||
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

// Types and formats of the whole group's boundary; false if a tensor would have
// two formats, or the format pads.
static bool pw_offer_tensors(pw_proposal_t* proposal, rabbet_format_t format,
                             rabbet_dtype_t dtype) {
  const rabbet_group_t* group = proposal->plain;
  const rabbet_group_t* whole = proposal->propose->group;
  const rabbet_dims_t* full = &proposal->dims[group->outputs[0]];
  bool is_set[RABBET_PW_MAX_OPERANDS] = {false};
  rabbet_network_tensors(whole, proposal->tensors);
  for (size_t i = 0; i < group->input_count + group->output_count; ++i) {
    int32_t value = rabbet_pw_operand(group, (int)i);
    size_t at = pw_whole_operand(proposal, i);
    bool is_full = rabbet_dims_equal(&proposal->dims[value], full);
    if (is_full ? !rabbet_format_is_filled(&group->values[value], format)
                : !pw_keeps_up(&group->values[value], format))
      return false;
    // A part of single channels would have gaps along its rows.
    if (proposal->places[i].whole && format != RABBET_FORMAT_LINEAR &&
        group->values[value].min.d[1] <= 1)
      return false;
    rabbet_type_format_t tensor = {
        .dtype = group->values[value].dtype,
        .format = is_full ? format : RABBET_FORMAT_LINEAR};
    bool is_real = tensor.dtype == RABBET_DTYPE_FLOAT ||
                   tensor.dtype == RABBET_DTYPE_HALF ||
                   tensor.dtype == RABBET_DTYPE_BF16;
    if (is_full && is_real && dtype != RABBET_DTYPE_NONE) tensor.dtype = dtype;
    if (is_set[at] && (proposal->tensors[at].dtype != tensor.dtype ||
                       proposal->tensors[at].format != tensor.format))
      return false;
    is_set[at] = true;
    proposal->tensors[at] = tensor;
  }
  return true;
}

static rabbet_status_t pw_offer_one(pw_proposal_t* proposal,
                                    rabbet_format_t format,
                                    rabbet_dtype_t dtype) {
  const rabbet_group_t* group = proposal->propose->group;
  rabbet_pw_space_t space;
  if (!pw_space(proposal->plain, proposal->dims, proposal->places, format,
                false, &space) ||
      !pw_offer_tensors(proposal, format, dtype))
    return rabbet_ok();
  uint64_t taken = 0;
  for (size_t i = 0; i < group->output_count; ++i) {
    proposal->in_place[i] = pw_in_place(proposal, i, &taken);
  }
  for (size_t i = 0; i < proposal->offers->tactic_count; ++i) {
    if (proposal->offers->suits && !proposal->offers->suits(&space, i))
      continue;
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
  pw_proposal_t proposal = {
      .propose = propose,
      .offers = offers,
      .sink = sink,
      .plain = offers->parts ? &offers->parts->plain : group};
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
    status = pw_places(group, offers->parts, dims, NULL, propose->allocator,
                       proposal.places);
  }
  // A slice whose numbers are not known, or do not suit, is no part.
  if (!rabbet_is_ok(status) &&
      rabbet_status_code(status) != RABBET_STATUS_OUT_OF_MEMORY) {
    rabbet_status_ignore(status);
    status = rabbet_ok();
  } else if (rabbet_is_ok(status) &&
             pw_inner_shapes_fit(proposal.plain, dims)) {
    status = pw_offer_all(&proposal);
  }
  rabbet_arena_deinitialize(&arena);
  return status;
}
