#include "device/cpu/move.h"

#include <string.h>

#include "base/math.h"
#include "device/cpu/cpu.h"
#include "device/cpu/parallel.h"

// ---- Tensors as boxes ------------------------------------------------------

static void rabbet_box_add(rabbet_box_t* box, int32_t axis, int64_t extent,
                           int64_t stride) {
  box->axis[box->rank] = axis;
  box->extent[box->rank] = extent;
  box->stride[box->rank++] = stride;
}

bool rabbet_box(const rabbet_dims_t* dims, rabbet_format_t format,
                rabbet_box_t* out_box) {
  const rabbet_format_info_t* info = rabbet_format_info(format);
  if (!info || dims->rank < info->min_rank) return false;
  bool blocked = info->block > 1 && !info->channels_last;
  int64_t block = info->block, inner = blocked ? block : 1;
  if (block > 1 && dims->d[1] % block != 0) return false;
  int64_t strides[RABBET_MAX_RANK];
  int64_t next = info->channels_last ? dims->d[1] : inner;
  for (int32_t i = dims->rank - 1; i >= 0; --i) {
    bool skipped = i == 1 && info->channels_last;
    strides[i] = skipped ? 1 : next;
    if (skipped) continue;
    next *= i == 1 ? dims->d[i] / inner : dims->d[i];
  }
  out_box->rank = 0;
  for (int32_t i = 0; i < dims->rank; ++i) {
    if (i == 1 && blocked) {
      rabbet_box_add(out_box, i, dims->d[i] / block, strides[i]);
      rabbet_box_add(out_box, i, block, 1);
    } else {
      rabbet_box_add(out_box, i, dims->d[i], strides[i]);
    }
  }
  return true;
}

// ---- Planning --------------------------------------------------------------

// By falling target stride, so that writing goes forward.
static void rabbet_move_sort(rabbet_move_t* move) {
  for (int32_t i = 1; i < move->rank; ++i) {
    int64_t extent = move->extent[i], source = move->source[i],
            target = move->target[i];
    int32_t k = i;
    for (; k > 0 && move->target[k - 1] < target; --k) {
      move->extent[k] = move->extent[k - 1];
      move->source[k] = move->source[k - 1];
      move->target[k] = move->target[k - 1];
    }
    move->extent[k] = extent;
    move->source[k] = source;
    move->target[k] = target;
  }
}

static void rabbet_move_merge(rabbet_move_t* move) {
  int32_t kept = 0;
  for (int32_t i = 1; i < move->rank; ++i) {
    if (move->target[kept] == move->target[i] * move->extent[i] &&
        move->source[kept] == move->source[i] * move->extent[i]) {
      move->extent[kept] *= move->extent[i];
    } else {
      move->extent[++kept] = move->extent[i];
    }
    move->source[kept] = move->source[i];
    move->target[kept] = move->target[i];
  }
  if (move->rank > 0) move->rank = kept + 1;
}

// Whether the last axis, contiguous in the target, can be transposed with one
// that is contiguous in the source; that one becomes the last but one.
static bool rabbet_move_find_tiles(rabbet_move_t* move) {
  int log = __builtin_ctzll((unsigned long long)move->unit);
  if (move->unit > 8 || move->unit != 1 << log || move->rank < 2 ||
      move->target[move->rank - 1] != move->unit) {
    return false;
  }
  int32_t found = -1, last = move->rank - 2;
  for (int32_t i = 0; i <= last; ++i) {
    if (move->source[i] == move->unit) found = i;
  }
  if (found < 0) return false;
  int64_t extent = move->extent[found], target = move->target[found];
  for (int32_t i = found; i < last; ++i) {
    move->extent[i] = move->extent[i + 1];
    move->source[i] = move->source[i + 1];
    move->target[i] = move->target[i + 1];
  }
  move->extent[last] = extent;
  move->source[last] = move->unit;
  move->target[last] = target;
  move->transpose = rabbet_vectors()->transpose[log];
  return true;
}

// Pieces of some 32 KB: small enough to share out, large enough to be worth it.
// Those of tiles are multiples of cache lines, so that threads share none.
static void rabbet_move_divide(rabbet_move_t* move) {
  const int64_t wanted = 32 * 1024;
  int32_t last = move->rank - 1, outer = last;
  move->side = move->sides = 1;
  if (move->kind == RABBET_MOVE_TILES) {
    outer = last - 1;
    move->piece = rabbet_min_i64(256, move->extent[last]);
    int64_t side = wanted / (move->unit * move->piece);
    side = rabbet_max_i64(64, side / 64 * 64);
    move->side = rabbet_min_i64(side, move->extent[outer]);
    move->sides = rabbet_ceildiv(move->extent[outer], move->side);
  } else {
    move->piece = rabbet_max_i64(1, wanted / move->unit);
    move->piece = rabbet_min_i64(move->piece, move->extent[last]);
  }
  move->pieces = rabbet_ceildiv(move->extent[last], move->piece);
  move->items = move->pieces * move->sides;
  for (int32_t i = 0; i < outer; ++i)
    move->items *= move->extent[i];
  move->item_bytes = move->piece * move->side * move->unit;
}

