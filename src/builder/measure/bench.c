#include "builder/measure/bench.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/strbuf.h"
#include "builder/measure/cold_weights.h"
#include "core/view.h"

#define BENCH_PATTERN 4096
#define BENCH_POOL_LIMIT ((size_t)1 << 30)

// Device memory with numbers of `dtype`; NONE: contents without meaning.
typedef struct bench_block_t {
  void* memory;
  size_t bytes;
  rabbet_dtype_t dtype;
  bool in_use;
} bench_block_t;

struct rabbet_bench_t {
  rabbet_allocator_t allocator;
  rabbet_device_t* device;
  RABBET_VEC(bench_block_t) blocks;
  size_t kept;               // bytes that prepared kernels keep
  size_t limit, held, peak;  // bytes of all blocks, and those
  bool is_starved;           // memory did not suffice since the last reset
  size_t starved[RABBET_STARVED_COUNT];
  char first_starved[256];  // the name and why; "": none
  void* stream;             // that only records, or NULL
};

rabbet_status_t rabbet_bench_create(rabbet_build_t* build,
                                    rabbet_bench_t** out_bench) {
  *out_bench = NULL;
  rabbet_bench_t* bench = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(build->allocator, sizeof(*bench), (void**)&bench));
  bench->allocator = build->allocator;
  bench->device = build->device;
  bench->limit =
      (size_t)build->config->options[RABBET_BUILDER_OPTION_TACTIC_MEMORY];
  *out_bench = bench;
  return rabbet_ok();
}

static void bench_drop(rabbet_bench_t* bench, size_t index) {
  assert(bench->held >= bench->blocks.data[index].bytes);
  bench->held -= bench->blocks.data[index].bytes;
  bench->device->vtable->free(bench->device, bench->blocks.data[index].memory);
  bench->blocks.data[index] = bench->blocks.data[--bench->blocks.count];
}

void rabbet_bench_destroy(rabbet_bench_t* bench) {
  if (!bench) return;
  while (bench->blocks.count > 0)
    bench_drop(bench, bench->blocks.count - 1);
  rabbet_vec_free(bench->allocator, &bench->blocks);
  if (bench->stream)
    bench->device->vtable->destroy_stream(bench->device, bench->stream);
  rabbet_free(bench->allocator, bench);
}

rabbet_status_t rabbet_bench_stream(rabbet_build_t* build, void** out_stream) {
  rabbet_bench_t* bench = build->bench;
  *out_stream = NULL;
  if (!bench->stream)
    RABBET_RETURN_IF_ERROR(
        bench->device->vtable->create_stream(bench->device, &bench->stream));
  *out_stream = bench->stream;
  return rabbet_ok();
}

void rabbet_bench_reset(rabbet_bench_t* bench) {
  bench->is_starved = false;
  for (size_t i = 0; i < bench->blocks.count; ++i)
    bench->blocks.data[i].in_use = false;
  while (bench->held > BENCH_POOL_LIMIT && bench->blocks.count > 0)
    bench_drop(bench, 0);
}

size_t rabbet_bench_peak(const rabbet_bench_t* bench) {
  return bench->peak;
}

// Frees blocks that are not in use until `bytes` more are allowed.
static void bench_make_room(rabbet_bench_t* bench, size_t limit, size_t bytes) {
  for (size_t i = bench->blocks.count; i-- > 0;) {
    if (bench->held <= limit && limit - bench->held >= bytes) return;
    if (!bench->blocks.data[i].in_use) bench_drop(bench, i);
  }
}

size_t rabbet_bench_room(rabbet_bench_t* bench) {
  size_t used = bench->kept;
  for (size_t i = 0; i < bench->blocks.count; ++i)
    if (bench->blocks.data[i].in_use) used += bench->blocks.data[i].bytes;
  return used < bench->limit ? bench->limit - used : 0;
}

// Whether the limit allows `bytes` more.
static rabbet_status_t bench_check(rabbet_bench_t* bench, size_t bytes) {
  bench_make_room(bench, bench->limit, bytes);
  if (bench->held <= bench->limit && bench->limit - bench->held >= bytes)
    return rabbet_ok();
  bench->is_starved = true;
  return RABBET_STATUS(RABBET_STATUS_OUT_OF_MEMORY,
                       "%zu bytes beside %zu in use are more than the limit "
                       "of %zu for memory of tactics",
                       bytes, bench->held, bench->limit);
}

