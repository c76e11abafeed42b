// Joins products of one tensor by constants; their results become slices of the
// joint product's. One large product is faster than two or three small ones, if
// the slices are no copies:
//  - those that one attention reads, for devices whose kernels for attention
//    read slices;
//  - those that a rotation with caches reads as one tensor
//    (cached_rotation.c);
//  - those of a single row, which are parts of one memory, also of packed
//    weights. Products that point-wise nodes follow, which their kernels take,
//    stay apart.
#include <assert.h>
#include <string.h>

#include "builder/choose/fuse.h"
#include "builder/ir/passes.h"
#include "core/view.h"
#include "ops/enums.h"

enum { FACTORS = 3 };

// x * weights (+ bias) -> end.
typedef struct branch_t {
  rabbet_ir_node_t* product;
  rabbet_ir_value_t* weights;
  rabbet_ir_node_t* packed;  // dequantizes the weights; NULL: they are constant
  rabbet_ir_value_t* bias;   // or NULL
  rabbet_ir_value_t* end;
  rabbet_dims_t dims, bias_dims;  // of the constants
  int64_t inner, columns;
  bool turned;
} branch_t;

// ---- Which -----------------------------------------------------------------

// Walks back from a factor over nodes that only move its elements or scale all
// of them.
static rabbet_ir_value_t* parallel_moved(const rabbet_ir_t* ir,
                                         rabbet_ir_value_t* value) {
  enum { MOST = RABBET_FUSE_CHAIN_MAX + RABBET_FUSE_SCALES_MAX };
  for (int i = 0; value && i < MOST; ++i) {
    rabbet_ir_node_t* move =
        rabbet_ir_sole_producer(ir, value, RABBET_OP_SHUFFLE);
    rabbet_ir_node_t* scale =
        rabbet_ir_sole_producer(ir, value, RABBET_OP_ELEMENTWISE);
    rabbet_ir_value_t* scaled = scale ? rabbet_fuse_scaled(ir, scale) : NULL;
    if (!scaled && (!move || !rabbet_fuse_is_move(ir, move))) break;
    value = scaled ? scaled : rabbet_ir_input(ir, move, 0);
  }
  return value;
}

// Rank and extents of a constant, all 1 but the last `count`.
static bool parallel_is_flat(const rabbet_dims_t* dims, int32_t count) {
  for (int32_t i = 0; i < dims->rank - count; ++i)
    if (dims->d[i] != 1) return false;
  return dims->rank >= count;
}

static bool parallel_weights(const rabbet_ir_t* ir, branch_t* out) {
  int64_t op = rabbet_ir_int(out->product, "op1");
  out->weights = rabbet_ir_input(ir, out->product, 1);
  out->packed = rabbet_ir_packed_factor(ir, out->product);
  if ((!out->packed && (!out->weights->constant || out->weights->values)) ||
      rabbet_ir_int(out->product, "op0") != RABBET_MATRIX_NONE ||
      (op != RABBET_MATRIX_NONE && op != RABBET_MATRIX_TRANSPOSE))
    return false;
  out->turned = op == RABBET_MATRIX_TRANSPOSE;
  out->dims = rabbet_ir_dims(ir, out->weights);
  if (!parallel_is_flat(&out->dims, 2)) return false;
  const int64_t* last = &out->dims.d[out->dims.rank - 2];
  out->inner = last[out->turned];
  out->columns = last[!out->turned];
  return out->inner > 0 && out->columns > 0 &&
         (!out->packed || (out->turned && rabbet_ir_packed_columns(
                                              ir, out->packed, out->columns)));
}

// The product's result, to which the sum adds one constant for each column;
// NULL if the sum is none of these.
static rabbet_ir_value_t* parallel_bias(const rabbet_ir_t* ir,
                                        rabbet_ir_node_t* sum, branch_t* out) {
  if (rabbet_ir_int(sum, "op") != RABBET_ELEMENTWISE_SUM) return NULL;
  bool first = rabbet_ir_input(ir, sum, 0)->constant != NULL;
  out->bias = rabbet_ir_input(ir, sum, first ? 0 : 1);
  out->bias_dims = rabbet_ir_dims(ir, out->bias);
  if (!out->bias->constant || out->bias->values ||
      !parallel_is_flat(&out->bias_dims, 1))
    return NULL;
  return rabbet_ir_input(ir, sum, first ? 1 : 0);
}

