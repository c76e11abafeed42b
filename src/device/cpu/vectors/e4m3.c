#include "device/cpu/vectors/e4m3.h"

#include <assert.h>
#include <string.h>

#include "core/view.h"
#include "device/cpu/cpu.h"

#if defined(__AVX512VBMI__)
#include <immintrin.h>

#include "device/cpu/vectors/ahead.h"

#define E4M3_INLINE static inline __attribute__((always_inline))

enum {
  FLOATS = 16,
  CHUNK = RABBET_E4M3_CHUNK,
  VECTORS = CHUNK / FLOATS,
  ROWS = 4,
  CODES = 128,  // without signs
};

bool rabbet_e4m3_available(void) {
  return rabbet_cpu_has_vbmi();
}

// Where the codes' vectors have an element of a chunk: bytes are paired within
// 16 of them, and a pair's numbers go to two vectors.
static int e4m3_place(int element) {
  int part = element / 16, in_part = element % 16;
  int vector = in_part / 8 * 2 + in_part % 2;
  return vector * FLOATS + part * 4 + in_part % 8 / 2;
}

void rabbet_e4m3_order(const float* x, int64_t count, float* y) {
  int places[CHUNK];
  for (int i = 0; i < CHUNK; ++i)
    places[i] = e4m3_place(i);
  for (int64_t c = 0; c < count; c += CHUNK, y += CHUNK) {
    int64_t left = count - c;
    for (int i = 0; i < CHUNK; ++i)
      y[places[i]] = i < left ? x[c + i] : 0;
  }
}

// ---- Tables ----------------------------------------------------------------

typedef struct e4m3_tables_t {
  __m512i low[2], high[2];  // bytes of BF16
} e4m3_tables_t;

static e4m3_tables_t e4m3_tables(void) {
  uint8_t low[CODES], high[CODES];
  e4m3_tables_t tables;
  for (int i = 0; i < CODES; ++i) {
    uint8_t code = (uint8_t)i;
    uint16_t bits = rabbet_float_to_bf16(
        (float)rabbet_load_double(RABBET_DTYPE_FP8, &code, 0));
    low[i] = (uint8_t)bits;
    high[i] = (uint8_t)(bits >> 8 & 0x7f);
  }
  for (int i = 0; i < 2; ++i) {
    tables.low[i] = _mm512_loadu_si512(low + i * CODES / 2);
    tables.high[i] = _mm512_loadu_si512(high + i * CODES / 2);
  }
  return tables;
}

// ---- Rows of weights -------------------------------------------------------

typedef struct e4m3_walk_t {
  const rabbet_packed_t* w;
  const float* x;
  e4m3_tables_t tables;
  bool one_scale;  // for a whole chunk
  int shift;       // of blocks
  int per;         // scales that begin in a chunk
  __m512i lane;    // the scale of each lane
} e4m3_walk_t;

E4M3_INLINE __m512 e4m3_product(const e4m3_tables_t* tables, __m512i codes,
                                const __m512 x[VECTORS]) {
  const __m512i sign = _mm512_set1_epi8(INT8_MIN);
  const __m512i upper = _mm512_set1_epi32((int)0xffff0000u);
  __m512i low = _mm512_permutex2var_epi8(tables->low[0], codes, tables->low[1]);
  __m512i high =
      _mm512_permutex2var_epi8(tables->high[0], codes, tables->high[1]);
  high = _mm512_ternarylogic_epi32(high, codes, sign, 0xf8);  // | codes & sign
  __m512i pairs[2] = {_mm512_unpacklo_epi8(low, high),
                      _mm512_unpackhi_epi8(low, high)};
  __m512 sum = _mm512_setzero_ps();
  for (int i = 0; i < 2; ++i) {
    __m512 even = _mm512_castsi512_ps(_mm512_slli_epi32(pairs[i], 16));
    __m512 odd = _mm512_castsi512_ps(_mm512_and_si512(pairs[i], upper));
    sum = _mm512_fmadd_ps(even, x[2 * i], sum);
    sum = _mm512_fmadd_ps(odd, x[2 * i + 1], sum);
  }
  return sum;
}

