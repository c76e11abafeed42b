// Models and encodings of ai.onnx.ml other than trees, composed of products and
// element-wise layers. What the specification leaves open is done as ONNX
// Runtime does it.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "onnx/ml/ml.h"
#include "onnx/operators.h"

// ---- Rows of numbers -------------------------------------------------------

// FLOATS of one element, or of one for each feature, as a row; NULL where the
// attribute is absent.
static rabbet_tensor_t* onnx_ml_by_feature(rabbet_onnx_node_t* node,
                                           const char* name) {
  rabbet_onnx_floats_t found = rabbet_onnx_attr_floats(node, name);
  return found.count ? rabbet_onnx_ml_row(node, found.data, found.count) : NULL;
}

// (x - offset) * scale, in FLOAT; computed in DOUBLE if x has that.
static void onnx_import_scaler(rabbet_onnx_node_t* node) {
  static const char* const names[] = {"offset", "scale"};
  rabbet_dtype_t wide = rabbet_onnx_wide(node);
  rabbet_tensor_t* x =
      rabbet_onnx_cast(node, rabbet_onnx_required(node, 0), wide);
  for (int i = 0; i < 2 && rabbet_onnx_ok(node); ++i) {
    rabbet_tensor_t* row = onnx_ml_by_feature(node, names[i]);
    if (row)
      x = rabbet_onnx_binary(node, i ? "PROD" : "SUB", x,
                             rabbet_onnx_cast(node, row, wide));
  }
  node->outputs[0] = rabbet_onnx_cast(node, x, RABBET_DTYPE_FLOAT);
}

// Rows without a norm stay as they are.
static void onnx_import_normalizer(rabbet_onnx_node_t* node) {
  static const struct {
    const char* name;
    const char* reduce;
  } norms[] = {{"MAX", "MAX"}, {"L1", "SUM"}, {"L2", "SUM"}};
  const char* norm = rabbet_onnx_attr_string(node, "norm", "MAX");
  rabbet_tensor_t* x =
      rabbet_onnx_cast(node, rabbet_onnx_required(node, 0), RABBET_DTYPE_FLOAT);
  int rank = rabbet_onnx_rank(node, x);
  int at = 0;
  while (at < 3 && strcmp(norms[at].name, norm) != 0)
    ++at;
  if (rabbet_onnx_ok(node) && (at == 3 || rank < 1 || rank > 2))
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "attribute 'norm' is '%s' and the input has rank %d; "
                     "expected MAX, L1 or L2, and 1 or 2",
                     norm, rank);
  if (!rabbet_onnx_ok(node)) return;
  rabbet_tensor_t* size = at == 1   ? rabbet_onnx_unary(node, "ABS", x)
                          : at == 2 ? rabbet_onnx_binary(node, "PROD", x, x)
                                    : x;
  size =
      rabbet_onnx_reduce(node, norms[at].reduce, size, 1u << (rank - 1), true);
  if (at == 2) size = rabbet_onnx_unary(node, "SQRT", size);
  rabbet_tensor_t* is_zero = rabbet_onnx_with_number(node, "EQUAL", size, 0);
  size = rabbet_onnx_select(
      node, is_zero, rabbet_onnx_number(node, RABBET_DTYPE_FLOAT, rank, 1),
      size);
  node->outputs[0] = rabbet_onnx_binary(node, "DIV", x, size);
}

static void onnx_import_imputer(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  rabbet_dtype_t dtype = rabbet_onnx_dtype_of(node, x);
  rabbet_onnx_ints_t ints = rabbet_onnx_attr_ints(node, "imputed_value_int64s");
  rabbet_tensor_t* imputed = onnx_ml_by_feature(node, "imputed_value_floats");
  double replaced = rabbet_onnx_attr_float(node, "replaced_value_float", 0);
  bool is_integer = rabbet_dtype_is_integer(dtype);
  if (is_integer) {
    replaced = (double)rabbet_onnx_attr_int(node, "replaced_value_int64", 0);
    imputed =
        ints.count ? rabbet_onnx_int64s(node, ints.data, ints.count) : NULL;
  }
  if (rabbet_onnx_ok(node) && !imputed)
    RABBET_ONNX_FAIL(
        node, RABBET_STATUS_INVALID_ARGUMENT, "attribute '%s' is missing",
        is_integer ? "imputed_value_int64s" : "imputed_value_floats");
  rabbet_tensor_t* replaces =
      isnan(replaced) ? rabbet_onnx_unary(node, "ISNAN", x)
                      : rabbet_onnx_with_number(node, "EQUAL", x, replaced);
  rabbet_tensor_t* choices[] = {replaces,
                                rabbet_onnx_cast(node, imputed, dtype), x};
  rabbet_onnx_align(node, choices, 3);
  node->outputs[0] =
      rabbet_onnx_select(node, choices[0], choices[1], choices[2]);
}

