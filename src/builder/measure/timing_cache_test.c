#include "builder/measure/timing_cache.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static rabbet_timing_cache_t* filled(int first, int count) {
  rabbet_timing_cache_t* cache = NULL;
  assert_true(rabbet_is_ok(
      rabbet_timing_cache_create(NULL, 0, rabbet_allocator_system(), &cache)));
  for (int i = first; i < first + count; ++i) {
    rabbet_hash_t key = {(uint64_t)(i * 7919 % 97), (uint64_t)i};
    rabbet_timing_t timing = {.us = i * 0.25, .workspace = (uint64_t)i};
    assert_true(rabbet_is_ok(rabbet_timing_cache_put(cache, key, timing)));
  }
  return cache;
}

static void check_entry(rabbet_timing_cache_t* cache, int i) {
  rabbet_hash_t key = {(uint64_t)(i * 7919 % 97), (uint64_t)i};
  rabbet_timing_t timing;
  assert_true(rabbet_timing_cache_find(cache, key, &timing));
  assert_true(timing.us == i * 0.25);
  assert_int_equal(timing.workspace, i);
}

static void round_trip(void** state) {
  (void)state;
  rabbet_timing_cache_t* cache = filled(0, 200);
  void* data = NULL;
  size_t size = 0;
  assert_true(rabbet_is_ok(rabbet_timing_cache_serialize(
      cache, rabbet_allocator_system(), &data, &size)));
  rabbet_timing_cache_t* copy = NULL;
  assert_true(rabbet_is_ok(rabbet_timing_cache_create(
      data, size, rabbet_allocator_system(), &copy)));
  assert_int_equal(rabbet_timing_cache_count(copy), 200);
  for (int i = 0; i < 200; ++i)
    check_entry(copy, i);
  rabbet_timing_t timing;
  assert_false(
      rabbet_timing_cache_find(copy, (rabbet_hash_t){1, 99999}, &timing));
  rabbet_free(rabbet_allocator_system(), data);
  rabbet_timing_cache_release(copy);
  rabbet_timing_cache_release(cache);
}

// Builds that save to one file keep each other's entries.
static void saving_merges(void** state) {
  (void)state;
  char path[] = "/tmp/rabbet_timing_cache_XXXXXX";
  int file = mkstemp(path);  // an empty file: an empty cache
  rabbet_allocator_t system = rabbet_allocator_system();
  rabbet_timing_cache_t *a = filled(0, 30), *b = filled(20, 30), *all = NULL;
  rabbet_timing_t other = {.us = 99};
  rabbet_hash_t shared = {25 * 7919 % 97, 25};
  assert_true(rabbet_is_ok(rabbet_timing_cache_put(a, shared, other)));
  assert_true(rabbet_is_ok(rabbet_timing_cache_save(a, path, system)));
  assert_true(rabbet_is_ok(rabbet_timing_cache_save(b, path, system)));
  assert_true(rabbet_is_ok(rabbet_timing_cache_load(path, system, &all)));
  assert_int_equal(rabbet_timing_cache_count(all), 50);
  for (int i = 0; i < 50; ++i)
    check_entry(all, i);  // keys of both: the saver's entry
  assert_int_equal(rabbet_timing_cache_count(b), 30);
  rabbet_timing_cache_release(all);
  // A file that is not a timing cache is not replaced.
  assert_int_equal(ftruncate(file, 0), 0);
  FILE* text = fopen(path, "w");
  assert_true(text && fputs("these are somebody's notes, not times", text) > 0);
  fclose(text);
  rabbet_status_t status = rabbet_timing_cache_save(a, path, system);
  assert_int_equal(rabbet_status_code(status), RABBET_STATUS_INCOMPATIBLE);
  rabbet_status_free(status);
  struct stat info;
  assert_int_equal(stat(path, &info), 0);
  assert_int_equal(info.st_size, 37);
  close(file);
  unlink(path);
  // /dev/null keeps nothing.
  assert_true(rabbet_is_ok(rabbet_timing_cache_save(a, "/dev/null", system)));
  assert_true(
      rabbet_is_ok(rabbet_timing_cache_load("/dev/null", system, &all)));
  assert_int_equal(rabbet_timing_cache_count(all), 0);
  rabbet_timing_cache_release(all);
  rabbet_timing_cache_release(a);
  rabbet_timing_cache_release(b);
}

