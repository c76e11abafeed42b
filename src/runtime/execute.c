// The loop that runs steps.
#include <assert.h>
#include <string.h>

#include "base/math.h"
#include "runtime/graph.h"

// ---- Output allocators

static rabbet_status_t rabbet_ask_output_allocators(
    rabbet_context_t* context, const rabbet_prepared_t* prepared,
    void* stream) {
  const rabbet_sequence_t* sequence = context->sequence;
  for (size_t i = sequence->plan->input_count; i < sequence->plan->io_count;
       ++i) {
    const rabbet_output_allocator_t* allocator = &context->output_allocators[i];
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
        allocator->user_data, sequence->ios[i].name, context->addresses[i],
        bytes ? bytes : 1, 256, stream);
    if (!address)
      return RABBET_STATUS(RABBET_STATUS_OUT_OF_MEMORY,
                           "the output allocator of '%s' gave no memory for "
                           "%zu bytes",
                           sequence->ios[i].name, bytes);
    RABBET_RETURN_IF_ERROR(
        allocator->host ? rabbet_context_set_host_address(context, i, address)
                        : rabbet_context_set_address(context, i, address));
  }
  return rabbet_ok();
}

// ---- Steps

static rabbet_status_t rabbet_step_failed(const rabbet_context_t* context,
                                          size_t step, rabbet_status_t status) {
  const rabbet_plan_step_t* at = &context->sequence->plan->steps[step];
  return rabbet_status_annotate(status, "step '%s' (kernel '%s')", at->name,
                                at->kernel);
}

rabbet_status_t rabbet_run_step(rabbet_context_t* context, rabbet_run_t* run,
                                void* stream) {
  assert(run->kernel && run->kernel->kernel_class->enqueue);
  run->call.stream = stream;
  if (rabbet_run_is_idle(run)) return rabbet_ok();
  rabbet_status_t status =
      run->kernel->kernel_class->enqueue(run->kernel, run->state, &run->call);
  return rabbet_is_ok(status) ? status
                              : rabbet_step_failed(context, run->step, status);
}

static rabbet_status_t rabbet_run_steps(rabbet_context_t* context,
                                        rabbet_prepared_t* prepared,
                                        void* stream) {
  rabbet_run_t* end = prepared->runs + prepared->run_count;
  bool shows = rabbet_context_shows_steps(context);
  for (rabbet_run_t* run = prepared->runs; run < end; ++run) {
    RABBET_RETURN_IF_ERROR(rabbet_run_step(context, run, stream));
    if (shows) rabbet_context_show_step(context, prepared, run, stream);
  }
  return rabbet_ok();
}

static rabbet_status_t rabbet_run_steps_looked_at(rabbet_context_t* context,
                                                  rabbet_prepared_t* prepared,
                                                  void* stream) {
  RABBET_RETURN_IF_ERROR(rabbet_context_refuse_recording(context, stream));
  rabbet_run_t* end = prepared->runs + prepared->run_count;
  for (rabbet_run_t* run = prepared->runs; run < end; ++run) {
    RABBET_RETURN_IF_ERROR(
        rabbet_finite_before_step(context, prepared, run, stream));
    RABBET_RETURN_IF_ERROR(rabbet_run_step(context, run, stream));
    RABBET_RETURN_IF_ERROR(
        rabbet_finite_after_step(context, prepared, run, stream));
  }
  return rabbet_ok();
}

static rabbet_status_t rabbet_mark_time(const rabbet_context_t* context,
                                        void* event, void* stream) {
  rabbet_device_t* device = context->engine->device;
  return device->vtable->record_event(device, event, stream);
}

static void** rabbet_segment_events(const rabbet_context_t* context,
                                    const rabbet_prepared_t* prepared) {
  return context->events +
         rabbet_segment_begin(context->sequence, prepared->segment) +
         (size_t)prepared->segment;
}

// Without events the host waits after each step and takes the time itself.
static rabbet_status_t rabbet_run_steps_timed(rabbet_context_t* context,
                                              rabbet_prepared_t* prepared,
                                              void* stream) {
  rabbet_device_t* device = context->engine->device;
  void** events =
      context->events ? rabbet_segment_events(context, prepared) : NULL;
  if (events)
    RABBET_RETURN_IF_ERROR(rabbet_mark_time(context, events[0], stream));
  for (size_t i = 0; i < prepared->run_count; ++i) {
    rabbet_run_t* run = &prepared->runs[i];
    int64_t begin = rabbet_time_ns();
    RABBET_RETURN_IF_ERROR(rabbet_run_step(context, run, stream));
    rabbet_status_t status = rabbet_ok();
    if (events)
      status = rabbet_mark_time(context, events[i + 1], stream);
    else if (!device->host_memory)
      status = device->vtable->synchronize(device, stream);
    if (!rabbet_is_ok(status))
      return rabbet_step_failed(context, run->step, status);
    context->times[run->step] = (float)(rabbet_time_ns() - begin) * 1e-6f;
    if (rabbet_context_shows_steps(context))
      rabbet_context_show_step(context, prepared, run, stream);
  }
  return rabbet_ok();
}

