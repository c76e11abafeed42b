// softmax(scale q k' + mask) v, the scores in registers.
//
//   ELEMENT     type of q, k, v and y: half_t, bf16_t, or float (TF32)
//   MASK        type of the mask, which is added; undefined: no mask
//   KEEP        defined: the mask is BOOL. A score stays where the mask equals
//               KEEP (0 or 1) and is attend_t.other elsewhere
//   BAND        1: attend_t.other is added to scores out of the band; 2: it
//               replaces them; 0: there is no band
//   CAP         1: scores become attend_t.cap tanh(score / attend_t.cap)
//   ZERO_NAN    defined: NaN weights become 0. Rows that are masked entirely
//               have such weights
//   HEAD        columns of q, k, v and y: whole vectors of 16 bytes
//   WIDTH       the same, rounded up to a multiple of 32: more are zeros
//   ROW_WARPS   groups of warps in a block; each group has 16 rows of q
//   KEY_WARPS   warps of a group, which split its keys; their results are
//               combined at the end
//   SPLITS      blocks of a cluster, which split the keys, too
//   SHARED      1: heads of queries share those of keys and values, and are
//               rows of one block
//
// A warp computes a tile of keys at a time on the tensor cores. Factors are
// loaded from global memory into registers, 16 bytes at a time. This works
// since the order of a product's inner index, and of the columns of v, is free:
// each thread takes contiguous elements. Neighbouring warps read the same keys,
// from the cache. Short sequences are bound by latency, long ones by the
// exponentials and the first-level cache.
#include "device/cuda/attention/softmax.cuh"
#include "device/cuda/products/cluster.cuh"
#include "device/cuda/products/mma.cuh"

enum {
  TILE = sizeof(ELEMENT) == 4 ? 16 : 32,  // keys
  BLOCKS = TILE / 8,                      // of 8 keys, as mma counts
  PACK = 16 / sizeof(ELEMENT),
  CHUNKS = WIDTH / (4 * PACK),  // of q and k: 16 bytes for each of 4 threads
  // A thread has SETS sets of COLUMNS contiguous columns of v for each key.
  COLUMNS = WIDTH % (8 * PACK) == 0 ? PACK : 4,
  SETS = WIDTH / (8 * COLUMNS),
  // Few queries are bound by reading keys: a tile is loaded while the one
  // before is multiplied, where registers suffice for both.
  AHEAD = SPLITS > 1 && WIDTH * sizeof(ELEMENT) <= 128,
  PIECES = 4 * SETS,  // of COLUMNS results
};

// Operands of tensor cores: a word has two elements of 16 bits, or one float.
struct alignas(16) words4_t {
  uint32_t v[4];
};

// ---- Factors ----------------------------------------------------------------

// Rounds floats to TF32, to nearest.
DEVICE uint32_t factor_word(float, uint32_t word) {
#ifdef RABBET_STAND_IN
  return (word + 0x1000u) & 0xffffe000u;
#else
  uint32_t y;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(float_of_bits(word)));
  return y;
#endif
}
template <class E>
DEVICE uint32_t factor_word(E, uint32_t word) {
  return word;
}
DEVICE words4_t factors(words4_t x) {
#pragma unroll
  for (int i = 0; i < 4; ++i) x.v[i] = factor_word(ELEMENT(), x.v[i]);
  return x;
}

// 16 bytes that begin at a column of a head.
DEVICE words4_t load_words(const ELEMENT* head, uint32_t column) {
  if (WIDTH > HEAD && column >= HEAD) return words4_t{{0, 0, 0, 0}};
  return *reinterpret_cast<const words4_t*>(head + column);
}

// ---- Rows ------------------------------------------------------------------

// Where a row begins, for strides of heads and queries.
DEVICE int64_t row_at(const attend_t& p, uint32_t row, int64_t head,
                      int64_t query) {
  if (!SHARED) return row * query;
  return row / p.share * query + row % p.share * head;
}

// ---- Scores ----------------------------------------------------------------

