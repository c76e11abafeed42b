// Products of one row with weights of FP8 (E4M3) by AVX512-VBMI: tables of 128
// bytes make 64 codes into BF16, which is the upper half of FLOAT. It takes
// half the time of going through HALF.
#ifndef RABBET_SRC_DEVICE_CPU_VECTORS_E4M3_H_
#define RABBET_SRC_DEVICE_CPU_VECTORS_E4M3_H_

#include "device/cpu/vectors/vectors.h"

enum { RABBET_E4M3_CHUNK = 64 };  // elements

// Whether this processor has the instructions.
bool rabbet_e4m3_available(void);
// Lays out `count` floats for the products, with zeros up to a whole chunk.
void rabbet_e4m3_order(const float* x, int64_t count, float* y);
// y[n] for rows `begin` to `end` - 1 of the weights.
void rabbet_e4m3_dots(const rabbet_packed_t* w, const float* x, int64_t begin,
                      int64_t end, float* y);

#endif  // RABBET_SRC_DEVICE_CPU_VECTORS_E4M3_H_
