// The loop that runs steps.
#include <assert.h>
#include <string.h>

#include "base/math.h"
#include "runtime/graph.h"

// ---- Output allocators

static rabbet_status_t ask_output_allocators(rabbet_frame_t* frame,
                                             const rabbet_prepared_t* prepared,
                                             void* stream) {
  const rabbet_sequence_t* sequence = frame->sequence;
  for (size_t i = sequence->plan->input_count; i < sequence->plan->io_count;
       ++i) {
    const rabbet_output_allocator_t* allocator = &frame->output_allocators[i];
    if (!allocator->reallocate || sequence->io_segments[i] != prepared->segment)
      continue;
    size_t bytes = prepared->bytes[sequence->plan->ios[i].value];
    if (bytes == RABBET_BYTES_UNKNOWN)
      return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                           "the size of output '%s' has no usable upper bound "
                           "for these input shapes",
                           sequence->ios[i].name);
    // An empty tensor asks for a byte, so that NULL always means failure.
    void* address = allocator->reallocate(
        allocator->user_data, sequence->ios[i].name, frame->addresses[i],
        bytes ? bytes : 1, 256, stream);
    if (!address)
      return RABBET_STATUS(RABBET_STATUS_OUT_OF_MEMORY,
                           "the output allocator of '%s' gave no memory for "
                           "%zu bytes",
                           sequence->ios[i].name, bytes);
    if (!rabbet_frame_is_main(frame))
      rabbet_frame_store_address(frame, i, address);
    else
      RABBET_RETURN_IF_ERROR(
          allocator->host
              ? rabbet_context_set_host_address(frame->context, i, address)
              : rabbet_context_set_address(frame->context, i, address));
  }
  return rabbet_ok();
}

// ---- Steps

static rabbet_status_t step_failed(const rabbet_frame_t* frame, size_t step,
                                   rabbet_status_t status) {
  const rabbet_plan_step_t* at = &frame->sequence->plan->steps[step];
  return rabbet_status_annotate(status, "step '%s' (kernel '%s')", at->name,
                                at->kernel);
}

rabbet_status_t rabbet_run_step(rabbet_frame_t* frame,
                                const rabbet_prepared_t* prepared,
                                rabbet_run_t* run, void* stream) {
  run->call.stream = stream;
  run->call.communicator = frame->context->communicator;
  if (rabbet_context_is_cancelled(frame->context))
    return RABBET_ANNOTATE(rabbet_context_cancelled(), "step '%s'",
                           frame->sequence->plan->steps[run->step].name);
  if (!run->kernel)
    return RABBET_ANNOTATE(rabbet_run_call(frame, prepared, run, stream),
                           "step '%s'",
                           frame->sequence->plan->steps[run->step].name);
  assert(run->kernel == frame->sequence->steps[run->step].kernel);
  if (rabbet_run_is_idle(run)) return rabbet_ok();
  assert(run->kernel->kernel_class->enqueue);
  rabbet_status_t status =
      run->kernel->kernel_class->enqueue(run->kernel, run->state, &run->call);
  return rabbet_is_ok(status) ? status : step_failed(frame, run->step, status);
}

static rabbet_status_t run_steps(rabbet_frame_t* frame,
                                 rabbet_prepared_t* prepared, void* stream) {
  rabbet_run_t* end = prepared->runs + prepared->run_count;
  bool shows = rabbet_context_shows_steps(frame->context);
  for (rabbet_run_t* run = prepared->runs; run < end; ++run) {
    RABBET_RETURN_IF_ERROR(rabbet_run_step(frame, prepared, run, stream));
    if (shows) rabbet_frame_show_step(frame, prepared, run, stream);
  }
  return rabbet_ok();
}

static rabbet_status_t run_steps_looked_at(rabbet_frame_t* frame,
                                           rabbet_prepared_t* prepared,
                                           void* stream) {
  RABBET_RETURN_IF_ERROR(
      rabbet_context_refuse_recording(frame->context, stream));
  rabbet_run_t* end = prepared->runs + prepared->run_count;
  for (rabbet_run_t* run = prepared->runs; run < end; ++run) {
    RABBET_RETURN_IF_ERROR(
        rabbet_finite_before_step(frame, prepared, run, stream));
    RABBET_RETURN_IF_ERROR(rabbet_run_step(frame, prepared, run, stream));
    RABBET_RETURN_IF_ERROR(
        rabbet_finite_after_step(frame, prepared, run, stream));
  }
  return rabbet_ok();
}

