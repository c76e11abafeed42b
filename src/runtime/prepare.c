// Preparing a segment: kernel states, memory, values that the host writes.
#include <assert.h>
#include <string.h>

#include "base/math.h"
#include "base/thread.h"
#include "runtime/call.h"

// ---- Kernels

static bool step_is_empty(const rabbet_prepared_t* prepared,
                          const rabbet_plan_step_t* step) {
  assert(step->group.output_count > 0);
  for (size_t i = 0; i < step->group.output_count; ++i) {
    const rabbet_dims_t* dims =
        &prepared->dims[step->values[step->group.outputs[i]]];
    bool empty = false;
    for (int32_t axis = 0; axis < dims->rank; ++axis)
      empty |= dims->d[axis] == 0;
    if (!empty) return false;
  }
  return true;
}

// Dims and host values of a step's values, in the node's arena: plugins keep
// pointers to them.
static rabbet_status_t step_shapes(rabbet_prepared_t* prepared,
                                   const rabbet_plan_step_t* step, int threads,
                                   rabbet_kernel_shapes_t* out_shapes) {
  size_t count = step->group.value_count;
  rabbet_dims_t* dims = NULL;
  const int64_t** host_values = NULL;
  size_t* bytes = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &prepared->arena, count, sizeof(*dims), (void**)&dims));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &prepared->arena, count, sizeof(*host_values), (void**)&host_values));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &prepared->arena, count, sizeof(*bytes), (void**)&bytes));
  for (size_t i = 0; i < count; ++i) {
    int32_t v = step->values[i];
    bytes[i] = v < 0 ? RABBET_BYTES_UNKNOWN : prepared->bytes[v];
    if (v < 0) {
      RABBET_RETURN_IF_ERROR(rabbet_resolve_shape(
          prepared, "an inner tensor", &step->inner_shapes[i], &dims[i]));
      continue;
    }
    dims[i] = prepared->dims[v];
    host_values[i] = prepared->host_values[v];
  }
  *out_shapes = (rabbet_kernel_shapes_t){.dims = dims,
                                         .host_values = host_values,
                                         .threads = threads,
                                         .bytes = bytes};
  return rabbet_ok();
}

// A kernel that packs its constants reads them once, when it is prepared first:
// their pages of the plan's file are given back. A kernel that does not pack
// them gets them again with its first run.
static void prepare_drop_constants(const rabbet_sequence_t* sequence,
                                   size_t s) {
  const rabbet_plan_t* plan = sequence->engine->plan;
  const rabbet_plan_step_t* step = &sequence->plan->steps[s];
  if (!plan->file || atomic_exchange(&sequence->steps[s].prepared, true))
    return;
  for (size_t i = 0; i < step->group.input_count; ++i) {
    int32_t v = step->values[step->group.inputs[i]];
    const rabbet_plan_value_t* value = &sequence->plan->values[v];
    if (value->storage == RABBET_PLAN_STORAGE_CONSTANT)
      rabbet_file_map_drop(plan->file, plan->weights + value->offset,
                           (size_t)value->size);
  }
}

static rabbet_status_t prepare_step(rabbet_prepared_t* prepared, size_t s,
                                    int threads, size_t* out_workspace) {
  const rabbet_sequence_t* sequence = prepared->sequence;
  const rabbet_plan_step_t* step = &sequence->plan->steps[s];
  rabbet_kernel_t* kernel = sequence->steps[s].kernel;
  assert(s >= rabbet_segment_begin(sequence, prepared->segment));
  assert(s < rabbet_segment_end(sequence, prepared->segment));
  rabbet_kernel_shapes_t shapes;
  RABBET_RETURN_IF_ERROR(step_shapes(prepared, step, threads, &shapes));
  RABBET_RETURN_IF_ERROR(rabbet_prepared_check_step(prepared, step, &shapes));
  if (sequence->steps[s].plugin)
    RABBET_RETURN_IF_ERROR(rabbet_step_check_plugin_shapes(
        sequence->engine->allocator, step, sequence->steps[s].plugin, &shapes));
  size_t at = s - rabbet_segment_begin(sequence, prepared->segment);
  rabbet_status_t status = kernel->kernel_class->prepare(
      kernel, &shapes, &prepared->states[at], out_workspace);
  prepare_drop_constants(sequence, s);
  return rabbet_is_ok(status)
             ? status
             : rabbet_prepared_explain(prepared, step, &shapes, status);
}

