#include "ortep/support.h"

#include <stdlib.h>
#include <string.h>

#include "ortep/model.h"

// Imports that a graph may cost; parts that are open then are refused.
enum { SUPPORT_MOST_IMPORTS = 400 };

typedef struct support_t {
  const rabbet_ort_graph_t* graph;
  const rabbet_ort_support_options_t* options;
  rabbet_ort_parts_t* parts;
  bool* is_refused;  // of each node
  // Of each node: the number of the part in which it was imported; 0: none.
  uint32_t* accepted;
  RABBET_VEC(size_t) sizes;  // of the parts that were imported, by number - 1
  uint32_t* level;           // of each node (support_find_levels)
  uint32_t* least_reader;    // of each node: the least level of those behind it
  bool* is_fixed;            // of each node: it depends on constants alone
  uint32_t* group;  // of each node: a node of its part, its representative
  int imports;
} support_t;

// ---- Parts without the refused nodes

// The node that makes the value; -1: none of this graph.
static int32_t support_producer(const support_t* support, int32_t value) {
  return value < 0 ? -1 : support->graph->values.data[value].producer;
}

// A level is the number of times that a path to the node came back from refused
// nodes. Nodes of one level have no refused node between them, and parts of one
// level do not depend on each other in both directions.
static void support_find_levels(support_t* support) {
  const rabbet_ort_graph_t* graph = support->graph;
  for (size_t i = 0; i < graph->node_count; ++i) {
    const rabbet_ort_node_t* node = &graph->nodes[i];
    uint32_t level = 0;
    for (size_t j = 0; j < node->read_count; ++j) {
      const int32_t producer = support_producer(support, node->reads[j]);
      if (producer < 0) continue;
      const bool returns =
          support->is_refused[producer] && !support->is_refused[i];
      const uint32_t behind = support->level[producer] + (returns ? 1 : 0);
      if (behind > level) level = behind;
    }
    support->level[i] = level;
  }
}

static bool support_reads_fixed(const support_t* support,
                                const rabbet_ort_node_t* node) {
  for (size_t i = 0; i < node->read_count; ++i) {
    const int32_t value = node->reads[i];
    const int32_t producer = support_producer(support, value);
    if (value >= 0 &&
        !(producer < 0 ? support->graph->values.data[value].constant != NULL
                       : support->is_fixed[producer]))
      return false;
  }
  return true;
}

// Nodes that depend on constants alone (the dequantization of weights) go to
// the first nodes that read them, which then have constants: such a node fits
// into each level up to theirs.
static void support_lift_fixed(support_t* support) {
  const rabbet_ort_graph_t* graph = support->graph;
  for (size_t i = 0; i < graph->node_count; ++i) {
    support->is_fixed[i] = !support->is_refused[i] &&
                           support_reads_fixed(support, &graph->nodes[i]);
    support->least_reader[i] = UINT32_MAX;
  }
  for (size_t i = graph->node_count; i-- > 0;) {
    const rabbet_ort_node_t* node = &graph->nodes[i];
    if (support->is_fixed[i] && support->least_reader[i] != UINT32_MAX)
      support->level[i] = support->least_reader[i];
    for (size_t j = 0; j < node->read_count; ++j) {
      const int32_t producer = support_producer(support, node->reads[j]);
      if (producer >= 0 && support->level[i] < support->least_reader[producer])
        support->least_reader[producer] = support->level[i];
    }
  }
}

static uint32_t support_representative(support_t* support, uint32_t node) {
  while (support->group[node] != node)
    node = support->group[node] = support->group[support->group[node]];
  return node;
}

// Connects nodes of one level along the values between them.
static void support_find_groups(support_t* support) {
  const rabbet_ort_graph_t* graph = support->graph;
  for (uint32_t i = 0; i < graph->node_count; ++i)
    support->group[i] = i;
  for (uint32_t i = 0; i < graph->node_count; ++i) {
    const rabbet_ort_node_t* node = &graph->nodes[i];
    for (size_t j = 0; !support->is_refused[i] && j < node->read_count; ++j) {
      const int32_t producer = support_producer(support, node->reads[j]);
      if (producer < 0 || support->is_refused[producer] ||
          support->level[producer] != support->level[i])
        continue;
      support->group[support_representative(support, i)] =
          support_representative(support, (uint32_t)producer);
    }
  }
}

// ---- Questions

static void support_refuse(support_t* support, uint32_t node,
                           const char* reason) {
  if (support->is_refused[node]) return;
  support->is_refused[node] = true;
  rabbet_log(support->options->logger, RABBET_SEVERITY_VERBOSE,
             "node %u (%s) is left to others: %s", node,
             support->graph->nodes[node].op_type, reason);
}

