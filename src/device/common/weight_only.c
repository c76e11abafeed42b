#include "device/common/weight_only.h"

#include <assert.h>
#include <string.h>

#include "base/math.h"
#include "device/common/node_kernel.h"
#include "ops/enums.h"

enum { WEIGHTS = 0, SCALE = 1, ZERO_POINT = 2 };

static int64_t weight_int(const rabbet_group_node_t* node, const char* name) {
  return rabbet_attr_int(node->attrs, node->op->attr_count, name, 0);
}

enum { PRODUCTS = 2 };

// The group's products; returns their number, 0 if there are more or the group
// has another form.
static size_t weight_products(const rabbet_group_t* group,
                              const rabbet_group_node_t** products) {
  size_t count = 0;
  for (size_t i = 0; i < group->node_count; ++i) {
    if (group->nodes[i].output_count != 1) return 0;
    if (!rabbet_op_is(group->nodes[i].op, RABBET_OP_MATRIX_MULTIPLY)) continue;
    if (count == PRODUCTS) return 0;
    products[count++] = &group->nodes[i];
  }
  return count;
}

static const rabbet_group_node_t* weight_maker(const rabbet_group_t* group,
                                               int32_t value) {
  for (size_t i = 0; i < group->node_count; ++i)
    if (group->nodes[i].outputs[0] == value)
      return rabbet_op_is(group->nodes[i].op, RABBET_OP_DEQUANTIZE)
                 ? &group->nodes[i]
                 : NULL;
  return NULL;
}

// ---- Blocks ----------------------------------------------------------------

// Numbers of rank 0 or 1 lie along `axis` of weights of this rank.
static bool weight_widen(const rabbet_group_node_t* node, int32_t rank,
                         rabbet_dims_t* dims) {
  int64_t count = 1, axis = weight_int(node, "axis");
  if (dims->rank == rank) return true;
  for (int32_t i = 0; i < dims->rank; ++i)
    count *= dims->d[i];
  if (dims->rank > 1) return false;
  if (axis < 0) axis += rank;
  if (count != 1 && (axis < 0 || axis >= rank)) return false;
  dims->rank = rank;
  for (int32_t i = 0; i < rank; ++i)
    dims->d[i] = count != 1 && i == axis ? count : 1;
  return true;
}

// Elements of a block along `axis`, where there are `count` of `extent`; 0: the
// blocks differ.
static int64_t weight_block(const rabbet_group_node_t* node, int32_t rank,
                            int32_t axis, int64_t extent, int64_t count) {
  size_t given = 0;
  const int64_t* blocks = rabbet_attr_ints(node->attrs, node->op->attr_count,
                                           "block_shape", &given);
  if (count == 1) return extent;
  if (given != (size_t)rank) return extent % count == 0 ? extent / count : 0;
  int64_t block = blocks[axis] < 1 ? extent : blocks[axis];
  return rabbet_ceildiv(extent, block) == count ? block : 0;
}

static bool weight_blocks(const rabbet_group_node_t* node,
                          const rabbet_dims_t* weights,
                          const rabbet_group_value_t* value, bool is_turned,
                          rabbet_weight_blocks_t* out) {
  rabbet_dims_t dims = value->dims;
  int32_t rank = weights->rank;
  if (!value->constant || !weight_widen(node, rank, &dims)) return false;
  int32_t row = is_turned ? rank - 2 : rank - 1;
  int32_t depth = is_turned ? rank - 1 : rank - 2;
  for (int32_t i = 0; i < rank; ++i)
    if (dims.d[i] < 1 || (i < rank - 2 && dims.d[i] != 1)) return false;
  out->count = dims.d[row] * dims.d[depth];
  out->rows = weight_block(node, rank, row, weights->d[row], dims.d[row]);
  out->depth =
      weight_block(node, rank, depth, weights->d[depth], dims.d[depth]);
  out->row_stride = dims.d[row] == 1 ? 0 : is_turned ? dims.d[depth] : 1;
  out->depth_stride = dims.d[depth] == 1 ? 0 : is_turned ? 1 : dims.d[row];
  return out->rows > 0 && out->depth > 0;
}

// ---- The group -------------------------------------------------------------

static bool weight_is_packed(rabbet_dtype_t dtype) {
  return dtype == RABBET_DTYPE_INT4 || dtype == RABBET_DTYPE_FP4 ||
         dtype == RABBET_DTYPE_NF4 || dtype == RABBET_DTYPE_INT8 ||
         dtype == RABBET_DTYPE_UINT8 || dtype == RABBET_DTYPE_FP8;
}

static bool weight_matrix(const rabbet_group_t* group,
                          const rabbet_group_node_t* product,
                          const rabbet_group_node_t* maker,
                          rabbet_weight_only_t* out) {
  const rabbet_group_value_t* w = &group->values[maker->inputs[WEIGHTS]];
  int32_t rank = w->dims.rank;
  int64_t op0 = weight_int(product, "op0"), op1 = weight_int(product, "op1");
  if (op0 == RABBET_MATRIX_TRANSPOSE || op1 == RABBET_MATRIX_VECTOR ||
      !w->constant || !weight_is_packed(w->dtype) || rank < 2)
    return false;
  for (int32_t i = 0; i < rank; ++i)
    if (w->dims.d[i] < 1 || (i < rank - 2 && w->dims.d[i] != 1)) return false;
  out->is_turned = op1 == RABBET_MATRIX_TRANSPOSE;
  out->n = w->dims.d[out->is_turned ? rank - 2 : rank - 1];
  out->k = w->dims.d[out->is_turned ? rank - 1 : rank - 2];
  out->w = maker->inputs[WEIGHTS];
  out->scale = maker->inputs[SCALE];
  out->zero = maker->input_count > ZERO_POINT ? maker->inputs[ZERO_POINT] : -1;
  return weight_blocks(maker, &w->dims, &group->values[out->scale],
                       out->is_turned, &out->scales) &&
         (out->zero < 0 ||
          weight_blocks(maker, &w->dims, &group->values[out->zero],
                        out->is_turned, &out->zeros));
}

