// Copies of weights that calls take in turn.
#include "builder/measure/cold_weights.h"

#include <string.h>

#include "check.h"
#include "faults/fault_allocator.h"

enum { WEIGHTS = 32 << 10, FEW = 16 };  // elements

typedef struct cold_case_t {
  rabbet_build_t build;
  rabbet_builder_config_t* config;
  float weights[WEIGHTS], few[FEW], x[FEW];
  rabbet_group_value_t values[3];
  rabbet_group_t group;
  void* inputs[3];
} cold_case_t;

static cold_case_t cold;

static rabbet_status_t begin_with(rabbet_allocator_t allocator,
                                  size_t cache_bytes) {
  static const int32_t inputs[] = {0, 1, 2};
  memset(&cold, 0, sizeof(cold));
  rabbet_build_t* build = &cold.build;
  build->allocator = allocator;
  build->has_cold_weights = true;
  RABBET_RETURN_IF_ERROR(rabbet_builder_config_create(allocator, &cold.config));
  build->config = cold.config;
  rabbet_arena_initialize(allocator, &build->arena);
  RABBET_RETURN_IF_ERROR(
      rabbet_device_create("cpu", allocator, &build->device));
  build->device->cache_bytes = cache_bytes;
  RABBET_RETURN_IF_ERROR(rabbet_bench_create(build, &build->bench));
  const int64_t counts[] = {FEW, WEIGHTS, FEW};
  void* const data[] = {NULL, cold.weights, cold.few};
  for (int i = 0; i < 3; ++i) {
    cold.values[i] = (rabbet_group_value_t){.dtype = RABBET_DTYPE_FLOAT,
                                            .format = RABBET_FORMAT_LINEAR,
                                            .dims = {1, {counts[i]}},
                                            .constant = data[i]};
    cold.inputs[i] = data[i] ? data[i] : cold.x;
  }
  for (int i = 0; i < WEIGHTS; ++i)
    cold.weights[i] = (float)i;
  cold.group = (rabbet_group_t){
      .values = cold.values, .inputs = inputs, .input_count = 3};
  return rabbet_ok();
}

static void begin(size_t cache_bytes) {
  RABBET_EXPECT_OK(begin_with(rabbet_allocator_system(), cache_bytes));
}

static void end(void) {
  rabbet_bench_destroy(cold.build.bench);
  if (cold.build.device) rabbet_device_release(cold.build.device);
  rabbet_arena_deinitialize(&cold.build.arena);
  rabbet_builder_config_release(cold.config);
}

// One and a half times the cache's size is read before an address comes again;
// small constants, and tensors that are no weights, are not copied.
static void turns(void** state) {
  (void)state;
  begin(2 * sizeof(cold.weights));
  rabbet_cold_weights_t copies;
  RABBET_EXPECT_OK(rabbet_cold_weights_initialize(&cold.build, &cold.group,
                                                  NULL, cold.inputs, &copies));
  assert_int_equal(copies.turns, 4);
  const void* seen[8];
  for (int i = 0; i < 8; ++i) {
    rabbet_cold_weights_turn(&copies);
    seen[i] = cold.inputs[1];
    assert_memory_equal(seen[i], cold.weights, sizeof(cold.weights));
    assert_ptr_equal(cold.inputs[0], cold.x);
    assert_ptr_equal(cold.inputs[2], cold.few);
    for (int k = 0; k < i; ++k)
      assert_int_equal(seen[k] == seen[i], k == i - 4);
  }
  end();
}

static void no_turns(void** state) {
  (void)state;
  static const bool written[] = {false, true, false};
  static const struct {
    size_t cache;
    bool has_cold_weights;
    const bool* written;
  } rows[] = {
      {1 << 20, false, NULL},    // all weights fit into the cache
      {1 << 20, true, written},  // the kernel writes them
      {1 << 10, true, NULL},     // one call reads more than the cache holds
  };
  for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
    begin(rows[i].cache);
    cold.build.has_cold_weights = rows[i].has_cold_weights;
    rabbet_cold_weights_t copies;
    RABBET_EXPECT_OK(rabbet_cold_weights_initialize(
        &cold.build, &cold.group, rows[i].written, cold.inputs, &copies));
    assert_int_equal(copies.turns, 0);
    rabbet_cold_weights_turn(&copies);
    assert_ptr_equal(cold.inputs[1], cold.weights);
    end();
  }
}

static void many_turns_are_enough(void** state) {
  (void)state;
  begin((size_t)1 << 30);
  rabbet_cold_weights_t copies;
  RABBET_EXPECT_OK(rabbet_cold_weights_initialize(&cold.build, &cold.group,
                                                  NULL, cold.inputs, &copies));
  assert_int_equal(copies.turns, RABBET_COLD_WEIGHTS_MAX_TURNS);
  end();
}

// As many copies as the limit of memory for measurements allows.
static void copies_within_a_limit(void** state) {
  (void)state;
  for (int room = 0; room < 3; ++room) {
    begin(2 * sizeof(cold.weights));
    rabbet_bench_destroy(cold.build.bench);
    RABBET_EXPECT_OK(rabbet_builder_config_set(
        cold.config, RABBET_BUILDER_OPTION_TACTIC_MEMORY,
        (int64_t)sizeof(cold.weights) * room + 1));
    RABBET_EXPECT_OK(rabbet_bench_create(&cold.build, &cold.build.bench));
    rabbet_cold_weights_t copies;
    RABBET_EXPECT_OK(rabbet_cold_weights_initialize(
        &cold.build, &cold.group, NULL, cold.inputs, &copies));
    assert_int_equal(copies.turns, room ? room + 1 : 0);
    assert_int_equal(rabbet_bench_peak(cold.build.bench),
                     sizeof(cold.weights) * (size_t)room);
    end();
  }
}

static rabbet_status_t make_copies(rabbet_allocator_t allocator,
                                   void* user_data) {
  (void)user_data;
  rabbet_cold_weights_t copies;
  rabbet_status_t status = begin_with(allocator, 2 * sizeof(cold.weights));
  if (rabbet_is_ok(status))
    status = rabbet_cold_weights_initialize(&cold.build, &cold.group, NULL,
                                            cold.inputs, &copies);
  end();
  return status;
}

static void failing_allocations(void** state) {
  (void)state;
  assert_true(rabbet_fault_run(make_copies, NULL) > 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(turns),
      cmocka_unit_test(no_turns),
      cmocka_unit_test(many_turns_are_enough),
      cmocka_unit_test(copies_within_a_limit),
      cmocka_unit_test(failing_allocations),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
