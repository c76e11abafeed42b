// A stand-in for cuBLASLt: matrix products on the host, with the checks and the
// epilogues that Rabbet uses (src/device/cuda/cublaslt/cublaslt.def).
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_stand_in/numbers.h"
#include "cuda_stand_in/services.h"
#include "device/cuda/cublaslt/cublaslt_api.h"

#define EXPORT __attribute__((visibility("default")))
#define CUBLAS_STATUS_EXECUTION_FAILED 13
#define CUBLAS_STATUS_INTERNAL_ERROR 14

// Functions with other parameters than Rabbet calls do not compile.
#define RABBET_CUBLASLT_CALL(result, name, parameters) \
  EXPORT result name parameters;
#include "device/cuda/cublaslt/cublaslt.def"
#undef RABBET_CUBLASLT_CALL

struct cublasLtContext {
  int unused;
};
struct cublasLtMatmulDescOpaque {
  cublasComputeType_t compute;
  cudaDataType scale;
  int32_t transpose_a, transpose_b;
  cublasLtEpilogue_t epilogue;
  const void* bias;
};
struct cublasLtMatrixLayoutOpaque {
  cudaDataType type;
  uint64_t rows, columns;
  int64_t leading;
  int32_t batch;
  int64_t step;
};
struct cublasLtMatmulPreferenceOpaque {
  uint64_t workspace;
  uint32_t alignment[4];
};
typedef struct cublasLtMatmulDescOpaque desc_t;
typedef struct cublasLtMatrixLayoutOpaque layout_t;

// ---- Small functions -------------------------------------------------------

EXPORT size_t cublasLtGetVersion(void) {
  return 130000;
}

EXPORT const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR:
      return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
      return "CUBLAS_STATUS_UNKNOWN";
  }
}

EXPORT const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? "success" : "the stand-in failed";
}

// The result of a call that the test made fail.
static cublasStatus_t refused(const char* name) {
  CUresult result = stand_in_services()->call(name, "");
  if (result == CUDA_SUCCESS) return CUBLAS_STATUS_SUCCESS;
  return result == CUDA_ERROR_OUT_OF_MEMORY ? CUBLAS_STATUS_ALLOC_FAILED
                                            : CUBLAS_STATUS_INTERNAL_ERROR;
}

static cublasStatus_t object_create(const char* call, const char* kind,
                                    size_t size, void* out_object) {
  cublasStatus_t status = refused(call);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  void* object = calloc(1, size);
  if (!object) return CUBLAS_STATUS_ALLOC_FAILED;
  memcpy(out_object, &object, sizeof(object));
  stand_in_services()->track(kind, 1);
  return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t object_destroy(const char* call, const char* kind,
                                     void* object) {
  cublasStatus_t status = refused(call);
  if (!object) return CUBLAS_STATUS_SUCCESS;
  stand_in_services()->track(kind, -1);
  free(object);
  return status;
}

EXPORT cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  return object_create("cublasLtCreate", "cuBLASLt handles", sizeof(**handle),
                       handle);
}
EXPORT cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  return object_destroy("cublasLtDestroy", "cuBLASLt handles", handle);
}

// ---- Descriptors -----------------------------------------------------------

EXPORT cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc,
                                               cublasComputeType_t compute,
                                               cudaDataType scale) {
  cublasStatus_t status = object_create(
      "cublasLtMatmulDescCreate", "cuBLASLt products", sizeof(**desc), desc);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  **desc = (desc_t){.compute = compute,
                    .scale = scale,
                    .epilogue = CUBLASLT_EPILOGUE_DEFAULT};
  return status;
}
EXPORT cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  return object_destroy("cublasLtMatmulDescDestroy", "cuBLASLt products", desc);
}

