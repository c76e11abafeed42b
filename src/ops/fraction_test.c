#include "ops/fraction.h"

#include <math.h>

#include "check.h"
#include "ops/enums.h"

static void constants(void** state) {
  (void)state;
  static const struct {
    double x;
    bool exists;
    int64_t p, q;
  } cases[] = {
      {0, true, 0, 1},
      {3, true, 3, 1},
      {-0.25, true, -1, 4},
      {(double)0.7f, true, 7, 10},
      {(double)-0.1f, true, -1, 10},
      {(double)(1.0f / 3), true, 1, 3},
      {16777216, true, 16777216, 1},
      {0x1p40, true, INT64_C(1) << 40, 1},
      {1e-30, false, 0, 1},
      {0x1p60, false, 0, 1},
      {(double)INFINITY, false, 0, 1},
      {(double)NAN, false, 0, 1},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
    int64_t p = 0, q = 0;
    assert_int_equal(rabbet_simplest_fraction(cases[i].x, &p, &q),
                     cases[i].exists);
    if (!cases[i].exists) continue;
    assert_int_equal(p, cases[i].p);
    assert_int_equal(q, cases[i].q);
  }
}

// ---- Arithmetic ------------------------------------------------------------

typedef struct fixture_t {
  rabbet_expr_graph_t* graph;
  rabbet_arena_t arena;
  rabbet_op_infer_t infer;
  rabbet_fraction_t a, b;  // (3n - 7) / 4, (m + 1) / 6
} fixture_t;

static rabbet_expr_t linear(const fixture_t* f, int32_t symbol, int64_t factor,
                            int64_t shift) {
  rabbet_expr_t x, constant;
  const rabbet_symbol_t s = {.kind = RABBET_SYMBOL_DIM,
                             .index = symbol,
                             .opt = RABBET_EXPR_NONE,
                             .upper = RABBET_EXPR_NONE};
  RABBET_EXPECT_OK(rabbet_expr_of_symbol(f->graph, &s, &x));
  RABBET_EXPECT_OK(rabbet_expr_constant(f->graph, factor, &constant));
  RABBET_EXPECT_OK(
      rabbet_expr_binary(f->graph, RABBET_EXPR_PROD, x, constant, &x));
  RABBET_EXPECT_OK(rabbet_expr_constant(f->graph, shift, &constant));
  RABBET_EXPECT_OK(
      rabbet_expr_binary(f->graph, RABBET_EXPR_SUM, x, constant, &x));
  return x;
}

static void begin(fixture_t* f) {
  rabbet_allocator_t allocator = rabbet_allocator_system();
  *f = (fixture_t){0};
  RABBET_EXPECT_OK(rabbet_expr_graph_create(allocator, &f->graph));
  rabbet_arena_initialize(allocator, &f->arena);
  f->infer = (rabbet_op_infer_t){.graph = f->graph, .arena = &f->arena};
  f->a.top = linear(f, 0, 3, -7);
  f->b.top = linear(f, 1, 1, 1);
  RABBET_EXPECT_OK(rabbet_expr_constant(f->graph, 4, &f->a.bottom));
  RABBET_EXPECT_OK(rabbet_expr_constant(f->graph, 6, &f->b.bottom));
}

static void end(fixture_t* f) {
  rabbet_arena_deinitialize(&f->arena);
  rabbet_expr_graph_destroy(f->graph);
}

// The value for n and m; such numbers are exact in double.
static double value_of(const fixture_t* f, rabbet_fraction_t x, int64_t n,
                       int64_t m) {
  int64_t values[256];
  const int64_t symbols[] = {n, m};
  assert_true(rabbet_expr_node_count(f->graph) <= 256);
  RABBET_EXPECT_OK(
      rabbet_expr_evaluate(f->graph, symbols, values, (bool[256]){false}));
  assert_true(values[x.bottom] > 0);
  return (double)values[x.top] / (double)values[x.bottom];
}

static double half_to_even(double x) {
  return nearbyint(x);
}
static double sign(double x) {
  return (x > 0) - (x < 0);
}
static double negative(double x) {
  return -x;
}