// 16 bytes of q and 16 bytes of k are the operands of two products. The inner
// index is taken in the order of memory.
struct queries_t {
  words4_t row[2][CHUNKS];
};
DEVICE queries_t load_queries(const attend_t& p, const ELEMENT* q, uint32_t row,
                              uint32_t t) {
  queries_t x;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    uint32_t at = row + 8 * half < p.rows ? row + 8 * half : p.rows - 1;
    const ELEMENT* from = q + row_at(p, at, p.q[1], p.q[2]);
#pragma unroll
    for (int i = 0; i < CHUNKS; ++i)
      x.row[half][i] = factors(load_words(from, (4 * i + t) * PACK));
  }
  return x;
}

DEVICE void add_scores(const queries_t& q, const words4_t* k, float* scores) {
#pragma unroll
  for (int i = 0; i < CHUNKS; ++i) {
    words4_t key = factors(k[i]);
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      const uint32_t a[4] = {q.row[0][i].v[2 * s], q.row[1][i].v[2 * s],
                             q.row[0][i].v[2 * s + 1],
                             q.row[1][i].v[2 * s + 1]};
      mma<ELEMENT>(scores, a, key.v + 2 * s);
    }
  }
}

// ---- Results ---------------------------------------------------------------

template <class E>
struct values_of {  // elements of 16 bits: a step is two blocks of 8 keys
  enum { KEYS = 16, ROWS = 4 };
  struct alignas(2 * COLUMNS) pack_type {
    uint32_t v[COLUMNS / 2];
  };
  static __device__ __forceinline__ uint32_t row(uint32_t t, int i) {
    return 2 * t + (i & 1) + (i >> 1) * 8;
  }
  static __device__ __forceinline__ void weights(const float (*p)[4],
                                                 uint32_t* a) {
    a[0] = pair_of<E>(p[0][0], p[0][1]);
    a[1] = pair_of<E>(p[0][2], p[0][3]);
    a[2] = pair_of<E>(p[1][0], p[1][1]);
    a[3] = pair_of<E>(p[1][2], p[1][3]);
  }
  static __device__ __forceinline__ void column(const pack_type* rows, int j,
                                                uint32_t* b) {
    uint32_t selector = j & 1 ? 0x7632u : 0x5410u;
    b[0] = __byte_perm(rows[0].v[j / 2], rows[1].v[j / 2], selector);
    b[1] = __byte_perm(rows[2].v[j / 2], rows[3].v[j / 2], selector);
  }
};
template <>
struct values_of<float> {
  enum { KEYS = 8, ROWS = 2 };
  struct alignas(4 * COLUMNS) pack_type {
    uint32_t v[COLUMNS];
  };
  static __device__ __forceinline__ uint32_t row(uint32_t t, int i) {
    return 2 * t + i;
  }
  static __device__ __forceinline__ void weights(const float (*p)[4],
                                                 uint32_t* a) {
    const int order[4] = {0, 2, 1, 3};
#pragma unroll
    for (int i = 0; i < 4; ++i)
      a[i] = factor_word(float(), bits_of(p[0][order[i]]));
  }
  static __device__ __forceinline__ void column(const pack_type* rows, int j,
                                                uint32_t* b) {
    b[0] = factor_word(float(), rows[0].v[j]);
    b[1] = factor_word(float(), rows[1].v[j]);
  }
};
typedef values_of<ELEMENT> values_t;
typedef values_t::pack_type value_pack_t;
enum { STEPS = TILE / values_t::KEYS };

struct tile_t {
  words4_t k[BLOCKS][CHUNKS];
  value_pack_t v[STEPS][SETS][values_t::ROWS];
#ifdef MASK
  mask_t mask[BLOCKS][4];  // in the layout of the scores
#endif
};

// Addresses of a thread's elements at key 0 of its range.
struct places_t {
  const ELEMENT *k, *v;
  const mask_t* mask[2];  // of rows g and g + 8
  int64_t k_step, v_step, mask_step;
  uint32_t keys, g, t;
  int32_t query[2];  // of rows g and g + 8
};

DEVICE places_t places_of(const attend_t& p, const ELEMENT* k, const ELEMENT* v,
                          const mask_t* mask, uint32_t row, uint32_t g,
                          uint32_t t) {
  places_t at;
  at.k = k;
  at.v = v;
  at.k_step = p.k[2];
  at.v_step = p.v[2];
  at.mask_step = p.mask[3];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    uint32_t there = row + 8 * half < p.rows ? row + 8 * half : p.rows - 1;
    at.mask[half] = mask + row_at(p, there, p.mask[1], p.mask[2]);
    at.query[half] = (int32_t)(SHARED ? there / p.share : there);
  }
  at.keys = p.keys;
  at.g = g;
  at.t = t;
  return at;
}

