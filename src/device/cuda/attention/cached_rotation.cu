// Rotary position embedding of queries and keys, and the update of both caches,
// in one kernel: of a token it would take four, each as long as its launch. A
// thread has a vector of pairs of a head, or a vector of the elements behind
// them. Values are copied in the same way.
//
//   ELEMENT, TABLE  types of tensors, and of cosines and sines
//   VECTOR          elements to 16 bytes
//   INTERLEAVED     1: pairs are neighbours; 0: half of the size apart
#include "device/cuda/programs/threads.cuh"

#include "device/cuda/attention/kv_cache.cuh"
#include "device/cuda/pointwise/rotation.cuh"

template <int N, bool PACKED>
DEVICE void copy(const ELEMENT* x, ELEMENT* y, uint32_t at, uint32_t end) {
  if (PACKED) {
    store_pack<ELEMENT, N>(y + at, load_pack<ELEMENT, N>(x + at));
    return;
  }
  for (uint32_t e = at; e < at + N && e < end; ++e) y[e] = x[e];
}

// Where a head's elements go.
struct target_t {
  ELEMENT* to;  // NULL: beyond the cache
  bool rotates;
};
DEVICE target_t find_target(const cached_rotation_t& p, const void* indices,
                            uint32_t head, uint32_t batch, uint32_t step,
                            ELEMENT* queries, ELEMENT* keys, ELEMENT* values) {
  target_t y = {nullptr, head < p.queries + p.keys};
  int64_t steps = p.steps.divisor;
  if (head < p.queries) {
    int64_t row = ((int64_t)batch * p.queries + head) * steps + step;
    y.to = queries + row * p.width;
    return y;
  }
  int64_t own = head - p.queries - (y.rotates ? 0 : p.keys);
  int64_t at = cache_row(read_index(indices, p.indices, batch), step, steps,
                         p.extent, p.circular);
  if (at >= 0)
    y.to = (y.rotates ? keys : values) +
           (((int64_t)batch * p.keys + own) * p.extent + at) * p.width;
  return y;
}

// N: elements of an item; of each half, if pairs are halves apart.
template <int N, bool PACKED>
DEVICE void rotate_heads(const ELEMENT* x, const TABLE* cosines,
                         const TABLE* sines, const void* indices,
                         ELEMENT* queries, ELEMENT* keys, ELEMENT* values,
                         const cached_rotation_t& p) {
  uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
  uint32_t item = 0, head = 0, step = 0;
  if (thread >= p.count) return;
  uint32_t row = divide(thread, p.items, &item);
  uint32_t token = divide(row, p.heads, &head);
  uint32_t batch = divide(token, p.steps, &step);
  target_t target =
      find_target(p, indices, head, batch, step, queries, keys, values);
  if (!target.to) return;
  x += (int64_t)row * p.width;
  if (item >= p.rotated) {
    copy<N, PACKED>(x, target.to, p.turns.size + (item - p.rotated) * N,
                    p.width);
  } else if (target.rotates) {
    rotate_pairs<N, PACKED>(
        x, cosines + batch * p.strides[0][0] + step * p.strides[0][1],
        sines + batch * p.strides[1][0] + step * p.strides[1][1], target.to,
        item * N, p.turns);
  } else {
    copy<N, PACKED>(x, target.to, item * N, p.width);
    if (!INTERLEAVED)
      copy<N, PACKED>(x, target.to, p.turns.size / 2 + item * N, p.width);
  }
}

#define ROTATE(name, N, PACKED)                                                \
  extern "C" __global__ void __launch_bounds__(256)                            \
      name(const ELEMENT* x, const TABLE* cosines, const TABLE* sines,         \
           const void* indices, ELEMENT* queries, ELEMENT* keys,               \
           ELEMENT* values, const __grid_constant__ cached_rotation_t p) {     \
    turn_t turn;                                                               \
    rotate_heads<N, PACKED>(x, cosines, sines, indices, queries, keys, values, \
                            p);                                                \
  }

ROTATE(rotate_vectors, VECTOR, true)
ROTATE(rotate_single, INTERLEAVED ? 2 : 1, false)
