#include "device/cpu/dnnl/program.h"

#include <string.h>

#include "base/math.h"
#include "device/cpu/parallel.h"
#include "device/cpu/vectors/convert.h"
#include "device/reference_kernel.h"

// ---- Compiling -------------------------------------------------------------

rabbet_dtype_t rabbet_dnnl_compute_type(rabbet_dtype_t dtype) {
  return dtype == RABBET_DTYPE_BF16 &&
                 rabbet_cpu_isa() >= RABBET_CPU_AVX512_BF16
             ? RABBET_DTYPE_BF16
             : RABBET_DTYPE_FLOAT;
}

rabbet_status_t rabbet_dnnl_physical_count(const rabbet_dnnl_program_t* program,
                                           int32_t value, int64_t* out_count) {
  rabbet_dims_t physical;
  RABBET_RETURN_IF_ERROR(
      rabbet_format_physical_dims(rabbet_dnnl_value(program, value)->format,
                                  rabbet_dnnl_dims(program, value), &physical));
  return rabbet_dims_count(&physical, out_count);
}

rabbet_dnnl_ref_t rabbet_dnnl_scratch(rabbet_dnnl_program_t* program,
                                      size_t bytes) {
  rabbet_dnnl_ref_t ref = {.place = RABBET_DNNL_REF_SCRATCH,
                           .offset = program->scratch};
  program->scratch += rabbet_align_up(bytes, 64);
  return ref;
}

static const rabbet_dnnl_when_t always = {.is = RABBET_DNNL_ALWAYS};

rabbet_status_t rabbet_dnnl_move(rabbet_dnnl_program_t* program,
                                 rabbet_dnnl_when_t when,
                                 const rabbet_dnnl_ref_t* source,
                                 rabbet_dtype_t from,
                                 const rabbet_dnnl_ref_t* target,
                                 rabbet_dtype_t to, int64_t count) {
  if (from != to && !rabbet_cpu_can_convert(from, to))
    return RABBET_STATUS(RABBET_STATUS_INTERNAL, "no conversion from %s to %s",
                         rabbet_dtype_name(from), rabbet_dtype_name(to));
  const rabbet_dnnl_step_t step = {
      .when = when,
      .source = *source,
      .from = from,
      .target = *target,
      .to = to,
      .count = count,
  };
  return RABBET_VEC_PUSH(program->kernel->allocator, &program->steps, step);
}

rabbet_status_t rabbet_dnnl_input(rabbet_dnnl_program_t* program, int32_t value,
                                  rabbet_dtype_t dtype,
                                  rabbet_dnnl_ref_t* out_ref) {
  const rabbet_group_value_t* info = rabbet_dnnl_value(program, value);
  const rabbet_dnnl_ref_t input = {
      .place = RABBET_DNNL_REF_INPUT,
      .index = rabbet_group_input_of(program->kernel->group, value)};
  *out_ref = input;
  if (input.index < 0)
    return RABBET_STATUS(RABBET_STATUS_INTERNAL,
                         "value %d is no input of its group", (int)value);
  if (info->dtype == dtype) return rabbet_ok();
  if (info->constant)
    return rabbet_dnnl_packed_get(program, value, dtype, NULL, NULL, 0,
                                  out_ref);
  int64_t count = 0;
  RABBET_RETURN_IF_ERROR(rabbet_dnnl_physical_count(program, value, &count));
  *out_ref = rabbet_dnnl_scratch(
      program, (size_t)count * (size_t)(rabbet_dtype_bits(dtype) / 8));
  return rabbet_dnnl_move(program, always, &input, info->dtype, out_ref, dtype,
                          count);
}

