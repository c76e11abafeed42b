// Plugin libraries, as files and in plans; source in plans.
#define _GNU_SOURCE
#include <link.h>
#include <math.h>
#include <unistd.h>

#include "base/file.h"
#include "faults/fault_allocator.h"
#include "plan_samples.h"
#include "plugin/library.h"
#include "plugin/source_host.h"
#include "rabbet/engine.h"

#define SYSTEM rabbet_allocator_system()

// ---- Helpers

static rabbet_file_map_t* library_file(const char* name) {
  char path[512];
  rabbet_file_map_t* map = NULL;
  snprintf(path, sizeof(path), LIBRARIES "library_%s.so", name);
  RABBET_EXPECT_OK(rabbet_file_map_create(path, SYSTEM, &map));
  return map;
}

static rabbet_status_t load_file(const char* name) {
  char path[512];
  snprintf(path, sizeof(path), LIBRARIES "library_%s.so", name);
  return rabbet_plugin_load_library(path);
}

// Also deregisters the creator.
static int count_creators(void) {
  rabbet_status_t status = rabbet_plugin_deregister("halve", "1", "carried");
  bool found = rabbet_is_ok(status);
  rabbet_status_ignore(status);
  return found;
}

// How many libraries of this process have `part` in their name.
typedef struct loaded_t {
  const char* part;
  int count;
} loaded_t;

static int loaded_one(struct dl_phdr_info* info, size_t size, void* context) {
  loaded_t* loaded = context;
  (void)size;
  loaded->count += strstr(info->dlpi_name, loaded->part) != NULL;
  return 0;
}

static int loaded(const char* part) {
  loaded_t all = {part, 0};
  dl_iterate_phdr(loaded_one, &all);
  return all.count;
}

// y = halve(x + w) of sample_static.
static void sample_halve(maker_t* m) {
  sample_static(m);
  m->steps[1].kernel = "plugin";
  m->steps[1].plugin_name = "halve";
  m->steps[1].plugin_version = "1";
  m->steps[1].plugin_namespace = "carried";
  m->steps[1].plugin_origin = "somewhere.py";
  m->steps[1].group.nodes[0].op = rabbet_op_get(RABBET_OP_PLUGIN);
}

static rabbet_status_t load_with(const rabbet_carried_t* carried, size_t count,
                                 rabbet_engine_options_t options,
                                 rabbet_allocator_t allocator,
                                 rabbet_engine_t** out_engine) {
  maker_t maker;
  void* data = NULL;
  size_t size = 0;
  maker_begin(&maker, SYSTEM);
  sample_halve(&maker);
  maker.plan->carried = maker_copy(&maker, carried, count * sizeof(*carried));
  maker.plan->carried_count = count;
  maker_write(&maker, SYSTEM, &data, &size);
  maker_end(&maker);
  options.struct_size = sizeof(options);
  rabbet_status_t status =
      rabbet_engine_deserialize(data, size, &options, allocator, out_engine);
  rabbet_free_aligned(SYSTEM, data, RABBET_PLAN_ALIGNMENT);
  return status;
}

static rabbet_status_t load_library(const char* name, size_t bytes,
                                    rabbet_engine_options_t options,
                                    rabbet_engine_t** out_engine) {
  rabbet_file_map_t* map = library_file(name);
  rabbet_carried_t carried = {.kind = RABBET_CARRIED_LIBRARY,
                              .name = "carried.so",
                              .data = rabbet_file_map_data(map),
                              .size = rabbet_file_map_size(map)};
  if (bytes > 0) carried.size = bytes;
  rabbet_status_t status = load_with(&carried, 1, options, SYSTEM, out_engine);
  rabbet_file_map_release(map);
  return status;
}

