#include "device/common/concatenation.h"

#include <assert.h>

#include "core/view.h"
#include "device/common/propose.h"

bool rabbet_concatenation_takes(const rabbet_group_t* group) {
  if (!rabbet_node_is(group, RABBET_OP_CONCATENATION)) return false;
  const rabbet_group_node_t* node = &group->nodes[0];
  const rabbet_group_value_t* out = &group->values[node->outputs[0]];
  for (size_t i = 0; i < node->input_count; ++i) {
    const rabbet_group_value_t* in = &group->values[node->inputs[i]];
    if (in->dtype != out->dtype || in->format != out->format) return false;
  }
  return rabbet_dtype_bits(out->dtype) >= 8;
}

bool rabbet_concatenation_fits(const rabbet_group_t* group,
                               rabbet_format_t format) {
  const rabbet_group_node_t* node = &group->nodes[0];
  const rabbet_format_info_t* info = rabbet_format_info(format);
  const rabbet_dims_t* out = &group->values[node->outputs[0]].dims;
  if (out->rank < info->min_rank) return false;
  int64_t axis = rabbet_node_int(node, "axis");
  if (info->block == 1 || (axis != 1 && axis != 1 - out->rank)) return true;
  for (size_t i = 0; i + 1 < node->input_count; ++i) {
    if (!rabbet_format_is_filled(&group->values[node->inputs[i]], format))
      return false;
  }
  return true;
}

static rabbet_status_t concatenation_check(const rabbet_group_node_t* node,
                                           const rabbet_dims_t* in,
                                           const rabbet_dims_t* out,
                                           int64_t axis, int64_t sum,
                                           bool is_last) {
  bool fits = in->rank == out->rank;
  for (int32_t i = 0; fits && i < in->rank; ++i) {
    fits = i == axis || in->d[i] == out->d[i];
  }
  if (fits && (!is_last || sum == out->d[axis])) return rabbet_ok();
  char a[128], b[128];
  return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                       "layer '%s': an input has shape %s, which does not fit "
                       "into the output of shape %s along axis %lld",
                       node->name, rabbet_dims_print(in, a, sizeof(a)),
                       rabbet_dims_print(out, b, sizeof(b)), (long long)axis);
}

static rabbet_status_t concatenation_add(const rabbet_node_kernel_t* kernel,
                                         const rabbet_dims_t* dims,
                                         rabbet_format_t format, int32_t axis,
                                         bool is_last, int64_t* out_bytes) {
  const rabbet_format_info_t* info = rabbet_format_info(format);
  rabbet_dims_t physical;
  assert(axis >= 0 && axis < dims->rank);
  *out_bytes = 0;
  RABBET_RETURN_IF_ERROR(rabbet_format_physical_dims(format, dims, &physical));
  if (axis == 1 && !is_last && info->block > 1 &&
      dims->d[1] % info->block != 0) {
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "layer '%s': %lld channels do not fill blocks of %d",
                         kernel->node->name, (long long)dims->d[1],
                         info->block);
  }
  rabbet_dtype_t dtype = kernel->group->values[kernel->node->inputs[0]].dtype;
  *out_bytes = rabbet_dtype_bits(dtype) / 8;
  if (info->channels_last)
    axis = axis == 0 ? 0 : axis == 1 ? dims->rank - 1 : axis - 1;
  for (int32_t i = axis; i < physical.rank; ++i)
    *out_bytes *= physical.d[i];
  return rabbet_ok();
}

rabbet_status_t rabbet_concatenation_begins(const rabbet_node_kernel_t* kernel,
                                            const rabbet_dims_t* dims,
                                            int64_t* out_begins,
                                            int64_t* out_rows) {
  const rabbet_group_node_t* node = kernel->node;
  const rabbet_dims_t* out = &dims[node->outputs[0]];
  rabbet_format_t format = kernel->group->values[node->outputs[0]].format;
  int32_t axis = (int32_t)rabbet_node_int(node, "axis");
  if (axis < 0) axis += out->rank;
  int64_t sum = 0, bytes = 0;
  out_begins[0] = *out_rows = 0;
  size_t total = 0;
  for (size_t i = 0; i < node->input_count; ++i) {
    const rabbet_dims_t* in = &dims[node->inputs[i]];
    bool is_last = i + 1 == node->input_count;
    if (axis < in->rank) sum += in->d[axis];
    RABBET_RETURN_IF_ERROR(
        concatenation_check(node, in, out, axis, sum, is_last));
    RABBET_RETURN_IF_ERROR(
        concatenation_add(kernel, in, format, axis, is_last, &bytes));
    out_begins[i + 1] = out_begins[i] + bytes;
  }
  RABBET_RETURN_IF_ERROR(rabbet_tensor_bytes(
      kernel->group->values[node->outputs[0]].dtype, format, out, &total));
  int64_t row = out_begins[node->input_count];
  assert(row == 0 || total % (size_t)row == 0);
  *out_rows = row > 0 ? (int64_t)total / row : 0;
  return rabbet_ok();
}
