// Element-wise layers as one pass over memory: the iteration space, and the
// candidates that it allows.
//
// All outputs have the shape of the iteration space; inputs have it, too, or
// are broadcast along some of its axes. Axes are those of the memory; a blocked
// format has its physical axes. Axes that are contiguous to each other in every
// operand are merged. The last axis is the row; along it an operand is
// contiguous (a stream) or has a single element (a cell).
#ifndef RABBET_SRC_DEVICE_COMMON_POINTWISE_H_
#define RABBET_SRC_DEVICE_COMMON_POINTWISE_H_

#include "device/common/propose.h"

enum { RABBET_PW_MAX_AXES = RABBET_MAX_RANK + 1, RABBET_PW_MAX_OPERANDS = 192 };

typedef struct rabbet_pw_space_t {
  int rank;
  int64_t extent[RABBET_PW_MAX_AXES];
  int operand_count;
  // In elements; of the last axis 0 or 1.
  int64_t stride[RABBET_PW_MAX_OPERANDS][RABBET_PW_MAX_AXES];
  // Of the first element in its tensor: not 0 for parts of tensors.
  int64_t offset[RABBET_PW_MAX_OPERANDS];
} rabbet_pw_space_t;

// A group whose slices are read where they lie. Kernels compute `plain`, the
// group without them, whose inputs are the slices' results.
typedef struct rabbet_pw_parts_t {
  rabbet_group_t plain;
  size_t slice_count;
  // Of the plain group's inputs: the slice, or NULL; the whole group's input.
  const rabbet_group_node_t* slices[RABBET_PW_MAX_OPERANDS];
  int32_t from[RABBET_PW_MAX_OPERANDS];
  void* memory;  // NULL without slices: `plain` is the group
} rabbet_pw_parts_t;
// *out_fits: false if a slice reads what the group computes, or if there are
// too many operands. The parts refer to the group.
rabbet_status_t rabbet_pw_parts_make(const rabbet_group_t* group,
                                     rabbet_allocator_t allocator,
                                     rabbet_pw_parts_t* out_parts,
                                     bool* out_fits);
void rabbet_pw_parts_end(rabbet_allocator_t allocator,
                         rabbet_pw_parts_t* parts);

// Operands are the boundary's inputs, then its outputs.
int32_t rabbet_pw_operand(const rabbet_group_t* group, int operand);
// The space for known shapes (by value), in the format of the first output. An
// error says which shapes do not broadcast.
rabbet_status_t rabbet_pw_plan(const rabbet_group_t* group,
                               const rabbet_dims_t* dims,
                               rabbet_pw_space_t* out_space);
// The same for the plain group; `group` is the whole one.
rabbet_status_t rabbet_pw_plan_parts(const rabbet_group_t* group,
                                     const rabbet_pw_parts_t* parts,
                                     const rabbet_kernel_shapes_t* shapes,
                                     rabbet_allocator_t allocator,
                                     rabbet_pw_space_t* out_space);
// Whether all layers are element-wise, and the boundary has at most
// RABBET_PW_MAX_OPERANDS values.
bool rabbet_pw_is_pointwise(const rabbet_group_t* group);

typedef struct rabbet_pw_offers_t {
  const rabbet_kernel_class_t* kernel;
  const rabbet_format_t* formats;  // of values of the full shape
  size_t format_count;
  const char* const* tactics;  // names, by number
  size_t tactic_count;
  const rabbet_pw_parts_t* parts;  // of the group; NULL: it has no slices
  // Whether the tactic may win in this space; NULL: all are offered.
  bool (*suits)(const rabbet_pw_space_t* space, size_t tactic);
} rabbet_pw_offers_t;
// Offers each type that the network allows, format and tactic, unless the
// shapes do not fit.
rabbet_status_t rabbet_pw_offer(const rabbet_propose_t* propose,
                                rabbet_candidate_sink_t sink,
                                const rabbet_pw_offers_t* offers);

#endif  // RABBET_SRC_DEVICE_COMMON_POINTWISE_H_
