// Concatenation as rows of bytes: those of the output are made of rows of the
// inputs, one after the other.
#ifndef RABBET_SRC_DEVICE_COMMON_CONCATENATION_H_
#define RABBET_SRC_DEVICE_COMMON_CONCATENATION_H_

#include "device/common/node_kernel.h"

// Whether the group is one concatenation of tensors of one type and format.
bool rabbet_concatenation_takes(const rabbet_group_t* group);
// Whether the inputs' memory can be put one after the other in this format:
// blocks of channels must be full but for the last input's.
bool rabbet_concatenation_fits(const rabbet_group_t* group,
                               rabbet_format_t format);
// Bytes of a row where each input begins, and of all at the end (one more than
// there are inputs); and how many rows there are. Errors name the layer.
rabbet_status_t rabbet_concatenation_begins(const rabbet_node_kernel_t* kernel,
                                            const rabbet_dims_t* dims,
                                            int64_t* out_begins,
                                            int64_t* out_rows);

#endif  // RABBET_SRC_DEVICE_COMMON_CONCATENATION_H_
