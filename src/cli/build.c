#include "cli/build.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/thread.h"
#include "builder/output.h"
#include "core/shape_text.h"
#include "core/view.h"

// ---- Profile ---------------------------------------------------------------

enum { SHAPES_MIN, SHAPES_OPT, SHAPES_MAX, SHAPES_COUNT };

typedef struct shape_options_t {
  rabbet_arena_t arena;
  rabbet_named_dims_t* shapes[SHAPES_COUNT];
  size_t counts[SHAPES_COUNT];
} shape_options_t;

static rabbet_status_t shape_options_read(const char* const texts[3],
                                          shape_options_t* out) {
  static const char* const names[SHAPES_COUNT] = {
      "--min-shapes", "--opt-shapes", "--max-shapes"};
  bool same = texts[SHAPES_MIN] == texts[SHAPES_OPT] &&
              texts[SHAPES_OPT] == texts[SHAPES_MAX];
  for (int which = 0; which < SHAPES_COUNT; ++which) {
    const char* text = texts[which];
    for (int i = SHAPES_OPT; !text && i < SHAPES_COUNT; ++i)
      text = texts[i];
    if (!text) text = texts[SHAPES_MIN];
    if (!text) continue;
    RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
        rabbet_shape_text_parse(text, &out->arena, &out->shapes[which],
                                &out->counts[which]),
        "%s", same ? "shapes" : names[which]));
  }
  return rabbet_ok();
}

static void shape_texts(const rabbet_arguments_t* arguments,
                        const char* out_texts[SHAPES_COUNT]) {
  const char* common = rabbet_argument(arguments, "--shapes");
  const char* typical = rabbet_argument(arguments, "--opt-shapes");
  out_texts[SHAPES_MIN] = rabbet_argument(arguments, "--min-shapes");
  out_texts[SHAPES_OPT] = typical;
  out_texts[SHAPES_MAX] = rabbet_argument(arguments, "--max-shapes");
  for (int i = 0; i < SHAPES_COUNT; ++i)
    if (!out_texts[i]) out_texts[i] = typical ? typical : common;
}

static const rabbet_dims_t* shape_options_find(const shape_options_t* options,
                                               int which, const char* name) {
  for (size_t i = 0; i < options->counts[which]; ++i) {
    if (rabbet_shape_text_matches(&options->shapes[which][i], name)) {
      return &options->shapes[which][i].dims;
    }
  }
  return NULL;
}

// Extents that the three shapes of an input share are known to the importer. A
// name with a * is none of an input yet.
static rabbet_status_t shape_options_fixed(const shape_options_t* options,
                                           rabbet_arena_t* arena,
                                           rabbet_onnx_options_t* onnx) {
  rabbet_onnx_input_t* inputs = NULL;
  rabbet_onnx_input_t* usual = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, options->counts[SHAPES_OPT], sizeof(*inputs), (void**)&inputs));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, options->counts[SHAPES_OPT], sizeof(*usual), (void**)&usual));
  for (size_t i = 0; i < options->counts[SHAPES_OPT]; ++i) {
    const rabbet_named_dims_t* given = &options->shapes[SHAPES_OPT][i];
    rabbet_dims_t dims = given->dims;
    bool found = given->quoted || !strchr(given->name, '*');
    if (found)
      usual[onnx->usual_count++] = (rabbet_onnx_input_t){given->name, dims};
    for (int which = 0; found && which < SHAPES_COUNT; ++which) {
      const rabbet_dims_t* other =
          shape_options_find(options, which, given->name);
      found = other && other->rank == dims.rank;
      for (int32_t axis = 0; found && axis < dims.rank; ++axis)
        if (other->d[axis] != dims.d[axis]) dims.d[axis] = -1;
    }
    if (found)
      inputs[onnx->input_count++] = (rabbet_onnx_input_t){given->name, dims};
  }
  onnx->inputs = inputs;
  onnx->usual_inputs = usual;
  onnx->input_size = sizeof(*inputs);
  return rabbet_ok();
}

