// Support vector machines.
#include <math.h>
#include <string.h>

#include "onnx/ml/ml.h"
#include "onnx/operators.h"

// ---- Kernels ---------------------------------------------------------------

typedef struct onnx_svm_t {
  rabbet_tensor_t* x;
  rabbet_onnx_floats_t vectors;  // [supports, features]
  size_t supports;
  float gamma, offset, degree;
} onnx_svm_t;

// A constant [rows, columns] of data [rows, columns], shifted by `less`.
static rabbet_tensor_t* onnx_svm_vectors(rabbet_onnx_node_t* node,
                                         const onnx_svm_t* svm,
                                         const float* less) {
  size_t features = svm->vectors.count / svm->supports;
  rabbet_dims_t dims = {.rank = 2,
                        .d = {(int64_t)svm->supports, (int64_t)features}};
  int64_t count;
  float* data =
      rabbet_onnx_weights_room(node, RABBET_DTYPE_FLOAT, &dims, &count);
  for (size_t i = 0; data && i < svm->vectors.count; ++i)
    data[i] = svm->vectors.data[i] - (less ? less[i % features] : 0);
  return rabbet_onnx_weights(node, RABBET_DTYPE_FLOAT, data, &dims);
}

// exp(-gamma |x - v|^2) for each vector v. The distance is |x|^2 - 2 x v +
// |v|^2; x and v are taken relative to the first vector, so that less cancels.
static rabbet_tensor_t* onnx_svm_radial(rabbet_onnx_node_t* node,
                                        const onnx_svm_t* svm) {
  size_t features = svm->vectors.count / svm->supports;
  const float* first = svm->vectors.data;
  rabbet_tensor_t* x = rabbet_onnx_binary(
      node, "SUB", svm->x, rabbet_onnx_ml_row(node, first, features));
  rabbet_tensor_t* vectors = onnx_svm_vectors(node, svm, first);
  rabbet_tensor_t* product =
      rabbet_onnx_matmul(node, x, "NONE", vectors, "TRANSPOSE");
  rabbet_tensor_t* squares = rabbet_onnx_reduce(
      node, "SUM", rabbet_onnx_binary(node, "PROD", x, x), 1u << 1, true);
  rabbet_tensor_t* of_vectors = rabbet_onnx_reduce(
      node, "SUM", rabbet_onnx_binary(node, "PROD", vectors, vectors), 1u << 1,
      false);
  rabbet_tensor_t* distance = rabbet_onnx_binary(
      node, "SUM",
      rabbet_onnx_binary(node, "SUM", squares,
                         rabbet_onnx_with_number(node, "PROD", product, -2)),
      of_vectors);
  return rabbet_onnx_unary(
      node, "EXP",
      rabbet_onnx_with_number(node, "PROD", distance, -(double)svm->gamma));
}

// The kernel of each row with each vector: [rows, supports].
static rabbet_tensor_t* onnx_svm_kernel(rabbet_onnx_node_t* node,
                                        const onnx_svm_t* svm) {
  const char* type = rabbet_onnx_attr_string(node, "kernel_type", "LINEAR");
  if (!rabbet_onnx_ok(node)) return NULL;
  if (!strcmp(type, "RBF")) return onnx_svm_radial(node, svm);
  rabbet_tensor_t* y = rabbet_onnx_matmul(
      node, svm->x, "NONE", onnx_svm_vectors(node, svm, NULL), "TRANSPOSE");
  if (!strcmp(type, "LINEAR")) return y;
  y = rabbet_onnx_with_number(
      node, "SUM", rabbet_onnx_with_number(node, "PROD", y, (double)svm->gamma),
      (double)svm->offset);
  if (!strcmp(type, "SIGMOID"))
    return rabbet_onnx_activation(node, "TANH", y, 0, 0);
  if (!strcmp(type, "POLY"))
    return rabbet_onnx_with_number(node, "POW", y, (double)svm->degree);
  RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                   "attribute 'kernel_type' is '%s'; expected LINEAR, POLY, "
                   "RBF or SIGMOID",
                   type);
  return NULL;
}

