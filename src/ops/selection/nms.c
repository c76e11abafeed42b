// Non-maximum suppression. Takes the boxes of a class in the order of their
// scores, except those that overlap a taken box by more than a threshold.
#include "ops/selection/nms.h"

#include <stdlib.h>

#include "base/math.h"
#include "ops/cost.h"
#include "ops/rules.h"
#include "ops/walk.h"

static const rabbet_op_enumerator_t nms_formats[] = {
    {"CORNER_PAIRS", 0}, {"CENTER_SIZES", 1}, {NULL, 0}};
static const rabbet_op_enumerator_t nms_types[] = {
    {"INT32", RABBET_DTYPE_INT32}, {"INT64", RABBET_DTYPE_INT64}, {NULL, 0}};

// ---- Rules -----------------------------------------------------------------

static rabbet_status_t nms_infer_types(const rabbet_op_infer_t* infer) {
  infer->outputs[RABBET_NMS_INDICES].dtype =
      (rabbet_dtype_t)RABBET_OP_INT(infer, "indices_type");
  infer->outputs[RABBET_NMS_COUNT].dtype = RABBET_DTYPE_INT32;
  return rabbet_ok();
}

// Inputs after the scores have one element each.
static rabbet_status_t nms_check_numbers(const rabbet_op_infer_t* infer) {
  for (size_t i = RABBET_NMS_MOST; i < infer->input_count; ++i) {
    const rabbet_op_value_t* input = &infer->inputs[i];
    const rabbet_shape_t* shape = &input->shape;
    char text[RABBET_OP_TEXT];
    if (!input->present || shape->rank == 0 ||
        (shape->rank == 1 && rabbet_op_equals(infer, shape->d[0], 1)))
      continue;
    return RABBET_OP_INVALID(
        "input %zu ('%s') has shape %s; expected one number", i,
        rabbet_op_input(infer->op, i)->name,
        rabbet_op_shape_text(infer, shape, text));
  }
  return rabbet_ok();
}

static rabbet_status_t nms_shapes_differ(const rabbet_op_infer_t* infer) {
  char a[RABBET_OP_TEXT], b[RABBET_OP_TEXT];
  bool by_class = RABBET_OP_INT(infer, "classes_first") != 0;
  return RABBET_OP_INVALID(
      "input 0 ('boxes') has shape %s and input 1 ('scores') has shape %s; "
      "expected (batch, boxes, 4) or (batch, boxes, classes, 4), and (batch, "
      "%s)",
      rabbet_op_shape_text(infer, &infer->inputs[RABBET_NMS_BOXES].shape, a),
      rabbet_op_shape_text(infer, &infer->inputs[RABBET_NMS_SCORES].shape, b),
      by_class ? "classes, boxes" : "boxes, classes");
}

// Batch, boxes and classes.
static rabbet_status_t nms_find_dims(const rabbet_op_infer_t* infer,
                                     rabbet_expr_t out_dims[3]) {
  const rabbet_shape_t* boxes = &infer->inputs[RABBET_NMS_BOXES].shape;
  const rabbet_shape_t* scores = &infer->inputs[RABBET_NMS_SCORES].shape;
  int by_class = RABBET_OP_INT(infer, "classes_first") != 0;
  int64_t extent = 4;
  if ((boxes->rank != 3 && boxes->rank != 4) || scores->rank != 3 ||
      (rabbet_op_is_constant(infer, boxes->d[boxes->rank - 1], &extent) &&
       extent != 4) ||
      !rabbet_op_same_dim(infer, boxes->d[0], scores->d[0], &out_dims[0]) ||
      !rabbet_op_same_dim(infer, boxes->d[1], scores->d[1 + by_class],
                          &out_dims[1]))
    return nms_shapes_differ(infer);
  out_dims[2] = scores->d[2 - by_class];
  if (boxes->rank == 4 && !rabbet_op_equals(infer, boxes->d[2], 1) &&
      !rabbet_op_same_dim(infer, boxes->d[2], out_dims[2], &out_dims[2]))
    return nms_shapes_differ(infer);
  return rabbet_ok();
}

