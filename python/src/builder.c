// Profiles, timing caches, configurations, builds.
#include <string.h>

#include "builder/measure/timing_cache.h"
#include "python/src/rabbet_py.h"

// ---- Profile ---------------------------------------------------------------

static void py_release_profile(void* pointer) {
  rabbet_profile_release(pointer);
}

static PyObject* py_profile_new(PyTypeObject* type, PyObject* args,
                                PyObject* kwargs) {
  (void)args, (void)kwargs;
  rabbet_profile_t* profile = NULL;
  rabbet_status_t status =
      rabbet_profile_create(rabbet_allocator_system(), &profile);
  if (!rabbet_is_ok(status)) return rabbet_py_raise(status);
  return rabbet_py_handle_new(type, profile, NULL, py_release_profile);
}

static PyObject* py_profile_set_shape(PyObject* self, PyObject* args) {
  RABBET_PY_LOCK(self);
  const char* input = NULL;
  PyObject *low = NULL, *opt = NULL, *high = NULL;
  rabbet_dims_t dims[3];
  if (!PyArg_ParseTuple(args, "sOOO", &input, &low, &opt, &high) ||
      rabbet_py_to_dims(low, "min", &dims[0]) ||
      rabbet_py_to_dims(opt, "opt", &dims[1]) ||
      rabbet_py_to_dims(high, "max", &dims[2])) {
    return NULL;
  }
  return rabbet_py_none_or_raise(rabbet_profile_set_shape(
      rabbet_py_pointer(self), input, &dims[0], &dims[1], &dims[2]));
}

static PyObject* py_pack_dims(const rabbet_dims_t* low,
                              const rabbet_dims_t* opt,
                              const rabbet_dims_t* high) {
  return Py_BuildValue("(NNN)", rabbet_py_from_dims(low),
                       rabbet_py_from_dims(opt), rabbet_py_from_dims(high));
}

static PyObject* py_profile_shape(PyObject* self, PyObject* name) {
  RABBET_PY_LOCK(self);
  const char* input = NULL;
  if (rabbet_py_to_text(name, "input", false, &input)) return NULL;
  rabbet_dims_t low, opt, high;
  rabbet_status_t status =
      rabbet_profile_shape(rabbet_py_pointer(self), input, &low, &opt, &high);
  if (!rabbet_is_ok(status)) return rabbet_py_raise(status);
  return py_pack_dims(&low, &opt, &high);
}

static int py_read_values(PyObject* object, size_t count, int64_t* values) {
  for (size_t i = 0; i < count; ++i) {
    PyObject* item = PySequence_GetItem(object, (Py_ssize_t)i);
    int failed =
        item ? rabbet_py_to_int64(item, "shape values", &values[i]) : -1;
    Py_XDECREF(item);
    if (failed) return -1;
  }
  return 0;
}

// set_values(input, [min..., opt..., max...])
static PyObject* py_profile_set_values(PyObject* self, PyObject* args) {
  RABBET_PY_LOCK(self);
  const char* input = NULL;
  PyObject* object = NULL;
  if (!PyArg_ParseTuple(args, "sO", &input, &object)) return NULL;
  Py_ssize_t total = PySequence_Size(object);
  if (total < 0) return NULL;
  size_t count = (size_t)total / 3;
  int64_t* values = PyMem_Calloc(count ? count : 1, 3 * sizeof(*values));
  if (!values) return PyErr_NoMemory();
  PyObject* result = NULL;
  if (!py_read_values(object, 3 * count, values)) {
    result = rabbet_py_none_or_raise(
        rabbet_profile_set_values(rabbet_py_pointer(self), input, values,
                                  values + count, values + 2 * count, count));
  }
  PyMem_Free(values);
  return result;
}

static PyObject* py_ints(const int64_t* values, size_t count) {
  rabbet_attr_t attr = {
      .type = RABBET_ATTR_INTS, .data = values, .count = count};
  return rabbet_py_from_attr(&attr);
}

static PyObject* py_profile_values(PyObject* self, PyObject* name) {
  RABBET_PY_LOCK(self);
  const char* input = NULL;
  if (rabbet_py_to_text(name, "input", false, &input)) return NULL;
  const int64_t *low = NULL, *opt = NULL, *high = NULL;
  size_t count = 0;
  rabbet_status_t status = rabbet_profile_values(rabbet_py_pointer(self), input,
                                                 &low, &opt, &high, &count);
  if (!rabbet_is_ok(status)) return rabbet_py_raise(status);
  return Py_BuildValue("(NNN)", py_ints(low, count), py_ints(opt, count),
                       py_ints(high, count));
}

