// Operators of users (registered plugins) as custom operators, so that ONNX
// Runtime takes models that have them. They never run by themselves: the
// provider takes the nodes.
#ifndef RABBET_SRC_ORTEP_OPERATORS_H_
#define RABBET_SRC_ORTEP_OPERATORS_H_

#include "ortep/ort.h"

// Number of the domains of the operators that are registered now. A call for it
// comes before the one for the domains.
rabbet_status_t rabbet_ort_operators_count(size_t* out_count);
// The domains live as long as the process, as sessions use them.
rabbet_status_t rabbet_ort_operators_get(OrtCustomOpDomain** out_domains,
                                         size_t count);
// Adds them to a session's options.
rabbet_status_t rabbet_ort_operators_add(OrtSessionOptions* options);

#endif  // RABBET_SRC_ORTEP_OPERATORS_H_
