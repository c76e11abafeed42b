// Functions that operators of the domain ai.onnx.ml share.
#ifndef RABBET_SRC_ONNX_ML_ML_H_
#define RABBET_SRC_ONNX_ML_ML_H_

#include "onnx/index.h"

// ---- Attributes ------------------------------------------------------------

// Fails, naming both attributes, unless `name` has as many elements as `of`.
void rabbet_onnx_ml_check_count(rabbet_onnx_node_t* node, const char* name,
                                size_t found, const char* of, size_t expected);
typedef struct rabbet_onnx_ml_numbers_t {
  size_t count;
  const double* data;
} rabbet_onnx_ml_numbers_t;
// The elements of an attribute that is a tensor.
rabbet_onnx_ml_numbers_t rabbet_onnx_ml_tensor(rabbet_onnx_node_t* node,
                                               const char* name);
// FLOATS, or the tensor NAME_as_tensor in its place.
rabbet_onnx_ml_numbers_t rabbet_onnx_ml_numbers(rabbet_onnx_node_t* node,
                                                const char* name);
// A constant of these numbers.
rabbet_tensor_t* rabbet_onnx_ml_number_row(rabbet_onnx_node_t* node,
                                           rabbet_dtype_t dtype,
                                           const double* data, size_t count);
// A constant of these numbers.
rabbet_tensor_t* rabbet_onnx_ml_row(rabbet_onnx_node_t* node, const float* data,
                                    size_t count);

// ---- Rows ------------------------------------------------------------------

// Input 0 as [rows, features]; a vector is one row.
rabbet_tensor_t* rabbet_onnx_ml_rows(rabbet_onnx_node_t* node,
                                     rabbet_dtype_t dtype);

// ---- Scores ----------------------------------------------------------------

typedef enum rabbet_onnx_transform_t {
  RABBET_ONNX_TRANSFORM_NONE,
  RABBET_ONNX_TRANSFORM_SOFTMAX,
  RABBET_ONNX_TRANSFORM_LOGISTIC,
  RABBET_ONNX_TRANSFORM_SOFTMAX_ZERO,
  RABBET_ONNX_TRANSFORM_PROBIT,
} rabbet_onnx_transform_t;
// The attribute 'post_transform', a name.
rabbet_onnx_transform_t rabbet_onnx_ml_transform(rabbet_onnx_node_t* node);
// Applies the transform to each row of [rows, scores].
rabbet_tensor_t* rabbet_onnx_ml_apply(rabbet_onnx_node_t* node,
                                      rabbet_onnx_transform_t transform,
                                      rabbet_tensor_t* scores);

// The score [rows, 1] of the second of two classes as scores of both: LOGISTIC
// transforms both; without it, that of the first is 1 - score of a probability,
// else -score.
rabbet_tensor_t* rabbet_onnx_ml_both(rabbet_onnx_node_t* node,
                                     rabbet_onnx_transform_t transform,
                                     bool is_probability,
                                     rabbet_tensor_t* score);

// ---- Labels ----------------------------------------------------------------

// Whether a node reads the tensor, or a graph in it, or with `as_output` the
// model gives it. In graphs within nodes: whether it may be read.
bool rabbet_onnx_ml_is_read(const rabbet_onnx_node_t* node, const char* name,
                            bool as_output);

typedef struct rabbet_onnx_labels_t {
  size_t count;
  const int64_t* numbers;  // NULL: the labels are strings
} rabbet_onnx_labels_t;
// Of the attributes `ints` and 'classlabels_strings'. Strings are refused where
// something reads output 0, which would hold them.
rabbet_onnx_labels_t rabbet_onnx_ml_labels(rabbet_onnx_node_t* node,
                                           const char* ints);
// Sets output 0 to the label of each row, from the INT64 positions [rows].
void rabbet_onnx_ml_set_labels(rabbet_onnx_node_t* node,
                               rabbet_onnx_labels_t labels,
                               rabbet_tensor_t* positions);
// The position of the greatest of [rows, scores], the first of equal ones.
rabbet_tensor_t* rabbet_onnx_ml_best(rabbet_onnx_node_t* node,
                                     rabbet_tensor_t* scores);
// 1 where [rows, 1] is above the number, else 0, as positions.
rabbet_tensor_t* rabbet_onnx_ml_above(rabbet_onnx_node_t* node,
                                      rabbet_tensor_t* score, double number);

#endif  // RABBET_SRC_ONNX_ML_ML_H_
