// Running plans: an engine is a loaded plan, a context one stream of runs.
//
// Engines are thread-safe and shared; a context is used by one thread at a
// time. Everything here is in librabbet_runtime.
#ifndef RABBET_ENGINE_H_
#define RABBET_ENGINE_H_

#include "rabbet/allocator.h"
#include "rabbet/carried.h"
#include "rabbet/logger.h"
#include "rabbet/types.h"

RABBET_EXTERN_C_BEGIN

typedef struct rabbet_engine_t rabbet_engine_t;  // counted
typedef struct rabbet_context_t rabbet_context_t;

// Memory of the device from the caller, in place of the device's own. Called on
// any thread, for several engines and contexts at once.
typedef struct rabbet_device_allocator_t {
  void* user_data;
  // `alignment` is a power of two. NULL: there is none.
  void* (*allocate)(void* user_data, size_t size, size_t alignment,
                    void* stream);
  // Work that was enqueued on the stream before may still use the memory.
  void (*free)(void* user_data, void* memory, void* stream);
} rabbet_device_allocator_t;

typedef struct rabbet_engine_options_t {
  uint32_t struct_size;
  const char* device;  // NULL: the plan's; must be of the plan's kind
  rabbet_logger_t logger;
  // Run code that the plan carries (rabbet/carried.h): allow it for plans from
  // people whom you would let run programs here. Without it a plan with plugin
  // libraries is refused, and so is one with source unless its plugins are
  // registered already.
  bool host_code_allowed;
  // Only look at the plan: no device is opened, no plugin or kernel is made,
  // and the engine has no contexts.
  bool inspect_only;
  // For weights and the memory of contexts; {0}: the device's. Must outlive the
  // engine.
  rabbet_device_allocator_t device_allocator;
  // A plugin library that the plan carries becomes a file in memory, or where
  // that cannot be had a temporary one, deleted as soon as it is open. NULL:
  // $TMPDIR, or else /tmp.
  const char* temporary_directory;
  bool no_memory_files, no_temporary_files;
  // The plan's origin is not trusted: its native code is not used. Device code
  // and choices of libraries are compiled or found anew; a kernel that a plugin
  // made ahead of time is made again, for which the plugin must be registered.
  // Not with host_code_allowed.
  bool untrusted;
  uint8_t reserved[5];  // 0
  // That of its contexts (rabbet_context_set_iteration_limit).
  int64_t iteration_limit;
  // Memory of the caller that some of the plan's constants are in already, such
  // as a framework's parameters. A device that computes in the host's memory
  // reads those constants there, and the pages of the plan's file that hold
  // them are given back. Found by comparing bytes; small or unaligned (64) ones
  // are left. Must outlive the engine, and not change. Not for plans that can
  // be refitted, which have weights of their own.
  const rabbet_weights_t* lent;
  size_t lent_count;
} rabbet_engine_options_t;

// Maps the file. `options` may be NULL.
RABBET_API rabbet_status_t
rabbet_engine_load(const char* path, const rabbet_engine_options_t* options,
                   rabbet_allocator_t allocator, rabbet_engine_t** out_engine);
// Copies the bytes.
RABBET_API rabbet_status_t rabbet_engine_deserialize(
    const void* data, size_t size, const rabbet_engine_options_t* options,
    rabbet_allocator_t allocator, rabbet_engine_t** out_engine);
RABBET_API void rabbet_engine_retain(rabbet_engine_t* engine);
RABBET_API void rabbet_engine_release(rabbet_engine_t* engine);
// The plan's bytes; borrowed from the engine.
RABBET_API void rabbet_engine_plan(const rabbet_engine_t* engine,
                                   const void** out_data, size_t* out_size);

// ---- Properties of an engine -----------------------------------------------

typedef struct rabbet_io_t {
  const char* name;
  bool is_input;
  bool is_shape_input;  // its values are read on the host: a host address
  rabbet_dtype_t dtype;
  rabbet_format_t format;
  rabbet_dims_t dims;  // -1: dynamic; a number where profiles allow only it
  const char* dim_names[RABBET_MAX_RANK];  // NULL: none
  int32_t aliased_input;  // outputs that share an input's memory; -1
} rabbet_io_t;

