// Makes plans by hand, for tests of what reads and runs them. Everything fails
// the running test instead of returning a status.
#ifndef RABBET_TESTS_PLAN_MAKER_H_
#define RABBET_TESTS_PLAN_MAKER_H_

#include "check.h"
#include "plan/plan.h"

#define MAKER_MAX 32

typedef struct maker_t {
  rabbet_plan_t* plan;
  rabbet_plan_sequence_t* sequence;  // that is being made
  rabbet_plan_value_t values[MAKER_MAX];
  rabbet_plan_io_t ios[MAKER_MAX];
  rabbet_plan_step_t steps[MAKER_MAX];
  rabbet_plan_range_t ranges[MAKER_MAX];
  rabbet_plan_blob_t blobs[MAKER_MAX];
  size_t blob_count;
  uint64_t weights_size;
} maker_t;

static inline void* maker_copy(maker_t* m, const void* data, size_t size) {
  void* copy = NULL;
  RABBET_EXPECT_OK(rabbet_arena_copy(&m->plan->arena, data, size, &copy));
  return copy;
}

static inline void maker_set_sequence(maker_t* m, rabbet_plan_t* plan,
                                      size_t number) {
  m->plan = plan;
  m->sequence = &plan->sequences[number];
  m->sequence->values = m->values;
  m->sequence->ios = m->ios;
  m->sequence->steps = m->steps;
  m->sequence->profiles = m->ranges;
}

// A maker for each of a plan's sequences; the first is the one to write and to
// end.
static inline void maker_begin_sequences(maker_t* makers, size_t count,
                                         rabbet_allocator_t allocator) {
  rabbet_plan_t* plan = NULL;
  RABBET_EXPECT_OK(rabbet_plan_create(allocator, &plan));
  RABBET_EXPECT_OK(rabbet_plan_make_sequences(plan, count));
  plan->name = "sample";
  plan->producer = "rabbet test";
  plan->device = "null";
  plan->device_signature = "null";
  plan->threads = 1;
  for (size_t i = 0; i < count; ++i) {
    makers[i] = (maker_t){0};
    maker_set_sequence(&makers[i], plan, i);
  }
}

static inline void maker_begin(maker_t* m, rabbet_allocator_t allocator) {
  maker_begin_sequences(m, 1, allocator);
}

static inline void maker_end(maker_t* m) {
  rabbet_plan_destroy(m->plan);
}

static inline rabbet_expr_t maker_number(maker_t* m, int64_t value) {
  rabbet_expr_t expr = RABBET_EXPR_NONE;
  RABBET_EXPECT_OK(rabbet_expr_constant(m->sequence->graph, value, &expr));
  return expr;
}

static inline rabbet_expr_t maker_symbol(maker_t* m, rabbet_symbol_t symbol) {
  rabbet_expr_t expr = RABBET_EXPR_NONE;
  RABBET_EXPECT_OK(rabbet_expr_of_symbol(m->sequence->graph, &symbol, &expr));
  return expr;
}

// Dimension `index` of the value that will have number `tensor`.
static inline rabbet_expr_t maker_dim(maker_t* m, int32_t tensor, int32_t index,
                                      const char* name) {
  return maker_symbol(m, (rabbet_symbol_t){.kind = RABBET_SYMBOL_DIM,
                                           .tensor = tensor,
                                           .index = index,
                                           .name = name,
                                           .opt = RABBET_EXPR_NONE,
                                           .upper = RABBET_EXPR_NONE});
}

static inline rabbet_expr_t maker_element(maker_t* m, int32_t tensor,
                                          int32_t index, rabbet_expr_t upper) {
  return maker_symbol(m, (rabbet_symbol_t){.kind = RABBET_SYMBOL_VALUE,
                                           .tensor = tensor,
                                           .index = index,
                                           .opt = upper,
                                           .upper = upper});
}

