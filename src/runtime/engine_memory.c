// Consequences of an engine's profiles: shapes that they fix, the memory that a
// context will need; memory for callers.
#include <assert.h>

#include "base/math.h"
#include "runtime/runtime.h"

void rabbet_profile_optimum(const rabbet_sequence_t* sequence, size_t profile,
                            int64_t* values) {
  const rabbet_plan_sequence_t* plan = sequence->plan;
  for (size_t i = 0; i < rabbet_expr_symbol_count(plan->graph); ++i) {
    const rabbet_plan_source_t* source = &sequence->analysis.sources[i];
    if (source->read >= 0) continue;
    assert(source->input >= 0 && (size_t)source->input < plan->input_count);
    const rabbet_plan_range_t* range =
        &sequence->plan
             ->profiles[profile * plan->input_count + (size_t)source->input];
    bool dim = rabbet_expr_symbol(plan->graph, i)->kind == RABBET_SYMBOL_DIM;
    values[i] =
        dim ? range->opt.d[source->index] : range->opt_values[source->index];
  }
}

void rabbet_profile_symbols(const rabbet_sequence_t* sequence, size_t profile,
                            int64_t* low, int64_t* high) {
  const rabbet_plan_sequence_t* plan = sequence->plan;
  for (size_t i = 0; i < rabbet_expr_symbol_count(plan->graph); ++i) {
    const rabbet_plan_source_t* source = &sequence->analysis.sources[i];
    if (source->read >= 0) continue;
    assert(source->input >= 0 && (size_t)source->input < plan->input_count);
    const rabbet_plan_range_t* range =
        &sequence->plan
             ->profiles[profile * plan->input_count + (size_t)source->input];
    bool dim = rabbet_expr_symbol(plan->graph, i)->kind == RABBET_SYMBOL_DIM;
    low[i] =
        dim ? range->min.d[source->index] : range->min_values[source->index];
    high[i] =
        dim ? range->max.d[source->index] : range->max_values[source->index];
  }
}

static void fix_dims(const rabbet_sequence_t* sequence, size_t profile,
                     const int64_t* low, const int64_t* high) {
  const rabbet_plan_sequence_t* plan = sequence->plan;
  for (size_t i = 0; i < plan->io_count; ++i) {
    const rabbet_shape_t* shape = &plan->values[plan->ios[i].value].shape;
    rabbet_dims_t* dims = &sequence->ios[i].dims;
    for (int32_t axis = 0; axis < shape->rank; ++axis) {
      rabbet_expr_t e = shape->d[axis];
      assert(low[e] <= high[e]);
      bool fixed = low[e] == high[e] && low[e] >= 0;
      if (profile == 0 && dims->d[axis] < 0 && fixed) dims->d[axis] = low[e];
      if (profile > 0 && !(fixed && dims->d[axis] == low[e]) &&
          !rabbet_expr_is_constant(plan->graph, e, &(int64_t){0}))
        dims->d[axis] = -1;
    }
  }
}

rabbet_status_t rabbet_sequence_fix_shapes(rabbet_sequence_t* sequence) {
  const rabbet_plan_sequence_t* plan = sequence->plan;
  size_t symbols = rabbet_expr_symbol_count(plan->graph);
  size_t exprs = rabbet_expr_node_count(plan->graph);
  int64_t* bounds = NULL;
  if (symbols == 0) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &sequence->engine->arena, 2 * (symbols + exprs), sizeof(*bounds),
      (void**)&bounds));
  int64_t *symbol_high = bounds + symbols, *low = symbol_high + symbols;
  int64_t* high = low + exprs;
  for (size_t p = 0; p < sequence->plan->profile_count; ++p) {
    rabbet_profile_symbols(sequence, p, bounds, symbol_high);
    RABBET_RETURN_IF_ERROR(
        rabbet_settle_bounds(sequence, 0, bounds, symbol_high, low, high));
    fix_dims(sequence, p, low, high);
  }
  return rabbet_ok();
}

