// Matrix products by oneDNN against the operators' references.
#include "conformance/cpu_device.h"

static const kernel_case_filter_t matmul_only = {.kernel = "dnnl.matmul"};
static const rabbet_dtype_t real_types[] = {
    RABBET_DTYPE_FLOAT, RABBET_DTYPE_HALF, RABBET_DTYPE_BF16};

enum { NONE = 0, TRANSPOSE = 1, VECTOR = 2 };
#define OPS(a, b) KERNEL_ATTRS(KERNEL_INT("op0", a), KERNEL_INT("op1", b))
#define ELEMENTWISE(op) KERNEL_ATTRS(KERNEL_INT("op", op))
#define ACTIVATION(type) KERNEL_ATTRS(KERNEL_INT("type", type))
enum { SUM = 0, PROD = 1, DIV = 5 };
enum { RELU = 0, TANH = 2, GELU_ERF = 12, GELU_TANH = 13 };

static void begin(kernel_case_t* c, rabbet_device_t* device,
                  rabbet_dtype_t dtype) {
  kernel_case_begin(c, device, dtype);
  if (dtype == RABBET_DTYPE_BF16) c->tolerance = 1e-5;
}

static void end(kernel_case_t* c, int32_t y, int least) {
  kernel_case_output(c, y);
  int count = kernel_case_check(c, &matmul_only);
  if (count < least) fail_msg("%d candidates, expected %d", count, least);
  kernel_case_end(c);
}

// ---- Shapes ----------------------------------------------------------------

typedef struct shape_t {
  int64_t op0, op1;
  rabbet_dims_t a, b;
} shape_t;

static const shape_t shapes[] = {
    {NONE, NONE, KERNEL_DIMS(5, 7), KERNEL_DIMS(7, 3)},
    {NONE, NONE, KERNEL_DIMS(32, 64), KERNEL_DIMS(64, 48)},
    {NONE, NONE, KERNEL_DIMS(60, 7), KERNEL_DIMS(7, 3)},
    {NONE, NONE, KERNEL_DIMS(5, 12, 15), KERNEL_DIMS(1, 15, 17)},
    {NONE, TRANSPOSE, KERNEL_DIMS(17, 33), KERNEL_DIMS(20, 33)},
    {TRANSPOSE, NONE, KERNEL_DIMS(9, 6), KERNEL_DIMS(9, 4)},
    {TRANSPOSE, TRANSPOSE, KERNEL_DIMS(9, 6), KERNEL_DIMS(4, 9)},
    {NONE, NONE, KERNEL_DIMS(1, 40), KERNEL_DIMS(40, 16)},
    {NONE, NONE, KERNEL_DIMS(6, 40), KERNEL_DIMS(40, 1)},
    {NONE, NONE, KERNEL_DIMS(6, 1), KERNEL_DIMS(1, 5)},
    {TRANSPOSE, NONE, KERNEL_DIMS(40, 1), KERNEL_DIMS(40, 16)},
    {NONE, NONE, KERNEL_DIMS(1, 1), KERNEL_DIMS(1, 1)},
    // vectors
    {VECTOR, NONE, KERNEL_DIMS(12), KERNEL_DIMS(12, 5)},
    {NONE, VECTOR, KERNEL_DIMS(5, 12), KERNEL_DIMS(12)},
    {VECTOR, VECTOR, KERNEL_DIMS(12), KERNEL_DIMS(12)},
    {VECTOR, TRANSPOSE, KERNEL_DIMS(3, 12), KERNEL_DIMS(3, 5, 12)},
    {NONE, VECTOR, KERNEL_DIMS(3, 5, 12), KERNEL_DIMS(3, 12)},
    // batches
    {NONE, NONE, KERNEL_DIMS(2, 3, 8, 16), KERNEL_DIMS(2, 3, 16, 8)},
    {NONE, TRANSPOSE, KERNEL_DIMS(2, 3, 8, 16), KERNEL_DIMS(2, 3, 10, 16)},
    {TRANSPOSE, NONE, KERNEL_DIMS(4, 16, 8), KERNEL_DIMS(4, 16, 9)},
    // broadcast: rows of all batches are one matrix
    {NONE, NONE, KERNEL_DIMS(2, 3, 8, 16), KERNEL_DIMS(1, 1, 16, 8)},
    {NONE, TRANSPOSE, KERNEL_DIMS(4, 8, 16), KERNEL_DIMS(1, 8, 16)},
    {VECTOR, NONE, KERNEL_DIMS(6, 16), KERNEL_DIMS(1, 16, 8)},
    {TRANSPOSE, NONE, KERNEL_DIMS(4, 16, 8), KERNEL_DIMS(1, 16, 9)},
    {TRANSPOSE, NONE, KERNEL_DIMS(2, 1, 3), KERNEL_DIMS(1, 1, 8)},
    // of the first, and of some axes of each
    {NONE, NONE, KERNEL_DIMS(1, 8, 16), KERNEL_DIMS(5, 16, 8)},
    {NONE, NONE, KERNEL_DIMS(2, 1, 8, 16), KERNEL_DIMS(1, 3, 16, 8)},
    {NONE, NONE, KERNEL_DIMS(2, 3, 8, 16), KERNEL_DIMS(2, 1, 16, 8)},
    {NONE, NONE, KERNEL_DIMS(2, 3, 8, 16), KERNEL_DIMS(1, 3, 16, 8)},
    {NONE, NONE, KERNEL_DIMS(2, 3, 2, 4, 8), KERNEL_DIMS(1, 3, 1, 8, 4)},
    {NONE, NONE, KERNEL_DIMS(3, 1, 16), KERNEL_DIMS(3, 16, 8)},
    // an odd k, and many rows
    {NONE, NONE, KERNEL_DIMS(148, 5), KERNEL_DIMS(5, 16)},
};

