// Declarations that the files of the CUDA device share.
#ifndef RABBET_SRC_DEVICE_CUDA_CUDA_H_
#define RABBET_SRC_DEVICE_CUDA_CUDA_H_

#include <stdatomic.h>

#include "device/common/node_kernel.h"
#include "device/cuda/driver/driver.h"
#include "device/device.h"

typedef struct rabbet_cuda_programs_t rabbet_cuda_programs_t;
typedef struct rabbet_cuda_pool_t rabbet_cuda_pool_t;
typedef struct rabbet_cuda_loops_t rabbet_cuda_loops_t;

typedef struct rabbet_cuda_device_t {
  rabbet_device_t base;
  const rabbet_cuda_driver_t* driver;
  CUdevice device;
  // The GPU's primary context, which torch, CuPy and others share, unless
  // another context was current when the device was opened: then that one,
  // which its creator keeps owning.
  CUcontext context;
  bool primary;
  // Whether the context stays current on threads that had none.
  bool stays_current;
  // In a context that is not the primary one: memory that is freed with it, and
  // the driver's unique number of that memory. They show if the context lives.
  CUdeviceptr witness;
  unsigned long long witness_id;
  int ordinal;
  int major, minor;  // compute capability
  int multiprocessors;
  int shared_bytes;  // the most shared memory of a block, on request
  // Whether kernels are launched so that they overlap. Set when the device is
  // opened; false from the first program on whose kernels cannot wait.
  atomic_bool overlaps;
  rabbet_cuda_programs_t* programs;
  rabbet_cuda_pool_t* pool;            // memory_pool.h; NULL: there is none
  pthread_mutex_t libraries;           // guards creation of the next four
  struct rabbet_cublaslt_t* cublaslt;  // NULL until used
  struct rabbet_cudnn_t* cudnn;        // NULL until used
  struct rabbet_nccl_t* nccl;          // NULL until used
  rabbet_cuda_loops_t* loops;          // loops.h; NULL until used
  CUevent begin, end;                  // of `time`
  // Of `time_each`, created when first needed.
  CUevent marks[RABBET_DEVICE_TIMES + 1];
  CUdeviceptr scratch;  // a byte that rabbet_cuda_launch_close writes
  char signature[256];
} rabbet_cuda_device_t;

static inline rabbet_cuda_device_t* rabbet_cuda(rabbet_device_t* device) {
  return (rabbet_cuda_device_t*)device;
}

// Makes the device's context current on the calling thread, and restores the
// previous one. If none was current, the first GPU's primary context stays
// current.
//
// Every function of the device's table calls it. Kernels' create and prepare
// must if they call the driver, and their destroy always; enqueue is called
// inside a run, where the context is current. FAILED_PRECONDITION if the
// context belonged to the program and has been destroyed: its memory and
// streams are gone with it, and there is nothing to release.
rabbet_status_t rabbet_cuda_enter(const rabbet_cuda_device_t* device,
                                  CUcontext* out_before);
void rabbet_cuda_leave(const rabbet_cuda_device_t* device, CUcontext before);

// Adds to a failed allocation the requested size and the free memory.
rabbet_status_t rabbet_cuda_explain_memory(const rabbet_cuda_device_t* device,
                                           rabbet_status_t status, size_t size);

// Memory on the device with these bytes; NULL if there are none. The caller
// frees it, also after a failure.
rabbet_status_t rabbet_cuda_upload(rabbet_device_t* device, const void* data,
                                   size_t bytes, void** out_memory);

// Calls a function of the driver with the device's context current.
#define RABBET_CUDA_INSIDE(device, name, arguments)                  \
  ({                                                                 \
    CUcontext before_ = NULL;                                        \
    rabbet_status_t inside_ = rabbet_cuda_enter((device), &before_); \
    if (rabbet_is_ok(inside_)) {                                     \
      inside_ = RABBET_CUDA((device)->driver, name, arguments);      \
      rabbet_cuda_leave((device), before_);                          \
    }                                                                \
    inside_;                                                         \
  })

// Every class, one line each in device/kernels.def.
#define RABBET_CUDA_KERNEL(name, ...) extern const rabbet_kernel_class_t name;
#include "device/kernels.def"

// ---- Launching -------------------------------------------------------------

// A kernel of a program and how many blocks of how many threads run it.
typedef struct rabbet_cuda_launch_t {
  CUfunction function;
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  unsigned cluster;   // blocks of a cluster, along x; 0: one
  int32_t* overlaps;  // set to whether the launch overlaps; may be NULL
} rabbet_cuda_launch_t;

// Lets launches of `function` have `bytes` of dynamic shared memory, and those
// of other kernels that share the function, which may need more, have as much
// as before: it permits all that a block can get. Errors: INCOMPATIBLE where
// that is less than `bytes`.
rabbet_status_t rabbet_cuda_launch_permit(const rabbet_cuda_device_t* device,
                                          CUfunction function, int64_t bytes);
// Launches a kernel of a program; parameters[i] points to its parameter i. If
// the device overlaps kernels and the previous one in the stream is a
// program's, too, the driver may start this one's blocks while that one still
// runs; programs/order.cuh says what kernels must do for it.
rabbet_status_t rabbet_cuda_launch(const rabbet_cuda_device_t* device,
                                   const rabbet_cuda_launch_t* launch,
                                   void** parameters, void* stream);
// Forgets this thread's last launch: a run begins, or a graph was launched, so
// no kernel at a stream's end admits the next one early.
void rabbet_cuda_launch_begin(void);
// The same, and from now on this thread records the body of a loop, or does no
// more. Kernels in bodies do not overlap: NVIDIA does not say that they may.
void rabbet_cuda_launch_body(bool inside);
// Says that this thread enqueues work other than a program's kernel, with which
// the next kernel does not overlap. Without this call the result is the same,
// since every kernel waits for the work before it, but takes longer.
void rabbet_cuda_launch_other(const void* stream);
// The same before kernels of cuDNN, which may begin early, as programs' kernels
// do, but need not wait for their inputs: makes them start after all earlier
// launches have ended.
rabbet_status_t rabbet_cuda_launch_close(const rabbet_cuda_device_t* device,
                                         void* stream);
// `hand_over` of the device's table.
rabbet_status_t rabbet_cuda_launch_hand_over(rabbet_device_t* device,
                                             void* stream);

#endif  // RABBET_SRC_DEVICE_CUDA_CUDA_H_
