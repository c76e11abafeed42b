#include "builder/choose/fuse.h"

#include <assert.h>

#include "builder/ir/passes.h"
#include "ops/enums.h"

// Operators whose kernels can compute point-wise nodes, too. All POINTWISE
// operators of the catalogue can be fused with each other.
static const struct {
  rabbet_op_id_t op;
  uint32_t kind;
} fuse_rules[] = {
    {RABBET_OP_CONVOLUTION, RABBET_FUSE_EPILOGUE},
    {RABBET_OP_DECONVOLUTION, RABBET_FUSE_EPILOGUE},
    {RABBET_OP_MATRIX_MULTIPLY, RABBET_FUSE_EPILOGUE},
    {RABBET_OP_POOLING, RABBET_FUSE_EPILOGUE},
    {RABBET_OP_REDUCE, RABBET_FUSE_EPILOGUE | RABBET_FUSE_PROLOGUE},
    {RABBET_OP_SOFTMAX, RABBET_FUSE_EPILOGUE | RABBET_FUSE_PROLOGUE},
    {RABBET_OP_NORMALIZATION, RABBET_FUSE_EPILOGUE | RABBET_FUSE_PROLOGUE},
};

// Whether the user set the type of the node's result. A network output is
// converted to it at the end; any other value must be the output of a kernel.
static bool fuse_has_wish(const rabbet_ir_t* ir, const rabbet_ir_node_t* node) {
  const rabbet_ir_value_t* value = rabbet_ir_output(ir, node, 0);
  return value->wished != RABBET_DTYPE_NONE && value->output < 0;
}

uint32_t rabbet_fuse_kind(const rabbet_ir_t* ir, const rabbet_ir_node_t* node) {
  if (node->plugin || node->output_count != 1 ||
      node->precision != RABBET_DTYPE_NONE || fuse_has_wish(ir, node))
    return 0;
  if ((node->op->flags & RABBET_OP_POINTWISE) != 0)
    return RABBET_FUSE_POINTWISE;
  for (size_t i = 0; i < sizeof(fuse_rules) / sizeof(fuse_rules[0]); ++i)
    if (rabbet_op_is(node->op, fuse_rules[i].op)) return fuse_rules[i].kind;
  return 0;
}

// Whether rows of the slice have no gaps, whatever its extents are in a run: of
// an axis that may have one element, the whole must be taken, or rows would be
// along an axis outside of it.
static bool fuse_has_rows(const rabbet_ir_t* ir, const rabbet_ir_node_t* node) {
  const rabbet_shape_t* from = &rabbet_ir_input(ir, node, 0)->shape;
  const rabbet_shape_t* to = &rabbet_ir_output(ir, node, 0)->shape;
  for (int32_t i = to->rank - 1; i >= 0; --i) {
    int64_t extent = 0;
    if (rabbet_expr_is_constant(ir->graph, to->d[i], &extent) && extent > 1)
      return true;
    if (from->d[i] != to->d[i]) return false;
  }
  return true;
}

bool rabbet_fuse_is_operand(const rabbet_build_t* build,
                            const rabbet_ir_node_t* node) {
  const rabbet_ir_t* ir = &build->ir;
  rabbet_ir_window_t window;
  if ((build->device->traits & RABBET_DEVICE_POINTWISE_OF_SLICES) == 0 ||
      node->plugin || rabbet_ir_has_wishes(ir, node) ||
      !rabbet_ir_window(ir, node, &window))
    return false;
  const rabbet_ir_value_t* from = rabbet_ir_input(ir, node, 0);
  for (int32_t i = 0; i < from->shape.rank; ++i)
    if (window.stride[i] != 1) return false;
  return (from->producer || from->input >= 0) && fuse_has_rows(ir, node);
}

bool rabbet_fuse_is_exit(const rabbet_ir_t* ir, const rabbet_ir_node_t* node) {
  for (size_t i = 0; i < node->output_count; ++i) {
    const rabbet_ir_value_t* value = rabbet_ir_output(ir, node, i);
    if (value->output >= 0 || value->is_read_by_host) return true;
  }
  return false;
}

