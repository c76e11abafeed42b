// Measured times by key: the inside of a timing cache.
#ifndef RABBET_SRC_BUILDER_MEASURE_TIMING_CACHE_H_
#define RABBET_SRC_BUILDER_MEASURE_TIMING_CACHE_H_

#include "base/hash.h"
#include "rabbet/builder.h"

// A way to compute something, measured once.
typedef struct rabbet_timing_t {
  double us;           // per run; < 0: cannot be used on this device
  uint64_t workspace;  // bytes
  // Every sample was disturbed: good enough for this build.
  bool is_unsure;
  bool is_starved;  // memory for it was not to be had
} rabbet_timing_t;

// False if the key is unknown, or too few builds have measured an unsure time
// for the least of theirs to count.
RABBET_PRIVATE_API bool rabbet_timing_cache_find(rabbet_timing_cache_t* cache,
                                                 rabbet_hash_t key,
                                                 rabbet_timing_t* out_timing);
// Sets or replaces. An unsure time never replaces a sure one, and of unsure
// ones the least is kept, with how many there were.
RABBET_PRIVATE_API rabbet_status_t rabbet_timing_cache_put(
    rabbet_timing_cache_t* cache, rabbet_hash_t key, rabbet_timing_t timing);

// A library's answers to a question: bytes defined by trial.h. *out_data is
// freed with rabbet_free; NULL: the key is unknown.
RABBET_PRIVATE_API rabbet_status_t rabbet_timing_cache_find_answer(
    rabbet_timing_cache_t* cache, rabbet_hash_t key,
    rabbet_allocator_t allocator, void** out_data, size_t* out_size);
// Sets or replaces.
RABBET_PRIVATE_API rabbet_status_t
rabbet_timing_cache_put_answer(rabbet_timing_cache_t* cache, rabbet_hash_t key,
                               const void* data, size_t size);

// Adds what `from` has, as rabbet_timing_cache_combine does, and may empty it:
// no other thread has `from`.
RABBET_PRIVATE_API rabbet_status_t rabbet_timing_cache_absorb(
    rabbet_timing_cache_t* cache, rabbet_timing_cache_t* from);

// A file at a time.
typedef struct rabbet_timing_file_t {
  uint64_t device, number, size;
  int64_t seconds, nanoseconds;  // of its last change; 0: no file
} rabbet_timing_file_t;

// The file that the cache was read from as a whole.
void rabbet_timing_cache_set_file(rabbet_timing_cache_t* cache,
                                  rabbet_timing_file_t file);
// Whether it holds what that file does.
bool rabbet_timing_cache_equals_file(rabbet_timing_cache_t* cache,
                                     rabbet_timing_file_t file);

#endif  // RABBET_SRC_BUILDER_MEASURE_TIMING_CACHE_H_
