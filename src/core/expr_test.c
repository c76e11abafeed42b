#include "core/expr.h"

#include "check.h"
#include "faults/fault_allocator.h"

static rabbet_expr_graph_t* graph;
static rabbet_expr_t n, h, w, v;  // three dimensions and a value

static rabbet_status_t add_symbols(void) {
  const rabbet_symbol_t symbols[] = {
      {RABBET_SYMBOL_DIM, 0, 0, "n", RABBET_EXPR_NONE, RABBET_EXPR_NONE},
      {RABBET_SYMBOL_DIM, 0, 2, "h", RABBET_EXPR_NONE, RABBET_EXPR_NONE},
      {RABBET_SYMBOL_DIM, 0, 3, NULL, RABBET_EXPR_NONE, RABBET_EXPR_NONE},
      {RABBET_SYMBOL_VALUE, 5, 1, NULL, RABBET_EXPR_NONE, RABBET_EXPR_NONE},
  };
  rabbet_expr_t* const nodes[] = {&n, &h, &w, &v};
  for (int i = 0; i < 4; ++i)
    RABBET_RETURN_IF_ERROR(rabbet_expr_of_symbol(graph, &symbols[i], nodes[i]));
  return rabbet_ok();
}

static int setup(void** state) {
  (void)state;
  RABBET_EXPECT_OK(rabbet_expr_graph_create(rabbet_allocator_system(), &graph));
  RABBET_EXPECT_OK(add_symbols());
  return 0;
}

static int teardown(void** state) {
  (void)state;
  rabbet_expr_graph_destroy(graph);
  graph = NULL;
  return 0;
}

static rabbet_expr_t constant(int64_t value) {
  rabbet_expr_t expr;
  RABBET_EXPECT_OK(rabbet_expr_constant(graph, value, &expr));
  return expr;
}

static rabbet_expr_t binary(rabbet_expr_op_t op, rabbet_expr_t a,
                            rabbet_expr_t b) {
  rabbet_expr_t expr;
  RABBET_EXPECT_OK(rabbet_expr_binary(graph, op, a, b, &expr));
  return expr;
}

#define ADD(a, b) binary(RABBET_EXPR_SUM, a, b)
#define SUB(a, b) binary(RABBET_EXPR_SUB, a, b)
#define MUL(a, b) binary(RABBET_EXPR_PROD, a, b)
#define MAX(a, b) binary(RABBET_EXPR_MAX, a, b)
#define MIN(a, b) binary(RABBET_EXPR_MIN, a, b)
#define EQ(a, b) binary(RABBET_EXPR_EQUAL, a, b)
#define LESS(a, b) binary(RABBET_EXPR_LESS, a, b)
#define FLOOR(a, b) binary(RABBET_EXPR_FLOOR_DIV, a, b)
#define CEIL(a, b) binary(RABBET_EXPR_CEIL_DIV, a, b)
#define C(value) constant(value)

static void test_constants_fold(void** state) {
  (void)state;
  assert_int_equal(ADD(C(2), C(3)), C(5));
  assert_int_equal(SUB(C(2), C(3)), C(-1));
  assert_int_equal(MUL(C(2), C(3)), C(6));
  assert_int_equal(MAX(C(2), C(3)), C(3));
  assert_int_equal(MIN(C(2), C(3)), C(2));
  assert_int_equal(EQ(C(2), C(3)), C(0));
  assert_int_equal(LESS(C(2), C(3)), C(1));
  assert_int_equal(FLOOR(C(-7), C(2)), C(-4));
  assert_int_equal(CEIL(C(-7), C(2)), C(-3));
  assert_int_equal(FLOOR(C(7), C(-2)), C(-4));
  assert_int_equal(CEIL(C(7), C(2)), C(4));
}

