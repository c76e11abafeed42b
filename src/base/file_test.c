#define _GNU_SOURCE
#include "base/file.h"

#include <dirent.h>
#include <sys/stat.h>
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

#define RABBET_FILE_TEST(function) \
  cmocka_unit_test_teardown(function, empty_folder)

int main(void) {
  const struct CMUnitTest tests[] = {
      RABBET_FILE_TEST(test_write_and_map),
      RABBET_FILE_TEST(test_map_outlives_replacement),
      RABBET_FILE_TEST(test_map_errors),
      RABBET_FILE_TEST(test_write_errors),
      RABBET_FILE_TEST(test_write_spares_devices_and_links),
      RABBET_FILE_TEST(test_join),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
