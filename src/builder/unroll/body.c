// Networks of the layers that a conditional or a loop runs.
#include <stdio.h>
#include <string.h>

#include "builder/unroll/internal.h"
#include "builder/unroll/unroll.h"
#include "core/view.h"

rabbet_status_t rabbet_unroll_copy_source(rabbet_network_t* to,
                                          const rabbet_tensor_t* tensor,
                                          rabbet_tensor_t** out_tensor) {
  RABBET_RETURN_IF_ERROR(rabbet_network_copy_source(to, tensor, out_tensor));
  if (tensor->kind != RABBET_TENSOR_WEIGHTS) return rabbet_ok();
  (*out_tensor)->has_role = true;
  (*out_tensor)->role_layer = rabbet_tensor_role(tensor, &(*out_tensor)->role);
  return rabbet_ok();
}

rabbet_status_t rabbet_unroll_body_begin(rabbet_unroll_body_t* body) {
  rabbet_arena_t* arena = body->arena;
  size_t tensors = body->from->tensors.count;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, tensors, sizeof(*body->map), (void**)&body->map));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, tensors, sizeof(*body->captured), (void**)&body->captured));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, body->from->conditionals.count, sizeof(*body->conditionals),
      (void**)&body->conditionals));
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate_array(arena, body->from->loops.count,
                                  sizeof(*body->loops), (void**)&body->loops));
  return rabbet_network_copy_empty(body->from, body->allocator, &body->made);
}

// ---- Tensors from outside --------------------------------------------------

rabbet_status_t rabbet_unroll_body_input(rabbet_unroll_body_t* body,
                                         const rabbet_tensor_t* named,
                                         rabbet_tensor_t* outside,
                                         bool is_slice, int64_t varying) {
  rabbet_tensor_t** input = &body->map[named->id];
  rabbet_dims_t dims =
      rabbet_shape_dims(outside->network->graph, &outside->shape);
  if (is_slice) {
    --dims.rank;
    memmove(dims.d, dims.d + 1, (size_t)dims.rank * sizeof(dims.d[0]));
  }
  for (int32_t i = 0; i < dims.rank; ++i)
    if (varying >> i & 1) dims.d[i] = -1;
  RABBET_RETURN_IF_ERROR(rabbet_network_add_input(
      body->made, named->name, outside->dtype, &dims, input));
  for (int32_t i = 0; i < dims.rank; ++i) {
    char name[32];
    if (dims.d[i] >= 0 || (varying >> i & 1)) continue;
    snprintf(name, sizeof(name), "#%d", outside->shape.d[i + is_slice]);
    RABBET_RETURN_IF_ERROR(rabbet_tensor_set_dim_name(*input, i, name));
  }
  body->captured[body->captured_count++] = outside;
  return rabbet_ok();
}

static bool body_is_constant_layer(const rabbet_tensor_t* tensor) {
  return tensor->producer &&
         rabbet_op_is(tensor->producer->op, RABBET_OP_CONSTANT);
}

// A tensor computed from constants alone: weights of no layer.
static rabbet_status_t body_computed(rabbet_unroll_body_t* body,
                                     const rabbet_tensor_t* tensor,
                                     rabbet_tensor_t** out_tensor) {
  rabbet_dims_t dims =
      rabbet_shape_dims(tensor->network->graph, &tensor->shape);
  rabbet_weights_t weights = {.dtype = tensor->dtype};
  size_t bytes = 0;
  void* copy = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(&dims, &weights.count));
  RABBET_RETURN_IF_ERROR(
      rabbet_tensor_bytes(tensor->dtype, RABBET_FORMAT_LINEAR, &dims, &bytes));
  RABBET_RETURN_IF_ERROR(rabbet_arena_copy(&body->made->arena, tensor->constant,
                                           bytes ? bytes : 1, &copy));
  weights.data = copy;
  RABBET_RETURN_IF_ERROR(rabbet_network_add_weights(
      body->made, tensor->name, weights, &dims, true, out_tensor));
  (*out_tensor)->has_role = true;  // of no layer: not refittable
  return rabbet_ok();
}

rabbet_status_t rabbet_unroll_body_get(rabbet_unroll_body_t* body,
                                       rabbet_tensor_t* tensor,
                                       rabbet_tensor_t** out_tensor) {
  rabbet_tensor_t** found = &body->map[tensor->id];
  const rabbet_layer_t* layer = tensor->producer;
  if (!*found && layer && body->conditional &&
      layer->conditional == body->conditional &&
      rabbet_op_is(layer->op, RABBET_OP_CONDITIONAL_INPUT))
    return rabbet_unroll_body_get(body, layer->inputs[0], out_tensor);
  rabbet_tensor_t* outside = body->outside ? body->outside[tensor->id] : tensor;
  if (!*found && body_is_constant_layer(tensor)) {
    rabbet_layer_t* copy = NULL;
    RABBET_RETURN_IF_ERROR(
        rabbet_network_copy_layer(body->made, layer, "", NULL, &copy));
    *found = copy->outputs[0];
  } else if (!*found && tensor->kind == RABBET_TENSOR_WEIGHTS) {
    RABBET_RETURN_IF_ERROR(
        rabbet_unroll_copy_source(body->made, tensor, found));
  } else if (!*found && outside->constant) {
    RABBET_RETURN_IF_ERROR(body_computed(body, outside, found));
  } else if (!*found) {
    RABBET_RETURN_IF_ERROR(
        rabbet_unroll_body_input(body, tensor, outside, false, 0));
  }
  *out_tensor = *found;
  return rabbet_ok();
}

// ---- Layers ----------------------------------------------------------------

