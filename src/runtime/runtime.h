// The inside of engines and contexts.
//
// An engine holds the data that all its contexts share and never changes. A
// context holds the inputs as set and a bounded number of prepared segments:
// everything that follows from a segment's shapes (analysis.h defines
// segments). They form a tree: a node's children are the next segment, one for
// each recent outcome of the host's reads. A run walks from a root down to a
// leaf.
#ifndef RABBET_SRC_RUNTIME_RUNTIME_H_
#define RABBET_SRC_RUNTIME_RUNTIME_H_

#include <assert.h>

#include "base/strbuf.h"
#include "base/thread.h"
#include "device/device.h"
#include "plan/analysis.h"
#include "plan/plan.h"
#include "plugin/library.h"
#include "rabbet/engine.h"
#include "runtime/share.h"

// ---- Engine

typedef struct rabbet_engine_step_t {
  rabbet_plugin_t* plugin;  // or NULL
  rabbet_kernel_t* kernel;
  size_t first_slot;     // boundary inputs, then outputs
  atomic_bool prepared;  // once: it has packed its constants
} rabbet_engine_step_t;

// A sequence of the plan as an engine has it.
typedef struct rabbet_sequence_t {
  rabbet_engine_t* engine;
  const rabbet_plan_sequence_t* plan;
  int32_t entry;  // from which it is called, or that it is
  rabbet_plan_analysis_t analysis;
  const int64_t* extents;  // NULL: not needed so far (check_plugin.c)
  rabbet_engine_step_t* steps;
  // An argument of a step is a slot: all steps' boundary values in order.
  int32_t* slot_values;
  size_t slot_count;
  // Slots whose address the caller sets, in order.
  size_t* io_slots;
  size_t io_slot_count;
  rabbet_io_t* ios;
  // Segment before which an output's memory must be there.
  int32_t* io_segments;
  // Alignment in bytes that kernels need of each input's and output's address,
  // beyond that of its elements; 1: none.
  size_t* io_alignments;
  // Offset of input i in the key of the first segment. The key holds each
  // input's dimensions, then its values if it is a shape input.
  size_t* key_offsets;
  size_t key_size;
  bool has_shape_inputs;
  // Some outputs are written by the host, from host_values.
  bool has_written_outputs;
  // Place of its first segment's memory in a context.
  size_t first_place;
  // Each constant's offset among those on the device (SIZE_MAX: no step reads
  // it); NULL: they are used in place.
  size_t* weight_offsets;
} rabbet_sequence_t;

struct rabbet_engine_t {
  rabbet_allocator_t allocator;
  rabbet_refcount_t references;
  rabbet_logger_t logger;
  rabbet_plan_t* plan;
  const void* data;  // the plan's bytes; the plan keeps them
  size_t size;
  rabbet_device_t* device;  // NULL: an engine to inspect, without steps too
  rabbet_device_allocator_t device_allocator;
  void* device_weights;          // constants on the device
  rabbet_arena_t arena;          // for all that follows
  rabbet_sequence_t* sequences;  // those of the plan
  // Memory that a context has: one place for each segment of a sequence, after
  // those of its callers. Of sequences called equally deep one runs at a time,
  // so that these share places.
  size_t place_count;
  // Libraries that the plan carries, in its order.
  rabbet_plugin_library_t** libraries;
  size_t library_count;
  bool source_run;          // the source that the plan carries
  bool untrusted;           // nothing that the plan keeps for kernels is used
  int64_t iteration_limit;  // of contexts at first
  // Refitting (refit.c). The plan's bytes with the weights in use, if they
  // differ from the file's; and whether weights are missing, so that nothing
  // can run.
  void* refitted;
  bool lacks_weights;
  // The first step whose kernel exchanges data with other ranks, or NULL.
  const rabbet_plan_step_t* exchange;
  pthread_mutex_t contexts_lock;
  rabbet_context_t* contexts;  // all that live
};

