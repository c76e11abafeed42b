// A plugin definition in Python as a creator of the C interface.
//
// The definition object has name, namespace, version, origin, fields,
// shape_inputs, input_count and create(attrs, layer name, phase), which gives
// an instance (plugin_adapter.h says what that has). Everything here runs
// during builds and loads only; plugin_call.c is what runs often.
#include "python/src/plugin_adapter.h"

#include <string.h>

// ---- Describing outputs ----------------------------------------------------

PyObject* rabbet_py_dim_tuple(const rabbet_dim_t* dims, size_t count) {
  PyObject* tuple = PyTuple_New((Py_ssize_t)count);
  for (size_t i = 0; tuple && i < count; ++i) {
    PyObject* item = PyLong_FromLong(dims[i]);
    if (!item || PyTuple_SetItem(tuple, (Py_ssize_t)i, item) < 0) {
      Py_CLEAR(tuple);
    }
  }
  return tuple;
}

// [(DataType, dims, values | None)]
static PyObject* py_described_inputs(const rabbet_plugin_input_t* inputs,
                                     size_t count) {
  PyObject* list = PyList_New((Py_ssize_t)count);
  for (size_t i = 0; list && i < count; ++i) {
    const rabbet_plugin_input_t* input = &inputs[i];
    PyObject* values =
        input->values ? rabbet_py_dim_tuple(input->values, input->value_count)
                      : Py_NewRef(Py_None);
    PyObject* item = Py_BuildValue(
        "(NNN)", rabbet_py_dtype(input->dtype),
        rabbet_py_dim_tuple(input->dims, (size_t)input->rank), values);
    if (!item || PyList_SetItem(list, (Py_ssize_t)i, item) < 0) Py_CLEAR(list);
  }
  return list;
}

// One (dtype, dims, aliased input, is size tensor) of what `describe` returned.
static int py_read_output(PyObject* item, rabbet_plugin_output_t* output) {
  int dtype = 0, aliased = -1, is_size = 0;
  PyObject* dims_object = NULL;
  rabbet_dims_t dims;
  if (!PyArg_ParseTuple(item, "iOip", &dtype, &dims_object, &aliased,
                        &is_size) ||
      rabbet_py_to_dims(dims_object, "output shape", &dims)) {
    return -1;
  }
  output->dtype = (rabbet_dtype_t)dtype;
  output->rank = dims.rank;
  for (int32_t i = 0; i < dims.rank; ++i) {
    output->dims[i] = (rabbet_dim_t)dims.d[i];
  }
  output->aliased_input = aliased;
  output->is_size_tensor = is_size != 0;
  return 0;
}

static int py_read_outputs(PyObject* list, int32_t count,
                           rabbet_plugin_output_t* outputs) {
  for (int32_t i = 0; i < count; ++i) {
    PyObject* item = PySequence_GetItem(list, i);
    int failed = item ? py_read_output(item, &outputs[i]) : -1;
    Py_XDECREF(item);
    if (failed) return -1;
  }
  return 0;
}

static rabbet_status_t py_describe(void* self, rabbet_dim_builder_t* builder,
                                   const rabbet_plugin_input_t* inputs,
                                   size_t input_count,
                                   rabbet_plugin_output_t* outputs) {
  rabbet_py_plugin_t* plugin = self;
  rabbet_status_t status = rabbet_ok();
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject* object =
      rabbet_py_handle_new(rabbet_py_types.dim_builder, builder, NULL, NULL);
  PyObject* list = object ? py_described_inputs(inputs, input_count) : NULL;
  PyObject* result = list ? PyObject_CallMethod(plugin->instance, "describe",
                                                "OO", object, list)
                          : NULL;
  if (result) py_read_outputs(result, plugin->output_count, outputs);
  if (PyErr_Occurred()) status = rabbet_py_status_from_exception();
  // Expressions that were kept can no longer be used.
  if (object) rabbet_py_handle_close(object);
  Py_XDECREF(object);
  Py_XDECREF(list);
  Py_XDECREF(result);
  PyGILState_Release(gil);
  return status;
}

