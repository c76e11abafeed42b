// Plugins of TensorRT's library for detections, as compositions: files name
// them.
#include <float.h>

#include "onnx/compositions.h"
#include "onnx/operators.h"

// ---- Selection -------------------------------------------------------------

typedef struct onnx_nms_t {
  rabbet_tensor_t* boxes;   // [batch, boxes, 4], or [batch, classes * boxes, 4]
  rabbet_tensor_t* rivals;  // as overlaps are measured, of the first shape, or
                            // [batch * classes, boxes, 4]
  bool by_class;  // each class has boxes of its own: the second shapes
  rabbet_tensor_t* scores;                    // [batch, boxes, classes], FLOAT
  rabbet_tensor_t* labels;                    // of one class for all; or NULL
  rabbet_onnx_index_t batch, count, classes;  // extents of these
  int64_t most, each;                         // results: in all, of a class
  bool centers;                               // boxes are centres and sizes
  double iou, least;                          // thresholds
} onnx_nms_t;

// Scores of one class, the best of each box, and which it is: boxes suppress
// each other whatever their class.
static void onnx_nms_join_classes(rabbet_onnx_node_t* node, onnx_nms_t* n) {
  rabbet_tensor_t* best[2] = {NULL, NULL};
  rabbet_onnx_topk(node, n->scores, NULL, 1, 2, true, best);
  n->scores = best[0];
  n->labels = rabbet_onnx_squeeze(
      node, rabbet_onnx_cast(node, best[1], RABBET_DTYPE_INT64), 1u << 2);
  n->classes = rabbet_onnx_index(1);
}

// Boxes of the class are never kept.
static void onnx_nms_drop_class(rabbet_onnx_node_t* node, onnx_nms_t* n,
                                int64_t label) {
  if (label < 0) return;
  n->scores = rabbet_onnx_select(
      node,
      rabbet_onnx_with_number(node, "EQUAL",
                              rabbet_onnx_indices(node, n->classes, 2, 3),
                              (double)label),
      rabbet_onnx_number(node, RABBET_DTYPE_FLOAT, 3, -FLT_MAX), n->scores);
}

// [batch, classes, boxes]: the scores of boxes that are kept, -FLT_MAX of
// others.
static rabbet_tensor_t* onnx_nms_kept(rabbet_onnx_node_t* node,
                                      const onnx_nms_t* n) {
  static const int64_t classes_first[] = {0, 2, 1};
  rabbet_tensor_t* scores =
      rabbet_onnx_transpose(node, n->scores, classes_first);
  rabbet_tensor_t* rows = NULL;
  rabbet_onnx_index_t whole[] = {n->batch, n->classes, n->count};
  const rabbet_onnx_index_t result[] = {n->batch, n->classes, n->count};
  if (n->by_class) {
    whole[0] = rabbet_onnx_index_op(node, "PROD", n->batch, n->classes);
    whole[1] = rabbet_onnx_index(1);
  }
  rabbet_tensor_t* inputs[] = {
      n->rivals,
      n->by_class ? rabbet_onnx_reshape(node, scores, whole, 3) : scores,
      rabbet_onnx_number(node, RABBET_DTYPE_INT64, 0,
                         n->each < 0 ? (double)INT32_MAX : (double)n->each),
      rabbet_onnx_number(node, RABBET_DTYPE_FLOAT, 0, n->iou),
      rabbet_onnx_number(node, RABBET_DTYPE_FLOAT, 0, n->least)};
  rabbet_attr_t attrs[] = {RABBET_ONNX_INT("bounding_box_format", n->centers),
                           RABBET_ONNX_INT("topk_box_limit", 0),
                           RABBET_ONNX_INT("indices_type", RABBET_DTYPE_INT64),
                           RABBET_ONNX_BOOL("classes_first", true)};
  rabbet_onnx_layer_outputs(node, "nms", inputs, 5, attrs, 4, &rows, 1);
  if (!rabbet_onnx_ok(node)) return NULL;
  const rabbet_onnx_index_t found = rabbet_onnx_extent(node, rows, 0);
  rabbet_tensor_t* scatter[] = {
      rabbet_onnx_spread(
          node, rabbet_onnx_number(node, RABBET_DTYPE_FLOAT, 3, 0), whole, 3),
      rows,
      rabbet_onnx_spread(
          node, rabbet_onnx_number(node, RABBET_DTYPE_FLOAT, 1, 1), &found, 1)};
  rabbet_attr_t mode = RABBET_ONNX_INT(
      "mode", rabbet_onnx_enumerator(node, "scatter", "mode", "ND"));
  rabbet_tensor_t* mask =
      rabbet_onnx_layer(node, "scatter", scatter, 3, &mode, 1);
  if (n->by_class) mask = rabbet_onnx_reshape(node, mask, result, 3);
  return rabbet_onnx_select(
      node, rabbet_onnx_with_number(node, "GREATER", mask, 0.5), scores,
      rabbet_onnx_number(node, RABBET_DTYPE_FLOAT, 3, -FLT_MAX));
}

