// Operators on images and grids, composed of slices, products and samples:
// crops, affine grids, columns put together, pools undone, deformable kernels.
#include <string.h>

#include "core/view.h"
#include "onnx/index.h"
#include "onnx/operators.h"

static rabbet_onnx_index_t onnx_image_op(rabbet_onnx_node_t* node,
                                         rabbet_onnx_index_t a, const char* op,
                                         int64_t b) {
  return rabbet_onnx_index_op(node, op, a, rabbet_onnx_index(b));
}

// Element `at` of an attribute of `count` numbers; `fallback` without it.
static int64_t onnx_image_number(rabbet_onnx_node_t* node, const char* name,
                                 int at, int count, int64_t fallback) {
  rabbet_onnx_ints_t ints = rabbet_onnx_attr_ints(node, name);
  if (!rabbet_onnx_ok(node) || !ints.present) return fallback;
  if (ints.count != (size_t)count) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "attribute '%s' has %zu numbers; expected %d", name,
                     ints.count, count);
    return fallback;
  }
  return ints.data[at];
}

// ---- CenterCropPad ---------------------------------------------------------

static void onnx_import_center_crop_pad(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  rabbet_tensor_t* shape = rabbet_onnx_required(node, 1);
  int rank = rabbet_onnx_rank(node, x);
  rabbet_onnx_ints_t axes = rabbet_onnx_attr_ints(node, "axes");
  int count = axes.present ? (int)axes.count : rank;
  (void)rabbet_onnx_axes_mask(node, axes, rank);
  int length = rabbet_onnx_shape_length(node, shape);
  if (rabbet_onnx_ok(node) && length != count)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "input 1 ('shape') has %d elements; expected %d, one for "
                     "each axis",
                     length, count);
  rabbet_onnx_slice_t slice = rabbet_onnx_slice_all(node, x);
  slice.mode = "FILL";
  for (int i = 0; i < count && rabbet_onnx_ok(node); ++i) {
    int axis = axes.present ? rabbet_onnx_axis(node, axes.data[i], rank) : i;
    rabbet_onnx_index_t size = rabbet_onnx_element(node, shape, i);
    // Half of the difference, rounded towards zero.
    rabbet_onnx_index_t more =
        rabbet_onnx_index_op(node, "SUB", slice.size[axis], size);
    more = rabbet_onnx_index_op(node, "SUM", more,
                                onnx_image_op(node, more, "LESS", 0));
    slice.start[axis] = onnx_image_op(node, more, "FLOOR_DIV", 2);
    slice.size[axis] = size;
  }
  node->outputs[0] = rank == 0 ? x : rabbet_onnx_slice(node, x, &slice);
}

// ---- AffineGrid ------------------------------------------------------------

// Places along an axis of a grid of `rank` axes, in [-1, 1].
static rabbet_tensor_t* onnx_grid_places(rabbet_onnx_node_t* node,
                                         rabbet_onnx_index_t extent, int axis,
                                         int rank, rabbet_dtype_t dtype) {
  bool corners = rabbet_onnx_attr_int(node, "align_corners", 0) != 0;
  rabbet_onnx_index_t last = onnx_image_op(node, extent, "SUB", 1);
  rabbet_onnx_index_t whole =
      corners ? onnx_image_op(node, last, "MAX", 1) : extent;
  rabbet_tensor_t* twice = rabbet_onnx_with_number(
      node, "PROD", rabbet_onnx_indices(node, extent, axis, rank), 2);
  rabbet_tensor_t* place = rabbet_onnx_binary(
      node, "SUB", twice, rabbet_onnx_index_vector(node, &last, 1));
  place = rabbet_onnx_cast(node, place, dtype);
  return rabbet_onnx_binary(
      node, "DIV", place,
      rabbet_onnx_cast(node, rabbet_onnx_index_vector(node, &whole, 1), dtype));
}