RABBET_API size_t rabbet_engine_io_count(const rabbet_engine_t* engine);
// Inputs first. NULL out of range; borrowed.
RABBET_API const rabbet_io_t* rabbet_engine_io(const rabbet_engine_t* engine,
                                               size_t index);
// -1: no such name.
RABBET_API int32_t rabbet_engine_find_io(const rabbet_engine_t* engine,
                                         const char* name);
RABBET_API size_t rabbet_engine_profile_count(const rabbet_engine_t* engine);
RABBET_API rabbet_status_t rabbet_engine_profile_shape(
    const rabbet_engine_t* engine, size_t profile, size_t io,
    rabbet_dims_t* out_min, rabbet_dims_t* out_opt, rabbet_dims_t* out_max);
RABBET_API rabbet_status_t rabbet_engine_profile_values(
    const rabbet_engine_t* engine, size_t profile, size_t io,
    const int64_t** out_min, const int64_t** out_opt, const int64_t** out_max,
    size_t* out_count);
RABBET_API size_t rabbet_engine_layer_count(const rabbet_engine_t* engine);
// Code of plugins that the plan carries, libraries first; NULL out of range,
// borrowed.
RABBET_API const rabbet_carried_t* rabbet_engine_carried(
    const rabbet_engine_t* engine, size_t index);
RABBET_API const char* rabbet_engine_name(const rabbet_engine_t* engine);
// The device that runs it; of an engine to inspect, the plan's kind of device.
RABBET_API const char* rabbet_engine_device(const rabbet_engine_t* engine);
// Device memory, in bytes, that a context allocates for intermediate tensors
// and kernels' workspaces when all inputs are at the profile's maximum and runs
// use the plan's threads. Prepares every kernel, which takes as long as in a
// first run. Not counted: workspaces of steps behind a data-dependent size
// (their tensors count at their bounds, if they have any), and all workspaces
// of an engine to inspect.
RABBET_API rabbet_status_t rabbet_engine_context_bytes(rabbet_engine_t* engine,
                                                       size_t profile,
                                                       size_t* out_bytes);

// Memory of the engine's device, for callers that have no library that gives
// some; aligned to 256. For long: rabbet_engine_allocate_async for calls.
// FAILED_PRECONDITION for an engine to inspect.
RABBET_API rabbet_status_t rabbet_engine_allocate(rabbet_engine_t* engine,
                                                  size_t size,
                                                  void** out_memory);
// NULL is fine. Its users must be done.
RABBET_API void rabbet_engine_free(rabbet_engine_t* engine, void* memory);
// Memory of one call, in the order of a stream where the device can: for work
// on the stream, and for other work once the stream was waited for. It is cheap
// to take and to give back, again and again. Of the engine's allocator
// (rabbet_engine_options_t), if there is one. CUDA: FAILED_PRECONDITION while
// the stream is being captured.
RABBET_API rabbet_status_t rabbet_engine_allocate_async(rabbet_engine_t* engine,
                                                        size_t size,
                                                        void* stream,
                                                        void** out_memory);
// Frees memory of rabbet_engine_allocate_async behind the stream's work so far;
// nothing else may use it. NULL is fine.
RABBET_API void rabbet_engine_free_async(rabbet_engine_t* engine, void* memory,
                                         void* stream);
// Frees the same memory although others may use it, on unknown streams: it is
// used again once all present work of the device is done. On CUDA that costs no
// wait here. NULL is fine.
RABBET_API void rabbet_engine_retire(rabbet_engine_t* engine, void* memory);
// Copies within the device's memory, in the stream's order.
RABBET_API rabbet_status_t rabbet_engine_copy(rabbet_engine_t* engine,
                                              void* target, const void* source,
                                              size_t size, void* stream);
// Copies from memory of the device to the host's, in the stream's order, and
// waits. `target` has room for `size` bytes.
RABBET_API rabbet_status_t rabbet_engine_copy_to_host(rabbet_engine_t* engine,
                                                      void* target,
                                                      const void* source,
                                                      size_t size,
                                                      void* stream);
// Copies from the host's memory to that of the device, in the stream's order,
// and waits.
RABBET_API rabbet_status_t rabbet_engine_copy_to_device(rabbet_engine_t* engine,
                                                        void* target,
                                                        const void* source,
                                                        size_t size,
                                                        void* stream);
