#include "core/quantize.h"

#include <assert.h>
#include <math.h>

// A tensor along an axis: [outer][count][inner].
typedef struct along_t {
  int64_t outer, count, inner;
} along_t;

static along_t quantize_along(const rabbet_dims_t* dims, int32_t axis) {
  assert(axis >= 0 && axis < dims->rank);
  along_t along = {1, dims->d[axis], 1};
  for (int32_t i = 0; i < axis; ++i)
    along.outer *= dims->d[i];
  for (int32_t i = axis + 1; i < dims->rank; ++i)
    along.inner *= dims->d[i];
  return along;
}

float rabbet_quantize_scale(float range) {
  return fmaxf(range / RABBET_QUANTIZE_STEPS, RABBET_QUANTIZE_LEAST_SCALE);
}

bool rabbet_quantize_measure(const rabbet_dims_t* dims, int32_t axis,
                             const float* data, float* scales) {
  along_t along = quantize_along(dims, axis);
  bool finite = true;
  for (int64_t k = 0; k < along.count; ++k) {
    float largest = 0;
    for (int64_t o = 0; o < along.outer; ++o)
      for (int64_t i = 0; i < along.inner; ++i) {
        float number = fabsf(data[(o * along.count + k) * along.inner + i]);
        finite = finite && isfinite(number);
        if (number > largest) largest = number;
      }
    // For zeros any scale will do.
    scales[k] = rabbet_quantize_scale(largest > 0 ? largest : 1);
  }
  return finite;
}

void rabbet_quantize_round(const rabbet_dims_t* dims, int32_t axis,
                           const float* data, const float* scales,
                           int8_t* out) {
  along_t along = quantize_along(dims, axis);
  const float most = RABBET_QUANTIZE_STEPS;
  int64_t at = 0;
  for (int64_t k = 0; k < along.count; ++k)
    assert(scales[k] > 0);
  for (int64_t o = 0; o < along.outer; ++o)
    for (int64_t k = 0; k < along.count; ++k)
      for (int64_t i = 0; i < along.inner; ++i, ++at)
        out[at] =
            (int8_t)fmaxf(-most, fminf(most, nearbyintf(data[at] / scales[k])));
}
