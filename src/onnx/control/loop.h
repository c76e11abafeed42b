// Loop and Scan at import.
#ifndef RABBET_SRC_ONNX_CONTROL_LOOP_H_
#define RABBET_SRC_ONNX_CONTROL_LOOP_H_

#include "base/vec.h"
#include "onnx/index.h"
#include "onnx/operators.h"

// Loops with more iterations are not written out.
#define RABBET_ONNX_MAX_TRIPS 64

typedef RABBET_VEC(rabbet_tensor_t*) rabbet_onnx_tensors_t;

typedef struct onnx_loop_t {
  rabbet_onnx_node_t* node;
  const Onnx__GraphProto* body;
  rabbet_onnx_scope_t shared;  // the body's initializers, for all iterations
  rabbet_tensor_t** inputs;    // the body's, of the next iteration
  rabbet_tensor_t** outputs;   // the body's, of the last iteration
  size_t first_input, first_output;  // that are states
  size_t state_count;
  size_t stack_count;             // outputs behind the states
  rabbet_onnx_tensors_t* stacks;  // the iterations' values
  int64_t trips;
} onnx_loop_t;

// A loop of the network.
typedef struct rabbet_onnx_run_loop_t {
  rabbet_tensor_t* count;      // INT32 or INT64, rank 0; NULL: no limit
  rabbet_tensor_t* condition;  // before the first iteration; NULL: true
  int number_rank;             // of the iteration's number; -1: it has none
  // Tensors that it walks along; the body's inputs behind the states.
  rabbet_tensor_t** slices;
  size_t slice_count;
  const int* slice_axes;
  const bool* slice_reversals;
  rabbet_onnx_ints_t axes, reversals;  // of stacks, one for each, or none
} rabbet_onnx_run_loop_t;

rabbet_status_t rabbet_onnx_loop_run(onnx_loop_t* loop,
                                     rabbet_onnx_scope_t* scope,
                                     const char* prefix);
// Sets the node's outputs.
void rabbet_onnx_run_loop(onnx_loop_t* loop, const rabbet_onnx_run_loop_t* run);

#endif  // RABBET_SRC_ONNX_CONTROL_LOOP_H_
