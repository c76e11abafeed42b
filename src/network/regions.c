// Which layers belong to which loop.
//
// A loop's body is all layers that depend on its recurrences and iterators. A
// loop is inside another if the tensors that its boundary layers read are. Its
// boundary layers, and layers that depend on them, then belong to the outer
// body. If only layers within both bodies depend on both, what was said when
// the loop was added tells which of them is the outer one.
#include <stdio.h>
#include <string.h>

#include "network/inside.h"

typedef struct regions_work_t {
  const rabbet_network_t* network;
  rabbet_regions_t* regions;
  size_t loops;
  bool* nested;    // [outer * loops + inner]
  int32_t* depth;  // of a loop
} regions_work_t;

static int32_t loop_index(const rabbet_network_t* network,
                          const rabbet_loop_t* loop) {
  for (size_t i = 0; loop && i < network->loops.count; ++i) {
    if (network->loops.data[i] == loop) return (int32_t)i;
  }
  return -1;
}

static bool* regions_nested(const regions_work_t* work, size_t outer,
                            size_t inner) {
  return &work->nested[outer * work->loops + inner];
}

// ---- Growing ---------------------------------------------------------------

// The layers at the boundary of a conditional are inside if one is.
static bool regions_has_conditional(const regions_work_t* work, size_t loop,
                                    const rabbet_conditional_t* conditional) {
  for (size_t i = 0; conditional && i < work->network->layers.count; ++i) {
    const rabbet_layer_t* layer = work->network->layers.data[i];
    if (layer->conditional == conditional &&
        rabbet_regions_has(work->regions, loop, layer))
      return true;
  }
  return false;
}

static bool regions_joins(const regions_work_t* work, size_t loop,
                          const rabbet_layer_t* layer) {
  const rabbet_network_t* network = work->network;
  int32_t own = loop_index(network, layer->loop);
  if (own == (int32_t)loop) {
    return !rabbet_op_is(layer->op, RABBET_OP_LOOP_OUTPUT);
  }
  if (own >= 0 && *regions_nested(work, loop, (size_t)own)) return true;
  if (regions_has_conditional(work, loop, layer->conditional)) return true;
  for (size_t i = 0; i < layer->input_count; ++i) {
    if (rabbet_regions_makes(work->regions, loop, layer->inputs[i])) {
      return true;
    }
  }
  return false;
}

static bool regions_grow(regions_work_t* work, size_t loop) {
  bool* inside = work->regions->inside + loop * work->regions->layer_count;
  bool changed = false;
  for (size_t i = 0; i < work->network->layers.count; ++i) {
    if (inside[i]) continue;
    inside[i] = regions_joins(work, loop, work->network->layers.data[i]);
    changed |= inside[i];
  }
  return changed;
}

// Whether the loop's boundary reads a value that changes in each iteration of
// `outer`.
static bool regions_reads(const regions_work_t* work, size_t outer,
                          const rabbet_loop_t* loop) {
  for (size_t i = 0; i < loop->layers.count; ++i) {
    const rabbet_layer_t* layer = loop->layers.data[i];
    if (rabbet_regions_makes(work->regions, outer, layer->next)) return true;
    for (size_t k = 0; k < layer->input_count; ++k) {
      if (rabbet_regions_makes(work->regions, outer, layer->inputs[k])) {
        return true;
      }
    }
  }
  return false;
}

static bool regions_is_said(const rabbet_loop_t* outer,
                            const rabbet_loop_t* loop) {
  while (loop && loop != outer)
    loop = loop->outer;
  return loop != NULL;
}

static bool regions_share(const regions_work_t* work, size_t a, size_t b) {
  for (size_t i = 0; i < work->network->layers.count; ++i) {
    const rabbet_layer_t* layer = work->network->layers.data[i];
    if (rabbet_regions_has(work->regions, a, layer) &&
        rabbet_regions_has(work->regions, b, layer))
      return true;
  }
  return false;
}

static bool regions_nest(regions_work_t* work) {
  bool changed = false;
  for (size_t a = 0; a < work->loops; ++a) {
    for (size_t b = 0; b < work->loops; ++b) {
      bool* nested = regions_nested(work, a, b);
      if (a == b || *nested) continue;
      const rabbet_loop_t* inner = work->network->loops.data[b];
      *nested = regions_reads(work, a, inner) ||
                (regions_is_said(work->network->loops.data[a], inner) &&
                 regions_share(work, a, b));
      for (size_t c = 0; !*nested && c < work->loops; ++c) {
        *nested = *regions_nested(work, a, c) && *regions_nested(work, c, b);
      }
      changed |= *nested;
    }
  }
  return changed;
}

