// The state of one import: scopes of names, the node at work.
#ifndef RABBET_SRC_ONNX_IMPORT_H_
#define RABBET_SRC_ONNX_IMPORT_H_

#include "network/network.h"
#include "onnx/file/model.h"
#include "onnx/part.h"
#include "rabbet/onnx.h"

// Functions and branches within each other, counted from the main graph.
#define RABBET_ONNX_MAX_SCOPES 64
// Limits of an import (limits.c); the environment raises them. Nodes,
// layers and iterations of a model with its functions, loops and recurrent
// layers written out; MiB of constants and names made on the way.
#define RABBET_ONNX_MAX_NODES 500000
#define RABBET_ONNX_MAX_MIB 4096
// The newest version of the default operator set that the tables of operators
// (operators.h) describe.
#define RABBET_ONNX_NEWEST_OPSET 28

typedef struct rabbet_onnx_limits_t {
  uint64_t nodes, bytes;
  uint64_t bytes_before;  // used when the import of the graph begins
} rabbet_onnx_limits_t;

// A dimension's name in the model. Extent -1: inputs contradict each other, or
// it varies.
typedef struct rabbet_onnx_extent_t {
  const char* name;
  int64_t extent;
} rabbet_onnx_extent_t;

typedef struct rabbet_onnx_importer_t {
  rabbet_network_t* network;
  rabbet_onnx_storage_t* storage;  // the network's
  rabbet_arena_t arena;            // messages and scopes, until the import ends
  Onnx__ModelProto* model;
  bool plugin_override;
  bool refuses_open_ranks;
  const rabbet_onnx_input_t* inputs;  // given shapes, in the arena
  size_t input_count;
  const rabbet_onnx_input_t* usual_inputs;  // those of most runs, likewise
  size_t usual_count;
  rabbet_onnx_extent_t* extents;  // of names that these shapes have
  size_t extent_count;
  const rabbet_onnx_part_t* part;  // NULL: the network is the model's
  rabbet_onnx_errors_t* errors;
  rabbet_map_t layer_names;  // taken
  rabbet_map_t held;      // int32_t: of tensors that hold another type (held.h)
  rabbet_map_t captures;  // of nodes with bodies (order.c)
  uint64_t node_count;    // with layers and iterations
  rabbet_onnx_limits_t limits;
} rabbet_onnx_importer_t;

// The value of a name: a tensor, or an initializer not used yet.
typedef struct rabbet_onnx_value_t {
  rabbet_tensor_t* tensor;
  const Onnx__TensorProto* initializer;
} rabbet_onnx_value_t;

// Tensors of a sequence whose number a run tells, in one tensor: stacked along
// axis 0, or joined along `axis`.
typedef struct rabbet_onnx_told_t {
  rabbet_tensor_t* tensor;  // NULL: there are none
  rabbet_tensor_t* ends;    // INT64, where each of the joined ends; else NULL
  int axis;                 // of joined ones
} rabbet_onnx_told_t;

// A tensor that a loop's body inserts.
typedef struct rabbet_onnx_inserted_t {
  rabbet_tensor_t* item;
  struct rabbet_onnx_inserted_t* before;
} rabbet_onnx_inserted_t;

// In a loop's body, the tensors of a sequence that earlier iterations made. A
// body that only adds to them needs none of them; what else it does is found by
// importing it (control/run_loop.c).
typedef struct rabbet_onnx_rest_t {
  bool is_read;
  rabbet_tensor_t* sample;  // of the shape of its tensors; NULL: not known yet
  struct rabbet_onnx_inserted_t* inserted;  // the last one
  rabbet_tensor_t* number;  // of the iteration; NULL: the loop has none
} rabbet_onnx_rest_t;

// A sequence of tensors, or an optional value without an element. It goes where
// tensors go (scopes, states of loops, results of branches) as its handle,
// which no network has and no layer takes. Its tensors are the rest, those that
// a run tells, and the items, in this order.
typedef struct rabbet_onnx_list_t {
  rabbet_tensor_t handle;  // network: NULL
  bool is_optional;
  rabbet_dtype_t dtype;      // of a sequence's tensors
  rabbet_onnx_rest_t* rest;  // or NULL
  rabbet_onnx_told_t told;
  size_t count;
  rabbet_tensor_t** items;
} rabbet_onnx_list_t;

// NULL for a tensor, and for NULL.
static inline const rabbet_onnx_list_t* rabbet_onnx_list(
    const rabbet_tensor_t* x) {
  return x && !x->network ? (const rabbet_onnx_list_t*)x : NULL;
}

typedef struct rabbet_onnx_scope_t {
  rabbet_onnx_importer_t* importer;
  struct rabbet_onnx_scope_t* parent;  // whose names are seen; NULL: none
  int depth;
  const char* prefix;   // of layer and tensor names: "", "block1/"
  rabbet_map_t values;  // rabbet_onnx_value_t
  Onnx__NodeProto** nodes;
  size_t node_count;
  Onnx__OperatorSetIdProto** opsets;
  size_t opset_count;
  // Function bodies: the attributes that ref_attr_name refers to.
  Onnx__AttributeProto** arguments;
  size_t argument_count;
  const Onnx__FunctionProto* function;  // or NULL
  // Of a branch that only a run chooses; or NULL.
  rabbet_conditional_t* conditional;
  const rabbet_loop_t* loop;  // the innermost in whose body it lies; or NULL
} rabbet_onnx_scope_t;

