// Execution contexts, for the object interface. `runner.c` runs models for
// rabbet.Model.
#include <limits.h>
#include <string.h>

#include "python/src/rabbet_py.h"

static void py_release_context(void* pointer) {
  // A plugin's state holds Python objects: destroy_state takes the GIL itself,
  // and so does a thread of the context that logs, for whose end this waits.
  Py_BEGIN_ALLOW_THREADS rabbet_context_destroy(pointer);
  Py_END_ALLOW_THREADS
}

// A context is for one thread at a time, and not for its own callbacks: until
// the end of the block it is the caller's, who has RABBET_PY_LOCK. NULL, and an
// exception is set, if it is not idle.
static PyObject* py_context_claim(PyObject* self) {
  rabbet_py_handle_t* handle = (rabbet_py_handle_t*)self;
  if (handle->busy) {
    return rabbet_py_raise(RABBET_STATUS(
        RABBET_STATUS_FAILED_PRECONDITION,
        "this context is running: one thread at a time may use it, and nothing "
        "that it calls may change it; make a context for each thread"));
  }
  handle->busy = true;
  return self;
}

static void py_context_give_back(PyObject** claimed) {
  if (*claimed) ((rabbet_py_handle_t*)*claimed)->busy = false;
}

#define RABBET_PY_CLAIM(self)                                                  \
  RABBET_PY_LOCK(self);                                                        \
  __attribute__((cleanup(py_context_give_back))) PyObject* rabbet_py_claimed = \
      py_context_claim(self);                                                  \
  if (!rabbet_py_claimed) return NULL

PyObject* rabbet_py_from_graph_info(const rabbet_graph_info_t* info) {
  return Py_BuildValue("(KKKK)", (unsigned long long)info->graph_steps,
                       (unsigned long long)info->other_steps,
                       (unsigned long long)info->recordings,
                       (unsigned long long)info->replays);
}

// create_context(type, engine)
static PyObject* py_create_context(PyObject* module, PyObject* args) {
  (void)module;
  PyObject *type, *engine_object;
  if (!PyArg_ParseTuple(args, "OO", &type, &engine_object)) return NULL;
  void* engine = rabbet_py_handle_get(engine_object, rabbet_py_types.engine);
  if (!engine) return NULL;
  rabbet_context_t* context = NULL;
  rabbet_status_t status;
  Py_BEGIN_ALLOW_THREADS status =
      rabbet_context_create(engine, rabbet_allocator_system(), &context);
  Py_END_ALLOW_THREADS if (!rabbet_is_ok(status)) return rabbet_py_raise(
      status);
  rabbet_context_set_interrupt(context, rabbet_py_interrupt());
  PyObject* keep = PyTuple_Pack(2, engine_object, Py_None);
  if (!keep) {
    rabbet_context_destroy(context);
    return NULL;
  }
  PyObject* result = rabbet_py_handle_new((PyTypeObject*)type, context, keep,
                                          py_release_context);
  Py_DECREF(keep);
  return result;
}

static PyObject* py_context_set_threads(PyObject* self, PyObject* value) {
  RABBET_PY_CLAIM(self);
  int64_t threads = 0;
  if (rabbet_py_to_int64(value, "threads", &threads)) {
    return NULL;
  }
  if (threads > INT_MAX) threads = INT_MAX;
  if (threads < 0) threads = -1;
  return rabbet_py_none_or_raise(
      rabbet_context_set_threads(rabbet_py_pointer(self), (int)threads));
}

static PyObject* py_context_threads(PyObject* self, PyObject* none) {
  RABBET_PY_LOCK(self);
  (void)none;
  return PyLong_FromLong(rabbet_context_threads(rabbet_py_pointer(self)));
}

static PyObject* py_context_set_iteration_limit(PyObject* self,
                                                PyObject* value) {
  RABBET_PY_CLAIM(self);
  int64_t limit = 0;
  if (rabbet_py_to_int64(value, "iteration limit", &limit)) return NULL;
  return rabbet_py_none_or_raise(
      rabbet_context_set_iteration_limit(rabbet_py_pointer(self), limit));
}

static PyObject* py_context_iteration_limit(PyObject* self, PyObject* none) {
  RABBET_PY_LOCK(self);
  (void)none;
  return PyLong_FromLongLong(
      rabbet_context_iteration_limit(rabbet_py_pointer(self)));
}