static rabbet_status_t prepare_runs(rabbet_prepared_t* prepared, int threads,
                                    size_t* workspaces) {
  const rabbet_sequence_t* sequence = prepared->sequence;
  size_t begin = rabbet_segment_begin(sequence, prepared->segment);
  size_t end = rabbet_segment_end(sequence, prepared->segment);
  for (size_t s = begin; s < end; ++s) {
    const rabbet_plan_step_t* step = &sequence->plan->steps[s];
    size_t run = prepared->run_count;
    assert(run < end - begin);
    if (step->call_count > 0) {
      prepared->runs[run] = (rabbet_run_t){.step = s};
      RABBET_RETURN_IF_ERROR(rabbet_call_prepare(
          prepared, step, &prepared->runs[run], &workspaces[run]));
      ++prepared->run_count;
      continue;
    }
    if (step_is_empty(prepared, step)) continue;
    RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
        prepare_step(prepared, s, threads, &workspaces[run]),
        "preparing step '%s' (kernel '%s')", step->name, step->kernel));
    prepared->runs[run].kernel = sequence->steps[s].kernel;
    prepared->runs[run].state = prepared->states[s - begin];
    prepared->runs[run].step = s;
    prepared->runs[run].is_copy = rabbet_group_is_copy(&step->group);
    ++prepared->run_count;
  }
  return rabbet_ok();
}

// ---- Memory

bool rabbet_sequence_owns_memory(const rabbet_sequence_t* sequence,
                                 int32_t segment, size_t value) {
  const rabbet_plan_analysis_t* analysis = &sequence->analysis;
  return analysis->roots[value] == (int32_t)value &&
         sequence->plan->values[value].storage == RABBET_PLAN_STORAGE_ARENA &&
         analysis->memory_stages[value] == segment &&
         analysis->first_steps[value] <= analysis->last_steps[value] &&
         !analysis->materialized[value];
}

// Requests for the values whose sizes get bounded at this stage, then for the
// workspaces of its steps. A value's request has its number as index.
static rabbet_status_t memory_requests(const rabbet_prepared_t* prepared,
                                       const size_t* workspaces,
                                       rabbet_memory_request_t* requests) {
  const rabbet_sequence_t* sequence = prepared->sequence;
  const rabbet_plan_analysis_t* analysis = &sequence->analysis;
  size_t values = sequence->plan->value_count;
  for (size_t v = 0; v < values; ++v) {
    size_t root = (size_t)analysis->roots[v];
    if (!rabbet_sequence_owns_memory(sequence, prepared->segment, root) ||
        (analysis->dim_stages[v] > prepared->segment &&
         rabbet_plan_is_view(sequence->plan, analysis, (int32_t)v)))
      continue;
    if (prepared->bytes[v] == RABBET_BYTES_UNKNOWN)
      return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                           "the size of '%s' has no usable upper bound for "
                           "these input shapes",
                           sequence->plan->values[v].name);
    assert(analysis->first_steps[root] <= analysis->last_steps[root]);
    requests[root].first = analysis->first_steps[root];
    requests[root].last = analysis->last_steps[root];
    if (prepared->bytes[v] > requests[root].size)
      requests[root].size = prepared->bytes[v];
  }
  for (size_t i = 0; i < prepared->run_count; ++i)
    requests[values + i] =
        (rabbet_memory_request_t){.size = workspaces[i],
                                  .first = (int32_t)prepared->runs[i].step,
                                  .last = (int32_t)prepared->runs[i].step};
  return rabbet_ok();
}

static rabbet_status_t prepare_memory(rabbet_prepared_t* prepared,
                                      const size_t* workspaces) {
  const rabbet_sequence_t* sequence = prepared->sequence;
  size_t values = sequence->plan->value_count;
  size_t count = values + prepared->run_count;
  rabbet_memory_request_t* requests = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &prepared->arena, values, sizeof(*prepared->offsets),
      (void**)&prepared->offsets));
  RABBET_RETURN_IF_ERROR(rabbet_allocate(sequence->engine->allocator,
                                         count * sizeof(*requests),
                                         (void**)&requests));
  rabbet_status_t status = memory_requests(prepared, workspaces, requests);
  if (rabbet_is_ok(status))
    status = rabbet_plan_memory(requests, count, sequence->engine->allocator,
                                &prepared->memory_bytes);
  if (rabbet_is_ok(status)) {
    for (size_t v = 0; v < values; ++v) {
      assert(requests[v].offset + requests[v].size <= prepared->memory_bytes);
      prepared->offsets[v] = requests[v].offset;
    }
    for (size_t i = 0; i < prepared->run_count; ++i)
      prepared->runs[i].workspace_offset = requests[values + i].offset;
  }
  rabbet_free(sequence->engine->allocator, requests);
  return status;
}

