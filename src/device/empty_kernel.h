// The kernel class "empty", for devices that cannot run the reference kernels:
// groups of any layers whose outputs never have elements.
#ifndef RABBET_SRC_DEVICE_EMPTY_KERNEL_H_
#define RABBET_SRC_DEVICE_EMPTY_KERNEL_H_

#include "device/kernel.h"

// Offers itself if all outputs are empty for every profile; enqueues nothing.
// Libraries reject empty tensors.
RABBET_PRIVATE_API extern const rabbet_kernel_class_t rabbet_empty_kernel_class;

#endif  // RABBET_SRC_DEVICE_EMPTY_KERNEL_H_
