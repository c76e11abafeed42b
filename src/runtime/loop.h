// A loop of a plan while it runs.
#ifndef RABBET_SRC_RUNTIME_LOOP_H_
#define RABBET_SRC_RUNTIME_LOOP_H_

#include "runtime/call.h"

struct rabbet_loop_run_t;

typedef struct rabbet_loop_carried_t {
  const void* at;      // the present value
  rabbet_dims_t dims;  // its extents
  void* buffers[2];
  size_t bytes;    // of the value, and of each buffer
  int64_t output;  // of the step, for the last value, or -1
} rabbet_loop_carried_t;

// Elements of a stacked result: those of the first iteration. `is_told`: the
// body tells their extents, and asks for their memory then.
typedef struct rabbet_loop_stack_t {
  bool is_known, is_told;
  rabbet_dims_t dims;
  size_t stride;
} rabbet_loop_stack_t;

// A carried value, or behind those a stack by its output, for which the body
// asks memory once its size is known.
typedef struct rabbet_loop_growing_t {
  struct rabbet_loop_run_t* loop;
  size_t at;
} rabbet_loop_growing_t;

typedef struct rabbet_loop_run_t {
  rabbet_frame_t* frame;
  const rabbet_prepared_t* prepared;
  rabbet_run_t* run;
  void* stream;
  rabbet_device_t* device;
  const rabbet_plan_step_t* step;
  rabbet_loop_wiring_t wiring;
  rabbet_loop_carried_t* carried;
  rabbet_loop_stack_t* stacks;  // by output of the step
  rabbet_io_memory_t* grown;    // two for each carried tensor, then by output
  rabbet_loop_growing_t* growing;
  void* flag;       // of the computed condition
  int64_t count;    // INT64_MAX: no limit
  bool is_counted;  // nothing else ends it
  int64_t trip;
  rabbet_frame_t* frames[2];    // of the body and the condition
  rabbet_prepared_t* nodes[2];  // their first segments
  bool changes[2];              // iterations change their keys
} rabbet_loop_run_t;

// Value of the step's input or output.
static inline int32_t rabbet_step_input_value(const rabbet_plan_step_t* step,
                                              int64_t input) {
  return step->values[step->group.inputs[input]];
}

static inline int32_t rabbet_step_output_value(const rabbet_plan_step_t* step,
                                               size_t output) {
  return step->values[step->group.outputs[output]];
}

// Extents of a result, which only change along the axes of `varying`.
rabbet_status_t rabbet_loop_check_same(const char* name,
                                       const rabbet_dims_t* made,
                                       const rabbet_dims_t* expected,
                                       int64_t varying);

// The step's input that is an input of its layer.
int64_t rabbet_loop_find_input(const rabbet_plan_step_t* step, int64_t input);
// The output that is the last value of a carried tensor, or -1.
int64_t rabbet_loop_last_output(const rabbet_loop_wiring_t* wiring,
                                size_t carried);

// ---- Memory that grows (loop_growing.c)

// In between, the body asks for memory of its outputs.
rabbet_status_t rabbet_loop_begin_growing(rabbet_loop_run_t* loop);
// Of stacks whose elements it tells, too.
void rabbet_loop_grow_stack(rabbet_loop_run_t* loop, size_t output);
void rabbet_loop_end_growing(rabbet_loop_run_t* loop);

// ---- Stacked results (loop_stacks.c)

// Whether only a run tells how much memory the output needs.
bool rabbet_loop_is_late(const rabbet_loop_run_t* loop, size_t output);
// Where the iteration writes its element.
rabbet_status_t rabbet_loop_pass_stack(rabbet_loop_run_t* loop, size_t output);
// The same once the body knows that the element has `bytes` at most.
rabbet_status_t rabbet_loop_place_element(rabbet_loop_run_t* loop,
                                          size_t output, size_t bytes,
                                          void** out_address);
// Takes the extents of the iteration's element, which must be the first one's.
rabbet_status_t rabbet_loop_collect_stack(rabbet_loop_run_t* loop,
                                          size_t output);
// Zeros lie behind the elements of iterations that did not run.
rabbet_status_t rabbet_loop_finish_stack(rabbet_loop_run_t* loop,
                                         size_t output);

#endif  // RABBET_SRC_RUNTIME_LOOP_H_