static void bench_add(rabbet_bench_t* bench, size_t bytes) {
  bench->held += bytes;
  if (bench->held > bench->peak) bench->peak = bench->held;
}

// The limit holds for all blocks. A device that has no memory left is asked
// again when the bench has given back what it could; the host's memory is not
// the bench's alone to run out of.
static rabbet_status_t bench_allocate(rabbet_bench_t* bench,
                                      bench_block_t* block) {
  rabbet_device_t* device = bench->device;
  RABBET_RETURN_IF_ERROR(bench_check(bench, block->bytes));
  rabbet_status_t status =
      device->vtable->allocate(device, block->bytes, &block->memory);
  if (rabbet_status_code(status) == RABBET_STATUS_OUT_OF_MEMORY &&
      !device->host_memory) {
    rabbet_status_ignore(status);
    bench_make_room(bench, 0, 0);
    status = device->vtable->allocate(device, block->bytes, &block->memory);
    bench->is_starved =
        rabbet_status_code(status) == RABBET_STATUS_OUT_OF_MEMORY;
  }
  RABBET_RETURN_IF_ERROR(status);
  bench_add(bench, block->bytes);
  return rabbet_ok();
}

// ---- Contents ---------------------------------------------------------------

// Numbers in [-1, 1) that are neither tiny nor special; integers are zeros,
// which index everything.
static void bench_pattern(rabbet_dtype_t dtype, void* data, size_t count) {
  uint64_t random = 0x2545f4914f6cdd1du;
  for (size_t i = 0; i < count; ++i) {
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    double value = (double)(random >> 11) / 4503599627370496.0 - 1.0;
    if (value > -1e-3 && value < 1e-3) value = 0.5;
    rabbet_store_double(dtype, data, (int64_t)i, value);
  }
}

static bool bench_has_pattern(rabbet_dtype_t dtype) {
  return dtype == RABBET_DTYPE_FLOAT || dtype == RABBET_DTYPE_HALF ||
         dtype == RABBET_DTYPE_BF16 || dtype == RABBET_DTYPE_DOUBLE;
}

static rabbet_status_t bench_fill(rabbet_bench_t* bench, bench_block_t* block) {
  rabbet_device_t* device = bench->device;
  if (!bench_has_pattern(block->dtype))
    return device->vtable->fill(device, block->memory, 0, block->bytes, NULL);
  size_t element = (size_t)rabbet_dtype_bits(block->dtype) / 8;
  assert(element > 0 && element <= sizeof(uint64_t));
  uint64_t pattern[BENCH_PATTERN];
  bench_pattern(block->dtype, pattern, BENCH_PATTERN);
  size_t piece = BENCH_PATTERN * element;
  rabbet_status_t status = rabbet_ok();
  for (size_t at = 0; rabbet_is_ok(status) && at < block->bytes; at += piece) {
    size_t size = block->bytes - at < piece ? block->bytes - at : piece;
    status = device->vtable->copy_to_device(
        device, (uint8_t*)block->memory + at, pattern, size, NULL);
  }
  return rabbet_status_join(status, device->vtable->synchronize(device, NULL));
}

static bench_block_t* bench_find(rabbet_bench_t* bench, rabbet_dtype_t dtype,
                                 size_t bytes) {
  bench_block_t* best = NULL;
  for (size_t i = 0; i < bench->blocks.count; ++i) {
    bench_block_t* block = &bench->blocks.data[i];
    if (block->in_use || block->dtype != dtype || block->bytes < bytes ||
        block->bytes / 4 > bytes)
      continue;
    assert(block->memory);
    if (!best || block->bytes < best->bytes) best = block;
  }
  return best;
}

rabbet_status_t rabbet_bench_acquire(rabbet_build_t* build,
                                     rabbet_dtype_t dtype, size_t bytes,
                                     void** out_memory) {
  *out_memory = NULL;
  rabbet_bench_t* bench = build->bench;
  bench_block_t* found = bench_find(bench, dtype, bytes);
  if (found) {
    found->in_use = true;
    *out_memory = found->memory;
    return rabbet_ok();
  }
  RABBET_RETURN_IF_ERROR(
      RABBET_VEC_RESERVE(bench->allocator, &bench->blocks, 1));
  bench_block_t block = {
      .bytes = bytes > 0 ? bytes : 1, .dtype = dtype, .in_use = true};
  RABBET_RETURN_IF_ERROR(bench_allocate(bench, &block));
  bench->blocks.data[bench->blocks.count++] = block;
  *out_memory = block.memory;
  if (dtype == RABBET_DTYPE_NONE) return rabbet_ok();
  return bench_fill(bench, &block);
}

