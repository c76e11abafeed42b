#include <string.h>

#include "onnx/import.h"

struct rabbet_onnx_errors_t {
  rabbet_allocator_t allocator;
  RABBET_VEC(rabbet_onnx_error_t) list;
  rabbet_arena_t arena;  // the errors' texts
  size_t node_count;
};

rabbet_status_t rabbet_onnx_errors_create(rabbet_allocator_t allocator,
                                          rabbet_onnx_errors_t** out_errors) {
  *out_errors = NULL;
  rabbet_onnx_errors_t* errors;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(allocator, sizeof(*errors), (void**)&errors));
  errors->allocator = allocator;
  rabbet_arena_initialize(allocator, &errors->arena);
  *out_errors = errors;
  return rabbet_ok();
}

void rabbet_onnx_errors_destroy(rabbet_onnx_errors_t* errors) {
  if (!errors) return;
  rabbet_onnx_errors_clear(errors);
  rabbet_free(errors->allocator, errors);
}

void rabbet_onnx_errors_clear(rabbet_onnx_errors_t* errors) {
  rabbet_vec_free(errors->allocator, &errors->list);
  rabbet_arena_deinitialize(&errors->arena);
  rabbet_arena_initialize(errors->allocator, &errors->arena);
  errors->node_count = 0;
}

size_t rabbet_onnx_errors_node_count(const rabbet_onnx_errors_t* errors) {
  return errors->node_count;
}

void rabbet_onnx_errors_set_node_count(rabbet_onnx_errors_t* errors,
                                       size_t count) {
  if (errors) errors->node_count = count;
}

size_t rabbet_onnx_errors_count(const rabbet_onnx_errors_t* errors) {
  return errors->list.count;
}

const rabbet_onnx_error_t* rabbet_onnx_errors_get(
    const rabbet_onnx_errors_t* errors, size_t index) {
  return index < errors->list.count ? &errors->list.data[index] : NULL;
}

rabbet_status_t rabbet_onnx_errors_add(rabbet_onnx_errors_t* errors,
                                       rabbet_status_t status, int index,
                                       int outer, const Onnx__NodeProto* node) {
  if (!errors) return rabbet_ok();
  rabbet_onnx_error_t error = {
      .code = rabbet_status_code(status), .node = index, .outer_node = outer};
  const char* name = node && node->name ? node->name : "";
  const char* op_type = node && node->op_type ? node->op_type : "";
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_strdup(&errors->arena, name, &error.node_name));
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_strdup(&errors->arena, op_type, &error.op_type));
  RABBET_RETURN_IF_ERROR(rabbet_arena_strdup(
      &errors->arena, rabbet_status_message(status), &error.message));
  return RABBET_VEC_PUSH(errors->allocator, &errors->list, error);
}
