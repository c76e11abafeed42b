// Tensors one after the other, of elements of SIZE bytes (-DSIZE=1, 2, 4, 8).
// Bound by bytes: each element is read and written once.
#include "pieces.cuh"

#include "gathers.cuh"

template <int BYTES, class I>
struct concatenation_source {
  typedef typename element<BYTES>::type E;
  enum { SKIPS = 1 };
  const concatenation_t& table;

  __device__ __forceinline__ void fill(E& value) const {}

  __device__ __forceinline__ run_t<E, I> operator()(I at) const {
    I row = divide(at, table.row), length = (I)table.row.divisor;
    I in_row = at - row * length;
    run_t<E, I> run = {(const E*)PIECES_SKIPPED, 1, length - in_row, false};
    if (in_row < (I)table.begins[0]) {
      run.left = (I)table.begins[0] - in_row;
      return run;
    }
    int input = 0;
    for (int half = table.half; half > 0; half >>= 1) {
      int next = input + half;
      if (next < table.input_count && in_row >= (I)table.begins[next])
        input = next;
    }
    I begin = (I)table.begins[input], end = (I)table.begins[input + 1];
    if (in_row >= end) return run;
    I offset = row * (end - begin) + in_row - begin;
    run.source = (const E*)table.inputs[input] + offset;
    run.is_roomy =
        offset >= 4 && offset + 20 <= (I)table.rows * (end - begin);
    run.left = end - in_row;
    return run;
  }
};

#define CONCATENATION_KERNEL(name, bytes, pieces, index)                   \
  extern "C" __global__ void __launch_bounds__(256)                        \
      name(element<bytes>::type* target,                                   \
           const __grid_constant__ concatenation_t table) {                \
    concatenation_source<bytes, index> locate = {table};                   \
    write_pieces<bytes, pieces, index>(locate, target, (index)table.count); \
  }

CONCATENATION_KERNEL(concatenation_narrow, SIZE, 2, int32_t)
CONCATENATION_KERNEL(concatenation_wide, 16, 4, int32_t)
CONCATENATION_KERNEL(concatenation_narrow_large, SIZE, 1, int64_t)
CONCATENATION_KERNEL(concatenation_wide_large, 16, 1, int64_t)
