// Constants converted to other types and formats.

#include <assert.h>

#include "builder/choose/unit.h"
#include "builder/ir/passes.h"
#include "core/lay_out.h"

typedef struct rabbet_constant_copy_t {
  struct rabbet_constant_copy_t* next;
  rabbet_type_format_t type;
  void* data;
} rabbet_constant_copy_t;

static void* constant_find(const rabbet_constant_copy_t* copy,
                           rabbet_type_format_t type) {
  while (copy &&
         (copy->type.dtype != type.dtype || copy->type.format != type.format))
    copy = copy->next;
  return copy ? copy->data : NULL;
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
  rabbet_constant_copy_t** list = &build->constants[value->id];
  *out_data = constant_find(*list, type);
  if (*out_data) return rabbet_ok();
  rabbet_constant_copy_t* copy = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate(&build->arena, sizeof(*copy), (void**)&copy));
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate(&build->arena, *out_bytes + 1, &copy->data));
  rabbet_lay_out(value->dtype, value->constant, &dims, type.dtype, type.format,
                 copy->data);
  copy->type = type;
  copy->next = *list;
  *list = copy;
  *out_data = copy->data;
  return rabbet_ok();
}
