// The covers of a cluster: ways to divide its nodes into groups.
//
// A cover comes from a recipe: which node takes how much of what follows it
// (its epilogue), whether nodes take what comes before (prologues), and how
// large groups of point-wise nodes may be. Covers with a group that the device
// does not offer are dropped.

#include <string.h>

#include "builder/tuner.h"

#define COVER_LIMIT 32
#define COVER_MAX_LEVELS 8
#define NO_GROUP (-1)

typedef struct coverer_t {
  rabbet_build_t* build;
  rabbet_cluster_t* cluster;
  size_t count;     // nodes of the cluster, in order of execution
  int32_t* locals;  // place in the cluster of each node of the IR, or -1
  uint32_t* kinds;
  int32_t* groups;  // of each node
  int32_t group_count;
  bool has_optional;           // nodes that may be left out
  bool apart;                  // each of them is a group of its own
  bool* inside;                // scratch: a set of nodes
  rabbet_ir_node_t** members;  // scratch
  RABBET_VEC(rabbet_cover_t) covers;
} coverer_t;

static rabbet_ir_node_t* cover_node(const coverer_t* c, size_t i) {
  return c->cluster->nodes[i];
}

// ---- Sets of nodes ----------------------------------------------------------

// Uses of the node's output by nodes of the set.
static int32_t cover_uses(const coverer_t* c, size_t i, const bool* set) {
  int32_t id = cover_node(c, i)->outputs[0], uses = 0;
  for (size_t k = i + 1; k < c->count; ++k) {
    if (!set[k]) continue;
    const rabbet_ir_node_t* node = cover_node(c, k);
    for (size_t n = 0; n < node->input_count; ++n)
      uses += node->inputs[n] == id;
  }
  return uses;
}

// Whether nothing outside the set needs the node.
static bool cover_is_hidden(const coverer_t* c, size_t i, const bool* set) {
  const rabbet_ir_node_t* node = cover_node(c, i);
  return !rabbet_fuse_is_exit(&c->build->ir, node) &&
         rabbet_ir_output(&c->build->ir, node, 0)->uses ==
             cover_uses(c, i, set);
}

static bool cover_reads(const coverer_t* c, size_t i, const bool* set) {
  const rabbet_ir_node_t* node = cover_node(c, i);
  for (size_t k = 0; k < node->input_count; ++k) {
    const rabbet_ir_value_t* value = rabbet_ir_input(&c->build->ir, node, k);
    if (!value || !value->producer) continue;
    int32_t local = c->locals[value->producer->index];
    if (local >= 0 && set[local]) return true;
  }
  return false;
}

// ---- Groups -----------------------------------------------------------------

// Gives the nodes of the set a group of their own.
static void cover_assign(coverer_t* c, const bool* set) {
  for (size_t i = 0; i < c->count; ++i)
    if (set[i]) c->groups[i] = c->group_count;
  c->group_count++;
}