static onnx_svm_t onnx_svm(rabbet_onnx_node_t* node, int64_t supports) {
  rabbet_onnx_floats_t parameters =
      rabbet_onnx_attr_floats(node, "kernel_params");
  onnx_svm_t svm = {.x = rabbet_onnx_ml_rows(node, RABBET_DTYPE_FLOAT),
                    .vectors = rabbet_onnx_attr_floats(node, "support_vectors"),
                    .supports = supports > 0 ? (size_t)supports : 0};
  if (parameters.count >= 3) {
    svm.gamma = parameters.data[0];
    svm.offset = parameters.data[1];
    svm.degree = parameters.data[2];
  }
  if (rabbet_onnx_ok(node) && svm.supports > 0 &&
      (svm.vectors.count == 0 || svm.vectors.count % svm.supports != 0))
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "attribute 'support_vectors' has %zu numbers for %zu "
                     "vectors; expected as many for each",
                     svm.vectors.count, svm.supports);
  return svm;
}

// ---- Regression ------------------------------------------------------------

static void onnx_import_svm_regressor(rabbet_onnx_node_t* node) {
  int64_t supports = rabbet_onnx_attr_int(node, "n_supports", 0);
  rabbet_onnx_floats_t coefficients =
      rabbet_onnx_attr_floats(node, "coefficients");
  rabbet_onnx_floats_t rho = rabbet_onnx_attr_floats(node, "rho");
  onnx_svm_t svm = onnx_svm(node, supports);
  if (rabbet_onnx_ok(node) &&
      rabbet_onnx_ml_transform(node) != RABBET_ONNX_TRANSFORM_NONE)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "attribute 'post_transform' of a support vector machine "
                     "must be NONE");
  if (svm.supports > 0)
    rabbet_onnx_ml_check_count(node, "coefficients", coefficients.count,
                               "n_supports", svm.supports);
  rabbet_tensor_t* kernel =
      svm.supports > 0 ? onnx_svm_kernel(node, &svm) : svm.x;
  rabbet_tensor_t* weights = rabbet_onnx_unsqueeze(
      node, rabbet_onnx_ml_row(node, coefficients.data, coefficients.count),
      1u << 1, 2);
  rabbet_tensor_t* y =
      rabbet_onnx_matmul(node, kernel, "NONE", weights, "NONE");
  if (rho.count > 0)
    y = rabbet_onnx_with_number(node, "SUM", y, (double)rho.data[0]);
  if (rabbet_onnx_attr_int(node, "one_class", 0) != 0) {
    rabbet_tensor_t* above = rabbet_onnx_with_number(node, "GREATER", y, 0);
    y = rabbet_onnx_select(node, above,
                           rabbet_onnx_number(node, RABBET_DTYPE_FLOAT, 2, 1),
                           rabbet_onnx_number(node, RABBET_DTYPE_FLOAT, 2, -1));
  }
  node->outputs[0] = y;
}

// ---- Classification --------------------------------------------------------

// `pairs` classifiers, each of which tells one class i from one class j > i:
// (0, 1), (0, 2), ..., (1, 2), ...
typedef struct onnx_svm_classes_t {
  size_t count, pairs;
  rabbet_onnx_ints_t supports;  // vectors of each class
  rabbet_onnx_floats_t coefficients, rho;
} onnx_svm_classes_t;

// A constant [rows, columns], zeroed; *out_data is to be filled.
static rabbet_tensor_t* onnx_svm_constant(rabbet_onnx_node_t* node, size_t rows,
                                          size_t columns, float** out_data) {
  const rabbet_dims_t dims = {.rank = 2,
                              .d = {(int64_t)rows, (int64_t)columns}};
  int64_t count;
  *out_data = rabbet_onnx_weights_room(node, RABBET_DTYPE_FLOAT, &dims, &count);
  return *out_data
             ? rabbet_onnx_weights(node, RABBET_DTYPE_FLOAT, *out_data, &dims)
             : NULL;
}

