// The covers of a cluster: ways to divide its nodes into groups.
//
// A recipe describes a cover: how many of its successors a node takes (its
// epilogue), whether nodes take their predecessors (prologues), and how large
// groups of point-wise nodes may be. Covers with a group for which the device
// has no kernel are dropped.

#include <assert.h>
#include <string.h>

#include "builder/choose/coverer.h"
#include "builder/ir/passes.h"

#define COVER_LIMIT 32
#define COVER_MAX_LEVELS 12
// The most nodes that, in turn, choose their epilogue before all others.
#define COVER_OWNERS 32
// How many nodes further the second product of a pair may be: in its cluster a
// product has few neighbours of the same tensor that the same chain reads.
#define COVER_BESIDE 16

// ---- Recipes ----------------------------------------------------------------

typedef struct recipe_t {
  int32_t owner;  // node that takes its epilogue first, or -1
  int level;      // the most sets by which its epilogue grows
  bool others;    // other nodes take epilogues of remaining nodes
  bool prologues;
  bool both;       // nodes with an epilogue take prologues, too
  size_t limit;    // nodes of a point-wise group
  bool attention;  // attention is grouped first
  bool squeeze;    // gates of squeeze and excitation are grouped first
  bool quantized;  // products take the nodes that dequantize their factors
  bool pairs;      // products of one tensor that a chain combines are one group
  bool rows;       // products take the normalization of their rows
} recipe_t;

static rabbet_status_t cover_unit(rabbet_coverer_t* c, const int32_t* nodes,
                                  size_t count, bool* supported,
                                  rabbet_unit_t** out_unit) {
  assert(count > 0 && count <= c->count);
  for (size_t i = 0; i < count; ++i) {
    assert(i == 0 || nodes[i - 1] < nodes[i]);
    c->members[i] = rabbet_cover_node(c, (size_t)nodes[i]);
  }
  RABBET_RETURN_IF_ERROR(
      rabbet_tuner_unit(c->build, c->members, count, out_unit));
  *supported = (*out_unit)->choice_count > 0;
  return rabbet_ok();
}

