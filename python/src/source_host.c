// The source of plugins in plans: rabbet._source, as C calls it.
#include "python/src/rabbet_py.h"

static PyObject* py_texts(const char* const* texts, size_t count) {
  PyObject* list = PyList_New((Py_ssize_t)count);
  for (size_t i = 0; list && i < count; ++i) {
    PyObject* text = rabbet_py_message(texts[i]);
    if (!text || PyList_SetItem(list, (Py_ssize_t)i, text) < 0) Py_CLEAR(list);
  }
  return list;
}

// Calls a function of rabbet._source; takes the arguments' tuple.
static PyObject* py_source_call(const char* name, PyObject* take_args) {
  PyObject* module = take_args ? PyImport_ImportModule("rabbet._source") : NULL;
  PyObject* function = module ? PyObject_GetAttrString(module, name) : NULL;
  PyObject* result = function ? PyObject_CallObject(function, take_args) : NULL;
  Py_XDECREF(function);
  Py_XDECREF(module);
  Py_XDECREF(take_args);
  return result;
}

// ---- At build

// One of what collect returned: (name, data, is_package, requirements).
static rabbet_status_t py_source_add(PyObject* item,
                                     rabbet_carried_sink_t sink) {
  const char *name = NULL, *data = NULL;
  Py_ssize_t size = 0;
  int is_package = 0;
  PyObject* list = NULL;
  if (!PyArg_ParseTuple(item, "sy#pO!", &name, &data, &size, &is_package,
                        &PyList_Type, &list))
    return rabbet_py_status_from_exception();
  size_t count = (size_t)PyList_Size(list);
  const char** requirements = PyMem_Calloc(count + 1, sizeof(*requirements));
  bool fine = requirements != NULL;
  if (!fine) PyErr_NoMemory();
  for (size_t i = 0; fine && i < count; ++i)
    fine = !rabbet_py_to_text(PyList_GetItem(list, (Py_ssize_t)i),
                              "requirement", false, &requirements[i]);
  rabbet_status_t status = rabbet_ok();
  if (!fine) {
    status = rabbet_py_status_from_exception();
  } else {
    rabbet_carried_t carried = {.kind = RABBET_CARRIED_PYTHON,
                                .name = name,
                                .data = data,
                                .size = (size_t)size,
                                .is_package = is_package != 0,
                                .requirements = requirements,
                                .requirement_count = count};
    status = sink.add(sink.context, &carried);
  }
  PyMem_Free(requirements);
  return status;
}

static PyObject* py_source_keys(const rabbet_plugin_key_t* plugins,
                                size_t count) {
  PyObject* list = PyList_New((Py_ssize_t)count);
  for (size_t i = 0; list && i < count; ++i) {
    PyObject* key = Py_BuildValue("(sss)", plugins[i].name, plugins[i].version,
                                  plugins[i].plugin_namespace);
    if (!key || PyList_SetItem(list, (Py_ssize_t)i, key) < 0) Py_CLEAR(list);
  }
  return list;
}

static rabbet_status_t py_source_collect(void* user_data,
                                         const rabbet_plugin_key_t* plugins,
                                         size_t plugin_count,
                                         const char* const* modules,
                                         size_t module_count,
                                         rabbet_carried_sink_t sink) {
  (void)user_data;
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject* keys = py_source_keys(plugins, plugin_count);
  PyObject* names = keys ? py_texts(modules, module_count) : NULL;
  PyObject* args = names ? PyTuple_Pack(2, keys, names) : NULL;
  PyObject* list = py_source_call("collect", args);
  Py_XDECREF(keys);
  Py_XDECREF(names);
  rabbet_status_t status =
      list ? rabbet_ok() : rabbet_py_status_from_exception();
  Py_ssize_t count = list ? PyList_Size(list) : 0;
  for (Py_ssize_t i = 0; rabbet_is_ok(status) && i < count; ++i)
    status = py_source_add(PyList_GetItem(list, i), sink);
  Py_XDECREF(list);
  PyGILState_Release(gil);
  return status;
}

// ---- At load

static PyObject* py_source_list(const rabbet_carried_t* modules, size_t count) {
  PyObject* list = PyList_New((Py_ssize_t)count);
  for (size_t i = 0; list && i < count; ++i) {
    const rabbet_carried_t* module = &modules[i];
    PyObject* requirements =
        py_texts(module->requirements, module->requirement_count);
    PyObject* item =
        requirements
            ? Py_BuildValue("(sy#NN)", module->name, (const char*)module->data,
                            (Py_ssize_t)module->size,
                            PyBool_FromLong(module->is_package), requirements)
            : NULL;
    if (!item || PyList_SetItem(list, (Py_ssize_t)i, item) < 0) Py_CLEAR(list);
  }
  return list;
}

// Calls a function of rabbet._source with a list (NULL: an exception is set).
static rabbet_status_t py_source_pass(const char* name, PyObject* take_list) {
  PyObject* args = take_list ? PyTuple_Pack(1, take_list) : NULL;
  PyObject* result = py_source_call(name, args);
  Py_XDECREF(take_list);
  rabbet_status_t status =
      result ? rabbet_ok() : rabbet_py_status_from_exception();
  Py_XDECREF(result);
  return status;
}

static rabbet_status_t py_source_run(void* user_data,
                                     const rabbet_carried_t* modules,
                                     size_t count) {
  (void)user_data;
  PyGILState_STATE gil = PyGILState_Ensure();
  rabbet_status_t status =
      py_source_pass("run", py_source_list(modules, count));
  PyGILState_Release(gil);
  return status;
}

// ---- In a C program that has started Python

static rabbet_status_t py_source_load(void* user_data,
                                      const char* const* plugins,
                                      size_t count) {
  (void)user_data;
  PyGILState_STATE gil = PyGILState_Ensure();
  rabbet_status_t status = py_source_pass("load", py_texts(plugins, count));
  PyGILState_Release(gil);
  return status;
}

static void py_source_close(void* user_data) {
  (void)user_data;
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject* result = py_source_call("close", PyTuple_New(0));
  if (!result) PyErr_WriteUnraisable(NULL);
  Py_XDECREF(result);
  PyGILState_Release(gil);
}

int rabbet_py_add_source_host(PyObject* module) {
  (void)module;
  const rabbet_source_host_t host = {.struct_size = sizeof(host),
                                     .collect = py_source_collect,
                                     .run = py_source_run,
                                     .load = py_source_load,
                                     .close = py_source_close};
  rabbet_status_t status = rabbet_source_host_set(&host);
  if (rabbet_is_ok(status)) return 0;
  rabbet_py_raise(status);
  return -1;
}
