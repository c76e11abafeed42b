// A decoder's layers between the products of tokens and attention:
//   queries -> rotation
//   keys    -> rotation -> update of their cache
//   values              -> update of their cache
// with shuffles between that split columns into heads and transpose these
// before or behind the rotation. They become one cached_rotation of one tensor,
// whose parts queries, keys and values are: slices of it, or results of
// products that are joined. Rotated keys, or values, that others than their
// cache read stay as they are: the new layer gives only caches.
#include <assert.h>
#include <string.h>

#include "builder/ir/passes.h"
#include "ops/enums.h"

enum { QUERIES, KEYS, VALUES, PARTS };
enum { COSINES, SINES, TABLES };

// A table [batch or 1, 1, steps or 1, entries]; `swapped`: it has the middle
// axes the other way round, for rotations before a transpose of heads.
typedef struct cached_table_t {
  rabbet_ir_value_t* value;
  bool swapped;
} cached_table_t;

typedef struct cached_t {
  rabbet_heads_t heads[PARTS];
  rabbet_heads_layout_t layout;      // of the rotated queries
  rabbet_ir_node_t* rotations[2];    // of queries and keys
  rabbet_ir_node_t* updates[PARTS];  // of keys and values
  rabbet_ir_value_t* sources[PARTS];
  cached_table_t tables[TABLES];
} cached_t;

// The pass, and constants that the layers of a network share.
typedef struct cached_pass_t {
  rabbet_build_t* build;
  // Constant tables, and what they are with the middle axes swapped.
  int32_t constants[TABLES], swapped[TABLES];
} cached_pass_t;

// ---- Which -----------------------------------------------------------------

static bool cached_is(const rabbet_ir_t* ir, const rabbet_ir_node_t* node,
                      rabbet_op_id_t op) {
  return node && !node->dead && rabbet_op_is(node->op, op) &&
         !rabbet_ir_has_wishes(ir, node);
}

// An update of rows of a cache [batch, heads, extent, width].
static bool cached_is_update(const rabbet_ir_t* ir,
                             const rabbet_ir_node_t* node) {
  if (!cached_is(ir, node, RABBET_OP_KV_CACHE_UPDATE)) return false;
  int64_t axis = rabbet_ir_int(node, "axis");
  rabbet_dims_t update = rabbet_ir_dims(ir, rabbet_ir_input(ir, node, 1));
  return update.rank == 4 && update.d[1] > 0 && update.d[3] > 0 &&
         (axis == 2 || axis == -2) &&
         rabbet_ir_is_real(rabbet_ir_output(ir, node, 0)->dtype);
}

static rabbet_heads_t cached_heads(const rabbet_ir_t* ir,
                                   const rabbet_ir_node_t* update) {
  const rabbet_ir_value_t* rows = rabbet_ir_input(ir, update, 1);
  rabbet_dims_t dims = rabbet_ir_dims(ir, rows);
  assert(cached_is_update(ir, update));
  return (rabbet_heads_t){.batch = rows->shape.d[0],
                          .steps = rows->shape.d[2],
                          .count = dims.d[1],
                          .width = dims.d[3]};
}

static int32_t cached_indices(const rabbet_ir_node_t* update) {
  return update->input_count > 2 ? update->inputs[2] : -1;
}

static bool cached_updates_agree(const rabbet_ir_t* ir,
                                 const rabbet_ir_node_t* a,
                                 const rabbet_ir_node_t* b) {
  return rabbet_ir_attrs_agree(a, b) &&
         cached_indices(a) == cached_indices(b) &&
         rabbet_ir_shape_equal(&rabbet_ir_input(ir, a, 1)->shape,
                               &rabbet_ir_input(ir, b, 1)->shape) &&
         rabbet_ir_shape_equal(&rabbet_ir_output(ir, a, 0)->shape,
                               &rabbet_ir_output(ir, b, 0)->shape);
}

