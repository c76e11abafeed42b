// Concatenation as rows of bytes: a row of the output is the inputs' rows, one
// after the other.
#ifndef RABBET_SRC_DEVICE_COMMON_CONCATENATION_H_
#define RABBET_SRC_DEVICE_COMMON_CONCATENATION_H_

#include "device/common/node_kernel.h"

// Whether the group is one concatenation of tensors of one type and format.
bool rabbet_concatenation_takes(const rabbet_group_t* group);
// Whether rows of bytes can be concatenated in this format: blocks of channels
// must be full in all inputs but the last.
bool rabbet_concatenation_fits(const rabbet_group_t* group,
                               rabbet_format_t format);
// The offset, in bytes, of each input in a row, and at the end the size of a
// row: one more entry than inputs; and the number of rows. Errors name the
// layer.
rabbet_status_t rabbet_concatenation_begins(const rabbet_node_kernel_t* kernel,
                                            const rabbet_dims_t* dims,
                                            int64_t* out_begins,
                                            int64_t* out_rows);

#endif  // RABBET_SRC_DEVICE_COMMON_CONCATENATION_H_
