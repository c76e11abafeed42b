// Parts of a network made again in another one, for rabbet.parallel.
#include "network/network.h"
#include "python/src/rabbet_py.h"

static void py_release_network(void* pointer) {
  rabbet_network_release(pointer);
}

// _copy_empty() -> a network of the same class, which keeps this one alive.
PyObject* rabbet_py_network_copy_empty(PyObject* self, PyObject* none) {
  RABBET_PY_HOLD(self);
  (void)none;
  rabbet_network_t* like = rabbet_py_handle_get(self, rabbet_py_types.network);
  if (!like) return NULL;
  rabbet_network_t* network = NULL;
  rabbet_status_t status =
      rabbet_network_copy_empty(like, rabbet_allocator_system(), &network);
  if (!rabbet_is_ok(status)) return rabbet_py_raise(status);
  return rabbet_py_guarded(
      rabbet_py_handle_new(Py_TYPE(self), network, self, py_release_network));
}

// _copy_source(tensor of the other network) -> input or weights
PyObject* rabbet_py_network_copy_source(PyObject* self, PyObject* object) {
  RABBET_PY_HOLD(self);
  if (rabbet_py_check_idle(self, "network")) return NULL;
  rabbet_network_t* network =
      rabbet_py_handle_get(self, rabbet_py_types.network);
  const rabbet_tensor_t* like =
      network ? rabbet_py_handle_get(object, rabbet_py_types.tensor) : NULL;
  if (!like) return NULL;
  rabbet_tensor_t* tensor = NULL;
  rabbet_status_t status = rabbet_network_copy_source(network, like, &tensor);
  if (!rabbet_is_ok(status)) return rabbet_py_raise(status);
  return rabbet_py_wrap_tensor(tensor, self);
}

// _copy_layer(layer of the other network, prefix of names, inputs) -> layer
PyObject* rabbet_py_network_copy_layer(PyObject* self, PyObject* args) {
  RABBET_PY_HOLD(self);
  if (rabbet_py_check_idle(self, "network")) return NULL;
  PyObject *object = NULL, *inputs = NULL;
  const char* prefix = NULL;
  rabbet_network_t* network =
      rabbet_py_handle_get(self, rabbet_py_types.network);
  if (!network || !PyArg_ParseTuple(args, "OsO", &object, &prefix, &inputs))
    return NULL;
  const rabbet_layer_t* like =
      rabbet_py_handle_get(object, rabbet_py_types.layer);
  rabbet_tensor_t** tensors = NULL;
  size_t count = 0;
  if (!like || rabbet_py_to_tensors(inputs, &tensors, &count)) return NULL;
  if (count != like->input_count) {
    PyMem_Free(tensors);
    PyErr_Format(PyExc_ValueError, "layer '%s': %zu inputs given, it has %zu",
                 like->name, count, like->input_count);
    return NULL;
  }
  rabbet_layer_t* layer = NULL;
  rabbet_status_t status =
      rabbet_network_copy_layer(network, like, prefix, tensors, &layer);
  PyMem_Free(tensors);
  if (rabbet_is_ok(status))
    status = rabbet_network_copy_boundary(layer, like, prefix);
  if (!rabbet_is_ok(status)) return rabbet_py_raise(status);
  return rabbet_py_wrap_layer(layer, self);
}

// ---- Extents and values as products ----------------------------------------

// (factor, (numbers of expressions, sorted)): equal tuples are equal numbers.
static PyObject* py_product(const rabbet_expr_graph_t* graph,
                            rabbet_expr_t expr) {
  rabbet_expr_t open[64] = {expr};
  size_t count = 1;
  int64_t factor = 1;
  PyObject* parts = PyList_New(0);
  while (parts && count > 0) {
    const rabbet_expr_t at = open[--count];
    const rabbet_expr_node_t* node = rabbet_expr_node(graph, at);
    int64_t value = 0;
    if (rabbet_expr_is_constant(graph, at, &value)) {
      factor *= value;
    } else if (node->op == RABBET_EXPR_PROD && count + 2 <= 64) {
      open[count++] = node->a;
      open[count++] = node->b;
    } else {
      PyObject* number = PyLong_FromLong(at);
      if (!number || PyList_Append(parts, number) < 0) Py_CLEAR(parts);
      Py_XDECREF(number);
    }
  }
  if (parts && PyList_Sort(parts) < 0) Py_CLEAR(parts);
  PyObject* atoms = parts ? PyList_AsTuple(parts) : NULL;
  Py_XDECREF(parts);
  return atoms ? Py_BuildValue("(LN)", (long long)factor, atoms) : NULL;
}

