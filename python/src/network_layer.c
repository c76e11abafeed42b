// Layers of networks.
#include "python/src/rabbet_py.h"

static PyObject* py_layer_name(PyObject* self, void* closure) {
  RABBET_PY_HOLD(rabbet_py_network_of(self));
  (void)closure;
  const char* name = rabbet_layer_name(rabbet_py_pointer(self));
  return rabbet_py_message(name ? name : "");
}

static int py_layer_set_name(PyObject* self, PyObject* value, void* closure) {
  RABBET_PY_HOLD(rabbet_py_network_of(self));
  if (rabbet_py_check_idle(rabbet_py_network_of(self), "network")) return -1;
  (void)closure;
  const char* name = NULL;
  if (rabbet_py_to_text(value, "layer name", false, &name)) return -1;
  rabbet_status_t status = rabbet_layer_set_name(rabbet_py_pointer(self), name);
  return rabbet_is_ok(status) ? 0 : rabbet_py_raise_int(status);
}

static PyObject* py_layer_metadata(PyObject* self, void* closure) {
  RABBET_PY_HOLD(rabbet_py_network_of(self));
  (void)closure;
  const char* text = rabbet_layer_metadata(rabbet_py_pointer(self));
  return rabbet_py_message(text ? text : "");
}

static int py_layer_set_metadata(PyObject* self, PyObject* value,
                                 void* closure) {
  RABBET_PY_HOLD(rabbet_py_network_of(self));
  if (rabbet_py_check_idle(rabbet_py_network_of(self), "network")) return -1;
  (void)closure;
  const char* text = NULL;
  if (rabbet_py_to_text(value, "metadata", false, &text)) return -1;
  rabbet_status_t status =
      rabbet_layer_set_metadata(rabbet_py_pointer(self), text);
  return rabbet_is_ok(status) ? 0 : rabbet_py_raise_int(status);
}

static PyObject* py_layer_set_plugin_kinds(PyObject* self, PyObject* kinds) {
  RABBET_PY_HOLD(rabbet_py_network_of(self));
  if (rabbet_py_check_idle(rabbet_py_network_of(self), "network")) return NULL;
  unsigned long bits = PyLong_AsUnsignedLong(kinds);
  if (PyErr_Occurred()) return NULL;
  return rabbet_py_none_or_raise(
      rabbet_layer_set_plugin_kinds(rabbet_py_pointer(self), (uint32_t)bits));
}

static PyObject* py_layer_plugin(PyObject* self, void* closure) {
  RABBET_PY_HOLD(rabbet_py_network_of(self));
  (void)closure;
  PyObject* instance = rabbet_py_layer_instance(rabbet_py_pointer(self));
  return Py_NewRef(instance ? instance : Py_None);
}

static PyObject* py_layer_op(PyObject* self, void* closure) {
  RABBET_PY_HOLD(rabbet_py_network_of(self));
  (void)closure;
  return rabbet_py_message(rabbet_layer_op(rabbet_py_pointer(self)));
}

static PyObject* py_layer_num_inputs(PyObject* self, void* closure) {
  RABBET_PY_HOLD(rabbet_py_network_of(self));
  (void)closure;
  return PyLong_FromSize_t(rabbet_layer_input_count(rabbet_py_pointer(self)));
}

static PyObject* py_layer_num_outputs(PyObject* self, void* closure) {
  RABBET_PY_HOLD(rabbet_py_network_of(self));
  (void)closure;
  return PyLong_FromSize_t(rabbet_layer_output_count(rabbet_py_pointer(self)));
}

static PyObject* py_layer_network(PyObject* self, PyObject* none) {
  (void)none;
  return Py_NewRef(rabbet_py_network_of(self));
}

// The same layer as an object of another class of the package.
static PyObject* py_layer_as(PyObject* self, PyObject* type) {
  if (!PyType_Check(type) ||
      !PyType_IsSubtype((PyTypeObject*)type, rabbet_py_types.layer)) {
    PyErr_Format(PyExc_TypeError, "expected a class of layers, got %R", type);
    return NULL;
  }
  return rabbet_py_handle_new((PyTypeObject*)type, rabbet_py_pointer(self),
                              rabbet_py_network_of(self), NULL);
}

static PyObject* py_layer_get_input(PyObject* self, PyObject* index) {
  RABBET_PY_HOLD(rabbet_py_network_of(self));
  size_t i = 0;
  if (rabbet_py_to_index(index, "input", &i)) return NULL;
  return rabbet_py_wrap_tensor(rabbet_layer_input(rabbet_py_pointer(self), i),
                               rabbet_py_network_of(self));
}

static PyObject* py_layer_get_output(PyObject* self, PyObject* index) {
  RABBET_PY_HOLD(rabbet_py_network_of(self));
  size_t i = 0;
  if (rabbet_py_to_index(index, "output", &i)) return NULL;
  return rabbet_py_wrap_tensor(rabbet_layer_output(rabbet_py_pointer(self), i),
                               rabbet_py_network_of(self));
}

static PyObject* py_layer_set_input(PyObject* self, PyObject* args) {
  RABBET_PY_HOLD(rabbet_py_network_of(self));
  if (rabbet_py_check_idle(rabbet_py_network_of(self), "network")) return NULL;
  size_t index = 0;
  PyObject *number = NULL, *object = NULL;
  if (!PyArg_ParseTuple(args, "OO", &number, &object) ||
      rabbet_py_to_index(number, "input", &index)) {
    return NULL;
  }
  rabbet_tensor_t* tensor = NULL;
  if (!Py_IsNone(object)) {
    tensor = rabbet_py_handle_get(object, rabbet_py_types.tensor);
    if (!tensor) return NULL;
  }
  return rabbet_py_none_or_raise(
      rabbet_layer_set_input(rabbet_py_pointer(self), index, tensor));
}

