// Convolution and pooling: windows that slide over the last axes.
#include <math.h>
#include <string.h>

#include "onnx/compositions.h"
#include "onnx/index.h"
#include "onnx/operators.h"

enum { RABBET_ONNX_MAX_WINDOW = 3 };

// Attributes of Conv and the pools, for `spatial` axes.
typedef struct onnx_window_t {
  int spatial;
  int64_t kernel[RABBET_ONNX_MAX_WINDOW];
  int64_t stride[RABBET_ONNX_MAX_WINDOW];
  int64_t dilation[RABBET_ONNX_MAX_WINDOW];
  int64_t before[RABBET_ONNX_MAX_WINDOW];
  int64_t after[RABBET_ONNX_MAX_WINDOW];
  const char* padding_mode;
} onnx_window_t;

static void onnx_window_ints(rabbet_onnx_node_t* node, const char* name,
                             int count, int64_t fallback, int64_t least,
                             int64_t* out) {
  rabbet_onnx_ints_t ints = rabbet_onnx_attr_ints(node, name);
  if (ints.present && ints.count != (size_t)count) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "attribute '%s' has %zu numbers, but %d are expected",
                     name, ints.count, count);
    return;
  }
  for (int i = 0; i < count; ++i) {
    out[i] = ints.present ? ints.data[i] : fallback;
    if (out[i] < least || out[i] > INT32_MAX) {
      RABBET_ONNX_FAIL(node, RABBET_STATUS_OUT_OF_RANGE,
                       "attribute '%s' holds %lld; at least %lld is expected",
                       name, (long long)out[i], (long long)least);
    }
  }
}

static void onnx_window_padding(rabbet_onnx_node_t* node,
                                onnx_window_t* window) {
  static const char* const modes[][2] = {
      {"SAME_UPPER", "SAME_UPPER"},
      {"SAME_LOWER", "SAME_LOWER"},
      {"VALID", "EXPLICIT_ROUND_DOWN"},
      {"NOTSET", "EXPLICIT_ROUND_DOWN"},
  };
  const char* auto_pad = rabbet_onnx_attr_string(node, "auto_pad", "NOTSET");
  window->padding_mode = NULL;
  for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); ++i) {
    if (!strcmp(modes[i][0], auto_pad)) window->padding_mode = modes[i][1];
  }
  if (!window->padding_mode) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "auto_pad is '%s'; NOTSET, SAME_UPPER, SAME_LOWER and "
                     "VALID exist",
                     auto_pad);
    return;
  }
  if (strcmp(auto_pad, "NOTSET") != 0) return;
  int64_t pads[2 * RABBET_ONNX_MAX_WINDOW];
  onnx_window_ints(node, "pads", 2 * window->spatial, 0, 0, pads);
  for (int i = 0; i < window->spatial && rabbet_onnx_ok(node); ++i) {
    window->before[i] = pads[i];
    window->after[i] = pads[i + window->spatial];
  }
}

static onnx_window_t onnx_window(rabbet_onnx_node_t* node, rabbet_tensor_t* x) {
  onnx_window_t window = {.spatial = rabbet_onnx_rank(node, x) - 2};
  if (!rabbet_onnx_ok(node)) return window;
  if (window.spatial < 1 || window.spatial > RABBET_ONNX_MAX_WINDOW) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "the input has rank %d; 3, 4 and 5 (1 to 3 spatial axes) "
                     "are possible",
                     window.spatial + 2);
    window.spatial = 0;
    return window;
  }
  onnx_window_ints(node, "strides", window.spatial, 1, 1, window.stride);
  onnx_window_ints(node, "dilations", window.spatial, 1, 1, window.dilation);
  onnx_window_padding(node, &window);
  return window;
}

// ---- Conv ------------------------------------------------------------------

