#include <unistd.h>

#include "check.h"
#include "rabbet/logger.h"

static char last[4096];
static int calls;
static rabbet_severity_t last_severity;

static void remember(void* user_data, rabbet_severity_t severity,
                     const char* message) {
  ++*(int*)user_data;
  last_severity = severity;
  snprintf(last, sizeof(last), "%s", message);
}

static void test_filters(void** state) {
  (void)state;
  calls = 0;
  rabbet_logger_t logger = {&calls, remember, RABBET_SEVERITY_WARNING};
  rabbet_log(logger, RABBET_SEVERITY_INFO, "not %s", "this");
  assert_int_equal(calls, 0);
  rabbet_log(logger, RABBET_SEVERITY_WARNING, "layer '%s': %d", "a", 3);
  assert_int_equal(calls, 1);
  assert_string_equal(last, "layer 'a': 3");
  assert_int_equal(last_severity, RABBET_SEVERITY_WARNING);
  rabbet_log(logger, RABBET_SEVERITY_INTERNAL_ERROR, "worse");
  assert_int_equal(calls, 2);
}

static void test_empty_logger(void** state) {
  (void)state;
  rabbet_log((rabbet_logger_t){0}, RABBET_SEVERITY_INTERNAL_ERROR, "lost");
}

static void test_long_message(void** state) {
  (void)state;
  char text[3000];
  memset(text, 'x', sizeof(text) - 1);
  text[sizeof(text) - 1] = '\0';
  rabbet_logger_t logger = {&calls, remember, RABBET_SEVERITY_VERBOSE};
  rabbet_log(logger, RABBET_SEVERITY_INFO, "<%s>", text);
  assert_int_equal(strlen(last), strlen(text) + 2);
  assert_int_equal(last[strlen(last) - 1], '>');
}

static void test_messages_are_printable(void** state) {
  (void)state;
  char text[600];
  memset(text, '\x1b', sizeof(text) - 1);
  text[sizeof(text) - 1] = '\0';
  rabbet_logger_t logger = {&calls, remember, RABBET_SEVERITY_VERBOSE};
  rabbet_log(logger, RABBET_SEVERITY_INFO, "layer '%s'", "\x1b]0;x\x07");
  assert_string_equal(last, "layer '\\x1b]0;x\\x07'");
  rabbet_log(logger, RABBET_SEVERITY_INFO, "%s", text);
  assert_int_equal(strlen(last), 4 * strlen(text));
  assert_null(strchr(last, '\x1b'));
}

static void test_stderr(void** state) {
  (void)state;
  int ends[2], saved = dup(STDERR_FILENO);
  assert_int_equal(pipe(ends), 0);
  dup2(ends[1], STDERR_FILENO);
  rabbet_logger_t logger = rabbet_logger_stderr(RABBET_SEVERITY_INFO);
  rabbet_log(logger, RABBET_SEVERITY_ERROR, "no such layer");
  rabbet_log(logger, RABBET_SEVERITY_VERBOSE, "unsaid");
  dup2(saved, STDERR_FILENO);
  close(saved);
  close(ends[1]);
  char text[200] = {0};
  assert_true(read(ends[0], text, sizeof(text) - 1) > 0);
  close(ends[0]);
  assert_string_equal(text, "rabbet: error: no such layer\n");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_filters),
      cmocka_unit_test(test_empty_logger),
      cmocka_unit_test(test_long_message),
      cmocka_unit_test(test_messages_are_printable),
      cmocka_unit_test(test_stderr),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
