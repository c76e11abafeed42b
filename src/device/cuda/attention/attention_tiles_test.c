// Keys that blocks of a cluster split, and heads that share them: which
// launches cuda.attention.tiles makes; that results are right is the
// conformance suite's matter too.
#include "conformance/kernel_case.h"
#include "cuda_stand_in/device.h"
#include "ops/enums.h"

typedef struct attention_t {
  rabbet_dtype_t dtype;
  int64_t batch, heads, share, rows, keys, width;
  const char *tactic, *launched;
} attention_t;

#define F16 RABBET_DTYPE_HALF
#define BF16 RABBET_DTYPE_BF16

static const attention_t attentions[] = {
    // Few blocks for all heads that share keys, or one for each head.
    {F16, 2, 4, 4, 2, 50, 32, "1 x 2 warps", "attend, grid 1 1 2, block 64"},
    {F16, 1, 2, 1, 1, 50, 64, "1 x 2 warps", "attend, grid 1 2 1, block 64"},
    // More rows than a block has.
    {BF16, 1, 6, 3, 7, 150, 64, "1 x 4 warps, keys in 2",
     "grid 4 2 1, block 128 1 1, shared 21248, stream 0, cluster 2 1 1"},
    {F16, 1, 4, 4, 1, 600, 64, "1 x 8 warps, keys in 4", "cluster 4 1 1"},
    {BF16, 1, 2, 2, 1, 900, 128, "1 x 4 warps, keys in 8", "cluster 8 1 1"},
    // Blocks without keys.
    {F16, 1, 4, 4, 1, 1040, 32, "1 x 4 warps, keys in 16", "cluster 16 1 1"},
    // Many queries: heads apart, whether they share keys; queries of wide heads
    // are in shared memory, too.
    {F16, 1, 4, 2, 150, 200, 64, "staged, 128 x 128",
     "attend, grid 4 2 1, block 384 1 1, shared 65680"},
    {BF16, 2, 1, 1, 65, 130, 256, "staged, 64 x 64",
     "attend, grid 1 2 2, block 256 1 1, shared 163984"},
    {F16, 2, 3, 1, 70, 300, 24, "staged, 64 x 128",
     "survey, grid 3 2 2, block 128 1 1"},
};

static int32_t shared_heads(kernel_case_t* c, const attention_t* a) {
  int64_t heads = a->heads / a->share;
  int32_t y = kernel_case_input(
      c, KERNEL_DIMS(a->batch, heads, 1, a->keys, a->width), false);
  y = kernel_case_op(c, "slice",
                     KERNEL_ATTRS(KERNEL_INTS("start", 0, 0, 0, 0, 0),
                                  KERNEL_INTS("shape", a->batch, heads,
                                              a->share, a->keys, a->width),
                                  KERNEL_INTS("stride", 1, 1, 0, 1, 1)),
                     KERNEL_INPUTS(y));
  return kernel_case_op(c, "shuffle",
                        KERNEL_ATTRS(KERNEL_INTS("reshape_dims", a->batch,
                                                 a->heads, a->keys, a->width)),
                        KERNEL_INPUTS(y));
}

// With a mask for all heads.
static void build(kernel_case_t* c, const attention_t* a) {
  int32_t q = kernel_case_input(
      c, KERNEL_DIMS(a->batch, a->heads, a->rows, a->width), false);
  int32_t k = shared_heads(c, a), v = shared_heads(c, a);
  int32_t mask =
      kernel_case_input(c, KERNEL_DIMS(a->batch, 1, a->rows, a->keys), false);
  int32_t y =
      kernel_case_op(c, "matrix_multiply",
                     KERNEL_ATTRS(KERNEL_INT("op1", RABBET_MATRIX_TRANSPOSE)),
                     KERNEL_INPUTS(q, k));
  y = kernel_case_op(c, "elementwise",
                     KERNEL_ATTRS(KERNEL_INT("op", RABBET_ELEMENTWISE_SUM)),
                     KERNEL_INPUTS(y, mask));
  y = kernel_case_op(c, "softmax", KERNEL_ATTRS(KERNEL_INT("axes", 8)),
                     KERNEL_INPUTS(y));
  kernel_case_output(c, kernel_case_op(c, "matrix_multiply", KERNEL_NO_ATTRS,
                                       KERNEL_INPUTS(y, v)));
}

static void functions(void** state) {
  rabbet_cuda_device_t* device = *state;
  for (size_t i = 0; i < sizeof(attentions) / sizeof(attentions[0]); ++i) {
    const attention_t* a = &attentions[i];
    const kernel_case_filter_t filter = {.kernel = "cuda.attention.tiles",
                                         .tactic = a->tactic};
    kernel_case_t c;
    kernel_case_begin(&c, &device->base, a->dtype);
    c.tolerance = a->dtype == F16 ? 1e-3 : 1e-2;
    build(&c, a);
    stand_in()->clear_log();
    if (kernel_case_check(&c, &filter) < 1)
      fail_msg("case %zu has no candidate", i);
    if (!strstr(stand_in()->log(), a->launched))
      fail_msg("case %zu did not launch %s\n%s", i, a->launched,
               stand_in()->log());
    kernel_case_end(&c);
  }
}

// Warps leave heads of many queries that share keys to cuDNN, which reads
// copies for each head, and to blocks that stage them.
static void many_queries(void** state) {
  static const char* const tactics[] = {"1 x 4 warps", "staged, 128 x 128"};
  static const attention_t many = {F16, 1, 4, 2, 65, 80, 32, NULL, NULL};
  rabbet_cuda_device_t* device = *state;
  for (int i = 0; i < 2; ++i) {
    const kernel_case_filter_t filter = {.kernel = "cuda.attention.tiles",
                                         .tactic = tactics[i]};
    kernel_case_t c;
    kernel_case_begin(&c, &device->base, F16);
    c.tolerance = 1e-3;
    build(&c, &many);
    assert_int_equal(kernel_case_check(&c, &filter), i);
    kernel_case_end(&c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(functions),
      cmocka_unit_test(many_queries),
  };
  return cmocka_run_group_tests(tests, stand_in_device_setup,
                                stand_in_device_teardown);
}
