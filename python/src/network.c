// Networks.
#include <string.h>

#include "onnx/part.h"
#include "python/src/rabbet_py.h"

static void py_release_network(void* pointer) {
  rabbet_network_release(pointer);
}

static rabbet_network_t* py_network(PyObject* self) {
  return rabbet_py_handle_get(self, rabbet_py_types.network);
}

// A tensor as the package's class; NULL gives None. `network` is kept alive.
PyObject* rabbet_py_wrap_tensor(rabbet_tensor_t* tensor, PyObject* network) {
  if (!tensor) return Py_NewRef(Py_None);
  PyObject* type = rabbet_py_types.tensor_class;
  return rabbet_py_handle_new(
      type ? (PyTypeObject*)type : rabbet_py_types.tensor, tensor, network,
      NULL);
}

// A new reference to a layer's own class; NULL: it has none, or an exception.
static PyObject* py_layer_type(const rabbet_layer_t* layer) {
  PyObject* plugin = rabbet_py_layer_instance(layer);
  if (plugin) {
    // Instances say of which kind of layer they are.
    PyObject* own = PyObject_GetAttrString(plugin, "layer_class");
    if (!own || !Py_IsNone(own)) return own;
    Py_DECREF(own);
  }
  PyObject* classes = rabbet_py_types.layer_classes;
  PyObject* key = classes ? rabbet_py_message(rabbet_layer_op(layer)) : NULL;
  PyObject* type = key ? rabbet_py_dict_get(classes, key) : NULL;
  Py_XDECREF(key);
  return type;
}

PyObject* rabbet_py_wrap_layer(rabbet_layer_t* layer, PyObject* network) {
  if (!layer) return Py_NewRef(Py_None);
  PyObject* type = py_layer_type(layer);
  if (!type && PyErr_Occurred()) return NULL;
  PyObject* usual = rabbet_py_types.layer_class;
  if (!type) type = Py_NewRef(usual ? usual : (PyObject*)rabbet_py_types.layer);
  PyObject* result =
      rabbet_py_handle_new((PyTypeObject*)type, layer, network, NULL);
  Py_DECREF(type);
  return result;
}

// ---- Network ---------------------------------------------------------------

static PyObject* py_network_new(PyTypeObject* type, PyObject* args,
                                PyObject* kwargs) {
  (void)kwargs;
  unsigned int flags = 0;
  PyObject* logger = Py_None;
  if (!PyArg_ParseTuple(args, "|IO", &flags, &logger)) return NULL;
  rabbet_network_t* network = NULL;
  rabbet_status_t status = rabbet_network_create(
      flags, rabbet_allocator_system(), rabbet_py_logger(logger), &network);
  if (!rabbet_is_ok(status)) return rabbet_py_raise(status);
  return rabbet_py_guarded(
      rabbet_py_handle_new(type, network, logger, py_release_network));
}

static PyObject* py_network_name(PyObject* self, void* closure) {
  RABBET_PY_HOLD(self);
  (void)closure;
  rabbet_network_t* network = py_network(self);
  if (!network) return NULL;
  const char* name = rabbet_network_name(network);
  return rabbet_py_message(name ? name : "");
}

static int py_network_set_name(PyObject* self, PyObject* value, void* closure) {
  RABBET_PY_HOLD(self);
  if (rabbet_py_check_idle(self, "network")) return -1;
  (void)closure;
  const char* name = NULL;
  rabbet_network_t* network = py_network(self);
  if (!network || rabbet_py_to_text(value, "network name", false, &name)) {
    return -1;
  }
  rabbet_status_t status = rabbet_network_set_name(network, name);
  return rabbet_is_ok(status) ? 0 : rabbet_py_raise_int(status);
}

static PyObject* py_network_flags(PyObject* self, PyObject* unused) {
  RABBET_PY_HOLD(self);
  (void)unused;
  rabbet_network_t* network = py_network(self);
  return network ? PyLong_FromUnsignedLong(rabbet_network_flags(network))
                 : NULL;
}

