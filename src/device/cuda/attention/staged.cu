// softmax(scale q k' + mask) v for many queries: the warp groups of a block,
// which have 64 queries each, share stages of keys and values in shared memory.
//
//   ELEMENT     type of q, k, v and y: half_t or bf16_t
//   MASK, KEEP, BAND, CAP, ZERO_NAN, HEAD
//               as in attention.cu
//   GROUPS      warp groups of a block that compute, 1 or 2
//   KEYS        of a tile: 64 or 128
//
// While the tensor cores add up the values of a tile of keys, the weights of
// the next are computed. The scheme is that of FlashAttention-2 and -3 (arXiv
// 2307.08691, 2407.08608).
//
// Keys that no query of a tile keeps are left out. A survey of the mask, made
// by a kernel of its own, says where they are; and where all are kept, so that
// the mask is not read. Hidden keys count, if only for rows that keep nothing
// else: a block with such rows begins again, and leaves out nothing.
#include "device/cuda/attention/softmax.cuh"
#include "device/cuda/products/arrival.cuh"
#include "device/cuda/products/warpgroup.cuh"

enum {
  GROUP = 128,         // threads
  WARPS = 4 * GROUPS,  // that compute
  THREADS = GROUP * (GROUPS + 1),
  ROWS = 64 * GROUPS,
  // Three groups begin with 168 registers for each thread; two have enough.
  GIVES_REGISTERS = GROUPS == 2,
  COPY_REGISTERS = 24,
  REGISTERS = 240,
  WIDTH = (HEAD + 15) / 16 * 16,
  PANELS = (WIDTH + 63) / 64,  // of 64 columns, as warpgroup.cuh has them
  LAST = WIDTH - 64 * (PANELS - 1),
  // Queries are in registers, or, if those do not suffice, in shared memory.
  IN_REGISTERS = WIDTH <= 128,
  PART = 64,  // values of a product
  TILE_BYTES = PANELS * KEYS * 128,
  SLOTS = 2,  // for tiles of keys, and for those of values
};

// ---- The survey ------------------------------------------------------------

enum { KEEPS_NONE = 0, KEEPS_SOME = 1, KEEPS_ALL = 2 };
// Beside a score of any sensible size, exp gives 0 for so low a number.
#define HIDDEN -1e4f

#ifdef MASK
DEVICE bool hides(mask_t x) {
#ifdef KEEP
  return load(x) != KEEP;
#else
  return to_float(x) <= HIDDEN;
#endif
}
DEVICE bool leaves(mask_t x) {  // the score as it is
#ifdef KEEP
  return load(x) == KEEP;
#else
  return to_float(x) == 0;
#endif
}

extern "C" __global__ void __launch_bounds__(128)
    survey(const mask_t* mask, uint8_t* tiles, const attend_t p) {
  turn_t turn;
  enum { PACK = 4 };
  uint32_t batch = blockIdx.z / p.survey_heads;
  uint32_t head = blockIdx.z % p.survey_heads;
  uint32_t row = blockIdx.y * ROWS, key = blockIdx.x * KEYS;
  uint32_t rows = p.mask[2] == 0 ? 1 : min((uint32_t)ROWS, p.rows - row);
  bool none = true, all = true;
  mask += batch * p.mask[0] + head * p.mask[1] + row * p.mask[2];
  for (uint32_t i = threadIdx.x; i < rows * (KEYS / PACK); i += 128) {
    const mask_t* from = mask + i / (KEYS / PACK) * p.mask[2];
    uint32_t at = key + i % (KEYS / PACK) * PACK;
#pragma unroll
    for (uint32_t e = 0; e < PACK; ++e) {
      if (at + e >= p.keys) break;
      mask_t x = from[(at + e) * p.mask[3]];
      none = none && hides(x);
      all = all && leaves(x);
    }
  }
  none = __syncthreads_and(none);
  all = __syncthreads_and(all);
  if (threadIdx.x != 0) return;
  tiles[batch * p.survey[0] + head * p.survey[1] + blockIdx.y * p.survey[2] +
        blockIdx.x] = none  ? KEEPS_NONE
                      : all ? KEEPS_ALL
                            : KEEPS_SOME;
}
#endif

