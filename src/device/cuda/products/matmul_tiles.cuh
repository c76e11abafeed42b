// Products by tensor cores. A block computes a tile of the result; if k is
// split, a cluster of blocks does. The text that includes this file is
// generated with the product's epilogue (matmul_tiles.c). It defines
//
//   ELEMENT        type of all tensors: half_t or bf16_t
//   ALONG_COLUMNS  1: b is contiguous along columns; 0: along k
//   ROWS           rows of a tile, 64 or 128; a warp has 16
//   COLUMNS        columns of a tile; a multiple of 64 if b is contiguous along
//                  them
//   STAGES         stages in flight, each of TILES_INNER elements of k
//   PARTS          blocks of a cluster, which split k
//   PATCHES        if a is an image (image/patches.cuh)
//
// and the macros of layers_params.h.
#pragma once

#include "device/cuda/products/cluster.cuh"
#include "device/cuda/products/copies.cuh"
#include "device/cuda/products/matmul_tiles_params.h"
#include "device/cuda/products/warpgroup.cuh"

enum {
  THREADS = 2 * ROWS,
  CHUNK = 8,                     // elements
  CHUNKS = TILES_INNER / CHUNK,  // of a line
  LINE = TILES_INNER * 2,        // bytes
  A_BYTES = ROWS * LINE,
  STAGE = (ROWS + COLUMNS) * LINE,
  LEAP = THREADS / CHUNKS,  // lines that the block loads at once
  // The blocks of a cluster split the sums by groups of 8 rows.
  GROUPS = ROWS / 8,
  OWN_ROWS = (GROUPS + PARTS - 1) / PARTS * 8,
  PITCH = COLUMNS + 8,
  WIDTH = 4,  // elements that a thread finishes at once
  PIECES = (OWN_ROWS * COLUMNS / WIDTH + THREADS - 1) / THREADS,
  // Blocks of a multiprocessor; and whether threads have registers for the
  // epilogue's operands beside the sums.
  RESIDENT = PARTS == 1 && 2 * STAGES * STAGE <= 224 << 10 ? 2 : 1,
  EARLY = RESIDENT == 1 || PIECES <= 8,
};

// ---- Stages ----------------------------------------------------------------

// The block's tile (first row and column, the end of its columns), its rank in
// the cluster, and its stages of k.
struct block_t {
  int32_t row, column, limit, rank, first, count;
  int32_t group;  // of the columns, if a is an image
};

// A thread loads one chunk from every LEAP-th line of a matrix, always at the
// same position of the line. Addresses and bounds are computed once.
struct fetch_t {
  const ELEMENT* from;  // the chunk of stage 0 in the first line
  int64_t leap, stage;  // strides to the next chunk and to the next stage
  int32_t lines, room;  // what is left: lines, elements of a line
  int64_t pace;
};
DEVICE fetch_t find_fetch(const tiles_lines_t& lines, int32_t line, int32_t at,
                          bool along_lines) {
  int32_t own = (int32_t)(threadIdx.x / CHUNKS);
  int32_t chunk = (int32_t)(threadIdx.x % CHUNKS) * CHUNK;
  fetch_t f;
  f.from = (const ELEMENT*)lines.data + blockIdx.z * lines.batch +
           (line + own) * lines.step + (at + chunk) * lines.pace;
  f.leap = LEAP * lines.step;
  f.stage = TILES_INNER * (along_lines ? lines.pace : lines.step);
  f.lines = (int32_t)lines.count - line - own;
  f.room = (int32_t)lines.length - at - chunk;
  f.pace = lines.pace;
  return f;
}

// The offset of a chunk in shared memory. Tensor cores expect chunks permuted
// within a line, by the line's index modulo 8 (warpgroup.cuh).
DEVICE uint32_t place(uint32_t line, uint32_t chunk) {
  return line * LINE + (chunk ^ (line & 7)) * 16;
}

DEVICE chunk_t gather_chunk(const ELEMENT* from, int64_t pace, int32_t count) {
  chunk_t y = {{0, 0, 0, 0}};
#pragma unroll 2
  for (int e = 0; e < CHUNK; ++e)
    if (e < count) y.w[e / 2] |= (uint32_t)from[e * pace].bits << 16 * (e & 1);
  return y;
}