rabbet_status_t rabbet_bench_upload(rabbet_build_t* build, const void* data,
                                    size_t bytes, void** out_memory) {
  rabbet_device_t* device = build->device;
  if (device->host_memory) {
    *out_memory = (void*)data;
    return rabbet_ok();
  }
  RABBET_RETURN_IF_ERROR(
      rabbet_bench_acquire(build, RABBET_DTYPE_NONE, bytes, out_memory));
  RABBET_RETURN_IF_ERROR(
      device->vtable->copy_to_device(device, *out_memory, data, bytes, NULL));
  return device->vtable->synchronize(device, NULL);
}

// ---- Memory that does not suffice -------------------------------------------

void rabbet_bench_starve(rabbet_build_t* build, rabbet_starved_t what) {
  ++build->bench->starved[what];
}

bool rabbet_bench_forgives(rabbet_build_t* build, rabbet_status_t* status,
                           rabbet_starved_t what, const char* name) {
  rabbet_bench_t* bench = build->bench;
  if (rabbet_status_code(*status) != RABBET_STATUS_OUT_OF_MEMORY ||
      !bench->is_starved)
    return false;
  rabbet_log(build->logger, RABBET_SEVERITY_VERBOSE, "%s %s: %s",
             what == RABBET_STARVED_TRIALS ? "not run once:" : "not timed:",
             name, rabbet_status_message(*status));
  rabbet_bench_starve(build, what);
  if (!bench->first_starved[0])
    snprintf(bench->first_starved, sizeof(bench->first_starved), "'%s': %s",
             name, rabbet_status_message(*status));
  rabbet_status_ignore(*status);
  *status = rabbet_ok();
  return true;
}

void rabbet_bench_join_starved(rabbet_bench_t* bench,
                               const rabbet_bench_t* from) {
  if (!from || from == bench) return;
  for (int i = 0; i < RABBET_STARVED_COUNT; ++i)
    bench->starved[i] += from->starved[i];
  if (!bench->first_starved[0])
    memcpy(bench->first_starved, from->first_starved,
           sizeof(bench->first_starved));
}

void rabbet_bench_warn_starved(const rabbet_build_t* build) {
  static const char* const texts[RABBET_STARVED_COUNT][2] = {
      [RABBET_STARVED_KERNELS] = {"kernel", "not timed"},
      [RABBET_STARVED_GROUPS] = {"group",
                                 "without a timed kernel, which get "
                                 "the first one"},
      [RABBET_STARVED_PLANS] = {"comparison", "of whole plans left out"},
      [RABBET_STARVED_TRIALS] = {"plugin",
                                 "not run once before the plan is "
                                 "written"},
  };
  const rabbet_bench_t* bench = build->bench;
  char text[512] = "";
  size_t length = 0;
  for (int i = 0; i < RABBET_STARVED_COUNT; ++i)
    if (bench->starved[i] > 0)
      length += (size_t)snprintf(text + length, sizeof(text) - length,
                                 "%s%zu %s%s %s", length > 0 ? "; " : "",
                                 bench->starved[i], texts[i][0],
                                 rabbet_plural(bench->starved[i]), texts[i][1]);
  assert(length < sizeof(text));
  if (length > 0)
    rabbet_log(build->logger, RABBET_SEVERITY_WARNING,
               "memory for timings did not suffice: %s (first for %s)", text,
               bench->first_starved);
}

// ---- One kernel -------------------------------------------------------------

static rabbet_status_t bench_value(rabbet_build_t* build,
                                   const rabbet_group_value_t* value,
                                   const rabbet_dims_t* room, bool is_output,
                                   void** out_memory) {
  size_t bytes = 0;
  RABBET_RETURN_IF_ERROR(
      rabbet_tensor_bytes(value->dtype, value->format, room, &bytes));
  if (value->constant)
    return rabbet_bench_upload(build, value->constant, bytes, out_memory);
  // Outputs come from another pool, so that inputs keep their numbers.
  return rabbet_bench_acquire(
      build, is_output ? RABBET_DTYPE_NONE : value->dtype, bytes, out_memory);
}