static rabbet_status_t mark_time(const rabbet_context_t* context, void* event,
                                 void* stream) {
  rabbet_device_t* device = context->engine->device;
  return device->vtable->record_event(device, event, stream);
}

static void** segment_events(const rabbet_frame_t* frame,
                             const rabbet_prepared_t* prepared) {
  assert(frame->events);
  return frame->events +
         rabbet_segment_begin(frame->sequence, prepared->segment) +
         (size_t)prepared->segment;
}

// Without events the host waits after each step and takes the time itself.
static rabbet_status_t run_steps_timed(rabbet_frame_t* frame,
                                       rabbet_prepared_t* prepared,
                                       void* stream) {
  rabbet_device_t* device = frame->context->engine->device;
  void** events = frame->events ? segment_events(frame, prepared) : NULL;
  if (events)
    RABBET_RETURN_IF_ERROR(mark_time(frame->context, events[0], stream));
  for (size_t i = 0; i < prepared->run_count; ++i) {
    rabbet_run_t* run = &prepared->runs[i];
    int64_t begin = rabbet_time_ns();
    RABBET_RETURN_IF_ERROR(rabbet_run_step(frame, prepared, run, stream));
    rabbet_status_t status = rabbet_ok();
    if (events)
      status = mark_time(frame->context, events[i + 1], stream);
    else if (!device->host_memory)
      status = device->vtable->synchronize(device, stream);
    if (!rabbet_is_ok(status)) return step_failed(frame, run->step, status);
    if (!events)
      frame->times[run->step] += (float)(rabbet_time_ns() - begin) * 1e-6f;
    if (rabbet_context_shows_steps(frame->context))
      rabbet_frame_show_step(frame, prepared, run, stream);
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_frame_collect_times(rabbet_frame_t* frame) {
  rabbet_device_t* device = frame->context->engine->device;
  for (const rabbet_prepared_t* at = frame->last; at; at = at->parent) {
    assert(at->sequence == frame->sequence);
    void** events = segment_events(frame, at);
    for (size_t i = 0; i < at->run_count; ++i) {
      int64_t ns = 0;
      RABBET_RETURN_IF_ERROR(
          device->vtable->elapsed(device, events[i], events[i + 1], &ns));
      frame->times[at->runs[i].step] += (float)ns * 1e-6f;
    }
  }
  return rabbet_ok();
}

// Steps that did not run, of branches that were not taken, took no time. Those
// of other profiles are not the run's.
static void report_times(rabbet_context_t* context) {
  const rabbet_profiler_t* profiler = &context->profiler;
  for (size_t i = 0; i < rabbet_context_frame_count(context); ++i) {
    const rabbet_frame_t* frame = rabbet_context_frame(context, i);
    const rabbet_plan_sequence_t* plan = frame->sequence->plan;
    if (frame->sequence->entry != context->main->sequence->entry) continue;
    bool ran = frame->last_run == context->runs;
    assert(frame->times);
    for (size_t s = 0; s < plan->step_count; ++s)
      profiler->report(profiler->user_data, plan->steps[s].name,
                       ran ? frame->times[s] : 0);
  }
}

// ---- Values read and written by the host

// Elements of all that the host reads after the segment, into read_key.
static rabbet_status_t read_back(rabbet_frame_t* frame,
                                 const rabbet_prepared_t* prepared,
                                 void* stream) {
  const rabbet_sequence_t* sequence = frame->sequence;
  rabbet_device_t* device = sequence->engine->device;
  assert(rabbet_segment_end(sequence, prepared->segment) > 0);
  size_t last = rabbet_segment_end(sequence, prepared->segment) - 1;
  const rabbet_plan_step_t* step = &sequence->plan->steps[last];
  assert(step->host_read_count > 0 || step->call_count > 0);
  uint8_t* staging = prepared->read_staging;
  RABBET_RETURN_IF_ERROR(
      rabbet_context_refuse_recording(frame->context, stream));
  for (size_t i = 0; i < step->host_read_count; ++i) {
    int32_t v = step->host_reads[i];
    size_t bytes = prepared->bytes[v];
    if (bytes > 0)
      RABBET_RETURN_IF_ERROR(device->vtable->copy_to_host(
          device, staging, rabbet_value_address(frame, prepared, v), bytes,
          stream));
    staging += rabbet_align_up(bytes, 16);
  }
  if (!device->host_memory)
    RABBET_RETURN_IF_ERROR(device->vtable->synchronize(device, stream));
  int64_t* key = frame->read_key;
  staging = prepared->read_staging;
  for (size_t i = 0; i < step->host_read_count; ++i) {
    int32_t v = step->host_reads[i];
    int64_t count = 0;
    RABBET_RETURN_IF_ERROR(rabbet_dims_count(&prepared->dims[v], &count));
    for (int64_t k = 0; k < count; ++k)
      *key++ = rabbet_load_int64(sequence->plan->values[v].dtype, staging, k);
    staging += rabbet_align_up(prepared->bytes[v], 16);
  }
  size_t wanted = sequence->analysis.segment_reads[prepared->segment];
  assert((size_t)(key - frame->read_key) <= wanted);
  // Extents from a call are needed if a symbol stands for one.
  if ((size_t)(key - frame->read_key) < wanted) {
    assert(prepared->run_count > 0 &&
           prepared->runs[prepared->run_count - 1].step == last);
    rabbet_call_told_dims(frame, &prepared->runs[prepared->run_count - 1], key);
  }
  return rabbet_ok();
}

// Outputs that no step writes: the host knows their values.
static rabbet_status_t write_outputs(rabbet_frame_t* frame,
                                     const rabbet_prepared_t* leaf,
                                     void* stream) {
  const rabbet_sequence_t* sequence = frame->sequence;
  rabbet_device_t* device = sequence->engine->device;
  assert((size_t)leaf->segment + 1 == sequence->analysis.segment_count);
  const uint8_t* staging = leaf->output_staging;
  for (size_t i = sequence->plan->input_count; i < sequence->plan->io_count;
       ++i) {
    int32_t v = sequence->plan->ios[i].value;
    const rabbet_plan_value_t* value = &sequence->plan->values[v];
    if (sequence->analysis.written[v]) continue;
    if (!leaf->host_values[v])
      return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                           "the values of output '%s' divide by 0 or overflow "
                           "for these input shapes",
                           value->name);
    RABBET_RETURN_IF_ERROR(rabbet_check_address(frame, leaf, i));
    if (leaf->bytes[v] > 0)
      RABBET_RETURN_IF_ERROR(device->vtable->copy_to_device(
          device, frame->addresses[i], staging, leaf->bytes[v], stream));
    staging += rabbet_align_up(leaf->bytes[v], 16);
  }
  return rabbet_ok();
}

static void notify_shapes(const rabbet_frame_t* frame,
                          const rabbet_prepared_t* leaf) {
  const rabbet_plan_sequence_t* plan = frame->sequence->plan;
  for (size_t i = plan->input_count; i < plan->io_count; ++i) {
    const rabbet_output_allocator_t* allocator = &frame->output_allocators[i];
    if (allocator->notify_shape)
      allocator->notify_shape(allocator->user_data, plan->ios[i].name,
                              &leaf->dims[plan->ios[i].value]);
  }
}

// ---- A run

static rabbet_status_t run_segment(rabbet_frame_t* frame,
                                   rabbet_prepared_t* prepared, void* stream) {
  if (!rabbet_prepared_is_ready(frame, prepared)) {
    RABBET_RETURN_IF_ERROR(
        rabbet_context_refuse_recording(frame->context, stream));
    RABBET_RETURN_IF_ERROR(rabbet_prepared_make_ready(frame, prepared, stream));
  }
  if (frame->allocator_count > 0)
    RABBET_RETURN_IF_ERROR(ask_output_allocators(frame, prepared, stream));
  if (frame->context->host_io_count > 0 && rabbet_frame_is_main(frame))
    RABBET_RETURN_IF_ERROR(
        rabbet_context_begin_host_ios(frame->context, prepared, stream));
  RABBET_RETURN_IF_ERROR(rabbet_prepared_bind(frame, prepared, stream));
  RABBET_RETURN_IF_ERROR(rabbet_call_copy_late(frame, prepared, stream));
  if (prepared->copies_inputs)
    RABBET_RETURN_IF_ERROR(
        rabbet_prepared_copy_inputs(frame, prepared, stream));
  if (frame->context->finite)
    return run_steps_looked_at(frame, prepared, stream);
  if (frame->context->profiler.report)
    return run_steps_timed(frame, prepared, stream);
  return rabbet_graphs_wanted(frame->context)
             ? rabbet_graphs_run(frame, prepared, stream)
             : run_steps(frame, prepared, stream);
}

rabbet_status_t rabbet_frame_run(rabbet_frame_t* frame,
                                 rabbet_prepared_t* prepared, void* stream) {
  const rabbet_sequence_t* sequence = frame->sequence;
  frame->last = NULL;
  assert(prepared->sequence == sequence && prepared->segment == 0);
  if (frame->times && frame->last_run != frame->context->runs)
    memset(frame->times, 0, sequence->plan->step_count * sizeof(*frame->times));
  frame->last_run = frame->context->runs;
  if (frame->context->finite)
    RABBET_RETURN_IF_ERROR(rabbet_finite_begin(frame));
  RABBET_RETURN_IF_ERROR(run_segment(frame, prepared, stream));
  while ((size_t)prepared->segment + 1 < sequence->analysis.segment_count) {
    RABBET_RETURN_IF_ERROR(read_back(frame, prepared, stream));
    RABBET_RETURN_IF_ERROR(rabbet_prepared_lookup(
        frame, prepared, frame->read_key,
        sequence->analysis.segment_reads[prepared->segment], &prepared));
    RABBET_RETURN_IF_ERROR(run_segment(frame, prepared, stream));
  }
  assert((size_t)prepared->segment + 1 == sequence->analysis.segment_count);
  frame->last = prepared;
  RABBET_RETURN_IF_ERROR(rabbet_frame_copy_outputs(frame, prepared, stream));
  if (sequence->has_written_outputs)
    RABBET_RETURN_IF_ERROR(write_outputs(frame, prepared, stream));
  return sequence->plan->check_count > 0
             ? rabbet_frame_take_checks(frame, stream)
             : rabbet_ok();
}

static rabbet_status_t execute_run(rabbet_context_t* context, void* stream) {
  rabbet_device_t* device = context->engine->device;
  rabbet_frame_t* frame = context->main;
  rabbet_prepared_t* prepared = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_context_select(context, &prepared));
  RABBET_RETURN_IF_ERROR(rabbet_frame_run(frame, prepared, stream));
  assert(frame->last && frame->last_run == context->runs);
  if (context->host_io_count > 0)
    RABBET_RETURN_IF_ERROR(
        rabbet_context_end_host_ios(context, frame->last, stream));
  else if (device->vtable->hand_over)
    RABBET_RETURN_IF_ERROR(device->vtable->hand_over(device, stream));
  if (context->consumed_event)
    RABBET_RETURN_IF_ERROR(
        device->vtable->record_event(device, context->consumed_event, stream));
  if (frame->allocator_count > 0) notify_shapes(frame, frame->last);
  rabbet_frame_show_debug(frame, frame->last, stream);
  if (context->finite)
    RABBET_RETURN_IF_ERROR(rabbet_finite_end(frame, frame->last));
  // With host addresses the run is done.
  return context->host_io_count > 0 ? rabbet_context_look_at_checks(context)
                                    : rabbet_ok();
}