// Loads COUNT lines of a stage, with zeros beyond the matrix. WHOLE: chunks are
// contiguous and aligned, and a line's length is a multiple of a chunk.
template <int COUNT, bool WHOLE>
DEVICE void fetch(shared_t to, const fetch_t& f, int32_t lines, int32_t room,
                  int64_t offset) {
  const ELEMENT* from = f.from + offset;
  to += place(threadIdx.x / CHUNKS, threadIdx.x % CHUNKS);
#pragma unroll(WHOLE ? COUNT / LEAP + 1 : 1)
  for (int line = 0; line < COUNT; line += LEAP) {
    if (COUNT % LEAP != 0 && line + (int)threadIdx.x / CHUNKS >= COUNT) break;
    bool wanted = line < lines && room > 0;
    if (WHOLE)
      copy_chunk(to + line * LINE, from, wanted);
    else
      store_chunk(to + line * LINE,
                  gather_chunk(from, f.pace, wanted ? room : 0));
    from += f.leap;
  }
}

// `stage` counts from the block's first stage.
#ifdef PATCHES
#include "device/cuda/image/patches.cuh"
#else
DEVICE void find_tile(const tiles_t& p, block_t& b) {
  b.row = (int32_t)blockIdx.y * ROWS;
  b.column = (int32_t)(blockIdx.x / PARTS) * COLUMNS;
  b.limit = (int32_t)p.columns;
}
typedef fetch_t rows_t;
DEVICE rows_t find_rows(const tiles_t& p, const block_t& b, int32_t k) {
  return find_fetch(p.a, b.row, k, true);
}
DEVICE float bias_of(const tiles_t&, int64_t) { return 0.0f; }
template <bool WHOLE>
DEVICE void fetch_a(shared_t shared, const fetch_t& f, int32_t stage) {
  fetch<ROWS, WHOLE>(shared + stage % STAGES * STAGE, f, f.lines,
                     f.room - stage * TILES_INNER, stage * f.stage);
}
#endif
DEVICE block_t find_block(const tiles_t& p) {
  block_t b;
  b.rank = (int32_t)(blockIdx.x % PARTS);
  b.first = p.stages * b.rank / PARTS;
  b.count = p.stages * (b.rank + 1) / PARTS - b.first;
  find_tile(p, b);
  return b;
}

template <bool WHOLE>
DEVICE void fetch_b(shared_t shared, const fetch_t& f, int32_t stage) {
  shared_t to = shared + stage % STAGES * STAGE + A_BYTES;
  if (!ALONG_COLUMNS) {
    fetch<COLUMNS, WHOLE>(to, f, f.lines, f.room - stage * TILES_INNER,
                          stage * f.stage);
    return;
  }
#pragma unroll
  for (int column = 0; column < COLUMNS; column += TILES_INNER)
    fetch<TILES_INNER, WHOLE>(to + column * LINE, f,
                              f.lines - stage * TILES_INNER, f.room - column,
                              stage * f.stage + column * f.pace);
}

// ---- Products --------------------------------------------------------------

// The sums of a thread; warp w has the 16 rows from 16 w on.
struct sums_t {
  float v[COLUMNS / 8][4];
};

template <bool WHOLE>
DEVICE void multiply_stages(shared_t shared, const rows_t& a, const fetch_t& b,
                            int32_t count, sums_t& sums) {
  for (int32_t stage = 0; stage < count; ++stage) {
    await_copies<STAGES - 1>();
    show_tensor_cores();
    __syncthreads();
    shared_t at = shared + stage % STAGES * STAGE;
    begin_products();
    multiply_tile<ELEMENT, COLUMNS, ALONG_COLUMNS != 0>(at, at + A_BYTES,
                                                        &sums.v[0][0]);
    commit_products();
    if (stage + STAGES < count) {
      await_products();
      __syncthreads();
      fetch_b<WHOLE>(shared, b, stage + STAGES);
      fetch_a<WHOLE>(shared, a, stage + STAGES);
    }
    commit_copies();
  }
  hold_sums<COLUMNS>(&sums.v[0][0]);
  await_products();
  hold_sums<COLUMNS>(&sums.v[0][0]);
}

