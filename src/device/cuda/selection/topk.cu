// The k best elements of each row and their indices (-DELEMENT). Elements are
// ordered by value and then by index, so no two are equal. For k = 1 a row is
// reduced. Short rows are sorted in shared memory. In longer ones the k-th
// element is found by radix selection, and the elements up to it are sorted. If
// k exceeds shared memory, rows are sorted in the workspace. Bound by the bytes
// of the input if k is small, by latency if rows are few.
#include "device/cuda/programs/number.cuh"

#include "device/cuda/selection/topk_params.h"

typedef ELEMENT T;

// ---- The order

#if KEY_BITS == 64
typedef uint64_t key_t;
#else
typedef uint32_t key_t;
#endif
enum { KEY_BYTES = sizeof(key_t), DIGITS = KEY_BYTES + 4 };

DEVICE uint32_t key_of(float x) {
  if (x != x) return 0xffffffffu;
  uint32_t bits = bits_of(x + 0.0f);  // -0 is 0
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}
DEVICE uint32_t key_of(half_t x) { return key_of(to_float(x)); }
DEVICE uint32_t key_of(bf16_t x) { return key_of(to_float(x)); }
DEVICE uint32_t key_of(int32_t x) { return (uint32_t)x ^ 0x80000000u; }
DEVICE uint32_t key_of(int8_t x) { return key_of((int32_t)x); }
DEVICE uint32_t key_of(uint8_t x) { return key_of((int32_t)x); }
DEVICE uint64_t key_of(int64_t x) {
  return (uint64_t)x ^ 0x8000000000000000ull;
}

// Larger keys come first, then lower indices. Index ~0 stands for no element
// and comes last.
struct item_t {
  key_t key;
  uint32_t index;
};
DEVICE bool is_before(const item_t& a, const item_t& b) {
  return a.key != b.key ? a.key > b.key : a.index < b.index;
}
DEVICE item_t no_item() {
  item_t item = {0, 0xffffffffu};
  return item;
}

// ---- Rows

struct row_t {
  int64_t source, target;  // first elements
};

DEVICE row_t find_row(const topk_t& p, int64_t row) {
  int64_t outer = divide(row, p.inner);
  int64_t at = row - outer * p.inner.divisor;
  row_t found = {outer * p.count * p.inner.divisor + at,
                 outer * p.k * p.inner.divisor + at};
  return found;
}

DEVICE item_t load_item(const topk_t& p, const T* x, const row_t& row,
                        int64_t i) {
  key_t key = key_of(x[row.source + i * p.inner.divisor]);
  item_t item = {p.smallest ? (key_t)~key : key, (uint32_t)i};
  return item;
}

DEVICE void store_item(const topk_t& p, const T* x, const row_t& row,
                       int64_t place, const item_t& item, T* values,
                       void* indices) {
  int64_t to = row.target + place * p.inner.divisor;
  if (values)
    values[to] = x[row.source + (int64_t)item.index * p.inner.divisor];
  if (!indices) return;
  if (p.is_long)
    ((int64_t*)indices)[to] = item.index;
  else
    ((int32_t*)indices)[to] = (int32_t)item.index;
}

// ---- k = 1

DEVICE item_t shuffle_item(const item_t& item, int flip) {
  item_t other;
  other.index = __shfl_xor_sync(0xffffffffu, item.index, flip);
#if KEY_BITS == 64
  uint32_t low = __shfl_xor_sync(0xffffffffu, (uint32_t)item.key, flip);
  uint32_t high =
      __shfl_xor_sync(0xffffffffu, (uint32_t)(item.key >> 32), flip);
  other.key = (uint64_t)high << 32 | low;
#else
  other.key = __shfl_xor_sync(0xffffffffu, item.key, flip);
#endif
  return other;
}

// One block per row.
extern "C" __global__ void __launch_bounds__(256)
    topk_first(const T* x, T* values, void* indices,
               const __grid_constant__ topk_t p) {
  turn_t turn;
  __shared__ item_t warps[8];
  for (int64_t r = blockIdx.x; r < p.rows; r += gridDim.x) {
    row_t row = find_row(p, r);
    item_t best = no_item();
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < p.count; i += blockDim.x) {
      item_t item = load_item(p, x, row, i);
      if (is_before(item, best)) best = item;
    }
    for (int flip = 16; flip > 0; flip >>= 1) {
      item_t other = shuffle_item(best, flip);
      if (is_before(other, best)) best = other;
    }
    if ((threadIdx.x & 31) == 0) warps[threadIdx.x >> 5] = best;
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int i = 1; i < 8; ++i)
        if (is_before(warps[i], best)) best = warps[i];
      store_item(p, x, row, 0, best, values, indices);
    }
    __syncthreads();
  }
}

// One thread per row, for rows that are neighbours in memory.
extern "C" __global__ void __launch_bounds__(256)
    topk_first_columns(const T* x, T* values, void* indices,
                       const __grid_constant__ topk_t p) {
  turn_t turn;
  int64_t r = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= p.rows) return;
  row_t row = find_row(p, r);
  item_t best = no_item();
#pragma unroll 4
  for (int64_t i = 0; i < p.count; ++i) {
    item_t item = load_item(p, x, row, i);
    if (is_before(item, best)) best = item;
  }
  store_item(p, x, row, 0, best, values, indices);
}

