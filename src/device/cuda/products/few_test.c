// Which functions of cuda.matmul.few run for which shapes, in how many blocks;
// that results are right is the conformance suite's matter too.
#include "conformance/kernel_case.h"
#include "cuda_stand_in/device.h"
#include "ops/enums.h"

typedef struct product_t {
  rabbet_dtype_t dtype;
  rabbet_dims_t a, b;
  const char *tactic, *launched;
} product_t;

#define F16 RABBET_DTYPE_HALF
#define BF16 RABBET_DTYPE_BF16

static const product_t products[] = {
    {F16, {2, {1, 64}}, {2, {24, 64}}, "8 rows, 2 x 4", "few, grid 3 1 1"},
    // Lines and k that are no whole tiles, chunks or stages.
    {BF16, {2, {5, 296}}, {2, {21, 296}}, "8 rows, 4 x 3", "few, grid 3 1 1"},
    // More stages than warps, more tiles than blocks.
    {F16,
     {2, {3, 2400}},
     {2, {200, 2400}},
     "8 rows, 8 x 3",
     "few, grid 12 1 1"},
    {F16,
     {3, {2, 8, 72}},
     {3, {1, 40, 72}},
     "16 rows, 8 x 3",
     "few, grid 5 1 1"},
    {BF16, {2, {9, 1160}}, {2, {8, 1160}}, "16 rows, 4 x 3", "few, grid 1 1 1"},
};

// With bias and residual.
static void build(kernel_case_t* c, const product_t* p) {
  const int64_t sum = RABBET_ELEMENTWISE_SUM;
  int32_t y =
      kernel_case_op(c, "matrix_multiply",
                     KERNEL_ATTRS(KERNEL_INT("op1", RABBET_MATRIX_TRANSPOSE)),
                     KERNEL_INPUTS(kernel_case_input(c, p->a, false),
                                   kernel_case_input(c, p->b, true)));
  rabbet_dims_t full = c->values[y].dims, bias = full;
  for (int32_t i = 0; i + 1 < bias.rank; ++i)
    bias.d[i] = 1;
  y = kernel_case_op(c, "elementwise", KERNEL_ATTRS(KERNEL_INT("op", sum)),
                     KERNEL_INPUTS(y, kernel_case_input(c, bias, true)));
  kernel_case_output(
      c, kernel_case_op(c, "elementwise", KERNEL_ATTRS(KERNEL_INT("op", sum)),
                        KERNEL_INPUTS(kernel_case_input(c, full, false), y)));
}

static void functions(void** state) {
  rabbet_cuda_device_t* device = *state;
  for (size_t i = 0; i < sizeof(products) / sizeof(products[0]); ++i) {
    const product_t* p = &products[i];
    const kernel_case_filter_t filter = {.kernel = "cuda.matmul.few",
                                         .tactic = p->tactic};
    kernel_case_t c;
    kernel_case_begin(&c, &device->base, p->dtype);
    c.tolerance = 2e-5;
    build(&c, p);
    stand_in()->clear_log();
    if (kernel_case_check(&c, &filter) < 1)
      fail_msg("case %zu has no candidate", i);
    if (!strstr(stand_in()->log(), p->launched))
      fail_msg("case %zu did not launch %s\n%s", i, p->launched,
               stand_in()->log());
    kernel_case_end(&c);
  }
}

#define NONE RABBET_MATRIX_NONE
#define TURNED RABBET_MATRIX_TRANSPOSE

// Factors that it does not read: one that is no constant, one along columns,
// one whose lines are not aligned, too many rows, and rows that lie along k at
// the profile's optimum alone; and a range with more rows than a grid counts.
static void refused(void** state) {
  static const struct {
    rabbet_dims_t a, b;
    int64_t op0, op1;
    bool constant;
    int64_t most;  // rows of the range; 0: no range
  } cases[] = {
      {{2, {1, 64}}, {2, {24, 64}}, NONE, TURNED, false, 0},
      {{2, {1, 64}}, {2, {64, 24}}, NONE, NONE, true, 0},
      {{2, {1, 60}}, {2, {24, 60}}, NONE, TURNED, true, 0},
      {{2, {17, 64}}, {2, {24, 64}}, NONE, TURNED, true, 0},
      {{2, {64, 1}}, {2, {24, 64}}, TURNED, TURNED, true, 3},
      {{3, {2, 64, 1}}, {3, {1, 24, 64}}, TURNED, TURNED, true, 3},
      {{2, {1, 64}}, {2, {24, 64}}, NONE, TURNED, true, 65536 * 8},
  };
  static const kernel_case_filter_t few_only = {.kernel = "cuda.matmul.few"};
  rabbet_cuda_device_t* device = *state;
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
    kernel_case_t c;
    kernel_case_begin(&c, &device->base, F16);
    int32_t a = kernel_case_input(&c, cases[i].a, false);
    int32_t b = kernel_case_input(&c, cases[i].b, cases[i].constant);
    int32_t y = kernel_case_op(&c, "matrix_multiply",
                               KERNEL_ATTRS(KERNEL_INT("op0", cases[i].op0),
                                            KERNEL_INT("op1", cases[i].op1)),
                               KERNEL_INPUTS(a, b));
    int32_t rank = cases[i].a.rank;
    if (cases[i].most > 0) {
      c.values[a].max.d[rank - 1 - (cases[i].op0 == NONE)] = cases[i].most;
      c.values[y].max.d[rank - 2] = cases[i].most;
    }
    kernel_case_output(&c, y);
    if (kernel_case_check(&c, &few_only) > 0)
      fail_msg("case %zu has a candidate", i);
    kernel_case_end(&c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(functions),
      cmocka_unit_test(refused),
  };
  return cmocka_run_group_tests(tests, stand_in_device_setup,
                                stand_in_device_teardown);
}
