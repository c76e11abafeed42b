// Entry points of the command: from the shell, and from inside Python.
#ifndef RABBET_SRC_CLI_MAIN_H_
#define RABBET_SRC_CLI_MAIN_H_

// Runs a command line and returns the exit code. `hosted`: Python calls and has
// imported the plugin files, which are then passed over.
int rabbet_cli_main(int argc, char** argv, int hosted);

#endif  // RABBET_SRC_CLI_MAIN_H_
