// The builder of dimension expressions that a plugin's description gets.
#include "python/src/plugin_adapter.h"

// The pointer is only there while the callback that was given it runs.
static rabbet_dim_builder_t* py_open_builder(PyObject* self) {
  rabbet_dim_builder_t* builder = rabbet_py_pointer(self);
  if (!builder) {
    PyErr_SetString(PyExc_RuntimeError,
                    "this expression was kept after the function it was given "
                    "to; shape expressions are valid only during the call");
  }
  return builder;
}

static PyObject* py_dim_or_raise(rabbet_status_t status, rabbet_dim_t dim) {
  if (!rabbet_is_ok(status)) return rabbet_py_raise(status);
  return PyLong_FromLong(dim);
}

static PyObject* py_dim_constant(PyObject* self, PyObject* value) {
  RABBET_PY_LOCK(self);
  rabbet_dim_builder_t* builder = py_open_builder(self);
  int64_t number = 0;
  if (!builder || rabbet_py_to_int64(value, "dimension", &number)) return NULL;
  rabbet_dim_t dim = 0;
  rabbet_status_t status = rabbet_dim_constant(builder, number, &dim);
  return py_dim_or_raise(status, dim);
}

static PyObject* py_dim_operation(PyObject* self, PyObject* args) {
  RABBET_PY_LOCK(self);
  int op = 0, a = 0, b = 0;
  rabbet_dim_builder_t* builder = py_open_builder(self);
  if (!builder || !PyArg_ParseTuple(args, "iii", &op, &a, &b)) return NULL;
  rabbet_dim_t dim = 0;
  rabbet_status_t status =
      rabbet_dim_operation(builder, (rabbet_dim_op_t)op, a, b, &dim);
  return py_dim_or_raise(status, dim);
}

static PyObject* py_dim_size_tensor(PyObject* self, PyObject* args) {
  RABBET_PY_LOCK(self);
  int output = 0, opt = 0, upper = 0;
  rabbet_dim_builder_t* builder = py_open_builder(self);
  if (!builder || !PyArg_ParseTuple(args, "iii", &output, &opt, &upper)) {
    return NULL;
  }
  rabbet_dim_t dim = 0;
  rabbet_status_t status =
      rabbet_dim_size_tensor(builder, output, opt, upper, &dim);
  return py_dim_or_raise(status, dim);
}

// The number of a constant, else None.
static PyObject* py_dim_value(PyObject* self, PyObject* dim) {
  RABBET_PY_LOCK(self);
  rabbet_dim_builder_t* builder = py_open_builder(self);
  long number = builder ? PyLong_AsLong(dim) : 0;
  if (!builder || PyErr_Occurred()) return NULL;
  int64_t value = 0;
  if (!rabbet_dim_is_constant(builder, (rabbet_dim_t)number, &value)) {
    Py_RETURN_NONE;
  }
  return PyLong_FromLongLong(value);
}

static PyObject* py_dim_is_size_tensor(PyObject* self, PyObject* dim) {
  RABBET_PY_LOCK(self);
  rabbet_dim_builder_t* builder = py_open_builder(self);
  long number = builder ? PyLong_AsLong(dim) : 0;
  if (!builder || PyErr_Occurred()) return NULL;
  return PyBool_FromLong(
      rabbet_dim_is_size_tensor(builder, (rabbet_dim_t)number));
}

static PyMethodDef py_dim_builder_methods[] = {
    {"constant", py_dim_constant, METH_O, NULL},
    {"operation", py_dim_operation, METH_VARARGS, NULL},
    {"size_tensor", py_dim_size_tensor, METH_VARARGS, NULL},
    {"value", py_dim_value, METH_O, NULL},
    {"is_size_tensor", py_dim_is_size_tensor, METH_O, NULL},
    {NULL},
};

RABBET_PY_HANDLE_SPEC(py_dim_builder, "DimBuilder",
                      Py_TPFLAGS_DISALLOW_INSTANTIATION);

int rabbet_py_add_dim_builder(PyObject* module) {
  return rabbet_py_add_type(module, "DimBuilder", &py_dim_builder_spec,
                            &rabbet_py_types.dim_builder);
}