static rabbet_status_t body_enter_conditional(rabbet_unroll_body_t* body,
                                              const rabbet_layer_t* layer,
                                              rabbet_layer_t* copy) {
  size_t at = 0;
  if (!layer->conditional) return rabbet_ok();
  while (body->from->conditionals.data[at] != layer->conditional)
    ++at;
  if (!body->conditionals[at])
    RABBET_RETURN_IF_ERROR(rabbet_network_add_conditional(
        body->made, layer->conditional->name, &body->conditionals[at]));
  copy->conditional = body->conditionals[at];
  return rabbet_ok();
}

static rabbet_status_t body_enter_loop(rabbet_unroll_body_t* body,
                                       const rabbet_layer_t* layer,
                                       rabbet_layer_t* copy) {
  size_t at = 0;
  if (!layer->loop) return rabbet_ok();
  while (body->from->loops.data[at] != layer->loop)
    ++at;
  if (!body->loops[at])
    RABBET_RETURN_IF_ERROR(rabbet_network_add_loop(
        body->made, layer->loop->name, &body->loops[at]));
  copy->loop = body->loops[at];
  copy->has_default_length = layer->has_default_length;
  copy->is_told = layer->is_told;
  copy->varying = layer->varying;
  return RABBET_VEC_PUSH(body->made->allocator, &copy->loop->layers, copy);
}

rabbet_status_t rabbet_unroll_body_layer(rabbet_unroll_body_t* body,
                                         const rabbet_layer_t* layer) {
  rabbet_tensor_t** inputs = NULL;
  rabbet_layer_t* copy = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      body->arena, layer->input_count, sizeof(*inputs), (void**)&inputs));
  for (size_t i = 0; i < layer->input_count; ++i)
    if (layer->inputs[i])
      RABBET_RETURN_IF_ERROR(
          rabbet_unroll_body_get(body, layer->inputs[i], &inputs[i]));
  RABBET_RETURN_IF_ERROR(
      rabbet_network_copy_layer(body->made, layer, "", inputs, &copy));
  for (size_t i = 0; i < layer->output_count; ++i)
    body->map[layer->outputs[i]->id] = copy->outputs[i];
  RABBET_RETURN_IF_ERROR(body_enter_conditional(body, layer, copy));
  return body_enter_loop(body, layer, copy);
}

rabbet_status_t rabbet_unroll_body_output(rabbet_unroll_body_t* body,
                                          rabbet_tensor_t* tensor,
                                          const char* name) {
  rabbet_tensor_t* inside = NULL;
  rabbet_layer_t* copy = NULL;
  const char* result = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_unroll_body_get(body, tensor, &inside));
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_printf(body->arena, &result, "%s/result", name));
  RABBET_RETURN_IF_ERROR(rabbet_network_add_layer(
      body->made, "identity", result, &inside, 1, NULL, 0, &copy));
  return rabbet_network_mark_output(body->made, copy->outputs[0]);
}

// ---- The end ---------------------------------------------------------------

// Recurrences of inner loops read what later layers make.
static rabbet_status_t body_set_next(rabbet_unroll_body_t* body) {
  for (size_t i = 0; i < body->from->layers.count; ++i) {
    const rabbet_layer_t* layer = body->from->layers.data[i];
    rabbet_tensor_t* made =
        layer->next ? body->map[layer->outputs[0]->id] : NULL;
    if (made && made->producer && made->producer->loop)
      RABBET_RETURN_IF_ERROR(
          rabbet_unroll_body_get(body, layer->next, &made->producer->next));
  }
  return rabbet_ok();
}

static rabbet_loop_t* body_loop(const rabbet_unroll_body_t* body,
                                const rabbet_loop_t* like) {
  size_t at = 0;
  while (body->from->loops.data[at] != like)
    ++at;
  return body->loops[at];
}

// The loop around a loop is the nearest one that is in the body, too.
static void body_set_outer(const rabbet_unroll_body_t* body) {
  for (size_t i = 0; i < body->from->loops.count; ++i) {
    const rabbet_loop_t* outer = body->from->loops.data[i]->outer;
    while (outer && !body_loop(body, outer))
      outer = outer->outer;
    if (body->loops[i] && outer) body->loops[i]->outer = body_loop(body, outer);
  }
}

rabbet_status_t rabbet_unroll_body_finish(rabbet_unroll_body_t* body) {
  rabbet_network_t *flat = body->made, *unrolled = NULL;
  RABBET_RETURN_IF_ERROR(body_set_next(body));
  body_set_outer(body);
  RABBET_RETURN_IF_ERROR(rabbet_network_infer(flat));
  RABBET_RETURN_IF_ERROR(
      rabbet_network_unroll(flat, body->allocator, &unrolled));
  rabbet_status_t status =
      rabbet_unroll_split(unrolled, body->allocator, true, &body->made);
  if (rabbet_is_ok(status))
    rabbet_network_release(flat);
  else
    body->made = flat;
  rabbet_network_release(unrolled);
  return status;
}

rabbet_status_t rabbet_unroll_body_list_inputs(
    const rabbet_unroll_body_t* body, const char* name, rabbet_arena_t* arena,
    size_t first, rabbet_tensor_t** inputs, size_t* input_count,
    rabbet_body_t* out_body) {
  int32_t* list = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, body->captured_count, sizeof(*list), (void**)&list));
  for (size_t i = 0; i < body->captured_count; ++i) {
    size_t at = first;
    while (at < *input_count && inputs[at] != body->captured[i])
      ++at;
    if (at == *input_count) inputs[(*input_count)++] = body->captured[i];
    list[i] = (int32_t)at;
  }
  *out_body =
      (rabbet_body_t){.name = name, .network = body->made, .inputs = list};
  return rabbet_ok();
}
