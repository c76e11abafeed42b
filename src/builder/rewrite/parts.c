// A tensor after moves, as the order of the axes of the tensor that they begin
// with, and of parts of such axes. Axes of extent 1 do not count.

#include "builder/rewrite/parts.h"

#include <assert.h>
#include <string.h>

#include "builder/choose/fuse.h"
#include "builder/ir/passes.h"

static bool parts_is_one(const rabbet_parts_t* p, rabbet_expr_t extent) {
  int64_t number = 0;
  return rabbet_expr_is_constant(p->graph, extent, &number) && number == 1;
}

static void parts_begin(rabbet_expr_graph_t* graph, const rabbet_shape_t* shape,
                        rabbet_parts_t* out) {
  *out = (rabbet_parts_t){.graph = graph,
                          .base = shape,
                          .rank = shape->rank,
                          .axis = -1,
                          .atom = -1};
  for (int32_t i = 0; i < shape->rank; ++i) {
    if (!parts_is_one(out, shape->d[i])) {
      out->order[out->count] = out->count;
      out->atoms[out->count++] =
          (rabbet_parts_atom_t){.extent = shape->d[i], .source = i};
    }
    out->ends[i] = out->count;
  }
}

// ---- Reshapes ---------------------------------------------------------------

// extent / by, if it is known to be a whole number: *out_rest.
static bool parts_quotient(const rabbet_parts_t* p, rabbet_expr_t extent,
                           rabbet_expr_t by, rabbet_expr_t* out_rest,
                           rabbet_status_t* status) {
  int64_t a = 0, b = 0;
  if (!rabbet_is_ok(*status)) return false;
  if (extent == by) {
    *status = rabbet_expr_constant(p->graph, 1, out_rest);
    return rabbet_is_ok(*status);
  }
  if (rabbet_expr_is_constant(p->graph, extent, &a) &&
      rabbet_expr_is_constant(p->graph, by, &b)) {
    if (b <= 0 || a % b != 0) return false;
    *status = rabbet_expr_constant(p->graph, a / b, out_rest);
    return rabbet_is_ok(*status);
  }
  const rabbet_expr_node_t* node = rabbet_expr_node(p->graph, extent);
  if (node->op != RABBET_EXPR_PROD || (node->a != by && node->b != by))
    return false;
  *out_rest = node->a == by ? node->b : node->a;
  return true;
}

// Splits an atom into an outer one of this extent and the rest.
static bool parts_split(rabbet_parts_t* p, int atom, rabbet_expr_t outer,
                        rabbet_expr_t rest) {
  int at = 0;
  // Of an atom that is cut the slice would be parts of two.
  if (p->count == RABBET_PARTS_ATOMS_MAX || atom == p->atom) return false;
  if (p->atom > atom) ++p->atom;
  memmove(&p->atoms[atom + 1], &p->atoms[atom],
          (size_t)(p->count - atom) * sizeof(p->atoms[0]));
  p->atoms[atom].extent = outer;
  p->atoms[atom + 1].extent = rest;
  for (int i = 0; i < p->count; ++i) {
    if (p->order[i] == atom) at = i;
    p->order[i] += p->order[i] > atom;
  }
  memmove(&p->order[at + 1], &p->order[at],
          (size_t)(p->count - at) * sizeof(p->order[0]));
  p->order[at + 1] = atom + 1;
  ++p->count;
  return true;
}

static bool parts_reshape(rabbet_parts_t* p, const rabbet_shape_t* to,
                          rabbet_status_t* status) {
  int at = 0;
  for (int32_t i = 0; i < to->rank; ++i) {
    rabbet_expr_t want = to->d[i];
    while (!parts_is_one(p, want)) {
      rabbet_expr_t rest = RABBET_EXPR_NONE;
      if (at == p->count) return false;
      int atom = p->order[at++];
      rabbet_expr_t have = p->atoms[atom].extent;
      if (parts_quotient(p, want, have, &rest, status)) {
        want = rest;
        continue;
      }
      if (!parts_quotient(p, have, want, &rest, status) ||
          !parts_split(p, atom, want, rest))
        return false;
      break;
    }
    p->ends[i] = at;
  }
  p->rank = to->rank;
  return at == p->count;
}

// ---- Other moves ------------------------------------------------------------

static void parts_permute(rabbet_parts_t* p, const int64_t* axes,
                          size_t count) {
  const rabbet_parts_t from = *p;
  int at = 0;
  if (count == 0) return;
  assert(count == (size_t)from.rank);
  for (size_t i = 0; i < count; ++i) {
    int begin = axes[i] > 0 ? from.ends[axes[i] - 1] : 0;
    for (int k = begin; k < from.ends[axes[i]]; ++k)
      p->order[at++] = from.order[k];
    p->ends[i] = at;
  }
  assert(at == p->count);
}

