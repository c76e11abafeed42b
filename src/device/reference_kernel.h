// The kernel class "reference": the catalogue's own kernels.
//
// Correct on every device whose memory is the host's, and slow: a fallback, and
// the oracle of the tests. Computes groups of any operators but plugins, all
// LINEAR. Unlike other classes it may allocate in enqueue, as the catalogue's
// kernels need scratch memory.
#ifndef RABBET_SRC_DEVICE_REFERENCE_KERNEL_H_
#define RABBET_SRC_DEVICE_REFERENCE_KERNEL_H_

#include "device/kernel.h"

RABBET_PRIVATE_API extern const rabbet_kernel_class_t
    rabbet_reference_kernel_class;

#endif  // RABBET_SRC_DEVICE_REFERENCE_KERNEL_H_
