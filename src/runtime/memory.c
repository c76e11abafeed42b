// Memory of the device for engines and contexts.
#include <assert.h>

#include "base/math.h"
#include "runtime/runtime.h"

rabbet_status_t rabbet_memory_allocate(
    rabbet_device_t* device, const rabbet_device_allocator_t* allocator,
    size_t size, void* stream, void** out_memory) {
  *out_memory = NULL;
  assert(size > 0);
  if (!allocator->allocate)
    return device->vtable->allocate(device, size, out_memory);
  void* memory = allocator->allocate(allocator->user_data, size,
                                     RABBET_DEVICE_ALIGNMENT, stream);
  if (!memory)
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_MEMORY,
                         "the caller's allocator gave no memory for %zu bytes",
                         size);
  if ((uintptr_t)memory % RABBET_DEVICE_ALIGNMENT != 0) {
    if (allocator->free) allocator->free(allocator->user_data, memory, stream);
    return RABBET_STATUS(
        RABBET_STATUS_INVALID_ARGUMENT,
        "the caller's allocator gave %p for %zu bytes; it must "
        "be aligned to %d",
        memory, size, RABBET_DEVICE_ALIGNMENT);
  }
  *out_memory = memory;
  return rabbet_ok();
}

void rabbet_memory_free(rabbet_device_t* device,
                        const rabbet_device_allocator_t* allocator,
                        void* memory, void* stream) {
  if (!memory) return;
  if (!allocator->allocate)
    device->vtable->free(device, memory);
  else if (allocator->free)
    allocator->free(allocator->user_data, memory, stream);
}

// Which allocator a context uses.
static const rabbet_device_allocator_t* context_allocator(
    const rabbet_context_t* context) {
  return context->device_allocator.allocate
             ? &context->device_allocator
             : &context->engine->device_allocator;
}

// ---- A context's memory

// No work uses the memory any more; the stream of the last run may be gone.
void rabbet_context_free_memory(rabbet_context_t* context) {
  for (size_t i = 0; context->memory_bytes && i < context->engine->place_count;
       ++i) {
    if (!context->has_given_memory)
      rabbet_memory_free(context->engine->device, context_allocator(context),
                         context->memory[i], NULL);
    context->memory[i] = NULL;
    context->memory_bytes[i] = 0;
  }
  ++context->memory_generation;
}

static rabbet_status_t context_settle(const rabbet_context_t* context) {
  rabbet_device_t* device = context->engine->device;
  return device->vtable->synchronize_all
             ? device->vtable->synchronize_all(device)
             : rabbet_ok();
}

rabbet_status_t rabbet_context_await(const rabbet_context_t* context,
                                     void* stream) {
  rabbet_device_t* device = context->engine->device;
  RABBET_RETURN_IF_ERROR(rabbet_context_refuse_recording(context, stream));
  return context->running ? device->vtable->synchronize(device, stream)
                          : context_settle(context);
}

// Takes a place from the caller's memory, behind the places before it.
static rabbet_status_t context_take_given(rabbet_context_t* context,
                                          size_t place, size_t bytes) {
  assert(bytes % RABBET_DEVICE_ALIGNMENT == 0);
  size_t before = 0;
  for (size_t i = 0; i < place; ++i)
    before += context->memory_bytes[i];
  if (bytes > context->given_bytes || before > context->given_bytes - bytes)
    return RABBET_STATUS(
        RABBET_STATUS_FAILED_PRECONDITION,
        "the context was given %zu bytes of memory, and a run with these "
        "shapes "
        "needs %zu: give it more (rabbet_context_memory_bytes, "
        "update_device_memory_size_for_shapes tell how much)",
        context->given_bytes, before + bytes);
  for (size_t i = place; i < context->engine->place_count; ++i)
    context->memory_bytes[i] = 0;
  context->memory[place] = context->given_memory + before;
  context->memory_bytes[place] = bytes;
  return rabbet_ok();
}

static rabbet_status_t context_grow(rabbet_context_t* context, size_t place,
                                    size_t bytes, void* stream) {
  rabbet_device_t* device = context->engine->device;
  const rabbet_device_allocator_t* allocator = context_allocator(context);
  assert(bytes > context->memory_bytes[place]);
  rabbet_memory_free(device, allocator, context->memory[place], stream);
  context->memory[place] = NULL;
  context->memory_bytes[place] = 0;
  RABBET_RETURN_IF_ERROR(
      RABBET_ANNOTATE(rabbet_memory_allocate(device, allocator, bytes, stream,
                                             &context->memory[place]),
                      "%zu bytes for intermediate tensors", bytes));
  context->memory_bytes[place] = bytes;
  return rabbet_ok();
}

rabbet_status_t rabbet_frame_reserve(rabbet_frame_t* frame, int32_t segment,
                                     size_t bytes, void* stream) {
  rabbet_context_t* context = frame->context;
  size_t place = frame->sequence->first_place + (size_t)segment;
  assert(place < context->engine->place_count);
  // Empty tensors and kernels without workspace get a valid address too.
  if (bytes < RABBET_DEVICE_ALIGNMENT) bytes = RABBET_DEVICE_ALIGNMENT;
  bytes = rabbet_align_up(bytes, RABBET_DEVICE_ALIGNMENT);
  if (bytes <= context->memory_bytes[place]) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_context_await(context, stream));
  ++context->memory_generation;
  return context->has_given_memory
             ? context_take_given(context, place, bytes)
             : context_grow(context, place, bytes, stream);
}

rabbet_status_t rabbet_context_set_device_allocator(
    rabbet_context_t* context, rabbet_device_allocator_t allocator) {
  if (context->has_given_memory)
    return RABBET_STATUS(RABBET_STATUS_FAILED_PRECONDITION,
                         "the caller gives this context its memory: it asks no "
                         "allocator for any");
  RABBET_RETURN_IF_ERROR(context_settle(context));
  rabbet_context_free_memory(context);
  context->device_allocator = allocator;
  return rabbet_ok();
}

rabbet_status_t rabbet_context_set_memory(rabbet_context_t* context,
                                          void* memory, size_t size) {
  if ((uintptr_t)memory % RABBET_DEVICE_ALIGNMENT != 0)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "a context's memory at %p: expected a multiple of %d",
                         memory, RABBET_DEVICE_ALIGNMENT);
  if (!memory && size > 0)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "%zu bytes of memory, but the address is NULL", size);
  RABBET_RETURN_IF_ERROR(context_settle(context));
  rabbet_context_free_memory(context);
  context->has_given_memory = true;
  context->given_memory = memory;
  context->given_bytes = size;
  context->is_unprepared = true;
  return rabbet_ok();
}
