// Products of integer matrices modulo 2^32 or 2^64 (-DT=uint32_t, uint64_t).
// Networks compute shapes with them, so the matrices are small and latency is
// the bound. One thread per element.
#include "device/cuda/programs/number.cuh"

#include "device/cuda/products/product_params.h"

extern "C" __global__ void __launch_bounds__(256)
    product(const T* a, const T* b, T* y, const product_t p) {
  turn_t turn;
  int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= p.count) return;
  int64_t column = at % p.columns, rest = at / p.columns;
  int64_t row = rest % p.rows, batch = rest / p.rows;
  a += batch * p.a_batch + row * p.a_row;
  b += batch * p.b_batch + column * p.b_column;
  T sum = 0;
  for (int64_t k = 0; k < p.k; ++k) sum += a[k * p.a_column] * b[k * p.b_row];
  y[batch * p.y_batch + row * p.y_row + column] = sum;
}
