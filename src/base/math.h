// Checked arithmetic on sizes and dimensions.
#ifndef RABBET_SRC_BASE_MATH_H_
#define RABBET_SRC_BASE_MATH_H_

#include <assert.h>

#include "rabbet/base.h"

// True and *out set unless the result does not fit.
#define rabbet_checked_add(a, b, out) (!__builtin_add_overflow((a), (b), (out)))
#define rabbet_checked_sub(a, b, out) (!__builtin_sub_overflow((a), (b), (out)))
#define rabbet_checked_mul(a, b, out) (!__builtin_mul_overflow((a), (b), (out)))

static inline int64_t rabbet_min_i64(int64_t a, int64_t b) {
  return a < b ? a : b;
}
static inline int64_t rabbet_max_i64(int64_t a, int64_t b) {
  return a > b ? a : b;
}
// Rounds towards minus infinity; b != 0.
static inline int64_t rabbet_floordiv(int64_t a, int64_t b) {
  assert(b != 0);
  int64_t q = a / b;
  return q - (a % b != 0 && ((a < 0) != (b < 0)));
}
static inline int64_t rabbet_ceildiv(int64_t a, int64_t b) {
  assert(b != 0);
  int64_t q = a / b;
  return q + (a % b != 0 && ((a < 0) == (b < 0)));
}
// `alignment` is a power of two; the caller knows that it does not overflow.
static inline size_t rabbet_align_up(size_t value, size_t alignment) {
  assert(alignment > 0 && (alignment & (alignment - 1)) == 0);
  assert(value <= SIZE_MAX - (alignment - 1));
  return (value + alignment - 1) & ~(alignment - 1);
}

#endif  // RABBET_SRC_BASE_MATH_H_
