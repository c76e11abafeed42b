// Which functions of cuda.matmul.weight_only run for which weights, blocks and
// addresses, and that their results are right.
#include "conformance/kernel_case.h"
#include "cuda_stand_in/device.h"
#include "ops/enums.h"

static const kernel_case_filter_t weight_only = {.kernel =
                                                     "cuda.matmul.weight_only"};

typedef enum shift_t { PLAIN, SHIFTED } shift_t;

typedef struct product_t {
  rabbet_dtype_t dtype, weights, scales;
  int64_t rows, n, k;
  // Extents of the scales, and of the zero points if `shift`.
  int64_t scale_n, scale_k;
  shift_t shift;
  int64_t op1;
  uint32_t misaligned;
  const char* launched;  // what must have been launched
} product_t;

#define F16 RABBET_DTYPE_HALF
#define B16 RABBET_DTYPE_BF16
#define F32 RABBET_DTYPE_FLOAT
#define I4 RABBET_DTYPE_INT4
#define I8 RABBET_DTYPE_INT8
#define U8 RABBET_DTYPE_UINT8
#define F4 RABBET_DTYPE_FP4
#define F8 RABBET_DTYPE_FP8

static const product_t products[] = {
    // Blocks of 16 bytes of weights, of a stage, of several stages, of a line.
    {F16, I4, F16, 1, 48, 512, 48, 16, SHIFTED, 1, 0, "weight_only,"},
    {F32, I4, F32, 1, 24, 512, 24, 16, PLAIN, 1, 0, "weight_only,"},
    {F16, I4, F32, 3, 24, 1024, 24, 2, PLAIN, 1, 0, "weight_only,"},
    {B16, F8, F32, 1, 40, 256, 1, 1, PLAIN, 1, 0, "weight_only,"},
    // Of half of that, which the program for one row does not have.
    {B16, F4, F32, 1, 16, 256, 16, 16, PLAIN, 1, 0, "weight_only,"},
    // Several rows, in one part and in two.
    {F16, I8, F16, 16, 72, 256, 72, 8, SHIFTED, 1, 0, "weight_only,"},
    {F32, U8, F32, 50, 40, 128, 40, 1, SHIFTED, 1, 0, "weight_only,"},
    // Weights along n, and lines that are no whole pieces: copies.
    {F16, I4, F16, 1, 50, 256, 50, 8, SHIFTED, 0, 0, "weight_only,"},
    {F16, I4, F16, 1, 17, 63, 17, 1, SHIFTED, 1, 0, "weight_only_single,"},
    // Blocks of a cluster share the stages, some without any.
    {F16, I4, F16, 1, 40, 4096, 40, 128, SHIFTED, 1, 0, "cluster 2 1 1"},
    {F16, I4, F32, 1, 24, 8192, 24, 8, PLAIN, 1, 0, "cluster 4 1 1"},
    {B16, I8, F32, 5, 20, 4224, 20, 1, SHIFTED, 1, 0, "cluster 4 1 1"},
    {F32, F8, F32, 3, 16, 2100, 16, 1, PLAIN, 1, 0, "cluster 2 1 1"},
    // An unaligned row of x.
    {F16, I4, F16, 1, 24, 256, 24, 8, PLAIN, 1, 1 << 4, "weight_only_single,"},
    // Numbers of a table.
    {F32, RABBET_DTYPE_NF4, F32, 3, 24, 512, 24, 8, PLAIN, 1, 0,
     "weight_only,"},
    // Blocks that are no part of a stage.
    {F16, I4, F16, 2, 24, 72, 24, 3, SHIFTED, 1, 0, "weight_only,"},
};

static rabbet_dims_t matrix(const product_t* p, int64_t n, int64_t k) {
  return p->op1 ? KERNEL_DIMS(n, k) : KERNEL_DIMS(k, n);
}

static int32_t weights(kernel_case_t* c, const product_t* p,
                       rabbet_dims_t dims) {
  bool narrow = rabbet_dtype_bits(p->weights) == 4;
  c->high = p->weights == F4 ? 6 : narrow ? 7 : 60;
  c->low = p->weights == U8 ? 0 : p->weights == I4 ? -8 : -c->high;
  return kernel_case_typed_input(c, p->weights, dims, true);
}

static int32_t dequantized(kernel_case_t* c, const product_t* p) {
  int32_t inputs[3];
  inputs[0] = weights(c, p, matrix(p, p->n, p->k));
  c->low = 0.25, c->high = 0.5;
  inputs[1] = kernel_case_typed_input(c, p->scales,
                                      matrix(p, p->scale_n, p->scale_k), true);
  if (p->shift) inputs[2] = weights(c, p, matrix(p, p->scale_n, p->scale_k));
  c->low = -1, c->high = 1;
  return kernel_case_op(c, "dequantize",
                        KERNEL_ATTRS(KERNEL_INT("to_type", RABBET_DTYPE_FLOAT)),
                        inputs, p->shift ? 3 : 2);
}

