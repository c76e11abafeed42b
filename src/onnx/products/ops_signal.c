// Fourier transforms (short ones, and those of unknown lengths, as products
// with matrices), windows and mel filters.
#include <math.h>
#include <string.h>

#include "base/math.h"
#include "core/view.h"
#include "onnx/index.h"
#include "onnx/operators.h"
#include "onnx/products/fourier.h"

static const double onnx_two_pi = 6.283185307179586476925286766559;

// ---- Bases -----------------------------------------------------------------

// A transform of `in` numbers of `in_parts` parts (1: real, 2: real and
// imaginary) to `out` numbers of `out_parts`: the sums of the inputs times
// exp(-+2 pi i n k / length).
typedef struct onnx_dft_t {
  rabbet_onnx_index_t length, in, out;
  int in_parts, out_parts;
  bool inverse;
  bool mirrored;  // the inputs are half of a spectrum that is symmetric
} onnx_dft_t;

static bool onnx_dft_is_static(const onnx_dft_t* d) {
  return rabbet_onnx_is_static(d->length) && rabbet_onnx_is_static(d->in) &&
         rabbet_onnx_is_static(d->out);
}

// The factor of input n: 1, 1 / length, or twice as much for an element that
// stands for two.
static double onnx_dft_factor(const onnx_dft_t* d, int64_t n) {
  if (!d->inverse) return 1;
  bool twice = d->mirrored && n > 0 && 2 * n != d->length.value;
  return (twice ? 2.0 : 1.0) / (double)d->length.value;
}

// The coefficient from input part `from` to output part `to`.
static double onnx_dft_part(double re, double im, int from, int to) {
  if (from == to) return re;
  return from ? -im : im;
}

// [in, in_parts, out, out_parts], or, for convolutions, [out, out_parts,
// in_parts, in].
static rabbet_tensor_t* onnx_dft_weights(rabbet_onnx_node_t* node,
                                         const onnx_dft_t* d,
                                         rabbet_dtype_t dtype, bool filters) {
  int64_t in = d->in.value, out = d->out.value, length = d->length.value;
  int64_t parts[] = {d->in_parts, d->out_parts}, count;
  rabbet_dims_t dims = {.rank = 4, .d = {in, parts[0], out, parts[1]}};
  if (filters)
    dims = (rabbet_dims_t){.rank = 4, .d = {out, parts[1], parts[0], in}};
  void* data = rabbet_onnx_weights_room(node, dtype, &dims, &count);
  for (int64_t n = 0; n < in && data; ++n)
    for (int64_t k = 0; k < out; ++k) {
      // Below the extents of tensors, so that the product fits.
      double angle = onnx_two_pi * (double)(n * k % length) / (double)length;
      double factor = onnx_dft_factor(d, n);
      double re = factor * cos(angle);
      double im = factor * (d->inverse ? sin(angle) : -sin(angle));
      for (int c = 0; c < parts[0]; ++c)
        for (int p = 0; p < parts[1]; ++p)
          rabbet_store_double(
              dtype, data,
              filters ? ((k * parts[1] + p) * parts[0] + c) * in + n
                      : ((n * parts[0] + c) * out + k) * parts[1] + p,
              onnx_dft_part(re, im, c, p));
    }
  return rabbet_onnx_weights(node, dtype, data, &dims);
}

static rabbet_tensor_t* onnx_dft_number(rabbet_onnx_node_t* node,
                                        rabbet_onnx_index_t index) {
  return rabbet_onnx_cast(node, rabbet_onnx_index_vector(node, &index, 1),
                          rabbet_onnx_wide(node));
}

// [in, 1, 1, 1]: onnx_dft_factor of each input.
static rabbet_tensor_t* onnx_dft_factors(rabbet_onnx_node_t* node,
                                         const onnx_dft_t* d) {
  rabbet_tensor_t* one = rabbet_onnx_number(node, rabbet_onnx_wide(node), 4, 1);
  if (!d->inverse) return one;
  rabbet_tensor_t* factor = one;
  if (d->mirrored) {
    rabbet_tensor_t* n = rabbet_onnx_indices(node, d->in, 0, 4);
    rabbet_tensor_t* once = rabbet_onnx_binary(
        node, "EQUAL", rabbet_onnx_with_number(node, "PROD", n, 2),
        rabbet_onnx_index_vector(node, &d->length, 1));
    once = rabbet_onnx_binary(node, "OR", once,
                              rabbet_onnx_with_number(node, "EQUAL", n, 0));
    factor = rabbet_onnx_select(
        node, once, one,
        rabbet_onnx_number(node, rabbet_onnx_wide(node), 4, 2));
  }
  return rabbet_onnx_binary(node, "DIV", factor,
                            onnx_dft_number(node, d->length));
}

