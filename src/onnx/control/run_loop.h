// A loop of the network while it is made.
#ifndef RABBET_SRC_ONNX_CONTROL_RUN_LOOP_H_
#define RABBET_SRC_ONNX_CONTROL_RUN_LOOP_H_

#include "onnx/control/list.h"
#include "onnx/control/loop.h"

typedef enum rabbet_onnx_state_kind_t {
  RABBET_ONNX_STATE_TENSOR,
  RABBET_ONNX_STATE_ADDED_TO,  // a sequence; nothing is carried
  RABBET_ONNX_STATE_CARRIED,   // a sequence, stacked or joined
} rabbet_onnx_state_kind_t;

typedef struct rabbet_onnx_carried_t {
  rabbet_tensor_t *initial, *next;
  int64_t varying;        // axes whose extents change
  rabbet_layer_t* layer;  // the recurrence
} rabbet_onnx_carried_t;

typedef struct rabbet_onnx_state_t {
  rabbet_onnx_state_kind_t kind;
  const rabbet_onnx_list_t* list;  // before the first iteration
  rabbet_onnx_rest_t rest;
  // A joined sequence has two: itself and the ends.
  rabbet_onnx_carried_t carried[2];
  size_t count;  // of them
  int axis;      // of a joined sequence
} rabbet_onnx_state_t;

typedef struct rabbet_onnx_loop_work_t {
  onnx_loop_t* loop;
  rabbet_onnx_node_t* node;
  const rabbet_onnx_run_loop_t* run;
  rabbet_loop_t* made;
  const char* name;  // of the loop; that of the node, but for a later import
  rabbet_layer_t* number;  // recurrence
  rabbet_onnx_state_t* states;
  int32_t first_tensor;     // of the loop
  RABBET_VEC(bool) inside;  // [expression], as far as they were looked at
  bool has_condition;
} rabbet_onnx_loop_work_t;

static inline rabbet_tensor_t* rabbet_onnx_loop_result(
    const rabbet_onnx_loop_work_t* work, const rabbet_layer_t* layer) {
  return rabbet_onnx_ok(work->node) ? rabbet_layer_output(layer, 0) : NULL;
}

// ---- Sequences as states (run_loop_sequences.c)

// The tensor or list in the place of the state in the body.
rabbet_tensor_t* rabbet_onnx_state_binding(const rabbet_onnx_loop_work_t* work,
                                           rabbet_onnx_state_t* state);
// Whether the body did nothing but add tensors of one shape.
bool rabbet_onnx_state_only_adds(rabbet_onnx_loop_work_t* work,
                                 const rabbet_onnx_state_t* state,
                                 const rabbet_onnx_list_t* next);
// From now on the state is carried.
void rabbet_onnx_state_carry(rabbet_onnx_loop_work_t* work,
                             rabbet_onnx_state_t* state,
                             const rabbet_onnx_list_t* next);
// The next values of a carried sequence.
void rabbet_onnx_state_follow(const rabbet_onnx_loop_work_t* work,
                              rabbet_onnx_state_t* state,
                              const rabbet_onnx_list_t* next);

#endif  // RABBET_SRC_ONNX_CONTROL_RUN_LOOP_H_
