// The layers that stand for a loop's boundary.

#include <stdio.h>
#include <string.h>

#include "builder/unroll/internal.h"
#include "core/view.h"

#define EMIT_INTS(attr_name, values, number)                         \
  {                                                                  \
    .name = (attr_name), .type = RABBET_ATTR_INTS, .data = (values), \
    .count = (size_t)(number)                                        \
  }
#define EMIT_INT(attr_name, value)                          \
  {                                                         \
    .name = (attr_name), .type = RABBET_ATTR_INT,           \
    .data = (const int64_t[]){(int64_t)(value)}, .count = 1 \
  }

static rabbet_status_t emit_layer(rabbet_unroll_t* unroll, const char* op,
                                  const char* name,
                                  rabbet_tensor_t* const* inputs, size_t count,
                                  const rabbet_attr_t* attrs, size_t attr_count,
                                  rabbet_tensor_t** out_tensor) {
  rabbet_layer_t* layer = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_network_add_layer(
      unroll->to, op, name, inputs, count, attrs, attr_count, &layer));
  *out_tensor = layer->outputs[0];
  return rabbet_ok();
}

// The name of a layer that computes a part of another layer.
static rabbet_status_t emit_name(rabbet_unroll_t* unroll, const char* name,
                                 const char* part, const char** out_name) {
  return rabbet_arena_printf(&unroll->arena, out_name, "%s:%s", name, part);
}

static rabbet_status_t emit_number(rabbet_unroll_t* unroll, int64_t number,
                                   rabbet_tensor_t** out_tensor) {
  const rabbet_weights_t weights = {RABBET_DTYPE_INT64, &number, 1};
  const rabbet_dims_t scalar = {.rank = 0};
  return rabbet_network_add_weights(unroll->to, NULL, weights, &scalar, true,
                                    out_tensor);
}

// ---- Slices ----------------------------------------------------------------

// The extent of an axis less a number, where only a run knows the extent.
static rabbet_status_t emit_from_end(rabbet_unroll_t* unroll, const char* name,
                                     rabbet_tensor_t* tensor, int32_t axis,
                                     int64_t less, rabbet_tensor_t** out) {
  rabbet_tensor_t *shape = NULL, *at = NULL, *number = NULL;
  const char* names[3] = {NULL, NULL, NULL};
  RABBET_RETURN_IF_ERROR(emit_name(unroll, name, "shape", &names[0]));
  RABBET_RETURN_IF_ERROR(emit_name(unroll, name, "extent", &names[1]));
  RABBET_RETURN_IF_ERROR(emit_name(unroll, name, "index", &names[2]));
  RABBET_RETURN_IF_ERROR(
      emit_layer(unroll, "shape", names[0], &tensor, 1, NULL, 0, &shape));
  RABBET_RETURN_IF_ERROR(emit_number(unroll, axis, &at));
  RABBET_RETURN_IF_ERROR(emit_number(unroll, less, &number));
  rabbet_tensor_t* extent[] = {shape, at};
  rabbet_tensor_t* terms[] = {NULL, number};
  RABBET_RETURN_IF_ERROR(
      emit_layer(unroll, "gather", names[1], extent, 2, NULL, 0, &terms[0]));
  const rabbet_attr_t op = {
      .name = "op", .type = RABBET_ATTR_STRING, .data = "SUB", .count = 3};
  return emit_layer(unroll, "elementwise", names[2], terms, 2, &op, 1, out);
}

rabbet_status_t rabbet_unroll_slice(rabbet_unroll_t* unroll, const char* name,
                                    rabbet_tensor_t* tensor, int32_t axis,
                                    bool reverse, int64_t index,
                                    rabbet_tensor_t** out_tensor) {
  rabbet_dims_t dims;
  rabbet_tensor_t* at = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_tensor_dims(tensor, &dims));
  if (axis < 0) axis += dims.rank;
  int64_t extent = dims.d[axis];
  if (extent >= 0 && index >= extent) {
    char text[128];
    return RABBET_STATUS(
        RABBET_STATUS_INVALID_ARGUMENT,
        "tensor '%s' of shape %s has %lld slices along axis "
        "%d, but the loop runs more often; end it earlier with "
        "a trip limit",
        tensor->name, rabbet_dims_print(&dims, text, sizeof text),
        (long long)extent, axis);
  }
  if (reverse && extent < 0) {
    RABBET_RETURN_IF_ERROR(
        emit_from_end(unroll, name, tensor, axis, index + 1, &at));
  } else {
    RABBET_RETURN_IF_ERROR(
        emit_number(unroll, reverse ? extent - 1 - index : index, &at));
  }
  rabbet_tensor_t* inputs[] = {tensor, at};
  const rabbet_attr_t attr = EMIT_INT("axis", axis);
  return emit_layer(unroll, "gather", name, inputs, 2, &attr, 1, out_tensor);
}

static rabbet_status_t emit_permuted(rabbet_unroll_t* unroll, const char* name,
                                     rabbet_tensor_t* tensor,
                                     const int64_t* order,
                                     rabbet_tensor_t** out_tensor) {
  rabbet_dims_t dims;
  RABBET_RETURN_IF_ERROR(rabbet_tensor_dims(tensor, &dims));
  const rabbet_attr_t attr = EMIT_INTS("first_transpose", order, dims.rank);
  return emit_layer(unroll, "shuffle", name, &tensor, 1, &attr, 1, out_tensor);
}

