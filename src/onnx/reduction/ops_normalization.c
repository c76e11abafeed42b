// Normalizations.
#include <math.h>
#include <string.h>

#include "onnx/compositions.h"
#include "onnx/index.h"
#include "onnx/operators.h"

// The axes from `first` on, as a mask.
static uint32_t onnx_axes_from(int first, int rank) {
  return ((1u << rank) - 1) & ~((1u << first) - 1);
}

// A vector by channel, in the shape [1, C, 1, ...].
static rabbet_tensor_t* onnx_by_channel(rabbet_onnx_node_t* node,
                                        rabbet_tensor_t* x, int rank) {
  if (rabbet_onnx_rank(node, x) != 1 || rank < 2) {
    if (rabbet_onnx_ok(node)) {
      RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                       "'%s' must be a vector with a number for each channel",
                       rabbet_tensor_name(x));
    }
    return x;
  }
  return rabbet_onnx_unsqueeze(node, x, ((1u << rank) - 1) & ~2u, rank);
}

rabbet_tensor_t* rabbet_onnx_normalize(rabbet_onnx_node_t* node,
                                       rabbet_tensor_t* x,
                                       rabbet_tensor_t* scale,
                                       rabbet_tensor_t* bias, uint32_t axes,
                                       double epsilon, int64_t groups) {
  rabbet_tensor_t* inputs[] = {x, scale, bias};
  size_t count = bias ? 3 : scale ? 2 : 1;
  rabbet_attr_t attrs[] = {
      RABBET_ONNX_INT("axes", axes),
      RABBET_ONNX_FLOAT("epsilon", epsilon),
      RABBET_ONNX_INT("num_groups", groups),
      RABBET_ONNX_BOOL("is_v2", true),
  };
  return rabbet_onnx_layer(node, "normalization", inputs, count, attrs, 4);
}

// ---- BatchNormalization ----------------------------------------------------

enum { SCALE, SHIFT, MEAN, VARIANCE, STATISTICS };

// Four constant vectors of one length.
static bool onnx_statistics(rabbet_onnx_node_t* node,
                            rabbet_onnx_constant_t* constants) {
  for (size_t i = 0; i < STATISTICS; ++i) {
    if (!rabbet_onnx_is_constant(node, node->inputs[i + 1], &constants[i]) ||
        constants[i].weights.count != constants[0].weights.count) {
      return false;
    }
  }
  return true;
}

// x * factor + offset, with both computed now, in double, and rounded once.
static rabbet_tensor_t* onnx_batch_constant(
    rabbet_onnx_node_t* node, rabbet_tensor_t* x,
    const rabbet_onnx_constant_t* constants, double epsilon) {
  int rank = rabbet_onnx_rank(node, x);
  rabbet_dtype_t dtype = rabbet_onnx_dtype_of(node, x);
  rabbet_dims_t dims = {.rank = rank};
  for (int i = 0; i < rank; ++i) {
    dims.d[i] = 1;
  }
  if (rank > 1) dims.d[1] = constants[SCALE].weights.count;
  int64_t count;
  void* factors = rabbet_onnx_weights_room(node, dtype, &dims, &count);
  void* offsets = rabbet_onnx_weights_room(node, dtype, &dims, &count);
  if (!rabbet_onnx_ok(node)) return NULL;
  for (int64_t i = 0; i < count; ++i) {
    double v[STATISTICS];
    for (size_t k = 0; k < STATISTICS; ++k) {
      v[k] = rabbet_load_double(constants[k].weights.dtype,
                                constants[k].weights.data, i);
    }
    double factor = v[SCALE] / sqrt(v[VARIANCE] + epsilon);
    rabbet_store_double(dtype, factors, i, factor);
    rabbet_store_double(dtype, offsets, i, v[SHIFT] - v[MEAN] * factor);
  }
  rabbet_tensor_t* factor = rabbet_onnx_weights(node, dtype, factors, &dims);
  rabbet_tensor_t* offset = rabbet_onnx_weights(node, dtype, offsets, &dims);
  rabbet_tensor_t* y = rabbet_onnx_binary(node, "PROD", x, factor);
  return rabbet_onnx_binary(node, "SUM", y, offset);
}

