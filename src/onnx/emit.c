#include "onnx/emit.h"

#include <assert.h>
#include <string.h>

#include "ops/evaluate.h"

// ---- Known properties of a tensor ------------------------------------------

// Bodies of loops and branches may give a list where a tensor belongs.
static bool onnx_is_tensor(rabbet_onnx_node_t* node, const rabbet_tensor_t* x) {
  if (rabbet_onnx_ok(node) && rabbet_onnx_list(x))
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "a value that must be a tensor is a sequence or an "
                     "optional value");
  return rabbet_onnx_ok(node) && x;
}

rabbet_dims_t rabbet_onnx_dims(rabbet_onnx_node_t* node, rabbet_tensor_t* x) {
  rabbet_dims_t dims = {0};
  if (!onnx_is_tensor(node, x)) return dims;
  rabbet_onnx_fail(node, rabbet_tensor_dims(x, &dims));
  if (!rabbet_onnx_ok(node)) return (rabbet_dims_t){0};
  if (dims.rank < 0) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "the rank of '%s' is not known", rabbet_tensor_name(x));
    return (rabbet_dims_t){0};
  }
  return dims;
}

int rabbet_onnx_rank(rabbet_onnx_node_t* node, rabbet_tensor_t* x) {
  return rabbet_onnx_dims(node, x).rank;
}

void rabbet_onnx_check_rank(rabbet_onnx_node_t* node, const char* operand,
                            rabbet_tensor_t* x, int rank) {
  int found = rabbet_onnx_rank(node, x);
  if (!rabbet_onnx_ok(node) || !x || found == rank) return;
  RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                   "%s ('%s') has rank %d; expected %d", operand,
                   rabbet_tensor_name(x), found, rank);
}

rabbet_tensor_t* rabbet_onnx_required(rabbet_onnx_node_t* node, size_t index) {
  rabbet_tensor_t* x = rabbet_onnx_input(node, index);
  if (!x) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "input %zu is missing", index);
  }
  return x;
}

rabbet_dtype_t rabbet_onnx_dtype_of(rabbet_onnx_node_t* node,
                                    rabbet_tensor_t* x) {
  rabbet_dtype_t dtype = RABBET_DTYPE_FLOAT;
  if (!onnx_is_tensor(node, x)) return dtype;
  rabbet_onnx_fail(node, rabbet_tensor_dtype(x, &dtype));
  return dtype;
}

bool rabbet_onnx_is_float(rabbet_onnx_node_t* node, rabbet_tensor_t* x) {
  return rabbet_dtype_is_float(rabbet_onnx_dtype_of(node, x));
}

rabbet_status_t rabbet_onnx_node_dtype(const rabbet_onnx_node_t* node,
                                       int32_t onnx_type,
                                       rabbet_dtype_t* out_dtype,
                                       bool* out_narrowed) {
  return rabbet_onnx_dtype(node->importer->storage, onnx_type, out_dtype,
                           out_narrowed);
}

bool rabbet_onnx_is_constant(rabbet_onnx_node_t* node, rabbet_tensor_t* x,
                             rabbet_onnx_constant_t* out_constant) {
  *out_constant = (rabbet_onnx_constant_t){0};
  if (!rabbet_onnx_ok(node) || !x) return false;
  if (!rabbet_tensor_weights(x, &out_constant->weights)) return false;
  out_constant->dims = rabbet_onnx_dims(node, x);
  return rabbet_onnx_ok(node);
}

static int64_t* onnx_ints_room(rabbet_onnx_node_t* node, size_t count) {
  void* room = NULL;
  rabbet_onnx_fail(node,
                   rabbet_arena_allocate_array(&node->importer->arena, count,
                                               sizeof(int64_t), &room));
  return rabbet_onnx_ok(node) ? room : NULL;
}

