// Convolution and pooling, with what is fused into them.
#include <string.h>

#include "conformance/conformance.h"
#include "ops/enums.h"

static void convolution(conformance_t* t) {
  kernel_case_t* c = &t->c;
  conformance_begin_product(t);
  conformance_round_layers(t);
  static const int64_t kernels[] = {1, 3, 3, 5},
                       counts[] = {1, 3, 8, 16, 20, 32};
  int64_t groups = conformance_chance(t, 5) ? 4 : 1;
  int64_t from = groups * conformance_one_of(t, counts, groups > 1 ? 4 : 6);
  int64_t to = groups * conformance_one_of(t, counts, groups > 1 ? 4 : 6);
  int64_t kernel = conformance_one_of(t, kernels, 4), size = t->large ? 24 : 11;
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
  kernel_case_output(c, conformance_epilogue(t, value));
}

// x sigmoid(x), as two layers.
static int32_t swish(conformance_t* t, int32_t x) {
  kernel_case_t* c = &t->c;
  rabbet_attr_t gate[] = {
      conformance_int(t, "type", RABBET_ACTIVATION_SIGMOID)};
  rabbet_attr_t product[] = {conformance_int(t, "op", RABBET_ELEMENTWISE_PROD)};
  int32_t pair[] = {x, kernel_case_op(c, "activation", gate, 1, &x, 1)};
  return kernel_case_op(c, "elementwise", product, 1, pair, 2);
}

// Windows that reach into the padding, up to taps that meet nothing else.
static void convolution_taps(conformance_t* t) {
  kernel_case_t* c = &t->c;
  conformance_begin_product(t);
  conformance_round_layers(t);
  static const int64_t counts[] = {8, 13, 32, 70};
  int64_t from = conformance_one_of(t, counts, t->large ? 4 : 3);
  int64_t to = conformance_one_of(t, counts, 4);
  rabbet_dims_t x = {.rank = conformance_chance(t, 4) ? 3 : 4};
  rabbet_dims_t w = {.rank = x.rank, .d = {to, from}};
  int64_t stride[3] = {0}, dilation[3] = {0}, before[3] = {0}, after[3] = {0};
  x.d[0] = 1 + conformance_random(t, 2);
  x.d[1] = from;
  for (int32_t i = 0; i < x.rank - 2; ++i) {
    x.d[i + 2] = 1 + conformance_random(t, t->large ? 26 : 9);
    w.d[i + 2] = 1 + conformance_random(t, 3);
    stride[i] = 1 + conformance_random(t, 2);
    dilation[i] = conformance_chance(t, 2) ? 1 : 1 + conformance_random(t, 12);
    int64_t reach = (w.d[i + 2] - 1) * dilation[i];
    before[i] = conformance_random(t, reach + 1);
    after[i] = reach - before[i] + conformance_random(t, 2);
  }
  size_t axes = (size_t)x.rank - 2;
  rabbet_attr_t attrs[] = {conformance_ints(t, "stride_nd", stride, axes),
                           conformance_ints(t, "dilation_nd", dilation, axes),
                           conformance_ints(t, "pre_padding", before, axes),
                           conformance_ints(t, "post_padding", after, axes)};
  int32_t inputs[] = {kernel_case_input(c, x, false),
                      kernel_case_input(c, w, true), -1};
  if (conformance_chance(t, 2))
    inputs[2] = kernel_case_input(c, KERNEL_DIMS(to), true);
  int32_t value = kernel_case_op(c, "convolution", attrs, 4, inputs, 3);
  if (conformance_chance(t, 2)) value = swish(t, value);
  kernel_case_output(c, conformance_epilogue(t, value));
}

