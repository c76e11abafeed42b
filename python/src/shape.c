// rabbet.plugin.Shape: a small mutable sequence of dimensions.
#include <string.h>

#include "python/src/plugin_tensor.h"

typedef struct py_shape_t {
  PyObject_HEAD rabbet_dims_t dims;
  bool ranged;  // the bounds below are known
  rabbet_dims_t low, opt, high;
} py_shape_t;

static py_shape_t* py_shape_alloc(PyTypeObject* type) {
  allocfunc tp_alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
  return (py_shape_t*)tp_alloc(type, 0);
}

PyObject* rabbet_py_shape_new(const rabbet_dims_t* dims) {
  py_shape_t* self = py_shape_alloc(rabbet_py_types.shape);
  if (self) self->dims = *dims;
  return (PyObject*)self;
}

// A Shape can be made of a sequence, of another Shape, or of a
// descriptor with `dims` (and, around it, `desc`, `min`, `opt`, `max`).
static int py_shape_fill(py_shape_t* self, PyObject* source);

static int py_attr_dims(PyObject* source, const char* name,
                        rabbet_dims_t* out_dims) {
  PyObject* value = PyObject_GetAttrString(source, name);
  if (!value) return -1;
  int failed = rabbet_py_to_dims(value, name, out_dims);
  Py_DECREF(value);
  return failed;
}

static int py_shape_from_range(py_shape_t* self, PyObject* source) {
  PyObject* desc = PyObject_GetAttrString(source, "desc");
  if (!desc) return -1;
  int failed = py_shape_fill(self, desc);
  Py_DECREF(desc);
  if (failed || py_attr_dims(source, "min", &self->low) ||
      py_attr_dims(source, "opt", &self->opt) ||
      py_attr_dims(source, "max", &self->high)) {
    return -1;
  }
  self->ranged = true;
  return 0;
}

static int py_shape_fill(py_shape_t* self, PyObject* source) {
  if (Py_IsNone(source)) return 0;
  if (PyObject_TypeCheck(source, rabbet_py_types.shape)) {
    const py_shape_t* other = (const py_shape_t*)source;
    self->dims = other->dims;
    self->ranged = other->ranged;
    self->low = other->low;
    self->opt = other->opt;
    self->high = other->high;
    return 0;
  }
  if (PyObject_HasAttrString(source, "desc")) {
    return py_shape_from_range(self, source);
  }
  if (PyObject_HasAttrString(source, "dims")) {
    return py_attr_dims(source, "dims", &self->dims);
  }
  return rabbet_py_to_dims(source, "Shape", &self->dims);
}

static PyObject* py_shape_create(PyTypeObject* type, PyObject* args,
                                 PyObject* kwargs) {
  static char* names[] = {"tensor_desc", NULL};
  PyObject* source = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O", names, &source)) {
    return NULL;
  }
  py_shape_t* self = py_shape_alloc(type);
  if (self && py_shape_fill(self, source)) Py_CLEAR(self);
  return (PyObject*)self;
}

// Shape._ranged(dims, min, opt, max)
static PyObject* py_shape_ranged(PyObject* type, PyObject* args) {
  PyObject *dims, *low, *opt, *high;
  if (!PyArg_ParseTuple(args, "OOOO", &dims, &low, &opt, &high)) return NULL;
  py_shape_t* self = py_shape_alloc((PyTypeObject*)type);
  if (!self) return NULL;
  self->ranged = true;
  if (rabbet_py_to_dims(dims, "dims", &self->dims) ||
      rabbet_py_to_dims(low, "min", &self->low) ||
      rabbet_py_to_dims(opt, "opt", &self->opt) ||
      rabbet_py_to_dims(high, "max", &self->high)) {
    Py_CLEAR(self);
  }
  return (PyObject*)self;
}

static void py_shape_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  freefunc tp_free = (freefunc)PyType_GetSlot(type, Py_tp_free);
  tp_free(self);
  Py_DECREF(type);
}

static bool py_shape_dynamic(const py_shape_t* self) {
  for (int32_t i = 0; i < self->dims.rank; ++i) {
    if (self->dims.d[i] < 0) return true;
  }
  return false;
}

static PyObject* py_shape_is_dynamic(PyObject* self, void* closure) {
  (void)closure;
  return PyBool_FromLong(py_shape_dynamic((py_shape_t*)self));
}

static PyObject* py_shape_numel(PyObject* self, PyObject* none) {
  (void)none;
  py_shape_t* shape = (py_shape_t*)self;
  if (py_shape_dynamic(shape)) {
    return PyErr_Format(PyExc_ValueError,
                        "%R is dynamic: it has no number of elements yet",
                        self);
  }
  int64_t count = 0;
  rabbet_status_t status = rabbet_dims_count(&shape->dims, &count);
  if (!rabbet_is_ok(status)) return rabbet_py_raise(status);
  return PyLong_FromLongLong(count);
}

static PyObject* py_shape_bound(PyObject* self, const rabbet_dims_t* bound,
                                const char* name) {
  py_shape_t* shape = (py_shape_t*)self;
  if (shape->ranged) return rabbet_py_from_dims(bound);
  if (!py_shape_dynamic(shape)) {
    return PyErr_Format(PyExc_ValueError, "%R is static: it has no '%s'", self,
                        name);
  }
  return PyErr_Format(PyExc_AttributeError,
                      "%R has no '%s': it was not made from a profile", self,
                      name);
}

