// Steps that run other sequences: a branch that a condition chooses, or a loop
// (loop.c).
//
// The host reads the condition and runs the sequence that it chooses. Its
// inputs and outputs are the step's, in the same memory, so that nothing is
// copied.
#include <string.h>

#include "runtime/call.h"

bool rabbet_step_loop(const rabbet_plan_step_t* step,
                      rabbet_loop_wiring_t* out_wiring) {
  const rabbet_group_node_t* node = &step->group.nodes[0];
  *out_wiring = (rabbet_loop_wiring_t){.count = -1, .condition = -1};
  if (step->call_count == 0 || !rabbet_op_is(node->op, RABBET_OP_LOOP))
    return false;
  // Verified when the plan was read.
  rabbet_status_ignore(
      rabbet_loop_wiring_read(node->attrs, node->op->attr_count, out_wiring));
  return true;
}

rabbet_status_t rabbet_read_flag(const rabbet_frame_t* frame, const void* from,
                                 void* stream, bool* out_holds) {
  rabbet_device_t* device = frame->context->engine->device;
  uint8_t byte = 0;
  RABBET_RETURN_IF_ERROR(
      rabbet_context_refuse_recording(frame->context, stream));
  RABBET_RETURN_IF_ERROR(
      device->vtable->copy_to_host(device, &byte, from, 1, stream));
  if (!device->host_memory)
    RABBET_RETURN_IF_ERROR(device->vtable->synchronize(device, stream));
  *out_holds = byte != 0;
  return rabbet_ok();
}

static rabbet_status_t read_condition(const rabbet_frame_t* frame,
                                      const rabbet_prepared_t* prepared,
                                      const rabbet_run_t* run, void* stream,
                                      bool* out_holds) {
  const rabbet_plan_step_t* step = &frame->sequence->plan->steps[run->step];
  assert(step->call_count == 2 && step->group.input_count > 0);
  const int64_t* known =
      rabbet_host_values(prepared, step->values[step->group.inputs[0]]);
  if (!known)
    return rabbet_read_flag(frame, run->call.inputs[0], stream, out_holds);
  *out_holds = known[0] != 0;
  return rabbet_ok();
}

// Elements of a shape input; *out_known is false if the host does not have them
// yet.
static rabbet_status_t call_values(const rabbet_prepared_t* prepared,
                                   int32_t value, const rabbet_io_t* io,
                                   int64_t* key, bool* out_known) {
  const int64_t* elements = rabbet_host_values(prepared, value);
  int64_t count = 0, given = 0;
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(&io->dims, &count));
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(&prepared->dims[value], &given));
  if (given != count)
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                         "'%s' has %lld elements; expected %lld", io->name,
                         (long long)given, (long long)count);
  *out_known = elements != NULL;
  if (elements && count > 0)
    memcpy(key, elements, (size_t)count * sizeof(*key));
  return rabbet_ok();
}

// The extents of a callee's input; false if they are not known.
static bool call_dims(const rabbet_dims_t* outer, bool is_slice, int32_t rank,
                      int64_t* key) {
  if (outer->rank != rank + is_slice) return false;
  for (int32_t axis = 0; axis < rank; ++axis) {
    key[axis] = outer->d[axis + is_slice];
    if (key[axis] < 0) return false;
  }
  return true;
}