// The column of a pair: coefficients of the vectors of both classes. Row j - 1
// of the attribute has those of class i against j, row i those of class j
// against i.
static void onnx_svm_pair(const onnx_svm_classes_t* c, size_t vectors, size_t i,
                          size_t j, float* column) {
  size_t at = 0;
  for (size_t k = 0; k < c->count; ++k)
    for (int64_t v = 0; v < c->supports.data[k]; ++v, ++at)
      if (k == i || k == j)
        column[at * c->pairs] =
            c->coefficients.data[(k == i ? j - 1 : i) * vectors + at];
}

// [rows, pairs]: above 0 for the first class of a pair.
static rabbet_tensor_t* onnx_svm_decisions(rabbet_onnx_node_t* node,
                                           const onnx_svm_t* svm,
                                           const onnx_svm_classes_t* c) {
  float* weights;
  rabbet_tensor_t* factor =
      onnx_svm_constant(node, svm->supports, c->pairs, &weights);
  size_t pair = 0;
  for (size_t i = 0; factor && i + 1 < c->count; ++i)
    for (size_t j = i + 1; j < c->count; ++j, ++pair)
      onnx_svm_pair(c, svm->supports, i, j, weights + pair);
  rabbet_tensor_t* y = rabbet_onnx_matmul(node, onnx_svm_kernel(node, svm),
                                          "NONE", factor, "NONE");
  return rabbet_onnx_binary(node, "SUM", y,
                            rabbet_onnx_ml_row(node, c->rho.data, c->pairs));
}

// [rows, classes]: the number of pairs that decide for a class.
static rabbet_tensor_t* onnx_svm_votes(rabbet_onnx_node_t* node,
                                       const onnx_svm_classes_t* c,
                                       rabbet_tensor_t* decisions) {
  float *turn, *second;
  rabbet_tensor_t* factor = onnx_svm_constant(node, c->pairs, c->count, &turn);
  rabbet_tensor_t* all = onnx_svm_constant(node, 1, c->count, &second);
  size_t pair = 0;
  for (size_t i = 0; rabbet_onnx_ok(node) && i + 1 < c->count; ++i)
    for (size_t j = i + 1; j < c->count; ++j, ++pair) {
      turn[pair * c->count + i] = 1;
      turn[pair * c->count + j] = -1;
      second[j] += 1;
    }
  rabbet_tensor_t* first = rabbet_onnx_cast(
      node, rabbet_onnx_with_number(node, "GREATER", decisions, 0),
      RABBET_DTYPE_FLOAT);
  return rabbet_onnx_binary(
      node, "SUM", rabbet_onnx_matmul(node, first, "NONE", factor, "NONE"),
      all);
}

// ---- Probabilities ---------------------------------------------------------

// Row or column `at` of matrices [rows, k, k] or columns [rows, k, 1].
static rabbet_tensor_t* onnx_svm_line(rabbet_onnx_node_t* node,
                                      rabbet_tensor_t* x, int axis, size_t at) {
  rabbet_onnx_slice_t slice = rabbet_onnx_slice_all(node, x);
  slice.start[axis] = rabbet_onnx_index((int64_t)at);
  slice.size[axis] = rabbet_onnx_index(1);
  return rabbet_onnx_ok(node) ? rabbet_onnx_slice(node, x, &slice) : NULL;
}

