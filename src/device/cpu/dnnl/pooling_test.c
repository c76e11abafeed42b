// Pooling by oneDNN against the operators' references.
#include "conformance/cpu_device.h"

static const kernel_case_filter_t pooling_only = {.kernel = "dnnl.pooling"};
static const rabbet_dtype_t real_types[] = {
    RABBET_DTYPE_FLOAT, RABBET_DTYPE_HALF, RABBET_DTYPE_BF16};

enum { MAX = 0, AVERAGE = 1, BLEND = 2 };
enum { ROUND_DOWN = 0, ROUND_UP = 1, SAME_UPPER = 2, SAME_LOWER = 3 };

typedef struct pool_t {
  rabbet_dims_t x;
  int64_t window[3], stride[3], pre[3], post[3];
  int64_t mode;
} pool_t;

static const pool_t pools[] = {
    {KERNEL_DIMS(1, 16, 8, 8), {2, 2}, {2, 2}, {0}, {0}, ROUND_DOWN},
    {KERNEL_DIMS(2, 20, 9, 7), {3, 3}, {2, 2}, {1, 1}, {1, 1}, ROUND_DOWN},
    {KERNEL_DIMS(1, 5, 9, 7), {3, 2}, {1, 3}, {0, 1}, {2, 0}, ROUND_DOWN},
    {KERNEL_DIMS(1, 16, 8, 9), {3, 3}, {2, 2}, {0}, {0}, SAME_UPPER},
    {KERNEL_DIMS(1, 16, 8, 9), {3, 3}, {2, 2}, {0}, {0}, SAME_LOWER},
    {KERNEL_DIMS(1, 32, 6, 6), {6, 6}, {1, 1}, {0}, {0}, ROUND_DOWN},
    {KERNEL_DIMS(2, 16, 12), {3}, {2}, {1}, {0}, ROUND_DOWN},
    {KERNEL_DIMS(1, 16, 6, 5, 4), {2, 3, 2}, {2, 1, 2}, {0}, {0}, ROUND_DOWN},
};

static int32_t add_pool(kernel_case_t* c, const pool_t* p, int64_t type,
                        bool excludes) {
  size_t spatial = (size_t)p->x.rank - 2;
  const rabbet_attr_t attrs[] = {
      KERNEL_INT("type", type),
      {.name = "window_size_nd",
       .type = RABBET_ATTR_INTS,
       .data = p->window,
       .count = spatial},
      {.name = "stride_nd",
       .type = RABBET_ATTR_INTS,
       .data = p->stride,
       .count = spatial},
      {.name = "pre_padding",
       .type = RABBET_ATTR_INTS,
       .data = p->pre,
       .count = spatial},
      {.name = "post_padding",
       .type = RABBET_ATTR_INTS,
       .data = p->post,
       .count = spatial},
      KERNEL_INT("padding_mode", p->mode),
      KERNEL_BOOL("average_count_excludes_padding", excludes),
  };
  int32_t x = kernel_case_input(c, p->x, false);
  return kernel_case_op(c, "pooling", attrs, 7, KERNEL_INPUTS(x));
}

static int check_pool(rabbet_device_t* device, const pool_t* p, int64_t type,
                      bool excludes, rabbet_dtype_t dtype) {
  kernel_case_t c;
  kernel_case_begin(&c, device, dtype);
  kernel_case_output(&c, add_pool(&c, p, type, excludes));
  int count = kernel_case_check(&c, &pooling_only);
  kernel_case_end(&c);
  return count;
}

static void windows(void** state) {
  for (size_t i = 0; i < sizeof(pools) / sizeof(pools[0]); ++i) {
    for (int t = 0; t < 3; ++t) {
      assert_true(check_pool(*state, &pools[i], MAX, true, real_types[t]) >= 2);
      assert_true(check_pool(*state, &pools[i], AVERAGE, true, real_types[t]) >=
                  2);
      assert_true(
          check_pool(*state, &pools[i], AVERAGE, false, real_types[t]) >= 2);
    }
  }
}