// Windows of 3x3 that do not stride, which can be transformed: tiles at the
// borders are whole ones or parts.
static void convolution_tiles(conformance_t* t) {
  kernel_case_t* c = &t->c;
  conformance_begin_product(t);
  conformance_round_layers(t);
  c->tolerance *= 2;  // of transforms, which subtract
  static const int64_t counts[] = {16, 20, 45, 70};
  int64_t groups = conformance_chance(t, 3) ? 2 + conformance_random(t, 2) : 1;
  int64_t from = groups * conformance_one_of(t, counts, 4);
  int64_t to = groups * conformance_one_of(t, counts, 4);
  int64_t most = t->large ? 24 : 10, before[2], after[2];
  rabbet_dims_t x = {.rank = 4, .d = {1 + conformance_random(t, 2), from}};
  rabbet_dims_t y = {.rank = 4, .d = {x.d[0], to}};
  for (int i = 0; i < 2; ++i) {
    x.d[i + 2] = 3 + conformance_random(t, most);
    before[i] = conformance_random(t, 3);
    after[i] = conformance_random(t, 3);
    y.d[i + 2] = x.d[i + 2] + before[i] + after[i] - 2;
  }
  rabbet_attr_t attrs[] = {conformance_ints(t, "pre_padding", before, 2),
                           conformance_ints(t, "post_padding", after, 2),
                           conformance_int(t, "num_groups", groups)};
  int32_t inputs[] = {
      kernel_case_input(c, x, false),
      kernel_case_input(c, KERNEL_DIMS(to, from / groups, 3, 3), true), -1};
  if (conformance_chance(t, 2))
    inputs[2] = kernel_case_input(c, KERNEL_DIMS(to), true);
  int32_t value = kernel_case_op(c, "convolution", attrs, 3, inputs, 3);
  if (conformance_chance(t, 2)) value = swish(t, value);
  if (conformance_chance(t, 2)) {
    rabbet_attr_t sum[] = {conformance_int(t, "op", RABBET_ELEMENTWISE_SUM)};
    int32_t pair[] = {value, kernel_case_input(c, y, false)};
    value = kernel_case_op(c, "elementwise", sum, 1, pair, 2);
  }
  if (conformance_chance(t, 2)) {
    bool clips = conformance_chance(t, 2);
    if (clips) c->tolerance *= 8;  // of bounds that are less than the sums
    rabbet_attr_t bounds[] = {
        conformance_int(
            t, "type", clips ? RABBET_ACTIVATION_CLIP : RABBET_ACTIVATION_RELU),
        KERNEL_FLOAT("alpha", -0.25), KERNEL_FLOAT("beta", 0.5)};
    value = kernel_case_op(c, "activation", bounds, clips ? 3 : 1, &value, 1);
    kernel_case_output(c, value);
  } else {
    kernel_case_output(c, conformance_epilogue(t, value));
  }
}

// A filter for each channel, over one or two axes.
static void depthwise(conformance_t* t) {
  static const int64_t kernels[] = {1, 2, 3, 3, 4, 5, 7, 9},
                       counts[] = {2, 3, 8, 20, 66, 72, 140};
  kernel_case_t* c = &t->c;
  conformance_begin_product(t);
  conformance_round_layers(t);
  int64_t channels = conformance_one_of(t, counts, 7);
  bool plane = !conformance_chance(t, 5);
  rabbet_dims_t x = {.rank = plane ? 4 : 3,
                     .d = {1 + conformance_random(t, 3), channels}};
  rabbet_dims_t w = {.rank = x.rank, .d = {channels, 1}};
  int64_t stride[2] = {0}, dilation[2] = {0}, before[2] = {0}, after[2] = {0};
  for (int32_t i = 0; i < x.rank - 2; ++i) {
    w.d[i + 2] = conformance_one_of(t, kernels, 8);
    stride[i] = 1 + conformance_random(t, 3);
    dilation[i] = conformance_chance(t, 3) ? 1 + conformance_random(t, 4) : 1;
    before[i] = conformance_random(t, w.d[i + 2] + 1);
    after[i] = conformance_random(t, w.d[i + 2] + 1);
    int64_t reach = (w.d[i + 2] - 1) * dilation[i] + 1;
    int64_t least = reach - before[i] - after[i];
    if (least < 1) least = 1;
    x.d[i + 2] = least + conformance_random(t, t->large ? 30 : 10);
  }
  size_t axes = (size_t)x.rank - 2;
  rabbet_attr_t attrs[] = {conformance_ints(t, "stride_nd", stride, axes),
                           conformance_ints(t, "dilation_nd", dilation, axes),
                           conformance_ints(t, "pre_padding", before, axes),
                           conformance_ints(t, "post_padding", after, axes),
                           conformance_int(t, "num_groups", channels)};
  int32_t inputs[] = {kernel_case_input(c, x, false),
                      kernel_case_input(c, w, true), -1};
  if (conformance_chance(t, 2))
    inputs[2] = kernel_case_input(c, KERNEL_DIMS(channels), true);
  int32_t value = kernel_case_op(c, "convolution", attrs, 5, inputs, 3);
  kernel_case_output(c, conformance_epilogue(t, value));
}