static bool parallel_branch(const rabbet_ir_t* ir, rabbet_ir_value_t* value,
                            branch_t* out) {
  *out = (branch_t){.end = value};
  rabbet_ir_node_t* sum =
      rabbet_ir_sole_producer(ir, value, RABBET_OP_ELEMENTWISE);
  if (sum) value = parallel_bias(ir, sum, out);
  out->product = rabbet_ir_sole_producer(ir, value, RABBET_OP_MATRIX_MULTIPLY);
  return out->product && parallel_weights(ir, out) &&
         (!out->bias ||
          (out->bias_dims.rank > 0 &&
           out->bias_dims.d[out->bias_dims.rank - 1] == out->columns));
}

static bool parallel_agree(const rabbet_ir_t* ir, const branch_t* a,
                           const branch_t* b) {
  return a->product != b->product && !a->packed == !b->packed &&
         (!a->packed || rabbet_ir_packed_agree(ir, a->packed, b->packed)) &&
         a->product->inputs[0] == b->product->inputs[0] &&
         rabbet_ir_attrs_agree(a->product, b->product) &&
         a->inner == b->inner && a->dims.rank == b->dims.rank &&
         a->weights->dtype == b->weights->dtype && !a->bias == !b->bias &&
         (!a->bias || (a->bias->dtype == b->bias->dtype &&
                       a->bias_dims.rank == b->bias_dims.rank));
}

// The branches that the attention's factors come from and that agree with each
// other; returns how many.
static size_t parallel_find(const rabbet_ir_t* ir, rabbet_ir_node_t* last,
                            branch_t* out) {
  rabbet_ir_node_t* nodes[RABBET_FUSE_ATTENTION_MAX];
  branch_t found[FACTORS];
  size_t count = 0, most = 0;
  size_t inside = rabbet_fuse_attention(ir, last, RABBET_FUSE_PRODUCTS, nodes);
  if (inside == 0) return 0;
  rabbet_ir_value_t* const factors[FACTORS] = {rabbet_ir_input(ir, nodes[0], 0),
                                               rabbet_ir_input(ir, nodes[0], 1),
                                               rabbet_ir_input(ir, last, 1)};
  for (size_t i = 0; i < FACTORS; ++i)
    if (parallel_branch(ir, parallel_moved(ir, factors[i]), &found[count]))
      ++count;
  for (size_t i = 0; i < count; ++i) {
    branch_t agree[FACTORS] = {found[i]};
    size_t size = 1;
    for (size_t k = i + 1; k < count; ++k)
      if (parallel_agree(ir, &found[i], &found[k])) agree[size++] = found[k];
    if (size <= most) continue;
    most = size;
    memcpy(out, agree, sizeof(*out) * size);
  }
  return most;
}

// ---- Constants -------------------------------------------------------------

// `count` constants of `rows` rows beside each other; bytes[i] to a row.
static rabbet_status_t parallel_beside(rabbet_build_t* build,
                                       const rabbet_ir_value_t* const* values,
                                       const size_t* bytes, size_t count,
                                       int64_t rows, void** out_data) {
  size_t step = 0;
  for (size_t i = 0; i < count; ++i)
    step += bytes[i];
  size_t total = 0;
  if (__builtin_mul_overflow(step, (size_t)rows, &total))
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                         "the weights of products that are joined have more "
                         "bytes than memory");
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate(&build->arena, total, out_data));
  char* to = *out_data;
  for (int64_t row = 0; row < rows; ++row)
    for (size_t i = 0; i < count; ++i) {
      memcpy(to, (const char*)values[i]->constant + (size_t)row * bytes[i],
             bytes[i]);
      to += bytes[i];
    }
  return rabbet_ok();
}

