// Tree ensembles of ai.onnx.ml: one layer that sums the leaves' weights, then
// base values, transforms and labels, composed of other layers.
//
// Labels and scores of two classes are those of ONNX Runtime where the trees
// have weights of one class, since the specification does not tell. Otherwise
// the label is that of the greatest score.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "onnx/ml/ml.h"
#include "onnx/operators.h"
#include "ops/selection/tree_ensemble.h"

// ---- Tables ----------------------------------------------------------------

// A node on its way into the layer's table.
typedef struct onnx_tree_node_t {
  int32_t outcomes;  // 0: a leaf
  int64_t feature;
  double split;
  int64_t yes, no;       // nodes
  int64_t first, count;  // weights of a leaf
  int32_t place;         // in the layer's table; -1: no walk reaches it
  bool is_open;          // in the depth-first walk
} onnx_tree_node_t;

typedef struct onnx_trees_t {
  onnx_tree_node_t* nodes;
  size_t node_count;
  int64_t* roots;
  size_t root_count;
  int64_t* targets;  // of the weights
  double* weights;
  size_t weight_count;
  int64_t target_count;
  int64_t aggregate;
} onnx_trees_t;

static void* onnx_tree_room(rabbet_onnx_node_t* node, size_t count,
                            size_t size) {
  void* room = NULL;
  if (!rabbet_onnx_ok(node)) return NULL;
  rabbet_onnx_fail(node, rabbet_onnx_spend_bytes(node->importer, count * size));
  if (rabbet_onnx_ok(node))
    rabbet_onnx_fail(node, rabbet_arena_allocate_array(&node->importer->arena,
                                                       count, size, &room));
  return rabbet_onnx_ok(node) ? room : NULL;
}

// In the order of ONNX's numbers of modes.
static const struct {
  const char* name;
  int32_t outcomes;
} onnx_tree_modes[] = {
    {"BRANCH_LEQ", RABBET_TREE_LESS | RABBET_TREE_EQUAL},
    {"BRANCH_LT", RABBET_TREE_LESS},
    {"BRANCH_GTE", RABBET_TREE_GREATER | RABBET_TREE_EQUAL},
    {"BRANCH_GT", RABBET_TREE_GREATER},
    {"BRANCH_EQ", RABBET_TREE_EQUAL},
    {"BRANCH_NEQ",
     RABBET_TREE_LESS | RABBET_TREE_GREATER | RABBET_TREE_UNORDERED},
};
enum { ONNX_TREE_MODES = 6, ONNX_TREE_MEMBER = 6 };

// ---- Order -----------------------------------------------------------------

// A child that a depth-first walk has still to visit, or a node to leave.
typedef struct onnx_tree_visit_t {
  int64_t node;
  bool leaves;
} onnx_tree_visit_t;

static bool onnx_tree_enter(rabbet_onnx_node_t* node, onnx_trees_t* trees,
                            int64_t at) {
  if (at < 0 || (size_t)at >= trees->node_count) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "a tree refers to node %lld, which does not exist",
                     (long long)at);
    return false;
  }
  if (trees->nodes[at].is_open)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "node %lld of a tree is its own descendant",
                     (long long)at);
  return rabbet_onnx_ok(node) && trees->nodes[at].place < 0;
}

// Numbers what is reached from `root` downwards from *place: children after
// their parents, the true child next to its parent.
static void onnx_tree_order(rabbet_onnx_node_t* node, onnx_trees_t* trees,
                            int64_t root, onnx_tree_visit_t* stack,
                            int32_t* place) {
  size_t depth = 0;
  stack[depth++] = (onnx_tree_visit_t){root, false};
  while (depth > 0 && rabbet_onnx_ok(node)) {
    onnx_tree_visit_t visit = stack[--depth];
    if (visit.leaves) {
      trees->nodes[visit.node].is_open = false;
      trees->nodes[visit.node].place = --*place;
      continue;
    }
    if (!onnx_tree_enter(node, trees, visit.node)) continue;
    onnx_tree_node_t* at = &trees->nodes[visit.node];
    at->is_open = true;
    stack[depth++] = (onnx_tree_visit_t){visit.node, true};
    if (at->outcomes == 0) continue;
    // The last one put there is visited, and numbered, first.
    stack[depth++] = (onnx_tree_visit_t){at->yes, false};
    stack[depth++] = (onnx_tree_visit_t){at->no, false};
  }
}