static bool parts_shuffle(rabbet_parts_t* p, const rabbet_ir_t* ir,
                          const rabbet_ir_node_t* node,
                          rabbet_status_t* status) {
  size_t first_count = 0, second_count = 0, reshape = 0;
  const int64_t* first = rabbet_ir_ints(node, "first_transpose", &first_count);
  const int64_t* second =
      rabbet_ir_ints(node, "second_transpose", &second_count);
  rabbet_ir_ints(node, "reshape_dims", &reshape);
  rabbet_shape_t between = rabbet_ir_output(ir, node, 0)->shape;
  for (size_t i = 0; i < second_count; ++i)
    between.d[second[i]] = rabbet_ir_output(ir, node, 0)->shape.d[i];
  parts_permute(p, first, first_count);
  if ((reshape > 0 || rabbet_ir_input(ir, node, 1)) &&
      !parts_reshape(p, &between, status))
    return false;
  parts_permute(p, second, second_count);
  return p->rank == between.rank;
}

// The product of constant extents of atoms [first, end) in the order; in the
// base's order if `order` is NULL. 0: one is not constant.
static int64_t parts_count(const rabbet_parts_t* p, const int* order, int first,
                           int end) {
  int64_t count = 1, extent = 0;
  for (int i = first; i < end; ++i) {
    rabbet_expr_t expr = p->atoms[order ? order[i] : i].extent;
    if (!rabbet_expr_is_constant(p->graph, expr, &extent)) return 0;
    count *= extent;
  }
  return count;
}

static void parts_remove(rabbet_parts_t* p, int atom) {
  int to = 0;
  for (int32_t i = 0, from = 0; i < p->rank; ++i) {
    int end = p->ends[i];
    for (; from < end; ++from)
      if (p->order[from] != atom)
        p->order[to++] = p->order[from] - (p->order[from] > atom);
    p->ends[i] = to;
  }
  --p->count;
  memmove(&p->atoms[atom], &p->atoms[atom + 1],
          (size_t)(p->count - atom) * sizeof(p->atoms[0]));
}

// Takes [start, start + size) of an axis that is one atom.
static bool parts_cut_atom(rabbet_parts_t* p, int atom, int64_t start,
                           int64_t size, rabbet_status_t* status) {
  p->atom = atom;
  p->whole = p->atoms[atom].extent;
  p->start = start;
  p->size = size;
  *status = rabbet_expr_constant(p->graph, size, &p->atoms[atom].extent);
  return rabbet_is_ok(*status);
}

// Takes [start, start + size) of the axis: whole elements of its outermost
// atom, which must be the outermost of an axis of the base, or of its only one.
static bool parts_cut(rabbet_parts_t* p, int32_t axis, int64_t start,
                      int64_t size, rabbet_status_t* status) {
  int begin = axis > 0 ? p->ends[axis - 1] : 0, end = p->ends[axis];
  if (p->axis >= 0 || p->atom >= 0 || begin == end) return false;
  int atom = p->order[begin], last = atom + 1;
  int32_t source = p->atoms[atom].source;
  while (last < p->count && p->atoms[last].source == source)
    ++last;
  int64_t within = parts_count(p, p->order, begin + 1, end);
  int64_t inside = parts_count(p, NULL, atom + 1, last);
  bool is_inner = atom > 0 && p->atoms[atom - 1].source == source;
  if (is_inner && end == begin + 1 && size > 1)
    return parts_cut_atom(p, atom, start, size, status);
  if (is_inner || within <= 0 || inside <= 0 || start % within != 0 ||
      size % within != 0 || size <= 0)
    return false;
  p->axis = source;
  p->start = start / within * inside;
  p->size = size / within * inside;
  *status =
      rabbet_expr_constant(p->graph, size / within, &p->atoms[atom].extent);
  if (rabbet_is_ok(*status) && size == within) parts_remove(p, atom);
  return rabbet_is_ok(*status);
}

static bool parts_slice(rabbet_parts_t* p, const rabbet_ir_t* ir,
                        const rabbet_ir_node_t* node, rabbet_status_t* status) {
  const rabbet_shape_t* from = &rabbet_ir_input(ir, node, 0)->shape;
  const rabbet_shape_t* to = &rabbet_ir_output(ir, node, 0)->shape;
  rabbet_ir_window_t window;
  if (!rabbet_ir_window(ir, node, &window)) return false;
  for (int32_t i = 0; i < to->rank; ++i) {
    int64_t size = 0;
    if (from->d[i] == to->d[i] && window.start[i] == 0 && window.stride[i] == 1)
      continue;
    if (!rabbet_expr_is_constant(ir->graph, to->d[i], &size) ||
        (window.stride[i] != 1 && size != 1) ||
        !parts_cut(p, i, window.start[i], size, status))
      return false;
  }
  return true;
}

// ---- Rewriting --------------------------------------------------------------

static rabbet_status_t parts_add_slice(rabbet_build_t* build,
                                       const rabbet_parts_t* p, int32_t axis,
                                       const rabbet_ir_node_t* before,
                                       const rabbet_ir_value_t** value) {
  rabbet_ir_node_t* node = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_slice(build, before, before->name,
                                             (*value)->id, axis, p->start,
                                             p->size, &node));
  *value = rabbet_ir_output(&build->ir, node, 0);
  return rabbet_ok();
}

