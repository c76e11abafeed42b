// The state of other libraries around a call of a plugin on a GPU: the engine's
// stream is their current one, and memory that they allocate while a call is
// recorded lives as long as the recording (rabbet.plugin._streams,
// rabbet.plugin._recording).
#include "device/device.h"
#include "python/src/plugin_adapter.h"

// ---- The GPU's context -----------------------------------------------------

enum { RABBET_PY_GPUS = 64 };
static rabbet_device_t* py_held[RABBET_PY_GPUS];

static PyObject* py_release_gpus(PyObject* module, PyObject* none) {
  (void)module, (void)none;
  RABBET_PY_LOCK(rabbet_py_types.plugin_tensor);
  for (int i = 0; i < RABBET_PY_GPUS; ++i) {
    rabbet_device_release(py_held[i]);
    py_held[i] = NULL;
  }
  Py_RETURN_NONE;
}

static PyMethodDef py_release_function = {"release_gpus", py_release_gpus,
                                          METH_NOARGS, NULL};

// Registers, once, a function that releases all kept objects when Python ends.
static int py_release_at_exit(void) {
  static bool done;
  if (done) return 0;
  PyObject* module = PyImport_ImportModule("atexit");
  PyObject* function = PyCFunction_New(&py_release_function, NULL);
  PyObject* result = module && function ? PyObject_CallMethod(
                                              module, "register", "O", function)
                                        : NULL;
  Py_XDECREF(module);
  Py_XDECREF(function);
  Py_XDECREF(result);
  done = result != NULL;
  return done ? 0 : -1;
}

static int py_hold_gpu(const char* device) {
  RABBET_PY_LOCK(rabbet_py_types.plugin_tensor);
  int id = (int)rabbet_py_dl_device(device).id;
  if (id < 0 || id >= RABBET_PY_GPUS || py_held[id]) return 0;
  if (py_release_at_exit()) return -1;
  rabbet_status_t status =
      rabbet_device_create(device, rabbet_allocator_system(), &py_held[id]);
  return rabbet_is_ok(status) ? 0 : rabbet_py_raise_int(status);
}

int rabbet_py_scope_where(const char* device, void* stream, PyObject** where) {
  rabbet_dl_device_t gpu = rabbet_py_dl_device(device);
  Py_CLEAR(*where);
  if (gpu.type != RABBET_DL_CUDA) return 0;
  if (py_hold_gpu(device)) return -1;
  *where =
      Py_BuildValue("(iK)", (int)gpu.id, (unsigned long long)(uintptr_t)stream);
  return *where ? 0 : -1;
}

// ---- Functions around a call -----------------------------------------------

// The function's result, or NULL for None; an exception may be set.
static PyObject* py_scope_step(PyObject* function, PyObject* args) {
  PyObject* result = function ? PyObject_Call(function, args, NULL) : NULL;
  if (result && Py_IsNone(result)) Py_CLEAR(result);
  return result;
}

int rabbet_py_scope_enter(rabbet_py_scope_t* scope, PyObject* where,
                          bool recorded) {
  static rabbet_py_cache_t enter, begin;
  *scope = (rabbet_py_scope_t){NULL, NULL};
  scope->undo = py_scope_step(
      rabbet_py_cache_import(&enter, "rabbet.plugin._streams", "enter"), where);
  if (!scope->undo && PyErr_Occurred()) return -1;
  if (!recorded) return 0;
  scope->memory = py_scope_step(
      rabbet_py_cache_import(&begin, "rabbet.plugin._recording", "begin"),
      where);
  return !scope->memory && PyErr_Occurred() ? -1 : 0;
}

static PyObject* py_scope_leave(rabbet_py_scope_t* scope) {
  if (!scope->memory && !scope->undo) return NULL;
  PyObject* error = rabbet_py_error_take();
  for (int i = 0; i < 2; ++i) {
    PyObject* done = NULL;
    if (i == 0 && scope->memory) {
      done = PyObject_CallMethod(scope->memory, "end", NULL);
    } else if (i == 1 && scope->undo) {
      done = PyObject_CallFunctionObjArgs(scope->undo, NULL);
    }
    Py_XDECREF(done);
    if (PyErr_Occurred() && !error) error = rabbet_py_error_take();
    PyErr_Clear();
  }
  Py_CLEAR(scope->undo);
  rabbet_py_error_restore(error);
  return scope->memory;
}

void rabbet_py_scope_release(PyObject* take_kept) {
  PyObject* error = rabbet_py_error_take();
  PyObject* done = PyObject_CallMethod(take_kept, "release", NULL);
  if (!done) PyErr_WriteUnraisable(take_kept);  // nobody waits for it
  Py_XDECREF(done);
  Py_DECREF(take_kept);
  rabbet_py_error_restore(error);
}

PyObject* rabbet_py_scope_end(rabbet_py_scope_t* scope, PyObject* take_result,
                              PyObject** out_kept) {
  *out_kept = py_scope_leave(scope);
  if (take_result && PyErr_Occurred()) Py_CLEAR(take_result);
  return take_result;
}

PyObject* rabbet_py_scope_call(PyObject* where, bool recorded,
                               PyObject* function, PyObject* args,
                               PyObject* kwargs, PyObject** out_kept) {
  if (!where) return PyObject_Call(function, args, kwargs);
  rabbet_py_scope_t scope;
  PyObject* result = NULL;
  if (rabbet_py_scope_enter(&scope, where, recorded) == 0)
    result = PyObject_Call(function, args, kwargs);
  return rabbet_py_scope_end(&scope, result, out_kept);
}
