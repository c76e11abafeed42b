// Engines.
#include <string.h>

#include "device/device.h"
#include "python/src/rabbet_py.h"
#include "runtime/share.h"

static void py_release_engine(void* pointer) {
  rabbet_engine_release(pointer);
}

// How a plan is loaded, as Python says it:
// (device, logger, host code, allocator, temporary folder, file flags,
// untrusted, iteration limit, lent buffers)
typedef struct py_load_t {
  const char* device;
  PyObject* logger;
  int host_code;
  PyObject* allocator;
  const char* directory;
  unsigned files;  // bits 1 << TempfileControlFlag
  int untrusted;
  long long iterations;
  PyObject* lent;  // buffers whose bytes constants may have
  Py_buffer* views;
  rabbet_weights_t* weights;
  Py_ssize_t view_count;
} py_load_t;

static void py_release_lent(py_load_t* load) {
  for (Py_ssize_t i = 0; i < load->view_count; ++i)
    PyBuffer_Release(&load->views[i]);
  PyMem_Free(load->views);
  PyMem_Free(load->weights);
}

// The addresses of the buffers, which the engine's handle keeps alive.
static int py_parse_lent(py_load_t* load) {
  if (!PyTuple_Check(load->lent)) {
    PyErr_SetString(PyExc_TypeError, "lent constants: expected a tuple");
    return 0;
  }
  size_t count = (size_t)PyTuple_Size(load->lent);
  load->views = PyMem_Calloc(count + 1, sizeof(*load->views));
  load->weights = PyMem_Calloc(count + 1, sizeof(*load->weights));
  if (!load->views || !load->weights) {
    PyErr_NoMemory();
    py_release_lent(load);
    return 0;
  }
  for (size_t i = 0; i < count; ++i) {
    Py_buffer* view = &load->views[i];
    PyObject* item = PyTuple_GetItem(load->lent, (Py_ssize_t)i);
    if (PyObject_GetBuffer(item, view, PyBUF_SIMPLE) < 0) {
      py_release_lent(load);
      return 0;
    }
    ++load->view_count;
    load->weights[i] = (rabbet_weights_t){
        .dtype = RABBET_DTYPE_UINT8, .data = view->buf, .count = view->len};
  }
  return 1;
}

static int py_parse_load(PyObject* tuple, py_load_t* out) {
  return PyArg_ParseTuple(tuple, "zOpOzIpLO", &out->device, &out->logger,
                          &out->host_code, &out->allocator, &out->directory,
                          &out->files, &out->untrusted, &out->iterations,
                          &out->lent) &&
         py_parse_lent(out);
}

static rabbet_engine_options_t py_engine_options(const py_load_t* load) {
  return (rabbet_engine_options_t){
      .struct_size = sizeof(rabbet_engine_options_t),
      .device = load->device,
      .logger = rabbet_py_logger(load->logger),
      .host_code_allowed = load->host_code != 0,
      .device_allocator = rabbet_py_device_allocator(load->allocator),
      .temporary_directory = load->directory,
      .no_memory_files = !(load->files & 1),
      .no_temporary_files = !(load->files & 2),
      .untrusted = load->untrusted != 0,
      .iteration_limit = load->iterations,
      .lent = load->weights,
      .lent_count = (size_t)load->view_count,
  };
}

// The engine calls the logger and the allocator, and reads what was lent, until
// it is gone.
static PyObject* py_new_engine(PyObject* type, rabbet_engine_t* engine,
                               const py_load_t* load) {
  PyObject* keep = PyTuple_Pack(3, load->logger, load->allocator, load->lent);
  if (!keep) {
    rabbet_engine_release(engine);
    return NULL;
  }
  PyObject* result = rabbet_py_handle_new((PyTypeObject*)type, engine, keep,
                                          py_release_engine);
  Py_DECREF(keep);
  return result;
}

// load_engine(type, path, how)
static PyObject* py_load_engine(PyObject* module, PyObject* args) {
  (void)module;
  PyObject *type, *how;
  PyObject* path = NULL;  // bytes: it need not be UTF-8
  py_load_t load = {0};
  if (!PyArg_ParseTuple(args, "OO&O!", &type, PyUnicode_FSConverter, &path,
                        &PyTuple_Type, &how)) {
    return NULL;
  }
  if (!py_parse_load(how, &load)) {
    Py_DECREF(path);
    return NULL;
  }
  const char* name = PyBytes_AsString(path);
  rabbet_engine_options_t options = py_engine_options(&load);
  rabbet_engine_t* engine = NULL;
  rabbet_status_t status;
  Py_BEGIN_ALLOW_THREADS status =
      rabbet_engine_load(name, &options, rabbet_allocator_system(), &engine);
  Py_END_ALLOW_THREADS Py_DECREF(path);
  py_release_lent(&load);
  if (!rabbet_is_ok(status)) return rabbet_py_raise(status);
  return py_new_engine(type, engine, &load);
}