// r [rows, k, k]: how probable class i is where it is i or j; 0 where i is j.
static rabbet_tensor_t* onnx_svm_pairwise(rabbet_onnx_node_t* node,
                                          const onnx_svm_classes_t* c,
                                          rabbet_tensor_t* decisions) {
  const float least = 1e-7f;
  rabbet_onnx_floats_t a = rabbet_onnx_attr_floats(node, "prob_a");
  rabbet_onnx_floats_t b = rabbet_onnx_attr_floats(node, "prob_b");
  rabbet_onnx_ml_check_count(node, "prob_a", a.count, "rho", c->pairs);
  rabbet_onnx_ml_check_count(node, "prob_b", b.count, "rho", c->pairs);
  if (!rabbet_onnx_ok(node)) return NULL;
  rabbet_tensor_t* first = rabbet_onnx_binary(
      node, "SUM",
      rabbet_onnx_binary(node, "PROD", decisions,
                         rabbet_onnx_ml_row(node, a.data, a.count)),
      rabbet_onnx_ml_row(node, b.data, b.count));
  first = rabbet_onnx_activation(node, "SIGMOID",
                                 rabbet_onnx_unary(node, "NEG", first), 0, 0);
  first = rabbet_onnx_activation(node, "CLIP", first, least, 1 - least);
  // r = first * turn + second: `first` above the diagonal, 1 - first below.
  float *turn, *second;
  size_t places = c->count * c->count, pair = 0;
  rabbet_tensor_t* factor = onnx_svm_constant(node, c->pairs, places, &turn);
  rabbet_tensor_t* below = onnx_svm_constant(node, 1, places, &second);
  for (size_t i = 0; rabbet_onnx_ok(node) && i + 1 < c->count; ++i)
    for (size_t j = i + 1; j < c->count; ++j, ++pair) {
      turn[pair * places + i * c->count + j] = 1;
      turn[pair * places + j * c->count + i] = -1;
      second[j * c->count + i] = 1;
    }
  rabbet_tensor_t* r = rabbet_onnx_binary(
      node, "SUM", rabbet_onnx_matmul(node, first, "NONE", factor, "NONE"),
      below);
  const rabbet_onnx_index_t dims[] = {rabbet_onnx_extent(node, r, 0),
                                      rabbet_onnx_index((int64_t)c->count),
                                      rabbet_onnx_index((int64_t)c->count)};
  return rabbet_onnx_reshape(node, r, dims, 3);
}

// Q [rows, k, k]: Q_ii is the sum of r_ji^2, Q_ij = -r_ji r_ij.
static rabbet_tensor_t* onnx_svm_quadratic(rabbet_onnx_node_t* node,
                                           const onnx_svm_classes_t* c,
                                           rabbet_tensor_t* r) {
  static const int64_t turned[] = {0, 2, 1};
  float* unit;
  rabbet_tensor_t* other = rabbet_onnx_transpose(node, r, turned);
  rabbet_tensor_t* squares = rabbet_onnx_reduce(
      node, "SUM", rabbet_onnx_binary(node, "PROD", r, r), 1u << 1, true);
  rabbet_tensor_t* eye = onnx_svm_constant(node, c->count, c->count, &unit);
  for (size_t i = 0; eye && i < c->count; ++i)
    unit[i * c->count + i] = 1;
  return rabbet_onnx_binary(node, "SUB",
                            rabbet_onnx_binary(node, "PROD", squares, eye),
                            rabbet_onnx_binary(node, "PROD", r, other));
}

// An iterate p and what follows from it; columns [rows, k, 1] and numbers
// [rows, 1, 1].
typedef struct onnx_svm_iterate_t {
  rabbet_tensor_t *p, *qp, *pqp;
} onnx_svm_iterate_t;

static onnx_svm_iterate_t onnx_svm_iterate(rabbet_onnx_node_t* node,
                                           rabbet_tensor_t* q,
                                           rabbet_tensor_t* p) {
  rabbet_tensor_t* qp = rabbet_onnx_matmul(node, q, "NONE", p, "NONE");
  rabbet_tensor_t* pqp = rabbet_onnx_reduce(
      node, "SUM", rabbet_onnx_binary(node, "PROD", p, qp), 1u << 1, true);
  return (onnx_svm_iterate_t){p, qp, pqp};
}

