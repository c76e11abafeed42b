// From a network to a plan.
#ifndef RABBET_BUILDER_H_
#define RABBET_BUILDER_H_

#include "rabbet/network.h"

RABBET_EXTERN_C_BEGIN

// ---- Optimization profiles -------------------------------------------------

typedef struct rabbet_profile_t rabbet_profile_t;  // counted

RABBET_API rabbet_status_t rabbet_profile_create(
    rabbet_allocator_t allocator, rabbet_profile_t** out_profile);
RABBET_API void rabbet_profile_retain(rabbet_profile_t* profile);
RABBET_API void rabbet_profile_release(rabbet_profile_t* profile);
// min <= opt <= max in each dimension, ranks equal.
RABBET_API rabbet_status_t rabbet_profile_set_shape(rabbet_profile_t* profile,
                                                    const char* input,
                                                    const rabbet_dims_t* min,
                                                    const rabbet_dims_t* opt,
                                                    const rabbet_dims_t* max);
// Values of a shape input.
RABBET_API rabbet_status_t rabbet_profile_set_values(
    rabbet_profile_t* profile, const char* input, const int64_t* min,
    const int64_t* opt, const int64_t* max, size_t count);
// NOT_FOUND if that input was not set.
RABBET_API rabbet_status_t rabbet_profile_shape(const rabbet_profile_t* profile,
                                                const char* input,
                                                rabbet_dims_t* out_min,
                                                rabbet_dims_t* out_opt,
                                                rabbet_dims_t* out_max);
RABBET_API rabbet_status_t rabbet_profile_values(
    const rabbet_profile_t* profile, const char* input, const int64_t** out_min,
    const int64_t** out_opt, const int64_t** out_max, size_t* out_count);

// ---- Timing cache ----------------------------------------------------------

typedef struct rabbet_timing_cache_t rabbet_timing_cache_t;  // counted, locked

// An empty cache for size 0. DATA_LOSS or INCOMPATIBLE for bytes that are not a
// cache.
RABBET_API rabbet_status_t rabbet_timing_cache_create(
    const void* data, size_t size, rabbet_allocator_t allocator,
    rabbet_timing_cache_t** out_cache);
RABBET_API void rabbet_timing_cache_retain(rabbet_timing_cache_t* cache);
RABBET_API void rabbet_timing_cache_release(rabbet_timing_cache_t* cache);
// Caller frees with rabbet_free.
RABBET_API rabbet_status_t rabbet_timing_cache_serialize(
    rabbet_timing_cache_t* cache, rabbet_allocator_t allocator, void** out_data,
    size_t* out_size);
// Entries of `other` that are not there yet.
RABBET_API rabbet_status_t rabbet_timing_cache_combine(
    rabbet_timing_cache_t* cache, rabbet_timing_cache_t* other);
// From a file (an empty one gives an empty cache), and to one. Entries that
// others have added to the file meanwhile stay; of entries in both, the cache's
// are kept. Threads and processes that save to one file take turns. A file that
// is not a timing cache is not replaced.
RABBET_API rabbet_status_t
rabbet_timing_cache_load(const char* path, rabbet_allocator_t allocator,
                         rabbet_timing_cache_t** out_cache);
RABBET_API rabbet_status_t
rabbet_timing_cache_save(rabbet_timing_cache_t* cache, const char* path,
                         rabbet_allocator_t allocator);
RABBET_API size_t rabbet_timing_cache_count(rabbet_timing_cache_t* cache);

// An entry: a way to compute a group of layers on a device, as measured. The
// key is a hash of all that the time depends on: device, operators, attributes,
// types, formats, shapes, kernel and tactic.
typedef struct rabbet_timing_key_t {
  uint64_t high, low;
} rabbet_timing_key_t;
typedef struct rabbet_timing_value_t {
  double us;           // of one run; < 0: it cannot be used
  uint64_t workspace;  // bytes
} rabbet_timing_value_t;
// All keys, ascending. Caller frees with rabbet_free.
RABBET_API rabbet_status_t rabbet_timing_cache_keys(
    rabbet_timing_cache_t* cache, rabbet_allocator_t allocator,
    rabbet_timing_key_t** out_keys, size_t* out_count);
