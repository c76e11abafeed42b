// A cluster's alternatives: a sweep over the units of each cover, which keeps
// the cheapest of all partial choices that are equal for the units that follow.

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "builder/choose/tuner.h"
#include "builder/propose/propose.h"
#include "core/view.h"

#define ALTERNATIVES_BEAM 512

// A choice for each of the units so far. Partial choices with the same `look`
// are equal for later units. It consists of
//
//  - a digest of the states in which inputs with a single reader are read,
//  - masks of the states in which other inputs are read,
//  - states of computed values: the cluster's outputs, and inputs of later
//  units.
//
// Only the partial choices of the last two rounds have looks.
typedef struct partial_t {
  double us;
  int32_t parent;  // index in the round before
  int32_t choice;
  uint8_t* look;
} partial_t;

typedef RABBET_VEC(partial_t) partial_vec_t;

// A value that a unit of the current cover computes.
typedef struct made_t {
  int32_t value;
  int32_t place;     // of its state in `look`
  int32_t last_use;  // the last unit that reads it
  int32_t next;      // the next value with the same last_use, or -1
} made_t;

typedef struct sweeper_t {
  rabbet_build_t* build;
  rabbet_cluster_t* cluster;
  // Of each IR value: its index among the cluster's inputs, or their number
  // plus its place in `look`; negative: neither.
  int32_t* slots;
  int32_t* masks;  // of each input: index of its mask in `look`, or -1
  size_t made_at;  // bytes of `look` before the made values
  size_t look_size;
  const rabbet_cover_t* current;
  bool at_once;           // without kernels whose library takes long to start
  made_t* made;           // of the current cover, unit by unit
  int32_t* forgotten;     // of each unit: the first value with this last_use
  partial_vec_t* rounds;  // one more than units
  rabbet_map_t found;     // alternatives by look
  rabbet_arena_t scratch;
  rabbet_arena_t looks[2];  // of even and odd rounds
} sweeper_t;

static rabbet_hash_t* look_digest(const partial_t* partial) {
  return (rabbet_hash_t*)partial->look;
}
static uint64_t* look_masks(const partial_t* partial) {
  return (uint64_t*)(partial->look + sizeof(rabbet_hash_t));
}
static uint8_t* look_made(const sweeper_t* sweeper, const partial_t* partial) {
  return partial->look + sweeper->made_at;
}

static double sweep_choice_cost(const rabbet_build_t* build,
                                const rabbet_choice_t* choice, int32_t index) {
  if (!choice->candidate.kernel) return 0;
  if (build->level == 0) return 1 + 0.001 * index;
  return choice->us >= 0 ? choice->us : 0;
}

// Records the state in which an input of the cluster is read.
static void sweep_read(const sweeper_t* sweeper, partial_t* partial,
                       int32_t input, rabbet_tune_state_t state) {
  assert((size_t)input < sweeper->cluster->input_count);
  assert(state < RABBET_TUNE_MAX_STATES);
  int32_t mask = sweeper->masks[input];
  if (mask >= 0) {
    look_masks(partial)[mask] |= (uint64_t)1 << state;
    return;
  }
  const int32_t read[2] = {input, state};
  rabbet_hash_t hash = rabbet_hash128(read, sizeof(read));
  look_digest(partial)->high ^= hash.high;
  look_digest(partial)->low ^= hash.low;
}

static rabbet_status_t sweep_input(sweeper_t* sweeper, partial_t* partial,
                                   int32_t id, rabbet_type_format_t type) {
  rabbet_build_t* build = sweeper->build;
  const rabbet_ir_value_t* value = rabbet_ir_value(&build->ir, id);
  if (value->constant) return rabbet_ok();  // the build converts it
  int32_t slot = sweeper->slots[id];
  if (slot < 0) return rabbet_ok();  // only the host knows it
  rabbet_tune_state_t state = 0;
  RABBET_RETURN_IF_ERROR(rabbet_tune_state(build->tuner, type, &state));
  size_t inputs = sweeper->cluster->input_count;
  if ((size_t)slot < inputs) {
    sweep_read(sweeper, partial, slot, state);
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
    assert(slot >= (int32_t)sweeper->cluster->input_count);
    look_made(sweeper, partial)[(size_t)slot - sweeper->cluster->input_count] =
        state;
  }
  return rabbet_ok();
}