static void test_sums(void** state) {
  (void)state;
  assert_int_equal(ADD(n, C(0)), n);
  assert_int_equal(ADD(n, h), ADD(h, n));
  assert_int_equal(ADD(ADD(n, h), w), ADD(n, ADD(w, h)));
  assert_int_equal(ADD(ADD(n, C(2)), C(3)), ADD(n, C(5)));
  assert_int_equal(SUB(ADD(n, C(2)), C(2)), n);
  assert_int_equal(SUB(n, n), C(0));
  assert_int_equal(SUB(ADD(n, h), n), h);
  assert_int_equal(ADD(n, n), MUL(n, C(2)));
  assert_int_equal(SUB(MUL(n, C(3)), MUL(n, C(2))), n);
  assert_int_equal(SUB(n, SUB(h, w)), ADD(SUB(n, h), w));
}

static void test_products(void** state) {
  (void)state;
  assert_int_equal(MUL(n, C(1)), n);
  assert_int_equal(MUL(n, C(0)), C(0));
  assert_int_equal(MUL(MUL(n, h), w), MUL(w, MUL(h, n)));
  assert_int_equal(MUL(MUL(n, C(2)), C(3)), MUL(n, C(6)));
  assert_int_equal(MUL(MUL(n, C(2)), MUL(h, C(3))), MUL(MUL(h, n), C(6)));
  assert_int_equal(MUL(ADD(n, C(1)), C(2)), ADD(MUL(n, C(2)), C(2)));
  assert_int_equal(MUL(ADD(MUL(n, C(2)), C(2)), h),
                   MUL(MUL(ADD(n, C(1)), h), C(2)));
}

static void test_divisions(void** state) {
  (void)state;
  assert_int_equal(FLOOR(n, C(1)), n);
  assert_int_equal(FLOOR(n, n), C(1));
  assert_int_equal(FLOOR(C(0), n), C(0));
  assert_int_equal(FLOOR(MUL(n, C(6)), C(6)), n);
  assert_int_equal(FLOOR(MUL(n, C(6)), C(4)), FLOOR(MUL(n, C(3)), C(2)));
  assert_int_equal(FLOOR(FLOOR(n, C(2)), C(3)), FLOOR(n, C(6)));
  assert_int_equal(FLOOR(ADD(n, C(5)), C(4)),
                   ADD(FLOOR(ADD(n, C(1)), C(4)), C(1)));
  assert_int_equal(FLOOR(MUL(MUL(n, h), w), MUL(w, n)), h);
  assert_int_equal(FLOOR(ADD(MUL(n, h), MUL(n, w)), n), ADD(h, w));
  assert_int_equal(FLOOR(MUL(ADD(n, C(1)), C(768)), MUL(ADD(n, C(1)), C(12))),
                   C(64));
  assert_int_equal(CEIL(MUL(n, h), n), h);
  assert_int_equal(CEIL(n, C(-2)), SUB(C(0), FLOOR(n, C(2))));
  assert_int_equal(SUB(C(0), FLOOR(SUB(C(0), n), C(2))), CEIL(n, C(2)));
  assert_int_equal(FLOOR(n, C(-2)), SUB(C(0), CEIL(n, C(2))));
}

// Expressions that must be provably equal in real networks.
static void test_shapes_of_networks(void** state) {
  (void)state;
  // A 3x3 convolution of stride 2 and padding 1, a 1x1 one of stride 2, and a
  // pooling that rounds up.
  rabbet_expr_t three = ADD(FLOOR(SUB(ADD(h, C(2)), C(3)), C(2)), C(1));
  rabbet_expr_t one = ADD(FLOOR(SUB(h, C(1)), C(2)), C(1));
  assert_int_equal(three, one);
  assert_int_equal(three, CEIL(h, C(2)));
  // A reshape to (n, -1, heads, width).
  rabbet_expr_t volume = MUL(MUL(n, h), C(768));
  assert_int_equal(FLOOR(volume, MUL(n, C(768))), h);
  // A slice [1:-1] of a concatenation with two tokens.
  rabbet_expr_t extended = ADD(h, C(2));
  assert_int_equal(SUB(SUB(extended, C(1)), C(1)), h);
  // The end of a slice is clamped to the dimension.
  assert_int_equal(MIN(ADD(h, C(7)), h), h);
  assert_int_equal(MIN(C(INT64_MAX), h), h);
  assert_int_equal(MAX(h, C(0)), h);
}

