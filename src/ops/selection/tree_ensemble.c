// Ensembles of decision trees: each row of the input reaches a leaf of each
// tree, whose weights are aggregated by target.
#include "ops/selection/tree_ensemble.h"

#include "ops/cost.h"
#include "ops/rules.h"

static const rabbet_op_enumerator_t tree_aggregates[] = {
    {"AVERAGE", RABBET_TREE_AVERAGE},
    {"SUM", RABBET_TREE_SUM},
    {"MIN", RABBET_TREE_MIN},
    {"MAX", RABBET_TREE_MAX},
    {NULL, 0}};

// ---- Rules -----------------------------------------------------------------

static rabbet_status_t tree_infer_types(const rabbet_op_infer_t* infer) {
  rabbet_dtype_t dtype = infer->inputs[RABBET_TREE_INPUT].dtype;
  rabbet_dtype_t weights = infer->inputs[RABBET_TREE_LEAF_WEIGHTS].dtype;
  infer->outputs[0].dtype = dtype;
  return dtype == weights
             ? rabbet_ok()
             : RABBET_OP_INVALID(
                   "input 0 ('input') is %s and input 4 ('leaf_weights') %s; "
                   "expected one type",
                   rabbet_dtype_name(dtype), rabbet_dtype_name(weights));
}

static rabbet_status_t tree_infer_shapes(const rabbet_op_infer_t* infer) {
  static const int32_t ranks[RABBET_TREE_INPUTS] = {2, 2, 1, 1, 1};
  rabbet_shape_t* y = &infer->outputs[0].shape;
  const rabbet_shape_t* nodes = &infer->inputs[RABBET_TREE_NODES].shape;
  int64_t targets = RABBET_OP_INT(infer, "n_targets");
  bool is_double =
      infer->inputs[RABBET_TREE_INPUT].dtype == RABBET_DTYPE_DOUBLE;
  int64_t expected =
      is_double ? RABBET_TREE_DOUBLE_COLUMNS : RABBET_TREE_COLUMNS;
  int64_t columns = expected;
  char text[RABBET_OP_TEXT];
  rabbet_expr_t weights;
  if (targets < 1 || targets > INT32_MAX)
    return RABBET_OP_INVALID(
        "attribute 'n_targets' is %lld; expected a number from 1 to 2^31 - 1",
        (long long)targets);
  for (size_t i = 0; i < RABBET_TREE_INPUTS; ++i)
    if (infer->inputs[i].shape.rank != ranks[i])
      return RABBET_OP_INVALID(
          "input %zu ('%s') has shape %s; expected rank %d", i,
          infer->op->inputs[i].name,
          rabbet_op_shape_text(infer, &infer->inputs[i].shape, text), ranks[i]);
  if (rabbet_op_is_constant(infer, nodes->d[1], &columns) &&
      columns != expected)
    return RABBET_OP_INVALID(
        "input 1 ('nodes') has shape %s; expected (nodes, %lld)",
        rabbet_op_shape_text(infer, nodes, text), (long long)expected);
  if (!rabbet_op_same_dim(
          infer, infer->inputs[RABBET_TREE_LEAF_TARGETS].shape.d[0],
          infer->inputs[RABBET_TREE_LEAF_WEIGHTS].shape.d[0], &weights))
    return RABBET_OP_INVALID(
        "input 3 ('leaf_targets') and input 4 ('leaf_weights') differ in "
        "length; expected a target for each weight");
  y->rank = 2;
  y->d[0] = infer->inputs[RABBET_TREE_INPUT].shape.d[0];
  return rabbet_expr_constant(infer->graph, targets, &y->d[1]);
}