// Reads the events of the last run; waits for it.
static rabbet_status_t rabbet_collect_times(rabbet_context_t* context) {
  rabbet_device_t* device = context->engine->device;
  assert(context->events);
  for (const rabbet_prepared_t* at = context->last; at; at = at->parent) {
    void** events = rabbet_segment_events(context, at);
    for (size_t i = 0; i < at->run_count; ++i) {
      int64_t ns = 0;
      RABBET_RETURN_IF_ERROR(
          device->vtable->elapsed(device, events[i], events[i + 1], &ns));
      context->times[at->runs[i].step] = (float)ns * 1e-6f;
    }
  }
  return rabbet_ok();
}

static void rabbet_report_times(const rabbet_context_t* context) {
  const rabbet_plan_sequence_t* plan = context->sequence->plan;
  for (size_t s = 0; s < plan->step_count; ++s)
    context->profiler.report(context->profiler.user_data, plan->steps[s].name,
                             context->times[s]);
}

// ---- Values read and written by the host

// Elements of all that the host reads after the segment, into read_key.
static rabbet_status_t rabbet_read_back(rabbet_context_t* context,
                                        const rabbet_prepared_t* prepared,
                                        void* stream) {
  const rabbet_sequence_t* sequence = context->sequence;
  rabbet_device_t* device = sequence->engine->device;
  assert(rabbet_segment_end(sequence, prepared->segment) > 0);
  size_t last = rabbet_segment_end(sequence, prepared->segment) - 1;
  const rabbet_plan_step_t* step = &sequence->plan->steps[last];
  uint8_t* staging = prepared->read_staging;
  RABBET_RETURN_IF_ERROR(rabbet_context_refuse_recording(context, stream));
  for (size_t i = 0; i < step->host_read_count; ++i) {
    int32_t v = step->host_reads[i];
    size_t bytes = prepared->bytes[v];
    if (bytes > 0)
      RABBET_RETURN_IF_ERROR(device->vtable->copy_to_host(
          device, staging, rabbet_value_address(context, prepared, v), bytes,
          stream));
    staging += rabbet_align_up(bytes, 16);
  }
  if (!device->host_memory)
    RABBET_RETURN_IF_ERROR(device->vtable->synchronize(device, stream));
  int64_t* key = context->read_key;
  staging = prepared->read_staging;
  for (size_t i = 0; i < step->host_read_count; ++i) {
    int32_t v = step->host_reads[i];
    int64_t count = 0;
    RABBET_RETURN_IF_ERROR(rabbet_dims_count(&prepared->dims[v], &count));
    for (int64_t k = 0; k < count; ++k)
      *key++ = rabbet_load_int64(sequence->plan->values[v].dtype, staging, k);
    staging += rabbet_align_up(prepared->bytes[v], 16);
  }
  assert(key - context->read_key ==
         (ptrdiff_t)engine->analysis.segment_reads[prepared->segment]);
  return rabbet_ok();
}

// Outputs that no step writes: the host knows their values.
static rabbet_status_t rabbet_write_outputs(rabbet_context_t* context,
                                            const rabbet_prepared_t* leaf,
                                            void* stream) {
  const rabbet_sequence_t* sequence = context->sequence;
  rabbet_device_t* device = sequence->engine->device;
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
    RABBET_RETURN_IF_ERROR(rabbet_check_address(context, leaf, i));
    if (leaf->bytes[v] > 0)
      RABBET_RETURN_IF_ERROR(device->vtable->copy_to_device(
          device, context->addresses[i], staging, leaf->bytes[v], stream));
    staging += rabbet_align_up(leaf->bytes[v], 16);
  }
  return rabbet_ok();
}

static void rabbet_notify_shapes(const rabbet_context_t* context,
                                 const rabbet_prepared_t* leaf) {
  const rabbet_plan_sequence_t* plan = context->sequence->plan;
  for (size_t i = plan->input_count; i < plan->io_count; ++i) {
    const rabbet_output_allocator_t* allocator = &context->output_allocators[i];
    if (allocator->notify_shape)
      allocator->notify_shape(allocator->user_data, plan->ios[i].name,
                              &leaf->dims[plan->ios[i].value]);
  }
}

