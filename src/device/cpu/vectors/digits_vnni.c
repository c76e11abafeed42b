#include <stddef.h>

#if defined(__AVX512VNNI__)
#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

// Each kind of weights has loops of its own, with all constants known.
#define DIGIT_INLINE static inline __attribute__((always_inline))

typedef __m512i wi;
typedef __m512 wf;
typedef __mmask8 wi_some;

DIGIT_INLINE wi wi_load(const void* p) {
  return _mm512_loadu_si512(p);
}
DIGIT_INLINE wi wi_load_some(const uint8_t* p, int64_t count) {
  __mmask64 some = count >= 64  ? UINT64_MAX
                   : count <= 0 ? 0
                                : (UINT64_C(1) << count) - 1;
  return some ? _mm512_maskz_loadu_epi8(some, p) : _mm512_setzero_si512();
}
DIGIT_INLINE void wi_store(void* p, wi a) {
  _mm512_storeu_si512(p, a);
}
DIGIT_INLINE wi wi_all(uint32_t a) {
  return _mm512_set1_epi32((int)a);
}
DIGIT_INLINE wi wi_add(wi a, wi b) {
  return _mm512_add_epi32(a, b);
}
DIGIT_INLINE wi wi_negate(wi a) {
  return _mm512_sub_epi32(_mm512_setzero_si512(), a);
}
DIGIT_INLINE wi wi_shift(wi a, int bits) {
  return _mm512_slli_epi32(a, (unsigned)bits);
}
DIGIT_INLINE wi wi_flip_signs(wi bytes) {
  return _mm512_xor_si512(bytes, _mm512_set1_epi8(INT8_MIN));
}
// The lower or the upper codes of bytes as numbers: INT4 and 8, or doubled FP4
// and 12.
DIGIT_INLINE wi wi_nibbles(wi codes, bool upper, bool is_fp4) {
  const __m512i most = _mm512_set1_epi8(15), middle = _mm512_set1_epi8(8);
  const __m512i table = _mm512_broadcast_i32x4(
      _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
  if (upper) codes = _mm512_srli_epi16(codes, 4);
  if (is_fp4) return _mm512_shuffle_epi8(table, _mm512_and_si512(codes, most));
  return _mm512_ternarylogic_epi32(codes, middle, most, 0x28);
}
DIGIT_INLINE wi wi_dot(wi sum, wi codes, wi digits) {
  return _mm512_dpbusd_epi32(sum, codes, digits);
}
DIGIT_INLINE wi wi_dot_both(wi sum, const wi codes[2], const wi digits[2]) {
  return wi_dot(wi_dot(sum, codes[0], digits[0]), codes[1], digits[1]);
}

DIGIT_INLINE wf wf_of(wi a) {
  return _mm512_cvtepi32_ps(a);
}
DIGIT_INLINE wf wf_all(float a) {
  return _mm512_set1_ps(a);
}
DIGIT_INLINE wf wf_mul(wf a, wf b) {
  return _mm512_mul_ps(a, b);
}
DIGIT_INLINE wf wf_fma(wf a, wf b, wf c) {
  return _mm512_fmadd_ps(a, b, c);
}
DIGIT_INLINE float wf_sum(wf a) {
  return _mm512_reduce_add_ps(a);
}

DIGIT_INLINE wi_some wi_first(int count) {
  return (wi_some)((1u << count) - 1);
}
// Scales by units, of which each lane has one.
DIGIT_INLINE wf wf_scales(const float* scales, const float* units, wi_some some,
                          wi lane) {
  __m256 scaled = _mm256_mul_ps(_mm256_maskz_loadu_ps(some, scales),
                                _mm256_loadu_ps(units));
  return _mm512_permutexvar_ps(lane, _mm512_castps256_ps512(scaled));
}

#define DIGITS_BYTES 1
#define DIGITS_NAME rabbet_digits_vnni
#include "device/cpu/vectors/digits.inc"
#endif