static void onnx_import_binarizer(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  rabbet_dtype_t dtype = rabbet_onnx_dtype_of(node, x);
  double threshold = rabbet_onnx_attr_float(node, "threshold", 0);
  x = rabbet_onnx_in_float(node, x);
  node->outputs[0] = rabbet_onnx_cast(
      node, rabbet_onnx_with_number(node, "GREATER", x, threshold), dtype);
}

// Elements of the last axis; a vector becomes a row.
static void onnx_import_feature_extractor(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  rabbet_tensor_t* indices = rabbet_onnx_cast(
      node, rabbet_onnx_flat(node, rabbet_onnx_required(node, 1)),
      RABBET_DTYPE_INT64);
  int rank = rabbet_onnx_rank(node, x);
  if (rank == 1) x = rabbet_onnx_unsqueeze(node, x, 1, ++rank);
  node->outputs[0] = rabbet_onnx_take(node, x, indices, rank - 1);
}

// Inputs side by side, in FLOAT.
static void onnx_import_feature_vectorizer(rabbet_onnx_node_t* node) {
  rabbet_onnx_ints_t widths = rabbet_onnx_attr_ints(node, "inputdimensions");
  if (widths.present)
    rabbet_onnx_ml_check_count(node, "inputdimensions", widths.count,
                               "the list of inputs", node->input_count);
  for (size_t i = 0; i < node->input_count && rabbet_onnx_ok(node); ++i) {
    rabbet_tensor_t* x = rabbet_onnx_cast(node, rabbet_onnx_required(node, i),
                                          RABBET_DTYPE_FLOAT);
    rabbet_dims_t dims = rabbet_onnx_dims(node, x);
    if (dims.rank == 1) x = rabbet_onnx_unsqueeze(node, x, 1, 2);
    int64_t width = dims.rank < 1 ? -1 : dims.d[dims.rank - 1];
    if (rabbet_onnx_ok(node) && widths.present && width >= 0 &&
        width != widths.data[i])
      RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                       "input %zu has %lld columns, and 'inputdimensions' says "
                       "%lld; expected as many",
                       i, (long long)width, (long long)widths.data[i]);
    node->inputs[i] = x;
  }
  node->outputs[0] =
      rabbet_onnx_concat(node, node->inputs, node->input_count, 1);
}

// ---- Linear models ---------------------------------------------------------

// [rows, outputs] = x * coefficients^T + intercepts
static rabbet_tensor_t* onnx_ml_linear(rabbet_onnx_node_t* node,
                                       size_t outputs) {
  rabbet_onnx_floats_t coefficients =
      rabbet_onnx_attr_floats(node, "coefficients");
  rabbet_onnx_floats_t intercepts = rabbet_onnx_attr_floats(node, "intercepts");
  rabbet_tensor_t* x = rabbet_onnx_ml_rows(node, RABBET_DTYPE_FLOAT);
  if (rabbet_onnx_ok(node) &&
      (outputs == 0 || coefficients.count % outputs != 0))
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "there are %zu coefficients for %zu outputs; expected as "
                     "many for each",
                     coefficients.count, outputs);
  if (!rabbet_onnx_ok(node)) return NULL;
  rabbet_onnx_index_t dims[] = {
      rabbet_onnx_index((int64_t)outputs),
      rabbet_onnx_index((int64_t)(coefficients.count / outputs))};
  rabbet_tensor_t* factor = rabbet_onnx_reshape(
      node, rabbet_onnx_ml_row(node, coefficients.data, coefficients.count),
      dims, 2);
  rabbet_tensor_t* y = rabbet_onnx_matmul(node, x, "NONE", factor, "TRANSPOSE");
  if (intercepts.count == 0) return y;
  rabbet_onnx_ml_check_count(node, "intercepts", intercepts.count, "targets",
                             outputs);
  return rabbet_onnx_binary(
      node, "SUM", y,
      rabbet_onnx_ml_row(node, intercepts.data, intercepts.count));
}

// ONNX Runtime transforms a single target by PROBIT alone.
static void onnx_import_linear_regressor(rabbet_onnx_node_t* node) {
  int64_t targets = rabbet_onnx_attr_int(node, "targets", 1);
  rabbet_onnx_transform_t transform = rabbet_onnx_ml_transform(node);
  rabbet_tensor_t* y = onnx_ml_linear(node, targets > 0 ? (size_t)targets : 0);
  if (targets == 1 && transform != RABBET_ONNX_TRANSFORM_PROBIT)
    transform = RABBET_ONNX_TRANSFORM_NONE;
  node->outputs[0] = rabbet_onnx_ml_apply(node, transform, y);
}

