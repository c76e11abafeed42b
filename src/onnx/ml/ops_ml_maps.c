// ZipMap: the maps from labels to scores that classifiers of scikit-learn give
// last. Networks have no maps, so the output is the tensor of scores.
#include <stdio.h>
#include <string.h>

#include "onnx/ml/ml.h"
#include "onnx/operators.h"

enum { ONNX_ML_SHOWN_LABELS = 10 };

// Whether maps[i][label] and scores[i, label] are the same: labels are 0, 1, 2
// and so on. Strings fail as indices, so that no program reads other scores.
static bool onnx_ml_index_by_labels(rabbet_onnx_ints_t numbers) {
  for (size_t i = 0; i < numbers.count; ++i)
    if (numbers.data[i] != (int64_t)i) return false;
  return true;
}

// "0, 1, 2" or "'a', 'b', 'c'"
static void onnx_ml_list_labels(rabbet_onnx_ints_t numbers,
                                const Onnx__AttributeProto* strings, char* text,
                                size_t size) {
  size_t count = numbers.count ? numbers.count : strings->n_strings;
  size_t at = 0;
  for (size_t i = 0; i < count && at < size; ++i) {
    const char* comma = i ? ", " : "";
    if (i == ONNX_ML_SHOWN_LABELS)
      at += (size_t)snprintf(text + at, size - at, ", ... (%zu)", count);
    else if (numbers.count)
      at += (size_t)snprintf(text + at, size - at, "%s%lld", comma,
                             (long long)numbers.data[i]);
    else
      at += (size_t)snprintf(text + at, size - at, "%s'%.*s'", comma,
                             (int)strings->strings[i].len,
                             (const char*)strings->strings[i].data);
    if (i == ONNX_ML_SHOWN_LABELS) return;
  }
}

static void onnx_import_zip_map(rabbet_onnx_node_t* node) {
  rabbet_onnx_ints_t numbers =
      rabbet_onnx_attr_ints(node, "classlabels_int64s");
  const Onnx__AttributeProto* strings =
      rabbet_onnx_attr(node, "classlabels_strings");
  size_t count = numbers.count ? numbers.count
                 : strings     ? strings->n_strings
                               : 0;
  rabbet_tensor_t* scores = rabbet_onnx_ml_rows(node, RABBET_DTYPE_FLOAT);
  rabbet_dims_t dims = rabbet_onnx_dims(node, scores);
  if (!rabbet_onnx_ok(node)) return;
  const char* name = node->proto->output[0];
  char labels[512] = "";
  if (count) onnx_ml_list_labels(numbers, strings, labels, sizeof(labels));
  if (count == 0 || (dims.d[1] >= 0 && (size_t)dims.d[1] != count))
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "there are %zu labels for %lld columns of scores; "
                     "expected as many",
                     count, (long long)dims.d[1]);
  else if (rabbet_onnx_ml_is_read(node, name, false))
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "its output ('%s') is a sequence of maps, which networks "
                     "do not have, and another node may read it",
                     name);
  else if (numbers.count && !onnx_ml_index_by_labels(numbers))
    RABBET_ONNX_FAIL(
        node, RABBET_STATUS_UNSUPPORTED,
        "its output is a sequence of maps, which networks do not have, and "
        "in a tensor of the scores, the label %lld (of %s) would be the index "
        "of another's scores; export the model without it, so that the "
        "probabilities are a tensor (skl2onnx: options={'zipmap': False}; "
        "onnxmltools: zipmap=False)",
        (long long)numbers.data[count - 1], labels);
  else
    rabbet_log(
        node->importer->network->logger, RABBET_SEVERITY_WARNING,
        "output '%s' is a sequence of maps from labels to scores in the "
        "model (ZipMap); here it is a tensor of the scores, FLOAT (rows, "
        "%zu), whose columns are the labels %s",
        name, count, labels);
  node->outputs[0] = scores;
}

RABBET_ONNX_OPERATORS(ml_maps) = {
    RABBET_ONNX_ML_OP(ZipMap, zip_map, "", 1),
    {0},
};
