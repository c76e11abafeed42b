// Strided moves, slices with padding and transposes of elements of SIZE bytes
// (-DSIZE=1, 2, 4, 8); -DTRANSPOSES=1: with the transposes' kernels. Bound by
// bytes: each element is read and written once.
#include "device/cuda/movement/move_params.h"
#include "device/cuda/movement/pieces.cuh"
#include "ops/enums.h"

// The source position for position `at`, which may be outside; -1: the fill
// value. `mode` is a rabbet_sample_mode_t. The version of 32 bits handles one
// period on each side; the host chooses it only where that is enough.
__device__ __forceinline__ int32_t map_position(int mode,
                                                const move_axis_t& axis,
                                                int32_t at) {
  int32_t low = at * axis.low_factor + axis.low_add;
  int32_t high = at * axis.high_factor + axis.high_add;
  return at < 0 ? low : at < (int32_t)axis.in ? at : high;
}
__device__ __forceinline__ int64_t map_position(int mode,
                                                const move_axis_t& axis,
                                                int64_t at) {
  int64_t in = axis.in;
  if (at >= 0 && at < in) return at;
  if (mode == RABBET_SAMPLE_CLAMP) return at < 0 ? 0 : in - 1;
  if (mode != RABBET_SAMPLE_WRAP && mode != RABBET_SAMPLE_REFLECT) return -1;
  if (in == 1) return 0;
  int64_t period = mode == RABBET_SAMPLE_WRAP ? in : 2 * (in - 1);
  at %= period;
  if (at < 0) at += period;
  return at < in ? at : period - at;
}

// BYTES: size of an element as the parameters count them.
template <int BYTES, class I>
struct move_source {
  typedef typename element<BYTES>::type E;
  enum { SKIPS = 0 };
  const E* source;
  const typename element<SIZE>::type* filling;
  const move_t& move;

  __device__ __forceinline__ void fill(E& value) const {
    if (!filling) return;
    words_t words;
    repeat(*filling, words.w);
    value = *(const E*)&words;
  }

  // Adds the row's offset on axis i and leaves the index over the outer axes in
  // `row`. False: the elements are the fill value.
  __device__ __forceinline__ bool step_axis(int i, I& row, I& offset) const {
    const move_axis_t& axis = move.axes[i];
    I at = row;
    if (i + 1 < move.rank) {
      row = divide(at, axis.extent);
      at -= row * (I)axis.extent.divisor;
    }
    if (!axis.is_whole)
      at = map_position(move.mode, axis, (I)axis.start + at * (I)axis.step);
    offset += at * (I)axis.source;
    return at >= 0;
  }

  // The offset of a row; false: its elements are the fill value.
  __device__ __forceinline__ bool find_row(I row, I& offset) const {
    bool inside = true;
    offset = (I)move.offset;
    if (sizeof(I) == 4) {
      // Unrolled, so that instructions read parameters by constant addresses.
#pragma unroll
      for (int i = 1; i < MOVE_AXES_SMALL; ++i) {
        if (i < move.rank) inside = step_axis(i, row, offset) && inside;
      }
    } else {
#pragma unroll 1
      for (int i = 1; i < move.rank; ++i)
        inside = step_axis(i, row, offset) && inside;
    }
    return inside;
  }

  __device__ __forceinline__ bool run(I at, const E*& from) const {
    enum { N = 16 / BYTES };
    I row = divide(at, move.row), length = (I)move.row.divisor;
    I in_row = at - row * length, offset, end, shift = (I)move.shift;
    bool filled = false;
    if (move.is_joined) {
      I low = (I)move.low, high = (I)move.high;
      bool is_low = in_row < low, is_high = in_row >= high;
      end = is_low ? low : is_high ? length : high;
      if (is_low) shift = (I)move.low_shift;
      if (is_high) shift = (I)move.high_shift;
      filled = (is_low || is_high) && move.sides == MOVE_SIDES_FILLED;
      if ((is_low || is_high) && move.sides == MOVE_SIDES_MIXED) return false;
    } else {
      // A row's units are not neighbours in the source.
      const move_axis_t& axis = move.axes[0];
      I unit = (I)move.unit.divisor, i = divide(in_row, move.unit);
      end = (i + 1) * unit;
      i = map_position(move.mode, axis, (I)axis.start + i * (I)axis.step);
      filled = i < 0;
      shift = i * (I)axis.source - (end - unit);
    }
    if (in_row + N > end) return false;
    if (!find_row(row, offset) || filled) return true;
    offset += in_row + shift;
    from = source + offset;
    return has_room<BYTES>(offset, (I)move.size);
  }