// Elements that the network follows as expressions, if all are constant; a
// vector without elements has none to follow.
static rabbet_onnx_ints_t onnx_followed_ints(rabbet_onnx_node_t* node,
                                             rabbet_tensor_t* x) {
  rabbet_onnx_ints_t none = {0};
  rabbet_dims_t dims = rabbet_onnx_dims(node, x);
  if (dims.rank == 1 && dims.d[0] == 0) return (rabbet_onnx_ints_t){true, 0, 0};
  rabbet_onnx_fail(node, rabbet_network_infer(node->importer->network));
  if (!rabbet_onnx_ok(node) || !x->values || x->denominators) return none;
  int64_t* data = onnx_ints_room(node, x->value_count);
  if (!data) return none;
  for (size_t i = 0; i < x->value_count; ++i) {
    if (!rabbet_expr_is_constant(node->importer->network->graph, x->values[i],
                                 &data[i])) {
      return none;
    }
  }
  return (rabbet_onnx_ints_t){true, x->value_count, data};
}

rabbet_onnx_ints_t rabbet_onnx_try_ints(rabbet_onnx_node_t* node,
                                        rabbet_tensor_t* x) {
  rabbet_onnx_ints_t none = {0};
  rabbet_onnx_constant_t constant;
  if (!rabbet_onnx_is_constant(node, x, &constant)) {
    if (!rabbet_onnx_ok(node) || !x) return none;
    return onnx_followed_ints(node, x);
  }
  rabbet_dtype_t dtype = constant.weights.dtype;
  if (!rabbet_dtype_is_integer(dtype) && dtype != RABBET_DTYPE_BOOL) {
    return none;
  }
  size_t count = (size_t)constant.weights.count;
  int64_t* data = onnx_ints_room(node, count);
  if (!data) return none;
  for (size_t i = 0; i < count; ++i) {
    data[i] = rabbet_load_int64(dtype, constant.weights.data, (int64_t)i);
  }
  return (rabbet_onnx_ints_t){true, count, data};
}

rabbet_onnx_ints_t rabbet_onnx_constant_ints(rabbet_onnx_node_t* node,
                                             const char* operand,
                                             rabbet_tensor_t* x) {
  rabbet_onnx_ints_t ints = rabbet_onnx_try_ints(node, x);
  if (rabbet_onnx_ok(node) && !ints.present) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "%s ('%s') must be constant integers, known when the "
                     "model is imported",
                     operand, x ? rabbet_tensor_name(x) : "");
  }
  return ints;
}

bool rabbet_onnx_constant_number(rabbet_onnx_node_t* node, rabbet_tensor_t* x,
                                 double* out_value) {
  rabbet_onnx_constant_t constant;
  *out_value = 0;
  if (!rabbet_onnx_is_constant(node, x, &constant) ||
      constant.weights.count != 1) {
    return false;
  }
  *out_value =
      rabbet_load_double(constant.weights.dtype, constant.weights.data, 0);
  return true;
}

// ---- Constants -------------------------------------------------------------

rabbet_tensor_t* rabbet_onnx_weights(rabbet_onnx_node_t* node,
                                     rabbet_dtype_t dtype, const void* data,
                                     const rabbet_dims_t* dims) {
  if (!rabbet_onnx_ok(node)) return NULL;
  rabbet_weights_t weights = {.dtype = dtype, .data = data};
  rabbet_onnx_fail(node, rabbet_dims_count(dims, &weights.count));
  if (!rabbet_onnx_ok(node)) return NULL;
  rabbet_tensor_t* tensor = NULL;
  rabbet_onnx_fail(
      node, rabbet_network_add_weights(node->importer->network, NULL, weights,
                                       dims, false, &tensor));
  return tensor;
}

