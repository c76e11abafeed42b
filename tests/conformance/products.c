// Convolution, pooling and matrix products, with what is fused into them;
// recurrent networks, determinants.
#include <string.h>

#include "conformance/conformance.h"
#include "ops/enums.h"
#include "ops/rnn.h"

static int64_t one_of(conformance_t* t, const int64_t* values, int64_t count) {
  return values[conformance_random(t, count)];
}

// A sum with a residual and an activation, as networks have them.
static int32_t epilogue(conformance_t* t, int32_t value) {
  kernel_case_t* c = &t->c;
  if (conformance_chance(t, 3)) {
    int32_t residual = kernel_case_input(c, c->values[value].dims, false);
    rabbet_attr_t attrs[] = {conformance_int(t, "op", 0)};
    int32_t pair[] = {value, residual};
    value = kernel_case_op(c, "elementwise", attrs, 1, pair, 2);
  }
  if (conformance_chance(t, 2)) {
    rabbet_attr_t attrs[] = {conformance_int(t, "type", 0)};
    value = kernel_case_op(c, "activation", attrs, 1, &value, 1);
  }
  return value;
}

static void begin(conformance_t* t) {
  conformance_set_type(t, conformance_type(t, CONFORMANCE_REALS));
  if (conformance_chance(t, 2)) conformance_set_type(t, RABBET_DTYPE_FLOAT);
  t->c.low = -1;
  t->c.high = 1;
  t->c.tolerance = 2e-5;  // Winograd's sums cancel
}

// Some algorithms of cuBLASLt and engines of cuDNN round a product before they
// add a bias or a residual.
static void rounds_layers(conformance_t* t) {
  t->c.rounds_layers = strcmp(t->c.device->kind, "cuda") == 0;
}

static void convolution(conformance_t* t) {
  kernel_case_t* c = &t->c;
  begin(t);
  rounds_layers(t);
  static const int64_t kernels[] = {1, 3, 3, 5},
                       counts[] = {1, 3, 8, 16, 20, 32};
  int64_t groups = conformance_chance(t, 5) ? 4 : 1;
  int64_t from = groups * one_of(t, counts, groups > 1 ? 4 : 6);
  int64_t to = groups * one_of(t, counts, groups > 1 ? 4 : 6);
  int64_t kernel = one_of(t, kernels, 4), size = t->large ? 40 : 11;
  int64_t stride[] = {1 + conformance_random(t, 2),
                      1 + conformance_random(t, 2), 0};
  int64_t dilation[] = {1, 1 + conformance_random(t, 2), 0};
  int64_t before[] = {conformance_random(t, 3), conformance_random(t, 3), 0};
  int64_t after[] = {conformance_random(t, 3), conformance_random(t, 3), 0};
  rabbet_attr_t attrs[] = {conformance_ints(t, "stride_nd", stride, 2),
                           conformance_ints(t, "dilation_nd", dilation, 2),
                           conformance_ints(t, "pre_padding", before, 2),
                           conformance_ints(t, "post_padding", after, 2),
                           conformance_int(t, "num_groups", groups)};
  int32_t inputs[] = {
      kernel_case_input(
          c, KERNEL_DIMS(1 + conformance_random(t, 2), from, size, size + 3),
          false),
      kernel_case_input(c, KERNEL_DIMS(to, from / groups, kernel, kernel),
                        true),
      -1};
  if (conformance_chance(t, 2))
    inputs[2] = kernel_case_input(c, KERNEL_DIMS(to), true);
  int32_t value = kernel_case_op(c, "convolution", attrs, 5, inputs, 3);
  kernel_case_output(c, epilogue(t, value));
}

// Windows of one pixel: matrix products, if channels lie last.
static void convolution_pixels(conformance_t* t) {
  kernel_case_t* c = &t->c;
  begin(t);
  rounds_layers(t);
  static const int64_t counts[] = {1, 3, 8, 16, 20, 32};
  int64_t from = one_of(t, counts, 6), to = one_of(t, counts, 6);
  rabbet_dims_t x = {.rank = 3 + (int32_t)conformance_random(t, 3)};
  rabbet_dims_t w = {.rank = x.rank, .d = {to, from}};
  int64_t padding[3] = {conformance_chance(t, 5)};
  x.d[0] = 1 + conformance_random(t, 2);
  x.d[1] = from;
  for (int32_t i = 2; i < x.rank; ++i) {
    x.d[i] = 1 + conformance_random(t, t->large && x.rank == 4 ? 40 : 9);
    w.d[i] = 1;
  }
  rabbet_attr_t attrs[] = {
      conformance_ints(t, "pre_padding", padding, (size_t)x.rank - 2)};
  bool own_bias = conformance_chance(t, 2);
  int32_t inputs[] = {kernel_case_input(c, x, false),
                      kernel_case_input(c, w, true), -1};
  if (own_bias) inputs[2] = kernel_case_input(c, KERNEL_DIMS(to), true);
  int32_t value = kernel_case_op(c, "convolution", attrs, 1, inputs, 3);
  if (!own_bias && conformance_chance(t, 2)) {
    rabbet_dims_t dims = {.rank = x.rank, .d = {1, to}};
    for (int32_t i = 2; i < x.rank; ++i)
      dims.d[i] = 1;
    rabbet_attr_t sum[] = {conformance_int(t, "op", 0)};
    int32_t pair[] = {value, kernel_case_input(c, dims, true)};
    value = kernel_case_op(c, "elementwise", sum, 1, pair, 2);
  }
  kernel_case_output(c, epilogue(t, value));
}

