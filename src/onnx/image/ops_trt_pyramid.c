// PyramidROIAlign_TRT: regions are sampled from the one of four feature maps
// that suits their size. A composition: RoiAlign on each map, and a choice.
#include "onnx/index.h"
#include "onnx/operators.h"

enum { PYRAMID_LEVELS = 4 };

typedef struct onnx_pyramid_t {
  int64_t pooled, ratio;  // bins, and samples of each along an axis (0: many)
  int64_t transform;      // -1: corners are aligned; 0, 1, 2: no half pixel,
                          // one of the samples, one of both
  double scale;           // least extent of regions of the third level
  double height, width;   // of the image
  bool absolute, swap, plus_one;
  rabbet_tensor_t *low, *size;  // corner and extents, [regions, 2] as x and y,
                                // parts of the image
  rabbet_tensor_t* image;       // of each region, INT32
} onnx_pyramid_t;

static void onnx_pyramid_read_size(rabbet_onnx_node_t* node,
                                   onnx_pyramid_t* p) {
  rabbet_onnx_ints_t size = rabbet_onnx_attr_ints(node, "image_size");
  p->height = p->width = 1024;
  if (!rabbet_onnx_ok(node) || !size.present) return;
  if (size.count != 2 || size.data[0] < 1 || size.data[1] < 1) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "attribute 'image_size' must hold 2 positive numbers, "
                     "height and width");
    return;
  }
  p->height = (double)size.data[0];
  p->width = (double)size.data[1];
}

static void onnx_pyramid_check(rabbet_onnx_node_t* node,
                               const onnx_pyramid_t* p) {
  if (!rabbet_onnx_ok(node)) return;
  if (p->pooled < 1 || p->ratio < 0 || p->scale < 1)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "attributes 'pooled_size' (%lld) and 'fpn_scale' (%g) "
                     "must be 1 or more, 'sampling_ratio' (%lld) 0 or more",
                     (long long)p->pooled, p->scale, (long long)p->ratio);
  else if (p->transform < -1 || p->transform > 2)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "attribute 'roi_coords_transform' is %lld; expected -1 "
                     "to 2",
                     (long long)p->transform);
  else if (p->transform < 0 && (p->ratio == 0 || p->pooled < 2))
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "attribute 'roi_coords_transform' is -1, for which "
                     "'sampling_ratio' must be 1 or more (it is %lld), and "
                     "'pooled_size' 2 or more (it is %lld)",
                     (long long)p->ratio, (long long)p->pooled);
}

static onnx_pyramid_t onnx_pyramid_read(rabbet_onnx_node_t* node) {
  onnx_pyramid_t p = {
      .pooled = rabbet_onnx_attr_int(node, "pooled_size", 7),
      .ratio = rabbet_onnx_attr_int(node, "sampling_ratio", 0),
      .transform = rabbet_onnx_attr_int(node, "roi_coords_transform", 2),
      .scale = (double)rabbet_onnx_attr_int(node, "fpn_scale", 224),
      .absolute = rabbet_onnx_attr_int(node, "roi_coords_absolute", 1) != 0,
      .swap = rabbet_onnx_attr_int(node, "roi_coords_swap", 0) != 0,
      .plus_one = rabbet_onnx_attr_int(node, "roi_coords_plusone", 0) != 0};
  onnx_pyramid_read_size(node, &p);
  if (rabbet_onnx_attr_int(node, "legacy", 0) != 0) {
    // Regions of the third level cover 224 * 224 / 2 of 1024 * 1024 or more,
    // whatever the image's size is.
    p.height = p.width = 1024;
    p.scale = 224 * 0.70710678118654752;
    p.transform = -1;
    p.plus_one = p.absolute = false;
    p.swap = true;
    p.ratio = 1;
  }
  onnx_pyramid_check(node, &p);
  return p;
}

// A row of two numbers, for x and y.
static rabbet_tensor_t* onnx_pyramid_pair(rabbet_onnx_node_t* node, double x,
                                          double y) {
  const rabbet_dims_t dims = {.rank = 2, .d = {1, 2}};
  int64_t count = 0;
  float* pair =
      rabbet_onnx_weights_room(node, RABBET_DTYPE_FLOAT, &dims, &count);
  if (!pair) return NULL;
  pair[0] = (float)x;
  pair[1] = (float)y;
  return rabbet_onnx_weights(node, RABBET_DTYPE_FLOAT, pair, &dims);
}

