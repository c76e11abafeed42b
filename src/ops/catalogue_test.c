// Properties of every descriptor, and how attributes are completed.
#include "check.h"
#include "ops/op.h"

static void descriptors_are_complete(void** state) {
  (void)state;
  for (int i = 0; i < RABBET_OP_COUNT; ++i) {
    const rabbet_op_t* op = rabbet_op_get((rabbet_op_id_t)i);
    assert_ptr_equal(rabbet_op_find(op->name), op);
    assert_true(rabbet_op_is(op, (rabbet_op_id_t)i));
    assert_int_equal(rabbet_op_id(op), i);
    assert_non_null(op->layer_type);
    bool is_structure = op->flags & RABBET_OP_STRUCTURE;
    assert_true(is_structure || op->output_count >= 1);
    bool is_plugin = i == RABBET_OP_PLUGIN;
    assert_int_equal(op->infer_shapes == NULL, is_plugin);
    assert_int_equal(op->reference == NULL, is_plugin || is_structure);
    for (size_t k = 0; k < op->input_count; ++k) {
      assert_non_null(op->inputs[k].name);
      assert_true(op->inputs[k].dtypes != 0);
      bool variadic = op->inputs[k].flags & RABBET_OPERAND_VARIADIC;
      assert_true(!variadic || k + 1 == op->input_count);
    }
    for (size_t k = 0; k < op->attr_count; ++k) {
      const rabbet_op_attr_t* attr = &op->attrs[k];
      for (size_t j = 0; j < k; ++j) {
        assert_string_not_equal(attr->name, op->attrs[j].name);
      }
      // A default is one of the values.
      if (attr->enumerators && !attr->required) {
        assert_non_null(rabbet_op_enumerator_name(attr, attr->default_int));
      }
    }
  }
  assert_null(rabbet_op_find("no such operator"));
  assert_null(rabbet_op_find(NULL));
  assert_null(rabbet_op_get(RABBET_OP_COUNT));
}

static void operands_are_counted(void** state) {
  (void)state;
  const rabbet_op_t* slice = rabbet_op_find("slice");
  assert_int_equal(rabbet_op_min_inputs(slice), 1);
  assert_int_equal(rabbet_op_max_inputs(slice), 6);
  assert_null(rabbet_op_input(slice, 6));
  const rabbet_op_t* concatenation = rabbet_op_find("concatenation");
  assert_int_equal(rabbet_op_min_inputs(concatenation), 1);
  assert_ptr_equal(rabbet_op_input(concatenation, 100),
                   &concatenation->inputs[0]);
  assert_int_equal(rabbet_op_max_inputs(rabbet_op_find("constant")), 0);
  assert_null(rabbet_op_input(rabbet_op_find("constant"), 0));
}

typedef struct attrs_t {
  rabbet_arena_t arena;
  const rabbet_op_t* op;
  rabbet_attr_t out[16];
} attrs_t;

static attrs_t attrs_of(const char* op) {
  attrs_t attrs = {.op = rabbet_op_find(op)};
  rabbet_arena_initialize(rabbet_allocator_system(), &attrs.arena);
  return attrs;
}

static rabbet_status_t complete(attrs_t* attrs, const rabbet_attr_t* given,
                                size_t count) {
  return rabbet_op_complete_attrs(attrs->op, given, count, &attrs->arena,
                                  attrs->out);
}

static const int64_t one = 1, five = 5;
static const double half = 0.5;

