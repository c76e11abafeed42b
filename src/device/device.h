// The interface that each device implements.
#ifndef RABBET_SRC_DEVICE_DEVICE_H_
#define RABBET_SRC_DEVICE_DEVICE_H_

#include "base/strbuf.h"
#include "base/thread.h"
#include "device/kernel.h"

// Version of the interface between a device library and the runtime: the tables
// of this header and of kernel.h, and all arguments of their functions. Raised
// with every change; device.c has the sizes. A library of another number is
// refused.
#define RABBET_DEVICE_ABI 10

// Properties that the builder reads before it asks for candidates.
enum {
  // Its attention reads factors that are slices of one tensor where they lie.
  RABBET_DEVICE_ATTENTION_OF_SLICES = 1 << 0,
  // It multiplies with weights of 4 or 8 bits that its kernels dequantize
  // (device/common/weight_only.h): all groups of that form.
  RABBET_DEVICE_WEIGHT_ONLY = 1 << 1,
  // Its quantized products take further layers after their result is quantized,
  // up to the last of several quantizations.
  RABBET_DEVICE_QUANTIZED_CHAINS = 1 << 2,
  // Its products of few rows are fastest where constant weights are contiguous
  // along k.
  RABBET_DEVICE_WEIGHTS_ALONG_K = 1 << 3,
  // It has a kernel for cached_rotation.
  RABBET_DEVICE_CACHED_ROTATION = 1 << 4,
  // Its element-wise kernels read slices of stride 1 where they lie.
  RABBET_DEVICE_POINTWISE_OF_SLICES = 1 << 5,
  // Its products are far slower where rows are no whole vectors of 16 bytes.
  RABBET_DEVICE_ALIGNED_PRODUCTS = 1 << 6,
  // Its products of few rows may have their rows' RMS normalization in their
  // kernel, and a second product of the same rows.
  RABBET_DEVICE_JOINT_PRODUCTS = 1 << 7,
  // Its products are as fast with the constant as first factor: better than
  // with a transpose behind them.
  RABBET_DEVICE_TURNED_PRODUCTS = 1 << 8,
  // It may have one kernel for the gate of squeeze and excitation: means of
  // channels, and convolutions of them.
  RABBET_DEVICE_SQUEEZE = 1 << 9,
};

#define RABBET_DEVICE_LOOP_STATE 16
// Of `time_each`.
#define RABBET_DEVICE_TIMES 8

// A loop within a recording, whose end the device decides. Iterations take
// turns 0, 1, 0, 1, ..., so that two buffers can.
typedef struct rabbet_device_loop_t {
  void* state;       // RABBET_DEVICE_LOOP_STATE bytes of device memory
  void* streams[2];  // of create_stream; nothing else uses them meanwhile
  int64_t limit;     // most iterations
  // [turn]: a BOOL on the device that holds before each iteration; or NULL.
  const void* conditions[2];
  // Enqueues an iteration and what computes the next one's condition.
  rabbet_status_t (*enqueue)(void* user_data, int turn, void* stream);
  void* user_data;
} rabbet_device_loop_t;

// A copy whose addresses advance with each iteration that is done.
typedef struct rabbet_device_loop_copy_t {
  const void* state;  // of the loop
  void* target;
  const void* source;
  size_t bytes;
  int64_t target_stride, source_stride;
  int turn;  // copies only before an iteration of that turn; -1: in any case
} rabbet_device_loop_copy_t;

