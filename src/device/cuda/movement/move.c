#include "device/cuda/movement/move.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

// Constants of movement/move.cu.
enum { WIDE = 16 };

// ---- The program -----------------------------------------------------------

static rabbet_status_t mover_functions(const rabbet_cuda_node_t* kernel,
                                       size_t program,
                                       rabbet_cuda_mover_t* mover) {
  const struct {
    const char* name;
    CUfunction* function;
  } functions[] = {{"move_narrow", &mover->narrow[0]},
                   {"move_narrow_large", &mover->narrow[1]},
                   {"move_wide", &mover->wide[0]},
                   {"move_wide_large", &mover->wide[1]},
                   {"move_elements", &mover->elements},
                   {"move_second", &mover->second}};
  for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); ++i)
    RABBET_RETURN_IF_ERROR(rabbet_cuda_node_function(
        kernel, program, functions[i].name, functions[i].function));
  return rabbet_ok();
}

static rabbet_status_t mover_transposes(const rabbet_cuda_node_t* kernel,
                                        size_t program,
                                        rabbet_cuda_mover_t* mover) {
  char name[32];
  for (int i = 0; i < RABBET_CUDA_TILE_SIZES; ++i) {
    if (1 << i < mover->size) continue;
    snprintf(name, sizeof(name), "move_tiles_%d", 1 << i);
    RABBET_RETURN_IF_ERROR(
        rabbet_cuda_node_function(kernel, program, name, &mover->tiles[i]));
    if (i < 1 || 1 << i == WIDE) continue;
    snprintf(name, sizeof(name), "move_squares_%d", 1 << i);
    RABBET_RETURN_IF_ERROR(
        rabbet_cuda_node_function(kernel, program, name, &mover->squares[i]));
  }
  for (int i = 2; i <= MOVE_FEW_MOST; ++i) {
    snprintf(name, sizeof(name), "move_split_%d", i);
    RABBET_RETURN_IF_ERROR(
        rabbet_cuda_node_function(kernel, program, name, &mover->split[i]));
    snprintf(name, sizeof(name), "move_join_%d", i);
    RABBET_RETURN_IF_ERROR(
        rabbet_cuda_node_function(kernel, program, name, &mover->join[i]));
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_cuda_mover_create(rabbet_cuda_node_t* kernel,
                                         const rabbet_kernel_spec_t* spec,
                                         rabbet_dtype_t dtype, bool transposes,
                                         rabbet_cuda_mover_t* out_mover) {
  int bits = rabbet_dtype_bits(dtype);
  memset(out_mover, 0, sizeof(*out_mover));
  if (bits < 8)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "layer '%s': elements of %s are not moved one by one",
                         kernel->node.node->name, rabbet_dtype_name(dtype));
  rabbet_cuda_options_t options = {.count = 0};
  size_t program = kernel->program_count;
  out_mover->device = kernel->device;
  out_mover->size = bits / 8;
  rabbet_cuda_option(&options, "-DSIZE=%d", bits / 8);
  rabbet_cuda_option(&options, "-DTRANSPOSES=%d", transposes);
  RABBET_RETURN_IF_ERROR(
      rabbet_cuda_node_add(kernel, spec, "movement/move.cu", NULL, &options));
  RABBET_RETURN_IF_ERROR(mover_functions(kernel, program, out_mover));
  return transposes ? mover_transposes(kernel, program, out_mover)
                    : rabbet_ok();
}

// ---- Pieces ----------------------------------------------------------------

rabbet_cuda_pieces_t rabbet_cuda_pieces(const rabbet_cuda_device_t* device,
                                        int64_t count, int64_t bytes,
                                        int pieces, bool is_large) {
  assert(count >= 0 && bytes >= 1 && bytes <= WIDE && pieces >= 1);
  int64_t per_piece = WIDE / bytes;
  int64_t threads = RABBET_CUDA_THREADS;
  int64_t all = rabbet_ceildiv(count + per_piece - 1, per_piece);
  // Small tensors get small blocks, so that all multiprocessors have work; at
  // last blocks of one warp, whose threads write one piece each (pieces.cuh).
  while (threads > 64 && rabbet_ceildiv(all, threads * pieces) <
                             2 * (int64_t)device->multiprocessors)
    threads /= 2;
  if (rabbet_ceildiv(all, threads * pieces) < device->multiprocessors) {
    threads = 32;
    pieces = 1;
  }
  return (rabbet_cuda_pieces_t){
      .is_large = is_large,
      .blocks = (unsigned)rabbet_ceildiv(all, threads * pieces),
      .threads = (unsigned)threads};
}

// Whether 32-bit indices suffice: all positions fit, and they are at most one
// period outside.
static bool move_axis_is_small(rabbet_sample_mode_t mode,
                               const rabbet_slice_axis_t* axis) {
  const int64_t most = INT32_MAX / 4;
  int64_t last = 0;
  if (axis->start < -most || axis->start > most || axis->stride < -most ||
      axis->stride > most ||
      __builtin_mul_overflow(axis->out - 1, axis->stride, &last) ||
      last < -most || last > most)
    return false;
  last += axis->start;
  int64_t low = rabbet_min_i64(axis->start, last);
  int64_t high = rabbet_max_i64(axis->start, last);
  if (mode == RABBET_SAMPLE_WRAP)
    return low >= -axis->in && high < 2 * axis->in;
  if (mode == RABBET_SAMPLE_REFLECT)
    return low > -axis->in && high < 2 * axis->in - 1;
  return true;
}

static bool move_is_small(const rabbet_slice_window_t* window,
                          int64_t source_count, int64_t count) {
  bool small = rabbet_cuda_is_small(source_count) &&
               rabbet_cuda_is_small(count) && window->rank <= MOVE_AXES_SMALL;
  for (int32_t i = 0; small && i < window->rank; ++i)
    small = move_axis_is_small(window->mode, &window->axes[i]);
  return small;
}

static void move_set_axis(rabbet_sample_mode_t mode,
                          const rabbet_slice_axis_t* from, int64_t bytes,
                          move_axis_t* axis) {
  *axis = (move_axis_t){.extent = rabbet_cuda_divisor(from->out),
                        .source = from->source / bytes,
                        .start = from->start,
                        .step = from->out > 1 ? from->stride : 1,
                        .in = from->in,
                        .is_whole = from->start == 0 && from->in == from->out &&
                                    (from->stride == 1 || from->out == 1)};
  int32_t in = (int32_t)from->in;
  switch (mode) {
    case RABBET_SAMPLE_WRAP:
      axis->low_factor = axis->high_factor = 1;
      axis->low_add = in;
      axis->high_add = -in;
      return;
    case RABBET_SAMPLE_CLAMP:
      axis->high_add = in - 1;
      return;
    case RABBET_SAMPLE_REFLECT:
      axis->low_factor = axis->high_factor = -1;
      axis->high_add = (int32_t)(2 * (from->in - 1));
      return;
    default:
      axis->low_add = axis->high_add = -1;
  }
}

// Describes a row (the last axis, with `unit` contiguous elements at each
// position): the part that is contiguous in the source, and its sides.
static void move_set_row(const rabbet_slice_axis_t* axis, int64_t unit,
                         bool is_small, move_t* move) {
  int64_t start = axis->start;
  int64_t first = start >= 0 ? 0 : start <= -axis->out ? axis->out : -start;
  int64_t last = start >= axis->in || first == axis->out
                     ? first
                     : rabbet_min_i64(axis->in - start, axis->out);
  move->is_joined = true;
  assert(0 <= first && first <= last && last <= axis->out);
  move->low = first * unit;
  move->high = last * unit;
  if (last > first) move->shift = start * unit;
  if (move->mode == RABBET_SAMPLE_FILL) {
    move->sides = MOVE_SIDES_FILLED;
  } else if (move->mode == RABBET_SAMPLE_WRAP && is_small) {
    move->sides = MOVE_SIDES_NEIGHBOURS;
    if (first > 0) move->low_shift = (start + axis->in) * unit;
    if (last < axis->out) move->high_shift = (start - axis->in) * unit;
  }
}

// Parameters in elements of `bytes`.
static void move_set(const rabbet_slice_window_t* window, int64_t source_count,
                     int64_t bytes, bool is_small, move_t* move) {
  assert(window->rank >= 1 && window->unit % bytes == 0);
  const rabbet_slice_axis_t* last = &window->axes[window->rank - 1];
  memset(move, 0, sizeof(*move));
  move->count = window->unit / bytes;
  move->size = source_count * window->size / bytes;
  move->unit = rabbet_cuda_divisor(window->unit / bytes);
  move->row = rabbet_cuda_divisor(window->unit / bytes * last->out);
  move->rank = window->rank;
  move->mode = (int32_t)window->mode;
  if ((last->stride == 1 || last->out == 1) && last->source == window->unit)
    move_set_row(last, window->unit / bytes, is_small, move);
  for (int32_t i = 0; i < window->rank; ++i) {
    const rabbet_slice_axis_t* axis = &window->axes[window->rank - 1 - i];
    move_set_axis(window->mode, axis, bytes, &move->axes[i]);
    move->count *= axis->out;
  }
}

static bool move_can_be_wide(const rabbet_cuda_mover_t* mover,
                             const rabbet_slice_window_t* window) {
  bool fits = window->unit % WIDE == 0;
  for (int32_t i = 0; i < window->rank; ++i)
    fits = fits && window->axes[i].source % WIDE == 0;
  return fits && mover->size <= WIDE;
}

// Checks for a move of every second element of rows with aligned vectors.
static void move_find_second(const rabbet_cuda_mover_t* mover,
                             const rabbet_slice_window_t* window,
                             rabbet_cuda_move_t* move) {
  const rabbet_slice_axis_t* last = &window->axes[window->rank - 1];
  int64_t per_vector = WIDE / mover->size, phase = last->start & 1;
  if (!window->is_inside || window->unit != mover->size ||
      last->source != mover->size || last->stride != 2 ||
      last->out % per_vector != 0 || (last->start - phase) % per_vector != 0 ||
      last->start - phase + 2 * last->out > last->in)
    return;
  few_t* few = &move->few;
  int64_t count = last->out / per_vector;
  *few = (few_t){.vectors = rabbet_cuda_divisor(count),
                 .source_vector = 2,
                 .target_vector = 1};
  int64_t row = last->out * mover->size;
  int64_t from = (last->start - phase) * mover->size;
  for (int32_t i = window->rank - 2; i >= 0; --i) {
    const rabbet_slice_axis_t* axis = &window->axes[i];
    if (axis->source * axis->stride % WIDE != 0) return;
    from += axis->start * axis->source;
    few->extent[few->rank] = rabbet_cuda_divisor(axis->out);
    few->source[few->rank] = axis->source * axis->stride / WIDE;
    few->target[few->rank++] = row / WIDE;
    row *= axis->out;
    count *= axis->out;
  }
  if (from % WIDE != 0 || count > INT32_MAX) return;
  few->count = (int32_t)count;
  few->start = from / WIDE;
  few->phase = (int32_t)phase;
  move->few_function = mover->second;
}

void rabbet_cuda_move_window(const rabbet_cuda_mover_t* mover,
                             const rabbet_slice_window_t* window,
                             int64_t source_count,
                             rabbet_cuda_move_t* out_move) {
  rabbet_cuda_move_t* move = out_move;
  memset(move, 0, sizeof(*move));
  if (window->is_empty) return;
  assert(window->size == mover->size && window->unit % window->size == 0);
  if (window->rank == 0) {
    move->kind = RABBET_CUDA_MOVE_FLAT;
    move->bytes = window->unit;
    return;
  }
  move->kind = RABBET_CUDA_MOVE_PIECES;
  move_find_second(mover, window, move);
  int64_t count = window->unit / window->size;
  for (int32_t i = 0; i < window->rank; ++i)
    count *= window->axes[i].out;
  bool large = !move_is_small(window, source_count, count);
  int pieces = large ? MOVE_PIECES_LARGE : MOVE_PIECES;
  move_set(window, source_count, window->size, !large,
           &move->narrow_parameters);
  move->narrow =
      rabbet_cuda_pieces(mover->device, count, window->size, pieces, large);
  move->has_wide = move_can_be_wide(mover, window);
  if (!move->has_wide) {
    const move_t* narrow = &move->narrow_parameters;
    bool is_short = narrow->row.divisor * window->size < WIDE;
    bool is_apart = !narrow->is_joined && window->unit == window->size;
    if (!large && (is_short || is_apart) &&
        count < INT32_MAX - RABBET_CUDA_THREADS * MOVE_ELEMENTS) {
      // As pieces of one element.
      move->is_single = true;
      move->narrow =
          rabbet_cuda_pieces(mover->device, count, WIDE, MOVE_ELEMENTS, large);
    }
    return;
  }
  move_set(window, source_count, WIDE, !large, &move->wide_parameters);
  move->wide = rabbet_cuda_pieces(mover->device, move->wide_parameters.count,
                                  WIDE, pieces, large);
}

// ---- Transposes ----------------------------------------------------------

void rabbet_cuda_move_strided(const rabbet_cuda_mover_t* mover,
                              const rabbet_strided_t* strided,
                              int64_t source_count,
                              rabbet_cuda_move_t* out_move) {
  rabbet_slice_window_t window = {.mode = RABBET_SAMPLE_STRICT_BOUNDS,
                                  .is_empty = strided->unit == 0,
                                  .is_inside = true,
                                  .size = mover->size,
                                  .unit = strided->unit,
                                  .rank = strided->rank};
  for (int32_t i = 0; i < strided->rank; ++i)
    window.axes[i] = (rabbet_slice_axis_t){.in = strided->extent[i],
                                           .out = strided->extent[i],
                                           .stride = 1,
                                           .source = strided->source[i],
                                           .target = strided->target[i]};
  rabbet_cuda_move_window(mover, &window, source_count, out_move);
  if (out_move->kind == RABBET_CUDA_MOVE_PIECES)
    rabbet_cuda_move_find_tiles(mover, strided, out_move);
}

// ---- Launching -------------------------------------------------------------

rabbet_status_t rabbet_cuda_move_enqueue(const rabbet_cuda_mover_t* mover,
                                         const rabbet_cuda_move_t* move,
                                         const void* source, void* target,
                                         const void* fill, void* stream) {
  uintptr_t both = (uintptr_t)source | (uintptr_t)target;
  if (move->kind == RABBET_CUDA_MOVE_NOTHING) return rabbet_ok();
  assert(both % (uintptr_t)mover->size == 0);
  if (move->kind == RABBET_CUDA_MOVE_FLAT) {
    if (source == target) return rabbet_ok();
    return RABBET_CUDA(
        mover->device->driver, cuMemcpyDtoDAsync,
        ((CUdeviceptr)(uintptr_t)target, (CUdeviceptr)(uintptr_t)source,
         (size_t)move->bytes, (CUstream)stream));
  }
  if (rabbet_cuda_move_has_tiles(move, both))
    return rabbet_cuda_move_tiles(mover, move, source, target, stream);
  bool is_wide = move->has_wide && both % WIDE == 0;
  const rabbet_cuda_pieces_t* pieces = is_wide ? &move->wide : &move->narrow;
  const CUfunction* functions = is_wide ? mover->wide : mover->narrow;
  rabbet_cuda_launch_t launch = {.function = functions[pieces->is_large],
                                 .grid = {pieces->blocks, 1, 1},
                                 .block = {pieces->threads, 1, 1}};
  if (move->is_single) launch.function = mover->elements;
  void* parameters[] = {
      &source, &target, &fill,
      (void*)(is_wide ? &move->wide_parameters : &move->narrow_parameters)};
  return rabbet_cuda_launch(mover->device, &launch, parameters, stream);
}
