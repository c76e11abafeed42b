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

// import_onnx(network, path | None, data | None, override)
//   -> (exception | None, [(code, node, node name, operator, message)])
static PyObject* rabbet_py_import_onnx(PyObject* module, PyObject* args) {
  (void)module;
  PyObject *network_object, *data;
  const char* path = NULL;
  int override = 0;
  if (!PyArg_ParseTuple(args, "OzOp", &network_object, &path, &data,
                        &override)) {
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
  PyObject* exception = rabbet_is_ok(status)
                            ? Py_NewRef(Py_None)
                            : rabbet_py_exception_from_status(status);
  PyObject* list =
      exception && errors ? rabbet_py_onnx_error_list(errors) : PyList_New(0);
  PyObject* result =
      exception && list ? PyTuple_Pack(2, exception, list) : NULL;
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