typedef struct rabbet_device_vtable_t {
  uint32_t struct_size;
  void (*destroy)(rabbet_device_t* device);
  // Model, instruction set, library versions: timings and packed weights hold
  // only under an equal signature. Borrowed.
  const char* (*signature)(rabbet_device_t* device);
  const rabbet_kernel_class_t* const* (*kernel_classes)(rabbet_device_t* device,
                                                        size_t* out_count);
  // Device memory aligned to 256.
  rabbet_status_t (*allocate)(rabbet_device_t* device, size_t size,
                              void** out_memory);
  void (*free)(rabbet_device_t* device, void* memory);
  // Ordered on the stream; host memory must stay valid until it is
  // synchronized.
  rabbet_status_t (*copy_to_device)(rabbet_device_t* device, void* target,
                                    const void* source, size_t size,
                                    void* stream);
  rabbet_status_t (*copy_to_host)(rabbet_device_t* device, void* target,
                                  const void* source, size_t size,
                                  void* stream);
  rabbet_status_t (*copy)(rabbet_device_t* device, void* target,
                          const void* source, size_t size, void* stream);
  rabbet_status_t (*fill)(rabbet_device_t* device, void* target, uint8_t byte,
                          size_t size, void* stream);
  rabbet_status_t (*synchronize)(rabbet_device_t* device, void* stream);
  // Called by a context before and after each run on the calling thread (sets
  // and restores the thread count). optional.
  rabbet_status_t (*begin_run)(rabbet_device_t* device, int threads,
                               void** out_token);
  void (*end_run)(rabbet_device_t* device, void* token);
  // Before work that others enqueue into the stream, a plugin's or that after a
  // run: it starts only after all work before it has ended, however it is
  // launched. optional.
  rabbet_status_t (*hand_over)(rabbet_device_t* device, void* stream);
  // Time in nanoseconds of `count` calls of `body` on the stream, measured on
  // the device's own clock.
  rabbet_status_t (*time)(rabbet_device_t* device, void* stream, int count,
                          rabbet_status_t (*body)(void* context), void* context,
                          int64_t* out_ns);
  // ---- Optional functions: NULL if the device does not have them.
  //
  // Times in nanoseconds of `count` calls of `body`, one after the other,
  // behind a call that is not timed: while that runs, the host enqueues the
  // others. At most RABBET_DEVICE_TIMES.
  rabbet_status_t (*time_each)(rabbet_device_t* device, void* stream, int count,
                               rabbet_status_t (*body)(void* context),
                               void* context, int64_t* out_ns);
  // Pinned host memory, which copies need no buffer for, aligned to 64.
  rabbet_status_t (*allocate_host)(rabbet_device_t* device, size_t size,
                                   void** out_memory);
  void (*free_host)(rabbet_device_t* device, void* memory);
  // A stream that does not wait for the default one, nor that for it.
  rabbet_status_t (*create_stream)(rabbet_device_t* device, void** out_stream);
  void (*destroy_stream)(rabbet_device_t* device, void* stream);
  // A point in a stream's work, with its time on the device's clock.
  rabbet_status_t (*create_event)(rabbet_device_t* device, void** out_event);
  void (*destroy_event)(rabbet_device_t* device, void* event);
  rabbet_status_t (*record_event)(rabbet_device_t* device, void* event,
                                  void* stream);
  // Waits for `end`.
  rabbet_status_t (*elapsed)(rabbet_device_t* device, void* begin, void* end,
                             int64_t* out_ns);
  // Graphs: work enqueued on the stream is recorded instead of run, to be
  // replayed any number of times. Work of other threads and streams goes on.
  // All of these functions or none. The device's context must be current
  // (begin_run).
  rabbet_status_t (*record_begin)(rabbet_device_t* device, void* stream);
  // False also if enqueued work has spoilt the recording.
  rabbet_status_t (*is_recording)(rabbet_device_t* device, void* stream,
                                  bool* out_recording);
  // Ends the recording in any case. `graph` NULL: drops it. *graph NULL: makes
  // a graph. Else replaces that graph by the recording; it may still run, and
  // is unchanged on failure.
  rabbet_status_t (*record_end)(rabbet_device_t* device, void* stream,
                                void** graph);
  rabbet_status_t (*launch_graph)(rabbet_device_t* device, void* graph,
                                  void* stream);
  // It must not run any more.
  void (*destroy_graph)(rabbet_device_t* device, void* graph);
  // The calling thread has done with the device for now: threads that were
  // started to help it go. Not in a run.
  void (*release_threads)(rabbet_device_t* device);
  // Waits for all work of the device, on streams too that are gone by now.
  // NULL where work is done when the call returns.
  rabbet_status_t (*synchronize_all)(rabbet_device_t* device);
  // Memory of a call, all three or none: to be used on the stream, or once the
  // stream was waited for. FAILED_PRECONDITION while the stream is recorded.
  rabbet_status_t (*allocate_async)(rabbet_device_t* device, size_t size,
                                    void* stream, void** out_memory);
  // Freed behind the stream's work so far; nothing else may use it.
  void (*free_async)(rabbet_device_t* device, void* memory, void* stream);
  // Frees memory that work on any stream may still use. Does not wait: it is
  // not used again before the device was waited for.
  void (*retire)(rabbet_device_t* device, void* memory);
  // How often threads that `time` depends on had to give up their processor so
  // far: while that happens, times are too long.
  uint64_t (*interruptions)(rabbet_device_t* device);
  // Nanoseconds for which the thread, which alone computes, did not run so far,
  // from any beginning; negative if others compute, too.
  int64_t (*waited)(rabbet_device_t* device);
  // Nanoseconds that a fixed small piece of work takes at present: more where
  // the clock is lower, or something else shares the processor's units.
  int64_t (*pace)(rabbet_device_t* device);
  // Environment variables by which another process opens the same libraries
  // as this one has opened: NAME=VALUE texts, a NUL behind each.
  rabbet_status_t (*settings)(rabbet_device_t* device,
                              rabbet_strbuf_t* out_settings);
  // Loops in recordings, all of these or none. `prepare_loops` comes first,
  // outside of recordings; it fails where driver or compiler do not serve.
  // A plan keeps what `loop_artifacts` passes on, which may be nothing.
  rabbet_status_t (*loop_artifacts)(rabbet_device_t* device,
                                    rabbet_artifact_sink_t sink);
  rabbet_status_t (*prepare_loops)(rabbet_device_t* device,
                                   const rabbet_artifact_t* artifacts,
                                   size_t artifact_count);
  // On a stream that records. On failure the recording must be dropped.
  rabbet_status_t (*record_loop)(rabbet_device_t* device,
                                 const rabbet_device_loop_t* loop,
                                 void* stream);
  // In iterations and behind the loop.
  rabbet_status_t (*copy_in_loop)(rabbet_device_t* device,
                                  const rabbet_device_loop_copy_t* copy,
                                  void* stream);
  // Exchanges with devices of other processes, all of these or none. `handle`
  // is a communicator of the device's library (ncclComm_t); it is the caller's,
  // outlives the result, and is not used by runs.
  rabbet_status_t (*open_communicator)(rabbet_device_t* device, void* handle,
                                       rabbet_logger_t logger,
                                       rabbet_communicator_t** out_opened);
  // No run uses it any more, and no graph.
  void (*close_communicator)(rabbet_device_t* device,
                             rabbet_communicator_t* communicator);
  // Around all that a run enqueues. The begin fails if an earlier exchange was
  // given up. `status` is the run's, which the end passes on or replaces;
  // `replayed`: the run launched graphs. A run that fails after some of its
  // exchanges is out of step with the other ranks, and ends the communicator.
  rabbet_status_t (*begin_exchanges)(rabbet_device_t* device,
                                     rabbet_communicator_t* communicator);
  rabbet_status_t (*end_exchanges)(rabbet_device_t* device,
                                   rabbet_communicator_t* communicator,
                                   void* stream, bool replayed,
                                   rabbet_status_t status);
  // Fails if exchanges were given up. For after a wait for the stream.
  rabbet_status_t (*check_exchanges)(rabbet_device_t* device,
                                     rabbet_communicator_t* communicator);
  // Gives exchanges up, those on their way too. From any thread.
  void (*cancel_exchanges)(rabbet_device_t* device,
                           rabbet_communicator_t* communicator);
} rabbet_device_vtable_t;

