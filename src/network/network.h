// The inside of a network, for the importer and the builder.
//
// Invariants: tensors[i]->id == i and layers[i]->index == i; a layer's inputs
// come from inputs, weights or earlier layers (the order of layers is an order
// of execution); results of inference are valid for layers [0, inferred) that
// are not unknown, and for inputs and weights among tensors [0, prepared). A
// layer that is appended leaves results alone; any other change drops all of
// them.
#ifndef RABBET_SRC_NETWORK_NETWORK_H_
#define RABBET_SRC_NETWORK_NETWORK_H_

#include "base/arena.h"
#include "base/map.h"
#include "base/strbuf.h"
#include "base/thread.h"
#include "base/vec.h"
#include "ops/loop_wiring.h"
#include "ops/op.h"
#include "plugin/plugin.h"
#include "rabbet/network.h"

typedef enum rabbet_tensor_kind_t {
  RABBET_TENSOR_INPUT = 0,
  RABBET_TENSOR_WEIGHTS = 1,
  RABBET_TENSOR_LAYER = 2,
} rabbet_tensor_kind_t;

struct rabbet_tensor_t {
  rabbet_network_t* network;
  int32_t id;  // -1: removed
  rabbet_tensor_kind_t kind;
  const char* name;
  bool has_own_name;         // not one made up, which gives way to a given one
  rabbet_layer_t* producer;  // LAYER
  int32_t output_index;
  bool is_output;
  bool is_debug;
  bool is_refittable;  // as marked
  // Constants: the layer whose weights they are in which role, if another made
  // them (rabbet_tensor_set_role).
  bool has_role;
  const rabbet_layer_t* role_layer;
  int32_t role;
  bool has_range;
  float range[2];  // min, max
  uint64_t allowed_formats;
  const char* dim_names[RABBET_MAX_RANK];
  // INPUT and WEIGHTS: given. LAYER: inferred.
  rabbet_dtype_t dtype;
  rabbet_dims_t given_dims;
  rabbet_dtype_t wished_dtype;  // weakly typed; NONE
  // INPUT, LAYER: shapes depend on its values, which no expression gives: its
  // elements are symbols.
  bool is_followed;
  // Inferred.
  rabbet_shape_t shape;
  // WEIGHTS, outputs of constant layers, and small tensors computed from
  // constants alone (these lie in the network's infer_arena).
  const void* constant;
  // Integer tensors followed as expressions; FLOAT ones as fractions.
  const rabbet_expr_t *values, *denominators;
  size_t value_count;
  // Some shape depends on its values and no expression gives them: the host
  // reads the tensor (network input: a shape input).
  bool is_host_read;
  bool is_shape_tensor;  // is_host_read, or values reach a shape operand
};

// A network that a layer may run.
typedef struct rabbet_body_t {
  const char* name;  // among those of the layer
  rabbet_network_t* network;
  int32_t* inputs;  // of the layer, one for each of its own
} rabbet_body_t;

// Networks that a layer runs: the branches of a condition, the one for true
// first; or the body of a loop, then its condition if layers compute that.
typedef struct rabbet_bodies_t {
  const char* name;
  rabbet_body_t list[2];
  size_t count;
  const rabbet_loop_wiring_t* loop;  // NULL: branches
} rabbet_bodies_t;

struct rabbet_layer_t {
  rabbet_network_t* network;
  int32_t index;  // -1: removed
  const char* name;
  const char* metadata;  // never NULL
  const rabbet_op_t* op;
  rabbet_attr_t* attrs;      // op->attr_count, the descriptor's order
  rabbet_tensor_t** inputs;  // NULL: an optional one is omitted
  size_t input_count;
  rabbet_tensor_t** outputs;
  size_t output_count;
  rabbet_dtype_t precision;
  rabbet_plugin_t* plugin;  // plugin layers
  // Plugin layers: input in whose place output i lies, or -1; inferred.
  int32_t* aliased;
  bool* is_size_tensor;
  rabbet_loop_t* loop;                // whose boundary it is at, or NULL
  rabbet_conditional_t* conditional;  // likewise
  const rabbet_bodies_t* bodies;      // that it runs, or NULL
  rabbet_tensor_t* next;              // recurrences: made by a later layer
  // Loop outputs: input 1 was not given, but is the loop's COUNT limit.
  bool has_default_length;
  bool is_told;  // loop outputs: as long as iterations ran
  int64_t
      varying;  // recurrences: axes whose extents iterations change, as bits
  bool is_unknown;  // inference failed for it, or for a layer that it reads
};

