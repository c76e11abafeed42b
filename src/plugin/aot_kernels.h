// Kernels that a plugin made ahead of time, with their launches: in memory, and
// as the bytes that a plan keeps of them.
#ifndef RABBET_SRC_PLUGIN_AOT_KERNELS_H_
#define RABBET_SRC_PLUGIN_AOT_KERNELS_H_

#include "base/arena.h"
#include "plugin/plugin.h"

// As in rabbet/plugin.h; numbers are expressions of `graph`, whose symbols are
// dimensions: tensor = input, index = axis.
typedef struct rabbet_aot_kernels_t {
  rabbet_arena_t arena;  // for all that follows
  rabbet_expr_graph_t* graph;
  rabbet_plugin_launch_t* launches;
  size_t launch_count;
  rabbet_expr_t workspace;  // bytes
  size_t input_count, output_count;
} rabbet_aot_kernels_t;

// Asks the plugin. Input dimensions of the query that are -1 become symbols.
RABBET_PRIVATE_API rabbet_status_t rabbet_aot_kernels_create(
    rabbet_plugin_t* plugin, const rabbet_plugin_query_t* query, int32_t tactic,
    rabbet_allocator_t allocator, rabbet_aot_kernels_t** out_kernels);
// From a plan's bytes, which may say anything: DATA_LOSS. Images are copied.
RABBET_PRIVATE_API rabbet_status_t rabbet_aot_kernels_decode(
    const void* data, size_t size, size_t input_count, size_t output_count,
    rabbet_allocator_t allocator, rabbet_aot_kernels_t** out_kernels);
RABBET_PRIVATE_API void rabbet_aot_kernels_destroy(
    rabbet_aot_kernels_t* kernels);
// Bytes for a plan; the caller frees them.
RABBET_PRIVATE_API rabbet_status_t rabbet_aot_kernels_encode(
    const rabbet_aot_kernels_t* kernels, rabbet_allocator_t allocator,
    void** out_data, size_t* out_size);
// Values of all expressions for these input dimensions: values and valid have
// rabbet_expr_node_count(kernels->graph) elements, symbols
// rabbet_expr_symbol_count.
RABBET_PRIVATE_API rabbet_status_t rabbet_aot_kernels_evaluate(
    const rabbet_aot_kernels_t* kernels, const rabbet_dims_t* inputs,
    int64_t* symbols, int64_t* values, bool* valid);

// Between aot_kernels.c and aot_kernels_encoding.c: an empty one, and whether
// every number of one makes sense (DATA_LOSS).
rabbet_status_t rabbet_aot_kernels_new(rabbet_allocator_t allocator,
                                       size_t input_count, size_t output_count,
                                       rabbet_aot_kernels_t** out_kernels);
rabbet_status_t rabbet_aot_kernels_check(const rabbet_aot_kernels_t* kernels);

#endif  // RABBET_SRC_PLUGIN_AOT_KERNELS_H_