// Beside a run: the only method that does not want the context idle.
static PyObject* py_context_cancel(PyObject* self, PyObject* none) {
  (void)none;
  return PyBool_FromLong(rabbet_context_cancel(rabbet_py_pointer(self)));
}

static PyObject* py_context_set_profile(PyObject* self, PyObject* value) {
  RABBET_PY_CLAIM(self);
  size_t profile = 0;
  if (rabbet_py_to_index(value, "profile", &profile)) {
    return NULL;
  }
  return rabbet_py_none_or_raise(
      rabbet_context_set_profile(rabbet_py_pointer(self), profile));
}

static PyObject* py_context_profile(PyObject* self, PyObject* none) {
  RABBET_PY_LOCK(self);
  (void)none;
  return PyLong_FromSize_t(rabbet_context_profile(rabbet_py_pointer(self)));
}

// Index of a tensor given by name; -1 with NameError's kin set.
static Py_ssize_t py_find_io(PyObject* self, PyObject* name_object) {
  const char* name = NULL;
  if (rabbet_py_to_text(name_object, "tensor name", false, &name)) return -1;
  rabbet_context_t* context = rabbet_py_pointer(self);
  int32_t io = rabbet_engine_find_io(rabbet_context_engine(context), name);
  if (io >= 0) return io;
  rabbet_py_raise(RABBET_STATUS(RABBET_STATUS_NOT_FOUND,
                                "the engine has no input or output named '%s'",
                                name));
  return -1;
}

// Called after each setting: prepares the next run once all its shapes and
// addresses are known, so that it can be captured.
static PyObject* py_context_was_set(PyObject* self, rabbet_status_t status) {
  if (!rabbet_is_ok(status)) return rabbet_py_raise(status);
  rabbet_context_t* context = rabbet_py_pointer(self);
  Py_BEGIN_ALLOW_THREADS rabbet_context_prepare_early(context);
  Py_END_ALLOW_THREADS Py_CLEAR(rabbet_py_callback_error);
  Py_RETURN_NONE;
}

static PyObject* py_context_prepare(PyObject* self, PyObject* none) {
  RABBET_PY_CLAIM(self);
  (void)none;
  rabbet_status_t status;
  Py_BEGIN_ALLOW_THREADS status =
      rabbet_context_prepare(rabbet_py_pointer(self));
  Py_END_ALLOW_THREADS return rabbet_py_run_result(status);
}

static PyObject* py_context_set_shape(PyObject* self, PyObject* args) {
  RABBET_PY_CLAIM(self);
  PyObject *name = NULL, *shape = NULL;
  rabbet_dims_t dims;
  if (!PyArg_ParseTuple(args, "OO", &name, &shape) ||
      rabbet_py_to_dims(shape, "shape", &dims)) {
    return NULL;
  }
  Py_ssize_t io = py_find_io(self, name);
  if (io < 0) return NULL;
  return py_context_was_set(
      self, rabbet_context_set_input_shape(rabbet_py_pointer(self), (size_t)io,
                                           &dims));
}

static PyObject* py_context_shape(PyObject* self, PyObject* name) {
  RABBET_PY_LOCK(self);
  Py_ssize_t io = py_find_io(self, name);
  if (io < 0) return NULL;
  rabbet_dims_t dims;
  rabbet_status_t status =
      rabbet_context_shape(rabbet_py_pointer(self), (size_t)io, &dims);
  if (!rabbet_is_ok(status)) return rabbet_py_raise(status);
  return rabbet_py_from_dims(&dims);
}

static PyObject* py_context_set_address(PyObject* self, PyObject* args) {
  RABBET_PY_CLAIM(self);
  PyObject *name = NULL, *memory = NULL;
  if (!PyArg_ParseTuple(args, "OO", &name, &memory)) {
    return NULL;
  }
  Py_ssize_t io = py_find_io(self, name);
  if (io < 0) return NULL;
  PyObject* number = PyNumber_Index(memory);
  void* address = number ? PyLong_AsVoidPtr(number) : NULL;
  Py_XDECREF(number);
  if (PyErr_Occurred()) {
    PyErr_Clear();
    return PyErr_Format(PyExc_TypeError,
                        "address of '%U': expected an integer (such as "
                        "array.ctypes.data or tensor.data_ptr()), got %R",
                        name, memory);
  }
  return py_context_was_set(
      self,
      rabbet_context_set_address(rabbet_py_pointer(self), (size_t)io, address));
}