void* rabbet_onnx_weights_room(rabbet_onnx_node_t* node, rabbet_dtype_t dtype,
                               const rabbet_dims_t* dims, int64_t* out_count) {
  *out_count = 0;
  if (!rabbet_onnx_ok(node)) return NULL;
  size_t bytes = 0;
  rabbet_onnx_fail(
      node, rabbet_tensor_bytes(dtype, RABBET_FORMAT_LINEAR, dims, &bytes));
  if (!rabbet_onnx_ok(node)) return NULL;
  rabbet_onnx_fail(node, rabbet_dims_count(dims, out_count));
  if (rabbet_onnx_ok(node))
    rabbet_onnx_fail(node, rabbet_onnx_spend_bytes(node->importer, bytes));
  if (!rabbet_onnx_ok(node)) return NULL;
  void* room = NULL;
  rabbet_onnx_fail(node, rabbet_arena_allocate(&node->importer->storage->arena,
                                               bytes, &room));
  return rabbet_onnx_ok(node) ? room : NULL;
}

rabbet_tensor_t* rabbet_onnx_number(rabbet_onnx_node_t* node,
                                    rabbet_dtype_t dtype, int rank,
                                    double value) {
  assert(rank >= 0 && rank <= RABBET_MAX_RANK);
  rabbet_dims_t dims = {.rank = rank};
  for (int i = 0; i < rank; ++i) {
    dims.d[i] = 1;
  }
  int64_t count;
  void* data = rabbet_onnx_weights_room(node, dtype, &dims, &count);
  if (!data) return NULL;
  rabbet_store_double(dtype, data, 0, value);
  return rabbet_onnx_weights(node, dtype, data, &dims);
}

rabbet_tensor_t* rabbet_onnx_int64s(rabbet_onnx_node_t* node,
                                    const int64_t* values, size_t count) {
  rabbet_dims_t dims = {.rank = 1, .d = {(int64_t)count}};
  int64_t room;
  void* data = rabbet_onnx_weights_room(node, RABBET_DTYPE_INT64, &dims, &room);
  if (!data) return NULL;
  if (count) memcpy(data, values, count * sizeof(*values));
  return rabbet_onnx_weights(node, RABBET_DTYPE_INT64, data, &dims);
}

// ---- Layers ----------------------------------------------------------------

// The first layer has the node's name; the names of others are numbered.
static const char* onnx_layer_name(rabbet_onnx_node_t* node) {
  assert(node->name);
  const char* name = node->name;
  size_t number = node->layer_count++;
  while (number > 0 && rabbet_onnx_ok(node)) {
    rabbet_onnx_fail(node, rabbet_arena_printf(&node->importer->arena, &name,
                                               "%s.%zu", node->name, number));
    if (!rabbet_onnx_ok(node) ||
        !rabbet_onnx_layer_exists(node->importer, name)) {
      break;
    }
    number = node->layer_count++;
  }
  return name;
}

// ---- Folding ---------------------------------------------------------------

// Constants of up to this many elements are computed at once: later nodes may
// need to know them (lengths, axes, bounds), not just use them.
static const int64_t onnx_fold_elements = 4096;
// This many elements of constants count as one node of the limit.
#define RABBET_ONNX_FOLD_COST 256
// Outputs of a folded operator: the result and a hidden size output.
#define RABBET_ONNX_FOLD_OUTPUTS 2

static bool onnx_can_fold(rabbet_tensor_t* const* inputs, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    rabbet_weights_t weights;
    if (inputs[i] && (!rabbet_tensor_weights(inputs[i], &weights) ||
                      weights.count > onnx_fold_elements)) {
      return false;
    }
  }
  return count > 0;
}

