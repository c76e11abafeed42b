// Statuses to exceptions and back.
#include <stdarg.h>
#include <string.h>

#include "base/text.h"
#include "python/src/rabbet_py.h"

// Identifies payloads that are Python exceptions.
static const char py_exception_tag;

static void py_exception_destroy(void* payload) {
  if (!Py_IsInitialized()) return;  // at exit the interpreter may go first
  PyGILState_STATE gil = PyGILState_Ensure();
  Py_DECREF((PyObject*)payload);
  PyGILState_Release(gil);
}

PyObject* rabbet_py_message(const char* text) {
  return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

PyObject* rabbet_py_shown(PyObject* module, PyObject* text) {
  (void)module;
  PyObject* bytes =
      PyUnicode_AsEncodedString(text, "utf-8", "backslashreplace");
  if (!bytes) return NULL;
  const char* from = PyBytes_AsString(bytes);
  size_t size = rabbet_text_escape(from, NULL, 0) + 1;
  char* shown = PyMem_Malloc(size);
  if (shown) rabbet_text_escape(from, shown, size);
  PyObject* result = shown ? rabbet_py_message(shown) : PyErr_NoMemory();
  PyMem_Free(shown);
  Py_DECREF(bytes);
  return result;
}

// "TypeError: text", as the last line of a traceback reads.
static PyObject* py_exception_text(PyObject* exception) {
  PyObject* name = PyType_GetName(Py_TYPE(exception));
  PyObject* text = name ? PyObject_Str(exception) : NULL;
  PyObject* line = NULL;
  if (text) {
    Py_ssize_t length = PyUnicode_GetLength(text);
    PyObject* whole =
        PyUnicode_FromFormat(length > 0 ? "%U: %U" : "%U", name, text);
    line = whole ? rabbet_py_shown(NULL, whole) : NULL;
    Py_XDECREF(whole);
  }
  Py_XDECREF(name);
  Py_XDECREF(text);
  if (!line) PyErr_Clear();
  return line;
}

static rabbet_status_code_t py_exception_code(PyObject* exception) {
  if (PyErr_GivenExceptionMatches(exception, PyExc_KeyboardInterrupt)) {
    return RABBET_STATUS_CANCELLED;
  }
  if (PyErr_GivenExceptionMatches(exception, PyExc_MemoryError)) {
    return RABBET_STATUS_OUT_OF_MEMORY;
  }
  return RABBET_STATUS_PLUGIN;
}

#if PY_VERSION_HEX >= 0x030C0000 && !defined(Py_LIMITED_API)
PyObject* rabbet_py_error_take(void) {
  return PyErr_GetRaisedException();
}

void rabbet_py_error_restore(PyObject* take_error) {
  PyErr_SetRaisedException(take_error);
}
#else
PyObject* rabbet_py_error_take(void) {
  PyObject *type = NULL, *value = NULL, *traceback = NULL;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (value && traceback) PyException_SetTraceback(value, traceback);
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  return value;
}

void rabbet_py_error_restore(PyObject* take_error) {
  if (!take_error) {
    PyErr_Clear();
    return;
  }
  PyErr_Restore(Py_NewRef((PyObject*)Py_TYPE(take_error)), take_error,
                PyException_GetTraceback(take_error));
}
#endif

void rabbet_py_prefix_error(PyObject* type, const char* format, ...) {
  if (!PyErr_ExceptionMatches(type)) return;
  PyObject* exception = rabbet_py_error_take();
  va_list args;
  va_start(args, format);
  PyObject* prefix = PyUnicode_FromFormatV(format, args);
  va_end(args);
  if (prefix) PyErr_Format(type, "%U: %S", prefix, exception);
  Py_XDECREF(prefix);
  Py_XDECREF(exception);
}

rabbet_status_t rabbet_py_status_from_exception(void) {
  PyObject* exception = rabbet_py_error_take();
  if (!exception) {
    return RABBET_STATUS(RABBET_STATUS_INTERNAL,
                         "a Python call failed without an exception");
  }
  PyObject* text = py_exception_text(exception);
  const char* utf8 = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
  if (!utf8) PyErr_Clear();
  rabbet_status_t status = RABBET_STATUS(py_exception_code(exception), "%s",
                                         utf8 ? utf8 : "an exception");
  Py_XDECREF(text);
  rabbet_status_set_payload(status, &py_exception_tag, exception,
                            py_exception_destroy);
  return status;
}

// The text that layers of C added in front of the exception's own: where it
// happened.
static PyObject* py_context_note(rabbet_status_t status, PyObject* exception) {
  const char* message = rabbet_status_message(status);
  PyObject* text = py_exception_text(exception);
  const char* own = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
  size_t length = strlen(message), own_length = own ? strlen(own) : 0;
  PyObject* note = NULL;
  if (own && length > own_length + 2 &&
      strcmp(message + length - own_length, own) == 0) {
    PyObject* where = PyUnicode_DecodeUTF8(
        message, (Py_ssize_t)(length - own_length - 2), "replace");
    if (where) note = PyUnicode_FromFormat("raised in %U", where);
    Py_XDECREF(where);
  } else if (!own || length != own_length) {
    note = rabbet_py_message(message);
  }
  Py_XDECREF(text);
  if (PyErr_Occurred()) PyErr_Clear();
  return note;
}

static void py_add_note(PyObject* exception, PyObject* note) {
  PyObject* notes = PyObject_GetAttrString(exception, "__notes__");
  bool there = notes && PySequence_Contains(notes, note) == 1;
  Py_XDECREF(notes);
  PyErr_Clear();
  if (there) return;
  PyObject* result = PyObject_CallMethod(exception, "add_note", "O", note);
  if (!result) PyErr_Clear();
  Py_XDECREF(result);
}

static PyObject* py_new_exception(rabbet_status_t status) {
  PyObject* type = NULL;
  PyObject* errors = rabbet_py_types.status_errors;
  if (errors) type = PyTuple_GetItem(errors, rabbet_status_code(status));
  if (!type) {
    PyErr_Clear();
    type = PyExc_RuntimeError;
  }
  PyObject* message = rabbet_py_message(rabbet_status_message(status));
  PyObject* exception =
      message ? PyObject_CallFunctionObjArgs(type, message, NULL) : NULL;
  Py_XDECREF(message);
  return exception;
}

PyObject* rabbet_py_exception_from_status(rabbet_status_t status) {
  PyObject* exception = rabbet_status_payload(status, &py_exception_tag);
  if (exception) {
    Py_INCREF(exception);
    PyObject* note = py_context_note(status, exception);
    if (note) py_add_note(exception, note);
    Py_XDECREF(note);
  } else {
    exception = py_new_exception(status);
  }
  rabbet_status_free(status);
  return exception;
}

void* rabbet_py_raise(rabbet_status_t status) {
  PyObject* exception = rabbet_py_exception_from_status(status);
  if (!exception) return NULL;
  rabbet_py_error_restore(exception);
  return NULL;
}

int rabbet_py_raise_int(rabbet_status_t status) {
  rabbet_py_raise(status);
  return -1;
}

PyObject* rabbet_py_none_or_raise(rabbet_status_t status) {
  if (!rabbet_is_ok(status)) return rabbet_py_raise(status);
  return Py_NewRef(Py_None);
}