rabbet_status_t rabbet_unroll_axis_first(rabbet_unroll_t* unroll,
                                         const char* name,
                                         rabbet_tensor_t* tensor, int32_t axis,
                                         rabbet_tensor_t** out_tensor) {
  int64_t order[RABBET_MAX_RANK] = {axis};
  for (int32_t i = 1; i < RABBET_MAX_RANK; ++i)
    order[i] = i <= axis ? i - 1 : i;
  return emit_permuted(unroll, name, tensor, order, out_tensor);
}

rabbet_status_t rabbet_unroll_axis_back(rabbet_unroll_t* unroll,
                                        const char* name,
                                        rabbet_tensor_t* tensor, int32_t axis,
                                        rabbet_tensor_t** out_tensor) {
  int64_t order[RABBET_MAX_RANK];
  for (int32_t i = 0; i < RABBET_MAX_RANK; ++i)
    order[i] = i == axis ? 0 : i < axis ? i + 1 : i;
  return emit_permuted(unroll, name, tensor, order, out_tensor);
}

// ---- Stacks ----------------------------------------------------------------

// An axis of extent 1. Where shapes are not known it is put last, since only
// then each other dimension can be copied from the same place, and moved.
static rabbet_status_t emit_unsqueeze(rabbet_unroll_t* unroll, const char* name,
                                      rabbet_tensor_t* tensor, int32_t axis,
                                      rabbet_tensor_t** out_tensor) {
  rabbet_dims_t dims;
  RABBET_RETURN_IF_ERROR(rabbet_tensor_dims(tensor, &dims));
  int64_t shape[RABBET_MAX_RANK], order[RABBET_MAX_RANK];
  bool is_known = true;
  for (int32_t i = 0; i < dims.rank; ++i)
    is_known &= dims.d[i] > 0;
  for (int32_t i = 0; i <= dims.rank; ++i) {
    int32_t from = i > axis ? i - 1 : i;
    order[i] = i == axis ? dims.rank : from;
    if (is_known)
      shape[i] = i == axis ? 1 : dims.d[from];
    else
      shape[i] = i == dims.rank ? 1 : 0;
  }
  const rabbet_attr_t attrs[] = {
      EMIT_INTS("reshape_dims", shape, dims.rank + 1),
      EMIT_INTS("second_transpose", order, dims.rank + 1)};
  return emit_layer(unroll, "shuffle", name, &tensor, 1, attrs,
                    is_known ? 1 : 2, out_tensor);
}

// `count` times the shape of `like`, which is constant, along a new axis.
static rabbet_status_t emit_zeros(rabbet_unroll_t* unroll,
                                  const rabbet_tensor_t* like, int32_t axis,
                                  int64_t count, rabbet_tensor_t** out_tensor) {
  rabbet_dims_t dims = rabbet_shape_dims(unroll->to->graph, &like->shape);
  memmove(dims.d + axis + 1, dims.d + axis,
          (size_t)(dims.rank - axis) * sizeof(dims.d[0]));
  dims.d[axis] = count;
  dims.rank++;
  rabbet_weights_t weights = {.dtype = like->dtype};
  size_t bytes = 0;
  void* zeros = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(&dims, &weights.count));
  RABBET_RETURN_IF_ERROR(
      rabbet_tensor_bytes(like->dtype, RABBET_FORMAT_LINEAR, &dims, &bytes));
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate(&unroll->to->arena, bytes ? bytes : 1, &zeros));
  weights.data = zeros;
  return rabbet_network_add_weights(unroll->to, NULL, weights, &dims, false,
                                    out_tensor);
}

rabbet_status_t rabbet_unroll_stack(rabbet_unroll_t* unroll, const char* name,
                                    rabbet_tensor_t* const* tensors,
                                    size_t count, int64_t length,
                                    const rabbet_tensor_t* like, int32_t axis,
                                    rabbet_tensor_t** out_tensor) {
  rabbet_tensor_t** parts = NULL;
  size_t part_count = count + ((int64_t)count < length || length == 0);
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &unroll->arena, part_count, sizeof(*parts), (void**)&parts));
  if (part_count > count)
    RABBET_RETURN_IF_ERROR(
        emit_zeros(unroll, like, axis, length - (int64_t)count, &parts[count]));
  for (size_t i = 0; i < count; ++i) {
    char part[32];
    const char* part_name = NULL;
    snprintf(part, sizeof part, "%zu", i);
    RABBET_RETURN_IF_ERROR(emit_name(unroll, name, part, &part_name));
    RABBET_RETURN_IF_ERROR(
        emit_unsqueeze(unroll, part_name, tensors[i], axis, &parts[i]));
  }
  if (part_count == 1)
    return rabbet_unroll_copy(unroll, name, parts[0], out_tensor);
  const rabbet_attr_t attr = EMIT_INT("axis", axis);
  return emit_layer(unroll, "concatenation", name, parts, part_count, &attr, 1,
                    out_tensor);
}

rabbet_status_t rabbet_unroll_copy(rabbet_unroll_t* unroll, const char* name,
                                   rabbet_tensor_t* tensor,
                                   rabbet_tensor_t** out_tensor) {
  return emit_layer(unroll, "identity", name, &tensor, 1, NULL, 0, out_tensor);
}