static void test_comparisons(void** state) {
  (void)state;
  assert_int_equal(MAX(n, n), n);
  assert_int_equal(MIN(n, h), MIN(h, n));
  assert_int_equal(MAX(MAX(n, h), w), MAX(w, MAX(h, n)));
  assert_int_equal(MAX(MAX(n, C(3)), C(5)), MAX(n, C(5)));
  assert_int_equal(MIN(ADD(n, C(1)), ADD(n, C(2))), ADD(n, C(1)));
  assert_int_equal(MAX(n, ADD(n, h)), ADD(n, h));
  assert_int_equal(EQ(n, n), C(1));
  assert_int_equal(EQ(n, h), EQ(h, n));
  assert_int_equal(EQ(n, ADD(n, C(1))), C(0));
  assert_int_equal(EQ(n, C(-1)), C(0));
  assert_int_equal(LESS(n, n), C(0));
  assert_int_equal(LESS(n, C(0)), C(0));
  assert_int_equal(LESS(C(-1), n), C(1));
  // A value, unlike a dimension, may be negative.
  assert_int_not_equal(LESS(v, C(0)), C(0));
  assert_int_not_equal(MAX(v, C(0)), v);
}

// Where one is 1, the other decides: 0, too.
static void test_broadcasts(void** state) {
  (void)state;
#define BROADCAST(a, b) binary(RABBET_EXPR_BROADCAST, a, b)
  rabbet_expr_t both = BROADCAST(n, h);
  assert_int_equal(BROADCAST(h, n), both);
  assert_int_equal(BROADCAST(both, n), both);
  assert_int_equal(BROADCAST(n, n), n);
  assert_int_equal(BROADCAST(n, C(1)), n);
  assert_int_equal(BROADCAST(both, C(4)), C(4));
  assert_int_equal(BROADCAST(n, C(0)), C(0));
  static const struct {
    int64_t n, h, result;  // -1: none
  } cases[] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 0},  {1, 7, 7},
               {7, 1, 7}, {5, 5, 5}, {5, 6, -1}, {0, 2, -1}};
  int64_t values[64];
  bool valid[64];
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
    const int64_t symbols[] = {cases[i].n, cases[i].h, 1, 1};
    RABBET_EXPECT_OK(rabbet_expr_evaluate(graph, symbols, values, valid));
    assert_int_equal(valid[both], cases[i].result >= 0);
    if (valid[both]) assert_int_equal(values[both], cases[i].result);
  }
  rabbet_expr_t bad;
  RABBET_EXPECT_ERROR(
      rabbet_expr_binary(graph, RABBET_EXPR_BROADCAST, C(2), C(3), &bad),
      RABBET_STATUS_INVALID_ARGUMENT, "extents 2 and 3 do not broadcast");
#undef BROADCAST
}

static void test_symbols(void** state) {
  (void)state;
  rabbet_expr_t expr;
  rabbet_symbol_t again = {RABBET_SYMBOL_DIM, 0, 0, NULL, RABBET_EXPR_NONE,
                           RABBET_EXPR_NONE};
  RABBET_EXPECT_OK(rabbet_expr_of_symbol(graph, &again, &expr));
  assert_int_equal(expr, n);
  rabbet_symbol_t same_name = {RABBET_SYMBOL_DIM, 1, 0, "n", RABBET_EXPR_NONE,
                               RABBET_EXPR_NONE};
  RABBET_EXPECT_OK(rabbet_expr_of_symbol(graph, &same_name, &expr));
  assert_int_equal(expr, n);
  same_name.name = NULL;  // the same dimension under another name
  RABBET_EXPECT_OK(rabbet_expr_of_symbol(graph, &same_name, &expr));
  assert_int_equal(expr, n);
  assert_int_equal(rabbet_expr_symbol_count(graph), 4);
  const rabbet_symbol_t* symbol =
      rabbet_expr_symbol(graph, (size_t)rabbet_expr_node(graph, h)->a);
  assert_string_equal(symbol->name, "h");
  assert_int_equal(symbol->index, 2);
  rabbet_symbol_t wrong = {RABBET_SYMBOL_VALUE, 7, 0, NULL, 99, 0};
  RABBET_EXPECT_ERROR(rabbet_expr_of_symbol(graph, &wrong, &expr),
                      RABBET_STATUS_INVALID_ARGUMENT, "expression 99");
  wrong = (rabbet_symbol_t){(rabbet_symbol_kind_t)9, 7, 0, NULL, 0, 0};
  RABBET_EXPECT_ERROR(rabbet_expr_of_symbol(graph, &wrong, &expr),
                      RABBET_STATUS_INVALID_ARGUMENT, "kind");
}