static rabbet_tensor_t* onnx_batch_computed(rabbet_onnx_node_t* node,
                                            rabbet_tensor_t* x,
                                            double epsilon) {
  int rank = rabbet_onnx_rank(node, x);
  rabbet_dtype_t dtype = rabbet_onnx_dtype_of(node, x);
  rabbet_tensor_t* v[STATISTICS];
  for (size_t i = 0; i < STATISTICS; ++i) {
    v[i] = onnx_by_channel(node, node->inputs[i + 1], rank);
    v[i] = rabbet_onnx_cast(node, v[i], dtype);
  }
  rabbet_tensor_t* deviation =
      rabbet_onnx_with_number(node, "SUM", v[VARIANCE], epsilon);
  deviation = rabbet_onnx_unary(node, "SQRT", deviation);
  rabbet_tensor_t* factor =
      rabbet_onnx_binary(node, "DIV", v[SCALE], deviation);
  rabbet_tensor_t* y = rabbet_onnx_binary(node, "SUB", x, v[MEAN]);
  y = rabbet_onnx_binary(node, "PROD", y, factor);
  return rabbet_onnx_binary(node, "SUM", y, v[SHIFT]);
}

// running * momentum + batch * (1 - momentum).
static rabbet_tensor_t* onnx_batch_running(rabbet_onnx_node_t* node,
                                           rabbet_tensor_t* running,
                                           rabbet_tensor_t* batch) {
  double momentum = rabbet_onnx_attr_float(node, "momentum", 0.9f);
  return rabbet_onnx_binary(
      node, "SUM", rabbet_onnx_with_number(node, "PROD", running, momentum),
      rabbet_onnx_with_number(node, "PROD", batch, 1 - momentum));
}

// Normalizes by the statistics of x itself. Exporters write standardized
// weights in this form; x is constant then, and the builder folds the result.
static void onnx_batch_trained(rabbet_onnx_node_t* node, rabbet_tensor_t* x,
                               double epsilon) {
  int rank = rabbet_onnx_rank(node, x);
  rabbet_dtype_t dtype = rabbet_onnx_dtype_of(node, x);
  uint32_t axes = ((1u << rank) - 1) & ~2u;
  rabbet_tensor_t* v[2];
  for (size_t i = 0; i < 2; ++i) {
    v[i] = onnx_by_channel(node, node->inputs[SCALE + 1 + i], rank);
    v[i] = rabbet_onnx_cast(node, v[i], dtype);
  }
  rabbet_tensor_t* mean = rabbet_onnx_reduce(node, "AVG", x, axes, true);
  rabbet_tensor_t* centred = rabbet_onnx_binary(node, "SUB", x, mean);
  rabbet_tensor_t* variance = rabbet_onnx_reduce(
      node, "AVG", rabbet_onnx_binary(node, "PROD", centred, centred), axes,
      true);
  rabbet_tensor_t* deviation = rabbet_onnx_unary(
      node, "SQRT", rabbet_onnx_with_number(node, "SUM", variance, epsilon));
  rabbet_tensor_t* factor =
      rabbet_onnx_binary(node, "DIV", v[SCALE], deviation);
  node->outputs[0] = rabbet_onnx_binary(
      node, "SUM", rabbet_onnx_binary(node, "PROD", centred, factor), v[SHIFT]);
  // Outputs 1 and 2 are the running statistics, 3 and 4 (before opset 14) those
  // of the batch.
  rabbet_tensor_t* found[] = {mean, variance};
  for (size_t i = 0; i < 4; ++i) {
    if (!rabbet_onnx_wants(node, 1 + i)) continue;
    rabbet_tensor_t* running = node->inputs[MEAN + 1 + i % 2];
    rabbet_tensor_t* batch =
        rabbet_onnx_cast(node, rabbet_onnx_squeeze(node, found[i % 2], axes),
                         rabbet_onnx_dtype_of(node, running));
    node->outputs[1 + i] =
        i < 2 ? onnx_batch_running(node, running, batch) : batch;
  }
}

// Training mode: an attribute from opset 14 on. Before, outputs for statistics
// imply it, unless (before opset 7) `is_test` is set.
static bool onnx_batch_trains(rabbet_onnx_node_t* node) {
  if (node->opset < 7 && rabbet_onnx_attr_int(node, "is_test", 0)) return false;
  if (node->opset >= 14)
    return rabbet_onnx_attr_int(node, "training_mode", 0) != 0;
  for (size_t i = 1; i < node->output_count; ++i)
    if (rabbet_onnx_wants(node, i)) return true;
  return false;
}

