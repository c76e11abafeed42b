// A plan in memory: emitted by the builder, stored in the file, run by the
// runtime. docs/reference/plan_format.md describes the file.
//
// Everything in a plan belongs to its arena. A plan that was read has been
// checked: every index, size, enum and expression is in range, so that its
// users need not check again.
#ifndef RABBET_SRC_PLAN_PLAN_H_
#define RABBET_SRC_PLAN_PLAN_H_

#include "base/arena.h"
#include "base/file.h"
#include "core/artifact.h"
#include "core/expr.h"
#include "ops/group.h"
#include "rabbet/attr.h"
#include "rabbet/carried.h"

// Alignment of sections in a file, of constants in the weights section, of
// artifacts in the kernels section, and of the result of rabbet_plan_write.
#define RABBET_PLAN_ALIGNMENT 64
#define RABBET_PLAN_MAX_PROFILES 4096
#define RABBET_PLAN_MAX_SEQUENCES 4096
// Calls of sequences within each other.
#define RABBET_PLAN_MAX_DEPTH 16

// Where a value lives.
typedef enum rabbet_plan_storage_t {
  RABBET_PLAN_STORAGE_ARENA = 0,     // the context's memory, by lifetime
  RABBET_PLAN_STORAGE_IO = 1,        // address that the caller set (io number)
  RABBET_PLAN_STORAGE_CONSTANT = 2,  // bytes of the weights section
} rabbet_plan_storage_t;

// A tensor at run time.
typedef struct rabbet_plan_value_t {
  const char* name;
  rabbet_dtype_t dtype;
  rabbet_format_t format;
  rabbet_shape_t shape;  // expressions of the plan's graph
  rabbet_plan_storage_t storage;
  int32_t io;  // IO
  // CONSTANT: in the weights section. With an alias: from the beginning of its
  // memory. A multiple of 64.
  uint64_t offset;
  uint64_t size;  // CONSTANT: bytes
  // CONSTANT: equal bytes in memory that an engine's caller lent; or NULL.
  const uint8_t* lent;
  // Same memory as this value (views, in-place results, parts); -1: its own.
  // Always a value whose own alias is -1. Storage and io are then equal to that
  // value's. With an offset the shapes of both are constant.
  int32_t alias;
  // Host values as expressions (shape operands), or NULL. A value that has them
  // needs no step: the runtime then writes it where a step or the caller reads
  // it.
  const rabbet_expr_t* host_values;
  size_t host_value_count;
} rabbet_plan_value_t;

// A sequence that a step runs: it is called as a caller calls a plan, by its
// inputs and outputs.
typedef struct rabbet_plan_call_t {
  int32_t sequence;       // greater than that of the step
  const int32_t* inputs;  // of the step's group, one for each of its own
  size_t input_count;
} rabbet_plan_call_t;

// One kernel to run, or a choice between sequences.
typedef struct rabbet_plan_step_t {
  const char* name;    // layers that it computes, joined by " + "
  const char* kernel;  // kernel class; "" where there are calls
  int32_t tactic;
  const char* tactic_name;
  float time_us;  // as tuned; < 0 if it was not timed
  // Node inputs and outputs are numbers of the plan's values through `values`:
  // group value i is plan value values[i], -1 for values inside the group.
  rabbet_group_t group;
  const int32_t* values;
  // Shapes of group values that lie inside the group (rank -1 for others, which
  // plan values describe).
  const rabbet_shape_t* inner_shapes;
  // For plugin nodes (at most one to a step): the creator's key, origin and the
  // instance's serialized data.
  const char* plugin_name;
  const char* plugin_version;
  const char* plugin_namespace;
  const char* plugin_origin;
  const rabbet_attr_t* plugin_attrs;
  size_t plugin_attr_count;
  // Values that the host reads after this step, before it goes on: the cut
  // between segments. Fills the symbols (VALUE, tensor = value number).
  const int32_t* host_reads;
  size_t host_read_count;
  // Of a condition: the call if it is true, then the call if it is false.
  const rabbet_plan_call_t* calls;
  size_t call_count;
  // The plan's artifacts that the kernel uses, ascending.
  const int32_t* artifacts;
  size_t artifact_count;
  // For the inspector: alternatives with their times, as JSON, or NULL.
  const char* report_json;
  // Set by reading: the shapes follow from the operators' rules, so that the
  // runtime need not look again for each set of input shapes.
  bool shapes_proven;
} rabbet_plan_step_t;

