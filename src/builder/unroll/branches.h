// A network without conditionals.
#ifndef RABBET_SRC_BUILDER_UNROLL_BRANCHES_H_
#define RABBET_SRC_BUILDER_UNROLL_BRANCHES_H_

#include "network/network.h"

// Of a network without loops. Each conditional becomes a layer whose branches
// are networks without conditionals; where the condition is a constant, the
// layers of the branch that it takes. Checks become tensors of the network or
// branch that they belong to; one that never holds is an error. The network
// itself, with one more reference, if it has no conditional. Errors name
// conditional and layer.
RABBET_PRIVATE_API rabbet_status_t rabbet_network_split_branches(
    rabbet_network_t* network, rabbet_allocator_t allocator,
    rabbet_network_t** out_network);

#endif  // RABBET_SRC_BUILDER_UNROLL_BRANCHES_H_
