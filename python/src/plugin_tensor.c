// rabbet.plugin.Tensor: a tensor handed to a plugin.
#include "python/src/plugin_tensor.h"

#include <stdlib.h>
#include <string.h>

#include "core/view.h"

rabbet_dl_device_t rabbet_py_dl_device(const char* name) {
  rabbet_dl_device_t device = {RABBET_DL_CPU, 0};
  if (!name || strncmp(name, "cuda", 4) != 0) return device;
  device.type = RABBET_DL_CUDA;
  if (name[4] == ':') device.id = (int32_t)strtol(name + 5, NULL, 10);
  return device;
}

static void py_row_major(const rabbet_dims_t* dims, int64_t* strides) {
  int64_t stride = 1;
  for (int32_t i = dims->rank - 1; i >= 0; --i) {
    strides[i] = stride;
    stride *= dims->d[i];
  }
}

static bool py_dims_known(const rabbet_dims_t* dims) {
  for (int32_t i = 0; i < dims->rank; ++i) {
    if (dims->d[i] < 0) return false;
  }
  return dims->rank >= 0;
}

// Sets the shape and strides that the protocols export. A format that strides
// cannot express is exported as blocks.
static void py_tensor_layout(rabbet_py_tensor_t* self) {
  rabbet_view_t view = {NULL, self->dtype, self->format, self->dims};
  self->extent = self->dims;
  self->logical = true;
  int bits = rabbet_dtype_bits(self->dtype);
  if (!py_dims_known(&self->dims) || bits < 8) {
    self->extent.rank = -1;
    return;
  }
  rabbet_status_t status = rabbet_view_strides(&view, self->strides);
  if (!rabbet_is_ok(status)) {
    rabbet_status_ignore(status);
    self->logical = false;
    status =
        rabbet_format_physical_dims(self->format, &self->dims, &self->extent);
    if (!rabbet_is_ok(status)) self->extent.rank = -1;
    rabbet_status_ignore(status);
    py_row_major(&self->extent, self->strides);
  }
  self->item = bits / 8;
  self->row_major = true;
  int64_t dense = 1;
  for (int32_t i = self->extent.rank - 1; i >= 0; --i) {
    self->byte_strides[i] = (Py_ssize_t)(self->strides[i] * bits / 8);
    if (self->extent.d[i] != 1 && self->strides[i] != dense)
      self->row_major = false;
    dense *= self->extent.d[i];
  }
  self->length = (Py_ssize_t)dense * self->item;
}

rabbet_py_tensor_t* rabbet_py_tensor_new(const rabbet_plugin_view_t* view,
                                         rabbet_dl_device_t device,
                                         bool writable, PyObject* aliased) {
  PyTypeObject* type = rabbet_py_types.plugin_tensor;
  allocfunc tp_alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
  rabbet_py_tensor_t* self = (rabbet_py_tensor_t*)tp_alloc(type, 0);
  if (!self) return NULL;
  self->data = view->data;
  self->dtype = view->dtype;
  self->format = view->format;
  self->dims = view->dims;
  self->bytes = view->bytes;
  self->device = device;
  self->writable = writable;
  self->aliased = Py_XNewRef(aliased);
  py_tensor_layout(self);
  return self;
}

static void py_tensor_dealloc(PyObject* object) {
  rabbet_py_tensor_t* self = (rabbet_py_tensor_t*)object;
  PyTypeObject* type = Py_TYPE(object);
  rabbet_py_lent_clear(&self->lent);
  Py_CLEAR(self->aliased);
  Py_CLEAR(self->keep);
  freefunc tp_free = (freefunc)PyType_GetSlot(type, Py_tp_free);
  tp_free(object);
  Py_DECREF(type);
}

// ---- Attributes ------------------------------------------------------------

static bool py_tensor_alive(const rabbet_py_tensor_t* self) {
  if (!self->expired) return true;
  PyErr_SetString(PyExc_RuntimeError,
                  "this Tensor was kept after the call it was given to; its "
                  "memory is gone. Copy what you need during the call");
  return false;
}

static PyObject* py_tensor_data_ptr(PyObject* object, void* closure) {
  (void)closure;
  rabbet_py_tensor_t* self = (rabbet_py_tensor_t*)object;
  if (!py_tensor_alive(self)) return NULL;
  return PyLong_FromVoidPtr(self->data);
}

static PyObject* py_tensor_dtype(PyObject* self, void* closure) {
  (void)closure;
  return rabbet_py_dtype(((rabbet_py_tensor_t*)self)->dtype);
}

static PyObject* py_tensor_format(PyObject* self, void* closure) {
  (void)closure;
  return rabbet_py_format(((rabbet_py_tensor_t*)self)->format);
}

static PyObject* py_tensor_scale(PyObject* self, void* closure) {
  (void)self, (void)closure;
  return PyFloat_FromDouble(
      -1.0);  // no tensor has one: quantization is explicit
}

static PyObject* py_tensor_shape(PyObject* self, void* closure) {
  (void)closure;
  return rabbet_py_shape_new(&((rabbet_py_tensor_t*)self)->dims);
}