// Minimizes p'Qp along coordinate `at`, and scales p back to the sum 1.
static void onnx_svm_descend(rabbet_onnx_node_t* node, size_t classes,
                             rabbet_tensor_t* q, size_t at,
                             onnx_svm_iterate_t* x) {
  float* unit;
  rabbet_tensor_t* own = onnx_svm_constant(node, classes, 1, &unit);
  if (own) unit[at] = 1;
  rabbet_tensor_t* column = onnx_svm_line(node, q, 2, at);
  rabbet_tensor_t* pivot = onnx_svm_line(node, column, 1, at);
  rabbet_tensor_t* slope = onnx_svm_line(node, x->qp, 1, at);
  rabbet_tensor_t* step = rabbet_onnx_binary(
      node, "DIV", rabbet_onnx_binary(node, "SUB", x->pqp, slope), pivot);
  rabbet_tensor_t* sum = rabbet_onnx_with_number(node, "SUM", step, 1);
  rabbet_tensor_t* more = rabbet_onnx_binary(
      node, "SUM", rabbet_onnx_binary(node, "PROD", step, pivot),
      rabbet_onnx_with_number(node, "PROD", slope, 2));
  rabbet_tensor_t* moved[] = {
      rabbet_onnx_binary(node, "PROD", step, own),
      rabbet_onnx_binary(node, "PROD", step, column),
      rabbet_onnx_binary(node, "PROD", step, more),
  };
  rabbet_tensor_t** parts[] = {&x->p, &x->qp, &x->pqp};
  for (size_t i = 0; i < 3; ++i)
    *parts[i] = rabbet_onnx_binary(
        node, "DIV", rabbet_onnx_binary(node, "SUM", *parts[i], moved[i]), sum);
  x->pqp = rabbet_onnx_binary(node, "DIV", x->pqp, sum);
}

static rabbet_tensor_t* onnx_svm_state(rabbet_onnx_node_t* node,
                                       rabbet_loop_t* loop,
                                       rabbet_tensor_t* initial,
                                       rabbet_layer_t** out_layer) {
  if (rabbet_onnx_ok(node))
    rabbet_onnx_fail(node,
                     rabbet_loop_add_recurrence(loop, initial, out_layer));
  return rabbet_onnx_ok(node) ? rabbet_layer_output(*out_layer, 0) : NULL;
}

// The p of sum 1 that minimizes p'Qp (Wu, Lin and Weng, 2004) as libsvm and
// ONNX Runtime approximate it: p begins with equal parts, and a row stops at
// the first iteration in which its gradient is nearly even.
static rabbet_tensor_t* onnx_svm_minimum(rabbet_onnx_node_t* node,
                                         size_t classes, rabbet_tensor_t* q) {
  enum { MOST_ITERATIONS = 100 };
  const float tolerance = 0.005f / (float)classes;
  rabbet_loop_t* loop = NULL;
  rabbet_layer_t *p_state = NULL, *moves_state = NULL, *layer = NULL;
  rabbet_tensor_t* first = onnx_svm_line(node, q, 2, 0);
  first = rabbet_onnx_with_number(
      node, "SUM", rabbet_onnx_with_number(node, "PROD", first, 0),
      (double)(1 / (float)classes));
  rabbet_tensor_t* most =
      rabbet_onnx_number(node, RABBET_DTYPE_INT64, 0, MOST_ITERATIONS);
  rabbet_tensor_t* yes = rabbet_onnx_number(node, RABBET_DTYPE_BOOL, 0, 1);
  if (rabbet_onnx_ok(node))
    rabbet_onnx_fail(node, rabbet_network_add_loop(node->importer->network,
                                                   node->name, &loop));
  if (!rabbet_onnx_ok(node)) return NULL;
  loop->outer = node->scope->loop;
  rabbet_onnx_fail(node, rabbet_loop_add_trip_limit(
                             loop, most, RABBET_TRIP_LIMIT_COUNT, &layer));
  rabbet_tensor_t* p = onnx_svm_state(node, loop, first, &p_state);
  rabbet_tensor_t* moves = onnx_svm_state(node, loop, yes, &moves_state);
  if (rabbet_onnx_ok(node))
    rabbet_onnx_fail(node, rabbet_loop_add_trip_limit(
                               loop, moves, RABBET_TRIP_LIMIT_WHILE, &layer));
  onnx_svm_iterate_t x = onnx_svm_iterate(node, q, p);
  rabbet_tensor_t* gap = rabbet_onnx_reduce(
      node, "MAX",
      rabbet_onnx_unary(node, "ABS",
                        rabbet_onnx_binary(node, "SUB", x.qp, x.pqp)),
      1u << 1, true);
  const double below = (double)nextafterf(tolerance, 0);
  for (size_t i = 0; i < classes && rabbet_onnx_ok(node); ++i)
    onnx_svm_descend(node, classes, q, i, &x);
  rabbet_tensor_t* next[] = {
      rabbet_onnx_select(
          node, rabbet_onnx_with_number(node, "GREATER", gap, below), x.p, p),
      rabbet_onnx_with_number(node, "GREATER",
                              rabbet_onnx_reduce(node, "MAX", gap, 7, false),
                              below)};
  if (rabbet_onnx_ok(node))
    rabbet_onnx_fail(node, rabbet_layer_set_input(p_state, 1, next[0]));
  if (rabbet_onnx_ok(node))
    rabbet_onnx_fail(node, rabbet_layer_set_input(moves_state, 1, next[1]));
  if (rabbet_onnx_ok(node))
    rabbet_onnx_fail(
        node, rabbet_loop_add_output(loop, p, RABBET_LOOP_OUTPUT_LAST_VALUE, 0,
                                     &layer));
  return rabbet_onnx_ok(node) ? rabbet_layer_output(layer, 0) : NULL;
}