static PyMethodDef py_profile_methods[] = {
    {"_set_shape", py_profile_set_shape, METH_VARARGS, NULL},
    {"_shape", py_profile_shape, METH_O, NULL},
    {"_set_values", py_profile_set_values, METH_VARARGS, NULL},
    {"_values", py_profile_values, METH_O, NULL},
    {NULL},
};

RABBET_PY_HANDLE_SPEC(py_profile, "Profile", 0, {Py_tp_new, py_profile_new});

// ---- Timing cache ----------------------------------------------------------

static void py_release_timing_cache(void* pointer) {
  rabbet_timing_cache_release(pointer);
}

static PyObject* py_timing_cache_new(PyTypeObject* type, PyObject* args,
                                     PyObject* kwargs) {
  (void)kwargs;
  const char* data = NULL;
  Py_ssize_t size = 0;
  if (!PyArg_ParseTuple(args, "|y#", &data, &size)) return NULL;
  rabbet_timing_cache_t* cache = NULL;
  rabbet_status_t status = rabbet_timing_cache_create(
      data, (size_t)size, rabbet_allocator_system(), &cache);
  if (!rabbet_is_ok(status)) return rabbet_py_raise(status);
  return rabbet_py_handle_new(type, cache, NULL, py_release_timing_cache);
}

static void py_release_bytes(void* data) {
  rabbet_free(rabbet_allocator_system(), data);
}

static PyObject* py_timing_cache_serialize(PyObject* self, PyObject* none) {
  (void)none;
  void* data = NULL;
  size_t size = 0;
  rabbet_status_t status = rabbet_timing_cache_serialize(
      rabbet_py_pointer(self), rabbet_allocator_system(), &data, &size);
  if (!rabbet_is_ok(status)) return rabbet_py_raise(status);
  return rabbet_py_host_memory(data, size, NULL, py_release_bytes);
}

static PyObject* py_timing_cache_combine(PyObject* self, PyObject* other) {
  void* cache = rabbet_py_handle_get(other, rabbet_py_types.timing_cache);
  if (!cache) return NULL;
  return rabbet_py_none_or_raise(
      rabbet_timing_cache_combine(rabbet_py_pointer(self), cache));
}

static Py_ssize_t py_timing_cache_count(PyObject* self) {
  return (Py_ssize_t)rabbet_timing_cache_count(rabbet_py_pointer(self));
}

// [(high, low), ...]
static PyObject* py_timing_cache_keys(PyObject* self, PyObject* none) {
  (void)none;
  rabbet_allocator_t allocator = rabbet_allocator_system();
  rabbet_timing_key_t* keys = NULL;
  size_t count = 0;
  rabbet_status_t status = rabbet_timing_cache_keys(rabbet_py_pointer(self),
                                                    allocator, &keys, &count);
  if (!rabbet_is_ok(status)) return rabbet_py_raise(status);
  PyObject* list = PyList_New((Py_ssize_t)count);
  for (size_t i = 0; list && i < count; ++i) {
    PyObject* pair = Py_BuildValue("(KK)", (unsigned long long)keys[i].high,
                                   (unsigned long long)keys[i].low);
    if (!pair || PyList_SetItem(list, (Py_ssize_t)i, pair) < 0) Py_CLEAR(list);
  }
  rabbet_free(allocator, keys);
  return list;
}

// query(high, low) -> (microseconds, workspace)
static PyObject* py_timing_cache_query(PyObject* self, PyObject* args) {
  unsigned long long high = 0, low = 0;
  if (!PyArg_ParseTuple(args, "KK", &high, &low)) return NULL;
  rabbet_timing_value_t value;
  rabbet_status_t status = rabbet_timing_cache_query(
      rabbet_py_pointer(self), (rabbet_timing_key_t){high, low}, &value);
  if (!rabbet_is_ok(status)) return rabbet_py_raise(status);
  return Py_BuildValue("(dK)", value.us, (unsigned long long)value.workspace);
}

// update(high, low, microseconds, workspace)
static PyObject* py_timing_cache_update(PyObject* self, PyObject* args) {
  unsigned long long high = 0, low = 0, workspace = 0;
  double us = 0;
  if (!PyArg_ParseTuple(args, "KKdK", &high, &low, &us, &workspace)) {
    return NULL;
  }
  return rabbet_py_none_or_raise(rabbet_timing_cache_update(
      rabbet_py_pointer(self), (rabbet_timing_key_t){high, low},
      (rabbet_timing_value_t){us, workspace}));
}

