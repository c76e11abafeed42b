// A frame: the state that a context has of one sequence of the plan.
#include "runtime/runtime.h"

static size_t frame_most_reads(const rabbet_frame_t* frame) {
  const rabbet_plan_analysis_t* analysis = &frame->sequence->analysis;
  size_t most = 0;
  for (size_t i = 0; i < analysis->segment_count; ++i)
    if (analysis->segment_reads[i] > most) most = analysis->segment_reads[i];
  return most;
}

rabbet_status_t rabbet_frame_initialize(rabbet_frame_t* frame) {
  const rabbet_sequence_t* sequence = frame->sequence;
  const rabbet_plan_sequence_t* plan = sequence->plan;
  rabbet_status_t status = rabbet_ok();
  assert(sequence->first_place + sequence->analysis.segment_count <=
         sequence->engine->place_count);
#define RABBET_NEXT(count, field)                                       \
  if (rabbet_is_ok(status))                                             \
  status = rabbet_arena_allocate_array(&frame->context->arena, (count), \
                                       sizeof(*frame->field),           \
                                       (void**)&frame->field)
  RABBET_NEXT(plan->io_count, addresses);
  RABBET_NEXT(plan->io_count, io_copies);
  RABBET_NEXT(plan->io_count, output_allocators);
  RABBET_NEXT(plan->io_count, debug_on);
  RABBET_NEXT(plan->io_count, rooms);
  RABBET_NEXT(plan->hidden_count, hidden_bytes);
  RABBET_NEXT(sequence->key_size, key);
  RABBET_NEXT(sequence->key_size, next_key);
  RABBET_NEXT(frame_most_reads(frame), read_key);
  RABBET_NEXT(plan->step_count, graph_reported);
  RABBET_NEXT(plan->step_count, grown);
#undef RABBET_NEXT
  RABBET_RETURN_IF_ERROR(status);
  frame->memory = frame->context->memory + sequence->first_place;
  frame->memory_bytes = frame->context->memory_bytes + sequence->first_place;
  frame->io_generation = 1;  // that of a node that was never bound is 0
  rabbet_frame_own_hidden(frame);
  return rabbet_ok();
}

void rabbet_frame_forget(rabbet_frame_t* frame) {
  frame->current = NULL;
  frame->last = NULL;
  rabbet_prepared_cache_clear(&frame->roots);
}

// ---- Times of steps

static size_t frame_event_count(const rabbet_frame_t* frame) {
  return frame->sequence->plan->step_count +
         frame->sequence->analysis.segment_count;
}

static void frame_destroy_events(rabbet_frame_t* frame) {
  rabbet_device_t* device = frame->context->engine->device;
  if (!frame->events) return;
  assert(device->vtable->destroy_event);
  for (size_t i = 0; i < frame_event_count(frame); ++i) {
    if (frame->events[i])
      device->vtable->destroy_event(device, frame->events[i]);
  }
  rabbet_free(frame->context->allocator, frame->events);
  frame->events = NULL;
}

static rabbet_status_t frame_create_events(rabbet_frame_t* frame) {
  rabbet_device_t* device = frame->context->engine->device;
  if (frame->events || !device->vtable->create_event) return rabbet_ok();
  size_t count = frame_event_count(frame);
  RABBET_RETURN_IF_ERROR(rabbet_allocate(frame->context->allocator,
                                         count * sizeof(*frame->events),
                                         (void**)&frame->events));
  rabbet_status_t status = rabbet_ok();
  for (size_t i = 0; i < count && rabbet_is_ok(status); ++i)
    status = device->vtable->create_event(device, &frame->events[i]);
  if (!rabbet_is_ok(status)) frame_destroy_events(frame);
  return RABBET_ANNOTATE(status, "%zu events for the times of layers", count);
}

rabbet_status_t rabbet_frame_time_steps(rabbet_frame_t* frame) {
  size_t count = frame->sequence->plan->step_count;
  if (!frame->times)
    RABBET_RETURN_IF_ERROR(rabbet_allocate(frame->context->allocator,
                                           (count + 1) * sizeof(*frame->times),
                                           (void**)&frame->times));
  return frame_create_events(frame);
}

// ---- The end

void rabbet_frame_deinitialize(rabbet_frame_t* frame) {
  rabbet_context_t* context = frame->context;
  rabbet_frame_free_copies(frame);
  rabbet_frame_free_hidden(frame);
  rabbet_frame_free_grown(frame);
  rabbet_host_free(context->engine, frame->check_places);
  frame_destroy_events(frame);
  rabbet_free(context->allocator, frame->times);
}