static rabbet_status_t run(rabbet_engine_t* engine, float* x, float* y) {
  rabbet_context_t* context = NULL;
  RABBET_EXPECT_OK(rabbet_context_create(engine, SYSTEM, &context));
  RABBET_EXPECT_OK(rabbet_context_set_address(context, 0, x));
  RABBET_EXPECT_OK(rabbet_context_set_address(context, 1, y));
  rabbet_status_t status = rabbet_context_execute(context, NULL);
  rabbet_context_destroy(context);
  return status;
}

static void expect_halves(rabbet_engine_t* engine) {
  float x[6] = {0, 1, 2, 3, 4, 5}, y[6];
  RABBET_EXPECT_OK(run(engine, x, y));
  for (int i = 0; i < 6; ++i)
    assert_float_equal(y[i], (x[i] + (float)i / 2 - 1) / 2, 0);
}

// ---- Files

static void files(void** state) {
  (void)state;
  RABBET_EXPECT_OK(load_file("good"));
  RABBET_EXPECT_ERROR(load_file("good"), RABBET_STATUS_ALREADY_EXISTS,
                      "library_good.so': a plugin 'halve', version '1', "
                      "namespace 'carried' is registered already");
  assert_int_equal(count_creators(), 1);
  RABBET_EXPECT_OK(load_file("good"));
  assert_int_equal(count_creators(), 1);
}

static void indirect_entry(void** state) {
  (void)state;
  RABBET_EXPECT_OK(load_file("indirect"));
  assert_int_equal(count_creators(), 1);
}

// A library that fails leaves nothing behind.
static void wrong_files(void** state) {
  (void)state;
  static const struct {
    const char* name;
    rabbet_status_code_t code;
    const char* message;
  } list[] = {
      {"without_entry", RABBET_STATUS_INVALID_ARGUMENT,
       "it does not export rabbet_plugin_library_register"},
      {"later_abi", RABBET_STATUS_INCOMPATIBLE,
       "it is made for version 3 of the plugin interface; rabbet 0"},
      {"without_abi", RABBET_STATUS_INCOMPATIBLE,
       "it is made for version 1 of the plugin interface; rabbet 0"},
      {"twice", RABBET_STATUS_ALREADY_EXISTS, "library_twice.so': a plugin"},
      {"fails", RABBET_STATUS_UNAVAILABLE,
       "library_fails.so': it was made to fail"},
      {"absent", RABBET_STATUS_UNAVAILABLE, "it cannot be opened: "},
      {"data_entry", RABBET_STATUS_INCOMPATIBLE,
       "symbol rabbet_plugin_library_register is data; expected a function"},
      {"constant_entry", RABBET_STATUS_INCOMPATIBLE,
       "symbol rabbet_plugin_library_register is data; expected a function"},
      {"thread_entry", RABBET_STATUS_INCOMPATIBLE,
       "symbol rabbet_plugin_library_register is data; expected a function"},
      {"data_abi", RABBET_STATUS_INCOMPATIBLE,
       "symbol rabbet_plugin_library_abi is data; expected a function"},
  };
  for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); ++i) {
    RABBET_EXPECT_ERROR(load_file(list[i].name), list[i].code, list[i].message);
    assert_int_equal(count_creators(), 0);
    assert_int_equal(loaded(list[i].name), 0);
  }
  RABBET_EXPECT_ERROR(rabbet_plugin_load_library(NULL),
                      RABBET_STATUS_INVALID_ARGUMENT, "path is NULL");
}

