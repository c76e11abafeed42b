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
#include "runtime/call.h"

typedef struct carried_t {
  const void* at;      // the present value
  rabbet_dims_t dims;  // its extents
  void* buffers[2];
  size_t bytes;    // of the value, and of each buffer
  int64_t output;  // of the step, for the last value, or -1
} carried_t;

// Elements of a stacked result: those of the first iteration.
typedef struct stack_t {
  bool is_known;
  rabbet_dims_t dims;
  size_t stride;
} stack_t;

struct loop_t;

// A carried value for which the body asks memory once its size is known.
typedef struct growing_t {
  struct loop_t* loop;
  size_t carried;
} growing_t;

typedef struct loop_t {
  rabbet_frame_t* frame;
  const rabbet_prepared_t* prepared;
  rabbet_run_t* run;
  void* stream;
  rabbet_device_t* device;
  const rabbet_plan_step_t* step;
  rabbet_loop_wiring_t wiring;
  carried_t* carried;
  stack_t* stacks;            // by output of the step
  rabbet_io_memory_t* grown;  // two for each carried tensor, then by output
  growing_t* growing;         // by carried tensor
  void* flag;                 // of the computed condition
  int64_t count;              // INT64_MAX: no limit
  bool is_counted;            // nothing else ends it
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

// Whether only a run tells how much memory the output needs.
static bool is_late(const loop_t* loop, size_t output) {
  return loop->prepared->bytes[output_value(loop->step, output)] ==
         RABBET_BYTES_UNKNOWN;
}

// ---- Memory that grows

static rabbet_status_t grow(const loop_t* loop, rabbet_io_memory_t* memory,
                            size_t bytes, size_t kept) {
  rabbet_engine_t* engine = loop->frame->context->engine;
  void* larger = NULL;
  if (memory->memory && bytes <= memory->bytes) return rabbet_ok();
  if (bytes < 2 * memory->bytes) bytes = 2 * memory->bytes;
  bytes = rabbet_align_up(bytes + 1, RABBET_DEVICE_ALIGNMENT);
  RABBET_RETURN_IF_ERROR(
      rabbet_context_refuse_recording(loop->frame->context, loop->stream));
  RABBET_RETURN_IF_ERROR(rabbet_memory_allocate(
      loop->device, &engine->device_allocator, bytes, loop->stream, &larger));
  rabbet_status_t status = rabbet_ok();
  if (kept > 0)
    status = loop->device->vtable->copy(loop->device, larger, memory->memory,
                                        kept, loop->stream);
  status = rabbet_status_join(
      status, loop->device->vtable->synchronize(loop->device, loop->stream));
  rabbet_memory_free(loop->device, &engine->device_allocator, memory->memory,
                     loop->stream);
  *memory = (rabbet_io_memory_t){.memory = larger, .bytes = bytes};
  return status;
}

// That of the step, which the frame keeps.
static rabbet_status_t find_grown(loop_t* loop) {
  rabbet_frame_t* frame = loop->frame;
  rabbet_grown_t* grown = &frame->grown[loop->run->step];
  if (!grown->list) {
    grown->count = 2 * loop->wiring.carried_count + loop->wiring.output_count;
    RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
        &frame->context->arena, grown->count + 1, sizeof(*grown->list),
        (void**)&grown->list));
  }
  loop->grown = grown->list;
  return rabbet_ok();
}

