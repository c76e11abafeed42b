// Makes networks of the branches of conditionals.
//
// A layer is inside a conditional if it depends on its inputs other than by its
// outputs. A conditional whose boundary is inside another one is nested in it
// and goes into the branch with its layers; the branch's network is then split
// in turn.
#include "builder/unroll/branches.h"

#include <stdio.h>
#include <string.h>

#include "builder/unroll/internal.h"

typedef struct split_t {
  rabbet_network_t* from;
  rabbet_network_t* to;
  rabbet_allocator_t allocator;
  rabbet_arena_t arena;
  size_t layers, count;   // of `from`: layers, conditionals
  bool* inside;           // [conditional * layers + layer]
  bool* is_watched;       // [conditional]: assertions, debug tensors inside
  rabbet_tensor_t** map;  // by tensor of `from`; NULL: not made yet
  bool* done;             // by layer of `from`
} split_t;

static bool split_is(const rabbet_layer_t* layer, rabbet_op_id_t op) {
  return rabbet_op_is(layer->op, op);
}

static bool* split_inside(const split_t* split, size_t conditional) {
  return split->inside + conditional * split->layers;
}

static size_t split_index(const rabbet_network_t* network,
                          const rabbet_conditional_t* conditional) {
  size_t i = 0;
  while (network->conditionals.data[i] != conditional)
    ++i;
  return i;
}

// ---- Layers inside of conditionals -----------------------------------------

static bool split_depends(const bool* inside, const rabbet_layer_t* layer) {
  for (size_t i = 0; i < layer->input_count; ++i) {
    const rabbet_tensor_t* input = layer->inputs[i];
    if (input && input->producer && inside[input->producer->index]) return true;
  }
  return false;
}

// All layers at the boundary of a nested conditional are inside if one is.
static bool split_is_nested(const split_t* split, const bool* inside,
                            const rabbet_conditional_t* conditional) {
  for (size_t i = 0; i < split->layers; ++i)
    if (inside[i] && split->from->layers.data[i]->conditional == conditional)
      return true;
  return false;
}

static void split_mark(const split_t* split, size_t c) {
  const rabbet_conditional_t* own = split->from->conditionals.data[c];
  bool* inside = split_inside(split, c);
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = 0; i < split->layers; ++i) {
      const rabbet_layer_t* layer = split->from->layers.data[i];
      const rabbet_conditional_t* other = layer->conditional;
      bool joins = other == own
                       ? split_is(layer, RABBET_OP_CONDITIONAL_INPUT)
                       : split_depends(inside, layer) ||
                             (other && split_is_nested(split, inside, other));
      changed |= joins && !inside[i];
      inside[i] |= joins;
    }
  }
}

static rabbet_status_t split_check_outputs(const split_t* split, size_t c) {
  const rabbet_network_t* from = split->from;
  for (size_t i = 0; i < from->outputs.count; ++i) {
    const rabbet_tensor_t* tensor = from->outputs.data[i];
    if (!tensor->producer || !split_inside(split, c)[tensor->producer->index])
      continue;
    return RABBET_STATUS(
        RABBET_STATUS_INVALID_ARGUMENT,
        "network output '%s' is made inside of conditional '%s'; take it out "
        "by an output of the conditional (add_output) and mark that layer's "
        "output",
        tensor->name, from->conditionals.data[c]->name);
  }
  return rabbet_ok();
}

static bool split_has_outputs(const split_t* split,
                              const rabbet_conditional_t* conditional) {
  for (size_t i = 0; i < split->layers; ++i)
    if (split->from->layers.data[i]->conditional == conditional &&
        split_is(split->from->layers.data[i], RABBET_OP_CONDITIONAL_OUTPUT))
      return true;
  return false;
}

static rabbet_status_t split_check_condition(const split_t* split, size_t c) {
  const rabbet_conditional_t* conditional = split->from->conditionals.data[c];
  const rabbet_layer_t* layer = rabbet_conditional_condition(conditional);
  const rabbet_tensor_t* condition = layer->inputs[0];
  if (!condition->producer ||
      !split_inside(split, c)[condition->producer->index])
    return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                       "condition '%s' of conditional '%s' is made inside of "
                       "it; compute it from "
                       "tensors outside, not from the results of add_input",
                       condition->name, conditional->name);
}

