// Loops: their boundary layers, and the tensors that these may read.
#include <string.h>

#include "base/text.h"
#include "network/inside.h"

// ---- Loops -----------------------------------------------------------------

static rabbet_loop_t* loop_named(const rabbet_network_t* network,
                                 const char* name) {
  for (size_t i = 0; i < network->loops.count; ++i) {
    if (strcmp(network->loops.data[i]->name, name) == 0) {
      return network->loops.data[i];
    }
  }
  return NULL;
}

static rabbet_status_t loop_claim_name(rabbet_network_t* network,
                                       const char* name,
                                       const char** out_name) {
  RABBET_RETURN_IF_ERROR(rabbet_text_check("the name of a loop", name));
  if (name && loop_named(network, name)) {
    return RABBET_STATUS(RABBET_STATUS_ALREADY_EXISTS,
                         "there is a loop named '%s' already", name);
  }
  if (name) return rabbet_arena_strdup(&network->arena, name, out_name);
  for (size_t i = network->loops.count;; ++i) {
    RABBET_RETURN_IF_ERROR(
        rabbet_arena_printf(&network->arena, out_name, "loop_%zu", i));
    if (!loop_named(network, *out_name)) return rabbet_ok();
  }
}

rabbet_status_t rabbet_network_add_loop(rabbet_network_t* network,
                                        const char* name,
                                        rabbet_loop_t** out_loop) {
  *out_loop = NULL;
  rabbet_loop_t* loop = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate(&network->arena, sizeof(*loop), (void**)&loop));
  loop->network = network;
  RABBET_RETURN_IF_ERROR(
      loop_claim_name(network, name && *name ? name : NULL, &loop->name));
  RABBET_RETURN_IF_ERROR(
      RABBET_VEC_PUSH(network->allocator, &network->loops, loop));
  *out_loop = loop;
  return rabbet_ok();
}

size_t rabbet_network_loop_count(const rabbet_network_t* network) {
  return network->loops.count;
}

rabbet_loop_t* rabbet_network_loop(const rabbet_network_t* network,
                                   size_t index) {
  return index < network->loops.count ? network->loops.data[index] : NULL;
}

const char* rabbet_loop_name(const rabbet_loop_t* loop) {
  return loop->name;
}

rabbet_status_t rabbet_loop_set_name(rabbet_loop_t* loop, const char* name) {
  if (!name || !*name) {
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "a loop's name must not be empty");
  }
  if (strcmp(name, loop->name) == 0) return rabbet_ok();
  return loop_claim_name(loop->network, name, &loop->name);
}

// ---- Their layers ----------------------------------------------------------

int64_t rabbet_layer_int(const rabbet_layer_t* layer, const char* name) {
  return rabbet_attr_int(layer->attrs, layer->op->attr_count, name, 0);
}

rabbet_loop_t* rabbet_layer_loop(const rabbet_layer_t* layer) {
  return layer->loop;
}

rabbet_layer_t* rabbet_loop_limit(const rabbet_loop_t* loop,
                                  rabbet_trip_limit_t kind) {
  for (size_t i = 0; i < loop->layers.count; ++i) {
    rabbet_layer_t* layer = loop->layers.data[i];
    if (rabbet_op_is(layer->op, RABBET_OP_TRIP_LIMIT) &&
        rabbet_layer_int(layer, "kind") == kind) {
      return layer;
    }
  }
  return NULL;
}