// A node that is being imported. Failure is sticky: the functions of emit.h
// and attrs.h do nothing once `status` is a failure, so that an operator is
// written as one expression; the operator's caller checks it.
typedef struct rabbet_onnx_node_t {
  rabbet_onnx_importer_t* importer;
  rabbet_onnx_scope_t* scope;
  const Onnx__NodeProto* proto;
  size_t index;          // in its graph
  const char* name;      // of its layers: unique, prefixed
  const char* metadata;  // of its layers: says which node they come from
  const char* domain;
  int64_t opset;        // version of its domain's operator set
  const char* variant;  // of the operator's row (operators.h)
  Onnx__AttributeProto** attrs;
  size_t attr_count;
  rabbet_tensor_t** inputs;  // NULL: omitted
  size_t input_count;
  rabbet_tensor_t** outputs;  // set by the operator
  size_t output_count;
  size_t layer_count;
  rabbet_status_t status;
} rabbet_onnx_node_t;

// Sets the node's status if it is still ok. Takes `status`.
void rabbet_onnx_fail(rabbet_onnx_node_t* node, rabbet_status_t status);
#define RABBET_ONNX_FAIL(node, code, ...) \
  rabbet_onnx_fail((node), RABBET_STATUS((code), __VA_ARGS__))
static inline bool rabbet_onnx_ok(const rabbet_onnx_node_t* node) {
  return rabbet_is_ok(node->status);
}

// ---- Limits ----------------------------------------------------------------

// Once the messages are there.
rabbet_status_t rabbet_onnx_limits_begin(rabbet_onnx_importer_t* importer);
// UNSUPPORTED, with the limit and the variable that raises it, if `count` more
// nodes, layers or iterations, or `more` bytes, exceed it.
rabbet_status_t rabbet_onnx_spend(rabbet_onnx_importer_t* importer,
                                  uint64_t count);
rabbet_status_t rabbet_onnx_spend_bytes(rabbet_onnx_importer_t* importer,
                                        uint64_t more);

// ---- Scopes ----------------------------------------------------------------

void rabbet_onnx_scope_initialize(rabbet_onnx_importer_t* importer,
                                  rabbet_onnx_scope_t* parent,
                                  rabbet_onnx_scope_t* out_scope);
void rabbet_onnx_scope_deinitialize(rabbet_onnx_scope_t* scope);
// ALREADY_EXISTS if this scope (not a parent) has the name.
rabbet_status_t rabbet_onnx_scope_bind(rabbet_onnx_scope_t* scope,
                                       const char* name,
                                       rabbet_tensor_t* tensor);
rabbet_status_t rabbet_onnx_scope_bind_initializer(
    rabbet_onnx_scope_t* scope, const Onnx__TensorProto* initializer);
// NOT_FOUND if nothing has made it.
rabbet_status_t rabbet_onnx_scope_lookup(rabbet_onnx_scope_t* scope,
                                         const char* name,
                                         rabbet_tensor_t** out_tensor);
// Version of a domain's operator set; 0 if the model does not import it.
int64_t rabbet_onnx_scope_opset(const rabbet_onnx_scope_t* scope,
                                const char* domain);

// ---- Graphs ----------------------------------------------------------------

// "ai.onnx" is "".
const char* rabbet_onnx_domain(const char* domain);
// Every node that nothing can import, here and in the functions called, goes
// to the importer's errors; the first is returned.
rabbet_status_t rabbet_onnx_check_support(const rabbet_onnx_scope_t* scope);
// All nodes of the scope, each behind those whose results it or a body of it
// reads (order.c).
rabbet_status_t rabbet_onnx_import_nodes(rabbet_onnx_scope_t* scope);
rabbet_status_t rabbet_onnx_import_node(rabbet_onnx_scope_t* scope,
                                        size_t index);
// Frees the importer's `captures`.
void rabbet_onnx_captures_deinitialize(rabbet_onnx_importer_t* importer);
// Makes the graph's initializers and nodes the scope's.
rabbet_status_t rabbet_onnx_scope_enter(rabbet_onnx_scope_t* scope,
                                        const Onnx__GraphProto* graph);
// The body of a local function in place of the node.
void rabbet_onnx_import_function(rabbet_onnx_node_t* node,
                                 const Onnx__FunctionProto* function);
// Whether a layer or an imported node has the name.
bool rabbet_onnx_layer_exists(const rabbet_onnx_importer_t* importer,
                              const char* name);
// The function that a node calls, or NULL.
const Onnx__FunctionProto* rabbet_onnx_find_function(
    const rabbet_onnx_importer_t* importer, const Onnx__NodeProto* node);

// ---- Plugins ---------------------------------------------------------------

// The creator that the node names, retained; NULL if none is registered.
rabbet_status_t rabbet_onnx_find_plugin(
    const Onnx__NodeProto* node, const rabbet_plugin_creator_t** out_creator);
// Where there is none: NOT_FOUND, with the key that the node asks for and the
// plugins of similar names.
RABBET_MUST_USE rabbet_status_t
rabbet_onnx_plugin_missing(const Onnx__NodeProto* node);
void rabbet_onnx_import_plugin(rabbet_onnx_node_t* node,
                               const rabbet_plugin_creator_t* creator);

// ---- Errors ----------------------------------------------------------------

// `errors` may be NULL.
void rabbet_onnx_errors_set_node_count(rabbet_onnx_errors_t* errors,
                                       size_t count);

// `outer` is the index of the main graph's node around it, or itself. `node`
// may be NULL. Borrows `status`. `errors` may be NULL.
rabbet_status_t rabbet_onnx_errors_add(rabbet_onnx_errors_t* errors,
                                       rabbet_status_t status, int index,
                                       int outer, const Onnx__NodeProto* node);

#endif  // RABBET_SRC_ONNX_IMPORT_H_