static void test_errors(void** state) {
  (void)state;
  rabbet_expr_t out;
  RABBET_EXPECT_ERROR(
      rabbet_expr_binary(graph, RABBET_EXPR_FLOOR_DIV, C(5), C(0), &out),
      RABBET_STATUS_INVALID_ARGUMENT, "5 is divided by 0");
  RABBET_EXPECT_ERROR(
      rabbet_expr_binary(graph, RABBET_EXPR_CEIL_DIV, n, C(0), &out),
      RABBET_STATUS_INVALID_ARGUMENT, "divided by 0");
  RABBET_EXPECT_ERROR(
      rabbet_expr_binary(graph, RABBET_EXPR_SUM, C(INT64_MAX), C(1), &out),
      RABBET_STATUS_OUT_OF_RANGE, "9223372036854775807 + 1");
  RABBET_EXPECT_ERROR(rabbet_expr_binary(graph, RABBET_EXPR_FLOOR_DIV,
                                         C(INT64_MIN), C(-1), &out),
                      RABBET_STATUS_OUT_OF_RANGE, "floordiv");
  RABBET_EXPECT_ERROR(rabbet_expr_binary(graph, RABBET_EXPR_SUM, n, 999, &out),
                      RABBET_STATUS_INVALID_ARGUMENT, "999");
  RABBET_EXPECT_ERROR(rabbet_expr_binary(graph, RABBET_EXPR_SUM, -1, n, &out),
                      RABBET_STATUS_INVALID_ARGUMENT, "-1");
  RABBET_EXPECT_ERROR(rabbet_expr_binary(graph, RABBET_EXPR_SYMBOL, n, n, &out),
                      RABBET_STATUS_INVALID_ARGUMENT, "10 is not an operation");
  assert_int_equal(out, RABBET_EXPR_NONE);
}

// Constants too large to be gathered stay apart, and right.
static void test_extreme_constants(void** state) {
  (void)state;
  rabbet_expr_t large = ADD(ADD(n, C(INT64_MAX)), h);
  rabbet_expr_t sum = ADD(large, C(INT64_MAX));
  rabbet_expr_t scaled = MUL(MUL(n, C(INT64_MAX)), C(3));
  rabbet_expr_t least = MUL(n, C(INT64_MIN));
  rabbet_expr_t by_least = FLOOR(v, C(INT64_MIN));
  rabbet_expr_t negated = SUB(C(0), least);
  int64_t symbols[] = {0, 0, 0, INT64_MIN}, values[200];
  bool valid[200];
  assert_in_range(rabbet_expr_node_count(graph), 1, 200);
  RABBET_EXPECT_OK(rabbet_expr_evaluate(graph, symbols, values, valid));
  assert_true(valid[large] && values[large] == INT64_MAX);
  assert_false(valid[sum]);
  assert_true(valid[scaled] && values[scaled] == 0);
  assert_true(valid[least] && values[least] == 0);
  assert_true(valid[negated] && values[negated] == 0);
  assert_true(valid[by_least] && values[by_least] == 1);
}

