#include "plan/plan.h"

#include "attr_check.h"
#include "plan_samples.h"

#define SYSTEM rabbet_allocator_system()

static rabbet_plan_t* read_plan(const void* data, size_t size) {
  rabbet_plan_t* plan = NULL;
  RABBET_EXPECT_OK(rabbet_plan_read(data, size, NULL, SYSTEM, &plan));
  return plan;
}

// A plan that was read can be written: the same bytes come out.
static void round_trips(void** state) {
  (void)state;
  for (size_t s = 0; s < SAMPLE_COUNT; ++s) {
    maker_t maker;
    void *first = NULL, *second = NULL, *third = NULL;
    size_t first_size = 0, second_size = 0, third_size = 0;
    maker_begin(&maker, SYSTEM);
    samples[s].make(&maker);
    maker_write(&maker, SYSTEM, &first, &first_size);
    maker_write(&maker, SYSTEM, &second, &second_size);
    assert_int_equal(first_size, second_size);
    assert_memory_equal(first, second, first_size);
    rabbet_plan_t* plan = read_plan(first, first_size);
    // The same constants at the same places.
    RABBET_EXPECT_OK(rabbet_plan_write(plan, maker.blobs, maker.blob_count,
                                       SYSTEM, &third, &third_size));
    assert_int_equal(first_size, third_size);
    assert_memory_equal(first, third, first_size);
    rabbet_plan_destroy(plan);
    maker_end(&maker);
    rabbet_free_aligned(SYSTEM, first, RABBET_PLAN_ALIGNMENT);
    rabbet_free_aligned(SYSTEM, second, RABBET_PLAN_ALIGNMENT);
    rabbet_free_aligned(SYSTEM, third, RABBET_PLAN_ALIGNMENT);
  }
}

static void sample_attributes(maker_t* m) {
  static const float tensor[] = {1, 2, 3, 4};
  static const int64_t ints[] = {-1, INT64_MAX}, yes = 1, bools[] = {1, 0};
  static const double floats[] = {0.1, -1e300}, one = 2.5;
  sample_static(m);
  rabbet_attr_t attrs[] = {
      {.name = "int", .type = RABBET_ATTR_INT, .data = ints, .count = 1},
      {.name = "float", .type = RABBET_ATTR_FLOAT, .data = &one, .count = 1},
      {.name = "bool", .type = RABBET_ATTR_BOOL, .data = &yes, .count = 1},
      {.name = "string",
       .type = RABBET_ATTR_STRING,
       .data = "\xc3\xa4"
               "b",
       .count = 3},
      {.name = "bytes", .type = RABBET_ATTR_BYTES, .data = "a\0b", .count = 3},
      {.name = "ints", .type = RABBET_ATTR_INTS, .data = ints, .count = 2},
      {.name = "none", .type = RABBET_ATTR_INTS, .data = ints, .count = 0},
      {.name = "floats",
       .type = RABBET_ATTR_FLOATS,
       .data = floats,
       .count = 2},
      {.name = "bools", .type = RABBET_ATTR_BOOLS, .data = bools, .count = 2},
      {.name = "strings",
       .type = RABBET_ATTR_STRINGS,
       .data = "x\0\0yz",
       .count = 3},
      {.name = "tensor",
       .type = RABBET_ATTR_TENSOR,
       .data = tensor,
       .count = 4,
       .dtype = RABBET_DTYPE_FLOAT,
       .dims = {.rank = 2, .d = {2, 2}}},
  };
  size_t count = sizeof(attrs) / sizeof(attrs[0]);
  rabbet_attr_t* copy = NULL;
  RABBET_EXPECT_OK(rabbet_attrs_copy(&m->plan->arena, attrs, count, &copy));
  m->steps[1].plugin_name = "thing";
  m->steps[1].plugin_version = "7";
  m->steps[1].plugin_namespace = "";
  m->steps[1].plugin_attrs = copy;
  m->steps[1].plugin_attr_count = count;
  m->steps[1].group.nodes[0].op = rabbet_op_get(RABBET_OP_PLUGIN);
}

