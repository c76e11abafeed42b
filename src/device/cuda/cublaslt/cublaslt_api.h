// The part of cuBLASLt's interface that Rabbet uses, declared here so that
// building needs no toolkit. Names and numbers are the library's (cuBLAS 12 and
// 13).
#ifndef RABBET_SRC_DEVICE_CUDA_CUBLASLT_CUBLASLT_API_H_
#define RABBET_SRC_DEVICE_CUDA_CUBLASLT_CUBLASLT_API_H_

#include <stddef.h>
#include <stdint.h>

typedef int cublasStatus_t;
enum {
  CUBLAS_STATUS_SUCCESS = 0,
  CUBLAS_STATUS_NOT_INITIALIZED = 1,
  CUBLAS_STATUS_ALLOC_FAILED = 3,
  CUBLAS_STATUS_INVALID_VALUE = 7,
  CUBLAS_STATUS_ARCH_MISMATCH = 8,
  CUBLAS_STATUS_NOT_SUPPORTED = 15,
};

// Opaque; matrices are column-major unless said otherwise.
typedef struct cublasLtContext* cublasLtHandle_t;
typedef struct cublasLtMatmulDescOpaque* cublasLtMatmulDesc_t;
typedef struct cublasLtMatrixLayoutOpaque* cublasLtMatrixLayout_t;
typedef struct cublasLtMatmulPreferenceOpaque* cublasLtMatmulPreference_t;

// May be kept and used again with the same version of the library.
typedef struct cublasLtMatmulAlgo_t {
  uint64_t data[8];
} cublasLtMatmulAlgo_t;
typedef struct cublasLtMatmulHeuristicResult_t {
  cublasLtMatmulAlgo_t algo;
  size_t workspaceSize;
  cublasStatus_t state;  // of this result alone
  float wavesCount;
  int reserved[4];
} cublasLtMatmulHeuristicResult_t;

typedef int cudaDataType;
enum {
  CUDA_R_32F = 0,
  CUDA_R_16F = 2,
  CUDA_R_8I = 3,
  CUDA_R_32I = 10,
  CUDA_R_16BF = 14,
  CUDA_R_8F_E4M3 = 28,
};
typedef int cublasComputeType_t;
enum {
  CUBLAS_COMPUTE_32F = 68,
  CUBLAS_COMPUTE_32I = 72,
  CUBLAS_COMPUTE_32F_FAST_TF32 = 77,
};
typedef int32_t cublasOperation_t;
enum {
  CUBLAS_OP_N = 0,
  CUBLAS_OP_T = 1,
};

typedef int cublasLtMatmulDescAttributes_t;
enum {
  CUBLASLT_MATMUL_DESC_TRANSA = 3,        // int32_t
  CUBLASLT_MATMUL_DESC_TRANSB = 4,        // int32_t
  CUBLASLT_MATMUL_DESC_EPILOGUE = 7,      // uint32_t
  CUBLASLT_MATMUL_DESC_BIAS_POINTER = 8,  // const void*; one for each row of D
};
typedef uint32_t cublasLtEpilogue_t;
enum {
  CUBLASLT_EPILOGUE_DEFAULT = 1,
  CUBLASLT_EPILOGUE_RELU = 2,
  CUBLASLT_EPILOGUE_BIAS = 4,
  CUBLASLT_EPILOGUE_GELU = 32,  // by tanh
};

typedef int cublasLtMatrixLayoutAttribute_t;
enum {
  CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT = 5,           // int32_t
  CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET = 6,  // int64_t, elements
};

typedef int cublasLtMatmulPreferenceAttributes_t;
enum {
  CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1,    // uint64_t
  CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK = 3,  // uint32_t
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = 5,  // uint32_t
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES = 6,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES = 7,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES = 8,
  CUBLASLT_MATMUL_PREF_IMPL_MASK = 12,  // uint64_t
};

// The type in which partial sums of a split product are added.
enum { CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE = 2 };
// The types that an algorithm accumulates in.
#define CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_16F (UINT64_C(1) << 8)
#define CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_32F (UINT64_C(2) << 8)
#define CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_32I (UINT64_C(8) << 8)

typedef int cublasLtMatmulAlgoCapAttributes_t;
enum { CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS = 15 };  // uint64_t

typedef int cublasLtMatmulAlgoConfigAttributes_t;
enum {
  CUBLASLT_ALGO_CONFIG_ID = 0,                // int32_t
  CUBLASLT_ALGO_CONFIG_TILE_ID = 1,           // uint32_t
  CUBLASLT_ALGO_CONFIG_SPLITK_NUM = 2,        // int32_t
  CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME = 3,  // uint32_t
  CUBLASLT_ALGO_CONFIG_STAGES_ID = 6,         // uint32_t
  CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID = 8,  // uint16_t
};

#endif  // RABBET_SRC_DEVICE_CUDA_CUBLASLT_CUBLASLT_API_H_
