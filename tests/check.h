// Checks of statuses for C tests. Each macro takes the status it is given.
#ifndef RABBET_TESTS_CHECK_H_
#define RABBET_TESTS_CHECK_H_

// cmocka.h asks for these four before itself.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rabbet/status.h"

// Cut where long, so that the failure's own memory needs no freeing.
static inline void rabbet_check_describe(rabbet_status_t status,
                                         char text[1024]) {
  snprintf(text, 1024, "%s: %s (%s:%d)",
           rabbet_status_code_name(rabbet_status_code(status)),
           rabbet_status_message(status),
           rabbet_status_file(status) ? rabbet_status_file(status) : "?",
           rabbet_status_line(status));
  rabbet_status_free(status);
}

static inline void rabbet_check_ok(rabbet_status_t status, const char* text,
                                   const char* file, int line) {
  if (rabbet_is_ok(status)) return;
  char found[1024];
  rabbet_check_describe(status, found);
  print_error("%s\n  expected ok, found %s\n", text, found);
  _fail(file, line);
}

static inline void rabbet_check_error(rabbet_status_t status,
                                      rabbet_status_code_t code,
                                      const char* part, const char* text,
                                      const char* file, int line) {
  bool same = rabbet_status_code(status) == code &&
              strstr(rabbet_status_message(status), part);
  char found[1024];
  rabbet_check_describe(status, found);
  if (same) return;
  print_error("%s\n  expected %s with '%s', found %s\n", text,
              rabbet_status_code_name(code), part, found);
  _fail(file, line);
}

#define RABBET_EXPECT_OK(expression) \
  rabbet_check_ok((expression), #expression, __FILE__, __LINE__)
// The code, and a part of the message.
#define RABBET_EXPECT_ERROR(expression, code, part)                       \
  rabbet_check_error((expression), (code), (part), #expression, __FILE__, \
                     __LINE__)

#endif  // RABBET_TESTS_CHECK_H_