// Memory that a kernel may write: a constant's own must stay as it is.
static rabbet_status_t bench_copy_of_constant(rabbet_build_t* build,
                                              const rabbet_group_value_t* value,
                                              void** out_memory) {
  size_t bytes = 0;
  rabbet_device_t* device = build->device;
  RABBET_RETURN_IF_ERROR(
      rabbet_tensor_bytes(value->dtype, value->format, &value->dims, &bytes));
  RABBET_RETURN_IF_ERROR(
      rabbet_bench_acquire(build, RABBET_DTYPE_NONE, bytes, out_memory));
  RABBET_RETURN_IF_ERROR(device->vtable->copy_to_device(
      device, *out_memory, value->constant, bytes, NULL));
  return device->vtable->synchronize(device, NULL);
}

static bool bench_is_written(const rabbet_choice_t* choice,
                             const rabbet_group_t* group, size_t input) {
  const int32_t* aliased = choice->candidate.aliased;
  for (size_t i = 0; aliased && i < group->output_count; ++i)
    if (aliased[i] == (int32_t)input) return true;
  return false;
}

static rabbet_status_t bench_bind(rabbet_build_t* build,
                                  const rabbet_unit_t* unit,
                                  const rabbet_choice_t* choice,
                                  const rabbet_group_t* group,
                                  rabbet_bench_kernel_t* kernel) {
  void** memory = NULL;
  size_t boundary = group->input_count + group->output_count;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &build->arena, boundary, sizeof(void*), (void**)&memory));
  kernel->call.inputs = memory;
  kernel->call.outputs = memory + group->input_count;
  const int32_t* aliased = choice->candidate.aliased;
  for (size_t i = 0; i < group->input_count; ++i) {
    const rabbet_group_value_t* value = &group->values[group->inputs[i]];
    RABBET_RETURN_IF_ERROR(
        value->constant && bench_is_written(choice, group, i)
            ? bench_copy_of_constant(build, value, &memory[i])
            : bench_value(build, value, &unit->room[group->inputs[i]], false,
                          &memory[i]));
  }
  for (size_t i = 0; i < group->output_count; ++i) {
    size_t at = group->input_count + i;
    assert(!aliased || aliased[i] < (int32_t)group->input_count);
    if (aliased && aliased[i] >= 0)
      memory[at] = memory[aliased[i]];
    else
      RABBET_RETURN_IF_ERROR(
          bench_value(build, &group->values[group->outputs[i]],
                      &unit->room[group->outputs[i]], true, &memory[at]));
  }
  if (kernel->workspace > 0)
    RABBET_RETURN_IF_ERROR(rabbet_bench_acquire(
        build, RABBET_DTYPE_NONE, kernel->workspace, &kernel->call.workspace));
  return rabbet_ok();
}

// Counts what the kernel keeps, packed constants for example, among the blocks.
// The kernel is given up if that is too much.
static rabbet_status_t bench_hold(rabbet_bench_t* bench,
                                  rabbet_bench_kernel_t* kernel) {
  size_t bytes = kernel->kernel->kept_bytes;
  RABBET_RETURN_IF_ERROR(bench_check(bench, bytes));
  kernel->bench = bench;
  kernel->kept = bytes;
  bench->kept += bytes;
  bench_add(bench, bytes);
  return rabbet_ok();
}

rabbet_status_t rabbet_bench_prepare(rabbet_build_t* build,
                                     const rabbet_unit_t* unit,
                                     const rabbet_choice_t* choice,
                                     const rabbet_group_t* group,
                                     rabbet_bench_kernel_t* out_kernel) {
  *out_kernel = (rabbet_bench_kernel_t){
      .name = unit->name, .kernel_class = choice->candidate.kernel};
  rabbet_kernel_spec_t spec = {
      .device = build->device,
      .group = group,
      .tactic = choice->candidate.tactic,
      .allocator = build->allocator,
      .artifacts = &choice->candidate.artifact,
      .artifact_count = choice->candidate.artifact.size > 0,
      .exact = true,
  };
  rabbet_kernel_shapes_t shapes = {.dims = unit->dims,
                                   .host_values = unit->host_values,
                                   .threads = build->threads};
  const rabbet_kernel_class_t* kernel_class = out_kernel->kernel_class;
  rabbet_phase_t before =
      rabbet_phases_enter(build->phases, RABBET_PHASE_KERNELS);
  rabbet_status_t status =
      rabbet_kernel_create(kernel_class, &spec, &out_kernel->kernel);
  if (rabbet_is_ok(status))
    status = kernel_class->prepare(out_kernel->kernel, &shapes,
                                   &out_kernel->state, &out_kernel->workspace);
  rabbet_phases_enter(build->phases, before);
  if (rabbet_is_ok(status)) status = bench_hold(build->bench, out_kernel);
  if (!rabbet_is_ok(status)) rabbet_bench_unprepare(out_kernel);
  return status;
}

