// A cluster's alternatives: a sweep over the units of each cover that keeps,
// of partial choices that look alike from outside, the cheapest.

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "builder/propose.h"
#include "builder/tuner.h"
#include "core/view.h"

#define ALTERNATIVES_BEAM 512

// A choice for each of the units so far. `look` is what others see of it:
// masks of input states, then states of values made.
typedef struct partial_t {
  double us;
  int32_t parent;  // in the round before
  int32_t choice;
  uint8_t* look;
} partial_t;

typedef RABBET_VEC(partial_t) partial_vec_t;

typedef struct sweeper_t {
  rabbet_build_t* build;
  rabbet_cluster_t* cluster;
  int32_t* slots;  // of each IR value: place in `look`; negative: not there
  size_t made_count;
  size_t look_size;
  int32_t* last_use;  // of each made value: unit that reads it last
  const rabbet_cover_t* current;
  partial_vec_t* rounds;  // one more than units
  rabbet_map_t found;     // alternatives by look
  rabbet_arena_t scratch;
} sweeper_t;

static uint64_t* look_inputs(const partial_t* partial) {
  return (uint64_t*)partial->look;
}
static uint8_t* look_made(const sweeper_t* sweeper, const partial_t* partial) {
  return partial->look + sweeper->cluster->input_count * sizeof(uint64_t);
}

static double sweep_choice_cost(const rabbet_build_t* build,
                                const rabbet_choice_t* choice, int32_t index) {
  if (!choice->candidate.kernel) return 0;
  if (build->level == 0) return 1 + 0.001 * index;
  return choice->us >= 0 ? choice->us : 0;
}

static rabbet_status_t sweep_input(sweeper_t* sweeper, partial_t* partial,
                                   int32_t id, rabbet_type_format_t type) {
  rabbet_build_t* build = sweeper->build;
  const rabbet_ir_value_t* value = rabbet_ir_value(&build->ir, id);
  if (value->constant) return rabbet_ok();  // laid out when it is built
  int32_t slot = sweeper->slots[id];
  if (slot < 0) return rabbet_ok();  // known to the host alone
  rabbet_tune_state_t state = 0;
  RABBET_RETURN_IF_ERROR(rabbet_tune_state(build->tuner, type, &state));
  size_t inputs = sweeper->cluster->input_count;
  if ((size_t)slot < inputs) {
    look_inputs(partial)[slot] |= (uint64_t)1 << state;
    return rabbet_ok();
  }
  double cost = 0;
  RABBET_RETURN_IF_ERROR(rabbet_tune_conversion_cost(
      build, value, look_made(sweeper, partial)[(size_t)slot - inputs], state,
      &cost));
  partial->us += cost;
  return rabbet_ok();
}

static rabbet_status_t sweep_apply(sweeper_t* sweeper,
                                   const rabbet_unit_t* unit, int32_t index,
                                   partial_t* partial) {
  const rabbet_group_t* group = &unit->group;
  const rabbet_choice_t* choice = &unit->choices[index];
  const rabbet_type_format_t* tensors = choice->candidate.tensors;
  partial->choice = index;
  partial->us += sweep_choice_cost(sweeper->build, choice, index);
  for (size_t i = 0; i < group->input_count; ++i)
    RABBET_RETURN_IF_ERROR(sweep_input(
        sweeper, partial, unit->values[group->inputs[i]], tensors[i]));
  for (size_t i = 0; i < group->output_count; ++i) {
    int32_t slot = sweeper->slots[unit->values[group->outputs[i]]];
    rabbet_tune_state_t state = 0;
    RABBET_RETURN_IF_ERROR(rabbet_tune_state(
        sweeper->build->tuner, tensors[group->input_count + i], &state));
    look_made(sweeper, partial)[(size_t)slot - sweeper->cluster->input_count] =
        state;
  }
  return rabbet_ok();
}