static PyObject* py_network_add_input(PyObject* self, PyObject* args) {
  RABBET_PY_HOLD(self);
  if (rabbet_py_check_idle(self, "network")) return NULL;
  const char* name = NULL;
  int dtype = 0;
  PyObject* shape = NULL;
  rabbet_dims_t dims;
  rabbet_network_t* network = py_network(self);
  if (!network || !PyArg_ParseTuple(args, "siO", &name, &dtype, &shape) ||
      rabbet_py_to_dims(shape, "shape", &dims)) {
    return NULL;
  }
  rabbet_tensor_t* tensor = NULL;
  rabbet_status_t status =
      rabbet_network_add_input(network, name, dtype, &dims, &tensor);
  if (!rabbet_is_ok(status)) return rabbet_py_raise(status);
  return rabbet_py_wrap_tensor(tensor, self);
}

// The network frees the buffer's owner on whichever thread releases it.
static void py_destroy_owner(void* owner) {
  if (!Py_IsInitialized()) return;
  PyGILState_STATE gil = PyGILState_Ensure();
  Py_DECREF((PyObject*)owner);
  PyGILState_Release(gil);
}

// add_weights(name, dtype, address, count, dims, owner): constant data in
// place; `owner` is kept until the network goes.
static PyObject* py_network_add_weights(PyObject* self, PyObject* args) {
  RABBET_PY_HOLD(self);
  if (rabbet_py_check_idle(self, "network")) return NULL;
  const char* name = NULL;
  int dtype = 0;
  unsigned long long address = 0;
  long long count = 0;
  PyObject *shape = NULL, *owner = NULL;
  rabbet_dims_t dims;
  rabbet_network_t* network = py_network(self);
  if (!network ||
      !PyArg_ParseTuple(args, "ziKLOO", &name, &dtype, &address, &count, &shape,
                        &owner) ||
      rabbet_py_to_dims(shape, "shape", &dims)) {
    return NULL;
  }
  rabbet_weights_t weights = {dtype, (const void*)(uintptr_t)address, count};
  rabbet_tensor_t* tensor = NULL;
  rabbet_status_t status =
      rabbet_network_take_owner(network, owner, py_destroy_owner);
  if (!rabbet_is_ok(status)) return rabbet_py_raise(status);
  Py_INCREF(owner);
  status =
      rabbet_network_add_weights(network, name, weights, &dims, false, &tensor);
  if (!rabbet_is_ok(status)) return rabbet_py_raise(status);
  return rabbet_py_wrap_tensor(tensor, self);
}

// Tensors of a sequence; None stands for an omitted optional input.
int rabbet_py_to_tensors(PyObject* sequence, rabbet_tensor_t*** out,
                         size_t* out_count) {
  Py_ssize_t count = PySequence_Size(sequence);
  *out = NULL;
  *out_count = 0;
  if (count < 0) return -1;
  *out = PyMem_Calloc(count ? (size_t)count : 1, sizeof(**out));
  if (!*out) {
    PyErr_NoMemory();
    return -1;
  }
  *out_count = (size_t)count;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* item = PySequence_GetItem(sequence, i);
    bool bad = !item;
    if (item && !Py_IsNone(item)) {
      (*out)[i] = rabbet_py_handle_get(item, rabbet_py_types.tensor);
      bad = !(*out)[i];
      if (bad) rabbet_py_prefix_error(PyExc_TypeError, "input %zd", i);
    }
    Py_XDECREF(item);
    if (!bad) continue;
    PyMem_Free(*out);
    *out = NULL;
    return -1;
  }
  return 0;
}

// Inputs and attributes of a layer to be added.
typedef struct py_layer_args_t {
  rabbet_tensor_t** tensors;
  size_t count;
  rabbet_py_attrs_t attrs;
} py_layer_args_t;

static bool py_layer_args_read(PyObject* inputs, PyObject* dict,
                               py_layer_args_t* out) {
  if (rabbet_py_to_tensors(inputs, &out->tensors, &out->count)) return false;
  if (!rabbet_py_to_attrs(dict, &out->attrs)) return true;
  PyMem_Free(out->tensors);
  return false;
}

