// The command `rabbet` inside Python, where plugin files have been imported.
#include <signal.h>

#include "cli/main.h"
#include "core/shape_text.h"
#include "python/src/rabbet_py.h"

// With its traceback. PyErr_Print would end the process at a SystemExit.
static void py_cli_show(PyObject* exception) {
  PyObject* module = PyImport_ImportModule("traceback");
  PyObject* done =
      module ? PyObject_CallMethod(module, "print_exception", "O", exception)
             : NULL;
  if (!done) {
    PyErr_Clear();
    PySys_FormatStderr("%R\n", exception);
  }
  Py_XDECREF(done);
  Py_XDECREF(module);
}

// A plugin's exception is shown with its traceback, all else by its message, as
// the program itself does.
static void py_cli_report(const char* command, rabbet_status_t status) {
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject* exception = rabbet_py_exception_from_status(status);
  PyObject* traceback = exception ? PyException_GetTraceback(exception) : NULL;
  if (traceback) {
    PySys_WriteStderr("rabbet %s: a plugin raised an exception\n", command);
    py_cli_show(exception);
  } else if (exception) {
    PySys_FormatStderr("rabbet %s: %S\n", command, exception);
  } else {
    PyErr_Print();
  }
  Py_XDECREF(traceback);
  Py_XDECREF(exception);
  PyGILState_Release(gil);
}

// {option: [values]} of what was given; a flag has the value "".
static PyObject* py_cli_options(const rabbet_arguments_t* arguments) {
  PyObject* options = PyDict_New();
  for (size_t i = 0; options && i < arguments->option_count; ++i) {
    if (arguments->counts[i] == 0) continue;
    PyObject* values = PyList_New(0);
    int failed = !values || PyDict_SetItemString(
                                options, arguments->options[i].name, values);
    for (size_t k = 0; !failed && k < arguments->counts[i]; ++k) {
      const char* text = arguments->values[i][k];
      PyObject* value = PyUnicode_DecodeFSDefault(text ? text : "");
      failed = !value || PyList_Append(values, value);
      Py_XDECREF(value);
    }
    Py_XDECREF(values);
    if (failed) Py_CLEAR(options);
  }
  return options;
}

// The status that the function answers: None, or (code, message).
static rabbet_status_t py_cli_answer(PyObject* answer) {
  int code = 0;
  const char* message = NULL;
  if (answer && Py_IsNone(answer)) return rabbet_ok();
  if (!answer || !PyArg_ParseTuple(answer, "is", &code, &message))
    return rabbet_py_status_from_exception();
  return RABBET_STATUS((rabbet_status_code_t)code, "%s", message);
}

// Calls run(operand, options) of the module rabbet._COMMAND_command.
static rabbet_status_t py_cli_run_command(const char* command,
                                          const rabbet_arguments_t* arguments) {
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject* name = PyUnicode_FromFormat("rabbet._%s_command", command);
  PyObject* module = name ? PyImport_Import(name) : NULL;
  PyObject* options = module ? py_cli_options(arguments) : NULL;
  PyObject* operand =
      options ? PyUnicode_DecodeFSDefault(arguments->operands[0]) : NULL;
  PyObject* answer =
      operand ? PyObject_CallMethod(module, "run", "OO", operand, options)
              : NULL;
  rabbet_status_t status = py_cli_answer(answer);
  Py_XDECREF(answer);
  Py_XDECREF(operand);
  Py_XDECREF(options);
  Py_XDECREF(module);
  Py_XDECREF(name);
  PyGILState_Release(gil);
  return status;
}

// Runs with the words of `list`, whose encoded forms `keep` holds.
static PyObject* py_cli_run(PyObject* list, PyObject* keep) {
  Py_ssize_t count = PyList_Size(list);
  char** words = PyMem_Calloc((size_t)count + 1, sizeof(*words));
  if (!words) return PyErr_NoMemory();
  for (Py_ssize_t i = 0; i < count; ++i) {
    // Paths need not be UTF-8: encoded as the system gave them.
    PyObject* bytes = PyUnicode_EncodeFSDefault(PyList_GetItem(list, i));
    bool kept = bytes && PyList_Append(keep, bytes) == 0;
    if (kept) words[i] = PyBytes_AsString(bytes);
    Py_XDECREF(bytes);
    if (!kept) {
      PyMem_Free(words);
      return NULL;
    }
  }
  // Ctrl-C ends the command as it would outside of Python, whose handler would
  // only set a flag.
  void (*handler)(int) = signal(SIGINT, SIG_DFL);
  static const rabbet_cli_python_t python = {.report = py_cli_report,
                                             .run = py_cli_run_command};
  int code = 0;
  Py_BEGIN_ALLOW_THREADS;
  code = rabbet_cli_main((int)count, words, &python);
  Py_END_ALLOW_THREADS;
  signal(SIGINT, handler);
  PyMem_Free(words);
  return PyLong_FromLong(code);
}

// cli_main(["rabbet", ...]) -> exit code
static PyObject* py_cli_main(PyObject* module, PyObject* list) {
  (void)module;
  if (!PyList_Check(list)) {
    PyErr_SetString(PyExc_TypeError, "cli_main: expected a list of str");
    return NULL;
  }
  PyObject* keep = PyList_New(0);
  PyObject* code = keep ? py_cli_run(list, keep) : NULL;
  Py_XDECREF(keep);
  return code;
}

static PyObject* py_named_dims(const rabbet_named_dims_t* shape) {
  PyObject* dims = PyTuple_New(shape->dims.rank);
  for (int32_t i = 0; dims && i < shape->dims.rank; ++i) {
    PyObject* extent = PyLong_FromLongLong(shape->dims.d[i]);
    if (!extent || PyTuple_SetItem(dims, i, extent) < 0) Py_CLEAR(dims);
  }
  return dims ? Py_BuildValue("(sNN)", shape->name,
                              PyBool_FromLong(shape->quoted), dims)
              : NULL;
}

// parse_shapes("a:1x3,b:8") -> [(name, whether it was quoted, shape), ...]
static PyObject* py_parse_shapes(PyObject* module, PyObject* object) {
  (void)module;
  const char* text = PyUnicode_AsUTF8AndSize(object, NULL);
  if (!text) return NULL;
  rabbet_arena_t arena;
  rabbet_named_dims_t* shapes = NULL;
  size_t count = 0;
  rabbet_arena_initialize(rabbet_allocator_system(), &arena);
  rabbet_status_t status =
      rabbet_shape_text_parse(text, &arena, &shapes, &count);
  PyObject* list = NULL;
  if (rabbet_is_ok(status)) list = PyList_New((Py_ssize_t)count);
  for (size_t i = 0; list && i < count; ++i) {
    PyObject* item = py_named_dims(&shapes[i]);
    if (!item || PyList_SetItem(list, (Py_ssize_t)i, item) < 0) Py_CLEAR(list);
  }
  rabbet_arena_deinitialize(&arena);
  return rabbet_is_ok(status) ? list : rabbet_py_raise(status);
}

int rabbet_py_add_command(PyObject* module) {
  static PyMethodDef functions[] = {
      {"cli_main", py_cli_main, METH_O, NULL},
      {"parse_shapes", py_parse_shapes, METH_O, NULL},
      {NULL},
  };
  return PyModule_AddFunctions(module, functions);
}