static rabbet_status_t shapes_missing(const char* name,
                                      const rabbet_dims_t* dims) {
  char text[128];
  rabbet_strbuf_t example;
  rabbet_strbuf_initialize(rabbet_allocator_system(), &example);
  rabbet_shape_text_example(name, dims, &example);
  rabbet_status_t status = RABBET_STATUS(
      RABBET_STATUS_INVALID_ARGUMENT,
      "input '%s' has dynamic dimensions %s: say its sizes, e.g. --shapes %s, "
      "or --min-shapes, --opt-shapes, --max-shapes",
      name, rabbet_dims_print(dims, text, sizeof(text)),
      rabbet_strbuf_text(&example));
  rabbet_strbuf_deinitialize(&example);
  return status;
}

// Whether the sizes given for a shape input are its values. As in trtexec they
// are, unless they equal the input's own shape.
static rabbet_status_t profile_has_values(
    rabbet_tensor_t* input, const rabbet_dims_t* dims,
    const rabbet_dims_t* const ranges[SHAPES_COUNT], bool* out_values) {
  bool is_shape = false;
  int64_t count = 0;
  *out_values = false;
  if (!ranges[SHAPES_MIN] || !ranges[SHAPES_OPT] || !ranges[SHAPES_MAX])
    return rabbet_ok();
  for (int32_t i = 0; i < dims->rank; ++i)
    if (dims->d[i] < 0) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_tensor_is_shape_tensor(input, &is_shape));
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(dims, &count));
  *out_values = is_shape && (ranges[SHAPES_OPT]->rank == count ||
                             !rabbet_dims_equal(ranges[SHAPES_OPT], dims));
  return rabbet_ok();
}

static rabbet_status_t profile_values_of(
    const char* name, const rabbet_dims_t* dims,
    const rabbet_dims_t* const ranges[SHAPES_COUNT],
    rabbet_profile_t* profile) {
  int64_t count = 0;
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(dims, &count));
  for (int which = 0; which < SHAPES_COUNT; ++which)
    if (ranges[which]->rank != count)
      return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                           "'%s' is a shape input of %lld value%s, for which "
                           "%d are given; expected its values, such as %s:2x3",
                           name, (long long)count, rabbet_plural((size_t)count),
                           ranges[which]->rank, name);
  RABBET_RETURN_IF_ERROR(
      rabbet_profile_set_shape(profile, name, dims, dims, dims));
  return rabbet_profile_set_values(profile, name, ranges[SHAPES_MIN]->d,
                                   ranges[SHAPES_OPT]->d, ranges[SHAPES_MAX]->d,
                                   (size_t)count);
}

// Sizes for one input, where it is dynamic or sizes are given.
static rabbet_status_t profile_input(const shape_options_t* options,
                                     rabbet_tensor_t* input,
                                     rabbet_profile_t* profile, bool* used) {
  const char* name = rabbet_tensor_name(input);
  rabbet_dims_t dims;
  RABBET_RETURN_IF_ERROR(rabbet_tensor_dims(input, &dims));
  const rabbet_dims_t* ranges[SHAPES_COUNT];
  bool dynamic = false, values = false;
  for (int32_t i = 0; i < dims.rank; ++i)
    dynamic |= dims.d[i] < 0;
  for (int which = 0; which < SHAPES_COUNT; ++which)
    ranges[which] = shape_options_find(options, which, name);
  RABBET_RETURN_IF_ERROR(profile_has_values(input, &dims, ranges, &values));
  *used |= values;
  if (values) return profile_values_of(name, &dims, ranges, profile);
  for (int which = 0; which < SHAPES_COUNT; ++which) {
    // A shape given for an input of fixed sizes goes into the profile: the
    // build compares the two.
    *used |= dynamic || ranges[which];
    if (ranges[which]) continue;
    if (dynamic) return shapes_missing(name, &dims);
    ranges[which] = &dims;
  }
  return rabbet_profile_set_shape(profile, name, ranges[SHAPES_MIN],
                                  ranges[SHAPES_OPT], ranges[SHAPES_MAX]);
}