bool rabbet_fuse_same_shape(const rabbet_ir_t* ir, const rabbet_ir_node_t* a,
                            const rabbet_ir_node_t* b) {
  return rabbet_ir_shape_equal(&rabbet_ir_output(ir, a, 0)->shape,
                               &rabbet_ir_output(ir, b, 0)->shape);
}

// ---- Attention --------------------------------------------------------------

// The node that computes the value, if it has a single reader; otherwise NULL.
static rabbet_ir_node_t* attention_maker(const rabbet_ir_t* ir,
                                         const rabbet_ir_value_t* value) {
  rabbet_ir_node_t* maker = value ? value->producer : NULL;
  if (!maker || value->uses != 1 || rabbet_fuse_is_exit(ir, maker) ||
      rabbet_fuse_kind(ir, maker) == 0)
    return NULL;
  return maker;
}

rabbet_fuse_reach_t rabbet_fuse_reach(const rabbet_build_t* build) {
  return build->device->traits & RABBET_DEVICE_ATTENTION_OF_SLICES
             ? RABBET_FUSE_PLACES
             : RABBET_FUSE_TURNS;
}

bool rabbet_fuse_wants_attention(const rabbet_build_t* build,
                                 const rabbet_ir_node_t* node) {
  rabbet_dtype_t dtype = rabbet_ir_output(&build->ir, node, 0)->dtype;
  int64_t flags = build->config->options[RABBET_BUILDER_OPTION_FLAGS];
  return dtype == RABBET_DTYPE_HALF || dtype == RABBET_DTYPE_BF16 ||
         (dtype == RABBET_DTYPE_FLOAT &&
          (build->extra_dtypes != 0 || (flags >> RABBET_BUILDER_TF32 & 1)));
}

static bool attention_is_like(const rabbet_ir_value_t* input,
                              const rabbet_ir_value_t* value,
                              rabbet_fuse_reach_t reach) {
  return input && (reach < RABBET_FUSE_SLICES
                       ? rabbet_ir_shape_equal(&input->shape, &value->shape)
                       : input->shape.rank == value->shape.rank);
}

// Lists the nodes from the product to the scores that the softmax reads.
static bool attention_scores(const rabbet_ir_t* ir,
                             const rabbet_ir_value_t* value, int depth,
                             rabbet_fuse_reach_t reach,
                             rabbet_ir_node_t** nodes, size_t* count) {
  rabbet_ir_node_t* maker = attention_maker(ir, value);
  if (!maker) return false;
  bool found = rabbet_op_is(maker->op, RABBET_OP_MATRIX_MULTIPLY);
  if (!found &&
      (depth == 0 || rabbet_fuse_kind(ir, maker) != RABBET_FUSE_POINTWISE))
    return false;
  for (size_t i = 0; i < maker->input_count && !found; ++i) {
    const rabbet_ir_value_t* input = rabbet_ir_input(ir, maker, i);
    if (attention_is_like(input, value, reach))
      found = attention_scores(ir, input, depth - 1, reach, nodes, count);
  }
  if (found) nodes[(*count)++] = maker;
  return found;
}

bool rabbet_fuse_is_move(const rabbet_ir_t* ir, const rabbet_ir_node_t* node) {
  if ((!rabbet_op_is(node->op, RABBET_OP_SLICE) &&
       !rabbet_op_is(node->op, RABBET_OP_SHUFFLE)) ||
      rabbet_ir_has_wishes(ir, node))
    return false;
  for (size_t i = 1; i < node->input_count; ++i) {
    const rabbet_ir_value_t* operand = rabbet_ir_input(ir, node, i);
    if (operand && !operand->values && !operand->constant) return false;
  }
  return true;
}

