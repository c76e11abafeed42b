// ONNX import.
#include "python/src/rabbet_py.h"

static PyObject* rabbet_py_onnx_error_list(const rabbet_onnx_errors_t* errors) {
  size_t count = rabbet_onnx_errors_count(errors);
  PyObject* list = PyList_New((Py_ssize_t)count);
  for (size_t i = 0; list && i < count; ++i) {
    const rabbet_onnx_error_t* error = rabbet_onnx_errors_get(errors, i);
    PyObject* item = Py_BuildValue(
        "(iiNNN)", (int)error->code, error->node,
        rabbet_py_message(error->node_name ? error->node_name : ""),
        rabbet_py_message(error->op_type ? error->op_type : ""),
        rabbet_py_message(error->message ? error->message : ""));
    if (!item || PyList_SetItem(list, (Py_ssize_t)i, item) < 0) {
      Py_CLEAR(list);
    }
  }
  return list;
}

// Initializers of a dict {name: bytes}, borrowed from it; NULL with an
// exception set on failure.
static rabbet_onnx_initializer_t* rabbet_py_initializers(PyObject* dict,
                                                         size_t* out_count) {
  Py_ssize_t at = 0;
  PyObject *name = NULL, *data = NULL;
  *out_count = 0;
  rabbet_onnx_initializer_t* list =
      PyMem_Calloc((size_t)PyDict_Size(dict) + 1, sizeof(*list));
  if (!list) return (void*)PyErr_NoMemory();
  while (PyDict_Next(dict, &at, &name, &data)) {
    rabbet_onnx_initializer_t* item = &list[(*out_count)++];
    char* bytes = NULL;
    Py_ssize_t size = 0;
    if (rabbet_py_to_text(name, "initializer", false, &item->name) ||
        PyBytes_AsStringAndSize(data, &bytes, &size) < 0) {
      PyMem_Free(list);
      return NULL;
    }
    item->data = bytes;
    item->size = (size_t)size;
  }
  return list;
}

// import_onnx(network, path | None, data | None, override, initializers)
//   -> (exception | None, [(code, node, node name, operator, message)],
//       number of nodes)
static PyObject* rabbet_py_import_onnx(PyObject* module, PyObject* args) {
  (void)module;
  PyObject *network_object, *data, *given;
  const char* path = NULL;
  int override = 0;
  if (!PyArg_ParseTuple(args, "OzOpO!", &network_object, &path, &data,
                        &override, &PyDict_Type, &given)) {
    return NULL;
  }
  void* network = rabbet_py_handle_get(network_object, rabbet_py_types.network);
  if (!network) return NULL;
  Py_buffer view = {0};
  bool from_memory = !Py_IsNone(data);
  if (from_memory && PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0) {
    return NULL;
  }
  rabbet_onnx_errors_t* errors = NULL;
  rabbet_onnx_options_t options = {.struct_size = sizeof(options),
                                   .plugin_override = override != 0};
  rabbet_onnx_initializer_t* initializers =
      rabbet_py_initializers(given, &options.initializer_count);
  if (!initializers) {
    if (from_memory) PyBuffer_Release(&view);
    return NULL;
  }
  options.initializers = initializers;
  rabbet_status_t status =
      rabbet_onnx_errors_create(rabbet_allocator_system(), &errors);
  if (rabbet_is_ok(status)) {
    Py_BEGIN_ALLOW_THREADS if (from_memory) {
      status = rabbet_onnx_import_memory(network, view.buf, (size_t)view.len,
                                         path, &options, errors);
    }
    else {
      status = rabbet_onnx_import_file(network, path, &options, errors);
    }
    Py_END_ALLOW_THREADS
  }
  if (from_memory) PyBuffer_Release(&view);
  PyMem_Free(initializers);
  PyObject* exception = rabbet_is_ok(status)
                            ? Py_NewRef(Py_None)
                            : rabbet_py_exception_from_status(status);
  PyObject* list =
      exception && errors ? rabbet_py_onnx_error_list(errors) : PyList_New(0);
  Py_ssize_t nodes =
      errors ? (Py_ssize_t)rabbet_onnx_errors_node_count(errors) : 0;
  PyObject* result =
      exception && list ? Py_BuildValue("(OOn)", exception, list, nodes) : NULL;
  Py_XDECREF(exception);
  Py_XDECREF(list);
  rabbet_onnx_errors_destroy(errors);
  return result;
}

static PyObject* rabbet_py_onnx_supports(PyObject* module, PyObject* args) {
  (void)module;
  const char *domain = NULL, *op = NULL;
  if (!PyArg_ParseTuple(args, "ss", &domain, &op)) return NULL;
  return PyBool_FromLong(rabbet_onnx_supports(domain, op));
}

static PyMethodDef rabbet_py_onnx_functions[] = {
    {"import_onnx", rabbet_py_import_onnx, METH_VARARGS, NULL},
    {"onnx_supports", rabbet_py_onnx_supports, METH_VARARGS, NULL},
    {NULL},
};

int rabbet_py_add_onnx(PyObject* module) {
  return PyModule_AddFunctions(module, rabbet_py_onnx_functions);
}
