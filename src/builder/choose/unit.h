// Units: nodes that one kernel computes, with its candidates.
#ifndef RABBET_SRC_BUILDER_CHOOSE_UNIT_H_
#define RABBET_SRC_BUILDER_CHOOSE_UNIT_H_

#include "base/hash.h"
#include "builder/build.h"

// One way to compute a unit.
typedef struct rabbet_choice_t {
  rabbet_candidate_t candidate;  // kernel NULL: a view, no kernel
  double us;                     // < 0: not timed
  bool is_unsure;                // timed while the machine was busy
  size_t workspace;              // bytes, known once timed
  rabbet_hash_t key;             // of types, formats and tactic
  bool cacheable;                // the key may be used in the timing cache
} rabbet_choice_t;

// Lies in the arena of the build. Group value i is IR value values[i].
typedef struct rabbet_unit_t {
  const char* name;  // "a + b"
  rabbet_ir_node_t** nodes;
  size_t node_count;
  rabbet_group_t group;  // types of the network, LINEAR
  int32_t* values;
  const int64_t** host_values;  // of each group value at opt, or NULL
  // Dims of each group value at opt; -1: a size output of the unit determines
  // the extent. Memory must then suffice for `room`, the bound of these sizes
  // at opt.
  rabbet_dims_t* dims;
  rabbet_dims_t* room;
  rabbet_choice_t* choices;
  size_t choice_count;
  bool data_dependent;  // some sizes are data-dependent: dims are estimates
  bool fits;            // dims and host_values satisfy its shape rules
  bool proposed;        // choices are known
  bool is_guess;        // some choices are guesses (rabbet_trials_collect)
  bool selected;        // the user's selector was asked
  size_t refused;       // number of choices when the selector took none
} rabbet_unit_t;

// Nodes are in order of execution. Outputs of the group are values that are
// needed outside; for a single node all its outputs.
RABBET_PRIVATE_API rabbet_status_t
rabbet_unit_create(rabbet_build_t* build, rabbet_ir_node_t* const* nodes,
                   size_t node_count, rabbet_unit_t** out_unit);
// Converts a value from one type and format to another.
RABBET_PRIVATE_API rabbet_status_t rabbet_unit_create_conversion(
    rabbet_build_t* build, const rabbet_ir_value_t* value,
    const rabbet_type_format_t types[2], rabbet_unit_t** out_unit);
// The group with the choice's types and formats at its boundary. In the arena.
// LINEAR constants are as in the network: their bytes may have another type
// than the group says.
RABBET_PRIVATE_API rabbet_status_t
rabbet_unit_set_types(rabbet_build_t* build, const rabbet_unit_t* unit,
                      const rabbet_choice_t* choice, rabbet_group_t* out_group);
// The same with LINEAR constants converted, which live until
// rabbet_constant_trim.
RABBET_PRIVATE_API rabbet_status_t rabbet_unit_instantiate(
    rabbet_build_t* build, const rabbet_unit_t* unit,
    const rabbet_choice_t* choice, rabbet_group_t* out_group);

// A constant's elements in another type and format, padding 0. Copies are
// remembered until rabbet_constant_trim.
RABBET_PRIVATE_API rabbet_status_t rabbet_constant_convert(
    rabbet_build_t* build, rabbet_ir_value_t* value, rabbet_type_format_t type,
    const void** out_data, size_t* out_bytes);
// Frees the copies of constants if they are large together: most are made for
// one layer alone. Nothing may point to one.
RABBET_PRIVATE_API void rabbet_constant_trim(rabbet_build_t* build);
// Bytes of copies that it may free.
RABBET_PRIVATE_API size_t rabbet_constant_bytes(const rabbet_build_t* build);
// Copies of constants among `count` IR values; builds may share them.
RABBET_PRIVATE_API rabbet_status_t
rabbet_constants_create(rabbet_build_t* build, size_t count);
RABBET_PRIVATE_API void rabbet_constants_deinitialize(rabbet_build_t* build);

// Whether it has a layer that exchanges data with other ranks: kernels of it
// cannot be run by a build.
bool rabbet_unit_exchanges(const rabbet_unit_t* unit);

#endif  // RABBET_SRC_BUILDER_CHOOSE_UNIT_H_
