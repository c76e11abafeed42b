// Sequences that steps call or profiles run, and plans that are refused.
#include "plan_samples.h"

#define SYSTEM rabbet_allocator_system()

static rabbet_plan_call_t* call_of(maker_t* makers, size_t index) {
  return (rabbet_plan_call_t*)(uintptr_t)&makers[0].steps[0].calls[index];
}

static void round_trip(void** state) {
  (void)state;
  maker_t makers[3];
  void* data = NULL;
  size_t size = 0;
  rabbet_plan_t* plan = NULL;
  maker_begin_sequences(makers, 3, SYSTEM);
  sample_branches(makers);
  maker_write(&makers[0], SYSTEM, &data, &size);
  RABBET_EXPECT_OK(rabbet_plan_read(data, size, NULL, SYSTEM, &plan));
  assert_int_equal(plan->sequence_count, 3);
  assert_string_equal(plan->sequences[1].name, "c/true");
  assert_int_equal(plan->sequences[2].step_count, 2);
  const rabbet_plan_step_t* step = &plan->sequences[0].steps[0];
  assert_int_equal(step->call_count, 2);
  assert_int_equal(step->calls[1].sequence, 2);
  assert_int_equal(step->calls[1].input_count, 1);
  assert_int_equal(step->calls[1].inputs[0], 1);
  assert_int_equal(rabbet_plan_step_count(plan), 4);
  assert_string_equal(rabbet_plan_step(plan, 3)->name, "add");
  rabbet_plan_destroy(plan);
  rabbet_free_aligned(SYSTEM, data, 64);
  maker_end(&makers[0]);
}

static void calls_itself(maker_t* makers) {
  call_of(makers, 0)->sequence = 0;
}
static void calls_nobody(maker_t* makers) {
  call_of(makers, 0)->sequence = 3;
}
static void calls_twice(maker_t* makers) {
  call_of(makers, 1)->sequence = 1;
}
static void calls_one(maker_t* makers) {
  makers[0].steps[0].call_count = 1;
}
static void never_called(maker_t* makers) {
  makers[0].steps[0].calls = NULL;
  makers[0].steps[0].call_count = 0;
}
static void input_out_of_range(maker_t* makers) {
  static const int32_t inputs[] = {2};
  call_of(makers, 0)->inputs = inputs;
}
static void input_of_another_type(maker_t* makers) {
  static const int32_t inputs[] = {0};
  call_of(makers, 0)->inputs = inputs;
}
static void too_few_inputs(maker_t* makers) {
  call_of(makers, 0)->input_count = 0;
}
static void too_many_outputs(maker_t* makers) {
  rabbet_shape_t shape = makers[1].values[0].shape;
  int32_t z = maker_io(&makers[1], "z", false, RABBET_DTYPE_FLOAT, shape);
  sample_relu(&makers[1], "more", 0, z);
}
static void output_of_another_rank(maker_t* makers) {
  makers[1].values[1].shape.rank = 1;
  makers[1].values[0].shape.rank = 1;
  makers[1].ranges[0].min.rank = makers[1].ranges[0].opt.rank =
      makers[1].ranges[0].max.rank = 1;
}
static void output_of_another_extent(maker_t* makers) {
  rabbet_expr_t three = maker_number(&makers[1], 3);
  makers[1].values[0].shape.d[1] = makers[1].values[1].shape.d[1] = three;
  makers[1].ranges[0].min.d[1] = makers[1].ranges[0].opt.d[1] =
      makers[1].ranges[0].max.d[1] = 3;
}
static void condition_of_another_type(maker_t* makers) {
  makers[0].values[0].dtype = RABBET_DTYPE_INT8;
  makers[0].steps[0].group.values[0].dtype = RABBET_DTYPE_INT8;
}
static void kernel_and_calls(maker_t* makers) {
  makers[0].steps[0].kernel = "reference";
}
static void sequence_without_steps(maker_t* makers) {
  makers[2].sequence->step_count = 0;
}

