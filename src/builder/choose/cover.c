// The covers of a cluster: ways to divide its nodes into groups.
//
// A recipe describes a cover: how many of its successors a node takes (its
// epilogue), whether nodes take their predecessors (prologues), and how large
// groups of point-wise nodes may be. Covers with a group for which the device
// has no kernel are dropped.

#include <assert.h>
#include <string.h>

#include "builder/choose/cover_set.h"
#include "builder/ir/passes.h"

#define COVER_LIMIT 32
#define COVER_MAX_LEVELS 8
// The most nodes that, in turn, choose their epilogue before all others.
#define COVER_OWNERS 32
#define NO_GROUP (-1)

typedef struct coverer_t {
  rabbet_build_t* build;
  rabbet_cluster_t* cluster;
  rabbet_cover_graph_t graph;
  size_t count;  // nodes of the cluster, in order of execution
  uint32_t* kinds;
  int32_t* groups;  // of each node
  int32_t group_count;
  bool has_optional;           // there are nodes that may be left out
  bool apart;                  // each of these is a group of its own
  rabbet_cover_set_t inside;   // scratch: a set of nodes
  rabbet_cover_queue_t queue;  // scratch
  int32_t* left;               // scratch: uses of each node by nodes outside
  int32_t* order;              // scratch: nodes, group by group
  int32_t* begins;             // scratch: of each group in `order`
  rabbet_ir_node_t** members;  // scratch
  RABBET_VEC(rabbet_cover_t) covers;
} coverer_t;

static rabbet_ir_node_t* cover_node(const coverer_t* c, size_t i) {
  return c->cluster->nodes[i];
}

// The set of one node.
static void cover_start(coverer_t* c, size_t i) {
  rabbet_cover_set_clear(&c->inside);
  rabbet_cover_set_add(&c->inside, (int32_t)i);
}

static bool cover_is_exit(const coverer_t* c, size_t i) {
  return rabbet_fuse_is_exit(&c->build->ir, cover_node(c, i));
}

static int32_t cover_all_uses(const coverer_t* c, size_t i) {
  return rabbet_ir_output(&c->build->ir, cover_node(c, i), 0)->uses;
}

// Whether only nodes inside the set read the node's results, and at least one
// does.
static bool cover_is_hidden(coverer_t* c, size_t i) {
  int32_t uses = rabbet_cover_uses(&c->graph, (int32_t)i, &c->inside);
  return uses > 0 && uses == cover_all_uses(c, i) && !cover_is_exit(c, i);
}

// ---- Groups -----------------------------------------------------------------

// Gives the nodes of the set a group of their own.
static void cover_assign(coverer_t* c) {
  assert(c->inside.count > 0);
  for (size_t i = 0; i < c->inside.count; ++i) {
    assert(c->groups[c->inside.members[i]] == NO_GROUP);
    c->groups[c->inside.members[i]] = c->group_count;
  }
  c->group_count++;
}

static bool cover_is_free(const coverer_t* c, int32_t i) {
  return c->groups[i] == NO_GROUP && c->kinds[i] == RABBET_FUSE_POINTWISE;
}