// The sequence that callers run under a profile.
static inline rabbet_sequence_t* rabbet_engine_entry(
    const rabbet_engine_t* engine, size_t profile) {
  assert(profile < engine->plan->profile_count);
  return &engine->sequences[engine->plan->entries[profile]];
}
// That of profile 0, which has the inputs and outputs of all.
static inline rabbet_sequence_t* rabbet_engine_main(
    const rabbet_engine_t* engine) {
  return rabbet_engine_entry(engine, 0);
}

static inline size_t rabbet_segment_begin(const rabbet_sequence_t* sequence,
                                          int32_t segment) {
  assert(segment >= 0 && (size_t)segment < sequence->analysis.segment_count);
  return segment == 0 ? 0
                      : (size_t)sequence->analysis.segment_ends[segment - 1];
}
static inline size_t rabbet_segment_end(const rabbet_sequence_t* sequence,
                                        int32_t segment) {
  assert(segment >= 0 && (size_t)segment < sequence->analysis.segment_count);
  return (size_t)sequence->analysis.segment_ends[segment];
}

static inline void rabbet_segment_slots(const rabbet_sequence_t* sequence,
                                        int32_t segment, size_t* out_begin,
                                        size_t* out_end) {
  size_t begin = rabbet_segment_begin(sequence, segment);
  size_t end = rabbet_segment_end(sequence, segment);
  size_t steps = sequence->plan->step_count;
  *out_begin =
      begin < steps ? sequence->steps[begin].first_slot : sequence->slot_count;
  *out_end =
      end < steps ? sequence->steps[end].first_slot : sequence->slot_count;
  assert(*out_begin <= *out_end && *out_end <= sequence->slot_count);
}

// The values whose memory is planned at stage `segment`.
bool rabbet_sequence_owns_memory(const rabbet_sequence_t* sequence,
                                 int32_t segment, size_t value);

typedef struct rabbet_frame_t rabbet_frame_t;

// ---- Memory of the device (memory.c)

#define RABBET_DEVICE_ALIGNMENT 256

// From the caller's allocator, or the device's if that is {0}.
rabbet_status_t rabbet_memory_allocate(
    rabbet_device_t* device, const rabbet_device_allocator_t* allocator,
    size_t size, void* stream, void** out_memory);
void rabbet_memory_free(rabbet_device_t* device,
                        const rabbet_device_allocator_t* allocator,
                        void* memory, void* stream);
// A context's memory of a stage only grows.
rabbet_status_t rabbet_frame_reserve(rabbet_frame_t* frame, int32_t segment,
                                     size_t bytes, void* stream);
void rabbet_context_free_memory(rabbet_context_t* context);
// Gives sequences their places.
rabbet_status_t rabbet_engine_place_memory(rabbet_engine_t* engine);
// Waits until earlier runs use none of the context's memory: in a run for the
// work of its stream, else for all of the device. Refused, as allocating is,
// while the caller records the stream.
rabbet_status_t rabbet_context_await(const rabbet_context_t* context,
                                     void* stream);

// refit.c: which contexts there are; they hold kernels' states.
void rabbet_engine_add_context(rabbet_engine_t* engine,
                               rabbet_context_t* context);
void rabbet_engine_remove_context(rabbet_engine_t* engine,
                                  rabbet_context_t* context);
rabbet_status_t rabbet_engine_check_weights(const rabbet_engine_t* engine);

// carried_code.c: registers the plugins in the plan's carried code, if the
// caller allows it.
rabbet_status_t rabbet_engine_open_carried(
    rabbet_engine_t* engine, const rabbet_engine_options_t* options);
void rabbet_engine_close_carried(rabbet_engine_t* engine);
// From the plan's libraries, else the registry; retained. NOT_FOUND names
// similar ones.
rabbet_status_t rabbet_engine_find_plugin(
    const rabbet_engine_t* engine, const rabbet_plan_step_t* step,
    const rabbet_plugin_creator_t** out_creator);