// ---- Values that the host writes

// Shape inputs lie on the host; steps on a device that cannot see them read a
// copy.
bool rabbet_is_materialized(const rabbet_sequence_t* sequence, int32_t root) {
  const rabbet_plan_value_t* value = &sequence->plan->values[root];
  return sequence->analysis.materialized[root] ||
         (!sequence->engine->device->host_memory &&
          value->storage == RABBET_PLAN_STORAGE_IO &&
          sequence->ios[value->io].is_shape_input);
}

const int64_t* rabbet_host_values(const rabbet_prepared_t* prepared,
                                  int32_t v) {
  const rabbet_sequence_t* sequence = prepared->sequence;
  const rabbet_plan_value_t* value = &sequence->plan->values[v];
  if (prepared->host_values[v]) return prepared->host_values[v];
  if (value->storage != RABBET_PLAN_STORAGE_IO ||
      !sequence->ios[value->io].is_shape_input)
    return NULL;
  const rabbet_prepared_t* root = prepared;
  while (root->parent)
    root = root->parent;
  assert(root->segment == 0);
  return root->key + sequence->key_offsets[value->io] +
         sequence->ios[value->io].dims.rank;
}

void rabbet_store_host_values(const rabbet_plan_value_t* value,
                              const int64_t* from, size_t count, void* to) {
  for (size_t i = 0; i < count; ++i)
    rabbet_store_int64(value->dtype, to, (int64_t)i, from[i]);
}

static rabbet_status_t write_materialized(rabbet_prepared_t* prepared,
                                          int32_t v, uint8_t* staging) {
  const rabbet_plan_value_t* value = &prepared->sequence->plan->values[v];
  const int64_t* from = rabbet_host_values(prepared, v);
  int64_t count = 0;
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(&prepared->dims[v], &count));
  if (!from)
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                         "the values of '%s' divide by 0 or overflow for these "
                         "input shapes",
                         value->name);
  assert(prepared->materialized_offsets[v] != SIZE_MAX);
  rabbet_store_host_values(value, from, (size_t)count,
                           staging + prepared->materialized_offsets[v]);
  return rabbet_ok();
}

// Gives a place to each value known to the host that steps of this segment
// read.
static void place_materialized(rabbet_prepared_t* prepared, size_t* out_total) {
  const rabbet_sequence_t* sequence = prepared->sequence;
  size_t begin = 0, end = 0;
  *out_total = 0;
  rabbet_segment_slots(sequence, prepared->segment, &begin, &end);
  for (size_t v = 0; v < sequence->plan->value_count; ++v)
    prepared->materialized_offsets[v] = SIZE_MAX;
  for (size_t i = begin; i < end; ++i) {
    int32_t root = sequence->analysis.roots[sequence->slot_values[i]];
    size_t* offset = &prepared->materialized_offsets[root];
    if (*offset != SIZE_MAX || !rabbet_is_materialized(sequence, root))
      continue;
    assert(prepared->bytes[root] != RABBET_BYTES_UNKNOWN);
    *offset = *out_total;
    *out_total +=
        rabbet_align_up(prepared->bytes[root] + 1, RABBET_DEVICE_ALIGNMENT);
  }
}

static rabbet_status_t copy_materialized(rabbet_prepared_t* prepared,
                                         size_t total, uint8_t* staging,
                                         void* stream) {
  rabbet_device_t* device = prepared->sequence->engine->device;
  for (size_t v = 0; v < prepared->sequence->plan->value_count; ++v) {
    if (prepared->materialized_offsets[v] != SIZE_MAX)
      RABBET_RETURN_IF_ERROR(write_materialized(prepared, (int32_t)v, staging));
  }
  RABBET_RETURN_IF_ERROR(rabbet_memory_allocate(
      device, &prepared->sequence->engine->device_allocator, total, stream,
      &prepared->materialized));
  rabbet_status_t status = device->vtable->copy_to_device(
      device, prepared->materialized, staging, total, stream);
  return rabbet_status_join(status,
                            device->vtable->synchronize(device, stream));
}

