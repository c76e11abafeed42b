// Hash table from strings to pointers; iterates in order of insertion.
#ifndef RABBET_SRC_BASE_MAP_H_
#define RABBET_SRC_BASE_MAP_H_

#include "rabbet/allocator.h"

typedef struct rabbet_map_entry_t {
  const char* key;  // borrowed: must outlive the entry
  size_t key_size;
  void* value;  // NULL: removed
} rabbet_map_entry_t;

typedef struct rabbet_map_t {
  rabbet_allocator_t allocator;
  rabbet_map_entry_t* entries;  // count of them, removed ones included
  size_t count, capacity, live;
  uint32_t* slots;
  size_t slot_count;
} rabbet_map_t;

RABBET_PRIVATE_API void rabbet_map_initialize(rabbet_allocator_t allocator,
                                              rabbet_map_t* out_map);
RABBET_PRIVATE_API void rabbet_map_deinitialize(rabbet_map_t* map);
// Sets or replaces. `value` must not be NULL. Keys may hold any bytes.
RABBET_PRIVATE_API rabbet_status_t rabbet_map_set(rabbet_map_t* map,
                                                  const char* key,
                                                  size_t key_size, void* value);
// NULL when absent.
RABBET_PRIVATE_API void* rabbet_map_get(const rabbet_map_t* map,
                                        const char* key, size_t key_size);
RABBET_PRIVATE_API void* rabbet_map_get_string(const rabbet_map_t* map,
                                               const char* key);
RABBET_PRIVATE_API void rabbet_map_remove(rabbet_map_t* map, const char* key,
                                          size_t key_size);

#endif  // RABBET_SRC_BASE_MAP_H_
