// Entry points of the command: from the shell, and from inside Python.
#ifndef RABBET_SRC_CLI_MAIN_H_
#define RABBET_SRC_CLI_MAIN_H_

#include "cli/cli.h"

// Python's part of the command.
typedef struct rabbet_cli_python_t {
  // Reports why `command` failed. Takes the status.
  void (*report)(const char* command, rabbet_status_t status);
  // Runs a command that is written in Python.
  rabbet_status_t (*run)(const char* command,
                         const rabbet_arguments_t* arguments);
} rabbet_cli_python_t;

// Runs a command line and returns the exit code. `python` is NULL in the
// program itself; Python gives its own part, and has imported the Python files
// given to --plugins, which are then passed over.
int rabbet_cli_main(int argc, char** argv, const rabbet_cli_python_t* python);

#endif  // RABBET_SRC_CLI_MAIN_H_
