// Where a build's plan goes.
#ifndef RABBET_SRC_BUILDER_OUTPUT_H_
#define RABBET_SRC_BUILDER_OUTPUT_H_

#include "base/file.h"
#include "plan/plan.h"
#include "rabbet/builder.h"

typedef struct rabbet_build_output_t {
  rabbet_allocator_t allocator;    // of the build and the report
  rabbet_build_report_t** report;  // or NULL
  void* context;
  // Called once, with the plan; its weights are still the network's.
  rabbet_status_t (*deliver)(void* context,
                             const rabbet_plan_contents_t* contents,
                             rabbet_allocator_t allocator, uint64_t* out_size);
} rabbet_build_output_t;

// The build itself (build.c). It may fail after the plan was delivered.
rabbet_status_t rabbet_build_deliver(rabbet_network_t* network,
                                     rabbet_builder_config_t* config,
                                     const rabbet_build_output_t* output);

// As rabbet_build_plan; the plan's bytes are in memory, or, from
// RABBET_BUILD_MAPPED on, in a file without a name, if there is room for it:
// then the system can write them to the disk where memory is short.
#define RABBET_BUILD_MAPPED ((uint64_t)16 << 20)
RABBET_PRIVATE_API rabbet_status_t rabbet_build_plan_mapped(
    rabbet_network_t* network, rabbet_builder_config_t* config,
    rabbet_allocator_t allocator, rabbet_file_map_t** out_plan,
    rabbet_build_report_t** out_report);

#endif  // RABBET_SRC_BUILDER_OUTPUT_H_
