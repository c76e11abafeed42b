// Concatenation of elements of SIZE bytes (-DSIZE=1, 2, 4, 8). Bound by bytes:
// each element is read and written once.
#include "device/cuda/movement/pieces.cuh"

#include "device/cuda/movement/gather_params.h"

template <int BYTES, class I>
struct concatenation_source {
  typedef typename element<BYTES>::type E;
  enum { SKIPS = 1 };
  const concatenation_t& table;

  __device__ __forceinline__ void fill(E& value) const {}

  // The address of an element; left: contiguous elements from it on.
  __device__ __forceinline__ const E* find(I at, I& left, bool& roomy) const {
    const E* skipped = (const E*)PIECES_SKIPPED;
    I row = divide(at, table.row), length = (I)table.row.divisor;
    I in_row = at - row * length;
    roomy = true;
    left = (I)table.begins[0] - in_row;
    if (left > 0) return skipped;
    int input = 0;
    for (int half = table.half; half > 0; half >>= 1) {
      int next = input + half;
      if (next < table.input_count && in_row >= (I)table.begins[next])
        input = next;
    }
    I begin = (I)table.begins[input], end = (I)table.begins[input + 1];
    left = length - in_row;
    if (in_row >= end) return skipped;
    left = end - in_row;
    I offset = row * (end - begin) + in_row - begin;
    roomy = has_room<BYTES>(offset, (I)table.rows * (end - begin));
    return (const E*)table.inputs[input] + offset;
  }

  __device__ __forceinline__ bool run(I at, const E*& from) const {
    I left;
    bool roomy;
    from = find(at, left, roomy);
    return left >= 16 / BYTES && roomy;
  }
  __device__ __forceinline__ const E* place(I at) const {
    I left;
    bool roomy;
    return find(at, left, roomy);
  }
};

#define CONCATENATION_KERNEL(name, bytes, pieces, index)                    \
  extern "C" __global__ void __launch_bounds__(256)                         \
      name(element<bytes>::type* target,                                    \
           const __grid_constant__ concatenation_t table) {                 \
    turn_t turn;                                                            \
    concatenation_source<bytes, index> locate = {table};                    \
    write_pieces<bytes, pieces, index>(locate, target, (index)table.count); \
  }

CONCATENATION_KERNEL(concatenation_narrow, SIZE, 4, int32_t)
CONCATENATION_KERNEL(concatenation_wide, 16, 4, int32_t)
CONCATENATION_KERNEL(concatenation_narrow_large, SIZE, 1, int64_t)
CONCATENATION_KERNEL(concatenation_wide_large, 16, 1, int64_t)