static void check_shapes(rabbet_device_t* device, rabbet_dtype_t dtype,
                         bool constant) {
  for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); ++i) {
    kernel_case_t c;
    begin(&c, device, dtype);
    int32_t a = kernel_case_input(&c, shapes[i].a, false);
    int32_t b = kernel_case_input(&c, shapes[i].b, constant);
    end(&c,
        kernel_case_op(&c, "matrix_multiply", OPS(shapes[i].op0, shapes[i].op1),
                       KERNEL_INPUTS(a, b)),
        1);
  }
}

static void shapes_float(void** state) {
  check_shapes(*state, RABBET_DTYPE_FLOAT, false);
  check_shapes(*state, RABBET_DTYPE_FLOAT, true);
}
static void shapes_half(void** state) {
  check_shapes(*state, RABBET_DTYPE_HALF, false);
  check_shapes(*state, RABBET_DTYPE_HALF, true);
}
static void shapes_bf16(void** state) {
  check_shapes(*state, RABBET_DTYPE_BF16, false);
  check_shapes(*state, RABBET_DTYPE_BF16, true);
}

static void constant_rows(void** state) {
  kernel_case_t c;
  begin(&c, *state, RABBET_DTYPE_FLOAT);
  int32_t a = kernel_case_input(&c, KERNEL_DIMS(6, 8), true);
  int32_t b = kernel_case_input(&c, KERNEL_DIMS(8, 10), false);
  end(&c,
      kernel_case_op(&c, "matrix_multiply", OPS(NONE, NONE),
                     KERNEL_INPUTS(a, b)),
      1);
}

static void product_with_itself(void** state) {
  kernel_case_t c;
  begin(&c, *state, RABBET_DTYPE_HALF);
  int32_t a = kernel_case_input(&c, KERNEL_DIMS(6, 8), false);
  end(&c,
      kernel_case_op(&c, "matrix_multiply", OPS(NONE, TRANSPOSE),
                     KERNEL_INPUTS(a, a)),
      1);
}

// ---- Epilogues -------------------------------------------------------------

// As in a feed-forward block: batch x sequence rows, bias, then a function.
static void dense(void** state) {
  const int64_t functions[] = {RELU, TANH, GELU_ERF, GELU_TANH};
  for (int i = 0; i < 3; ++i) {
    for (int f = 0; f < 4; ++f) {
      kernel_case_t c;
      begin(&c, *state, real_types[i]);
      if (c.dtype != RABBET_DTYPE_BF16) c.tolerance = 5e-6;
      int32_t x = kernel_case_input(&c, KERNEL_DIMS(2, 5, 24), false);
      int32_t w = kernel_case_input(&c, KERNEL_DIMS(1, 24, 32), true);
      int32_t b = kernel_case_input(&c, KERNEL_DIMS(1, 1, 32), true);
      int32_t y = kernel_case_op(&c, "matrix_multiply", OPS(NONE, NONE),
                                 KERNEL_INPUTS(x, w));
      y = kernel_case_op(&c, "elementwise", ELEMENTWISE(SUM),
                         KERNEL_INPUTS(b, y));
      end(&c,
          kernel_case_op(&c, "activation", ACTIVATION(functions[f]),
                         KERNEL_INPUTS(y)),
          3);
    }
  }
}

