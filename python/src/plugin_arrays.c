// A plugin's tensor as an array of NumPy or torch. NumPy's is made once for an
// address and lent to each call, as making one costs more than small bodies do.
#include "python/src/plugin_tensor.h"

// np.asarray of whatever has the protocols.
static PyObject* py_as_array(PyObject* tensor) {
  static rabbet_py_cache_t cache;
  PyObject* function = rabbet_py_cache_import(&cache, "numpy", "asarray");
  return function ? PyObject_CallFunctionObjArgs(function, tensor, NULL) : NULL;
}

// The array looks at a Tensor of its own, so that references to it and to what
// it looks through tell whether a call kept something.
static int py_lent_make(rabbet_py_tensor_t* self) {
  rabbet_py_lent_t* lent = &self->lent;
  rabbet_py_lent_clear(lent);
  const rabbet_plugin_view_t view = {.data = self->data,
                                     .dtype = self->dtype,
                                     .format = self->format,
                                     .dims = self->dims,
                                     .bytes = self->bytes};
  lent->objects[RABBET_PY_LENT_TENSOR] = (PyObject*)rabbet_py_tensor_new(
      &view, self->device, self->writable, NULL);
  PyObject* tensor = lent->objects[RABBET_PY_LENT_TENSOR];
  PyObject* array = tensor ? py_as_array(tensor) : NULL;
  lent->objects[RABBET_PY_LENT_ARRAY] = array;
  if (array)
    lent->objects[RABBET_PY_LENT_BASE] = PyObject_GetAttrString(array, "base");
  if (!lent->objects[RABBET_PY_LENT_BASE]) {
    rabbet_py_lent_clear(lent);
    return -1;
  }
  lent->data = self->data;
  for (int i = 0; i < RABBET_PY_LENT; ++i)
    lent->references[i] = Py_REFCNT(lent->objects[i]);
  return 0;
}

void rabbet_py_lent_clear(rabbet_py_lent_t* lent) {
  for (int i = 0; i < RABBET_PY_LENT; ++i)
    Py_CLEAR(lent->objects[i]);
}

bool rabbet_py_lent_is_kept(const rabbet_py_lent_t* lent) {
  for (int i = 0; i < RABBET_PY_LENT && lent->objects[i]; ++i)
    if (Py_REFCNT(lent->objects[i]) != lent->references[i]) return true;
  return false;
}

bool rabbet_py_lent_give_up(rabbet_py_tensor_t* self, PyObject* owner) {
  rabbet_py_lent_t* lent = &self->lent;
  bool kept = rabbet_py_lent_is_kept(lent);
  rabbet_py_tensor_t* tensor =
      (rabbet_py_tensor_t*)lent->objects[RABBET_PY_LENT_TENSOR];
  if (kept && owner) tensor->keep = Py_NewRef(owner);
  if (kept && !owner) tensor->expired = true;
  rabbet_py_lent_clear(lent);
  self->lends = false;
  return kept;
}

PyObject* rabbet_py_tensor_numpy(PyObject* object, PyObject* none) {
  (void)none;
  rabbet_py_tensor_t* self = (rabbet_py_tensor_t*)object;
  if (!self->lends || !rabbet_py_tensor_usable(self) ||
      self->device.type != RABBET_DL_CPU) {
    return PyErr_Occurred() ? NULL : py_as_array(object);
  }
  PyObject** array = &self->lent.objects[RABBET_PY_LENT_ARRAY];
  bool fresh = !*array || self->lent.data != self->data;
  if (fresh && py_lent_make(self)) return NULL;
  return Py_NewRef(*array);
}

PyObject* rabbet_py_tensor_torch(PyObject* object, PyObject* none) {
  (void)none;
  static rabbet_py_cache_t cache;
  // torch.from_dlpack without its questions about device and stream, which are
  // known: the engine's stream is torch's current one during a call.
  PyObject* function =
      rabbet_py_cache_import(&cache, "torch._C", "_from_dlpack");
  PyObject* capsule =
      function ? rabbet_py_tensor_capsule((rabbet_py_tensor_t*)object) : NULL;
  PyObject* tensor =
      capsule ? PyObject_CallFunctionObjArgs(function, capsule, NULL) : NULL;
  Py_XDECREF(capsule);
  return tensor;
}