// All loads of a tile are issued before the first is used. Indices beyond the
// last key read the last key again, with weight 0.
DEVICE uint32_t key_at(const places_t& at, uint32_t key) {
  return key < at.keys ? key : at.keys - 1;
}
DEVICE void load_tile(const places_t& at, uint32_t first, tile_t& tile) {
#pragma unroll
  for (int b = 0; b < BLOCKS; ++b) {
    const ELEMENT* from = at.k + key_at(at, first + 8 * b + at.g) * at.k_step;
#pragma unroll
    for (int i = 0; i < CHUNKS; ++i)
      tile.k[b][i] = load_words(from, (4 * i + at.t) * PACK);
  }
#ifdef MASK
#pragma unroll
  for (int b = 0; b < BLOCKS; ++b)
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      int64_t from = key_at(at, first + 8 * b + 2 * at.t + c) * at.mask_step;
      tile.mask[b][c] = at.mask[0][from];
      tile.mask[b][2 + c] = at.mask[1][from];
    }
#endif
#pragma unroll
  for (int s = 0; s < STEPS; ++s)
#pragma unroll
    for (int i = 0; i < values_t::ROWS; ++i) {
      uint32_t key = first + s * values_t::KEYS + values_t::row(at.t, i);
      const ELEMENT* from = at.v + key_at(at, key) * at.v_step;
#pragma unroll
      for (int set = 0; set < SETS; ++set) {
        uint32_t column = (8 * set + at.g) * COLUMNS;
        if (WIDTH > HEAD && column >= HEAD) column = 0;  // not stored
        tile.v[s][set][i] =
            *reinterpret_cast<const value_pack_t*>(from + column);
      }
    }
}

// ---- A warp's rows and keys ------------------------------------------------

struct state_t {
  float most[2], sum[2];  // of rows g and g + 8
  // results[set][j][c]: column COLUMNS (2 t + c % 2) + j of the set, row
  // g + 8 (c / 2).
  float results[SETS][COLUMNS][4];
};

// Turns scores into weights exp(score - most).
DEVICE void weigh(float (*scores)[4], state_t& state) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float most = state.most[half];
#pragma unroll
    for (int b = 0; b < BLOCKS; ++b)
      most =
          highest(most, highest(scores[b][2 * half], scores[b][2 * half + 1]));
    most = highest_of_row(most);
    float base = finite_base(most);
    float factor = power(state.most[half] - base), sum = 0;
#pragma unroll
    for (int b = 0; b < BLOCKS; ++b)
#pragma unroll
      for (int c = 2 * half; c < 2 * half + 2; ++c) {
        scores[b][c] = power(scores[b][c] - base);
        sum += scores[b][c];
      }
    state.sum[half] = state.sum[half] * factor + sum;
    state.most[half] = most;
#pragma unroll
    for (int set = 0; set < SETS; ++set)
#pragma unroll
      for (int j = 0; j < COLUMNS; ++j)
#pragma unroll
        for (int c = 2 * half; c < 2 * half + 2; ++c)
          state.results[set][j][c] *= factor;
  }
}

DEVICE void add_values(const tile_t& tile, const float (*weights)[4],
                       state_t& state) {
#pragma unroll
  for (int s = 0; s < STEPS; ++s) {
    uint32_t a[4];
    values_t::weights(weights + s * values_t::KEYS / 8, a);
#pragma unroll
    for (int set = 0; set < SETS; ++set)
#pragma unroll
      for (int j = 0; j < COLUMNS; ++j) {
        uint32_t b[2];
        values_t::column(tile.v[s][set], j, b);
        mma<ELEMENT>(state.results[set][j], a, b);
      }
  }
}

// ---- The kernel ------------------------------------------------------------

