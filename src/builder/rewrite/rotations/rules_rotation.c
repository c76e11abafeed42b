// Rotary position embeddings written out, as exporters do, become one rotation:
//   x * cos + concatenation(-b, a) * sin, a and b being the halves of x;
//   the same with elements of even and odd places for a and b, by slices or a
//   reshape [..., n, 2], which a concatenation along a new last axis and a
//   reshape bring back between each other;
//   concatenation(a * cos - b * sin, b * cos + a * sin), of the halves, or of
//   elements of even and odd places, whose results then lie in halves.
// A transpose before one goes behind it, where attention takes it as strides.

#include <assert.h>

#include "builder/ir/passes.h"
#include "ops/enums.h"

typedef rabbet_ir_part_t rotary_part_t;

static bool rotary_is(const rabbet_ir_t* ir, const rabbet_ir_node_t* node,
                      rabbet_op_id_t op) {
  return node && !node->dead && rabbet_op_is(node->op, op) &&
         !rabbet_ir_has_wishes(ir, node);
}

static rabbet_ir_node_t* rotary_maker(const rabbet_ir_t* ir,
                                      const rabbet_ir_value_t* value,
                                      rabbet_op_id_t op) {
  return value && rotary_is(ir, value->producer, op) ? value->producer : NULL;
}

static int64_t rotary_width(const rabbet_ir_t* ir,
                            const rabbet_ir_value_t* value) {
  rabbet_dims_t dims = rabbet_ir_dims(ir, value);
  return dims.rank > 0 ? dims.d[dims.rank - 1] : -1;
}

// The value of whose last axis a view makes two, of which `axis` is the shorter
// one; NULL: there is none.
static rabbet_ir_value_t* rotary_unpaired(const rabbet_ir_t* ir,
                                          const rabbet_ir_value_t* pairs,
                                          int32_t axis) {
  const rabbet_ir_node_t* view = rotary_maker(ir, pairs, RABBET_OP_SHUFFLE);
  rabbet_ir_value_t* flat = view ? rabbet_ir_input(ir, view, 0) : NULL;
  int32_t rank = pairs->shape.rank;
  if (!flat || !rabbet_ir_is_view(ir, view) || flat->shape.rank != rank - 1 ||
      rabbet_ir_dims(ir, pairs).d[axis] != 2)
    return NULL;
  for (int32_t i = 0; i < rank - 2; ++i)
    if (flat->shape.d[i] != pairs->shape.d[i]) return NULL;
  return flat;
}

// Whether the value [..., n, 1], a slice, has the first or second elements of
// all pairs of the last axis of what it views as [..., n, 2].
static bool rotary_of_pairs(const rabbet_ir_t* ir,
                            const rabbet_ir_value_t* value,
                            rotary_part_t* out) {
  int32_t last = value->shape.rank - 1;
  if (last < 1 || !rabbet_ir_part(ir, value, last, out) || out->size != 1)
    return false;
  *out = (rotary_part_t){.x = rotary_unpaired(ir, out->x, last),
                         .start = out->start,
                         .size = rabbet_ir_dims(ir, value).d[last - 1],
                         .stride = 2};
  return out->x && out->size > 0;
}

// Whether the value [..., n] is a half of the last axis of what is viewed as
// [..., 2, n].
static bool rotary_of_halves(const rabbet_ir_t* ir,
                             const rabbet_ir_value_t* value,
                             rotary_part_t* out) {
  const rabbet_ir_node_t* view = rotary_maker(ir, value, RABBET_OP_SHUFFLE);
  const rabbet_ir_value_t* slice = view ? rabbet_ir_input(ir, view, 0) : NULL;
  int32_t axis = value->shape.rank - 1;
  int64_t size = rotary_width(ir, value);
  if (!slice || !rabbet_ir_is_view(ir, view) || axis < 0 ||
      slice->shape.rank != axis + 2 || rotary_width(ir, slice) != size ||
      !rabbet_ir_part(ir, slice, axis, out) || out->size != 1)
    return false;
  *out = (rotary_part_t){.x = rotary_unpaired(ir, out->x, axis),
                         .start = out->start * size,
                         .size = size,
                         .stride = 1};
  return out->x && size > 0;
}