// The modules and files that the plan's plugins came from, if several.
void rabbet_engine_print_origins(const rabbet_plan_t* plan,
                                 rabbet_strbuf_t* out);

// check_plugin.c: a plugin and the layer that a plan says it has. A verified
// step with a plugin's name has one layer of a plugin.
const rabbet_group_node_t* rabbet_step_plugin_node(
    const rabbet_plan_step_t* step);
// Numbers of inputs and outputs, types, formats and tactic; INCOMPATIBLE.
rabbet_status_t rabbet_step_check_plugin(rabbet_sequence_t* sequence,
                                         const rabbet_plan_step_t* step,
                                         rabbet_plugin_t* plugin);
// The same for the outputs that it describes for the shapes of this run.
rabbet_status_t rabbet_step_check_plugin_shapes(
    rabbet_allocator_t allocator, const rabbet_plan_step_t* step,
    rabbet_plugin_t* plugin, const rabbet_kernel_shapes_t* shapes);
// Kernels and plugins of all steps.
rabbet_status_t rabbet_engine_create_steps(rabbet_engine_t* engine);
void rabbet_engine_destroy_steps(rabbet_engine_t* engine);
// The artifacts that the plan keeps for the step, if the engine may use them;
// the caller frees the list.
rabbet_status_t rabbet_step_artifacts(const rabbet_engine_t* engine,
                                      const rabbet_plan_step_t* step,
                                      rabbet_artifact_t** out_artifacts,
                                      size_t* out_count);
// Finds constants in the memory that the caller lent; before the steps are
// made.
rabbet_status_t rabbet_engine_find_lent(rabbet_engine_t* engine,
                                        const rabbet_engine_options_t* options);
// The constants that the steps' kernels read, to a device that needs them.
rabbet_status_t rabbet_engine_upload_weights(rabbet_engine_t* engine);

// ---- Prepared segments

#define RABBET_PREPARED_MAX 8  // roots of a context, children of a node
#define RABBET_BYTES_UNKNOWN SIZE_MAX

typedef struct rabbet_prepared_t rabbet_prepared_t;
typedef struct rabbet_graphs_t rabbet_graphs_t;  // graph.c
typedef struct rabbet_finite_t rabbet_finite_t;  // finite.c
typedef struct rabbet_range_t rabbet_range_t;    // finite.c

typedef struct rabbet_prepared_cache_t {
  rabbet_prepared_t* nodes[RABBET_PREPARED_MAX];
  size_t count;
} rabbet_prepared_cache_t;

// An output of a call. `late`: where it lies until the next segment has memory
// for it, or NULL.
typedef struct rabbet_call_result_t {
  rabbet_dims_t dims;
  const void* late;
  size_t late_bytes;
} rabbet_call_result_t;

// A step to run. Steps whose outputs all are empty are not listed, unless they
// call sequences, which may tell extents.
typedef struct rabbet_run_t {
  rabbet_kernel_t* kernel;        // NULL: it calls a sequence
  rabbet_frame_t* callee;         // the branch that it called last
  rabbet_call_result_t* results;  // of the last call, by output; or NULL
  bool is_loop;
  rabbet_kernel_state_t* state;
  size_t step;
  rabbet_kernel_call_t call;
  size_t workspace_offset;
  bool is_copy;
} rabbet_run_t;

// A copy from an address to itself is skipped for every kernel: it stands
// before a step that works in place, and the caller gave the step's input and
// output one address. Recordings are kept by address, so that each has the copy
// or lacks it for good.
static inline bool rabbet_run_is_idle(const rabbet_run_t* run) {
  return run->is_copy && run->call.inputs[0] == run->call.outputs[0];
}

struct rabbet_prepared_t {
  const rabbet_sequence_t* sequence;
  rabbet_prepared_t* parent;
  rabbet_arena_t arena;
  int32_t segment;
  int64_t* key;
  size_t key_size;
  uint64_t number;  // that no other of the context has
  uint64_t used;    // when, for throwing away the least recently used

