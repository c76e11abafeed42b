// Builds, and the memory that they give.
#include "base/file.h"
#include "builder/output.h"
#include "python/src/rabbet_py.h"

// ---- Host memory -----------------------------------------------------------

typedef struct py_block_t {
  void* data;
  size_t size;
  void (*release)(void* data);  // NULL: another object's
  rabbet_file_map_t* map;       // whose data it is, or NULL
} py_block_t;

static void py_release_block(void* pointer) {
  py_block_t* block = pointer;
  if (block->release) block->release(block->data);
  rabbet_file_map_release(block->map);
  PyMem_Free(block);
}

static int py_host_memory_buffer(PyObject* self, Py_buffer* view, int flags) {
  py_block_t* block = rabbet_py_pointer(self);
  return PyBuffer_FillInfo(view, self, block->data, (Py_ssize_t)block->size, 1,
                           flags);
}

static Py_ssize_t py_host_memory_length(PyObject* self) {
  py_block_t* block = rabbet_py_pointer(self);
  return (Py_ssize_t)block->size;
}

static PyObject* py_host_memory_nbytes(PyObject* self, void* closure) {
  (void)closure;
  return PyLong_FromSsize_t(py_host_memory_length(self));
}

static PyObject* py_host_memory_dtype(PyObject* self, void* closure) {
  (void)self, (void)closure;
  return rabbet_py_dtype(RABBET_DTYPE_INT8);
}

static PyObject* py_host_memory_enter(PyObject* self, PyObject* none) {
  (void)none;
  return Py_NewRef(self);
}

// The memory lives as long as it is referred to.
static PyObject* py_host_memory_exit(PyObject* self, PyObject* args,
                                     PyObject* kwargs) {
  (void)self, (void)args, (void)kwargs;
  Py_RETURN_NONE;
}

static PyObject* py_host_memory_del(PyObject* self, PyObject* none) {
  (void)self, (void)none;
  Py_RETURN_NONE;
}

static PyMethodDef py_host_memory_methods[] = {
    {"__enter__", py_host_memory_enter, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)(void (*)(void))py_host_memory_exit,
     METH_VARARGS | METH_KEYWORDS,
     "__exit__($self, exc_type, exc_value, traceback)\n--\n\nNothing to do."},
    {"__del__", py_host_memory_del, METH_NOARGS, "Nothing to do."},
    {NULL},
};

static PyGetSetDef py_host_memory_getset[] = {
    {"nbytes", py_host_memory_nbytes, NULL, "Size in bytes.", NULL},
    {"dtype", py_host_memory_dtype, NULL, "Always DataType.INT8.", NULL},
    {NULL},
};

static PyType_Slot py_host_memory_slots[] = {
    RABBET_PY_HANDLE_SLOTS,
    {Py_bf_getbuffer, py_host_memory_buffer},
    {Py_sq_length, py_host_memory_length},
    {Py_tp_getset, py_host_memory_getset},
    {Py_tp_methods, py_host_memory_methods},
    {Py_tp_doc,
     "Bytes that a build or an engine gave; a buffer: bytes(x), "
     "memoryview(x), file.write(x)."},
    {0, NULL},
};

static PyType_Spec py_host_memory_spec = {
    .name = "rabbet.IHostMemory",
    .basicsize = sizeof(rabbet_py_handle_t),
    .flags = RABBET_PY_HANDLE_FLAGS | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = py_host_memory_slots,
};

PyObject* rabbet_py_host_memory(void* data, size_t size, PyObject* keep,
                                void (*release)(void* data)) {
  py_block_t* block = PyMem_Malloc(sizeof(*block));
  if (!block) {
    if (release) release(data);
    return PyErr_NoMemory();
  }
  *block = (py_block_t){data, size, release, NULL};
  return rabbet_py_handle_new(rabbet_py_types.host_memory, block, keep,
                              py_release_block);
}

