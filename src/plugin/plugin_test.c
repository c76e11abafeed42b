// The registry, and errors of the checked calls for faulty plugins.
#include "plugin/plugin.h"

#include "check.h"
#include "faults/fault_allocator.h"
#include "plugin_answers.h"

// ---- A plugin whose answers the test sets ----------------------------------

static struct {
  int created, destroyed, creators_destroyed;
  rabbet_status_t (*describe)(rabbet_dim_builder_t*,
                              const rabbet_plugin_input_t*,
                              rabbet_plugin_output_t*);
  rabbet_plugin_type_format_t combination[2];
  int combinations;
  int32_t tactics[2];
  int tactic_count;
} answers;

static void probe_destroy(void* self) {
  (void)self;
  ++answers.destroyed;
}
static int32_t probe_output_count(void* self) {
  (void)self;
  return 1;
}
static rabbet_status_t probe_describe(void* self, rabbet_dim_builder_t* builder,
                                      const rabbet_plugin_input_t* inputs,
                                      size_t count,
                                      rabbet_plugin_output_t* outputs) {
  (void)self;
  (void)count;
  return answers.describe(builder, inputs, outputs);
}
static rabbet_status_t probe_combinations(
    void* self, const rabbet_plugin_query_t* query,
    rabbet_plugin_combination_sink_t sink) {
  (void)self;
  (void)query;
  for (int i = 0; i < answers.combinations; ++i) {
    RABBET_RETURN_IF_ERROR(sink.add(sink.context, answers.combination));
  }
  return rabbet_ok();
}
static rabbet_status_t probe_tactics(void* self,
                                     const rabbet_plugin_query_t* query,
                                     rabbet_plugin_tactic_sink_t sink) {
  (void)self;
  (void)query;
  for (int i = 0; i < answers.tactic_count; ++i) {
    RABBET_RETURN_IF_ERROR(sink.add(sink.context, answers.tactics[i]));
  }
  return rabbet_ok();
}
static rabbet_status_t probe_enqueue(void* self,
                                     const rabbet_plugin_call_t* call) {
  (void)self;
  (void)call;
  return RABBET_STATUS(RABBET_STATUS_PLUGIN, "it always fails");
}

static const rabbet_plugin_vtable_t probe_vtable = {
    .struct_size = sizeof(rabbet_plugin_vtable_t),
    .destroy = probe_destroy,
    .output_count = probe_output_count,
    .describe = probe_describe,
    .combinations = probe_combinations,
    .tactics = probe_tactics,
    .enqueue = probe_enqueue,
};

static rabbet_status_t probe_create(void* user_data,
                                    const rabbet_plugin_create_t* args,
                                    rabbet_plugin_instance_t* out_instance) {
  (void)args;
  ++answers.created;
  *out_instance = (rabbet_plugin_instance_t){
      user_data ? user_data : (void*)&probe_vtable, NULL};
  return rabbet_ok();
}
static void creator_destroy(void* user_data) {
  (void)user_data;
  ++answers.creators_destroyed;
}

static const rabbet_plugin_field_t fields[] = {
    {.name = "pads", .type = RABBET_ATTR_INTS, .required = true},
    {.name = "mode", .type = RABBET_ATTR_STRING},
    {.name = "table", .type = RABBET_ATTR_TENSOR, .dtype = RABBET_DTYPE_HALF},
};

static rabbet_plugin_creator_t probe(const char* name) {
  return (rabbet_plugin_creator_t){
      .struct_size = sizeof(rabbet_plugin_creator_t),
      .name = name,
      .plugin_namespace = "test",
      .origin = "plugin_test.c",
      .fields = fields,
      .field_count = 3,
      .field_size = sizeof(*fields),
      .create = probe_create,
      .destroy = creator_destroy};
}

static const int64_t pads[] = {1, 2};
static const rabbet_attr_t pads_attr = {
    .name = "pads", .type = RABBET_ATTR_INTS, .data = pads, .count = 2};

static rabbet_plugin_t* make(const rabbet_attr_t* attrs, size_t count) {
  rabbet_plugin_create_t args = {
      .layer_name = "layer", .attrs = attrs, .attr_count = count};
  rabbet_plugin_t* plugin = NULL;
  RABBET_EXPECT_OK(rabbet_plugin_create("Probe", "1", "test", &args,
                                        rabbet_allocator_system(), &plugin));
  return plugin;
}