rabbet_ir_value_t* rabbet_fuse_scaled(const rabbet_ir_t* ir,
                                      const rabbet_ir_node_t* node) {
  if (!rabbet_op_is(node->op, RABBET_OP_ELEMENTWISE) ||
      rabbet_fuse_kind(ir, node) != RABBET_FUSE_POINTWISE)
    return NULL;
  int64_t op = rabbet_ir_int(node, "op");
  size_t places = op == RABBET_ELEMENTWISE_PROD  ? 2
                  : op == RABBET_ELEMENTWISE_DIV ? 1
                                                 : 0;
  for (size_t i = 0; i < places; ++i) {
    rabbet_ir_value_t* value = rabbet_ir_input(ir, node, i);
    const rabbet_ir_value_t* number = rabbet_ir_input(ir, node, 1 - i);
    rabbet_dims_t dims = rabbet_ir_dims(ir, number);
    int64_t count = 0;
    if (value->constant || !number->constant ||
        !rabbet_ir_shape_equal(&value->shape,
                               &rabbet_ir_output(ir, node, 0)->shape))
      continue;
    rabbet_status_t status = rabbet_dims_count(&dims, &count);
    if (rabbet_is_ok(status) && count == 1) return value;
    rabbet_status_ignore(status);
  }
  return NULL;
}

// Nodes before an input of a product.
typedef struct chain_t {
  rabbet_fuse_reach_t reach;
  int moves, scales;  // how many may still be taken
} chain_t;

// The node's input, if the node may be part of the chain; else NULL.
static const rabbet_ir_value_t* attention_before(const rabbet_ir_t* ir,
                                                 const rabbet_ir_node_t* node,
                                                 chain_t* chain) {
  const rabbet_ir_value_t* scaled = rabbet_fuse_scaled(ir, node);
  if (scaled) return chain->scales-- > 0 ? scaled : NULL;
  bool is_slice = rabbet_op_is(node->op, RABBET_OP_SLICE);
  if (!rabbet_fuse_is_move(ir, node) ||
      chain->reach < (is_slice ? RABBET_FUSE_SLICES : RABBET_FUSE_TURNS) ||
      chain->moves-- <= 0)
    return NULL;
  return rabbet_ir_input(ir, node, 0);
}

// Adds the nodes that compute the product's input for it only, and are within
// reach: scales, slices, transposes, reshapes. The first one added must be more
// than a view. Returns how many nodes were added.
static size_t attention_chain(const rabbet_ir_t* ir,
                              const rabbet_ir_node_t* product, size_t input,
                              chain_t chain, rabbet_ir_node_t** nodes) {
  const rabbet_ir_value_t* value = rabbet_ir_input(ir, product, input);
  size_t count = 0, taken = 0;
  while (value && value->uses == 1) {
    rabbet_ir_node_t* maker = value->producer;
    if (!maker || rabbet_fuse_is_exit(ir, maker)) break;
    value = attention_before(ir, maker, &chain);
    if (!value) break;
    nodes[count++] = maker;
    if (!rabbet_op_is(maker->op, RABBET_OP_SHUFFLE) ||
        !rabbet_ir_is_view(ir, maker))
      taken = count;
  }
  return taken;
}

// The transpose or reshape that is the only reader of the node's result, or
// NULL.
static rabbet_ir_node_t* attention_after(const rabbet_ir_t* ir,
                                         const rabbet_ir_node_t* node) {
  const rabbet_ir_value_t* value = rabbet_ir_output(ir, node, 0);
  if (value->uses != 1 || rabbet_fuse_is_exit(ir, node)) return NULL;
  for (size_t i = (size_t)node->index + 1; i < ir->nodes.count; ++i) {
    rabbet_ir_node_t* reader = ir->nodes.data[i];
    if (reader->input_count > 0 && reader->inputs[0] == value->id)
      return rabbet_op_is(reader->op, RABBET_OP_SHUFFLE) &&
                     rabbet_fuse_is_move(ir, reader)
                 ? reader
                 : NULL;
  }
  return NULL;
}

// Adds the transpose after the node, and a view between the two, if there is
// one. Returns how many nodes were added.
static size_t attention_turns_after(const rabbet_ir_t* ir,
                                    const rabbet_ir_node_t* node,
                                    rabbet_ir_node_t** nodes) {
  size_t count = 0;
  for (; count < RABBET_FUSE_AFTER_MAX; node = nodes[count++]) {
    nodes[count] = attention_after(ir, node);
    if (!nodes[count]) return 0;
    if (!rabbet_ir_is_view(ir, nodes[count])) return count + 1;
  }
  return 0;
}