// ---- The tree of loops -----------------------------------------------------

static rabbet_status_t regions_crossed(const rabbet_network_t* network,
                                       size_t a, size_t b, const char* what) {
  return RABBET_STATUS(
      RABBET_STATUS_INVALID_ARGUMENT,
      "%s uses values of loop '%s' and of loop '%s', neither of which is "
      "inside "
      "the other; take values out of a loop by its outputs (add_loop_output)",
      what, network->loops.data[a]->name, network->loops.data[b]->name);
}

// The deepest of the loops in `in`; every other must be around it.
static rabbet_status_t regions_deepest(const regions_work_t* work,
                                       const bool* in, size_t stride,
                                       const char* what, int32_t* out_loop) {
  *out_loop = -1;
  for (size_t i = 0; i < work->loops; ++i) {
    if (!in[i * stride]) continue;
    if (*out_loop < 0 || work->depth[i] > work->depth[*out_loop]) {
      *out_loop = (int32_t)i;
    }
  }
  for (size_t i = 0; i < work->loops; ++i) {
    if (!in[i * stride] || (int32_t)i == *out_loop) continue;
    if (*regions_nested(work, i, (size_t)*out_loop)) continue;
    return regions_crossed(work->network, i, (size_t)*out_loop, what);
  }
  return rabbet_ok();
}

static rabbet_status_t regions_arrange(regions_work_t* work) {
  const rabbet_network_t* network = work->network;
  rabbet_regions_t* regions = work->regions;
  char what[160];
  for (size_t a = 0; a < work->loops; ++a) {
    for (size_t b = 0; b < work->loops; ++b) {
      if (!*regions_nested(work, a, b)) continue;
      work->depth[b]++;
      if (*regions_nested(work, b, a)) {
        return regions_crossed(network, a, b, "the network");
      }
    }
  }
  for (size_t i = 0; i < work->loops; ++i) {
    snprintf(what, sizeof what, "loop '%.100s'", network->loops.data[i]->name);
    RABBET_RETURN_IF_ERROR(regions_deepest(work, work->nested + i, work->loops,
                                           what, &regions->parent[i]));
  }
  for (size_t i = 0; i < regions->layer_count; ++i) {
    snprintf(what, sizeof what, "layer '%.100s'",
             network->layers.data[i]->name);
    RABBET_RETURN_IF_ERROR(regions_deepest(work, regions->inside + i,
                                           regions->layer_count, what,
                                           &regions->region[i]));
  }
  return rabbet_ok();
}

// ---- Checks ----------------------------------------------------------------

// Checks an operand that must be known before the loop begins.
static rabbet_status_t loop_check_outside(const regions_work_t* work,
                                          size_t loop,
                                          const rabbet_layer_t* layer,
                                          size_t input, const char* what) {
  const rabbet_tensor_t* tensor =
      input < layer->input_count ? layer->inputs[input] : NULL;
  if (!rabbet_regions_makes(work->regions, loop, tensor)) return rabbet_ok();
  return RABBET_STATUS(
      RABBET_STATUS_INVALID_ARGUMENT,
      "layer '%s' (%s): %s, tensor '%s', is made inside of the "
      "loop; it must be there before the loop begins",
      layer->name, layer->op->name, what, tensor->name);
}

static rabbet_status_t loop_check_output(const regions_work_t* work,
                                         size_t loop,
                                         const rabbet_layer_t* layer) {
  const rabbet_loop_t* own = work->network->loops.data[loop];
  if (rabbet_layer_int(layer, "kind") != RABBET_LOOP_OUTPUT_LAST_VALUE) {
    return loop_check_outside(work, loop, layer, 1, "its length");
  }
  const rabbet_layer_t* producer = layer->inputs[0]->producer;
  if (!producer || producer->loop != own ||
      !rabbet_op_is(producer->op, RABBET_OP_RECURRENCE)) {
    return RABBET_STATUS(
        RABBET_STATUS_INVALID_ARGUMENT,
        "layer '%s' (loop_output): its input, tensor '%s', is not a recurrence "
        "of the loop; a last value is that of a recurrence: add one, and give "
        "it the tensor as its next value",
        layer->name, layer->inputs[0]->name);
  }
  return rabbet_ok();
}

