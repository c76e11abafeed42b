// `rabbet exec`: builds, loads and times as trtexec does.
#include "cli/exec.h"

#include <string.h>

#include "base/file.h"
#include "base/thread.h"
#include "cli/build.h"
#include "runtime/share.h"

static double exec_seconds(int64_t start) {
  return (double)(rabbet_time_ns() - start) / 1e9;
}

// ---- The plan

static rabbet_status_t exec_save(const rabbet_exec_t* exec,
                                 const rabbet_file_map_t* plan) {
  const char* path = rabbet_exec_flag(exec, "--saveEngine");
  rabbet_span_t part = {rabbet_file_map_data(plan), rabbet_file_map_size(plan)};
  return path ? rabbet_file_write(path, &part, 1) : rabbet_ok();
}

static rabbet_status_t exec_build(rabbet_exec_t* exec,
                                  rabbet_file_map_t** out_plan) {
  rabbet_cli_plan_t plan = {0};
  rabbet_build_wishes_t wishes = {
      .self = exec,
      .adjust = rabbet_exec_adjust,
      .plugin_override =
          rabbet_exec_flag(exec, "--enablePluginOverride") != NULL};
  int64_t start = rabbet_time_ns();
  RABBET_RETURN_IF_ERROR(rabbet_cli_build(
      &exec->inner, &wishes, exec->inner.operands[0], &plan, NULL));
  rabbet_exec_log('I', "Engine built in %g sec.", exec_seconds(start));
  rabbet_exec_log('I', "Created engine with size: %g MiB",
                  (double)plan.size / 1048576);
  rabbet_status_t status = exec_save(exec, plan.map);
  if (rabbet_is_ok(status))
    *out_plan = plan.map;
  else
    rabbet_file_map_release(plan.map);
  return status;
}

// --tempfileControls=in_memory:allow,temporary:deny
static rabbet_status_t exec_files(const rabbet_exec_t* exec,
                                  rabbet_engine_options_t* options) {
  static const struct {
    const char* text;
    bool memory, denied;
  } known[] = {{"in_memory:allow", true, false},
               {"in_memory:deny", true, true},
               {"temporary:allow", false, false},
               {"temporary:deny", false, true}};
  const char* text = rabbet_exec_flag(exec, "--tempfileControls");
  options->temporary_directory = rabbet_exec_flag(exec, "--tempdir");
  while (text && *text) {
    size_t size = strcspn(text, ","), i = 0;
    while (i < 4 && (strlen(known[i].text) != size ||
                     memcmp(known[i].text, text, size) != 0))
      ++i;
    if (i == 4)
      return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                           "--tempfileControls: '%.*s': expected in_memory or "
                           "temporary, a colon, and allow or deny",
                           (int)size, text);
    *(known[i].memory ? &options->no_memory_files
                      : &options->no_temporary_files) = known[i].denied;
    text += size + (text[size] == ',');
  }
  return rabbet_ok();
}

static rabbet_status_t exec_load(rabbet_exec_t* exec, rabbet_file_map_t* plan,
                                 rabbet_engine_t** out_engine) {
  rabbet_allocator_t allocator = rabbet_allocator_system();
  rabbet_engine_options_t options = {
      .struct_size = sizeof(options),
      .device = rabbet_argument(&exec->inner, "--device"),
      .logger = rabbet_cli_logger(&exec->inner),
      // A plan that was built here comes from here.
      .host_code_allowed =
          plan || rabbet_argument_flag(&exec->inner, "--allow-host-code")};
  RABBET_RETURN_IF_ERROR(exec_files(exec, &options));
  if (!plan && options.host_code_allowed)
    RABBET_RETURN_IF_ERROR(
        rabbet_cli_enter_python_for(exec->inner.operands[0]));
  int64_t start = rabbet_time_ns();
  const char* path = exec->inner.operands[0];
  RABBET_RETURN_IF_ERROR(
      plan ? rabbet_engine_share(plan, &options, allocator, out_engine)
           : rabbet_cli_load_failure(
                 rabbet_engine_load(path, &options, allocator, out_engine),
                 path));
  rabbet_exec_log('I', "Engine deserialized in %g sec.", exec_seconds(start));
  return rabbet_ok();
}

