// Outputs whose memory overlaps that of inputs or of other outputs; memory that
// is not aligned as steps need it.
//
// An output may lie over an input that no step reads any more when the output
// is written, and exactly over the input that its operator updates in place. In
// all other cases the input is copied before the segment that writes the
// output, and steps from there on read the copy. Outputs that overlap each
// other are refused: one of them would be lost.
//
// Inputs at addresses that kernels cannot read are copied before the first
// segment. Outputs at such addresses are written to memory of the context's and
// copied after the last segment.
#include <assert.h>

#include "runtime/runtime.h"

bool rabbet_io_is_misaligned(const rabbet_frame_t* frame, size_t io) {
  size_t alignment = frame->sequence->io_alignments[io];
  assert(alignment > 0 && (alignment & (alignment - 1)) == 0);
  return ((uintptr_t)frame->addresses[io] & (alignment - 1)) != 0;
}

// A tensor of unknown size counts as one byte: only its address is known.
static size_t io_bytes(const rabbet_frame_t* frame,
                       const rabbet_prepared_t* prepared, size_t io) {
  size_t bytes = prepared->bytes[frame->sequence->plan->ios[io].value];
  return bytes == RABBET_BYTES_UNKNOWN ? 1 : bytes;
}

// Without additions, which could overflow.
static bool ranges_overlap(uintptr_t a, size_t a_bytes, uintptr_t b,
                           size_t b_bytes) {
  if (a_bytes == 0 || b_bytes == 0) return false;
  return a > b ? a - b < b_bytes : b - a < a_bytes;
}

// Whether writing the output would change elements of the input that steps
// read.
static bool output_spoils(const rabbet_frame_t* frame,
                          const rabbet_prepared_t* prepared, size_t output,
                          size_t input) {
  const rabbet_sequence_t* sequence = frame->sequence;
  const rabbet_plan_sequence_t* plan = sequence->plan;
  const rabbet_plan_analysis_t* analysis = &sequence->analysis;
  uintptr_t to = (uintptr_t)frame->addresses[output];
  uintptr_t from = (uintptr_t)frame->addresses[input];
  int32_t written =
      analysis->first_steps[analysis->roots[plan->ios[output].value]];
  int32_t read = analysis->last_steps[analysis->roots[plan->ios[input].value]];
  bool in_place =
      from == to && sequence->ios[output].aliased_input == (int32_t)input;
  return read >= written && !in_place &&
         !rabbet_io_is_misaligned(frame, output) &&
         ranges_overlap(to, io_bytes(frame, prepared, output), from,
                        io_bytes(frame, prepared, input));
}

// The caller's address of an output, even if steps write a copy on the device.
static uintptr_t output_place(const rabbet_frame_t* frame, size_t io) {
  const void* host =
      rabbet_frame_is_main(frame) ? frame->context->host_ios[io].host : NULL;
  return (uintptr_t)(host ? host : frame->addresses[io]);
}

static rabbet_status_t check_outputs(const rabbet_frame_t* frame,
                                     const rabbet_prepared_t* prepared,
                                     size_t output) {
  const rabbet_sequence_t* sequence = frame->sequence;
  for (size_t i = sequence->plan->input_count; i < sequence->plan->io_count;
       ++i) {
    if (i == output || !output_place(frame, i) ||
        sequence->io_segments[i] > prepared->segment)
      continue;
    if (ranges_overlap(output_place(frame, output),
                       io_bytes(frame, prepared, output),
                       output_place(frame, i), io_bytes(frame, prepared, i)))
      return RABBET_STATUS(
          RABBET_STATUS_INVALID_ARGUMENT,
          "the memory of output '%s' overlaps that of output '%s'; give each "
          "memory of its own",
          sequence->ios[output].name, sequence->ios[i].name);
  }
  return rabbet_ok();
}

// Memory for a copy; kept by the context.
static rabbet_status_t reserve_copy(rabbet_frame_t* frame,
                                    const rabbet_prepared_t* prepared,
                                    size_t io, void* stream) {
  rabbet_io_memory_t* copy = &frame->io_copies[io];
  const void* before = copy->memory;
  rabbet_status_t status = rabbet_io_memory_reserve(
      frame, copy, io, io_bytes(frame, prepared, io), stream);
  if (copy->memory != before) ++frame->context->memory_generation;
  return status;
}

