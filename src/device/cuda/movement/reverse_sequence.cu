// Reverses the first elements of each sequence; elements have SIZE bytes
// (-DSIZE=1, 2, 4, 8). Bound by bytes. The axes inside batch and sequence are
// contiguous and are moved in pieces of 16 bytes.
#include "device/cuda/movement/pieces.cuh"

#include "device/cuda/movement/reverse_sequence_params.h"

template <int BYTES, class I>
struct reverse_source {
  typedef typename element<BYTES>::type E;
  enum { SKIPS = 0 };
  const E* data;
  const void* lengths;
  const reverse_sequence_t& p;

  __device__ __forceinline__ void fill(E& value) const {}

  __device__ __forceinline__ int64_t length(I batch) const {
    int64_t all = p.is_long ? ((const int64_t*)lengths)[batch]
                            : (int64_t)((const int32_t*)lengths)[batch];
    return all < p.extent ? all : p.extent;
  }

  // An element's offset in the source; left: contiguous elements from it on.
  __device__ __forceinline__ I find(I at, I& left) const {
    I row = divide(at, p.inner), outer = divide(row, p.second);
    I second = row - outer * (I)p.second.divisor;
    left = (row + 1) * (I)p.inner.divisor - at;
    outer = divide(outer, p.middle);
    I first = outer - divide(outer, p.first) * (I)p.first.divisor;
    I step = p.sequence_first ? first : second;
    int64_t most = length(p.sequence_first ? second : first);
    return step < most ? at + ((I)most - 1 - 2 * step) * (I)p.step : at;
  }
  __device__ __forceinline__ bool run(I at, const E*& from) const {
    I left, place = find(at, left);
    from = data + place;
    return left >= 16 / BYTES && has_room<BYTES>(place, (I)p.size);
  }
  __device__ __forceinline__ const E* place(I at) const {
    I left;
    return data + find(at, left);
  }
};

WRITE_PIECES(reverse_narrow, reverse_source, reverse_sequence_t, SIZE, 2,
             int32_t)
WRITE_PIECES(reverse_wide, reverse_source, reverse_sequence_t, 16, 4, int32_t)
WRITE_PIECES(reverse_narrow_large, reverse_source, reverse_sequence_t, SIZE, 1,
             int64_t)
WRITE_PIECES(reverse_wide_large, reverse_source, reverse_sequence_t, 16, 1,
             int64_t)