// Whether the value is a window of the last axis alone.
static bool rotary_part(const rabbet_ir_t* ir, const rabbet_ir_value_t* value,
                        rotary_part_t* out) {
  const rabbet_ir_value_t* pairs = rabbet_ir_squeezed(ir, value);
  return rabbet_ir_part(ir, value, value->shape.rank - 1, out) ||
         (pairs && rotary_of_pairs(ir, pairs, out)) ||
         rotary_of_halves(ir, value, out);
}

// The same of a value with a last axis of extent 1, which a view may have given
// it.
static bool rotary_end(const rabbet_ir_t* ir, const rabbet_ir_value_t* value,
                       rotary_part_t* out) {
  const rabbet_ir_value_t* flat = rabbet_ir_unsqueezed(ir, value);
  return flat ? rotary_part(ir, flat, out) : rotary_of_pairs(ir, value, out);
}

// Whether `a` and `b` are the first and second elements of all pairs of one
// tensor, as wide as both together.
static bool rotary_pairs(const rabbet_ir_t* ir, const rotary_part_t* a,
                         const rotary_part_t* b, bool* out_interleaved) {
  *out_interleaved = a->stride == 2;
  return a->x == b->x && a->size == b->size && a->stride == b->stride &&
         a->start == 0 && 2 * a->size == rotary_width(ir, a->x) &&
         (*out_interleaved ? b->start == 1
                           : a->stride == 1 && b->start == a->size);
}

// x, where the value is -x; else NULL.
static rabbet_ir_value_t* rotary_negated(const rabbet_ir_t* ir,
                                         const rabbet_ir_value_t* value) {
  rabbet_ir_node_t* node = rotary_maker(ir, value, RABBET_OP_UNARY);
  if (node)
    return rabbet_ir_int(node, "op") == RABBET_UNARY_NEG
               ? rabbet_ir_input(ir, node, 0)
               : NULL;
  node = rotary_maker(ir, value, RABBET_OP_ELEMENTWISE);
  if (!node || rabbet_ir_int(node, "op") != RABBET_ELEMENTWISE_PROD)
    return NULL;
  for (size_t i = 0; i < 2; ++i)
    if (rabbet_ir_is_number(ir, rabbet_ir_input(ir, node, i), -1))
      return rabbet_ir_input(ir, node, 1 - i);
  return NULL;
}

// Inputs of a concatenation of `count` tensors along the last axis.
static bool rotary_concatenates(const rabbet_ir_t* ir,
                                const rabbet_ir_node_t* node, size_t count) {
  int32_t rank = rabbet_ir_output(ir, node, 0)->shape.rank;
  int64_t axis = rabbet_ir_int(node, "axis");
  return node->input_count == count && rank > 0 &&
         (axis == rank - 1 || axis == -1);
}

// x, where `value` is the concatenation of -b and a; else NULL.
static rabbet_ir_value_t* rotary_turned(const rabbet_ir_t* ir,
                                        const rabbet_ir_value_t* value,
                                        bool* out_interleaved) {
  const rabbet_ir_node_t* view = rotary_maker(ir, value, RABBET_OP_SHUFFLE);
  const rabbet_ir_value_t* joined = value;
  if (view) joined = rabbet_ir_input(ir, view, 0);
  if (view && (!rabbet_ir_is_view(ir, view) || rotary_width(ir, joined) != 2 ||
               joined->shape.rank != value->shape.rank + 1))
    return NULL;
  const rabbet_ir_node_t* node =
      rotary_maker(ir, joined, RABBET_OP_CONCATENATION);
  if (!node || !rotary_concatenates(ir, node, 2)) return NULL;
  // Exporters negate before or behind the new axis.
  const rabbet_ir_value_t* end = rabbet_ir_input(ir, node, 0);
  const rabbet_ir_value_t* second = rotary_negated(ir, end);
  const rabbet_ir_value_t* flat = view ? rabbet_ir_unsqueezed(ir, end) : NULL;
  bool plain = !view;
  if (!second && flat) {
    second = rotary_negated(ir, flat);
    plain = true;
  }
  rotary_part_t a, b;
  if (!second ||
      !(view ? rotary_end : rotary_part)(ir, rabbet_ir_input(ir, node, 1),
                                         &a) ||
      !(plain ? rotary_part : rotary_end)(ir, second, &b) ||
      !rotary_pairs(ir, &a, &b, out_interleaved) ||
      *out_interleaved != (view != NULL) ||
      !rabbet_ir_shape_equal(&a.x->shape, &value->shape))
    return NULL;
  return a.x;
}

