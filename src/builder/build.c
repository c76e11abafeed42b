// A build from end to end.

#include "builder/build.h"

#include <string.h>

#include "base/strbuf.h"
#include "base/thread.h"
#include "builder/choose/tune.h"
#include "builder/emit/carried_code.h"
#include "builder/emit/emit.h"
#include "builder/emit/layout.h"
#include "builder/ir/passes.h"
#include "builder/measure/bench.h"
#include "builder/measure/cold_weights.h"
#include "builder/measure/whole_plan_timing.h"
#include "builder/output.h"
#include "builder/propose/trial.h"
#include "builder/report.h"
#include "builder/unroll/branches.h"
#include "builder/unroll/unroll.h"

typedef struct result_t {
  rabbet_solution_t solution;
  rabbet_layout_t layout;
  rabbet_emitted_t emitted;
  rabbet_report_totals_t totals;
} result_t;

static uint32_t build_extra_dtypes(const rabbet_build_t* build) {
  int64_t flags = build->config->options[RABBET_BUILDER_OPTION_FLAGS];
  uint32_t dtypes = 0;
  if (build->ir.strongly_typed) return 0;
  if (flags >> RABBET_BUILDER_FP16 & 1) dtypes |= 1u << RABBET_DTYPE_HALF;
  if (flags >> RABBET_BUILDER_BF16 & 1) dtypes |= 1u << RABBET_DTYPE_BF16;
  return dtypes;
}

static uint32_t build_refit_flags(const rabbet_build_t* build) {
  const uint32_t all =
      1u << RABBET_BUILDER_REFIT | 1u << RABBET_BUILDER_REFIT_IDENTICAL |
      1u << RABBET_BUILDER_REFIT_INDIVIDUAL | 1u << RABBET_BUILDER_STRIP_PLAN;
  uint32_t flags =
      (uint32_t)build->config->options[RABBET_BUILDER_OPTION_FLAGS] & all;
  // STRIP_PLAN of individually marked weights strips only these.
  if (flags >> RABBET_BUILDER_REFIT_INDIVIDUAL & 1)
    flags &= ~(1u << RABBET_BUILDER_STRIP_PLAN);
  return flags;
}

static rabbet_status_t build_open(rabbet_build_t* build) {
  const rabbet_builder_config_t* config = build->config;
  if (!build->device)
    RABBET_RETURN_IF_ERROR(
        rabbet_device_create(config->device, build->allocator, &build->device));
  build->ir.reads_packed =
      (build->device->traits & RABBET_DEVICE_WEIGHT_ONLY) != 0;
  build->threads = (int)config->options[RABBET_BUILDER_OPTION_THREADS];
  if (build->threads == 0)
    RABBET_RETURN_IF_ERROR(rabbet_device_default_threads(&build->threads));
  build->level = (int)config->options[RABBET_BUILDER_OPTION_OPTIMIZATION_LEVEL];
  build->cache = config->cache;
  rabbet_timing_cache_retain(build->cache);
  if (!build->cache)
    RABBET_RETURN_IF_ERROR(
        rabbet_timing_cache_create(NULL, 0, build->allocator, &build->cache));
  RABBET_RETURN_IF_ERROR(rabbet_bench_create(build, &build->bench));
  RABBET_RETURN_IF_ERROR(rabbet_trials_create(build));
  return rabbet_tuner_create(build);
}

static void build_close_tuning(rabbet_build_t* build) {
  rabbet_tuner_destroy(build->tuner);
  rabbet_trials_destroy(build->trials);
  rabbet_bench_destroy(build->bench);
  rabbet_timing_cache_release(build->cache);
}

static void build_close(rabbet_build_t* build) {
  build_close_tuning(build);
  rabbet_ir_deinitialize(&build->ir);
  rabbet_vec_free(build->allocator, &build->carried);
  rabbet_constants_deinitialize(build);
  rabbet_fold_deinitialize(build);
  rabbet_arena_deinitialize(&build->arena);
}

// ---- Phases -----------------------------------------------------------------

typedef rabbet_status_t (*pass_fn_t)(rabbet_build_t* build);

