// Attributes of operators and plugins to Python values and back.
#include <string.h>

#include "python/src/rabbet_py.h"

// ---- Attributes to Python --------------------------------------------------

static PyObject* py_list_of_strings(const rabbet_attr_t* attr) {
  PyObject* list = PyList_New((Py_ssize_t)attr->count);
  const char* text = attr->data;
  for (size_t i = 0; list && i < attr->count; ++i) {
    PyObject* item = rabbet_py_message(text);
    if (!item || PyList_SetItem(list, (Py_ssize_t)i, item) < 0) Py_CLEAR(list);
    text += strlen(text) + 1;
  }
  return list;
}

static PyObject* py_number(const rabbet_attr_t* attr, size_t i) {
  switch (attr->type) {
    case RABBET_ATTR_FLOAT:
    case RABBET_ATTR_FLOATS:
      return PyFloat_FromDouble(((const double*)attr->data)[i]);
    case RABBET_ATTR_BOOL:
    case RABBET_ATTR_BOOLS:
      return PyBool_FromLong(((const int64_t*)attr->data)[i] != 0);
    default:
      return PyLong_FromLongLong(((const int64_t*)attr->data)[i]);
  }
}

static PyObject* py_list_of_numbers(const rabbet_attr_t* attr) {
  PyObject* list = PyList_New((Py_ssize_t)attr->count);
  for (size_t i = 0; list && i < attr->count; ++i) {
    PyObject* item = py_number(attr, i);
    if (!item || PyList_SetItem(list, (Py_ssize_t)i, item) < 0) Py_CLEAR(list);
  }
  return list;
}

// (DataType, dims, bytes): the package makes an array of it.
static PyObject* py_raw_tensor(const rabbet_attr_t* attr) {
  PyObject* dtype = rabbet_py_dtype(attr->dtype);
  PyObject* dims = rabbet_py_from_dims(&attr->dims);
  PyObject* data = PyBytes_FromStringAndSize(
      attr->data, (Py_ssize_t)rabbet_attr_bytes(attr));
  PyObject* tuple =
      dtype && dims && data ? PyTuple_Pack(3, dtype, dims, data) : NULL;
  Py_XDECREF(dtype);
  Py_XDECREF(dims);
  Py_XDECREF(data);
  return tuple;
}

PyObject* rabbet_py_from_attr(const rabbet_attr_t* attr) {
  switch (attr->type) {
    case RABBET_ATTR_INT:
    case RABBET_ATTR_FLOAT:
    case RABBET_ATTR_BOOL:
      return py_number(attr, 0);
    case RABBET_ATTR_STRING:
      return PyUnicode_DecodeUTF8(attr->data, (Py_ssize_t)attr->count,
                                  "surrogateescape");
    case RABBET_ATTR_BYTES:
      return PyBytes_FromStringAndSize(attr->data, (Py_ssize_t)attr->count);
    case RABBET_ATTR_STRINGS:
      return py_list_of_strings(attr);
    case RABBET_ATTR_TENSOR:
      return py_raw_tensor(attr);
    default:
      return py_list_of_numbers(attr);
  }
}

PyObject* rabbet_py_from_attrs(const rabbet_attr_t* attrs, size_t count) {
  PyObject* dict = PyDict_New();
  for (size_t i = 0; dict && i < count; ++i) {
    PyObject* value = rabbet_py_from_attr(&attrs[i]);
    if (!value || PyDict_SetItemString(dict, attrs[i].name, value) < 0) {
      Py_CLEAR(dict);
    }
    Py_XDECREF(value);
  }
  return dict;
}

// ---- Attributes from Python ------------------------------------------------

// Each value's data is one block of its own, freed by attrs_free.
static void* py_attr_block(rabbet_attr_t* attr, size_t size) {
  void* block = PyMem_Malloc(size ? size : 1);
  if (!block) PyErr_NoMemory();
  attr->data = block;
  return block;
}

static int py_attr_text(rabbet_attr_t* attr, PyObject* value) {
  Py_ssize_t length = 0;
  PyObject* bytes = NULL;
  char* data = NULL;
  if (PyUnicode_Check(value)) {
    attr->type = RABBET_ATTR_STRING;
    bytes = PyUnicode_AsEncodedString(value, "utf-8", "surrogateescape");
  } else {
    attr->type = RABBET_ATTR_BYTES;
    bytes = PyBytes_FromObject(value);
  }
  if (!bytes || PyBytes_AsStringAndSize(bytes, &data, &length) < 0) {
    Py_XDECREF(bytes);
    return -1;
  }
  char* block = py_attr_block(attr, (size_t)length + 1);
  if (block) {
    memcpy(block, data, (size_t)length);
    block[length] = '\0';
    attr->count = (size_t)length;
  }
  Py_DECREF(bytes);
  return block ? 0 : -1;
}