static void onnx_tree_check(rabbet_onnx_node_t* node,
                            const onnx_trees_t* trees) {
  for (size_t i = 0; i < trees->node_count && rabbet_onnx_ok(node); ++i) {
    const onnx_tree_node_t* at = &trees->nodes[i];
    if (at->outcomes &&
        (at->feature < 0 || at->feature >= RABBET_TREE_MOST_FEATURES))
      RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                       "node %zu compares feature %lld; expected 0 to 2^27 - 1",
                       i, (long long)at->feature);
  }
  for (size_t i = 0; i < trees->weight_count && rabbet_onnx_ok(node); ++i)
    if (trees->targets[i] < 0 || trees->targets[i] >= trees->target_count)
      RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                       "weight %zu is for target %lld; expected 0 to %lld", i,
                       (long long)trees->targets[i],
                       (long long)trees->target_count - 1);
}

// Writes a split into a node of FLOAT or, with one column more, of DOUBLE.
static void onnx_tree_write_split(int32_t* node, double split, bool is_double) {
  float narrow = (float)split;
  int32_t bits[2];
  memcpy(bits, is_double ? (const void*)&split : &narrow,
         is_double ? sizeof(split) : sizeof(narrow));
  node[1] = bits[0];
  if (is_double) node[4] = bits[1];
}

// The layer's input 'nodes', from place `first` on: places before it are of
// nodes that no walk reaches.
static rabbet_tensor_t* onnx_tree_table(rabbet_onnx_node_t* node,
                                        const onnx_trees_t* trees,
                                        int32_t first) {
  bool is_double = rabbet_onnx_wide(node) == RABBET_DTYPE_DOUBLE;
  int64_t columns =
      is_double ? RABBET_TREE_DOUBLE_COLUMNS : RABBET_TREE_COLUMNS;
  rabbet_dims_t dims = {.rank = 2,
                        .d = {(int64_t)trees->node_count - first, columns}};
  int64_t count;
  int32_t* table =
      rabbet_onnx_weights_room(node, RABBET_DTYPE_INT32, &dims, &count);
  for (size_t i = 0; table && i < trees->node_count; ++i) {
    const onnx_tree_node_t* from = &trees->nodes[i];
    if (from->place < 0) continue;
    int32_t* to = table + columns * (int64_t)(from->place - first);
    to[0] =
        (int32_t)(from->feature << RABBET_TREE_FEATURE_SHIFT) | from->outcomes;
    onnx_tree_write_split(to, from->split, is_double);
    if (from->outcomes) {
      to[2] = trees->nodes[from->yes].place - first;
      to[3] = trees->nodes[from->no].place - first;
    } else {
      to[0] = 0;
      to[1] = (int32_t)from->first;
      to[2] = (int32_t)from->count;
    }
  }
  return rabbet_onnx_weights(node, RABBET_DTYPE_INT32, table, &dims);
}

static rabbet_tensor_t* onnx_tree_int32s(rabbet_onnx_node_t* node,
                                         const int64_t* values, size_t count) {
  rabbet_dims_t dims = {.rank = 1, .d = {(int64_t)count}};
  int64_t room;
  int32_t* data =
      rabbet_onnx_weights_room(node, RABBET_DTYPE_INT32, &dims, &room);
  for (size_t i = 0; data && i < count; ++i)
    data[i] = (int32_t)values[i];
  return rabbet_onnx_weights(node, RABBET_DTYPE_INT32, data, &dims);
}

