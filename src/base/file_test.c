#define _GNU_SOURCE
#include "base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "faults/fault_allocator.h"

static char folder[] = "/tmp/rabbet_file_test_XXXXXX";
static char path[128];

static int make_folder(void** state) {
  (void)state;
  if (!mkdtemp(folder)) return -1;
  snprintf(path, sizeof(path), "%s/file", folder);
  return 0;
}

static size_t count_files(bool unlink_them) {
  DIR* entries = opendir(folder);
  size_t count = 0;
  for (struct dirent* entry; (entry = readdir(entries));) {
    if (entry->d_name[0] == '.') continue;
    ++count;
    if (unlink_them) unlinkat(dirfd(entries), entry->d_name, 0);
  }
  closedir(entries);
  return count;
}

static int empty_folder(void** state) {
  (void)state;
  count_files(true);
  return 0;
}

static int remove_folder(void** state) {
  (void)state;
  return rmdir(folder);
}

static void expect_contents(const char* of, const char* text) {
  rabbet_file_map_t* map = NULL;
  RABBET_EXPECT_OK(rabbet_file_map_create(of, rabbet_allocator_system(), &map));
  assert_false(rabbet_file_map_is_own(map));  // others may write to it
  assert_int_equal(rabbet_file_map_size(map), strlen(text));
  if (*text) assert_memory_equal(rabbet_file_map_data(map), text, strlen(text));
  rabbet_file_map_release(map);
}

static void test_write_and_map(void** state) {
  (void)state;
  rabbet_span_t parts[] = {{"one ", 4}, {NULL, 0}, {"two", 3}};
  RABBET_EXPECT_OK(rabbet_file_write(path, parts, 3));
  expect_contents(path, "one two");
  RABBET_EXPECT_OK(rabbet_file_write(path, parts, 0));
  expect_contents(path, "");
  assert_int_equal(count_files(false), 1);  // no temporary file stays
}

static rabbet_status_t map_file(rabbet_allocator_t allocator, void* user_data) {
  rabbet_file_map_t* map = NULL;
  rabbet_status_t status = rabbet_file_map_create(user_data, allocator, &map);
  rabbet_file_map_release(map);
  return status;
}

static void test_map_outlives_replacement(void** state) {
  (void)state;
  rabbet_span_t old = {"old", 3}, new = {"newer", 5};
  rabbet_file_map_t* map = NULL;
  RABBET_EXPECT_OK(rabbet_file_write(path, &old, 1));
  RABBET_EXPECT_OK(
      rabbet_file_map_create(path, rabbet_allocator_system(), &map));
  rabbet_file_map_retain(map);
  rabbet_file_map_release(map);
  RABBET_EXPECT_OK(rabbet_file_write(path, &new, 1));
  assert_memory_equal(rabbet_file_map_data(map), "old", 3);
  rabbet_file_map_release(map);
  expect_contents(path, "newer");
  rabbet_fault_run(map_file, path);
}

static void test_map_errors(void** state) {
  (void)state;
  rabbet_allocator_t system = rabbet_allocator_system();
  rabbet_file_map_t* map = NULL;
  RABBET_EXPECT_ERROR(rabbet_file_map_create("/no/such", system, &map),
                      RABBET_STATUS_NOT_FOUND, "'/no/such'");
  RABBET_EXPECT_ERROR(rabbet_file_map_create(folder, system, &map),
                      RABBET_STATUS_IO, "a folder");
  RABBET_EXPECT_ERROR(rabbet_file_map_create("/dev/null", system, &map),
                      RABBET_STATUS_IO, "a device");
  assert_null(map);
  rabbet_file_map_release(NULL);
}

static void test_write_errors(void** state) {
  (void)state;
  rabbet_span_t part = {"x", 1};
  char name[5000];
  RABBET_EXPECT_ERROR(rabbet_file_write("/no/such/file", &part, 1),
                      RABBET_STATUS_NOT_FOUND, "'/no/such/file'");
  RABBET_EXPECT_ERROR(rabbet_file_write(folder, &part, 1), RABBET_STATUS_IO,
                      "directory");
  memset(name, 'n', sizeof(name) - 1);
  name[sizeof(name) - 1] = '\0';
  RABBET_EXPECT_ERROR(rabbet_file_write(name, &part, 1), RABBET_STATUS_IO,
                      "too long");
  RABBET_EXPECT_ERROR(rabbet_file_write("/dev/full", &part, 1),
                      RABBET_STATUS_IO, "No space");
}

