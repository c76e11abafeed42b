// Queries and keys of an attention that are rotated parts of one tensor, as of
// the joint product of queries, keys and values:
//   reshape [N, L, 3, H, D], transpose [3, N, H, L, D], slices, two rotations
// A rotation's kernel reads rows that lie one behind the other, so that the
// transpose, or each slice, would be a copy. One rotation of all parts copies
// none; those that are not rotated have the cosine 1 and the sine 0. Slices and
// transposes go behind it, where attention takes them as strides, and values
// are still read from the product.
#include <assert.h>

#include "builder/choose/fuse.h"
#include "builder/ir/passes.h"
#include "builder/rewrite/parts.h"

enum { QUERIES, KEYS, ROTATED };
enum { COSINES, SINES, TABLES };
enum { PACKED_MAX = 8 };  // parts of the tensor

// A rotated part of a tensor.
typedef struct packed_part_t {
  rabbet_ir_node_t* rotation;
  rabbet_ir_value_t* base;  // the tensor
  rabbet_parts_t parts;
} packed_part_t;

typedef struct packed_t {
  packed_part_t rotated[ROTATED];
  int64_t count;  // parts of the tensor
  int place;      // of their axis, before which atom
} packed_t;

// ---- Which ------------------------------------------------------------------

// The first of the moves before the rotation from which on they are a slice and
// moves behind it; the last axis is one of the tensor, as it lies there.
static bool packed_read(const rabbet_ir_t* ir,
                        const rabbet_parts_chain_t* chain, packed_part_t* out,
                        rabbet_status_t* status) {
  for (int first = 0; first < chain->count && rabbet_is_ok(*status); ++first) {
    rabbet_parts_t* p = &out->parts;
    if (!rabbet_parts_read(ir, chain, first, p, status) || p->atom >= 0)
      continue;
    if (p->axis < 0) return false;
    out->base = rabbet_ir_input(ir, chain->nodes[first], 0);
    return p->rank > 1 && p->count > 0 && p->count < RABBET_MAX_RANK &&
           p->order[p->count - 1] == p->count - 1 &&
           p->ends[p->rank - 1] - p->ends[p->rank - 2] == 1;
  }
  return false;
}

// Finds the rotation whose result is the factor, after moves and scales.
static bool packed_part(const rabbet_ir_t* ir, rabbet_ir_value_t* factor,
                        packed_part_t* out, rabbet_status_t* status) {
  rabbet_parts_chain_t chain;
  rabbet_parts_chain(ir, factor, false, &chain);
  *out = (packed_part_t){.rotation = rabbet_ir_sole_producer(
                             ir, chain.origin, RABBET_OP_ROTATION)};
  if (!out->rotation) return false;
  rabbet_parts_chain(ir, rabbet_ir_input(ir, out->rotation, 0), false, &chain);
  return chain.origin != NULL && packed_read(ir, &chain, out, status);
}

// Whether the parts are moved in the same way.
static bool packed_moves_agree(const rabbet_parts_t* a,
                               const rabbet_parts_t* b) {
  bool agree = a->count == b->count && a->rank == b->rank &&
               a->axis == b->axis && a->size == b->size;
  for (int i = 0; agree && i < a->count; ++i)
    agree = a->atoms[i].extent == b->atoms[i].extent &&
            a->atoms[i].source == b->atoms[i].source &&
            a->order[i] == b->order[i];
  for (int i = 0; agree && i < a->rank; ++i)
    agree = a->ends[i] == b->ends[i];
  return agree;
}

// Whether the rotations are of parts of one tensor, by the same tables.
static bool packed_agree(const packed_part_t* a, const packed_part_t* b) {
  return a->base == b->base && a->rotation != b->rotation &&
         a->rotation->inputs[1] == b->rotation->inputs[1] &&
         a->rotation->inputs[2] == b->rotation->inputs[2] &&
         rabbet_ir_attrs_agree(a->rotation, b->rotation) &&
         packed_moves_agree(&a->parts, &b->parts) &&
         a->parts.start != b->parts.start;
}

// Whether the tensor is so many parts of the size of these.
static bool packed_splits(const rabbet_ir_t* ir, packed_t* packed) {
  const rabbet_parts_t* p = &packed->rotated[0].parts;
  int64_t extent = 0;
  if (!rabbet_expr_is_constant(ir->graph, p->base->d[p->axis], &extent) ||
      extent % p->size != 0)
    return false;
  packed->count = extent / p->size;
  packed->place = 0;
  while (p->atoms[packed->place].source < p->axis)
    ++packed->place;
  bool fits = packed->count <= PACKED_MAX;
  for (int i = 0; i < ROTATED; ++i)
    fits = fits && packed->rotated[i].parts.start % p->size == 0;
  return fits;
}