// Whether the node compares, joins comparisons, or chooses numbers by one.
static bool mask_is_choice(const rabbet_ir_t* ir,
                           const rabbet_ir_node_t* node) {
  if (rabbet_op_is(node->op, RABBET_OP_SELECT)) {
    for (size_t i = 1; i < 3; ++i) {
      const rabbet_ir_value_t* number = rabbet_ir_input(ir, node, i);
      if (!number->constant || rabbet_ir_count(ir, number) != 1) return false;
    }
    return true;
  }
  int64_t op = rabbet_op_is(node->op, RABBET_OP_ELEMENTWISE)
                   ? rabbet_ir_int(node, "op")
                   : -1;
  return op == RABBET_ELEMENTWISE_LESS || op == RABBET_ELEMENTWISE_GREATER ||
         op == RABBET_ELEMENTWISE_AND;
}

static bool mask_list(const rabbet_ir_t* ir, const rabbet_ir_value_t* value,
                      rabbet_ir_node_t** nodes, size_t* count) {
  if (value->constant) return true;
  rabbet_ir_node_t* maker = value->producer;
  if (!maker || *count == RABBET_FUSE_MASK_MAX ||
      rabbet_fuse_is_exit(ir, maker) || !mask_is_choice(ir, maker) ||
      rabbet_fuse_kind(ir, maker) != RABBET_FUSE_POINTWISE)
    return false;
  nodes[(*count)++] = maker;
  for (size_t i = 0; i < maker->input_count; ++i) {
    const rabbet_ir_value_t* input = rabbet_ir_input(ir, maker, i);
    if (!input || !mask_list(ir, input, nodes, count)) return false;
  }
  return true;
}

size_t rabbet_fuse_mask(const rabbet_ir_t* ir, const rabbet_ir_value_t* value,
                        rabbet_ir_node_t* out_nodes[RABBET_FUSE_MASK_MAX]) {
  size_t count = 0;
  if (!mask_list(ir, value, out_nodes, &count)) return 0;
  for (size_t i = 0; i < count / 2; ++i) {
    rabbet_ir_node_t* swap = out_nodes[i];
    out_nodes[i] = out_nodes[count - 1 - i];
    out_nodes[count - 1 - i] = swap;
  }
  return count;
}

// Adds the nodes that make masks for the listed nodes [1, count) only.
static size_t attention_add_masks(const rabbet_ir_t* ir,
                                  rabbet_ir_node_t** nodes, size_t count) {
  size_t scores = count, room = RABBET_FUSE_MASK_MAX;
  for (size_t i = 1; i < scores; ++i) {
    for (size_t k = 0; k < nodes[i]->input_count; ++k) {
      const rabbet_ir_value_t* value = rabbet_ir_input(ir, nodes[i], k);
      rabbet_ir_node_t* makers[RABBET_FUSE_MASK_MAX];
      size_t found = rabbet_fuse_mask(ir, value, makers);
      bool sole = found <= room;
      for (size_t m = 0; m < found; ++m)
        sole = sole && rabbet_ir_output(ir, makers[m], 0)->uses == 1;
      if (!sole) continue;
      for (size_t m = 0; m < found; ++m)
        nodes[count++] = makers[m];
      room -= found;
    }
  }
  return count;
}

static void attention_sort(rabbet_ir_node_t** nodes, size_t count) {
  for (size_t i = 1; i < count; ++i)
    for (size_t k = i; k > 0 && nodes[k]->index < nodes[k - 1]->index; --k) {
      rabbet_ir_node_t* swap = nodes[k];
      nodes[k] = nodes[k - 1];
      nodes[k - 1] = swap;
    }
}

