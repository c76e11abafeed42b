// Scatters updates to the positions that indices give (-DELEMENT; -DREDUCTION:
// 0 replaces, 1 adds, 2 multiplies, 3 takes the minimum, 4 the maximum). One
// thread per element of the updates; bound by the bytes of the updates and of
// the data's sectors that they touch. The order of updates to the same element
// is undefined.
#include "device/cuda/programs/number.cuh"

#include "device/cuda/movement/scatter_params.h"

typedef ELEMENT T;

#if REDUCTION != 0

// ---- Reductions: a loop of compare and swap on the element's word

DEVICE float join(float a, float b) {
  if (REDUCTION == 1) return a + b;
  if (REDUCTION == 2) return a * b;
  if (REDUCTION == 3) return b < a || b != b ? b : a;
  return b > a || b != b ? b : a;
}
DEVICE int64_t join(int64_t a, int64_t b) {
  if (REDUCTION == 1) return (int64_t)((uint64_t)a + (uint64_t)b);
  if (REDUCTION == 2) return (int64_t)((uint64_t)a * (uint64_t)b);
  if (REDUCTION == 3) return b < a ? b : a;
  return b > a ? b : a;
}

DEVICE float join_elements(float a, float b) { return join(a, b); }
DEVICE half_t join_elements(half_t a, half_t b) {
  return from_float<half_t>(join(to_float(a), to_float(b)));
}
DEVICE bf16_t join_elements(bf16_t a, bf16_t b) {
  return from_float<bf16_t>(join(to_float(a), to_float(b)));
}
template <class I>
DEVICE I join_elements(I a, I b) {
  return (I)join((int64_t)a, (int64_t)b);
}

// The smallest word for compare and swap.
template <int BYTES>
struct word {
  typedef uint32_t type;
};
template <>
struct word<8> {
  typedef uint64_t type;
};

// Reads and replaces an element within its word; shift in bits.
DEVICE T take(word<sizeof(T)>::type bits, int shift) {
  union {
    word<sizeof(T)>::type bits;
    T x;
  } both;
  both.bits = bits >> shift;
  return both.x;
}
DEVICE word<sizeof(T)>::type put(word<sizeof(T)>::type bits, int shift, T x) {
  typedef word<sizeof(T)>::type word_t;
  union {
    word_t bits;
    T x;
  } both;
  both.bits = 0;
  both.x = x;
  word_t all = (word_t) ~(word_t)0 >> (8 * (sizeof(word_t) - sizeof(T)));
  return (bits & ~(word_t)(all << shift)) | (word_t)(both.bits << shift);
}

DEVICE void reduce_into(T* to, T x) {
  typedef word<sizeof(T)>::type word_t;
  uint64_t rest = (uint64_t)to % sizeof(word_t);
  word_t* words = (word_t*)((char*)to - rest);
  int shift = (int)rest * 8;
  word_t seen = *(volatile word_t*)words, expected;
  do {
    expected = seen;
    word_t wanted = put(seen, shift, join_elements(take(seen, shift), x));
    seen = atomicCAS(words, expected, wanted);
  } while (seen != expected);
}

#endif

// ---- The kernel

extern "C" __global__ void __launch_bounds__(256)
    scatter(const void* indices, const T* updates, T* y,
            const __grid_constant__ scatter_t p) {
  turn_t turn;
  int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= p.count) return;
  int64_t row = divide(at, p.row), rest = row;
  int64_t offset = at - row * p.row.divisor;
#pragma unroll 1
  for (int i = p.rank - 1; i >= 0; --i) {
    int64_t next = divide(rest, p.dims[i]);
    offset += (rest - next * p.dims[i].divisor) * p.steps[i];
    rest = next;
  }
#pragma unroll 1
  for (int i = 0; i < p.depth; ++i) {
    int64_t k = row * p.depth + i;
    int64_t index = p.is_long ? ((const int64_t*)indices)[k]
                              : (int64_t)((const int32_t*)indices)[k];
    if (index < 0) index += p.extent[i];
    if (index < 0 || index >= p.extent[i]) return;
    offset += index * p.stride[i];
  }
#if REDUCTION == 0
  y[offset] = updates[at];
#else
  reduce_into(y + offset, updates[at]);
#endif
}
