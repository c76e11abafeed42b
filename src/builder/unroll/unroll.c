// Writes loops out: the layers of a network, and those of a loop's body once
// for each iteration, or one layer for the loop; makes checks of assertions.
//
// Layers are copied in order, as soon as their inputs are made. A loop counts
// as one layer with the loop's outputs. So a loop may be added before something
// that its body reads.

#include "builder/unroll/unroll.h"

#include <string.h>

#include "builder/unroll/internal.h"

static bool unroll_has(const rabbet_unroll_t* unroll,
                       const rabbet_tensor_t* tensor) {
  return !tensor || unroll->map[tensor->id];
}

static bool unroll_has_inputs(const rabbet_unroll_t* unroll,
                              const rabbet_layer_t* layer) {
  for (size_t i = 0; i < layer->input_count; ++i)
    if (!unroll_has(unroll, layer->inputs[i])) return false;
  return true;
}

bool rabbet_unroll_is_ready(const rabbet_unroll_t* unroll, size_t loop) {
  const rabbet_network_t* from = unroll->from;
  for (size_t i = 0; i < from->layers.count; ++i) {
    const rabbet_layer_t* layer = from->layers.data[i];
    if (layer->loop != from->loops.data[loop] &&
        !rabbet_regions_has(&unroll->regions, loop, layer))
      continue;
    for (size_t k = 0; k <= layer->input_count; ++k) {
      const rabbet_tensor_t* input =
          k < layer->input_count ? layer->inputs[k] : layer->next;
      if (!rabbet_regions_makes(&unroll->regions, loop, input) &&
          !unroll_has(unroll, input))
        return false;
    }
  }
  return true;
}

static size_t unroll_loop_of(const rabbet_unroll_t* unroll,
                             const rabbet_layer_t* layer) {
  size_t loop = 0;
  while (unroll->from->loops.data[loop] != layer->loop)
    ++loop;
  return loop;
}

// Each iteration has a conditional of its own.
static rabbet_status_t unroll_conditional(rabbet_unroll_t* unroll,
                                          const rabbet_layer_t* layer,
                                          const char* prefix,
                                          rabbet_layer_t* copy) {
  const rabbet_network_t* from = unroll->from;
  rabbet_unroll_conditional_t* found = unroll->conditionals;
  const char* name = NULL;
  if (!layer->conditional) return rabbet_ok();
  for (size_t i = 0; from->conditionals.data[i] != layer->conditional; ++i)
    ++found;
  if (!found->to || strcmp(found->prefix, prefix) != 0) {
    RABBET_RETURN_IF_ERROR(rabbet_arena_printf(
        &unroll->arena, &name, "%s%s", prefix, layer->conditional->name));
    RABBET_RETURN_IF_ERROR(
        rabbet_network_add_conditional(unroll->to, name, &found->to));
    found->prefix = prefix;
  }
  copy->conditional = found->to;
  return rabbet_ok();
}

static rabbet_status_t unroll_copy(rabbet_unroll_t* unroll,
                                   const rabbet_layer_t* layer,
                                   const char* prefix) {
  unroll->done[layer->index] = true;
  if (rabbet_op_is(layer->op, RABBET_OP_ASSERTION))
    return rabbet_unroll_assert(unroll, layer, prefix);
  rabbet_tensor_t** inputs = NULL;
  rabbet_layer_t* copy = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      unroll->allocator, (layer->input_count + 1) * sizeof(*inputs),
      (void**)&inputs));
  for (size_t i = 0; i < layer->input_count; ++i)
    if (layer->inputs[i]) inputs[i] = unroll->map[layer->inputs[i]->id];
  rabbet_status_t status =
      rabbet_network_copy_layer(unroll->to, layer, prefix, inputs, &copy);
  rabbet_free(unroll->allocator, inputs);
  RABBET_RETURN_IF_ERROR(status);
  for (size_t i = 0; i < layer->output_count; ++i)
    unroll->map[layer->outputs[i]->id] = copy->outputs[i];
  return unroll_conditional(unroll, layer, prefix, copy);
}

static rabbet_status_t unroll_layer(rabbet_unroll_t* unroll,
                                    const rabbet_layer_t* layer,
                                    const char* prefix) {
  if (!rabbet_op_is(layer->op, RABBET_OP_LOOP_OUTPUT)) {
    if (layer->loop) {  // a limit: its loop reads it
      unroll->done[layer->index] = true;
      return rabbet_ok();
    }
    return unroll_has_inputs(unroll, layer) ? unroll_copy(unroll, layer, prefix)
                                            : rabbet_ok();
  }
  size_t loop = unroll_loop_of(unroll, layer);
  return rabbet_unroll_is_ready(unroll, loop)
             ? rabbet_unroll_run(unroll, loop, prefix)
             : rabbet_ok();
}

