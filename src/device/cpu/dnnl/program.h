// Kernels by oneDNN. `prepare` makes a short list of steps (conversions,
// packing, primitives), so that `enqueue` is the same for all families. A
// family defines `propose` and `compile`.
#ifndef RABBET_SRC_DEVICE_CPU_DNNL_PROGRAM_H_
#define RABBET_SRC_DEVICE_CPU_DNNL_PROGRAM_H_

#include "base/vec.h"
#include "device/cpu/cpu.h"

// A constant in a primitive's layout: made once for a kernel, and
// reference-counted by the states that use it.
typedef struct rabbet_dnnl_packed_t rabbet_dnnl_packed_t;

typedef struct rabbet_dnnl_kernel_t {
  rabbet_kernel_t base;
  rabbet_device_t* device;
  const rabbet_group_t* group;
  int32_t tactic;
  rabbet_allocator_t allocator;
  pthread_mutex_t mutex;  // guards `packed`
  rabbet_dnnl_packed_t* packed;
} rabbet_dnnl_kernel_t;

// Where a step finds an argument.
typedef struct rabbet_dnnl_ref_t {
  enum {
    RABBET_DNNL_REF_NONE,
    RABBET_DNNL_REF_INPUT,    // boundary input `index` from `offset` on
    RABBET_DNNL_REF_OUTPUT,   // boundary output `index`
    RABBET_DNNL_REF_SCRATCH,  // workspace at `offset`
    RABBET_DNNL_REF_FIXED,    // `pointer`
  } place;
  int32_t index;
  size_t offset;
  void* pointer;
} rabbet_dnnl_ref_t;

typedef struct rabbet_dnnl_binding_t {
  int arg;  // RABBET_DNNL_SRC, ...
  rabbet_dnnl_ref_t ref;
} rabbet_dnnl_binding_t;

// The condition of a step: always, or only if two addresses are equal or
// different.
typedef struct rabbet_dnnl_when_t {
  enum { RABBET_DNNL_ALWAYS, RABBET_DNNL_IF_SAME, RABBET_DNNL_IF_DIFFERENT } is;
  rabbet_dnnl_ref_t a, b;
} rabbet_dnnl_when_t;

typedef struct rabbet_dnnl_step_t {
  rabbet_dnnl_when_t when;
  // A primitive with its arguments ...
  rabbet_dnnl_primitive_t* primitive;
  rabbet_dnnl_binding_t* bindings;
  int binding_count;
  // ... or, without one, elements copied or converted.
  rabbet_dnnl_ref_t source, target;
  rabbet_dtype_t from, to;
  int64_t count;
} rabbet_dnnl_step_t;

typedef struct rabbet_dnnl_program_t {
  rabbet_dnnl_kernel_t* kernel;
  const rabbet_kernel_shapes_t* shapes;  // valid only during `compile`
  RABBET_VEC(rabbet_dnnl_step_t) steps;
  RABBET_VEC(rabbet_dnnl_packed_t*) packed;
  size_t scratch;     // workspace for the whole program, in bytes
  size_t scratchpad;  // the most workspace of a single step, in bytes
  // Computes the group if oneDNN does not support these shapes, or NULL. It
  // runs after the first `reference_steps` steps, which make its inputs LINEAR.
  rabbet_kernel_t* reference;
  rabbet_kernel_state_t* reference_state;
  rabbet_group_t reference_group;     // the kernel's group, all LINEAR
  rabbet_dnnl_ref_t* reference_refs;  // boundary inputs, then outputs
  void** reference_pointers;          // the same in a run
  size_t reference_steps;             // number of steps before the reference
} rabbet_dnnl_program_t;

// ---- For compile -----------------------------------------------------------

// The type in which oneDNN computes tensors of a floating type on this
// processor: FLOAT with conversions around it, or BF16.
rabbet_dtype_t rabbet_dnnl_compute_type(rabbet_dtype_t dtype);
static inline const rabbet_dims_t* rabbet_dnnl_dims(
    const rabbet_dnnl_program_t* program, int32_t value) {
  return &program->shapes->dims[value];
}
static inline const rabbet_group_value_t* rabbet_dnnl_value(
    const rabbet_dnnl_program_t* program, int32_t value) {
  return &program->kernel->group->values[value];
}

