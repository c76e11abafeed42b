#include "onnx/ml/ml.h"

#include <stdio.h>
#include <string.h>

// ---- Attributes ------------------------------------------------------------

void rabbet_onnx_ml_check_count(rabbet_onnx_node_t* node, const char* name,
                                size_t found, const char* of, size_t expected) {
  if (found != expected && rabbet_onnx_ok(node))
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "attribute '%s' has %zu elements; expected %zu, as '%s' "
                     "has",
                     name, found, expected, of);
}

// Room for numbers, which are counted as those of files are.
static double* onnx_ml_room(rabbet_onnx_node_t* node, size_t count) {
  void* room = NULL;
  if (rabbet_onnx_ok(node))
    rabbet_onnx_fail(node,
                     rabbet_arena_allocate_array(&node->importer->arena, count,
                                                 sizeof(double), &room));
  return rabbet_onnx_ok(node) ? room : NULL;
}

rabbet_onnx_ml_numbers_t rabbet_onnx_ml_tensor(rabbet_onnx_node_t* node,
                                               const char* name) {
  rabbet_onnx_ml_numbers_t none = {0};
  rabbet_onnx_constant_t found;
  const Onnx__TensorProto* tensor = rabbet_onnx_attr_tensor(node, name);
  if (!tensor || !rabbet_onnx_ok(node)) return none;
  rabbet_onnx_fail(node, RABBET_ANNOTATE(rabbet_onnx_tensor_read(
                                             node->importer->storage,
                                             node->importer->network->logger,
                                             tensor, &found),
                                         "attribute '%s'", name));
  if (!rabbet_onnx_ok(node)) return none;
  size_t count = (size_t)found.weights.count;
  double* data = onnx_ml_room(node, count);
  for (size_t i = 0; data && i < count; ++i)
    data[i] =
        rabbet_load_double(found.weights.dtype, found.weights.data, (int64_t)i);
  return data ? (rabbet_onnx_ml_numbers_t){count, data} : none;
}

rabbet_onnx_ml_numbers_t rabbet_onnx_ml_numbers(rabbet_onnx_node_t* node,
                                                const char* name) {
  char as_tensor[64];
  rabbet_onnx_floats_t found = rabbet_onnx_attr_floats(node, name);
  snprintf(as_tensor, sizeof(as_tensor), "%s_as_tensor", name);
  if (found.count == 0) return rabbet_onnx_ml_tensor(node, as_tensor);
  double* data = onnx_ml_room(node, found.count);
  for (size_t i = 0; data && i < found.count; ++i)
    data[i] = (double)found.data[i];
  return data ? (rabbet_onnx_ml_numbers_t){found.count, data}
              : (rabbet_onnx_ml_numbers_t){0};
}

rabbet_tensor_t* rabbet_onnx_ml_number_row(rabbet_onnx_node_t* node,
                                           rabbet_dtype_t dtype,
                                           const double* data, size_t count) {
  rabbet_dims_t dims = {.rank = 1, .d = {(int64_t)count}};
  int64_t room;
  void* copy = rabbet_onnx_weights_room(node, dtype, &dims, &room);
  for (size_t i = 0; copy && i < count; ++i)
    rabbet_store_double(dtype, copy, (int64_t)i, data[i]);
  return rabbet_onnx_weights(node, dtype, copy, &dims);
}

rabbet_tensor_t* rabbet_onnx_ml_row(rabbet_onnx_node_t* node, const float* data,
                                    size_t count) {
  rabbet_dims_t dims = {.rank = 1, .d = {(int64_t)count}};
  int64_t room;
  float* copy =
      rabbet_onnx_weights_room(node, RABBET_DTYPE_FLOAT, &dims, &room);
  if (copy && count > 0) memcpy(copy, data, count * sizeof(float));
  return rabbet_onnx_weights(node, RABBET_DTYPE_FLOAT, copy, &dims);
}

// ---- Rows ------------------------------------------------------------------

rabbet_tensor_t* rabbet_onnx_ml_rows(rabbet_onnx_node_t* node,
                                     rabbet_dtype_t dtype) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  int rank = rabbet_onnx_rank(node, x);
  if (rabbet_onnx_ok(node) && rank != 1 && rank != 2)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "input 0 ('X') has rank %d; expected 1 or 2", rank);
  x = rabbet_onnx_cast(node, x, dtype);
  return rank == 1 ? rabbet_onnx_unsqueeze(node, x, 1, 2) : x;
}

// ---- Scores ----------------------------------------------------------------