// Whether numbers for all parts can be put beside the table's. A constant is
// given any order of axes; other tables must have that of the tensor.
static bool packed_is_table(const rabbet_ir_t* ir, const rabbet_parts_t* p,
                            const rabbet_ir_value_t* table) {
  rabbet_dims_t dims = rabbet_ir_dims(ir, table);
  bool ordered = true;
  for (int32_t axis = 0, i = 0, last = -1; axis < dims.rank; ++axis) {
    if (dims.d[axis] <= 0) return false;
    for (; i < p->ends[axis]; ++i) {
      if (dims.d[axis] == 1) continue;
      ordered = ordered && p->order[i] > last;
      last = p->order[i];
    }
  }
  return table->constant || ordered;
}

static bool packed_find(const rabbet_ir_t* ir, rabbet_ir_value_t* queries,
                        rabbet_ir_value_t* keys, packed_t* out,
                        rabbet_status_t* status) {
  packed_part_t* rotated = out->rotated;
  if (!packed_part(ir, queries, &rotated[QUERIES], status) ||
      !packed_part(ir, keys, &rotated[KEYS], status))
    return false;
  const packed_part_t* q = &rotated[QUERIES];
  return packed_agree(q, &rotated[KEYS]) && packed_splits(ir, out) &&
         packed_is_table(ir, &q->parts, rabbet_ir_input(ir, q->rotation, 1)) &&
         packed_is_table(ir, &q->parts, rabbet_ir_input(ir, q->rotation, 2));
}

// ---- Tables -----------------------------------------------------------------

// The table for the tensor's atoms in their order, 1 where it is broadcast,
// with an axis of extent 1 for the parts.
static rabbet_status_t packed_arrange(rabbet_build_t* build,
                                      const packed_t* packed,
                                      const rabbet_ir_node_t* before,
                                      const rabbet_ir_value_t** table) {
  const rabbet_parts_t* p = &packed->rotated[0].parts;
  rabbet_ir_t* ir = &build->ir;
  rabbet_expr_t extents[RABBET_MAX_RANK], one = RABBET_EXPR_NONE;
  int64_t order[RABBET_MAX_RANK];
  rabbet_shape_t shape = (*table)->shape;
  rabbet_dims_t dims = rabbet_ir_dims(ir, *table);
  rabbet_ir_node_t* turn = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_expr_constant(ir->graph, 1, &one));
  for (int32_t axis = 0, i = 0; axis < p->rank; ++axis)
    for (; i < p->ends[axis]; ++i) {
      extents[i] = axis == p->rank - 1 ? shape.d[axis]
                   : dims.d[axis] == 1 ? one
                                       : p->atoms[p->order[i]].extent;
      order[p->order[i]] = i;
    }
  RABBET_RETURN_IF_ERROR(
      rabbet_ir_add_reshape(build, before, extents, p->count, table));
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_permutation(
      build, before, before->name, (*table)->id, order, p->count, &turn));
  *table = rabbet_ir_output(ir, turn, 0);
  shape = (*table)->shape;
  for (int i = 0; i <= p->count; ++i)
    extents[i] = i < packed->place    ? shape.d[i]
                 : i == packed->place ? one
                                      : shape.d[i - 1];
  return rabbet_ir_add_reshape(build, before, extents, p->count + 1, table);
}

// The table of one rotated part becomes that of all parts, with this number for
// those that are not rotated.
static rabbet_status_t packed_table(rabbet_build_t* build,
                                    const packed_t* packed,
                                    const rabbet_ir_node_t* before,
                                    double number, int32_t* out_table) {
  rabbet_ir_t* ir = &build->ir;
  const rabbet_parts_t* p = &packed->rotated[0].parts;
  const rabbet_ir_value_t* table = rabbet_ir_value(ir, *out_table);
  int32_t inputs[PACKED_MAX], filled = -1;
  RABBET_RETURN_IF_ERROR(packed_arrange(build, packed, before, &table));
  *out_table = table->id;
  if (packed->count == ROTATED) return rabbet_ok();  // the same for all
  rabbet_dims_t dims = rabbet_ir_dims(ir, table);
  RABBET_RETURN_IF_ERROR(rabbet_ir_filled(build, table->name, table->dtype,
                                          &dims, number, &filled));
  for (int64_t i = 0; i < packed->count; ++i) {
    inputs[i] = filled;
    for (int k = 0; k < ROTATED; ++k)
      if (packed->rotated[k].parts.start == i * p->size) inputs[i] = table->id;
  }
  const int64_t axis = packed->place;
  const rabbet_attr_t attr = {
      .name = "axis", .type = RABBET_ATTR_INT, .data = &axis, .count = 1};
  rabbet_ir_node_t* joined = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_ir_add_node(ir, RABBET_OP_CONCATENATION, table->name, &attr, 1,
                         inputs, (size_t)packed->count, before, &joined));
  *out_table = joined->outputs[0];
  return rabbet_ok();
}

