// Dispatch, plugins, exit codes.
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/strbuf.h"
#include "base/suggest.h"
#include "cli/cli.h"
#include "cli/main.h"

static const rabbet_command_t* const commands[] = {
    &rabbet_command_build,      &rabbet_command_run,
    &rabbet_command_bench,      &rabbet_command_inspect,
    &rabbet_command_quantize,   &rabbet_command_exec,
    &rabbet_command_ops,        &rabbet_command_triton,
    &rabbet_command_completion, &rabbet_command_version,
};
enum { COMMAND_COUNT = sizeof(commands) / sizeof(commands[0]) };

// The command line as given, for the hand-over to Python.
static struct {
  int argc;
  char** argv;
  const rabbet_cli_python_t* python;  // NULL outside Python
} invocation;

static int exit_code(rabbet_status_t status) {
  switch (rabbet_status_code(status)) {
    case RABBET_STATUS_OK:
      return RABBET_EXIT_OK;
    case RABBET_STATUS_CANCELLED:
      return RABBET_EXIT_CANCELLED;
    case RABBET_STATUS_INVALID_ARGUMENT:
    case RABBET_STATUS_OUT_OF_RANGE:
      return RABBET_EXIT_USAGE;
    case RABBET_STATUS_DATA_LOSS:
    case RABBET_STATUS_INCOMPATIBLE:
    case RABBET_STATUS_IO:
    case RABBET_STATUS_NOT_FOUND:
      return RABBET_EXIT_BAD_FILE;
    case RABBET_STATUS_UNSUPPORTED:
      return RABBET_EXIT_UNSUPPORTED;
    case RABBET_STATUS_PLUGIN:
      return RABBET_EXIT_PLUGIN;
    case RABBET_STATUS_UNAVAILABLE:
      return RABBET_EXIT_UNAVAILABLE;
    default:
      return RABBET_EXIT_FAILED;
  }
}

void rabbet_cli_print_v(FILE* file, const char* format, va_list arguments) {
  rabbet_strbuf_t text;
  rabbet_strbuf_initialize(rabbet_allocator_system(), &text);
  rabbet_strbuf_printf_v(&text, format, arguments);
  rabbet_strbuf_escape(&text);
  fputs(rabbet_strbuf_text(&text), file);
  rabbet_strbuf_deinitialize(&text);
}

void rabbet_cli_print(FILE* file, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  rabbet_cli_print_v(file, format, arguments);
  va_end(arguments);
}

static void report_failure(const char* command, rabbet_status_t status) {
  if (invocation.python) {
    invocation.python->report(command, status);
    return;
  }
  fprintf(stderr, "rabbet %s: %s\n", command, rabbet_status_message(status));
  rabbet_status_free(status);
}

static void cli_usage(FILE* file) {
  fprintf(file,
          "rabbet: builds, runs and inspects inference plans\n\n"
          "usage: rabbet COMMAND ...\n\n");
  for (int i = 0; i < COMMAND_COUNT; ++i) {
    fprintf(file, "  %-10s %s\n", commands[i]->name, commands[i]->summary);
  }
  fprintf(file,
          "\n`rabbet COMMAND --help` tells more.\n\n"
          "exit codes: 0 done, 1 failed, 2 wrong command line, 3 wrong or "
          "missing file,\n  4 unsupported model, 5 plugin failed, 6 device or "
          "library missing, 130 cancelled\n\n"
          "environment: RABBET_DEVICE, RABBET_THREADS, RABBET_PYTHON (for "
          "plugins in Python)\n");
}

const rabbet_command_t* rabbet_command_at(size_t index) {
  return index < COMMAND_COUNT ? commands[index] : NULL;
}

bool rabbet_command_option(const rabbet_command_t* command, size_t index,
                           rabbet_option_t* out_option) {
  if (command->flag_at) return command->flag_at(index, out_option);
  if (index >= command->option_count) return false;
  *out_option = command->options[index];
  return true;
}

static const char* command_name_at(const void* list, size_t index) {
  (void)list;
  return commands[index]->name;
}