// Nobody sees the state of a value that was read for the last time.
static void sweep_forget(const sweeper_t* sweeper, int32_t unit,
                         partial_t* partial) {
  uint8_t* made = look_made(sweeper, partial);
  for (size_t i = 0; i < sweeper->made_count; ++i)
    if (sweeper->last_use[i] <= unit) made[i] = RABBET_TUNE_NO_STATE;
}

// ---- Merging ----------------------------------------------------------------

static int partial_compare(const void* a, const void* b) {
  const partial_t *x = a, *y = b;
  if (x->us != y->us) return x->us < y->us ? -1 : 1;
  if (x->parent != y->parent) return x->parent < y->parent ? -1 : 1;
  return (x->choice > y->choice) - (x->choice < y->choice);
}

// Adds the partial unless one that looks the same is as cheap. `places` maps
// looks to positions in `out`, plus one.
static rabbet_status_t sweep_merge(sweeper_t* sweeper, rabbet_map_t* places,
                                   const partial_t* partial,
                                   partial_vec_t* out) {
  if (!isfinite(partial->us)) return rabbet_ok();
  size_t place = (size_t)(uintptr_t)rabbet_map_get(
      places, (const char*)partial->look, sweeper->look_size);
  if (place > 0) {
    partial_t* old = &out->data[place - 1];
    if (partial->us >= old->us) return rabbet_ok();
    uint8_t* look = old->look;  // the map's key
    *old = *partial;
    old->look = look;
    return rabbet_ok();
  }
  partial_t copy = *partial;
  RABBET_RETURN_IF_ERROR(rabbet_arena_copy(&sweeper->scratch, partial->look,
                                           sweeper->look_size,
                                           (void**)&copy.look));
  RABBET_RETURN_IF_ERROR(RABBET_VEC_PUSH(sweeper->build->allocator, out, copy));
  return rabbet_map_set(places, (const char*)copy.look, sweeper->look_size,
                        (void*)(uintptr_t)out->count);
}

static void sweep_truncate(partial_vec_t* round) {
  if (round->count > 0)
    qsort(round->data, round->count, sizeof(partial_t), partial_compare);
  if (round->count > ALTERNATIVES_BEAM) round->count = ALTERNATIVES_BEAM;
}

static rabbet_status_t sweep_extend(sweeper_t* sweeper, int32_t index,
                                    const partial_vec_t* before,
                                    rabbet_map_t* places, partial_vec_t* out) {
  const rabbet_unit_t* unit = sweeper->current->units[index];
  partial_t next = {0};
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate(
      &sweeper->scratch, sweeper->look_size, (void**)&next.look));
  for (size_t i = 0; i < before->count; ++i) {
    for (size_t c = 0; c < unit->choice_count; ++c) {
      memcpy(next.look, before->data[i].look, sweeper->look_size);
      next.us = before->data[i].us;
      next.parent = (int32_t)i;
      RABBET_RETURN_IF_ERROR(sweep_apply(sweeper, unit, (int32_t)c, &next));
      sweep_forget(sweeper, index, &next);
      RABBET_RETURN_IF_ERROR(sweep_merge(sweeper, places, &next, out));
    }
  }
  sweep_truncate(out);
  return rabbet_ok();
}

// ---- One cover --------------------------------------------------------------

// When each value that the cluster makes is read for the last time.
static void sweep_last_uses(sweeper_t* sweeper) {
  const rabbet_cluster_t* cluster = sweeper->cluster;
  for (size_t i = 0; i < sweeper->made_count; ++i)
    sweeper->last_use[i] = -1;
  for (size_t u = 0; u < sweeper->current->unit_count; ++u) {
    const rabbet_unit_t* unit = sweeper->current->units[u];
    const rabbet_group_t* group = &unit->group;
    for (size_t i = 0; i < group->input_count; ++i) {
      int32_t slot = sweeper->slots[unit->values[group->inputs[i]]];
      if (slot >= (int32_t)cluster->input_count)
        sweeper->last_use[(size_t)slot - cluster->input_count] = (int32_t)u;
    }
  }
  for (size_t i = 0; i < cluster->output_count; ++i)
    sweeper->last_use[(size_t)sweeper->slots[cluster->outputs[i]] -
                      cluster->input_count] = INT32_MAX;
}

