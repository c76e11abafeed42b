// A network under construction: tensors and layers.
//
// Tensors and layers belong to their network and live as long as it does. Not
// thread-safe. Shapes are inferred when asked for and again after a change.
#ifndef RABBET_NETWORK_H_
#define RABBET_NETWORK_H_

#include "rabbet/allocator.h"
#include "rabbet/attr.h"
#include "rabbet/logger.h"
#include "rabbet/plugin.h"
#include "rabbet/types.h"

RABBET_EXTERN_C_BEGIN

typedef struct rabbet_network_t rabbet_network_t;
typedef struct rabbet_tensor_t rabbet_tensor_t;
typedef struct rabbet_layer_t rabbet_layer_t;
typedef struct rabbet_loop_t rabbet_loop_t;
typedef struct rabbet_conditional_t rabbet_conditional_t;

enum {
  // Types follow from the inputs' alone; the builder changes none.
  RABBET_NETWORK_STRONGLY_TYPED = 1 << 0,
};

RABBET_API rabbet_status_t
rabbet_network_create(uint32_t flags, rabbet_allocator_t allocator,
                      rabbet_logger_t logger, rabbet_network_t** out_network);
RABBET_API void rabbet_network_retain(rabbet_network_t* network);
RABBET_API void rabbet_network_release(rabbet_network_t* network);
RABBET_API uint32_t rabbet_network_flags(const rabbet_network_t* network);
RABBET_API const char* rabbet_network_name(const rabbet_network_t* network);
RABBET_API rabbet_status_t rabbet_network_set_name(rabbet_network_t* network,
                                                   const char* name);

// ---- Building --------------------------------------------------------------

// -1 marks a dynamic dimension. ALREADY_EXISTS if the name is taken.
RABBET_API rabbet_status_t rabbet_network_add_input(
    rabbet_network_t* network, const char* name, rabbet_dtype_t dtype,
    const rabbet_dims_t* dims, rabbet_tensor_t** out_tensor);
// A constant tensor without a layer, as weights of layers are. With `copy`
// false the data must outlive the network (see rabbet_network_take_owner).
// `name` may be NULL: the network makes one up, which gives way to a tensor
// that is given the same.
RABBET_API rabbet_status_t rabbet_network_add_weights(
    rabbet_network_t* network, const char* name, rabbet_weights_t weights,
    const rabbet_dims_t* dims, bool copy, rabbet_tensor_t** out_tensor);
// Destroyed when the network is: keeps borrowed weights alive.
RABBET_API rabbet_status_t rabbet_network_take_owner(
    rabbet_network_t* network, void* owner, void (*destroy)(void* owner));
// A layer of the operator catalogue. `name` may be NULL. Inputs may hold NULL
// for omitted optional ones. Attributes not given get their defaults.
RABBET_API rabbet_status_t rabbet_network_add_layer(
    rabbet_network_t* network, const char* op, const char* name,
    rabbet_tensor_t* const* inputs, size_t input_count,
    const rabbet_attr_t* attrs, size_t attr_count, rabbet_layer_t** out_layer);
// A layer of a registered plugin.
RABBET_API rabbet_status_t rabbet_network_add_plugin(
    rabbet_network_t* network, const char* plugin_name, const char* version,
    const char* plugin_namespace, const char* name,
    rabbet_tensor_t* const* inputs, size_t input_count,
    const rabbet_attr_t* attrs, size_t attr_count, rabbet_layer_t** out_layer);
RABBET_API rabbet_status_t rabbet_network_mark_output(rabbet_network_t* network,
                                                      rabbet_tensor_t* tensor);
RABBET_API rabbet_status_t rabbet_network_unmark_output(
    rabbet_network_t* network, rabbet_tensor_t* tensor);
// Takes the tensor's layer out; its outputs must have no readers.
RABBET_API rabbet_status_t rabbet_network_remove_tensor(
    rabbet_network_t* network, rabbet_tensor_t* tensor);

// ---- Looking ---------------------------------------------------------------

RABBET_API size_t rabbet_network_input_count(const rabbet_network_t* network);
RABBET_API rabbet_tensor_t* rabbet_network_input(
    const rabbet_network_t* network, size_t index);  // NULL out of range
RABBET_API size_t rabbet_network_output_count(const rabbet_network_t* network);
RABBET_API rabbet_tensor_t* rabbet_network_output(
    const rabbet_network_t* network, size_t index);
RABBET_API size_t rabbet_network_layer_count(const rabbet_network_t* network);
RABBET_API rabbet_layer_t* rabbet_network_layer(const rabbet_network_t* network,
                                                size_t index);