static PyObject* py_context_address(PyObject* self, PyObject* name) {
  RABBET_PY_LOCK(self);
  Py_ssize_t io = py_find_io(self, name);
  if (io < 0) return NULL;
  return PyLong_FromVoidPtr(
      rabbet_context_address(rabbet_py_pointer(self), (size_t)io));
}

static PyObject* py_context_bytes(PyObject* self, PyObject* name) {
  RABBET_PY_LOCK(self);
  Py_ssize_t io = py_find_io(self, name);
  if (io < 0) return NULL;
  size_t bytes = 0;
  rabbet_status_t status =
      rabbet_context_bytes(rabbet_py_pointer(self), (size_t)io, &bytes);
  if (!rabbet_is_ok(status)) return rabbet_py_raise(status);
  return PyLong_FromSize_t(bytes);
}

static PyObject* py_missing_list(const rabbet_context_t* context) {
  PyObject* list = PyList_New(0);
  size_t count = rabbet_engine_io_count(rabbet_context_engine(context));
  for (size_t i = 0; list && i < count; ++i) {
    if (!rabbet_context_is_missing(context, i)) continue;
    PyObject* index = PyLong_FromSize_t(i);
    if (!index || PyList_Append(list, index) < 0) Py_CLEAR(list);
    Py_XDECREF(index);
  }
  return list;
}

// The indices of inputs that are missing.
static PyObject* py_context_infer(PyObject* self, PyObject* none) {
  RABBET_PY_CLAIM(self);
  (void)none;
  int32_t missing = -1;
  rabbet_status_t status;
  Py_BEGIN_ALLOW_THREADS status =
      rabbet_context_infer_shapes(rabbet_py_pointer(self), &missing);
  Py_END_ALLOW_THREADS if (!rabbet_is_ok(status) &&
                           missing < 0) return rabbet_py_raise(status);
  rabbet_status_ignore(status);
  return py_missing_list(rabbet_py_pointer(self));
}

static PyObject* py_context_set_allocator(PyObject* self, PyObject* args) {
  RABBET_PY_CLAIM(self);
  PyObject *name = NULL, *object = NULL;
  if (!PyArg_ParseTuple(args, "OO", &name, &object)) {
    return NULL;
  }
  Py_ssize_t io = py_find_io(self, name);
  if (io < 0) return NULL;
  return rabbet_py_none_or_raise(rabbet_context_set_output_allocator(
      rabbet_py_pointer(self), (size_t)io, rabbet_py_output_allocator(object)));
}

static PyObject* py_context_set_profiler(PyObject* self, PyObject* object) {
  RABBET_PY_CLAIM(self);
  return rabbet_py_none_or_raise(rabbet_context_set_profiler(
      rabbet_py_pointer(self), rabbet_py_profiler(object)));
}

static PyObject* py_context_set_graphs(PyObject* self, PyObject* value) {
  RABBET_PY_CLAIM(self);
  int on = PyObject_IsTrue(value);
  if (on < 0) return NULL;
  rabbet_context_set_graphs(rabbet_py_pointer(self), on != 0);
  return Py_NewRef(Py_None);
}

static PyObject* py_context_set_check_finite(PyObject* self, PyObject* value) {
  RABBET_PY_CLAIM(self);
  int on = PyObject_IsTrue(value);
  if (on < 0) return NULL;
  return rabbet_py_none_or_raise(
      rabbet_context_set_check_finite(rabbet_py_pointer(self), on != 0));
}

static PyObject* py_context_checks_finite(PyObject* self, PyObject* none) {
  (void)none;
  RABBET_PY_CLAIM(self);
  return PyBool_FromLong(rabbet_context_checks_finite(rabbet_py_pointer(self)));
}

static PyObject* py_context_graphs(PyObject* self, PyObject* none) {
  RABBET_PY_LOCK(self);
  (void)none;
  return PyBool_FromLong(rabbet_context_graphs(rabbet_py_pointer(self)));
}

// (steps by graphs, other steps, recordings, replays)
static PyObject* py_context_graph_info(PyObject* self, PyObject* none) {
  RABBET_PY_LOCK(self);
  (void)none;
  rabbet_graph_info_t info = {.struct_size = sizeof(info)};
  rabbet_context_graph_info(rabbet_py_pointer(self), &info);
  return rabbet_py_from_graph_info(&info);
}

