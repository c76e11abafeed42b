// The flags of `rabbet exec`.
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/suggest.h"
#include "cli/exec.h"

typedef enum exec_kind_t { EXEC_FLAG, EXEC_VALUE, EXEC_LIST } exec_kind_t;
typedef enum exec_effect_t {
  EXEC_WORKS,
  EXEC_IDLE,
  EXEC_REFUSED
} exec_effect_t;

typedef struct exec_flag_t {
  const char* name;
  exec_kind_t kind;
  exec_effect_t effect;
  const char* text;
} exec_flag_t;

#define RABBET_EXEC_FLAG(name, kind, effect, text) \
  {name, EXEC_##kind, EXEC_##effect, text},
static const exec_flag_t exec_flags[] = {
#include "cli/exec_flags.def"
};
#undef RABBET_EXEC_FLAG
enum { EXEC_COUNT = sizeof(exec_flags) / sizeof(exec_flags[0]) };

void rabbet_exec_log(char severity, const char* format, ...) {
  char when[32];
  time_t now = time(NULL);
  struct tm local;
  localtime_r(&now, &local);
  strftime(when, sizeof(when), "%m/%d/%Y-%H:%M:%S", &local);
  printf("[%s] [%c] ", when, severity);
  va_list arguments;
  va_start(arguments, format);
  rabbet_cli_print_v(stdout, format, arguments);
  va_end(arguments);
  printf("\n");
}

void rabbet_exec_help(void) {
  printf(
      "usage: rabbet exec --onnx=MODEL.onnx | --loadEngine=PLAN [FLAG ...]\n\n"
      "builds and times a model with the flags of trtexec\n");
  static const char* const heads[] = {"\nflags:\n", "\nwithout effect:\n",
                                      "\nrefused:\n"};
  for (int effect = EXEC_WORKS; effect <= EXEC_REFUSED; ++effect) {
    printf("%s", heads[effect]);
    for (int i = 0; i < EXEC_COUNT; ++i)
      if ((int)exec_flags[i].effect == effect)
        printf("  %-36s %s\n", exec_flags[i].name, exec_flags[i].text);
  }
}

bool rabbet_exec_flag_at(size_t index, rabbet_option_t* out_option) {
  // Flags without effect are accepted, not recommended.
  size_t i = 0;
  for (; i < EXEC_COUNT; ++i)
    if (exec_flags[i].effect == EXEC_WORKS && index-- == 0) break;
  if (i == EXEC_COUNT) return false;
  const exec_flag_t* flag = &exec_flags[i];
  *out_option =
      (rabbet_option_t){.name = flag->name,
                        .kind = flag->kind == EXEC_FLAG   ? RABBET_OPTION_FLAG
                                : flag->kind == EXEC_LIST ? RABBET_OPTION_LIST
                                                          : RABBET_OPTION_VALUE,
                        .value = flag->kind == EXEC_FLAG ? NULL : flag->text,
                        .help = flag->text};
  return true;
}

// ---- Looking

static const char* exec_flag_value(const char* text, const char* name) {
  size_t size = strlen(name);
  if (strncmp(text, name, size) != 0) return NULL;
  if (text[size] == '=') return text + size + 1;
  return text[size] == '\0' ? "" : NULL;
}

const char* rabbet_exec_flag(const rabbet_exec_t* exec, const char* name) {
  for (int i = exec->argc; i-- > 0;) {
    const char* value = exec_flag_value(exec->argv[i], name);
    if (value) return value;
  }
  return NULL;
}

size_t rabbet_exec_flag_list(const rabbet_exec_t* exec, const char* name,
                             const char** values, size_t capacity) {
  size_t count = 0;
  for (int i = 0; i < exec->argc && count < capacity; ++i) {
    const char* value = exec_flag_value(exec->argv[i], name);
    if (value) values[count++] = value;
  }
  return count;
}

rabbet_status_t rabbet_exec_number(const rabbet_exec_t* exec, const char* name,
                                   double low, double high, double fallback,
                                   double* out_value) {
  const char* text = rabbet_exec_flag(exec, name);
  char* end = NULL;
  *out_value = fallback;
  if (!text) return rabbet_ok();
  double value = strtod(text, &end);
  if (end == text || *end || !(value >= low && value <= high))
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "%s: '%s' is not a number from %g to %g", name, text,
                         low, high);
  *out_value = value;
  return rabbet_ok();
}

