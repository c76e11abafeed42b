// The ONNX operators that the importer knows.
#ifndef RABBET_SRC_ONNX_OPERATORS_H_
#define RABBET_SRC_ONNX_OPERATORS_H_

#include "onnx/import.h"

typedef struct rabbet_onnx_operator_t {
  const char* name;
  // Sets node->outputs, or makes the node fail.
  void (*import)(rabbet_onnx_node_t* node);
  // Distinguishes operators that share `import`, such as "EXP".
  const char* variant;
  const int16_t* since;  // versions that changed it, ascending, ended by 0
  const char* domain;    // "" is the default one
  bool takes_lists;      // sequences and optional values (rabbet_onnx_list_t)
  bool stands_in;        // for a plugin, where none of its name is registered
} rabbet_onnx_operator_t;

// The table at the end of ops_<file>.c; operators.c lists the files.
#define RABBET_ONNX_OPERATORS(file) \
  const rabbet_onnx_operator_t rabbet_onnx_operators_##file[]
// RABBET_ONNX_OP(name, function, variant, since...), of the default domain, in
// such a table, which ends with {0}: `function` is
// onnx_import_<function>. A test compares the versions with the onnx
// package.
#define RABBET_ONNX_OP(name, function, variant, ...)         \
  {                                                          \
#name, onnx_import_##function, variant,                  \
        (const int16_t[]){__VA_ARGS__, 0 }, "", false, false \
  }
// The same for an operator that takes sequences and optional values.
#define RABBET_ONNX_LIST_OP(name, function, variant, ...)   \
  {                                                         \
#name, onnx_import_##function, variant,                 \
        (const int16_t[]){__VA_ARGS__, 0 }, "", true, false \
  }
// An operator of version 1 that ONNX Runtime defines, in this domain.
#define RABBET_ONNX_RUNTIME_OP(domain, name, function, variant) \
  {                                                             \
#name, onnx_import_##function, variant,                     \
        (const int16_t[]){1, 0 }, domain, false, false          \
  }

// A composition in the place of a plugin of TensorRT's library.
#define RABBET_ONNX_PLUGIN_OP(domain, name, function) \
  {                                                   \
#name, onnx_import_##function, "",                \
        (const int16_t[]){1, 0 }, domain, false, true \
  }
// An operator of classic machine learning, of the domain ai.onnx.ml.
#define RABBET_ONNX_ML_OP(name, function, variant, ...)                \
  {                                                                    \
#name, onnx_import_##function, variant,                            \
        (const int16_t[]){__VA_ARGS__, 0 }, "ai.onnx.ml", false, false \
  }

// NULL if it is not known.
const rabbet_onnx_operator_t* rabbet_onnx_operator_find(const char* domain,
                                                        const char* name);
// The reason why an operator is not imported, or NULL.
const char* rabbet_onnx_operator_missing(const char* domain, const char* name);
// "; did you mean 'Conv'?", of the operators of a domain, or "".
const char* rabbet_onnx_operator_suggest(const char* domain, const char* name,
                                         char* buffer, size_t capacity);

#endif  // RABBET_SRC_ONNX_OPERATORS_H_