// A plan of a build is shared, others' bytes are copied.
static rabbet_status_t py_deserialize(PyObject* data, const Py_buffer* view,
                                      const rabbet_engine_options_t* options,
                                      rabbet_engine_t** out_engine) {
  rabbet_allocator_t allocator = rabbet_allocator_system();
  rabbet_file_map_t* map = rabbet_py_host_memory_map(data);
  return map ? rabbet_engine_share(map, options, allocator, out_engine)
             : rabbet_engine_deserialize(view->buf, (size_t)view->len, options,
                                         allocator, out_engine);
}

// deserialize_engine(type, buffer, how)
static PyObject* py_deserialize_engine(PyObject* module, PyObject* args) {
  (void)module;
  PyObject *type, *data, *how;
  py_load_t load = {0};
  Py_buffer view;
  if (!PyArg_ParseTuple(args, "OOO!", &type, &data, &PyTuple_Type, &how) ||
      !py_parse_load(how, &load)) {
    return NULL;
  }
  if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0) {
    py_release_lent(&load);
    return NULL;
  }
  rabbet_engine_options_t options = py_engine_options(&load);
  rabbet_engine_t* engine = NULL;
  rabbet_status_t status;
  Py_BEGIN_ALLOW_THREADS;
  status = py_deserialize(data, &view, &options, &engine);
  Py_END_ALLOW_THREADS;
  PyBuffer_Release(&view);
  py_release_lent(&load);
  if (!rabbet_is_ok(status)) return rabbet_py_raise(status);
  return py_new_engine(type, engine, &load);
}

// reload_engine(type, engine, how): another engine of its plan
static PyObject* py_reload_engine(PyObject* module, PyObject* args) {
  (void)module;
  PyObject *type, *handle, *how;
  py_load_t load = {0};
  if (!PyArg_ParseTuple(args, "OOO!", &type, &handle, &PyTuple_Type, &how) ||
      !py_parse_load(how, &load)) {
    return NULL;
  }
  const rabbet_engine_t* old = rabbet_py_pointer(handle);
  rabbet_engine_options_t options = py_engine_options(&load);
  rabbet_file_map_t* map = rabbet_engine_map(old);
  const void* data = NULL;
  size_t size = 0;
  rabbet_engine_plan(old, &data, &size);
  rabbet_engine_t* engine = NULL;
  rabbet_status_t status;
  Py_BEGIN_ALLOW_THREADS;
  status = map ? rabbet_engine_share(map, &options, rabbet_allocator_system(),
                                     &engine)
               : rabbet_engine_deserialize(data, size, &options,
                                           rabbet_allocator_system(), &engine);
  Py_END_ALLOW_THREADS;
  py_release_lent(&load);
  if (!rabbet_is_ok(status)) return rabbet_py_raise(status);
  return py_new_engine(type, engine, &load);
}

// device_signature(name) -> what plans for this device of the machine record
static PyObject* py_device_signature(PyObject* module, PyObject* args) {
  (void)module;
  const char* name = NULL;
  rabbet_device_t* device = NULL;
  if (!PyArg_ParseTuple(args, "s", &name)) return NULL;
  rabbet_status_t status;
  Py_BEGIN_ALLOW_THREADS;
  status = rabbet_device_create(name, rabbet_allocator_system(), &device);
  Py_END_ALLOW_THREADS;
  if (!rabbet_is_ok(status)) return rabbet_py_raise(status);
  PyObject* text = PyUnicode_FromString(device->vtable->signature(device));
  rabbet_device_release(device);
  return text;
}

static PyObject* py_engine_plan(PyObject* self, PyObject* none) {
  (void)none;
  const void* data = NULL;
  size_t size = 0;
  rabbet_engine_plan(rabbet_py_pointer(self), &data, &size);
  return rabbet_py_host_memory((void*)data, size, self, NULL);
}

static PyObject* py_dim_names(const rabbet_io_t* io) {
  Py_ssize_t rank = io->dims.rank < 0 ? 0 : io->dims.rank;
  PyObject* names = PyTuple_New(rank);
  for (Py_ssize_t i = 0; names && i < rank; ++i) {
    PyObject* name = rabbet_py_text_or_none(io->dim_names[i]);
    if (!name || PyTuple_SetItem(names, i, name) < 0) Py_CLEAR(names);
  }
  return names;
}

