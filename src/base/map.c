#include "base/map.h"

#include <assert.h>
#include <string.h>

#include "base/hash.h"
#include "base/vec.h"

#define RABBET_MAP_FIRST_SLOTS ((size_t)16)

// A slot is 0 (empty) or 1 + the number of an entry. A removed entry keeps its
// slot, so that searches go on past it, until the table is built anew. At most
// half of the slots are taken.

void rabbet_map_initialize(rabbet_allocator_t allocator,
                           rabbet_map_t* out_map) {
  *out_map = (rabbet_map_t){.allocator = allocator};
}

void rabbet_map_deinitialize(rabbet_map_t* map) {
  rabbet_free(map->allocator, map->entries);
  rabbet_free(map->allocator, map->slots);
  rabbet_map_initialize(map->allocator, map);
}

// The slot that holds the key, or the empty one where it belongs.
static size_t map_slot(const rabbet_map_t* map, const char* key,
                       size_t key_size) {
  size_t mask = map->slot_count - 1;
  size_t slot = (size_t)rabbet_hash64(key, key_size) & mask;
  assert(map->slot_count > 0 && (map->slot_count & mask) == 0);
  assert(map->count * 2 <= map->slot_count);
  for (; map->slots[slot]; slot = (slot + 1) & mask) {
    const rabbet_map_entry_t* entry = &map->entries[map->slots[slot] - 1];
    if (entry->value && entry->key_size == key_size &&
        (key_size == 0 || memcmp(entry->key, key, key_size) == 0))
      break;
  }
  return slot;
}

static rabbet_map_entry_t* map_find(const rabbet_map_t* map, const char* key,
                                    size_t key_size) {
  if (map->slot_count == 0) return NULL;
  uint32_t number = map->slots[map_slot(map, key, key_size)];
  return number ? &map->entries[number - 1] : NULL;
}

static void map_drop_removed(rabbet_map_t* map) {
  size_t kept = 0;
  for (size_t i = 0; i < map->count; ++i) {
    if (map->entries[i].value) map->entries[kept++] = map->entries[i];
  }
  assert(kept == map->live);
  map->count = kept;
}

// New slots, and no removed entries any more.
static rabbet_status_t map_rebuild(rabbet_map_t* map) {
  size_t slot_count = RABBET_MAP_FIRST_SLOTS;
  while (slot_count < (map->live + 1) * 4)
    slot_count *= 2;
  if (slot_count > UINT32_MAX)
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_MEMORY,
                         "a table cannot hold more than %zu names", map->live);
  uint32_t* slots = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      map->allocator, slot_count * sizeof(*slots), (void**)&slots));
  rabbet_free(map->allocator, map->slots);
  map->slots = slots;
  map->slot_count = slot_count;
  map_drop_removed(map);
  for (size_t i = 0; i < map->count; ++i) {
    const rabbet_map_entry_t* entry = &map->entries[i];
    size_t mask = slot_count - 1;
    size_t slot = (size_t)rabbet_hash64(entry->key, entry->key_size) & mask;
    while (slots[slot])
      slot = (slot + 1) & mask;
    slots[slot] = (uint32_t)(i + 1);
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_map_set(rabbet_map_t* map, const char* key,
                               size_t key_size, void* value) {
  assert(value);
  rabbet_map_entry_t* entry = map_find(map, key, key_size);
  if (entry) {
    entry->key = key;
    entry->value = value;
    return rabbet_ok();
  }
  if ((map->count + 1) * 2 > map->slot_count)
    RABBET_RETURN_IF_ERROR(map_rebuild(map));
  RABBET_RETURN_IF_ERROR(
      rabbet_vec_reserve(map->allocator, (void**)&map->entries, &map->capacity,
                         map->count, 1, sizeof(*map->entries)));
  map->entries[map->count++] =
      (rabbet_map_entry_t){.key = key, .key_size = key_size, .value = value};
  map->slots[map_slot(map, key, key_size)] = (uint32_t)map->count;
  ++map->live;
  return rabbet_ok();
}

void* rabbet_map_get(const rabbet_map_t* map, const char* key,
                     size_t key_size) {
  const rabbet_map_entry_t* entry = map_find(map, key, key_size);
  return entry ? entry->value : NULL;
}

void* rabbet_map_get_string(const rabbet_map_t* map, const char* key) {
  return rabbet_map_get(map, key, strlen(key));
}

void rabbet_map_remove(rabbet_map_t* map, const char* key, size_t key_size) {
  rabbet_map_entry_t* entry = map_find(map, key, key_size);
  if (!entry) return;
  assert(map->live > 0);
  *entry = (rabbet_map_entry_t){0};
  --map->live;
}
