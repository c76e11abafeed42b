// Loops that run other sequences.
//
// The host reads the condition before each iteration. Carried tensors are never
// copied between iterations: the body reads one buffer and writes another, and
// they take turns. One of them is the memory of the step's output if there is
// one for the last value. Slices and stacked results are addresses within the
// step's inputs and outputs.
//
// Values whose extents iterations change, and stacks without a bound, lie in
// memory of the frame, which grows. The step's outputs get copies once the next
// segment has memory for them.
#include <string.h>

#include "base/math.h"
#include "core/view.h"
#include "rabbet/network.h"
#include "runtime/loop.h"

// ---- Beginning

static rabbet_status_t read_number(const rabbet_loop_run_t* loop, int64_t input,
                                   int64_t* out_number) {
  int64_t at = rabbet_loop_find_input(loop->step, input);
  int32_t value = rabbet_step_input_value(loop->step, at);
  const int64_t* known = rabbet_host_values(loop->prepared, value);
  rabbet_dtype_t dtype = loop->frame->sequence->plan->values[value].dtype;
  int64_t number = 0;
  if (known) {
    *out_number = known[0];
    return rabbet_ok();
  }
  RABBET_RETURN_IF_ERROR(
      rabbet_context_refuse_recording(loop->frame->context, loop->stream));
  RABBET_RETURN_IF_ERROR(loop->device->vtable->copy_to_host(
      loop->device, &number, loop->run->call.inputs[at],
      (size_t)rabbet_dtype_bits(dtype) / 8, loop->stream));
  if (!loop->device->host_memory)
    RABBET_RETURN_IF_ERROR(
        loop->device->vtable->synchronize(loop->device, loop->stream));
  *out_number = rabbet_load_int64(dtype, &number, 0);
  return rabbet_ok();
}

static rabbet_status_t check_room(const rabbet_loop_run_t* loop, size_t output,
                                  size_t bytes) {
  int32_t value = rabbet_step_output_value(loop->step, output);
  return bytes <= loop->prepared->bytes[value] &&
                 !rabbet_loop_is_late(loop, output)
             ? rabbet_ok()
             : RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                             "output '%s' has %zu bytes; its last value needs "
                             "%zu",
                             loop->frame->sequence->plan->values[value].name,
                             loop->prepared->bytes[value], bytes);
}

static rabbet_status_t place_buffers(rabbet_loop_run_t* loop) {
  uint8_t* memory = loop->run->call.workspace;
  const rabbet_plan_call_t* call = &loop->step->calls[0];
  loop->flag = memory;
  memory += RABBET_DEVICE_ALIGNMENT;
  for (size_t i = 0; i < loop->wiring.carried_count; ++i) {
    rabbet_loop_carried_t* carried = &loop->carried[i];
    int32_t value = rabbet_step_input_value(loop->step, call->inputs[i]);
    carried->at = loop->run->call.inputs[call->inputs[i]];
    carried->dims = loop->prepared->dims[value];
    carried->bytes = loop->prepared->bytes[value];
    carried->output = rabbet_loop_last_output(&loop->wiring, i);
    for (size_t k = 0; k < 2 && loop->wiring.varying[i] == 0; ++k) {
      bool is_output = k == 0 && carried->output >= 0;
      carried->buffers[k] =
          is_output ? loop->run->call.outputs[carried->output] : memory;
      if (!is_output)
        memory += rabbet_align_up(carried->bytes, RABBET_DEVICE_ALIGNMENT);
    }
  }
  for (size_t i = 0; i < loop->wiring.output_count; ++i) {
    bool is_last = loop->wiring.kinds[i] == RABBET_LOOP_OUTPUT_LAST_VALUE;
    int64_t source = loop->wiring.sources[i];
    if (!is_last || loop->wiring.varying[source] != 0) continue;
    RABBET_RETURN_IF_ERROR(check_room(loop, i, loop->carried[source].bytes));
  }
  return rabbet_ok();
}

// The key of the first iteration; unknown values are the loop's.
static rabbet_status_t begin_call(rabbet_loop_run_t* loop, size_t at) {
  const rabbet_plan_call_t* call = &loop->step->calls[at];
  bool known = false;
  loop->frames[at] =
      rabbet_context_frame(loop->frame->context, (size_t)call->sequence);
  RABBET_RETURN_IF_ERROR(rabbet_call_key(
      loop->prepared, loop->step, call, loop->frames[at]->sequence,
      loop->frames[at]->next_key, &known, &loop->changes[at]));
  if (!known) return rabbet_call_unknown();
  return loop->changes[at]
             ? rabbet_ok()
             : rabbet_call_find(loop->frames[at], &loop->nodes[at]);
}