static PyObject* py_shape_min(PyObject* self, void* closure) {
  (void)closure;
  return py_shape_bound(self, &((py_shape_t*)self)->low, "min");
}

static PyObject* py_shape_opt(PyObject* self, void* closure) {
  (void)closure;
  return py_shape_bound(self, &((py_shape_t*)self)->opt, "opt");
}

static PyObject* py_shape_max(PyObject* self, void* closure) {
  (void)closure;
  return py_shape_bound(self, &((py_shape_t*)self)->high, "max");
}

static Py_ssize_t py_shape_length(PyObject* self) {
  return ((py_shape_t*)self)->dims.rank;
}

static PyObject* py_shape_item(PyObject* self, Py_ssize_t index) {
  py_shape_t* shape = (py_shape_t*)self;
  if (index < 0 || index >= shape->dims.rank) {
    return PyErr_Format(PyExc_IndexError, "dimension %zd of %R", index, self);
  }
  return PyLong_FromLongLong(shape->dims.d[index]);
}

static PyObject* py_shape_subscript(PyObject* self, PyObject* key) {
  Py_ssize_t rank = py_shape_length(self);
  if (PyIndex_Check(key)) {
    Py_ssize_t index = PyNumber_AsSsize_t(key, PyExc_IndexError);
    if (index == -1 && PyErr_Occurred()) return NULL;
    return py_shape_item(self, index < 0 ? index + rank : index);
  }
  PyObject* tuple = rabbet_py_from_dims(&((py_shape_t*)self)->dims);
  PyObject* part = tuple ? PyObject_GetItem(tuple, key) : NULL;
  Py_XDECREF(tuple);
  return part;
}

static int py_shape_assign(PyObject* self, PyObject* key, PyObject* value) {
  py_shape_t* shape = (py_shape_t*)self;
  Py_ssize_t index = PyNumber_AsSsize_t(key, PyExc_IndexError);
  if (index == -1 && PyErr_Occurred()) return -1;
  if (index < 0) index += shape->dims.rank;
  if (!value || index < 0 || index >= shape->dims.rank) {
    PyErr_Format(PyExc_IndexError, "cannot assign dimension %R of %R", key,
                 self);
    return -1;
  }
  return rabbet_py_to_int64(value, "dimension", &shape->dims.d[index]);
}

static PyObject* py_shape_text(PyObject* self) {
  char text[256];
  rabbet_dims_print(&((py_shape_t*)self)->dims, text, sizeof(text));
  return PyUnicode_FromFormat("Shape%s", text);
}

static PyObject* py_shape_compare(PyObject* a, PyObject* b, int op) {
  if ((op != Py_EQ && op != Py_NE) || !PySequence_Check(b) ||
      PyUnicode_Check(b)) {
    Py_RETURN_NOTIMPLEMENTED;
  }
  PyObject* left = PySequence_Tuple(a);
  PyObject* right = PySequence_Tuple(b);
  PyObject* result =
      left && right ? PyObject_RichCompare(left, right, op) : NULL;
  Py_XDECREF(left);
  Py_XDECREF(right);
  return result;
}

static PyMethodDef py_shape_methods[] = {
    {"numel", py_shape_numel, METH_NOARGS,
     "Number of elements; ValueError if a dimension is dynamic."},
    {"_ranged", py_shape_ranged, METH_VARARGS | METH_CLASS, NULL},
    {NULL},
};

static PyGetSetDef py_shape_getset[] = {
    {"is_dynamic", py_shape_is_dynamic, NULL, "Whether a dimension is -1.",
     NULL},
    {"min", py_shape_min, NULL, "Smallest shape of the profile.", NULL},
    {"opt", py_shape_opt, NULL, "Shape that is tuned for.", NULL},
    {"max", py_shape_max, NULL, "Largest shape of the profile.", NULL},
    {NULL},
};

static PyType_Slot py_shape_slots[] = {
    {Py_tp_new, py_shape_create},
    {Py_tp_dealloc, py_shape_dealloc},
    {Py_tp_methods, py_shape_methods},
    {Py_tp_getset, py_shape_getset},
    {Py_tp_repr, py_shape_text},
    {Py_tp_richcompare, py_shape_compare},
    {Py_tp_hash, PyObject_HashNotImplemented},
    {Py_sq_length, py_shape_length},
    {Py_sq_item, py_shape_item},
    {Py_mp_length, py_shape_length},
    {Py_mp_subscript, py_shape_subscript},
    {Py_mp_ass_subscript, py_shape_assign},
    {Py_tp_doc,
     "Shape(tensor_desc=None)\n--\n\nDimensions of a tensor; -1 is "
     "one that is not known yet."},
    {0, NULL},
};

static PyType_Spec py_shape_spec = {
    .name = "rabbet.plugin.Shape",
    .basicsize = sizeof(py_shape_t),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = py_shape_slots,
};

int rabbet_py_add_shape(PyObject* module) {
  return rabbet_py_add_type(module, "Shape", &py_shape_spec,
                            &rabbet_py_types.shape);
}
