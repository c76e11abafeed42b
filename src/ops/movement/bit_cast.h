// The bits of elements as elements of another type.
#ifndef RABBET_SRC_OPS_MOVEMENT_BIT_CAST_H_
#define RABBET_SRC_OPS_MOVEMENT_BIT_CAST_H_

#include "core/view.h"

// The low bits of each element, in a wider type with zeros above them; in BOOL
// whether the low byte is not 0. Types are of whole bytes.
RABBET_PRIVATE_API void rabbet_bit_cast(rabbet_dtype_t from, const void* source,
                                        rabbet_dtype_t to, void* target,
                                        int64_t count);

#endif  // RABBET_SRC_OPS_MOVEMENT_BIT_CAST_H_
