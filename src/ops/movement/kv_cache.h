// Positions of an update's elements in a cache of keys or values.
#ifndef RABBET_SRC_OPS_MOVEMENT_KV_CACHE_H_
#define RABBET_SRC_OPS_MOVEMENT_KV_CACHE_H_

#include "ops/op.h"

// The cache is [batch, outer, extent, row], the update [batch, outer, count,
// row]: `extent` and `count` are those of the axis that is written along.
typedef struct rabbet_kv_cache_rows_t {
  int64_t batch, outer, extent, count, row;
} rabbet_kv_cache_rows_t;

// For known shapes; OUT_OF_RANGE if they do not match. `indices` may be NULL.
RABBET_PRIVATE_API rabbet_status_t
rabbet_kv_cache_resolve(const rabbet_dims_t* cache, const rabbet_dims_t* update,
                        const rabbet_dims_t* indices, int64_t axis,
                        rabbet_kv_cache_rows_t* out_rows);

// Position along the axis of row `i` of an update that begins at `first`; -1:
// the row is not stored. Positions out of range are rejected first, so that
// `first` + `i` cannot overflow.
static inline int64_t rabbet_kv_cache_place(const rabbet_kv_cache_rows_t* rows,
                                            bool circular, int64_t first,
                                            int64_t i) {
  if (circular) {
    int64_t at = first % rows->extent;
    at = (at < 0 ? at + rows->extent : at) + i;
    return at < rows->extent ? at : at - rows->extent;
  }
  if (first < -rows->count || first >= rows->extent) return -1;
  int64_t at = first + i;
  return at < 0 || at >= rows->extent ? -1 : at;
}

#endif  // RABBET_SRC_OPS_MOVEMENT_KV_CACHE_H_
