// For bindings: engines of plans that are mapped already, and interrupts.
#ifndef RABBET_SRC_RUNTIME_SHARE_H_
#define RABBET_SRC_RUNTIME_SHARE_H_

#include "base/file.h"
#include "rabbet/engine.h"

// As rabbet_engine_deserialize, but the bytes, aligned to 64, are not copied:
// the engine retains the map.
RABBET_PRIVATE_API rabbet_status_t rabbet_engine_share(
    rabbet_file_map_t* plan, const rabbet_engine_options_t* options,
    rabbet_allocator_t allocator, rabbet_engine_t** out_engine);

// The file map that an engine keeps its plan in; borrowed. NULL: a copy.
RABBET_PRIVATE_API rabbet_file_map_t* rabbet_engine_map(
    const rabbet_engine_t* engine);

// Asked before each iteration of a loop; its error ends the run.
typedef struct rabbet_interrupt_t {
  void* user_data;
  rabbet_status_t (*check)(void* user_data);
} rabbet_interrupt_t;
// {0} removes it.
RABBET_PRIVATE_API void rabbet_context_set_interrupt(
    rabbet_context_t* context, rabbet_interrupt_t interrupt);

#endif  // RABBET_SRC_RUNTIME_SHARE_H_