// Windows that do not overlap.
static void patches(conformance_t* t) {
  static const int64_t kernels[] = {1, 2, 2, 3, 4, 8, 14, 16},
                       from[] = {1, 3, 8, 20, 40}, to[] = {5, 8, 20, 72, 100};
  kernel_case_t* c = &t->c;
  conformance_begin_product(t);
  conformance_round_layers(t);
  bool plane = !conformance_chance(t, 5);
  int64_t channels = conformance_one_of(t, from, 5);
  rabbet_dims_t x = {.rank = plane ? 4 : 3,
                     .d = {1 + conformance_random(t, 3), channels}};
  rabbet_dims_t w = {.rank = x.rank,
                     .d = {conformance_one_of(t, to, 5), channels}};
  int64_t stride[2] = {0};
  for (int32_t i = 0; i < x.rank - 2; ++i) {
    stride[i] = w.d[i + 2] = conformance_one_of(t, kernels, 8);
    if (conformance_chance(t, 4)) stride[i] += 1 + conformance_random(t, 2);
    int64_t most = t->large ? 40 / w.d[i + 2] + 2 : 4;
    x.d[i + 2] = stride[i] * (1 + conformance_random(t, most));
    if (conformance_chance(t, 3))
      x.d[i + 2] += conformance_random(t, stride[i]);
  }
  rabbet_attr_t attrs[] = {
      conformance_ints(t, "stride_nd", stride, (size_t)x.rank - 2)};
  int32_t inputs[] = {kernel_case_input(c, x, false),
                      kernel_case_input(c, w, true), -1};
  if (conformance_chance(t, 2))
    inputs[2] = kernel_case_input(c, KERNEL_DIMS(w.d[0]), true);
  int32_t value = kernel_case_op(c, "convolution", attrs, 1, inputs, 3);
  kernel_case_output(c, conformance_epilogue(t, value));
}

