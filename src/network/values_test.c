// Random shape arithmetic, twice: with symbolic dimensions, where the value
// rules make expressions, and with known ones, where reference kernels compute.
// The evaluated expressions must equal the kernels' results.
#include "check.h"
#include "core/view.h"
#include "network/network.h"
#include "ops/op.h"

#define NETWORKS 400
#define LAYERS 14
#define RANK 4

// xorshift64*: the same sequence everywhere.
static uint64_t random_state;

static uint32_t random_below(uint32_t bound) {
  random_state ^= random_state >> 12;
  random_state ^= random_state << 25;
  random_state ^= random_state >> 27;
  return (uint32_t)((random_state * UINT64_C(0x2545F4914F6CDD1D)) >> 32) %
         bound;
}

// The tensors of one network under construction; all vectors of one length but
// for `scalars`.
typedef struct maker_t {
  rabbet_network_t* network;
  rabbet_tensor_t* vectors[LAYERS * 3 + 4];
  size_t count;
  rabbet_tensor_t* conditions[LAYERS + 1];
  size_t condition_count;
} maker_t;

static rabbet_attr_t int_attr(const char* name, const int64_t* value) {
  return (rabbet_attr_t){
      .name = name, .type = RABBET_ATTR_INT, .data = value, .count = 1};
}

static rabbet_tensor_t* add(maker_t* m, const char* op,
                            rabbet_tensor_t* const* inputs, size_t count,
                            const rabbet_attr_t* attrs, size_t attr_count) {
  rabbet_layer_t* layer = NULL;
  RABBET_EXPECT_OK(rabbet_network_add_layer(m->network, op, NULL, inputs, count,
                                            attrs, attr_count, &layer));
  return rabbet_layer_output(layer, 0);
}

static rabbet_tensor_t* pick(maker_t* m) {
  return m->vectors[random_below((uint32_t)m->count)];
}

static rabbet_tensor_t* constant(maker_t* m, int64_t low, uint32_t span) {
  int64_t values[RANK];
  for (int i = 0; i < RANK; ++i) {
    values[i] = low + random_below(span);
  }
  const rabbet_attr_t attr = {.name = "weights",
                              .type = RABBET_ATTR_TENSOR,
                              .data = values,
                              .count = RANK,
                              .dtype = RABBET_DTYPE_INT64,
                              .dims = {.rank = 1, .d = {RANK}}};
  return add(m, "constant", NULL, 0, &attr, 1);
}

static void add_elementwise(maker_t* m) {
  static const int64_t ops[] = {0, 2, 3, 4, 5, 7, 1};
  int64_t op = ops[random_below(7)];
  rabbet_tensor_t* inputs[] = {pick(m), pick(m)};
  // Products stay small, divisors positive.
  if (op == 1 || op == 5 || op == 7) inputs[1] = constant(m, 1, 3);
  const rabbet_attr_t attr = int_attr("op", &op);
  m->vectors[m->count++] = add(m, "elementwise", inputs, 2, &attr, 1);
}

static void add_comparison(maker_t* m) {
  int64_t op = 11 + random_below(3), to_bool = RABBET_DTYPE_BOOL;
  rabbet_tensor_t* inputs[] = {pick(m), pick(m)};
  rabbet_attr_t attr = int_attr("op", &op);
  rabbet_tensor_t* condition = add(m, "elementwise", inputs, 2, &attr, 1);
  if (random_below(3) == 0) {
    attr = int_attr("to_type", &to_bool);
    condition = add(m, "cast", inputs, 1, &attr, 1);
  }
  if (m->condition_count > 0 && random_below(2)) {
    rabbet_tensor_t* both[] = {
        condition, m->conditions[random_below((uint32_t)m->condition_count)]};
    int64_t logic = 8 + random_below(3), negate = 20;
    attr = int_attr("op", &logic);
    condition = add(m, "elementwise", both, 2, &attr, 1);
    attr = int_attr("op", &negate);
    condition = add(m, "unary", &condition, 1, &attr, 1);
  }
  m->conditions[m->condition_count++] = condition;
}

static void add_select(maker_t* m) {
  if (m->condition_count == 0) {
    add_comparison(m);
    return;
  }
  rabbet_tensor_t* inputs[] = {
      m->conditions[random_below((uint32_t)m->condition_count)], pick(m),
      pick(m)};
  m->vectors[m->count++] = add(m, "select", inputs, 3, NULL, 0);
}

static void add_unary(maker_t* m) {
  static const int64_t ops[] = {4, 5, 21};
  int64_t op = ops[random_below(3)];
  rabbet_tensor_t* x = pick(m);
  const rabbet_attr_t attr = int_attr("op", &op);
  m->vectors[m->count++] = add(m, "unary", &x, 1, &attr, 1);
}

// A reduction, and its result spread over the vector again by broadcasting.
static void add_reduce(maker_t* m) {
  int64_t op = random_below(4) == 0 ? 2 + random_below(2) : 0;
  int64_t axes = 1, keep = 1, sum = 0;
  rabbet_tensor_t* x = pick(m);
  const rabbet_attr_t attrs[] = {int_attr("op", &op), int_attr("axes", &axes),
                                 int_attr("keep_dims", &keep)};
  rabbet_tensor_t* inputs[] = {add(m, "reduce", &x, 1, attrs, 3), pick(m)};
  const rabbet_attr_t attr = int_attr("op", &sum);
  m->vectors[m->count++] = add(m, "elementwise", inputs, 2, &attr, 1);
}

static void add_gather(maker_t* m) {
  rabbet_tensor_t* inputs[] = {pick(m), constant(m, -RANK - 1, 2 * RANK + 2)};
  m->vectors[m->count++] = add(m, "gather", inputs, 2, NULL, 0);
}

