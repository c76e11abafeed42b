// Resizing of a tensor's memory.
#ifndef RABBET_SRC_DEVICE_COMMON_RESIZE_H_
#define RABBET_SRC_DEVICE_COMMON_RESIZE_H_

#include "device/common/box.h"
#include "device/common/node_kernel.h"
#include "ops/image/resize.h"

// An axis of the memory, with `taps` entries in the tables for each element of
// the output.
typedef struct rabbet_resize_step_t {
  int64_t in, out;
  int64_t stride;  // of the input, in elements
  int64_t table;   // its first entry
  int32_t taps;
  int32_t logical;
} rabbet_resize_step_t;

// Both tensors are (outer, steps..., inner): axes before the first resized axis
// are merged, and so are those after the last one.
typedef struct rabbet_resize_plan_t {
  rabbet_resize_t resize;
  bool is_empty;
  int64_t outer, inner;
  int64_t in_plane, out_plane;  // strides of the outer axis, in elements
  int32_t rank;                 // at least 1 unless empty
  rabbet_resize_step_t steps[RABBET_BOX_AXES];
  int64_t entries;  // of the tables
} rabbet_resize_plan_t;

// For known shapes. Errors name the layer.
rabbet_status_t rabbet_resize_plan(const rabbet_node_kernel_t* kernel,
                                   const rabbet_kernel_shapes_t* shapes,
                                   rabbet_resize_plan_t* out_plan);
// Room for plan->entries of both.
void rabbet_resize_fill(const rabbet_resize_plan_t* plan, int32_t* positions,
                        float* weights);
// Whether a candidate in this format may be offered: channels stay as they are.
bool rabbet_resize_fits(const rabbet_propose_t* propose,
                        rabbet_format_t format);

#endif  // RABBET_SRC_DEVICE_COMMON_RESIZE_H_
