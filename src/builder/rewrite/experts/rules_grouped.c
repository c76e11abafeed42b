// Products of rows with one of several matrices each, written as a gather of
// the matrices and a batched product: W[ids] x. Most mixtures of experts are.
// The gather copies a matrix for each row; the layer of experts reads each
// matrix once for all of its rows (ops/products/moe.c).
//
// The row may be the product's first or second factor and the matrices may be
// transposed, reshaped or have leading axes joined in between, as einsum does.
#include "builder/rewrite/experts/grouped.h"

#include <assert.h>

#include "core/view.h"
#include "ops/enums.h"
#include "ops/products/moe.h"

enum {
  GROUPED_LEAST = 1024,  // elements of a matrix; smaller ones are soon copied
  GROUPED_MOST = 4096,   // matrices
  GROUPED_DEPTH = 16,    // of chains that are followed
};

// A view of gathered matrices. Axis i stands for the axes
// order[end[i - 1]] .. order[end[i] - 1] of the gather's result.
typedef struct grouped_view_t {
  int32_t rank;
  int32_t order[RABBET_MAX_RANK], end[RABBET_MAX_RANK];
} grouped_view_t;

typedef struct grouped_t {
  rabbet_ir_node_t *product, *gather;
  size_t rows;      // the product's input that has the rows
  int32_t batches;  // leading axes of both factors
  bool turned;      // the matrices lie along the sum: [groups, n, k]
  bool spread;      // the rows must be broadcast
  int64_t k;
} grouped_t;

// ---- Views of the matrices --------------------------------------------------

static int32_t grouped_begin(const grouped_view_t* view, int32_t axis) {
  return axis == 0 ? 0 : view->end[axis - 1];
}

static void grouped_permute(grouped_view_t* view, const int64_t* perm,
                            size_t count) {
  grouped_view_t to = {.rank = view->rank};
  int32_t at = 0;
  for (int32_t i = 0; i < view->rank; ++i) {
    int32_t from = (size_t)i < count ? (int32_t)perm[i] : i;
    for (int32_t k = grouped_begin(view, from); k < view->end[from]; ++k)
      to.order[at++] = view->order[k];
    to.end[i] = at;
  }
  *view = to;
}

// The same elements with the extents `to`; *out_fits is false if an axis is not
// a product of whole axes of `from`.
static rabbet_status_t grouped_reshape(rabbet_ir_t* ir,
                                       const rabbet_shape_t* from,
                                       const rabbet_expr_t* to, int32_t rank,
                                       grouped_view_t* view, bool* out_fits) {
  int32_t at = 0, total = view->end[view->rank - 1];
  rabbet_expr_t one = RABBET_EXPR_NONE;
  RABBET_RETURN_IF_ERROR(rabbet_expr_constant(ir->graph, 1, &one));
  *out_fits = false;
  for (int32_t i = 0; i < rank; ++i) {
    rabbet_expr_t extent = one;
    for (; at < total && extent != to[i]; ++at)
      RABBET_RETURN_IF_ERROR(
          rabbet_expr_binary(ir->graph, RABBET_EXPR_PROD, extent,
                             from->d[view->order[at]], &extent));
    if (extent != to[i]) return rabbet_ok();
    view->end[i] = at;
  }
  view->rank = rank;
  while (at < total && from->d[view->order[at]] == one)
    ++at;
  if (rank > 0) view->end[rank - 1] = at;
  *out_fits = rank > 0 && at == total;
  return rabbet_ok();
}

static rabbet_status_t grouped_shuffle(rabbet_ir_t* ir,
                                       const rabbet_ir_node_t* shuffle,
                                       const rabbet_shape_t* gathered,
                                       grouped_view_t* view, bool* out_fits) {
  size_t first_count = 0, second_count = 0;
  const int64_t* first =
      rabbet_ir_ints(shuffle, "first_transpose", &first_count);
  const int64_t* second =
      rabbet_ir_ints(shuffle, "second_transpose", &second_count);
  const rabbet_shape_t* shape = &rabbet_ir_output(ir, shuffle, 0)->shape;
  rabbet_expr_t between[RABBET_MAX_RANK];
  for (int32_t i = 0; i < shape->rank; ++i)
    between[(size_t)i < second_count ? second[i] : i] = shape->d[i];
  grouped_permute(view, first, first_count);
  RABBET_RETURN_IF_ERROR(
      grouped_reshape(ir, gathered, between, shape->rank, view, out_fits));
  if (*out_fits) grouped_permute(view, second, second_count);
  return rabbet_ok();
}