// Pairs: silu(x a) * (x b), or with the factors and the products in turns.
static const product_t pairs[] = {
    {F16, I4, F16, 1, 48, 512, 48, 16, SHIFTED, 1, 0, "weight_only,"},
    {F32, I4, F32, 1, 24, 512, 24, 16, PLAIN, 1, 0, "weight_only,"},
    {B16, F8, F32, 1, 40, 256, 1, 1, PLAIN, 1, 0, "weight_only,"},
    {F16, I8, F16, 16, 72, 256, 72, 8, SHIFTED, 1, 0, "weight_only,"},
    {F32, U8, F32, 10, 40, 128, 40, 1, SHIFTED, 1, 0, "weight_only,"},
    {F16, F4, F16, 3, 70, 256, 70, 8, PLAIN, 1, 0, "weight_only,"},
    {F16, I4, F16, 1, 50, 256, 50, 8, SHIFTED, 0, 0, "weight_only,"},
    {F16, I4, F16, 1, 17, 63, 17, 1, SHIFTED, 1, 0, "weight_only_single,"},
    {F16, I4, F16, 1, 40, 4096, 40, 128, SHIFTED, 1, 0, "cluster 2 1 1"},
    {B16, I8, F32, 5, 20, 4224, 20, 1, SHIFTED, 1, 0, "cluster 4 1 1"},
    {F32, RABBET_DTYPE_NF4, F32, 3, 24, 512, 24, 8, PLAIN, 1, 0,
     "weight_only,"},
};

static int32_t multiplied(kernel_case_t* c, const product_t* p, int32_t x,
                          int32_t w) {
  return kernel_case_op(
      c, "matrix_multiply",
      KERNEL_ATTRS(KERNEL_INT("op0", 0), KERNEL_INT("op1", p->op1)),
      KERNEL_INPUTS(x, w));
}

static int32_t joined(kernel_case_t* c, int64_t op, int32_t a, int32_t b) {
  return kernel_case_op(c, "elementwise", KERNEL_ATTRS(KERNEL_INT("op", op)),
                        KERNEL_INPUTS(a, b));
}

// The gate may be the first or the second product, its sum may be on either
// side, and what follows may be nothing or a sum.
static int32_t gated(kernel_case_t* c, const product_t* p, int variant) {
  int32_t w[2];
  for (int i = 0; i < 2; ++i)
    w[i] = dequantized(c, p);
  int32_t x = kernel_case_input(c, KERNEL_DIMS(p->rows, p->k), false);
  int32_t y[2];
  for (int i = 0; i < 2; ++i)
    y[i] = multiplied(c, p, x, w[i]);
  int32_t gate = y[variant % 2], up = y[1 - variant % 2];
  int32_t sigmoid = kernel_case_op(
      c, "activation",
      KERNEL_ATTRS(KERNEL_INT("type", RABBET_ACTIVATION_SIGMOID)),
      KERNEL_INPUTS(gate));
  gate = joined(c, RABBET_ELEMENTWISE_PROD, gate, sigmoid);
  int32_t result = variant % 3 == 0
                       ? joined(c, RABBET_ELEMENTWISE_PROD, up, gate)
                       : joined(c, RABBET_ELEMENTWISE_SUB, gate, up);
  if (variant % 4 != 0) return result;
  int32_t more = kernel_case_input(c, KERNEL_DIMS(p->rows, p->n), false);
  return joined(c, RABBET_ELEMENTWISE_SUM, more, result);
}

static void two_products(void** state) {
  rabbet_cuda_device_t* device = *state;
  for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); ++i) {
    const product_t* p = &pairs[i];
    kernel_case_t c;
    kernel_case_begin(&c, &device->base, p->dtype);
    c.tolerance = 4e-6;
    kernel_case_output(&c, gated(&c, p, (int)i));
    snprintf(c.origin, sizeof(c.origin), "pair %zu", i);
    stand_in()->clear_log();
    if (kernel_case_check(&c, &weight_only) < 4)
      fail_msg("pair %zu has too few candidates", i);
    if (!strstr(stand_in()->log(), p->launched))
      fail_msg("pair %zu did not launch %s\n%s", i, p->launched,
               stand_in()->log());
    kernel_case_end(&c);
  }
}

static void functions(void** state) {
  rabbet_cuda_device_t* device = *state;
  for (size_t i = 0; i < sizeof(products) / sizeof(products[0]); ++i) {
    const product_t* p = &products[i];
    kernel_case_t c;
    kernel_case_begin(&c, &device->base, p->dtype);
    c.tolerance = 4e-6;
    c.misaligned = p->misaligned;
    int32_t w = dequantized(&c, p);
    int32_t x = kernel_case_input(&c, KERNEL_DIMS(p->rows, p->k), false);
    int32_t y = kernel_case_op(
        &c, "matrix_multiply",
        KERNEL_ATTRS(KERNEL_INT("op0", 0), KERNEL_INT("op1", p->op1)),
        KERNEL_INPUTS(x, w));
    int32_t bias = kernel_case_input(&c, KERNEL_DIMS(1, p->n), true);
    y = kernel_case_op(&c, "elementwise", KERNEL_ATTRS(KERNEL_INT("op", 0)),
                       KERNEL_INPUTS(y, bias));
    kernel_case_output(
        &c,
        kernel_case_op(&c, "activation",
                       KERNEL_ATTRS(KERNEL_INT("type", RABBET_ACTIVATION_RELU)),
                       KERNEL_INPUTS(y)));
    snprintf(c.origin, sizeof(c.origin), "product %zu", i);
    stand_in()->clear_log();
    if (kernel_case_check(&c, &weight_only) < 4)
      fail_msg("product %zu has too few candidates", i);
    if (!strstr(stand_in()->log(), p->launched))
      fail_msg("product %zu did not launch %s\n%s", i, p->launched,
               stand_in()->log());
    kernel_case_end(&c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(functions),
                                     cmocka_unit_test(two_products)};
  return cmocka_run_group_tests(tests, stand_in_device_setup,
                                stand_in_device_teardown);
}