// ---- A run

static rabbet_status_t rabbet_run_segment(rabbet_context_t* context,
                                          rabbet_prepared_t* prepared,
                                          void* stream) {
  if (!rabbet_prepared_is_ready(context, prepared)) {
    RABBET_RETURN_IF_ERROR(rabbet_context_refuse_recording(context, stream));
    RABBET_RETURN_IF_ERROR(
        rabbet_prepared_make_ready(context, prepared, stream));
  }
  if (context->allocator_count > 0)
    RABBET_RETURN_IF_ERROR(
        rabbet_ask_output_allocators(context, prepared, stream));
  if (context->host_io_count > 0)
    RABBET_RETURN_IF_ERROR(
        rabbet_context_begin_host_ios(context, prepared, stream));
  RABBET_RETURN_IF_ERROR(rabbet_prepared_bind(context, prepared, stream));
  if (prepared->copies_inputs)
    RABBET_RETURN_IF_ERROR(
        rabbet_prepared_copy_inputs(context, prepared, stream));
  if (context->finite)
    return rabbet_run_steps_looked_at(context, prepared, stream);
  if (context->profiler.report)
    return rabbet_run_steps_timed(context, prepared, stream);
  return rabbet_graphs_wanted(context)
             ? rabbet_graphs_run(context, prepared, stream)
             : rabbet_run_steps(context, prepared, stream);
}

static rabbet_status_t rabbet_run(rabbet_context_t* context, void* stream) {
  const rabbet_sequence_t* sequence = context->sequence;
  rabbet_prepared_t* prepared = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_context_select(context, &prepared));
  context->last = NULL;
  if (context->finite) rabbet_finite_begin(context);
  RABBET_RETURN_IF_ERROR(rabbet_run_segment(context, prepared, stream));
  while ((size_t)prepared->segment + 1 < sequence->analysis.segment_count) {
    RABBET_RETURN_IF_ERROR(rabbet_read_back(context, prepared, stream));
    RABBET_RETURN_IF_ERROR(rabbet_prepared_lookup(
        context, prepared, context->read_key,
        sequence->analysis.segment_reads[prepared->segment], &prepared));
    RABBET_RETURN_IF_ERROR(rabbet_run_segment(context, prepared, stream));
  }
  assert((size_t)prepared->segment + 1 == engine->analysis.segment_count);
  context->last = prepared;
  RABBET_RETURN_IF_ERROR(
      rabbet_context_copy_outputs(context, prepared, stream));
  if (sequence->has_written_outputs)
    RABBET_RETURN_IF_ERROR(rabbet_write_outputs(context, prepared, stream));
  if (sequence->plan->check_count > 0)
    RABBET_RETURN_IF_ERROR(rabbet_context_take_checks(context, stream));
  if (context->host_io_count > 0)
    RABBET_RETURN_IF_ERROR(
        rabbet_context_end_host_ios(context, prepared, stream));
  if (context->consumed_event)
    RABBET_RETURN_IF_ERROR(sequence->engine->device->vtable->record_event(
        sequence->engine->device, context->consumed_event, stream));
  if (context->allocator_count > 0) rabbet_notify_shapes(context, prepared);
  rabbet_context_show_debug(context, prepared, stream);
  if (context->finite)
    RABBET_RETURN_IF_ERROR(rabbet_finite_end(context, prepared));
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
  if (context->checks_seen < context->checks_made)
    RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
        rabbet_context_look_at_checks(context), "an earlier run"));
  if (device->vtable->begin_run)
    RABBET_RETURN_IF_ERROR(device->vtable->begin_run(
        device, rabbet_context_actual_threads(context), &token));
  assert(!context->running);
  context->stream = stream;
  context->running = true;
  context->graph_info.graph_steps = context->graph_info.other_steps = 0;
  if (timed)
    memset(context->times, 0,
           context->sequence->plan->step_count * sizeof(*context->times));
  rabbet_status_t status = rabbet_run(context, stream);
  context->running = false;
  if (rabbet_is_ok(status)) rabbet_context_expect_shapes(context);
  if (rabbet_is_ok(status) && timed && context->events)
    status = rabbet_collect_times(context);
  if (device->vtable->end_run) device->vtable->end_run(device, token);
  if (rabbet_is_ok(status) && timed) rabbet_report_times(context);
  return status;
}
