// Runs recorded into graphs of the device, and replayed.
//
// A segment's first run with a set of shapes warms up. The next one tries
// kernels that may or may not be recordable, on memory of their own. Addresses
// that come a second time are recorded: each stretch of steps becomes a graph,
// cut at steps that must not be recorded, which run between the graphs as
// before. Then the segment is replayed for as long as its addresses are among
// the recorded ones.
#ifndef RABBET_SRC_RUNTIME_GRAPH_H_
#define RABBET_SRC_RUNTIME_GRAPH_H_

#include "runtime/runtime.h"

// Whether this context records on its device.
bool rabbet_graphs_wanted(const rabbet_context_t* context);
// The segment's steps, by graph where there is one. The slots are filled.
rabbet_status_t rabbet_graphs_run(rabbet_frame_t* frame,
                                  rabbet_prepared_t* prepared, void* stream);
// No recording may be running.
void rabbet_graphs_destroy(rabbet_prepared_t* prepared);

// Runs one step without a graph.
rabbet_status_t rabbet_run_step(rabbet_frame_t* frame,
                                const rabbet_prepared_t* prepared,
                                rabbet_run_t* run, void* stream);

// ---- Within graphs

// Enqueues a call on a stream that records; *out_kept is for release_recorded.
rabbet_status_t rabbet_record_call(rabbet_frame_t* frame,
                                   const rabbet_run_t* run,
                                   rabbet_kernel_call_t call, void** out_kept);
void rabbet_release_recorded(const rabbet_run_t* run, void* kept);

// Whether replays of the step equal enqueuing it, bit by bit, on inputs other
// than those of the recording. Its inputs must be there; the run's memory is
// not changed. Fails if the trial itself could not be made.
rabbet_status_t rabbet_graph_trial(rabbet_frame_t* frame,
                                   const rabbet_prepared_t* prepared,
                                   const rabbet_run_t* run, void* stream);

#endif  // RABBET_SRC_RUNTIME_GRAPH_H_
