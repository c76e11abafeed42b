// The addresses that steps read and write.
#include <assert.h>

#include "runtime/runtime.h"

// ---- Addresses

static const rabbet_prepared_t* prepared_at(const rabbet_prepared_t* prepared,
                                            int32_t segment) {
  assert(prepared && segment >= 0);
  while (prepared->segment > segment)
    prepared = prepared->parent;
  assert(prepared && prepared->segment == segment);
  return prepared;
}

static void* io_address(const rabbet_frame_t* frame,
                        const rabbet_prepared_t* prepared, size_t io) {
  assert(io < frame->sequence->plan->io_count);
  bool copied = io < frame->sequence->plan->input_count
                    ? prepared->input_copied[io]
                    : rabbet_io_is_misaligned(frame, io);
  return copied ? frame->io_copies[io].memory : frame->addresses[io];
}

void* rabbet_value_address(const rabbet_frame_t* frame,
                           const rabbet_prepared_t* prepared, int32_t v) {
  const rabbet_sequence_t* sequence = frame->sequence;
  const rabbet_plan_value_t* value = &sequence->plan->values[v];
  assert(v >= 0 && (size_t)v < sequence->plan->value_count);
  size_t root = (size_t)sequence->analysis.roots[v];
  if (rabbet_is_materialized(sequence, (int32_t)root)) {
    assert(prepared->materialized_offsets[root] != SIZE_MAX);
    return (uint8_t*)prepared->materialized +
           prepared->materialized_offsets[root] + value->offset;
  }
  switch (value->storage) {
    case RABBET_PLAN_STORAGE_IO:
      return (uint8_t*)io_address(frame, prepared, (size_t)value->io) +
             value->offset;
    case RABBET_PLAN_STORAGE_CONSTANT:
      // Kernels only read it.
      if (!sequence->weight_offsets)
        return (uint8_t*)(uintptr_t)rabbet_plan_constant(sequence->engine->plan,
                                                         value);
      return sequence->weight_offsets[v] == SIZE_MAX
                 ? NULL
                 : (uint8_t*)sequence->engine->device_weights +
                       sequence->weight_offsets[v];
    default: {
      int32_t stage = sequence->analysis.memory_stages[root];
      assert(value->storage == RABBET_PLAN_STORAGE_ARENA);
      assert(stage <= prepared->segment && frame->memory[stage]);
      return (uint8_t*)frame->memory[stage] +
             prepared_at(prepared, stage)->offsets[root] + value->offset;
    }
  }
}

// Whether the caller gave memory for an output before its size was known.
static bool is_unbounded(const rabbet_frame_t* frame,
                         const rabbet_prepared_t* prepared, size_t io) {
  const rabbet_sequence_t* sequence = frame->sequence;
  if (sequence->ios[io].is_input || sequence->ios[io].aliased_input >= 0 ||
      frame->output_allocators[io].reallocate)
    return false;
  while (prepared->parent)
    prepared = prepared->parent;
  return prepared->bytes[sequence->plan->ios[io].value] == RABBET_BYTES_UNKNOWN;
}

// The caller's memory for an output is as large as the caller's shape says.
static rabbet_status_t check_room(const rabbet_frame_t* frame,
                                  const rabbet_prepared_t* prepared,
                                  size_t io) {
  const rabbet_plan_sequence_t* plan = frame->sequence->plan;
  assert(!rabbet_frame_is_main(frame));
  bool passed =
      io >= plan->input_count && io < plan->io_count - plan->hidden_count;
  size_t bytes = prepared->bytes[plan->ios[io].value];
  if (!passed || bytes <= frame->rooms[io]) return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                       "'%s' of sequence '%s' may need %zu bytes; its caller "
                       "has %zu",
                       plan->ios[io].name, plan->name, bytes, frame->rooms[io]);
}

rabbet_status_t rabbet_check_address(const rabbet_frame_t* frame,
                                     const rabbet_prepared_t* prepared,
                                     size_t io) {
  const rabbet_io_t* tensor = &frame->sequence->ios[io];
  if (!rabbet_frame_is_main(frame)) return check_room(frame, prepared, io);
  if (is_unbounded(frame, prepared, io))
    return RABBET_STATUS(RABBET_STATUS_FAILED_PRECONDITION,
                         "the size of output '%s' has no bound before the run, "
                         "so that no memory is known to be large enough; set "
                         "an output allocator for it",
                         tensor->name);
  if (frame->addresses[io] ||
      prepared->bytes[frame->sequence->plan->ios[io].value] == 0)
    return rabbet_ok();
  if (tensor->aliased_input >= 0)
    return RABBET_STATUS(
        RABBET_STATUS_FAILED_PRECONDITION,
        "the address of output '%s' is not set; set it to that of input '%s' "
        "to update that in place, or to memory of its own",
        tensor->name, frame->sequence->ios[tensor->aliased_input].name);
  return RABBET_STATUS(RABBET_STATUS_FAILED_PRECONDITION,
                       "the address of %s '%s' is not set",
                       tensor->is_input ? "input" : "output", tensor->name);
}