rabbet_status_t rabbet_dnnl_begin_output(rabbet_dnnl_program_t* program,
                                         int32_t value, rabbet_dtype_t dtype,
                                         rabbet_dnnl_ref_t* out_ref) {
  const rabbet_group_t* group = program->kernel->group;
  *out_ref = (rabbet_dnnl_ref_t){.place = RABBET_DNNL_REF_OUTPUT};
  while ((size_t)out_ref->index < group->output_count &&
         group->outputs[out_ref->index] != value) {
    ++out_ref->index;
  }
  if ((size_t)out_ref->index == group->output_count)
    return RABBET_STATUS(RABBET_STATUS_INTERNAL,
                         "value %d is no output of its group", (int)value);
  if (group->values[value].dtype == dtype) return rabbet_ok();
  int64_t count = 0;
  RABBET_RETURN_IF_ERROR(rabbet_dnnl_physical_count(program, value, &count));
  *out_ref = rabbet_dnnl_scratch(
      program, (size_t)count * (size_t)(rabbet_dtype_bits(dtype) / 8));
  return rabbet_ok();
}

rabbet_status_t rabbet_dnnl_end_output(rabbet_dnnl_program_t* program,
                                       int32_t value, rabbet_dtype_t dtype,
                                       const rabbet_dnnl_ref_t* ref) {
  const rabbet_group_value_t* info = rabbet_dnnl_value(program, value);
  if (info->dtype == dtype) return rabbet_ok();
  rabbet_dnnl_ref_t output = {0};
  int64_t count = 0;
  RABBET_RETURN_IF_ERROR(
      rabbet_dnnl_begin_output(program, value, info->dtype, &output));
  RABBET_RETURN_IF_ERROR(rabbet_dnnl_physical_count(program, value, &count));
  return rabbet_dnnl_move(program, always, ref, dtype, &output, info->dtype,
                          count);
}

rabbet_status_t rabbet_dnnl_weights(rabbet_dnnl_program_t* program,
                                    int32_t value,
                                    const rabbet_dnnl_layout_t* layout,
                                    const rabbet_dnnl_primitive_t* primitive,
                                    int arg, rabbet_dnnl_ref_t* out_ref) {
  if (layout->offset == 0 &&
      rabbet_dnnl_primitive_takes(primitive, arg, layout))
    return rabbet_dnnl_input(program, value, layout->dtype, out_ref);
  if (rabbet_dnnl_value(program, value)->constant)
    return rabbet_dnnl_packed_get(program, value, layout->dtype, layout,
                                  primitive, arg, out_ref);
  rabbet_dnnl_ref_t plain = {0};
  RABBET_RETURN_IF_ERROR(
      rabbet_dnnl_input(program, value, layout->dtype, &plain));
  plain.offset += rabbet_dnnl_layout_offset(layout);
  *out_ref =
      rabbet_dnnl_scratch(program, rabbet_dnnl_primitive_bytes(primitive, arg));
  rabbet_dnnl_primitive_t* pack = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_dnnl_pack_create(
      rabbet_cpu_dnnl(program->kernel->device), layout, primitive, arg,
      program->shapes->threads, program->kernel->allocator, &pack));
  const rabbet_dnnl_binding_t bindings[] = {
      {RABBET_DNNL_SRC, plain},
      {RABBET_DNNL_DST, *out_ref},
  };
  return rabbet_dnnl_run(program, always, pack, bindings, 2);
}

rabbet_status_t rabbet_dnnl_make(rabbet_dnnl_program_t* program,
                                 const rabbet_dnnl_spec_t* spec,
                                 int32_t implementation,
                                 rabbet_dnnl_primitive_t** out_primitive) {
  rabbet_dnnl_t* dnnl = rabbet_cpu_dnnl(program->kernel->device);
  rabbet_dnnl_spec_t direct = *spec;
  direct.kind = RABBET_DNNL_CONVOLUTION;
  const struct {
    const rabbet_dnnl_spec_t* spec;
    int32_t implementation;
  } choices[] = {{spec, implementation}, {spec, 0}, {&direct, 0}};
  size_t count = spec->kind == RABBET_DNNL_CONVOLUTION_WINOGRAD ? 3 : 2;
  rabbet_status_t status = rabbet_ok();
  for (size_t i = 0; i < count; ++i) {
    status = rabbet_dnnl_primitive_create(
        dnnl, choices[i].spec, choices[i].implementation,
        program->shapes->threads, program->kernel->allocator, out_primitive);
    rabbet_status_code_t code = rabbet_status_code(status);
    bool absent =
        code == RABBET_STATUS_NOT_FOUND || code == RABBET_STATUS_UNSUPPORTED;
    if (!absent || i + 1 == count) break;
    rabbet_status_ignore(status);
  }
  return status;
}