// Checks everything and infers types and shapes; the error names the layer.
RABBET_API rabbet_status_t rabbet_network_validate(rabbet_network_t* network);

// ---- Tensors ---------------------------------------------------------------

RABBET_API const char* rabbet_tensor_name(const rabbet_tensor_t* tensor);
RABBET_API rabbet_status_t rabbet_tensor_set_name(rabbet_tensor_t* tensor,
                                                  const char* name);
// Errors if a layer before it is wrong.
RABBET_API rabbet_status_t rabbet_tensor_dtype(rabbet_tensor_t* tensor,
                                               rabbet_dtype_t* out_dtype);
RABBET_API rabbet_status_t rabbet_tensor_dims(rabbet_tensor_t* tensor,
                                              rabbet_dims_t* out_dims);
// Network inputs; for other tensors of weakly typed networks a wish for the
// output type.
RABBET_API rabbet_status_t rabbet_tensor_set_dtype(rabbet_tensor_t* tensor,
                                                   rabbet_dtype_t dtype);
// The type that was set, if it differs from the layer's; NONE: none.
RABBET_API rabbet_dtype_t
rabbet_tensor_wished_dtype(const rabbet_tensor_t* tensor);
RABBET_API rabbet_status_t rabbet_tensor_set_dims(rabbet_tensor_t* tensor,
                                                  const rabbet_dims_t* dims);
RABBET_API bool rabbet_tensor_is_input(const rabbet_tensor_t* tensor);
RABBET_API bool rabbet_tensor_is_output(const rabbet_tensor_t* tensor);
// Its values are needed to know shapes (found by inference).
RABBET_API rabbet_status_t rabbet_tensor_is_shape_tensor(
    rabbet_tensor_t* tensor, bool* out_is_shape_tensor);
// Bit 1 << format for inputs and outputs; default LINEAR only.
RABBET_API uint64_t
rabbet_tensor_allowed_formats(const rabbet_tensor_t* tensor);
RABBET_API rabbet_status_t
rabbet_tensor_set_allowed_formats(rabbet_tensor_t* tensor, uint64_t formats);
// Dimensions with one name are one: unequal sizes are an error at run time.
RABBET_API rabbet_status_t rabbet_tensor_set_dim_name(rabbet_tensor_t* tensor,
                                                      int32_t axis,
                                                      const char* name);
RABBET_API const char* rabbet_tensor_dim_name(const rabbet_tensor_t* tensor,
                                              int32_t axis);  // NULL: none
// The layer that makes it; NULL for inputs and weights.
RABBET_API rabbet_layer_t* rabbet_tensor_producer(
    const rabbet_tensor_t* tensor);
RABBET_API bool rabbet_tensor_weights(const rabbet_tensor_t* tensor,
                                      rabbet_weights_t* out_weights);

// Refitters know weights and constants by the name that they were given, else
// by "LAYER ROLE": "conv KERNEL", "conv BIAS", "c CONSTANT". This makes a
// constant another layer's: several layers may stand for one. `role` is a
// number of TensorRT's WeightsRole; layer NULL: the constant belongs to no
// layer and cannot be refitted. INVALID_ARGUMENT for others.
RABBET_API rabbet_status_t rabbet_tensor_set_role(rabbet_tensor_t* tensor,
                                                  const rabbet_layer_t* layer,
                                                  int32_t role);
// The tensor of that name, else the weights that a refitter knows by it; NULL:
// none.
RABBET_API rabbet_status_t
rabbet_network_find_weights(const rabbet_network_t* network, const char* name,
                            rabbet_tensor_t** out_tensor);
// Weights or a constant layer's output that a refitter must be able to replace
// (RABBET_BUILDER_REFIT_INDIVIDUAL; with RABBET_BUILDER_REFIT all can be).
// INVALID_ARGUMENT for other tensors, and for types that are no floating ones.
RABBET_API rabbet_status_t rabbet_tensor_set_refittable(rabbet_tensor_t* tensor,
                                                        bool is_refittable);
RABBET_API bool rabbet_tensor_is_refittable(const rabbet_tensor_t* tensor);
// Smallest and largest element that matter, for builds with
// RABBET_BUILDER_INT8: products may read the tensor as 8 bits, with the scale
// max(|min|, |max|) / 127. INVALID_ARGUMENT unless min <= max are finite and
// not both 0.
RABBET_API rabbet_status_t rabbet_tensor_set_range(rabbet_tensor_t* tensor,
                                                   float min, float max);
RABBET_API void rabbet_tensor_reset_range(rabbet_tensor_t* tensor);
// False: none was set.
RABBET_API bool rabbet_tensor_range(const rabbet_tensor_t* tensor,
                                    float* out_min, float* out_max);