static PyObject* py_layer_args_finish(py_layer_args_t* args, PyObject* network,
                                      rabbet_status_t status,
                                      rabbet_layer_t* layer) {
  rabbet_py_attrs_free(&args->attrs);
  PyMem_Free(args->tensors);
  if (!rabbet_is_ok(status)) return rabbet_py_raise(status);
  return rabbet_py_wrap_layer(layer, network);
}

static PyObject* py_network_add_layer(PyObject* self, PyObject* given) {
  RABBET_PY_HOLD(self);
  if (rabbet_py_check_idle(self, "network")) return NULL;
  const char *op = NULL, *name = NULL;
  PyObject *inputs = NULL, *dict = NULL;
  rabbet_network_t* network = py_network(self);
  if (!network ||
      !PyArg_ParseTuple(given, "szOO", &op, &name, &inputs, &dict)) {
    return NULL;
  }
  py_layer_args_t args;
  if (!py_layer_args_read(inputs, dict, &args)) return NULL;
  rabbet_layer_t* layer = NULL;
  rabbet_status_t status =
      rabbet_network_add_layer(network, op, name, args.tensors, args.count,
                               args.attrs.attrs, args.attrs.count, &layer);
  return py_layer_args_finish(&args, self, status, layer);
}

static PyObject* py_network_add_plugin(PyObject* self, PyObject* given) {
  RABBET_PY_HOLD(self);
  if (rabbet_py_check_idle(self, "network")) return NULL;
  const char *plugin = NULL, *version = NULL, *space = NULL, *name = NULL;
  PyObject *inputs = NULL, *dict = NULL;
  rabbet_network_t* network = py_network(self);
  if (!network || !PyArg_ParseTuple(given, "ssszOO", &plugin, &version, &space,
                                    &name, &inputs, &dict)) {
    return NULL;
  }
  py_layer_args_t args;
  if (!py_layer_args_read(inputs, dict, &args)) return NULL;
  rabbet_layer_t* layer = NULL;
  rabbet_status_t status = rabbet_network_add_plugin(
      network, plugin, version, space, name, args.tensors, args.count,
      args.attrs.attrs, args.attrs.count, &layer);
  return py_layer_args_finish(&args, self, status, layer);
}

// _add_instance(instance, (name, version, namespace, origin), layer name,
// inputs)
static PyObject* py_network_add_instance(PyObject* self, PyObject* args) {
  RABBET_PY_HOLD(self);
  if (rabbet_py_check_idle(self, "network")) return NULL;
  PyObject *instance = NULL, *inputs = NULL;
  const char* name = NULL;
  rabbet_plugin_creator_t key = {0};
  rabbet_network_t* network = py_network(self);
  if (!network ||
      !PyArg_ParseTuple(args, "O(ssss)zO", &instance, &key.name, &key.version,
                        &key.plugin_namespace, &key.origin, &name, &inputs)) {
    return NULL;
  }
  rabbet_tensor_t** tensors = NULL;
  size_t count = 0;
  if (rabbet_py_to_tensors(inputs, &tensors, &count)) return NULL;
  rabbet_layer_t* layer = NULL;
  rabbet_status_t status = rabbet_py_add_instance(network, instance, &key, name,
                                                  tensors, count, &layer);
  PyMem_Free(tensors);
  if (!rabbet_is_ok(status)) return rabbet_py_raise(status);
  return rabbet_py_wrap_layer(layer, self);
}

// A list of the tensors; NULL with an exception set on failure.
static PyObject* py_from_tensors(rabbet_tensor_t* const* tensors, size_t count,
                                 PyObject* network) {
  PyObject* list = PyList_New((Py_ssize_t)count);
  for (size_t i = 0; list && i < count; ++i) {
    PyObject* tensor = rabbet_py_wrap_tensor(tensors[i], network);
    if (!tensor || PyList_SetItem(list, (Py_ssize_t)i, tensor) < 0)
      Py_CLEAR(list);
  }
  return list;
}