// The layer that sums the weights of the leaves: [rows, targets].
static rabbet_tensor_t* onnx_tree_layer(rabbet_onnx_node_t* node,
                                        onnx_trees_t* trees) {
  int32_t place = (int32_t)trees->node_count;
  onnx_tree_check(node, trees);
  if (rabbet_onnx_ok(node) && (trees->node_count > INT32_MAX / 8 ||
                               trees->weight_count > INT32_MAX / 8))
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "the trees have %zu nodes and %zu weights; expected at "
                     "most 2^28 of each",
                     trees->node_count, trees->weight_count);
  // Each node is put on the stack at most twice for each of its parents.
  onnx_tree_visit_t* stack = onnx_tree_room(node, 3 * trees->node_count + 2,
                                            sizeof(onnx_tree_visit_t));
  for (size_t i = trees->root_count; i > 0 && rabbet_onnx_ok(node); --i)
    onnx_tree_order(node, trees, trees->roots[i - 1], stack, &place);
  if (!rabbet_onnx_ok(node)) return NULL;
  for (size_t i = 0; i < trees->root_count; ++i)
    trees->roots[i] = trees->nodes[trees->roots[i]].place - place;
  rabbet_dtype_t dtype = rabbet_onnx_wide(node);
  rabbet_tensor_t* inputs[] = {
      rabbet_onnx_ml_rows(node, dtype), onnx_tree_table(node, trees, place),
      onnx_tree_int32s(node, trees->roots, trees->root_count),
      onnx_tree_int32s(node, trees->targets, trees->weight_count),
      rabbet_onnx_ml_number_row(node, dtype, trees->weights,
                                trees->weight_count)};
  rabbet_attr_t attrs[] = {
      RABBET_ONNX_INT("aggregate_function", trees->aggregate),
      RABBET_ONNX_INT("n_targets", trees->target_count)};
  return rabbet_onnx_layer(node, "tree_ensemble", inputs, 5, attrs, 2);
}

// ---- TreeEnsembleRegressor, TreeEnsembleClassifier: attributes -------------

// A node or a weight, found by the numbers of its tree and of its node in it.
typedef struct onnx_tree_key_t {
  int64_t tree, node;
  size_t index;
} onnx_tree_key_t;

static int onnx_tree_compare(const void* a, const void* b) {
  const onnx_tree_key_t *x = a, *y = b;
  if (x->tree != y->tree) return x->tree < y->tree ? -1 : 1;
  if (x->node != y->node) return x->node < y->node ? -1 : 1;
  return x->index < y->index ? -1 : x->index > y->index;
}

static onnx_tree_key_t* onnx_tree_keys(rabbet_onnx_node_t* node,
                                       const char* trees, const char* nodes,
                                       size_t* out_count) {
  rabbet_onnx_ints_t tree = rabbet_onnx_attr_ints(node, trees);
  rabbet_onnx_ints_t id = rabbet_onnx_attr_ints(node, nodes);
  rabbet_onnx_ml_check_count(node, nodes, id.count, trees, tree.count);
  onnx_tree_key_t* keys =
      onnx_tree_room(node, tree.count, sizeof(onnx_tree_key_t));
  *out_count = keys ? tree.count : 0;
  for (size_t i = 0; i < *out_count; ++i)
    keys[i] = (onnx_tree_key_t){tree.data[i], id.data[i], i};
  if (*out_count > 0) qsort(keys, *out_count, sizeof(*keys), onnx_tree_compare);
  return keys;
}

// The first key of this tree and node, or `count`.
static size_t onnx_tree_find(const onnx_tree_key_t* keys, size_t count,
                             int64_t tree, int64_t id) {
  onnx_tree_key_t wanted = {tree, id, 0};
  size_t low = 0, high = count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (onnx_tree_compare(&keys[middle], &wanted) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  bool found = low < count && keys[low].tree == tree && keys[low].node == id;
  return found ? low : count;
}

static int32_t onnx_tree_mode(rabbet_onnx_node_t* node, size_t index,
                              ProtobufCBinaryData name) {
  if (name.len == 4 && !memcmp(name.data, "LEAF", 4)) return 0;
  for (size_t i = 0; i < ONNX_TREE_MODES; ++i)
    if (strlen(onnx_tree_modes[i].name) == name.len &&
        !memcmp(onnx_tree_modes[i].name, name.data, name.len))
      return onnx_tree_modes[i].outcomes;
  RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                   "element %zu of the attribute 'nodes_modes' is '%.*s'; "
                   "expected LEAF or BRANCH_LEQ, _LT, _GTE, _GT, _EQ, _NEQ",
                   index, (int)(name.len < 40 ? name.len : 40),
                   (const char*)name.data);
  return 0;
}