// ---- Sorting

// Bitonic sort; count is a power of two. All threads of the block must call it.
DEVICE void sort_items(item_t* items, int64_t count) {
  for (int64_t size = 2; size <= count; size *= 2) {
    for (int64_t step = size / 2; step > 0; step /= 2) {
      __syncthreads();
      for (int64_t i = threadIdx.x; i < count / 2; i += blockDim.x) {
        int64_t low = i / step * step * 2 + i % step, high = low + step;
        bool forward = (low & size) == 0;
        item_t a = items[low], b = items[high];
        if (is_before(b, a) != forward) continue;
        items[low] = b;
        items[high] = a;
      }
    }
  }
  __syncthreads();
}

DEVICE void sort_row(const topk_t& p, const T* x, const row_t& row,
                     item_t* items, T* values, void* indices) {
  for (int64_t i = threadIdx.x; i < p.padded; i += blockDim.x)
    items[i] = i < p.count ? load_item(p, x, row, i) : no_item();
  sort_items(items, p.padded);
  for (int64_t i = threadIdx.x; i < p.k; i += blockDim.x)
    store_item(p, x, row, i, items[i], values, indices);
  __syncthreads();
}

enum { SHARED_ITEMS = 2048 };

extern "C" __global__ void __launch_bounds__(512)
    topk_sort(const T* x, T* values, void* indices,
              const __grid_constant__ topk_t p) {
  turn_t turn;
  __shared__ item_t items[SHARED_ITEMS];
  for (int64_t r = blockIdx.x; r < p.rows; r += gridDim.x)
    sort_row(p, x, find_row(p, r), items, values, indices);
}

// `items` has room for p.padded items per row.
extern "C" __global__ void __launch_bounds__(1024)
    topk_sort_large(const T* x, item_t* items, T* values, void* indices,
                    const __grid_constant__ topk_t p) {
  turn_t turn;
  for (int64_t r = blockIdx.x; r < p.rows; r += gridDim.x)
    sort_row(p, x, find_row(p, r), items + r * p.padded, values, indices);
}

// ---- Searching

// Digit `digit` (8 bits, the highest is 0) of an item's place in the order.
// Items that come earlier have larger digits.
DEVICE uint32_t digit_of(const item_t& item, int digit) {
  if (digit < KEY_BYTES)
    return (uint32_t)(item.key >> (8 * (KEY_BYTES - 1 - digit))) & 255u;
  return ~item.index >> (8 * (DIGITS - 1 - digit)) & 255u;
}

// Whether the item agrees with `last` in all digits above `digit`.
DEVICE bool has_digits(const item_t& item, const item_t& last, int digit) {
  if (digit <= KEY_BYTES) {
    int bits = 8 * (KEY_BYTES - digit);
    return bits >= 8 * KEY_BYTES || item.key >> bits == last.key >> bits;
  }
  int bits = 8 * (DIGITS - digit);
  return item.key == last.key && item.index >> bits == last.index >> bits;
}

DEVICE void set_digit(item_t& last, int digit, uint32_t value) {
  if (digit < KEY_BYTES)
    last.key |= (key_t)value << (8 * (KEY_BYTES - 1 - digit));
  else
    last.index |= (255u - value) << (8 * (DIGITS - 1 - digit));
}

// The k-th item of a row, by radix selection.
DEVICE item_t find_last(const topk_t& p, const T* x, const row_t& row) {
  __shared__ uint32_t counts[256];
  __shared__ uint32_t found, left_after;
  item_t last = {0, 0};
  uint32_t left = (uint32_t)p.k;
  for (int digit = 0; digit < DIGITS; ++digit) {
    for (int i = threadIdx.x; i < 256; i += blockDim.x) counts[i] = 0;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < p.count; i += blockDim.x) {
      item_t item = load_item(p, x, row, i);
      if (has_digits(item, last, digit))
        atomicAdd(&counts[digit_of(item, digit)], 1u);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      uint32_t value = 255, rest = left;
      while (counts[value] < rest) rest -= counts[value--];
      found = value;
      left_after = rest;
    }
    __syncthreads();
    set_digit(last, digit, found);
    left = left_after;
    __syncthreads();
  }
  return last;
}

// For k up to SHARED_ITEMS.
extern "C" __global__ void __launch_bounds__(1024)
    topk_select(const T* x, T* values, void* indices,
                const __grid_constant__ topk_t p) {
  turn_t turn;
  __shared__ item_t items[SHARED_ITEMS];
  __shared__ uint32_t filled;
  for (int64_t r = blockIdx.x; r < p.rows; r += gridDim.x) {
    row_t row = find_row(p, r);
    item_t last = find_last(p, x, row);
    if (threadIdx.x == 0) filled = 0;
    for (int64_t i = threadIdx.x; i < p.padded; i += blockDim.x)
      items[i] = no_item();
    __syncthreads();
    for (int64_t i = threadIdx.x; i < p.count; i += blockDim.x) {
      item_t item = load_item(p, x, row, i);
      if (!is_before(last, item)) items[atomicAdd(&filled, 1u)] = item;
    }
    sort_items(items, p.padded);
    for (int64_t i = threadIdx.x; i < p.k; i += blockDim.x)
      store_item(p, x, row, i, items[i], values, indices);
    __syncthreads();
  }
}