void rabbet_bench_unprepare(rabbet_bench_kernel_t* kernel) {
  if (!kernel->kernel) return;
  if (kernel->bench) {
    kernel->bench->held -= kernel->kept;
    kernel->bench->kept -= kernel->kept;
  }
  if (kernel->state)
    kernel->kernel_class->destroy_state(kernel->kernel, kernel->state);
  kernel->kernel_class->destroy(kernel->kernel);
  kernel->kernel = NULL;
  kernel->state = NULL;
  kernel->bench = NULL;
}

// ---- A choice ---------------------------------------------------------------

// A kernel that works in place changes its input; the next run must find the
// same numbers.
typedef struct bench_measure_t {
  rabbet_build_t* build;
  const rabbet_group_t* group;
  const int32_t* aliased;
  rabbet_bench_kernel_t kernel;
  void** originals;  // of each output's memory, NULL where not in place
  rabbet_cold_weights_t cold;
} bench_measure_t;

static rabbet_status_t measure_run(void* context) {
  bench_measure_t* measure = context;
  rabbet_bench_kernel_t* kernel = &measure->kernel;
  rabbet_cold_weights_turn(&measure->cold);
  return kernel->kernel_class->enqueue(kernel->kernel, kernel->state,
                                       &kernel->call);
}

static void measure_set_stream(void* context, void* stream) {
  ((bench_measure_t*)context)->kernel.call.stream = stream;
}

static rabbet_status_t measure_copy(bench_measure_t* measure, bool save) {
  rabbet_device_t* device = measure->build->device;
  for (size_t i = 0; i < measure->group->output_count; ++i) {
    if (measure->aliased[i] < 0) continue;
    const rabbet_group_value_t* value =
        &measure->group->values[measure->group->inputs[measure->aliased[i]]];
    void* memory = measure->kernel.call.outputs[i];
    size_t bytes = 0;
    RABBET_RETURN_IF_ERROR(
        rabbet_tensor_bytes(value->dtype, value->format, &value->dims, &bytes));
    assert(save || measure->originals[i]);
    if (save)
      RABBET_RETURN_IF_ERROR(rabbet_bench_acquire(
          measure->build, RABBET_DTYPE_NONE, bytes, &measure->originals[i]));
    RABBET_RETURN_IF_ERROR(device->vtable->copy(
        device, save ? measure->originals[i] : memory,
        save ? memory : measure->originals[i], bytes, NULL));
  }
  return device->vtable->synchronize(device, NULL);
}

static rabbet_status_t measure_restore(void* context) {
  return measure_copy(context, false);
}

static rabbet_status_t measure_all(bench_measure_t* measure, double best_us,
                                   bool is_minor, rabbet_timing_t* out_timing) {
  rabbet_build_t* build = measure->build;
  rabbet_bench_body_t body = {.run = measure_run,
                              .context = measure,
                              .best_us = best_us,
                              .is_minor = is_minor};
  if (measure->aliased) {
    RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
        &build->arena, measure->group->output_count, sizeof(void*),
        (void**)&measure->originals));
    RABBET_RETURN_IF_ERROR(measure_copy(measure, true));
    body.restore = measure_restore;
  }
  // Plugins say themselves whether their kernels may be recorded; their calls
  // are timed without a recording.
  if (!measure->kernel.kernel_class->recordable)
    body.set_stream = measure_set_stream;
  out_timing->workspace = measure->kernel.workspace;
  rabbet_status_t status = rabbet_bench_time(build, &body, out_timing);
  // Restores the original numbers for the next measurement.
  if (body.restore)
    status = rabbet_status_join(status, measure_restore(measure));
  return status;
}

