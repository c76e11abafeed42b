#include "device/cpu/bytes/kernels.h"

#include <string.h>

#include "device/cpu/cpu.h"

const rabbet_bytes_kernels_t* rabbet_bytes_kernels(void) {
#if defined(__x86_64__)
  if (rabbet_cpu_has_vnni() &&
      strcmp(rabbet_dnnl_isa(), "avx512_core_amx") == 0 &&
      rabbet_bytes_has_amx())
    return &rabbet_bytes_amx;
  if (rabbet_cpu_has_vnni()) return &rabbet_bytes_vnni;
  if (rabbet_cpu_isa() >= RABBET_CPU_AVX2) return &rabbet_bytes_avx2;
#endif
  return NULL;
}
