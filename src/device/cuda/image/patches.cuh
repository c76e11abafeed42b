// The rows of a product as patches of an image: windows that do not overlap
// (patches.c). A part of products/matmul_tiles.cuh, which includes it.
#pragma once

// A thread loads one chunk from every LEAP-th row.
struct rows_t {
  const patches_t* patches;
  const ELEMENT* from[ROWS / LEAP];  // the first elements of the patches
  uint32_t wanted;                   // a bit for each
  int32_t k;                         // of the chunk of stage 0
};

DEVICE rows_t find_rows(const tiles_t& p, int32_t row, int32_t k) {
  rows_t rows;
  rows.patches = &p.patches;
  rows.wanted = 0;
  rows.k = k + (int32_t)(threadIdx.x % CHUNKS) * CHUNK;
#pragma unroll
  for (int i = 0; i < ROWS / LEAP; ++i) {
    uint32_t own = (uint32_t)row + threadIdx.x / CHUNKS + i * LEAP, x, y;
    uint32_t image =
        divide(divide(own, p.patches.across, &x), p.patches.down, &y);
    rows.from[i] = (const ELEMENT*)p.a.data + image * p.patches.image +
                   y * p.patches.line + x * p.patches.pixel;
    rows.wanted |= (uint32_t)(own < p.rows) << i;
  }
  return rows;
}

DEVICE int64_t offset_in_patch(const patches_t& p, int32_t k) {
  uint32_t at, run;
  uint32_t plane = divide(divide((uint32_t)k, p.run, &at), p.runs, &run);
  return plane * p.plane + run * p.step + at;
}

// Elements that are not contiguous, or not aligned.
DEVICE void gather_rows(shared_t to, const rows_t& rows, int32_t k) {
  chunk_t y[ROWS / LEAP];
#pragma unroll
  for (int i = 0; i < ROWS / LEAP; ++i) y[i] = {{0, 0, 0, 0}};
#pragma unroll
  for (int e = 0; e < CHUNK; ++e) {
    if (k + e >= rows.patches->length) break;
    int64_t offset = offset_in_patch(*rows.patches, k + e);
#pragma unroll
    for (int i = 0; i < ROWS / LEAP; ++i)
      if (rows.wanted >> i & 1)
        y[i].w[e / 2] |= (uint32_t)rows.from[i][offset].bits << 16 * (e & 1);
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
  int64_t offset = within ? offset_in_patch(patches, k) : 0;
#pragma unroll
  for (int i = 0; i < ROWS / LEAP; ++i)
    copy_chunk(to + i * LEAP * LINE, rows.from[i] + offset,
               within && (rows.wanted >> i & 1));
}

DEVICE float bias_of(const tiles_t& p, int64_t column) {
  return p.patches.bias && column < p.columns
             ? load(((const ELEMENT*)p.patches.bias)[column])
             : 0.0f;
}