// ---- Factors ---------------------------------------------------------------

// A warp group copies LINES rows of a factor, from `first` on, with zeros
// beyond the last of `count`. Each PART_LINES of them have panels of their own.
template <int LINES, int PART_LINES>
DEVICE void copy_rows(shared_t to, const ELEMENT* from, int64_t step,
                      uint32_t first, uint32_t count) {
  enum { LEAP = GROUP / 8 };
  uint32_t own = threadIdx.x % GROUP / 8, chunk = threadIdx.x % 8;
  const ELEMENT* row = from + (first + own) * step + chunk * 8;
  bool whole = first + LINES <= count;
  to += own * 128 + (chunk ^ (own & 7)) * 16;
#pragma unroll
  for (uint32_t line = 0; line < LINES; line += LEAP, row += LEAP * step) {
    bool there = whole || first + own + line < count;
    shared_t at = to + line / PART_LINES * (PANELS * PART_LINES * 128) +
                  line % PART_LINES * 128;
#pragma unroll
    for (uint32_t panel = 0; panel < PANELS; ++panel) {
      uint32_t column = panel * 64 + chunk * 8;
      bool wanted = there && column < HEAD;
      if (column < WIDTH)
        copy_chunk(at + panel * (PART_LINES * 128),
                   wanted ? row + panel * 64 : from, wanted);
    }
  }
}

// The queries of a thread's rows as operands of mma.sync.
struct queries_t {
  uint32_t v[IN_REGISTERS ? WIDTH / 16 : 1][4];
};
DEVICE void load_queries(const ELEMENT* q, int64_t step, uint32_t row,
                         uint32_t rows, uint32_t t, queries_t& y) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    uint32_t at = row + 8 * half < rows ? row + 8 * half : rows - 1;
#pragma unroll
    for (uint32_t i = 0; i < WIDTH / 8; ++i)
      y.v[i / 2][i % 2 * 2 + half] =
          8 * i < HEAD ? *(const uint32_t*)(q + at * step + 8 * i + 2 * t) : 0;
  }
}

// Adds the scores of a tile by a panel of columns.
template <int PANEL>
DEVICE void add_panel(const queries_t& q, shared_t queries, shared_t keys,
                      float* scores) {
  enum {
    STEPS = PANEL < PANELS - 1 ? 4 : LAST / 16,
    FROM = PANEL < PANELS ? 4 * PANEL : 0
  };
  if (PANEL >= PANELS) return;
  keys += PANEL * (KEYS * 128);
  if (IN_REGISTERS)
    multiply_rows<ELEMENT, KEYS, false, STEPS, PANEL == 0>(q.v + FROM, keys,
                                                           scores);
  else
    multiply_tile<ELEMENT, KEYS, false, STEPS, PANEL == 0>(
        queries + PANEL * (ROWS * 128), keys, scores);
}

DEVICE void begin_scores(const queries_t& q, shared_t queries, shared_t keys,
                         float* scores) {
  begin_products();
  add_panel<0>(q, queries, keys, scores);
  add_panel<1>(q, queries, keys, scores);
  add_panel<2>(q, queries, keys, scores);
  add_panel<3>(q, queries, keys, scores);
  commit_products();
}

// The weights of a tile as operands of mma.sync.
struct weights_t {
  uint32_t v[KEYS / 16][4];
};
// Columns of a product of values, of so many that are left.
#define COLUMNS_OF(left)                    \
  ((left) >= 128                   ? 128    \
   : (left) == 80 || (left) == 112 ? 64     \
   : (left) > 0                    ? (left) \
                                   : 16)

// Adds 64 values, some columns of them.
template <int FROM>
DEVICE void add_columns(const uint32_t (*weights)[4], shared_t values,
                        float* results) {
  if (FROM < WIDTH)
    multiply_rows<ELEMENT, COLUMNS_OF(WIDTH - FROM), true>(
        weights, values + FROM / 64 * (PART * 128), results + FROM / 2);
}

