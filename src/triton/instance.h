// An instance of a model: contexts, memory, and the batch that it runs. The
// server calls an instance on one thread at a time.
#ifndef RABBET_SRC_TRITON_INSTANCE_H_
#define RABBET_SRC_TRITON_INSTANCE_H_

#include "triton/model.h"

// Memory that the server or we have.
typedef struct rabbet_triton_place_t {
  void* data;
  TRITONSERVER_MemoryType type;
  int64_t id;
} rabbet_triton_place_t;

// Memory of an input or output for requests whose own cannot be used: those of
// several that are one batch, and data at an address that is not aligned.
typedef struct rabbet_triton_staging_t {
  void* memory[2];  // of the host, of the device
  size_t size[2];
} rabbet_triton_staging_t;

typedef struct rabbet_triton_request_t {
  TRITONBACKEND_Request* handle;
  TRITONBACKEND_Response* response;  // NULL: it could not be made
  rabbet_status_t status;            // why this request failed
  int64_t rows;                      // its batch; 1 if the model has none
  bool done;
  uint64_t compute_begin, compute_end;
} rabbet_triton_request_t;

// A request's input or output.
typedef struct rabbet_triton_tensor_t {
  rabbet_dims_t dims;
  size_t bytes;
  TRITONBACKEND_Input* input;
  uint32_t buffer_count;
  bool wanted;                  // an output of the response
  rabbet_triton_place_t place;  // of an output; no data: not asked for yet
  TRITONBACKEND_State* state;
} rabbet_triton_tensor_t;

typedef struct rabbet_triton_instance_t {
  rabbet_triton_model_t* model;
  TRITONBACKEND_ModelInstance* handle;
  rabbet_engine_t* engine;  // borrowed from the model
  int64_t gpu;              // -1: the engine computes in the host's memory
  void* stream;
  rabbet_context_t** contexts;        // [profile]; NULL until it is needed
  rabbet_triton_staging_t* staging;   // [io]
  rabbet_dims_t* dims;                // [io] of the batch that runs
  bool* direct;                       // [io] computed into a request's memory
  rabbet_triton_place_t* places;      // [io] where other outputs are computed
  struct rabbet_triton_told_t* told;  // [io], for output allocators
  // The requests that are being served, and their tensors.
  rabbet_triton_request_t* requests;
  rabbet_triton_tensor_t* tensors;  // [request][io]
  uint32_t* group;                  // requests that run as one batch
  size_t capacity;                  // of requests
} rabbet_triton_instance_t;

typedef struct rabbet_triton_told_t {
  rabbet_triton_instance_t* instance;
  size_t io;
} rabbet_triton_told_t;

rabbet_status_t rabbet_triton_instance_create(
    rabbet_triton_model_t* model, TRITONBACKEND_ModelInstance* handle,
    rabbet_triton_instance_t** out_instance);
void rabbet_triton_instance_destroy(rabbet_triton_instance_t* instance);

// The context for a profile.
rabbet_status_t rabbet_triton_instance_context(
    rabbet_triton_instance_t* instance, size_t profile,
    rabbet_context_t** out_context);
// At least `size` bytes, aligned to 64; what was there is lost.
rabbet_status_t rabbet_triton_instance_stage(rabbet_triton_instance_t* instance,
                                             size_t io, bool on_device,
                                             size_t size,
                                             rabbet_triton_place_t* out_place);
// Room for requests and their tensors, zeroed.
rabbet_status_t rabbet_triton_instance_reserve(
    rabbet_triton_instance_t* instance, size_t requests);

// Serves requests: answers and releases each. On failure they are untouched.
rabbet_status_t rabbet_triton_instance_serve(rabbet_triton_instance_t* instance,
                                             TRITONBACKEND_Request** requests,
                                             size_t count);

static inline rabbet_triton_tensor_t* rabbet_triton_instance_tensor(
    rabbet_triton_instance_t* instance, size_t request, size_t io) {
  return &instance->tensors[request * instance->model->plan.io_count + io];
}

#endif  // RABBET_SRC_TRITON_INSTANCE_H_
