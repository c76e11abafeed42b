// Loops that run other sequences.
//
// The host reads the condition before each iteration. Carried tensors are never
// copied between iterations: the body reads one buffer and writes another, and
// they take turns. One of them is the memory of the step's output if there is
// one for the last value. Slices and stacked results are addresses within the
// step's inputs and outputs.
#include <string.h>

#include "base/math.h"
#include "core/view.h"
#include "rabbet/network.h"
#include "runtime/call.h"

typedef struct carried_t {
  const void* at;  // the present value
  void* buffers[2];
  size_t bytes;    // of each buffer
  int64_t output;  // of the step, for the last value, or -1
} carried_t;

typedef struct loop_t {
  rabbet_frame_t* frame;
  const rabbet_prepared_t* prepared;
  rabbet_run_t* run;
  void* stream;
  rabbet_device_t* device;
  const rabbet_plan_step_t* step;
  rabbet_loop_wiring_t wiring;
  carried_t* carried;
  void* flag;       // of the computed condition
  int64_t count;    // INT64_MAX: no limit
  bool is_counted;  // nothing else ends it
  int64_t trip;
  rabbet_frame_t* frames[2];    // of the body and the condition
  rabbet_prepared_t* nodes[2];  // their first segments
  bool changes[2];              // iterations change their keys
} loop_t;

// Value of the step's input or output.
static int32_t input_value(const rabbet_plan_step_t* step, int64_t input) {
  return step->values[step->group.inputs[input]];
}
static int32_t output_value(const rabbet_plan_step_t* step, size_t output) {
  return step->values[step->group.outputs[output]];
}

// The step's input that is an input of its layer.
static int64_t find_input(const rabbet_plan_step_t* step, int64_t input) {
  int64_t at = 0;
  while (step->group.inputs[at] != step->group.nodes[0].inputs[input])
    ++at;
  return at;
}

static int64_t last_output(const rabbet_loop_wiring_t* wiring, size_t carried) {
  for (size_t i = 0; i < wiring->output_count; ++i)
    if (wiring->kinds[i] == RABBET_LOOP_OUTPUT_LAST_VALUE &&
        wiring->sources[i] == (int64_t)carried)
      return (int64_t)i;
  return -1;
}

// ---- Preparing

static size_t buffer_bytes(const rabbet_prepared_t* prepared,
                           const rabbet_plan_step_t* step, size_t carried) {
  size_t bytes =
      prepared->bytes[input_value(step, step->calls[0].inputs[carried])];
  return rabbet_align_up(bytes, RABBET_DEVICE_ALIGNMENT);
}

rabbet_status_t rabbet_loop_prepare(rabbet_prepared_t* prepared,
                                    const rabbet_plan_step_t* step,
                                    rabbet_run_t* run, size_t* out_workspace) {
  rabbet_loop_wiring_t wiring;
  *out_workspace = 0;
  if (!rabbet_step_loop(step, &wiring)) return rabbet_ok();
  size_t bytes = RABBET_DEVICE_ALIGNMENT;  // the condition
  for (size_t i = 0; i < wiring.carried_count; ++i)
    bytes +=
        buffer_bytes(prepared, step, i) * (last_output(&wiring, i) < 0 ? 2 : 1);
  *out_workspace = bytes;
  return rabbet_arena_allocate_array(&prepared->arena, wiring.output_count + 1,
                                     sizeof(*run->loop), (void**)&run->loop);
}

// ---- Beginning

static rabbet_status_t read_number(const loop_t* loop, int64_t input,
                                   int64_t* out_number) {
  int64_t at = find_input(loop->step, input);
  int32_t value = input_value(loop->step, at);
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

static rabbet_status_t check_room(const loop_t* loop, size_t output,
                                  size_t bytes) {
  int32_t value = output_value(loop->step, output);
  return bytes <= loop->prepared->bytes[value]
             ? rabbet_ok()
             : RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                             "output '%s' has %zu bytes; its last value needs "
                             "%zu",
                             loop->frame->sequence->plan->values[value].name,
                             loop->prepared->bytes[value], bytes);
}

static rabbet_status_t place_buffers(loop_t* loop) {
  uint8_t* memory = loop->run->call.workspace;
  const rabbet_plan_call_t* call = &loop->step->calls[0];
  loop->flag = memory;
  memory += RABBET_DEVICE_ALIGNMENT;
  for (size_t i = 0; i < loop->wiring.carried_count; ++i) {
    carried_t* carried = &loop->carried[i];
    carried->at = loop->run->call.inputs[call->inputs[i]];
    carried->output = last_output(&loop->wiring, i);
    carried->bytes =
        loop->prepared->bytes[input_value(loop->step, call->inputs[i])];
    for (size_t k = 0; k < 2; ++k) {
      bool is_output = k == 0 && carried->output >= 0;
      carried->buffers[k] =
          is_output ? loop->run->call.outputs[carried->output] : memory;
      if (!is_output) memory += buffer_bytes(loop->prepared, loop->step, i);
    }
  }
  for (size_t i = 0; i < loop->wiring.output_count; ++i)
    if (loop->wiring.kinds[i] == RABBET_LOOP_OUTPUT_LAST_VALUE)
      RABBET_RETURN_IF_ERROR(
          check_room(loop, i, loop->carried[loop->wiring.sources[i]].bytes));
  return rabbet_ok();
}

