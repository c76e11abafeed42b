#include "device/cpu/vectors/digits.h"

#include <assert.h>
#include <string.h>

#include "device/cpu/cpu.h"

#if defined(__AVX512VNNI__)
#include <immintrin.h>

enum { FLOATS = 16, CHUNK = RABBET_DIGIT_CHUNK, CODES = CHUNK / 2 };

bool rabbet_digits_available(void) {
  return rabbet_cpu_has_vnni();
}

// A chunk of INT8 has one scale.
bool rabbet_digits_fit(rabbet_packed_type_t type, const rabbet_packed_t* w) {
  return rabbet_digits_available() &&
         (type == RABBET_PACKED_INT4 ||
          (type == RABBET_PACKED_INT8 &&
           (w->block >= w->depth || w->block % CHUNK == 0)));
}

// ---- The row ---------------------------------------------------------------

// The sum of codes times numbers, by lanes of 8 elements.
static inline __m512i digits_product(__m512i even, __m512i odd,
                                     const rabbet_digits_t* x) {
  __m512i sum = _mm512_setzero_si512();
  for (int d = 0; d < RABBET_DIGIT_COUNT; ++d) {
    if (d > 0) sum = _mm512_slli_epi32(sum, 8);
    sum = _mm512_dpbusd_epi32(sum, even, _mm512_load_si512(x->digits[d][0]));
    sum = _mm512_dpbusd_epi32(sum, odd, _mm512_load_si512(x->digits[d][1]));
  }
  return sum;
}

// The lowest digit of each number, which loses it.
static inline __m128i digits_take(__m512i* numbers) {
  __m512i digit = _mm512_srai_epi32(_mm512_slli_epi32(*numbers, 24), 24);
  *numbers = _mm512_srai_epi32(_mm512_sub_epi32(*numbers, digit), 8);
  return _mm512_cvtepi32_epi8(digit);
}

// INT8: the highest digit's sum, and that of the others, which 32 bits hold.
static inline void digits_byte_product(__m512i low, __m512i high,
                                       const rabbet_digits_t* x,
                                       __m512i out_sums[2]) {
  __m512i sums[RABBET_DIGIT_COUNT];
  for (int d = 0; d < RABBET_DIGIT_COUNT; ++d) {
    sums[d] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), low,
                                  _mm512_load_si512(x->digits[d][0]));
    sums[d] =
        _mm512_dpbusd_epi32(sums[d], high, _mm512_load_si512(x->digits[d][1]));
  }
  out_sums[0] = sums[0];
  out_sums[1] = _mm512_add_epi32(_mm512_slli_epi32(sums[1], 8), sums[2]);
}

static void digits_lay_out_pairs(int8_t all[RABBET_DIGIT_COUNT][CHUNK],
                                 rabbet_digits_t* out) {
  for (int d = 0; d < RABBET_DIGIT_COUNT; ++d)
    for (int half = 0; half < 2; ++half) {
      __m512i pairs = _mm512_loadu_si512(&all[d][half * CODES]);
      _mm256_storeu_si256((__m256i*)(void*)&out->digits[d][0][half * CODES / 2],
                          _mm512_cvtepi16_epi8(pairs));
      _mm256_storeu_si256((__m256i*)(void*)&out->digits[d][1][half * CODES / 2],
                          _mm512_cvtepi16_epi8(_mm512_srli_epi16(pairs, 8)));
    }
  const __m512i middle = _mm512_set1_epi8(8);
  _mm512_store_si512(out->middle[0], digits_product(middle, middle, out));
}

static void digits_lay_out_bytes(int8_t all[RABBET_DIGIT_COUNT][CHUNK],
                                 rabbet_digits_t* out) {
  const __m512i middle = _mm512_set1_epi8(INT8_MIN);
  __m512i sums[2];
  memcpy(out->digits, all, sizeof(out->digits));
  digits_byte_product(middle, middle, out, sums);
  for (int i = 0; i < 2; ++i)
    _mm512_store_si512(out->middle[i], sums[i]);
}

static bool digits_chunk(rabbet_packed_type_t type,
                         const __m512 x[CHUNK / FLOATS], rabbet_digits_t* out) {
  // Less than the largest number of three digits, which the product below may
  // exceed by rounding.
  const float most = 127 * 65536;
  __m512 high = _mm512_setzero_ps();
  int8_t all[RABBET_DIGIT_COUNT][CHUNK];
  __mmask16 odd = 0;
  for (int v = 0; v < CHUNK / FLOATS; ++v) {
    high = _mm512_max_ps(high, _mm512_abs_ps(x[v]));
    odd |= _mm512_fpclass_ps_mask(x[v], 0x99);  // NaN and infinities
  }
  float largest = _mm512_reduce_max_ps(high);
  if (odd != 0 || (largest != 0 && largest < 1e-30f)) return false;
  out->unit = largest / most;
  __m512 factor = _mm512_set1_ps(largest == 0 ? 0 : most / largest);
  for (int v = 0; v < CHUNK / FLOATS; ++v) {
    __m512i number = _mm512_cvtps_epi32(_mm512_mul_ps(x[v], factor));
    for (int d = RABBET_DIGIT_COUNT; d-- > 0;)
      _mm_storeu_si128((__m128i*)(void*)&all[d][v * FLOATS],
                       digits_take(&number));
  }
  if (type == RABBET_PACKED_INT4)
    digits_lay_out_pairs(all, out);
  else
    digits_lay_out_bytes(all, out);
  return true;
}