rabbet_status_t rabbet_call_key(const rabbet_prepared_t* prepared,
                                const rabbet_plan_step_t* step,
                                const rabbet_plan_call_t* call,
                                const rabbet_sequence_t* callee, int64_t* key,
                                bool* out_known, bool* out_changes) {
  rabbet_loop_wiring_t loop;
  rabbet_step_loop(step, &loop);
  *out_known = true;
  assert(call->input_count == callee->plan->input_count);
  *out_changes = false;
  for (size_t i = 0; i < call->input_count && *out_known; ++i) {
    int32_t value = step->values[step->group.inputs[call->inputs[i]]];
    const rabbet_io_t* io = &callee->ios[i];
    bool in_loop = i < loop.carried_count + loop.slice_count;
    int64_t* to = key + callee->key_offsets[i];
    *out_known =
        call_dims(&prepared->dims[value], in_loop && i >= loop.carried_count,
                  io->dims.rank, to);
    *out_changes |= i < loop.carried_count && loop.varying[i] != 0;
    if (!*out_known || !io->is_shape_input) continue;
    if (in_loop)
      *out_changes = true;
    else
      RABBET_RETURN_IF_ERROR(
          call_values(prepared, value, io, to + io->dims.rank, out_known));
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_call_find(rabbet_frame_t* callee,
                                 rabbet_prepared_t** out_prepared) {
  size_t size = callee->sequence->key_size;
  if (!callee->current ||
      memcmp(callee->key, callee->next_key, size * sizeof(*callee->key)) != 0) {
    callee->current = NULL;
    memcpy(callee->key, callee->next_key, size * sizeof(*callee->key));
    RABBET_RETURN_IF_ERROR(rabbet_prepared_lookup(callee, NULL, callee->key,
                                                  size, &callee->current));
  }
  *out_prepared = callee->current;
  return rabbet_ok();
}

// The callee's segment for the shapes that it is given, or NULL if they are not
// known yet.
static rabbet_status_t call_select(const rabbet_prepared_t* prepared,
                                   const rabbet_plan_step_t* step,
                                   const rabbet_plan_call_t* call,
                                   rabbet_frame_t* callee,
                                   rabbet_prepared_t** out_prepared) {
  bool known = false, changes = false;
  assert(!rabbet_frame_is_main(callee));
  *out_prepared = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_call_key(prepared, step, call, callee->sequence,
                                         callee->next_key, &known, &changes));
  return known && !changes ? rabbet_call_find(callee, out_prepared)
                           : rabbet_ok();
}

rabbet_status_t rabbet_call_unknown(void) {
  return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                       "the values that shapes depend on divide by 0 or "
                       "overflow for these input shapes");
}

rabbet_status_t rabbet_call_run(rabbet_frame_t* callee,
                                rabbet_prepared_t* first, void* stream) {
  RABBET_RETURN_IF_ERROR(rabbet_frame_run(callee, first, stream));
  rabbet_frame_show_debug(callee, callee->last, stream);
  return callee->times && callee->events ? rabbet_frame_collect_times(callee)
                                         : rabbet_ok();
}

static void pass_addresses(const rabbet_frame_t* frame,
                           const rabbet_prepared_t* prepared,
                           const rabbet_run_t* run,
                           const rabbet_plan_call_t* call,
                           rabbet_frame_t* callee) {
  const rabbet_plan_step_t* step = &frame->sequence->plan->steps[run->step];
  const rabbet_group_t* group = &step->group;
  assert(call->input_count + group->output_count +
             callee->sequence->plan->hidden_count ==
         callee->sequence->plan->io_count);
  for (size_t i = 0; i < call->input_count; ++i)
    rabbet_frame_store_address(callee, i, run->call.inputs[call->inputs[i]]);
  for (size_t i = 0; i < group->output_count; ++i) {
    size_t io = call->input_count + i;
    callee->rooms[io] = prepared->bytes[step->values[group->outputs[i]]];
    rabbet_frame_store_address(callee, io, run->call.outputs[i]);
  }
}

// The results must have the extents that the plan states.
static rabbet_status_t check_results(const rabbet_frame_t* frame,
                                     const rabbet_prepared_t* prepared,
                                     const rabbet_run_t* run) {
  const rabbet_plan_step_t* step = &frame->sequence->plan->steps[run->step];
  const rabbet_plan_sequence_t* callee = run->callee->sequence->plan;
  for (size_t i = 0; i < step->group.output_count; ++i) {
    const rabbet_plan_io_t* io = &callee->ios[callee->input_count + i];
    const rabbet_dims_t* dims =
        &prepared->dims[step->values[step->group.outputs[i]]];
    const rabbet_dims_t* made = &run->results[i].dims;
    assert(made->rank == dims->rank);
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
  for (size_t i = 0; i < step->group.output_count; ++i) {
    const rabbet_dims_t* dims = &run->results[i].dims;
    for (int32_t axis = 0; axis < dims->rank; ++axis) {
      assert(dims->d[axis] >= 0);  // a call tells all extents
      *out_dims++ = dims->d[axis];
    }
  }
}

static rabbet_status_t run_branch(rabbet_frame_t* frame,
                                  const rabbet_prepared_t* prepared,
                                  rabbet_run_t* run, void* stream) {
  const rabbet_plan_step_t* step = &frame->sequence->plan->steps[run->step];
  bool holds = false;
  RABBET_RETURN_IF_ERROR(read_condition(frame, prepared, run, stream, &holds));
  const rabbet_plan_call_t* call = &step->calls[holds ? 0 : 1];
  rabbet_frame_t* callee =
      rabbet_context_frame(frame->context, (size_t)call->sequence);
  assert(callee > frame || rabbet_frame_is_main(frame));  // no recursion
  rabbet_prepared_t* first = NULL;
  run->callee = callee;
  pass_addresses(frame, prepared, run, call, callee);
  RABBET_RETURN_IF_ERROR(call_select(prepared, step, call, callee, &first));
  if (!first) return rabbet_call_unknown();
  rabbet_late_output_t* late = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_late_begin(frame, prepared, run, &late));
  rabbet_status_t status = rabbet_call_run(callee, first, stream);
  rabbet_late_end(frame, run, late);
  RABBET_RETURN_IF_ERROR(status);
  rabbet_late_collect(frame, prepared, run);
  return check_results(frame, prepared, run);
}