// A table of a rotation of heads of this layout that all heads share.
static bool cached_table(const rabbet_ir_t* ir, const rabbet_heads_t* heads,
                         rabbet_heads_layout_t layout, rabbet_ir_value_t* value,
                         cached_table_t* out) {
  int64_t perm[RABBET_MAX_RANK];
  rabbet_dims_t dims = rabbet_ir_dims(ir, value);
  bool inner = layout == RABBET_HEADS_INNER;
  int32_t steps = inner ? 1 : 2;
  *out = (cached_table_t){.value = value, .swapped = inner && dims.d[1] != 1};
  if (dims.d[3 - steps] != 1 ||
      (dims.d[steps] != 1 && value->shape.d[steps] != heads->steps) ||
      (dims.d[0] != 1 && value->shape.d[0] != heads->batch))
    return false;
  if (out->swapped && cached_is(ir, value->producer, RABBET_OP_SHUFFLE) &&
      rabbet_ir_permutation(ir, value->producer, perm) &&
      rabbet_ir_swaps_heads(perm, (size_t)dims.rank))
    *out = (cached_table_t){.value = rabbet_ir_input(ir, value->producer, 0)};
  return true;
}

// A rotation of heads of this layout; finds its tables.
static bool cached_is_rotation(const rabbet_ir_t* ir,
                               const rabbet_ir_node_t* node,
                               const rabbet_heads_t* heads,
                               rabbet_heads_layout_t layout,
                               cached_table_t out_tables[TABLES]) {
  if (!cached_is(ir, node, RABBET_OP_ROTATION) ||
      !rabbet_ir_has_heads(ir, rabbet_ir_input(ir, node, 0), heads, layout))
    return false;
  for (size_t i = 0; i < TABLES; ++i)
    if (!cached_table(ir, heads, layout, rabbet_ir_input(ir, node, i + 1),
                      &out_tables[i]))
      return false;
  return true;
}

// The tensor that the source is a slice or a product of; NULL: neither.
static const rabbet_ir_value_t* cached_root(const rabbet_ir_t* ir,
                                            const rabbet_ir_value_t* source) {
  const rabbet_ir_node_t* node = source->producer;
  if (cached_is(ir, node, RABBET_OP_ELEMENTWISE)) {
    bool first = rabbet_ir_input(ir, node, 0)->constant != NULL;
    node = rabbet_ir_input(ir, node, first ? 1 : 0)->producer;
  }
  return cached_is(ir, node, RABBET_OP_SLICE) ||
                 cached_is(ir, node, RABBET_OP_MATRIX_MULTIPLY)
             ? rabbet_ir_input(ir, node, 0)
             : NULL;
}

// The value whose columns are these heads; NULL: there is none.
static rabbet_ir_value_t* cached_source(const rabbet_ir_t* ir,
                                        rabbet_ir_value_t* value,
                                        const rabbet_heads_t* heads,
                                        rabbet_heads_layout_t layout) {
  value = rabbet_ir_heads_origin(ir, value, heads, &layout);
  return layout == RABBET_HEADS_JOINED ? value : NULL;
}

static bool cached_find_keys(const rabbet_ir_t* ir, rabbet_ir_node_t* update,
                             cached_t* out) {
  if (!cached_is_update(ir, update)) return false;
  rabbet_heads_t heads = cached_heads(ir, update);
  rabbet_heads_layout_t layout = RABBET_HEADS_OUTER;
  rabbet_ir_value_t* rotated = rabbet_ir_heads_origin(
      ir, rabbet_ir_input(ir, update, 1), &heads, &layout);
  rabbet_ir_node_t* turn =
      rabbet_ir_sole_producer(ir, rotated, RABBET_OP_ROTATION);
  *out = (cached_t){.heads = {[KEYS] = heads, [VALUES] = heads},
                    .rotations = {[KEYS] = turn},
                    .updates = {[KEYS] = update}};
  if (!turn || !cached_is_rotation(ir, turn, &heads, layout, out->tables))
    return false;
  out->sources[KEYS] =
      cached_source(ir, rabbet_ir_input(ir, turn, 0), &heads, layout);
  return out->sources[KEYS] != NULL;
}

