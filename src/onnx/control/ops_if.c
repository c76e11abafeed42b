// If: one branch, known at import or chosen in a run.
#include <string.h>

#include "onnx/control/list.h"
#include "onnx/held.h"
#include "onnx/operators.h"

static rabbet_status_t onnx_branch_nodes(rabbet_onnx_node_t* node,
                                         const Onnx__GraphProto* graph,
                                         rabbet_onnx_scope_t* scope,
                                         rabbet_tensor_t** outputs) {
  RABBET_RETURN_IF_ERROR(rabbet_onnx_scope_enter(scope, graph));
  RABBET_RETURN_IF_ERROR(rabbet_onnx_import_nodes(scope));
  if (graph->n_output < node->output_count) {
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "the branch has %zu outputs, but the node %zu",
                         graph->n_output, node->output_count);
  }
  for (size_t i = 0; i < node->output_count; ++i) {
    const char* name = graph->output[i]->name;
    RABBET_RETURN_IF_ERROR(
        rabbet_onnx_scope_lookup(scope, name ? name : "", &outputs[i]));
  }
  return rabbet_ok();
}

// `conditional` NULL: the condition is known.
static void onnx_branch(rabbet_onnx_node_t* node, bool holds,
                        rabbet_conditional_t* conditional,
                        rabbet_tensor_t** outputs) {
  if (!rabbet_onnx_ok(node)) return;
  const Onnx__GraphProto* graph =
      rabbet_onnx_attr_graph(node, holds ? "then_branch" : "else_branch");
  if (!graph || node->scope->depth >= RABBET_ONNX_MAX_SCOPES) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "the branch is missing, or nested over %d deep",
                     RABBET_ONNX_MAX_SCOPES);
    return;
  }
  rabbet_onnx_scope_t scope;
  rabbet_onnx_scope_initialize(node->importer, node->scope, &scope);
  scope.conditional = conditional;
  // Each branch has a scope of its own: both may use one name for different
  // tensors.
  rabbet_onnx_fail(node, rabbet_arena_printf(&node->importer->arena,
                                             &scope.prefix, "%s/%s", node->name,
                                             !conditional ? ""
                                             : holds      ? "then/"
                                                          : "else/"));
  rabbet_onnx_fail(node, onnx_branch_nodes(node, graph, &scope, outputs));
  rabbet_onnx_scope_deinitialize(&scope);
}

// The condition may have axes of one element.
static rabbet_tensor_t* onnx_condition(rabbet_onnx_node_t* node,
                                       rabbet_tensor_t* x) {
  int rank = rabbet_onnx_rank(node, x);
  rabbet_dims_t dims = rabbet_onnx_dims(node, x);
  for (int32_t i = 0; rabbet_onnx_ok(node) && i < dims.rank; ++i)
    if (dims.d[i] > 1)
      RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                       "the condition ('%s') has %lld elements; expected one",
                       rabbet_tensor_name(x), (long long)dims.d[i]);
  return rank > 0 && rabbet_onnx_ok(node)
             ? rabbet_onnx_squeeze(node, x, (1u << rank) - 1)
             : x;
}

// ---- In a run --------------------------------------------------------------

typedef struct onnx_choice_t {
  rabbet_onnx_node_t* node;
  rabbet_conditional_t* conditional;
  rabbet_tensor_t* condition;
  // The branch that each run must take, as the other's outputs have other
  // ranks: 0 or 1, or -1 if runs may take both.
  int only;
} onnx_choice_t;

// Whether a constant stands for a value that is not used after the branch, as
// torch exports scripts that leave a loop early: a zero without axes.
static bool onnx_is_placeholder(rabbet_onnx_node_t* node, rabbet_tensor_t* x) {
  double number = 1;
  return rabbet_onnx_rank(node, x) == 0 &&
         rabbet_onnx_constant_number(node, x, &number) && number == 0;
}

// In the shape of the other branch's value, as far as that is known: an extent
// of 1 broadcasts as the scalar does.
static rabbet_tensor_t* onnx_placeholder_like(rabbet_onnx_node_t* node,
                                              rabbet_tensor_t* x,
                                              rabbet_tensor_t* other) {
  rabbet_onnx_index_t extents[RABBET_MAX_RANK];
  rabbet_dims_t dims = rabbet_onnx_dims(node, other);
  for (int32_t i = 0; i < dims.rank; ++i)
    extents[i] = rabbet_onnx_index(dims.d[i] < 0 ? 1 : dims.d[i]);
  rabbet_tensor_t* zero =
      rabbet_onnx_number(node, rabbet_onnx_dtype_of(node, x), dims.rank, 0);
  return rabbet_onnx_spread(node, zero, extents, dims.rank);
}