static void onnx_check_kernel(rabbet_onnx_node_t* node,
                              const rabbet_dims_t* kernel,
                              onnx_window_t* window) {
  if (!rabbet_onnx_ok(node)) return;
  if (kernel->rank != window->spatial + 2) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "the kernel has rank %d, but the input's is %d",
                     kernel->rank, window->spatial + 2);
    return;
  }
  rabbet_onnx_ints_t given = rabbet_onnx_attr_ints(node, "kernel_shape");
  for (int i = 0; i < window->spatial; ++i) {
    window->kernel[i] = kernel->d[i + 2];
    bool differs = given.present && (given.count != (size_t)window->spatial ||
                                     given.data[i] != kernel->d[i + 2]);
    if (!differs) continue;
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "kernel_shape does not agree with the kernel's shape");
    return;
  }
}

rabbet_tensor_t* rabbet_onnx_convolution(rabbet_onnx_node_t* node,
                                         rabbet_tensor_t* x,
                                         rabbet_tensor_t* kernel,
                                         rabbet_tensor_t* bias) {
  onnx_window_t window = onnx_window(node, x);
  rabbet_dims_t dims = rabbet_onnx_dims(node, kernel);
  onnx_check_kernel(node, &dims, &window);
  int64_t groups = rabbet_onnx_attr_int(node, "group", 1);
  if (!rabbet_onnx_ok(node)) return NULL;
  rabbet_tensor_t* inputs[] = {x, kernel, bias};
  rabbet_attr_t attrs[] = {
      RABBET_ONNX_INTS("stride_nd", window.stride, window.spatial),
      RABBET_ONNX_INTS("dilation_nd", window.dilation, window.spatial),
      RABBET_ONNX_INTS("pre_padding", window.before, window.spatial),
      RABBET_ONNX_INTS("post_padding", window.after, window.spatial),
      RABBET_ONNX_INT("num_groups", groups),
      RABBET_ONNX_INT("padding_mode", rabbet_onnx_enumerator(
                                          node, "convolution", "padding_mode",
                                          window.padding_mode)),
  };
  return rabbet_onnx_layer(node, "convolution", inputs, bias ? 3 : 2, attrs,
                           sizeof(attrs) / sizeof(attrs[0]));
}

static void onnx_import_convolution(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  rabbet_tensor_t* kernel = rabbet_onnx_required(node, 1);
  node->outputs[0] =
      rabbet_onnx_convolution(node, x, kernel, rabbet_onnx_input(node, 2));
}

// ---- ConvTranspose ---------------------------------------------------------

// The padding that gives the extents in output_shape.
static void onnx_window_for(rabbet_onnx_node_t* node, rabbet_tensor_t* x,
                            onnx_window_t* window, int64_t* extra) {
  rabbet_onnx_ints_t wish = rabbet_onnx_attr_ints(node, "output_shape");
  rabbet_dims_t in = rabbet_onnx_dims(node, x);
  if (!wish.present || !rabbet_onnx_ok(node)) return;
  bool upper = !strcmp(rabbet_onnx_attr_string(node, "auto_pad", "NOTSET"),
                       "SAME_UPPER");
  if (wish.count != (size_t)window->spatial) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "attribute 'output_shape' has %zu numbers, but %d are "
                     "expected",
                     wish.count, window->spatial);
    return;
  }
  window->padding_mode = "EXPLICIT_ROUND_DOWN";
  for (int i = 0; i < window->spatial; ++i) {
    if (in.d[i + 2] < 0 || wish.data[i] < 0 || wish.data[i] > INT32_MAX) {
      RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                       "attribute 'output_shape' asks for %lld elements on "
                       "spatial axis %d of an input of %lld; an output of at "
                       "least 0 and an input of known extents are needed",
                       (long long)wish.data[i], i, (long long)in.d[i + 2]);
      return;
    }
    int64_t full = (in.d[i + 2] - 1) * window->stride[i] + extra[i] +
                   (window->kernel[i] - 1) * window->dilation[i] + 1;
    int64_t cut = full > wish.data[i] ? full - wish.data[i] : 0;
    if (full < wish.data[i]) extra[i] += wish.data[i] - full;
    window->before[i] = upper ? cut / 2 : cut - cut / 2;
    window->after[i] = cut - window->before[i];
  }
}