// Scales the scores and adds the mask. Keys beyond the last get -infinity.
DEVICE void finish_scores(const places_t& at, const tile_t& tile,
                          const attend_t& p, uint32_t first,
                          float (*scores)[4]) {
#pragma unroll
  for (int b = 0; b < BLOCKS; ++b)
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      uint32_t key = first + 8 * b + 2 * at.t + (c & 1);
      float x = capped(p, scores[b][c] * p.scale);
      x = banded(p, x, (int32_t)key, at.query[c >> 1]);
#ifdef KEEP
      if (load(tile.mask[b][c]) != KEEP) x = p.other;
#elif defined(MASK)
      x += to_float(tile.mask[b][c]);
#endif
      scores[b][c] = key < at.keys ? x : -INFINITE;
    }
}

DEVICE void attend_tile(const places_t& at, const queries_t& q,
                        const tile_t& tile, const attend_t& p, uint32_t first,
                        state_t& state) {
  float scores[BLOCKS][4] = {{0}};
#pragma unroll
  for (int b = 0; b < BLOCKS; ++b) add_scores(q, tile.k[b], scores[b]);
  finish_scores(at, tile, p, first, scores);
  weigh(scores, state);
  add_values(tile, scores, state);
}

// The keys of a warp's rows, of which row 0 is `row`: [*out_begin, *out_end).
DEVICE void keys_of_band(const attend_t& p, uint32_t row, int64_t* out_begin,
                         int64_t* out_end) {
  uint32_t last = row + 15 < p.rows ? row + 15 : p.rows - 1;
  uint32_t share = SHARED ? p.share : 1;
  *out_begin = (int64_t)(row / share) + p.near;
  *out_end = (int64_t)(last / share) + p.far + 1;
}

DEVICE void attend_keys(const places_t& at, const queries_t& q,
                        const attend_t& p, uint32_t begin, uint32_t row,
                        state_t& state) {
  enum { STEP = TILE * KEY_WARPS * SPLITS };
  uint32_t end = at.keys;
  if (BAND && row < p.rows) {
    int64_t from, to;
    keys_of_band(p, row, &from, &to);
    if (to < end) end = to > 0 ? (uint32_t)to : 0;
    if (from >= begin + TILE) begin += (uint32_t)(from - begin) / STEP * STEP;
  }
  if (!AHEAD) {
    for (uint32_t first = begin; first < end; first += STEP) {
      tile_t tile;
      load_tile(at, first, tile);
      attend_tile(at, q, tile, p, first, state);
    }
    return;
  }
  tile_t tile;
  if (begin < end) load_tile(at, begin, tile);
  for (uint32_t first = begin; first < end; first += STEP) {
    tile_t next = tile;
    if (first + STEP < end) load_tile(at, first + STEP, next);
    attend_tile(at, q, tile, p, first, state);
    tile = next;
  }
}

struct shares_t {
  float most[16], sum[16];
  float results[WIDTH / 2][32];  // column: thread of the warp
};

// factor[w]: by which the results of warp w count in the row, as each warp has
// a maximum of its own. Returns the row's sum of weights; *out_most: its
// maximum.
DEVICE float join_factors(const shares_t* shares, uint32_t row, float* factor,
                          float* out_most) {
  float most = -INFINITE, sum = 0;
#pragma unroll
  for (int w = 0; w < KEY_WARPS; ++w) most = highest(most, shares[w].most[row]);
  float base = finite_base(most);
#pragma unroll
  for (int w = 0; w < KEY_WARPS; ++w) {
    factor[w] = power(shares[w].most[row] - base);
    sum += factor[w] * shares[w].sum[row];
  }
  *out_most = most;
  return sum;
}

// Columns from `column` on of the row y.
DEVICE void store_piece(const float* x, ELEMENT* y, uint32_t column) {
  if (WIDTH > HEAD && column >= HEAD) return;
  pack_t<ELEMENT, COLUMNS> pack;
#pragma unroll
  for (int j = 0; j < COLUMNS; ++j) pack.v[j] = from_float<ELEMENT>(x[j]);
  store_pack<ELEMENT, COLUMNS>(y + column, pack);
}

// ---- Keys that are split over a cluster ------------------------------------

#if SPLITS > 1
// Each block adds up some columns of the results of all.
enum { SLICE = WIDTH / SPLITS };
struct split_t {
  float most_and_sum[SPLITS][16][2];
  float results[SPLITS][16][SLICE];
};
// Shared memory: the shares of the block's warps, and what its cluster sends.
struct split_memory_t {
  shares_t shares[KEY_WARPS];
  split_t split;
};
DEVICE split_memory_t& split_memory() {
  extern __shared__ __align__(16) float memory[];
  return *(split_memory_t*)memory;
}

