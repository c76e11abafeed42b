// Writing a dense output in pieces of 16 bytes, wherever its elements come
// from.
//
// A locator says for an element of the output where it and those behind it are:
// a run. A piece that lies in one run of neighbours is loaded by the widest
// loads that the source's alignment allows (a source that is not aligned to
// words is shifted into place); other pieces are put together element by
// element. Nothing but elements of the source is read.
#pragma once

#include "index.cuh"
#include "number.cuh"

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

// `left` elements, `step` elements apart. A source of NULL: filled. Roomy: the
// tensor has 4 elements before it and 20 from it on.
template <class E, class I>
struct run_t {
  const E* source;
  int64_t step;
  I left;
  bool is_roomy;
};
// A source that stands for elements that are not written.
#define PIECES_SKIPPED 1

__device__ __forceinline__ uint32_t shifted(uint32_t low, uint32_t high,
                                            uint32_t bits) {
  return (uint32_t)(((uint64_t)high << 32 | low) >> bits);
}

// Loads in flight: words that are shifted when they are stored.
struct piece_t {
  uint32_t w[5];
  uint32_t shift;    // bits
  uint32_t written;  // a bit for each element
};

__device__ __forceinline__ void put_words(piece_t& piece, int first,
                                          uint64_t pair) {
  piece.w[first] = (uint32_t)pair;
  piece.w[first + 1] = (uint32_t)(pair >> 32);
}

// A whole piece from `address`, which is aligned to an element; `roomy`: the
// source has 4 bytes more before it and behind it. False: not possible.
template <int BYTES>
__device__ __forceinline__ bool load_piece(const char* address, bool roomy,
                                           piece_t& piece) {
  uint32_t rest = (uint32_t)(uint64_t)address & 15;
  if (rest == 0) {
    words_t all = *(const words_t*)address;
    piece.w[0] = all.w[0], piece.w[1] = all.w[1];
    piece.w[2] = all.w[2], piece.w[3] = all.w[3];
  } else if (BYTES >= 8 || (rest & 7) == 0) {
    put_words(piece, 0, *(const uint64_t*)address);
    put_words(piece, 2, *(const uint64_t*)(address + 8));
  } else if (BYTES == 4 || (rest & 3) == 0) {
    const uint32_t* words = (const uint32_t*)address;
    piece.w[0] = words[0], piece.w[1] = words[1];
    piece.w[2] = words[2], piece.w[3] = words[3];
  } else if (roomy) {
    const uint32_t* words = (const uint32_t*)(address - (rest & 3));
    piece.w[0] = words[0], piece.w[1] = words[1];
    piece.w[2] = words[2], piece.w[3] = words[3];
    piece.w[4] = words[4];
    piece.shift = (rest & 3) * 8;
  } else {
    return false;
  }
  return true;
}

// ---- Element by element

template <int BYTES>
struct group {
  // Elements that are loaded together, and words that they make.
  enum {
    ELEMENTS = BYTES <= 4 ? 4 : 16 / BYTES,
    WORDS = BYTES <= 4 ? BYTES : 4
  };
};

