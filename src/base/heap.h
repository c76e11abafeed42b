// A binary heap of numbers; the least is first.
#ifndef RABBET_SRC_BASE_HEAP_H_
#define RABBET_SRC_BASE_HEAP_H_

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

// `data` has room for one more number.
static inline void rabbet_heap_push(int32_t* data, size_t* count,
                                    int32_t number) {
  size_t at = (*count)++;
  for (; at > 0 && number < data[(at - 1) / 2]; at = (at - 1) / 2)
    data[at] = data[(at - 1) / 2];
  data[at] = number;
}

// The heap is not empty.
static inline int32_t rabbet_heap_pop(int32_t* data, size_t* count) {
  assert(*count > 0);
  int32_t least = data[0], last = data[--*count];
  size_t at = 0;
  for (size_t child = 1; child < *count; child = 2 * at + 1) {
    if (child + 1 < *count && data[child + 1] < data[child]) ++child;
    if (last <= data[child]) break;
    data[at] = data[child];
    at = child;
  }
  data[at] = last;
  return least;
}

#endif  // RABBET_SRC_BASE_HEAP_H_
