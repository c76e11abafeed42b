#include "triton/call.h"

#include <string.h>

rabbet_status_t rabbet_triton_call_initialize(rabbet_allocator_t allocator,
                                              size_t io_count,
                                              rabbet_triton_call_t* out_call) {
  rabbet_triton_call_t call = {.io_count = io_count, .is_free = true};
  const struct {
    void** array;
    size_t bytes;
  } arrays[] = {
      {(void**)&call.staging, io_count * sizeof(*call.staging)},
      {(void**)&call.dims, io_count * sizeof(*call.dims)},
      {(void**)&call.direct, io_count * sizeof(*call.direct)},
      {(void**)&call.places, io_count * sizeof(*call.places)},
  };
  *out_call = (rabbet_triton_call_t){0};
  for (size_t i = 0; i < sizeof(arrays) / sizeof(*arrays); ++i) {
    rabbet_status_t status =
        rabbet_allocate(allocator, arrays[i].bytes, arrays[i].array);
    if (rabbet_is_ok(status)) continue;
    rabbet_triton_call_deinitialize(allocator, &call);
    return status;
  }
  *out_call = call;
  return rabbet_ok();
}

void rabbet_triton_call_deinitialize(rabbet_allocator_t allocator,
                                     rabbet_triton_call_t* call) {
  void* const arrays[] = {call->staging, call->dims,     call->direct,
                          call->places,  call->requests, call->tensors,
                          call->group};
  for (size_t i = 0; i < sizeof(arrays) / sizeof(*arrays); ++i)
    rabbet_free(allocator, arrays[i]);
  *call = (rabbet_triton_call_t){0};
}

rabbet_status_t rabbet_triton_call_reserve(rabbet_allocator_t allocator,
                                           size_t requests,
                                           rabbet_triton_call_t* call) {
  size_t tensors = requests * call->io_count;
  if (requests > call->capacity) {
    RABBET_RETURN_IF_ERROR(rabbet_reallocate(allocator,
                                             requests * sizeof(*call->requests),
                                             (void**)&call->requests));
    RABBET_RETURN_IF_ERROR(rabbet_reallocate(
        allocator, tensors * sizeof(*call->tensors), (void**)&call->tensors));
    RABBET_RETURN_IF_ERROR(rabbet_reallocate(
        allocator, requests * sizeof(*call->group), (void**)&call->group));
    call->capacity = requests;
  }
  memset(call->requests, 0, requests * sizeof(*call->requests));
  memset(call->tensors, 0, tensors * sizeof(*call->tensors));
  call->count = requests;
  return rabbet_ok();
}
