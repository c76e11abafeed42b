#include "cli/cli.h"

static rabbet_status_t inspect_run(const rabbet_arguments_t* arguments) {
  int64_t layer = -1;
  RABBET_RETURN_IF_ERROR(
      rabbet_argument_int(arguments, "--layer", 0, INT32_MAX, -1, &layer));
  rabbet_allocator_t allocator = rabbet_allocator_system();
  rabbet_engine_options_t options = {.struct_size = sizeof(options),
                                     .logger = rabbet_cli_logger(arguments),
                                     .inspect_only = true};
  rabbet_engine_t* engine = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_engine_load(arguments->operands[0], &options, allocator, &engine));
  char* text = NULL;
  rabbet_status_t status = rabbet_engine_inspect(
      engine, NULL, (int32_t)layer,
      rabbet_argument_flag(arguments, "--json") ? RABBET_INSPECT_JSON
                                                : RABBET_INSPECT_TEXT,
      allocator, &text);
  if (rabbet_is_ok(status)) printf("%s\n", text);
  rabbet_free(allocator, text);
  rabbet_engine_release(engine);
  return status;
}

static const rabbet_option_t inspect_options[] = {
    {"--json", RABBET_OPTION_FLAG, NULL, "print JSON"},
    {"--layer", RABBET_OPTION_VALUE, "N", "that layer alone"},
    {"--verbose", RABBET_OPTION_FLAG, NULL, "print each step"},
};

const rabbet_command_t rabbet_command_inspect = {
    .name = "inspect",
    .operands = "PLAN",
    .summary = "show what a plan holds: inputs, outputs, layers, tactics",
    .notes = "Neither the plan's plugins nor its device are needed.\n",
    .options = inspect_options,
    .option_count = sizeof(inspect_options) / sizeof(inspect_options[0]),
    .min_operands = 1,
    .max_operands = 1,
    .run = inspect_run,
};
