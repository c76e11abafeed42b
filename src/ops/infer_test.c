// Shapes and values with symbols in them: the resulting expressions.
//
// Expressions are compared by evaluating them for several values of the
// symbols, and by their text where that is the point.
#include "check.h"
#include "core/view.h"
#include "faults/fault_allocator.h"
#include "ops/evaluate.h"
#include "ops/op.h"

#define MAX_INPUTS 6

// One call of rabbet_op_infer. Symbols are n (0), h (1), w (2).
typedef struct trial_t {
  rabbet_expr_graph_t* graph;
  rabbet_arena_t arena;
  rabbet_expr_t symbols[3];
  rabbet_op_value_t inputs[MAX_INPUTS];
  size_t input_count;
  rabbet_attr_t attrs[8];
  size_t attr_count;
  rabbet_op_value_t output;
} trial_t;

static int setup(void** state) {
  trial_t* t = calloc(1, sizeof(*t));
  const char* names[] = {"n", "h", "w"};
  RABBET_EXPECT_OK(
      rabbet_expr_graph_create(rabbet_allocator_system(), &t->graph));
  rabbet_arena_initialize(rabbet_allocator_system(), &t->arena);
  for (int i = 0; i < 3; ++i) {
    rabbet_symbol_t symbol = {
        RABBET_SYMBOL_DIM, 0, i, names[i], RABBET_EXPR_NONE, RABBET_EXPR_NONE};
    RABBET_EXPECT_OK(rabbet_expr_of_symbol(t->graph, &symbol, &t->symbols[i]));
  }
  *state = t;
  return 0;
}

static int teardown(void** state) {
  trial_t* t = *state;
  rabbet_expr_graph_destroy(t->graph);
  rabbet_arena_deinitialize(&t->arena);
  free(t);
  return 0;
}

// A dimension from a letter or a number: "n", "h", "w", "12".
static rabbet_expr_t parse_dim(trial_t* t, const char* text) {
  const char* names = "nhw";
  const char* found = strchr(names, *text);
  rabbet_expr_t expr = RABBET_EXPR_NONE;
  if (found) return t->symbols[found - names];
  RABBET_EXPECT_OK(
      rabbet_expr_constant(t->graph, strtoll(text, NULL, 10), &expr));
  return expr;
}

// "n,3,h" -> expressions.
static int parse_dims(trial_t* t, const char* text, rabbet_expr_t* out) {
  int count = 0;
  for (const char* c = text; *c; c += *c == ',') {
    out[count++] = parse_dim(t, c);
    c += strcspn(c, ",");
  }
  return count;
}

static rabbet_op_value_t* give(trial_t* t, rabbet_dtype_t dtype,
                               const char* shape) {
  rabbet_op_value_t* input = &t->inputs[t->input_count++];
  *input = (rabbet_op_value_t){.present = true, .dtype = dtype};
  input->shape.rank = parse_dims(t, shape, input->shape.d);
  return input;
}

// A vector of INT64 whose elements are expressions.
static rabbet_op_value_t* give_values(trial_t* t, const char* values) {
  rabbet_expr_t* exprs = NULL;
  RABBET_EXPECT_OK(rabbet_arena_allocate_array(&t->arena, 32, sizeof(*exprs),
                                               (void**)&exprs));
  int count = parse_dims(t, values, exprs);
  char shape[16];
  snprintf(shape, sizeof shape, "%d", count);
  rabbet_op_value_t* input = give(t, RABBET_DTYPE_INT64, shape);
  input->values = exprs;
  input->value_count = (size_t)count;
  return input;
}

static void give_int(trial_t* t, const char* name, int64_t value) {
  void* copy = NULL;
  RABBET_EXPECT_OK(rabbet_arena_copy(&t->arena, &value, sizeof value, &copy));
  t->attrs[t->attr_count++] = (rabbet_attr_t){
      .name = name, .type = RABBET_ATTR_INT, .data = copy, .count = 1};
}