rabbet_status_t rabbet_tree_ensemble_read(
    const rabbet_attr_t* attrs, size_t attr_count,
    const rabbet_dims_t* const dims[RABBET_TREE_INPUTS],
    rabbet_tree_ensemble_t* out_ensemble) {
  int64_t nodes = dims[RABBET_TREE_NODES]->d[0];
  int64_t trees = dims[RABBET_TREE_ROOTS]->d[0];
  int64_t weights = dims[RABBET_TREE_LEAF_WEIGHTS]->d[0];
  *out_ensemble = (rabbet_tree_ensemble_t){0};
  if (dims[RABBET_TREE_NODES]->d[1] != 4 || nodes > INT32_MAX ||
      trees > INT32_MAX || weights > INT32_MAX ||
      dims[RABBET_TREE_LEAF_TARGETS]->d[0] != weights)
    return RABBET_STATUS(
        RABBET_STATUS_OUT_OF_RANGE,
        "there are %lld nodes of %lld numbers, %lld trees, %lld weights and "
        "%lld targets of them; expected 4 numbers, a target for each weight, "
        "and less than 2^31 of all",
        (long long)nodes, (long long)dims[RABBET_TREE_NODES]->d[1],
        (long long)trees, (long long)weights,
        (long long)dims[RABBET_TREE_LEAF_TARGETS]->d[0]);
  *out_ensemble = (rabbet_tree_ensemble_t){
      .rows = dims[RABBET_TREE_INPUT]->d[0],
      .features = dims[RABBET_TREE_INPUT]->d[1],
      .nodes = (int32_t)nodes,
      .trees = (int32_t)trees,
      .weights = (int32_t)weights,
      .targets = (int32_t)rabbet_attr_int(attrs, attr_count, "n_targets", 1),
      .aggregate = (int32_t)rabbet_attr_int(
          attrs, attr_count, "aggregate_function", RABBET_TREE_SUM)};
  return rabbet_ok();
}

// ---- Reference -------------------------------------------------------------

static double tree_add(int32_t aggregate, double a, double b) {
  if (aggregate == RABBET_TREE_MIN) return b < a ? b : a;
  if (aggregate == RABBET_TREE_MAX) return b > a ? b : a;
  return a + b;
}

static int tree_outcome_of_double(double x, const int32_t* node) {
  double split;
  const int32_t bits[] = {node[1], node[4]};
  memcpy(&split, bits, sizeof(split));
  if (x < split) return RABBET_TREE_LESS;
  if (x == split) return RABBET_TREE_EQUAL;
  return x > split ? RABBET_TREE_GREATER : RABBET_TREE_UNORDERED;
}

// rabbet_tree_walk with features of DOUBLE.
static rabbet_tree_leaf_t tree_walk_of_double(const rabbet_tree_ensemble_t* p,
                                              const int32_t* nodes,
                                              int32_t root, const double* row) {
  rabbet_tree_leaf_t none = {0, 0};
  int32_t at = -1, next = root;
  while (next > at && next < p->nodes) {
    const int32_t* node = nodes + RABBET_TREE_DOUBLE_COLUMNS * (int64_t)next;
    int32_t outcomes = node[0] & RABBET_TREE_OUTCOMES;
    int32_t feature = node[0] >> RABBET_TREE_FEATURE_SHIFT;
    at = next;
    if (outcomes == 0) return rabbet_tree_leaf(p, node);
    if (feature < 0 || feature >= p->features) return none;
    next = outcomes & tree_outcome_of_double(row[feature], node) ? node[2]
                                                                 : node[3];
  }
  return none;
}

static rabbet_tree_leaf_t tree_walk(const rabbet_tree_ensemble_t* p,
                                    const rabbet_view_t* in, int32_t root,
                                    int64_t row) {
  const rabbet_view_t* x = &in[RABBET_TREE_INPUT];
  const int32_t* nodes = in[RABBET_TREE_NODES].data;
  return x->dtype == RABBET_DTYPE_DOUBLE
             ? tree_walk_of_double(p, nodes, root,
                                   (const double*)x->data + row * p->features)
             : rabbet_tree_walk(p, nodes, root,
                                (const float*)x->data + row * p->features);
}

static double tree_finish_of_double(const rabbet_tree_ensemble_t* p, double x) {
  if (p->aggregate == RABBET_TREE_AVERAGE)
    return p->trees > 0 ? x / p->trees : 0;
  return p->aggregate == RABBET_TREE_SUM || isfinite(x) ? x : 0;
}