// The corners of boxes that are centres and sizes.
static rabbet_tensor_t* onnx_nms_corners(rabbet_onnx_node_t* node,
                                         rabbet_tensor_t* boxes) {
  rabbet_tensor_t* parts[2];
  for (int64_t i = 0; i < 2 && rabbet_onnx_ok(node); ++i) {
    rabbet_onnx_slice_t slice = rabbet_onnx_slice_all(node, boxes);
    slice.start[2] = rabbet_onnx_index(2 * i);
    slice.size[2] = rabbet_onnx_index(2);
    parts[i] = rabbet_onnx_slice(node, boxes, &slice);
  }
  if (!rabbet_onnx_ok(node)) return NULL;
  rabbet_tensor_t* half = rabbet_onnx_with_number(node, "PROD", parts[1], 0.5);
  rabbet_tensor_t* corners[] = {
      rabbet_onnx_binary(node, "SUB", parts[0], half),
      rabbet_onnx_binary(node, "SUM", parts[0], half)};
  return rabbet_onnx_concat(node, corners, 2, 2);
}

// Elements of x along axis 1 at the INT64 positions, of x's rank.
static rabbet_tensor_t* onnx_nms_take(rabbet_onnx_node_t* node,
                                      rabbet_tensor_t* x,
                                      rabbet_tensor_t* positions) {
  rabbet_tensor_t* inputs[] = {x, positions};
  rabbet_attr_t attrs[] = {
      RABBET_ONNX_INT(
          "mode", rabbet_onnx_enumerator(node, "gather", "mode", "ELEMENT")),
      RABBET_ONNX_INT("axis", 1)};
  return rabbet_onnx_layer(node, "gather", inputs, 2, attrs, 2);
}

// x [batch, found, ...] with `most` rows: `number` behind.
static rabbet_tensor_t* onnx_nms_fill(rabbet_onnx_node_t* node,
                                      const onnx_nms_t* n, rabbet_tensor_t* x,
                                      int64_t found, double number) {
  rabbet_onnx_slice_t slice = rabbet_onnx_slice_all(node, x);
  slice.mode = "FILL";
  if (number != 0)
    slice.fill =
        rabbet_onnx_number(node, rabbet_onnx_dtype_of(node, x), 0, number);
  slice.size[1] = rabbet_onnx_index(n->most);
  return found == n->most ? x : rabbet_onnx_slice(node, x, &slice);
}

static bool onnx_nms_is_known(rabbet_onnx_node_t* node, const onnx_nms_t* n) {
  if (rabbet_onnx_ok(node) &&
      (!rabbet_onnx_is_static(n->count) || !rabbet_onnx_is_static(n->classes)))
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "the numbers of boxes and classes must be known when the "
                     "model is imported");
  return rabbet_onnx_ok(node);
}

