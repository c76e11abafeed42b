// A decoder's layers between the products of a token and attention:
//   queries -> rotation
//   keys    -> rotation -> update of their cache
//   values              -> update of their cache
// with views between. They become one cached_rotation of one tensor, whose
// parts queries, keys and values are: slices of it, or results of products that
// are joined. With a single token transposes of heads are views, and heads of
// each part lie behind each other.
#include "builder/ir/passes.h"
#include "ops/enums.h"

enum { QUERIES, KEYS, VALUES, PARTS };

typedef struct cached_t {
  rabbet_ir_node_t* rotations[2];    // of queries and keys
  rabbet_ir_node_t* updates[PARTS];  // of keys and values
  rabbet_ir_value_t* sources[PARTS];
} cached_t;

// The value before views.
static rabbet_ir_value_t* cached_behind(const rabbet_ir_t* ir,
                                        rabbet_ir_value_t* value) {
  while (value && value->producer && !value->producer->dead &&
         rabbet_op_is(value->producer->op, RABBET_OP_SHUFFLE) &&
         rabbet_ir_is_view(ir, value->producer) &&
         !rabbet_ir_has_wishes(ir, value->producer))
    value = rabbet_ir_input(ir, value->producer, 0);
  return value;
}

static bool cached_is(const rabbet_ir_t* ir, const rabbet_ir_node_t* node,
                      rabbet_op_id_t op) {
  return node && !node->dead && rabbet_op_is(node->op, op) &&
         !rabbet_ir_has_wishes(ir, node);
}

// An update of one row of a cache [batch, heads, extent, width].
static bool cached_is_update(const rabbet_ir_t* ir,
                             const rabbet_ir_node_t* node) {
  if (!cached_is(ir, node, RABBET_OP_KV_CACHE_UPDATE)) return false;
  int64_t axis = rabbet_ir_int(node, "axis");
  rabbet_dims_t update = rabbet_ir_dims(ir, rabbet_ir_input(ir, node, 1));
  return update.rank == 4 && update.d[1] > 0 && update.d[2] == 1 &&
         update.d[3] > 0 && (axis == 2 || axis == -2) &&
         rabbet_ir_is_real(rabbet_ir_output(ir, node, 0)->dtype);
}

static int32_t cached_indices(const rabbet_ir_node_t* update) {
  return update->input_count > 2 ? update->inputs[2] : -1;
}

static bool cached_updates_agree(const rabbet_ir_t* ir,
                                 const rabbet_ir_node_t* a,
                                 const rabbet_ir_node_t* b) {
  return rabbet_ir_attrs_agree(a, b) &&
         cached_indices(a) == cached_indices(b) &&
         rabbet_ir_shape_equal(&rabbet_ir_output(ir, a, 0)->shape,
                               &rabbet_ir_output(ir, b, 0)->shape);
}

// A rotation [batch, heads, 1, width], or with the middle axes swapped, by
// tables that all heads share.
static bool cached_is_rotation(const rabbet_ir_t* ir,
                               const rabbet_ir_node_t* node, int64_t width) {
  if (!cached_is(ir, node, RABBET_OP_ROTATION)) return false;
  const rabbet_ir_value_t* x = rabbet_ir_input(ir, node, 0);
  rabbet_dims_t dims = rabbet_ir_dims(ir, x);
  bool fits = dims.rank == 4 && dims.d[1] > 0 && dims.d[2] > 0 &&
              (dims.d[1] == 1 || dims.d[2] == 1) && dims.d[3] == width;
  for (size_t i = 1; fits && i < 3; ++i) {
    const rabbet_ir_value_t* table = rabbet_ir_input(ir, node, i);
    dims = rabbet_ir_dims(ir, table);
    fits = dims.d[1] == 1 && dims.d[2] == 1 &&
           (dims.d[0] == 1 || table->shape.d[0] == x->shape.d[0]);
  }
  return fits;
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

// The other update, and the rotation of queries.
static bool cached_find(const rabbet_ir_t* ir, rabbet_ir_node_t* update,
                        cached_t* out) {
  if (!cached_is_update(ir, update)) return false;
  int64_t width = rabbet_ir_dims(ir, rabbet_ir_input(ir, update, 1)).d[3];
  rabbet_ir_node_t* turn =
      cached_behind(ir, rabbet_ir_input(ir, update, 1))->producer;
  if (!cached_is_rotation(ir, turn, width)) return false;
  *out = (cached_t){.rotations = {NULL, turn}, .updates = {NULL, update, NULL}};
  out->sources[KEYS] = cached_behind(ir, rabbet_ir_input(ir, turn, 0));
  const rabbet_ir_value_t* root = cached_root(ir, out->sources[KEYS]);
  for (size_t i = 0; root && i < ir->nodes.count; ++i) {
    rabbet_ir_node_t* node = ir->nodes.data[i];
    if (node == turn || node == update) continue;
    if (!out->updates[VALUES] && cached_is_update(ir, node) &&
        cached_updates_agree(ir, update, node)) {
      rabbet_ir_value_t* source =
          cached_behind(ir, rabbet_ir_input(ir, node, 1));
      if (cached_root(ir, source) != root) continue;
      out->updates[VALUES] = node;
      out->sources[VALUES] = source;
    } else if (!out->rotations[QUERIES] &&
               cached_is_rotation(ir, node, width) &&
               node->inputs[1] == turn->inputs[1] &&
               node->inputs[2] == turn->inputs[2] &&
               rabbet_ir_attrs_agree(node, turn)) {
      rabbet_ir_value_t* source =
          cached_behind(ir, rabbet_ir_input(ir, node, 0));
      if (cached_root(ir, source) != root) continue;
      out->rotations[QUERIES] = node;
      out->sources[QUERIES] = source;
    }
  }
  return out->updates[VALUES] && out->rotations[QUERIES];
}

// ---- The tensor ------------------------------------------------------------

// Whether the node takes columns [start, start + size) of [batch, 1, columns].
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
                                   const int64_t* columns,
                                   rabbet_ir_value_t** out_joint) {
  rabbet_ir_t* ir = &build->ir;
  int64_t start = 0;
  *out_joint = NULL;
  for (int i = 0; i < PARTS; ++i) {
    rabbet_ir_value_t* source = found->sources[i];
    rabbet_dims_t dims = rabbet_ir_dims(ir, source);
    if (dims.rank != 3 || dims.d[1] != 1 || dims.d[2] != columns[i])
      return rabbet_ok();
  }
  if (!rabbet_op_is(found->sources[0]->producer->op, RABBET_OP_SLICE))
    return rabbet_ir_join_products(build, found->sources, PARTS, out_joint);
  for (int i = 0; i < PARTS; ++i) {
    if (!cached_columns(ir, found->sources[i]->producer, start, columns[i]))
      return rabbet_ok();
    start += columns[i];
  }
  rabbet_ir_value_t* joint =
      rabbet_ir_input(ir, found->sources[0]->producer, 0);
  if (rabbet_ir_dims(ir, joint).d[2] == start) *out_joint = joint;
  return rabbet_ok();
}

