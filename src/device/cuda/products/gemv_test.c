// Which functions of cuda.gemv run for which shapes and addresses; that results
// are right is the conformance suite's matter too.
#include "conformance/kernel_case.h"
#include "cuda_stand_in/device.h"
#include "ops/enums.h"

static const kernel_case_filter_t gemv_only = {.kernel = "cuda.gemv"};

typedef struct product_t {
  rabbet_dtype_t dtype;
  int64_t op0, op1;
  rabbet_dims_t a, b;
  uint32_t misaligned;
  const char* function;  // that must run in aligned calls
} product_t;

#define F16 RABBET_DTYPE_HALF
#define F32 RABBET_DTYPE_FLOAT

static const product_t products[] = {
    // Weights as a fully connected layer has them: along k.
    {F16, 0, 1, {2, {1, 64}}, {2, {24, 64}}, 0, "dot,"},
    {F32, 0, 1, {2, {5, 64}}, {2, {24, 64}}, 0, "dot,"},
    // Along columns.
    {F16, 0, 0, {2, {1, 40}}, {2, {40, 72}}, 0, "spread,"},
    {F32, 0, 0, {2, {8, 40}}, {2, {40, 72}}, 0, "spread,"},
    // The few are columns: a is the matrix.
    {F16, 0, 1, {2, {72, 40}}, {2, {3, 40}}, 0, "dot,"},
    {F32, 1, 0, {2, {40, 72}}, {2, {40, 3}}, 0, "spread,"},
    // Matrix times vector.
    {F32, 0, 2, {2, {72, 40}}, {1, {40}}, 0, "dot,"},
    // No whole vectors, and unaligned addresses.
    {F16, 0, 1, {2, {2, 63}}, {2, {24, 63}}, 0, "single,"},
    {F16, 0, 0, {2, {2, 64}}, {2, {64, 25}}, 0, "single,"},
    {F16, 0, 1, {2, {1, 64}}, {2, {24, 64}}, 1, "single,"},
    // Batches, of which one is looped over by the host.
    {F32, 0, 1, {4, {2, 1, 3, 16}}, {4, {1, 3, 12, 16}}, 0, "dot,"},
    {F32, 0, 0, {3, {3, 2, 16}}, {3, {3, 16, 12}}, 0, "spread,"},
};

static void functions(void** state) {
  rabbet_cuda_device_t* device = *state;
  for (size_t i = 0; i < sizeof(products) / sizeof(products[0]); ++i) {
    const product_t* p = &products[i];
    kernel_case_t c;
    kernel_case_begin(&c, &device->base, p->dtype);
    c.tolerance = 2e-5;
    c.misaligned = p->misaligned;
    int32_t y = kernel_case_op(
        &c, "matrix_multiply",
        KERNEL_ATTRS(KERNEL_INT("op0", p->op0), KERNEL_INT("op1", p->op1)),
        KERNEL_INPUTS(kernel_case_input(&c, p->a, false),
                      kernel_case_input(&c, p->b, true)));
    kernel_case_output(
        &c,
        kernel_case_op(&c, "activation",
                       KERNEL_ATTRS(KERNEL_INT("type", RABBET_ACTIVATION_TANH)),
                       KERNEL_INPUTS(y)));
    stand_in()->clear_log();
    assert_true(kernel_case_check(&c, &gemv_only) >= 2);
    if (!strstr(stand_in()->log(), p->function))
      fail_msg("case %zu did not launch %s\n%s", i, p->function,
               stand_in()->log());
    kernel_case_end(&c);
  }
}

