// Stream capture and graphs.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_stand_in/internal.h"

struct CUgraphExec_st {
  graph_body_t* body;
};

struct capture_t {
  struct CUgraph_st* graph;
  bool borrows;  // the graph is a node's
  CUstream origin;
  CUstreamCaptureMode mode;
  pthread_t thread;
  bool invalid;
  CUstream streams[32];  // those in the capture
  size_t stream_count;
  capture_t* next;
};

static capture_t* captures;  // active or invalid, not ended
static int graphs_alive, execs_alive;
static _Thread_local CUstreamCaptureMode thread_mode =
    CU_STREAM_CAPTURE_MODE_GLOBAL;

int graph_count(void) {
  return graphs_alive;
}
int graph_exec_count(void) {
  return execs_alive;
}

// ---- Bodies ----------------------------------------------------------------

graph_body_t* graph_body_new(void) {
  graph_body_t* body = calloc(1, sizeof(*body));
  if (body) body->references = 1;
  return body;
}

void graph_release(graph_body_t* body) {
  if (--body->references > 0) return;
  for (size_t i = 0; i < body->count; ++i) {
    op_release(&body->nodes[i].op);
    free(body->nodes[i].before);
  }
  free(body->nodes);
  conditions_free(body->conditions);
  free(body);
}

// Nodes come in an order that their edges allow. Of those that may run, the
// one that was recorded last runs first: what the edges do not say does not
// hold by luck.
static bool node_is_ready(const graph_node_t* node, const bool* done) {
  for (size_t i = 0; i < node->before_count; ++i)
    if (!done[node->before[i]]) return false;
  return true;
}

void graph_execute(graph_body_t* body) {
  bool* done = calloc(body->count + 1, sizeof(*done));
  if (!done) abort();
  conditions_forget(body->conditions);
  for (size_t left = body->count; left > 0; --left) {
    size_t i = body->count;
    while (i-- > 0)
      if (!done[i] && node_is_ready(&body->nodes[i], done)) break;
    op_execute(&body->nodes[i].op);
    done[i] = true;
  }
  free(done);
}

// ---- What captures forbid --------------------------------------------------

void capture_invalidate(capture_t* capture) {
  capture->invalid = true;
}

capture_t* capture_of_blocking(void) {
  for (capture_t* c = captures; c; c = c->next)
    for (size_t i = 0; i < c->stream_count; ++i)
      if (!(c->streams[i]->flags & CU_STREAM_NON_BLOCKING)) return c;
  return NULL;
}

