// Streams, events, graphs and pinned memory: the optional part of the device's
// table.
#ifndef RABBET_SRC_DEVICE_CUDA_DRIVER_STREAM_H_
#define RABBET_SRC_DEVICE_CUDA_DRIVER_STREAM_H_

#include "device/cuda/cuda.h"

rabbet_status_t rabbet_cuda_allocate_host(rabbet_device_t* device, size_t size,
                                          void** out_memory);
void rabbet_cuda_free_host(rabbet_device_t* device, void* memory);
rabbet_status_t rabbet_cuda_create_stream(rabbet_device_t* device,
                                          void** out_stream);
void rabbet_cuda_destroy_stream(rabbet_device_t* device, void* stream);
rabbet_status_t rabbet_cuda_create_event(rabbet_device_t* device,
                                         void** out_event);
void rabbet_cuda_destroy_event(rabbet_device_t* device, void* event);
rabbet_status_t rabbet_cuda_record_event(rabbet_device_t* device, void* event,
                                         void* stream);
rabbet_status_t rabbet_cuda_elapsed(rabbet_device_t* device, void* begin,
                                    void* end, int64_t* out_ns);
rabbet_status_t rabbet_cuda_record_begin(rabbet_device_t* device, void* stream);
rabbet_status_t rabbet_cuda_is_recording(rabbet_device_t* device, void* stream,
                                         bool* out_recording);
rabbet_status_t rabbet_cuda_record_end(rabbet_device_t* device, void* stream,
                                       void** graph);
// Graphs with loops are made anew.
void rabbet_cuda_recording_has_loop(void);
rabbet_status_t rabbet_cuda_launch_graph(rabbet_device_t* device, void* graph,
                                         void* stream);
void rabbet_cuda_destroy_graph(rabbet_device_t* device, void* graph);

#endif  // RABBET_SRC_DEVICE_CUDA_DRIVER_STREAM_H_
