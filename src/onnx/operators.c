#include "onnx/operators.h"

#include <string.h>

#include "base/suggest.h"

#define RABBET_ONNX_OP_IN(domain, name, function, variant, ...) \
  void rabbet_onnx_import_##function(rabbet_onnx_node_t* node);
#include "onnx/operators.def"
#undef RABBET_ONNX_OP_IN

static const rabbet_onnx_operator_t rabbet_onnx_operators[] = {
#define RABBET_ONNX_OP_IN(domain, name, function, variant, ...) \
  {#name, domain, rabbet_onnx_import_##function, variant,       \
   (const int16_t[]){__VA_ARGS__, 0}},
#include "onnx/operators.def"
#undef RABBET_ONNX_OP_IN
};
enum {
  RABBET_ONNX_OPERATOR_COUNT =
      sizeof(rabbet_onnx_operators) / sizeof(rabbet_onnx_operators[0])
};

typedef struct rabbet_onnx_missing_t {
  const char* name;
  const char* reason;
} rabbet_onnx_missing_t;

static const rabbet_onnx_missing_t rabbet_onnx_missing[] = {
#define RABBET_ONNX_MISSING(name, reason) {#name, reason},
#include "onnx/missing.def"
#undef RABBET_ONNX_MISSING
};

const rabbet_onnx_operator_t* rabbet_onnx_operator_find(const char* domain,
                                                        const char* name) {
  for (size_t i = 0; i < RABBET_ONNX_OPERATOR_COUNT; ++i) {
    const rabbet_onnx_operator_t* op = &rabbet_onnx_operators[i];
    if (!strcmp(op->name, name) && !strcmp(op->domain, domain)) return op;
  }
  return NULL;
}

const char* rabbet_onnx_operator_missing(const char* domain, const char* name) {
  size_t count = sizeof(rabbet_onnx_missing) / sizeof(rabbet_onnx_missing[0]);
  for (size_t i = 0; !domain[0] && i < count; ++i) {
    if (!strcmp(rabbet_onnx_missing[i].name, name)) {
      return rabbet_onnx_missing[i].reason;
    }
  }
  return NULL;
}

// NULL for an operator of another domain.
static const char* rabbet_onnx_operator_name(const void* domain, size_t index) {
  const rabbet_onnx_operator_t* op = &rabbet_onnx_operators[index];
  return strcmp(op->domain, domain) ? NULL : op->name;
}

const char* rabbet_onnx_operator_suggest(const char* domain, const char* name,
                                         char* buffer, size_t capacity) {
  return rabbet_suggest_print(name, rabbet_onnx_operator_name, domain,
                              RABBET_ONNX_OPERATOR_COUNT, buffer, capacity);
}

bool rabbet_onnx_supports(const char* domain, const char* op_type) {
  return op_type &&
         rabbet_onnx_operator_find(rabbet_onnx_domain(domain), op_type) != NULL;
}