// Whether what node i reads from outside the set is spread over the result of
// `start` alike in all runs: each axis is the result's own, or one element. The
// kernels of products know what they add by its place in the result.
static bool cover_is_steady(const coverer_t* c, size_t start, size_t i,
                            const bool* set) {
  const rabbet_ir_t* ir = &c->build->ir;
  const rabbet_ir_node_t* node = cover_node(c, i);
  const rabbet_shape_t* full =
      &rabbet_ir_output(ir, cover_node(c, start), 0)->shape;
  for (size_t k = 0; k < node->input_count; ++k) {
    const rabbet_ir_value_t* value = rabbet_ir_input(ir, node, k);
    if (!value || value->shape.rank != full->rank) continue;
    int32_t local = value->producer ? c->locals[value->producer->index] : -1;
    if (local >= 0 && set[local]) continue;
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

// Grows c->inside from one node through free point-wise nodes that follow it,
// up to the `level`-th place where the set has one exit. Returns the number of
// such places up to there.
static int cover_grow(coverer_t* c, size_t start, int level) {
  bool* grown = c->inside + c->count;  // the second half of the scratch
  memset(c->inside, 0, 2 * c->count * sizeof(bool));
  c->inside[start] = grown[start] = true;
  int found = 0;
  for (size_t i = start + 1; i < c->count && found < level; ++i) {
    if (c->groups[i] != NO_GROUP || c->kinds[i] != RABBET_FUSE_POINTWISE ||
        !cover_reads(c, i, grown))
      continue;
    if (!rabbet_fuse_same_shape(&c->build->ir, cover_node(c, start),
                                cover_node(c, i)))
      break;
    if (c->kinds[start] != RABBET_FUSE_POINTWISE &&
        !cover_is_steady(c, start, i, grown))
      break;
    grown[i] = true;
    bool single = true;
    for (size_t k = start; k < i && single; ++k)
      single = !grown[k] || cover_is_hidden(c, k, grown);
    if (!single) continue;
    memcpy(c->inside, grown, c->count * sizeof(bool));
    ++found;
  }
  return found;
}

// Free point-wise nodes of the shape of node `like` that only the set in
// c->inside needs join it, up to a number of `limit`.
static void cover_absorb(coverer_t* c, size_t end, size_t like, size_t limit) {
  size_t size = 1;
  for (size_t i = end; i-- > 0 && size < limit;) {
    if (c->groups[i] != NO_GROUP || c->kinds[i] != RABBET_FUSE_POINTWISE ||
        cover_uses(c, i, c->inside) == 0 || !cover_is_hidden(c, i, c->inside) ||
        !rabbet_fuse_same_shape(&c->build->ir, cover_node(c, i),
                                cover_node(c, like)))
      continue;
    c->inside[i] = true;
    ++size;
  }
}

// The free point-wise node that makes input 0 for this node alone, or -1.
static int32_t cover_prologue(const coverer_t* c, size_t i) {
  if (c->groups[i] != NO_GROUP || (c->kinds[i] & RABBET_FUSE_PROLOGUE) == 0)
    return -1;
  const rabbet_ir_value_t* value =
      rabbet_ir_input(&c->build->ir, cover_node(c, i), 0);
  if (!value || !value->producer || value->uses != 1) return -1;
  int32_t maker = c->locals[value->producer->index];
  if (maker < 0 || c->groups[maker] != NO_GROUP ||
      c->kinds[maker] != RABBET_FUSE_POINTWISE)
    return -1;
  return maker;
}

// Nodes that take point-wise ones before their input 0.
static void cover_prologues(coverer_t* c) {
  for (size_t i = 0; i < c->count; ++i) {
    int32_t maker = cover_prologue(c, i);
    if (maker < 0) continue;
    memset(c->inside, 0, c->count * sizeof(bool));
    c->inside[i] = true;
    cover_absorb(c, i, (size_t)maker, SIZE_MAX);
    cover_assign(c, c->inside);
  }
}

// The nodes that make the factors of a quantized product join c->inside, and
// those that dequantize what is added to its result.
static bool cover_take_factors(coverer_t* c, size_t product, bool operands) {
  rabbet_ir_node_t* makers[2];
  if (!rabbet_fuse_factors(&c->build->ir, cover_node(c, product), makers))
    return false;
  for (size_t i = 0; i < 2; ++i) {
    int32_t local = c->locals[makers[i]->index];
    if (local < 0 || c->groups[local] != NO_GROUP) return false;
    c->inside[local] = true;
  }
  for (size_t i = 0; operands && i < c->count; ++i)
    if (!c->inside[i] && c->groups[i] == NO_GROUP &&
        rabbet_op_is(cover_node(c, i)->op, RABBET_OP_DEQUANTIZE) &&
        cover_is_hidden(c, i, c->inside))
      c->inside[i] = true;
  return true;
}

// What is left: regions of point-wise nodes of at most `limit`, others alone.
static void cover_rest(coverer_t* c, size_t limit) {
  for (size_t i = c->count; i-- > 0;) {
    if (c->groups[i] != NO_GROUP) continue;
    memset(c->inside, 0, c->count * sizeof(bool));
    c->inside[i] = true;
    if (c->kinds[i] == RABBET_FUSE_POINTWISE) cover_absorb(c, i, i, limit);
    cover_assign(c, c->inside);
  }
}

// ---- Recipes ----------------------------------------------------------------

typedef struct recipe_t {
  int32_t owner;  // node that takes its epilogue first, or -1
  int level;      // how much of it
  bool others;    // other nodes take epilogues of what is left
  bool prologues;
  size_t limit;    // nodes of a point-wise group
  bool attention;  // goes before all else
  bool quantized;  // products take what dequantizes their factors
} recipe_t;

static rabbet_status_t cover_unit(coverer_t* c, size_t last, bool* supported,
                                  rabbet_unit_t** out_unit) {
  size_t count = 0;
  for (size_t i = 0; i <= last; ++i)
    if (c->groups[i] == c->groups[last]) c->members[count++] = cover_node(c, i);
  RABBET_RETURN_IF_ERROR(
      rabbet_tuner_unit(c->build, c->members, count, out_unit));
  *supported = (*out_unit)->choice_count > 0;
  return rabbet_ok();
}

static bool cover_is_last(const coverer_t* c, size_t i) {
  for (size_t k = i + 1; k < c->count; ++k)
    if (c->groups[k] == c->groups[i]) return false;
  return true;
}

static bool cover_is_known(const coverer_t* c, const rabbet_cover_t* cover) {
  for (size_t i = 0; i < c->covers.count; ++i)
    if (c->covers.data[i].unit_count == cover->unit_count &&
        memcmp(c->covers.data[i].units, cover->units,
               cover->unit_count * sizeof(*cover->units)) == 0)
      return true;
  return false;
}

// A node of whose result the constant is known is never run alone.
static bool cover_is_idle(const coverer_t* c, size_t last) {
  const rabbet_ir_node_t* node = cover_node(c, last);
  size_t count = 0;
  for (size_t i = 0; i < c->count; ++i)
    count += c->groups[i] == c->groups[last];
  return count == 1 && rabbet_ir_output(&c->build->ir, node, 0)->constant;
}

// Adds the cover that the groups describe, if the device offers all of it.
static rabbet_status_t cover_add(coverer_t* c, bool* out_supported) {
  rabbet_cover_t cover = {0};
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &c->build->arena, (size_t)c->group_count, sizeof(rabbet_unit_t*),
      (void**)&cover.units));
  *out_supported = true;
  for (size_t i = 0; i < c->count && *out_supported; ++i)
    if (cover_is_last(c, i) && !cover_is_idle(c, i))
      RABBET_RETURN_IF_ERROR(
          cover_unit(c, i, out_supported, &cover.units[cover.unit_count++]));
  if (!*out_supported || cover_is_known(c, &cover)) return rabbet_ok();
  return RABBET_VEC_PUSH(c->build->allocator, &c->covers, cover);
}

