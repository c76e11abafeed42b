#include "ops/cost.h"

#include "ops/enums.h"
#include "ops/moe.h"
#include "ops/nms.h"
#include "ops/rules.h"

typedef double (*rabbet_cost_fn_t)(const rabbet_op_eval_t* eval);

// As numbers that do not overflow; 0 where an extent is not known.
static double rabbet_cost_count(const rabbet_view_t* view) {
  double count = view->dtype != RABBET_DTYPE_NONE;
  for (int32_t i = 0; i < view->dims.rank; ++i)
    count *= view->dims.d[i] > 0 ? (double)view->dims.d[i] : 0;
  return count;
}

static double rabbet_cost_elements(const rabbet_op_eval_t* eval) {
  double count = 1;
  for (size_t i = 0; i < eval->input_count; ++i)
    count += rabbet_cost_count(&eval->inputs[i]);
  for (size_t i = 0; i < eval->output_count; ++i)
    count += rabbet_cost_count(&eval->outputs[i]);
  return count;
}

// Rows are sorted.
static double rabbet_cost_topk(const rabbet_op_eval_t* eval) {
  double count = rabbet_cost_elements(eval), steps = count;
  for (double rest = count; rest > 1; rest /= 2)
    steps += count;
  return steps;
}

// ---- Sums for each element -------------------------------------------------

static double rabbet_cost_matrix_multiply(const rabbet_op_eval_t* eval) {
  const rabbet_dims_t* a = &eval->inputs[0].dims;
  int64_t op = RABBET_OP_INT(eval, "op0");
  int32_t axis = op == RABBET_MATRIX_TRANSPOSE ? a->rank - 2 : a->rank - 1;
  double depth = a->rank > 0 && axis >= 0 ? (double)a->d[axis] : 1;
  return rabbet_cost_elements(eval) +
         depth * rabbet_cost_count(&eval->outputs[0]);
}

// An element is a sum over the kernel but its maps, which are axis `maps`.
static double rabbet_cost_kernel(const rabbet_op_eval_t* eval, int32_t maps) {
  const rabbet_dims_t* kernel = &eval->inputs[1].dims;
  double steps = rabbet_cost_count(&eval->outputs[0]);
  for (int32_t i = 0; i < kernel->rank; ++i)
    if (i != maps) steps *= (double)kernel->d[i];
  return steps + rabbet_cost_elements(eval);
}

static double rabbet_cost_convolution(const rabbet_op_eval_t* eval) {
  return rabbet_cost_kernel(eval, 0);
}

static double rabbet_cost_deconvolution(const rabbet_op_eval_t* eval) {
  return rabbet_cost_kernel(eval, 1);
}

// A window visits elements of the input alone.
static double rabbet_cost_pooling(const rabbet_op_eval_t* eval) {
  const rabbet_dims_t* x = &eval->inputs[0].dims;
  double steps = rabbet_cost_count(&eval->outputs[0]);
  size_t count = 0;
  const int64_t* window =
      rabbet_attr_ints(eval->attrs, eval->attr_count, "window_size_nd", &count);
  for (int32_t i = 2; i < x->rank && (size_t)i - 2 < count; ++i)
    steps *= (double)(window[i - 2] < x->d[i] ? window[i - 2] : x->d[i]);
  return steps + rabbet_cost_elements(eval);
}

// ---- Interpolation ---------------------------------------------------------

static double rabbet_cost_taps(int64_t mode) {
  return mode == RABBET_INTERPOLATION_CUBIC    ? 4
         : mode == RABBET_INTERPOLATION_LINEAR ? 2
                                               : 1;
}

static double rabbet_cost_resize(const rabbet_op_eval_t* eval) {
  const rabbet_dims_t *x = &eval->inputs[0].dims, *y = &eval->outputs[0].dims;
  double taps = rabbet_cost_taps(RABBET_OP_INT(eval, "resize_mode"));
  double steps = rabbet_cost_count(&eval->outputs[0]);
  for (int32_t i = 0; i < x->rank && i < y->rank; ++i)
    if (x->d[i] != y->d[i]) steps *= taps;
  return steps + rabbet_cost_elements(eval);
}

static double rabbet_cost_grid_sample(const rabbet_op_eval_t* eval) {
  double taps = rabbet_cost_taps(RABBET_OP_INT(eval, "interpolation_mode"));
  double steps = rabbet_cost_count(&eval->outputs[0]);
  for (int32_t i = 2; i < eval->inputs[0].dims.rank; ++i)
    steps *= taps;
  return steps + rabbet_cost_elements(eval);
}

// ---- Boxes and experts -----------------------------------------------------

// Each candidate of a batch is compared with those that are kept.
static double rabbet_cost_nms(const rabbet_op_eval_t* eval) {
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
  return rabbet_cost_topk(eval) + (double)nms.batch * candidates * kept;
}

static double rabbet_cost_moe(const rabbet_op_eval_t* eval) {
  const rabbet_dims_t* dims[RABBET_MOE_INPUTS] = {NULL};
  rabbet_moe_sizes_t sizes;
  for (size_t i = 0; i < eval->input_count && i < RABBET_MOE_INPUTS; ++i)
    if (eval->inputs[i].dtype != RABBET_DTYPE_NONE)
      dims[i] = &eval->inputs[i].dims;
  rabbet_status_t status = rabbet_moe_resolve(dims, &sizes);
  bool known = rabbet_is_ok(status);
  rabbet_status_ignore(status);
  if (!known) return rabbet_cost_elements(eval);
  return rabbet_cost_elements(eval) +
         3.0 * (double)sizes.tokens * (double)sizes.chosen *
             (double)sizes.hidden * (double)sizes.inner;
}

// ---- All -------------------------------------------------------------------

// Operators that visit their elements once, or as good as once, have no line.
static const rabbet_cost_fn_t rabbet_costs[RABBET_OP_COUNT] = {
    [RABBET_OP_CONVOLUTION] = rabbet_cost_convolution,
    [RABBET_OP_DECONVOLUTION] = rabbet_cost_deconvolution,
    [RABBET_OP_GRID_SAMPLE] = rabbet_cost_grid_sample,
    [RABBET_OP_MATRIX_MULTIPLY] = rabbet_cost_matrix_multiply,
    [RABBET_OP_MOE] = rabbet_cost_moe,
    [RABBET_OP_NMS] = rabbet_cost_nms,
    [RABBET_OP_POOLING] = rabbet_cost_pooling,
    [RABBET_OP_RESIZE] = rabbet_cost_resize,
    [RABBET_OP_TOPK] = rabbet_cost_topk,
};

static rabbet_cost_fn_t rabbet_cost_of(const rabbet_op_t* op) {
  for (size_t i = 0; i < RABBET_OP_COUNT; ++i)
    if (rabbet_costs[i] && rabbet_op_is(op, (rabbet_op_id_t)i))
      return rabbet_costs[i];
  return NULL;
}

double rabbet_op_steps(const rabbet_op_eval_t* eval) {
  rabbet_cost_fn_t cost = rabbet_cost_of(eval->op);
  return cost ? cost(eval) : rabbet_cost_elements(eval);
}

bool rabbet_op_is_slow(const rabbet_op_t* op) {
  return rabbet_cost_of(op) != NULL;
}