// Clears the states of values that no later unit reads.
static void sweep_forget(const sweeper_t* sweeper, int32_t unit,
                         partial_t* partial) {
  uint8_t* made = look_made(sweeper, partial);
  for (int32_t k = sweeper->forgotten[unit]; k >= 0;
       k = sweeper->made[k].next) {
    assert(sweeper->made[k].last_use == unit);
    made[sweeper->made[k].place] = RABBET_TUNE_NO_STATE;
  }
}

// ---- Merging ----------------------------------------------------------------

static int partial_compare(const void* a, const void* b) {
  const partial_t *x = a, *y = b;
  if (x->us != y->us) return x->us < y->us ? -1 : 1;
  if (x->parent != y->parent) return x->parent < y->parent ? -1 : 1;
  return (x->choice > y->choice) - (x->choice < y->choice);
}

// Adds the partial choice, unless one with the same look is as cheap. `places`
// maps looks to indices in `out`, plus one.
static rabbet_status_t sweep_merge(sweeper_t* sweeper, rabbet_arena_t* looks,
                                   rabbet_map_t* places,
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
  RABBET_RETURN_IF_ERROR(rabbet_arena_copy(
      looks, partial->look, sweeper->look_size, (void**)&copy.look));
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
  rabbet_arena_t* looks = &sweeper->looks[(index + 1) % 2];
  partial_t next = {0};
  rabbet_arena_reset(looks);
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate(looks, sweeper->look_size, (void**)&next.look));
  sweeper->build->search_steps +=
      before->count * unit->choice_count * sweeper->look_size;
  for (size_t i = 0; i < before->count; ++i) {
    for (size_t c = 0; c < unit->choice_count; ++c) {
      if (sweeper->at_once && rabbet_choice_start_us(&unit->choices[c]) > 0)
        continue;
      memcpy(next.look, before->data[i].look, sweeper->look_size);
      next.us = before->data[i].us;
      next.parent = (int32_t)i;
      RABBET_RETURN_IF_ERROR(sweep_apply(sweeper, unit, (int32_t)c, &next));
      sweep_forget(sweeper, index, &next);
      RABBET_RETURN_IF_ERROR(sweep_merge(sweeper, looks, places, &next, out));
    }
  }
  sweep_truncate(out);
  return rabbet_ok();
}

// ---- One cover --------------------------------------------------------------

// Lists the values that the units compute; slots[] then has their places in the
// list.
static rabbet_status_t sweep_list_made(sweeper_t* sweeper, size_t* out_count) {
  const rabbet_cluster_t* cluster = sweeper->cluster;
  const rabbet_cover_t* cover = sweeper->current;
  size_t count = 0;
  for (size_t u = 0; u < cover->unit_count; ++u)
    count += cover->units[u]->group.output_count;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &sweeper->scratch, count, sizeof(made_t), (void**)&sweeper->made));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &sweeper->scratch, cover->unit_count, sizeof(int32_t),
      (void**)&sweeper->forgotten));
  *out_count = count;
  count = 0;
  for (size_t u = 0; u < cover->unit_count; ++u) {
    const rabbet_group_t* group = &cover->units[u]->group;
    sweeper->forgotten[u] = -1;
    for (size_t i = 0; i < group->output_count; ++i) {
      int32_t value = cover->units[u]->values[group->outputs[i]];
      sweeper->slots[value] = (int32_t)(cluster->input_count + count);
      sweeper->made[count++] =
          (made_t){.value = value, .place = -1, .last_use = (int32_t)u};
    }
  }
  return rabbet_ok();
}

static made_t* sweep_made(const sweeper_t* sweeper, int32_t value) {
  int32_t slot = sweeper->slots[value];
  int32_t inputs = (int32_t)sweeper->cluster->input_count;
  return slot < inputs ? NULL : &sweeper->made[slot - inputs];
}

