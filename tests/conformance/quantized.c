// Products and convolutions of 8 bits, from what dequantizes their factors to
// what quantizes the result.
#include "conformance/conformance.h"

static void range(conformance_t* t, double low, double high) {
  t->c.low = low;
  t->c.high = high;
}

static rabbet_dims_t ones(int32_t rank) {
  rabbet_dims_t dims = {.rank = rank};
  for (int32_t i = 0; i < rank; ++i)
    dims.d[i] = 1;
  return dims;
}

static int32_t scale(conformance_t* t, rabbet_dims_t dims, double most) {
  range(t, most / 2, most);
  return kernel_case_typed_input(&t->c, RABBET_DTYPE_FLOAT, dims, true);
}

// The reference is a FLOAT, whatever the case's type.
static int32_t dequantized(conformance_t* t, int32_t value, int32_t factor,
                           int32_t zero) {
  rabbet_attr_t attrs[] = {conformance_int(t, "to_type", RABBET_DTYPE_FLOAT)};
  int32_t inputs[] = {value, factor, zero};
  return kernel_case_op(&t->c, "dequantize", attrs, 1, inputs,
                        zero >= 0 ? 3 : 2);
}

static int32_t zero_point(conformance_t* t, rabbet_dtype_t dtype,
                          int32_t rank) {
  if (dtype == RABBET_DTYPE_FP8 || !conformance_chance(t, 3)) return -1;
  range(t, 1, 9);
  return kernel_case_typed_input(&t->c, dtype, ones(rank), true);
}

static int32_t numbers(conformance_t* t, rabbet_dtype_t dtype,
                       rabbet_dims_t dims, bool constant) {
  double most = dtype == RABBET_DTYPE_FP8 ? 4 : 60;
  range(t, dtype == RABBET_DTYPE_UINT8 ? 0 : -most, most);
  return kernel_case_typed_input(&t->c, dtype, dims, constant);
}

static int32_t activations(conformance_t* t, rabbet_dtype_t dtype,
                           rabbet_dims_t dims) {
  int32_t x = numbers(t, dtype, dims, false);
  int32_t factor = scale(t, ones(dims.rank), 0.25);
  return dequantized(t, x, factor, zero_point(t, dtype, dims.rank));
}

// One scale, or one for each index of the axis.
static int32_t weights(conformance_t* t, rabbet_dtype_t dtype,
                       rabbet_dims_t dims, int32_t axis) {
  int32_t w = numbers(t, dtype, dims, true);
  rabbet_dims_t scales = ones(dims.rank);
  if (conformance_chance(t, 2)) scales.d[axis] = dims.d[axis];
  return dequantized(t, w, scale(t, scales, 0.25), -1);
}

static int32_t elementwise(conformance_t* t, const char* op, const char* attr,
                           int64_t number, int32_t a, int32_t b) {
  rabbet_attr_t attrs[] = {conformance_int(t, attr, number)};
  int32_t inputs[] = {a, b};
  return kernel_case_op(&t->c, op, attrs, 1, inputs, b >= 0 ? 2 : 1);
}

// Rounded to 8 bits and back, as between the layers of a quantized model.
static int32_t rounded(conformance_t* t, int32_t value, rabbet_dtype_t dtype) {
  rabbet_dims_t dims = t->c.values[value].dims;
  rabbet_attr_t attrs[] = {conformance_int(t, "to_type", dtype)};
  int32_t factor = scale(t, ones(dims.rank), 8);
  int32_t inputs[] = {value, factor, zero_point(t, dtype, dims.rank)};
  int32_t bytes = kernel_case_op(&t->c, "quantize", attrs, 1, inputs,
                                 inputs[2] >= 0 ? 3 : 2);
  return dequantized(t, bytes, factor, inputs[2]);
}

// Bias, an added tensor, a function, the result in 8 bits.
static int32_t finish(conformance_t* t, int32_t value, rabbet_dtype_t dtype,
                      int32_t channel_axis) {
  kernel_case_t* c = &t->c;
  rabbet_dims_t dims = c->values[value].dims;
  if (channel_axis >= 0 && conformance_chance(t, 2)) {
    rabbet_dims_t bias = ones(dims.rank);
    bias.d[channel_axis] = dims.d[channel_axis];
    range(t, -2, 2);
    value = elementwise(t, "elementwise", "op", 0, value,
                        kernel_case_input(c, bias, true));
  }
  if (conformance_chance(t, 3))
    value = elementwise(t, "elementwise", "op", 0, value,
                        activations(t, dtype, dims));
  if (conformance_chance(t, 2))
    value = elementwise(t, "activation", "type", 0, value, -1);
  if (conformance_chance(t, 3)) return value;
  rabbet_attr_t attrs[] = {conformance_int(t, "to_type", dtype)};
  int32_t factor = scale(t, ones(dims.rank), 8);
  int32_t inputs[] = {value, factor, zero_point(t, dtype, dims.rank)};
  // A result in the middle of two may be rounded to either.
  c->units = 1;
  return kernel_case_op(c, "quantize", attrs, 1, inputs,
                        inputs[2] >= 0 ? 3 : 2);
}

