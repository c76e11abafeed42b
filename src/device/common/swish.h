// x sigmoid(x) and x hardsigmoid(x), which networks have as two layers.
#ifndef RABBET_SRC_DEVICE_COMMON_SWISH_H_
#define RABBET_SRC_DEVICE_COMMON_SWISH_H_

#include "device/kernel.h"

typedef enum rabbet_swish_t {
  RABBET_SWISH_NONE = 0,
  RABBET_SWISH_SIGMOID = 1,
  RABBET_SWISH_HARD = 2,  // max(0, min(1, x / 6 + 1 / 2)), of hardswish
} rabbet_swish_t;

// Which one nodes i and i + 1 of a group are, of value x.
rabbet_swish_t rabbet_group_swish(const rabbet_group_t* group, size_t i,
                                  int32_t x);

#endif  // RABBET_SRC_DEVICE_COMMON_SWISH_H_
