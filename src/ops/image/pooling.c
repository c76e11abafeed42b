// Maxima and averages of windows over one, two or three spatial axes.
//
// A window that lies wholly in the padding gives -infinity (MAX) or 0. With
// average_count_excludes_padding false, explicit padding counts as zeros;
// padding that EXPLICIT_ROUND_UP adds behind it never counts.
#include <math.h>

#include "base/math.h"
#include "ops/cost.h"
#include "ops/enums.h"
#include "ops/image/window.h"
#include "ops/rules.h"
#include "ops/walk.h"

static const rabbet_op_enumerator_t pooling_types[] = {
    RABBET_POOLINGS(RABBET_ENUMERATOR){NULL, 0}};

static rabbet_status_t pooling_window(const rabbet_attr_t* attrs, size_t count,
                                      int32_t spatial,
                                      rabbet_window_t* out_window) {
  size_t sizes = 0;
  const int64_t* size =
      rabbet_attr_ints(attrs, count, "window_size_nd", &sizes);
  if (sizes != (size_t)spatial) {
    return RABBET_OP_INVALID(
        "attribute 'window_size_nd' has %zu elements; expected %d, one for "
        "each spatial axis",
        sizes, spatial);
  }
  return rabbet_window_read(attrs, count, spatial, size, out_window);
}

static rabbet_status_t pooling_infer_shapes(const rabbet_op_infer_t* infer) {
  const rabbet_shape_t* x = &infer->inputs[0].shape;
  if (x->rank < 3 || x->rank > 5) {
    char text[RABBET_OP_TEXT];
    return RABBET_OP_INVALID(
        "input 0 ('input') has shape %s; expected (batch, channels) and one to "
        "three spatial axes",
        rabbet_op_shape_text(infer, x, text));
  }
  rabbet_window_t window;
  RABBET_RETURN_IF_ERROR(
      pooling_window(infer->attrs, infer->attr_count, x->rank - 2, &window));
  rabbet_shape_t shape = {.rank = x->rank, .d = {x->d[0], x->d[1]}};
  RABBET_RETURN_IF_ERROR(
      rabbet_window_infer(infer, &window, x->d + 2, shape.d + 2));
  infer->outputs[0].shape = shape;
  return rabbet_ok();
}

// ---- Reference -------------------------------------------------------------

typedef struct pooling_t {
  const rabbet_view_t *x, *y;
  rabbet_window_t window;
  int64_t pre[RABBET_MAX_RANK];
  int64_t end[RABBET_MAX_RANK];  // first position behind the padding
  int64_t strides[RABBET_MAX_RANK];
  int64_t type;
  bool excludes_padding;
  double blend;
} pooling_t;

typedef struct pooling_cell_t {
  double highest, sum;
  int64_t inside;  // elements of the input
  double padded;   // with those of the padding: may be beyond 64 bits
} pooling_cell_t;

static rabbet_status_t pooling_start(const rabbet_op_eval_t* eval,
                                     pooling_t* out) {
  *out = (pooling_t){.x = &eval->inputs[0], .y = &eval->outputs[0]};
  int32_t spatial = out->x->dims.rank - 2;
  int64_t post[RABBET_MAX_RANK];
  RABBET_RETURN_IF_ERROR(
      pooling_window(eval->attrs, eval->attr_count, spatial, &out->window));
  rabbet_window_pads(&out->window, out->x->dims.d + 2, out->y->dims.d + 2,
                     out->pre, post);
  bool explicit_padding =
      out->window.mode == RABBET_PADDING_EXPLICIT_ROUND_DOWN ||
      out->window.mode == RABBET_PADDING_EXPLICIT_ROUND_UP;
  for (int32_t i = 0; i < spatial; ++i) {
    out->end[i] = out->x->dims.d[i + 2] +
                  (explicit_padding ? out->window.post[i] : post[i]);
  }
  rabbet_row_major(&out->x->dims, out->strides);
  out->type = RABBET_OP_INT(eval, "type");
  out->excludes_padding = RABBET_OP_INT(eval, "average_count_excludes_padding");
  out->blend = RABBET_OP_FLOAT(eval, "blend_factor");
  return rabbet_ok();
}

// How many of a window's taps along axis `i` lie before `bound`.
static int64_t pooling_taps_before(const pooling_t* p, int32_t i,
                                   const int64_t* at, int64_t bound) {
  int64_t begin = at[i + 2] * p->window.stride[i] - p->pre[i];
  if (begin >= bound) return 0;
  return rabbet_min_i64(rabbet_ceildiv(bound - begin, p->window.dilation[i]),
                        p->window.size[i]);
}