// One to three spatial axes, every mode of padding, windows shorter and longer
// than their steps.
static void deconvolution(conformance_t* t) {
  kernel_case_t* c = &t->c;
  begin(t);
  static const int64_t counts[] = {1, 3, 8, 16, 20, 32};
  int64_t groups = conformance_chance(t, 5) ? 4 : 1;
  int64_t from = groups * one_of(t, counts, groups > 1 ? 4 : 6);
  int64_t to = groups * one_of(t, counts, groups > 1 ? 4 : 6);
  bool shuffles = conformance_chance(t, 3);  // each input makes a block
  bool plane = conformance_chance(t, 2);
  rabbet_dims_t in = {.rank =
                          plane ? 4 : 3 + (int32_t)conformance_random(t, 3)};
  rabbet_dims_t kernel = {.rank = in.rank, .d = {from, to / groups}};
  int64_t stride[4] = {0}, dilation[4] = {0}, extra[4] = {0};
  int64_t before[4] = {0}, after[4] = {0};
  in.d[0] = 1 + conformance_random(t, 2);
  in.d[1] = from;
  for (int32_t i = 0; i < in.rank - 2; ++i) {
    in.d[i + 2] = 4 + conformance_random(t, t->large && plane ? 30 : 5);
    stride[i] = 1 + conformance_random(t, 3);
    kernel.d[i + 2] = shuffles ? stride[i] : 1 + conformance_random(t, 4);
    dilation[i] = shuffles ? 1 : 1 + conformance_random(t, 2);
    before[i] = shuffles ? 0 : conformance_random(t, kernel.d[i + 2]);
    after[i] = shuffles ? 0 : conformance_random(t, kernel.d[i + 2]);
    extra[i] = shuffles ? 0 : conformance_random(t, stride[i]);
  }
  size_t axes = (size_t)in.rank - 2;
  rabbet_attr_t attrs[] = {
      conformance_ints(t, "stride_nd", stride, axes),
      conformance_ints(t, "dilation_nd", dilation, axes),
      conformance_ints(t, "pre_padding", before, axes),
      conformance_ints(t, "post_padding", after, axes),
      conformance_ints(t, "output_padding", extra, axes),
      conformance_int(t, "padding_mode",
                      shuffles ? 0 : conformance_random(t, 4)),
      conformance_int(t, "num_groups", groups)};
  int32_t inputs[] = {kernel_case_input(c, in, false),
                      kernel_case_input(c, kernel, !conformance_chance(t, 5)),
                      -1};
  if (conformance_chance(t, 2))
    inputs[2] = kernel_case_input(c, KERNEL_DIMS(to), true);
  int32_t value = kernel_case_op(c, "deconvolution", attrs, 7, inputs, 3);
  kernel_case_output(c, epilogue(t, value));
}

// Images of one pixel, whose memory does not tell the order of axes: as the
// input, the output or both, beside filters that do tell it.
static void convolution_of_one_pixel(conformance_t* t) {
  // From 1 pixel or `size`, by a filter of `kernel` steps and padding at both
  // ends.
  static const struct {
    int64_t size, kernel, padding;
    bool transposed;
  } kinds[] = {
      {1, 3, 1, false},                   // one pixel to one
      {1, 3, 2, false},                   // one to nine
      {1, 1, 0, false},                   // squeeze-and-excite
      {1, 1, 1, false},                   // a filter that does not tell it
      {5, 5, 0, false},                   // a filter that covers the image
      {3, 5, 1, false}, {1, 4, 0, true},  // a generator's first layer
      {1, 3, 1, true},  {3, 3, 2, true}, {1, 1, 0, true},
  };
  static const int64_t counts[] = {1, 3, 8, 16, 20, 32};
  kernel_case_t* c = &t->c;
  begin(t);
  rounds_layers(t);
  int64_t kind =
      conformance_random(t, (int64_t)(sizeof(kinds) / sizeof(kinds[0])));
  int64_t groups = conformance_chance(t, 4) ? 4 : 1;
  int64_t from = groups * one_of(t, counts, groups > 1 ? 4 : 6);
  int64_t to = groups * one_of(t, counts, groups > 1 ? 4 : 6);
  bool transposed = kinds[kind].transposed;
  rabbet_dims_t x = {.rank = conformance_chance(t, 4)
                                 ? 3 + 2 * (int32_t)conformance_random(t, 2)
                                 : 4};
  rabbet_dims_t w = {
      .rank = x.rank,
      .d = {transposed ? from : to, (transposed ? to : from) / groups}};
  int64_t padding[3] = {0};
  x.d[0] = 1 + conformance_random(t, 4);
  x.d[1] = from;
  for (int32_t i = 2; i < x.rank; ++i) {
    x.d[i] = kinds[kind].size;
    w.d[i] = kinds[kind].kernel;
    padding[i - 2] = kinds[kind].padding;
  }
  if (c->dtype == RABBET_DTYPE_FLOAT && conformance_chance(t, 2)) {
    c->tf32 = true;
    c->tolerance = 3e-3;
  }
  size_t axes = (size_t)x.rank - 2;
  rabbet_attr_t attrs[] = {conformance_ints(t, "pre_padding", padding, axes),
                           conformance_ints(t, "post_padding", padding, axes),
                           conformance_int(t, "num_groups", groups)};
  int32_t inputs[] = {kernel_case_input(c, x, false),
                      kernel_case_input(c, w, true), -1};
  if (conformance_chance(t, 2))
    inputs[2] = kernel_case_input(c, KERNEL_DIMS(to), true);
  int32_t value = kernel_case_op(
      c, transposed ? "deconvolution" : "convolution", attrs, 3, inputs, 3);
  kernel_case_output(c, epilogue(t, value));
}

