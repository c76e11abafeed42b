// A folder that keeps what compilers made, for later builds and for other
// processes. What it loses is made again.
#ifndef RABBET_SRC_BASE_STORE_H_
#define RABBET_SRC_BASE_STORE_H_

#include "base/file.h"
#include "base/hash.h"
#include "rabbet/logger.h"

typedef struct rabbet_store_t rabbet_store_t;

// RABBET_PROGRAM_CACHE names the folder; "none": nothing is kept. Without the
// variable, rabbet/programs in $XDG_CACHE_HOME, else in ~/.cache. It is made
// when it is first needed. Nothing is kept, with a message, where that fails or
// where others could write to it, who must not choose the code that runs here.
RABBET_PRIVATE_API rabbet_status_t
rabbet_store_create(rabbet_allocator_t allocator, rabbet_logger_t logger,
                    rabbet_store_t** out_store);
// Removes what was not used for the longest time if there is more than
// RABBET_PROGRAM_CACHE_MIB (1024).
RABBET_PRIVATE_API void rabbet_store_destroy(rabbet_store_t* store);

// The next two take NULL for a store that keeps nothing. Thread-safe.
//
// The bytes of that key, freed with rabbet_free(allocator, data); data NULL: it
// has none. A damaged file is removed, with a warning.
RABBET_PRIVATE_API rabbet_status_t rabbet_store_find(
    rabbet_store_t* store, rabbet_hash_t key, rabbet_allocator_t allocator,
    void** out_data, size_t* out_size);
// Keeps the parts, one behind another. What fails is not kept, with a message.
RABBET_PRIVATE_API void rabbet_store_put(rabbet_store_t* store,
                                         rabbet_hash_t key,
                                         const rabbet_span_t* parts,
                                         size_t part_count);

#endif  // RABBET_SRC_BASE_STORE_H_