// The best boxes of all classes: how many of them there are, their corners,
// scores and classes. Behind the last one are zeros, and `no_label` in the
// place of a class.
static void onnx_nms_select(rabbet_onnx_node_t* node, const onnx_nms_t* n,
                            double no_label, rabbet_tensor_t** results) {
  if (!onnx_nms_is_known(node, n)) return;
  int64_t all = n->count.value * n->classes.value;
  int64_t k = n->most < all ? n->most : all;
  const rabbet_onnx_index_t flat[] = {n->batch, rabbet_onnx_index(all)};
  const rabbet_onnx_index_t corners[] = {n->batch, rabbet_onnx_index(k),
                                         rabbet_onnx_index(4)};
  rabbet_tensor_t* best[2] = {NULL, NULL};
  rabbet_onnx_topk(node,
                   rabbet_onnx_reshape(node, onnx_nms_kept(node, n), flat, 2),
                   NULL, k, 1, true, best);
  rabbet_tensor_t* valid =
      rabbet_onnx_with_number(node, "GREATER", best[0], -FLT_MAX);
  rabbet_tensor_t* at = rabbet_onnx_cast(node, best[1], RABBET_DTYPE_INT64);
  rabbet_tensor_t* label =
      rabbet_onnx_with_number(node, "FLOOR_DIV", at, (double)n->count.value);
  rabbet_tensor_t* box = rabbet_onnx_binary(
      node, "SUB", at,
      rabbet_onnx_with_number(node, "PROD", label, (double)n->count.value));
  if (n->labels) label = onnx_nms_take(node, n->labels, box);
  rabbet_tensor_t* boxes =
      n->centers ? onnx_nms_corners(node, n->boxes) : n->boxes;
  boxes = onnx_nms_take(
      node, boxes,
      rabbet_onnx_spread(
          node, rabbet_onnx_unsqueeze(node, n->by_class ? at : box, 1u << 2, 3),
          corners, 3));
  results[0] = rabbet_onnx_reduce(
      node, "SUM", rabbet_onnx_cast(node, valid, RABBET_DTYPE_INT32), 1u << 1,
      true);
  results[1] = rabbet_onnx_select(
      node, rabbet_onnx_unsqueeze(node, valid, 1u << 2, 3), boxes,
      rabbet_onnx_number(node, RABBET_DTYPE_FLOAT, 3, 0));
  results[2] = rabbet_onnx_select(
      node, valid, best[0], rabbet_onnx_number(node, RABBET_DTYPE_FLOAT, 2, 0));
  results[3] = rabbet_onnx_select(
      node, valid, rabbet_onnx_cast(node, label, RABBET_DTYPE_INT32),
      rabbet_onnx_number(node, RABBET_DTYPE_INT32, 2, no_label));
  for (int i = 1; i < 4; ++i)
    results[i] = onnx_nms_fill(node, n, results[i], k, i == 3 ? no_label : 0);
}

// ---- EfficientNMS_TRT ------------------------------------------------------

static onnx_nms_t onnx_nms_read(rabbet_onnx_node_t* node) {
  onnx_nms_t n = {
      .boxes = rabbet_onnx_required(node, 0),
      .scores = rabbet_onnx_required(node, 1),
      .most = rabbet_onnx_attr_int(node, "max_output_boxes", 100),
      .each = rabbet_onnx_attr_int(node, "max_output_boxes_per_class", -1),
      .centers = rabbet_onnx_attr_int(node, "box_coding", 0) != 0,
      .iou = rabbet_onnx_attr_float(node, "iou_threshold", 0.5),
      .least = rabbet_onnx_attr_float(node, "score_threshold", 0.25)};
  int64_t background = rabbet_onnx_attr_int(node, "background_class", -1);
  if (rabbet_onnx_rank(node, n.boxes) == 4)
    n.boxes = rabbet_onnx_squeeze(node, n.boxes, 1u << 2);
  rabbet_onnx_check_rank(node, "input 0 ('boxes')", n.boxes, 3);
  rabbet_onnx_check_rank(node, "input 1 ('scores')", n.scores, 3);
  if (rabbet_onnx_ok(node) && rabbet_onnx_input(node, 2))
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "input 2 ('anchors') is given; expected decoded boxes "
                     "without it");
  if (rabbet_onnx_ok(node) && n.most < 1)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "attribute 'max_output_boxes' is %lld; expected 1 or more",
                     (long long)n.most);
  n.boxes = rabbet_onnx_cast(node, n.boxes, RABBET_DTYPE_FLOAT);
  n.rivals = n.boxes;
  n.scores = rabbet_onnx_cast(node, n.scores, RABBET_DTYPE_FLOAT);
  if (rabbet_onnx_attr_int(node, "score_activation", 0) != 0)
    n.scores = rabbet_onnx_activation(node, "SIGMOID", n.scores, 0, 0);
  if (!rabbet_onnx_ok(node)) return n;
  n.batch = rabbet_onnx_extent(node, n.scores, 0);
  n.count = rabbet_onnx_extent(node, n.scores, 1);
  n.classes = rabbet_onnx_extent(node, n.scores, 2);
  onnx_nms_drop_class(node, &n, background);
  if (rabbet_onnx_attr_int(node, "class_agnostic", 0) != 0)
    onnx_nms_join_classes(node, &n);
  return n;
}

