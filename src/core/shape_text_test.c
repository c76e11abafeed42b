#include "core/shape_text.h"

#include "check.h"
#include "faults/fault_allocator.h"

// The shape of one tensor.
static rabbet_status_t parse_dims(const char* dims, rabbet_dims_t* out_dims) {
  char text[200];
  snprintf(text, sizeof(text), "x:%s", dims);
  rabbet_arena_t arena;
  rabbet_arena_initialize(rabbet_allocator_system(), &arena);
  rabbet_named_dims_t* shapes = NULL;
  size_t count = 0;
  rabbet_status_t status =
      rabbet_shape_text_parse(text, &arena, &shapes, &count);
  if (rabbet_is_ok(status)) {
    assert_int_equal(count, 1);
    *out_dims = shapes[0].dims;
  }
  rabbet_arena_deinitialize(&arena);
  return status;
}

static void test_dims(void** state) {
  (void)state;
  static const struct {
    const char *text, *dims;
  } rows[] = {
      {"2x3x224x224", "(2, 3, 224, 224)"},
      {"5", "(5,)"},
      {"", "()"},
      {"scalar", "()"},
      {"Scalar", "()"},
      {"-1x3X0", "(-1, 3, 0)"},
      {"9223372036854775807", "(9223372036854775807,)"},
      {"1x2x3x4x5x6x7x8", "(1, 2, 3, 4, 5, 6, 7, 8)"},
  };
  for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
    rabbet_dims_t dims;
    char text[200];
    RABBET_EXPECT_OK(parse_dims(rows[i].text, &dims));
    assert_string_equal(rabbet_dims_print(&dims, text, sizeof(text)),
                        rows[i].dims);
  }
}

static void test_dims_errors(void** state) {
  (void)state;
  static const char* const rows[] = {
      "x",   "1x",  "x1",    "1xx2",  "a",
      "-2",  "-12", "1 x 2", "1x ",   "+1x",
      "0x-", "--1", "1x2.",  "1.5x2", "9223372036854775808"};
  for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
    rabbet_dims_t dims;
    char quoted[64];
    snprintf(quoted, sizeof(quoted), "'%s' is not a shape", rows[i]);
    RABBET_EXPECT_ERROR(parse_dims(rows[i], &dims),
                        RABBET_STATUS_INVALID_ARGUMENT, quoted);
  }
  rabbet_dims_t dims;
  RABBET_EXPECT_ERROR(parse_dims("1x2x3x4x5x6x7x8x9", &dims),
                      RABBET_STATUS_INVALID_ARGUMENT, "more than 8 dimensions");
}

// Names and dims, each in angle brackets, or the message.
static void describe(const char* text, char* out, size_t capacity) {
  rabbet_arena_t arena;
  rabbet_arena_initialize(rabbet_allocator_system(), &arena);
  rabbet_named_dims_t* shapes = NULL;
  size_t count = 0, size = 0;
  rabbet_status_t status =
      rabbet_shape_text_parse(text, &arena, &shapes, &count);
  out[0] = '\0';
  if (!rabbet_is_ok(status))
    snprintf(out, capacity, "%s", rabbet_status_message(status));
  for (size_t i = 0; i < count; ++i) {
    char dims[200];
    rabbet_dims_print(&shapes[i].dims, dims, sizeof(dims));
    size += (size_t)snprintf(out + size, capacity - size, "<%s%s%s>",
                             shapes[i].name, shapes[i].quoted ? "'" : "", dims);
  }
  rabbet_status_free(status);
  rabbet_arena_deinitialize(&arena);
}