rabbet_status_t rabbet_dnnl_run(rabbet_dnnl_program_t* program,
                                rabbet_dnnl_when_t when,
                                rabbet_dnnl_primitive_t* take_primitive,
                                const rabbet_dnnl_binding_t* bindings,
                                int binding_count) {
  rabbet_allocator_t allocator = program->kernel->allocator;
  rabbet_dnnl_step_t step = {
      .when = when,
      .primitive = take_primitive,
      .binding_count = binding_count,
  };
  size_t bytes = sizeof(*bindings) * (size_t)binding_count;
  rabbet_status_t status =
      rabbet_allocate(allocator, bytes, (void**)&step.bindings);
  if (rabbet_is_ok(status)) {
    memcpy(step.bindings, bindings, bytes);
    status = RABBET_VEC_PUSH(allocator, &program->steps, step);
  }
  if (!rabbet_is_ok(status)) {
    rabbet_free(allocator, step.bindings);
    rabbet_dnnl_primitive_destroy(take_primitive);
    return status;
  }
  size_t scratchpad =
      rabbet_dnnl_primitive_bytes(take_primitive, RABBET_DNNL_SCRATCHPAD);
  if (scratchpad > program->scratchpad) program->scratchpad = scratchpad;
  return rabbet_ok();
}

// ---- Shapes that are not for oneDNN ----------------------------------------

static bool is_empty(const rabbet_dims_t* dims) {
  for (int32_t i = 0; i < dims->rank; ++i) {
    if (dims->d[i] == 0) return true;
  }
  return false;
}

bool rabbet_dnnl_has_empty_input(const rabbet_dnnl_program_t* program) {
  const rabbet_group_t* group = program->kernel->group;
  for (size_t i = 0; i < group->input_count; ++i) {
    if (is_empty(&program->shapes->dims[group->inputs[i]])) return true;
  }
  return false;
}

rabbet_status_t rabbet_dnnl_input_as(rabbet_dnnl_program_t* program,
                                     int32_t value,
                                     const rabbet_dnnl_layout_t* layout,
                                     rabbet_dnnl_ref_t* out_ref) {
  const rabbet_dims_t* dims = rabbet_dnnl_dims(program, value);
  rabbet_format_t format = rabbet_dnnl_value(program, value)->format;
  RABBET_RETURN_IF_ERROR(
      rabbet_dnnl_input(program, value, layout->dtype, out_ref));
  if (layout->order != RABBET_DNNL_FORMAT || layout->format == format)
    return rabbet_ok();
  rabbet_dnnl_binding_t bindings[] = {{RABBET_DNNL_SRC, *out_ref},
                                      {.arg = RABBET_DNNL_DST}};
  const rabbet_dnnl_spec_t spec = {
      .kind = RABBET_DNNL_REORDER,
      .src = rabbet_dnnl_layout(layout->dtype, format, dims),
      .dst = *layout,
  };
  size_t bytes = 0;
  RABBET_RETURN_IF_ERROR(
      rabbet_tensor_bytes(layout->dtype, layout->format, dims, &bytes));
  bindings[1].ref = *out_ref = rabbet_dnnl_scratch(program, bytes);
  rabbet_dnnl_primitive_t* primitive = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_dnnl_make(program, &spec, 0, &primitive));
  return rabbet_dnnl_run(program, always, primitive, bindings, 2);
}

bool rabbet_dnnl_takes_weights(const rabbet_group_t* group) {
  const rabbet_group_node_t* node = &group->nodes[0];
  for (size_t i = 1; i < node->input_count; ++i)
    if (node->inputs[i] >= 0 &&
        group->values[node->inputs[i]].format != RABBET_FORMAT_LINEAR)
      return false;
  return true;
}