// Whether node i's inputs from outside the set broadcast to the result of
// `start` in the same way in all runs: each axis is the result's own, or one
// element. Kernels of products find added elements by their place in the
// result.
static bool cover_is_steady(const coverer_t* c, size_t start, size_t i) {
  const rabbet_ir_t* ir = &c->build->ir;
  const rabbet_ir_node_t* node = cover_node(c, i);
  const rabbet_shape_t* full =
      &rabbet_ir_output(ir, cover_node(c, start), 0)->shape;
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
static bool cover_join(coverer_t* c, int32_t i, int32_t* exposed) {
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

// Grows c->inside from one node to the free point-wise nodes that follow it, up
// to the `level`-th set with a single exit. Returns the number of such sets.
static int cover_grow(coverer_t* c, size_t start, int level) {
  int32_t exposed = 0, i = -1;
  size_t taken = 1;
  int found = 0;
  rabbet_cover_set_clear(&c->inside);
  rabbet_cover_queue_clear(&c->queue, false);
  cover_join(c, (int32_t)start, &exposed);
  while (found < level && (i = rabbet_cover_queue_pop(&c->queue)) >= 0) {
    if (!cover_is_free(c, i)) continue;
    if (!rabbet_fuse_same_shape(&c->build->ir, cover_node(c, start),
                                cover_node(c, (size_t)i)))
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

// Adds to c->inside, which is {i}, free point-wise nodes of the shape of node
// `like` whose results only the set reads, up to `limit` nodes.
static void cover_absorb(coverer_t* c, size_t i, size_t like, size_t limit) {
  int32_t maker = -1;
  rabbet_cover_queue_clear(&c->queue, true);
  rabbet_cover_push_makers(&c->graph, (int32_t)i, &c->queue);
  while (c->inside.count < limit &&
         (maker = rabbet_cover_queue_pop(&c->queue)) >= 0) {
    if (!cover_is_free(c, maker) || !cover_is_hidden(c, (size_t)maker) ||
        !rabbet_fuse_same_shape(&c->build->ir, cover_node(c, (size_t)maker),
                                cover_node(c, like)))
      continue;
    rabbet_cover_set_add(&c->inside, maker);
    rabbet_cover_push_makers(&c->graph, maker, &c->queue);
  }
}

// The free point-wise node that computes input 0 for this node only, or -1.
static int32_t cover_prologue(const coverer_t* c, size_t i) {
  if (c->groups[i] != NO_GROUP || (c->kinds[i] & RABBET_FUSE_PROLOGUE) == 0)
    return -1;
  const rabbet_ir_value_t* value =
      rabbet_ir_input(&c->build->ir, cover_node(c, i), 0);
  if (!value || value->uses != 1) return -1;
  int32_t maker = rabbet_cover_maker(&c->graph, value);
  return maker >= 0 && cover_is_free(c, maker) ? maker : -1;
}

// Groups nodes with the point-wise nodes before their input 0.
static void cover_prologues(coverer_t* c) {
  for (size_t i = 0; i < c->count; ++i) {
    int32_t maker = cover_prologue(c, i);
    if (maker < 0) continue;
    cover_start(c, i);
    cover_absorb(c, i, (size_t)maker, SIZE_MAX);
    cover_assign(c);
  }
}

static void cover_take_operand(coverer_t* c, int32_t i) {
  if (c->groups[i] == NO_GROUP &&
      rabbet_op_is(cover_node(c, (size_t)i)->op, RABBET_OP_DEQUANTIZE) &&
      cover_is_hidden(c, (size_t)i))
    rabbet_cover_set_add(&c->inside, i);
}

// Adds to c->inside the nodes that make the factors of a quantized product, and
// those that dequantize tensors added to its result.
static bool cover_take_factors(coverer_t* c, size_t product, bool operands) {
  rabbet_ir_node_t* makers[2];
  size_t factors =
      rabbet_fuse_factors(&c->build->ir, cover_node(c, product), makers);
  if (factors == 0) return false;
  for (size_t i = 0; i < factors; ++i) {
    int32_t local = rabbet_cover_local(&c->graph, makers[i]);
    if (local < 0 || c->groups[local] != NO_GROUP) return false;
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

// Groups the remaining nodes: regions of at most `limit` point-wise nodes, all
// others alone.
static void cover_rest(coverer_t* c, size_t limit) {
  for (size_t i = c->count; i-- > 0;) {
    if (c->groups[i] != NO_GROUP) continue;
    cover_start(c, i);
    if (c->kinds[i] == RABBET_FUSE_POINTWISE) cover_absorb(c, i, i, limit);
    cover_assign(c);
  }
}

// ---- Recipes ----------------------------------------------------------------

typedef struct recipe_t {
  int32_t owner;  // node that takes its epilogue first, or -1
  int level;      // the most sets by which its epilogue grows
  bool others;    // other nodes take epilogues of remaining nodes
  bool prologues;
  size_t limit;    // nodes of a point-wise group
  bool attention;  // attention is grouped first
  bool quantized;  // products take the nodes that dequantize their factors
} recipe_t;

static rabbet_status_t cover_unit(coverer_t* c, const int32_t* nodes,
                                  size_t count, bool* supported,
                                  rabbet_unit_t** out_unit) {
  assert(count > 0 && count <= c->count);
  for (size_t i = 0; i < count; ++i) {
    assert(i == 0 || nodes[i - 1] < nodes[i]);
    c->members[i] = cover_node(c, (size_t)nodes[i]);
  }
  RABBET_RETURN_IF_ERROR(
      rabbet_tuner_unit(c->build, c->members, count, out_unit));
  *supported = (*out_unit)->choice_count > 0;
  return rabbet_ok();
}

// Lists the nodes of each group, ascending, from c->begins of the group on.
static void cover_list_groups(coverer_t* c) {
  size_t groups = (size_t)c->group_count;
  memset(c->begins, 0, (groups + 1) * sizeof(int32_t));
  for (size_t i = 0; i < c->count; ++i) {
    assert(c->groups[i] >= 0 && c->groups[i] < c->group_count);
    c->begins[c->groups[i] + 1]++;
  }
  for (size_t g = 0; g < groups; ++g)
    c->begins[g + 1] += c->begins[g];
  for (size_t i = 0; i < c->count; ++i)
    c->order[c->begins[c->groups[i]]++] = (int32_t)i;
  for (size_t g = groups; g > 0; --g)
    c->begins[g] = c->begins[g - 1];
  c->begins[0] = 0;
}

static bool cover_is_known(const coverer_t* c, const rabbet_cover_t* cover) {
  for (size_t i = 0; i < c->covers.count; ++i)
    if (c->covers.data[i].unit_count == cover->unit_count &&
        memcmp(c->covers.data[i].units, cover->units,
               cover->unit_count * sizeof(*cover->units)) == 0)
      return true;
  return false;
}

// A node whose result is a known constant never runs alone.
static bool cover_is_idle(const coverer_t* c, size_t last, size_t group_size) {
  const rabbet_ir_value_t* value =
      rabbet_ir_output(&c->build->ir, cover_node(c, last), 0);
  return group_size == 1 && (value->constant || value->is_deferred);
}

// Adds the cover that the groups describe, if the device offers all of it.
static rabbet_status_t cover_add(coverer_t* c, bool* out_supported) {
  rabbet_cover_t cover = {0};
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &c->build->arena, (size_t)c->group_count, sizeof(rabbet_unit_t*),
      (void**)&cover.units));
  *out_supported = true;
  cover_list_groups(c);
  c->graph.steps += c->count;
  for (size_t i = 0; i < c->count && *out_supported; ++i) {
    int32_t group = c->groups[i];
    const int32_t* nodes = c->order + c->begins[group];
    size_t size = (size_t)(c->begins[group + 1] - c->begins[group]);
    assert(size > 0);
    if (nodes[size - 1] == (int32_t)i && !cover_is_idle(c, i, size))
      RABBET_RETURN_IF_ERROR(cover_unit(c, nodes, size, out_supported,
                                        &cover.units[cover.unit_count++]));
  }
  assert(cover.unit_count <= (size_t)c->group_count);
  if (!*out_supported || cover_is_known(c, &cover)) return rabbet_ok();
  return RABBET_VEC_PUSH(c->build->allocator, &c->covers, cover);
}

static rabbet_status_t cover_group_supported(coverer_t* c, bool* supported) {
  rabbet_unit_t* unit = NULL;
  rabbet_cover_set_sort(&c->inside);
  return cover_unit(c, c->inside.members, c->inside.count, supported, &unit);
}

// Groups the node with the largest epilogue for which the device has a kernel,
// at most `level` sets (cover_grow); *out_level: how many.
static rabbet_status_t cover_take_epilogue(coverer_t* c, size_t node, int level,
                                           int* out_level) {
  *out_level = 0;
  for (int wish = cover_grow(c, node, level); wish > 0; --wish) {
    cover_grow(c, node, wish);
    bool supported = false;
    RABBET_RETURN_IF_ERROR(cover_group_supported(c, &supported));
    if (!supported) continue;
    cover_assign(c);
    *out_level = wish;
    return rabbet_ok();
  }
  return rabbet_ok();
}

static rabbet_status_t cover_take_attention(coverer_t* c, size_t last,
                                            rabbet_fuse_reach_t reach,
                                            bool* out_taken) {
  rabbet_ir_node_t* nodes[RABBET_FUSE_ATTENTION_MAX];
  size_t count =
      rabbet_fuse_attention(&c->build->ir, cover_node(c, last), reach, nodes);
  *out_taken = false;
  if (count == 0) return rabbet_ok();
  rabbet_cover_set_clear(&c->inside);
  for (size_t k = 0; k < count; ++k) {
    int32_t local = rabbet_cover_local(&c->graph, nodes[k]);
    // With less reach the search may go another way, out of the cluster.
    if (local < 0) return rabbet_ok();
    rabbet_cover_set_add(&c->inside, local);
  }
  RABBET_RETURN_IF_ERROR(cover_group_supported(c, out_taken));
  if (*out_taken) cover_assign(c);
  return rabbet_ok();
}

// Groups each attention for which the device has a kernel, with as many of the
// nodes around it as possible.
static rabbet_status_t cover_attention(coverer_t* c) {
  for (size_t i = 0; i < c->count; ++i) {
    bool taken = false;
    for (int reach = (int)rabbet_fuse_reach(c->build); reach >= 0 && !taken;
         --reach)
      RABBET_RETURN_IF_ERROR(
          cover_take_attention(c, i, (rabbet_fuse_reach_t)reach, &taken));
  }
  return rabbet_ok();
}

// Groups a quantized product with the largest epilogue for which the device has
// a kernel.
static rabbet_status_t cover_quantized_product(coverer_t* c, size_t product,
                                               bool* out_taken) {
  *out_taken = false;
  int most = cover_grow(c, product, COVER_MAX_LEVELS);
  for (int wish = most; wish >= 0 && !*out_taken; --wish) {
    for (int operands = 1; operands >= 0 && !*out_taken; --operands) {
      cover_grow(c, product, wish);
      if (!cover_take_factors(c, product, operands)) return rabbet_ok();
      RABBET_RETURN_IF_ERROR(cover_group_supported(c, out_taken));
    }
  }
  if (*out_taken) cover_assign(c);
  return rabbet_ok();
}

static rabbet_status_t cover_quantized(coverer_t* c) {
  bool taken = false;
  for (size_t i = 0; i < c->count; ++i)
    if (c->groups[i] == NO_GROUP)
      RABBET_RETURN_IF_ERROR(cover_quantized_product(c, i, &taken));
  return rabbet_ok();
}

static bool cover_has_quantized(const coverer_t* c) {
  rabbet_ir_node_t* makers[2];
  for (size_t i = 0; i < c->count; ++i)
    if (rabbet_fuse_factors(&c->build->ir, cover_node(c, i), makers) > 0)
      return true;
  return false;
}

static bool cover_has_attention(const coverer_t* c) {
  rabbet_ir_node_t* nodes[RABBET_FUSE_ATTENTION_MAX];
  for (size_t i = 0; i < c->count; ++i)
    if (rabbet_fuse_attention(&c->build->ir, cover_node(c, i),
                              rabbet_fuse_reach(c->build), nodes) > 0)
      return true;
  return false;
}

// Makes a group of each node that may be left out if kernels compute in
// floating types.
static void cover_set_apart(coverer_t* c) {
  for (size_t i = 0; i < c->count; ++i) {
    if (!cover_node(c, i)->is_optional) continue;
    cover_start(c, i);
    cover_assign(c);
  }
}

static rabbet_status_t cover_follow(coverer_t* c, const recipe_t* recipe,
                                    int* out_level, bool* out_supported) {
  assert(recipe->owner < (int32_t)c->count && recipe->limit > 0);
  for (size_t i = 0; i < c->count; ++i)
    c->groups[i] = NO_GROUP;
  c->group_count = 0;
  *out_level = 0;
  if (c->apart && !recipe->quantized) cover_set_apart(c);
  if (recipe->attention) RABBET_RETURN_IF_ERROR(cover_attention(c));
  if (recipe->quantized) RABBET_RETURN_IF_ERROR(cover_quantized(c));
  if (recipe->owner >= 0)
    RABBET_RETURN_IF_ERROR(cover_take_epilogue(c, (size_t)recipe->owner,
                                               recipe->level, out_level));
  int other = 0;
  for (size_t i = 0; recipe->others && i < c->count; ++i)
    if (c->groups[i] == NO_GROUP && (c->kinds[i] & RABBET_FUSE_EPILOGUE) != 0)
      RABBET_RETURN_IF_ERROR(
          cover_take_epilogue(c, i, COVER_MAX_LEVELS, &other));
  if (recipe->prologues) cover_prologues(c);
  cover_rest(c, recipe->limit);
  return cover_add(c, out_supported);
}

// Follows the recipe with the largest groups of point-wise nodes for which the
// device has kernels.
static rabbet_status_t cover_try(coverer_t* c, recipe_t recipe,
                                 int* out_level) {
  static const size_t limits[] = {SIZE_MAX, 128, 32, 8, 1};
  *out_level = 0;
  if (c->covers.count >= COVER_LIMIT) return rabbet_ok();
  for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); ++i) {
    bool supported = false;
    recipe.limit = limits[i];
    RABBET_RETURN_IF_ERROR(cover_follow(c, &recipe, out_level, &supported));
    if (supported) return rabbet_ok();
  }
  return rabbet_ok();
}

static bool cover_has(const coverer_t* c, uint32_t kind) {
  for (size_t i = 0; i < c->count; ++i)
    if ((c->kinds[i] & kind) != 0) return true;
  return false;
}

// Lets each node with an epilogue choose first, once. At higher optimization
// levels smaller parts of the epilogue are tried, too.
static rabbet_status_t cover_owners(coverer_t* c, bool prologues) {
  int owners = 0;
  for (size_t i = 0; i < c->count && owners < COVER_OWNERS; ++i) {
    if ((c->kinds[i] & RABBET_FUSE_EPILOGUE) == 0) continue;
    int level = 0;
    ++owners;
    RABBET_RETURN_IF_ERROR(cover_try(c,
                                     (recipe_t){.owner = (int32_t)i,
                                                .level = COVER_MAX_LEVELS,
                                                .others = true,
                                                .prologues = prologues},
                                     &level));
    while (c->build->level >= 4 && level > 1) {
      int wish = level - 1;
      RABBET_RETURN_IF_ERROR(cover_try(c,
                                       (recipe_t){.owner = (int32_t)i,
                                                  .level = wish,
                                                  .others = true,
                                                  .prologues = prologues},
                                       &level));
    }
  }
  return rabbet_ok();
}

static rabbet_status_t cover_left_out(coverer_t* c, bool prologues) {
  int level = 0;
  c->apart = true;
  rabbet_status_t status = cover_owners(c, prologues);
  if (rabbet_is_ok(status))
    status =
        cover_try(c, (recipe_t){.owner = -1, .prologues = prologues}, &level);
  c->apart = false;
  return status;
}

// Elements of packed weights from which their floats do not stay in a core's
// cache, and rows up to which a product takes the time of reading its weights.
enum { COVER_LARGE_WEIGHTS = 1 << 20, COVER_FEW_ROWS = 8 };

// Whether the unit is a product of few rows with large packed weights, by a
// kernel that is made for it. Reading their floats takes four to eight times as
// long: they are not made, since that takes time and memory.
static bool cover_unit_is_certain(const coverer_t* c,
                                  const rabbet_unit_t* unit) {
  const rabbet_ir_t* ir = &c->build->ir;
  for (size_t i = 0; i < unit->node_count; ++i) {
    const rabbet_ir_node_t* factor =
        rabbet_ir_packed_factor(ir, unit->nodes[i]);
    if (!factor || unit->choice_count == 0) continue;
    const rabbet_group_node_t* node = &unit->group.nodes[i];
    const rabbet_dims_t *x = &unit->group.values[node->inputs[0]].dims,
                        *w = &unit->group.values[node->inputs[1]].dims;
    int64_t rows = 1, elements = 1;
    for (int32_t k = 0; k < x->rank - 1; ++k)
      rows *= x->d[k];
    for (int32_t k = 0; k < w->rank; ++k)
      elements *= w->d[k];
    return elements >= COVER_LARGE_WEIGHTS && rows <= COVER_FEW_ROWS &&
           !(unit->choices[0].candidate.kernel->flags & RABBET_KERNEL_FALLBACK);
  }
  return false;
}

// Whether the first cover is the only one worth timing.
static bool cover_is_certain(const coverer_t* c) {
  size_t products = 0, certain = 0;
  rabbet_ir_node_t* makers[2];
  for (size_t i = 0; i < c->count; ++i)
    products +=
        (c->kinds[i] & RABBET_FUSE_EPILOGUE) != 0 ||
        rabbet_fuse_factors(&c->build->ir, cover_node(c, i), makers) > 0;
  // A GPU's kernels differ more, and time is less with them.
  if (c->covers.count != 1 || !c->build->device->host_memory) return false;
  for (size_t i = 0; i < c->covers.data[0].unit_count; ++i)
    certain += cover_unit_is_certain(c, c->covers.data[0].units[i]);
  return certain > 0 && certain == products;
}

static rabbet_status_t cover_recipes(coverer_t* c) {
  int level = 0;
  bool prologues = cover_has(c, RABBET_FUSE_PROLOGUE);
  if (cover_has_attention(c))
    RABBET_RETURN_IF_ERROR(cover_try(
        c,
        (recipe_t){
            .owner = -1, .others = true, .prologues = true, .attention = true},
        &level));
  if (cover_has_quantized(c))
    RABBET_RETURN_IF_ERROR(cover_try(
        c,
        (recipe_t){
            .owner = -1, .others = true, .prologues = true, .quantized = true},
        &level));
  if (cover_is_certain(c)) return rabbet_ok();
  if (c->has_optional) RABBET_RETURN_IF_ERROR(cover_left_out(c, prologues));
  if (c->covers.count > 0 && c->build->level <= 1) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(cover_owners(c, false));
  if (prologues) {
    RABBET_RETURN_IF_ERROR(cover_owners(c, true));
    RABBET_RETURN_IF_ERROR(
        cover_try(c, (recipe_t){.owner = -1, .prologues = true}, &level));
  }
  // At low levels fused kernels are chosen without timing others.
  if (c->covers.count > 0 && c->build->level <= 1) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(cover_try(c, (recipe_t){.owner = -1}, &level));
  bool supported = false;
  if (c->covers.count > 0 && c->build->level < 5) return rabbet_ok();
  return cover_follow(c, &(recipe_t){.owner = -1, .limit = 1}, &level,
                      &supported);
}

static rabbet_status_t cover_initialize(coverer_t* c) {
  rabbet_build_t* build = c->build;
  rabbet_arena_t* arena = &build->arena;
  const struct {
    void** array;
    size_t count, element;
  } arrays[] = {
      {(void**)&c->kinds, c->count, sizeof(uint32_t)},
      {(void**)&c->groups, c->count, sizeof(int32_t)},
      {(void**)&c->left, c->count, sizeof(int32_t)},
      {(void**)&c->order, c->count, sizeof(int32_t)},
      {(void**)&c->begins, c->count + 1, sizeof(int32_t)},
      {(void**)&c->members, c->count, sizeof(*c->members)},
  };
  for (size_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]); ++i)
    RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
        arena, arrays[i].count, arrays[i].element, arrays[i].array));
  RABBET_RETURN_IF_ERROR(
      rabbet_cover_graph_create(build, c->cluster, &c->graph));
  RABBET_RETURN_IF_ERROR(rabbet_cover_set_create(arena, c->count, &c->inside));
  RABBET_RETURN_IF_ERROR(rabbet_cover_queue_create(arena, c->count, &c->queue));
  for (size_t i = 0; i < c->count; ++i) {
    c->kinds[i] = rabbet_fuse_kind(&build->ir, cover_node(c, i));
    c->has_optional |= cover_node(c, i)->is_optional;
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_tune_cover(rabbet_build_t* build,
                                  rabbet_cluster_t* cluster) {
  coverer_t c = {
      .build = build, .cluster = cluster, .count = cluster->node_count};
  rabbet_status_t status = cover_initialize(&c);
  if (rabbet_is_ok(status)) status = cover_recipes(&c);
  if (rabbet_is_ok(status))
    status = rabbet_arena_copy(&build->arena, c.covers.data,
                               c.covers.count * sizeof(rabbet_cover_t),
                               (void**)&cluster->covers);
  cluster->cover_count = rabbet_is_ok(status) ? c.covers.count : 0;
  build->search_steps += c.graph.steps + c.queue.steps;
  rabbet_cover_graph_destroy(&c.graph);
  rabbet_vec_free(build->allocator, &c.covers);
  return status;
}