// ---- Sums ------------------------------------------------------------------

// Each block of a cluster gets the partial sums of its groups of rows from all
// blocks and adds them up.
DEVICE float* part_of(float* parts, int part, int row) {
  return parts + (part * OWN_ROWS + row) * PITCH;
}

DEVICE void share_sums(float* parts, const block_t& b, const sums_t& sums) {
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (PARTS > 1) cluster_wait();  // until all blocks have started
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    int group = 2 * warp + half, owner = ((group + 1) * PARTS - 1) / GROUPS;
    int row = (group - owner * GROUPS / PARTS) * 8 + lane / 4;
    float* own = part_of(parts, b.rank, row) + lane % 4 * 2;
    remote_t to = PARTS > 1 ? remote_address(own, (uint32_t)owner) : remote_t();
#pragma unroll
    for (int j = 0; j < COLUMNS / 8; ++j) {
      const float* v = sums.v[j] + 2 * half;
      if (PARTS > 1) {
        store_remote(to, 8 * j, v[0], v[1]);
      } else {
        own[8 * j] = v[0], own[8 * j + 1] = v[1];
      }
    }
  }
  if (PARTS > 1) {
    cluster_arrive();
    cluster_wait();
  } else {
    __syncthreads();
  }
}

// A piece of the result that a thread finishes: WIDTH elements of a row.
struct piece_t {
  int32_t row, column;  // within the block's part of the tile
  bool wanted;
};
DEVICE piece_t find_piece(const tiles_t& p, const block_t& b, int i) {
  int at = i * THREADS + (int)threadIdx.x;
  int first = b.rank * GROUPS / PARTS * 8;
  piece_t y;
  y.row = at / (COLUMNS / WIDTH);
  y.column = at % (COLUMNS / WIDTH) * WIDTH;
  y.wanted = y.row < (b.rank + 1) * GROUPS / PARTS * 8 - first &&
             b.row + first + y.row < p.rows && b.column + y.column < b.limit;
  return y;
}

typedef pack_t<ELEMENT, WIDTH> elements_t;
// Operands are kept as words and unpacked after the products, so that the
// products do not wait for their loads.
typedef pack_t<uint32_t, 2> words_t;
struct operands_t {
  words_t v[PIECES][OPERANDS + 1];
};

// Starts the loads of the epilogue's operands, before the products are done
// where registers allow it.
DEVICE void fetch_operands(const tiles_t& p, const block_t& b,
                           operands_t& operands) {
#pragma unroll
  for (int i = 0; i < PIECES; ++i) {
    piece_t piece = find_piece(p, b, i);
    if (!piece.wanted) continue;
#pragma unroll
    for (int j = 0; j < OPERANDS; ++j) {
      const ELEMENT* from =
          operand_at(p.layers, j, blockIdx.z,
                     b.row + b.rank * GROUPS / PARTS * 8 + piece.row,
                     b.column + piece.column);
      if (p.layers.operands[j].column)
        operands.v[i][j] = load_pack<uint32_t, 2>((const uint32_t*)from);
      else
        operands.v[i][j].v[0] = from->bits;
    }
  }
}
DEVICE float operand_of(const tiles_t& p, const words_t& words, int i, int e) {
  ELEMENT y;
  y.bits =
      (uint16_t)(p.layers.operands[i].column ? words.v[e / 2] >> 16 * (e & 1)
                                             : words.v[0]);
  return load(y);
}