// ---- By reference ----------------------------------------------------------

// A type of oneDNN of the same size, for moving elements.
static rabbet_dtype_t moved_as(rabbet_dtype_t dtype) {
  int bits = rabbet_dtype_bits(dtype);
  return bits == 8    ? RABBET_DTYPE_UINT8
         : bits == 16 ? RABBET_DTYPE_BF16
                      : RABBET_DTYPE_INT32;
}

// A step between a value's memory (`own`) and a LINEAR copy of it.
static rabbet_status_t linear_copy(rabbet_dnnl_program_t* program,
                                   int32_t value, bool is_input,
                                   rabbet_dnnl_ref_t* ref) {
  const rabbet_group_value_t* info = rabbet_dnnl_value(program, value);
  const rabbet_dims_t* dims = rabbet_dnnl_dims(program, value);
  if (info->format == RABBET_FORMAT_LINEAR || is_empty(dims))
    return rabbet_ok();
  size_t bytes = 0;
  RABBET_RETURN_IF_ERROR(
      rabbet_tensor_bytes(info->dtype, RABBET_FORMAT_LINEAR, dims, &bytes));
  const rabbet_dnnl_ref_t own = *ref;
  *ref = rabbet_dnnl_scratch(program, bytes);
  rabbet_dtype_t dtype = moved_as(info->dtype);
  rabbet_dnnl_layout_t layouts[] = {
      rabbet_dnnl_layout(dtype, info->format, dims),
      rabbet_dnnl_layout(dtype, RABBET_FORMAT_LINEAR, dims)};
  const rabbet_dnnl_spec_t spec = {.kind = RABBET_DNNL_REORDER,
                                   .src = layouts[is_input ? 0 : 1],
                                   .dst = layouts[is_input ? 1 : 0]};
  const rabbet_dnnl_binding_t bindings[] = {
      {RABBET_DNNL_SRC, is_input ? own : *ref},
      {RABBET_DNNL_DST, is_input ? *ref : own}};
  rabbet_dnnl_primitive_t* primitive = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_dnnl_make(program, &spec, 0, &primitive));
  return rabbet_dnnl_run(program, always, primitive, bindings, 2);
}

static rabbet_status_t reference_memory(rabbet_dnnl_program_t* program) {
  const rabbet_dnnl_kernel_t* kernel = program->kernel;
  const rabbet_group_t* group = kernel->group;
  size_t count = group->input_count + group->output_count;
  program->reference_group = *group;
  program->reference_group.values = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(kernel->allocator,
                                         count * sizeof(void*),
                                         (void**)&program->reference_pointers));
  RABBET_RETURN_IF_ERROR(rabbet_allocate(kernel->allocator,
                                         count * sizeof(rabbet_dnnl_ref_t),
                                         (void**)&program->reference_refs));
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      kernel->allocator, group->value_count * sizeof(rabbet_group_value_t),
      (void**)&program->reference_group.values));
  for (size_t i = 0; i < group->value_count; ++i) {
    program->reference_group.values[i] = group->values[i];
    program->reference_group.values[i].format = RABBET_FORMAT_LINEAR;
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_dnnl_by_reference(rabbet_dnnl_program_t* program) {
  const rabbet_dnnl_kernel_t* kernel = program->kernel;
  const rabbet_group_t* group = &program->reference_group;
  RABBET_RETURN_IF_ERROR(reference_memory(program));
  const rabbet_kernel_spec_t spec = {
      .device = kernel->device, .group = group, .allocator = kernel->allocator};
  // `takes` is not called, as it demands the types of a strongly typed network:
  // the reference kernels of these operators read numbers of any type.
  RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
      rabbet_reference_kernel_class.create(&spec, &program->reference),
      "oneDNN does not compute these shapes"));
  // The reference's workspace comes first.
  RABBET_RETURN_IF_ERROR(rabbet_reference_kernel_class.prepare(
      program->reference, program->shapes, &program->reference_state,
      &program->scratch));
  program->scratch = rabbet_align_up(program->scratch, 64);
  for (size_t i = 0; i < group->input_count + group->output_count; ++i) {
    bool is_input = i < group->input_count;
    size_t index = is_input ? i : i - group->input_count;
    rabbet_dnnl_ref_t* ref = &program->reference_refs[i];
    *ref = (rabbet_dnnl_ref_t){
        .place = is_input ? RABBET_DNNL_REF_INPUT : RABBET_DNNL_REF_OUTPUT,
        .index = (int)index};
    if (i == group->input_count)
      program->reference_steps = program->steps.count;
    RABBET_RETURN_IF_ERROR(linear_copy(
        program, is_input ? group->inputs[index] : group->outputs[index],
        is_input, ref));
  }
  return rabbet_ok();
}