// onnx_dft_weights of extents that are not known.
static rabbet_tensor_t* onnx_dft_computed(rabbet_onnx_node_t* node,
                                          const onnx_dft_t* d) {
  rabbet_tensor_t* length = rabbet_onnx_index_vector(node, &d->length, 1);
  rabbet_tensor_t* turns =
      rabbet_onnx_binary(node, "PROD", rabbet_onnx_indices(node, d->in, 0, 4),
                         rabbet_onnx_indices(node, d->out, 2, 4));
  // Whole turns are subtracted while the numbers are integers.
  rabbet_tensor_t* whole = rabbet_onnx_binary(node, "FLOOR_DIV", turns, length);
  turns = rabbet_onnx_binary(node, "SUB", turns,
                             rabbet_onnx_binary(node, "PROD", whole, length));
  rabbet_tensor_t* angle = rabbet_onnx_with_number(
      node, "PROD", rabbet_onnx_cast(node, turns, rabbet_onnx_wide(node)),
      onnx_two_pi);
  angle =
      rabbet_onnx_binary(node, "DIV", angle, onnx_dft_number(node, d->length));
  rabbet_tensor_t* factors = onnx_dft_factors(node, d);
  rabbet_tensor_t* re = rabbet_onnx_binary(
      node, "PROD", rabbet_onnx_unary(node, "COS", angle), factors);
  rabbet_tensor_t* im = rabbet_onnx_binary(
      node, "PROD", rabbet_onnx_unary(node, "SIN", angle), factors);
  rabbet_tensor_t* minus = rabbet_onnx_unary(node, "NEG", im);
  if (!d->inverse) {
    rabbet_tensor_t* swap = im;
    im = minus;
    minus = swap;
  }
  rabbet_tensor_t* rows[2] = {re, minus};
  rabbet_tensor_t* columns[2][2] = {{re, im}, {minus, re}};
  for (int c = 0; c < d->in_parts && d->out_parts == 2; ++c)
    rows[c] = rabbet_onnx_concat(node, columns[c], 2, 3);
  return d->in_parts == 2 ? rabbet_onnx_concat(node, rows, 2, 1) : rows[0];
}

// ---- DFT -------------------------------------------------------------------

// How the axis is read and written.
static onnx_dft_t onnx_dft(rabbet_onnx_node_t* node, rabbet_tensor_t* x,
                           int axis) {
  bool inverse = rabbet_onnx_attr_int(node, "inverse", 0) != 0;
  bool half = rabbet_onnx_attr_int(node, "onesided", 0) != 0;
  rabbet_dims_t dims = rabbet_onnx_dims(node, x);
  onnx_dft_t d = {.inverse = inverse, .mirrored = inverse && half};
  if (!rabbet_onnx_ok(node)) return d;
  int64_t parts = dims.d[dims.rank - 1];
  if (parts != 1 && parts != 2)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "the last axis of input 0 ('%s') has %lld elements; "
                     "expected 1 (real numbers) or 2 (complex ones)",
                     rabbet_tensor_name(x), (long long)parts);
  const rabbet_onnx_index_t one = rabbet_onnx_index(1),
                            two = rabbet_onnx_index(2);
  rabbet_onnx_index_t extent = rabbet_onnx_extent(node, x, axis);
  d.in_parts = (int)parts;
  d.out_parts = d.mirrored ? 1 : 2;
  d.length = extent;
  if (d.mirrored)
    d.length = rabbet_onnx_index_op(
        node, "PROD", rabbet_onnx_index_op(node, "SUB", extent, one), two);
  if (rabbet_onnx_input(node, 1))
    d.length = rabbet_onnx_element(node, node->inputs[1], 0);
  if (rabbet_onnx_ok(node) && rabbet_onnx_is_static(d.length) &&
      d.length.value < 1)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "the transform has length %lld; expected 1 or more",
                     (long long)d.length.value);
  rabbet_onnx_index_t bins = rabbet_onnx_index_op(
      node, "SUM", rabbet_onnx_index_op(node, "FLOOR_DIV", d.length, two), one);
  d.out = half && !inverse ? bins : d.length;
  // The input is cut, or padded with zeros, to the length of the transform.
  d.in =
      rabbet_onnx_index_op(node, "MIN", extent, d.mirrored ? bins : d.length);
  return d;
}

