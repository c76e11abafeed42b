// Requests of different shapes as one batch (Triton's ragged batching): their
// tensors are put one after the other, batch inputs tell the plan where each
// begins, batch outputs are divided by the shapes of an input.
#ifndef RABBET_SRC_TRITON_RAGGED_H_
#define RABBET_SRC_TRITON_RAGGED_H_

#include "triton/call.h"

// Whether the configuration has batch inputs or batch outputs.
bool rabbet_triton_is_ragged(const cJSON* config);
// Whether an input or output is the target of one of them.
bool rabbet_triton_is_ragged_target(const cJSON* config, const rabbet_io_t* io);
// Whether an input is what a batch input counts.
bool rabbet_triton_is_ragged_source(const cJSON* config, const rabbet_io_t* io);
// The largest batch for which the profiles leave room in batch inputs; 0: these
// tell nothing of it.
int64_t rabbet_triton_ragged_limit(const cJSON* config,
                                   const rabbet_triton_plan_t* plan);

// Reads batch inputs and outputs into `uses`, whose roles and ranks are known.
rabbet_status_t rabbet_triton_ragged_read(const cJSON* config,
                                          const rabbet_triton_plan_t* plan,
                                          rabbet_triton_use_t* uses);

// The shape of an input for requests of a call as one batch.
void rabbet_triton_joined_dims(const rabbet_triton_model_t* model,
                               const rabbet_triton_call_t* call,
                               const uint32_t* group, size_t count, size_t io,
                               rabbet_dims_t* out_dims);
// Fills a batch input of such a shape. OUT_OF_RANGE: its type cannot hold a
// number.
rabbet_status_t rabbet_triton_ragged_fill(const rabbet_triton_model_t* model,
                                          const rabbet_triton_call_t* call,
                                          const uint32_t* group, size_t count,
                                          size_t io, void* data);
// The shape of a request's part of a batch output.
void rabbet_triton_scattered_dims(const rabbet_triton_use_t* use,
                                  const rabbet_triton_call_t* call,
                                  size_t request, rabbet_dims_t* out_dims);

#endif  // RABBET_SRC_TRITON_RAGGED_H_
