// The positions of a scatter's updates.
#ifndef RABBET_SRC_DEVICE_COMMON_SCATTER_H_
#define RABBET_SRC_DEVICE_COMMON_SCATTER_H_

#include "device/common/node_kernel.h"

// Updates are contiguous rows of elements, one per group of `depth` indices.
// The position of a row in the data is an offset from its position among the
// updates (ELEMENT) plus the offsets of its indices.
typedef struct rabbet_scatter_t {
  int64_t rows, row;  // number of rows; elements of a row
  int64_t elements;   // of the data
  int32_t depth;
  int64_t extent[RABBET_MAX_RANK];  // of the data's axis for index i
  int64_t stride[RABBET_MAX_RANK];  // elements
  // ELEMENT: axes of the updates, and the stride of each in the data. ND: rank
  // 0.
  int32_t rank;
  int64_t dims[RABBET_MAX_RANK];
  int64_t steps[RABBET_MAX_RANK];
} rabbet_scatter_t;

// For known shapes. OUT_OF_RANGE, naming the layer, if they do not match.
rabbet_status_t rabbet_scatter_resolve(const rabbet_group_node_t* node,
                                       const rabbet_dims_t* data,
                                       const rabbet_dims_t* indices,
                                       const rabbet_dims_t* updates,
                                       rabbet_scatter_t* out_scatter);

#endif  // RABBET_SRC_DEVICE_COMMON_SCATTER_H_
