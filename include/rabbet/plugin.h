// Operators of your own: the binary interface of a plugin, and the registry.
//
// A creator is registered under (name, version, namespace). It makes an
// instance for each layer that uses it. An instance is a table of functions and
// `self`. All callbacks may be called on any thread, enqueue by several
// contexts at once. A callback that fails returns a status; Rabbet adds the
// plugin's and the layer's names.
#ifndef RABBET_PLUGIN_H_
#define RABBET_PLUGIN_H_

#include "rabbet/allocator.h"
#include "rabbet/attr.h"
#include "rabbet/types.h"

RABBET_EXTERN_C_BEGIN

// ---- Dimension expressions -------------------------------------------------

// A number of the builder's graph; valid as long as the call that gave it.
typedef int32_t rabbet_dim_t;

typedef enum rabbet_dim_op_t {
  RABBET_DIM_SUM = 0,
  RABBET_DIM_PROD = 1,
  RABBET_DIM_MAX = 2,
  RABBET_DIM_MIN = 3,
  RABBET_DIM_SUB = 4,
  RABBET_DIM_EQUAL = 5,  // 1 or 0
  RABBET_DIM_LESS = 6,   // 1 or 0
  RABBET_DIM_FLOOR_DIV = 7,
  RABBET_DIM_CEIL_DIV = 8,
} rabbet_dim_op_t;

typedef struct rabbet_dim_builder_t rabbet_dim_builder_t;

RABBET_API rabbet_status_t rabbet_dim_constant(rabbet_dim_builder_t* builder,
                                               int64_t value,
                                               rabbet_dim_t* out_dim);
RABBET_API rabbet_status_t rabbet_dim_operation(rabbet_dim_builder_t* builder,
                                                rabbet_dim_op_t op,
                                                rabbet_dim_t a, rabbet_dim_t b,
                                                rabbet_dim_t* out_dim);
// An extent that only a run tells: output `output_index`, a 0-D INT32 or INT64
// tensor, will hold it. `opt` is used for tuning, `upper` bounds the memory.
RABBET_API rabbet_status_t rabbet_dim_size_tensor(rabbet_dim_builder_t* builder,
                                                  int32_t output_index,
                                                  rabbet_dim_t opt,
                                                  rabbet_dim_t upper,
                                                  rabbet_dim_t* out_dim);
RABBET_API bool rabbet_dim_is_constant(rabbet_dim_builder_t* builder,
                                       rabbet_dim_t dim, int64_t* out_value);
RABBET_API bool rabbet_dim_is_size_tensor(rabbet_dim_builder_t* builder,
                                          rabbet_dim_t dim);

// ---- Describing outputs ----------------------------------------------------

typedef struct rabbet_plugin_input_t {
  rabbet_dtype_t dtype;
  int32_t rank;
  rabbet_dim_t dims[RABBET_MAX_RANK];
  // Of a shape input: its values as expressions, row-major; else NULL.
  const rabbet_dim_t* values;
  size_t value_count;
  uint64_t reserved[2];  // 0
} rabbet_plugin_input_t;

typedef struct rabbet_plugin_output_t {
  rabbet_dtype_t dtype;
  int32_t rank;
  rabbet_dim_t dims[RABBET_MAX_RANK];
  int32_t aliased_input;  // shares this input's memory (in place); -1: none
  bool is_size_tensor;
  uint8_t reserved[19];  // 0
} rabbet_plugin_output_t;

// ---- Types and formats -----------------------------------------------------

// A tensor during the build: dims are -1 where they are dynamic.
typedef struct rabbet_plugin_tensor_t {
  rabbet_dtype_t dtype;
  rabbet_format_t format;
  rabbet_dims_t dims, min, opt, max;
  uint64_t reserved[2];  // 0
} rabbet_plugin_tensor_t;

// The whole of a question to a plugin: tensors are inputs, then outputs.
typedef struct rabbet_plugin_query_t {
  uint32_t struct_size;  // set by Rabbet
  const char* layer_name;
  const char* device;  // "cpu" or "cuda"
  const rabbet_plugin_tensor_t* tensors;
  size_t input_count, output_count;
} rabbet_plugin_query_t;