// ---- Rotations --------------------------------------------------------------

typedef struct rotary_t {
  int32_t inputs[3];  // x, cosines, sines
  int64_t size;
  int64_t interleaved;
} rotary_t;

// Whether a table has `entries` on the last axis and broadcasts to x elsewhere.
static bool rotary_is_table(const rabbet_ir_t* ir,
                            const rabbet_ir_value_t* table,
                            const rabbet_ir_value_t* x, int64_t entries) {
  rabbet_dims_t dims = rabbet_ir_dims(ir, table);
  if (dims.rank != x->shape.rank || table->dtype != x->dtype ||
      dims.d[dims.rank - 1] != entries)
    return false;
  for (int32_t i = 0; i < dims.rank - 1; ++i)
    if (dims.d[i] != 1 && table->shape.d[i] != x->shape.d[i]) return false;
  return true;
}

static rabbet_status_t rotary_add(rabbet_build_t* build,
                                  const rabbet_ir_node_t* before,
                                  const rotary_t* found,
                                  rabbet_ir_node_t** out_node) {
  return rabbet_ir_add_rotation(build, before, before->name, found->inputs,
                                found->size, found->interleaved, out_node);
}

// Makes the rotation that `node` is the last node of, and puts it in its place.
static rabbet_status_t rotary_make(rabbet_build_t* build,
                                   rabbet_ir_node_t* node,
                                   const rotary_t* found, bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  rabbet_ir_node_t* made = NULL;
  RABBET_RETURN_IF_ERROR(rotary_add(build, node, found, &made));
  if (rabbet_ir_bypass(ir, node, rabbet_ir_output(ir, made, 0)))
    *changed = true;
  else
    rabbet_ir_kill(ir, made);
  return rabbet_ok();
}

// The value, or what a cast makes it of.
static rabbet_ir_value_t* rotary_cast(const rabbet_ir_t* ir,
                                      rabbet_ir_value_t* value) {
  rabbet_ir_node_t* cast = rotary_maker(ir, value, RABBET_OP_CAST);
  return cast ? rabbet_ir_input(ir, cast, 0) : value;
}

// Whether `value` is turned(x), or both are casts of such tensors.
static bool rotary_is_turned(const rabbet_ir_t* ir, rabbet_ir_value_t* x,
                             rabbet_ir_value_t* value, bool* out_interleaved) {
  const rabbet_ir_value_t* of = rotary_turned(ir, value, out_interleaved);
  if (of) return of == x;
  const rabbet_ir_value_t* narrow = rotary_cast(ir, value);
  return narrow != value && rotary_cast(ir, x) != x &&
         rotary_turned(ir, narrow, out_interleaved) == rotary_cast(ir, x);
}

