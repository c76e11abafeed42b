// Memory and shape of a model's input, without a copy where that is possible.
#include <string.h>

#include "python/src/runner.h"

typedef struct py_native_t {
  const char* codes;  // struct codes that mean this type
  uint8_t dl_code, bits;
} py_native_t;

static const py_native_t py_natives[RABBET_DTYPE_COUNT] = {
    [RABBET_DTYPE_FLOAT] = {"f", RABBET_DL_FLOAT, 32},
    [RABBET_DTYPE_HALF] = {"e", RABBET_DL_FLOAT, 16},
    [RABBET_DTYPE_BF16] = {"", RABBET_DL_BFLOAT, 16},
    [RABBET_DTYPE_INT8] = {"b", RABBET_DL_INT, 8},
    [RABBET_DTYPE_INT32] = {"i", RABBET_DL_INT, 32},
    [RABBET_DTYPE_INT64] = {"lq", RABBET_DL_INT, 64},
    [RABBET_DTYPE_BOOL] = {"?", RABBET_DL_BOOL, 8},
    [RABBET_DTYPE_UINT8] = {"B", RABBET_DL_UINT, 8},
    [RABBET_DTYPE_DOUBLE] = {"d", RABBET_DL_FLOAT, 64},
};

bool rabbet_py_is_native(rabbet_dtype_t dtype) {
  const char* codes = py_natives[dtype].codes;
  return codes && *codes;
}

void rabbet_py_input_release(rabbet_py_input_t* input) {
  if (input->has_view) PyBuffer_Release(&input->view);
  input->has_view = false;
  input->object = NULL;
  Py_CLEAR(input->held);
}

static bool py_format_matches(rabbet_dtype_t dtype, const char* format) {
  const char* codes = py_natives[dtype].codes;
  if (!format) format = "B";
  if (*format == '@' || *format == '=') ++format;
  return codes && format[0] && !format[1] && strchr(codes, format[0]);
}

static bool py_strides_fit(const Py_ssize_t* shape, const Py_ssize_t* strides,
                           int rank, Py_ssize_t item) {
  Py_ssize_t step = item;
  for (int i = rank - 1; strides && i >= 0; --i) {
    if (shape[i] == 0) return true;
    if (shape[i] != 1 && strides[i] != step) return false;
    step *= shape[i];
  }
  return true;
}

static bool py_set_dims(rabbet_py_input_t* input, const int64_t* shape,
                        int rank) {
  if (rank > RABBET_MAX_RANK) return false;
  input->dims.rank = rank;
  for (int i = 0; i < rank; ++i)
    input->dims.d[i] = shape[i];
  return true;
}

bool rabbet_py_open_buffer(rabbet_py_input_t* input, rabbet_dtype_t dtype) {
  Py_buffer* view = &input->view;
  if (PyObject_GetBuffer(input->object, view, PyBUF_RECORDS_RO) < 0) {
    PyErr_Clear();
    return false;
  }
  bool fits =
      py_format_matches(dtype, view->format) &&
      py_strides_fit(view->shape, view->strides, view->ndim, view->itemsize) &&
      (uintptr_t)view->buf % (size_t)view->itemsize == 0 &&
      py_set_dims(input, (const int64_t*)view->shape, view->ndim);
  if (!fits) {
    PyBuffer_Release(view);
    return false;
  }
  input->has_view = true;
  input->data = view->buf;
  return true;
}

static bool py_dl_fits(const rabbet_dl_tensor_t* tensor, rabbet_dtype_t dtype,
                       rabbet_dl_device_t device) {
  const py_native_t* native = &py_natives[dtype];
  bool here =
      tensor->device.type == RABBET_DL_CPU ||
      (tensor->device.type == device.type && tensor->device.id == device.id);
  if (!here || tensor->dtype.code != native->dl_code ||
      tensor->dtype.bits != native->bits || tensor->dtype.lanes != 1) {
    return false;
  }
  int64_t step = 1;
  for (int i = tensor->rank - 1; tensor->strides && i >= 0; --i) {
    if (tensor->shape[i] == 0) return true;
    if (tensor->shape[i] != 1 && tensor->strides[i] != step) return false;
    step *= tensor->shape[i];
  }
  return true;
}

PyObject* rabbet_py_torch_empty(void) {
  static rabbet_py_cache_t empty;
  PyObject* found = rabbet_py_cache_loaded(&empty, "torch", "empty");
  if (!found) PyErr_SetString(PyExc_ImportError, "torch is not imported");
  return found;
}

int rabbet_py_torch_stream(int device, void** out_stream) {
  static rabbet_py_cache_t cache;
  PyObject* function =
      rabbet_py_cache_import(&cache, "torch._C", "_cuda_getCurrentRawStream");
  if (!function) return -1;
  PyObject* handle = PyObject_CallFunction(function, "i", device);
  *out_stream = handle ? PyLong_AsVoidPtr(handle) : NULL;
  Py_XDECREF(handle);
  return PyErr_Occurred() ? -1 : 0;
}