// Whether an assertion or debug tensor is inside.
static bool split_is_watched(const split_t* split, size_t c) {
  const rabbet_network_t* from = split->from;
  const bool* inside = split_inside(split, c);
  for (size_t i = 0; i < from->checks.count; ++i) {
    const rabbet_layer_t* layer = from->checks.data[i].tensor->producer;
    if (layer && inside[layer->index]) return true;
  }
  for (size_t i = 0; i < from->tensors.count; ++i) {
    const rabbet_tensor_t* tensor = from->tensors.data[i];
    if (tensor->is_debug && tensor->producer && inside[tensor->producer->index])
      return true;
  }
  return false;
}

static rabbet_status_t split_check_watched(const split_t* split, size_t c) {
  const rabbet_conditional_t* conditional = split->from->conditionals.data[c];
  if (!split_is_watched(split, c) || split_has_outputs(split, conditional))
    return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                       "conditional '%s' has assertions or debug tensors "
                       "inside, but no output (add_output): nothing runs its "
                       "branches",
                       conditional->name);
}

static rabbet_status_t split_regions(split_t* split) {
  const rabbet_network_t* from = split->from;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate_array(&split->arena, split->count * split->layers,
                                  sizeof(bool), (void**)&split->inside));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &split->arena, split->count, sizeof(bool), (void**)&split->is_watched));
  for (size_t c = 0; c < split->count; ++c) {
    if (!rabbet_conditional_condition(from->conditionals.data[c]))
      return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                           "conditional '%s' has no condition; give it one "
                           "with set_condition",
                           from->conditionals.data[c]->name);
    split_mark(split, c);
    split->is_watched[c] = split_is_watched(split, c);
    RABBET_RETURN_IF_ERROR(split_check_condition(split, c));
    RABBET_RETURN_IF_ERROR(split_check_outputs(split, c));
    RABBET_RETURN_IF_ERROR(split_check_watched(split, c));
  }
  return rabbet_ok();
}

// A small tensor computed from constants is computed again in each branch,
// since shapes there may depend on it and its weights may be refitted.
static bool split_is_computed(const rabbet_tensor_t* tensor) {
  return tensor->constant && tensor->producer &&
         !tensor->producer->conditional &&
         !split_is(tensor->producer, RABBET_OP_CONSTANT);
}

static void split_need_tensor(const bool* inside, const rabbet_tensor_t* tensor,
                              bool* needed, bool* changed) {
  const rabbet_layer_t* layer = tensor ? tensor->producer : NULL;
  if (!layer || needed[layer->index]) return;
  if (!inside[layer->index] && !split_is_computed(tensor)) return;
  needed[layer->index] = *changed = true;
}

// Marks the layers inside of a conditional that a tensor needs.
static void split_need(const split_t* split, const bool* inside,
                       const rabbet_tensor_t* tensor, bool* needed) {
  bool changed = false;
  split_need_tensor(inside, tensor, needed, &changed);
  while (changed) {
    changed = false;
    for (size_t i = split->layers; i-- > 0;) {
      const rabbet_layer_t* layer = split->from->layers.data[i];
      if (!needed[i]) continue;
      for (size_t k = 0; k < layer->input_count; ++k)
        split_need_tensor(inside, layer->inputs[k], needed, &changed);
      if (layer->conditional) {
        const rabbet_layer_t* condition =
            rabbet_conditional_condition(layer->conditional);
        changed |= inside[condition->index] && !needed[condition->index];
        needed[condition->index] |= inside[condition->index];
      }
    }
  }
}

// ---- A branch --------------------------------------------------------------

typedef struct branch_t {
  split_t* split;
  const rabbet_conditional_t* conditional;
  const bool* inside;
  bool* needed;  // [layer of `from`]
  rabbet_unroll_body_t body;
} branch_t;

static rabbet_status_t branch_layer(branch_t* branch,
                                    const rabbet_layer_t* layer) {
  return layer->conditional == branch->conditional
             ? rabbet_ok()
             : rabbet_unroll_body_layer(&branch->body, layer);
}