// Waits for the work of a stream, NULL: the default one.
RABBET_API rabbet_status_t rabbet_engine_synchronize(rabbet_engine_t* engine,
                                                     void* stream);

// A stream of the engine's device, for callers that have no library that makes
// some: work on it goes on beside that on others. NULL where the device has
// none (the CPU).
RABBET_API rabbet_status_t rabbet_engine_create_stream(rabbet_engine_t* engine,
                                                       void** out_stream);
// NULL is fine. Its work must be done, and it is in no use any more.
RABBET_API void rabbet_engine_destroy_stream(rabbet_engine_t* engine,
                                             void* stream);

typedef enum rabbet_inspect_format_t {
  RABBET_INSPECT_TEXT = 0,
  RABBET_INSPECT_JSON = 1,
} rabbet_inspect_format_t;
// layer -1: the whole engine; else, as text, one line. With a context, shapes
// are its current ones (NULL: none). Caller frees with rabbet_free.
RABBET_API rabbet_status_t rabbet_engine_inspect(
    const rabbet_engine_t* engine, const rabbet_context_t* context,
    int32_t layer, rabbet_inspect_format_t format, rabbet_allocator_t allocator,
    char** out_text);

// ---- Contexts --------------------------------------------------------------

RABBET_API rabbet_status_t
rabbet_context_create(rabbet_engine_t* engine, rabbet_allocator_t allocator,
                      rabbet_context_t** out_context);
RABBET_API void rabbet_context_destroy(rabbet_context_t* context);
RABBET_API rabbet_engine_t* rabbet_context_engine(
    const rabbet_context_t* context);
// Memory for intermediate tensors and workspaces, from another allocator than
// the engine's; {0}: from the engine's. Frees the context's memory, so that the
// next run allocates; waits for the device first. Not while the caller gives
// the memory.
RABBET_API rabbet_status_t rabbet_context_set_device_allocator(
    rabbet_context_t* context, rabbet_device_allocator_t allocator);
// From now on the caller gives that memory, aligned to 256, which no other may
// use until the context has other memory or is gone. A run for which it does
// not suffice is refused with the number of bytes that it needs.
RABBET_API rabbet_status_t rabbet_context_set_memory(rabbet_context_t* context,
                                                     void* memory, size_t size);
// Bytes of it that a run with the present input shapes needs (for steps behind
// a data-dependent size, at the profile's bounds). Prepares every kernel.
RABBET_API rabbet_status_t
rabbet_context_memory_bytes(rabbet_context_t* context, size_t* out_bytes);
// An event of the device (CUDA), recorded in each run when the inputs may be
// written again; NULL: none. UNSUPPORTED on devices where a run is done when it
// returns.
RABBET_API rabbet_status_t
rabbet_context_set_consumed_event(rabbet_context_t* context, void* event);
// The communicator by which layers exchange data with the other processes
// (ranks) that run the plan: an ncclComm_t with one rank for each, the
// caller's, which outlives the context. NULL: none. The next run, or
// rabbet_context_prepare, makes communicators of its own from it, for which all
// ranks are needed. INVALID_ARGUMENT names a layer that has other ranks. Plans
// that exchange nothing take any communicator.
RABBET_API rabbet_status_t
rabbet_context_set_communicator(rabbet_context_t* context, void* communicator);
// Threads for this context's runs; 0: the plan's.
RABBET_API rabbet_status_t rabbet_context_set_threads(rabbet_context_t* context,
                                                      int threads);
RABBET_API int rabbet_context_threads(const rabbet_context_t* context);
// A profile has kernels chosen at its own optimum. Addresses and output
// allocators stay; shapes of dynamic inputs must be set again.
RABBET_API rabbet_status_t rabbet_context_set_profile(rabbet_context_t* context,
                                                      size_t profile);
RABBET_API size_t rabbet_context_profile(const rabbet_context_t* context);

// OUT_OF_RANGE names the dimension and the profile's range.
RABBET_API rabbet_status_t rabbet_context_set_input_shape(
    rabbet_context_t* context, size_t io, const rabbet_dims_t* dims);
