// Declarations that the tuner's files share.
#ifndef RABBET_SRC_BUILDER_CHOOSE_TUNER_H_
#define RABBET_SRC_BUILDER_CHOOSE_TUNER_H_

#include "base/map.h"
#include "builder/choose/fuse.h"
#include "builder/choose/tune.h"

// A pair of type and format as a small number, so that sets are bit masks.
typedef uint8_t rabbet_tune_state_t;
#define RABBET_TUNE_MAX_STATES 64
#define RABBET_TUNE_NO_STATE 0xff

// A way to compute a cluster. Of all ways with the same states at the cluster's
// inputs and outputs only the cheapest is kept.
typedef struct rabbet_alternative_t {
  double us;
  int32_t cover;
  int32_t* choices;     // of each unit of the cover
  uint64_t* in_states;  // bit mask for each of the cluster's inputs
  rabbet_tune_state_t* out_states;
} rabbet_alternative_t;

// Units that together compute a cluster, in order of execution.
typedef struct rabbet_cover_t {
  rabbet_unit_t** units;
  size_t unit_count;
} rabbet_cover_t;

typedef enum rabbet_cluster_kind_t {
  RABBET_CLUSTER_NODES = 0,
  RABBET_CLUSTER_INPUT = 1,   // a network input: alternatives are its formats
  RABBET_CLUSTER_OUTPUT = 2,  // a network output
} rabbet_cluster_kind_t;

// A cluster of nodes, or a network input or output: a variable of the
// whole-graph choice.
typedef struct rabbet_cluster_t {
  rabbet_cluster_kind_t kind;
  int32_t number;  // of the network input or output
  rabbet_ir_node_t** nodes;
  size_t node_count;
  rabbet_cover_t* covers;
  size_t cover_count;
  int32_t* inputs;  // IR values of other clusters; no constants
  size_t input_count;
  int32_t* outputs;  // IR values that others read
  size_t output_count;
  rabbet_alternative_t* alternatives;
  size_t alternative_count;
} rabbet_cluster_t;

struct rabbet_tuner_t {
  rabbet_allocator_t allocator;
  rabbet_type_format_t states[RABBET_TUNE_MAX_STATES];
  size_t state_count;
  RABBET_VEC(rabbet_cluster_t*) clusters;
  int32_t* makers;         // cluster that makes each IR value, or -1
  int32_t* output_places;  // of each IR value among its outputs, or -1
  // For one cluster at a time: the place in it of each IR node, and the slot of
  // each IR value in alternatives.c; -1 everywhere between clusters.
  int32_t *locals, *slots;
  rabbet_map_t units;        // by the nodes' addresses
  rabbet_map_t conversions;  // by value, from, to
  rabbet_map_t compiled;     // choices whose programs were compiled ahead
};

RABBET_PRIVATE_API rabbet_status_t
rabbet_tune_state(rabbet_tuner_t* tuner, rabbet_type_format_t type,
                  rabbet_tune_state_t* out_state);
// Microseconds of a conversion; INFINITY if it is impossible.
RABBET_PRIVATE_API rabbet_status_t rabbet_tune_conversion_cost(
    rabbet_build_t* build, const rabbet_ir_value_t* value,
    rabbet_tune_state_t from, rabbet_tune_state_t to, double* out_us);

// Whether the choice has a time, or the timing cache has one.
RABBET_PRIVATE_API bool rabbet_tune_knows(const rabbet_build_t* build,
                                          const rabbet_choice_t* choice);
// The unit that converts the value, for its programs; NULL if it was asked for
// before, or if there is none.
RABBET_PRIVATE_API rabbet_status_t rabbet_tune_conversion_ahead(
    rabbet_build_t* build, const rabbet_ir_value_t* value,
    rabbet_type_format_t from, rabbet_type_format_t to,
    rabbet_unit_t** out_unit);
// Compiles what will be timed, in threads (compile_units.c).
RABBET_PRIVATE_API rabbet_status_t
rabbet_tune_compile_ahead(rabbet_build_t* build);

// Divides the nodes into clusters (cluster.c).
RABBET_PRIVATE_API rabbet_status_t rabbet_tune_cluster(rabbet_build_t* build);
// Fills a cluster's covers (cover.c); again, where units were guesses.
RABBET_PRIVATE_API rabbet_status_t rabbet_tune_cover(rabbet_build_t* build,
                                                     rabbet_cluster_t* cluster);
// Fills a cluster's alternatives from its covers (alternatives.c).
RABBET_PRIVATE_API rabbet_status_t
rabbet_tune_alternatives(rabbet_build_t* build, rabbet_cluster_t* cluster);
// The same without kernels whose library takes long to start; there may be none
// then.
RABBET_PRIVATE_API rabbet_status_t rabbet_tune_alternatives_at_once(
    rabbet_build_t* build, rabbet_cluster_t* cluster);
// How long the choice's library takes to start (kernel.h, start_us).
RABBET_PRIVATE_API double rabbet_choice_start_us(const rabbet_choice_t* choice);

// Removes choices that the user's selector rejects (select.c).
RABBET_PRIVATE_API rabbet_status_t rabbet_tune_select(rabbet_build_t* build,
                                                      rabbet_unit_t* unit);

#endif  // RABBET_SRC_BUILDER_CHOOSE_TUNER_H_
