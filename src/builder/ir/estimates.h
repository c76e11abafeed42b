// Estimates of data-dependent sizes that satisfy the shape rules of the layers.
#ifndef RABBET_SRC_BUILDER_IR_ESTIMATES_H_
#define RABBET_SRC_BUILDER_IR_ESTIMATES_H_

#include "builder/build.h"

// opt[s] is the estimate of symbol s, at which kernels are timed. Changes
// estimates of data-dependent sizes, within low[s] to high[s], if that
// satisfies more shape rules.
RABBET_PRIVATE_API rabbet_status_t rabbet_estimates_fit(rabbet_build_t* build,
                                                        const int64_t* low,
                                                        const int64_t* high,
                                                        int64_t* opt);

// Estimates of expressions for some nodes: those of the network, or others if
// the nodes' shape rules reject these. Valid until the next call.
struct rabbet_estimates_t {
  const int64_t* opt;
  const bool* valid;
  const int64_t* symbols;
  bool data_dependent;  // some of their sizes are data-dependent
  bool fit;             // false: no estimates satisfy the rules
};

RABBET_PRIVATE_API rabbet_status_t
rabbet_estimates_of_unit(rabbet_build_t* build, rabbet_ir_node_t* const* nodes,
                         size_t count, rabbet_estimates_t* out_estimates);

#endif  // RABBET_SRC_BUILDER_IR_ESTIMATES_H_
