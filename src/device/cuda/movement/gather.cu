// Gather of elements of SIZE bytes (-DSIZE=1, 2, 4, 8). Bound by bytes:
// gathered elements are read, in 16 bytes where rows allow, and written.
#include "device/cuda/movement/pieces.cuh"

#include "device/cuda/movement/gather_params.h"

template <class I>
struct place_t {
  I data, index;
};

// The offsets of output element `at` in data and indices, by the axes' strides.
template <class I>
__device__ __forceinline__ place_t<I> find_place(const gather_t& gather, I at) {
  place_t<I> place = {0, 0};
#pragma unroll 1
  for (int i = 0; i < gather.rank; ++i) {
    const gather_axis_t& axis = gather.axes[i];
    I rest = divide(at, axis.extent);
    I position = at - rest * (I)axis.extent.divisor;
    at = rest;
    place.data += position * (I)axis.data;
    place.index += position * (I)axis.index;
  }
  return place;
}

__device__ __forceinline__ int64_t load_index(const gather_t& gather,
                                              const void* indices, int64_t at) {
  return gather.is_long ? ((const int64_t*)indices)[at]
                        : (int64_t)((const int32_t*)indices)[at];
}

// Adds the offset of index number i; false: out of bounds.
template <class I>
__device__ __forceinline__ bool add_index(const gather_t& gather, int i,
                                          int64_t index, I& offset) {
  int64_t extent = gather.extent[i];
  if (index < 0) index += extent;
  offset += (I)index * (I)gather.stride[i];
  return index >= 0 && index < extent;
}

// ---- Rows

template <int BYTES, class I>
struct gather_source {
  typedef typename element<BYTES>::type E;
  enum { SKIPS = 0 };
  const E* data;
  const void* indices;
  const gather_t& gather;

  __device__ __forceinline__ void fill(E& value) const {}

  // The address of an element; left: contiguous elements from it on.
  __device__ __forceinline__ const E* find(I at, I& left, bool& roomy) const {
    place_t<I> place = find_place<I>(gather, at);
    const divisor_t& row = gather.axes[0].extent;
    I in_row = at - divide(at, row) * (I)row.divisor, offset = place.data;
    bool inside = true;
#pragma unroll 1
    for (int i = 0; i < gather.depth; ++i) {
      int64_t index = load_index(gather, indices, place.index + i);
      inside = add_index(gather, i, index, offset) && inside;
    }
    left = (I)row.divisor - in_row;
    roomy = !inside || has_room<BYTES>(offset, (I)gather.size);
    return inside ? data + offset : 0;
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

WRITE_PIECES(gather_narrow, gather_source, gather_t, SIZE, 2, int32_t)
WRITE_PIECES(gather_wide, gather_source, gather_t, 16, 4, int32_t)
WRITE_PIECES(gather_narrow_large, gather_source, gather_t, SIZE, 1, int64_t)
WRITE_PIECES(gather_wide_large, gather_source, gather_t, 16, 1, int64_t)

// ---- Elements

// A thread writes GATHER_ELEMENTS elements, which lie blockDim.x apart, so that
// their loads are in flight together, or one (spread).
enum { GATHER_ELEMENTS = 4 };

template <class I>
__device__ __forceinline__ void gather_each(const element<SIZE>::type* data,
                                            const void* indices,
                                            element<SIZE>::type* target,
                                            const gather_t& gather) {
  typedef element<SIZE>::type E;
  const int each = spread<GATHER_ELEMENTS>();
  I first = (I)blockIdx.x * (I)(blockDim.x * each) + (I)threadIdx.x;
  I count = (I)gather.count;
  place_t<I> places[GATHER_ELEMENTS];
  bool inside[GATHER_ELEMENTS];
  E values[GATHER_ELEMENTS];
#pragma unroll
  for (int k = 0; k < GATHER_ELEMENTS; ++k) {
    I at = first + (I)(k * blockDim.x);
    inside[k] = k < each && at < count;
    places[k] = find_place<I>(gather, inside[k] ? at : 0);
  }
#pragma unroll 1
  for (int i = 0; i < gather.depth; ++i) {
    int64_t index[GATHER_ELEMENTS];
#pragma unroll
    for (int k = 0; k < GATHER_ELEMENTS; ++k)
      index[k] = load_index(gather, indices, places[k].index + i);
#pragma unroll
    for (int k = 0; k < GATHER_ELEMENTS; ++k)
      inside[k] = add_index(gather, i, index[k], places[k].data) && inside[k];
  }
#pragma unroll
  for (int k = 0; k < GATHER_ELEMENTS; ++k)
    values[k] = inside[k] ? data[places[k].data] : E();
#pragma unroll
  for (int k = 0; k < GATHER_ELEMENTS; ++k) {
    I at = first + (I)(k * blockDim.x);
    if (k < each && at < count) target[at] = values[k];
  }
}

#define GATHER_EACH(name, index)                                              \
  extern "C" __global__ void __launch_bounds__(256) name(                     \
      const element<SIZE>::type* data, const void* indices,                   \
      element<SIZE>::type* target, const __grid_constant__ gather_t gather) { \
    turn_t turn;                                                              \
    gather_each<index>(data, indices, target, gather);                        \
  }

GATHER_EACH(gather_elements, int32_t)
GATHER_EACH(gather_elements_large, int64_t)
