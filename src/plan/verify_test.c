// Plans that are refused.
#include "plan_bytes.h"
#include "plan_samples.h"

#define SYSTEM rabbet_allocator_system()

static void wrong_value_dtype(maker_t* m) {
  m->values[0].dtype = 77;
}
static void wrong_format(maker_t* m) {
  m->values[0].format = 5000;
}
static void wrong_format_rank(maker_t* m) {
  m->values[2].format = RABBET_FORMAT_CHW4;
}
static void wrong_expr(maker_t* m) {
  m->values[2].shape.d[1] = 99;
}
static void wrong_io(maker_t* m) {
  m->values[3].io = 2;
}
static void stolen_io(maker_t* m) {
  m->values[3].io = 0;
}
static void wrong_alias(maker_t* m) {
  m->values[2].alias = 2;
}
static void wrong_alias_storage(maker_t* m) {
  m->values[2].alias = 3;
}
static void constant_too_long(maker_t* m) {
  m->values[1].offset = 64;
}
static void constant_of_other_size(maker_t* m) {
  m->values[1].size = 20;
}
static void wrong_storage(maker_t* m) {
  m->values[2].storage = 3;
}
static void same_names(maker_t* m) {
  m->ios[1].name = "x";
}
static void inputs_last(maker_t* m) {
  m->plan->sequences[0].input_count = 0;
}
static void range_upside_down(maker_t* m) {
  m->ranges[0].min.d[0] = 3;
}
static void no_profile(maker_t* m) {
  m->plan->profile_count = 0;
}
static void steps_swapped(maker_t* m) {
  rabbet_plan_step_t step = m->steps[0];
  m->steps[0] = m->steps[1];
  m->steps[1] = step;
}
static void written_twice(maker_t* m) {
  static const int32_t values[] = {2, 2};
  m->steps[1].values = values;
}
static void writes_input(maker_t* m) {
  static const int32_t values[] = {2, 0};
  m->steps[1].values = values;
}
static void output_never_written(maker_t* m) {
  m->plan->sequences[0].step_count = 1;
}
static void no_kernel_name(maker_t* m) {
  m->steps[0].kernel = "";
}
static void no_layers(maker_t* m) {
  m->steps[0].group.node_count = 0;
}
static void boundary_out_of_range(maker_t* m) {
  static const int32_t inputs[] = {0, 9};
  m->steps[0].group.inputs = inputs;
}
static void boundary_twice(maker_t* m) {
  static const int32_t inputs[] = {0, 0};
  m->steps[0].group.inputs = inputs;
}
static void operand_missing(maker_t* m) {
  m->steps[0].group.nodes[0].input_count = 1;
}
static void operand_too_many(maker_t* m) {
  static const int32_t inputs[] = {0, 1, 1};
  m->steps[0].group.nodes[0].inputs = inputs;
  m->steps[0].group.nodes[0].input_count = 3;
}
static void node_output_twice(maker_t* m) {
  static const int32_t outputs[] = {0};
  m->steps[0].group.nodes[0].outputs = outputs;
}
static void dtype_inside_differs(maker_t* m) {
  m->steps[0].group.values[0].dtype = RABBET_DTYPE_HALF;
}
static void read_out_of_range(maker_t* m) {
  static const int32_t reads[] = {4};
  m->steps[0].host_reads = reads;
  m->steps[0].host_read_count = 1;
}
static void read_of_floats(maker_t* m) {
  static const int32_t reads[] = {2};
  m->steps[0].host_reads = reads;
  m->steps[0].host_read_count = 1;
}
static void plugin_without_layer(maker_t* m) {
  m->steps[0].plugin_name = "stray";
}
static void layer_without_plugin(maker_t* m) {
  m->steps[0].group.nodes[0].op = rabbet_op_get(RABBET_OP_PLUGIN);
}
static void plugin_of_two_layers(maker_t* m) {
  rabbet_group_t* group = &m->steps[0].group;
  rabbet_group_node_t nodes[2] = {group->nodes[0], group->nodes[0]};
  static const int32_t outputs[] = {3}, inputs[] = {0};
  nodes[1].op = rabbet_op_get(RABBET_OP_IDENTITY);
  nodes[1].attrs = NULL;
  nodes[1].inputs = inputs;
  nodes[1].input_count = nodes[1].output_count = 1;
  nodes[1].outputs = outputs;
  rabbet_group_value_t values[4] = {group->values[0], group->values[1],
                                    group->values[2], group->values[0]};
  int32_t numbers[4] = {0, 2, 1, -1};
  rabbet_shape_t shapes[4] = {{.rank = -1}, {.rank = -1}, {.rank = -1}};
  group->nodes = maker_copy(m, nodes, sizeof(nodes));
  group->node_count = 2;
  group->values = maker_copy(m, values, sizeof(values));
  group->value_count = 4;
  memcpy(numbers, m->steps[0].values, 3 * sizeof(int32_t));
  m->steps[0].values = maker_copy(m, numbers, sizeof(numbers));
  m->steps[0].inner_shapes = maker_copy(m, shapes, sizeof(shapes));
}
static void plugin_without_input(maker_t* m) {
  static const int32_t inputs[] = {-1};
  m->steps[0].group.nodes[0].inputs = inputs;
}
static void plugin_outputs_swapped(maker_t* m) {
  static const int32_t outputs[] = {2, 1};
  m->steps[0].group.outputs = outputs;
}
// The plugin has two outputs, of which one stays inside the step.
static void plugin_output_inside(maker_t* m) {
  static const int32_t values[] = {0, 2, -1};
  rabbet_shape_t shapes[3] = {{.rank = -1}, {.rank = -1}, {.rank = 0}};
  m->steps[0].values = values;
  m->steps[0].inner_shapes = maker_copy(m, shapes, sizeof(shapes));
  m->steps[0].group.output_count = 1;
}
static void report_no_json(maker_t* m) {
  m->steps[0].report_json = "[1,]";
}
static void symbol_of_nothing(maker_t* m) {
  m->values[2].shape.d[0] = maker_dim(m, 9, 0, NULL);
}
static void symbol_of_no_axis(maker_t* m) {
  m->values[2].shape.d[0] = maker_dim(m, 0, 2, NULL);
}
static void symbol_of_no_input(maker_t* m) {
  m->values[3].shape.d[0] = maker_element(m, 2, 0, RABBET_EXPR_NONE);
}
static void input_of_an_expression(maker_t* m) {
  rabbet_expr_t dim = maker_dim(m, 0, 0, NULL);
  m->values[0].shape.d[0] = maker_op(m, RABBET_EXPR_SUM, dim, dim);
}
static void host_values_of_floats(maker_t* m) {
  static const rabbet_expr_t values[6] = {0};
  m->values[2].host_values = values;
  m->values[2].host_value_count = 6;
}