// Column `at` of theta, [batch, 1, ..., 1, places].
static rabbet_tensor_t* onnx_grid_column(rabbet_onnx_node_t* node,
                                         rabbet_tensor_t* theta, int at,
                                         int places) {
  rabbet_onnx_slice_t slice = rabbet_onnx_slice_all(node, theta);
  slice.start[2] = rabbet_onnx_index(at);
  slice.size[2] = rabbet_onnx_index(1);
  rabbet_tensor_t* column = rabbet_onnx_squeeze(
      node, rabbet_onnx_slice(node, theta, &slice), 1u << 2);
  uint32_t ones = ((1u << places) - 1) << 1;
  return rabbet_onnx_unsqueeze(node, column, ones, places + 2);
}

static void onnx_import_affine_grid(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* theta = rabbet_onnx_required(node, 0);
  rabbet_tensor_t* size = rabbet_onnx_required(node, 1);
  int places = rabbet_onnx_shape_length(node, size) - 2;
  rabbet_onnx_check_rank(node, "input 0 ('theta')", theta, 3);
  rabbet_dims_t dims = rabbet_onnx_dims(node, theta);
  rabbet_dtype_t dtype = rabbet_onnx_dtype_of(node, theta);
  if (rabbet_onnx_ok(node) && (places < 2 || places > 3 ||
                               dims.d[1] != places || dims.d[2] != places + 1))
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "theta has %lld x %lld numbers, and 'size' %d elements; "
                     "expected 2 x 3 and 4, or 3 x 4 and 5",
                     (long long)dims.d[1], (long long)dims.d[2], places + 2);
  if (!rabbet_onnx_ok(node)) return;
  rabbet_onnx_index_t extents[RABBET_MAX_RANK];
  extents[0] = rabbet_onnx_extent(node, theta, 0);
  for (int i = 0; i < places; ++i)
    extents[i + 1] = rabbet_onnx_element(node, size, i + 2);
  extents[places + 1] = rabbet_onnx_index(places);
  // Column j is for the j-th axis from the end, as coordinates are x, y, z.
  rabbet_tensor_t* y = onnx_grid_column(node, theta, places, places);
  for (int j = 0; j < places; ++j) {
    int axis = places - j;
    rabbet_tensor_t* place =
        onnx_grid_places(node, extents[axis], axis, places + 2, dtype);
    y = rabbet_onnx_binary(
        node, "SUM", y,
        rabbet_onnx_binary(node, "PROD", place,
                           onnx_grid_column(node, theta, j, places)));
  }
  node->outputs[0] = y;
}

// ---- Col2Im ----------------------------------------------------------------

typedef struct onnx_blocks_t {
  int axes;
  int64_t size;  // elements of a block
  int64_t block[RABBET_MAX_RANK], stride[RABBET_MAX_RANK];
  int64_t dilation[RABBET_MAX_RANK], before[RABBET_MAX_RANK];
  int64_t padding[RABBET_MAX_RANK];  // before and behind
} onnx_blocks_t;

static onnx_blocks_t onnx_blocks(rabbet_onnx_node_t* node,
                                 rabbet_onnx_ints_t block) {
  onnx_blocks_t b = {.axes = (int)block.count, .size = 1};
  if (rabbet_onnx_ok(node) && (b.axes < 1 || b.axes > 3))
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "blocks have %d axes; expected 1 to 3", b.axes);
  for (int i = 0; i < b.axes && rabbet_onnx_ok(node); ++i) {
    b.block[i] = block.data[i];
    b.stride[i] = onnx_image_number(node, "strides", i, b.axes, 1);
    b.dilation[i] = onnx_image_number(node, "dilations", i, b.axes, 1);
    b.before[i] = onnx_image_number(node, "pads", i, 2 * b.axes, 0);
    b.padding[i] = b.before[i] +
                   onnx_image_number(node, "pads", i + b.axes, 2 * b.axes, 0);
    if (b.block[i] < 1 || b.stride[i] < 1 || b.dilation[i] < 1 ||
        b.block[i] > INT32_MAX / b.size)
      RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                       "axis %d has block %lld, stride %lld and dilation %lld; "
                       "expected positive numbers",
                       i, (long long)b.block[i], (long long)b.stride[i],
                       (long long)b.dilation[i]);
    else
      b.size *= b.block[i];
  }
  return b;
}