static const struct {
  const char* name;
  pass_fn_t run;
} build_passes[] = {
    {"wishes", rabbet_pass_wishes},
    {"shapes", rabbet_pass_shapes},
    {"fold", rabbet_pass_fold},
    {"shapes", rabbet_pass_shapes},
    {"simplify", rabbet_pass_simplify},
    {"common subexpressions", rabbet_pass_common_subexpressions},
    {"simplify", rabbet_pass_simplify},
    {"fold", rabbet_pass_fold},
    {"quantize", rabbet_pass_quantize},
    {"parallel", rabbet_pass_parallel},
};

static rabbet_status_t build_simplify(rabbet_build_t* build) {
  static const char phase[] = "Simplifying";
  size_t count = sizeof(build_passes) / sizeof(build_passes[0]);
  rabbet_progress_start(build, phase, "Building", count);
  rabbet_status_t status = rabbet_ok();
  for (size_t i = 0; rabbet_is_ok(status) && i < count; ++i) {
    status = build_passes[i].run(build);
    if (rabbet_is_ok(status)) status = rabbet_progress_step(build, phase, i);
    rabbet_log(build->logger, RABBET_SEVERITY_VERBOSE,
               "after pass '%s': %zu layer%s", build_passes[i].name,
               build->ir.nodes.count, rabbet_plural(build->ir.nodes.count));
  }
  rabbet_progress_end(build, phase);
  return status;
}

// Solutions that the sum of measured times does not tell apart for sure.
// step_us is a share of the mean time of a step here.
static const rabbet_weights_of_costs_t build_weights[] = {
    {1, 0}, {1, 0.01}, {1.5, 0.03}, {3, 0.1}};
#define BUILD_MAX_VARIANTS (sizeof(build_weights) / sizeof(build_weights[0]))

typedef struct variants_t {
  rabbet_solution_t solutions[BUILD_MAX_VARIANTS];
  rabbet_layout_t layouts[BUILD_MAX_VARIANTS];
  rabbet_timing_t timings[BUILD_MAX_VARIANTS];
  size_t count;
} variants_t;

static bool build_same_choices(const rabbet_solution_t* a,
                               const rabbet_solution_t* b, size_t inputs,
                               size_t outputs) {
  if (a->pick_count != b->pick_count ||
      memcmp(a->inputs, b->inputs, inputs * sizeof(*a->inputs)) != 0 ||
      memcmp(a->outputs, b->outputs, outputs * sizeof(*a->outputs)) != 0)
    return false;
  for (size_t i = 0; i < a->pick_count; ++i)
    if (a->picks[i].choice != b->picks[i].choice) return false;
  return true;
}

static rabbet_status_t build_variant(rabbet_build_t* build,
                                     rabbet_weights_of_costs_t weights,
                                     variants_t* variants) {
  rabbet_solution_t* solution = &variants->solutions[variants->count];
  RABBET_RETURN_IF_ERROR(rabbet_tuner_solve(build, weights, solution));
  for (size_t i = 0; i < variants->count; ++i)
    if (build_same_choices(&variants->solutions[i], solution,
                           build->ir.input_count, build->ir.output_count))
      return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_layout_initialize(
      build, solution, &variants->layouts[variants->count]));
  variants->count++;
  return rabbet_ok();
}

// The first variant, unless another is faster as a whole.
static rabbet_status_t build_compare(rabbet_build_t* build,
                                     variants_t* variants, size_t* out_best) {
  size_t wanted = build->level >= 3 ? BUILD_MAX_VARIANTS : 1;
  *out_best = 0;
  double mean_us = 0;
  for (size_t i = 0; i < wanted; ++i) {
    rabbet_weights_of_costs_t weights = build_weights[i];
    weights.step_us *= mean_us;
    RABBET_RETURN_IF_ERROR(build_variant(build, weights, variants));
    const rabbet_solution_t* first = &variants->solutions[0];
    if (first->pick_count > 0) mean_us = first->us / (double)first->pick_count;
  }
  for (size_t i = 0; i < variants->count; ++i)
    variants->timings[i] = (rabbet_timing_t){.us = -1};
  if (variants->count < 2) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_whole_plan_time(
      build, variants->layouts, variants->count, variants->timings));
  for (size_t i = 0; i < variants->count; ++i) {
    rabbet_log(build->logger, RABBET_SEVERITY_VERBOSE,
               "plan %zu: %zu step%s, sum %.1f us, whole %.1f us", i,
               variants->layouts[i].steps.count,
               rabbet_plural(variants->layouts[i].steps.count),
               variants->solutions[i].us, variants->timings[i].us);
    if (variants->timings[i].us >= 0 &&
        variants->timings[i].us < variants->timings[*out_best].us)
      *out_best = i;
  }
  return rabbet_ok();
}