// Finds the gather whose result the value is, or is a view of, for this one
// reader alone, and the view.
static rabbet_status_t grouped_find(rabbet_ir_t* ir, rabbet_ir_value_t* value,
                                    int depth, rabbet_ir_node_t** out_gather,
                                    grouped_view_t* view) {
  *out_gather = rabbet_ir_sole_producer(ir, value, RABBET_OP_GATHER);
  if (*out_gather) {
    *view = (grouped_view_t){.rank = value->shape.rank};
    for (int32_t i = 0; i < view->rank; ++i) {
      view->order[i] = i;
      view->end[i] = i + 1;
    }
    return rabbet_ok();
  }
  const rabbet_ir_node_t* shuffle =
      rabbet_ir_sole_producer(ir, value, RABBET_OP_SHUFFLE);
  if (!shuffle || depth == 0) return rabbet_ok();
  bool fits = false;
  RABBET_RETURN_IF_ERROR(grouped_find(ir, rabbet_ir_input(ir, shuffle, 0),
                                      depth - 1, out_gather, view));
  if (!*out_gather) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(grouped_shuffle(
      ir, shuffle, &rabbet_ir_output(ir, *out_gather, 0)->shape, view, &fits));
  if (!fits) *out_gather = NULL;
  return rabbet_ok();
}

// ---- Which products ---------------------------------------------------------

static int64_t grouped_op(const rabbet_ir_node_t* product, size_t input) {
  return rabbet_ir_int(product, input == 0 ? "op0" : "op1");
}

bool rabbet_grouped_gathers(const rabbet_ir_t* ir, const rabbet_ir_node_t* node,
                            int32_t rank) {
  const rabbet_ir_value_t* data = rabbet_ir_input(ir, node, 0);
  int64_t axis = rabbet_ir_int(node, "axis");
  return data->shape.rank == rank && (axis == 0 || axis == -rank) &&
         rabbet_ir_int(node, "mode") == RABBET_GATHER_DEFAULT &&
         rabbet_ir_int(node, "num_elementwise_dims") == 0;
}

// Whether there are matrices that are worth it, which the layer can take: as
// they are, or constant ones that can be transposed now.
static bool grouped_takes(const rabbet_ir_t* ir, const grouped_t* g) {
  const rabbet_ir_value_t* weights = rabbet_ir_input(ir, g->gather, 0);
  rabbet_dims_t w = rabbet_ir_dims(ir, weights);
  rabbet_dtype_t index = rabbet_ir_input(ir, g->gather, 1)->dtype;
  return w.d[0] > 0 && w.d[0] <= GROUPED_MOST && w.d[1] > 0 && w.d[2] > 0 &&
         w.d[1] >= (GROUPED_LEAST + w.d[2] - 1) / w.d[2] &&
         rabbet_ir_is_real(weights->dtype) &&
         (index == RABBET_DTYPE_INT32 || index == RABBET_DTYPE_INT64) &&
         (!g->turned || rabbet_grouped_is_constant(weights));
}

bool rabbet_grouped_is_constant(const rabbet_ir_value_t* value) {
  return value->constant && !value->is_deferred && !value->producer;
}

