// Estimates of sizes that only a run tells, made to fit the layers after them.
#ifndef RABBET_SRC_BUILDER_IR_ESTIMATES_H_
#define RABBET_SRC_BUILDER_IR_ESTIMATES_H_

#include "builder/build.h"

// opt[s] is the estimate of symbol s. Estimates of data-dependent sizes are
// changed, within low[s] to high[s], if this makes shapes fit that did not:
// kernels are timed at the estimates. An estimate for which nothing fits stays.
RABBET_PRIVATE_API rabbet_status_t rabbet_estimates_fit(rabbet_build_t* build,
                                                        const int64_t* low,
                                                        const int64_t* high,
                                                        int64_t* opt);

// Estimates of expressions for some nodes alone: those of the network, or
// others where the nodes' shape rules refuse these. Until the next call.
struct rabbet_estimates_t {
  const int64_t* opt;
  const bool* valid;
  const int64_t* symbols;
  bool data_dependent;  // a run tells sizes of theirs
  bool fit;             // false: no estimates were found that the rules take
};

RABBET_PRIVATE_API rabbet_status_t
rabbet_estimates_of_unit(rabbet_build_t* build, rabbet_ir_node_t* const* nodes,
                         size_t count, rabbet_estimates_t* out_estimates);

#endif  // RABBET_SRC_BUILDER_IR_ESTIMATES_H_
