// Values that go through the host during runs.
#include <assert.h>

#include "base/math.h"
#include "runtime/runtime.h"

rabbet_status_t rabbet_host_allocate(const rabbet_engine_t* engine, size_t size,
                                     void** out_memory) {
  rabbet_device_t* device = engine->device;
  return device->vtable->allocate_host
             ? device->vtable->allocate_host(device, size, out_memory)
             : rabbet_allocate_aligned(engine->allocator, size,
                                       RABBET_PLAN_ALIGNMENT, out_memory);
}

void rabbet_host_free(const rabbet_engine_t* engine, void* memory) {
  rabbet_device_t* device = engine->device;
  if (!memory) return;
  if (device->vtable->allocate_host)
    device->vtable->free_host(device, memory);
  else
    rabbet_free_aligned(engine->allocator, memory, RABBET_PLAN_ALIGNMENT);
}

static size_t read_staging_bytes(const rabbet_prepared_t* prepared) {
  const rabbet_sequence_t* sequence = prepared->sequence;
  size_t end = rabbet_segment_end(sequence, prepared->segment), bytes = 0;
  if (end == 0) return 0;
  const rabbet_plan_step_t* step = &sequence->plan->steps[end - 1];
  for (size_t i = 0; i < step->host_read_count; ++i) {
    // Values that the host reads have constant shapes.
    assert(prepared->bytes[step->host_reads[i]] != RABBET_BYTES_UNKNOWN);
    bytes += rabbet_align_up(prepared->bytes[step->host_reads[i]], 16);
  }
  return bytes;
}

// Bytes; with memory, writes the outputs there.
static size_t stage_outputs(const rabbet_prepared_t* prepared,
                            uint8_t* memory) {
  const rabbet_sequence_t* sequence = prepared->sequence;
  size_t bytes = 0;
  if ((size_t)prepared->segment + 1 < sequence->analysis.segment_count)
    return 0;
  for (size_t i = sequence->plan->input_count; i < sequence->plan->io_count;
       ++i) {
    int32_t v = sequence->plan->ios[i].value;
    const rabbet_plan_value_t* value = &sequence->plan->values[v];
    if (sequence->analysis.written[v]) continue;
    // Values that are missing fail the run.
    if (memory && prepared->host_values[v])
      rabbet_store_host_values(value, prepared->host_values[v],
                               value->host_value_count, memory + bytes);
    assert(prepared->bytes[v] != RABBET_BYTES_UNKNOWN);
    bytes += rabbet_align_up(prepared->bytes[v], 16);
  }
  return bytes;
}

rabbet_status_t rabbet_prepare_staging(rabbet_prepared_t* prepared) {
  size_t reads = read_staging_bytes(prepared);
  size_t outputs = stage_outputs(prepared, NULL);
  if (reads + outputs == 0) return rabbet_ok();
  assert(!prepared->staging);
  RABBET_RETURN_IF_ERROR(rabbet_host_allocate(
      prepared->sequence->engine, reads + outputs, &prepared->staging));
  prepared->read_staging = prepared->staging;
  prepared->output_staging = prepared->read_staging + reads;
  stage_outputs(prepared, prepared->output_staging);
  return rabbet_ok();
}