static size_t attention_add_turns(const rabbet_ir_t* ir,
                                  rabbet_ir_node_t* first,
                                  rabbet_ir_node_t* last,
                                  rabbet_fuse_reach_t reach,
                                  rabbet_ir_node_t** nodes, size_t count) {
  const chain_t plain = {.reach = reach, .moves = RABBET_FUSE_CHAIN_MAX};
  chain_t scaled = plain;
  scaled.scales = RABBET_FUSE_SCALES_MAX;
  count += attention_chain(ir, first, 0, scaled, nodes + count);
  count += attention_chain(ir, first, 1, scaled, nodes + count);
  count += attention_chain(ir, last, 1, plain, nodes + count);
  if (reach >= RABBET_FUSE_TURNS)
    count += attention_turns_after(ir, last, nodes + count);
  assert(count <= RABBET_FUSE_ATTENTION_MAX);
  attention_sort(nodes, count);
  for (size_t i = 1; i < count; ++i)
    assert(nodes[i - 1]->index < nodes[i]->index);  // none occurs twice
  return count;
}

// Matches isnan(x) ? 0 : x, where x has no other readers. Returns x, and both
// nodes.
static const rabbet_ir_value_t* attention_without_nan(
    const rabbet_ir_t* ir, rabbet_ir_node_t* select, rabbet_ir_node_t** nodes) {
  const rabbet_ir_value_t* x = rabbet_ir_input(ir, select, 2);
  rabbet_ir_node_t* test = attention_maker(ir, rabbet_ir_input(ir, select, 0));
  if (!test || !rabbet_op_is(test->op, RABBET_OP_UNARY) ||
      rabbet_ir_int(test, "op") != RABBET_UNARY_ISNAN ||
      rabbet_ir_input(ir, test, 0) != x || x->uses != 2 || !x->producer ||
      rabbet_fuse_is_exit(ir, x->producer) ||
      !rabbet_ir_is_number(ir, rabbet_ir_input(ir, select, 1), 0) ||
      !rabbet_fuse_same_shape(ir, select, x->producer))
    return NULL;
  nodes[0] = test;
  nodes[1] = select;
  return x;
}

// The softmax whose result is input 0 of `last`, and the nodes between.
static rabbet_ir_node_t* attention_softmax(const rabbet_ir_t* ir,
                                           const rabbet_ir_node_t* last,
                                           rabbet_ir_node_t** nodes,
                                           size_t* count) {
  rabbet_ir_node_t* maker = attention_maker(ir, rabbet_ir_input(ir, last, 0));
  if (maker && rabbet_op_is(maker->op, RABBET_OP_CAST)) {
    nodes[(*count)++] = maker;
    maker = attention_maker(ir, rabbet_ir_input(ir, maker, 0));
  }
  if (maker && rabbet_op_is(maker->op, RABBET_OP_SELECT)) {
    const rabbet_ir_value_t* x =
        attention_without_nan(ir, maker, nodes + *count);
    maker = x && rabbet_fuse_kind(ir, x->producer) != 0 ? x->producer : NULL;
    *count += 2;
  }
  return maker && rabbet_op_is(maker->op, RABBET_OP_SOFTMAX) ? maker : NULL;
}

size_t rabbet_fuse_attention(
    const rabbet_ir_t* ir, rabbet_ir_node_t* last, rabbet_fuse_reach_t reach,
    rabbet_ir_node_t* out_nodes[RABBET_FUSE_ATTENTION_MAX]) {
  rabbet_ir_node_t* after[3];
  size_t count = 0, after_count = 0;
  if (!rabbet_op_is(last->op, RABBET_OP_MATRIX_MULTIPLY) ||
      rabbet_fuse_kind(ir, last) == 0)
    return 0;
  rabbet_ir_node_t* softmax = attention_softmax(ir, last, after, &after_count);
  if (!softmax || !attention_scores(ir, rabbet_ir_input(ir, softmax, 0), 4,
                                    reach, out_nodes, &count))
    return 0;
  assert(rabbet_op_is(out_nodes[0]->op, RABBET_OP_MATRIX_MULTIPLY));
  if (reach >= RABBET_FUSE_PLACES)
    count = attention_add_masks(ir, out_nodes, count);
  out_nodes[count++] = softmax;
  for (size_t i = after_count; i > 0; --i)
    out_nodes[count++] = after[i - 1];
  out_nodes[count++] = last;
  return reach == RABBET_FUSE_PRODUCTS
             ? count
             : attention_add_turns(ir, out_nodes[0], last, reach, out_nodes,
                                   count);
}

