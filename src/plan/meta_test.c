// Bytes of META that protobuf-c must not see, and texts that are checked.
#include "plan_bytes.h"
#include "plan_samples.h"

#define SYSTEM rabbet_allocator_system()

static void expect_meta(const uint8_t* meta, size_t size,
                        rabbet_status_code_t code, const char* message) {
  plan_bytes_t parts = {{(const uint8_t*)"null\nnull", meta, NULL, NULL},
                        {9, size, 0, 0}};
  rabbet_plan_t* plan = NULL;
  size_t whole = 0;
  uint8_t* data = plan_bytes_join(&parts, &whole);
  RABBET_EXPECT_ERROR(rabbet_plan_read(data, whole, NULL, SYSTEM, &plan), code,
                      message);
  free(data);
}

#define EXPECT_META(bytes, code, message)                 \
  expect_meta((const uint8_t*)(bytes), sizeof(bytes) - 1, \
              RABBET_STATUS_##code, "section META: " message)

static void malformed(void** state) {
  (void)state;
  EXPECT_META("\x08", DATA_LOSS,
              "a number is cut off at byte 1 of message "
              "'Meta'");
  EXPECT_META("\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", DATA_LOSS,
              "a number is too long");
  EXPECT_META(
      "\x0a\x05"
      "abc",
      DATA_LOSS, "a field reaches past the end");
  EXPECT_META("\x0b", DATA_LOSS, "an unknown wire type");
  EXPECT_META("\x0f", DATA_LOSS, "an unknown wire type");
  // Field 100 of Meta; field 9 of the first sequence's first Expr.
  EXPECT_META("\xa0\x06\x01", INCOMPATIBLE, "message 'Meta' has a field 100");
  EXPECT_META("\xb2\x01\x04\x12\x02\x48\x01", INCOMPATIBLE,
              "message 'Expr' has a field 9 at byte 5");
  EXPECT_META("\xb2\x01\x04\x12\x03\x08\x01", DATA_LOSS,
              "a field reaches past the end");
  // A name that is a number; a name that is not UTF-8.
  EXPECT_META("\x08\x01", DATA_LOSS, "a field is not of the type");
  EXPECT_META("\x0a\x01\xff", DATA_LOSS, "a name is not valid UTF-8");
}

// Three bytes of META each, some hundred bytes of memory.
static void too_much_memory(void** state) {
  (void)state;
  size_t count = (size_t)8 << 20;
  uint8_t* meta = malloc(3 * count);
  assert_non_null(meta);
  for (size_t i = 0; i < count; ++i) {
    meta[3 * i] = 0xb2;  // Meta.sequences
    meta[3 * i + 1] = 1;
    meta[3 * i + 2] = 0;
  }
  expect_meta(meta, 3 * count, RABBET_STATUS_DATA_LOSS,
              "the metadata would take more than 1073741824 bytes of memory");
  free(meta);
}

// The report is the only text that must be JSON.
static rabbet_status_t verify_report(const char* report) {
  maker_t maker;
  maker_begin(&maker, SYSTEM);
  sample_static(&maker);
  maker.steps[0].report_json = report;
  rabbet_status_t status = rabbet_plan_verify(maker.plan, 24);
  maker_end(&maker);
  return status;
}

static void reports(void** state) {
  (void)state;
  static const char* const good[] = {
      "[]",
      "{}",
      " [ ] ",
      "null",
      "-0.5e+10",
      "\"\\u00e4\\n\"",
      "[1, true, false, {\"a\": [[], {}], \"b\": \"c\"}]",
      "[[[[[[[[1]]]]]]]]",
  };
  static const char* const bad[] = {
      "",    "[",    "]",       "[1 2]", "{\"a\"}",   "{1: 2}",
      "01",  "1.",   "+1",      "nul",   "\"\\x\"",   "\"\\u12\"",
      "\"a", "[1],", "[1]]",    "{]",    "[\"\n\"]",  "{\"a\": 1,}",
      "- 1", "1e",   "\"a\" b", "[,]",   "{\"a\": }", "\\",
  };
  char deep[200];
  for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); ++i)
    RABBET_EXPECT_OK(verify_report(good[i]));
  for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i)
    RABBET_EXPECT_ERROR(verify_report(bad[i]), RABBET_STATUS_DATA_LOSS,
                        "its report is not JSON");
  memset(deep, '[', 65);
  memset(deep + 65, ']', 65);
  deep[130] = 0;
  RABBET_EXPECT_ERROR(verify_report(deep), RABBET_STATUS_DATA_LOSS,
                      "its report is not JSON");
  memmove(deep, deep + 1, 128);
  deep[128] = 0;
  RABBET_EXPECT_OK(verify_report(deep));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(malformed),
      cmocka_unit_test(too_much_memory),
      cmocka_unit_test(reports),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