// A kernel for each element of a block, 1 there and 0 elsewhere: [size, 1,
// block...].
static rabbet_tensor_t* onnx_blocks_kernel(rabbet_onnx_node_t* node,
                                           const onnx_blocks_t* b,
                                           rabbet_dtype_t dtype) {
  rabbet_dims_t dims = {.rank = b->axes + 2, .d = {b->size, 1}};
  for (int i = 0; i < b->axes; ++i)
    dims.d[i + 2] = b->block[i];
  int64_t count;
  void* data = rabbet_onnx_weights_room(node, dtype, &dims, &count);
  for (int64_t i = 0; data && i < b->size; ++i)
    rabbet_store_double(dtype, data, i * b->size + i, 1);
  return rabbet_onnx_weights(node, dtype, data, &dims);
}

static void onnx_import_col2im(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  rabbet_tensor_t* image = rabbet_onnx_required(node, 1);
  rabbet_onnx_check_rank(node, "input 0 ('input')", x, 3);
  onnx_blocks_t b = onnx_blocks(
      node, rabbet_onnx_constant_ints(node, "input 2 ('block_shape')",
                                      rabbet_onnx_required(node, 2)));
  if (rabbet_onnx_ok(node) && rabbet_onnx_shape_length(node, image) != b.axes)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "input 1 ('image_shape') and input 2 ('block_shape') "
                     "differ in length");
  if (!rabbet_onnx_ok(node)) return;
  // Images of one channel, with the elements of a block as channels.
  rabbet_onnx_index_t batch = rabbet_onnx_extent(node, x, 0);
  rabbet_onnx_index_t channels =
      onnx_image_op(node, rabbet_onnx_extent(node, x, 1), "FLOOR_DIV", b.size);
  rabbet_onnx_index_t columns[RABBET_MAX_RANK], result[RABBET_MAX_RANK];
  rabbet_attr_t attrs[] = {RABBET_ONNX_INTS("stride_nd", b.stride, b.axes),
                           RABBET_ONNX_INTS("dilation_nd", b.dilation, b.axes)};
  columns[0] = rabbet_onnx_index_op(node, "PROD", batch, channels);
  columns[1] = rabbet_onnx_index(b.size);
  result[0] = batch;
  result[1] = channels;
  for (int i = 0; i < b.axes; ++i) {
    result[i + 2] = rabbet_onnx_element(node, image, i);
    int64_t spread = b.dilation[i] * (b.block[i] - 1) + 1;
    columns[i + 2] =
        onnx_image_op(node, result[i + 2], "SUM", b.padding[i] - spread);
    columns[i + 2] =
        onnx_image_op(node, columns[i + 2], "FLOOR_DIV", b.stride[i]);
    columns[i + 2] = onnx_image_op(node, columns[i + 2], "SUM", 1);
  }
  rabbet_tensor_t* inputs[] = {
      rabbet_onnx_reshape(node, x, columns, b.axes + 2),
      onnx_blocks_kernel(node, &b, rabbet_onnx_dtype_of(node, x))};
  rabbet_tensor_t* y =
      rabbet_onnx_layer(node, "deconvolution", inputs, 2, attrs, 2);
  rabbet_onnx_slice_t slice = rabbet_onnx_slice_all(node, y);
  slice.mode = "FILL";
  for (int i = 0; i < b.axes; ++i) {
    slice.start[i + 2] = rabbet_onnx_index(b.before[i]);
    slice.size[i + 2] = result[i + 2];
  }
  y = rabbet_onnx_slice(node, y, &slice);
  node->outputs[0] = rabbet_onnx_reshape(node, y, result, b.axes + 2);
}

// ---- MaxUnpool -------------------------------------------------------------