static int register_probe(void** state) {
  (void)state;
  memset(&answers, 0, sizeof(answers));
  rabbet_plugin_creator_t creator = probe("Probe");
  RABBET_EXPECT_OK(rabbet_plugin_register(&creator));
  return 0;
}
static int deregister_probe(void** state) {
  (void)state;
  RABBET_EXPECT_OK(rabbet_plugin_deregister("Probe", "1", "test"));
  return 0;
}

// ---- Registry --------------------------------------------------------------

static void test_keys_are_unique(void** state) {
  (void)state;
  rabbet_plugin_creator_t creator = probe("Probe");
  RABBET_EXPECT_ERROR(rabbet_plugin_register(&creator),
                      RABBET_STATUS_ALREADY_EXISTS, "from 'plugin_test.c'");
  creator.version = "2";
  RABBET_EXPECT_OK(rabbet_plugin_register(&creator));
  const rabbet_plugin_creator_t* found = NULL;
  RABBET_EXPECT_OK(rabbet_plugin_find("Probe", "2", "test", &found));
  assert_string_equal(found->version, "2");
  RABBET_EXPECT_OK(rabbet_plugin_deregister("Probe", "2", "test"));
  assert_int_equal(answers.creators_destroyed, 0);  // still held
  assert_string_equal(found->name, "Probe");
  rabbet_plugin_creator_release(found);
  assert_int_equal(answers.creators_destroyed, 1);
}

static void test_missing_plugins_are_named(void** state) {
  (void)state;
  const rabbet_plugin_creator_t* found = NULL;
  RABBET_EXPECT_ERROR(rabbet_plugin_find("Prob", NULL, "test", &found),
                      RABBET_STATUS_NOT_FOUND, "did you mean 'test::Probe'?");
  RABBET_EXPECT_ERROR(rabbet_plugin_find("Probe", "7", "other", &found),
                      RABBET_STATUS_NOT_FOUND,
                      "version '1' in namespace 'test'");
  RABBET_EXPECT_ERROR(rabbet_plugin_find(NULL, NULL, NULL, &found),
                      RABBET_STATUS_INVALID_ARGUMENT, "NULL");
  RABBET_EXPECT_ERROR(rabbet_plugin_deregister("Nobody", NULL, NULL),
                      RABBET_STATUS_NOT_FOUND, "'Nobody'");
}

static void test_wrong_creators_are_refused(void** state) {
  (void)state;
  rabbet_plugin_creator_t creator = probe("Wrong");
  creator.struct_size = 8;
  RABBET_EXPECT_ERROR(rabbet_plugin_register(&creator),
                      RABBET_STATUS_INVALID_ARGUMENT, "struct_size is 8");
  creator = probe("");
  RABBET_EXPECT_ERROR(rabbet_plugin_register(&creator),
                      RABBET_STATUS_INVALID_ARGUMENT, "name is empty");
  creator = probe("Wrong");
  creator.create = NULL;
  RABBET_EXPECT_ERROR(rabbet_plugin_register(&creator),
                      RABBET_STATUS_INVALID_ARGUMENT, "create is NULL");
  assert_int_equal(answers.creators_destroyed, 0);
}

static void test_missing_library(void** state) {
  (void)state;
  RABBET_EXPECT_ERROR(rabbet_plugin_load_library("/nowhere/lib.so"),
                      RABBET_STATUS_UNAVAILABLE, "/nowhere/lib.so");
}

// ---- Creation --------------------------------------------------------------

static void expect_create_error(const rabbet_attr_t* attrs, size_t count,
                                const char* part) {
  rabbet_plugin_create_t args = {
      .layer_name = "layer", .attrs = attrs, .attr_count = count};
  rabbet_plugin_t* plugin = NULL;
  RABBET_EXPECT_ERROR(rabbet_plugin_create("Probe", "1", "test", &args,
                                           rabbet_allocator_system(), &plugin),
                      RABBET_STATUS_INVALID_ARGUMENT, part);
  assert_null(plugin);
}

static void test_attributes_are_checked(void** state) {
  (void)state;
  rabbet_attr_t wrong = pads_attr;
  wrong.type = RABBET_ATTR_FLOATS;
  expect_create_error(&wrong, 1, "'pads' must be list of ints");
  wrong = pads_attr;
  wrong.name = "padz";
  expect_create_error(&wrong, 1, "no attribute 'padz'; did you mean 'pads'");
  expect_create_error(NULL, 0, "required attribute 'pads'");
  const rabbet_attr_t twice[] = {pads_attr, pads_attr};
  expect_create_error(twice, 2, "given twice");
  const rabbet_attr_t table[] = {pads_attr,
                                 {.name = "table",
                                  .type = RABBET_ATTR_TENSOR,
                                  .dtype = RABBET_DTYPE_FLOAT}};
  expect_create_error(table, 2, "array of HALF, not of FLOAT");
  assert_int_equal(answers.created, 0);
}

