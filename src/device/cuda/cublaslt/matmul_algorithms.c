#include "device/cuda/cublaslt/matmul_algorithms.h"

#include <stdio.h>

#include "core/view.h"

// ---- Descriptors -----------------------------------------------------------

void rabbet_matmul_setup_end(rabbet_matmul_setup_t* setup) {
  const rabbet_cublaslt_t* library = setup->library;
  cublasLtMatrixLayout_t layouts[] = {setup->a, setup->b, setup->y,
                                      setup->c == setup->y ? NULL : setup->c};
  for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); ++i)
    if (layouts[i]) library->cublasLtMatrixLayoutDestroy(layouts[i]);
  if (setup->desc) library->cublasLtMatmulDescDestroy(setup->desc);
  *setup = (rabbet_matmul_setup_t){.library = library};
}

static rabbet_status_t matmul_layout(const rabbet_cublaslt_t* library, int type,
                                     int64_t rows, int64_t columns, int64_t ld,
                                     int64_t batch, int64_t step,
                                     cublasLtMatrixLayout_t* out_layout) {
  int32_t count = (int32_t)batch;
  // With one column any leading dimension that is large enough is valid.
  if (columns == 1 && ld < rows) ld = rows;
  RABBET_RETURN_IF_ERROR(RABBET_CUBLASLT(
      library, cublasLtMatrixLayoutCreate,
      (out_layout, type, (uint64_t)rows, (uint64_t)columns, ld)));
  if (batch == 1) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(
      RABBET_CUBLASLT(library, cublasLtMatrixLayoutSetAttribute,
                      (*out_layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                       sizeof(count))));
  return RABBET_CUBLASLT(
      library, cublasLtMatrixLayoutSetAttribute,
      (*out_layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step,
       sizeof(step)));
}

// Describes a matrix of rows x columns with the strides `row` and `column`.
// *out_op makes it columns x rows, as the transposed problem needs.
static rabbet_status_t matmul_operand(const rabbet_cublaslt_t* library,
                                      int type, const int64_t sizes[2],
                                      const int64_t strides[2], int64_t batch,
                                      int64_t step, cublasOperation_t* out_op,
                                      cublasLtMatrixLayout_t* out_layout) {
  bool by_rows = strides[1] == 1;
  *out_op = by_rows ? CUBLAS_OP_N : CUBLAS_OP_T;
  return by_rows ? matmul_layout(library, type, sizes[1], sizes[0], strides[0],
                                 batch, step, out_layout)
                 : matmul_layout(library, type, sizes[0], sizes[1], strides[1],
                                 batch, step, out_layout);
}

static rabbet_status_t matmul_set(const rabbet_matmul_setup_t* setup,
                                  int attribute, const void* value,
                                  size_t size) {
  return RABBET_CUBLASLT(setup->library, cublasLtMatmulDescSetAttribute,
                         (setup->desc, attribute, value, size));
}

rabbet_status_t rabbet_matmul_set_bias(const rabbet_matmul_setup_t* setup,
                                       const void* address) {
  return matmul_set(setup, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &address,
                    sizeof(address));
}

static rabbet_status_t matmul_set_epilogue(const rabbet_matmul_setup_t* setup,
                                           const rabbet_matmul_epilogue_t* e) {
  cublasLtEpilogue_t epilogue = 0;
  if (e->bias >= 0) epilogue |= CUBLASLT_EPILOGUE_BIAS;
  if (e->function == RABBET_MATMUL_RELU) epilogue |= CUBLASLT_EPILOGUE_RELU;
  if (e->function == RABBET_MATMUL_GELU) epilogue |= CUBLASLT_EPILOGUE_GELU;
  if (epilogue == 0) epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  RABBET_RETURN_IF_ERROR(matmul_set(setup, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                    &epilogue, sizeof(epilogue)));
  if (e->bias < 0) return rabbet_ok();
  // Until the product runs, only the address's alignment counts.
  return rabbet_matmul_set_bias(
      setup, (const void*)(uintptr_t)RABBET_MATMUL_ALIGNMENT);
}

