// Common code of kernel classes that ask a library which kernels it has.
#ifndef RABBET_SRC_DEVICE_COMMON_ASK_H_
#define RABBET_SRC_DEVICE_COMMON_ASK_H_

#include "device/common/propose.h"

// A question to a library; `wish`: the number of kernels wanted.
typedef struct rabbet_asked_t {
  bool tf32;
  int32_t wish;
} rabbet_asked_t;

// Offers the kernels that the library of like->kernel has for the group with
// like->tensors, each with like's other fields. At optimization level 0, where
// nothing is timed, offers one kernel that works. Constants of one element are
// read in the offered type.
rabbet_status_t rabbet_offer_asked(const rabbet_propose_t* propose,
                                   rabbet_candidate_sink_t sink,
                                   const rabbet_candidate_t* like,
                                   const rabbet_asked_t* asked);

#endif  // RABBET_SRC_DEVICE_COMMON_ASK_H_
