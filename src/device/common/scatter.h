// Where the updates of a scatter go.
#ifndef RABBET_SRC_DEVICE_COMMON_SCATTER_H_
#define RABBET_SRC_DEVICE_COMMON_SCATTER_H_

#include "device/common/node_kernel.h"

// Updates are rows of elements that lie together, one for each group of `depth`
// indices. A row's first element is `base`, which its position gives, moved by
// the indices.
typedef struct rabbet_scatter_t {
  int64_t rows, row;  // how many, of how many elements
  int64_t elements;   // of the data
  int32_t depth;
  int64_t extent[RABBET_MAX_RANK];  // that indices are for
  int64_t stride[RABBET_MAX_RANK];  // elements
  // ELEMENT: axes of the updates, and the stride of each in the data. ND: rank
  // 0.
  int32_t rank;
  int64_t dims[RABBET_MAX_RANK];
  int64_t steps[RABBET_MAX_RANK];
} rabbet_scatter_t;

// For known shapes; OUT_OF_RANGE, naming the layer, where they do not agree.
rabbet_status_t rabbet_scatter_resolve(const rabbet_group_node_t* node,
                                       const rabbet_dims_t* data,
                                       const rabbet_dims_t* indices,
                                       const rabbet_dims_t* updates,
                                       rabbet_scatter_t* out_scatter);

#endif  // RABBET_SRC_DEVICE_COMMON_SCATTER_H_
