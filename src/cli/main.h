// Entry points of the command: from the shell, and from inside Python.
#ifndef RABBET_SRC_CLI_MAIN_H_
#define RABBET_SRC_CLI_MAIN_H_

#include "rabbet/status.h"

// Reports why `command` failed. Takes the status.
typedef void (*rabbet_cli_report_t)(const char* command,
                                    rabbet_status_t status);

// Runs a command line and returns the exit code. `report` is NULL in the
// program itself; Python gives its own, and has imported the Python files given
// to --plugins, which are then passed over.
int rabbet_cli_main(int argc, char** argv, rabbet_cli_report_t report);

#endif  // RABBET_SRC_CLI_MAIN_H_