typedef struct rabbet_plugin_type_format_t {
  rabbet_dtype_t dtype;
  rabbet_format_t format;
} rabbet_plugin_type_format_t;

// Where a plugin puts its answers; the arrays are copied by `add`.
typedef struct rabbet_plugin_combination_sink_t {
  void* context;
  // One type and format for each tensor of the query.
  rabbet_status_t (*add)(void* context,
                         const rabbet_plugin_type_format_t* tensors);
} rabbet_plugin_combination_sink_t;

// While a plan is loaded: in place of a list, from a plugin that has none then.
#define RABBET_PLUGIN_ANY_TACTIC INT32_MIN

typedef struct rabbet_plugin_tactic_sink_t {
  void* context;
  rabbet_status_t (*add)(void* context, int32_t tactic);
} rabbet_plugin_tactic_sink_t;

typedef struct rabbet_plugin_attr_sink_t {
  void* context;
  rabbet_status_t (*add)(void* context, const rabbet_attr_t* attr);
} rabbet_plugin_attr_sink_t;

// ---- Running ---------------------------------------------------------------

typedef struct rabbet_plugin_view_t {
  void* data;  // host address on the CPU, device address on CUDA
  rabbet_dtype_t dtype;
  rabbet_format_t format;
  rabbet_dims_t dims;  // -1 where a size tensor will tell; the memory holds the
                       // upper bound
  int32_t aliased_input;  // outputs: the input whose memory it shares, or -1
  bool is_shape_input;    // data is then a host address on every device
  size_t bytes;  // of the memory, if a size tensor gives the extent; else 0:
                 // bytes by type, format and dims
  uint64_t reserved[3];  // 0
} rabbet_plugin_view_t;

typedef struct rabbet_plugin_call_t {
  const char* layer_name;
  const char* device;  // "cpu", "cuda:0"
  const rabbet_plugin_view_t* inputs;
  const rabbet_plugin_view_t* outputs;
  size_t input_count, output_count;
  void* workspace;       // as large as `prepare` asked for, aligned to 256
  void* stream;          // CUstream; NULL on the CPU
  int32_t tactic;        // 0: the default
  int32_t threads;       // CPU threads that this context may use
  void* state;           // what `prepare` returned
  uint64_t reserved[4];  // 0
} rabbet_plugin_call_t;

// ---- Kernels made ahead of time --------------------------------------------

// A plugin that gives its compiled kernels is not needed when a plan runs: the
// plan keeps the kernels, and how to launch them for every shape.

typedef enum rabbet_plugin_arg_kind_t {
  RABBET_PLUGIN_ARG_INPUT = 0,       // address of input `index`
  RABBET_PLUGIN_ARG_OUTPUT = 1,      // address of output `index`
  RABBET_PLUGIN_ARG_WORKSPACE = 2,   // address of the workspace + `value` bytes
  RABBET_PLUGIN_ARG_INTEGER = 3,     // `value`, in `size` bytes: 1, 2, 4, 8
  RABBET_PLUGIN_ARG_BYTES = 4,       // `data`, by value: a float, a struct
  RABBET_PLUGIN_ARG_TENSOR_MAP = 5,  // `map`, by value (compute capability 9)
} rabbet_plugin_arg_kind_t;

// The arguments of cuTensorMapEncodeTiled for the memory of an input or output.
// The innermost dimension comes first; strides, in bytes, begin with the
// second.
typedef struct rabbet_plugin_tensor_map_t {
  uint32_t struct_size;
  bool of_output;
  int32_t index;
  int32_t rank;  // 1 to 5
  rabbet_dim_t dims[5];
  rabbet_dim_t strides[4];
  uint32_t box[5];
  uint32_t element_strides[5];
  int32_t interleave, swizzle, l2_promotion, oob_fill;  // the driver's numbers
} rabbet_plugin_tensor_map_t;

typedef struct rabbet_plugin_arg_t {
  rabbet_plugin_arg_kind_t kind;
  int32_t index;
  rabbet_dim_t value;
  size_t size;
  const void* data;
  const rabbet_plugin_tensor_map_t* map;
} rabbet_plugin_arg_t;

