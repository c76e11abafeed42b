// Conversion of elements between types, as cast and identity do it.
#ifndef RABBET_SRC_OPS_MOVEMENT_CONVERT_H_
#define RABBET_SRC_OPS_MOVEMENT_CONVERT_H_

#include "core/view.h"

// Float to integer truncates towards zero; NaN gives 0, values outside the type
// the nearest bound. To BOOL: 1 for anything but 0. Integer to a narrower
// integer keeps the low bits.
RABBET_PRIVATE_API void rabbet_convert(rabbet_dtype_t from, const void* source,
                                       rabbet_dtype_t to, void* target,
                                       int64_t count);

#endif  // RABBET_SRC_OPS_MOVEMENT_CONVERT_H_
