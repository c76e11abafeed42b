// The extension module rabbet._rabbet.
#include "python/src/rabbet_py.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

rabbet_py_types_t rabbet_py_types;

int rabbet_py_add_type(PyObject* module, const char* name, PyType_Spec* spec,
                       PyTypeObject** out_type) {
  // The types stay when the module is imported anew: objects of them may, too.
  if (!*out_type)
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
  // Never freed: another thread may be about to use what was there before.
  Py_INCREF(args);
  for (int i = 0; i < RABBET_PY_FORMATS; ++i) {
    PyObject* key = PyLong_FromLong(i);
    PyObject* member = key ? rabbet_py_dict_get(formats, key) : NULL;
    Py_XDECREF(key);
    if (!member && PyErr_Occurred()) return NULL;
    rabbet_py_types.formats[i] = member;
  }
  rabbet_py_types.status_errors = errors;
  rabbet_py_types.tensor_class = tensor;
  rabbet_py_types.layer_classes = layers;
  rabbet_py_types.layer_class = layer;
  rabbet_py_types.dtypes = dtypes;
  Py_RETURN_NONE;
}

// ---- What threads share ----------------------------------------------------

PyObject* rabbet_py_cache(rabbet_py_cache_t* place, PyObject* take_object) {
  PyObject* found = NULL;
  if (atomic_compare_exchange_strong(place, &found, take_object))
    return take_object;
  Py_XDECREF(take_object);
  return found;
}

PyObject* rabbet_py_cache_loaded(rabbet_py_cache_t* place, const char* module,
                                 const char* name) {
  PyObject* found = *place;
  if (found) return found;
  PyObject* key = PyUnicode_FromString(module);
  PyObject* loaded = key ? PyImport_GetModule(key) : NULL;
  found = loaded ? PyObject_GetAttrString(loaded, name) : NULL;
  Py_XDECREF(key);
  Py_XDECREF(loaded);
  PyErr_Clear();
  return found ? rabbet_py_cache(place, found) : NULL;
}

PyObject* rabbet_py_cache_import(rabbet_py_cache_t* place, const char* module,
                                 const char* name) {
  PyObject* found = *place;
  if (found) return found;
  PyObject* loaded = PyImport_ImportModule(module);
  found = loaded ? PyObject_GetAttrString(loaded, name) : NULL;
  Py_XDECREF(loaded);
  return found ? rabbet_py_cache(place, found) : NULL;
}

PyObject* rabbet_py_dict_get(PyObject* dict, PyObject* key) {
#if PY_VERSION_HEX >= 0x030D0000 && !defined(Py_LIMITED_API)
  PyObject* value = NULL;
  PyDict_GetItemRef(dict, key, &value);
  return value;
#else
  return Py_XNewRef(PyDict_GetItemWithError(dict, key));
#endif
}

static PyObject* py_version(PyObject* module, PyObject* none) {
  (void)module, (void)none;
  return PyUnicode_FromString(rabbet_version());
}

// The folder of the libraries that Rabbet consists of.
static PyObject* py_library_folder(PyObject* module, PyObject* none) {
  (void)module, (void)none;
  Dl_info info;
  char path[PATH_MAX];
  if (!dladdr((const void*)rabbet_version, &info) || !info.dli_fname ||
      !realpath(info.dli_fname, path)) {
    PyErr_SetString(PyExc_OSError,
                    "the folder of Rabbet's libraries is not "
                    "known");
    return NULL;
  }
  return PyUnicode_DecodeFSDefaultAndSize(path, strrchr(path, '/') - path);
}

static PyMethodDef py_functions[] = {
    {"library_folder", py_library_folder, METH_NOARGS, NULL},
    {"configure", rabbet_py_configure, METH_VARARGS, NULL},
    {"shown", rabbet_py_shown, METH_O, NULL},
    {"version", py_version, METH_NOARGS, NULL},
    {NULL},
};

// Types and the registry of plugins are the process': of one interpreter.
static int py_claim(void) {
  static atomic_llong owner = -1;
  long long self = PyInterpreterState_GetID(PyInterpreterState_Get());
  long long found = -1;
  if (atomic_compare_exchange_strong(&owner, &found, self) || found == self)
    return 0;
  PyErr_SetString(PyExc_ImportError,
                  "rabbet has been imported by another interpreter of this "
                  "process; one alone can");
  return -1;
}

static int py_exec(PyObject* module) {
  static int (*const parts[])(PyObject*) = {
      rabbet_py_add_network,       rabbet_py_add_network_tensor,
      rabbet_py_add_network_layer, rabbet_py_add_builder,
      rabbet_py_add_build,         rabbet_py_add_onnx,
      rabbet_py_add_engine,        rabbet_py_add_context,
      rabbet_py_add_dim_builder,   rabbet_py_add_shape,
      rabbet_py_add_tensor,        rabbet_py_add_plugin,
      rabbet_py_add_refitter,      rabbet_py_add_runner,
      rabbet_py_add_command,       rabbet_py_add_device_array,
      rabbet_py_add_source_host,   rabbet_py_add_files,
      rabbet_py_add_numbers,
  };
  int failed = py_claim();
  for (size_t i = 0; !failed && i < sizeof(parts) / sizeof(parts[0]); ++i)
    failed = parts[i](module);
  return failed;
}

static PyModuleDef_Slot py_slots[] = {
    {Py_mod_exec, (void*)py_exec},
#ifdef Py_mod_multiple_interpreters
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef py_module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_rabbet",
    .m_doc = "C part of the package rabbet; not for direct use.",
    .m_methods = py_functions,
    .m_slots = py_slots,
};

PyMODINIT_FUNC PyInit__rabbet(void);
PyMODINIT_FUNC PyInit__rabbet(void) {
  return PyModuleDef_Init(&py_module);
}