// Visits the elements of the input alone: a window may be far larger.
static void pooling_visit(const pooling_t* p, const int64_t* at,
                          pooling_cell_t* cell) {
  int64_t first[RABBET_MAX_RANK], begin = 0;
  rabbet_dims_t inside = {.rank = p->window.spatial};
  for (int32_t i = 0; i < 2; ++i)
    begin += at[i] * p->strides[i];
  for (int32_t i = 0; i < inside.rank; ++i) {
    int64_t extent = rabbet_min_i64(p->x->dims.d[i + 2], p->end[i]);
    first[i] = pooling_taps_before(p, i, at, 0);
    inside.d[i] = pooling_taps_before(p, i, at, extent) - first[i];
    cell->padded *= (double)pooling_taps_before(p, i, at, p->end[i]);
    begin += (at[i + 2] * p->window.stride[i] - p->pre[i] +
              first[i] * p->window.dilation[i]) *
             p->strides[i + 2];
  }
  rabbet_walk_t taps;
  rabbet_walk_initialize(&inside, &taps);
  for (; !taps.done; rabbet_walk_next(&taps)) {
    int64_t offset = begin;
    for (int32_t i = 0; i < inside.rank; ++i)
      offset += taps.at[i] * p->window.dilation[i] * p->strides[i + 2];
    double value = rabbet_load_double(p->x->dtype, p->x->data, offset);
    ++cell->inside;
    cell->sum += value;
    if (value > cell->highest || isnan(value)) cell->highest = value;
  }
}

static double pooling_result(const pooling_t* p, const pooling_cell_t* cell) {
  double count = p->excludes_padding ? (double)cell->inside : cell->padded;
  double average = count > 0 ? cell->sum / count : 0;
  if (p->type == RABBET_POOLING_MAX) return cell->highest;
  if (p->type == RABBET_POOLING_AVERAGE) return average;
  return (1 - p->blend) * cell->highest + p->blend * average;
}

static rabbet_status_t pooling_reference(const rabbet_op_eval_t* eval) {
  pooling_t p;
  RABBET_RETURN_IF_ERROR(pooling_start(eval, &p));
  rabbet_walk_t walk;
  rabbet_walk_initialize(&p.y->dims, &walk);
  for (; !walk.done; rabbet_walk_next(&walk)) {
    pooling_cell_t cell = {.highest = -INFINITY, .padded = 1};
    pooling_visit(&p, walk.at, &cell);
    rabbet_store_double(p.y->dtype, p.y->data, walk.linear,
                        pooling_result(&p, &cell));
  }
  return rabbet_ok();
}

// A window visits elements of the input alone.
static double pooling_cost(const rabbet_op_eval_t* eval) {
  const rabbet_dims_t* x = &eval->inputs[0].dims;
  double steps = rabbet_cost_count(&eval->outputs[0]);
  size_t count = 0;
  const int64_t* window =
      rabbet_attr_ints(eval->attrs, eval->attr_count, "window_size_nd", &count);
  for (int32_t i = 2; i < x->rank && (size_t)i - 2 < count; ++i)
    steps *= (double)(window[i - 2] < x->d[i] ? window[i - 2] : x->d[i]);
  return steps + rabbet_cost_elements(eval);
}

static const rabbet_op_operand_t pooling_inputs[] = {
    {"input", 0, RABBET_T_FLOATS}};
static const rabbet_op_operand_t pooling_outputs[] = {
    {"output", 0, RABBET_T_FLOATS}};
static const rabbet_op_attr_t pooling_attrs[] = {
    {"type", RABBET_ATTR_INT, true, 0, 0, pooling_types},
    {"window_size_nd", RABBET_ATTR_INTS, true, 0, 0, NULL},
    {"stride_nd", RABBET_ATTR_INTS, false, 1, 0, NULL},
    {"pre_padding", RABBET_ATTR_INTS, false, 0, 0, NULL},
    {"post_padding", RABBET_ATTR_INTS, false, 0, 0, NULL},
    {"padding_mode", RABBET_ATTR_INT, false, RABBET_PADDING_EXPLICIT_ROUND_DOWN,
     0, rabbet_padding_modes},
    {"blend_factor", RABBET_ATTR_FLOAT, false, 0, 0, NULL},
    {"average_count_excludes_padding", RABBET_ATTR_BOOL, false, 1, 0, NULL},
};

const rabbet_op_t rabbet_op_pooling = {
    .name = "pooling",
    .layer_type = "POOLING",
    .inputs = pooling_inputs,
    .input_count = RABBET_OP_COUNT_OF(pooling_inputs),
    .outputs = pooling_outputs,
    .output_count = RABBET_OP_COUNT_OF(pooling_outputs),
    .attrs = pooling_attrs,
    .attr_count = RABBET_OP_COUNT_OF(pooling_attrs),
    .infer_shapes = pooling_infer_shapes,
    .reference = pooling_reference,
    .cost = pooling_cost,
};