static void test_evaluate(void** state) {
  (void)state;
  rabbet_expr_t quotient = FLOOR(n, v), sum = ADD(quotient, C(1));
  rabbet_expr_t product = MUL(n, h);
  int64_t values[64];
  bool valid[64];
  assert_in_range(rabbet_expr_node_count(graph), 1, 64);
  int64_t symbols[] = {7, 3, 0, 2};
  RABBET_EXPECT_OK(rabbet_expr_evaluate(graph, symbols, values, NULL));
  assert_int_equal(values[quotient], 3);
  assert_int_equal(values[sum], 4);
  assert_int_equal(values[product], 21);
  int64_t by_zero[] = {7, 3, 0, 0};
  RABBET_EXPECT_OK(rabbet_expr_evaluate(graph, by_zero, values, valid));
  assert_false(valid[quotient] || valid[sum]);
  assert_true(valid[product]);
  RABBET_EXPECT_ERROR(rabbet_expr_evaluate(graph, by_zero, values, NULL),
                      RABBET_STATUS_INVALID_ARGUMENT,
                      "floordiv(n, tensor5[1]), with operands 7 and 0");
  int64_t overflow[] = {INT64_MAX, 3, 0, 1};
  RABBET_EXPECT_ERROR(rabbet_expr_evaluate(graph, overflow, values, NULL),
                      RABBET_STATUS_OUT_OF_RANGE, "does not fit");
}

static void expect_bounds(rabbet_expr_t expr, const int64_t* low,
                          const int64_t* high, int64_t expected_low,
                          int64_t expected_high) {
  size_t count = rabbet_expr_node_count(graph);
  int64_t* lows = malloc(2 * count * sizeof(*lows));
  RABBET_EXPECT_OK(rabbet_expr_bounds(graph, low, high, lows, lows + count));
  int64_t found_low = lows[expr], found_high = lows[count + (size_t)expr];
  free(lows);
  if (found_low != expected_low || found_high != expected_high)
    fail_msg("expected %lld..%lld, found %lld..%lld", (long long)expected_low,
             (long long)expected_high, (long long)found_low,
             (long long)found_high);
}

static void test_bounds(void** state) {
  (void)state;
  int64_t low[] = {1, 10, 0, -3}, high[] = {8, 20, INT64_MAX, 2};
  expect_bounds(ADD(n, h), low, high, 11, 28);
  expect_bounds(SUB(n, h), low, high, -19, -2);
  expect_bounds(MUL(n, h), low, high, 10, 160);
  expect_bounds(MUL(n, v), low, high, -24, 16);
  expect_bounds(MAX(n, v), low, high, 1, 8);
  expect_bounds(MIN(h, w), low, high, 0, 20);
  expect_bounds(EQ(n, h), low, high, 0, 0);
  expect_bounds(LESS(n, h), low, high, 1, 1);
  expect_bounds(LESS(v, n), low, high, 0, 1);
  expect_bounds(FLOOR(h, n), low, high, 1, 20);
  expect_bounds(FLOOR(SUB(C(100), h), C(2)), low, high, 40, 45);
  // Zero is left out of a divisor, both its signs are not.
  expect_bounds(FLOOR(h, v), low, high, -20, 20);
  // Saturation.
  expect_bounds(MUL(w, h), low, high, 0, INT64_MAX);
  expect_bounds(SUB(C(-2), w), low, high, INT64_MIN, -2);
  int64_t empty[] = {9, 10, 0, -3};
  int64_t out[400];
  RABBET_EXPECT_ERROR(rabbet_expr_bounds(graph, empty, high, out, out + 200),
                      RABBET_STATUS_INVALID_ARGUMENT, "range of n");
}

static void expect_text(rabbet_expr_t expr, const char* expected) {
  char* text = NULL;
  RABBET_EXPECT_OK(
      rabbet_expr_print(graph, expr, rabbet_allocator_system(), &text));
  assert_string_equal(text, expected);
  rabbet_free(rabbet_allocator_system(), text);
}