// ---- Quantized products -----------------------------------------------------

size_t rabbet_fuse_factors(const rabbet_ir_t* ir, const rabbet_ir_node_t* node,
                           rabbet_ir_node_t* out_makers[2]) {
  size_t count = 0;
  if (rabbet_fuse_kind(ir, node) == 0) return 0;
  rabbet_ir_node_t* packed = rabbet_ir_packed_factor(ir, node);
  if (packed) {
    out_makers[count++] = packed;
  } else if (rabbet_ir_is_quantized(ir, node)) {
    out_makers[count++] = rabbet_ir_dequantizer(ir, node, 0);
    out_makers[count++] = rabbet_ir_dequantizer(ir, node, 1);
    if (out_makers[0] == out_makers[1]) return 0;
  } else if (rabbet_ir_is_quantized_maximum(ir, node)) {
    out_makers[count++] = rabbet_ir_dequantizer(ir, node, 0);
  }
  for (size_t i = 0; i < count; ++i) {
    assert(out_makers[i]);  // both factors of a quantized product have one
    if (rabbet_ir_output(ir, out_makers[i], 0)->uses != 1 ||
        rabbet_fuse_is_exit(ir, out_makers[i]))
      return 0;
  }
  return count;
}

// ---- Products of few rows ---------------------------------------------------

// Whether the node is a product of few rows by constants.
static bool joint_is_product(const rabbet_build_t* build,
                             const rabbet_ir_node_t* node) {
  const rabbet_ir_t* ir = &build->ir;
  return (build->device->traits & RABBET_DEVICE_JOINT_PRODUCTS) != 0 &&
         rabbet_op_is(node->op, RABBET_OP_MATRIX_MULTIPLY) &&
         rabbet_fuse_kind(ir, node) != 0 &&
         rabbet_ir_int(node, "op0") == RABBET_MATRIX_NONE &&
         rabbet_ir_int(node, "op1") != RABBET_MATRIX_VECTOR &&
         rabbet_ir_has_few_rows(ir, rabbet_ir_input(ir, node, 0),
                                RABBET_FUSE_ROWS);
}

static bool joint_has_weights(const rabbet_ir_t* ir,
                              const rabbet_ir_node_t* product) {
  const rabbet_ir_value_t* weights = rabbet_ir_input(ir, product, 1);
  return rabbet_ir_packed_factor(ir, product) ||
         (rabbet_ir_is_real(weights->dtype) && weights->constant);
}

rabbet_ir_node_t* rabbet_fuse_normalization(const rabbet_build_t* build,
                                            const rabbet_ir_node_t* product) {
  const rabbet_ir_t* ir = &build->ir;
  if (!joint_is_product(build, product) || !joint_has_weights(ir, product))
    return NULL;
  const rabbet_ir_value_t* rows = rabbet_ir_input(ir, product, 0);
  rabbet_ir_node_t* node = rows->producer;
  return node && rabbet_op_is(node->op, RABBET_OP_NORMALIZATION) &&
                 rabbet_fuse_kind(ir, node) != 0 &&
                 !rabbet_fuse_is_exit(ir, node) &&
                 rabbet_ir_int(node, "is_rms") != 0 &&
                 rabbet_ir_int(node, "num_groups") == 1 &&
                 rabbet_ir_int(node, "axes") == INT64_C(1)
                                                    << (rows->shape.rank - 1)
             ? node
             : NULL;
}

bool rabbet_fuse_is_pair(const rabbet_build_t* build, const rabbet_ir_node_t* a,
                         const rabbet_ir_node_t* b) {
  const rabbet_ir_t* ir = &build->ir;
  if (a == b || !rabbet_op_is(a->op, RABBET_OP_MATRIX_MULTIPLY) ||
      !rabbet_op_is(b->op, RABBET_OP_MATRIX_MULTIPLY) ||
      a->inputs[0] != b->inputs[0] || !rabbet_fuse_same_shape(ir, a, b))
    return false;
  bool is_packed = rabbet_ir_packed_factor(ir, a) != NULL;
  if (is_packed || rabbet_ir_packed_factor(ir, b))
    return is_packed && rabbet_ir_packed_factor(ir, b);
  return joint_is_product(build, a) && joint_is_product(build, b) &&
         joint_has_weights(ir, a) && joint_has_weights(ir, b) &&
         rabbet_ir_attrs_agree(a, b);
}