static void too_many_threads(maker_t* m) {
  m->plan->threads = 1 << 20;
}
static void check_of(maker_t* m, int32_t io, int32_t index) {
  static rabbet_plan_check_t check;
  check = (rabbet_plan_check_t){
      .layer = "small", .message = "?", .io = io, .index = index};
  m->plan->sequences[0].hidden_count = 1;
  m->plan->sequences[0].checks = &check;
  m->plan->sequences[0].check_count = 1;
}
static void hidden_for_nothing(maker_t* m) {
  m->plan->sequences[0].hidden_count = 1;
}
static void check_of_input(maker_t* m) {
  check_of(m, 0, 0);
  m->plan->sequences[0].ios[m->plan->sequences[0].io_count - 1].is_debug = true;
}
static void check_of_floats(maker_t* m) {
  check_of(m, (int32_t)m->plan->sequences[0].io_count - 1, 0);
}
static void check_of_unknown(maker_t* m) {
  check_of(m, (int32_t)m->plan->sequences[0].io_count - 1, -1);
}

typedef struct wrong_t {
  void (*damage)(maker_t* maker);
  const char* message;
} wrong_t;

static const wrong_t wrongs[] = {
    {wrong_value_dtype, "value 0 ('x'): 77 is not a data type"},
    {wrong_format, "value 0 ('x'): 5000 is not a tensor format"},
    {wrong_format_rank, "value 2 ('sum'): format CHW4 needs rank 3, found 2"},
    {wrong_expr, "axis 1 refers to expression 99 of 2"},
    {wrong_io, "value 3 ('y'): it is input or output 2 of 2"},
    {stolen_io, "value 3 ('y'): input or output 'x' is another value"},
    {wrong_alias, "it shares the memory of value 2 of 4"},
    {wrong_alias_storage,
     "it shares the memory of value 3 ('y'), which is "
     "kept otherwise"},
    {constant_too_long,
     "its data lies at 64 with 24 bytes, the weights have 24"},
    {constant_of_other_size,
     "its data has 20 bytes; its shape and type need "
     "24"},
    {wrong_storage, "3 is not a storage"},
    {same_names, "two inputs or outputs are named 'x'"},
    {inputs_last, "input 'x': inputs must come first"},
    {range_upside_down, "profile 0, input 'x': axis 0 has the range 3, 2, 2"},
    {no_profile, "no profile"},
    {steps_swapped,
     "step 0 ('relu'): it reads 'sum', which no earlier step "
     "writes"},
    {written_twice, "is written by two steps"},
    {writes_input, "it writes 'x', which must not be written"},
    {output_never_written, "output 'y' is never written"},
    {no_kernel_name, "step 0 ('add'): it names no kernel"},
    {no_layers, "it has no layer"},
    {boundary_out_of_range, "input 1 is value 9 of 3 of the step"},
    {boundary_twice, "input 1 comes twice"},
    {operand_missing,
     "layer 'add' (elementwise): it has 1 inputs; expected at "
     "least 2"},
    {operand_too_many, "input 2 is one too many"},
    {node_output_twice, "output 0 is computed twice"},
    {dtype_inside_differs, "is FLOAT LINEAR outside but HALF LINEAR inside"},
    {read_out_of_range, "the host reads value 4 of 4"},
    {read_of_floats, "the host reads 'sum', which is not a scalar or vector"},
    {plugin_without_layer, "it has 0 plugin layers but one plugin"},
    {layer_without_plugin, "it has 1 plugin layers but no plugin"},
    {report_no_json, "its report is not JSON"},
    {symbol_of_nothing, "symbol 0 stands for value 9 of 4"},
    {symbol_of_no_axis, "stands for axis 2 of value 'x', which has 2"},
    {symbol_of_no_input, "which is neither an input nor read by the host"},
    {input_of_an_expression, "axis 0 is neither a number nor a symbol"},
    {host_values_of_floats, "must be LINEAR, of integers or BOOL"},
    {too_many_threads, "it was tuned for 1048576 threads; expected 0 to 4096"},
    {hidden_for_nothing, "must be a debug tensor or that of a check"},
    {check_of_input, "check 'small': it is of output 0, which is not hidden"},
    {check_of_floats, "check 'small': element 0 of value"},
    {check_of_unknown, "check 'small': element -1 of value"},
};