// ---- Combinations and tactics ----------------------------------------------

// [(DataType, TensorFormat, dims, min, opt, max)]
PyObject* rabbet_py_query_tensors(const rabbet_plugin_query_t* query) {
  size_t count = query->input_count + query->output_count;
  PyObject* list = PyList_New((Py_ssize_t)count);
  for (size_t i = 0; list && i < count; ++i) {
    const rabbet_plugin_tensor_t* tensor = &query->tensors[i];
    PyObject* item = Py_BuildValue(
        "(NNNNNN)", rabbet_py_dtype(tensor->dtype),
        rabbet_py_format(tensor->format), rabbet_py_from_dims(&tensor->dims),
        rabbet_py_from_dims(&tensor->min), rabbet_py_from_dims(&tensor->opt),
        rabbet_py_from_dims(&tensor->max));
    if (!item || PyList_SetItem(list, (Py_ssize_t)i, item) < 0) Py_CLEAR(list);
  }
  return list;
}

// A list of the answers, or None as it is given. A new reference.
static PyObject* py_ask(PyObject* instance, const char* method,
                        const rabbet_plugin_query_t* query) {
  PyObject* tensors = rabbet_py_query_tensors(query);
  if (!tensors) return NULL;
  PyObject* answer =
      PyObject_CallMethod(instance, method, "sOn", query->device, tensors,
                          (Py_ssize_t)query->input_count);
  PyObject* list = NULL;
  if (answer && Py_IsNone(answer))
    list = Py_NewRef(answer);
  else if (answer)
    list = PySequence_List(answer);
  Py_XDECREF(answer);
  Py_DECREF(tensors);
  return list;
}

static rabbet_status_t py_add_combination(
    PyObject* item, size_t count, rabbet_plugin_combination_sink_t sink) {
  rabbet_plugin_type_format_t* pairs =
      PyMem_Calloc(count ? count : 1, sizeof(*pairs));
  if (!pairs) PyErr_NoMemory();
  for (size_t i = 0; pairs && i < count; ++i) {
    int dtype = 0, format = 0;
    PyObject* pair = PySequence_GetItem(item, (Py_ssize_t)i);
    if (pair) PyArg_ParseTuple(pair, "ii", &dtype, &format);
    Py_XDECREF(pair);
    if (PyErr_Occurred()) break;
    pairs[i].dtype = (rabbet_dtype_t)dtype;
    pairs[i].format = (rabbet_format_t)format;
  }
  rabbet_status_t status = PyErr_Occurred() ? rabbet_py_status_from_exception()
                                            : sink.add(sink.context, pairs);
  PyMem_Free(pairs);
  return status;
}

static rabbet_status_t py_combinations(void* self,
                                       const rabbet_plugin_query_t* query,
                                       rabbet_plugin_combination_sink_t sink) {
  rabbet_py_plugin_t* plugin = self;
  rabbet_status_t status = rabbet_ok();
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject* list = py_ask(plugin->instance, "combinations", query);
  size_t count = query->input_count + query->output_count;
  for (Py_ssize_t i = 0; list && rabbet_is_ok(status) && i < PyList_Size(list);
       ++i) {
    status = py_add_combination(PyList_GetItem(list, i), count, sink);
  }
  if (!list) status = rabbet_py_status_from_exception();
  Py_XDECREF(list);
  PyGILState_Release(gil);
  return status;
}