static void begin(conformance_t* t) {
  conformance_set_type(t, RABBET_DTYPE_FLOAT);
  t->c.tolerance = 2e-6;
}

static int32_t convolved(conformance_t* t, rabbet_dtype_t dtype,
                         bool* out_has_bias) {
  kernel_case_t* c = &t->c;
  static const int64_t kernels[] = {1, 3, 3, 5}, counts[] = {3, 4, 8, 16, 32};
  int64_t groups = conformance_chance(t, 5) ? 2 : 1;
  int64_t from = groups * conformance_one_of(t, counts, 5);
  int64_t to = groups * conformance_one_of(t, counts, 5),
          kernel = conformance_one_of(t, kernels, 4);
  int64_t size = t->large ? 24 : 11;
  int64_t stride[] = {1 + conformance_random(t, 2),
                      1 + conformance_random(t, 2), 0};
  int64_t padding[] = {conformance_random(t, 3), conformance_random(t, 3), 0};
  rabbet_attr_t attrs[] = {conformance_ints(t, "stride_nd", stride, 2),
                           conformance_ints(t, "pre_padding", padding, 2),
                           conformance_ints(t, "post_padding", padding, 2),
                           conformance_int(t, "num_groups", groups)};
  int32_t inputs[] = {
      activations(t, dtype,
                  KERNEL_DIMS(1 + conformance_random(t, 2), from, size, size)),
      weights(t, RABBET_DTYPE_INT8,
              KERNEL_DIMS(to, from / groups, kernel, kernel), 0),
      -1};
  if (conformance_chance(t, 2)) {
    range(t, -2, 2);
    inputs[2] = kernel_case_input(c, KERNEL_DIMS(to), true);
  }
  *out_has_bias = inputs[2] >= 0;
  return kernel_case_op(c, "convolution", attrs, 4, inputs, 3);
}

static rabbet_dtype_t begin_bytes(conformance_t* t) {
  begin(t);
  return conformance_type(t,
                          1u << RABBET_DTYPE_INT8 | 1u << RABBET_DTYPE_UINT8);
}

static void quantized_convolution(conformance_t* t) {
  bool has_bias = false;
  rabbet_dtype_t dtype = begin_bytes(t);
  int32_t y = convolved(t, dtype, &has_bias);
  kernel_case_output(&t->c, finish(t, y, dtype, has_bias ? -1 : 1));
}

// The nodes behind begin with numbers of 8 bits, and may have them again.
static void quantized_chain(conformance_t* t) {
  bool has_bias = false;
  rabbet_dtype_t dtype = begin_bytes(t);
  int32_t y = rounded(t, convolved(t, dtype, &has_bias), dtype);
  rabbet_dims_t dims = t->c.values[y].dims;
  if (conformance_chance(t, 2)) {
    y = elementwise(t, "elementwise", "op", 0, y, activations(t, dtype, dims));
    if (conformance_chance(t, 2)) y = rounded(t, y, dtype);
  }
  y = finish(t, y, dtype, -1);
  // A number in the middle of two may be rounded to either, each time.
  t->c.units = 4;
  // The sums may be rounded to another number of 8 bits, too.
  if (t->c.values[y].dtype == RABBET_DTYPE_FLOAT) t->c.tolerance = 0.1;
  kernel_case_output(&t->c, y);
}

