// Offers as bytes, and what their keys depend on.
#include "builder/propose/kept_proposals.h"

#include "builder/propose/code_identity.h"
#include "check.h"

#define SYSTEM rabbet_allocator_system()

// A node of two inputs, x [1, 4] and a constant.
typedef struct pair_t {
  rabbet_group_value_t values[3];
  float constant[64];
  int32_t inputs[2], outputs[1];
  rabbet_attr_t attrs[8];
  rabbet_group_node_t node;
  rabbet_group_t group;
} pair_t;

static void pair_make(rabbet_build_t* build, rabbet_op_id_t op,
                      int64_t elements, pair_t* s) {
  const rabbet_op_t* info = rabbet_op_get(op);
  *s = (pair_t){.inputs = {0, 1}, .outputs = {2}};
  const rabbet_dims_t dims = {2, {1, 4}}, constant = {1, {elements}};
  for (int i = 0; i < 3; ++i) {
    const rabbet_dims_t* d = i == 1 ? &constant : &dims;
    s->values[i] = (rabbet_group_value_t){
        .dtype = RABBET_DTYPE_FLOAT, .dims = *d, .min = *d, .max = *d};
  }
  s->values[1].constant = s->constant;
  assert_true(info->attr_count <= 8);
  RABBET_EXPECT_OK(
      rabbet_op_complete_attrs(info, NULL, 0, &build->arena, s->attrs));
  s->node = (rabbet_group_node_t){.op = info,
                                  .name = "pair",
                                  .attrs = s->attrs,
                                  .inputs = s->inputs,
                                  .input_count = 2,
                                  .outputs = s->outputs,
                                  .output_count = 1};
  s->group = (rabbet_group_t){.values = s->values,
                              .value_count = 3,
                              .inputs = s->inputs,
                              .input_count = 2,
                              .outputs = s->outputs,
                              .output_count = 1,
                              .nodes = &s->node,
                              .node_count = 1};
}

static void build_begin(const char* device, rabbet_build_t* build) {
  rabbet_builder_config_t* config = NULL;
  RABBET_EXPECT_OK(rabbet_builder_config_create(SYSTEM, &config));
  *build = (rabbet_build_t){.allocator = SYSTEM, .config = config};
  rabbet_arena_initialize(SYSTEM, &build->arena);
  RABBET_EXPECT_OK(rabbet_device_create(device, SYSTEM, &build->device));
  RABBET_EXPECT_OK(rabbet_timing_cache_create(NULL, 0, SYSTEM, &build->cache));
}

static void build_end(rabbet_build_t* build) {
  rabbet_timing_cache_release(build->cache);
  rabbet_device_release(build->device);
  rabbet_arena_deinitialize(&build->arena);
  rabbet_builder_config_release((rabbet_builder_config_t*)build->config);
}

static rabbet_asked_classes_t classes_of(const rabbet_build_t* build) {
  rabbet_asked_classes_t classes = {.allowed = true};
  classes.list =
      build->device->vtable->kernel_classes(build->device, &classes.count);
  return classes;
}

static rabbet_hash_t key_of(rabbet_build_t* build, const pair_t* s, int threads,
                            bool expected) {
  const rabbet_asked_classes_t classes = classes_of(build);
  const rabbet_propose_t question = {.device = build->device,
                                     .group = &s->group,
                                     .threads = threads,
                                     .allocator = SYSTEM};
  rabbet_hash_t key = {0};
  bool keeps = false;
  RABBET_EXPECT_OK(
      rabbet_kept_proposals_key(build, &question, &classes, &key, &keeps));
  assert_int_equal(keeps, expected);
  return key;
}

static bool same(rabbet_hash_t a, rabbet_hash_t b) {
  return a.high == b.high && a.low == b.low;
}

static void keys(void** state) {
  (void)state;
  rabbet_build_t build;
  pair_t s;
  build_begin("cpu", &build);
  pair_make(&build, RABBET_OP_MATRIX_MULTIPLY, 64, &s);
  rabbet_hash_t key = key_of(&build, &s, 1, true);
  assert_true(same(key, key_of(&build, &s, 1, true)));
  assert_false(same(key, key_of(&build, &s, 2, true)));
  // Names and weights do not matter, extents and types do.
  s.constant[3] = 5;
  assert_true(same(key, key_of(&build, &s, 1, true)));
  s.node.name = "another";
  assert_true(same(key, key_of(&build, &s, 1, true)));
  s.values[0].max.d[0] = 2;
  assert_false(same(key, key_of(&build, &s, 1, true)));
  s.values[0].max.d[0] = 1;
  s.values[0].dtype = RABBET_DTYPE_HALF;
  assert_false(same(key, key_of(&build, &s, 1, true)));
  // Few elements do matter: classes take scalars into their kernels.
  pair_make(&build, RABBET_OP_MATRIX_MULTIPLY, 4, &s);
  key = key_of(&build, &s, 1, true);
  s.constant[3] = 5;
  assert_false(same(key, key_of(&build, &s, 1, true)));
  // So do scales.
  pair_make(&build, RABBET_OP_DEQUANTIZE, 64, &s);
  key = key_of(&build, &s, 1, true);
  s.constant[60] = 5;
  assert_false(same(key, key_of(&build, &s, 1, true)));
  build_end(&build);
}

