// Choosing groups of nodes, a kernel for each group, and types and formats of
// the tensors between them, so that the sum of times is least.
#ifndef RABBET_SRC_BUILDER_CHOOSE_TUNE_H_
#define RABBET_SRC_BUILDER_CHOOSE_TUNE_H_

#include "builder/choose/unit.h"

typedef struct rabbet_tuner_t rabbet_tuner_t;

// A unit with the choice made for it.
typedef struct rabbet_pick_t {
  rabbet_unit_t* unit;
  const rabbet_choice_t* choice;
} rabbet_pick_t;

// Choices for the whole network, in the build's arena.
typedef struct rabbet_solution_t {
  rabbet_pick_t* picks;  // in order of execution, without conversions
  size_t pick_count;
  rabbet_type_format_t* inputs;   // of network inputs
  rabbet_type_format_t* outputs;  // of network outputs
  double us;                      // the sum, conversions included
  bool exact;                     // no solution is cheaper
} rabbet_solution_t;

RABBET_PRIVATE_API rabbet_status_t rabbet_tuner_create(rabbet_build_t* build);
RABBET_PRIVATE_API void rabbet_tuner_destroy(rabbet_tuner_t* tuner);

// Forms clusters, asks for candidates and times them.
RABBET_PRIVATE_API rabbet_status_t rabbet_tuner_explore(rabbet_build_t* build);
// Costs that the sum of measured times lacks. Different weights give different
// solutions, which are then timed as a whole: in a real run fewer tensors are
// in the caches, and measurements are noisy.
typedef struct rabbet_weights_of_costs_t {
  double conversion;  // factor on the time of conversions; 1
  double step_us;     // added for each step; 0
} rabbet_weights_of_costs_t;
// The cheapest solution under these weights; solution->us includes them.
RABBET_PRIVATE_API rabbet_status_t
rabbet_tuner_solve(rabbet_build_t* build, rabbet_weights_of_costs_t weights,
                   rabbet_solution_t* out_solution);
// Replaces the solution by one whose libraries are quick to start, if little is
// lost; later solutions then do without the others, too (start_costs.c).
RABBET_PRIVATE_API rabbet_status_t rabbet_tuner_avoid_starts(
    rabbet_build_t* build, rabbet_weights_of_costs_t weights,
    rabbet_solution_t* solution);
// Reports the choices of all sequences to the user's selector (select.c).
RABBET_PRIVATE_API rabbet_status_t rabbet_tuner_report_selection(
    rabbet_build_t* build, const rabbet_solution_t* const* solutions,
    size_t count);
// The unit and choice that convert a value, remembered; NOT_FOUND if the device
// has none.
RABBET_PRIVATE_API rabbet_status_t
rabbet_tuner_conversion(rabbet_build_t* build, const rabbet_ir_value_t* value,
                        rabbet_type_format_t from, rabbet_type_format_t to,
                        rabbet_pick_t* out_pick);
// The unit with these nodes, which is created once.
RABBET_PRIVATE_API rabbet_status_t
rabbet_tuner_unit(rabbet_build_t* build, rabbet_ir_node_t* const* nodes,
                  size_t node_count, rabbet_unit_t** out_unit);
// Fills choice->us from the cache or by measuring; removes unusable choices.
RABBET_PRIVATE_API rabbet_status_t rabbet_tuner_time(rabbet_build_t* build,
                                                     rabbet_unit_t* unit);

// Whether a kernel may have refused only because estimates of data-dependent
// sizes contradict each other. A plugin's code may check anything.
RABBET_PRIVATE_API bool rabbet_tuner_refuses_estimates(
    const rabbet_unit_t* unit, rabbet_status_t status);

#endif  // RABBET_SRC_BUILDER_CHOOSE_TUNE_H_