static void test_instances_must_be_whole(void** state) {
  (void)state;
  rabbet_plugin_vtable_t vtable = probe_vtable;
  rabbet_plugin_creator_t creator = probe("Probe");
  rabbet_plugin_t* plugin = NULL;
  rabbet_plugin_instance_t instance = {&vtable, NULL};
  rabbet_allocator_t allocator = rabbet_allocator_system();
  vtable.describe = NULL;
  RABBET_EXPECT_ERROR(
      rabbet_plugin_wrap(&creator, instance, allocator, &plugin),
      RABBET_STATUS_PLUGIN, "lacks describe");
  vtable = probe_vtable;
  vtable.enqueue = NULL;
  RABBET_EXPECT_ERROR(
      rabbet_plugin_wrap(&creator, instance, allocator, &plugin),
      RABBET_STATUS_PLUGIN, "lacks enqueue");
  assert_int_equal(answers.destroyed, 0);  // still the caller's
  assert_int_equal(answers.creators_destroyed, 0);
}

static void test_clones_without_clone_are_shared(void** state) {
  (void)state;
  rabbet_plugin_t* plugin = make(&pads_attr, 1);
  rabbet_plugin_t* clone = NULL;
  RABBET_EXPECT_OK(rabbet_plugin_clone(plugin, &clone));
  assert_ptr_equal(plugin, clone);
  rabbet_plugin_release(clone);
  assert_int_equal(answers.destroyed, 0);
  rabbet_plugin_release(plugin);
  assert_int_equal(answers.destroyed, 1);
}

// ---- Descriptions ----------------------------------------------------------

static rabbet_status_t describe_same(rabbet_dim_builder_t* builder,
                                     const rabbet_plugin_input_t* inputs,
                                     rabbet_plugin_output_t* outputs) {
  (void)builder;
  plugin_like(&inputs[0], &outputs[0]);
  return rabbet_ok();
}
static rabbet_status_t describe_bad_type(rabbet_dim_builder_t* builder,
                                         const rabbet_plugin_input_t* inputs,
                                         rabbet_plugin_output_t* outputs) {
  RABBET_RETURN_IF_ERROR(describe_same(builder, inputs, outputs));
  outputs[0].dtype = (rabbet_dtype_t)99;
  return rabbet_ok();
}
static rabbet_status_t describe_bad_rank(rabbet_dim_builder_t* builder,
                                         const rabbet_plugin_input_t* inputs,
                                         rabbet_plugin_output_t* outputs) {
  RABBET_RETURN_IF_ERROR(describe_same(builder, inputs, outputs));
  outputs[0].rank = 9;
  return rabbet_ok();
}
static rabbet_status_t describe_unset(rabbet_dim_builder_t* builder,
                                      const rabbet_plugin_input_t* inputs,
                                      rabbet_plugin_output_t* outputs) {
  (void)builder;
  outputs[0].dtype = inputs[0].dtype;
  outputs[0].rank = 2;
  return rabbet_ok();
}
static rabbet_status_t describe_negative(rabbet_dim_builder_t* builder,
                                         const rabbet_plugin_input_t* inputs,
                                         rabbet_plugin_output_t* outputs) {
  RABBET_RETURN_IF_ERROR(describe_same(builder, inputs, outputs));
  return rabbet_dim_constant(builder, -3, &outputs[0].dims[0]);
}
static rabbet_status_t describe_bad_alias(rabbet_dim_builder_t* builder,
                                          const rabbet_plugin_input_t* inputs,
                                          rabbet_plugin_output_t* outputs) {
  RABBET_RETURN_IF_ERROR(describe_same(builder, inputs, outputs));
  outputs[0].aliased_input = 5;
  return rabbet_ok();
}
static rabbet_status_t describe_other_alias(rabbet_dim_builder_t* builder,
                                            const rabbet_plugin_input_t* inputs,
                                            rabbet_plugin_output_t* outputs) {
  RABBET_RETURN_IF_ERROR(describe_same(builder, inputs, outputs));
  outputs[0].aliased_input = 0;
  outputs[0].dtype = RABBET_DTYPE_HALF;
  return rabbet_ok();
}
static rabbet_status_t describe_bad_size(rabbet_dim_builder_t* builder,
                                         const rabbet_plugin_input_t* inputs,
                                         rabbet_plugin_output_t* outputs) {
  RABBET_RETURN_IF_ERROR(describe_same(builder, inputs, outputs));
  outputs[0].is_size_tensor = true;
  return rabbet_ok();
}
static rabbet_status_t describe_by_zero(rabbet_dim_builder_t* builder,
                                        const rabbet_plugin_input_t* inputs,
                                        rabbet_plugin_output_t* outputs) {
  rabbet_dim_t zero = 0;
  RABBET_RETURN_IF_ERROR(describe_same(builder, inputs, outputs));
  RABBET_RETURN_IF_ERROR(rabbet_dim_constant(builder, 0, &zero));
  return rabbet_dim_operation(builder, RABBET_DIM_FLOOR_DIV, inputs[0].dims[0],
                              zero, &outputs[0].dims[0]);
}