static void test_print(void** state) {
  (void)state;
  expect_text(FLOOR(ADD(n, C(2)), C(4)), "floordiv((n + 2), 4)");
  expect_text(CEIL(h, n), "ceildiv(h, n)");
  expect_text(SUB(w, C(1)), "(tensor0.dim3 - 1)");
  expect_text(MUL(MAX(n, h), v), "(tensor5[1] * max(n, h))");
  expect_text(LESS(n, MIN(h, w)), "(n < min(h, tensor0.dim3))");
  expect_text(EQ(n, h), "(n == h)");
}

// A graph whose written-out form would have 2^200 nodes.
static void test_print_is_cut(void** state) {
  (void)state;
  rabbet_expr_t expr = n;
  for (int i = 0; i < 200; ++i)
    expr = FLOOR(ADD(MUL(expr, expr), h), MAX(expr, w));
  char* text = NULL;
  RABBET_EXPECT_OK(
      rabbet_expr_print(graph, expr, rabbet_allocator_system(), &text));
  assert_non_null(strstr(text, "..."));
  assert_in_range(strlen(text), 2000, 20000);
  rabbet_free(rabbet_allocator_system(), text);
}

static void test_long_sum(void** state) {
  (void)state;
  rabbet_expr_t sum = C(0);
  int64_t symbols[100] = {0};
  for (int i = 0; i < 60; ++i) {
    rabbet_symbol_t symbol = {RABBET_SYMBOL_DIM, 9, i, NULL, -1, -1};
    rabbet_expr_t expr;
    RABBET_EXPECT_OK(rabbet_expr_of_symbol(graph, &symbol, &expr));
    sum = ADD(ADD(sum, expr), C(1));
    symbols[4 + i] = i;
  }
  size_t count = rabbet_expr_node_count(graph);
  int64_t* values = malloc(count * sizeof(*values));
  RABBET_EXPECT_OK(rabbet_expr_evaluate(graph, symbols, values, NULL));
  assert_int_equal(values[sum], 60 * 59 / 2 + 60);
  free(values);
}

static void test_append(void** state) {
  (void)state;
  rabbet_expr_t out, next = (rabbet_expr_t)rabbet_expr_node_count(graph);
  rabbet_expr_node_t node = {RABBET_EXPR_SUB, n, n, 0};
  RABBET_EXPECT_OK(rabbet_expr_append(graph, &node, &out));
  assert_int_equal(out, next);  // not simplified
  RABBET_EXPECT_ERROR(rabbet_expr_append(graph, &node, &out),
                      RABBET_STATUS_INVALID_ARGUMENT, "repeats expression");
  node = (rabbet_expr_node_t){RABBET_EXPR_CONSTANT, 77, 78, 5};
  RABBET_EXPECT_OK(rabbet_expr_append(graph, &node, &out));
  assert_int_equal(out, C(5));
  node = (rabbet_expr_node_t){RABBET_EXPR_SUM, n, out + 1, 0};
  RABBET_EXPECT_ERROR(rabbet_expr_append(graph, &node, &out),
                      RABBET_STATUS_INVALID_ARGUMENT, "of which there are");
  node = (rabbet_expr_node_t){RABBET_EXPR_SYMBOL, 0, 0, 0};
  RABBET_EXPECT_ERROR(rabbet_expr_append(graph, &node, &out),
                      RABBET_STATUS_INVALID_ARGUMENT, "not an operation");
  node = (rabbet_expr_node_t){(rabbet_expr_op_t)-3, n, n, 0};
  RABBET_EXPECT_ERROR(rabbet_expr_append(graph, &node, &out),
                      RABBET_STATUS_INVALID_ARGUMENT, "not an operation");
}