static rabbet_status_t parallel_constant(rabbet_build_t* build,
                                         const branch_t* branches, size_t count,
                                         bool bias, rabbet_ir_value_t** out) {
  const rabbet_ir_value_t* values[FACTORS];
  size_t bytes[FACTORS];
  void* data = NULL;
  assert(count >= 2 && count <= FACTORS);
  rabbet_dims_t dims = bias ? branches[0].bias_dims : branches[0].dims;
  bool by_rows = !bias && !branches[0].turned;  // joined along rows
  int64_t columns = 0;
  for (size_t i = 0; i < count; ++i) {
    values[i] = bias ? branches[i].bias : branches[i].weights;
    size_t element = rabbet_dtype_bits(values[i]->dtype) / 8;
    bytes[i] = (size_t)branches[i].columns * element;
    if (!bias && !by_rows) bytes[i] *= (size_t)branches[i].inner;
    columns += branches[i].columns;
  }
  dims.d[dims.rank - (bias || by_rows ? 1 : 2)] = columns;
  RABBET_RETURN_IF_ERROR(parallel_beside(
      build, values, bytes, count, by_rows ? branches[0].inner : 1, &data));
  return rabbet_ir_add_constant(&build->ir, values[0]->name, values[0]->dtype,
                                &dims, data, out);
}

static rabbet_status_t parallel_packed(rabbet_build_t* build,
                                       const branch_t* branches, size_t count,
                                       const rabbet_ir_node_t* before,
                                       rabbet_ir_value_t** out) {
  rabbet_ir_node_t* makers[FACTORS];
  int64_t columns[FACTORS];
  assert(count <= FACTORS);
  for (size_t i = 0; i < count; ++i) {
    makers[i] = branches[i].packed;
    columns[i] = branches[i].columns;
  }
  return rabbet_ir_join_packed(build, makers, columns, count, before, out);
}

// ---- Rewriting -------------------------------------------------------------

static rabbet_status_t parallel_name(rabbet_build_t* build,
                                     const branch_t* branches, size_t count,
                                     const char** out_name) {
  const char* a = branches[0].product->name;
  const char* b = branches[1].product->name;
  return count < FACTORS
             ? rabbet_arena_printf(&build->arena, out_name, "%s | %s", a, b)
             : rabbet_arena_printf(&build->arena, out_name, "%s | %s | %s", a,
                                   b, branches[2].product->name);
}

static rabbet_status_t parallel_product(rabbet_build_t* build,
                                        const branch_t* branches, size_t count,
                                        const rabbet_ir_node_t* before,
                                        rabbet_ir_value_t** out_value) {
  rabbet_ir_t* ir = &build->ir;
  const rabbet_ir_node_t* like = branches[0].product;
  rabbet_ir_value_t* constant = NULL;
  rabbet_ir_node_t* node = NULL;
  const char* name = NULL;
  RABBET_RETURN_IF_ERROR(parallel_name(build, branches, count, &name));
  RABBET_RETURN_IF_ERROR(
      branches[0].packed
          ? parallel_packed(build, branches, count, before, &constant)
          : parallel_constant(build, branches, count, false, &constant));
  assert(rabbet_op_is(like->op, RABBET_OP_MATRIX_MULTIPLY));
  const int32_t factors[2] = {like->inputs[0], constant->id};
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_node(ir, RABBET_OP_MATRIX_MULTIPLY, name,
                                            like->attrs, like->op->attr_count,
                                            factors, 2, before, &node));
  *out_value = rabbet_ir_output(ir, node, 0);
  if (!branches[0].bias) return rabbet_ok();
  const int64_t op = RABBET_ELEMENTWISE_SUM;
  const rabbet_attr_t attr = {
      .name = "op", .type = RABBET_ATTR_INT, .data = &op, .count = 1};
  RABBET_RETURN_IF_ERROR(
      parallel_constant(build, branches, count, true, &constant));
  const int32_t terms[2] = {(*out_value)->id, constant->id};
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_node(ir, RABBET_OP_ELEMENTWISE, name,
                                            &attr, 1, terms, 2, before, &node));
  *out_value = rabbet_ir_output(ir, node, 0);
  return rabbet_ok();
}