static void give_ints(trial_t* t, const char* name, const int64_t* values,
                      size_t count) {
  t->attrs[t->attr_count++] = (rabbet_attr_t){
      .name = name, .type = RABBET_ATTR_INTS, .data = values, .count = count};
}

static rabbet_status_t infer(trial_t* t, const char* name) {
  const rabbet_op_t* op = rabbet_op_find(name);
  rabbet_attr_t attrs[16];
  RABBET_RETURN_IF_ERROR(
      rabbet_op_complete_attrs(op, t->attrs, t->attr_count, &t->arena, attrs));
  t->output = (rabbet_op_value_t){.dtype = RABBET_DTYPE_NONE};
  const rabbet_op_infer_t args = {
      .op = op,
      .graph = t->graph,
      .arena = &t->arena,
      .attrs = attrs,
      .attr_count = op->attr_count,
      .inputs = t->inputs,
      .input_count = t->input_count,
      .outputs = &t->output,
      .output_count = 1,
      .strongly_typed = true,
  };
  rabbet_status_t status = rabbet_op_infer(&args);
  t->input_count = t->attr_count = 0;
  return status;
}

static void expect_text(trial_t* t, rabbet_expr_t expr, const char* expected) {
  char* text = NULL;
  RABBET_EXPECT_OK(
      rabbet_expr_print(t->graph, expr, rabbet_allocator_system(), &text));
  assert_string_equal(text, expected);
  rabbet_free(rabbet_allocator_system(), text);
}

static int64_t value_of(trial_t* t, rabbet_expr_t expr, const int64_t nhw[3]) {
  int64_t* values = malloc(rabbet_expr_node_count(t->graph) * sizeof(*values));
  RABBET_EXPECT_OK(rabbet_expr_evaluate(t->graph, nhw, values, NULL));
  int64_t value = values[expr];
  free(values);
  return value;
}

// "n,3,h" of the output's shape.
static void expect_shape(trial_t* t, const char* expected) {
  rabbet_expr_t dims[RABBET_MAX_RANK];
  int rank = parse_dims(t, expected, dims);
  assert_int_equal(t->output.shape.rank, rank);
  for (int i = 0; i < rank; ++i) {
    assert_int_equal(t->output.shape.d[i], dims[i]);
  }
}

static void expect_values(trial_t* t, const char* expected) {
  rabbet_expr_t values[32];
  int count = parse_dims(t, expected, values);
  assert_non_null(t->output.values);
  assert_int_equal(t->output.value_count, count);
  for (int i = 0; i < count; ++i) {
    assert_int_equal(t->output.values[i], values[i]);
  }
}

// ---- Shapes ----------------------------------------------------------------

static void broadcasting(void** state) {
  trial_t* t = *state;
  give(t, RABBET_DTYPE_FLOAT, "n,1,h,5");
  give(t, RABBET_DTYPE_FLOAT, "n,w,1,h");
  give_int(t, "op", 0);
  RABBET_EXPECT_OK(infer(t, "elementwise"));
  expect_shape(t, "n,w,h,5");
  give(t, RABBET_DTYPE_FLOAT, "n");
  give(t, RABBET_DTYPE_FLOAT, "h");
  give_int(t, "op", 0);
  RABBET_EXPECT_OK(infer(t, "elementwise"));
  expect_text(t, t->output.shape.d[0], "broadcast(n, h)");
}

