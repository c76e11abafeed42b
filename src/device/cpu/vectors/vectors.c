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