// An input or output shows a dimension that is the same in all entries.
void rabbet_engine_join_shapes(rabbet_engine_t* engine) {
  const rabbet_plan_t* plan = engine->plan;
  rabbet_io_t* joined = rabbet_engine_main(engine)->ios;
  for (size_t i = 0; i < rabbet_engine_main(engine)->plan->io_count; ++i) {
    rabbet_dims_t* dims = &joined[i].dims;
    for (size_t p = 1; p < plan->profile_count; ++p) {
      const rabbet_dims_t* other = &rabbet_engine_entry(engine, p)->ios[i].dims;
      assert(other->rank == dims->rank);
      for (int32_t axis = 0; axis < dims->rank; ++axis)
        if (other->d[axis] != dims->d[axis]) dims->d[axis] = -1;
    }
    for (size_t p = 1; p < plan->profile_count; ++p)
      rabbet_engine_entry(engine, p)->ios[i].dims = *dims;
  }
}

static size_t largest_bytes(const rabbet_plan_value_t* value,
                            const int64_t* high) {
  rabbet_dims_t dims = {.rank = value->shape.rank};
  size_t bytes = 0;
  for (int32_t axis = 0; axis < dims.rank; ++axis)
    dims.d[axis] = rabbet_max_i64(high[value->shape.d[axis]], 0);
  rabbet_status_t status =
      rabbet_tensor_bytes(value->dtype, value->format, &dims, &bytes);
  if (!rabbet_is_ok(status)) bytes = RABBET_BYTES_UNKNOWN;
  rabbet_status_ignore(status);
  return bytes;
}

static rabbet_status_t stage_bytes(const rabbet_sequence_t* sequence,
                                   int32_t segment, const int64_t* high,
                                   rabbet_memory_request_t* requests,
                                   size_t* out_bytes) {
  const rabbet_plan_sequence_t* plan = sequence->plan;
  for (size_t v = 0; v < plan->value_count; ++v)
    requests[v] = (rabbet_memory_request_t){0};
  for (size_t v = 0; v < plan->value_count; ++v) {
    size_t root = (size_t)sequence->analysis.roots[v];
    size_t bytes = largest_bytes(&plan->values[v], high);
    if (!rabbet_sequence_owns_memory(sequence, segment, root) ||
        bytes == RABBET_BYTES_UNKNOWN)
      continue;
    requests[root].first = sequence->analysis.first_steps[root];
    requests[root].last = sequence->analysis.last_steps[root];
    if (bytes > requests[root].size) requests[root].size = bytes;
  }
  return rabbet_plan_memory(requests, plan->value_count,
                            sequence->engine->allocator, out_bytes);
}

// ---- Places

static size_t engine_depth_segments(const rabbet_engine_t* engine,
                                    const int32_t* depths, int32_t depth) {
  size_t most = 0;
  for (size_t i = 0; i < engine->plan->sequence_count; ++i) {
    size_t segments = engine->sequences[i].analysis.segment_count;
    if (depths[i] == depth && segments > most) most = segments;
  }
  return most;
}

// A sequence stands behind the one that calls it.
static void engine_find_depths(const rabbet_engine_t* engine, int32_t* depths) {
  const rabbet_plan_t* plan = engine->plan;
  for (size_t i = 0; i < plan->sequence_count; ++i)
    engine->sequences[i].entry = (int32_t)i;
  for (size_t i = 0; i < plan->sequence_count; ++i) {
    const rabbet_plan_sequence_t* sequence = &plan->sequences[i];
    for (size_t s = 0; s < sequence->step_count; ++s)
      for (size_t k = 0; k < sequence->steps[s].call_count; ++k) {
        int32_t callee = sequence->steps[s].calls[k].sequence;
        assert(callee > (int32_t)i);
        depths[callee] = depths[i] + 1;
        engine->sequences[callee].entry = engine->sequences[i].entry;
      }
  }
}

rabbet_status_t rabbet_engine_place_memory(rabbet_engine_t* engine) {
  size_t count = engine->plan->sequence_count, segments = 0;
  int32_t* depths = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &engine->arena, count, sizeof(*depths), (void**)&depths));
  engine_find_depths(engine, depths);
  assert(engine->place_count == 0 && depths[0] == 0);
  for (int32_t depth = 0;
       (segments = engine_depth_segments(engine, depths, depth)) > 0; ++depth) {
    for (size_t i = 0; i < count; ++i)
      if (depths[i] == depth)
        engine->sequences[i].first_place = engine->place_count;
    engine->place_count += segments;
  }
  return rabbet_ok();
}

// ---- How much a context will need

typedef struct measure_t {
  rabbet_context_t*
      context;  // NULL: tensors are counted, not what kernels need
  rabbet_arena_t arena;
  size_t profile;  // among those of its entry
  const rabbet_sequence_t* entry;
  bool present;    // at the inputs' present sizes, not the largest
  size_t* places;  // [place]
} measure_t;

