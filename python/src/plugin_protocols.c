// How array libraries see a plugin's tensor: DLPack, buffers, interfaces.
#include <stdbool.h>
#include <string.h>

#include "python/src/plugin_tensor.h"

bool rabbet_py_tensor_usable(rabbet_py_tensor_t* self) {
  if (self->expired) {
    PyErr_SetString(PyExc_RuntimeError,
                    "this Tensor was kept after the call it was given to; its "
                    "memory is gone. Copy what you need during the call");
    return false;
  }
  if (self->extent.rank >= 0) return true;
  if (rabbet_dtype_bits(self->dtype) < 8) {
    PyErr_Format(PyExc_BufferError,
                 "%R: no array library takes types smaller than a byte; use "
                 "data_ptr",
                 (PyObject*)self);
  } else {
    PyErr_Format(PyExc_BufferError,
                 "%R: its shape is what this run tells; use "
                 "tensor.aliased(shape) once you know it",
                 (PyObject*)self);
  }
  return false;
}

// ---- DLPack ----------------------------------------------------------------

static rabbet_dl_dtype_t py_dl_dtype(rabbet_dtype_t dtype) {
  rabbet_dl_dtype_t result = {RABBET_DL_INT, (uint8_t)rabbet_dtype_bits(dtype),
                              1};
  switch (dtype) {
    case RABBET_DTYPE_FLOAT:
    case RABBET_DTYPE_HALF:
    case RABBET_DTYPE_DOUBLE:
      result.code = RABBET_DL_FLOAT;
      break;
    case RABBET_DTYPE_BF16:
      result.code = RABBET_DL_BFLOAT;
      break;
    case RABBET_DTYPE_BOOL:
      result.code = RABBET_DL_BOOL;
      break;
    case RABBET_DTYPE_UINT8:
      result.code = RABBET_DL_UINT;
      break;
    case RABBET_DTYPE_FP8:
      result.code = RABBET_DL_FLOAT8_E4M3FN;
      break;
    case RABBET_DTYPE_E8M0:
      result.code = RABBET_DL_FLOAT8_E8M0FNU;
      break;
    default:
      break;
  }
  return result;
}

static rabbet_dl_tensor_t py_dl_tensor(rabbet_py_tensor_t* self) {
  return (rabbet_dl_tensor_t){
      .data = self->data,
      .device = self->device,
      .rank = self->extent.rank,
      .dtype = py_dl_dtype(self->dtype),
      .shape = self->extent.d,
      .strides = self->strides,
  };
}

// Consumers may release an imported tensor on any thread.
static void py_dl_drop(void* tensor, void* block) {
  if (!Py_IsInitialized()) return;
  PyGILState_STATE gil = PyGILState_Ensure();
  Py_DECREF((PyObject*)tensor);
  PyMem_Free(block);
  PyGILState_Release(gil);
}

static void py_dl_delete(rabbet_dl_managed_t* managed) {
  py_dl_drop(managed->context, managed);
}

static void py_dl_delete_versioned(rabbet_dl_versioned_t* managed) {
  py_dl_drop(managed->context, managed);
}

// A consumer renames the capsule; one that was never consumed is dropped here.
static void py_dl_capsule(PyObject* capsule) {
  if (!PyCapsule_IsValid(capsule, "dltensor")) return;
  rabbet_dl_managed_t* managed = PyCapsule_GetPointer(capsule, "dltensor");
  managed->deleter(managed);
}

static void py_dl_capsule_versioned(PyObject* capsule) {
  if (!PyCapsule_IsValid(capsule, "dltensor_versioned")) return;
  rabbet_dl_versioned_t* managed =
      PyCapsule_GetPointer(capsule, "dltensor_versioned");
  managed->deleter(managed);
}

static PyObject* py_dl_export(rabbet_py_tensor_t* self) {
  rabbet_dl_managed_t* managed = PyMem_Malloc(sizeof(*managed));
  if (!managed) return PyErr_NoMemory();
  managed->tensor = py_dl_tensor(self);
  managed->context = Py_NewRef((PyObject*)self);
  managed->deleter = py_dl_delete;
  PyObject* capsule = PyCapsule_New(managed, "dltensor", py_dl_capsule);
  if (!capsule) managed->deleter(managed);
  return capsule;
}