void rabbet_frame_free_grown(rabbet_frame_t* frame) {
  rabbet_engine_t* engine = frame->context->engine;
  for (size_t s = 0; frame->grown && s < frame->sequence->plan->step_count; ++s)
    for (size_t i = 0; i < frame->grown[s].count; ++i)
      rabbet_memory_free(engine->device, &engine->device_allocator,
                         frame->grown[s].list[i].memory, NULL);
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
  return bytes <= loop->prepared->bytes[value] && !is_late(loop, output)
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
    int32_t value = input_value(loop->step, call->inputs[i]);
    carried->at = loop->run->call.inputs[call->inputs[i]];
    carried->dims = loop->prepared->dims[value];
    carried->bytes = loop->prepared->bytes[value];
    carried->output = last_output(&loop->wiring, i);
    for (size_t k = 0; k < 2 && loop->wiring.varying[i] == 0; ++k) {
      bool is_output = k == 0 && carried->output >= 0;
      carried->buffers[k] =
          is_output ? loop->run->call.outputs[carried->output] : memory;
      if (!is_output) memory += buffer_bytes(loop->prepared, loop->step, i);
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
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(loop->frame->context->allocator,
                      (loop->wiring.output_count + 1) * sizeof(*loop->stacks),
                      (void**)&loop->stacks));
  RABBET_RETURN_IF_ERROR(find_grown(loop));
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
static void* next_buffer(const loop_t* loop, const carried_t* carried) {
  int64_t left = loop->is_counted ? loop->count - 1 - loop->trip : loop->trip;
  void* buffer = carried->buffers[left % 2];
  return buffer == carried->at ? carried->buffers[1 - left % 2] : buffer;
}

// The memory of a value that the body writes and iterations resize. Its size is
// known when the body has told it.
static void* grow_next(void* user_data, const char* name, void* current,
                       size_t size, size_t alignment, void* stream) {
  const growing_t* growing = user_data;
  loop_t* loop = growing->loop;
  rabbet_frame_t* callee = loop->frames[0];
  size_t io = callee->sequence->plan->input_count + growing->carried;
  rabbet_io_memory_t* memory =
      &loop->grown[2 * growing->carried + (size_t)(loop->trip % 2)];
  (void)current, (void)alignment, (void)stream;
  rabbet_status_t status = grow(loop, memory, size, 0);
  callee->rooms[io] = memory->bytes;
  if (rabbet_is_ok(status)) return memory->memory;
  rabbet_log(callee->context->engine->logger, RABBET_SEVERITY_ERROR,
             "memory for '%s', which a loop carries: %s", name,
             rabbet_status_message(status));
  rabbet_status_ignore(status);
  return NULL;
}

static rabbet_status_t begin_growing(loop_t* loop) {
  rabbet_frame_t* callee = loop->frames[0];
  size_t first = callee->sequence->plan->input_count;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(loop->frame->context->allocator,
                      (loop->wiring.carried_count + 1) * sizeof(*loop->growing),
                      (void**)&loop->growing));
  for (size_t i = 0; i < loop->wiring.carried_count; ++i) {
    if (loop->wiring.varying[i] == 0) continue;
    loop->growing[i] = (growing_t){loop, i};
    callee->output_allocators[first + i] = (rabbet_output_allocator_t){
        .user_data = &loop->growing[i], .reallocate = grow_next};
    ++callee->allocator_count;
  }
  return rabbet_ok();
}

static void end_growing(loop_t* loop) {
  rabbet_frame_t* callee = loop->frames[0];
  for (size_t i = 0; loop->growing && i < loop->wiring.carried_count; ++i) {
    if (!loop->growing[i].loop) continue;
    size_t io = callee->sequence->plan->input_count + i;
    callee->output_allocators[io] =
        (rabbet_output_allocator_t){.reallocate = NULL};
    --callee->allocator_count;
  }
  rabbet_free(loop->frame->context->allocator, loop->growing);
}