static void test_lists(void** state) {
  (void)state;
  static const struct {
    const char *text, *shapes;
  } rows[] = {
      {"", ""},
      {"input:2x3", "<input(2, 3)>"},
      {"a:1x3,b:8", "<a(1, 3)><b(8,)>"},
      {"a:,b:scalar", "<a()><b()>"},
      {"a:", "<a()>"},
      {"scope:0:1x3", "<scope:0(1, 3)>"},
      {"'scope:0':1x3", "<scope:0'(1, 3)>"},
      {"'a,b':4,c:5", "<a,b'(4,)><c(5,)>"},
      {"'it''s':4", "<it's'(4,)>"},
      {"layer*/out:1x-1", "<layer*/out(1, -1)>"},
      {"'a**b':1", "<a**b'(1,)>"},
  };
  for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
    char found[400];
    describe(rows[i].text, found, sizeof(found));
    assert_string_equal(found, rows[i].shapes);
  }
}

static void test_list_errors(void** state) {
  (void)state;
  static const struct {
    const char *text, *part;
  } rows[] = {
      {"2x3", "'2x3' has no colon"},
      {",", "'' has no colon"},
      {"a:1,", "'' has no colon"},
      {"a:1,,b:2", "'' has no colon"},
      {":1x2", "no name before the colon"},
      {"'':1x2", "no name before the colon"},
      {"'a:1", "no closing quote"},
      {"'a'1", "expected a colon and dimensions after 'a'"},
      {"'a'", "expected a colon"},
      {"a:1xb", "tensor 'a': '1xb' is not a shape"},
      {"a:1,b:2,a:3", "'a' is given twice"},
      {"a*b*:1", "more than one *"},
  };
  for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
    char found[400];
    describe(rows[i].text, found, sizeof(found));
    if (!strstr(found, rows[i].part))
      fail_msg("%s: expected '%s', found '%s'", rows[i].text, rows[i].part,
               found);
  }
}

static void test_matches(void** state) {
  (void)state;
  static const struct {
    rabbet_named_dims_t pattern;
    const char* name;
    bool matches;
  } rows[] = {
      {{.name = "a"}, "a", true},
      {{.name = "a"}, "ab", false},
      {{.name = "*"}, "", true},
      {{.name = "*"}, "any", true},
      {{.name = "in*"}, "input", true},
      {{.name = "in*t"}, "input", true},
      {{.name = "in*"}, "out", false},
      {{.name = "ab*ba"}, "aba", false},
      {{.name = "ab*ba"}, "abba", true},
      {{.name = "in*", .quoted = true}, "input", false},
      {{.name = "in*", .quoted = true}, "in*", true},
  };
  for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i)
    assert_int_equal(rabbet_shape_text_matches(&rows[i].pattern, rows[i].name),
                     rows[i].matches);
}

static size_t render(const rabbet_named_dims_t* shape, char* out) {
  char* at = out;
  *at++ = '\'';
  for (const char* name = shape->name; *name; ++name) {
    *at++ = *name;
    if (*name == '\'') *at++ = '\'';
  }
  at += sprintf(at, "':%s", shape->dims.rank ? "" : "scalar");
  for (int i = 0; i < shape->dims.rank; ++i)
    at += sprintf(at, "%s%lld", i ? "x" : "", (long long)shape->dims.d[i]);
  return (size_t)(at - out);
}

// An accepted text can be written out and read back to the same shapes.
static void check_round_trip(const char* text, int* accepted) {
  rabbet_arena_t arena;
  rabbet_arena_initialize(rabbet_allocator_system(), &arena);
  rabbet_named_dims_t *shapes = NULL, *again = NULL;
  size_t count = 0, count_again = 0, size = 0;
  char written[1000] = "";
  rabbet_status_t status =
      rabbet_shape_text_parse(text, &arena, &shapes, &count);
  bool ok = rabbet_is_ok(status);
  rabbet_status_free(status);
  for (size_t i = 0; i < count; ++i) {
    if (i) written[size++] = ',';
    size += render(&shapes[i], written + size);
  }
  RABBET_EXPECT_OK(
      rabbet_shape_text_parse(written, &arena, &again, &count_again));
  assert_int_equal(count_again, count);
  for (size_t i = 0; i < count; ++i) {
    assert_string_equal(again[i].name, shapes[i].name);
    assert_memory_equal(&again[i].dims, &shapes[i].dims,
                        sizeof(shapes[i].dims));
  }
  *accepted += ok && count > 0;
  rabbet_arena_deinitialize(&arena);
}

