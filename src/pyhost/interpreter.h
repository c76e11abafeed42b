// Which Python there is: asked of the interpreter, in a process of its own.
#ifndef RABBET_SRC_PYHOST_INTERPRETER_H_
#define RABBET_SRC_PYHOST_INTERPRETER_H_

#include "rabbet/status.h"

#define RABBET_INTERPRETER_TEXT 4096

typedef struct rabbet_interpreter_t {
  int major, minor;
  char executable[RABBET_INTERPRETER_TEXT];
  char library[RABBET_INTERPRETER_TEXT];  // "": none is known
} rabbet_interpreter_t;

// UNAVAILABLE if it cannot be run, INCOMPATIBLE if it is too old.
rabbet_status_t rabbet_interpreter_ask(const char* python,
                                       rabbet_interpreter_t* out_interpreter);

#endif  // RABBET_SRC_PYHOST_INTERPRETER_H_
