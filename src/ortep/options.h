// A session's options for the provider.
#ifndef RABBET_SRC_ORTEP_OPTIONS_H_
#define RABBET_SRC_ORTEP_OPTIONS_H_

#include "base/arena.h"
#include "base/vec.h"
#include "ortep/ort.h"

// Extents of a dimension: of a name, or of an axis of an input.
typedef struct rabbet_ort_range_t {
  const char* name;  // "batch", or "x[0]"
  int64_t min, opt, max;
} rabbet_ort_range_t;

typedef struct rabbet_ort_options_t {
  rabbet_arena_t arena;  // has the texts
  const char* device;
  int64_t threads;  // 0: all
  bool fp16, bf16, tf32;
  int64_t level;  // of optimization
  int64_t least_nodes;
  const char* timing_cache;  // a file; NULL: the process's
  RABBET_VEC(const char*) plugins;
  RABBET_VEC(rabbet_ort_range_t) ranges;
  // ONNX Runtime's own, of models with plans in them.
  bool context_enable, context_embed;
  const char* context_file;  // "": beside the model
} rabbet_ort_options_t;

// `device` is the default. INVALID_ARGUMENT names the key, what is expected of
// it and what was found.
rabbet_status_t rabbet_ort_options_initialize(
    const OrtSessionOptions* session, const char* device,
    rabbet_allocator_t allocator, rabbet_ort_options_t* out_options);
void rabbet_ort_options_deinitialize(rabbet_ort_options_t* options);
// Extents that the options give for an axis of an input; NULL: none. A range
// for the axis goes before one for the dimension's name, which may be NULL.
const rabbet_ort_range_t* rabbet_ort_options_range(
    const rabbet_ort_options_t* options, const char* input, int32_t axis,
    const char* dim_name);

// Whether a range is for that axis, or for a dimension of that name.
bool rabbet_ort_range_fits(const rabbet_ort_range_t* range, const char* input,
                           int32_t axis, const char* dim_name);

#endif  // RABBET_SRC_ORTEP_OPTIONS_H_
