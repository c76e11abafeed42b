// Builds plans of a part.
#ifndef RABBET_SRC_ORTEP_BUILD_H_
#define RABBET_SRC_ORTEP_BUILD_H_

#include "ortep/model.h"
#include "ortep/plan.h"

// `bounds` of each input of the model; extents that do not vary are fixed in
// the network.
rabbet_status_t rabbet_ort_build(const rabbet_ort_session_t* session,
                                 const rabbet_ort_model_t* model,
                                 const rabbet_ort_bounds_t* bounds,
                                 rabbet_engine_t** out_engine);
// Loads a plan's bytes, or the file at `path` if it is not NULL.
rabbet_status_t rabbet_ort_load(const rabbet_ort_session_t* session,
                                const void* data, size_t size, const char* path,
                                rabbet_engine_t** out_engine);

#endif  // RABBET_SRC_ORTEP_BUILD_H_