// ---- Checking

static const char* exec_name_at(const void* list, size_t index) {
  (void)list;
  return exec_flags[index].name;
}

static rabbet_status_t exec_find(const char* text, const exec_flag_t** out) {
  size_t size = strcspn(text, "=");
  for (int i = 0; i < EXEC_COUNT; ++i) {
    *out = &exec_flags[i];
    if (strlen((*out)->name) == size && memcmp((*out)->name, text, size) == 0)
      return rabbet_ok();
  }
  char near_names[160];
  return RABBET_STATUS(
      RABBET_STATUS_INVALID_ARGUMENT, "there is no flag '%.*s'%s", (int)size,
      text,
      rabbet_suggest_print(text, exec_name_at, NULL, EXEC_COUNT, near_names,
                           sizeof(near_names)));
}

static rabbet_status_t exec_check(const char* text) {
  const exec_flag_t* flag = NULL;
  RABBET_RETURN_IF_ERROR(exec_find(text, &flag));
  bool has_value = strchr(text, '=') != NULL;
  if (has_value != (flag->kind != EXEC_FLAG))
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         has_value ? "%s takes no value" : "%s needs a value",
                         flag->name);
  if (flag->effect == EXEC_REFUSED)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED, "%s: %s", flag->name,
                         flag->text);
  if (flag->effect == EXEC_IDLE && !rabbet_cli_is_in_python())
    rabbet_exec_log('W', "%s has no effect: %s", flag->name, flag->text);
  return rabbet_ok();
}

// ---- Shapes, which belong to the profile named before them

static rabbet_status_t exec_join(rabbet_exec_t* exec, const char** shapes,
                                 const char* more) {
  if (!*shapes) {
    *shapes = more;
    return rabbet_ok();
  }
  return rabbet_arena_printf(&exec->arena, shapes, "%s,%s", *shapes, more);
}

static rabbet_status_t exec_profile(rabbet_exec_t* exec, const char* text,
                                    size_t* out_profile) {
  char* end = NULL;
  long index = strtol(text, &end, 10);
  if (end == text || *end || index < 0 || index >= RABBET_EXEC_MAX_PROFILES ||
      (size_t)index > exec->profile_count)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "--profile=%s: expected 0 to %zu (profiles follow one "
                         "another, and there are at most %d)",
                         text, exec->profile_count, RABBET_EXEC_MAX_PROFILES);
  *out_profile = (size_t)index;
  return rabbet_ok();
}

static rabbet_status_t exec_shapes(rabbet_exec_t* exec) {
  static const char* const names[RABBET_EXEC_RANGES] = {
      "--minShapes", "--optShapes", "--maxShapes"};
  size_t profile = 0;
  for (int i = 0; i < exec->argc; ++i) {
    const char* number = exec_flag_value(exec->argv[i], "--profile");
    if (number) RABBET_RETURN_IF_ERROR(exec_profile(exec, number, &profile));
    for (int k = 0; k < RABBET_EXEC_RANGES; ++k) {
      const char* text = exec_flag_value(exec->argv[i], names[k]);
      if (!text) continue;
      RABBET_RETURN_IF_ERROR(exec_join(exec, &exec->shapes[profile][k], text));
      if (exec->profile_count <= profile) exec->profile_count = profile + 1;
    }
  }
  return rabbet_ok();
}

// ---- The same for the other commands

typedef struct exec_line_t {
  rabbet_exec_t* exec;
  char* arguments[64];
  int count;
  rabbet_status_t status;
} exec_line_t;