static void onnx_import_efficient_nms(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* results[4] = {NULL, NULL, NULL, NULL};
  onnx_nms_t n = onnx_nms_read(node);
  if (!rabbet_onnx_ok(node)) return;
  onnx_nms_select(node, &n, 0, results);
  rabbet_dtype_t dtype = rabbet_onnx_dtype_of(node, node->inputs[0]);
  for (size_t i = 0; i < 4 && i < node->output_count; ++i)
    node->outputs[i] = i == 1 || i == 2
                           ? rabbet_onnx_cast(node, results[i], dtype)
                           : results[i];
}

// ---- EfficientNMS_ONNX_TRT -------------------------------------------------

// Positions of the true elements of a vector of INT64, 0 or 1, in order; the
// last one over and over behind them. [count]
static rabbet_tensor_t* onnx_nms_positions(rabbet_onnx_node_t* node,
                                           rabbet_tensor_t* valid,
                                           rabbet_tensor_t* number,
                                           rabbet_onnx_index_t count) {
  rabbet_onnx_index_t all = rabbet_onnx_extent(node, valid, 0);
  const rabbet_onnx_index_t room =
      rabbet_onnx_index_op(node, "SUM", all, rabbet_onnx_index(1));
  rabbet_attr_t axis = RABBET_ONNX_INT("axis", 0);
  rabbet_tensor_t* before = rabbet_onnx_with_number(
      node, "SUB", rabbet_onnx_layer(node, "cumulative", &valid, 1, &axis, 1),
      1);
  // Those that are not true go to the element behind all.
  rabbet_tensor_t* scatter[] = {
      rabbet_onnx_spread(
          node, rabbet_onnx_number(node, RABBET_DTYPE_INT64, 1, 0), &room, 1),
      rabbet_onnx_select(node,
                         rabbet_onnx_with_number(node, "GREATER", valid, 0),
                         before, rabbet_onnx_index_vector(node, &all, 1)),
      rabbet_onnx_indices(node, all, 0, 1)};
  rabbet_attr_t attrs[] = {
      RABBET_ONNX_INT(
          "mode", rabbet_onnx_enumerator(node, "scatter", "mode", "ELEMENT")),
      RABBET_ONNX_INT("axis", 0)};
  rabbet_tensor_t* order =
      rabbet_onnx_layer(node, "scatter", scatter, 3, attrs, 2);
  rabbet_tensor_t* last = rabbet_onnx_with_number(
      node, "MAX", rabbet_onnx_with_number(node, "SUB", number, 1), 0);
  return rabbet_onnx_take(
      node, order,
      rabbet_onnx_binary(node, "MIN", rabbet_onnx_indices(node, count, 0, 1),
                         last),
      0);
}