static rabbet_status_t py_tactics(void* self,
                                  const rabbet_plugin_query_t* query,
                                  rabbet_plugin_tactic_sink_t sink) {
  rabbet_py_plugin_t* plugin = self;
  rabbet_status_t status = rabbet_ok();
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject* list = py_ask(plugin->instance, "tactics", query);
  if (list && Py_IsNone(list))
    status = sink.add(sink.context, RABBET_PLUGIN_ANY_TACTIC);
  for (Py_ssize_t i = 0; list && PyList_Check(list) && rabbet_is_ok(status) &&
                         i < PyList_Size(list);
       ++i) {
    long tactic = PyLong_AsLong(PyList_GetItem(list, i));
    status = PyErr_Occurred() ? rabbet_py_status_from_exception()
                              : sink.add(sink.context, (int32_t)tactic);
  }
  if (!list) status = rabbet_py_status_from_exception();
  Py_XDECREF(list);
  PyGILState_Release(gil);
  return status;
}

// ---- Attributes that the plugin gives --------------------------------------

// Adds what a method returned: a dict, or None for nothing.
static rabbet_status_t py_add_attrs(PyObject* take_dict,
                                    rabbet_plugin_attr_sink_t sink) {
  rabbet_status_t status = rabbet_ok();
  rabbet_py_attrs_t attrs = {0};
  PyObject* dict = take_dict;
  if (dict && !Py_IsNone(dict)) rabbet_py_to_attrs(dict, &attrs);
  if (PyErr_Occurred()) status = rabbet_py_status_from_exception();
  for (size_t i = 0; rabbet_is_ok(status) && i < attrs.count; ++i) {
    status = sink.add(sink.context, &attrs.attrs[i]);
  }
  rabbet_py_attrs_free(&attrs);
  Py_XDECREF(dict);
  return status;
}

static rabbet_status_t py_timing_key(void* self,
                                     rabbet_plugin_attr_sink_t sink) {
  rabbet_py_plugin_t* plugin = self;
  PyGILState_STATE gil = PyGILState_Ensure();
  rabbet_status_t status = py_add_attrs(
      PyObject_CallMethod(plugin->instance, "timing_key", NULL), sink);
  PyGILState_Release(gil);
  return status;
}

static rabbet_status_t py_serialize(void* self,
                                    const rabbet_plugin_query_t* query,
                                    int32_t tactic,
                                    rabbet_plugin_attr_sink_t sink) {
  rabbet_py_plugin_t* plugin = self;
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject* tensors = rabbet_py_query_tensors(query);
  PyObject* dict =
      tensors ? PyObject_CallMethod(plugin->instance, "serialize", "sOni",
                                    query->device, tensors,
                                    (Py_ssize_t)query->input_count, tactic)
              : NULL;
  rabbet_status_t status = py_add_attrs(dict, sink);
  Py_XDECREF(tensors);
  PyGILState_Release(gil);
  return status;
}

static uint64_t py_shape_inputs(void* self) {
  return ((rabbet_py_plugin_t*)self)->shape_inputs;
}

// Text for the inspector; the object keeps what it gave, as another thread may
// be reading that while this one is given something new.
static const char* py_metadata(void* self) {
  rabbet_py_plugin_t* plugin = self;
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject* text = PyObject_CallMethod(plugin->instance, "metadata", NULL);
  const char* utf8 = NULL;
  if (text && PyUnicode_Check(text)) {
    PyObject* kept =
        PyObject_CallMethod(plugin->metadata, "setdefault", "OO", text, text);
    if (kept) utf8 = PyUnicode_AsUTF8AndSize(kept, NULL);
    Py_XDECREF(kept);
  }
  Py_XDECREF(text);
  PyErr_Clear();  // the interface has no place for it, and the text no effect
  PyGILState_Release(gil);
  return utf8;
}

// ---- Instances and creators ------------------------------------------------

static void py_plugin_destroy(void* self) {
  rabbet_py_plugin_t* plugin = self;
  if (!Py_IsInitialized()) return;
  PyGILState_STATE gil = PyGILState_Ensure();
  Py_XDECREF(plugin->instance);
  Py_XDECREF(plugin->metadata);
  PyMem_Free(plugin);
  PyGILState_Release(gil);
}