static PyObject* py_context_execute(PyObject* self, PyObject* handle) {
  RABBET_PY_CLAIM(self);
  int64_t number = 0;
  if (rabbet_py_to_int64(handle, "stream_handle", &number)) {
    return NULL;
  }
  void* stream = (void*)(intptr_t)number;
  rabbet_context_t* context = rabbet_py_pointer(self);
  rabbet_py_run_t run = {.held = &self, .count = 1};
  const rabbet_py_run_t* outer = rabbet_py_run;
  rabbet_py_run = &run;
  rabbet_status_t status;
  Py_BEGIN_ALLOW_THREADS status = rabbet_context_execute(context, stream);
  Py_END_ALLOW_THREADS rabbet_py_run = outer;
  return rabbet_py_run_result(status);
}

static PyObject* py_context_check(PyObject* self, PyObject* handle) {
  RABBET_PY_CLAIM(self);
  int64_t number = 0;
  if (rabbet_py_to_int64(handle, "stream_handle", &number)) return NULL;
  void* stream = (void*)(intptr_t)number;
  rabbet_context_t* context = rabbet_py_pointer(self);
  rabbet_status_t status;
  Py_BEGIN_ALLOW_THREADS status = rabbet_context_check(context, stream);
  Py_END_ALLOW_THREADS return rabbet_py_none_or_raise(status);
}

int rabbet_py_to_communicator(PyObject* object, void** out_communicator) {
  *out_communicator = NULL;
  if (object == Py_None) return 0;
  if (PyCapsule_IsValid(object, "ncclComm_t")) {
    *out_communicator = PyCapsule_GetPointer(object, "ncclComm_t");
    return 0;
  }
  PyErr_Format(PyExc_TypeError,
               "communicator: expected a PyCapsule named \"ncclComm_t\" or "
               "None, got %R",
               object);
  return -1;
}

static PyObject* py_context_set_communicator(PyObject* self, PyObject* object) {
  RABBET_PY_CLAIM(self);
  void* communicator = NULL;
  if (rabbet_py_to_communicator(object, &communicator)) return NULL;
  rabbet_status_t status;
  Py_BEGIN_ALLOW_THREADS status =
      rabbet_context_set_communicator(rabbet_py_pointer(self), communicator);
  Py_END_ALLOW_THREADS return rabbet_py_none_or_raise(status);
}

// ---- Memory

// set_memory(address, size)
static PyObject* py_context_set_memory(PyObject* self, PyObject* args) {
  RABBET_PY_CLAIM(self);
  unsigned long long address = 0, size = 0;
  if (!PyArg_ParseTuple(args, "KK", &address, &size)) {
    return NULL;
  }
  return py_context_was_set(
      self, rabbet_context_set_memory(rabbet_py_pointer(self),
                                      (void*)(uintptr_t)address, (size_t)size));
}

static PyObject* py_context_memory_bytes(PyObject* self, PyObject* none) {
  RABBET_PY_CLAIM(self);
  (void)none;
  size_t bytes = 0;
  rabbet_status_t status;
  Py_BEGIN_ALLOW_THREADS status =
      rabbet_context_memory_bytes(rabbet_py_pointer(self), &bytes);
  Py_END_ALLOW_THREADS if (!rabbet_is_ok(status)) return rabbet_py_raise(
      status);
  return PyLong_FromSize_t(bytes);
}

// A context keeps (engine, allocator): it calls the allocator when it goes.
static PyObject* py_context_set_device_allocator(PyObject* self,
                                                 PyObject* object) {
  RABBET_PY_CLAIM(self);
  rabbet_py_handle_t* handle = (rabbet_py_handle_t*)self;
  PyObject* keep = PyTuple_Pack(2, PyTuple_GetItem(handle->keep, 0), object);
  if (!keep) return NULL;
  rabbet_status_t status = rabbet_context_set_device_allocator(
      handle->pointer, rabbet_py_device_allocator(object));
  if (!rabbet_is_ok(status)) {
    Py_DECREF(keep);
    return rabbet_py_raise(status);
  }
  PyObject* old = handle->keep;
  handle->keep = keep;
  Py_DECREF(old);
  Py_RETURN_NONE;
}

static PyObject* py_context_set_consumed_event(PyObject* self,
                                               PyObject* event) {
  RABBET_PY_CLAIM(self);
  int64_t number = 0;
  if (rabbet_py_to_int64(event, "event", &number)) {
    return NULL;
  }
  return rabbet_py_none_or_raise(rabbet_context_set_consumed_event(
      rabbet_py_pointer(self), (void*)(intptr_t)number));
}

// ---- Debug tensors