// ---- Rewriting --------------------------------------------------------------

// The rotation of all parts, in the tensor's own shape.
static rabbet_status_t packed_rotate(rabbet_build_t* build,
                                     const packed_t* packed,
                                     const rabbet_ir_node_t* before,
                                     const rabbet_ir_value_t** out_value) {
  rabbet_ir_t* ir = &build->ir;
  const packed_part_t* part = &packed->rotated[0];
  const rabbet_parts_t* p = &part->parts;
  const rabbet_ir_node_t* rotation = part->rotation;
  rabbet_expr_t extents[RABBET_MAX_RANK];
  rabbet_ir_node_t* made = NULL;
  for (int i = 0, to = 0; i < p->count; ++i) {
    if (i == packed->place)
      RABBET_RETURN_IF_ERROR(
          rabbet_expr_constant(ir->graph, packed->count, &extents[to++]));
    extents[to++] = p->atoms[i].extent;
  }
  const rabbet_ir_value_t* x = part->base;
  RABBET_RETURN_IF_ERROR(
      rabbet_ir_add_reshape(build, before, extents, p->count + 1, &x));
  int32_t inputs[] = {x->id, rotation->inputs[1], rotation->inputs[2]};
  for (int i = 0; i < TABLES; ++i)
    RABBET_RETURN_IF_ERROR(packed_table(
        build, packed, before, i == COSINES ? 1.0 : 0.0, &inputs[1 + i]));
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_node(
      ir, RABBET_OP_ROTATION, rotation->name, rotation->attrs,
      rotation->op->attr_count, inputs, 3, before, &made));
  *out_value = rabbet_ir_output(ir, made, 0);
  return rabbet_ir_add_reshape(build, before, part->base->shape.d,
                               part->base->shape.rank, out_value);
}

// The first of two nodes.
static rabbet_ir_node_t* packed_first(const rabbet_ir_t* ir,
                                      rabbet_ir_node_t* a,
                                      rabbet_ir_node_t* b) {
  for (size_t i = 0; i < ir->nodes.count; ++i)
    if (ir->nodes.data[i] == a || ir->nodes.data[i] == b)
      return ir->nodes.data[i];
  assert(!"nodes of the IR");
  return a;
}

static rabbet_status_t packed_rewrite(rabbet_build_t* build,
                                      const packed_t* packed) {
  rabbet_ir_t* ir = &build->ir;
  const rabbet_ir_value_t* rotated = NULL;
  RABBET_RETURN_IF_ERROR(
      packed_rotate(build, packed,
                    packed_first(ir, packed->rotated[QUERIES].rotation,
                                 packed->rotated[KEYS].rotation),
                    &rotated));
  for (int i = 0; i < ROTATED; ++i) {
    const packed_part_t* part = &packed->rotated[i];
    const rabbet_ir_value_t* value = rotated;
    const rabbet_shape_t shape = rabbet_ir_output(ir, part->rotation, 0)->shape;
    RABBET_RETURN_IF_ERROR(
        rabbet_parts_make(build, &part->parts, part->rotation, &shape, &value));
    // Nothing but the attention's moves reads it, so no promise is in the way.
    bool replaced =
        rabbet_ir_bypass(ir, part->rotation, rabbet_ir_value(ir, value->id));
    assert(replaced);
    (void)replaced;
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_pass_packed_rotations(rabbet_build_t* build) {
  rabbet_ir_t* ir = &build->ir;
  bool changed = false;
  RABBET_RETURN_IF_ERROR(rabbet_share_tables(build));
  if (rabbet_fuse_reach(build) < RABBET_FUSE_SLICES) return rabbet_ok();
  for (size_t i = 0; i < ir->nodes.count; ++i) {
    rabbet_ir_node_t* last = ir->nodes.data[i];
    rabbet_ir_node_t* nodes[RABBET_FUSE_ATTENTION_MAX];
    rabbet_status_t status = rabbet_ok();
    packed_t packed;
    if (last->dead ||
        rabbet_fuse_attention(ir, last, RABBET_FUSE_PRODUCTS, nodes) == 0 ||
        !rabbet_fuse_wants_attention(build, last))
      continue;
    bool found =
        packed_find(ir, rabbet_ir_input(ir, nodes[0], 0),
                    rabbet_ir_input(ir, nodes[0], 1), &packed, &status);
    if (rabbet_is_ok(status) && found) status = packed_rewrite(build, &packed);
    changed |= found;
    RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
        status, "rotating parts of one tensor for attention '%s'", last->name));
    while (ir->nodes.data[i] != last)
      ++i;  // nodes were made before it
  }
  if (!changed) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_ir_sweep(ir));
  // Layers share their tables, which are constants if those of the parts are.
  RABBET_RETURN_IF_ERROR(rabbet_pass_common_subexpressions(build));
  return rabbet_pass_fold(build);
}