static int32_t py_output_count(void* self) {
  return ((rabbet_py_plugin_t*)self)->output_count;
}

// Plugins describe themselves alike; plugin_call.c runs decorated functions,
// and plugin_class.c classes.
#define PY_VTABLE_WITH(...)                                            \
  {                                                                    \
    .struct_size = sizeof(rabbet_plugin_vtable_t),                     \
    .destroy = py_plugin_destroy, .output_count = py_output_count,     \
    .describe = py_describe, .combinations = py_combinations,          \
    .tactics = py_tactics, .timing_key = py_timing_key,                \
    .serialize_chosen = py_serialize, .kinds = rabbet_py_plugin_kinds, \
    .launches = rabbet_py_plugin_launches,                             \
    .release_captured = rabbet_py_plugin_release_captured, __VA_ARGS__ \
  }

static const rabbet_plugin_vtable_t py_vtable =
    PY_VTABLE_WITH(.prepare = rabbet_py_plugin_prepare,
                   .destroy_state = rabbet_py_plugin_destroy_state,
                   .enqueue = rabbet_py_plugin_enqueue,
                   .capture = rabbet_py_plugin_capture,
                   .enqueue_captured = rabbet_py_plugin_enqueue_captured);

static const rabbet_plugin_vtable_t py_class_vtable =
    PY_VTABLE_WITH(.prepare = rabbet_py_class_prepare,
                   .destroy_state = rabbet_py_class_destroy_state,
                   .enqueue = rabbet_py_class_enqueue,
                   .capture = rabbet_py_class_capture,
                   .enqueue_captured = rabbet_py_class_enqueue_captured,
                   .metadata = py_metadata, .shape_inputs = py_shape_inputs);

static int py_instance_int(PyObject* instance, const char* name,
                           int64_t* out_value) {
  PyObject* value = PyObject_GetAttrString(instance, name);
  int failed = value ? rabbet_py_to_int64(value, name, out_value) : -1;
  Py_XDECREF(value);
  return failed;
}

// Takes the instance; NULL with an exception set on failure.
static rabbet_py_plugin_t* py_plugin_new(PyObject* take_instance) {
  if (!take_instance) return NULL;
  rabbet_py_plugin_t* plugin = PyMem_Calloc(1, sizeof(*plugin));
  if (!plugin) PyErr_NoMemory();
  int64_t count = 0, is_class = 0, shape_inputs = 0;
  if (plugin && !py_instance_int(take_instance, "output_count", &count) &&
      !py_instance_int(take_instance, "is_class", &is_class) &&
      !py_instance_int(take_instance, "shape_inputs", &shape_inputs)) {
    plugin->metadata = PyDict_New();
  }
  if (plugin && plugin->metadata) {
    plugin->instance = take_instance;
    plugin->output_count = (int32_t)count;
    plugin->is_class = is_class != 0;
    plugin->shape_inputs = (uint64_t)shape_inputs;
    return plugin;
  }
  if (plugin) Py_XDECREF(plugin->metadata);
  PyMem_Free(plugin);
  Py_DECREF(take_instance);
  return NULL;
}

static rabbet_plugin_instance_t py_as_instance(rabbet_py_plugin_t* plugin) {
  return (rabbet_plugin_instance_t){
      plugin->is_class ? &py_class_vtable : &py_vtable, plugin};
}

static rabbet_status_t py_create(void* user_data,
                                 const rabbet_plugin_create_t* args,
                                 rabbet_plugin_instance_t* out_instance) {
  rabbet_status_t status = rabbet_ok();
  rabbet_py_plugin_t* plugin = NULL;
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject* attrs = rabbet_py_from_attrs(args->attrs, args->attr_count);
  if (attrs) {
    plugin = py_plugin_new(PyObject_CallMethod(
        user_data, "create", "OziKK", attrs, args->layer_name, (int)args->phase,
        (unsigned long long)args->shape_inputs,
        (unsigned long long)args->absent_inputs));
    Py_DECREF(attrs);
  }
  if (!plugin) status = rabbet_py_status_from_exception();
  PyGILState_Release(gil);
  if (plugin) *out_instance = py_as_instance(plugin);
  return status;
}