static bool split_is_output_of(const rabbet_layer_t* layer,
                               const rabbet_conditional_t* conditional) {
  return layer->conditional == conditional &&
         split_is(layer, RABBET_OP_CONDITIONAL_OUTPUT);
}

static void branch_need_outputs(const branch_t* branch, size_t side) {
  const split_t* split = branch->split;
  for (size_t i = 0; i < split->layers; ++i) {
    const rabbet_layer_t* layer = split->from->layers.data[i];
    if (split_is_output_of(layer, branch->conditional))
      split_need(split, branch->inside, layer->inputs[side], branch->needed);
  }
}

static rabbet_status_t branch_checks(branch_t* branch) {
  const rabbet_network_t* from = branch->split->from;
  rabbet_network_t* made = branch->body.made;
  for (size_t i = 0; i < from->checks.count; ++i) {
    rabbet_network_check_t check = from->checks.data[i];
    const rabbet_layer_t* layer = check.tensor->producer;
    if (!layer || !branch->needed[layer->index] ||
        !branch->inside[layer->index])
      continue;
    RABBET_RETURN_IF_ERROR(
        rabbet_unroll_body_get(&branch->body, check.tensor, &check.tensor));
    RABBET_RETURN_IF_ERROR(
        RABBET_VEC_PUSH(made->allocator, &made->checks, check));
  }
  return rabbet_ok();
}

static rabbet_status_t branch_fill(branch_t* branch, size_t side) {
  split_t* split = branch->split;
  rabbet_network_t* from = split->from;
  for (size_t i = 0; i < split->layers; ++i)
    if (branch->needed[i])
      RABBET_RETURN_IF_ERROR(branch_layer(branch, from->layers.data[i]));
  for (size_t i = 0; i < split->layers; ++i)
    if (split_is_output_of(from->layers.data[i], branch->conditional))
      RABBET_RETURN_IF_ERROR(rabbet_unroll_body_output(
          &branch->body, from->layers.data[i]->inputs[side],
          from->layers.data[i]->name));
  return branch_checks(branch);
}

static rabbet_status_t branch_begin(branch_t* branch, size_t side) {
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate_array(&branch->split->arena, branch->split->layers,
                                  sizeof(bool), (void**)&branch->needed));
  branch_need_outputs(branch, side);
  return rabbet_ok();
}

static rabbet_status_t branch_make(branch_t* branch, size_t side) {
  rabbet_status_t status = rabbet_unroll_body_begin(&branch->body);
  if (rabbet_is_ok(status)) status = branch_fill(branch, side);
  if (rabbet_is_ok(status)) status = rabbet_unroll_body_finish(&branch->body);
  return RABBET_ANNOTATE(status, "conditional '%s', where it is %s",
                         branch->conditional->name,
                         side == 0 ? "true" : "false");
}

// ---- The layer in its place ------------------------------------------------

typedef struct choice_t {
  const rabbet_conditional_t* conditional;
  branch_t branches[2];
  rabbet_tensor_t** inputs;  // of the layer, tensors of `from`
  size_t input_count;
} choice_t;

static rabbet_status_t choice_list_inputs(choice_t* choice, split_t* split,
                                          rabbet_bodies_t* out_bodies) {
  static const char* const names[] = {"true", "false"};
  size_t most = 1;
  for (size_t k = 0; k < 2; ++k)
    most += choice->branches[k].body.captured_count;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &split->arena, most, sizeof(*choice->inputs), (void**)&choice->inputs));
  choice->inputs[choice->input_count++] =
      rabbet_conditional_condition(choice->conditional)->inputs[0];
  for (size_t k = 0; k < 2; ++k)
    RABBET_RETURN_IF_ERROR(rabbet_unroll_body_list_inputs(
        &choice->branches[k].body, names[k], &split->to->arena, 1,
        choice->inputs, &choice->input_count, &out_bodies->list[k]));
  return rabbet_ok();
}