// The axis of the transform: an attribute, which is 1 by default, or an input,
// which is -2.
static int onnx_dft_axis(rabbet_onnx_node_t* node, int rank) {
  int64_t axis = -2;
  rabbet_tensor_t* given = rabbet_onnx_input(node, 2);
  if (node->opset < 20) axis = rabbet_onnx_attr_int(node, "axis", 1);
  if (node->opset >= 20 && given) {
    rabbet_onnx_ints_t known =
        rabbet_onnx_constant_ints(node, "input 2 ('axis')", given);
    if (rabbet_onnx_ok(node) && known.count == 1) axis = known.data[0];
  }
  int at = rabbet_onnx_axis(node, axis, rank);
  if (rabbet_onnx_ok(node) && at == rank - 1)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "the axis is the last one, which has the real and the "
                     "imaginary parts");
  return at;
}

// Swaps an axis with the last but one.
static rabbet_tensor_t* onnx_dft_swap(rabbet_onnx_node_t* node,
                                      rabbet_tensor_t* x, int axis, int rank) {
  int64_t order[RABBET_MAX_RANK];
  if (axis == rank - 2) return x;
  for (int i = 0; i < rank; ++i)
    order[i] = i;
  order[axis] = rank - 2;
  order[rank - 2] = axis;
  return rabbet_onnx_transpose(node, x, order);
}

// x [..., in, in_parts] as [..., out, out_parts].
static rabbet_tensor_t* onnx_dft_product(rabbet_onnx_node_t* node,
                                         rabbet_tensor_t* x,
                                         const onnx_dft_t* d) {
  rabbet_dtype_t dtype = rabbet_onnx_dtype_of(node, x);
  rabbet_onnx_index_t dims[RABBET_MAX_RANK + 1];
  rabbet_onnx_index_t matrix[2];
  int rank = rabbet_onnx_rank(node, x);
  for (int i = 0; i < rank && rabbet_onnx_ok(node); ++i)
    dims[i] = rabbet_onnx_extent(node, x, i);
  if (!rabbet_onnx_ok(node)) return NULL;
  rabbet_tensor_t* weights =
      onnx_dft_is_static(d)
          ? onnx_dft_weights(node, d, dtype, false)
          : rabbet_onnx_cast(node, onnx_dft_computed(node, d), dtype);
  matrix[0] =
      rabbet_onnx_index_op(node, "PROD", d->in, rabbet_onnx_index(d->in_parts));
  matrix[1] = rabbet_onnx_index_op(node, "PROD", d->out,
                                   rabbet_onnx_index(d->out_parts));
  weights = rabbet_onnx_reshape(node, weights, matrix, 2);
  // The axis and the parts as one; a vector is a matrix of one row.
  int rows = rank > 2 ? rank - 2 : 1;
  rabbet_onnx_index_t flat[RABBET_MAX_RANK] = {rabbet_onnx_index(1)};
  for (int i = 0; i < rank - 2; ++i)
    flat[i] = dims[i];
  flat[rows] = matrix[0];
  x = rabbet_onnx_reshape(node, x, flat, rows + 1);
  weights = rabbet_onnx_to_rank(node, weights, rows + 1);
  x = rabbet_onnx_matmul(node, x, "NONE", weights, "NONE");
  dims[rank - 2] = d->out;
  dims[rank - 1] = rabbet_onnx_index(d->out_parts);
  return rabbet_onnx_reshape(node, x, dims, rank);
}

// Elements of a matrix up to which one product is the transform.
enum { ONNX_DFT_MATRIX = 1 << 18 };

static bool onnx_dft_is_long(const onnx_dft_t* d) {
  return onnx_dft_is_static(d) &&
         d->length.value * d->in_parts >
             ONNX_DFT_MATRIX / (d->length.value * d->out_parts);
}