// Entries put in another order give the same file.
static void bytes_do_not_depend_on_order(void** state) {
  (void)state;
  rabbet_timing_cache_t* a = filled(0, 50);
  rabbet_timing_cache_t* rest = filled(25, 25);
  rabbet_timing_cache_t* b = filled(0, 25);
  assert_true(rabbet_is_ok(rabbet_timing_cache_combine(rest, b)));
  void *data_a = NULL, *data_b = NULL;
  size_t size_a = 0, size_b = 0;
  assert_true(rabbet_is_ok(rabbet_timing_cache_serialize(
      a, rabbet_allocator_system(), &data_a, &size_a)));
  assert_true(rabbet_is_ok(rabbet_timing_cache_serialize(
      rest, rabbet_allocator_system(), &data_b, &size_b)));
  assert_int_equal(size_a, size_b);
  assert_memory_equal(data_a, data_b, size_a);
  rabbet_free(rabbet_allocator_system(), data_a);
  rabbet_free(rabbet_allocator_system(), data_b);
  rabbet_timing_cache_release(a);
  rabbet_timing_cache_release(b);
  rabbet_timing_cache_release(rest);
}

static void combine_keeps_what_is_there(void** state) {
  (void)state;
  rabbet_timing_cache_t* a = filled(0, 3);
  rabbet_timing_cache_t* b = filled(3, 3);
  rabbet_hash_t key = {0, 0};
  assert_true(rabbet_is_ok(
      rabbet_timing_cache_put(b, key, (rabbet_timing_t){.us = 77})));
  assert_true(rabbet_is_ok(rabbet_timing_cache_combine(a, b)));
  assert_true(rabbet_is_ok(rabbet_timing_cache_combine(a, a)));
  assert_int_equal(rabbet_timing_cache_count(a), 6);
  for (int i = 0; i < 6; ++i)
    check_entry(a, i);
  rabbet_timing_cache_release(a);
  rabbet_timing_cache_release(b);
}

// An unsure time counts when three builds were unsure, and is their least; a
// sure one replaces it and is never replaced by it. Files and merges know that.
static void unsure_times(void** state) {
  (void)state;
  rabbet_allocator_t system = rabbet_allocator_system();
  rabbet_hash_t key = {5, 6};
  rabbet_timing_t found;
  rabbet_timing_cache_t* cache = filled(0, 3);
  const double us[] = {40, 30, 50, 35};
  for (int i = 0; i < 4; ++i) {
    assert_true(rabbet_timing_cache_find(cache, key, &found) == (i >= 3));
    rabbet_timing_t timing = {.us = us[i], .is_unsure = true};
    assert_true(rabbet_is_ok(rabbet_timing_cache_put(cache, key, timing)));
    // As the next build does: from the file of the one before.
    void* data = NULL;
    size_t size = 0;
    assert_true(rabbet_is_ok(
        rabbet_timing_cache_serialize(cache, system, &data, &size)));
    rabbet_timing_cache_t* next = NULL;
    assert_true(
        rabbet_is_ok(rabbet_timing_cache_create(data, size, system, &next)));
    rabbet_free(system, data);
    assert_true(rabbet_is_ok(rabbet_timing_cache_combine(next, cache)));
    rabbet_timing_cache_release(cache);
    cache = next;
  }
  assert_true(rabbet_timing_cache_find(cache, key, &found));
  assert_true(found.us == 30 && !found.is_unsure);
  rabbet_timing_cache_t* sure = filled(0, 3);
  rabbet_timing_t timing = {.us = 60};
  assert_true(rabbet_is_ok(rabbet_timing_cache_put(sure, key, timing)));
  assert_true(rabbet_is_ok(rabbet_timing_cache_combine(cache, sure)));
  timing = (rabbet_timing_t){.us = 10, .is_unsure = true};
  assert_true(rabbet_is_ok(rabbet_timing_cache_put(cache, key, timing)));
  assert_true(rabbet_timing_cache_find(cache, key, &found));
  assert_true(found.us == 60);
  rabbet_timing_cache_release(sure);
  rabbet_timing_cache_release(cache);
}

// Answers of libraries: kept beside the times, replaced, merged, cleared.
static void put_answer(rabbet_timing_cache_t* cache, int i, const char* text) {
  rabbet_hash_t key = {(uint64_t)i, 7};
  assert_true(rabbet_is_ok(
      rabbet_timing_cache_put_answer(cache, key, text, strlen(text))));
}