template <bool WHOLE>
DEVICE void finish_piece(const tiles_t& p, const block_t& b,
                         const piece_t& piece, const float* sum,
                         const words_t* operands) {
  int64_t row = b.row + b.rank * GROUPS / PARTS * 8 + piece.row;
  int64_t column = b.column + piece.column;
  ELEMENT* to = (ELEMENT*)p.y + blockIdx.z * p.y_batch + row * p.y_row + column;
  elements_t y;
#pragma unroll
  for (int e = 0; e < WIDTH; ++e) {
    float o[OPERANDS + 1];
    if (WHOLE) {
#pragma unroll
      for (int j = 0; j < OPERANDS; ++j)
        o[j] = operand_of(p, operands[j], j, e);
      y.v[e] = store_as<ELEMENT>(finish(sum[e], p.layers, o));
    } else if (column + e < b.limit) {
      to[e] = finished(sum[e], p.layers, blockIdx.z, row, column + e);
    }
  }
  if (WHOLE) store_pack<ELEMENT, WIDTH>(to, y);
}

template <bool WHOLE>
DEVICE void write_sums(float* parts, const tiles_t& p, const block_t& b,
                       const operands_t& operands) {
#pragma unroll
  for (int i = 0; i < PIECES; ++i) {
    piece_t piece = find_piece(p, b, i);
    if (!piece.wanted) continue;
    float sum[WIDTH];
#pragma unroll
    for (int e = 0; e < WIDTH; ++e)
      sum[e] = bias_of(p, b.column + piece.column + e);
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
      pack_t<float, WIDTH> more = load_pack<float, WIDTH>(
          part_of(parts, part, piece.row) + piece.column);
#pragma unroll
      for (int e = 0; e < WIDTH; ++e) sum[e] += more.v[e];
    }
    finish_piece<WHOLE>(p, b, piece, sum, operands.v[i]);
  }
}

// ---- Kernels ---------------------------------------------------------------

struct product_t {
  shared_t shared;
  float* parts;
  block_t block;
  rows_t a;
  fetch_t b;
};

// Starts the loads of b, if it is constant: they need not wait for the end of
// the previous kernel.
template <bool WHOLE>
DEVICE product_t begin_product(const tiles_t& p) {
  extern __shared__ __align__(1024) chunk_t memory[];
  product_t x;
  x.shared = shared_address(memory);
  x.parts =
      (float*)(memory + (PARTS > 1 ? STAGES * STAGE / sizeof(chunk_t) : 0));
  x.block = find_block(p);
  int32_t k = x.block.first * TILES_INNER, column = x.block.column;
  x.a = find_rows(p, x.block, k);
  x.b = ALONG_COLUMNS ? find_fetch(p.b, k, column, false)
                      : find_fetch(p.b, column, k, true);
  if (PARTS > 1) cluster_arrive();
  if (!p.ahead) return x;
#pragma unroll(WHOLE ? STAGES : 1)
  for (int32_t stage = 0; stage < STAGES; ++stage)
    if (stage < x.block.count) fetch_b<WHOLE>(x.shared, x.b, stage);
  return x;
}

template <bool WHOLE>
DEVICE void end_product(const tiles_t& p, const product_t& x) {
  sums_t sums = {};
  operands_t operands;
#pragma unroll(WHOLE ? STAGES : 1)
  for (int32_t stage = 0; stage < STAGES; ++stage) {
    if (stage < x.block.count) {
      if (!p.ahead) fetch_b<WHOLE>(x.shared, x.b, stage);
      fetch_a<WHOLE>(x.shared, x.a, stage);
    }
    commit_copies();
  }
  if (WHOLE && EARLY) fetch_operands(p, x.block, operands);
  multiply_stages<WHOLE>(x.shared, x.a, x.b, x.block.count, sums);
  if (PARTS == 1) __syncthreads();  // the sums go where the stages were
  share_sums(x.parts, x.block, sums);
  if (WHOLE && !EARLY) fetch_operands(p, x.block, operands);
  write_sums<WHOLE>(x.parts, p, x.block, operands);
}

// Lets the next kernel begin at once, since it may be such a product, which can
// already load its b.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    tiles(const __grid_constant__ tiles_t p) {
  product_t product = begin_product<true>(p);
  { turn_t turn; }
  end_product<true>(p, product);
}
// For any strides and alignment.
extern "C" __global__ void __launch_bounds__(THREADS)
    tiles_single(const __grid_constant__ tiles_t p) {
  product_t product = begin_product<false>(p);
  { turn_t turn; }
  end_product<false>(p, product);
}