static rabbet_status_t choice_add(choice_t* choice, split_t* split,
                                  const rabbet_bodies_t* bodies) {
  rabbet_network_t* from = split->from;
  rabbet_layer_t* layer = NULL;
  size_t count = 0;
  rabbet_tensor_t** inputs = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &split->arena, choice->input_count, sizeof(*inputs), (void**)&inputs));
  for (size_t i = 0; i < choice->input_count; ++i)
    inputs[i] = split->map[choice->inputs[i]->id];
  for (size_t i = 0; i < split->layers; ++i)
    count += split_is_output_of(from->layers.data[i], choice->conditional);
  RABBET_RETURN_IF_ERROR(rabbet_network_add_bodies(
      split->to, rabbet_conditional_condition(choice->conditional)->name,
      inputs, choice->input_count, count, bodies, &layer));
  count = 0;
  for (size_t i = 0; i < split->layers; ++i) {
    const rabbet_layer_t* output = from->layers.data[i];
    if (!split_is_output_of(output, choice->conditional)) continue;
    RABBET_RETURN_IF_ERROR(rabbet_tensor_copy_wishes(layer->outputs[count],
                                                     output->outputs[0], ""));
    layer->outputs[count]->wished_dtype = RABBET_DTYPE_NONE;
    split->map[output->outputs[0]->id] = layer->outputs[count++];
    split->done[i] = true;
  }
  return rabbet_ok();
}

// Whether all tensors are made that the conditional reads from outside.
static bool split_has_captures(const split_t* split,
                               const rabbet_conditional_t* conditional) {
  size_t c = split_index(split->from, conditional);
  const bool* inside = split_inside(split, c);
  for (size_t i = 0; i < split->layers; ++i) {
    const rabbet_layer_t* layer = split->from->layers.data[i];
    if (!inside[i] && layer->conditional != conditional) continue;
    for (size_t k = 0; k < layer->input_count; ++k) {
      const rabbet_tensor_t* input = layer->inputs[k];
      if (!input || (input->producer && inside[input->producer->index]))
        continue;
      if (!split->map[input->id]) return false;
    }
  }
  return true;
}

// ---- Assertions and debug tensors ------------------------------------------

static bool choice_reads(const choice_t* choice, size_t side,
                         const bool* layers, size_t count) {
  const bool* inside = choice->branches[0].inside;
  const bool* own = choice->branches[side].needed;
  const bool* other = choice->branches[1 - side].needed;
  for (size_t i = 0; i < count; ++i)
    if (inside[i] && layers[i] && own[i] && !other[i]) return true;
  return false;
}

// No output needs a watched tensor. It belongs to the branch whose layers it
// reads, or to both if it reads layers of neither.
static rabbet_status_t choice_watch(const choice_t* choice, split_t* split,
                                    const char* what,
                                    const rabbet_tensor_t* tensor) {
  const bool* inside = choice->branches[0].inside;
  const rabbet_layer_t* layer = tensor->producer;
  bool* layers = NULL;
  if (!layer || !inside[layer->index]) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &split->arena, split->layers, sizeof(bool), (void**)&layers));
  split_need(split, inside, tensor, layers);
  bool reads[2];
  for (size_t k = 0; k < 2; ++k)
    reads[k] = choice_reads(choice, k, layers, split->layers);
  if (reads[0] && reads[1])
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "conditional '%s': %s '%s' reads tensors of both "
                         "branches, of which one runs",
                         choice->conditional->name, what, tensor->name);
  for (size_t k = 0; k < 2; ++k)
    if (!reads[1 - k])
      split_need(split, inside, tensor, choice->branches[k].needed);
  return rabbet_ok();
}

static rabbet_status_t choice_watch_all(const choice_t* choice,
                                        split_t* split) {
  const rabbet_network_t* from = split->from;
  for (size_t i = 0; i < from->checks.count; ++i)
    RABBET_RETURN_IF_ERROR(choice_watch(choice, split, "the asserted condition",
                                        from->checks.data[i].tensor));
  for (size_t i = 0; i < from->tensors.count; ++i)
    if (from->tensors.data[i]->is_debug)
      RABBET_RETURN_IF_ERROR(
          choice_watch(choice, split, "debug tensor", from->tensors.data[i]));
  return rabbet_ok();
}

// ---- The choice -------------------------------------------------------------