PyObject* rabbet_py_host_memory_take_map(rabbet_file_map_t* map) {
  py_block_t* block = PyMem_Malloc(sizeof(*block));
  if (!block) {
    rabbet_file_map_release(map);
    return PyErr_NoMemory();
  }
  *block = (py_block_t){(void*)rabbet_file_map_data(map),
                        rabbet_file_map_size(map), NULL, map};
  return rabbet_py_handle_new(rabbet_py_types.host_memory, block, NULL,
                              py_release_block);
}

rabbet_file_map_t* rabbet_py_host_memory_map(PyObject* object) {
  if (!PyObject_TypeCheck(object, rabbet_py_types.host_memory)) return NULL;
  return ((py_block_t*)rabbet_py_pointer(object))->map;
}

// ---- Build -----------------------------------------------------------------

// Where the plan goes, as Python says it: None (memory), a path, or a function
// that is called with its bytes.
typedef struct py_target_t {
  PyObject* path;  // bytes, or NULL
  PyObject* write;
  rabbet_file_map_t* map;
} py_target_t;

static int py_parse_target(PyObject* given, py_target_t* out) {
  if (Py_IsNone(given)) return 0;
  if (PyCallable_Check(given)) {
    out->write = given;
    return 0;
  }
  return PyUnicode_FSConverter(given, &out->path) ? 0 : -1;
}

static rabbet_status_t py_write_piece(void* user_data, const void* data,
                                      size_t size) {
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject* written =
      PyObject_CallFunction(user_data, "y#", data, (Py_ssize_t)size);
  // None: all of them.
  Py_ssize_t count = written && !Py_IsNone(written) ? PyLong_AsSsize_t(written)
                                                    : (Py_ssize_t)size;
  if (!PyErr_Occurred() && count < (Py_ssize_t)size)
    PyErr_Format(PyExc_OSError, "the writer took %zd of %zu bytes", count,
                 size);
  rabbet_status_t status =
      PyErr_Occurred() ? rabbet_py_status_from_exception() : rabbet_ok();
  Py_XDECREF(written);
  PyGILState_Release(gil);
  return status;
}

static rabbet_status_t py_build_to(void* network, void* config,
                                   py_target_t* target,
                                   rabbet_build_report_t** out_report) {
  rabbet_allocator_t allocator = rabbet_allocator_system();
  uint64_t size = 0;
  if (target->path)
    return rabbet_build_plan_file(network, config,
                                  PyBytes_AsString(target->path), allocator,
                                  &size, out_report);
  if (!target->write)
    return rabbet_build_plan_mapped(network, config, allocator, &target->map,
                                    out_report);
  const rabbet_plan_writer_t writer = {.user_data = target->write,
                                       .write = py_write_piece};
  return rabbet_build_plan_to(network, config, writer, allocator, out_report);
}

// Takes the map, which may be NULL.
static PyObject* py_build_result(rabbet_file_map_t* map,
                                 rabbet_build_report_t* report) {
  PyObject* memory =
      map ? rabbet_py_host_memory_take_map(map) : Py_NewRef(Py_None);
  PyObject *text = NULL, *json = NULL, *result = NULL;
  if (memory) text = rabbet_py_message(rabbet_build_report_text(report));
  if (text) json = rabbet_py_message(rabbet_build_report_json(report));
  if (json) result = PyTuple_Pack(3, memory, text, json);
  Py_XDECREF(memory);
  Py_XDECREF(text);
  Py_XDECREF(json);
  return result;
}

// ---- Algorithm selectors ---------------------------------------------------

// ((DataType, TensorFormat, strides, vectorized dim, components), ...)
static PyObject* py_algorithm_tensors(const rabbet_algorithm_tensor_t* tensors,
                                      size_t count) {
  PyObject* list = PyList_New((Py_ssize_t)count);
  for (size_t i = 0; list && i < count; ++i) {
    const rabbet_algorithm_tensor_t* t = &tensors[i];
    PyObject* item = Py_BuildValue("(NNNii)", rabbet_py_dtype(t->dtype),
                                   rabbet_py_format(t->format),
                                   rabbet_py_from_dims(&t->strides),
                                   (int)t->vectorized_dim, (int)t->components);
    if (!item || PyList_SetItem(list, (Py_ssize_t)i, item) < 0) Py_CLEAR(list);
  }
  return list;
}