static PyObject* py_tensor_strides(PyObject* object, void* closure) {
  (void)closure;
  rabbet_py_tensor_t* self = (rabbet_py_tensor_t*)object;
  if (!self->logical || self->extent.rank < 0) {
    return PyErr_Format(PyExc_ValueError, "%R has no strides", object);
  }
  rabbet_dims_t strides = {.rank = self->extent.rank};
  memcpy(strides.d, self->strides, sizeof(strides.d));
  return rabbet_py_from_dims(&strides);
}

static PyObject* py_tensor_ndim(PyObject* self, void* closure) {
  (void)closure;
  return PyLong_FromLong(((rabbet_py_tensor_t*)self)->dims.rank);
}

static PyObject* py_tensor_device(PyObject* self, void* closure) {
  (void)closure;
  rabbet_dl_device_t device = ((rabbet_py_tensor_t*)self)->device;
  if (device.type == RABBET_DL_CPU) return PyUnicode_FromString("cpu");
  return PyUnicode_FromFormat("cuda:%d", device.id);
}

static PyObject* py_tensor_data_dependent(PyObject* self, void* closure) {
  (void)closure;
  return PyBool_FromLong(!py_dims_known(&((rabbet_py_tensor_t*)self)->dims));
}

static PyObject* py_tensor_is_aliased(PyObject* self, void* closure) {
  (void)closure;
  return PyBool_FromLong(((rabbet_py_tensor_t*)self)->aliased != NULL);
}

static PyObject* py_tensor_get_aliased(PyObject* self, PyObject* none) {
  (void)none;
  PyObject* aliased = ((rabbet_py_tensor_t*)self)->aliased;
  return Py_NewRef(aliased ? aliased : Py_None);
}

static PyObject* py_tensor_numel(PyObject* object, PyObject* none) {
  (void)none;
  rabbet_py_tensor_t* self = (rabbet_py_tensor_t*)object;
  if (!py_dims_known(&self->dims)) {
    return PyErr_Format(PyExc_ValueError,
                        "%R: the number of elements is what this run tells; "
                        "use tensor.aliased(shape) once you know it",
                        object);
  }
  int64_t count = 0;
  rabbet_status_t status = rabbet_dims_count(&self->dims, &count);
  if (!rabbet_is_ok(status)) return rabbet_py_raise(status);
  return PyLong_FromLongLong(count);
}

// A view beyond the memory would let NumPy write over something else.
static int py_alias_fits(const rabbet_py_tensor_t* self, PyObject* shape,
                         const rabbet_dims_t* dims) {
  size_t bytes = 0;
  if (self->bytes == 0 || !py_dims_known(dims)) return 0;
  rabbet_status_t status =
      rabbet_tensor_bytes(self->dtype, self->format, dims, &bytes);
  if (!rabbet_is_ok(status)) return rabbet_py_raise_int(status);
  if (bytes <= self->bytes) return 0;
  PyErr_Format(PyExc_ValueError,
               "aliased(%R): %zu bytes do not fit in the %zu of the output; "
               "the upper bound of its size tensor is too small",
               shape, bytes, self->bytes);
  return -1;
}

static int py_alias_dims(rabbet_py_tensor_t* self, PyObject* shape,
                         rabbet_dims_t* out_dims) {
  if (PyObject_HasAttrString(shape, "dims")) {
    PyObject* dims = PyObject_GetAttrString(shape, "dims");
    int failed = dims ? rabbet_py_to_dims(dims, "shape", out_dims) : -1;
    Py_XDECREF(dims);
    return failed ? failed : py_alias_fits(self, shape, out_dims);
  }
  if (rabbet_py_to_dims(shape, "shape", out_dims)) return -1;
  int64_t old_count = 0, new_count = 0;
  rabbet_status_t status = rabbet_dims_count(out_dims, &new_count);
  if (rabbet_is_ok(status) && py_dims_known(&self->dims)) {
    status = rabbet_dims_count(&self->dims, &old_count);
    if (rabbet_is_ok(status) && new_count > old_count) {
      PyErr_Format(PyExc_ValueError,
                   "aliased(%R): %lld elements do not fit in a tensor of %lld",
                   shape, (long long)new_count, (long long)old_count);
      return -1;
    }
  }
  if (!rabbet_is_ok(status)) return rabbet_py_raise_int(status);
  return py_alias_fits(self, shape, out_dims);
}

static PyObject* py_tensor_alias(PyObject* object, PyObject* args,
                                 PyObject* kwargs) {
  static char* names[] = {"shape", NULL};
  PyObject* shape = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O", names, &shape)) {
    return NULL;
  }
  rabbet_py_tensor_t* self = (rabbet_py_tensor_t*)object;
  if (!py_tensor_alive(self)) return NULL;
  rabbet_plugin_view_t view = {
      .data = self->data, .dtype = self->dtype, .format = self->format};
  view.bytes = self->bytes;
  view.dims = self->dims;
  if (!Py_IsNone(shape) && py_alias_dims(self, shape, &view.dims)) {
    return NULL;
  }
  // Through `aliased` it holds this tensor, and so the memory.
  return (PyObject*)rabbet_py_tensor_new(&view, self->device, self->writable,
                                         object);
}

