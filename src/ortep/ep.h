// The provider of a session.
#ifndef RABBET_SRC_ORTEP_EP_H_
#define RABBET_SRC_ORTEP_EP_H_

#include "ortep/session.h"

// `device` is the session's default. The logger is the session's. Wrong options
// do not fail here but in the session's first compilation: Python sessions take
// an error from here as a reason to go on without the provider.
rabbet_status_t rabbet_ort_ep_create(const OrtSessionOptions* options,
                                     const OrtLogger* logger,
                                     const char* device, bool on_device,
                                     rabbet_timing_cache_t* timing_cache,
                                     OrtEp** out_ep);
void rabbet_ort_ep_destroy(OrtEp* ep);

#endif  // RABBET_SRC_ORTEP_EP_H_
