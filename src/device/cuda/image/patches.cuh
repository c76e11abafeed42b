// The rows of a product as patches of an image (patches.c). A part of
// products/matmul_tiles.cuh, which includes it. The text before defines
//
//   WINDOWS        1: windows reach beyond the image, or have holes or groups
//   CHANNELS_LAST  of the image
#pragma once

// Columns of a group of channels are tiles of their own.
DEVICE void find_tile(const tiles_t& p, block_t& b) {
  const patches_t& patches = p.patches;
  uint32_t own;
  b.group = (int32_t)divide(blockIdx.x / PARTS, patches.tiles, &own);
  b.row = (int32_t)(blockIdx.z * gridDim.y + blockIdx.y) * ROWS;
  b.column = b.group * patches.columns + (int32_t)own * COLUMNS;
  b.limit = (b.group + 1) * patches.columns;
}

// A thread loads one chunk from every LEAP-th row.
struct rows_t {
  const patches_t* patches;
  const ELEMENT* from[ROWS / LEAP];        // the first elements of the patches
  int32_t y[ROWS / LEAP], x[ROWS / LEAP];  // where these lie, of WINDOWS
  uint32_t wanted;                         // a bit for each
  int32_t k;                               // of the chunk of stage 0
};

DEVICE rows_t find_rows(const tiles_t& p, const block_t& b, int32_t k) {
  const patches_t& patches = p.patches;
  const ELEMENT* first = (const ELEMENT*)p.a.data - patches.before +
                         (int64_t)b.group * patches.channels;
  rows_t rows;
  rows.patches = &p.patches;
  rows.wanted = 0;
  rows.k = k + (int32_t)(threadIdx.x % CHUNKS) * CHUNK;
#pragma unroll
  for (int i = 0; i < ROWS / LEAP; ++i) {
    uint32_t own = (uint32_t)b.row + threadIdx.x / CHUNKS + i * LEAP, x, y;
    uint32_t image = divide(divide(own, patches.across, &x), patches.down, &y);
    rows.from[i] =
        first + image * patches.image + y * patches.line + x * patches.pixel;
    rows.y[i] = (int32_t)y * patches.stride[0] - patches.pre[0];
    rows.x[i] = (int32_t)x * patches.stride[1] - patches.pre[1];
    rows.wanted |= (uint32_t)(own < p.rows) << i;
  }
  return rows;
}

// An element of a patch, from its first one.
struct tap_t {
  int64_t offset;
  int32_t y, x;
};
DEVICE tap_t find_tap(const patches_t& p, int32_t k) {
  uint32_t at, run;
  uint32_t plane = divide(divide((uint32_t)k, p.run, &at), p.runs, &run);
  tap_t tap;
  tap.offset = plane * p.plane + run * p.step + at;
  tap.y = (int32_t)(CHANNELS_LAST ? plane : run) * p.dilation[0];
  tap.x = (int32_t)(CHANNELS_LAST ? run : at) * p.dilation[1];
  return tap;
}
DEVICE bool has_tap(const rows_t& rows, int i, const tap_t& tap) {
  const patches_t& p = *rows.patches;
  bool has = rows.wanted >> i & 1;
  if (WINDOWS)
    has = has && (uint32_t)(rows.y[i] + tap.y) < (uint32_t)p.extent[0] &&
          (uint32_t)(rows.x[i] + tap.x) < (uint32_t)p.extent[1];
  return has;
}

// Elements that are not contiguous, or not aligned.
DEVICE void gather_rows(shared_t to, const rows_t& rows, int32_t k) {
  chunk_t y[ROWS / LEAP];
#pragma unroll
  for (int i = 0; i < ROWS / LEAP; ++i) y[i] = {{0, 0, 0, 0}};
#pragma unroll
  for (int e = 0; e < CHUNK; ++e) {
    if (k + e >= rows.patches->length) break;
    tap_t tap = find_tap(*rows.patches, k + e);
#pragma unroll
    for (int i = 0; i < ROWS / LEAP; ++i)
      if (has_tap(rows, i, tap))
        y[i].w[e / 2] |= (uint32_t)rows.from[i][tap.offset].bits
                         << 16 * (e & 1);
  }
#pragma unroll
  for (int i = 0; i < ROWS / LEAP; ++i) store_chunk(to + i * LEAP * LINE, y[i]);
}

template <bool WHOLE>
DEVICE void fetch_a(shared_t shared, const rows_t& rows, int32_t stage) {
  const patches_t& patches = *rows.patches;
  int32_t k = rows.k + stage * TILES_INNER;
  shared_t to = shared + stage % STAGES * STAGE +
                place(threadIdx.x / CHUNKS, threadIdx.x % CHUNKS);
  if (!patches.is_whole) {
    gather_rows(to, rows, k);
    return;
  }
  bool within = k < patches.length;
  tap_t tap = find_tap(patches, within ? k : 0);
#pragma unroll
  for (int i = 0; i < ROWS / LEAP; ++i)
    copy_chunk(to + i * LEAP * LINE, rows.from[i] + tap.offset,
               within && has_tap(rows, i, tap));
}

DEVICE float bias_of(const tiles_t& p, int64_t column) {
  return p.patches.bias && column < p.columns
             ? load(((const ELEMENT*)p.patches.bias)[column])
             : 0.0f;
}
