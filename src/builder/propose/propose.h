// Asking the device for its candidates for a unit.
#ifndef RABBET_SRC_BUILDER_PROPOSE_PROPOSE_H_
#define RABBET_SRC_BUILDER_PROPOSE_PROPOSE_H_

#include "builder/choose/unit.h"

// Fills unit->choices with every candidate that the network's types and the
// user's settings allow; none is no error. Asks once. `fixed` (conversions) may
// be NULL.
RABBET_PRIVATE_API rabbet_status_t
rabbet_unit_propose(rabbet_build_t* build, rabbet_unit_t* unit,
                    const rabbet_type_format_t* fixed);
// The error for a node without choices: names the layer, its types and shapes,
// and the available combinations.
RABBET_PRIVATE_API rabbet_status_t
rabbet_unit_unsupported(rabbet_build_t* build, rabbet_unit_t* unit);

// Stands for a kernel where a step runs one of two sequences.
RABBET_PRIVATE_API extern const rabbet_kernel_class_t rabbet_call_class;

#endif  // RABBET_SRC_BUILDER_PROPOSE_PROPOSE_H_