static rabbet_status_t exec_print_version(const rabbet_exec_t* exec) {
  static const char key[] = "\"Producer\": ";
  rabbet_allocator_t allocator = rabbet_allocator_system();
  rabbet_engine_options_t options = {.struct_size = sizeof(options),
                                     .inspect_only = true};
  rabbet_engine_t* engine = NULL;
  char* text = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_engine_load(exec->inner.operands[0], &options,
                                            allocator, &engine));
  rabbet_status_t status = rabbet_engine_inspect(
      engine, NULL, -1, RABBET_INSPECT_JSON, allocator, &text);
  if (rabbet_is_ok(status)) {
    const char* at = strstr(text, key);
    if (at) at += strlen(key);
    rabbet_exec_log('I', "Plan was created with %.*s",
                    at ? (int)strcspn(at, ",}") : 0, at ? at : "");
  }
  rabbet_free(allocator, text);
  rabbet_engine_release(engine);
  return status;
}

// ---- Runs

static rabbet_status_t exec_time_refit(const rabbet_exec_t* exec,
                                       rabbet_engine_t* engine) {
  bool wanted = rabbet_exec_flag(exec, "--refitFromOnnx") ||
                rabbet_exec_flag(exec, "--timeRefit");
  uint64_t total = 0, stripped = 0;
  int64_t start = rabbet_time_ns();
  rabbet_engine_weights_bytes(engine, &total, &stripped);
  // A plan that was just stripped gets its weights from where it came.
  if (!wanted && !(stripped > 0 && rabbet_exec_flag(exec, "--onnx")))
    return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_exec_refit(exec, engine));
  rabbet_exec_log('I', "Engine refitted in %g sec.", exec_seconds(start));
  return rabbet_ok();
}

// "x:FILE,..": raw values, as "x=FILE" would name an array.
static rabbet_status_t exec_inputs(rabbet_exec_t* exec,
                                   rabbet_tensor_set_t* tensors) {
  const char* text = rabbet_exec_flag(exec, "--loadInputs");
  while (text && *text) {
    size_t size = strcspn(text, ",");
    const char *colon = memchr(text, ':', size), *name = NULL, *path = NULL;
    if (!colon)
      return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                           "--loadInputs=%.*s: expected NAME:FILE", (int)size,
                           text);
    RABBET_RETURN_IF_ERROR(rabbet_arena_printf(&exec->arena, &name, "%.*s",
                                               (int)(colon - text), text));
    RABBET_RETURN_IF_ERROR(rabbet_arena_printf(
        &exec->arena, &path, "%.*s", (int)(size - (size_t)(colon + 1 - text)),
        colon + 1));
    RABBET_RETURN_IF_ERROR(rabbet_tensor_set_load_raw(tensors, name, path));
    text += size + (text[size] == ',');
  }
  return rabbet_ok();
}

static rabbet_status_t exec_shapes_of(const rabbet_exec_t* exec,
                                      rabbet_context_t* context) {
  const rabbet_engine_t* engine = rabbet_context_engine(context);
  size_t profile = rabbet_context_profile(context);
  const char* text = rabbet_exec_flag(exec, "--shapes");
  // Inputs that no flag mentions have the profile's usual shapes.
  for (size_t i = 0; i < rabbet_engine_io_count(engine); ++i) {
    rabbet_dims_t low, usual, high;
    if (!rabbet_engine_io(engine, i)->is_input) break;
    RABBET_RETURN_IF_ERROR(
        rabbet_engine_profile_shape(engine, profile, i, &low, &usual, &high));
    RABBET_RETURN_IF_ERROR(rabbet_context_set_input_shape(context, i, &usual));
  }
  return rabbet_session_shapes(text, context);
}

