// Functions with which the kernel classes of all devices propose candidates.
#ifndef RABBET_SRC_DEVICE_COMMON_PROPOSE_H_
#define RABBET_SRC_DEVICE_COMMON_PROPOSE_H_

#include "device/kernel.h"

// Types of the boundary as the network has them, LINEAR; inputs, then outputs.
// `out_tensors` has room for group->input_count + group->output_count.
void rabbet_network_tensors(const rabbet_group_t* group,
                            rabbet_type_format_t* out_tensors);
// Offers the candidate, unless propose->fixed asks for other types or formats,
// or a tensor's rank is too small for its format.
rabbet_status_t rabbet_offer(const rabbet_propose_t* propose,
                             rabbet_candidate_sink_t sink,
                             const rabbet_candidate_t* candidate);
// Whether the format needs no padding of the value's channels for any shape of
// the profile.
bool rabbet_format_is_filled(const rabbet_group_value_t* value,
                             rabbet_format_t format);
// Whether a boundary value has no elements at opt: libraries reject empty
// tensors.
bool rabbet_group_is_empty(const rabbet_group_t* group);
// Dimensions of every value at the profile's optimum; the caller frees them.
rabbet_status_t rabbet_group_opt_dims(const rabbet_group_t* group,
                                      rabbet_allocator_t allocator,
                                      rabbet_dims_t** out_dims);
// The same at the profile's largest shapes.
rabbet_status_t rabbet_group_max_dims(const rabbet_group_t* group,
                                      rabbet_allocator_t allocator,
                                      rabbet_dims_t** out_dims);
// Position of a value in the group's boundary inputs, or -1.
int32_t rabbet_group_input_of(const rabbet_group_t* group, int32_t value);
// Whether all inputs of a node are boundary inputs of the group.
bool rabbet_group_feeds(const rabbet_group_t* group,
                        const rabbet_group_node_t* node);

// Types to offer for a group whose tensors have type `network`: that type and,
// for a floating type, those that weak typing adds.
int rabbet_compute_types(const rabbet_propose_t* propose,
                         rabbet_dtype_t network, rabbet_dtype_t out[4]);

#endif  // RABBET_SRC_DEVICE_COMMON_PROPOSE_H_
