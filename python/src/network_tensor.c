// Tensors of networks.
#include "python/src/rabbet_py.h"

static PyObject* py_tensor_name(PyObject* self, void* closure) {
  RABBET_PY_HOLD(rabbet_py_network_of(self));
  (void)closure;
  const char* name = rabbet_tensor_name(rabbet_py_pointer(self));
  return rabbet_py_message(name ? name : "");
}

static int py_tensor_set_name(PyObject* self, PyObject* value, void* closure) {
  RABBET_PY_HOLD(rabbet_py_network_of(self));
  if (rabbet_py_check_idle(rabbet_py_network_of(self), "network")) return -1;
  (void)closure;
  const char* name = NULL;
  if (rabbet_py_to_text(value, "tensor name", false, &name)) {
    return -1;
  }
  rabbet_status_t status =
      rabbet_tensor_set_name(rabbet_py_pointer(self), name);
  return rabbet_is_ok(status) ? 0 : rabbet_py_raise_int(status);
}

static PyObject* py_tensor_dtype(PyObject* self, void* closure) {
  RABBET_PY_HOLD(rabbet_py_network_of(self));
  (void)closure;
  rabbet_dtype_t dtype = RABBET_DTYPE_NONE;
  rabbet_status_t status = rabbet_tensor_dtype(rabbet_py_pointer(self), &dtype);
  if (!rabbet_is_ok(status)) return rabbet_py_raise(status);
  return rabbet_py_dtype(dtype);
}

static int py_tensor_set_dtype(PyObject* self, PyObject* value, void* closure) {
  RABBET_PY_HOLD(rabbet_py_network_of(self));
  if (rabbet_py_check_idle(rabbet_py_network_of(self), "network")) return -1;
  (void)closure;
  int64_t dtype = 0;
  if (rabbet_py_to_int64(value, "dtype", &dtype)) return -1;
  rabbet_status_t status =
      rabbet_tensor_set_dtype(rabbet_py_pointer(self), (rabbet_dtype_t)dtype);
  return rabbet_is_ok(status) ? 0 : rabbet_py_raise_int(status);
}

static PyObject* py_tensor_wished(PyObject* self, PyObject* none) {
  RABBET_PY_HOLD(rabbet_py_network_of(self));
  (void)none;
  return rabbet_py_dtype(rabbet_tensor_wished_dtype(rabbet_py_pointer(self)));
}

static PyObject* py_tensor_reset_dtype(PyObject* self, PyObject* none) {
  RABBET_PY_HOLD(rabbet_py_network_of(self));
  if (rabbet_py_check_idle(rabbet_py_network_of(self), "network")) return NULL;
  (void)none;
  return rabbet_py_none_or_raise(
      rabbet_tensor_set_dtype(rabbet_py_pointer(self), RABBET_DTYPE_NONE));
}

static PyObject* py_tensor_dims(PyObject* self, void* closure) {
  RABBET_PY_HOLD(rabbet_py_network_of(self));
  (void)closure;
  rabbet_dims_t dims;
  rabbet_status_t status = rabbet_tensor_dims(rabbet_py_pointer(self), &dims);
  if (!rabbet_is_ok(status)) return rabbet_py_raise(status);
  return rabbet_py_from_dims(&dims);
}

static int py_tensor_set_dims(PyObject* self, PyObject* value, void* closure) {
  RABBET_PY_HOLD(rabbet_py_network_of(self));
  if (rabbet_py_check_idle(rabbet_py_network_of(self), "network")) return -1;
  (void)closure;
  rabbet_dims_t dims;
  if (rabbet_py_to_dims(value, "shape", &dims)) return -1;
  rabbet_status_t status =
      rabbet_tensor_set_dims(rabbet_py_pointer(self), &dims);
  return rabbet_is_ok(status) ? 0 : rabbet_py_raise_int(status);
}

static PyObject* py_tensor_is_input(PyObject* self, void* closure) {
  RABBET_PY_HOLD(rabbet_py_network_of(self));
  (void)closure;
  return PyBool_FromLong(rabbet_tensor_is_input(rabbet_py_pointer(self)));
}

static PyObject* py_tensor_is_output(PyObject* self, void* closure) {
  RABBET_PY_HOLD(rabbet_py_network_of(self));
  (void)closure;
  return PyBool_FromLong(rabbet_tensor_is_output(rabbet_py_pointer(self)));
}

static PyObject* py_tensor_is_shape(PyObject* self, void* closure) {
  RABBET_PY_HOLD(rabbet_py_network_of(self));
  (void)closure;
  bool is_shape = false;
  rabbet_status_t status =
      rabbet_tensor_is_shape_tensor(rabbet_py_pointer(self), &is_shape);
  if (!rabbet_is_ok(status)) return rabbet_py_raise(status);
  return PyBool_FromLong(is_shape);
}