static void tree_row(const rabbet_op_eval_t* eval,
                     const rabbet_tree_ensemble_t* p, int64_t row,
                     double* sums) {
  const rabbet_view_t* in = eval->inputs;
  const rabbet_view_t* weights = &in[RABBET_TREE_LEAF_WEIGHTS];
  const int32_t* roots = in[RABBET_TREE_ROOTS].data;
  const int32_t* targets = in[RABBET_TREE_LEAF_TARGETS].data;
  for (int32_t i = 0; i < p->targets; ++i)
    sums[i] = (double)rabbet_tree_begin(p->aggregate);
  for (int32_t tree = 0; tree < p->trees; ++tree) {
    rabbet_tree_leaf_t leaf = tree_walk(p, in, roots[tree], row);
    for (int32_t i = leaf.first; i < leaf.first + leaf.count; ++i)
      if (targets[i] >= 0 && targets[i] < p->targets)
        sums[targets[i]] =
            tree_add(p->aggregate, sums[targets[i]],
                     rabbet_load_double(weights->dtype, weights->data, i));
  }
}

static rabbet_status_t tree_reference(const rabbet_op_eval_t* eval) {
  const rabbet_dims_t* dims[RABBET_TREE_INPUTS];
  rabbet_tree_ensemble_t p;
  double* sums = NULL;
  const rabbet_view_t* y = &eval->outputs[0];
  bool is_double = y->dtype == RABBET_DTYPE_DOUBLE;
  rabbet_dims_t nodes = eval->inputs[RABBET_TREE_NODES].dims;
  for (size_t i = 0; i < RABBET_TREE_INPUTS; ++i)
    dims[i] = &eval->inputs[i].dims;
  // rabbet_tree_ensemble_read refuses other columns than those of FLOAT.
  nodes.d[1] += RABBET_TREE_COLUMNS - RABBET_TREE_DOUBLE_COLUMNS;
  if (is_double) dims[RABBET_TREE_NODES] = &nodes;
  RABBET_RETURN_IF_ERROR(
      rabbet_tree_ensemble_read(eval->attrs, eval->attr_count, dims, &p));
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      eval->allocator, (size_t)p.targets * sizeof(*sums), (void**)&sums));
  for (int64_t row = 0; row < p.rows; ++row) {
    tree_row(eval, &p, row, sums);
    for (int32_t i = 0; i < p.targets; ++i)
      rabbet_store_double(y->dtype, y->data, row * p.targets + i,
                          is_double
                              ? tree_finish_of_double(&p, sums[i])
                              : (double)rabbet_tree_finish(&p, (float)sums[i]));
  }
  rabbet_free(eval->allocator, sums);
  return rabbet_ok();
}

// Trees are taken to be some eight levels deep.
static double tree_cost(const rabbet_op_eval_t* eval) {
  const rabbet_view_t* in = eval->inputs;
  return 8 * (double)in[RABBET_TREE_INPUT].dims.d[0] *
             (double)in[RABBET_TREE_ROOTS].dims.d[0] +
         rabbet_cost_elements(eval);
}

static const rabbet_op_operand_t tree_inputs[] = {
    {"input", 0, RABBET_T(FLOAT) | RABBET_T(DOUBLE)},
    {"nodes", 0, RABBET_T(INT32)},
    {"roots", 0, RABBET_T(INT32)},
    {"leaf_targets", 0, RABBET_T(INT32)},
    {"leaf_weights", 0, RABBET_T(FLOAT) | RABBET_T(DOUBLE)}};
static const rabbet_op_operand_t tree_outputs[] = {
    {"output", 0, RABBET_T(FLOAT) | RABBET_T(DOUBLE)}};
static const rabbet_op_attr_t tree_attrs[] = {
    {"aggregate_function", RABBET_ATTR_INT, false, RABBET_TREE_SUM, 0,
     tree_aggregates},
    {"n_targets", RABBET_ATTR_INT, false, 1, 0, NULL},
};

const rabbet_op_t rabbet_op_tree_ensemble = {
    .name = "tree_ensemble",
    .layer_type = "TREE_ENSEMBLE",
    .inputs = tree_inputs,
    .input_count = RABBET_OP_COUNT_OF(tree_inputs),
    .outputs = tree_outputs,
    .output_count = RABBET_OP_COUNT_OF(tree_outputs),
    .attrs = tree_attrs,
    .attr_count = RABBET_OP_COUNT_OF(tree_attrs),
    .infer_types = tree_infer_types,
    .infer_shapes = tree_infer_shapes,
    .reference = tree_reference,
    .cost = tree_cost,
};