static void onnx_import_deconvolution(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  rabbet_tensor_t* kernel = rabbet_onnx_required(node, 1);
  onnx_window_t window = onnx_window(node, x);
  rabbet_dims_t dims = rabbet_onnx_dims(node, kernel);
  int64_t extra[RABBET_ONNX_MAX_WINDOW] = {0};
  onnx_check_kernel(node, &dims, &window);
  onnx_window_ints(node, "output_padding", window.spatial, 0, 0, extra);
  onnx_window_for(node, x, &window, extra);
  int64_t groups = rabbet_onnx_attr_int(node, "group", 1);
  if (!rabbet_onnx_ok(node)) return;
  rabbet_tensor_t* inputs[] = {x, kernel, rabbet_onnx_input(node, 2)};
  rabbet_attr_t attrs[] = {
      RABBET_ONNX_INTS("stride_nd", window.stride, window.spatial),
      RABBET_ONNX_INTS("dilation_nd", window.dilation, window.spatial),
      RABBET_ONNX_INTS("pre_padding", window.before, window.spatial),
      RABBET_ONNX_INTS("post_padding", window.after, window.spatial),
      RABBET_ONNX_INTS("output_padding", extra, window.spatial),
      RABBET_ONNX_INT("num_groups", groups),
      RABBET_ONNX_INT("padding_mode", rabbet_onnx_enumerator(
                                          node, "deconvolution", "padding_mode",
                                          window.padding_mode)),
  };
  node->outputs[0] =
      rabbet_onnx_layer(node, "deconvolution", inputs, inputs[2] ? 3 : 2, attrs,
                        sizeof(attrs) / sizeof(attrs[0]));
}

// ---- Pools -----------------------------------------------------------------

// One axis of a pool that skips elements.
typedef struct onnx_skip_t {
  rabbet_onnx_index_t before, padded, size;  // padding, input with it, output
  int64_t kernel, stride, dilation;
} onnx_skip_t;

static onnx_skip_t onnx_skip(rabbet_onnx_node_t* node, rabbet_onnx_index_t in,
                             const onnx_window_t* window, int i) {
  onnx_skip_t skip = {.before = rabbet_onnx_index(window->before[i]),
                      .kernel = window->kernel[i],
                      .stride = window->stride[i],
                      .dilation = window->dilation[i]};
  const char* mode = window->padding_mode;
  rabbet_onnx_index_t step = rabbet_onnx_index(skip.stride);
  int64_t reach = (skip.kernel - 1) * skip.dilation + 1;
  if (!strncmp(mode, "SAME", 4)) {
    skip.size = rabbet_onnx_ceil_div(node, in, step);
    rabbet_onnx_index_t all = rabbet_onnx_index_op(
        node, "SUM", rabbet_onnx_index_op(node, "PROD", skip.size, step),
        rabbet_onnx_index(reach - skip.stride));
    skip.padded = rabbet_onnx_index_op(node, "MAX", all, in);
    bool lower = !strcmp(mode, "SAME_LOWER");
    skip.before = rabbet_onnx_index_op(
        node, "FLOOR_DIV",
        rabbet_onnx_index_op(node, "SUM",
                             rabbet_onnx_index_op(node, "SUB", skip.padded, in),
                             rabbet_onnx_index(lower)),
        rabbet_onnx_index(2));
    return skip;
  }
  bool up = !strcmp(mode, "EXPLICIT_ROUND_UP");
  rabbet_onnx_index_t begun =
      rabbet_onnx_index_op(node, "SUM", in, skip.before);
  skip.padded = rabbet_onnx_index_op(node, "SUM", begun,
                                     rabbet_onnx_index(window->after[i]));
  skip.size = rabbet_onnx_index_op(
      node, "SUM", skip.padded,
      rabbet_onnx_index((up ? 2 * skip.stride - 1 : skip.stride) - reach));
  skip.size = rabbet_onnx_index_op(node, "FLOOR_DIV", skip.size, step);
  // A last window that would begin beyond the input is dropped.
  if (up)
    skip.size = rabbet_onnx_index_op(node, "MIN", skip.size,
                                     rabbet_onnx_ceil_div(node, begun, step));
  return skip;
}

