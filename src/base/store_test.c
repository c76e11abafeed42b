#define _GNU_SOURCE
#include "base/store.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

static char root[] = "/tmp/rabbet_store_test_XXXXXX";
static char folder[64];
static int warnings, notes;

static void count_message(void* context, rabbet_severity_t severity,
                          const char* message) {
  (void)context;
  warnings += severity == RABBET_SEVERITY_WARNING;
  notes += strstr(message, folder) != NULL;
}

static rabbet_store_t* open_store(void) {
  rabbet_store_t* store = NULL;
  RABBET_EXPECT_OK(rabbet_store_create(
      rabbet_allocator_system(),
      (rabbet_logger_t){NULL, count_message, RABBET_SEVERITY_VERBOSE}, &store));
  return store;
}

static int begin(void** state) {
  (void)state;
  if (!mkdtemp(root)) return -1;
  snprintf(folder, sizeof(folder), "%s/a/programs", root);
  return 0;
}

static int end(void** state) {
  char command[96];
  (void)state;
  snprintf(command, sizeof(command), "rm -rf '%s'", root);
  return system(command);
}

static int each(void** state) {
  setenv("RABBET_PROGRAM_CACHE", folder, 1);
  unsetenv("RABBET_PROGRAM_CACHE_MIB");
  warnings = notes = 0;
  return end(state) != 0 || mkdir(root, 0700) != 0;
}

static const rabbet_hash_t key = {0x1234, 0x5678};
static const char name[] = "00000000000012340000000000005678";

static void put(rabbet_store_t* store, rabbet_hash_t of, const char* text) {
  const rabbet_span_t parts[] = {
      {text, 1}, {NULL, 0}, {text + 1, strlen(text)}};
  rabbet_store_put(store, of, parts, 3);
}

static void expect(rabbet_store_t* store, rabbet_hash_t of, const char* text) {
  void* data = NULL;
  size_t size = 0;
  RABBET_EXPECT_OK(
      rabbet_store_find(store, of, rabbet_allocator_system(), &data, &size));
  if (!text)
    assert_null(data);
  else
    assert_string_equal(data, text);
  if (text) assert_int_equal(size, strlen(text) + 1);
  free(data);
}

static void file_of(char path[128]) {
  snprintf(path, 128, "%s/%s", folder, name);
}

static void test_keeps_for_the_next(void** state) {
  (void)state;
  rabbet_store_t* store = open_store();
  assert_int_not_equal(access(folder, F_OK), 0);  // made when it is needed
  expect(store, key, NULL);
  put(store, key, "program");
  expect(store, key, "program");
  expect(store, (rabbet_hash_t){1, 2}, NULL);
  rabbet_store_destroy(store);
  store = open_store();
  expect(store, key, "program");
  put(store, key, "another");
  expect(store, key, "another");
  rabbet_store_destroy(store);
  struct stat info;
  assert_int_equal(stat(folder, &info), 0);
  assert_int_equal(info.st_mode & 0777, 0700);
  assert_int_equal(warnings + notes, 0);
}

static void test_replaces_what_is_damaged(void** state) {
  (void)state;
  char path[128];
  file_of(path);
  rabbet_store_t* store = open_store();
  put(store, key, "program");
  struct stat info;
  assert_int_equal(stat(path, &info), 0);
  int seen = 0;
  for (off_t at = 0; at < info.st_size; at += 5, ++seen) {
    put(store, key, "program");
    char byte = 0;
    int file = open(path, O_RDWR);
    assert_int_equal(pread(file, &byte, 1, at), 1);
    byte ^= 0x40;
    assert_int_equal(pwrite(file, &byte, 1, at), 1);
    close(file);
    expect(store, key, NULL);
    assert_int_equal(warnings, seen + 1);
    assert_int_equal(notes, warnings);  // names the file
    assert_int_not_equal(access(path, F_OK), 0);
  }
  for (off_t size = 0; size < info.st_size; size += 7, ++seen) {
    put(store, key, "program");
    assert_int_equal(truncate(path, size), 0);
    expect(store, key, NULL);
    assert_int_equal(warnings, seen + 1);
  }
  put(store, key, "program");
  expect(store, key, "program");
  rabbet_store_destroy(store);
}