static void pooling(conformance_t* t) {
  kernel_case_t* c = &t->c;
  begin(t);
  static const int64_t channels[] = {1, 3, 16, 20, 32};
  int64_t window[] = {1 + conformance_random(t, 3),
                      1 + conformance_random(t, 3), 0};
  int64_t stride[] = {1 + conformance_random(t, 2),
                      1 + conformance_random(t, 2), 0};
  int64_t padding[] = {conformance_random(t, window[0]),
                       conformance_random(t, window[1]), 0};
  rabbet_attr_t attrs[] = {conformance_int(t, "type", conformance_random(t, 2)),
                           conformance_ints(t, "window_size_nd", window, 2),
                           conformance_ints(t, "stride_nd", stride, 2),
                           conformance_ints(t, "pre_padding", padding, 2),
                           conformance_ints(t, "post_padding", padding, 2),
                           conformance_bool(t, "average_count_excludes_padding",
                                            conformance_chance(t, 2))};
  int64_t size = t->large ? 60 : 9;
  // Rows of whole vectors, too, as devices may have another way for them.
  int64_t width = conformance_chance(t, 2) ? size + 2 : (size / 8 + 1) * 8;
  int32_t x = kernel_case_input(
      c, KERNEL_DIMS(2, one_of(t, channels, 5), size, width), false);
  kernel_case_output(c, kernel_case_op(c, "pooling", attrs, 6, &x, 1));
}

// One to three spatial axes, every kind and mode of padding, windows that cover
// all of the input, or with ROUND_UP more than that.
static void pooling_modes(conformance_t* t) {
  kernel_case_t* c = &t->c;
  begin(t);
  static const int64_t channels[] = {1, 3, 8, 16, 20};
  rabbet_dims_t in = {.rank = 3 + (int32_t)conformance_random(t, 3)};
  int64_t window[4] = {0}, stride[4] = {0}, before[4] = {0}, after[4] = {0};
  bool whole = conformance_chance(t, 3);
  bool beyond = whole && conformance_chance(t, 2);
  in.d[0] = 1 + conformance_random(t, 3);
  in.d[1] = one_of(t, channels, 5);
  for (int32_t i = 0; i < in.rank - 2; ++i) {
    in.d[i + 2] = 4 + conformance_random(t, t->large ? 20 : 6);
    window[i] = whole ? in.d[i + 2] : 1 + conformance_random(t, 4);
    stride[i] = 1 + conformance_random(t, beyond ? 40 : 3);
    if (beyond) window[i] += conformance_random(t, stride[i]);
    before[i] = whole ? 0 : conformance_random(t, window[i]);
    after[i] = whole ? 0 : conformance_random(t, window[i]);
  }
  size_t axes = (size_t)in.rank - 2;
  static const double blend[] = {0.25};
  rabbet_attr_t attrs[] = {
      conformance_int(t, "type", conformance_random(t, 3)),
      conformance_ints(t, "window_size_nd", window, axes),
      conformance_ints(t, "stride_nd", stride, axes),
      conformance_ints(t, "pre_padding", before, axes),
      conformance_ints(t, "post_padding", after, axes),
      conformance_int(t, "padding_mode",
                      beyond  ? RABBET_PADDING_EXPLICIT_ROUND_UP
                      : whole ? RABBET_PADDING_EXPLICIT_ROUND_DOWN
                              : conformance_random(t, 4)),
      conformance_bool(t, "average_count_excludes_padding",
                       conformance_chance(t, 2)),
      {.name = "blend_factor",
       .type = RABBET_ATTR_FLOAT,
       .data = blend,
       .count = 1}};
  int32_t x = kernel_case_input(c, in, false);
  kernel_case_output(c, kernel_case_op(c, "pooling", attrs, 8, &x, 1));
}

// Operands of [batch..., m, k] x [batch..., k, n], either transposed, either
// constant, batches broadcast.
static int32_t product(conformance_t* t) {
  kernel_case_t* c = &t->c;
  static const int64_t sizes[] = {1, 2, 7, 16, 33, 64};
  int64_t m = one_of(t, sizes, 6), n = one_of(t, sizes, 6);
  int64_t k = one_of(t, sizes, 6);
  int32_t batch = (int32_t)conformance_random(t, 3);
  int64_t op[] = {conformance_random(t, 2), conformance_random(t, 2)};
  rabbet_dims_t a = {.rank = batch + 2}, b = {.rank = batch + 2};
  for (int32_t i = 0; i < batch; ++i) {
    a.d[i] = b.d[i] = 1 + conformance_random(t, 4);
    if (conformance_chance(t, 4)) a.d[i] = 1;
    if (conformance_chance(t, 3)) b.d[i] = 1;
  }
  a.d[batch] = op[0] ? k : m;
  a.d[batch + 1] = op[0] ? m : k;
  b.d[batch] = op[1] ? n : k;
  b.d[batch + 1] = op[1] ? k : n;
  rabbet_attr_t attrs[] = {conformance_int(t, "op0", op[0]),
                           conformance_int(t, "op1", op[1])};
  int32_t inputs[] = {kernel_case_input(c, a, false),
                      kernel_case_input(c, b, conformance_chance(t, 2))};
  return kernel_case_op(c, "matrix_multiply", attrs, 2, inputs, 2);
}

static void matrix_multiply(conformance_t* t) {
  begin(t);
  rounds_layers(t);
  int32_t value = product(t);
  if (conformance_chance(t, 3)) {
    rabbet_dims_t dims = t->c.values[value].dims;
    for (int32_t i = 0; i + 1 < dims.rank; ++i)
      dims.d[i] = 1;
    rabbet_attr_t attrs[] = {conformance_int(t, "op", 0)};
    int32_t pair[] = {value, kernel_case_input(&t->c, dims, true)};
    value = kernel_case_op(&t->c, "elementwise", attrs, 1, pair, 2);
  }
  kernel_case_output(&t->c, epilogue(t, value));
}

// Up to three layers with operands of every kind.
static int32_t chain(conformance_t* t, int32_t y) {
  kernel_case_t* c = &t->c;
  static const int64_t functions[] = {0, 1, 4, 12}, tame[] = {0, 1, 2, 4};
  for (int64_t i = conformance_random(t, 4); i > 0; --i) {
    if (conformance_chance(t, 2)) {
      rabbet_attr_t type[] = {
          conformance_int(t, "type", functions[conformance_random(t, 4)])};
      y = kernel_case_op(c, "activation", type, 1, &y, 1);
      continue;
    }
    rabbet_dims_t dims = c->values[y].dims;
    int64_t spread = conformance_random(t, 3);
    for (int32_t axis = 0; axis < 3; ++axis)
      if (spread == 0 || (spread == 1 && axis < 2)) dims.d[axis] = 1;
    rabbet_attr_t kind[] = {
        conformance_int(t, "op", tame[conformance_random(t, 4)])};
    int32_t pair[] = {y, kernel_case_input(c, dims, conformance_chance(t, 2))};
    if (conformance_chance(t, 2)) {
      int32_t swap = pair[0];
      pair[0] = pair[1];
      pair[1] = swap;
    }
    y = kernel_case_op(c, "elementwise", kind, 1, pair, 2);
  }
  return y;
}