struct rabbet_loop_t {
  rabbet_network_t* network;
  const char* name;
  RABBET_VEC(rabbet_layer_t*) layers;  // at its boundary, as they were added
  // A loop around it that its maker knows of; else tensors tell (regions.c).
  const rabbet_loop_t* outer;
};

struct rabbet_conditional_t {
  rabbet_network_t* network;
  const char* name;
};

// A condition that must hold in runs: element `index` of a tensor, or all of
// them (-1; the host then knows its values when shapes are set).
typedef struct rabbet_network_check_t {
  const char* layer;
  const char* message;
  rabbet_tensor_t* tensor;
  int32_t index;
} rabbet_network_check_t;

struct rabbet_network_t {
  rabbet_allocator_t allocator;
  rabbet_refcount_t references;
  rabbet_logger_t logger;
  uint32_t flags;
  const char* name;
  rabbet_arena_t arena;
  // NULL until inference starts; made anew when it starts from 0.
  rabbet_expr_graph_t* graph;
  rabbet_arena_t infer_arena;  // values; emptied when inference starts from 0
  RABBET_VEC(rabbet_tensor_t*) tensors;
  RABBET_VEC(rabbet_layer_t*) layers;
  RABBET_VEC(rabbet_tensor_t*) inputs;
  RABBET_VEC(rabbet_tensor_t*) outputs;
  RABBET_VEC(rabbet_loop_t*) loops;
  RABBET_VEC(rabbet_conditional_t*) conditionals;
  // The builder makes these from assertion layers, which it removes. Those with
  // an index come last, and are of one tensor.
  RABBET_VEC(rabbet_network_check_t) checks;
  rabbet_map_t tensor_names;
  rabbet_map_t layer_names;
  size_t inferred;  // layers, unknown ones included
  size_t unknown;   // of them
  size_t prepared;
  bool marks_due;  // a shape operand was met since is_shape_tensor was spread
  struct rabbet_network_owner_t* owners;
  bool unfused_debug;
  uint32_t plugin_kinds;  // of plugin layers: bits RABBET_PLUGIN_..., 0: any
};

// Sets a function that says whether the memory of the owner that was taken last
// is still as it was, and calls those of all owners.
RABBET_PRIVATE_API void rabbet_network_set_owner_check(
    rabbet_network_t* network, rabbet_status_t (*check)(const void* owner));
RABBET_PRIVATE_API rabbet_status_t
rabbet_network_check_owners(const rabbet_network_t* network);
// Infers all layers; the error of the first one that fails.
RABBET_PRIVATE_API rabbet_status_t
rabbet_network_infer(rabbet_network_t* network);
// Whether a run does anything: it has outputs, or exchanges data with other
// ranks.
RABBET_PRIVATE_API bool rabbet_network_has_results(
    const rabbet_network_t* network);
// Infers the first `count` layers and all inputs, for getters: a layer that
// fails, since it is not complete yet, is marked as unknown.
RABBET_PRIVATE_API rabbet_status_t
rabbet_network_infer_until(rabbet_network_t* network, size_t count);

// rabbet_network_add_plugin with all that a creator can be told; the layer is
// named create->layer_name (NULL: a name of its own).
RABBET_PRIVATE_API rabbet_status_t rabbet_network_add_plugin_of(
    rabbet_network_t* network, const char* plugin_name, const char* version,
    const char* plugin_namespace, const rabbet_plugin_create_t* create,
    rabbet_tensor_t* const* inputs, size_t input_count,
    rabbet_layer_t** out_layer);

// ---- Weights ---------------------------------------------------------------

// The layer that weights or a constant belong to, and their role there, a
// number of TensorRT's WeightsRole. NULL: none.
RABBET_PRIVATE_API const rabbet_layer_t* rabbet_tensor_role(
    const rabbet_tensor_t* tensor, int32_t* out_role);
// Appends the name by which a refitter knows them: their own, else "LAYER
// ROLE".
RABBET_PRIVATE_API void rabbet_tensor_print_weights_name(
    const rabbet_tensor_t* tensor, rabbet_strbuf_t* out);

// ---- Loops -----------------------------------------------------------------

// Which layers belong to which loop. A layer belongs to a loop if it depends on
// the loop's recurrences or iterators other than by the loop's outputs, or is
// at the boundary of a loop that does; a loop's own outputs do not.
typedef struct rabbet_regions_t {
  size_t layer_count;
  bool* inside;     // [loop * layer_count + layer]
  int32_t* region;  // of a layer: the innermost loop it is in, or -1
  int32_t* parent;  // of a loop, or -1
} rabbet_regions_t;