// [batch..., m, k] x [batch..., k, n]; the second factor turned or not,
// constant or not.
static void product(conformance_t* t, rabbet_dtype_t dtype,
                    rabbet_dtype_t weights_dtype, const int64_t* sizes,
                    int64_t count) {
  kernel_case_t* c = &t->c;
  int64_t m = conformance_one_of(t, sizes, count),
          n = conformance_one_of(t, sizes, count);
  int64_t k = conformance_one_of(t, sizes, count),
          turned = conformance_random(t, 2);
  int32_t batch = (int32_t)conformance_random(t, 3);
  bool constant = conformance_chance(t, 2);
  rabbet_dims_t a = {.rank = batch + 2}, b = {.rank = batch + 2};
  for (int32_t i = 0; i < batch; ++i) {
    a.d[i] = 1 + conformance_random(t, 3);
    b.d[i] = constant ? 1 : a.d[i];
  }
  a.d[batch] = m;
  a.d[batch + 1] = k;
  b.d[batch] = turned ? n : k;
  b.d[batch + 1] = turned ? k : n;
  rabbet_attr_t attrs[] = {conformance_int(t, "op0", 0),
                           conformance_int(t, "op1", turned)};
  int32_t inputs[] = {
      activations(t, dtype, a),
      constant ? weights(t, weights_dtype, b, turned ? batch : batch + 1)
               : activations(t, weights_dtype, b)};
  int32_t y = kernel_case_op(c, "matrix_multiply", attrs, 2, inputs, 2);
  kernel_case_output(c, finish(t, y, dtype, batch + 1));
}

static void quantized_product(conformance_t* t) {
  static const int64_t sizes[] = {1, 4, 16, 33, 64};
  product(t, begin_bytes(t), RABBET_DTYPE_INT8, sizes, 5);
}

static void quantized_product_fp8(conformance_t* t) {
  static const int64_t sizes[] = {16, 32, 48, 64};
  begin(t);
  conformance_set_type(t, conformance_type(t, CONFORMANCE_REALS));
  // A GPU's matrix units keep 13 fraction bits of a sum of 32 products of 8-bit
  // floats, and k is 64 at most: two such sums. 1.5e-4 of the largest was seen.
  t->c.tolerance = 0x1p-12;
  product(t, RABBET_DTYPE_FP8, RABBET_DTYPE_FP8, sizes, 4);
}

// ---- Scales that are found --------------------------------------------------

// Blocks that are whole and that are cut off, of rows, columns, boxes, and all;
// some of zeros.
static void dynamic_quantize(conformance_t* t) {
  static const rabbet_dtype_t results[] = {RABBET_DTYPE_INT8, RABBET_DTYPE_FP8};
  static const rabbet_dtype_t kept[] = {RABBET_DTYPE_FLOAT, RABBET_DTYPE_HALF,
                                        RABBET_DTYPE_BF16, RABBET_DTYPE_FP8,
                                        RABBET_DTYPE_E8M0};
  kernel_case_t* c = &t->c;
  c->exact = true;
  conformance_set_type(t, conformance_type(t, CONFORMANCE_REALS));
  rabbet_dims_t dims = conformance_dims(t, 1, 4);
  int64_t blocks[RABBET_MAX_RANK], size = 1 << conformance_random(t, 8);
  bool is_one = conformance_chance(t, 2);
  if (conformance_chance(t, 2)) dims.d[dims.rank - 1] = size * 4;
  for (int32_t i = 0; i < dims.rank; ++i)
    blocks[i] = conformance_chance(t, 2)   ? 1
                : conformance_chance(t, 3) ? -1
                                           : 1 + conformance_random(t, 16);
  rabbet_attr_t attrs[] = {
      conformance_int(t, "to_type", results[conformance_random(t, 2)]),
      conformance_int(t, "scale_type", kept[conformance_random(t, 5)]),
      conformance_int(t, "axis", conformance_random(t, dims.rank)),
      conformance_int(t, "block_size", size),
      conformance_ints(t, "block_shape", blocks,
                       is_one ? 0 : (size_t)dims.rank)};
  range(t, conformance_chance(t, 8) ? 0 : -4, conformance_chance(t, 8) ? 0 : 4);
  int32_t inputs[] = {kernel_case_input(c, dims, false), -1};
  range(t, 0.01, 0.5);
  if (conformance_chance(t, 3))
    inputs[1] = kernel_case_input(c, (rabbet_dims_t){.rank = 0}, false);
  int32_t y = kernel_case_op(c, "dynamic_quantize", attrs, 5, inputs,
                             inputs[1] < 0 ? 1 : 2);
  int64_t reads = conformance_random(t, 4);
  if (reads != 1) kernel_case_output(c, y);
  if (reads != 0) kernel_case_output(c, y + 1);
}

const conformance_family_t conformance_quantized[] = {
    {"dynamic_quantize", 200, dynamic_quantize},
    {"quantized_chain", 80, quantized_chain},
    {"quantized_convolution", 80, quantized_convolution},
    {"quantized_product", 80, quantized_product},
    {"quantized_product_fp8", 60, quantized_product_fp8},
    {0},
};
