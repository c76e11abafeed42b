// The results of a plugin's `launches`, copied and checked.
#include "plugin/aot_kernels.h"

#include <string.h>

#include "base/math.h"
#include "base/struct.h"
#include "base/vec.h"

#define AOT_MAX_ARG_BYTES 4096  // of all of a kernel's parameters

typedef struct aot_collector_t {
  rabbet_aot_kernels_t* kernels;
  RABBET_VEC(rabbet_plugin_launch_t) launches;
} aot_collector_t;

rabbet_status_t rabbet_aot_kernels_new(rabbet_allocator_t allocator,
                                       size_t input_count, size_t output_count,
                                       rabbet_aot_kernels_t** out_kernels) {
  *out_kernels = NULL;
  rabbet_aot_kernels_t* kernels = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(allocator, sizeof(*kernels), (void**)&kernels));
  rabbet_arena_initialize(allocator, &kernels->arena);
  kernels->input_count = input_count;
  kernels->output_count = output_count;
  rabbet_status_t status = rabbet_expr_graph_create(allocator, &kernels->graph);
  if (rabbet_is_ok(status))
    status = rabbet_expr_constant(kernels->graph, 0, &kernels->workspace);
  if (!rabbet_is_ok(status)) {
    rabbet_aot_kernels_destroy(kernels);
    return status;
  }
  *out_kernels = kernels;
  return rabbet_ok();
}

void rabbet_aot_kernels_destroy(rabbet_aot_kernels_t* kernels) {
  if (!kernels) return;
  rabbet_allocator_t allocator = kernels->arena.allocator;
  if (kernels->graph) rabbet_expr_graph_destroy(kernels->graph);
  rabbet_arena_deinitialize(&kernels->arena);
  rabbet_free(allocator, kernels);
}

// ---- Checks ----------------------------------------------------------------

// Whether the launches of a plugin, or of a plan's bytes, are valid.
typedef struct aot_fault_t {
  const char* what;  // NULL: none
  size_t index;
} aot_fault_t;

static bool aot_is_expr(const rabbet_aot_kernels_t* kernels,
                        rabbet_expr_t expr) {
  return expr >= 0 && (size_t)expr < rabbet_expr_node_count(kernels->graph);
}

static bool aot_is_tensor(const rabbet_aot_kernels_t* kernels, bool output,
                          int32_t index) {
  size_t count = output ? kernels->output_count : kernels->input_count;
  return index >= 0 && (size_t)index < count;
}

static const char* aot_map_fault(const rabbet_aot_kernels_t* kernels,
                                 const rabbet_plugin_tensor_map_t* map) {
  if (!map || map->rank < 1 || map->rank > 5)
    return "a tensor map must have a rank of 1 to 5";
  if (!aot_is_tensor(kernels, map->of_output, map->index))
    return "a tensor map is of an input or output that does not exist";
  for (int32_t i = 0; i < map->rank; ++i) {
    if (!aot_is_expr(kernels, map->dims[i]) ||
        (i > 0 && !aot_is_expr(kernels, map->strides[i - 1])))
      return "a tensor map has a dimension or stride that was not set";
    if (map->box[i] < 1 || map->box[i] > 256 || map->element_strides[i] < 1)
      return "a tensor map's box must be 1 to 256, its element strides "
             "positive";
  }
  return NULL;
}

static const char* aot_arg_fault(const rabbet_aot_kernels_t* kernels,
                                 const rabbet_plugin_arg_t* arg) {
  switch (arg->kind) {
    case RABBET_PLUGIN_ARG_INPUT:
    case RABBET_PLUGIN_ARG_OUTPUT:
      return aot_is_tensor(kernels, arg->kind == RABBET_PLUGIN_ARG_OUTPUT,
                           arg->index)
                 ? NULL
                 : "it is an input or output that does not exist";
    case RABBET_PLUGIN_ARG_INTEGER:
      if (arg->size != 1 && arg->size != 2 && arg->size != 4 && arg->size != 8)
        return "an integer has 1, 2, 4 or 8 bytes";
      return aot_is_expr(kernels, arg->value) ? NULL : "its value was not set";
    case RABBET_PLUGIN_ARG_WORKSPACE:
      return aot_is_expr(kernels, arg->value) ? NULL : "its offset was not set";
    case RABBET_PLUGIN_ARG_BYTES:
      return arg->data && arg->size > 0 && arg->size <= AOT_MAX_ARG_BYTES
                 ? NULL
                 : "bytes need data, of 1 to 4096 bytes";
    case RABBET_PLUGIN_ARG_TENSOR_MAP:
      return aot_map_fault(kernels, arg->map);
  }
  return "its kind does not exist";
}