// The sum of the times in the report's table.
static double build_sum(const rabbet_layout_t* layout) {
  double sum = 0;
  for (size_t i = 0; i < layout->steps.count; ++i) {
    double us = layout->steps.data[i].pick.choice->us;
    if (us > 0) sum += us;
  }
  return sum;
}

static rabbet_status_t build_choose(rabbet_build_t* build, result_t* result) {
  size_t best = 0;
  RABBET_RETURN_IF_ERROR(rabbet_ranges_compute(build));
  build->has_cold_weights = rabbet_cold_weights_apply(build);
  RABBET_RETURN_IF_ERROR(rabbet_tuner_explore(build));
  variants_t variants = {.count = 0};
  rabbet_whole_plan_memory_t memory = {0};
  rabbet_status_t status = build_compare(build, &variants, &best);
  if (rabbet_is_ok(status)) {
    result->solution = variants.solutions[best];
    result->layout = variants.layouts[best];
    memset(&variants.layouts[best], 0, sizeof(rabbet_layout_t));
    result->totals.whole = variants.timings[best];
    result->solution.us = build_sum(&result->layout);
    status = rabbet_whole_plan_memory(build, &result->layout, &memory);
    result->totals.memory = memory.total;
  }
  for (size_t i = 0; i < variants.count; ++i)
    rabbet_layout_deinitialize(build, &variants.layouts[i]);
  return status;
}

// A plugin that asks for isolation first runs in a helper. A timed choice has
// done so; a choice without a time is the only one.
static rabbet_status_t build_isolate_plugin(rabbet_build_t* build,
                                            const rabbet_pick_t* pick) {
  bool harmful = false;
  size_t count = 0;
  RABBET_RETURN_IF_ERROR(
      rabbet_trials_try(build->trials, pick->unit, pick->choice, &harmful));
  if (!harmful) return rabbet_ok();
  const rabbet_culprit_t* culprits =
      rabbet_trials_culprits(build->trials, &count);
  return RABBET_STATUS(RABBET_STATUS_PLUGIN,
                       "layer '%s': its plugin failed when it was tried in the "
                       "helper program: %s",
                       pick->unit->name, culprits[count - 1].reason);
}

// Runs each operator of the user once: compilers that start at the first call,
// and mistakes in its body, belong to the build. Timed operators have run
// before; those with one way to run, or with times in a cache, have not.
static rabbet_status_t build_try_plugins(rabbet_build_t* build,
                                         const rabbet_layout_t* layout) {
  if (!build->config->options[RABBET_BUILDER_OPTION_TRY_PLUGINS])
    return rabbet_ok();
  for (size_t i = 0; i < layout->steps.count; ++i) {
    const rabbet_pick_t* pick = &layout->steps.data[i].pick;
    if (!pick->choice->candidate.kernel || pick->unit->node_count == 0 ||
        !pick->unit->nodes[0]->plugin)
      continue;
    if (pick->choice->us < 0)
      RABBET_RETURN_IF_ERROR(build_isolate_plugin(build, pick));
    rabbet_status_t status =
        rabbet_bench_run_once(build, pick->unit, pick->choice);
    if (rabbet_tuner_refuses_estimates(pick->unit, status)) {
      rabbet_log(build->logger, RABBET_SEVERITY_WARNING,
                 "at estimates of data-dependent sizes: %s",
                 rabbet_status_message(status));
      rabbet_status_ignore(status);
      status = rabbet_ok();
    }
    RABBET_RETURN_IF_ERROR(status);
  }
  return rabbet_ok();
}

// ---- Sequences --------------------------------------------------------------

