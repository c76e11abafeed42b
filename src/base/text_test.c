#include "base/text.h"

#include <string.h>

#include "check.h"

static const char* const malformed[] = {
    "\x80",              // a continuation alone
    "x\xe2\x82",         // cut off
    "\xc0\xaf",          // longer than needed
    "\xed\xa0\x80",      // a surrogate
    "\xf4\x90\x80\x80",  // beyond U+10FFFF
    "\xff",
    "ok\xfe ok",
};

static void test_utf8(void** state) {
  (void)state;
  assert_true(rabbet_utf8_is_valid(""));
  assert_true(rabbet_utf8_is_valid("plain \x1b\n\x7f"));
  assert_true(rabbet_utf8_is_valid("\xc3\xa9 \xe2\x82\xac \xf0\x9f\x90\x87"));
  for (size_t i = 0; i < sizeof(malformed) / sizeof(malformed[0]); ++i)
    assert_false(rabbet_utf8_is_valid(malformed[i]));
  assert_int_equal(rabbet_utf8_length("\xe2\x82\xac"), 3);
  assert_int_equal(rabbet_utf8_length_within("\xe2\x82\xac", 3), 3);
  assert_int_equal(rabbet_utf8_length_within("\xe2\x82\xac", 2), 0);
  assert_int_equal(rabbet_utf8_length_within("", 0), 0);
}

static void test_check(void** state) {
  (void)state;
  RABBET_EXPECT_OK(rabbet_text_check("a name", NULL));
  RABBET_EXPECT_OK(rabbet_text_check("a name", "\xc3\xa9"));
  RABBET_EXPECT_ERROR(rabbet_text_check("the name of a layer", "conv\xff"),
                      RABBET_STATUS_INVALID_ARGUMENT,
                      "the name of a layer, 'conv\\xff', is not UTF-8 from "
                      "byte 4 on");
}

static void test_escape(void** state) {
  (void)state;
  static const struct {
    const char *text, *shown;
  } rows[] = {
      {"", ""},
      {"a\tb\nc \\x1b", "a\tb\nc \\x1b"},
      {"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x90\x87",
       "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x90\x87"},
      {"\x1b[2J\x07\r\x7f", "\\x1b[2J\\x07\\x0d\\x7f"},
      {"\xc2\x9b"
       "2J",
       "\\x9b2J"},  // C1's CSI
      {"a\xe2\x80\xae"
       "b",
       "a\\u202eb"},  // right to left from here
      {"\xe2\x81\xa6\xe2\x80\xa8", "\\u2066\\u2028"},
      {"x\xe2\x82", "x\\xe2\\x82"},
      {"\xff", "\\xff"},
  };
  for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
    char shown[64], again[64];
    assert_int_equal(rabbet_text_escape(rows[i].text, shown, sizeof(shown)),
                     strlen(rows[i].shown));
    assert_string_equal(shown, rows[i].shown);
    rabbet_text_escape(shown, again, sizeof(again));
    assert_string_equal(again, shown);
  }
}

static void test_escape_cuts_between_characters(void** state) {
  (void)state;
  char shown[6];
  assert_int_equal(rabbet_text_escape("ab\x1b", shown, sizeof(shown)), 6);
  assert_string_equal(shown, "ab");
  assert_int_equal(rabbet_text_escape("ab\x1b", NULL, 0), 6);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_utf8),
      cmocka_unit_test(test_check),
      cmocka_unit_test(test_escape),
      cmocka_unit_test(test_escape_cuts_between_characters),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
