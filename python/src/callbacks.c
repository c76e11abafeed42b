// Python objects as loggers, profilers, progress monitors, output allocators.
//
// The C structs borrow the objects; whoever hands them on keeps them alive.
#include "python/src/rabbet_py.h"

// A callback cannot return an error here: it is printed, as from __del__. An
// interrupt (Ctrl-C) is sent again, for what runs next.
static void py_unraisable(PyObject* result, PyObject* where) {
  if (!result && PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) {
    PyErr_Clear();
    PyErr_SetInterrupt();
  } else if (!result) {
    PyErr_WriteUnraisable(where);
  }
  Py_XDECREF(result);
}

static void py_log(void* user_data, rabbet_severity_t severity,
                   const char* message) {
  if (!Py_IsInitialized()) return;
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject* error = rabbet_py_error_take();
  PyObject* text = rabbet_py_message(message);
  PyObject* result = text ? PyObject_CallMethod(user_data, "_rabbet_log", "iO",
                                                (int)severity, text)
                          : NULL;
  Py_XDECREF(text);
  py_unraisable(result, user_data);
  rabbet_py_error_restore(error);
  PyGILState_Release(gil);
}

rabbet_logger_t rabbet_py_logger(PyObject* logger) {
  rabbet_logger_t result = {0};
  if (!logger || Py_IsNone(logger)) return result;
  result.user_data = logger;
  result.log = py_log;
  result.verbosity = RABBET_SEVERITY_VERBOSE;
  PyObject* least = PyObject_GetAttrString(logger, "min_severity");
  if (least) {
    long value = PyLong_AsLong(least);
    if (!PyErr_Occurred()) result.verbosity = (rabbet_severity_t)value;
    Py_DECREF(least);
  }
  PyErr_Clear();  // an ILogger of the user's need not have a threshold
  return result;
}

_Thread_local PyObject* rabbet_py_callback_error;

// Keeps the current exception for the end of the run; the first one counts.
static void py_defer_error(PyObject* result) {
  Py_XDECREF(result);
  if (!PyErr_Occurred()) return;
  PyObject* error =
      rabbet_py_exception_from_status(rabbet_py_status_from_exception());
  if (rabbet_py_callback_error) {
    Py_XDECREF(error);
  } else {
    rabbet_py_callback_error = error;
  }
}

PyObject* rabbet_py_run_result(rabbet_status_t status) {
  PyObject* error = rabbet_py_callback_error;
  rabbet_py_callback_error = NULL;
  if (!error) return rabbet_py_none_or_raise(status);
  rabbet_status_ignore(status);
  rabbet_py_error_restore(error);
  return NULL;
}

// Whether it is time to look for signals again. For that a thread takes the
// GIL, for which it may have to wait.
static bool py_is_time(void) {
  static _Thread_local int64_t next;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  int64_t ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
  if (ns < next) return false;
  next = ns + RABBET_PY_WAIT_NS;
  return true;
}

static rabbet_status_t py_check_signals(void* user_data) {
  (void)user_data;
  rabbet_status_t status = rabbet_ok();
  if (rabbet_py_callback_error)
    return RABBET_STATUS(RABBET_STATUS_CANCELLED, "a callback failed");
  if (!py_is_time()) return status;
  PyGILState_STATE gil = PyGILState_Ensure();
  if (PyErr_CheckSignals()) status = rabbet_py_status_from_exception();
  PyGILState_Release(gil);
  return status;
}

rabbet_interrupt_t rabbet_py_interrupt(void) {
  return (rabbet_interrupt_t){.check = py_check_signals};
}

static void py_report_time(void* user_data, const char* layer,
                           float milliseconds) {
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject* name = rabbet_py_message(layer);
  PyObject* result = name
                         ? PyObject_CallMethod(user_data, "report_layer_time",
                                               "Od", name, (double)milliseconds)
                         : NULL;
  Py_XDECREF(name);
  py_defer_error(result);
  PyGILState_Release(gil);
}

rabbet_profiler_t rabbet_py_profiler(PyObject* profiler) {
  rabbet_profiler_t result = {0};
  if (!profiler || Py_IsNone(profiler)) return result;
  result.user_data = profiler;
  result.report = py_report_time;
  return result;
}

// ---- Output allocators -----------------------------------------------------

static void* py_reallocate(void* user_data, const char* name, void* current,
                           size_t size, size_t alignment, void* stream) {
  PyGILState_STATE gil = PyGILState_Ensure();
  // The object's base class maps this on whichever method the user wrote.
  PyObject* result = PyObject_CallMethod(
      user_data, "_rabbet_reallocate", "sKKKK", name,
      (unsigned long long)(uintptr_t)current, (unsigned long long)size,
      (unsigned long long)alignment, (unsigned long long)(uintptr_t)stream);
  void* address = result ? PyLong_AsVoidPtr(result) : NULL;
  py_defer_error(result);
  PyGILState_Release(gil);
  return address;
}

static void py_notify_shape(void* user_data, const char* name,
                            const rabbet_dims_t* dims) {
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject* shape = rabbet_py_from_dims(dims);
  PyObject* result = shape ? PyObject_CallMethod(user_data, "_rabbet_notify",
                                                 "sO", name, shape)
                           : NULL;
  Py_XDECREF(shape);
  py_defer_error(result);
  PyGILState_Release(gil);
}