// The result as weights; NULL if it is too large, or if the kernel refuses
// (then the layer is added, and the network reports the error).
static rabbet_tensor_t* onnx_fold_layer(
    rabbet_onnx_node_t* node, const char* op, rabbet_tensor_t* const* inputs,
    size_t input_count, const rabbet_attr_t* attrs, size_t attr_count) {
  assert(input_count > 0);  // onnx_can_fold() was true
  rabbet_view_t* views = NULL;
  int64_t elements = 0;
  for (size_t i = 0; i < input_count; ++i) {
    rabbet_weights_t weights = {0};
    if (inputs[i] && rabbet_tensor_weights(inputs[i], &weights))
      elements += weights.count;
  }
  rabbet_onnx_fail(
      node, rabbet_onnx_spend(node->importer,
                              1 + (uint64_t)elements / RABBET_ONNX_FOLD_COST));
  if (!rabbet_onnx_ok(node)) return NULL;
  rabbet_onnx_fail(
      node, rabbet_arena_allocate_array(&node->importer->arena, input_count,
                                        sizeof(*views), (void**)&views));
  for (size_t i = 0; i < input_count && rabbet_onnx_ok(node); ++i) {
    views[i].dtype = RABBET_DTYPE_NONE;
    rabbet_onnx_constant_t constant;
    if (!inputs[i] || !rabbet_onnx_is_constant(node, inputs[i], &constant)) {
      continue;
    }
    views[i].data = (void*)(uintptr_t)inputs[i]->constant;
    views[i].dtype = constant.weights.dtype;
    views[i].dims = constant.dims;
  }
  if (!rabbet_onnx_ok(node)) return NULL;
  rabbet_allocator_t allocator = node->importer->network->allocator;
  rabbet_view_t outputs[RABBET_ONNX_FOLD_OUTPUTS] = {{0}};
  rabbet_status_t status = rabbet_op_evaluate_small(
      op, attrs, attr_count, views, input_count,
      (size_t)onnx_fold_elements * sizeof(int64_t), allocator, outputs, NULL);
  if (!rabbet_is_ok(status)) {
    bool memory = rabbet_status_code(status) == RABBET_STATUS_OUT_OF_MEMORY;
    rabbet_onnx_fail(node, memory ? status : rabbet_ok());
    if (!memory) rabbet_status_ignore(status);
    return NULL;
  }
  int64_t count = 0;
  const rabbet_view_t output = outputs[0];
  rabbet_onnx_fail(node, rabbet_dims_count(&output.dims, &count));
  rabbet_tensor_t* folded = NULL;
  if (count <= onnx_fold_elements) {
    void* data =
        rabbet_onnx_weights_room(node, output.dtype, &output.dims, &count);
    size_t bytes = (size_t)count * (size_t)rabbet_dtype_bits(output.dtype) / 8;
    if (data && bytes) memcpy(data, output.data, bytes);
    folded = rabbet_onnx_weights(node, output.dtype, data, &output.dims);
  }
  for (size_t i = 0; i < RABBET_ONNX_FOLD_OUTPUTS; ++i)
    rabbet_free_aligned(allocator, outputs[i].data, 64);
  return folded;
}

static rabbet_layer_t* onnx_add_layer(rabbet_onnx_node_t* node, const char* op,
                                      rabbet_tensor_t* const* inputs,
                                      size_t input_count,
                                      const rabbet_attr_t* attrs,
                                      size_t attr_count) {
  const char* name = onnx_layer_name(node);
  for (size_t i = 0; i < input_count; ++i)
    (void)onnx_is_tensor(node, inputs[i]);
  rabbet_onnx_fail(node, rabbet_onnx_spend(node->importer, 1));
  if (!rabbet_onnx_ok(node)) return NULL;
  rabbet_layer_t* layer = NULL;
  rabbet_onnx_fail(
      node, rabbet_network_add_layer(node->importer->network, op, name, inputs,
                                     input_count, attrs, attr_count, &layer));
  if (!rabbet_onnx_ok(node)) return NULL;
  rabbet_onnx_fail(node, rabbet_layer_set_metadata(layer, node->metadata));
  return layer;
}

rabbet_tensor_t* rabbet_onnx_layer(rabbet_onnx_node_t* node, const char* op,
                                   rabbet_tensor_t* const* inputs,
                                   size_t input_count,
                                   const rabbet_attr_t* attrs,
                                   size_t attr_count) {
  if (!rabbet_onnx_ok(node)) return NULL;
  const rabbet_op_t* known = rabbet_op_find(op);
  bool late = known && ((known->flags & RABBET_OP_FOLD_LATE) != 0 ||
                        rabbet_op_shown_outputs(known) != 1 ||
                        known->output_count > RABBET_ONNX_FOLD_OUTPUTS);
  if (!late && onnx_can_fold(inputs, input_count)) {
    rabbet_tensor_t* folded =
        onnx_fold_layer(node, op, inputs, input_count, attrs, attr_count);
    if (folded || !rabbet_onnx_ok(node)) return folded;
  }
  rabbet_layer_t* layer =
      onnx_add_layer(node, op, inputs, input_count, attrs, attr_count);
  return layer ? rabbet_layer_output(layer, 0) : NULL;
}