typedef struct rabbet_plan_io_t {
  const char* name;
  bool is_input;
  bool is_shape_input;
  int32_t value;  // plan value that holds it
  const char* dim_names[RABBET_MAX_RANK];
  int32_t aliased_input;
  bool is_debug;  // listeners of a context may look at it
} rabbet_plan_io_t;

// A condition that must hold: element `index` of a hidden output, INT32; or,
// with index -1, all elements of a BOOL output that the host knows.
typedef struct rabbet_plan_check_t {
  const char* layer;
  const char* message;
  int32_t io;
  int32_t index;
} rabbet_plan_check_t;

// Weights of the network that can be replaced.
typedef struct rabbet_plan_weights_t {
  const char* name;      // of the network's tensor
  const char* layer;     // that reads them first, or that is the constant; ""
  int32_t role;          // of TensorRT's WeightsRole
  rabbet_dtype_t dtype;  // in which the network has them
  // CONSTANT values made of them, in that type and LINEAR or converted, and
  // numbered through all sequences (rabbet_plan_find_value).
  const int32_t* values;
  size_t value_count;
  // Pairs of CONSTANT values: INT8 made of them, of any format, and the FLOAT
  // scales, LINEAR, of the same rank, along at most one axis
  // (core/quantize.h). The weights are FLOAT.
  const int32_t* bytes;
  size_t byte_count;  // pairs
} rabbet_plan_weights_t;

// The scale of a tensor that may be read as 8 bits: one number.
typedef struct rabbet_plan_scale_t {
  const char* tensor;
  const int32_t* values;  // CONSTANT, of floating types; numbered through
  size_t value_count;
} rabbet_plan_scale_t;

typedef struct rabbet_plan_range_t {
  rabbet_dims_t min, opt, max;
  const int64_t *min_values, *opt_values, *max_values;  // shape inputs
  size_t value_count;
} rabbet_plan_range_t;

// Steps in order of execution, and the values between them. Sequences share the
// plan's weights and artifacts.
typedef struct rabbet_plan_sequence_t {
  struct rabbet_plan_t* plan;  // that it is a part of
  const char* name;            // "" for the first
  rabbet_expr_graph_t* graph;  // symbols refer to its values
  rabbet_plan_value_t* values;
  size_t value_count;
  rabbet_plan_io_t* ios;  // inputs first
  size_t io_count;
  size_t input_count;
  // The last outputs: debug tensors and those of checks, which the context
  // gives memory and callers do not see as outputs.
  size_t hidden_count;
  rabbet_plan_check_t* checks;  // those with an index last, all of one output
  size_t check_count;
  rabbet_plan_step_t* steps;
  size_t step_count;
  // [profile * input_count + input], where profiles are those of the plan that
  // run it, in order. Static inputs have min = opt = max.
  rabbet_plan_range_t* profiles;
  size_t profile_count;  // at least one
} rabbet_plan_sequence_t;