static void attributes_survive(void** state) {
  (void)state;
  maker_t maker;
  void* data = NULL;
  size_t size = 0;
  maker_begin(&maker, SYSTEM);
  sample_attributes(&maker);
  maker_write(&maker, SYSTEM, &data, &size);
  rabbet_plan_t* plan = read_plan(data, size);
  const rabbet_plan_step_t* step = &plan->sequences[0].steps[1];
  assert_int_equal(step->plugin_attr_count, maker.steps[1].plugin_attr_count);
  for (size_t i = 0; i < step->plugin_attr_count; ++i)
    check_attr(&step->plugin_attrs[i], &maker.steps[1].plugin_attrs[i]);
  assert_string_equal(step->plugin_version, "7");
  assert_string_equal(step->plugin_namespace, "");
  assert_null(step->plugin_origin);
  rabbet_plan_destroy(plan);
  maker_end(&maker);
  rabbet_free_aligned(SYSTEM, data, RABBET_PLAN_ALIGNMENT);
}

static void what_is_read(void** state) {
  (void)state;
  void* data = NULL;
  size_t size = 0;
  maker_bytes(sample_static, SYSTEM, &data, &size);
  rabbet_plan_t* plan = read_plan(data, size);
  assert_string_equal(plan->name, "sample");
  assert_string_equal(plan->producer, "rabbet test");
  assert_string_equal(plan->device, "null");
  assert_int_equal(plan->threads, 1);
  assert_int_equal(plan->sequences[0].value_count, 4);
  assert_string_equal(plan->sequences[0].values[1].name, "w");
  const rabbet_group_value_t* w = &plan->sequences[0].steps[0].group.values[1];
  // In place, aligned, within the file.
  assert_true((const uint8_t*)w->constant > (const uint8_t*)data);
  assert_true((const uint8_t*)w->constant < (const uint8_t*)data + size);
  assert_int_equal((uintptr_t)w->constant % RABBET_PLAN_ALIGNMENT, 0);
  assert_float_equal(((const float*)w->constant)[5], 1.5f, 0);
  assert_int_equal(w->dims.d[1], 3);
  assert_int_equal(w->max.d[1], 3);
  assert_true(plan->sequences[0].steps[0].shapes_proven);
  assert_string_equal(plan->sequences[0].steps[1].group.nodes[0].op->name,
                      "activation");
  assert_float_equal(plan->sequences[0].steps[0].time_us, 1.5f, 0);
  rabbet_plan_destroy(plan);
  rabbet_free_aligned(SYSTEM, data, RABBET_PLAN_ALIGNMENT);
}

// A plan that could not be read again is not written.
static void texts_that_are_not_utf8_are_not_written(void** state) {
  (void)state;
  maker_t maker;
  void* data = NULL;
  size_t size = 0;
  maker_begin(&maker, SYSTEM);
  sample_static(&maker);
  RABBET_EXPECT_OK(rabbet_plan_write(maker.plan, maker.blobs, maker.blob_count,
                                     SYSTEM, &data, &size));
  rabbet_free_aligned(SYSTEM, data, RABBET_PLAN_ALIGNMENT);
  maker.steps[1].tactic_name = "t\xff";
  RABBET_EXPECT_ERROR(rabbet_plan_write(maker.plan, maker.blobs,
                                        maker.blob_count, SYSTEM, &data, &size),
                      RABBET_STATUS_INVALID_ARGUMENT,
                      "'tactic_name' of a Step, 't\\xff', is not UTF-8");
  assert_null(data);
  maker_end(&maker);
}

