// A plugin layer's instance, counted, with checked calls.
//
// All calls of a plugin go through these functions: they check the callback's
// results (types, ranks, aliases, tactics) and add the plugin's name to its
// failures; the caller adds that of the layer or step.
#ifndef RABBET_SRC_PLUGIN_PLUGIN_H_
#define RABBET_SRC_PLUGIN_PLUGIN_H_

#include "core/expr.h"
#include "rabbet/plugin.h"

// A creator and the instance that it made. Counted, thread-safe.
typedef struct rabbet_plugin_t rabbet_plugin_t;

// Looks the creator up, checks attrs against its fields (unknown, missing
// required, wrong type are errors that list the fields) and calls `create`.
RABBET_PRIVATE_API rabbet_status_t rabbet_plugin_create(
    const char* name, const char* version, const char* plugin_namespace,
    const rabbet_plugin_create_t* args, rabbet_allocator_t allocator,
    rabbet_plugin_t** out_plugin);
// By a creator of the registry or of a library; retained.
RABBET_PRIVATE_API rabbet_status_t rabbet_plugin_create_by(
    const rabbet_plugin_creator_t* creator, const rabbet_plugin_create_t* args,
    rabbet_allocator_t allocator, rabbet_plugin_t** out_plugin);
// Wraps an instance made otherwise (API users, class-based plugins). Takes the
// instance on success. `creator_key` strings are copied.
RABBET_PRIVATE_API rabbet_status_t
rabbet_plugin_wrap(const rabbet_plugin_creator_t* creator,
                   rabbet_plugin_instance_t take_instance,
                   rabbet_allocator_t allocator, rabbet_plugin_t** out_plugin);
// A copy of our size of an instance's table; an error names the missing
// functions. `creator` was read by rabbet_creator_read.
RABBET_PRIVATE_API rabbet_status_t rabbet_plugin_vtable_read(
    const rabbet_plugin_creator_t* creator, const rabbet_plugin_vtable_t* given,
    rabbet_plugin_vtable_t* out_vtable);
RABBET_PRIVATE_API void rabbet_plugin_release(rabbet_plugin_t* plugin);
RABBET_PRIVATE_API rabbet_status_t
rabbet_plugin_clone(rabbet_plugin_t* plugin, rabbet_plugin_t** out_clone);

RABBET_PRIVATE_API const rabbet_plugin_creator_t* rabbet_plugin_creator(
    const rabbet_plugin_t* plugin);
RABBET_PRIVATE_API void* rabbet_plugin_self(const rabbet_plugin_t* plugin);
// The vtable's address is that of the one given when the instance was made.
RABBET_PRIVATE_API rabbet_plugin_instance_t
rabbet_plugin_instance(const rabbet_plugin_t* plugin);
// Text for the inspector, borrowed until the next call; "" for none.
RABBET_PRIVATE_API const char* rabbet_plugin_metadata(rabbet_plugin_t* plugin);
// Bit i: input i is a shape input, by the creator or by the instance.
RABBET_PRIVATE_API uint64_t
rabbet_plugin_shape_inputs(const rabbet_plugin_t* plugin);
RABBET_PRIVATE_API int32_t rabbet_plugin_output_count(rabbet_plugin_t* plugin);

// Expression builder for one describe: size tensors become symbols of
// output_tensors[i] (tensor numbers of the network).
struct rabbet_dim_builder_t {
  rabbet_expr_graph_t* graph;
  const int32_t* output_tensors;
  size_t output_count;
};
RABBET_PRIVATE_API rabbet_status_t
rabbet_plugin_describe(rabbet_plugin_t* plugin, rabbet_dim_builder_t* builder,
                       const rabbet_plugin_input_t* inputs, size_t input_count,
                       rabbet_plugin_output_t* outputs);
RABBET_PRIVATE_API rabbet_status_t rabbet_plugin_combinations(
    rabbet_plugin_t* plugin, const rabbet_plugin_query_t* query,
    rabbet_plugin_combination_sink_t sink);
// Whether a plan's step may use the plugin: OK where it offers the types and
// formats that `query` has, and the tactic; INCOMPATIBLE where it does not.
RABBET_PRIVATE_API rabbet_status_t
rabbet_plugin_takes(rabbet_plugin_t* plugin, const rabbet_plugin_query_t* query,
                    int32_t tactic);
// Always at least one tactic (0 when the plugin names none).
RABBET_PRIVATE_API rabbet_status_t rabbet_plugin_tactics(
    rabbet_plugin_t* plugin, const rabbet_plugin_query_t* query,
    rabbet_plugin_tactic_sink_t sink);
// *out_cacheable false if the plugin gives no key.
RABBET_PRIVATE_API rabbet_status_t
rabbet_plugin_timing_key(rabbet_plugin_t* plugin,
                         rabbet_plugin_attr_sink_t sink, bool* out_cacheable);
// For the chosen combination.
RABBET_PRIVATE_API rabbet_status_t rabbet_plugin_serialize(
    rabbet_plugin_t* plugin, const rabbet_plugin_query_t* query, int32_t tactic,
    rabbet_plugin_attr_sink_t sink);
RABBET_PRIVATE_API rabbet_status_t
rabbet_plugin_prepare(rabbet_plugin_t* plugin, const rabbet_plugin_call_t* call,
                      size_t* out_workspace, void** out_state);
RABBET_PRIVATE_API void rabbet_plugin_destroy_state(rabbet_plugin_t* plugin,
                                                    void* state);
// Adds no cost but the call when it succeeds.
RABBET_PRIVATE_API rabbet_status_t rabbet_plugin_enqueue(
    rabbet_plugin_t* plugin, const rabbet_plugin_call_t* call);

// Whether, and how, calls are recorded into a graph. A plugin that keeps
// something must be able to release it.
RABBET_PRIVATE_API rabbet_plugin_capture_t rabbet_plugin_capture(
    rabbet_plugin_t* plugin, const rabbet_plugin_call_t* call);
RABBET_PRIVATE_API rabbet_status_t rabbet_plugin_enqueue_captured(
    rabbet_plugin_t* plugin, const rabbet_plugin_call_t* call, void** out_kept);
RABBET_PRIVATE_API void rabbet_plugin_release_captured(rabbet_plugin_t* plugin,
                                                       void* kept);

// Restricts how it may run (bits RABBET_PLUGIN_...; 0: not at all restricted).
RABBET_PRIVATE_API void rabbet_plugin_set_kinds(rabbet_plugin_t* plugin,
                                                uint32_t kinds);
// Bits RABBET_PLUGIN_...: how it can, and may, run on the device.
RABBET_PRIVATE_API uint32_t rabbet_plugin_kinds(rabbet_plugin_t* plugin,
                                                const char* device);
// aot_kernels.h converts them for the plan.
RABBET_PRIVATE_API rabbet_status_t rabbet_plugin_launches(
    rabbet_plugin_t* plugin, rabbet_dim_builder_t* builder,
    const rabbet_plugin_query_t* query, int32_t tactic,
    const rabbet_plugin_input_t* inputs, const rabbet_plugin_output_t* outputs,
    rabbet_plugin_launch_sink_t sink);

#endif  // RABBET_SRC_PLUGIN_PLUGIN_H_