static void onnx_match_placeholders(rabbet_onnx_node_t* node,
                                    rabbet_tensor_t** of) {
  for (int k = 0; k < 2 && rabbet_onnx_ok(node); ++k)
    if (rabbet_onnx_rank(node, of[1 - k]) > 0 &&
        onnx_is_placeholder(node, of[k]))
      of[k] = onnx_placeholder_like(node, of[k], of[1 - k]);
}

// A flag that one branch gives as a scalar and the other as a vector, as torch
// exports `a and b` of conditions: both as scalars. A vector that has not one
// element fails in the run.
static void onnx_match_flags(rabbet_onnx_node_t* node, rabbet_tensor_t** of) {
  int ranks[2];
  for (int k = 0; k < 2; ++k) {
    ranks[k] = rabbet_onnx_rank(node, of[k]);
    if (!rabbet_onnx_ok(node) || ranks[k] > 1 ||
        rabbet_onnx_dtype_of(node, of[k]) != RABBET_DTYPE_BOOL)
      return;
  }
  for (int k = 0; k < 2; ++k)
    if (ranks[k] > ranks[1 - k])
      of[k] = rabbet_onnx_reshape(node, of[k], NULL, 0);
}

// The usual extents of inputs as values of symbols.
static void onnx_usual_symbols(const rabbet_onnx_importer_t* importer,
                               int64_t* symbols, bool* known) {
  const rabbet_network_t* network = importer->network;
  for (int32_t i = 0; i < (int32_t)rabbet_network_input_count(network); ++i) {
    const rabbet_tensor_t* input = rabbet_network_input(network, (size_t)i);
    for (size_t k = 0; k < importer->usual_count; ++k) {
      const rabbet_onnx_input_t* usual = &importer->usual_inputs[k];
      if (!usual->name || usual->dims.rank != input->shape.rank ||
          strcmp(usual->name, rabbet_tensor_name(input)) != 0)
        continue;
      for (int32_t axis = 0; axis < usual->dims.rank; ++axis) {
        const rabbet_expr_node_t* extent =
            rabbet_expr_node(network->graph, input->shape.d[axis]);
        if (extent->op != RABBET_EXPR_SYMBOL || usual->dims.d[axis] < 0)
          continue;
        symbols[extent->a] = usual->dims.d[axis];
        known[extent->a] = true;
      }
    }
  }
}

// The branch that runs of the usual extents take: 0 or 1, or -1 if they do not
// tell.
static int onnx_usual_branch(rabbet_onnx_node_t* node,
                             rabbet_tensor_t* condition) {
  rabbet_onnx_importer_t* importer = node->importer;
  const rabbet_expr_graph_t* graph = importer->network->graph;
  if (importer->usual_count == 0) return -1;
  rabbet_onnx_fail(node, rabbet_network_infer(importer->network));
  if (!rabbet_onnx_ok(node) || !condition->values || condition->denominators ||
      condition->value_count != 1)
    return -1;
  const size_t count = rabbet_expr_node_count(graph);
  const size_t symbol_count = rabbet_expr_symbol_count(graph);
  int64_t *values = NULL, *symbols = NULL;
  bool *valid = NULL, *known = NULL;
  rabbet_arena_t* arena = &importer->arena;
  const struct {
    size_t count, size;
    void** room;
  } rooms[] = {{count, sizeof(*values), (void**)&values},
               {count, sizeof(*valid), (void**)&valid},
               {symbol_count, sizeof(*symbols), (void**)&symbols},
               {symbol_count, sizeof(*known), (void**)&known}};
  for (size_t i = 0; i < sizeof(rooms) / sizeof(rooms[0]); ++i)
    rabbet_onnx_fail(
        node, rabbet_arena_allocate_array(arena, rooms[i].count, rooms[i].size,
                                          rooms[i].room));
  if (!rabbet_onnx_ok(node)) return -1;
  onnx_usual_symbols(importer, symbols, known);
  for (size_t i = 0; i < count; ++i) {
    const rabbet_expr_node_t* expr = rabbet_expr_node(graph, (rabbet_expr_t)i);
    valid[i] = (expr->op != RABBET_EXPR_SYMBOL || known[expr->a]) &&
               rabbet_expr_evaluate_node(graph, (rabbet_expr_t)i, symbols,
                                         values, valid);
  }
  const rabbet_expr_t told = condition->values[0];
  return !valid[told] ? -1 : values[told] != 0 ? 0 : 1;
}

