// Sums of four products by AVX512-VNNI.
#if defined(__x86_64__)
#define BYTES_VECTOR 64
#include "device/cpu/bytes/loops.inc"

enum { VNNI_ROWS = 8, HALF = LANES / 2, LINE = LANES * RABBET_BYTES_QUAD };

static inline __attribute__((always_inline)) void vnni_rows(
    const char* a, int64_t stride, const int8_t* panel, int64_t depth, int rows,
    int halves, int32_t* out) {
  __m512i sums[VNNI_ROWS][2];
  for (int r = 0; r < rows; ++r)
    for (int h = 0; h < halves; ++h)
      sums[r][h] = _mm512_setzero_si512();
  for (int64_t k = 0; k < depth; k += RABBET_BYTES_QUAD, panel += LINE) {
    __m512i w[2];
    for (int h = 0; h < halves; ++h)
      w[h] = _mm512_loadu_si512(panel + h * LINE / 2);
    for (int r = 0; r < rows; ++r) {
      int32_t quad;
      memcpy(&quad, a + r * stride + k, sizeof(quad));
      __m512i x = _mm512_set1_epi32(quad);
      for (int h = 0; h < halves; ++h)
        sums[r][h] = _mm512_dpbusd_epi32(sums[r][h], x, w[h]);
    }
  }
  for (int r = 0; r < rows; ++r)
    for (int h = 0; h < halves; ++h)
      _mm512_storeu_si512(out + r * LANES + h * HALF, sums[r][h]);
}

static inline __attribute__((always_inline)) void vnni_product(
    const rabbet_bytes_rows_t* a, const int8_t* panel, int64_t depth,
    int halves, int32_t* sums) {
  const char* x = a->data;
  int r = 0;
  for (; r + VNNI_ROWS <= a->rows; r += VNNI_ROWS)
    vnni_rows(x + r * a->stride, a->stride, panel, depth, VNNI_ROWS, halves,
              sums + r * LANES);
  if (r + 4 <= a->rows) {
    vnni_rows(x + r * a->stride, a->stride, panel, depth, 4, halves,
              sums + r * LANES);
    r += 4;
  }
  for (; r < a->rows; ++r)
    vnni_rows(x + r * a->stride, a->stride, panel, depth, 1, halves,
              sums + r * LANES);
}

static void vnni_multiply(const rabbet_bytes_rows_t* a, const int8_t* panel,
                          int64_t depth, int columns, int32_t* sums) {
  if (columns > HALF)
    vnni_product(a, panel, depth, 2, sums);
  else
    vnni_product(a, panel, depth, 1, sums);
}

const rabbet_bytes_kernels_t rabbet_bytes_vnni = {
    .name = "vnni",
    .step = RABBET_BYTES_QUAD,
    .element = 1,
    .is_shifted = true,
    .multiply = vnni_multiply,
    .finish = bytes_finish,
    .maxima = bytes_maxima,
    .copy = bytes_copy,
};
#endif
