// Concatenations whose parts are written into the result.
#ifndef RABBET_SRC_BUILDER_EMIT_CONCATENATIONS_H_
#define RABBET_SRC_BUILDER_EMIT_CONCATENATIONS_H_

#include "builder/emit/layout.h"

// Whether the unit is a concatenation whose parts, all of this type, can be
// made in the result's memory.
RABBET_PRIVATE_API bool rabbet_concatenation_can_be_view(
    const rabbet_build_t* build, const rabbet_unit_t* unit,
    rabbet_type_format_t type);
// Whether the step is one that was chosen to be no kernel.
RABBET_PRIVATE_API bool rabbet_concatenation_is_view(
    const rabbet_layout_step_t* step);
// Moves the parts into the result. One that must stay where it is, is copied
// first; *step moves on when a copy is put before it.
RABBET_PRIVATE_API rabbet_status_t rabbet_layout_alias_parts(
    rabbet_build_t* build, rabbet_layout_t* layout, size_t* step);

#endif  // RABBET_SRC_BUILDER_EMIT_CONCATENATIONS_H_