static inline rabbet_expr_t maker_op(maker_t* m, rabbet_expr_op_t op,
                                     rabbet_expr_t a, rabbet_expr_t b) {
  rabbet_expr_t expr = RABBET_EXPR_NONE;
  RABBET_EXPECT_OK(rabbet_expr_binary(m->sequence->graph, op, a, b, &expr));
  return expr;
}

#define MAKER_SHAPE(...)                                                     \
  (rabbet_shape_t) {                                                         \
    .rank = sizeof((rabbet_expr_t[]){__VA_ARGS__}) / sizeof(int32_t), .d = { \
      __VA_ARGS__                                                            \
    }                                                                        \
  }

static inline rabbet_shape_t maker_shape(maker_t* m, int32_t rank,
                                         const int64_t* dims) {
  rabbet_shape_t shape = {.rank = rank};
  for (int32_t i = 0; i < rank; ++i)
    shape.d[i] = maker_number(m, dims[i]);
  return shape;
}

static inline int32_t maker_value(maker_t* m, const char* name,
                                  rabbet_dtype_t dtype, rabbet_shape_t shape) {
  int32_t v = (int32_t)m->sequence->value_count++;
  assert_true(v < MAKER_MAX);
  m->values[v] = (rabbet_plan_value_t){.name = name,
                                       .dtype = dtype,
                                       .shape = shape,
                                       .storage = RABBET_PLAN_STORAGE_ARENA,
                                       .alias = -1};
  return v;
}

// Inputs before outputs.
static inline int32_t maker_io(maker_t* m, const char* name, bool is_input,
                               rabbet_dtype_t dtype, rabbet_shape_t shape) {
  int32_t v = maker_value(m, name, dtype, shape);
  size_t io = m->sequence->io_count++;
  m->values[v].storage = RABBET_PLAN_STORAGE_IO;
  m->values[v].io = (int32_t)io;
  m->ios[io] = (rabbet_plan_io_t){
      .name = name, .is_input = is_input, .value = v, .aliased_input = -1};
  if (!is_input) return v;
  m->sequence->input_count = io + 1;
  rabbet_dims_t dims = rabbet_shape_dims(m->sequence->graph, &shape);
  rabbet_plan_range_t* range = &m->ranges[io];
  range->min = range->opt = range->max = dims;
  for (int32_t i = 0; i < dims.rank; ++i) {
    if (dims.d[i] >= 0) continue;
    range->min.d[i] = 0;
    range->opt.d[i] = 4;
    range->max.d[i] = 8;
  }
  return v;
}

static inline int32_t maker_constant(maker_t* m, const char* name,
                                     rabbet_dtype_t dtype, rabbet_shape_t shape,
                                     const void* data) {
  int32_t v = maker_value(m, name, dtype, shape);
  rabbet_dims_t dims = rabbet_shape_dims(m->sequence->graph, &shape);
  size_t bytes = 0;
  RABBET_EXPECT_OK(
      rabbet_tensor_bytes(dtype, RABBET_FORMAT_LINEAR, &dims, &bytes));
  m->values[v].storage = RABBET_PLAN_STORAGE_CONSTANT;
  m->values[v].offset = m->weights_size;
  m->values[v].size = bytes;
  m->blobs[m->blob_count++] =
      (rabbet_plan_blob_t){m->weights_size, maker_copy(m, data, bytes), bytes};
  m->weights_size += (bytes + 63) / 64 * 64;
  return v;
}

typedef struct maker_step_t {
  const char* name;
  rabbet_op_id_t op;
  const char* kernel;  // NULL: "reference"
  rabbet_attr_t attrs[8];
  size_t attr_count;
  int32_t inputs[4];
  size_t input_count;
  int32_t outputs[4];
  size_t output_count;
  int32_t reads[4];
  size_t read_count;
  const char* plugin;
} maker_step_t;

#define MAKER_INT(attr, number)                                           \
  {                                                                       \
    .name = (attr), .type = RABBET_ATTR_INT, .data = (int64_t[]){number}, \
    .count = 1                                                            \
  }