// x * cos + turned(x) * sin.
static bool rotary_match_sum(const rabbet_ir_t* ir, const rabbet_ir_node_t* sum,
                             rotary_t* out) {
  const rabbet_ir_node_t* terms[2];
  for (size_t i = 0; i < 2; ++i) {
    terms[i] =
        rotary_maker(ir, rabbet_ir_input(ir, sum, i), RABBET_OP_ELEMENTWISE);
    if (!terms[i] || rabbet_ir_int(terms[i], "op") != RABBET_ELEMENTWISE_PROD)
      return false;
  }
  // Either term may be the first, and either factor of each.
  for (size_t k = 0; k < 8; ++k) {
    const rabbet_ir_node_t *plain = terms[k & 1], *other = terms[~k & 1];
    size_t place = k >> 1 & 1, turned = k >> 2;
    rabbet_ir_value_t* x = rabbet_ir_input(ir, plain, place);
    const rabbet_ir_value_t* cosines = rabbet_ir_input(ir, plain, 1 - place);
    const rabbet_ir_value_t* sines = rabbet_ir_input(ir, other, 1 - turned);
    bool interleaved = false;
    int64_t width = rotary_width(ir, x);
    if (!rotary_is_turned(ir, x, rabbet_ir_input(ir, other, turned),
                          &interleaved) ||
        !rotary_is_table(ir, cosines, x, width) ||
        !rotary_is_table(ir, sines, x, width))
      continue;
    *out = (rotary_t){{x->id, cosines->id, sines->id}, width, interleaved};
    return true;
  }
  return false;
}

rabbet_status_t rabbet_rule_rotation(rabbet_build_t* build,
                                     rabbet_ir_node_t* node, bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  rotary_t found;
  if (rabbet_ir_int(node, "op") != RABBET_ELEMENTWISE_SUM ||
      !rabbet_ir_is_real(rabbet_ir_output(ir, node, 0)->dtype) ||
      !rotary_match_sum(ir, node, &found))
    return rabbet_ok();
  return rotary_make(build, node, &found, changed);
}

// ---- Concatenations ---------------------------------------------------------

// p * q + sign * r * s of windows p, r and tables q, s.
typedef struct rotary_terms_t {
  rotary_part_t parts[2];
  const rabbet_ir_value_t* tables[2];
} rotary_terms_t;

static bool rotary_match_terms(const rabbet_ir_t* ir,
                               const rabbet_ir_value_t* value, int64_t op,
                               rotary_terms_t* out) {
  const rabbet_ir_node_t* node = rotary_maker(ir, value, RABBET_OP_ELEMENTWISE);
  if (!node || rabbet_ir_int(node, "op") != op) return false;
  for (size_t i = 0; i < 2; ++i) {
    const rabbet_ir_node_t* product =
        rotary_maker(ir, rabbet_ir_input(ir, node, i), RABBET_OP_ELEMENTWISE);
    if (!product || rabbet_ir_int(product, "op") != RABBET_ELEMENTWISE_PROD)
      return false;
    size_t place =
        rotary_part(ir, rabbet_ir_input(ir, product, 0), &out->parts[i]) ? 0
                                                                         : 1;
    if (!rotary_part(ir, rabbet_ir_input(ir, product, place), &out->parts[i]))
      return false;
    out->tables[i] = rabbet_ir_input(ir, product, 1 - place);
  }
  return true;
}

// a * cos - b * sin, and b * cos + a * sin or a * sin + b * cos.
static bool rotary_match_halves(const rabbet_ir_t* ir,
                                const rabbet_ir_node_t* node, rotary_t* out) {
  rotary_terms_t first, second;
  bool interleaved = false;
  if (!rotary_concatenates(ir, node, 2) ||
      !rotary_match_terms(ir, rabbet_ir_input(ir, node, 0),
                          RABBET_ELEMENTWISE_SUB, &first) ||
      !rotary_match_terms(ir, rabbet_ir_input(ir, node, 1),
                          RABBET_ELEMENTWISE_SUM, &second))
    return false;
  const rotary_part_t *a = &first.parts[0], *b = &first.parts[1];
  size_t of_b = second.parts[0].start == b->start ? 0 : 1;
  if (!rotary_pairs(ir, a, b, &interleaved) ||
      second.parts[of_b].start != b->start ||
      second.parts[1 - of_b].start != a->start)
    return false;
  for (int i = 0; i < 2; ++i)
    if (second.parts[i].x != a->x || second.parts[i].size != a->size ||
        second.parts[i].stride != a->stride ||
        !rotary_is_table(ir, first.tables[i], a->x, a->size))
      return false;
  if (second.tables[of_b] != first.tables[0] ||
      second.tables[1 - of_b] != first.tables[1])
    return false;
  *out = (rotary_t){{a->x->id, first.tables[0]->id, first.tables[1]->id},
                    2 * a->size,
                    interleaved};
  return true;
}

