// Processors without sums of four bytes: bytes become INT16, of which pairs are
// multiplied and summed exactly.
#if defined(__x86_64__)
#define BYTES_VECTOR 32
#include "device/cpu/bytes/loops.inc"

// A register has the sums of four columns, each in two parts.
enum { AVX2_ROWS = 2, PART = 16, VECTORS = PART / 4 };

static inline __m256i avx2_words(const int8_t* weights) {
  return _mm256_cvtepi8_epi16(
      _mm_loadu_si128((const __m128i*)(const void*)weights));
}

static inline __attribute__((always_inline)) void avx2_rows(
    const int16_t* a, int64_t stride, const int8_t* panel, int64_t depth,
    int rows, int32_t* out) {
  __m256i sums[AVX2_ROWS][VECTORS];
  for (int r = 0; r < rows; ++r)
    for (int v = 0; v < VECTORS; ++v)
      sums[r][v] = _mm256_setzero_si256();
  for (int64_t k = 0; k < depth; k += RABBET_BYTES_QUAD) {
    const int8_t* w = panel + k * LANES;
    for (int r = 0; r < rows; ++r) {
      int64_t quad;
      memcpy(&quad, a + r * stride + k, sizeof(quad));
      __m256i x = _mm256_set1_epi64x(quad);
      for (int v = 0; v < VECTORS; ++v)
        sums[r][v] = _mm256_add_epi32(
            sums[r][v], _mm256_madd_epi16(x, avx2_words(w + v * PART)));
    }
  }
  for (int r = 0; r < rows; ++r)
    for (int v = 0; v < VECTORS; v += 2) {
      // Pairs of each half of the registers in turns.
      __m256i pairs = _mm256_hadd_epi32(sums[r][v], sums[r][v + 1]);
      _mm256_storeu_si256((__m256i*)(void*)(out + r * LANES + v * 4),
                          _mm256_permute4x64_epi64(pairs, 0xd8));
    }
}

static void avx2_multiply(const rabbet_bytes_rows_t* a, const int8_t* panel,
                          int64_t depth, int columns, int32_t* sums) {
  const int64_t stride = a->stride / (int64_t)sizeof(int16_t);
  for (int n = 0; n < columns; n += PART) {
    const int8_t* part = panel + n * RABBET_BYTES_QUAD;
    const int16_t* x = a->data;
    int r = 0;
    for (; r + AVX2_ROWS <= a->rows; r += AVX2_ROWS)
      avx2_rows(x + r * stride, stride, part, depth, AVX2_ROWS,
                sums + r * LANES + n);
    for (; r < a->rows; ++r)
      avx2_rows(x + r * stride, stride, part, depth, 1, sums + r * LANES + n);
  }
}

const rabbet_bytes_kernels_t rabbet_bytes_avx2 = {
    .name = "words",
    .step = RABBET_BYTES_QUAD,
    .element = sizeof(int16_t),
    .multiply = avx2_multiply,
    .finish = bytes_finish,
    .maxima = bytes_maxima,
    .copy = bytes_copy,
};
#endif