static void measure_count(const measure_t* measure,
                          const rabbet_sequence_t* sequence, size_t segment,
                          size_t bytes) {
  assert(segment < sequence->analysis.segment_count);
  size_t* place = &measure->places[sequence->first_place + segment];
  bytes = rabbet_align_up(bytes ? bytes : 1, RABBET_DEVICE_ALIGNMENT);
  if (bytes > *place) *place = bytes;
}

// The tensors of the segments from `first` on.
static rabbet_status_t measure_tensors(measure_t* measure,
                                       const rabbet_sequence_t* sequence,
                                       size_t first) {
  const rabbet_plan_sequence_t* plan = sequence->plan;
  size_t symbols = rabbet_expr_symbol_count(plan->graph);
  size_t exprs = rabbet_expr_node_count(plan->graph);
  int64_t* bounds = NULL;
  rabbet_memory_request_t* requests = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate_array(&measure->arena, 2 * (symbols + exprs),
                                  sizeof(*bounds), (void**)&bounds));
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate_array(&measure->arena, plan->value_count,
                                  sizeof(*requests), (void**)&requests));
  int64_t *symbol_high = bounds + symbols, *low = symbol_high + symbols;
  int64_t* high = low + exprs;
  rabbet_profile_symbols(sequence, measure->profile, bounds, symbol_high);
  RABBET_RETURN_IF_ERROR(
      rabbet_settle_bounds(sequence, 0, bounds, symbol_high, low, high));
  for (size_t k = first; k < sequence->analysis.segment_count; ++k) {
    size_t bytes = 0;
    RABBET_RETURN_IF_ERROR(
        stage_bytes(sequence, (int32_t)k, high, requests, &bytes));
    measure_count(measure, sequence, k, bytes);
  }
  return rabbet_ok();
}

static rabbet_status_t measure_largest_key(measure_t* measure,
                                           const rabbet_sequence_t* sequence,
                                           int64_t** out_key) {
  const rabbet_plan_sequence_t* plan = sequence->plan;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &measure->arena, sequence->key_size, sizeof(**out_key), (void**)out_key));
  for (size_t i = 0; i < plan->input_count; ++i) {
    const rabbet_plan_range_t* range =
        &plan->profiles[measure->profile * plan->input_count + i];
    int64_t* key = *out_key + sequence->key_offsets[i];
    for (int32_t axis = 0; axis < range->max.rank; ++axis)
      *key++ = range->max.d[axis];
    for (size_t k = 0; k < range->value_count; ++k)
      *key++ = range->max_values[k];
    assert((size_t)(key - *out_key) <= sequence->key_size);
  }
  return rabbet_ok();
}

static rabbet_status_t measure_frame(measure_t* measure, rabbet_frame_t* frame,
                                     const int64_t* key);

// `prepared`: the caller's shapes, where they are known.
static rabbet_status_t measure_callees(measure_t* measure,
                                       const rabbet_frame_t* frame,
                                       const rabbet_prepared_t* prepared) {
  const rabbet_plan_sequence_t* plan = frame->sequence->plan;
  for (size_t s = 0; s < plan->step_count; ++s) {
    for (size_t k = 0; k < plan->steps[s].call_count; ++k) {
      const rabbet_plan_call_t* call = &plan->steps[s].calls[k];
      rabbet_frame_t* callee =
          rabbet_context_frame(measure->context, (size_t)call->sequence);
      int64_t* key = NULL;
      bool known = false, changes = false;
      RABBET_RETURN_IF_ERROR(
          measure_largest_key(measure, callee->sequence, &key));
      if (prepared)
        RABBET_RETURN_IF_ERROR(
            rabbet_call_key(prepared, &plan->steps[s], call, callee->sequence,
                            callee->next_key, &known, &changes));
      known = known && !changes;
      rabbet_status_t status =
          measure_frame(measure, callee, known ? callee->next_key : key);
      // It may fit smaller shapes.
      if (rabbet_call_does_not_fit(&status) && !known)
        status = measure_tensors(measure, callee->sequence, 0);
      RABBET_RETURN_IF_ERROR(status);
    }
  }
  return rabbet_ok();
}