static bool cached_find_values(const rabbet_ir_t* ir,
                               const rabbet_ir_value_t* root,
                               rabbet_ir_node_t* update, cached_t* out) {
  if (!cached_is_update(ir, update) ||
      !cached_updates_agree(ir, out->updates[KEYS], update))
    return false;
  rabbet_ir_value_t* source =
      cached_source(ir, rabbet_ir_input(ir, update, 1), &out->heads[VALUES],
                    RABBET_HEADS_OUTER);
  if (!source || cached_root(ir, source) != root) return false;
  out->updates[VALUES] = update;
  out->sources[VALUES] = source;
  return true;
}

// Whether constants are one table, with the middle axes swapped or not: those
// of a rotation whose transpose simplification moves are another constant.
static bool cached_constants_agree(const rabbet_ir_t* ir,
                                   const rabbet_ir_value_t* a,
                                   const rabbet_ir_value_t* b) {
  rabbet_dims_t x = rabbet_ir_dims(ir, a), y = rabbet_ir_dims(ir, b);
  if (!a->constant || !b->constant || a->is_deferred || b->is_deferred ||
      a->dtype != b->dtype || x.d[0] != y.d[0] ||
      x.d[1] * x.d[2] != y.d[1] * y.d[2] || x.d[3] != y.d[3])
    return false;
  assert((x.d[1] == 1 || x.d[2] == 1) && (y.d[1] == 1 || y.d[2] == 1));
  return memcmp(a->constant, b->constant,
                (size_t)rabbet_ir_count(ir, a) *
                    (rabbet_dtype_bits(a->dtype) / 8)) == 0;
}

static bool cached_tables_agree(const rabbet_ir_t* ir,
                                const cached_table_t a[TABLES],
                                const cached_table_t b[TABLES]) {
  for (size_t i = 0; i < TABLES; ++i)
    if ((a[i].value != b[i].value || a[i].swapped != b[i].swapped) &&
        !cached_constants_agree(ir, a[i].value, b[i].value))
      return false;
  return true;
}

static bool cached_find_queries(const rabbet_ir_t* ir,
                                const rabbet_ir_value_t* root,
                                rabbet_ir_node_t* turn,
                                rabbet_heads_layout_t layout, cached_t* out) {
  cached_table_t tables[TABLES];
  rabbet_heads_t heads = out->heads[KEYS];
  if (!cached_is(ir, turn, RABBET_OP_ROTATION) ||
      !rabbet_ir_attrs_agree(turn, out->rotations[KEYS]))
    return false;
  rabbet_ir_value_t* x = rabbet_ir_input(ir, turn, 0);
  rabbet_dims_t dims = rabbet_ir_dims(ir, x);
  heads.count =
      dims.rank == 4 ? dims.d[layout == RABBET_HEADS_OUTER ? 1 : 2] : -1;
  if (heads.count <= 0 ||
      !cached_is_rotation(ir, turn, &heads, layout, tables) ||
      !cached_tables_agree(ir, tables, out->tables))
    return false;
  rabbet_ir_value_t* source = cached_source(ir, x, &heads, layout);
  if (!source || cached_root(ir, source) != root) return false;
  out->heads[QUERIES] = heads;
  out->layout = layout;
  out->rotations[QUERIES] = turn;
  out->sources[QUERIES] = source;
  return true;
}

// The other update, and the rotation of queries.
static bool cached_find(const rabbet_ir_t* ir, rabbet_ir_node_t* update,
                        cached_t* out) {
  if (!cached_find_keys(ir, update, out)) return false;
  const rabbet_ir_value_t* root = cached_root(ir, out->sources[KEYS]);
  for (size_t i = 0; root && i < ir->nodes.count; ++i) {
    rabbet_ir_node_t* node = ir->nodes.data[i];
    if (node == update || node == out->rotations[KEYS]) continue;
    if (!out->updates[VALUES]) cached_find_values(ir, root, node, out);
    if (!out->rotations[QUERIES] &&
        !cached_find_queries(ir, root, node, RABBET_HEADS_OUTER, out))
      cached_find_queries(ir, root, node, RABBET_HEADS_INNER, out);
  }
  return out->updates[VALUES] && out->rotations[QUERIES];
}