// ---- The layer -------------------------------------------------------------

// Whether the new node has its operands where it is put: before the first node
// that it replaces. The joint tensor is computed before the parts.
static bool cached_is_ready(const rabbet_ir_t* ir, const cached_t* found,
                            const rabbet_ir_node_t* before) {
  const int32_t operands[] = {
      found->updates[KEYS]->inputs[0], found->updates[VALUES]->inputs[0],
      found->rotations[KEYS]->inputs[1], found->rotations[KEYS]->inputs[2],
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
  bool fits = !queries->is_read_by_host && queries->dtype == x->dtype;
  for (int i = KEYS; i < PARTS; ++i) {
    const rabbet_ir_value_t* whole = rabbet_ir_output(ir, found->updates[i], 0);
    fits = fits && !whole->is_read_by_host && whole->dtype == x->dtype;
  }
  return fits;
}

static rabbet_status_t cached_add(rabbet_build_t* build, const cached_t* found,
                                  const rabbet_ir_value_t* joint,
                                  const rabbet_ir_node_t* before) {
  rabbet_ir_t* ir = &build->ir;
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
  const int32_t inputs[] = {
      joint->id,       update->inputs[0], found->updates[VALUES]->inputs[0],
      turn->inputs[1], turn->inputs[2],   cached_indices(update)};
  rabbet_ir_node_t *made = NULL, *view = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_ir_add_node(ir, RABBET_OP_CACHED_ROTATION, turn->name, attrs, 3,
                         inputs, inputs[5] < 0 ? 5 : 6, before, &made));
  rabbet_ir_value_t* old = rabbet_ir_output(ir, turn, 0);
  rabbet_ir_value_t* queries = rabbet_ir_output(ir, made, 0);
  if (!rabbet_ir_shape_equal(&old->shape, &queries->shape)) {
    const int64_t perm[] = {0, 2, 1, 3};
    RABBET_RETURN_IF_ERROR(rabbet_ir_add_permutation(
        build, before, turn->name, queries->id, perm, 4, &view));
    queries = rabbet_ir_output(ir, view, 0);
  }
  assert(rabbet_ir_shape_equal(&old->shape, &queries->shape));
  rabbet_ir_replace_uses(ir, old, queries);
  for (size_t i = KEYS; i < PARTS; ++i)
    rabbet_ir_replace_uses(ir, rabbet_ir_output(ir, found->updates[i], 0),
                           rabbet_ir_output(ir, made, i));
  rabbet_ir_kill(ir, found->rotations[QUERIES]);
  rabbet_ir_kill(ir, found->updates[KEYS]);
  rabbet_ir_kill(ir, found->updates[VALUES]);
  return rabbet_ok();
}

static rabbet_status_t cached_replace(rabbet_build_t* build,
                                      const cached_t* found) {
  rabbet_ir_t* ir = &build->ir;
  const rabbet_ir_node_t* before = found->rotations[QUERIES];
  rabbet_dims_t turned =
      rabbet_ir_dims(ir, rabbet_ir_input(ir, found->rotations[QUERIES], 0));
  rabbet_dims_t kept =
      rabbet_ir_dims(ir, rabbet_ir_input(ir, found->updates[KEYS], 1));
  const int64_t columns[PARTS] = {turned.d[1] * turned.d[2] * turned.d[3],
                                  kept.d[1] * kept.d[3], kept.d[1] * kept.d[3]};
  rabbet_ir_value_t* joint = NULL;
  for (int i = KEYS; i < PARTS; ++i)
    if (found->updates[i]->index < before->index) before = found->updates[i];
  if (!cached_can_replace(ir, found) || !cached_is_ready(ir, found, before))
    return rabbet_ok();
  RABBET_RETURN_IF_ERROR(cached_join(build, found, columns, &joint));
  return joint ? cached_add(build, found, joint, before) : rabbet_ok();
}

rabbet_status_t rabbet_pass_cached_rotation(rabbet_build_t* build) {
  rabbet_ir_t* ir = &build->ir;
  if (!(build->device->traits & RABBET_DEVICE_CACHED_ROTATION))
    return rabbet_ok();
  for (size_t i = 0; i < ir->nodes.count; ++i) {
    cached_t found;
    if (cached_find(ir, ir->nodes.data[i], &found))
      RABBET_RETURN_IF_ERROR(cached_replace(build, &found));
  }
  return rabbet_ir_sweep(ir);
}
