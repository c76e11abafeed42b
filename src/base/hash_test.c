#include "base/hash.h"

#include "check.h"

// Values that xxHash's own tool prints for XXH3: timing caches and plans hold
// hashes, so that these must not change.
static void test_known_values(void** state) {
  (void)state;
  assert_true(rabbet_hash64("", 0) == 0x2d06800538d394c2u);
  assert_true(rabbet_hash64("abc", 3) == 0x78af5f94892f3950u);
  char text[33];
  rabbet_hash_print(rabbet_hash128("", 0), text);
  assert_string_equal(text, "99aa06d3014798d86001c324468d497f");
  rabbet_hash_print(rabbet_hash128("abc", 3), text);
  assert_string_equal(text, "06b05ab6733a618578af5f94892f3950");
}

static void test_print_pads(void** state) {
  (void)state;
  char text[33];
  rabbet_hash_print((rabbet_hash_t){.high = 0, .low = 0xa}, text);
  assert_string_equal(text, "0000000000000000000000000000000a");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_known_values),
      cmocka_unit_test(test_print_pads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
