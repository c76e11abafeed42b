// Which attention cuDNN is asked for, and what the stand-in computes from the
// graph that describes it.
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

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(heads_that_share_keys),
  };
  return cmocka_run_group_tests(tests, stand_in_device_setup,
                                stand_in_device_teardown);
}
