// Programs of many kernels, compiled at the same time.
#ifndef RABBET_SRC_BUILDER_MEASURE_COMPILE_AHEAD_H_
#define RABBET_SRC_BUILDER_MEASURE_COMPILE_AHEAD_H_

#include "base/map.h"
#include "base/vec.h"
#include "builder/choose/tune.h"

typedef RABBET_VEC(rabbet_pick_t) rabbet_picks_t;

// Whether the device compiles programs, and there are processors for it.
bool rabbet_compiles_ahead(const rabbet_build_t* build);
// Creates the kernel of each pick once, in several threads, so that the device
// has its programs when the build creates it again. A kernel that fails is left
// to the build. Does nothing where the device compiles nothing. Constants of
// the last kernels stay converted until rabbet_constant_trim. `known` has the
// keys of choices that were created before, and gets those of these.
// `for_plan`: with all that a plan keeps of them.
rabbet_status_t rabbet_compile_ahead(rabbet_build_t* build,
                                     const rabbet_pick_t* picks, size_t count,
                                     rabbet_map_t* known, bool for_plan);

#endif  // RABBET_SRC_BUILDER_MEASURE_COMPILE_AHEAD_H_
