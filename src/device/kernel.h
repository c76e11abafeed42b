// Kernel classes: a device's ways to compute a group of layers, and how they
// are run.
//
// A library call, a built-in kernel, a fused kernel and a plugin all are kernel
// classes. The builder asks each class of a device for candidates, times them,
// and keeps name and tactic; the runtime finds the class again by name.
#ifndef RABBET_SRC_DEVICE_KERNEL_H_
#define RABBET_SRC_DEVICE_KERNEL_H_

#include "core/artifact.h"
#include "ops/group.h"
#include "rabbet/logger.h"

typedef struct rabbet_device_t rabbet_device_t;
typedef struct rabbet_kernel_class_t rabbet_kernel_class_t;
// A device's own form of a caller's communicator; each device casts it to a
// type of its own.
typedef struct rabbet_communicator_t rabbet_communicator_t;

typedef struct rabbet_type_format_t {
  rabbet_dtype_t dtype;
  rabbet_format_t format;
} rabbet_type_format_t;

// One way to compute a group.
typedef struct rabbet_candidate_t {
  const rabbet_kernel_class_t* kernel;
  int32_t tactic;
  char tactic_name[48];  // "direct", "winograd", "rows", ...; shown to people
  // Boundary inputs, then outputs (group order).
  const rabbet_type_format_t* tensors;
  // Output i may be written over input in_place[i] (-1: no input); the kernel
  // then works with equal and with different addresses. NULL: none may.
  const int32_t* in_place;
  // Output i must be given the memory of input aliased[i] (-1: none). NULL:
  // none.
  const int32_t* aliased;
  // The artifact that `create` gets with this tactic in a build: its library's
  // description of the kernel. size 0: none.
  rabbet_artifact_t artifact;
} rabbet_candidate_t;

typedef struct rabbet_candidate_sink_t {
  void* context;
  rabbet_status_t (*add)(void* context, const rabbet_candidate_t* candidate);
} rabbet_candidate_sink_t;

// ---- Asking a library -------------------------------------------------------

// A question to a library about its kernels for a group. Libraries may crash
// while they are asked, and so may the engines that they return: a build asks
// in another process (builder/propose/trial.h).
typedef struct rabbet_question_t {
  rabbet_device_t* device;
  const rabbet_kernel_class_t* kernel;
  const rabbet_group_t* group;  // boundary types and formats as in `create`
  const rabbet_dims_t* dims;    // of its values
  // As kernels get them, or NULL: libraries' groups have none.
  const int64_t* const* host_values;
  bool tf32;
  int32_t wish;    // answers wanted
  int32_t enough;  // of these, so many that work will do
  rabbet_allocator_t allocator;
} rabbet_question_t;

typedef struct rabbet_answer_t {
  int32_t tactic;
  char tactic_name[48];
  rabbet_artifact_t artifact;  // as rabbet_candidate_t has it
} rabbet_answer_t;

typedef struct rabbet_answer_sink_t {
  void* context;
  rabbet_status_t (*add)(void* context, const rabbet_answer_t* answer);
} rabbet_answer_sink_t;

// Answers in the place of question->kernel->ask.
typedef struct rabbet_asker_t {
  void* context;
  rabbet_status_t (*ask)(void* context, const rabbet_question_t* question,
                         rabbet_answer_sink_t sink);
} rabbet_asker_t;

// The limits of the candidates.
typedef struct rabbet_propose_t {
  rabbet_device_t* device;
  const rabbet_group_t* group;  // values' dtype is the network's, format LINEAR
  // Types that weakly typed networks may compute in besides the network's own:
  // bit 1 << dtype. 0 when strongly typed.
  uint32_t extra_dtypes;
  bool
      tf32;  // products of FLOAT may round their factors to 10 bits of mantissa
  // When set (conversions), only candidates with exactly these boundary types
  // and formats are of use.
  const rabbet_type_format_t* fixed;
  // Bits 1 << format of the formats that user operators and the network's
  // inputs and outputs may ask for. A class that can offer itself in them saves
  // conversions; formats other than these and its favourites only cost time.
  uint64_t formats;
  int threads;
  int optimization_level;  // 0..5
  rabbet_allocator_t allocator;
  const rabbet_asker_t* asker;  // NULL: libraries are asked here
} rabbet_propose_t;