static PyObject* py_products(const rabbet_expr_graph_t* graph,
                             const rabbet_expr_t* exprs, size_t count) {
  PyObject* list = PyList_New((Py_ssize_t)count);
  for (size_t i = 0; list && i < count; ++i) {
    PyObject* item = py_product(graph, exprs[i]);
    if (!item || PyList_SetItem(list, (Py_ssize_t)i, item) < 0) Py_CLEAR(list);
  }
  return list;
}

// The extents of an inferred tensor.
PyObject* rabbet_py_tensor_extents(PyObject* self, PyObject* none) {
  RABBET_PY_HOLD(rabbet_py_network_of(self));
  (void)none;
  rabbet_tensor_t* tensor = rabbet_py_pointer(self);
  rabbet_dims_t dims;  // infers the shape
  rabbet_status_t status = rabbet_tensor_dims(tensor, &dims);
  if (!rabbet_is_ok(status)) return rabbet_py_raise(status);
  return py_products(tensor->network->graph, tensor->shape.d,
                     (size_t)tensor->shape.rank);
}

// The elements of a tensor whose values are known as expressions, or None.
PyObject* rabbet_py_tensor_values(PyObject* self, PyObject* none) {
  RABBET_PY_HOLD(rabbet_py_network_of(self));
  (void)none;
  rabbet_tensor_t* tensor = rabbet_py_pointer(self);
  rabbet_dims_t dims;
  rabbet_status_t status = rabbet_tensor_dims(tensor, &dims);
  if (!rabbet_is_ok(status)) return rabbet_py_raise(status);
  if (!tensor->values || tensor->denominators) Py_RETURN_NONE;
  return py_products(tensor->network->graph, tensor->values,
                     tensor->value_count);
}

// _evaluate(numbers) -> the value of each expression of the network, None where
// it has none; symbol i is numbers[i % their count].
PyObject* rabbet_py_network_evaluate(PyObject* self, PyObject* numbers) {
  RABBET_PY_HOLD(self);
  rabbet_network_t* network =
      rabbet_py_handle_get(self, rabbet_py_types.network);
  Py_ssize_t given = network ? PyList_Size(numbers) : -1;
  if (given < 1) return NULL;
  const rabbet_expr_graph_t* graph = network->graph;
  size_t symbols = graph ? rabbet_expr_symbol_count(graph) : 0;
  size_t nodes = graph ? rabbet_expr_node_count(graph) : 0;
  int64_t* values = PyMem_Calloc(symbols + nodes + 1, sizeof(*values));
  bool* valid = PyMem_Calloc(nodes + 1, sizeof(*valid));
  PyObject* list = values && valid ? PyList_New((Py_ssize_t)nodes) : NULL;
  if (!values || !valid) PyErr_NoMemory();
  for (size_t i = 0; list && i < symbols; ++i) {
    PyObject* item = PyList_GetItem(numbers, (Py_ssize_t)i % given);
    if (rabbet_py_to_int64(item, "number", &values[i])) Py_CLEAR(list);
  }
  if (list && graph) {
    rabbet_status_t status =
        rabbet_expr_evaluate(graph, values, values + symbols, valid);
    if (!rabbet_is_ok(status)) {
      rabbet_py_raise(status);
      Py_CLEAR(list);
    }
  }
  for (size_t i = 0; list && i < nodes; ++i) {
    PyObject* item = valid[i] ? PyLong_FromLongLong(values[symbols + i])
                              : Py_NewRef(Py_None);
    if (!item || PyList_SetItem(list, (Py_ssize_t)i, item) < 0) Py_CLEAR(list);
  }
  PyMem_Free(values);
  PyMem_Free(valid);
  return list;
}