static const int32_t same_entries[] = {0, 0};
static void give_profiles(maker_t* makers, const int32_t* entries) {
  makers[0].plan->entries = entries;
  makers[0].plan->profile_count = 2;
  for (int i = 0; i < 3; ++i) {
    size_t inputs = makers[i].sequence->input_count;
    memcpy(makers[i].ranges + inputs, makers[i].ranges,
           inputs * sizeof(makers[i].ranges[0]));
    makers[i].sequence->profile_count = entries == same_entries ? 2 : 1;
  }
}
static void callee_is_an_entry(maker_t* makers) {
  static const int32_t entries[] = {0, 1};
  give_profiles(makers, entries);
}
static void callee_of_other_profiles(maker_t* makers) {
  give_profiles(makers, same_entries);
  makers[2].sequence->profile_count = 1;
}

static const struct {
  void (*damage)(maker_t* makers);
  const char* message;
} wrong[] = {
    {callee_is_an_entry, "sequence 1 is called, and callers run it"},
    {callee_of_other_profiles, "sequence 2 has 1 profiles, its caller 2"},
    {calls_itself, "sequence 0 calls sequence 0 of 3"},
    {calls_nobody, "sequence 0 calls sequence 3 of 3"},
    {calls_twice, "sequence 1 is called twice"},
    {calls_one, "calls 1 sequences; expected 2"},
    {never_called, "step 0 ('choose'): it names no kernel"},
    {input_out_of_range, "input 'x' is input 2 of 2"},
    {input_of_another_type, "'c' and 'x' differ in type, format or shape"},
    {too_few_inputs,
     "it has 1 inputs and 1 outputs, but is called with 0 and 1"},
    {too_many_outputs,
     "it has 1 inputs and 2 outputs, but is called with 1 and 1"},
    {output_of_another_rank, "'x' and 'x' differ in type, format or shape"},
    {output_of_another_extent, "'x' and 'x' differ in type, format or shape"},
    {condition_of_another_type, "input 'condition' cannot be INT8"},
    {kernel_and_calls, "it names a kernel and calls sequences"},
    {sequence_without_steps,
     "sequence 2 ('c/false'): output 'y' is never written"},
};

static void refused(void** state) {
  (void)state;
  for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); ++i) {
    maker_t makers[3];
    maker_begin_sequences(makers, 3, SYSTEM);
    sample_branches(makers);
    RABBET_EXPECT_OK(rabbet_plan_verify(makers[0].plan, 0));
    wrong[i].damage(makers);
    RABBET_EXPECT_ERROR(rabbet_plan_verify(makers[0].plan, 0),
                        RABBET_STATUS_DATA_LOSS, wrong[i].message);
    maker_end(&makers[0]);
  }
}

// ---- Loops

static int64_t* list_of(maker_t* makers, size_t attr) {
  const rabbet_attr_t* attrs = makers[0].steps[0].group.nodes[0].attrs;
  return (int64_t*)(uintptr_t)attrs[attr].data;
}
static rabbet_plan_value_t* value_of(maker_t* makers, int sequence, int32_t v) {
  return &makers[sequence].values[v];
}

enum { VARYING, REVERSE, SOURCES, KINDS, LENGTHS, COUNT, CONDITION };