// The extents of a stack's elements: those outside, or those of this iteration.
static rabbet_status_t find_element(const loop_t* loop, size_t output,
                                    rabbet_dims_t* out_dims) {
  const rabbet_plan_sequence_t* plan = loop->frames[0]->sequence->plan;
  const rabbet_plan_io_t* io =
      &plan->ios[plan->input_count + (size_t)loop->wiring.sources[output]];
  const rabbet_dims_t* outside =
      &loop->prepared->dims[output_value(loop->step, output)];
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

static rabbet_status_t begin_stack(const loop_t* loop, size_t output) {
  stack_t* stack = &loop->stacks[output];
  int32_t value = output_value(loop->step, output);
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
static int64_t stack_length(const loop_t* loop, size_t output) {
  int32_t value = output_value(loop->step, output);
  size_t stride = loop->stacks[output].stride;
  int64_t length = loop->prepared->dims[value].d[0];
  if (length >= 0) return length;
  return stride && !is_late(loop, output)
             ? (int64_t)(loop->prepared->bytes[value] / stride)
             : INT64_MAX;
}

static rabbet_status_t stack_is_full(const loop_t* loop, size_t output,
                                     int64_t length) {
  return RABBET_STATUS(
      RABBET_STATUS_OUT_OF_RANGE,
      "the length of its output '%s' is %lld, but the loop runs more often; "
      "give it the number of iterations, or more",
      loop->frame->sequence->plan->values[output_value(loop->step, output)]
          .name,
      (long long)length);
}

static rabbet_status_t pass_stack(loop_t* loop, size_t output) {
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
  if (is_late(loop, output)) {
    rabbet_io_memory_t* memory =
        &loop->grown[2 * loop->wiring.carried_count + output];
    size_t made = (size_t)loop->trip * stride;
    RABBET_RETURN_IF_ERROR(grow(loop, memory, made + stride, made));
    base = memory->memory;
  }
  callee->rooms[io] = stride;
  rabbet_frame_store_address(callee, io, base + (size_t)at * stride);
  return rabbet_ok();
}

static rabbet_status_t pass_outputs(loop_t* loop) {
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
      RABBET_RETURN_IF_ERROR(pass_stack(loop, i));
  return rabbet_ok();
}

// ---- An iteration

static rabbet_status_t check_same(const char* name, const rabbet_dims_t* made,
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
static rabbet_status_t collect(loop_t* loop) {
  rabbet_frame_t* callee = loop->frames[0];
  const rabbet_plan_sequence_t* plan = callee->sequence->plan;
  const rabbet_prepared_t* leaf = callee->last;
  for (size_t i = 0; i < loop->wiring.carried_count; ++i) {
    const rabbet_plan_io_t* io = &plan->ios[plan->input_count + i];
    carried_t* carried = &loop->carried[i];
    RABBET_RETURN_IF_ERROR(check_same(io->name, &leaf->dims[io->value],
                                      &carried->dims, loop->wiring.varying[i]));
    carried->dims = leaf->dims[io->value];
    carried->bytes = leaf->bytes[io->value];
    carried->at = callee->addresses[plan->input_count + i];
  }
  for (size_t i = 0; i < loop->wiring.output_count; ++i) {
    if (loop->wiring.kinds[i] == RABBET_LOOP_OUTPUT_LAST_VALUE) continue;
    const rabbet_plan_io_t* io =
        &plan->ios[plan->input_count + (size_t)loop->wiring.sources[i]];
    RABBET_RETURN_IF_ERROR(
        check_same(io->name, &leaf->dims[io->value], &loop->stacks[i].dims, 0));
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
  RABBET_RETURN_IF_ERROR(find_node(loop, 0));
  RABBET_RETURN_IF_ERROR(pass_outputs(loop));
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
  rabbet_loop_result_t* result = &loop->run->loop[output];
  result->dims = carried->dims;
  if (is_late(loop, output)) {
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

// Extents that no iteration told are 0.
static void tell_stack(const loop_t* loop, size_t output) {
  const stack_t* stack = &loop->stacks[output];
  rabbet_loop_result_t* result = &loop->run->loop[output];
  result->dims = loop->prepared->dims[output_value(loop->step, output)];
  if (result->dims.d[0] < 0) result->dims.d[0] = loop->trip;
  for (int32_t i = 1; i < result->dims.rank; ++i)
    if (result->dims.d[i] < 0)
      result->dims.d[i] = stack->is_known ? stack->dims.d[i - 1] : 0;
  if (!is_late(loop, output)) return;
  result->late = loop->grown[2 * loop->wiring.carried_count + output].memory;
  result->late_bytes = stack->stride * (size_t)loop->trip;
}

// Zeros lie behind the elements of iterations that did not run.
static rabbet_status_t finish_stack(loop_t* loop, size_t output) {
  int32_t value = output_value(loop->step, output);
  uint8_t* stack = loop->run->call.outputs[output];
  bool is_told = loop->prepared->dims[value].d[0] < 0;
  tell_stack(loop, output);
  if (is_late(loop, output)) return rabbet_ok();
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
  memset(run->loop, 0, loop.wiring.output_count * sizeof(*run->loop));
  rabbet_status_t status = begin(&loop);
  if (rabbet_is_ok(status)) status = begin_growing(&loop);
  bool goes_on = true;
  while (rabbet_is_ok(status) && goes_on)
    status = iterate(&loop, &goes_on);
  if (!rabbet_is_ok(status))
    status =
        rabbet_status_annotate(status, "iteration %lld", (long long)loop.trip);
  else
    status = finish(&loop);
  end_growing(&loop);
  rabbet_free(frame->context->allocator, loop.carried);
  rabbet_free(frame->context->allocator, loop.stacks);
  return status;
}

void rabbet_loop_told_dims(const rabbet_run_t* run,
                           const rabbet_plan_step_t* step, int64_t* out_dims) {
  for (size_t i = 0; i < step->group.output_count; ++i)
    for (int32_t axis = 0; axis < run->loop[i].dims.rank; ++axis)
      *out_dims++ = run->loop[i].dims.d[axis];
}

rabbet_status_t rabbet_call_copy_late(const rabbet_frame_t* frame,
                                      const rabbet_prepared_t* prepared,
                                      void* stream) {
  rabbet_device_t* device = frame->context->engine->device;
  const rabbet_prepared_t* before = prepared->parent;
  if (!before || before->run_count == 0) return rabbet_ok();
  const rabbet_run_t* run = &before->runs[before->run_count - 1];
  const rabbet_plan_step_t* step = &frame->sequence->plan->steps[run->step];
  for (size_t i = 0; run->loop && i < step->group.output_count; ++i) {
    int32_t value = output_value(step, i);
    size_t bytes = prepared->bytes[value];
    if (!run->loop[i].late || bytes == 0) continue;
    if (bytes > run->loop[i].late_bytes)
      return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                           "'%s' has %zu bytes; the loop made %zu",
                           frame->sequence->plan->values[value].name, bytes,
                           run->loop[i].late_bytes);
    RABBET_RETURN_IF_ERROR(device->vtable->copy(
        device, rabbet_value_address(frame, prepared, value), run->loop[i].late,
        bytes, stream));
  }
  return rabbet_ok();
}