static rabbet_status_t exec_infer(rabbet_exec_t* exec,
                                  rabbet_engine_t* engine) {
  rabbet_context_t* context = NULL;
  rabbet_tensor_set_t* tensors = NULL;
  double profile = 0;
  RABBET_RETURN_IF_ERROR(
      rabbet_exec_number(exec, "--useProfile", 0, 1023, 0, &profile));
  RABBET_RETURN_IF_ERROR(
      rabbet_context_create(engine, rabbet_allocator_system(), &context));
  rabbet_status_t status = rabbet_context_set_profile(context, (size_t)profile);
  if (rabbet_is_ok(status)) status = exec_shapes_of(exec, context);
  if (rabbet_is_ok(status))
    status = rabbet_tensor_set_create(&exec->inner, context, &tensors);
  if (rabbet_is_ok(status))
    status =
        rabbet_tensor_set_values(tensors, rabbet_exec_flag(exec, "--shapes"));
  if (rabbet_is_ok(status)) status = exec_inputs(exec, tensors);
  if (rabbet_is_ok(status))
    status = rabbet_exec_measure(exec, context, tensors);
  rabbet_context_destroy(context);
  rabbet_tensor_set_destroy(tensors);
  return status;
}

static rabbet_status_t exec_with_plan(rabbet_exec_t* exec,
                                      rabbet_file_map_t* plan) {
  rabbet_engine_t* engine = NULL;
  RABBET_RETURN_IF_ERROR(exec_load(exec, plan, &engine));
  rabbet_status_t status = rabbet_ok();
  bool infers = !rabbet_exec_flag(exec, "--skipInference") &&
                !rabbet_exec_flag(exec, "--timeDeserialize");
  if (!rabbet_exec_flag(exec, "--timeDeserialize"))
    status = exec_time_refit(exec, engine);
  if (rabbet_is_ok(status))
    status = infers ? exec_infer(exec, engine)
                    : rabbet_exec_describe(exec, engine, NULL);
  rabbet_engine_release(engine);
  return status;
}

static rabbet_status_t exec_all(rabbet_exec_t* exec) {
  RABBET_RETURN_IF_ERROR(rabbet_cli_load_plugins(&exec->inner));
  rabbet_file_map_t* plan = NULL;
  if (rabbet_exec_flag(exec, "--getPlanVersionOnly"))
    return exec_print_version(exec);
  if (rabbet_exec_flag(exec, "--onnx"))
    RABBET_RETURN_IF_ERROR(exec_build(exec, &plan));
  rabbet_status_t status = exec_with_plan(exec, plan);
  rabbet_file_map_release(plan);
  return status;
}

// ---- The command

static void exec_print_end(const rabbet_exec_t* exec, const char* word) {
  printf("&&&& %s rabbet.exec [Rabbet v%s] # rabbet exec", word,
         rabbet_version());
  for (int i = 0; i < exec->argc; ++i)
    rabbet_cli_print(stdout, " %s", exec->argv[i]);
  printf("\n");
}

static rabbet_status_t exec_run_line(int argc, char** argv) {
  static rabbet_exec_t exec;
  memset(&exec, 0, sizeof(exec));
  rabbet_arena_initialize(rabbet_allocator_system(), &exec.arena);
  exec.argc = argc;
  exec.argv = argv;
  if (argc == 0 || rabbet_exec_flag(&exec, "--help") ||
      rabbet_exec_flag(&exec, "-h")) {
    rabbet_exec_help();
    return rabbet_ok();
  }
  if (!rabbet_cli_is_in_python()) exec_print_end(&exec, "RUNNING");
  rabbet_status_t status = rabbet_exec_parse(argc, argv, &exec);
  if (rabbet_is_ok(status)) status = exec_all(&exec);
  if (!rabbet_is_ok(status))
    rabbet_exec_log('E', "%s", rabbet_status_message(status));
  exec_print_end(&exec, rabbet_is_ok(status) ? "PASSED" : "FAILED");
  rabbet_arena_deinitialize(&exec.arena);
  return status;
}

const rabbet_command_t rabbet_command_exec = {
    .name = "exec",
    .operands = "",
    .summary = "build and time a model with the flags of trtexec",
    .run_line = exec_run_line,
    .flag_at = rabbet_exec_flag_at,
};