static void lists_differ(maker_t* makers) {
  rabbet_attr_t* attrs =
      (rabbet_attr_t*)(uintptr_t)makers[0].steps[0].group.nodes[0].attrs;
  attrs[KINDS].count = 1;
}
static void no_output_of_the_body(maker_t* makers) {
  list_of(makers, SOURCES)[1] = 2;
}
static void last_of_a_stack(maker_t* makers) {
  list_of(makers, SOURCES)[0] = 1;
}
static void unknown_kind(maker_t* makers) {
  list_of(makers, KINDS)[1] = 3;
}
static void stacked_never(maker_t* makers) {
  list_of(makers, SOURCES)[1] = 0;
  list_of(makers, KINDS)[1] = 0;
}
static void count_out_of_range(maker_t* makers) {
  list_of(makers, COUNT)[0] = 4;
}
static void count_of_another_type(maker_t* makers) {
  list_of(makers, COUNT)[0] = 1;
}
static void condition_out_of_range(maker_t* makers) {
  list_of(makers, CONDITION)[0] = 1;
}
static void two_conditions(maker_t* makers) {
  list_of(makers, CONDITION)[0] = 0;
}
static void never_ends(maker_t* makers) {
  list_of(makers, COUNT)[0] = -1;
  makers[0].steps[0].call_count = 1;
}
static void next_of_another_extent(maker_t* makers) {
  value_of(makers, 1, 2)->shape.d[1] = maker_number(&makers[1], 3);
}
static void slice_of_another_rank(maker_t* makers) {
  static const int32_t inputs[] = {2, 2};
  call_of(makers, 0)->inputs = inputs;
}
static void stack_of_another_extent(maker_t* makers) {
  rabbet_plan_value_t* stack = value_of(makers, 0, 5);
  stack->shape.d[2] = stack->shape.d[0];
}
static void condition_passes_another(maker_t* makers) {
  static const int32_t inputs[] = {3, 3, 1};
  call_of(makers, 1)->inputs = inputs;
}
static void condition_of_numbers(maker_t* makers) {
  call_of(makers, 0)->sequence = 2;
  call_of(makers, 1)->sequence = 1;
}
static void too_few_carried(maker_t* makers) {
  call_of(makers, 0)->input_count = 1;
}

static const struct {
  void (*damage)(maker_t* makers);
  const char* message;
} wrong_loops[] = {
    {lists_differ, "its lists of outputs differ in length"},
    {no_output_of_the_body, "output 1 is stacked 0 times"},
    {last_of_a_stack, "output 1 is stacked 2 times"},
    {unknown_kind, "output 1 is of kind 3 and the body's output 1"},
    {stacked_never, "output 1 is stacked 0 times"},
    {count_out_of_range, "its count, input 4, is no integer"},
    {count_of_another_type, "its count, input 1, is no integer"},
    {condition_out_of_range, "its condition is carried tensor 1 of 1"},
    {two_conditions, "its condition is carried tensor 0 of 1"},
    {never_ends, "nothing ends it"},
    {next_of_another_extent, "'x' and 'y' differ in type, format or shape"},
    {slice_of_another_rank, "'x' and 'w' differ in type, format or shape"},
    {stack_of_another_extent, "'s' and 's' differ in type, format or shape"},
    {condition_passes_another, "input 0 differs from that of the body"},
    {condition_of_numbers, "the loop passes 2, carries 1 and has 1 slices"},
    {too_few_carried, "the loop passes 1, carries 1 and has 1 slices"},
};

static void refused_loops(void** state) {
  (void)state;
  for (size_t i = 0; i < sizeof(wrong_loops) / sizeof(wrong_loops[0]); ++i) {
    maker_t makers[3];
    maker_begin_sequences(makers, 3, SYSTEM);
    sample_loop(makers);
    RABBET_EXPECT_OK(rabbet_plan_verify(makers[0].plan, 0));
    wrong_loops[i].damage(makers);
    RABBET_EXPECT_ERROR(rabbet_plan_verify(makers[0].plan, 0),
                        RABBET_STATUS_DATA_LOSS, wrong_loops[i].message);
    maker_end(&makers[0]);
  }
}

// ---- Entries