// [(kernel, tactic name, implementation, tactic, us, workspace, tensors), ...]
// of algorithms for a context each, or (`each` false) all for the first.
static PyObject* py_algorithms(const rabbet_algorithm_context_t* contexts,
                               const rabbet_algorithm_t* algorithms,
                               size_t count, bool each) {
  PyObject* list = PyList_New((Py_ssize_t)count);
  for (size_t i = 0; list && i < count; ++i) {
    const rabbet_algorithm_context_t* context = &contexts[each ? i : 0];
    const rabbet_algorithm_t* a = &algorithms[i];
    PyObject* tensors = py_algorithm_tensors(
        a->tensors, context->input_count + context->output_count);
    PyObject* item =
        tensors
            ? Py_BuildValue("(NNLLdKN)", rabbet_py_message(a->kernel),
                            rabbet_py_message(a->tactic_name),
                            (long long)a->implementation, (long long)a->tactic,
                            a->us, (unsigned long long)a->workspace, tensors)
            : NULL;
    if (!item || PyList_SetItem(list, (Py_ssize_t)i, item) < 0) Py_CLEAR(list);
  }
  return list;
}

// [(name, inputs, outputs, [(min, usual, max), ...]), ...]
static PyObject* py_algorithm_contexts(
    const rabbet_algorithm_context_t* contexts, size_t count) {
  PyObject* list = PyList_New((Py_ssize_t)count);
  for (size_t i = 0; list && i < count; ++i) {
    const rabbet_algorithm_context_t* c = &contexts[i];
    size_t tensors = c->input_count + c->output_count;
    PyObject* shapes = PyList_New((Py_ssize_t)tensors);
    for (size_t k = 0; shapes && k < tensors; ++k) {
      PyObject* shape =
          Py_BuildValue("(NNN)", rabbet_py_from_dims(&c->shapes[k][0]),
                        rabbet_py_from_dims(&c->shapes[k][1]),
                        rabbet_py_from_dims(&c->shapes[k][2]));
      if (!shape || PyList_SetItem(shapes, (Py_ssize_t)k, shape) < 0) {
        Py_CLEAR(shapes);
      }
    }
    PyObject* item = shapes
                         ? Py_BuildValue("(NnnN)", rabbet_py_message(c->name),
                                         (Py_ssize_t)c->input_count,
                                         (Py_ssize_t)c->output_count, shapes)
                         : NULL;
    if (!item || PyList_SetItem(list, (Py_ssize_t)i, item) < 0) Py_CLEAR(list);
  }
  return list;
}

static int py_read_indices(PyObject* chosen, size_t count, size_t* indices,
                           size_t* out_count) {
  Py_ssize_t length = PySequence_Size(chosen);
  if (length < 0) return -1;
  // The builder says what is wrong with too many.
  *out_count = (size_t)length;
  for (size_t i = 0; i < (size_t)length && i < count; ++i) {
    PyObject* item = PySequence_GetItem(chosen, (Py_ssize_t)i);
    indices[i] = item ? PyLong_AsSize_t(item) : (size_t)-1;
    Py_XDECREF(item);
    if (PyErr_Occurred()) return -1;
  }
  return 0;
}

static rabbet_status_t py_select(void* user_data,
                                 const rabbet_algorithm_context_t* context,
                                 const rabbet_algorithm_t* algorithms,
                                 size_t count, size_t* indices,
                                 size_t* out_count) {
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject* contexts = py_algorithm_contexts(context, 1);
  PyObject* choices =
      contexts ? py_algorithms(context, algorithms, count, false) : NULL;
  PyObject* chosen = choices ? PyObject_CallMethod(user_data, "_select", "OO",
                                                   contexts, choices)
                             : NULL;
  rabbet_status_t status = rabbet_ok();
  if (!chosen || py_read_indices(chosen, count, indices, out_count)) {
    status = rabbet_py_status_from_exception();
  }
  Py_XDECREF(contexts);
  Py_XDECREF(choices);
  Py_XDECREF(chosen);
  PyGILState_Release(gil);
  return status;
}