static aot_fault_t aot_launch_fault(const rabbet_aot_kernels_t* kernels,
                                    const rabbet_plugin_launch_t* launch) {
  if (!launch->kernel || !*launch->kernel)
    return (aot_fault_t){"it has no kernel name", 0};
  if (launch->image_count == 0) return (aot_fault_t){"it has no code", 0};
  for (size_t i = 0; i < launch->image_count; ++i) {
    if (!launch->images[i].data || launch->images[i].size == 0)
      return (aot_fault_t){"an image of its code is empty", i};
  }
  for (int i = 0; i < 3; ++i) {
    if (!aot_is_expr(kernels, launch->grid[i]) ||
        !aot_is_expr(kernels, launch->block[i]))
      return (aot_fault_t){"a dimension of grid or block was not set",
                           (size_t)i};
    if (launch->cluster[i] < 0 || launch->cluster[i] > 16)
      return (aot_fault_t){"a cluster dimension must be 0 to 16", (size_t)i};
  }
  if (!aot_is_expr(kernels, launch->shared_bytes))
    return (aot_fault_t){"its shared memory was not set", 0};
  for (size_t i = 0; i < launch->arg_count; ++i) {
    const char* fault = aot_arg_fault(kernels, &launch->args[i]);
    if (fault) return (aot_fault_t){fault, i};
  }
  return (aot_fault_t){NULL, 0};
}

rabbet_status_t rabbet_aot_kernels_check(const rabbet_aot_kernels_t* kernels) {
  if (!aot_is_expr(kernels, kernels->workspace))
    return RABBET_STATUS(RABBET_STATUS_DATA_LOSS,
                         "the workspace of an ahead-of-time kernel is damaged");
  for (size_t i = 0; i < kernels->launch_count; ++i) {
    aot_fault_t fault = aot_launch_fault(kernels, &kernels->launches[i]);
    if (fault.what)
      return RABBET_STATUS(RABBET_STATUS_DATA_LOSS,
                           "ahead-of-time kernel %zu, item or argument %zu: %s",
                           i, fault.index, fault.what);
  }
  return rabbet_ok();
}

// ---- From a plugin ---------------------------------------------------------

// PTX is text: it gets a NUL if it has none.
static rabbet_status_t aot_copy_image(rabbet_arena_t* arena,
                                      rabbet_plugin_image_t* image) {
  uint8_t* copy = NULL;
  const uint8_t* from = image->data;
  bool text = image->major < 0 && from[image->size - 1] != 0;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate(arena, image->size + 1, (void**)&copy));
  memcpy(copy, from, image->size);
  image->data = copy;
  image->size += text;
  return rabbet_ok();
}

static rabbet_status_t aot_copy_arg(rabbet_arena_t* arena,
                                    rabbet_plugin_arg_t* arg) {
  if (arg->kind == RABBET_PLUGIN_ARG_BYTES)
    return rabbet_arena_copy(arena, arg->data, arg->size, (void**)&arg->data);
  return rabbet_ok();
}