// A sequence of the plan. An entry is the network's, tuned for some of the
// profiles; those behind the first share its IR and constants. A layer's body
// is a build of its own.
typedef struct built_t {
  const char* name;
  rabbet_build_t* build;
  rabbet_build_t own;
  rabbet_builder_config_t config;  // of a body, and of one of several entries
  const int32_t* profiles;         // of an entry: their numbers; else NULL
  rabbet_network_t* network;
  result_t* result;
  int depth;  // of calls
} built_t;

typedef RABBET_VEC(built_t*) sequences_t;

static rabbet_status_t build_bodies(const built_t* caller,
                                    sequences_t* sequences);

// The network as simple as it gets; the IR does not change any more.
static rabbet_status_t build_prepare(const built_t* built) {
  rabbet_build_t* build = built->build;
  build->extra_dtypes = build_extra_dtypes(build);
  RABBET_RETURN_IF_ERROR(build_simplify(build));
  if (!*built->name)
    RABBET_RETURN_IF_ERROR(rabbet_progress_step(build, "Building", 0));
  rabbet_ir_show_refittable(&build->ir);
  RABBET_RETURN_IF_ERROR(rabbet_pass_implicit(build));
  RABBET_RETURN_IF_ERROR(rabbet_pass_operands(build));
  size_t values = build->ir.values.count;
  RABBET_RETURN_IF_ERROR(rabbet_constants_create(build, values));
  return rabbet_arena_allocate_array(
      &build->arena, values, sizeof(*build->numbers), (void**)&build->numbers);
}

static rabbet_status_t build_tune(const built_t* built,
                                  sequences_t* sequences) {
  RABBET_RETURN_IF_ERROR(build_choose(built->build, built->result));
  RABBET_RETURN_IF_ERROR(
      build_try_plugins(built->build, &built->result->layout));
  return build_bodies(built, sequences);
}

static rabbet_status_t build_report_selection(const sequences_t* sequences) {
  rabbet_build_t* build = sequences->data[0]->build;
  const rabbet_solution_t** solutions = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &build->arena, sequences->count, sizeof(*solutions), (void**)&solutions));
  for (size_t i = 0; i < sequences->count; ++i)
    solutions[i] = &sequences->data[i]->result->solution;
  return rabbet_tuner_report_selection(build, solutions, sequences->count);
}

// The extents of a body's input: those of the tensor that it stands for, or of
// a slice of it.
typedef struct body_input_t {
  const rabbet_tensor_t* tensor;
  const rabbet_ir_value_t* value;  // outside
  bool is_carried, is_slice;
  int64_t varying;  // axes of a carried tensor
} body_input_t;

static void body_drop_axis(rabbet_dims_t* dims) {
  --dims->rank;
  memmove(dims->d, dims->d + 1, (size_t)dims->rank * sizeof(dims->d[0]));
}

static rabbet_status_t body_profile_shape(rabbet_build_t* caller,
                                          const body_input_t* input,
                                          rabbet_profile_t* profile) {
  rabbet_dims_t opt, min, max;
  RABBET_RETURN_IF_ERROR(
      rabbet_ranges_dims(caller, NULL, input->value, &opt, &min, &max));
  if (input->is_slice) {
    body_drop_axis(&opt);
    body_drop_axis(&min);
    body_drop_axis(&max);
  }
  for (int32_t i = 0; i < opt.rank; ++i) {
    if (!(input->varying >> i & 1)) continue;
    min.d[i] = 0;
    if (opt.d[i] < 1) opt.d[i] = 1;
    max.d[i] = INT32_MAX;
  }
  return rabbet_profile_set_shape(profile, input->tensor->name, &min, &opt,
                                  &max);
}

// Numbers that a loop makes are in the range of INT32, which runs check.
static void body_loop_values(const rabbet_ir_value_t* value,
                             const rabbet_ranges_t* ranges, int64_t* list,
                             size_t count) {
  for (size_t i = 0; i < count; ++i) {
    rabbet_expr_t expr = i < value->value_count ? value->values[i] : -1;
    list[i] = INT32_MIN;
    list[count + i] = expr >= 0 && ranges->valid[expr] ? ranges->opt[expr] : 1;
    list[2 * count + i] = INT32_MAX;
  }
}

