// ONNX files to networks.
#ifndef RABBET_ONNX_H_
#define RABBET_ONNX_H_

#include "rabbet/network.h"

RABBET_EXTERN_C_BEGIN

// Data in place of an initializer's own, in its type as ONNX stores raw data.
typedef struct rabbet_onnx_initializer_t {
  const char* name;
  const void* data;
  size_t size;  // bytes
} rabbet_onnx_initializer_t;

// The shape of an input in all runs, for extents that the model leaves open. An
// extent of -1 stays open.
typedef struct rabbet_onnx_input_t {
  const char* name;
  rabbet_dims_t dims;
} rabbet_onnx_input_t;

typedef struct rabbet_onnx_options_t {
  uint32_t struct_size;
  // Registered plugins win over operators of the same name.
  bool plugin_override;
  // Folder for external data; NULL: that of the file.
  const char* external_data_dir;
  // NOT_FOUND if the model has no initializer of a name.
  const rabbet_onnx_initializer_t* initializers;
  size_t initializer_count;
  size_t initializer_size;  // sizeof(rabbet_onnx_initializer_t)
  // 0: the initializers' data is copied; otherwise it outlives the network,
  // which uses it in place where it is aligned.
  uint64_t borrow_initializers;
  // 0: DOUBLE is rounded to FLOAT; otherwise it stays, for the CPU.
  uint64_t keep_double;
  // Nodes that depend on sizes are imported for these. Inputs that the model
  // does not have, or has with another rank, are skipped. Dimensions of one
  // name have one extent; it stays open where inputs contradict each other.
  const rabbet_onnx_input_t* inputs;
  size_t input_count;
  size_t input_size;  // sizeof(rabbet_onnx_input_t)
  // A result whose rank only a run tells (Squeeze without axes of extents that
  // are open, an If of two ranks). 0: it has the rank that most exporters mean,
  // and runs that give another one fail; otherwise the node is UNSUPPORTED.
  uint64_t refuse_open_ranks;
  // Shapes that most runs have, in elements of `input_size`, too: if they tell
  // the condition of an If of two ranks, it has the rank of these runs.
  const rabbet_onnx_input_t* usual_inputs;
  size_t usual_count;
} rabbet_onnx_options_t;

// One thing that is wrong with the model.
typedef struct rabbet_onnx_error_t {
  rabbet_status_code_t code;
  int node;  // index in its graph; -1: none
  const char* node_name;
  const char* op_type;
  const char* message;
  // Index of the node of the main graph that it is, or in whose function it is;
  // -1: none.
  int outer_node;
} rabbet_onnx_error_t;

// All that was found; NULL-able argument of the calls below.
typedef struct rabbet_onnx_errors_t rabbet_onnx_errors_t;
RABBET_API rabbet_status_t rabbet_onnx_errors_create(
    rabbet_allocator_t allocator, rabbet_onnx_errors_t** out_errors);
RABBET_API void rabbet_onnx_errors_destroy(rabbet_onnx_errors_t* errors);
RABBET_API void rabbet_onnx_errors_clear(rabbet_onnx_errors_t* errors);
RABBET_API size_t rabbet_onnx_errors_count(const rabbet_onnx_errors_t* errors);
// Nodes of the model's graph; 0 if it could not be read.
RABBET_API size_t
rabbet_onnx_errors_node_count(const rabbet_onnx_errors_t* errors);
RABBET_API const rabbet_onnx_error_t* rabbet_onnx_errors_get(
    const rabbet_onnx_errors_t* errors, size_t index);

// Adds the model's graph to an empty network. The file stays mapped as long as
// the network lives: weights are used in place. A failed import leaves the
// network unusable but releasable. `options` may be NULL.
RABBET_API rabbet_status_t rabbet_onnx_import_file(
    rabbet_network_t* network, const char* path,
    const rabbet_onnx_options_t* options, rabbet_onnx_errors_t* errors);
// The same from memory, which is copied. `path` (may be NULL) locates external
// data.
RABBET_API rabbet_status_t rabbet_onnx_import_memory(
    rabbet_network_t* network, const void* data, size_t size, const char* path,
    const rabbet_onnx_options_t* options, rabbet_onnx_errors_t* errors);
// Whether the importer knows the operator ("Conv", domain "").
RABBET_API bool rabbet_onnx_supports(const char* domain, const char* op_type);

RABBET_EXTERN_C_END
#endif  // RABBET_ONNX_H_
