// Opening a plan, or a model that is built on the spot, for run and bench.
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/thread.h"
#include "cli/build.h"
#include "cli/cli.h"
#include "core/shape_text.h"
#include "runtime/share.h"

static bool is_onnx(const char* path) {
  size_t size = strlen(path);
  return size > 5 && strcmp(path + size - 5, ".onnx") == 0;
}

static rabbet_status_t session_engine(const rabbet_arguments_t* arguments,
                                      const char* path,
                                      rabbet_engine_t** out_engine) {
  rabbet_allocator_t allocator = rabbet_allocator_system();
  rabbet_engine_options_t options = {
      .struct_size = sizeof(options),
      .device = rabbet_argument(arguments, "--device"),
      .logger = rabbet_cli_logger(arguments),
      .host_code_allowed = rabbet_argument_flag(arguments, "--allow-host-code"),
      .untrusted = rabbet_argument_flag(arguments, "--untrusted")};
  if (!is_onnx(path)) {
    if (options.host_code_allowed)
      RABBET_RETURN_IF_ERROR(rabbet_cli_enter_python_for(path));
    return rabbet_cli_load_failure(
        rabbet_engine_load(path, &options, allocator, out_engine), path);
  }
  options.host_code_allowed = true;  // it comes from here
  options.untrusted = false;
  rabbet_cli_plan_t plan = {0};
  RABBET_RETURN_IF_ERROR(rabbet_cli_build(arguments, NULL, path, &plan, NULL));
  rabbet_status_t status =
      rabbet_engine_share(plan.map, &options, allocator, out_engine);
  rabbet_file_map_release(plan.map);
  return status;
}

rabbet_status_t rabbet_session_shapes(const char* text,
                                      rabbet_context_t* context) {
  if (!text) return rabbet_ok();
  rabbet_arena_t arena;
  rabbet_arena_initialize(rabbet_allocator_system(), &arena);
  rabbet_named_dims_t* shapes = NULL;
  size_t count = 0;
  rabbet_status_t status =
      rabbet_shape_text_parse(text, &arena, &shapes, &count);
  const rabbet_engine_t* engine = rabbet_context_engine(context);
  for (size_t i = 0; rabbet_is_ok(status) && i < count; ++i) {
    bool used = false;
    for (size_t io = 0; io < rabbet_engine_io_count(engine); ++io) {
      const rabbet_io_t* info = rabbet_engine_io(engine, io);
      if (!info->is_input ||
          !rabbet_shape_text_matches(&shapes[i], info->name)) {
        continue;
      }
      used = true;
      // For a shape input these are values, which tensors.c sets.
      if (info->is_shape_input) continue;
      status = rabbet_context_set_input_shape(context, io, &shapes[i].dims);
      if (!rabbet_is_ok(status)) break;
    }
    if (rabbet_is_ok(status) && !used) {
      status = RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                             "--shapes: the model has no input '%s'",
                             shapes[i].name);
    }
  }
  rabbet_arena_deinitialize(&arena);
  return status;
}

rabbet_status_t rabbet_session_open(const rabbet_arguments_t* arguments,
                                    const char* plan_path,
                                    rabbet_session_t* out_session) {
  memset(out_session, 0, sizeof(*out_session));
  int64_t threads = 0, profile = 0;
  RABBET_RETURN_IF_ERROR(rabbet_argument_int(arguments, "--threads", 1,
                                             RABBET_MAX_THREADS, 0, &threads));
  RABBET_RETURN_IF_ERROR(
      rabbet_argument_int(arguments, "--profile-index", 0, 1023, 0, &profile));
  rabbet_status_t status =
      session_engine(arguments, plan_path, &out_session->engine);
  if (rabbet_is_ok(status)) {
    status = rabbet_context_create(
        out_session->engine, rabbet_allocator_system(), &out_session->context);
  }
  if (rabbet_is_ok(status) && threads > 0) {
    status = rabbet_context_set_threads(out_session->context, (int)threads);
  }
  if (rabbet_is_ok(status) && profile > 0) {
    status = rabbet_context_set_profile(out_session->context, (size_t)profile);
  }
  if (rabbet_is_ok(status)) {
    status = rabbet_session_shapes(rabbet_argument(arguments, "--shapes"),
                                   out_session->context);
  }
  if (!rabbet_is_ok(status)) rabbet_session_close(out_session);
  return status;
}

void rabbet_session_close(rabbet_session_t* session) {
  rabbet_context_destroy(session->context);
  rabbet_engine_release(session->engine);
  memset(session, 0, sizeof(*session));
}
