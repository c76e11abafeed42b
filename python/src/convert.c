// Python values to the C interface's and back.
#include <stdlib.h>
#include <string.h>

#include "python/src/rabbet_py.h"

// Setters are called without a value by `del object.attribute`.
static bool py_is_deletion(PyObject* value, const char* what) {
  if (value) return false;
  PyErr_Format(PyExc_AttributeError, "%s cannot be deleted", what);
  return true;
}

int rabbet_py_raise_wrong(const char* what, const char* expected,
                          PyObject* object) {
  PyObject* found = PyObject_Repr(object);
  if (!found) {  // integers of thousands of digits; classes of users
    PyErr_Clear();
    PyObject* type = PyType_GetName(Py_TYPE(object));
    found = type ? PyUnicode_FromFormat("an object of %U that cannot be shown",
                                        type)
                 : NULL;
    Py_XDECREF(type);
  }
  if (found)
    PyErr_Format(PyExc_TypeError, "%s%sexpected %s, got %U", what,
                 *what ? ": " : "", expected, found);
  Py_XDECREF(found);
  return -1;
}

int rabbet_py_to_int64(PyObject* object, const char* what, int64_t* out_value) {
  *out_value = 0;
  if (py_is_deletion(object, what)) return -1;
  PyObject* number = PyNumber_Index(object);  // also of NumPy integers
  if (number) {
    *out_value = PyLong_AsLongLong(number);
    Py_DECREF(number);
    if (!PyErr_Occurred()) return 0;
  }
  PyErr_Clear();
  return rabbet_py_raise_wrong(what, "a 64-bit integer", object);
}

int rabbet_py_to_index(PyObject* object, const char* what, size_t* out_index) {
  int64_t value = 0;
  *out_index = 0;
  if (rabbet_py_to_int64(object, what, &value)) return -1;
  if (value < 0) {
    PyErr_Format(PyExc_IndexError, "%s %lld is negative", what,
                 (long long)value);
    return -1;
  }
  *out_index = (size_t)value;
  return 0;
}

int rabbet_py_to_dims(PyObject* object, const char* what,
                      rabbet_dims_t* out_dims) {
  memset(out_dims, 0, sizeof(*out_dims));
  if (py_is_deletion(object, what)) return -1;
  Py_ssize_t rank = PySequence_Size(object);
  if (rank < 0) {
    PyErr_Clear();
    return rabbet_py_raise_wrong(what, "a sequence of integers", object);
  }
  if (rank > RABBET_MAX_RANK) {
    PyErr_Format(PyExc_ValueError,
                 "%s: a tensor has at most %d dimensions, got %zd", what,
                 RABBET_MAX_RANK, rank);
    return -1;
  }
  out_dims->rank = (int32_t)rank;
  for (Py_ssize_t i = 0; i < rank; ++i) {
    PyObject* item = PySequence_GetItem(object, i);
    int failed = item ? rabbet_py_to_int64(item, what, &out_dims->d[i]) : -1;
    Py_XDECREF(item);
    if (failed) return -1;
  }
  return 0;
}

PyObject* rabbet_py_from_dims(const rabbet_dims_t* dims) {
  Py_ssize_t rank = dims->rank < 0 ? 0 : dims->rank;
  PyObject* tuple = PyTuple_New(rank);
  for (Py_ssize_t i = 0; tuple && i < rank; ++i) {
    PyObject* item = PyLong_FromLongLong(dims->d[i]);
    if (!item || PyTuple_SetItem(tuple, i, item) < 0) Py_CLEAR(tuple);
  }
  return tuple;
}

int rabbet_py_to_text(PyObject* object, const char* what, bool none_ok,
                      const char** out_text) {
  *out_text = NULL;
  if (py_is_deletion(object, what)) return -1;
  if (none_ok && Py_IsNone(object)) return 0;
  if (!PyUnicode_Check(object))
    return rabbet_py_raise_wrong(what, "a str", object);
  Py_ssize_t length = 0;
  *out_text = PyUnicode_AsUTF8AndSize(object, &length);
  if (!*out_text) {  // surrogates, as of paths that are not UTF-8
    PyErr_Format(PyExc_ValueError, "%s: is not UTF-8: %R", what, object);
    return -1;
  }
  if (strlen(*out_text) != (size_t)length) {
    PyErr_Format(PyExc_ValueError, "%s: contains a NUL character: %R", what,
                 object);
    return -1;
  }
  return 0;
}

PyObject* rabbet_py_text_or_none(const char* text) {
  return text ? rabbet_py_message(text) : Py_NewRef(Py_None);
}

PyObject* rabbet_py_dtype(rabbet_dtype_t dtype) {
  PyObject* dtypes = rabbet_py_types.dtypes;
  if (dtypes && dtype >= 0) {
    PyObject* member = PyTuple_GetItem(dtypes, (Py_ssize_t)dtype);
    if (member) return Py_NewRef(member);
    PyErr_Clear();
  }
  return Py_NewRef(Py_None);
}

PyObject* rabbet_py_format(rabbet_format_t format) {
  bool known = format >= 0 && (int)format < RABBET_PY_FORMATS;
  PyObject* member = known ? rabbet_py_types.formats[format] : NULL;
  return Py_NewRef(member ? member : Py_None);
}
