// Elements from one type and format to another.
//
//   FROM, TO                  types; elements of equal types are copied
//   FROM_BLOCK, TO_BLOCK      log2 of the channels to a block
//   FROM_LAST, TO_LAST        1: channels last
//   VECTOR                    elements to 16 bytes of the wider type
//   BITS                      1: elements are read as another type
//
// `flat` is for pairs of formats with the same order of elements. `tiled` loads
// a tile of channels by positions into shared memory in the source's order, and
// stores it in the target's.
#include "device/cuda/programs/number.cuh"

enum { BLOCK = 256, TILE = 2048, EACH = TILE / BLOCK, MOST_CHANNELS = 512 };

template <class A, class B>
struct converter {
#if BITS
  static __device__ __forceinline__ B from(A x) {
    union {
      uint64_t bits;
      A from;
      B to;
    } y;
    y.bits = 0;
    y.from = x;
    return as_truth(y.to);
  }
  template <class T>
  static __device__ __forceinline__ T as_truth(T x) {
    return x;
  }
  static __device__ __forceinline__ bool_t as_truth(bool_t x) {
    x.value = x.value != 0;
    return x;
  }
#else
  static __device__ __forceinline__ B from(A x) { return store_as<B>(load(x)); }
#endif
};
template <class A>
struct converter<A, A> {
  static __device__ __forceinline__ A from(A x) { return x; }
};

// ---- The same order --------------------------------------------------------

template <int V>
DEVICE void flat_walk(const FROM* source, TO* target, uint32_t count) {
  uint32_t i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= count) return;
  pack_t<FROM, V> in = load_pack<FROM, V>(source + (int64_t)i * V);
  pack_t<TO, V> out;
#pragma unroll
  for (int e = 0; e < V; ++e) out.v[e] = converter<FROM, TO>::from(in.v[e]);
  store_pack<TO, V>(target + (int64_t)i * V, out);
}

// `count` vectors, and `tail` elements behind them.
extern "C" __global__ void __launch_bounds__(BLOCK)
    flat(const FROM* source, TO* target, uint32_t count, uint32_t tail) {
  turn_t turn;
  flat_walk<VECTOR>(source, target, count);
  if (blockIdx.x != 0 || threadIdx.x >= tail) return;
  int64_t at = (int64_t)count * VECTOR + threadIdx.x;
  target[at] = converter<FROM, TO>::from(source[at]);
}

// For addresses that are not aligned to a vector.
extern "C" __global__ void __launch_bounds__(BLOCK)
    single(const FROM* source, TO* target, uint32_t count) {
  turn_t turn;
  flat_walk<1>(source, target, count);
}

// ---- Another order ---------------------------------------------------------

// The host fills it (convert.c has the same structure).
struct tiles_t {
  uint32_t channels, positions;         // of an image
  uint32_t from_channels, to_channels;  // with padding
  uint32_t channel_tiles, position_tiles;
  // log2 of a tile's extents, TILE elements in all.
  uint32_t tile_channels, tile_positions;
};

// Channel and position of a tile's element number i in a format's order.
template <int BLOCKED, bool LAST>
DEVICE void tile_place(const tiles_t& t, uint32_t i, uint32_t* c, uint32_t* s) {
  if (LAST) {
    *c = i & ((1u << t.tile_channels) - 1);
    *s = i >> t.tile_channels;
  } else {
    uint32_t rest = i >> BLOCKED;
    *s = rest & ((1u << t.tile_positions) - 1);
    *c = (rest >> t.tile_positions) << BLOCKED | (i & ((1u << BLOCKED) - 1));
  }
}

// The offset of an element in its image.
template <int BLOCKED, bool LAST>
DEVICE int64_t image_place(const tiles_t& t, uint32_t padded, uint32_t c,
                           uint32_t s) {
  if (LAST) return (int64_t)s * padded + c;
  int64_t row = (int64_t)(c >> BLOCKED) * t.positions + s;
  return (row << BLOCKED) | (c & ((1u << BLOCKED) - 1));
}

extern "C" __global__ void __launch_bounds__(BLOCK)
    tiled(const FROM* source, TO* target, const tiles_t t) {
  turn_t turn;
  // Padding makes rows begin in different banks.
  enum { PAD = sizeof(TO) >= 4 ? 1 : 4 / sizeof(TO) };
  __shared__ TO tile[TILE + MOST_CHANNELS * PAD];
  uint32_t rest = blockIdx.x / t.position_tiles;
  uint32_t first_s = blockIdx.x % t.position_tiles << t.tile_positions;
  uint32_t first_c = rest % t.channel_tiles << t.tile_channels;
  int64_t image = rest / t.channel_tiles;
  uint32_t width = (1u << t.tile_positions) + PAD, c, s;
  source += image * t.positions * t.from_channels;
  target += image * t.positions * t.to_channels;
  FROM in[EACH];
#pragma unroll
  for (int i = 0; i < EACH; ++i) {
    tile_place<FROM_BLOCK, FROM_LAST>(t, i * BLOCK + threadIdx.x, &c, &s);
    bool inside = first_c + c < t.channels && first_s + s < t.positions;
    in[i] = FROM();
    if (inside)
      in[i] = source[image_place<FROM_BLOCK, FROM_LAST>(
          t, t.from_channels, first_c + c, first_s + s)];
  }
#pragma unroll
  for (int i = 0; i < EACH; ++i) {
    tile_place<FROM_BLOCK, FROM_LAST>(t, i * BLOCK + threadIdx.x, &c, &s);
    tile[c * width + s] = converter<FROM, TO>::from(in[i]);
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < EACH; ++i) {
    tile_place<TO_BLOCK, TO_LAST>(t, i * BLOCK + threadIdx.x, &c, &s);
    if (first_c + c >= t.to_channels || first_s + s >= t.positions) continue;
    target[image_place<TO_BLOCK, TO_LAST>(t, t.to_channels, first_c + c,
                                          first_s + s)] = tile[c * width + s];
  }
}