// Refuses names that no input has: they are misspelt.
static rabbet_status_t shape_options_check(const shape_options_t* options,
                                           const rabbet_network_t* network) {
  for (int which = 0; which < SHAPES_COUNT; ++which) {
    for (size_t i = 0; i < options->counts[which]; ++i) {
      bool found = false;
      for (size_t k = 0; k < rabbet_network_input_count(network); ++k) {
        found |= rabbet_shape_text_matches(
            &options->shapes[which][i],
            rabbet_tensor_name(rabbet_network_input(network, k)));
      }
      if (!found) {
        return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                             "shapes are given for '%s', but the model has no "
                             "such input",
                             options->shapes[which][i].name);
      }
    }
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_cli_add_profile(const char* const texts[3],
                                       rabbet_network_t* network,
                                       rabbet_builder_config_t* config) {
  shape_options_t options = {0};
  rabbet_arena_initialize(rabbet_allocator_system(), &options.arena);
  rabbet_profile_t* profile = NULL;
  bool used = false;
  rabbet_status_t status = shape_options_read(texts, &options);
  if (rabbet_is_ok(status)) {
    status = shape_options_check(&options, network);
  }
  if (rabbet_is_ok(status)) {
    status = rabbet_profile_create(rabbet_allocator_system(), &profile);
  }
  for (size_t i = 0;
       rabbet_is_ok(status) && i < rabbet_network_input_count(network); ++i) {
    status = profile_input(&options, rabbet_network_input(network, i), profile,
                           &used);
  }
  if (rabbet_is_ok(status) && used) {
    status = rabbet_builder_config_add_profile(config, profile);
  }
  rabbet_profile_release(profile);
  rabbet_arena_deinitialize(&options.arena);
  return status;
}

static rabbet_status_t build_profile(const rabbet_arguments_t* arguments,
                                     rabbet_network_t* network,
                                     rabbet_builder_config_t* config) {
  const char* texts[SHAPES_COUNT];
  if (rabbet_builder_config_profile_count(config) > 0) return rabbet_ok();
  shape_texts(arguments, texts);
  return rabbet_cli_add_profile(texts, network, config);
}

// ---- Timing cache ----------------------------------------------------------

static rabbet_status_t build_cache(const rabbet_arguments_t* arguments,
                                   rabbet_builder_config_t* config) {
  const char* path = rabbet_argument(arguments, "--timing-cache");
  if (!path) return rabbet_ok();
  rabbet_allocator_t allocator = rabbet_allocator_system();
  rabbet_timing_cache_t* cache = NULL;
  bool old =
      access(path, F_OK) == 0 && !rabbet_argument_flag(arguments, "--retime");
  rabbet_status_t status =
      old ? rabbet_timing_cache_load(path, allocator, &cache)
          : rabbet_timing_cache_create(NULL, 0, allocator, &cache);
  if (rabbet_is_ok(status)) {
    rabbet_builder_config_set_timing_cache(config, cache);
  }
  rabbet_timing_cache_release(cache);
  return status;
}

// The plan is there: times that cannot be kept are no reason to drop it.
static void build_save_cache(const rabbet_arguments_t* arguments,
                             const rabbet_builder_config_t* config) {
  const char* path = rabbet_argument(arguments, "--timing-cache");
  if (!path) return;
  rabbet_status_t status =
      rabbet_timing_cache_save(rabbet_builder_config_timing_cache(config), path,
                               rabbet_allocator_system());
  if (!rabbet_is_ok(status))
    rabbet_log(rabbet_cli_logger(arguments), RABBET_SEVERITY_WARNING, "%s",
               rabbet_status_message(status));
  rabbet_status_ignore(status);
}

// Finds before tuning, which may take hours, that a file cannot be written.
static rabbet_status_t build_check_folder(const char* path) {
  const char* name = path ? strrchr(path, '/') : NULL;
  char folder[PATH_MAX];
  if (!name || name - path >= PATH_MAX) return rabbet_ok();
  snprintf(folder, sizeof(folder), "%.*s/", (int)(name - path), path);
  return access(folder, F_OK) == 0
             ? rabbet_ok()
             : RABBET_STATUS(RABBET_STATUS_NOT_FOUND,
                             "cannot write '%s': there is no folder '%s'", path,
                             folder);
}

// ---- Progress --------------------------------------------------------------

typedef struct bar_t {
  char phase[64];
  int32_t steps;
  int depth;
} bar_t;

static void bar_draw(const bar_t* bar, int32_t step) {
  enum { WIDTH = 30 };
  int filled = bar->steps > 0 ? (int)((int64_t)step * WIDTH / bar->steps) : 0;
  if (filled > WIDTH) filled = WIDTH;
  fprintf(stderr, "\r%-24.24s [%.*s%*s] %d/%d ", bar->phase, filled,
          "##############################", WIDTH - filled, "", step,
          bar->steps);
}

static void bar_start(void* user_data, const char* phase, const char* parent,
                      int32_t steps) {
  (void)parent;
  bar_t* bar = user_data;
  snprintf(bar->phase, sizeof(bar->phase), "%s", phase);
  bar->steps = steps;
  ++bar->depth;
}

static bool bar_step(void* user_data, const char* phase, int32_t step) {
  bar_t* bar = user_data;
  if (strncmp(bar->phase, phase, sizeof(bar->phase) - 1) == 0) {
    bar_draw(bar, step + 1);
  }
  return true;
}

static void bar_end(void* user_data, const char* phase) {
  (void)phase;
  bar_t* bar = user_data;
  if (--bar->depth == 0) fprintf(stderr, "\r%72s\r", "");
}

// ---- Build -----------------------------------------------------------------

static rabbet_status_t build_keep_plugins(const rabbet_arguments_t* arguments,
                                          rabbet_builder_config_t* config) {
  const char* libraries[RABBET_CLI_MAX_VALUES];
  size_t count = 0, library_count = 0;
  const char* const* paths =
      rabbet_argument_list(arguments, "--plugins", &count);
  if (!rabbet_argument_flag(arguments, "--keep-plugins")) return rabbet_ok();
  for (size_t i = 0; i < count; ++i) {
    if (!rabbet_cli_is_python(paths[i])) libraries[library_count++] = paths[i];
  }
  RABBET_RETURN_IF_ERROR(rabbet_builder_config_set_plugin_libraries(
      config, libraries, library_count));
  return rabbet_builder_config_set(
      config, RABBET_BUILDER_OPTION_KEEP_PLUGIN_SOURCE, library_count < count);
}

static rabbet_status_t build_config(const rabbet_arguments_t* arguments,
                                    rabbet_builder_config_t* config) {
  int64_t threads = 0, level = 3, mebibytes = 0;
  RABBET_RETURN_IF_ERROR(rabbet_argument_int(arguments, "--threads", 1,
                                             RABBET_MAX_THREADS, 0, &threads));
  RABBET_RETURN_IF_ERROR(
      rabbet_argument_int(arguments, "--optimization-level", 0, 5, 3, &level));
  RABBET_RETURN_IF_ERROR(rabbet_argument_int(arguments, "--tactic-memory", 1,
                                             INT64_MAX >> 20, INT64_MAX >> 20,
                                             &mebibytes));
  int64_t flags =
      rabbet_builder_config_get(config, RABBET_BUILDER_OPTION_FLAGS);
  if (rabbet_argument_flag(arguments, "--fp16")) {
    flags |= 1 << RABBET_BUILDER_FP16;
  }
  if (rabbet_argument_flag(arguments, "--bf16")) {
    flags |= 1 << RABBET_BUILDER_BF16;
  }
  const struct {
    rabbet_builder_option_t option;
    int64_t value;
  } settings[] = {
      {RABBET_BUILDER_OPTION_FLAGS, flags},
      {RABBET_BUILDER_OPTION_OPTIMIZATION_LEVEL, level},
      {RABBET_BUILDER_OPTION_THREADS, threads},
      {RABBET_BUILDER_OPTION_TACTIC_MEMORY, mebibytes << 20},
      {RABBET_BUILDER_OPTION_PROFILING_VERBOSITY, RABBET_PROFILING_DETAILED},
      {RABBET_BUILDER_OPTION_TRY_PLUGINS,
       !rabbet_argument_flag(arguments, "--no-plugin-trial")},
  };
  for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); ++i) {
    RABBET_RETURN_IF_ERROR(rabbet_builder_config_set(config, settings[i].option,
                                                     settings[i].value));
  }
  rabbet_builder_config_set_logger(config, rabbet_cli_logger(arguments));
  RABBET_RETURN_IF_ERROR(rabbet_builder_config_set_device(
      config, rabbet_argument(arguments, "--device")));
  RABBET_RETURN_IF_ERROR(build_keep_plugins(arguments, config));
  return build_cache(arguments, config);
}