static rabbet_status_t nms_infer_shapes(const rabbet_op_infer_t* infer) {
  const rabbet_op_value_t* given = &infer->inputs[RABBET_NMS_MOST];
  rabbet_expr_t dims[3], most = RABBET_EXPR_NONE, few = RABBET_EXPR_NONE;
  int64_t limit = RABBET_OP_INT(infer, "topk_box_limit");
  if (limit < 0)
    return RABBET_OP_INVALID(
        "attribute 'topk_box_limit' is %lld; expected 0 (no limit) or more",
        (long long)limit);
  RABBET_RETURN_IF_ERROR(nms_check_numbers(infer));
  RABBET_RETURN_IF_ERROR(nms_find_dims(infer, dims));
  most = dims[1];
  if (given->constant) {
    int64_t number = rabbet_load_int64(given->dtype, given->constant, 0);
    RABBET_RETURN_IF_ERROR(rabbet_op_with_constant(
        infer, RABBET_EXPR_MIN, most, rabbet_max_i64(number, 0), &most));
  }
  RABBET_RETURN_IF_ERROR(
      rabbet_expr_binary(infer->graph, RABBET_EXPR_PROD, most, dims[0], &most));
  RABBET_RETURN_IF_ERROR(
      rabbet_expr_binary(infer->graph, RABBET_EXPR_PROD, most, dims[2], &most));
  RABBET_RETURN_IF_ERROR(
      rabbet_op_with_constant(infer, RABBET_EXPR_CEIL_DIV, most, 4, &few));
  rabbet_shape_t* shape = &infer->outputs[RABBET_NMS_INDICES].shape;
  shape->rank = 2;
  RABBET_RETURN_IF_ERROR(rabbet_expr_constant(infer->graph, 3, &shape->d[1]));
  return rabbet_op_size(infer, RABBET_NMS_COUNT, few, most, &shape->d[0]);
}

// ---- Plans -----------------------------------------------------------------

static rabbet_status_t nms_check_dims(const rabbet_nms_t* nms,
                                      const rabbet_dims_t* boxes,
                                      const rabbet_dims_t* scores) {
  int64_t most = 0, count = 0;
  bool fits =
      boxes->d[0] == nms->batch && boxes->d[1] == nms->boxes &&
      boxes->d[boxes->rank - 1] == 4 &&
      (boxes->rank == 3 || boxes->d[2] == 1 || boxes->d[2] == nms->classes);
  char a[128], b[128];
  if (!fits)
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                         "boxes of shape %s and scores of shape %s do not fit "
                         "together",
                         rabbet_dims_print(boxes, a, sizeof a),
                         rabbet_dims_print(scores, b, sizeof b));
  if (rabbet_checked_mul(nms->batch, nms->classes, &count) &&
      rabbet_checked_mul(count, nms->boxes, &most) && most <= INT32_MAX)
    return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                       "scores of shape %s are too many; expected fewer than "
                       "2^31",
                       rabbet_dims_print(scores, b, sizeof b));
}

rabbet_status_t rabbet_nms_plan(const rabbet_attr_t* attrs, size_t attr_count,
                                const rabbet_dims_t* boxes,
                                const rabbet_dims_t* scores, const void* most,
                                rabbet_dtype_t most_dtype,
                                rabbet_nms_t* out_nms) {
  *out_nms = (rabbet_nms_t){0};
  rabbet_nms_t* nms = out_nms;
  nms->by_class = rabbet_attr_int(attrs, attr_count, "classes_first", 0) != 0;
  nms->center =
      rabbet_attr_int(attrs, attr_count, "bounding_box_format", 0) != 0;
  nms->limit = rabbet_attr_int(attrs, attr_count, "topk_box_limit", 0);
  nms->batch = scores->d[0];
  nms->boxes = scores->d[nms->by_class ? 2 : 1];
  nms->classes = scores->d[nms->by_class ? 1 : 2];
  RABBET_RETURN_IF_ERROR(nms_check_dims(nms, boxes, scores));
  nms->score_batch = nms->boxes * nms->classes;
  nms->score_box = nms->by_class ? 1 : nms->classes;
  nms->score_class = nms->by_class ? nms->boxes : 1;
  int64_t each = boxes->rank == 4 ? boxes->d[2] : 1;
  nms->box_box = 4 * each;
  nms->box_batch = nms->boxes * nms->box_box;
  nms->box_class = each > 1 ? 4 : 0;
  nms->most = nms->boxes;
  if (most)
    nms->most = rabbet_max_i64(
        0, rabbet_min_i64(nms->most, rabbet_load_int64(most_dtype, most, 0)));
  return rabbet_ok();
}

// ---- Reference -------------------------------------------------------------