static void test_descriptions_are_checked(void** state) {
  (void)state;
  static const struct {
    rabbet_status_t (*describe)(rabbet_dim_builder_t*,
                                const rabbet_plugin_input_t*,
                                rabbet_plugin_output_t*);
    rabbet_status_code_t code;
    const char* part;
  } cases[] = {
      {describe_bad_type, RABBET_STATUS_PLUGIN, "99 is not a data type"},
      {describe_bad_rank, RABBET_STATUS_PLUGIN, "rank 9"},
      {describe_unset, RABBET_STATUS_PLUGIN, "dimension 0 was not set"},
      {describe_negative, RABBET_STATUS_PLUGIN, "negative (-3)"},
      {describe_bad_alias, RABBET_STATUS_PLUGIN, "input 5"},
      {describe_other_alias, RABBET_STATUS_PLUGIN, "same type and shape"},
      {describe_bad_size, RABBET_STATUS_PLUGIN, "0-D INT32 or INT64"},
      {describe_by_zero, RABBET_STATUS_INVALID_ARGUMENT,
       "plugin 'test::Probe'"},
  };
  rabbet_plugin_t* plugin = make(&pads_attr, 1);
  rabbet_expr_graph_t* graph = NULL;
  RABBET_EXPECT_OK(rabbet_expr_graph_create(rabbet_allocator_system(), &graph));
  int32_t tensor = 7;
  rabbet_dim_builder_t builder = {graph, &tensor, 1};
  rabbet_plugin_input_t input = {.dtype = RABBET_DTYPE_FLOAT, .rank = 1};
  rabbet_plugin_output_t output;
  RABBET_EXPECT_OK(rabbet_dim_constant(&builder, 12, &input.dims[0]));
  answers.describe = describe_same;
  RABBET_EXPECT_OK(
      rabbet_plugin_describe(plugin, &builder, &input, 1, &output));
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
    answers.describe = cases[i].describe;
    RABBET_EXPECT_ERROR(
        rabbet_plugin_describe(plugin, &builder, &input, 1, &output),
        cases[i].code, cases[i].part);
  }
  rabbet_expr_graph_destroy(graph);
  rabbet_plugin_release(plugin);
}

static void test_size_tensors_are_symbols(void** state) {
  (void)state;
  rabbet_expr_graph_t* graph = NULL;
  RABBET_EXPECT_OK(rabbet_expr_graph_create(rabbet_allocator_system(), &graph));
  int32_t tensors[] = {4, 9};
  rabbet_dim_builder_t builder = {graph, tensors, 2};
  rabbet_dim_t opt = 0, upper = 0, size = 0, again = 0;
  RABBET_EXPECT_OK(rabbet_dim_constant(&builder, 5, &opt));
  RABBET_EXPECT_OK(rabbet_dim_constant(&builder, 10, &upper));
  RABBET_EXPECT_OK(rabbet_dim_size_tensor(&builder, 1, opt, upper, &size));
  RABBET_EXPECT_OK(rabbet_dim_size_tensor(&builder, 1, opt, upper, &again));
  assert_int_equal(size, again);
  assert_true(rabbet_dim_is_size_tensor(&builder, size));
  assert_false(rabbet_dim_is_size_tensor(&builder, opt));
  assert_int_equal(rabbet_expr_symbol(graph, 0)->tensor, 9);
  RABBET_EXPECT_ERROR(rabbet_dim_size_tensor(&builder, 2, opt, upper, &size),
                      RABBET_STATUS_INVALID_ARGUMENT, "output 2 of 2");
  RABBET_EXPECT_ERROR(
      rabbet_dim_operation(&builder, RABBET_DIM_SUM, opt, 1000, &size),
      RABBET_STATUS_INVALID_ARGUMENT, "1000 is not a dimension");
  RABBET_EXPECT_ERROR(rabbet_dim_constant(NULL, 1, &size),
                      RABBET_STATUS_FAILED_PRECONDITION, "while outputs");
  rabbet_expr_graph_destroy(graph);
}