static void onnx_import_batch_normalization(rabbet_onnx_node_t* node) {
  for (size_t i = 0; i <= STATISTICS; ++i) {
    rabbet_onnx_required(node, i);
  }
  bool trains = onnx_batch_trains(node);
  if (node->opset < 9 && rabbet_onnx_attr_int(node, "spatial", 1) == 0)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "spatial is 0: statistics for each element, not for each "
                     "channel, are not imported");
  if (!rabbet_onnx_ok(node)) return;
  double epsilon = rabbet_onnx_attr_float(node, "epsilon", 1e-5f);
  rabbet_tensor_t* x = node->inputs[0];
  if (rabbet_onnx_rank(node, x) < 2) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "the input needs a batch and a channel axis");
  }
  rabbet_onnx_constant_t constants[STATISTICS];
  if (trains)
    onnx_batch_trained(node, x, epsilon);
  else
    node->outputs[0] = onnx_statistics(node, constants)
                           ? onnx_batch_constant(node, x, constants, epsilon)
                           : onnx_batch_computed(node, x, epsilon);
}

// ---- Instance, group, layer ------------------------------------------------

static void onnx_import_instance_normalization(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  rabbet_tensor_t* scale = rabbet_onnx_required(node, 1);
  rabbet_tensor_t* bias = rabbet_onnx_required(node, 2);
  int rank = rabbet_onnx_rank(node, x);
  double epsilon = rabbet_onnx_attr_float(node, "epsilon", 1e-5f);
  if (!rabbet_onnx_ok(node)) return;
  scale = onnx_by_channel(node, scale, rank);
  bias = onnx_by_channel(node, bias, rank);
  node->outputs[0] = rabbet_onnx_normalize(node, x, scale, bias,
                                           onnx_axes_from(2, rank), epsilon, 1);
}

// Before opset 21 scale and bias are by group: each number is repeated for the
// channels of its group.
static rabbet_tensor_t* onnx_group_to_channels(rabbet_onnx_node_t* node,
                                               rabbet_tensor_t* v,
                                               int64_t groups,
                                               int64_t channels) {
  rabbet_onnx_index_t dims[] = {rabbet_onnx_index(groups),
                                rabbet_onnx_index(channels / groups)};
  v = rabbet_onnx_unsqueeze(node, v, 2, 2);
  v = rabbet_onnx_spread(node, v, dims, 2);
  dims[0] = rabbet_onnx_index(channels);
  return rabbet_onnx_reshape(node, v, dims, 1);
}

rabbet_tensor_t* rabbet_onnx_group_normalize(rabbet_onnx_node_t* node,
                                             rabbet_tensor_t* x,
                                             rabbet_tensor_t* scale,
                                             rabbet_tensor_t* bias,
                                             int64_t groups, double epsilon) {
  int rank = rabbet_onnx_rank(node, x);
  scale = onnx_by_channel(node, scale, rank);
  bias = onnx_by_channel(node, bias, rank);
  uint32_t axes = onnx_axes_from(2, rank);
  // For num_groups 1 the layer reduces over channels only if axes say so.
  if (groups == 1) axes |= 2;
  return rabbet_onnx_normalize(node, x, scale, bias, axes, epsilon, groups);
}

static void onnx_import_group_normalization(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  rabbet_tensor_t* scale = rabbet_onnx_required(node, 1);
  rabbet_tensor_t* bias = rabbet_onnx_required(node, 2);
  rabbet_dims_t dims = rabbet_onnx_dims(node, x);
  double epsilon = rabbet_onnx_attr_float(node, "epsilon", 1e-5f);
  int64_t groups = rabbet_onnx_attr_int(node, "num_groups", 0);
  if (!rabbet_onnx_ok(node)) return;
  if (dims.rank < 3 || dims.d[1] < 1 || groups < 1 || dims.d[1] % groups) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "the channels of the input (of rank 3 or more) must be "
                     "known and a multiple of num_groups, %lld",
                     (long long)groups);
    return;
  }
  if (node->opset < 21) {
    scale = onnx_group_to_channels(node, scale, groups, dims.d[1]);
    bias = onnx_group_to_channels(node, bias, groups, dims.d[1]);
  }
  node->outputs[0] =
      rabbet_onnx_group_normalize(node, x, scale, bias, groups, epsilon);
}

// Mean and 1 / deviation as outputs: composed, in FLOAT as stash_type asks.
static void onnx_layer_statistics(rabbet_onnx_node_t* node, rabbet_tensor_t* x,
                                  uint32_t axes, double epsilon) {
  x = rabbet_onnx_in_float(node, x);
  rabbet_tensor_t* mean = rabbet_onnx_reduce(node, "AVG", x, axes, true);
  rabbet_tensor_t* centred = rabbet_onnx_binary(node, "SUB", x, mean);
  rabbet_tensor_t* variance = rabbet_onnx_reduce(
      node, "AVG", rabbet_onnx_binary(node, "PROD", centred, centred), axes,
      true);
  variance = rabbet_onnx_with_number(node, "SUM", variance, epsilon);
  rabbet_tensor_t* inverse = rabbet_onnx_unary(
      node, "RECIP", rabbet_onnx_unary(node, "SQRT", variance));
  if (rabbet_onnx_wants(node, 1)) node->outputs[1] = mean;
  if (rabbet_onnx_wants(node, 2)) node->outputs[2] = inverse;
}