static PyObject* py_timing_cache_reset(PyObject* self, PyObject* none) {
  (void)none;
  rabbet_timing_cache_reset(rabbet_py_pointer(self));
  Py_RETURN_NONE;
}

static rabbet_status_t py_timing_cache_load_file(const char* path,
                                                 void* cache) {
  rabbet_timing_cache_t* loaded = NULL;
  rabbet_status_t status =
      rabbet_timing_cache_load(path, rabbet_allocator_system(), &loaded);
  if (rabbet_is_ok(status)) status = rabbet_timing_cache_absorb(cache, loaded);
  rabbet_timing_cache_release(loaded);
  return status;
}

static PyObject* py_timing_cache_load(PyObject* self, PyObject* path) {
  return rabbet_py_with_path(path, rabbet_py_pointer(self),
                             py_timing_cache_load_file);
}

static rabbet_status_t py_timing_cache_save_file(const char* path,
                                                 void* cache) {
  return rabbet_timing_cache_save(cache, path, rabbet_allocator_system());
}

static PyObject* py_timing_cache_save(PyObject* self, PyObject* path) {
  return rabbet_py_with_path(path, rabbet_py_pointer(self),
                             py_timing_cache_save_file);
}

static PyMethodDef py_timing_cache_methods[] = {
    {"_load", py_timing_cache_load, METH_O, NULL},
    {"_save", py_timing_cache_save, METH_O, NULL},
    {"_keys", py_timing_cache_keys, METH_NOARGS, NULL},
    {"_query", py_timing_cache_query, METH_VARARGS, NULL},
    {"_update", py_timing_cache_update, METH_VARARGS, NULL},
    {"_reset", py_timing_cache_reset, METH_NOARGS, NULL},
    {"_serialize", py_timing_cache_serialize, METH_NOARGS, NULL},
    {"_combine", py_timing_cache_combine, METH_O, NULL},
    {NULL},
};

RABBET_PY_HANDLE_SPEC(py_timing_cache, "TimingCache", 0,
                      {Py_tp_new, py_timing_cache_new},
                      {Py_sq_length, py_timing_cache_count});

// ---- Configuration ---------------------------------------------------------

static void py_release_config(void* pointer) {
  rabbet_builder_config_release(pointer);
}

static PyObject* py_config_new(PyTypeObject* type, PyObject* args,
                               PyObject* kwargs) {
  (void)kwargs;
  PyObject* logger = Py_None;
  if (!PyArg_ParseTuple(args, "|O", &logger)) return NULL;
  rabbet_builder_config_t* config = NULL;
  rabbet_status_t status =
      rabbet_builder_config_create(rabbet_allocator_system(), &config);
  if (!rabbet_is_ok(status)) return rabbet_py_raise(status);
  rabbet_builder_config_set_logger(config, rabbet_py_logger(logger));
  return rabbet_py_guarded(
      rabbet_py_handle_new(type, config, logger, py_release_config));
}

static PyObject* py_config_set(PyObject* self, PyObject* args) {
  RABBET_PY_HOLD(self);
  if (rabbet_py_check_idle(self, "configuration")) return NULL;
  int option = 0;
  long long value = 0;
  if (!PyArg_ParseTuple(args, "iL", &option, &value)) return NULL;
  return rabbet_py_none_or_raise(
      rabbet_builder_config_set(rabbet_py_pointer(self), option, value));
}

static PyObject* py_config_get(PyObject* self, PyObject* option) {
  RABBET_PY_HOLD(self);
  long number = PyLong_AsLong(option);
  if (PyErr_Occurred()) return NULL;
  return PyLong_FromLongLong(rabbet_builder_config_get(
      rabbet_py_pointer(self), (rabbet_builder_option_t)number));
}

static PyObject* py_config_set_device(PyObject* self, PyObject* name) {
  RABBET_PY_HOLD(self);
  if (rabbet_py_check_idle(self, "configuration")) return NULL;
  const char* device = NULL;
  if (rabbet_py_to_text(name, "device", true, &device)) return NULL;
  return rabbet_py_none_or_raise(
      rabbet_builder_config_set_device(rabbet_py_pointer(self), device));
}

static PyObject* py_config_device(PyObject* self, PyObject* none) {
  RABBET_PY_HOLD(self);
  (void)none;
  return rabbet_py_text_or_none(
      rabbet_builder_config_device(rabbet_py_pointer(self)));
}

typedef rabbet_status_t (*py_set_names_t)(rabbet_builder_config_t* config,
                                          const char* const* names,
                                          size_t count);