// Nodes of the attributes nodes_...; children are found by `keys`.
static void onnx_tree_read_nodes(rabbet_onnx_node_t* node,
                                 const onnx_tree_key_t* keys,
                                 onnx_trees_t* trees) {
  const Onnx__AttributeProto* modes = rabbet_onnx_attr(node, "nodes_modes");
  rabbet_onnx_ints_t tree = rabbet_onnx_attr_ints(node, "nodes_treeids");
  rabbet_onnx_ints_t feature = rabbet_onnx_attr_ints(node, "nodes_featureids");
  rabbet_onnx_ints_t yes = rabbet_onnx_attr_ints(node, "nodes_truenodeids");
  rabbet_onnx_ints_t no = rabbet_onnx_attr_ints(node, "nodes_falsenodeids");
  rabbet_onnx_ints_t missing =
      rabbet_onnx_attr_ints(node, "nodes_missing_value_tracks_true");
  rabbet_onnx_ml_numbers_t split = rabbet_onnx_ml_numbers(node, "nodes_values");
  size_t count = trees->node_count;
  const struct {
    const char* name;
    size_t count;
  } lists[] = {{"nodes_modes", modes ? modes->n_strings : 0},
               {"nodes_featureids", feature.count},
               {"nodes_truenodeids", yes.count},
               {"nodes_falsenodeids", no.count},
               {"nodes_values", split.count},
               {"nodes_missing_value_tracks_true",
                missing.count ? missing.count : count}};
  for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); ++i)
    rabbet_onnx_ml_check_count(node, lists[i].name, lists[i].count,
                               "nodes_treeids", count);
  for (size_t i = 0; i < count && rabbet_onnx_ok(node); ++i) {
    onnx_tree_node_t* at = &trees->nodes[i];
    *at = (onnx_tree_node_t){.place = -1};
    at->outcomes = onnx_tree_mode(node, i, modes->strings[i]);
    if (at->outcomes == 0) continue;
    if (missing.count && missing.data[i]) at->outcomes |= RABBET_TREE_UNORDERED;
    at->feature = feature.data[i];
    at->split = split.data[i];
    size_t a = onnx_tree_find(keys, count, tree.data[i], yes.data[i]);
    size_t b = onnx_tree_find(keys, count, tree.data[i], no.data[i]);
    at->yes = a < count ? (int64_t)keys[a].index : -1;
    at->no = b < count ? (int64_t)keys[b].index : -1;
    if (at->yes < 0 || at->no < 0)
      RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                       "tree %lld has no node %lld, a child of element %zu",
                       (long long)tree.data[i],
                       (long long)(at->yes < 0 ? yes.data[i] : no.data[i]), i);
  }
}

// A tree's root is its first node.
static void onnx_tree_read_roots(rabbet_onnx_node_t* node,
                                 const onnx_tree_key_t* keys,
                                 onnx_trees_t* trees) {
  size_t count = trees->node_count;
  trees->roots = onnx_tree_room(node, count, sizeof(*trees->roots));
  for (size_t i = 0; trees->roots && i < count; ++i) {
    int64_t index = (int64_t)keys[i].index;
    if (i == 0 || keys[i].tree != keys[i - 1].tree)
      trees->roots[trees->root_count++] = index;
    else if (index < trees->roots[trees->root_count - 1])
      trees->roots[trees->root_count - 1] = index;
  }
}