// A shape input also has its elements.
static rabbet_status_t body_profile_values(rabbet_build_t* caller,
                                           const body_input_t* input,
                                           rabbet_profile_t* profile) {
  const rabbet_ranges_t* ranges = &caller->ranges;
  const rabbet_ir_value_t* value = input->value;
  bool in_loop = input->is_carried || input->is_slice;
  size_t count = in_loop ? input->tensor->value_count : value->value_count;
  int64_t* list = NULL;
  if (!input->tensor->is_host_read || (!in_loop && !value->values))
    return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &caller->arena, count, 3 * sizeof(*list), (void**)&list));
  if (in_loop) body_loop_values(value, ranges, list, count);
  for (size_t i = 0; !in_loop && i < count; ++i) {
    rabbet_expr_t expr = value->values[i];
    list[i] = ranges->low[expr];
    list[2 * count + i] = ranges->high[expr];
    list[count + i] = ranges->valid[expr] ? ranges->opt[expr] : list[i];
  }
  return rabbet_profile_set_values(profile, input->tensor->name, list,
                                   list + count, list + 2 * count, count);
}

// The bits of the input in rabbet_build_t's `told`.
static uint64_t body_told(const rabbet_build_t* caller,
                          const body_input_t* input) {
  const bool* data_dependent = caller->ranges.data_dependent;
  const rabbet_ir_value_t* value = input->value;
  bool in_loop = input->is_carried || input->is_slice;
  uint64_t told = (uint64_t)input->varying;
  for (int32_t i = input->is_slice; i < value->shape.rank; ++i)
    if (data_dependent[value->shape.d[i]])
      told |= UINT64_C(1) << (i - input->is_slice);
  bool values = in_loop && input->tensor->is_host_read;
  for (size_t i = 0; !in_loop && value->values && i < value->value_count; ++i)
    values |= data_dependent[value->values[i]];
  return values ? told | RABBET_BUILD_TOLD_VALUES : told;
}

static rabbet_status_t body_profiles(rabbet_build_t* caller,
                                     const rabbet_ir_node_t* node,
                                     const rabbet_body_t* body,
                                     rabbet_builder_config_t* config,
                                     uint64_t* told) {
  const rabbet_loop_wiring_t* loop = node->bodies->loop;
  size_t carried = loop ? loop->carried_count : 0;
  size_t sliced = loop ? carried + loop->slice_count : 0;
  for (size_t p = 0; p < caller->ranges.profile_count; ++p) {
    rabbet_profile_t* profile = NULL;
    RABBET_RETURN_IF_ERROR(
        RABBET_VEC_RESERVE(caller->allocator, &config->profiles, 1));
    RABBET_RETURN_IF_ERROR(rabbet_profile_create(caller->allocator, &profile));
    config->profiles.data[config->profiles.count++] = profile;
    for (size_t i = 0; i < body->network->inputs.count; ++i) {
      const body_input_t input = {
          .tensor = body->network->inputs.data[i],
          .value = rabbet_ir_value(&caller->ir, node->inputs[body->inputs[i]]),
          .is_carried = i < carried,
          .is_slice = i >= carried && i < sliced,
          .varying = i < carried ? loop->varying[i] : 0};
      told[i] = body_told(caller, &input);
      RABBET_RETURN_IF_ERROR(body_profile_shape(caller, &input, profile));
      RABBET_RETURN_IF_ERROR(body_profile_values(caller, &input, profile));
    }
  }
  return rabbet_ok();
}