  __device__ __forceinline__ const E* place(I at) const {
    const move_axis_t& axis = move.axes[0];
    I row = divide(at, move.row), offset;
    I in_row = at - row * (I)move.row.divisor;
    I i = divide(in_row, move.unit);
    I in_unit = in_row - i * (I)move.unit.divisor;
    i = map_position(move.mode, axis, (I)axis.start + i * (I)axis.step);
    if (!find_row(row, offset) || i < 0) return 0;
    return source + offset + i * (I)axis.source + in_unit;
  }
};

#define MOVE_KERNEL(name, bytes, pieces, index)                              \
  extern "C" __global__ void __launch_bounds__(256)                          \
      name(const element<bytes>::type* source, element<bytes>::type* target, \
           const element<SIZE>::type* filling,                               \
           const __grid_constant__ move_t move) {                            \
    turn_t turn;                                                             \
    move_source<bytes, index> locate = {source, filling, move};              \
    write_pieces<bytes, pieces, index>(locate, target, (index)move.count);   \
  }

// narrow: by elements; wide: by units of 16 bytes.
MOVE_KERNEL(move_narrow, SIZE, MOVE_PIECES, int32_t)
MOVE_KERNEL(move_wide, 16, MOVE_PIECES, int32_t)
MOVE_KERNEL(move_narrow_large, SIZE, MOVE_PIECES_LARGE, int64_t)
MOVE_KERNEL(move_wide_large, 16, MOVE_PIECES_LARGE, int64_t)

// For outputs without neighbours that are neighbours in the source, too. A
// thread moves MOVE_ELEMENTS elements, which lie blockDim.x apart, or one.
extern "C" __global__ void __launch_bounds__(256)
    move_elements(const element<SIZE>::type* source,
                  element<SIZE>::type* target,
                  const element<SIZE>::type* filling,
                  const __grid_constant__ move_t move) {
  turn_t turn;
  typedef element<SIZE>::type E;
  move_source<SIZE, int32_t> locate = {source, filling, move};
  const int each = spread<MOVE_ELEMENTS>();
  int32_t begin = (int32_t)(blockIdx.x * blockDim.x * each + threadIdx.x);
  int32_t count = (int32_t)move.count;
  E values[MOVE_ELEMENTS];
#pragma unroll
  for (int i = 0; i < MOVE_ELEMENTS; ++i) {
    if (i >= each) continue;
    int32_t at = begin + i * (int32_t)blockDim.x;
    const E* from = at < count ? locate.place(at) : 0;
    values[i] = E();
    if (from) {
      values[i] = *from;
    } else {
      locate.fill(values[i]);
    }
  }
#pragma unroll
  for (int i = 0; i < MOVE_ELEMENTS; ++i) {
    int32_t at = begin + i * (int32_t)blockDim.x;
    if (i < each && at < count) target[at] = values[i];
  }
}

#if TRANSPOSES
// ---- Transposes

// A unit is an element, or a word of several where the addresses allow.
template <class E>
__device__ __forceinline__ void split_unit(const E& unit, E* tile) {
  *tile = unit;
}
__device__ __forceinline__ void split_unit(uint32_t unit, uint16_t* tile) {
  tile[0] = (uint16_t)unit, tile[1] = (uint16_t)(unit >> 16);
}
__device__ __forceinline__ void split_unit(uint32_t unit, uint8_t* tile) {
  tile[0] = (uint8_t)unit, tile[1] = (uint8_t)(unit >> 8);
  tile[2] = (uint8_t)(unit >> 16), tile[3] = (uint8_t)(unit >> 24);
}
template <class E>
__device__ __forceinline__ void join_unit(const E* tile, int pitch, E& unit) {
  unit = *tile;
}
__device__ __forceinline__ void join_unit(const uint16_t* tile, int pitch,
                                          uint32_t& unit) {
  unit = tile[0] | (uint32_t)tile[pitch] << 16;
}
__device__ __forceinline__ void join_unit(const uint8_t* tile, int pitch,
                                          uint32_t& unit) {
  unit = tile[0] | (uint32_t)tile[pitch] << 8 |
         (uint32_t)tile[2 * pitch] << 16 | (uint32_t)tile[3 * pitch] << 24;
}

enum { TILES_WIDE_IN = 1, TILES_WIDE_OUT = 2, TILES_THREADS = 256 };

// Item `number` of a thread, in a tile with rows of 1 << log items of `of`
// elements.
struct tile_item_t {
  int32_t row, column;
};
__device__ __forceinline__ tile_item_t tile_item(int number, int log, int of) {
  int at = (int)threadIdx.x + number * TILES_THREADS;
  tile_item_t item = {at >> log, (at & ((1 << log) - 1)) * of};
  return item;
}