static void exec_add(exec_line_t* line, const char* name, const char* value) {
  const char* text = NULL;
  if (!rabbet_is_ok(line->status) || !value) return;
  if (line->count == 64) {
    line->status = RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                                 "too many flags; the last was %s", name);
    return;
  }
  line->status =
      *value
          ? rabbet_arena_printf(&line->exec->arena, &text, "%s=%s", name, value)
          : rabbet_arena_printf(&line->exec->arena, &text, "%s", name);
  line->arguments[line->count++] = (char*)(uintptr_t)text;
}

static void exec_add_flag(exec_line_t* line, const char* name,
                          const char* flag) {
  exec_add(line, name, rabbet_exec_flag(line->exec, flag) ? "" : NULL);
}

static void exec_add_device(exec_line_t* line) {
  const char* text = NULL;
  const char* number = rabbet_exec_flag(line->exec, "--device");
  if (!number || !rabbet_is_ok(line->status)) return;
  // trtexec's 0 is the default everywhere.
  if (strcmp(number, "0") == 0) return;
  line->status =
      rabbet_arena_printf(&line->exec->arena, &text, "cuda:%s", number);
  if (rabbet_is_ok(line->status)) exec_add(line, "--device", text);
}

static bool exec_has_plugin(const rabbet_exec_t* exec, const char* const* flags,
                            size_t count, const char* path) {
  for (int i = 0; i < exec->argc; ++i)
    for (size_t k = 0; k < count; ++k) {
      const char* value = exec_flag_value(exec->argv[i], flags[k]);
      if (value && strcmp(value, path) == 0) return true;
    }
  return false;
}

static rabbet_status_t exec_translate(rabbet_exec_t* exec) {
  static const char* const plugins[] = {"--staticPlugins", "--plugins",
                                        "--dynamicPlugins"};
  exec_line_t line = {.exec = exec};
  const char* model = rabbet_exec_flag(exec, "--onnx");
  const char* plan = rabbet_exec_flag(exec, "--loadEngine");
  if (!model == !plan)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "give either --onnx=MODEL.onnx or --loadEngine=PLAN");
  line.arguments[line.count++] = (char*)(uintptr_t)(model ? model : plan);
  exec_add_flag(&line, "--fp16", "--fp16");
  exec_add_flag(&line, "--bf16", "--bf16");
  exec_add_flag(&line, "--fp16", "--best");
  exec_add_flag(&line, "--bf16", "--best");
  exec_add_flag(&line, "--strongly-typed", "--stronglyTyped");
  exec_add_flag(&line, "--verbose", "--verbose");
  exec_add_flag(&line, "--retime", "--noBuilderCache");
  exec_add(&line, "--optimization-level",
           rabbet_exec_flag(exec, "--builderOptimizationLevel"));
  exec_add(&line, "--timing-cache",
           rabbet_exec_flag(exec, "--timingCacheFile"));
  exec_add(&line, "--profile-index", rabbet_exec_flag(exec, "--useProfile"));
  exec_add_device(&line);
  for (int i = 0; i < exec->argc; ++i)
    for (int k = 0; k < 3; ++k)
      exec_add(&line, "--plugins", exec_flag_value(exec->argv[i], plugins[k]));
  for (int i = 0; i < exec->argc; ++i) {
    const char* path =
        exec_flag_value(exec->argv[i], "--setPluginsToSerialize");
    if (path && !exec_has_plugin(exec, plugins, 3, path))
      exec_add(&line, "--plugins", path);
  }
  exec_add_flag(&line, "--allow-host-code", "--allowHostCode");
  RABBET_RETURN_IF_ERROR(line.status);
  return rabbet_arguments_parse(&rabbet_command_bench, line.count,
                                line.arguments, &exec->inner);
}

rabbet_status_t rabbet_exec_parse(int argc, char** argv, rabbet_exec_t* exec) {
  exec->argc = argc;
  exec->argv = argv;
  for (int i = 0; i < argc; ++i)
    RABBET_RETURN_IF_ERROR(exec_check(argv[i]));
  RABBET_RETURN_IF_ERROR(exec_shapes(exec));
  return exec_translate(exec);
}
