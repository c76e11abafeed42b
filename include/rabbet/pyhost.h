// Python in a C program: runs plans whose plugins are written in Python.
//
// librabbet_pyhost brings an interpreter into the process. It is not linked
// with Python, but opens the shared library of the installed one.
//
//   rabbet_pyhost_start(NULL);                      // once
//   rabbet_pyhost_load_plugins(files, file_count);  // or the plan carries them
//   rabbet_engine_load(...) ... rabbet_engine_release(engine);
//   rabbet_pyhost_stop();                           // optional, at the end
//
// The GIL: after start no thread holds it. Functions of Rabbet are called from
// any thread without it, as in every C program, and take it only while a
// plugin's function runs; so these functions run one at a time, and everything
// else in parallel. A program that uses Python's C API itself does so between
// PyGILState_Ensure and PyGILState_Release, and makes no long calls of Rabbet
// in between: another thread's run may wait for the GIL. Python installs no
// signal handlers. A forked process must not use Python.
#ifndef RABBET_PYHOST_H_
#define RABBET_PYHOST_H_

#include "rabbet/status.h"

RABBET_EXTERN_C_BEGIN

typedef struct rabbet_pyhost_options_t {
  uint32_t struct_size;
  // The interpreter (Python 3.11 or newer) whose packages are used, also that
  // of a virtual environment; `rabbet`, of this version, must be among them.
  // NULL: $RABBET_PYTHON, or else python3 on PATH.
  const char* python;
  // Its shared library (libpython3.11.so.1.0); NULL: where it says that it is.
  const char* library;
} rabbet_pyhost_options_t;

// `options` may be NULL. Of no effect if Python runs in the process already, by
// this or otherwise, but that `rabbet` is imported. UNAVAILABLE if there is no
// interpreter, no shared library of it, or no package; INCOMPATIBLE if one of
// them is of another version than is needed; FAILED_PRECONDITION after
// rabbet_pyhost_stop, as Python cannot be started twice. Waits for a process
// that asks the interpreter, some tens of milliseconds.
RABBET_API rabbet_status_t
rabbet_pyhost_start(const rabbet_pyhost_options_t* options);
// Files (.py, .so) and names of modules, as rabbet.compile(plugins=) takes
// them: loaded ones are not loaded again. An exception becomes the status, with
// its text.
RABBET_API rabbet_status_t
rabbet_pyhost_load_plugins(const char* const* plugins, size_t count);
// Ends the interpreter that start made, on the thread that called it;
// FAILED_PRECONDITION on another. Engines,
// contexts and statuses that have to do with Python plugins must be gone. Of no
// effect where Python is not ours.
RABBET_API rabbet_status_t rabbet_pyhost_stop(void);

RABBET_EXTERN_C_END
#endif  // RABBET_PYHOST_H_