// Few rows, or few columns, and a chain behind them.
static void thin_products(conformance_t* t) {
  kernel_case_t* c = &t->c;
  static const int64_t sizes[] = {1, 5, 8, 64, 72, 200};
  begin(t);
  int64_t m = 1 + conformance_random(t, 8), n = one_of(t, sizes, 6);
  int64_t k = one_of(t, sizes, 6), batch = 1 + conformance_random(t, 3);
  bool turned = conformance_chance(t, 4);  // the few are columns
  int64_t op[] = {conformance_random(t, 2), conformance_random(t, 2)};
  int64_t rows = turned ? n : m, columns = turned ? m : n;
  rabbet_dims_t a = {3, {batch, op[0] ? k : rows, op[0] ? rows : k}};
  rabbet_dims_t b = {3, {batch, op[1] ? columns : k, op[1] ? k : columns}};
  // All rows of the batches are then rows of one product.
  if ((turned || batch * m <= 8) && conformance_chance(t, 2)) b.d[0] = 1;
  rabbet_attr_t attrs[] = {conformance_int(t, "op0", op[0]),
                           conformance_int(t, "op1", op[1])};
  int32_t inputs[] = {kernel_case_input(c, a, false),
                      kernel_case_input(c, b, conformance_chance(t, 2))};
  int32_t y = kernel_case_op(c, "matrix_multiply", attrs, 2, inputs, 2);
  kernel_case_output(c, chain(t, y));
}

// Rows for tiles of tensor cores and a chain behind them.
static void tiled_products(conformance_t* t) {
  kernel_case_t* c = &t->c;
  static const int64_t rows[] = {9, 16, 33, 70}, columns[] = {64, 72, 200},
                       inner[] = {64, 72, 136, 320};
  begin(t);
  conformance_set_type(
      t, conformance_chance(t, 2) ? RABBET_DTYPE_HALF : RABBET_DTYPE_BF16);
  c->low = -1;
  c->high = 1;
  int64_t m = one_of(t, rows, 4), n = one_of(t, columns, 3);
  int64_t k = one_of(t, inner, 4), op = conformance_random(t, 2);
  int64_t batch = conformance_chance(t, 3) ? 2 : 1;
  bool shared = batch == 1 || conformance_chance(t, 2);
  rabbet_attr_t attrs[] = {conformance_int(t, "op1", op)};
  int32_t inputs[] = {
      kernel_case_input(c, KERNEL_DIMS(batch, m, k), false),
      kernel_case_input(c,
                        KERNEL_DIMS(shared ? 1 : batch, op ? n : k, op ? k : n),
                        conformance_chance(t, 2))};
  int32_t y = kernel_case_op(c, "matrix_multiply", attrs, 1, inputs, 2);
  kernel_case_output(c, chain(t, y));
}

// Weights may be laid out in another way for it.
static void matrix_multiply_tf32(conformance_t* t) {
  kernel_case_t* c = &t->c;
  static const int64_t sizes[] = {4, 8, 20, 33, 64};
  int64_t k = one_of(t, sizes, 5), n = one_of(t, sizes, 5);
  int64_t op = conformance_random(t, 2);
  begin(t);
  conformance_set_type(t, RABBET_DTYPE_FLOAT);
  c->tf32 = true;
  c->tolerance = 3e-3;
  rabbet_attr_t attrs[] = {conformance_int(t, "op0", 0),
                           conformance_int(t, "op1", op)};
  int32_t inputs[] = {
      kernel_case_input(c, KERNEL_DIMS(1 + conformance_random(t, 2), 17, k),
                        false),
      kernel_case_input(c, KERNEL_DIMS(1, op ? n : k, op ? k : n), true)};
  int32_t value = kernel_case_op(c, "matrix_multiply", attrs, 2, inputs, 2);
  if (conformance_chance(t, 2)) {
    rabbet_attr_t gelu[] = {
        conformance_int(t, "type", RABBET_ACTIVATION_GELU_ERF)};
    value = kernel_case_op(c, "activation", gelu, 1, &value, 1);
  }
  kernel_case_output(c, epilogue(t, value));
}

static void matrix_multiply_integers(conformance_t* t) {
  conformance_set_type(t, conformance_type(t, 1u << RABBET_DTYPE_INT32 |
                                                  1u << RABBET_DTYPE_INT64));
  kernel_case_output(&t->c, product(t));
}

// ---- Attention -------------------------------------------------------------

typedef struct attention_case_t {
  int64_t batch, heads, rows, keys, width;
} attention_case_t;

static int32_t shuffle(conformance_t* t, int32_t value, const int64_t* shape,
                       const int64_t* order) {
  rabbet_attr_t attrs[] = {conformance_ints(t, "reshape_dims", shape, 4),
                           conformance_ints(t, "second_transpose", order, 4)};
  return kernel_case_op(&t->c, "shuffle", attrs, 2, &value, 1);
}

// A part of the last axis of [batch, rows, parts * size].
static int32_t part(conformance_t* t, int32_t value, int64_t size,
                    int64_t number) {
  const int64_t start = number * size, step = 1, axis = 2;
  rabbet_attr_t attrs[] = {conformance_ints(t, "start", &start, 1),
                           conformance_ints(t, "shape", &size, 1),
                           conformance_ints(t, "stride", &step, 1),
                           conformance_ints(t, "axes", &axis, 1)};
  return kernel_case_op(&t->c, "slice", attrs, 4, &value, 1);
}

