// The command `rabbet`: common code of its sub-commands.
#ifndef RABBET_SRC_CLI_CLI_H_
#define RABBET_SRC_CLI_CLI_H_

#include <stdio.h>

#include "rabbet/rabbet.h"

// Exit codes, for scripts.
enum {
  RABBET_EXIT_OK = 0,
  RABBET_EXIT_FAILED = 1,
  RABBET_EXIT_USAGE = 2,        // the command line, or a value given in it
  RABBET_EXIT_BAD_FILE = 3,     // a model, plan or array file is wrong
  RABBET_EXIT_UNSUPPORTED = 4,  // no kernel can compute the model
  RABBET_EXIT_PLUGIN = 5,       // a plugin is missing or failed
  RABBET_EXIT_UNAVAILABLE = 6,  // a device or library is missing
  RABBET_EXIT_CANCELLED = 130,
};

// How an option is written: a flag, or with a value ("--x V" or "--x=V").
typedef enum rabbet_option_kind_t {
  RABBET_OPTION_FLAG,
  RABBET_OPTION_VALUE,
  RABBET_OPTION_LIST,  // may be given again
} rabbet_option_kind_t;

typedef struct rabbet_option_t {
  const char* name;  // "--shapes"
  rabbet_option_kind_t kind;
  // How the value is called in the help: "FILE..." are files, "a|b" choices.
  const char* value;
  const char* help;
} rabbet_option_t;

#define RABBET_CLI_MAX_VALUES 64

// The given options, by position in the option table.
typedef struct rabbet_arguments_t {
  const rabbet_option_t* options;
  size_t option_count;
  const char* values[32][RABBET_CLI_MAX_VALUES];
  size_t counts[32];
  const char* operands[RABBET_CLI_MAX_VALUES];
  size_t operand_count;
} rabbet_arguments_t;

typedef struct rabbet_command_t {
  const char* name;
  const char* operands;  // "MODEL.onnx"
  const char* summary;   // one line
  const char* notes;     // more, after the options; may be NULL
  const rabbet_option_t* options;
  size_t option_count;
  size_t min_operands, max_operands;
  rabbet_status_t (*run)(const rabbet_arguments_t* arguments);
  // A command may have this function in place of operands, options and run: it
  // parses the command line after its name by itself.
  rabbet_status_t (*run_line)(int argc, char** argv);
  // The flags of such a command line; false at the end of the list.
  bool (*flag_at)(size_t index, rabbet_option_t* out_option);
  // Words that an operand can be, NULL at the end of the list. Without this
  // function operands are files.
  const char* (*word_at)(size_t index);
} rabbet_command_t;

// Every command, in the order of the help; NULL at the end of the list.
const rabbet_command_t* rabbet_command_at(size_t index);
// The options of any command; false at the end of the list.
bool rabbet_command_option(const rabbet_command_t* command, size_t index,
                           rabbet_option_t* out_option);

extern const rabbet_command_t rabbet_command_build;
extern const rabbet_command_t rabbet_command_run;
extern const rabbet_command_t rabbet_command_bench;
extern const rabbet_command_t rabbet_command_inspect;
extern const rabbet_command_t rabbet_command_quantize;
extern const rabbet_command_t rabbet_command_exec;
extern const rabbet_command_t rabbet_command_ops;
extern const rabbet_command_t rabbet_command_triton;
extern const rabbet_command_t rabbet_command_completion;
extern const rabbet_command_t rabbet_command_version;

// ---- Options ---------------------------------------------------------------

// INVALID_ARGUMENT names the option and the nearest known ones.
rabbet_status_t rabbet_arguments_parse(const rabbet_command_t* command,
                                       int argc, char** argv,
                                       rabbet_arguments_t* out_arguments);
void rabbet_command_help(const rabbet_command_t* command, FILE* file);
// Value of an option (the last given), or NULL.
const char* rabbet_argument(const rabbet_arguments_t* arguments,
                            const char* name);
static inline bool rabbet_argument_flag(const rabbet_arguments_t* arguments,
                                        const char* name) {
  return rabbet_argument(arguments, name) != NULL;
}
// All values of a list option.
const char* const* rabbet_argument_list(const rabbet_arguments_t* arguments,
                                        const char* name, size_t* out_count);
