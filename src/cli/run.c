#include "cli/build.h"

static rabbet_status_t run_once(const rabbet_arguments_t* arguments,
                                rabbet_context_t* context) {
  rabbet_tensor_set_t* tensors = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_tensor_set_create(arguments, context, &tensors));
  rabbet_status_t status = rabbet_context_set_check_finite(
      context, rabbet_argument_flag(arguments, "--check-finite"));
  if (rabbet_is_ok(status)) status = rabbet_context_execute(context, NULL);
  const char* output = rabbet_argument(arguments, "--output");
  if (rabbet_is_ok(status) && output) {
    status = rabbet_tensor_set_save_outputs(tensors, output);
  }
  if (rabbet_is_ok(status) && !rabbet_argument_flag(arguments, "--quiet")) {
    status = rabbet_tensor_set_print(tensors, stdout);
  }
  rabbet_tensor_set_destroy(tensors);
  return status;
}

static rabbet_status_t run_run(const rabbet_arguments_t* arguments) {
  RABBET_RETURN_IF_ERROR(rabbet_cli_load_plugins(arguments));
  rabbet_session_t session;
  RABBET_RETURN_IF_ERROR(
      rabbet_session_open(arguments, arguments->operands[0], &session));
  rabbet_status_t status = run_once(arguments, session.context);
  rabbet_session_close(&session);
  return status;
}

static const rabbet_option_t run_options[] = {
    {"--inputs", RABBET_OPTION_LIST, "FILE.npz",
     "inputs by name; or NAME=FILE.npy. Others are random"},
    {"--seed", RABBET_OPTION_VALUE, "N", "of the random inputs (default 0)"},
    {"--output", RABBET_OPTION_VALUE, "FILE.npz", "save the outputs (-o)"},
    {"--profile-index", RABBET_OPTION_VALUE, "N", "optimization profile"},
    {"--check-finite", RABBET_OPTION_FLAG, NULL,
     "name the first layer that makes an infinity or NaN, and why"},
    {"--quiet", RABBET_OPTION_FLAG, NULL, "print nothing"},
    RABBET_LOAD_OPTIONS,
    RABBET_BUILD_OPTIONS,
};

const rabbet_command_t rabbet_command_run = {
    .name = "run",
    .operands = "PLAN|MODEL.onnx",
    .summary = "run a plan once (a model is built first)",
    .notes = "Random inputs: floats uniform in [-1, 1), integers 0.\n",
    .options = run_options,
    .option_count = sizeof(run_options) / sizeof(run_options[0]),
    .min_operands = 1,
    .max_operands = 1,
    .run = run_run,
};