// q, k and v: as the products read them, or [batch, rows, heads * width] with
// transposes, or slices of one tensor.
static void attention_factors(conformance_t* t, const attention_case_t* a,
                              int64_t kind, int32_t* out) {
  static const int64_t rows_first[] = {0, 2, 1, 3};
  kernel_case_t* c = &t->c;
  int64_t all = a->heads * a->width;
  int32_t joined = kind < 2
                       ? -1
                       : kernel_case_input(
                             c, KERNEL_DIMS(a->batch, a->rows, 3 * all), false);
  for (int64_t i = 0; i < 3; ++i) {
    int64_t rows = i == 0 ? a->rows : a->keys;
    if (kind == 0) {
      out[i] = kernel_case_input(
          c, KERNEL_DIMS(a->batch, a->heads, rows, a->width), false);
      continue;
    }
    const int64_t shape[] = {a->batch, rows, a->heads, a->width};
    int32_t flat = kind == 2 ? part(t, joined, all, i)
                             : kernel_case_input(
                                   c, KERNEL_DIMS(a->batch, rows, all), false);
    out[i] = shuffle(t, flat, shape, rows_first);
  }
}

static int32_t scaled(conformance_t* t, int32_t scores) {
  const float number[] = {0.25f};
  int64_t op = conformance_random(t, 3);
  if (op == 0) return scores;
  rabbet_attr_t attrs[] = {conformance_int(
      t, "op", op == 1 ? RABBET_ELEMENTWISE_PROD : RABBET_ELEMENTWISE_DIV)};
  int32_t pair[] = {
      scores, kernel_case_constant(&t->c, KERNEL_DIMS(1, 1, 1, 1), number)};
  return kernel_case_op(&t->c, "elementwise", attrs, 1, pair, 2);
}

static int32_t masked(conformance_t* t, int32_t scores) {
  rabbet_dims_t dims = t->c.values[scores].dims;
  if (conformance_chance(t, 3)) return scores;
  for (int32_t i = 0; i < 3; ++i)
    if (conformance_chance(t, 2)) dims.d[i] = 1;
  if (conformance_chance(t, 3)) {
    const float low[] = {-8};
    bool last = conformance_chance(t, 2);
    int32_t other = kernel_case_constant(&t->c, KERNEL_DIMS(1, 1, 1, 1), low);
    int32_t three[] = {
        kernel_case_typed_input(&t->c, RABBET_DTYPE_BOOL, dims, false),
        last ? scores : other, last ? other : scores};
    return kernel_case_op(&t->c, "select", NULL, 0, three, 3);
  }
  rabbet_attr_t attrs[] = {conformance_int(t, "op", RABBET_ELEMENTWISE_SUM)};
  int32_t pair[] = {scores, kernel_case_input(&t->c, dims, false)};
  return kernel_case_op(&t->c, "elementwise", attrs, 1, pair, 2);
}

// Numbers of masks: 0 where a key is kept. Some rows keep nothing and have a
// finite number everywhere, others have -infinity where they keep nothing.
static int32_t special_mask(conformance_t* t, const rabbet_dims_t* scores) {
  kernel_case_t* c = &t->c;
  rabbet_dims_t dims = *scores;
  dims.d[1] = 1;
  int32_t mask = kernel_case_input(c, dims, false);
  float* data = c->reference[mask];
  float lowest = c->dtype == RABBET_DTYPE_HALF   ? -65504
                 : c->dtype == RABBET_DTYPE_BF16 ? -0x1p100f
                                                 : -__FLT_MAX__;
  for (int64_t row = 0; row < dims.d[0] * dims.d[2]; ++row) {
    bool keeps = !conformance_chance(t, 3);
    float low = keeps && conformance_chance(t, 2) ? -__builtin_inff()
                : conformance_chance(t, 2)        ? lowest
                                                  : -0x1p15f;
    int64_t kept = conformance_random(t, dims.d[3]);
    for (int64_t i = 0; i < dims.d[3]; ++i)
      data[row * dims.d[3] + i] =
          keeps && (i == kept || conformance_chance(t, 3)) ? 0 : low;
  }
  return mask;
}

static void attention_with(conformance_t* t, bool special) {
  static const int64_t sizes[] = {1, 5, 16, 33, 40};
  static const int64_t widths[] = {32, 64, 96, 128};
  kernel_case_t* c = &t->c;
  int64_t kind = conformance_random(t, 3);
  attention_case_t a = {1 + conformance_random(t, 2),
                        1 + conformance_random(t, 2), one_of(t, sizes, 5),
                        one_of(t, sizes, 5), one_of(t, widths, 4)};
  if (kind == 2) a.keys = a.rows;
  conformance_set_type(t, conformance_type(t, CONFORMANCE_REALS));
  c->low = -1;
  c->high = 1;
  c->tf32 = true;
  // Weights are rounded to the type before they meet the values.
  c->tolerance = c->dtype == RABBET_DTYPE_BF16   ? 1e-2
                 : c->dtype == RABBET_DTYPE_HALF ? 1e-3
                                                 : 3e-3;
  int32_t factors[3];
  attention_factors(t, &a, kind, factors);
  rabbet_attr_t turned[] = {conformance_int(t, "op0", 0),
                            conformance_int(t, "op1", 1)};
  rabbet_attr_t last_axis[] = {conformance_int(t, "axes", 1 << 3)};
  int32_t y = kernel_case_op(c, "matrix_multiply", turned, 2, factors, 2);
  y = scaled(t, y);
  if (special) {
    // Beside the lowest numbers scores have few digits left.
    c->tolerance = 2e-2;
    rabbet_attr_t sum[] = {conformance_int(t, "op", RABBET_ELEMENTWISE_SUM)};
    int32_t pair[] = {y, special_mask(t, &c->values[y].dims)};
    y = kernel_case_op(c, "elementwise", sum, 1, pair, 2);
  } else {
    y = masked(t, y);
  }
  y = kernel_case_op(c, "softmax", last_axis, 1, &y, 1);
  rabbet_attr_t plain[] = {conformance_int(t, "op0", 0),
                           conformance_int(t, "op1", 0)};
  int32_t pair[] = {y, factors[2]};
  y = kernel_case_op(c, "matrix_multiply", plain, 2, pair, 2);
  if (kind > 0) {
    static const int64_t order[] = {0, 2, 1, 3};
    rabbet_attr_t attrs[] = {conformance_ints(t, "first_transpose", order, 4)};
    y = kernel_case_op(c, "shuffle", attrs, 1, &y, 1);
  }
  kernel_case_output(c, y);
}

