// What the parts of a session share, and outlives them.
#ifndef RABBET_SRC_ORTEP_SESSION_H_
#define RABBET_SRC_ORTEP_SESSION_H_

#include "ortep/options.h"
#include "rabbet/builder.h"

typedef struct rabbet_ort_session_t {
  rabbet_allocator_t allocator;
  rabbet_logger_t logger;
  rabbet_ort_options_t options;
  rabbet_timing_cache_t* timing_cache;
  bool keeps_double;
  // ONNX Runtime's tensors lie in the GPU's memory; else the host's.
  bool on_device;
} rabbet_ort_session_t;

#endif  // RABBET_SRC_ORTEP_SESSION_H_