struct rabbet_device_t {
  const rabbet_device_vtable_t* vtable;
  rabbet_allocator_t allocator;
  rabbet_refcount_t references;
  char name[16];       // "cpu", "cuda:1"
  char kind[8];        // "cpu", "cuda": what plugins are asked for
  bool host_memory;    // device addresses are host addresses
  size_t cache_bytes;  // that all kernels of a run share; 0: not told
  uint32_t traits;     // RABBET_DEVICE_...
  // Bits of the processor's properties on which offers depend, besides the
  // group, the signature and the traits. 0: unknown, so builds do not keep the
  // offers.
  uint32_t features;
  // Keeps programs that the device compiles for a build. NULL: nothing is kept,
  // as in runs. The device owns it.
  struct rabbet_store_t* store;
};

// "cpu", "cuda", "cuda:1"; NULL or "": the environment variable RABBET_DEVICE,
// else a usable GPU, else the CPU. Opens librabbet_<kind>.so beside this
// library (or in RABBET_LIBRARY_PATH). UNAVAILABLE names the missing library.
RABBET_PRIVATE_API rabbet_status_t
rabbet_device_create(const char* name, rabbet_allocator_t allocator,
                     rabbet_device_t** out_device);
RABBET_PRIVATE_API void rabbet_device_release(rabbet_device_t* device);
// The class of that name, or NULL.
RABBET_PRIVATE_API const rabbet_kernel_class_t* rabbet_device_find_kernel(
    rabbet_device_t* device, const char* name);
// Threads of a build or context for which nobody set a number: RABBET_THREADS,
// else the processors of this process, which are also the result where
// RABBET_THREADS is no number from 0 to RABBET_MAX_THREADS (INVALID_ARGUMENT).
RABBET_PRIVATE_API rabbet_status_t
rabbet_device_default_threads(int* out_threads);

// Defined and exported by each device library, under these names: its
// RABBET_DEVICE_ABI, which is asked for first, and the device.
RABBET_PRIVATE_API uint32_t rabbet_device_abi(void);
RABBET_PRIVATE_API rabbet_status_t rabbet_device_open(
    int ordinal, rabbet_allocator_t allocator, rabbet_device_t** out_device);
typedef rabbet_status_t (*rabbet_device_open_fn_t)(
    int ordinal, rabbet_allocator_t allocator, rabbet_device_t** out_device);

// The kernel class that runs plugins; part of the runtime, listed by each
// device ("plugin").
RABBET_PRIVATE_API extern const rabbet_kernel_class_t
    rabbet_plugin_kernel_class;

#endif  // RABBET_SRC_DEVICE_DEVICE_H_