// Lists the nodes of each group, ascending, from c->begins of the group on.
static void cover_list_groups(rabbet_coverer_t* c) {
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

static bool cover_is_known(const rabbet_coverer_t* c,
                           const rabbet_cover_t* cover) {
  for (size_t i = 0; i < c->covers.count; ++i)
    if (c->covers.data[i].unit_count == cover->unit_count &&
        memcmp(c->covers.data[i].units, cover->units,
               cover->unit_count * sizeof(*cover->units)) == 0)
      return true;
  return false;
}

// A node whose result is a known constant never runs alone.
static bool cover_is_idle(const rabbet_coverer_t* c, size_t last,
                          size_t group_size) {
  const rabbet_ir_value_t* value =
      rabbet_ir_output(&c->build->ir, rabbet_cover_node(c, last), 0);
  return group_size == 1 && (value->constant || value->is_deferred);
}

// Adds the cover that the groups describe, if the device offers all of it.
static rabbet_status_t cover_add(rabbet_coverer_t* c, bool* out_supported) {
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

static rabbet_status_t cover_group_supported(rabbet_coverer_t* c,
                                             bool* supported) {
  rabbet_unit_t* unit = NULL;
  rabbet_cover_set_sort(&c->inside);
  return cover_unit(c, c->inside.members, c->inside.count, supported, &unit);
}

// Groups the node with the largest epilogue for which the device has a kernel,
// at most `level` sets (rabbet_cover_grow); *out_level: how many.
static rabbet_status_t cover_take_epilogue(rabbet_coverer_t* c, size_t node,
                                           int level, int* out_level) {
  *out_level = 0;
  for (int wish = rabbet_cover_grow(c, node, level); wish > 0; --wish) {
    rabbet_cover_grow(c, node, wish);
    bool supported = false;
    RABBET_RETURN_IF_ERROR(cover_group_supported(c, &supported));
    if (!supported) continue;
    rabbet_cover_assign(c);
    *out_level = wish;
    return rabbet_ok();
  }
  return rabbet_ok();
}

static rabbet_status_t cover_take_attention(rabbet_coverer_t* c, size_t last,
                                            rabbet_fuse_reach_t reach,
                                            bool* out_taken) {
  rabbet_ir_node_t* nodes[RABBET_FUSE_ATTENTION_MAX];
  size_t count = rabbet_fuse_attention(
      &c->build->ir, rabbet_cover_node(c, last), reach, nodes);
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
  if (*out_taken) rabbet_cover_assign(c);
  return rabbet_ok();
}

// Groups each attention for which the device has a kernel, with as many of the
// nodes around it as possible.
static rabbet_status_t cover_attention(rabbet_coverer_t* c) {
  for (size_t i = 0; i < c->count; ++i) {
    bool taken = false;
    for (int reach = (int)rabbet_fuse_reach(c->build); reach >= 0 && !taken;
         --reach)
      RABBET_RETURN_IF_ERROR(
          cover_take_attention(c, i, (rabbet_fuse_reach_t)reach, &taken));
  }
  return rabbet_ok();
}

// Groups each gate of squeeze and excitation for which the device has a kernel,
// the largest first.
static rabbet_status_t cover_squeeze(rabbet_coverer_t* c) {
  rabbet_ir_node_t* nodes[RABBET_FUSE_SQUEEZE_MAX];
  for (size_t i = c->count; i-- > 0;) {
    size_t count =
        rabbet_fuse_squeeze(c->build, rabbet_cover_node(c, i), nodes);
    bool free = count > 0, supported = false;
    rabbet_cover_set_clear(&c->inside);
    for (size_t k = 0; free && k < count; ++k) {
      int32_t local = rabbet_cover_local(&c->graph, nodes[k]);
      free = local >= 0 && c->groups[local] == RABBET_COVER_NO_GROUP;
      if (free) rabbet_cover_set_add(&c->inside, local);
    }
    if (!free) continue;
    RABBET_RETURN_IF_ERROR(cover_group_supported(c, &supported));
    if (supported) rabbet_cover_assign(c);
  }
  return rabbet_ok();
}

// Groups a quantized product with the largest epilogue for which the device has
// a kernel.
static rabbet_status_t cover_quantized_product(rabbet_coverer_t* c,
                                               size_t product,
                                               bool* out_taken) {
  *out_taken = false;
  int most = rabbet_cover_grow(c, product, COVER_MAX_LEVELS);
  for (int wish = most; wish >= 0 && !*out_taken; --wish) {
    for (int operands = 1; operands >= 0 && !*out_taken; --operands) {
      rabbet_cover_grow(c, product, wish);
      if (!rabbet_cover_take_factors(c, product, operands)) return rabbet_ok();
      RABBET_RETURN_IF_ERROR(cover_group_supported(c, out_taken));
    }
  }
  if (*out_taken) rabbet_cover_assign(c);
  return rabbet_ok();
}

// Groups two products of one tensor with the largest chain after them for which
// the device has a kernel.
static rabbet_status_t cover_pair(rabbet_coverer_t* c, size_t a, size_t b,
                                  bool* out_taken) {
  *out_taken = false;
  bool is_packed =
      rabbet_ir_packed_factor(&c->build->ir, rabbet_cover_node(c, a)) != NULL;
  int most = rabbet_cover_grow_pair(c, a, b, COVER_MAX_LEVELS);
  for (int wish = most; wish >= 1 && !*out_taken; --wish) {
    rabbet_cover_grow_pair(c, a, b, wish);
    if (is_packed && (!rabbet_cover_take_factors(c, a, false) ||
                      !rabbet_cover_take_factors(c, b, false)))
      return rabbet_ok();
    RABBET_RETURN_IF_ERROR(cover_group_supported(c, out_taken));
  }
  if (*out_taken) rabbet_cover_assign(c);
  return rabbet_ok();
}

static rabbet_status_t cover_pairs(rabbet_coverer_t* c) {
  for (size_t i = 0; i < c->count; ++i) {
    bool taken = false;
    for (size_t k = i + 1; k < c->count && k <= i + COVER_BESIDE && !taken; ++k)
      if (rabbet_cover_is_pair(c, i, k))
        RABBET_RETURN_IF_ERROR(cover_pair(c, i, k, &taken));
  }
  return rabbet_ok();
}

// Groups normalizations with the products of their rows, as far as the device
// has kernels for both.
static rabbet_status_t cover_rows(rabbet_coverer_t* c) {
  for (size_t i = 0; i < c->count; ++i) {
    bool supported = false;
    int32_t group = RABBET_COVER_NO_GROUP;
    if (!rabbet_cover_gather(c, i, &group)) continue;
    RABBET_RETURN_IF_ERROR(cover_group_supported(c, &supported));
    if (supported && group != RABBET_COVER_NO_GROUP)
      c->groups[i] = group;
    else if (supported)
      rabbet_cover_assign(c);
  }
  return rabbet_ok();
}

static rabbet_status_t cover_quantized(rabbet_coverer_t* c) {
  bool taken = false;
  for (size_t i = 0; i < c->count; ++i)
    if (c->groups[i] == RABBET_COVER_NO_GROUP)
      RABBET_RETURN_IF_ERROR(cover_quantized_product(c, i, &taken));
  return rabbet_ok();
}

static bool cover_has_quantized(const rabbet_coverer_t* c) {
  rabbet_ir_node_t* makers[2];
  for (size_t i = 0; i < c->count; ++i)
    if (rabbet_fuse_factors(&c->build->ir, rabbet_cover_node(c, i), makers) > 0)
      return true;
  return false;
}

static bool cover_has_rows(const rabbet_coverer_t* c) {
  for (size_t i = 0; i < c->count; ++i) {
    const rabbet_ir_node_t* before =
        rabbet_fuse_normalization(c->build, rabbet_cover_node(c, i));
    if (before && rabbet_cover_local(&c->graph, before) >= 0) return true;
  }
  return false;
}

static bool cover_has_pairs(const rabbet_coverer_t* c) {
  for (size_t i = 0; i < c->count; ++i)
    for (size_t k = i + 1; k < c->count && k <= i + COVER_BESIDE; ++k)
      if (rabbet_fuse_is_pair(c->build, rabbet_cover_node(c, i),
                              rabbet_cover_node(c, k)))
        return true;
  return false;
}

static bool cover_has_attention(const rabbet_coverer_t* c) {
  rabbet_ir_node_t* nodes[RABBET_FUSE_ATTENTION_MAX];
  for (size_t i = 0; i < c->count; ++i)
    if (rabbet_fuse_attention(&c->build->ir, rabbet_cover_node(c, i),
                              rabbet_fuse_reach(c->build), nodes) > 0)
      return true;
  return false;
}

static bool cover_has_squeeze(const rabbet_coverer_t* c) {
  rabbet_ir_node_t* nodes[RABBET_FUSE_SQUEEZE_MAX];
  for (size_t i = 0; i < c->count; ++i)
    if (rabbet_fuse_squeeze(c->build, rabbet_cover_node(c, i), nodes) > 0)
      return true;
  return false;
}

// Makes a group of each node that may be left out if kernels compute in
// floating types.
static void cover_set_apart(rabbet_coverer_t* c) {
  for (size_t i = 0; i < c->count; ++i) {
    if (!rabbet_cover_node(c, i)->is_optional) continue;
    rabbet_cover_start(c, i);
    rabbet_cover_assign(c);
  }
}

static rabbet_status_t cover_follow(rabbet_coverer_t* c, const recipe_t* recipe,
                                    int* out_level, bool* out_supported) {
  assert(recipe->owner < (int32_t)c->count && recipe->limit > 0);
  for (size_t i = 0; i < c->count; ++i)
    c->groups[i] = RABBET_COVER_NO_GROUP;
  c->group_count = 0;
  *out_level = 0;
  if (c->apart && !recipe->quantized) cover_set_apart(c);
  if (recipe->attention) RABBET_RETURN_IF_ERROR(cover_attention(c));
  if (recipe->squeeze) RABBET_RETURN_IF_ERROR(cover_squeeze(c));
  if (recipe->pairs) RABBET_RETURN_IF_ERROR(cover_pairs(c));
  if (recipe->quantized) RABBET_RETURN_IF_ERROR(cover_quantized(c));
  if (recipe->owner >= 0)
    RABBET_RETURN_IF_ERROR(cover_take_epilogue(c, (size_t)recipe->owner,
                                               recipe->level, out_level));
  int other = 0;
  for (size_t i = 0; recipe->others && i < c->count; ++i)
    if (c->groups[i] == RABBET_COVER_NO_GROUP &&
        (c->kinds[i] & RABBET_FUSE_EPILOGUE) != 0)
      RABBET_RETURN_IF_ERROR(
          cover_take_epilogue(c, i, COVER_MAX_LEVELS, &other));
  if (recipe->rows) RABBET_RETURN_IF_ERROR(cover_rows(c));
  if (recipe->prologues) rabbet_cover_prologues(c, recipe->both);
  rabbet_cover_rest(c, recipe->limit);
  return cover_add(c, out_supported);
}

// Follows the recipe with the largest groups of point-wise nodes for which the
// device has kernels.
static rabbet_status_t cover_try(rabbet_coverer_t* c, recipe_t recipe,
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

static bool cover_has(const rabbet_coverer_t* c, uint32_t kind) {
  for (size_t i = 0; i < c->count; ++i)
    if ((c->kinds[i] & kind) != 0) return true;
  return false;
}

// Lets each node with an epilogue choose first, once. At higher optimization
// levels smaller parts of the epilogue are tried, too.
static rabbet_status_t cover_owners(rabbet_coverer_t* c, bool prologues) {
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

static rabbet_status_t cover_left_out(rabbet_coverer_t* c, bool prologues) {
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
static bool cover_unit_is_certain(const rabbet_coverer_t* c,
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
static bool cover_is_certain(const rabbet_coverer_t* c) {
  size_t products = 0, certain = 0;
  rabbet_ir_node_t* makers[2];
  for (size_t i = 0; i < c->count; ++i)
    products +=
        (c->kinds[i] & RABBET_FUSE_EPILOGUE) != 0 ||
        rabbet_fuse_factors(&c->build->ir, rabbet_cover_node(c, i), makers) > 0;
  // A GPU's kernels differ more, and time is less with them.
  if (c->covers.count != 1 || !c->build->device->host_memory) return false;
  for (size_t i = 0; i < c->covers.data[0].unit_count; ++i)
    certain += cover_unit_is_certain(c, c->covers.data[0].units[i]);
  return certain > 0 && certain == products;
}

// Covers in which products take other nodes than their epilogue, most of them
// first.
static rabbet_status_t cover_joint(rabbet_coverer_t* c) {
  bool quantized = cover_has_quantized(c);
  size_t before = c->covers.count;
  int level = 0, rows = cover_has_rows(c), pairs = cover_has_pairs(c);
  for (int i = 2 * rows + pairs; i >= (quantized ? 0 : 1); --i) {
    if ((i & ~(2 * rows + pairs)) != 0) continue;
    if (c->covers.count > before && c->build->level <= 1) break;
    RABBET_RETURN_IF_ERROR(cover_try(c,
                                     (recipe_t){.owner = -1,
                                                .others = true,
                                                .prologues = true,
                                                .quantized = quantized,
                                                .pairs = (i & 1) != 0,
                                                .rows = (i & 2) != 0},
                                     &level));
  }
  return rabbet_ok();
}

static rabbet_status_t cover_recipes(rabbet_coverer_t* c) {
  int level = 0;
  bool prologues = cover_has(c, RABBET_FUSE_PROLOGUE);
  if (cover_has_attention(c))
    RABBET_RETURN_IF_ERROR(cover_try(
        c,
        (recipe_t){
            .owner = -1, .others = true, .prologues = true, .attention = true},
        &level));
  if (cover_has_squeeze(c))
    RABBET_RETURN_IF_ERROR(cover_try(
        c,
        (recipe_t){
            .owner = -1, .others = true, .prologues = true, .squeeze = true},
        &level));
  RABBET_RETURN_IF_ERROR(cover_joint(c));
  if (cover_is_certain(c)) return rabbet_ok();
  if (c->has_optional) RABBET_RETURN_IF_ERROR(cover_left_out(c, prologues));
  if (c->covers.count > 0 && c->build->level <= 1) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(cover_owners(c, false));
  if (prologues) {
    RABBET_RETURN_IF_ERROR(cover_try(
        c,
        (recipe_t){
            .owner = -1, .others = true, .prologues = true, .both = true},
        &level));
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

static rabbet_status_t cover_initialize(rabbet_coverer_t* c) {
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
    c->kinds[i] = rabbet_fuse_kind(&build->ir, rabbet_cover_node(c, i));
    if (rabbet_fuse_is_operand(build, rabbet_cover_node(c, i)))
      c->kinds[i] |= RABBET_FUSE_OPERAND;
    c->has_optional |= rabbet_cover_node(c, i)->is_optional;
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_tune_cover(rabbet_build_t* build,
                                  rabbet_cluster_t* cluster) {
  rabbet_coverer_t c = {
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
