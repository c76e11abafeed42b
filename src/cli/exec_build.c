// Flags of `rabbet exec` that concern the build and refitting.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/build.h"
#include "cli/exec.h"

// ---- Lists: "A:b+c,D:e"

typedef rabbet_status_t (*exec_item_fn_t)(void* context, char* name,
                                          char* value);

// Calls `fn` for each item, with value NULL where there is no colon. Names may
// be in single quotes, and then hold colons and commas.
static rabbet_status_t exec_each(const rabbet_exec_t* exec, const char* flag,
                                 exec_item_fn_t fn, void* context) {
  const char* given = rabbet_exec_flag(exec, flag);
  const char* copy = NULL;
  if (!given) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_arena_strdup(
      (rabbet_arena_t*)(uintptr_t)&exec->arena, given, &copy));
  char* at = (char*)(uintptr_t)copy;
  while (at && *at) {
    bool quoted = *at == '\'';
    char* name = at + quoted;
    char* end = quoted ? strchr(name, '\'') : name + strcspn(name, ":,");
    if (!end)
      return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                           "%s=%s: a quote is not closed", flag, given);
    char* rest = end + quoted;
    char* value = *rest == ':' ? rest + 1 : NULL;
    char* comma = strchr(value ? value : rest, ',');
    *end = '\0';
    if (comma) *comma = '\0';
    RABBET_RETURN_IF_ERROR(
        RABBET_ANNOTATE(fn(context, name, value), "%s=%s", flag, given));
    at = comma ? comma + 1 : NULL;
  }
  return rabbet_ok();
}

// One '*' stands for any text.
static bool exec_matches(const char* pattern, const char* name) {
  const char* star = strchr(pattern, '*');
  if (!star) return strcmp(pattern, name) == 0;
  size_t before = (size_t)(star - pattern), after = strlen(star + 1);
  size_t size = strlen(name);
  return size >= before + after && memcmp(pattern, name, before) == 0 &&
         memcmp(star + 1, name + size - after, after) == 0;
}

// ---- Numbers and flags of the configuration

static rabbet_status_t exec_option(const rabbet_exec_t* exec, const char* flag,
                                   double low, double high,
                                   rabbet_builder_option_t option,
                                   rabbet_builder_config_t* config) {
  double value = 0;
  if (!rabbet_exec_flag(exec, flag)) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_exec_number(exec, flag, low, high, 0, &value));
  return rabbet_builder_config_set(config, option, (int64_t)value);
}

static rabbet_status_t exec_pool(void* context, char* name, char* value) {
  static const char units[] = "BKMG";
  char* end = NULL;
  double size = value ? strtod(value, &end) : -1;
  bool is_workspace = strcmp(name, "workspace") == 0;
  if (!is_workspace && strcmp(name, "tacticDram") != 0)
    return RABBET_STATUS(
        RABBET_STATUS_INVALID_ARGUMENT,
        "pool '%s' does not exist; expected workspace or tacticDram", name);
  // Without a unit: MiB.
  const char* unit = end && *end ? strchr(units, *end) : units + 2;
  if (!value || end == value || !(size >= 0) || !unit || (*end && end[1]))
    return RABBET_STATUS(
        RABBET_STATUS_INVALID_ARGUMENT,
        "'%s' is not a size: expected a number and B, K, M or G",
        value ? value : "");
  for (const char* at = units; at < unit; ++at)
    size *= 1024;
  return rabbet_builder_config_set(context,
                                   is_workspace
                                       ? RABBET_BUILDER_OPTION_WORKSPACE_LIMIT
                                       : RABBET_BUILDER_OPTION_TACTIC_MEMORY,
                                   (int64_t)size);
}