rabbet_onnx_transform_t rabbet_onnx_ml_transform(rabbet_onnx_node_t* node) {
  static const char* const names[] = {"NONE", "SOFTMAX", "LOGISTIC",
                                      "SOFTMAX_ZERO", "PROBIT"};
  const char* name = rabbet_onnx_attr_string(node, "post_transform", "NONE");
  for (int i = 0; i < 5; ++i)
    if (!strcmp(name, names[i])) return (rabbet_onnx_transform_t)i;
  if (rabbet_onnx_ok(node))
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "attribute 'post_transform' is '%s'; expected NONE, "
                     "SOFTMAX, LOGISTIC, SOFTMAX_ZERO or PROBIT",
                     name);
  return RABBET_ONNX_TRANSFORM_NONE;
}

// The quantile of the normal distribution, by the approximation of erf's
// inverse that ONNX Runtime has.
static rabbet_tensor_t* onnx_ml_probit(rabbet_onnx_node_t* node,
                                       rabbet_tensor_t* x) {
  const double a = 0.147f, pi = 3.14159f;
  rabbet_tensor_t* t = rabbet_onnx_with_number(
      node, "SUB", rabbet_onnx_with_number(node, "PROD", x, 2), 1);
  rabbet_tensor_t* one =
      rabbet_onnx_number(node, rabbet_onnx_dtype_of(node, x), 2, 1);
  rabbet_tensor_t* log = rabbet_onnx_unary(
      node, "LOG",
      rabbet_onnx_binary(node, "PROD", rabbet_onnx_binary(node, "SUB", one, t),
                         rabbet_onnx_with_number(node, "SUM", t, 1)));
  rabbet_tensor_t* v = rabbet_onnx_with_number(
      node, "SUM", rabbet_onnx_with_number(node, "PROD", log, 0.5),
      2 / (pi * a));
  rabbet_tensor_t* inner =
      rabbet_onnx_binary(node, "SUB", rabbet_onnx_binary(node, "PROD", v, v),
                         rabbet_onnx_with_number(node, "PROD", log, 1 / a));
  rabbet_tensor_t* root = rabbet_onnx_unary(
      node, "SQRT",
      rabbet_onnx_binary(node, "SUB", rabbet_onnx_unary(node, "SQRT", inner),
                         v));
  return rabbet_onnx_with_number(
      node, "PROD",
      rabbet_onnx_binary(node, "PROD", rabbet_onnx_unary(node, "SIGN", t),
                         root),
      1.41421356f);
}

// Softmax of the scores that are not zero; the others stay (almost) zero.
static rabbet_tensor_t* onnx_ml_softmax_zero(rabbet_onnx_node_t* node,
                                             rabbet_tensor_t* x) {
  rabbet_tensor_t* most = rabbet_onnx_reduce(node, "MAX", x, 1u << 1, true);
  rabbet_tensor_t* power =
      rabbet_onnx_unary(node, "EXP", rabbet_onnx_binary(node, "SUB", x, most));
  rabbet_tensor_t* counts = rabbet_onnx_with_number(
      node, "GREATER", rabbet_onnx_unary(node, "ABS", x), 1e-7f);
  rabbet_tensor_t* zero =
      rabbet_onnx_number(node, rabbet_onnx_dtype_of(node, x), 2, 0);
  rabbet_tensor_t* sum = rabbet_onnx_reduce(
      node, "SUM", rabbet_onnx_select(node, counts, power, zero), 1u << 1,
      true);
  rabbet_tensor_t* small = rabbet_onnx_binary(
      node, "PROD", x,
      rabbet_onnx_unary(node, "EXP", rabbet_onnx_unary(node, "NEG", most)));
  return rabbet_onnx_binary(
      node, "DIV", rabbet_onnx_select(node, counts, power, small), sum);
}

rabbet_tensor_t* rabbet_onnx_ml_apply(rabbet_onnx_node_t* node,
                                      rabbet_onnx_transform_t transform,
                                      rabbet_tensor_t* scores) {
  switch (transform) {
    case RABBET_ONNX_TRANSFORM_SOFTMAX:
      return rabbet_onnx_softmax(node, scores, 1);
    case RABBET_ONNX_TRANSFORM_LOGISTIC:
      return rabbet_onnx_activation(node, "SIGMOID", scores, 0, 0);
    case RABBET_ONNX_TRANSFORM_SOFTMAX_ZERO:
      return onnx_ml_softmax_zero(node, scores);
    case RABBET_ONNX_TRANSFORM_PROBIT:
      return onnx_ml_probit(node, scores);
    case RABBET_ONNX_TRANSFORM_NONE:
      break;
  }
  return scores;
}

// ---- Labels ----------------------------------------------------------------

static bool onnx_ml_graph_reads(const Onnx__GraphProto* graph,
                                const char* name);

// Graphs within the node may read the tensors of graphs around them.
static bool onnx_ml_node_reads(const Onnx__NodeProto* node, const char* name) {
  for (size_t i = 0; i < node->n_input; ++i)
    if (!strcmp(node->input[i], name)) return true;
  for (size_t i = 0; i < node->n_attribute; ++i) {
    const Onnx__AttributeProto* attr = node->attribute[i];
    if (attr->g && onnx_ml_graph_reads(attr->g, name)) return true;
    for (size_t k = 0; k < attr->n_graphs; ++k)
      if (onnx_ml_graph_reads(attr->graphs[k], name)) return true;
  }
  return false;
}