static rabbet_status_t loop_add(rabbet_loop_t* loop, rabbet_op_id_t op,
                                rabbet_tensor_t* tensor,
                                const rabbet_attr_t* attrs, size_t attr_count,
                                rabbet_layer_t** out_layer) {
  *out_layer = NULL;
  rabbet_network_t* network = loop->network;
  rabbet_layer_t* layer = NULL;
  rabbet_status_t status =
      RABBET_VEC_RESERVE(network->allocator, &loop->layers, 1);
  if (rabbet_is_ok(status)) {
    status =
        rabbet_network_add_any_layer(network, rabbet_op_get(op)->name, NULL,
                                     &tensor, 1, attrs, attr_count, &layer);
  }
  if (!rabbet_is_ok(status)) {
    return rabbet_status_annotate(status, "loop '%s'", loop->name);
  }
  layer->loop = loop;
  loop->layers.data[loop->layers.count++] = layer;
  *out_layer = layer;
  return rabbet_ok();
}

#define RABBET_LOOP_INT(attr_name, value)                   \
  {                                                         \
    .name = (attr_name), .type = RABBET_ATTR_INT,           \
    .data = (const int64_t[]){(int64_t)(value)}, .count = 1 \
  }

rabbet_status_t rabbet_loop_add_recurrence(rabbet_loop_t* loop,
                                           rabbet_tensor_t* initial_value,
                                           rabbet_layer_t** out_layer) {
  return loop_add(loop, RABBET_OP_RECURRENCE, initial_value, NULL, 0,
                  out_layer);
}

rabbet_status_t rabbet_loop_add_iterator(rabbet_loop_t* loop,
                                         rabbet_tensor_t* tensor, int32_t axis,
                                         bool reverse,
                                         rabbet_layer_t** out_layer) {
  const rabbet_attr_t attrs[] = {
      RABBET_LOOP_INT("axis", axis),
      {.name = "reverse",
       .type = RABBET_ATTR_BOOL,
       .data = (const int64_t[]){reverse},
       .count = 1},
  };
  return loop_add(loop, RABBET_OP_ITERATOR, tensor, attrs, 2, out_layer);
}

static bool layer_is_stacked(const rabbet_layer_t* layer) {
  return rabbet_op_is(layer->op, RABBET_OP_LOOP_OUTPUT) &&
         rabbet_layer_int(layer, "kind") != RABBET_LOOP_OUTPUT_LAST_VALUE;
}

// The extent of the stacked output is the number of iterations.
static rabbet_status_t loop_give_length(rabbet_layer_t* output,
                                        rabbet_tensor_t* count) {
  RABBET_RETURN_IF_ERROR(rabbet_layer_set_input(output, 1, count));
  output->has_default_length = true;
  return rabbet_ok();
}