static void attention(conformance_t* t) {
  attention_with(t, false);
}
static void attention_masks(conformance_t* t) {
  attention_with(t, true);
}

// ---- Experts ----------------------------------------------------------------

// Few tokens and many, experts that nobody chooses and such that do not exist.
static void moe(conformance_t* t) {
  static const int64_t types[] = {RABBET_DTYPE_INT8, RABBET_DTYPE_FP8};
  static const double limits[] = {0.75, 2};
  kernel_case_t* c = &t->c;
  conformance_set_type(t, conformance_type(t, CONFORMANCE_REALS));
  c->low = -1;
  c->high = 1;
  int64_t tokens = conformance_chance(t, 3) ? conformance_random(t, 3)
                                            : 1 + conformance_random(t, 80);
  int64_t chosen = 1 + conformance_random(t, 3);
  int64_t experts = 1 + conformance_random(t, 6);
  bool odd = conformance_chance(t, 3);
  int64_t hidden =
      odd ? 1 + conformance_random(t, 90) : 8 * (1 + conformance_random(t, 16));
  int64_t inner =
      odd ? 1 + conformance_random(t, 90) : 8 * (1 + conformance_random(t, 16));
  int64_t index[256], blocks[] = {1, 1 + conformance_random(t, 24)};
  for (int64_t i = 0; i < tokens * chosen; ++i)
    index[i] = conformance_chance(t, 20) ? experts * (i % 2 * 2 - 1)
                                         : conformance_random(t, experts);
  bool quantizes = conformance_chance(t, 4), finds = conformance_chance(t, 2);
  rabbet_attr_t attrs[] = {
      conformance_int(t, "activation_type", conformance_random(t, 2)),
      {.name = "swiglu_param_limit",
       .type = RABBET_ATTR_FLOAT,
       .data = &limits[conformance_random(t, 2)],
       .count = 1},
      {.name = "swiglu_param_beta",
       .type = RABBET_ATTR_FLOAT,
       .data = &limits[0],
       .count = 1},
      conformance_ints(t, "quantization_block_shape", blocks, finds ? 2 : 0),
      conformance_int(t, "dyn_q_output_scale_type", RABBET_DTYPE_FLOAT),
      conformance_int(
          t, "quantization_to_type",
          quantizes ? types[conformance_random(t, 2)] : RABBET_DTYPE_FLOAT)};
  size_t attr_count = conformance_chance(t, 2) ? 6 : 1;
  quantizes = quantizes && attr_count == 6;
  // Results of the first products are rounded to the type, or to 8 bits.
  c->tolerance = c->dtype == RABBET_DTYPE_BF16   ? 2e-2
                 : c->dtype == RABBET_DTYPE_HALF ? 3e-3
                                                 : 1e-5;
  if (quantizes) c->tolerance = 5e-2;
  bool biased = conformance_chance(t, 2);
  int32_t inputs[10] = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
  inputs[0] = kernel_case_input(c, KERNEL_DIMS(1, tokens, hidden), false);
  inputs[1] = kernel_case_numbers(
      c, conformance_chance(t, 2) ? RABBET_DTYPE_INT32 : RABBET_DTYPE_INT64,
      KERNEL_DIMS(1, tokens, chosen), index, false);
  inputs[2] = kernel_case_input(c, KERNEL_DIMS(1, tokens, chosen), false);
  inputs[3] = kernel_case_input(c, KERNEL_DIMS(experts, hidden, inner), true);
  inputs[4] = kernel_case_input(c, KERNEL_DIMS(experts, hidden, inner), true);
  inputs[5] = kernel_case_input(c, KERNEL_DIMS(experts, inner, hidden), true);
  if (biased) {
    inputs[6] = kernel_case_input(c, KERNEL_DIMS(experts, inner), true);
    inputs[7] = kernel_case_input(c, KERNEL_DIMS(experts, inner), true);
    inputs[8] = kernel_case_input(c, KERNEL_DIMS(experts, hidden), true);
  }
  c->low = c->high = 0.0625;
  if (quantizes)
    inputs[9] = kernel_case_input(c, (rabbet_dims_t){.rank = 0}, false);
  kernel_case_output(c, kernel_case_op(c, "moe", attrs, attr_count, inputs,
                                       quantizes ? 10
                                       : biased  ? 9
                                                 : 6));
}

// ---- Recurrent networks -----------------------------------------------------

typedef struct recurrent_t {
  int64_t cell, gates, directions, steps, batch, hidden;
  bool batch_first;
} recurrent_t;

static recurrent_t recurrent_sizes(conformance_t* t, int64_t direction) {
  static const int64_t gates[] = {1, 3, 4};
  recurrent_t r = {
      .cell = conformance_random(t, 3),
      .directions = direction == RABBET_RNN_DIRECTION_BIDIRECTIONAL ? 2 : 1,
      .steps = conformance_random(t, 6),
      .batch = 1 + conformance_random(t, t->large ? 33 : 9),
      .hidden = 1 + conformance_random(t, 70),
      .batch_first = conformance_chance(t, 2)};
  r.gates = gates[r.cell];
  if (conformance_chance(t, 10)) r.batch = 0;
  return r;
}

