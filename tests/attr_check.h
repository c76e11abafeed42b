// Checks of attributes for C tests.
#ifndef RABBET_TESTS_ATTR_CHECK_H_
#define RABBET_TESTS_ATTR_CHECK_H_

#include "check.h"
#include "rabbet/attr.h"

// The same name, type and value.
static inline void check_attr(const rabbet_attr_t* found,
                              const rabbet_attr_t* expected) {
  assert_string_equal(found->name, expected->name);
  assert_int_equal(found->type, expected->type);
  assert_int_equal(found->count, expected->count);
  if (expected->type == RABBET_ATTR_TENSOR) {
    assert_int_equal(found->dtype, expected->dtype);
    assert_int_equal(found->dims.rank, expected->dims.rank);
    for (int32_t i = 0; i < expected->dims.rank; ++i)
      assert_int_equal(found->dims.d[i], expected->dims.d[i]);
  }
  size_t size = rabbet_attr_bytes(expected);
  assert_int_equal(rabbet_attr_bytes(found), size);
  if (size > 0) assert_memory_equal(found->data, expected->data, size);
}

#endif  // RABBET_TESTS_ATTR_CHECK_H_
