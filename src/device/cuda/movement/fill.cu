// Arithmetic sequences and random numbers (-DELEMENT; -DOPERATION: 0 a
// sequence, 1 uniform, 2 normal distribution; -DINTEGER). Sequences are bound
// by the bytes of the output, random numbers by arithmetic. Philox4x32-10:
// ops/movement/philox.h.
#include "device/cuda/programs/number.cuh"

#include "device/cuda/movement/fill_params.h"

typedef ELEMENT T;

#if INTEGER
typedef int64_t step_t;
DEVICE int64_t as_step(T x) { return (int64_t)x; }
DEVICE T as_element(int64_t x) { return (T)x; }
#else
typedef double step_t;
DEVICE double as_step(T x) { return (double)to_float(x); }
DEVICE T as_element(double x) { return from_float<T>((float)x); }
#endif

DEVICE float random_unit(uint32_t word) {
  return (float)(word >> 8) * 0x1p-24f;
}

DEVICE void random_words(uint64_t seed, uint64_t position, uint32_t* c) {
  uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
  c[0] = (uint32_t)position, c[1] = (uint32_t)(position >> 32);
  c[2] = c[3] = 0;
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    uint64_t a = 0xd2511f53ull * c[0], b = 0xcd9e8d57ull * c[2];
    uint32_t c0 = (uint32_t)(b >> 32) ^ c[1] ^ key0;
    uint32_t c2 = (uint32_t)(a >> 32) ^ c[3] ^ key1;
    c[0] = c0, c[1] = (uint32_t)b, c[2] = c2, c[3] = (uint32_t)a;
    key0 += 0x9e3779b9u;
    key1 += 0xbb67ae85u;
  }
}

#if OPERATION == 0
DEVICE T make_element(const T* alpha, const T* beta, const fill_t& p,
                      int64_t at) {
  step_t sum = alpha ? as_step(*alpha) : (step_t)p.alpha;
  int64_t rest = at;
#pragma unroll 1
  for (int i = p.rank - 1; i >= 0; --i) {
    int64_t next = divide(rest, p.dims[i]);
    step_t step = beta && i < p.beta_count ? as_step(beta[i]) : (step_t)p.beta;
    sum += (step_t)(rest - next * p.dims[i].divisor) * step;
    rest = next;
  }
  return as_element(sum);
}
#else
DEVICE T make_element(const T* alpha, const T* beta, const fill_t& p,
                      int64_t at) {
  uint32_t words[4];
  random_words(p.seed, (uint64_t)at, words);
  float a = alpha ? to_float(*alpha) : (float)p.alpha;
  float b = beta ? to_float(*beta) : (float)p.beta;
  float unit = random_unit(words[0]);
  if (OPERATION == 1) return from_float<T>(a + (b - a) * unit);
  float radius = sqrtf(-2.0f * logf(1.0f - unit));
  float angle = 6.28318530717958648f * random_unit(words[1]);
  return from_float<T>(a + b * radius * cosf(angle));
}
#endif

extern "C" __global__ void __launch_bounds__(256)
    fill(const T* alpha, const T* beta, T* y,
         const __grid_constant__ fill_t p) {
  turn_t turn;
  int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (at < p.count) y[at] = make_element(alpha, beta, p, at);
}