// Inputs are checked before the first segment, an output before the one that
// writes it.
static rabbet_status_t check_addresses(const rabbet_frame_t* frame,
                                       const rabbet_prepared_t* prepared) {
  const rabbet_sequence_t* sequence = frame->sequence;
  for (size_t i = 0; i < sequence->plan->io_count; ++i) {
    if (sequence->io_segments[i] != prepared->segment) continue;
    RABBET_RETURN_IF_ERROR(rabbet_check_address(frame, prepared, i));
  }
  return rabbet_ok();
}

// The memory of a call's output may be there only in the next segment.
static bool has_memory(const rabbet_prepared_t* prepared, int32_t value) {
  const rabbet_sequence_t* sequence = prepared->sequence;
  int32_t root = sequence->analysis.roots[value];
  return sequence->plan->values[value].storage != RABBET_PLAN_STORAGE_ARENA ||
         rabbet_is_materialized(sequence, root) ||
         sequence->analysis.memory_stages[root] <= prepared->segment;
}

static void fill_slot(const rabbet_frame_t* frame, rabbet_prepared_t* prepared,
                      size_t begin, size_t slot) {
  int32_t value = frame->sequence->slot_values[slot];
  assert(slot >= begin && slot < frame->sequence->slot_count);
  prepared->slots[slot - begin] =
      has_memory(prepared, value) ? rabbet_value_address(frame, prepared, value)
                                  : NULL;
}

static void fill_all_slots(rabbet_frame_t* frame, rabbet_prepared_t* prepared) {
  const rabbet_sequence_t* sequence = frame->sequence;
  uint8_t* memory = frame->memory[prepared->segment];
  size_t begin = 0, end = 0;
  rabbet_segment_slots(sequence, prepared->segment, &begin, &end);
  for (size_t slot = begin; slot < end; ++slot)
    fill_slot(frame, prepared, begin, slot);
  for (size_t i = 0; i < prepared->run_count; ++i) {
    rabbet_run_t* run = &prepared->runs[i];
    assert(sequence->steps[run->step].first_slot >= begin);
    assert(run->workspace_offset <= prepared->memory_bytes);
    void** slots =
        prepared->slots + sequence->steps[run->step].first_slot - begin;
    run->call.inputs = slots;
    run->call.outputs =
        slots + sequence->plan->steps[run->step].group.input_count;
    run->call.workspace = memory + run->workspace_offset;
  }
}

static void fill_io_slots(rabbet_frame_t* frame, rabbet_prepared_t* prepared) {
  const rabbet_sequence_t* sequence = frame->sequence;
  size_t begin = 0, end = 0;
  rabbet_segment_slots(sequence, prepared->segment, &begin, &end);
  for (size_t i = 0; i < sequence->io_slot_count; ++i) {
    size_t slot = sequence->io_slots[i];
    if (slot >= begin && slot < end) fill_slot(frame, prepared, begin, slot);
  }
}

rabbet_status_t rabbet_prepared_bind(rabbet_frame_t* frame,
                                     rabbet_prepared_t* prepared,
                                     void* stream) {
  if (prepared->memory_generation == frame->context->memory_generation &&
      prepared->io_generation == frame->io_generation)
    return rabbet_ok();
  assert(prepared->ready &&
         prepared->memory_bytes <= frame->memory_bytes[prepared->segment]);
  RABBET_RETURN_IF_ERROR(check_addresses(frame, prepared));
  RABBET_RETURN_IF_ERROR(
      rabbet_prepared_resolve_overlaps(frame, prepared, stream));
  if (prepared->memory_generation != frame->context->memory_generation)
    fill_all_slots(frame, prepared);
  else
    fill_io_slots(frame, prepared);
  prepared->memory_generation = frame->context->memory_generation;
  prepared->io_generation = frame->io_generation;
  return rabbet_ok();
}
