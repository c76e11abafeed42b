// Nodes of graphs that run graphs of their own, if a kernel says so.
#include <stdlib.h>

#include "cuda_stand_in/internal.h"

enum { MOST_ITERATIONS = 1 << 20 };

static condition_t* conditions_alive;

bool condition_is_alive(const void* handle) {
  const condition_t* at = conditions_alive;
  while (at && at != handle)
    at = at->next_alive;
  return at;
}

static void condition_forget_alive(const condition_t* condition) {
  condition_t** at = &conditions_alive;
  while (*at != condition)
    at = &(*at)->next_alive;
  *at = condition->next_alive;
}

void conditions_free(condition_t* conditions) {
  while (conditions) {
    condition_t* next = conditions->next;
    condition_forget_alive(conditions);
    free(conditions);
    conditions = next;
  }
}

void conditions_forget(condition_t* conditions) {
  for (condition_t* at = conditions; at; at = at->next)
    at->value = 0xfadeu;
}

// A kernel that went wrong breaks the context, and its loop ends.
void conditional_execute(const op_t* op) {
  CUcontext context = context_current ? context_current : context_of_device(0);
  condition_t* condition = op->condition;
  for (int i = 0; condition->value != 0; ++i) {
    graph_execute(op->graph);
    if (!condition->is_loop || (context && context->broken != CUDA_SUCCESS))
      break;
    if (i < MOST_ITERATIONS) continue;
    misuse("a loop in a graph does not end");
    break;
  }
}

// Within the graphs of such nodes there is only work of the device's.
static bool op_is_allowed(const op_t* op) {
  switch (op->type) {
    case OP_KERNEL:
    case OP_FILL:
    case OP_HOST:
    case OP_NONE:
      return true;
    case OP_COPY:
      return op->source_kind != KIND_PAGEABLE &&
             op->target_kind != KIND_PAGEABLE;
    case OP_CONDITIONAL:
      return conditions_are_right(op->graph);
    default:
      return false;
  }
}

static bool graph_is_allowed(const graph_body_t* body) {
  for (size_t i = 0; i < body->count; ++i)
    if (!op_is_allowed(&body->nodes[i].op)) return false;
  return true;
}

bool conditions_are_right(const graph_body_t* body) {
  for (const condition_t* at = body->conditions; at; at = at->next)
    if (!at->has_node || !graph_is_allowed(at->graph.body) ||
        !conditions_are_right(at->graph.body))
      return false;
  return true;
}

// ---- Entries ---------------------------------------------------------------

static CUresult handle_create(CUgraphConditionalHandle* out_handle,
                              CUgraph graph, CUcontext context,
                              unsigned flags) {
  if (!graph || !context) return ERROR_INVALID_HANDLE;
  if (flags != 0) return CUDA_ERROR_NOT_SUPPORTED;
  condition_t* condition = calloc(1, sizeof(*condition));
  if (!condition) return CUDA_ERROR_OUT_OF_MEMORY;
  condition->next = graph->body->conditions;
  graph->body->conditions = condition;
  condition->next_alive = conditions_alive;
  conditions_alive = condition;
  *out_handle = (uintptr_t)condition;
  return CUDA_SUCCESS;
}

CUresult stand_in_cuGraphConditionalHandleCreate(
    CUgraphConditionalHandle* handle, CUgraph graph, CUcontext context,
    unsigned value, unsigned flags) {
  (void)value;
  ENTRY(cuGraphConditionalHandleCreate, NEEDS_CONTEXT, ("flags %u", flags),
        handle_create(handle, graph, context, flags));
}

static condition_t* condition_find(CUgraph graph,
                                   CUgraphConditionalHandle handle) {
  for (condition_t* at = graph->body->conditions; at; at = at->next)
    if ((uintptr_t)at == handle && !at->has_node) return at;
  return NULL;
}

static CUresult node_add(CUgraphNode* node, CUgraph graph,
                         const CUgraphNode* before, size_t count,
                         CUgraphNodeParams* parameters) {
  CUDA_CONDITIONAL_NODE_PARAMS* asked = &parameters->conditional;
  if (!graph) return ERROR_INVALID_HANDLE;
  if (parameters->type != CU_GRAPH_NODE_TYPE_CONDITIONAL)
    return CUDA_ERROR_NOT_SUPPORTED;
  condition_t* condition = condition_find(graph, asked->handle);
  if (!condition || asked->size != 1 || !asked->ctx ||
      (asked->type != CU_GRAPH_COND_TYPE_IF &&
       asked->type != CU_GRAPH_COND_TYPE_WHILE))
    return CUDA_ERROR_INVALID_VALUE;
  op_t op = {.type = OP_CONDITIONAL,
             .condition = condition,
             .graph = graph_body_new()};
  if (!op.graph) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = graph_add(node, graph, before, count, &op);
  if (result != CUDA_SUCCESS) {
    graph_release(op.graph);
    return result;
  }
  condition->is_loop = asked->type == CU_GRAPH_COND_TYPE_WHILE;
  condition->has_node = true;
  condition->graph.body = op.graph;
  condition->list[0] = &condition->graph;
  asked->phGraph_out = condition->list;
  return CUDA_SUCCESS;
}

CUresult stand_in_cuGraphAddNode(CUgraphNode* node, CUgraph graph,
                                 const CUgraphNode* before, const void* edges,
                                 size_t before_count,
                                 CUgraphNodeParams* parameters) {
  (void)edges;
  ENTRY(cuGraphAddNode, NEEDS_CONTEXT,
        ("type %d after %zu", parameters->type, before_count),
        node_add(node, graph, before, before_count, parameters));
}
