// Assertions become outputs that callers do not see.
//
// A condition that is known at build is checked at once. A condition that the
// host knows when shapes are set is an output by itself. Of all others, which
// kernels compute, one number each goes into one vector, so that a run has one
// small tensor to look at.

#include <stdio.h>
#include <string.h>

#include "builder/unroll/internal.h"
#include "core/view.h"

#define ASSERT_INT(attr_name, value)                        \
  {                                                         \
    .name = (attr_name), .type = RABBET_ATTR_INT,           \
    .data = (const int64_t[]){(int64_t)(value)}, .count = 1 \
  }
#define ASSERT_VECTOR "(assertions)"

rabbet_status_t rabbet_unroll_assert(rabbet_unroll_t* unroll,
                                     const rabbet_layer_t* layer,
                                     const char* prefix) {
  const rabbet_attr_t* message =
      rabbet_attr_find(layer->attrs, layer->op->attr_count, "message");
  rabbet_network_check_t check = {.tensor = unroll->map[layer->inputs[0]->id],
                                  .index = -1};
  RABBET_RETURN_IF_ERROR(rabbet_arena_printf(&unroll->to->arena, &check.layer,
                                             "%s%s", prefix, layer->name));
  RABBET_RETURN_IF_ERROR(rabbet_arena_printf(
      &unroll->to->arena, &check.message, "%.*s", (int)message->count,
      message->data ? (const char*)message->data : ""));
  return RABBET_VEC_PUSH(unroll->to->allocator, &unroll->to->checks, check);
}

// ---- Conditions known in the build -----------------------------------------

static rabbet_status_t assert_failed(const rabbet_network_check_t* check) {
  return RABBET_STATUS(RABBET_STATUS_FAILED_PRECONDITION,
                       "layer '%s' (assertion) never holds: %s", check->layer,
                       check->message);
}

// Whether each element is known to be true; an error if one is known not to.
static rabbet_status_t assert_known(rabbet_network_t* to,
                                    const rabbet_network_check_t* check,
                                    bool* out_holds) {
  const rabbet_tensor_t* tensor = check->tensor;
  rabbet_dims_t dims = rabbet_shape_dims(to->graph, &tensor->shape);
  int64_t count = 0;
  *out_holds = true;
  if (tensor->constant) {
    RABBET_RETURN_IF_ERROR(rabbet_dims_count(&dims, &count));
    for (int64_t i = 0; i < count; ++i)
      if (!((const uint8_t*)tensor->constant)[i]) return assert_failed(check);
    return rabbet_ok();
  }
  *out_holds = tensor->values != NULL;
  for (size_t i = 0; i < tensor->value_count; ++i) {
    int64_t value = 1;
    *out_holds &= rabbet_expr_is_constant(to->graph, tensor->values[i], &value);
    if (!value) return assert_failed(check);
  }
  return rabbet_ok();
}

// A branch that is not taken may hold conditions that never do.
static rabbet_status_t assert_drop_known(rabbet_network_t* to, bool is_branch) {
  size_t kept = 0;
  for (size_t i = 0; i < to->checks.count; ++i) {
    bool holds = false;
    rabbet_status_t status = assert_known(to, &to->checks.data[i], &holds);
    if (is_branch &&
        rabbet_status_code(status) == RABBET_STATUS_FAILED_PRECONDITION) {
      rabbet_status_free(status);
      status = rabbet_ok();
      holds = false;
    }
    RABBET_RETURN_IF_ERROR(status);
    if (!holds) to->checks.data[kept++] = to->checks.data[i];
  }
  to->checks.count = kept;
  return rabbet_ok();
}

// ---- Conditions known in a run ---------------------------------------------

static rabbet_status_t assert_layer(rabbet_network_t* to, const char* op,
                                    const char* name, const char* part,
                                    const rabbet_attr_t* attrs, size_t count,
                                    rabbet_tensor_t** in_out_tensor) {
  rabbet_layer_t* layer = NULL;
  const char* full = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_printf(&to->arena, &full, "%s:%s", name, part));
  RABBET_RETURN_IF_ERROR(rabbet_network_add_layer(to, op, full, in_out_tensor,
                                                  1, attrs, count, &layer));
  *in_out_tensor = layer->outputs[0];
  return rabbet_ok();
}

// 1 if all elements are true, else 0, as a vector of one INT32.
static rabbet_status_t assert_number(rabbet_network_t* to,
                                     const rabbet_network_check_t* check,
                                     rabbet_tensor_t** out_tensor) {
  rabbet_tensor_t* tensor = check->tensor;
  int32_t rank = tensor->shape.rank;
  const rabbet_attr_t type = ASSERT_INT("to_type", RABBET_DTYPE_INT32);
  const rabbet_attr_t reduce[] = {
      {.name = "op", .type = RABBET_ATTR_STRING, .data = "MIN", .count = 3},
      ASSERT_INT("axes", (INT64_C(1) << rank) - 1)};
  const int64_t one = 1;
  const rabbet_attr_t shape = {.name = "reshape_dims",
                               .type = RABBET_ATTR_INTS,
                               .data = &one,
                               .count = 1};
  RABBET_RETURN_IF_ERROR(
      assert_layer(to, "cast", check->layer, "number", &type, 1, &tensor));
  if (rank > 0)
    RABBET_RETURN_IF_ERROR(
        assert_layer(to, "reduce", check->layer, "all", reduce, 2, &tensor));
  RABBET_RETURN_IF_ERROR(
      assert_layer(to, "shuffle", check->layer, "one", &shape, 1, &tensor));
  *out_tensor = tensor;
  return rabbet_ok();
}

static rabbet_status_t assert_vector(rabbet_network_t* to, size_t first) {
  size_t count = to->checks.count - first;
  rabbet_tensor_t** numbers = NULL;
  rabbet_layer_t* layer = NULL;
  if (count == 0) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &to->arena, count, sizeof(*numbers), (void**)&numbers));
  for (size_t i = 0; i < count; ++i)
    RABBET_RETURN_IF_ERROR(
        assert_number(to, &to->checks.data[first + i], &numbers[i]));
  const rabbet_attr_t axis = ASSERT_INT("axis", 0);
  RABBET_RETURN_IF_ERROR(rabbet_network_add_layer(
      to, "concatenation", ASSERT_VECTOR, numbers, count, &axis, 1, &layer));
  for (size_t i = 0; i < count; ++i) {
    to->checks.data[first + i].tensor = layer->outputs[0];
    to->checks.data[first + i].index = (int32_t)i;
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_network_finish_assertions(rabbet_network_t* to,
                                                 bool is_branch) {
  if (to->checks.count == 0) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_network_infer(to));
  RABBET_RETURN_IF_ERROR(assert_drop_known(to, is_branch));
  // First the conditions known to the host.
  size_t first = 0;
  for (size_t i = 0; i < to->checks.count; ++i) {
    rabbet_network_check_t check = to->checks.data[i];
    if (!check.tensor->values) continue;
    RABBET_RETURN_IF_ERROR(assert_layer(to, "identity", check.layer,
                                        "condition", NULL, 0, &check.tensor));
    to->checks.data[i] = to->checks.data[first];
    to->checks.data[first++] = check;
  }
  RABBET_RETURN_IF_ERROR(assert_vector(to, first));
  return rabbet_network_infer(to);
}