// (name, is input, is shape input, DataType, TensorFormat, dims, dim names,
// aliased input)
static PyObject* py_engine_io(PyObject* self, PyObject* index) {
  size_t i = 0;
  if (rabbet_py_to_index(index, "tensor", &i)) return NULL;
  const rabbet_io_t* io = rabbet_engine_io(rabbet_py_pointer(self), i);
  if (!io) {
    return PyErr_Format(PyExc_IndexError,
                        "tensor %zu: the engine has %zu inputs and outputs", i,
                        rabbet_engine_io_count(rabbet_py_pointer(self)));
  }
  return Py_BuildValue(
      "(NNNNNNNi)", rabbet_py_message(io->name), PyBool_FromLong(io->is_input),
      PyBool_FromLong(io->is_shape_input), rabbet_py_dtype(io->dtype),
      rabbet_py_format(io->format), rabbet_py_from_dims(&io->dims),
      py_dim_names(io), io->aliased_input);
}

static PyObject* py_engine_io_count(PyObject* self, PyObject* none) {
  (void)none;
  return PyLong_FromSize_t(rabbet_engine_io_count(rabbet_py_pointer(self)));
}

static PyObject* py_engine_profile_count(PyObject* self, PyObject* none) {
  (void)none;
  return PyLong_FromSize_t(
      rabbet_engine_profile_count(rabbet_py_pointer(self)));
}

static PyObject* py_engine_layer_count(PyObject* self, PyObject* none) {
  (void)none;
  return PyLong_FromSize_t(rabbet_engine_layer_count(rabbet_py_pointer(self)));
}

static PyObject* py_engine_name(PyObject* self, PyObject* none) {
  (void)none;
  const char* name = rabbet_engine_name(rabbet_py_pointer(self));
  return rabbet_py_message(name ? name : "");
}

static PyObject* py_engine_device(PyObject* self, PyObject* none) {
  (void)none;
  return rabbet_py_text_or_none(rabbet_engine_device(rabbet_py_pointer(self)));
}

static bool py_engine_profile_args(PyObject* args, size_t* profile,
                                   Py_ssize_t* io) {
  PyObject* number = NULL;
  return PyArg_ParseTuple(args, "On", &number, io) &&
         !rabbet_py_to_index(number, "profile", profile);
}

static PyObject* py_engine_profile_shape(PyObject* self, PyObject* args) {
  size_t profile = 0;
  Py_ssize_t io = 0;
  if (!py_engine_profile_args(args, &profile, &io)) return NULL;
  rabbet_dims_t low, opt, high;
  rabbet_status_t status = rabbet_engine_profile_shape(
      rabbet_py_pointer(self), profile, (size_t)io, &low, &opt, &high);
  if (!rabbet_is_ok(status)) return rabbet_py_raise(status);
  return Py_BuildValue("(NNN)", rabbet_py_from_dims(&low),
                       rabbet_py_from_dims(&opt), rabbet_py_from_dims(&high));
}

static PyObject* py_int_list(const int64_t* values, size_t count) {
  rabbet_attr_t attr = {
      .type = RABBET_ATTR_INTS, .data = values, .count = count};
  return rabbet_py_from_attr(&attr);
}

static PyObject* py_engine_profile_values(PyObject* self, PyObject* args) {
  size_t profile = 0;
  Py_ssize_t io = 0;
  if (!py_engine_profile_args(args, &profile, &io)) return NULL;
  const int64_t *low = NULL, *opt = NULL, *high = NULL;
  size_t count = 0;
  rabbet_status_t status = rabbet_engine_profile_values(
      rabbet_py_pointer(self), profile, (size_t)io, &low, &opt, &high, &count);
  if (!rabbet_is_ok(status)) return rabbet_py_raise(status);
  return Py_BuildValue("(NNN)", py_int_list(low, count),
                       py_int_list(opt, count), py_int_list(high, count));
}

static PyObject* py_engine_context_bytes(PyObject* self, PyObject* profile) {
  size_t index = 0, bytes = 0;
  if (rabbet_py_to_index(profile, "profile", &index)) return NULL;
  rabbet_status_t status;
  Py_BEGIN_ALLOW_THREADS status =
      rabbet_engine_context_bytes(rabbet_py_pointer(self), index, &bytes);
  Py_END_ALLOW_THREADS if (!rabbet_is_ok(status)) return rabbet_py_raise(
      status);
  return PyLong_FromSize_t(bytes);
}