static rabbet_status_t build_body(const built_t* caller,
                                  const rabbet_ir_node_t* node,
                                  const rabbet_body_t* body,
                                  sequences_t* sequences) {
  rabbet_build_t* outer = caller->build;
  built_t* built = NULL;
  if (caller->depth >= RABBET_PLAN_MAX_DEPTH)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "layer '%s' (%s) lies in %d conditionals and loops; a "
                         "plan can have them %d deep",
                         node->name, node->op->name, caller->depth,
                         RABBET_PLAN_MAX_DEPTH);
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate(&outer->arena, sizeof(*built), (void**)&built));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate(
      &outer->arena, sizeof(*built->result), (void**)&built->result));
  RABBET_RETURN_IF_ERROR(rabbet_arena_printf(
      &outer->arena, &built->name, "%s/%s", node->bodies->name, body->name));
  built->network = body->network;
  built->depth = caller->depth + 1;
  built->config = *outer->config;
  memset(&built->config.profiles, 0, sizeof(built->config.profiles));
  built->build = &built->own;
  built->own = (rabbet_build_t){.allocator = outer->allocator,
                                .config = &built->config,
                                .profiles = outer->profiles,
                                .logger = outer->logger,
                                .device = outer->device};
  rabbet_arena_initialize(outer->allocator, &built->own.arena);
  rabbet_status_t status = RABBET_VEC_PUSH(outer->allocator, sequences, built);
  if (!rabbet_is_ok(status)) {
    build_close(&built->own);
    return status;
  }
  built->config.cache = outer->cache;
  uint64_t* told = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &built->own.arena, body->network->inputs.count, sizeof(*told),
      (void**)&told));
  built->own.told = told;
  RABBET_RETURN_IF_ERROR(
      body_profiles(outer, node, body, &built->config, told));
  RABBET_RETURN_IF_ERROR(
      rabbet_ir_import(built->network, build_refit_flags(outer),
                       &built->own.arena, outer->allocator, &built->own.ir));
  RABBET_RETURN_IF_ERROR(build_open(&built->own));
  status = build_prepare(built);
  if (rabbet_is_ok(status)) status = build_tune(built, sequences);
  return RABBET_ANNOTATE(status, "sequence '%s'", built->name);
}

// Of the networks that a layer runs one runs at a time: their memory is one.
// The slower branch counts, and one iteration of a loop.
static rabbet_status_t build_bodies(const built_t* caller,
                                    sequences_t* sequences) {
  result_t* result = caller->result;
  const rabbet_layout_t* layout = &result->layout;
  size_t memory = 0;
  for (size_t s = 0; s < layout->steps.count; ++s) {
    const rabbet_unit_t* unit = layout->steps.data[s].pick.unit;
    double us = 0;
    if (unit->node_count != 1 || !unit->nodes[0]->bodies) continue;
    const rabbet_bodies_t* bodies = unit->nodes[0]->bodies;
    for (size_t k = 0; k < bodies->count; ++k) {
      size_t at = sequences->count;
      RABBET_RETURN_IF_ERROR(
          build_body(caller, unit->nodes[0], &bodies->list[k], sequences));
      const result_t* made = sequences->data[at]->result;
      if (made->totals.memory > memory) memory = made->totals.memory;
      if (made->solution.us > us) us = made->solution.us;
    }
    result->solution.us += us;
  }
  result->totals.memory += memory;
  return rabbet_ok();
}

// ---- Entries ----------------------------------------------------------------

// Profiles with one optimum share an entry, that of the first of them.
static bool entry_begins(const rabbet_builder_config_t* config,
                         size_t profile) {
  rabbet_profile_t** all = config->profiles.data;
  for (size_t i = 0; i < profile; ++i)
    if (rabbet_profile_same_optimum(all[i], all[profile])) return false;
  return true;
}

static rabbet_status_t entry_take_profiles(
    built_t* built, const rabbet_builder_config_t* config, size_t first) {
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

static rabbet_status_t entry_create(const built_t* first, size_t profile,
                                    sequences_t* sequences,
                                    built_t** out_built) {
  rabbet_build_t* shared = first->build;
  built_t* built = NULL;
  *out_built = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate(&shared->arena, sizeof(*built), (void**)&built));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate(
      &shared->arena, sizeof(*built->result), (void**)&built->result));
  RABBET_RETURN_IF_ERROR(rabbet_arena_printf(&shared->arena, &built->name,
                                             "profile %zu", profile));
  built->network = first->network;
  built->build = &built->own;
  built->own = (rabbet_build_t){.allocator = shared->allocator,
                                .logger = shared->logger,
                                .device = shared->device,
                                .ir = shared->ir,
                                .constants = shared->constants,
                                .numbers = shared->numbers,
                                .extra_dtypes = shared->extra_dtypes,
                                .pace = shared->pace};
  rabbet_arena_initialize(shared->allocator, &built->own.arena);
  rabbet_status_t status = RABBET_VEC_PUSH(shared->allocator, sequences, built);
  if (!rabbet_is_ok(status)) {
    rabbet_arena_deinitialize(&built->own.arena);
    return status;
  }
  *out_built = built;
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