rabbet_status_t rabbet_matmul_setup(const rabbet_cublaslt_t* library,
                                    const rabbet_matmul_shape_t* s,
                                    const rabbet_matmul_epilogue_t* epilogue,
                                    rabbet_matmul_types_t types, bool tf32,
                                    rabbet_matmul_setup_t* setup) {
  int type = rabbet_cublaslt_type(types.in);
  bool whole = types.out == RABBET_DTYPE_INT32;
  cublasComputeType_t compute = whole  ? CUBLAS_COMPUTE_32I
                                : tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                       : CUBLAS_COMPUTE_32F;
  cublasOperation_t a_op = CUBLAS_OP_N, b_op = CUBLAS_OP_N;
  *setup = (rabbet_matmul_setup_t){.library = library};
  setup->adds_narrow_bias =
      epilogue->bias >= 0 && rabbet_dtype_bits(types.out) == 16;
  RABBET_RETURN_IF_ERROR(RABBET_CUBLASLT(
      library, cublasLtMatmulDescCreate,
      (&setup->desc, compute, whole ? CUDA_R_32I : CUDA_R_32F)));
  RABBET_RETURN_IF_ERROR(
      matmul_operand(library, type, (const int64_t[]){s->m, s->k},
                     (const int64_t[]){s->a_row, s->a_column}, s->batch.size,
                     s->batch.a, &a_op, &setup->a));
  RABBET_RETURN_IF_ERROR(
      matmul_operand(library, type, (const int64_t[]){s->k, s->n},
                     (const int64_t[]){s->b_row, s->b_column}, s->batch.size,
                     s->batch.b, &b_op, &setup->b));
  RABBET_RETURN_IF_ERROR(matmul_layout(library, rabbet_cublaslt_type(types.out),
                                       s->n, s->m, s->y_row, s->batch.size,
                                       s->batch.y, &setup->y));
  setup->c = setup->y;
  // A tensor added to a product of FP8 has 16 bits. cuBLASLt wants this type
  // even if none is added.
  if (types.out == RABBET_DTYPE_FP8)
    RABBET_RETURN_IF_ERROR(matmul_layout(library, CUDA_R_16BF, s->n, s->m,
                                         s->y_row, s->batch.size, s->batch.y,
                                         &setup->c));
  // b comes first.
  RABBET_RETURN_IF_ERROR(
      matmul_set(setup, CUBLASLT_MATMUL_DESC_TRANSA, &b_op, sizeof(b_op)));
  RABBET_RETURN_IF_ERROR(
      matmul_set(setup, CUBLASLT_MATMUL_DESC_TRANSB, &a_op, sizeof(a_op)));
  return matmul_set_epilogue(setup, epilogue);
}

// ---- Algorithms ------------------------------------------------------------

// The alignment of all addresses of a loop whose first address is aligned to
// `limits`.
static uint32_t matmul_alignment(
    const rabbet_matmul_shape_t* shape, const rabbet_matmul_limits_t* limits,
    size_t size, int64_t (*stride)(const rabbet_matmul_axis_t*)) {
  uint64_t bits = limits->alignment;
  for (int i = 0; i < shape->loop_count; ++i)
    bits |= (uint64_t)stride(&shape->loops[i]) * size;
  return (uint32_t)(bits & -bits);
}
static int64_t matmul_axis_a(const rabbet_matmul_axis_t* axis) {
  return axis->a;
}
static int64_t matmul_axis_b(const rabbet_matmul_axis_t* axis) {
  return axis->b;
}
static int64_t matmul_axis_y(const rabbet_matmul_axis_t* axis) {
  return axis->y;
}