rabbet_dnnl_ref_t rabbet_dnnl_scratch(rabbet_dnnl_program_t* program,
                                      size_t bytes);
// A boundary input's elements as `dtype`: in their own memory, or a converted
// copy (for a constant made once, otherwise by a step).
rabbet_status_t rabbet_dnnl_input(rabbet_dnnl_program_t* program, int32_t value,
                                  rabbet_dtype_t dtype,
                                  rabbet_dnnl_ref_t* out_ref);
// The same in the layout, reordered if the value has another format.
rabbet_status_t rabbet_dnnl_input_as(rabbet_dnnl_program_t* program,
                                     int32_t value,
                                     const rabbet_dnnl_layout_t* layout,
                                     rabbet_dnnl_ref_t* out_ref);
// A constant's elements as FLOAT, element i times factors[i % count]; made once
// per kernel, so a kernel must always pass the same factors.
rabbet_status_t rabbet_dnnl_scaled_input(rabbet_dnnl_program_t* program,
                                         int32_t value, const float* factors,
                                         int64_t count,
                                         rabbet_dnnl_ref_t* out_ref);
// The memory to write an output's elements to as `dtype`; end_output converts
// them to the output's own type if that differs.
rabbet_status_t rabbet_dnnl_begin_output(rabbet_dnnl_program_t* program,
                                         int32_t value, rabbet_dtype_t dtype,
                                         rabbet_dnnl_ref_t* out_ref);
rabbet_status_t rabbet_dnnl_end_output(rabbet_dnnl_program_t* program,
                                       int32_t value, rabbet_dtype_t dtype,
                                       const rabbet_dnnl_ref_t* ref);
// A value in the layout that the primitive needs for its argument: packed once
// if it is a constant, otherwise by a step. `layout` describes the value's
// memory, with type layout->dtype and from layout->offset on.
rabbet_status_t rabbet_dnnl_weights(rabbet_dnnl_program_t* program,
                                    int32_t value,
                                    const rabbet_dnnl_layout_t* layout,
                                    const rabbet_dnnl_primitive_t* primitive,
                                    int arg, rabbet_dnnl_ref_t* out_ref);
// The primitive of that number for these shapes, or, if it does not exist for
// them (dynamic shapes), the library's first choice.
rabbet_status_t rabbet_dnnl_make(rabbet_dnnl_program_t* program,
                                 const rabbet_dnnl_spec_t* spec,
                                 int32_t implementation,
                                 rabbet_dnnl_primitive_t** out_primitive);
// Appends a step. Takes ownership of the primitive, on failure too.
rabbet_status_t rabbet_dnnl_run(rabbet_dnnl_program_t* program,
                                rabbet_dnnl_when_t when,
                                rabbet_dnnl_primitive_t* take_primitive,
                                const rabbet_dnnl_binding_t* bindings,
                                int binding_count);
// Appends a step that converts (or copies) `count` elements.
rabbet_status_t rabbet_dnnl_move(rabbet_dnnl_program_t* program,
                                 rabbet_dnnl_when_t when,
                                 const rabbet_dnnl_ref_t* source,
                                 rabbet_dtype_t from,
                                 const rabbet_dnnl_ref_t* target,
                                 rabbet_dtype_t to, int64_t count);
// The elements of a boundary value, with its format's padding.
rabbet_status_t rabbet_dnnl_physical_count(const rabbet_dnnl_program_t* program,
                                           int32_t value, int64_t* out_count);

// Whether one of the group's inputs has no elements.
bool rabbet_dnnl_has_empty_input(const rabbet_dnnl_program_t* program);
// Lets the reference kernels compute the group, with conversions of other
// formats before and after.
rabbet_status_t rabbet_dnnl_by_reference(rabbet_dnnl_program_t* program);