// Begins to add the values of a tile.
DEVICE void begin_values(const weights_t& weights, shared_t values,
                         float* results) {
  enum {
    SECOND = COLUMNS_OF(WIDTH),
    THIRD = SECOND + COLUMNS_OF(WIDTH - SECOND)
  };
  begin_products();
#pragma unroll
  for (int i = 0; i < KEYS / PART; ++i) {
    shared_t from = values + i * (PANELS * PART * 128);
    add_columns<0>(weights.v + i * (PART / 16), from, results);
    add_columns<SECOND>(weights.v + i * (PART / 16), from, results);
    add_columns<THIRD>(weights.v + i * (PART / 16), from, results);
  }
  commit_products();
}

// ---- A thread's rows -------------------------------------------------------

// The rows of a thread, `row` and row + 8, with their masks.
struct rows_t {
  const mask_t* mask[2];
  uint32_t row, t;
};
struct state_t {
  float most[2], sum[2];
  float results[WIDTH / 2];
};
struct masks_t {
  mask_t v[PART / 8][4];
};

DEVICE void load_masks(const attend_t& p, const rows_t& rows, uint32_t first,
                       masks_t& masks) {
#ifdef MASK
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const mask_t* from = rows.mask[half];
    uint32_t key = first + 2 * rows.t;
    if (p.pairs) {
#pragma unroll
      for (uint32_t b = 0; b < PART / 8; ++b) {
        pack_t<mask_t, 2> pair =
            load_pack<mask_t, 2>(from + min(key + 8 * b, p.keys - 2));
        masks.v[b][2 * half] = pair.v[0];
        masks.v[b][2 * half + 1] = pair.v[1];
      }
    } else {
#pragma unroll
      for (uint32_t i = 0; i < PART / 4; ++i)
        masks.v[i / 2][2 * half + i % 2] =
            from[min(key + i / 2 * 8 + i % 2, p.keys - 1) * p.mask[3]];
    }
  }
#endif
}

// Scales the scores and adds the mask. Keys beyond the last get -infinity.
DEVICE void finish_scores(const attend_t& p, const rows_t& rows, uint32_t first,
                          float* scores) {
  masks_t masks;
  load_masks(p, rows, first, masks);
#pragma unroll
  for (uint32_t b = 0; b < PART / 8; ++b)
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      uint32_t key = first + 8 * b + 2 * rows.t + (c & 1);
      float x = capped(p, scores[4 * b + c] * p.scale);
      x = banded(p, x, (int32_t)key, (int32_t)(rows.row + c / 2 * 8));
#ifdef KEEP
      if (load(masks.v[b][c]) != KEEP) x = p.other;
#elif defined(MASK)
      x += to_float(masks.v[b][c]);
#endif
      scores[4 * b + c] = x;
    }
  if (first + PART <= p.keys) return;
#pragma unroll
  for (uint32_t i = 0; i < PART / 2; ++i)
    if (first + i / 4 * 8 + 2 * rows.t + (i & 1) >= p.keys)
      scores[i] = -INFINITE;
}

// Turns scores into weights; factors: by which earlier results are multiplied.
// PLAIN: the scores are still to be multiplied by the scale, which is positive.
// Each maximum and sum is one of several, which do not wait for each other.
template <bool PLAIN>
DEVICE void weigh(const attend_t& p, float* scores, state_t& state,
                  float* factors) {
  enum { CHAINS = 4 };
  float most[2][CHAINS], sum[2][CHAINS], base[2], shift[2];
#pragma unroll
  for (int i = 0; i < 2 * CHAINS; ++i) {
    most[i / CHAINS][i % CHAINS] = -INFINITE;
    sum[i / CHAINS][i % CHAINS] = 0;
  }
#pragma unroll
  for (int b = 0; b < KEYS / 8; ++b)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float* to = &most[half][b % CHAINS];
      *to = highest(
          *to, highest(scores[4 * b + 2 * half], scores[4 * b + 2 * half + 1]));
    }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float all = highest(highest(most[half][0], most[half][1]),
                        highest(most[half][2], most[half][3]));
    all = highest(state.most[half],
                  highest_of_row(all) * (PLAIN ? p.scale : 1.0f));
    base[half] = finite_base(all);
    shift[half] = -base[half] * LOG2_E;
    factors[half] = power(state.most[half] - base[half]);
    state.most[half] = all;
  }
  float scale = p.scale * LOG2_E;