// NOT_FOUND names the key.
RABBET_API rabbet_status_t
rabbet_timing_cache_query(rabbet_timing_cache_t* cache, rabbet_timing_key_t key,
                          rabbet_timing_value_t* out_value);
// Sets or replaces. A build that finds the entry believes it: a time made small
// makes it choose that way. INVALID_ARGUMENT for a time that is no number.
RABBET_API rabbet_status_t rabbet_timing_cache_update(
    rabbet_timing_cache_t* cache, rabbet_timing_key_t key,
    rabbet_timing_value_t value);
// Forgets all.
RABBET_API void rabbet_timing_cache_reset(rabbet_timing_cache_t* cache);

// ---- Configuration ---------------------------------------------------------

typedef struct rabbet_builder_config_t rabbet_builder_config_t;  // counted

// Numbers of TensorRT's BuilderFlag; each use is a bit 1 << flag.
typedef enum rabbet_builder_flag_t {
  RABBET_BUILDER_FP16 = 0,
  RABBET_BUILDER_INT8 = 1,
  RABBET_BUILDER_DEBUG = 2,
  RABBET_BUILDER_GPU_FALLBACK = 3,
  RABBET_BUILDER_REFIT = 4,  // weights can be replaced (rabbet/refit.h)
  RABBET_BUILDER_DISABLE_TIMING_CACHE = 5,
  RABBET_BUILDER_TF32 = 6,
  // An algorithm selector must choose something for each group that it is
  // asked about.
  RABBET_BUILDER_REJECT_EMPTY_ALGORITHMS = 12,
  RABBET_BUILDER_BF16 = 17,
  // The plan holds only the weights that no refitter can supply. Alone it makes
  // all others refittable.
  RABBET_BUILDER_STRIP_PLAN = 19,
  // The same as REFIT: constants computed from weights, which new weights would
  // change, are not folded.
  RABBET_BUILDER_REFIT_IDENTICAL = 20,
  RABBET_BUILDER_REFIT_INDIVIDUAL = 23,  // those that the network marked
} rabbet_builder_flag_t;

typedef enum rabbet_profiling_verbosity_t {
  RABBET_PROFILING_LAYER_NAMES_ONLY = 0,
  RABBET_PROFILING_NONE = 1,
  RABBET_PROFILING_DETAILED = 2,
} rabbet_profiling_verbosity_t;

// Reports how far a build is; phases nest. `step` returns false to cancel. So
// does `go_on`, which is called often (between the samples of a measurement)
// and reports nothing. Called on the building thread; each may be NULL.
typedef struct rabbet_progress_t {
  void* user_data;
  void (*phase_start)(void* user_data, const char* phase, const char* parent,
                      int32_t steps);
  bool (*step)(void* user_data, const char* phase, int32_t step);
  void (*phase_end)(void* user_data, const char* phase);
  bool (*go_on)(void* user_data);
} rabbet_progress_t;

RABBET_API rabbet_status_t rabbet_builder_config_create(
    rabbet_allocator_t allocator, rabbet_builder_config_t** out_config);
RABBET_API void rabbet_builder_config_retain(rabbet_builder_config_t* config);
RABBET_API void rabbet_builder_config_release(rabbet_builder_config_t* config);

