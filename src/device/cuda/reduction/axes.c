#include "device/cuda/reduction/axes.h"

#include <assert.h>

_Static_assert((int)AXES_OPERANDS == (int)RABBET_AXES_OPERANDS,
               "the same operands");

bool rabbet_cuda_axes_fit(const rabbet_axes_t* axes, int64_t vector,
                          int operands) {
  assert(vector >= 1 && operands <= AXES_OPERANDS);
  int32_t last = axes->rank - 1;
  if (last < 0 || axes->extent[last] % vector != 0) return false;
  for (int32_t i = 0; i < last; ++i) {
    for (int k = 0; k < operands; ++k) {
      if (axes->stride[k][i] % vector != 0) return false;
    }
  }
  return true;
}

axes_t rabbet_cuda_axes_pack(const rabbet_axes_t* axes, int64_t vector) {
  assert(vector >= 1);
  assert(axes->rank == 0 || axes->extent[axes->rank - 1] % vector == 0);
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
