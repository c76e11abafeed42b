#include "device/cpu/movement/move.h"

#include <assert.h>
#include <string.h>

#include "base/math.h"
#include "device/cpu/cpu.h"
#include "device/cpu/parallel.h"

// ---- Planning --------------------------------------------------------------

// Whether the move is a transpose of its last axis, contiguous in the target,
// with an axis that is contiguous in the source, which becomes the last but
// one.
static bool move_find_tiles(rabbet_move_t* move) {
  int log = __builtin_ctzll((unsigned long long)move->unit);
  if (move->unit > 8 || move->unit != 1 << log || move->rank < 2 ||
      move->target[move->rank - 1] != move->unit) {
    return false;
  }
  assert(move->unit > 0);
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

// Divides the work into pieces of about 32 KB: enough pieces for all threads,
// and large enough to pay. Tiles are multiples of cache lines, so that threads
// share none.
static void move_divide(rabbet_move_t* move) {
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
  assert(move->piece > 0 && move->side > 0 && move->items > 0);
}

void rabbet_move_plan(int32_t rank, const int64_t* extents,
                      const int64_t* sources, const int64_t* targets,
                      int64_t size, rabbet_move_t* out_move) {
  rabbet_move_t* move = out_move;
  rabbet_strided_t strided;
  memset(move, 0, sizeof(*move));
  rabbet_strided_plan(rank, extents, sources, targets, size, &strided);
  if (strided.unit == 0) return;
  move->unit = strided.unit;
  move->rank = strided.rank;
  memcpy(move->extent, strided.extent, sizeof(move->extent));
  memcpy(move->source, strided.source, sizeof(move->source));
  memcpy(move->target, strided.target, sizeof(move->target));
  if (move->rank == 0) {
    move->kind = RABBET_MOVE_FLAT;
    return;
  }
  move->kind = move_find_tiles(move) ? RABBET_MOVE_TILES : RABBET_MOVE_ROWS;
  move_divide(move);
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

typedef struct move_run_t {
  const rabbet_move_t* move;
  const char* source;
  char* target;
} move_run_t;

static void move_flat(void* context, int64_t begin, int64_t end) {
  const move_run_t* run = context;
  // As rabbet_copy_bytes.
  memmove(run->target + begin, run->source + begin, (size_t)(end - begin));
}

void rabbet_copy_flat(void* target, const void* source, int64_t bytes) {
  if (bytes <= 0 || target == source) return;
  move_run_t run = {NULL, source, target};
  rabbet_cpu_parallel(bytes, RABBET_CPU_GRAIN_BYTES, move_flat, &run);
}

// Moves one row of units.
static void move_row(const rabbet_move_t* move, const char* source,
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
static void move_piece(const rabbet_move_t* move, const char* source,
                       char* target, int64_t piece) {
  int32_t last = move->rank - 1;
  assert(piece >= 0 && piece < move->pieces * move->sides);
  int64_t begin = piece / move->sides * move->piece;
  int64_t count = rabbet_min_i64(move->piece, move->extent[last] - begin);
  source += begin * move->source[last];
  target += begin * move->target[last];
  if (move->kind != RABBET_MOVE_TILES) {
    move_row(move, source, target, count);
    return;
  }
  int64_t side = piece % move->sides * move->side;
  move->transpose(source + side * move->unit, move->source[last],
                  target + side * move->target[last - 1],
                  move->target[last - 1], count,
                  rabbet_min_i64(move->side, move->extent[last - 1] - side));
}

static void move_items(void* context, int64_t begin, int64_t end) {
  const move_run_t* run = context;
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
  assert(rest == 0 && end <= move->items);
  for (int64_t item = begin; item < end; ++item) {
    move_piece(move, source, target, piece);
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
  move_run_t run = {move, source, target};
  int64_t grain = rabbet_max_i64(1, RABBET_CPU_GRAIN_BYTES / move->item_bytes);
  rabbet_cpu_parallel(move->items, grain, move_items, &run);
}
