// Which attention cuDNN is asked for, and what the stand-in computes from the
// graph that describes it.
#include <math.h>

#include "conformance/kernel_case.h"
#include "cuda_stand_in/device.h"
#include "ops/enums.h"

typedef struct attention_t {
  int64_t batch, heads, share, rows, keys, width;
} attention_t;

// Keys or values, each read by `share` neighbouring heads.
static int32_t shared_heads(kernel_case_t* c, const attention_t* a) {
  int64_t heads = a->heads / a->share;
  if (a->share == 1)
    return kernel_case_input(c, KERNEL_DIMS(a->batch, heads, a->keys, a->width),
                             false);
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

static int32_t scores(kernel_case_t* c, const attention_t* a) {
  int32_t q = kernel_case_input(
      c, KERNEL_DIMS(a->batch, a->heads, a->rows, a->width), false);
  return kernel_case_op(
      c, "matrix_multiply",
      KERNEL_ATTRS(KERNEL_INT("op1", RABBET_MATRIX_TRANSPOSE)),
      KERNEL_INPUTS(q, shared_heads(c, a)));
}

static int32_t weights(kernel_case_t* c, int32_t y) {
  return kernel_case_op(c, "softmax", KERNEL_ATTRS(KERNEL_INT("axes", 8)),
                        KERNEL_INPUTS(y));
}

static void values(kernel_case_t* c, const attention_t* a, int32_t y) {
  kernel_case_output(c, kernel_case_op(c, "matrix_multiply", KERNEL_NO_ATTRS,
                                       KERNEL_INPUTS(y, shared_heads(c, a))));
}

static void begin(kernel_case_t* c, void** state) {
  rabbet_cuda_device_t* device = *state;
  kernel_case_begin(c, &device->base, RABBET_DTYPE_HALF);
  c->low = -1;
  c->high = 1;
  c->tolerance = 1e-3;
}

// How many candidates there were of the class; all were right.
static int check(kernel_case_t* c, const char* kernel) {
  const kernel_case_filter_t filter = {.kernel = kernel};
  int count = kernel_case_check(c, &filter);
  kernel_case_end(c);
  return count;
}

static int shared(void** state, attention_t a) {
  kernel_case_t c;
  begin(&c, state);
  values(&c, &a, weights(&c, scores(&c, &a)));
  return check(&c, "cuda.attention");
}

// Keys and values that several heads read are not repeated for each.
static void heads_that_share_keys(void** state) {
  assert_true(shared(state, (attention_t){2, 4, 2, 24, 40, 32}) > 0);
  assert_true(shared(state, (attention_t){1, 6, 3, 33, 17, 64}) > 0);
  assert_true(shared(state, (attention_t){2, 3, 3, 9, 9, 16}) > 0);
  assert_true(shared(state, (attention_t){1, 3, 3, 9, 40, 16}) > 0);
  assert_true(shared(state, (attention_t){2, 2, 1, 24, 40, 32}) > 0);
}

// `odd`: of the mask, an element that hides a key that is not later.
static int masked(void** state, attention_t a, float low, int64_t odd) {
  float data[2048];
  kernel_case_t c;
  begin(&c, state);
  int32_t y = scores(&c, &a);
  for (int64_t i = 0; i < a.rows * a.keys; ++i)
    data[i] = i % a.keys > i / a.keys || i == odd ? low : 0;
  int32_t mask =
      kernel_case_constant(&c, KERNEL_DIMS(1, 1, a.rows, a.keys), data);
  y = kernel_case_op(&c, "elementwise",
                     KERNEL_ATTRS(KERNEL_INT("op", RABBET_ELEMENTWISE_SUM)),
                     KERNEL_INPUTS(y, mask));
  values(&c, &a, weights(&c, y));
  return check(&c, "cuda.attention.causal");
}

static void causal_masks(void** state) {
  const attention_t square = {2, 2, 1, 24, 24, 32};
  assert_true(masked(state, square, -INFINITY, -1) > 0);
  assert_true(masked(state, square, -65504, -1) > 0);
  assert_true(masked(state, (attention_t){1, 4, 2, 40, 24, 32}, -65504, -1) >
              0);
  assert_true(masked(state, (attention_t){1, 2, 1, 24, 40, 32}, -65504, -1) >
              0);
  // Finite numbers that leave some weight, other masks, and a single query.
  assert_int_equal(masked(state, square, -5, -1), 0);
  assert_int_equal(masked(state, square, -INFINITY, 24 * 7 + 3), 0);
  assert_int_equal(
      masked(state, (attention_t){1, 2, 1, 1, 24, 32}, -INFINITY, -1), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(heads_that_share_keys),
      cmocka_unit_test(causal_masks),
  };
  return cmocka_run_group_tests(tests, stand_in_device_setup,
                                stand_in_device_teardown);
}