// ---- The partition ----------------------------------------------------------

typedef struct partition_t {
  const rabbet_build_t* build;
  const rabbet_ir_t* ir;
  int32_t* exits;    // of each node: the last node of its region, or -1
  int32_t* ids;      // union-find
  int32_t* readers;  // exit node of all readers' region; see below
  rabbet_fuse_reach_t reach;
  bool chains;  // quantized products go on after a quantization
} partition_t;

#define READERS_NONE (-1)   // no reader yet
#define READERS_MIXED (-2)  // in different regions, or in none

static int32_t partition_find(const partition_t* p, int32_t id) {
  while (p->ids[id] != id)
    id = p->ids[id] = p->ids[p->ids[id]];
  return id;
}

static void partition_join(partition_t* p, int32_t a, int32_t b) {
  a = partition_find(p, a);
  b = partition_find(p, b);
  assert(p->ids[a] == a && p->ids[b] == b);
  // The least index names a cluster, whatever the order of joins.
  if (a < b)
    p->ids[b] = a;
  else
    p->ids[a] = b;
}

// Records the node's region as a reader of the nodes that compute its inputs.
static void partition_tell(partition_t* p, const rabbet_ir_node_t* node) {
  for (size_t i = 0; i < node->input_count; ++i) {
    const rabbet_ir_value_t* value = rabbet_ir_input(p->ir, node, i);
    if (!value || !value->producer) continue;
    int32_t maker = value->producer->index;
    int32_t region = p->exits[node->index];
    if (region < 0)
      p->readers[maker] = READERS_MIXED;
    else if (p->readers[maker] == READERS_NONE)
      p->readers[maker] = region;
    else if (p->readers[maker] != region)
      p->readers[maker] = READERS_MIXED;
  }
}

// The region that is the only reader of the node, if it has the node's shape;
// -1: none.
static int32_t partition_region(const partition_t* p,
                                const rabbet_ir_node_t* node) {
  int32_t region = p->readers[node->index];
  // A quantized result is stored, since its readers need only the 8 bits;
  // unless its only reader's region ends in 8 bits again.
  if (rabbet_op_is(node->op, RABBET_OP_QUANTIZE) &&
      (!p->chains || region < 0 ||
       rabbet_ir_output(p->ir, node, 0)->uses != 1 ||
       !rabbet_op_is(p->ir->nodes.data[region]->op, RABBET_OP_QUANTIZE)))
    return -1;
  if (region < 0 || rabbet_fuse_is_exit(p->ir, node) ||
      !rabbet_fuse_same_shape(p->ir, node, p->ir->nodes.data[region]))
    return -1;
  assert(p->exits[region] == region && region > node->index);
  return region;
}

// The point-wise node that computes input 0 for this node only; -1: none.
static int32_t partition_prologue(const partition_t* p,
                                  const rabbet_ir_node_t* node) {
  const rabbet_ir_value_t* value = rabbet_ir_input(p->ir, node, 0);
  const rabbet_ir_node_t* maker = value ? value->producer : NULL;
  if (!maker || rabbet_fuse_kind(p->ir, maker) != RABBET_FUSE_POINTWISE ||
      value->uses != 1 || rabbet_fuse_is_exit(p->ir, maker))
    return -1;
  return maker->index;
}

