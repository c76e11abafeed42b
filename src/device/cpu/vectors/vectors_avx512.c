#if defined(__x86_64__)
#define VEC_TABLE rabbet_vectors_avx512
#define VEC_BYTES 64
#include "device/cpu/vectors/vectors.inc"
#endif