static PyObject* py_tensor_formats(PyObject* self, void* closure) {
  RABBET_PY_HOLD(rabbet_py_network_of(self));
  (void)closure;
  return PyLong_FromUnsignedLongLong(
      rabbet_tensor_allowed_formats(rabbet_py_pointer(self)));
}

static int py_tensor_set_formats(PyObject* self, PyObject* value,
                                 void* closure) {
  RABBET_PY_HOLD(rabbet_py_network_of(self));
  if (rabbet_py_check_idle(rabbet_py_network_of(self), "network")) return -1;
  (void)closure;
  int64_t formats = 0;
  if (rabbet_py_to_int64(value, "allowed_formats", &formats)) {
    return -1;
  }
  rabbet_status_t status = rabbet_tensor_set_allowed_formats(
      rabbet_py_pointer(self), (uint64_t)formats);
  return rabbet_is_ok(status) ? 0 : rabbet_py_raise_int(status);
}

static PyObject* py_tensor_set_dim_name(PyObject* self, PyObject* args) {
  RABBET_PY_HOLD(rabbet_py_network_of(self));
  if (rabbet_py_check_idle(rabbet_py_network_of(self), "network")) return NULL;
  int axis = 0;
  const char* name = NULL;
  if (!PyArg_ParseTuple(args, "iz", &axis, &name)) return NULL;
  return rabbet_py_none_or_raise(
      rabbet_tensor_set_dim_name(rabbet_py_pointer(self), axis, name));
}

static PyObject* py_tensor_dim_name(PyObject* self, PyObject* index) {
  RABBET_PY_HOLD(rabbet_py_network_of(self));
  long axis = PyLong_AsLong(index);
  if (PyErr_Occurred()) return NULL;
  return rabbet_py_text_or_none(
      rabbet_tensor_dim_name(rabbet_py_pointer(self), (int32_t)axis));
}

static PyObject* py_tensor_producer(PyObject* self, PyObject* none) {
  RABBET_PY_HOLD(rabbet_py_network_of(self));
  (void)none;
  return rabbet_py_wrap_layer(rabbet_tensor_producer(rabbet_py_pointer(self)),
                              rabbet_py_network_of(self));
}

// (DataType, bytes) of a constant, else None.
static PyObject* py_tensor_weights(PyObject* self, PyObject* none) {
  RABBET_PY_HOLD(rabbet_py_network_of(self));
  (void)none;
  rabbet_weights_t weights;
  if (!rabbet_tensor_weights(rabbet_py_pointer(self), &weights)) {
    Py_RETURN_NONE;
  }
  size_t bits = (size_t)rabbet_dtype_bits(weights.dtype);
  Py_ssize_t bytes = (Py_ssize_t)(((size_t)weights.count * bits + 7) / 8);
  PyObject* dtype = rabbet_py_dtype(weights.dtype);
  PyObject* data = PyBytes_FromStringAndSize(weights.data, bytes);
  PyObject* pair = dtype && data ? PyTuple_Pack(2, dtype, data) : NULL;
  Py_XDECREF(dtype);
  Py_XDECREF(data);
  return pair;
}

static PyObject* py_tensor_set_debug(PyObject* self, PyObject* value) {
  RABBET_PY_HOLD(rabbet_py_network_of(self));
  if (rabbet_py_check_idle(rabbet_py_network_of(self), "network")) return NULL;
  return rabbet_py_none_or_raise(rabbet_tensor_set_debug(
      rabbet_py_pointer(self), PyObject_IsTrue(value) == 1));
}

static PyObject* py_tensor_is_debug(PyObject* self, PyObject* none) {
  RABBET_PY_HOLD(rabbet_py_network_of(self));
  (void)none;
  return PyBool_FromLong(rabbet_tensor_is_debug(rabbet_py_pointer(self)));
}

static PyObject* py_tensor_set_refittable(PyObject* self, PyObject* value) {
  RABBET_PY_HOLD(rabbet_py_network_of(self));
  if (rabbet_py_check_idle(rabbet_py_network_of(self), "network")) return NULL;
  return rabbet_py_none_or_raise(rabbet_tensor_set_refittable(
      rabbet_py_pointer(self), PyObject_IsTrue(value) == 1));
}

static PyObject* py_tensor_is_refittable(PyObject* self, PyObject* none) {
  RABBET_PY_HOLD(rabbet_py_network_of(self));
  (void)none;
  return PyBool_FromLong(rabbet_tensor_is_refittable(rabbet_py_pointer(self)));
}