// Weights of the attributes PREFIX_..., in the order of their nodes.
static void onnx_tree_read_weights(rabbet_onnx_node_t* node, const char* prefix,
                                   const onnx_tree_key_t* keys,
                                   onnx_trees_t* trees) {
  char name[4][32];
  static const char* const parts[] = {"treeids", "nodeids", "ids", "weights"};
  for (int i = 0; i < 4; ++i)
    snprintf(name[i], sizeof(name[i]), "%s_%s", prefix, parts[i]);
  onnx_tree_key_t* leaves =
      onnx_tree_keys(node, name[0], name[1], &trees->weight_count);
  rabbet_onnx_ints_t targets = rabbet_onnx_attr_ints(node, name[2]);
  rabbet_onnx_ml_numbers_t weights = rabbet_onnx_ml_numbers(node, name[3]);
  size_t count = trees->weight_count;
  rabbet_onnx_ml_check_count(node, name[2], targets.count, name[0], count);
  rabbet_onnx_ml_check_count(node, name[3], weights.count, name[0], count);
  trees->targets = onnx_tree_room(node, count, sizeof(*trees->targets));
  trees->weights = onnx_tree_room(node, count, sizeof(*trees->weights));
  for (size_t i = 0; i < count && rabbet_onnx_ok(node); ++i) {
    trees->targets[i] = targets.data[leaves[i].index];
    trees->weights[i] = weights.data[leaves[i].index];
    size_t found =
        onnx_tree_find(keys, trees->node_count, leaves[i].tree, leaves[i].node);
    if (found == trees->node_count) {
      RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                       "element %zu of '%s' is a weight of node %lld of tree "
                       "%lld, which does not exist",
                       leaves[i].index, name[1], (long long)leaves[i].node,
                       (long long)leaves[i].tree);
      return;
    }
    onnx_tree_node_t* leaf = &trees->nodes[keys[found].index];
    if (leaf->count == 0) leaf->first = (int64_t)i;
    ++leaf->count;
  }
}

static onnx_trees_t onnx_tree_read(rabbet_onnx_node_t* node, const char* prefix,
                                   int64_t target_count) {
  onnx_trees_t trees = {.target_count = target_count,
                        .aggregate = RABBET_TREE_SUM};
  onnx_tree_key_t* keys =
      onnx_tree_keys(node, "nodes_treeids", "nodes_nodeids", &trees.node_count);
  trees.nodes = onnx_tree_room(node, trees.node_count, sizeof(*trees.nodes));
  onnx_tree_read_nodes(node, keys, &trees);
  onnx_tree_read_roots(node, keys, &trees);
  onnx_tree_read_weights(node, prefix, keys, &trees);
  return trees;
}

// ---- TreeEnsembleRegressor -------------------------------------------------

static int64_t onnx_tree_aggregate(rabbet_onnx_node_t* node) {
  static const char* const names[] = {"AVERAGE", "SUM", "MIN", "MAX"};
  const char* name = rabbet_onnx_attr_string(node, "aggregate_function", "SUM");
  for (int i = 0; i < 4; ++i)
    if (!strcmp(name, names[i])) return i;
  RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                   "attribute 'aggregate_function' is '%s'; expected AVERAGE, "
                   "SUM, MIN or MAX",
                   name);
  return RABBET_TREE_SUM;
}

static rabbet_tensor_t* onnx_tree_base(rabbet_onnx_node_t* node,
                                       rabbet_tensor_t* y,
                                       rabbet_onnx_ml_numbers_t base) {
  if (base.count == 0 || !rabbet_onnx_ok(node)) return y;
  return rabbet_onnx_binary(
      node, "SUM", y,
      rabbet_onnx_ml_number_row(node, rabbet_onnx_dtype_of(node, y), base.data,
                                base.count));
}

// ONNX Runtime transforms a single target by PROBIT alone.
static void onnx_import_tree_regressor(rabbet_onnx_node_t* node) {
  int64_t targets = rabbet_onnx_attr_int(node, "n_targets", 1);
  rabbet_onnx_ml_numbers_t base = rabbet_onnx_ml_numbers(node, "base_values");
  rabbet_onnx_transform_t transform = rabbet_onnx_ml_transform(node);
  onnx_trees_t trees = onnx_tree_read(node, "target", targets);
  trees.aggregate = onnx_tree_aggregate(node);
  if (base.count)
    rabbet_onnx_ml_check_count(node, "base_values", base.count, "n_targets",
                               (size_t)targets);
  rabbet_tensor_t* y = rabbet_onnx_cast(
      node, onnx_tree_base(node, onnx_tree_layer(node, &trees), base),
      RABBET_DTYPE_FLOAT);
  if (targets == 1 && transform != RABBET_ONNX_TRANSFORM_PROBIT)
    transform = RABBET_ONNX_TRANSFORM_NONE;
  node->outputs[0] = rabbet_onnx_ml_apply(node, transform, y);
}

// ---- TreeEnsembleClassifier ------------------------------------------------

