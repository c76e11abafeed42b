// Plans that go to a file or a function, piece by piece, and the memory that
// builds take beside a network's weights.
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/file.h"
#include "build_check.h"
#include "builder/output.h"
#include "faults/fault_allocator.h"

#define SYSTEM rabbet_allocator_system()
enum { LAYERS = 24, SIDE = 512, ELEMENTS = SIDE * SIDE };

// LAYERS products; each matrix is 1 MiB.
static float* numbers;

static net_t products(void) {
  net_t net = net_begin(0, SYSTEM);
  rabbet_tensor_t* x = net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(1, SIDE));
  for (int i = 0; i < LAYERS; ++i) {
    rabbet_tensor_t* w = NULL;
    const rabbet_dims_t dims = DIMS(SIDE, SIDE);
    const rabbet_weights_t weights = {.dtype = RABBET_DTYPE_FLOAT,
                                      .data = numbers + i * ELEMENTS,
                                      .count = ELEMENTS};
    RABBET_EXPECT_OK(rabbet_network_add_weights(net.network, NULL, weights,
                                                &dims, false, &w));
    char name[16];
    snprintf(name, sizeof(name), "product%d", i);
    x = net_add(
        &net, name,
        (net_layer_t){
            .op = "matrix_multiply", .inputs = {x, w}, .input_count = 2});
  }
  net_output(&net, x, "y");
  return net;
}

// ---- The same bytes everywhere ----------------------------------------------

typedef struct collected_t {
  uint8_t* data;
  size_t size, calls, fail_at;
} collected_t;

static rabbet_status_t collect(void* user_data, const void* data, size_t size) {
  collected_t* collected = user_data;
  if (collected->calls++ == collected->fail_at)
    return RABBET_STATUS(RABBET_STATUS_IO, "the writer is full");
  collected->data = realloc(collected->data, collected->size + size);
  assert_non_null(collected->data);
  memcpy(collected->data + collected->size, data, size);
  collected->size += size;
  return rabbet_ok();
}

static void all_ways_give_the_same_plan(void** state) {
  (void)state;
  char path[] = "/tmp/rabbet-output-XXXXXX";
  net_t net = products();
  rabbet_builder_config_t* config = check_config(0);
  void* plan = NULL;
  size_t size = 0;
  uint64_t file_size = 0;
  rabbet_file_map_t* map = NULL;
  collected_t collected = {.fail_at = SIZE_MAX};
  const rabbet_plan_writer_t writer = {.user_data = &collected,
                                       .write = collect};
  close(mkstemp(path));
  RABBET_EXPECT_OK(
      rabbet_build_plan(net.network, config, SYSTEM, &plan, &size, NULL));
  RABBET_EXPECT_OK(rabbet_build_plan_file(net.network, config, path, SYSTEM,
                                          &file_size, NULL));
  assert_int_equal(file_size, size);
  RABBET_EXPECT_OK(rabbet_file_map_create(path, SYSTEM, &map));
  assert_int_equal(rabbet_file_map_size(map), size);
  assert_memory_equal(rabbet_file_map_data(map), plan, size);
  rabbet_file_map_release(map);
  RABBET_EXPECT_OK(
      rabbet_build_plan_to(net.network, config, writer, SYSTEM, NULL));
  assert_int_equal(collected.size, size);
  assert_memory_equal(collected.data, plan, size);
  RABBET_EXPECT_OK(
      rabbet_build_plan_mapped(net.network, config, SYSTEM, &map, NULL));
  assert_memory_equal(rabbet_file_map_data(map), plan, size);
  rabbet_file_map_release(map);
  free(collected.data);
  unlink(path);
  rabbet_free_aligned(SYSTEM, plan, 64);
  rabbet_builder_config_release(config);
  net_end(&net);
}

static void a_failing_writer_fails_the_build(void** state) {
  (void)state;
  net_t net = products();
  rabbet_builder_config_t* config = check_config(0);
  for (size_t at = 0; at < 3; ++at) {
    collected_t collected = {.fail_at = at};
    const rabbet_plan_writer_t writer = {.user_data = &collected,
                                         .write = collect};
    rabbet_build_report_t* report = NULL;
    RABBET_EXPECT_ERROR(
        rabbet_build_plan_to(net.network, config, writer, SYSTEM, &report),
        RABBET_STATUS_IO, "the writer is full");
    assert_null(report);
    free(collected.data);
  }
  uint64_t size = 0;
  RABBET_EXPECT_ERROR(rabbet_build_plan_file(net.network, config, "/dev/full",
                                             SYSTEM, &size, NULL),
                      RABBET_STATUS_IO, "/dev/full");
  rabbet_builder_config_release(config);
  net_end(&net);
}

static void hear(void* user_data, rabbet_severity_t severity,
                 const char* message) {
  (void)severity;
  if (strstr(message, "the plan is kept in memory"))
    snprintf(user_data, 256, "%s", message);
}