static int py_attr_scalar(rabbet_attr_t* attr, PyObject* value) {
  attr->count = 1;
  if (PyFloat_Check(value)) {
    attr->type = RABBET_ATTR_FLOAT;
    double* block = py_attr_block(attr, sizeof(double));
    if (block) *block = PyFloat_AsDouble(value);
    return block ? 0 : -1;
  }
  attr->type = PyBool_Check(value) ? RABBET_ATTR_BOOL : RABBET_ATTR_INT;
  int64_t* block = py_attr_block(attr, sizeof(int64_t));
  return block ? rabbet_py_to_int64(value, attr->name, block) : -1;
}

static int py_attr_strings(rabbet_attr_t* attr, PyObject* list) {
  attr->type = RABBET_ATTR_STRINGS;
  size_t total = 0;
  for (size_t i = 0; i < attr->count; ++i) {
    const char* text = NULL;
    PyObject* item = PyList_GetItem(list, (Py_ssize_t)i);
    if (rabbet_py_to_text(item, attr->name, false, &text)) return -1;
    total += strlen(text) + 1;
  }
  char* block = py_attr_block(attr, total);
  if (!block) return -1;
  for (size_t i = 0; i < attr->count; ++i) {
    PyObject* item = PyList_GetItem(list, (Py_ssize_t)i);
    const char* text = PyUnicode_AsUTF8AndSize(item, NULL);
    memcpy(block, text, strlen(text) + 1);
    block += strlen(text) + 1;
  }
  return 0;
}

static int py_attr_floats(rabbet_attr_t* attr, PyObject* list) {
  attr->type = RABBET_ATTR_FLOATS;
  double* block = py_attr_block(attr, attr->count * sizeof(double));
  for (size_t i = 0; block && i < attr->count; ++i) {
    block[i] = PyFloat_AsDouble(PyList_GetItem(list, (Py_ssize_t)i));
    if (PyErr_Occurred()) return -1;
  }
  return block ? 0 : -1;
}

static int py_attr_ints(rabbet_attr_t* attr, PyObject* list, bool bools) {
  attr->type = bools ? RABBET_ATTR_BOOLS : RABBET_ATTR_INTS;
  int64_t* block = py_attr_block(attr, attr->count * sizeof(int64_t));
  for (size_t i = 0; block && i < attr->count; ++i) {
    PyObject* item = PyList_GetItem(list, (Py_ssize_t)i);
    if (rabbet_py_to_int64(item, attr->name, &block[i])) return -1;
  }
  return block ? 0 : -1;
}

// The items' common type: float wins over int; bool only if all are.
static int py_attr_list(rabbet_attr_t* attr, PyObject* list) {
  bool strings = false, floats = false, bools = true;
  attr->count = (size_t)PyList_Size(list);
  for (size_t i = 0; i < attr->count; ++i) {
    PyObject* item = PyList_GetItem(list, (Py_ssize_t)i);
    strings |= PyUnicode_Check(item) != 0;
    floats |= PyFloat_Check(item) != 0;
    bools &= PyBool_Check(item) != 0;
  }
  if (strings) return py_attr_strings(attr, list);
  if (floats) return py_attr_floats(attr, list);
  return py_attr_ints(attr, list, bools && attr->count > 0);
}

// An attribute with its type given: (type number, list). Needed where
// the value does not tell, as for empty lists.
static int py_attr_typed(rabbet_attr_t* attr, PyObject* pair) {
  int64_t type = 0;
  if (rabbet_py_to_int64(PyTuple_GetItem(pair, 0), attr->name, &type)) {
    return -1;
  }
  PyObject* list = PySequence_List(PyTuple_GetItem(pair, 1));
  if (!list) return -1;
  attr->count = (size_t)PyList_Size(list);
  int failed = -1;
  switch (type) {
    case RABBET_ATTR_INTS:
    case RABBET_ATTR_BOOLS:
      failed = py_attr_ints(attr, list, type == RABBET_ATTR_BOOLS);
      break;
    case RABBET_ATTR_FLOATS:
      failed = py_attr_floats(attr, list);
      break;
    case RABBET_ATTR_STRINGS:
      failed = py_attr_strings(attr, list);
      break;
    default:
      PyErr_Format(PyExc_ValueError, "%s: %lld is not a list type", attr->name,
                   (long long)type);
  }
  Py_DECREF(list);
  return failed;
}

