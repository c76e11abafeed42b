// Constants, operators that pass their input through, and branches whose
// condition is known.
#include <string.h>

#include "onnx/held.h"
#include "onnx/index.h"
#include "onnx/operators.h"

// Larger constants than this are not written out when a slice can stand for
// them.
static const size_t onnx_write_out_bytes = (size_t)1 << 30;

// ---- Constant --------------------------------------------------------------

static rabbet_tensor_t* onnx_of_tensor(rabbet_onnx_node_t* node,
                                       const Onnx__TensorProto* tensor) {
  rabbet_onnx_constant_t constant = {0};
  rabbet_onnx_importer_t* importer = node->importer;
  rabbet_onnx_fail(node, rabbet_onnx_tensor_read(importer->storage,
                                                 importer->network->logger,
                                                 tensor, &constant));
  rabbet_tensor_t* made = rabbet_onnx_weights(
      node, constant.weights.dtype, constant.weights.data, &constant.dims);
  if (rabbet_onnx_ok(node))
    rabbet_onnx_fail(
        node, rabbet_onnx_hold(importer, node->name, made, tensor->data_type));
  return made;
}

static rabbet_tensor_t* onnx_of_floats(rabbet_onnx_node_t* node,
                                       const float* values, size_t count,
                                       int rank) {
  rabbet_dims_t dims = {.rank = rank, .d = {(int64_t)count}};
  int64_t room;
  float* data =
      rabbet_onnx_weights_room(node, RABBET_DTYPE_FLOAT, &dims, &room);
  if (data && count) memcpy(data, values, count * sizeof(*values));
  return rabbet_onnx_weights(node, RABBET_DTYPE_FLOAT, data, &dims);
}

static rabbet_tensor_t* onnx_of_ints(rabbet_onnx_node_t* node,
                                     const int64_t* values, size_t count,
                                     int rank) {
  rabbet_dims_t dims = {.rank = rank, .d = {(int64_t)count}};
  int64_t room;
  int64_t* data =
      rabbet_onnx_weights_room(node, RABBET_DTYPE_INT64, &dims, &room);
  if (data && count) memcpy(data, values, count * sizeof(*values));
  return rabbet_onnx_weights(node, RABBET_DTYPE_INT64, data, &dims);
}

static void onnx_import_constant(rabbet_onnx_node_t* node) {
  const Onnx__TensorProto* tensor = rabbet_onnx_attr_tensor(node, "value");
  const Onnx__AttributeProto* attr;
  if (!rabbet_onnx_ok(node)) return;
  if (tensor) {
    node->outputs[0] = onnx_of_tensor(node, tensor);
  } else if ((attr = rabbet_onnx_attr(node, "value_float"))) {
    node->outputs[0] = onnx_of_floats(node, &attr->f, 1, 0);
  } else if ((attr = rabbet_onnx_attr(node, "value_floats"))) {
    node->outputs[0] = onnx_of_floats(node, attr->floats, attr->n_floats, 1);
  } else if ((attr = rabbet_onnx_attr(node, "value_int"))) {
    node->outputs[0] = onnx_of_ints(node, &attr->i, 1, 0);
  } else if ((attr = rabbet_onnx_attr(node, "value_ints"))) {
    node->outputs[0] = onnx_of_ints(node, attr->ints, attr->n_ints, 1);
  } else {
    bool sparse = rabbet_onnx_has_attr(node, "sparse_value");
    bool string = rabbet_onnx_has_attr(node, "value_string") ||
                  rabbet_onnx_has_attr(node, "value_strings");
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED, "%s",
                     sparse   ? "sparse constants are not imported"
                     : string ? "operators on strings are not imported"
                              : "the constant has no value");
  }
}

// ---- ConstantOfShape -------------------------------------------------------

// The one number (default 0 as FLOAT) in the shape [1, ..., 1].
static rabbet_tensor_t* onnx_fill_value(rabbet_onnx_node_t* node, int rank,
                                        rabbet_onnx_constant_t* value) {
  const Onnx__TensorProto* tensor = rabbet_onnx_attr_tensor(node, "value");
  if (!tensor) {
    rabbet_tensor_t* zero =
        rabbet_onnx_number(node, RABBET_DTYPE_FLOAT, rank, 0);
    rabbet_onnx_is_constant(node, zero, value);
    return zero;
  }
  rabbet_onnx_fail(node, rabbet_onnx_tensor_read(
                             node->importer->storage,
                             node->importer->network->logger, tensor, value));
  if (rabbet_onnx_ok(node) && value->weights.count != 1) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "value must hold one number, but holds %lld",
                     (long long)value->weights.count);
  }
  rabbet_dims_t dims = {.rank = rank};
  for (int i = 0; i < rank; ++i) {
    dims.d[i] = 1;
  }
  return rabbet_onnx_weights(node, value->weights.dtype, value->weights.data,
                             &dims);
}