  // Resolved shapes, as far as they are known at this stage.
  int64_t* symbols;             // [symbol]
  int64_t* exprs;               // [expression]
  bool* valid;                  // [expression]: it has a value
  int64_t *low, *high;          // [expression]; NULL where all is known
  rabbet_dims_t* dims;          // [value], -1: not yet
  size_t* bytes;                // [value]: exact or an upper bound, or UNKNOWN
  const int64_t** host_values;  // [value], or NULL

  // Prepared: how to run the segment.
  bool ready;
  rabbet_kernel_state_t** states;  // [step of the segment]
  rabbet_run_t* runs;
  size_t run_count;
  size_t* offsets;  // [value]: roots whose memory belongs to this stage
  size_t memory_bytes;
  // Values that steps read but the host writes, once.
  void* materialized;
  size_t* materialized_offsets;  // [value]
  void** slots;                  // [slot of the segment]
  // For the present addresses: inputs of which the segment's steps read a copy,
  // and whether any copy is made before this segment (overlap.c).
  bool* input_copied;  // [input]
  bool copies_inputs;
  // Memory of the values that the host reads after the segment. It is not
  // reused while copies of earlier runs may still be under way.
  uint8_t* read_staging;
  // In the last segment: the outputs that no step writes. They depend on the
  // shapes alone, so that they are written once.
  uint8_t* output_staging;
  void* staging;            // the memory of both
  rabbet_graphs_t* graphs;  // recordings of the segment, or NULL

  // The addresses that the slots were filled for.
  uint64_t memory_generation, io_generation;
  rabbet_prepared_cache_t children;
};

// Evaluates dims, bytes and host_values, which follow from `key`. Runs and
// allocates nothing on the device.
rabbet_status_t rabbet_prepared_create(rabbet_frame_t* frame,
                                       rabbet_prepared_t* parent,
                                       const int64_t* key, size_t key_size,
                                       rabbet_prepared_t** out_prepared);
void rabbet_prepared_destroy(rabbet_prepared_t* prepared);
// Dimensions for which all profiles leave one value are no dynamic ones.
rabbet_status_t rabbet_sequence_fix_shapes(rabbet_sequence_t* sequence);
void rabbet_engine_join_shapes(rabbet_engine_t* engine);
// engine_memory.c: the ranges that one of the sequence's profiles gives to
// symbols known before the first segment; others are left as they are.
void rabbet_profile_symbols(const rabbet_sequence_t* sequence, size_t profile,
                            int64_t* low, int64_t* high);
void rabbet_profile_optimum(const rabbet_sequence_t* sequence, size_t profile,
                            int64_t* values);
// Bounds of all expressions while the symbols that are read from segment
// `segment` on are not known; the others' bounds are given. Sets those too.
rabbet_status_t rabbet_settle_bounds(const rabbet_sequence_t* sequence,
                                     int32_t segment, int64_t* symbol_low,
                                     int64_t* symbol_high, int64_t* low,
                                     int64_t* high);
// Dims of a shape, -1 for those that this stage does not know; an error if it
// knows that the shape is impossible.
rabbet_status_t rabbet_resolve_shape(const rabbet_prepared_t* prepared,
                                     const char* name,
                                     const rabbet_shape_t* shape,
                                     rabbet_dims_t* out_dims);
// Host memory that the device copies to and from, pinned where it can be.
rabbet_status_t rabbet_host_allocate(const rabbet_engine_t* engine, size_t size,
                                     void** out_memory);
void rabbet_host_free(const rabbet_engine_t* engine, void* memory);
// Host memory for values that the host reads after the segment or writes at the
// end.
rabbet_status_t rabbet_prepare_staging(rabbet_prepared_t* prepared);
// Kernel states, and the bytes of memory that they and the tensors need.
rabbet_status_t rabbet_prepared_measure(rabbet_frame_t* frame,
                                        rabbet_prepared_t* prepared);