// The tensor of that name, or NULL.
RABBET_API rabbet_tensor_t* rabbet_network_find_tensor(
    const rabbet_network_t* network, const char* name);
// A debug tensor: it is computed and never fused away, so that runs can show it
// (rabbet_context_set_debug_listener). INVALID_ARGUMENT for weights.
RABBET_API rabbet_status_t rabbet_tensor_set_debug(rabbet_tensor_t* tensor,
                                                   bool is_debug);
RABBET_API bool rabbet_tensor_is_debug(const rabbet_tensor_t* tensor);
// Runs can also show all tensors between two kernels, without any effect on
// fusion.
RABBET_API void rabbet_network_set_unfused_debug(rabbet_network_t* network,
                                                 bool is_debug);
RABBET_API bool rabbet_network_unfused_debug(const rabbet_network_t* network);

// ---- Layers ----------------------------------------------------------------

RABBET_API const char* rabbet_layer_name(const rabbet_layer_t* layer);
RABBET_API rabbet_status_t rabbet_layer_set_name(rabbet_layer_t* layer,
                                                 const char* name);
RABBET_API const char* rabbet_layer_op(const rabbet_layer_t* layer);
RABBET_API const char* rabbet_layer_metadata(const rabbet_layer_t* layer);
// How a plugin layer may run: bits RABBET_PLUGIN_... (rabbet/plugin.h), 0: in
// any way that the plugin has on the device, the quickest. INVALID_ARGUMENT for
// other layers. The network's wish is for plugin layers added after it.
RABBET_API rabbet_status_t
rabbet_network_set_plugin_kinds(rabbet_network_t* network, uint32_t kinds);
RABBET_API rabbet_status_t rabbet_layer_set_plugin_kinds(rabbet_layer_t* layer,
                                                         uint32_t kinds);
RABBET_API rabbet_status_t rabbet_layer_set_metadata(rabbet_layer_t* layer,
                                                     const char* metadata);
RABBET_API size_t rabbet_layer_input_count(const rabbet_layer_t* layer);
RABBET_API rabbet_tensor_t* rabbet_layer_input(const rabbet_layer_t* layer,
                                               size_t index);
// Appends or replaces; index at most the operator's number of operands.
RABBET_API rabbet_status_t rabbet_layer_set_input(rabbet_layer_t* layer,
                                                  size_t index,
                                                  rabbet_tensor_t* tensor);
// Without outputs for the host alone, such as the number of elements that
// non_zero finds.
RABBET_API size_t rabbet_layer_output_count(const rabbet_layer_t* layer);
RABBET_API rabbet_tensor_t* rabbet_layer_output(const rabbet_layer_t* layer,
                                                size_t index);
// Borrowed until the attribute is set again. NOT_FOUND lists the existing
// names.
RABBET_API rabbet_status_t rabbet_layer_attr(const rabbet_layer_t* layer,
                                             const char* name,
                                             const rabbet_attr_t** out_attr);
RABBET_API rabbet_status_t rabbet_layer_set_attr(rabbet_layer_t* layer,
                                                 const rabbet_attr_t* attr);
// The type in which a layer of a weakly typed network must compute; NONE: any.
RABBET_API rabbet_dtype_t rabbet_layer_precision(const rabbet_layer_t* layer);
RABBET_API rabbet_status_t rabbet_layer_set_precision(rabbet_layer_t* layer,
                                                      rabbet_dtype_t dtype);
// Wraps an instance that the caller made; takes it on success. The creator may
// be unregistered (then the plan can be run in this process only if it is
// registered when the plan is loaded).
RABBET_API rabbet_status_t rabbet_network_add_plugin_instance(
    rabbet_network_t* network, const rabbet_plugin_creator_t* creator,
    rabbet_plugin_instance_t take_instance, const char* name,
    rabbet_tensor_t* const* inputs, size_t input_count,
    rabbet_layer_t** out_layer);
// Plugin layers: the instance, with the address of the vtable that it was made
// with, which identifies its maker; else NULLs.
RABBET_API rabbet_plugin_instance_t
rabbet_layer_plugin_instance(const rabbet_layer_t* layer);
// Plugin layers: the instance's self, else NULL.
RABBET_API void* rabbet_layer_plugin_self(const rabbet_layer_t* layer);

// ---- Loops -----------------------------------------------------------------

// Boundary layers define a loop: layers that depend on its recurrences and
// iterators are its body, which runs once for each iteration; others run once,
// before. Values leave it by its outputs alone. The layers of a loop within a
// loop depend on the outer one's.
//
// The builder unrolls a loop if its number of iterations follows from constants
// and fixed shapes.

