// Declarations that the files of this folder share.
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
  // By loop of `from`: it becomes a layer. Set where unrolling it turns out to
  // be impossible, or to make too many layers: then unrolling starts again.
  bool* is_kept;
  bool restart;
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

// The tensor with an axis in front; from there back to its place.
RABBET_PRIVATE_API rabbet_status_t rabbet_unroll_axis_first(
    rabbet_unroll_t* unroll, const char* name, rabbet_tensor_t* tensor,
    int32_t axis, rabbet_tensor_t** out_tensor);
RABBET_PRIVATE_API rabbet_status_t rabbet_unroll_axis_back(
    rabbet_unroll_t* unroll, const char* name, rabbet_tensor_t* tensor,
    int32_t axis, rabbet_tensor_t** out_tensor);

// ---- Loops as layers (kept_loop.c)
// -------------------------------------------

// `before`: the layers that the condition needs, NULL without a condition. Maps
// the loop's outputs.
RABBET_PRIVATE_API rabbet_status_t rabbet_unroll_keep(rabbet_unroll_t* unroll,
                                                      size_t loop,
                                                      const char* prefix,
                                                      const bool* before);
// That two values of a recurrence agree in type and in known extents.
RABBET_PRIVATE_API rabbet_status_t rabbet_unroll_check_state(
    const rabbet_layer_t* layer, rabbet_tensor_t* old, rabbet_tensor_t* next);

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

// ---- Networks of bodies (body.c) --------------------------------------------

// A network made of layers of another one, which a layer will run. Tensors that
// they read from outside become its inputs; constants are known inside, too.
typedef struct rabbet_unroll_body_t {
  rabbet_arena_t* arena;
  rabbet_allocator_t allocator;
  rabbet_network_t* from;
  // [tensor of `from`]: what it is outside; NULL: itself.
  rabbet_tensor_t* const* outside;
  // Whose inputs stand for what they read, or NULL.
  const rabbet_conditional_t* conditional;
  rabbet_network_t* made;               // the caller's to release
  rabbet_tensor_t** map;                // by tensor of `from`
  rabbet_conditional_t** conditionals;  // by conditional of `from`
  rabbet_loop_t** loops;                // by loop of `from`
  rabbet_tensor_t** captured;  // tensors outside, one for each input of `made`
  size_t captured_count;
} rabbet_unroll_body_t;

RABBET_PRIVATE_API rabbet_status_t
rabbet_unroll_body_begin(rabbet_unroll_body_t* body);
// An input named as a tensor of `from`, for a tensor outside or a slice of it
// along axis 0. Equal extents are one dimension inside, but for axes that
// `varying` has as bits.
RABBET_PRIVATE_API rabbet_status_t rabbet_unroll_body_input(
    rabbet_unroll_body_t* body, const rabbet_tensor_t* named,
    rabbet_tensor_t* outside, bool is_slice, int64_t varying);
// The tensor inside: made there, copied or captured.
RABBET_PRIVATE_API rabbet_status_t
rabbet_unroll_body_get(rabbet_unroll_body_t* body, rabbet_tensor_t* tensor,
                       rabbet_tensor_t** out_tensor);
// Layers are added in their order.
RABBET_PRIVATE_API rabbet_status_t rabbet_unroll_body_layer(
    rabbet_unroll_body_t* body, const rabbet_layer_t* layer);
// Marks a copy of the tensor, which may be an input, or two outputs.
RABBET_PRIVATE_API rabbet_status_t rabbet_unroll_body_output(
    rabbet_unroll_body_t* body, rabbet_tensor_t* tensor, const char* name);
// `made` becomes a network without loops and conditionals.
RABBET_PRIVATE_API rabbet_status_t
rabbet_unroll_body_finish(rabbet_unroll_body_t* body);
// Appends what the body captured to a layer's inputs, those from `first` on
// once each.
RABBET_PRIVATE_API rabbet_status_t rabbet_unroll_body_list_inputs(
    const rabbet_unroll_body_t* body, const char* name, rabbet_arena_t* arena,
    size_t first, rabbet_tensor_t** inputs, size_t* input_count,
    rabbet_body_t* out_body);
// An input or weights. Weights belong to their first reader in the given
// network, even if that moves into a body.
RABBET_PRIVATE_API rabbet_status_t
rabbet_unroll_copy_source(rabbet_network_t* to, const rabbet_tensor_t* tensor,
                          rabbet_tensor_t** out_tensor);

// ---- Conditionals (branches.c) ----------------------------------------------

RABBET_PRIVATE_API rabbet_status_t
rabbet_unroll_split(rabbet_network_t* network, rabbet_allocator_t allocator,
                    bool is_branch, rabbet_network_t** out_network);

#endif  // RABBET_SRC_BUILDER_UNROLL_INTERNAL_H_