#define MAKER_INTS(attr, ...)                                   \
  {                                                             \
    .name = (attr), .type = RABBET_ATTR_INTS,                   \
    .data = (int64_t[]){__VA_ARGS__},                           \
    .count = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t) \
  }

// A step of one layer: group values are its inputs, then its outputs. Inputs
// that are -1 are omitted.
static inline rabbet_plan_step_t* maker_step(maker_t* m,
                                             const maker_step_t* given) {
  rabbet_arena_t* arena = &m->plan->arena;
  rabbet_plan_step_t* step = &m->steps[m->sequence->step_count++];
  int32_t values[8], inputs[8], outputs[8], boundary[8];
  rabbet_shape_t shapes[8];
  rabbet_group_value_t group_values[8];
  size_t count = 0, ins = 0;
  for (size_t i = 0; i < given->input_count + given->output_count; ++i) {
    bool input = i < given->input_count;
    int32_t v =
        input ? given->inputs[i] : given->outputs[i - given->input_count];
    int32_t* number = input ? &inputs[i] : &outputs[i - given->input_count];
    *number = -1;
    if (v < 0) continue;
    ins += input;
    *number = boundary[count] = (int32_t)count;
    values[count] = v;
    shapes[count] = (rabbet_shape_t){.rank = -1};
    group_values[count] = (rabbet_group_value_t){.dtype = m->values[v].dtype,
                                                 .format = m->values[v].format};
    ++count;
  }
  const rabbet_op_t* op = rabbet_op_get(given->op);
  rabbet_attr_t attrs[32];
  RABBET_EXPECT_OK(rabbet_op_complete_attrs(op, given->attrs, given->attr_count,
                                            arena, attrs));
  int32_t* listed = maker_copy(m, boundary, count * sizeof(int32_t));
  rabbet_group_node_t node = {
      .op = op,
      .name = given->name,
      .attrs = maker_copy(m, attrs, op->attr_count * sizeof(*attrs)),
      .inputs = maker_copy(m, inputs, given->input_count * sizeof(int32_t)),
      .input_count = given->input_count,
      .outputs = maker_copy(m, outputs, given->output_count * sizeof(int32_t)),
      .output_count = given->output_count};
  *step = (rabbet_plan_step_t){
      .name = given->name,
      .kernel = given->kernel ? given->kernel : "reference",
      .tactic_name = "reference",
      .time_us = -1,
      .group = {.values =
                    maker_copy(m, group_values, count * sizeof(*group_values)),
                .value_count = count,
                .inputs = listed,
                .input_count = ins,
                .outputs = listed + ins,
                .output_count = count - ins,
                .nodes = maker_copy(m, &node, sizeof(node)),
                .node_count = 1},
      .values = maker_copy(m, values, count * sizeof(int32_t)),
      .inner_shapes = maker_copy(m, shapes, count * sizeof(*shapes)),
      .plugin_name = given->plugin,
      .plugin_version = given->plugin ? "1" : NULL,
      .plugin_namespace = given->plugin ? "test" : NULL,
      .plugin_origin = given->plugin ? "test_plugins.h" : NULL,
      .host_reads =
          maker_copy(m, given->reads, given->read_count * sizeof(int32_t)),
      .host_read_count = given->read_count};
  return step;
}

static inline void maker_write(maker_t* m, rabbet_allocator_t allocator,
                               void** out_data, size_t* out_size) {
  RABBET_EXPECT_OK(rabbet_plan_write(m->plan, m->blobs, m->blob_count,
                                     allocator, out_data, out_size));
}

static inline void maker_bytes(void (*sample)(maker_t* m),
                               rabbet_allocator_t allocator, void** out_data,
                               size_t* out_size) {
  maker_t m;
  maker_begin(&m, allocator);
  sample(&m);
  maker_write(&m, allocator, out_data, out_size);
  maker_end(&m);
}

#endif  // RABBET_TESTS_PLAN_MAKER_H_