static void onnx_import_layer_normalization(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  rabbet_tensor_t* scale = rabbet_onnx_required(node, 1);
  rabbet_tensor_t* bias = rabbet_onnx_input(node, 2);
  int rank = rabbet_onnx_rank(node, x);
  int axis =
      rabbet_onnx_axis(node, rabbet_onnx_attr_int(node, "axis", -1), rank);
  double epsilon = rabbet_onnx_attr_float(node, "epsilon", 1e-5f);
  if (!rabbet_onnx_ok(node)) return;
  uint32_t axes = onnx_axes_from(axis, rank);
  rabbet_tensor_t* scaled = rabbet_onnx_to_rank(node, scale, rank);
  if (bias) bias = rabbet_onnx_to_rank(node, bias, rank);
  node->outputs[0] =
      rabbet_onnx_normalize(node, x, scaled, bias, axes, epsilon, 1);
  if (rabbet_onnx_wants(node, 1) || rabbet_onnx_wants(node, 2)) {
    onnx_layer_statistics(node, x, axes, epsilon);
  }
}

rabbet_tensor_t* rabbet_onnx_rms_normalize(rabbet_onnx_node_t* node,
                                           rabbet_tensor_t* x,
                                           rabbet_tensor_t* scale, int axis,
                                           double epsilon) {
  int rank = rabbet_onnx_rank(node, x);
  if (!rabbet_onnx_ok(node)) return NULL;
  scale = rabbet_onnx_cast(node, scale, rabbet_onnx_dtype_of(node, x));
  rabbet_tensor_t* inputs[] = {x, rabbet_onnx_to_rank(node, scale, rank)};
  const rabbet_attr_t attrs[] = {
      RABBET_ONNX_INT("axes", onnx_axes_from(axis, rank)),
      RABBET_ONNX_FLOAT("epsilon", epsilon),
      RABBET_ONNX_BOOL("is_rms", true),
  };
  return rabbet_onnx_layer(node, "normalization", inputs, 2, attrs, 3);
}

static void onnx_import_rms_normalization(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  rabbet_tensor_t* scale = rabbet_onnx_required(node, 1);
  int axis = rabbet_onnx_axis(node, rabbet_onnx_attr_int(node, "axis", -1),
                              rabbet_onnx_rank(node, x));
  double epsilon = rabbet_onnx_attr_float(node, "epsilon", 1e-5f);
  node->outputs[0] = rabbet_onnx_rms_normalize(node, x, scale, axis, epsilon);
}

// ---- Others ----------------------------------------------------------------

// (x - mean) / (deviation + 1e-9)
static void onnx_import_mean_variance(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  rabbet_onnx_ints_t axes = rabbet_onnx_attr_ints(node, "axes");
  static const int64_t usual[] = {0, 2, 3};
  if (!axes.present) axes = (rabbet_onnx_ints_t){true, 3, usual};
  uint32_t mask = rabbet_onnx_axes_mask(node, axes, rabbet_onnx_rank(node, x));
  rabbet_tensor_t* mean = rabbet_onnx_reduce(node, "AVG", x, mask, true);
  rabbet_tensor_t* centred = rabbet_onnx_binary(node, "SUB", x, mean);
  rabbet_tensor_t* deviation = rabbet_onnx_reduce(
      node, "AVG", rabbet_onnx_binary(node, "PROD", centred, centred), mask,
      true);
  deviation = rabbet_onnx_unary(node, "SQRT", deviation);
  deviation = rabbet_onnx_with_number(node, "SUM", deviation, 1e-9);
  node->outputs[0] = rabbet_onnx_binary(node, "DIV", centred, deviation);
}