// ---- The tensor ------------------------------------------------------------

// Whether the node takes columns [start, start + size) of [batch, steps,
// columns].
static bool cached_columns(const rabbet_ir_t* ir, const rabbet_ir_node_t* slice,
                           int64_t start, int64_t size) {
  rabbet_ir_window_t window;
  if (!cached_is(ir, slice, RABBET_OP_SLICE) ||
      !rabbet_ir_window(ir, slice, &window))
    return false;
  const rabbet_shape_t *x = &rabbet_ir_input(ir, slice, 0)->shape,
                       *y = &rabbet_ir_output(ir, slice, 0)->shape;
  rabbet_dims_t dims = rabbet_ir_dims(ir, rabbet_ir_output(ir, slice, 0));
  return x->rank == 3 && x->d[0] == y->d[0] && x->d[1] == y->d[1] &&
         window.start[0] == 0 && window.start[1] == 0 &&
         window.start[2] == start && window.stride[2] == 1 && dims.d[2] == size;
}

// *out_joint: the tensor of which the sources are all columns, in this order;
// NULL: there is none.
static rabbet_status_t cached_join(rabbet_build_t* build, const cached_t* found,
                                   rabbet_ir_value_t** out_joint) {
  rabbet_ir_t* ir = &build->ir;
  int64_t start = 0;
  *out_joint = NULL;
  if (!rabbet_op_is(found->sources[0]->producer->op, RABBET_OP_SLICE))
    return rabbet_ir_join_products(build, found->sources, PARTS, out_joint);
  for (int i = 0; i < PARTS; ++i) {
    int64_t columns = found->heads[i].count * found->heads[i].width;
    if (!cached_columns(ir, found->sources[i]->producer, start, columns))
      return rabbet_ok();
    start += columns;
  }
  rabbet_ir_value_t* joint =
      rabbet_ir_input(ir, found->sources[0]->producer, 0);
  if (rabbet_ir_dims(ir, joint).d[2] == start) *out_joint = joint;
  return rabbet_ok();
}

// ---- Rotated queries -------------------------------------------------------

// The transpose of heads that the node begins with; NULL: there is none.
static const char* cached_transpose(const rabbet_ir_t* ir,
                                    const rabbet_ir_node_t* node) {
  int64_t perm[RABBET_MAX_RANK];
  size_t count = 0;
  if (!cached_is(ir, node, RABBET_OP_SHUFFLE)) return NULL;
  const int64_t* first = rabbet_ir_ints(node, "first_transpose", &count);
  if (rabbet_ir_swaps_heads(first, count)) return "first_transpose";
  return count == 0 && rabbet_ir_permutation(ir, node, perm) &&
                 rabbet_ir_swaps_heads(perm, 4)
             ? "second_transpose"
             : NULL;
}

static bool cached_all_transpose(const rabbet_ir_t* ir,
                                 const rabbet_ir_value_t* queries) {
  int32_t left = queries->uses;
  for (size_t i = 0; left > 0 && i < ir->nodes.count; ++i) {
    const rabbet_ir_node_t* node = ir->nodes.data[i];
    left -=
        rabbet_ir_input(ir, node, 0) == queries && cached_transpose(ir, node);
  }
  return left == 0 && queries->output < 0;
}

// Whether the layer's queries [batch, heads, steps, width] can be what is read
// of the rotated ones: these have that layout, or one that is a view of it, or
// all readers transpose them.
static bool cached_serves_queries(const rabbet_ir_t* ir,
                                  const cached_t* found) {
  return found->layout == RABBET_HEADS_OUTER ||
         rabbet_ir_heads_are_views(ir, &found->heads[QUERIES]) ||
         cached_all_transpose(
             ir, rabbet_ir_output(ir, found->rotations[QUERIES], 0));
}

