#include "base/suggest.h"

#include "check.h"

static const char* const names[] = {
    "Conv", "ConvTranspose", "MatMul",     "Softmax", "LogSoftmax",
    "Relu", "Reshape",       "ReduceMean", NULL,      "Slice"};
#define COUNT (sizeof(names) / sizeof(names[0]))

static const char* name_at(const void* list, size_t index) {
  return ((const char* const*)list)[index];
}

static void expect(const char* word, const char* text) {
  char buffer[200];
  assert_string_equal(
      rabbet_suggest_print(word, name_at, names, COUNT, buffer, sizeof(buffer)),
      text);
}

static void test_near(void** state) {
  (void)state;
  expect("Matmul", "; did you mean 'MatMul'?");
  expect("SILCE", "; did you mean 'Slice'?");  // neighbours exchanged
  expect("Rehsape", "; did you mean 'Reshape'?");
  expect("Sofmax", "; did you mean 'Softmax'?");
  expect("soft", "; did you mean 'Softmax' or 'LogSoftmax'?");
  expect("ConvTransposed", "; did you mean 'ConvTranspose' or 'Conv'?");
}

static void test_far(void** state) {
  (void)state;
  expect("", "");
  expect("x", "");
  expect("CircPad", "");
  expect("an extremely long name that nobody would ever type as an operator's",
         "");
}

static void test_nearest_three_in_order(void** state) {
  (void)state;
  static const char* const near[] = {"abcdxxx", "abcdefx", "abcdexx", "abcdefg",
                                     "zbcdefg"};
  const char* found[RABBET_SUGGEST_MAX];
  assert_int_equal(rabbet_suggest("abcdefg", name_at, near, 5, found), 3);
  assert_string_equal(found[0], "abcdefg");
  assert_string_equal(found[1], "abcdefx");
  assert_string_equal(found[2], "zbcdefg");
}

static void test_small_buffer(void** state) {
  (void)state;
  char buffer[12];
  rabbet_suggest_print("Matmul", name_at, names, COUNT, buffer, sizeof(buffer));
  assert_string_equal(buffer, "; did you m");
  assert_string_equal(
      rabbet_suggest_print("Matmul", name_at, names, COUNT, NULL, 0), "");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_near),
      cmocka_unit_test(test_far),
      cmocka_unit_test(test_nearest_three_in_order),
      cmocka_unit_test(test_small_buffer),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