// Several warps share a column, at any alignment.
static void shared_columns(void** state) {
  static const struct {
    rabbet_dims_t a, b;
    uint32_t misaligned;
    const char *tactic, *function;
  } cases[] = {
      {{2, {1, 1032}}, {2, {21, 1032}}, 0, "1 x 1 columns, k in 4", "dot,"},
      {{2, {3, 2400}}, {2, {10, 2400}}, 0, "4 x 1 columns, k in 4", "dot,"},
      {{2, {30, 1024}}, {2, {2, 1024}}, 0, "2 x 1 columns, k in 2", "dot,"},
      {{2, {1, 1027}}, {2, {9, 1027}}, 0, "1 x 1 columns, k in 4", "single,"},
      {{2, {1, 1024}}, {2, {9, 1024}}, 1, "1 x 1 columns, k in 4", "single,"},
  };
  rabbet_cuda_device_t* device = *state;
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
    const kernel_case_filter_t filter = {.kernel = "cuda.gemv",
                                         .tactic = cases[i].tactic};
    kernel_case_t c;
    kernel_case_begin(&c, &device->base, F16);
    c.tolerance = 2e-5;
    c.misaligned = cases[i].misaligned;
    int32_t y =
        kernel_case_op(&c, "matrix_multiply",
                       KERNEL_ATTRS(KERNEL_INT("op0", 0), KERNEL_INT("op1", 1)),
                       KERNEL_INPUTS(kernel_case_input(&c, cases[i].a, false),
                                     kernel_case_input(&c, cases[i].b, true)));
    kernel_case_output(&c, y);
    stand_in()->clear_log();
    if (kernel_case_check(&c, &filter) < 1)
      fail_msg("case %zu has no candidate", i);
    if (!strstr(stand_in()->log(), cases[i].function))
      fail_msg("case %zu did not launch %s\n%s", i, cases[i].function,
               stand_in()->log());
    kernel_case_end(&c);
  }
}

// The scale of normalized rows may be FLOAT in a kernel that computes in HALF,
// so that no other layer of the group may read it.
static void scale_that_is_added(void** state) {
  rabbet_cuda_device_t* device = *state;
  for (int i = 0; i < 2; ++i) {
    kernel_case_t c;
    kernel_case_begin(&c, &device->base, RABBET_DTYPE_HALF);
    int32_t x = kernel_case_input(&c, KERNEL_DIMS(1, 64), false);
    int32_t numbers = kernel_case_input(&c, KERNEL_DIMS(1, 64), true);
    int32_t others = kernel_case_input(&c, KERNEL_DIMS(1, 64), true);
    int32_t y = kernel_case_op(
        &c, "normalization",
        KERNEL_ATTRS(KERNEL_INT("axes", 2), KERNEL_FLOAT("epsilon", 1e-5),
                     KERNEL_BOOL("is_rms", true)),
        KERNEL_INPUTS(x, numbers));
    y = kernel_case_op(
        &c, "matrix_multiply",
        KERNEL_ATTRS(KERNEL_INT("op0", 0), KERNEL_INT("op1", 1)),
        KERNEL_INPUTS(y, kernel_case_input(&c, KERNEL_DIMS(64, 64), true)));
    kernel_case_output(
        &c,
        kernel_case_op(&c, "elementwise",
                       KERNEL_ATTRS(KERNEL_INT("op", RABBET_ELEMENTWISE_SUM)),
                       KERNEL_INPUTS(y, i ? numbers : others)));
    int found = kernel_case_check(&c, &gemv_only);
    assert_true(i ? found == 0 : found > 0);
    kernel_case_end(&c);
  }
}

// Many rows are left to the libraries.
static void not_thin(void** state) {
  rabbet_cuda_device_t* device = *state;
  kernel_case_t c;
  kernel_case_begin(&c, &device->base, RABBET_DTYPE_FLOAT);
  kernel_case_output(
      &c, kernel_case_op(
              &c, "matrix_multiply",
              KERNEL_ATTRS(KERNEL_INT("op0", 0), KERNEL_INT("op1", 0)),
              KERNEL_INPUTS(kernel_case_input(&c, KERNEL_DIMS(9, 80), false),
                            kernel_case_input(&c, KERNEL_DIMS(80, 9), true))));
  assert_int_equal(kernel_case_check(&c, &gemv_only), 0);
  kernel_case_end(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(functions),
      cmocka_unit_test(shared_columns),
      cmocka_unit_test(scale_that_is_added),
      cmocka_unit_test(not_thin),
  };
  return cmocka_run_group_tests(tests, stand_in_device_setup,
                                stand_in_device_teardown);
}
