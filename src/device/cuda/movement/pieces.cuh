// Writes a dense output in pieces of 16 bytes. Its elements come from anywhere.
//
// A locator gives the source addresses of output elements:
//   SKIPS           1: this launch leaves some elements unwritten
//   run(at, from)   true: the piece that begins with element `at` is contiguous
//                   in the source, from `from` on
//   place(at)       the address of one element; NULL: it is the fill value
//   fill(value)     the fill value
// Contiguous pieces are loaded as words and shifted into place. The other
// pieces of a block are put on a list; its threads then share their elements.
// The words have up to 3 bytes before and behind a piece, and `run` returns
// true only if these bytes can be read, too.
#pragma once

#include "device/cuda/programs/index.h"
#include "device/cuda/programs/number.cuh"

struct __align__(16) words_t {
  uint32_t w[4];
};

template <int BYTES>
struct element;
template <>
struct element<1> {
  typedef uint8_t type;
};
template <>
struct element<2> {
  typedef uint16_t type;
};
template <>
struct element<4> {
  typedef uint32_t type;
};
template <>
struct element<8> {
  typedef uint64_t type;
};
template <>
struct element<16> {
  typedef words_t type;
};

// The address that stands for elements that stay unwritten.
#define PIECES_SKIPPED 1

// How many other elements share an element's word.
template <int BYTES>
struct beside {
  enum { ELEMENTS = BYTES < 4 ? 4 / BYTES - 1 : 0 };
};
// Whether the words of the piece from element `at` on lie inside `size`
// elements.
template <int BYTES, class I>
__device__ __forceinline__ bool has_room(I at, I size) {
  enum { MORE = beside<BYTES>::ELEMENTS };
  return BYTES >= 4 || (at >= MORE && at + (16 / BYTES + MORE) <= size);
}

// ---- Elements in words

__device__ __forceinline__ void put_element(uint32_t* words, int at,
                                            uint8_t x) {
  words[at >> 2] |= (uint32_t)x << (at & 3) * 8;
}
__device__ __forceinline__ void put_element(uint32_t* words, int at,
                                            uint16_t x) {
  words[at >> 1] |= (uint32_t)x << (at & 1) * 16;
}
__device__ __forceinline__ void put_element(uint32_t* words, int at,
                                            uint32_t x) {
  words[at] = x;
}
__device__ __forceinline__ void put_element(uint32_t* words, int at,
                                            uint64_t x) {
  words[2 * at] = (uint32_t)x;
  words[2 * at + 1] = (uint32_t)(x >> 32);
}
__device__ __forceinline__ void put_element(uint32_t* words, int at,
                                            const words_t& x) {
  words[0] = x.w[0], words[1] = x.w[1], words[2] = x.w[2], words[3] = x.w[3];
}

// 16 bytes of one value.
template <class E>
__device__ __forceinline__ void repeat(const E& x, uint32_t* words) {
  words[0] = words[1] = words[2] = words[3] = 0;
#pragma unroll
  for (int i = 0; i < (int)(16 / sizeof(E)); ++i) put_element(words, i, x);
}

// ---- Pieces

// A piece as loaded: words, which store_piece shifts into place.
struct piece_t {
  uint32_t w[5];
  uint32_t shift;  // bits
};

// `from` is aligned to an element.
template <int BYTES>
__device__ __forceinline__ void load_piece(const char* from, piece_t& piece) {
  if (BYTES == 16) {
    words_t all = *(const words_t*)from;
    piece.w[0] = all.w[0], piece.w[1] = all.w[1];
    piece.w[2] = all.w[2], piece.w[3] = all.w[3];
  } else if (BYTES == 8) {
    put_element(piece.w, 0, ((const uint64_t*)from)[0]);
    put_element(piece.w, 1, ((const uint64_t*)from)[1]);
  } else {
    uint32_t rest = (uint32_t)(uint64_t)from & 3;
    const uint32_t* words = (const uint32_t*)(from - rest);
    piece.w[0] = words[0], piece.w[1] = words[1];
    piece.w[2] = words[2], piece.w[3] = words[3];
    if (BYTES < 4) {
      piece.w[4] = rest ? words[4] : 0;
      piece.shift = rest * 8;
    }
  }
}

