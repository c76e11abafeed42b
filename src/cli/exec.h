// `rabbet exec`: trtexec's flags, and results in its form.
#ifndef RABBET_SRC_CLI_EXEC_H_
#define RABBET_SRC_CLI_EXEC_H_

#include "base/arena.h"
#include "cli/cli.h"

#define RABBET_EXEC_MAX_PROFILES 16

enum { RABBET_EXEC_MIN, RABBET_EXEC_OPT, RABBET_EXEC_MAX, RABBET_EXEC_RANGES };

typedef struct rabbet_exec_t {
  rabbet_arena_t arena;
  int argc;  // as given, without "rabbet exec"
  char** argv;
  // By profile: texts of --minShapes, --optShapes, --maxShapes.
  const char* shapes[RABBET_EXEC_MAX_PROFILES][RABBET_EXEC_RANGES];
  size_t profile_count;
  rabbet_arguments_t inner;  // the same for the commands build and bench
} rabbet_exec_t;

// ---- Flags (exec_flags.c)

// Value of a flag (the last given), "" for one without; NULL: not given.
const char* rabbet_exec_flag(const rabbet_exec_t* exec, const char* name);
// All values of a flag, as many as fit; how many.
size_t rabbet_exec_flag_list(const rabbet_exec_t* exec, const char* name,
                             const char** values, size_t capacity);
rabbet_status_t rabbet_exec_number(const rabbet_exec_t* exec, const char* name,
                                   double low, double high, double fallback,
                                   double* out_value);
// Checks all flags, prints those without effect, fills shapes and inner.
rabbet_status_t rabbet_exec_parse(int argc, char** argv, rabbet_exec_t* exec);
// The flags that do something, for rabbet_command_t.
bool rabbet_exec_flag_at(size_t index, rabbet_option_t* out_option);
void rabbet_exec_help(void);
// "[11/21/2026-14:00:00] [I] ..." and a newline.
void rabbet_exec_log(char severity, const char* format, ...)
    RABBET_PRINTF(2, 3);

// ---- Building (exec_build.c)

// Called by rabbet_cli_build before it builds: applies a rabbet_exec_t's
// settings.
rabbet_status_t rabbet_exec_adjust(void* exec, rabbet_network_t* network,
                                   rabbet_builder_config_t* config);
// Ranges of the file --calib (exec_calibration.c).
rabbet_status_t rabbet_exec_calibrate(const rabbet_exec_t* exec,
                                      rabbet_network_t* network);
rabbet_status_t rabbet_exec_refit(const rabbet_exec_t* exec,
                                  rabbet_engine_t* engine);

// ---- Measuring and reporting (exec_times.c); measure calls describe

rabbet_status_t rabbet_exec_measure(const rabbet_exec_t* exec,
                                    rabbet_context_t* context,
                                    rabbet_tensor_set_t* tensors);
rabbet_status_t rabbet_exec_describe(const rabbet_exec_t* exec,
                                     rabbet_engine_t* engine,
                                     rabbet_context_t* context);

#endif  // RABBET_SRC_CLI_EXEC_H_