static rabbet_status_t exec_verbosity(const rabbet_exec_t* exec,
                                      rabbet_builder_config_t* config) {
  static const struct {
    const char* name;
    rabbet_profiling_verbosity_t value;
  } known[] = {{"layer_names_only", RABBET_PROFILING_LAYER_NAMES_ONLY},
               {"default", RABBET_PROFILING_LAYER_NAMES_ONLY},
               {"detailed", RABBET_PROFILING_DETAILED},
               {"verbose", RABBET_PROFILING_DETAILED},
               {"none", RABBET_PROFILING_NONE}};
  const char* text = rabbet_exec_flag(exec, "--profilingVerbosity");
  for (size_t i = 0; text && i < sizeof(known) / sizeof(known[0]); ++i)
    if (strcmp(known[i].name, text) == 0)
      return rabbet_builder_config_set(
          config, RABBET_BUILDER_OPTION_PROFILING_VERBOSITY, known[i].value);
  if (text)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "--profilingVerbosity=%s: expected layer_names_only, "
                         "detailed or none",
                         text);
  return rabbet_ok();
}

static rabbet_status_t exec_flags_of(const rabbet_exec_t* exec,
                                     rabbet_builder_config_t* config) {
  static const struct {
    const char* name;
    int64_t set, clear;
  } known[] = {
      {"--refit", 1 << RABBET_BUILDER_REFIT, 0},
      {"--stripWeights", 1 << RABBET_BUILDER_STRIP_PLAN, 0},
      {"--weightless", 1 << RABBET_BUILDER_STRIP_PLAN, 0},
      {"--stripAllWeights",
       1 << RABBET_BUILDER_STRIP_PLAN | 1 << RABBET_BUILDER_REFIT, 0},
      {"--noTF32", 0, 1 << RABBET_BUILDER_TF32},
      {"--int8", 1 << RABBET_BUILDER_INT8, 0},
      {"--best", 1 << RABBET_BUILDER_INT8, 0},
  };
  int64_t flags =
      rabbet_builder_config_get(config, RABBET_BUILDER_OPTION_FLAGS);
  for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); ++i)
    if (rabbet_exec_flag(exec, known[i].name))
      flags = (flags | known[i].set) & ~known[i].clear;
  RABBET_RETURN_IF_ERROR(
      rabbet_builder_config_set(config, RABBET_BUILDER_OPTION_FLAGS, flags));
  return rabbet_builder_config_set(
      config, RABBET_BUILDER_OPTION_ERROR_ON_TIMING_CACHE_MISS,
      rabbet_exec_flag(exec, "--errorOnTimingCacheMiss") != NULL);
}

// "+CUDNN", "-CUBLAS": sources that are not named keep their setting.
static rabbet_status_t exec_source(void* context, char* name, char* value) {
  static const char* const names[] = {
      [RABBET_TACTIC_CUBLAS] = "CUBLAS",
      [RABBET_TACTIC_CUBLAS_LT] = "CUBLAS_LT",
      [RABBET_TACTIC_CUDNN] = "CUDNN",
      [RABBET_TACTIC_EDGE_MASK_CONVOLUTIONS] = "EDGE_MASK_CONVOLUTIONS",
      [RABBET_TACTIC_JIT_CONVOLUTIONS] = "JIT_CONVOLUTIONS",
  };
  int64_t bits =
      rabbet_builder_config_get(context, RABBET_BUILDER_OPTION_TACTIC_SOURCES);
  for (size_t i = 0; !value && i < sizeof(names) / sizeof(names[0]); ++i) {
    int64_t bit = (int64_t)1 << i;
    if ((*name != '+' && *name != '-') || strcmp(name + 1, names[i]) != 0)
      continue;
    return rabbet_builder_config_set(context,
                                     RABBET_BUILDER_OPTION_TACTIC_SOURCES,
                                     *name == '+' ? bits | bit : bits & ~bit);
  }
  return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                       "'%s': expected + or - and CUBLAS, CUBLAS_LT, CUDNN, "
                       "EDGE_MASK_CONVOLUTIONS or JIT_CONVOLUTIONS",
                       name);
}

// ---- The network

typedef struct exec_layers_t {
  rabbet_network_t* network;
  bool outputs;  // types of outputs, not precisions
} exec_layers_t;