static rabbet_status_t command_call(const rabbet_command_t* command,
                                    const rabbet_arguments_t* arguments,
                                    int argc, char** argv) {
  rabbet_status_t status = command->run_line
                               ? command->run_line(argc - 2, argv + 2)
                               : command->run(arguments);
  if (fflush(stdout) != 0 && rabbet_is_ok(status)) {
    status = RABBET_STATUS(RABBET_STATUS_IO, "standard output: cannot write");
  }
  return status;
}

static int command_execute(const rabbet_command_t* command, int argc,
                           char** argv) {
  for (int i = 2; i < argc && !command->run_line; ++i) {
    if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
      rabbet_command_help(command, stdout);
      return RABBET_EXIT_OK;
    }
  }
  static rabbet_arguments_t arguments;
  rabbet_status_t status = rabbet_ok();
  if (!command->run_line)
    status = rabbet_arguments_parse(command, argc - 2, argv + 2, &arguments);
  if (!rabbet_is_ok(status)) {
    report_failure(command->name, status);
    return RABBET_EXIT_USAGE;
  }
  status = command_call(command, &arguments, argc, argv);
  int code = exit_code(status);
  if (!rabbet_is_ok(status)) report_failure(command->name, status);
  return code;
}

int rabbet_cli_main(int argc, char** argv, const rabbet_cli_python_t* python) {
  invocation.argc = argc;
  invocation.argv = argv;
  invocation.python = python;
  const char* name = argc > 1 ? argv[1] : NULL;
  if (!name || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 ||
      strcmp(name, "help") == 0) {
    cli_usage(name ? stdout : stderr);
    return name ? RABBET_EXIT_OK : RABBET_EXIT_USAGE;
  }
  if (strcmp(name, "--version") == 0) name = "version";
  for (int i = 0; i < COMMAND_COUNT; ++i) {
    if (strcmp(commands[i]->name, name) == 0) {
      return command_execute(commands[i], argc, argv);
    }
  }
  char near_names[128];
  rabbet_cli_print(
      stderr, "rabbet: there is no command '%s'%s\n", name,
      rabbet_suggest_print(name, command_name_at, NULL, COMMAND_COUNT,
                           near_names, sizeof(near_names)));
  return RABBET_EXIT_USAGE;
}

rabbet_logger_t rabbet_cli_logger(const rabbet_arguments_t* arguments) {
  return rabbet_logger_stderr(rabbet_argument_flag(arguments, "--verbose")
                                  ? RABBET_SEVERITY_VERBOSE
                                  : RABBET_SEVERITY_WARNING);
}

rabbet_status_t rabbet_cli_recode(rabbet_status_t status,
                                  rabbet_status_code_t code) {
  rabbet_status_t same = rabbet_status_make(code, rabbet_status_file(status),
                                            rabbet_status_line(status), "%s",
                                            rabbet_status_message(status));
  rabbet_status_free(status);
  return same;
}

// ---- Plugins ---------------------------------------------------------------

bool rabbet_cli_is_in_python(void) {
  return invocation.python != NULL;
}

bool rabbet_cli_is_python(const char* path) {
  size_t size = strlen(path);
  return size > 3 && strcmp(path + size - 3, ".py") == 0;
}

// The interpreter of the environment that this program is installed in: it lies
// beside it. Otherwise the one on PATH.
static const char* python_default(char buffer[PATH_MAX]) {
  static const char name[] = "python3";
  ssize_t size = readlink("/proc/self/exe", buffer, PATH_MAX - sizeof(name));
  if (size <= 0) return name;
  buffer[size] = '\0';
  memcpy(strrchr(buffer, '/') + 1, name, sizeof(name));
  return access(buffer, X_OK) == 0 ? buffer : name;
}

#define RABBET_NEED_PACKAGE " an interpreter with the package rabbet: "