__device__ __forceinline__ void put_element(uint32_t* words, int at,
                                            uint8_t x) {
  words[0] |= (uint32_t)x << at * 8;
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

// The next group of elements, from `at` on, goes behind those in the piece.
template <int BYTES, class I, class L>
__device__ __forceinline__ void load_group(
    const L& locate, I at, I count, int first,
    run_t<typename element<BYTES>::type, I>& run, piece_t& piece) {
  typedef typename element<BYTES>::type E;
  enum { N = group<BYTES>::ELEMENTS, W = group<BYTES>::WORDS };
  const E* sources[N];
#pragma unroll
  for (int k = 0; k < N; ++k)
    sources[k] = 0;
  // One copy of the locator's code: the sources move up.
#pragma unroll 1
  for (int k = 0; k < N; ++k) {
    const E* source = 0;
    if (at + k >= 0 && at + k < count) {
      if (run.left <= 0) run = locate(at + k);
      --run.left;
      source = run.source;
      bool skipped = L::SKIPS && source == (const E*)PIECES_SKIPPED;
      if (!skipped) piece.written |= 1u << (first + k);
      if (source && !skipped) run.source += run.step;
    }
#pragma unroll
    for (int i = 0; i + 1 < N; ++i)
      sources[i] = sources[i + 1];
    sources[N - 1] = source;
  }
  uint32_t words[W];
#pragma unroll
  for (int i = 0; i < W; ++i)
    words[i] = 0;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    E value = E();
    if (!sources[k]) {
      locate.fill(value);
    } else if (!L::SKIPS || sources[k] != (const E*)PIECES_SKIPPED) {
      value = *sources[k];
    }
    put_element(words, k, value);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
    piece.w[i] = i + W < 4 ? piece.w[i + W] : words[i + W - 4];
}

// ---- Pieces

__device__ __forceinline__ void fill_piece(uint8_t x, piece_t& piece) {
  piece.w[0] = piece.w[1] = piece.w[2] = piece.w[3] = x * 0x01010101u;
}
__device__ __forceinline__ void fill_piece(uint16_t x, piece_t& piece) {
  piece.w[0] = piece.w[1] = piece.w[2] = piece.w[3] = x * 0x00010001u;
}
__device__ __forceinline__ void fill_piece(uint32_t x, piece_t& piece) {
  piece.w[0] = piece.w[1] = piece.w[2] = piece.w[3] = x;
}
__device__ __forceinline__ void fill_piece(uint64_t x, piece_t& piece) {
  put_words(piece, 0, x);
  put_words(piece, 2, x);
}
__device__ __forceinline__ void fill_piece(const words_t& x, piece_t& piece) {
  put_element(piece.w, 0, x);
}

// A piece that lies in one run; false: it does not.
template <int BYTES, class I, class L>
__device__ __forceinline__ bool fetch_run(const L& locate, I at, I count,
                                          piece_t& piece) {
  typedef typename element<BYTES>::type E;
  enum { N = 16 / BYTES };
  piece.w[4] = 0;
  piece.shift = 0;
  piece.written = 0;
  if (at < 0 || at + N > count) return false;
  run_t<E, I> run = locate(at);
  if (run.left < N) return false;
  if (L::SKIPS && run.source == (const E*)PIECES_SKIPPED) return true;
  piece.written = (1u << N) - 1;
  if (!run.source) {
    E value = E();
    locate.fill(value);
    fill_piece(value, piece);
    return true;
  }
  if (N > 1 && run.step != 1) return false;
  return load_piece<BYTES>((const char*)run.source, run.is_roomy, piece);
}

template <int BYTES, class I, class L>
__device__ __forceinline__ void fetch_elements(const L& locate, I at, I count,
                                               piece_t& piece) {
  run_t<typename element<BYTES>::type, I> run = {0, 0, 0, false};
  piece.w[0] = piece.w[1] = piece.w[2] = piece.w[3] = piece.w[4] = 0;
  piece.shift = piece.written = 0;
#pragma unroll 1
  for (int k = 0; k < 16 / BYTES; k += group<BYTES>::ELEMENTS)
    load_group<BYTES>(locate, at + k, count, k, run, piece);
}

template <int BYTES>
__device__ __forceinline__ typename element<BYTES>::type get_element(
    const words_t& words, int at);
template <>
__device__ __forceinline__ uint8_t get_element<1>(const words_t& words,
                                                  int at) {
  return (uint8_t)(words.w[at >> 2] >> (at & 3) * 8);
}
template <>
__device__ __forceinline__ uint16_t get_element<2>(const words_t& words,
                                                   int at) {
  return (uint16_t)(words.w[at >> 1] >> (at & 1) * 16);
}
template <>
__device__ __forceinline__ uint32_t get_element<4>(const words_t& words,
                                                   int at) {
  return words.w[at];
}
template <>
__device__ __forceinline__ uint64_t get_element<8>(const words_t& words,
                                                   int at) {
  return (uint64_t)words.w[2 * at + 1] << 32 | words.w[2 * at];
}
template <>
__device__ __forceinline__ words_t get_element<16>(const words_t& words,
                                                   int at) {
  return words;
}

template <int BYTES, class I>
__device__ __forceinline__ void store_piece(
    typename element<BYTES>::type* target, I at, const piece_t& piece) {
  enum { N = 16 / BYTES };
  words_t words;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    words.w[i] = BYTES >= 4
                     ? piece.w[i]
                     : shifted(piece.w[i], piece.w[i + 1], piece.shift);
  }
  if (piece.written == (1u << N) - 1) {
    *(words_t*)(target + at) = words;
    return;
  }
#pragma unroll
  for (int k = 0; k < N; ++k) {
    if (piece.written >> k & 1) target[at + k] = get_element<BYTES>(words, k);
  }
}

// Each thread writes `PIECES` pieces. The first one begins before the target
// where that is not aligned to 16 bytes. `count`: elements of the target.
template <int BYTES, int PIECES, class I, class L>
__device__ __forceinline__ void write_pieces(
    const L& locate, typename element<BYTES>::type* target, I count) {
  enum { N = 16 / BYTES };
  I head = (I)((uint64_t)target % 16 / BYTES);
  I first = (I)blockIdx.x * (I)(blockDim.x * PIECES) + (I)threadIdx.x;
  uint32_t mixed = 0;
  piece_t pieces[PIECES];
#pragma unroll
  for (int i = 0; i < PIECES; ++i) {
    I at = (first + (I)(i * blockDim.x)) * N - head;
    pieces[i].written = 0;
    if (at < count && !fetch_run<BYTES>(locate, at, count, pieces[i])) {
      pieces[i].written = 0;
      mixed |= 1u << i;
    }
  }
#pragma unroll
  for (int i = 0; i < PIECES; ++i) {
    I at = (first + (I)(i * blockDim.x)) * N - head;
    if (pieces[i].written) store_piece<BYTES>(target, at, pieces[i]);
  }
  // (A piece of one element is never mixed.)
#pragma unroll 1
  for (int i = 0; N > 1 && mixed >> i; ++i) {
    I at = (first + (I)(i * blockDim.x)) * N - head;
    if (!(mixed >> i & 1)) continue;
    fetch_elements<BYTES>(locate, at, count, pieces[0]);
    store_piece<BYTES>(target, at, pieces[0]);
  }
}
