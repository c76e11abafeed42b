// Conversion of host data to other types and formats.
#ifndef RABBET_SRC_CORE_LAY_OUT_H_
#define RABBET_SRC_CORE_LAY_OUT_H_

#include "rabbet/types.h"

// Converts a LINEAR array to another type and format. Elements are converted as
// in view.h, except that finite numbers stay finite. Padding is not written.
// The caller has checked that the dimensions' product is in range and that they
// are valid for the format.
RABBET_PRIVATE_API void rabbet_lay_out(rabbet_dtype_t from, const void* source,
                                       const rabbet_dims_t* dims,
                                       rabbet_dtype_t to,
                                       rabbet_format_t format, void* target);

// Sets the padding channels of a tensor's last block to 0. Dimensions are known
// and valid for the format.
RABBET_PRIVATE_API void rabbet_clear_padding(rabbet_dtype_t dtype,
                                             rabbet_format_t format,
                                             const rabbet_dims_t* dims,
                                             void* data);

#endif  // RABBET_SRC_CORE_LAY_OUT_H_