// _import_part(model, inputs, number of outputs) -> outputs
static PyObject* py_network_import_part(PyObject* self, PyObject* args) {
  RABBET_PY_HOLD(self);
  if (rabbet_py_check_idle(self, "network")) return NULL;
  const char* data = NULL;
  Py_ssize_t size = 0, count = 0;
  PyObject* inputs = NULL;
  rabbet_tensor_t** tensors = NULL;
  rabbet_onnx_part_t part = {0};
  rabbet_network_t* network = py_network(self);
  if (!network ||
      !PyArg_ParseTuple(args, "y#On", &data, &size, &inputs, &count))
    return NULL;
  if (rabbet_py_to_tensors(inputs, &tensors, &part.input_count)) return NULL;
  part.inputs = tensors;
  part.output_count = (size_t)count;
  part.outputs = PyMem_Calloc(part.output_count + 1, sizeof(*part.outputs));
  PyObject* result = NULL;
  rabbet_status_t status = rabbet_ok();
  if (!part.outputs) {
    PyErr_NoMemory();
  } else {
    status = rabbet_onnx_import_part(network, data, (size_t)size, &part);
    result = rabbet_is_ok(status)
                 ? py_from_tensors(part.outputs, part.output_count, self)
                 : rabbet_py_raise(status);
  }
  PyMem_Free(tensors);
  PyMem_Free(part.outputs);
  return result;
}

typedef rabbet_status_t (*py_tensor_action_t)(rabbet_network_t*,
                                              rabbet_tensor_t*);
static PyObject* py_on_tensor(PyObject* self, PyObject* object,
                              py_tensor_action_t action) {
  RABBET_PY_HOLD(self);
  if (rabbet_py_check_idle(self, "network")) return NULL;
  rabbet_network_t* network = py_network(self);
  rabbet_tensor_t* tensor =
      network ? rabbet_py_handle_get(object, rabbet_py_types.tensor) : NULL;
  return tensor ? rabbet_py_none_or_raise(action(network, tensor)) : NULL;
}

static PyObject* py_network_mark(PyObject* self, PyObject* tensor) {
  return py_on_tensor(self, tensor, rabbet_network_mark_output);
}

static PyObject* py_network_unmark(PyObject* self, PyObject* tensor) {
  return py_on_tensor(self, tensor, rabbet_network_unmark_output);
}

static PyObject* py_network_remove(PyObject* self, PyObject* tensor) {
  return py_on_tensor(self, tensor, rabbet_network_remove_tensor);
}

typedef size_t (*py_count_t)(const rabbet_network_t*);
static PyObject* py_network_count(PyObject* self, py_count_t count) {
  RABBET_PY_HOLD(self);
  rabbet_network_t* network = py_network(self);
  return network ? PyLong_FromSize_t(count(network)) : NULL;
}

static PyObject* py_network_input_count(PyObject* self, PyObject* none) {
  (void)none;
  return py_network_count(self, rabbet_network_input_count);
}

static PyObject* py_network_output_count(PyObject* self, PyObject* none) {
  (void)none;
  return py_network_count(self, rabbet_network_output_count);
}

static PyObject* py_network_layer_count(PyObject* self, PyObject* none) {
  (void)none;
  return py_network_count(self, rabbet_network_layer_count);
}

typedef rabbet_tensor_t* (*py_tensor_at_t)(const rabbet_network_t*, size_t);
static PyObject* py_network_tensor_at(PyObject* self, PyObject* index,
                                      py_tensor_at_t at) {
  RABBET_PY_HOLD(self);
  rabbet_network_t* network = py_network(self);
  size_t i = 0;
  if (!network || rabbet_py_to_index(index, "index", &i)) return NULL;
  return rabbet_py_wrap_tensor(at(network, i), self);
}

static PyObject* py_network_input(PyObject* self, PyObject* index) {
  return py_network_tensor_at(self, index, rabbet_network_input);
}

static PyObject* py_network_output(PyObject* self, PyObject* index) {
  return py_network_tensor_at(self, index, rabbet_network_output);
}