static rabbet_status_t matmul_prefer(const rabbet_cublaslt_t* library,
                                     const rabbet_matmul_shape_t* shape,
                                     const rabbet_matmul_limits_t* limits,
                                     cublasLtMatmulPreference_t preference) {
  uint64_t workspace = limits->workspace;
  // Sums are FLOAT, also in a split product, and are rounded once.
  uint64_t implementations = ~CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_16F;
  uint32_t y = matmul_alignment(shape, limits, limits->out_size, matmul_axis_y);
  const struct {
    int attribute;
    uint32_t value;
  } rows[] = {
      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
       matmul_alignment(shape, limits, limits->in_size, matmul_axis_b)},
      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
       matmul_alignment(shape, limits, limits->in_size, matmul_axis_a)},
      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, y},
      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, y},
      {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
       CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE},
  };
  for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i)
    RABBET_RETURN_IF_ERROR(RABBET_CUBLASLT(
        library, cublasLtMatmulPreferenceSetAttribute,
        (preference, rows[i].attribute, &rows[i].value, sizeof(uint32_t))));
  RABBET_RETURN_IF_ERROR(
      RABBET_CUBLASLT(library, cublasLtMatmulPreferenceSetAttribute,
                      (preference, CUBLASLT_MATMUL_PREF_IMPL_MASK,
                       &implementations, sizeof(implementations))));
  return RABBET_CUBLASLT(library, cublasLtMatmulPreferenceSetAttribute,
                         (preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                          &workspace, sizeof(workspace)));
}

// Whether the algorithm's own attributes say that it sums in FLOAT or INT32,
// also the parts of a split sum. The preferences ask for this, but only the
// heuristics respect them.
static bool matmul_sums_in_float(const rabbet_cublaslt_t* library,
                                 const cublasLtMatmulAlgo_t* algorithm) {
  uint64_t flags = 0;
  uint32_t scheme = 0;
  size_t written = 0;
  if (library->cublasLtMatmulAlgoCapGetAttribute(
          algorithm, CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS, &flags,
          sizeof(flags), &written) != CUBLAS_STATUS_SUCCESS ||
      library->cublasLtMatmulAlgoConfigGetAttribute(
          algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme,
          sizeof(scheme), &written) != CUBLAS_STATUS_SUCCESS)
    return false;
  return (flags & (CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_32F |
                   CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_32I)) != 0 &&
         (flags & CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_16F) == 0 &&
         (scheme & ~(uint32_t)CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) == 0;
}

// Seen with cuBLASLt 13.1 on an H200, for products of HALF and BF16: algorithms
// 23 and 24 round the product, and a residual, to their type before they add a
// bias, though they say that they accumulate in FLOAT. Algorithms 11, 12, 13,
// 16, 42, 56 and 66 do not.
enum { MATMUL_ROUNDS_BEFORE_BIAS = 23, MATMUL_ROUNDS_BEFORE_BIAS_LAST = 24 };

static bool matmul_rounds_once(const rabbet_matmul_setup_t* setup,
                               const cublasLtMatmulAlgo_t* algorithm) {
  int32_t id = 0;
  size_t written = 0;
  if (!matmul_sums_in_float(setup->library, algorithm)) return false;
  return !setup->adds_narrow_bias ||
         (setup->library->cublasLtMatmulAlgoConfigGetAttribute(
              algorithm, CUBLASLT_ALGO_CONFIG_ID, &id, sizeof(id), &written) ==
              CUBLAS_STATUS_SUCCESS &&
          (id < MATMUL_ROUNDS_BEFORE_BIAS ||
           id > MATMUL_ROUNDS_BEFORE_BIAS_LAST));
}

// Picks algorithms that round once. If there are none, picks from all: at run
// time a result that is rounded twice is better than none.
static int matmul_pick(const rabbet_matmul_setup_t* setup, bool once, int wish,
                       const cublasLtMatmulHeuristicResult_t* from, int found,
                       cublasLtMatmulHeuristicResult_t* out) {
  int count = 0;
  for (int i = 0; i < found && count < wish; ++i)
    if (from[i].state == CUBLAS_STATUS_SUCCESS &&
        (!once || matmul_rounds_once(setup, &from[i].algo)))
      out[count++] = from[i];
  return count;
}