// ---- Types, formats, tactics -----------------------------------------------

static rabbet_status_t count_combination(
    void* context, const rabbet_plugin_type_format_t* tensors) {
  (void)tensors;
  ++*(int*)context;
  return rabbet_ok();
}
static rabbet_status_t keep_tactic(void* context, int32_t tactic) {
  *(int*)context = *(int*)context * 100 + tactic + 1;
  return rabbet_ok();
}

static void test_combinations_and_tactics(void** state) {
  (void)state;
  rabbet_plugin_t* plugin = make(&pads_attr, 1);
  rabbet_dims_t dims = {.rank = 2, .d = {2, 3}};
  const rabbet_plugin_tensor_t tensor = {.dtype = RABBET_DTYPE_FLOAT,
                                         .format = RABBET_FORMAT_LINEAR,
                                         .dims = dims,
                                         .min = dims,
                                         .opt = dims,
                                         .max = dims};
  const rabbet_plugin_tensor_t tensors[2] = {tensor, tensor};
  rabbet_plugin_query_t query = {.struct_size = sizeof(query),
                                 .layer_name = "conv",
                                 .device = "cpu",
                                 .tensors = tensors,
                                 .input_count = 1,
                                 .output_count = 1};
  int count = 0, tactics = 0;
  rabbet_plugin_combination_sink_t sink = {&count, count_combination};
  rabbet_plugin_tactic_sink_t tactic_sink = {&tactics, keep_tactic};
  RABBET_EXPECT_ERROR(rabbet_plugin_combinations(plugin, &query, sink),
                      RABBET_STATUS_PLUGIN, "no combination");
  answers.combinations = 2;
  RABBET_EXPECT_OK(rabbet_plugin_combinations(plugin, &query, sink));
  assert_int_equal(count, 2);
  answers.combination[1].format = RABBET_FORMAT_CHW16;  // needs rank 3
  RABBET_EXPECT_ERROR(rabbet_plugin_combinations(plugin, &query, sink),
                      RABBET_STATUS_INVALID_ARGUMENT, "tensor 1 as CHW16");
  RABBET_EXPECT_OK(rabbet_plugin_tactics(plugin, &query, tactic_sink));
  assert_int_equal(tactics, 1);  // tactic 0 stands for none
  answers.tactic_count = 2;
  answers.tactics[0] = 3;
  answers.tactics[1] = 4;
  RABBET_EXPECT_OK(rabbet_plugin_tactics(plugin, &query, tactic_sink));
  assert_int_equal(tactics, 1 * 10000 + 4 * 100 + 5);
  answers.tactics[1] = 0;
  RABBET_EXPECT_ERROR(rabbet_plugin_tactics(plugin, &query, tactic_sink),
                      RABBET_STATUS_PLUGIN, "tactics are positive");
  rabbet_plugin_release(plugin);
}

// ---- Answers of instances --------------------------------------------------

static uint64_t told_shape_inputs(void* self) {
  (void)self;
  return 4;
}
static const char* told_metadata(void* self) {
  (void)self;
  return "text";
}
static rabbet_status_t told_serialize(void* self,
                                      const rabbet_plugin_query_t* query,
                                      int32_t tactic,
                                      rabbet_plugin_attr_sink_t sink) {
  (void)self;
  int64_t values[] = {query->tensors[0].dtype, tactic};
  rabbet_attr_t attr = {
      .name = "chosen", .type = RABBET_ATTR_INTS, .data = values, .count = 2};
  return sink.add(sink.context, &attr);
}
static rabbet_status_t take_chosen(void* context, const rabbet_attr_t* attr) {
  memcpy(context, attr->data, 2 * sizeof(int64_t));
  return rabbet_ok();
}