// set_range(min, max)
static PyObject* py_tensor_set_range(PyObject* self, PyObject* args) {
  RABBET_PY_HOLD(rabbet_py_network_of(self));
  if (rabbet_py_check_idle(rabbet_py_network_of(self), "network")) return NULL;
  float min = 0, max = 0;
  if (!PyArg_ParseTuple(args, "ff", &min, &max)) return NULL;
  return rabbet_py_none_or_raise(
      rabbet_tensor_set_range(rabbet_py_pointer(self), min, max));
}

static PyObject* py_tensor_reset_range(PyObject* self, PyObject* none) {
  RABBET_PY_HOLD(rabbet_py_network_of(self));
  if (rabbet_py_check_idle(rabbet_py_network_of(self), "network")) return NULL;
  (void)none;
  rabbet_tensor_reset_range(rabbet_py_pointer(self));
  Py_RETURN_NONE;
}

// (min, max), or None.
static PyObject* py_tensor_range(PyObject* self, PyObject* none) {
  RABBET_PY_HOLD(rabbet_py_network_of(self));
  (void)none;
  float min = 0, max = 0;
  if (!rabbet_tensor_range(rabbet_py_pointer(self), &min, &max)) {
    Py_RETURN_NONE;
  }
  return Py_BuildValue("(ff)", min, max);
}

// set_role(layer or None, role)
static PyObject* py_tensor_set_role(PyObject* self, PyObject* args) {
  RABBET_PY_HOLD(rabbet_py_network_of(self));
  if (rabbet_py_check_idle(rabbet_py_network_of(self), "network")) return NULL;
  PyObject* object = NULL;
  int role = 0;
  if (!PyArg_ParseTuple(args, "Oi", &object, &role)) return NULL;
  void* layer = NULL;
  if (!Py_IsNone(object) &&
      !(layer = rabbet_py_handle_get(object, rabbet_py_types.layer)))
    return NULL;
  return rabbet_py_none_or_raise(
      rabbet_tensor_set_role(rabbet_py_pointer(self), layer, role));
}

static PyMethodDef py_tensor_methods[] = {
    {"_set_role", py_tensor_set_role, METH_VARARGS, NULL},
    {"_set_range", py_tensor_set_range, METH_VARARGS, NULL},
    {"_reset_range", py_tensor_reset_range, METH_NOARGS, NULL},
    {"_range", py_tensor_range, METH_NOARGS, NULL},
    {"_set_refittable", py_tensor_set_refittable, METH_O, NULL},
    {"_is_refittable", py_tensor_is_refittable, METH_NOARGS, NULL},
    {"_set_debug", py_tensor_set_debug, METH_O, NULL},
    {"_is_debug", py_tensor_is_debug, METH_NOARGS, NULL},
    {"_set_dim_name", py_tensor_set_dim_name, METH_VARARGS, NULL},
    {"_dim_name", py_tensor_dim_name, METH_O, NULL},
    {"_producer", py_tensor_producer, METH_NOARGS, NULL},
    {"_wished", py_tensor_wished, METH_NOARGS, NULL},
    {"_reset_dtype", py_tensor_reset_dtype, METH_NOARGS, NULL},
    {"_weights", py_tensor_weights, METH_NOARGS, NULL},
    {"_weights_at", rabbet_py_tensor_weights_at, METH_NOARGS, NULL},
    {"_extents", rabbet_py_tensor_extents, METH_NOARGS, NULL},
    {"_values", rabbet_py_tensor_values, METH_NOARGS, NULL},
    {NULL},
};

static PyGetSetDef py_tensor_getset[] = {
    {"name", py_tensor_name, py_tensor_set_name, "Name; unique in the network.",
     NULL},
    {"dtype", py_tensor_dtype, py_tensor_set_dtype, "DataType of the elements.",
     NULL},
    {"_dims", py_tensor_dims, py_tensor_set_dims, NULL, NULL},
    {"is_network_input", py_tensor_is_input, NULL,
     "Whether the caller supplies it.", NULL},
    {"is_network_output", py_tensor_is_output, NULL,
     "Whether the caller gets it.", NULL},
    {"is_shape_tensor", py_tensor_is_shape, NULL,
     "Whether its values are needed to know shapes.", NULL},
    {"allowed_formats", py_tensor_formats, py_tensor_set_formats,
     "Bits 1 << TensorFormat that an input or output may have.", NULL},
    {NULL},
};

RABBET_PY_HANDLE_SPEC(py_tensor, "NetworkTensor",
                      Py_TPFLAGS_DISALLOW_INSTANTIATION,
                      {Py_tp_richcompare, rabbet_py_handle_compare},
                      {Py_tp_hash, rabbet_py_handle_hash},
                      {Py_tp_getset, py_tensor_getset});

int rabbet_py_add_network_tensor(PyObject* module) {
  return rabbet_py_add_type(module, "NetworkTensor", &py_tensor_spec,
                            &rabbet_py_types.tensor);
}