static bool py_open_torch(rabbet_py_lane_t* lane, rabbet_py_input_t* input,
                          rabbet_dtype_t dtype, rabbet_dl_device_t device) {
  static rabbet_py_cache_t cache;
  PyObject* to_dlpack = rabbet_py_cache_loaded(&cache, "torch", "to_dlpack");
  if (!to_dlpack) return false;
  PyObject* capsule =
      PyObject_CallFunctionObjArgs(to_dlpack, input->object, NULL);
  rabbet_dl_managed_t* managed =
      capsule ? PyCapsule_GetPointer(capsule, "dltensor") : NULL;
  if (!managed) PyErr_Clear();
  if (!managed || !py_dl_fits(&managed->tensor, dtype, device) ||
      !py_set_dims(input, managed->tensor.shape, managed->tensor.rank)) {
    Py_XDECREF(capsule);
    return false;
  }
  input->held = capsule;  // never consumed: it frees what it holds
  input->data = (char*)managed->tensor.data + managed->tensor.byte_offset;
  input->on_device = managed->tensor.device.type != RABBET_DL_CPU;
  if (input->on_device) {
    lane->torch = input->object;
    lane->device_torch = true;
  }
  return true;
}

// An array on the engine's GPU: (address, shape, maker, holder, stream).
static int py_open_device_array(rabbet_py_lane_t* lane,
                                rabbet_py_input_t* input, PyObject* result) {
  unsigned long long address = 0, stream = 0;
  PyObject *shape = NULL, *maker = NULL, *holder = NULL;
  if (!PyArg_ParseTuple(result, "KOOOK", &address, &shape, &maker, &holder,
                        &stream) ||
      rabbet_py_to_dims(shape, "shape", &input->dims)) {
    return -1;
  }
  input->data = (void*)(uintptr_t)address;
  input->on_device = true;
  input->held = Py_NewRef(holder);
  if (Py_IsNone(maker)) {
    lane->torch = input->object;
    lane->device_torch = true;
    return 0;
  }
  rabbet_py_lane_stream(lane, (void*)(uintptr_t)stream);
  if (!lane->maker) lane->maker = Py_NewRef(maker);
  return 0;
}

// self._convert(object, index) -> (contiguous buffer, shape, finish | None), or
// what an array on the GPU gives, or an error that says what is wrong.
static int py_open_converted(PyObject* self, rabbet_py_lane_t* lane,
                             rabbet_py_input_t* input, size_t index) {
  PyObject* result = PyObject_CallMethod(self, "_convert", "On", input->object,
                                         (Py_ssize_t)index);
  PyObject *array = NULL, *shape = NULL, *finish = NULL;
  int failed = -1;
  if (result && PyTuple_Check(result) && PyTuple_Size(result) == 5) {
    failed = py_open_device_array(lane, input, result);
    Py_DECREF(result);
    return failed;
  }
  if (result && PyArg_ParseTuple(result, "OOO", &array, &shape, &finish) &&
      !rabbet_py_to_dims(shape, "shape", &input->dims) &&
      PyObject_GetBuffer(array, &input->view, PyBUF_SIMPLE) == 0) {
    input->has_view = true;
    input->data = input->view.buf;
    input->held = Py_NewRef(array);
    if (!Py_IsNone(finish) && !lane->finish) lane->finish = Py_NewRef(finish);
    failed = 0;
  }
  Py_XDECREF(result);
  return failed;
}

// Arrays of another library that speaks DLPack (JAX's have buffers, too):
// results are to be that library's. Rabbet's own tensors have none.
static bool py_has_library(PyObject* object) {
  static rabbet_py_cache_t numpy_type;
  PyTypeObject* type = Py_TYPE(object);
  PyObject* numpy = rabbet_py_cache_loaded(&numpy_type, "numpy", "ndarray");
  if ((PyObject*)type == numpy || type == rabbet_py_types.plugin_tensor ||
      (numpy && PyType_IsSubtype(type, (PyTypeObject*)numpy))) {
    return false;
  }
  return PyObject_HasAttrString((PyObject*)type, "__dlpack__");
}

int rabbet_py_input_open(PyObject* self, rabbet_py_lane_t* lane, size_t index) {
  // torch may be imported at any time.
  static rabbet_py_cache_t torch_type;
  rabbet_py_runner_t* runner = (rabbet_py_runner_t*)self;
  rabbet_py_input_t* input = &lane->inputs[index];
  const rabbet_io_t* io = rabbet_engine_io(runner->engine, index);
  bool linear = io->format == RABBET_FORMAT_LINEAR;
  input->on_device = false;
  if (linear && PyObject_CheckBuffer(input->object)) {
    if (!py_has_library(input->object) &&
        rabbet_py_open_buffer(input, io->dtype)) {
      return 0;
    }
  } else {
    PyObject* type = rabbet_py_cache_loaded(&torch_type, "torch", "Tensor");
    if (type && PyObject_TypeCheck(input->object, (PyTypeObject*)type)) {
      if (!lane->torch) lane->torch = input->object;
      if (linear && py_open_torch(lane, input, io->dtype, runner->device)) {
        return 0;
      }
    }
  }
  return py_open_converted(self, lane, input, index);
}