static void convolution_of_unknown_extents(void** state) {
  trial_t* t = *state;
  const int64_t two[] = {2, 2}, pad[] = {1, 1};
  give(t, RABBET_DTYPE_FLOAT, "n,3,h,w");
  give(t, RABBET_DTYPE_FLOAT, "8,3,3,3");
  give_ints(t, "stride_nd", two, 2);
  give_ints(t, "pre_padding", pad, 2);
  give_ints(t, "post_padding", pad, 2);
  RABBET_EXPECT_OK(infer(t, "convolution"));
  assert_int_equal(t->output.shape.d[0], t->symbols[0]);
  for (int64_t extent = 1; extent < 20; ++extent) {
    const int64_t nhw[] = {1, extent, extent + 3};
    assert_int_equal(value_of(t, t->output.shape.d[2], nhw),
                     (extent + 2 - 3) / 2 + 1);
    assert_int_equal(value_of(t, t->output.shape.d[3], nhw),
                     (extent + 3 + 2 - 3) / 2 + 1);
  }
  // Padding that keeps the extent keeps the symbol.
  give(t, RABBET_DTYPE_FLOAT, "n,3,h,w");
  give(t, RABBET_DTYPE_FLOAT, "8,3,3,3");
  give_ints(t, "pre_padding", pad, 2);
  give_ints(t, "post_padding", pad, 2);
  RABBET_EXPECT_OK(infer(t, "convolution"));
  expect_shape(t, "n,8,h,w");
}

static void same_padding_of_unknown_extents(void** state) {
  trial_t* t = *state;
  const int64_t stride[] = {3, 1}, window[] = {2, 5};
  give(t, RABBET_DTYPE_FLOAT, "n,4,h,w");
  give_int(t, "type", 0);
  give_int(t, "padding_mode", 2);
  give_ints(t, "window_size_nd", window, 2);
  give_ints(t, "stride_nd", stride, 2);
  RABBET_EXPECT_OK(infer(t, "pooling"));
  for (int64_t extent = 0; extent < 10; ++extent) {
    const int64_t nhw[] = {1, extent, 1};
    assert_int_equal(value_of(t, t->output.shape.d[2], nhw), (extent + 2) / 3);
  }
  assert_int_equal(t->output.shape.d[3], t->symbols[2]);
}