static rabbet_status_t prepare_materialized(rabbet_prepared_t* prepared,
                                            void* stream) {
  const rabbet_sequence_t* sequence = prepared->sequence;
  size_t total = 0;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate_array(&prepared->arena, sequence->plan->value_count,
                                  sizeof(*prepared->materialized_offsets),
                                  (void**)&prepared->materialized_offsets));
  place_materialized(prepared, &total);
  if (total == 0) return rabbet_ok();
  void* staging = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_host_allocate(sequence->engine, total, &staging));
  // The gaps between and behind the values are not written.
  memset(staging, 0, total);
  rabbet_status_t status = copy_materialized(prepared, total, staging, stream);
  rabbet_host_free(sequence->engine, staging);
  return status;
}

// ---- All

static rabbet_status_t prepare_arrays(rabbet_prepared_t* prepared) {
  const rabbet_sequence_t* sequence = prepared->sequence;
  size_t steps = rabbet_segment_end(sequence, prepared->segment) -
                 rabbet_segment_begin(sequence, prepared->segment);
  size_t first = 0, last = 0;
  rabbet_segment_slots(sequence, prepared->segment, &first, &last);
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &prepared->arena, steps, sizeof(*prepared->states),
      (void**)&prepared->states));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(&prepared->arena, steps,
                                                     sizeof(*prepared->runs),
                                                     (void**)&prepared->runs));
  return rabbet_arena_allocate_array(&prepared->arena, last - first,
                                     sizeof(*prepared->slots),
                                     (void**)&prepared->slots);
}

// Before kernels prepare, which may take time that grows with the sizes.
static rabbet_status_t prepared_check_sizes(const rabbet_prepared_t* prepared) {
  const rabbet_sequence_t* sequence = prepared->sequence;
  if (!sequence->engine->device->host_memory) return rabbet_ok();
  uint64_t limit = rabbet_memory_limit();
  for (size_t v = 0; v < sequence->plan->value_count; ++v) {
    size_t bytes = prepared->bytes[v];
    if (bytes == RABBET_BYTES_UNKNOWN || bytes <= limit ||
        !rabbet_sequence_owns_memory(sequence, prepared->segment, v))
      continue;
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_MEMORY,
                         "tensor '%s' has %zu bytes, more memory than the "
                         "%llu bytes that this process can have",
                         sequence->plan->values[v].name, bytes,
                         (unsigned long long)limit);
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_prepared_measure(rabbet_frame_t* frame,
                                        rabbet_prepared_t* prepared) {
  const rabbet_sequence_t* sequence = prepared->sequence;
  size_t steps = rabbet_segment_end(sequence, prepared->segment) -
                 rabbet_segment_begin(sequence, prepared->segment);
  assert(!prepared->ready && prepared->run_count == 0);
  size_t* workspaces = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(sequence->engine->allocator,
                                         (steps + 1) * sizeof(size_t),
                                         (void**)&workspaces));
  rabbet_status_t status = prepared_check_sizes(prepared);
  if (rabbet_is_ok(status)) status = prepare_arrays(prepared);
  if (rabbet_is_ok(status))
    status = prepare_runs(
        prepared, rabbet_context_actual_threads(frame->context), workspaces);
  if (rabbet_is_ok(status)) status = prepare_memory(prepared, workspaces);
  rabbet_free(sequence->engine->allocator, workspaces);
  if (!rabbet_is_ok(status)) rabbet_prepared_undo(prepared);
  return status;
}

rabbet_status_t rabbet_prepared_complete(rabbet_frame_t* frame,
                                         rabbet_prepared_t* prepared,
                                         void* stream) {
  if (prepared->ready) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_prepared_measure(frame, prepared));
  assert(!prepared->materialized && !prepared->staging);
  rabbet_status_t status = prepare_materialized(prepared, stream);
  if (rabbet_is_ok(status)) status = rabbet_prepare_staging(prepared);
  if (!rabbet_is_ok(status)) {
    rabbet_prepared_undo(prepared);
    return status;
  }
  prepared->ready = true;
  return rabbet_ok();
}

rabbet_status_t rabbet_prepared_make_ready(rabbet_frame_t* frame,
                                           rabbet_prepared_t* prepared,
                                           void* stream) {
  RABBET_RETURN_IF_ERROR(rabbet_prepared_complete(frame, prepared, stream));
  return rabbet_frame_reserve(frame, prepared->segment, prepared->memory_bytes,
                              stream);
}
