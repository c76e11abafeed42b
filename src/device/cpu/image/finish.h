// Layers behind a convolution in its group that are computed as its results are
// stored: x sigmoid(x), a tensor that is added, then bounds.
#ifndef RABBET_SRC_DEVICE_CPU_IMAGE_FINISH_H_
#define RABBET_SRC_DEVICE_CPU_IMAGE_FINISH_H_

#include "device/common/node_kernel.h"
#include "device/cpu/vectors/vectors.h"

typedef struct rabbet_cpu_finish_t {
  int32_t added;  // value number of a tensor of the result's shape; or -1
  rabbet_finish_t of_sums;
} rabbet_cpu_finish_t;

// False unless the nodes behind the first are such ones, all of FLOAT.
bool rabbet_cpu_finish_parse(const rabbet_group_t* group,
                             rabbet_cpu_finish_t* out_finish);
// Whether the boundary's tensors have the formats of such a group, that are
// `format` for the convolution's input, the result and what is added, and
// LINEAR for constants.
bool rabbet_cpu_finish_formats(const rabbet_group_t* group,
                               const rabbet_cpu_finish_t* finish,
                               rabbet_format_t format);
// Offers the group in these formats.
rabbet_status_t rabbet_cpu_finish_offer(rabbet_proposal_t* proposal,
                                        const rabbet_cpu_finish_t* finish,
                                        rabbet_format_t format,
                                        const char* tactic_name);
// The address of what is added in a call; NULL: nothing is.
const float* rabbet_cpu_finish_added(const rabbet_group_t* group,
                                     const rabbet_cpu_finish_t* finish,
                                     const rabbet_kernel_call_t* call);
// UNSUPPORTED where concrete shapes differ.
rabbet_status_t rabbet_cpu_finish_check(const rabbet_group_t* group,
                                        const rabbet_cpu_finish_t* finish,
                                        const rabbet_dims_t* dims);

#endif  // RABBET_SRC_DEVICE_CPU_IMAGE_FINISH_H_