// Of two ranks, that of runs of the usual extents is imported, or else the
// lower one, as exporters take it for the nodes behind (torch's Squeeze of an
// extent that varies); a run that takes the other branch fails.
static void onnx_match_ranks(onnx_choice_t* choice, rabbet_tensor_t** of) {
  rabbet_onnx_node_t* node = choice->node;
  const int ranks[] = {rabbet_onnx_rank(node, of[0]),
                       rabbet_onnx_rank(node, of[1])};
  if (!rabbet_onnx_ok(node) || ranks[0] == ranks[1]) return;
  if (node->importer->refuses_open_ranks) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "the rank of a result is open: the then_branch gives %d, "
                     "the else_branch %d",
                     ranks[0], ranks[1]);
    return;
  }
  int kept = onnx_usual_branch(node, choice->condition);
  if (!rabbet_onnx_ok(node)) return;
  if (kept < 0) kept = ranks[0] < ranks[1] ? 0 : 1;
  if (choice->only == 1 - kept) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "of one output the then_branch has the lower rank, of "
                     "another the else_branch; the condition ('%s') must be "
                     "constant for that",
                     node->proto->input[0]);
    return;
  }
  of[1 - kept] = onnx_placeholder_like(node, of[1 - kept], of[kept]);
  if (choice->only == kept) return;
  choice->only = kept;
  rabbet_log(node->importer->network->logger, RABBET_SEVERITY_WARNING,
             "node '%s' (If) gives rank %d if its condition ('%s') is true, "
             "and %d if not; rank %d is imported, and runs in which the "
             "condition is %s fail",
             node->name, ranks[0], node->proto->input[0], ranks[1], ranks[kept],
             kept == 0 ? "false" : "true");
  const char* message = NULL;
  rabbet_onnx_fail(
      node, rabbet_arena_printf(
                &node->importer->arena, &message,
                "the condition of node '%s' (If) is %s, so its result has rank "
                "%d; rank %d was imported: fix the extents on which the "
                "condition depends in the model, or run others",
                node->name, kept == 0 ? "false" : "true", ranks[1 - kept],
                ranks[kept]));
  if (!rabbet_onnx_ok(node)) return;
  rabbet_onnx_assert(node,
                     kept == 0
                         ? choice->condition
                         : rabbet_onnx_unary(node, "NOT", choice->condition),
                     message);
}

static rabbet_tensor_t* onnx_chosen(onnx_choice_t* choice,
                                    rabbet_tensor_t* const of[2]) {
  rabbet_onnx_node_t* node = choice->node;
  rabbet_layer_t* layer = NULL;
  rabbet_tensor_t* results[] = {of[0], of[1]};
  if (!node->importer->refuses_open_ranks) {
    onnx_match_flags(node, results);
    onnx_match_placeholders(node, results);
  }
  onnx_match_ranks(choice, results);
  if (!rabbet_onnx_ok(node)) return NULL;
  rabbet_onnx_fail(
      node, rabbet_conditional_add_output(choice->conditional, results[0],
                                          results[1], &layer));
  if (!rabbet_onnx_ok(node)) return NULL;
  rabbet_tensor_t* output = rabbet_layer_output(layer, 0);
  rabbet_onnx_hold_like(node, output, of[0]);
  // Fails if the types or shapes of the branches do not match.
  rabbet_onnx_dims(node, output);
  return output;
}

// Of an empty sequence, in the form and shape of the other branch's.
static rabbet_onnx_told_t onnx_nothing_like(rabbet_onnx_node_t* node,
                                            rabbet_onnx_told_t other) {
  rabbet_dims_t dims = rabbet_onnx_dims(node, other.tensor);
  const rabbet_dims_t none = {.rank = 1};
  int64_t count = 0;
  if (rabbet_onnx_ok(node)) dims.d[other.axis] = 0;
  for (int32_t i = 0; i < dims.rank; ++i)
    if (dims.d[i] < 0)
      RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                       "one branch gives an empty sequence, the other tensors "
                       "whose extent %d is not known at import",
                       i);
  rabbet_dtype_t dtype = rabbet_onnx_dtype_of(node, other.tensor);
  rabbet_onnx_told_t made = {.axis = other.axis};
  void* room = rabbet_onnx_weights_room(node, dtype, &dims, &count);
  if (room) made.tensor = rabbet_onnx_weights(node, dtype, room, &dims);
  if (room) rabbet_onnx_hold_like(node, made.tensor, other.tensor);
  if (!other.ends) return made;
  room = rabbet_onnx_weights_room(node, RABBET_DTYPE_INT64, &none, &count);
  if (room)
    made.ends = rabbet_onnx_weights(node, RABBET_DTYPE_INT64, room, &none);
  return made;
}

// A list whose beginning its loop has cannot be chosen; the loop carries it
// when it imports its body again.
static bool onnx_reads_rest(const rabbet_onnx_list_t* list) {
  if (list->rest) list->rest->is_read = true;
  return list->rest != NULL;
}

