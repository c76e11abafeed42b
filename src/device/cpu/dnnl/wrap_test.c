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
} list_t;

static rabbet_status_t collect(void* context,
                               const rabbet_dnnl_implementation_t* found) {
  list_t* out = context;
  if (out->count < NAMES) out->numbers[out->count++] = (int)found->id;
  return rabbet_ok();
}

static rabbet_status_t list(list_t* out) {
  *out = (list_t){0};
  rabbet_dnnl_t* dnnl = NULL;
  rabbet_dnnl_spec_t spec = product();
  rabbet_status_t status = rabbet_dnnl_create(SYSTEM, &dnnl);
  if (rabbet_is_ok(status))
    status = rabbet_dnnl_enumerate(dnnl, &spec, 1, collect, out);
  rabbet_dnnl_destroy(dnnl);
  return status;
}

static rabbet_status_t check_start(void* context,
                                   const rabbet_dnnl_implementation_t* found) {
  static const int32_t method = 3 << 24;
  bool is_sgemm = strcmp(found->name, "gemm:jit") == 0;
  *(int*)context += is_sgemm;
  assert_int_equal(rabbet_dnnl_start_us(found->id | method) > 0, is_sgemm);
  return rabbet_ok();
}

// The library's SGEMM alone is slow to start; no other name is like it.
static void sgemm_starts_slowly(void** state) {
  (void)state;
  int count = 0;
  rabbet_dnnl_t* dnnl = NULL;
  rabbet_dnnl_spec_t spec = product();
  RABBET_EXPECT_OK(rabbet_dnnl_create(SYSTEM, &dnnl));
  RABBET_EXPECT_OK(rabbet_dnnl_enumerate(dnnl, &spec, 1, check_start, &count));
  assert_int_equal(count, 1);
  rabbet_dnnl_destroy(dnnl);
}

static void a_list_leaves_the_cache_as_it_was(void** state) {
  (void)state;
  int before = capacity();
  assert_true(before > 0);
  list_t found;
  RABBET_EXPECT_OK(list(&found));
  assert_true(found.count > 0);
  assert_int_equal(capacity(), before);
}

// From the library, and as it was kept; of other extents, of other types.
static void lists_are_kept_apart(void** state) {
  (void)state;
  rabbet_dnnl_t* dnnl = NULL;
  RABBET_EXPECT_OK(rabbet_dnnl_create(SYSTEM, &dnnl));
  rabbet_dnnl_spec_t specs[] = {product(), product(), product()};
  specs[1].src.dims[0] = specs[1].dst.dims[0] = 1;
  specs[2].src.dtype = specs[2].weights.dtype = RABBET_DTYPE_INT8;
  list_t found[2][3] = {{{0}}};
  for (int turn = 0; turn < 2; ++turn)
    for (int i = 0; i < 3; ++i)
      RABBET_EXPECT_OK(
          rabbet_dnnl_enumerate(dnnl, &specs[i], 1, collect, &found[turn][i]));
  assert_memory_equal(found[0], found[1], sizeof(found[0]));
  assert_memory_not_equal(&found[0][0], &found[0][2], sizeof(list_t));
  rabbet_dnnl_destroy(dnnl);
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

typedef struct often_t {
  rabbet_dnnl_t* shared;
  list_t expected;
} often_t;

static void* list_often(void* context) {
  const often_t* often = context;
  rabbet_dnnl_spec_t spec = product();
  for (int i = 0; i < LISTS; ++i) {
    list_t found = {0};
    rabbet_status_t status =
        i % 2 ? list(&found)
              : rabbet_dnnl_enumerate(often->shared, &spec, 1 + i % 8, collect,
                                      &found);
    if (!rabbet_is_ok(status)) {
      rabbet_status_free(status);
      return "a list failed";
    }
    if (memcmp(&found, &often->expected, sizeof(found)) != 0)
      return "a list differs";
  }
  return NULL;
}

static void lists_of_several_threads(void** state) {
  (void)state;
  int before = capacity();
  often_t often = {0};
  RABBET_EXPECT_OK(list(&often.expected));
  RABBET_EXPECT_OK(rabbet_dnnl_create(SYSTEM, &often.shared));
  pthread_t threads[3];
  for (int i = 0; i < 3; ++i)
    assert_int_equal(pthread_create(&threads[i], NULL, list_often, &often), 0);
  void* failure = NULL;
  for (int i = 0; i < 3; ++i) {
    void* result = NULL;
    pthread_join(threads[i], &result);
    if (result) failure = result;
  }
  rabbet_dnnl_destroy(often.shared);
  assert_null(failure);
  assert_int_equal(capacity(), before);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sgemm_starts_slowly),
      cmocka_unit_test(a_list_leaves_the_cache_as_it_was),
      cmocka_unit_test(lists_are_kept_apart),
      cmocka_unit_test(a_list_that_fails_too),
      cmocka_unit_test(lists_of_several_threads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