// The projection after attention: bias, then the residual, in place or not.
static void dense_with_residual(void** state) {
  for (int i = 0; i < 3; ++i) {
    kernel_case_t c;
    begin(&c, *state, real_types[i]);
    int32_t x = kernel_case_input(&c, KERNEL_DIMS(2, 5, 24), false);
    int32_t w = kernel_case_input(&c, KERNEL_DIMS(1, 32, 24), true);
    int32_t b = kernel_case_input(&c, KERNEL_DIMS(1, 1, 32), true);
    int32_t r = kernel_case_input(&c, KERNEL_DIMS(2, 5, 32), false);
    int32_t y = kernel_case_op(&c, "matrix_multiply", OPS(NONE, TRANSPOSE),
                               KERNEL_INPUTS(x, w));
    y = kernel_case_op(&c, "elementwise", ELEMENTWISE(SUM),
                       KERNEL_INPUTS(y, b));
    y = kernel_case_op(&c, "elementwise", ELEMENTWISE(SUM),
                       KERNEL_INPUTS(y, r));
    kernel_case_candidate_t* candidates = NULL;
    kernel_case_output(&c, y);
    size_t count = kernel_case_candidates(&c, &matmul_only, &candidates);
    size_t in_place = 0;
    for (size_t k = 0; k < count; ++k)
      in_place += candidates[k].in_place[0] >= 0;
    assert_true(in_place > 0);
    assert_true(kernel_case_check(&c, &matmul_only) >= 3);
    kernel_case_end(&c);
  }
}

// Scores of attention: divided by a number, a mask added that broadcasts over
// heads and rows.
static void scores(void** state) {
  const rabbet_dims_t masks[] = {
      KERNEL_DIMS(2, 1, 1, 6), KERNEL_DIMS(1, 1, 6, 6), KERNEL_DIMS(2, 1, 6, 6),
      KERNEL_DIMS(1, 3, 1, 1), KERNEL_DIMS(2, 3, 6, 6), KERNEL_DIMS(2, 3, 6, 1),
  };
  for (int i = 0; i < 3; ++i) {
    for (size_t m = 0; m < sizeof(masks) / sizeof(masks[0]); ++m) {
      kernel_case_t c;
      begin(&c, *state, real_types[i]);
      int32_t q = kernel_case_input(&c, KERNEL_DIMS(2, 3, 6, 16), false);
      int32_t k = kernel_case_input(&c, KERNEL_DIMS(2, 3, 6, 16), false);
      int32_t mask = kernel_case_input(&c, masks[m], m % 2 == 0);
      int32_t four =
          kernel_case_constant(&c, KERNEL_DIMS(1, 1, 1, 1), (float[]){4});
      int32_t y = kernel_case_op(&c, "matrix_multiply", OPS(NONE, TRANSPOSE),
                                 KERNEL_INPUTS(q, k));
      y = kernel_case_op(&c, "elementwise", ELEMENTWISE(DIV),
                         KERNEL_INPUTS(y, four));
      // oneDNN may have no fast code for a mask of that shape.
      end(&c,
          kernel_case_op(&c, "elementwise", ELEMENTWISE(SUM),
                         KERNEL_INPUTS(y, mask)),
          0);
    }
  }
}

static void row_operands(void** state) {
  const rabbet_dims_t dims[] = {KERNEL_DIMS(12, 1), KERNEL_DIMS(1, 20),
                                KERNEL_DIMS(1, 1), KERNEL_DIMS(12, 20)};
  for (size_t i = 0; i < 4; ++i) {
    kernel_case_t c;
    begin(&c, *state, RABBET_DTYPE_FLOAT);
    int32_t x = kernel_case_input(&c, KERNEL_DIMS(12, 16), false);
    int32_t w = kernel_case_input(&c, KERNEL_DIMS(16, 20), true);
    int32_t s = kernel_case_input(&c, dims[i], false);
    int32_t y = kernel_case_op(&c, "matrix_multiply", OPS(NONE, NONE),
                               KERNEL_INPUTS(x, w));
    end(&c,
        kernel_case_op(&c, "elementwise", ELEMENTWISE(PROD),
                       KERNEL_INPUTS(y, s)),
        0);
  }
}

// ---- Shapes that change ----------------------------------------------------

