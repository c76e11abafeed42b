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
} rabbet_pw_space_t;

// Operands are the boundary's inputs, then its outputs.
int32_t rabbet_pw_operand(const rabbet_group_t* group, int operand);
// The space for known shapes (by value), in the format of the first output. An
// error says which shapes do not broadcast.
rabbet_status_t rabbet_pw_plan(const rabbet_group_t* group,
                               const rabbet_dims_t* dims,
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
} rabbet_pw_offers_t;
// Offers each type that the network allows, format and tactic, unless the
// shapes do not fit.
rabbet_status_t rabbet_pw_offer(const rabbet_propose_t* propose,
                                rabbet_candidate_sink_t sink,
                                const rabbet_pw_offers_t* offers);

#endif  // RABBET_SRC_DEVICE_COMMON_POINTWISE_H_