rabbet_status_t rabbet_unroll_region(rabbet_unroll_t* unroll, int32_t region,
                                     const char* prefix, const bool* only) {
  const rabbet_layer_t* waiting = NULL;
  bool progress = true;
  while (progress) {
    progress = false;
    waiting = NULL;
    for (size_t i = 0; i < unroll->from->layers.count; ++i) {
      const rabbet_layer_t* layer = unroll->from->layers.data[i];
      if (unroll->regions.region[i] != region || unroll->done[i] ||
          (only && !only[i]))
        continue;
      RABBET_RETURN_IF_ERROR(unroll_layer(unroll, layer, prefix));
      progress |= unroll->done[i];
      if (!unroll->done[i] && !waiting) waiting = layer;
    }
  }
  if (!waiting) return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                       "layer '%s%s' (%s) needs a result of a loop that itself "
                       "needs the layer; that would be a cycle",
                       prefix, waiting->name, waiting->op->name);
}

static rabbet_status_t unroll_all(rabbet_unroll_t* unroll) {
  rabbet_network_t* from = unroll->from;
  RABBET_RETURN_IF_ERROR(
      rabbet_regions_find(from, &unroll->arena, &unroll->regions));
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate_array(&unroll->arena, from->tensors.count,
                                  sizeof(*unroll->map), (void**)&unroll->map));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &unroll->arena, from->layers.count, sizeof(bool), (void**)&unroll->done));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &unroll->arena, from->conditionals.count, sizeof(*unroll->conditionals),
      (void**)&unroll->conditionals));
  for (size_t i = 0; i < from->tensors.count; ++i) {
    const rabbet_tensor_t* tensor = from->tensors.data[i];
    if (tensor->kind == RABBET_TENSOR_LAYER) continue;
    RABBET_RETURN_IF_ERROR(
        rabbet_network_copy_source(unroll->to, tensor, &unroll->map[i]));
  }
  RABBET_RETURN_IF_ERROR(rabbet_unroll_region(unroll, -1, "", NULL));
  for (size_t i = 0; i < from->outputs.count; ++i)
    RABBET_RETURN_IF_ERROR(rabbet_network_mark_output(
        unroll->to, unroll->map[from->outputs.data[i]->id]));
  return rabbet_network_infer(unroll->to);
}

static bool unroll_is_needed(const rabbet_network_t* network) {
  if (network->loops.count > 0) return true;
  for (size_t i = 0; i < network->layers.count; ++i)
    if (rabbet_op_is(network->layers.data[i]->op, RABBET_OP_ASSERTION))
      return true;
  return false;
}

// *out_restart: one more loop is to become a layer.
static rabbet_status_t unroll_try(rabbet_network_t* network,
                                  rabbet_allocator_t allocator, bool* is_kept,
                                  bool* out_restart,
                                  rabbet_network_t** out_network) {
  rabbet_unroll_t unroll = {
      .from = network, .allocator = allocator, .is_kept = is_kept};
  RABBET_RETURN_IF_ERROR(
      rabbet_network_copy_empty(network, allocator, &unroll.to));
  rabbet_arena_initialize(allocator, &unroll.arena);
  rabbet_status_t status = unroll_all(&unroll);
  rabbet_arena_deinitialize(&unroll.arena);
  *out_restart = unroll.restart;
  if (unroll.restart) {
    rabbet_status_ignore(status);
    status = rabbet_ok();
  }
  if (rabbet_is_ok(status) && !unroll.restart)
    *out_network = unroll.to;
  else
    rabbet_network_release(unroll.to);
  return status;
}

rabbet_status_t rabbet_network_unroll(rabbet_network_t* network,
                                      rabbet_allocator_t allocator,
                                      rabbet_network_t** out_network) {
  *out_network = NULL;
  if (!unroll_is_needed(network)) {
    rabbet_network_retain(network);
    *out_network = network;
    return rabbet_ok();
  }
  bool* is_kept = NULL;
  bool restart = true;
  rabbet_status_t status = rabbet_network_infer(network);
  if (rabbet_is_ok(status))
    status =
        rabbet_allocate(allocator, network->loops.count + 1, (void**)&is_kept);
  while (rabbet_is_ok(status) && restart)
    status = unroll_try(network, allocator, is_kept, &restart, out_network);
  rabbet_free(allocator, is_kept);
  return status;
}