typedef struct nms_item_t {
  uint64_t key;  // by score alone, the best first
  int64_t class_index, box;
  size_t order;
} nms_item_t;

// By score, class, box.
static int nms_compare(const void* left, const void* right) {
  const nms_item_t *a = left, *b = right;
  if (a->key != b->key) return a->key > b->key ? -1 : 1;
  if (a->class_index != b->class_index)
    return a->class_index < b->class_index ? -1 : 1;
  return a->box < b->box ? -1 : 1;
}

static int nms_compare_classes(const void* left, const void* right) {
  const nms_item_t *a = left, *b = right;
  if (a->class_index != b->class_index)
    return a->class_index < b->class_index ? -1 : 1;
  return a->order < b->order ? -1 : 1;
}

static float nms_number(const rabbet_op_eval_t* eval, size_t index) {
  if (index >= eval->input_count) return 0;
  const rabbet_view_t* view = &eval->inputs[index];
  if (view->dtype == RABBET_DTYPE_NONE) return 0;
  return (float)rabbet_load_double(view->dtype, view->data, 0);
}

static rabbet_nms_box_t nms_load_box(const rabbet_op_eval_t* eval,
                                     const rabbet_nms_t* nms, int64_t batch,
                                     const nms_item_t* item) {
  const rabbet_view_t* boxes = &eval->inputs[RABBET_NMS_BOXES];
  int64_t from = batch * nms->box_batch + item->box * nms->box_box +
                 item->class_index * nms->box_class;
  float at[4];
  for (int i = 0; i < 4; ++i)
    at[i] = (float)rabbet_load_double(boxes->dtype, boxes->data, from + i);
  return rabbet_nms_box(at, nms->center);
}

// All of a batch that are above the threshold, best first, up to the limit.
static size_t nms_collect(const rabbet_op_eval_t* eval, const rabbet_nms_t* nms,
                          int64_t batch, nms_item_t* items) {
  const rabbet_view_t* scores = &eval->inputs[RABBET_NMS_SCORES];
  float threshold = nms_number(eval, RABBET_NMS_SCORE_THRESHOLD);
  size_t count = 0;
  for (int64_t c = 0; c < nms->classes; ++c) {
    for (int64_t box = 0; box < nms->boxes; ++box) {
      int64_t at = batch * nms->score_batch + c * nms->score_class +
                   box * nms->score_box;
      float score = (float)rabbet_load_double(scores->dtype, scores->data, at);
      if (!(score > threshold)) continue;
      items[count++] = (nms_item_t){
          .key = rabbet_nms_key(score, 0), .class_index = c, .box = box};
    }
  }
  qsort(items, count, sizeof(*items), nms_compare);
  return nms->limit > 0 && count > (size_t)nms->limit ? (size_t)nms->limit
                                                      : count;
}

// Moves the boxes that are taken to the front; `taken` counts them by class.
static size_t nms_select(const rabbet_op_eval_t* eval, const rabbet_nms_t* nms,
                         int64_t batch, nms_item_t* items, size_t count,
                         int64_t* taken) {
  float threshold = nms_number(eval, RABBET_NMS_IOU_THRESHOLD);
  size_t kept = 0;
  memset(taken, 0, (size_t)nms->classes * sizeof(*taken));
  for (size_t i = 0; i < count; ++i) {
    rabbet_nms_box_t box = nms_load_box(eval, nms, batch, &items[i]);
    bool good = taken[items[i].class_index] < nms->most;
    for (size_t k = 0; k < kept && good; ++k) {
      if (items[k].class_index != items[i].class_index) continue;
      rabbet_nms_box_t other = nms_load_box(eval, nms, batch, &items[k]);
      good = !rabbet_nms_overlap(&box, &other, threshold);
    }
    if (!good) continue;
    ++taken[items[i].class_index];
    items[kept] = items[i];
    items[kept].order = kept;
    ++kept;
  }
  if (nms->by_class) qsort(items, kept, sizeof(*items), nms_compare_classes);
  return kept;
}