// Whether the axes of the matrices are the rows' numbers, joined in any way,
// then rows and columns; sets `turned` and whether rows must be broadcast.
static bool grouped_axes_fit(const rabbet_ir_t* ir, const grouped_view_t* view,
                             grouped_t* g) {
  size_t weights = 1 - g->rows;
  int64_t op = grouped_op(g->product, weights);
  int32_t rank = view->rank, indices = view->end[rank - 1] - 2;
  bool swapped = op == RABBET_MATRIX_TRANSPOSE;
  int32_t sum = rank - (weights == (swapped ? 0 : 1) ? 2 : 1);
  int32_t columns = 2 * rank - 3 - sum;
  int32_t k = view->order[grouped_begin(view, sum)], next = 0;
  if (view->end[sum] - grouped_begin(view, sum) != 1 || k < indices)
    return false;
  g->turned = k == indices + 1;
  g->batches = rank - 2;
  // In the order of memory: batches, then the columns' own.
  for (int32_t i = 0; i < rank - 2; ++i)
    for (int32_t at = grouped_begin(view, i); at < view->end[i]; ++at)
      if (view->order[at] != next++) return false;
  int32_t tail = next;
  for (int32_t at = grouped_begin(view, columns); at + 1 < view->end[columns];
       ++at)
    if (view->order[at] != next++) return false;
  g->spread = tail < indices;
  return next == indices &&
         view->order[view->end[columns] - 1] == (g->turned ? k - 1 : k + 1) &&
         rabbet_ir_input(ir, g->gather, 0)->shape.rank == 3;
}

// Whether the other factor has one row for each matrix.
static bool grouped_rows_fit(const rabbet_ir_t* ir, const grouped_view_t* view,
                             grouped_t* g) {
  const rabbet_ir_value_t* x = rabbet_ir_input(ir, g->product, g->rows);
  const rabbet_ir_value_t* w = rabbet_ir_input(ir, g->product, 1 - g->rows);
  int64_t op = grouped_op(g->product, g->rows), many = 0, one = 0;
  int32_t rank = x->shape.rank;
  if (rank != g->batches + (op == RABBET_MATRIX_VECTOR ? 1 : 2) ||
      x->dtype != w->dtype)
    return false;
  bool swapped = (op == RABBET_MATRIX_TRANSPOSE) == (g->rows == 0);
  int32_t single = op == RABBET_MATRIX_VECTOR ? -1 : rank - (swapped ? 1 : 2);
  if (single >= 0 &&
      (!rabbet_expr_is_constant(ir->graph, x->shape.d[single], &many) ||
       many != 1))
    return false;
  bool has_joined = false, broadcasts = false;
  for (int32_t i = 0; i < g->batches; ++i) {
    has_joined |= view->end[i] - grouped_begin(view, i) != 1;
    if (x->shape.d[i] == w->shape.d[i]) continue;
    if (!rabbet_expr_is_constant(ir->graph, x->shape.d[i], &one) || one != 1)
      return false;
    broadcasts = true;
  }
  g->spread |= broadcasts;
  return !g->spread || !has_joined;
}

static rabbet_status_t grouped_match(rabbet_ir_t* ir, rabbet_ir_node_t* product,
                                     grouped_t* out, bool* out_found) {
  *out_found = false;
  for (size_t i = 0; i < 2 && !*out_found; ++i) {
    grouped_view_t view;
    grouped_t g = {.product = product, .rows = 1 - i};
    if (grouped_op(product, i) == RABBET_MATRIX_VECTOR) continue;
    RABBET_RETURN_IF_ERROR(grouped_find(ir, rabbet_ir_input(ir, product, i),
                                        GROUPED_DEPTH, &g.gather, &view));
    if (!g.gather || view.rank < 3 || !rabbet_grouped_gathers(ir, g.gather, 3))
      continue;
    *out_found = grouped_axes_fit(ir, &view, &g) &&
                 grouped_rows_fit(ir, &view, &g) && grouped_takes(ir, &g);
    g.k = rabbet_ir_dims(ir, rabbet_ir_input(ir, g.gather, 0))
              .d[g.turned ? 2 : 1];
    *out = g;
  }
  return rabbet_ok();
}

// ---- Rows -------------------------------------------------------------------

rabbet_status_t rabbet_grouped_flat(rabbet_build_t* build,
                                    const rabbet_ir_node_t* before,
                                    int32_t value, int64_t columns,
                                    int32_t* out_value) {
  const int64_t dims[2] = {-1, columns};
  const rabbet_attr_t attr = {.name = "reshape_dims",
                              .type = RABBET_ATTR_INTS,
                              .data = dims,
                              .count = 2};
  rabbet_ir_node_t* node = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_node(&build->ir, RABBET_OP_SHUFFLE,
                                            before->name, &attr, 1, &value, 1,
                                            before, &node));
  *out_value = node->outputs[0];
  return rabbet_ok();
}