typedef struct rabbet_plan_t {
  rabbet_allocator_t allocator;
  rabbet_arena_t arena;
  const char* name;
  const char* producer;  // "rabbet 0.1.0"
  const char* device;    // kind: "cpu", "cuda"
  const char* device_signature;
  int32_t threads;  // tuned for
  // Entries, which callers run, have equal inputs and outputs; the others are
  // each called by one step. The first is an entry.
  rabbet_plan_sequence_t* sequences;
  size_t sequence_count;
  bool unfused_debug;  // listeners may also see values between steps
  // The entry of each profile. Profiles whose kernels are the same share one.
  const int32_t* entries;
  size_t profile_count;  // at least one
  // Data that kernels keep in the plan, in order of key; no two are equal.
  rabbet_artifact_t* artifacts;
  size_t artifact_count;
  // Code that plugins need, libraries first.
  rabbet_carried_t* carried;
  size_t carried_count;
  // Weights: while building, pieces to be written (constant value i's bytes are
  // weights_parts[..]); once read, one range of the file.
  const uint8_t* weights;
  size_t weights_size;
  // Weights that can be refitted lie in [kept_size, full_size) of the weights;
  // full_size 0: there are none. A stripped plan lacks their bytes: then
  // weights_size is kept_size.
  rabbet_plan_weights_t* refits;
  size_t refit_count;
  // Scales that a refitter may set; their bytes are kept.
  rabbet_plan_scale_t* scales;
  size_t scale_count;
  uint64_t kept_size, full_size;
  rabbet_file_map_t* file;  // keeps `weights` mapped; or NULL
  void* copy;               // keeps it otherwise
} rabbet_plan_t;

RABBET_PRIVATE_API rabbet_status_t
rabbet_plan_create(rabbet_allocator_t allocator, rabbet_plan_t** out_plan);
// Empty sequences, once for each plan. There is one profile, which runs the
// first.
RABBET_PRIVATE_API rabbet_status_t
rabbet_plan_make_sequences(rabbet_plan_t* plan, size_t count);
RABBET_PRIVATE_API void rabbet_plan_destroy(rabbet_plan_t* plan);

// The number of a profile among those of its entry.
RABBET_PRIVATE_API size_t rabbet_plan_entry_profile(const rabbet_plan_t* plan,
                                                    size_t profile);
RABBET_PRIVATE_API bool rabbet_plan_is_entry(const rabbet_plan_t* plan,
                                             size_t sequence);

// The steps of all sequences, numbered through.
RABBET_PRIVATE_API size_t rabbet_plan_step_count(const rabbet_plan_t* plan);
RABBET_PRIVATE_API const rabbet_plan_step_t* rabbet_plan_step(
    const rabbet_plan_t* plan, size_t number);

// Bytes of the constants, in order of offset; the writer pads between them.
typedef struct rabbet_plan_blob_t {
  uint64_t offset;
  const void* data;  // NULL: the maker makes them
  uint64_t size;
} rabbet_plan_blob_t;

// Makes the bytes of a blob when they are written, equal ones each time. They
// live until the next call.
typedef struct rabbet_plan_maker_t {
  void* context;
  rabbet_status_t (*make)(void* context, size_t blob, const void** out_data);
} rabbet_plan_maker_t;

typedef struct rabbet_plan_contents_t {
  const rabbet_plan_t* plan;
  const rabbet_plan_blob_t* blobs;
  size_t blob_count;
  rabbet_plan_maker_t maker;
} rabbet_plan_contents_t;

// Takes a plan's bytes in order.
typedef struct rabbet_plan_sink_t {
  void* context;
  // First, with the size of the whole.
  rabbet_status_t (*begin)(void* context, uint64_t size);
  rabbet_status_t (*write)(void* context, const void* data, size_t size);
  // Last, overwrites the first bytes. NULL: it cannot; constants are then read
  // twice, as the plan begins with their checksum.
  rabbet_status_t (*rewrite)(void* context, const void* data, size_t size);
} rabbet_plan_sink_t;

// The values of all sequences, numbered through: the first of a sequence, and
// the value of a number below the count of all. out_sequence may be NULL.
RABBET_PRIVATE_API int64_t rabbet_plan_first_value(
    const rabbet_plan_t* plan, const rabbet_plan_sequence_t* sequence);
RABBET_PRIVATE_API const rabbet_plan_value_t* rabbet_plan_find_value(
    const rabbet_plan_t* plan, int32_t number,
    const rabbet_plan_sequence_t** out_sequence);