// The structures of a plugin's launch, as large as ours and in the arena; they
// still point to the plugin's data.
static rabbet_status_t aot_read_launch(rabbet_arena_t* arena,
                                       const rabbet_plugin_launch_t* given,
                                       rabbet_plugin_launch_t* out) {
  rabbet_plugin_image_t* images = NULL;
  rabbet_plugin_arg_t* args = NULL;
  RABBET_RETURN_IF_ERROR(
      RABBET_STRUCT_READ(rabbet_plugin_launch_t, given, arg_size, out));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, out->image_count, sizeof(*images), (void**)&images));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, out->arg_count, sizeof(*args), (void**)&args));
  RABBET_RETURN_IF_ERROR(RABBET_ELEMENTS_READ(rabbet_plugin_image_t,
                                              out->images, out->image_size,
                                              out->image_count, size, images));
  RABBET_RETURN_IF_ERROR(RABBET_ELEMENTS_READ(rabbet_plugin_arg_t, out->args,
                                              out->arg_size, out->arg_count,
                                              map, args));
  for (size_t i = 0; i < out->arg_count; ++i) {
    rabbet_plugin_tensor_map_t* map = NULL;
    if (args[i].kind != RABBET_PLUGIN_ARG_TENSOR_MAP || !args[i].map) continue;
    RABBET_RETURN_IF_ERROR(
        rabbet_arena_allocate(arena, sizeof(*map), (void**)&map));
    RABBET_RETURN_IF_ERROR(RABBET_STRUCT_READ(rabbet_plugin_tensor_map_t,
                                              args[i].map, oob_fill, map));
    args[i].map = map;
  }
  out->images = images;
  out->image_size = sizeof(*images);
  out->args = args;
  out->arg_size = sizeof(*args);
  return rabbet_ok();
}

static rabbet_status_t aot_copy_launch(rabbet_arena_t* arena,
                                       rabbet_plugin_launch_t* launch) {
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_strdup(arena, launch->kernel, &launch->kernel));
  for (size_t i = 0; i < launch->image_count; ++i)
    RABBET_RETURN_IF_ERROR(
        aot_copy_image(arena, (rabbet_plugin_image_t*)&launch->images[i]));
  for (size_t i = 0; i < launch->arg_count; ++i)
    RABBET_RETURN_IF_ERROR(
        aot_copy_arg(arena, (rabbet_plugin_arg_t*)&launch->args[i]));
  return rabbet_ok();
}

static rabbet_status_t aot_add(void* context,
                               const rabbet_plugin_launch_t* launch) {
  aot_collector_t* collector = context;
  rabbet_aot_kernels_t* kernels = collector->kernels;
  rabbet_plugin_launch_t copy;
  RABBET_RETURN_IF_ERROR(
      RABBET_ANNOTATE(aot_read_launch(&kernels->arena, launch, &copy),
                      "kernel %zu", collector->launches.count));
  aot_fault_t fault = aot_launch_fault(kernels, &copy);
  if (fault.what)
    return RABBET_STATUS(
        RABBET_STATUS_PLUGIN, "kernel %zu ('%s'), item or argument %zu: %s",
        collector->launches.count, copy.kernel ? copy.kernel : "", fault.index,
        fault.what);
  RABBET_RETURN_IF_ERROR(aot_copy_launch(&kernels->arena, &copy));
  return RABBET_VEC_PUSH(kernels->arena.allocator, &collector->launches, copy);
}

static rabbet_status_t aot_workspace(void* context, rabbet_dim_t bytes) {
  rabbet_aot_kernels_t* kernels = ((aot_collector_t*)context)->kernels;
  if (!aot_is_expr(kernels, bytes))
    return RABBET_STATUS(RABBET_STATUS_PLUGIN,
                         "%d is not a dimension of this builder", bytes);
  kernels->workspace = bytes;
  return rabbet_ok();
}

// A dimension that the query fixes is a constant, others are symbols.
static rabbet_status_t aot_input(rabbet_aot_kernels_t* kernels,
                                 const rabbet_plugin_tensor_t* from,
                                 size_t index, rabbet_plugin_input_t* out) {
  *out = (rabbet_plugin_input_t){.dtype = from->dtype, .rank = from->dims.rank};
  for (int32_t axis = 0; axis < from->dims.rank; ++axis) {
    rabbet_symbol_t symbol = {.kind = RABBET_SYMBOL_DIM,
                              .tensor = (int32_t)index,
                              .index = axis,
                              .opt = RABBET_EXPR_NONE,
                              .upper = RABBET_EXPR_NONE};
    RABBET_RETURN_IF_ERROR(
        from->dims.d[axis] < 0
            ? rabbet_expr_of_symbol(kernels->graph, &symbol, &out->dims[axis])
            : rabbet_expr_constant(kernels->graph, from->dims.d[axis],
                                   &out->dims[axis]));
  }
  return rabbet_ok();
}