rabbet_status_t rabbet_loop_add_trip_limit(rabbet_loop_t* loop,
                                           rabbet_tensor_t* tensor,
                                           rabbet_trip_limit_t kind,
                                           rabbet_layer_t** out_layer) {
  *out_layer = NULL;
  const rabbet_attr_t attrs[] = {RABBET_LOOP_INT("kind", kind)};
  const rabbet_layer_t* other = rabbet_loop_limit(loop, kind);
  if (other) {
    return RABBET_STATUS(RABBET_STATUS_ALREADY_EXISTS,
                         "loop '%s' has a trip limit of that kind, layer '%s'; "
                         "it can have one of kind COUNT and one of kind WHILE",
                         loop->name, other->name);
  }
  RABBET_RETURN_IF_ERROR(
      loop_add(loop, RABBET_OP_TRIP_LIMIT, tensor, attrs, 1, out_layer));
  for (size_t i = 0; kind == RABBET_TRIP_LIMIT_COUNT && i < loop->layers.count;
       ++i) {
    rabbet_layer_t* output = loop->layers.data[i];
    if (!layer_is_stacked(output) || output->input_count > 1) continue;
    RABBET_RETURN_IF_ERROR(loop_give_length(output, tensor));
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_loop_add_output(rabbet_loop_t* loop,
                                       rabbet_tensor_t* tensor,
                                       rabbet_loop_output_t kind, int32_t axis,
                                       rabbet_layer_t** out_layer) {
  const rabbet_attr_t attrs[] = {RABBET_LOOP_INT("kind", kind),
                                 RABBET_LOOP_INT("axis", axis)};
  RABBET_RETURN_IF_ERROR(
      loop_add(loop, RABBET_OP_LOOP_OUTPUT, tensor, attrs, 2, out_layer));
  const rabbet_layer_t* limit =
      rabbet_loop_limit(loop, RABBET_TRIP_LIMIT_COUNT);
  if (!limit || !layer_is_stacked(*out_layer)) return rabbet_ok();
  return loop_give_length(*out_layer, limit->inputs[0]);
}

rabbet_status_t rabbet_loop_add_told_output(rabbet_loop_t* loop,
                                            rabbet_tensor_t* tensor,
                                            int32_t axis,
                                            rabbet_layer_t** out_layer) {
  const rabbet_attr_t attrs[] = {
      RABBET_LOOP_INT("kind", RABBET_LOOP_OUTPUT_CONCATENATE),
      RABBET_LOOP_INT("axis", axis)};
  RABBET_RETURN_IF_ERROR(
      loop_add(loop, RABBET_OP_LOOP_OUTPUT, tensor, attrs, 2, out_layer));
  (*out_layer)->is_told = true;
  return rabbet_ok();
}

rabbet_status_t rabbet_loop_add_varying_recurrence(
    rabbet_loop_t* loop, rabbet_tensor_t* initial_value, int64_t varying,
    rabbet_layer_t** out_layer) {
  RABBET_RETURN_IF_ERROR(
      rabbet_loop_add_recurrence(loop, initial_value, out_layer));
  (*out_layer)->varying = varying;
  return rabbet_ok();
}

// ---- Extents that only a run tells -----------------------------------------

static rabbet_status_t told_extent(const rabbet_layer_t* layer, int32_t axis,
                                   rabbet_expr_t upper) {
  rabbet_tensor_t* output = layer->outputs[0];
  const rabbet_symbol_t symbol = {.kind = RABBET_SYMBOL_DIM,
                                  .tensor = output->id,
                                  .index = axis,
                                  .opt = upper,
                                  .upper = upper};
  return rabbet_expr_of_symbol(layer->network->graph, &symbol,
                               &output->shape.d[axis]);
}

static rabbet_status_t loop_most_trips(const rabbet_loop_t* loop,
                                       rabbet_expr_t* out_trips) {
  const rabbet_layer_t* limit =
      rabbet_loop_limit(loop, RABBET_TRIP_LIMIT_COUNT);
  *out_trips = RABBET_EXPR_NONE;
  return limit && limit->inputs[0]->value_count == 1
             ? rabbet_loop_trips(loop->network->graph,
                                 limit->inputs[0]->values[0], out_trips)
             : rabbet_ok();
}

rabbet_status_t rabbet_layer_infer_told(rabbet_layer_t* layer) {
  const rabbet_tensor_t* input = layer->inputs[0];
  rabbet_tensor_t* output = layer->outputs[0];
  output->dtype = input->dtype;
  output->shape = input->shape;
  for (int32_t i = 0; i < input->shape.rank; ++i)
    if (layer->varying >> i & 1)
      RABBET_RETURN_IF_ERROR(told_extent(layer, i, RABBET_EXPR_NONE));
  if (!layer->is_told) return rabbet_ok();
  int32_t axis = (int32_t)rabbet_layer_int(layer, "axis");
  int32_t rank = input->shape.rank + 1;
  if (axis < 0) axis += rank;
  if (axis < 0 || axis >= rank || rank > RABBET_MAX_RANK)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "axis %d of a tensor of rank %d", axis, rank);
  for (int32_t i = rank; i-- > axis + 1;)
    output->shape.d[i] = output->shape.d[i - 1];
  output->shape.rank = rank;
  rabbet_expr_t most = RABBET_EXPR_NONE;
  RABBET_RETURN_IF_ERROR(loop_most_trips(layer->loop, &most));
  return told_extent(layer, axis, most);
}