typedef struct rabbet_kernel_spec_t {
  rabbet_device_t* device;
  const rabbet_group_t* group;  // boundary dtype and format as chosen; outlives
                                // the kernel
  int32_t tactic;
  rabbet_allocator_t allocator;
  // The plan's artifacts for this step; in a build the candidate's own. They
  // come from a file: the class checks their contents. The list lives during
  // `create`, the bytes as long as the kernel.
  const rabbet_artifact_t* artifacts;
  size_t artifact_count;
  // In a build: this tactic or none. `prepare` answers UNSUPPORTED instead of
  // asking a library for another one.
  bool exact;
  // The kernel is created for its programs alone, which others then find. If a
  // thread is compiling one of them, `create` answers UNAVAILABLE and does not
  // wait.
  bool ahead;
} rabbet_kernel_spec_t;

// Made once for an engine; shared by its contexts. Subclassed by its class.
typedef struct rabbet_kernel_t {
  const rabbet_kernel_class_t* kernel_class;
  // Bit i: boundary input i is a constant that calls do not read, as the kernel
  // keeps it in a form of its own. Set by `create`; its address in calls may
  // then be NULL, on devices that do not read the host's memory.
  uint64_t own_constants;
  // Of the boundary's addresses in calls, in bytes, where it is more than that
  // of elements; 0: it is not. A power of two. Set by `create`.
  uint32_t alignment;
  // Calls need a communicator. Set by `create`.
  bool exchanges;
  // Memory that the kernel keeps for as long as it lives, packed constants
  // above all. Set by `create`; `prepare` adds to it.
  size_t kept_bytes;
} rabbet_kernel_t;

// Concrete shapes for every value of the group, in its order.
typedef struct rabbet_kernel_shapes_t {
  const rabbet_dims_t* dims;  // -1: a size tensor inside the group will tell
  // Elements of integer values that the host knows (shape operands); NULL
  // entries where it does not.
  const int64_t* const* host_values;
  int threads;
  // Memory of each value, SIZE_MAX where it is not known; or NULL.
  const size_t* bytes;
} rabbet_kernel_shapes_t;

// The result of prepare: belongs to one context and one set of shapes. Each
// class casts it to a type of its own.
typedef struct rabbet_kernel_state_t rabbet_kernel_state_t;

typedef struct rabbet_kernel_call_t {
  void* const* inputs;   // boundary inputs, constants included
  void* const* outputs;  // boundary outputs
  void* workspace;       // aligned to 256
  void* stream;
  rabbet_communicator_t* communicator;  // NULL: none is set
} rabbet_kernel_call_t;

// Whether the kernel's enqueued work may be recorded into a graph of the device
// and replayed in place of calls.
typedef enum rabbet_recordable_t {
  RABBET_RECORDABLE_YES = 0,  // it only enqueues work, the same each time
  RABBET_RECORDABLE_NO = 1,
  // Others' code that does not say: it is tried before it is recorded.
  RABBET_RECORDABLE_UNKNOWN = 2,
} rabbet_recordable_t;

enum {
  // Correct but slow: asked for candidates only if no class without this flag
  // offered any, so that no time goes into timing kernels that will lose.
  RABBET_KERNEL_FALLBACK = 1 << 0,
  // A plugin layer's kernel that does not call the plugin: running a plan needs
  // no plugin for it.
  RABBET_KERNEL_WITHOUT_PLUGIN = 1 << 1,
  // Computes groups with DOUBLE, too; others are not asked about them.
  RABBET_KERNEL_DOUBLE = 1 << 2,
};

