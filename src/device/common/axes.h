// Axes of a tensor's memory, ordered and merged: the loops of reductions and
// normalizations.
#ifndef RABBET_SRC_DEVICE_COMMON_AXES_H_
#define RABBET_SRC_DEVICE_COMMON_AXES_H_

#include "device/common/box.h"

enum { RABBET_AXES_OPERANDS = 3 };

// Sorted by decreasing strides of operand 0, the outermost axis first.
typedef struct rabbet_axes_t {
  int32_t rank;
  int64_t extent[RABBET_BOX_AXES];
  int64_t stride[RABBET_AXES_OPERANDS][RABBET_BOX_AXES];  // elements
} rabbet_axes_t;

// Inserts an axis at the place of its stride. Axes of extent 1 are left out.
void rabbet_axes_add(rabbet_axes_t* axes, int64_t extent,
                     const int64_t strides[RABBET_AXES_OPERANDS]);
// Merges neighbouring axes that are contiguous to each other in the first
// `operands` operands.
void rabbet_axes_merge(rabbet_axes_t* axes, int operands);
// The product of the extents.
int64_t rabbet_axes_positions(const rabbet_axes_t* axes);
// Whether operand 0 has stride 1 on the innermost axis.
bool rabbet_axes_contiguous(const rabbet_axes_t* axes);

// The offsets of position number `at` in the first `operands` operands. Inline,
// as kernels call it for each row.
static inline void rabbet_axes_locate(const rabbet_axes_t* axes, int64_t at,
                                      int operands, int64_t out[]) {
  for (int k = 0; k < operands; ++k)
    out[k] = 0;
  for (int32_t i = axes->rank - 1; i >= 0; --i) {
    int64_t index = i > 0 ? at % axes->extent[i] : at;
    if (i > 0) at /= axes->extent[i];
    for (int k = 0; k < operands; ++k)
      out[k] += index * axes->stride[k][i];
  }
}

#endif  // RABBET_SRC_DEVICE_COMMON_AXES_H_
