// Declarations that cuDNN's kernels (cudnn/kernel.c) and their offers
// (cudnn/propose.c) share.
#ifndef RABBET_SRC_DEVICE_CUDA_CUDNN_INTERNAL_H_
#define RABBET_SRC_DEVICE_CUDA_CUDNN_INTERNAL_H_

#include <stddef.h>

#include "device/cuda/cudnn/kernel.h"

// A tactic is a choice's number, with this bit if FLOAT is computed as TF32.
#define RABBET_CUDNN_TF32 (1 << 30)

// The header of the artifacts that a plan keeps. KEPT_PLAN: cuDNN's serialized
// plan for one graph follows. KEPT_ENGINE: the engine and its knobs follow
// (rabbet_cudnn_kept_engine_t), for any shapes; `graph` is 0. A build has only
// the latter of a candidate.
#define RABBET_CUDNN_KEPT_PLAN 0x31444352u    // "RCD1"
#define RABBET_CUDNN_KEPT_ENGINE 0x31454352u  // "RCE1"
typedef struct rabbet_cudnn_kept_t {
  uint32_t magic;
  int32_t tactic;
  uint64_t version;  // of the library
  int32_t major, minor;
  uint64_t graph;  // the graph's hash
} rabbet_cudnn_kept_t;

typedef struct rabbet_cudnn_kept_engine_t {
  rabbet_cudnn_kept_t header;
  rabbet_cudnn_engine_t engine;  // as many knobs as it has
} rabbet_cudnn_kept_engine_t;

static inline size_t rabbet_cudnn_kept_engine_size(int64_t knob_count) {
  return offsetof(rabbet_cudnn_kept_engine_t, engine.knobs) +
         (size_t)knob_count * sizeof(int64_t[2]);
}
rabbet_cudnn_kept_t rabbet_cudnn_kept(const rabbet_cuda_device_t* device,
                                      const rabbet_cudnn_t* library,
                                      uint32_t magic, int32_t tactic);

// Whether factors of the group are INT8.
bool rabbet_cudnn_has_bytes(const rabbet_group_t* group);

#endif  // RABBET_SRC_DEVICE_CUDA_CUDNN_INTERNAL_H_
