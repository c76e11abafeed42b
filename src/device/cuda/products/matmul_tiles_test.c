// Which functions of cuda.matmul.tiles run for which shapes and addresses, and
// in clusters of how many blocks; that results are right is the conformance
// suite's matter too.
#include "conformance/kernel_case.h"
#include "cuda_stand_in/device.h"
#include "ops/enums.h"

typedef struct product_t {
  rabbet_dtype_t dtype;
  int64_t op1;
  rabbet_dims_t a, b;
  uint32_t misaligned;
  const char* tactic;
  const char* launched[2];
} product_t;

#define F16 RABBET_DTYPE_HALF
#define BF16 RABBET_DTYPE_BF16

static const product_t products[] = {
    // Every tactic, with rows, columns and k that are no whole tiles.
    {F16,
     1,
     {2, {70, 264}},
     {2, {72, 264}},
     0,
     "64 x 64 x 4",
     {"cuLaunchKernelEx tiles, grid 8 2 1", "cluster 4 1 1"}},
    {BF16,
     0,
     {2, {70, 264}},
     {2, {264, 72}},
     0,
     "64 x 64 x 2",
     {"cuLaunchKernelEx tiles, grid 4 2 1", "cluster 2 1 1"}},
    {F16,
     1,
     {2, {33, 136}},
     {2, {40, 136}},
     0,
     "64 x 32 x 2",
     {"cuLaunchKernelEx tiles, grid 4 1 1", "cluster 2 1 1"}},
    {BF16,
     1,
     {2, {70, 136}},
     {2, {56, 136}},
     0,
     "128 x 48 x 2",
     {"cuLaunchKernelEx tiles, grid 4 1 1", "cluster 2 1 1"}},
    {F16,
     1,
     {2, {40, 600}},
     {2, {104, 600}},
     0,
     "64 x 48 x 1",
     {"cuLaunchKernelEx tiles, grid 3 1 1", "grid 3 1 1"}},
    {F16,
     0,
     {2, {70, 520}},
     {2, {520, 72}},
     0,
     "128 x 64 x 3",
     {"cuLaunchKernelEx tiles, grid 6 1 1", "cluster 3 1 1"}},
    // More stages than there is room for at once.
    {F16,
     0,
     {2, {16, 904}},
     {2, {904, 64}},
     0,
     "64 x 64 x 2",
     {"cuLaunchKernelEx tiles, grid 2 1 1", "cluster 2 1 1"}},
    // Batches.
    {F16,
     1,
     {3, {2, 9, 256}},
     {3, {2, 64, 256}},
     0,
     "64 x 64 x 4",
     {"cuLaunchKernelEx tiles, grid 4 1 2", "cluster 4 1 1"}},
    // Many rows: the sums take the place of the stages.
    {BF16,
     1,
     {2, {520, 328}},
     {2, {136, 328}},
     0,
     "128 x 96 x 1",
     {"cuLaunchKernelEx tiles, grid 2 5 1", ""}},
    {F16,
     0,
     {2, {600, 136}},
     {2, {136, 200}},
     0,
     "128 x 128 x 1",
     {"cuLaunchKernelEx tiles, grid 2 5 1", ""}},
    // Addresses that are no vector's.
    {F16,
     1,
     {2, {520, 136}},
     {2, {72, 136}},
     1,
     "128 x 64 x 1",
     {"cuLaunchKernelEx tiles_single, grid 2 5 1", ""}},
    {BF16,
     1,
     {2, {12, 264}},
     {2, {72, 264}},
     1,
     "64 x 64 x 4",
     {"cuLaunchKernelEx tiles_single, grid 8 1 1", "cluster 4 1 1"}},
    {F16,
     0,
     {2, {12, 136}},
     {2, {136, 72}},
     1,
     "64 x 64 x 2",
     {"cuLaunchKernelEx tiles_single, grid 4 1 1", "cluster 2 1 1"}},
};

static int32_t add(kernel_case_t* c, int32_t x, int32_t y) {
  return kernel_case_op(c, "elementwise",
                        KERNEL_ATTRS(KERNEL_INT("op", RABBET_ELEMENTWISE_SUM)),
                        KERNEL_INPUTS(x, y));
}

// With bias, GELU and residual.
static void build(kernel_case_t* c, const product_t* p) {
  int32_t y = kernel_case_op(c, "matrix_multiply",
                             KERNEL_ATTRS(KERNEL_INT("op1", p->op1)),
                             KERNEL_INPUTS(kernel_case_input(c, p->a, false),
                                           kernel_case_input(c, p->b, true)));
  rabbet_dims_t full = c->values[y].dims, bias = full;
  for (int32_t i = 0; i + 1 < bias.rank; ++i)
    bias.d[i] = 1;
  y = add(c, y, kernel_case_input(c, bias, true));
  y = kernel_case_op(
      c, "activation",
      KERNEL_ATTRS(KERNEL_INT("type", RABBET_ACTIVATION_GELU_ERF)),
      KERNEL_INPUTS(y));
  kernel_case_output(c, add(c, kernel_case_input(c, full, false), y));
}

static void functions(void** state) {
  rabbet_cuda_device_t* device = *state;
  for (size_t i = 0; i < sizeof(products) / sizeof(products[0]); ++i) {
    const product_t* p = &products[i];
    const kernel_case_filter_t filter = {.kernel = "cuda.matmul.tiles",
                                         .tactic = p->tactic};
    kernel_case_t c;
    kernel_case_begin(&c, &device->base, p->dtype);
    c.low = -1;
    c.high = 1;
    c.tolerance = 2e-5;
    c.misaligned = p->misaligned;
    build(&c, p);
    stand_in()->clear_log();
    assert_true(kernel_case_check(&c, &filter) >= 1);
    for (int k = 0; k < 2; ++k)
      if (!strstr(stand_in()->log(), p->launched[k]))
        fail_msg("case %zu did not launch %s\n%s", i, p->launched[k],
                 stand_in()->log());
    kernel_case_end(&c);
  }
}

// Few rows are another class's, odd lengths and many rows the library's, and
// FLOAT as well.
static void not_offered(void** state) {
  rabbet_cuda_device_t* device = *state;
  static const product_t others[] = {
      {F16, 1, {2, {8, 64}}, {2, {64, 64}}, 0, NULL, {NULL}},
      {F16, 1, {2, {16, 65}}, {2, {64, 65}}, 0, NULL, {NULL}},
      {F16, 1, {2, {3000, 64}}, {2, {64, 64}}, 0, NULL, {NULL}},
      {RABBET_DTYPE_FLOAT, 1, {2, {16, 64}}, {2, {64, 64}}, 0, NULL, {NULL}},
  };
  const kernel_case_filter_t filter = {.kernel = "cuda.matmul.tiles"};
  for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); ++i) {
    kernel_case_t c;
    kernel_case_candidate_t* candidates = NULL;
    kernel_case_begin(&c, &device->base, others[i].dtype);
    build(&c, &others[i]);
    assert_int_equal(kernel_case_candidates(&c, &filter, &candidates), 0);
    kernel_case_end(&c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(functions),
      cmocka_unit_test(not_offered),
  };
  return cmocka_run_group_tests(tests, stand_in_device_setup,
                                stand_in_device_teardown);
}
