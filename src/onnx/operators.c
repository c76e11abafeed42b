#include "onnx/operators.h"

#include <assert.h>
#include <string.h>

#include "base/suggest.h"
#include "onnx/compositions.h"

// Files with tables of operators, as docs/reference/onnx_operators.md has them.
#define RABBET_ONNX_FILES(FILE) \
  FILE(pointwise)               \
  FILE(activation)              \
  FILE(attention)               \
  FILE(choice)                  \
  FILE(collective)              \
  FILE(convolution)             \
  FILE(normalization)           \
  FILE(einsum)                  \
  FILE(matrix)                  \
  FILE(quantize)                \
  FILE(integer)                 \
  FILE(range)                   \
  FILE(random)                  \
  FILE(reduce)                  \
  FILE(loss)                    \
  FILE(shape)                   \
  FILE(resize)                  \
  FILE(scatter)                 \
  FILE(sizes)                   \
  FILE(slice)                   \
  FILE(constant)                \
  FILE(loop)                    \
  FILE(signal)                  \
  FILE(bits)                    \
  FILE(state)                   \
  FILE(image)                   \
  FILE(roi_pool)                \
  FILE(sequence)                \
  FILE(if)                      \
  FILE(recurrent)               \
  FILE(ml)                      \
  FILE(ml_maps)                 \
  FILE(ml_svm)                  \
  FILE(ml_trees)                \
  FILE(microsoft_fused)         \
  FILE(microsoft_quantized)     \
  FILE(microsoft_tables)        \
  FILE(microsoft_experts)       \
  FILE(microsoft_attention)     \
  FILE(microsoft_group_query)   \
  FILE(trt_plugins)             \
  FILE(trt_layers)              \
  FILE(trt_pyramid)             \
  FILE(trt_bert)

#define RABBET_ONNX_FILE(file) extern RABBET_ONNX_OPERATORS(file);
RABBET_ONNX_FILES(RABBET_ONNX_FILE)
#undef RABBET_ONNX_FILE

static const rabbet_onnx_operator_t* const onnx_tables[] = {
#define RABBET_ONNX_FILE(file) rabbet_onnx_operators_##file,
    RABBET_ONNX_FILES(RABBET_ONNX_FILE)
#undef RABBET_ONNX_FILE
};
enum { RABBET_ONNX_TABLE_COUNT = sizeof(onnx_tables) / sizeof(onnx_tables[0]) };

typedef struct onnx_missing_t {
  const char* domain;
  const char* name;
  const char* reason;
} onnx_missing_t;

static const onnx_missing_t onnx_missing[] = {
#define RABBET_ONNX_MISSING(domain, name, reason) {domain, #name, reason},
#include "onnx/missing.def"
#undef RABBET_ONNX_MISSING
};

const rabbet_onnx_operator_t* rabbet_onnx_operator_find(const char* domain,
                                                        const char* name) {
  for (size_t i = 0; i < RABBET_ONNX_TABLE_COUNT; ++i)
    for (const rabbet_onnx_operator_t* op = onnx_tables[i]; op->name; ++op)
      if (!strcmp(op->name, name) && !strcmp(op->domain, domain)) return op;
  return NULL;
}

void rabbet_onnx_import_as(rabbet_onnx_node_t* node, const char* name,
                           int64_t opset) {
  const rabbet_onnx_operator_t* op = rabbet_onnx_operator_find("", name);
  assert(op);
  node->variant = op->variant;
  node->opset = opset;
  if (rabbet_onnx_ok(node)) op->import(node);
}

const char* rabbet_onnx_operator_missing(const char* domain, const char* name) {
  size_t count = sizeof(onnx_missing) / sizeof(onnx_missing[0]);
  for (size_t i = 0; i < count; ++i)
    if (!strcmp(onnx_missing[i].domain, domain) &&
        (!strcmp(onnx_missing[i].name, name) ||
         !strcmp(onnx_missing[i].name, "*")))
      return onnx_missing[i].reason;
  return NULL;
}

// Number `index` of a domain's operators; NULL past the last.
static const char* onnx_operator_name(const void* domain, size_t index) {
  for (size_t i = 0; i < RABBET_ONNX_TABLE_COUNT; ++i)
    for (const rabbet_onnx_operator_t* op = onnx_tables[i]; op->name; ++op)
      if (!strcmp(op->domain, domain) && index-- == 0) return op->name;
  return NULL;
}

const char* rabbet_onnx_operator_suggest(const char* domain, const char* name,
                                         char* buffer, size_t capacity) {
  size_t count = 0;
  while (onnx_operator_name(domain, count))
    ++count;
  return rabbet_suggest_print(name, onnx_operator_name, domain, count, buffer,
                              capacity);
}

bool rabbet_onnx_supports(const char* domain, const char* op_type) {
  return op_type &&
         rabbet_onnx_operator_find(rabbet_onnx_domain(domain), op_type) != NULL;
}
