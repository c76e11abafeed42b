#include "builder/measure/timing_cache.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/thread.h"
#include "base/vec.h"

// File: header, then entries in ascending order of key, the number of answers,
// and each, in ascending order of key, with its bytes. Little-endian.
#define TIMING_CACHE_MAGIC "RBTIMING"
#define TIMING_CACHE_VERSION 3u
// So many builds were unsure of a time: the least of theirs is as good as a
// busy machine gives, and a build with the cache must come to an end of timing.
#define TIMING_DOUBTS 3

typedef struct timing_header_t {
  char magic[8];
  uint32_t version;
  uint32_t entry_size;
  uint64_t entry_count;
  uint64_t checksum;  // of all that follows
} timing_header_t;

typedef struct timing_entry_t {
  rabbet_hash_t key;
  double us;
  uint64_t workspace;
  uint64_t doubts;  // builds that were unsure of it; 0: a sure time
} timing_entry_t;

// In memory with its bytes, which are the cache's; in a file behind it.
typedef struct timing_answer_t {
  rabbet_hash_t key;
  uint64_t size;
  void* data;
} timing_answer_t;

typedef struct timing_answer_head_t {
  rabbet_hash_t key;
  uint64_t size;
} timing_answer_head_t;

_Static_assert(sizeof(timing_header_t) == 32, "file layout");
_Static_assert(sizeof(timing_answer_head_t) == 24, "file layout");
_Static_assert(sizeof(timing_entry_t) == 40, "file layout");

struct rabbet_timing_cache_t {
  rabbet_allocator_t allocator;
  rabbet_refcount_t references;
  pthread_mutex_t mutex;
  RABBET_VEC(timing_entry_t) entries;   // ascending, keys differ
  RABBET_VEC(timing_answer_t) answers;  // likewise
  uint8_t* read;  // bytes of the answers that were read with the cache
  size_t read_size;
  rabbet_timing_file_t file;  // that has the same; no file after a change
};

static void timing_changed(rabbet_timing_cache_t* cache) {
  cache->file = (rabbet_timing_file_t){.device = 0};
}

static int timing_key_compare(rabbet_hash_t a, rabbet_hash_t b) {
  if (a.high != b.high) return a.high < b.high ? -1 : 1;
  if (a.low != b.low) return a.low < b.low ? -1 : 1;
  return 0;
}

