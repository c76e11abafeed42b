#include "device/common/gather.h"

#include "ops/enums.h"

static bool gather_agrees(const rabbet_dims_t* data,
                          const rabbet_dims_t* indices, int64_t mode,
                          int32_t axis, int32_t batch) {
  bool fits = true;
  for (int32_t i = 0; mode != RABBET_GATHER_ELEMENT && i < batch; ++i) {
    fits = fits && data->d[i] == indices->d[i];
  }
  for (int32_t i = 0; mode == RABBET_GATHER_ELEMENT && i < data->rank; ++i) {
    fits = fits && (i == axis || indices->d[i] <= data->d[i]);
  }
  return fits;
}

rabbet_status_t rabbet_gather_check(const rabbet_group_node_t* node,
                                    const rabbet_dims_t* data,
                                    const rabbet_dims_t* indices) {
  int64_t mode = rabbet_node_int(node, "mode");
  int32_t batch = (int32_t)rabbet_node_int(node, "num_elementwise_dims");
  int32_t axis = (int32_t)rabbet_node_int(node, "axis");
  if (axis < 0) axis += data->rank;
  if (!gather_agrees(data, indices, mode, axis, batch)) {
    char a[128], b[128];
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                         "layer '%s': input 'indices' of shape %s does not fit "
                         "data of shape %s",
                         node->name, rabbet_dims_print(indices, a, sizeof(a)),
                         rabbet_dims_print(data, b, sizeof(b)));
  }
  return rabbet_ok();
}
