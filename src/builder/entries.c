// Entries of a plan: the network's sequences, one for each optimum of the
// profiles.
#include "builder/ir/passes.h"
#include "builder/sequence.h"

// Profiles with one optimum share an entry, that of the first of them.
static bool entry_begins(const rabbet_builder_config_t* config,
                         size_t profile) {
  rabbet_profile_t** all = config->profiles.data;
  for (size_t i = 0; i < profile; ++i)
    if (rabbet_profile_same_optimum(all[i], all[profile])) return false;
  return true;
}

static rabbet_status_t entry_take_profiles(
    rabbet_built_t* built, const rabbet_builder_config_t* config,
    size_t first) {
  rabbet_arena_t* arena = &built->build->arena;
  size_t all = config->profiles.count, count = 0;
  int32_t* numbers = NULL;
  rabbet_profile_t** profiles = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, all + 1, sizeof(*numbers), (void**)&numbers));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, all + 1, sizeof(*profiles), (void**)&profiles));
  for (size_t i = first; i < all; ++i) {
    rabbet_profile_t* profile = config->profiles.data[i];
    if (!rabbet_profile_same_optimum(profile, config->profiles.data[first]))
      continue;
    numbers[count] = (int32_t)i;
    profiles[count++] = profile;
  }
  built->config = *config;
  built->config.profiles.data = profiles;
  built->config.profiles.count = count;
  built->profiles = numbers;
  built->build->config = &built->config;
  built->build->profiles = numbers;
  return rabbet_ok();
}

static rabbet_status_t entry_create(const rabbet_built_t* first, size_t profile,
                                    rabbet_built_list_t* sequences,
                                    rabbet_built_t** out_built) {
  rabbet_build_t* shared = first->build;
  const char* name = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_printf(&shared->arena, &name, "profile %zu", profile));
  RABBET_RETURN_IF_ERROR(rabbet_built_add(shared, name, sequences, out_built));
  rabbet_built_t* built = *out_built;
  built->network = first->network;
  built->own.ir = shared->ir;
  built->own.constants = shared->constants;
  built->own.numbers = shared->numbers;
  built->own.extra_dtypes = shared->extra_dtypes;
  built->own.pace = shared->pace;
  return rabbet_ok();
}

// All entries have inputs and outputs in the formats of the first.
static void entry_fix_formats(const rabbet_build_t* build,
                              const rabbet_solution_t* solution) {
  const rabbet_ir_t* ir = &build->ir;
  for (size_t i = 0; i < ir->input_count; ++i)
    rabbet_ir_value(ir, ir->inputs[i])->formats = (uint64_t)1
                                                  << solution->inputs[i].format;
  for (size_t i = 0; i < ir->output_count; ++i)
    rabbet_ir_value(ir, ir->outputs[i])->formats =
        (uint64_t)1 << solution->outputs[i].format;
}

static rabbet_status_t build_entry(const rabbet_built_t* first,
                                   const rabbet_builder_config_t* config,
                                   size_t profile,
                                   rabbet_built_list_t* sequences) {
  rabbet_built_t* built = NULL;
  RABBET_RETURN_IF_ERROR(entry_create(first, profile, sequences, &built));
  RABBET_RETURN_IF_ERROR(entry_take_profiles(built, config, profile));
  built->config.cache = first->build->cache;
  RABBET_RETURN_IF_ERROR(rabbet_build_open(&built->own));
  return RABBET_ANNOTATE(rabbet_built_tune(built, sequences), "profile %zu",
                         profile);
}

rabbet_status_t rabbet_built_entries(rabbet_built_t* first,
                                     rabbet_built_list_t* sequences) {
  rabbet_build_t* build = first->build;
  const rabbet_builder_config_t* config = build->config;
  RABBET_RETURN_IF_ERROR(rabbet_built_prepare(first));
  // Mistakes in any profile come before the first is tuned.
  RABBET_RETURN_IF_ERROR(rabbet_ranges_compute(build));
  RABBET_RETURN_IF_ERROR(entry_take_profiles(first, config, 0));
  RABBET_RETURN_IF_ERROR(rabbet_built_tune(first, sequences));
  entry_fix_formats(build, &first->result->solution);
  for (size_t i = 1; i < config->profiles.count; ++i)
    if (entry_begins(config, i))
      RABBET_RETURN_IF_ERROR(build_entry(first, config, i, sequences));
  return rabbet_ok();
}

void rabbet_built_close_entry(rabbet_built_t* built) {
  rabbet_layout_deinitialize(&built->own, &built->result->layout);
  rabbet_build_close_tuning(&built->own);
  rabbet_fold_deinitialize(&built->own);
  rabbet_arena_deinitialize(&built->own.arena);
}
