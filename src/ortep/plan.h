// A plan of a part: an engine, and contexts that runs borrow.
#ifndef RABBET_SRC_ORTEP_PLAN_H_
#define RABBET_SRC_ORTEP_PLAN_H_

#include <pthread.h>

#include "ortep/session.h"
#include "rabbet/engine.h"

// Shapes of an input that a plan takes.
typedef struct rabbet_ort_bounds_t {
  rabbet_dims_t min, opt, max;
} rabbet_ort_bounds_t;

// A tensor of a run.
typedef struct rabbet_ort_feed_t {
  const void* data;
  bool is_on_host;
  rabbet_dims_t dims;
} rabbet_ort_feed_t;

// Names of inputs and outputs, with their places at the node that runs.
typedef struct rabbet_ort_names_t {
  size_t input_count, output_count;
  const char** inputs;
  const char** outputs;
  size_t* input_slots;
  size_t* output_slots;
} rabbet_ort_names_t;

typedef struct rabbet_ort_plan_t {
  struct rabbet_ort_plan_t* next;  // of the same part
  size_t users;                    // runs that hold it, counted by the part
  const rabbet_ort_session_t* session;
  const rabbet_ort_names_t* names;
  rabbet_engine_t* engine;
  rabbet_ort_bounds_t* bounds;      // of each input
  size_t *input_ios, *output_ios;   // indices in the engine
  bool shapes_depend_on_values;     // of outputs, on those of inputs
  pthread_mutex_t lock;             // of the list
  struct rabbet_ort_lease_t* idle;  // contexts that no run has
} rabbet_ort_plan_t;

// Takes the engine, also if it fails. `names` outlives the plan. The error
// names an input or output that the engine lacks, or has with another type
// than `types` says (inputs, then outputs; NULL: any).
rabbet_status_t rabbet_ort_plan_take_engine(
    const rabbet_ort_session_t* session, const rabbet_ort_names_t* names,
    const ONNXTensorElementDataType* types, rabbet_engine_t* engine,
    rabbet_ort_plan_t** out_plan);
void rabbet_ort_plan_destroy(rabbet_ort_plan_t* plan);
// Whether all inputs' shapes lie within the plan's bounds.
bool rabbet_ort_plan_covers(const rabbet_ort_plan_t* plan,
                            const rabbet_ort_feed_t* feeds);
// Runs with a context that no other run has. Inputs and outputs are used where
// they lie; only outputs whose sizes a run tells are copied, and tensors in the
// host's memory for a plan on a GPU. With such tensors the run is done at the
// return, else it may be under way in the node's stream.
rabbet_status_t rabbet_ort_plan_run(rabbet_ort_plan_t* plan,
                                    const rabbet_ort_feed_t* feeds,
                                    OrtKernelContext* kernel);

#endif  // RABBET_SRC_ORTEP_PLAN_H_