// The key of the first iteration; unknown values are the loop's.
static rabbet_status_t begin_call(loop_t* loop, size_t at) {
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

static rabbet_status_t begin(loop_t* loop) {
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(loop->frame->context->allocator,
                      (loop->wiring.carried_count + 1) * sizeof(*loop->carried),
                      (void**)&loop->carried));
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

static rabbet_status_t slice_address(const loop_t* loop, size_t at, size_t io,
                                     const rabbet_sequence_t* sequence,
                                     const void** out_address) {
  int32_t input = loop->step->calls[0].inputs[io];
  int32_t value = input_value(loop->step, input);
  int64_t extent = loop->prepared->dims[value].d[0];
  *out_address = loop->run->call.inputs[input];
  if (loop->trip >= extent)
    return !is_read(sequence, io)
               ? rabbet_ok()
               : RABBET_STATUS(
                     RABBET_STATUS_OUT_OF_RANGE,
                     "what it walks along, '%s', has %lld slices, but the loop "
                     "runs more often; end it earlier with a trip limit",
                     loop->frame->sequence->plan->values[value].name,
                     (long long)extent);
  int64_t index =
      loop->wiring.reverse[at] ? extent - 1 - loop->trip : loop->trip;
  size_t stride = loop->prepared->bytes[value] / (size_t)extent;
  *out_address = (const uint8_t*)*out_address + stride * (size_t)index;
  return rabbet_ok();
}

static rabbet_status_t pass_inputs(loop_t* loop, size_t which) {
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
static rabbet_status_t read_values(const loop_t* loop, rabbet_frame_t* callee,
                                   size_t io) {
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

static rabbet_status_t find_node(loop_t* loop, size_t which) {
  rabbet_frame_t* callee = loop->frames[which];
  size_t count = loop->wiring.carried_count + loop->wiring.slice_count;
  if (!loop->changes[which]) return rabbet_ok();
  for (size_t i = 0; i < count; ++i)
    if (callee->sequence->ios[i].is_shape_input)
      RABBET_RETURN_IF_ERROR(read_values(loop, callee, i));
  return rabbet_call_find(callee, &loop->nodes[which]);
}

// ---- Outputs of an iteration

// With a known number of iterations the last value comes to lie in the output.
static void* next_buffer(const loop_t* loop, const carried_t* carried) {
  int64_t left = loop->is_counted ? loop->count - 1 - loop->trip : loop->trip;
  void* buffer = carried->buffers[left % 2];
  return buffer == carried->at ? carried->buffers[1 - left % 2] : buffer;
}

// Bytes of one element of a stack; its extents but the first.
static rabbet_status_t stack_stride(const loop_t* loop, size_t output,
                                    rabbet_dims_t* out_dims,
                                    size_t* out_stride) {
  int32_t value = output_value(loop->step, output);
  const rabbet_dims_t* dims = &loop->prepared->dims[value];
  const rabbet_plan_value_t* tensor =
      &loop->frame->sequence->plan->values[value];
  out_dims->rank = dims->rank - 1;
  for (int32_t i = 1; i < dims->rank; ++i) {
    out_dims->d[i - 1] = dims->d[i];
    if (dims->d[i] < 0)
      return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                           "only a run tells extent %d of '%s'", i,
                           tensor->name);
  }
  return rabbet_tensor_bytes(tensor->dtype, RABBET_FORMAT_LINEAR, out_dims,
                             out_stride);
}

// Elements that a stack has or, if only the run tells, has room for.
static int64_t stack_length(const loop_t* loop, size_t output, size_t stride) {
  int32_t value = output_value(loop->step, output);
  int64_t length = loop->prepared->dims[value].d[0];
  if (length >= 0) return length;
  return stride ? (int64_t)(loop->prepared->bytes[value] / stride) : INT64_MAX;
}

static rabbet_status_t pass_stack(loop_t* loop, size_t output) {
  rabbet_frame_t* callee = loop->frames[0];
  size_t io = callee->sequence->plan->input_count +
              (size_t)loop->wiring.sources[output];
  rabbet_dims_t dims;
  size_t stride = 0;
  RABBET_RETURN_IF_ERROR(stack_stride(loop, output, &dims, &stride));
  int64_t length = stack_length(loop, output, stride);
  if (loop->trip >= length)
    return RABBET_STATUS(
        RABBET_STATUS_OUT_OF_RANGE,
        "the length of its output '%s' is %lld, but the loop runs more often; "
        "give it the number of iterations, or more",
        loop->frame->sequence->plan->values[output_value(loop->step, output)]
            .name,
        (long long)length);
  int64_t at = loop->trip;
  if (loop->wiring.kinds[output] == RABBET_LOOP_OUTPUT_REVERSE)
    at = (loop->is_counted && stride ? loop->count : length) - 1 - loop->trip;
  if (stride == 0) at = 0;
  if (at >= length)
    return RABBET_STATUS(
        RABBET_STATUS_OUT_OF_RANGE,
        "the length of its output '%s' is %lld, but the loop runs %lld times; "
        "give it the number of iterations, or more",
        loop->frame->sequence->plan->values[output_value(loop->step, output)]
            .name,
        (long long)length, (long long)loop->count);
  callee->rooms[io] = stride;
  rabbet_frame_store_address(
      callee, io,
      (uint8_t*)loop->run->call.outputs[output] + (size_t)at * stride);
  return rabbet_ok();
}

static rabbet_status_t pass_outputs(loop_t* loop) {
  rabbet_frame_t* callee = loop->frames[0];
  size_t first = callee->sequence->plan->input_count;
  for (size_t i = 0; i < loop->wiring.carried_count; ++i) {
    callee->rooms[first + i] = loop->carried[i].bytes;
    rabbet_frame_store_address(callee, first + i,
                               next_buffer(loop, &loop->carried[i]));
  }
  for (size_t i = 0; i < loop->wiring.output_count; ++i)
    if (loop->wiring.kinds[i] != RABBET_LOOP_OUTPUT_LAST_VALUE)
      RABBET_RETURN_IF_ERROR(pass_stack(loop, i));
  return rabbet_ok();
}

// ---- An iteration

static rabbet_status_t check_same(const char* name, const rabbet_dims_t* made,
                                  const rabbet_dims_t* expected) {
  for (int32_t axis = 0; axis < expected->rank; ++axis)
    if (made->d[axis] != expected->d[axis])
      return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                           "dimension %d of '%s' is %lld; expected %lld", axis,
                           name, (long long)made->d[axis],
                           (long long)expected->d[axis]);
  return rabbet_ok();
}

// Takes the results; they must have the extents that the plan states.
static rabbet_status_t collect(loop_t* loop) {
  rabbet_frame_t* callee = loop->frames[0];
  const rabbet_plan_sequence_t* plan = callee->sequence->plan;
  const rabbet_plan_call_t* call = &loop->step->calls[0];
  const rabbet_dims_t* made = callee->last->dims;
  for (size_t i = 0; i < loop->wiring.carried_count; ++i) {
    const rabbet_plan_io_t* io = &plan->ios[plan->input_count + i];
    int32_t initial = input_value(loop->step, call->inputs[i]);
    RABBET_RETURN_IF_ERROR(
        check_same(io->name, &made[io->value], &loop->prepared->dims[initial]));
    loop->carried[i].at = callee->addresses[plan->input_count + i];
  }
  for (size_t i = 0; i < loop->wiring.output_count; ++i) {
    if (loop->wiring.kinds[i] == RABBET_LOOP_OUTPUT_LAST_VALUE) continue;
    const rabbet_plan_io_t* io =
        &plan->ios[plan->input_count + (size_t)loop->wiring.sources[i]];
    rabbet_dims_t dims;
    size_t stride = 0;
    RABBET_RETURN_IF_ERROR(stack_stride(loop, i, &dims, &stride));
    RABBET_RETURN_IF_ERROR(check_same(io->name, &made[io->value], &dims));
  }
  return rabbet_ok();
}

static rabbet_status_t compute_condition(loop_t* loop, bool* out_goes_on) {
  rabbet_frame_t* callee = loop->frames[1];
  size_t io = callee->sequence->plan->input_count;
  RABBET_RETURN_IF_ERROR(pass_inputs(loop, 1));
  callee->rooms[io] = 1;
  rabbet_frame_store_address(callee, io, loop->flag);
  RABBET_RETURN_IF_ERROR(find_node(loop, 1));
  RABBET_RETURN_IF_ERROR(rabbet_call_run(callee, loop->nodes[1], loop->stream));
  return rabbet_read_flag(loop->frame, loop->flag, loop->stream, out_goes_on);
}

static rabbet_status_t ask(loop_t* loop, bool* out_goes_on) {
  *out_goes_on = loop->trip < loop->count;
  if (!*out_goes_on) return rabbet_ok();
  if (loop->wiring.condition >= 0)
    return rabbet_read_flag(loop->frame,
                            loop->carried[loop->wiring.condition].at,
                            loop->stream, out_goes_on);
  return loop->step->call_count > 1 ? compute_condition(loop, out_goes_on)
                                    : rabbet_ok();
}

static rabbet_status_t iterate(loop_t* loop, bool* out_goes_on) {
  RABBET_RETURN_IF_ERROR(ask(loop, out_goes_on));
  if (!*out_goes_on) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(pass_inputs(loop, 0));
  RABBET_RETURN_IF_ERROR(pass_outputs(loop));
  RABBET_RETURN_IF_ERROR(find_node(loop, 0));
  RABBET_RETURN_IF_ERROR(
      rabbet_call_run(loop->frames[0], loop->nodes[0], loop->stream));
  RABBET_RETURN_IF_ERROR(collect(loop));
  ++loop->trip;
  return rabbet_ok();
}

// ---- The end

static rabbet_status_t finish_last(loop_t* loop, size_t output) {
  const carried_t* carried = &loop->carried[loop->wiring.sources[output]];
  void* to = loop->run->call.outputs[output];
  int32_t initial = input_value(
      loop->step, loop->step->calls[0].inputs[loop->wiring.sources[output]]);
  loop->run->loop[output] = loop->prepared->dims[initial];
  return carried->at == to || carried->bytes == 0
             ? rabbet_ok()
             : loop->device->vtable->copy(loop->device, to, carried->at,
                                          carried->bytes, loop->stream);
}

// Moves the elements of a stack that was filled from its end to its beginning,
// in pieces that do not overlap where they go.
static rabbet_status_t move_down(const loop_t* loop, uint8_t* stack, size_t gap,
                                 size_t bytes) {
  for (size_t done = 0; gap > 0 && done < bytes; done += gap) {
    size_t piece = bytes - done < gap ? bytes - done : gap;
    RABBET_RETURN_IF_ERROR(loop->device->vtable->copy(
        loop->device, stack + done, stack + done + gap, piece, loop->stream));
  }
  return rabbet_ok();
}

// Zeros lie behind the elements of iterations that did not run.
static rabbet_status_t finish_stack(loop_t* loop, size_t output) {
  int32_t value = output_value(loop->step, output);
  uint8_t* stack = loop->run->call.outputs[output];
  rabbet_dims_t dims;
  size_t stride = 0;
  RABBET_RETURN_IF_ERROR(stack_stride(loop, output, &dims, &stride));
  int64_t length = stack_length(loop, output, stride);
  bool is_told = loop->prepared->dims[value].d[0] < 0;
  rabbet_dims_t* result = &loop->run->loop[output];
  *result = loop->prepared->dims[value];
  if (is_told) result->d[0] = loop->trip;
  size_t made = stride * (size_t)loop->trip;
  size_t rest = stride ? stride * (size_t)length - made : 0;
  if (loop->wiring.kinds[output] == RABBET_LOOP_OUTPUT_REVERSE &&
      !loop->is_counted)
    RABBET_RETURN_IF_ERROR(move_down(loop, stack, rest, made));
  return is_told || rest == 0
             ? rabbet_ok()
             : loop->device->vtable->fill(loop->device, stack + made, 0, rest,
                                          loop->stream);
}

static rabbet_status_t finish(loop_t* loop) {
  for (size_t i = 0; i < loop->wiring.output_count; ++i)
    RABBET_RETURN_IF_ERROR(loop->wiring.kinds[i] ==
                                   RABBET_LOOP_OUTPUT_LAST_VALUE
                               ? finish_last(loop, i)
                               : finish_stack(loop, i));
  return rabbet_ok();
}

rabbet_status_t rabbet_run_loop(rabbet_frame_t* frame,
                                const rabbet_prepared_t* prepared,
                                rabbet_run_t* run, void* stream) {
  loop_t loop = {.frame = frame,
                 .prepared = prepared,
                 .run = run,
                 .stream = stream,
                 .device = frame->context->engine->device,
                 .step = &frame->sequence->plan->steps[run->step]};
  rabbet_step_loop(loop.step, &loop.wiring);
  rabbet_status_t status = begin(&loop);
  bool goes_on = true;
  while (rabbet_is_ok(status) && goes_on)
    status = iterate(&loop, &goes_on);
  if (!rabbet_is_ok(status))
    status =
        rabbet_status_annotate(status, "iteration %lld", (long long)loop.trip);
  else
    status = finish(&loop);
  rabbet_free(frame->context->allocator, loop.carried);
  return status;
}

void rabbet_loop_told_dims(const rabbet_run_t* run,
                           const rabbet_plan_step_t* step, int64_t* out_dims) {
  for (size_t i = 0; i < step->group.output_count; ++i)
    for (int32_t axis = 0; axis < run->loop[i].rank; ++axis)
      *out_dims++ = run->loop[i].d[axis];
}
