// Declarations that the files of steps that run other sequences share.
#ifndef RABBET_SRC_RUNTIME_CALL_H_
#define RABBET_SRC_RUNTIME_CALL_H_

#include "ops/loop_wiring.h"
#include "runtime/runtime.h"

// Whether the step runs a loop; else its wiring is that of none.
bool rabbet_step_loop(const rabbet_plan_step_t* step,
                      rabbet_loop_wiring_t* out_wiring);
// One BOOL on the device; waits for it.
rabbet_status_t rabbet_read_flag(const rabbet_frame_t* frame, const void* from,
                                 void* stream, bool* out_holds);
// The first segment of a sequence for its next_key.
rabbet_status_t rabbet_call_find(rabbet_frame_t* callee,
                                 rabbet_prepared_t** out_prepared);
// The error of a key that the host does not know.
rabbet_status_t rabbet_call_unknown(void);
// Runs a sequence whose addresses are set.
rabbet_status_t rabbet_call_run(rabbet_frame_t* callee,
                                rabbet_prepared_t* first, void* stream);

// Room for its results, and the bytes that it needs besides them.
rabbet_status_t rabbet_call_prepare(rabbet_prepared_t* prepared,
                                    const rabbet_plan_step_t* step,
                                    rabbet_run_t* run, size_t* out_workspace);

// ---- Outputs whose size a call tells (late_outputs.c)

typedef struct rabbet_late_output_t rabbet_late_output_t;

// Memory that a frame keeps; `kept`: bytes that stay.
rabbet_status_t rabbet_frame_grow(const rabbet_frame_t* frame,
                                  rabbet_io_memory_t* memory, size_t bytes,
                                  size_t kept, void* stream);
// The step's `count` pieces of it.
rabbet_status_t rabbet_frame_find_grown(const rabbet_frame_t* frame,
                                        size_t step, size_t count,
                                        rabbet_io_memory_t** out_list);
// In between, the branch asks for memory of such outputs.
rabbet_status_t rabbet_late_begin(const rabbet_frame_t* frame,
                                  const rabbet_prepared_t* prepared,
                                  const rabbet_run_t* run,
                                  rabbet_late_output_t** out_late);
void rabbet_late_end(const rabbet_frame_t* frame, const rabbet_run_t* run,
                     rabbet_late_output_t* late);
// Takes the results of a branch that has run.
void rabbet_late_collect(const rabbet_frame_t* frame,
                         const rabbet_prepared_t* prepared,
                         const rabbet_run_t* run);

// ---- Loops (loop.c)

// Bytes that a loop needs besides its outputs.
size_t rabbet_loop_workspace(const rabbet_prepared_t* prepared,
                             const rabbet_plan_step_t* step,
                             const rabbet_loop_wiring_t* wiring);
rabbet_status_t rabbet_run_loop(rabbet_frame_t* frame,
                                const rabbet_prepared_t* prepared,
                                rabbet_run_t* run, void* stream);
// Why the host must decide on each iteration of a loop, whatever the run's
// shapes; NULL: the device may (loop_graph.c).
const char* rabbet_loop_host_reason(const rabbet_sequence_t* sequence,
                                    const rabbet_plan_step_t* step);
// Whether a loop can be part of a graph, so that the device decides on each
// iteration; the error says why the host must. Waits for nothing
// that is recorded, so that recording can follow.
rabbet_status_t rabbet_loop_check_graph(rabbet_frame_t* frame,
                                        const rabbet_prepared_t* prepared,
                                        const rabbet_run_t* run, void* stream);
// On a stream that records.
rabbet_status_t rabbet_loop_record(rabbet_frame_t* frame,
                                   const rabbet_prepared_t* prepared,
                                   const rabbet_run_t* run, void* stream);
// A hash of all that a graph with the loop depends on besides the step's
// addresses.
uint64_t rabbet_loop_graph_mark(const rabbet_frame_t* frame,
                                const rabbet_prepared_t* prepared,
                                const rabbet_run_t* run);
#endif  // RABBET_SRC_RUNTIME_CALL_H_