rabbet_status_t rabbet_context_execute(rabbet_context_t* context,
                                       void* stream) {
  rabbet_device_t* device = context->engine->device;
  bool timed = context->profiler.report && !context->finite;
  void* token = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_engine_check_weights(context->engine));
  RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(rabbet_context_look_at_checks(context),
                                         "an earlier run"));
  if (device->vtable->begin_run)
    RABBET_RETURN_IF_ERROR(device->vtable->begin_run(
        device, rabbet_context_actual_threads(context), &token));
  assert(!context->running);
  context->stream = stream;
  context->running = true;
  ++context->runs;
  atomic_store(&context->present_run, context->runs);
  context->graph_info.graph_steps = context->graph_info.other_steps = 0;
  rabbet_status_t status = rabbet_exchange_begin(context, stream);
  if (rabbet_is_ok(status)) {
    status = execute_run(context, stream);
    status = rabbet_exchange_end(context, stream, status);
  }
  context->running = false;
  atomic_store(&context->present_run, 0);
  if (rabbet_is_ok(status)) rabbet_context_expect_shapes(context);
  if (rabbet_is_ok(status) && timed && context->main->events)
    status = rabbet_frame_collect_times(context->main);
  if (device->vtable->end_run) device->vtable->end_run(device, token);
  if (rabbet_is_ok(status) && timed) report_times(context);
  return status;
}