static rabbet_status_t resolve_input(rabbet_frame_t* frame,
                                     rabbet_prepared_t* prepared, size_t input,
                                     void* stream) {
  prepared->input_copied[input] =
      prepared->parent && prepared->parent->input_copied[input];
  if (prepared->input_copied[input] || !rabbet_io_is_misaligned(frame, input))
    return rabbet_ok();
  RABBET_RETURN_IF_ERROR(reserve_copy(frame, prepared, input, stream));
  prepared->input_copied[input] = true;
  prepared->copies_inputs = true;
  return rabbet_ok();
}

static rabbet_status_t resolve_output(rabbet_frame_t* frame,
                                      const rabbet_prepared_t* prepared,
                                      size_t output, void* stream) {
  const rabbet_sequence_t* sequence = frame->sequence;
  RABBET_RETURN_IF_ERROR(check_outputs(frame, prepared, output));
  if (!rabbet_io_is_misaligned(frame, output)) return rabbet_ok();
  if (prepared->bytes[sequence->plan->ios[output].value] ==
      RABBET_BYTES_UNKNOWN)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "the address of output '%s', %p, is not a multiple of "
                         "%zu, and its size, which a copy in between needs, is "
                         "not known",
                         sequence->ios[output].name, frame->addresses[output],
                         sequence->io_alignments[output]);
  return reserve_copy(frame, prepared, output, stream);
}

rabbet_status_t rabbet_prepared_resolve_overlaps(rabbet_frame_t* frame,
                                                 rabbet_prepared_t* prepared,
                                                 void* stream) {
  const rabbet_sequence_t* sequence = frame->sequence;
  size_t inputs = sequence->plan->input_count;
  prepared->copies_inputs = false;
  for (size_t i = 0; i < inputs; ++i)
    RABBET_RETURN_IF_ERROR(resolve_input(frame, prepared, i, stream));
  for (size_t output = inputs; output < sequence->plan->io_count; ++output) {
    if (sequence->io_segments[output] != prepared->segment) continue;
    RABBET_RETURN_IF_ERROR(resolve_output(frame, prepared, output, stream));
    for (size_t i = 0; i < inputs; ++i) {
      if (prepared->input_copied[i] ||
          !output_spoils(frame, prepared, output, i))
        continue;
      RABBET_RETURN_IF_ERROR(reserve_copy(frame, prepared, i, stream));
      prepared->input_copied[i] = true;
      prepared->copies_inputs = true;
    }
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_prepared_copy_inputs(rabbet_frame_t* frame,
                                            const rabbet_prepared_t* prepared,
                                            void* stream) {
  const rabbet_sequence_t* sequence = frame->sequence;
  rabbet_device_t* device = sequence->engine->device;
  for (size_t i = 0; i < sequence->plan->input_count; ++i) {
    if (!prepared->input_copied[i] ||
        (prepared->parent && prepared->parent->input_copied[i]))
      continue;
    assert(frame->io_copies[i].memory);
    RABBET_RETURN_IF_ERROR(device->vtable->copy(
        device, frame->io_copies[i].memory, frame->addresses[i],
        prepared->bytes[sequence->plan->ios[i].value], stream));
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_frame_copy_outputs(rabbet_frame_t* frame,
                                          const rabbet_prepared_t* leaf,
                                          void* stream) {
  const rabbet_sequence_t* sequence = frame->sequence;
  rabbet_device_t* device = sequence->engine->device;
  for (size_t i = sequence->plan->input_count; i < sequence->plan->io_count;
       ++i) {
    int32_t value = sequence->plan->ios[i].value;
    if (!rabbet_io_is_misaligned(frame, i) ||
        !sequence->analysis.written[value])
      continue;
    assert(frame->io_copies[i].bytes >= leaf->bytes[value]);
    RABBET_RETURN_IF_ERROR(device->vtable->copy(device, frame->addresses[i],
                                                frame->io_copies[i].memory,
                                                leaf->bytes[value], stream));
  }
  return rabbet_ok();
}