// Rows of image, class and box: as many for each image as it may have, the
// valid ones of all images first. They are repeated or, if there is none, -1.
static void onnx_import_efficient_nms_onnx(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* best[2] = {NULL, NULL};
  onnx_nms_t n = onnx_nms_read(node);
  n.most = n.each = rabbet_onnx_attr_int(node, "max_output_boxes_per_class", 0);
  n.centers = rabbet_onnx_attr_int(node, "center_point_box", 0) != 0;
  if (rabbet_onnx_ok(node) && n.most < 1)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "attribute 'max_output_boxes_per_class' is %lld; expected "
                     "1 or more",
                     (long long)n.most);
  if (!onnx_nms_is_known(node, &n)) return;
  int64_t all = n.count.value * n.classes.value;
  int64_t k = n.most < all ? n.most : all;
  const rabbet_onnx_index_t by_image[] = {n.batch, rabbet_onnx_index(all)};
  rabbet_onnx_topk(
      node, rabbet_onnx_reshape(node, onnx_nms_kept(node, &n), by_image, 2),
      NULL, k, 1, true, best);
  rabbet_tensor_t* at = rabbet_onnx_flat(
      node, rabbet_onnx_cast(node, best[1], RABBET_DTYPE_INT64));
  rabbet_tensor_t* valid = rabbet_onnx_cast(
      node,
      rabbet_onnx_flat(
          node, rabbet_onnx_with_number(node, "GREATER", best[0], -FLT_MAX)),
      RABBET_DTYPE_INT64);
  rabbet_tensor_t* number = rabbet_onnx_reduce(node, "SUM", valid, 1, true);
  const rabbet_onnx_index_t rows =
      rabbet_onnx_index_op(node, "PROD", n.batch, rabbet_onnx_index(n.most));
  rabbet_tensor_t* row = onnx_nms_positions(node, valid, number, rows);
  at = rabbet_onnx_take(node, at, row, 0);
  rabbet_tensor_t* label =
      rabbet_onnx_with_number(node, "FLOOR_DIV", at, (double)n.count.value);
  rabbet_tensor_t* columns[] = {
      rabbet_onnx_with_number(node, "FLOOR_DIV", row, (double)k), label,
      rabbet_onnx_binary(
          node, "SUB", at,
          rabbet_onnx_with_number(node, "PROD", label, (double)n.count.value))};
  for (size_t i = 0; i < 3; ++i)
    columns[i] = rabbet_onnx_unsqueeze(
        node, rabbet_onnx_cast(node, columns[i], RABBET_DTYPE_INT32), 1u << 1,
        2);
  node->outputs[0] = rabbet_onnx_select(
      node,
      rabbet_onnx_unsqueeze(
          node, rabbet_onnx_with_number(node, "GREATER", number, 0), 1, 2),
      rabbet_onnx_concat(node, columns, 3, 1),
      rabbet_onnx_number(node, RABBET_DTYPE_INT32, 2, -1));
}

// ---- BatchedNMS_TRT --------------------------------------------------------

// Only the `most` best boxes of each class compete. Of equal scores at the
// limit all do.
static void onnx_batched_limit(rabbet_onnx_node_t* node, onnx_nms_t* n,
                               int64_t most) {
  rabbet_tensor_t* best[2] = {NULL, NULL};
  if (most < 1 || !rabbet_onnx_is_static(n->count) || most >= n->count.value)
    return;
  rabbet_onnx_topk(node, n->scores, NULL, most, 1, true, best);
  if (!rabbet_onnx_ok(node)) return;
  rabbet_onnx_slice_t slice = rabbet_onnx_slice_all(node, best[0]);
  slice.start[1] = rabbet_onnx_index(most - 1);
  slice.size[1] = rabbet_onnx_index(1);
  rabbet_tensor_t* last = rabbet_onnx_slice(node, best[0], &slice);
  n->scores = rabbet_onnx_select(
      node, rabbet_onnx_binary(node, "LESS", n->scores, last),
      rabbet_onnx_number(node, RABBET_DTYPE_FLOAT, 3, -FLT_MAX), n->scores);
}

// boxes [batch, boxes, 1 or classes, 4]
static void onnx_batched_boxes(rabbet_onnx_node_t* node, onnx_nms_t* n,
                               rabbet_tensor_t* boxes, bool is_shared) {
  static const int64_t classes_first[] = {0, 2, 1, 3};
  if (is_shared) {
    n->boxes = n->rivals = rabbet_onnx_squeeze(node, boxes, 1u << 2);
    return;
  }
  boxes = rabbet_onnx_transpose(node, boxes, classes_first);
  const rabbet_onnx_index_t four = rabbet_onnx_index(4);
  const rabbet_onnx_index_t apart[] = {
      rabbet_onnx_index_op(node, "PROD", n->batch, n->classes), n->count, four};
  const rabbet_onnx_index_t joined[] = {
      n->batch, rabbet_onnx_index_op(node, "PROD", n->classes, n->count), four};
  n->by_class = true;
  n->rivals = rabbet_onnx_reshape(node, boxes, apart, 3);
  n->boxes = rabbet_onnx_reshape(node, boxes, joined, 3);
}

