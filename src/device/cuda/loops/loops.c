// A loop in a recording is a WHILE node. Its graph holds an iteration of turn
// 0, a question whether to go on, an IF node with an iteration of turn 1, and
// the question again. The questions are a kernel's (loops.cu), which sets the
// conditions of the nodes that follow it.
#include "device/cuda/loops/loops.h"

#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "device/cuda/driver/stream.h"
#include "device/cuda/programs/launch.h"
#include "device/cuda/programs/program.h"

struct rabbet_cuda_loops_t {
  rabbet_cuda_program_t* program;
  CUfunction ask;
  CUfunction copies[3];
};

static const struct {
  const char* name;
  size_t bytes;  // of an element
} loop_copies[] = {
    {"loop_copy_16", 16},
    {"loop_copy_4", 4},
    {"loop_copy_1", 1},
};
enum { LOOP_COPIES = sizeof(loop_copies) / sizeof(loop_copies[0]) };

// ---- Preparing -------------------------------------------------------------

static rabbet_status_t loops_possible(const rabbet_cuda_device_t* device) {
  const rabbet_cuda_driver_t* driver = device->driver;
  const char* asked = getenv("RABBET_CUDA_LOOPS");
  if (asked && strcmp(asked, "0") == 0)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED, "RABBET_CUDA_LOOPS is 0");
  if (driver->version >= 12040 && driver->cuGraphConditionalHandleCreate &&
      driver->cuGraphAddNode && driver->cuStreamBeginCaptureToGraph)
    return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                       "the driver supports CUDA %d.%d; conditional nodes of "
                       "graphs need 12.4",
                       driver->version / 1000, driver->version % 1000 / 10);
}

static rabbet_status_t loops_functions(rabbet_cuda_loops_t* loops) {
  RABBET_RETURN_IF_ERROR(
      rabbet_cuda_program_function(loops->program, "loop_ask", &loops->ask));
  for (int i = 0; i < LOOP_COPIES; ++i)
    RABBET_RETURN_IF_ERROR(rabbet_cuda_program_function(
        loops->program, loop_copies[i].name, &loops->copies[i]));
  return rabbet_ok();
}

static void loops_destroy(const rabbet_cuda_device_t* device,
                          rabbet_cuda_loops_t* loops) {
  if (!loops) return;
  if (loops->program) rabbet_cuda_program_release(loops->program);
  rabbet_free(device->base.allocator, loops);
}

void rabbet_cuda_loops_close(rabbet_cuda_device_t* device) {
  loops_destroy(device, device->loops);
  device->loops = NULL;
}

static rabbet_status_t loops_create(rabbet_cuda_device_t* device,
                                    const rabbet_artifact_t* artifacts,
                                    size_t artifact_count) {
  const rabbet_cuda_source_t source = {.name = "loops/loops.cu"};
  rabbet_cuda_loops_t* loops = NULL;
  RABBET_RETURN_IF_ERROR(loops_possible(device));
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(device->base.allocator, sizeof(*loops), (void**)&loops));
  rabbet_status_t status = rabbet_cuda_program_get(
      device, &source, artifacts, artifact_count, &loops->program);
  if (rabbet_is_ok(status)) status = loops_functions(loops);
  if (rabbet_is_ok(status))
    device->loops = loops;
  else
    loops_destroy(device, loops);
  return status;
}

rabbet_status_t rabbet_cuda_prepare_loops(rabbet_device_t* base,
                                          const rabbet_artifact_t* artifacts,
                                          size_t artifact_count) {
  rabbet_cuda_device_t* device = rabbet_cuda(base);
  rabbet_status_t status = rabbet_ok();
  pthread_mutex_lock(&device->libraries);
  if (!device->loops) status = loops_create(device, artifacts, artifact_count);
  pthread_mutex_unlock(&device->libraries);
  return status;
}

