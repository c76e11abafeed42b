// ONNX import.
#include "python/src/rabbet_py.h"

static PyObject* py_onnx_error_list(const rabbet_onnx_errors_t* errors) {
  size_t count = rabbet_onnx_errors_count(errors);
  PyObject* list = PyList_New((Py_ssize_t)count);
  for (size_t i = 0; list && i < count; ++i) {
    const rabbet_onnx_error_t* error = rabbet_onnx_errors_get(errors, i);
    PyObject* item = Py_BuildValue(
        "(iiNNNi)", (int)error->code, error->node,
        rabbet_py_message(error->node_name ? error->node_name : ""),
        rabbet_py_message(error->op_type ? error->op_type : ""),
        rabbet_py_message(error->message ? error->message : ""),
        error->outer_node);
    if (!item || PyList_SetItem(list, (Py_ssize_t)i, item) < 0) {
      Py_CLEAR(list);
    }
  }
  return list;
}

// Initializers of a dict {name: buffer} that nobody else has, with their
// buffers; NULL with an exception set on failure.
static rabbet_onnx_initializer_t* py_initializers(PyObject* dict,
                                                  Py_buffer* views,
                                                  size_t* out_count) {
  Py_ssize_t at = 0;
  PyObject *name = NULL, *data = NULL;
  rabbet_onnx_initializer_t* list =
      PyMem_Calloc((size_t)PyDict_Size(dict) + 1, sizeof(*list));
  if (!list) return (void*)PyErr_NoMemory();
  while (PyDict_Next(dict, &at, &name, &data)) {
    rabbet_onnx_initializer_t* item = &list[*out_count];
    Py_buffer* view = &views[*out_count];
    if (rabbet_py_to_text(name, "initializer", false, &item->name) ||
        PyObject_GetBuffer(data, view, PyBUF_SIMPLE) < 0) {
      PyMem_Free(list);
      return NULL;
    }
    ++*out_count;
    item->data = view->buf;
    item->size = (size_t)view->len;
  }
  return list;
}

// Shapes of a dict {name: (extent, ...)} that nobody else has; NULL with an
// exception set on failure.
static rabbet_onnx_input_t* py_shapes(PyObject* dict, size_t* out_count) {
  Py_ssize_t at = 0;
  PyObject *name = NULL, *shape = NULL;
  rabbet_onnx_input_t* list =
      PyMem_Calloc((size_t)PyDict_Size(dict) + 1, sizeof(*list));
  if (!list) return (void*)PyErr_NoMemory();
  while (PyDict_Next(dict, &at, &name, &shape)) {
    rabbet_onnx_input_t* item = &list[(*out_count)++];
    if (rabbet_py_to_text(name, "input", false, &item->name) ||
        rabbet_py_to_dims(shape, item->name, &item->dims)) {
      PyMem_Free(list);
      return NULL;
    }
  }
  return list;
}

typedef struct py_import_t {
  rabbet_network_t* network;
  const char* path;
  Py_buffer view;
  bool from_memory;
  rabbet_onnx_options_t options;
  rabbet_onnx_errors_t* errors;
} py_import_t;

// The network is the import's alone meanwhile.
static rabbet_status_t py_run_import(py_import_t* import) {
  rabbet_status_t status =
      rabbet_onnx_errors_create(rabbet_allocator_system(), &import->errors);
  if (!rabbet_is_ok(status)) return status;
  Py_BEGIN_ALLOW_THREADS if (import->from_memory) {
    status = rabbet_onnx_import_memory(import->network, import->view.buf,
                                       (size_t)import->view.len, import->path,
                                       &import->options, import->errors);
  }
  else {
    status = rabbet_onnx_import_file(import->network, import->path,
                                     &import->options, import->errors);
  }
  Py_END_ALLOW_THREADS return status;
}

static PyObject* py_import_result(const py_import_t* import,
                                  rabbet_status_t status) {
  const rabbet_onnx_errors_t* errors = import->errors;
  PyObject* exception = rabbet_is_ok(status)
                            ? Py_NewRef(Py_None)
                            : rabbet_py_exception_from_status(status);
  PyObject* list =
      exception && errors ? py_onnx_error_list(errors) : PyList_New(0);
  Py_ssize_t nodes =
      errors ? (Py_ssize_t)rabbet_onnx_errors_node_count(errors) : 0;
  PyObject* result =
      exception && list ? Py_BuildValue("(OOn)", exception, list, nodes) : NULL;
  Py_XDECREF(exception);
  Py_XDECREF(list);
  return result;
}

