#define _GNU_SOURCE
#include "rabbet/pyhost.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "base/struct.h"
#include "base/symbol.h"
#include "plugin/source_host.h"
#include "pyhost/interpreter.h"

// ---- Functions of libpython, by name

typedef struct python_t {
  const char* (*Py_GetVersion)(void);
  int (*Py_IsInitialized)(void);
  void (*Py_InitializeEx)(int install_signal_handlers);
  int (*Py_FinalizeEx)(void);
  wchar_t* (*Py_DecodeLocale)(const char* text, size_t* size);
  void* (*PyEval_SaveThread)(void);
  void (*PyEval_RestoreThread)(void* state);
  int (*PyGILState_Ensure)(void);
  void (*PyGILState_Release)(int state);
  void* (*PyImport_ImportModule)(const char* name);
  void (*PyErr_Fetch)(void** type, void** value, void** traceback);
  void (*PyErr_NormalizeException)(void** type, void** value, void** traceback);
  void* (*PyObject_Repr)(void* object);
  const char* (*PyUnicode_AsUTF8AndSize)(void* text, intptr_t* size);
  void (*PyErr_Clear)(void);
  void (*Py_DecRef)(void* object);
  // Python 3.14 and newer: the configuration is opaque, and its functions
  // return errors.
  void* (*PyInitConfig_Create)(void);
  void (*PyInitConfig_Free)(void* config);
  int (*PyInitConfig_SetStr)(void* config, const char* name, const char* text);
  int (*Py_InitializeFromInitConfig)(void* config);
  int (*PyInitConfig_GetError)(void* config, const char** out_text);
  // Older ones have this.
  void (*Py_SetProgramName)(const wchar_t* name);
} python_t;

#define RABBET_PYTHON_SYMBOL(name) \
  { #name, offsetof(python_t, name), false }
#define RABBET_PYTHON_OPTIONAL(name) \
  { #name, offsetof(python_t, name), true }
static const struct {
  const char* name;
  size_t offset;
  bool optional;
} python_symbols[] = {
    RABBET_PYTHON_SYMBOL(Py_GetVersion),
    RABBET_PYTHON_SYMBOL(Py_IsInitialized),
    RABBET_PYTHON_SYMBOL(Py_InitializeEx),
    RABBET_PYTHON_SYMBOL(Py_FinalizeEx),
    RABBET_PYTHON_SYMBOL(Py_DecodeLocale),
    RABBET_PYTHON_SYMBOL(PyEval_SaveThread),
    RABBET_PYTHON_SYMBOL(PyEval_RestoreThread),
    RABBET_PYTHON_SYMBOL(PyGILState_Ensure),
    RABBET_PYTHON_SYMBOL(PyGILState_Release),
    RABBET_PYTHON_SYMBOL(PyImport_ImportModule),
    RABBET_PYTHON_SYMBOL(PyErr_Fetch),
    RABBET_PYTHON_SYMBOL(PyErr_NormalizeException),
    RABBET_PYTHON_SYMBOL(PyObject_Repr),
    RABBET_PYTHON_SYMBOL(PyUnicode_AsUTF8AndSize),
    RABBET_PYTHON_SYMBOL(PyErr_Clear),
    RABBET_PYTHON_SYMBOL(Py_DecRef),
    RABBET_PYTHON_OPTIONAL(PyInitConfig_Create),
    RABBET_PYTHON_OPTIONAL(PyInitConfig_Free),
    RABBET_PYTHON_OPTIONAL(PyInitConfig_SetStr),
    RABBET_PYTHON_OPTIONAL(Py_InitializeFromInitConfig),
    RABBET_PYTHON_OPTIONAL(PyInitConfig_GetError),
    RABBET_PYTHON_OPTIONAL(Py_SetProgramName),
};

static rabbet_status_t python_find(void* library, const char* where,
                                   python_t* python) {
  for (size_t i = 0; i < sizeof(python_symbols) / sizeof(*python_symbols);
       ++i) {
    void* symbol = NULL;
    RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
        rabbet_symbol_function(library, python_symbols[i].name, &symbol),
        "'%s'", where));
    if (!symbol && !python_symbols[i].optional)
      return RABBET_STATUS(
          RABBET_STATUS_INCOMPATIBLE,
          "'%s' is not a libpython of version 3.11 or newer: it lacks %s",
          where, python_symbols[i].name);
    memcpy((char*)python + python_symbols[i].offset, &symbol, sizeof(symbol));
  }
  return rabbet_ok();
}

// ---- State of the process

