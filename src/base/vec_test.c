#include "base/vec.h"

#include "check.h"
#include "faults/fault_allocator.h"

typedef struct pair_t {
  int a, b;
} pair_t;
typedef RABBET_VEC(pair_t) pair_vec_t;

static rabbet_status_t push_many(rabbet_allocator_t allocator,
                                 void* user_data) {
  (void)user_data;
  pair_vec_t pairs = {0};
  rabbet_status_t status = rabbet_ok();
  for (int i = 0; i < 100 && rabbet_is_ok(status); ++i)
    status = RABBET_VEC_PUSH(allocator, &pairs, (pair_t){i, -i});
  if (rabbet_is_ok(status)) assert_int_equal(pairs.count, 100);
  for (size_t i = 0; i < pairs.count; ++i) {
    assert_int_equal(pairs.data[i].a, i);
    assert_int_equal(pairs.data[i].b, -(int)i);
  }
  assert_true(pairs.count <= pairs.capacity);
  rabbet_vec_free(allocator, &pairs);
  assert_null(pairs.data);
  return status;
}

static void test_push(void** state) {
  (void)state;
  int64_t calls = rabbet_fault_run(push_many, NULL);
  assert_in_range(calls, 2, 10);  // grows by doubling
}

static void test_reserve(void** state) {
  (void)state;
  rabbet_allocator_t system = rabbet_allocator_system();
  pair_vec_t pairs = {0};
  RABBET_EXPECT_OK(RABBET_VEC_RESERVE(system, &pairs, 0));
  assert_null(pairs.data);
  RABBET_EXPECT_OK(RABBET_VEC_RESERVE(system, &pairs, 1000));
  pair_t* before = pairs.data;
  assert_true(pairs.capacity >= 1000);
  RABBET_EXPECT_OK(RABBET_VEC_RESERVE(system, &pairs, 1000));
  assert_ptr_equal(pairs.data, before);
  rabbet_vec_free(system, &pairs);
}

static void test_overflow(void** state) {
  (void)state;
  rabbet_allocator_t system = rabbet_allocator_system();
  pair_vec_t pairs = {0};
  RABBET_EXPECT_OK(RABBET_VEC_PUSH(system, &pairs, (pair_t){1, 2}));
  size_t extras[] = {SIZE_MAX, SIZE_MAX - 1, SIZE_MAX / 2, SIZE_MAX / 8};
  for (size_t i = 0; i < 4; ++i)
    RABBET_EXPECT_ERROR(RABBET_VEC_RESERVE(system, &pairs, extras[i]),
                        RABBET_STATUS_OUT_OF_MEMORY, "no memory");
  assert_int_equal(pairs.count, 1);
  assert_int_equal(pairs.data[0].b, 2);
  rabbet_vec_free(system, &pairs);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_push),
      cmocka_unit_test(test_reserve),
      cmocka_unit_test(test_overflow),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