// Two columns of the regions [regions, 4].
static rabbet_tensor_t* onnx_pyramid_corner(rabbet_onnx_node_t* node,
                                            rabbet_tensor_t* rois, bool swap,
                                            int at) {
  static const int64_t places[2][4] = {{0, 1, 2, 3}, {1, 0, 3, 2}};
  return rabbet_onnx_take(
      node, rois, rabbet_onnx_int64s(node, &places[swap][2 * at], 2), 1);
}

// Regions [batch, regions, 4] within the image, whatever the order of corners.
static void onnx_pyramid_regions(rabbet_onnx_node_t* node, onnx_pyramid_t* p,
                                 rabbet_tensor_t* rois) {
  rabbet_onnx_index_t batch = rabbet_onnx_extent(node, rois, 0);
  rabbet_onnx_index_t each = rabbet_onnx_extent(node, rois, 1);
  const rabbet_onnx_index_t flat[] = {
      rabbet_onnx_index_op(node, "PROD", batch, each), rabbet_onnx_index(4)};
  rois = rabbet_onnx_reshape(node, rois, flat, 2);
  rabbet_tensor_t *a = onnx_pyramid_corner(node, rois, p->swap, 0),
                  *b = onnx_pyramid_corner(node, rois, p->swap, 1),
                  *image = onnx_pyramid_pair(node, p->width, p->height),
                  *ends[2];
  for (int i = 0; i < 2; ++i) {
    rabbet_tensor_t* end = rabbet_onnx_binary(node, i ? "MAX" : "MIN", a, b);
    if (p->absolute) end = rabbet_onnx_binary(node, "DIV", end, image);
    ends[i] = rabbet_onnx_activation(node, "CLIP", end, 0, 1);
  }
  p->low = ends[0];
  p->size = rabbet_onnx_binary(node, "SUB", ends[1], ends[0]);
  rabbet_tensor_t* number = rabbet_onnx_indices(node, flat[0], 0, 1);
  p->image = rabbet_onnx_cast(
      node,
      rabbet_onnx_binary(node, "FLOOR_DIV", number,
                         rabbet_onnx_index_vector(node, &each, 1)),
      RABBET_DTYPE_INT32);
}

// The part of the image that each region covers, [regions, 1, 1, 1].
static rabbet_tensor_t* onnx_pyramid_area(rabbet_onnx_node_t* node,
                                          const onnx_pyramid_t* p) {
  rabbet_tensor_t* size = p->size;
  if (p->plus_one)
    size = rabbet_onnx_binary(
        node, "SUM", size,
        onnx_pyramid_pair(node, 1 / p->width, 1 / p->height));
  rabbet_tensor_t* area = rabbet_onnx_reduce(node, "PROD", size, 1u << 1, true);
  return rabbet_onnx_unsqueeze(node, area, 1u << 2 | 1u << 3, 4);
}

// How far before the middle of its part of a bin each sample lies.
static rabbet_tensor_t* onnx_pyramid_shift(rabbet_onnx_node_t* node,
                                           const onnx_pyramid_t* p,
                                           rabbet_tensor_t* size) {
  rabbet_tensor_t* bin =
      rabbet_onnx_with_number(node, "DIV", size, (double)p->pooled);
  if (p->ratio > 0)
    return rabbet_onnx_with_number(node, "PROD", bin, 0.5 / (double)p->ratio);
  rabbet_tensor_t* count = rabbet_onnx_with_number(
      node, "MAX", rabbet_onnx_unary(node, "CEIL", bin), 1);
  return rabbet_onnx_with_number(
      node, "PROD", rabbet_onnx_binary(node, "DIV", bin, count), 0.5);
}