// Whether the first node's inputs but the first (weights, bias) are LINEAR, as
// layouts of weights assume.
bool rabbet_dnnl_takes_weights(const rabbet_group_t* group);

// ---- Packed constants (packed_constants.c) ---------------------------------

// Bytes before the part of a constant.
static inline size_t rabbet_dnnl_layout_offset(
    const rabbet_dnnl_layout_t* layout) {
  return (size_t)layout->offset *
         (size_t)(rabbet_dtype_bits(layout->dtype) / 8);
}
// The constant packed for an argument of the primitive; NULL: a flat copy as
// `dtype`.
rabbet_status_t rabbet_dnnl_packed_get(rabbet_dnnl_program_t* program,
                                       int32_t value, rabbet_dtype_t dtype,
                                       const rabbet_dnnl_layout_t* layout,
                                       const rabbet_dnnl_primitive_t* primitive,
                                       int arg, rabbet_dnnl_ref_t* out_ref);
// Releases one use; the last one frees the memory.
void rabbet_dnnl_packed_release(rabbet_dnnl_kernel_t* kernel,
                                rabbet_dnnl_packed_t* packed);
void rabbet_dnnl_packed_clear(rabbet_dnnl_kernel_t* kernel);

// ---- For the class tables --------------------------------------------------

typedef rabbet_status_t (*rabbet_dnnl_compile_fn_t)(
    rabbet_dnnl_program_t* program);

rabbet_status_t rabbet_dnnl_kernel_create(
    const rabbet_kernel_spec_t* spec, const rabbet_kernel_class_t* kernel_class,
    rabbet_kernel_t** out_kernel);
void rabbet_dnnl_kernel_destroy(rabbet_kernel_t* kernel);
rabbet_status_t rabbet_dnnl_kernel_prepare(rabbet_kernel_t* kernel,
                                           const rabbet_kernel_shapes_t* shapes,
                                           rabbet_dnnl_compile_fn_t compile,
                                           rabbet_kernel_state_t** out_state,
                                           size_t* out_workspace);
void rabbet_dnnl_destroy_state(rabbet_kernel_t* kernel,
                               rabbet_kernel_state_t* state);
rabbet_status_t rabbet_dnnl_enqueue(rabbet_kernel_t* kernel,
                                    rabbet_kernel_state_t* state,
                                    const rabbet_kernel_call_t* call);

// Defines the class rabbet_<id> from the functions id_propose, id_takes
// and id_compile.
#define RABBET_DNNL_CLASS(id, class_name, class_version)                       \
  static rabbet_status_t id##_create(const rabbet_kernel_spec_t* spec,         \
                                     rabbet_kernel_t** out_kernel) {           \
    return rabbet_dnnl_kernel_create(spec, &rabbet_##id, out_kernel);          \
  }                                                                            \
  static rabbet_status_t id##_prepare(                                         \
      rabbet_kernel_t* kernel, const rabbet_kernel_shapes_t* shapes,           \
      rabbet_kernel_state_t** out_state, size_t* out_workspace) {              \
    return rabbet_dnnl_kernel_prepare(kernel, shapes, id##_compile, out_state, \
                                      out_workspace);                          \
  }                                                                            \
  const rabbet_kernel_class_t rabbet_##id = {                                  \
      .struct_size = sizeof(rabbet_kernel_class_t),                            \
      .name = class_name,                                                      \
      .version = class_version,                                                \
      .propose = id##_propose,                                                 \
      .create = id##_create,                                                   \
      .destroy = rabbet_dnnl_kernel_destroy,                                   \
      .prepare = id##_prepare,                                                 \
      .destroy_state = rabbet_dnnl_destroy_state,                              \
      .enqueue = rabbet_dnnl_enqueue,                                          \
      .takes = id##_takes,                                                     \
      .start_us = rabbet_dnnl_start_us,                                        \
  }

#endif  // RABBET_SRC_DEVICE_CPU_DNNL_PROGRAM_H_