// Libraries that would end the process if the loader saw them.
static void damaged(void** state) {
  (void)state;
  rabbet_file_map_t* map = library_file("good");
  size_t size = rabbet_file_map_size(map);
  uint8_t* copy = malloc(size);
  static const struct {
    size_t at;
    uint8_t byte;
    rabbet_status_code_t code;
    const char* message;
  } list[] = {
      {0, 0, RABBET_STATUS_INVALID_ARGUMENT,
       "'x.so': it is not a shared library"},
      {4, 1, RABBET_STATUS_INCOMPATIBLE, "another kind of machine"},
      {18, 3, RABBET_STATUS_INCOMPATIBLE, "machine 3; expected 2, "},
      {16, 2, RABBET_STATUS_INVALID_ARGUMENT, "an ELF file of type 2"},
      {35, 1, RABBET_STATUS_DATA_LOSS, "its table of segments"},
      {56, 0, RABBET_STATUS_INVALID_ARGUMENT, "nothing of it can be linked"},
  };
  for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); ++i) {
    memcpy(copy, rabbet_file_map_data(map), size);
    copy[list[i].at] = list[i].byte;
    RABBET_EXPECT_ERROR(rabbet_plugin_library_check("x.so", copy, size),
                        list[i].code, list[i].message);
  }
  memcpy(copy, rabbet_file_map_data(map), size);
  RABBET_EXPECT_OK(rabbet_plugin_library_check("x.so", copy, size));
  RABBET_EXPECT_ERROR(rabbet_plugin_library_check("x.so", copy, 63),
                      RABBET_STATUS_INVALID_ARGUMENT, "not a shared library");
  RABBET_EXPECT_ERROR(rabbet_plugin_library_check("x.so", copy, 0x1000),
                      RABBET_STATUS_DATA_LOSS, "truncated or damaged: segment");
  free(copy);
  rabbet_file_map_release(map);
}

// ---- Libraries in a plan

static void carried_library(void** state) {
  (void)state;
  rabbet_engine_options_t allowed = {.host_code_allowed = true};
  rabbet_engine_t *first = NULL, *second = NULL;
  RABBET_EXPECT_ERROR(
      load_library("good", 0, (rabbet_engine_options_t){0}, &first),
      RABBET_STATUS_FAILED_PRECONDITION,
      "the plan carries the plugin library 'carried.so', native code that runs "
      "when it is loaded: allow that");
  assert_null(first);
  // Each engine has its own libraries: others do not see their plugins.
  RABBET_EXPECT_OK(load_library("good", 0, allowed, &first));
  RABBET_EXPECT_OK(load_library("good", 0, allowed, &second));
  assert_int_equal(count_creators(), 0);
  assert_int_equal(loaded("/proc/self/fd/"), 2);
  expect_halves(first);
  expect_halves(second);
  assert_string_equal(rabbet_engine_carried(first, 0)->name, "carried.so");
  assert_null(rabbet_engine_carried(first, 1));
  rabbet_engine_release(first);
  expect_halves(second);
  rabbet_engine_release(second);
  assert_int_equal(loaded("/proc/self/fd/"), 0);
}

// An error message outlives the library that it came from.
static void failures_outlive_libraries(void** state) {
  (void)state;
  rabbet_engine_options_t allowed = {.host_code_allowed = true};
  rabbet_engine_t* engine = NULL;
  float x[6] = {NAN}, y[6];
  RABBET_EXPECT_OK(load_library("good", 0, allowed, &engine));
  rabbet_status_t status = run(engine, x, y);
  rabbet_engine_release(engine);
  assert_int_equal(loaded("/proc/self/fd/"), 0);
  assert_non_null(strstr(rabbet_status_file(status), "library.c"));
  RABBET_EXPECT_ERROR(status, RABBET_STATUS_PLUGIN,
                      "the first element is not a number");
}

static void wrong_carried_libraries(void** state) {
  (void)state;
  rabbet_engine_options_t allowed = {.host_code_allowed = true};
  rabbet_engine_t* engine = NULL;
  RABBET_EXPECT_ERROR(load_library("later_abi", 0, allowed, &engine),
                      RABBET_STATUS_INCOMPATIBLE,
                      "carried by the plan: plugin library 'carried.so': it is "
                      "made for version 3");
  RABBET_EXPECT_ERROR(load_library("without_entry", 0, allowed, &engine),
                      RABBET_STATUS_INVALID_ARGUMENT, "does not export");
  RABBET_EXPECT_ERROR(load_library("data_entry", 0, allowed, &engine),
                      RABBET_STATUS_INCOMPATIBLE, "is data");
  RABBET_EXPECT_ERROR(load_library("fails", 0, allowed, &engine),
                      RABBET_STATUS_UNAVAILABLE, "it was made to fail");
  RABBET_EXPECT_ERROR(load_library("good", 0x1000, allowed, &engine),
                      RABBET_STATUS_DATA_LOSS, "truncated");
  assert_null(engine);
  assert_int_equal(loaded("/proc/self/fd/"), 0);
}

