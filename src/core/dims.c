#include <stdio.h>

#include "base/math.h"
#include "rabbet/types.h"

rabbet_status_t rabbet_dims_count(const rabbet_dims_t* dims,
                                  int64_t* out_count) {
  *out_count = 0;
  char text[192];
  if (dims->rank < 0 || dims->rank > RABBET_MAX_RANK)
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                         "a tensor of rank %d has no number of elements",
                         (int)dims->rank);
  bool empty = false;
  for (int i = 0; i < dims->rank; ++i) {
    if (dims->d[i] < 0)
      return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                           "dimension %d of shape %s is not known", i,
                           rabbet_dims_print(dims, text, sizeof(text)));
    empty |= dims->d[i] == 0;
  }
  if (empty) return rabbet_ok();
  int64_t count = 1;
  for (int i = 0; i < dims->rank; ++i) {
    if (!rabbet_checked_mul(count, dims->d[i], &count))
      return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                           "a tensor of shape %s has too many elements",
                           rabbet_dims_print(dims, text, sizeof(text)));
  }
  *out_count = count;
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
