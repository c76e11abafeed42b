// Declarations that the files that write loops out share.
#ifndef RABBET_SRC_BUILDER_UNROLL_INTERNAL_H_
#define RABBET_SRC_BUILDER_UNROLL_INTERNAL_H_

#include "network/network.h"

typedef RABBET_VEC(rabbet_tensor_t*) rabbet_tensor_vec_t;

// The conditional of `to` that stands for one of `from`, in an iteration.
typedef struct rabbet_unroll_conditional_t {
  rabbet_conditional_t* to;
  const char* prefix;
} rabbet_unroll_conditional_t;

typedef struct rabbet_unroll_t {
  rabbet_network_t* from;
  rabbet_network_t* to;
  rabbet_allocator_t allocator;
  rabbet_arena_t arena;
  rabbet_regions_t regions;
  rabbet_tensor_t** map;  // by tensor of `from`; NULL: not made (again) yet
  bool* done;             // by layer of `from`
  rabbet_unroll_conditional_t* conditionals;  // by conditional of `from`
} rabbet_unroll_t;

// The one number in a tensor of `to`, if it is known.
RABBET_PRIVATE_API rabbet_status_t rabbet_unroll_number(rabbet_unroll_t* unroll,
                                                        rabbet_tensor_t* tensor,
                                                        bool* out_known,
                                                        int64_t* out_number);

// ---- Layers of `to` (unroll_emit.c) -----------------------------------------

// Slice `index` along an axis, which is taken away; counted from the end if
// `reverse`. `name` is the layer's.
RABBET_PRIVATE_API rabbet_status_t rabbet_unroll_slice(
    rabbet_unroll_t* unroll, const char* name, rabbet_tensor_t* tensor,
    int32_t axis, bool reverse, int64_t index, rabbet_tensor_t** out_tensor);
// Tensors along a new axis, with zeros behind up to `length`; `like` tells type
// and shape where there is no tensor.
RABBET_PRIVATE_API rabbet_status_t rabbet_unroll_stack(
    rabbet_unroll_t* unroll, const char* name, rabbet_tensor_t* const* tensors,
    size_t count, int64_t length, const rabbet_tensor_t* like, int32_t axis,
    rabbet_tensor_t** out_tensor);
RABBET_PRIVATE_API rabbet_status_t
rabbet_unroll_copy(rabbet_unroll_t* unroll, const char* name,
                   rabbet_tensor_t* tensor, rabbet_tensor_t** out_tensor);

// ---- Assertions (assertions.c) ----------------------------------------------

// Notes an assertion of `from`, with the prefix of the iteration.
RABBET_PRIVATE_API rabbet_status_t rabbet_unroll_assert(
    rabbet_unroll_t* unroll, const rabbet_layer_t* layer, const char* prefix);
// Checks known conditions, and makes tensors of the others, of a network that
// gets no more of them.
RABBET_PRIVATE_API rabbet_status_t
rabbet_network_finish_assertions(rabbet_network_t* to, bool is_branch);

// ---- Loops (unroll_loop.c) --------------------------------------------------

// All layers of a loop's body (-1: of the network), or of those in `only`.
RABBET_PRIVATE_API rabbet_status_t rabbet_unroll_region(rabbet_unroll_t* unroll,
                                                        int32_t region,
                                                        const char* prefix,
                                                        const bool* only);
// Whether all tensors are made that the loop reads from outside.
RABBET_PRIVATE_API bool rabbet_unroll_is_ready(const rabbet_unroll_t* unroll,
                                               size_t loop);
// Maps the loop's outputs.
RABBET_PRIVATE_API rabbet_status_t rabbet_unroll_run(rabbet_unroll_t* unroll,
                                                     size_t loop,
                                                     const char* prefix);

#endif  // RABBET_SRC_BUILDER_UNROLL_INTERNAL_H_