// [rows, classes].
static rabbet_tensor_t* onnx_svm_probabilities(rabbet_onnx_node_t* node,
                                               const onnx_svm_classes_t* c,
                                               rabbet_tensor_t* decisions) {
  rabbet_tensor_t* q =
      onnx_svm_quadratic(node, c, onnx_svm_pairwise(node, c, decisions));
  return rabbet_onnx_squeeze(node, onnx_svm_minimum(node, c->count, q),
                             1u << 2);
}

// ---- SVMClassifier ---------------------------------------------------------

static void onnx_svm_check_classes(rabbet_onnx_node_t* node,
                                   const onnx_svm_classes_t* c,
                                   size_t vectors) {
  // Each class is one step of an iteration.
  enum { MOST = 128 };
  if (rabbet_onnx_ok(node) && (c->count < 2 || c->count > MOST))
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "there are %zu labels; expected 2 to %d", c->count, MOST);
  rabbet_onnx_ml_check_count(node, "vectors_per_class", c->supports.count,
                             "classlabels", c->count);
  rabbet_onnx_ml_check_count(node, "rho", c->rho.count, "the list of pairs",
                             c->pairs);
  rabbet_onnx_ml_check_count(node, "coefficients", c->coefficients.count,
                             "the list of vectors and other classes",
                             vectors * (c->count - 1));
}

// Scores as ONNX Runtime has them: probabilities, or the decisions, whose
// single one of two classes stands for both.
static rabbet_tensor_t* onnx_svm_scores(rabbet_onnx_node_t* node,
                                        const onnx_svm_classes_t* c,
                                        rabbet_tensor_t* decisions) {
  rabbet_onnx_transform_t transform = rabbet_onnx_ml_transform(node);
  if (rabbet_onnx_has_attr(node, "prob_a"))
    return rabbet_onnx_ml_apply(node, transform,
                                onnx_svm_probabilities(node, c, decisions));
  if (c->count > 2) return rabbet_onnx_ml_apply(node, transform, decisions);
  bool is_plain = transform == RABBET_ONNX_TRANSFORM_NONE;
  return rabbet_onnx_ml_both(node, transform, !is_plain, decisions);
}