// A build whose own driver does not serve leaves it to the engine's.
rabbet_status_t rabbet_cuda_loop_artifacts(rabbet_device_t* base,
                                           rabbet_artifact_sink_t sink) {
  rabbet_status_t status = rabbet_cuda_prepare_loops(base, NULL, 0);
  bool serves = rabbet_is_ok(status);
  if (rabbet_status_code(status) == RABBET_STATUS_OUT_OF_MEMORY) return status;
  rabbet_status_free(status);
  return serves ? rabbet_cuda_program_artifact(
                      rabbet_cuda(base)->loops->program, sink)
                : rabbet_ok();
}

// ---- Recording -------------------------------------------------------------

typedef struct capture_end_t {
  CUgraph graph;
  const CUgraphNode* nodes;  // that the stream's next one follows
  size_t count;
} capture_end_t;

static rabbet_status_t capture_find(const rabbet_cuda_device_t* device,
                                    void* stream, capture_end_t* out_end) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  uint64_t id = 0;
  *out_end = (capture_end_t){0};
  RABBET_RETURN_IF_ERROR(
      RABBET_CUDA(device->driver, cuStreamGetCaptureInfo,
                  ((CUstream)stream, &status, &id, &out_end->graph,
                   &out_end->nodes, &out_end->count)));
  return status == CU_STREAM_CAPTURE_STATUS_ACTIVE
             ? rabbet_ok()
             : RABBET_STATUS(RABBET_STATUS_FAILED_PRECONDITION,
                             "the stream does not record");
}

// A condition of a node in the graph that the stream is recorded into.
static rabbet_status_t make_handle(const rabbet_cuda_device_t* device,
                                   void* stream,
                                   CUgraphConditionalHandle* out_handle) {
  capture_end_t end;
  *out_handle = 0;
  RABBET_RETURN_IF_ERROR(capture_find(device, stream, &end));
  return RABBET_CUDA(device->driver, cuGraphConditionalHandleCreate,
                     (out_handle, end.graph, device->context, 0, 0));
}

static rabbet_status_t ask(const rabbet_cuda_device_t* device,
                           const rabbet_device_loop_t* loop,
                           CUgraphConditionalHandle handle, int turn,
                           bool begins, void* stream) {
  int64_t first = begins;
  const rabbet_cuda_launch_t launch = {
      .function = device->loops->ask, .grid = {1, 1, 1}, .block = {1, 1, 1}};
  void* parameters[] = {&handle, (void*)(uintptr_t)&loop->state,
                        (void*)(uintptr_t)&loop->limit,
                        (void*)(uintptr_t)&loop->conditions[turn], &first};
  return rabbet_cuda_launch(device, &launch, parameters, stream);
}