static onnx_nms_t onnx_batched_read(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* boxes = rabbet_onnx_required(node, 0);
  onnx_nms_t n = {.scores = rabbet_onnx_required(node, 1),
                  .most = rabbet_onnx_attr_int(node, "keepTopK", 100),
                  .each = -1,
                  .iou = rabbet_onnx_attr_float(node, "iouThreshold", 0.5),
                  .least = rabbet_onnx_attr_float(node, "scoreThreshold", 0)};
  bool is_shared = rabbet_onnx_attr_int(node, "shareLocation", 1) != 0;
  if (rabbet_onnx_rank(node, n.scores) == 4)
    n.scores = rabbet_onnx_squeeze(node, n.scores, 1u << 3);
  rabbet_onnx_check_rank(node, "input 0 ('boxes')", boxes, 4);
  rabbet_onnx_check_rank(node, "input 1 ('scores')", n.scores, 3);
  if (rabbet_onnx_ok(node) && n.most < 1)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "attribute 'keepTopK' is %lld; expected 1 or more",
                     (long long)n.most);
  n.scores = rabbet_onnx_cast(node, n.scores, RABBET_DTYPE_FLOAT);
  boxes = rabbet_onnx_cast(node, boxes, RABBET_DTYPE_FLOAT);
  if (!rabbet_onnx_ok(node)) return n;
  n.batch = rabbet_onnx_extent(node, n.scores, 0);
  n.count = rabbet_onnx_extent(node, n.scores, 1);
  n.classes = rabbet_onnx_extent(node, n.scores, 2);
  onnx_nms_drop_class(node, &n,
                      rabbet_onnx_attr_int(node, "backgroundLabelId", -1));
  onnx_batched_limit(node, &n, rabbet_onnx_attr_int(node, "topK", -1));
  onnx_batched_boxes(node, &n, boxes, is_shared);
  return n;
}

// Corners in pixels belong to the box: it is one wider than their distance.
static rabbet_tensor_t* onnx_batched_pixels(rabbet_onnx_node_t* node,
                                            rabbet_tensor_t* boxes) {
  const rabbet_dims_t dims = {.rank = 3, .d = {1, 1, 4}};
  int64_t count;
  float* more =
      rabbet_onnx_weights_room(node, RABBET_DTYPE_FLOAT, &dims, &count);
  if (!more) return NULL;
  more[2] = more[3] = 1;
  return rabbet_onnx_binary(
      node, "SUM", boxes,
      rabbet_onnx_weights(node, RABBET_DTYPE_FLOAT, more, &dims));
}

static void onnx_import_batched_nms(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* results[4] = {NULL, NULL, NULL, NULL};
  bool is_normalized = rabbet_onnx_attr_int(node, "isNormalized", 1) != 0;
  bool clips = rabbet_onnx_attr_int(node, "clipBoxes", 1) != 0;
  onnx_nms_t n = onnx_batched_read(node);
  if (!rabbet_onnx_ok(node)) return;
  if (!is_normalized) n.rivals = onnx_batched_pixels(node, n.rivals);
  onnx_nms_select(node, &n, -1, results);
  if (is_normalized && clips)
    results[1] = rabbet_onnx_activation(node, "CLIP", results[1], 0, 1);
  rabbet_dtype_t dtype = rabbet_onnx_dtype_of(node, node->inputs[0]);
  for (size_t i = 0; i < 4 && i < node->output_count; ++i)
    node->outputs[i] =
        i == 0 ? results[i] : rabbet_onnx_cast(node, results[i], dtype);
}

RABBET_ONNX_OPERATORS(trt_plugins) = {
    RABBET_ONNX_PLUGIN_OP("", BatchedNMSDynamic_TRT, batched_nms),
    RABBET_ONNX_PLUGIN_OP("TRT", BatchedNMSDynamic_TRT, batched_nms),
    RABBET_ONNX_PLUGIN_OP("", BatchedNMS_TRT, batched_nms),
    RABBET_ONNX_PLUGIN_OP("TRT", BatchedNMS_TRT, batched_nms),
    RABBET_ONNX_PLUGIN_OP("", EfficientNMS_ONNX_TRT, efficient_nms_onnx),
    RABBET_ONNX_PLUGIN_OP("TRT", EfficientNMS_ONNX_TRT, efficient_nms_onnx),
    RABBET_ONNX_PLUGIN_OP("", EfficientNMS_TRT, efficient_nms),
    RABBET_ONNX_PLUGIN_OP("TRT", EfficientNMS_TRT, efficient_nms),
    {0},
};
