#include <assert.h>
#include <stdio.h>

#include "base/math.h"
#include "rabbet/types.h"

// More than any memory holds, and so few that sums and small multiples of
// strides and sizes in bytes stay far from overflow, also of tensors that are
// empty but have large extents beside those of 0.
#define RABBET_MAX_ELEMENTS (INT64_C(1) << 48)

rabbet_status_t rabbet_dims_count(const rabbet_dims_t* dims,
                                  int64_t* out_count) {
  *out_count = 0;
  char text[192];
  if (dims->rank < 0 || dims->rank > RABBET_MAX_RANK)
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                         "a tensor of rank %d has no number of elements",
                         (int)dims->rank);
  int64_t span = 1;  // with extents of 0 taken for 1
  bool empty = false, large = false;
  for (int i = 0; i < dims->rank; ++i) {
    if (dims->d[i] < 0)
      return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                           "dimension %d of shape %s is not known", i,
                           rabbet_dims_print(dims, text, sizeof(text)));
    empty |= dims->d[i] == 0;
    int64_t factor = dims->d[i] ? dims->d[i] : 1;
    large |=
        !rabbet_checked_mul(span, factor, &span) || span > RABBET_MAX_ELEMENTS;
  }
  if (large)
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                         "a tensor of shape %s is too large: it has more than "
                         "2^48 elements (an extent of 0 counts as 1)",
                         rabbet_dims_print(dims, text, sizeof(text)));
  assert(span >= 1 && span <= RABBET_MAX_ELEMENTS);
  *out_count = empty ? 0 : span;
  return rabbet_ok();
}

const char* rabbet_dims_print(const rabbet_dims_t* dims, char* buffer,
                              size_t capacity) {
  if (capacity == 0) return "";
  if (dims->rank < 0 || dims->rank > RABBET_MAX_RANK) {
    snprintf(buffer, capacity, "(unknown rank)");
    return buffer;
  }
  size_t size = (size_t)snprintf(buffer, capacity, "(");
  for (int i = 0; i < dims->rank && size < capacity; ++i)
    size += (size_t)snprintf(buffer + size, capacity - size, "%s%lld",
                             i ? ", " : "", (long long)dims->d[i]);
  if (size < capacity)
    snprintf(buffer + size, capacity - size, dims->rank == 1 ? ",)" : ")");
  return buffer;
}
