// Trials of kernels that may be recorded if they only enqueue work.
//
// A recording of the step on scratch memory is replayed on inputs that it has
// not seen and compared with calls of the step: a kernel that computes on the
// host, uses another stream, or does something else each time, gives itself
// away. Fresh inputs are made of the real ones: numbers are moved round, then
// integers are zeros, which kernels must take when they are timed too.
#include <assert.h>
#include <string.h>

#include "base/math.h"
#include "runtime/graph.h"

#define RABBET_TRIAL_ROUNDS 3
#define RABBET_TRIAL_ALIGNMENT 256
#define RABBET_TRIAL_POISON 0x5a

typedef struct trial_tensor_t {
  const rabbet_plan_value_t* value;
  size_t bytes;
  void* original;  // its memory in the run
  void* scratch;   // inputs of the plan (constants): the original
  bool is_copy;    // scratch is filled from the original
} trial_tensor_t;

typedef struct rabbet_trial_t {
  rabbet_frame_t* frame;
  rabbet_device_t* device;
  const rabbet_run_t* run;
  void* stream;
  trial_tensor_t* tensors;  // inputs, then outputs
  void** addresses;         // their scratch
  size_t input_count, count;
  size_t output_bytes;
  void* memory;                // all scratch
  uint8_t *replayed, *direct;  // outputs, on the host
  void* graph;
  void* kept;
} rabbet_trial_t;

// ---- Memory

static void trial_describe(rabbet_trial_t* trial,
                           const rabbet_prepared_t* prepared) {
  const rabbet_sequence_t* sequence = prepared->sequence;
  const rabbet_plan_step_t* step = &sequence->plan->steps[trial->run->step];
  for (size_t i = 0; i < trial->count; ++i) {
    bool input = i < trial->input_count;
    int32_t v =
        step->values[input ? step->group.inputs[i]
                           : step->group.outputs[i - trial->input_count]];
    assert(v >= 0);
    trial_tensor_t* tensor = &trial->tensors[i];
    tensor->value = &sequence->plan->values[v];
    tensor->bytes = prepared->bytes[v];
    tensor->original = input ? trial->run->call.inputs[i]
                             : trial->run->call.outputs[i - trial->input_count];
    tensor->is_copy =
        input && tensor->value->storage != RABBET_PLAN_STORAGE_CONSTANT;
  }
}

// The input whose memory an output shares, or -1.
static int trial_shared(const rabbet_trial_t* trial, size_t output) {
  for (size_t i = 0; i < trial->input_count; ++i) {
    if (trial->tensors[i].original == trial->tensors[output].original)
      return (int)i;
  }
  return -1;
}

static rabbet_status_t trial_place(rabbet_trial_t* trial) {
  size_t total = 0;
  for (int pass = 0; pass < 2; ++pass) {
    uint8_t* memory = trial->memory;
    total = 0;
    trial->output_bytes = 0;
    for (size_t i = 0; i < trial->count; ++i) {
      trial_tensor_t* tensor = &trial->tensors[i];
      bool output = i >= trial->input_count;
      int shared = output ? trial_shared(trial, i) : -1;
      tensor->scratch = tensor->original;
      if (output) trial->output_bytes += tensor->bytes;
      if (shared >= 0) {
        tensor->scratch = trial->tensors[shared].scratch;
      } else if (output || tensor->is_copy) {
        tensor->scratch = memory + total;
        if (!rabbet_checked_add(
                total,
                rabbet_align_up(tensor->bytes + 1, RABBET_TRIAL_ALIGNMENT),
                &total))
          return RABBET_STATUS(RABBET_STATUS_OUT_OF_MEMORY,
                               "its tensors are too large for trials");
      }
      trial->addresses[i] = tensor->scratch;
    }
    if (pass == 0)
      RABBET_RETURN_IF_ERROR(trial->device->vtable->allocate(
          trial->device, total + 1, &trial->memory));
  }
  RABBET_RETURN_IF_ERROR(rabbet_host_allocate(trial->frame->context->engine,
                                              trial->output_bytes + 1,
                                              (void**)&trial->replayed));
  return rabbet_host_allocate(trial->frame->context->engine,
                              trial->output_bytes + 1, (void**)&trial->direct);
}

// ---- Contents

// The original, its elements moved round by a part of its length.
static rabbet_status_t trial_fill_input(const rabbet_trial_t* trial,
                                        const trial_tensor_t* tensor,
                                        int round) {
  rabbet_device_t* device = trial->device;
  const rabbet_plan_value_t* value = tensor->value;
  size_t bits = (size_t)rabbet_dtype_bits(value->dtype);
  bool movable = value->format == RABBET_FORMAT_LINEAR && bits % 8 == 0;
  bool number = rabbet_dtype_is_float(value->dtype);
  if (round == RABBET_TRIAL_ROUNDS - 1 && movable && !number)
    return device->vtable->fill(device, tensor->scratch, 0, tensor->bytes,
                                trial->stream);
  size_t count = movable && number ? tensor->bytes / (bits / 8) : 0;
  size_t moved = count > 1 ? count * (size_t)round / RABBET_TRIAL_ROUNDS : 0;
  if (count > 1 && round > 0 && moved == 0) moved = 1;
  moved *= bits / 8;
  assert(moved <= tensor->bytes);
  RABBET_RETURN_IF_ERROR(device->vtable->copy(
      device, tensor->scratch, (const uint8_t*)tensor->original + moved,
      tensor->bytes - moved, trial->stream));
  return moved == 0
             ? rabbet_ok()
             : device->vtable->copy(
                   device, (uint8_t*)tensor->scratch + tensor->bytes - moved,
                   tensor->original, moved, trial->stream);
}

