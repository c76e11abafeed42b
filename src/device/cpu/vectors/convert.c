#include "device/cpu/vectors/convert.h"

#include <string.h>

#include "base/math.h"
#include "core/view.h"
#include "device/cpu/cpu.h"
#include "device/cpu/parallel.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define RABBET_TARGET_F16C __attribute__((target("avx2,f16c,fma")))
#define RABBET_TARGET_AVX512 \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,f16c,fma")))
#endif

typedef void (*cpu_convert_fn_t)(const void* source, void* target,
                                 int64_t count);

// ---- Any processor ---------------------------------------------------------

#define RABBET_CONVERT_LOOP(name, from_t, to_t, convert)              \
  static void name(const void* source, void* target, int64_t count) { \
    const from_t* in = source;                                        \
    to_t* out = target;                                               \
    for (int64_t i = 0; i < count; ++i)                               \
      out[i] = convert(in[i]);                                        \
  }

static uint16_t convert_half_to_bf16(uint16_t bits) {
  return rabbet_float_to_bf16(rabbet_half_to_float(bits));
}
static uint16_t convert_bf16_to_half(uint16_t bits) {
  return rabbet_float_to_half(rabbet_bf16_to_float(bits));
}

RABBET_CONVERT_LOOP(half_to_float, uint16_t, float, rabbet_half_to_float)
RABBET_CONVERT_LOOP(float_to_half, float, uint16_t, rabbet_float_to_half)
RABBET_CONVERT_LOOP(bf16_to_float, uint16_t, float, rabbet_bf16_to_float)
RABBET_CONVERT_LOOP(float_to_bf16, float, uint16_t, rabbet_float_to_bf16)
RABBET_CONVERT_LOOP(half_to_bf16, uint16_t, uint16_t, convert_half_to_bf16)
RABBET_CONVERT_LOOP(bf16_to_half, uint16_t, uint16_t, convert_bf16_to_half)

// ---- AVX2 and AVX-512 ------------------------------------------------------

#if defined(__x86_64__)
RABBET_TARGET_F16C static void half_to_float_avx2(const void* source,
                                                  void* target, int64_t count) {
  const uint16_t* in = source;
  float* out = target;
  int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    _mm256_storeu_ps(
        out + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(in + i))));
  half_to_float(in + i, out + i, count - i);
}

RABBET_TARGET_F16C static void float_to_half_avx2(const void* source,
                                                  void* target, int64_t count) {
  const float* in = source;
  uint16_t* out = target;
  int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    _mm_storeu_si128(
        (__m128i*)(out + i),
        _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT));
  float_to_half(in + i, out + i, count - i);
}

RABBET_TARGET_AVX512 static void bf16_to_float_avx512(const void* source,
                                                      void* target,
                                                      int64_t count) {
  const uint16_t* in = source;
  float* out = target;
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    __m512i wide =
        _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)(in + i)));
    _mm512_storeu_si512(out + i, _mm512_slli_epi32(wide, 16));
  }
  bf16_to_float(in + i, out + i, count - i);
}

RABBET_TARGET_AVX512 static void float_to_bf16_avx512(const void* source,
                                                      void* target,
                                                      int64_t count) {
  const float* in = source;
  uint16_t* out = target;
  const __m512i half = _mm512_set1_epi32(0x7fff), one = _mm512_set1_epi32(1);
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    __m512 value = _mm512_loadu_ps(in + i);
    __m512i bits = _mm512_castps_si512(value);
    __m512i odd = _mm512_and_epi32(_mm512_srli_epi32(bits, 16), one);
    __m512i rounded = _mm512_srli_epi32(
        _mm512_add_epi32(bits, _mm512_add_epi32(half, odd)), 16);
    // Rounding could carry a NaN into infinity: keep its top bits, made quiet.
    __m512i quiet =
        _mm512_or_epi32(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(0x40));
    __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    _mm256_storeu_si256(
        (__m256i*)(out + i),
        _mm512_cvtepi32_epi16(_mm512_mask_blend_epi32(nan, rounded, quiet)));
  }
  float_to_bf16(in + i, out + i, count - i);
}
#endif