// Finds the last reader of each. The cluster's outputs get the first places,
// the same for all covers; outputs that are constants are not computed.
static void sweep_last_uses(sweeper_t* sweeper, size_t count) {
  const rabbet_cluster_t* cluster = sweeper->cluster;
  for (size_t u = 0; u < sweeper->current->unit_count; ++u) {
    const rabbet_unit_t* unit = sweeper->current->units[u];
    for (size_t i = 0; i < unit->group.input_count; ++i) {
      made_t* made = sweep_made(sweeper, unit->values[unit->group.inputs[i]]);
      if (!made) continue;
      assert(made->last_use <= (int32_t)u);  // units are in order of execution
      made->last_use = (int32_t)u;
    }
  }
  for (size_t i = 0; i < cluster->output_count; ++i) {
    made_t* made = sweep_made(sweeper, cluster->outputs[i]);
    if (made) made->place = (int32_t)i;
  }
  for (size_t k = 0; k < count; ++k) {
    made_t* made = &sweeper->made[k];
    if (made->place >= 0) continue;
    made->next = sweeper->forgotten[made->last_use];
    sweeper->forgotten[made->last_use] = (int32_t)k;
  }
}

// Assigns places to the other values. Places are reused after a value's last
// use, so that looks of long clusters stay small. A unit's results get places
// before those of its inputs become free.
static rabbet_status_t sweep_assign_places(sweeper_t* sweeper, size_t count) {
  int32_t* free = NULL;
  int32_t free_count = 0, next = (int32_t)sweeper->cluster->output_count;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &sweeper->scratch, count, sizeof(int32_t), (void**)&free));
  size_t k = 0;
  for (size_t u = 0; u < sweeper->current->unit_count; ++u) {
    size_t end = k + sweeper->current->units[u]->group.output_count;
    for (; k < end; ++k)
      if (sweeper->made[k].place < 0)
        sweeper->made[k].place = free_count > 0 ? free[--free_count] : next++;
    for (int32_t f = sweeper->forgotten[u]; f >= 0; f = sweeper->made[f].next)
      free[free_count++] = sweeper->made[f].place;
  }
  assert(k == count && (size_t)free_count <= count);
  size_t inputs = sweeper->cluster->input_count;
  for (k = 0; k < count; ++k) {
    assert(sweeper->made[k].place >= 0 && sweeper->made[k].place < next);
    sweeper->slots[sweeper->made[k].value] =
        (int32_t)inputs + sweeper->made[k].place;
  }
  sweeper->look_size = sweeper->made_at + (size_t)next;
  return rabbet_ok();
}

// The cluster's input that is input i of the unit, or -1: it is none, or a
// constant, which the build converts.
static int32_t sweep_input_of(const sweeper_t* sweeper,
                              const rabbet_unit_t* unit, size_t i) {
  int32_t value = unit->values[unit->group.inputs[i]];
  int32_t slot = sweeper->slots[value];
  return slot >= (int32_t)sweeper->cluster->input_count ||
                 rabbet_ir_value(&sweeper->build->ir, value)->constant
             ? -1
             : slot;
}

// Masks for the inputs that several units read.
static rabbet_status_t sweep_assign_masks(sweeper_t* sweeper) {
  int32_t inputs = (int32_t)sweeper->cluster->input_count, count = 0;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate_array(&sweeper->scratch, (size_t)inputs,
                                  sizeof(int32_t), (void**)&sweeper->masks));
  for (size_t u = 0; u < sweeper->current->unit_count; ++u) {
    const rabbet_unit_t* unit = sweeper->current->units[u];
    for (size_t i = 0; i < unit->group.input_count; ++i) {
      int32_t slot = sweep_input_of(sweeper, unit, i);
      if (slot >= 0) sweeper->masks[slot]++;
    }
  }
  for (int32_t i = 0; i < inputs; ++i)
    sweeper->masks[i] = sweeper->masks[i] > 1 ? count++ : -1;
  sweeper->made_at = sizeof(rabbet_hash_t) + (size_t)count * sizeof(uint64_t);
  return rabbet_ok();
}