#pragma unroll
  for (int b = 0; b < KEYS / 8; ++b)
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      float x = scores[4 * b + c];
      x = PLAIN ? power_of_2(fmaf(x, scale, shift[c / 2]))
                : power(x - base[c / 2]);
      scores[4 * b + c] = x;
      sum[c / 2][(2 * b + c % 2) % CHAINS] += x;
    }
#pragma unroll
  for (int half = 0; half < 2; ++half)
    state.sum[half] =
        state.sum[half] * factors[half] +
        ((sum[half][0] + sum[half][1]) + (sum[half][2] + sum[half][3]));
}

// Weights of a tile's scores; factors: by which earlier results are multiplied.
// `plain`: all queries keep all keys, and scores are multiplied by a positive
// number.
DEVICE void weigh_tile(const attend_t& p, const rows_t& rows, uint32_t first,
                       bool plain, float* scores, state_t& state,
                       float* factors) {
  if (plain) {
    weigh<true>(p, scores, state, factors);
  } else {
#pragma unroll
    for (int i = 0; i < KEYS / PART; ++i)
      finish_scores(p, rows, first + i * PART, scores + i * (PART / 2));
    weigh<false>(p, scores, state, factors);
  }
}

DEVICE void pack_weights(const float* scores, weights_t& weights) {
#pragma unroll
  for (int e = 0; e < KEYS / 4; ++e)
    weights.v[e / 4][e % 4] =
        pair_of<ELEMENT>(scores[2 * e], scores[2 * e + 1]);
}

// ---- The block -------------------------------------------------------------

// Tiles of keys that a block reads.
struct walk_t {
  const uint8_t* survey;  // of the block's rows
  uint32_t row, next, end;
  bool whole, left_out;  // leaves out nothing; has left out tiles
};
DEVICE uint32_t next_tile(walk_t& walk) {
  while (walk.next < walk.end) {
    uint32_t tile = walk.next++;
#ifdef MASK
    if (!walk.whole && walk.survey[tile] == KEEPS_NONE) {
      walk.left_out = true;
      continue;
    }
#endif
    return tile;
  }
  return walk.end;
}

DEVICE walk_t walk_from(const attend_t& p, const uint8_t* survey, uint32_t row,
                        bool whole) {
  walk_t walk = {survey, row, 0, (p.keys + KEYS - 1) / KEYS, whole, false};
  if (BAND) {
    uint32_t last = min(row + ROWS, p.rows) - 1;
    int64_t begin = (int64_t)row + p.near, end = (int64_t)last + p.far + 1;
    if (begin > 0) walk.next = (uint32_t)min(begin, (int64_t)p.keys) / KEYS;
    if (end < (int64_t)p.keys)
      walk.end = end > 0 ? ((uint32_t)end + KEYS - 1) / KEYS : 0;
  }
  return walk;
}

DEVICE bool is_plain(const attend_t& p, const walk_t& walk, uint32_t tile) {
  uint32_t first = tile * KEYS, last = min(walk.row + ROWS, p.rows) - 1;
  bool plain = !CAP && p.scale > 0 && first + KEYS <= p.keys;
#ifdef MASK
  plain = plain && walk.survey[tile] == KEEPS_ALL;
#endif
  return plain && (!BAND || ((int64_t)first - last >= p.first &&
                             (int64_t)first + KEYS - 1 - walk.row <= p.last));
}

// Whether keys that were left out would have had a weight in the row.
DEVICE bool needs_more(const attend_t& p, float most) {
#ifdef KEEP
  return !(most - p.other > 104);  // where exp gives 0
#else
  return !(most > HIDDEN / 2);
#endif
}

DEVICE void write_results(const attend_t& p, const rows_t& rows,
                          const state_t& state, ELEMENT* y) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = sum_of_row(state.sum[half]), factor = 1.0f / sum;
    uint32_t row = rows.row + 8 * half;
    if (row >= p.rows) continue;
    ELEMENT* to = y + row * p.y[2] + 2 * rows.t;
#pragma unroll
    for (int b = 0; b < HEAD / 8; ++b) {
      const float* x = state.results + 4 * b + 2 * half;
      *(uint32_t*)(to + 8 * b) = pair_of<ELEMENT>(
          without_nan(x[0] * factor, sum), without_nan(x[1] * factor, sum));
    }
  }
}