// x [rows, in, 2] with as many elements as the transform: zeros behind, or the
// other half of a spectrum that is symmetric.
static rabbet_tensor_t* onnx_dft_whole(rabbet_onnx_node_t* node,
                                       rabbet_tensor_t* x,
                                       const onnx_dft_t* d) {
  static const double conjugate[] = {1, -1};
  static const float narrow_conjugate[] = {1, -1};
  bool wide = rabbet_onnx_wide(node) == RABBET_DTYPE_DOUBLE;
  int64_t length = d->length.value, bins = length / 2 + 1;
  int64_t size = d->mirrored ? bins : length;
  rabbet_onnx_slice_t slice = rabbet_onnx_slice_all(node, x);
  slice.mode = "FILL";
  slice.size[1] = rabbet_onnx_index(size);
  if (d->in.value != size) x = rabbet_onnx_slice(node, x, &slice);
  if (!d->mirrored || length == bins) return x;
  const rabbet_dims_t dims = {.rank = 3, .d = {1, 1, 2}};
  rabbet_onnx_slice_t rest = rabbet_onnx_slice_all(node, x);
  rest.start[1] = rabbet_onnx_index(length - bins);
  rest.stride[1] = rabbet_onnx_index(-1);
  rest.size[1] = rabbet_onnx_index(length - bins);
  rabbet_tensor_t* parts[] = {
      x, rabbet_onnx_binary(
             node, "PROD", rabbet_onnx_slice(node, x, &rest),
             rabbet_onnx_weights(
                 node, rabbet_onnx_wide(node),
                 wide ? (const void*)conjugate : narrow_conjugate, &dims))};
  return rabbet_onnx_concat(node, parts, 2, 1);
}

// x [..., in, in_parts] as [..., out, out_parts], in the
// wide type on the way.
static rabbet_tensor_t* onnx_dft_long(rabbet_onnx_node_t* node,
                                      rabbet_tensor_t* x, const onnx_dft_t* d) {
  rabbet_dtype_t dtype = rabbet_onnx_dtype_of(node, x);
  rabbet_onnx_index_t dims[RABBET_MAX_RANK];
  rabbet_onnx_index_t flat[] = {rabbet_onnx_index(1), d->in,
                                rabbet_onnx_index(d->in_parts)};
  int rank = rabbet_onnx_rank(node, x);
  for (int i = 0; i < rank - 2 && rabbet_onnx_ok(node); ++i) {
    dims[i] = rabbet_onnx_extent(node, x, i);
    flat[0] = rabbet_onnx_index_op(node, "PROD", flat[0], dims[i]);
  }
  x = rabbet_onnx_reshape(
      node, rabbet_onnx_cast(node, x, rabbet_onnx_wide(node)), flat, 3);
  if (d->in_parts == 1) {
    rabbet_tensor_t* parts[] = {x, rabbet_onnx_with_number(node, "PROD", x, 0)};
    x = rabbet_onnx_concat(node, parts, 2, 2);
  }
  x = rabbet_onnx_fourier(node, onnx_dft_whole(node, x, d), flat[0],
                          d->length.value, d->inverse);
  if (d->inverse)
    x = rabbet_onnx_with_number(node, "PROD", x, 1 / (double)d->length.value);
  rabbet_onnx_slice_t slice = rabbet_onnx_slice_all(node, x);
  slice.size[1] = d->out;
  slice.size[2] = rabbet_onnx_index(d->out_parts);
  if (d->out.value != d->length.value || d->out_parts != 2)
    x = rabbet_onnx_slice(node, x, &slice);
  dims[rank - 2] = d->out;
  dims[rank - 1] = rabbet_onnx_index(d->out_parts);
  return rabbet_onnx_cast(node, rabbet_onnx_reshape(node, x, dims, rank),
                          dtype);
}

static void onnx_import_dft(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  int rank = rabbet_onnx_rank(node, x);
  if (rabbet_onnx_ok(node) && rank < 2)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "input 0 has rank %d; expected 2 or more: signals, and "
                     "real and imaginary parts",
                     rank);
  int axis = onnx_dft_axis(node, rank);
  if (!rabbet_onnx_ok(node)) return;
  onnx_dft_t d = onnx_dft(node, x, axis);
  rabbet_onnx_slice_t slice = rabbet_onnx_slice_all(node, x);
  if (!rabbet_onnx_ok(node)) return;
  bool whole = rabbet_onnx_is_static(d.in) &&
               rabbet_onnx_is_static(slice.size[axis]) &&
               d.in.value == slice.size[axis].value;
  slice.size[axis] = d.in;
  if (!whole && (rabbet_onnx_input(node, 1) || d.mirrored))
    x = rabbet_onnx_slice(node, x, &slice);
  x = onnx_dft_swap(node, x, axis, rank);
  x = onnx_dft_is_long(&d) ? onnx_dft_long(node, x, &d)
                           : onnx_dft_product(node, x, &d);
  node->outputs[0] = onnx_dft_swap(node, x, axis, rank);
}

