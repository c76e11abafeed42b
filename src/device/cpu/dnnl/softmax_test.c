// Softmax and layer normalization by oneDNN against the operators' references.
#include "conformance/cpu_device.h"

static const rabbet_dtype_t real_types[] = {
    RABBET_DTYPE_FLOAT, RABBET_DTYPE_HALF, RABBET_DTYPE_BF16};

static void softmax(void** state) {
  const struct {
    rabbet_dims_t x;
    int64_t axes;
    int least;
  } all[] = {
      {KERNEL_DIMS(5, 33), 2, 1},
      {KERNEL_DIMS(7), 1, 1},
      {KERNEL_DIMS(2, 3, 4, 17), 8, 1},
      // Channels last make axis 1 the innermost.
      {KERNEL_DIMS(2, 20, 4, 5), 2, 1},
      {KERNEL_DIMS(2, 20, 4, 5), 0, 1},
      // oneDNN has no fast code for other axes.
      {KERNEL_DIMS(5, 33), 1, 0},
      {KERNEL_DIMS(2, 3, 4, 17), 4, 0},
  };
  for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); ++i) {
    for (int t = 0; t < 3; ++t) {
      kernel_case_t c;
      kernel_case_begin(&c, *state, real_types[t]);
      c.low = -8;
      c.high = 8;
      int32_t x = kernel_case_input(&c, all[i].x, false);
      kernel_case_output(
          &c, kernel_case_op(&c, "softmax",
                             KERNEL_ATTRS(KERNEL_INT("axes", all[i].axes)),
                             KERNEL_INPUTS(x)));
      int count = kernel_case_check(
          &c, &(kernel_case_filter_t){.kernel = "dnnl.softmax"});
      if (count < all[i].least)
        fail_msg("softmax %zu: %d candidates", i, count);
      kernel_case_end(&c);
    }
  }
}

// Scale and bias have the extents of `given` of the input's last axes.
static int check_norm(rabbet_device_t* device, rabbet_dims_t x, int64_t axes,
                      rabbet_dims_t given, bool constant,
                      rabbet_dtype_t dtype) {
  kernel_case_t c;
  kernel_case_begin(&c, device, dtype);
  if (dtype == RABBET_DTYPE_BF16) c.tolerance = 1e-5;
  int32_t input = kernel_case_input(&c, x, false);
  int32_t scale = kernel_case_input(&c, given, constant);
  int32_t bias = kernel_case_input(&c, given, constant);
  kernel_case_output(&c,
                     kernel_case_op(&c, "normalization",
                                    KERNEL_ATTRS(KERNEL_INT("axes", axes),
                                                 KERNEL_FLOAT("epsilon", 1e-3)),
                                    KERNEL_INPUTS(input, scale, bias)));
  int count = kernel_case_check(
      &c, &(kernel_case_filter_t){.kernel = "dnnl.layer_norm"});
  kernel_case_end(&c);
  return count;
}

static void layer_norm(void** state) {
  for (int t = 0; t < 3; ++t) {
    for (int constant = 0; constant < 2; ++constant) {
      rabbet_dtype_t dtype = real_types[t];
      assert_true(check_norm(*state, KERNEL_DIMS(2, 5, 48), 4,
                             KERNEL_DIMS(1, 1, 48), constant, dtype) >= 1);
      assert_true(check_norm(*state, KERNEL_DIMS(3, 4, 5, 6), 12,
                             KERNEL_DIMS(1, 1, 5, 6), constant, dtype) >= 1);
      assert_true(check_norm(*state, KERNEL_DIMS(4, 7), 2, KERNEL_DIMS(1, 7),
                             constant, dtype) >= 1);
    }
  }
  // Instance normalization, and a scale of another shape.
  assert_int_equal(
      check_norm(*state, KERNEL_DIMS(2, 5, 4, 4), 12, KERNEL_DIMS(1, 5, 1, 1),
                 true, RABBET_DTYPE_FLOAT),
      0);
  assert_int_equal(check_norm(*state, KERNEL_DIMS(4, 7), 1, KERNEL_DIMS(4, 1),
                              true, RABBET_DTYPE_FLOAT),
                   0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(softmax),
      cmocka_unit_test(layer_norm),
  };
  return cmocka_run_group_tests(tests, cpu_fixture_open, cpu_fixture_close);
}
