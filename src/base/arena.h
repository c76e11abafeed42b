// Memory that is given back all at once.
#ifndef RABBET_SRC_BASE_ARENA_H_
#define RABBET_SRC_BASE_ARENA_H_

#include "rabbet/allocator.h"

// Blocks grow as needed and never move. Not thread-safe. The storage is the
// owner's; zero bytes are a valid empty arena without allocator.
typedef struct rabbet_arena_t {
  rabbet_allocator_t allocator;
  struct rabbet_arena_block_t* blocks;
  size_t used_bytes;
} rabbet_arena_t;

RABBET_PRIVATE_API void rabbet_arena_initialize(rabbet_allocator_t allocator,
                                                rabbet_arena_t* out_arena);
RABBET_PRIVATE_API void rabbet_arena_deinitialize(rabbet_arena_t* arena);
// Frees all allocations, but keeps one block for the next ones.
RABBET_PRIVATE_API void rabbet_arena_reset(rabbet_arena_t* arena);

// Zero-filled, aligned to 16; size 0 gives a valid, distinct pointer.
RABBET_PRIVATE_API rabbet_status_t rabbet_arena_allocate(rabbet_arena_t* arena,
                                                         size_t size,
                                                         void** out_block);
// count * size, checked for overflow.
RABBET_PRIVATE_API rabbet_status_t rabbet_arena_allocate_array(
    rabbet_arena_t* arena, size_t count, size_t size, void** out_block);
RABBET_PRIVATE_API rabbet_status_t rabbet_arena_copy(rabbet_arena_t* arena,
                                                     const void* data,
                                                     size_t size,
                                                     void** out_copy);
RABBET_PRIVATE_API rabbet_status_t rabbet_arena_strdup(rabbet_arena_t* arena,
                                                       const char* text,
                                                       const char** out_copy);
RABBET_PRIVATE_API rabbet_status_t rabbet_arena_printf(rabbet_arena_t* arena,
                                                       const char** out_text,
                                                       const char* format, ...)
    RABBET_PRINTF(3, 4);

#endif  // RABBET_SRC_BASE_ARENA_H_
