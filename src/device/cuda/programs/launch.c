#include "device/cuda/cuda.h"

// The stream of this thread's last launch, and its kind. After a library's
// kernel, which lets no kernel start before its end, overlapping gains nothing,
// and takes longer in a graph than a plain edge.
static _Thread_local struct {
  const void* stream;
  enum { LAUNCH_OTHER, LAUNCH_PROGRAM, LAUNCH_CLOSED } kind;
} launch_last;

void rabbet_cuda_launch_other(void) {
  launch_last.kind = LAUNCH_OTHER;
}

rabbet_status_t rabbet_cuda_launch_close(const rabbet_cuda_device_t* device,
                                         void* scratch, void* stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  bool closed =
      launch_last.kind == LAUNCH_CLOSED && launch_last.stream == stream;
  launch_last.stream = stream;
  launch_last.kind = LAUNCH_CLOSED;
  if (closed || device->major < 9) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(RABBET_CUDA(device->driver, cuStreamIsCapturing,
                                     ((CUstream)stream, &status)));
  if (status == CU_STREAM_CAPTURE_STATUS_ACTIVE) return rabbet_ok();
  return RABBET_CUDA(device->driver, cuMemsetD8Async,
                     ((CUdeviceptr)(uintptr_t)scratch, 0, 1, (CUstream)stream));
}

static bool launch_overlaps(const rabbet_cuda_device_t* device,
                            const void* stream) {
  bool follows =
      launch_last.kind == LAUNCH_PROGRAM && launch_last.stream == stream;
  launch_last.stream = stream;
  launch_last.kind = LAUNCH_PROGRAM;
  return follows &&
         atomic_load_explicit(&device->overlaps, memory_order_relaxed);
}

rabbet_status_t rabbet_cuda_launch(const rabbet_cuda_device_t* device,
                                   const rabbet_cuda_launch_t* launch,
                                   void** parameters, void* stream) {
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