static rabbet_status_t split_choose(split_t* split,
                                    const rabbet_conditional_t* conditional) {
  choice_t choice = {.conditional = conditional};
  rabbet_bodies_t bodies = {.name = conditional->name, .count = 2};
  size_t c = split_index(split->from, conditional);
  rabbet_status_t status = rabbet_ok();
  for (size_t k = 0; k < 2 && rabbet_is_ok(status); ++k) {
    choice.branches[k] = (branch_t){.split = split,
                                    .conditional = conditional,
                                    .inside = split_inside(split, c),
                                    .body = {.arena = &split->arena,
                                             .allocator = split->allocator,
                                             .from = split->from,
                                             .conditional = conditional}};
    status = branch_begin(&choice.branches[k], k);
  }
  if (rabbet_is_ok(status)) status = choice_watch_all(&choice, split);
  for (size_t k = 0; k < 2 && rabbet_is_ok(status); ++k)
    status = branch_make(&choice.branches[k], k);
  if (rabbet_is_ok(status))
    status = choice_list_inputs(&choice, split, &bodies);
  if (rabbet_is_ok(status)) status = choice_add(&choice, split, &bodies);
  for (size_t k = 0; k < 2; ++k)
    rabbet_network_release(choice.branches[k].body.made);
  return status;
}

// ---- Layers outside --------------------------------------------------------

static rabbet_status_t split_copy(split_t* split, const rabbet_layer_t* layer) {
  rabbet_tensor_t** inputs = NULL;
  rabbet_layer_t* copy = NULL;
  for (size_t i = 0; i < layer->input_count; ++i)
    if (layer->inputs[i] && !split->map[layer->inputs[i]->id])
      return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &split->arena, layer->input_count, sizeof(*inputs), (void**)&inputs));
  for (size_t i = 0; i < layer->input_count; ++i)
    if (layer->inputs[i]) inputs[i] = split->map[layer->inputs[i]->id];
  split->done[layer->index] = true;
  RABBET_RETURN_IF_ERROR(
      rabbet_network_copy_layer(split->to, layer, "", inputs, &copy));
  for (size_t i = 0; i < layer->output_count; ++i)
    split->map[layer->outputs[i]->id] = copy->outputs[i];
  return rabbet_ok();
}

// With a known condition, the tensor behind an input or output stands for it.
static rabbet_status_t split_pass(split_t* split, const rabbet_layer_t* layer,
                                  size_t input) {
  rabbet_layer_t* copy = NULL;
  rabbet_tensor_t* tensor = split->map[layer->inputs[input]->id];
  if (!tensor) return rabbet_ok();
  split->done[layer->index] = true;
  RABBET_RETURN_IF_ERROR(rabbet_network_add_layer(
      split->to, "identity", layer->name, &tensor, 1, NULL, 0, &copy));
  split->map[layer->outputs[0]->id] = copy->outputs[0];
  return rabbet_tensor_copy_wishes(copy->outputs[0], layer->outputs[0], "");
}

static bool split_is_inside(const split_t* split, size_t layer) {
  for (size_t c = 0; c < split->count; ++c)
    if (split_inside(split, c)[layer]) return true;
  return false;
}

static rabbet_status_t split_layer(split_t* split,
                                   const rabbet_layer_t* layer) {
  const rabbet_conditional_t* conditional = layer->conditional;
  if (!conditional) return split_copy(split, layer);
  const rabbet_layer_t* condition = rabbet_conditional_condition(conditional);
  const uint8_t* known =
      split->is_watched[split_index(split->from, conditional)]
          ? NULL
          : condition->inputs[0]->constant;
  if (split_is(layer, RABBET_OP_CONDITION)) {
    split->done[layer->index] = true;
    return rabbet_ok();
  }
  if (known)
    return split_pass(split, layer,
                      split_is(layer, RABBET_OP_CONDITIONAL_OUTPUT) && !*known);
  return split_has_captures(split, conditional)
             ? split_choose(split, conditional)
             : rabbet_ok();
}