// np.asarray for types that NumPy cannot express by itself.
static PyObject* py_tensor_array(PyObject* self, PyObject* args,
                                 PyObject* kwargs) {
  PyObject* helper = PyImport_ImportModule("rabbet.plugin._arrays");
  PyObject* function =
      helper ? PyObject_GetAttrString(helper, "tensor_to_numpy") : NULL;
  PyObject* first = PyTuple_Pack(1, self);
  PyObject* all = first && function ? PySequence_Concat(first, args) : NULL;
  PyObject* result = all ? PyObject_Call(function, all, kwargs) : NULL;
  Py_XDECREF(helper);
  Py_XDECREF(function);
  Py_XDECREF(first);
  Py_XDECREF(all);
  return result;
}

static PyObject* py_tensor_repr(PyObject* object) {
  rabbet_py_tensor_t* self = (rabbet_py_tensor_t*)object;
  char dims[256];
  rabbet_dims_print(&self->dims, dims, sizeof(dims));
  PyObject* device = py_tensor_device(object, NULL);
  PyObject* text = PyUnicode_FromFormat(
      "Tensor(%s, %s, %s, '%U'%s)", dims, rabbet_dtype_name(self->dtype),
      rabbet_format_name(self->format), device,
      self->writable ? "" : ", read-only");
  Py_XDECREF(device);
  return text;
}

static PyMethodDef py_tensor_methods[] = {
    {"numel", py_tensor_numel, METH_NOARGS, "Number of elements."},
    {"numpy", rabbet_py_tensor_numpy, METH_NOARGS,
     "numpy($self)\n--\n\nThe memory as an array of NumPy; the same object in "
     "each call, as long as it lies at the same place."},
    {"torch", rabbet_py_tensor_torch, METH_NOARGS,
     "torch($self)\n--\n\nThe memory as a tensor of torch."},
    {"aliased", (PyCFunction)(void*)py_tensor_alias,
     METH_VARARGS | METH_KEYWORDS,
     "aliased($self, shape=None)\n--\n\nThe same memory in another shape."},
    {"get_aliased", py_tensor_get_aliased, METH_NOARGS,
     "The tensor whose memory this one shares, or None."},
    {"__dlpack__", (PyCFunction)(void*)rabbet_py_tensor_dlpack,
     METH_VARARGS | METH_KEYWORDS, NULL},
    {"__dlpack_device__", rabbet_py_tensor_dlpack_device, METH_NOARGS, NULL},
    {"__array__", (PyCFunction)(void*)py_tensor_array,
     METH_VARARGS | METH_KEYWORDS, NULL},
    {NULL},
};

static PyGetSetDef py_tensor_getset[] = {
    {"data_ptr", py_tensor_data_ptr, NULL, "Address.", NULL},
    {"dtype", py_tensor_dtype, NULL, "DataType.", NULL},
    {"format", py_tensor_format, NULL, "TensorFormat.", NULL},
    {"scale", py_tensor_scale, NULL, "-1: has no meaning here.", NULL},
    {"shape", py_tensor_shape, NULL, "Shape, as the network sees it.", NULL},
    {"strides", py_tensor_strides, NULL,
     "Elements from one index to the next, for each axis of shape.", NULL},
    {"ndim", py_tensor_ndim, NULL, "Number of dimensions.", NULL},
    {"device", py_tensor_device, NULL, "'cpu', 'cuda:0', ...", NULL},
    {"is_data_dependent", py_tensor_data_dependent, NULL,
     "Whether this run tells its shape.", NULL},
    {"is_aliased", py_tensor_is_aliased, NULL,
     "Whether it shares another tensor's memory.", NULL},
    {"__array_interface__", rabbet_py_tensor_array_interface, NULL, NULL, NULL},
    {"__cuda_array_interface__", rabbet_py_tensor_cuda_interface, NULL, NULL,
     NULL},
    {NULL},
};

static PyType_Slot py_tensor_slots[] = {
    {Py_tp_dealloc, py_tensor_dealloc},
    {Py_tp_methods, py_tensor_methods},
    {Py_tp_getset, py_tensor_getset},
    {Py_tp_repr, py_tensor_repr},
    {Py_bf_getbuffer, rabbet_py_tensor_get_buffer},
    {Py_tp_doc,
     "A tensor that a plugin reads or writes: its address and layout, and the "
     "protocols by which array libraries see it without a copy."},
    {0, NULL},
};

static PyType_Spec py_tensor_spec = {
    .name = "rabbet.plugin.Tensor",
    .basicsize = sizeof(rabbet_py_tensor_t),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = py_tensor_slots,
};

int rabbet_py_add_tensor(PyObject* module) {
  return rabbet_py_add_type(module, "Tensor", &py_tensor_spec,
                            &rabbet_py_types.plugin_tensor);
}