// ---- Choice ----------------------------------------------------------------

static const struct {
  rabbet_dtype_t from, to;
  rabbet_cpu_isa_t isa;
  cpu_convert_fn_t convert;
} rabbet_cpu_conversions[] = {
#if defined(__x86_64__)
    {RABBET_DTYPE_HALF, RABBET_DTYPE_FLOAT, RABBET_CPU_AVX2,
     half_to_float_avx2},
    {RABBET_DTYPE_FLOAT, RABBET_DTYPE_HALF, RABBET_CPU_AVX2,
     float_to_half_avx2},
    {RABBET_DTYPE_BF16, RABBET_DTYPE_FLOAT, RABBET_CPU_AVX512,
     bf16_to_float_avx512},
    {RABBET_DTYPE_FLOAT, RABBET_DTYPE_BF16, RABBET_CPU_AVX512,
     float_to_bf16_avx512},
#endif
    {RABBET_DTYPE_HALF, RABBET_DTYPE_FLOAT, RABBET_CPU_BASELINE, half_to_float},
    {RABBET_DTYPE_FLOAT, RABBET_DTYPE_HALF, RABBET_CPU_BASELINE, float_to_half},
    {RABBET_DTYPE_BF16, RABBET_DTYPE_FLOAT, RABBET_CPU_BASELINE, bf16_to_float},
    {RABBET_DTYPE_FLOAT, RABBET_DTYPE_BF16, RABBET_CPU_BASELINE, float_to_bf16},
    {RABBET_DTYPE_HALF, RABBET_DTYPE_BF16, RABBET_CPU_BASELINE, half_to_bf16},
    {RABBET_DTYPE_BF16, RABBET_DTYPE_HALF, RABBET_CPU_BASELINE, bf16_to_half},
};

static cpu_convert_fn_t cpu_conversion(rabbet_dtype_t from, rabbet_dtype_t to) {
  rabbet_cpu_isa_t isa = rabbet_cpu_isa();
  for (size_t i = 0;
       i < sizeof(rabbet_cpu_conversions) / sizeof(rabbet_cpu_conversions[0]);
       ++i) {
    if (rabbet_cpu_conversions[i].from == from &&
        rabbet_cpu_conversions[i].to == to &&
        rabbet_cpu_conversions[i].isa <= isa) {
      return rabbet_cpu_conversions[i].convert;
    }
  }
  return NULL;
}

static bool cpu_is_real(rabbet_dtype_t dtype) {
  return dtype == RABBET_DTYPE_FLOAT || dtype == RABBET_DTYPE_HALF ||
         dtype == RABBET_DTYPE_BF16;
}

bool rabbet_cpu_can_convert(rabbet_dtype_t from, rabbet_dtype_t to) {
  return cpu_is_real(from) && cpu_is_real(to);
}

typedef struct cpu_convert_t {
  cpu_convert_fn_t convert;  // NULL: copy
  const char* source;
  char* target;
  int64_t from_size, to_size;
} cpu_convert_t;

static void cpu_convert_range(void* context, int64_t begin, int64_t end) {
  const cpu_convert_t* job = context;
  const char* source = job->source + begin * job->from_size;
  char* target = job->target + begin * job->to_size;
  if (job->convert)
    job->convert(source, target, end - begin);
  else if (source != target)  // they overlap in wrong plans alone
    memmove(target, source, (size_t)((end - begin) * job->from_size));
}

void rabbet_cpu_convert(rabbet_dtype_t from, const void* source,
                        rabbet_dtype_t to, void* target, int64_t count) {
  cpu_convert_t job = {
      .convert = from == to ? NULL : cpu_conversion(from, to),
      .source = source,
      .target = target,
      .from_size = rabbet_dtype_bits(from) / 8,
      .to_size = rabbet_dtype_bits(to) / 8,
  };
  rabbet_cpu_parallel(count,
                      RABBET_CPU_GRAIN_BYTES / (job.from_size + job.to_size),
                      cpu_convert_range, &job);
}
