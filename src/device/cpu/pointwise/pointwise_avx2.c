#if defined(__x86_64__)
#define PW_MACHINE rabbet_pw_machine_avx2
#define PW_BYTES 32
#define PW_VEC(f) _ZGVdN8v_##f
#define PW_VEC2(f) _ZGVdN8vv_##f
#define PW_DVEC(f) _ZGVdN4v_##f
#define PW_DVEC2(f) _ZGVdN4vv_##f
#include "device/cpu/pointwise/pointwise_vm.inc"
#endif
