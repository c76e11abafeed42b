#include "base/vec.h"

#include <assert.h>

#include "base/math.h"

#define RABBET_VEC_FIRST_CAPACITY 8

rabbet_status_t rabbet_vec_reserve(rabbet_allocator_t allocator, void** data,
                                   size_t* capacity, size_t count, size_t extra,
                                   size_t element_size) {
  assert(count <= *capacity && element_size > 0);
  size_t needed = 0;
  if (rabbet_checked_add(count, extra, &needed) && needed <= *capacity)
    return rabbet_ok();
  size_t grown = *capacity ? *capacity : RABBET_VEC_FIRST_CAPACITY;
  while (grown < needed) {
    if (!rabbet_checked_mul(grown, (size_t)2, &grown)) break;
  }
  size_t bytes = 0;
  if (grown < needed || !rabbet_checked_add(count, extra, &needed) ||
      !rabbet_checked_mul(grown, element_size, &bytes))
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_MEMORY,
                         "no memory for %zu and %zu more elements of %zu bytes",
                         count, extra, element_size);
  RABBET_RETURN_IF_ERROR(rabbet_reallocate(allocator, bytes, data));
  *capacity = grown;
  return rabbet_ok();
}
