#include "device/common/axes.h"

#include <assert.h>

void rabbet_axes_add(rabbet_axes_t* axes, int64_t extent,
                     const int64_t strides[RABBET_AXES_OPERANDS]) {
  if (extent == 1) return;
  assert(extent >= 0 && axes->rank >= 0 && axes->rank < RABBET_BOX_AXES);
  int32_t i = axes->rank++;
  for (; i > 0 && axes->stride[0][i - 1] < strides[0]; --i) {
    axes->extent[i] = axes->extent[i - 1];
    for (int k = 0; k < RABBET_AXES_OPERANDS; ++k)
      axes->stride[k][i] = axes->stride[k][i - 1];
  }
  axes->extent[i] = extent;
  for (int k = 0; k < RABBET_AXES_OPERANDS; ++k)
    axes->stride[k][i] = strides[k];
}

static bool axes_follow(const rabbet_axes_t* axes, int32_t outer, int32_t inner,
                        int operands) {
  for (int k = 0; k < operands; ++k) {
    if (axes->stride[k][outer] != axes->stride[k][inner] * axes->extent[inner])
      return false;
  }
  return true;
}

void rabbet_axes_merge(rabbet_axes_t* axes, int operands) {
  int32_t kept = 0;
  assert(operands > 0 && operands <= RABBET_AXES_OPERANDS);
  for (int32_t i = 1; i < axes->rank; ++i) {
    if (axes_follow(axes, kept, i, operands))
      axes->extent[kept] *= axes->extent[i];
    else
      axes->extent[++kept] = axes->extent[i];
    for (int k = 0; k < RABBET_AXES_OPERANDS; ++k)
      axes->stride[k][kept] = axes->stride[k][i];
  }
  if (axes->rank > 0) axes->rank = kept + 1;
}

int64_t rabbet_axes_positions(const rabbet_axes_t* axes) {
  int64_t count = 1;
  for (int32_t i = 0; i < axes->rank; ++i)
    count *= axes->extent[i];
  return count;
}

bool rabbet_axes_contiguous(const rabbet_axes_t* axes) {
  return axes->rank > 0 && axes->stride[0][axes->rank - 1] == 1;
}