static cublasStatus_t set(void* field, size_t field_size, const void* value,
                          size_t size) {
  if (size != field_size || !value) return CUBLAS_STATUS_INVALID_VALUE;
  memcpy(field, value, size);
  return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatmulDescSetAttribute(
    cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
    const void* value, size_t size) {
  cublasStatus_t status = refused("cublasLtMatmulDescSetAttribute");
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return set(&desc->transpose_a, sizeof(desc->transpose_a), value, size);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return set(&desc->transpose_b, sizeof(desc->transpose_b), value, size);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return set(&desc->epilogue, sizeof(desc->epilogue), value, size);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return set(&desc->bias, sizeof(desc->bias), value, size);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

EXPORT cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout,
                                                 cudaDataType type,
                                                 uint64_t rows,
                                                 uint64_t columns,
                                                 int64_t leading_dimension) {
  cublasStatus_t status =
      object_create("cublasLtMatrixLayoutCreate", "cuBLASLt layouts",
                    sizeof(**layout), layout);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  **layout = (layout_t){.type = type,
                        .rows = rows,
                        .columns = columns,
                        .leading = leading_dimension,
                        .batch = 1};
  return status;
}
EXPORT cublasStatus_t
cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return object_destroy("cublasLtMatrixLayoutDestroy", "cuBLASLt layouts",
                        layout);
}

EXPORT cublasStatus_t cublasLtMatrixLayoutSetAttribute(
    cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute,
    const void* value, size_t size) {
  cublasStatus_t status = refused("cublasLtMatrixLayoutSetAttribute");
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return set(&layout->batch, sizeof(layout->batch), value, size);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return set(&layout->step, sizeof(layout->step), value, size);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

EXPORT cublasStatus_t
cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  cublasStatus_t status =
      object_create("cublasLtMatmulPreferenceCreate", "cuBLASLt preferences",
                    sizeof(**preference), preference);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  for (int i = 0; i < 4; ++i)
    (*preference)->alignment[i] = 256;
  return status;
}
EXPORT cublasStatus_t
cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return object_destroy("cublasLtMatmulPreferenceDestroy",
                        "cuBLASLt preferences", preference);
}

EXPORT cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t preference,
    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
    size_t size) {
  cublasStatus_t status = refused("cublasLtMatmulPreferenceSetAttribute");
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  // Its algorithms all sum in FLOAT.
  if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
    return size == sizeof(uint32_t) ? CUBLAS_STATUS_SUCCESS
                                    : CUBLAS_STATUS_INVALID_VALUE;
  if (attribute == CUBLASLT_MATMUL_PREF_IMPL_MASK)
    return size == sizeof(uint64_t) ? CUBLAS_STATUS_SUCCESS
                                    : CUBLAS_STATUS_INVALID_VALUE;
  int at = attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
    return set(&preference->workspace, sizeof(preference->workspace), value,
               size);
  if (at < 0 || at > 3) return CUBLAS_STATUS_INVALID_VALUE;
  return set(&preference->alignment[at], sizeof(preference->alignment[at]),
             value, size);
}

// ---- Problems --------------------------------------------------------------

typedef struct problem_t {
  desc_t desc;
  layout_t a, b, c, d;
  float alpha, beta;
  const void *a_data, *b_data, *c_data;
  void *d_data, *workspace;
  size_t workspace_size;
  bool poisons;       // the context: a test wants it
  bool rounds;        // each sum on the way
  bool rounds_twice;  // before it adds a bias
  uint64_t m, n, k;
} problem_t;

static size_t type_size(cudaDataType type) {
  return type == CUDA_R_32F || type == CUDA_R_32I      ? 4
         : type == CUDA_R_16F || type == CUDA_R_16BF   ? 2
         : type == CUDA_R_8I || type == CUDA_R_8F_E4M3 ? 1
                                                       : 0;
}

static bool layout_is_good(const layout_t* l) {
  return type_size(l->type) > 0 && l->rows > 0 && l->columns > 0 &&
         l->leading >= (int64_t)l->rows && l->batch > 0 && l->step >= 0;
}

static bool layouts_agree(const layout_t* a, const layout_t* b) {
  return a->rows == b->rows && a->columns == b->columns && a->batch == b->batch;
}

static bool type_is_narrow(cudaDataType type) {
  return type == CUDA_R_16F || type == CUDA_R_16BF;
}

// INT8 has INT32, FP8 the floating types; what is added to FP8 has 16 bits.
static bool problem_has_byte_types(const problem_t* p) {
  if (p->a.type != p->b.type) return false;
  if (p->a.type == CUDA_R_8I)
    return p->c.type == CUDA_R_32I && p->d.type == CUDA_R_32I;
  if (p->d.type == CUDA_R_8F_E4M3) return type_is_narrow(p->c.type);
  return p->c.type == p->d.type &&
         (type_is_narrow(p->d.type) || p->d.type == CUDA_R_32F);
}