static void kinds_of_files(void** state) {
  (void)state;
  rabbet_engine_options_t options = {.host_code_allowed = true,
                                     .no_memory_files = true,
                                     .temporary_directory = "."};
  rabbet_engine_t* engine = NULL;
  RABBET_EXPECT_OK(load_library("good", 0, options, &engine));
  assert_int_equal(loaded("/proc/self/fd/"), 0);
  assert_int_equal(loaded("./rabbet-"), 1);
  expect_halves(engine);
  rabbet_engine_release(engine);
  assert_int_equal(loaded("./rabbet-"), 0);
  options.temporary_directory = "/dev/null/none";
  RABBET_EXPECT_ERROR(load_library("good", 0, options, &engine),
                      RABBET_STATUS_IO, "in folder '/dev/null/none'");
  options.no_temporary_files = true;
  RABBET_EXPECT_ERROR(load_library("good", 0, options, &engine),
                      RABBET_STATUS_FAILED_PRECONDITION,
                      "neither files in memory nor temporary files");
}

static rabbet_status_t load_once(rabbet_allocator_t allocator,
                                 void* user_data) {
  rabbet_engine_t* engine = NULL;
  rabbet_status_t status = load_with(
      user_data, 1, (rabbet_engine_options_t){.host_code_allowed = true},
      allocator, &engine);
  rabbet_engine_release(engine);
  return status;
}

static void out_of_memory(void** state) {
  (void)state;
  rabbet_file_map_t* map = library_file("good");
  rabbet_carried_t carried = {.kind = RABBET_CARRIED_LIBRARY,
                              .name = "carried.so",
                              .data = rabbet_file_map_data(map),
                              .size = rabbet_file_map_size(map)};
  assert_true(rabbet_fault_run_tolerant(load_once, &carried) > 0);
  assert_int_equal(loaded("/proc/self/fd/"), 0);
  rabbet_file_map_release(map);
}

// ---- Source in a plan

static const rabbet_carried_t module = {.kind = RABBET_CARRIED_PYTHON,
                                        .name = "somewhere",
                                        .data = "halve",
                                        .size = 5};

static rabbet_status_t host_collect(void* user_data,
                                    const rabbet_plugin_key_t* plugins,
                                    size_t plugin_count,
                                    const char* const* modules,
                                    size_t module_count,
                                    rabbet_carried_sink_t sink) {
  (void)user_data, (void)plugins, (void)plugin_count, (void)modules,
      (void)module_count, (void)sink;
  return rabbet_ok();
}

// A module's text names the library that registers its plugins.
static rabbet_status_t host_run(void* user_data,
                                const rabbet_carried_t* modules, size_t count) {
  ++*(int*)user_data;
  assert_int_equal(count, 1);
  assert_memory_equal(modules[0].data, "halve", 5);
  return load_file("good");
}

static rabbet_status_t host_load(void* user_data, const char* const* plugins,
                                 size_t count) {
  *(int*)user_data += (int)count;
  return load_file(plugins[0]);
}

static void host_close(void* user_data) {
  *(int*)user_data = -1;
}