// An alternative out of a partial of the last round.
static rabbet_status_t sweep_finish(sweeper_t* sweeper, size_t last,
                                    rabbet_alternative_t* out) {
  const rabbet_cluster_t* cluster = sweeper->cluster;
  rabbet_arena_t* arena = &sweeper->build->arena;
  size_t units = sweeper->current->unit_count;
  const partial_t* partial = &sweeper->rounds[units].data[last];
  out->us = partial->us;
  out->cover = (int32_t)(sweeper->current - cluster->covers);
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, units, sizeof(int32_t), (void**)&out->choices));
  RABBET_RETURN_IF_ERROR(rabbet_arena_copy(
      arena, partial->look, cluster->input_count * sizeof(uint64_t),
      (void**)&out->in_states));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate(arena, cluster->output_count,
                                               (void**)&out->out_states));
  for (size_t i = 0; i < cluster->output_count; ++i)
    out->out_states[i] = look_made(
        sweeper, partial)[(size_t)sweeper->slots[cluster->outputs[i]] -
                          cluster->input_count];
  for (size_t u = units; u > 0; --u) {
    out->choices[u - 1] = partial->choice;
    partial = &sweeper->rounds[u - 1].data[partial->parent];
  }
  return rabbet_ok();
}

// Merges the cover's results into those of covers before it.
static rabbet_status_t sweep_collect(sweeper_t* sweeper) {
  size_t units = sweeper->current->unit_count;
  const partial_vec_t* last = &sweeper->rounds[units];
  for (size_t i = 0; i < last->count; ++i) {
    const partial_t* partial = &last->data[i];
    rabbet_alternative_t* old = rabbet_map_get(
        &sweeper->found, (const char*)partial->look, sweeper->look_size);
    if (old && old->us <= partial->us) continue;
    if (old) {
      RABBET_RETURN_IF_ERROR(sweep_finish(sweeper, i, old));
      continue;
    }
    rabbet_alternative_t* made = NULL;
    uint8_t* key = NULL;
    RABBET_RETURN_IF_ERROR(
        rabbet_arena_allocate(&sweeper->scratch, sizeof(*made), (void**)&made));
    RABBET_RETURN_IF_ERROR(rabbet_arena_copy(&sweeper->scratch, partial->look,
                                             sweeper->look_size, (void**)&key));
    RABBET_RETURN_IF_ERROR(sweep_finish(sweeper, i, made));
    RABBET_RETURN_IF_ERROR(rabbet_map_set(&sweeper->found, (const char*)key,
                                          sweeper->look_size, made));
  }
  return rabbet_ok();
}

static rabbet_status_t sweep_rounds(sweeper_t* sweeper) {
  rabbet_allocator_t allocator = sweeper->build->allocator;
  partial_t start = {.parent = -1};
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate(
      &sweeper->scratch, sweeper->look_size, (void**)&start.look));
  memset(look_made(sweeper, &start), RABBET_TUNE_NO_STATE, sweeper->made_count);
  RABBET_RETURN_IF_ERROR(
      RABBET_VEC_PUSH(allocator, &sweeper->rounds[0], start));
  for (size_t u = 0; u < sweeper->current->unit_count; ++u) {
    rabbet_map_t places;
    rabbet_map_initialize(allocator, &places);
    rabbet_status_t status =
        sweep_extend(sweeper, (int32_t)u, &sweeper->rounds[u], &places,
                     &sweeper->rounds[u + 1]);
    rabbet_map_deinitialize(&places);
    RABBET_RETURN_IF_ERROR(status);
  }
  return sweep_collect(sweeper);
}