static rabbet_status_t trial_fill(const rabbet_trial_t* trial, int round) {
  rabbet_device_t* device = trial->device;
  for (size_t i = 0; i < trial->count; ++i) {
    const trial_tensor_t* tensor = &trial->tensors[i];
    if (tensor->bytes == 0) continue;
    if (i < trial->input_count) {
      if (tensor->is_copy)
        RABBET_RETURN_IF_ERROR(trial_fill_input(trial, tensor, round));
    } else if (trial_shared(trial, i) < 0) {
      RABBET_RETURN_IF_ERROR(
          device->vtable->fill(device, tensor->scratch, RABBET_TRIAL_POISON,
                               tensor->bytes, trial->stream));
    }
  }
  return rabbet_ok();
}

static rabbet_status_t trial_take(const rabbet_trial_t* trial,
                                  uint8_t* target) {
  rabbet_device_t* device = trial->device;
  for (size_t i = trial->input_count; i < trial->count; ++i) {
    const trial_tensor_t* tensor = &trial->tensors[i];
    if (tensor->bytes > 0)
      RABBET_RETURN_IF_ERROR(device->vtable->copy_to_host(
          device, target, tensor->scratch, tensor->bytes, trial->stream));
    target += tensor->bytes;
  }
  return rabbet_ok();
}

// ---- The trial

static rabbet_kernel_call_t trial_call(const rabbet_trial_t* trial,
                                       void* stream) {
  rabbet_kernel_call_t call = trial->run->call;
  call.inputs = trial->addresses;
  call.outputs = trial->addresses + trial->input_count;
  call.stream = stream;
  return call;
}

static rabbet_status_t trial_record(rabbet_trial_t* trial) {
  rabbet_device_t* device = trial->device;
  void* stream = trial->frame->context->record_stream;
  assert(stream && stream != trial->stream);
  RABBET_RETURN_IF_ERROR(device->vtable->record_begin(device, stream));
  rabbet_status_t status = rabbet_record_call(
      trial->frame, trial->run, trial_call(trial, stream), &trial->kept);
  rabbet_status_t ended = device->vtable->record_end(
      device, stream, rabbet_is_ok(status) ? &trial->graph : NULL);
  return rabbet_status_join(status, ended);
}

static rabbet_status_t trial_round(rabbet_trial_t* trial, int round) {
  rabbet_device_t* device = trial->device;
  const rabbet_run_t* run = trial->run;
  rabbet_kernel_call_t call = trial_call(trial, trial->stream);
  assert(trial->graph && trial->replayed && trial->direct);
  RABBET_RETURN_IF_ERROR(trial_fill(trial, round));
  RABBET_RETURN_IF_ERROR(
      device->vtable->launch_graph(device, trial->graph, trial->stream));
  RABBET_RETURN_IF_ERROR(trial_take(trial, trial->replayed));
  RABBET_RETURN_IF_ERROR(trial_fill(trial, round));
  RABBET_RETURN_IF_ERROR(
      run->kernel->kernel_class->enqueue(run->kernel, run->state, &call));
  RABBET_RETURN_IF_ERROR(trial_take(trial, trial->direct));
  RABBET_RETURN_IF_ERROR(device->vtable->synchronize(device, trial->stream));
  if (memcmp(trial->replayed, trial->direct, trial->output_bytes) == 0)
    return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                       "the results of a replay differ from those of a call");
}

static rabbet_status_t trial_run(rabbet_trial_t* trial,
                                 const rabbet_prepared_t* prepared) {
  const rabbet_engine_t* engine = prepared->sequence->engine;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(engine->allocator,
                                         trial->count * sizeof(*trial->tensors),
                                         (void**)&trial->tensors));
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      engine->allocator, trial->count * sizeof(*trial->addresses),
      (void**)&trial->addresses));
  trial_describe(trial, prepared);
  RABBET_RETURN_IF_ERROR(trial_place(trial));
  RABBET_RETURN_IF_ERROR(trial_record(trial));
  for (int round = 0; round < RABBET_TRIAL_ROUNDS; ++round)
    RABBET_RETURN_IF_ERROR(trial_round(trial, round));
  return rabbet_ok();
}

rabbet_status_t rabbet_graph_trial(rabbet_frame_t* frame,
                                   const rabbet_prepared_t* prepared,
                                   const rabbet_run_t* run, void* stream) {
  const rabbet_sequence_t* sequence = frame->sequence;
  const rabbet_group_t* group = &sequence->plan->steps[run->step].group;
  rabbet_trial_t trial = {.frame = frame,
                          .device = sequence->engine->device,
                          .run = run,
                          .stream = stream,
                          .input_count = group->input_count,
                          .count = group->input_count + group->output_count};
  rabbet_status_t status = trial_run(&trial, prepared);
  // Memory freed below must not be in use.
  if (trial.memory)
    status = rabbet_status_join(
        status, trial.device->vtable->synchronize(trial.device, stream));
  trial.device->vtable->destroy_graph(trial.device, trial.graph);
  rabbet_release_recorded(run, trial.kept);
  rabbet_host_free(sequence->engine, trial.replayed);
  rabbet_host_free(sequence->engine, trial.direct);
  if (trial.memory) trial.device->vtable->free(trial.device, trial.memory);
  rabbet_free(sequence->engine->allocator, trial.addresses);
  rabbet_free(sequence->engine->allocator, trial.tensors);
  return status;
}
