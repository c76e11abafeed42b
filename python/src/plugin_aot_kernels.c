// Kernels that a Python plugin makes ahead of time, as the C interface has
// them.
//
// instance.launches(builder, device, tensors, inputs, outputs, tactic) gives
// (workspace, [launch]); a launch is (kernel, [(major, minor, bytes)], 7
// expressions of grid, block and shared memory, cluster, cooperative,
// [argument]); an argument (kind, index, value, size, bytes, map).
#include <string.h>

#include "python/src/plugin_adapter.h"

uint32_t rabbet_py_plugin_kinds(void* self, const char* device) {
  rabbet_py_plugin_t* plugin = self;
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject* answer =
      PyObject_CallMethod(plugin->instance, "kinds", "s", device);
  unsigned long kinds = answer ? PyLong_AsUnsignedLong(answer) : 0;
  // Errors are ignored here: the plugin's next call reports them.
  if (PyErr_Occurred()) {
    PyErr_Clear();
    kinds = 0;
  }
  Py_XDECREF(answer);
  PyGILState_Release(gil);
  return (uint32_t)kinds;
}

// ---- Reading a launch ------------------------------------------------------

static int py_read_dims(PyObject* tuple, rabbet_dim_t* dims, Py_ssize_t room) {
  Py_ssize_t count = PyTuple_Size(tuple);
  if (count < 0 || count > room) {
    if (!PyErr_Occurred())
      PyErr_Format(PyExc_ValueError, "%zd numbers; there is room for %zd",
                   count, room);
    return -1;
  }
  for (Py_ssize_t i = 0; i < count; ++i)
    dims[i] = (rabbet_dim_t)PyLong_AsLong(PyTuple_GetItem(tuple, i));
  return PyErr_Occurred() ? -1 : 0;
}

static int py_read_counts(PyObject* tuple, uint32_t* out, Py_ssize_t room) {
  rabbet_dim_t values[8] = {0};
  if (py_read_dims(tuple, values, room)) return -1;
  for (Py_ssize_t i = 0; i < room; ++i)
    out[i] = (uint32_t)values[i];
  return 0;
}

static int py_read_map(PyObject* item, rabbet_plugin_tensor_map_t* map) {
  PyObject *dims = NULL, *strides = NULL, *box = NULL, *steps = NULL;
  int of_output = 0;
  if (!PyArg_ParseTuple(item, "piO!O!O!O!iiii", &of_output, &map->index,
                        &PyTuple_Type, &dims, &PyTuple_Type, &strides,
                        &PyTuple_Type, &box, &PyTuple_Type, &steps,
                        &map->interleave, &map->swizzle, &map->l2_promotion,
                        &map->oob_fill) ||
      py_read_dims(dims, map->dims, 5) ||
      py_read_dims(strides, map->strides, 4) ||
      py_read_counts(box, map->box, 5) ||
      py_read_counts(steps, map->element_strides, 5)) {
    return -1;
  }
  map->struct_size = sizeof(*map);
  map->of_output = of_output != 0;
  map->rank = (int32_t)PyTuple_Size(dims);
  return 0;
}

// Everything of one launch that the C interface points to.
typedef struct py_launch_t {
  rabbet_plugin_launch_t launch;
  rabbet_plugin_image_t* images;
  rabbet_plugin_arg_t* args;
  rabbet_plugin_tensor_map_t* maps;  // one for each argument
} py_launch_t;

static void py_launch_free(py_launch_t* launch) {
  PyMem_Free(launch->images);
  PyMem_Free(launch->args);
  PyMem_Free(launch->maps);
}

static int py_read_image(PyObject* item, rabbet_plugin_image_t* image) {
  PyObject* code = NULL;
  char* data = NULL;
  Py_ssize_t size = 0;
  if (!PyArg_ParseTuple(item, "iiO!", &image->major, &image->minor,
                        &PyBytes_Type, &code) ||
      PyBytes_AsStringAndSize(code, &data, &size) < 0) {
    return -1;
  }
  image->data = data;
  image->size = (size_t)size;
  return 0;
}

static int py_read_arg(PyObject* item, rabbet_plugin_arg_t* arg,
                       rabbet_plugin_tensor_map_t* map) {
  int kind = 0;
  Py_ssize_t size = 0;
  PyObject *data = NULL, *map_object = NULL;
  if (!PyArg_ParseTuple(item, "iiinOO", &kind, &arg->index, &arg->value, &size,
                        &data, &map_object)) {
    return -1;
  }
  arg->kind = (rabbet_plugin_arg_kind_t)kind;
  arg->size = (size_t)size;
  if (!Py_IsNone(data)) {
    char* bytes = NULL;
    if (PyBytes_AsStringAndSize(data, &bytes, &size) < 0) return -1;
    arg->data = bytes;
    arg->size = (size_t)size;
  }
  if (Py_IsNone(map_object)) return 0;
  arg->map = map;
  return py_read_map(map_object, map);
}