// The regions in elements of a feature map, as RoiAlign with half pixels takes
// them: it subtracts what is added here.
static rabbet_tensor_t* onnx_pyramid_boxes(rabbet_onnx_node_t* node,
                                           const onnx_pyramid_t* p,
                                           rabbet_tensor_t* map) {
  const rabbet_onnx_index_t extents[] = {rabbet_onnx_extent(node, map, 3),
                                         rabbet_onnx_extent(node, map, 2)};
  rabbet_tensor_t* scale = rabbet_onnx_unsqueeze(
      node,
      rabbet_onnx_cast(node, rabbet_onnx_index_vector(node, extents, 2),
                       RABBET_DTYPE_FLOAT),
      1, 2);
  if (p->transform < 0) scale = rabbet_onnx_with_number(node, "SUB", scale, 1);
  rabbet_tensor_t* low = rabbet_onnx_binary(node, "PROD", p->low, scale);
  rabbet_tensor_t* size = rabbet_onnx_binary(node, "PROD", p->size, scale);
  if (p->transform < 0)
    size = rabbet_onnx_with_number(node, "PROD", size,
                                   (double)p->pooled / (double)(p->pooled - 1));
  // An empty region has a sample, which RoiAlign lacks: it gets a size that is
  // just not lost when it is added to its place.
  if (p->ratio == 0)
    size = rabbet_onnx_binary(
        node, "MAX", size,
        rabbet_onnx_with_number(
            node, "PROD", rabbet_onnx_with_number(node, "SUM", low, 1), 5e-7));
  if (p->transform < 1)
    low =
        rabbet_onnx_binary(node, "SUB", low, onnx_pyramid_shift(node, p, size));
  if (p->transform < 2) low = rabbet_onnx_with_number(node, "SUM", low, 0.5);
  rabbet_tensor_t* corners[] = {low,
                                rabbet_onnx_binary(node, "SUM", low, size)};
  return rabbet_onnx_concat(node, corners, 2, 1);
}

static rabbet_tensor_t* onnx_pyramid_sample(rabbet_onnx_node_t* node,
                                            const onnx_pyramid_t* p,
                                            rabbet_tensor_t* map) {
  const char* where = "coordinate_transformation_mode";
  map = rabbet_onnx_cast(node, map, RABBET_DTYPE_FLOAT);
  rabbet_tensor_t* inputs[] = {map, onnx_pyramid_boxes(node, p, map), p->image};
  rabbet_attr_t attrs[] = {
      RABBET_ONNX_INT(
          "mode", rabbet_onnx_enumerator(node, "roi_align", "mode", "AVERAGE")),
      RABBET_ONNX_INT(where, rabbet_onnx_enumerator(node, "roi_align", where,
                                                    "HALF_PIXEL")),
      RABBET_ONNX_INT("output_height", p->pooled),
      RABBET_ONNX_INT("output_width", p->pooled),
      RABBET_ONNX_INT("sampling_ratio", p->ratio),
      RABBET_ONNX_FLOAT("spatial_scale", 1)};
  return rabbet_onnx_layer(node, "roi_align", inputs, 3, attrs, 6);
}

static void onnx_import_trt_pyramid(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* rois = rabbet_onnx_required(node, 0);
  rabbet_tensor_t* maps[PYRAMID_LEVELS];
  onnx_pyramid_t p = onnx_pyramid_read(node);
  rabbet_onnx_check_rank(node, "input 0 ('rois')", rois, 3);
  for (size_t i = 0; i < PYRAMID_LEVELS; ++i) {
    maps[i] = rabbet_onnx_required(node, 1 + i);
    rabbet_onnx_check_rank(node, "a feature map", maps[i], 4);
  }
  if (!rabbet_onnx_ok(node)) return;
  rabbet_dtype_t dtype = rabbet_onnx_dtype_of(node, maps[0]);
  rabbet_onnx_index_t dims[5] = {
      rabbet_onnx_extent(node, rois, 0), rabbet_onnx_extent(node, rois, 1),
      rabbet_onnx_extent(node, maps[0], 1), rabbet_onnx_index(p.pooled),
      rabbet_onnx_index(p.pooled)};
  onnx_pyramid_regions(node, &p,
                       rabbet_onnx_cast(node, rois, RABBET_DTYPE_FLOAT));
  rabbet_tensor_t* area = onnx_pyramid_area(node, &p);
  rabbet_tensor_t* y = onnx_pyramid_sample(node, &p, maps[0]);
  // The least area of a level is four times that of the one before.
  double least = p.scale * p.scale / (p.height * p.width) / 4;
  for (size_t i = 1; i < PYRAMID_LEVELS && rabbet_onnx_ok(node); ++i) {
    y = rabbet_onnx_select(
        node, rabbet_onnx_with_number(node, "GREATER", area, least),
        onnx_pyramid_sample(node, &p, maps[i]), y);
    least *= 4;
  }
  node->outputs[0] =
      rabbet_onnx_cast(node, rabbet_onnx_reshape(node, y, dims, 5), dtype);
}

RABBET_ONNX_OPERATORS(trt_pyramid) = {
    RABBET_ONNX_PLUGIN_OP("", PyramidROIAlign_TRT, trt_pyramid),
    RABBET_ONNX_PLUGIN_OP("TRT", PyramidROIAlign_TRT, trt_pyramid),
    {0},
};