// One row for each index where several share a row: as [indices.., k].
static rabbet_status_t grouped_spread(rabbet_build_t* build, const grouped_t* g,
                                      int32_t* value) {
  rabbet_ir_t* ir = &build->ir;
  const rabbet_shape_t* x = &rabbet_ir_input(ir, g->product, g->rows)->shape;
  rabbet_shape_t wide = rabbet_ir_input(ir, g->gather, 1)->shape, narrow;
  int64_t starts[RABBET_MAX_RANK] = {0}, strides[RABBET_MAX_RANK];
  rabbet_ir_node_t* slice = NULL;
  int32_t inputs[3] = {-1, -1, -1};
  narrow = wide;
  assert(wide.rank < RABBET_MAX_RANK && wide.rank >= g->batches);
  for (int32_t i = 0; i <= wide.rank; ++i) {
    if (i < g->batches)
      narrow.d[i] = x->d[i];
    else
      RABBET_RETURN_IF_ERROR(rabbet_expr_constant(
          ir->graph, i == wide.rank ? g->k : 1, &narrow.d[i]));
    strides[i] = i == wide.rank || narrow.d[i] == wide.d[i];
  }
  wide.d[wide.rank] = narrow.d[wide.rank];
  narrow.rank = ++wide.rank;
  const rabbet_attr_t attrs[] = {{.name = "start",
                                  .type = RABBET_ATTR_INTS,
                                  .data = starts,
                                  .count = (size_t)wide.rank},
                                 {.name = "stride",
                                  .type = RABBET_ATTR_INTS,
                                  .data = strides,
                                  .count = (size_t)wide.rank}};
  const rabbet_ir_value_t* rows = rabbet_ir_value(ir, *value);
  RABBET_RETURN_IF_ERROR(
      rabbet_ir_add_reshape(build, g->product, narrow.d, narrow.rank, &rows));
  inputs[0] = rows->id;
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_sizes(build, g->product->name, wide.d,
                                             wide.rank, &inputs[2]));
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_node(ir, RABBET_OP_SLICE,
                                            g->product->name, attrs, 2, inputs,
                                            3, g->product, &slice));
  *value = slice->outputs[0];
  return rabbet_ok();
}

// ---- Indices ----------------------------------------------------------------

static bool grouped_is(const rabbet_ir_node_t* node, rabbet_op_id_t op,
                       int64_t kind) {
  return node && rabbet_op_is(node->op, op) &&
         (kind < 0 || rabbet_ir_int(node, "op") == kind);
}

static bool grouped_is_least_0(const rabbet_ir_t* ir,
                               const rabbet_ir_value_t* value) {
  int64_t count = value->constant ? rabbet_ir_count(ir, value) : 0;
  for (int64_t i = 0; i < count; ++i)
    if (rabbet_load_double(value->dtype, value->constant, i) < 0) return false;
  return count > 0;
}

// Whether no element can be negative, as of places that TopK finds.
static bool grouped_is_natural(const rabbet_ir_t* ir,
                               const rabbet_ir_value_t* value, int depth) {
  const rabbet_ir_node_t* node = value->producer;
  if (value->constant) return grouped_is_least_0(ir, value);
  if (!node || node->dead || depth == 0 || node->plugin) return false;
  const rabbet_ir_value_t* first = rabbet_ir_input(ir, node, 0);
  if (rabbet_op_is(node->op, RABBET_OP_TOPK) &&
      value == rabbet_ir_output(ir, node, 1))
    return true;
  if (grouped_is(node, RABBET_OP_ELEMENTWISE, RABBET_ELEMENTWISE_MAX) ||
      grouped_is(node, RABBET_OP_ELEMENTWISE, RABBET_ELEMENTWISE_MIN)) {
    bool either = rabbet_ir_int(node, "op") == RABBET_ELEMENTWISE_MAX;
    bool a = grouped_is_natural(ir, first, depth - 1);
    bool b = grouped_is_natural(ir, rabbet_ir_input(ir, node, 1), depth - 1);
    return either ? a || b : a && b;
  }
  static const rabbet_op_id_t movers[] = {RABBET_OP_SHUFFLE, RABBET_OP_GATHER,
                                          RABBET_OP_TOPK, RABBET_OP_IDENTITY};
  for (size_t i = 0; i < sizeof(movers) / sizeof(movers[0]); ++i)
    if (rabbet_op_is(node->op, movers[i]))
      return grouped_is_natural(ir, first, depth - 1);
  // A wider integer has the same numbers.
  return rabbet_op_is(node->op, RABBET_OP_CAST) &&
         rabbet_dtype_is_integer(first->dtype) &&
         rabbet_dtype_bits(first->dtype) <= rabbet_dtype_bits(value->dtype) &&
         grouped_is_natural(ir, first, depth - 1);
}