// Joins the elements of each window along an axis: slices, one for each place
// in the window.
static rabbet_tensor_t* onnx_skip_along(rabbet_onnx_node_t* node,
                                        const char* op, rabbet_tensor_t* x,
                                        int axis, const onnx_skip_t* skip,
                                        double outside) {
  rabbet_tensor_t* y = NULL;
  rabbet_onnx_slice_t slice = rabbet_onnx_slice_all(node, x);
  slice.mode = "FILL";
  slice.fill =
      rabbet_onnx_number(node, rabbet_onnx_dtype_of(node, x), 0, outside);
  slice.size[axis] = skip->size;
  slice.stride[axis] = rabbet_onnx_index(skip->stride);
  for (int64_t i = 0; i < skip->kernel && rabbet_onnx_ok(node); ++i) {
    slice.start[axis] = rabbet_onnx_index_op(
        node, "SUB", rabbet_onnx_index(i * skip->dilation), skip->before);
    rabbet_tensor_t* part = rabbet_onnx_slice(node, x, &slice);
    y = y ? rabbet_onnx_binary(node, op, y, part) : part;
  }
  return y;
}

// Numbers of elements of each window along an axis: those of the input, and of
// its padding if that counts. At least 1: the mean of none is 0.
static rabbet_tensor_t* onnx_skip_count(rabbet_onnx_node_t* node,
                                        rabbet_tensor_t* x, int axis,
                                        onnx_skip_t skip, bool count_padding) {
  int rank = rabbet_onnx_rank(node, x);
  rabbet_onnx_index_t dims[RABBET_MAX_RANK];
  for (int i = 0; i < rank; ++i)
    dims[i] = rabbet_onnx_index(1);
  dims[axis] = count_padding ? skip.padded : rabbet_onnx_extent(node, x, axis);
  if (count_padding) skip.before = rabbet_onnx_index(0);
  rabbet_tensor_t* ones =
      rabbet_onnx_number(node, rabbet_onnx_dtype_of(node, x), rank, 1);
  ones = rabbet_onnx_spread(node, ones, dims, rank);
  ones = onnx_skip_along(node, "SUM", ones, axis, &skip, 0);
  return rabbet_onnx_with_number(node, "MAX", ones, 1);
}

// Pooling with dilations, an axis after the other: extremes of extremes, means
// of means, sums of sums.
static rabbet_tensor_t* onnx_dilated(rabbet_onnx_node_t* node, const char* type,
                                     rabbet_tensor_t* x,
                                     const onnx_window_t* window,
                                     bool count_padding) {
  bool most = !strcmp(type, "MAX"), mean = !strcmp(type, "AVERAGE");
  for (int i = 0; i < window->spatial && rabbet_onnx_ok(node); ++i) {
    int axis = i + 2;
    onnx_skip_t skip =
        onnx_skip(node, rabbet_onnx_extent(node, x, axis), window, i);
    rabbet_tensor_t* y = onnx_skip_along(node, most ? "MAX" : "SUM", x, axis,
                                         &skip, most ? -INFINITY : 0);
    x = mean ? rabbet_onnx_binary(
                   node, "DIV", y,
                   onnx_skip_count(node, x, axis, skip, count_padding))
             : y;
  }
  return x;
}

