// Random expressions: the simplified one must have the value of the original,
// and that value must lie within the bounds. The reference keeps each
// expression as it was written and evaluates it in 128 bits.
//
// RABBET_TEST_SEED repeats a run, RABBET_TEST_ROUNDS makes it longer.
#include "check.h"
#include "core/expr.h"

#define SYMBOLS 4
#define WRITTEN 40
#define NODES 4000

__extension__ typedef __int128 wide_t;

typedef struct written_t {
  rabbet_expr_op_t op;
  int a, b;       // of the same array; the symbol's number
  int64_t value;  // CONSTANT
  rabbet_expr_t expr;
} written_t;

static uint64_t random_state, seed;

// xorshift64* (Vigna, 2016)
static uint64_t random_bits(void) {
  random_state ^= random_state >> 12;
  random_state ^= random_state << 25;
  random_state ^= random_state >> 27;
  return (random_state * 0x2545f4914f6cdd1du) >> 16;
}

static int64_t random_between(int64_t low, int64_t high) {
  return low + (int64_t)(random_bits() % (uint64_t)(high - low + 1));
}

// Mostly small, now and then at an edge.
static int64_t random_constant(void) {
  static const int64_t edges[] = {INT64_MAX, INT64_MIN, INT64_MAX - 1,
                                  INT64_MIN + 1, (int64_t)1 << 40};
  if (random_bits() % 40 == 0) return edges[random_bits() % 5];
  return random_between(-6, 12);
}