void rabbet_onnx_layer_outputs(rabbet_onnx_node_t* node, const char* op,
                               rabbet_tensor_t* const* inputs,
                               size_t input_count, const rabbet_attr_t* attrs,
                               size_t attr_count, rabbet_tensor_t** outputs,
                               size_t output_count) {
  rabbet_layer_t* layer =
      rabbet_onnx_ok(node)
          ? onnx_add_layer(node, op, inputs, input_count, attrs, attr_count)
          : NULL;
  for (size_t i = 0; i < output_count; ++i)
    outputs[i] = layer ? rabbet_layer_output(layer, i) : NULL;
}

void rabbet_onnx_assert(rabbet_onnx_node_t* node, rabbet_tensor_t* condition,
                        const char* message) {
  const rabbet_attr_t attr = {.name = "message",
                              .type = RABBET_ATTR_STRING,
                              .data = message,
                              .count = strlen(message)};
  rabbet_onnx_layer_outputs(node, "assertion", &condition, 1, &attr, 1, NULL,
                            0);
}

int64_t rabbet_onnx_enumerator(rabbet_onnx_node_t* node, const char* op,
                               const char* attr, const char* name) {
  const rabbet_op_t* found = rabbet_op_find(op);
  for (size_t i = 0; found && i < found->attr_count; ++i) {
    const rabbet_op_attr_t* candidate = &found->attrs[i];
    if (strcmp(candidate->name, attr) || !candidate->enumerators) continue;
    for (const rabbet_op_enumerator_t* e = candidate->enumerators; e->name;
         ++e) {
      if (!strcmp(e->name, name)) return e->value;
    }
  }
  RABBET_ONNX_FAIL(node, RABBET_STATUS_INTERNAL, "operator '%s' has no %s '%s'",
                   op, attr, name);
  return 0;
}

rabbet_tensor_t* rabbet_onnx_unary(rabbet_onnx_node_t* node, const char* op,
                                   rabbet_tensor_t* x) {
  rabbet_attr_t attrs[] = {
      RABBET_ONNX_INT("op", rabbet_onnx_enumerator(node, "unary", "op", op)),
  };
  return rabbet_onnx_layer(node, "unary", &x, 1, attrs, 1);
}

rabbet_tensor_t* rabbet_onnx_binary(rabbet_onnx_node_t* node, const char* op,
                                    rabbet_tensor_t* a, rabbet_tensor_t* b) {
  rabbet_tensor_t* inputs[] = {a, b};
  rabbet_onnx_align(node, inputs, 2);
  rabbet_attr_t attrs[] = {
      RABBET_ONNX_INT("op",
                      rabbet_onnx_enumerator(node, "elementwise", "op", op)),
  };
  return rabbet_onnx_layer(node, "elementwise", inputs, 2, attrs, 1);
}

rabbet_tensor_t* rabbet_onnx_with_number(rabbet_onnx_node_t* node,
                                         const char* op, rabbet_tensor_t* x,
                                         double number) {
  rabbet_tensor_t* constant = rabbet_onnx_number(
      node, rabbet_onnx_dtype_of(node, x), rabbet_onnx_rank(node, x), number);
  return rabbet_onnx_binary(node, op, x, constant);
}