// Adds the node behind the stream's work; `inner` records its graph from now
// on.
static rabbet_status_t body_begin(const rabbet_cuda_device_t* device,
                                  void* stream, CUgraphConditionalNodeType type,
                                  CUgraphConditionalHandle handle,
                                  void* inner) {
  const rabbet_cuda_driver_t* driver = device->driver;
  CUgraphNodeParams parameters = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
  CUgraphNode node = NULL;
  capture_end_t end;
  parameters.conditional = (CUDA_CONDITIONAL_NODE_PARAMS){
      .handle = handle, .type = type, .size = 1, .ctx = device->context};
  RABBET_RETURN_IF_ERROR(capture_find(device, stream, &end));
  RABBET_RETURN_IF_ERROR(
      RABBET_CUDA(driver, cuGraphAddNode,
                  (&node, end.graph, end.nodes, NULL, end.count, &parameters)));
  RABBET_RETURN_IF_ERROR(RABBET_CUDA(
      driver, cuStreamUpdateCaptureDependencies,
      ((CUstream)stream, &node, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES)));
  rabbet_cuda_launch_body(true);
  return RABBET_CUDA(driver, cuStreamBeginCaptureToGraph,
                     ((CUstream)inner, parameters.conditional.phGraph_out[0],
                      NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
}

// The graph belongs to its node.
static rabbet_status_t body_end(const rabbet_cuda_device_t* device, void* inner,
                                rabbet_status_t status) {
  CUgraph graph = NULL;
  rabbet_status_t ended = RABBET_CUDA(device->driver, cuStreamEndCapture,
                                      ((CUstream)inner, &graph));
  if (rabbet_is_ok(status)) return ended;
  rabbet_status_ignore(ended);
  return status;
}

static rabbet_status_t record_second(const rabbet_cuda_device_t* device,
                                     const rabbet_device_loop_t* loop,
                                     CUgraphConditionalHandle handle) {
  void* inner = loop->streams[1];
  RABBET_RETURN_IF_ERROR(body_begin(device, loop->streams[0],
                                    CU_GRAPH_COND_TYPE_IF, handle, inner));
  return body_end(device, inner, loop->enqueue(loop->user_data, 1, inner));
}

static rabbet_status_t record_body(const rabbet_cuda_device_t* device,
                                   const rabbet_device_loop_t* loop,
                                   CUgraphConditionalHandle handle) {
  void* stream = loop->streams[0];
  CUgraphConditionalHandle second = 0;
  RABBET_RETURN_IF_ERROR(loop->enqueue(loop->user_data, 0, stream));
  RABBET_RETURN_IF_ERROR(make_handle(device, stream, &second));
  RABBET_RETURN_IF_ERROR(ask(device, loop, second, 1, false, stream));
  RABBET_RETURN_IF_ERROR(record_second(device, loop, second));
  return ask(device, loop, handle, 0, false, stream);
}

static rabbet_status_t record_all(const rabbet_cuda_device_t* device,
                                  const rabbet_device_loop_t* loop,
                                  void* stream) {
  void* inner = loop->streams[0];
  CUgraphConditionalHandle handle = 0;
  RABBET_RETURN_IF_ERROR(make_handle(device, stream, &handle));
  RABBET_RETURN_IF_ERROR(ask(device, loop, handle, 0, true, stream));
  RABBET_RETURN_IF_ERROR(
      body_begin(device, stream, CU_GRAPH_COND_TYPE_WHILE, handle, inner));
  return body_end(device, inner, record_body(device, loop, handle));
}

rabbet_status_t rabbet_cuda_record_loop(rabbet_device_t* base,
                                        const rabbet_device_loop_t* loop,
                                        void* stream) {
  rabbet_cuda_recording_has_loop();
  rabbet_cuda_launch_begin();
  rabbet_status_t status = record_all(rabbet_cuda(base), loop, stream);
  rabbet_cuda_launch_body(false);
  return status;
}

// ---- Copies ----------------------------------------------------------------

static bool copy_fits(const rabbet_device_loop_copy_t* copy, size_t bytes) {
  uint64_t all = (uint64_t)(uintptr_t)copy->target |
                 (uint64_t)(uintptr_t)copy->source | copy->bytes |
                 (uint64_t)copy->target_stride | (uint64_t)copy->source_stride;
  return all % bytes == 0;
}

rabbet_status_t rabbet_cuda_copy_in_loop(rabbet_device_t* base,
                                         const rabbet_device_loop_copy_t* copy,
                                         void* stream) {
  const rabbet_cuda_device_t* device = rabbet_cuda(base);
  int way = 0;
  if (copy->bytes == 0) return rabbet_ok();
  while (!copy_fits(copy, loop_copies[way].bytes))
    ++way;
  int64_t count = (int64_t)(copy->bytes / loop_copies[way].bytes);
  int64_t turn = copy->turn;
  int64_t blocks = rabbet_min_i64(rabbet_ceildiv(count, INT64_C(256)),
                                  INT64_C(8) * device->multiprocessors);
  const rabbet_cuda_launch_t launch = {.function = device->loops->copies[way],
                                       .grid = {(unsigned)blocks, 1, 1},
                                       .block = {256, 1, 1}};
  void* parameters[] = {(void*)(uintptr_t)&copy->state,
                        (void*)(uintptr_t)&copy->target,
                        (void*)(uintptr_t)&copy->source,
                        &count,
                        (void*)(uintptr_t)&copy->target_stride,
                        (void*)(uintptr_t)&copy->source_stride,
                        &turn};
  return rabbet_cuda_launch(device, &launch, parameters, stream);
}