static void test_instances_tell(void** state) {
  (void)state;
  rabbet_plugin_vtable_t vtable = probe_vtable;
  vtable.shape_inputs = told_shape_inputs;
  vtable.serialize_chosen = told_serialize;
  vtable.metadata = told_metadata;
  rabbet_plugin_creator_t creator = probe("Telling");
  creator.user_data = &vtable;
  creator.destroy = NULL;
  creator.shape_inputs = 1;
  RABBET_EXPECT_OK(rabbet_plugin_register(&creator));
  rabbet_plugin_create_t args = {.attrs = &pads_attr, .attr_count = 1};
  rabbet_plugin_t* plugin = NULL;
  RABBET_EXPECT_OK(rabbet_plugin_create("Telling", NULL, "test", &args,
                                        rabbet_allocator_system(), &plugin));
  assert_int_equal(rabbet_plugin_shape_inputs(plugin), 5);
  assert_string_equal(rabbet_plugin_metadata(plugin), "text");
  assert_ptr_equal(rabbet_plugin_instance(plugin).vtable, &vtable);
  rabbet_plugin_tensor_t tensor = {.dtype = RABBET_DTYPE_HALF};
  rabbet_plugin_query_t query = {.tensors = &tensor, .input_count = 1};
  int64_t chosen[2] = {0};
  RABBET_EXPECT_OK(rabbet_plugin_serialize(
      plugin, &query, 7, (rabbet_plugin_attr_sink_t){chosen, take_chosen}));
  assert_int_equal(chosen[0], RABBET_DTYPE_HALF);
  assert_int_equal(chosen[1], 7);
  rabbet_plugin_release(plugin);
  RABBET_EXPECT_OK(rabbet_plugin_deregister("Telling", NULL, "test"));
  // A probe has no such inputs.
  plugin = make(&pads_attr, 1);
  assert_int_equal(rabbet_plugin_shape_inputs(plugin), 0);
  assert_string_equal(rabbet_plugin_metadata(plugin), "");
  rabbet_plugin_release(plugin);
}

// ---- Inputs that may be absent ---------------------------------------------

static uint64_t told_absent;

static rabbet_status_t absent_create(void* user_data,
                                     const rabbet_plugin_create_t* args,
                                     rabbet_plugin_instance_t* out_instance) {
  told_absent = args->absent_inputs;
  return probe_create(user_data, args, out_instance);
}

typedef struct kept_attrs_t {
  rabbet_attr_t attrs[2];
  int64_t mask;
  size_t count;
} kept_attrs_t;

static rabbet_status_t keep_attr(void* context, const rabbet_attr_t* attr) {
  kept_attrs_t* kept = context;
  kept->attrs[kept->count] = *attr;
  if (attr->type == RABBET_ATTR_INT) {
    kept->mask = *(const int64_t*)attr->data;
    kept->attrs[kept->count].data = &kept->mask;
  }
  ++kept->count;
  return rabbet_ok();
}

static void test_absent_inputs_come_back_at_load(void** state) {
  (void)state;
  rabbet_plugin_creator_t creator = probe("Lacking");
  creator.create = absent_create;
  creator.destroy = NULL;
  creator.input_count = 4;
  creator.shape_inputs = 1 << 3;
  creator.optional_inputs = 1 << 1 | 1 << 2;
  RABBET_EXPECT_OK(rabbet_plugin_register(&creator));
  rabbet_allocator_t allocator = rabbet_allocator_system();
  rabbet_plugin_create_t args = {
      .attrs = &pads_attr, .attr_count = 1, .absent_inputs = 1 << 1};
  rabbet_plugin_t* plugin = NULL;
  RABBET_EXPECT_OK(
      rabbet_plugin_create("Lacking", NULL, "test", &args, allocator, &plugin));
  assert_int_equal(told_absent, 1 << 1);
  // Of the three inputs that are there it is the last.
  assert_int_equal(rabbet_plugin_shape_inputs(plugin), 1 << 2);
  kept_attrs_t kept = {.count = 0};
  rabbet_plugin_query_t query = {.input_count = 0};
  RABBET_EXPECT_OK(rabbet_plugin_serialize(
      plugin, &query, 0, (rabbet_plugin_attr_sink_t){&kept, keep_attr}));
  assert_int_equal(kept.count, 1);
  rabbet_plugin_release(plugin);
  told_absent = 0;
  args = (rabbet_plugin_create_t){.phase = RABBET_PLUGIN_PHASE_RUNTIME,
                                  .attrs = kept.attrs,
                                  .attr_count = kept.count};
  RABBET_EXPECT_OK(
      rabbet_plugin_create("Lacking", NULL, "test", &args, allocator, &plugin));
  assert_int_equal(told_absent, 1 << 1);
  assert_int_equal(rabbet_plugin_shape_inputs(plugin), 1 << 2);
  rabbet_plugin_release(plugin);
  kept.mask = 1;  // not one of those
  RABBET_EXPECT_ERROR(
      rabbet_plugin_create("Lacking", NULL, "test", &args, allocator, &plugin),
      RABBET_STATUS_DATA_LOSS, "always there");
  kept.attrs[0].type = RABBET_ATTR_STRING;
  RABBET_EXPECT_ERROR(
      rabbet_plugin_create("Lacking", NULL, "test", &args, allocator, &plugin),
      RABBET_STATUS_DATA_LOSS, "not an integer");
  RABBET_EXPECT_OK(rabbet_plugin_deregister("Lacking", NULL, "test"));
}