// Groups of several channels; windows of any length and step that reach beyond
// the image.
static void convolution_groups(conformance_t* t) {
  static const int64_t kernels[] = {1, 2, 3, 3, 5, 9, 20},
                       counts[] = {1, 1, 2, 4, 7}, from[] = {3, 8, 16, 24, 48},
                       to[] = {2, 8, 12, 16, 24, 50, 70};
  kernel_case_t* c = &t->c;
  conformance_begin_product(t);
  conformance_round_layers(t);
  bool plane = !conformance_chance(t, 3);
  int64_t groups = conformance_one_of(t, counts, 5);
  int64_t channels = conformance_one_of(t, from, t->large ? 5 : 3);
  int64_t columns = groups * conformance_one_of(t, to, t->large ? 7 : 5);
  rabbet_dims_t x = {.rank = plane ? 4 : 3,
                     .d = {1 + conformance_random(t, 3), groups * channels}};
  rabbet_dims_t w = {.rank = x.rank, .d = {columns, channels}};
  int64_t stride[2] = {0}, dilation[2] = {0}, before[2] = {0}, after[2] = {0};
  for (int32_t i = 0; i < x.rank - 2; ++i) {
    w.d[i + 2] = conformance_one_of(t, kernels, plane ? 5 : 7);
    stride[i] = 1 + conformance_random(t, 3);
    dilation[i] = conformance_chance(t, 4) ? 1 + conformance_random(t, 3) : 1;
    int64_t reach = (w.d[i + 2] - 1) * dilation[i] + 1;
    before[i] = conformance_random(t, reach);
    after[i] = conformance_random(t, reach + 1);
    int64_t least = reach - before[i] - after[i];
    if (least < 1) least = 1;
    x.d[i + 2] = least + conformance_random(t, t->large ? 20 : 8);
  }
  size_t axes = (size_t)x.rank - 2;
  rabbet_attr_t attrs[] = {conformance_ints(t, "stride_nd", stride, axes),
                           conformance_ints(t, "dilation_nd", dilation, axes),
                           conformance_ints(t, "pre_padding", before, axes),
                           conformance_ints(t, "post_padding", after, axes),
                           conformance_int(t, "num_groups", groups)};
  int32_t inputs[] = {kernel_case_input(c, x, false),
                      kernel_case_input(c, w, true), -1};
  if (conformance_chance(t, 2))
    inputs[2] = kernel_case_input(c, KERNEL_DIMS(columns), true);
  int32_t value = kernel_case_op(c, "convolution", attrs, 5, inputs, 3);
  kernel_case_output(c, conformance_epilogue(t, value));
}

// Groups with as many maps as channels, in powers of two.
static void convolution_even_groups(conformance_t* t) {
  static const int64_t sizes[] = {4, 4, 8, 8, 16, 32},
                       counts[] = {2, 3, 4, 5, 7, 9};
  kernel_case_t* c = &t->c;
  conformance_begin_product(t);
  conformance_round_layers(t);
  int64_t size = conformance_one_of(t, sizes, t->large ? 6 : 5);
  int64_t groups = conformance_one_of(t, counts, 6), maps = size * groups;
  rabbet_dims_t x = {.rank = conformance_chance(t, 4) ? 3 : 4};
  rabbet_dims_t w = {.rank = x.rank, .d = {maps, size}};
  int64_t stride[2] = {0}, dilation[2] = {0}, before[2] = {0}, after[2] = {0};
  x.d[0] = 1 + conformance_random(t, 2);
  x.d[1] = maps;
  for (int32_t i = 0; i < x.rank - 2; ++i) {
    x.d[i + 2] = 1 + conformance_random(t, t->large ? 30 : 14);
    w.d[i + 2] = 1 + conformance_random(t, 4);
    stride[i] = 1 + conformance_random(t, 2);
    dilation[i] = 1 + conformance_random(t, 2);
    int64_t reach = (w.d[i + 2] - 1) * dilation[i];
    before[i] = conformance_random(t, reach + 1);
    after[i] = reach - before[i] + conformance_random(t, 2);
  }
  size_t axes = (size_t)x.rank - 2;
  rabbet_attr_t attrs[] = {conformance_ints(t, "stride_nd", stride, axes),
                           conformance_ints(t, "dilation_nd", dilation, axes),
                           conformance_ints(t, "pre_padding", before, axes),
                           conformance_ints(t, "post_padding", after, axes),
                           conformance_int(t, "num_groups", groups)};
  int32_t inputs[] = {kernel_case_input(c, x, false),
                      kernel_case_input(c, w, true), -1};
  if (conformance_chance(t, 2))
    inputs[2] = kernel_case_input(c, KERNEL_DIMS(maps), true);
  int32_t value = kernel_case_op(c, "convolution", attrs, 5, inputs, 3);
  if (conformance_chance(t, 2)) value = swish(t, value);
  kernel_case_output(c, conformance_epilogue(t, value));
}

