// 8-bit products by oneDNN: groups that must be one kernel are, and compute the
// same as their layers one by one.
#include "conformance/cpu_device.h"
#include "device/cpu/dnnl/wrap.h"

#define NUMBERS(value) KERNEL_ATTRS(KERNEL_INT("op", value))
#define TO(dtype) KERNEL_ATTRS(KERNEL_INT("to_type", dtype))
enum { SUM = 0, RELU = 0 };

static int32_t typed(kernel_case_t* c, rabbet_dtype_t dtype, rabbet_dims_t dims,
                     double low, double high, bool constant) {
  c->low = low;
  c->high = high;
  return kernel_case_typed_input(c, dtype, dims, constant);
}

static int32_t dequantize(kernel_case_t* c, int32_t x, rabbet_dims_t scales) {
  int32_t scale = typed(c, RABBET_DTYPE_FLOAT, scales, 0.1, 0.3, true);
  return kernel_case_op(c, "dequantize", TO(RABBET_DTYPE_FLOAT),
                        KERNEL_INPUTS(x, scale));
}

static int32_t quantize(kernel_case_t* c, int32_t x, rabbet_dtype_t dtype,
                        rabbet_dims_t scales) {
  int32_t scale = typed(c, RABBET_DTYPE_FLOAT, scales, 3, 4, true);
  c->units = 1;
  return kernel_case_op(c, "quantize", TO(dtype), KERNEL_INPUTS(x, scale));
}

static void end(kernel_case_t* c, int32_t y, const char* kernel) {
  kernel_case_output(c, y);
  int found = kernel_case_check(c, &(kernel_case_filter_t){.kernel = kernel});
  if (rabbet_dnnl_has_byte_products())
    assert_true(found > 0);
  else
    assert_int_equal(found, 0);
  kernel_case_end(c);
}

static int32_t convolution(kernel_case_t* c, rabbet_device_t* device,
                           rabbet_dtype_t dtype) {
  kernel_case_begin(c, device, RABBET_DTYPE_FLOAT);
  c->tolerance = 2e-6;
  double low = dtype == RABBET_DTYPE_UINT8 ? 0 : -100;
  int32_t x =
      dequantize(c, typed(c, dtype, KERNEL_DIMS(2, 16, 9, 9), low, 100, false),
                 KERNEL_DIMS(1, 1, 1, 1));
  int32_t w = dequantize(
      c,
      typed(c, RABBET_DTYPE_INT8, KERNEL_DIMS(32, 16, 3, 3), -100, 100, true),
      KERNEL_DIMS(32, 1, 1, 1));
  int32_t b = typed(c, RABBET_DTYPE_FLOAT, KERNEL_DIMS(32), -9, 9, true);
  return kernel_case_op(c, "convolution", KERNEL_NO_ATTRS,
                        KERNEL_INPUTS(x, w, b));
}

// Convolution, bias, RELU, in and out in 8 bits; the result in FLOAT as well.
static void convolutions(void** state) {
  const rabbet_dtype_t types[] = {RABBET_DTYPE_INT8, RABBET_DTYPE_UINT8};
  kernel_case_t c;
  for (int i = 0; i < 4; ++i) {
    int32_t y = convolution(&c, *state, types[i % 2]);
    y = kernel_case_op(&c, "activation", KERNEL_ATTRS(KERNEL_INT("type", RELU)),
                       KERNEL_INPUTS(y));
    if (i < 2) y = quantize(&c, y, types[i % 2], KERNEL_DIMS(1, 1, 1, 1));
    end(&c, y, "dnnl.convolution");
  }
}