rabbet_status_t rabbet_run_call(rabbet_frame_t* frame,
                                const rabbet_prepared_t* prepared,
                                rabbet_run_t* run, void* stream) {
  return run->is_loop ? rabbet_run_loop(frame, prepared, run, stream)
                      : run_branch(frame, prepared, run, stream);
}

// ---- Preparing

rabbet_status_t rabbet_call_prepare(rabbet_prepared_t* prepared,
                                    const rabbet_plan_step_t* step,
                                    rabbet_run_t* run, size_t* out_workspace) {
  rabbet_loop_wiring_t wiring;
  run->is_loop = rabbet_step_loop(step, &wiring);
  *out_workspace =
      run->is_loop ? rabbet_loop_workspace(prepared, step, &wiring) : 0;
  return rabbet_arena_allocate_array(
      &prepared->arena, step->group.output_count + 1, sizeof(*run->results),
      (void**)&run->results);
}

bool rabbet_call_does_not_fit(rabbet_status_t* status) {
  rabbet_status_code_t code = rabbet_status_code(*status);
  if (code != RABBET_STATUS_OUT_OF_RANGE &&
      code != RABBET_STATUS_INVALID_ARGUMENT &&
      code != RABBET_STATUS_FAILED_PRECONDITION)
    return false;
  rabbet_status_free(*status);
  *status = rabbet_ok();
  return true;
}

static rabbet_status_t prepare_callee(rabbet_frame_t* frame,
                                      const rabbet_prepared_t* prepared,
                                      const rabbet_plan_step_t* step,
                                      const rabbet_plan_call_t* call) {
  rabbet_frame_t* callee =
      rabbet_context_frame(frame->context, (size_t)call->sequence);
  rabbet_prepared_t* first = NULL;
  rabbet_status_t status = call_select(prepared, step, call, callee, &first);
  if (rabbet_is_ok(status) && first)
    status = rabbet_prepared_complete(callee, first, NULL);
  if (rabbet_call_does_not_fit(&status) || !first) return status;
  RABBET_RETURN_IF_ERROR(status);
  if (!rabbet_prepared_is_ready(callee, first))
    RABBET_RETURN_IF_ERROR(rabbet_prepared_make_ready(callee, first, NULL));
  RABBET_RETURN_IF_ERROR(rabbet_frame_reserve_checks(callee));
  return rabbet_prepare_calls(callee, first);
}

rabbet_status_t rabbet_prepare_calls(rabbet_frame_t* frame,
                                     const rabbet_prepared_t* prepared) {
  const rabbet_plan_sequence_t* plan = frame->sequence->plan;
  size_t end = rabbet_segment_end(frame->sequence, prepared->segment);
  for (size_t s = rabbet_segment_begin(frame->sequence, prepared->segment);
       s < end; ++s)
    for (size_t k = 0; k < plan->steps[s].call_count; ++k)
      RABBET_RETURN_IF_ERROR(
          RABBET_ANNOTATE(prepare_callee(frame, prepared, &plan->steps[s],
                                         &plan->steps[s].calls[k]),
                          "sequence '%s'",
                          frame->context->engine->plan
                              ->sequences[plan->steps[s].calls[k].sequence]
                              .name));
  return rabbet_ok();
}