static void entries_round_trip(void** state) {
  (void)state;
  maker_t makers[3];
  void* data = NULL;
  size_t size = 0;
  rabbet_plan_t* plan = NULL;
  maker_begin_sequences(makers, 3, SYSTEM);
  sample_entries(makers);
  maker_write(&makers[0], SYSTEM, &data, &size);
  RABBET_EXPECT_OK(rabbet_plan_read(data, size, NULL, SYSTEM, &plan));
  assert_int_equal(plan->profile_count, 4);
  assert_int_equal(plan->entries[3], 2);
  assert_int_equal(plan->sequences[0].profile_count, 2);
  assert_int_equal(plan->sequences[0].profiles[1].max.d[0], 9);
  assert_int_equal(plan->sequences[2].profile_count, 1);
  assert_int_equal(rabbet_plan_entry_profile(plan, 2), 1);
  assert_int_equal(rabbet_plan_entry_profile(plan, 3), 0);
  assert_true(rabbet_plan_is_entry(plan, 1));
  rabbet_plan_destroy(plan);
  rabbet_free_aligned(SYSTEM, data, 64);
  maker_end(&makers[0]);
}

static void entry_out_of_range(maker_t* makers) {
  static const int32_t entries[] = {0, 1, 0, 3};
  makers[0].plan->entries = entries;
}
static void first_is_no_entry(maker_t* makers) {
  static const int32_t entries[] = {1, 0, 0, 2};
  makers[0].plan->entries = entries;
}
static void too_few_ranges(maker_t* makers) {
  static const int32_t entries[] = {0, 1, 1, 2};
  makers[0].plan->entries = entries;
}
static void more_outputs(maker_t* makers) {
  int32_t z = maker_io(&makers[2], "z", false, RABBET_DTYPE_FLOAT,
                       makers[2].values[0].shape);
  sample_relu(&makers[2], "more", 0, z);
}
static void input_of_another_name(maker_t* makers) {
  makers[1].ios[0].name = "z";
}
static void output_to_look_at(maker_t* makers) {
  makers[2].ios[1].is_debug = true;
}
static void output_that_is_hidden(maker_t* makers) {
  output_to_look_at(makers);
  makers[2].sequence->hidden_count = 1;
}
static void input_of_a_fixed_extent(maker_t* makers) {
  for (int i = 1; i < 3; ++i) {
    rabbet_expr_t extent = maker_number(&makers[i], i + 2);
    for (int v = 0; v < 3; ++v)
      makers[i].values[v].shape.d[1] = extent;
    makers[i].ranges[0].min.d[1] = makers[i].ranges[0].opt.d[1] =
        makers[i].ranges[0].max.d[1] = i + 2;
  }
}

static const struct {
  void (*damage)(maker_t* makers);
  const char* message;
} wrong_entries[] = {
    {entry_out_of_range, "profile 3 runs sequence 3 of 3"},
    {first_is_no_entry, "profile 0 runs sequence 1; expected the first"},
    {too_few_ranges, "sequence 0 has the ranges of 2 profiles; 1 run it"},
    {more_outputs, "profile 3 has 1 inputs and 2 outputs; expected 1 and 1"},
    {input_of_another_name, "'x' differs between the profiles 0 and 1"},
    {output_to_look_at, "'y' differs between the profiles 0 and 3"},
    {output_that_is_hidden, "profile 3 has 1 hidden outputs; expected 0"},
    {input_of_a_fixed_extent, "'x' differs between the profiles 0 and 1"},
};

static void refused_entries(void** state) {
  (void)state;
  for (size_t i = 0; i < sizeof(wrong_entries) / sizeof(wrong_entries[0]);
       ++i) {
    maker_t makers[3];
    maker_begin_sequences(makers, 3, SYSTEM);
    sample_entries(makers);
    RABBET_EXPECT_OK(rabbet_plan_verify(makers[0].plan, 0));
    wrong_entries[i].damage(makers);
    RABBET_EXPECT_ERROR(rabbet_plan_verify(makers[0].plan, 0),
                        RABBET_STATUS_DATA_LOSS, wrong_entries[i].message);
    maker_end(&makers[0]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(round_trip),      cmocka_unit_test(refused),
      cmocka_unit_test(refused_loops),   cmocka_unit_test(entries_round_trip),
      cmocka_unit_test(refused_entries),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