struct rabbet_kernel_class_t {
  uint32_t struct_size;
  const char* name;  // "dnnl.convolution"; kept in plans, never reused
  uint32_t version;  // raised when its speed or meaning changes (timing cache)
  uint32_t flags;    // RABBET_KERNEL_...
  // Adds its candidates for the group; none if it does not compute the group.
  // The offers depend on the question alone, as builds keep them. They depend
  // on elements of constants only if these are integers, have at most 16
  // elements, or belong to a group with quantization.
  rabbet_status_t (*propose)(const rabbet_propose_t* propose,
                             rabbet_candidate_sink_t sink);
  // Called by rabbet_kernel_create alone, or by a class that has checked the
  // group itself. Shapes have been checked against the operators' rules, and
  // `takes` returned true. A tactic unknown to the class is an error.
  rabbet_status_t (*create)(const rabbet_kernel_spec_t* spec,
                            rabbet_kernel_t** out_kernel);
  void (*destroy)(rabbet_kernel_t* kernel);
  // May allocate, compile, pack weights (kept in the kernel, shared, locked).
  // Thread-safe. *out_state may stay NULL; *out_workspace is in bytes.
  rabbet_status_t (*prepare)(rabbet_kernel_t* kernel,
                             const rabbet_kernel_shapes_t* shapes,
                             rabbet_kernel_state_t** out_state,
                             size_t* out_workspace);
  void (*destroy_state)(rabbet_kernel_t* kernel, rabbet_kernel_state_t* state);
  // Allocates nothing, parses nothing, takes no lock. Different states may be
  // enqueued by different threads at once.
  rabbet_status_t (*enqueue)(rabbet_kernel_t* kernel,
                             rabbet_kernel_state_t* state,
                             const rabbet_kernel_call_t* call);
  // Passes on the artifacts that a plan must keep of a kernel that was created,
  // and prepared for the profile's optimum, in a build. optional: none.
  rabbet_status_t (*artifacts)(rabbet_kernel_t* kernel,
                               rabbet_artifact_sink_t sink);
  // optional: yes.
  rabbet_recordable_t (*recordable)(rabbet_kernel_t* kernel,
                                    rabbet_kernel_state_t* state);
  // Enqueues on a stream that records. *out_kept, if set, is an object that
  // replays need; it is released with the graph, on failure too. optional:
  // enqueue.
  rabbet_status_t (*record)(rabbet_kernel_t* kernel,
                            rabbet_kernel_state_t* state,
                            const rabbet_kernel_call_t* call, void** out_kept);
  void (*release_recorded)(rabbet_kernel_t* kernel,
                           rabbet_kernel_state_t* state, void* kept);
  // Version of the library that its kernels come from (a compiler, a library of
  // products), 0 without one: times hold only for an equal version. optional:
  // the device's signature covers it.
  uint64_t (*library_version)(rabbet_device_t* device);
  // Of its kernels: bits 1 << rabbet_tactic_source_t, of which the user must
  // allow one. 0: the device's own.
  uint32_t tactic_sources;
  // Whether it computes this group: its operators, their wiring, and the chosen
  // types and formats of the boundary. A plan may come from a damaged or
  // foreign file: groups that this class would not propose for any shapes are
  // refused here, as no later check follows. Extents are checked by `prepare`.
  // optional: `create` checks.
  bool (*takes)(const rabbet_kernel_spec_t* spec);
  // Asks its library, on this thread. No answer is no error. optional: there is
  // no library that chooses.
  rabbet_status_t (*ask)(const rabbet_question_t* question,
                         rabbet_answer_sink_t sink);
  // Of kernels that exchange. `check`: whether the communicator has the ranks
  // of the kernel. Else makes what calls need of it, outside of recordings,
  // together with the other ranks, which do the same in the same order.
  rabbet_status_t (*join)(rabbet_kernel_t* kernel,
                          rabbet_communicator_t* communicator, bool check);
  // Microseconds, about, by which the first call of such kernels in a process
  // takes longer than the next, as their library then generates code for all of
  // them. optional: 0.
  double (*start_us)(int32_t tactic);
};

// False if the group has DOUBLE and the class does not compute it.
RABBET_PRIVATE_API bool rabbet_kernel_may_take(
    const rabbet_kernel_class_t* kernel_class, const rabbet_group_t* group);

// `create` of a class for a group that it takes, else UNSUPPORTED.
RABBET_PRIVATE_API rabbet_status_t rabbet_kernel_create(
    const rabbet_kernel_class_t* kernel_class, const rabbet_kernel_spec_t* spec,
    rabbet_kernel_t** out_kernel);

#endif  // RABBET_SRC_DEVICE_KERNEL_H_