rabbet_tensor_t* rabbet_onnx_activation(rabbet_onnx_node_t* node,
                                        const char* type, rabbet_tensor_t* x,
                                        double alpha, double beta) {
  rabbet_attr_t attrs[] = {
      RABBET_ONNX_INT("type",
                      rabbet_onnx_enumerator(node, "activation", "type", type)),
      RABBET_ONNX_FLOAT("alpha", alpha),
      RABBET_ONNX_FLOAT("beta", beta),
  };
  return rabbet_onnx_layer(node, "activation", &x, 1, attrs, 3);
}

rabbet_tensor_t* rabbet_onnx_in_float(rabbet_onnx_node_t* node,
                                      rabbet_tensor_t* x) {
  return rabbet_onnx_dtype_of(node, x) == RABBET_DTYPE_DOUBLE
             ? x
             : rabbet_onnx_cast(node, x, RABBET_DTYPE_FLOAT);
}

rabbet_dtype_t rabbet_onnx_wide(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_input(node, 0);
  return x && rabbet_onnx_dtype_of(node, x) == RABBET_DTYPE_DOUBLE
             ? RABBET_DTYPE_DOUBLE
             : RABBET_DTYPE_FLOAT;
}

rabbet_tensor_t* rabbet_onnx_cast(rabbet_onnx_node_t* node, rabbet_tensor_t* x,
                                  rabbet_dtype_t dtype) {
  if (!rabbet_onnx_ok(node) || rabbet_onnx_dtype_of(node, x) == dtype) return x;
  rabbet_attr_t attrs[] = {RABBET_ONNX_INT("to_type", dtype)};
  return rabbet_onnx_layer(node, "cast", &x, 1, attrs, 1);
}

rabbet_tensor_t* rabbet_onnx_reduce(rabbet_onnx_node_t* node, const char* op,
                                    rabbet_tensor_t* x, uint32_t axes,
                                    bool keep_dims) {
  if (axes == 0) return x;
  rabbet_attr_t attrs[] = {
      RABBET_ONNX_INT("op", rabbet_onnx_enumerator(node, "reduce", "op", op)),
      RABBET_ONNX_INT("axes", axes),
      RABBET_ONNX_BOOL("keep_dims", keep_dims),
  };
  return rabbet_onnx_layer(node, "reduce", &x, 1, attrs, 3);
}

rabbet_tensor_t* rabbet_onnx_select(rabbet_onnx_node_t* node,
                                    rabbet_tensor_t* condition,
                                    rabbet_tensor_t* yes, rabbet_tensor_t* no) {
  rabbet_tensor_t* inputs[] = {condition, yes, no};
  rabbet_onnx_align(node, inputs, 3);
  return rabbet_onnx_layer(node, "select", inputs, 3, NULL, 0);
}

rabbet_tensor_t* rabbet_onnx_concat(rabbet_onnx_node_t* node,
                                    rabbet_tensor_t* const* inputs,
                                    size_t count, int axis) {
  assert(count > 0 || !rabbet_onnx_ok(node));
  if (count == 1) return inputs[0];
  rabbet_attr_t attrs[] = {RABBET_ONNX_INT("axis", axis)};
  return rabbet_onnx_layer(node, "concatenation", inputs, count, attrs, 1);
}

rabbet_tensor_t* rabbet_onnx_matmul(rabbet_onnx_node_t* node,
                                    rabbet_tensor_t* a, const char* op_a,
                                    rabbet_tensor_t* b, const char* op_b) {
  rabbet_tensor_t* inputs[] = {a, b};
  rabbet_attr_t attrs[] = {
      RABBET_ONNX_INT(
          "op0", rabbet_onnx_enumerator(node, "matrix_multiply", "op0", op_a)),
      RABBET_ONNX_INT(
          "op1", rabbet_onnx_enumerator(node, "matrix_multiply", "op1", op_b)),
  };
  return rabbet_onnx_layer(node, "matrix_multiply", inputs, 2, attrs, 2);
}

rabbet_tensor_t* rabbet_onnx_softmax(rabbet_onnx_node_t* node,
                                     rabbet_tensor_t* x, int axis) {
  assert(axis >= 0 && axis < RABBET_MAX_RANK);
  rabbet_attr_t attrs[] = {RABBET_ONNX_INT("axes", (int64_t)1 << axis)};
  return rabbet_onnx_layer(node, "softmax", &x, 1, attrs, 1);
}

