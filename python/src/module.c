// The extension module rabbet._rabbet.
#include "python/src/rabbet_py.h"

rabbet_py_types_t rabbet_py_types;

int rabbet_py_add_type(PyObject* module, const char* name, PyType_Spec* spec,
                       PyTypeObject** out_type) {
  *out_type = (PyTypeObject*)PyType_FromModuleAndSpec(module, spec, NULL);
  if (!*out_type) return -1;
  return PyModule_AddObjectRef(module, name, (PyObject*)*out_type);
}

void rabbet_py_replace(PyObject** slot, PyObject* take_value) {
  PyObject* old = *slot;
  *slot = take_value;
  Py_XDECREF(old);
}

// configure(errors, tensor class, layer classes, layer class, dtypes, formats):
// the classes of the package that C makes objects of.
static PyObject* rabbet_py_configure(PyObject* module, PyObject* args) {
  (void)module;
  PyObject *errors, *tensor, *layers, *layer, *dtypes, *formats;
  if (!PyArg_ParseTuple(args, "O!O!O!O!O!O!", &PyTuple_Type, &errors,
                        &PyType_Type, &tensor, &PyDict_Type, &layers,
                        &PyType_Type, &layer, &PyTuple_Type, &dtypes,
                        &PyDict_Type, &formats)) {
    return NULL;
  }
  rabbet_py_replace(&rabbet_py_types.status_errors, Py_NewRef(errors));
  rabbet_py_replace(&rabbet_py_types.tensor_class, Py_NewRef(tensor));
  rabbet_py_replace(&rabbet_py_types.layer_classes, Py_NewRef(layers));
  rabbet_py_replace(&rabbet_py_types.layer_class, Py_NewRef(layer));
  rabbet_py_replace(&rabbet_py_types.dtypes, Py_NewRef(dtypes));
  rabbet_py_replace(&rabbet_py_types.formats, Py_NewRef(formats));
  Py_RETURN_NONE;
}

static PyObject* rabbet_py_version(PyObject* module, PyObject* none) {
  (void)module, (void)none;
  return PyUnicode_FromString(rabbet_version());
}

static PyMethodDef rabbet_py_functions[] = {
    {"configure", rabbet_py_configure, METH_VARARGS, NULL},
    {"version", rabbet_py_version, METH_NOARGS, NULL},
    {NULL},
};

static struct PyModuleDef rabbet_py_module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_rabbet",
    .m_doc = "C part of the package rabbet; not for direct use.",
    .m_size = -1,  // one registry of plugins per process, so one module
    .m_methods = rabbet_py_functions,
};

PyMODINIT_FUNC PyInit__rabbet(void);
PyMODINIT_FUNC PyInit__rabbet(void) {
  static int (*const parts[])(PyObject*) = {
      rabbet_py_add_network,       rabbet_py_add_network_tensor,
      rabbet_py_add_network_layer, rabbet_py_add_builder,
      rabbet_py_add_build,         rabbet_py_add_onnx,
      rabbet_py_add_engine,        rabbet_py_add_context,
      rabbet_py_add_dim_builder,   rabbet_py_add_shape,
      rabbet_py_add_tensor,        rabbet_py_add_plugin,
      rabbet_py_add_refitter,      rabbet_py_add_runner,
      rabbet_py_add_command,       rabbet_py_add_device_array,
      rabbet_py_add_source_host,
  };
  PyObject* module = PyModule_Create(&rabbet_py_module);
  for (size_t i = 0; module && i < sizeof(parts) / sizeof(parts[0]); ++i) {
    if (parts[i](module)) Py_CLEAR(module);
  }
  return module;
}
