// Timing kernels on the device.
#ifndef RABBET_SRC_BUILDER_MEASURE_BENCH_H_
#define RABBET_SRC_BUILDER_MEASURE_BENCH_H_

#include "builder/choose/unit.h"
#include "builder/measure/samples.h"

// Device memory that measurements share, filled with harmless numbers.
typedef struct rabbet_bench_t rabbet_bench_t;

RABBET_PRIVATE_API rabbet_status_t
rabbet_bench_create(rabbet_build_t* build, rabbet_bench_t** out_bench);
RABBET_PRIVATE_API void rabbet_bench_destroy(rabbet_bench_t* bench);

// A kernel that is ready to run with memory of the bench.
typedef struct rabbet_bench_kernel_t {
  const char* name;
  const rabbet_kernel_class_t* kernel_class;
  rabbet_kernel_t* kernel;
  rabbet_kernel_state_t* state;
  rabbet_kernel_call_t call;
  size_t workspace;
  rabbet_bench_t* bench;  // that counts `kept`; or NULL
  size_t kept;            // bytes that the kernel keeps
} rabbet_bench_kernel_t;

// Creates and prepares the kernel at opt shapes; UNSUPPORTED when the class
// finds out only now that it cannot, OUT_OF_MEMORY when it keeps more than
// RABBET_BUILDER_OPTION_TACTIC_MEMORY allows. `group` must outlive it.
RABBET_PRIVATE_API rabbet_status_t
rabbet_bench_prepare(rabbet_build_t* build, const rabbet_unit_t* unit,
                     const rabbet_choice_t* choice, const rabbet_group_t* group,
                     rabbet_bench_kernel_t* out_kernel);
RABBET_PRIVATE_API void rabbet_bench_unprepare(rabbet_bench_kernel_t* kernel);

// Microseconds of one run of the choice at opt shapes: the least of several
// batches after a warm-up. us < 0 if the kernel turns out not to work, or needs
// more workspace than allowed. A kernel that is clearly slower than `best_us`
// (> 0) is measured less carefully.
RABBET_PRIVATE_API rabbet_status_t rabbet_bench_measure(
    rabbet_build_t* build, const rabbet_unit_t* unit,
    const rabbet_choice_t* choice, double best_us, rabbet_timing_t* out_timing);

// One run of the choice at opt shapes, to find its errors.
RABBET_PRIVATE_API rabbet_status_t
rabbet_bench_run_once(rabbet_build_t* build, const rabbet_unit_t* unit,
                      const rabbet_choice_t* choice);

// Memory of at least `bytes` with harmless numbers of the type; owned by the
// bench. rabbet_bench_reset frees all of it. OUT_OF_MEMORY if it is more than
// RABBET_BUILDER_OPTION_TACTIC_MEMORY, or than the device has.
RABBET_PRIVATE_API rabbet_status_t rabbet_bench_acquire(rabbet_build_t* build,
                                                        rabbet_dtype_t dtype,
                                                        size_t bytes,
                                                        void** out_memory);
RABBET_PRIVATE_API void rabbet_bench_reset(rabbet_bench_t* bench);
// The most bytes that it held at a time, and those that it may still hand out.
RABBET_PRIVATE_API size_t rabbet_bench_peak(const rabbet_bench_t* bench);
RABBET_PRIVATE_API size_t rabbet_bench_room(rabbet_bench_t* bench);
// Counts of things that memory of the bench did not suffice for.
typedef enum rabbet_starved_t {
  RABBET_STARVED_KERNELS,  // that are not timed
  RABBET_STARVED_GROUPS,   // of which no kernel is
  RABBET_STARVED_PLANS,    // comparisons of whole plans
  RABBET_STARVED_TRIALS,   // plugins that are not run once
  RABBET_STARVED_COUNT,
} rabbet_starved_t;
// Whether *status says that memory of the bench did not suffice since the last
// reset; it is then counted, and *status is ok.
RABBET_PRIVATE_API bool rabbet_bench_forgives(rabbet_build_t* build,
                                              rabbet_status_t* status,
                                              rabbet_starved_t what,
                                              const char* name);
RABBET_PRIVATE_API void rabbet_bench_starve(rabbet_build_t* build,
                                            rabbet_starved_t what);
// Adds the counts of `from`, which may be NULL; then warns of all of them.
RABBET_PRIVATE_API void rabbet_bench_join_starved(rabbet_bench_t* bench,
                                                  const rabbet_bench_t* from);
RABBET_PRIVATE_API void rabbet_bench_warn_starved(const rabbet_build_t* build);
// Device memory with these bytes.
RABBET_PRIVATE_API rabbet_status_t rabbet_bench_upload(rabbet_build_t* build,
                                                       const void* data,
                                                       size_t bytes,
                                                       void** out_memory);

// Time of one call of the body: the least average of several batches, each long
// enough for the clock, that the machine left alone (samples.h). Sets `us` and
// `is_unsure`. `restore` (may be NULL) is called before each run and
// not counted.
typedef struct rabbet_bench_body_t {
  rabbet_status_t (*run)(void* context);
  rabbet_status_t (*restore)(void* context);
  // `run` enqueues on this stream from now on (NULL: the default one). NULL: it
  // may not be recorded into a graph.
  void (*set_stream)(void* context, void* stream);
  void* context;
  double best_us;
  // Up to level 3 a few samples suffice if replays of a recording are timed.
  bool is_minor;
} rabbet_bench_body_t;
RABBET_PRIVATE_API rabbet_status_t
rabbet_bench_time(rabbet_build_t* build, const rabbet_bench_body_t* body,
                  rabbet_timing_t* out_timing);

// Watches the machine while samples of one time, or of several times in turns,
// are taken. `settled`: the samples sufficed.
RABBET_PRIVATE_API void rabbet_bench_watch(rabbet_build_t* build,
                                           rabbet_watch_t* out_watch);
RABBET_PRIVATE_API void rabbet_bench_unwatch(rabbet_build_t* build,
                                             const rabbet_watch_t* watch,
                                             bool settled);

// A stream to record on, of a device that has any.
RABBET_PRIVATE_API rabbet_status_t rabbet_bench_stream(rabbet_build_t* build,
                                                       void** out_stream);

#endif  // RABBET_SRC_BUILDER_MEASURE_BENCH_H_