// Whether a call that is not safe in this thread disturbs the capture.
static bool capture_minds(const capture_t* c) {
  if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
  if (c->mode == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
  if (pthread_equal(c->thread, pthread_self())) return true;
  return thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
         c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult capture_forbid(void) {
  CUresult result = CUDA_SUCCESS;
  for (capture_t* c = captures; c; c = c->next) {
    if (!capture_minds(c)) continue;
    c->invalid = true;
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

// ---- Capturing -------------------------------------------------------------

static bool ends_set(int32_t** ends, size_t* count, const int32_t* more,
                     size_t more_count) {
  int32_t* list = malloc((more_count + 1) * sizeof(*list));
  if (!list) return false;
  if (more_count > 0) memcpy(list, more, more_count * sizeof(*list));
  free(*ends);
  *ends = list;
  *count = more_count;
  return true;
}

// Adds those that are not there.
static bool ends_join(CUstream stream, const int32_t* more, size_t count) {
  int32_t* list =
      realloc(stream->ends, (stream->end_count + count + 1) * sizeof(*list));
  if (!list) return false;
  stream->ends = list;
  for (size_t i = 0; i < count; ++i) {
    bool there = false;
    for (size_t k = 0; k < stream->end_count; ++k)
      there = there || list[k] == more[i];
    if (!there) list[stream->end_count++] = more[i];
  }
  return true;
}

CUresult capture_add(CUstream stream, op_t* op) {
  capture_t* capture = stream->capture;
  if (capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (op->type == OP_FREE) {
    capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  graph_body_t* body = capture->graph->body;
  if (body->count == body->room) {
    size_t room = 2 * body->room + 16;
    graph_node_t* nodes = realloc(body->nodes, room * sizeof(*nodes));
    if (!nodes) return CUDA_ERROR_OUT_OF_MEMORY;
    body->nodes = nodes;
    body->room = room;
  }
  const int32_t own = (int32_t)body->count;
  graph_node_t node = {0};
  if (!ends_set(&node.before, &node.before_count, stream->ends,
                stream->end_count) ||
      !ends_set(&stream->ends, &stream->end_count, &own, 1)) {
    free(node.before);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  node.op = *op;
  body->nodes[body->count++] = node;
  return CUDA_SUCCESS;
}

bool capture_ends_in(const struct CUstream_st* stream, op_type_t type) {
  const graph_node_t* nodes = stream->capture->graph->body->nodes;
  for (size_t i = 0; i < stream->end_count; ++i)
    if (nodes[stream->ends[i]].op.type == type) return true;
  return false;
}

CUresult capture_record(CUstream stream, CUevent event) {
  if (stream->capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  event->capture = stream->capture;
  event->stream = stream;
  return ends_set(&event->ends, &event->end_count, stream->ends,
                  stream->end_count)
             ? CUDA_SUCCESS
             : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult capture_join(capture_t* capture, CUstream stream) {
  if (stream->capture) return CUDA_SUCCESS;
  size_t most = sizeof(capture->streams) / sizeof(capture->streams[0]);
  if (capture->stream_count == most) return CUDA_ERROR_NOT_SUPPORTED;
  capture->streams[capture->stream_count++] = stream;
  stream->capture = capture;
  stream->end_count = 0;
  return CUDA_SUCCESS;
}

// A stream that waits for a captured event becomes part of the capture.
CUresult capture_wait(CUstream stream, CUevent event) {
  if (!event->capture) {
    stream->capture->invalid = true;
    return ERROR_CAPTURE_ISOLATION;
  }
  if (event->capture->invalid || (stream->capture && stream->capture->invalid))
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (stream->capture && stream->capture != event->capture) {
    stream->capture->invalid = event->capture->invalid = true;
    return ERROR_CAPTURE_MERGE;
  }
  CUresult result = capture_join(event->capture, stream);
  if (result != CUDA_SUCCESS) return result;
  return ends_join(stream, event->ends, event->end_count)
             ? CUDA_SUCCESS
             : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult graph_new(CUgraph* out_graph) {
  CUgraph graph = calloc(1, sizeof(*graph));
  if (graph) graph->body = graph_body_new();
  if (!graph || !graph->body) {
    free(graph);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  ++graphs_alive;
  *out_graph = graph;
  return CUDA_SUCCESS;
}

static void graph_delete(CUgraph graph) {
  graph_release(graph->body);
  free(graph);
  --graphs_alive;
}

// Into the graph, or into a new one.
static CUresult capture_begin(CUstream handle, CUgraph graph,
                              CUstreamCaptureMode mode) {
  CUstream stream = stream_resolve(handle);
  if (!stream) return ERROR_INVALID_HANDLE;
  if (!handle || handle == CU_STREAM_LEGACY)
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (mode < 0 || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
    return CUDA_ERROR_INVALID_VALUE;
  if (stream->capture) return ERROR_ILLEGAL_STATE;
  capture_t* capture = calloc(1, sizeof(*capture));
  if (!capture) return CUDA_ERROR_OUT_OF_MEMORY;
  capture->graph = graph;
  capture->borrows = graph != NULL;
  CUresult result = graph ? CUDA_SUCCESS : graph_new(&capture->graph);
  if (result != CUDA_SUCCESS) {
    free(capture);
    return result;
  }
  capture->origin = stream;
  capture->mode = mode;
  capture->thread = pthread_self();
  capture->next = captures;
  captures = capture;
  return capture_join(capture, stream);
}

CUresult stand_in_cuStreamBeginCapture(CUstream stream,
                                       CUstreamCaptureMode mode) {
  ENTRY(cuStreamBeginCapture, NEEDS_CONTEXT,
        ("stream %d, mode %d", stream_number(stream), mode),
        capture_begin(stream, NULL, mode));
}

static CUresult capture_begin_in(CUstream stream, CUgraph graph, size_t before,
                                 CUstreamCaptureMode mode) {
  if (!graph) return ERROR_INVALID_HANDLE;
  if (before > 0) return CUDA_ERROR_NOT_SUPPORTED;
  return capture_begin(stream, graph, mode);
}

CUresult stand_in_cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph,
                                              const CUgraphNode* before,
                                              const void* edges,
                                              size_t before_count,
                                              CUstreamCaptureMode mode) {
  (void)before, (void)edges;
  ENTRY(cuStreamBeginCaptureToGraph, NEEDS_CONTEXT,
        ("stream %d, mode %d", stream_number(stream), mode),
        capture_begin_in(stream, graph, before_count, mode));
}

// Whether every other stream's work leads to the origin's end.
static bool capture_is_joined(const capture_t* capture) {
  const graph_body_t* body = capture->graph->body;
  bool* reached = calloc(body->count + 1, sizeof(*reached));
  if (!reached) abort();
  for (size_t i = 0; i < capture->origin->end_count; ++i)
    reached[capture->origin->ends[i]] = true;
  for (size_t i = body->count; i-- > 0;)
    for (size_t k = 0; reached[i] && k < body->nodes[i].before_count; ++k)
      reached[body->nodes[i].before[k]] = true;
  bool joined = true;
  for (size_t i = 0; i < body->count; ++i)
    joined = joined && reached[i];
  free(reached);
  return joined;
}

static void capture_close(capture_t* capture) {
  for (size_t i = 0; i < capture->stream_count; ++i) {
    capture->streams[i]->capture = NULL;
    capture->streams[i]->end_count = 0;
  }
  for (capture_t** at = &captures; *at; at = &(*at)->next) {
    if (*at != capture) continue;
    *at = capture->next;
    break;
  }
  capture_forget(capture);
  free(capture);
}

static CUresult capture_end(CUstream handle, CUgraph* out_graph) {
  *out_graph = NULL;
  CUstream stream = stream_resolve(handle);
  if (!stream) return ERROR_INVALID_HANDLE;
  capture_t* capture = stream->capture;
  if (!capture) return ERROR_ILLEGAL_STATE;
  if (capture->origin != stream) {
    capture->invalid = true;
    return ERROR_CAPTURE_UNMATCHED;
  }
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
      !pthread_equal(capture->thread, pthread_self()))
    return ERROR_CAPTURE_WRONG_THREAD;
  CUresult result = capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                    : !capture_is_joined(capture) ? ERROR_CAPTURE_UNJOINED
                                                  : CUDA_SUCCESS;
  if (result == CUDA_SUCCESS)
    *out_graph = capture->graph;
  else if (!capture->borrows)
    graph_delete(capture->graph);
  capture_close(capture);
  return result;
}

// It ends the capture even where it is made to fail: the graph goes.
static CUresult capture_end_entry(CUstream stream, CUgraph* graph,
                                  const entry_t* entry) {
  CUstream found = stream_resolve(stream);
  bool borrows = found && found->capture && found->capture->borrows;
  CUresult result = capture_end(stream, graph);
  if (entry->injected == CUDA_SUCCESS || !*graph) return result;
  if (!borrows) graph_delete(*graph);
  *graph = NULL;
  return result;
}

CUresult stand_in_cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  ENTRY(cuStreamEndCapture, NEEDS_CONTEXT | RELEASES,
        ("stream %d", stream_number(stream)),
        capture_end_entry(stream, graph, &entry_));
}

static CUresult capture_status(CUstream handle,
                               CUstreamCaptureStatus* out_status) {
  CUstream stream = stream_resolve(handle);
  if (!stream) return ERROR_INVALID_HANDLE;
  *out_status = !stream->capture ? CU_STREAM_CAPTURE_STATUS_NONE
                : stream->capture->invalid
                    ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                    : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  return CUDA_SUCCESS;
}

CUresult stand_in_cuStreamIsCapturing(CUstream stream,
                                      CUstreamCaptureStatus* status) {
  ENTRY(cuStreamIsCapturing, NEEDS_CONTEXT,
        ("stream %d", stream_number(stream)), capture_status(stream, status));
}

// Nodes stay where they are until the next one is added.
static CUresult capture_info(CUstream handle, CUstreamCaptureStatus* out_status,
                             uint64_t* out_id, CUgraph* out_graph,
                             const CUgraphNode** out_ends,
                             size_t* out_end_count) {
  CUresult result = capture_status(handle, out_status);
  if (result != CUDA_SUCCESS || *out_status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
    return result;
  CUstream stream = stream_resolve(handle);
  CUgraphNode* nodes =
      realloc(stream->nodes, (stream->end_count + 1) * sizeof(*nodes));
  if (!nodes) return CUDA_ERROR_OUT_OF_MEMORY;
  stream->nodes = nodes;
  for (size_t i = 0; i < stream->end_count; ++i)
    nodes[i] =
        (CUgraphNode)&stream->capture->graph->body->nodes[stream->ends[i]];
  *out_id = 1;
  *out_graph = stream->capture->graph;
  *out_ends = nodes;
  *out_end_count = stream->end_count;
  return CUDA_SUCCESS;
}

CUresult stand_in_cuStreamGetCaptureInfo(CUstream stream,
                                         CUstreamCaptureStatus* status,
                                         uint64_t* id, CUgraph* graph,
                                         const CUgraphNode** ends,
                                         size_t* end_count) {
  ENTRY(cuStreamGetCaptureInfo, NEEDS_CONTEXT,
        ("stream %d", stream_number(stream)),
        capture_info(stream, status, id, graph, ends, end_count));
}

static int32_t node_index(const graph_body_t* body, CUgraphNode handle) {
  const graph_node_t* node = (const graph_node_t*)handle;
  bool own = node >= body->nodes && node < body->nodes + body->count;
  return own ? (int32_t)(node - body->nodes) : -1;
}

static bool nodes_to_indices(const graph_body_t* body, const CUgraphNode* nodes,
                             size_t count, int32_t* indices) {
  for (size_t i = 0; i < count; ++i)
    if ((indices[i] = node_index(body, nodes[i])) < 0) return false;
  return true;
}

CUresult graph_add(CUgraphNode* out_node, CUgraph graph,
                   const CUgraphNode* before, size_t count, op_t* op) {
  struct CUstream_st nowhere = {.capture = &(capture_t){.graph = graph},
                                .end_count = count};
  nowhere.ends = malloc((count + 1) * sizeof(*nowhere.ends));
  if (!nowhere.ends) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = nodes_to_indices(graph->body, before, count, nowhere.ends)
                        ? capture_add(&nowhere, op)
                        : CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS)
    *out_node = (CUgraphNode)&graph->body->nodes[nowhere.ends[0]];
  free(nowhere.ends);
  return result;
}

CUresult stand_in_cuGraphAddEmptyNode(CUgraphNode* node, CUgraph graph,
                                      const CUgraphNode* before, size_t count) {
  ENTRY(cuGraphAddEmptyNode, NEEDS_CONTEXT, ("after %zu", count),
        graph_add(node, graph, before, count, &(op_t){.type = OP_NONE}));
}

static CUresult capture_set_ends(CUstream handle, const CUgraphNode* ends,
                                 size_t count, unsigned flags) {
  CUstream stream = stream_resolve(handle);
  if (!stream) return ERROR_INVALID_HANDLE;
  if (!stream->capture) return ERROR_ILLEGAL_STATE;
  if (flags != CU_STREAM_SET_CAPTURE_DEPENDENCIES)
    return CUDA_ERROR_NOT_SUPPORTED;
  int32_t* indices = malloc((count + 1) * sizeof(*indices));
  if (!indices) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  if (nodes_to_indices(stream->capture->graph->body, ends, count, indices))
    result = ends_set(&stream->ends, &stream->end_count, indices, count)
                 ? CUDA_SUCCESS
                 : CUDA_ERROR_OUT_OF_MEMORY;
  free(indices);
  return result;
}

CUresult stand_in_cuStreamUpdateCaptureDependencies(CUstream stream,
                                                    CUgraphNode* ends,
                                                    size_t count,
                                                    unsigned flags) {
  ENTRY(cuStreamUpdateCaptureDependencies, NEEDS_CONTEXT,
        ("stream %d", stream_number(stream)),
        capture_set_ends(stream, ends, count, flags));
}

static CUresult mode_exchange(CUstreamCaptureMode* mode) {
  if (*mode < 0 || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
    return CUDA_ERROR_INVALID_VALUE;
  CUstreamCaptureMode before = thread_mode;
  thread_mode = *mode;
  *mode = before;
  return CUDA_SUCCESS;
}

CUresult stand_in_cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  ENTRY(cuThreadExchangeStreamCaptureMode, 0, ("mode %d", *mode),
        mode_exchange(mode));
}

// ---- Graphs ----------------------------------------------------------------

static CUresult graph_instantiate(CUgraphExec* out_exec, CUgraph graph) {
  *out_exec = NULL;
  if (!graph) return ERROR_INVALID_HANDLE;
  if (!conditions_are_right(graph->body)) return CUDA_ERROR_INVALID_VALUE;
  CUgraphExec exec = calloc(1, sizeof(*exec));
  if (!exec) return CUDA_ERROR_OUT_OF_MEMORY;
  exec->body = graph->body;  // bodies do not change after the capture
  ++exec->body->references;
  ++execs_alive;
  *out_exec = exec;
  return CUDA_SUCCESS;
}

CUresult stand_in_cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph,
                                              unsigned long long flags) {
  ENTRY(cuGraphInstantiateWithFlags, NEEDS_CONTEXT | UNSAFE_IN_CAPTURE,
        ("flags %llu", flags), graph_instantiate(exec, graph));
}

enum {
  UPDATE_SUCCESS = 0,
  UPDATE_TOPOLOGY_CHANGED = 2,
  UPDATE_NODE_TYPE_CHANGED = 3,
  UPDATE_PARAMETERS_CHANGED = 5,
};

static int node_update(const graph_node_t* from, const graph_node_t* to) {
  if (from->before_count != to->before_count ||
      memcmp(from->before, to->before,
             from->before_count * sizeof(*from->before)) != 0)
    return UPDATE_TOPOLOGY_CHANGED;
  if (from->op.type != to->op.type) return UPDATE_NODE_TYPE_CHANGED;
  if (from->op.type == OP_CONDITIONAL) return UPDATE_PARAMETERS_CHANGED;
  // The edges are of another type.
  if (from->op.type == OP_KERNEL &&
      from->op.launch->overlaps != to->op.launch->overlaps)
    return UPDATE_TOPOLOGY_CHANGED;
  if (from->op.source_kind != to->op.source_kind ||
      from->op.target_kind != to->op.target_kind)
    return UPDATE_PARAMETERS_CHANGED;
  return UPDATE_SUCCESS;
}

static CUresult graph_update(CUgraphExec exec, CUgraph graph,
                             CUgraphExecUpdateResultInfo* info) {
  memset(info, 0, sizeof(*info));
  if (!exec || !graph) return ERROR_INVALID_HANDLE;
  const graph_body_t *from = exec->body, *to = graph->body;
  if (from->count != to->count) info->result = UPDATE_TOPOLOGY_CHANGED;
  for (size_t i = 0; info->result == 0 && i < to->count; ++i)
    info->result = node_update(&from->nodes[i], &to->nodes[i]);
  if (info->result != 0) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  graph_release(exec->body);  // launches that wait keep theirs
  exec->body = graph->body;
  ++exec->body->references;
  return CUDA_SUCCESS;
}

CUresult stand_in_cuGraphExecUpdate(CUgraphExec exec, CUgraph graph,
                                    CUgraphExecUpdateResultInfo* info) {
  ENTRY(cuGraphExecUpdate, NEEDS_CONTEXT, (" "),
        graph_update(exec, graph, info));
}

static CUresult graph_launch(CUgraphExec exec, CUstream stream) {
  if (!exec) return ERROR_INVALID_HANDLE;
  op_t op = {.type = OP_GRAPH, .graph = exec->body};
  ++exec->body->references;
  return stream_submit(stream, &op);
}

CUresult stand_in_cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  ENTRY(cuGraphLaunch, NEEDS_CONTEXT, ("stream %d", stream_number(stream)),
        graph_launch(exec, stream));
}

static CUresult graph_nodes(CUgraph graph, CUgraphNode* nodes, size_t* count) {
  if (!graph) return ERROR_INVALID_HANDLE;
  for (size_t i = 0; nodes && i < *count; ++i)
    nodes[i] =
        i < graph->body->count ? (CUgraphNode)&graph->body->nodes[i] : NULL;
  if (!nodes || *count > graph->body->count) *count = graph->body->count;
  return CUDA_SUCCESS;
}

CUresult stand_in_cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes,
                                  size_t* count) {
  ENTRY(cuGraphGetNodes, NEEDS_CONTEXT, (" "),
        graph_nodes(graph, nodes, count));
}

static CUresult node_type(CUgraphNode handle, CUgraphNodeType* type) {
  const graph_node_t* node = (const graph_node_t*)handle;
  if (!node) return CUDA_ERROR_INVALID_VALUE;
  bool kernel = node->op.type == OP_KERNEL || node->op.type == OP_HOST;
  *type = kernel                            ? CU_GRAPH_NODE_TYPE_KERNEL
          : node->op.type == OP_COPY        ? CU_GRAPH_NODE_TYPE_MEMCPY
          : node->op.type == OP_FILL        ? CU_GRAPH_NODE_TYPE_MEMSET
          : node->op.type == OP_NONE        ? CU_GRAPH_NODE_TYPE_EMPTY
          : node->op.type == OP_CONDITIONAL ? CU_GRAPH_NODE_TYPE_CONDITIONAL
                                            : 4 /* a graph */;
  return CUDA_SUCCESS;
}

CUresult stand_in_cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType* type) {
  ENTRY(cuGraphNodeGetType, NEEDS_CONTEXT, (" "), node_type(node, type));
}

static CUresult exec_destroy(CUgraphExec exec) {
  if (!exec) return ERROR_INVALID_HANDLE;
  graph_release(exec->body);
  free(exec);
  --execs_alive;
  return CUDA_SUCCESS;
}

CUresult stand_in_cuGraphExecDestroy(CUgraphExec exec) {
  ENTRY(cuGraphExecDestroy, NEEDS_CONTEXT | RELEASES, (" "),
        exec_destroy(exec));
}

static CUresult graph_destroy(CUgraph graph) {
  if (!graph) return ERROR_INVALID_HANDLE;
  graph_delete(graph);
  return CUDA_SUCCESS;
}

CUresult stand_in_cuGraphDestroy(CUgraph graph) {
  ENTRY(cuGraphDestroy, NEEDS_CONTEXT | RELEASES, (" "), graph_destroy(graph));
}