// A pipe that nobody writes to, or reads, is told and not waited for.
static void test_pipes_do_not_block(void** state) {
  (void)state;
  rabbet_file_map_t* map = NULL;
  rabbet_span_t part = {"through", 7};
  assert_int_equal(mkfifo(path, 0600), 0);
  RABBET_EXPECT_ERROR(
      rabbet_file_map_create(path, rabbet_allocator_system(), &map),
      RABBET_STATUS_IO, "it is a pipe, not a regular file");
  RABBET_EXPECT_ERROR(rabbet_file_write(path, &part, 1), RABBET_STATUS_IO,
                      "a pipe that nobody reads");
  int reader = open(path, O_RDONLY | O_NONBLOCK);
  RABBET_EXPECT_OK(rabbet_file_write(path, &part, 1));
  char text[8] = {0};
  assert_int_equal(read(reader, text, sizeof(text)), 7);
  assert_string_equal(text, "through");
  close(reader);
  struct stat info;
  assert_int_equal(stat(path, &info), 0);
  assert_true(S_ISFIFO(info.st_mode));
}

static void test_write_keeps_the_mode(void** state) {
  (void)state;
  rabbet_span_t part = {"x", 1};
  struct stat info;
  RABBET_EXPECT_OK(rabbet_file_write(path, &part, 1));
  assert_int_equal(chmod(path, 0640), 0);
  RABBET_EXPECT_OK(rabbet_file_write(path, &part, 1));
  assert_int_equal(stat(path, &info), 0);
  assert_int_equal(info.st_mode & 0777, 0640);
}

static size_t count_hidden(void) {
  DIR* entries = opendir(folder);
  size_t count = 0;
  for (struct dirent* entry; (entry = readdir(entries));)
    count += strncmp(entry->d_name, ".rabbet-", 8) == 0;
  closedir(entries);
  return count;
}

static void make_hidden(const char* name, int* out_file) {
  char full[160];
  snprintf(full, sizeof(full), "%s/%s", folder, name);
  *out_file = open(full, O_WRONLY | O_CREAT | O_EXCL, 0600);
  assert_true(*out_file >= 0);
}

// Files that writers left behind go with the next write; those of writers at
// work, and of others, stay.
static void test_leftovers_are_removed(void** state) {
  (void)state;
  rabbet_span_t part = {"x", 1};
  int left, busy, other;
  make_hidden(".rabbet-123-4.tmp", &left);
  make_hidden(".rabbet-123-5.tmp", &busy);
  make_hidden(".rabbet-notes.tmp", &other);
  close(left);
  assert_int_equal(flock(busy, LOCK_EX), 0);
  RABBET_EXPECT_OK(rabbet_file_write(path, &part, 1));
  assert_int_equal(count_hidden(), 2);
  close(busy);
  RABBET_EXPECT_OK(rabbet_file_write(path, &part, 1));
  assert_int_equal(count_hidden(), 1);
  close(other);
  snprintf(path, sizeof(path), "%s/.rabbet-notes.tmp", folder);
  assert_int_equal(unlink(path), 0);
  snprintf(path, sizeof(path), "%s/file", folder);
}

// A leftover that was to replace a read-only file, seen by a user other than
// root.
static void test_read_only_leftovers(void** state) {
  (void)state;
  rabbet_span_t part = {"x", 1};
  int left, result = 0;
  make_hidden(".rabbet-123-4.tmp", &left);
  assert_int_equal(fchmod(left, 0444), 0);
  assert_true(geteuid() != 0 || (fchown(left, 65534, 65534) == 0 &&
                                 chown(folder, 65534, 65534) == 0));
  close(left);
  pid_t child = fork();
  if (child == 0) {
    if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0) _exit(2);
    rabbet_status_t status = rabbet_file_write(path, &part, 1);
    _exit(rabbet_is_ok(status) ? 0 : 1);
  }
  assert_int_equal(waitpid(child, &result, 0), child);
  assert_int_equal(result, 0);
  assert_int_equal(count_hidden(), 0);
}

static rabbet_status_t append_one(void* context, rabbet_span_t old,
                                  rabbet_allocator_t allocator,
                                  rabbet_span_t* out_new) {
  char* data = NULL;
  (void)context;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(allocator, old.size + 1, (void**)&data));
  if (old.size) memcpy(data, old.data, old.size);
  data[old.size] = 'x';
  *out_new = (rabbet_span_t){data, old.size + 1};
  return rabbet_ok();
}

enum { UPDATERS = 4, UPDATES = 25 };