// Sends columns of a row to the blocks that add them up, and, if `tells`, the
// row's maximum and its sum of weights to all.
DEVICE void send_piece(uint32_t row, uint32_t column, const float* x,
                       bool tells, float most, float sum) {
  split_t& own = split_memory().split;
  uint32_t rank = blockIdx.x % SPLITS;
#pragma unroll
  for (int j = 0; j < COLUMNS; j += 2) {
    uint32_t to = (column + j) / SLICE, at = (column + j) % SLICE;
    store_remote(remote_address(&own.results[0][0][0], to),
                 (int)((rank * 16 + row) * SLICE + at), x[j], x[j + 1]);
  }
  if (!tells) return;
#pragma unroll
  for (int to = 0; to < SPLITS; ++to)
    store_remote(remote_address(&own.most_and_sum[0][0][0], to),
                 (int)(rank * 16 + row) * 2, most, sum);
}

// Adds up the block's columns.
DEVICE void finish_split(const attend_t& p, uint32_t first, ELEMENT* y) {
  const split_t& own = split_memory().split;
  uint32_t rank = blockIdx.x % SPLITS;
  for (uint32_t i = threadIdx.x; i < 16 * SLICE / 2; i += 32 * KEY_WARPS) {
    uint32_t row = i / (SLICE / 2), at = i % (SLICE / 2) * 2;
    if (first + row >= p.rows || rank * SLICE + at >= HEAD) continue;
    float most = -INFINITE, sum = 0, x[2] = {0, 0};
#pragma unroll
    for (int s = 0; s < SPLITS; ++s)
      most = highest(most, own.most_and_sum[s][row][0]);
    float base = finite_base(most);
#pragma unroll
    for (int s = 0; s < SPLITS; ++s) {
      float factor = power(own.most_and_sum[s][row][0] - base);
      sum += factor * own.most_and_sum[s][row][1];
#pragma unroll
      for (int c = 0; c < 2; ++c) x[c] += factor * own.results[s][row][at + c];
    }
    pack_t<ELEMENT, 2> pack;
#pragma unroll
    for (int c = 0; c < 2; ++c)
      pack.v[c] = from_float<ELEMENT>(without_nan(x[c] / sum, sum));
    store_pack<ELEMENT, 2>(
        y + row_at(p, first + row, p.y[1], p.y[2]) + rank * SLICE + at, pack);
  }
}
#endif

DEVICE void write_results(const attend_t& p, state_t& state, uint32_t row,
                          uint32_t key_warp, uint32_t row_warp, uint32_t g,
                          uint32_t t, ELEMENT* y) {
#if KEY_WARPS > 1
#if SPLITS > 1
  shares_t* shares = split_memory().shares;
#else
  __shared__ shares_t all[ROW_WARPS][KEY_WARPS];
  shares_t* shares = all[row_warp];
#endif
  uint32_t lane = threadIdx.x % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = sum_of_row(state.sum[half]);
    shares[key_warp].sum[g + 8 * half] = sum;
    shares[key_warp].most[g + 8 * half] = state.most[half];
  }
#pragma unroll
  for (int set = 0; set < SETS; ++set)
#pragma unroll
    for (int j = 0; j < COLUMNS; ++j)
#pragma unroll
      for (int c = 0; c < 4; ++c)
        shares[key_warp].results[(set * 4 + c) * COLUMNS + j][lane] =
            state.results[set][j][c];
  __syncthreads();
  if (SPLITS > 1) cluster_wait();  // all blocks have begun
  for (uint32_t piece = key_warp; piece < PIECES; piece += KEY_WARPS) {
    uint32_t c = piece & 3, at = g + 8 * (c >> 1);
    uint32_t column = (8 * (piece >> 2) + 2 * t + (c & 1)) * COLUMNS;
    float factor[KEY_WARPS], x[COLUMNS], most;
    float sum = join_factors(shares, at, factor, &most);
#pragma unroll
    for (int w = 0; SPLITS == 1 && w < KEY_WARPS; ++w) factor[w] /= sum;
#pragma unroll
    for (int j = 0; j < COLUMNS; ++j) {
      x[j] = 0;
#pragma unroll
      for (int w = 0; w < KEY_WARPS; ++w)
        x[j] += factor[w] * shares[w].results[piece * COLUMNS + j][lane];
      if (SPLITS == 1) x[j] = without_nan(x[j], sum);
    }
    if (row + 8 * (c >> 1) >= p.rows) continue;
#if SPLITS > 1
    send_piece(at, column, x, column == 0, most, sum);
#else
    store_piece(x, y + row_at(p, row + 8 * (c >> 1), p.y[1], p.y[2]), column);
#endif
  }
