// Loops in recordings: CUDA's conditional graph nodes.
#ifndef RABBET_SRC_DEVICE_CUDA_LOOPS_LOOPS_H_
#define RABBET_SRC_DEVICE_CUDA_LOOPS_LOOPS_H_

#include "device/cuda/cuda.h"

// Of the device's table.
rabbet_status_t rabbet_cuda_loop_artifacts(rabbet_device_t* device,
                                           rabbet_artifact_sink_t sink);
rabbet_status_t rabbet_cuda_prepare_loops(rabbet_device_t* device,
                                          const rabbet_artifact_t* artifacts,
                                          size_t artifact_count);
rabbet_status_t rabbet_cuda_record_loop(rabbet_device_t* device,
                                        const rabbet_device_loop_t* loop,
                                        void* stream);
rabbet_status_t rabbet_cuda_copy_in_loop(rabbet_device_t* device,
                                         const rabbet_device_loop_copy_t* copy,
                                         void* stream);
void rabbet_cuda_loops_close(rabbet_cuda_device_t* device);

#endif  // RABBET_SRC_DEVICE_CUDA_LOOPS_LOOPS_H_