static void* update_often(void* unused) {
  rabbet_file_change_t change = {.make = append_one};
  for (int i = 0; i < UPDATES; ++i)
    rabbet_status_ignore(
        rabbet_file_update(path, change, rabbet_allocator_system()));
  return unused;
}

// Nobody's change is lost, be it a thread's or another process'.
static void test_updates_take_turns(void** state) {
  (void)state;
  pid_t children[2];
  for (int c = 0; c < 2; ++c) {
    children[c] = fork();
    if (children[c] > 0) continue;
    pthread_t threads[UPDATERS];
    for (int i = 0; i < UPDATERS; ++i)
      pthread_create(&threads[i], NULL, update_often, NULL);
    for (int i = 0; i < UPDATERS; ++i)
      pthread_join(threads[i], NULL);
    _exit(0);
  }
  for (int c = 0; c < 2; ++c)
    assert_int_equal(waitpid(children[c], NULL, 0), children[c]);
  struct stat info;
  assert_int_equal(stat(path, &info), 0);
  assert_int_equal(info.st_size, 2 * UPDATERS * UPDATES);
  assert_int_equal(count_files(false), 1);
  assert_int_equal(count_hidden(), 0);
}

static rabbet_status_t update_file(rabbet_allocator_t allocator,
                                   void* user_data) {
  (void)user_data;
  return rabbet_file_update(path, (rabbet_file_change_t){.make = append_one},
                            allocator);
}

static pid_t forked;

static rabbet_status_t fork_and_fail(void* context, rabbet_span_t old,
                                     rabbet_allocator_t allocator,
                                     rabbet_span_t* out_new) {
  (void)context, (void)old, (void)allocator, (void)out_new;
  forked = fork();
  if (forked == 0)
    for (;;)
      pause();
  return RABBET_STATUS(RABBET_STATUS_IO, "made to fail");
}

// A process forked during an update that fails does not keep the lock.
static void test_forked_processes_keep_no_lock(void** state) {
  (void)state;
  rabbet_allocator_t system = rabbet_allocator_system();
  RABBET_EXPECT_ERROR(
      rabbet_file_update(path, (rabbet_file_change_t){.make = fork_and_fail},
                         system),
      RABBET_STATUS_IO, "made to fail");
  int file = open(path, O_RDONLY);
  int locked = flock(file, LOCK_EX | LOCK_NB);
  kill(forked, SIGKILL);
  waitpid(forked, NULL, 0);
  close(file);
  assert_int_equal(locked, 0);
}

static void test_update_without_memory_or_file(void** state) {
  (void)state;
  rabbet_fault_run(update_file, NULL);
  rabbet_file_change_t change = {.make = append_one};
  rabbet_allocator_t system = rabbet_allocator_system();
  RABBET_EXPECT_OK(rabbet_file_update("/dev/null", change, system));
  RABBET_EXPECT_ERROR(rabbet_file_update("/no/such/file", change, system),
                      RABBET_STATUS_NOT_FOUND, "'/no/such/file'");
}

static void test_paths_below(void** state) {
  (void)state;
  char inside[160], *real = NULL;
  assert_true(rabbet_path_is_below("/a/b", "/a"));
  assert_true(rabbet_path_is_below("/a", "/"));
  assert_false(rabbet_path_is_below("/ab", "/a"));
  assert_false(rabbet_path_is_below("/a", "/a"));
  snprintf(inside, sizeof(inside), "%s/../%s", folder, folder + 5);
  RABBET_EXPECT_OK(
      rabbet_path_resolve(inside, rabbet_allocator_system(), &real));
  assert_string_equal(real, folder);
  rabbet_free(rabbet_allocator_system(), real);
}

static void test_write_spares_devices_and_links(void** state) {
  (void)state;
  rabbet_span_t part = {"x", 1}, part2 = {"yy", 2};
  RABBET_EXPECT_OK(rabbet_file_write("/dev/null", &part, 1));
  struct stat info;
  assert_int_equal(stat("/dev/null", &info), 0);
  assert_true(S_ISCHR(info.st_mode));
  char link[160];
  snprintf(link, sizeof(link), "%s/link", folder);
  RABBET_EXPECT_OK(rabbet_file_write(path, &part, 1));
  assert_int_equal(symlink(path, link), 0);
  RABBET_EXPECT_OK(rabbet_file_write(link, &part2, 1));
  assert_int_equal(lstat(link, &info), 0);
  assert_true(S_ISLNK(info.st_mode));
  expect_contents(path, "yy");
  // A link to nothing yet.
  assert_int_equal(unlink(path), 0);
  RABBET_EXPECT_OK(rabbet_file_write(link, &part, 1));
  assert_int_equal(lstat(link, &info), 0);
  assert_true(S_ISLNK(info.st_mode));
  expect_contents(path, "x");
  // An unlinked file: the descriptor's file gets the bytes.
  char name[32], text[4] = {0};
  int file = open(path, O_RDWR);
  assert_int_equal(unlink(path), 0);
  snprintf(name, sizeof(name), "/proc/self/fd/%d", file);
  RABBET_EXPECT_OK(rabbet_file_write(name, &part2, 1));
  assert_int_equal(pread(file, text, sizeof(text), 0), 2);
  assert_string_equal(text, "yy");
  close(file);
}