// A product whose second factor alone is made by the node, and is read by it
// only.
static bool weight_is_product(const rabbet_group_t* group,
                              const rabbet_group_node_t* product,
                              const rabbet_group_node_t* maker) {
  return maker && product->inputs[0] != product->inputs[1] &&
         group->outputs[0] != product->inputs[1] &&
         !weight_maker(group, product->inputs[0]) &&
         rabbet_group_input_of(group, product->inputs[0]) >= 0;
}

static bool weight_blocks_agree(const rabbet_weight_blocks_t* a,
                                const rabbet_weight_blocks_t* b) {
  return a->rows == b->rows && a->depth == b->depth &&
         a->row_stride == b->row_stride && a->depth_stride == b->depth_stride;
}

static bool weight_types_agree(const rabbet_group_t* group, int32_t a,
                               int32_t b) {
  return a < 0 || b < 0 ? a == b
                        : group->values[a].dtype == group->values[b].dtype;
}

// Adds the second product of a pair.
static bool weight_second(const rabbet_group_t* group,
                          const rabbet_group_node_t* product,
                          rabbet_weight_only_t* p) {
  const rabbet_group_node_t* maker = weight_maker(group, product->inputs[1]);
  rabbet_weight_only_t own = {.x = product->inputs[0]};
  if (own.x != p->x || group->input_count >= RABBET_WEIGHT_ONLY_INPUTS ||
      group->outputs[0] == product->outputs[0] ||
      !weight_is_product(group, product, maker) ||
      product->inputs[1] == p->real ||
      !weight_matrix(group, product, maker, &own) || own.n != p->n ||
      own.k != p->k || own.is_turned != p->is_turned ||
      !weight_types_agree(group, own.w, p->w) ||
      !weight_types_agree(group, own.scale, p->scale) ||
      !weight_types_agree(group, own.zero, p->zero) ||
      !weight_blocks_agree(&own.scales, &p->scales) ||
      (p->zero >= 0 && !weight_blocks_agree(&own.zeros, &p->zeros)))
    return false;
  p->second = (rabbet_weight_factor_t){own.w, own.scale, own.zero};
  p->second_result = product->outputs[0];
  if (group->input_count > 0)
    memcpy(p->inputs, group->inputs, group->input_count * sizeof(*p->inputs));
  p->inputs[group->input_count] = p->second_result;
  p->plain.inputs = p->inputs;
  ++p->plain.input_count;
  return true;
}

// The first product of a pair is the one that the chain of the epilogue begins
// with.
static void weight_order(const rabbet_group_t* group,
                         const rabbet_group_node_t** products) {
  if (rabbet_group_reads_first(group, products[0]->outputs[0],
                               products[1]->outputs[0]))
    return;
  const rabbet_group_node_t* second = products[0];
  products[0] = products[1];
  products[1] = second;
}

// The epilogue's nodes.
static void weight_rest(const rabbet_group_t* group, rabbet_weight_only_t* p) {
  for (size_t i = 0; i < group->node_count; ++i) {
    const rabbet_group_node_t* node = &group->nodes[i];
    int32_t made = node->outputs[0];
    bool is_factor =
        rabbet_op_is(node->op, RABBET_OP_DEQUANTIZE) &&
        (node->inputs[WEIGHTS] == p->w || node->inputs[WEIGHTS] == p->second.w);
    if (!is_factor && made != p->nodes[0].outputs[0] &&
        made != p->second_result)
      p->nodes[p->plain.node_count++] = *node;
  }
}

bool rabbet_weight_only_parse(const rabbet_group_t* group,
                              rabbet_weight_only_t* out_product) {
  rabbet_weight_only_t* p = out_product;
  const rabbet_group_node_t* products[PRODUCTS];
  memset(p, 0, sizeof(*p));
  size_t count = weight_products(group, products);
  if (count == 0 || group->output_count != 1 ||
      group->node_count > RABBET_WEIGHT_ONLY_NODES)
    return false;
  if (count == PRODUCTS) weight_order(group, products);
  const rabbet_group_node_t* product = products[0];
  const rabbet_group_node_t* maker = weight_maker(group, product->inputs[1]);
  if (!weight_is_product(group, product, maker) ||
      !weight_matrix(group, product, maker, p))
    return false;
  p->x = product->inputs[0];
  p->real = product->inputs[1];
  p->second = (rabbet_weight_factor_t){-1, -1, -1};
  p->second_result = -1;
  p->plain = *group;
  if (count == PRODUCTS && !weight_second(group, products[1], p)) return false;
  p->nodes[0] = *product;
  p->product_inputs[0] = p->x;
  p->product_inputs[1] = p->w;
  p->nodes[0].inputs = p->product_inputs;
  p->plain.nodes = p->nodes;
  p->plain.node_count = 1;
  weight_rest(group, p);
  assert(p->plain.node_count + 2 * count - 1 == group->node_count);
  return true;
}

int64_t rabbet_weight_only_rows(const rabbet_dims_t* x) {
  int64_t rows = 1;
  for (int32_t i = 0; i < x->rank - 1; ++i)
    rows *= x->d[i];
  return rows;
}