// Of all that running a sequence needs: without names of its own, ranges of
// profiles, times and reports. Calls count from sequence `first` on.
RABBET_PRIVATE_API rabbet_status_t
rabbet_plan_hash_sequence(const rabbet_plan_t* plan, size_t sequence,
                          size_t first, rabbet_hash_t* out_hash);

// Deterministic: equal plans give equal bytes.
RABBET_PRIVATE_API rabbet_status_t rabbet_plan_write_to(
    const rabbet_plan_contents_t* contents, rabbet_allocator_t allocator,
    rabbet_plan_sink_t sink, uint64_t* out_size);
// To memory. Caller frees with rabbet_free_aligned(allocator, data, 64). `work`
// is for all else.
RABBET_PRIVATE_API rabbet_status_t rabbet_plan_write_block(
    const rabbet_plan_contents_t* contents, rabbet_allocator_t work,
    rabbet_allocator_t allocator, void** out_data, size_t* out_size);
RABBET_PRIVATE_API rabbet_status_t
rabbet_plan_write(const rabbet_plan_t* plan, const rabbet_plan_blob_t* blobs,
                  size_t blob_count, rabbet_allocator_t allocator,
                  void** out_data, size_t* out_size);
// Checks everything: the file's bytes (DATA_LOSS if damaged or truncated,
// INCOMPATIBLE if foreign or of another version), then their meaning, by
// rabbet_plan_verify. Checksums of bytes that this process wrote itself
// (`file`) are not computed again. Constants stay in place: `file` (retained)
// or, if that is NULL, `data` must outlive the plan. `data` is aligned to 64.
RABBET_PRIVATE_API rabbet_status_t
rabbet_plan_read(const void* data, size_t size, rabbet_file_map_t* file,
                 rabbet_allocator_t allocator, rabbet_plan_t** out_plan);

// Copies a refittable plan, with all weights in place (zeros for those missing
// in `data`) or without the refittable ones. The weights of the copy are at
// *out_weights; write them, then seal it again. Caller frees with
// rabbet_free_aligned(allocator, data, 64).
RABBET_PRIVATE_API rabbet_status_t
rabbet_plan_resize_weights(const void* data, size_t size, uint64_t weights_size,
                           rabbet_allocator_t allocator, void** out_data,
                           size_t* out_size, uint8_t** out_weights);
// Checksums of a file whose weights were changed in place.
RABBET_PRIVATE_API void rabbet_plan_reseal(void* data);
// Where the bytes of a constant lie, for all but a stripped plan.
static inline const uint8_t* rabbet_plan_constant(
    const rabbet_plan_t* plan, const rabbet_plan_value_t* value) {
  return value->lent ? value->lent : plan->weights + value->offset;
}
// Makes the steps' constants those at plan->weights, or lent ones.
RABBET_PRIVATE_API void rabbet_plan_link_constants(rabbet_plan_t* plan);

// Whether a plan makes sense by itself: every index, expression, operator,
// attribute and alias, and that each value is there before it is read.
// `weights_size` bounds the constants. DATA_LOSS, INCOMPATIBLE for unknown
// operators. Writing and reading call it.
RABBET_PRIVATE_API rabbet_status_t rabbet_plan_verify(const rabbet_plan_t* plan,
                                                      uint64_t weights_size);

// Offsets for values with lifetimes, so that those alive together do not
// overlap (greedy by size, best fit; the method of arXiv 2001.03288). first and
// last are step numbers, both inclusive.
typedef struct rabbet_memory_request_t {
  size_t size;  // 0 gets offset 0
  int32_t first, last;
  size_t offset;  // out, a multiple of 256
} rabbet_memory_request_t;
RABBET_PRIVATE_API rabbet_status_t
rabbet_plan_memory(rabbet_memory_request_t* requests, size_t count,
                   rabbet_allocator_t allocator, size_t* out_total);

#endif  // RABBET_SRC_PLAN_PLAN_H_