static void functions_of_one(void** state) {
  (void)state;
  static const struct {
    int64_t op;
    double (*function)(double);
  } cases[] = {
      {RABBET_UNARY_NEG, negative}, {RABBET_UNARY_ABS, fabs},
      {RABBET_UNARY_SIGN, sign},    {RABBET_UNARY_FLOOR, floor},
      {RABBET_UNARY_CEIL, ceil},    {RABBET_UNARY_ROUND, half_to_even},
  };
  fixture_t f;
  begin(&f);
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
    rabbet_fraction_t y;
    RABBET_EXPECT_OK(rabbet_fraction_unary(&f.infer, cases[i].op, f.a, &y));
    for (int64_t n = 0; n < 12; ++n)
      assert_true(value_of(&f, y, n, 0) ==
                  cases[i].function((3 * (double)n - 7) / 4));
  }
  rabbet_fraction_t root;
  RABBET_EXPECT_OK(
      rabbet_fraction_unary(&f.infer, RABBET_UNARY_SQRT, f.a, &root));
  assert_false(rabbet_fraction_exists(root));
  end(&f);
}

static double reference(int64_t op, double a, double b) {
  switch (op) {
    case RABBET_ELEMENTWISE_SUM:
      return a + b;
    case RABBET_ELEMENTWISE_SUB:
      return a - b;
    case RABBET_ELEMENTWISE_PROD:
      return a * b;
    case RABBET_ELEMENTWISE_DIV:
      return a / b;
    case RABBET_ELEMENTWISE_FLOOR_DIV:
      return floor(a / b);
    case RABBET_ELEMENTWISE_MAX:
      return a > b ? a : b;
    case RABBET_ELEMENTWISE_MIN:
      return a < b ? a : b;
    case RABBET_ELEMENTWISE_EQUAL:
      return a == b;
    case RABBET_ELEMENTWISE_GREATER:
      return a > b;
    default:
      return a < b;
  }
}

static void functions_of_two(void** state) {
  (void)state;
  static const int64_t ops[] = {
      RABBET_ELEMENTWISE_SUM,   RABBET_ELEMENTWISE_SUB,
      RABBET_ELEMENTWISE_PROD,  RABBET_ELEMENTWISE_DIV,
      RABBET_ELEMENTWISE_MAX,   RABBET_ELEMENTWISE_MIN,
      RABBET_ELEMENTWISE_EQUAL, RABBET_ELEMENTWISE_GREATER,
      RABBET_ELEMENTWISE_LESS,  RABBET_ELEMENTWISE_FLOOR_DIV};
  for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); ++i) {
    fixture_t f;
    rabbet_fraction_t y;
    begin(&f);
    RABBET_EXPECT_OK(rabbet_fraction_binary(&f.infer, ops[i], f.a, f.b, &y));
    assert_true(rabbet_fraction_exists(y));
    for (int64_t n = 0; n < 8; ++n) {
      for (int64_t m = 0; m < 8; ++m) {
        double a = (3 * (double)n - 7) / 4, b = ((double)m + 1) / 6;
        assert_true(fabs(value_of(&f, y, n, m) - reference(ops[i], a, b)) <
                    1e-12);
      }
    }
    end(&f);
  }
}

// A divisor that may be negative, or is 0, gives no fraction: FLOAT has
// infinities.
static void divisors(void** state) {
  (void)state;
  fixture_t f;
  rabbet_fraction_t y, two = {0};
  begin(&f);
  RABBET_EXPECT_OK(
      rabbet_fraction_binary(&f.infer, RABBET_ELEMENTWISE_DIV, f.b, f.a, &y));
  assert_false(rabbet_fraction_exists(y));
  RABBET_EXPECT_OK(rabbet_expr_constant(f.graph, -2, &two.top));
  RABBET_EXPECT_OK(rabbet_expr_constant(f.graph, 1, &two.bottom));
  RABBET_EXPECT_OK(
      rabbet_fraction_binary(&f.infer, RABBET_ELEMENTWISE_DIV, f.a, two, &y));
  assert_true(value_of(&f, y, 5, 0) == -1);
  // n * (m / n) is m.
  rabbet_fraction_t n = {linear(&f, 0, 1, 0), two.bottom};
  rabbet_fraction_t m = {linear(&f, 1, 1, 0), two.bottom};
  RABBET_EXPECT_OK(
      rabbet_fraction_binary(&f.infer, RABBET_ELEMENTWISE_DIV, m, n, &y));
  RABBET_EXPECT_OK(
      rabbet_fraction_binary(&f.infer, RABBET_ELEMENTWISE_PROD, n, y, &y));
  RABBET_EXPECT_OK(rabbet_fraction_unary(&f.infer, RABBET_UNARY_FLOOR, y, &y));
  assert_int_equal(y.top, m.top);
  end(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(constants), cmocka_unit_test(functions_of_one),
      cmocka_unit_test(functions_of_two), cmocka_unit_test(divisors)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