static rabbet_tensor_t* onnx_tree_column(rabbet_onnx_node_t* node,
                                         rabbet_tensor_t* x, int64_t at) {
  rabbet_onnx_slice_t slice = rabbet_onnx_slice_all(node, x);
  slice.start[1] = rabbet_onnx_index(at);
  slice.size[1] = rabbet_onnx_index(1);
  return rabbet_onnx_slice(node, x, &slice);
}

// Two classes, of which the trees know one: its score decides the label. Class
// 0 alone stands for the second class, as converters write it.
static void onnx_tree_one_of_two(rabbet_onnx_node_t* node, size_t known,
                                 bool is_positive, rabbet_onnx_labels_t labels,
                                 rabbet_onnx_transform_t transform,
                                 rabbet_onnx_ml_numbers_t base,
                                 rabbet_tensor_t* sums) {
  if (rabbet_onnx_ok(node) && known == 1 && base.count)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "there are weights of the second of two classes alone, "
                     "and base_values; expected weights of the first, or of "
                     "both");
  rabbet_tensor_t* one = onnx_tree_column(node, sums, (int64_t)known);
  if (base.count)
    one = onnx_tree_base(node, one, (rabbet_onnx_ml_numbers_t){1, base.data});
  rabbet_onnx_ml_set_labels(
      node, labels, rabbet_onnx_ml_above(node, one, is_positive ? 0.5 : 0));
  if (known == 0 && base.count < 2) {
    node->outputs[1] = rabbet_onnx_ml_both(node, transform, is_positive, one);
    return;
  }
  rabbet_tensor_t* scores[] = {one, onnx_tree_column(node, sums, 1)};
  if (known == 1) scores[0] = onnx_tree_column(node, sums, 0);
  node->outputs[1] = rabbet_onnx_ml_apply(
      node, transform, rabbet_onnx_concat(node, scores, 2, 1));
}

// Whether only one of two classes has weights, which one, and whether all are
// positive.
static bool onnx_tree_knows_one(const onnx_trees_t* trees, size_t* out_known,
                                bool* out_positive) {
  bool has[2] = {false, false};
  *out_positive = true;
  for (size_t i = 0; i < trees->weight_count; ++i) {
    has[trees->targets[i] == 1] = true;
    if (trees->weights[i] < 0) *out_positive = false;
  }
  *out_known = has[1];
  return trees->target_count == 2 && has[0] != has[1];
}

static void onnx_import_tree_classifier(rabbet_onnx_node_t* node) {
  rabbet_onnx_labels_t labels =
      rabbet_onnx_ml_labels(node, "classlabels_int64s");
  rabbet_onnx_ml_numbers_t base = rabbet_onnx_ml_numbers(node, "base_values");
  rabbet_onnx_transform_t transform = rabbet_onnx_ml_transform(node);
  onnx_trees_t trees = onnx_tree_read(node, "class", (int64_t)labels.count);
  if (rabbet_onnx_ok(node) && labels.count < 2)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "there are labels for %zu classes; expected 2 or more",
                     labels.count);
  size_t known;
  bool is_positive;
  rabbet_tensor_t* sums =
      rabbet_onnx_cast(node, onnx_tree_layer(node, &trees), RABBET_DTYPE_FLOAT);
  if (base.count && !(labels.count == 2 && base.count == 1))
    rabbet_onnx_ml_check_count(node, "base_values", base.count, "classlabels",
                               labels.count);
  if (!rabbet_onnx_ok(node)) return;
  if (onnx_tree_knows_one(&trees, &known, &is_positive)) {
    onnx_tree_one_of_two(node, known, is_positive, labels, transform, base,
                         sums);
    return;
  }
  const double first[] = {base.count ? base.data[0] : 0, 0};
  if (base.count == 1) base = (rabbet_onnx_ml_numbers_t){2, first};
  rabbet_tensor_t* scores = onnx_tree_base(node, sums, base);
  rabbet_onnx_ml_set_labels(node, labels, rabbet_onnx_ml_best(node, scores));
  node->outputs[1] = rabbet_onnx_ml_apply(node, transform, scores);
}

// ---- TreeEnsemble ----------------------------------------------------------

