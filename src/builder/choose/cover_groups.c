// Groups of a cover: sets of nodes that grow around a node.
#include <assert.h>

#include "builder/choose/coverer.h"
#include "builder/ir/passes.h"

void rabbet_cover_start(rabbet_coverer_t* c, size_t i) {
  rabbet_cover_set_clear(&c->inside);
  rabbet_cover_set_add(&c->inside, (int32_t)i);
}

static bool cover_is_exit(const rabbet_coverer_t* c, size_t i) {
  return rabbet_fuse_is_exit(&c->build->ir, rabbet_cover_node(c, i));
}

static int32_t cover_all_uses(const rabbet_coverer_t* c, size_t i) {
  return rabbet_ir_output(&c->build->ir, rabbet_cover_node(c, i), 0)->uses;
}

// Whether only nodes inside the set read the node's results, and at least one
// does.
static bool cover_is_hidden(rabbet_coverer_t* c, size_t i) {
  int32_t uses = rabbet_cover_uses(&c->graph, (int32_t)i, &c->inside);
  return uses > 0 && uses == cover_all_uses(c, i) && !cover_is_exit(c, i);
}

void rabbet_cover_assign(rabbet_coverer_t* c) {
  assert(c->inside.count > 0);
  for (size_t i = 0; i < c->inside.count; ++i) {
    assert(c->groups[c->inside.members[i]] == RABBET_COVER_NO_GROUP);
    c->groups[c->inside.members[i]] = c->group_count;
  }
  c->group_count++;
}

static bool cover_is_free(const rabbet_coverer_t* c, int32_t i) {
  return c->groups[i] == RABBET_COVER_NO_GROUP &&
         c->kinds[i] == RABBET_FUSE_POINTWISE;
}

// Whether node i's inputs from outside the set broadcast to the result of
// `start` in the same way in all runs: each axis is the result's own, or one
// element. Kernels of products find added elements by their place in the
// result.
static bool cover_is_steady(const rabbet_coverer_t* c, size_t start, size_t i) {
  const rabbet_ir_t* ir = &c->build->ir;
  const rabbet_ir_node_t* node = rabbet_cover_node(c, i);
  const rabbet_shape_t* full =
      &rabbet_ir_output(ir, rabbet_cover_node(c, start), 0)->shape;
  for (size_t k = 0; k < node->input_count; ++k) {
    const rabbet_ir_value_t* value = rabbet_ir_input(ir, node, k);
    if (!value || value->shape.rank != full->rank) continue;
    int32_t maker = rabbet_cover_maker(&c->graph, value);
    if (maker >= 0 && c->inside.has[maker]) continue;
    for (int32_t axis = 0; axis < full->rank; ++axis) {
      int64_t extent = 0;
      if (value->shape.d[axis] != full->d[axis] &&
          !(rabbet_expr_is_constant(ir->graph, value->shape.d[axis], &extent) &&
            extent == 1))
        return false;
    }
  }
  return true;
}

// Adds node i to c->inside and its readers to the queue. *exposed: how many
// nodes of the set are needed outside. Returns whether only node i is.
static bool cover_join(rabbet_coverer_t* c, int32_t i, int32_t* exposed) {
  rabbet_cover_set_add(&c->inside, i);
  const int32_t* makers = c->graph.makers + c->graph.first_makers[i];
  size_t count =
      (size_t)(c->graph.first_makers[i + 1] - c->graph.first_makers[i]);
  for (size_t k = 0; k < count; ++k)
    if (c->inside.has[makers[k]] && --c->left[makers[k]] == 0 &&
        !cover_is_exit(c, (size_t)makers[k]))
      --*exposed;
  c->left[i] = cover_all_uses(c, (size_t)i);
  bool is_exposed = c->left[i] > 0 || cover_is_exit(c, (size_t)i);
  *exposed += is_exposed;
  assert(*exposed >= 0 && (size_t)*exposed <= c->inside.count);
  rabbet_cover_push_readers(&c->graph, i, &c->queue);
  return *exposed == (int)is_exposed;
}