// The first segment, whose shapes follow from the key: the bytes that a run
// would allocate. Later ones: their tensors.
static rabbet_status_t measure_frame(measure_t* measure, rabbet_frame_t* frame,
                                     const int64_t* key) {
  const rabbet_sequence_t* sequence = frame->sequence;
  rabbet_prepared_t* prepared = NULL;
  rabbet_status_t status =
      rabbet_prepared_create(frame, NULL, key, sequence->key_size, &prepared);
  if (rabbet_is_ok(status)) status = rabbet_prepared_measure(frame, prepared);
  if (rabbet_is_ok(status))
    measure_count(measure, sequence, 0, prepared->memory_bytes);
  if (rabbet_is_ok(status)) status = measure_tensors(measure, sequence, 1);
  if (rabbet_is_ok(status))
    status =
        measure_callees(measure, frame, measure->present ? prepared : NULL);
  rabbet_prepared_destroy(prepared);
  return status;
}

static rabbet_status_t measure_context(measure_t* measure, const int64_t* key) {
  rabbet_context_t* context = measure->context;
  rabbet_device_t* device = context->engine->device;
  void* token = NULL;
  if (device->vtable->begin_run)
    RABBET_RETURN_IF_ERROR(device->vtable->begin_run(
        device, rabbet_context_actual_threads(context), &token));
  rabbet_status_t status = measure_frame(measure, context->main, key);
  if (device->vtable->end_run) device->vtable->end_run(device, token);
  return status;
}

static rabbet_status_t measure_engine(measure_t* measure,
                                      rabbet_engine_t* engine, size_t profile) {
  int64_t* key = NULL;
  if (!engine->device) {
    for (size_t i = 0; i < engine->plan->sequence_count; ++i)
      if (engine->sequences[i].entry == measure->entry->entry)
        RABBET_RETURN_IF_ERROR(
            measure_tensors(measure, &engine->sequences[i], 0));
    return rabbet_ok();
  }
  RABBET_RETURN_IF_ERROR(measure_largest_key(measure, measure->entry, &key));
  RABBET_RETURN_IF_ERROR(
      rabbet_context_create(engine, engine->allocator, &measure->context));
  rabbet_status_t status =
      rabbet_context_set_profile(measure->context, profile);
  if (rabbet_is_ok(status)) status = measure_context(measure, key);
  rabbet_context_destroy(measure->context);
  return status;
}

static rabbet_status_t measure_run(measure_t* measure, rabbet_engine_t* engine,
                                   size_t profile, size_t* out_bytes) {
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &measure->arena, engine->place_count, sizeof(*measure->places),
      (void**)&measure->places));
  RABBET_RETURN_IF_ERROR(
      measure->present ? measure_context(measure, measure->context->main->key)
                       : measure_engine(measure, engine, profile));
  for (size_t i = 0; i < engine->place_count; ++i)
    if (!rabbet_checked_add(*out_bytes, measure->places[i], out_bytes))
      return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                           "intermediate tensors need more memory than can be "
                           "addressed");
  return rabbet_ok();
}

static rabbet_status_t measure_all(measure_t* measure, rabbet_engine_t* engine,
                                   size_t profile, size_t* out_bytes) {
  rabbet_arena_initialize(engine->allocator, &measure->arena);
  measure->profile = rabbet_plan_entry_profile(engine->plan, profile);
  measure->entry = rabbet_engine_entry(engine, profile);
  rabbet_status_t status = measure_run(measure, engine, profile, out_bytes);
  rabbet_arena_deinitialize(&measure->arena);
  if (!rabbet_is_ok(status)) *out_bytes = 0;
  return status;
}

rabbet_status_t rabbet_engine_context_bytes(rabbet_engine_t* engine,
                                            size_t profile, size_t* out_bytes) {
  measure_t measure = {0};
  *out_bytes = 0;
  if (profile >= engine->plan->profile_count)
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                         "profile %zu does not exist; the plan has %zu",
                         profile, engine->plan->profile_count);
  return RABBET_ANNOTATE(measure_all(&measure, engine, profile, out_bytes),
                         "measuring the memory of profile %zu", profile);
}

rabbet_status_t rabbet_context_memory_bytes(rabbet_context_t* context,
                                            size_t* out_bytes) {
  measure_t measure = {.context = context, .present = true};
  rabbet_prepared_t* prepared = NULL;
  *out_bytes = 0;
  RABBET_RETURN_IF_ERROR(rabbet_context_select(context, &prepared));
  return RABBET_ANNOTATE(
      measure_all(&measure, context->engine, context->profile, out_bytes),
      "measuring the memory of the next run");
}

