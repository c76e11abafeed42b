#include "rabbet/allocator.h"

#include "check.h"
#include "faults/fault_allocator.h"

static void test_allocate_is_zeroed_and_aligned(void** state) {
  (void)state;
  rabbet_allocator_t system = rabbet_allocator_system();
  unsigned char* block = NULL;
  RABBET_EXPECT_OK(rabbet_allocate(system, 1000, (void**)&block));
  assert_int_equal((uintptr_t)block % _Alignof(max_align_t), 0);
  for (int i = 0; i < 1000; ++i)
    assert_int_equal(block[i], 0);
  rabbet_free(system, block);
}

static void test_nothing(void** state) {
  (void)state;
  rabbet_allocator_t system = rabbet_allocator_system();
  void* block = &block;
  RABBET_EXPECT_OK(rabbet_allocate(system, 0, &block));
  assert_null(block);
  RABBET_EXPECT_OK(rabbet_reallocate(system, 0, &block));
  assert_null(block);
  rabbet_free(system, NULL);
  rabbet_free_aligned(system, NULL, 64);
}

static void test_reallocate_keeps_contents(void** state) {
  (void)state;
  rabbet_fault_allocator_t fault;
  rabbet_fault_initialize(-1, false, &fault);
  rabbet_allocator_t allocators[] = {rabbet_allocator_system(),
                                     rabbet_fault_allocator(&fault)};
  for (int i = 0; i < 2; ++i) {
    char* block = NULL;
    RABBET_EXPECT_OK(rabbet_reallocate(allocators[i], 4, (void**)&block));
    memcpy(block, "abcd", 4);
    RABBET_EXPECT_OK(rabbet_reallocate(allocators[i], 100000, (void**)&block));
    assert_memory_equal(block, "abcd", 4);
    RABBET_EXPECT_OK(rabbet_reallocate(allocators[i], 2, (void**)&block));
    assert_memory_equal(block, "ab", 2);
    RABBET_EXPECT_OK(rabbet_reallocate(allocators[i], 0, (void**)&block));
    assert_null(block);
  }
  rabbet_fault_deinitialize(&fault);
}

static void test_failure_names_the_size(void** state) {
  (void)state;
  rabbet_fault_allocator_t fault;
  rabbet_fault_initialize(1, true, &fault);
  rabbet_allocator_t allocator = rabbet_fault_allocator(&fault);
  void *block = NULL, *other = NULL;
  RABBET_EXPECT_OK(rabbet_allocate(allocator, 8, &block));
  void* before = block;
  RABBET_EXPECT_ERROR(rabbet_allocate(allocator, 12345, &other),
                      RABBET_STATUS_OUT_OF_MEMORY, "12345 bytes");
  assert_null(other);
  RABBET_EXPECT_ERROR(rabbet_reallocate(allocator, 54321, &block),
                      RABBET_STATUS_OUT_OF_MEMORY, "54321 bytes");
  assert_ptr_equal(block, before);
  rabbet_free(allocator, block);
  rabbet_fault_deinitialize(&fault);
}

static void test_aligned(void** state) {
  (void)state;
  rabbet_allocator_t system = rabbet_allocator_system();
  for (size_t alignment = 1; alignment <= 4096; alignment *= 2) {
    char* block = NULL;
    RABBET_EXPECT_OK(
        rabbet_allocate_aligned(system, 33, alignment, (void**)&block));
    assert_int_equal((uintptr_t)block % alignment, 0);
    for (char i = 0; i < 33; ++i)
      block[(int)i] = i;
    block = system.resize(system.self, block, 70000, alignment);
    assert_non_null(block);
    assert_int_equal((uintptr_t)block % alignment, 0);
    for (char i = 0; i < 33; ++i)
      assert_int_equal(block[(int)i], i);
    rabbet_free_aligned(system, block, alignment);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_allocate_is_zeroed_and_aligned),
      cmocka_unit_test(test_nothing),
      cmocka_unit_test(test_reallocate_keeps_contents),
      cmocka_unit_test(test_failure_names_the_size),
      cmocka_unit_test(test_aligned),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
