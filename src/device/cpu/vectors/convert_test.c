// Conversions of flat memory against those of the core, for every pattern of
// bits that matters, in lengths that fill no vector.
#include "device/cpu/vectors/convert.h"

#include "check.h"
#include "core/view.h"
#include "device/cpu/parallel.h"

static void check_all_halves(rabbet_dtype_t dtype) {
  static uint16_t in[65536 + 3], back[65536 + 3];
  static float out[65536 + 3];
  for (int i = 0; i < 65536 + 3; ++i)
    in[i] = (uint16_t)i;
  rabbet_cpu_convert(dtype, in, RABBET_DTYPE_FLOAT, out, 65536 + 3);
  for (int i = 0; i < 65536 + 3; ++i) {
    float expected = dtype == RABBET_DTYPE_HALF ? rabbet_half_to_float(in[i])
                                                : rabbet_bf16_to_float(in[i]);
    if (expected != expected)
      assert_true(out[i] != out[i]);
    else
      assert_memory_equal(&expected, &out[i], 4);
  }
  rabbet_cpu_convert(RABBET_DTYPE_FLOAT, out, dtype, back, 65536 + 3);
  for (int i = 0; i < 65536 + 3; ++i) {
    if (out[i] == out[i]) assert_int_equal(back[i], in[i]);
  }
}

static void from_half(void** state) {
  (void)state;
  check_all_halves(RABBET_DTYPE_HALF);
}
static void from_bf16(void** state) {
  (void)state;
  check_all_halves(RABBET_DTYPE_BF16);
}

// Floats spread over all exponents, ties of both types among them.
static void from_float(void** state) {
  (void)state;
  enum { COUNT = 1 << 17 };
  static float in[COUNT];
  static uint16_t half[COUNT], bf16[COUNT];
  uint32_t bits = 12345;
  for (int i = 0; i < COUNT; ++i) {
    bits = bits * 1664525u + 1013904223u;
    uint32_t value = bits;
    if (i % 4 == 1) value &= 0xffff8000u;                     // ties of BF16
    if (i % 4 == 2) value = (value & 0xfffff000u) | 0x1000u;  // of HALF
    memcpy(&in[i], &value, 4);
  }
  rabbet_cpu_convert(RABBET_DTYPE_FLOAT, in, RABBET_DTYPE_HALF, half, COUNT);
  rabbet_cpu_convert(RABBET_DTYPE_FLOAT, in, RABBET_DTYPE_BF16, bf16, COUNT);
  for (int i = 0; i < COUNT; ++i) {
    if (in[i] != in[i]) {
      float a = rabbet_half_to_float(half[i]),
            b = rabbet_bf16_to_float(bf16[i]);
      assert_true(a != a && b != b);
      continue;
    }
    assert_int_equal(half[i], rabbet_float_to_half(in[i]));
    assert_int_equal(bf16[i], rabbet_float_to_bf16(in[i]));
  }
}

static void between_halves(void** state) {
  (void)state;
  const float values[] = {0, 1, -2.5f, 100, 65504, 1e-7f, 3.14159f, -0.1f, 7};
  uint16_t half[9], bf16[9], back[9];
  rabbet_cpu_convert(RABBET_DTYPE_FLOAT, values, RABBET_DTYPE_HALF, half, 9);
  rabbet_cpu_convert(RABBET_DTYPE_HALF, half, RABBET_DTYPE_BF16, bf16, 9);
  rabbet_cpu_convert(RABBET_DTYPE_BF16, bf16, RABBET_DTYPE_HALF, back, 9);
  for (int i = 0; i < 9; ++i) {
    assert_int_equal(bf16[i],
                     rabbet_float_to_bf16(rabbet_half_to_float(half[i])));
    assert_int_equal(back[i],
                     rabbet_float_to_half(rabbet_bf16_to_float(bf16[i])));
  }
  rabbet_cpu_convert(RABBET_DTYPE_HALF, half, RABBET_DTYPE_HALF, back, 9);
  assert_memory_equal(half, back, sizeof(half));
  assert_false(rabbet_cpu_can_convert(RABBET_DTYPE_INT32, RABBET_DTYPE_HALF));
}

// ---- Parallel loops --------------------------------------------------------

static void mark(void* context, int64_t begin, int64_t end) {
  unsigned char* marks = context;
  for (int64_t i = begin; i < end; ++i)
    ++marks[i];
}

static void ranges_cover_everything_once(void** state) {
  (void)state;
  static unsigned char marks[1000];
  int before = rabbet_cpu_set_threads(1);
  for (int threads = 1; threads <= 5; ++threads) {
    rabbet_cpu_set_threads(threads);
    for (int64_t count = 0; count < 1000; count += 37) {
      for (int64_t grain = 0; grain < 400; grain += 57) {
        memset(marks, 0, sizeof(marks));
        rabbet_cpu_parallel(count, grain, mark, marks);
        for (int64_t i = 0; i < 1000; ++i)
          assert_int_equal(marks[i], i < count);
      }
    }
  }
  rabbet_cpu_restore_threads(before);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(from_half),
      cmocka_unit_test(from_bf16),
      cmocka_unit_test(from_float),
      cmocka_unit_test(between_halves),
      cmocka_unit_test(ranges_cover_everything_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
