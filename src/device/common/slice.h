// Strided windows over a tensor's memory.
#ifndef RABBET_SRC_DEVICE_COMMON_SLICE_H_
#define RABBET_SRC_DEVICE_COMMON_SLICE_H_

#include "device/common/box.h"
#include "device/common/node_kernel.h"
#include "ops/movement/slice.h"

// An axis of the memory. Axes that are taken entirely are merged into the unit.
typedef struct rabbet_slice_axis_t {
  int64_t in, out;  // extents
  int64_t start, stride;
  int64_t source, target;  // bytes from one element to the next
} rabbet_slice_axis_t;

// Axes in the order of the output's memory, which is dense.
typedef struct rabbet_slice_window_t {
  rabbet_sample_mode_t mode;
  bool is_empty;   // the output has no elements
  bool is_inside;  // no axis leaves the input: the mode does not matter
  int64_t size;    // bytes of an element
  int64_t unit;    // contiguous bytes at each position of the last axis
  int32_t rank;
  rabbet_slice_axis_t axes[RABBET_BOX_AXES];
} rabbet_slice_window_t;

// Start and stride of the group's slice `node` for known shapes. Errors name
// the layer: accesses that STRICT_BOUNDS forbids, operands without known
// values.
rabbet_status_t rabbet_slice_parameters(const rabbet_group_t* group,
                                        const rabbet_group_node_t* node,
                                        const rabbet_dims_t* dims,
                                        const int64_t* const* host_values,
                                        rabbet_allocator_t allocator,
                                        rabbet_slice_t* out_slice);
// For known shapes. Errors name the layer: accesses that STRICT_BOUNDS forbids,
// operands without known values, formats that cannot be sliced like this.
rabbet_status_t rabbet_slice_window(const rabbet_node_kernel_t* kernel,
                                    const rabbet_kernel_shapes_t* shapes,
                                    rabbet_slice_window_t* out_window);
// Whether a candidate in this format may be offered. If the axes' parameters
// are not known yet, only formats are offered that work for all of them.
bool rabbet_slice_fits(const rabbet_propose_t* propose, rabbet_format_t format);

#endif  // RABBET_SRC_DEVICE_COMMON_SLICE_H_
