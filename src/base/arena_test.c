#include "base/arena.h"

#include "check.h"
#include "faults/fault_allocator.h"

static rabbet_status_t allocate_many(rabbet_allocator_t allocator,
                                     void* user_data) {
  (void)user_data;
  rabbet_arena_t arena;
  rabbet_arena_initialize(allocator, &arena);
  unsigned char* blocks[300];
  rabbet_status_t status = rabbet_ok();
  size_t made = 0;
  for (; made < 300 && rabbet_is_ok(status); ++made) {
    // Small pieces, and now and then one larger than any block.
    size_t size = made % 50 == 49 ? 3000000 : made;
    status = rabbet_arena_allocate(&arena, size, (void**)&blocks[made]);
    if (!rabbet_is_ok(status)) break;
    assert_int_equal((uintptr_t)blocks[made] % 16, 0);
    for (size_t i = 0; i < size; i += 97)
      assert_int_equal(blocks[made][i], 0);
    memset(blocks[made], (int)made, size);
  }
  for (size_t i = 1; i < made; ++i) {
    assert_int_equal(blocks[i][0], (unsigned char)i);
    assert_ptr_not_equal(blocks[i], blocks[i - 1]);
  }
  rabbet_arena_deinitialize(&arena);
  return status;
}

static void test_blocks_are_distinct(void** state) {
  (void)state;
  assert_true(rabbet_fault_run(allocate_many, NULL) > 6);
}

static void test_copies(void** state) {
  (void)state;
  rabbet_arena_t arena;
  rabbet_arena_initialize(rabbet_allocator_system(), &arena);
  int numbers[3] = {1, 2, 3};
  void* copy = NULL;
  const char* text = NULL;
  RABBET_EXPECT_OK(rabbet_arena_copy(&arena, numbers, sizeof(numbers), &copy));
  assert_memory_equal(copy, numbers, sizeof(numbers));
  assert_int_equal(arena.used_bytes, 16);
  RABBET_EXPECT_OK(rabbet_arena_copy(&arena, NULL, 0, &copy));
  assert_non_null(copy);
  RABBET_EXPECT_OK(rabbet_arena_strdup(&arena, "rabbet", &text));
  assert_string_equal(text, "rabbet");
  RABBET_EXPECT_OK(
      rabbet_arena_printf(&arena, &text, "%s-%d", "a long name", 42));
  assert_string_equal(text, "a long name-42");
  rabbet_arena_deinitialize(&arena);
}

static void test_overflow(void** state) {
  (void)state;
  rabbet_arena_t arena;
  rabbet_arena_initialize(rabbet_allocator_system(), &arena);
  void* block = NULL;
  RABBET_EXPECT_ERROR(
      rabbet_arena_allocate_array(&arena, SIZE_MAX / 4, 8, &block),
      RABBET_STATUS_OUT_OF_MEMORY, "elements of 8 bytes");
  RABBET_EXPECT_ERROR(rabbet_arena_allocate(&arena, SIZE_MAX, &block),
                      RABBET_STATUS_OUT_OF_MEMORY, "");
  RABBET_EXPECT_ERROR(rabbet_arena_allocate(&arena, SIZE_MAX - 20, &block),
                      RABBET_STATUS_OUT_OF_MEMORY, "");
  assert_null(block);
  rabbet_arena_deinitialize(&arena);
}

static void test_zero_bytes_are_an_empty_arena(void** state) {
  (void)state;
  rabbet_arena_t arena = {0};
  void* block = NULL;
  RABBET_EXPECT_ERROR(rabbet_arena_allocate(&arena, 1, &block),
                      RABBET_STATUS_INTERNAL, "no allocator");
  rabbet_arena_deinitialize(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_blocks_are_distinct),
      cmocka_unit_test(test_copies),
      cmocka_unit_test(test_overflow),
      cmocka_unit_test(test_zero_bytes_are_an_empty_arena),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
