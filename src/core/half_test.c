#include <math.h>

#include "check.h"
#include "core/view.h"

// ---- An independent reading of the formats: a value by its definition, and
// rounding by search for the nearest value, ties to the even code.

typedef struct format_t {
  rabbet_dtype_t dtype;
  int exponent_bits, mantissa_bits, bias;
  bool infinity;   // the last binade holds infinity and NaNs
  bool nan;        // without infinity: the last code is a NaN
  uint32_t codes;  // of one sign
} format_t;

static const format_t formats[] = {
    {RABBET_DTYPE_HALF, 5, 10, 15, true, true, 0x8000},
    {RABBET_DTYPE_BF16, 8, 7, 127, true, true, 0x8000},
    {RABBET_DTYPE_FP8, 4, 3, 7, false, true, 0x80},
    {RABBET_DTYPE_FP4, 2, 1, 1, false, false, 8},
};
#define FORMATS (sizeof(formats) / sizeof(formats[0]))

static double value_of(const format_t* format, uint32_t code) {
  uint32_t exponent = code >> format->mantissa_bits;
  uint32_t fraction = code & ((1u << format->mantissa_bits) - 1);
  if (format->infinity && exponent == (1u << format->exponent_bits) - 1)
    return fraction ? NAN : INFINITY;
  if (!format->infinity && format->nan && code == format->codes - 1) return NAN;
  double significand =
      (double)fraction / (double)(1u << format->mantissa_bits) + (exponent > 0);
  return significand * pow(2, (exponent ? (int)exponent : 1) - format->bias);
}

static uint32_t load_code(rabbet_dtype_t dtype, const void* data) {
  return rabbet_dtype_bits(dtype) == 16 ? *(const uint16_t*)data
         : dtype == RABBET_DTYPE_FP4    ? *(const uint8_t*)data & 15u
                                        : *(const uint8_t*)data;
}

static void store_code(rabbet_dtype_t dtype, uint32_t code, void* data) {
  if (rabbet_dtype_bits(dtype) == 16) {
    *(uint16_t*)data = (uint16_t)code;
  } else {
    *(uint8_t*)data = (uint8_t)code;
  }
}

static void test_load_every_code(void** state) {
  (void)state;
  for (size_t f = 0; f < FORMATS; ++f) {
    for (uint32_t code = 0; code < 2 * formats[f].codes; ++code) {
      uint16_t data = 0;
      store_code(formats[f].dtype, code, &data);
      double expected = value_of(&formats[f], code % formats[f].codes);
      if (code >= formats[f].codes) expected = -expected;
      double found = rabbet_load_double(formats[f].dtype, &data, 0);
      if (isnan(expected)) {
        assert_true(isnan(found));
      } else {
        assert_true(found == expected && signbit(found) == signbit(expected));
      }
    }
  }
}

static void expect_store(const format_t* format, double value, uint32_t code) {
  uint16_t data = 0;
  rabbet_store_double(format->dtype, &data, 0, value);
  if (load_code(format->dtype, &data) != code)
    fail_msg("%s of %a: expected 0x%x, found 0x%x",
             rabbet_dtype_name(format->dtype), value, code,
             load_code(format->dtype, &data));
  rabbet_store_double(format->dtype, &data, 0, -value);
  assert_int_equal(load_code(format->dtype, &data), code | format->codes);
}

// Every value, every midpoint, and the doubles on both sides of a midpoint.
static void test_round_between_every_two_codes(void** state) {
  (void)state;
  for (size_t f = 0; f < FORMATS; ++f) {
    const format_t* format = &formats[f];
    for (uint32_t code = 0; code + 1 < format->codes; ++code) {
      double low = value_of(format, code), high = value_of(format, code + 1);
      if (isnan(low) || isinf(low)) break;
      expect_store(format, low, code);
      if (isnan(high) || isinf(high)) break;
      double middle = low + (high - low) / 2;
      expect_store(format, middle, code + code % 2);
      expect_store(format, nextafter(middle, low), code);
      expect_store(format, nextafter(middle, high), code + 1);
    }
  }
}

static void test_overflow(void** state) {
  (void)state;
  expect_store(&formats[0], 65504, 0x7bff);
  expect_store(&formats[0], nextafter(65520, 0), 0x7bff);
  expect_store(&formats[0], 65520, 0x7c00);
  expect_store(&formats[0], INFINITY, 0x7c00);
  expect_store(&formats[1], 3.4e38, 0x7f80);
  expect_store(&formats[1], 1e300, 0x7f80);
  expect_store(&formats[2], 448, 0x7e);
  expect_store(&formats[2], 1000, 0x7e);
  expect_store(&formats[2], INFINITY, 0x7e);
  expect_store(&formats[3], 1e9, 7);
  uint16_t data;
  for (size_t f = 0; f < 3; ++f) {
    rabbet_store_double(formats[f].dtype, &data, 0, NAN);
    assert_true(isnan(rabbet_load_double(formats[f].dtype, &data, 0)));
  }
}

