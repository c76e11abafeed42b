// Circular padding of the last two axes of [planes, height, width], row-major;
// pad <= height, width. Elements are moved as they are: ITEM is their size in
// bytes, 2 or 4; UNROLL pieces are in flight in each thread.
//
// Rows of the output begin anywhere, so it is made as what it is in memory:
// pieces of 16 bytes, of which nearly all lie inside one row and come from
// neighbours in the source, shifted into place. The few that touch the padding
// are put on a list, which the threads of the block then share out element by
// element. What bounds it is the memory's bandwidth.
#if ITEM == 2
typedef unsigned short element;
#else
typedef unsigned int element;
#endif

// A piece lies in WORDS words, which hold REST more elements on each side at
// most.
enum { THREADS = 256, PER_PIECE = 16 / ITEM };
enum { WORDS = ITEM == 2 ? 5 : 4, REST = WORDS - 4 };

static __device__ int wrap(int i, int extent) {
  return i < 0 ? i + extent : i >= extent ? i - extent : i;
}

// The words around a piece of the source.
static __device__ void load_piece(const element* from, unsigned int* words) {
  const unsigned int* word = (const unsigned int*)((size_t)from & ~(size_t)3);
#pragma unroll
  for (int i = 0; i < WORDS; ++i) words[i] = word[i];
}

static __device__ void store_piece(const element* from, unsigned int* words,
                                   element* to) {
#if ITEM == 2
  unsigned int shift = (size_t)from % 4 * 8;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    words[i] = __funnelshift_r(words[i], words[i + 1], shift);
#endif
  *(uint4*)to = make_uint4(words[0], words[1], words[2], words[3]);
}

// A block makes THREADS * UNROLL pieces; `blocks` of them make a plane:
// 16 * THREADS * UNROLL * blocks >= the bytes of a plane of the output + 16.
extern "C" __global__ void __launch_bounds__(THREADS)
    circ_pad(const element* src, int height, int width, int pad, int blocks,
             element* dst) {
  __shared__ unsigned short rest[THREADS * UNROLL];
  __shared__ int rests;
  if (threadIdx.x == 0) rests = 0;
  __syncthreads();

  int wide = width + 2 * pad, size = (height + 2 * pad) * wide;
  int plane = blockIdx.x / blocks;
  src += (long long)plane * height * width;
  dst += (long long)plane * size;
  // Pieces lie at multiples of 16 bytes: the first one begins before the plane.
  int begin = (blockIdx.x - plane * blocks) * (THREADS * UNROLL * PER_PIECE) -
              (int)((size_t)dst % 16 / ITEM);

  int at = begin + (int)threadIdx.x * PER_PIECE;
  int row = at / wide, column = at - row * wide;
  int rows = THREADS * PER_PIECE / wide;  // from a piece to the thread's next
  int columns = THREADS * PER_PIECE - rows * wide;
  const element* from[UNROLL];
  unsigned int words[UNROLL][5];
#pragma unroll
  for (int i = 0; i < UNROLL; ++i) {
    int x = column - pad;
    bool inside = x >= REST && x + PER_PIECE + REST <= width && at < size;
    from[i] = src + wrap(row - pad, height) * width + x;
    if (inside) {
      load_piece(from[i], words[i]);
    } else {
      from[i] = 0;
      if (at < size) rest[atomicAdd(&rests, 1)] = threadIdx.x + i * THREADS;
    }
    at += THREADS * PER_PIECE;
    row += rows;
    column += columns;
    if (column >= wide) {
      column -= wide;
      ++row;
    }
  }
  at = begin + (int)threadIdx.x * PER_PIECE;
#pragma unroll
  for (int i = 0; i < UNROLL; ++i) {
    if (from[i])
      store_piece(from[i], words[i], dst + at + i * THREADS * PER_PIECE);
  }

  __syncthreads();
  for (int i = threadIdx.x; i < rests * PER_PIECE; i += THREADS) {
    at = begin + rest[i / PER_PIECE] * PER_PIECE + i % PER_PIECE;
    if (at < 0 || at >= size) continue;
    row = at / wide;
    dst[at] = src[wrap(row - pad, height) * width +
                  wrap(at - row * wide - pad, width)];
  }
}