static void defaults_fill_what_is_not_given(void** state) {
  (void)state;
  attrs_t attrs = attrs_of("pooling");
  const int64_t window[] = {2, 3};
  const rabbet_attr_t given[] = {
      {.name = "window_size_nd", .type = RABBET_ATTR_INTS, window, .count = 2},
      {.name = "type", .type = RABBET_ATTR_STRING, "average", .count = 7},
      {.name = "blend_factor", .type = RABBET_ATTR_INT, &one, .count = 1},
  };
  RABBET_EXPECT_OK(complete(&attrs, given, 3));
  for (size_t i = 0; i < attrs.op->attr_count; ++i) {
    assert_string_equal(attrs.out[i].name, attrs.op->attrs[i].name);
    assert_int_equal(attrs.out[i].type, attrs.op->attrs[i].type);
    assert_non_null(attrs.out[i].data);
  }
  size_t n = attrs.op->attr_count, count = 9;
  assert_int_equal(rabbet_attr_int(attrs.out, n, "type", -1), 1);
  assert_int_equal(
      rabbet_attr_int(attrs.out, n, "average_count_excludes_padding", -1), 1);
  assert_true(rabbet_attr_float(attrs.out, n, "blend_factor", -1) == 1.0);
  (void)rabbet_attr_ints(attrs.out, n, "stride_nd", &count);
  assert_int_equal(count, 0);
  const int64_t* copy =
      rabbet_attr_ints(attrs.out, n, "window_size_nd", &count);
  assert_int_equal(count, 2);
  assert_ptr_not_equal(copy, window);
  assert_int_equal(copy[1], 3);
  rabbet_arena_deinitialize(&attrs.arena);
}

static void wrong_attributes_are_explained(void** state) {
  (void)state;
  attrs_t attrs = attrs_of("reduce");
  rabbet_attr_t given[] = {
      {.name = "op", .type = RABBET_ATTR_INT, &one, .count = 1},
      {.name = "axes", .type = RABBET_ATTR_FLOAT, &half, .count = 1},
  };
  RABBET_EXPECT_ERROR(complete(&attrs, given, 1),
                      RABBET_STATUS_INVALID_ARGUMENT, "needs attribute 'axes'");
  RABBET_EXPECT_ERROR(complete(&attrs, given, 2),
                      RABBET_STATUS_INVALID_ARGUMENT,
                      "attribute 'axes' of operator 'reduce' must be");
  given[1] = given[0];
  RABBET_EXPECT_ERROR(complete(&attrs, given, 2),
                      RABBET_STATUS_INVALID_ARGUMENT, "given twice");
  given[0].data = &five;
  RABBET_EXPECT_ERROR(complete(&attrs, given, 1),
                      RABBET_STATUS_INVALID_ARGUMENT,
                      "cannot be 5; expected one of: SUM, PROD, MAX, MIN, AVG");
  given[0] = (rabbet_attr_t){
      .name = "op", .type = RABBET_ATTR_STRING, "MEAN", .count = 4};
  RABBET_EXPECT_ERROR(complete(&attrs, given, 1),
                      RABBET_STATUS_INVALID_ARGUMENT, "cannot be MEAN");
  given[0].name = "axis";
  RABBET_EXPECT_ERROR(complete(&attrs, given, 1), RABBET_STATUS_NOT_FOUND,
                      "it has: op, axes, keep_dims");
  attrs.op = rabbet_op_find("shape");
  RABBET_EXPECT_ERROR(complete(&attrs, given, 1), RABBET_STATUS_NOT_FOUND,
                      "has no attributes");
  rabbet_arena_deinitialize(&attrs.arena);
}

static void numbers_stand_for_lists_and_floats(void** state) {
  (void)state;
  attrs_t attrs = attrs_of("shuffle");
  const rabbet_attr_t given[] = {
      {.name = "reshape_dims", .type = RABBET_ATTR_INT, &five, .count = 1},
      {.name = "first_transpose", .type = RABBET_ATTR_FLOATS, "", .count = 0},
      {.name = "zero_is_placeholder",
       .type = RABBET_ATTR_INT,
       &five,
       .count = 1},
  };
  RABBET_EXPECT_OK(complete(&attrs, given, 3));
  size_t count = 0, n = attrs.op->attr_count;
  assert_int_equal(rabbet_attr_ints(attrs.out, n, "reshape_dims", &count)[0],
                   5);
  assert_int_equal(count, 1);
  (void)rabbet_attr_ints(attrs.out, n, "first_transpose", &count);
  assert_int_equal(count, 0);
  assert_int_equal(rabbet_attr_int(attrs.out, n, "zero_is_placeholder", 0), 1);
  rabbet_arena_deinitialize(&attrs.arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(descriptors_are_complete),
      cmocka_unit_test(operands_are_counted),
      cmocka_unit_test(defaults_fill_what_is_not_given),
      cmocka_unit_test(wrong_attributes_are_explained),
      cmocka_unit_test(numbers_stand_for_lists_and_floats),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
