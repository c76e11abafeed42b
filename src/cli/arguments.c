#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/suggest.h"
#include "cli/cli.h"

static const char* option_name_at(const void* list, size_t index) {
  return ((const rabbet_option_t*)list)[index].name;
}

// Position of an option whose name is the first `size` bytes of `text`.
static size_t option_find(const rabbet_option_t* options, size_t count,
                          const char* text, size_t size) {
  for (size_t i = 0; i < count; ++i) {
    if (strlen(options[i].name) == size &&
        memcmp(options[i].name, text, size) == 0) {
      return i;
    }
  }
  return count;
}

static rabbet_status_t argument_add(rabbet_arguments_t* arguments,
                                    size_t option, const char* value) {
  const rabbet_option_t* info = &arguments->options[option];
  if (info->kind != RABBET_OPTION_LIST) arguments->counts[option] = 0;
  if (arguments->counts[option] == RABBET_CLI_MAX_VALUES) {
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "%s is given more than %d times", info->name,
                         RABBET_CLI_MAX_VALUES);
  }
  arguments->values[option][arguments->counts[option]++] = value;
  return rabbet_ok();
}

static rabbet_status_t option_parse(rabbet_arguments_t* arguments, int argc,
                                    char** argv, int* index) {
  const char* text = argv[*index];
  const char* equals = strchr(text, '=');
  size_t size = equals ? (size_t)(equals - text) : strlen(text);
  if (strncmp(text, "-o", size) == 0 && size == 2) {
    text = "--output";
    size = strlen(text);
  }
  size_t option =
      option_find(arguments->options, arguments->option_count, text, size);
  if (option == arguments->option_count) {
    char near_names[160];
    return RABBET_STATUS(
        RABBET_STATUS_INVALID_ARGUMENT, "there is no option '%.*s'%s",
        (int)size, text,
        rabbet_suggest_print(text, option_name_at, arguments->options,
                             arguments->option_count, near_names,
                             sizeof(near_names)));
  }
  const rabbet_option_t* info = &arguments->options[option];
  if (info->kind == RABBET_OPTION_FLAG) {
    if (equals) {
      return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT, "%s takes no value",
                           info->name);
    }
    return argument_add(arguments, option, "");
  }
  if (equals) return argument_add(arguments, option, equals + 1);
  if (*index + 1 >= argc) {
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT, "%s needs a value: %s",
                         info->name, info->value);
  }
  return argument_add(arguments, option, argv[++*index]);
}

rabbet_status_t rabbet_arguments_parse(const rabbet_command_t* command,
                                       int argc, char** argv,
                                       rabbet_arguments_t* out_arguments) {
  memset(out_arguments, 0, sizeof(*out_arguments));
  out_arguments->options = command->options;
  out_arguments->option_count = command->option_count;
  bool only_operands = false;
  for (int i = 0; i < argc; ++i) {
    if (!only_operands && strcmp(argv[i], "--") == 0) {
      only_operands = true;
    } else if (!only_operands && argv[i][0] == '-' && argv[i][1]) {
      RABBET_RETURN_IF_ERROR(option_parse(out_arguments, argc, argv, &i));
    } else if (out_arguments->operand_count == command->max_operands) {
      return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                           "'%s' is one operand too many; expected: %s",
                           argv[i],
                           *command->operands ? command->operands : "none");
    } else {
      out_arguments->operands[out_arguments->operand_count++] = argv[i];
    }
  }
  if (out_arguments->operand_count < command->min_operands) {
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT, "%s is missing",
                         command->operands);
  }
  return rabbet_ok();
}

void rabbet_command_help(const rabbet_command_t* command, FILE* file) {
  fprintf(file, "usage: rabbet %s %s%s\n\n%s\n", command->name,
          command->operands, command->option_count ? " [OPTION ...]" : "",
          command->summary);
  if (command->option_count) fprintf(file, "\n");
  for (size_t i = 0; i < command->option_count; ++i) {
    const rabbet_option_t* option = &command->options[i];
    char left[48];
    snprintf(left, sizeof(left), "%s %s", option->name,
             option->value ? option->value : "");
    fprintf(file, "  %-30s %s\n", left, option->help);
  }
  if (command->notes) fprintf(file, "\n%s", command->notes);
}

const char* rabbet_argument(const rabbet_arguments_t* arguments,
                            const char* name) {
  size_t count = 0;
  const char* const* values = rabbet_argument_list(arguments, name, &count);
  return count ? values[count - 1] : NULL;
}

const char* const* rabbet_argument_list(const rabbet_arguments_t* arguments,
                                        const char* name, size_t* out_count) {
  *out_count = 0;
  size_t option = option_find(arguments->options, arguments->option_count, name,
                              strlen(name));
  if (option == arguments->option_count) return NULL;
  *out_count = arguments->counts[option];
  return arguments->values[option];
}

rabbet_status_t rabbet_argument_int(const rabbet_arguments_t* arguments,
                                    const char* name, int64_t low, int64_t high,
                                    int64_t fallback, int64_t* out_value) {
  *out_value = fallback;
  const char* text = rabbet_argument(arguments, name);
  if (!text) return rabbet_ok();
  char* end = NULL;
  errno = 0;
  long long value = strtoll(text, &end, 10);
  if (end == text || *end || errno || value < low || value > high) {
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "%s: '%s' is not an integer from %lld to %lld", name,
                         text, (long long)low, (long long)high);
  }
  *out_value = value;
  return rabbet_ok();
}

rabbet_status_t rabbet_argument_seconds(const rabbet_arguments_t* arguments,
                                        const char* name, double fallback,
                                        double* out_value) {
  *out_value = fallback;
  const char* text = rabbet_argument(arguments, name);
  if (!text) return rabbet_ok();
  char* end = NULL;
  double value = strtod(text, &end);
  if (end == text || *end || !isfinite(value) || value < 0) {
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "%s: '%s' is not a number of seconds", name, text);
  }
  *out_value = value;
  return rabbet_ok();
}
