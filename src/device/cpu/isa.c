#include <string.h>

#include "device/cpu/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>

// F16C converts HALF. Not every compiler's __builtin_cpu_supports knows it.
static bool cpu_has_f16c(void) {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & (1u << 29));
}

static rabbet_cpu_isa_t cpu_isa_of_processor(void) {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !cpu_has_f16c()) {
    return RABBET_CPU_BASELINE;
  }
  if (!__builtin_cpu_supports("avx512f") ||
      !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512dq") ||
      !__builtin_cpu_supports("avx512vl")) {
    return RABBET_CPU_AVX2;
  }
  unsigned a = 0, b = 0, c = 0, d = 0;
  bool bf16 = __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & (1u << 5));
  return bf16 ? RABBET_CPU_AVX512_BF16 : RABBET_CPU_AVX512;
}
#else
static rabbet_cpu_isa_t cpu_isa_of_processor(void) {
  return RABBET_CPU_BASELINE;
}
#endif

// oneDNN's instruction set is an upper bound for our kernels, so its
// environment variable ONEDNN_MAX_CPU_ISA restricts them, too.
static rabbet_cpu_isa_t cpu_isa_of_dnnl(void) {
  const char* name = rabbet_dnnl_isa();
  if (strcmp(name, "avx512_core_bf16") == 0 ||
      strcmp(name, "avx512_core_amx") == 0) {
    return RABBET_CPU_AVX512_BF16;
  }
  if (strncmp(name, "avx512_core", 11) == 0) return RABBET_CPU_AVX512;
  if (strncmp(name, "avx2", 4) == 0) return RABBET_CPU_AVX2;
  return RABBET_CPU_BASELINE;
}

rabbet_cpu_isa_t rabbet_cpu_isa(void) {
  static atomic_int known = -1;
  int isa = atomic_load_explicit(&known, memory_order_relaxed);
  if (isa < 0) {
    rabbet_cpu_isa_t processor = cpu_isa_of_processor();
    rabbet_cpu_isa_t library = cpu_isa_of_dnnl();
    isa = processor < library ? (int)processor : (int)library;
    atomic_store_explicit(&known, isa, memory_order_relaxed);
  }
  return (rabbet_cpu_isa_t)isa;
}

bool rabbet_cpu_has_vnni(void) {
#if defined(__x86_64__)
  return rabbet_cpu_isa() >= RABBET_CPU_AVX512 &&
         strcmp(rabbet_dnnl_isa(), "avx512_core") != 0 &&
         __builtin_cpu_supports("avx512vnni");
#else
  return false;
#endif
}

bool rabbet_cpu_has_vbmi(void) {
#if defined(__x86_64__)
  return rabbet_cpu_has_vnni() && __builtin_cpu_supports("avx512vbmi");
#else
  return false;
#endif
}

// Processors of Intel take more than 100 cycles for one.
bool rabbet_cpu_has_quick_small_numbers(void) {
#if defined(__x86_64__)
  unsigned most = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(0, &most, &b, &c, &d) && b == signature_AMD_ebx &&
         c == signature_AMD_ecx && d == signature_AMD_edx;
#else
  return false;
#endif
}

rabbet_format_t rabbet_cpu_blocked_format(void) {
  return rabbet_cpu_isa() >= RABBET_CPU_AVX512 ? RABBET_FORMAT_CHW16
                                               : RABBET_FORMAT_CHW8;
}
