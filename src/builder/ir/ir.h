// The passes' representation: values and nodes copied from a network, so that
// the network is not changed.
//
// Invariants: values.data[i]->id == i. Nodes come in an order of execution. A
// value has at most one producer, and value->producer and value->uses are right
// at all times (change nodes through the functions below). Everything lies in
// the arena of the build.
#ifndef RABBET_SRC_BUILDER_IR_IR_H_
#define RABBET_SRC_BUILDER_IR_IR_H_

#include <assert.h>

#include "base/arena.h"
#include "base/vec.h"
#include "network/network.h"
#include "ops/op.h"

typedef struct rabbet_ir_node_t rabbet_ir_node_t;

typedef struct rabbet_ir_value_t {
  int32_t id;
  const char* name;
  rabbet_dtype_t dtype;
  rabbet_shape_t shape;
  const void* constant;  // row-major host data, or NULL; a value that
                         // has it may have a producer (quantized_products.c)
  // A constant that its producer makes when a kernel reads it; until then
  // `constant` is NULL or memory without contents (rabbet_fold_reserve).
  bool is_deferred;
  const rabbet_expr_t* values;  // elements as expressions, or NULL. Values that
                                // have them need no producer
  size_t value_count;
  rabbet_ir_node_t* producer;
  int32_t uses;    // inputs of nodes that are this value
  int32_t input;   // number of the network input, or -1
  int32_t output;  // number of the network output, or -1
  // A symbol of the graph refers to its elements: it must stay this value.
  bool is_read_by_host;
  uint64_t formats;       // allowed where it is a network input or output
  rabbet_dtype_t wished;  // weakly typed networks: type it must have, or NONE
  const char* const* dim_names;  // RABBET_MAX_RANK, network inputs
  // Weights that can be refitted: while the network is simplified, `constant`
  // is NULL and the data are here, so that nothing is computed from them.
  bool is_refittable;
  const void* refit_data;
  int32_t fold_block;  // of `constant`, from 1 (fold.c); 0: it has none
  // The largest absolute value that matters, and the network's tensor of which
  // it is known (implicit_quantization.c); NULL: it is not.
  float range;
  const char* ranged;
  const char* scale_of;  // of a scale: the tensor with that range; or NULL
  // Of refittable weights: the value that this is a copy of, or 8 bits of, and
  // their scales; or -1.
  int32_t copy_of, bytes_of, bytes_scale;
} rabbet_ir_value_t;

struct rabbet_ir_node_t {
  const rabbet_op_t* op;
  const char* name;
  const rabbet_attr_t* attrs;  // op->attr_count, the descriptor's order
  int32_t* inputs;             // -1: omitted
  size_t input_count;
  int32_t* outputs;
  size_t output_count;
  rabbet_dtype_t precision;       // NONE: any
  rabbet_plugin_t* plugin;        // borrowed from the network
  const rabbet_bodies_t* bodies;  // that it runs, borrowed likewise
  const int32_t* aliased;         // plugin layers, or NULL
  bool wants_bytes;  // the user asked for INT8 (implicit_quantization.c)
  bool is_implicit;  // quantizes or dequantizes where no layer does
  bool is_optional;  // a node with is_implicit that may be left out
  bool dead;         // taken out by the next rabbet_ir_sweep
  int32_t index;     // place in nodes; set by rabbet_ir_sweep
};

typedef struct rabbet_ir_t {
  rabbet_allocator_t allocator;
  rabbet_arena_t* arena;
  rabbet_expr_graph_t* graph;  // symbols refer to values
  bool strongly_typed;
  bool reads_packed;  // the device has kernels for packed_weights.c
  RABBET_VEC(rabbet_ir_value_t*) values;
  RABBET_VEC(rabbet_ir_node_t*) nodes;
  int32_t* inputs;
  size_t input_count;
  // Outputs of the network, then debug tensors that are neither its inputs nor
  // outputs, then tensors of its checks.
  int32_t* outputs;
  size_t output_count;
  size_t debug_count, check_count;
  // Which weights can be refitted: bits 1 << rabbet_builder_flag_t.
  uint32_t refit_flags;
} rabbet_ir_t;

// Copies the parts of an inferred network that its outputs need. `refit_flags`
// as above.
RABBET_PRIVATE_API rabbet_status_t rabbet_ir_import(
    rabbet_network_t* network, uint32_t refit_flags, rabbet_arena_t* arena,
    rabbet_allocator_t allocator, rabbet_ir_t* out_ir);
// The network is as simple as it gets: gives refittable weights back.
RABBET_PRIVATE_API void rabbet_ir_show_refittable(rabbet_ir_t* ir);
RABBET_PRIVATE_API void rabbet_ir_deinitialize(rabbet_ir_t* ir);

static inline rabbet_ir_value_t* rabbet_ir_value(const rabbet_ir_t* ir,
                                                 int32_t id) {
  assert(id >= 0 && (size_t)id < ir->values.count);
  return ir->values.data[id];
}
static inline rabbet_ir_value_t* rabbet_ir_input(const rabbet_ir_t* ir,
                                                 const rabbet_ir_node_t* node,
                                                 size_t index) {
  if (index >= node->input_count || node->inputs[index] < 0) return NULL;
  return rabbet_ir_value(ir, node->inputs[index]);
}
static inline rabbet_ir_value_t* rabbet_ir_output(const rabbet_ir_t* ir,
                                                  const rabbet_ir_node_t* node,
                                                  size_t index) {
  assert(index < node->output_count);
  return rabbet_ir_value(ir, node->outputs[index]);
}

// Whether a node needs the values of this input to know shapes.
RABBET_PRIVATE_API bool rabbet_ir_is_shape_operand(const rabbet_ir_node_t* node,
                                                   size_t index);