PyObject* rabbet_py_tensor_capsule(rabbet_py_tensor_t* self) {
  return rabbet_py_tensor_usable(self) ? py_dl_export(self) : NULL;
}

static PyObject* py_dl_export_versioned(rabbet_py_tensor_t* self) {
  rabbet_dl_versioned_t* managed = PyMem_Malloc(sizeof(*managed));
  if (!managed) return PyErr_NoMemory();
  managed->major = RABBET_DL_MAJOR;
  managed->minor = RABBET_DL_MINOR;
  managed->flags = self->writable ? 0 : RABBET_DL_FLAG_READ_ONLY;
  managed->tensor = py_dl_tensor(self);
  managed->context = Py_NewRef((PyObject*)self);
  managed->deleter = py_dl_delete_versioned;
  PyObject* capsule =
      PyCapsule_New(managed, "dltensor_versioned", py_dl_capsule_versioned);
  if (!capsule) managed->deleter(managed);
  return capsule;
}

// Whether the consumer understands version 1; -1 on a malformed argument.
static int py_dl_versioned(PyObject* max_version) {
  if (Py_IsNone(max_version)) return 0;
  PyObject* item = PySequence_GetItem(max_version, 0);
  long major = item ? PyLong_AsLong(item) : -1;
  Py_XDECREF(item);
  if (PyErr_Occurred()) return -1;
  return major >= RABBET_DL_MAJOR;
}

static int py_dl_check(rabbet_py_tensor_t* self, PyObject* device,
                       PyObject* copy) {
  if (PyObject_IsTrue(copy) == 1) {
    PyErr_SetString(PyExc_BufferError,
                    "a plugin's tensor is not copied by __dlpack__; import it "
                    "without copy=True and copy the result");
    return -1;
  }
  if (Py_IsNone(device)) return 0;
  PyObject* own = rabbet_py_tensor_dlpack_device((PyObject*)self, NULL);
  int same = own ? PyObject_RichCompareBool(own, device, Py_EQ) : -1;
  if (same == 0) {
    PyErr_Format(PyExc_BufferError, "the tensor is on device %R, not on %R",
                 own, device);
  }
  Py_XDECREF(own);
  return same == 1 ? 0 : -1;
}

PyObject* rabbet_py_tensor_dlpack(PyObject* object, PyObject* args,
                                  PyObject* kwargs) {
  static char* names[] = {"stream", "max_version", "dl_device", "copy", NULL};
  PyObject *stream = Py_None, *version = Py_None, *device = Py_None,
           *copy = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OOOO", names, &stream,
                                   &version, &device, &copy)) {
    return NULL;
  }
  rabbet_py_tensor_t* self = (rabbet_py_tensor_t*)object;
  if (!rabbet_py_tensor_usable(self)) return NULL;
  if (py_dl_check(self, device, copy)) return NULL;
  int versioned = py_dl_versioned(version);
  if (versioned < 0) return NULL;
  return versioned ? py_dl_export_versioned(self) : py_dl_export(self);
}

PyObject* rabbet_py_tensor_dlpack_device(PyObject* object, PyObject* none) {
  (void)none;
  rabbet_dl_device_t device = ((rabbet_py_tensor_t*)object)->device;
  return Py_BuildValue("(ii)", (int)device.type, (int)device.id);
}

// ---- Buffer protocol and array interfaces ----------------------------------

typedef struct py_element_t {
  const char* code;     // of struct and the buffer protocol
  const char* typestr;  // of the array interface
} py_element_t;

static py_element_t py_element(rabbet_dtype_t dtype) {
  static const py_element_t elements[RABBET_DTYPE_COUNT] = {
      [RABBET_DTYPE_FLOAT] = {"f", "<f4"}, [RABBET_DTYPE_HALF] = {"e", "<f2"},
      [RABBET_DTYPE_INT8] = {"b", "|i1"},  [RABBET_DTYPE_INT32] = {"i", "<i4"},
      [RABBET_DTYPE_BOOL] = {"?", "|b1"},  [RABBET_DTYPE_UINT8] = {"B", "|u1"},
      [RABBET_DTYPE_INT64] = {"l", "<i8"}, [RABBET_DTYPE_DOUBLE] = {"d", "<f8"},
  };
  if (dtype < 0 || dtype >= RABBET_DTYPE_COUNT) {
    return (py_element_t){NULL, NULL};
  }
  return elements[dtype];
}