// "sum"
static const char* const py_expression_names[] = {
    [RABBET_EXPR_SUM] = "sum",           [RABBET_EXPR_PROD] = "prod",
    [RABBET_EXPR_MAX] = "max",           [RABBET_EXPR_MIN] = "min",
    [RABBET_EXPR_SUB] = "sub",           [RABBET_EXPR_EQUAL] = "equal",
    [RABBET_EXPR_LESS] = "less",         [RABBET_EXPR_FLOOR_DIV] = "floor_div",
    [RABBET_EXPR_CEIL_DIV] = "ceil_div", [RABBET_EXPR_CONSTANT] = "constant",
    [RABBET_EXPR_SYMBOL] = "symbol",     [RABBET_EXPR_BROADCAST] = "broadcast",
};

static PyObject* py_expression(const rabbet_network_t* network,
                               rabbet_expr_t expr) {
  const rabbet_expr_node_t* node = rabbet_expr_node(network->graph, expr);
  const char* name = py_expression_names[node->op];
  if (node->op == RABBET_EXPR_CONSTANT)
    return Py_BuildValue("(sL)", name, (long long)node->value);
  if (node->op != RABBET_EXPR_SYMBOL)
    return Py_BuildValue("(sii)", name, node->a, node->b);
  const rabbet_symbol_t* symbol =
      rabbet_expr_symbol(network->graph, (size_t)node->a);
  const rabbet_tensor_t* tensor = network->tensors.data[(size_t)symbol->tensor];
  if (tensor->kind != RABBET_TENSOR_INPUT)
    return Py_BuildValue("(sOOi)", name, Py_None, Py_None, 0);
  return Py_BuildValue("(sssi)", name,
                       symbol->kind == RABBET_SYMBOL_DIM ? "extent" : "value",
                       tensor->name, symbol->index);
}

// _expressions() -> each expression of the network: ("constant", number),
// ("symbol", "extent" or "value", input, index), or (operation, a, b) of two
// others. Symbols that no input tells have None in the place of an input.
PyObject* rabbet_py_network_expressions(PyObject* self, PyObject* none) {
  RABBET_PY_HOLD(self);
  (void)none;
  rabbet_network_t* network =
      rabbet_py_handle_get(self, rabbet_py_types.network);
  if (!network) return NULL;
  size_t count = network->graph ? rabbet_expr_node_count(network->graph) : 0;
  PyObject* list = PyList_New((Py_ssize_t)count);
  for (size_t i = 0; list && i < count; ++i) {
    PyObject* item = py_expression(network, (rabbet_expr_t)i);
    if (!item || PyList_SetItem(list, (Py_ssize_t)i, item) < 0) Py_CLEAR(list);
  }
  return list;
}

// (DataType, address, bytes) of a constant's data, which its network keeps, or
// None.
PyObject* rabbet_py_tensor_weights_at(PyObject* self, PyObject* none) {
  RABBET_PY_HOLD(rabbet_py_network_of(self));
  (void)none;
  rabbet_weights_t weights;
  if (!rabbet_tensor_weights(rabbet_py_pointer(self), &weights)) Py_RETURN_NONE;
  size_t bits = (size_t)rabbet_dtype_bits(weights.dtype);
  return Py_BuildValue("(NKn)", rabbet_py_dtype(weights.dtype),
                       (unsigned long long)(uintptr_t)weights.data,
                       (Py_ssize_t)(((size_t)weights.count * bits + 7) / 8));
}

// The next value of a recurrence, or None.
PyObject* rabbet_py_layer_next(PyObject* self, PyObject* none) {
  RABBET_PY_HOLD(rabbet_py_network_of(self));
  (void)none;
  const rabbet_layer_t* layer = rabbet_py_pointer(self);
  return rabbet_py_wrap_tensor(layer->next, rabbet_py_network_of(self));
}