static rabbet_status_t exec_layer(const exec_layers_t* layers,
                                  rabbet_layer_t* layer, const char* types) {
  char text[32];
  size_t count = rabbet_layer_output_count(layer);
  for (size_t i = 0; *types; ++i) {
    size_t size = strcspn(types, "+");
    rabbet_dtype_t dtype = RABBET_DTYPE_NONE;
    snprintf(text, sizeof(text), "%.*s", (int)(size < 31 ? size : 31), types);
    RABBET_RETURN_IF_ERROR(rabbet_dtype_parse(text, &dtype));
    if (!layers->outputs) return rabbet_layer_set_precision(layer, dtype);
    if (i >= count)
      return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                           "layer '%s' has %zu outputs",
                           rabbet_layer_name(layer), count);
    RABBET_RETURN_IF_ERROR(
        rabbet_tensor_set_dtype(rabbet_layer_output(layer, i), dtype));
    types += size + (types[size] == '+');
  }
  return rabbet_ok();
}

static rabbet_status_t exec_types(void* context, char* name, char* value) {
  const exec_layers_t* layers = context;
  bool found = false;
  if (!value)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "'%s' needs a type, as in %s:fp16", name, name);
  for (size_t i = 0; i < rabbet_network_layer_count(layers->network); ++i) {
    rabbet_layer_t* layer = rabbet_network_layer(layers->network, i);
    if (!exec_matches(name, rabbet_layer_name(layer))) continue;
    found = true;
    RABBET_RETURN_IF_ERROR(exec_layer(layers, layer, value));
  }
  return found ? rabbet_ok()
               : RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                               "the model has no layer '%s'", name);
}

static rabbet_status_t exec_debug(void* context, char* name, char* value) {
  rabbet_tensor_t* tensor = rabbet_network_find_tensor(context, name);
  (void)value;
  if (!tensor)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "the model has no tensor '%s'", name);
  return rabbet_tensor_set_debug(tensor, true);
}

typedef struct exec_ios_t {
  rabbet_network_t* network;
  bool inputs;
  size_t next;
} exec_ios_t;

static rabbet_status_t exec_format(char* text, rabbet_format_t* out_format) {
  if (strcmp(text, "chw") == 0) {
    *out_format = RABBET_FORMAT_LINEAR;
    return rabbet_ok();
  }
  return rabbet_format_parse(text, out_format);
}

// "fp16" : "chw+hwc8", for the next input or output.
static rabbet_status_t exec_io(void* context, char* name, char* value) {
  exec_ios_t* ios = context;
  rabbet_tensor_t* tensor =
      ios->inputs ? rabbet_network_input(ios->network, ios->next)
                  : rabbet_network_output(ios->network, ios->next);
  rabbet_dtype_t dtype = RABBET_DTYPE_NONE;
  uint64_t formats = 0;
  if (!tensor)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "the model has only %zu %s", ios->next,
                         ios->inputs ? "inputs" : "outputs");
  ++ios->next;
  RABBET_RETURN_IF_ERROR(rabbet_dtype_parse(name, &dtype));
  RABBET_RETURN_IF_ERROR(rabbet_tensor_set_dtype(tensor, dtype));
  for (char* at = value; at && *at;) {
    rabbet_format_t format = RABBET_FORMAT_NONE;
    char* plus = strchr(at, '+');
    if (plus) *plus = '\0';
    RABBET_RETURN_IF_ERROR(exec_format(at, &format));
    formats |= (uint64_t)1 << format;
    at = plus ? plus + 1 : NULL;
  }
  return formats ? rabbet_tensor_set_allowed_formats(tensor, formats)
                 : rabbet_ok();
}

static rabbet_status_t exec_network(const rabbet_exec_t* exec,
                                    rabbet_network_t* network) {
  exec_layers_t precisions = {network, false}, types = {network, true};
  exec_ios_t inputs = {network, true, 0}, outputs = {network, false, 0};
  RABBET_RETURN_IF_ERROR(
      exec_each(exec, "--layerPrecisions", exec_types, &precisions));
  RABBET_RETURN_IF_ERROR(
      exec_each(exec, "--layerOutputTypes", exec_types, &types));
  RABBET_RETURN_IF_ERROR(exec_each(exec, "--inputIOFormats", exec_io, &inputs));
  RABBET_RETURN_IF_ERROR(
      exec_each(exec, "--outputIOFormats", exec_io, &outputs));
  rabbet_network_set_unfused_debug(
      network,
      rabbet_exec_flag(exec, "--markUnfusedTensorsAsDebugTensors") != NULL);
  return exec_each(exec, "--markDebug", exec_debug, network);
}