// The disk has room for the weights, but not for the rest of the plan.
static void plans_that_fill_the_disk_are_kept_in_memory(void** state) {
  (void)state;
  enum { LARGE = 8192 };
  char heard[256] = "";
  struct rlimit before, limit;
  rabbet_file_map_t* map = NULL;
  net_t net = net_begin(0, SYSTEM);
  const rabbet_dims_t dims = DIMS(LARGE, LARGE);
  const rabbet_weights_t weights = {
      .dtype = RABBET_DTYPE_FLOAT,
      .data = calloc((size_t)LARGE * LARGE, sizeof(float)),
      .count = (int64_t)LARGE * LARGE};
  rabbet_tensor_t *w = NULL,
                  *x = net_input(&net, "x", RABBET_DTYPE_FLOAT, dims);
  RABBET_EXPECT_OK(
      rabbet_network_add_weights(net.network, NULL, weights, &dims, false, &w));
  net_output(&net, net_binary(&net, "sum", "SUM", x, w), "y");
  rabbet_builder_config_t* config = check_config(0);
  rabbet_builder_config_set_logger(
      config, (rabbet_logger_t){heard, hear, RABBET_SEVERITY_INFO});
  signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  limit = (struct rlimit){RABBET_BUILD_MAPPED, before.rlim_max};
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
  RABBET_EXPECT_OK(
      rabbet_build_plan_mapped(net.network, config, SYSTEM, &map, NULL));
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
  assert_non_null(strstr(heard, "kept in memory: cannot"));
  assert_true(rabbet_file_map_size(map) > RABBET_BUILD_MAPPED);
  rabbet_file_map_release(map);
  rabbet_builder_config_release(config);
  net_end(&net);
  free((void*)(uintptr_t)weights.data);
}

// ---- Memory -----------------------------------------------------------------

static size_t build_peak(void) {
  rabbet_fault_allocator_t fault;
  net_t net = products();
  rabbet_builder_config_t* config = check_config(0);
  uint64_t size = 0;
  rabbet_fault_initialize(-1, false, &fault);
  RABBET_EXPECT_OK(rabbet_build_plan_file(net.network, config, "/dev/null",
                                          rabbet_fault_allocator(&fault), &size,
                                          NULL));
  size_t weights = (size_t)LAYERS * ELEMENTS * 4;
  if (size < weights || size > weights + (1 << 20))
    fail_msg("the plan has %llu bytes", (unsigned long long)size);
  size_t peak = fault.peak_bytes;
  rabbet_fault_deinitialize(&fault);
  rabbet_builder_config_release(config);
  net_end(&net);
  return peak;
}

// A plan that holds 24 MiB is written without them.
static void weights_are_not_copied(void** state) {
  (void)state;
  size_t peak = build_peak();
  if (peak > (size_t)2 << 20) fail_msg("the build took %zu bytes", peak);
}

// A profile for one row reads packed weights, one for many rows may read their
// floats, which are made for it.
static void entries_free_their_constants(void** state) {
  (void)state;
  enum { ROWS = 64, WIDTH = 1024 };
  rabbet_fault_allocator_t fault;
  rabbet_fault_initialize(-1, false, &fault);
  const double scale = 0.01;
  net_t net = net_begin(0, SYSTEM);
  rabbet_tensor_t* x =
      net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(-1, WIDTH));
  rabbet_tensor_t* w =
      net_add(&net, "dequantize",
              (net_layer_t){.op = "dequantize",
                            .inputs = {net_weights(&net, RABBET_DTYPE_INT8,
                                                   DIMS(WIDTH, WIDTH), NULL),
                                       net_weights(&net, RABBET_DTYPE_FLOAT,
                                                   (rabbet_dims_t){0}, &scale)},
                            .input_count = 2,
                            .attrs = {INT_ATTR("to_type", RABBET_DTYPE_FLOAT)},
                            .attr_count = 1});
  net_output(
      &net,
      net_add(&net, "product",
              (net_layer_t){
                  .op = "matrix_multiply", .inputs = {x, w}, .input_count = 2}),
      "y");
  rabbet_builder_config_t* config = check_config(3);
  RABBET_EXPECT_OK(rabbet_builder_config_set_device(config, "cpu"));
  for (int64_t rows = 1; rows <= ROWS; rows *= ROWS) {
    const rabbet_dims_t dims = DIMS(rows, WIDTH);
    check_add_profile(config, "x", dims, dims, dims);
  }
  uint64_t size = 0;
  RABBET_EXPECT_OK(rabbet_build_plan_file(net.network, config, "/dev/null",
                                          rabbet_fault_allocator(&fault), &size,
                                          NULL));
  rabbet_fault_deinitialize(&fault);
  rabbet_builder_config_release(config);
  net_end(&net);
}

static int begin(void** state) {
  (void)state;
  size_t count = (size_t)LAYERS * ELEMENTS;
  numbers = malloc(count * sizeof(*numbers));
  for (size_t i = 0; numbers && i < count; ++i)
    numbers[i] = (float)((i * 2654435761u) % 1000) / 1000 - 0.5f;
  return numbers ? 0 : 1;
}

static int end(void** state) {
  (void)state;
  free(numbers);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(all_ways_give_the_same_plan),
      cmocka_unit_test(a_failing_writer_fails_the_build),
      cmocka_unit_test(plans_that_fill_the_disk_are_kept_in_memory),
      cmocka_unit_test(weights_are_not_copied),
      cmocka_unit_test(entries_free_their_constants),
  };
  return cmocka_run_group_tests(tests, begin, end);
}
