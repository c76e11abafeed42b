// Choosing a kernel for transposes. Bound by bytes; tiles in shared memory make
// the accesses to both sides contiguous.
#include <assert.h>

#include "device/cuda/movement/move.h"

// Constants of movement/move.cu.
enum { WIDE = 16, TILES_WIDE_IN = 1, TILES_WIDE_OUT = 2 };

static int move_log(int64_t extent, int most) {
  int log = 0;
  while (log < most && INT64_C(1) << log < extent)
    ++log;
  return log;
}

// Whether words of this many elements are aligned everywhere on that side.
static bool tiles_fit_words(const tiles_t* tiles, int64_t extent,
                            int64_t stride, const int64_t* strides,
                            int64_t word) {
  bool fits = extent % word == 0 && stride % word == 0;
  for (int32_t i = 0; i < tiles->rank; ++i)
    fits = fits && strides[i] % word == 0;
  return fits;
}

// The stride of rows in shared memory, in elements. It is padded so that the
// threads of a warp, which read down a column, access different banks.
static int32_t tiles_pitch(int32_t columns, int64_t bytes, bool by_words) {
  int32_t word = bytes < 4 ? (int32_t)(4 / bytes) : 1;
  if (by_words || word == 1) return columns | 1;
  int32_t words = (columns + word - 1) / word;
  return (words | 1) * word;
}

// Sets up tiles of 1 << log units, each of `of` by `of` elements. False: there
// would be too many tiles.
static bool tiles_shape(tiles_t* tiles, int log, int64_t of, int64_t outer,
                        unsigned* out_blocks) {
  assert(of >= 1 && outer >= 0);
  int half = log / 2;
  int64_t a = rabbet_ceildiv(tiles->a, of), b = rabbet_ceildiv(tiles->b, of);
  tiles->log_a = move_log(a, half);
  tiles->log_b = move_log(b, log - tiles->log_a);
  if (tiles->log_b < log - half) tiles->log_a = move_log(a, log - tiles->log_b);
  assert(tiles->log_a + tiles->log_b <= log);
  tiles->tiles_a =
      rabbet_cuda_divisor(rabbet_ceildiv(a, INT64_C(1) << tiles->log_a));
  tiles->tiles_b =
      rabbet_cuda_divisor(rabbet_ceildiv(b, INT64_C(1) << tiles->log_b));
  bool fits = !__builtin_mul_overflow(outer, tiles->tiles_a.divisor, &outer) &&
              !__builtin_mul_overflow(outer, tiles->tiles_b.divisor, &outer) &&
              outer <= INT32_MAX;
  *out_blocks = fits ? (unsigned)outer : 0;
  return fits;
}

// Squares whose rows and columns have 16 bytes.
static void tiles_find_squares(const tiles_t* tiles, int64_t unit,
                               int64_t outer, rabbet_cuda_move_t* move) {
  enum { LOG_THREADS = 8 };
  int64_t of = WIDE / unit;
  if (unit == 1 || unit == WIDE ||
      !tiles_fit_words(tiles, tiles->a, tiles->source_b, tiles->source, of) ||
      !tiles_fit_words(tiles, tiles->b, tiles->target_a, tiles->target, of))
    return;
  move->squares = *tiles;
  tiles_shape(&move->squares, LOG_THREADS, of, outer, &move->square_blocks);
}

static bool few_is(int64_t extent) {
  return extent >= 2 && extent <= MOVE_FEW_MOST;
}

// Strides in vectors of `of` elements.
static void few_set(const tiles_t* tiles, int64_t of, int64_t extent,
                    int64_t outer, few_t* few) {
  *few = (few_t){.count = (int32_t)(extent / of * outer),
                 .rank = tiles->rank,
                 .vectors = rabbet_cuda_divisor(extent / of)};
  for (int32_t i = 0; i < tiles->rank; ++i) {
    few->extent[i] = tiles->extent[i];
    few->source[i] = tiles->source[i] / of;
    few->target[i] = tiles->target[i] / of;
  }
}

// Transposes between pixels of a few channels and planes.
static void tiles_find_few(const rabbet_cuda_mover_t* mover,
                           const tiles_t* tiles, int64_t outer,
                           rabbet_cuda_move_t* move) {
  int64_t of = WIDE / mover->size, pixels = 0;
  bool splits =
      few_is(tiles->a) && tiles->source_b == tiles->a &&
      tiles_fit_words(tiles, tiles->b, tiles->target_a, tiles->target, of);
  bool joins =
      few_is(tiles->b) && tiles->target_a == tiles->b &&
      tiles_fit_words(tiles, tiles->a, tiles->source_b, tiles->source, of);
  const int64_t* strides = splits ? tiles->source : tiles->target;
  if (!splits && !joins) return;
  for (int32_t i = 0; i < tiles->rank; ++i)
    if (strides[i] % of != 0) return;
  pixels = splits ? tiles->b : tiles->a;
  if (__builtin_mul_overflow(pixels, outer, &outer) || outer > INT32_MAX)
    return;
  few_t* few = &move->few;
  few_set(tiles, of, pixels, outer / pixels, few);
  few->source_vector = splits ? tiles->a : 1;
  few->target_vector = splits ? 1 : tiles->b;
  few->plane = (splits ? tiles->target_a : tiles->source_b) / of;
  move->few_function = splits ? mover->split[tiles->a] : mover->join[tiles->b];
  assert(move->few_function);
}