static rabbet_status_t begin(rabbet_loop_run_t* loop) {
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(loop->frame->context->allocator,
                      (loop->wiring.carried_count + 1) * sizeof(*loop->carried),
                      (void**)&loop->carried));
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(loop->frame->context->allocator,
                      (loop->wiring.output_count + 1) * sizeof(*loop->stacks),
                      (void**)&loop->stacks));
  RABBET_RETURN_IF_ERROR(rabbet_frame_find_grown(
      loop->frame, loop->run->step,
      2 * loop->wiring.carried_count + loop->wiring.output_count,
      &loop->grown));
  loop->count = INT64_MAX;
  loop->is_counted = loop->wiring.count >= 0 && loop->wiring.condition < 0 &&
                     loop->step->call_count == 1;
  if (loop->wiring.count >= 0)
    RABBET_RETURN_IF_ERROR(read_number(loop, loop->wiring.count, &loop->count));
  if (loop->count < 0) loop->count = 0;
  RABBET_RETURN_IF_ERROR(place_buffers(loop));
  for (size_t i = 0; i < loop->step->call_count; ++i)
    RABBET_RETURN_IF_ERROR(begin_call(loop, i));
  return rabbet_ok();
}

// ---- Inputs of an iteration

// Whether the sequence reads the input.
static bool is_read(const rabbet_sequence_t* sequence, size_t io) {
  const rabbet_plan_analysis_t* analysis = &sequence->analysis;
  int32_t root = analysis->roots[sequence->plan->ios[io].value];
  return analysis->last_steps[root] >= 0 || sequence->ios[io].is_shape_input;
}

static rabbet_status_t slice_address(const rabbet_loop_run_t* loop, size_t at,
                                     size_t io,
                                     const rabbet_sequence_t* sequence,
                                     const void** out_address) {
  int32_t input = loop->step->calls[0].inputs[io];
  int32_t value = rabbet_step_input_value(loop->step, input);
  int64_t extent = loop->prepared->dims[value].d[0];
  *out_address = loop->run->call.inputs[input];
  if (loop->trip >= extent)
    return !is_read(sequence, io)
               ? rabbet_ok()
               : RABBET_STATUS(
                     RABBET_STATUS_OUT_OF_RANGE,
                     "'%s', which an iterator walks along, has %lld slices, "
                     "but the loop runs more often; end it with a trip limit",
                     loop->frame->sequence->plan->values[value].name,
                     (long long)extent);
  int64_t index =
      loop->wiring.reverse[at] ? extent - 1 - loop->trip : loop->trip;
  size_t stride = loop->prepared->bytes[value] / (size_t)extent;
  *out_address = (const uint8_t*)*out_address + stride * (size_t)index;
  return rabbet_ok();
}

static rabbet_status_t pass_inputs(rabbet_loop_run_t* loop, size_t which) {
  const rabbet_plan_call_t* call = &loop->step->calls[which];
  rabbet_frame_t* callee = loop->frames[which];
  size_t carried = loop->wiring.carried_count;
  size_t sliced = carried + loop->wiring.slice_count;
  for (size_t i = 0; i < call->input_count; ++i) {
    const void* address = i < carried ? loop->carried[i].at
                          : i < sliced
                              ? NULL
                              : loop->run->call.inputs[call->inputs[i]];
    if (i >= carried && i < sliced)
      RABBET_RETURN_IF_ERROR(
          slice_address(loop, i - carried, i, callee->sequence, &address));
    rabbet_frame_store_address(callee, i, (void*)(uintptr_t)address);
  }
  return rabbet_ok();
}

// Elements of a shape input that the loop makes.
static rabbet_status_t read_values(const rabbet_loop_run_t* loop,
                                   rabbet_frame_t* callee, size_t io) {
  const rabbet_io_t* tensor = &callee->sequence->ios[io];
  rabbet_dtype_t dtype = tensor->dtype;
  int64_t* key = callee->next_key + callee->sequence->key_offsets[io];
  int64_t count = 0;
  size_t element = (size_t)rabbet_dtype_bits(dtype) / 8;
  void* staging = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(&tensor->dims, &count));
  RABBET_RETURN_IF_ERROR(
      rabbet_context_refuse_recording(loop->frame->context, loop->stream));
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      loop->frame->context->allocator, (size_t)count * element + 1, &staging));
  rabbet_status_t status = loop->device->vtable->copy_to_host(
      loop->device, staging, callee->addresses[io], (size_t)count * element,
      loop->stream);
  status = rabbet_status_join(
      status, loop->device->vtable->synchronize(loop->device, loop->stream));
  for (int64_t i = 0; i < count && rabbet_is_ok(status); ++i) {
    int64_t number = rabbet_load_int64(dtype, staging, i);
    key[tensor->dims.rank + i] = number;
    if (number < INT32_MIN || number > INT32_MAX)
      status = RABBET_STATUS(
          RABBET_STATUS_OUT_OF_RANGE,
          "element %lld of '%s', which shapes depend on, is %lld; in a loop it "
          "must be in the range of INT32",
          (long long)i, tensor->name, (long long)number);
  }
  rabbet_free(loop->frame->context->allocator, staging);
  return status;
}