static float float_of_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

// The fast float conversions against the ones just checked, on floats spread
// over all exponents and around every midpoint.
static void check_fast(float value) {
  uint16_t slow;
  rabbet_store_double(RABBET_DTYPE_HALF, &slow, 0, value);
  uint16_t fast = rabbet_float_to_half(value);
  if (isnan(value)) {
    assert_true(isnan(rabbet_half_to_float(fast)));
    assert_int_equal(fast & 0x8200, (signbit(value) ? 0x8000 : 0) | 0x200);
  } else if (fast != slow) {
    fail_msg("half of %a: 0x%x and 0x%x", (double)value, fast, slow);
  }
  rabbet_store_double(RABBET_DTYPE_BF16, &slow, 0, value);
  fast = rabbet_float_to_bf16(value);
  if (isnan(value)) {
    assert_true(isnan(rabbet_bf16_to_float(fast)));
  } else if (fast != slow) {
    fail_msg("bf16 of %a: 0x%x and 0x%x", (double)value, fast, slow);
  }
}

static void test_fast_conversions(void** state) {
  (void)state;
  for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 4093)
    check_fast(float_of_bits((uint32_t)bits));
  for (uint32_t code = 0; code < 0x7c00; ++code) {
    uint32_t middle;
    float low = rabbet_half_to_float((uint16_t)code);
    float high = rabbet_half_to_float((uint16_t)(code + 1));
    float half_way = code == 0x7bff ? 65520.0f : low + (high - low) / 2;
    memcpy(&middle, &half_way, sizeof(middle));
    for (uint32_t delta = 0; delta < 3; ++delta)
      check_fast(float_of_bits(middle - 1 + delta));
  }
  for (uint32_t code = 0; code < 0x7f80; ++code) {
    for (uint32_t delta = 0; delta < 3; ++delta)
      check_fast(float_of_bits((code << 16) + 0x7fff + delta));
  }
}

static void test_fast_back(void** state) {
  (void)state;
  for (uint32_t code = 0; code <= UINT16_MAX; ++code) {
    uint16_t data = (uint16_t)code;
    float half = rabbet_half_to_float(data), bf16 = rabbet_bf16_to_float(data);
    if (!isnan(half)) assert_int_equal(rabbet_float_to_half(half), code);
    if (!isnan(bf16)) assert_int_equal(rabbet_float_to_bf16(bf16), code);
    assert_int_equal(isnan(half), (code & 0x7fff) > 0x7c00);
    assert_int_equal(isnan(bf16), (code & 0x7fff) > 0x7f80);
  }
}

static void test_e8m0(void** state) {
  (void)state;
  const struct {
    double value;
    int code;
  } rows[] = {
      {1, 127},        {2, 128},  {0.5, 126}, {1.4, 127},    {1.6, 128},
      {1.5, 128},      {3, 128},  {0, 0},     {0x1p-140, 0}, {0x1p127, 254},
      {INFINITY, 254}, {-1, 255}, {NAN, 255}, {-0.0, 0},
  };
  for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
    uint8_t code = 99;
    rabbet_store_double(RABBET_DTYPE_E8M0, &code, 0, rows[i].value);
    assert_int_equal(code, rows[i].code);
  }
  for (int i = 0; i < 255; ++i) {
    uint8_t code = (uint8_t)i;
    assert_true(rabbet_load_double(RABBET_DTYPE_E8M0, &code, 0) ==
                pow(2, i - 127));
  }
}

static void test_integers_saturate_from_double(void** state) {
  (void)state;
  const struct {
    rabbet_dtype_t dtype;
    double value;
    int64_t stored;
  } rows[] = {
      {RABBET_DTYPE_INT8, 2.5, 2},
      {RABBET_DTYPE_INT8, 3.5, 4},
      {RABBET_DTYPE_INT8, -2.5, -2},
      {RABBET_DTYPE_INT8, 200, 127},
      {RABBET_DTYPE_INT8, -200, -128},
      {RABBET_DTYPE_UINT8, -3, 0},
      {RABBET_DTYPE_UINT8, 255.4, 255},
      {RABBET_DTYPE_UINT8, 256, 255},
      {RABBET_DTYPE_INT4, 9, 7},
      {RABBET_DTYPE_INT4, -9, -8},
      {RABBET_DTYPE_INT32, 1e12, INT32_MAX},
      {RABBET_DTYPE_INT32, -1e12, INT32_MIN},
      {RABBET_DTYPE_INT64, 1e30, INT64_MAX},
      {RABBET_DTYPE_INT64, -INFINITY, INT64_MIN},
      {RABBET_DTYPE_INT64, NAN, 0},
      {RABBET_DTYPE_BOOL, 0.25, 1},
      {RABBET_DTYPE_BOOL, -0.0, 0},
  };
  for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
    int64_t data = 0;
    rabbet_store_double(rows[i].dtype, &data, 0, rows[i].value);
    assert_true(rabbet_load_int64(rows[i].dtype, &data, 0) == rows[i].stored);
    assert_true(rabbet_load_double(rows[i].dtype, &data, 0) ==
                (double)rows[i].stored);
  }
}