// The parts are neighbours, and the results lie in halves: those of a rotation
// of neighbours, in another order.
static rabbet_status_t rotary_make_apart(rabbet_build_t* build,
                                         rabbet_ir_node_t* node,
                                         const rotary_t* found, bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  const rabbet_shape_t shape = rabbet_ir_output(ir, node, 0)->shape;
  int32_t rank = shape.rank;
  rabbet_shape_t pairs = shape;
  rabbet_ir_node_t *made = NULL, *turn = NULL;
  int64_t perm[RABBET_MAX_RANK];
  if (rank == RABBET_MAX_RANK) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rotary_add(build, node, found, &made));
  RABBET_RETURN_IF_ERROR(
      rabbet_expr_constant(ir->graph, found->size / 2, &pairs.d[rank - 1]));
  RABBET_RETURN_IF_ERROR(rabbet_expr_constant(ir->graph, 2, &pairs.d[rank]));
  for (int32_t i = 0; i <= rank; ++i)
    perm[i] = i < rank - 1 ? i : 2 * rank - 1 - i;
  const rabbet_ir_value_t* y = rabbet_ir_output(ir, made, 0);
  RABBET_RETURN_IF_ERROR(
      rabbet_ir_add_reshape(build, node, pairs.d, rank + 1, &y));
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_permutation(
      build, node, node->name, y->id, perm, rank + 1, &turn));
  y = rabbet_ir_output(ir, turn, 0);
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_reshape(build, node, shape.d, rank, &y));
  // Nodes that nothing reads are swept.
  *changed |= rabbet_ir_bypass(ir, node, rabbet_ir_value(ir, y->id));
  return rabbet_ok();
}

rabbet_status_t rabbet_rule_rotated_halves(rabbet_build_t* build,
                                           rabbet_ir_node_t* node,
                                           bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  rotary_t found;
  if (rabbet_ir_has_wishes(ir, node) ||
      !rabbet_ir_is_real(rabbet_ir_output(ir, node, 0)->dtype) ||
      !rotary_match_halves(ir, node, &found))
    return rabbet_ok();
  return found.interleaved ? rotary_make_apart(build, node, &found, changed)
                           : rotary_make(build, node, &found, changed);
}

// ---- Transposes -------------------------------------------------------------

rabbet_status_t rabbet_rule_rotated_transpose(rabbet_build_t* build,
                                              rabbet_ir_node_t* node,
                                              bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  int64_t perm[RABBET_MAX_RANK];
  rabbet_ir_node_t *turn = rabbet_ir_sole_producer(
                       ir, rabbet_ir_input(ir, node, 0), RABBET_OP_SHUFFLE),
                   *made = NULL, *behind = NULL;
  int32_t rank = rabbet_ir_output(ir, node, 0)->shape.rank;
  if (!turn || rabbet_ir_has_wishes(ir, node) || rabbet_ir_is_view(ir, turn) ||
      !rabbet_ir_permutation(ir, turn, perm) || perm[rank - 1] != rank - 1)
    return rabbet_ok();
  int32_t inputs[3] = {turn->inputs[0]};
  int64_t inverse[RABBET_MAX_RANK];
  for (int32_t i = 0; i < rank; ++i)
    inverse[perm[i]] = i;
  bool views = false;
  RABBET_RETURN_IF_ERROR(
      rabbet_ir_permute_operands(build, node, inverse, rank, inputs, &views));
  if (!views) return rabbet_ok();  // the unread views are swept
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_node(ir, RABBET_OP_ROTATION, node->name,
                                            node->attrs, node->op->attr_count,
                                            inputs, 3, node, &made));
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_permutation(
      build, node, turn->name, made->outputs[0], perm, rank, &behind));
  if (rabbet_ir_bypass(ir, node, rabbet_ir_output(ir, behind, 0)))
    *changed = true;
  else
    rabbet_ir_kill(ir, behind);
  return rabbet_ok();
}