static rabbet_status_t sweep_lay_out(sweeper_t* sweeper) {
  size_t count = 0;
  RABBET_RETURN_IF_ERROR(sweep_list_made(sweeper, &count));
  sweep_last_uses(sweeper, count);
  RABBET_RETURN_IF_ERROR(sweep_assign_masks(sweeper));
  return sweep_assign_places(sweeper, count);
}

// Makes an alternative from a partial choice of the last round. Its states,
// in_states and then out_states, are contiguous: the key by which it is found.
static rabbet_status_t sweep_finish(const sweeper_t* sweeper, size_t last,
                                    rabbet_alternative_t* out) {
  const rabbet_cluster_t* cluster = sweeper->cluster;
  size_t units = sweeper->current->unit_count;
  const partial_t* partial = &sweeper->rounds[units].data[last];
  out->us = partial->us;
  out->cover = (int32_t)(sweeper->current - cluster->covers);
  memset(out->in_states, 0, cluster->input_count * sizeof(uint64_t));
  memcpy(out->out_states, look_made(sweeper, partial), cluster->output_count);
  for (size_t u = units; u > 0; --u) {
    const rabbet_unit_t* unit = sweeper->current->units[u - 1];
    const rabbet_type_format_t* types =
        unit->choices[partial->choice].candidate.tensors;
    assert(partial->choice >= 0 &&
           (size_t)partial->choice < unit->choice_count);
    out->choices[u - 1] = partial->choice;
    for (size_t i = 0; i < unit->group.input_count; ++i) {
      int32_t slot = sweep_input_of(sweeper, unit, i);
      rabbet_tune_state_t state = 0;
      if (slot < 0) continue;
      RABBET_RETURN_IF_ERROR(
          rabbet_tune_state(sweeper->build->tuner, types[i], &state));
      out->in_states[slot] |= (uint64_t)1 << state;
    }
    assert((size_t)partial->parent < sweeper->rounds[u - 1].count);
    partial = &sweeper->rounds[u - 1].data[partial->parent];
  }
  assert(partial->parent < 0);
  return rabbet_ok();
}

static rabbet_status_t sweep_allocate(const sweeper_t* sweeper,
                                      rabbet_arena_t* arena,
                                      rabbet_alternative_t* out) {
  const rabbet_cluster_t* cluster = sweeper->cluster;
  size_t masks = cluster->input_count * sizeof(uint64_t);
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate(
      arena, masks + cluster->output_count, (void**)&out->in_states));
  out->out_states = (rabbet_tune_state_t*)out->in_states + masks;
  return rabbet_arena_allocate_array(arena, sweeper->current->unit_count,
                                     sizeof(int32_t), (void**)&out->choices);
}

// Merges the cover's results into those of covers before it.
static rabbet_status_t sweep_collect(sweeper_t* sweeper) {
  size_t units = sweeper->current->unit_count;
  size_t key_size = sweeper->cluster->input_count * sizeof(uint64_t) +
                    sweeper->cluster->output_count;
  const partial_vec_t* last = &sweeper->rounds[units];
  rabbet_alternative_t made;
  RABBET_RETURN_IF_ERROR(sweep_allocate(sweeper, &sweeper->scratch, &made));
  for (size_t i = 0; i < last->count; ++i) {
    RABBET_RETURN_IF_ERROR(sweep_finish(sweeper, i, &made));
    rabbet_alternative_t* found =
        rabbet_map_get(&sweeper->found, (const char*)made.in_states, key_size);
    if (found && found->us <= made.us) continue;
    if (!found)
      RABBET_RETURN_IF_ERROR(rabbet_arena_allocate(
          &sweeper->scratch, sizeof(*found), (void**)&found));
    RABBET_RETURN_IF_ERROR(
        sweep_allocate(sweeper, &sweeper->build->arena, found));
    RABBET_RETURN_IF_ERROR(sweep_finish(sweeper, i, found));
    RABBET_RETURN_IF_ERROR(rabbet_map_set(
        &sweeper->found, (const char*)found->in_states, key_size, found));
  }
  return rabbet_ok();
}

