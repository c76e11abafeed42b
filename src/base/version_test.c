#include "check.h"
#include "rabbet/base.h"

static void test_version(void** state) {
  (void)state;
  char text[64];
  snprintf(text, sizeof(text), "%d.%d.%d", RABBET_VERSION_MAJOR,
           RABBET_VERSION_MINOR, RABBET_VERSION_PATCH);
  assert_string_equal(rabbet_version(), text);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_version)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
