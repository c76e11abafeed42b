// Refitters.
#include "python/src/rabbet_py.h"

static PyTypeObject* py_refitter_type;

static void py_release_refitter(void* pointer) {
  rabbet_refitter_destroy(pointer);
}

// Refitter(engine)
static PyObject* py_refitter_new(PyTypeObject* type, PyObject* args,
                                 PyObject* kwargs) {
  (void)kwargs;
  PyObject* object = NULL;
  if (!PyArg_ParseTuple(args, "O", &object)) return NULL;
  void* engine = rabbet_py_handle_get(object, rabbet_py_types.engine);
  if (!engine) return NULL;
  rabbet_refitter_t* refitter = NULL;
  rabbet_status_t status =
      rabbet_refitter_create(engine, rabbet_allocator_system(), &refitter);
  if (!rabbet_is_ok(status)) return rabbet_py_raise(status);
  return rabbet_py_guarded(
      rabbet_py_handle_new(type, refitter, object, py_release_refitter));
}

static PyObject* py_refitter_count(PyObject* self, PyObject* none) {
  RABBET_PY_HOLD(self);
  (void)none;
  return PyLong_FromSize_t(rabbet_refitter_count(rabbet_py_pointer(self)));
}

// (name, layer, role, DataType, dims, is missing)
static PyObject* py_refitter_info(PyObject* self, PyObject* index) {
  RABBET_PY_HOLD(self);
  size_t i = 0;
  rabbet_refit_info_t info = {.struct_size = sizeof(info)};
  if (rabbet_py_to_index(index, "weights", &i)) return NULL;
  rabbet_status_t status =
      rabbet_refitter_info(rabbet_py_pointer(self), i, &info);
  if (!rabbet_is_ok(status)) return rabbet_py_raise(status);
  return Py_BuildValue(
      "(NNiNNN)", rabbet_py_message(info.name), rabbet_py_message(info.layer),
      (int)info.role, rabbet_py_dtype(info.dtype),
      rabbet_py_from_dims(&info.dims), PyBool_FromLong(info.is_missing));
}

// find(name) or find(layer, role) -> index
static PyObject* py_refitter_find(PyObject* self, PyObject* args) {
  RABBET_PY_HOLD(self);
  const char* name = NULL;
  int role = -1;
  size_t index = 0;
  if (!PyArg_ParseTuple(args, "s|i", &name, &role)) return NULL;
  const rabbet_refitter_t* refitter = rabbet_py_pointer(self);
  rabbet_status_t status =
      role < 0 ? rabbet_refitter_find(refitter, name, &index)
               : rabbet_refitter_find_role(refitter, name, role, &index);
  if (!rabbet_is_ok(status)) return rabbet_py_raise(status);
  return PyLong_FromSize_t(index);
}

// set(index, dtype, address, count)
static PyObject* py_refitter_set(PyObject* self, PyObject* args) {
  RABBET_PY_HOLD(self);
  Py_ssize_t index = 0;
  int dtype = 0;
  unsigned long long address = 0;
  long long count = 0;
  if (!PyArg_ParseTuple(args, "niKL", &index, &dtype, &address, &count)) {
    return NULL;
  }
  rabbet_weights_t weights = {.dtype = (rabbet_dtype_t)dtype,
                              .data = (const void*)(uintptr_t)address,
                              .count = count};
  return rabbet_py_none_or_raise(
      rabbet_refitter_set(rabbet_py_pointer(self), (size_t)index, weights));
}

static PyObject* py_refitter_unset(PyObject* self, PyObject* index) {
  RABBET_PY_HOLD(self);
  size_t i = 0;
  if (rabbet_py_to_index(index, "weights", &i)) return NULL;
  return rabbet_py_none_or_raise(
      rabbet_refitter_unset(rabbet_py_pointer(self), i));
}

static PyObject* py_refitter_commit(PyObject* self, PyObject* none) {
  RABBET_PY_HOLD(self);
  (void)none;
  rabbet_status_t status;
  Py_BEGIN_ALLOW_THREADS status =
      rabbet_refitter_commit(rabbet_py_pointer(self));
  Py_END_ALLOW_THREADS return rabbet_py_none_or_raise(status);
}

// [(tensor, range), ...]
static PyObject* py_refitter_ranges(PyObject* self, PyObject* none) {
  RABBET_PY_HOLD(self);
  (void)none;
  const rabbet_refitter_t* refitter = rabbet_py_pointer(self);
  size_t count = rabbet_refitter_range_count(refitter);
  PyObject* list = PyList_New((Py_ssize_t)count);
  for (size_t i = 0; list && i < count; ++i) {
    const char* tensor = NULL;
    float range = 0;
    rabbet_status_t status =
        rabbet_refitter_range(refitter, i, &tensor, &range);
    PyObject* pair = NULL;
    if (!rabbet_is_ok(status)) {
      rabbet_py_raise(status);
    } else {
      pair = Py_BuildValue("(Nf)", rabbet_py_message(tensor), range);
    }
    if (!pair || PyList_SetItem(list, (Py_ssize_t)i, pair) < 0) Py_CLEAR(list);
  }
  return list;
}

// find_range(tensor) -> index
static PyObject* py_refitter_find_range(PyObject* self, PyObject* name) {
  RABBET_PY_HOLD(self);
  const char* tensor = NULL;
  size_t index = 0;
  if (rabbet_py_to_text(name, "tensor_name", false, &tensor)) return NULL;
  rabbet_status_t status =
      rabbet_refitter_find_range(rabbet_py_pointer(self), tensor, &index);
  if (!rabbet_is_ok(status)) return rabbet_py_raise(status);
  return PyLong_FromSize_t(index);
}

// set_range(index, min, max)
static PyObject* py_refitter_set_range(PyObject* self, PyObject* args) {
  RABBET_PY_HOLD(self);
  Py_ssize_t index = 0;
  float min = 0, max = 0;
  if (!PyArg_ParseTuple(args, "nff", &index, &min, &max)) return NULL;
  return rabbet_py_none_or_raise(rabbet_refitter_set_range(
      rabbet_py_pointer(self), (size_t)index, min, max));
}

static PyMethodDef py_refitter_methods[] = {
    {"_ranges", py_refitter_ranges, METH_NOARGS, NULL},
    {"_find_range", py_refitter_find_range, METH_O, NULL},
    {"_set_range", py_refitter_set_range, METH_VARARGS, NULL},
    {"_count", py_refitter_count, METH_NOARGS, NULL},
    {"_info", py_refitter_info, METH_O, NULL},
    {"_find", py_refitter_find, METH_VARARGS, NULL},
    {"_set", py_refitter_set, METH_VARARGS, NULL},
    {"_unset", py_refitter_unset, METH_O, NULL},
    {"_commit", py_refitter_commit, METH_NOARGS, NULL},
    {NULL},
};

RABBET_PY_HANDLE_SPEC(py_refitter, "Refitter", 0, {Py_tp_new, py_refitter_new});

int rabbet_py_add_refitter(PyObject* module) {
  return rabbet_py_add_type(module, "Refitter", &py_refitter_spec,
                            &py_refitter_type);
}