// Windows of one pixel: matrix products, if channels lie last.
static void convolution_pixels(conformance_t* t) {
  kernel_case_t* c = &t->c;
  conformance_begin_product(t);
  conformance_round_layers(t);
  static const int64_t counts[] = {1, 3, 8, 16, 20, 32};
  int64_t from = conformance_one_of(t, counts, 6),
          to = conformance_one_of(t, counts, 6);
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
  kernel_case_output(c, conformance_epilogue(t, value));
}

// One to three spatial axes, every mode of padding, windows shorter and longer
// than their steps.
static void deconvolution(conformance_t* t) {
  kernel_case_t* c = &t->c;
  conformance_begin_product(t);
  static const int64_t counts[] = {1, 3, 8, 16, 20, 32};
  int64_t groups = conformance_chance(t, 5) ? 4 : 1;
  int64_t from = groups * conformance_one_of(t, counts, groups > 1 ? 4 : 6);
  int64_t to = groups * conformance_one_of(t, counts, groups > 1 ? 4 : 6);
  bool shuffles = conformance_chance(t, 3);  // each input makes a block
  bool plane = conformance_chance(t, 2);
  rabbet_dims_t in = {.rank =
                          plane ? 4 : 3 + (int32_t)conformance_random(t, 3)};
  int64_t most = in.rank == 5 ? 3 : t->large && plane ? 16 : 6;
  rabbet_dims_t kernel = {.rank = in.rank, .d = {from, to / groups}};
  int64_t stride[4] = {0}, dilation[4] = {0}, extra[4] = {0};
  int64_t before[4] = {0}, after[4] = {0};
  in.d[0] = 1 + conformance_random(t, 2);
  in.d[1] = from;
  for (int32_t i = 0; i < in.rank - 2; ++i) {
    in.d[i + 2] = 3 + conformance_random(t, most);
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
  kernel_case_output(c, conformance_epilogue(t, value));
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
  conformance_begin_product(t);
  conformance_round_layers(t);
  int64_t kind =
      conformance_random(t, (int64_t)(sizeof(kinds) / sizeof(kinds[0])));
  int64_t groups = conformance_chance(t, 4) ? 4 : 1;
  int64_t from = groups * conformance_one_of(t, counts, groups > 1 ? 4 : 6);
  int64_t to = groups * conformance_one_of(t, counts, groups > 1 ? 4 : 6);
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
  kernel_case_output(c, conformance_epilogue(t, value));
}

static void pooling(conformance_t* t) {
  kernel_case_t* c = &t->c;
  conformance_begin_product(t);
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
      c, KERNEL_DIMS(2, conformance_one_of(t, channels, 5), size, width),
      false);
  kernel_case_output(c, kernel_case_op(c, "pooling", attrs, 6, &x, 1));
}