static void add_slice(maker_t* m) {
  const int64_t start[] = {(int64_t)random_below(13) - 6}, shape[] = {RANK};
  const int64_t stride[] = {(int64_t)random_below(5) - 2};
  int64_t mode = 1 + random_below(4);
  rabbet_tensor_t* x = pick(m);
  rabbet_attr_t attrs[] = {
      {.name = "start", .type = RABBET_ATTR_INTS, start, .count = 1},
      {.name = "shape", .type = RABBET_ATTR_INTS, shape, .count = 1},
      {.name = "stride", .type = RABBET_ATTR_INTS, stride, .count = 1},
      int_attr("mode", &mode),
  };
  m->vectors[m->count++] = add(m, "slice", &x, 1, attrs, 4);
}

// (a, b) -> concatenated, seen as a matrix, turned, and half of it.
static void add_shuffle(maker_t* m) {
  const int64_t matrix[] = {2, RANK}, turned[] = {1, 0}, flat[] = {-1};
  const int64_t start[] = {RANK / 2}, shape[] = {RANK};
  int64_t axis = 0;
  rabbet_tensor_t* inputs[] = {pick(m), pick(m)};
  rabbet_attr_t attrs[] = {
      int_attr("axis", &axis),
      {.name = "reshape_dims", .type = RABBET_ATTR_INTS, matrix, .count = 2},
      {.name = "second_transpose",
       .type = RABBET_ATTR_INTS,
       turned,
       .count = 2},
      {.name = "reshape_dims", .type = RABBET_ATTR_INTS, flat, .count = 1},
      {.name = "start", .type = RABBET_ATTR_INTS, start, .count = 1},
      {.name = "shape", .type = RABBET_ATTR_INTS, shape, .count = 1},
  };
  rabbet_tensor_t* x = add(m, "concatenation", inputs, 2, &attrs[0], 1);
  x = add(m, "shuffle", &x, 1, &attrs[1], 2);
  x = add(m, "shuffle", &x, 1, &attrs[3], 1);
  m->vectors[m->count++] = add(m, "slice", &x, 1, &attrs[4], 2);
}

static maker_t make(uint64_t seed, const int64_t dims[RANK]) {
  static void (*const steps[])(maker_t*) = {
      add_elementwise, add_elementwise, add_comparison, add_select,  add_unary,
      add_reduce,      add_gather,      add_slice,      add_shuffle,
  };
  maker_t m = {0};
  random_state = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
  RABBET_EXPECT_OK(rabbet_network_create(RABBET_NETWORK_STRONGLY_TYPED,
                                         rabbet_allocator_system(),
                                         (rabbet_logger_t){0}, &m.network));
  rabbet_dims_t shape = {.rank = RANK};
  memcpy(shape.d, dims, RANK * sizeof(*dims));
  rabbet_tensor_t* x = NULL;
  RABBET_EXPECT_OK(
      rabbet_network_add_input(m.network, "x", RABBET_DTYPE_FLOAT, &shape, &x));
  m.vectors[m.count++] = add(&m, "shape", &x, 1, NULL, 0);
  m.vectors[m.count++] = constant(&m, -3, 8);
  for (int i = 0; i < LAYERS; ++i) {
    steps[random_below(sizeof steps / sizeof *steps)](&m);
  }
  RABBET_EXPECT_OK(rabbet_network_infer(m.network));
  return m;
}

// Evaluates the dimensions of `symbolic` at those that `known` was made with.
static void compare(const maker_t* symbolic, const maker_t* known,
                    const int64_t dims[RANK], uint64_t seed) {
  const rabbet_expr_graph_t* graph = symbolic->network->graph;
  size_t nodes = rabbet_expr_node_count(graph);
  int64_t* values = malloc(nodes * sizeof(*values));
  int64_t symbols[RANK] = {0};
  for (size_t i = 0; i < rabbet_expr_symbol_count(graph); ++i) {
    symbols[i] = dims[rabbet_expr_symbol(graph, i)->index];
  }
  bool* valid = malloc(nodes);
  RABBET_EXPECT_OK(rabbet_expr_evaluate(graph, symbols, values, valid));
  for (size_t i = 0; i < symbolic->count; ++i) {
    const rabbet_tensor_t* a = symbolic->vectors[i];
    const rabbet_tensor_t* b = known->vectors[i];
    assert_non_null(a->values);
    assert_non_null(b->constant);
    for (int k = 0; k < RANK; ++k) {
      int64_t expected = rabbet_load_int64(b->dtype, b->constant, k);
      if (valid[a->values[k]] && values[a->values[k]] == expected) continue;
      print_error(
          "seed %llu, tensor %s[%d]: expressions give %lld, kernels "
          "%lld\n",
          (unsigned long long)seed, a->name, k, (long long)values[a->values[k]],
          (long long)expected);
      fail();
    }
  }
  free(valid);
  free(values);
}

static void expressions_agree_with_kernels(void** state) {
  (void)state;
  const int64_t dynamic[RANK] = {-1, 3, -1, -1};
  for (uint64_t seed = 1; seed <= NETWORKS; ++seed) {
    maker_t symbolic = make(seed, dynamic);
    for (int trial = 0; trial < 3; ++trial) {
      const int64_t dims[RANK] = {(int64_t)(seed % 7), 3,
                                  (int64_t)(seed * (trial + 1) % 11),
                                  trial * 5};
      maker_t known = make(seed, dims);
      compare(&symbolic, &known, dims, seed);
      rabbet_network_release(known.network);
    }
    rabbet_network_release(symbolic.network);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(expressions_agree_with_kernels),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
