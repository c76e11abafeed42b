// Declarations that the kernel of products by cuBLASLt (matmul.c) and its
// proposals (matmul_propose.c) share.
#ifndef RABBET_SRC_DEVICE_CUDA_CUBLASLT_MATMUL_KERNEL_H_
#define RABBET_SRC_DEVICE_CUDA_CUBLASLT_MATMUL_KERNEL_H_

#include "device/cuda/cublaslt/matmul_algorithms.h"

// A tactic is an algorithm's hash, with this bit if FLOAT is computed as TF32.
#define RABBET_MATMUL_TF32 (1 << 29)

// The artifact that a plan keeps, and that a build has for a candidate.
#define RABBET_MATMUL_KEPT 0x314d4c52u  // "RLM1"
typedef struct rabbet_matmul_kept_t {
  uint32_t magic;
  int32_t tactic;
  uint64_t version;  // of the library
  int32_t major, minor;
  int64_t m, n, k, batch;  // the algorithm was chosen for these
  cublasLtMatmulAlgo_t algorithm;
} rabbet_matmul_kept_t;

rabbet_matmul_kept_t rabbet_matmul_kept(const rabbet_cuda_device_t* device,
                                        const rabbet_cublaslt_t* library,
                                        int32_t tactic,
                                        const rabbet_matmul_shape_t* shape,
                                        const cublasLtMatmulAlgo_t* algorithm);

static inline size_t rabbet_matmul_size(rabbet_dtype_t dtype) {
  return (size_t)rabbet_dtype_bits(dtype) / 8;
}

static inline rabbet_matmul_limits_t rabbet_matmul_limits(size_t in_size,
                                                          size_t out_size,
                                                          bool rounds_once) {
  return (rabbet_matmul_limits_t){RABBET_MATMUL_WORKSPACE,
                                  RABBET_MATMUL_ALIGNMENT, in_size, out_size,
                                  rounds_once};
}

// INCOMPATIBLE unless the class computes groups with these types and formats.
rabbet_status_t rabbet_matmul_check_group(const rabbet_group_t* group,
                                          rabbet_matmul_types_t* out_types);
// Describes the group's product to the library; UNSUPPORTED if it cannot be
// expressed.
rabbet_status_t rabbet_matmul_problem(const rabbet_group_t* group,
                                      const rabbet_dims_t* dims,
                                      rabbet_matmul_shape_t* out_shape,
                                      rabbet_matmul_epilogue_t* out_epilogue);

// The number of algorithms to time at this optimization level.
int32_t rabbet_matmul_wish(int level);

// Methods of the class.
rabbet_status_t rabbet_matmul_propose(const rabbet_propose_t* propose,
                                      rabbet_candidate_sink_t sink);
rabbet_status_t rabbet_matmul_ask(const rabbet_question_t* question,
                                  rabbet_answer_sink_t sink);

#endif  // RABBET_SRC_DEVICE_CUDA_CUBLASLT_MATMUL_KERNEL_H_
