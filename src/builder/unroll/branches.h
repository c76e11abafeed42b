// A network without conditionals.
#ifndef RABBET_SRC_BUILDER_UNROLL_BRANCHES_H_
#define RABBET_SRC_BUILDER_UNROLL_BRANCHES_H_

#include "network/network.h"

// Splits a network without loops. Each conditional becomes a layer whose
// branches are networks without conditionals or, if its condition is constant,
// the layers of the chosen branch. Checks become tensors of the network or
// branch that they belong to; a check that never holds is an error. A network
// without conditionals is returned itself, with one more reference. Errors name
// conditional and layer.
RABBET_PRIVATE_API rabbet_status_t rabbet_network_split_branches(
    rabbet_network_t* network, rabbet_allocator_t allocator,
    rabbet_network_t** out_network);

#endif  // RABBET_SRC_BUILDER_UNROLL_BRANCHES_H_