// Prepares all that a run needs but the context's memory; frees it again;
// prepares the memory, too.
rabbet_status_t rabbet_prepared_complete(rabbet_frame_t* frame,
                                         rabbet_prepared_t* prepared,
                                         void* stream);
void rabbet_prepared_undo(rabbet_prepared_t* prepared);
rabbet_status_t rabbet_prepared_make_ready(rabbet_frame_t* frame,
                                           rabbet_prepared_t* prepared,
                                           void* stream);

// Integers on the host, in the shape `dims`, as constants of `graph`; the arena
// owns them.
rabbet_status_t rabbet_step_constants(rabbet_expr_graph_t* graph,
                                      rabbet_arena_t* arena,
                                      const rabbet_dims_t* dims,
                                      const int64_t* elements,
                                      const rabbet_expr_t** out_values,
                                      size_t* out_count);
rabbet_status_t rabbet_prepared_check_step(
    const rabbet_prepared_t* prepared, const rabbet_plan_step_t* step,
    const rabbet_kernel_shapes_t* shapes);

// Integers as the value's type.
void rabbet_store_host_values(const rabbet_plan_value_t* value,
                              const int64_t* from, size_t count, void* to);
bool rabbet_is_materialized(const rabbet_sequence_t* sequence, int32_t root);

// Elements of a value that the host knows, or NULL.
const int64_t* rabbet_host_values(const rabbet_prepared_t* prepared, int32_t v);

// Says more of the error of a kernel that does not take its shapes: what the
// layers' rules say of them, and the names of the step's inputs.
rabbet_status_t rabbet_prepared_explain(const rabbet_prepared_t* prepared,
                                        const rabbet_plan_step_t* step,
                                        const rabbet_kernel_shapes_t* shapes,
                                        rabbet_status_t status);

// The node for the key: found, or created in the place of the oldest.
rabbet_status_t rabbet_prepared_lookup(rabbet_frame_t* frame,
                                       rabbet_prepared_t* parent,
                                       const int64_t* key, size_t key_size,
                                       rabbet_prepared_t** out_prepared);
void rabbet_prepared_cache_clear(rabbet_prepared_cache_t* cache);

// ---- Context

// Memory of the device for an input or output, which only grows.
typedef struct rabbet_io_memory_t {
  void* memory;
  size_t bytes;
} rabbet_io_memory_t;

// Memory of a step that calls sequences.
typedef struct rabbet_grown_t {
  rabbet_io_memory_t* list;
  size_t count;
} rabbet_grown_t;

// An input or output in the host's memory, and its copy on a device with memory
// of its own.
typedef struct rabbet_host_io_t {
  void* host;  // NULL: none
  rabbet_io_memory_t device;
} rabbet_host_io_t;

// The state that a context has of one sequence.
struct rabbet_frame_t {
  rabbet_context_t* context;
  const rabbet_sequence_t* sequence;
  void** addresses;                              // [io]
  rabbet_io_memory_t* io_copies;                 // [io] (overlap.c)
  rabbet_output_allocator_t* output_allocators;  // [io]
  size_t allocator_count;
  int64_t* key;  // of the first segment; values of shape inputs as last read
  int64_t* next_key;  // of a sequence that steps call: as it is called next
  rabbet_prepared_cache_t roots;
  rabbet_prepared_t* current;  // for `key`, or NULL
  rabbet_prepared_t* last;     // leaf of the last run if it began at `current`
  uint64_t io_generation;
  void** memory;         // [segment], of the context's
  size_t* memory_bytes;  // [segment], of the context's
  int64_t* read_key;
  // Debug tensors (debug.c). Hidden outputs lie in memory of the context.
  bool* debug_on;        // [io]
  size_t* hidden_bytes;  // [hidden output]
  float* times;          // [step], while there is a profiler
  // On a device that has them: one where each segment begins and one after each
  // of its runs, those of segment k from its first step + k.
  void** events;
  // Checks (checks.c): the vectors that runs left, the number of runs that left
  // one, and the number of vectors that were read.
  int32_t* check_places;
  uint64_t checks_made, checks_seen;
  bool* graph_reported;  // [step]: that it is not recorded was said
  // Of a sequence that steps call: the bytes at each output's address.
  size_t* rooms;           // [io]
  rabbet_grown_t* grown;   // [step] (late_outputs.c)
  uint64_t last_run;       // of the context's runs
  rabbet_range_t* ranges;  // [value] (finite.c), or NULL
};