static rabbet_status_t build_import_file(rabbet_network_t* network,
                                         const char* path,
                                         const rabbet_onnx_options_t* options) {
  rabbet_status_t status =
      rabbet_onnx_import_file(network, path, options, NULL);
  switch (rabbet_status_code(status)) {
    // The error is the model's, not the command line's.
    case RABBET_STATUS_INVALID_ARGUMENT:
    case RABBET_STATUS_OUT_OF_RANGE:
      return rabbet_cli_recode(status, RABBET_STATUS_DATA_LOSS);
    default:
      return status;
  }
}

static rabbet_status_t build_import(const rabbet_arguments_t* arguments,
                                    const rabbet_build_wishes_t* wishes,
                                    const char* path,
                                    rabbet_network_t** out_network) {
  uint32_t flags = rabbet_argument_flag(arguments, "--strongly-typed")
                       ? RABBET_NETWORK_STRONGLY_TYPED
                       : 0;
  rabbet_onnx_options_t options = {
      .struct_size = sizeof(options),
      .plugin_override = wishes && wishes->plugin_override,
      .keep_double = rabbet_argument_flag(arguments, "--double")};
  RABBET_RETURN_IF_ERROR(rabbet_network_create(flags, rabbet_allocator_system(),
                                               rabbet_cli_logger(arguments),
                                               out_network));
  const char* texts[SHAPES_COUNT];
  shape_options_t shapes = {0};
  shape_texts(arguments, texts);
  rabbet_arena_initialize(rabbet_allocator_system(), &shapes.arena);
  rabbet_status_t status = shape_options_read(texts, &shapes);
  if (rabbet_is_ok(status))
    status = shape_options_fixed(&shapes, &shapes.arena, &options);
  if (rabbet_is_ok(status))
    status = build_import_file(*out_network, path, &options);
  rabbet_arena_deinitialize(&shapes.arena);
  return status;
}

