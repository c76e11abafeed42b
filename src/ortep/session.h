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
  // ONNX Runtime's tensors lie in the memory of GPU `ordinal`, but for those
  // that it keeps in the host's; else all lie in the host's.
  bool on_device;
  int ordinal;
} rabbet_ort_session_t;

#endif  // RABBET_SRC_ORTEP_SESSION_H_
