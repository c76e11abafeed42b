#include "device/cpu/vectors/vectors.h"

#include "device/cpu/cpu.h"

const rabbet_vectors_t* rabbet_vectors(void) {
#if defined(__x86_64__)
  rabbet_cpu_isa_t isa = rabbet_cpu_isa();
  if (isa >= RABBET_CPU_AVX512) return &rabbet_vectors_avx512;
  if (isa >= RABBET_CPU_AVX2) return &rabbet_vectors_avx2;
#endif
  return &rabbet_vectors_baseline;
}

void rabbet_packed_subtract_zeros(const rabbet_packed_t* w,
                                  const rabbet_packed_zeros_t* zeros,
                                  int64_t begin, int64_t end, float* y) {
  const rabbet_vectors_t* vectors = rabbet_vectors();
  for (int64_t n = begin; n < end; ++n)
    y[n] -= vectors->packed_zeros(w->scales + n / w->rows * w->scale_stride,
                                  zeros->codes + n * zeros->blocks,
                                  zeros->offset, zeros->sums, zeros->blocks);
}