typedef enum pyhost_state_t {
  RABBET_PYHOST_ABSENT = 0,
  RABBET_PYHOST_OURS = 1,     // started here
  RABBET_PYHOST_THEIRS = 2,   // was running before
  RABBET_PYHOST_STOPPED = 3,  // ours, ended
} pyhost_state_t;

static struct {
  pthread_mutex_t lock;
  pyhost_state_t state;
  pthread_t owner;  // OURS: the thread that started it
  python_t python;
  void* thread;  // state of the thread that started it, while nobody holds it
} pyhost = {.lock = PTHREAD_MUTEX_INITIALIZER};

// ---- Starting

static rabbet_status_t pyhost_open(const rabbet_pyhost_options_t* options,
                                   const rabbet_interpreter_t* interpreter,
                                   void** out_library) {
  char soname[64];
  snprintf(soname, sizeof(soname), "libpython%d.%d.so.1.0", interpreter->major,
           interpreter->minor);
  const char* path = options->library        ? options->library
                     : *interpreter->library ? interpreter->library
                                             : soname;
  // Extension modules find Python's functions in the process.
  *out_library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  if (!*out_library)
    return RABBET_STATUS(
        RABBET_STATUS_UNAVAILABLE,
        "the shared library of Python %d.%d ('%s') cannot be opened: %s. "
        "Install it (Debian: libpython%d.%d; Python itself is built with it by "
        "--enable-shared), or name it by rabbet_pyhost_options_t",
        interpreter->major, interpreter->minor, interpreter->executable,
        dlerror(), interpreter->major, interpreter->minor);
  RABBET_RETURN_IF_ERROR(python_find(*out_library, path, &pyhost.python));
  int major = 0, minor = 0;
  const char* version = pyhost.python.Py_GetVersion();
  if (sscanf(version, "%d.%d", &major, &minor) != 2 ||
      major != interpreter->major || minor != interpreter->minor)
    return RABBET_STATUS(RABBET_STATUS_INCOMPATIBLE,
                         "'%s' is of Python %d.%d, and '%s' is Python %d.%d; "
                         "they must be of one version",
                         path, major, minor, interpreter->executable,
                         interpreter->major, interpreter->minor);
  return rabbet_ok();
}

// So that it finds the packages of the interpreter's environment.
static rabbet_status_t pyhost_initialize(
    const rabbet_interpreter_t* interpreter) {
  const python_t* python = &pyhost.python;
  if (python->PyInitConfig_Create && python->PyInitConfig_Free &&
      python->PyInitConfig_SetStr && python->Py_InitializeFromInitConfig &&
      python->PyInitConfig_GetError) {
    void* config = python->PyInitConfig_Create();
    if (!config)
      return RABBET_STATUS(RABBET_STATUS_OUT_OF_MEMORY, "no memory for Python");
    const char* text = NULL;
    rabbet_status_t status = rabbet_ok();
    if (python->PyInitConfig_SetStr(config, "program_name",
                                    interpreter->executable) < 0 ||
        python->Py_InitializeFromInitConfig(config) < 0) {
      python->PyInitConfig_GetError(config, &text);
      status = RABBET_STATUS(RABBET_STATUS_UNAVAILABLE,
                             "Python cannot be started: %s", text ? text : "?");
    }
    python->PyInitConfig_Free(config);
    return status;
  }
  // It refers to the text for as long as it runs.
  static wchar_t* name;
  if (python->Py_SetProgramName && !name)
    name = python->Py_DecodeLocale(interpreter->executable, NULL);
  if (!python->Py_SetProgramName || !name)
    return RABBET_STATUS(RABBET_STATUS_INCOMPATIBLE,
                         "Python %d.%d cannot be told its environment",
                         interpreter->major, interpreter->minor);
  python->Py_SetProgramName(name);
  python->Py_InitializeEx(0);
  return rabbet_ok();
}

// The GIL is held.
static rabbet_status_t pyhost_import(const char* where) {
  const python_t* python = &pyhost.python;
  void* module = python->PyImport_ImportModule("rabbet");
  if (module) {
    python->Py_DecRef(module);
    return rabbet_ok();
  }
  void *type = NULL, *value = NULL, *traceback = NULL;
  python->PyErr_Fetch(&type, &value, &traceback);
  python->PyErr_NormalizeException(&type, &value, &traceback);
  void* repr = value ? python->PyObject_Repr(value) : NULL;
  const char* text = repr ? python->PyUnicode_AsUTF8AndSize(repr, NULL) : NULL;
  rabbet_status_t status =
      RABBET_STATUS(RABBET_STATUS_UNAVAILABLE,
                    "the package rabbet cannot be imported in '%s': %s", where,
                    text ? text : "unknown error");
  python->PyErr_Clear();
  void* const objects[] = {repr, type, value, traceback};
  for (int i = 0; i < 4; ++i)
    python->Py_DecRef(objects[i]);  // NULL is fine
  return status;
}

