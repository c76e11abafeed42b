// The element-wise layers behind a product (layers.h): parameters of their
// kernels, and the walk of an element through them. C and CUDA C++. The text
// that includes this in CUDA C++ also has
//
//   ELEMENT    type of all tensors
//   OPERANDS   how many tensors the layers read
//   finish     the layers on one element x; o[i]: its number of operand i
#pragma once

#include "device/cuda/programs/index.h"

enum { LAYERS = 12 };

// A tensor that a layer reads; distances of 0 where it has one element for all.
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

// The element of a product with all that follows it.
DEVICE ELEMENT finished(float x, const layers_t& p, int64_t batch, int64_t row,
                        int64_t column) {
  float o[OPERANDS + 1];
#pragma unroll
  for (int i = 0; i < OPERANDS; ++i)
    o[i] = load(*operand_at(p, i, batch, row, column));
  return store_as<ELEMENT>(finish(x, p, o));
}
#endif