rabbet_tensor_t* rabbet_onnx_shape(rabbet_onnx_node_t* node,
                                   rabbet_tensor_t* x) {
  return rabbet_onnx_layer(node, "shape", &x, 1, NULL, 0);
}

rabbet_tensor_t* rabbet_onnx_transpose(rabbet_onnx_node_t* node,
                                       rabbet_tensor_t* x,
                                       const int64_t* perm) {
  rabbet_attr_t attrs[] = {
      RABBET_ONNX_INTS("first_transpose", perm, rabbet_onnx_rank(node, x)),
  };
  return rabbet_onnx_layer(node, "shuffle", &x, 1, attrs, 1);
}

// ---- Axes of extent 1 ------------------------------------------------------

// Weights get another shape without a layer.
static rabbet_tensor_t* onnx_reshape_weights(rabbet_onnx_node_t* node,
                                             rabbet_tensor_t* x,
                                             const rabbet_dims_t* dims) {
  rabbet_onnx_constant_t constant;
  if (!rabbet_onnx_is_constant(node, x, &constant)) return NULL;
  return rabbet_onnx_weights(node, constant.weights.dtype,
                             constant.weights.data, dims);
}

static int onnx_unknowns(const rabbet_dims_t* dims) {
  int count = 0;
  for (int i = 0; i < dims->rank; ++i) {
    count += dims->d[i] < 0;
  }
  return count;
}

static bool onnx_has_zero(const rabbet_dims_t* dims) {
  for (int i = 0; i < dims->rank; ++i) {
    if (dims->d[i] == 0) return true;
  }
  return false;
}

// A reshape to dims with at most one unknown, which -1 stands for.
static rabbet_tensor_t* onnx_reshape_to(rabbet_onnx_node_t* node,
                                        rabbet_tensor_t* x,
                                        const rabbet_dims_t* dims) {
  rabbet_attr_t attrs[] = {
      RABBET_ONNX_INTS("reshape_dims", dims->d, dims->rank),
      RABBET_ONNX_BOOL("zero_is_placeholder", false),
      RABBET_ONNX_BOOL("reshape_to_scalar", dims->rank == 0),
  };
  return rabbet_onnx_layer(node, "shuffle", &x, 1, attrs, 3);
}

// For several unknown extents, a reshape copies them by position and puts the
// new ones behind. A transposition then moves the ones into place.
static rabbet_tensor_t* onnx_unsqueeze_unknown(rabbet_onnx_node_t* node,
                                               rabbet_tensor_t* x,
                                               uint32_t axes, int out_rank) {
  int64_t dims[RABBET_MAX_RANK], perm[RABBET_MAX_RANK];
  int rank = rabbet_onnx_rank(node, x);
  int old = 0, one = rank;
  for (int i = 0; i < out_rank; ++i) {
    dims[i] = i < rank ? 0 : 1;
    perm[i] = (axes >> i & 1) ? one++ : old++;
  }
  assert(old == rank && one == out_rank);
  rabbet_attr_t attrs[] = {
      RABBET_ONNX_INTS("reshape_dims", dims, out_rank),
      RABBET_ONNX_BOOL("zero_is_placeholder", true),
      RABBET_ONNX_INTS("second_transpose", perm, out_rank),
  };
  return rabbet_onnx_layer(node, "shuffle", &x, 1, attrs, 3);
}

