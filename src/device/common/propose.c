#include "device/common/propose.h"

#include <assert.h>

#include "core/view.h"

void rabbet_network_tensors(const rabbet_group_t* group,
                            rabbet_type_format_t* out_tensors) {
  for (size_t i = 0; i < group->input_count; ++i)
    out_tensors[i] = (rabbet_type_format_t){
        group->values[group->inputs[i]].dtype, RABBET_FORMAT_LINEAR};
  for (size_t i = 0; i < group->output_count; ++i)
    out_tensors[group->input_count + i] = (rabbet_type_format_t){
        group->values[group->outputs[i]].dtype, RABBET_FORMAT_LINEAR};
}

static bool ranks_fit(const rabbet_group_t* group,
                      const rabbet_type_format_t* tensors) {
  for (size_t i = 0; i < group->input_count + group->output_count; ++i) {
    int32_t value = rabbet_group_boundary(group, i);
    const rabbet_format_info_t* info = rabbet_format_info(tensors[i].format);
    int32_t rank = group->values[value].dims.rank;
    // Blocks have an axis of their own.
    if (!info || rank < info->min_rank ||
        rank + (info->block > 1) > RABBET_MAX_RANK)
      return false;
  }
  return true;
}

rabbet_status_t rabbet_offer(const rabbet_propose_t* propose,
                             rabbet_candidate_sink_t sink,
                             const rabbet_candidate_t* candidate) {
  const rabbet_group_t* group = propose->group;
  size_t count = group->input_count + group->output_count;
  assert(candidate->kernel && candidate->tensors);
  for (size_t i = 0; candidate->in_place && i < group->output_count; ++i)
    assert(candidate->in_place[i] < (int32_t)group->input_count);
  for (size_t i = 0; candidate->aliased && i < group->output_count; ++i)
    assert(candidate->aliased[i] < (int32_t)group->input_count);
  if (!ranks_fit(group, candidate->tensors)) return rabbet_ok();
  for (size_t i = 0; propose->fixed && i < count; ++i) {
    if (propose->fixed[i].dtype != candidate->tensors[i].dtype ||
        propose->fixed[i].format != candidate->tensors[i].format) {
      return rabbet_ok();
    }
  }
  return sink.add(sink.context, candidate);
}

bool rabbet_format_is_filled(const rabbet_group_value_t* value,
                             rabbet_format_t format) {
  int block = rabbet_format_info(format)->block;
  return block == 1 ||
         (value->dims.rank > 1 && value->min.d[1] == value->max.d[1] &&
          value->dims.d[1] % block == 0);
}

static rabbet_status_t group_all_dims(const rabbet_group_t* group, bool largest,
                                      rabbet_allocator_t allocator,
                                      rabbet_dims_t** out_dims) {
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      allocator, sizeof(rabbet_dims_t) * group->value_count, (void**)out_dims));
  for (size_t i = 0; i < group->value_count; ++i)
    (*out_dims)[i] = largest ? group->values[i].max : group->values[i].dims;
  return rabbet_ok();
}

rabbet_status_t rabbet_group_opt_dims(const rabbet_group_t* group,
                                      rabbet_allocator_t allocator,
                                      rabbet_dims_t** out_dims) {
  return group_all_dims(group, false, allocator, out_dims);
}

rabbet_status_t rabbet_group_max_dims(const rabbet_group_t* group,
                                      rabbet_allocator_t allocator,
                                      rabbet_dims_t** out_dims) {
  return group_all_dims(group, true, allocator, out_dims);
}

bool rabbet_group_is_empty(const rabbet_group_t* group) {
  for (size_t i = 0; i < group->input_count + group->output_count; ++i) {
    int32_t v = rabbet_group_boundary(group, i);
    for (int32_t axis = 0; axis < group->values[v].dims.rank; ++axis)
      if (group->values[v].dims.d[axis] == 0) return true;
  }
  return false;
}

int32_t rabbet_group_input_of(const rabbet_group_t* group, int32_t value) {
  for (size_t i = 0; i < group->input_count; ++i) {
    if (group->inputs[i] == value) return (int32_t)i;
  }
  return -1;
}

bool rabbet_group_feeds(const rabbet_group_t* group,
                        const rabbet_group_node_t* node) {
  for (size_t i = 0; i < node->input_count; ++i) {
    if (node->inputs[i] >= 0 &&
        rabbet_group_input_of(group, node->inputs[i]) < 0)
      return false;
  }
  return true;
}

int rabbet_compute_types(const rabbet_propose_t* propose,
                         rabbet_dtype_t network, rabbet_dtype_t out[4]) {
  static const rabbet_dtype_t floats[] = {RABBET_DTYPE_FLOAT, RABBET_DTYPE_HALF,
                                          RABBET_DTYPE_BF16};
  int count = 0;
  out[count++] = network;
  if (!rabbet_dtype_is_float(network) || network == RABBET_DTYPE_DOUBLE)
    return count;
  for (size_t i = 0; i < sizeof(floats) / sizeof(floats[0]); ++i) {
    if (floats[i] != network && (propose->extra_dtypes & (1u << floats[i])))
      out[count++] = floats[i];
  }
  assert(count <= 4);
  return count;
}