// Artifacts stay in place too, aligned; without any there is no section.
static void artifacts_are_read(void** state) {
  (void)state;
  maker_t maker;
  void *data = NULL, *none = NULL;
  size_t size = 0, none_size = 0;
  maker_begin(&maker, SYSTEM);
  sample_artifacts(&maker);
  maker_write(&maker, SYSTEM, &data, &size);
  rabbet_plan_t* plan = read_plan(data, size);
  assert_int_equal(plan->artifact_count, 2);
  for (size_t i = 0; i < 2; ++i) {
    const rabbet_artifact_t* found = &plan->artifacts[i];
    const rabbet_artifact_t* made = &maker.plan->artifacts[i];
    assert_int_equal(rabbet_hash_compare(found->key, made->key), 0);
    assert_string_equal(found->name, made->name);
    assert_int_equal(found->size, made->size);
    assert_memory_equal(found->data, made->data, made->size);
    assert_int_equal((uintptr_t)found->data % RABBET_PLAN_ALIGNMENT, 0);
    assert_true((const uint8_t*)found->data < (const uint8_t*)data + size);
  }
  assert_int_equal(plan->sequences[0].steps[0].artifact_count, 2);
  assert_int_equal(plan->sequences[0].steps[1].artifact_count, 1);
  assert_int_equal(plan->sequences[0].steps[1].artifacts[0], 1);
  rabbet_plan_destroy(plan);
  maker.plan->artifact_count = 0;
  maker.steps[0].artifact_count = maker.steps[1].artifact_count = 0;
  maker_write(&maker, SYSTEM, &none, &none_size);
  assert_int_equal(((const uint8_t*)data)[12], 4);
  assert_int_equal(((const uint8_t*)none)[12], 3);
  maker_end(&maker);
  rabbet_free_aligned(SYSTEM, data, RABBET_PLAN_ALIGNMENT);
  rabbet_free_aligned(SYSTEM, none, RABBET_PLAN_ALIGNMENT);
}

// Carried code stays in place too, also an empty last item.
static void carried_is_read(void** state) {
  (void)state;
  maker_t maker;
  void* data = NULL;
  size_t size = 0;
  maker_begin(&maker, SYSTEM);
  sample_carried(&maker);
  maker_write(&maker, SYSTEM, &data, &size);
  rabbet_plan_t* plan = read_plan(data, size);
  assert_int_equal(plan->carried_count, 3);
  for (size_t i = 0; i < 3; ++i) {
    const rabbet_carried_t* found = &plan->carried[i];
    const rabbet_carried_t* made = &maker.plan->carried[i];
    assert_int_equal(found->kind, made->kind);
    assert_string_equal(found->name, made->name);
    assert_int_equal(found->is_package, made->is_package);
    assert_int_equal(found->size, made->size);
    assert_memory_equal(found->data, made->data, made->size);
    assert_int_equal(found->requirement_count, made->requirement_count);
  }
  assert_string_equal(plan->carried[0].requirements[0], "numpy 2.1.0");
  rabbet_plan_destroy(plan);
  maker_end(&maker);
  rabbet_free_aligned(SYSTEM, data, RABBET_PLAN_ALIGNMENT);
}

static void overlapping_constants(void** state) {
  (void)state;
  maker_t maker;
  void* data = NULL;
  size_t size = 0;
  maker_begin(&maker, SYSTEM);
  sample_static(&maker);
  rabbet_plan_blob_t blobs[] = {{0, "abc", 3}, {32, "abc", 3}};
  RABBET_EXPECT_ERROR(
      rabbet_plan_write(maker.plan, blobs, 2, SYSTEM, &data, &size),
      RABBET_STATUS_INVALID_ARGUMENT, "constant 1 at 32");
  maker_end(&maker);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(round_trips),
      cmocka_unit_test(attributes_survive),
      cmocka_unit_test(what_is_read),
      cmocka_unit_test(texts_that_are_not_utf8_are_not_written),
      cmocka_unit_test(artifacts_are_read),
      cmocka_unit_test(carried_is_read),
      cmocka_unit_test(overlapping_constants),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
