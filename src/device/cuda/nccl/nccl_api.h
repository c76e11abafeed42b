// The part of NCCL's interface that Rabbet uses, declared here so that building
// needs no toolkit. Names and numbers are the library's (NCCL 2.19).
#ifndef RABBET_SRC_DEVICE_CUDA_NCCL_NCCL_API_H_
#define RABBET_SRC_DEVICE_CUDA_NCCL_NCCL_API_H_

#include <limits.h>
#include <stddef.h>

typedef struct ncclComm* ncclComm_t;
typedef struct CUstream_st* cudaStream_t;

typedef int ncclResult_t;
enum {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
};

typedef int ncclDataType_t;
enum {
  ncclInt8 = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclInt64 = 4,
  ncclFloat16 = 6,
  ncclFloat32 = 7,
  ncclFloat64 = 8,
  ncclBfloat16 = 9,
  ncclFloat8e4m3 = 10,  // from 2.24 on
};

// SUM, PROD, MAX, MIN and AVG have the numbers of rabbet_reduce_t.
typedef int ncclRedOp_t;

#define NCCL_SPLIT_NOCOLOR (-1)
#define NCCL_CONFIG_UNDEF INT_MIN

// As of 2.19, which `size` and `version` say; newer libraries take it.
typedef struct ncclConfig_t {
  size_t size;
  unsigned magic, version;
  int blocking, cga_cluster_size, min_ctas, max_ctas;
  const char* net_name;
  int split_share;
} ncclConfig_t;
#define NCCL_CONFIG_2_19                                               \
  {                                                                    \
    sizeof(ncclConfig_t), 0xcafebeef, 21900, NCCL_CONFIG_UNDEF,        \
        NCCL_CONFIG_UNDEF, NCCL_CONFIG_UNDEF, NCCL_CONFIG_UNDEF, NULL, \
        NCCL_CONFIG_UNDEF                                              \
  }

#endif  // RABBET_SRC_DEVICE_CUDA_NCCL_NCCL_API_H_
