// The requests of one call of the server, from reading to release.
#ifndef RABBET_SRC_TRITON_CALL_H_
#define RABBET_SRC_TRITON_CALL_H_

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
  TRITONBACKEND_Response* response;  // NULL: there is none yet
  rabbet_status_t status;            // why this request failed
  int64_t rows;                      // its batch; 1 if the model has none
  bool done;
  uint64_t compute_begin, compute_end;
} rabbet_triton_request_t;

// A request's input or output.
typedef struct rabbet_triton_tensor_t {
  rabbet_dims_t dims;
  size_t bytes;
  size_t offset;  // of an output, in that of the batch
  TRITONBACKEND_Input* input;
  uint32_t buffer_count;
  bool wanted;                  // an output of the response
  rabbet_triton_place_t place;  // of an output; no data: not asked for yet
  TRITONBACKEND_State* state;
} rabbet_triton_tensor_t;

typedef struct rabbet_triton_call_t {
  rabbet_triton_request_t* requests;
  rabbet_triton_tensor_t* tensors;  // [request][io]
  uint32_t* group;                  // requests that ran as one batch
  size_t group_count;
  size_t count, capacity;  // of requests
  size_t io_count;
  uint64_t begin;
  // Of the batch that ran last, [io].
  rabbet_triton_staging_t* staging;  // of outputs
  rabbet_dims_t* dims;
  bool* direct;                   // computed into a request's memory
  rabbet_triton_place_t* places;  // where other outputs were computed
  // Its outputs are still to be given to the requests: all of these are the
  // batch, but for those that failed before.
  bool is_undivided;
  // Guarded by the lock of the instance's answers.
  size_t taken, divided, left;  // requests
  bool is_free;
  struct rabbet_triton_call_t* next;
} rabbet_triton_call_t;

rabbet_status_t rabbet_triton_call_initialize(rabbet_allocator_t allocator,
                                              size_t io_count,
                                              rabbet_triton_call_t* out_call);
// Zeros are fine. Staging is the instance's to free.
void rabbet_triton_call_deinitialize(rabbet_allocator_t allocator,
                                     rabbet_triton_call_t* call);
// Room for requests and their tensors, zeroed.
rabbet_status_t rabbet_triton_call_reserve(rabbet_allocator_t allocator,
                                           size_t requests,
                                           rabbet_triton_call_t* call);

static inline rabbet_triton_tensor_t* rabbet_triton_call_tensor(
    const rabbet_triton_call_t* call, size_t request, size_t io) {
  return &call->tensors[request * call->io_count + io];
}

#endif  // RABBET_SRC_TRITON_CALL_H_