// ---- STFT ------------------------------------------------------------------

// The length of frames, by input 3, the window or the signal.
static int64_t onnx_frame_length(rabbet_onnx_node_t* node,
                                 rabbet_tensor_t* signal,
                                 rabbet_tensor_t* window) {
  rabbet_tensor_t* given = rabbet_onnx_input(node, 3);
  rabbet_dims_t dims = rabbet_onnx_dims(node, window ? window : signal);
  int64_t length = dims.d[window ? 0 : 1];
  rabbet_onnx_check_rank(node, "input 2 ('window')", window, 1);
  if (given) {
    rabbet_onnx_ints_t known =
        rabbet_onnx_constant_ints(node, "input 3 ('frame_length')", given);
    if (rabbet_onnx_ok(node) && known.count == 1) {
      if (window && length >= 0 && length != known.data[0])
        RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                         "input 2 ('window') has %lld elements; expected %lld, "
                         "as input 3 ('frame_length') tells",
                         (long long)length, (long long)known.data[0]);
      length = known.data[0];
    }
  }
  if (rabbet_onnx_ok(node) && length < 1)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "the length of a frame must be known when the model is "
                     "imported, and 1 or more");
  return length;
}

// The window times the basis are filters, which step over the signal.
static void onnx_import_stft(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  rabbet_tensor_t* window = rabbet_onnx_input(node, 2);
  // torch exports real signals without the axis of parts, which ONNX Runtime
  // takes.
  if (rabbet_onnx_rank(node, x) == 2)
    x = rabbet_onnx_unsqueeze(node, x, 1u << 2, 3);
  rabbet_onnx_check_rank(node, "input 0 ('signal')", x, 3);
  rabbet_onnx_ints_t step = rabbet_onnx_constant_ints(
      node, "input 1 ('frame_step')", rabbet_onnx_required(node, 1));
  rabbet_dims_t dims = rabbet_onnx_dims(node, x);
  int64_t length = onnx_frame_length(node, x, window);
  if (!rabbet_onnx_ok(node)) return;
  if (step.count != 1 || step.data[0] < 1 || dims.d[2] < 1 || dims.d[2] > 2) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "input 1 ('frame_step') must be positive, and the last "
                     "axis of input 0 ('signal') have 1 or 2 elements; found "
                     "%lld",
                     (long long)dims.d[2]);
    return;
  }
  bool half = rabbet_onnx_attr_int(node, "onesided", 1) != 0;
  int64_t bins = half ? length / 2 + 1 : length;
  onnx_dft_t d = {.length = rabbet_onnx_index(length),
                  .in = rabbet_onnx_index(length),
                  .out = rabbet_onnx_index(bins),
                  .in_parts = (int)dims.d[2],
                  .out_parts = 2};
  rabbet_tensor_t* filters =
      onnx_dft_weights(node, &d, rabbet_onnx_dtype_of(node, x), true);
  const rabbet_onnx_index_t shape[] = {rabbet_onnx_index(2 * bins),
                                       rabbet_onnx_index(dims.d[2]),
                                       rabbet_onnx_index(length)};
  filters = rabbet_onnx_reshape(node, filters, shape, 3);
  if (window)
    filters = rabbet_onnx_binary(node, "PROD", filters,
                                 rabbet_onnx_to_rank(node, window, 3));
  const int64_t swap[] = {0, 2, 1}, back[] = {0, 3, 1, 2};
  rabbet_tensor_t* inputs[] = {rabbet_onnx_transpose(node, x, swap), filters};
  const rabbet_attr_t stride = RABBET_ONNX_INTS("stride_nd", step.data, 1);
  rabbet_tensor_t* frames =
      rabbet_onnx_layer(node, "convolution", inputs, 2, &stride, 1);
  if (!rabbet_onnx_ok(node)) return;
  const rabbet_onnx_index_t apart[] = {
      rabbet_onnx_extent(node, frames, 0), rabbet_onnx_index(bins),
      rabbet_onnx_index(2), rabbet_onnx_extent(node, frames, 2)};
  frames = rabbet_onnx_reshape(node, frames, apart, 4);
  node->outputs[0] = rabbet_onnx_transpose(node, frames, back);
}

