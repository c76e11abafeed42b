// Programs of many kernels, compiled at the same time.
#ifndef RABBET_SRC_BUILDER_MEASURE_COMPILE_AHEAD_H_
#define RABBET_SRC_BUILDER_MEASURE_COMPILE_AHEAD_H_

#include "base/vec.h"
#include "builder/choose/tune.h"

typedef RABBET_VEC(rabbet_pick_t) rabbet_picks_t;

// Whether the device compiles programs, and there are processors for it.
bool rabbet_compiles_ahead(const rabbet_build_t* build);
// Creates the kernel of each pick once, in several threads, so that the device
// has its programs when the build creates it again. A kernel that fails is left
// to the build. Does nothing where the device compiles nothing. Constants of
// the last kernels stay converted until rabbet_constant_trim.
rabbet_status_t rabbet_compile_ahead(rabbet_build_t* build,
                                     const rabbet_pick_t* picks, size_t count);

#endif  // RABBET_SRC_BUILDER_MEASURE_COMPILE_AHEAD_H_
