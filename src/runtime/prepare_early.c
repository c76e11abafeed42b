// Prepares the next run's shapes and addresses before the run: a run that the
// caller records into a graph of its own must neither allocate nor wait.
#include <assert.h>
#include <string.h>

#include "runtime/runtime.h"

bool rabbet_prepared_is_ready(const rabbet_frame_t* frame,
                              const rabbet_prepared_t* prepared) {
  assert(prepared->sequence == frame->sequence);
  size_t room = frame->memory_bytes[prepared->segment];
  return prepared->ready && room > 0 && prepared->memory_bytes <= room;
}

// ---- While the caller records

static bool calls_sequences(const rabbet_plan_sequence_t* plan) {
  for (size_t i = 0; i < plan->step_count; ++i)
    if (plan->steps[i].call_count > 0) return true;
  return false;
}

rabbet_status_t rabbet_context_refuse_recording(const rabbet_context_t* context,
                                                void* stream) {
  const rabbet_sequence_t* sequence = context->main->sequence;
  rabbet_device_t* device = sequence->engine->device;
  bool recording = false;
  if (!stream || !device->vtable->is_recording) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(
      device->vtable->is_recording(device, stream, &recording));
  if (!recording) return rabbet_ok();
  if (sequence->analysis.segment_count > 1)
    return RABBET_STATUS(
        RABBET_STATUS_FAILED_PRECONDITION,
        "the stream is being captured, and sizes in this plan depend on data "
        "that the host reads in the middle of a run: such a run cannot be "
        "captured");
  if (calls_sequences(sequence->plan))
    return RABBET_STATUS(
        RABBET_STATUS_FAILED_PRECONDITION,
        "the stream is being captured, and the host reads conditions of this "
        "plan in the middle of a run: such a run cannot be captured");
  return RABBET_STATUS(
      RABBET_STATUS_FAILED_PRECONDITION,
      "the stream is being captured, and memory and kernels for these input "
      "shapes and addresses are not prepared yet: before the capture begins, "
      "call rabbet_context_prepare (in Python: context.prepare()), or run "
      "once");
}

// ---- Preparing

// Addresses are bound once all are there; output allocators are asked, and host
// memory is copied, in runs alone.
static bool context_can_bind(const rabbet_context_t* context) {
  if (context->main->allocator_count > 0 || context->host_io_count > 0)
    return false;
  for (size_t i = 0; i < context->main->sequence->plan->io_count; ++i)
    if (!context->main->addresses[i]) return false;
  return true;
}

static rabbet_status_t prepare_first_segment(rabbet_context_t* context,
                                             bool bind) {
  rabbet_prepared_t* prepared = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_context_select(context, &prepared));
  if (!rabbet_prepared_is_ready(context->main, prepared))
    RABBET_RETURN_IF_ERROR(
        rabbet_prepared_make_ready(context->main, prepared, NULL));
  RABBET_RETURN_IF_ERROR(rabbet_frame_reserve_checks(context->main));
  RABBET_RETURN_IF_ERROR(rabbet_prepare_calls(context->main, prepared));
  return bind && context_can_bind(context)
             ? rabbet_prepared_bind(context->main, prepared, NULL)
             : rabbet_ok();
}

static rabbet_status_t prepare_run(rabbet_context_t* context, bool bind,
                                   bool joins) {
  rabbet_device_t* device = context->engine->device;
  void* token = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_engine_check_weights(context->engine));
  if (device->vtable->begin_run)
    RABBET_RETURN_IF_ERROR(device->vtable->begin_run(
        device, rabbet_context_actual_threads(context), &token));
  rabbet_status_t status = prepare_first_segment(context, bind);
  if (rabbet_is_ok(status) && joins) {
    status = rabbet_exchange_begin(context, NULL);
    if (rabbet_is_ok(status))
      status = rabbet_exchange_end(context, NULL, status);
  }
  if (device->vtable->end_run) device->vtable->end_run(device, token);
  return RABBET_ANNOTATE(status, "preparing a run");
}

rabbet_status_t rabbet_context_prepare(rabbet_context_t* context) {
  return prepare_run(context, true, context->communicator != NULL);
}

// ---- Without being asked

void rabbet_context_expect_shapes(rabbet_context_t* context) {
  assert(!context->running);
  memset(context->shape_is_new, 0,
         context->main->sequence->plan->input_count *
             sizeof(*context->shape_is_new));
  context->is_unprepared = false;
  context->has_run = true;
}

// Whether the next run is known: while a caller goes from one shape to the
// next, the inputs that it has not come to yet have shapes of the run before.
static bool context_knows_run(const rabbet_context_t* context) {
  const rabbet_sequence_t* sequence = context->main->sequence;
  for (size_t i = 0; i < sequence->plan->io_count; ++i) {
    if (!context->main->addresses[i] &&
        !context->main->output_allocators[i].reallocate)
      return false;
  }
  for (size_t i = 0; i < sequence->plan->input_count; ++i) {
    const rabbet_dims_t* dims = &sequence->ios[i].dims;
    for (int32_t axis = 0; axis < dims->rank; ++axis)
      if (dims->d[axis] < 0 && !context->shape_is_new[i]) return false;
  }
  return true;
}

void rabbet_context_prepare_early(rabbet_context_t* context) {
  const rabbet_sequence_t* sequence = context->main->sequence;
  if (!context->is_unprepared || context->running ||
      !sequence->engine->device->vtable->is_recording ||
      sequence->has_shape_inputs || context->host_io_count > 0 ||
      !context_knows_run(context))
    return;
  context->is_unprepared = false;
  // After the first run the caller may be between two sets of addresses, where
  // an input may lie at an output's old address: copies of such inputs would be
  // reserved in vain.
  bool bind = !context->has_run;
  // The run meets the same error, and tells it.
  rabbet_status_ignore(prepare_run(context, bind, false));
}