// ---- Windows ---------------------------------------------------------------

// a[0] - a[1] cos(2 pi i / n) + a[2] cos(4 pi i / n)
typedef struct onnx_window_t {
  const char* name;
  double a[3];
} onnx_window_t;

static const onnx_window_t onnx_windows[] = {
    {"hann", {0.5, 0.5, 0}},
    {"hamming", {25.0 / 46, 21.0 / 46, 0}},
    {"blackman", {0.42, 0.5, 0.08}},
};

static rabbet_dtype_t onnx_signal_dtype(rabbet_onnx_node_t* node) {
  rabbet_dtype_t dtype = RABBET_DTYPE_FLOAT;
  int32_t type = (int32_t)rabbet_onnx_attr_int(node, "output_datatype", 1);
  if (rabbet_onnx_ok(node))
    rabbet_onnx_fail(node, rabbet_onnx_node_dtype(node, type, &dtype, NULL));
  return dtype;
}

// The type in which windows and weights are computed.
static rabbet_dtype_t onnx_signal_work(rabbet_onnx_node_t* node) {
  return onnx_signal_dtype(node) == RABBET_DTYPE_DOUBLE ? RABBET_DTYPE_DOUBLE
                                                        : RABBET_DTYPE_FLOAT;
}

static rabbet_tensor_t* onnx_window_known(rabbet_onnx_node_t* node,
                                          const double a[3], int64_t size,
                                          bool periodic) {
  rabbet_dtype_t dtype = onnx_signal_work(node);
  rabbet_dims_t dims = {.rank = 1, .d = {size}};
  int64_t count;
  void* data = rabbet_onnx_weights_room(node, dtype, &dims, &count);
  for (int64_t i = 0; data && i < count; ++i) {
    double angle = onnx_two_pi * (double)i / (double)(size - !periodic);
    rabbet_store_double(dtype, data, i,
                        a[0] - a[1] * cos(angle) + a[2] * cos(2 * angle));
  }
  return rabbet_onnx_weights(node, dtype, data, &dims);
}

static rabbet_tensor_t* onnx_window_computed(rabbet_onnx_node_t* node,
                                             const double a[3],
                                             rabbet_onnx_index_t size,
                                             bool periodic) {
  rabbet_onnx_index_t steps =
      rabbet_onnx_index_op(node, "SUB", size, rabbet_onnx_index(!periodic));
  rabbet_dtype_t dtype = onnx_signal_work(node);
  rabbet_tensor_t* angle =
      rabbet_onnx_cast(node, rabbet_onnx_indices(node, size, 0, 1), dtype);
  angle = rabbet_onnx_with_number(node, "PROD", angle, onnx_two_pi);
  angle = rabbet_onnx_binary(
      node, "DIV", angle,
      rabbet_onnx_cast(node, rabbet_onnx_index_vector(node, &steps, 1), dtype));
  rabbet_tensor_t* y = rabbet_onnx_with_number(
      node, "PROD", rabbet_onnx_unary(node, "COS", angle), -a[1]);
  y = rabbet_onnx_with_number(node, "SUM", y, a[0]);
  if (a[2] == 0) return y;
  angle = rabbet_onnx_with_number(node, "PROD", angle, 2);
  return rabbet_onnx_binary(
      node, "SUM", y,
      rabbet_onnx_with_number(node, "PROD",
                              rabbet_onnx_unary(node, "COS", angle), a[2]));
}

static void onnx_import_window(rabbet_onnx_node_t* node) {
  const onnx_window_t* window = onnx_windows;
  while (strcmp(window->name, node->variant) != 0)
    ++window;
  bool periodic = rabbet_onnx_attr_int(node, "periodic", 1) != 0;
  rabbet_onnx_index_t size =
      rabbet_onnx_element(node, rabbet_onnx_required(node, 0), 0);
  rabbet_dtype_t dtype = onnx_signal_dtype(node);
  if (rabbet_onnx_ok(node) && size.value < 0)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "input 0 ('size') is %lld; expected 0 or more",
                     (long long)size.value);
  if (!rabbet_onnx_ok(node)) return;
  rabbet_tensor_t* y =
      rabbet_onnx_is_static(size)
          ? onnx_window_known(node, window->a, size.value, periodic)
          : onnx_window_computed(node, window->a, size, periodic);
  node->outputs[0] = rabbet_onnx_cast(node, y, dtype);
}