struct rabbet_context_t {
  rabbet_engine_t* engine;
  rabbet_context_t *next, *previous;  // of the engine's
  rabbet_allocator_t allocator;
  rabbet_arena_t arena;
  rabbet_frame_t* frames;  // of the plan's sequences
  rabbet_frame_t* main;    // of the sequence that callers run
  uint64_t runs;           // that were begun
  int threads;             // as asked for; 0: the plan's
  size_t profile;
  bool* shape_set;     // [input]
  bool* shape_is_new;  // [input]: set after the run
  bool is_unprepared;  // the present shapes were not prepared yet
  bool has_run;
  rabbet_host_io_t* host_ios;  // [io]
  size_t host_io_count;        // that have a host address
  uint64_t clock;
  rabbet_device_allocator_t device_allocator;
  void** memory;         // [place]
  size_t* memory_bytes;  // [place]
  uint64_t memory_generation;
  // The caller gives the memory; places lie in it one behind another.
  bool has_given_memory;
  uint8_t* given_memory;
  size_t given_bytes;
  void* consumed_event;
  rabbet_debug_listener_t debug_listener;
  bool unfused_debug_on;
  rabbet_communicator_t* communicator;  // or NULL (exchange.c)
  bool has_joined;                      // kernels made what they need of it
  void* stream;  // of the last run; it is there while `running`
  bool running;
  // Numbers of runs, for cancelling (stop.c); 0: none.
  atomic_uint_fast64_t present_run, cancelled_run;
  int64_t iteration_limit;  // of each loop; 0: none
  rabbet_interrupt_t interrupt;
  rabbet_finite_t* finite;  // NULL: runs are not looked at
  rabbet_profiler_t profiler;
  bool use_graphs;
  void* record_stream;    // that only records; made when it is needed
  void* loop_streams[2];  // for bodies of loops in recordings
  rabbet_graph_info_t graph_info;
};

static inline size_t rabbet_context_frame_count(
    const rabbet_context_t* context) {
  return context->frames ? context->engine->plan->sequence_count : 0;
}
// That of a sequence of the plan.
static inline rabbet_frame_t* rabbet_context_frame(
    const rabbet_context_t* context, size_t sequence) {
  assert(sequence < context->engine->plan->sequence_count);
  return &context->frames[sequence];
}
static inline bool rabbet_frame_is_main(const rabbet_frame_t* frame) {
  return frame == frame->context->main;
}

// frame.c: `context` and `sequence` are set.
rabbet_status_t rabbet_frame_initialize(rabbet_frame_t* frame);
void rabbet_frame_deinitialize(rabbet_frame_t* frame);
// Everything prepared is thrown away; nothing uses it any more.
void rabbet_frame_forget(rabbet_frame_t* frame);
// Makes the events and the array for the times of steps.
rabbet_status_t rabbet_frame_time_steps(rabbet_frame_t* frame);

// stop.c: whether the run is to end early. Before iteration `trip` of a loop:
// fails if the run ends there.
static inline bool rabbet_context_is_cancelled(
    const rabbet_context_t* context) {
  return atomic_load_explicit(&context->cancelled_run, memory_order_relaxed) ==
         context->runs;
}
rabbet_status_t rabbet_context_cancelled(void);
rabbet_status_t rabbet_context_next_iteration(const rabbet_context_t* context,
                                              int64_t trip);
rabbet_status_t rabbet_check_iteration_limit(int64_t limit);