static rabbet_status_t grouped_binary(rabbet_build_t* build,
                                      const rabbet_ir_node_t* before,
                                      int64_t op, int32_t a, int32_t b,
                                      int32_t* out_value) {
  const rabbet_attr_t attr = {
      .name = "op", .type = RABBET_ATTR_INT, .data = &op, .count = 1};
  const int32_t inputs[2] = {a, b};
  rabbet_ir_node_t* node = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_node(&build->ir, RABBET_OP_ELEMENTWISE,
                                            before->name, &attr, 1, inputs, 2,
                                            before, &node));
  *out_value = node->outputs[0];
  return rabbet_ok();
}

static rabbet_status_t grouped_index(rabbet_build_t* build, const char* name,
                                     rabbet_dtype_t dtype, int64_t number,
                                     int32_t* out_value) {
  const rabbet_dims_t dims = {.rank = 2, .d = {1, 1}};
  rabbet_ir_value_t* value = NULL;
  void* data = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate(&build->arena, sizeof(int64_t), &data));
  rabbet_store_int64(dtype, data, 0, number);
  RABBET_RETURN_IF_ERROR(
      rabbet_ir_add_constant(&build->ir, name, dtype, &dims, data, &value));
  *out_value = value->id;
  return rabbet_ok();
}

// Gathers count negative indices from the end; for the layer they are no
// expert's.
static rabbet_status_t grouped_wrap(rabbet_build_t* build,
                                    const rabbet_ir_node_t* before,
                                    int64_t groups, int32_t* index) {
  rabbet_dtype_t dtype = rabbet_ir_value(&build->ir, *index)->dtype;
  int32_t zero = -1, extent = -1, inputs[3] = {-1, -1, *index};
  rabbet_ir_node_t* select = NULL;
  RABBET_RETURN_IF_ERROR(grouped_index(build, before->name, dtype, 0, &zero));
  RABBET_RETURN_IF_ERROR(
      grouped_index(build, before->name, dtype, groups, &extent));
  RABBET_RETURN_IF_ERROR(grouped_binary(build, before, RABBET_ELEMENTWISE_LESS,
                                        *index, zero, &inputs[0]));
  RABBET_RETURN_IF_ERROR(grouped_binary(build, before, RABBET_ELEMENTWISE_SUM,
                                        *index, extent, &inputs[1]));
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_node(&build->ir, RABBET_OP_SELECT,
                                            before->name, NULL, 0, inputs, 3,
                                            before, &select));
  *index = select->outputs[0];
  return rabbet_ok();
}

// x, where the node is x < 0 ? x + groups : x.
static const rabbet_ir_value_t* grouped_unwrapped(const rabbet_ir_t* ir,
                                                  const rabbet_ir_node_t* node,
                                                  int64_t groups) {
  if (!grouped_is(node, RABBET_OP_SELECT, -1)) return NULL;
  const rabbet_ir_node_t* less = rabbet_ir_input(ir, node, 0)->producer;
  const rabbet_ir_node_t* sum = rabbet_ir_input(ir, node, 1)->producer;
  const rabbet_ir_value_t* x = rabbet_ir_input(ir, node, 2);
  if (!grouped_is(less, RABBET_OP_ELEMENTWISE, RABBET_ELEMENTWISE_LESS) ||
      !grouped_is(sum, RABBET_OP_ELEMENTWISE, RABBET_ELEMENTWISE_SUM) ||
      rabbet_ir_input(ir, less, 0) != x ||
      !rabbet_ir_is_number(ir, rabbet_ir_input(ir, less, 1), 0))
    return NULL;
  for (size_t i = 0; i < 2; ++i)
    if (rabbet_ir_input(ir, sum, i) == x &&
        rabbet_ir_is_number(ir, rabbet_ir_input(ir, sum, 1 - i),
                            (double)groups))
      return x;
  return NULL;
}