// The scales of `left` blocks and more from *scales on, by lanes.
E4M3_INLINE __m512 e4m3_scale(const e4m3_walk_t* walk, const float* scales,
                              int64_t left) {
  if (walk->one_scale) return _mm512_set1_ps(*scales);
  int count = left < walk->per ? (int)left : walk->per;
  __m128 some = _mm_maskz_loadu_ps((__mmask8)((1u << count) - 1), scales);
  return _mm512_permutexvar_ps(walk->lane, _mm512_castps128_ps512(some));
}

E4M3_INLINE void e4m3_rows(const e4m3_walk_t* walk, int64_t n, int rows,
                           int64_t apart, float* y) {
  const rabbet_packed_t* w = walk->w;
  int64_t whole = w->depth / CHUNK, rest = w->depth % CHUNK;
  int64_t blocks = (w->depth + w->block - 1) / w->block;
  const uint8_t* codes[ROWS];
  const float* scales[ROWS];
  __m512 sums[ROWS], x[VECTORS];
  for (int r = 0; r < rows; ++r) {
    codes[r] = w->codes + (n + r * apart) * w->stride;
    scales[r] = w->scales + (n + r * apart) / w->rows * w->scale_stride;
    sums[r] = _mm512_setzero_ps();
  }
  for (int64_t c = 0; c < whole; ++c) {
    int64_t scale = c * CHUNK >> walk->shift;
    for (int i = 0; i < VECTORS; ++i)
      x[i] = _mm512_loadu_ps(walk->x + c * CHUNK + i * FLOATS);
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) {
      const uint8_t* at = codes[r] + c * CHUNK;
      rabbet_fetch_ahead(at);
      rabbet_fetch_scales_ahead(scales[r] + scale);
      sums[r] = _mm512_fmadd_ps(
          e4m3_product(&walk->tables, _mm512_loadu_si512(at), x),
          e4m3_scale(walk, scales[r] + scale, CHUNK), sums[r]);
    }
  }
  if (rest > 0) {
    __mmask64 some = (UINT64_C(1) << rest) - 1;
    int64_t scale = whole * CHUNK >> walk->shift;
    for (int i = 0; i < VECTORS; ++i)
      x[i] = _mm512_loadu_ps(walk->x + whole * CHUNK + i * FLOATS);
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r)
      sums[r] = _mm512_fmadd_ps(
          e4m3_product(&walk->tables,
                       _mm512_maskz_loadu_epi8(some, codes[r] + whole * CHUNK),
                       x),
          e4m3_scale(walk, scales[r] + scale, blocks - scale), sums[r]);
  }
  for (int r = 0; r < rows; ++r)
    y[n + r * apart] = _mm512_reduce_add_ps(sums[r]);
}

E4M3_INLINE void e4m3_dots(bool one_scale, const rabbet_packed_t* w,
                           const float* x, int64_t begin, int64_t end,
                           float* y) {
  int per = one_scale ? 1 : (int)(CHUNK / w->block);
  int32_t lanes[FLOATS];
  for (int i = 0; i < FLOATS; ++i)
    lanes[i] = i * per / FLOATS;
  const e4m3_walk_t walk = {.w = w,
                            .x = x,
                            .tables = e4m3_tables(),
                            .one_scale = one_scale,
                            .shift = rabbet_packed_shift(w),
                            .per = per,
                            .lane = _mm512_loadu_si512(lanes)};
  int64_t n = begin;
  int64_t apart = (end - begin) / ROWS;
  for (; n < begin + apart; ++n)
    e4m3_rows(&walk, n, ROWS, apart, y);
  for (n = begin + apart * ROWS; n < end; ++n)
    e4m3_rows(&walk, n, 1, 1, y);
}

void rabbet_e4m3_dots(const rabbet_packed_t* w, const float* x, int64_t begin,
                      int64_t end, float* y) {
  if (w->block < CHUNK && w->block < w->depth)
    e4m3_dots(false, w, x, begin, end, y);
  else
    e4m3_dots(true, w, x, begin, end, y);
}

#else

bool rabbet_e4m3_available(void) {
  return false;
}
void rabbet_e4m3_order(const float* x, int64_t count, float* y) {
  (void)x, (void)count, (void)y;
  assert(false);  // rabbet_e4m3_available answered false
}
void rabbet_e4m3_dots(const rabbet_packed_t* w, const float* x, int64_t begin,
                      int64_t end, float* y) {
  (void)w, (void)x, (void)begin, (void)end, (void)y;
  assert(false);  // rabbet_e4m3_available answered false
}

#endif
