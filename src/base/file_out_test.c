// Files that are written piece by piece, and maps of what has no name.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "check.h"
#include "faults/fault_allocator.h"

#define SYSTEM rabbet_allocator_system()

static char folder[] = "/tmp/rabbet-file-out-XXXXXX";
static char path[64];

static void expect_contents(const char* text) {
  rabbet_file_map_t* map = NULL;
  RABBET_EXPECT_OK(rabbet_file_map_create(path, SYSTEM, &map));
  assert_int_equal(rabbet_file_map_size(map), strlen(text));
  assert_memory_equal(rabbet_file_map_data(map), text, strlen(text));
  rabbet_file_map_release(map);
}

static rabbet_status_t fill_and_rewrite(void* context, rabbet_file_out_t* out) {
  (void)context;
  assert_true(rabbet_file_out_is_seekable(out));
  RABBET_EXPECT_OK(rabbet_file_out_reserve(out, 11));
  RABBET_EXPECT_OK(rabbet_file_out_write(out, "????? ", 6));
  RABBET_EXPECT_OK(rabbet_file_out_write(out, "world", 5));
  return rabbet_file_out_rewrite(out, "hello", 5);
}

static rabbet_status_t fill_and_fail(void* context, rabbet_file_out_t* out) {
  (void)context;
  RABBET_EXPECT_OK(rabbet_file_out_write(out, "half", 4));
  return RABBET_STATUS(RABBET_STATUS_CANCELLED, "stopped on the way");
}

static void written_in_pieces(void** state) {
  (void)state;
  RABBET_EXPECT_OK(rabbet_file_write_by(
      path, (rabbet_file_fill_t){.fill = fill_and_rewrite}));
  expect_contents("hello world");
  // A failure leaves the old contents, and no temporary file.
  RABBET_EXPECT_ERROR(
      rabbet_file_write_by(path, (rabbet_file_fill_t){.fill = fill_and_fail}),
      RABBET_STATUS_CANCELLED, "stopped on the way");
  expect_contents("hello world");
  assert_int_equal(unlink(path), 0);
  assert_int_equal(rmdir(folder), 0);
  assert_non_null(mkdtemp(strcpy(folder, "/tmp/rabbet-file-out-XXXXXX")));
  snprintf(path, sizeof(path), "%s/file", folder);
}

static rabbet_status_t fill_a_device(void* context, rabbet_file_out_t* out) {
  (void)context;
  assert_false(rabbet_file_out_is_seekable(out));
  return rabbet_file_out_write(out, "x", 1);
}

static void devices_are_not_rewritten(void** state) {
  (void)state;
  RABBET_EXPECT_OK(rabbet_file_write_by(
      "/dev/null", (rabbet_file_fill_t){.fill = fill_a_device}));
  RABBET_EXPECT_ERROR(
      rabbet_file_write_by("/dev/full",
                           (rabbet_file_fill_t){.fill = fill_a_device}),
      RABBET_STATUS_IO, "cannot write '/dev/full': No space");
}

static rabbet_status_t map_temporary(rabbet_allocator_t allocator,
                                     void* user_data) {
  (void)user_data;
  rabbet_file_out_t* out = NULL;
  rabbet_file_map_t* map = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_file_out_create_temporary(4, allocator, &out));
  rabbet_status_t status = rabbet_file_out_write(out, "abcd", 4);
  if (rabbet_is_ok(status)) status = rabbet_file_out_map(out, &map);
  rabbet_file_out_destroy(out);
  if (rabbet_is_ok(status)) {
    assert_int_equal(rabbet_file_map_size(map), 4);
    assert_true(rabbet_file_map_is_own(map));
    assert_memory_equal(rabbet_file_map_data(map), "abcd", 4);
  }
  rabbet_file_map_release(map);
  return status;
}

static void files_without_a_name(void** state) {
  (void)state;
  rabbet_file_out_t* out = NULL;
  rabbet_fault_run(map_temporary, NULL);
  assert_int_equal(setenv("TMPDIR", "/no/such", 1), 0);
  RABBET_EXPECT_ERROR(rabbet_file_out_create_temporary(4, SYSTEM, &out),
                      RABBET_STATUS_NOT_FOUND, "/no/such");
  assert_int_equal(setenv("TMPDIR", folder, 1), 0);
  RABBET_EXPECT_ERROR(
      rabbet_file_out_create_temporary(UINT64_C(1) << 60, SYSTEM, &out),
      RABBET_STATUS_IO, folder);
  assert_int_equal(unsetenv("TMPDIR"), 0);
}

static rabbet_status_t map_block(rabbet_allocator_t allocator,
                                 void* user_data) {
  (void)user_data;
  void* block = NULL;
  rabbet_file_map_t* map = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_allocate_aligned(allocator, 64, 64, &block));
  rabbet_status_t status =
      rabbet_file_map_take_block(block, 64, 64, allocator, &map);
  if (!rabbet_is_ok(status)) rabbet_free_aligned(allocator, block, 64);
  assert_true(!map || rabbet_file_map_is_own(map));
  rabbet_file_map_release(map);
  return status;
}

static void blocks(void** state) {
  (void)state;
  rabbet_fault_run(map_block, NULL);
}

static void write_in_place(const char* text, int flags) {
  int file = open(path, O_WRONLY | flags);
  assert_true(file >= 0);
  assert_int_equal(write(file, text, strlen(text)), strlen(text));
  // The clock of files may stand still for some milliseconds.
  struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1}};
  assert_int_equal(futimens(file, times), 0);
  close(file);
}

static void changed_files_are_noticed(void** state) {
  (void)state;
  const rabbet_span_t part = {"contents", 8};
  rabbet_file_map_t* map = NULL;
  RABBET_EXPECT_OK(rabbet_file_write(path, &part, 1));
  RABBET_EXPECT_OK(rabbet_file_map_create(path, SYSTEM, &map));
  RABBET_EXPECT_OK(rabbet_file_map_check(map));
  // A file that takes its name changes nothing.
  RABBET_EXPECT_OK(rabbet_file_write(path, &part, 1));
  RABBET_EXPECT_OK(rabbet_file_map_check(map));
  rabbet_file_map_release(map);
  RABBET_EXPECT_OK(rabbet_file_map_create(path, SYSTEM, &map));
  write_in_place("CONTENTS", 0);
  RABBET_EXPECT_ERROR(rabbet_file_map_check(map), RABBET_STATUS_DATA_LOSS,
                      "was changed");
  rabbet_file_map_release(map);
  RABBET_EXPECT_OK(rabbet_file_map_create(path, SYSTEM, &map));
  write_in_place("cut", O_TRUNC);
  RABBET_EXPECT_ERROR(rabbet_file_map_check(map), RABBET_STATUS_DATA_LOSS,
                      "it had 8 bytes and has 3");
  rabbet_file_map_release(map);
}

static int begin(void** state) {
  (void)state;
  if (!mkdtemp(folder)) return 1;
  snprintf(path, sizeof(path), "%s/file", folder);
  return 0;
}

static int end(void** state) {
  (void)state;
  unlink(path);
  return rmdir(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(written_in_pieces),
      cmocka_unit_test(devices_are_not_rewritten),
      cmocka_unit_test(files_without_a_name),
      cmocka_unit_test(blocks),
      cmocka_unit_test(changed_files_are_noticed),
  };
  return cmocka_run_group_tests(tests, begin, end);
}
