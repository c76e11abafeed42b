#include <assert.h>

#include "device/cuda/cuda.h"

// The kind of work that this thread enqueued last, and its stream. A kernel
// does not overlap with a library's kernel, which lets no kernel start before
// its end: it would gain nothing, and a graph would take longer than with a
// plain edge.
static _Thread_local struct {
  const void* stream;
  enum { LAUNCH_NONE, LAUNCH_OTHER, LAUNCH_PROGRAM, LAUNCH_CLOSED } kind;
} launch_last;

static _Thread_local bool launch_in_body;

void rabbet_cuda_launch_body(bool inside) {
  launch_in_body = inside;
  launch_last.kind = LAUNCH_NONE;
}

void rabbet_cuda_launch_begin(void) {
  launch_last.kind = LAUNCH_NONE;
}

void rabbet_cuda_launch_other(const void* stream) {
  launch_last.stream = stream;
  launch_last.kind = LAUNCH_OTHER;
}

// In a recording an edge to an empty node, and one from it, await whole
// kernels. They cost a graph next to nothing, unlike a node that writes memory.
static rabbet_status_t launch_separate(const rabbet_cuda_device_t* device,
                                       CUstream stream, CUgraph graph,
                                       const CUgraphNode* ends,
                                       size_t end_count) {
  CUgraphNode node = NULL;
  RABBET_RETURN_IF_ERROR(RABBET_CUDA(device->driver, cuGraphAddEmptyNode,
                                     (&node, graph, ends, end_count)));
  return RABBET_CUDA(device->driver, cuStreamUpdateCaptureDependencies,
                     (stream, &node, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
}

rabbet_status_t rabbet_cuda_launch_close(const rabbet_cuda_device_t* device,
                                         void* stream) {
  bool open =
      launch_last.stream == stream &&
      (launch_last.kind == LAUNCH_OTHER || launch_last.kind == LAUNCH_PROGRAM);
  launch_last.stream = stream;
  launch_last.kind = LAUNCH_CLOSED;
  if (!open || device->major < 9) return rabbet_ok();
  // The query fails where a caller's recording has edges of other kinds.
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  uint64_t id = 0;
  CUgraph graph = NULL;
  const CUgraphNode* ends = NULL;
  size_t end_count = 0;
  if (device->driver->cuStreamGetCaptureInfo((CUstream)stream, &status, &id,
                                             &graph, &ends,
                                             &end_count) == CUDA_SUCCESS &&
      status == CU_STREAM_CAPTURE_STATUS_ACTIVE)
    return launch_separate(device, (CUstream)stream, graph, ends, end_count);
  return RABBET_CUDA(device->driver, cuMemsetD8Async,
                     (device->scratch, 0, 1, (CUstream)stream));
}

rabbet_status_t rabbet_cuda_launch_hand_over(rabbet_device_t* device,
                                             void* stream) {
  RABBET_RETURN_IF_ERROR(rabbet_cuda_launch_close(rabbet_cuda(device), stream));
  rabbet_cuda_launch_other(stream);
  return rabbet_ok();
}

static bool launch_overlaps(const rabbet_cuda_device_t* device,
                            const void* stream) {
  bool follows =
      launch_last.kind == LAUNCH_PROGRAM && launch_last.stream == stream;
  launch_last.stream = stream;
  launch_last.kind = LAUNCH_PROGRAM;
  return follows && !launch_in_body &&
         atomic_load_explicit(&device->overlaps, memory_order_relaxed);
}

static rabbet_status_t launch_permit(const rabbet_cuda_device_t* device,
                                     CUfunction function, int64_t bytes) {
  int fixed = 0;
  RABBET_RETURN_IF_ERROR(
      RABBET_CUDA(device->driver, cuFuncGetAttribute,
                  (&fixed, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function)));
  if (bytes > device->shared_bytes - fixed)
    return RABBET_STATUS(
        RABBET_STATUS_INCOMPATIBLE,
        "a kernel needs %lld bytes of shared memory in a block; this GPU has "
        "%d: build the plan for it",
        (long long)bytes + fixed, device->shared_bytes);
  return RABBET_CUDA(device->driver, cuFuncSetAttribute,
                     (function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                      device->shared_bytes - fixed));
}

rabbet_status_t rabbet_cuda_launch_permit(const rabbet_cuda_device_t* device,
                                          CUfunction function, int64_t bytes) {
  CUcontext before = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_cuda_enter(device, &before));
  rabbet_status_t status = launch_permit(device, function, bytes);
  rabbet_cuda_leave(device, before);
  return status;
}

rabbet_status_t rabbet_cuda_launch(const rabbet_cuda_device_t* device,
                                   const rabbet_cuda_launch_t* launch,
                                   void** parameters, void* stream) {
  assert(launch->function);
  assert(launch->grid[0] > 0 && launch->grid[1] > 0 && launch->grid[2] > 0);
  assert(launch->block[0] > 0 && launch->block[1] > 0 && launch->block[2] > 0);
  assert(launch->block[0] * launch->block[1] * launch->block[2] <= 1024);
  // Kernels whose blocks depend on shapes refuse larger grids in prepare().
  assert(launch->grid[0] <= INT32_MAX);
  assert(launch->grid[1] <= 65535 && launch->grid[2] <= 65535);
  assert(launch->cluster <= 1 || launch->grid[0] % launch->cluster == 0);
  assert(launch->shared_bytes <= (unsigned)device->shared_bytes);
  bool overlaps = launch_overlaps(device, stream);
  unsigned count = 0;
  CUlaunchAttribute attributes[2];
  if (overlaps)
    attributes[count++] = (CUlaunchAttribute){
        .id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
        .value.programmaticStreamSerializationAllowed = 1};
  if (launch->cluster > 1)
    attributes[count++] =
        (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                            .value.clusterDim = {launch->cluster, 1, 1}};
  const CUlaunchConfig config = {.gridDimX = launch->grid[0],
                                 .gridDimY = launch->grid[1],
                                 .gridDimZ = launch->grid[2],
                                 .blockDimX = launch->block[0],
                                 .blockDimY = launch->block[1],
                                 .blockDimZ = launch->block[2],
                                 .sharedMemBytes = launch->shared_bytes,
                                 .hStream = (CUstream)stream,
                                 .attrs = attributes,
                                 .numAttrs = count};
  if (launch->overlaps) *launch->overlaps = overlaps;
  return RABBET_CUDA(device->driver, cuLaunchKernelEx,
                     (&config, launch->function, parameters, NULL));
}