// Indices refer to a tensor whose extents follow from the kernel. A larger
// output holds that tensor in its corner.
static void onnx_import_max_unpool(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  rabbet_tensor_t* indices = rabbet_onnx_required(node, 1);
  rabbet_tensor_t* shape = rabbet_onnx_input(node, 2);
  rabbet_onnx_ints_t kernel = rabbet_onnx_attr_ints(node, "kernel_shape");
  int rank = rabbet_onnx_rank(node, x), axes = (int)kernel.count;
  if (rabbet_onnx_ok(node) && (axes < 1 || rank != axes + 2))
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "kernel_shape has %d numbers; expected %d, the input's "
                     "rank less 2",
                     axes, rank - 2);
  if (!rabbet_onnx_ok(node)) return;
  rabbet_onnx_index_t dims[RABBET_MAX_RANK], count = rabbet_onnx_index(1);
  for (int i = 0; i < rank && rabbet_onnx_ok(node); ++i) {
    dims[i] = rabbet_onnx_extent(node, x, i);
    if (i >= 2) {
      int64_t pads = onnx_image_number(node, "pads", i - 2, 2 * axes, 0) +
                     onnx_image_number(node, "pads", i - 2 + axes, 2 * axes, 0);
      int64_t stride = onnx_image_number(node, "strides", i - 2, axes, 1);
      dims[i] = onnx_image_op(node, dims[i], "SUB", 1);
      dims[i] = onnx_image_op(node, dims[i], "PROD", stride);
      dims[i] = onnx_image_op(node, dims[i], "SUM", kernel.data[i - 2] - pads);
    }
    count = rabbet_onnx_index_op(node, "PROD", count, dims[i]);
  }
  rabbet_dtype_t dtype = rabbet_onnx_dtype_of(node, x);
  rabbet_tensor_t* inputs[] = {
      rabbet_onnx_spread(node, rabbet_onnx_number(node, dtype, 1, 0), &count,
                         1),
      rabbet_onnx_flat(node, indices), rabbet_onnx_flat(node, x)};
  rabbet_attr_t attrs[] = {
      RABBET_ONNX_INT(
          "mode", rabbet_onnx_enumerator(node, "scatter", "mode", "ELEMENT")),
      RABBET_ONNX_INT("axis", 0)};
  rabbet_tensor_t* y = rabbet_onnx_layer(node, "scatter", inputs, 3, attrs, 2);
  y = rabbet_onnx_reshape(node, y, dims, rank);
  if (shape && rabbet_onnx_shape_length(node, shape) != rank)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "input 2 ('output_shape') must have %d elements", rank);
  if (shape && rabbet_onnx_ok(node)) {
    rabbet_onnx_slice_t slice = rabbet_onnx_slice_all(node, y);
    slice.mode = "FILL";
    for (int i = 0; i < rank; ++i)
      slice.size[i] = rabbet_onnx_element(node, shape, i);
    y = rabbet_onnx_slice(node, y, &slice);
  }
  node->outputs[0] = y;
}

// ---- DeformConv ------------------------------------------------------------

typedef struct onnx_deform_t {
  rabbet_onnx_index_t batch, in[2], out[2];
  int64_t kernel[2];
  int64_t size;  // elements of the kernel
  int64_t groups, offset_groups;
  int64_t channels, filters;  // of all groups
} onnx_deform_t;