void rabbet_move_plan(int32_t rank, const int64_t* extents,
                      const int64_t* sources, const int64_t* targets,
                      int64_t size, rabbet_move_t* out_move) {
  rabbet_move_t* move = out_move;
  memset(move, 0, sizeof(*move));
  move->unit = size;
  for (int32_t i = 0; i < rank; ++i) {
    if (extents[i] == 0) return;
    if (extents[i] == 1) continue;
    move->extent[move->rank] = extents[i];
    move->source[move->rank] = sources[i] * size;
    move->target[move->rank++] = targets[i] * size;
  }
  rabbet_move_sort(move);
  rabbet_move_merge(move);
  int32_t last = move->rank - 1;
  if (last >= 0 && move->source[last] == size && move->target[last] == size) {
    move->unit = size * move->extent[last];
    --move->rank;
  }
  if (move->rank == 0) {
    move->kind = RABBET_MOVE_FLAT;
    return;
  }
  move->kind =
      rabbet_move_find_tiles(move) ? RABBET_MOVE_TILES : RABBET_MOVE_ROWS;
  rabbet_move_divide(move);
}

// ---- Running ---------------------------------------------------------------

#define RABBET_COPY_STRIDED(type)                                           \
  for (int64_t i = 0; i < count; ++i) {                                     \
    __builtin_memcpy(target + i * (int64_t)sizeof(type), source + i * step, \
                     sizeof(type));                                         \
  }                                                                         \
  break;

void rabbet_copy_strided(char* target, const char* source, int64_t step,
                         int64_t count, int64_t size) {
  switch (size) {
    case 1:
      RABBET_COPY_STRIDED(uint8_t)
    case 2:
      RABBET_COPY_STRIDED(uint16_t)
    case 4:
      RABBET_COPY_STRIDED(uint32_t)
    case 8:
      RABBET_COPY_STRIDED(uint64_t)
    default:
      for (int64_t i = 0; i < count; ++i) {
        rabbet_copy_bytes(target + i * size, source + i * step, size);
      }
  }
}

void rabbet_fill_elements(char* target, const char* element, int64_t count,
                          int64_t size) {
  bool same = true;
  for (int64_t i = 1; i < size; ++i)
    same = same && element[i] == element[0];
  if (same) {
    memset(target, element[0], (size_t)(count * size));
  } else {
    rabbet_copy_strided(target, element, 0, count, size);
  }
}

typedef struct rabbet_move_run_t {
  const rabbet_move_t* move;
  const char* source;
  char* target;
} rabbet_move_run_t;

static void rabbet_move_flat(void* context, int64_t begin, int64_t end) {
  const rabbet_move_run_t* run = context;
  memcpy(run->target + begin, run->source + begin, (size_t)(end - begin));
}

void rabbet_copy_flat(void* target, const void* source, int64_t bytes) {
  if (bytes <= 0 || target == source) return;
  rabbet_move_run_t run = {NULL, source, target};
  rabbet_cpu_parallel(bytes, RABBET_CPU_GRAIN_BYTES, rabbet_move_flat, &run);
}

// One row of units to places `step` apart.
static void rabbet_move_row(const rabbet_move_t* move, const char* source,
                            char* target, int64_t count) {
  int32_t last = move->rank - 1;
  int64_t from = move->source[last], to = move->target[last];
  if (to == move->unit) {
    rabbet_copy_strided(target, source, from, count, move->unit);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    rabbet_copy_bytes(target + i * to, source + i * from, move->unit);
  }
}

// Piece number `piece` of the inner axes.
static void rabbet_move_piece(const rabbet_move_t* move, const char* source,
                              char* target, int64_t piece) {
  int32_t last = move->rank - 1;
  int64_t begin = piece / move->sides * move->piece;
  int64_t count = rabbet_min_i64(move->piece, move->extent[last] - begin);
  source += begin * move->source[last];
  target += begin * move->target[last];
  if (move->kind != RABBET_MOVE_TILES) {
    rabbet_move_row(move, source, target, count);
    return;
  }
  int64_t side = piece % move->sides * move->side;
  move->transpose(source + side * move->unit, move->source[last],
                  target + side * move->target[last - 1],
                  move->target[last - 1], count,
                  rabbet_min_i64(move->side, move->extent[last - 1] - side));
}

static void rabbet_move_items(void* context, int64_t begin, int64_t end) {
  const rabbet_move_run_t* run = context;
  const rabbet_move_t* move = run->move;
  int32_t outer = move->rank - (move->kind == RABBET_MOVE_TILES ? 2 : 1);
  int64_t at[RABBET_BOX_AXES];
  const char* source = run->source;
  char* target = run->target;
  int64_t pieces = move->pieces * move->sides;
  int64_t rest = begin / pieces, piece = begin % pieces;
  for (int32_t i = outer - 1; i >= 0; --i) {
    at[i] = rest % move->extent[i];
    rest /= move->extent[i];
    source += at[i] * move->source[i];
    target += at[i] * move->target[i];
  }
  for (int64_t item = begin; item < end; ++item) {
    rabbet_move_piece(move, source, target, piece);
    if (++piece < pieces) continue;
    piece = 0;
    for (int32_t i = outer - 1; i >= 0; --i) {
      source += move->source[i];
      target += move->target[i];
      if (++at[i] < move->extent[i]) break;
      source -= at[i] * move->source[i];
      target -= at[i] * move->target[i];
      at[i] = 0;
    }
  }
}

void rabbet_move_run(const rabbet_move_t* move, const void* source,
                     void* target) {
  if (move->kind == RABBET_MOVE_NOTHING) return;
  if (move->kind == RABBET_MOVE_FLAT) {
    rabbet_copy_flat(target, source, move->unit);
    return;
  }
  rabbet_move_run_t run = {move, source, target};
  int64_t grain = rabbet_max_i64(1, RABBET_CPU_GRAIN_BYTES / move->item_bytes);
  rabbet_cpu_parallel(move->items, grain, rabbet_move_items, &run);
}