// Readers that transpose rotated queries read those of the layer as they are.
static rabbet_status_t cached_drop_transposes(
    rabbet_build_t* build, const rabbet_ir_value_t* old,
    const rabbet_ir_value_t* queries) {
  rabbet_ir_t* ir = &build->ir;
  bool changed = false;
  for (size_t i = 0; old->uses > 0 && i < ir->nodes.count; ++i) {
    rabbet_ir_node_t* node = ir->nodes.data[i];
    if (node->dead || rabbet_ir_input(ir, node, 0) != old) continue;
    const char* transpose = cached_transpose(ir, node);
    assert(transpose);
    RABBET_RETURN_IF_ERROR(rabbet_ir_set_ints(build, node, transpose, NULL, 0));
    rabbet_ir_set_input(ir, node, 0, queries->id);
    RABBET_RETURN_IF_ERROR(rabbet_rule_shuffle(build, node, &changed));
  }
  return rabbet_ok();
}

static rabbet_status_t cached_give_queries(rabbet_build_t* build,
                                           const cached_t* found,
                                           const rabbet_ir_node_t* before,
                                           rabbet_ir_value_t* queries) {
  static const int64_t perm[] = {0, 2, 1, 3};
  rabbet_ir_t* ir = &build->ir;
  const rabbet_ir_node_t* turn = found->rotations[QUERIES];
  rabbet_ir_value_t* old = rabbet_ir_output(ir, turn, 0);
  rabbet_ir_node_t* view = NULL;
  if (found->layout == RABBET_HEADS_INNER) {
    if (cached_all_transpose(ir, old))
      return cached_drop_transposes(build, old, queries);
    RABBET_RETURN_IF_ERROR(rabbet_ir_add_permutation(
        build, before, turn->name, queries->id, perm, 4, &view));
    queries = rabbet_ir_output(ir, view, 0);
  }
  assert(rabbet_ir_shape_equal(&old->shape, &queries->shape));
  rabbet_ir_replace_uses(ir, old, queries);
  return rabbet_ok();
}

// ---- The layer -------------------------------------------------------------

// Whether the new node has its operands where it is put: before the first node
// that it replaces. The joint tensor is computed before the parts.
static bool cached_is_ready(const rabbet_ir_t* ir, const cached_t* found,
                            const rabbet_ir_node_t* before) {
  const int32_t operands[] = {
      found->updates[KEYS]->inputs[0], found->updates[VALUES]->inputs[0],
      found->tables[COSINES].value->id, found->tables[SINES].value->id,
      cached_indices(found->updates[KEYS])};
  for (size_t i = 0; i < sizeof(operands) / sizeof(operands[0]); ++i) {
    const rabbet_ir_node_t* maker =
        operands[i] < 0 ? NULL : ir->values.data[operands[i]]->producer;
    if (maker && maker->index >= before->index) return false;
  }
  return true;
}

static bool cached_can_replace(const rabbet_ir_t* ir, const cached_t* found) {
  const rabbet_ir_value_t* queries =
      rabbet_ir_output(ir, found->rotations[QUERIES], 0);
  const rabbet_ir_value_t* x = found->sources[KEYS];
  bool fits = !queries->is_read_by_host && queries->dtype == x->dtype &&
              cached_serves_queries(ir, found);
  for (int i = KEYS; i < PARTS; ++i) {
    const rabbet_ir_value_t* whole = rabbet_ir_output(ir, found->updates[i], 0);
    fits = fits && !whole->is_read_by_host && whole->dtype == x->dtype;
  }
  return fits;
}

// The table as the layer reads it. All layers of a network share constants.
static rabbet_status_t cached_add_table(cached_pass_t* pass,
                                        const cached_t* found, size_t i,
                                        const rabbet_ir_node_t* before,
                                        int32_t* out_value) {
  static const int64_t perm[] = {0, 2, 1, 3};
  rabbet_ir_t* ir = &pass->build->ir;
  const rabbet_ir_value_t* value = found->tables[i].value;
  *out_value = value->id;
  if (!found->tables[i].swapped) return rabbet_ok();
  if (!value->constant || value->is_deferred) {
    rabbet_ir_node_t* view = NULL;
    RABBET_RETURN_IF_ERROR(rabbet_ir_add_permutation(
        pass->build, before, value->name, value->id, perm, 4, &view));
    *out_value = view->outputs[0];
    return rabbet_ok();
  }
  if (pass->constants[i] != value->id) {
    rabbet_dims_t dims = rabbet_ir_dims(ir, value);
    assert(dims.rank == 4 && dims.d[2] == 1);
    dims.d[2] = dims.d[1];
    dims.d[1] = 1;
    RABBET_RETURN_IF_ERROR(
        rabbet_ir_reshape_constant(ir, value, &dims, &pass->swapped[i]));
    pass->constants[i] = value->id;
  }
  *out_value = pass->swapped[i];
  return rabbet_ok();
}