// Loads rows of the source into shared memory, by units of type U.
template <class E, class U, int ITEMS, int LOG_UNIT>
__device__ __forceinline__ void load_tile(const E* source, int64_t stride,
                                          int32_t rows, int32_t columns,
                                          int log, int32_t pitch, E* tile) {
  enum { OF = 1 << LOG_UNIT };
  U units[ITEMS];
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    tile_item_t item = tile_item(i, log - LOG_UNIT, OF);
    if (item.row < rows && item.column < columns)
      units[i] = *(const U*)(source + item.row * stride + item.column);
  }
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    tile_item_t item = tile_item(i, log - LOG_UNIT, OF);
    if (item.row >= rows || item.column >= columns) continue;
    split_unit(units[i], tile + item.row * pitch + item.column);
  }
}

// Stores columns of the tile as rows of the target.
template <class E, class U, int ITEMS, int LOG_UNIT>
__device__ __forceinline__ void store_tile(E* target, int64_t stride,
                                           int32_t rows, int32_t columns,
                                           int log, int32_t pitch,
                                           const E* tile) {
  enum { OF = 1 << LOG_UNIT };
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    tile_item_t item = tile_item(i, log - LOG_UNIT, OF);
    if (item.row >= rows || item.column >= columns) continue;
    U unit;
    join_unit(tile + item.column * pitch + item.row, pitch, unit);
    *(U*)(target + item.row * stride + item.column) = unit;
  }
}

// Where a block's tile begins on both sides, and its extents: 1 << log units of
// `of` elements, or fewer at the end of an axis.
struct tile_place_t {
  int64_t source, target;
  int32_t left_a, left_b;
};
__device__ __forceinline__ tile_place_t find_tile(const tiles_t& tiles,
                                                  int log_a, int log_b,
                                                  int32_t of) {
  int32_t rest = divide((int32_t)blockIdx.x, tiles.tiles_a);
  int32_t a = (int32_t)blockIdx.x - rest * (int32_t)tiles.tiles_a.divisor;
  int32_t outer = divide(rest, tiles.tiles_b);
  int32_t b = rest - outer * (int32_t)tiles.tiles_b.divisor;
  int32_t most_a = of << log_a, most_b = of << log_b;
  int64_t a0 = (int64_t)a * most_a, b0 = (int64_t)b * most_b;
  tile_place_t place = {a0 + b0 * tiles.source_b, b0 + a0 * tiles.target_a,
                        most_a, most_b};
  if (tiles.a - a0 < most_a) place.left_a = (int32_t)(tiles.a - a0);
  if (tiles.b - b0 < most_b) place.left_b = (int32_t)(tiles.b - b0);
  for (int i = 0; i < tiles.rank; ++i) {
    rest = divide(outer, tiles.extent[i]);
    int32_t at = outer - rest * (int32_t)tiles.extent[i].divisor;
    outer = rest;
    place.source += at * tiles.source[i];
    place.target += at * tiles.target[i];
  }
  return place;
}

// A block moves a tile through shared memory, so that reads and writes of
// global memory are both contiguous.
template <int BYTES, int LOG>
__device__ __forceinline__ void move_tile(
    const typename element<BYTES>::type* source,
    typename element<BYTES>::type* target, int32_t wide, const tiles_t& tiles) {
  typedef typename element<BYTES>::type E;
  typedef typename element<(BYTES < 4 ? 4 : BYTES)>::type wide_t;
  enum { N = 1 << LOG, ITEMS = N / TILES_THREADS };
  enum { LOG_WORD = BYTES == 1 ? 2 : BYTES == 2 ? 1 : 0 };
  __shared__ E tile[2 * N];
  tile_place_t place = find_tile(tiles, tiles.log_a, tiles.log_b, 1);
  source += place.source, target += place.target;
  int32_t most_a = place.left_a, most_b = place.left_b;
  if (LOG_WORD > 0 && wide & TILES_WIDE_IN) {
    load_tile<E, wide_t, (ITEMS >> LOG_WORD), LOG_WORD>(
        source, tiles.source_b, most_b, most_a, tiles.log_a, tiles.pitch, tile);
  } else {
    load_tile<E, E, ITEMS, 0>(source, tiles.source_b, most_b, most_a,
                              tiles.log_a, tiles.pitch, tile);
  }
  __syncthreads();
  if (LOG_WORD > 0 && wide & TILES_WIDE_OUT) {
    store_tile<E, wide_t, (ITEMS >> LOG_WORD), LOG_WORD>(
        target, tiles.target_a, most_a, most_b, tiles.log_b, tiles.pitch, tile);
  } else {
    store_tile<E, E, ITEMS, 0>(target, tiles.target_a, most_a, most_b,
                               tiles.log_b, tiles.pitch, tile);
  }
}

