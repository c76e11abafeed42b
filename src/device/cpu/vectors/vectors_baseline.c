#define VEC_TABLE rabbet_vectors_baseline
#define VEC_BYTES 16
#include "device/cpu/vectors/vectors.inc"