static const wrong_t wrong_plugins[] = {
    {plugin_of_two_layers, "its plugin layer is one of 2 layers; expected one"},
    {plugin_without_input, "input 0 of the plugin layer 'compact' is missing"},
    {plugin_outputs_swapped,
     "output 0 of the plugin layer 'compact' is not output 0 of the step"},
    {plugin_output_inside,
     "output 1 of the plugin layer 'compact' is not output 1 of the step"},
};

// Each kind of damage to a sample, which is valid without it.
static void expect_refused(void (*sample)(maker_t* maker), uint64_t weights,
                           const wrong_t* list, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    maker_t maker;
    maker_begin(&maker, SYSTEM);
    sample(&maker);
    RABBET_EXPECT_OK(rabbet_plan_verify(maker.plan, weights));
    list[i].damage(&maker);
    RABBET_EXPECT_ERROR(rabbet_plan_verify(maker.plan, weights),
                        RABBET_STATUS_DATA_LOSS, list[i].message);
    maker_end(&maker);
  }
}

typedef struct wrong_size_t {
  uint64_t size;
  const char* message;
} wrong_size_t;

// Other sizes of a section than META tells, each whole by itself.
static void expect_sizes_refused(void (*sample)(maker_t* maker), int section,
                                 const wrong_size_t* list, size_t count) {
  static const uint8_t room[256];
  void* data = NULL;
  size_t size = 0, whole = 0;
  rabbet_plan_t* plan = NULL;
  maker_bytes(sample, SYSTEM, &data, &size);
  for (size_t i = 0; i < count; ++i) {
    plan_bytes_t parts = plan_bytes_split(data);
    parts.section[section] = room;
    parts.size[section] = list[i].size;
    uint8_t* joined = plan_bytes_join(&parts, &whole);
    RABBET_EXPECT_ERROR(rabbet_plan_read(joined, whole, NULL, SYSTEM, &plan),
                        RABBET_STATUS_DATA_LOSS, list[i].message);
    free(joined);
  }
  rabbet_free_aligned(SYSTEM, data, RABBET_PLAN_ALIGNMENT);
}

static void wrong_plans(void** state) {
  (void)state;
  expect_refused(sample_static, 24, wrongs, sizeof(wrongs) / sizeof(wrongs[0]));
}

