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

// ---- Loops (loop.c)

// Bytes that a loop needs besides its outputs, and room for their extents.
rabbet_status_t rabbet_loop_prepare(rabbet_prepared_t* prepared,
                                    const rabbet_plan_step_t* step,
                                    rabbet_run_t* run, size_t* out_workspace);
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
// The extents of the outputs of the last run, one after another.
void rabbet_loop_told_dims(const rabbet_run_t* run,
                           const rabbet_plan_step_t* step, int64_t* out_dims);

#endif  // RABBET_SRC_RUNTIME_CALL_H_