// A bias has the type of a result of 16 bits, which others have not.
static bool problem_has_byte_epilogue(const problem_t* p) {
  const uint32_t epilogues = CUBLASLT_EPILOGUE_DEFAULT |
                             CUBLASLT_EPILOGUE_RELU | CUBLASLT_EPILOGUE_BIAS |
                             CUBLASLT_EPILOGUE_GELU;
  if (p->a.type == CUDA_R_8I)
    return p->desc.epilogue == CUBLASLT_EPILOGUE_DEFAULT;
  return (p->desc.epilogue & ~epilogues) == 0 &&
         (!(p->desc.epilogue & CUBLASLT_EPILOGUE_BIAS) ||
          (p->desc.bias && type_is_narrow(p->d.type)));
}

// Factors of 8 bits: the inner extent next to next in both, rows that begin at
// vectors.
static bool problem_is_of_bytes(const problem_t* p) {
  bool whole = p->a.type == CUDA_R_8I;
  uint64_t vector = whole ? 4 : 16;
  return problem_has_byte_types(p) && problem_has_byte_epilogue(p) &&
         p->desc.compute == (whole ? CUBLAS_COMPUTE_32I : CUBLAS_COMPUTE_32F) &&
         p->desc.scale == (whole ? CUDA_R_32I : CUDA_R_32F) &&
         p->desc.transpose_a == CUBLAS_OP_T &&
         p->desc.transpose_b == CUBLAS_OP_N && p->m % vector == 0 &&
         p->k % vector == 0 && p->a.leading % (int64_t)vector == 0 &&
         p->b.leading % (int64_t)vector == 0;
}

// SUCCESS, or how the library says what is wrong.
static cublasStatus_t problem_check(problem_t* p) {
  const uint32_t epilogues = CUBLASLT_EPILOGUE_DEFAULT |
                             CUBLASLT_EPILOGUE_RELU | CUBLASLT_EPILOGUE_BIAS |
                             CUBLASLT_EPILOGUE_GELU;
  bool ta = p->desc.transpose_a == CUBLAS_OP_T;
  bool tb = p->desc.transpose_b == CUBLAS_OP_T;
  p->m = ta ? p->a.columns : p->a.rows;
  p->k = ta ? p->a.rows : p->a.columns;
  p->n = tb ? p->b.rows : p->b.columns;
  if (!layout_is_good(&p->a) || !layout_is_good(&p->b) ||
      !layout_is_good(&p->c) || !layout_is_good(&p->d) ||
      (tb ? p->b.columns : p->b.rows) != p->k || p->d.rows != p->m ||
      p->d.columns != p->n || !layouts_agree(&p->c, &p->d) ||
      p->a.batch != p->d.batch || p->b.batch != p->d.batch ||
      (p->d.batch > 1 && p->d.step == 0))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (type_size(p->a.type) == 1)
    return problem_is_of_bytes(p) ? CUBLAS_STATUS_SUCCESS
                                  : CUBLAS_STATUS_NOT_SUPPORTED;
  if (p->a.type != p->b.type || p->a.type != p->d.type ||
      p->c.type != p->d.type || p->a.type == CUDA_R_32I ||
      p->desc.scale != CUDA_R_32F ||
      (p->desc.compute != CUBLAS_COMPUTE_32F &&
       p->desc.compute != CUBLAS_COMPUTE_32F_FAST_TF32) ||
      p->desc.epilogue & ~epilogues)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (p->desc.epilogue & CUBLASLT_EPILOGUE_BIAS && !p->desc.bias)
    return CUBLAS_STATUS_INVALID_VALUE;
  return CUBLAS_STATUS_SUCCESS;
}

// ---- Algorithms ------------------------------------------------------------

#define ALGORITHM_MAGIC UINT64_C(0x6f676c6174736c62)
// Number 3 sums in HALF, and is offered whatever the preferences say. The last
// one rounds before it adds a bias, as the library's number 24 does.
enum { ALGORITHMS = 5, ROUNDING = 3, ROUNDS_TWICE = 4 };

static size_t algorithm_workspace(const problem_t* p, uint64_t id) {
  return id == 1 ? p->m * p->n * (uint64_t)p->d.batch * 4 : 0;
}