// Functions without jumps: at one, results of equal sums may differ.
static size_t recurrent_functions(conformance_t* t, const recurrent_t* r,
                                  int64_t types[6], double alphas[6],
                                  double betas[6]) {
  size_t count = (size_t)(r->directions * rabbet_rnn_function_count(r->cell));
  for (size_t i = 0; i < count; ++i) {
    types[i] = conformance_random(t, RABBET_ACTIVATION_COUNT + 1);
    if (types[i] == RABBET_ACTIVATION_COUNT) types[i] = RABBET_RNN_AFFINE;
    alphas[i] = 0.25 * (double)conformance_random(t, 4);
    betas[i] = 0.5 + 0.25 * (double)conformance_random(t, 2);
    if (types[i] == RABBET_ACTIVATION_THRESHOLDED_RELU) alphas[i] = 0;
  }
  return count;
}

static int32_t recurrent_states(conformance_t* t, const recurrent_t* r) {
  return r->batch_first
             ? kernel_case_input(
                   &t->c, KERNEL_DIMS(r->batch, r->directions, r->hidden),
                   false)
             : kernel_case_input(
                   &t->c, KERNEL_DIMS(r->directions, r->batch, r->hidden),
                   false);
}

static int32_t recurrent_lengths(conformance_t* t, const recurrent_t* r) {
  int64_t lengths[64];
  for (int64_t i = 0; i < r->batch; ++i)
    lengths[i] = conformance_random(t, r->steps + 3) - 1;
  return kernel_case_numbers(
      &t->c, conformance_chance(t, 2) ? RABBET_DTYPE_INT32 : RABBET_DTYPE_INT64,
      KERNEL_DIMS(r->batch), lengths, false);
}

static void recurrent_operands(conformance_t* t, const recurrent_t* r,
                               int32_t inputs[RABBET_RNN_INPUTS]) {
  kernel_case_t* c = &t->c;
  int64_t gates = r->gates * r->hidden, columns = r->directions * gates;
  int64_t first = r->batch_first ? r->batch : r->steps;
  int64_t second = r->batch_first ? r->steps : r->batch;
  bool constant = !conformance_chance(t, 4);
  bool is_lstm = r->cell == RABBET_RNN_CELL_LSTM;
  inputs[0] = kernel_case_input(c, KERNEL_DIMS(first, second, columns), false);
  // States must neither grow from step to step nor magnify errors.
  c->low = -0.125;
  c->high = 0.125;
  inputs[1] = kernel_case_input(c, KERNEL_DIMS(r->directions, gates, r->hidden),
                                constant);
  c->low = -1;
  c->high = 1;
  for (int i = 2; i < RABBET_RNN_INPUTS; ++i)
    inputs[i] = -1;
  if (conformance_chance(t, 2))
    inputs[2] =
        kernel_case_input(c, KERNEL_DIMS(r->directions, gates), constant);
  if (conformance_chance(t, 2)) inputs[3] = recurrent_states(t, r);
  if (is_lstm && conformance_chance(t, 2)) inputs[4] = recurrent_states(t, r);
  if (is_lstm && conformance_chance(t, 2))
    inputs[5] = kernel_case_input(c, KERNEL_DIMS(r->directions, 3 * r->hidden),
                                  constant);
  if (conformance_chance(t, 2)) inputs[6] = recurrent_lengths(t, r);
}

// Any cell and length, sequences of nothing, outputs that nobody reads.
static void recurrent(conformance_t* t) {
  kernel_case_t* c = &t->c;
  begin(t);
  int64_t types[6], direction = conformance_random(t, 3);
  double alphas[6], betas[6], clip = conformance_chance(t, 3) ? 0.75 : 0;
  int32_t inputs[RABBET_RNN_INPUTS];
  recurrent_t r = recurrent_sizes(t, direction);
  size_t functions = recurrent_functions(t, &r, types, alphas, betas);
  if (conformance_chance(t, 2)) functions = 0;
  recurrent_operands(t, &r, inputs);
  const rabbet_attr_t attrs[] = {
      conformance_int(t, "cell", r.cell),
      conformance_int(t, "direction", direction),
      conformance_bool(t, "batch_first", r.batch_first),
      conformance_ints(t, "activations", types, functions),
      {.name = "activation_alphas",
       .type = RABBET_ATTR_FLOATS,
       .data = alphas,
       .count = functions},
      {.name = "activation_betas",
       .type = RABBET_ATTR_FLOATS,
       .data = betas,
       .count = functions},
      {.name = "clip", .type = RABBET_ATTR_FLOAT, .data = &clip, .count = 1},
      conformance_bool(t, "linear_before_reset", conformance_chance(t, 2)),
      conformance_bool(t, "input_forget", conformance_chance(t, 2))};
  c->tolerance = 1e-4;
  int32_t y = kernel_case_op(c, "rnn", attrs, sizeof attrs / sizeof *attrs,
                             inputs, RABBET_RNN_INPUTS);
  int64_t reads = conformance_random(t, 4);
  if (reads != 1) kernel_case_output(c, y);
  if (reads != 2) kernel_case_output(c, y + 1);
  if (reads != 3 && r.cell == RABBET_RNN_CELL_LSTM)
    kernel_case_output(c, y + 2);
}

// Sums of no products are 0, and what follows is computed of that.
static void products_of_nothing(conformance_t* t) {
  kernel_case_t* c = &t->c;
  begin(t);
  int64_t batch = 1 + conformance_random(t, 3),
          m = 1 + conformance_random(t, 40);
  int64_t n = 1 + conformance_random(t, 40);
  rabbet_attr_t attrs[] = {conformance_int(t, "op0", 0),
                           conformance_int(t, "op1", 0)};
  int32_t inputs[] = {kernel_case_input(c, KERNEL_DIMS(batch, m, 0), false),
                      kernel_case_input(c, KERNEL_DIMS(1, 0, n), false)};
  kernel_case_output(c,
                     kernel_case_op(c, "matrix_multiply", attrs, 2, inputs, 2));
}