// The nodes at the border that a value of the wrong kind crosses.
static void support_refuse_port(support_t* support, const uint32_t* nodes,
                                size_t count, int32_t value,
                                const char* reason) {
  for (size_t i = 0; i < count; ++i) {
    const rabbet_ort_node_t* node = &support->graph->nodes[nodes[i]];
    bool is_at_border = false;
    for (size_t j = 0; j < node->read_count; ++j)
      is_at_border |= node->reads[j] == value;
    for (size_t j = 0; j < node->output_count; ++j)
      is_at_border |= node->outputs[j] == value;
    // Of the nodes around an output the one that makes it has to go, as others
    // may read it for good reasons; of those around an input, all.
    const int32_t producer = support->graph->values.data[value].producer;
    bool makes = false;
    for (size_t j = 0; j < count; ++j)
      makes |= (int32_t)nodes[j] == producer;
    if (makes ? (int32_t)nodes[i] == producer : is_at_border)
      support_refuse(support, nodes[i], reason);
  }
}

// Inputs and outputs need a type that plans have, and inputs a known rank.
static bool support_check_ports(support_t* support, const uint32_t* nodes,
                                size_t count, const rabbet_ort_model_t* model) {
  bool is_fine = true;
  const size_t inputs = model->inputs.count;
  for (size_t i = 0; i < inputs + model->outputs.count; ++i) {
    const rabbet_ort_port_t* port =
        i < inputs ? &model->inputs.data[i] : &model->outputs.data[i - inputs];
    const bool has_type = rabbet_ort_dtype(port->type) != RABBET_DTYPE_NONE;
    if (has_type &&
        (i >= inputs || support->graph->values.data[port->value].has_shape))
      continue;
    is_fine = false;
    support_refuse_port(support, nodes, count, port->value,
                        has_type ? "the rank of an input is not known"
                                 : "an input or output has a type that no "
                                   "plan has");
  }
  return is_fine;
}

static void support_read_errors(support_t* support, const uint32_t* nodes,
                                size_t count,
                                const rabbet_onnx_errors_t* errors) {
  for (size_t i = 0; i < rabbet_onnx_errors_count(errors); ++i) {
    const rabbet_onnx_error_t* error = rabbet_onnx_errors_get(errors, i);
    if (error->outer_node >= 0 && (size_t)error->outer_node < count)
      support_refuse(support, nodes[error->outer_node], error->message);
  }
}

static size_t support_count_refused(const support_t* support,
                                    const uint32_t* nodes, size_t count) {
  size_t refused = 0;
  for (size_t i = 0; i < count; ++i)
    refused += support->is_refused[nodes[i]];
  return refused;
}

// Imports; a failure that is not one of memory refuses nodes.
static rabbet_status_t support_import(support_t* support, const uint32_t* nodes,
                                      size_t count,
                                      const rabbet_ort_model_t* model) {
  rabbet_onnx_errors_t* errors = NULL;
  rabbet_network_t* network = NULL;
  int32_t port = -1;
  RABBET_RETURN_IF_ERROR(
      rabbet_onnx_errors_create(support->options->allocator, &errors));
  ++support->imports;
  // Warnings are for the import that a plan is built of.
  rabbet_status_t status =
      rabbet_ort_model_import(model, NULL, support->options->keeps_double,
                              (rabbet_logger_t){0}, errors, &port, &network);
  rabbet_network_release(network);
  if (!rabbet_is_ok(status) &&
      rabbet_status_code(status) != RABBET_STATUS_OUT_OF_MEMORY) {
    const char* reason = rabbet_status_message(status);
    support_read_errors(support, nodes, count, errors);
    if (port >= 0) support_refuse_port(support, nodes, count, port, reason);
    if (!support_count_refused(support, nodes, count))
      for (size_t i = 0; i < count; ++i)
        support_refuse(support, nodes[i], reason);
    rabbet_status_free(status);
    status = rabbet_ok();
  }
  rabbet_onnx_errors_destroy(errors);
  return status;
}

// Accepts the part or refuses one of its nodes or more.
static rabbet_status_t support_ask(support_t* support, const uint32_t* nodes,
                                   size_t count) {
  rabbet_ort_model_t model;
  int32_t refused = -1;
  if (support->imports >= SUPPORT_MOST_IMPORTS ||
      count < support->options->least_nodes) {
    for (size_t i = 0; i < count; ++i)
      support_refuse(support, nodes[i], "its part is too small");
    return rabbet_ok();
  }
  rabbet_status_t status = rabbet_ort_model_initialize(
      support->graph, nodes, count, support->options->allocator, &model,
      &refused);
  if (!rabbet_is_ok(status)) {
    if (refused < 0) return status;
    support_refuse(support, (uint32_t)refused, rabbet_status_message(status));
    rabbet_status_free(status);
    return rabbet_ok();
  }
  if (support_check_ports(support, nodes, count, &model))
    status = support_import(support, nodes, count, &model);
  rabbet_ort_model_deinitialize(&model);
  if (!rabbet_is_ok(status) || support_count_refused(support, nodes, count))
    return status;
  RABBET_RETURN_IF_ERROR(
      RABBET_VEC_PUSH(support->options->allocator, &support->sizes, count));
  for (size_t i = 0; i < count; ++i)
    support->accepted[nodes[i]] = (uint32_t)support->sizes.count;
  return rabbet_ok();
}