// A constant of equal elements, for operators that need weights.
static rabbet_tensor_t* onnx_fill(rabbet_onnx_node_t* node,
                                  const rabbet_onnx_constant_t* value,
                                  const rabbet_dims_t* dims) {
  rabbet_dtype_t dtype = value->weights.dtype;
  int64_t count;
  char* data = rabbet_onnx_weights_room(node, dtype, dims, &count);
  size_t size = (size_t)rabbet_dtype_bits(dtype) / 8;
  for (int64_t i = 0; i < count && data; ++i) {
    memcpy(data + (size_t)i * size, value->weights.data, size);
  }
  return rabbet_onnx_weights(node, dtype, data, dims);
}

static void onnx_import_constant_of_shape(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* shape = rabbet_onnx_required(node, 0);
  int rank = rabbet_onnx_shape_length(node, shape);
  if (!rabbet_onnx_ok(node)) return;
  rabbet_onnx_index_t extents[RABBET_MAX_RANK];
  rabbet_dims_t dims = {.rank = rank};
  for (int i = 0; i < rank; ++i) {
    extents[i] = rabbet_onnx_element(node, shape, i);
  }
  rabbet_onnx_constant_t value;
  rabbet_tensor_t* one = onnx_fill_value(node, rank, &value);
  if (!rabbet_onnx_ok(node)) return;
  size_t bytes = 0;
  bool known = rabbet_onnx_all_static(extents, (size_t)rank, dims.d);
  if (known) {
    rabbet_onnx_fail(
        node, rabbet_tensor_bytes(value.weights.dtype, RABBET_FORMAT_LINEAR,
                                  &dims, &bytes));
  }
  bool whole_bytes = rabbet_dtype_bits(value.weights.dtype) % 8 == 0;
  node->outputs[0] = known && whole_bytes && bytes <= onnx_write_out_bytes
                         ? onnx_fill(node, &value, &dims)
                         : rabbet_onnx_spread(node, one, extents, rank);
  const Onnx__TensorProto* tensor = rabbet_onnx_attr_tensor(node, "value");
  if (tensor && rabbet_onnx_ok(node))
    rabbet_onnx_fail(
        node, rabbet_onnx_hold(node->importer, node->name, node->outputs[0],
                               tensor->data_type));
}

// ---- Passing through -------------------------------------------------------

static void onnx_import_identity(rabbet_onnx_node_t* node) {
  node->outputs[0] = rabbet_onnx_required(node, 0);
}

// The mask keeps everything: true everywhere.
static rabbet_tensor_t* onnx_full_mask(rabbet_onnx_node_t* node,
                                       rabbet_tensor_t* x) {
  rabbet_onnx_index_t dims[RABBET_MAX_RANK];
  int rank = rabbet_onnx_rank(node, x);
  for (int i = 0; i < rank; ++i) {
    dims[i] = rabbet_onnx_extent(node, x, i);
  }
  rabbet_tensor_t* yes = rabbet_onnx_number(node, RABBET_DTYPE_BOOL, rank, 1);
  return rabbet_onnx_ok(node) ? rabbet_onnx_spread(node, yes, dims, rank)
                              : NULL;
}

static void onnx_import_dropout(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  rabbet_tensor_t* training = rabbet_onnx_input(node, 2);
  double ratio = 1;
  bool no_ratio = rabbet_onnx_input(node, 1) &&
                  rabbet_onnx_constant_number(node, node->inputs[1], &ratio) &&
                  ratio == 0;
  if (training && rabbet_onnx_ok(node) && !no_ratio) {
    double value = 1;
    if (!rabbet_onnx_constant_number(node, training, &value) || value != 0) {
      RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                       "training_mode must be a constant false; export the "
                       "model for inference");
    }
  }
  node->outputs[0] = x;
  if (rabbet_onnx_wants(node, 1)) {
    node->outputs[1] = onnx_full_mask(node, x);
  }
}

RABBET_ONNX_OPERATORS(constant) = {
    RABBET_ONNX_OP(Constant, constant, "", 1, 9, 11, 12, 13, 19, 21, 23, 24,
                   25),
    RABBET_ONNX_OP(ConstantOfShape, constant_of_shape, "", 9, 20, 21, 23, 24,
                   25),
    RABBET_ONNX_OP(Dropout, dropout, "", 1, 6, 7, 10, 12, 13, 22),
    RABBET_ONNX_LIST_OP(Identity, identity, "", 1, 13, 14, 16, 19, 21, 23, 24,
                        25),
    {0},
};
