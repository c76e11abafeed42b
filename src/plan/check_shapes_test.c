// Plans whose layers contradict their operators.
#include "plan/check_shapes.h"

#include "plan_samples.h"
#include "rabbet/engine.h"

#define SYSTEM rabbet_allocator_system()

static const int64_t row[] = {8};

static void expect_refused(maker_t* m, const char* message) {
  void* data = NULL;
  size_t size = 0;
  rabbet_plan_t* plan = NULL;
  maker_write(m, SYSTEM, &data, &size);
  maker_end(m);
  RABBET_EXPECT_ERROR(rabbet_plan_read(data, size, NULL, SYSTEM, &plan),
                      RABBET_STATUS_DATA_LOSS, message);
  rabbet_free_aligned(SYSTEM, data, RABBET_PLAN_ALIGNMENT);
}

static void types_that_a_layer_does_not_make(void** state) {
  (void)state;
  maker_t m;
  maker_begin(&m, SYSTEM);
  rabbet_shape_t shape = maker_shape(&m, 1, row);
  int32_t x = maker_io(&m, "x", true, RABBET_DTYPE_FLOAT, shape);
  int32_t y = maker_io(&m, "y", false, RABBET_DTYPE_INT32, shape);
  sample_relu(&m, "relu", x, y);
  expect_refused(&m,
                 "step 0 ('relu'): layer 'relu' (activation): output 'output' "
                 "is INT32; the layer makes FLOAT");
}

static void types_that_do_not_go_together(void** state) {
  (void)state;
  maker_t m;
  maker_begin(&m, SYSTEM);
  rabbet_shape_t shape = maker_shape(&m, 1, row);
  int32_t a = maker_io(&m, "a", true, RABBET_DTYPE_FLOAT, shape);
  int32_t b = maker_io(&m, "b", true, RABBET_DTYPE_INT64, shape);
  int32_t y = maker_io(&m, "y", false, RABBET_DTYPE_FLOAT, shape);
  sample_add(&m, "add", a, b, y);
  expect_refused(&m, "layer 'add' (elementwise): input 1");
}

// FLOAT, HALF and BF16 are chosen by the builder, tensor by tensor.
static void floating_types_are_free(void** state) {
  (void)state;
  maker_t m;
  void* data = NULL;
  size_t size = 0;
  rabbet_plan_t* plan = NULL;
  maker_begin(&m, SYSTEM);
  rabbet_shape_t shape = maker_shape(&m, 1, row);
  int32_t a = maker_io(&m, "a", true, RABBET_DTYPE_FLOAT, shape);
  int32_t b = maker_io(&m, "b", true, RABBET_DTYPE_HALF, shape);
  int32_t y = maker_io(&m, "y", false, RABBET_DTYPE_BF16, shape);
  sample_add(&m, "add", a, b, y);
  maker_write(&m, SYSTEM, &data, &size);
  maker_end(&m);
  RABBET_EXPECT_OK(rabbet_plan_read(data, size, NULL, SYSTEM, &plan));
  rabbet_plan_destroy(plan);
  rabbet_free_aligned(SYSTEM, data, RABBET_PLAN_ALIGNMENT);
}

static void enumerators_that_there_are_not(void** state) {
  (void)state;
  maker_t m;
  maker_begin(&m, SYSTEM);
  sample_static(&m);
  const int64_t number = 99;
  rabbet_attr_t* attrs =
      (rabbet_attr_t*)(uintptr_t)m.steps[1].group.nodes[0].attrs;
  attrs[0].data = &number;
  RABBET_EXPECT_ERROR(rabbet_plan_verify(m.plan, 24), RABBET_STATUS_DATA_LOSS,
                      "attribute 'type' is 99, which is none of its values");
  maker_end(&m);
}

// values, places = the best k of x[8] along `axes`, where k is a tensor.
static void make_best(maker_t* m, int64_t axes, int64_t most) {
  rabbet_expr_t one = maker_number(m, 1), found = maker_number(m, most);
  rabbet_shape_t shape = maker_shape(m, 1, row);
  int32_t x = maker_io(m, "x", true, RABBET_DTYPE_FLOAT, shape);
  int32_t k = maker_io(m, "k", true, RABBET_DTYPE_INT32, MAKER_SHAPE(one));
  int32_t values =
      maker_io(m, "values", false, RABBET_DTYPE_FLOAT, MAKER_SHAPE(found));
  int32_t places =
      maker_io(m, "places", false, RABBET_DTYPE_INT32, MAKER_SHAPE(found));
  maker_step(
      m, &(maker_step_t){.name = "best",
                         .op = RABBET_OP_TOPK,
                         .attrs = {MAKER_INT("op", 0), MAKER_INT("axes", axes)},
                         .attr_count = 2,
                         .inputs = {x, k},
                         .input_count = 2,
                         .outputs = {values, places},
                         .output_count = 2});
}

static void attributes_beside_an_unknown_operand(void** state) {
  (void)state;
  maker_t m;
  maker_begin(&m, SYSTEM);
  make_best(&m, INT64_C(1) << 40, 4);
  expect_refused(&m, "layer 'best' (topk)");
}

// The host does not read k, which is no shape input: its value is unknown.
static void operands_that_nobody_knows(void** state) {
  (void)state;
  maker_t m;
  void* data = NULL;
  size_t size = 0;
  rabbet_engine_t* engine = NULL;
  rabbet_context_t* context = NULL;
  float x[8] = {0}, values[4];
  int32_t k[1] = {8}, places[4];
  void* const addresses[] = {x, k, values, places};
  maker_begin(&m, SYSTEM);
  make_best(&m, 1, 4);
  maker_write(&m, SYSTEM, &data, &size);
  maker_end(&m);
  RABBET_EXPECT_OK(
      rabbet_engine_deserialize(data, size, NULL, SYSTEM, &engine));
  RABBET_EXPECT_OK(rabbet_context_create(engine, SYSTEM, &context));
  for (size_t i = 0; i < 4; ++i)
    RABBET_EXPECT_OK(rabbet_context_set_address(context, i, addresses[i]));
  RABBET_EXPECT_ERROR(rabbet_context_execute(context, NULL),
                      RABBET_STATUS_DATA_LOSS, "the elements of input 'k'");
  rabbet_context_destroy(context);
  rabbet_engine_release(engine);
  rabbet_free_aligned(SYSTEM, data, RABBET_PLAN_ALIGNMENT);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(types_that_a_layer_does_not_make),
      cmocka_unit_test(types_that_do_not_go_together),
      cmocka_unit_test(floating_types_are_free),
      cmocka_unit_test(enumerators_that_there_are_not),
      cmocka_unit_test(attributes_beside_an_unknown_operand),
      cmocka_unit_test(operands_that_nobody_knows),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
