#define PW_MACHINE rabbet_pw_machine_baseline
#define PW_BYTES 16
#if defined(__x86_64__)
#define PW_VEC(f) _ZGVbN4v_##f
#define PW_VEC2(f) _ZGVbN4vv_##f
#define PW_DVEC(f) _ZGVbN2v_##f
#define PW_DVEC2(f) _ZGVbN2vv_##f
#endif
#include "device/cpu/pointwise/pointwise_vm.inc"