// An integer in [low, high]; `fallback` when not given.
rabbet_status_t rabbet_argument_int(const rabbet_arguments_t* arguments,
                                    const char* name, int64_t low, int64_t high,
                                    int64_t fallback, int64_t* out_value);
// A non-negative number of seconds; `fallback` when not given.
rabbet_status_t rabbet_argument_seconds(const rabbet_arguments_t* arguments,
                                        const char* name, double fallback,
                                        double* out_value);

// ---- Failures --------------------------------------------------------------

// The same failure under another code, where the exit code that follows from
// the first would blame the wrong one. Takes the status, which is not OK.
RABBET_MUST_USE rabbet_status_t rabbet_cli_recode(rabbet_status_t status,
                                                  rabbet_status_code_t code);

// ---- Plugins ---------------------------------------------------------------

// Loads --plugins: shared libraries here; Python files by running this command
// again inside `$RABBET_PYTHON` (does not return then), unless it already runs
// there, where Python has imported them.
rabbet_status_t rabbet_cli_load_plugins(const rabbet_arguments_t* arguments);
// Runs a command that is written in Python: in this process if it is Python's,
// else by running the command line again there (does not return then).
rabbet_status_t rabbet_cli_run_in_python(const char* command,
                                         const rabbet_arguments_t* arguments);
// Whether this is the second of the two processes: the first one has checked
// the arguments and printed messages about them.
bool rabbet_cli_is_in_python(void);
// Whether a value of --plugins is a Python file, not a library.
bool rabbet_cli_is_python(const char* path);
// Runs this command again by Python (as above) if the plan carries source that
// may be run; a file that is no plan is not looked at further.
rabbet_status_t rabbet_cli_enter_python_for(const char* plan_path);
// Turns a failure to load the plan at `path` into an error for the user. Takes
// the status.
RABBET_MUST_USE rabbet_status_t rabbet_cli_load_failure(rabbet_status_t status,
                                                        const char* path);

// ---- Engines ---------------------------------------------------------------

// Loads PLAN, or builds it from MODEL.onnx given in its place, and makes a
// context with --threads, --device and the shapes of --shapes.
typedef struct rabbet_session_t {
  rabbet_engine_t* engine;
  rabbet_context_t* context;
} rabbet_session_t;
rabbet_status_t rabbet_session_open(const rabbet_arguments_t* arguments,
                                    const char* plan_path,
                                    rabbet_session_t* out_session);
void rabbet_session_close(rabbet_session_t* session);
// Applies "x:1x3,y:8" to the context's inputs; NULL: no shapes.
rabbet_status_t rabbet_session_shapes(const char* text,
                                      rabbet_context_t* context);

// Host arrays for the inputs and outputs of a context.
typedef struct rabbet_tensor_set_t rabbet_tensor_set_t;
// Reads --inputs (.npz, or NAME=FILE.npy) and fills the rest with seeded random
// values (integers: zeros) in the shapes of --shapes; sets shapes, addresses
// and output allocators.
rabbet_status_t rabbet_tensor_set_create(const rabbet_arguments_t* arguments,
                                         rabbet_context_t* context,
                                         rabbet_tensor_set_t** out_set);
// Sets values of shape inputs that no file gave: from a text of the form of
// --shapes (NULL: none), else the profile's optimum.
rabbet_status_t rabbet_tensor_set_values(rabbet_tensor_set_t* set,
                                         const char* text);
void rabbet_tensor_set_destroy(rabbet_tensor_set_t* set);
// Reads an input's elements from a raw file, which must have as many bytes as
// the input in its present shape.
rabbet_status_t rabbet_tensor_set_load_raw(rabbet_tensor_set_t* set,
                                           const char* name, const char* path);
// After a run: outputs to an .npz.
rabbet_status_t rabbet_tensor_set_save_outputs(const rabbet_tensor_set_t* set,
                                               const char* path);
// After a run: a line each with shape, type, range and mean.
rabbet_status_t rabbet_tensor_set_print(const rabbet_tensor_set_t* set,
                                        FILE* file);

// Prints text with names in it, control characters escaped.
void rabbet_cli_print(FILE* file, const char* format, ...) RABBET_PRINTF(2, 3);
void rabbet_cli_print_v(FILE* file, const char* format, va_list arguments);
// --verbose: to stderr; else warnings and errors.
rabbet_logger_t rabbet_cli_logger(const rabbet_arguments_t* arguments);

#endif  // RABBET_SRC_CLI_CLI_H_