static bool onnx_ml_graph_reads(const Onnx__GraphProto* graph,
                                const char* name) {
  for (size_t i = 0; i < graph->n_output; ++i)
    if (!strcmp(graph->output[i]->name, name)) return true;
  for (size_t i = 0; i < graph->n_node; ++i)
    if (onnx_ml_node_reads(graph->node[i], name)) return true;
  return false;
}

bool rabbet_onnx_ml_is_read(const rabbet_onnx_node_t* node, const char* name,
                            bool as_output) {
  const Onnx__GraphProto* graph = node->importer->model->graph;
  if (!name[0]) return false;
  if (node->scope->depth > 0) return true;
  for (size_t i = 0; as_output && i < graph->n_output; ++i)
    if (!strcmp(graph->output[i]->name, name)) return true;
  for (size_t i = 0; i < node->scope->node_count; ++i)
    if (onnx_ml_node_reads(node->scope->nodes[i], name)) return true;
  return false;
}

rabbet_onnx_labels_t rabbet_onnx_ml_labels(rabbet_onnx_node_t* node,
                                           const char* ints) {
  rabbet_onnx_ints_t numbers = rabbet_onnx_attr_ints(node, ints);
  const Onnx__AttributeProto* strings =
      rabbet_onnx_attr(node, "classlabels_strings");
  if (numbers.count || !strings || strings->n_strings == 0)
    return (rabbet_onnx_labels_t){numbers.count, numbers.data};
  if (rabbet_onnx_wants(node, 0) &&
      rabbet_onnx_ml_is_read(node, node->proto->output[0], true))
    RABBET_ONNX_FAIL(
        node, RABBET_STATUS_UNSUPPORTED,
        "output 0 ('%s') holds labels that are strings, which tensors of "
        "networks cannot hold; train with labels that are numbers, export "
        "positions in their place (skl2onnx: options={'nocl': True}), or "
        "remove this output from the model and keep the scores",
        node->proto->output[0]);
  return (rabbet_onnx_labels_t){strings->n_strings, NULL};
}

void rabbet_onnx_ml_set_labels(rabbet_onnx_node_t* node,
                               rabbet_onnx_labels_t labels,
                               rabbet_tensor_t* positions) {
  if (!rabbet_onnx_wants(node, 0)) return;
  // Without a reader, the positions may stand for labels that are strings.
  node->outputs[0] =
      labels.numbers
          ? rabbet_onnx_take(
                node, rabbet_onnx_int64s(node, labels.numbers, labels.count),
                positions, 0)
          : positions;
}

rabbet_tensor_t* rabbet_onnx_ml_best(rabbet_onnx_node_t* node,
                                     rabbet_tensor_t* scores) {
  rabbet_tensor_t* outputs[2] = {NULL, NULL};
  rabbet_onnx_topk(node, scores, NULL, 1, 1, true, outputs);
  return rabbet_onnx_squeeze(
      node, rabbet_onnx_cast(node, outputs[1], RABBET_DTYPE_INT64), 1u << 1);
}

rabbet_tensor_t* rabbet_onnx_ml_both(rabbet_onnx_node_t* node,
                                     rabbet_onnx_transform_t transform,
                                     bool is_probability,
                                     rabbet_tensor_t* score) {
  rabbet_tensor_t* scores[] = {NULL, score};
  if (transform == RABBET_ONNX_TRANSFORM_PROBIT && rabbet_onnx_ok(node))
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "post_transform PROBIT of two classes with the weights of "
                     "one leaves a score undefined");
  if (is_probability && transform != RABBET_ONNX_TRANSFORM_LOGISTIC)
    scores[0] = rabbet_onnx_binary(
        node, "SUB", rabbet_onnx_number(node, RABBET_DTYPE_FLOAT, 2, 1), score);
  else
    scores[0] = rabbet_onnx_unary(node, "NEG", score);
  rabbet_tensor_t* both = rabbet_onnx_concat(node, scores, 2, 1);
  return transform == RABBET_ONNX_TRANSFORM_LOGISTIC
             ? rabbet_onnx_activation(node, "SIGMOID", both, 0, 0)
             : both;
}

rabbet_tensor_t* rabbet_onnx_ml_above(rabbet_onnx_node_t* node,
                                      rabbet_tensor_t* score, double number) {
  rabbet_tensor_t* above =
      rabbet_onnx_with_number(node, "GREATER", score, number);
  return rabbet_onnx_squeeze(
      node, rabbet_onnx_cast(node, above, RABBET_DTYPE_INT64), 1u << 1);
}
