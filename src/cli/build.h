// Building, for `rabbet build` and for commands that are given a model.
#ifndef RABBET_SRC_CLI_BUILD_H_
#define RABBET_SRC_CLI_BUILD_H_

#include "base/file.h"
#include "cli/cli.h"

// Options of a build; spliced into the tables of several commands.
#define RABBET_BUILD_OPTIONS                                           \
  {"--shapes", RABBET_OPTION_VALUE, "NAME:1x3x8x8,..",                 \
   "sizes of dynamic inputs, and values of shape inputs: of the "      \
   "profile, and of the run"},                                         \
      {"--min-shapes", RABBET_OPTION_VALUE, "NAME:..",                 \
       "smallest sizes of the profile (default: --shapes)"},           \
      {"--opt-shapes", RABBET_OPTION_VALUE, "NAME:..",                 \
       "sizes to tune for (default: --shapes)"},                       \
      {"--max-shapes", RABBET_OPTION_VALUE, "NAME:..",                 \
       "largest sizes of the profile (default: --shapes)"},            \
      {"--plugins", RABBET_OPTION_LIST, "FILE",                        \
       "operators: a Python file or a shared library"},                \
      {"--keep-plugins", RABBET_OPTION_FLAG, NULL,                     \
       "the plan carries them: libraries, and the source of modules"}, \
      {"--no-plugin-trial", RABBET_OPTION_FLAG, NULL,                  \
       "do not run each operator once to see whether it works"},       \
      {"--device", RABBET_OPTION_VALUE, "cpu|cuda",                    \
       "or cuda:1, ... (default: a GPU if there is one)"},             \
      {"--threads", RABBET_OPTION_VALUE, "N", "CPU threads"},          \
      {"--fp16", RABBET_OPTION_FLAG, NULL, "allow computing in FP16"}, \
      {"--bf16", RABBET_OPTION_FLAG, NULL, "allow computing in BF16"}, \
      {"--strongly-typed", RABBET_OPTION_FLAG, NULL,                   \
       "the model's types, unchanged"},                                \
      {"--double", RABBET_OPTION_FLAG, NULL,                           \
       "compute DOUBLE as such, on the CPU (default: as FLOAT)"},      \
      {"--optimization-level", RABBET_OPTION_VALUE, "0..5",            \
       "effort of tuning (default 3; 0: none)"},                       \
      {"--tactic-memory", RABBET_OPTION_VALUE, "MIB",                  \
       "of the device's memory that timings may hold (default: all)"}, \
      {"--timing-cache", RABBET_OPTION_VALUE, "FILE",                  \
       "measured times, read and written"},                            \
      {"--retime", RABBET_OPTION_FLAG, NULL,                           \
       "measure anew what the timing cache holds"},                    \
  {                                                                    \
    "--verbose", RABBET_OPTION_FLAG, NULL, "print each step"           \
  }

// Options of commands that load plans.
#define RABBET_LOAD_OPTIONS                                        \
  {"--allow-host-code", RABBET_OPTION_FLAG, NULL,                  \
   "run code of plugins that the plan carries"},                   \
  {                                                                \
    "--untrusted", RABBET_OPTION_FLAG, NULL,                       \
        "use no native code of the plan: compile its kernels anew" \
  }

// A caller's changes to the build of a model; NULL: none.
typedef struct rabbet_build_wishes_t {
  void* self;
  rabbet_status_t (*adjust)(void* self, rabbet_network_t* network,
                            rabbet_builder_config_t* config);
  bool plugin_override;  // as in rabbet_onnx_options_t
} rabbet_build_wishes_t;

// Where the plan of a build goes.
typedef struct rabbet_cli_plan_t {
  const char* path;        // a file to write; NULL: it is mapped
  rabbet_file_map_t* map;  // out: released by the caller
  uint64_t size;           // out
} rabbet_cli_plan_t;

// Imports, tunes and makes a plan. `wishes` and `out_report` may be NULL.
rabbet_status_t rabbet_cli_build(const rabbet_arguments_t* arguments,
                                 const rabbet_build_wishes_t* wishes,
                                 const char* model_path,
                                 rabbet_cli_plan_t* plan,
                                 rabbet_build_report_t** out_report);
// Adds a profile. The texts have the form of --min-shapes, --opt-shapes and
// --max-shapes; for one that is NULL the second stands in, or the third if that
// is NULL, too.
rabbet_status_t rabbet_cli_add_profile(const char* const texts[3],
                                       rabbet_network_t* network,
                                       rabbet_builder_config_t* config);

#endif  // RABBET_SRC_CLI_BUILD_H_
