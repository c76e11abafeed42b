// Constants in other types and formats than the network gave them.

#include "builder/unit.h"
#include "core/view.h"

typedef struct rabbet_constant_copy_t {
  struct rabbet_constant_copy_t* next;
  rabbet_type_format_t type;
  void* data;
} rabbet_constant_copy_t;

// Where elements go: (outer, channel, inner) of an array in LINEAR.
typedef struct constant_layout_t {
  int64_t channels, inner;
  int64_t block, padded;
  bool channels_last;
} constant_layout_t;

static constant_layout_t constant_layout(rabbet_format_t format,
                                         const rabbet_dims_t* dims) {
  const rabbet_format_info_t* info = rabbet_format_info(format);
  constant_layout_t layout = {.channels = 1, .inner = 1, .block = 1};
  layout.channels_last = info->channels_last;
  if (info->block > 1 || info->channels_last) {
    layout.channels = dims->d[1];
    layout.block = info->block;
    for (int32_t i = 2; i < dims->rank; ++i)
      layout.inner *= dims->d[i];
  }
  layout.padded =
      (layout.channels + layout.block - 1) / layout.block * layout.block;
  return layout;
}

static int64_t constant_place(const constant_layout_t* layout, int64_t index) {
  int64_t inner = index % layout->inner;
  int64_t channel = index / layout->inner % layout->channels;
  int64_t outer = index / layout->inner / layout->channels;
  if (layout->channels_last)
    return (outer * layout->inner + inner) * layout->padded + channel;
  return (outer * layout->padded + channel / layout->block * layout->block) *
             layout->inner +
         inner * layout->block + channel % layout->block;
}

static void constant_fill(const rabbet_ir_value_t* value,
                          const constant_layout_t* layout, rabbet_dtype_t dtype,
                          int64_t count, void* data) {
  bool is_float = rabbet_dtype_is_float(value->dtype);
  for (int64_t i = 0; i < count; ++i) {
    int64_t at = constant_place(layout, i);
    if (is_float)
      rabbet_store_double(dtype, data, at,
                          rabbet_load_double(value->dtype, value->constant, i));
    else
      rabbet_store_int64(dtype, data, at,
                         rabbet_load_int64(value->dtype, value->constant, i));
  }
}

static void* constant_find(const rabbet_constant_copy_t* copy,
                           rabbet_type_format_t type) {
  while (copy &&
         (copy->type.dtype != type.dtype || copy->type.format != type.format))
    copy = copy->next;
  return copy ? copy->data : NULL;
}

rabbet_status_t rabbet_constant_convert(rabbet_build_t* build,
                                        const rabbet_ir_value_t* value,
                                        rabbet_type_format_t type,
                                        const void** out_data,
                                        size_t* out_bytes) {
  rabbet_dims_t dims = rabbet_ir_dims(&build->ir, value);
  int64_t count = 0;
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(&dims, &count));
  RABBET_RETURN_IF_ERROR(
      rabbet_tensor_bytes(type.dtype, type.format, &dims, out_bytes));
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
  constant_layout_t layout = constant_layout(type.format, &dims);
  constant_fill(value, &layout, type.dtype, count, copy->data);
  copy->type = type;
  copy->next = *list;
  *list = copy;
  *out_data = copy->data;
  return rabbet_ok();
}
