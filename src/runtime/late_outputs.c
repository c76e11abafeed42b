// Outputs of calls whose size only the call tells.
//
// They lie in memory of the caller's frame, which grows, until the next segment
// has memory for them; then they are copied there once.
#include "base/math.h"
#include "runtime/call.h"

// ---- Memory that grows

rabbet_status_t rabbet_frame_grow(const rabbet_frame_t* frame,
                                  rabbet_io_memory_t* memory, size_t bytes,
                                  size_t kept, void* stream) {
  rabbet_engine_t* engine = frame->context->engine;
  rabbet_device_t* device = engine->device;
  void* larger = NULL;
  assert(kept <= memory->bytes);
  if (memory->memory && bytes <= memory->bytes) return rabbet_ok();
  if (bytes < 2 * memory->bytes) bytes = 2 * memory->bytes;
  bytes = rabbet_align_up(bytes + 1, RABBET_DEVICE_ALIGNMENT);
  RABBET_RETURN_IF_ERROR(
      rabbet_context_refuse_recording(frame->context, stream));
  RABBET_RETURN_IF_ERROR(rabbet_memory_allocate(
      device, &engine->device_allocator, bytes, stream, &larger));
  rabbet_status_t status = rabbet_ok();
  if (kept > 0)
    status = device->vtable->copy(device, larger, memory->memory, kept, stream);
  status =
      rabbet_status_join(status, device->vtable->synchronize(device, stream));
  rabbet_memory_free(device, &engine->device_allocator, memory->memory, stream);
  *memory = (rabbet_io_memory_t){.memory = larger, .bytes = bytes};
  return status;
}

rabbet_status_t rabbet_frame_find_grown(const rabbet_frame_t* frame,
                                        size_t step, size_t count,
                                        rabbet_io_memory_t** out_list) {
  rabbet_grown_t* grown = &frame->grown[step];
  assert(!grown->list || grown->count == count);
  *out_list = NULL;
  if (!grown->list) {
    RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
        &frame->context->arena, count + 1, sizeof(*grown->list),
        (void**)&grown->list));
    grown->count = count;
  }
  *out_list = grown->list;
  return rabbet_ok();
}

void rabbet_frame_free_grown(rabbet_frame_t* frame) {
  rabbet_engine_t* engine = frame->context->engine;
  for (size_t s = 0; frame->grown && s < frame->sequence->plan->step_count; ++s)
    for (size_t i = 0; i < frame->grown[s].count; ++i)
      rabbet_memory_free(engine->device, &engine->device_allocator,
                         frame->grown[s].list[i].memory, NULL);
}

// ---- Outputs of a branch

// An output for which the branch asks memory once it knows its size.
struct rabbet_late_output_t {
  const rabbet_frame_t* frame;
  rabbet_frame_t* callee;
  rabbet_io_memory_t* memory;
  size_t io;  // of the callee
};

static void* late_reallocate(void* user_data, const char* name, void* current,
                             size_t size, size_t alignment, void* stream) {
  const rabbet_late_output_t* late = user_data;
  (void)current, (void)alignment;
  rabbet_status_t status =
      rabbet_frame_grow(late->frame, late->memory, size, 0, stream);
  if (!rabbet_is_ok(status)) {
    rabbet_log(late->frame->context->engine->logger, RABBET_SEVERITY_ERROR,
               "memory for '%s', which a branch makes: %s", name,
               rabbet_status_message(status));
    rabbet_status_ignore(status);
    return NULL;
  }
  late->callee->rooms[late->io] = late->memory->bytes;
  return late->memory->memory;
}

static bool output_is_late(const rabbet_prepared_t* prepared,
                           const rabbet_plan_step_t* step, size_t output) {
  return prepared->bytes[step->values[step->group.outputs[output]]] ==
         RABBET_BYTES_UNKNOWN;
}

rabbet_status_t rabbet_late_begin(const rabbet_frame_t* frame,
                                  const rabbet_prepared_t* prepared,
                                  const rabbet_run_t* run,
                                  rabbet_late_output_t** out_late) {
  const rabbet_plan_step_t* step = &frame->sequence->plan->steps[run->step];
  rabbet_frame_t* callee = run->callee;
  size_t count = step->group.output_count, some = 0;
  rabbet_io_memory_t* memory = NULL;
  *out_late = NULL;
  for (size_t i = 0; i < count; ++i)
    some += output_is_late(prepared, step, i);
  if (some == 0) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(
      rabbet_frame_find_grown(frame, run->step, count, &memory));
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      frame->context->allocator, count * sizeof(**out_late), (void**)out_late));
  for (size_t i = 0; i < count; ++i) {
    size_t io = callee->sequence->plan->input_count + i;
    if (!output_is_late(prepared, step, i)) continue;
    (*out_late)[i] = (rabbet_late_output_t){frame, callee, &memory[i], io};
    callee->output_allocators[io] = (rabbet_output_allocator_t){
        .user_data = &(*out_late)[i], .reallocate = late_reallocate};
    ++callee->allocator_count;
  }
  return rabbet_ok();
}

void rabbet_late_end(const rabbet_frame_t* frame, const rabbet_run_t* run,
                     rabbet_late_output_t* late) {
  const rabbet_plan_step_t* step = &frame->sequence->plan->steps[run->step];
  for (size_t i = 0; late && i < step->group.output_count; ++i) {
    if (!late[i].callee) continue;
    late[i].callee->output_allocators[late[i].io] =
        (rabbet_output_allocator_t){.reallocate = NULL};
    --late[i].callee->allocator_count;
  }
  rabbet_free(frame->context->allocator, late);
}

void rabbet_late_collect(const rabbet_frame_t* frame,
                         const rabbet_prepared_t* prepared,
                         const rabbet_run_t* run) {
  const rabbet_plan_step_t* step = &frame->sequence->plan->steps[run->step];
  const rabbet_frame_t* callee = run->callee;
  const rabbet_plan_sequence_t* plan = callee->sequence->plan;
  for (size_t i = 0; i < step->group.output_count; ++i) {
    size_t io = plan->input_count + i;
    int32_t value = plan->ios[io].value;
    rabbet_call_result_t* result = &run->results[i];
    *result = (rabbet_call_result_t){.dims = callee->last->dims[value]};
    if (!output_is_late(prepared, step, i)) continue;
    result->late = callee->addresses[io];
    result->late_bytes = callee->last->bytes[value];
  }
}

// ---- The next segment

rabbet_status_t rabbet_call_copy_late(const rabbet_frame_t* frame,
                                      const rabbet_prepared_t* prepared,
                                      void* stream) {
  rabbet_device_t* device = frame->context->engine->device;
  const rabbet_prepared_t* before = prepared->parent;
  if (!before || before->run_count == 0) return rabbet_ok();
  const rabbet_run_t* run = &before->runs[before->run_count - 1];
  const rabbet_plan_step_t* step = &frame->sequence->plan->steps[run->step];
  for (size_t i = 0; run->results && i < step->group.output_count; ++i) {
    int32_t value = step->values[step->group.outputs[i]];
    const rabbet_call_result_t* result = &run->results[i];
    size_t bytes = prepared->bytes[value];
    if (!result->late || bytes == 0) continue;
    if (bytes > result->late_bytes)
      return RABBET_STATUS(
          RABBET_STATUS_OUT_OF_RANGE, "'%s' has %zu bytes; the step made %zu",
          frame->sequence->plan->values[value].name, bytes, result->late_bytes);
    RABBET_RETURN_IF_ERROR(device->vtable->copy(
        device, rabbet_value_address(frame, prepared, value), result->late,
        bytes, stream));
  }
  return rabbet_ok();
}