// ---- Memory for callers

static rabbet_status_t engine_check_device(const rabbet_engine_t* engine) {
  return engine->device ? rabbet_ok()
                        : RABBET_STATUS(RABBET_STATUS_FAILED_PRECONDITION,
                                        "this engine is only to inspect the "
                                        "plan: it has no device; load it "
                                        "without inspect_only");
}

rabbet_status_t rabbet_engine_allocate(rabbet_engine_t* engine, size_t size,
                                       void** out_memory) {
  *out_memory = NULL;
  RABBET_RETURN_IF_ERROR(engine_check_device(engine));
  return engine->device->vtable->allocate(engine->device, size ? size : 1,
                                          out_memory);
}

void rabbet_engine_free(rabbet_engine_t* engine, void* memory) {
  if (memory) engine->device->vtable->free(engine->device, memory);
}

rabbet_status_t rabbet_engine_allocate_async(rabbet_engine_t* engine,
                                             size_t size, void* stream,
                                             void** out_memory) {
  *out_memory = NULL;
  RABBET_RETURN_IF_ERROR(engine_check_device(engine));
  rabbet_device_t* device = engine->device;
  if (size == 0) size = 1;
  return device->vtable->allocate_async && !engine->device_allocator.allocate
             ? device->vtable->allocate_async(device, size, stream, out_memory)
             : rabbet_memory_allocate(device, &engine->device_allocator, size,
                                      stream, out_memory);
}

void rabbet_engine_free_async(rabbet_engine_t* engine, void* memory,
                              void* stream) {
  if (!memory) return;
  rabbet_device_t* device = engine->device;
  if (device->vtable->free_async && !engine->device_allocator.allocate)
    device->vtable->free_async(device, memory, stream);
  else
    rabbet_memory_free(device, &engine->device_allocator, memory, stream);
}

void rabbet_engine_retire(rabbet_engine_t* engine, void* memory) {
  if (!memory) return;
  rabbet_device_t* device = engine->device;
  if (device->vtable->retire && !engine->device_allocator.allocate) {
    device->vtable->retire(device, memory);
    return;
  }
  // The allocator of the memory waits for the default stream at most.
  if (device->vtable->synchronize_all)
    rabbet_status_ignore(device->vtable->synchronize_all(device));
  rabbet_memory_free(device, &engine->device_allocator, memory, NULL);
}

rabbet_status_t rabbet_engine_copy(rabbet_engine_t* engine, void* target,
                                   const void* source, size_t size,
                                   void* stream) {
  RABBET_RETURN_IF_ERROR(engine_check_device(engine));
  return engine->device->vtable->copy(engine->device, target, source, size,
                                      stream);
}

rabbet_status_t rabbet_engine_copy_to_host(rabbet_engine_t* engine,
                                           void* target, const void* source,
                                           size_t size, void* stream) {
  RABBET_RETURN_IF_ERROR(engine_check_device(engine));
  RABBET_RETURN_IF_ERROR(engine->device->vtable->copy_to_host(
      engine->device, target, source, size, stream));
  return engine->device->vtable->synchronize(engine->device, stream);
}

rabbet_status_t rabbet_engine_copy_to_device(rabbet_engine_t* engine,
                                             void* target, const void* source,
                                             size_t size, void* stream) {
  RABBET_RETURN_IF_ERROR(engine_check_device(engine));
  RABBET_RETURN_IF_ERROR(engine->device->vtable->copy_to_device(
      engine->device, target, source, size, stream));
  return engine->device->vtable->synchronize(engine->device, stream);
}

rabbet_status_t rabbet_engine_synchronize(rabbet_engine_t* engine,
                                          void* stream) {
  RABBET_RETURN_IF_ERROR(engine_check_device(engine));
  return engine->device->vtable->synchronize(engine->device, stream);
}

rabbet_status_t rabbet_engine_create_stream(rabbet_engine_t* engine,
                                            void** out_stream) {
  *out_stream = NULL;
  RABBET_RETURN_IF_ERROR(engine_check_device(engine));
  rabbet_device_t* device = engine->device;
  return device->vtable->create_stream
             ? device->vtable->create_stream(device, out_stream)
             : rabbet_ok();
}

void rabbet_engine_destroy_stream(rabbet_engine_t* engine, void* stream) {
  if (stream) engine->device->vtable->destroy_stream(engine->device, stream);
}