static rabbet_status_t build_entry(const built_t* first,
                                   const rabbet_builder_config_t* config,
                                   size_t profile, sequences_t* sequences) {
  built_t* built = NULL;
  RABBET_RETURN_IF_ERROR(entry_create(first, profile, sequences, &built));
  RABBET_RETURN_IF_ERROR(entry_take_profiles(built, config, profile));
  built->config.cache = first->build->cache;
  RABBET_RETURN_IF_ERROR(build_open(&built->own));
  return RABBET_ANNOTATE(build_tune(built, sequences), "profile %zu", profile);
}

static rabbet_status_t build_entries(built_t* first, sequences_t* sequences) {
  rabbet_build_t* build = first->build;
  const rabbet_builder_config_t* config = build->config;
  RABBET_RETURN_IF_ERROR(build_prepare(first));
  // Mistakes in any profile come before the first is tuned.
  RABBET_RETURN_IF_ERROR(rabbet_ranges_compute(build));
  RABBET_RETURN_IF_ERROR(entry_take_profiles(first, config, 0));
  RABBET_RETURN_IF_ERROR(build_tune(first, sequences));
  entry_fix_formats(build, &first->result->solution);
  for (size_t i = 1; i < config->profiles.count; ++i)
    if (entry_begins(config, i))
      RABBET_RETURN_IF_ERROR(build_entry(first, config, i, sequences));
  return rabbet_ok();
}

static void entry_close(built_t* built) {
  rabbet_layout_deinitialize(&built->own, &built->result->layout);
  build_close_tuning(&built->own);
  rabbet_fold_deinitialize(&built->own);
  rabbet_arena_deinitialize(&built->own.arena);
}

// ---- The end of sequences ---------------------------------------------------

// The first is the caller's to close.
static void build_close_sequences(sequences_t* sequences) {
  for (size_t i = sequences->count; i-- > 1;) {
    built_t* built = sequences->data[i];
    rabbet_allocator_t allocator = built->own.allocator;
    if (built->profiles) {
      entry_close(built);
      continue;
    }
    rabbet_layout_deinitialize(&built->own, &built->result->layout);
    for (size_t p = 0; p < built->config.profiles.count; ++p)
      rabbet_profile_release(built->config.profiles.data[p]);
    rabbet_vec_free(allocator, &built->config.profiles);
    build_close(&built->own);
  }
}

// ---- The whole --------------------------------------------------------------

static rabbet_status_t build_write(sequences_t* sequences, result_t* result,
                                   const rabbet_build_output_t* output) {
  rabbet_build_t* build = sequences->data[0]->build;
  rabbet_emit_sequence_t* list = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &build->arena, sequences->count, sizeof(*list), (void**)&list));
  for (size_t i = 0; i < sequences->count; ++i) {
    const built_t* built = sequences->data[i];
    list[i] = (rabbet_emit_sequence_t){.name = built->name,
                                       .number = (int32_t)i,
                                       .profiles = built->profiles,
                                       .build = built->build,
                                       .network = built->network,
                                       .layout = &built->result->layout};
  }
  RABBET_RETURN_IF_ERROR(rabbet_emit(list, sequences->count, &result->emitted));
  for (size_t i = 0; i < result->emitted.blobs.count; ++i)
    result->totals.weights += (size_t)result->emitted.blobs.data[i].size;
  bool strip = build->config->options[RABBET_BUILDER_OPTION_FLAGS] >>
                   RABBET_BUILDER_STRIP_PLAN &
               1;
  const rabbet_plan_contents_t contents = rabbet_emitted_contents(
      &result->emitted,
      strip ? result->emitted.kept_blobs : result->emitted.blobs.count);
  return output->deliver(output->context, &contents, build->allocator,
                         &result->totals.plan);
}