bool rabbet_digits_convert(rabbet_packed_type_t type, const float* x,
                           int64_t count, rabbet_digits_t* out_digits) {
  for (int64_t k = 0; k < count; k += CHUNK, ++out_digits) {
    __m512 chunk[CHUNK / FLOATS];
    for (int v = 0; v < CHUNK / FLOATS; ++v) {
      int64_t left = count - k - v * FLOATS;
      __mmask16 some = left >= FLOATS ? 0xffff
                       : left <= 0    ? 0
                                      : (__mmask16)((1u << left) - 1);
      chunk[v] = _mm512_maskz_loadu_ps(some, x + (some ? k + v * FLOATS : 0));
    }
    if (!digits_chunk(type, chunk, out_digits)) return false;
  }
  return true;
}

// ---- Rows of weights -------------------------------------------------------

enum { ROWS = 2, AHEAD = 2048 };  // bytes that are fetched before they are read

// The lanes that have a chunk's scales, and those that are in the row.
typedef struct digit_scales_t {
  __m512i lane;
  __mmask16 some;
} digit_scales_t;

static digit_scales_t digits_scales(const rabbet_packed_t* w, int64_t left) {
  int per =
      w->block < CHUNK && w->block < w->depth ? (int)(CHUNK / w->block) : 1;
  int32_t lane[FLOATS];
  for (int i = 0; i < FLOATS; ++i)
    lane[i] = i * per / FLOATS;
  int some = left < per ? (int)left : per;
  return (digit_scales_t){_mm512_loadu_si512(lane),
                          (__mmask16)((1u << some) - 1)};
}

// Rows of weights that are multiplied at the same time.
typedef struct digit_rows_t {
  const uint8_t* codes[ROWS];
  const float* scales[ROWS];
  __m512 sums[ROWS];
} digit_rows_t;

static inline digit_rows_t digits_begin(const rabbet_packed_t* w, int64_t n,
                                        int rows) {
  digit_rows_t row;
  for (int r = 0; r < rows; ++r) {
    row.codes[r] = w->codes + (n + r) * w->stride;
    row.scales[r] = w->scales + (n + r) / w->rows * w->scale_stride;
    row.sums[r] = _mm512_setzero_ps();
  }
  return row;
}

static inline __m512 digits_step(__m512i codes, const float* scales,
                                 const digit_scales_t* to,
                                 const rabbet_digits_t* x, __m512 sum) {
  const __m512i middle = _mm512_set1_epi8(8), most = _mm512_set1_epi8(15);
  // (code ^ 8) & 15 is the number and 8.
  __m512i even = _mm512_ternarylogic_epi32(codes, middle, most, 0x28);
  __m512i odd = _mm512_ternarylogic_epi32(_mm512_srli_epi16(codes, 4), middle,
                                          most, 0x28);
  __m512i product = _mm512_sub_epi32(digits_product(even, odd, x),
                                     _mm512_load_si512(x->middle[0]));
  __m512 scale =
      _mm512_permutexvar_ps(to->lane, _mm512_maskz_loadu_ps(to->some, scales));
  return _mm512_fmadd_ps(_mm512_cvtepi32_ps(product),
                         _mm512_mul_ps(scale, _mm512_set1_ps(x->unit)), sum);
}

static inline void digits_rows(const rabbet_packed_t* w,
                               const rabbet_digits_t* x, int64_t n, int rows,
                               const digit_scales_t* to,
                               const digit_scales_t* to_rest, float* y) {
  int64_t whole = w->depth / CHUNK, rest = (w->depth % CHUNK + 1) / 2;
  digit_rows_t row = digits_begin(w, n, rows);
  for (int64_t c = 0; c < whole; ++c)
    for (int r = 0; r < rows; ++r) {
      const uint8_t* at = row.codes[r] + c * CODES;
      _mm_prefetch((const char*)at + AHEAD, _MM_HINT_T0);
      row.sums[r] = digits_step(_mm512_loadu_si512(at),
                                row.scales[r] + c * CHUNK / w->block, to, &x[c],
                                row.sums[r]);
    }
  // The last chunk may have all bytes, the upper half of one unused.
  __mmask64 some = rest < CODES ? (UINT64_C(1) << rest) - 1 : UINT64_MAX;
  for (int r = 0; rest > 0 && r < rows; ++r)
    row.sums[r] =
        digits_step(_mm512_maskz_loadu_epi8(some, row.codes[r] + whole * CODES),
                    row.scales[r] + whole * CHUNK / w->block, to_rest,
                    &x[whole], row.sums[r]);
  for (int r = 0; r < rows; ++r)
    y[r] = _mm512_reduce_add_ps(row.sums[r]);
}