// Shape of an input as set, or of an output as far as the inputs determine it
// (-1 elsewhere; after a run, the shape of that run).
RABBET_API rabbet_status_t rabbet_context_shape(rabbet_context_t* context,
                                                size_t io,
                                                rabbet_dims_t* out_dims);
// Device address (host address for shape inputs), aligned to the element; the
// memory must have rabbet_context_bytes. Kept between runs. An output may lie
// over inputs: an input that is still read when the output is written is copied
// first, into memory that the context reserves. So are tensors that a kernel
// needs at another alignment (16 bytes, those of cuDNN). An output with an
// aliased input may have that input's address, and then updates it in place. A
// run refuses outputs that overlap each other.
RABBET_API rabbet_status_t rabbet_context_set_address(rabbet_context_t* context,
                                                      size_t io, void* address);
// The same for memory of the host, on any device: each run copies inputs to the
// device and outputs back, and has done so when it returns. If the device
// shares the host's memory nothing is copied. NULL takes it back.
RABBET_API rabbet_status_t rabbet_context_set_host_address(
    rabbet_context_t* context, size_t io, void* address);
// The address that was last set, or the device memory that stands for the
// host's.
RABBET_API void* rabbet_context_address(const rabbet_context_t* context,
                                        size_t io);
// Bytes of the tensor at its present shape; for data-dependent outputs at their
// upper bound.
RABBET_API rabbet_status_t rabbet_context_bytes(rabbet_context_t* context,
                                                size_t io, size_t* out_bytes);
// Whether an input's shape is still to be set, or the address of the values
// that shapes depend on; false for outputs.
RABBET_API bool rabbet_context_is_missing(const rabbet_context_t* context,
                                          size_t io);
// Checks that all inputs are there; *out_missing (may be NULL) is the first io
// that is missing, else -1.
RABBET_API rabbet_status_t
rabbet_context_infer_shapes(rabbet_context_t* context, int32_t* out_missing);

// Asked for an output's memory when its size is known (for data-dependent
// outputs: its bound) and told its shape; both in every run, on the running
// thread. reallocate returns NULL on failure; an empty tensor asks for a byte.
// The address that it returns becomes the output's.
typedef struct rabbet_output_allocator_t {
  void* user_data;
  void* (*reallocate)(void* user_data, const char* name, void* current,
                      size_t size, size_t alignment, void* stream);
  void (*notify_shape)(void* user_data, const char* name,
                       const rabbet_dims_t* dims);
  bool host;  // reallocate gives memory of the host
} rabbet_output_allocator_t;
// {0} removes it.
RABBET_API rabbet_status_t rabbet_context_set_output_allocator(
    rabbet_context_t* context, size_t io, rabbet_output_allocator_t allocator);

// ---- Debug tensors, marked by rabbet_tensor_set_debug.

typedef struct rabbet_debug_tensor_t {
  uint32_t struct_size;
  const char* name;
  const void* data;  // valid during the call, in the stream's order
  bool on_host;      // a host address on a device with memory of its own
  rabbet_dtype_t dtype;
  rabbet_format_t format;
  rabbet_dims_t dims;
  void* stream;
} rabbet_debug_tensor_t;
// Called on the running thread: for marked tensors when the run's work is all
// enqueued, for those between kernels when their kernel is.
typedef struct rabbet_debug_listener_t {
  void* user_data;
  void (*process)(void* user_data, const rabbet_debug_tensor_t* tensor);
} rabbet_debug_listener_t;
// Names of the marked tensors; NULL out of range.
RABBET_API const char* rabbet_engine_debug_tensor(const rabbet_engine_t* engine,
                                                  size_t index);
// {0} removes it.
RABBET_API void rabbet_context_set_debug_listener(
    rabbet_context_t* context, rabbet_debug_listener_t listener);
// Switches one tensor on or off (off at first); NULL: all those between
// kernels, for which runs are not recorded into graphs. NOT_FOUND names the
// tensors that were marked; FAILED_PRECONDITION if the network did not ask for
// those between kernels.
RABBET_API rabbet_status_t rabbet_context_set_debug_state(
    rabbet_context_t* context, const char* name, bool on);
RABBET_API rabbet_status_t rabbet_context_debug_state(
    const rabbet_context_t* context, const char* name, bool* out_on);

