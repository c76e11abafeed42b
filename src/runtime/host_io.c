// Inputs and outputs in the host's memory, for a device with memory of its own.
#include <assert.h>

#include "runtime/runtime.h"

rabbet_status_t rabbet_context_set_host_address(rabbet_context_t* context,
                                                size_t io, void* address) {
  const rabbet_sequence_t* sequence = context->main->sequence;
  RABBET_RETURN_IF_ERROR(rabbet_context_set_address(context, io, address));
  // The host reads shape inputs itself.
  if (!address || sequence->engine->device->host_memory ||
      sequence->ios[io].is_shape_input)
    return rabbet_ok();
  context->host_ios[io].host = address;
  ++context->host_io_count;
  rabbet_frame_store_address(context->main, io,
                             context->host_ios[io].device.memory);
  return rabbet_ok();
}

static void io_memory_free(const rabbet_engine_t* engine,
                           rabbet_io_memory_t* memory, void* stream) {
  rabbet_memory_free(engine->device, &engine->device_allocator, memory->memory,
                     stream);
  *memory = (rabbet_io_memory_t){0};
}

void rabbet_context_free_host_ios(rabbet_context_t* context) {
  const rabbet_sequence_t* sequence = rabbet_engine_main(context->engine);
  for (size_t i = 0; context->host_ios && i < sequence->plan->io_count; ++i)
    io_memory_free(sequence->engine, &context->host_ios[i].device, NULL);
}

void rabbet_frame_free_copies(rabbet_frame_t* frame) {
  const rabbet_sequence_t* sequence = frame->sequence;
  for (size_t i = 0; frame->io_copies && i < sequence->plan->io_count; ++i)
    io_memory_free(sequence->engine, &frame->io_copies[i], NULL);
}

rabbet_status_t rabbet_io_memory_reserve(rabbet_frame_t* frame,
                                         rabbet_io_memory_t* memory, size_t io,
                                         size_t bytes, void* stream) {
  const rabbet_sequence_t* sequence = frame->sequence;
  rabbet_device_t* device = sequence->engine->device;
  assert(bytes != RABBET_BYTES_UNKNOWN);
  if (memory->memory && bytes <= memory->bytes) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_context_await(frame->context, stream));
  io_memory_free(sequence->engine, memory, stream);
  RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
      rabbet_memory_allocate(device, &sequence->engine->device_allocator,
                             bytes > 0 ? bytes : 1, stream, &memory->memory),
      "%zu bytes on '%s' for '%s'", bytes, device->name,
      sequence->ios[io].name));
  memory->bytes = bytes;
  return rabbet_ok();
}

static rabbet_status_t host_io_begin(rabbet_context_t* context, size_t io,
                                     const rabbet_prepared_t* prepared,
                                     void* stream) {
  const rabbet_sequence_t* sequence = context->main->sequence;
  rabbet_device_t* device = sequence->engine->device;
  const rabbet_io_t* tensor = &sequence->ios[io];
  rabbet_host_io_t* host_io = &context->host_ios[io];
  assert(host_io->host && !device->host_memory);
  size_t bytes = prepared->bytes[sequence->plan->ios[io].value];
  if (bytes == RABBET_BYTES_UNKNOWN)
    return RABBET_STATUS(
        RABBET_STATUS_OUT_OF_RANGE,
        "the size of output '%s' has no usable upper bound for "
        "these input shapes",
        tensor->name);
  // In place on the host means in place on the device.
  if (tensor->aliased_input >= 0 &&
      context->host_ios[tensor->aliased_input].host == host_io->host) {
    rabbet_frame_store_address(context->main, io,
                               context->main->addresses[tensor->aliased_input]);
    return rabbet_ok();
  }
  RABBET_RETURN_IF_ERROR(rabbet_io_memory_reserve(
      context->main, &host_io->device, io, bytes, stream));
  rabbet_frame_store_address(context->main, io, host_io->device.memory);
  return tensor->is_input
             ? device->vtable->copy_to_device(device, host_io->device.memory,
                                              host_io->host, bytes, stream)
             : rabbet_ok();
}

rabbet_status_t rabbet_context_begin_host_ios(rabbet_context_t* context,
                                              const rabbet_prepared_t* prepared,
                                              void* stream) {
  const rabbet_sequence_t* sequence = context->main->sequence;
  for (size_t i = 0; i < sequence->plan->io_count; ++i) {
    if (context->host_ios[i].host &&
        sequence->io_segments[i] == prepared->segment)
      RABBET_RETURN_IF_ERROR(host_io_begin(context, i, prepared, stream));
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_context_end_host_ios(rabbet_context_t* context,
                                            const rabbet_prepared_t* leaf,
                                            void* stream) {
  const rabbet_sequence_t* sequence = context->main->sequence;
  rabbet_device_t* device = sequence->engine->device;
  for (size_t i = sequence->plan->input_count; i < sequence->plan->io_count;
       ++i) {
    if (!context->host_ios[i].host) continue;
    assert(leaf->bytes[sequence->plan->ios[i].value] != RABBET_BYTES_UNKNOWN);
    RABBET_RETURN_IF_ERROR(device->vtable->copy_to_host(
        device, context->host_ios[i].host, context->main->addresses[i],
        leaf->bytes[sequence->plan->ios[i].value], stream));
  }
  // Inputs may be changed, and outputs read, as soon as this returns.
  return device->vtable->synchronize(device, stream);
}
