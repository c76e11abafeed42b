// Constants in other types than the network gave them.

#include "builder/unit.h"
#include "core/view.h"

static void constant_fill(const rabbet_ir_value_t* value, rabbet_dtype_t dtype,
                          int64_t count, void* data) {
  bool is_float = rabbet_dtype_is_float(value->dtype);
  for (int64_t i = 0; i < count; ++i) {
    if (is_float)
      rabbet_store_double(dtype, data, i,
                          rabbet_load_double(value->dtype, value->constant, i));
    else
      rabbet_store_int64(dtype, data, i,
                         rabbet_load_int64(value->dtype, value->constant, i));
  }
}

rabbet_status_t rabbet_constant_convert(rabbet_build_t* build,
                                        const rabbet_ir_value_t* value,
                                        rabbet_dtype_t dtype,
                                        const void** out_data,
                                        size_t* out_bytes) {
  rabbet_dims_t dims = rabbet_ir_dims(&build->ir, value);
  int64_t count = 0;
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(&dims, &count));
  RABBET_RETURN_IF_ERROR(
      rabbet_tensor_bytes(dtype, RABBET_FORMAT_LINEAR, &dims, out_bytes));
  *out_data = value->constant;
  if (dtype == value->dtype) return rabbet_ok();
  void** memo = &build->constants[value->id][dtype];
  if (!*memo) {
    void* data = NULL;
    RABBET_RETURN_IF_ERROR(
        rabbet_arena_allocate(&build->arena, *out_bytes + 1, &data));
    constant_fill(value, dtype, count, data);
    *memo = data;
  }
  *out_data = *memo;
  return rabbet_ok();
}