static void onnx_import_linear_classifier(rabbet_onnx_node_t* node) {
  rabbet_onnx_labels_t labels = rabbet_onnx_ml_labels(node, "classlabels_ints");
  rabbet_onnx_floats_t intercepts = rabbet_onnx_attr_floats(node, "intercepts");
  rabbet_onnx_transform_t transform = rabbet_onnx_ml_transform(node);
  size_t outputs = intercepts.count ? intercepts.count : labels.count;
  bool both = outputs == 1 && labels.count == 2;
  if (rabbet_onnx_ok(node) && !both && outputs != labels.count)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "there are %zu scores and %zu labels; expected as many, "
                     "or one score and two labels",
                     outputs, labels.count);
  rabbet_tensor_t* scores = onnx_ml_linear(node, outputs);
  if (!rabbet_onnx_ok(node)) return;
  rabbet_onnx_ml_set_labels(node, labels,
                            both ? rabbet_onnx_ml_above(node, scores, 0)
                                 : rabbet_onnx_ml_best(node, scores));
  node->outputs[1] = both ? rabbet_onnx_ml_both(node, transform, true, scores)
                          : rabbet_onnx_ml_apply(node, transform, scores);
}

// ---- Encodings -------------------------------------------------------------

// x with an axis of extent 1 behind it, equal to `keys`: [..., keys].
static rabbet_tensor_t* onnx_ml_equal(rabbet_onnx_node_t* node,
                                      rabbet_tensor_t* x,
                                      rabbet_tensor_t* keys) {
  int rank = rabbet_onnx_rank(node, x);
  x = rabbet_onnx_unsqueeze(node, x, 1u << rank, rank + 1);
  return rabbet_onnx_binary(node, "EQUAL", x, keys);
}

// Runs fail in which a value has no category.
static void onnx_ml_demand_categories(rabbet_onnx_node_t* node,
                                      rabbet_tensor_t* encoded) {
  int rank = rabbet_onnx_rank(node, encoded);
  rabbet_tensor_t* found =
      rabbet_onnx_reduce(node, "MAX", encoded, 1u << (rank - 1), false);
  if (rank > 1)
    found =
        rabbet_onnx_reduce(node, "MIN", found, (1u << (rank - 1)) - 1, false);
  const char* message = NULL;
  rabbet_onnx_fail(node, rabbet_arena_printf(
                             &node->importer->arena, &message,
                             "each value of '%s' is one of the categories of "
                             "node '%s' (OneHotEncoder with zeros = 0)",
                             node->proto->input[0], node->name));
  if (rabbet_onnx_ok(node))
    rabbet_onnx_assert(node, rabbet_onnx_cast(node, found, RABBET_DTYPE_BOOL),
                       message);
}

static void onnx_import_one_hot_encoder(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  rabbet_onnx_ints_t categories = rabbet_onnx_attr_ints(node, "cats_int64s");
  if (rabbet_onnx_ok(node) && categories.count == 0)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "there are no categories in 'cats_int64s'; categories "
                     "that are strings are not imported");
  x = rabbet_onnx_cast(node, x, RABBET_DTYPE_INT64);
  node->outputs[0] = rabbet_onnx_cast(
      node,
      onnx_ml_equal(
          node, x, rabbet_onnx_int64s(node, categories.data, categories.count)),
      RABBET_DTYPE_FLOAT);
  if (rabbet_onnx_ok(node) && rabbet_onnx_attr_int(node, "zeros", 1) == 0)
    onnx_ml_demand_categories(node, node->outputs[0]);
}

// A list of a LabelEncoder, NAME_int64s, NAME_floats or NAME_tensor; NULL where
// it has none, as it is of strings.
static rabbet_tensor_t* onnx_ml_list(rabbet_onnx_node_t* node,
                                     const char* name) {
  char full[32];
  rabbet_onnx_constant_t found;
  snprintf(full, sizeof(full), "%s_int64s", name);
  rabbet_onnx_ints_t ints = rabbet_onnx_attr_ints(node, full);
  if (ints.count) return rabbet_onnx_int64s(node, ints.data, ints.count);
  snprintf(full, sizeof(full), "%s_floats", name);
  rabbet_onnx_floats_t floats = rabbet_onnx_attr_floats(node, full);
  if (floats.count) return rabbet_onnx_ml_row(node, floats.data, floats.count);
  snprintf(full, sizeof(full), "%s_tensor", name);
  const Onnx__TensorProto* tensor = rabbet_onnx_attr_tensor(node, full);
  if (!rabbet_onnx_ok(node) || !tensor) return NULL;
  rabbet_onnx_fail(node, RABBET_ANNOTATE(rabbet_onnx_tensor_read(
                                             node->importer->storage,
                                             node->importer->network->logger,
                                             tensor, &found),
                                         "attribute '%s'", full));
  if (!rabbet_onnx_ok(node)) return NULL;
  return rabbet_onnx_weights(node, found.weights.dtype, found.weights.data,
                             &found.dims);
}