static rabbet_status_t py_report_algorithms(
    void* user_data, const rabbet_algorithm_context_t* contexts,
    const rabbet_algorithm_t* algorithms, size_t count) {
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject* all = py_algorithm_contexts(contexts, count);
  PyObject* choices =
      all ? py_algorithms(contexts, algorithms, count, true) : NULL;
  PyObject* result =
      choices ? PyObject_CallMethod(user_data, "_report", "OO", all, choices)
              : NULL;
  rabbet_status_t status =
      result ? rabbet_ok() : rabbet_py_status_from_exception();
  Py_XDECREF(all);
  Py_XDECREF(choices);
  Py_XDECREF(result);
  PyGILState_Release(gil);
  return status;
}

static rabbet_algorithm_selector_t py_selector(PyObject* selector) {
  rabbet_algorithm_selector_t result = {0};
  if (Py_IsNone(selector)) return result;
  result.user_data = selector;
  result.select = py_select;
  result.report = py_report_algorithms;
  return result;
}

static PyObject* py_build_held(PyObject* network_object,
                               PyObject* config_object, PyObject* monitor,
                               PyObject* selector, py_target_t* target) {
  void* network = rabbet_py_pointer(network_object);
  void* config = rabbet_py_pointer(config_object);
  RABBET_PY_HOLD(network_object);
  RABBET_PY_HOLD(config_object);
  if (rabbet_py_begin(network_object, "network")) return NULL;
  if (rabbet_py_begin(config_object, "configuration")) {
    rabbet_py_end(network_object);
    return NULL;
  }
  rabbet_py_progress_t progress = {.monitor = monitor};
  rabbet_builder_config_set_progress(config, rabbet_py_progress(&progress));
  rabbet_builder_config_set_selector(config, py_selector(selector));
  rabbet_build_report_t* report = NULL;
  rabbet_status_t status;
  Py_BEGIN_ALLOW_THREADS;
  status = py_build_to(network, config, target, &report);
  Py_END_ALLOW_THREADS;
  rabbet_builder_config_set_progress(config, (rabbet_progress_t){0});
  rabbet_builder_config_set_selector(config, (rabbet_algorithm_selector_t){0});
  rabbet_py_end(config_object);
  rabbet_py_end(network_object);
  PyObject* result = NULL;
  if (progress.error) {
    rabbet_status_ignore(status);
    rabbet_file_map_release(target->map);
    rabbet_py_error_restore(progress.error);
  } else if (!rabbet_is_ok(status)) {
    rabbet_py_raise(status);
  } else {
    result = py_build_result(target->map, report);
  }
  rabbet_build_report_destroy(report);
  return result;
}

// build(network, config, monitor, selector, target) ->
// (IHostMemory | None, text, json)
static PyObject* py_build(PyObject* module, PyObject* args) {
  (void)module;
  PyObject *network_object, *config_object, *monitor, *selector = Py_None;
  PyObject* given = Py_None;
  if (!PyArg_ParseTuple(args, "OOO|OO", &network_object, &config_object,
                        &monitor, &selector, &given)) {
    return NULL;
  }
  void* network = rabbet_py_handle_get(network_object, rabbet_py_types.network);
  void* config =
      network ? rabbet_py_handle_get(config_object, rabbet_py_types.config)
              : NULL;
  py_target_t target = {0};
  if (!config || py_parse_target(given, &target)) return NULL;
  PyObject* result =
      py_build_held(network_object, config_object, monitor, selector, &target);
  Py_XDECREF(target.path);
  return result;
}

static PyMethodDef py_builder_functions[] = {
    {"build", py_build, METH_VARARGS, NULL},
    {NULL},
};

int rabbet_py_add_build(PyObject* module) {
  if (rabbet_py_add_type(module, "IHostMemory", &py_host_memory_spec,
                         &rabbet_py_types.host_memory)) {
    return -1;
  }
  return PyModule_AddFunctions(module, py_builder_functions);
}