static PyObject* py_config_set_names(PyObject* self, PyObject* list,
                                     py_set_names_t set) {
  RABBET_PY_HOLD(self);
  if (rabbet_py_check_idle(self, "configuration")) return NULL;
  Py_ssize_t count = PyList_Size(list);
  if (count < 0) return NULL;
  const char** names = PyMem_Calloc((size_t)count + 1, sizeof(*names));
  if (!names) return PyErr_NoMemory();
  PyObject* result = NULL;
  Py_ssize_t i = 0;
  while (i < count &&
         !rabbet_py_to_text(PyList_GetItem(list, i), "name", false, &names[i]))
    ++i;
  if (i == count)
    result = rabbet_py_none_or_raise(
        set(rabbet_py_pointer(self), names, (size_t)count));
  PyMem_Free(names);
  return result;
}

static PyObject* py_config_set_libraries(PyObject* self, PyObject* list) {
  return py_config_set_names(self, list,
                             rabbet_builder_config_set_plugin_libraries);
}

static PyObject* py_config_set_modules(PyObject* self, PyObject* list) {
  return py_config_set_names(self, list,
                             rabbet_builder_config_set_source_modules);
}

static PyObject* py_config_names(
    PyObject* self,
    const char* (*get)(const rabbet_builder_config_t*, size_t)) {
  RABBET_PY_HOLD(self);
  PyObject* list = PyList_New(0);
  const char* name = NULL;
  for (size_t i = 0; list && (name = get(rabbet_py_pointer(self), i)); ++i) {
    PyObject* text = rabbet_py_message(name);
    if (!text || PyList_Append(list, text) < 0) Py_CLEAR(list);
    Py_XDECREF(text);
  }
  return list;
}

static PyObject* py_config_libraries(PyObject* self, PyObject* none) {
  (void)none;
  return py_config_names(self, rabbet_builder_config_plugin_library);
}

static PyObject* py_config_modules(PyObject* self, PyObject* none) {
  (void)none;
  return py_config_names(self, rabbet_builder_config_source_module);
}

static PyObject* py_config_add_profile(PyObject* self, PyObject* other) {
  RABBET_PY_HOLD(self);
  if (rabbet_py_check_idle(self, "configuration")) return NULL;
  void* profile = rabbet_py_handle_get(other, rabbet_py_types.profile);
  if (!profile) return NULL;
  return rabbet_py_none_or_raise(
      rabbet_builder_config_add_profile(rabbet_py_pointer(self), profile));
}

static PyObject* py_config_profile_count(PyObject* self, PyObject* none) {
  RABBET_PY_HOLD(self);
  (void)none;
  return PyLong_FromSize_t(
      rabbet_builder_config_profile_count(rabbet_py_pointer(self)));
}

static PyObject* py_config_set_cache(PyObject* self, PyObject* other) {
  RABBET_PY_HOLD(self);
  if (rabbet_py_check_idle(self, "configuration")) return NULL;
  void* cache = NULL;
  if (!Py_IsNone(other)) {
    cache = rabbet_py_handle_get(other, rabbet_py_types.timing_cache);
    if (!cache) return NULL;
  }
  rabbet_builder_config_set_timing_cache(rabbet_py_pointer(self), cache);
  Py_RETURN_NONE;
}

static PyMethodDef py_config_methods[] = {
    {"_set", py_config_set, METH_VARARGS, NULL},
    {"_get", py_config_get, METH_O, NULL},
    {"_set_device", py_config_set_device, METH_O, NULL},
    {"_device", py_config_device, METH_NOARGS, NULL},
    {"_add_profile", py_config_add_profile, METH_O, NULL},
    {"_profile_count", py_config_profile_count, METH_NOARGS, NULL},
    {"_set_timing_cache", py_config_set_cache, METH_O, NULL},
    {"_set_libraries", py_config_set_libraries, METH_O, NULL},
    {"_libraries", py_config_libraries, METH_NOARGS, NULL},
    {"_set_modules", py_config_set_modules, METH_O, NULL},
    {"_modules", py_config_modules, METH_NOARGS, NULL},
    {NULL},
};

RABBET_PY_HANDLE_SPEC(py_config, "BuilderConfig", 0,
                      {Py_tp_new, py_config_new});

int rabbet_py_add_builder(PyObject* module) {
  if (rabbet_py_add_type(module, "Profile", &py_profile_spec,
                         &rabbet_py_types.profile) ||
      rabbet_py_add_type(module, "TimingCache", &py_timing_cache_spec,
                         &rabbet_py_types.timing_cache)) {
    return -1;
  }
  return rabbet_py_add_type(module, "BuilderConfig", &py_config_spec,
                            &rabbet_py_types.config);
}