// A tensor of 8 bits is added as it lies, one of FLOAT too.
static void residuals(void** state) {
  kernel_case_t c;
  for (int i = 0; i < 2; ++i) {
    int32_t y = convolution(&c, *state, RABBET_DTYPE_INT8);
    rabbet_dims_t dims = c.values[y].dims;
    int32_t r =
        i == 0 ? dequantize(
                     &c, typed(&c, RABBET_DTYPE_INT8, dims, -100, 100, false),
                     KERNEL_DIMS(1, 1, 1, 1))
               : typed(&c, RABBET_DTYPE_FLOAT, dims, -100, 100, false);
    y = kernel_case_op(&c, "elementwise", NUMBERS(SUM), KERNEL_INPUTS(y, r));
    y = kernel_case_op(&c, "activation", KERNEL_ATTRS(KERNEL_INT("type", RELU)),
                       KERNEL_INPUTS(y));
    end(&c, quantize(&c, y, RABBET_DTYPE_INT8, KERNEL_DIMS(1, 1, 1, 1)),
        "dnnl.convolution");
  }
}

// The tensor that is added is the convolution's input: the result must not be
// written over it.
static void input_that_is_added(void** state) {
  kernel_case_t c;
  kernel_case_begin(&c, *state, RABBET_DTYPE_FLOAT);
  c.tolerance = 2e-6;
  int32_t x = typed(&c, RABBET_DTYPE_INT8, KERNEL_DIMS(1, 16, 12, 12), -100,
                    100, false);
  int32_t w = dequantize(
      &c,
      typed(&c, RABBET_DTYPE_INT8, KERNEL_DIMS(16, 16, 3, 3), -100, 100, true),
      KERNEL_DIMS(16, 1, 1, 1));
  int32_t y = kernel_case_op(
      &c, "convolution",
      KERNEL_ATTRS(KERNEL_INTS("pre_padding", 1, 1),
                   KERNEL_INTS("post_padding", 1, 1)),
      KERNEL_INPUTS(dequantize(&c, x, KERNEL_DIMS(1, 1, 1, 1)), w));
  y = kernel_case_op(
      &c, "elementwise", NUMBERS(SUM),
      KERNEL_INPUTS(y, dequantize(&c, x, KERNEL_DIMS(1, 1, 1, 1))));
  y = quantize(&c, y, RABBET_DTYPE_INT8, KERNEL_DIMS(1, 1, 1, 1));
  kernel_case_output(&c, y);
  const kernel_case_filter_t convolutions = {.kernel = "dnnl.convolution"};
  kernel_case_candidate_t* candidates = NULL;
  size_t count = kernel_case_candidates(&c, &convolutions, &candidates);
  assert_int_equal(count > 0, rabbet_dnnl_has_byte_products());
  for (size_t i = 0; i < count; ++i)
    assert_int_equal(candidates[i].in_place[0], -1);
  kernel_case_check(&c, &convolutions);
  kernel_case_end(&c);
}

static void products(void** state) {
  kernel_case_t c;
  for (int turned = 0; turned < 2; ++turned) {
    kernel_case_begin(&c, *state, RABBET_DTYPE_FLOAT);
    rabbet_dims_t shape = turned ? KERNEL_DIMS(48, 64) : KERNEL_DIMS(64, 48);
    int32_t x = dequantize(
        &c, typed(&c, RABBET_DTYPE_INT8, KERNEL_DIMS(20, 64), -100, 100, false),
        KERNEL_DIMS(1, 1));
    int32_t w =
        dequantize(&c, typed(&c, RABBET_DTYPE_INT8, shape, -100, 100, true),
                   turned ? KERNEL_DIMS(48, 1) : KERNEL_DIMS(1, 48));
    int32_t b = typed(&c, RABBET_DTYPE_FLOAT, KERNEL_DIMS(1, 48), -9, 9, true);
    int32_t y = kernel_case_op(
        &c, "matrix_multiply",
        KERNEL_ATTRS(KERNEL_INT("op0", 0), KERNEL_INT("op1", turned)),
        KERNEL_INPUTS(x, w));
    y = kernel_case_op(&c, "elementwise", NUMBERS(SUM), KERNEL_INPUTS(y, b));
    end(&c, quantize(&c, y, RABBET_DTYPE_INT8, KERNEL_DIMS(1, 1)),
        "dnnl.matmul");
  }
}