// ---- Kernels ---------------------------------------------------------------

rabbet_status_t rabbet_dnnl_kernel_create(
    const rabbet_kernel_spec_t* spec, const rabbet_kernel_class_t* kernel_class,
    rabbet_kernel_t** out_kernel) {
  *out_kernel = NULL;
  rabbet_dnnl_kernel_t* kernel = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(spec->allocator, sizeof(*kernel), (void**)&kernel));
  kernel->base.kernel_class = kernel_class;
  kernel->device = spec->device;
  kernel->group = spec->group;
  kernel->tactic = spec->tactic;
  kernel->allocator = spec->allocator;
  pthread_mutex_init(&kernel->mutex, NULL);
  *out_kernel = &kernel->base;
  return rabbet_ok();
}

void rabbet_dnnl_kernel_destroy(rabbet_kernel_t* base) {
  if (!base) return;
  rabbet_dnnl_kernel_t* kernel = (rabbet_dnnl_kernel_t*)base;
  rabbet_dnnl_packed_clear(kernel);
  pthread_mutex_destroy(&kernel->mutex);
  rabbet_free(kernel->allocator, kernel);
}

void rabbet_dnnl_destroy_state(rabbet_kernel_t* base,
                               rabbet_kernel_state_t* state) {
  rabbet_dnnl_kernel_t* kernel = (rabbet_dnnl_kernel_t*)base;
  rabbet_dnnl_program_t* program = (rabbet_dnnl_program_t*)state;
  if (!program) return;
  if (program->reference) {
    rabbet_reference_kernel_class.destroy_state(program->reference,
                                                program->reference_state);
    rabbet_reference_kernel_class.destroy(program->reference);
  }
  rabbet_free(kernel->allocator, program->reference_group.values);
  rabbet_free(kernel->allocator, program->reference_refs);
  rabbet_free(kernel->allocator, program->reference_pointers);
  for (size_t i = 0; i < program->steps.count; ++i) {
    rabbet_dnnl_primitive_destroy(program->steps.data[i].primitive);
    rabbet_free(kernel->allocator, program->steps.data[i].bindings);
  }
  rabbet_vec_free(kernel->allocator, &program->steps);
  for (size_t i = 0; i < program->packed.count; ++i)
    rabbet_dnnl_packed_release(kernel, program->packed.data[i]);
  rabbet_vec_free(kernel->allocator, &program->packed);
  rabbet_free(kernel->allocator, program);
}

// Whether all outputs have elements: oneDNN rejects some empty tensors.
static bool has_work(const rabbet_group_t* group, const rabbet_dims_t* dims) {
  for (size_t i = 0; i < group->output_count; ++i) {
    if (!is_empty(&dims[group->outputs[i]])) return true;
  }
  return false;
}