static void test_none_and_refused_folders(void** state) {
  (void)state;
  put(NULL, key, "program");
  expect(NULL, key, NULL);
  setenv("RABBET_PROGRAM_CACHE", "none", 1);
  rabbet_store_t* store = open_store();
  put(store, key, "program");
  expect(store, key, NULL);
  rabbet_store_destroy(store);
  assert_int_equal(notes, 0);
  // A folder that others can write to; a file in its place.
  char path[128];
  snprintf(path, sizeof(path), "%s/a", root);
  assert_int_equal(mkdir(path, 0700), 0);
  assert_int_equal(mkdir(folder, 0700), 0);
  assert_int_equal(chmod(folder, 0777), 0);
  setenv("RABBET_PROGRAM_CACHE", folder, 1);
  for (int i = 1; i <= 2; ++i) {
    store = open_store();
    put(store, key, "program");
    expect(store, key, NULL);
    rabbet_store_destroy(store);
    assert_int_equal(notes, i);
    assert_int_equal(remove(folder), 0);
    close(open(folder, O_CREAT | O_WRONLY, 0600));
  }
  assert_int_equal(warnings, 0);
}

static void test_forgets_the_oldest(void** state) {
  (void)state;
  static char big[100 << 10];
  memset(big, 'x', sizeof(big) - 1);
  setenv("RABBET_PROGRAM_CACHE_MIB", "1", 1);
  rabbet_store_t* store = open_store();
  char path[128];
  for (uint64_t i = 0; i < 14; ++i) {
    const rabbet_hash_t of = {0, i};
    put(store, of, big);
    snprintf(path, sizeof(path), "%s/%032llx", folder, (unsigned long long)i);
    // The first is as old as can be, but is read again.
    const struct timespec times[2] = {{.tv_sec = 1000 + (int)i},
                                      {.tv_sec = 1000 + (int)i}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
  }
  expect(store, (rabbet_hash_t){0, 0}, big);
  // The oldest file is not the store's, though its name is as long.
  char foreign[128];
  snprintf(foreign, sizeof(foreign), "%s/photographs-of-the-last-holidays",
           folder);
  assert_int_equal(strlen(strrchr(foreign, '/') + 1), 32);
  int file = open(foreign, O_CREAT | O_WRONLY, 0600);
  const struct timespec old[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
  assert_int_equal(futimens(file, old), 0);
  close(file);
  rabbet_store_destroy(store);
  assert_int_equal(unlink(foreign), 0);
  store = open_store();
  int left = 0;
  for (uint64_t i = 0; i < 14; ++i) {
    snprintf(path, sizeof(path), "%s/%032llx", folder, (unsigned long long)i);
    bool is_there = access(path, F_OK) == 0;
    left += is_there;
    assert_true(is_there == (i == 0 || i > 7));
  }
  assert_int_equal(left, 7);  // three quarters of a MiB
  setenv("RABBET_PROGRAM_CACHE_MIB", "much", 1);
  rabbet_store_destroy(store);
  store = open_store();
  expect(store, (rabbet_hash_t){0, 13}, big);
  assert_int_equal(warnings, 1);
  rabbet_store_destroy(store);
}

static void* write_and_read(void* context) {
  rabbet_store_t* store = open_store();
  for (uint64_t i = 0; i < 200; ++i) {
    const rabbet_hash_t of = {7, i % 5};
    void* data = NULL;
    size_t size = 0;
    put(store, of, "the same for all");
    put(context, of, "the same for all");
    RABBET_EXPECT_OK(
        rabbet_store_find(store, of, rabbet_allocator_system(), &data, &size));
    assert_string_equal(data, "the same for all");
    free(data);
  }
  rabbet_store_destroy(store);
  return NULL;
}

static void test_is_shared(void** state) {
  (void)state;
  rabbet_store_t* store = open_store();
  pthread_t threads[4];
  for (int i = 0; i < 4; ++i)
    pthread_create(&threads[i], NULL, write_and_read, store);
  for (int i = 0; i < 4; ++i)
    pthread_join(threads[i], NULL);
  rabbet_store_destroy(store);
  assert_int_equal(warnings + notes, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(test_keeps_for_the_next, each),
      cmocka_unit_test_setup(test_replaces_what_is_damaged, each),
      cmocka_unit_test_setup(test_none_and_refused_folders, each),
      cmocka_unit_test_setup(test_forgets_the_oldest, each),
      cmocka_unit_test_setup(test_is_shared, each),
  };
  return cmocka_run_group_tests(tests, begin, end);
}