// The launch points into `item`.
static int py_read_launch(PyObject* item, py_launch_t* out) {
  rabbet_plugin_launch_t* launch = &out->launch;
  PyObject *images = NULL, *geometry = NULL, *args = NULL;
  rabbet_dim_t numbers[7];
  int cooperative = 0;
  if (!PyArg_ParseTuple(item, "sO!O!(iii)pO!", &launch->kernel, &PyList_Type,
                        &images, &PyTuple_Type, &geometry, &launch->cluster[0],
                        &launch->cluster[1], &launch->cluster[2], &cooperative,
                        &PyList_Type, &args) ||
      py_read_dims(geometry, numbers, 7)) {
    return -1;
  }
  memcpy(launch->grid, numbers, sizeof(launch->grid));
  memcpy(launch->block, numbers + 3, sizeof(launch->block));
  launch->shared_bytes = numbers[6];
  launch->cooperative = cooperative != 0;
  launch->struct_size = sizeof(*launch);
  launch->image_count = (size_t)PyList_Size(images);
  launch->image_size = sizeof(*out->images);
  launch->arg_count = (size_t)PyList_Size(args);
  launch->arg_size = sizeof(*out->args);
  out->images = PyMem_Calloc(launch->image_count + 1, sizeof(*out->images));
  out->args = PyMem_Calloc(launch->arg_count + 1, sizeof(*out->args));
  out->maps = PyMem_Calloc(launch->arg_count + 1, sizeof(*out->maps));
  if (!out->images || !out->args || !out->maps) {
    PyErr_NoMemory();
    return -1;
  }
  launch->images = out->images;
  launch->args = out->args;
  for (size_t i = 0; i < launch->image_count; ++i) {
    if (py_read_image(PyList_GetItem(images, (Py_ssize_t)i), &out->images[i])) {
      return -1;
    }
  }
  for (size_t i = 0; i < launch->arg_count; ++i) {
    if (py_read_arg(PyList_GetItem(args, (Py_ssize_t)i), &out->args[i],
                    &out->maps[i])) {
      return -1;
    }
  }
  return 0;
}

// ---- The function ----------------------------------------------------------

static rabbet_status_t py_pass_launches(PyObject* answer,
                                        rabbet_plugin_launch_sink_t sink) {
  int workspace = 0;
  PyObject* list = NULL;
  if (!PyArg_ParseTuple(answer, "iO!", &workspace, &PyList_Type, &list)) {
    return rabbet_py_status_from_exception();
  }
  rabbet_status_t status =
      sink.workspace(sink.context, (rabbet_dim_t)workspace);
  for (Py_ssize_t i = 0; rabbet_is_ok(status) && i < PyList_Size(list); ++i) {
    py_launch_t launch = {0};
    status = py_read_launch(PyList_GetItem(list, i), &launch)
                 ? rabbet_py_status_from_exception()
                 : sink.add(sink.context, &launch.launch);
    py_launch_free(&launch);
  }
  return status;
}

static PyObject* py_shapes(const rabbet_plugin_input_t* inputs,
                           const rabbet_plugin_output_t* outputs,
                           size_t count) {
  PyObject* list = PyList_New((Py_ssize_t)count);
  for (size_t i = 0; list && i < count; ++i) {
    PyObject* dims =
        inputs ? rabbet_py_dim_tuple(inputs[i].dims, (size_t)inputs[i].rank)
               : rabbet_py_dim_tuple(outputs[i].dims, (size_t)outputs[i].rank);
    if (!dims || PyList_SetItem(list, (Py_ssize_t)i, dims) < 0) Py_CLEAR(list);
  }
  return list;
}

rabbet_status_t rabbet_py_plugin_launches(void* self,
                                          rabbet_dim_builder_t* builder,
                                          const rabbet_plugin_query_t* query,
                                          int32_t tactic,
                                          const rabbet_plugin_input_t* inputs,
                                          const rabbet_plugin_output_t* outputs,
                                          rabbet_plugin_launch_sink_t sink) {
  rabbet_py_plugin_t* plugin = self;
  rabbet_status_t status = rabbet_ok();
  PyObject* answer = NULL;
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject* object =
      rabbet_py_handle_new(rabbet_py_types.dim_builder, builder, NULL, NULL);
  PyObject* tensors = rabbet_py_query_tensors(query);
  PyObject* in = py_shapes(inputs, NULL, query->input_count);
  PyObject* out = py_shapes(NULL, outputs, query->output_count);
  if (object && tensors && in && out) {
    answer = PyObject_CallMethod(plugin->instance, "launches", "OsOOOi", object,
                                 query->device, tensors, in, out, (int)tactic);
  }
  status = answer ? py_pass_launches(answer, sink)
                  : rabbet_py_status_from_exception();
  // Expressions that were kept can no longer be used.
  if (object) rabbet_py_handle_close(object);
  Py_XDECREF(answer);
  Py_XDECREF(out);
  Py_XDECREF(in);
  Py_XDECREF(tensors);
  Py_XDECREF(object);
  PyGILState_Release(gil);
  return status;
}