static rabbet_status_t find_node(rabbet_loop_run_t* loop, size_t which) {
  rabbet_frame_t* callee = loop->frames[which];
  size_t count = loop->wiring.carried_count + loop->wiring.slice_count;
  if (!loop->changes[which]) return rabbet_ok();
  for (size_t i = 0; i < loop->wiring.carried_count; ++i)
    memcpy(callee->next_key + callee->sequence->key_offsets[i],
           loop->carried[i].dims.d,
           (size_t)loop->carried[i].dims.rank * sizeof(*callee->next_key));
  for (size_t i = 0; i < count; ++i)
    if (callee->sequence->ios[i].is_shape_input)
      RABBET_RETURN_IF_ERROR(read_values(loop, callee, i));
  return rabbet_call_find(callee, &loop->nodes[which]);
}

// ---- Outputs of an iteration

// With a known number of iterations the last value comes to lie in the output.
static void* next_buffer(const rabbet_loop_run_t* loop,
                         const rabbet_loop_carried_t* carried) {
  int64_t left = loop->is_counted ? loop->count - 1 - loop->trip : loop->trip;
  void* buffer = carried->buffers[left % 2];
  return buffer == carried->at ? carried->buffers[1 - left % 2] : buffer;
}

static rabbet_status_t pass_outputs(rabbet_loop_run_t* loop) {
  rabbet_frame_t* callee = loop->frames[0];
  size_t first = callee->sequence->plan->input_count;
  for (size_t i = 0; i < loop->wiring.carried_count; ++i) {
    if (loop->wiring.varying[i] != 0) continue;
    callee->rooms[first + i] = loop->carried[i].bytes;
    rabbet_frame_store_address(callee, first + i,
                               next_buffer(loop, &loop->carried[i]));
  }
  for (size_t i = 0; i < loop->wiring.output_count; ++i)
    if (loop->wiring.kinds[i] != RABBET_LOOP_OUTPUT_LAST_VALUE)
      RABBET_RETURN_IF_ERROR(rabbet_loop_pass_stack(loop, i));
  return rabbet_ok();
}

// ---- An iteration

rabbet_status_t rabbet_loop_check_same(const char* name,
                                       const rabbet_dims_t* made,
                                       const rabbet_dims_t* expected,
                                       int64_t varying) {
  for (int32_t axis = 0; axis < expected->rank; ++axis)
    if (made->d[axis] != expected->d[axis] && !(varying >> axis & 1))
      return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                           "dimension %d of '%s' is %lld; expected %lld", axis,
                           name, (long long)made->d[axis],
                           (long long)expected->d[axis]);
  return rabbet_ok();
}

// Takes the results; they must have the extents that the plan states.
static rabbet_status_t collect(rabbet_loop_run_t* loop) {
  rabbet_frame_t* callee = loop->frames[0];
  const rabbet_plan_sequence_t* plan = callee->sequence->plan;
  const rabbet_prepared_t* leaf = callee->last;
  for (size_t i = 0; i < loop->wiring.carried_count; ++i) {
    const rabbet_plan_io_t* io = &plan->ios[plan->input_count + i];
    rabbet_loop_carried_t* carried = &loop->carried[i];
    RABBET_RETURN_IF_ERROR(
        rabbet_loop_check_same(io->name, &leaf->dims[io->value], &carried->dims,
                               loop->wiring.varying[i]));
    carried->dims = leaf->dims[io->value];
    carried->bytes = leaf->bytes[io->value];
    carried->at = callee->addresses[plan->input_count + i];
  }
  for (size_t i = 0; i < loop->wiring.output_count; ++i)
    if (loop->wiring.kinds[i] != RABBET_LOOP_OUTPUT_LAST_VALUE)
      RABBET_RETURN_IF_ERROR(rabbet_loop_collect_stack(loop, i));
  return rabbet_ok();
}