// Layers inside of a conditional with a constant condition are outside of any.
static void split_open_known(const split_t* split) {
  for (size_t c = 0; c < split->count; ++c) {
    const rabbet_layer_t* condition =
        rabbet_conditional_condition(split->from->conditionals.data[c]);
    if (condition->inputs[0]->constant && !split->is_watched[c])
      memset(split_inside(split, c), 0, split->layers);
  }
}

static rabbet_status_t split_layers(split_t* split) {
  const rabbet_layer_t* waiting = NULL;
  for (bool progress = true; progress;) {
    progress = false;
    waiting = NULL;
    for (size_t i = 0; i < split->layers; ++i) {
      const rabbet_layer_t* layer = split->from->layers.data[i];
      if (split->done[i] || split_is_inside(split, i)) continue;
      RABBET_RETURN_IF_ERROR(split_layer(split, layer));
      progress |= split->done[i];
      if (!split->done[i] && !waiting) waiting = layer;
    }
  }
  if (!waiting) return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                       "layer '%s' (%s) needs a result of a conditional that "
                       "itself needs the layer; that would be a cycle",
                       waiting->name, waiting->op->name);
}

// Assertions outside; those inside of conditionals went into branches.
static rabbet_status_t split_checks(split_t* split) {
  const rabbet_network_t* from = split->from;
  for (size_t i = 0; i < from->checks.count; ++i) {
    rabbet_network_check_t check = from->checks.data[i];
    check.tensor = split->map[check.tensor->id];
    if (check.tensor)
      RABBET_RETURN_IF_ERROR(
          RABBET_VEC_PUSH(split->to->allocator, &split->to->checks, check));
  }
  return rabbet_ok();
}

static rabbet_status_t split_all(split_t* split) {
  rabbet_network_t* from = split->from;
  RABBET_RETURN_IF_ERROR(split_regions(split));
  split_open_known(split);
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate_array(&split->arena, from->tensors.count,
                                  sizeof(*split->map), (void**)&split->map));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &split->arena, split->layers, sizeof(bool), (void**)&split->done));
  for (size_t i = 0; i < from->tensors.count; ++i) {
    const rabbet_tensor_t* tensor = from->tensors.data[i];
    if (tensor->kind == RABBET_TENSOR_LAYER) continue;
    RABBET_RETURN_IF_ERROR(
        rabbet_unroll_copy_source(split->to, tensor, &split->map[i]));
  }
  RABBET_RETURN_IF_ERROR(split_layers(split));
  for (size_t i = 0; i < from->outputs.count; ++i)
    RABBET_RETURN_IF_ERROR(rabbet_network_mark_output(
        split->to, split->map[from->outputs.data[i]->id]));
  RABBET_RETURN_IF_ERROR(split_checks(split));
  return rabbet_network_infer(split->to);
}

rabbet_status_t rabbet_unroll_split(rabbet_network_t* network,
                                    rabbet_allocator_t allocator,
                                    bool is_branch,
                                    rabbet_network_t** out_network) {
  *out_network = NULL;
  if (network->conditionals.count == 0) {
    RABBET_RETURN_IF_ERROR(
        rabbet_network_finish_assertions(network, is_branch));
    rabbet_network_retain(network);
    *out_network = network;
    return rabbet_ok();
  }
  split_t split = {.from = network,
                   .allocator = allocator,
                   .layers = network->layers.count,
                   .count = network->conditionals.count};
  RABBET_RETURN_IF_ERROR(rabbet_network_infer(network));
  RABBET_RETURN_IF_ERROR(
      rabbet_network_copy_empty(network, allocator, &split.to));
  rabbet_arena_initialize(allocator, &split.arena);
  rabbet_status_t status = split_all(&split);
  rabbet_arena_deinitialize(&split.arena);
  if (rabbet_is_ok(status))
    status = rabbet_network_finish_assertions(split.to, is_branch);
  if (rabbet_is_ok(status))
    *out_network = split.to;
  else
    rabbet_network_release(split.to);
  return status;
}

rabbet_status_t rabbet_network_split_branches(rabbet_network_t* network,
                                              rabbet_allocator_t allocator,
                                              rabbet_network_t** out_network) {
  return rabbet_unroll_split(network, allocator, false, out_network);
}