// Simplified forms keep their numbers when they are read back one by one.
static void test_append_rebuilds(void** state) {
  (void)state;
  FLOOR(ADD(MUL(n, h), C(9)), MAX(w, MIN(v, C(4))));
  rabbet_expr_graph_t* read = NULL;
  RABBET_EXPECT_OK(rabbet_expr_graph_create(rabbet_allocator_system(), &read));
  for (size_t i = 0; i < rabbet_expr_node_count(graph); ++i) {
    const rabbet_expr_node_t* node = rabbet_expr_node(graph, (int32_t)i);
    rabbet_expr_t out;
    if (node->op == RABBET_EXPR_SYMBOL) {
      RABBET_EXPECT_OK(rabbet_expr_of_symbol(
          read, rabbet_expr_symbol(graph, (size_t)node->a), &out));
    } else {
      RABBET_EXPECT_OK(rabbet_expr_append(read, node, &out));
    }
    assert_int_equal(out, i);
  }
  rabbet_expr_graph_destroy(read);
}

static void test_shapes(void** state) {
  (void)state;
  rabbet_dims_t dims = {3, {2, 0, 5}};
  rabbet_shape_t shape;
  RABBET_EXPECT_OK(rabbet_shape_from_dims(graph, &dims, &shape));
  rabbet_dims_t back = rabbet_shape_dims(graph, &shape);
  assert_int_equal(back.rank, 3);
  for (int i = 0; i < 3; ++i)
    assert_int_equal(back.d[i], dims.d[i]);
  shape.d[1] = n;
  back = rabbet_shape_dims(graph, &shape);
  assert_int_equal(back.d[1], -1);
  rabbet_dims_t open = {2, {3, -1}}, unknown = {.rank = -1};
  RABBET_EXPECT_ERROR(rabbet_shape_from_dims(graph, &open, &shape),
                      RABBET_STATUS_INVALID_ARGUMENT, "dimension 1");
  RABBET_EXPECT_ERROR(rabbet_shape_from_dims(graph, &unknown, &shape),
                      RABBET_STATUS_INVALID_ARGUMENT, "rank -1");
}

static rabbet_status_t build_graph(rabbet_allocator_t allocator,
                                   void* user_data) {
  (void)user_data;
  RABBET_RETURN_IF_ERROR(rabbet_expr_graph_create(allocator, &graph));
  rabbet_status_t status = add_symbols();
  rabbet_expr_t expr = n;
  for (int i = 0; i < 60 && rabbet_is_ok(status); ++i) {
    static const rabbet_expr_op_t ops[] = {
        RABBET_EXPR_SUM,  RABBET_EXPR_FLOOR_DIV, RABBET_EXPR_MAX,
        RABBET_EXPR_PROD, RABBET_EXPR_CEIL_DIV,  RABBET_EXPR_SUB};
    rabbet_expr_t other = RABBET_EXPR_NONE;
    status = rabbet_expr_constant(graph, 3 + i % 4, &other);
    if (rabbet_is_ok(status))
      status =
          rabbet_expr_binary(graph, ops[i % 6], expr, i % 3 ? other : v, &expr);
  }
  char* text = NULL;
  if (rabbet_is_ok(status))
    status = rabbet_expr_print(graph, expr, allocator, &text);
  rabbet_free(allocator, text);
  rabbet_expr_graph_destroy(graph);
  graph = NULL;
  return status;
}

static void test_faults(void** state) {
  (void)state;
  assert_true(rabbet_fault_run(build_graph, NULL) > 15);
}

#define EXPR_TEST(function) \
  cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      EXPR_TEST(test_constants_fold),
      EXPR_TEST(test_sums),
      EXPR_TEST(test_products),
      EXPR_TEST(test_divisions),
      EXPR_TEST(test_shapes_of_networks),
      EXPR_TEST(test_comparisons),
      EXPR_TEST(test_broadcasts),
      EXPR_TEST(test_symbols),
      EXPR_TEST(test_errors),
      EXPR_TEST(test_extreme_constants),
      EXPR_TEST(test_evaluate),
      EXPR_TEST(test_bounds),
      EXPR_TEST(test_print),
      EXPR_TEST(test_print_is_cut),
      EXPR_TEST(test_long_sum),
      EXPR_TEST(test_append),
      EXPR_TEST(test_append_rebuilds),
      EXPR_TEST(test_shapes),
      cmocka_unit_test(test_faults),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