static rabbet_status_t build_plan(rabbet_network_t* network,
                                  rabbet_builder_config_t* config,
                                  rabbet_cli_plan_t* plan,
                                  rabbet_build_report_t** out_report) {
  rabbet_allocator_t allocator = rabbet_allocator_system();
  if (plan->path)
    return rabbet_build_plan_file(network, config, plan->path, allocator,
                                  &plan->size, out_report);
  RABBET_RETURN_IF_ERROR(rabbet_build_plan_mapped(network, config, allocator,
                                                  &plan->map, out_report));
  plan->size = rabbet_file_map_size(plan->map);
  return rabbet_ok();
}

rabbet_status_t rabbet_cli_build(const rabbet_arguments_t* arguments,
                                 const rabbet_build_wishes_t* wishes,
                                 const char* model_path,
                                 rabbet_cli_plan_t* plan,
                                 rabbet_build_report_t** out_report) {
  rabbet_network_t* network = NULL;
  rabbet_builder_config_t* config = NULL;
  bar_t bar = {0};
  RABBET_RETURN_IF_ERROR(build_check_folder(plan->path));
  RABBET_RETURN_IF_ERROR(
      build_check_folder(rabbet_argument(arguments, "--timing-cache")));
  rabbet_status_t status =
      build_import(arguments, wishes, model_path, &network);
  if (rabbet_is_ok(status)) {
    status = rabbet_builder_config_create(rabbet_allocator_system(), &config);
  }
  if (rabbet_is_ok(status)) status = build_config(arguments, config);
  if (rabbet_is_ok(status) && wishes)
    status = wishes->adjust(wishes->self, network, config);
  if (rabbet_is_ok(status)) {
    status = build_profile(arguments, network, config);
  }
  if (rabbet_is_ok(status)) {
    if (isatty(STDERR_FILENO)) {
      rabbet_builder_config_set_progress(
          config, (rabbet_progress_t){.user_data = &bar,
                                      .phase_start = bar_start,
                                      .step = bar_step,
                                      .phase_end = bar_end});
    }
    status = build_plan(network, config, plan, out_report);
  }
  if (rabbet_is_ok(status)) build_save_cache(arguments, config);
  rabbet_builder_config_release(config);
  rabbet_network_release(network);
  return status;
}