static PyObject* py_import(PyObject* network, PyObject* data,
                           PyObject* initializers, PyObject* shapes,
                           PyObject* usual_shapes, py_import_t* import) {
  import->from_memory = !Py_IsNone(data);
  if (import->from_memory &&
      PyObject_GetBuffer(data, &import->view, PyBUF_SIMPLE) < 0) {
    return NULL;
  }
  size_t count = 0;
  Py_buffer* views =
      PyMem_Calloc((size_t)PyDict_Size(initializers) + 1, sizeof(*views));
  rabbet_onnx_initializer_t* list =
      views ? py_initializers(initializers, views, &count)
            : (void*)PyErr_NoMemory();
  import->options.initializer_count = count;
  import->options.initializers = list;
  import->options.initializer_size = sizeof(*list);
  rabbet_onnx_input_t* inputs =
      list ? py_shapes(shapes, &import->options.input_count) : NULL;
  rabbet_onnx_input_t* usual =
      inputs ? py_shapes(usual_shapes, &import->options.usual_count) : NULL;
  import->options.inputs = inputs;
  import->options.usual_inputs = usual;
  import->options.input_size = sizeof(*inputs);
  PyObject* result = NULL;
  RABBET_PY_HOLD(network);
  if (usual && !rabbet_py_begin(network, "network")) {
    rabbet_status_t status = py_run_import(import);
    rabbet_py_end(network);
    result = py_import_result(import, status);
  }
  if (import->from_memory) PyBuffer_Release(&import->view);
  for (size_t i = 0; i < count; ++i)
    PyBuffer_Release(&views[i]);
  PyMem_Free(views);
  PyMem_Free(list);
  PyMem_Free(inputs);
  PyMem_Free(usual);
  rabbet_onnx_errors_destroy(import->errors);
  return result;
}

// import_onnx(network, path | None, data | None, override, initializers,
//             borrow: whether the initializers outlive the network,
//             double: whether DOUBLE is kept, shapes: {input: extents},
//             usual: {input: extents of most runs})
//   -> (exception | None, [(code, node, node name, operator, message, node of
//   the main graph)],
//       number of nodes)
static PyObject* py_import_onnx(PyObject* module, PyObject* args) {
  (void)module;
  PyObject *network, *path, *data, *given, *shapes, *usual, *name = NULL;
  int override = 0, borrow = 0, keep_double = 0;
  py_import_t import = {
      .options = {.struct_size = sizeof(rabbet_onnx_options_t)}};
  if (!PyArg_ParseTuple(args, "OOOpO!ppO!O!", &network, &path, &data, &override,
                        &PyDict_Type, &given, &borrow, &keep_double,
                        &PyDict_Type, &shapes, &PyDict_Type, &usual)) {
    return NULL;
  }
  import.options.plugin_override = override != 0;
  import.options.borrow_initializers = borrow != 0;
  import.options.keep_double = keep_double != 0;
  import.network = rabbet_py_handle_get(network, rabbet_py_types.network);
  // As bytes: a path need not be UTF-8.
  if (!Py_IsNone(path) && !PyUnicode_FSConverter(path, &name)) return NULL;
  import.path = name ? PyBytes_AsString(name) : NULL;
  PyObject* initializers = import.network ? PyDict_Copy(given) : NULL;
  PyObject* own_shapes = initializers ? PyDict_Copy(shapes) : NULL;
  PyObject* own_usual = own_shapes ? PyDict_Copy(usual) : NULL;
  PyObject* result = own_usual ? py_import(network, data, initializers,
                                           own_shapes, own_usual, &import)
                               : NULL;
  Py_XDECREF(initializers);
  Py_XDECREF(own_shapes);
  Py_XDECREF(own_usual);
  Py_XDECREF(name);
  return result;
}

static PyObject* py_onnx_supports(PyObject* module, PyObject* args) {
  (void)module;
  const char *domain = NULL, *op = NULL;
  if (!PyArg_ParseTuple(args, "ss", &domain, &op)) return NULL;
  return PyBool_FromLong(rabbet_onnx_supports(domain, op));
}

static PyMethodDef py_onnx_functions[] = {
    {"import_onnx", py_import_onnx, METH_VARARGS, NULL},
    {"onnx_supports", py_onnx_supports, METH_VARARGS, NULL},
    {NULL},
};

int rabbet_py_add_onnx(PyObject* module) {
  return PyModule_AddFunctions(module, py_onnx_functions);
}