static PyObject* py_context_set_debug_listener(PyObject* self,
                                               PyObject* listener) {
  RABBET_PY_CLAIM(self);
  rabbet_context_set_debug_listener(rabbet_py_pointer(self),
                                    rabbet_py_debug_listener(listener));
  Py_RETURN_NONE;
}

// set_debug_state(name | None, on)
static PyObject* py_context_set_debug_state(PyObject* self, PyObject* args) {
  RABBET_PY_CLAIM(self);
  const char* name = NULL;
  int on = 0;
  if (!PyArg_ParseTuple(args, "zp", &name, &on)) {
    return NULL;
  }
  return rabbet_py_none_or_raise(
      rabbet_context_set_debug_state(rabbet_py_pointer(self), name, on != 0));
}

static PyObject* py_context_debug_state(PyObject* self, PyObject* object) {
  RABBET_PY_LOCK(self);
  const char* name = NULL;
  bool on = false;
  if (rabbet_py_to_text(object, "debug tensor", true, &name)) return NULL;
  rabbet_status_t status =
      rabbet_context_debug_state(rabbet_py_pointer(self), name, &on);
  if (!rabbet_is_ok(status)) return rabbet_py_raise(status);
  return PyBool_FromLong(on);
}

static PyObject* py_context_engine(PyObject* self, PyObject* none) {
  RABBET_PY_LOCK(self);
  (void)none;
  return Py_NewRef(PyTuple_GetItem(((rabbet_py_handle_t*)self)->keep, 0));
}

static PyMethodDef py_context_methods[] = {
    {"_keep", py_context_engine, METH_NOARGS, NULL},
    {"_set_threads", py_context_set_threads, METH_O, NULL},
    {"_threads", py_context_threads, METH_NOARGS, NULL},
    {"_set_iteration_limit", py_context_set_iteration_limit, METH_O, NULL},
    {"_iteration_limit", py_context_iteration_limit, METH_NOARGS, NULL},
    {"_cancel", py_context_cancel, METH_NOARGS, NULL},
    {"_set_profile", py_context_set_profile, METH_O, NULL},
    {"_profile", py_context_profile, METH_NOARGS, NULL},
    {"_set_shape", py_context_set_shape, METH_VARARGS, NULL},
    {"_shape", py_context_shape, METH_O, NULL},
    {"_set_address", py_context_set_address, METH_VARARGS, NULL},
    {"_address", py_context_address, METH_O, NULL},
    {"_bytes", py_context_bytes, METH_O, NULL},
    {"_infer", py_context_infer, METH_NOARGS, NULL},
    {"_set_allocator", py_context_set_allocator, METH_VARARGS, NULL},
    {"_set_profiler", py_context_set_profiler, METH_O, NULL},
    {"_set_check_finite", py_context_set_check_finite, METH_O, NULL},
    {"_checks_finite", py_context_checks_finite, METH_NOARGS, NULL},
    {"_set_graphs", py_context_set_graphs, METH_O, NULL},
    {"_graphs", py_context_graphs, METH_NOARGS, NULL},
    {"_graph_info", py_context_graph_info, METH_NOARGS, NULL},
    {"_prepare", py_context_prepare, METH_NOARGS, NULL},
    {"_execute", py_context_execute, METH_O, NULL},
    {"_check", py_context_check, METH_O, NULL},
    {"_set_memory", py_context_set_memory, METH_VARARGS, NULL},
    {"_memory_bytes", py_context_memory_bytes, METH_NOARGS, NULL},
    {"_set_device_allocator", py_context_set_device_allocator, METH_O, NULL},
    {"_set_debug_listener", py_context_set_debug_listener, METH_O, NULL},
    {"_set_debug_state", py_context_set_debug_state, METH_VARARGS, NULL},
    {"_debug_state", py_context_debug_state, METH_O, NULL},
    {"_set_communicator", py_context_set_communicator, METH_O, NULL},
    {"_set_consumed_event", py_context_set_consumed_event, METH_O, NULL},
    {NULL},
};

RABBET_PY_HANDLE_SPEC(py_context, "Context", Py_TPFLAGS_DISALLOW_INSTANTIATION);

static PyMethodDef py_context_functions[] = {
    {"create_context", py_create_context, METH_VARARGS, NULL},
    {NULL},
};

int rabbet_py_add_context(PyObject* module) {
  if (rabbet_py_add_type(module, "Context", &py_context_spec,
                         &rabbet_py_types.context)) {
    return -1;
  }
  return PyModule_AddFunctions(module, py_context_functions);
}
