// Results that a loop stacks.
#include "runtime/loop.h"

bool rabbet_loop_is_late(const rabbet_loop_run_t* loop, size_t output) {
  return loop->prepared->bytes[rabbet_step_output_value(loop->step, output)] ==
         RABBET_BYTES_UNKNOWN;
}

static const rabbet_plan_io_t* stack_io(const rabbet_loop_run_t* loop,
                                        size_t output) {
  const rabbet_plan_sequence_t* plan = loop->frames[0]->sequence->plan;
  return &plan->ios[plan->input_count + (size_t)loop->wiring.sources[output]];
}

// The extents of a stack's elements: those outside, or those of this iteration.
// False if the body has yet to tell them.
static bool find_element(const rabbet_loop_run_t* loop, size_t output,
                         rabbet_dims_t* out_dims) {
  const rabbet_dims_t* outside =
      &loop->prepared->dims[rabbet_step_output_value(loop->step, output)];
  *out_dims = loop->nodes[0]->dims[stack_io(loop, output)->value];
  for (int32_t i = 0; i < out_dims->rank; ++i) {
    if (out_dims->d[i] < 0) out_dims->d[i] = outside->d[i + 1];
    if (out_dims->d[i] < 0) return false;
  }
  return true;
}

static rabbet_status_t begin_stack(const rabbet_loop_run_t* loop, size_t output,
                                   const rabbet_dims_t* dims) {
  rabbet_loop_stack_t* stack = &loop->stacks[output];
  int32_t value = rabbet_step_output_value(loop->step, output);
  const rabbet_dims_t* outside = &loop->prepared->dims[value];
  stack->dims = *dims;
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

// Whether elements lie in the order of iterations until the loop has ended,
// although their order is the other one: where the end lies is not known.
static bool is_reversed_late(const rabbet_loop_run_t* loop, size_t output) {
  return loop->wiring.kinds[output] == RABBET_LOOP_OUTPUT_REVERSE &&
         (loop->stacks[output].is_told || rabbet_loop_is_late(loop, output));
}

static rabbet_io_memory_t* stack_memory(const rabbet_loop_run_t* loop,
                                        size_t output) {
  return &loop->grown[2 * loop->wiring.carried_count + output];
}

rabbet_status_t rabbet_loop_place_element(rabbet_loop_run_t* loop,
                                          size_t output, size_t bytes,
                                          void** out_address) {
  size_t stride = loop->stacks[output].stride;
  size_t room =
      loop->prepared->bytes[rabbet_step_output_value(loop->step, output)];
  uint8_t* base = loop->run->call.outputs[output];
  int64_t length = stack_length(loop, output), at = loop->trip;
  if (loop->wiring.kinds[output] == RABBET_LOOP_OUTPUT_REVERSE &&
      !is_reversed_late(loop, output))
    at = (loop->is_counted ? loop->count : length) - 1 - loop->trip;
  if (at >= length || loop->trip >= length)
    return stack_is_full(loop, output, length);
  size_t offset = (size_t)at * stride;
  if (rabbet_loop_is_late(loop, output)) {
    rabbet_io_memory_t* memory = stack_memory(loop, output);
    RABBET_RETURN_IF_ERROR(rabbet_frame_grow(
        loop->frame, memory, offset + bytes, offset, loop->stream));
    base = memory->memory;
    room = memory->bytes;
  }
  if (offset > room || bytes > room - offset)
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                         "an element of %zu bytes at %zu does not fit into "
                         "the stack's %zu",
                         bytes, offset, room);
  loop->frames[0]
      ->rooms[stack_io(loop, output) - loop->frames[0]->sequence->plan->ios] =
      bytes;
  *out_address = base + offset;
  return rabbet_ok();
}

rabbet_status_t rabbet_loop_pass_stack(rabbet_loop_run_t* loop, size_t output) {
  rabbet_frame_t* callee = loop->frames[0];
  rabbet_loop_stack_t* stack = &loop->stacks[output];
  rabbet_dims_t dims;
  void* address = NULL;
  if (!stack->is_known && !stack->is_told) {
    stack->is_told = !find_element(loop, output, &dims);
    if (stack->is_told)
      rabbet_loop_grow_stack(loop, output);
    else
      RABBET_RETURN_IF_ERROR(begin_stack(loop, output, &dims));
  }
  if (stack->is_told) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(
      rabbet_loop_place_element(loop, output, stack->stride, &address));
  rabbet_frame_store_address(
      callee, (size_t)(stack_io(loop, output) - callee->sequence->plan->ios),
      address);
  return rabbet_ok();
}