rabbet_status_t rabbet_dnnl_kernel_prepare(rabbet_kernel_t* base,
                                           const rabbet_kernel_shapes_t* shapes,
                                           rabbet_dnnl_compile_fn_t compile,
                                           rabbet_kernel_state_t** out_state,
                                           size_t* out_workspace) {
  *out_state = NULL;
  *out_workspace = 0;
  rabbet_dnnl_kernel_t* kernel = (rabbet_dnnl_kernel_t*)base;
  rabbet_dnnl_program_t* program = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(kernel->allocator, sizeof(*program), (void**)&program));
  program->kernel = kernel;
  program->shapes = shapes;
  // Packing runs now, with the kernel's number of threads.
  int threads = rabbet_cpu_set_threads(shapes->threads);
  rabbet_status_t status =
      has_work(kernel->group, shapes->dims) ? compile(program) : rabbet_ok();
  rabbet_cpu_restore_threads(threads);
  program->shapes = NULL;
  if (!rabbet_is_ok(status)) {
    rabbet_dnnl_destroy_state(base, (rabbet_kernel_state_t*)program);
    return RABBET_ANNOTATE(status, "%s", base->kernel_class->name);
  }
  *out_state = (rabbet_kernel_state_t*)program;
  *out_workspace = program->scratch + program->scratchpad;
  return rabbet_ok();
}

// ---- Running ---------------------------------------------------------------

static inline void* resolve(const rabbet_dnnl_ref_t* ref,
                            const rabbet_kernel_call_t* call) {
  switch (ref->place) {
    case RABBET_DNNL_REF_INPUT:
      return (char*)call->inputs[ref->index] + ref->offset;
    case RABBET_DNNL_REF_OUTPUT:
      return call->outputs[ref->index];
    case RABBET_DNNL_REF_SCRATCH:
      return (char*)call->workspace + ref->offset;
    case RABBET_DNNL_REF_FIXED:
      return ref->pointer;
    case RABBET_DNNL_REF_NONE:
      break;
  }
  return NULL;
}

static inline bool is_due(const rabbet_dnnl_when_t* when,
                          const rabbet_kernel_call_t* call) {
  if (when->is == RABBET_DNNL_ALWAYS) return true;
  bool same = resolve(&when->a, call) == resolve(&when->b, call);
  return same == (when->is == RABBET_DNNL_IF_SAME);
}

static rabbet_status_t program_step(const rabbet_dnnl_program_t* program,
                                    const rabbet_dnnl_step_t* step,
                                    const rabbet_kernel_call_t* call) {
  if (!is_due(&step->when, call)) return rabbet_ok();
  if (!step->primitive) {
    rabbet_cpu_convert(step->from, resolve(&step->source, call), step->to,
                       resolve(&step->target, call), step->count);
    return rabbet_ok();
  }
  void* pointers[RABBET_DNNL_ARG_COUNT];
  pointers[RABBET_DNNL_SCRATCHPAD] = (char*)call->workspace + program->scratch;
  for (int i = 0; i < step->binding_count; ++i)
    pointers[step->bindings[i].arg] = resolve(&step->bindings[i].ref, call);
  return rabbet_dnnl_primitive_execute(step->primitive, pointers);
}

static rabbet_status_t enqueue_reference(const rabbet_dnnl_program_t* program,
                                         const rabbet_kernel_call_t* call) {
  size_t inputs = program->reference_group.input_count;
  size_t count = inputs + program->reference_group.output_count;
  for (size_t i = 0; i < count; ++i)
    program->reference_pointers[i] = resolve(&program->reference_refs[i], call);
  rabbet_kernel_call_t linear = *call;
  linear.inputs = program->reference_pointers;
  linear.outputs = program->reference_pointers + inputs;
  return rabbet_reference_kernel_class.enqueue(
      program->reference, program->reference_state, &linear);
}

rabbet_status_t rabbet_dnnl_enqueue(rabbet_kernel_t* kernel,
                                    rabbet_kernel_state_t* state,
                                    const rabbet_kernel_call_t* call) {
  (void)kernel;
  const rabbet_dnnl_program_t* program = (const rabbet_dnnl_program_t*)state;
  rabbet_status_t status = rabbet_ok();
  size_t first = program->reference ? program->reference_steps : 0;
  for (size_t i = 0; rabbet_is_ok(status) && i < first; ++i)
    status = program_step(program, &program->steps.data[i], call);
  if (rabbet_is_ok(status) && program->reference)
    status = enqueue_reference(program, call);
  for (size_t i = first; rabbet_is_ok(status) && i < program->steps.count; ++i)
    status = program_step(program, &program->steps.data[i], call);
  return status;
}