// exchange.c: does nothing for plans without exchanges. Around a run that
// enqueues on the stream; the begin makes what kernels need of the
// communicator. The end passes the run's status on, or replaces it.
rabbet_status_t rabbet_exchange_begin(rabbet_context_t* context, void* stream);
rabbet_status_t rabbet_exchange_end(rabbet_context_t* context, void* stream,
                                    rabbet_status_t status);
// After a wait for the stream: whether exchanges were given up.
rabbet_status_t rabbet_exchange_check(const rabbet_context_t* context);
void rabbet_exchange_cancel(const rabbet_context_t* context);
// Nothing prepared is left.
void rabbet_exchange_close(rabbet_context_t* context);

// execute.c: the sequence from its first segment, `prepared`, on.
rabbet_status_t rabbet_frame_run(rabbet_frame_t* frame,
                                 rabbet_prepared_t* prepared, void* stream);
// Adds the times of the frame's last run, which it waits for.
rabbet_status_t rabbet_frame_collect_times(rabbet_frame_t* frame);
// call.c: runs the sequence that the step's condition chooses, or the loop.
rabbet_status_t rabbet_run_call(rabbet_frame_t* frame,
                                const rabbet_prepared_t* prepared,
                                rabbet_run_t* run, void* stream);
// The key that a sequence is called with, if the host knows it. *out_changes:
// iterations change it; it is that of the first one, without the values of
// shape inputs that the loop carries or slices.
rabbet_status_t rabbet_call_key(const rabbet_prepared_t* prepared,
                                const rabbet_plan_step_t* step,
                                const rabbet_plan_call_t* call,
                                const rabbet_sequence_t* callee, int64_t* key,
                                bool* out_known, bool* out_changes);
// Whether a sequence that is prepared or measured before a run does not fit the
// shapes; frees the status then. Another branch may be meant for them: only a
// run that calls it fails.
bool rabbet_call_does_not_fit(rabbet_status_t* status);
// Prepares the sequences that the segment may call, as far as their shapes are
// known.
rabbet_status_t rabbet_prepare_calls(rabbet_frame_t* frame,
                                     const rabbet_prepared_t* prepared);
// The extents of its outputs, one after another.
void rabbet_call_told_dims(const rabbet_frame_t* frame, const rabbet_run_t* run,
                           int64_t* out_dims);

// late_outputs.c: copies outputs of the call that ends the segment before; this
// one has memory for them.
rabbet_status_t rabbet_call_copy_late(const rabbet_frame_t* frame,
                                      const rabbet_prepared_t* prepared,
                                      void* stream);
void rabbet_frame_free_grown(rabbet_frame_t* frame);

// debug.c: the context gives hidden outputs their memory.
void rabbet_frame_own_hidden(rabbet_frame_t* frame);
void rabbet_frame_free_hidden(rabbet_frame_t* frame);
// After a run, and after a step.
void rabbet_frame_show_debug(rabbet_frame_t* frame,
                             const rabbet_prepared_t* leaf, void* stream);
void rabbet_frame_show_step(rabbet_frame_t* frame,
                            const rabbet_prepared_t* prepared,
                            const rabbet_run_t* run, void* stream);
static inline bool rabbet_context_shows_steps(const rabbet_context_t* context) {
  return context->unfused_debug_on && context->debug_listener.process;
}

// finite.c, while context->finite is set. At the start of a run; before a step,
// for its inputs, which it may overwrite; after it, for its outputs: fails if
// the step made the first infinity or NaN; at the end, which fails if an output
// holds some although no step made them.
rabbet_status_t rabbet_finite_begin(rabbet_frame_t* frame);
rabbet_status_t rabbet_finite_before_step(rabbet_frame_t* frame,
                                          const rabbet_prepared_t* prepared,
                                          const rabbet_run_t* run,
                                          void* stream);
rabbet_status_t rabbet_finite_after_step(rabbet_frame_t* frame,
                                         const rabbet_prepared_t* prepared,
                                         const rabbet_run_t* run, void* stream);
