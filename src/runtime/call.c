// Steps that run other sequences.
//
// The host reads the condition and runs the sequence that it chooses. Inputs
// and outputs of that are the step's: the same memory, so that nothing is
// copied.
#include <string.h>

#include "runtime/runtime.h"

static rabbet_status_t rabbet_read_condition(const rabbet_frame_t* frame,
                                             const rabbet_prepared_t* prepared,
                                             const rabbet_run_t* run,
                                             void* stream, bool* out_holds) {
  rabbet_device_t* device = frame->context->engine->device;
  const rabbet_plan_step_t* step = &frame->sequence->plan->steps[run->step];
  const int64_t* known =
      rabbet_host_values(prepared, step->values[step->group.inputs[0]]);
  uint8_t byte = 0;
  if (known) {
    *out_holds = known[0] != 0;
    return rabbet_ok();
  }
  RABBET_RETURN_IF_ERROR(
      rabbet_context_refuse_recording(frame->context, stream));
  RABBET_RETURN_IF_ERROR(device->vtable->copy_to_host(
      device, &byte, run->call.inputs[0], 1, stream));
  if (!device->host_memory)
    RABBET_RETURN_IF_ERROR(device->vtable->synchronize(device, stream));
  *out_holds = byte != 0;
  return rabbet_ok();
}

// The extents of an input and, of a shape input, its elements, into the
// callee's key.
static rabbet_status_t rabbet_pass_shape(const rabbet_prepared_t* prepared,
                                         int32_t value, rabbet_frame_t* callee,
                                         size_t input, bool* changed) {
  const rabbet_io_t* io = &callee->sequence->ios[input];
  const rabbet_dims_t* dims = &prepared->dims[value];
  int64_t* key = callee->key + callee->sequence->key_offsets[input];
  size_t bytes = (size_t)dims->rank * sizeof(*key);
  *changed |= bytes > 0 && memcmp(key, dims->d, bytes) != 0;
  if (bytes > 0) memcpy(key, dims->d, bytes);
  if (!io->is_shape_input) return rabbet_ok();
  const int64_t* elements = rabbet_host_values(prepared, value);
  int64_t count = 0;
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(&io->dims, &count));
  if (!elements)
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                         "the values of '%s' divide by 0 or overflow for these "
                         "input shapes",
                         io->name);
  key += dims->rank;
  bytes = (size_t)count * sizeof(*key);
  *changed |= bytes > 0 && memcmp(key, elements, bytes) != 0;
  if (bytes > 0) memcpy(key, elements, bytes);
  return rabbet_ok();
}

static rabbet_status_t rabbet_pass_ios(const rabbet_frame_t* frame,
                                       const rabbet_prepared_t* prepared,
                                       const rabbet_run_t* run,
                                       const rabbet_plan_call_t* call,
                                       rabbet_frame_t* callee) {
  const rabbet_plan_step_t* step = &frame->sequence->plan->steps[run->step];
  const rabbet_group_t* group = &step->group;
  bool changed = false;
  for (size_t i = 0; i < call->input_count; ++i) {
    int32_t from = call->inputs[i];
    rabbet_frame_store_address(callee, i, run->call.inputs[from]);
    rabbet_status_t status = rabbet_pass_shape(
        prepared, step->values[group->inputs[from]], callee, i, &changed);
    // The key is changed already.
    if (!rabbet_is_ok(status)) callee->current = NULL;
    RABBET_RETURN_IF_ERROR(status);
  }
  for (size_t i = 0; i < group->output_count; ++i) {
    size_t io = call->input_count + i;
    callee->rooms[io] = prepared->bytes[step->values[group->outputs[i]]];
    rabbet_frame_store_address(callee, io, run->call.outputs[i]);
  }
  if (changed) callee->current = NULL;
  if (callee->current) return rabbet_ok();
  return rabbet_prepared_lookup(callee, NULL, callee->key,
                                callee->sequence->key_size, &callee->current);
}

// Extents that the plan gave the caller must be those that came.
static rabbet_status_t rabbet_check_results(const rabbet_frame_t* frame,
                                            const rabbet_prepared_t* prepared,
                                            const rabbet_run_t* run) {
  const rabbet_plan_step_t* step = &frame->sequence->plan->steps[run->step];
  const rabbet_plan_sequence_t* callee = run->callee->sequence->plan;
  for (size_t i = 0; i < step->group.output_count; ++i) {
    const rabbet_plan_io_t* io = &callee->ios[callee->input_count + i];
    const rabbet_dims_t* dims =
        &prepared->dims[step->values[step->group.outputs[i]]];
    const rabbet_dims_t* made = &run->callee->last->dims[io->value];
    for (int32_t axis = 0; axis < dims->rank; ++axis)
      if (dims->d[axis] >= 0 && dims->d[axis] != made->d[axis])
        return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                             "dimension %d of '%s' is %lld; expected %lld",
                             axis, io->name, (long long)made->d[axis],
                             (long long)dims->d[axis]);
  }
  return rabbet_ok();
}

void rabbet_call_told_dims(const rabbet_frame_t* frame, const rabbet_run_t* run,
                           int64_t* out_dims) {
  const rabbet_plan_step_t* step = &frame->sequence->plan->steps[run->step];
  const rabbet_plan_sequence_t* callee = run->callee->sequence->plan;
  for (size_t i = 0; i < step->group.output_count; ++i) {
    int32_t value = callee->ios[callee->input_count + i].value;
    const rabbet_dims_t* dims = &run->callee->last->dims[value];
    for (int32_t axis = 0; axis < dims->rank; ++axis)
      *out_dims++ = dims->d[axis];
  }
}

rabbet_status_t rabbet_run_call(rabbet_frame_t* frame,
                                const rabbet_prepared_t* prepared,
                                rabbet_run_t* run, void* stream) {
  const rabbet_plan_step_t* step = &frame->sequence->plan->steps[run->step];
  bool holds = false;
  RABBET_RETURN_IF_ERROR(
      rabbet_read_condition(frame, prepared, run, stream, &holds));
  const rabbet_plan_call_t* call = &step->calls[holds ? 0 : 1];
  run->callee = rabbet_context_frame(frame->context, (size_t)call->sequence);
  RABBET_RETURN_IF_ERROR(
      rabbet_pass_ios(frame, prepared, run, call, run->callee));
  RABBET_RETURN_IF_ERROR(
      rabbet_frame_run(run->callee, run->callee->current, stream));
  return rabbet_check_results(frame, prepared, run);
}