// Runs `-m rabbet._cli`, but with a clear message if the package is missing;
// its first argument says what needs it.
static const char start_in_python[] =
    "import sys\n"
    "what = sys.argv.pop(1)\n"
    "try:\n"
    "    from rabbet._cli import main\n"
    "except ModuleNotFoundError as error:\n"
    "    if error.name != 'rabbet': raise\n"
    "    print(f'rabbet {sys.argv[1]}: {what}" RABBET_NEED_PACKAGE
    "{sys.executable!r} has none; set RABBET_PYTHON', file=sys.stderr)\n"
    "    sys.exit(6)\n"  // RABBET_EXIT_UNAVAILABLE
    "sys.exit(main())\n";

// Becomes the same command inside `$RABBET_PYTHON`; returns only on failure.
// `what` begins its message.
static rabbet_status_t become_python(const char* what) {
  char beside[PATH_MAX];
  const char* python = getenv("RABBET_PYTHON");
  if (!python || !*python) python = python_default(beside);
  char** argv = NULL;
  enum { BEFORE = 4 };
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      rabbet_allocator_system(),
      ((size_t)invocation.argc + BEFORE) * sizeof(char*), (void**)&argv));
  argv[0] = (char*)python;
  argv[1] = "-c";
  argv[2] = (char*)start_in_python;
  argv[3] = (char*)what;
  for (int i = 1; i < invocation.argc; ++i)
    argv[i + BEFORE - 1] = invocation.argv[i];
  fflush(NULL);
  execvp(python, argv);
  rabbet_free(rabbet_allocator_system(), argv);
  return RABBET_STATUS(RABBET_STATUS_UNAVAILABLE,
                       "%s" RABBET_NEED_PACKAGE
                       "'%s' cannot be run; set RABBET_PYTHON",
                       what, python);
}

static const char plugins_need[] = "plugins written in Python need";

rabbet_status_t rabbet_cli_run_in_python(const char* command,
                                         const rabbet_arguments_t* arguments) {
  return invocation.python ? invocation.python->run(command, arguments)
                           : become_python("this command needs");
}

// dlopen does not look for names without a slash in the current folder.
static rabbet_status_t load_library(const char* path) {
  char here[PATH_MAX];
  if (strchr(path, '/') || access(path, F_OK) != 0) {
    return rabbet_plugin_load_library(path);
  }
  snprintf(here, sizeof(here), "./%s", path);
  return rabbet_plugin_load_library(here);
}

rabbet_status_t rabbet_cli_load_plugins(const rabbet_arguments_t* arguments) {
  size_t count = 0;
  const char* const* paths =
      rabbet_argument_list(arguments, "--plugins", &count);
  for (size_t i = 0; i < count && !invocation.python; ++i) {
    if (rabbet_cli_is_python(paths[i])) return become_python(plugins_need);
  }
  for (size_t i = 0; i < count; ++i) {
    if (rabbet_cli_is_python(paths[i])) continue;
    RABBET_RETURN_IF_ERROR(load_library(paths[i]));
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_cli_enter_python_for(const char* plan_path) {
  const rabbet_engine_options_t options = {.struct_size = sizeof(options),
                                           .inspect_only = true};
  rabbet_engine_t* engine = NULL;
  if (invocation.python) return rabbet_ok();  // it is there
  rabbet_status_t status = rabbet_engine_load(
      plan_path, &options, rabbet_allocator_system(), &engine);
  if (!rabbet_is_ok(status)) {
    rabbet_status_free(status);  // loading it will say so
    return rabbet_ok();
  }
  bool python = false;
  const rabbet_carried_t* carried;
  for (size_t i = 0; (carried = rabbet_engine_carried(engine, i)); ++i)
    python |= carried->kind == RABBET_CARRIED_PYTHON;
  rabbet_engine_release(engine);
  return python ? become_python(plugins_need) : rabbet_ok();
}

rabbet_status_t rabbet_cli_load_failure(rabbet_status_t status,
                                        const char* path) {
  rabbet_status_code_t code = rabbet_status_code(status);
  // If the file exists, it is an operator that was not found; code that the
  // plan carries for it may not have been allowed.
  bool plugin = (code == RABBET_STATUS_NOT_FOUND && access(path, F_OK) == 0) ||
                code == RABBET_STATUS_FAILED_PRECONDITION;
  return plugin ? rabbet_cli_recode(status, RABBET_STATUS_PLUGIN) : status;
}