// ---- Rows of INT8 -----------------------------------------------------------

static inline __m512 digits_byte_step(__m512i low, __m512i high, float scale,
                                      const rabbet_digits_t* x, __m512 sum) {
  const __m512i middle = _mm512_set1_epi8(INT8_MIN);
  __m512i sums[2];
  digits_byte_product(_mm512_xor_si512(low, middle),
                      _mm512_xor_si512(high, middle), x, sums);
  for (int i = 0; i < 2; ++i)
    sums[i] = _mm512_sub_epi32(sums[i], _mm512_load_si512(x->middle[i]));
  __m512 product =
      _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[0]), _mm512_set1_ps(65536),
                      _mm512_cvtepi32_ps(sums[1]));
  return _mm512_fmadd_ps(product, _mm512_set1_ps(scale * x->unit), sum);
}

static inline void digits_byte_rows(const rabbet_packed_t* w,
                                    const rabbet_digits_t* x, int64_t n,
                                    int rows, float* y) {
  enum { HALF = CHUNK / 2 };
  int64_t whole = w->depth / CHUNK, rest = w->depth % CHUNK;
  digit_rows_t row = digits_begin(w, n, rows);
  for (int64_t c = 0; c < whole; ++c)
    for (int r = 0; r < rows; ++r) {
      const uint8_t* at = row.codes[r] + c * CHUNK;
      _mm_prefetch((const char*)at + AHEAD, _MM_HINT_T0);
      _mm_prefetch((const char*)at + AHEAD + HALF, _MM_HINT_T0);
      row.sums[r] = digits_byte_step(
          _mm512_loadu_si512(at), _mm512_loadu_si512(at + HALF),
          row.scales[r][c * CHUNK / w->block], &x[c], row.sums[r]);
    }
  // Digits behind the row are 0.
  __mmask64 low = rest < HALF ? (UINT64_C(1) << rest) - 1 : UINT64_MAX;
  __mmask64 high = rest > HALF ? (UINT64_C(1) << (rest - HALF)) - 1 : 0;
  for (int r = 0; rest > 0 && r < rows; ++r) {
    const uint8_t* at = row.codes[r] + whole * CHUNK;
    row.sums[r] = digits_byte_step(
        _mm512_maskz_loadu_epi8(low, at),
        _mm512_maskz_loadu_epi8(high, at + (high ? HALF : 0)),
        row.scales[r][whole * CHUNK / w->block], &x[whole], row.sums[r]);
  }
  for (int r = 0; r < rows; ++r)
    y[r] = _mm512_reduce_add_ps(row.sums[r]);
}

static void digits_byte_dots(const rabbet_packed_t* w, const rabbet_digits_t* x,
                             int64_t begin, int64_t end, float* y) {
  int64_t n = begin;
  for (; n + ROWS <= end; n += ROWS)
    digits_byte_rows(w, x, n, ROWS, y + n);
  for (; n < end; ++n)
    digits_byte_rows(w, x, n, 1, y + n);
}

void rabbet_digits_dots(rabbet_packed_type_t type, const rabbet_packed_t* w,
                        const rabbet_digits_t* x, int64_t begin, int64_t end,
                        float* y) {
  if (type == RABBET_PACKED_INT8) {
    digits_byte_dots(w, x, begin, end, y);
    return;
  }
  int64_t whole = w->depth / CHUNK;
  int64_t blocks = (w->depth + w->block - 1) / w->block;
  const digit_scales_t to = digits_scales(w, CHUNK);
  const digit_scales_t to_rest =
      digits_scales(w, blocks - whole * CHUNK / w->block);
  int64_t n = begin;
  for (; n + ROWS <= end; n += ROWS)
    digits_rows(w, x, n, ROWS, &to, &to_rest, y + n);
  for (; n < end; ++n)
    digits_rows(w, x, n, 1, &to, &to_rest, y + n);
}

#else

bool rabbet_digits_available(void) {
  return false;
}
bool rabbet_digits_fit(rabbet_packed_type_t type, const rabbet_packed_t* w) {
  (void)type, (void)w;
  return false;
}
bool rabbet_digits_convert(rabbet_packed_type_t type, const float* x,
                           int64_t count, rabbet_digits_t* out_digits) {
  (void)type, (void)x, (void)count, (void)out_digits;
  return false;
}
void rabbet_digits_dots(rabbet_packed_type_t type, const rabbet_packed_t* w,
                        const rabbet_digits_t* x, int64_t begin, int64_t end,
                        float* y) {
  (void)type, (void)w, (void)x, (void)begin, (void)end, (void)y;
  assert(false);  // rabbet_digits_available answered false
}

#endif