static rabbet_status_t sweep_rounds(sweeper_t* sweeper) {
  rabbet_allocator_t allocator = sweeper->build->allocator;
  partial_t start = {.parent = -1};
  rabbet_arena_reset(&sweeper->looks[0]);
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate(
      &sweeper->looks[0], sweeper->look_size, (void**)&start.look));
  memset(look_made(sweeper, &start), RABBET_TUNE_NO_STATE,
         sweeper->look_size - sweeper->made_at);
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
  RABBET_RETURN_IF_ERROR(sweep_lay_out(sweeper));
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

static void sweep_number_inputs(sweeper_t* sweeper) {
  const rabbet_cluster_t* cluster = sweeper->cluster;
  sweeper->slots = sweeper->build->tuner->slots;
  for (size_t i = 0; i < cluster->input_count; ++i)
    sweeper->slots[cluster->inputs[i]] = (int32_t)i;
}

static void sweep_unnumber(const sweeper_t* sweeper) {
  const rabbet_cluster_t* cluster = sweeper->cluster;
  for (size_t i = 0; i < cluster->input_count; ++i)
    sweeper->slots[cluster->inputs[i]] = -1;
  for (size_t i = 0; i < cluster->node_count; ++i)
    for (size_t k = 0; k < cluster->nodes[i]->output_count; ++k)
      sweeper->slots[cluster->nodes[i]->outputs[k]] = -1;
}

static rabbet_status_t sweep_all(sweeper_t* sweeper) {
  rabbet_cluster_t* cluster = sweeper->cluster;
  sweep_number_inputs(sweeper);
  for (size_t i = 0; i < cluster->cover_count; ++i)
    RABBET_RETURN_IF_ERROR(sweep_cover(sweeper, &cluster->covers[i]));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &sweeper->build->arena, sweeper->found.live, sizeof(rabbet_alternative_t),
      (void**)&cluster->alternatives));
  for (size_t i = 0; i < sweeper->found.count; ++i)
    cluster->alternatives[cluster->alternative_count++] =
        *(const rabbet_alternative_t*)sweeper->found.entries[i].value;
  assert(cluster->alternative_count == sweeper->found.live);
  return rabbet_ok();
}

// Times the units' choices. A single cover with single choices needs no times.
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

// A unit for which the user's selector chose nothing, or NULL.
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

static rabbet_status_t alternatives_sweep(rabbet_build_t* build,
                                          rabbet_cluster_t* cluster,
                                          bool at_once) {
  sweeper_t sweeper = {.build = build, .cluster = cluster, .at_once = at_once};
  rabbet_arena_t* arenas[] = {&sweeper.scratch, &sweeper.looks[0],
                              &sweeper.looks[1]};
  for (size_t i = 0; i < 3; ++i)
    rabbet_arena_initialize(build->allocator, arenas[i]);
  rabbet_map_initialize(build->allocator, &sweeper.found);
  rabbet_status_t status = sweep_all(&sweeper);
  sweep_unnumber(&sweeper);
  rabbet_map_deinitialize(&sweeper.found);
  for (size_t i = 0; i < 3; ++i)
    rabbet_arena_deinitialize(arenas[i]);
  return status;
}

static rabbet_status_t alternatives_of_nodes(rabbet_build_t* build,
                                             rabbet_cluster_t* cluster) {
  if (build->level > 0)
    RABBET_RETURN_IF_ERROR(alternatives_time(build, cluster));
  RABBET_RETURN_IF_ERROR(alternatives_select(build, cluster));
  rabbet_status_t status = alternatives_sweep(build, cluster, false);
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
  assert(cluster->alternative_count > 0);
  return rabbet_ok();
}

rabbet_status_t rabbet_tune_alternatives(rabbet_build_t* build,
                                         rabbet_cluster_t* cluster) {
  return cluster->kind == RABBET_CLUSTER_NODES
             ? alternatives_of_nodes(build, cluster)
             : alternatives_of_boundary(build, cluster);
}

rabbet_status_t rabbet_tune_alternatives_at_once(rabbet_build_t* build,
                                                 rabbet_cluster_t* cluster) {
  assert(cluster->kind == RABBET_CLUSTER_NODES);
  cluster->alternatives = NULL;
  cluster->alternative_count = 0;
  return alternatives_sweep(build, cluster, true);
}