// ---- Instances that Python made itself -------------------------------------

static rabbet_status_t py_cannot_create(
    void* user_data, const rabbet_plugin_create_t* args,
    rabbet_plugin_instance_t* out_instance) {
  (void)user_data;
  *out_instance = (rabbet_plugin_instance_t){NULL, NULL};
  return RABBET_STATUS(RABBET_STATUS_FAILED_PRECONDITION,
                       "layer '%s': its plugin has no creator",
                       args->layer_name);
}

rabbet_status_t rabbet_py_add_instance(
    rabbet_network_t* network, PyObject* instance, rabbet_plugin_creator_t* key,
    const char* name, rabbet_tensor_t* const* inputs, size_t count,
    rabbet_layer_t** out_layer) {
  *out_layer = NULL;
  rabbet_py_plugin_t* plugin = py_plugin_new(Py_NewRef(instance));
  if (!plugin) return rabbet_py_status_from_exception();
  key->struct_size = sizeof(*key);
  key->create = py_cannot_create;
  key->input_count = -1;
  rabbet_status_t status = rabbet_network_add_plugin_instance(
      network, key, py_as_instance(plugin), name, inputs, count, out_layer);
  if (!rabbet_is_ok(status)) py_plugin_destroy(plugin);
  return status;
}

PyObject* rabbet_py_layer_instance(const rabbet_layer_t* layer) {
  rabbet_plugin_instance_t instance = rabbet_layer_plugin_instance(layer);
  bool ours =
      instance.vtable == &py_vtable || instance.vtable == &py_class_vtable;
  return ours ? ((const rabbet_py_plugin_t*)instance.self)->instance : NULL;
}

static void py_definition_release(void* user_data) {
  if (!Py_IsInitialized()) return;
  PyGILState_STATE gil = PyGILState_Ensure();
  Py_DECREF((PyObject*)user_data);
  PyGILState_Release(gil);
}

// [(name, type, required)] to fields; names are borrowed from the list.
static int py_read_fields(PyObject* list, rabbet_plugin_field_t* fields,
                          size_t count) {
  for (size_t i = 0; i < count; ++i) {
    int type = 0, required = 0;
    PyObject* item = PyList_GetItem(list, (Py_ssize_t)i);
    if (!item ||
        !PyArg_ParseTuple(item, "sip", &fields[i].name, &type, &required)) {
      return -1;
    }
    fields[i].type = (rabbet_attr_type_t)type;
    fields[i].dtype = RABBET_DTYPE_NONE;
    fields[i].required = required != 0;
  }
  return 0;
}

// register_plugin(definition, name, version, namespace, origin, fields, shape
// inputs as bits, number of inputs[, inputs that may be absent as bits])
static PyObject* py_register(PyObject* module, PyObject* args) {
  (void)module;
  PyObject *definition, *list;
  unsigned long long shape_inputs = 0, optional_inputs = 0;
  rabbet_plugin_creator_t creator = {
      .struct_size = sizeof(creator),
      .destroy = py_definition_release,
      .create = py_create,
  };
  if (!PyArg_ParseTuple(args, "OssssO!Ki|K", &definition, &creator.name,
                        &creator.version, &creator.plugin_namespace,
                        &creator.origin, &PyList_Type, &list, &shape_inputs,
                        &creator.input_count, &optional_inputs)) {
    return NULL;
  }
  creator.user_data = definition;
  creator.optional_inputs = optional_inputs;
  creator.shape_inputs = shape_inputs;
  creator.field_count = (size_t)PyList_Size(list);
  creator.field_size = sizeof(rabbet_plugin_field_t);
  rabbet_plugin_field_t* fields =
      PyMem_Calloc(creator.field_count + 1, sizeof(*fields));
  if (!fields) return PyErr_NoMemory();
  creator.fields = fields;
  PyObject* result = NULL;
  if (!py_read_fields(list, fields, creator.field_count)) {
    Py_INCREF(definition);
    rabbet_status_t status = rabbet_plugin_register(&creator);
    if (!rabbet_is_ok(status)) Py_DECREF(definition);
    result = rabbet_py_none_or_raise(status);
  }
  PyMem_Free(fields);
  return result;
}

