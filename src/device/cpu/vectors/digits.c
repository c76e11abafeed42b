#include "device/cpu/vectors/digits.h"

#include <assert.h>
#include <stddef.h>

#include "device/cpu/cpu.h"

const rabbet_digit_loops_t* rabbet_digits(void) {
#if defined(__x86_64__)
  if (rabbet_cpu_has_vnni()) return &rabbet_digits_vnni;
  if (rabbet_cpu_isa() >= RABBET_CPU_AVX2)
    return rabbet_cpu_has_quick_small_numbers() ? &rabbet_digits_avx2
                                                : &rabbet_digits_avx2_halves;
#endif
  return NULL;
}

bool rabbet_digits_fit(const rabbet_digit_loops_t* loops,
                       rabbet_packed_type_t type, int count) {
  return loops && loops->dots[type][count == 1][0];
}

bool rabbet_digits_convert(const rabbet_digit_loops_t* loops,
                           rabbet_packed_type_t type, const rabbet_packed_t* w,
                           int count, const float* x,
                           rabbet_digits_t* out_digits) {
  return loops->convert(type, w, count, x, out_digits);
}

void rabbet_digits_dots(const rabbet_digit_loops_t* loops,
                        rabbet_packed_type_t type, const rabbet_packed_t* w,
                        const rabbet_packed_zeros_t* zeros, int count,
                        const rabbet_digits_t* x, int64_t begin, int64_t end,
                        float* y) {
  bool has_blocks = w->block < RABBET_DIGIT_CHUNK && w->block < w->depth;
  assert(rabbet_digits_fit(loops, type, count));
  loops->dots[type][count == 1][has_blocks](w, zeros, x, begin, end, y);
}