static bool onnx_is_dilated(const onnx_window_t* window) {
  for (int i = 0; i < window->spatial; ++i)
    if (window->dilation[i] != 1) return true;
  return false;
}

static rabbet_tensor_t* onnx_pooling(rabbet_onnx_node_t* node, const char* type,
                                     rabbet_tensor_t* x,
                                     const onnx_window_t* window,
                                     bool count_padding) {
  if (!rabbet_onnx_ok(node)) return NULL;
  if (onnx_is_dilated(window))
    return onnx_dilated(node, type, x, window, count_padding);
  rabbet_attr_t attrs[] = {
      RABBET_ONNX_INT("type",
                      rabbet_onnx_enumerator(node, "pooling", "type", type)),
      RABBET_ONNX_INTS("window_size_nd", window->kernel, window->spatial),
      RABBET_ONNX_INTS("stride_nd", window->stride, window->spatial),
      RABBET_ONNX_INTS("pre_padding", window->before, window->spatial),
      RABBET_ONNX_INTS("post_padding", window->after, window->spatial),
      RABBET_ONNX_BOOL("average_count_excludes_padding", !count_padding),
      RABBET_ONNX_INT("padding_mode",
                      rabbet_onnx_enumerator(node, "pooling", "padding_mode",
                                             window->padding_mode)),
  };
  return rabbet_onnx_layer(node, "pooling", &x, 1, attrs,
                           sizeof(attrs) / sizeof(attrs[0]));
}

static onnx_window_t onnx_pool_window(rabbet_onnx_node_t* node,
                                      rabbet_tensor_t* x) {
  onnx_window_t window = onnx_window(node, x);
  if (!rabbet_onnx_has_attr(node, "kernel_shape")) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "attribute 'kernel_shape' is missing");
  }
  if (!rabbet_onnx_ok(node)) return window;
  onnx_window_ints(node, "kernel_shape", window.spatial, 1, 1, window.kernel);
  if (rabbet_onnx_attr_int(node, "ceil_mode", 0) &&
      !strcmp(window.padding_mode, "EXPLICIT_ROUND_DOWN")) {
    window.padding_mode = "EXPLICIT_ROUND_UP";
  }
  return window;
}

// With ceil_mode ONNX drops a last window that would begin beyond the input
// (and the padding before it); the catalogue keeps it.
static rabbet_tensor_t* onnx_drop_last(rabbet_onnx_node_t* node,
                                       rabbet_tensor_t* x, rabbet_tensor_t* y,
                                       const onnx_window_t* window) {
  rabbet_onnx_slice_t slice = rabbet_onnx_slice_all(node, y);
  bool drops = false;
  for (int i = 0; i < window->spatial && rabbet_onnx_ok(node); ++i) {
    int64_t step = window->stride[i];
    // A window at least this long always reaches back into the input.
    if (window->kernel[i] >= window->after[i] + step) continue;
    rabbet_onnx_index_t starts =
        rabbet_onnx_index_op(node, "SUM", rabbet_onnx_extent(node, x, i + 2),
                             rabbet_onnx_index(window->before[i] + step - 1));
    starts = rabbet_onnx_index_op(node, "FLOOR_DIV", starts,
                                  rabbet_onnx_index(step));
    rabbet_onnx_index_t all = slice.size[i + 2];
    slice.size[i + 2] = rabbet_onnx_index_op(node, "MIN", all, starts);
    drops |=
        !rabbet_onnx_is_static(all) || slice.size[i + 2].value != all.value;
  }
  return drops ? rabbet_onnx_slice(node, y, &slice) : y;
}