// Place of the first element that is not before the key, in an array that is
// sorted by keys; `keys` is the key of its first element.
static size_t timing_lower_bound(const rabbet_hash_t* keys, size_t stride,
                                 size_t count, rabbet_hash_t key) {
  size_t low = 0, high = count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    const void* found = (const char*)keys + middle * stride;
    if (timing_key_compare(*(const rabbet_hash_t*)found, key) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static size_t timing_cache_lower_bound(const rabbet_timing_cache_t* cache,
                                       rabbet_hash_t key) {
  if (cache->entries.count == 0) return 0;
  return timing_lower_bound(&cache->entries.data->key,
                            sizeof(*cache->entries.data), cache->entries.count,
                            key);
}

static bool timing_cache_has(const rabbet_timing_cache_t* cache, size_t index,
                             rabbet_hash_t key) {
  return index < cache->entries.count &&
         timing_key_compare(cache->entries.data[index].key, key) == 0;
}

// Of two entries with one key. replace: b is the newer one. A sure time is
// better than an unsure one, and of two unsure ones the lesser.
static timing_entry_t timing_entry_better(const timing_entry_t* a,
                                          const timing_entry_t* b,
                                          bool replace) {
  if (a->doubts == 0 || b->doubts == 0)
    return b->doubts == 0 && (a->doubts > 0 || replace) ? *b : *a;
  timing_entry_t better = a->us <= b->us ? *a : *b;
  better.doubts = a->doubts > b->doubts ? a->doubts : b->doubts;
  return better;
}

static rabbet_status_t timing_cache_put_locked(rabbet_timing_cache_t* cache,
                                               timing_entry_t entry,
                                               bool replace) {
  size_t index = timing_cache_lower_bound(cache, entry.key);
  timing_changed(cache);
  if (timing_cache_has(cache, index, entry.key)) {
    timing_entry_t* place = &cache->entries.data[index];
    *place = timing_entry_better(place, &entry, replace);
    return rabbet_ok();
  }
  RABBET_RETURN_IF_ERROR(
      RABBET_VEC_RESERVE(cache->allocator, &cache->entries, 1));
  timing_entry_t* place = cache->entries.data + index;
  memmove(place + 1, place,
          (cache->entries.count - index) * sizeof(timing_entry_t));
  *place = entry;
  cache->entries.count++;
  assert(index == 0 || timing_key_compare(place[-1].key, entry.key) < 0);
  assert(index + 1 == cache->entries.count ||
         timing_key_compare(entry.key, place[1].key) < 0);
  return rabbet_ok();
}

// ---- Answers ----------------------------------------------------------------

static size_t timing_answer_place(const rabbet_timing_cache_t* cache,
                                  rabbet_hash_t key) {
  if (cache->answers.count == 0) return 0;
  return timing_lower_bound(&cache->answers.data->key,
                            sizeof(*cache->answers.data), cache->answers.count,
                            key);
}

static bool timing_has_answer(const rabbet_timing_cache_t* cache, size_t place,
                              rabbet_hash_t key) {
  return place < cache->answers.count &&
         timing_key_compare(cache->answers.data[place].key, key) == 0;
}

static void timing_answer_free(rabbet_timing_cache_t* cache, void* data) {
  const uint8_t* bytes = data;
  if (!cache->read || bytes < cache->read ||
      bytes >= cache->read + cache->read_size)
    rabbet_free(cache->allocator, data);
}

static void timing_answers_clear(rabbet_timing_cache_t* cache) {
  for (size_t i = 0; i < cache->answers.count; ++i)
    timing_answer_free(cache, cache->answers.data[i].data);
  cache->answers.count = 0;
  rabbet_free(cache->allocator, cache->read);
  cache->read = NULL;
  cache->read_size = 0;
}

static rabbet_status_t timing_answer_put_locked(rabbet_timing_cache_t* cache,
                                                rabbet_hash_t key,
                                                const void* data, size_t size,
                                                bool replace) {
  size_t place = timing_answer_place(cache, key);
  bool has = timing_has_answer(cache, place, key);
  timing_answer_t answer = {.key = key, .size = size};
  if (has && !replace) return rabbet_ok();
  timing_changed(cache);
  RABBET_RETURN_IF_ERROR(
      RABBET_VEC_RESERVE(cache->allocator, &cache->answers, 1));
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(cache->allocator, size, (void**)&answer.data));
  memcpy(answer.data, data, size);
  timing_answer_t* at = cache->answers.data + place;
  if (has) {
    timing_answer_free(cache, at->data);
  } else {
    memmove(at + 1, at, (cache->answers.count - place) * sizeof(*at));
    cache->answers.count++;
  }
  *at = answer;
  assert(place == 0 || timing_key_compare(at[-1].key, at->key) < 0);
  return rabbet_ok();
}

rabbet_status_t rabbet_timing_cache_find_answer(rabbet_timing_cache_t* cache,
                                                rabbet_hash_t key,
                                                rabbet_allocator_t allocator,
                                                void** out_data,
                                                size_t* out_size) {
  *out_data = NULL;
  *out_size = 0;
  pthread_mutex_lock(&cache->mutex);
  size_t place = timing_answer_place(cache, key);
  rabbet_status_t status = rabbet_ok();
  if (timing_has_answer(cache, place, key)) {
    const timing_answer_t* answer = &cache->answers.data[place];
    status = rabbet_allocate(allocator, (size_t)answer->size, out_data);
    if (rabbet_is_ok(status)) {
      memcpy(*out_data, answer->data, (size_t)answer->size);
      *out_size = (size_t)answer->size;
    }
  }
  pthread_mutex_unlock(&cache->mutex);
  return status;
}

rabbet_status_t rabbet_timing_cache_put_answer(rabbet_timing_cache_t* cache,
                                               rabbet_hash_t key,
                                               const void* data, size_t size) {
  pthread_mutex_lock(&cache->mutex);
  rabbet_status_t status =
      timing_answer_put_locked(cache, key, data, size, true);
  pthread_mutex_unlock(&cache->mutex);
  return status;
}

// ---- Reading ----------------------------------------------------------------

static rabbet_status_t timing_header_check(const timing_header_t* header,
                                           const void* body, size_t size) {
  if (memcmp(header->magic, TIMING_CACHE_MAGIC, sizeof(header->magic)) != 0)
    return RABBET_STATUS(RABBET_STATUS_INCOMPATIBLE,
                         "this is not a timing cache: it does not begin with "
                         "'" TIMING_CACHE_MAGIC "'");
  if (header->version != TIMING_CACHE_VERSION ||
      header->entry_size != sizeof(timing_entry_t))
    return RABBET_STATUS(RABBET_STATUS_INCOMPATIBLE,
                         "timing cache of version %u; this is Rabbet %s, which "
                         "reads version %u: make a new one",
                         header->version, RABBET_VERSION_STRING,
                         TIMING_CACHE_VERSION);
  if (header->entry_count > size / sizeof(timing_entry_t))
    return RABBET_STATUS(RABBET_STATUS_DATA_LOSS,
                         "timing cache is truncated: %zu bytes of "
                         "entries where %llu entries of %zu bytes belong",
                         size, (unsigned long long)header->entry_count,
                         sizeof(timing_entry_t));
  if (header->checksum != rabbet_hash64(body, size))
    return RABBET_STATUS(RABBET_STATUS_DATA_LOSS,
                         "timing cache is damaged: its checksum does not fit");
  return rabbet_ok();
}

static rabbet_status_t timing_parse_entries(rabbet_timing_cache_t* cache,
                                            const uint8_t* data,
                                            uint64_t count) {
  RABBET_RETURN_IF_ERROR(
      RABBET_VEC_RESERVE(cache->allocator, &cache->entries, (size_t)count));
  for (size_t i = 0; i < count; ++i) {
    timing_entry_t entry;
    memcpy(&entry, data + i * sizeof(entry), sizeof(entry));
    bool ordered = i == 0 || timing_key_compare(cache->entries.data[i - 1].key,
                                                entry.key) < 0;
    if (!ordered || !isfinite(entry.us))
      return RABBET_STATUS(RABBET_STATUS_DATA_LOSS,
                           "timing cache is damaged: entry %zu %s", i,
                           ordered ? "has no finite time" : "is out of order");
    cache->entries.data[cache->entries.count++] = entry;
  }
  return rabbet_ok();
}

static rabbet_status_t timing_parse_answers(rabbet_timing_cache_t* cache,
                                            const uint8_t* data, size_t size) {
  uint64_t count = 0;
  bool good = size >= sizeof(count);
  if (good) memcpy(&count, data, sizeof(count));
  size_t at = sizeof(count);
  good = good && count <= (size - at) / sizeof(timing_answer_head_t);
  if (good && count > 0) {
    RABBET_RETURN_IF_ERROR(
        rabbet_allocate(cache->allocator, size, (void**)&cache->read));
    memcpy(cache->read, data, size);
    cache->read_size = size;
    RABBET_RETURN_IF_ERROR(
        RABBET_VEC_RESERVE(cache->allocator, &cache->answers, (size_t)count));
  }
  for (uint64_t i = 0; good && i < count; ++i) {
    timing_answer_head_t head = {.size = 0};
    good = size - at >= sizeof(head);
    if (good) memcpy(&head, data + at, sizeof(head));
    at += sizeof(head);
    good = good && head.size > 0 && head.size <= size - at;
    good = good && (i == 0 || timing_key_compare(cache->answers.data[i - 1].key,
                                                 head.key) < 0);
    if (!good) break;
    cache->answers.data[cache->answers.count++] = (timing_answer_t){
        .key = head.key, .size = head.size, .data = cache->read + at};
    at += (size_t)head.size;
  }
  if (good && at == size) return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_DATA_LOSS,
                       "timing cache is damaged: its answers of libraries are "
                       "cut off or out of order");
}

