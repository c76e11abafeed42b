// Offsets by "greedy by size" of arXiv 2001.03288, with best fit: the largest
// first, each into the smallest gap between those already placed that live at
// the same time.
#include <assert.h>
#include <stdlib.h>

#include "base/math.h"
#include "plan/plan.h"

#define RABBET_MEMORY_ALIGNMENT 256

typedef struct memory_block_t {
  rabbet_memory_request_t* request;
  size_t size;  // rounded up
} memory_block_t;

// Equal sizes in order of the requests, so that the result is deterministic.
static int memory_block_compare(const void* a, const void* b) {
  const memory_block_t *x = a, *y = b;
  if (x->size != y->size) return x->size > y->size ? -1 : 1;
  return x->request < y->request ? -1 : x->request > y->request;
}

static bool alive_together(const rabbet_memory_request_t* a,
                           const rabbet_memory_request_t* b) {
  return a->first <= b->last && b->first <= a->last;
}

// `placed` is ordered by offset.
static size_t best_gap(const memory_block_t* wanted,
                       memory_block_t* const* placed, size_t count) {
  size_t end = 0, best = SIZE_MAX, best_size = SIZE_MAX;
  for (size_t i = 0; i < count; ++i) {
    const memory_block_t* other = placed[i];
    assert(i == 0 || placed[i - 1]->request->offset <= other->request->offset);
    if (!alive_together(wanted->request, other->request)) continue;
    size_t offset = other->request->offset;
    if (offset >= end && offset - end >= wanted->size &&
        offset - end < best_size) {
      best = end;
      best_size = offset - end;
    }
    if (offset + other->size > end) end = offset + other->size;
  }
  assert(best == SIZE_MAX || best + wanted->size <= end);
  return best != SIZE_MAX ? best : end;
}

static rabbet_status_t memory_place(memory_block_t* blocks,
                                    memory_block_t** placed, size_t count,
                                    size_t* out_total) {
  size_t total = 0;
  for (size_t i = 0; i < count; ++i) {
    memory_block_t* wanted = &blocks[i];
    assert(i == 0 || blocks[i - 1].size >= wanted->size);
    size_t offset = best_gap(wanted, placed, i), end = 0;
    if (!rabbet_checked_add(offset, wanted->size, &end) || end > PTRDIFF_MAX)
      return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                           "intermediate tensors need more memory than can be "
                           "addressed");
    assert(offset % RABBET_MEMORY_ALIGNMENT == 0);
    wanted->request->offset = offset;
    if (end > total) total = end;
    size_t at = i;
    for (; at > 0 && placed[at - 1]->request->offset > offset; --at)
      placed[at] = placed[at - 1];
    placed[at] = wanted;
  }
  *out_total = total;
  return rabbet_ok();
}

rabbet_status_t rabbet_plan_memory(rabbet_memory_request_t* requests,
                                   size_t count, rabbet_allocator_t allocator,
                                   size_t* out_total) {
  *out_total = 0;
  if (count == 0) return rabbet_ok();
  size_t bytes = 0;
  if (!rabbet_checked_mul(
          count, sizeof(memory_block_t) + sizeof(memory_block_t*), &bytes))
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE, "%zu tensors are too many",
                         count);
  memory_block_t* blocks = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(allocator, bytes, (void**)&blocks));
  size_t used = 0;
  rabbet_status_t status = rabbet_ok();
  for (size_t i = 0; i < count && rabbet_is_ok(status); ++i) {
    requests[i].offset = 0;
    if (requests[i].size == 0) continue;
    assert(requests[i].first <= requests[i].last);
    if (requests[i].size > PTRDIFF_MAX - RABBET_MEMORY_ALIGNMENT) {
      status =
          RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                        "a tensor of %zu bytes is too large", requests[i].size);
      break;
    }
    blocks[used++] = (memory_block_t){
        &requests[i],
        rabbet_align_up(requests[i].size, RABBET_MEMORY_ALIGNMENT)};
  }
  if (rabbet_is_ok(status)) {
    qsort(blocks, used, sizeof(*blocks), memory_block_compare);
    status = memory_place(blocks, (memory_block_t**)(blocks + count), used,
                          out_total);
  }
  rabbet_free(allocator, blocks);
  return status;
}
