// Block quantization: a block's scale maps its largest element to the largest
// number of the result's type (-DELEMENT, -DRESULT: int8_t or fp8_t, -DSCALE,
// -DFACTOR: types of the tensors). 1 to 256 threads share a block, by elements
// or by packs of 16 bytes. Elements that fit into registers are read once,
// others twice, the second time from a cache if the block is small. Bound by
// the bytes of input and output.
#include "device/cuda/reduction/dynamic_quantize_params.h"
#include "device/cuda/programs/scales.cuh"
#include "device/cuda/programs/threads.cuh"

typedef ELEMENT T;

// The offset, in elements, of element or pack `e` of the block that begins at
// `from`; -1: it is outside the tensor. `left`: elements of each axis from the
// block's first on.
DEVICE int64_t find(const dynamic_quantize_t& p, const int64_t* left,
                    int64_t from, int64_t e) {
  int64_t at = from, inside = 0;
#pragma unroll 1
  for (int i = p.rank - 1; i >= 0; --i) {
    int64_t next = divide(e, p.axes[i].block);
    int64_t k = e - next * p.axes[i].block.divisor;
    inside |= left[i] - 1 - k;
    at += k * p.axes[i].stride;
    e = next;
  }
  return inside < 0 ? -1 : at;
}

template <int N>
DEVICE void quantize(const T* x, RESULT* y, SCALE* scales, const FACTOR* factor,
                     const dynamic_quantize_t& p) {
  typedef pack_t<T, N> packs_t;
  uint32_t across = 1u << p.across_log, rank = threadIdx.x & (across - 1);
  int64_t block = (int64_t)blockIdx.x * (BLOCK >> p.across_log) +
                  (threadIdx.x >> p.across_log);
  bool has_block = block < p.count;
  int64_t left[QUANTIZE_AXES], from = 0, number = has_block ? block : 0;
#pragma unroll 1
  for (int i = p.rank - 1; i >= 0; --i) {
    int64_t next = divide(number, p.axes[i].count);
    int64_t at =
        (number - next * p.axes[i].count.divisor) * p.axes[i].block.divisor;
    left[i] = p.axes[i].dim - at;
    from += at * p.axes[i].stride;
    number = next;
  }
  int64_t elements = has_block ? p.elements : 0;
  float most = 0;
  packs_t held;
  int64_t held_at = -1;
  for (int64_t e = rank; e < elements; e += across) {
    int64_t at = find(p, left, from, e);
    if (at < 0) continue;
    packs_t pack = load_pack<T, N>(x + at);
#pragma unroll
    for (int i = 0; i < N; ++i)
      most = max_of::join(most, fabsf(to_float(pack.v[i])));
    if (e == rank) held = pack, held_at = at;
  }
  most = join_threads<max_of>(most, (uint32_t)p.across_log);
  if (!has_block) return;
  float by = factor ? to_float(factor[0]) : 1.0f;
  SCALE stored = store_scale<SCALE>(most / limit<RESULT>() / by);
  float scale = to_float(stored) * by;
  if (scales && rank == 0) scales[block] = stored;
  if (!y) return;
  for (int64_t e = rank; e < elements; e += across) {
    bool is_held = e == rank;
    int64_t at = is_held ? held_at : find(p, left, from, e);
    if (at < 0) continue;
    packs_t pack = is_held ? held : load_pack<T, N>(x + at);
    pack_t<RESULT, N> result;
#pragma unroll
    for (int i = 0; i < N; ++i)
      result.v[i] = quantized<RESULT>(to_float(pack.v[i]), scale);
    store_pack(y + at, result);
  }
}

extern "C" __global__ void __launch_bounds__(256)
    dynamic_quantize(const T* x, RESULT* y, SCALE* scales, const FACTOR* factor,
                     const __grid_constant__ dynamic_quantize_t p) {
  turn_t turn;
  quantize<1>(x, y, scales, factor, p);
}

extern "C" __global__ void __launch_bounds__(256)
    dynamic_quantize_packs(const T* x, RESULT* y, SCALE* scales,
                           const FACTOR* factor,
                           const __grid_constant__ dynamic_quantize_t p) {
  turn_t turn;
  quantize<16 / sizeof(T)>(x, y, scales, factor, p);
}