// Machine code for one architecture, or PTX, from which the driver makes code
// for the architecture that it names and all later ones.
typedef struct rabbet_plugin_image_t {
  // Compute capability of a cubin; 0, 0: that of the device that is built for;
  // -1, -1: PTX.
  int32_t major, minor;
  const void* data;
  size_t size;
} rabbet_plugin_image_t;

// One kernel and its launch. Numbers are expressions over the inputs'
// dimensions.
typedef struct rabbet_plugin_launch_t {
  uint32_t struct_size;
  const char* kernel;  // name in the image
  const rabbet_plugin_image_t* images;
  size_t image_count;
  size_t image_size;  // sizeof(rabbet_plugin_image_t)
  rabbet_dim_t grid[3], block[3];
  rabbet_dim_t shared_bytes;
  int32_t cluster[3];  // 0, 0, 0: none
  bool cooperative;
  const rabbet_plugin_arg_t* args;  // the kernel's parameters, in order
  size_t arg_count;
  size_t arg_size;  // sizeof(rabbet_plugin_arg_t)
} rabbet_plugin_launch_t;

// Added launches are copied.
typedef struct rabbet_plugin_launch_sink_t {
  void* context;
  // Launches run in the order in which they are added.
  rabbet_status_t (*add)(void* context, const rabbet_plugin_launch_t* launch);
  // Bytes of workspace for all launches together.
  rabbet_status_t (*workspace)(void* context, rabbet_dim_t bytes);
} rabbet_plugin_launch_sink_t;

// ---- The instance ----------------------------------------------------------

// How an instance can run on a device: bits of `kinds`; the other two are for
// users that wish for one way where there are both.
enum {
  RABBET_PLUGIN_RUNS = 1,   // by `enqueue`
  RABBET_PLUGIN_READY = 2,  // by kernels made ahead of time (`launches`)
  RABBET_PLUGIN_PREFER_RUNS = 4,
  RABBET_PLUGIN_PREFER_READY = 8,
};

// Whether `enqueue` may be recorded into a CUDA graph, so that it is not called
// again until shapes or addresses change.
typedef enum rabbet_plugin_capture_t {
  // Unknown: Rabbet records it on memory of its own and compares replays on
  // other inputs with calls; a plugin whose results differ, or fail, is not
  // recorded.
  RABBET_PLUGIN_CAPTURE_TRIAL = 0,
  // It only enqueues work on call->stream, the same for the same call, waits
  // for nothing, and frees nothing that the work uses.
  RABBET_PLUGIN_CAPTURE_SAFE = 1,
  RABBET_PLUGIN_CAPTURE_NEVER = 2,
} rabbet_plugin_capture_t;

