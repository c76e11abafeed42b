// Results that a loop stacks.
#include "runtime/loop.h"

bool rabbet_loop_is_late(const rabbet_loop_run_t* loop, size_t output) {
  return loop->prepared->bytes[rabbet_step_output_value(loop->step, output)] ==
         RABBET_BYTES_UNKNOWN;
}

// The extents of a stack's elements: those outside, or those of this iteration.
static rabbet_status_t find_element(const rabbet_loop_run_t* loop,
                                    size_t output, rabbet_dims_t* out_dims) {
  const rabbet_plan_sequence_t* plan = loop->frames[0]->sequence->plan;
  const rabbet_plan_io_t* io =
      &plan->ios[plan->input_count + (size_t)loop->wiring.sources[output]];
  const rabbet_dims_t* outside =
      &loop->prepared->dims[rabbet_step_output_value(loop->step, output)];
  *out_dims = loop->nodes[0]->dims[io->value];
  for (int32_t i = 0; i < out_dims->rank; ++i) {
    if (out_dims->d[i] < 0) out_dims->d[i] = outside->d[i + 1];
    if (out_dims->d[i] < 0)
      return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                           "extent %d of '%s' is not known before the "
                           "iteration has run",
                           i, io->name);
  }
  return rabbet_ok();
}

static rabbet_status_t begin_stack(const rabbet_loop_run_t* loop,
                                   size_t output) {
  rabbet_loop_stack_t* stack = &loop->stacks[output];
  int32_t value = rabbet_step_output_value(loop->step, output);
  const rabbet_dims_t* outside = &loop->prepared->dims[value];
  if (stack->is_known) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(find_element(loop, output, &stack->dims));
  for (int32_t i = 0; i < stack->dims.rank; ++i)
    if (outside->d[i + 1] >= 0 && outside->d[i + 1] != stack->dims.d[i])
      return RABBET_STATUS(
          RABBET_STATUS_OUT_OF_RANGE,
          "dimension %d of an element of '%s' is %lld; expected %lld", i,
          loop->frame->sequence->plan->values[value].name,
          (long long)stack->dims.d[i], (long long)outside->d[i + 1]);
  stack->is_known = true;
  return rabbet_tensor_bytes(loop->frame->sequence->plan->values[value].dtype,
                             RABBET_FORMAT_LINEAR, &stack->dims,
                             &stack->stride);
}

// Elements that a stack has or, if only the run tells, has room for.
static int64_t stack_length(const rabbet_loop_run_t* loop, size_t output) {
  int32_t value = rabbet_step_output_value(loop->step, output);
  size_t stride = loop->stacks[output].stride;
  int64_t length = loop->prepared->dims[value].d[0];
  if (length >= 0) return length;
  return stride && !rabbet_loop_is_late(loop, output)
             ? (int64_t)(loop->prepared->bytes[value] / stride)
             : INT64_MAX;
}

static rabbet_status_t stack_is_full(const rabbet_loop_run_t* loop,
                                     size_t output, int64_t length) {
  return RABBET_STATUS(
      RABBET_STATUS_OUT_OF_RANGE,
      "the length of its output '%s' is %lld, but the loop runs more often; "
      "give it the number of iterations, or more",
      loop->frame->sequence->plan
          ->values[rabbet_step_output_value(loop->step, output)]
          .name,
      (long long)length);
}

rabbet_status_t rabbet_loop_pass_stack(rabbet_loop_run_t* loop, size_t output) {
  rabbet_frame_t* callee = loop->frames[0];
  size_t io = callee->sequence->plan->input_count +
              (size_t)loop->wiring.sources[output];
  uint8_t* base = loop->run->call.outputs[output];
  RABBET_RETURN_IF_ERROR(begin_stack(loop, output));
  size_t stride = loop->stacks[output].stride;
  int64_t length = stack_length(loop, output), at = loop->trip;
  if (loop->wiring.kinds[output] == RABBET_LOOP_OUTPUT_REVERSE)
    at = (loop->is_counted ? loop->count : length) - 1 - loop->trip;
  if (at >= length || loop->trip >= length)
    return stack_is_full(loop, output, length);
  if (stride == 0) at = 0;
  if (rabbet_loop_is_late(loop, output)) {
    rabbet_io_memory_t* memory =
        &loop->grown[2 * loop->wiring.carried_count + output];
    size_t made = (size_t)loop->trip * stride;
    RABBET_RETURN_IF_ERROR(rabbet_loop_grow(loop, memory, made + stride, made));
    base = memory->memory;
  }
  callee->rooms[io] = stride;
  rabbet_frame_store_address(callee, io, base + (size_t)at * stride);
  return rabbet_ok();
}

// Moves the elements of a stack that was filled from its end to its beginning,
// in pieces that do not overlap where they go.
static rabbet_status_t move_down(const rabbet_loop_run_t* loop, uint8_t* stack,
                                 size_t gap, size_t bytes) {
  for (size_t done = 0; gap > 0 && done < bytes; done += gap) {
    size_t piece = bytes - done < gap ? bytes - done : gap;
    RABBET_RETURN_IF_ERROR(loop->device->vtable->copy(
        loop->device, stack + done, stack + done + gap, piece, loop->stream));
  }
  return rabbet_ok();
}

// Extents that no iteration told are 0.
static void tell_stack(const rabbet_loop_run_t* loop, size_t output) {
  const rabbet_loop_stack_t* stack = &loop->stacks[output];
  rabbet_loop_result_t* result = &loop->run->loop[output];
  result->dims =
      loop->prepared->dims[rabbet_step_output_value(loop->step, output)];
  if (result->dims.d[0] < 0) result->dims.d[0] = loop->trip;
  for (int32_t i = 1; i < result->dims.rank; ++i)
    if (result->dims.d[i] < 0)
      result->dims.d[i] = stack->is_known ? stack->dims.d[i - 1] : 0;
  if (!rabbet_loop_is_late(loop, output)) return;
  result->late = loop->grown[2 * loop->wiring.carried_count + output].memory;
  result->late_bytes = stack->stride * (size_t)loop->trip;
}

rabbet_status_t rabbet_loop_finish_stack(rabbet_loop_run_t* loop,
                                         size_t output) {
  int32_t value = rabbet_step_output_value(loop->step, output);
  uint8_t* stack = loop->run->call.outputs[output];
  bool is_told = loop->prepared->dims[value].d[0] < 0;
  tell_stack(loop, output);
  if (rabbet_loop_is_late(loop, output)) return rabbet_ok();
  size_t made = loop->stacks[output].stride * (size_t)loop->trip;
  size_t rest = loop->prepared->bytes[value] - made;
  if (is_told)
    rest = loop->stacks[output].stride *
               (size_t)(loop->trip ? stack_length(loop, output) : 0) -
           made;
  if (loop->wiring.kinds[output] == RABBET_LOOP_OUTPUT_REVERSE &&
      !loop->is_counted && loop->trip > 0)
    RABBET_RETURN_IF_ERROR(move_down(loop, stack, rest, made));
  return is_told || rest == 0
             ? rabbet_ok()
             : loop->device->vtable->fill(loop->device, stack + made, 0, rest,
                                          loop->stream);
}