static void check_answer(rabbet_timing_cache_t* cache, int i,
                         const char* text) {
  rabbet_hash_t key = {(uint64_t)i, 7};
  char* data = NULL;
  size_t size = 0;
  assert_true(rabbet_is_ok(rabbet_timing_cache_find_answer(
      cache, key, rabbet_allocator_system(), (void**)&data, &size)));
  assert_int_equal(size, text ? strlen(text) : 0);
  if (text)
    assert_memory_equal(data, text, size);
  else
    assert_null(data);
  rabbet_free(rabbet_allocator_system(), data);
}

static void answers(void** state) {
  (void)state;
  rabbet_timing_cache_t* a = filled(0, 3);
  rabbet_timing_cache_t* b = filled(3, 2);
  put_answer(a, 2, "two");
  put_answer(a, 1, "one");
  put_answer(a, 2, "second");
  put_answer(b, 2, "another");
  put_answer(b, 3, "three");
  assert_true(rabbet_is_ok(rabbet_timing_cache_combine(a, b)));
  void* data = NULL;
  size_t size = 0;
  assert_true(rabbet_is_ok(rabbet_timing_cache_serialize(
      a, rabbet_allocator_system(), &data, &size)));
  rabbet_timing_cache_release(b);
  assert_true(rabbet_is_ok(
      rabbet_timing_cache_create(data, size, rabbet_allocator_system(), &b)));
  rabbet_free(rabbet_allocator_system(), data);
  assert_int_equal(rabbet_timing_cache_count(b), 5);
  check_answer(b, 1, "one");
  check_answer(b, 2, "second");
  check_answer(b, 3, "three");
  check_answer(b, 4, NULL);
  rabbet_timing_cache_reset(b);
  check_answer(b, 1, NULL);
  rabbet_timing_cache_release(a);
  rabbet_timing_cache_release(b);
}

static rabbet_status_code_t code_of(const void* data, size_t size) {
  rabbet_timing_cache_t* cache = NULL;
  rabbet_status_t status =
      rabbet_timing_cache_create(data, size, rabbet_allocator_system(), &cache);
  rabbet_status_code_t code = rabbet_status_code(status);
  if (rabbet_is_ok(status))
    rabbet_timing_cache_release(cache);
  else
    assert_null(cache);
  rabbet_status_free(status);
  return code;
}

// Every truncation and every flipped bit is noticed.
static void damage_of(bool with_answers) {
  rabbet_timing_cache_t* cache = filled(0, 5);
  if (with_answers) {
    put_answer(cache, 1, "one");
    put_answer(cache, 2, "some more");
  }
  uint8_t* data = NULL;
  size_t size = 0;
  assert_true(rabbet_is_ok(rabbet_timing_cache_serialize(
      cache, rabbet_allocator_system(), (void**)&data, &size)));
  rabbet_timing_cache_release(cache);
  assert_int_equal(code_of(data, size), RABBET_STATUS_OK);
  for (size_t cut = 1; cut < size; ++cut)
    assert_int_equal(code_of(data, cut), RABBET_STATUS_DATA_LOSS);
  for (size_t bit = 0; bit < size * 8; ++bit) {
    data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    rabbet_status_code_t code = code_of(data, size);
    // Magic, version and size of an entry: another kind of file.
    assert_int_equal(code, bit < 16 * 8 ? RABBET_STATUS_INCOMPATIBLE
                                        : RABBET_STATUS_DATA_LOSS);
    data[bit / 8] ^= (uint8_t)(1u << bit % 8);
  }
  rabbet_free(rabbet_allocator_system(), data);
}

static void entries_are_listed_and_edited(void** state) {
  (void)state;
  rabbet_timing_cache_t* cache = filled(0, 20);
  rabbet_timing_key_t* keys = NULL;
  rabbet_timing_value_t value;
  size_t count = 0;
  assert_true(rabbet_is_ok(rabbet_timing_cache_keys(
      cache, rabbet_allocator_system(), &keys, &count)));
  assert_int_equal(count, 20);
  for (size_t i = 1; i < count; ++i)
    assert_true(
        keys[i - 1].high < keys[i].high ||
        (keys[i - 1].high == keys[i].high && keys[i - 1].low < keys[i].low));
  assert_true(rabbet_is_ok(rabbet_timing_cache_query(cache, keys[7], &value)));
  assert_true(value.us == (double)keys[7].low * 0.25);
  assert_int_equal(value.workspace, keys[7].low);
  value = (rabbet_timing_value_t){1234.5, 77};
  assert_true(rabbet_is_ok(rabbet_timing_cache_update(cache, keys[7], value)));
  value = (rabbet_timing_value_t){0};
  assert_true(rabbet_is_ok(rabbet_timing_cache_query(cache, keys[7], &value)));
  assert_true(value.us == 1234.5 && value.workspace == 77);
  value.us = NAN;
  rabbet_status_t status = rabbet_timing_cache_update(cache, keys[7], value);
  assert_int_equal(rabbet_status_code(status), RABBET_STATUS_INVALID_ARGUMENT);
  rabbet_status_ignore(status);
  rabbet_timing_cache_reset(cache);
  assert_int_equal(rabbet_timing_cache_count(cache), 0);
  status = rabbet_timing_cache_query(cache, keys[7], &value);
  assert_int_equal(rabbet_status_code(status), RABBET_STATUS_NOT_FOUND);
  rabbet_status_ignore(status);
  rabbet_free(rabbet_allocator_system(), keys);
  rabbet_timing_cache_release(cache);
}

