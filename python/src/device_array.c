// Arrays of a device that are not another library's: rabbet.plugin.Tensor with
// memory of its own, which DLPack hands on; and what DLPack hands to us.
#include "python/src/plugin_tensor.h"

typedef struct py_memory_t {
  rabbet_engine_t* engine;
  void* data;
} py_memory_t;

// Other libraries may still read the memory, on streams that are not known
// here.
static void py_memory_free(py_memory_t* memory) {
  rabbet_engine_retire(memory->engine, memory->data);
  rabbet_engine_release(memory->engine);
  PyMem_Free(memory);
}

static void py_memory_drop(PyObject* capsule) {
  py_memory_free(PyCapsule_GetPointer(capsule, NULL));
}

// An object that owns memory of the engine's device, for work on the stream;
// for all work where there is none.
static PyObject* py_memory_new(rabbet_engine_t* engine, size_t bytes,
                               void* const* stream, void** out_data) {
  py_memory_t* memory = PyMem_Calloc(1, sizeof(*memory));
  if (!memory) return PyErr_NoMemory();
  rabbet_engine_retain(engine);
  memory->engine = engine;
  rabbet_status_t status;
  Py_BEGIN_ALLOW_THREADS status = rabbet_engine_allocate_async(
      engine, bytes, stream ? *stream : NULL, &memory->data);
  if (rabbet_is_ok(status) && !stream)
    status = rabbet_engine_synchronize(engine, NULL);
  Py_END_ALLOW_THREADS PyObject* capsule = NULL;
  if (!rabbet_is_ok(status)) {
    rabbet_py_raise(status);
  } else {
    *out_data = memory->data;
    capsule = PyCapsule_New(memory, NULL, py_memory_drop);
  }
  if (!capsule) py_memory_free(memory);
  return capsule;
}

// device_array(engine, type, shape[, stream]): a row-major Tensor with memory
// of its own, for work on the stream until that was waited for.
static PyObject* py_device_array(PyObject* module, PyObject* args) {
  (void)module;
  PyObject *engine_object, *shape;
  int dtype = 0;
  unsigned long long number = 0;
  rabbet_plugin_view_t view = {.format = RABBET_FORMAT_LINEAR,
                               .aliased_input = -1};
  if (!PyArg_ParseTuple(args, "OiO|K", &engine_object, &dtype, &shape,
                        &number) ||
      rabbet_py_to_dims(shape, "shape", &view.dims)) {
    return NULL;
  }
  rabbet_engine_t* engine =
      rabbet_py_handle_get(engine_object, rabbet_py_types.engine);
  if (!engine) return NULL;
  view.dtype = (rabbet_dtype_t)dtype;
  size_t bytes = 0;
  rabbet_status_t status =
      rabbet_tensor_bytes(view.dtype, view.format, &view.dims, &bytes);
  if (!rabbet_is_ok(status)) return rabbet_py_raise(status);
  void* stream = (void*)(uintptr_t)number;
  PyObject* memory = py_memory_new(
      engine, bytes, PyTuple_Size(args) > 3 ? &stream : NULL, &view.data);
  if (!memory) return NULL;
  rabbet_py_tensor_t* tensor = rabbet_py_tensor_new(
      &view, rabbet_py_dl_device(rabbet_engine_device(engine)), true, NULL);
  if (tensor) tensor->keep = Py_NewRef(memory);
  Py_DECREF(memory);
  return (PyObject*)tensor;
}

static const rabbet_dl_tensor_t* py_capsule_tensor(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
    const rabbet_dl_versioned_t* managed =
        PyCapsule_GetPointer(capsule, "dltensor_versioned");
    return managed->major == RABBET_DL_MAJOR ? &managed->tensor : NULL;
  }
  if (!PyCapsule_IsValid(capsule, "dltensor")) return NULL;
  const rabbet_dl_managed_t* managed =
      PyCapsule_GetPointer(capsule, "dltensor");
  return &managed->tensor;
}