// Runs on the stream (CPU: stream is NULL, done when it returns). The first run
// with new shapes prepares for them, and preparations for recent shapes are
// kept; a run with nothing new allocates nothing. Errors name the layer. When
// the run is done its stream may go, while the context stays.
RABBET_API rabbet_status_t rabbet_context_execute(rabbet_context_t* context,
                                                  void* stream);

// Ends the run that is under way, on any thread and in handlers of signals: it
// fails with CANCELLED before its next step or iteration, and the next run is a
// usual one. Work that a device was given goes on. A run that is as good as
// done may succeed, and so does one that the caller has captured. False:
// nothing ran, and nothing happens. The context must live until it returns.
RABBET_API bool rabbet_context_cancel(rabbet_context_t* context);
// The most iterations of a loop whose number a run tells; 0: no limit. A run
// fails with OUT_OF_RANGE, which names the loop, in the place of one more.
RABBET_API rabbet_status_t
rabbet_context_set_iteration_limit(rabbet_context_t* context, int64_t limit);
RABBET_API int64_t
rabbet_context_iteration_limit(const rabbet_context_t* context);

// Does the one-time work of the first run with the present shapes and
// addresses: kernels are prepared and memory is allocated. A run with them can
// then be captured into a graph of the caller's, if no size in the plan depends
// on data. A captured run that still has something to prepare fails with
// FAILED_PRECONDITION before it enqueues anything.
RABBET_API rabbet_status_t rabbet_context_prepare(rabbet_context_t* context);
// The same on its own account, for bindings that call it after each shape and
// address that is set: prepares once all addresses are there and the shape of
// each dynamic input was set since the last run. Does nothing on a device
// without graphs, or if shapes depend on values of inputs, which may not be
// written yet. Errors are left to the run.
RABBET_API void rabbet_context_prepare_early(rabbet_context_t* context);

// On: a run waits for each step and checks its outputs. It fails with
// FAILED_PRECONDITION at the first step that makes a NaN of numbers or an
// infinity of finite ones; the error names the layers, tensor and element, the
// step's inputs, and remedies. If no step does, but an output is not finite, it
// names the inputs and constants that are not. Works on any plan; runs are not
// recorded or timed meanwhile. Tensors of data-dependent sizes are checked when
// they are read. Off at first.
RABBET_API rabbet_status_t
rabbet_context_set_check_finite(rabbet_context_t* context, bool on);
RABBET_API bool rabbet_context_checks_finite(const rabbet_context_t* context);

// Assertions whose conditions kernels compute. If a run is done when execute
// returns (on the CPU, and with host addresses), execute itself fails with
// FAILED_PRECONDITION, which names layer and message; outputs are written.
// Other devices do not wait: once the device has reached an assertion that does
// not hold, the next execute of the context fails without running, or this
// function, which waits for the stream if it must. A failure is reported once.
RABBET_API rabbet_status_t rabbet_context_check(rabbet_context_t* context,
                                                void* stream);

// Graphs: on a device that has them (CUDA), runs whose shapes and addresses
// come again are recorded and then replayed, which costs the host a few
// microseconds for all steps together. Steps that cannot be recorded, and
// plugins that neither promise nor prove to be safe, run between the graphs,
// and the log names them. Off at first; of no effect on other devices, or with
// a profiler.
RABBET_API void rabbet_context_set_graphs(rabbet_context_t* context, bool on);
RABBET_API bool rabbet_context_graphs(const rabbet_context_t* context);
typedef struct rabbet_graph_info_t {
  uint32_t struct_size;               // set by the caller
  uint64_t graph_steps, other_steps;  // of the last run
  uint64_t recordings, replays;       // of the context
} rabbet_graph_info_t;
RABBET_API void rabbet_context_graph_info(const rabbet_context_t* context,
                                          rabbet_graph_info_t* out_info);

// Time of each layer in each run, told after the run in order.
typedef struct rabbet_profiler_t {
  void* user_data;
  void (*report)(void* user_data, const char* layer, float milliseconds);
} rabbet_profiler_t;
RABBET_API rabbet_status_t rabbet_context_set_profiler(
    rabbet_context_t* context, rabbet_profiler_t profiler);

RABBET_EXTERN_C_END
#endif  // RABBET_ENGINE_H_