static int32_t with_zero(kernel_case_t* c, const char* op, rabbet_dtype_t to,
                         int32_t x, rabbet_dtype_t dtype, int32_t rank) {
  rabbet_dims_t one = {.rank = rank};
  for (int32_t i = 0; i < rank; ++i)
    one.d[i] = 1;
  int32_t scale = typed(c, RABBET_DTYPE_FLOAT, one, 0.5, 0.6, true);
  int32_t zero = typed(c, dtype, one, 5, 9, true);
  return kernel_case_op(c, op, TO(to), KERNEL_INPUTS(x, scale, zero));
}

// Padding is made of the number that stands for 0.
static void zero_points(void** state) {
  const rabbet_dtype_t types[] = {RABBET_DTYPE_INT8, RABBET_DTYPE_UINT8};
  kernel_case_t c;
  for (int i = 0; i < 4; ++i) {
    rabbet_dtype_t dtype = types[i % 2];
    bool image = i < 2;
    kernel_case_begin(&c, *state, RABBET_DTYPE_FLOAT);
    rabbet_dims_t shape =
        image ? KERNEL_DIMS(1, 16, 8, 8) : KERNEL_DIMS(20, 64);
    int32_t x = typed(&c, dtype, shape, dtype == RABBET_DTYPE_UINT8 ? 0 : -100,
                      100, false);
    x = with_zero(&c, "dequantize", RABBET_DTYPE_FLOAT, x, dtype, shape.rank);
    int32_t w = typed(&c, RABBET_DTYPE_INT8,
                      image ? KERNEL_DIMS(16, 16, 3, 3) : KERNEL_DIMS(64, 32),
                      -100, 100, true);
    w = dequantize(&c, w,
                   image ? KERNEL_DIMS(16, 1, 1, 1) : KERNEL_DIMS(1, 32));
    int32_t y =
        image ? kernel_case_op(&c, "convolution",
                               KERNEL_ATTRS(KERNEL_INTS("pre_padding", 1, 1),
                                            KERNEL_INTS("post_padding", 1, 1)),
                               KERNEL_INPUTS(x, w))
              : kernel_case_op(
                    &c, "matrix_multiply",
                    KERNEL_ATTRS(KERNEL_INT("op0", 0), KERNEL_INT("op1", 0)),
                    KERNEL_INPUTS(x, w));
    // Most results lie within the type.
    y = kernel_case_op(&c, "elementwise", NUMBERS(1),
                       KERNEL_INPUTS(y, typed(&c, RABBET_DTYPE_FLOAT,
                                              image ? KERNEL_DIMS(1, 1, 1, 1)
                                                    : KERNEL_DIMS(1, 1),
                                              0.02, 0.02, true)));
    c.units = 1;
    end(&c, with_zero(&c, "quantize", dtype, y, dtype, shape.rank),
        image ? "dnnl.convolution" : "dnnl.matmul");
  }
}

// A scale that varies along the summed axis cannot be factored out of the sums:
// these products are left to other covers.
static void scales_that_are_not_for_it(void** state) {
  kernel_case_t c;
  kernel_case_begin(&c, *state, RABBET_DTYPE_FLOAT);
  int32_t x = dequantize(
      &c, typed(&c, RABBET_DTYPE_INT8, KERNEL_DIMS(20, 64), -100, 100, false),
      KERNEL_DIMS(1, 64));  // along the sums
  int32_t w = dequantize(
      &c, typed(&c, RABBET_DTYPE_INT8, KERNEL_DIMS(64, 48), -100, 100, true),
      KERNEL_DIMS(1, 1));
  kernel_case_output(&c, kernel_case_op(&c, "matrix_multiply",
                                        KERNEL_ATTRS(KERNEL_INT("op0", 0),
                                                     KERNEL_INT("op1", 0)),
                                        KERNEL_INPUTS(x, w)));
  assert_int_equal(
      kernel_case_check(&c, &(kernel_case_filter_t){.kernel = "dnnl.matmul"}),
      0);
  kernel_case_end(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(convolutions),
      cmocka_unit_test(residuals),
      cmocka_unit_test(input_that_is_added),
      cmocka_unit_test(products),
      cmocka_unit_test(zero_points),
      cmocka_unit_test(scales_that_are_not_for_it),
  };
  return cmocka_run_group_tests(tests, cpu_fixture_open, cpu_fixture_close);
}