// Grows the set from nodes that `exposed` counts, the first of which is
// `start`; the queue has the readers.
static int cover_grow_on(rabbet_coverer_t* c, size_t start, int32_t exposed,
                         int level) {
  int32_t i = -1;
  size_t taken = c->inside.count;
  int found = 0;
  while (found < level && (i = rabbet_cover_queue_pop(&c->queue)) >= 0) {
    if (!cover_is_free(c, i)) continue;
    if (!rabbet_fuse_same_shape(&c->build->ir, rabbet_cover_node(c, start),
                                rabbet_cover_node(c, (size_t)i)))
      break;
    if (c->kinds[start] != RABBET_FUSE_POINTWISE &&
        !cover_is_steady(c, start, (size_t)i))
      break;
    if (!cover_join(c, i, &exposed)) continue;
    taken = c->inside.count;
    ++found;
  }
  assert(taken <= c->inside.count && found <= level);
  rabbet_cover_set_truncate(&c->inside, taken);
  return found;
}

static void cover_grow_begin(rabbet_coverer_t* c, size_t start,
                             int32_t* exposed) {
  *exposed = 0;
  rabbet_cover_set_clear(&c->inside);
  rabbet_cover_queue_clear(&c->queue, false);
  cover_join(c, (int32_t)start, exposed);
}

int rabbet_cover_grow(rabbet_coverer_t* c, size_t start, int level) {
  int32_t exposed = 0;
  cover_grow_begin(c, start, &exposed);
  return cover_grow_on(c, start, exposed, level);
}

int rabbet_cover_grow_pair(rabbet_coverer_t* c, size_t start, size_t other,
                           int level) {
  int32_t exposed = 0;
  cover_grow_begin(c, start, &exposed);
  cover_join(c, (int32_t)other, &exposed);
  return cover_grow_on(c, start, exposed, level);
}

bool rabbet_cover_is_pair(const rabbet_coverer_t* c, size_t a, size_t b) {
  return c->groups[a] == RABBET_COVER_NO_GROUP &&
         c->groups[b] == RABBET_COVER_NO_GROUP &&
         rabbet_fuse_is_pair(c->build, rabbet_cover_node(c, a),
                             rabbet_cover_node(c, b));
}

bool rabbet_cover_gather(rabbet_coverer_t* c, size_t i, int32_t* out_group) {
  const int32_t* readers = c->graph.readers + c->graph.first_readers[i];
  size_t count =
      (size_t)(c->graph.first_readers[i + 1] - c->graph.first_readers[i]);
  rabbet_cover_start(c, i);
  if (c->groups[i] != RABBET_COVER_NO_GROUP || count == 0) return false;
  for (size_t k = 0; k < count; ++k)
    if (!rabbet_fuse_normalization(c->build,
                                   rabbet_cover_node(c, (size_t)readers[k])))
      return false;
  int32_t group = c->groups[readers[0]];
  *out_group = group;
  if (group == RABBET_COVER_NO_GROUP)
    rabbet_cover_set_add(&c->inside, readers[0]);
  // Nodes that dequantize factors may come before the normalization.
  for (size_t k = 0; k < c->count && group != RABBET_COVER_NO_GROUP; ++k)
    if (c->groups[k] == group) rabbet_cover_set_add(&c->inside, (int32_t)k);
  return cover_is_hidden(c, i);
}

// Whether node i may be taken by those that read it: a free point-wise node,
// or, before a point-wise node, a slice.
static bool cover_is_takeable(const rabbet_coverer_t* c, int32_t i,
                              bool slices) {
  return cover_is_free(c, i) ||
         (slices && c->groups[i] == RABBET_COVER_NO_GROUP &&
          (c->kinds[i] & RABBET_FUSE_OPERAND) != 0);
}