static rabbet_status_t aot_ask(rabbet_plugin_t* plugin,
                               const rabbet_plugin_query_t* query,
                               int32_t tactic, aot_collector_t* collector) {
  rabbet_aot_kernels_t* kernels = collector->kernels;
  rabbet_arena_t* arena = &kernels->arena;
  rabbet_plugin_input_t* inputs = NULL;
  rabbet_plugin_output_t* outputs = NULL;
  int32_t* numbers = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, query->input_count, sizeof(*inputs), (void**)&inputs));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, query->output_count, sizeof(*outputs), (void**)&outputs));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, query->output_count, sizeof(*numbers), (void**)&numbers));
  for (size_t i = 0; i < query->input_count; ++i)
    RABBET_RETURN_IF_ERROR(
        aot_input(kernels, &query->tensors[i], i, &inputs[i]));
  for (size_t i = 0; i < query->output_count; ++i)
    numbers[i] = (int32_t)(query->input_count + i);
  rabbet_dim_builder_t builder = {.graph = kernels->graph,
                                  .output_tensors = numbers,
                                  .output_count = query->output_count};
  RABBET_RETURN_IF_ERROR(rabbet_plugin_describe(plugin, &builder, inputs,
                                                query->input_count, outputs));
  RABBET_RETURN_IF_ERROR(rabbet_plugin_launches(
      plugin, &builder, query, tactic, inputs, outputs,
      (rabbet_plugin_launch_sink_t){collector, aot_add, aot_workspace}));
  if (collector->launches.count > 0) return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_PLUGIN,
                       "layer '%s': the plugin gave no kernel for tactic %d",
                       query->layer_name, tactic);
}

rabbet_status_t rabbet_aot_kernels_create(rabbet_plugin_t* plugin,
                                          const rabbet_plugin_query_t* query,
                                          int32_t tactic,
                                          rabbet_allocator_t allocator,
                                          rabbet_aot_kernels_t** out_kernels) {
  rabbet_aot_kernels_t* kernels = NULL;
  *out_kernels = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_aot_kernels_new(allocator, query->input_count,
                                                query->output_count, &kernels));
  aot_collector_t collector = {.kernels = kernels};
  rabbet_status_t status = aot_ask(plugin, query, tactic, &collector);
  if (rabbet_is_ok(status)) {
    kernels->launch_count = collector.launches.count;
    status =
        rabbet_arena_copy(&kernels->arena, collector.launches.data,
                          collector.launches.count * sizeof(*kernels->launches),
                          (void**)&kernels->launches);
  }
  rabbet_vec_free(allocator, &collector.launches);
  if (!rabbet_is_ok(status)) {
    rabbet_aot_kernels_destroy(kernels);
    return status;
  }
  *out_kernels = kernels;
  return rabbet_ok();
}

// ---- Evaluating ------------------------------------------------------------

rabbet_status_t rabbet_aot_kernels_evaluate(const rabbet_aot_kernels_t* kernels,
                                            const rabbet_dims_t* inputs,
                                            int64_t* symbols, int64_t* values,
                                            bool* valid) {
  for (size_t i = 0; i < rabbet_expr_symbol_count(kernels->graph); ++i) {
    const rabbet_symbol_t* symbol = rabbet_expr_symbol(kernels->graph, i);
    if (symbol->kind != RABBET_SYMBOL_DIM ||
        (size_t)symbol->tensor >= kernels->input_count ||
        symbol->index >= inputs[symbol->tensor].rank) {
      // Of an output described by a size tensor: no launch may depend on it.
      symbols[i] = -1;
      continue;
    }
    symbols[i] = inputs[symbol->tensor].d[symbol->index];
  }
  return rabbet_expr_evaluate(kernels->graph, symbols, values, valid);
}
