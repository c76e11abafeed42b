#include "device/cuda/reduction/axes.h"

void rabbet_cuda_axes_add(rabbet_cuda_axes_t* axes, int64_t extent,
                          const int64_t strides[AXES_OPERANDS]) {
  if (extent == 1) return;
  int32_t i = axes->rank++;
  for (; i > 0 && axes->stride[0][i - 1] < strides[0]; --i) {
    axes->extent[i] = axes->extent[i - 1];
    for (int k = 0; k < AXES_OPERANDS; ++k)
      axes->stride[k][i] = axes->stride[k][i - 1];
  }
  axes->extent[i] = extent;
  for (int k = 0; k < AXES_OPERANDS; ++k)
    axes->stride[k][i] = strides[k];
}

static bool axes_follow(const rabbet_cuda_axes_t* axes, int32_t outer,
                        int32_t inner, int operands) {
  for (int k = 0; k < operands; ++k) {
    if (axes->stride[k][outer] != axes->stride[k][inner] * axes->extent[inner])
      return false;
  }
  return true;
}

void rabbet_cuda_axes_merge(rabbet_cuda_axes_t* axes, int operands) {
  int32_t kept = 0;
  for (int32_t i = 1; i < axes->rank; ++i) {
    if (axes_follow(axes, kept, i, operands))
      axes->extent[kept] *= axes->extent[i];
    else
      axes->extent[++kept] = axes->extent[i];
    for (int k = 0; k < AXES_OPERANDS; ++k)
      axes->stride[k][kept] = axes->stride[k][i];
  }
  if (axes->rank > 0) axes->rank = kept + 1;
}

int64_t rabbet_cuda_axes_positions(const rabbet_cuda_axes_t* axes) {
  int64_t count = 1;
  for (int32_t i = 0; i < axes->rank; ++i)
    count *= axes->extent[i];
  return count;
}

bool rabbet_cuda_axes_contiguous(const rabbet_cuda_axes_t* axes) {
  return axes->rank > 0 && axes->stride[0][axes->rank - 1] == 1;
}

bool rabbet_cuda_axes_fit(const rabbet_cuda_axes_t* axes, int64_t vector,
                          int operands) {
  int32_t last = axes->rank - 1;
  if (last < 0 || axes->extent[last] % vector != 0) return false;
  for (int32_t i = 0; i < last; ++i) {
    for (int k = 0; k < operands; ++k) {
      if (axes->stride[k][i] % vector != 0) return false;
    }
  }
  return true;
}

axes_t rabbet_cuda_axes_pack(const rabbet_cuda_axes_t* axes, int64_t vector) {
  axes_t packed = {.rank = (uint32_t)axes->rank};
  for (int32_t i = 0; i < axes->rank; ++i) {
    int32_t from = axes->rank - 1 - i;
    int64_t step = i == 0 ? vector : 1;
    packed.extent[i] = rabbet_cuda_divider(
        axes->extent[from] < step ? 1 : axes->extent[from] / step);
    for (int k = 0; k < AXES_OPERANDS; ++k)
      packed.stride[k][i] = axes->stride[k][from] * step;
  }
  return packed;
}