// Where tiles lie. For each slot of keys, then of values, and for the queries,
// there is a barrier of their arrival; and for each slot one of its release.
struct stages_t {
  shared_t keys, values, queries, full, free;
};
DEVICE stages_t find_stages(chunk_t* memory) {
  stages_t s;
  s.keys = shared_address(memory);
  s.values = s.keys + SLOTS * TILE_BYTES;
  s.queries = s.values + SLOTS * TILE_BYTES;
  s.full = s.queries + (IN_REGISTERS ? 0 : PANELS * ROWS * 128);
  s.free = s.full + (2 * SLOTS + 1) * ARRIVAL_BYTES;
  return s;
}
DEVICE void count_stages(const stages_t& s) {
  for (int i = 0; i < 2 * SLOTS + 1; ++i)
    count_arrivals(s.full + i * ARRIVAL_BYTES, GROUP);
  for (int i = 0; i < 2 * SLOTS; ++i)
    count_arrivals(s.free + i * ARRIVAL_BYTES, WARPS);
}

// Tiles are numbered as the block reads them, and take turns in the slots:
// number / SLOTS is how often the tile's slot was used before.
DEVICE shared_t tile_at(shared_t slots, uint32_t number) {
  return slots + number % SLOTS * TILE_BYTES;
}
// `kind`: 0 for keys, 1 for values.
DEVICE shared_t barrier_at(shared_t barriers, int kind, uint32_t number) {
  return barriers + (kind * SLOTS + number % SLOTS) * ARRIVAL_BYTES;
}
DEVICE void await_tile(const stages_t& s, int kind, uint32_t number) {
  await_arrivals(barrier_at(s.full, kind, number), number / SLOTS & 1);
  show_tensor_cores();
}
DEVICE void release_tile(const stages_t& s, int kind, uint32_t number) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) arrive(barrier_at(s.free, kind, number));
}

// ---- The group that copies -------------------------------------------------

template <int PART_LINES>
DEVICE void copy_tile(const stages_t& s, int kind, uint32_t number,
                      const ELEMENT* from, int64_t step, uint32_t tile,
                      uint32_t keys) {
  uint32_t use = number / SLOTS;
  if (use > 0) await_arrivals(barrier_at(s.free, kind, number), (use - 1) & 1);
  copy_rows<KEYS, PART_LINES>(tile_at(kind ? s.values : s.keys, number), from,
                              step, tile * KEYS, keys);
  arrive_copied(barrier_at(s.full, kind, number));
}

// Returns the number of the next tile.
DEVICE uint32_t copy_tiles(const attend_t& p, const stages_t& s, walk_t& walk,
                           const ELEMENT* k, const ELEMENT* v,
                           uint32_t number) {
  uint32_t tile = next_tile(walk);
  if (tile == walk.end) return number;
  copy_tile<KEYS>(s, 0, number, k, p.k[2], tile, p.keys);
  for (; tile < walk.end; ++number) {
    uint32_t then = next_tile(walk);
    if (then < walk.end)
      copy_tile<KEYS>(s, 0, number + 1, k, p.k[2], then, p.keys);
    copy_tile<PART>(s, 1, number, v, p.v[2], tile, p.keys);
    tile = then;
  }
  return number;
}

// ---- The groups that compute -----------------------------------------------