static void algorithm_describe(const problem_t* p, uint64_t id,
                               cublasLtMatmulHeuristicResult_t* result) {
  *result = (cublasLtMatmulHeuristicResult_t){
      .algo = {{ALGORITHM_MAGIC, id, (uint64_t)p->d.type}},
      .workspaceSize = algorithm_workspace(p, id),
      .wavesCount = 1};
}

EXPORT cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
    cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
    cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t preference, int requested,
    cublasLtMatmulHeuristicResult_t* results, int* returned) {
  cublasStatus_t status = refused("cublasLtMatmulAlgoGetHeuristic");
  *returned = 0;
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (!handle || requested < 1) return CUBLAS_STATUS_INVALID_VALUE;
  problem_t p = {.desc = *desc, .a = *a, .b = *b, .c = *c, .d = *d};
  status = problem_check(&p);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  stand_in_fault("RABBET_STAND_IN_CUBLASLT_FAULT", "ask", (int64_t)p.m);
  for (uint64_t id = 0; id < ALGORITHMS && *returned < requested; ++id) {
    if (algorithm_workspace(&p, id) > preference->workspace) continue;
    // The third wants whole vectors.
    bool aligned = true;
    for (int i = 0; i < 4; ++i)
      aligned = aligned && preference->alignment[i] % 16 == 0;
    if (id == 2 && (!aligned || p.m % 8 != 0)) continue;
    if (id == ROUNDING && p.d.type != CUDA_R_16F) continue;
    if (id == ROUNDS_TWICE && type_size(p.d.type) != 2) continue;
    algorithm_describe(&p, id, &results[(*returned)++]);
  }
  return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t algorithm_check(const problem_t* p,
                                      const cublasLtMatmulAlgo_t* algorithm) {
  if (algorithm->data[0] != ALGORITHM_MAGIC || algorithm->data[1] >= ALGORITHMS)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (algorithm->data[2] != (uint64_t)p->d.type ||
      (algorithm->data[1] == 2 && p->m % 8 != 0))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatmulAlgoCheck(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
    cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
    cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    const cublasLtMatmulAlgo_t* algo, cublasLtMatmulHeuristicResult_t* result) {
  cublasStatus_t status = refused("cublasLtMatmulAlgoCheck");
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (!handle) return CUBLAS_STATUS_INVALID_VALUE;
  problem_t p = {.desc = *desc, .a = *a, .b = *b, .c = *c, .d = *d};
  status = problem_check(&p);
  if (status == CUBLAS_STATUS_SUCCESS) status = algorithm_check(&p, algo);
  if (status == CUBLAS_STATUS_SUCCESS)
    algorithm_describe(&p, algo->data[1], result);
  result->state = status;
  return status;
}

EXPORT cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(
    const cublasLtMatmulAlgo_t* algo,
    cublasLtMatmulAlgoConfigAttributes_t attribute, void* value, size_t size,
    size_t* written) {
  if (algo->data[0] != ALGORITHM_MAGIC) return CUBLAS_STATUS_INVALID_VALUE;
  size_t wanted = attribute == CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID ? 2 : 4;
  if (size != wanted) return CUBLAS_STATUS_INVALID_VALUE;
  uint32_t id = algo->data[1] == ROUNDS_TWICE ? 24 : (uint32_t)algo->data[1];
  uint32_t number = attribute == CUBLASLT_ALGO_CONFIG_ID           ? id
                    : attribute == CUBLASLT_ALGO_CONFIG_SPLITK_NUM ? 1
                                                                   : 0;
  memcpy(value, &number, size);
  *written = size;
  return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t
cublasLtMatmulAlgoCapGetAttribute(const cublasLtMatmulAlgo_t* algo,
                                  cublasLtMatmulAlgoCapAttributes_t attribute,
                                  void* value, size_t size, size_t* written) {
  if (algo->data[0] != ALGORITHM_MAGIC ||
      attribute != CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS ||
      size != sizeof(uint64_t))
    return CUBLAS_STATUS_INVALID_VALUE;
  uint64_t flags = algo->data[2] == (uint64_t)CUDA_R_32I
                       ? CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_32I
                   : algo->data[1] == ROUNDING
                       ? CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_16F
                       : CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_32F;
  memcpy(value, &flags, size);
  *written = size;
  return CUBLAS_STATUS_SUCCESS;
}

// ---- Products --------------------------------------------------------------

static float element_load(cudaDataType type, const void* data, int64_t at) {
  if (type == CUDA_R_32F) return ((const float*)data)[at];
  if (type == CUDA_R_8I) return ((const int8_t*)data)[at];
  if (type == CUDA_R_8F_E4M3)
    return number_from_fp8(((const uint8_t*)data)[at]);
  uint16_t bits = ((const uint16_t*)data)[at];
  return type == CUDA_R_16F ? number_from_half(bits) : number_from_bf16(bits);
}

static void element_store(cudaDataType type, void* data, int64_t at, float x) {
  if (type == CUDA_R_32F)
    ((float*)data)[at] = x;
  else if (type == CUDA_R_32I)
    ((int32_t*)data)[at] = (int32_t)x;
  else if (type == CUDA_R_8F_E4M3)
    ((uint8_t*)data)[at] = number_to_fp8(x);
  else
    ((uint16_t*)data)[at] =
        type == CUDA_R_16F ? number_to_half(x) : number_to_bf16(x);
}

// Of one batch's matrix: elements from the first to behind the last.
static int64_t layout_span(const layout_t* l) {
  return (int64_t)(l->columns - 1) * l->leading + (int64_t)l->rows;
}

static bool reach(const layout_t* l, const void* data, const char* what) {
  int64_t span = layout_span(l) + (l->batch - 1) * l->step;
  return stand_in_services()->reach(data, (size_t)span * type_size(l->type),
                                    what);
}

// A matrix as floats by columns of `inner` elements; `turned`: by rows.
static void matrix_read(const layout_t* l, const void* data, int batch,
                        bool turned, bool tf32, float* out) {
  for (uint64_t c = 0; c < l->columns; ++c) {
    for (uint64_t r = 0; r < l->rows; ++r) {
      float x =
          element_load(l->type, data,
                       batch * l->step + (int64_t)c * l->leading + (int64_t)r);
      if (tf32) x = number_to_tf32(x);
      out[turned ? r * l->columns + c : c * l->rows + r] = x;
    }
  }
}

static float epilogue_apply(const desc_t* desc, float x) {
  if (desc->epilogue & CUBLASLT_EPILOGUE_RELU) return x > 0 ? x : 0;
  if (desc->epilogue & CUBLASLT_EPILOGUE_GELU)
    return 0.5f * x *
           (1 + tanhf(0.7978845608028654f * (x + 0.044715f * x * x * x)));
  return x;
}

static void product_finish(const problem_t* p, int batch, uint64_t column,
                           const float* sums) {
  for (uint64_t row = 0; row < p->m; ++row) {
    int64_t at = (int64_t)column * p->d.leading + (int64_t)row;
    int64_t c_at =
        batch * p->c.step + (int64_t)column * p->c.leading + (int64_t)row;
    float x = p->alpha * sums[row];
    if (p->beta != 0) x += p->beta * element_load(p->c.type, p->c_data, c_at);
    if (p->rounds_twice) {
      float narrow = 0;  // room for any type
      element_store(p->d.type, &narrow, 0, x);
      x = element_load(p->d.type, &narrow, 0);
    }
    if (p->desc.epilogue & CUBLASLT_EPILOGUE_BIAS)
      x += element_load(p->d.type, p->desc.bias, (int64_t)row);
    element_store(p->d.type, p->d_data, batch * p->d.step + at,
                  epilogue_apply(&p->desc, x));
  }
}

static void product_batch(const problem_t* p, int batch, float* a, float* b,
                          float* sums) {
  bool tf32 = p->desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32 &&
              p->a.type == CUDA_R_32F;
  matrix_read(&p->a, p->a_data, batch, p->desc.transpose_a == CUBLAS_OP_T, tf32,
              a);  // k columns of m
  matrix_read(&p->b, p->b_data, batch, p->desc.transpose_b == CUBLAS_OP_T, tf32,
              b);  // n columns of k
  for (uint64_t column = 0; column < p->n; ++column) {
    memset(sums, 0, p->m * sizeof(*sums));
    for (uint64_t i = 0; i < p->k; ++i) {
      float factor = b[column * p->k + i];
      const float* from = a + i * p->m;
      for (uint64_t row = 0; row < p->m; ++row)
        sums[row] = p->rounds ? number_from_half(number_to_half(
                                    sums[row] + from[row] * factor))
                              : sums[row] + from[row] * factor;
    }
    product_finish(p, batch, column, sums);
  }
}

static void product_run(void* data) {
  const problem_t* p = data;
  bool biased = p->desc.epilogue & CUBLASLT_EPILOGUE_BIAS;
  if ((p->poisons &&
       !stand_in_services()->reach((void*)16, 1, "a poisonous algorithm's")) ||
      !reach(&p->a, p->a_data, "a product reads its first factor,") ||
      !reach(&p->b, p->b_data, "a product reads its second factor,") ||
      (p->beta != 0 &&
       !reach(&p->c, p->c_data, "a product reads a summand,")) ||
      !reach(&p->d, p->d_data, "a product writes") ||
      (biased &&
       !stand_in_services()->reach(p->desc.bias, p->m * type_size(p->d.type),
                                   "a product reads a bias,")) ||
      (p->workspace_size > 0 &&
       !stand_in_services()->reach(p->workspace, p->workspace_size,
                                   "a product's workspace has")))
    return;
  if (p->workspace_size > 0) memset(p->workspace, 0xFF, p->workspace_size);
  float* a = malloc(p->m * p->k * sizeof(float));
  float* b = malloc(p->n * p->k * sizeof(float));
  float* sums = malloc(p->m * sizeof(float));
  for (int i = 0; a && b && sums && i < p->d.batch; ++i)
    product_batch(p, i, a, b, sums);
  free(a);
  free(b);
  free(sums);
}

// Addresses that the algorithm was not chosen for are not found out by the real
// library before it runs.
static bool is_aligned(const void* address, cudaDataType type) {
  return (uintptr_t)address % type_size(type) == 0;
}

static float scale_load(const desc_t* desc, const void* number) {
  return desc->scale == CUDA_R_32I ? (float)*(const int32_t*)number
                                   : *(const float*)number;
}

EXPORT cublasStatus_t cublasLtMatmul(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha,
    const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
    cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
    cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
    const cublasLtMatmulAlgo_t* algo, void* workspace, size_t workspace_size,
    void* stream) {
  problem_t p = {.desc = *desc,
                 .a = *a_layout,
                 .b = *b_layout,
                 .c = *c_layout,
                 .d = *d_layout,
                 .alpha = scale_load(desc, alpha),
                 .beta = scale_load(desc, beta),
                 .a_data = a,
                 .b_data = b,
                 .c_data = c,
                 .d_data = d,
                 .workspace = workspace};
  cublasStatus_t status = problem_check(&p);
  if (status == CUBLAS_STATUS_SUCCESS && algo)
    status = algorithm_check(&p, algo);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  uint64_t id = algo ? algo->data[1] : 0;
  p.workspace_size = algorithm_workspace(&p, id);
  p.poisons =
      stand_in_fault("RABBET_STAND_IN_CUBLASLT_FAULT", "run", (int64_t)id);
  p.rounds = id == ROUNDING;
  p.rounds_twice = id == ROUNDS_TWICE;
  if (!handle || p.workspace_size > workspace_size ||
      !is_aligned(a, p.a.type) || !is_aligned(b, p.b.type) ||
      !is_aligned(d, p.d.type) ||
      (p.c_data == p.d_data &&
       (p.c.type != p.d.type || p.c.leading != p.d.leading)))
    return CUBLAS_STATUS_INVALID_VALUE;
  char text[256];
  snprintf(text, sizeof(text),
           "m %llu, n %llu, k %llu, batch %d, type %d, compute %d, epilogue "
           "%u, algorithm %llu, alpha %g, beta %g",
           (unsigned long long)p.m, (unsigned long long)p.n,
           (unsigned long long)p.k, p.d.batch, p.d.type, p.desc.compute,
           p.desc.epilogue, (unsigned long long)id, (double)p.alpha,
           (double)p.beta);
  CUresult result = stand_in_services()->enqueue(
      "cublasLtMatmul", text, (CUstream)stream, product_run, &p, sizeof(p));
  return result == CUDA_SUCCESS ? CUBLAS_STATUS_SUCCESS
                                : CUBLAS_STATUS_EXECUTION_FAILED;
}
