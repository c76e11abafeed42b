#include "device/common/box.h"

#include <assert.h>
#include <string.h>

static void box_add(rabbet_box_t* box, int32_t axis, int64_t extent,
                    int64_t stride) {
  assert(box->rank >= 0 && box->rank < RABBET_BOX_AXES);
  assert(extent >= 0);
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
  assert(block >= 1);
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
      box_add(out_box, i, dims->d[i] / block, strides[i]);
      box_add(out_box, i, block, 1);
    } else {
      box_add(out_box, i, dims->d[i], strides[i]);
    }
  }
  return true;
}

// ---- Moves -----------------------------------------------------------------

// Sorts axes by decreasing stride of the target, so that writes go forward.
static void strided_sort(rabbet_strided_t* move) {
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

static void strided_merge(rabbet_strided_t* move) {
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

void rabbet_strided_plan(int32_t rank, const int64_t* extents,
                         const int64_t* sources, const int64_t* targets,
                         int64_t size, rabbet_strided_t* out_move) {
  rabbet_strided_t* move = out_move;
  assert(rank >= 0 && rank <= RABBET_BOX_AXES && size > 0);
  memset(move, 0, sizeof(*move));
  for (int32_t i = 0; i < rank; ++i) {
    if (extents[i] == 0) return;
  }
  move->unit = size;
  for (int32_t i = 0; i < rank; ++i) {
    if (extents[i] == 1) continue;
    assert(extents[i] > 0 && targets[i] != 0);  // the target's are distinct
    move->extent[move->rank] = extents[i];
    move->source[move->rank] = sources[i] * size;
    move->target[move->rank++] = targets[i] * size;
  }
  strided_sort(move);
  strided_merge(move);
  int32_t last = move->rank - 1;
  if (last >= 0 && move->source[last] == size && move->target[last] == size) {
    move->unit = size * move->extent[last];
    --move->rank;
  }
  for (int32_t i = 0; i < move->rank; ++i) {
    assert(move->extent[i] > 1 && move->target[i] != 0);
    assert(i == 0 || move->target[i - 1] >= move->target[i]);
  }
}