// A library from before these inputs: its structure ends earlier.
static void test_creators_of_older_libraries(void** state) {
  (void)state;
  rabbet_plugin_creator_t creator = probe("Older");
  creator.destroy = NULL;
  creator.struct_size = offsetof(rabbet_plugin_creator_t, optional_inputs);
  creator.optional_inputs = ~UINT64_C(0);  // the bytes behind it are arbitrary
  RABBET_EXPECT_OK(rabbet_plugin_register(&creator));
  const rabbet_plugin_creator_t* found = NULL;
  RABBET_EXPECT_OK(rabbet_plugin_find("Older", NULL, "test", &found));
  assert_int_equal(found->optional_inputs, 0);
  assert_int_equal(found->input_count, creator.input_count);
  rabbet_plugin_creator_release(found);
  RABBET_EXPECT_OK(rabbet_plugin_deregister("Older", NULL, "test"));
  // The smallest creator that is accepted takes any number of inputs.
  creator.struct_size = offsetof(rabbet_plugin_creator_t, shape_inputs);
  RABBET_EXPECT_OK(rabbet_plugin_register(&creator));
  RABBET_EXPECT_OK(rabbet_plugin_find("Older", NULL, "test", &found));
  assert_int_equal(found->input_count, -1);
  assert_int_equal(found->struct_size, sizeof(*found));
  rabbet_plugin_creator_release(found);
  RABBET_EXPECT_OK(rabbet_plugin_deregister("Older", NULL, "test"));
}

// A library of a header that has one field more, in each structure.
static void test_creators_of_newer_libraries(void** state) {
  (void)state;
  struct {
    rabbet_plugin_creator_t creator;
    uint64_t added;
  } newer = {probe("Newer"), 0};
  struct {
    rabbet_plugin_field_t field;
    uint64_t added;
  } newer_fields[2] = {{fields[0], 0}, {fields[1], 0}};
  newer.creator.struct_size = sizeof(newer);
  newer.creator.destroy = NULL;
  newer.creator.fields = &newer_fields[0].field;
  newer.creator.field_count = 2;
  newer.creator.field_size = sizeof(newer_fields[0]);
  RABBET_EXPECT_OK(rabbet_plugin_register(&newer.creator));
  const rabbet_plugin_creator_t* found = NULL;
  RABBET_EXPECT_OK(rabbet_plugin_find("Newer", NULL, "test", &found));
  assert_int_equal(found->field_size, sizeof(*found->fields));
  assert_string_equal(found->fields[1].name, "mode");
  rabbet_plugin_creator_release(found);
  RABBET_EXPECT_OK(rabbet_plugin_deregister("Newer", NULL, "test"));
  newer_fields[1].added = 1;
  RABBET_EXPECT_ERROR(rabbet_plugin_register(&newer.creator),
                      RABBET_STATUS_INVALID_ARGUMENT,
                      "rabbet_plugin_field_t: the size of an element is 32");
  newer.creator.field_size = 0;
  RABBET_EXPECT_ERROR(rabbet_plugin_register(&newer.creator),
                      RABBET_STATUS_INVALID_ARGUMENT,
                      "set it to sizeof(rabbet_plugin_field_t)");
  newer.added = 1;
  RABBET_EXPECT_ERROR(rabbet_plugin_register(&newer.creator),
                      RABBET_STATUS_INVALID_ARGUMENT,
                      "rabbet_plugin_creator_t: struct_size is 128, that of");
}

// Instances of older and newer libraries, by their tables of functions.
static void test_tables_of_other_sizes(void** state) {
  (void)state;
  struct {
    rabbet_plugin_vtable_t vtable;
    void* added;
  } newer = {probe_vtable, NULL};
  rabbet_plugin_creator_t creator = probe("Table");
  const rabbet_plugin_create_t args = {.layer_name = "layer"};
  rabbet_plugin_t* plugin = NULL;
  creator.destroy = NULL;
  creator.field_count = 0;
  creator.user_data = &newer;
  RABBET_EXPECT_OK(rabbet_plugin_register(&creator));
  const struct {
    size_t size;
    void* added;
    const char* error;  // NULL: none
  } cases[] = {
      {sizeof(newer), NULL, NULL},
      {sizeof(newer), &newer, "struct_size is 168, that of rabbet"},
      {offsetof(rabbet_plugin_vtable_t, shape_inputs), &newer, NULL},
      {offsetof(rabbet_plugin_vtable_t, describe), NULL,
       "set it to sizeof(rabbet_plugin_vtable_t)"},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
    newer.vtable.struct_size = (uint32_t)cases[i].size;
    newer.added = cases[i].added;
    rabbet_status_t status = rabbet_plugin_create(
        "Table", NULL, "test", &args, rabbet_allocator_system(), &plugin);
    if (cases[i].error)
      RABBET_EXPECT_ERROR(status, RABBET_STATUS_INVALID_ARGUMENT,
                          cases[i].error);
    else
      RABBET_EXPECT_OK(status);
    rabbet_plugin_release(plugin);
  }
  RABBET_EXPECT_OK(rabbet_plugin_deregister("Table", NULL, "test"));
}