// Integer settings, by name so that tools can list them.
typedef enum rabbet_builder_option_t {
  RABBET_BUILDER_OPTION_FLAGS = 0,               // bits, default 1 << TF32
  RABBET_BUILDER_OPTION_OPTIMIZATION_LEVEL = 1,  // 0..5, default 3
  RABBET_BUILDER_OPTION_WORKSPACE_LIMIT = 2,     // bytes; default no limit
  RABBET_BUILDER_OPTION_AVG_TIMING = 3,          // samples; default 8
  RABBET_BUILDER_OPTION_MAX_TACTICS = 4,         // -1: no cap
  RABBET_BUILDER_OPTION_PROFILING_VERBOSITY = 5,
  RABBET_BUILDER_OPTION_THREADS = 6,  // 0: the device's default; part of the
                                      // timing key, and the plan's default
  RABBET_BUILDER_OPTION_ERROR_ON_TIMING_CACHE_MISS = 7,
  // 1: the plan carries the source of the network's Python plugins (see
  // rabbet_builder_config_set_source_modules); default 0.
  RABBET_BUILDER_OPTION_KEEP_PLUGIN_SOURCE = 8,
  // Libraries whose kernels may be used where others do the same: bits
  // 1 << rabbet_tactic_source_t; default all.
  RABBET_BUILDER_OPTION_TACTIC_SOURCES = 9,
  // 1: a build runs each plugin of the plan once, also where nothing is timed,
  // and fails with it; default 0.
  RABBET_BUILDER_OPTION_TRY_PLUGINS = 10,
  // Bytes of device memory that measurements may hold at a time, beside a
  // network's weights where the device reads them in place; default no limit.
  // A kernel that needs more is not timed.
  RABBET_BUILDER_OPTION_TACTIC_MEMORY = 11,
  RABBET_BUILDER_OPTION_COUNT,
} rabbet_builder_option_t;
RABBET_API rabbet_status_t
rabbet_builder_config_set(rabbet_builder_config_t* config,
                          rabbet_builder_option_t option, int64_t value);
RABBET_API int64_t rabbet_builder_config_get(
    const rabbet_builder_config_t* config, rabbet_builder_option_t option);
// Name as in rabbet_device_create; NULL: the default device.
RABBET_API rabbet_status_t rabbet_builder_config_set_device(
    rabbet_builder_config_t* config, const char* device);
RABBET_API const char* rabbet_builder_config_device(
    const rabbet_builder_config_t* config);
// Retained. The index of the profile is its position.
RABBET_API rabbet_status_t rabbet_builder_config_add_profile(
    rabbet_builder_config_t* config, rabbet_profile_t* profile);
RABBET_API size_t
rabbet_builder_config_profile_count(const rabbet_builder_config_t* config);
RABBET_API rabbet_profile_t* rabbet_builder_config_profile(
    const rabbet_builder_config_t* config, size_t index);
// Retained; NULL: a cache of the build's own.
RABBET_API void rabbet_builder_config_set_timing_cache(
    rabbet_builder_config_t* config, rabbet_timing_cache_t* cache);
RABBET_API rabbet_timing_cache_t* rabbet_builder_config_timing_cache(
    const rabbet_builder_config_t* config);
// ---- Code that the plan carries (rabbet/carried.h)

// Plugin libraries, by path: their files' bytes as they are when the plan is
// built. Loading the plan runs them only if the caller allows it. A plan is
// then for this kind of machine. Copied; replaces the previous list.
RABBET_API rabbet_status_t rabbet_builder_config_set_plugin_libraries(
    rabbet_builder_config_t* config, const char* const* paths, size_t count);
// NULL out of range; borrowed.
RABBET_API const char* rabbet_builder_config_plugin_library(
    const rabbet_builder_config_t* config, size_t index);
// Modules to be carried besides those that define the network's Python plugins,
// by the names under which they are imported; a package stands for all modules
// in it. Used with RABBET_BUILDER_OPTION_KEEP_PLUGIN_SOURCE. Copied; replaces
// the previous list.
RABBET_API rabbet_status_t rabbet_builder_config_set_source_modules(
    rabbet_builder_config_t* config, const char* const* names, size_t count);
RABBET_API const char* rabbet_builder_config_source_module(
    const rabbet_builder_config_t* config, size_t index);

RABBET_API void rabbet_builder_config_set_progress(
    rabbet_builder_config_t* config, rabbet_progress_t progress);
RABBET_API void rabbet_builder_config_set_logger(
    rabbet_builder_config_t* config, rabbet_logger_t logger);

// ---- Choosing among candidates ---------------------------------------------

