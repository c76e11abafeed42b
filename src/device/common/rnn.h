// Functions that kernels of recurrent networks share.
#ifndef RABBET_SRC_DEVICE_COMMON_RNN_H_
#define RABBET_SRC_DEVICE_COMMON_RNN_H_

#include "device/common/node_kernel.h"
#include "ops/rnn.h"

// Offers the layer, LINEAR, in the network's types and those it allows besides.
rabbet_status_t rabbet_rnn_propose(const rabbet_propose_t* propose,
                                   rabbet_candidate_sink_t sink,
                                   const rabbet_kernel_class_t* kernel);
// For known dims of the group's values; errors name the layer.
rabbet_status_t rabbet_rnn_read_node(const rabbet_group_node_t* node,
                                     const rabbet_dims_t* dims,
                                     rabbet_rnn_t* out_rnn);

#endif  // RABBET_SRC_DEVICE_COMMON_RNN_H_
