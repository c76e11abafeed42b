#if defined(__x86_64__)
#define VEC_TABLE rabbet_vectors_avx2
#define VEC_BYTES 32
#include "device/cpu/vectors/vectors.inc"
#endif