static void artifact_empty(maker_t* m) {
  m->plan->artifacts[1].size = 0;
}
static void artifact_twice(maker_t* m) {
  m->plan->artifacts[1].key = m->plan->artifacts[0].key;
}
static void artifacts_out_of_order(maker_t* m) {
  m->plan->artifacts[1].key.high = 0;
}
static void artifact_unknown(maker_t* m) {
  static const int32_t list[] = {2};
  m->steps[1].artifacts = list;
}
static void artifact_used_twice(maker_t* m) {
  static const int32_t list[] = {1, 1};
  m->steps[0].artifacts = list;
}

static void wrong_artifacts(void** state) {
  (void)state;
  static const wrong_t list[] = {
      {artifact_empty, "artifact 1 ('two.cu') is empty"},
      {artifact_twice, "artifact 1 ('two.cu') has the key of 'one.cu'"},
      {artifacts_out_of_order, "has the key of 'one.cu' before it, or a"},
      {artifact_unknown, "step 1 ('relu'): it uses artifact 2 of 2"},
      {artifact_used_twice, "it names artifact 1 after artifact 1"},
  };
  expect_refused(sample_artifacts, 24, list, sizeof(list) / sizeof(list[0]));
}

// META and KERNELS that do not fit each other, each whole by itself.
static void wrong_kernels_section(void** state) {
  (void)state;
  static const wrong_size_t list[] = {
      {0,
       "artifact 0: 'one.cu' lies at 0 with 100 bytes; expected at 0, "
       "within the 0 bytes of section KERNELS"},
      {128, "artifact 1: 'two.cu' lies at 128 with 36 bytes"},
      {200, "the artifacts end at 164, section KERNELS at 200"},
  };
  expect_sizes_refused(sample_artifacts, PLAN_KERNELS, list,
                       sizeof(list) / sizeof(list[0]));
}

static void carried_kind(maker_t* m) {
  m->plan->carried[1].kind = (rabbet_carried_kind_t)7;
}
static void carried_unnamed(maker_t* m) {
  m->plan->carried[1].name = "";
}
static void carried_path(maker_t* m) {
  m->plan->carried[1].name = "../ops";
}
static void carried_twice(maker_t* m) {
  m->plan->carried[2].name = "ops";
}
static void carried_out_of_order(maker_t* m) {
  m->plan->carried[1].kind = RABBET_CARRIED_LIBRARY;
}
static void carried_empty_library(maker_t* m) {
  m->plan->carried[0].kind = RABBET_CARRIED_LIBRARY;
  m->plan->carried[0].size = 0;
}

static void wrong_carried(void** state) {
  (void)state;
  static const wrong_t list[] = {
      {carried_kind, "code 1: it is of no known kind (7)"},
      {carried_unnamed, "code 1: '' is not a name"},
      {carried_path, "code 1: '../ops' is not a name"},
      {carried_twice, "code 2: 'ops' comes twice"},
      {carried_out_of_order, "library 'ops.padding' comes after source"},
      {carried_empty_library, "code 0: 'ops' is not a library"},
  };
  expect_refused(sample_carried, 24, list, sizeof(list) / sizeof(list[0]));
}

// META and PLUGINS that do not fit each other, each whole by itself.
static void wrong_plugins_section(void** state) {
  (void)state;
  static const wrong_size_t list[] = {
      {0, "code 0: 'ops' lies at 0 with 13 bytes; expected at 0, within the 0"},
      {64, "code 1: 'ops.padding' lies at 64 with 13 bytes"},
      {200, "the plugins' code ends at 128, section PLUGINS at 200"},
  };
  expect_sizes_refused(sample_carried, PLAN_PLUGINS, list,
                       sizeof(list) / sizeof(list[0]));
}

static void offset_without_alias(maker_t* m) {
  m->values[4].offset = 64;
}
static void offset_of_an_output(maker_t* m) {
  m->values[2].offset = 64;
}
static void offset_not_aligned(maker_t* m) {
  m->values[6].offset = 32;
}
static void offset_too_far(maker_t* m) {
  m->values[6].offset = 128;
}
static void offset_past_all(maker_t* m) {
  m->values[6].offset = UINT64_MAX - 63;
}
static void part_of_dynamic(maker_t* m) {
  m->values[4].shape.d[0] = maker_dim(m, 0, 0, NULL);
}
static void dynamic_part(maker_t* m) {
  m->values[6].shape.d[0] = maker_dim(m, 1, 0, NULL);
}
// Step 2 reads what steps 0 and 1 make.
static void part_made_late(maker_t* m) {
  rabbet_plan_step_t step = m->steps[1];
  m->steps[1] = m->steps[2];
  m->steps[2] = step;
}
static void part_never_made(maker_t* m) {
  m->plan->sequences[0].step_count = 4;
}
static void parts_with_a_gap(maker_t* m) {
  static const int64_t dims[] = {64};
  m->values[4].shape = maker_shape(m, 1, dims);
  m->values[6].offset = 128;
}