// The lists of the attributes of a TreeEnsemble.
typedef struct onnx_ensemble_t {
  rabbet_onnx_ints_t feature, yes, no, yes_leaf, no_leaf, missing;
  rabbet_onnx_ml_numbers_t mode, split, members;
  size_t member;  // the next of `members`
  size_t count, leaf_count;
} onnx_ensemble_t;

static onnx_ensemble_t onnx_ensemble_read(rabbet_onnx_node_t* node) {
  onnx_ensemble_t e = {
      .feature = rabbet_onnx_attr_ints(node, "nodes_featureids"),
      .yes = rabbet_onnx_attr_ints(node, "nodes_truenodeids"),
      .no = rabbet_onnx_attr_ints(node, "nodes_falsenodeids"),
      .yes_leaf = rabbet_onnx_attr_ints(node, "nodes_trueleafs"),
      .no_leaf = rabbet_onnx_attr_ints(node, "nodes_falseleafs"),
      .missing = rabbet_onnx_attr_ints(node, "nodes_missing_value_tracks_true"),
      .mode = rabbet_onnx_ml_tensor(node, "nodes_modes"),
      .split = rabbet_onnx_ml_tensor(node, "nodes_splits"),
      .members = rabbet_onnx_ml_tensor(node, "membership_values")};
  e.count = e.feature.count;
  const struct {
    const char* name;
    size_t count;
  } lists[] = {{"nodes_truenodeids", e.yes.count},
               {"nodes_falsenodeids", e.no.count},
               {"nodes_trueleafs", e.yes_leaf.count},
               {"nodes_falseleafs", e.no_leaf.count},
               {"nodes_modes", e.mode.count},
               {"nodes_splits", e.split.count},
               {"nodes_missing_value_tracks_true",
                e.missing.count ? e.missing.count : e.count}};
  for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); ++i)
    rabbet_onnx_ml_check_count(node, lists[i].name, lists[i].count,
                               "nodes_featureids", e.count);
  return e;
}

// A child's place: leaves follow the nodes.
static int64_t onnx_ensemble_child(rabbet_onnx_node_t* node,
                                   const onnx_ensemble_t* e,
                                   rabbet_onnx_ints_t ids,
                                   rabbet_onnx_ints_t leaves, size_t index) {
  int64_t id = ids.data[index];
  bool is_leaf = leaves.data[index] != 0;
  size_t count = is_leaf ? e->leaf_count : e->count;
  if (id >= 0 && (size_t)id < count)
    return is_leaf ? (int64_t)e->count + id : id;
  RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                   "node %zu has the child %lld of %zu %s", index,
                   (long long)id, count, is_leaf ? "leaves" : "nodes");
  return 0;
}

// A node that asks for a member of a set: one that compares with the set's
// first number, and, from `extra` on, others for the rest, each the false child
// of the one before. A NaN ends the set.
static void onnx_ensemble_member(onnx_ensemble_t* e, onnx_tree_node_t* nodes,
                                 size_t at, size_t* extra) {
  onnx_tree_node_t made = nodes[at];
  made.outcomes |= RABBET_TREE_EQUAL;
  made.split = NAN;  // of an empty set: equal to nothing
  bool is_first = true;
  for (; e->member < e->members.count; ++e->member) {
    double value = e->members.data[e->member];
    if (isnan(value)) {
      ++e->member;
      break;
    }
    made.split = value;
    if (!is_first) {
      nodes[at].no = (int64_t)*extra;
      at = (*extra)++;
    }
    nodes[at] = made;
    is_first = false;
  }
  if (is_first) {
    made.outcomes = RABBET_TREE_EQUAL;
    nodes[at] = made;
  }
}

