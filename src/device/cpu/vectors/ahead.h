// How far ahead rows of packed weights are fetched while others are multiplied.
//
// Several rows that are read side by side are streams of their own, which end
// with the row: processors that find streams themselves lose them there. So
// each row fetches its own bytes, and at its end the begin of the row in its
// place among the next ones. They go to the second-level cache, which waits for
// more lines at a time than the first.
#ifndef RABBET_SRC_DEVICE_CPU_VECTORS_AHEAD_H_
#define RABBET_SRC_DEVICE_CPU_VECTORS_AHEAD_H_

#include <stdint.h>

enum { RABBET_AHEAD_BYTES = 8192 };  // of all rows that are read side by side

typedef struct rabbet_ahead_t {
  int64_t turn;       // the place in a row from which on `far` is for it
  int64_t near, far;  // bytes from a place to that to be fetched
} rabbet_ahead_t;

static inline rabbet_ahead_t rabbet_ahead(int64_t stride, int rows) {
  int64_t near = RABBET_AHEAD_BYTES / rows;
  int64_t groups = (near + stride - 1) / stride;
  if (stride > near)
    return (rabbet_ahead_t){stride - near, near, near + (rows - 1) * stride};
  return (rabbet_ahead_t){0, near, groups * rows * stride};
}

static inline int64_t rabbet_ahead_at(const rabbet_ahead_t* ahead, int64_t at) {
  return at < ahead->turn ? ahead->near : ahead->far;
}

static inline void rabbet_fetch_ahead(const void* bytes) {
  enum { READ = 0, SECOND_LEVEL = 2 };
  __builtin_prefetch(bytes, READ, SECOND_LEVEL);
}

#endif  // RABBET_SRC_DEVICE_CPU_VECTORS_AHEAD_H_