rabbet_status_t rabbet_loop_collect_stack(rabbet_loop_run_t* loop,
                                          size_t output) {
  const rabbet_plan_io_t* io = stack_io(loop, output);
  const rabbet_dims_t* made = &loop->frames[0]->last->dims[io->value];
  return loop->stacks[output].is_known
             ? rabbet_loop_check_same(io->name, made,
                                      &loop->stacks[output].dims, 0)
             : begin_stack(loop, output, made);
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

// Turns round the order of a stack's elements, in place.
static rabbet_status_t reverse(const rabbet_loop_run_t* loop, size_t output) {
  rabbet_device_t* device = loop->device;
  rabbet_io_memory_t* memory = stack_memory(loop, output);
  size_t stride = loop->stacks[output].stride, count = (size_t)loop->trip;
  bool late = rabbet_loop_is_late(loop, output);
  size_t made = late ? count * stride : 0;
  if (stride == 0 || count < 2) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_frame_grow(loop->frame, memory, made + stride,
                                           made, loop->stream));
  uint8_t* stack = late ? memory->memory : loop->run->call.outputs[output];
  uint8_t* spare = (uint8_t*)memory->memory + made;
  for (size_t a = 0, b = count - 1; a < b; ++a, --b) {
    uint8_t *first = stack + a * stride, *last = stack + b * stride;
    RABBET_RETURN_IF_ERROR(
        device->vtable->copy(device, spare, first, stride, loop->stream));
    RABBET_RETURN_IF_ERROR(
        device->vtable->copy(device, first, last, stride, loop->stream));
    RABBET_RETURN_IF_ERROR(
        device->vtable->copy(device, last, spare, stride, loop->stream));
  }
  return rabbet_ok();
}

// Extents that no iteration told are 0.
static void tell_stack(const rabbet_loop_run_t* loop, size_t output) {
  const rabbet_loop_stack_t* stack = &loop->stacks[output];
  rabbet_call_result_t* result = &loop->run->results[output];
  result->dims =
      loop->prepared->dims[rabbet_step_output_value(loop->step, output)];
  if (result->dims.d[0] < 0) result->dims.d[0] = loop->trip;
  for (int32_t i = 1; i < result->dims.rank; ++i)
    if (result->dims.d[i] < 0)
      result->dims.d[i] = stack->is_known ? stack->dims.d[i - 1] : 0;
  if (!rabbet_loop_is_late(loop, output)) return;
  result->late = stack_memory(loop, output)->memory;
  result->late_bytes = stack->stride * (size_t)loop->trip;
}

rabbet_status_t rabbet_loop_finish_stack(rabbet_loop_run_t* loop,
                                         size_t output) {
  int32_t value = rabbet_step_output_value(loop->step, output);
  uint8_t* stack = loop->run->call.outputs[output];
  bool is_told = loop->prepared->dims[value].d[0] < 0;
  if (is_reversed_late(loop, output))
    RABBET_RETURN_IF_ERROR(reverse(loop, output));
  tell_stack(loop, output);
  if (rabbet_loop_is_late(loop, output)) return rabbet_ok();
  size_t made = loop->stacks[output].stride * (size_t)loop->trip;
  size_t rest = loop->prepared->bytes[value] - made;
  if (is_told)
    rest = loop->stacks[output].stride *
               (size_t)(loop->trip ? stack_length(loop, output) : 0) -
           made;
  if (loop->wiring.kinds[output] == RABBET_LOOP_OUTPUT_REVERSE &&
      !is_reversed_late(loop, output) && !loop->is_counted && loop->trip > 0)
    RABBET_RETURN_IF_ERROR(move_down(loop, stack, rest, made));
  return is_told || rest == 0
             ? rabbet_ok()
             : loop->device->vtable->fill(loop->device, stack + made, 0, rest,
                                          loop->stream);
}