static rabbet_status_t cached_add(cached_pass_t* pass, const cached_t* found,
                                  const rabbet_ir_value_t* joint,
                                  const rabbet_ir_node_t* before) {
  rabbet_ir_t* ir = &pass->build->ir;
  const rabbet_ir_node_t* turn = found->rotations[QUERIES];
  const rabbet_ir_node_t* update = found->updates[KEYS];
  const char* names[] = {"size", "interleaved", "cache_mode"};
  int64_t numbers[3];
  rabbet_attr_t attrs[3];
  for (size_t i = 0; i < 3; ++i) {
    numbers[i] = rabbet_ir_int(i < 2 ? turn : update, names[i]);
    attrs[i] =
        (rabbet_attr_t){.name = names[i],
                        .type = i == 1 ? RABBET_ATTR_BOOL : RABBET_ATTR_INT,
                        .data = &numbers[i],
                        .count = 1};
  }
  int32_t inputs[] = {
      joint->id, update->inputs[0],     found->updates[VALUES]->inputs[0], -1,
      -1,        cached_indices(update)};
  rabbet_ir_node_t* made = NULL;
  for (size_t i = 0; i < TABLES; ++i)
    RABBET_RETURN_IF_ERROR(
        cached_add_table(pass, found, i, before, &inputs[3 + i]));
  RABBET_RETURN_IF_ERROR(
      rabbet_ir_add_node(ir, RABBET_OP_CACHED_ROTATION, turn->name, attrs, 3,
                         inputs, inputs[5] < 0 ? 5 : 6, before, &made));
  made->index = before->index;  // a later layer's caches may be its results
  RABBET_RETURN_IF_ERROR(cached_give_queries(pass->build, found, before,
                                             rabbet_ir_output(ir, made, 0)));
  for (size_t i = KEYS; i < PARTS; ++i)
    rabbet_ir_replace_uses(ir, rabbet_ir_output(ir, found->updates[i], 0),
                           rabbet_ir_output(ir, made, i));
  rabbet_ir_kill(ir, found->rotations[QUERIES]);
  rabbet_ir_kill(ir, found->updates[KEYS]);
  rabbet_ir_kill(ir, found->updates[VALUES]);
  return rabbet_ok();
}

static rabbet_status_t cached_replace(cached_pass_t* pass,
                                      const cached_t* found) {
  const rabbet_ir_t* ir = &pass->build->ir;
  const rabbet_ir_node_t* before = found->rotations[QUERIES];
  rabbet_ir_value_t* joint = NULL;
  for (int i = KEYS; i < PARTS; ++i)
    if (found->updates[i]->index < before->index) before = found->updates[i];
  if (!cached_can_replace(ir, found) || !cached_is_ready(ir, found, before))
    return rabbet_ok();
  RABBET_RETURN_IF_ERROR(cached_join(pass->build, found, &joint));
  return joint ? cached_add(pass, found, joint, before) : rabbet_ok();
}

rabbet_status_t rabbet_pass_cached_rotation(rabbet_build_t* build) {
  rabbet_ir_t* ir = &build->ir;
  cached_pass_t pass = {.build = build, .constants = {-1, -1}};
  if (!(build->device->traits & RABBET_DEVICE_CACHED_ROTATION))
    return rabbet_ok();
  for (size_t i = 0; i < ir->nodes.count; ++i) {
    cached_t found;
    if (cached_find(ir, ir->nodes.data[i], &found))
      RABBET_RETURN_IF_ERROR(cached_replace(&pass, &found));
  }
  return rabbet_ir_sweep(ir);
}