static PyObject* py_layer_attr(PyObject* self, PyObject* name_object) {
  RABBET_PY_HOLD(rabbet_py_network_of(self));
  const char* name = NULL;
  if (rabbet_py_to_text(name_object, "attribute name", false, &name)) {
    return NULL;
  }
  const rabbet_attr_t* attr = NULL;
  rabbet_status_t status =
      rabbet_layer_attr(rabbet_py_pointer(self), name, &attr);
  if (!rabbet_is_ok(status)) return rabbet_py_raise(status);
  return rabbet_py_from_attr(attr);
}

static PyObject* py_layer_set_attrs(PyObject* self, PyObject* dict) {
  RABBET_PY_HOLD(rabbet_py_network_of(self));
  if (rabbet_py_check_idle(rabbet_py_network_of(self), "network")) return NULL;
  rabbet_py_attrs_t attrs;
  if (rabbet_py_to_attrs(dict, &attrs)) return NULL;
  rabbet_status_t status = rabbet_ok();
  for (size_t i = 0; rabbet_is_ok(status) && i < attrs.count; ++i) {
    status = rabbet_layer_set_attr(rabbet_py_pointer(self), &attrs.attrs[i]);
  }
  rabbet_py_attrs_free(&attrs);
  return rabbet_py_none_or_raise(status);
}

static PyObject* py_layer_precision(PyObject* self, PyObject* none) {
  RABBET_PY_HOLD(rabbet_py_network_of(self));
  (void)none;
  return rabbet_py_dtype(rabbet_layer_precision(rabbet_py_pointer(self)));
}

static PyObject* py_layer_set_precision(PyObject* self, PyObject* value) {
  RABBET_PY_HOLD(rabbet_py_network_of(self));
  if (rabbet_py_check_idle(rabbet_py_network_of(self), "network")) return NULL;
  int64_t dtype = RABBET_DTYPE_NONE;
  if (!Py_IsNone(value) && rabbet_py_to_int64(value, "precision", &dtype)) {
    return NULL;
  }
  return rabbet_py_none_or_raise(rabbet_layer_set_precision(
      rabbet_py_pointer(self), (rabbet_dtype_t)dtype));
}

// Number of the loop whose boundary it belongs to, or None.
static PyObject* py_layer_loop(PyObject* self, PyObject* none) {
  RABBET_PY_HOLD(rabbet_py_network_of(self));
  (void)none;
  const rabbet_network_t* network =
      rabbet_py_pointer(rabbet_py_network_of(self));
  const rabbet_loop_t* loop = rabbet_layer_loop(rabbet_py_pointer(self));
  for (size_t i = 0; loop && i < rabbet_network_loop_count(network); ++i) {
    if (rabbet_network_loop(network, i) == loop) return PyLong_FromSize_t(i);
  }
  Py_RETURN_NONE;
}

// Number of the conditional whose boundary it belongs to, or None.
static PyObject* py_layer_conditional(PyObject* self, PyObject* none) {
  RABBET_PY_HOLD(rabbet_py_network_of(self));
  (void)none;
  const rabbet_network_t* network =
      rabbet_py_pointer(rabbet_py_network_of(self));
  const rabbet_conditional_t* conditional =
      rabbet_layer_conditional(rabbet_py_pointer(self));
  size_t count = rabbet_network_conditional_count(network);
  for (size_t i = 0; conditional && i < count; ++i)
    if (rabbet_network_conditional(network, i) == conditional)
      return PyLong_FromSize_t(i);
  Py_RETURN_NONE;
}

static PyMethodDef py_layer_methods[] = {
    {"_conditional", py_layer_conditional, METH_NOARGS, NULL},
    {"_loop", py_layer_loop, METH_NOARGS, NULL},
    {"_next", rabbet_py_layer_next, METH_NOARGS, NULL},
    {"_network", py_layer_network, METH_NOARGS, NULL},
    {"_as", py_layer_as, METH_O, NULL},
    {"_get_input", py_layer_get_input, METH_O, NULL},
    {"_get_output", py_layer_get_output, METH_O, NULL},
    {"_set_input", py_layer_set_input, METH_VARARGS, NULL},
    {"_attr", py_layer_attr, METH_O, NULL},
    {"_set_attrs", py_layer_set_attrs, METH_O, NULL},
    {"_set_plugin_kinds", py_layer_set_plugin_kinds, METH_O, NULL},
    {"_precision", py_layer_precision, METH_NOARGS, NULL},
    {"_set_precision", py_layer_set_precision, METH_O, NULL},
    {NULL},
};

static PyGetSetDef py_layer_getset[] = {
    {"name", py_layer_name, py_layer_set_name, "Name.", NULL},
    {"metadata", py_layer_metadata, py_layer_set_metadata,
     "Text that the inspector shows.", NULL},
    {"num_inputs", py_layer_num_inputs, NULL, "Number of inputs.", NULL},
    {"num_outputs", py_layer_num_outputs, NULL, "Number of outputs.", NULL},
    {"_op", py_layer_op, NULL, NULL, NULL},
    {"_instance", py_layer_plugin, NULL, NULL, NULL},
    {NULL},
};

RABBET_PY_HANDLE_SPEC(py_layer, "NetworkLayer",
                      Py_TPFLAGS_DISALLOW_INSTANTIATION,
                      {Py_tp_richcompare, rabbet_py_handle_compare},
                      {Py_tp_hash, rabbet_py_handle_hash},
                      {Py_tp_getset, py_layer_getset});

int rabbet_py_add_network_layer(PyObject* module) {
  return rabbet_py_add_type(module, "NetworkLayer", &py_layer_spec,
                            &rabbet_py_types.layer);
}
