#if defined(__x86_64__)
#define PW_MACHINE rabbet_pw_machine_avx512
#define PW_BYTES 64
#define PW_VEC(f) _ZGVeN16v_##f
#define PW_VEC2(f) _ZGVeN16vv_##f
#define PW_DVEC(f) _ZGVeN8v_##f
#define PW_DVEC2(f) _ZGVeN8vv_##f
#include "device/cpu/pointwise/pointwise_vm.inc"
#endif
