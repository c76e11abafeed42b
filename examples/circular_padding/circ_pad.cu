// Circular padding of the last two axes of [planes, height, width], row-major;
// pad <= height, width. Elements are moved as they are: ITEM is their size in
// bytes, 2 or 4; UNROLL words are in flight in each lane.
//
// A warp makes a row of the output, so that both sides are coalesced; what bounds
// it is the memory's bandwidth.
#if ITEM == 2
typedef unsigned short element;
#else
typedef unsigned int element;
#endif

static __device__ int wrap(int i, int extent) {
  return i < 0 ? i + extent : i >= extent ? i - extent : i;
}

// A word of the output that begins with column `at` of the source.
template <typename word>
static __device__ word gather(const element* row, int at, int width) {
  word value = 0;
  for (int i = 0; i < (int)(sizeof(word) / ITEM); ++i) {
    word part = __ldg(row + wrap(at + i, width));
    value |= part << (8 * ITEM * i);
  }
  return value;
}

template <typename word>
static __device__ void make_row(const element* row, word* out, int words,
                                int width, int pad) {
  const int per = sizeof(word) / ITEM;
  for (int begin = threadIdx.x % 32; begin < words; begin += 32 * UNROLL) {
    word values[UNROLL];
#pragma unroll
    for (int i = 0; i < UNROLL; ++i) {
      int at = begin + 32 * i;
      if (at < words) values[i] = gather<word>(row, at * per - pad, width);
    }
#pragma unroll
    for (int i = 0; i < UNROLL; ++i) {
      int at = begin + 32 * i;
      if (at < words) __stcs(out + at, values[i]);
    }
  }
}

// blockDim.x / 32 rows for each block; `rows`: of the output, in all planes.
extern "C" __global__ void circ_pad(const element* src, int height, int width,
                                    int pad, int rows, element* dst) {
  int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  if (row >= rows) return;
  int tall = height + 2 * pad, wide = width + 2 * pad;
  int from = wrap(row % tall - pad, height);
  src += ((long long)(row / tall) * height + from) * width;
  dst += (long long)row * wide;
  if (wide * ITEM % 4 == 0)
    make_row(src, (unsigned int*)dst, wide * ITEM / 4, width, pad);
  else
    make_row(src, dst, wide, width, pad);
}