// The value for what is no key, of the values' type.
static rabbet_tensor_t* onnx_ml_default(rabbet_onnx_node_t* node,
                                        rabbet_dtype_t dtype) {
  rabbet_tensor_t* given = onnx_ml_list(node, "default");
  if (given || !rabbet_onnx_ok(node))
    return rabbet_onnx_cast(node, rabbet_onnx_flat(node, given), dtype);
  double number = rabbet_dtype_is_float(dtype)
                      ? rabbet_onnx_attr_float(node, "default_float", -0.0)
                      : (double)rabbet_onnx_attr_int(node, "default_int64", -1);
  return rabbet_onnx_number(node, dtype, 1, number);
}

static void onnx_import_label_encoder(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  rabbet_tensor_t* keys = onnx_ml_list(node, "keys");
  rabbet_tensor_t* values = onnx_ml_list(node, "values");
  if (rabbet_onnx_ok(node) && (!keys || !values))
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "its %s are strings, or there are none; operators on "
                     "strings are not imported",
                     keys ? "values" : "keys");
  rabbet_dtype_t dtype = rabbet_onnx_dtype_of(node, values);
  int rank = rabbet_onnx_rank(node, x);
  if (!rabbet_onnx_ok(node)) return;
  keys = rabbet_onnx_cast(node, keys, rabbet_onnx_dtype_of(node, x));
  rabbet_tensor_t* equal = onnx_ml_equal(node, x, keys);
  if (rabbet_onnx_is_float(node, x)) {  // NaN is a key, too
    rabbet_tensor_t* both[] = {
        rabbet_onnx_unsqueeze(node, rabbet_onnx_unary(node, "ISNAN", x),
                              1u << rank, rank + 1),
        rabbet_onnx_unary(node, "ISNAN", keys)};
    equal = rabbet_onnx_binary(
        node, "OR", equal, rabbet_onnx_binary(node, "AND", both[0], both[1]));
  }
  rabbet_tensor_t* best[2] = {NULL, NULL};
  rabbet_onnx_topk(node, rabbet_onnx_cast(node, equal, RABBET_DTYPE_FLOAT),
                   NULL, 1, rank, true, best);
  rabbet_tensor_t* at = rabbet_onnx_squeeze(
      node, rabbet_onnx_cast(node, best[1], RABBET_DTYPE_INT64), 1u << rank);
  rabbet_tensor_t* choices[] = {
      rabbet_onnx_with_number(
          node, "GREATER", rabbet_onnx_squeeze(node, best[0], 1u << rank), 0.5),
      rabbet_onnx_take(node, rabbet_onnx_flat(node, values), at, 0),
      onnx_ml_default(node, dtype)};
  if (rank > 0) rabbet_onnx_align(node, choices, 3);
  if (rank == 0) choices[2] = rabbet_onnx_squeeze(node, choices[2], 1);
  node->outputs[0] =
      rabbet_onnx_select(node, choices[0], choices[1], choices[2]);
}

RABBET_ONNX_OPERATORS(ml) = {
    RABBET_ONNX_ML_OP(ArrayFeatureExtractor, feature_extractor, "", 1),
    RABBET_ONNX_ML_OP(Binarizer, binarizer, "", 1),
    RABBET_ONNX_ML_OP(FeatureVectorizer, feature_vectorizer, "", 1),
    RABBET_ONNX_ML_OP(Imputer, imputer, "", 1),
    RABBET_ONNX_ML_OP(LabelEncoder, label_encoder, "", 1, 2, 4),
    RABBET_ONNX_ML_OP(LinearClassifier, linear_classifier, "", 1),
    RABBET_ONNX_ML_OP(LinearRegressor, linear_regressor, "", 1),
    RABBET_ONNX_ML_OP(Normalizer, normalizer, "", 1),
    RABBET_ONNX_ML_OP(OneHotEncoder, one_hot_encoder, "", 1),
    RABBET_ONNX_ML_OP(Scaler, scaler, "", 1),
    {0},
};
