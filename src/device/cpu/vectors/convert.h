// Conversions between floating types of tensors as flat memory.
#ifndef RABBET_SRC_DEVICE_CPU_VECTORS_CONVERT_H_
#define RABBET_SRC_DEVICE_CPU_VECTORS_CONVERT_H_

#include "rabbet/types.h"

// Whether both are FLOAT, HALF or BF16.
bool rabbet_cpu_can_convert(rabbet_dtype_t from, rabbet_dtype_t to);
// Converts `count` elements, rounding to nearest even, in parallel. The
// ranges must not overlap unless equal in address and type size.
void rabbet_cpu_convert(rabbet_dtype_t from, const void* source,
                        rabbet_dtype_t to, void* target, int64_t count);

#endif  // RABBET_SRC_DEVICE_CPU_VECTORS_CONVERT_H_