static wide_t wide_floor(wide_t a, wide_t b) {
  wide_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

// False where it has no value; intermediate values must fit as well.
static bool reference(rabbet_expr_op_t op, int64_t a, int64_t b, int64_t* out) {
  wide_t result = 0;
  switch (op) {
    case RABBET_EXPR_SUM:
      result = (wide_t)a + b;
      break;
    case RABBET_EXPR_PROD:
      result = (wide_t)a * b;
      break;
    case RABBET_EXPR_MAX:
      result = a > b ? a : b;
      break;
    case RABBET_EXPR_MIN:
      result = a < b ? a : b;
      break;
    case RABBET_EXPR_SUB:
      result = (wide_t)a - b;
      break;
    case RABBET_EXPR_BROADCAST:
      result = a == 1 ? b : a;
      if (a != b && a != 1 && b != 1) return false;
      break;
    case RABBET_EXPR_EQUAL:
      result = a == b;
      break;
    case RABBET_EXPR_LESS:
      result = a < b;
      break;
    case RABBET_EXPR_FLOOR_DIV:
      if (b == 0) return false;
      result = wide_floor(a, b);
      break;
    default:
      if (b == 0) return false;
      result = -wide_floor(-(wide_t)a, b);
      break;
  }
  *out = (int64_t)result;
  return result >= INT64_MIN && result <= INT64_MAX;
}

static void add_symbol(rabbet_expr_graph_t* graph, int i, written_t* written) {
  rabbet_symbol_t symbol = {i < 2 ? RABBET_SYMBOL_DIM : RABBET_SYMBOL_VALUE,
                            0,
                            i,
                            NULL,
                            RABBET_EXPR_NONE,
                            RABBET_EXPR_NONE};
  *written = (written_t){.op = RABBET_EXPR_SYMBOL, .a = i};
  RABBET_EXPECT_OK(rabbet_expr_of_symbol(graph, &symbol, &written->expr));
}

// False where the graph says at once that the result has no value.
static bool add_operation(rabbet_expr_graph_t* graph, int count,
                          written_t* all) {
  written_t* written = &all[count];
  if (random_bits() % 4 == 0) {
    *written = (written_t){RABBET_EXPR_CONSTANT, 0, 0, random_constant(), 0};
    RABBET_EXPECT_OK(
        rabbet_expr_constant(graph, written->value, &written->expr));
    return true;
  }
  int op = (int)(random_bits() % 10);
  *written =
      (written_t){.op = op == 9 ? RABBET_EXPR_BROADCAST : (rabbet_expr_op_t)op,
                  .a = (int)(random_bits() % (uint64_t)count),
                  .b = (int)(random_bits() % (uint64_t)count)};
  rabbet_expr_t a = all[written->a].expr, b = all[written->b].expr;
  rabbet_status_t status =
      rabbet_expr_binary(graph, written->op, a, b, &written->expr);
  if (rabbet_is_ok(status)) return true;
  rabbet_status_free(status);
  int64_t x, y, value;
  bool division = written->op == RABBET_EXPR_FLOOR_DIV ||
                  written->op == RABBET_EXPR_CEIL_DIV;
  assert_true(rabbet_expr_is_constant(graph, b, &y));
  if (rabbet_expr_is_constant(graph, a, &x)) {
    assert_false(reference(written->op, x, y, &value));
  } else {
    assert_true(division && y == 0);
  }
  return false;
}

static bool near_edge(int64_t value) {
  return value > INT64_MAX / 4096 || value < INT64_MIN / 4096;
}

static void check_assignment(const rabbet_expr_graph_t* graph,
                             const written_t* all, int count,
                             const int64_t* low, const int64_t* high,
                             const int64_t* bounds_low,
                             const int64_t* bounds_high) {
  int64_t symbols[SYMBOLS], expected[WRITTEN], values[NODES];
  bool known[WRITTEN], edge[WRITTEN], valid[NODES];
  for (int i = 0; i < SYMBOLS; ++i)
    symbols[i] = random_between(low[i], high[i]);
  RABBET_EXPECT_OK(rabbet_expr_evaluate(graph, symbols, values, valid));
  for (int i = 0; i < count; ++i) {
    const written_t* written = &all[i];
    known[i] = true;
    edge[i] = false;
    if (written->op == RABBET_EXPR_SYMBOL) {
      expected[i] = symbols[written->a];
    } else if (written->op == RABBET_EXPR_CONSTANT) {
      expected[i] = written->value;
    } else {
      known[i] = known[written->a] && known[written->b] &&
                 reference(written->op, expected[written->a],
                           expected[written->b], &expected[i]);
      edge[i] = edge[written->a] || edge[written->b];
    }
    if (!known[i]) continue;
    edge[i] |= near_edge(expected[i]);
    rabbet_expr_t expr = written->expr;
    // Near the edge of 64 bits a sum in another order may overflow.
    if (!valid[expr] && edge[i]) continue;
    if (!valid[expr] || values[expr] != expected[i] ||
        bounds_low[expr] > expected[i] || bounds_high[expr] < expected[i]) {
      char* text = NULL;
      RABBET_EXPECT_OK(
          rabbet_expr_print(graph, expr, rabbet_allocator_system(), &text));
      fail_msg(
          "seed %llu, expression %d, operation %d: expected %lld; %s is "
          "%s%lld, within %lld..%lld; symbols %lld %lld %lld %lld",
          (unsigned long long)seed, i, (int)written->op, (long long)expected[i],
          text, valid[expr] ? "" : "invalid, ", (long long)values[expr],
          (long long)bounds_low[expr], (long long)bounds_high[expr],
          (long long)symbols[0], (long long)symbols[1], (long long)symbols[2],
          (long long)symbols[3]);
    }
  }
}

static void check_graph(void) {
  rabbet_expr_graph_t* graph = NULL;
  RABBET_EXPECT_OK(rabbet_expr_graph_create(rabbet_allocator_system(), &graph));
  written_t all[WRITTEN];
  int count = 0;
  for (; count < SYMBOLS; ++count)
    add_symbol(graph, count, &all[count]);
  while (count < WRITTEN)
    count += add_operation(graph, count, all);
  size_t nodes = rabbet_expr_node_count(graph);
  assert_in_range(nodes, 1, NODES);
  for (int box = 0; box < 3; ++box) {
    int64_t low[SYMBOLS], high[SYMBOLS];
    int64_t bounds_low[NODES], bounds_high[NODES];
    for (int i = 0; i < SYMBOLS; ++i) {
      low[i] = i < 2 ? random_between(0, 3) : random_between(-9, 3);
      high[i] = low[i] + random_between(0, 20);
    }
    RABBET_EXPECT_OK(
        rabbet_expr_bounds(graph, low, high, bounds_low, bounds_high));
    for (int i = 0; i < 10; ++i)
      check_assignment(graph, all, count, low, high, bounds_low, bounds_high);
  }
  rabbet_expr_graph_destroy(graph);
}

static void test_random_graphs(void** state) {
  (void)state;
  const char* rounds = getenv("RABBET_TEST_ROUNDS");
  const char* first = getenv("RABBET_TEST_SEED");
  long count = rounds ? atol(rounds) : first ? 1 : 3000;
  seed = first ? strtoull(first, NULL, 10) : 1;
  for (long i = 0; i < count; ++i, ++seed) {
    random_state = seed * 0x9e3779b97f4a7c15u + 1;
    check_graph();
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_graphs)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
