// Timing the device's work without the host's cost of enqueuing it: on a device
// that has graphs, calls are recorded and the graph is timed.
#ifndef RABBET_SRC_BUILDER_MEASURE_REPLAY_H_
#define RABBET_SRC_BUILDER_MEASURE_REPLAY_H_

#include "builder/measure/bench.h"

typedef struct rabbet_replay_t {
  rabbet_device_t* device;
  void* graph;  // NULL: without graphs; time the body itself
} rabbet_replay_t;

// Whether calls of the body may be recorded and the device can do it.
RABBET_PRIVATE_API bool rabbet_replay_applies(const rabbet_build_t* build,
                                              const rabbet_bench_body_t* body);
// Records `count` calls of the body's `run`, after `set_stream` has set their
// stream (NULL: they cannot be recorded). There is no graph, and no error, if
// recording is not possible.
RABBET_PRIVATE_API void rabbet_replay_initialize(
    rabbet_build_t* build, const rabbet_bench_body_t* body, int count,
    rabbet_replay_t* out_replay);
// It must have been waited for.
RABBET_PRIVATE_API void rabbet_replay_deinitialize(rabbet_replay_t* replay);
// A body for rabbet_device_t.time: `context` is the replay.
RABBET_PRIVATE_API rabbet_status_t rabbet_replay_run(void* context);

#endif  // RABBET_SRC_BUILDER_MEASURE_REPLAY_H_