// Functions past struct_size count as absent. "optional" ones may be NULL, with
// the meaning given.
typedef struct rabbet_plugin_vtable_t {
  uint32_t struct_size;
  void (*destroy)(void* self);
  // An independent copy. optional: the instance is immutable and is shared.
  rabbet_status_t (*clone)(void* self, void** out_self);
  int32_t (*output_count)(void* self);
  // Types, shapes, aliases of the outputs; `outputs` is zeroed with
  // aliased_input = -1. Must be pure.
  rabbet_status_t (*describe)(void* self, rabbet_dim_builder_t* builder,
                              const rabbet_plugin_input_t* inputs,
                              size_t input_count,
                              rabbet_plugin_output_t* outputs);
  // Every combination of types and formats that works, best guess first; none
  // is an error. `query` holds the network's types and LINEAR; when a plan is
  // loaded, the plan's types and formats, which must be among the answers.
  // optional: exactly the query's own types, LINEAR everywhere.
  rabbet_status_t (*combinations)(void* self,
                                  const rabbet_plugin_query_t* query,
                                  rabbet_plugin_combination_sink_t sink);
  // Tactics (positive) for the combination in `query`; that of a plan which is
  // loaded must be among them. optional: only 0.
  rabbet_status_t (*tactics)(void* self, const rabbet_plugin_query_t* query,
                             rabbet_plugin_tactic_sink_t sink);
  // Bytes that, with types, formats, shapes and tactic, determine the speed.
  // Added as attributes. optional, or nothing added: timed in each build.
  rabbet_status_t (*timing_key)(void* self, rabbet_plugin_attr_sink_t sink);
  // Passes on the attributes that `create` needs at load. optional: nothing.
  rabbet_status_t (*serialize)(void* self, rabbet_plugin_attr_sink_t sink);
  // Shapes, tactic and device are known (`call->...->data` is NULL): may
  // allocate and compile. *out_workspace is 0 before. optional.
  rabbet_status_t (*prepare)(void* self, const rabbet_plugin_call_t* call,
                             size_t* out_workspace, void** out_state);
  void (*destroy_state)(void* self, void* state);  // optional
  // optional if there is `launches`.
  rabbet_status_t (*enqueue)(void* self, const rabbet_plugin_call_t* call);
  // Text for the inspector, borrowed until the next call. optional.
  const char* (*metadata)(void* self);
  // How it runs on "cpu" or "cuda": bits RABBET_PLUGIN_...; both: the builder
  // times both. optional: by enqueue or launches, as far as they are set.
  uint32_t (*kinds)(void* self, const char* device);
  // The kernels for the types, formats and tactic of `query`. `inputs` and
  // `outputs` (as `describe` gave them, on the same builder) are expressions.
  // optional if there is `enqueue`.
  rabbet_status_t (*launches)(void* self, rabbet_dim_builder_t* builder,
                              const rabbet_plugin_query_t* query,
                              int32_t tactic,
                              const rabbet_plugin_input_t* inputs,
                              const rabbet_plugin_output_t* outputs,
                              rabbet_plugin_launch_sink_t sink);
  // For the shapes and tactic of the call (data is NULL). optional: TRIAL.
  rabbet_plugin_capture_t (*capture)(void* self,
                                     const rabbet_plugin_call_t* call);
  // `enqueue` while call->stream is being captured. *out_kept, if it is set, is
  // an object that replays need, such as memory that was allocated for them; it
  // is given to release_captured when no graph replays the call any more, also
  // when this fails. optional: enqueue.
  rabbet_status_t (*enqueue_captured)(void* self,
                                      const rabbet_plugin_call_t* call,
                                      void** out_kept);
  void (*release_captured)(void* self, void* kept);  // optional
  // Bit i: input i is a shape input, besides those that the creator names.
  // optional: none.
  uint64_t (*shape_inputs)(void* self);
  // `serialize` for the chosen combination: types and formats as in `query`,
  // and the tactic. optional: serialize.
  rabbet_status_t (*serialize_chosen)(void* self,
                                      const rabbet_plugin_query_t* query,
                                      int32_t tactic,
                                      rabbet_plugin_attr_sink_t sink);
} rabbet_plugin_vtable_t;

typedef struct rabbet_plugin_instance_t {
  const rabbet_plugin_vtable_t* vtable;
  void* self;
} rabbet_plugin_instance_t;

// ---- The creator -----------------------------------------------------------

typedef struct rabbet_plugin_field_t {
  const char* name;
  rabbet_attr_type_t type;  // ANY: as it is given
  rabbet_dtype_t dtype;     // of TENSOR fields
  bool required;
  uint8_t reserved[7];  // 0
} rabbet_plugin_field_t;

typedef enum rabbet_plugin_phase_t {
  RABBET_PLUGIN_PHASE_BUILD = 0,
  RABBET_PLUGIN_PHASE_RUNTIME = 1,  // attrs are those of `serialize`
} rabbet_plugin_phase_t;

typedef struct rabbet_plugin_create_t {
  uint32_t struct_size;  // set by Rabbet
  const char* layer_name;
  rabbet_plugin_phase_t phase;
  const rabbet_attr_t* attrs;
  size_t attr_count;
  // At build, bit i: the caller that adds the layer marks input i as a shape
  // input. An instance that knows its shape inputs reports them by its own
  // function `shape_inputs`, at load as well.
  uint64_t shape_inputs;
  // Bit i: the layer lacks input i, at build and at load. All calls of the
  // instance then have only the other inputs, in order: numbers of inputs, and
  // masks of the instance, count only those.
  uint64_t absent_inputs;
} rabbet_plugin_create_t;