// inspect(context | None, layer, format)
static PyObject* py_engine_inspect(PyObject* self, PyObject* args) {
  PyObject* context_object = NULL;
  int layer = -1, format = 0;
  void* context = NULL;
  if (!PyArg_ParseTuple(args, "Oii", &context_object, &layer, &format)) {
    return NULL;
  }
  if (!Py_IsNone(context_object)) {
    context = rabbet_py_handle_get(context_object, rabbet_py_types.context);
    if (!context) return NULL;
  }
  RABBET_PY_LOCK(context_object);
  rabbet_allocator_t allocator = rabbet_allocator_system();
  char* text = NULL;
  rabbet_status_t status =
      rabbet_engine_inspect(rabbet_py_pointer(self), context, layer,
                            (rabbet_inspect_format_t)format, allocator, &text);
  if (!rabbet_is_ok(status)) return rabbet_py_raise(status);
  PyObject* result = rabbet_py_message(text);
  rabbet_free(allocator, text);
  return result;
}

static PyObject* py_engine_debug_names(PyObject* self, PyObject* none) {
  (void)none;
  PyObject* list = PyList_New(0);
  const char* name = NULL;
  for (size_t i = 0;
       list && (name = rabbet_engine_debug_tensor(rabbet_py_pointer(self), i));
       ++i) {
    PyObject* text = rabbet_py_message(name);
    if (!text || PyList_Append(list, text) < 0) Py_CLEAR(list);
    Py_XDECREF(text);
  }
  return list;
}

static PyObject* py_engine_refittable(PyObject* self, PyObject* none) {
  (void)none;
  return PyBool_FromLong(rabbet_engine_is_refittable(rabbet_py_pointer(self)));
}

// (bytes of all weights, bytes that the plan was stripped of)
static PyObject* py_engine_weight_bytes(PyObject* self, PyObject* none) {
  (void)none;
  uint64_t total = 0, stripped = 0;
  rabbet_engine_weights_bytes(rabbet_py_pointer(self), &total, &stripped);
  return Py_BuildValue("(KK)", (unsigned long long)total,
                       (unsigned long long)stripped);
}

static void py_release_plan_copy(void* data) {
  rabbet_free_aligned(rabbet_allocator_system(), data, 64);
}

static PyObject* py_engine_stripped_plan(PyObject* self, PyObject* none) {
  (void)none;
  void* data = NULL;
  size_t size = 0;
  rabbet_status_t status = rabbet_engine_stripped_plan(
      rabbet_py_pointer(self), rabbet_allocator_system(), &data, &size);
  if (!rabbet_is_ok(status)) return rabbet_py_raise(status);
  return rabbet_py_host_memory(data, size, NULL, py_release_plan_copy);
}

static PyMethodDef py_engine_methods[] = {
    {"_refittable", py_engine_refittable, METH_NOARGS, NULL},
    {"_weight_bytes", py_engine_weight_bytes, METH_NOARGS, NULL},
    {"_stripped_plan", py_engine_stripped_plan, METH_NOARGS, NULL},
    {"_debug_names", py_engine_debug_names, METH_NOARGS, NULL},
    {"_plan", py_engine_plan, METH_NOARGS, NULL},
    {"_io", py_engine_io, METH_O, NULL},
    {"_io_count", py_engine_io_count, METH_NOARGS, NULL},
    {"_profile_count", py_engine_profile_count, METH_NOARGS, NULL},
    {"_layer_count", py_engine_layer_count, METH_NOARGS, NULL},
    {"_name", py_engine_name, METH_NOARGS, NULL},
    {"_device", py_engine_device, METH_NOARGS, NULL},
    {"_profile_shape", py_engine_profile_shape, METH_VARARGS, NULL},
    {"_profile_values", py_engine_profile_values, METH_VARARGS, NULL},
    {"_context_bytes", py_engine_context_bytes, METH_O, NULL},
    {"_inspect", py_engine_inspect, METH_VARARGS, NULL},
    {NULL},
};

RABBET_PY_HANDLE_SPEC(py_engine, "Engine", Py_TPFLAGS_DISALLOW_INSTANTIATION);

static PyMethodDef py_engine_functions[] = {
    {"device_signature", py_device_signature, METH_VARARGS, NULL},
    {"load_engine", py_load_engine, METH_VARARGS, NULL},
    {"deserialize_engine", py_deserialize_engine, METH_VARARGS, NULL},
    {"reload_engine", py_reload_engine, METH_VARARGS, NULL},
    {NULL},
};

int rabbet_py_add_engine(PyObject* module) {
  if (rabbet_py_add_type(module, "Engine", &py_engine_spec,
                         &rabbet_py_types.engine)) {
    return -1;
  }
  return PyModule_AddFunctions(module, py_engine_functions);
}