// Adds to c->inside, which is {i}, free point-wise nodes of the shape of node
// `like` whose results only the set reads, up to `limit` nodes; if i is
// point-wise, slices, too.
static void cover_absorb(rabbet_coverer_t* c, size_t i, size_t like,
                         size_t limit) {
  int32_t maker = -1;
  bool slices = c->kinds[i] == RABBET_FUSE_POINTWISE;
  rabbet_cover_queue_clear(&c->queue, true);
  rabbet_cover_push_makers(&c->graph, (int32_t)i, &c->queue);
  while (c->inside.count < limit &&
         (maker = rabbet_cover_queue_pop(&c->queue)) >= 0) {
    if (!cover_is_takeable(c, maker, slices) ||
        !cover_is_hidden(c, (size_t)maker) ||
        !rabbet_fuse_same_shape(&c->build->ir,
                                rabbet_cover_node(c, (size_t)maker),
                                rabbet_cover_node(c, like)))
      continue;
    rabbet_cover_set_add(&c->inside, maker);
    if (c->kinds[maker] == RABBET_FUSE_POINTWISE)
      rabbet_cover_push_makers(&c->graph, maker, &c->queue);
  }
}

// Whether the node is alone, or (`grouped`) the first of its group.
static bool cover_begins(const rabbet_coverer_t* c, size_t i, bool grouped) {
  if (c->groups[i] == RABBET_COVER_NO_GROUP) return true;
  for (size_t k = 0; k < i; ++k)
    if (c->groups[k] == c->groups[i]) return false;
  return grouped;
}

// The free point-wise node that computes input 0 for this node only, or -1.
static int32_t cover_prologue(const rabbet_coverer_t* c, size_t i,
                              bool grouped) {
  if ((c->kinds[i] & RABBET_FUSE_PROLOGUE) == 0 || !cover_begins(c, i, grouped))
    return -1;
  const rabbet_ir_value_t* value =
      rabbet_ir_input(&c->build->ir, rabbet_cover_node(c, i), 0);
  if (!value || value->uses != 1) return -1;
  int32_t maker = rabbet_cover_maker(&c->graph, value);
  return maker >= 0 && cover_is_free(c, maker) ? maker : -1;
}

void rabbet_cover_prologues(rabbet_coverer_t* c, bool grouped) {
  for (size_t i = 0; i < c->count; ++i) {
    int32_t maker = cover_prologue(c, i, grouped), group = c->groups[i];
    if (maker < 0) continue;
    rabbet_cover_start(c, i);
    cover_absorb(c, i, (size_t)maker, SIZE_MAX);
    if (group == RABBET_COVER_NO_GROUP) {
      rabbet_cover_assign(c);
      continue;
    }
    for (size_t k = 0; k < c->inside.count; ++k)
      c->groups[c->inside.members[k]] = group;
  }
}

static void cover_take_operand(rabbet_coverer_t* c, int32_t i) {
  if (c->groups[i] == RABBET_COVER_NO_GROUP &&
      rabbet_op_is(rabbet_cover_node(c, (size_t)i)->op, RABBET_OP_DEQUANTIZE) &&
      cover_is_hidden(c, (size_t)i))
    rabbet_cover_set_add(&c->inside, i);
}

bool rabbet_cover_take_factors(rabbet_coverer_t* c, size_t product,
                               bool operands) {
  rabbet_ir_node_t* makers[2];
  size_t factors =
      rabbet_fuse_factors(&c->build->ir, rabbet_cover_node(c, product), makers);
  if (factors == 0) return false;
  for (size_t i = 0; i < factors; ++i) {
    int32_t local = rabbet_cover_local(&c->graph, makers[i]);
    if (local < 0 || c->groups[local] != RABBET_COVER_NO_GROUP) return false;
    rabbet_cover_set_add(&c->inside, local);
  }
  size_t count = operands ? c->inside.count : 0;
  for (size_t i = 0; i < count; ++i) {
    int32_t member = c->inside.members[i];
    for (int32_t k = c->graph.first_makers[member];
         k < c->graph.first_makers[member + 1]; ++k)
      cover_take_operand(c, c->graph.makers[k]);
  }
  return true;
}

void rabbet_cover_rest(rabbet_coverer_t* c, size_t limit) {
  for (size_t i = c->count; i-- > 0;) {
    if (c->groups[i] != RABBET_COVER_NO_GROUP) continue;
    rabbet_cover_start(c, i);
    if (c->kinds[i] == RABBET_FUSE_POINTWISE) cover_absorb(c, i, i, limit);
    rabbet_cover_assign(c);
  }
}