// Looks for the two axes of a transpose: the last one, which is contiguous in
// the target, and one that is contiguous in the source. Tiles smaller than a
// block are not used.
void rabbet_cuda_move_find_tiles(const rabbet_cuda_mover_t* mover,
                                 const rabbet_strided_t* strided,
                                 rabbet_cuda_move_t* move) {
  static const int logs[RABBET_CUDA_TILE_SIZES] = {12, 12, 10, 10, 9};
  int32_t last = strided->rank - 1, found = -1;
  int64_t unit = strided->unit;
  if (unit > WIDE || (unit & (unit - 1)) != 0 || last < 1 ||
      strided->target[last] != unit)
    return;
  for (int32_t i = 0; i < last; ++i) {
    if (strided->source[i] == unit) found = i;
  }
  if (found < 0 || strided->extent[found] * strided->extent[last] < 512) return;
  tiles_t* tiles = &move->tiles;
  tiles->a = strided->extent[found];
  tiles->b = strided->extent[last];
  tiles->source_b = strided->source[last] / unit;
  tiles->target_a = strided->target[found] / unit;
  int64_t count = 1;
  for (int32_t i = last - 1; i >= 0; --i) {
    if (i == found) continue;
    tiles->extent[tiles->rank] = rabbet_cuda_divisor(strided->extent[i]);
    tiles->source[tiles->rank] = strided->source[i] / unit;
    tiles->target[tiles->rank++] = strided->target[i] / unit;
    count *= strided->extent[i];
  }
  assert(tiles->rank == strided->rank - 2);
  move->tile_log = move_log(unit, RABBET_CUDA_TILE_SIZES - 1);
  assert(unit == INT64_C(1) << move->tile_log && mover->tiles[move->tile_log]);
  if (!tiles_shape(tiles, logs[move->tile_log], 1, count, &move->tile_blocks))
    return;
  move->kind = RABBET_CUDA_MOVE_TILES;
  if (unit == mover->size) tiles_find_few(mover, tiles, count, move);
  tiles_find_squares(tiles, unit, count, move);
  int64_t word = unit < 4 ? 4 / unit : 1;
  if (tiles_fit_words(tiles, tiles->a, tiles->source_b, tiles->source, word) &&
      1 << tiles->log_a >= word)
    move->tile_wide |= TILES_WIDE_IN;
  if (tiles_fit_words(tiles, tiles->b, tiles->target_a, tiles->target, word) &&
      1 << tiles->log_b >= word)
    move->tile_wide |= TILES_WIDE_OUT;
  tiles->pitch =
      tiles_pitch(1 << tiles->log_a, unit, move->tile_wide & TILES_WIDE_OUT);
}

// ---- Launching -------------------------------------------------------------

static rabbet_status_t move_few(const rabbet_cuda_mover_t* mover,
                                const rabbet_cuda_move_t* move,
                                const void* source, void* target,
                                void* stream) {
  void* parameters[] = {&source, &target, (void*)&move->few};
  const rabbet_cuda_launch_t launch = {
      .function = move->few_function,
      .grid = {(unsigned)rabbet_ceildiv(move->few.count, RABBET_CUDA_THREADS),
               1, 1},
      .block = {RABBET_CUDA_THREADS, 1, 1}};
  return rabbet_cuda_launch(mover->device, &launch, parameters, stream);
}

static rabbet_status_t move_squares(const rabbet_cuda_mover_t* mover,
                                    const rabbet_cuda_move_t* move,
                                    const void* source, void* target,
                                    void* stream) {
  void* parameters[] = {&source, &target, (void*)&move->squares};
  const rabbet_cuda_launch_t launch = {
      .function = mover->squares[move->tile_log],
      .grid = {move->square_blocks, 1, 1},
      .block = {RABBET_CUDA_THREADS, 1, 1}};
  return rabbet_cuda_launch(mover->device, &launch, parameters, stream);
}

static rabbet_status_t move_tiles(const rabbet_cuda_mover_t* mover,
                                  const rabbet_cuda_move_t* move,
                                  const void* source, void* target,
                                  void* stream) {
  assert(move->kind == RABBET_CUDA_MOVE_TILES);
  int32_t wide = move->tile_wide;
  if ((uintptr_t)source % 4 != 0) wide &= ~TILES_WIDE_IN;
  if ((uintptr_t)target % 4 != 0) wide &= ~TILES_WIDE_OUT;
  void* parameters[] = {&source, &target, &wide, (void*)&move->tiles};
  const rabbet_cuda_launch_t launch = {.function = mover->tiles[move->tile_log],
                                       .grid = {move->tile_blocks, 1, 1},
                                       .block = {RABBET_CUDA_THREADS, 1, 1}};
  return rabbet_cuda_launch(mover->device, &launch, parameters, stream);
}

bool rabbet_cuda_move_has_tiles(const rabbet_cuda_move_t* move,
                                uintptr_t both) {
  if ((move->few_function || move->square_blocks > 0) && both % WIDE == 0)
    return true;
  return move->kind == RABBET_CUDA_MOVE_TILES &&
         both % ((uintptr_t)1 << move->tile_log) == 0;
}

rabbet_status_t rabbet_cuda_move_tiles(const rabbet_cuda_mover_t* mover,
                                       const rabbet_cuda_move_t* move,
                                       const void* source, void* target,
                                       void* stream) {
  bool is_wide = ((uintptr_t)source | (uintptr_t)target) % WIDE == 0;
  if (is_wide && move->few_function)
    return move_few(mover, move, source, target, stream);
  if (is_wide && move->square_blocks > 0)
    return move_squares(mover, move, source, target, stream);
  return move_tiles(mover, move, source, target, stream);
}