rabbet_status_t rabbet_finite_end(rabbet_frame_t* frame,
                                  const rabbet_prepared_t* leaf);
void rabbet_finite_destroy(rabbet_context_t* context);

// checks.c: conditions known to the host once shapes are known; the vector of a
// run, before any wait for it; the vectors of earlier runs.
rabbet_status_t rabbet_prepared_check(const rabbet_prepared_t* prepared);
rabbet_status_t rabbet_frame_reserve_checks(rabbet_frame_t* frame);
rabbet_status_t rabbet_frame_take_checks(rabbet_frame_t* frame, void* stream);
rabbet_status_t rabbet_context_look_at_checks(rabbet_context_t* context);

// bind.c: where a step of the segment finds a value. The addresses that a run
// needs are checked and put into the steps' calls.
void* rabbet_value_address(const rabbet_frame_t* frame,
                           const rabbet_prepared_t* prepared, int32_t value);
rabbet_status_t rabbet_check_address(const rabbet_frame_t* frame,
                                     const rabbet_prepared_t* prepared,
                                     size_t io);
rabbet_status_t rabbet_prepared_bind(rabbet_frame_t* frame,
                                     rabbet_prepared_t* prepared, void* stream);

// prepare_early.c: whether kernels and memory of the segment are prepared.
bool rabbet_prepared_is_ready(const rabbet_frame_t* frame,
                              const rabbet_prepared_t* prepared);
// Fails, and says how to avoid it, if the caller records the stream: the next
// actions allocate or wait, which would spoil the recording.
rabbet_status_t rabbet_context_refuse_recording(const rabbet_context_t* context,
                                                void* stream);
// After a run: the next one begins when its shapes are set.
void rabbet_context_expect_shapes(rabbet_context_t* context);

// overlap.c: finds the inputs that outputs of the segment would overwrite too
// early, and addresses that are not aligned as steps need them; reserves memory
// in their place; copies inputs before a segment, outputs after the last one.
rabbet_status_t rabbet_prepared_resolve_overlaps(rabbet_frame_t* frame,
                                                 rabbet_prepared_t* prepared,
                                                 void* stream);
rabbet_status_t rabbet_prepared_copy_inputs(rabbet_frame_t* frame,
                                            const rabbet_prepared_t* prepared,
                                            void* stream);
rabbet_status_t rabbet_frame_copy_outputs(rabbet_frame_t* frame,
                                          const rabbet_prepared_t* leaf,
                                          void* stream);
// Whether steps use memory of the context's in the place of this address.
bool rabbet_io_is_misaligned(const rabbet_frame_t* frame, size_t io);

// host_io.c: before a segment, memory on the device for inputs and outputs in
// host memory, and the inputs' contents; after the run, the outputs'.
rabbet_status_t rabbet_context_begin_host_ios(rabbet_context_t* context,
                                              const rabbet_prepared_t* prepared,
                                              void* stream);
rabbet_status_t rabbet_context_end_host_ios(rabbet_context_t* context,
                                            const rabbet_prepared_t* leaf,
                                            void* stream);
void rabbet_context_free_host_ios(rabbet_context_t* context);
void rabbet_frame_free_copies(rabbet_frame_t* frame);
// Grows memory for the io. No run may use it any more.
rabbet_status_t rabbet_io_memory_reserve(rabbet_frame_t* frame,
                                         rabbet_io_memory_t* memory, size_t io,
                                         size_t bytes, void* stream);
void rabbet_frame_store_address(rabbet_frame_t* frame, size_t io,
                                void* address);

// The root for the present inputs; reads the values of shape inputs.
rabbet_status_t rabbet_context_select(rabbet_context_t* context,
                                      rabbet_prepared_t** out_prepared);
int rabbet_context_actual_threads(const rabbet_context_t* context);
// Everything prepared is thrown away; waits for the device first.
void rabbet_context_forget(rabbet_context_t* context);

#endif  // RABBET_SRC_RUNTIME_RUNTIME_H_