// Layers that libraries compute, of a batch of none.
static void empty_batches(conformance_t* t) {
  kernel_case_t* c = &t->c;
  begin(t);
  int64_t window[] = {3, 3};
  int32_t x = kernel_case_input(c, KERNEL_DIMS(0, 4, 8, 8), false), y = -1;
  int32_t inputs[] = {x, -1, -1};
  rabbet_attr_t attrs[] = {conformance_int(t, "type", 0),
                           conformance_ints(t, "window_size_nd", window, 2)};
  switch (conformance_random(t, 4)) {
    case 0:
      inputs[1] = kernel_case_input(c, KERNEL_DIMS(8, 4, 3, 3), true);
      y = kernel_case_op(c, "convolution", NULL, 0, inputs, 3);
      break;
    case 1:
      inputs[1] = kernel_case_input(c, KERNEL_DIMS(4, 8, 3, 3), true);
      y = kernel_case_op(c, "deconvolution", NULL, 0, inputs, 3);
      break;
    case 2:
      y = kernel_case_op(c, "pooling", attrs, 2, inputs, 1);
      break;
    default:
      inputs[1] = kernel_case_input(c, KERNEL_DIMS(1, 1, 8, 5), true);
      y = kernel_case_op(c, "matrix_multiply", NULL, 0, inputs, 2);
  }
  kernel_case_output(c, y);
}

// Near a permutation: small numbers, and a 1 or -1 in each row.
static void near_permutation(conformance_t* t, int64_t order, float* data) {
  float step = 1;
  while (step * 14 * (float)order > 1)
    step /= 2;
  for (int64_t i = 0; i < order * order; ++i)
    data[i] = step * (float)(conformance_random(t, 15) - 7);
  for (int64_t i = 0; i < order; ++i)
    data[i * order + i] = conformance_chance(t, 2) ? 1 : -1;
}

// The reflection I - 2 v v' / (v' v), with v of 1 and -1. Its leading half is
// near singular, so that it matters which rows are pivots.
static void reflection(conformance_t* t, int64_t order, float* data) {
  uint64_t signs[4] = {0};
  char rounded[8];
  for (int64_t i = 0; i < order; ++i)
    signs[i / 64] |= (uint64_t)conformance_random(t, 2) << i % 64;
  for (int64_t i = 0; i < order * order; ++i) {
    int64_t row = i / order, column = i % order;
    bool turns =
        (signs[row / 64] >> row % 64 ^ signs[column / 64] >> column % 64) & 1;
    double value = (row == column) - (turns ? -2.0 : 2.0) / (double)order;
    rabbet_store_double(t->c.dtype, rounded, 0, value);
    data[i] = (float)rabbet_load_double(t->c.dtype, rounded, 0);
  }
}

// Its determinant is near 1 or -1, but for some with a column of zeros, or with
// NaN.
static void determinant_matrix(conformance_t* t, int64_t order, float* data) {
  if (conformance_chance(t, 2))
    reflection(t, order, data);
  else
    near_permutation(t, order, data);
  for (int64_t i = order - 1; i > 0; --i) {
    int64_t other = conformance_random(t, i + 1);
    for (int64_t k = 0; k < order; ++k) {
      float moved = data[i * order + k];
      data[i * order + k] = data[other * order + k];
      data[other * order + k] = moved;
    }
  }
  if (order == 0 || !conformance_chance(t, 6)) return;
  if (conformance_chance(t, 2))
    data[conformance_random(t, order * order)] = __builtin_nanf("");
  if (conformance_chance(t, 2)) return;
  int64_t empty = conformance_random(t, order);
  for (int64_t i = 0; i < order; ++i)
    data[i * order + empty] = 0;
}

static void determinant(conformance_t* t) {
  static const int64_t orders[] = {1, 2, 3, 4, 5, 7, 8, 9, 17, 32, 33};
  static const int64_t large[] = {96, 97, 130, 200};
  kernel_case_t* c = &t->c;
  begin(t);
  c->tolerance = 2e-4;
  int64_t order = one_of(t, orders, 11);
  rabbet_dims_t dims = {.rank = 2 + (int32_t)conformance_random(t, 3)};
  if (conformance_chance(t, 20)) order = 0;
  if (conformance_chance(t, 12)) {
    order = one_of(t, large, 4);
    if (conformance_chance(t, 2)) dims.rank = 2;
  }
  int64_t count = 1;
  for (int32_t i = 0; i < dims.rank - 2; ++i) {
    dims.d[i] = 1 + conformance_random(t, t->large && order < 9 ? 40 : 4);
    if (conformance_chance(t, 30)) dims.d[i] = 0;
    count *= dims.d[i];
  }
  dims.d[dims.rank - 2] = dims.d[dims.rank - 1] = order;
  int32_t x = kernel_case_input(c, dims, false);
  for (int64_t m = 0; m < count; ++m)
    determinant_matrix(t, order, (float*)c->reference[x] + m * order * order);
  kernel_case_output(c, kernel_case_op(c, "determinant", NULL, 0, &x, 1));
}

const conformance_family_t conformance_products[] = {
    {"moe", 60, moe},
    {"convolution", 80, convolution},
    {"convolution_pixels", 60, convolution_pixels},
    {"convolution_of_one_pixel", 120, convolution_of_one_pixel},
    {"deconvolution", 60, deconvolution},
    {"determinant", 150, determinant},
    {"pooling", 80, pooling},
    {"pooling_modes", 40, pooling_modes},
    {"matrix_multiply", 120, matrix_multiply},
    {"thin_products", 80, thin_products},
    {"tiled_products", 12, tiled_products},
    {"matrix_multiply_tf32", 20, matrix_multiply_tf32},
    {"matrix_multiply_integers", 10, matrix_multiply_integers},
    {"attention", 12, attention},
    {"attention_masks", 12, attention_masks},
    {"rnn", 150, recurrent},
    {"products_of_nothing", 20, products_of_nothing},
    {"empty_batches", 20, empty_batches},
    {0},
};
