// For classes whose kernels come from a library that is asked for them.
#ifndef RABBET_SRC_DEVICE_COMMON_ASK_H_
#define RABBET_SRC_DEVICE_COMMON_ASK_H_

#include "device/common/propose.h"

// `wish`: kernels wanted.
typedef struct rabbet_asked_t {
  bool tf32;
  int32_t wish;
} rabbet_asked_t;

// Offers what the library of like->kernel has for the group with like->tensors,
// each with like's other fields. Level 0, which times nothing, wants one that
// works. Constants of one number are read in the type that is offered.
rabbet_status_t rabbet_offer_asked(const rabbet_propose_t* propose,
                                   rabbet_candidate_sink_t sink,
                                   const rabbet_candidate_t* like,
                                   const rabbet_asked_t* asked);

#endif  // RABBET_SRC_DEVICE_COMMON_ASK_H_