static void onnx_ensemble_nodes(rabbet_onnx_node_t* node, onnx_ensemble_t* e,
                                onnx_trees_t* trees) {
  size_t extra = e->count + e->leaf_count;
  for (size_t i = 0; i < e->count && rabbet_onnx_ok(node); ++i) {
    onnx_tree_node_t* at = &trees->nodes[i];
    double mode = e->mode.data[i];
    if (!(mode >= 0 && mode <= ONNX_TREE_MEMBER)) {
      RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                       "element %zu of the attribute 'nodes_modes' is %g; "
                       "expected 0 to 6",
                       i, mode);
      return;
    }
    *at = (onnx_tree_node_t){
        .place = -1,
        .feature = e->feature.data[i],
        .split = e->split.data[i],
        .yes = onnx_ensemble_child(node, e, e->yes, e->yes_leaf, i),
        .no = onnx_ensemble_child(node, e, e->no, e->no_leaf, i)};
    if (e->missing.count && e->missing.data[i])
      at->outcomes = RABBET_TREE_UNORDERED;
    if ((int)mode == ONNX_TREE_MEMBER)
      onnx_ensemble_member(e, trees->nodes, i, &extra);
    else
      at->outcomes |= onnx_tree_modes[(int)mode].outcomes;
  }
  for (size_t i = 0; i < e->leaf_count && rabbet_onnx_ok(node); ++i)
    trees->nodes[e->count + i] =
        (onnx_tree_node_t){.place = -1, .first = (int64_t)i, .count = 1};
  trees->node_count = extra;
}

static void onnx_import_tree_ensemble(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  onnx_ensemble_t e = onnx_ensemble_read(node);
  rabbet_onnx_ints_t roots = rabbet_onnx_attr_ints(node, "tree_roots");
  rabbet_onnx_ints_t targets = rabbet_onnx_attr_ints(node, "leaf_targetids");
  rabbet_onnx_ml_numbers_t weights =
      rabbet_onnx_ml_tensor(node, "leaf_weights");
  int64_t transform = rabbet_onnx_attr_int(node, "post_transform", 0);
  onnx_trees_t trees = {
      .target_count = rabbet_onnx_attr_int(node, "n_targets", 1),
      .aggregate = rabbet_onnx_attr_int(node, "aggregate_function", 1),
      .weight_count = weights.count};
  e.leaf_count = weights.count;
  rabbet_onnx_ml_check_count(node, "leaf_targetids", targets.count,
                             "leaf_weights", weights.count);
  if (rabbet_onnx_ok(node) &&
      (transform < 0 || transform > RABBET_ONNX_TRANSFORM_PROBIT))
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "attribute 'post_transform' is %lld; expected 0 to 4",
                     (long long)transform);
  trees.nodes = onnx_tree_room(node, e.count + e.leaf_count + e.members.count,
                               sizeof(*trees.nodes));
  trees.roots = onnx_tree_room(node, roots.count, sizeof(*trees.roots));
  trees.targets = onnx_tree_room(node, targets.count, sizeof(*trees.targets));
  trees.weights = onnx_tree_room(node, weights.count, sizeof(*trees.weights));
  onnx_ensemble_nodes(node, &e, &trees);
  if (!rabbet_onnx_ok(node)) return;
  trees.root_count = roots.count;
  for (size_t i = 0; i < roots.count; ++i) {
    trees.roots[i] = roots.data[i];
    if (roots.data[i] < 0 || (size_t)roots.data[i] >= e.count)
      RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                       "element %zu of the attribute 'tree_roots' is %lld; "
                       "there are %zu nodes",
                       i, (long long)roots.data[i], e.count);
  }
  if (targets.count) {
    memcpy(trees.targets, targets.data, targets.count * sizeof(int64_t));
    memcpy(trees.weights, weights.data, weights.count * sizeof(double));
  }
  rabbet_tensor_t* y = onnx_tree_layer(node, &trees);
  if (trees.target_count == 1 && transform != RABBET_ONNX_TRANSFORM_PROBIT)
    transform = RABBET_ONNX_TRANSFORM_NONE;
  y = rabbet_onnx_ml_apply(node, (rabbet_onnx_transform_t)transform, y);
  node->outputs[0] = rabbet_onnx_cast(node, y, rabbet_onnx_dtype_of(node, x));
}

RABBET_ONNX_OPERATORS(ml_trees) = {
    RABBET_ONNX_ML_OP(TreeEnsemble, tree_ensemble, "", 5),
    RABBET_ONNX_ML_OP(TreeEnsembleClassifier, tree_classifier, "", 1, 3, 5),
    RABBET_ONNX_ML_OP(TreeEnsembleRegressor, tree_regressor, "", 1, 3, 5),
    {0},
};