// Sample positions of the kernel's elements along an axis (0: rows), in the
// coordinates of grid_sample: [batch * offset groups, elements, rows, columns,
// 1].
static rabbet_tensor_t* onnx_deform_places(rabbet_onnx_node_t* node,
                                           const onnx_deform_t* d,
                                           rabbet_tensor_t* offsets, int axis) {
  int64_t stride = onnx_image_number(node, "strides", axis, 2, 1);
  int64_t dilation = onnx_image_number(node, "dilations", axis, 2, 1);
  int64_t before = onnx_image_number(node, "pads", axis, 4, 0);
  rabbet_dims_t dims = {.rank = 5, .d = {1, d->size, 1, 1, 1}};
  int64_t count;
  rabbet_dtype_t dtype = rabbet_onnx_wide(node);
  void* places = rabbet_onnx_weights_room(node, dtype, &dims, &count);
  for (int64_t i = 0; places && i < d->size; ++i) {
    int64_t at = axis == 0 ? i / d->kernel[1] : i % d->kernel[1];
    rabbet_store_double(dtype, places, i, (double)(at * dilation - before));
  }
  rabbet_tensor_t* y = rabbet_onnx_cast(
      node, rabbet_onnx_indices(node, d->out[axis], 2 + axis, 5), dtype);
  y = rabbet_onnx_with_number(node, "PROD", y, (double)stride);
  y = rabbet_onnx_binary(node, "SUM", y,
                         rabbet_onnx_weights(node, dtype, places, &dims));
  // [batch * offset groups, elements, 2, rows, columns]
  rabbet_onnx_slice_t slice = rabbet_onnx_slice_all(node, offsets);
  slice.start[2] = rabbet_onnx_index(axis);
  slice.size[2] = rabbet_onnx_index(1);
  rabbet_tensor_t* offset = rabbet_onnx_slice(node, offsets, &slice);
  offset = rabbet_onnx_squeeze(node, offset, 1u << 2);
  y = rabbet_onnx_binary(node, "SUM", y,
                         rabbet_onnx_unsqueeze(node, offset, 1u << 4, 5));
  // Element i's centre is at (2 i + 1) / extent - 1.
  y = rabbet_onnx_with_number(node, "PROD", y, 2);
  y = rabbet_onnx_with_number(node, "SUM", y, 1);
  rabbet_tensor_t* extent = rabbet_onnx_cast(
      node, rabbet_onnx_index_vector(node, &d->in[axis], 1), dtype);
  y = rabbet_onnx_binary(node, "DIV", y, extent);
  return rabbet_onnx_with_number(node, "SUB", y, 1);
}

// The samples times the mask, [batch, groups, channels of a group * elements,
// rows * columns]. The elements of the kernel lie below each other in one
// image.
static rabbet_tensor_t* onnx_deform_samples(rabbet_onnx_node_t* node,
                                            const onnx_deform_t* d) {
  int64_t og = d->offset_groups;
  rabbet_onnx_index_t images = onnx_image_op(node, d->batch, "PROD", og);
  rabbet_onnx_index_t rows = onnx_image_op(node, d->out[0], "PROD", d->size);
  rabbet_onnx_index_t each = rabbet_onnx_index(d->channels / og);
  const rabbet_onnx_index_t split[] = {images, rabbet_onnx_index(d->size),
                                       rabbet_onnx_index(2), d->out[0],
                                       d->out[1]};
  const rabbet_onnx_index_t grid[] = {images, rows, d->out[1],
                                      rabbet_onnx_index(2)};
  const rabbet_onnx_index_t source[] = {images, each, d->in[0], d->in[1]};
  const rabbet_onnx_index_t masks[] = {images, rabbet_onnx_index(1), rows,
                                       d->out[1]};
  const rabbet_onnx_index_t result[] = {
      d->batch, rabbet_onnx_index(d->groups),
      rabbet_onnx_index(d->channels / d->groups * d->size),
      rabbet_onnx_index_op(node, "PROD", d->out[0], d->out[1])};
  rabbet_tensor_t* mask = rabbet_onnx_input(node, 4);
  rabbet_tensor_t* offsets =
      rabbet_onnx_cast(node, node->inputs[2], rabbet_onnx_wide(node));
  offsets = rabbet_onnx_reshape(node, offsets, split, 5);
  rabbet_tensor_t* places[2];
  for (int axis = 0; axis < 2; ++axis)
    places[1 - axis] = onnx_deform_places(node, d, offsets, axis);
  rabbet_tensor_t* x =
      rabbet_onnx_cast(node, node->inputs[0], rabbet_onnx_wide(node));
  rabbet_tensor_t* inputs[] = {
      rabbet_onnx_reshape(node, x, source, 4),
      rabbet_onnx_reshape(node, rabbet_onnx_concat(node, places, 2, 4), grid,
                          4)};
  rabbet_tensor_t* y =
      rabbet_onnx_layer(node, "grid_sample", inputs, 2, NULL, 0);
  if (mask) {
    mask = rabbet_onnx_cast(node, mask, rabbet_onnx_wide(node));
    y = rabbet_onnx_binary(node, "PROD", y,
                           rabbet_onnx_reshape(node, mask, masks, 4));
  }
  return rabbet_onnx_reshape(node, y, result, 4);
}