static void onnx_import_lp_normalization(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  int axis = rabbet_onnx_axis(node, rabbet_onnx_attr_int(node, "axis", -1),
                              rabbet_onnx_rank(node, x));
  int64_t p = rabbet_onnx_attr_int(node, "p", 2);
  if (p != 1 && p != 2) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "p is %lld; 1 and 2 exist", (long long)p);
  }
  rabbet_tensor_t* norm = p == 1 ? rabbet_onnx_unary(node, "ABS", x)
                                 : rabbet_onnx_binary(node, "PROD", x, x);
  norm = rabbet_onnx_reduce(node, "SUM", norm, 1u << axis, true);
  if (p == 2) norm = rabbet_onnx_unary(node, "SQRT", norm);
  // Rows of zeros stay zero.
  rabbet_tensor_t* empty = rabbet_onnx_with_number(node, "EQUAL", norm, 0);
  rabbet_tensor_t* one = rabbet_onnx_number(
      node, rabbet_onnx_dtype_of(node, norm), rabbet_onnx_rank(node, norm), 1);
  norm = rabbet_onnx_select(node, empty, one, norm);
  node->outputs[0] = rabbet_onnx_binary(node, "DIV", x, norm);
}

// The mean of x^2 over neighbouring channels (zeros beyond the ends counted) is
// an average pool along the channels.
static rabbet_tensor_t* onnx_channel_mean(rabbet_onnx_node_t* node,
                                          rabbet_tensor_t* x, int64_t size) {
  int rank = rabbet_onnx_rank(node, x);
  rabbet_onnx_index_t dims[RABBET_MAX_RANK], rows[4];
  rabbet_onnx_index_t rest = rabbet_onnx_index(1);
  for (int i = 0; i < rank && rabbet_onnx_ok(node); ++i) {
    dims[i] = rabbet_onnx_extent(node, x, i);
    if (i > 1) rest = rabbet_onnx_index_op(node, "PROD", rest, dims[i]);
  }
  if (!rabbet_onnx_ok(node)) return NULL;
  rows[0] = dims[0];
  rows[1] = rabbet_onnx_index(1);
  rows[2] = dims[1];
  rows[3] = rest;
  const int64_t window[] = {size, 1};
  const int64_t before[] = {(size - 1) / 2, 0};
  const int64_t after[] = {size - 1 - (size - 1) / 2, 0};
  rabbet_attr_t attrs[] = {
      RABBET_ONNX_INT(
          "type", rabbet_onnx_enumerator(node, "pooling", "type", "AVERAGE")),
      RABBET_ONNX_INTS("window_size_nd", window, 2),
      RABBET_ONNX_INTS("pre_padding", before, 2),
      RABBET_ONNX_INTS("post_padding", after, 2),
      RABBET_ONNX_BOOL("average_count_excludes_padding", false),
  };
  rabbet_tensor_t* y = rabbet_onnx_reshape(node, x, rows, 4);
  y = rabbet_onnx_layer(node, "pooling", &y, 1, attrs, 5);
  return rabbet_onnx_reshape(node, y, dims, rank);
}

// x / (bias + alpha * mean)^beta
static void onnx_import_lrn(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  int64_t size = rabbet_onnx_attr_int(node, "size", 0);
  double alpha = rabbet_onnx_attr_float(node, "alpha", 0.0001f);
  double beta = rabbet_onnx_attr_float(node, "beta", 0.75);
  double bias = rabbet_onnx_attr_float(node, "bias", 1);
  if (rabbet_onnx_ok(node) && (size < 1 || rabbet_onnx_rank(node, x) < 2)) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "LRN needs a positive size (found %lld) and an input with "
                     "a channel axis",
                     (long long)size);
  }
  rabbet_tensor_t* square = rabbet_onnx_binary(node, "PROD", x, x);
  rabbet_tensor_t* y = onnx_channel_mean(node, square, size);
  y = rabbet_onnx_with_number(node, "PROD", y, alpha);
  y = rabbet_onnx_with_number(node, "SUM", y, bias);
  y = rabbet_onnx_with_number(node, "POW", y, beta);
  node->outputs[0] = rabbet_onnx_binary(node, "DIV", x, y);
}

RABBET_ONNX_OPERATORS(normalization) = {
    RABBET_ONNX_OP(BatchNormalization, batch_normalization, "", 1, 6, 7, 9, 14,
                   15),
    RABBET_ONNX_OP(GroupNormalization, group_normalization, "", 18, 21),
    RABBET_ONNX_OP(InstanceNormalization, instance_normalization, "", 1, 6, 22),
    RABBET_ONNX_OP(LRN, lrn, "", 1, 13),
    RABBET_ONNX_OP(LayerNormalization, layer_normalization, "", 17),
    RABBET_ONNX_OP(LpNormalization, lp_normalization, "", 1, 22),
    RABBET_ONNX_OP(MeanVarianceNormalization, mean_variance, "", 9, 13),
    RABBET_ONNX_OP(RMSNormalization, rms_normalization, "", 23),
    {0},
};
