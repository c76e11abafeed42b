// Objects that wrap one C pointer.
#include <stdio.h>

#include "python/src/rabbet_py.h"

int rabbet_py_handle_visit(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(((rabbet_py_handle_t*)self)->keep);
  Py_VISIT(Py_TYPE(self));
  return 0;
}

void rabbet_py_handle_dealloc(PyObject* self) {
  rabbet_py_handle_t* handle = (rabbet_py_handle_t*)self;
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  // The pointer is released first: it may use the kept object.
  if (handle->pointer && handle->release) handle->release(handle->pointer);
  handle->pointer = NULL;
  Py_CLEAR(handle->keep);
  if (handle->mutex) pthread_mutex_destroy(handle->mutex);
  PyMem_Free(handle->mutex);
  freefunc tp_free = (freefunc)PyType_GetSlot(type, Py_tp_free);
  tp_free(self);
  Py_DECREF(type);
}

PyObject* rabbet_py_handle_compare(PyObject* a, PyObject* b, int op) {
  if ((op != Py_EQ && op != Py_NE) ||
      !(PyObject_TypeCheck(b, rabbet_py_types.tensor) ||
        PyObject_TypeCheck(b, rabbet_py_types.layer))) {
    Py_RETURN_NOTIMPLEMENTED;
  }
  bool same = rabbet_py_pointer(a) == rabbet_py_pointer(b);
  return PyBool_FromLong(same == (op == Py_EQ));
}

Py_hash_t rabbet_py_handle_hash(PyObject* self) {
  Py_hash_t hash = (Py_hash_t)((uintptr_t)rabbet_py_pointer(self) >> 4);
  return hash == -1 ? -2 : hash;
}

PyObject* rabbet_py_handle_new(PyTypeObject* type, void* pointer,
                               PyObject* keep, void (*release)(void* pointer)) {
  allocfunc tp_alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
  rabbet_py_handle_t* self = (rabbet_py_handle_t*)tp_alloc(type, 0);
  if (!self) {
    if (release && pointer) release(pointer);
    return NULL;
  }
  self->pointer = pointer;
  self->keep = Py_XNewRef(keep);
  self->release = release;
  return (PyObject*)self;
}

// The package's name for a type of the extension.
static const char* py_public_name(const PyTypeObject* type) {
  const struct {
    const PyTypeObject* type;
    const char* name;
  } names[] = {
      {rabbet_py_types.network, "INetworkDefinition"},
      {rabbet_py_types.tensor, "ITensor"},
      {rabbet_py_types.layer, "ILayer"},
      {rabbet_py_types.profile, "IOptimizationProfile"},
      {rabbet_py_types.timing_cache, "ITimingCache"},
      {rabbet_py_types.config, "IBuilderConfig"},
      {rabbet_py_types.engine, "ICudaEngine"},
      {rabbet_py_types.context, "IExecutionContext"},
  };
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i)
    if (names[i].type == type) return names[i].name;
  return "object of the engine";
}

void* rabbet_py_handle_get(PyObject* object, PyTypeObject* type) {
  if (!PyObject_TypeCheck(object, type)) {
    char expected[64];
    snprintf(expected, sizeof(expected), "an %s", py_public_name(type));
    rabbet_py_raise_wrong("", expected, object);
    return NULL;
  }
  void* pointer = rabbet_py_pointer(object);
  if (!pointer) {
    PyErr_SetString(PyExc_ValueError,
                    "this object holds nothing: its __init__ was not run, or "
                    "it was released");
  }
  return pointer;
}

void rabbet_py_handle_close(PyObject* self) {
  RABBET_PY_LOCK(self);
  ((rabbet_py_handle_t*)self)->pointer = NULL;
}

PyObject* rabbet_py_guarded(PyObject* take_handle) {
  rabbet_py_handle_t* handle = (rabbet_py_handle_t*)take_handle;
  if (!handle) return NULL;
  handle->mutex = PyMem_Malloc(sizeof(*handle->mutex));
  if (!handle->mutex) {
    Py_DECREF(take_handle);
    return PyErr_NoMemory();
  }
  pthread_mutexattr_t
      recursive;  // a callback may look at the object that called it
  pthread_mutexattr_init(&recursive);
  pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
  pthread_mutex_init(handle->mutex, &recursive);
  pthread_mutexattr_destroy(&recursive);
  return take_handle;
}

PyObject* rabbet_py_hold(PyObject* handle) {
  pthread_mutex_t* mutex = ((rabbet_py_handle_t*)handle)->mutex;
  if (mutex && pthread_mutex_trylock(mutex) != 0) {
    Py_BEGIN_ALLOW_THREADS;
    pthread_mutex_lock(mutex);
    Py_END_ALLOW_THREADS;
  }
  return handle;
}

void rabbet_py_drop(PyObject** handle) {
  pthread_mutex_t* mutex = ((rabbet_py_handle_t*)*handle)->mutex;
  if (mutex) pthread_mutex_unlock(mutex);
}

int rabbet_py_check_idle(PyObject* self, const char* what) {
  if (!((rabbet_py_handle_t*)self)->busy) return 0;
  return rabbet_py_raise_int(RABBET_STATUS(
      RABBET_STATUS_FAILED_PRECONDITION,
      "this %s is being built or parsed into by the call that this one comes "
      "from; change it when that is done",
      what));
}

int rabbet_py_begin(PyObject* self, const char* what) {
  if (rabbet_py_check_idle(self, what)) return -1;
  ((rabbet_py_handle_t*)self)->busy = true;
  return 0;
}

void rabbet_py_end(PyObject* self) {
  ((rabbet_py_handle_t*)self)->busy = false;
}
