#include "device/cuda/driver/stream.h"

#include "device/cuda/driver/memory_pool.h"

// ---- Pinned memory, streams, events ----------------------------------------

rabbet_status_t rabbet_cuda_allocate_host(rabbet_device_t* base, size_t size,
                                          void** out_memory) {
  *out_memory = NULL;
  return RABBET_ANNOTATE(
      RABBET_CUDA_INSIDE(rabbet_cuda(base), cuMemHostAlloc,
                         (out_memory, size > 0 ? size : 1, 0)),
      "%zu bytes of pinned host memory", size);
}

void rabbet_cuda_free_host(rabbet_device_t* base, void* memory) {
  if (!memory) return;
  rabbet_status_ignore(
      RABBET_CUDA_INSIDE(rabbet_cuda(base), cuMemFreeHost, (memory)));
}

rabbet_status_t rabbet_cuda_create_stream(rabbet_device_t* base,
                                          void** out_stream) {
  *out_stream = NULL;
  return RABBET_CUDA_INSIDE(rabbet_cuda(base), cuStreamCreate,
                            ((CUstream*)out_stream, CU_STREAM_NON_BLOCKING));
}

void rabbet_cuda_destroy_stream(rabbet_device_t* base, void* stream) {
  if (!stream) return;
  rabbet_status_ignore(RABBET_CUDA_INSIDE(rabbet_cuda(base), cuStreamDestroy,
                                          ((CUstream)stream)));
}

rabbet_status_t rabbet_cuda_create_event(rabbet_device_t* base,
                                         void** out_event) {
  *out_event = NULL;
  return RABBET_CUDA_INSIDE(rabbet_cuda(base), cuEventCreate,
                            ((CUevent*)out_event, CU_EVENT_DEFAULT));
}

void rabbet_cuda_destroy_event(rabbet_device_t* base, void* event) {
  if (!event) return;
  rabbet_status_ignore(
      RABBET_CUDA_INSIDE(rabbet_cuda(base), cuEventDestroy, ((CUevent)event)));
}

rabbet_status_t rabbet_cuda_record_event(rabbet_device_t* base, void* event,
                                         void* stream) {
  return RABBET_CUDA_INSIDE(rabbet_cuda(base), cuEventRecord,
                            ((CUevent)event, (CUstream)stream));
}

rabbet_status_t rabbet_cuda_elapsed(rabbet_device_t* base, void* begin,
                                    void* end, int64_t* out_ns) {
  const rabbet_cuda_device_t* device = rabbet_cuda(base);
  float milliseconds = 0;
  *out_ns = 0;
  RABBET_RETURN_IF_ERROR(
      RABBET_CUDA_INSIDE(device, cuEventSynchronize, ((CUevent)end)));
  RABBET_RETURN_IF_ERROR(
      RABBET_CUDA_INSIDE(device, cuEventElapsedTime,
                         (&milliseconds, (CUevent)begin, (CUevent)end)));
  *out_ns = (int64_t)((double)milliseconds * 1e6);
  return rabbet_ok();
}

// ---- Graphs ----------------------------------------------------------------

// Whether this thread records a loop.
static _Thread_local bool recording_has_loop;

void rabbet_cuda_recording_has_loop(void) {
  recording_has_loop = true;
}

// The capture is thread-local, so other threads can allocate and launch.
rabbet_status_t rabbet_cuda_record_begin(rabbet_device_t* base, void* stream) {
  rabbet_cuda_device_t* device = rabbet_cuda(base);
  recording_has_loop = false;
  rabbet_cuda_pool_recording(device, 1);
  rabbet_status_t status =
      RABBET_CUDA(device->driver, cuStreamBeginCapture,
                  ((CUstream)stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  if (!rabbet_is_ok(status)) rabbet_cuda_pool_recording(device, -1);
  return status;
}

rabbet_status_t rabbet_cuda_is_recording(rabbet_device_t* base, void* stream,
                                         bool* out_recording) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  *out_recording = false;
  RABBET_RETURN_IF_ERROR(RABBET_CUDA(rabbet_cuda(base)->driver,
                                     cuStreamIsCapturing,
                                     ((CUstream)stream, &status)));
  *out_recording = status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
  return rabbet_ok();
}

static rabbet_status_t cuda_instantiate(const rabbet_cuda_device_t* device,
                                        CUgraph recorded, void** graph) {
  CUgraphExec made = NULL;
  RABBET_RETURN_IF_ERROR(RABBET_CUDA(
      device->driver, cuGraphInstantiateWithFlags, (&made, recorded, 0)));
  if (*graph) device->driver->cuGraphExecDestroy((CUgraphExec)*graph);
  *graph = made;
  return rabbet_ok();
}

// If only addresses and numbers changed, the driver updates the graph in place.
// Conditional nodes limit what it can change.
static bool cuda_update(const rabbet_cuda_device_t* device, CUgraph recorded,
                        void* graph) {
  CUgraphExecUpdateResultInfo info = {0};
  return graph && !recording_has_loop &&
         device->driver->cuGraphExecUpdate((CUgraphExec)graph, recorded,
                                           &info) == CUDA_SUCCESS;
}

rabbet_status_t rabbet_cuda_record_end(rabbet_device_t* base, void* stream,
                                       void** graph) {
  rabbet_cuda_device_t* device = rabbet_cuda(base);
  CUgraph recorded = NULL;
  CUresult result =
      device->driver->cuStreamEndCapture((CUstream)stream, &recorded);
  rabbet_cuda_pool_recording(device, -1);
  if (!graph) {
    if (recorded) device->driver->cuGraphDestroy(recorded);
    return rabbet_ok();
  }
  rabbet_status_t status =
      rabbet_cuda_driver_check(device->driver, result, "cuStreamEndCapture");
  if (rabbet_is_ok(status) && !cuda_update(device, recorded, *graph))
    status = cuda_instantiate(device, recorded, graph);
  if (recorded) device->driver->cuGraphDestroy(recorded);
  return status;
}

rabbet_status_t rabbet_cuda_launch_graph(rabbet_device_t* base, void* graph,
                                         void* stream) {
  rabbet_cuda_launch_begin();
  return RABBET_CUDA(rabbet_cuda(base)->driver, cuGraphLaunch,
                     ((CUgraphExec)graph, (CUstream)stream));
}

void rabbet_cuda_destroy_graph(rabbet_device_t* base, void* graph) {
  if (!graph) return;
  rabbet_status_ignore(RABBET_CUDA_INSIDE(rabbet_cuda(base), cuGraphExecDestroy,
                                          ((CUgraphExec)graph)));
}
