#include "device/common/scatter.h"

#include <assert.h>

#include "ops/enums.h"

static bool scatter_elements(const rabbet_dims_t* data,
                             const rabbet_dims_t* indices,
                             const rabbet_dims_t* updates, int32_t axis,
                             rabbet_scatter_t* s) {
  int64_t stride = 1;
  bool fits = indices->rank == data->rank && updates->rank == data->rank;
  s->rank = fits ? data->rank : 0;
  s->rows = s->row = s->depth = 1;
  for (int32_t i = s->rank - 1; i >= 0; --i) {
    fits = fits && indices->d[i] == updates->d[i] &&
           (i == axis || indices->d[i] <= data->d[i]);
    s->dims[i] = indices->d[i];
    s->steps[i] = i == axis ? 0 : stride;
    s->rows *= indices->d[i];
    if (i == axis) {
      s->extent[0] = data->d[i];
      s->stride[0] = stride;
    }
    stride *= data->d[i];
  }
  return fits;
}

static bool scatter_rows(const rabbet_dims_t* data,
                         const rabbet_dims_t* indices,
                         const rabbet_dims_t* updates, rabbet_scatter_t* s) {
  s->rows = s->row = 1;
  if (indices->rank < 1 || indices->d[indices->rank - 1] < 1 ||
      indices->d[indices->rank - 1] > data->rank)
    return false;
  s->depth = (int32_t)indices->d[indices->rank - 1];
  int32_t outer = indices->rank - 1;
  bool fits = updates->rank == outer + data->rank - s->depth;
  for (int32_t i = 0; i < outer; ++i) {
    fits = fits && updates->d[i] == indices->d[i];
    s->rows *= indices->d[i];
  }
  for (int32_t i = s->depth; i < data->rank; ++i) {
    fits = fits && updates->d[outer + i - s->depth] == data->d[i];
    s->row *= data->d[i];
  }
  int64_t stride = s->row;
  for (int32_t i = s->depth - 1; i >= 0; --i) {
    s->extent[i] = data->d[i];
    s->stride[i] = stride;
    stride *= data->d[i];
  }
  return fits;
}

rabbet_status_t rabbet_scatter_resolve(const rabbet_group_node_t* node,
                                       const rabbet_dims_t* data,
                                       const rabbet_dims_t* indices,
                                       const rabbet_dims_t* updates,
                                       rabbet_scatter_t* out_scatter) {
  int32_t axis = (int32_t)rabbet_node_int(node, "axis");
  *out_scatter = (rabbet_scatter_t){.elements = 1};
  for (int32_t i = 0; i < data->rank; ++i)
    out_scatter->elements *= data->d[i];
  bool fits =
      rabbet_node_int(node, "mode") == RABBET_SCATTER_ND
          ? scatter_rows(data, indices, updates, out_scatter)
          : scatter_elements(data, indices, updates,
                             axis < 0 ? axis + data->rank : axis, out_scatter);
  assert(!fits ||
         (out_scatter->depth >= 1 && out_scatter->depth <= RABBET_MAX_RANK));
  if (fits) return rabbet_ok();
  char a[128], b[128], c[128];
  return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                       "layer '%s': indices of shape %s and updates of shape "
                       "%s do not fit data of shape %s",
                       node->name, rabbet_dims_print(indices, a, sizeof(a)),
                       rabbet_dims_print(updates, b, sizeof(b)),
                       rabbet_dims_print(data, c, sizeof(c)));
}