static rabbet_status_t loop_check_layer(const regions_work_t* work, size_t loop,
                                        const rabbet_layer_t* layer) {
  if (rabbet_op_is(layer->op, RABBET_OP_LOOP_OUTPUT)) {
    return loop_check_output(work, loop, layer);
  }
  if (rabbet_op_is(layer->op, RABBET_OP_ITERATOR)) {
    return loop_check_outside(work, loop, layer, 0, "what it slices");
  }
  if (rabbet_op_is(layer->op, RABBET_OP_TRIP_LIMIT)) {
    if (rabbet_layer_int(layer, "kind") == RABBET_TRIP_LIMIT_WHILE) {
      return rabbet_ok();
    }
    return loop_check_outside(work, loop, layer, 0, "its count");
  }
  if (!layer->next) {
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "layer '%s' (recurrence) has no next value; give it "
                         "with set_input(1, tensor)",
                         layer->name);
  }
  return loop_check_outside(work, loop, layer, 0, "its initial value");
}

static rabbet_status_t loop_check(const regions_work_t* work, size_t index) {
  const rabbet_loop_t* loop = work->network->loops.data[index];
  rabbet_status_t status = rabbet_ok();
  for (size_t i = 0; rabbet_is_ok(status) && i < loop->layers.count; ++i) {
    status = loop_check_layer(work, index, loop->layers.data[i]);
  }
  if (rabbet_is_ok(status) &&
      !rabbet_loop_limit(loop, RABBET_TRIP_LIMIT_COUNT) &&
      !rabbet_loop_limit(loop, RABBET_TRIP_LIMIT_WHILE)) {
    status = RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                           "it has no trip limit and would never end; give it "
                           "one with add_trip_limit");
  }
  return RABBET_ANNOTATE(status, "loop '%s'", loop->name);
}

static rabbet_status_t regions_check(const regions_work_t* work) {
  const rabbet_network_t* network = work->network;
  for (size_t i = 0; i < work->loops; ++i) {
    RABBET_RETURN_IF_ERROR(loop_check(work, i));
  }
  for (size_t i = 0; i < network->outputs.count; ++i) {
    const rabbet_tensor_t* tensor = network->outputs.data[i];
    int32_t loop = work->regions->region[tensor->producer->index];
    if (loop < 0) continue;
    return RABBET_STATUS(
        RABBET_STATUS_INVALID_ARGUMENT,
        "network output '%s' is made inside of loop '%s'; take it out by an "
        "output of the loop (add_loop_output) and mark that layer's output",
        tensor->name, network->loops.data[loop]->name);
  }
  return rabbet_ok();
}

// ---- All -------------------------------------------------------------------

static rabbet_status_t regions_allocate(regions_work_t* work,
                                        rabbet_arena_t* arena) {
  rabbet_regions_t* regions = work->regions;
  size_t layers = work->network->layers.count, loops = work->loops;
  regions->layer_count = layers;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, loops * layers, sizeof(bool), (void**)&regions->inside));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, layers, sizeof(int32_t), (void**)&regions->region));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, loops, sizeof(int32_t), (void**)&regions->parent));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, loops * loops, sizeof(bool), (void**)&work->nested));
  return rabbet_arena_allocate_array(arena, loops, sizeof(int32_t),
                                     (void**)&work->depth);
}

rabbet_status_t rabbet_regions_find(const rabbet_network_t* network,
                                    rabbet_arena_t* arena,
                                    rabbet_regions_t* out_regions) {
  *out_regions = (rabbet_regions_t){0};
  regions_work_t work = {.network = network,
                         .regions = out_regions,
                         .loops = network->loops.count};
  RABBET_RETURN_IF_ERROR(regions_allocate(&work, arena));
  bool changed = true;
  while (changed) {
    changed = false;
    for (size_t i = 0; i < work.loops; ++i) {
      changed |= regions_grow(&work, i);
    }
    changed |= regions_nest(&work);
  }
  RABBET_RETURN_IF_ERROR(regions_arrange(&work));
  return regions_check(&work);
}