static void nms_run(const rabbet_op_eval_t* eval, const rabbet_nms_t* nms,
                    nms_item_t* items, int64_t* taken) {
  const rabbet_view_t* rows = &eval->outputs[RABBET_NMS_INDICES];
  const rabbet_view_t* size = &eval->outputs[RABBET_NMS_COUNT];
  int64_t total = 0;
  for (int64_t batch = 0; batch < nms->batch; ++batch) {
    size_t count = nms_collect(eval, nms, batch, items);
    count = nms_select(eval, nms, batch, items, count, taken);
    for (size_t i = 0; rows->data && i < count; ++i) {
      int64_t to = 3 * (total + (int64_t)i);
      rabbet_store_int64(rows->dtype, rows->data, to, batch);
      rabbet_store_int64(rows->dtype, rows->data, to + 1, items[i].class_index);
      rabbet_store_int64(rows->dtype, rows->data, to + 2, items[i].box);
    }
    total += (int64_t)count;
  }
  rabbet_store_int64(size->dtype, size->data, 0, total);
}

static rabbet_status_t nms_reference(const rabbet_op_eval_t* eval) {
  const rabbet_view_t* most = &eval->inputs[RABBET_NMS_MOST];
  rabbet_nms_t nms;
  nms_item_t* items = NULL;
  int64_t* taken = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_nms_plan(
      eval->attrs, eval->attr_count, &eval->inputs[RABBET_NMS_BOXES].dims,
      &eval->inputs[RABBET_NMS_SCORES].dims, most->data, most->dtype, &nms));
  size_t count = (size_t)(nms.boxes * nms.classes) + 1;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(eval->allocator, count * sizeof(*items), (void**)&items));
  rabbet_status_t status = rabbet_allocate(
      eval->allocator, ((size_t)nms.classes + 1) * sizeof(*taken),
      (void**)&taken);
  if (rabbet_is_ok(status)) nms_run(eval, &nms, items, taken);
  rabbet_free(eval->allocator, taken);
  rabbet_free(eval->allocator, items);
  return status;
}

// Each candidate of a batch is compared with those that are kept.
static double nms_cost(const rabbet_op_eval_t* eval) {
  const rabbet_view_t* most = &eval->inputs[RABBET_NMS_MOST];
  rabbet_nms_t nms;
  rabbet_status_t status = rabbet_nms_plan(
      eval->attrs, eval->attr_count, &eval->inputs[RABBET_NMS_BOXES].dims,
      &eval->inputs[RABBET_NMS_SCORES].dims, most->data, most->dtype, &nms);
  bool known = rabbet_is_ok(status);
  rabbet_status_ignore(status);
  if (!known) return rabbet_cost_elements(eval);
  double candidates = (double)nms.boxes * (double)nms.classes;
  if (nms.limit > 0 && (double)nms.limit < candidates)
    candidates = (double)nms.limit;
  double kept = (double)nms.classes * (double)nms.most;
  if (kept > candidates) kept = candidates;
  return rabbet_cost_sorting(eval) + (double)nms.batch * candidates * kept;
}

static const rabbet_op_operand_t nms_inputs[] = {
    {"boxes", 0, RABBET_T_NARROW_FLOATS},
    {"scores", 0, RABBET_T_NARROW_FLOATS},
    {"max_output_boxes_per_class", 0, RABBET_T_INDICES},
    {"iou_threshold", RABBET_OPERAND_OPTIONAL, RABBET_T_NARROW_FLOATS},
    {"score_threshold", RABBET_OPERAND_OPTIONAL, RABBET_T_NARROW_FLOATS},
};
static const rabbet_op_operand_t nms_outputs[] = {
    {"indices", 0, RABBET_T_INDICES},
    {"count", RABBET_OPERAND_SIZE, RABBET_T(INT32)}};
static const rabbet_op_attr_t nms_attrs[] = {
    {"bounding_box_format", RABBET_ATTR_INT, false, 0, 0, nms_formats},
    {"topk_box_limit", RABBET_ATTR_INT, false, 5000, 0, NULL},
    {"indices_type", RABBET_ATTR_INT, false, RABBET_DTYPE_INT32, 0, nms_types},
    {"classes_first", RABBET_ATTR_BOOL, false, 0, 0, NULL},
};

const rabbet_op_t rabbet_op_nms = {
    .name = "nms",
    .layer_type = "NMS",
    .inputs = nms_inputs,
    .input_count = RABBET_OP_COUNT_OF(nms_inputs),
    .outputs = nms_outputs,
    .output_count = RABBET_OP_COUNT_OF(nms_outputs),
    .attrs = nms_attrs,
    .attr_count = RABBET_OP_COUNT_OF(nms_attrs),
    .infer_types = nms_infer_types,
    .infer_shapes = nms_infer_shapes,
    .reference = nms_reference,
    .cost = nms_cost,
};