static int py_buffer_refuse(rabbet_py_tensor_t* self, int flags,
                            const char* code) {
  if (self->device.type != RABBET_DL_CPU) {
    PyErr_Format(PyExc_BufferError, "%R is not in host memory",
                 (PyObject*)self);
  } else if (!code) {
    PyErr_Format(PyExc_BufferError,
                 "%R: buffers cannot hold this type; use torch.from_dlpack, or "
                 "np.asarray with ml_dtypes installed",
                 (PyObject*)self);
  } else if ((flags & PyBUF_WRITABLE) == PyBUF_WRITABLE && !self->writable) {
    PyErr_Format(PyExc_BufferError,
                 "%R: inputs are read-only; to work in place, return "
                 "input.aliased() from the register function",
                 (PyObject*)self);
  } else if ((flags & PyBUF_STRIDES) != PyBUF_STRIDES && !self->row_major) {
    PyErr_Format(PyExc_BufferError, "%R is not row-major", (PyObject*)self);
  } else {
    return 0;
  }
  return -1;
}

int rabbet_py_tensor_get_buffer(PyObject* object, Py_buffer* view, int flags) {
  rabbet_py_tensor_t* self = (rabbet_py_tensor_t*)object;
  view->obj = NULL;
  if (!rabbet_py_tensor_usable(self)) return -1;
  const char* code = py_element(self->dtype).code;
  if (py_buffer_refuse(self, flags, code)) return -1;
  _Static_assert(sizeof(Py_ssize_t) == sizeof(int64_t), "64-bit hosts only");
  *view = (Py_buffer){
      .buf = self->data,
      .obj = Py_NewRef(object),
      .len = self->length,
      .itemsize = self->item,
      .readonly = !self->writable,
      .ndim = self->extent.rank,
      .format = (flags & PyBUF_FORMAT) ? (char*)code : NULL,
      .shape = (flags & PyBUF_ND) ? (Py_ssize_t*)self->extent.d : NULL,
  };
  if ((flags & PyBUF_STRIDES) == PyBUF_STRIDES) {
    view->strides = self->byte_strides;
  }
  return 0;
}

static PyObject* py_byte_strides(const rabbet_py_tensor_t* self) {
  rabbet_dims_t strides = {.rank = self->extent.rank};
  for (int32_t i = 0; i < strides.rank; ++i) {
    strides.d[i] = self->byte_strides[i];
  }
  return rabbet_py_from_dims(&strides);
}

static PyObject* py_interface(rabbet_py_tensor_t* self, bool read_only) {
  const char* typestr = py_element(self->dtype).typestr;
  return Py_BuildValue("{s:N,s:s,s:(KN),s:N,s:i}", "shape",
                       rabbet_py_from_dims(&self->extent), "typestr", typestr,
                       "data", (unsigned long long)(uintptr_t)self->data,
                       PyBool_FromLong(read_only), "strides",
                       py_byte_strides(self), "version", 3);
}

PyObject* rabbet_py_tensor_array_interface(PyObject* object, void* closure) {
  (void)closure;
  rabbet_py_tensor_t* self = (rabbet_py_tensor_t*)object;
  if (self->device.type != RABBET_DL_CPU || !py_element(self->dtype).typestr) {
    return PyErr_Format(PyExc_AttributeError,
                        "%R has no __array_interface__: it is for host memory "
                        "and types that NumPy knows",
                        object);
  }
  if (!rabbet_py_tensor_usable(self)) return NULL;
  return py_interface(self, !self->writable);
}

// Consumers ask by hasattr whether memory is on a GPU: on the CPU the attribute
// must not exist.
PyObject* rabbet_py_tensor_cuda_interface(PyObject* object, void* closure) {
  (void)closure;
  rabbet_py_tensor_t* self = (rabbet_py_tensor_t*)object;
  if (self->device.type != RABBET_DL_CUDA) {
    return PyErr_Format(PyExc_AttributeError,
                        "%R has no __cuda_array_interface__: it is in host "
                        "memory",
                        object);
  }
  if (!rabbet_py_tensor_usable(self)) return NULL;
  if (!py_element(self->dtype).typestr) {
    return PyErr_Format(PyExc_ValueError,
                        "%R: the array interface has no such type; use DLPack",
                        object);
  }
  // Consumers refuse read-only memory altogether, so that it is not declared.
  return py_interface(self, false);
}