#if SPLITS > 1
  cluster_arrive();
  cluster_wait();
  finish_split(p, row - g, y);
#endif
#else
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = sum_of_row(state.sum[half]), factor = 1.0f / sum;
    if (row + 8 * half >= p.rows) continue;
#pragma unroll
    for (int set = 0; set < SETS; ++set)
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        float x[COLUMNS];
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j)
          x[j] = without_nan(state.results[set][j][2 * half + c] * factor, sum);
        store_piece(x, y + row_at(p, row + 8 * half, p.y[1], p.y[2]),
                    (8 * set + 2 * t + c) * COLUMNS);
      }
  }
#endif
}

// Asks for the rows of the warp's first keys, or of their values, to be brought
// to the L2 cache. It is no read: what the kernel before still writes is
// written there.
DEVICE void ask_for_rows(const ELEMENT* rows, int64_t step, uint32_t first,
                         uint32_t keys) {
#ifndef RABBET_STAND_IN
  enum {
    STEP = TILE * KEY_WARPS * SPLITS,
    LINE = 128 / sizeof(ELEMENT),
    TILES = 4,  // of later ones there is time to hear
  };
  uint32_t key = first + threadIdx.x % 32 % TILE;
#pragma unroll
  for (int i = 0; i < TILES; ++i, key += STEP)
#pragma unroll
    for (int column = 0; column < HEAD; column += LINE)
      if (key < keys)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(
            __cvta_generic_to_global(rows + key * step + column)));
#endif
}

extern "C" __global__ void __launch_bounds__(32 * ROW_WARPS * KEY_WARPS)
    attend(const ELEMENT* q, const ELEMENT* k, const ELEMENT* v,
           const mask_t* mask, ELEMENT* y, const attend_t p) {
  uint32_t warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4;
  uint32_t t = threadIdx.x % 4;
  uint32_t key_warp = warp % KEY_WARPS, row_warp = warp / KEY_WARPS;
  uint32_t part = blockIdx.x % SPLITS;
  uint32_t row = (blockIdx.x / SPLITS * ROW_WARPS + row_warp) * 16 + g;
  int64_t head = blockIdx.y, batch = blockIdx.z, outside = 0;
  int64_t first = SHARED ? head * p.share : head;  // of the queries
  if (p.batches > 0) {
    outside = blockIdx.z / p.batches;
    batch = blockIdx.z % p.batches;
  }
  q += outside * p.outside[0] + batch * p.q[0] + first * p.q[1];
  k += outside * p.outside[1] + batch * p.k[0] + head * p.k[1];
  v += outside * p.outside[2] + batch * p.v[0] + head * p.v[1];
  y += outside * p.outside[3] + batch * p.y[0] + first * p.y[1];
#ifdef MASK
  mask += outside * p.outside[4] + batch * p.mask[0] + first * p.mask[1];
#endif
  uint32_t key = (part * KEY_WARPS + key_warp) * TILE;
#if SPLITS > 1 && !BAND
  ask_for_rows(k, p.k[2], key, p.keys);
  ask_for_rows(v, p.v[2], key, p.keys);
#endif
  turn_t turn;
#if SPLITS > 1
  cluster_arrive();
#endif
  state_t state = {{-INFINITE, -INFINITE}, {0, 0}, {{{0}}}};
  places_t places = places_of(p, k, v, mask, row, g, t);
  queries_t queries = load_queries(p, q, row, t);
  attend_keys(places, queries, p, key, row - g, state);
  write_results(p, state, row, key_warp, row_warp, g, t, y);
}
