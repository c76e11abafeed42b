// Constants converted to other types and formats.

#include <assert.h>
#include <string.h>

#include "builder/choose/unit.h"
#include "builder/ir/passes.h"
#include "core/lay_out.h"

// Copies from this size on are freed; smaller ones lie in the arena.
#define CONSTANT_LARGE ((size_t)4 << 10)
// Large copies that are kept, in bytes.
#define CONSTANT_KEPT ((size_t)4 << 20)
#define CONSTANT_ALIGNMENT 64

typedef struct rabbet_constant_copy_t {
  struct rabbet_constant_copy_t* next;
  rabbet_type_format_t type;
  size_t bytes;
  void* data;  // NULL: it was freed
} rabbet_constant_copy_t;

static rabbet_constant_copy_t* constant_find(rabbet_constant_copy_t* copy,
                                             rabbet_type_format_t type) {
  while (copy &&
         (copy->type.dtype != type.dtype || copy->type.format != type.format))
    copy = copy->next;
  return copy;
}

// Shared by the builds of one IR: all lies in the arena of the first.
struct rabbet_constants_t {
  rabbet_arena_t* arena;
  rabbet_allocator_t allocator;
  RABBET_VEC(rabbet_constant_copy_t*) large;
  size_t large_bytes;
  rabbet_constant_copy_t* lists[];  // of each IR value
};

rabbet_status_t rabbet_constants_create(rabbet_build_t* build, size_t count) {
  struct rabbet_constants_t* constants = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate(
      &build->arena, sizeof(*constants) + count * sizeof(constants->lists[0]),
      (void**)&constants));
  constants->arena = &build->arena;
  constants->allocator = build->allocator;
  build->constants = constants;
  return rabbet_ok();
}

static rabbet_status_t constant_allocate(struct rabbet_constants_t* constants,
                                         rabbet_constant_copy_t* copy) {
  if (copy->bytes < CONSTANT_LARGE)
    return rabbet_arena_allocate(constants->arena, copy->bytes + 1,
                                 &copy->data);
  RABBET_RETURN_IF_ERROR(
      RABBET_VEC_RESERVE(constants->allocator, &constants->large, 1));
  RABBET_RETURN_IF_ERROR(rabbet_allocate_aligned(
      constants->allocator, copy->bytes, CONSTANT_ALIGNMENT, &copy->data));
  memset(copy->data, 0, copy->bytes);
  constants->large.data[constants->large.count++] = copy;
  constants->large_bytes += copy->bytes;
  return rabbet_ok();
}

rabbet_status_t rabbet_constant_convert(rabbet_build_t* build,
                                        rabbet_ir_value_t* value,
                                        rabbet_type_format_t type,
                                        const void** out_data,
                                        size_t* out_bytes) {
  assert(value->constant);
  rabbet_dims_t dims = rabbet_ir_dims(&build->ir, value);
  RABBET_RETURN_IF_ERROR(
      rabbet_tensor_bytes(type.dtype, type.format, &dims, out_bytes));
  RABBET_RETURN_IF_ERROR(rabbet_fold_deferred(build, value));
  *out_data = value->constant;
  if (type.dtype == value->dtype && type.format == RABBET_FORMAT_LINEAR)
    return rabbet_ok();
  struct rabbet_constants_t* constants = build->constants;
  rabbet_constant_copy_t** list = &constants->lists[value->id];
  rabbet_constant_copy_t* copy = constant_find(*list, type);
  if (!copy) {
    RABBET_RETURN_IF_ERROR(
        rabbet_arena_allocate(constants->arena, sizeof(*copy), (void**)&copy));
    copy->type = type;
    copy->bytes = *out_bytes;
    copy->next = *list;
    *list = copy;
  }
  if (!copy->data) {
    RABBET_RETURN_IF_ERROR(constant_allocate(constants, copy));
    rabbet_phase_t before =
        rabbet_phases_enter(build->phases, RABBET_PHASE_CONSTANTS);
    rabbet_lay_out(value->dtype, value->constant, &dims, type.dtype,
                   type.format, copy->data);
    rabbet_phases_enter(build->phases, before);
  }
  *out_data = copy->data;
  return rabbet_ok();
}

size_t rabbet_constant_bytes(const rabbet_build_t* build) {
  return build->constants->large_bytes;
}

void rabbet_constant_trim(rabbet_build_t* build) {
  if (build->constants->large_bytes > CONSTANT_KEPT)
    rabbet_constants_deinitialize(build);
}

void rabbet_constants_deinitialize(rabbet_build_t* build) {
  struct rabbet_constants_t* constants = build->constants;
  if (!constants) return;
  for (size_t i = 0; i < constants->large.count; ++i) {
    rabbet_free_aligned(constants->allocator, constants->large.data[i]->data,
                        CONSTANT_ALIGNMENT);
    constants->large.data[i]->data = NULL;
  }
  rabbet_vec_free(constants->allocator, &constants->large);
  constants->large_bytes = 0;
}