static rabbet_status_t pyhost_start_ours(
    const rabbet_pyhost_options_t* options) {
  const char* given =
      options->python ? options->python : getenv("RABBET_PYTHON");
  rabbet_interpreter_t interpreter;
  void* library = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_interpreter_ask(
      given && *given ? given : "python3", &interpreter));
  rabbet_status_t status = pyhost_open(options, &interpreter, &library);
  if (rabbet_is_ok(status)) status = pyhost_initialize(&interpreter);
  if (!rabbet_is_ok(status)) {
    if (library) dlclose(library);
    return status;
  }
  // From here on it stays loaded: a second start would not be safe.
  status = pyhost_import(interpreter.executable);
  pyhost.thread = pyhost.python.PyEval_SaveThread();
  pyhost.owner = pthread_self();
  pyhost.state = RABBET_PYHOST_OURS;
  return status;
}

// Ours that runs already, that of a process of Python, or of a program that has
// started it by itself.
static rabbet_status_t pyhost_join(void) {
  if (pyhost.state == RABBET_PYHOST_ABSENT) {
    RABBET_RETURN_IF_ERROR(
        python_find(RTLD_DEFAULT, "this process", &pyhost.python));
    pyhost.state = RABBET_PYHOST_THEIRS;
  }
  int gil = pyhost.python.PyGILState_Ensure();
  rabbet_status_t status = pyhost_import("the interpreter of this process");
  pyhost.python.PyGILState_Release(gil);
  return status;
}

// Python runs already, or the one that is asked for is started.
static rabbet_status_t pyhost_join_or_start(
    const rabbet_pyhost_options_t* options) {
  int (*is_initialized)(void) = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_symbol_function(
      RTLD_DEFAULT, "Py_IsInitialized", (void**)&is_initialized));
  return is_initialized && is_initialized() ? pyhost_join()
                                            : pyhost_start_ours(options);
}

rabbet_status_t rabbet_pyhost_start(const rabbet_pyhost_options_t* given) {
  rabbet_pyhost_options_t options;
  rabbet_status_t status =
      RABBET_STRUCT_READ(rabbet_pyhost_options_t, given, struct_size, &options);
  if (!rabbet_is_ok(status)) return RABBET_ANNOTATE(status, "starting Python");
  pthread_mutex_lock(&pyhost.lock);
  if (pyhost.state == RABBET_PYHOST_STOPPED)
    status = RABBET_STATUS(RABBET_STATUS_FAILED_PRECONDITION,
                           "Python was stopped (rabbet_pyhost_stop), and "
                           "cannot be started again in the same process");
  else
    status = pyhost_join_or_start(&options);
  pthread_mutex_unlock(&pyhost.lock);
  return RABBET_ANNOTATE(status, "starting Python");
}

// ---- Plugins, stopping

rabbet_status_t rabbet_pyhost_load_plugins(const char* const* plugins,
                                           size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (!plugins || !plugins[i])
      return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                           "loading plugins: name %zu of %zu is NULL", i,
                           count);
  }
  return RABBET_ANNOTATE(rabbet_source_host_load(plugins, count),
                         "loading plugins");
}

rabbet_status_t rabbet_pyhost_stop(void) {
  rabbet_status_t status = rabbet_ok();
  pthread_mutex_lock(&pyhost.lock);
  if (pyhost.state == RABBET_PYHOST_OURS &&
      !pthread_equal(pyhost.owner, pthread_self())) {
    // Python would wait for its main thread, which is the one that made it.
    status = RABBET_STATUS(RABBET_STATUS_FAILED_PRECONDITION,
                           "stopping Python: call rabbet_pyhost_stop on the "
                           "thread that called rabbet_pyhost_start");
  } else if (pyhost.state == RABBET_PYHOST_OURS) {
    pyhost.state = RABBET_PYHOST_STOPPED;
    rabbet_source_host_close();
    pyhost.python.PyEval_RestoreThread(pyhost.thread);
    if (pyhost.python.Py_FinalizeEx() != 0)
      status = RABBET_STATUS(RABBET_STATUS_IO,
                             "stopping Python: what it had printed could not "
                             "be written");
  }
  pthread_mutex_unlock(&pyhost.lock);
  return status;
}