// Hosts of other versions of the package: one lacks functions, another has a
// function unknown here.
static void source_hosts_of_other_sizes(void** state) {
  (void)state;
  int runs = 0;
  struct {
    rabbet_source_host_t host;
    void (*added)(void);
  } newer = {{.struct_size = sizeof(newer),
              .user_data = &runs,
              .collect = host_collect,
              .run = host_run},
             NULL};
  const char* file = "plugins.py";
  RABBET_EXPECT_OK(rabbet_source_host_set(&newer.host));
  RABBET_EXPECT_ERROR(rabbet_source_host_load(&file, 1),
                      RABBET_STATUS_FAILED_PRECONDITION, "`load` is NULL");
  rabbet_source_host_close();
  newer.host.struct_size = offsetof(rabbet_source_host_t, load);
  RABBET_EXPECT_OK(rabbet_source_host_set(&newer.host));
  rabbet_source_host_close();
  newer.host.struct_size = offsetof(rabbet_source_host_t, run);
  RABBET_EXPECT_ERROR(rabbet_source_host_set(&newer.host),
                      RABBET_STATUS_INVALID_ARGUMENT,
                      "set it to sizeof(rabbet_source_host_t)");
  newer.host.struct_size = sizeof(newer);
  newer.added = rabbet_source_host_close;
  RABBET_EXPECT_ERROR(rabbet_source_host_set(&newer.host),
                      RABBET_STATUS_INVALID_ARGUMENT,
                      "struct_size is 56, that of rabbet");
  newer.added = NULL;
  newer.host.run = NULL;
  RABBET_EXPECT_ERROR(rabbet_source_host_set(&newer.host),
                      RABBET_STATUS_INVALID_ARGUMENT, "run is NULL");
}

static void carried_source(void** state) {
  (void)state;
  int runs = 0;
  rabbet_source_host_t host = {.struct_size = sizeof(host),
                               .user_data = &runs,
                               .collect = host_collect,
                               .run = host_run,
                               .load = host_load,
                               .close = host_close};
  rabbet_engine_options_t options = {0};
  rabbet_engine_t* engine = NULL;
  RABBET_EXPECT_ERROR(
      load_with(&module, 1, options, SYSTEM, &engine),
      RABBET_STATUS_FAILED_PRECONDITION,
      "step 'relu' needs the plugin 'carried::halve', version '1', which is "
      "not registered here. The plan carries its source (module 'somewhere')");
  options.host_code_allowed = true;
  RABBET_EXPECT_ERROR(load_with(&module, 1, options, SYSTEM, &engine),
                      RABBET_STATUS_FAILED_PRECONDITION,
                      "there is no Python in this process");
  RABBET_EXPECT_OK(rabbet_source_host_set(&host));
  RABBET_EXPECT_OK(load_with(&module, 1, options, SYSTEM, &engine));
  expect_halves(engine);
  rabbet_engine_release(engine);
  // It is registered now: no source is needed, nor the permission.
  options.host_code_allowed = false;
  RABBET_EXPECT_OK(load_with(&module, 1, options, SYSTEM, &engine));
  rabbet_engine_release(engine);
  assert_int_equal(runs, 1);
  assert_int_equal(count_creators(), 1);
  const char* const names[] = {"good"};
  RABBET_EXPECT_OK(rabbet_source_host_load(names, 1));
  assert_int_equal(count_creators(), 1);
  assert_int_equal(runs, 2);
  rabbet_source_host_close();
  assert_int_equal(runs, -1);
  rabbet_source_host_close();  // no host is there now
  RABBET_EXPECT_ERROR(rabbet_source_host_load(names, 1),
                      RABBET_STATUS_FAILED_PRECONDITION, "no Python in this");
  host.run = NULL;
  RABBET_EXPECT_ERROR(rabbet_source_host_set(&host),
                      RABBET_STATUS_INVALID_ARGUMENT, "run is NULL");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(files),
      cmocka_unit_test(wrong_files),
      cmocka_unit_test(indirect_entry),
      cmocka_unit_test(damaged),
      cmocka_unit_test(carried_library),
      cmocka_unit_test(failures_outlive_libraries),
      cmocka_unit_test(wrong_carried_libraries),
      cmocka_unit_test(kinds_of_files),
      cmocka_unit_test(out_of_memory),
      cmocka_unit_test(carried_source),
      cmocka_unit_test(source_hosts_of_other_sizes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
