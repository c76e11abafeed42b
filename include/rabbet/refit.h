// New weights for a loaded plan that was built for it (RABBET_BUILDER_REFIT),
// and the missing ones of a plan that was stripped.
#ifndef RABBET_REFIT_H_
#define RABBET_REFIT_H_

#include "rabbet/engine.h"

RABBET_EXTERN_C_BEGIN

typedef struct rabbet_refitter_t rabbet_refitter_t;

// Weights that can be set.
typedef struct rabbet_refit_info_t {
  uint32_t struct_size;  // set by the caller
  const char* name;      // of the network's tensor
  const char* layer;     // that reads them first, or that is the constant; ""
  int32_t role;          // number of TensorRT's WeightsRole in that layer
  rabbet_dtype_t dtype;
  rabbet_dims_t dims;
  bool is_missing;      // the plan lacks them, and they were not set yet
  uint8_t reserved[7];  // 0
} rabbet_refit_info_t;

// Retains the engine. FAILED_PRECONDITION for an engine whose plan was not
// built for refitting, or that is only to be inspected.
RABBET_API rabbet_status_t
rabbet_refitter_create(rabbet_engine_t* engine, rabbet_allocator_t allocator,
                       rabbet_refitter_t** out_refitter);
RABBET_API void rabbet_refitter_destroy(rabbet_refitter_t* refitter);

RABBET_API size_t rabbet_refitter_count(const rabbet_refitter_t* refitter);
// OUT_OF_RANGE beyond the last. Texts are borrowed from the engine.
RABBET_API rabbet_status_t
rabbet_refitter_info(const rabbet_refitter_t* refitter, size_t index,
                     rabbet_refit_info_t* out_info);
// NOT_FOUND names the nearest that there are.
RABBET_API rabbet_status_t rabbet_refitter_find(
    const rabbet_refitter_t* refitter, const char* name, size_t* out_index);
// The same by layer and role.
RABBET_API rabbet_status_t
rabbet_refitter_find_role(const rabbet_refitter_t* refitter, const char* layer,
                          int32_t role, size_t* out_index);

// Host data of the type and number of elements that info tells; must stay until
// they are committed or unset.
RABBET_API rabbet_status_t rabbet_refitter_set(rabbet_refitter_t* refitter,
                                               size_t index,
                                               rabbet_weights_t weights);
RABBET_API rabbet_status_t rabbet_refitter_unset(rabbet_refitter_t* refitter,
                                                 size_t index);
// The weights that were set; data is NULL if none were.
RABBET_API rabbet_status_t
rabbet_refitter_get(const rabbet_refitter_t* refitter, size_t index,
                    rabbet_weights_t* out_weights);

// ---- Ranges of tensors that may be read as 8 bits --------------------------
// (RABBET_BUILDER_INT8): those that the plan reads so.

RABBET_API size_t
rabbet_refitter_range_count(const rabbet_refitter_t* refitter);
// The tensor, and the largest absolute value that its 8 bits stand for: as set,
// else the engine's. OUT_OF_RANGE beyond the last.
RABBET_API rabbet_status_t
rabbet_refitter_range(const rabbet_refitter_t* refitter, size_t index,
                      const char** out_tensor, float* out_range);
// NOT_FOUND names the nearest that there are.
RABBET_API rabbet_status_t rabbet_refitter_find_range(
    const rabbet_refitter_t* refitter, const char* tensor, size_t* out_index);
// As rabbet_tensor_set_range; from the next commit on.
RABBET_API rabbet_status_t rabbet_refitter_set_range(
    rabbet_refitter_t* refitter, size_t index, float min, float max);

// Puts the weights that were set into the engine, whose contexts and stream
// readers must be at rest, and forgets them. FAILED_PRECONDITION names missing
// weights; nothing has changed then. After a later failure the engine refuses
// to run until it was refitted.
RABBET_API rabbet_status_t rabbet_refitter_commit(rabbet_refitter_t* refitter);

// Whether the plan was built for it.
RABBET_API bool rabbet_engine_is_refittable(const rabbet_engine_t* engine);
// Bytes of all weights, and of those stripped from the plan.
RABBET_API void rabbet_engine_weights_bytes(const rabbet_engine_t* engine,
                                            uint64_t* out_total,
                                            uint64_t* out_stripped);
// The plan without the weights that can be refitted. Caller frees with
// rabbet_free_aligned(allocator, plan, 64).
RABBET_API rabbet_status_t rabbet_engine_stripped_plan(
    const rabbet_engine_t* engine, rabbet_allocator_t allocator,
    void** out_data, size_t* out_size);

RABBET_EXTERN_C_END
#endif  // RABBET_REFIT_H_