static rabbet_status_t timing_cache_parse(rabbet_timing_cache_t* cache,
                                          const uint8_t* data, size_t size) {
  timing_header_t header;
  if (size < sizeof(header))
    return RABBET_STATUS(RABBET_STATUS_DATA_LOSS,
                         "timing cache is truncated: %zu bytes, its header "
                         "alone has %zu",
                         size, sizeof(header));
  memcpy(&header, data, sizeof(header));
  data += sizeof(header);
  size -= sizeof(header);
  RABBET_RETURN_IF_ERROR(timing_header_check(&header, data, size));
  RABBET_RETURN_IF_ERROR(timing_parse_entries(cache, data, header.entry_count));
  size_t entries = (size_t)header.entry_count * sizeof(timing_entry_t);
  return timing_parse_answers(cache, data + entries, size - entries);
}

// ---- The cache --------------------------------------------------------------

rabbet_status_t rabbet_timing_cache_create(const void* data, size_t size,
                                           rabbet_allocator_t allocator,
                                           rabbet_timing_cache_t** out_cache) {
  *out_cache = NULL;
  rabbet_timing_cache_t* cache = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(allocator, sizeof(*cache), (void**)&cache));
  cache->allocator = allocator;
  rabbet_refcount_initialize(&cache->references);
  pthread_mutex_init(&cache->mutex, NULL);
  rabbet_status_t status = rabbet_ok();
  if (size > 0) status = timing_cache_parse(cache, data, size);
  if (rabbet_is_ok(status))
    *out_cache = cache;
  else
    rabbet_timing_cache_release(cache);
  return status;
}

