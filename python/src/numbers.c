// The numbers of C enumerations that the package uses.
#include "python/src/plugin_adapter.h"
#include "python/src/rabbet_py.h"
#include "rabbet/builder.h"
#include "rabbet/plugin.h"

typedef struct py_number_t {
  const char* name;
  int value;
} py_number_t;

#define NUMBER(name) {#name, RABBET_##name},
#define OPTION(name) {"OPTION_" #name, RABBET_BUILDER_OPTION_##name},
#define ARG(name) {"ARG_" #name, RABBET_PY_ARG_##name},

static const py_number_t py_numbers[] = {
    // clang-format off
    NUMBER(ATTR_INT) NUMBER(ATTR_FLOAT) NUMBER(ATTR_BOOL) NUMBER(ATTR_STRING)
    NUMBER(ATTR_BYTES) NUMBER(ATTR_INTS) NUMBER(ATTR_FLOATS) NUMBER(ATTR_BOOLS)
    NUMBER(ATTR_STRINGS) NUMBER(ATTR_TENSOR)
    NUMBER(PLUGIN_RUNS) NUMBER(PLUGIN_READY) NUMBER(PLUGIN_PREFER_RUNS)
    NUMBER(PLUGIN_PREFER_READY) NUMBER(PLUGIN_CAPTURE_TRIAL)
    NUMBER(PLUGIN_CAPTURE_SAFE) NUMBER(PLUGIN_CAPTURE_NEVER)
    NUMBER(PLUGIN_ARG_INPUT) NUMBER(PLUGIN_ARG_OUTPUT)
    NUMBER(PLUGIN_ARG_WORKSPACE) NUMBER(PLUGIN_ARG_INTEGER)
    NUMBER(PLUGIN_ARG_BYTES) NUMBER(PLUGIN_ARG_TENSOR_MAP)
    ARG(INPUT) ARG(VALUE) ARG(OUTPUTS) ARG(STREAM) ARG(TACTIC) ARG(THREADS)
    OPTION(FLAGS) OPTION(OPTIMIZATION_LEVEL) OPTION(WORKSPACE_LIMIT)
    OPTION(AVG_TIMING) OPTION(MAX_TACTICS) OPTION(PROFILING_VERBOSITY)
    OPTION(THREADS) OPTION(ERROR_ON_TIMING_CACHE_MISS)
    OPTION(KEEP_PLUGIN_SOURCE) OPTION(TACTIC_SOURCES) OPTION(TRY_PLUGINS)
    OPTION(TACTIC_MEMORY)
    NUMBER(STATUS_INVALID_ARGUMENT) NUMBER(STATUS_NOT_FOUND)
    NUMBER(STATUS_OUT_OF_RANGE) NUMBER(STATUS_OUT_OF_MEMORY)
    NUMBER(STATUS_UNSUPPORTED) NUMBER(STATUS_DATA_LOSS)
    NUMBER(STATUS_INCOMPATIBLE) NUMBER(STATUS_IO)
    // clang-format on
};

// NUMBERS: {"ATTR_INT": RABBET_ATTR_INT, ...}
int rabbet_py_add_numbers(PyObject* module) {
  PyObject* dict = PyDict_New();
  int failed = dict ? 0 : -1;
  const size_t count = sizeof(py_numbers) / sizeof(py_numbers[0]);
  for (size_t i = 0; !failed && i < count; ++i) {
    PyObject* value = PyLong_FromLong(py_numbers[i].value);
    failed = value ? PyDict_SetItemString(dict, py_numbers[i].name, value) : -1;
    Py_XDECREF(value);
  }
  if (!failed) failed = PyModule_AddObjectRef(module, "NUMBERS", dict);
  Py_XDECREF(dict);
  return failed;
}