// One to three spatial axes, every kind and mode of padding, windows that cover
// all of the input, or with ROUND_UP more than that.
static void pooling_modes(conformance_t* t) {
  kernel_case_t* c = &t->c;
  conformance_begin_product(t);
  static const int64_t channels[] = {1, 3, 8, 16, 20};
  rabbet_dims_t in = {.rank = 3 + (int32_t)conformance_random(t, 3)};
  int64_t window[4] = {0}, stride[4] = {0}, before[4] = {0}, after[4] = {0};
  bool whole = conformance_chance(t, 3);
  bool beyond = whole && conformance_chance(t, 2);
  in.d[0] = 1 + conformance_random(t, 3);
  in.d[1] = conformance_one_of(t, channels, 5);
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

// An element-wise layer or two: an activation, x sigmoid(x), or a hard sigmoid
// as exporters write it out.
static int32_t squeeze_chain(conformance_t* t, int32_t x) {
  kernel_case_t* c = &t->c;
  static const int64_t types[] = {
      RABBET_ACTIVATION_RELU, RABBET_ACTIVATION_SIGMOID, RABBET_ACTIVATION_TANH,
      RABBET_ACTIVATION_GELU_ERF};
  rabbet_attr_t attrs[] = {
      conformance_int(t, "type", types[conformance_random(t, 4)])};
  rabbet_attr_t sigmoid[] = {
      conformance_int(t, "type", RABBET_ACTIVATION_SIGMOID)};
  rabbet_attr_t product[] = {conformance_int(t, "op", RABBET_ELEMENTWISE_PROD)};
  rabbet_attr_t sum[] = {conformance_int(t, "op", RABBET_ELEMENTWISE_SUM)};
  int32_t operands[] = {x, -1};
  switch (conformance_random(t, 4)) {
    case 0:
      return x;
    case 1:
      operands[1] = kernel_case_op(c, "activation", sigmoid, 1, &x, 1);
      return kernel_case_op(c, "elementwise", product, 1, operands, 2);
    case 2:
      operands[1] = kernel_case_input(
          c,
          KERNEL_DIMS(1, conformance_chance(t, 2) ? 1 : c->values[x].dims.d[1],
                      1, 1),
          true);
      x = kernel_case_op(c, "elementwise", sum, 1, operands, 2);
      return kernel_case_op(c, "activation", attrs, 1, &x, 1);
    default:
      return kernel_case_op(c, "activation", attrs, 1, &x, 1);
  }
}

// The means of an image's channels, and one or two products of them.
static void squeeze(conformance_t* t) {
  kernel_case_t* c = &t->c;
  conformance_begin_product(t);
  static const int64_t counts[] = {1, 3, 8, 16, 24, 40, 72, 160};
  int64_t most = t->large ? 120 : 15;
  rabbet_dims_t in = KERNEL_DIMS(
      1 + conformance_random(t, 3), counts[conformance_random(t, 8)],
      1 + conformance_random(t, most), 1 + conformance_random(t, most));
  if (t->large && conformance_chance(t, 2)) in.d[1] *= 9;
  rabbet_attr_t attrs[] = {
      conformance_int(
          t, "op",
          conformance_chance(t, 4) ? RABBET_REDUCE_SUM : RABBET_REDUCE_AVG),
      conformance_int(t, "axes", 12), conformance_bool(t, "keep_dims", true)};
  int32_t y = kernel_case_input(c, in, false);
  y = kernel_case_op(c, "reduce", attrs, 3, &y, 1);
  int64_t channels = in.d[1];
  int products = 1 + !conformance_chance(t, 4);
  for (int i = 0; i < products; ++i) {
    int64_t outputs =
        i + 1 < products ? 1 + conformance_random(t, 20) : in.d[1];
    int32_t inputs[] = {
        y, kernel_case_input(c, KERNEL_DIMS(outputs, channels, 1, 1), true),
        -1};
    if (!conformance_chance(t, 4))
      inputs[2] = kernel_case_input(c, KERNEL_DIMS(outputs), true);
    y = squeeze_chain(t, kernel_case_op(c, "convolution", NULL, 0, inputs, 3));
    channels = outputs;
  }
  kernel_case_output(c, y);
}

// Layers that libraries compute, of a batch of none.
static void empty_batches(conformance_t* t) {
  kernel_case_t* c = &t->c;
  conformance_begin_product(t);
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

const conformance_family_t conformance_convolution[] = {
    {"convolution", 80, convolution},
    {"depthwise", 80, depthwise},
    {"patches", 80, patches},
    {"convolution_groups", 80, convolution_groups},
    {"convolution_even_groups", 120, convolution_even_groups},
    {"convolution_pixels", 60, convolution_pixels},
    {"convolution_of_one_pixel", 120, convolution_of_one_pixel},
    {"convolution_taps", 120, convolution_taps},
    {"convolution_tiles", 60, convolution_tiles},
    {"deconvolution", 60, deconvolution},
    {"pooling", 80, pooling},
    {"pooling_modes", 40, pooling_modes},
    {"squeeze", 80, squeeze},
    {"empty_batches", 20, empty_batches},
    {0},
};