void rabbet_timing_cache_retain(rabbet_timing_cache_t* cache) {
  if (cache) rabbet_refcount_retain(&cache->references);
}

void rabbet_timing_cache_release(rabbet_timing_cache_t* cache) {
  if (!cache || !rabbet_refcount_release(&cache->references)) return;
  timing_answers_clear(cache);
  rabbet_vec_free(cache->allocator, &cache->answers);
  rabbet_vec_free(cache->allocator, &cache->entries);
  pthread_mutex_destroy(&cache->mutex);
  rabbet_free(cache->allocator, cache);
}

static size_t timing_answers_size(const rabbet_timing_cache_t* cache) {
  size_t size = sizeof(uint64_t);
  for (size_t i = 0; i < cache->answers.count; ++i)
    size += sizeof(timing_answer_head_t) + (size_t)cache->answers.data[i].size;
  return size;
}

static void timing_answers_write(const rabbet_timing_cache_t* cache,
                                 uint8_t* at) {
  uint64_t count = cache->answers.count;
  memcpy(at, &count, sizeof(count));
  at += sizeof(count);
  for (size_t i = 0; i < count; ++i) {
    const timing_answer_t* answer = &cache->answers.data[i];
    const timing_answer_head_t head = {answer->key, answer->size};
    memcpy(at, &head, sizeof(head));
    assert(answer->size > 0);  // readers refuse empty answers
    memcpy(at + sizeof(head), answer->data, (size_t)answer->size);
    at += sizeof(head) + answer->size;
  }
}

rabbet_status_t rabbet_timing_cache_serialize(rabbet_timing_cache_t* cache,
                                              rabbet_allocator_t allocator,
                                              void** out_data,
                                              size_t* out_size) {
  *out_data = NULL;
  *out_size = 0;
  pthread_mutex_lock(&cache->mutex);
  size_t entries = cache->entries.count * sizeof(timing_entry_t);
  size_t body = entries + timing_answers_size(cache);
  uint8_t* data = NULL;
  rabbet_status_t status =
      rabbet_allocate(allocator, sizeof(timing_header_t) + body, (void**)&data);
  if (rabbet_is_ok(status)) {
    uint8_t* at = data + sizeof(timing_header_t);
    if (entries > 0) memcpy(at, cache->entries.data, entries);
    timing_answers_write(cache, at + entries);
    timing_header_t header = {
        .version = TIMING_CACHE_VERSION,
        .entry_size = sizeof(timing_entry_t),
        .entry_count = cache->entries.count,
        .checksum = rabbet_hash64(at, body),
    };
    memcpy(header.magic, TIMING_CACHE_MAGIC, sizeof(header.magic));
    memcpy(data, &header, sizeof(header));
    *out_data = data;
    *out_size = sizeof(header) + body;
  }
  pthread_mutex_unlock(&cache->mutex);
  return status;
}