// How a tensor lies that a candidate reads or writes.
typedef struct rabbet_algorithm_tensor_t {
  rabbet_dtype_t dtype;
  rabbet_format_t format;
  rabbet_dims_t strides;   // at the usual shape; of vectors where channels lie
                           // together, else of elements
  int32_t vectorized_dim;  // the axis of which some lie together, or -1
  int32_t components;      // how many; 1
  uint64_t reserved[2];    // 0
} rabbet_algorithm_tensor_t;
// A way to compute a layer, or several that are one step.
typedef struct rabbet_algorithm_t {
  const char* kernel;       // "dnnl.convolution"; "view": nothing runs
  const char* tactic_name;  // "jit:avx512_core"
  int64_t implementation;   // stands for the kernel's name, in all builds
  int64_t tactic;
  double us;           // of one run; 0: nothing runs; < 0: nothing was timed
  uint64_t workspace;  // bytes
  const rabbet_algorithm_tensor_t* tensors;  // inputs, then outputs
  uint64_t reserved[2];                      // 0
} rabbet_algorithm_t;
// The computation that an algorithm is for. Constant inputs are not counted.
typedef struct rabbet_algorithm_context_t {
  const char* name;  // of the layers: "conv + relu"
  size_t input_count, output_count;
  const rabbet_dims_t (*shapes)[3];  // min, usual, max of inputs, then outputs
  uint64_t reserved[2];              // 0
} rabbet_algorithm_context_t;

// Chooses the candidates that a build may use, and gets its choice. Called on
// the building thread; each may be NULL. Arguments live during the call.
typedef struct rabbet_algorithm_selector_t {
  void* user_data;
  // Called once for each group of layers that may become a step, with one
  // candidate or more. Writes the indices of those that may be used, at most
  // `count`; none: the group is not used as a step, which fails the build if
  // there is no other way, and at once under
  // RABBET_BUILDER_REJECT_EMPTY_ALGORITHMS.
  rabbet_status_t (*select)(void* user_data,
                            const rabbet_algorithm_context_t* context,
                            const rabbet_algorithm_t* algorithms, size_t count,
                            size_t* indices, size_t* out_count);
  // Called at the end of a build: algorithms[i] computes contexts[i].
  // Conversions between types and formats are not in it.
  rabbet_status_t (*report)(void* user_data,
                            const rabbet_algorithm_context_t* contexts,
                            const rabbet_algorithm_t* algorithms, size_t count);
} rabbet_algorithm_selector_t;
RABBET_API void rabbet_builder_config_set_selector(
    rabbet_builder_config_t* config, rabbet_algorithm_selector_t selector);

// ---- Building --------------------------------------------------------------

// The candidates and the choices of a build, for people: a line per layer with
// types, formats, tactic, time, alternatives.
typedef struct rabbet_build_report_t rabbet_build_report_t;
RABBET_API void rabbet_build_report_destroy(rabbet_build_report_t* report);
// As text (a table) or JSON; borrowed.
RABBET_API const char* rabbet_build_report_text(rabbet_build_report_t* report);
RABBET_API const char* rabbet_build_report_json(rabbet_build_report_t* report);

// Makes a plan; the network is not changed and can be built again. Caller frees
// *out_plan with rabbet_free_aligned(allocator, plan, 64). `out_report` may be
// NULL.
RABBET_API rabbet_status_t
rabbet_build_plan(rabbet_network_t* network, rabbet_builder_config_t* config,
                  rabbet_allocator_t allocator, void** out_plan,
                  size_t* out_size, rabbet_build_report_t** out_report);

// The same, and the plan is written to a file, piece by piece: it is never
// whole in memory. An existing file is replaced once the new one is complete.
RABBET_API rabbet_status_t rabbet_build_plan_file(
    rabbet_network_t* network, rabbet_builder_config_t* config,
    const char* path, rabbet_allocator_t allocator, uint64_t* out_size,
    rabbet_build_report_t** out_report);

// Takes the bytes of a plan in order, on the building thread. Its error fails
// the build.
typedef struct rabbet_plan_writer_t {
  void* user_data;
  rabbet_status_t (*write)(void* user_data, const void* data, size_t size);
} rabbet_plan_writer_t;
RABBET_API rabbet_status_t
rabbet_build_plan_to(rabbet_network_t* network, rabbet_builder_config_t* config,
                     rabbet_plan_writer_t writer, rabbet_allocator_t allocator,
                     rabbet_build_report_t** out_report);

RABBET_EXTERN_C_END
#endif  // RABBET_BUILDER_H_