// ---- The command -----------------------------------------------------------

static rabbet_status_t build_output_path(const rabbet_arguments_t* arguments,
                                         rabbet_arena_t* arena,
                                         const char** out_path) {
  const char* given = rabbet_argument(arguments, "--output");
  if (given) {
    *out_path = given;
    return rabbet_ok();
  }
  const char* model = arguments->operands[0];
  size_t size = strlen(model);
  if (size > 5 && strcmp(model + size - 5, ".onnx") == 0) size -= 5;
  return rabbet_arena_printf(arena, out_path, "%.*s.plan", (int)size, model);
}

static void build_print(const rabbet_arguments_t* arguments,
                        const rabbet_cli_plan_t* plan,
                        rabbet_build_report_t* report) {
  bool quiet = rabbet_argument_flag(arguments, "--quiet");
  if (!quiet)
    rabbet_cli_print(stderr, "wrote %s, %.1f MB\n", plan->path,
                     (double)plan->size / 1e6);
  if (rabbet_argument_flag(arguments, "--json"))
    printf("%s\n", rabbet_build_report_json(report));
  else if (!quiet)
    printf("%s", rabbet_build_report_text(report));
}

static bool build_is_split(const rabbet_arguments_t* arguments) {
  return rabbet_argument(arguments, "--ranks") ||
         rabbet_argument(arguments, "--cuts") ||
         rabbet_argument_flag(arguments, "--pipeline");
}

static rabbet_status_t build_run(const rabbet_arguments_t* arguments) {
  if (rabbet_argument(arguments, "--for") || build_is_split(arguments))
    return rabbet_cli_run_in_python("build", arguments);
  RABBET_RETURN_IF_ERROR(rabbet_cli_load_plugins(arguments));
  rabbet_cli_plan_t plan = {0};
  rabbet_build_report_t* report = NULL;
  rabbet_arena_t arena;
  rabbet_arena_initialize(rabbet_allocator_system(), &arena);
  rabbet_status_t status = build_output_path(arguments, &arena, &plan.path);
  if (rabbet_is_ok(status))
    status = rabbet_cli_build(arguments, NULL, arguments->operands[0], &plan,
                              &report);
  if (rabbet_is_ok(status)) {
    build_print(arguments, &plan, report);
    rabbet_build_report_destroy(report);
  }
  rabbet_arena_deinitialize(&arena);
  return status;
}

static const rabbet_option_t build_options[] = {
    {"--output", RABBET_OPTION_VALUE, "FILE",
     "the plan (-o; default: MODEL.plan)"},
    {"--for", RABBET_OPTION_LIST, "KIND,..",
     "a folder of plans (-o; default: MODEL.plans), one for each kind of "
     "machine: cpu, cuda, avx2, avx512_core, sm_90, .."},
    {"--ranks", RABBET_OPTION_VALUE, "N",
     "split the model over N GPUs: plans FILE.0 to FILE.(N-1)"},
    {"--pipeline", RABBET_OPTION_FLAG, NULL,
     "with --ranks: each has a stage of layers (default: parts of each layer)"},
    {"--cuts", RABBET_OPTION_LIST, "NAME,..",
     "with --pipeline: tensors at which stages end, NAME+NAME where several "
     "cross (default: chosen)"},
    RABBET_BUILD_OPTIONS,
    {"--json", RABBET_OPTION_FLAG, NULL, "print the report as JSON"},
    {"--quiet", RABBET_OPTION_FLAG, NULL, "print nothing"},
};

const rabbet_command_t rabbet_command_build = {
    .name = "build",
    .operands = "MODEL.onnx",
    .summary = "tune a model for this machine and write a plan",
    .notes =
        "A Python file given to --plugins is imported by $RABBET_PYTHON "
        "(default: the python3\nbeside this command, or on PATH), which needs "
        "the package rabbet. --for and --ranks run there, too. All else needs "
        "no Python.\n",
    .options = build_options,
    .option_count = sizeof(build_options) / sizeof(build_options[0]),
    .min_operands = 1,
    .max_operands = 1,
    .run = build_run,
};