static rabbet_status_t sweep_cover(sweeper_t* sweeper,
                                   const rabbet_cover_t* cover) {
  sweeper->current = cover;
  sweep_last_uses(sweeper);
  size_t rounds = cover->unit_count + 1;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(sweeper->build->allocator,
                                         rounds * sizeof(partial_vec_t),
                                         (void**)&sweeper->rounds));
  rabbet_status_t status = sweep_rounds(sweeper);
  for (size_t i = 0; i < rounds; ++i)
    rabbet_vec_free(sweeper->build->allocator, &sweeper->rounds[i]);
  rabbet_free(sweeper->build->allocator, sweeper->rounds);
  return status;
}

// ---- A cluster --------------------------------------------------------------

static rabbet_status_t sweep_number(sweeper_t* sweeper) {
  const rabbet_ir_t* ir = &sweeper->build->ir;
  rabbet_cluster_t* cluster = sweeper->cluster;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate_array(&sweeper->scratch, ir->values.count,
                                  sizeof(int32_t), (void**)&sweeper->slots));
  for (size_t i = 0; i < ir->values.count; ++i)
    sweeper->slots[i] = -1;
  for (size_t i = 0; i < cluster->input_count; ++i)
    sweeper->slots[cluster->inputs[i]] = (int32_t)i;
  int32_t next = (int32_t)cluster->input_count;
  for (size_t i = 0; i < cluster->node_count; ++i)
    for (size_t k = 0; k < cluster->nodes[i]->output_count; ++k)
      sweeper->slots[cluster->nodes[i]->outputs[k]] = next++;
  sweeper->made_count = (size_t)next - cluster->input_count;
  sweeper->look_size =
      cluster->input_count * sizeof(uint64_t) + sweeper->made_count;
  return rabbet_arena_allocate_array(&sweeper->scratch, sweeper->made_count,
                                     sizeof(int32_t),
                                     (void**)&sweeper->last_use);
}

static rabbet_status_t sweep_all(sweeper_t* sweeper) {
  rabbet_cluster_t* cluster = sweeper->cluster;
  RABBET_RETURN_IF_ERROR(sweep_number(sweeper));
  for (size_t i = 0; i < cluster->cover_count; ++i)
    RABBET_RETURN_IF_ERROR(sweep_cover(sweeper, &cluster->covers[i]));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &sweeper->build->arena, sweeper->found.live, sizeof(rabbet_alternative_t),
      (void**)&cluster->alternatives));
  for (size_t i = 0; i < sweeper->found.count; ++i)
    cluster->alternatives[cluster->alternative_count++] =
        *(const rabbet_alternative_t*)sweeper->found.entries[i].value;
  return rabbet_ok();
}

// Where there is nothing to choose, nothing needs to be timed.
static rabbet_status_t alternatives_time(rabbet_build_t* build,
                                         const rabbet_cluster_t* cluster) {
  int64_t verbosity =
      build->config->options[RABBET_BUILDER_OPTION_PROFILING_VERBOSITY];
  bool all = cluster->cover_count > 1 ||
             verbosity == RABBET_PROFILING_DETAILED ||
             build->config->selector.select;
  for (size_t i = 0; i < cluster->cover_count; ++i) {
    const rabbet_cover_t* cover = &cluster->covers[i];
    for (size_t u = 0; u < cover->unit_count; ++u)
      if (all || cover->units[u]->choice_count > 1)
        RABBET_RETURN_IF_ERROR(rabbet_tuner_time(build, cover->units[u]));
  }
  return rabbet_ok();
}

static rabbet_status_t alternatives_select(rabbet_build_t* build,
                                           const rabbet_cluster_t* cluster) {
  for (size_t i = 0; i < cluster->cover_count; ++i)
    for (size_t u = 0; u < cluster->covers[i].unit_count; ++u)
      RABBET_RETURN_IF_ERROR(
          rabbet_tune_select(build, cluster->covers[i].units[u]));
  return rabbet_ok();
}

// What the user's selector left nothing of; NULL.
static const rabbet_unit_t* alternatives_refused(
    const rabbet_cluster_t* cluster) {
  for (size_t i = 0; i < cluster->cover_count; ++i)
    for (size_t u = 0; u < cluster->covers[i].unit_count; ++u)
      if (cluster->covers[i].units[u]->refused > 0)
        return cluster->covers[i].units[u];
  return NULL;
}