// Whether the tensor has at most this many rows along its last axis, or a
// number of them that only a run tells, as a decoder's have.
RABBET_PRIVATE_API bool rabbet_ir_has_few_rows(const rabbet_ir_t* ir,
                                               const rabbet_ir_value_t* value,
                                               int64_t most);
// Dimensions as far as they are constant, -1 elsewhere.
RABBET_PRIVATE_API rabbet_dims_t rabbet_ir_dims(const rabbet_ir_t* ir,
                                                const rabbet_ir_value_t* value);
RABBET_PRIVATE_API bool rabbet_ir_shape_equal(const rabbet_shape_t* a,
                                              const rabbet_shape_t* b);

// Whether the node only gives its input another shape, so that its output can
// be the same memory: no axis moves past another but those of extent 1.
RABBET_PRIVATE_API bool rabbet_ir_is_view(const rabbet_ir_t* ir,
                                          const rabbet_ir_node_t* node);
// Whether the output in `to` has the memory of the input in `from` (LINEAR or
// HWC), for all shapes.
bool rabbet_ir_is_view_between(const rabbet_ir_t* ir,
                               const rabbet_ir_node_t* node,
                               rabbet_format_t from, rabbet_format_t to);

// Start and stride of a slice on each axis of its input.
typedef struct rabbet_ir_window_t {
  int64_t start[RABBET_MAX_RANK], stride[RABBET_MAX_RANK];
} rabbet_ir_window_t;
// False for other nodes, where a number is not known, and for slices that may
// reach beyond their input.
RABBET_PRIVATE_API bool rabbet_ir_window(const rabbet_ir_t* ir,
                                         const rabbet_ir_node_t* node,
                                         rabbet_ir_window_t* out_window);
// Whether the node is a slice whose elements lie one behind the other in its
// input's memory, from element *out_first on; shapes are constant.
RABBET_PRIVATE_API bool rabbet_ir_is_part(const rabbet_ir_t* ir,
                                          const rabbet_ir_node_t* node,
                                          int64_t* out_first);

// ---- Changing ---------------------------------------------------------------

// A value without producer: a copy of the type and shape of `like`, with its
// own id and no uses, elements, network input or output.
RABBET_PRIVATE_API rabbet_status_t
rabbet_ir_add_value(rabbet_ir_t* ir, const rabbet_ir_value_t* like,
                    const char* name, rabbet_ir_value_t** out_value);
// A constant; `data` must live as long as the build.
RABBET_PRIVATE_API rabbet_status_t rabbet_ir_add_constant(
    rabbet_ir_t* ir, const char* name, rabbet_dtype_t dtype,
    const rabbet_dims_t* dims, const void* data, rabbet_ir_value_t** out_value);
// A node of the catalogue before node `before` (NULL: at the end), with new
// outputs whose types and shapes are inferred.
RABBET_PRIVATE_API rabbet_status_t
rabbet_ir_add_node(rabbet_ir_t* ir, rabbet_op_id_t op, const char* name,
                   const rabbet_attr_t* attrs, size_t attr_count,
                   const int32_t* inputs, size_t input_count,
                   const rabbet_ir_node_t* before, rabbet_ir_node_t** out_node);
RABBET_PRIVATE_API void rabbet_ir_set_input(rabbet_ir_t* ir,
                                            rabbet_ir_node_t* node,
                                            size_t index, int32_t value);
// Every reader of `old` reads `value` instead; if `old` was a network output,
// so is `value`, which then must not have been one (see below).
RABBET_PRIVATE_API void rabbet_ir_replace_uses(rabbet_ir_t* ir,
                                               rabbet_ir_value_t* old,
                                               rabbet_ir_value_t* value);
// Whether rabbet_ir_replace_uses keeps the network's promises: names and types
// of outputs, symbols, requested formats.
RABBET_PRIVATE_API bool rabbet_ir_can_replace(const rabbet_ir_value_t* old,
                                              const rabbet_ir_value_t* value);
RABBET_PRIVATE_API void rabbet_ir_kill(rabbet_ir_t* ir, rabbet_ir_node_t* node);
// Removes dead nodes, and nodes that no output, live node or shape of a live
// value needs.
RABBET_PRIVATE_API rabbet_status_t rabbet_ir_sweep(rabbet_ir_t* ir);
// Whether the invariants hold, right after a sweep. For asserts.
RABBET_PRIVATE_API bool rabbet_ir_is_consistent(rabbet_ir_t* ir);

// ---- Expressions ------------------------------------------------------------

// Replaces a symbol when a graph is copied.
typedef rabbet_status_t (*rabbet_ir_symbol_fn_t)(void* context,
                                                 rabbet_expr_graph_t* target,
                                                 const rabbet_symbol_t* symbol,
                                                 rabbet_expr_t* out_expr);

// Adds to needed[] the operands of the marked nodes, and estimates and bounds
// of symbols. One entry for each node of the graph.
RABBET_PRIVATE_API void rabbet_ir_close_exprs(const rabbet_expr_graph_t* graph,
                                              bool* needed);
// Copies the needed nodes (NULL: all) into `target`; map[i] is the new number
// of node i, RABBET_EXPR_NONE if it was not needed. A symbol handed to `fn`
// has its estimate and bound in numbers of the target.
RABBET_PRIVATE_API rabbet_status_t
rabbet_ir_copy_exprs(const rabbet_expr_graph_t* source, const bool* needed,
                     rabbet_ir_symbol_fn_t fn, void* context,
                     rabbet_expr_graph_t* target, rabbet_expr_t* map);

#endif  // RABBET_SRC_BUILDER_IR_IR_H_