// The branch's readers read its part of the result.
static rabbet_status_t parallel_slice(rabbet_build_t* build,
                                      const branch_t* branch, int64_t start,
                                      const rabbet_ir_value_t* result,
                                      const rabbet_ir_node_t* before) {
  rabbet_ir_t* ir = &build->ir;
  assert(start >= 0 && branch->columns > 0 && result->shape.rank >= 1);
  rabbet_ir_node_t* slice = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_slice(build, before, branch->end->name,
                                             result->id, result->shape.rank - 1,
                                             start, branch->columns, &slice));
  rabbet_ir_replace_uses(ir, branch->end, rabbet_ir_output(ir, slice, 0));
  return rabbet_ok();
}

// The product that is computed first.
static const rabbet_ir_node_t* parallel_first(const branch_t* branches,
                                              size_t count) {
  const rabbet_ir_node_t* first = branches[0].product;
  for (size_t i = 1; i < count; ++i)
    if (branches[i].product->index < first->index) first = branches[i].product;
  assert(!first->dead);
  return first;
}

static rabbet_status_t parallel_join(rabbet_build_t* build,
                                     const branch_t* branches, size_t count) {
  const rabbet_ir_node_t* before = parallel_first(branches, count);
  rabbet_ir_value_t* result = NULL;
  RABBET_RETURN_IF_ERROR(
      parallel_product(build, branches, count, before, &result));
  int64_t start = 0;
  for (size_t i = 0; i < count; ++i) {
    RABBET_RETURN_IF_ERROR(
        parallel_slice(build, &branches[i], start, result, before));
    start += branches[i].columns;
  }
  return rabbet_ok();
}

static rabbet_status_t parallel_join_named(rabbet_build_t* build,
                                           const branch_t* branches,
                                           size_t count) {
  return RABBET_ANNOTATE(parallel_join(build, branches, count),
                         "joining layer '%s' with other products of its input",
                         branches[0].product->name);
}

rabbet_status_t rabbet_ir_join_products(rabbet_build_t* build,
                                        rabbet_ir_value_t* const* ends,
                                        size_t count,
                                        rabbet_ir_value_t** out_joint) {
  branch_t branches[FACTORS] = {{.product = NULL}};
  *out_joint = NULL;
  assert(count > 0 && count <= FACTORS);
  for (size_t i = 0; i < count; ++i)
    if (!parallel_branch(&build->ir, ends[i], &branches[i]) ||
        branches[i].end != ends[i] ||
        (i > 0 && !parallel_agree(&build->ir, &branches[0], &branches[i])))
      return rabbet_ok();
  return RABBET_ANNOTATE(
      parallel_product(build, branches, count, parallel_first(branches, count),
                       out_joint),
      "joining layer '%s' with other products of its input",
      branches[0].product->name);
}

// ---- Single rows -----------------------------------------------------------

// Parts of any type begin at multiples of 64 bytes.
enum { ROW_COLUMNS = 64 };

// Products of one row that agree with the first.
typedef struct row_group_t {
  size_t count;
  branch_t branches[FACTORS];
} row_group_t;

typedef struct rows_t {
  rabbet_ir_node_t** readers;  // of each value: the last
  bool* is_pointwise;          // a point-wise node reads the value
  row_group_t** groups;        // of each value: products that it is factor 0 of
} rows_t;

static rabbet_status_t rows_create(rabbet_build_t* build, rows_t* out) {
  const rabbet_ir_t* ir = &build->ir;
  rabbet_arena_t* arena = &build->arena;
  size_t count = ir->values.count;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, count, sizeof(*out->readers), (void**)&out->readers));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, count, sizeof(*out->is_pointwise), (void**)&out->is_pointwise));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, count, sizeof(*out->groups), (void**)&out->groups));
  for (size_t i = 0; i < ir->nodes.count; ++i) {
    rabbet_ir_node_t* node = ir->nodes.data[i];
    for (size_t k = 0; k < node->input_count; ++k) {
      if (node->inputs[k] < 0) continue;
      out->readers[node->inputs[k]] = node;
      if (rabbet_fuse_kind(ir, node) == RABBET_FUSE_POINTWISE)
        out->is_pointwise[node->inputs[k]] = true;
    }
  }
  return rabbet_ok();
}