static rabbet_tensor_t* onnx_squeeze_unknown(rabbet_onnx_node_t* node,
                                             rabbet_tensor_t* x, uint32_t axes,
                                             int out_rank) {
  int64_t dims[RABBET_MAX_RANK] = {0}, perm[RABBET_MAX_RANK];
  int rank = rabbet_onnx_rank(node, x);
  int kept = 0, one = out_rank;
  for (int i = 0; i < rank; ++i) {
    perm[(axes >> i & 1) ? one++ : kept++] = i;
  }
  assert(kept == out_rank && one == rank);
  rabbet_attr_t attrs[] = {
      RABBET_ONNX_INTS("first_transpose", perm, rank),
      RABBET_ONNX_INTS("reshape_dims", dims, out_rank),
      RABBET_ONNX_BOOL("zero_is_placeholder", true),
      RABBET_ONNX_BOOL("reshape_to_scalar", out_rank == 0),
  };
  return rabbet_onnx_layer(node, "shuffle", &x, 1, attrs, 4);
}

rabbet_tensor_t* rabbet_onnx_unsqueeze(rabbet_onnx_node_t* node,
                                       rabbet_tensor_t* x, uint32_t axes,
                                       int out_rank) {
  rabbet_dims_t dims = rabbet_onnx_dims(node, x);
  if (!rabbet_onnx_ok(node) || axes == 0) return x;
  if (out_rank > RABBET_MAX_RANK) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "a tensor would have %d dimensions; at most %d are "
                     "possible",
                     out_rank, RABBET_MAX_RANK);
    return NULL;
  }
  rabbet_dims_t out = {.rank = out_rank};
  int old = 0;
  for (int i = 0; i < out_rank; ++i) {
    out.d[i] = (axes >> i & 1) ? 1 : dims.d[old++];
  }
  assert(old == dims.rank);  // `axes` are those that the rank grows by
  rabbet_tensor_t* weights = onnx_reshape_weights(node, x, &out);
  if (weights) return weights;
  int unknowns = onnx_unknowns(&out);
  if (unknowns == 0 || (unknowns == 1 && !onnx_has_zero(&out))) {
    return onnx_reshape_to(node, x, &out);
  }
  return onnx_unsqueeze_unknown(node, x, axes, out_rank);
}

rabbet_tensor_t* rabbet_onnx_squeeze(rabbet_onnx_node_t* node,
                                     rabbet_tensor_t* x, uint32_t axes) {
  rabbet_dims_t dims = rabbet_onnx_dims(node, x);
  if (!rabbet_onnx_ok(node) || axes == 0) return x;
  assert(axes >> dims.rank == 0);
  rabbet_dims_t out = {0};
  bool sure = true;  // every axis is known to be of extent 1
  for (int i = 0; i < dims.rank; ++i) {
    if (!(axes >> i & 1)) {
      out.d[out.rank++] = dims.d[i];
    } else if (dims.d[i] > 1 || dims.d[i] == 0) {
      RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                       "axis %d of '%s' has extent %lld and cannot be dropped",
                       i, rabbet_tensor_name(x), (long long)dims.d[i]);
      return NULL;
    } else {
      sure &= dims.d[i] == 1;
    }
  }
  rabbet_tensor_t* weights = onnx_reshape_weights(node, x, &out);
  if (weights) return weights;
  int unknowns = onnx_unknowns(&out);
  bool simple = unknowns == 0 || (unknowns == 1 && !onnx_has_zero(&out));
  if (sure && simple) return onnx_reshape_to(node, x, &out);
  return onnx_squeeze_unknown(node, x, axes, out.rank);
}

rabbet_tensor_t* rabbet_onnx_to_rank(rabbet_onnx_node_t* node,
                                     rabbet_tensor_t* x, int rank) {
  int more = rank - rabbet_onnx_rank(node, x);
  if (!rabbet_onnx_ok(node) || more <= 0) return x;
  return rabbet_onnx_unsqueeze(node, x, (1u << more) - 1, rank);
}

void rabbet_onnx_align(rabbet_onnx_node_t* node, rabbet_tensor_t** tensors,
                       size_t count) {
  int rank = 0;
  for (size_t i = 0; i < count; ++i) {
    int found = rabbet_onnx_rank(node, tensors[i]);
    if (found > rank) rank = found;
  }
  for (size_t i = 0; i < count; ++i) {
    tensors[i] = rabbet_onnx_to_rank(node, tensors[i], rank);
  }
}
