// Where libraries are looked for, and messages for missing ones.
#define _GNU_SOURCE
#include "device/cuda/driver/library.h"

#include <dlfcn.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

#define VARIABLE "RABBET_TEST_LIBRARY"

// A name without a file, and one whose file a test links.
static const char* const names[] = {"librabbet_test_new.so.2",
                                    "librabbet_test_old.so.1", NULL};
static const rabbet_cuda_library_t library = {
    .title = "the test's library",
    .variable = VARIABLE,
    .file_names = names,
    .hint = "pip install nothing",
};

static char root[64];  // a folder for the test
static char real_library[4096];

static int begin(void** state) {
  (void)state;
  unsetenv("RABBET_CUDA_PATH");
  unsetenv("CUDA_HOME");
  unsetenv(VARIABLE);
  snprintf(root, sizeof(root), "/tmp/rabbet_library_XXXXXX");
  assert_non_null(mkdtemp(root));
  const char* driver = getenv("RABBET_CUDA_DRIVER");
  if (!driver) skip();
  snprintf(real_library, sizeof(real_library), "%s", driver);
  return 0;
}

static int end(void** state) {
  (void)state;
  char command[128];
  snprintf(command, sizeof(command), "rm -r %s", root);
  return system(command);
}

// root/folder/name is a link to a real library.
static void put(const char* folder, const char* name) {
  char command[8192];
  snprintf(command, sizeof(command), "mkdir -p %s/%s && ln -s %s %s/%s/%s",
           root, folder, real_library, root, folder, name);
  assert_int_equal(system(command), 0);
}

static void set(const char* variable, const char* folder) {
  char path[256];
  snprintf(path, sizeof(path), "%s/%s", root, folder);
  setenv(variable, path, 1);
}

static void expect_found(void) {
  void* handle = NULL;
  RABBET_EXPECT_OK(rabbet_cuda_library_open(&library, &handle));
  assert_non_null(handle);
  assert_non_null(dlsym(handle, "cuInit"));
}

static void missing(void** state) {
  (void)state;
  void* handle = &handle;
  RABBET_EXPECT_ERROR(
      rabbet_cuda_library_open(&library, &handle), RABBET_STATUS_UNAVAILABLE,
      "the test's library (librabbet_test_new.so.2) is not found: pip install "
      "nothing; or name the file in " VARIABLE);
  assert_null(handle);
}

// A library that was asked for by name is not replaced by another.
static void named_and_missing(void** state) {
  (void)state;
  void* handle = NULL;
  put("wheels/nvidia/cu13/lib", "librabbet_test_new.so.2");
  set("RABBET_CUDA_PATH", "wheels");
  set(VARIABLE, "nowhere.so");
  RABBET_EXPECT_ERROR(
      rabbet_cuda_library_open(&library, &handle), RABBET_STATUS_UNAVAILABLE,
      "the test's library cannot be opened from where " VARIABLE " points");
  assert_null(handle);
}

static void named(void** state) {
  (void)state;
  setenv(VARIABLE, real_library, 1);
  expect_found();
  setenv(VARIABLE, "", 1);  // as if it were not set
  missing(state);
}

static void in_wheels(void** state) {
  (void)state;
  put("site/nvidia/test_library/lib", "librabbet_test_old.so.1");
  set("RABBET_CUDA_PATH", "site");
  expect_found();
}

static void in_new_wheels(void** state) {
  (void)state;
  put("site/nvidia/cu13/lib", "librabbet_test_new.so.2");
  set("RABBET_CUDA_PATH", "site");
  expect_found();
}

static void in_a_list_of_folders(void** state) {
  (void)state;
  char list[256];
  put("second", "librabbet_test_new.so.2");
  snprintf(list, sizeof(list), ":%s/first::%s/second", root, root);
  setenv("RABBET_CUDA_PATH", list, 1);
  expect_found();
}

static void in_a_toolkit(void** state) {
  (void)state;
  put("toolkit/lib64", "librabbet_test_old.so.1");
  set("CUDA_HOME", "toolkit");
  expect_found();
}

static void loaded_already(void** state) {
  (void)state;
  static const char* const own[] = {"libm.so.6", NULL};
  rabbet_cuda_library_t loaded = library;
  loaded.file_names = own;
  void *handle = NULL, *before = dlopen("libm.so.6", RTLD_NOW | RTLD_NOLOAD);
  RABBET_EXPECT_OK(rabbet_cuda_library_open(&loaded, &handle));
  assert_non_null(before);
  assert_ptr_equal(handle, before);
  dlclose(before);
}

typedef struct table_t {
  int (*init)(unsigned flags);
  int (*rare)(void);
} table_t;

static void bound(void** state) {
  (void)state;
  static const rabbet_cuda_symbol_t symbols[] = {
      {"cuInit", offsetof(table_t, init), false},
      {"cuIsNotThere", offsetof(table_t, rare), true},
  };
  static const rabbet_cuda_symbol_t needed[] = {
      {"cuIsNotThere", offsetof(table_t, rare), false},
  };
  void* handle = NULL;
  table_t table = {.rare = (int (*)(void))(uintptr_t)1};
  setenv(VARIABLE, real_library, 1);
  RABBET_EXPECT_OK(rabbet_cuda_library_open(&library, &handle));
  RABBET_EXPECT_OK(
      rabbet_cuda_library_bind(&library, handle, symbols, 2, &table));
  assert_non_null(table.init);
  assert_true(table.rare == NULL);
  RABBET_EXPECT_ERROR(
      rabbet_cuda_library_bind(&library, handle, needed, 1, &table),
      RABBET_STATUS_UNAVAILABLE,
      "the test's library has no function cuIsNotThere: it is too old; pip "
      "install nothing");
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
  const struct CMUnitTest tests[] = {
      TEST(missing),      TEST(named_and_missing), TEST(named),
      TEST(in_wheels),    TEST(in_new_wheels),     TEST(in_a_list_of_folders),
      TEST(in_a_toolkit), TEST(loaded_already),    TEST(bound),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
