// Host data in other types and formats.
#ifndef RABBET_SRC_CORE_LAY_OUT_H_
#define RABBET_SRC_CORE_LAY_OUT_H_

#include "rabbet/types.h"

// Elements of a LINEAR array, converted one by one (view.h says how, but finite
// numbers become the nearest finite ones), into an array of another type and
// format whose padding is left as it is. The dimensions' product is known to be
// in range, and the format to fit them.
RABBET_PRIVATE_API void rabbet_lay_out(rabbet_dtype_t from, const void* source,
                                       const rabbet_dims_t* dims,
                                       rabbet_dtype_t to,
                                       rabbet_format_t format, void* target);

// Makes the channels 0 that fill up a tensor's last block. Dimensions are
// known, and the format fits them.
RABBET_PRIVATE_API void rabbet_clear_padding(rabbet_dtype_t dtype,
                                             rabbet_format_t format,
                                             const rabbet_dims_t* dims,
                                             void* data);

#endif  // RABBET_SRC_CORE_LAY_OUT_H_