#define MOVE_TILES(name, bytes, log)                                         \
  extern "C" __global__ void __launch_bounds__(256)                          \
      name(const element<bytes>::type* source, element<bytes>::type* target, \
           int32_t wide, const __grid_constant__ tiles_t tiles) {            \
    turn_t turn;                                                             \
    move_tile<bytes, log>(source, target, wide, tiles);                      \
  }

#if SIZE == 1
MOVE_TILES(move_tiles_1, 1, 12)
#endif
#if SIZE <= 2
MOVE_TILES(move_tiles_2, 2, 12)
#endif
#if SIZE <= 4
MOVE_TILES(move_tiles_4, 4, 10)
#endif
MOVE_TILES(move_tiles_8, 8, 10)
MOVE_TILES(move_tiles_16, 16, 9)

// ---- Transposes of whole squares

// If vectors of 16 bytes are aligned along both axes, a thread loads a square
// of elements, transposes it in its registers and writes its rows to shared
// memory. From there they are stored in the order of the target.
template <int BYTES>
__device__ __forceinline__ void turn(words_t (&rows)[16 / BYTES]);
template <>
__device__ __forceinline__ void turn<8>(words_t (&rows)[2]) {
  uint32_t a = rows[0].w[2], b = rows[0].w[3];
  rows[0].w[2] = rows[1].w[0], rows[0].w[3] = rows[1].w[1];
  rows[1].w[0] = a, rows[1].w[1] = b;
}
template <>
__device__ __forceinline__ void turn<4>(words_t (&rows)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int k = 0; k < i; ++k) {
      uint32_t word = rows[i].w[k];
      rows[i].w[k] = rows[k].w[i];
      rows[k].w[i] = word;
    }
  }
}
template <>
__device__ __forceinline__ void turn<2>(words_t (&rows)[8]) {
  words_t turned[8];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      uint32_t low = rows[2 * k].w[i], high = rows[2 * k + 1].w[i];
      turned[2 * i].w[k] = __byte_perm(low, high, 0x5410);
      turned[2 * i + 1].w[k] = __byte_perm(low, high, 0x7632);
    }
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) rows[i] = turned[i];
}

// tiles.log_a and log_b are of the threads along the axes.
template <int BYTES>
__device__ __forceinline__ void move_squares(
    const typename element<BYTES>::type* source,
    typename element<BYTES>::type* target, const tiles_t& tiles) {
  enum { N = 16 / BYTES };
  __shared__ words_t rows[TILES_THREADS * N];
  tile_place_t place = find_tile(tiles, tiles.log_a, tiles.log_b, N);
  source += place.source, target += place.target;
  // `flip` spreads threads that would write to the same bank over columns.
  int32_t ta = (int32_t)threadIdx.x & ((1 << tiles.log_a) - 1);
  int32_t tb = (int32_t)threadIdx.x >> tiles.log_a;
  int32_t mask = (1 << tiles.log_b) - 1, flip = mask & 7;
  words_t square[N];
  if (ta * N < place.left_a && tb * N < place.left_b) {
#pragma unroll
    for (int i = 0; i < N; ++i)
      square[i] =
          *(const words_t*)(source + (tb * N + i) * tiles.source_b + ta * N);
    turn<BYTES>(square);
#pragma unroll
    for (int i = 0; i < N; ++i)
      rows[((ta * N + i) << tiles.log_b) + (tb ^ (ta & flip))] = square[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < N; ++i) {
    int32_t at = (int32_t)threadIdx.x + i * TILES_THREADS;
    int32_t row = at >> tiles.log_b, column = at & mask;
    if (row < place.left_a && column * N < place.left_b)
      *(words_t*)(target + row * tiles.target_a + column * N) =
          rows[(row << tiles.log_b) + (column ^ (row / N & flip))];
  }
}

#define MOVE_SQUARES(bytes)                                               \
  extern "C" __global__ void __launch_bounds__(256) move_squares_##bytes( \
      const element<bytes>::type* source, element<bytes>::type* target,   \
      const __grid_constant__ tiles_t tiles) {                            \
    turn_t turn;                                                          \
    move_squares<bytes>(source, target, tiles);                           \
  }