rabbet_status_t rabbet_matmul_choices(const rabbet_matmul_setup_t* setup,
                                      const rabbet_matmul_shape_t* shape,
                                      const rabbet_matmul_limits_t* limits,
                                      int wish,
                                      cublasLtMatmulHeuristicResult_t* out,
                                      int* out_count) {
  const rabbet_cublaslt_t* library = setup->library;
  cublasLtMatmulHeuristicResult_t all[RABBET_MATMUL_MAX_CHOICES];
  cublasLtMatmulPreference_t preference = NULL;
  int found = 0, request = wish + 4;
  *out_count = 0;
  if (request > RABBET_MATMUL_MAX_CHOICES) request = RABBET_MATMUL_MAX_CHOICES;
  RABBET_RETURN_IF_ERROR(
      RABBET_CUBLASLT(library, cublasLtMatmulPreferenceCreate, (&preference)));
  rabbet_status_t status = matmul_prefer(library, shape, limits, preference);
  if (rabbet_is_ok(status)) {
    cublasStatus_t result = library->cublasLtMatmulAlgoGetHeuristic(
        library->handle, setup->desc, setup->b, setup->a, setup->c, setup->y,
        preference, request, all, &found);
    // "No algorithm" is a valid answer, and cuBLASLt gives it in two ways.
    if (result == CUBLAS_STATUS_NOT_SUPPORTED)
      found = 0;
    else
      status = rabbet_cublaslt_check(library, result,
                                     "cublasLtMatmulAlgoGetHeuristic");
  }
  library->cublasLtMatmulPreferenceDestroy(preference);
  if (!rabbet_is_ok(status)) return status;
  *out_count = matmul_pick(setup, true, wish, all, found, out);
  if (*out_count == 0 && !limits->rounds_once)
    *out_count = matmul_pick(setup, false, wish, all, found, out);
  return status;
}

bool rabbet_matmul_admits(const rabbet_matmul_setup_t* setup,
                          const cublasLtMatmulAlgo_t* algorithm,
                          size_t* out_workspace) {
  const rabbet_cublaslt_t* library = setup->library;
  cublasLtMatmulHeuristicResult_t result = {.state = CUBLAS_STATUS_SUCCESS};
  *out_workspace = 0;
  if (library->cublasLtMatmulAlgoCheck(library->handle, setup->desc, setup->b,
                                       setup->a, setup->c, setup->y, algorithm,
                                       &result) != CUBLAS_STATUS_SUCCESS ||
      result.state != CUBLAS_STATUS_SUCCESS ||
      result.workspaceSize > RABBET_MATMUL_WORKSPACE)
    return false;
  *out_workspace = result.workspaceSize;
  return true;
}

int32_t rabbet_matmul_hash(const cublasLtMatmulAlgo_t* algorithm) {
  return (int32_t)(rabbet_hash64(algorithm, sizeof(*algorithm)) &
                   ((1 << 29) - 1));
}

void rabbet_matmul_name(const rabbet_cublaslt_t* library,
                        const cublasLtMatmulAlgo_t* algorithm, char* out,
                        size_t size) {
  static const struct {
    const char* prefix;
    int attribute;
    size_t size;
  } rows[] = {
      {"a", CUBLASLT_ALGO_CONFIG_ID, 4},
      {" t", CUBLASLT_ALGO_CONFIG_TILE_ID, 4},
      {" s", CUBLASLT_ALGO_CONFIG_STAGES_ID, 4},
      {" k", CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4},
      {" c", CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2},
  };
  size_t at = 0;
  out[0] = 0;
  for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]) && at < size; ++i) {
    uint32_t value = 0;
    size_t written = 0;
    if (library->cublasLtMatmulAlgoConfigGetAttribute(
            algorithm, rows[i].attribute, &value, rows[i].size, &written) ==
        CUBLAS_STATUS_SUCCESS)
      at += (size_t)snprintf(out + at, size - at, "%s%u", rows[i].prefix,
                             (unsigned)value);
  }
}
