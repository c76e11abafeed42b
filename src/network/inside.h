// Declarations that the files of this folder share.
#ifndef RABBET_SRC_NETWORK_INSIDE_H_
#define RABBET_SRC_NETWORK_INSIDE_H_

#include "network/network.h"

typedef struct rabbet_network_owner_t {
  struct rabbet_network_owner_t* next;
  void* owner;
  void (*destroy)(void* owner);
  rabbet_status_t (*check)(const void* owner);  // or NULL
} rabbet_network_owner_t;

// ---- Names -----------------------------------------------------------------

// `base`, or with a number behind it the first that `names` does not hold; in
// the network's arena.
rabbet_status_t rabbet_network_free_name(rabbet_network_t* network,
                                         const rabbet_map_t* names,
                                         const char* base,
                                         const char** out_name);
// Copies a given name and makes sure that no other tensor has it: one whose
// name was made up gets another. ALREADY_EXISTS if it was given.
rabbet_status_t rabbet_network_claim_tensor_name(rabbet_network_t* network,
                                                 const char* name,
                                                 const char** out_name);
// ALREADY_EXISTS if a layer has it.
rabbet_status_t rabbet_network_claim_layer_name(rabbet_network_t* network,
                                                const char* name,
                                                const char** out_name);

// ---- Tensors and layers ----------------------------------------------------

// A tensor that is not yet in the network's lists, in its arena.
rabbet_status_t rabbet_network_new_tensor(rabbet_network_t* network,
                                          rabbet_tensor_kind_t kind,
                                          const char* name,
                                          rabbet_tensor_t** out_tensor);
// Adds the tensor to the lists of tensors and names.
rabbet_status_t rabbet_network_enter_tensor(rabbet_network_t* network,
                                            rabbet_tensor_t* tensor);
// INVALID_ARGUMENT unless the tensor is one of this network's.
rabbet_status_t rabbet_network_check_tensor(const rabbet_network_t* network,
                                            const rabbet_tensor_t* tensor);

// A layer with room for its outputs and inputs, not yet in the network; the
// caller sets attributes and plugin.
rabbet_status_t rabbet_network_new_layer(
    rabbet_network_t* network, const rabbet_op_t* op, const char* name,
    rabbet_tensor_t* const* inputs, size_t input_count, size_t output_count,
    rabbet_layer_t** out_layer);
// rabbet_network_add_layer, also for layers of loops.
rabbet_status_t rabbet_network_add_any_layer(
    rabbet_network_t* network, const char* op, const char* name,
    rabbet_tensor_t* const* inputs, size_t input_count,
    const rabbet_attr_t* attrs, size_t attr_count, rabbet_layer_t** out_layer);
// Puts the layer and its outputs into the lists; all or nothing.
rabbet_status_t rabbet_network_enter_layer(rabbet_layer_t* layer);

// ---- Inference -------------------------------------------------------------

// Types and shapes of the outputs of a layer that runs networks.
rabbet_status_t rabbet_layer_infer_bodies(rabbet_layer_t* layer);
// Of layers at a loop's boundary whose extents only a run tells.
rabbet_status_t rabbet_layer_infer_told(rabbet_layer_t* layer);
// Why an inferred layer is unknown: the error of the layer that failed.
rabbet_status_t rabbet_layer_explain(rabbet_layer_t* layer);
// Forgets results if they include the layer's.
void rabbet_network_layer_changed(rabbet_layer_t* layer);
// Forgets all results, and which inputs are followed.
void rabbet_network_changed(rabbet_network_t* network);
// Forgets all results.
void rabbet_network_reset(rabbet_network_t* network);

// Gives `tensor`, on whose values a shape depends, values if it has none:
// symbols for the elements that the host reads. If the tensor depends on
// network inputs, these are followed instead: *out_restart is set and inference
// must start again.
rabbet_status_t rabbet_network_need_values(rabbet_network_t* network,
                                           rabbet_tensor_t* tensor,
                                           bool* out_restart);
// Makes the tensor's elements symbols and marks it as read by the host.
rabbet_status_t rabbet_network_read_on_host(rabbet_network_t* network,
                                            rabbet_tensor_t* tensor);
// Spreads is_shape_tensor from shape operands to the tensors that they are
// computed from.
void rabbet_network_mark_shape_tensors(rabbet_network_t* network);

#endif  // RABBET_SRC_NETWORK_INSIDE_H_