static rabbet_status_t exec_libraries(const rabbet_exec_t* exec,
                                      rabbet_builder_config_t* config) {
  const char* paths[RABBET_CLI_MAX_VALUES];
  size_t count = rabbet_exec_flag_list(exec, "--setPluginsToSerialize", paths,
                                       RABBET_CLI_MAX_VALUES);
  return rabbet_builder_config_set_plugin_libraries(config, paths, count);
}

rabbet_status_t rabbet_exec_adjust(void* self, rabbet_network_t* network,
                                   rabbet_builder_config_t* config) {
  const rabbet_exec_t* exec = self;
  const char* common = rabbet_exec_flag(exec, "--shapes");
  const char* const texts[] = {common, common, common};
  RABBET_RETURN_IF_ERROR(exec_option(exec, "--avgTiming", 1, 1000,
                                     RABBET_BUILDER_OPTION_AVG_TIMING, config));
  RABBET_RETURN_IF_ERROR(exec_option(exec, "--maxTactics", -1, INT32_MAX,
                                     RABBET_BUILDER_OPTION_MAX_TACTICS,
                                     config));
  RABBET_RETURN_IF_ERROR(exec_each(exec, "--memPoolSize", exec_pool, config));
  RABBET_RETURN_IF_ERROR(
      exec_each(exec, "--tacticSources", exec_source, config));
  RABBET_RETURN_IF_ERROR(exec_verbosity(exec, config));
  RABBET_RETURN_IF_ERROR(exec_flags_of(exec, config));
  RABBET_RETURN_IF_ERROR(exec_network(exec, network));
  RABBET_RETURN_IF_ERROR(rabbet_exec_calibrate(exec, network));
  RABBET_RETURN_IF_ERROR(exec_libraries(exec, config));
  for (size_t i = 0; i < exec->profile_count; ++i)
    RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
        rabbet_cli_add_profile(exec->shapes[i], network, config), "profile %zu",
        i));
  if (exec->profile_count > 0 || !common) return rabbet_ok();
  return rabbet_cli_add_profile(texts, network, config);
}

// ---- Refitting

static rabbet_status_t exec_refit_from(rabbet_refitter_t* refitter,
                                       const rabbet_network_t* network) {
  for (size_t i = 0; i < rabbet_refitter_count(refitter); ++i) {
    rabbet_refit_info_t info = {.struct_size = sizeof(info)};
    rabbet_weights_t weights = {0};
    RABBET_RETURN_IF_ERROR(rabbet_refitter_info(refitter, i, &info));
    rabbet_tensor_t* tensor = rabbet_network_find_tensor(network, info.name);
    if (!tensor || !rabbet_tensor_weights(tensor, &weights))
      return RABBET_STATUS(
          RABBET_STATUS_INVALID_ARGUMENT,
          "the model has no weights '%s', which the plan needs", info.name);
    RABBET_RETURN_IF_ERROR(rabbet_refitter_set(refitter, i, weights));
  }
  return rabbet_refitter_commit(refitter);
}

rabbet_status_t rabbet_exec_refit(const rabbet_exec_t* exec,
                                  rabbet_engine_t* engine) {
  rabbet_allocator_t allocator = rabbet_allocator_system();
  const char* path = rabbet_exec_flag(exec, "--refitFromOnnx");
  rabbet_network_t* network = NULL;
  rabbet_refitter_t* refitter = NULL;
  if (!path) path = rabbet_exec_flag(exec, "--onnx");
  if (!path)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "weights come from --refitFromOnnx=MODEL.onnx");
  RABBET_RETURN_IF_ERROR(rabbet_network_create(
      0, allocator, rabbet_cli_logger(&exec->inner), &network));
  rabbet_status_t status = rabbet_onnx_import_file(network, path, NULL, NULL);
  if (rabbet_is_ok(status))
    status = rabbet_refitter_create(engine, allocator, &refitter);
  if (rabbet_is_ok(status)) status = exec_refit_from(refitter, network);
  rabbet_refitter_destroy(refitter);
  rabbet_network_release(network);
  return RABBET_ANNOTATE(status, "refitting from '%s'", path);
}
