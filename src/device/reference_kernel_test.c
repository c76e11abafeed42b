// The reference kernels' class takes the types of its operators' rules alone.
#include "device/reference_kernel.h"

#include "check.h"

#define SYSTEM rabbet_allocator_system()
#define MOST 40

// One layer of `count` inputs of a type, the last of another, to an output.
typedef struct layer_t {
  rabbet_group_value_t values[MOST + 1];
  int32_t numbers[MOST + 1];
  rabbet_attr_t attrs[16];
  rabbet_group_node_t node;
  rabbet_group_t group;
  rabbet_arena_t arena;
} layer_t;

static void make_layer(layer_t* layer, rabbet_op_id_t op, size_t count,
                       rabbet_dtype_t in, rabbet_dtype_t last,
                       rabbet_dtype_t out) {
  *layer = (layer_t){0};
  rabbet_arena_initialize(SYSTEM, &layer->arena);
  for (size_t i = 0; i <= count; ++i) {
    layer->numbers[i] = (int32_t)i;
    layer->values[i].dtype = i == count ? out : i + 1 == count ? last : in;
  }
  layer->node = (rabbet_group_node_t){.op = rabbet_op_get(op),
                                      .name = "layer",
                                      .attrs = layer->attrs,
                                      .inputs = layer->numbers,
                                      .input_count = count,
                                      .outputs = layer->numbers + count,
                                      .output_count = 1};
  static const int64_t zero = 0, integer = RABBET_DTYPE_INT32;
  const bool cast = op == RABBET_OP_CAST;
  const rabbet_attr_t attr = {.name = cast ? "to_type" : "axis",
                              .type = RABBET_ATTR_INT,
                              .data = cast ? &integer : &zero,
                              .count = 1};
  RABBET_EXPECT_OK(rabbet_op_complete_attrs(layer->node.op, &attr,
                                            op != RABBET_OP_SHUFFLE,
                                            &layer->arena, layer->attrs));
  layer->group = (rabbet_group_t){.values = layer->values,
                                  .value_count = count + 1,
                                  .inputs = layer->node.inputs,
                                  .input_count = count,
                                  .outputs = layer->node.outputs,
                                  .output_count = 1,
                                  .nodes = &layer->node,
                                  .node_count = 1};
}

static rabbet_status_t create(const layer_t* layer) {
  rabbet_kernel_t* kernel = NULL;
  rabbet_kernel_spec_t spec = {.group = &layer->group, .allocator = SYSTEM};
  rabbet_status_t status =
      rabbet_kernel_create(&rabbet_reference_kernel_class, &spec, &kernel);
  rabbet_reference_kernel_class.destroy(kernel);
  return status;
}

static void expect_taken(rabbet_op_id_t op, size_t count, rabbet_dtype_t dtype,
                         rabbet_dtype_t out) {
  layer_t layer;
  make_layer(&layer, op, count, dtype, dtype, out);
  RABBET_EXPECT_OK(create(&layer));
  rabbet_arena_deinitialize(&layer.arena);
}

static void expect_refused(rabbet_op_id_t op, size_t count, rabbet_dtype_t in,
                           rabbet_dtype_t last, rabbet_dtype_t out,
                           const char* message) {
  layer_t layer;
  make_layer(&layer, op, count, in, last, out);
  RABBET_EXPECT_ERROR(create(&layer), RABBET_STATUS_UNSUPPORTED, message);
  rabbet_arena_deinitialize(&layer.arena);
}

// Elements of 2 bytes would be copied as ones of 4.
static void elements_of_other_sizes(void** state) {
  (void)state;
  const rabbet_dtype_t wide = RABBET_DTYPE_FLOAT, narrow = RABBET_DTYPE_BF16;
  expect_taken(RABBET_OP_SHUFFLE, 1, wide, wide);
  expect_taken(RABBET_OP_SHUFFLE, 1, narrow, narrow);
  expect_refused(RABBET_OP_SHUFFLE, 1, narrow, narrow, wide,
                 "the kernel 'reference' does not compute 'layer' (shuffle) "
                 "from BF16 LINEAR to FLOAT LINEAR");
  expect_refused(RABBET_OP_SHUFFLE, 1, wide, wide, narrow, "does not compute");
}

static void each_of_many_inputs(void** state) {
  (void)state;
  const rabbet_dtype_t wide = RABBET_DTYPE_FLOAT, narrow = RABBET_DTYPE_HALF;
  const size_t counts[] = {1, 2, 15, 16, 17, 31, 32, MOST};
  for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); ++i) {
    expect_taken(RABBET_OP_CONCATENATION, counts[i], wide, wide);
    expect_refused(RABBET_OP_CONCATENATION, counts[i], wide, narrow, wide,
                   "does not compute 'layer' (concatenation)");
    expect_refused(RABBET_OP_CONCATENATION, counts[i], wide, wide, narrow,
                   "does not compute 'layer' (concatenation)");
  }
}

static void types_that_an_attribute_names(void** state) {
  (void)state;
  expect_taken(RABBET_OP_CAST, 1, RABBET_DTYPE_FLOAT, RABBET_DTYPE_INT32);
  expect_refused(RABBET_OP_CAST, 1, RABBET_DTYPE_FLOAT, RABBET_DTYPE_FLOAT,
                 RABBET_DTYPE_INT64,
                 "'layer' (cast) from FLOAT LINEAR to INT64 LINEAR");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(elements_of_other_sizes),
      cmocka_unit_test(each_of_many_inputs),
      cmocka_unit_test(types_that_an_attribute_names),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