static rabbet_status_t timing_cache_merge_locked(
    rabbet_timing_cache_t* cache, const rabbet_timing_cache_t* from) {
  rabbet_status_t status = rabbet_ok();
  for (size_t i = 0; rabbet_is_ok(status) && i < from->entries.count; ++i)
    status = timing_cache_put_locked(cache, from->entries.data[i], false);
  for (size_t i = 0; rabbet_is_ok(status) && i < from->answers.count; ++i)
    status = timing_answer_put_locked(
        cache, from->answers.data[i].key, from->answers.data[i].data,
        (size_t)from->answers.data[i].size, false);
  return status;
}

// Both locks are never held at once, so that two caches may be combined with
// each other from two threads.
rabbet_status_t rabbet_timing_cache_combine(rabbet_timing_cache_t* cache,
                                            rabbet_timing_cache_t* other) {
  rabbet_timing_cache_t* copy = NULL;
  if (cache == other) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(
      rabbet_timing_cache_create(NULL, 0, cache->allocator, &copy));
  pthread_mutex_lock(&other->mutex);
  rabbet_status_t status = timing_cache_merge_locked(copy, other);
  pthread_mutex_unlock(&other->mutex);
  pthread_mutex_lock(&cache->mutex);
  if (rabbet_is_ok(status)) status = timing_cache_merge_locked(cache, copy);
  pthread_mutex_unlock(&cache->mutex);
  rabbet_timing_cache_release(copy);
  return status;
}

static bool timing_is_empty(const rabbet_timing_cache_t* cache) {
  return cache->entries.count == 0 && cache->answers.count == 0;
}

// `from` is left with the memory of the empty cache.
static void timing_cache_swap(rabbet_timing_cache_t* cache,
                              rabbet_timing_cache_t* from) {
  rabbet_timing_cache_t old = *cache;
  memcpy(&cache->entries, &from->entries, sizeof(cache->entries));
  memcpy(&cache->answers, &from->answers, sizeof(cache->answers));
  cache->read = from->read;
  cache->read_size = from->read_size;
  cache->file = from->file;
  memcpy(&from->entries, &old.entries, sizeof(from->entries));
  memcpy(&from->answers, &old.answers, sizeof(from->answers));
  from->read = old.read;
  from->read_size = old.read_size;
  from->file = old.file;
}

rabbet_status_t rabbet_timing_cache_absorb(rabbet_timing_cache_t* cache,
                                           rabbet_timing_cache_t* from) {
  assert(cache != from);
  pthread_mutex_lock(&cache->mutex);
  bool swaps = timing_is_empty(cache) &&
               cache->allocator.resize == from->allocator.resize &&
               cache->allocator.self == from->allocator.self;
  if (swaps) timing_cache_swap(cache, from);
  pthread_mutex_unlock(&cache->mutex);
  return swaps ? rabbet_ok() : rabbet_timing_cache_combine(cache, from);
}

void rabbet_timing_cache_set_file(rabbet_timing_cache_t* cache,
                                  rabbet_timing_file_t file) {
  pthread_mutex_lock(&cache->mutex);
  cache->file = file;
  pthread_mutex_unlock(&cache->mutex);
}

bool rabbet_timing_cache_equals_file(rabbet_timing_cache_t* cache,
                                     rabbet_timing_file_t file) {
  pthread_mutex_lock(&cache->mutex);
  const rabbet_timing_file_t* own = &cache->file;
  bool equal = file.seconds != 0 && own->seconds == file.seconds &&
               own->nanoseconds == file.nanoseconds &&
               own->device == file.device && own->number == file.number &&
               own->size == file.size;
  pthread_mutex_unlock(&cache->mutex);
  return equal;
}

size_t rabbet_timing_cache_count(rabbet_timing_cache_t* cache) {
  pthread_mutex_lock(&cache->mutex);
  size_t count = cache->entries.count;
  pthread_mutex_unlock(&cache->mutex);
  return count;
}