static void rounding_up(void** state) {
  const pool_t p = {
      KERNEL_DIMS(1, 16, 8, 8), {3, 3}, {2, 2}, {0, 0}, {0, 0}, ROUND_UP};
  assert_true(check_pool(*state, &p, MAX, true, RABBET_DTYPE_FLOAT) >= 2);
  assert_true(check_pool(*state, &p, AVERAGE, true, RABBET_DTYPE_FLOAT) >= 2);
  // Elements that rounding up adds are counted by oneDNN, not by us.
  assert_int_equal(check_pool(*state, &p, AVERAGE, false, RABBET_DTYPE_FLOAT),
                   0);
}

static void not_for_it(void** state) {
  // A window in the padding alone, and the blend.
  const pool_t p = {
      KERNEL_DIMS(1, 16, 8, 8), {2, 2}, {1, 1}, {2, 2}, {0, 0}, ROUND_DOWN};
  assert_int_equal(check_pool(*state, &p, MAX, true, RABBET_DTYPE_FLOAT), 0);
  assert_int_equal(
      check_pool(*state, &pools[0], BLEND, true, RABBET_DTYPE_FLOAT), 0);
}

// One point for each channel: from every format to LINEAR.
static void points_are_linear(void** state) {
  kernel_case_t c;
  kernel_case_begin(&c, *state, RABBET_DTYPE_FLOAT);
  kernel_case_output(&c, add_pool(&c, &pools[5], AVERAGE, true));
  kernel_case_candidate_t* candidates = NULL;
  size_t count = kernel_case_candidates(&c, &pooling_only, &candidates);
  int to_linear = 0;
  for (size_t i = 0; i < count; ++i) {
    to_linear += candidates[i].tensors[0].format != RABBET_FORMAT_LINEAR &&
                 candidates[i].tensors[1].format == RABBET_FORMAT_LINEAR;
  }
  assert_int_equal(to_linear, 2);
  kernel_case_end(&c);
}

static void reductions(void** state) {
  enum { REDUCE_MAX = 2, REDUCE_AVERAGE = 4 };
  const rabbet_dims_t dims[] = {KERNEL_DIMS(2, 32, 7, 7),
                                KERNEL_DIMS(1, 10, 5, 3),
                                KERNEL_DIMS(1, 16, 9)};
  for (size_t i = 0; i < 12; ++i) {
    const rabbet_dims_t* x = &dims[i / 4];
    kernel_case_t c;
    kernel_case_begin(&c, *state, real_types[i % 3]);
    int32_t input = kernel_case_input(&c, *x, false);
    kernel_case_output(
        &c,
        kernel_case_op(
            &c, "reduce",
            KERNEL_ATTRS(KERNEL_INT("op", i % 2 ? REDUCE_MAX : REDUCE_AVERAGE),
                         KERNEL_INT("axes", (1 << x->rank) - 4),
                         KERNEL_BOOL("keep_dims", i / 2 % 2)),
            KERNEL_INPUTS(input)));
    // Maxima have NaN and infinities, which oneDNN's do not give.
    int offered = kernel_case_check(&c, &pooling_only);
    assert_true(i % 2 ? offered == 0 : offered >= 1);
    kernel_case_end(&c);
  }
  // Other axes are not pooling.
  kernel_case_t c;
  kernel_case_begin(&c, *state, RABBET_DTYPE_FLOAT);
  int32_t input = kernel_case_input(&c, dims[0], false);
  kernel_case_output(&c, kernel_case_op(&c, "reduce",
                                        KERNEL_ATTRS(KERNEL_INT("op", 4),
                                                     KERNEL_INT("axes", 2)),
                                        KERNEL_INPUTS(input)));
  assert_int_equal(kernel_case_check(&c, &pooling_only), 0);
  kernel_case_end(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(windows),    cmocka_unit_test(rounding_up),
      cmocka_unit_test(not_for_it), cmocka_unit_test(points_are_linear),
      cmocka_unit_test(reductions),
  };
  return cmocka_run_group_tests(tests, cpu_fixture_open, cpu_fixture_close);
}