static rabbet_status_t alternatives_none(rabbet_build_t* build,
                                         rabbet_cluster_t* cluster) {
  const rabbet_unit_t* refused = alternatives_refused(cluster);
  if (refused)
    return RABBET_STATUS(
        RABBET_STATUS_FAILED_PRECONDITION,
        "the algorithm selector chose none of %zu algorithms for '%s', and "
        "left no other way to compute the layers from '%s' on",
        refused->refused, refused->name, cluster->nodes[0]->name);
  for (size_t i = 0; i < cluster->node_count; ++i) {
    rabbet_unit_t* unit = NULL;
    RABBET_RETURN_IF_ERROR(
        rabbet_tuner_unit(build, &cluster->nodes[i], 1, &unit));
    if (unit->choice_count == 0) return rabbet_unit_unsupported(build, unit);
  }
  return RABBET_STATUS(
      RABBET_STATUS_UNSUPPORTED,
      "layers from '%s' on: device '%s' cannot convert between the types and "
      "formats that their kernels need",
      cluster->nodes[0]->name, build->device->name);
}

static rabbet_status_t alternatives_of_nodes(rabbet_build_t* build,
                                             rabbet_cluster_t* cluster) {
  RABBET_RETURN_IF_ERROR(rabbet_tune_cover(build, cluster));
  if (build->level > 0)
    RABBET_RETURN_IF_ERROR(alternatives_time(build, cluster));
  RABBET_RETURN_IF_ERROR(alternatives_select(build, cluster));
  sweeper_t sweeper = {.build = build, .cluster = cluster};
  rabbet_arena_initialize(build->allocator, &sweeper.scratch);
  rabbet_map_initialize(build->allocator, &sweeper.found);
  rabbet_status_t status = sweep_all(&sweeper);
  rabbet_map_deinitialize(&sweeper.found);
  rabbet_arena_deinitialize(&sweeper.scratch);
  if (rabbet_is_ok(status) && cluster->alternative_count == 0)
    status = alternatives_none(build, cluster);
  return status;
}

// A network input or output may be in any of the formats that the user allows.
static rabbet_status_t alternatives_of_boundary(rabbet_build_t* build,
                                                rabbet_cluster_t* cluster) {
  bool is_input = cluster->kind == RABBET_CLUSTER_INPUT;
  const rabbet_ir_value_t* value = rabbet_ir_value(
      &build->ir, is_input ? cluster->outputs[0] : cluster->inputs[0]);
  rabbet_arena_t* arena = &build->arena;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, 64, sizeof(rabbet_alternative_t), (void**)&cluster->alternatives));
  uint64_t formats =
      value->formats ? value->formats : (uint64_t)1 << RABBET_FORMAT_LINEAR;
  for (int format = 0; format < 64; ++format) {
    if ((formats >> format & 1) == 0) continue;
    rabbet_type_format_t type = {
        value->wished != RABBET_DTYPE_NONE ? value->wished : value->dtype,
        (rabbet_format_t)format};
    rabbet_alternative_t* made =
        &cluster->alternatives[cluster->alternative_count++];
    rabbet_tune_state_t state = 0;
    RABBET_RETURN_IF_ERROR(rabbet_tune_state(build->tuner, type, &state));
    RABBET_RETURN_IF_ERROR(rabbet_arena_allocate(arena, sizeof(uint64_t),
                                                 (void**)&made->in_states));
    RABBET_RETURN_IF_ERROR(
        rabbet_arena_allocate(arena, 1, (void**)&made->out_states));
    made->in_states[0] = (uint64_t)1 << state;
    made->out_states[0] = state;
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_tune_alternatives(rabbet_build_t* build,
                                         rabbet_cluster_t* cluster) {
  return cluster->kind == RABBET_CLUSTER_NODES
             ? alternatives_of_nodes(build, cluster)
             : alternatives_of_boundary(build, cluster);
}
