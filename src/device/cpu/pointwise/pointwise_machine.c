#include "device/cpu/cpu.h"
#include "device/cpu/pointwise/pointwise_vm.h"

const rabbet_pw_machine_t* rabbet_pw_machine(void) {
#if defined(__x86_64__)
  rabbet_cpu_isa_t isa = rabbet_cpu_isa();
  if (isa >= RABBET_CPU_AVX512) return &rabbet_pw_machine_avx512;
  if (isa >= RABBET_CPU_AVX2) return &rabbet_pw_machine_avx2;
#endif
  return &rabbet_pw_machine_baseline;
}
