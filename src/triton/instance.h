// An instance of a model: contexts, memory, and the calls that it serves. The
// server calls an instance on one thread at a time.
#ifndef RABBET_SRC_TRITON_INSTANCE_H_
#define RABBET_SRC_TRITON_INSTANCE_H_

#include "triton/answer.h"
#include "triton/call.h"
#include "triton/model.h"

// One is computed while another is answered.
enum { RABBET_TRITON_CALLS = 2 };

typedef struct rabbet_triton_instance_t {
  rabbet_triton_model_t* model;
  TRITONBACKEND_ModelInstance* handle;
  rabbet_engine_t* engine;      // borrowed from the model
  int64_t gpu;                  // -1: the engine computes in the host's memory
  void* stream;                 // of runs and inputs
  void* answer_stream;          // of outputs
  rabbet_context_t** contexts;  // [profile]; NULL until it is needed
  rabbet_triton_staging_t* staging;   // [input]
  struct rabbet_triton_told_t* told;  // [io], for output allocators
  rabbet_triton_call_t calls[RABBET_TRITON_CALLS];
  rabbet_triton_call_t* call;  // that is computed
  rabbet_triton_answers_t answers;
} rabbet_triton_instance_t;

typedef struct rabbet_triton_told_t {
  rabbet_triton_instance_t* instance;
  size_t io;
} rabbet_triton_told_t;

rabbet_status_t rabbet_triton_instance_create(
    rabbet_triton_model_t* model, TRITONBACKEND_ModelInstance* handle,
    rabbet_triton_instance_t** out_instance);
// Waits until all requests are answered.
void rabbet_triton_instance_destroy(rabbet_triton_instance_t* instance);

// The context for a profile.
rabbet_status_t rabbet_triton_instance_context(
    rabbet_triton_instance_t* instance, size_t profile,
    rabbet_context_t** out_context);
// At least `size` bytes, aligned to 64; what was there is lost.
rabbet_status_t rabbet_triton_instance_stage(rabbet_triton_instance_t* instance,
                                             rabbet_triton_staging_t* staging,
                                             bool on_device, size_t size,
                                             rabbet_triton_place_t* out_place);

// Takes requests over: each is answered and released, at the latest when the
// instance is destroyed. On failure they are untouched.
rabbet_status_t rabbet_triton_instance_serve(rabbet_triton_instance_t* instance,
                                             TRITONBACKEND_Request** requests,
                                             size_t count);

#endif  // RABBET_SRC_TRITON_INSTANCE_H_
