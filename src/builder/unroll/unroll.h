// A network without loops and assertions.
#ifndef RABBET_SRC_BUILDER_UNROLL_UNROLL_H_
#define RABBET_SRC_BUILDER_UNROLL_UNROLL_H_

#include "network/network.h"

// Loops with few iterations, whose number follows from constants and fixed
// shapes, are unrolled: layer L in iteration 2 of loop P is the layer "P[2]/L".
// Others become layers that run networks. Assertions
// become `checks`, of a tensor each (rabbet_network_split_branches). Without
// either, returns the network itself, with one more reference. Errors name
// loop, iteration and layer.
RABBET_PRIVATE_API rabbet_status_t
rabbet_network_unroll(rabbet_network_t* network, rabbet_allocator_t allocator,
                      rabbet_network_t** out_network);

#endif  // RABBET_SRC_BUILDER_UNROLL_UNROLL_H_