// A sequence that one of the branches makes.
static rabbet_tensor_t* onnx_chosen_list(
    onnx_choice_t* choice, const rabbet_onnx_list_t* const of[2]) {
  rabbet_onnx_node_t* node = choice->node;
  bool rest[] = {onnx_reads_rest(of[0]), onnx_reads_rest(of[1])};
  rabbet_onnx_told_t told[2] = {{0}, {0}};
  rabbet_onnx_list_t* list = rabbet_onnx_list_make(node, of[0]->dtype, 0);
  if (!list) return NULL;
  if (rest[0] || rest[1]) {
    list->rest = of[rest[0] ? 0 : 1]->rest;
    return rabbet_onnx_list_handle(list);
  }
  bool empty[2];
  for (int k = 0; k < 2; ++k) {
    empty[k] = !of[k]->told.tensor && of[k]->count == 0;
    if (!empty[k]) told[k] = rabbet_onnx_list_told_alone(node, of[k]);
  }
  if (empty[0] && empty[1]) return rabbet_onnx_list_handle(list);
  for (int k = 0; k < 2; ++k)
    if (empty[k]) told[k] = onnx_nothing_like(node, told[1 - k]);
  for (int k = 0; k < 2; ++k)
    if (told[1 - k].ends)
      told[k] = rabbet_onnx_told_joined(node, told[k], told[1 - k].axis);
  if (rabbet_onnx_ok(node) && told[0].axis != told[1].axis)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "the tensors of one branch's sequence differ in shape "
                     "along another axis than those of the other's");
  list->told.axis = told[0].axis;
  list->told.tensor =
      onnx_chosen(choice, (rabbet_tensor_t*[]){told[0].tensor, told[1].tensor});
  if (told[0].ends)
    list->told.ends =
        onnx_chosen(choice, (rabbet_tensor_t*[]){told[0].ends, told[1].ends});
  return rabbet_onnx_list_handle(list);
}

static rabbet_tensor_t* onnx_result(onnx_choice_t* choice, size_t index,
                                    rabbet_tensor_t* const of[2]) {
  rabbet_onnx_node_t* node = choice->node;
  const rabbet_onnx_list_t* lists[] = {rabbet_onnx_list(of[0]),
                                       rabbet_onnx_list(of[1])};
  if (!lists[0] && !lists[1]) return onnx_chosen(choice, of);
  if (lists[0] && lists[1] && !lists[0]->is_optional && !lists[1]->is_optional)
    return onnx_chosen_list(choice, lists);
  RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                   "output %zu ('%s') is an optional value, or a sequence in "
                   "one branch alone; the condition ('%s') must be constant "
                   "for those",
                   index, node->proto->output[index], node->proto->input[0]);
  return NULL;
}

static void onnx_choose(rabbet_onnx_node_t* node, rabbet_tensor_t* condition) {
  rabbet_tensor_t** results[2] = {NULL, NULL};
  onnx_choice_t choice = {.node = node, .only = -1};
  rabbet_layer_t* layer = NULL;
  condition = onnx_condition(node, condition);
  if (!rabbet_onnx_ok(node)) return;
  choice.condition = condition;
  rabbet_onnx_fail(
      node, rabbet_network_add_conditional(node->importer->network, node->name,
                                           &choice.conditional));
  if (rabbet_onnx_ok(node))
    rabbet_onnx_fail(node, rabbet_conditional_set_condition(choice.conditional,
                                                            condition, &layer));
  for (int k = 0; k < 2; ++k) {
    rabbet_onnx_fail(node, rabbet_arena_allocate_array(
                               &node->importer->arena, node->output_count,
                               sizeof(**results), (void**)&results[k]));
    onnx_branch(node, k == 0, choice.conditional, results[k]);
  }
  for (size_t i = 0; i < node->output_count && rabbet_onnx_ok(node); ++i)
    if (rabbet_onnx_wants(node, i))
      node->outputs[i] = onnx_result(
          &choice, i, (rabbet_tensor_t*[]){results[0][i], results[1][i]});
}

// With a constant condition, only the chosen branch is imported.
static void onnx_import_if(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* condition = rabbet_onnx_required(node, 0);
  rabbet_onnx_ints_t known = rabbet_onnx_try_ints(node, condition);
  if (!rabbet_onnx_ok(node)) return;
  if (known.present && known.count == 1)
    onnx_branch(node, known.data[0] != 0, NULL, node->outputs);
  else
    onnx_choose(node, condition);
}

RABBET_ONNX_OPERATORS(if) = {
    RABBET_ONNX_OP(If, if, "", 1, 11, 13, 16, 19, 21, 23, 24, 25),
    {0},
};