rabbet_status_t rabbet_timing_cache_keys(rabbet_timing_cache_t* cache,
                                         rabbet_allocator_t allocator,
                                         rabbet_timing_key_t** out_keys,
                                         size_t* out_count) {
  *out_keys = NULL;
  *out_count = 0;
  pthread_mutex_lock(&cache->mutex);
  size_t count = cache->entries.count;
  rabbet_timing_key_t* keys = NULL;
  rabbet_status_t status =
      rabbet_allocate(allocator, count * sizeof(*keys), (void**)&keys);
  if (rabbet_is_ok(status)) {
    for (size_t i = 0; i < count; ++i) {
      rabbet_hash_t key = cache->entries.data[i].key;
      keys[i] = (rabbet_timing_key_t){key.high, key.low};
    }
    *out_keys = keys;
    *out_count = count;
  }
  pthread_mutex_unlock(&cache->mutex);
  return status;
}

static bool timing_cache_find(rabbet_timing_cache_t* cache, rabbet_hash_t key,
                              timing_entry_t* out_entry) {
  pthread_mutex_lock(&cache->mutex);
  size_t index = timing_cache_lower_bound(cache, key);
  bool found = timing_cache_has(cache, index, key);
  if (found) *out_entry = cache->entries.data[index];
  pthread_mutex_unlock(&cache->mutex);
  return found;
}

rabbet_status_t rabbet_timing_cache_query(rabbet_timing_cache_t* cache,
                                          rabbet_timing_key_t key,
                                          rabbet_timing_value_t* out_value) {
  timing_entry_t entry;
  *out_value = (rabbet_timing_value_t){.us = -1};
  rabbet_hash_t hash = {.high = key.high, .low = key.low};
  if (!timing_cache_find(cache, hash, &entry))
    return RABBET_STATUS(RABBET_STATUS_NOT_FOUND,
                         "the timing cache has no entry 0x%016llx%016llx",
                         (unsigned long long)key.high,
                         (unsigned long long)key.low);
  *out_value = (rabbet_timing_value_t){entry.us, entry.workspace};
  return rabbet_ok();
}

rabbet_status_t rabbet_timing_cache_update(rabbet_timing_cache_t* cache,
                                           rabbet_timing_key_t key,
                                           rabbet_timing_value_t value) {
  if (!isfinite(value.us))
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "a time of %g us: expected a number; a negative "
                         "one marks an unusable kernel",
                         value.us);
  return rabbet_timing_cache_put(
      cache, (rabbet_hash_t){.high = key.high, .low = key.low},
      (rabbet_timing_t){.us = value.us, .workspace = value.workspace});
}

void rabbet_timing_cache_reset(rabbet_timing_cache_t* cache) {
  pthread_mutex_lock(&cache->mutex);
  cache->entries.count = 0;
  timing_answers_clear(cache);
  timing_changed(cache);
  pthread_mutex_unlock(&cache->mutex);
}

bool rabbet_timing_cache_find(rabbet_timing_cache_t* cache, rabbet_hash_t key,
                              rabbet_timing_t* out_timing) {
  timing_entry_t entry;
  if (!timing_cache_find(cache, key, &entry)) return false;
  if (entry.doubts > 0 && entry.doubts < TIMING_DOUBTS) return false;
  *out_timing = (rabbet_timing_t){.us = entry.us, .workspace = entry.workspace};
  return true;
}

rabbet_status_t rabbet_timing_cache_put(rabbet_timing_cache_t* cache,
                                        rabbet_hash_t key,
                                        rabbet_timing_t timing) {
  assert(!timing.is_starved);
  timing_entry_t entry = {key, timing.us, timing.workspace, 0};
  pthread_mutex_lock(&cache->mutex);
  if (timing.is_unsure) {
    size_t index = timing_cache_lower_bound(cache, key);
    entry.doubts = timing_cache_has(cache, index, key)
                       ? cache->entries.data[index].doubts + 1
                       : 1;
  }
  rabbet_status_t status = timing_cache_put_locked(cache, entry, true);
  pthread_mutex_unlock(&cache->mutex);
  return status;
}
