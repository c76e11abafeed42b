#include <stddef.h>

#if defined(__AVX2__)
#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define DIGIT_INLINE static inline __attribute__((always_inline))

typedef struct wi {
  __m256i part[2];
} wi;
typedef struct wf {
  __m256 part[2];
} wf;
typedef __m256i wi_some;

// A function of two operands, which are those of the parts.
#define WIDE(type, name, first, second, value)      \
  DIGIT_INLINE type name(first wide, second each) { \
    type y;                                         \
    for (int i = 0; i < 2; ++i) {                   \
      y.part[i] = (value);                          \
    }                                               \
    return y;                                       \
  }
WIDE(wi, wi_add, wi, wi, _mm256_add_epi32(wide.part[i], each.part[i]))
WIDE(wi, wi_shift, wi, int, _mm256_slli_epi32(wide.part[i], each))
WIDE(wf, wf_mul, wf, wf, _mm256_mul_ps(wide.part[i], each.part[i]))

DIGIT_INLINE wi wi_load(const void* p) {
  const __m256i* from = p;
  return (wi){{_mm256_loadu_si256(from), _mm256_loadu_si256(from + 1)}};
}
DIGIT_INLINE wi wi_load_some(const uint8_t* p, int64_t count) {
  uint8_t bytes[64] = {0};
  if (count > 0) memcpy(bytes, p, count < 64 ? (size_t)count : 64);
  return wi_load(bytes);
}
DIGIT_INLINE void wi_store(void* p, wi a) {
  memcpy(p, &a, sizeof(a));
}
DIGIT_INLINE wi wi_all(uint32_t a) {
  __m256i all = _mm256_set1_epi32((int)a);
  return (wi){{all, all}};
}
DIGIT_INLINE wi wi_negate(wi a) {
  const __m256i zero = _mm256_setzero_si256();
  return (wi){
      {_mm256_sub_epi32(zero, a.part[0]), _mm256_sub_epi32(zero, a.part[1])}};
}
// The lower or the upper codes of bytes as numbers: INT4 and 8, or doubled FP4
// and 12.
DIGIT_INLINE wi wi_nibbles(wi codes, bool upper, bool is_fp4) {
  const __m256i most = _mm256_set1_epi8(15);
  const __m256i table = _mm256_broadcastsi128_si256(
      is_fp4 ? _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8,
                             6, 4, 0)
             : _mm_setr_epi8(8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6,
                             7));
  for (int i = 0; i < 2; ++i) {
    __m256i code = codes.part[i];
    if (upper) code = _mm256_srli_epi16(code, 4);
    codes.part[i] = _mm256_shuffle_epi8(table, _mm256_and_si256(code, most));
  }
  return codes;
}
// Codes are small enough for sums of four products of 16 bits.
DIGIT_INLINE wi wi_dot_both(wi sum, const wi codes[2], const wi digits[2]) {
  const __m256i one = _mm256_set1_epi16(1);
  for (int i = 0; i < 2; ++i) {
    __m256i pairs = _mm256_add_epi16(
        _mm256_maddubs_epi16(codes[0].part[i], digits[0].part[i]),
        _mm256_maddubs_epi16(codes[1].part[i], digits[1].part[i]));
    sum.part[i] = _mm256_add_epi32(sum.part[i], _mm256_madd_epi16(pairs, one));
  }
  return sum;
}

DIGIT_INLINE wf wf_of(wi a) {
  return (wf){{_mm256_cvtepi32_ps(a.part[0]), _mm256_cvtepi32_ps(a.part[1])}};
}
DIGIT_INLINE wf wf_all(float a) {
  return (wf){{_mm256_set1_ps(a), _mm256_set1_ps(a)}};
}
DIGIT_INLINE wf wf_fma(wf a, wf b, wf c) {
  return (wf){{_mm256_fmadd_ps(a.part[0], b.part[0], c.part[0]),
               _mm256_fmadd_ps(a.part[1], b.part[1], c.part[1])}};
}
DIGIT_INLINE float wf_sum(wf a) {
  __m256 sum = _mm256_add_ps(a.part[0], a.part[1]);
  __m128 y =
      _mm_add_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps(sum, 1));
  y = _mm_add_ps(y, _mm_movehl_ps(y, y));
  return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
}

DIGIT_INLINE wi_some wi_first(int count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(count),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
// Scales by units, of which each lane has one.
DIGIT_INLINE wf wf_scales(const float* scales, const float* units, wi_some some,
                          wi lane) {
  __m256 scaled =
      _mm256_mul_ps(_mm256_maskload_ps(scales, some), _mm256_loadu_ps(units));
  return (wf){{_mm256_permutevar8x32_ps(scaled, lane.part[0]),
               _mm256_permutevar8x32_ps(scaled, lane.part[1])}};
}

#define DIGITS_BYTES 0
#define DIGITS_NAME rabbet_digits_avx2
#include "device/cpu/vectors/digits.inc"
#endif