static void onnx_svm_with_vectors(rabbet_onnx_node_t* node,
                                  rabbet_onnx_labels_t labels,
                                  rabbet_onnx_ints_t supports) {
  int64_t vectors = 0;
  for (size_t i = 0; i < supports.count; ++i) {
    if (supports.data[i] < 0 || supports.data[i] > INT32_MAX)
      RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                       "attribute 'vectors_per_class' has %lld; expected 0 or "
                       "more",
                       (long long)supports.data[i]);
    if (!rabbet_onnx_ok(node)) return;
    vectors += supports.data[i];
  }
  if (vectors == 0) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "attribute 'vectors_per_class' has %zu zeros; expected 1 "
                     "vector or more",
                     supports.count);
    return;
  }
  onnx_svm_classes_t c = {
      .count = labels.count,
      .pairs = labels.count * (labels.count - 1) / 2,
      .supports = supports,
      .coefficients = rabbet_onnx_attr_floats(node, "coefficients"),
      .rho = rabbet_onnx_attr_floats(node, "rho")};
  onnx_svm_t svm = onnx_svm(node, vectors);
  onnx_svm_check_classes(node, &c, svm.supports);
  if (!rabbet_onnx_ok(node)) return;
  rabbet_tensor_t* decisions = onnx_svm_decisions(node, &svm, &c);
  rabbet_onnx_ml_set_labels(
      node, labels,
      rabbet_onnx_ml_best(node, onnx_svm_votes(node, &c, decisions)));
  node->outputs[1] = onnx_svm_scores(node, &c, decisions);
}

// Without vectors: a score of each class. Of two classes, ONNX Runtime takes
// the second where the greater score is positive, or 0.5 and more if no
// coefficient is negative.
static void onnx_svm_linear(rabbet_onnx_node_t* node,
                            rabbet_onnx_labels_t labels) {
  rabbet_onnx_floats_t rho = rabbet_onnx_attr_floats(node, "rho");
  onnx_svm_t svm = {.x = rabbet_onnx_ml_rows(node, RABBET_DTYPE_FLOAT),
                    .vectors = rabbet_onnx_attr_floats(node, "coefficients"),
                    .supports = labels.count};
  if (rabbet_onnx_ok(node) &&
      (labels.count < 2 || rho.count == 0 || svm.vectors.count == 0 ||
       svm.vectors.count % labels.count != 0))
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "there are %zu labels, %zu coefficients and %zu numbers "
                     "in 'rho'; expected 2 labels or more, as many "
                     "coefficients for each, and 1 number",
                     labels.count, svm.vectors.count, rho.count);
  if (!rabbet_onnx_ok(node)) return;
  rabbet_tensor_t* scores = rabbet_onnx_matmul(
      node, svm.x, "NONE", onnx_svm_vectors(node, &svm, NULL), "TRANSPOSE");
  scores = rabbet_onnx_with_number(node, "SUM", scores, (double)rho.data[0]);
  rabbet_tensor_t* best = rabbet_onnx_ml_best(node, scores);
  if (labels.count == 2 && !rabbet_onnx_has_attr(node, "prob_a")) {
    bool is_negative = false;
    for (size_t i = 0; i < svm.vectors.count; ++i)
      is_negative = is_negative || svm.vectors.data[i] < 0;
    rabbet_tensor_t* most =
        rabbet_onnx_reduce(node, "MAX", scores, 1u << 1, true);
    rabbet_tensor_t* second = rabbet_onnx_ml_above(
        node, most, is_negative ? 0 : (double)nextafterf(0.5f, 0));
    best = rabbet_onnx_binary(node, "MAX", best, second);
  }
  rabbet_onnx_ml_set_labels(node, labels, best);
  node->outputs[1] =
      rabbet_onnx_ml_apply(node, rabbet_onnx_ml_transform(node), scores);
}

static void onnx_import_svm_classifier(rabbet_onnx_node_t* node) {
  rabbet_onnx_labels_t labels = rabbet_onnx_ml_labels(node, "classlabels_ints");
  rabbet_onnx_ints_t supports =
      rabbet_onnx_attr_ints(node, "vectors_per_class");
  if (!rabbet_onnx_ok(node)) return;
  if (supports.count > 0)
    onnx_svm_with_vectors(node, labels, supports);
  else
    onnx_svm_linear(node, labels);
}

RABBET_ONNX_OPERATORS(ml_svm) = {
    RABBET_ONNX_ML_OP(SVMClassifier, svm_classifier, "", 1),
    RABBET_ONNX_ML_OP(SVMRegressor, svm_regressor, "", 1),
    {0},
};
