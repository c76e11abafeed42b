// Programs of all units' choices, compiled before these are timed.
#include "builder/choose/tuner.h"
#include "builder/measure/compile_ahead.h"

// ---- Units and covers -------------------------------------------------------

static rabbet_status_t tune_add_untimed(rabbet_build_t* build,
                                        rabbet_unit_t* unit,
                                        rabbet_picks_t* picks) {
  for (size_t i = 0; unit->fits && i < unit->choice_count; ++i) {
    const rabbet_choice_t* choice = &unit->choices[i];
    if (!choice->candidate.kernel || rabbet_tune_knows(build, choice)) continue;
    const rabbet_pick_t pick = {unit, choice};
    RABBET_RETURN_IF_ERROR(RABBET_VEC_PUSH(build->allocator, picks, pick));
  }
  return rabbet_ok();
}

// The conversion of a value between a maker's and a reader's types, if kernels
// are to be timed for it.
static rabbet_status_t tune_add_conversions(
    rabbet_build_t* build, const rabbet_unit_t* maker, size_t output,
    const rabbet_unit_t* reader, size_t input, rabbet_picks_t* picks) {
  const rabbet_ir_value_t* value =
      rabbet_ir_value(&build->ir, reader->values[reader->group.inputs[input]]);
  size_t at = maker->group.input_count + output;
  for (size_t i = 0; i < maker->choice_count; ++i)
    for (size_t k = 0; k < reader->choice_count; ++k) {
      rabbet_type_format_t from = maker->choices[i].candidate.tensors[at];
      rabbet_type_format_t to = reader->choices[k].candidate.tensors[input];
      rabbet_unit_t* unit = NULL;
      if (from.dtype == to.dtype && from.format == to.format) continue;
      RABBET_RETURN_IF_ERROR(
          rabbet_tune_conversion_ahead(build, value, from, to, &unit));
      if (unit) RABBET_RETURN_IF_ERROR(tune_add_untimed(build, unit, picks));
    }
  return rabbet_ok();
}

// Between the units of a cover.
static rabbet_status_t tune_add_cover_conversions(rabbet_build_t* build,
                                                  const rabbet_cover_t* cover,
                                                  rabbet_picks_t* picks) {
  for (size_t r = 0; r < cover->unit_count; ++r)
    for (size_t i = 0; i < cover->units[r]->group.input_count; ++i)
      for (size_t m = 0; m < r; ++m) {
        const rabbet_unit_t *reader = cover->units[r], *maker = cover->units[m];
        for (size_t o = 0; o < maker->group.output_count; ++o)
          if (maker->values[maker->group.outputs[o]] ==
              reader->values[reader->group.inputs[i]])
            RABBET_RETURN_IF_ERROR(
                tune_add_conversions(build, maker, o, reader, i, picks));
      }
  return rabbet_ok();
}

static rabbet_status_t tune_add_cover(rabbet_build_t* build,
                                      const rabbet_cover_t* cover, bool is_one,
                                      rabbet_picks_t* picks) {
  for (size_t u = 0; u < cover->unit_count; ++u)
    if (!is_one || cover->units[u]->choice_count > 1)
      RABBET_RETURN_IF_ERROR(tune_add_untimed(build, cover->units[u], picks));
  return tune_add_cover_conversions(build, cover, picks);
}

// ---- Conversions between clusters -------------------------------------------

// Pairs of types and formats for which a conversion was added. A program
// converts all tensors from one to another: one conversion of each pair will
// do.
enum { AHEAD_TYPES = 64 };

typedef struct ahead_t {
  rabbet_build_t* build;
  rabbet_picks_t* picks;
  rabbet_type_format_t types[AHEAD_TYPES];
  int count;
  bool seen[AHEAD_TYPES][AHEAD_TYPES];
  uint64_t* made;  // of each IR value: bits of the types that units make
} ahead_t;

// The type's number; -1: there is no room for it.
static int ahead_type(ahead_t* ahead, rabbet_type_format_t type) {
  for (int i = 0; i < ahead->count; ++i)
    if (ahead->types[i].dtype == type.dtype &&
        ahead->types[i].format == type.format)
      return i;
  if (ahead->count == AHEAD_TYPES) return -1;
  ahead->types[ahead->count] = type;
  return ahead->count++;
}

static void ahead_make(ahead_t* ahead, int32_t value,
                       rabbet_type_format_t type) {
  int number = ahead_type(ahead, type);
  if (number >= 0) ahead->made[value] |= UINT64_C(1) << number;
}

