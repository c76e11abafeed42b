// Estimates of sizes that only a run tells, made to fit the layers after them.
#ifndef RABBET_SRC_BUILDER_ESTIMATES_H_
#define RABBET_SRC_BUILDER_ESTIMATES_H_

#include "builder/build.h"

// opt[s] is the estimate of symbol s; those that a run tells are changed,
// within low[s] to high[s], where that makes shapes fit that did not: kernels
// are timed at the estimates. What cannot be made to fit stays.
RABBET_PRIVATE_API rabbet_status_t rabbet_estimates_fit(rabbet_build_t* build,
                                                        const int64_t* low,
                                                        const int64_t* high,
                                                        int64_t* opt);

#endif  // RABBET_SRC_BUILDER_ESTIMATES_H_
