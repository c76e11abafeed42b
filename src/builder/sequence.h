// The sequences of a plan while it is built.
#ifndef RABBET_SRC_BUILDER_SEQUENCE_H_
#define RABBET_SRC_BUILDER_SEQUENCE_H_

#include "builder/choose/tune.h"
#include "builder/emit/layout.h"
#include "builder/report.h"

typedef struct rabbet_built_result_t {
  rabbet_solution_t solution;
  rabbet_layout_t layout;
  rabbet_report_totals_t totals;
} rabbet_built_result_t;

// A sequence of the plan. An entry is the network's, tuned for some of the
// profiles; those behind the first share its IR and constants. A layer's body
// is a build of its own.
typedef struct rabbet_built_t {
  const char* name;
  rabbet_build_t* build;
  rabbet_build_t own;
  rabbet_builder_config_t config;  // of a body, and of one of several entries
  const int32_t* profiles;         // of an entry: their numbers; else NULL
  rabbet_network_t* network;
  rabbet_built_result_t* result;
  int depth;  // of calls; an entry's is 0
} rabbet_built_t;

typedef RABBET_VEC(rabbet_built_t*) rabbet_built_list_t;

uint32_t rabbet_build_refit_flags(const rabbet_build_t* build);
rabbet_status_t rabbet_build_open(rabbet_build_t* build);
void rabbet_build_close_tuning(rabbet_build_t* build);
void rabbet_build_close(rabbet_build_t* build);
// Adds a sequence with a build of its own for the outer one's device.
rabbet_status_t rabbet_built_add(rabbet_build_t* outer, const char* name,
                                 rabbet_built_list_t* sequences,
                                 rabbet_built_t** out_built);
// The network as simple as it gets; the IR does not change any more.
rabbet_status_t rabbet_built_prepare(const rabbet_built_t* built);
// Chooses kernels for the sequence and those of the bodies that it calls, which
// are added.
rabbet_status_t rabbet_built_tune(const rabbet_built_t* built,
                                  rabbet_built_list_t* sequences);

// Kernels, and the order of steps (choose/variants.c).
rabbet_status_t rabbet_build_choose(rabbet_build_t* build,
                                    rabbet_built_result_t* result);

// The bodies of the caller's layers (bodies.c).
rabbet_status_t rabbet_built_bodies(const rabbet_built_t* caller,
                                    rabbet_built_list_t* sequences);
void rabbet_built_close_body(rabbet_built_t* built);

// All entries, with their bodies; the list has the first (entries.c).
rabbet_status_t rabbet_built_entries(rabbet_built_t* first,
                                     rabbet_built_list_t* sequences);
void rabbet_built_close_entry(rabbet_built_t* built);

#endif  // RABBET_SRC_BUILDER_SEQUENCE_H_