// Unknown extents must follow from the other shapes.
static bool onnx_deform_check(rabbet_onnx_node_t* node, const rabbet_dims_t* x,
                              const rabbet_dims_t* w, onnx_deform_t* d) {
  bool good = x->d[1] > 0 && w->d[0] > 0 && w->d[1] > 0 && w->d[2] > 0 &&
              w->d[3] > 0 && d->groups > 0 && d->offset_groups > 0 &&
              w->d[1] * d->groups == x->d[1] && w->d[0] % d->groups == 0 &&
              x->d[1] % d->offset_groups == 0;
  if (!good)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "an input of %lld channels and weights of %lld x %lld x "
                     "%lld x %lld do not go with group %lld and offset_group "
                     "%lld; they must be known at import",
                     (long long)x->d[1], (long long)w->d[0], (long long)w->d[1],
                     (long long)w->d[2], (long long)w->d[3],
                     (long long)d->groups, (long long)d->offset_groups);
  return good;
}

static void onnx_import_deform_conv(rabbet_onnx_node_t* node) {
  static const char* const names[] = {"input 0 ('X')", "input 1 ('W')",
                                      "input 2 ('offset')"};
  rabbet_tensor_t* bias = rabbet_onnx_input(node, 3);
  for (size_t i = 0; i < 3; ++i)
    rabbet_onnx_check_rank(node, names[i], rabbet_onnx_required(node, i), 4);
  onnx_deform_t d = {
      .groups = rabbet_onnx_attr_int(node, "group", 1),
      .offset_groups = rabbet_onnx_attr_int(node, "offset_group", 1)};
  if (!rabbet_onnx_ok(node)) return;
  rabbet_dims_t x = rabbet_onnx_dims(node, node->inputs[0]);
  rabbet_dims_t w = rabbet_onnx_dims(node, node->inputs[1]);
  if (!onnx_deform_check(node, &x, &w, &d)) return;
  d.batch = rabbet_onnx_extent(node, node->inputs[0], 0);
  d.channels = x.d[1];
  d.filters = w.d[0];
  d.size = w.d[2] * w.d[3];
  for (int i = 0; i < 2; ++i) {
    d.in[i] = rabbet_onnx_extent(node, node->inputs[0], i + 2);
    d.out[i] = rabbet_onnx_extent(node, node->inputs[2], i + 2);
    d.kernel[i] = w.d[i + 2];
  }
  const rabbet_onnx_index_t filters[] = {
      rabbet_onnx_index(1), rabbet_onnx_index(d.groups),
      rabbet_onnx_index(d.filters / d.groups),
      rabbet_onnx_index(d.channels / d.groups * d.size)};
  const rabbet_onnx_index_t result[] = {d.batch, rabbet_onnx_index(d.filters),
                                        d.out[0], d.out[1]};
  rabbet_tensor_t* weights =
      rabbet_onnx_cast(node, node->inputs[1], rabbet_onnx_wide(node));
  rabbet_tensor_t* y =
      rabbet_onnx_matmul(node, rabbet_onnx_reshape(node, weights, filters, 4),
                         "NONE", onnx_deform_samples(node, &d), "NONE");
  y = rabbet_onnx_reshape(node, y, result, 4);
  rabbet_dtype_t dtype = rabbet_onnx_dtype_of(node, node->inputs[0]);
  if (bias) {
    bias = rabbet_onnx_cast(node, bias, rabbet_onnx_wide(node));
    y = rabbet_onnx_binary(
        node, "SUM", y,
        rabbet_onnx_unsqueeze(node, bias, 1u << 0 | 3u << 2, 4));
  }
  node->outputs[0] = rabbet_onnx_cast(node, y, dtype);
}

RABBET_ONNX_OPERATORS(image) = {
    RABBET_ONNX_OP(AffineGrid, affine_grid, "", 20),
    RABBET_ONNX_OP(CenterCropPad, center_crop_pad, "", 18),
    RABBET_ONNX_OP(Col2Im, col2im, "", 18),
    RABBET_ONNX_OP(DeformConv, deform_conv, "", 19, 22),
    RABBET_ONNX_OP(MaxUnpool, max_unpool, "", 9, 11, 22),
    {0},
};