// ---- MelWeightMatrix -------------------------------------------------------

enum { MEL_BINS = 0, MEL_LENGTH, MEL_RATE, MEL_LOW, MEL_HIGH, MEL_INPUTS };

static bool onnx_mel_numbers(rabbet_onnx_node_t* node,
                             double numbers[MEL_INPUTS]) {
  static const char* const names[] = {"num_mel_bins", "dft_length",
                                      "sample_rate", "lower_edge_hertz",
                                      "upper_edge_hertz"};
  for (size_t i = 0; i < MEL_INPUTS; ++i) {
    rabbet_tensor_t* x = rabbet_onnx_required(node, i);
    rabbet_onnx_ints_t known = rabbet_onnx_try_ints(node, x);
    if (!rabbet_onnx_ok(node)) return false;
    bool found = known.present && known.count == 1;
    numbers[i] = found ? (double)known.data[0] : 0;
    if (!found) found = rabbet_onnx_constant_number(node, x, &numbers[i]);
    if (!found)
      RABBET_ONNX_FAIL(
          node, RABBET_STATUS_UNSUPPORTED,
          "input %zu ('%s') must be one constant number, known when "
          "the model is imported",
          i, names[i]);
    else if (i <= MEL_RATE && !(numbers[i] >= 1 && numbers[i] <= INT32_MAX))
      RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                       "input %zu ('%s') is %g; expected 1 or more", i,
                       names[i], numbers[i]);
  }
  return rabbet_onnx_ok(node);
}

// The bin of the spectrum at which triangle i begins.
static int64_t onnx_mel_bin(const double n[MEL_INPUTS], int64_t i) {
  double low = 2595 * log10(1 + n[MEL_LOW] / 700);
  double high = 2595 * log10(1 + n[MEL_HIGH] / 700);
  double mel = low + (double)i * (high - low) / (n[MEL_BINS] + 2);
  double hertz = 700 * (pow(10, mel / 2595) - 1);
  double bin = floor((n[MEL_LENGTH] + 1) * hertz / n[MEL_RATE]);
  return bin > 0 && bin < INT32_MAX ? (int64_t)bin : 0;
}

static void onnx_import_mel(rabbet_onnx_node_t* node) {
  double n[MEL_INPUTS] = {0};
  rabbet_dtype_t dtype = onnx_signal_dtype(node);
  if (!onnx_mel_numbers(node, n)) return;
  int64_t bins = (int64_t)n[MEL_LENGTH] / 2 + 1, filters = (int64_t)n[MEL_BINS];
  rabbet_dims_t dims = {.rank = 2, .d = {bins, filters}};
  int64_t count;
  rabbet_dtype_t work = onnx_signal_work(node);
  void* data = rabbet_onnx_weights_room(node, work, &dims, &count);
  for (int64_t i = 0; data && i < filters; ++i) {
    int64_t left = onnx_mel_bin(n, i), center = onnx_mel_bin(n, i + 1);
    int64_t right = onnx_mel_bin(n, i + 2);
    if (left == center && center < bins)
      rabbet_store_double(work, data, center * filters + i, 1);
    for (int64_t j = left; left < center && j <= center && j < bins; ++j)
      rabbet_store_double(work, data, j * filters + i,
                          (double)(j - left) / (double)(center - left));
    for (int64_t j = center; center < right && j < right && j < bins; ++j)
      rabbet_store_double(work, data, j * filters + i,
                          (double)(right - j) / (double)(right - center));
  }
  rabbet_tensor_t* y = rabbet_onnx_weights(node, work, data, &dims);
  node->outputs[0] = rabbet_onnx_cast(node, y, dtype);
}

RABBET_ONNX_OPERATORS(signal) = {
    RABBET_ONNX_OP(BlackmanWindow, window, "blackman", 17),
    RABBET_ONNX_OP(DFT, dft, "", 17, 20),
    RABBET_ONNX_OP(HammingWindow, window, "hamming", 17),
    RABBET_ONNX_OP(HannWindow, window, "hann", 17),
    RABBET_ONNX_OP(MelWeightMatrix, mel, "", 17),
    RABBET_ONNX_OP(STFT, stft, "", 17),
    {0},
};
