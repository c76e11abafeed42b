// Lists of implementations and oneDNN's cache, which belongs to the process.
#include "device/cpu/dnnl/wrap.h"

#include <dnnl.h>
#include <pthread.h>

#include "check.h"

#define SYSTEM rabbet_allocator_system()

enum { LISTS = 40, NAMES = 16 };

static int capacity(void) {
  int count = -1;
  assert_int_equal(dnnl_get_primitive_cache_capacity(&count), dnnl_success);
  return count;
}

static rabbet_dnnl_spec_t product(void) {
  rabbet_dims_t dims = {2, {16, 16}};
  rabbet_dnnl_layout_t layout =
      rabbet_dnnl_layout(RABBET_DTYPE_FLOAT, RABBET_FORMAT_LINEAR, &dims);
  return (rabbet_dnnl_spec_t){.kind = RABBET_DNNL_MATMUL,
                              .src = layout,
                              .weights = layout,
                              .dst = layout};
}

typedef struct list_t {
  int count;
  int numbers[NAMES];
  bool nests;
} list_t;

static rabbet_status_t collect(void* context,
                               const rabbet_dnnl_implementation_t* found);

static rabbet_status_t list(bool nests, list_t* out) {
  *out = (list_t){.nests = nests};
  rabbet_dnnl_t* dnnl = NULL;
  rabbet_dnnl_spec_t spec = product();
  rabbet_status_t status = rabbet_dnnl_create(SYSTEM, &dnnl);
  if (rabbet_is_ok(status))
    status = rabbet_dnnl_enumerate(dnnl, &spec, 1, collect, out);
  rabbet_dnnl_destroy(dnnl);
  return status;
}

static rabbet_status_t collect(void* context,
                               const rabbet_dnnl_implementation_t* found) {
  list_t* out = context;
  if (out->count < NAMES) out->numbers[out->count++] = (int)found->id;
  if (!out->nests) return rabbet_ok();
  // Another device comes, lists and goes meanwhile: the cache stays empty.
  list_t other;
  RABBET_RETURN_IF_ERROR(list(false, &other));
  if (capacity() != 0)
    return RABBET_STATUS(RABBET_STATUS_INTERNAL, "the cache holds %d",
                         capacity());
  return rabbet_ok();
}

static void a_list_leaves_the_cache_as_it_was(void** state) {
  (void)state;
  int before = capacity();
  assert_true(before > 0);
  for (int nests = 0; nests < 2; ++nests) {
    list_t found;
    RABBET_EXPECT_OK(list(nests, &found));
    assert_true(found.count > 0);
    assert_int_equal(capacity(), before);
  }
}

static rabbet_status_t refuse(void* context,
                              const rabbet_dnnl_implementation_t* found) {
  (void)context, (void)found;
  return RABBET_STATUS(RABBET_STATUS_CANCELLED, "enough");
}

static void a_list_that_fails_too(void** state) {
  (void)state;
  int before = capacity();
  rabbet_dnnl_t* dnnl = NULL;
  rabbet_dnnl_spec_t spec = product();
  RABBET_EXPECT_OK(rabbet_dnnl_create(SYSTEM, &dnnl));
  RABBET_EXPECT_ERROR(rabbet_dnnl_enumerate(dnnl, &spec, 1, refuse, NULL),
                      RABBET_STATUS_CANCELLED, "enough");
  rabbet_dnnl_destroy(dnnl);
  assert_int_equal(capacity(), before);
}

static void* list_often(void* context) {
  const list_t* expected = context;
  for (int i = 0; i < LISTS; ++i) {
    list_t found;
    rabbet_status_t status = list(false, &found);
    if (!rabbet_is_ok(status)) {
      rabbet_status_free(status);
      return "a list failed";
    }
    if (memcmp(&found, expected, sizeof(found)) != 0) return "a list differs";
  }
  return NULL;
}

static void lists_of_several_threads(void** state) {
  (void)state;
  int before = capacity();
  list_t expected;
  RABBET_EXPECT_OK(list(false, &expected));
  pthread_t threads[3];
  for (int i = 0; i < 3; ++i)
    assert_int_equal(pthread_create(&threads[i], NULL, list_often, &expected),
                     0);
  void* failure = NULL;
  for (int i = 0; i < 3; ++i) {
    void* result = NULL;
    pthread_join(threads[i], &result);
    if (result) failure = result;
  }
  assert_null(failure);
  assert_int_equal(capacity(), before);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_list_leaves_the_cache_as_it_was),
      cmocka_unit_test(a_list_that_fails_too),
      cmocka_unit_test(lists_of_several_threads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
