// Files of operators, which all models of the server share.
#ifndef RABBET_SRC_TRITON_OPERATORS_H_
#define RABBET_SRC_TRITON_OPERATORS_H_

#include "rabbet/status.h"

// A Python file, a plugin library (.so), or the name of a Python module. A file
// that equals one that is loaded, such as that of another version of a model,
// is not loaded again: its operators are registered. Thread-safe.
rabbet_status_t rabbet_triton_load_operators(const char* path);

#endif  // RABBET_SRC_TRITON_OPERATORS_H_