template <int BYTES>
__device__ __forceinline__ void store_piece(const piece_t& piece, void* to) {
  words_t words;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    words.w[i] = BYTES < 4
                     ? __funnelshift_r(piece.w[i], piece.w[i + 1], piece.shift)
                     : piece.w[i];
  *(words_t*)to = words;
}

enum { PIECES_THREADS = 256 };  // at most

// What each thread of a block writes, of at most MOST: blocks of one warp are
// those of small targets, whose elements must be spread over many blocks.
template <int MOST>
__device__ __forceinline__ int spread() {
  return blockDim.x > 32 ? MOST : 1;
}

// Each thread writes `PIECES` pieces, or one (spread). A target that is not
// aligned to 16 bytes begins inside the first piece. `count`: elements of the
// target. All threads of the block must call it.
template <int BYTES, int PIECES, class I, class L>
__device__ __forceinline__ void write_pieces(
    const L& locate, typename element<BYTES>::type* target, I count) {
  typedef typename element<BYTES>::type E;
  enum { N = 16 / BYTES };
  __shared__ uint16_t rest[N > 1 ? PIECES_THREADS * PIECES : 1];
  __shared__ uint32_t rests;
  if (N > 1) {
    if (threadIdx.x == 0) rests = 0;
    __syncthreads();
  }
  const int each = spread<PIECES>();
  I begin = (I)blockIdx.x * (I)(blockDim.x * each * N) -
            (I)((uint64_t)target % 16 / BYTES);
  piece_t pieces[PIECES];
  uint32_t whole = 0;
#pragma unroll
  for (int i = 0; i < PIECES; ++i) {
    uint32_t number = threadIdx.x + i * blockDim.x;
    I at = begin + (I)(number * N);
    const E* from = 0;
    if (i >= each || at >= count) continue;
    bool found = N == 1 || (at >= 0 && at + N <= count && locate.run(at, from));
    if (N == 1) from = locate.place(at);
    if (found) {
      if (L::SKIPS && from == (const E*)PIECES_SKIPPED) continue;
      whole |= 1u << i;
      if (from) {
        load_piece<BYTES>((const char*)from, pieces[i]);
      } else {
        E value = E();
        locate.fill(value);
        repeat(value, pieces[i].w);
        pieces[i].w[4] = pieces[i].shift = 0;
      }
    } else {
      rest[atomicAdd(&rests, 1u)] = (uint16_t)number;
    }
  }
#pragma unroll
  for (int i = 0; i < PIECES; ++i) {
    I at = begin + (I)((threadIdx.x + i * blockDim.x) * N);
    if (whole >> i & 1) store_piece<BYTES>(pieces[i], target + at);
  }
  if (N == 1) return;
  __syncthreads();
#pragma unroll 2
  for (uint32_t i = threadIdx.x; i < rests * N; i += blockDim.x) {
    I at = begin + (I)(rest[i / N] * N + i % N);
    if (at < 0 || at >= count) continue;
    const E* from = locate.place(at);
    if (L::SKIPS && from == (const E*)PIECES_SKIPPED) continue;
    E value = E();
    if (from) {
      value = *from;
    } else {
      locate.fill(value);
    }
    target[at] = value;
  }
}

// Defines a kernel that writes a target with the locator `source`, made of the
// data, the indices `where` and the parameters, whose `count` is the target's.
#define WRITE_PIECES(name, source, parameters, bytes, pieces, index)        \
  extern "C" __global__ void __launch_bounds__(PIECES_THREADS) name(        \
      const element<bytes>::type* data, const void* where,                  \
      element<bytes>::type* target, const __grid_constant__ parameters p) { \
    turn_t turn;                                                            \
    source<bytes, index> locate = {data, where, p};                         \
    write_pieces<bytes, pieces, index>(locate, target, (index)p.count);     \
  }