static void reshapes(void** state) {
  trial_t* t = *state;
  static const struct {
    const char* from;
    int64_t to[4];
    size_t count;
    const char* expected;
  } cases[] = {
      {"n,4,16", {-1, 64}, 2, "n,64"},
      {"n,4,16", {0, -1}, 2, "n,64"},
      {"n,12,h,64", {0, 0, -1}, 3, NULL},
      {"n,h,768", {0, 0, 12, -1}, 4, "n,h,12,64"},
      {"n,h", {-1, 1, 1, 1}, 4, NULL},
      {"n,7", {1, -1, 7}, 3, "1,n,7"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    give(t, RABBET_DTYPE_FLOAT, cases[i].from);
    give_ints(t, "reshape_dims", cases[i].to, cases[i].count);
    RABBET_EXPECT_OK(infer(t, "shuffle"));
    if (cases[i].expected) expect_shape(t, cases[i].expected);
  }
  // By expressions: (n * h, 12, 64) -> (n, h, -1).
  rabbet_op_value_t* x = give(t, RABBET_DTYPE_FLOAT, "n,12,64");
  RABBET_EXPECT_OK(rabbet_expr_binary(t->graph, RABBET_EXPR_PROD, t->symbols[0],
                                      t->symbols[1], &x->shape.d[0]));
  give_values(t, "n,h,-1");
  RABBET_EXPECT_OK(infer(t, "shuffle"));
  expect_shape(t, "n,h,768");
  // An extent that cannot be known is a quotient, checked when the kernel runs.
  give(t, RABBET_DTYPE_FLOAT, "n,6");
  const int64_t four[] = {-1, 4};
  give_ints(t, "reshape_dims", four, 2);
  RABBET_EXPECT_OK(infer(t, "shuffle"));
  assert_int_equal(
      value_of(t, t->output.shape.d[0], (const int64_t[]){6, 0, 0}), 9);
}

static void matrix_products(void** state) {
  trial_t* t = *state;
  give(t, RABBET_DTYPE_FLOAT, "n,12,h,64");
  give(t, RABBET_DTYPE_FLOAT, "n,12,w,64");
  give_int(t, "op1", 1);
  RABBET_EXPECT_OK(infer(t, "matrix_multiply"));
  expect_shape(t, "n,12,h,w");
  give(t, RABBET_DTYPE_FLOAT, "n,h,64");
  give(t, RABBET_DTYPE_FLOAT, "1,w,8");
  RABBET_EXPECT_OK(infer(t, "matrix_multiply"));
  expect_shape(t, "n,h,8");
}

static void concatenations(void** state) {
  trial_t* t = *state;
  give(t, RABBET_DTYPE_FLOAT, "n,h,3");
  give(t, RABBET_DTYPE_FLOAT, "n,w,3");
  give_int(t, "axis", 1);
  RABBET_EXPECT_OK(infer(t, "concatenation"));
  expect_text(t, t->output.shape.d[1], "(h + w)");
  // An extent that one input knows is known.
  give(t, RABBET_DTYPE_FLOAT, "n,2");
  give(t, RABBET_DTYPE_FLOAT, "4,3");
  give_int(t, "axis", -1);
  RABBET_EXPECT_OK(infer(t, "concatenation"));
  expect_shape(t, "4,5");
}

static void slices_by_expressions(void** state) {
  trial_t* t = *state;
  give(t, RABBET_DTYPE_FLOAT, "n,9");
  give_values(t, "0,2");
  give_values(t, "h,5");
  RABBET_EXPECT_OK(infer(t, "slice"));
  expect_shape(t, "h,5");
  give(t, RABBET_DTYPE_FLOAT, "n,9");
  give(t, RABBET_DTYPE_INT64, "2");
  give_values(t, "h,5");
  RABBET_EXPECT_ERROR(infer(t, "slice"), RABBET_STATUS_INVALID_ARGUMENT,
                      "the values of input 1 ('start')");
}

// ---- Values ----------------------------------------------------------------

static void shapes_have_values(void** state) {
  trial_t* t = *state;
  give(t, RABBET_DTYPE_HALF, "n,3,h");
  RABBET_EXPECT_OK(infer(t, "shape"));
  expect_values(t, "n,3,h");
  assert_null(t->output.constant);
  give(t, RABBET_DTYPE_HALF, "4,3");
  RABBET_EXPECT_OK(infer(t, "shape"));
  expect_values(t, "4,3");
  assert_non_null(t->output.constant);
  assert_int_equal(((const int64_t*)t->output.constant)[1], 3);
}

static void moved_values_are_followed(void** state) {
  trial_t* t = *state;
  static const int64_t indices[] = {2, -3, 9};
  give_values(t, "n,3,h");
  rabbet_op_value_t* index = give(t, RABBET_DTYPE_INT64, "3");
  index->constant = indices;
  RABBET_EXPECT_OK(infer(t, "gather"));
  expect_values(t, "h,n,0");  // out of bounds: zero

  give_values(t, "n,3");
  give_values(t, "h");
  give_int(t, "axis", 0);
  RABBET_EXPECT_OK(infer(t, "concatenation"));
  expect_values(t, "n,3,h");

  const int64_t start[] = {3}, shape[] = {3}, stride[] = {-1};
  give_values(t, "n,3,h,w");
  give_ints(t, "start", start, 1);
  give_ints(t, "shape", shape, 1);
  give_ints(t, "stride", stride, 1);
  RABBET_EXPECT_OK(infer(t, "slice"));
  expect_values(t, "w,h,3");

  const int64_t transposed[] = {1, 0}, square[] = {2, 2};
  give_values(t, "n,3,h,w");
  give_ints(t, "reshape_dims", square, 2);
  give_ints(t, "second_transpose", transposed, 2);
  RABBET_EXPECT_OK(infer(t, "shuffle"));
  expect_values(t, "n,h,3,w");
}

// Padding a shape vector by FILL: a value input is moved as well.
static void filled_values_are_followed(void** state) {
  trial_t* t = *state;
  const int64_t start[] = {-1}, shape[] = {4};
  give_values(t, "n,3");
  t->inputs[t->input_count++].present = false;
  t->inputs[t->input_count++].present = false;
  t->inputs[t->input_count++].present = false;
  give_values(t, "w");
  give_ints(t, "start", start, 1);
  give_ints(t, "shape", shape, 1);
  give_int(t, "mode", 3);
  RABBET_EXPECT_OK(infer(t, "slice"));
  expect_values(t, "w,n,3,w");
}

typedef int64_t (*binary_fn_t)(int64_t, int64_t);
static int64_t fn_sum(int64_t a, int64_t b) {
  return a + b;
}
static int64_t fn_prod(int64_t a, int64_t b) {
  return a * b;
}
static int64_t fn_max(int64_t a, int64_t b) {
  return a > b ? a : b;
}
static int64_t fn_min(int64_t a, int64_t b) {
  return a < b ? a : b;
}
static int64_t fn_sub(int64_t a, int64_t b) {
  return a - b;
}
static int64_t fn_div(int64_t a, int64_t b) {
  return a / b;
}
static int64_t fn_floor_div(int64_t a, int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
static int64_t fn_equal(int64_t a, int64_t b) {
  return a == b;
}
static int64_t fn_greater(int64_t a, int64_t b) {
  return a > b;
}
static int64_t fn_less(int64_t a, int64_t b) {
  return a < b;
}

static void arithmetic_on_values(void** state) {
  trial_t* t = *state;
  static const struct {
    int64_t op;
    binary_fn_t function;
  } cases[] = {
      {0, fn_sum},      {1, fn_prod},  {2, fn_max},       {3, fn_min},
      {4, fn_sub},      {5, fn_div},   {7, fn_floor_div}, {11, fn_equal},
      {12, fn_greater}, {13, fn_less},
  };
  rabbet_expr_t difference = RABBET_EXPR_NONE;
  RABBET_EXPECT_OK(rabbet_expr_binary(t->graph, RABBET_EXPR_SUB, t->symbols[0],
                                      t->symbols[1], &difference));
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    // (n, n - h, 7) op (w), broadcast.
    rabbet_op_value_t* a = give_values(t, "n,n,7");
    ((rabbet_expr_t*)(uintptr_t)a->values)[1] = difference;
    give_values(t, "w");
    give_int(t, "op", cases[i].op);
    RABBET_EXPECT_OK(infer(t, "elementwise"));
    assert_non_null(t->output.values);
    for (int64_t n = 0; n < 9; ++n) {
      const int64_t nhw[] = {n, 4, 3};
      const int64_t left[] = {n, n - 4, 7};
      for (int k = 0; k < 3; ++k) {
        assert_int_equal(value_of(t, t->output.values[k], nhw),
                         cases[i].function(left[k], 3));
      }
    }
  }
  // Small powers are products; no expression says others.
  give_values(t, "n");
  give_values(t, "2");
  give_int(t, "op", 6);
  RABBET_EXPECT_OK(infer(t, "elementwise"));
  const int64_t seven[] = {7, 4, 3};
  assert_int_equal(value_of(t, t->output.values[0], seven), 49);
  give_values(t, "n");
  give_values(t, "w");
  give_int(t, "op", 6);
  RABBET_EXPECT_OK(infer(t, "elementwise"));
  assert_null(t->output.values);
}

static void functions_of_values(void** state) {
  trial_t* t = *state;
  const int64_t nhw[] = {5, 0, 0};
  static const struct {
    int64_t op, expected;
  } cases[] = {{5, -5}, {4, 5}, {21, 1}};
  for (size_t i = 0; i < 3; ++i) {
    give_values(t, "n");
    give_int(t, "op", cases[i].op);
    RABBET_EXPECT_OK(infer(t, "unary"));
    assert_int_equal(value_of(t, t->output.values[0], nhw), cases[i].expected);
  }
  give_values(t, "n,0");
  give_int(t, "to_type", RABBET_DTYPE_BOOL);
  RABBET_EXPECT_OK(infer(t, "cast"));
  assert_int_equal(t->output.dtype, RABBET_DTYPE_BOOL);
  assert_int_equal(value_of(t, t->output.values[0], nhw), 1);
  assert_int_equal(value_of(t, t->output.values[1], nhw), 0);
  give_values(t, "n,3");
  give_int(t, "to_type", RABBET_DTYPE_INT32);
  RABBET_EXPECT_OK(infer(t, "cast"));
  expect_values(t, "n,3");
  // Eight bits wrap around, which is not followed.
  give_values(t, "n,3");
  give_int(t, "to_type", RABBET_DTYPE_INT8);
  RABBET_EXPECT_OK(infer(t, "cast"));
  assert_null(t->output.values);
}

static void reductions_of_values(void** state) {
  trial_t* t = *state;
  static const int64_t expected[] = {15, 80, 8, 2};
  const int64_t nhw[] = {5, 8, 2};
  for (int64_t op = 0; op < 4; ++op) {
    give_values(t, "n,h,w");
    give_int(t, "op", op);
    give_int(t, "axes", 1);
    RABBET_EXPECT_OK(infer(t, "reduce"));
    assert_int_equal(t->output.shape.rank, 0);
    assert_int_equal(value_of(t, t->output.values[0], nhw), expected[op]);
  }
}

static void choices_between_values(void** state) {
  trial_t* t = *state;
  // As exporters write Expand: where(shape == -1, 1, shape).
  static const bool condition[] = {true, false, true};
  rabbet_op_value_t* c = give(t, RABBET_DTYPE_BOOL, "3");
  c->constant = condition;
  give_values(t, "n,h,w");
  give_values(t, "1");
  RABBET_EXPECT_OK(infer(t, "select"));
  expect_values(t, "n,1,w");
  // A condition that only a run tells.
  rabbet_expr_t less = RABBET_EXPR_NONE;
  RABBET_EXPECT_OK(rabbet_expr_binary(t->graph, RABBET_EXPR_LESS, t->symbols[0],
                                      t->symbols[1], &less));
  c = give(t, RABBET_DTYPE_BOOL, "1");
  c->values = &less;
  c->value_count = 1;
  give_values(t, "w");
  give_values(t, "7");
  RABBET_EXPECT_OK(infer(t, "select"));
  assert_int_equal(value_of(t, t->output.values[0], (const int64_t[]){1, 2, 5}),
                   5);
  assert_int_equal(value_of(t, t->output.values[0], (const int64_t[]){2, 2, 5}),
                   7);
}

static void small_constants_are_computed(void** state) {
  trial_t* t = *state;
  static const float floats[] = {2.75f, -1.5f};
  rabbet_op_value_t* x = give(t, RABBET_DTYPE_FLOAT, "2");
  x->constant = floats;
  give_int(t, "to_type", RABBET_DTYPE_INT64);
  RABBET_EXPECT_OK(infer(t, "cast"));
  expect_values(t, "2,-1");
  x = give(t, RABBET_DTYPE_FLOAT, "2");
  x->constant = floats;
  give_int(t, "op", 18);
  RABBET_EXPECT_OK(infer(t, "unary"));
  assert_true(((const float*)t->output.constant)[1] == -2.0f);
  assert_null(t->output.values);
}

// ---- Errors ----------------------------------------------------------------

static void operands_are_checked(void** state) {
  trial_t* t = *state;
  give(t, RABBET_DTYPE_INT32, "2,3");
  RABBET_EXPECT_ERROR(infer(t, "softmax"), RABBET_STATUS_INVALID_ARGUMENT,
                      "input 0 ('input') has type INT32; 'softmax' takes "
                      "FLOAT, HALF, BF16");
  give(t, RABBET_DTYPE_BOOL, "2");
  give(t, RABBET_DTYPE_FLOAT, "2");
  RABBET_EXPECT_ERROR(infer(t, "select"), RABBET_STATUS_INVALID_ARGUMENT,
                      "input 2 ('else_input') is missing");
  give(t, RABBET_DTYPE_FLOAT, "2");
  give(t, RABBET_DTYPE_FLOAT, "2");
  RABBET_EXPECT_ERROR(infer(t, "shape"), RABBET_STATUS_INVALID_ARGUMENT,
                      "2 inputs are given; 'shape' takes at most 1");
}

static void huge_extents_do_not_overflow(void** state) {
  trial_t* t = *state;
  give(t, RABBET_DTYPE_FLOAT, "1,9223372036854775807,9223372036854775807");
  give(t, RABBET_DTYPE_FLOAT, "4,9223372036854775807,1");
  give_int(t, "num_groups", 4);
  RABBET_EXPECT_ERROR(infer(t, "convolution"), RABBET_STATUS_INVALID_ARGUMENT,
                      "channels");
  const int64_t window[] = {2}, pad[] = {1 << 30};
  give(t, RABBET_DTYPE_FLOAT, "1,1,9223372036854775807");
  give_int(t, "type", 0);
  give_ints(t, "window_size_nd", window, 1);
  give_ints(t, "pre_padding", pad, 1);
  RABBET_EXPECT_ERROR(infer(t, "pooling"), RABBET_STATUS_OUT_OF_RANGE, "");
  const int64_t flat[] = {-1};
  give(t, RABBET_DTYPE_FLOAT, "9223372036854775807,9223372036854775807");
  give_ints(t, "reshape_dims", flat, 1);
  RABBET_EXPECT_ERROR(infer(t, "shuffle"), RABBET_STATUS_INVALID_ARGUMENT,
                      "too many elements");
}

// ---- Faults ----------------------------------------------------------------

static rabbet_status_t evaluate_slice(rabbet_allocator_t allocator,
                                      void* user_data) {
  (void)user_data;
  static const int64_t start[] = {-1}, shape[] = {300};
  static float data[200];
  const rabbet_attr_t attrs[] = {
      {.name = "start", .type = RABBET_ATTR_INTS, start, .count = 1},
      {.name = "shape", .type = RABBET_ATTR_INTS, shape, .count = 1},
      {.name = "mode", .type = RABBET_ATTR_STRING, "WRAP", .count = 4},
  };
  const rabbet_view_t input = {
      data, RABBET_DTYPE_FLOAT, RABBET_FORMAT_LINEAR, {.rank = 1, .d = {200}}};
  rabbet_view_t output;
  rabbet_status_t status =
      rabbet_op_evaluate("slice", attrs, 3, &input, 1, allocator, &output);
  if (rabbet_is_ok(status)) rabbet_free_aligned(allocator, output.data, 64);
  return status;
}

static rabbet_status_t evaluate_nms(rabbet_allocator_t allocator,
                                    void* user_data) {
  (void)user_data;
  static const float boxes[] = {0, 0, 2, 2, 0, 0, 2, 1.9f, 5, 5, 6, 6};
  static const float scores[] = {0.5f, 0.25f, 0.75f};
  static const int32_t most = 8;
  const rabbet_view_t inputs[] = {{(void*)(uintptr_t)boxes,
                                   RABBET_DTYPE_FLOAT,
                                   RABBET_FORMAT_LINEAR,
                                   {.rank = 3, .d = {1, 3, 4}}},
                                  {(void*)(uintptr_t)scores,
                                   RABBET_DTYPE_FLOAT,
                                   RABBET_FORMAT_LINEAR,
                                   {.rank = 3, .d = {1, 3, 1}}},
                                  {(void*)(uintptr_t)&most,
                                   RABBET_DTYPE_INT32,
                                   RABBET_FORMAT_LINEAR,
                                   {.rank = 0}}};
  rabbet_view_t outputs[2];
  RABBET_RETURN_IF_ERROR(
      rabbet_op_evaluate("nms", NULL, 0, inputs, 3, allocator, outputs));
  const int32_t* rows = outputs[0].data;
  assert_int_equal(outputs[0].dims.d[0], 2);
  assert_int_equal(*(const int32_t*)outputs[1].data, 2);
  assert_true(rows[2] == 2 && rows[5] == 0);
  rabbet_free_aligned(allocator, outputs[0].data, 64);
  rabbet_free_aligned(allocator, outputs[1].data, 64);
  return rabbet_ok();
}

static void failed_allocations_leave_nothing(void** state) {
  (void)state;
  assert_true(rabbet_fault_run(evaluate_slice, NULL) > 3);
  assert_true(rabbet_fault_run(evaluate_nms, NULL) > 3);
}

// A size is a symbol of its tensor, or cannot be told.
static void sizes_that_a_run_tells(void** state) {
  trial_t* t = *state;
  const rabbet_op_t* op = rabbet_op_find("non_zero");
  rabbet_op_value_t* x = give(t, RABBET_DTYPE_FLOAT, "n,h");
  rabbet_op_value_t outputs[2] = {{.dtype = RABBET_DTYPE_NONE},
                                  {.dtype = RABBET_DTYPE_NONE}};
  rabbet_attr_t attrs[1];
  bool differs = false;
  RABBET_EXPECT_OK(rabbet_op_complete_attrs(op, NULL, 0, &t->arena, attrs));
  rabbet_op_infer_t args = {.op = op,
                            .graph = t->graph,
                            .arena = &t->arena,
                            .attrs = attrs,
                            .attr_count = 1,
                            .inputs = x,
                            .input_count = 1,
                            .outputs = outputs,
                            .output_count = 2,
                            .out_bound_differs = &differs};
  RABBET_EXPECT_ERROR(rabbet_op_infer(&args), RABBET_STATUS_UNSUPPORTED,
                      "a run alone tells how many elements 'non_zero' makes");
  args.output_tensors = (const int32_t[]){7, 8};
  RABBET_EXPECT_OK(rabbet_op_infer(&args));
  assert_false(differs);
  assert_int_equal(outputs[0].dtype, RABBET_DTYPE_INT32);
  assert_int_equal(outputs[0].shape.rank, 2);
  assert_int_equal(outputs[1].shape.rank, 0);
  expect_text(t, outputs[0].shape.d[1], "tensor8[0]");
  const rabbet_expr_node_t* node =
      rabbet_expr_node(t->graph, outputs[0].shape.d[1]);
  const rabbet_symbol_t* symbol = rabbet_expr_symbol(t->graph, (size_t)node->a);
  expect_text(t, symbol->upper, "(n * h)");
  x->shape.d[1] = t->symbols[2];
  RABBET_EXPECT_OK(rabbet_op_infer(&args));
  assert_true(differs);
  assert_true(rabbet_op_makes_sizes(op));
  assert_int_equal(rabbet_op_shown_outputs(op), 1);
  op = rabbet_op_find("nms");
  assert_true(rabbet_op_makes_sizes(op));
  assert_int_equal(rabbet_op_shown_outputs(op), 2);
  assert_false(rabbet_op_makes_sizes(rabbet_op_find("topk")));
  assert_int_equal(rabbet_op_shown_outputs(rabbet_op_find("topk")), 2);
  t->input_count = 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(broadcasting),
      TEST(convolution_of_unknown_extents),
      TEST(same_padding_of_unknown_extents),
      TEST(reshapes),
      TEST(matrix_products),
      TEST(concatenations),
      TEST(slices_by_expressions),
      TEST(shapes_have_values),
      TEST(moved_values_are_followed),
      TEST(filled_values_are_followed),
      TEST(arithmetic_on_values),
      TEST(functions_of_values),
      TEST(reductions_of_values),
      TEST(choices_between_values),
      TEST(small_constants_are_computed),
      TEST(operands_are_checked),
      TEST(huge_extents_do_not_overflow),
      TEST(sizes_that_a_run_tells),
      TEST(failed_allocations_leave_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