static rabbet_status_t build_phases(sequences_t* sequences, result_t* result,
                                    const rabbet_build_output_t* output) {
  static const char phase[] = "Building";
  rabbet_build_t* build = sequences->data[0]->build;
  rabbet_progress_start(build, phase, NULL, 3);
  rabbet_status_t status = build_entries(sequences->data[0], sequences);
  if (rabbet_is_ok(status)) status = build_report_selection(sequences);
  if (rabbet_is_ok(status)) status = rabbet_progress_step(build, phase, 1);
  if (rabbet_is_ok(status)) status = build_write(sequences, result, output);
  if (rabbet_is_ok(status)) status = rabbet_progress_step(build, phase, 2);
  rabbet_progress_end(build, phase);
  return status;
}

static rabbet_status_t build_report(const sequences_t* sequences,
                                    rabbet_report_totals_t* totals,
                                    int64_t start,
                                    const rabbet_build_output_t* output) {
  rabbet_report_sequence_t* list = NULL;
  if (!output->report) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &sequences->data[0]->build->arena, sequences->count, sizeof(*list),
      (void**)&list));
  for (size_t i = 0; i < sequences->count; ++i) {
    const built_t* built = sequences->data[i];
    totals->layer_count += built->network->layers.count;
    list[i] = (rabbet_report_sequence_t){.name = built->name,
                                         .build = built->build,
                                         .solution = &built->result->solution,
                                         .layout = &built->result->layout};
  }
  totals->seconds = (double)(rabbet_time_ns() - start) * 1e-9;
  const rabbet_report_t report = {
      .sequences = list, .count = sequences->count, .totals = totals};
  return rabbet_report_create(&report, output->allocator, output->report);
}

// `flat` is the network without loops and conditionals.
static rabbet_status_t build_run(rabbet_build_t* build,
                                 rabbet_network_t* network,
                                 rabbet_network_t* flat, result_t* result,
                                 int64_t start,
                                 const rabbet_build_output_t* output) {
  built_t main = {
      .name = "", .build = build, .network = flat, .result = result};
  sequences_t sequences = {0};
  const rabbet_builder_config_t* config = build->config;
  RABBET_RETURN_IF_ERROR(rabbet_ir_import(flat, build_refit_flags(build),
                                          &build->arena, build->allocator,
                                          &build->ir));
  RABBET_RETURN_IF_ERROR(rabbet_collect_carried_code(build, network));
  RABBET_RETURN_IF_ERROR(build_open(build));
  RABBET_RETURN_IF_ERROR(RABBET_VEC_PUSH(build->allocator, &sequences, &main));
  rabbet_status_t status = build_phases(&sequences, result, output);
  if (rabbet_is_ok(status))
    status = build_report(&sequences, &result->totals, start, output);
  build_close_sequences(&sequences);
  build->config = config;
  rabbet_vec_free(build->allocator, &sequences);
  return status;
}

rabbet_status_t rabbet_build_deliver(rabbet_network_t* network,
                                     rabbet_builder_config_t* config,
                                     const rabbet_build_output_t* output) {
  int64_t start = rabbet_time_ns();
  rabbet_allocator_t allocator = output->allocator;
  rabbet_build_t build = {
      .allocator = allocator, .config = config, .logger = config->logger};
  rabbet_arena_initialize(allocator, &build.arena);
  result_t result = {.totals = {.whole = {.us = -1}}};
  rabbet_network_t *unrolled = NULL, *flat = NULL;
  rabbet_status_t status = rabbet_network_check_owners(network);
  if (rabbet_is_ok(status))
    status = rabbet_network_unroll(network, allocator, &unrolled);
  if (rabbet_is_ok(status))
    status = rabbet_network_split_branches(unrolled, allocator, &flat);
  if (rabbet_is_ok(status))
    status = build_run(&build, network, flat, &result, start, output);
  rabbet_emitted_deinitialize(&build, &result.emitted);
  rabbet_layout_deinitialize(&build, &result.layout);
  build_close(&build);
  if (build.device && build.device->vtable->release_threads)
    build.device->vtable->release_threads(build.device);
  rabbet_device_release(build.device);
  rabbet_network_release(flat);
  rabbet_network_release(unrolled);
  return status;
}