// A constant: (RABBET_ATTR_TENSOR, dtype, dims, buffer), row-major. Its data is
// the buffer's, which the view holds.
static int py_attr_tensor(rabbet_attr_t* attr, PyObject* tuple,
                          Py_buffer* view) {
  int type = 0, dtype = 0;
  PyObject *dims = NULL, *source = NULL;
  if (!PyArg_ParseTuple(tuple, "iiOO", &type, &dtype, &dims, &source) ||
      rabbet_py_to_dims(dims, attr->name, &attr->dims) ||
      PyObject_GetBuffer(source, view, PyBUF_SIMPLE) < 0) {
    return -1;
  }
  attr->type = RABBET_ATTR_TENSOR;
  attr->data = view->buf;
  attr->dtype = (rabbet_dtype_t)dtype;
  int64_t count = 0;
  rabbet_status_t status = rabbet_dims_count(&attr->dims, &count);
  attr->count = (size_t)count;
  if (!rabbet_is_ok(status)) {
    rabbet_py_raise(status);
    return -1;
  }
  if (rabbet_attr_bytes(attr) == (size_t)view->len) return 0;
  PyErr_Format(PyExc_ValueError, "%s: %zd bytes given, the shape takes %zu",
               attr->name, view->len, rabbet_attr_bytes(attr));
  return -1;
}

static int py_attr_any(rabbet_attr_t* attr, PyObject* value, Py_buffer* view) {
  if (PyUnicode_Check(value) || PyBytes_Check(value) ||
      PyByteArray_Check(value)) {
    return py_attr_text(attr, value);
  }
  if (PyTuple_Check(value) && PyTuple_Size(value) == 2 &&
      PyList_Check(PyTuple_GetItem(value, 1))) {
    return py_attr_typed(attr, value);
  }
  if (PyTuple_Check(value) && PyTuple_Size(value) == 4 &&
      PyTuple_Check(PyTuple_GetItem(value, 2))) {
    return py_attr_tensor(attr, value, view);
  }
  if (!PySequence_Check(value)) return py_attr_scalar(attr, value);
  PyObject* list = PySequence_List(value);
  int failed = list ? py_attr_list(attr, list) : -1;
  Py_XDECREF(list);
  return failed;
}

int rabbet_py_to_attrs(PyObject* dict, rabbet_py_attrs_t* out_attrs) {
  memset(out_attrs, 0, sizeof(*out_attrs));
  if (!PyDict_Check(dict)) {
    PyErr_SetString(PyExc_TypeError, "attributes: expected a dict");
    return -1;
  }
  out_attrs->dict = PyDict_Copy(dict);
  if (!out_attrs->dict) return -1;
  size_t count = (size_t)PyDict_Size(out_attrs->dict);
  out_attrs->attrs = PyMem_Calloc(count ? count : 1, sizeof(rabbet_attr_t));
  out_attrs->views = PyMem_Calloc(count ? count : 1, sizeof(Py_buffer));
  if (!out_attrs->attrs || !out_attrs->views) {
    rabbet_py_attrs_free(out_attrs);
    PyErr_NoMemory();
    return -1;
  }
  PyObject *key = NULL, *value = NULL;
  Py_ssize_t position = 0;
  while (PyDict_Next(out_attrs->dict, &position, &key, &value)) {
    Py_buffer* view = &out_attrs->views[out_attrs->count];
    rabbet_attr_t* attr = &out_attrs->attrs[out_attrs->count++];
    if (rabbet_py_to_text(key, "attribute name", false, &attr->name) ||
        py_attr_any(attr, value, view)) {
      rabbet_py_attrs_free(out_attrs);
      return -1;
    }
  }
  return 0;
}

void rabbet_py_attrs_free(rabbet_py_attrs_t* attrs) {
  for (size_t i = 0; i < attrs->count; ++i) {
    if (attrs->views[i].obj)
      PyBuffer_Release(&attrs->views[i]);
    else
      PyMem_Free((void*)attrs->attrs[i].data);
  }
  PyMem_Free(attrs->attrs);
  PyMem_Free(attrs->views);
  Py_XDECREF(attrs->dict);
  memset(attrs, 0, sizeof(*attrs));
}