static const wrong_t wrong_parts[] = {
    {offset_without_alias,
     "value 4 ('joined'): it has an offset but memory of its own"},
    {offset_of_an_output,
     "value 2 ('y'): it has an offset but memory of its own"},
    {offset_not_aligned,
     "value 6 ('b'): it lies at 32 with 128 bytes, 'joined' has 192"},
    {offset_too_far, "it lies at 128 with 128 bytes, 'joined' has 192"},
    {offset_past_all,
     "it lies at 18446744073709551552 with 128 bytes, 'joined' has 192"},
    {part_of_dynamic,
     "it is a part of 'joined', but their shapes are not both constant"},
    {dynamic_part,
     "it is a part of 'joined', but their shapes are not both constant"},
    {part_made_late,
     "step 1 ('y'): it reads 'joined', which no earlier step writes"},
    {part_never_made, "output 'z' is never written"},
    {parts_with_a_gap,
     "step 2 ('y'): it reads 'joined', which no earlier step writes"},
};

static void wrong_plugin_layers(void** state) {
  (void)state;
  expect_refused(sample_reads, 0, wrong_plugins,
                 sizeof(wrong_plugins) / sizeof(wrong_plugins[0]));
}

static void plans_with_wrong_parts(void** state) {
  (void)state;
  expect_refused(sample_parts, 0, wrong_parts,
                 sizeof(wrong_parts) / sizeof(wrong_parts[0]));
}

// Steps that need values which are read only later.
static void wrong_stages(void** state) {
  (void)state;
  maker_t maker;
  maker_begin(&maker, SYSTEM);
  sample_reads(&maker);
  static const int32_t reads[] = {1};
  maker.steps[0].host_read_count = 0;
  maker.steps[1].host_reads = reads;
  maker.steps[1].host_read_count = 1;
  RABBET_EXPECT_ERROR(rabbet_plan_verify(maker.plan, 0),
                      RABBET_STATUS_DATA_LOSS,
                      "step 1 ('relu'): the shape of 'kept' is needed before "
                      "the host reads the values that it depends on");
  maker_end(&maker);
  // The step that finds a length out writes a tensor of that length.
  maker_begin(&maker, SYSTEM);
  sample_late(&maker);
  static const int32_t outputs[] = {1, 2};
  static const int32_t values[] = {0, 1, 2};
  rabbet_plan_step_t* step = &maker.steps[0];
  maker.steps[1] = maker.steps[2];
  maker.plan->sequences[0].step_count = 2;
  rabbet_group_value_t group_values[] = {step->group.values[0],
                                         step->group.values[1],
                                         {.dtype = RABBET_DTYPE_FLOAT}};
  step->values = values;
  step->group.values = group_values;
  step->group.value_count = 3;
  step->group.outputs = step->group.nodes[0].outputs = outputs;
  step->group.output_count = step->group.nodes[0].output_count = 2;
  RABBET_EXPECT_ERROR(rabbet_plan_verify(maker.plan, 0),
                      RABBET_STATUS_DATA_LOSS,
                      "step 0 ('length'): the size of 'y' has no bound when it "
                      "is written");
  maker_end(&maker);
}

static void wrong_shapes(void** state) {
  (void)state;
  maker_t maker;
  void* data = NULL;
  size_t size = 0;
  rabbet_plan_t* plan = NULL;
  maker_begin(&maker, SYSTEM);
  sample_static(&maker);
  maker.values[3].shape.d[1] = maker_number(&maker, 2);
  maker_write(&maker, SYSTEM, &data, &size);
  maker_end(&maker);
  RABBET_EXPECT_ERROR(rabbet_plan_read(data, size, NULL, SYSTEM, &plan),
                      RABBET_STATUS_DATA_LOSS,
                      "step 1 ('relu'): value 1 of the step has shape (2, 2), "
                      "which its layer does not make");
  rabbet_free_aligned(SYSTEM, data, RABBET_PLAN_ALIGNMENT);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(wrong_carried),
      cmocka_unit_test(wrong_plugins_section),
      cmocka_unit_test(wrong_plans),
      cmocka_unit_test(wrong_artifacts),
      cmocka_unit_test(wrong_kernels_section),
      cmocka_unit_test(wrong_plugin_layers),
      cmocka_unit_test(plans_with_wrong_parts),
      cmocka_unit_test(wrong_stages),
      cmocka_unit_test(wrong_shapes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