// The position of each element in the tensor, INT64. With storage_order 1 the
// first spatial axis is the one whose neighbours follow each other.
static rabbet_tensor_t* onnx_pool_positions(rabbet_onnx_node_t* node,
                                            rabbet_tensor_t* x) {
  int rank = rabbet_onnx_rank(node, x);
  bool columns = rabbet_onnx_attr_int(node, "storage_order", 0) != 0;
  rabbet_onnx_index_t stride = rabbet_onnx_index(1);
  rabbet_tensor_t* sum = NULL;
  for (int i = 0; i < rank && rabbet_onnx_ok(node); ++i) {
    // From the axis with neighbours to the batch.
    int axis = columns && i < rank - 2 ? 2 + i : rank - 1 - i;
    rabbet_onnx_index_t extent = rabbet_onnx_extent(node, x, axis);
    rabbet_tensor_t* along = rabbet_onnx_binary(
        node, "PROD", rabbet_onnx_indices(node, extent, axis, rank),
        rabbet_onnx_index_vector(node, &stride, 1));
    sum = sum ? rabbet_onnx_binary(node, "SUM", sum, along) : along;
    stride = rabbet_onnx_index_op(node, "PROD", stride, extent);
  }
  return sum;
}

// Maxima of windows and where they are, an axis after the other. Of equal
// elements the first in row-major order counts, so the last axis comes first.
static void onnx_pool_indices(rabbet_onnx_node_t* node, rabbet_tensor_t* x,
                              const onnx_window_t* window) {
  rabbet_tensor_t* at = onnx_pool_positions(node, x);
  for (int i = window->spatial - 1; i >= 0 && rabbet_onnx_ok(node); --i) {
    int axis = i + 2;
    onnx_skip_t skip =
        onnx_skip(node, rabbet_onnx_extent(node, x, axis), window, i);
    rabbet_onnx_slice_t slice = rabbet_onnx_slice_all(node, x);
    rabbet_tensor_t *most = NULL, *best = NULL;
    slice.mode = "FILL";
    slice.size[axis] = skip.size;
    slice.stride[axis] = rabbet_onnx_index(skip.stride);
    for (int64_t k = 0; k < skip.kernel && rabbet_onnx_ok(node); ++k) {
      slice.start[axis] = rabbet_onnx_index_op(
          node, "SUB", rabbet_onnx_index(k * skip.dilation), skip.before);
      slice.fill = NULL;
      rabbet_tensor_t* place = rabbet_onnx_slice(node, at, &slice);
      slice.fill =
          rabbet_onnx_number(node, rabbet_onnx_dtype_of(node, x), 0, -INFINITY);
      rabbet_tensor_t* part = rabbet_onnx_slice(node, x, &slice);
      if (most)
        best = rabbet_onnx_select(
            node, rabbet_onnx_binary(node, "GREATER", part, most), place, best);
      else
        best = place;
      most = most ? rabbet_onnx_binary(node, "MAX", most, part) : part;
    }
    x = most;
    at = best;
  }
  node->outputs[0] = x;
  node->outputs[1] = at;
}

static void onnx_import_pool(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  rabbet_dtype_t dtype = rabbet_onnx_dtype_of(node, x);
  // Integers of 8 bits are exact in FLOAT.
  if (dtype == RABBET_DTYPE_INT8 || dtype == RABBET_DTYPE_UINT8) {
    x = rabbet_onnx_cast(node, x, RABBET_DTYPE_FLOAT);
  }
  onnx_window_t window = onnx_pool_window(node, x);
  if (rabbet_onnx_ok(node) && rabbet_onnx_wants(node, 1)) {
    onnx_pool_indices(node, x, &window);
    node->outputs[0] = rabbet_onnx_cast(node, node->outputs[0], dtype);
    return;
  }
  bool count_padding = rabbet_onnx_attr_int(node, "count_include_pad", 0) != 0;
  rabbet_tensor_t* y =
      onnx_pooling(node, node->variant, x, &window, count_padding);
  if (rabbet_onnx_ok(node) && !onnx_is_dilated(&window) &&
      !strcmp(window.padding_mode, "EXPLICIT_ROUND_UP")) {
    y = onnx_drop_last(node, x, y, &window);
  }
  node->outputs[0] = rabbet_onnx_cast(node, y, dtype);
}