static rabbet_status_t measure_cold(bench_measure_t* measure,
                                    const rabbet_choice_t* choice) {
  const rabbet_group_t* group = measure->group;
  bool* written = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate_array(&measure->build->arena, group->input_count,
                                  sizeof(*written), (void**)&written));
  for (size_t i = 0; i < group->input_count; ++i)
    written[i] = bench_is_written(choice, group, i);
  return rabbet_cold_weights_initialize(measure->build, group, written,
                                        (void**)measure->kernel.call.inputs,
                                        &measure->cold);
}

rabbet_status_t rabbet_bench_measure(rabbet_build_t* build,
                                     const rabbet_unit_t* unit,
                                     const rabbet_choice_t* choice,
                                     double best_us,
                                     rabbet_timing_t* out_timing) {
  *out_timing = (rabbet_timing_t){.us = -1};
  rabbet_group_t group;
  RABBET_RETURN_IF_ERROR(rabbet_unit_instantiate(build, unit, choice, &group));
  bench_measure_t measure = {.build = build, .group = &group};
  const int32_t* aliased = choice->candidate.aliased;
  const bool is_conversion = unit->node_count == 0;
  for (size_t i = 0; aliased && i < group.output_count; ++i)
    if (aliased[i] >= 0) measure.aliased = aliased;
  rabbet_status_t status =
      rabbet_bench_prepare(build, unit, choice, &group, &measure.kernel);
  if (rabbet_status_code(status) == RABBET_STATUS_UNSUPPORTED) {
    rabbet_log(build->logger, RABBET_SEVERITY_VERBOSE, "%s, %s: %s", unit->name,
               choice->candidate.tactic_name, rabbet_status_message(status));
    rabbet_status_ignore(status);
    return rabbet_ok();
  }
  uint64_t limit =
      (uint64_t)build->config->options[RABBET_BUILDER_OPTION_WORKSPACE_LIMIT];
  out_timing->workspace = measure.kernel.workspace;
  if (rabbet_is_ok(status) && measure.kernel.workspace <= limit) {
    status = bench_bind(build, unit, choice, &group, &measure.kernel);
    if (rabbet_is_ok(status)) status = measure_cold(&measure, choice);
    if (rabbet_is_ok(status))
      status = measure_all(&measure, best_us, is_conversion, out_timing);
  }
  rabbet_bench_unprepare(&measure.kernel);
  if (rabbet_bench_forgives(build, &status, RABBET_STARVED_KERNELS, unit->name))
    *out_timing = (rabbet_timing_t){.us = -1, .is_starved = true};
  rabbet_bench_reset(build->bench);
  return RABBET_ANNOTATE(status, "timing '%s' with %s", unit->name,
                         choice->candidate.tactic_name);
}

static rabbet_status_t bench_enqueue(rabbet_build_t* build,
                                     const rabbet_bench_kernel_t* kernel) {
  rabbet_device_t* device = build->device;
  void* token = NULL;
  if (device->vtable->begin_run)
    RABBET_RETURN_IF_ERROR(
        device->vtable->begin_run(device, build->threads, &token));
  rabbet_status_t status = kernel->kernel_class->enqueue(
      kernel->kernel, kernel->state, &kernel->call);
  status =
      rabbet_status_join(status, device->vtable->synchronize(device, NULL));
  if (device->vtable->end_run) device->vtable->end_run(device, token);
  return status;
}

rabbet_status_t rabbet_bench_run_once(rabbet_build_t* build,
                                      const rabbet_unit_t* unit,
                                      const rabbet_choice_t* choice) {
  rabbet_group_t group;
  rabbet_bench_kernel_t kernel = {0};
  RABBET_RETURN_IF_ERROR(rabbet_progress_check(build));
  RABBET_RETURN_IF_ERROR(rabbet_unit_instantiate(build, unit, choice, &group));
  rabbet_status_t status =
      rabbet_bench_prepare(build, unit, choice, &group, &kernel);
  if (rabbet_is_ok(status))
    status = bench_bind(build, unit, choice, &group, &kernel);
  if (rabbet_is_ok(status)) status = bench_enqueue(build, &kernel);
  rabbet_bench_unprepare(&kernel);
  rabbet_bench_forgives(build, &status, RABBET_STARVED_TRIALS, unit->name);
  rabbet_bench_reset(build->bench);
  rabbet_constant_trim(build);
  return RABBET_ANNOTATE(status, "running '%s' once before the plan is written",
                         unit->name);
}