// `name` may be NULL. ALREADY_EXISTS if another loop has it. Loops belong to
// their network, as layers do.
RABBET_API rabbet_status_t rabbet_network_add_loop(rabbet_network_t* network,
                                                   const char* name,
                                                   rabbet_loop_t** out_loop);
RABBET_API size_t rabbet_network_loop_count(const rabbet_network_t* network);
RABBET_API rabbet_loop_t* rabbet_network_loop(const rabbet_network_t* network,
                                              size_t index);
RABBET_API const char* rabbet_loop_name(const rabbet_loop_t* loop);
RABBET_API rabbet_status_t rabbet_loop_set_name(rabbet_loop_t* loop,
                                                const char* name);
// A value that iterations hand on: input 0 in the first, then input 1, which
// rabbet_layer_set_input gives once it is there. Its type and shape stay.
RABBET_API rabbet_status_t
rabbet_loop_add_recurrence(rabbet_loop_t* loop, rabbet_tensor_t* initial_value,
                           rabbet_layer_t** out_layer);
// COUNT: a single INT32 or INT64 from outside of the loop. WHILE: a single
// BOOL, read before each iteration. One of each kind at most; the loop ends at
// the first that ends it. ALREADY_EXISTS if there is one of the kind.
RABBET_API rabbet_status_t rabbet_loop_add_trip_limit(
    rabbet_loop_t* loop, rabbet_tensor_t* tensor, rabbet_trip_limit_t kind,
    rabbet_layer_t** out_layer);
// Slice i of the tensor along the axis, which is taken away, in iteration i;
// reversed: slice (extent - 1 - i).
RABBET_API rabbet_status_t rabbet_loop_add_iterator(rabbet_loop_t* loop,
                                                    rabbet_tensor_t* tensor,
                                                    int32_t axis, bool reverse,
                                                    rabbet_layer_t** out_layer);
// LAST_VALUE: the tensor is the output of a recurrence of this loop; the result
// is its value in the iteration after the last one. CONCATENATE and REVERSE: a
// new axis has the values of all iterations. Its extent is input 1, by default
// the COUNT limit; a loop that ends earlier leaves zeros behind.
RABBET_API rabbet_status_t rabbet_loop_add_output(rabbet_loop_t* loop,
                                                  rabbet_tensor_t* tensor,
                                                  rabbet_loop_output_t kind,
                                                  int32_t axis,
                                                  rabbet_layer_t** out_layer);
// The loop whose boundary the layer belongs to, or NULL.
RABBET_API rabbet_loop_t* rabbet_layer_loop(const rabbet_layer_t* layer);

// ---- Conditionals ----------------------------------------------------------

// A conditional is what its boundary layers say: layers that depend on its
// inputs, and that one of the two tensors of an output needs, are a branch.
// Only the branch that the condition chooses runs. Layers that do not depend on
// the inputs run in any case, before.

// `name` may be NULL. ALREADY_EXISTS if another conditional has it. They belong
// to their network, as layers do.
RABBET_API rabbet_status_t
rabbet_network_add_conditional(rabbet_network_t* network, const char* name,
                               rabbet_conditional_t** out_conditional);
RABBET_API size_t
rabbet_network_conditional_count(const rabbet_network_t* network);
RABBET_API rabbet_conditional_t* rabbet_network_conditional(
    const rabbet_network_t* network, size_t index);
RABBET_API const char* rabbet_conditional_name(
    const rabbet_conditional_t* conditional);
RABBET_API rabbet_status_t rabbet_conditional_set_name(
    rabbet_conditional_t* conditional, const char* name);
// A single BOOL. ALREADY_EXISTS if there is one.
RABBET_API rabbet_status_t rabbet_conditional_set_condition(
    rabbet_conditional_t* conditional, rabbet_tensor_t* condition,
    rabbet_layer_t** out_layer);
// Branches read the layer's output.
RABBET_API rabbet_status_t rabbet_conditional_add_input(
    rabbet_conditional_t* conditional, rabbet_tensor_t* tensor,
    rabbet_layer_t** out_layer);
// Of one type and number of dimensions; extents may differ.
RABBET_API rabbet_status_t rabbet_conditional_add_output(
    rabbet_conditional_t* conditional, rabbet_tensor_t* yes,
    rabbet_tensor_t* no, rabbet_layer_t** out_layer);
// The conditional whose boundary the layer belongs to, or NULL.
RABBET_API rabbet_conditional_t* rabbet_layer_conditional(
    const rabbet_layer_t* layer);

RABBET_EXTERN_C_END
#endif  // RABBET_NETWORK_H_
