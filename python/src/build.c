// Builds, and the memory that they give.
#include "python/src/rabbet_py.h"

// ---- Host memory -----------------------------------------------------------

typedef struct rabbet_py_block_t {
  void* data;
  size_t size;
  void (*release)(void* data);  // NULL: another object's
} rabbet_py_block_t;

static void rabbet_py_release_block(void* pointer) {
  rabbet_py_block_t* block = pointer;
  if (block->release) block->release(block->data);
  PyMem_Free(block);
}

static void rabbet_py_release_plan(void* data) {
  rabbet_free_aligned(rabbet_allocator_system(), data, 64);
}

static int rabbet_py_host_memory_buffer(PyObject* self, Py_buffer* view,
                                        int flags) {
  rabbet_py_block_t* block = rabbet_py_pointer(self);
  return PyBuffer_FillInfo(view, self, block->data, (Py_ssize_t)block->size, 1,
                           flags);
}

static Py_ssize_t rabbet_py_host_memory_length(PyObject* self) {
  rabbet_py_block_t* block = rabbet_py_pointer(self);
  return (Py_ssize_t)block->size;
}

static PyObject* rabbet_py_host_memory_nbytes(PyObject* self, void* closure) {
  (void)closure;
  return PyLong_FromSsize_t(rabbet_py_host_memory_length(self));
}

static PyObject* rabbet_py_host_memory_dtype(PyObject* self, void* closure) {
  (void)self, (void)closure;
  return rabbet_py_dtype(RABBET_DTYPE_INT8);
}

static PyObject* rabbet_py_host_memory_enter(PyObject* self, PyObject* none) {
  (void)none;
  return Py_NewRef(self);
}

// The memory lives as long as it is referred to.
static PyObject* rabbet_py_host_memory_exit(PyObject* self, PyObject* args,
                                            PyObject* kwargs) {
  (void)self, (void)args, (void)kwargs;
  Py_RETURN_NONE;
}

static PyObject* rabbet_py_host_memory_del(PyObject* self, PyObject* none) {
  (void)self, (void)none;
  Py_RETURN_NONE;
}

static PyMethodDef rabbet_py_host_memory_methods[] = {
    {"__enter__", rabbet_py_host_memory_enter, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)(void (*)(void))rabbet_py_host_memory_exit,
     METH_VARARGS | METH_KEYWORDS,
     "__exit__($self, exc_type, exc_value, traceback)\n--\n\nNothing to do."},
    {"__del__", rabbet_py_host_memory_del, METH_NOARGS, "Nothing to do."},
    {NULL},
};

static PyGetSetDef rabbet_py_host_memory_getset[] = {
    {"nbytes", rabbet_py_host_memory_nbytes, NULL, "Size in bytes.", NULL},
    {"dtype", rabbet_py_host_memory_dtype, NULL, "Always DataType.INT8.", NULL},
    {NULL},
};

static PyType_Slot rabbet_py_host_memory_slots[] = {
    RABBET_PY_HANDLE_SLOTS,
    {Py_bf_getbuffer, rabbet_py_host_memory_buffer},
    {Py_sq_length, rabbet_py_host_memory_length},
    {Py_tp_getset, rabbet_py_host_memory_getset},
    {Py_tp_methods, rabbet_py_host_memory_methods},
    {Py_tp_doc,
     "Bytes that a build or an engine gave; a buffer: bytes(x), "
     "memoryview(x), file.write(x)."},
    {0, NULL},
};

static PyType_Spec rabbet_py_host_memory_spec = {
    .name = "rabbet.IHostMemory",
    .basicsize = sizeof(rabbet_py_handle_t),
    .flags = RABBET_PY_HANDLE_FLAGS | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = rabbet_py_host_memory_slots,
};

PyObject* rabbet_py_host_memory(void* data, size_t size, PyObject* keep,
                                void (*release)(void* data)) {
  rabbet_py_block_t* block = PyMem_Malloc(sizeof(*block));
  if (!block) {
    if (release) release(data);
    return PyErr_NoMemory();
  }
  *block = (rabbet_py_block_t){data, size, release};
  return rabbet_py_handle_new(rabbet_py_types.host_memory, block, keep,
                              rabbet_py_release_block);
}

// ---- Build -----------------------------------------------------------------

static PyObject* rabbet_py_build_result(void* data, size_t size,
                                        rabbet_build_report_t* report) {
  PyObject* memory =
      rabbet_py_host_memory(data, size, NULL, rabbet_py_release_plan);
  PyObject *text = NULL, *json = NULL, *result = NULL;
  if (memory) text = rabbet_py_message(rabbet_build_report_text(report));
  if (text) json = rabbet_py_message(rabbet_build_report_json(report));
  if (json) result = PyTuple_Pack(3, memory, text, json);
  Py_XDECREF(memory);
  Py_XDECREF(text);
  Py_XDECREF(json);
  return result;
}

static PyObject* rabbet_py_raise_object(PyObject* exception) {
  PyObject* traceback = PyException_GetTraceback(exception);
  PyErr_Restore(Py_NewRef((PyObject*)Py_TYPE(exception)), exception, traceback);
  return NULL;
}

// build(network, config, monitor) -> (IHostMemory, text, json)
static PyObject* rabbet_py_build(PyObject* module, PyObject* args) {
  (void)module;
  PyObject *network_object, *config_object, *monitor;
  if (!PyArg_ParseTuple(args, "OOO", &network_object, &config_object,
                        &monitor)) {
    return NULL;
  }
  void* network = rabbet_py_handle_get(network_object, rabbet_py_types.network);
  void* config =
      network ? rabbet_py_handle_get(config_object, rabbet_py_types.config)
              : NULL;
  if (!config) return NULL;
  rabbet_py_progress_t progress = {.monitor = monitor};
  rabbet_builder_config_set_progress(config, rabbet_py_progress(&progress));
  void* data = NULL;
  size_t size = 0;
  rabbet_build_report_t* report = NULL;
  rabbet_status_t status;
  Py_BEGIN_ALLOW_THREADS status = rabbet_build_plan(
      network, config, rabbet_allocator_system(), &data, &size, &report);
  Py_END_ALLOW_THREADS rabbet_builder_config_set_progress(
      config, (rabbet_progress_t){0});
  PyObject* result = NULL;
  if (progress.error) {
    rabbet_status_ignore(status);
    rabbet_free_aligned(rabbet_allocator_system(), data, 64);
    rabbet_py_raise_object(progress.error);
  } else if (!rabbet_is_ok(status)) {
    rabbet_py_raise(status);
  } else {
    result = rabbet_py_build_result(data, size, report);
  }
  rabbet_build_report_destroy(report);
  return result;
}

static PyMethodDef rabbet_py_builder_functions[] = {
    {"build", rabbet_py_build, METH_VARARGS, NULL},
    {NULL},
};

int rabbet_py_add_build(PyObject* module) {
  if (rabbet_py_add_type(module, "IHostMemory", &rabbet_py_host_memory_spec,
                         &rabbet_py_types.host_memory)) {
    return -1;
  }
  return PyModule_AddFunctions(module, rabbet_py_builder_functions);
}
