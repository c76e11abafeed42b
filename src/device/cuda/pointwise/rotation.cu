// Rotary position embedding. A thread rotates a vector of pairs, or copies a
// vector of the elements behind.
//
//   ELEMENT, TABLE  types of input and output, and of cosines and sines
//   VECTOR          elements to 16 bytes
//   INTERLEAVED     1: pairs are neighbours; 0: half of the size apart
//
// Bound by the bytes of input and output. Functions of single elements are for
// rows whose parts are no multiples of a vector, and for odd addresses.
#include "device/cuda/programs/threads.cuh"

#include "device/cuda/pointwise/rotation.cuh"

// N: elements of an item; of each half, if pairs are halves apart.
template <int N, bool PACKED>
DEVICE void rotate(const ELEMENT* x, const TABLE* cosines, const TABLE* sines,
                   ELEMENT* y, const rotation_t& r) {
  uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x, item = 0;
  if (thread >= r.count) return;
  uint32_t row = divide(thread, r.items, &item);
  int64_t place[3] = {0, 0, 0};
  locate<3>(r.outer, row, place);
  x += place[0], y += place[0], cosines += place[1], sines += place[2];
  if (item < r.rotated) {
    rotate_pairs<N, PACKED>(x, cosines, sines, y, item * N, r.turns);
    return;
  }
  uint32_t at = r.turns.size + (item - r.rotated) * N;
  if (PACKED) {
    store_pack<ELEMENT, N>(y + at, load_pack<ELEMENT, N>(x + at));
    return;
  }
  for (uint32_t e = at; e < at + N && e < r.width; ++e) y[e] = x[e];
}

#define ROTATE(name, N, PACKED)                                        \
  extern "C" __global__ void __launch_bounds__(256)                    \
      name(const ELEMENT* x, const TABLE* cosines, const TABLE* sines, \
           ELEMENT* y, const __grid_constant__ rotation_t rotation) {  \
    turn_t turn;                                                       \
    rotate<N, PACKED>(x, cosines, sines, y, rotation);                 \
  }

ROTATE(rotate_vectors, VECTOR, true)
ROTATE(rotate_single, INTERLEAVED ? 2 : 1, false)