static inline bool rabbet_regions_has(const rabbet_regions_t* regions,
                                      size_t loop,
                                      const rabbet_layer_t* layer) {
  return layer &&
         regions->inside[loop * regions->layer_count + (size_t)layer->index];
}
// Whether a loop computes the tensor anew in each iteration.
static inline bool rabbet_regions_makes(const rabbet_regions_t* regions,
                                        size_t loop,
                                        const rabbet_tensor_t* tensor) {
  return tensor && rabbet_regions_has(regions, loop, tensor->producer);
}

// Checks, too, that each loop is complete: it has a limit, its recurrences have
// a next value, its boundary inputs come from outside, and values leave it only
// by its outputs. Arrays are in the arena.
RABBET_PRIVATE_API rabbet_status_t
rabbet_regions_find(const rabbet_network_t* network, rabbet_arena_t* arena,
                    rabbet_regions_t* out_regions);

RABBET_PRIVATE_API int64_t rabbet_layer_int(const rabbet_layer_t* layer,
                                            const char* name);
// The loop's limit of a kind, or NULL.
RABBET_PRIVATE_API rabbet_layer_t* rabbet_loop_limit(const rabbet_loop_t* loop,
                                                     rabbet_trip_limit_t kind);

// For the importer: a stack of as many elements as iterations ran, and a
// recurrence of which iterations change the extents of axes.
RABBET_PRIVATE_API rabbet_status_t
rabbet_loop_add_told_output(rabbet_loop_t* loop, rabbet_tensor_t* tensor,
                            int32_t axis, rabbet_layer_t** out_layer);
RABBET_PRIVATE_API rabbet_status_t rabbet_loop_add_varying_recurrence(
    rabbet_loop_t* loop, rabbet_tensor_t* initial_value, int64_t varying,
    rabbet_layer_t** out_layer);

// ---- Conditionals ----------------------------------------------------------

// The layer with the conditional's condition, or NULL.
RABBET_PRIVATE_API rabbet_layer_t* rabbet_conditional_condition(
    const rabbet_conditional_t* conditional);

// ---- Layers that run networks ----------------------------------------------

// A layer that runs networks, which it retains; they have been inferred. Its
// operator is `condition` or, with the wiring's attributes, `loop`. Inputs of a
// condition: the condition, then what the branches take.
RABBET_PRIVATE_API rabbet_status_t rabbet_network_add_bodies(
    rabbet_network_t* network, const char* name, rabbet_tensor_t* const* inputs,
    size_t input_count, size_t output_count, const rabbet_bodies_t* bodies,
    rabbet_layer_t** out_layer);
// Whether one has checks or debug tensors, which outputs need not depend on.
RABBET_PRIVATE_API bool rabbet_bodies_are_watched(
    const rabbet_bodies_t* bodies);
// Whether shapes in one, or of the layer's outputs, depend on the values of the
// layer's input.
RABBET_PRIVATE_API bool rabbet_bodies_read(const rabbet_bodies_t* bodies,
                                           size_t input);

// ---- Copies ----------------------------------------------------------------

// A network with the same settings, which keeps `like` alive: weights and
// attributes of copies are shared.
RABBET_PRIVATE_API rabbet_status_t
rabbet_network_copy_empty(rabbet_network_t* like, rabbet_allocator_t allocator,
                          rabbet_network_t** out_network);
// An input or weights, or (with the producing layer, below) none.
RABBET_PRIVATE_API rabbet_status_t rabbet_network_copy_source(
    rabbet_network_t* network, const rabbet_tensor_t* like,
    rabbet_tensor_t** out_tensor);
// A layer with other inputs; names of layer and outputs get the prefix. Plugins
// are cloned, networks that it runs are shared.
RABBET_PRIVATE_API rabbet_status_t rabbet_network_copy_layer(
    rabbet_network_t* network, const rabbet_layer_t* like, const char* prefix,
    rabbet_tensor_t* const* inputs, rabbet_layer_t** out_layer);
// Puts the copy of a layer at the boundary of a loop or conditional there, too:
// it belongs to the one of that name (with the prefix), which is added if it is
// missing. rabbet_layer_set_input(copy, 1, ...) gives a recurrence its next
// value.
RABBET_PRIVATE_API rabbet_status_t rabbet_network_copy_boundary(
    rabbet_layer_t* copy, const rabbet_layer_t* like, const char* prefix);
// Copies a user's settings of a tensor: name (with the prefix), type,
// debugging.
RABBET_PRIVATE_API rabbet_status_t rabbet_tensor_copy_wishes(
    rabbet_tensor_t* tensor, const rabbet_tensor_t* like, const char* prefix);

#endif  // RABBET_SRC_NETWORK_NETWORK_H_
