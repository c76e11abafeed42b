#include "device/cuda/cuda.h"

// The stream of this thread's last launch, where nothing else came since. After
// a library's kernel, which admits nobody before its end, overlapping gains
// nothing, and takes longer in a graph than a plain edge.
static _Thread_local struct {
  const void* stream;
  bool is_known;
} launch_last;

void rabbet_cuda_launch_other(void) {
  launch_last.is_known = false;
}

static bool launch_overlaps(const rabbet_cuda_device_t* device,
                            const void* stream) {
  bool follows = launch_last.is_known && launch_last.stream == stream;
  launch_last.stream = stream;
  launch_last.is_known = true;
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
