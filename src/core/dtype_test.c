#include "check.h"
#include "core/view.h"
#include "rabbet/types.h"

static void test_table(void** state) {
  (void)state;
  static const int bits[RABBET_DTYPE_COUNT] = {32, 16, 8, 32, 8, 8,  8,
                                               16, 64, 4, 4,  8, 64, 4};
  for (int i = 0; i < RABBET_DTYPE_COUNT; ++i) {
    rabbet_dtype_t dtype = (rabbet_dtype_t)i, parsed;
    assert_int_equal(rabbet_dtype_bits(dtype), bits[i]);
    RABBET_EXPECT_OK(rabbet_dtype_parse(rabbet_dtype_name(dtype), &parsed));
    assert_int_equal(parsed, dtype);
    assert_int_equal(rabbet_dtype_is_float(dtype) +
                         rabbet_dtype_is_integer(dtype) +
                         (dtype == RABBET_DTYPE_BOOL),
                     1);
  }
}

static void test_unknown_numbers(void** state) {
  (void)state;
  int numbers[] = {-1, -5, RABBET_DTYPE_COUNT, 1000};
  for (int i = 0; i < 4; ++i) {
    assert_string_equal(rabbet_dtype_name((rabbet_dtype_t)numbers[i]), "?");
    assert_int_equal(rabbet_dtype_bits((rabbet_dtype_t)numbers[i]), 0);
  }
}

static void test_other_names(void** state) {
  (void)state;
  static const struct {
    const char* text;
    rabbet_dtype_t dtype;
  } rows[] = {
      {"FP32", RABBET_DTYPE_FLOAT},        {"float32", RABBET_DTYPE_FLOAT},
      {"fp16", RABBET_DTYPE_HALF},         {"float16", RABBET_DTYPE_HALF},
      {"bfloat16", RABBET_DTYPE_BF16},     {"int64", RABBET_DTYPE_INT64},
      {"Bool", RABBET_DTYPE_BOOL},         {"uint8", RABBET_DTYPE_UINT8},
      {"float8_e4m3fn", RABBET_DTYPE_FP8}, {"float64", RABBET_DTYPE_DOUBLE},
  };
  for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
    rabbet_dtype_t dtype;
    RABBET_EXPECT_OK(rabbet_dtype_parse(rows[i].text, &dtype));
    assert_int_equal(dtype, rows[i].dtype);
  }
}

static void test_parse_errors(void** state) {
  (void)state;
  rabbet_dtype_t dtype = RABBET_DTYPE_FLOAT;
  RABBET_EXPECT_ERROR(rabbet_dtype_parse("flaot", &dtype),
                      RABBET_STATUS_INVALID_ARGUMENT, "did you mean 'FLOAT'");
  assert_int_equal(dtype, RABBET_DTYPE_NONE);
  RABBET_EXPECT_ERROR(rabbet_dtype_parse("", &dtype),
                      RABBET_STATUS_INVALID_ARGUMENT, "'' is not a data type");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_table),
      cmocka_unit_test(test_unknown_numbers),
      cmocka_unit_test(test_other_names),
      cmocka_unit_test(test_parse_errors),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