static rabbet_status_t join_path(rabbet_allocator_t allocator,
                                 void* user_data) {
  const char* const* row = user_data;
  char* joined = NULL;
  rabbet_status_t status =
      rabbet_path_join_beside(row[0], row[1], allocator, &joined);
  if (rabbet_is_ok(status)) assert_string_equal(joined, row[2]);
  rabbet_free(allocator, joined);
  return status;
}

static void test_join(void** state) {
  (void)state;
  static const char* rows[][3] = {
      {"a/b/model.onnx", "w.bin", "a/b/w.bin"},
      {"model.onnx", "w.bin", "./w.bin"},
      {"/model.onnx", "w.bin", "/w.bin"},
      {"a/", "w.bin", "a/w.bin"},
      {"a/b/model.onnx", "/abs/w.bin", "/abs/w.bin"},
      {"a/m", "sub/w", "a/sub/w"},
  };
  for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i)
    rabbet_fault_run(join_path, rows[i]);
}

static void fill_pages(char* pages, size_t size) {
  for (size_t i = 0; i < size; ++i)
    pages[i] = (char)(i * 7 + i / 251);
}

static void test_dropped_pages_come_back(void** state) {
  (void)state;
  const size_t page = (size_t)sysconf(_SC_PAGESIZE), size = 5 * page + 3;
  const rabbet_allocator_t allocator = rabbet_allocator_system();
  rabbet_file_map_t *map = NULL, *block = NULL;
  char* pages = test_malloc(size);
  void* memory = NULL;
  fill_pages(pages, size);
  RABBET_EXPECT_OK(rabbet_file_write(path, &(rabbet_span_t){pages, size}, 1));
  RABBET_EXPECT_OK(rabbet_file_map_create(path, allocator, &map));
  RABBET_EXPECT_OK(rabbet_allocate_aligned(allocator, size, page, &memory));
  memcpy(memory, pages, size);
  RABBET_EXPECT_OK(
      rabbet_file_map_take_block(memory, size, page, allocator, &block));
  const uint8_t* data = rabbet_file_map_data(map);
  assert_memory_equal(data, pages, size);
  rabbet_file_map_drop(map, data + 1, size - 2);
  rabbet_file_map_drop(map, data, size);
  assert_memory_equal(data, pages, size);
  // Memory that is no part of the file's map must stay as it is.
  rabbet_file_map_drop(map, memory, size);
  rabbet_file_map_drop(map, data + page, size);
  rabbet_file_map_drop(block, memory, size);
  rabbet_file_map_drop(NULL, memory, size);
  assert_memory_equal(memory, pages, size);
  assert_memory_equal(data, pages, size);
  rabbet_file_map_release(map);
  rabbet_file_map_release(block);
  test_free(pages);
}

#define RABBET_FILE_TEST(function) \
  cmocka_unit_test_teardown(function, empty_folder)

int main(void) {
  const struct CMUnitTest tests[] = {
      RABBET_FILE_TEST(test_write_and_map),
      RABBET_FILE_TEST(test_map_outlives_replacement),
      RABBET_FILE_TEST(test_map_errors),
      RABBET_FILE_TEST(test_dropped_pages_come_back),
      RABBET_FILE_TEST(test_write_errors),
      RABBET_FILE_TEST(test_write_spares_devices_and_links),
      RABBET_FILE_TEST(test_pipes_do_not_block),
      RABBET_FILE_TEST(test_write_keeps_the_mode),
      RABBET_FILE_TEST(test_leftovers_are_removed),
      RABBET_FILE_TEST(test_read_only_leftovers),
      RABBET_FILE_TEST(test_updates_take_turns),
      RABBET_FILE_TEST(test_forked_processes_keep_no_lock),
      RABBET_FILE_TEST(test_update_without_memory_or_file),
      RABBET_FILE_TEST(test_paths_below),
      RABBET_FILE_TEST(test_join),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