const rabbet_ir_value_t* rabbet_grouped_root(const rabbet_ir_t* ir,
                                             const rabbet_ir_value_t* value,
                                             int64_t groups) {
  for (int depth = 0; depth < GROUPED_DEPTH; ++depth) {
    const rabbet_ir_node_t* node = value->producer;
    const rabbet_ir_value_t* x = node && rabbet_ir_is_view(ir, node)
                                     ? rabbet_ir_input(ir, node, 0)
                                     : grouped_unwrapped(ir, node, groups);
    if (!x) return value;
    value = x;
  }
  return value;
}

// ---- The layer --------------------------------------------------------------

static rabbet_status_t grouped_add(rabbet_build_t* build, const grouped_t* g,
                                   int32_t* out_value) {
  static const int64_t swapped[] = {0, 2, 1};
  rabbet_ir_t* ir = &build->ir;
  const rabbet_ir_node_t* product = g->product;
  const rabbet_ir_value_t* weights = rabbet_ir_input(ir, g->gather, 0);
  int64_t groups = rabbet_ir_dims(ir, weights).d[0];
  const rabbet_ir_value_t* index =
      rabbet_grouped_root(ir, rabbet_ir_input(ir, g->gather, 1), groups);
  int32_t inputs[RABBET_MOE_DOWN + 1] = {-1, -1, -1, -1, -1, -1};
  rabbet_ir_node_t* node = NULL;
  int32_t rows = product->inputs[g->rows];
  if (g->spread) RABBET_RETURN_IF_ERROR(grouped_spread(build, g, &rows));
  RABBET_RETURN_IF_ERROR(rabbet_grouped_flat(build, product, rows, g->k,
                                             &inputs[RABBET_MOE_HIDDEN]));
  RABBET_RETURN_IF_ERROR(rabbet_grouped_flat(build, product, index->id, 1,
                                             &inputs[RABBET_MOE_EXPERTS]));
  if (!grouped_is_natural(ir, index, GROUPED_DEPTH))
    RABBET_RETURN_IF_ERROR(
        grouped_wrap(build, product, groups, &inputs[RABBET_MOE_EXPERTS]));
  inputs[RABBET_MOE_DOWN] = weights->id;
  if (g->turned) {
    RABBET_RETURN_IF_ERROR(rabbet_ir_add_permutation(
        build, product, weights->name, weights->id, swapped, 3, &node));
    inputs[RABBET_MOE_DOWN] = node->outputs[0];
  }
  RABBET_RETURN_IF_ERROR(
      rabbet_ir_add_node(ir, RABBET_OP_MOE, product->name, NULL, 0, inputs,
                         RABBET_MOE_DOWN + 1, product, &node));
  const rabbet_ir_value_t* result = rabbet_ir_output(ir, node, 0);
  const rabbet_shape_t* shape = &rabbet_ir_output(ir, product, 0)->shape;
  RABBET_RETURN_IF_ERROR(
      rabbet_ir_add_reshape(build, product, shape->d, shape->rank, &result));
  *out_value = result->id;
  return rabbet_ok();
}

rabbet_status_t rabbet_rule_grouped_product(rabbet_build_t* build,
                                            rabbet_ir_node_t* node,
                                            bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  grouped_t g;
  bool found = false;
  int32_t result = -1;
  if (rabbet_ir_has_wishes(ir, node) ||
      rabbet_ir_is_empty(ir, rabbet_ir_output(ir, node, 0)))
    return rabbet_ok();  // a reshape would copy extents of 0 from its input
  RABBET_RETURN_IF_ERROR(grouped_match(ir, node, &g, &found));
  if (!found) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(grouped_add(build, &g, &result));
  // What is not used is swept.
  *changed |= rabbet_ir_bypass(ir, node, rabbet_ir_value(ir, result));
  return rabbet_ok();
}