static void partition_node(partition_t* p, const rabbet_ir_node_t* node) {
  uint32_t kind = rabbet_fuse_kind(p->ir, node);
  p->exits[node->index] = -1;
  if (kind == RABBET_FUSE_POINTWISE) {
    int32_t region = partition_region(p, node);
    p->exits[node->index] = region >= 0 ? region : node->index;
    if (region >= 0) partition_join(p, node->index, region);
  }
  if ((kind & RABBET_FUSE_EPILOGUE) != 0 ||
      rabbet_fuse_is_operand(p->build, node)) {
    int32_t region = partition_region(p, node);
    if (region >= 0) partition_join(p, node->index, region);
  }
  if ((kind & RABBET_FUSE_PROLOGUE) != 0) {
    int32_t maker = partition_prologue(p, node);
    if (maker >= 0) partition_join(p, node->index, maker);
  }
  rabbet_ir_node_t* factors[2];
  for (size_t i = rabbet_fuse_factors(p->ir, node, factors); i-- > 0;)
    partition_join(p, node->index, factors[i]->index);
  partition_tell(p, node);
}

static void partition_attention(partition_t* p, rabbet_ir_node_t* last) {
  rabbet_ir_node_t* nodes[RABBET_FUSE_ATTENTION_MAX];
  size_t count = rabbet_fuse_attention(p->ir, last, p->reach, nodes);
  for (size_t i = 0; i < count; ++i)
    partition_join(p, nodes[i]->index, last->index);
}

static void partition_squeeze(partition_t* p, rabbet_ir_node_t* last) {
  rabbet_ir_node_t* nodes[RABBET_FUSE_SQUEEZE_MAX];
  size_t count = rabbet_fuse_squeeze(p->build, last, nodes);
  for (size_t i = 0; i < count; ++i)
    partition_join(p, nodes[i]->index, last->index);
}

// Joins each normalization with the products that read it, if all are in one
// cluster. The tables are used anew: `readers` has that cluster, `exits` the
// number of uses.
static void partition_normalizations(partition_t* p) {
  for (size_t i = 0; i < p->ir->nodes.count; ++i) {
    p->readers[i] = READERS_NONE;
    p->exits[i] = 0;
  }
  for (size_t i = 0; i < p->ir->nodes.count; ++i) {
    const rabbet_ir_node_t* before =
        rabbet_fuse_normalization(p->build, p->ir->nodes.data[i]);
    if (!before) continue;
    int32_t cluster = partition_find(p, (int32_t)i);
    int32_t* known = &p->readers[before->index];
    if (*known == READERS_NONE || *known == cluster)
      *known = cluster;
    else
      *known = READERS_MIXED;
    p->exits[before->index]++;
  }
  for (size_t i = 0; i < p->ir->nodes.count; ++i)
    if (p->readers[i] >= 0 &&
        p->exits[i] == rabbet_ir_output(p->ir, p->ir->nodes.data[i], 0)->uses)
      partition_join(p, (int32_t)i, p->readers[i]);
}

rabbet_status_t rabbet_fuse_partition(rabbet_build_t* build, int32_t* ids) {
  const rabbet_ir_t* ir = &build->ir;
  partition_t p = {
      .build = build,
      .ir = ir,
      .ids = ids,
      .reach = rabbet_fuse_reach(build),
      .chains = (build->device->traits & RABBET_DEVICE_QUANTIZED_CHAINS) != 0};
  int32_t** tables[] = {&p.exits, &p.readers};
  for (size_t i = 0; i < 2; ++i)
    RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
        &build->arena, ir->nodes.count, sizeof(int32_t), (void**)tables[i]));
  for (size_t i = 0; i < ir->nodes.count; ++i) {
    assert(ir->nodes.data[i]->index == (int32_t)i);
    ids[i] = (int32_t)i;
    p.readers[i] = READERS_NONE;
  }
  for (size_t i = ir->nodes.count; i-- > 0;)
    partition_node(&p, ir->nodes.data[i]);
  for (size_t i = 0; i < ir->nodes.count; ++i)
    partition_attention(&p, ir->nodes.data[i]);
  for (size_t i = 0; i < ir->nodes.count; ++i)
    partition_squeeze(&p, ir->nodes.data[i]);
  partition_normalizations(&p);
  for (size_t i = 0; i < ir->nodes.count; ++i)
    ids[i] = partition_find(&p, (int32_t)i);
  return rabbet_ok();
}