static void devices_that_do_not_tell(void** state) {
  (void)state;
  rabbet_build_t build;
  pair_t s;
  build_begin("null", &build);
  pair_make(&build, RABBET_OP_MATRIX_MULTIPLY, 4, &s);
  key_of(&build, &s, 1, false);
  build_end(&build);
}

static void libraries_differ(void** state) {
  (void)state;
  uint64_t own = 0, runtime = 0, again = 0;
  static const int here = 0;
  assert_true(rabbet_code_identity(&here, &own));
  assert_true(
      rabbet_code_identity(rabbet_op_get(RABBET_OP_IDENTITY), &runtime));
  assert_true(rabbet_code_identity(&here, &again));
  assert_true(own == again && own != runtime);
  assert_false(rabbet_code_identity(&own, &again));  // the stack
}

static void check_candidate(const rabbet_kept_candidate_t* a,
                            const rabbet_kept_candidate_t* b) {
  assert_ptr_equal(a->candidate.kernel, b->candidate.kernel);
  assert_int_equal(a->candidate.tactic, b->candidate.tactic);
  assert_string_equal(a->candidate.tactic_name, b->candidate.tactic_name);
  assert_memory_equal(a->candidate.tensors, b->candidate.tensors,
                      3 * sizeof(rabbet_type_format_t));
  assert_int_equal(!a->candidate.in_place, !b->candidate.in_place);
  if (a->candidate.in_place)
    assert_int_equal(a->candidate.in_place[0], b->candidate.in_place[0]);
  assert_int_equal(!a->candidate.aliased, !b->candidate.aliased);
  assert_int_equal(a->has_key, b->has_key);
  assert_true(same(a->key, b->key));
}

static void bytes(void** state) {
  (void)state;
  rabbet_build_t build;
  pair_t s;
  build_begin("cpu", &build);
  pair_make(&build, RABBET_OP_MATRIX_MULTIPLY, 64, &s);
  const rabbet_asked_classes_t classes = classes_of(&build);
  const rabbet_type_format_t types[3] = {
      {RABBET_DTYPE_FLOAT, RABBET_FORMAT_HWC},
      {RABBET_DTYPE_HALF, RABBET_FORMAT_LINEAR},
      {RABBET_DTYPE_BF16, RABBET_FORMAT_LINEAR}};
  const int32_t over = 1;
  const rabbet_kept_candidate_t put[2] = {
      {.candidate = {.kernel = classes.list[0],
                     .tactic = -3,
                     .tactic_name = "rows",
                     .tensors = types},
       .key = {1, 2},
       .has_key = true},
      {.candidate = {.kernel = classes.list[classes.count - 1],
                     .tensors = types,
                     .in_place = &over}}};
  rabbet_strbuf_t text;
  rabbet_strbuf_initialize(SYSTEM, &text);
  for (int i = 0; i < 2; ++i)
    assert_true(rabbet_kept_proposals_add(&text, &s.group, &classes, &put[i]));
  rabbet_kept_candidate_t* got = NULL;
  size_t count = 0;
  bool found = true;
  RABBET_EXPECT_OK(rabbet_kept_proposals_find(
      &build, (rabbet_hash_t){7, 7}, &s.group, &classes, &got, &count, &found));
  assert_false(found);
  // Each prefix but that of the first candidate alone is damaged.
  size_t first = 24 + strlen("rows") + 3 * 2, sizes = 0;
  for (size_t size = 2; size <= text.size; ++size) {
    const rabbet_hash_t key = {7, size};
    RABBET_EXPECT_OK(
        rabbet_timing_cache_put_answer(build.cache, key, text.data, size));
    RABBET_EXPECT_OK(rabbet_kept_proposals_find(&build, key, &s.group, &classes,
                                                &got, &count, &found));
    assert_int_equal(found, size == first || size == text.size);
    for (size_t i = 0; found && i < count; ++i)
      check_candidate(&put[i], &got[i]);
    sizes += found ? count : 0;
  }
  assert_int_equal(sizes, 1 + 2);
  // Nothing was offered.
  text.size = 0;
  RABBET_EXPECT_OK(
      rabbet_kept_proposals_put(&build, (rabbet_hash_t){8, 8}, &text));
  RABBET_EXPECT_OK(rabbet_kept_proposals_find(
      &build, (rabbet_hash_t){8, 8}, &s.group, &classes, &got, &count, &found));
  assert_true(found && count == 0);
  // Classes of others, and libraries' descriptions, are not kept.
  rabbet_kept_candidate_t foreign = put[0];
  const rabbet_kernel_class_t another = {.name = "another"};
  foreign.candidate.kernel = &another;
  assert_false(rabbet_kept_proposals_add(&text, &s.group, &classes, &foreign));
  foreign = put[0];
  foreign.candidate.artifact.size = 1;
  assert_false(rabbet_kept_proposals_add(&text, &s.group, &classes, &foreign));
  rabbet_strbuf_deinitialize(&text);
  build_end(&build);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(keys),
      cmocka_unit_test(devices_that_do_not_tell),
      cmocka_unit_test(libraries_differ),
      cmocka_unit_test(bytes),
  };
  return cmocka_run_group_tests_name("kept_proposals", tests, NULL, NULL);
}