// dlpack_view(capsule): (address, shape, strides | None, code, bits, lanes,
// device type, device number); the capsule goes on owning the memory.
static PyObject* py_dlpack_view(PyObject* module, PyObject* capsule) {
  (void)module;
  const rabbet_dl_tensor_t* tensor = py_capsule_tensor(capsule);
  if (!tensor || tensor->rank < 0 || tensor->rank > RABBET_MAX_RANK) {
    return PyErr_Format(
        PyExc_BufferError,
        "%R is not a DLPack tensor of version %d with at most %d dimensions",
        capsule, RABBET_DL_MAJOR, RABBET_MAX_RANK);
  }
  rabbet_dims_t shape = {.rank = tensor->rank};
  rabbet_dims_t strides = {.rank = tensor->rank};
  for (int32_t i = 0; i < tensor->rank; ++i) {
    shape.d[i] = tensor->shape[i];
    if (tensor->strides) strides.d[i] = tensor->strides[i];
  }
  uintptr_t address = (uintptr_t)tensor->data + tensor->byte_offset;
  return Py_BuildValue(
      "(KNNiiiii)", (unsigned long long)address, rabbet_py_from_dims(&shape),
      tensor->strides ? rabbet_py_from_dims(&strides) : Py_NewRef(Py_None),
      (int)tensor->dtype.code, (int)tensor->dtype.bits,
      (int)tensor->dtype.lanes, (int)tensor->device.type,
      (int)tensor->device.id);
}

// copy_to_host(engine, address, bytes, stream) -> bytearray
static PyObject* py_copy_to_host(PyObject* module, PyObject* args) {
  (void)module;
  PyObject* object;
  unsigned long long address = 0, stream = 0;
  Py_ssize_t bytes = 0;
  if (!PyArg_ParseTuple(args, "OKnK", &object, &address, &bytes, &stream)) {
    return NULL;
  }
  rabbet_engine_t* engine =
      rabbet_py_handle_get(object, rabbet_py_types.engine);
  if (!engine) return NULL;
  PyObject* copy = PyByteArray_FromStringAndSize(NULL, bytes);
  if (!copy) return NULL;
  void* target = PyByteArray_AsString(copy);
  rabbet_status_t status;
  Py_BEGIN_ALLOW_THREADS status = rabbet_engine_copy_to_host(
      engine, target, (const void*)(uintptr_t)address, (size_t)bytes,
      (void*)(uintptr_t)stream);
  Py_END_ALLOW_THREADS if (!rabbet_is_ok(status)) {
    Py_DECREF(copy);
    return rabbet_py_raise(status);
  }
  return copy;
}

// copy_to_device(engine, address, bytes-like, stream)
static PyObject* py_copy_to_device(PyObject* module, PyObject* args) {
  (void)module;
  PyObject* object;
  unsigned long long address = 0, stream = 0;
  Py_buffer view;
  if (!PyArg_ParseTuple(args, "OKy*K", &object, &address, &view, &stream)) {
    return NULL;
  }
  rabbet_engine_t* engine =
      rabbet_py_handle_get(object, rabbet_py_types.engine);
  rabbet_status_t status = rabbet_ok();
  if (engine) {
    Py_BEGIN_ALLOW_THREADS status = rabbet_engine_copy_to_device(
        engine, (void*)(uintptr_t)address, view.buf, (size_t)view.len,
        (void*)(uintptr_t)stream);
    Py_END_ALLOW_THREADS
  }
  PyBuffer_Release(&view);
  return engine ? rabbet_py_none_or_raise(status) : NULL;
}

// synchronize(engine, stream)
static PyObject* py_synchronize(PyObject* module, PyObject* args) {
  (void)module;
  PyObject* object;
  unsigned long long stream = 0;
  if (!PyArg_ParseTuple(args, "OK", &object, &stream)) return NULL;
  rabbet_engine_t* engine =
      rabbet_py_handle_get(object, rabbet_py_types.engine);
  if (!engine) return NULL;
  rabbet_status_t status;
  Py_BEGIN_ALLOW_THREADS status =
      rabbet_engine_synchronize(engine, (void*)(uintptr_t)stream);
  Py_END_ALLOW_THREADS return rabbet_py_none_or_raise(status);
}

static PyMethodDef py_device_array_functions[] = {
    {"device_array", py_device_array, METH_VARARGS, NULL},
    {"dlpack_view", py_dlpack_view, METH_O, NULL},
    {"copy_to_host", py_copy_to_host, METH_VARARGS, NULL},
    {"copy_to_device", py_copy_to_device, METH_VARARGS, NULL},
    {"synchronize", py_synchronize, METH_VARARGS, NULL},
    {NULL},
};

int rabbet_py_add_device_array(PyObject* module) {
  return PyModule_AddFunctions(module, py_device_array_functions);
}