typedef struct rabbet_plugin_creator_t {
  uint32_t struct_size;
  const char* name;
  const char* version;           // NULL: "1"
  const char* plugin_namespace;  // NULL: ""
  const char* origin;  // module or file, kept in plans for diagnostics
  const rabbet_plugin_field_t* fields;
  size_t field_count;
  size_t field_size;  // sizeof(rabbet_plugin_field_t)
  void* user_data;
  void (*destroy)(void* user_data);  // exactly once, on any thread
  rabbet_status_t (*create)(void* user_data, const rabbet_plugin_create_t* args,
                            rabbet_plugin_instance_t* out_instance);
  // Which inputs are shape inputs (host integers): bit i for input i.
  uint64_t shape_inputs;
  // With those that may be absent; -1, or struct_size ends before it: any.
  int32_t input_count;
  // Bit i: input i may be absent: a name left empty in an ONNX node, NULL in
  // rabbet_network_add_plugin, or the last ones left out.
  uint64_t optional_inputs;
  // Of plugin libraries: each tactic is run once in a helper program before a
  // build times it, so that a build survives one that crashes, hangs or breaks
  // the GPU's context. The library is loaded there, too.
  bool isolate;
  uint8_t reserved[7];  // 0
} rabbet_plugin_creator_t;

// Everything is copied but user_data. ALREADY_EXISTS if the key is taken; on
// failure the caller still owns user_data. Thread-safe, as are all of these.
RABBET_API rabbet_status_t
rabbet_plugin_register(const rabbet_plugin_creator_t* creator);
// Instances made earlier stay valid. NOT_FOUND if absent.
RABBET_API rabbet_status_t rabbet_plugin_deregister(
    const char* name, const char* version, const char* plugin_namespace);
// NOT_FOUND names the nearest registered plugins. The creator is retained; give
// it back with rabbet_plugin_creator_release.
RABBET_API rabbet_status_t rabbet_plugin_find(
    const char* name, const char* version, const char* plugin_namespace,
    const rabbet_plugin_creator_t** out_creator);
RABBET_API void rabbet_plugin_creator_release(
    const rabbet_plugin_creator_t* creator);
// Calls `visit` for each creator in order of registration.
RABBET_API rabbet_status_t rabbet_plugin_visit(
    rabbet_status_t (*visit)(void* context,
                             const rabbet_plugin_creator_t* creator),
    void* context);

// ---- Plugin libraries -------------------------------------------------------

// The version of this header's rules for a library. It changes when existing
// parts change their meaning or place; functions and fields that are added
// behind the others (rabbet/types.h) do not change it.
#define RABBET_PLUGIN_ABI 2

#ifdef __cplusplus
#define RABBET_PLUGIN_EXPORT extern "C" __attribute__((visibility("default")))
#else
#define RABBET_PLUGIN_EXPORT __attribute__((visibility("default")))
#endif

// Makes a shared library a plugin library; once, in one of its files.
// `function` has no parameters, registers the library's creators and returns a
// status. If it fails, none of them is registered.
#define RABBET_PLUGIN_LIBRARY(function)                                       \
  RABBET_PLUGIN_EXPORT uint32_t rabbet_plugin_library_abi(void);              \
  RABBET_PLUGIN_EXPORT uint32_t rabbet_plugin_library_abi(void) {             \
    return RABBET_PLUGIN_ABI;                                                 \
  }                                                                           \
  RABBET_PLUGIN_EXPORT rabbet_status_t rabbet_plugin_library_register(void);  \
  RABBET_PLUGIN_EXPORT rabbet_status_t rabbet_plugin_library_register(void) { \
    return function();                                                        \
  }

// Opens a plugin library and registers its plugins: all, or none if one of them
// is registered already. The library stays loaded. UNAVAILABLE if it cannot be
// opened, DATA_LOSS if it is truncated, INCOMPATIBLE if it is for another
// machine or version of the interface.
RABBET_API rabbet_status_t rabbet_plugin_load_library(const char* path);

RABBET_EXTERN_C_END
#endif  // RABBET_PLUGIN_H_