rabbet_status_t rabbet_parts_make(rabbet_build_t* build,
                                  const rabbet_parts_t* p,
                                  const rabbet_ir_node_t* before,
                                  const rabbet_shape_t* shape,
                                  const rabbet_ir_value_t** value) {
  rabbet_expr_t extents[RABBET_MAX_RANK];
  int64_t order[RABBET_MAX_RANK];
  bool turns = false;
  assert(p->count <= RABBET_MAX_RANK);
  for (int i = 0; i < p->count; ++i) {
    extents[i] = p->atoms[i].extent;
    order[i] = p->order[i];
    turns |= order[i] != i;
  }
  if (p->axis >= 0)
    RABBET_RETURN_IF_ERROR(parts_add_slice(build, p, p->axis, before, value));
  if (p->atom >= 0) {
    rabbet_expr_t size = extents[p->atom];
    extents[p->atom] = p->whole;
    RABBET_RETURN_IF_ERROR(
        rabbet_ir_add_reshape(build, before, extents, p->count, value));
    RABBET_RETURN_IF_ERROR(parts_add_slice(build, p, p->atom, before, value));
    extents[p->atom] = size;
  }
  if (turns) {
    rabbet_ir_node_t* turn = NULL;
    RABBET_RETURN_IF_ERROR(
        rabbet_ir_add_reshape(build, before, extents, p->count, value));
    RABBET_RETURN_IF_ERROR(rabbet_ir_add_permutation(
        build, before, before->name, (*value)->id, order, p->count, &turn));
    *value = rabbet_ir_output(&build->ir, turn, 0);
  }
  return rabbet_ir_add_reshape(build, before, shape->d, shape->rank, value);
}

bool rabbet_parts_runs(rabbet_expr_graph_t* graph, const rabbet_shape_t* fine,
                       const rabbet_shape_t* coarse, rabbet_parts_t* out,
                       rabbet_status_t* status) {
  parts_begin(graph, fine, out);
  int count = out->count;
  return parts_reshape(out, coarse, status) && out->count == count;
}

void rabbet_parts_permute_base(rabbet_parts_t* p, const rabbet_shape_t* base,
                               const int64_t* axes) {
  const rabbet_parts_t from = *p;
  int to[RABBET_PARTS_ATOMS_MAX], count = 0;
  p->base = base;
  for (int32_t axis = 0; axis < base->rank; ++axis)
    for (int i = 0; i < from.count; ++i) {
      if (from.atoms[i].source != axes[axis]) continue;
      p->atoms[count] = from.atoms[i];
      p->atoms[count].source = axis;
      to[i] = count++;
    }
  assert(count == from.count);
  for (int i = 0; i < count; ++i)
    p->order[i] = to[from.order[i]];
  if (from.atom >= 0) p->atom = to[from.atom];
  for (int32_t axis = 0; from.axis >= 0 && axis < base->rank; ++axis)
    if (axes[axis] == from.axis) p->axis = axis;
}

bool rabbet_parts_read(const rabbet_ir_t* ir, const rabbet_parts_chain_t* chain,
                       int first, rabbet_parts_t* out,
                       rabbet_status_t* status) {
  parts_begin(ir->graph, &rabbet_ir_input(ir, chain->nodes[first], 0)->shape,
              out);
  for (int i = first; i < chain->count; ++i) {
    const rabbet_ir_node_t* node = chain->nodes[i];
    if (rabbet_op_is(node->op, RABBET_OP_SLICE)
            ? !parts_slice(out, ir, node, status)
            : !parts_shuffle(out, ir, node, status))
      return false;
  }
  return out->count <= RABBET_MAX_RANK;
}

// ---- Moves before a factor --------------------------------------------------

void rabbet_parts_chain(const rabbet_ir_t* ir, rabbet_ir_value_t* factor,
                        bool shared, rabbet_parts_chain_t* out) {
  int scales = 0;
  out->count = 0;
  while (factor && factor->producer && out->count < RABBET_PARTS_CHAIN_MAX) {
    rabbet_ir_node_t* maker = factor->producer;
    rabbet_ir_value_t* scaled = rabbet_fuse_scaled(ir, maker);
    if (maker->dead || (!shared && factor->uses != 1)) break;
    if (scaled && out->count == 0 && scales++ < RABBET_FUSE_SCALES_MAX) {
      factor = scaled;
      continue;
    }
    if (!rabbet_fuse_is_move(ir, maker)) break;
    out->nodes[out->count++] = maker;
    shared |= rabbet_op_is(maker->op, RABBET_OP_SLICE);
    factor = rabbet_ir_input(ir, maker, 0);
  }
  out->origin = factor;
  for (int i = 0; i < out->count / 2; ++i) {
    rabbet_ir_node_t* swap = out->nodes[i];
    out->nodes[i] = out->nodes[out->count - 1 - i];
    out->nodes[out->count - 1 - i] = swap;
  }
}