#if SIZE <= 2
MOVE_SQUARES(2)
#endif
#if SIZE <= 4
MOVE_SQUARES(4)
#endif
MOVE_SQUARES(8)
#endif

// ---- Few elements side by side

// Element `at` of consecutive vectors.
__device__ __forceinline__ uint8_t pick(const words_t* v, int at, uint8_t) {
  return (uint8_t)(v[at >> 4].w[at >> 2 & 3] >> (at & 3) * 8);
}
__device__ __forceinline__ uint16_t pick(const words_t* v, int at, uint16_t) {
  return (uint16_t)(v[at >> 3].w[at >> 1 & 3] >> (at & 1) * 16);
}
__device__ __forceinline__ uint32_t pick(const words_t* v, int at, uint32_t) {
  return v[at >> 2].w[at & 3];
}
__device__ __forceinline__ uint64_t pick(const words_t* v, int at, uint64_t) {
  const uint32_t* w = v[at >> 1].w + (at & 1) * 2;
  return (uint64_t)w[1] << 32 | w[0];
}

// Gathers the elements first, first + STEP, ...
template <int STEP>
__device__ __forceinline__ words_t pick_vector(const words_t* from, int first) {
  typedef element<SIZE>::type E;
  words_t to = {{0, 0, 0, 0}};
#pragma unroll
  for (int i = 0; i < 16 / SIZE; ++i)
    put_element(to.w, i, pick(from, first + i * STEP, E()));
  return to;
}

// Where a thread's vectors begin on both sides. False: the thread has none.
__device__ __forceinline__ bool find_vectors(const few_t& few, int64_t& source,
                                             int64_t& target) {
  int32_t number = (int32_t)(blockIdx.x * blockDim.x + threadIdx.x);
  if (number >= few.count) return false;
  int32_t outer = divide(number, few.vectors);
  int32_t at = number - outer * (int32_t)few.vectors.divisor;
  source = few.start + at * few.source_vector;
  target = at * few.target_vector;
  for (int i = 0; i < few.rank; ++i) {
    int32_t rest = divide(outer, few.extent[i]);
    int32_t place = outer - rest * (int32_t)few.extent[i].divisor;
    outer = rest;
    source += place * few.source[i];
    target += place * few.target[i];
  }
  return true;
}

#if TRANSPOSES
// From pixels of K channels to K planes.
template <int K>
__device__ __forceinline__ void split(const words_t* source, words_t* target,
                                      const few_t& few) {
  int64_t from, to;
  if (!find_vectors(few, from, to)) return;
  words_t pixels[K];
#pragma unroll
  for (int k = 0; k < K; ++k) pixels[k] = source[from + k];
#pragma unroll
  for (int k = 0; k < K; ++k)
    target[to + k * few.plane] = pick_vector<K>(pixels, k);
}

// From K planes to pixels of K channels.
template <int K>
__device__ __forceinline__ void join(const words_t* source, words_t* target,
                                     const few_t& few) {
  typedef element<SIZE>::type E;
  enum { N = 16 / SIZE };
  int64_t from, to;
  if (!find_vectors(few, from, to)) return;
  words_t planes[K];
#pragma unroll
  for (int k = 0; k < K; ++k) planes[k] = source[from + k * few.plane];
#pragma unroll
  for (int k = 0; k < K; ++k) {
    words_t pixels = {{0, 0, 0, 0}};
#pragma unroll
    for (int i = 0; i < N; ++i) {
      int at = k * N + i;
      put_element(pixels.w, i, pick(planes + at % K, at / K, E()));
    }
    target[to + k] = pixels;
  }
}

#define MOVE_FEW(way, k)                                       \
  extern "C" __global__ void __launch_bounds__(256)            \
      move_##way##_##k(const words_t* source, words_t* target, \
                       const __grid_constant__ few_t few) {    \
    turn_t turn;                                               \
    way<k>(source, target, few);                               \
  }
MOVE_FEW(split, 2)
MOVE_FEW(split, 3)
MOVE_FEW(split, 4)
MOVE_FEW(join, 2)
MOVE_FEW(join, 3)
MOVE_FEW(join, 4)
#endif

// Takes every second element, from element few.phase (0 or 1) on.
extern "C" __global__ void __launch_bounds__(256)
    move_second(const words_t* source, words_t* target,
                const __grid_constant__ few_t few) {
  turn_t turn;
  int64_t from, to;
  if (!find_vectors(few, from, to)) return;
  words_t both[2] = {source[from], source[from + 1]};
  target[to] =
      few.phase == 0 ? pick_vector<2>(both, 0) : pick_vector<2>(both, 1);
}