rabbet_output_allocator_t rabbet_py_output_allocator(PyObject* allocator) {
  rabbet_output_allocator_t result = {0};
  if (!allocator || Py_IsNone(allocator)) return result;
  result.user_data = allocator;
  result.reallocate = py_reallocate;
  result.notify_shape = py_notify_shape;
  return result;
}

// ---- Memory of the device ---------------------------------------------------

static void* py_allocate(void* user_data, size_t size, size_t alignment,
                         void* stream) {
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject* result = PyObject_CallMethod(
      user_data, "_rabbet_allocate", "KKK", (unsigned long long)size,
      (unsigned long long)alignment, (unsigned long long)(uintptr_t)stream);
  void* address = result ? PyLong_AsVoidPtr(result) : NULL;
  py_defer_error(result);
  PyGILState_Release(gil);
  return address;
}

// Also where nobody can be told of an exception any more.
static void py_free(void* user_data, void* memory, void* stream) {
  if (!Py_IsInitialized()) return;
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject* error = rabbet_py_error_take();
  py_unraisable(PyObject_CallMethod(user_data, "_rabbet_deallocate", "KK",
                                    (unsigned long long)(uintptr_t)memory,
                                    (unsigned long long)(uintptr_t)stream),
                user_data);
  rabbet_py_error_restore(error);
  PyGILState_Release(gil);
}

rabbet_device_allocator_t rabbet_py_device_allocator(PyObject* allocator) {
  rabbet_device_allocator_t result = {0};
  if (!allocator || Py_IsNone(allocator)) return result;
  result.user_data = allocator;
  result.allocate = py_allocate;
  result.free = py_free;
  return result;
}

// ---- Debug tensors ---------------------------------------------------------

static void py_process_debug(void* user_data,
                             const rabbet_debug_tensor_t* tensor) {
  PyGILState_STATE gil = PyGILState_Ensure();
  // After an exception the rest of the run is not shown.
  if (!rabbet_py_callback_error) {
    PyObject* result = PyObject_CallMethod(
        user_data, "_rabbet_process", "KiNNNK",
        (unsigned long long)(uintptr_t)tensor->data, (int)tensor->on_host,
        rabbet_py_dtype(tensor->dtype), rabbet_py_from_dims(&tensor->dims),
        rabbet_py_message(tensor->name),
        (unsigned long long)(uintptr_t)tensor->stream);
    py_defer_error(result);
  }
  PyGILState_Release(gil);
}

rabbet_debug_listener_t rabbet_py_debug_listener(PyObject* listener) {
  rabbet_debug_listener_t result = {0};
  if (!listener || Py_IsNone(listener)) return result;
  result.user_data = listener;
  result.process = py_process_debug;
  return result;
}

// ---- Progress --------------------------------------------------------------

// Keeps the first exception; the build is stopped and it is raised after.
static void py_keep_error(rabbet_py_progress_t* progress) {
  if (!PyErr_Occurred()) return;
  rabbet_status_t status = rabbet_py_status_from_exception();
  PyObject* error = rabbet_py_exception_from_status(status);
  if (progress->error) {
    Py_XDECREF(error);
  } else {
    progress->error = error;
  }
}

static bool py_monitored(const rabbet_py_progress_t* progress) {
  return !Py_IsNone(progress->monitor) && !progress->error;
}

static void py_phase_start(void* user_data, const char* phase,
                           const char* parent, int32_t steps) {
  rabbet_py_progress_t* progress = user_data;
  PyGILState_STATE gil = PyGILState_Ensure();
  if (py_monitored(progress)) {
    Py_XDECREF(PyObject_CallMethod(progress->monitor, "phase_start", "szi",
                                   phase, parent, (int)steps));
    py_keep_error(progress);
  }
  PyGILState_Release(gil);
}

static bool py_step(void* user_data, const char* phase, int32_t step) {
  rabbet_py_progress_t* progress = user_data;
  PyGILState_STATE gil = PyGILState_Ensure();
  bool go_on = PyErr_CheckSignals() == 0;
  if (go_on && py_monitored(progress)) {
    PyObject* result = PyObject_CallMethod(progress->monitor, "step_complete",
                                           "si", phase, (int)step);
    // A monitor that returns nothing does not mean to stop.
    go_on = result && (Py_IsNone(result) || PyObject_IsTrue(result) == 1);
    Py_XDECREF(result);
  }
  py_keep_error(progress);
  if (progress->error) go_on = false;
  PyGILState_Release(gil);
  return go_on;
}

// Only signals: what a monitor thinks is asked by steps.
static bool py_go_on(void* user_data) {
  rabbet_py_progress_t* progress = user_data;
  PyGILState_STATE gil = PyGILState_Ensure();
  if (PyErr_CheckSignals() != 0) py_keep_error(progress);
  bool go_on = !progress->error;
  PyGILState_Release(gil);
  return go_on;
}

static void py_phase_end(void* user_data, const char* phase) {
  rabbet_py_progress_t* progress = user_data;
  PyGILState_STATE gil = PyGILState_Ensure();
  if (!Py_IsNone(progress->monitor)) {
    Py_XDECREF(
        PyObject_CallMethod(progress->monitor, "phase_finish", "s", phase));
    py_keep_error(progress);
  }
  PyGILState_Release(gil);
}

rabbet_progress_t rabbet_py_progress(rabbet_py_progress_t* progress) {
  rabbet_progress_t result = {
      .user_data = progress,
      .phase_start = py_phase_start,
      .step = py_step,
      .phase_end = py_phase_end,
      .go_on = py_go_on,
  };
  return result;
}
