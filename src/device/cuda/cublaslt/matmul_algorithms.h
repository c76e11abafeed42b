// The description of a product for cuBLASLt, and the algorithms that the
// library has for it. The device's context must be current.
#ifndef RABBET_SRC_DEVICE_CUDA_CUBLASLT_MATMUL_ALGORITHMS_H_
#define RABBET_SRC_DEVICE_CUDA_CUBLASLT_MATMUL_ALGORITHMS_H_

#include "device/cuda/cublaslt/cublaslt.h"
#include "device/cuda/products/matmul.h"

#define RABBET_MATMUL_WORKSPACE ((uint64_t)32 << 20)
#define RABBET_MATMUL_MAX_CHOICES 16
#define RABBET_MATMUL_ALIGNMENT 16  // of addresses, in bytes

// Types of the factors, and of all other tensors.
typedef struct rabbet_matmul_types_t {
  rabbet_dtype_t in, out;
} rabbet_matmul_types_t;

// A problem for cuBLASLt. Its matrices are column-major, so it gets the
// transposed product: y' = b' a', with n rows and m columns.
typedef struct rabbet_matmul_setup_t {
  const rabbet_cublaslt_t* library;
  cublasLtMatmulDesc_t desc;
  cublasLtMatrixLayout_t a, b, y;  // ours
  cublasLtMatrixLayout_t c;        // the added matrix; may be y
  bool adds_narrow_bias;           // to a result of 16 bits
} rabbet_matmul_setup_t;

// The caller must end `setup` even if this fails. If the epilogue has a bias,
// its address must be set before the product runs.
rabbet_status_t rabbet_matmul_setup(const rabbet_cublaslt_t* library,
                                    const rabbet_matmul_shape_t* shape,
                                    const rabbet_matmul_epilogue_t* epilogue,
                                    rabbet_matmul_types_t types, bool tf32,
                                    rabbet_matmul_setup_t* setup);
void rabbet_matmul_setup_end(rabbet_matmul_setup_t* setup);
rabbet_status_t rabbet_matmul_set_bias(const rabbet_matmul_setup_t* setup,
                                       const void* address);

// Limits for an algorithm.
typedef struct rabbet_matmul_limits_t {
  uint64_t workspace;
  uint32_t alignment;  // of addresses, in bytes
  size_t in_size, out_size;
  bool rounds_once;  // refuse other algorithms
} rabbet_matmul_limits_t;

// The library's first choices, at most `wish`; *out_count is 0 if it has none.
// If some round once, only these are returned.
rabbet_status_t rabbet_matmul_choices(const rabbet_matmul_setup_t* setup,
                                      const rabbet_matmul_shape_t* shape,
                                      const rabbet_matmul_limits_t* limits,
                                      int wish,
                                      cublasLtMatmulHeuristicResult_t* out,
                                      int* out_count);
// Whether the algorithm can compute this product with a workspace of
// RABBET_MATMUL_WORKSPACE bytes; *out_workspace: the bytes that it needs.
bool rabbet_matmul_admits(const rabbet_matmul_setup_t* setup,
                          const cublasLtMatmulAlgo_t* algorithm,
                          size_t* out_workspace);

// A hash of 29 bits that identifies an algorithm.
int32_t rabbet_matmul_hash(const cublasLtMatmulAlgo_t* algorithm);
// "a66 t20 s36 k2 c5": algorithm, tile, stages, parts of k, cluster.
void rabbet_matmul_name(const rabbet_cublaslt_t* library,
                        const cublasLtMatmulAlgo_t* algorithm, char* out,
                        size_t size);

#endif  // RABBET_SRC_DEVICE_CUDA_CUBLASLT_MATMUL_ALGORITHMS_H_