// Adds all tiles of the walk. Returns the number of the next.
DEVICE uint32_t attend_tiles(const attend_t& p, const rows_t& rows,
                             const queries_t& q, const stages_t& s,
                             walk_t& walk, uint32_t number, state_t& state) {
  float scores[KEYS / 2], factors[2];
  weights_t weights;
  uint32_t tile = next_tile(walk);
  if (tile == walk.end) return number;
  await_tile(s, 0, number);
  begin_scores(q, s.queries, tile_at(s.keys, number), scores);
  await_products();
  hold_sums<KEYS>(scores);
  release_tile(s, 0, number);
  weigh_tile(p, rows, tile * KEYS, is_plain(p, walk, tile), scores, state,
             factors);
  pack_weights(scores, weights);
  for (tile = next_tile(walk); tile < walk.end; tile = next_tile(walk)) {
    bool plain = is_plain(p, walk, tile);
    await_tile(s, 0, number + 1);
    begin_scores(q, s.queries, tile_at(s.keys, number + 1), scores);
    await_tile(s, 1, number);
    begin_values(weights, tile_at(s.values, number), state.results);
    await_products<1>();
    hold_sums<KEYS>(scores);
    release_tile(s, 0, number + 1);
    weigh_tile(p, rows, tile * KEYS, plain, scores, state, factors);
    await_products();
    hold_sums<WIDTH>(state.results);
    release_tile(s, 1, number);
#pragma unroll
    for (int e = 0; e < WIDTH / 2; ++e) state.results[e] *= factors[e / 2 % 2];
    pack_weights(scores, weights);
    ++number;
  }
  await_tile(s, 1, number);
  begin_values(weights, tile_at(s.values, number), state.results);
  await_products();
  hold_sums<WIDTH>(state.results);
  release_tile(s, 1, number);
  return number + 1;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    attend(const ELEMENT* q, const ELEMENT* k, const ELEMENT* v,
           const mask_t* mask, ELEMENT* y, const uint8_t* survey,
           const attend_t p) {
  extern __shared__ __align__(1024) chunk_t memory[];
  const stages_t stages = find_stages(memory);
  bool copies = threadIdx.x >= 32 * WARPS;
  uint32_t lane = threadIdx.x % 32;
  // The last rows, which may keep the most keys, come first.
  uint32_t tile = gridDim.y - 1 - blockIdx.y, row = tile * ROWS;
  int64_t head = blockIdx.x, batch = blockIdx.z, outside = 0;
  if (p.batches > 0) {
    outside = blockIdx.z / p.batches;
    batch = blockIdx.z % p.batches;
  }
  rows_t rows = {
      {mask, mask}, row + threadIdx.x / 32 * 16 + lane / 4, lane % 4};
  if (threadIdx.x == 0) count_stages(stages);
  q += outside * p.outside[0] + batch * p.q[0] + head * p.q[1];
  k += outside * p.outside[1] + batch * p.k[0] + head / p.share * p.k[1];
  v += outside * p.outside[2] + batch * p.v[0] + head / p.share * p.v[1];
  y += outside * p.outside[3] + batch * p.y[0] + head * p.y[1];
#ifdef MASK
  survey += batch * p.survey[0] + head * p.survey[1] + tile * p.survey[2];
#pragma unroll
  for (int half = 0; half < 2; ++half)
    rows.mask[half] += batch * p.mask[0] + head * p.mask[1] +
                       min(rows.row + 8 * half, p.rows - 1) * p.mask[2];
#endif
  turn_t turn;
  __syncthreads();
  shared_t stored = stages.full + 2 * SLOTS * ARRIVAL_BYTES;
  uint32_t number = 0;
  if (copies) {
    if (GIVES_REGISTERS) give_registers<COPY_REGISTERS>();
    if (!IN_REGISTERS) {
      copy_rows<ROWS, ROWS>(stages.queries, q, p.q[2], row, p.rows);
      arrive_copied(stored);
    }
    for (int pass = 0; pass < 2; ++pass) {
      walk_t walk = walk_from(p, survey, row, pass == 1);
      number = copy_tiles(p, stages, walk, k, v, number);
      if (!walk.left_out || !__syncthreads_or(false)) break;
    }
    await_copies<0>();
    return;
  }
  if (GIVES_REGISTERS) take_registers<REGISTERS>();
  queries_t queries;
  state_t state;
  if (IN_REGISTERS)
    load_queries(q, p.q[2], rows.row, p.rows, rows.t, queries);
  else
    await_arrivals(stored, 0);
  for (int pass = 0; pass < 2; ++pass) {
    walk_t walk = walk_from(p, survey, row, pass == 1);
    state = {{-INFINITE, -INFINITE}, {0, 0}, {0}};
    number = attend_tiles(p, rows, queries, stages, walk, number, state);
    bool more = false;
#pragma unroll
    for (int half = 0; half < 2; ++half)
      more = more ||
             (rows.row + 8 * half < p.rows && needs_more(p, state.most[half]));
    if (!walk.left_out || !__syncthreads_or(more)) break;
  }
  write_results(p, rows, state, y);
}