static int32_t make_dense(kernel_case_t* c, rabbet_device_t* device,
                          int64_t batch, int64_t sequence) {
  begin(c, device, RABBET_DTYPE_FLOAT);
  int32_t x = kernel_case_input(c, KERNEL_DIMS(batch, sequence, 24), false);
  int32_t w = kernel_case_input(c, KERNEL_DIMS(1, 24, 32), true);
  int32_t b = kernel_case_input(c, KERNEL_DIMS(1, 1, 32), true);
  int32_t r = kernel_case_input(c, KERNEL_DIMS(batch, sequence, 32), false);
  int32_t y = kernel_case_op(c, "matrix_multiply", OPS(NONE, NONE),
                             KERNEL_INPUTS(x, w));
  y = kernel_case_op(c, "elementwise", ELEMENTWISE(SUM), KERNEL_INPUTS(y, b));
  y = kernel_case_op(c, "elementwise", ELEMENTWISE(SUM), KERNEL_INPUTS(y, r));
  kernel_case_output(c, y);
  return y;
}

static void other_shapes(void** state) {
  kernel_case_t opt, other;
  make_dense(&opt, *state, 2, 8);
  kernel_case_candidate_t* candidates = NULL;
  size_t count = kernel_case_candidates(&opt, &matmul_only, &candidates);
  assert_true(count >= 3);
  const int64_t sizes[][2] = {{1, 1}, {1, 128}, {7, 3}};
  for (size_t s = 0; s < 3; ++s) {
    make_dense(&other, *state, sizes[s][0], sizes[s][1]);
    for (size_t i = 0; i < count; ++i)
      kernel_case_run(&other, &candidates[i], 1);
    kernel_case_end(&other);
  }
  kernel_case_end(&opt);
}

static void make_sums(kernel_case_t* c, rabbet_device_t* device, int64_t k) {
  begin(c, device, RABBET_DTYPE_FLOAT);
  int32_t x = kernel_case_input(c, KERNEL_DIMS(3, 4, k), false);
  int32_t w = kernel_case_input(c, KERNEL_DIMS(1, k, 5), false);
  int32_t b = kernel_case_input(c, KERNEL_DIMS(1, 1, 5), true);
  int32_t r = kernel_case_input(c, KERNEL_DIMS(3, 4, 5), false);
  int32_t y = kernel_case_op(c, "matrix_multiply", OPS(NONE, NONE),
                             KERNEL_INPUTS(x, w));
  y = kernel_case_op(c, "elementwise", ELEMENTWISE(SUM), KERNEL_INPUTS(y, b));
  y = kernel_case_op(c, "elementwise", ELEMENTWISE(SUM), KERNEL_INPUTS(y, r));
  kernel_case_output(c, y);
}

static void sums_of_nothing(void** state) {
  kernel_case_t opt, none;
  make_sums(&opt, *state, 6);
  make_sums(&none, *state, 0);
  kernel_case_candidate_t* candidates = NULL;
  size_t count = kernel_case_candidates(&opt, &matmul_only, &candidates);
  assert_true(count >= 1);
  for (size_t i = 0; i < count; ++i)
    kernel_case_run(&none, &candidates[i], 1);
  kernel_case_end(&none);
  kernel_case_end(&opt);
}

static void integers_are_not_for_it(void** state) {
  kernel_case_t c;
  kernel_case_begin(&c, *state, RABBET_DTYPE_INT32);
  c.low = -20;
  c.high = 20;
  int32_t a = kernel_case_input(&c, KERNEL_DIMS(4, 5), false);
  int32_t b = kernel_case_input(&c, KERNEL_DIMS(5, 3), false);
  kernel_case_output(&c, kernel_case_op(&c, "matrix_multiply", OPS(NONE, NONE),
                                        KERNEL_INPUTS(a, b)));
  assert_int_equal(kernel_case_check(&c, &matmul_only), 0);
  // Only the catalogue's own kernel remains.
  assert_int_equal(
      kernel_case_check(&c, &(kernel_case_filter_t){.kernel = "reference"}), 1);
  kernel_case_end(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(shapes_float),
      cmocka_unit_test(shapes_half),
      cmocka_unit_test(shapes_bf16),
      cmocka_unit_test(constant_rows),
      cmocka_unit_test(product_with_itself),
      cmocka_unit_test(dense),
      cmocka_unit_test(dense_with_residual),
      cmocka_unit_test(scores),
      cmocka_unit_test(row_operands),
      cmocka_unit_test(other_shapes),
      cmocka_unit_test(sums_of_nothing),
      cmocka_unit_test(integers_are_not_for_it),
  };
  return cmocka_run_group_tests(tests, cpu_fixture_open, cpu_fixture_close);
}
