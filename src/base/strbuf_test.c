#include "base/strbuf.h"

#include "check.h"
#include "faults/fault_allocator.h"

static rabbet_status_t build_text(rabbet_allocator_t allocator,
                                  void* user_data) {
  (void)user_data;
  rabbet_strbuf_t text;
  rabbet_strbuf_initialize(allocator, &text);
  assert_string_equal(rabbet_strbuf_text(&text), "");
  for (int i = 0; i < 100; ++i)
    rabbet_strbuf_printf(&text, "%03d,", i);
  rabbet_strbuf_append(&text, "end", 3);
  rabbet_status_t status = rabbet_strbuf_status(&text);
  if (rabbet_is_ok(status)) {
    assert_int_equal(text.size, 403);
    assert_int_equal(strlen(text.data), 403);
    assert_memory_equal(text.data, "000,001,", 8);
    assert_string_equal(text.data + 396, "099,end");
  }
  rabbet_strbuf_deinitialize(&text);
  return status;
}

static void test_build(void** state) {
  (void)state;
  rabbet_fault_run(build_text, NULL);
}

static void test_bytes(void** state) {
  (void)state;
  rabbet_strbuf_t bytes;
  rabbet_strbuf_initialize(rabbet_allocator_system(), &bytes);
  rabbet_strbuf_append(&bytes, "a\0b", 3);
  rabbet_strbuf_append(&bytes, NULL, 0);
  assert_int_equal(bytes.size, 3);
  assert_memory_equal(bytes.data, "a\0b", 4);
  rabbet_strbuf_deinitialize(&bytes);
  assert_null(bytes.data);
}

static void test_integers(void** state) {
  (void)state;
  static const int64_t values[] = {
      0, 7, -1, 10, -10, 1234567890123, INT64_MAX, INT64_MIN};
  rabbet_strbuf_t digits, printed;
  rabbet_strbuf_initialize(rabbet_allocator_system(), &digits);
  rabbet_strbuf_initialize(rabbet_allocator_system(), &printed);
  for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); ++i) {
    rabbet_strbuf_integer(&digits, values[i]);
    rabbet_strbuf_append(&digits, " ", 1);
    rabbet_strbuf_printf(&printed, "%lld ", (long long)values[i]);
  }
  assert_string_equal(rabbet_strbuf_text(&digits),
                      rabbet_strbuf_text(&printed));
  rabbet_strbuf_deinitialize(&digits);
  rabbet_strbuf_deinitialize(&printed);
}

static void test_json_string(void** state) {
  (void)state;
  static const struct {
    const char *text, *json;
  } rows[] = {
      {"", "\"\""},
      {"plain", "\"plain\""},
      {"a\"b\\c/d", "\"a\\\"b\\\\c/d\""},
      {"\n\r\t\b\x01\x7f", "\"\\n\\r\\t\\u0008\\u0001\\u007f\""},
      {"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x90\x87",
       "\"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x90\x87\""},
      // Lone continuation, truncated, overlong, surrogate, beyond U+10FFFF.
      {"\x80", "\"\xef\xbf\xbd\""},
      {"x\xe2\x82", "\"x\xef\xbf\xbd\xef\xbf\xbd\""},
      {"\xc0\xaf", "\"\xef\xbf\xbd\xef\xbf\xbd\""},
      {"\xed\xa0\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""},
      {"\xf4\x90\x80\x80",
       "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""},
      {"\xff", "\"\xef\xbf\xbd\""},
      // A C1 control and an override of direction.
      {"\xc2\x9b", "\"\\u009b\""},
      {"\xe2\x80\xae", "\"\\u202e\""},
  };
  for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
    rabbet_strbuf_t text;
    rabbet_strbuf_initialize(rabbet_allocator_system(), &text);
    rabbet_strbuf_json_string(&text, rows[i].text);
    RABBET_EXPECT_OK(rabbet_strbuf_status(&text));
    assert_string_equal(rabbet_strbuf_text(&text), rows[i].json);
    rabbet_strbuf_deinitialize(&text);
  }
}

static void test_text_of_others(void** state) {
  (void)state;
  rabbet_strbuf_t text;
  rabbet_strbuf_initialize(rabbet_allocator_system(), &text);
  rabbet_strbuf_line(&text, "a\n\tb\x1b\xff");
  assert_string_equal(rabbet_strbuf_text(&text), "a\\n\\tb\\x1b\\xff");
  rabbet_strbuf_printf(&text, "\n%s\n", "\x1b[1m");
  rabbet_strbuf_escape(&text);
  assert_string_equal(rabbet_strbuf_text(&text),
                      "a\\n\\tb\\x1b\\xff\n\\x1b[1m\n");
  assert_int_equal(text.size, strlen(text.data));
  rabbet_strbuf_deinitialize(&text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_build),          cmocka_unit_test(test_bytes),
      cmocka_unit_test(test_integers),       cmocka_unit_test(test_json_string),
      cmocka_unit_test(test_text_of_others),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