static rabbet_status_t cover_group_supported(coverer_t* c, bool* supported) {
  size_t count = 0;
  rabbet_unit_t* unit = NULL;
  for (size_t i = 0; i < c->count; ++i)
    if (c->inside[i]) c->members[count++] = cover_node(c, i);
  RABBET_RETURN_IF_ERROR(rabbet_tuner_unit(c->build, c->members, count, &unit));
  *supported = unit->choice_count > 0;
  return rabbet_ok();
}

// The node takes the most of its epilogue that the device offers, at most
// `level` places; *out_level is what it took.
static rabbet_status_t cover_take_epilogue(coverer_t* c, size_t node, int level,
                                           int* out_level) {
  *out_level = 0;
  for (int wish = cover_grow(c, node, level); wish > 0; --wish) {
    cover_grow(c, node, wish);
    bool supported = false;
    RABBET_RETURN_IF_ERROR(cover_group_supported(c, &supported));
    if (!supported) continue;
    cover_assign(c, c->inside);
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
  memset(c->inside, 0, c->count * sizeof(bool));
  for (size_t k = 0; k < count; ++k)
    c->inside[c->locals[nodes[k]->index]] = true;
  RABBET_RETURN_IF_ERROR(cover_group_supported(c, out_taken));
  if (*out_taken) cover_assign(c, c->inside);
  return rabbet_ok();
}

// Attention as one group wherever the device has it, with as much of what is
// around it as it can.
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

// A quantized product with the most of its epilogue that the device offers.
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
  if (*out_taken) cover_assign(c, c->inside);
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
    if (rabbet_fuse_factors(&c->build->ir, cover_node(c, i), makers))
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

// Nodes that may be left out, where kernels compute in floating types.
static void cover_set_apart(coverer_t* c) {
  for (size_t i = 0; i < c->count; ++i) {
    if (!cover_node(c, i)->is_optional) continue;
    memset(c->inside, 0, c->count * sizeof(bool));
    c->inside[i] = true;
    cover_assign(c, c->inside);
  }
}

static rabbet_status_t cover_follow(coverer_t* c, const recipe_t* recipe,
                                    int* out_level, bool* out_supported) {
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

// The largest groups of point-wise nodes that work with the recipe.
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

// Each node with an epilogue gets the first pick once; at higher levels of
// optimization smaller parts of the epilogue are tried too.
static rabbet_status_t cover_owners(coverer_t* c, bool prologues) {
  for (size_t i = 0; i < c->count; ++i) {
    if ((c->kinds[i] & RABBET_FUSE_EPILOGUE) == 0) continue;
    int level = 0;
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
  if (c->has_optional) RABBET_RETURN_IF_ERROR(cover_left_out(c, prologues));
  if (c->covers.count > 0 && c->build->level <= 1) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(cover_owners(c, false));
  if (prologues) {
    RABBET_RETURN_IF_ERROR(cover_owners(c, true));
    RABBET_RETURN_IF_ERROR(
        cover_try(c, (recipe_t){.owner = -1, .prologues = true}, &level));
  }
  // Little effort takes the fused way without asking.
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
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, build->ir.nodes.count, sizeof(int32_t), (void**)&c->locals));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, c->count, sizeof(uint32_t), (void**)&c->kinds));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, c->count, sizeof(int32_t), (void**)&c->groups));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, c->count, 2 * sizeof(bool), (void**)&c->inside));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, c->count, sizeof(*c->members), (void**)&c->members));
  for (size_t i = 0; i < build->ir.nodes.count; ++i)
    c->locals[i] = -1;
  for (size_t i = 0; i < c->count; ++i) {
    c->locals[cover_node(c, i)->index] = (int32_t)i;
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
  rabbet_vec_free(build->allocator, &c.covers);
  return status;
}