// The power, of any kind before opset 2.
static double onnx_power(rabbet_onnx_node_t* node) {
  return node->opset < 2 ? rabbet_onnx_attr_float(node, "p", 2)
                         : (double)rabbet_onnx_attr_int(node, "p", 2);
}

// Sums of windows, as means times the window's size. For ceil_mode the padding
// is so long that the last window fits: all are of one size.
static rabbet_tensor_t* onnx_sum_pooling(rabbet_onnx_node_t* node,
                                         rabbet_tensor_t* x,
                                         const onnx_window_t* window) {
  if (onnx_is_dilated(window))
    return onnx_dilated(node, "SUM", x, window, true);
  onnx_window_t longer = *window;
  bool up = !strcmp(window->padding_mode, "EXPLICIT_ROUND_UP");
  if (up) longer.padding_mode = "EXPLICIT_ROUND_DOWN";
  double size = 1;
  for (int i = 0; i < window->spatial; ++i) {
    size *= (double)window->kernel[i];
    if (up) longer.after[i] += window->stride[i] - 1;
  }
  rabbet_tensor_t* y = onnx_pooling(node, "AVERAGE", x, &longer, true);
  if (up && rabbet_onnx_ok(node)) y = onnx_drop_last(node, x, y, window);
  return rabbet_onnx_with_number(node, "PROD", y, size);
}

// (sum of |x|^p over the window)^(1/p).
static void onnx_import_lp_pool(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  double p = onnx_power(node);
  onnx_window_t window = onnx_pool_window(node, x);
  if (!rabbet_onnx_ok(node)) return;
  rabbet_tensor_t* y = rabbet_onnx_unary(node, "ABS", x);
  y = rabbet_onnx_with_number(node, "POW", y, p);
  y = onnx_sum_pooling(node, y, &window);
  node->outputs[0] = rabbet_onnx_with_number(node, "POW", y, 1 / p);
}

// All axes but batch and channels.
static uint32_t onnx_spatial_axes(rabbet_onnx_node_t* node,
                                  rabbet_tensor_t* x) {
  int rank = rabbet_onnx_rank(node, x);
  return rank > 2 ? ((1u << rank) - 1) & ~3u : 0;
}

static void onnx_import_global_pool(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  node->outputs[0] = rabbet_onnx_reduce(node, node->variant, x,
                                        onnx_spatial_axes(node, x), true);
}

static void onnx_import_global_lp_pool(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  double p = onnx_power(node);
  rabbet_tensor_t* y = rabbet_onnx_unary(node, "ABS", x);
  y = rabbet_onnx_with_number(node, "POW", y, p);
  y = rabbet_onnx_reduce(node, "SUM", y, onnx_spatial_axes(node, x), true);
  node->outputs[0] = rabbet_onnx_with_number(node, "POW", y, 1 / p);
}

RABBET_ONNX_OPERATORS(convolution) = {
    RABBET_ONNX_OP(AveragePool, pool, "AVERAGE", 1, 7, 10, 11, 19, 22),
    RABBET_ONNX_OP(Conv, convolution, "", 1, 11, 22),
    RABBET_ONNX_OP(ConvTranspose, deconvolution, "", 1, 11, 22),
    RABBET_ONNX_OP(GlobalAveragePool, global_pool, "AVG", 1, 22),
    RABBET_ONNX_OP(GlobalLpPool, global_lp_pool, "", 1, 2, 22),
    RABBET_ONNX_OP(GlobalMaxPool, global_pool, "MAX", 1, 22),
    RABBET_ONNX_OP(LpPool, lp_pool, "", 1, 2, 11, 18, 22),
    RABBET_ONNX_OP(MaxPool, pool, "MAX", 1, 8, 10, 11, 12, 22),
    {0},
};
