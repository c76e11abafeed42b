#include "base/map.h"

#include "check.h"
#include "faults/fault_allocator.h"

#define MANY 1000

static rabbet_status_t fill(rabbet_allocator_t allocator, void* user_data) {
  (void)user_data;
  static char keys[MANY][8];
  rabbet_map_t map;
  rabbet_map_initialize(allocator, &map);
  rabbet_status_t status = rabbet_ok();
  size_t set = 0;
  for (; set < MANY; ++set) {
    snprintf(keys[set], sizeof(keys[set]), "k%zu", set);
    status = rabbet_map_set(&map, keys[set], strlen(keys[set]), keys[set]);
    if (!rabbet_is_ok(status)) break;
  }
  assert_int_equal(map.live, set);
  for (size_t i = 0; i < set; ++i)
    assert_ptr_equal(rabbet_map_get_string(&map, keys[i]), keys[i]);
  assert_null(rabbet_map_get_string(&map, "absent"));
  rabbet_map_deinitialize(&map);
  return status;
}

static void test_fill(void** state) {
  (void)state;
  rabbet_fault_run(fill, NULL);
}

static void test_replace_and_remove(void** state) {
  (void)state;
  int one, two;
  rabbet_map_t map;
  rabbet_map_initialize(rabbet_allocator_system(), &map);
  assert_null(rabbet_map_get_string(&map, "a"));
  rabbet_map_remove(&map, "a", 1);
  RABBET_EXPECT_OK(rabbet_map_set(&map, "a", 1, &one));
  RABBET_EXPECT_OK(rabbet_map_set(&map, "b", 1, &one));
  RABBET_EXPECT_OK(rabbet_map_set(&map, "a", 1, &two));
  assert_int_equal(map.live, 2);
  assert_ptr_equal(rabbet_map_get_string(&map, "a"), &two);
  rabbet_map_remove(&map, "a", 1);
  rabbet_map_remove(&map, "a", 1);
  assert_int_equal(map.live, 1);
  assert_null(rabbet_map_get_string(&map, "a"));
  assert_ptr_equal(rabbet_map_get_string(&map, "b"), &one);
  rabbet_map_deinitialize(&map);
}

static void test_any_bytes(void** state) {
  (void)state;
  int one, two, three;
  rabbet_map_t map;
  rabbet_map_initialize(rabbet_allocator_system(), &map);
  RABBET_EXPECT_OK(rabbet_map_set(&map, "a\0b", 3, &one));
  RABBET_EXPECT_OK(rabbet_map_set(&map, "a\0c", 3, &two));
  RABBET_EXPECT_OK(rabbet_map_set(&map, "", 0, &three));
  assert_ptr_equal(rabbet_map_get(&map, "a\0b", 3), &one);
  assert_ptr_equal(rabbet_map_get(&map, "a\0c", 3), &two);
  assert_ptr_equal(rabbet_map_get(&map, "", 0), &three);
  assert_null(rabbet_map_get(&map, "a", 1));
  rabbet_map_deinitialize(&map);
}

// Against a plain array; keys are freed once removed, as their owners may.
static void test_against_model(void** state) {
  (void)state;
  enum { KEYS = 61 };
  char* keys[KEYS] = {0};
  int order[KEYS], count = 0;
  rabbet_map_t map;
  rabbet_map_initialize(rabbet_allocator_system(), &map);
  uint32_t random = 12345;
  for (int step = 0; step < 20000; ++step) {
    random = random * 1664525u + 1013904223u;
    int k = (int)((random >> 8) % KEYS);
    char name[16];
    snprintf(name, sizeof(name), "%d", k);
    if (keys[k]) {
      rabbet_map_remove(&map, name, strlen(name));
      free(keys[k]);
      keys[k] = NULL;
      int at = 0;
      while (order[at] != k)
        ++at;
      memmove(order + at, order + at + 1, (size_t)(--count - at) * sizeof(int));
    } else {
      keys[k] = strdup(name);
      order[count++] = k;
      RABBET_EXPECT_OK(rabbet_map_set(&map, keys[k], strlen(keys[k]), keys[k]));
    }
    int seen = 0;
    for (size_t i = 0; i < map.count; ++i) {
      if (map.entries[i].value)
        assert_ptr_equal(map.entries[i].value, keys[order[seen++]]);
    }
    assert_int_equal(seen, count);
    assert_int_equal(map.live, count);
    assert_ptr_equal(rabbet_map_get_string(&map, name), keys[k]);
  }
  assert_true(map.capacity < 1000);  // removed entries do not pile up
  rabbet_map_deinitialize(&map);
  for (int k = 0; k < KEYS; ++k)
    free(keys[k]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_fill),
      cmocka_unit_test(test_replace_and_remove),
      cmocka_unit_test(test_any_bytes),
      cmocka_unit_test(test_against_model),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