static rabbet_status_t compute_condition(rabbet_loop_run_t* loop,
                                         bool* out_goes_on) {
  rabbet_frame_t* callee = loop->frames[1];
  size_t io = callee->sequence->plan->input_count;
  RABBET_RETURN_IF_ERROR(pass_inputs(loop, 1));
  callee->rooms[io] = 1;
  rabbet_frame_store_address(callee, io, loop->flag);
  RABBET_RETURN_IF_ERROR(find_node(loop, 1));
  RABBET_RETURN_IF_ERROR(rabbet_call_run(callee, loop->nodes[1], loop->stream));
  return rabbet_read_flag(loop->frame, loop->flag, loop->stream, out_goes_on);
}

static rabbet_status_t ask(rabbet_loop_run_t* loop, bool* out_goes_on) {
  *out_goes_on = loop->trip < loop->count;
  if (!*out_goes_on) return rabbet_ok();
  if (loop->wiring.condition >= 0)
    return rabbet_read_flag(loop->frame,
                            loop->carried[loop->wiring.condition].at,
                            loop->stream, out_goes_on);
  return loop->step->call_count > 1 ? compute_condition(loop, out_goes_on)
                                    : rabbet_ok();
}

static rabbet_status_t iterate(rabbet_loop_run_t* loop, bool* out_goes_on) {
  RABBET_RETURN_IF_ERROR(ask(loop, out_goes_on));
  if (!*out_goes_on) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(
      rabbet_context_next_iteration(loop->frame->context, loop->trip));
  RABBET_RETURN_IF_ERROR(pass_inputs(loop, 0));
  RABBET_RETURN_IF_ERROR(find_node(loop, 0));
  RABBET_RETURN_IF_ERROR(pass_outputs(loop));
  RABBET_RETURN_IF_ERROR(
      rabbet_call_run(loop->frames[0], loop->nodes[0], loop->stream));
  RABBET_RETURN_IF_ERROR(collect(loop));
  ++loop->trip;
  return rabbet_ok();
}

// ---- The end

static rabbet_status_t finish_last(rabbet_loop_run_t* loop, size_t output) {
  const rabbet_loop_carried_t* carried =
      &loop->carried[loop->wiring.sources[output]];
  void* to = loop->run->call.outputs[output];
  rabbet_call_result_t* result = &loop->run->results[output];
  result->dims = carried->dims;
  if (rabbet_loop_is_late(loop, output)) {
    result->late = carried->at;
    result->late_bytes = carried->bytes;
    return rabbet_ok();
  }
  RABBET_RETURN_IF_ERROR(check_room(loop, output, carried->bytes));
  return carried->at == to || carried->bytes == 0
             ? rabbet_ok()
             : loop->device->vtable->copy(loop->device, to, carried->at,
                                          carried->bytes, loop->stream);
}

static rabbet_status_t finish(rabbet_loop_run_t* loop) {
  for (size_t i = 0; i < loop->wiring.output_count; ++i)
    RABBET_RETURN_IF_ERROR(loop->wiring.kinds[i] ==
                                   RABBET_LOOP_OUTPUT_LAST_VALUE
                               ? finish_last(loop, i)
                               : rabbet_loop_finish_stack(loop, i));
  return rabbet_ok();
}

rabbet_status_t rabbet_run_loop(rabbet_frame_t* frame,
                                const rabbet_prepared_t* prepared,
                                rabbet_run_t* run, void* stream) {
  rabbet_loop_run_t loop = {.frame = frame,
                            .prepared = prepared,
                            .run = run,
                            .stream = stream,
                            .device = frame->context->engine->device,
                            .step = &frame->sequence->plan->steps[run->step]};
  rabbet_step_loop(loop.step, &loop.wiring);
  memset(run->results, 0, loop.wiring.output_count * sizeof(*run->results));
  rabbet_status_t status = begin(&loop);
  if (rabbet_is_ok(status)) status = rabbet_loop_begin_growing(&loop);
  bool goes_on = true;
  while (rabbet_is_ok(status) && goes_on)
    status = iterate(&loop, &goes_on);
  if (!rabbet_is_ok(status))
    status =
        rabbet_status_annotate(status, "iteration %lld", (long long)loop.trip);
  else
    status = finish(&loop);
  rabbet_loop_end_growing(&loop);
  rabbet_free(frame->context->allocator, loop.carried);
  rabbet_free(frame->context->allocator, loop.stacks);
  return status;
}