static bool rows_is_one(const rabbet_ir_t* ir, const rabbet_ir_node_t* node) {
  if (!rabbet_op_is(node->op, RABBET_OP_MATRIX_MULTIPLY)) return false;
  rabbet_dims_t dims = rabbet_ir_dims(ir, rabbet_ir_input(ir, node, 0));
  for (int32_t i = 0; i < dims.rank - 1; ++i)
    if (dims.d[i] != 1) return false;
  return dims.rank >= 2;
}

// The product and its bias, with a result that can be a slice.
static bool rows_branch(const rabbet_ir_t* ir, const rows_t* rows,
                        const rabbet_ir_node_t* product, branch_t* out) {
  rabbet_ir_value_t* end = rabbet_ir_output(ir, product, 0);
  rabbet_ir_node_t* sum = end->uses == 1 ? rows->readers[end->id] : NULL;
  if (sum && rabbet_op_is(sum->op, RABBET_OP_ELEMENTWISE) &&
      parallel_branch(ir, rabbet_ir_output(ir, sum, 0), out))
    end = out->end;
  else if (!parallel_branch(ir, end, out))
    return false;
  return out->product == product && out->columns % ROW_COLUMNS == 0 &&
         !rows->is_pointwise[end->id];
}

static rabbet_status_t rows_add(rabbet_build_t* build, rows_t* rows,
                                const rabbet_ir_node_t* node) {
  branch_t branch;
  if (!rows_is_one(&build->ir, node) ||
      !rows_branch(&build->ir, rows, node, &branch))
    return rabbet_ok();
  row_group_t** group = &rows->groups[node->inputs[0]];
  if (!*group)
    RABBET_RETURN_IF_ERROR(
        rabbet_arena_allocate(&build->arena, sizeof(**group), (void**)group));
  row_group_t* g = *group;
  if (g->count < FACTORS &&
      (g->count == 0 || parallel_agree(&build->ir, &g->branches[0], &branch)))
    g->branches[g->count++] = branch;
  return rabbet_ok();
}

static rabbet_status_t parallel_rows(rabbet_build_t* build) {
  rabbet_ir_t* ir = &build->ir;
  rows_t rows;
  RABBET_RETURN_IF_ERROR(rows_create(build, &rows));
  size_t values = ir->values.count;
  for (size_t i = 0; i < ir->nodes.count; ++i)
    RABBET_RETURN_IF_ERROR(rows_add(build, &rows, ir->nodes.data[i]));
  for (size_t i = 0; i < values; ++i) {
    const row_group_t* group = rows.groups[i];
    if (group && group->count > 1)
      RABBET_RETURN_IF_ERROR(
          parallel_join_named(build, group->branches, group->count));
  }
  return rabbet_ir_sweep(ir);
}

// ---- The pass --------------------------------------------------------------

static rabbet_status_t parallel_attention(rabbet_build_t* build) {
  rabbet_ir_t* ir = &build->ir;
  if (rabbet_fuse_reach(build) < RABBET_FUSE_SLICES) return rabbet_ok();
  for (size_t i = 0; i < ir->nodes.count; ++i) {
    branch_t branches[FACTORS];
    size_t count = parallel_find(ir, ir->nodes.data[i], branches);
    if (count < 2 || !rabbet_fuse_wants_attention(build, branches[0].product))
      continue;
    RABBET_RETURN_IF_ERROR(parallel_join_named(build, branches, count));
    RABBET_RETURN_IF_ERROR(rabbet_ir_sweep(ir));
    // Nodes have moved; those looked at already stay as they are.
    i = 0;
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_pass_parallel(rabbet_build_t* build) {
  RABBET_RETURN_IF_ERROR(parallel_attention(build));
  return parallel_rows(build);
}