static PyObject* py_network_layer(PyObject* self, PyObject* index) {
  RABBET_PY_HOLD(self);
  rabbet_network_t* network = py_network(self);
  size_t i = 0;
  if (!network || rabbet_py_to_index(index, "index", &i)) return NULL;
  return rabbet_py_wrap_layer(rabbet_network_layer(network, i), self);
}

static PyObject* py_network_validate(PyObject* self, PyObject* none) {
  RABBET_PY_HOLD(self);
  (void)none;
  rabbet_network_t* network = py_network(self);
  if (!network) return NULL;
  return rabbet_py_none_or_raise(rabbet_network_validate(network));
}

static PyObject* py_network_set_plugin_kinds(PyObject* self, PyObject* kinds) {
  RABBET_PY_HOLD(self);
  if (rabbet_py_check_idle(self, "network")) return NULL;
  rabbet_network_t* network = py_network(self);
  unsigned long bits = network ? PyLong_AsUnsignedLong(kinds) : 0;
  if (!network || PyErr_Occurred()) return NULL;
  return rabbet_py_none_or_raise(
      rabbet_network_set_plugin_kinds(network, (uint32_t)bits));
}

static PyObject* py_network_set_unfused_debug(PyObject* self, PyObject* value) {
  RABBET_PY_HOLD(self);
  if (rabbet_py_check_idle(self, "network")) return NULL;
  rabbet_network_t* network = py_network(self);
  if (!network) return NULL;
  rabbet_network_set_unfused_debug(network, PyObject_IsTrue(value) == 1);
  Py_RETURN_NONE;
}

static PyObject* py_network_find_tensor(PyObject* self, PyObject* object) {
  RABBET_PY_HOLD(self);
  rabbet_network_t* network = py_network(self);
  const char* name = NULL;
  if (!network || rabbet_py_to_text(object, "tensor", false, &name)) {
    return NULL;
  }
  return rabbet_py_wrap_tensor(rabbet_network_find_tensor(network, name), self);
}

// Weights by the name that a refitter knows them by.
static PyObject* py_network_find_weights(PyObject* self, PyObject* object) {
  RABBET_PY_HOLD(self);
  rabbet_network_t* network = py_network(self);
  const char* name = NULL;
  rabbet_tensor_t* tensor = NULL;
  if (!network || rabbet_py_to_text(object, "weights", false, &name)) {
    return NULL;
  }
  rabbet_status_t status = rabbet_network_find_weights(network, name, &tensor);
  if (!rabbet_is_ok(status)) return rabbet_py_raise(status);
  return rabbet_py_wrap_tensor(tensor, self);
}

// ---- Loops and conditionals ------------------------------------------------

