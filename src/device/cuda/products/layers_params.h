// The epilogue of a product (layers.h): its parameters, and its computation for
// one element. C and CUDA C++. The text that includes this file in CUDA C++
// defines
//
//   ELEMENT    type of all tensors
//   OPERANDS   number of tensors that the epilogue reads
//   finish     applies the epilogue to an element x; o[i]: element of operand i
//   OTHER      operand that the kernel computes itself, if there is one
#pragma once

#include "device/cuda/programs/index.h"

enum { LAYERS = 12 };

// A tensor that the epilogue reads; the stride of a broadcast axis is 0.
typedef struct layer_operand_t {
  const void* data;
  int64_t batch, row, column;
} layer_operand_t;

typedef struct layers_t {
  layer_operand_t operands[LAYERS];
  float alpha[LAYERS], beta[LAYERS];  // of layer i
} layers_t;

#ifdef __cplusplus
#include "device/cuda/programs/number.cuh"

DEVICE float finish(float x, const layers_t& p, const float* o);

DEVICE const ELEMENT* operand_at(const layers_t& p, int i, int64_t batch,
                                 int64_t row, int64_t column) {
  const layer_operand_t& o = p.operands[i];
  return (const ELEMENT*)o.data + batch * o.batch + row * o.row +
         column * o.column;
}

#ifndef OTHER
#define OTHER -1
#endif

// The element of the output for an element x of the product.
DEVICE ELEMENT finished(float x, const layers_t& p, int64_t batch, int64_t row,
                        int64_t column, float other = 0) {
  float o[OPERANDS + 1];
#pragma unroll
  for (int i = 0; i < OPERANDS; ++i)
    o[i] = i == OTHER ? other : load(*operand_at(p, i, batch, row, column));
  return store_as<ELEMENT>(finish(x, p, o));
}
#endif
