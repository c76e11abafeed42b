// The command's main, run inside Python (see rabbet/_cli.py).
#include <signal.h>

#include "cli/main.h"
#include "python/src/rabbet_py.h"

static PyObject* rabbet_py_cli_run(int argc, char** argv) {
  int code = 0;
  // Ctrl-C ends the command as it would outside of Python: nothing here waits
  // for the interpreter to look.
  void (*handler)(int) = signal(SIGINT, SIG_DFL);
  Py_BEGIN_ALLOW_THREADS code = rabbet_cli_main(argc, argv, 1);
  Py_END_ALLOW_THREADS signal(SIGINT, handler);
  return PyLong_FromLong(code);
}

// cli_main([program, argument, ...]) -> exit code
static PyObject* rabbet_py_cli_main(PyObject* module, PyObject* list) {
  (void)module;
  PyObject* items = PySequence_List(list);
  Py_ssize_t count = items ? PyList_Size(items) : 0;
  char** argv = items ? PyMem_Calloc((size_t)count + 1, sizeof(*argv)) : NULL;
  PyObject* result = NULL;
  bool fine = argv != NULL;
  PyObject* keep = fine ? PyList_New(0) : NULL;
  for (Py_ssize_t i = 0; fine && i < count; ++i) {
    // Paths need not be UTF-8: encoded as the system gave them.
    PyObject* bytes = PyUnicode_EncodeFSDefault(PyList_GetItem(items, i));
    fine = bytes && PyList_Append(keep, bytes) == 0;
    if (fine) argv[i] = PyBytes_AsString(bytes);
    Py_XDECREF(bytes);
  }
  if (fine) result = rabbet_py_cli_run((int)count, argv);
  if (items && !argv) PyErr_NoMemory();
  Py_XDECREF(keep);
  PyMem_Free(argv);
  Py_XDECREF(items);
  return result;
}

static PyMethodDef rabbet_py_cli_functions[] = {
    {"cli_main", rabbet_py_cli_main, METH_O, NULL},
    {NULL},
};

int rabbet_py_add_cli(PyObject* module) {
  return PyModule_AddFunctions(module, rabbet_py_cli_functions);
}