// The package knows them by their numbers. Defines py_KIND, which finds one,
// and the getter and setter of its name.
#define PY_REGION(kind)                                                        \
  static rabbet_##kind##_t* py_##kind(PyObject* self, size_t index) {          \
    rabbet_network_t* network = py_network(self);                              \
    rabbet_##kind##_t* region =                                                \
        network ? rabbet_network_##kind(network, index) : NULL;                \
    if (network && !region)                                                    \
      PyErr_Format(PyExc_IndexError, "the network has no " #kind " %zu",       \
                   index);                                                     \
    return region;                                                             \
  }                                                                            \
  static PyObject* py_network_##kind##_name(PyObject* self, PyObject* index) { \
    RABBET_PY_HOLD(self);                                                      \
    size_t i = 0;                                                              \
    if (rabbet_py_to_index(index, #kind, &i)) return NULL;                     \
    rabbet_##kind##_t* region = py_##kind(self, i);                            \
    return region ? rabbet_py_message(rabbet_##kind##_name(region)) : NULL;    \
  }                                                                            \
  static PyObject* py_network_set_##kind##_name(PyObject* self,                \
                                                PyObject* args) {              \
    RABBET_PY_HOLD(self);                                                      \
    if (rabbet_py_check_idle(self, "network")) return NULL;                    \
    Py_ssize_t index = 0;                                                      \
    PyObject* object = NULL;                                                   \
    const char* name = NULL;                                                   \
    if (!PyArg_ParseTuple(args, "nO", &index, &object) ||                      \
        rabbet_py_to_text(object, #kind " name", false, &name))                \
      return NULL;                                                             \
    rabbet_##kind##_t* region = py_##kind(self, (size_t)index);                \
    if (!region) return NULL;                                                  \
    return rabbet_py_none_or_raise(rabbet_##kind##_set_name(region, name));    \
  }
PY_REGION(loop)
PY_REGION(conditional)
#undef PY_REGION

// Its number, by which the package knows it.
static PyObject* py_network_add_loop(PyObject* self, PyObject* none) {
  RABBET_PY_HOLD(self);
  if (rabbet_py_check_idle(self, "network")) return NULL;
  (void)none;
  rabbet_network_t* network = py_network(self);
  if (!network) return NULL;
  rabbet_loop_t* loop = NULL;
  rabbet_status_t status = rabbet_network_add_loop(network, NULL, &loop);
  if (!rabbet_is_ok(status)) return rabbet_py_raise(status);
  return PyLong_FromSize_t(rabbet_network_loop_count(network) - 1);
}

// _add_loop_layer(loop, operator, tensor, number, flag)
static PyObject* py_network_add_loop_layer(PyObject* self, PyObject* args) {
  RABBET_PY_HOLD(self);
  if (rabbet_py_check_idle(self, "network")) return NULL;
  Py_ssize_t index = 0;
  const char* op = NULL;
  PyObject* object = NULL;
  int kind = 0, axis = 0;
  if (!PyArg_ParseTuple(args, "nsOii", &index, &op, &object, &kind, &axis)) {
    return NULL;
  }
  rabbet_loop_t* loop = py_loop(self, (size_t)index);
  rabbet_tensor_t* tensor =
      loop ? rabbet_py_handle_get(object, rabbet_py_types.tensor) : NULL;
  if (!tensor) return NULL;
  rabbet_layer_t* layer = NULL;
  rabbet_status_t status =
      op[0] == 'r'   ? rabbet_loop_add_recurrence(loop, tensor, &layer)
      : op[0] == 't' ? rabbet_loop_add_trip_limit(
                           loop, tensor, (rabbet_trip_limit_t)kind, &layer)
      : op[0] == 'i'
          ? rabbet_loop_add_iterator(loop, tensor, axis, kind != 0, &layer)
          : rabbet_loop_add_output(loop, tensor, (rabbet_loop_output_t)kind,
                                   axis, &layer);
  if (!rabbet_is_ok(status)) return rabbet_py_raise(status);
  return rabbet_py_wrap_layer(layer, self);
}

// Its number, by which the package knows it.
static PyObject* py_network_add_conditional(PyObject* self, PyObject* object) {
  RABBET_PY_HOLD(self);
  if (rabbet_py_check_idle(self, "network")) return NULL;
  rabbet_network_t* network = py_network(self);
  rabbet_conditional_t* conditional = NULL;
  const char* name = NULL;
  if (!network || rabbet_py_to_text(object, "conditional name", false, &name))
    return NULL;
  rabbet_status_t status =
      rabbet_network_add_conditional(network, name, &conditional);
  if (!rabbet_is_ok(status)) return rabbet_py_raise(status);
  return PyLong_FromSize_t(rabbet_network_conditional_count(network) - 1);
}

// _add_conditional_layer(conditional, operator, tensor, other)
static PyObject* py_network_add_conditional_layer(PyObject* self,
                                                  PyObject* args) {
  RABBET_PY_HOLD(self);
  if (rabbet_py_check_idle(self, "network")) return NULL;
  Py_ssize_t index = 0;
  const char* op = NULL;
  PyObject *first = NULL, *second = NULL;
  if (!PyArg_ParseTuple(args, "nsOO", &index, &op, &first, &second))
    return NULL;
  rabbet_conditional_t* conditional = py_conditional(self, (size_t)index);
  rabbet_tensor_t* tensor =
      conditional ? rabbet_py_handle_get(first, rabbet_py_types.tensor) : NULL;
  rabbet_tensor_t* other =
      tensor ? rabbet_py_handle_get(second, rabbet_py_types.tensor) : NULL;
  if (!other) return NULL;
  rabbet_layer_t* layer = NULL;
  rabbet_status_t status =
      op[0] == 'c'
          ? rabbet_conditional_set_condition(conditional, tensor, &layer)
      : op[0] == 'i'
          ? rabbet_conditional_add_input(conditional, tensor, &layer)
          : rabbet_conditional_add_output(conditional, tensor, other, &layer);
  if (!rabbet_is_ok(status)) return rabbet_py_raise(status);
  return rabbet_py_wrap_layer(layer, self);
}

static PyMethodDef py_network_methods[] = {
    {"_add_conditional", py_network_add_conditional, METH_O, NULL},
    {"_conditional_name", py_network_conditional_name, METH_O, NULL},
    {"_set_conditional_name", py_network_set_conditional_name, METH_VARARGS,
     NULL},
    {"_add_conditional_layer", py_network_add_conditional_layer, METH_VARARGS,
     NULL},
    {"_add_loop", py_network_add_loop, METH_NOARGS, NULL},
    {"_loop_name", py_network_loop_name, METH_O, NULL},
    {"_set_loop_name", py_network_set_loop_name, METH_VARARGS, NULL},
    {"_add_loop_layer", py_network_add_loop_layer, METH_VARARGS, NULL},
    {"_find_tensor", py_network_find_tensor, METH_O, NULL},
    {"_find_weights", py_network_find_weights, METH_O, NULL},
    {"_set_unfused_debug", py_network_set_unfused_debug, METH_O, NULL},
    {"_flags", py_network_flags, METH_NOARGS, NULL},
    {"_add_input", py_network_add_input, METH_VARARGS, NULL},
    {"_add_weights", py_network_add_weights, METH_VARARGS, NULL},
    {"_add_layer", py_network_add_layer, METH_VARARGS, NULL},
    {"_add_plugin", py_network_add_plugin, METH_VARARGS, NULL},
    {"_import_part", py_network_import_part, METH_VARARGS, NULL},
    {"_add_instance", py_network_add_instance, METH_VARARGS, NULL},
    {"_set_plugin_kinds", py_network_set_plugin_kinds, METH_O, NULL},
    {"_mark_output", py_network_mark, METH_O, NULL},
    {"_unmark_output", py_network_unmark, METH_O, NULL},
    {"_remove_tensor", py_network_remove, METH_O, NULL},
    {"_input_count", py_network_input_count, METH_NOARGS, NULL},
    {"_output_count", py_network_output_count, METH_NOARGS, NULL},
    {"_layer_count", py_network_layer_count, METH_NOARGS, NULL},
    {"_input", py_network_input, METH_O, NULL},
    {"_output", py_network_output, METH_O, NULL},
    {"_layer", py_network_layer, METH_O, NULL},
    {"_validate", py_network_validate, METH_NOARGS, NULL},
    {"_evaluate", rabbet_py_network_evaluate, METH_O, NULL},
    {"_expressions", rabbet_py_network_expressions, METH_NOARGS, NULL},
    {"_copy_empty", rabbet_py_network_copy_empty, METH_NOARGS, NULL},
    {"_copy_source", rabbet_py_network_copy_source, METH_O, NULL},
    {"_copy_layer", rabbet_py_network_copy_layer, METH_VARARGS, NULL},
    {NULL},
};

static PyGetSetDef py_network_getset[] = {
    {"name", py_network_name, py_network_set_name, "Name of the network.",
     NULL},
    {NULL},
};

RABBET_PY_HANDLE_SPEC(py_network, "Network", 0, {Py_tp_new, py_network_new},
                      {Py_tp_getset, py_network_getset});

int rabbet_py_add_network(PyObject* module) {
  return rabbet_py_add_type(module, "Network", &py_network_spec,
                            &rabbet_py_types.network);
}