static void test_attributes_have_no_more_than_we_know(void** state) {
  (void)state;
  rabbet_attr_t attr = pads_attr;
  attr.reserved[1] = 1;
  const rabbet_plugin_create_t args = {
      .layer_name = "layer", .attrs = &attr, .attr_count = 1};
  rabbet_plugin_t* plugin = NULL;
  RABBET_EXPECT_ERROR(rabbet_plugin_create("Probe", "1", "test", &args,
                                           rabbet_allocator_system(), &plugin),
                      RABBET_STATUS_INVALID_ARGUMENT,
                      "attribute 'pads': reserved is not 0");
}

static void test_fields_of_any_type(void** state) {
  (void)state;
  const rabbet_plugin_field_t any = {.name = "pads", .type = RABBET_ATTR_ANY};
  rabbet_plugin_creator_t creator = probe("Any");
  creator.fields = &any;
  creator.field_count = 1;
  RABBET_EXPECT_OK(rabbet_plugin_register(&creator));
  const int64_t one = 1;
  const rabbet_attr_t values[] = {
      pads_attr,
      {.name = "pads", .type = RABBET_ATTR_INT, .data = &one, .count = 1},
      {.name = "pads", .type = RABBET_ATTR_STRING, .data = "x", .count = 1},
  };
  for (size_t i = 0; i < 3; ++i) {
    rabbet_plugin_create_t args = {.attrs = &values[i], .attr_count = 1};
    rabbet_plugin_t* plugin = NULL;
    RABBET_EXPECT_OK(rabbet_plugin_create("Any", NULL, "test", &args,
                                          rabbet_allocator_system(), &plugin));
    rabbet_plugin_release(plugin);
  }
  RABBET_EXPECT_OK(rabbet_plugin_deregister("Any", NULL, "test"));
}

static void test_failures_name_the_plugin(void** state) {
  (void)state;
  rabbet_plugin_t* plugin = make(&pads_attr, 1);
  rabbet_plugin_call_t call = {.layer_name = "pad3"};
  RABBET_EXPECT_ERROR(rabbet_plugin_enqueue(plugin, &call),
                      RABBET_STATUS_PLUGIN,
                      "plugin 'test::Probe' (plugin_test.c): "
                      "running: it always fails");
  rabbet_plugin_release(plugin);
}

static rabbet_status_t create_and_release(rabbet_allocator_t allocator,
                                          void* user_data) {
  (void)user_data;
  rabbet_plugin_create_t args = {
      .layer_name = "layer", .attrs = &pads_attr, .attr_count = 1};
  rabbet_plugin_t* plugin = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_plugin_create("Probe", "1", "test", &args, allocator, &plugin));
  rabbet_plugin_release(plugin);
  return rabbet_ok();
}

static void test_creation_survives_lack_of_memory(void** state) {
  (void)state;
  assert_true(rabbet_fault_run(create_and_release, NULL) > 0);
  assert_int_equal(answers.created, answers.destroyed);
}

int main(void) {
#define TEST(f) \
  cmocka_unit_test_setup_teardown(f, register_probe, deregister_probe)
  const struct CMUnitTest tests[] = {
      TEST(test_keys_are_unique),
      TEST(test_missing_plugins_are_named),
      TEST(test_wrong_creators_are_refused),
      TEST(test_missing_library),
      TEST(test_attributes_are_checked),
      TEST(test_instances_must_be_whole),
      TEST(test_clones_without_clone_are_shared),
      TEST(test_descriptions_are_checked),
      TEST(test_size_tensors_are_symbols),
      TEST(test_combinations_and_tactics),
      TEST(test_failures_name_the_plugin),
      TEST(test_instances_tell),
      TEST(test_absent_inputs_come_back_at_load),
      TEST(test_creators_of_older_libraries),
      TEST(test_creators_of_newer_libraries),
      TEST(test_tables_of_other_sizes),
      TEST(test_attributes_have_no_more_than_we_know),
      TEST(test_fields_of_any_type),
      TEST(test_creation_survives_lack_of_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