static PyObject* py_deregister(PyObject* module, PyObject* args) {
  (void)module;
  const char *name = NULL, *version = NULL, *space = NULL;
  if (!PyArg_ParseTuple(args, "sss", &name, &version, &space)) return NULL;
  return rabbet_py_none_or_raise(
      rabbet_plugin_deregister(name, version, space));
}

static rabbet_status_t py_visit(void* context,
                                const rabbet_plugin_creator_t* creator) {
  PyObject* item = Py_BuildValue("(ssss)", creator->name, creator->version,
                                 creator->plugin_namespace, creator->origin);
  if (!item || PyList_Append(context, item) < 0) {
    Py_XDECREF(item);
    return rabbet_py_status_from_exception();
  }
  Py_DECREF(item);
  return rabbet_ok();
}

// [(name, version, namespace, origin)] of everything registered.
static PyObject* py_plugins(PyObject* module, PyObject* none) {
  (void)module, (void)none;
  PyObject* list = PyList_New(0);
  rabbet_status_t status =
      list ? rabbet_plugin_visit(py_visit, list) : rabbet_ok();
  if (rabbet_is_ok(status)) return list;
  Py_XDECREF(list);
  return rabbet_py_raise(status);
}

// [(name, type, required)] of a registered creator.
static PyObject* py_fields(PyObject* module, PyObject* args) {
  (void)module;
  const char *name = NULL, *version = NULL, *space = NULL;
  if (!PyArg_ParseTuple(args, "sss", &name, &version, &space)) return NULL;
  const rabbet_plugin_creator_t* creator = NULL;
  rabbet_status_t status = rabbet_plugin_find(name, version, space, &creator);
  if (!rabbet_is_ok(status)) return rabbet_py_raise(status);
  PyObject* list = PyList_New((Py_ssize_t)creator->field_count);
  for (size_t i = 0; list && i < creator->field_count; ++i) {
    const rabbet_plugin_field_t* field = &creator->fields[i];
    PyObject* item = Py_BuildValue("(siN)", field->name, (int)field->type,
                                   PyBool_FromLong(field->required));
    if (!item || PyList_SetItem(list, (Py_ssize_t)i, item) < 0) Py_CLEAR(list);
  }
  rabbet_plugin_creator_release(creator);
  return list;
}

static PyObject* py_load_library(PyObject* module, PyObject* path) {
  (void)module;
  PyObject* name = NULL;
  if (!PyUnicode_FSConverter(path, &name)) return NULL;
  rabbet_status_t status = rabbet_plugin_load_library(PyBytes_AsString(name));
  Py_DECREF(name);
  return rabbet_py_none_or_raise(status);
}

static PyMethodDef py_plugin_functions[] = {
    {"register_plugin", py_register, METH_VARARGS, NULL},
    {"deregister_plugin", py_deregister, METH_VARARGS, NULL},
    {"plugins", py_plugins, METH_NOARGS, NULL},
    {"plugin_fields", py_fields, METH_VARARGS, NULL},
    {"load_plugin_library", py_load_library, METH_O, NULL},
    {NULL},
};

int rabbet_py_add_plugin(PyObject* module) {
  return PyModule_AddFunctions(module, py_plugin_functions);
}