static void test_random_text(void** state) {
  (void)state;
  static const char* const pieces[] = {"a",  ":", ",",  "x", "'", "''", "*",
                                       "-1", "1", "90", " ", "s", ":2", "b:3"};
  uint32_t random = 1;
  int accepted = 0;
  for (int i = 0; i < 50000; ++i) {
    char text[64] = "";
    for (int k = 0; k < 1 + i % 9; ++k) {
      random = random * 1664525u + 1013904223u;
      strcat(text, pieces[(random >> 16) % 14]);
    }
    check_round_trip(text, &accepted);
  }
  assert_in_range(accepted, 1000, 50000);  // not all refused at once
}

// Reads one word as a shell does: double quotes, and backslashes in them.
static void unshell(const char* word, char* out) {
  for (; *word; ++word) {
    if (*word == '"') continue;
    if (*word == '\\') ++word;
    *out++ = *word;
  }
  *out = '\0';
}

static void test_examples(void** state) {
  (void)state;
  static const struct {
    const char *name, *text;
  } cases[] = {
      {"x", "x:1x3x1"},
      {"model/x.0", "model/x.0:1x3x1"},
      {"scope:0", "\"'scope:0':1x3x1\""},
      {"a,b", "\"'a,b':1x3x1\""},
      {"it's", "\"'it''s':1x3x1\""},
      {"all*", "\"'all*':1x3x1\""},
      {"two words", "\"two words:1x3x1\""},
      {"$HOME\"`\\", "\"\\$HOME\\\"\\`\\\\:1x3x1\""},
  };
  rabbet_dims_t dims = {3, {-1, 3, -1}};
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
    rabbet_strbuf_t out;
    rabbet_strbuf_initialize(rabbet_allocator_system(), &out);
    rabbet_shape_text_example(cases[i].name, &dims, &out);
    assert_string_equal(rabbet_strbuf_text(&out), cases[i].text);
    char word[64];
    unshell(rabbet_strbuf_text(&out), word);
    rabbet_arena_t arena;
    rabbet_arena_initialize(rabbet_allocator_system(), &arena);
    rabbet_named_dims_t* shapes = NULL;
    size_t count = 0;
    RABBET_EXPECT_OK(rabbet_shape_text_parse(word, &arena, &shapes, &count));
    assert_int_equal(count, 1);
    assert_string_equal(shapes[0].name, cases[i].name);
    assert_true(rabbet_shape_text_matches(&shapes[0], cases[i].name));
    assert_int_equal(shapes[0].dims.d[1], 3);
    rabbet_arena_deinitialize(&arena);
    rabbet_strbuf_deinitialize(&out);
  }
}

static rabbet_status_t parse(rabbet_allocator_t allocator, void* user_data) {
  rabbet_arena_t arena;
  rabbet_arena_initialize(allocator, &arena);
  rabbet_named_dims_t* shapes = NULL;
  size_t count = 0;
  rabbet_status_t status =
      rabbet_shape_text_parse(user_data, &arena, &shapes, &count);
  rabbet_arena_deinitialize(&arena);
  return status;
}

static void test_faults(void** state) {
  (void)state;
  char text[5000] = "first:1x2x3", item[48];
  for (int i = 0; i < 200; ++i) {
    snprintf(item, sizeof(item), ",'name:%d':%dx-1", i, i);
    strcat(text, item);
  }
  assert_true(rabbet_fault_run(parse, text) >= 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_dims),        cmocka_unit_test(test_dims_errors),
      cmocka_unit_test(test_lists),       cmocka_unit_test(test_list_errors),
      cmocka_unit_test(test_matches),     cmocka_unit_test(test_faults),
      cmocka_unit_test(test_random_text), cmocka_unit_test(test_examples),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