static void damage(void** state) {
  (void)state;
  damage_of(false);
  damage_of(true);
}

static ino_t file_number(const char* path) {
  struct stat info;
  return stat(path, &info) == 0 ? info.st_ino : 0;
}

// A build that found all in the file leaves it alone; others write it anew.
static void unchanged_caches_are_not_written(void** state) {
  (void)state;
  char path[] = "/tmp/rabbet_timing_cache_XXXXXX";
  close(mkstemp(path));
  rabbet_allocator_t system = rabbet_allocator_system();
  rabbet_timing_cache_t *cache = filled(0, 30), *found = NULL, *own = NULL;
  const rabbet_hash_t key = {5, 6};
  assert_true(rabbet_is_ok(
      rabbet_timing_cache_put_answer(cache, key, "answer", sizeof("answer"))));
  assert_true(rabbet_is_ok(rabbet_timing_cache_save(cache, path, system)));
  rabbet_timing_cache_release(cache);
  ino_t before = file_number(path);
  // Into an empty cache, as builds with a file's name do.
  assert_true(rabbet_is_ok(rabbet_timing_cache_load(path, system, &found)));
  assert_true(rabbet_is_ok(rabbet_timing_cache_create(NULL, 0, system, &own)));
  assert_true(rabbet_is_ok(rabbet_timing_cache_absorb(own, found)));
  rabbet_timing_cache_release(found);
  assert_int_equal(rabbet_timing_cache_count(own), 30);
  check_entry(own, 7);
  assert_true(rabbet_is_ok(rabbet_timing_cache_save(own, path, system)));
  assert_int_equal(file_number(path), before);
  // An answer that was read from the file may be replaced.
  assert_true(rabbet_is_ok(
      rabbet_timing_cache_put_answer(own, key, "other", sizeof("other"))));
  assert_true(rabbet_is_ok(rabbet_timing_cache_save(own, path, system)));
  assert_int_not_equal(file_number(path), before);
  // A file that was removed is written again.
  assert_true(rabbet_is_ok(rabbet_timing_cache_load(path, system, &found)));
  unlink(path);
  assert_true(rabbet_is_ok(rabbet_timing_cache_save(found, path, system)));
  rabbet_timing_cache_release(found);
  assert_true(rabbet_is_ok(rabbet_timing_cache_load(path, system, &found)));
  void* data = NULL;
  size_t size = 0;
  assert_true(rabbet_is_ok(
      rabbet_timing_cache_find_answer(found, key, system, &data, &size)));
  assert_int_equal(size, sizeof("other"));
  assert_memory_equal(data, "other", size);
  rabbet_free(system, data);
  // A cache that is not empty keeps what it has.
  rabbet_timing_cache_t* more = filled(100, 5);
  assert_true(rabbet_is_ok(rabbet_timing_cache_absorb(more, found)));
  assert_int_equal(rabbet_timing_cache_count(more), 35);
  check_entry(more, 102);
  rabbet_timing_cache_release(more);
  rabbet_timing_cache_release(found);
  rabbet_timing_cache_release(own);
  unlink(path);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(round_trip),
      cmocka_unit_test(saving_merges),
      cmocka_unit_test(unchanged_caches_are_not_written),
      cmocka_unit_test(bytes_do_not_depend_on_order),
      cmocka_unit_test(combine_keeps_what_is_there),
      cmocka_unit_test(unsure_times),
      cmocka_unit_test(answers),
      cmocka_unit_test(damage),
      cmocka_unit_test(entries_are_listed_and_edited),
  };
  return cmocka_run_group_tests_name("timing_cache", tests, NULL, NULL);
}