// ---- The whole

static rabbet_status_t support_add_part(support_t* support,
                                        const uint32_t* nodes, size_t count) {
  struct rabbet_ort_part_nodes_t part = {.count = count};
  RABBET_RETURN_IF_ERROR(rabbet_arena_copy(&support->parts->arena, nodes,
                                           count * sizeof(*nodes),
                                           (void**)&part.nodes));
  return RABBET_VEC_PUSH(support->options->allocator, &support->parts->list,
                         part);
}

// The nodes of a group, ascending.
static size_t support_members(support_t* support, uint32_t representative,
                              uint32_t* members) {
  size_t count = 0;
  for (uint32_t i = 0; i < support->graph->node_count; ++i)
    if (!support->is_refused[i] &&
        support_representative(support, i) == representative)
      members[count++] = i;
  return count;
}

// Whether these are the nodes of a part that was imported, and no others: a
// refusal elsewhere may have cut it, or added to it.
static bool support_is_accepted(const support_t* support, const uint32_t* nodes,
                                size_t count) {
  const uint32_t part = support->accepted[nodes[0]];
  for (size_t i = 0; i < count; ++i)
    if (support->accepted[nodes[i]] != part) return false;
  return part && support->sizes.data[part - 1] == count;
}

// Asks about each group that is not accepted; true if nodes were refused, after
// which groups are other ones.
static rabbet_status_t support_round(support_t* support, uint32_t* members,
                                     bool* out_again) {
  const size_t node_count = support->graph->node_count;
  *out_again = false;
  support_find_levels(support);
  support_lift_fixed(support);
  support_find_groups(support);
  for (uint32_t i = 0; i < node_count; ++i) {
    if (support->is_refused[i] || support_representative(support, i) != i)
      continue;
    const size_t count = support_members(support, i, members);
    if (support_is_accepted(support, members, count)) continue;
    RABBET_RETURN_IF_ERROR(support_ask(support, members, count));
    if (support_count_refused(support, members, count)) *out_again = true;
  }
  return rabbet_ok();
}

static rabbet_status_t support_find(support_t* support, uint32_t* members) {
  const size_t node_count = support->graph->node_count;
  size_t open = 0;
  for (uint32_t i = 0; i < node_count; ++i) {
    support->is_refused[i] = support->graph->nodes[i].is_taken;
    if (!support->is_refused[i]) members[open++] = i;
  }
  // A graph of several unconnected parts is one plan if it is imported whole.
  if (open == node_count && open) {
    RABBET_RETURN_IF_ERROR(support_ask(support, members, open));
    if (!support_count_refused(support, members, open))
      return support_add_part(support, members, open);
  }
  for (bool again = true; again;)
    RABBET_RETURN_IF_ERROR(support_round(support, members, &again));
  for (uint32_t i = 0; i < node_count; ++i) {
    if (support->is_refused[i] || support_representative(support, i) != i)
      continue;
    RABBET_RETURN_IF_ERROR(support_add_part(
        support, members, support_members(support, i, members)));
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_ort_find_parts(
    const rabbet_ort_graph_t* graph,
    const rabbet_ort_support_options_t* options,
    rabbet_ort_parts_t* out_parts) {
  const size_t count = graph->node_count;
  uint32_t* members = NULL;
  support_t support = {.graph = graph, .options = options, .parts = out_parts};
  *out_parts = (rabbet_ort_parts_t){0};
  rabbet_arena_initialize(options->allocator, &out_parts->arena);
  rabbet_arena_t* arena = &out_parts->arena;
  rabbet_status_t status =
      rabbet_arena_allocate(arena, count, (void**)&support.is_refused);
  if (rabbet_is_ok(status))
    status = rabbet_arena_allocate_array(arena, count, sizeof(*members),
                                         (void**)&support.accepted);
  if (rabbet_is_ok(status))
    status = rabbet_arena_allocate_array(arena, count, sizeof(*members),
                                         (void**)&support.level);
  if (rabbet_is_ok(status))
    status = rabbet_arena_allocate_array(arena, count, sizeof(*members),
                                         (void**)&support.least_reader);
  if (rabbet_is_ok(status))
    status = rabbet_arena_allocate(arena, count, (void**)&support.is_fixed);
  if (rabbet_is_ok(status))
    status = rabbet_arena_allocate_array(arena, count, sizeof(*members),
                                         (void**)&support.group);
  if (rabbet_is_ok(status))
    status = rabbet_arena_allocate_array(arena, count, sizeof(*members),
                                         (void**)&members);
  if (rabbet_is_ok(status)) status = support_find(&support, members);
  rabbet_vec_free(options->allocator, &support.sizes);
  if (!rabbet_is_ok(status))
    rabbet_ort_parts_deinitialize(options->allocator, out_parts);
  return status;
}

void rabbet_ort_parts_deinitialize(rabbet_allocator_t allocator,
                                   rabbet_ort_parts_t* parts) {
  rabbet_vec_free(allocator, &parts->list);
  rabbet_arena_deinitialize(&parts->arena);
}