static void test_integers_keep_low_bits(void** state) {
  (void)state;
  int64_t data = 0;
  rabbet_store_int64(RABBET_DTYPE_INT8, &data, 0, 300);
  assert_int_equal(rabbet_load_int64(RABBET_DTYPE_INT8, &data, 0), 44);
  rabbet_store_int64(RABBET_DTYPE_INT32, &data, 0, (int64_t)1 << 32 | 5);
  assert_int_equal(rabbet_load_int64(RABBET_DTYPE_INT32, &data, 0), 5);
  rabbet_store_int64(RABBET_DTYPE_BOOL, &data, 0, 256);
  assert_int_equal(rabbet_load_int64(RABBET_DTYPE_BOOL, &data, 0), 1);
  rabbet_store_int64(RABBET_DTYPE_INT64, &data, 0, INT64_MIN);
  assert_true(rabbet_load_int64(RABBET_DTYPE_INT64, &data, 0) == INT64_MIN);
}

static void test_nibbles(void** state) {
  (void)state;
  uint8_t data[4] = {0};
  for (int i = 0; i < 8; ++i)
    rabbet_store_int64(RABBET_DTYPE_INT4, data, i, i - 4);
  assert_int_equal(data[0], 0xdc);  // -4 low, -3 high
  for (int i = 0; i < 8; ++i)
    assert_int_equal(rabbet_load_int64(RABBET_DTYPE_INT4, data, i), i - 4);
  rabbet_store_double(RABBET_DTYPE_FP4, data, 1, -6.0);
  assert_true(rabbet_load_double(RABBET_DTYPE_FP4, data, 1) == -6.0);
  assert_int_equal(rabbet_load_int64(RABBET_DTYPE_INT4, data, 0), -4);
}

// Through double, 2^60 + 2^36 + 1 would lose the last bit and become a tie.
static void test_int64_rounds_once(void** state) {
  (void)state;
  float single;
  uint16_t bf16;
  int64_t above = ((int64_t)1 << 60) + ((int64_t)1 << 36) + 1;
  rabbet_store_int64(RABBET_DTYPE_FLOAT, &single, 0, above);
  assert_true(single == 0x1p60f + 0x1p37f);
  above = ((int64_t)1 << 60) + ((int64_t)1 << 52) + 1;
  rabbet_store_int64(RABBET_DTYPE_BF16, &bf16, 0, above);
  assert_true(rabbet_bf16_to_float(bf16) == 0x1p60f + 0x1p53f);
  rabbet_store_int64(RABBET_DTYPE_BF16, &bf16, 0, above - 1);
  assert_true(rabbet_bf16_to_float(bf16) == 0x1p60f);
  rabbet_store_int64(RABBET_DTYPE_BF16, &bf16, 0, -above);
  assert_true(rabbet_bf16_to_float(bf16) == -(0x1p60f + 0x1p53f));
}

static void test_load_int64_of_floats(void** state) {
  (void)state;
  float values[] = {2.9f, -2.9f, 1e30f, -1e30f, NAN};
  int64_t expected[] = {2, -2, INT64_MAX, INT64_MIN, 0};
  for (int i = 0; i < 5; ++i)
    assert_true(rabbet_load_int64(RABBET_DTYPE_FLOAT, values, i) ==
                expected[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_load_every_code),
      cmocka_unit_test(test_round_between_every_two_codes),
      cmocka_unit_test(test_overflow),
      cmocka_unit_test(test_fast_conversions),
      cmocka_unit_test(test_fast_back),
      cmocka_unit_test(test_e8m0),
      cmocka_unit_test(test_integers_saturate_from_double),
      cmocka_unit_test(test_integers_keep_low_bits),
      cmocka_unit_test(test_nibbles),
      cmocka_unit_test(test_int64_rounds_once),
      cmocka_unit_test(test_load_int64_of_floats),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