static rabbet_status_t ahead_read(ahead_t* ahead,
                                  const rabbet_ir_value_t* value,
                                  rabbet_type_format_t type) {
  int to = ahead_type(ahead, type);
  for (int from = 0; to >= 0 && from < ahead->count; ++from) {
    rabbet_unit_t* unit = NULL;
    if (from == to || (ahead->made[value->id] >> from & 1) == 0 ||
        ahead->seen[from][to])
      continue;
    ahead->seen[from][to] = true;
    RABBET_RETURN_IF_ERROR(rabbet_tune_conversion_ahead(
        ahead->build, value, ahead->types[from], type, &unit));
    if (unit)
      RABBET_RETURN_IF_ERROR(
          tune_add_untimed(ahead->build, unit, ahead->picks));
  }
  return rabbet_ok();
}

static void ahead_make_unit(ahead_t* ahead, const rabbet_unit_t* unit) {
  const rabbet_group_t* group = &unit->group;
  for (size_t i = 0; i < unit->choice_count * group->output_count; ++i) {
    size_t output = i % group->output_count;
    ahead_make(ahead, unit->values[group->outputs[output]],
               unit->choices[i / group->output_count]
                   .candidate.tensors[group->input_count + output]);
  }
}

static rabbet_status_t ahead_read_unit(ahead_t* ahead,
                                       const rabbet_unit_t* unit) {
  const rabbet_group_t* group = &unit->group;
  for (size_t i = 0; i < unit->choice_count * group->input_count; ++i) {
    size_t input = i % group->input_count;
    const rabbet_ir_value_t* value =
        rabbet_ir_value(&ahead->build->ir, unit->values[group->inputs[input]]);
    RABBET_RETURN_IF_ERROR(ahead_read(
        ahead, value,
        unit->choices[i / group->input_count].candidate.tensors[input]));
  }
  return rabbet_ok();
}

static rabbet_status_t ahead_each_unit(ahead_t* ahead, bool reads) {
  const rabbet_tuner_t* tuner = ahead->build->tuner;
  for (size_t i = 0; i < tuner->clusters.count; ++i)
    for (size_t c = 0; c < tuner->clusters.data[i]->cover_count; ++c) {
      const rabbet_cover_t* cover = &tuner->clusters.data[i]->covers[c];
      for (size_t u = 0; u < cover->unit_count; ++u)
        if (reads)
          RABBET_RETURN_IF_ERROR(ahead_read_unit(ahead, cover->units[u]));
        else
          ahead_make_unit(ahead, cover->units[u]);
    }
  return rabbet_ok();
}

static rabbet_status_t tune_add_pairs(rabbet_build_t* build,
                                      rabbet_picks_t* picks) {
  const rabbet_ir_t* ir = &build->ir;
  ahead_t ahead = {.build = build, .picks = picks};
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate_array(&build->arena, ir->values.count,
                                  sizeof(*ahead.made), (void**)&ahead.made));
  for (size_t i = 0; i < ir->input_count; ++i)
    ahead_make(&ahead, ir->inputs[i],
               (rabbet_type_format_t){rabbet_ir_value(ir, ir->inputs[i])->dtype,
                                      RABBET_FORMAT_LINEAR});
  RABBET_RETURN_IF_ERROR(ahead_each_unit(&ahead, false));
  RABBET_RETURN_IF_ERROR(ahead_each_unit(&ahead, true));
  for (size_t i = 0; i < ir->output_count; ++i) {
    const rabbet_ir_value_t* value = rabbet_ir_value(ir, ir->outputs[i]);
    RABBET_RETURN_IF_ERROR(
        ahead_read(&ahead, value,
                   (rabbet_type_format_t){value->dtype, RABBET_FORMAT_LINEAR}));
  }
  return rabbet_ok();
}

// ---- The whole --------------------------------------------------------------

// A user's selector may take few of the choices.
rabbet_status_t rabbet_tune_compile_ahead(rabbet_build_t* build) {
  const rabbet_tuner_t* tuner = build->tuner;
  rabbet_picks_t picks = {0};
  rabbet_status_t status = rabbet_ok();
  if (build->level == 0 || build->config->selector.select ||
      !rabbet_compiles_ahead(build))
    return status;
  for (size_t i = 0; i < tuner->clusters.count; ++i) {
    const rabbet_cluster_t* cluster = tuner->clusters.data[i];
    for (size_t c = 0; rabbet_is_ok(status) && c < cluster->cover_count; ++c)
      status = tune_add_cover(build, &cluster->covers[c],
                              cluster->cover_count == 1, &picks);
  }
  if (rabbet_is_ok(status)) status = tune_add_pairs(build, &picks);
  rabbet_phase_t before =
      rabbet_phases_enter(build->phases, RABBET_PHASE_PROGRAMS);
  if (rabbet_is_ok(status))
    status = rabbet_compile_ahead(build, picks.data, picks.count,
                                  &build->tuner->compiled, false);
  rabbet_phases_enter(build->phases, before);
  rabbet_constant_trim(build);
  rabbet_vec_free(build->allocator, &picks);
  return status;
}
