// Plugins that work in place: nobody else may ever see it.
#include "build_check.h"
#include "test_plugins.h"

#define N 4

typedef struct run_t {
  net_t net;
  rabbet_tensor_t* x;
  double expected[4];  // of output i: x + expected[i], or see `square`
  bool square[4];      // expected[i] + x * x instead
} run_t;

static run_t run_begin(void) {
  run_t run = {.net = net_begin(0, rabbet_allocator_system())};
  run.x = net_input(&run.net, "x", RABBET_DTYPE_FLOAT, DIMS(2, 2));
  return run;
}

static void run_output(run_t* run, rabbet_tensor_t* tensor, double expected,
                       bool square) {
  size_t i = rabbet_network_output_count(run->net.network);
  char name[16];
  snprintf(name, sizeof(name), "y%zu", i);
  run->expected[i] = expected;
  run->square[i] = square;
  net_output(&run->net, tensor, name);
}

static void run_once(run_t* run, rabbet_engine_t* engine, int bound) {
  size_t outputs = rabbet_network_output_count(run->net.network);
  float x[N] = {1, -2, 3, 5}, before[N], y[4][N];
  memcpy(before, x, sizeof(x));
  rabbet_context_t* context = NULL;
  RABBET_EXPECT_OK(
      rabbet_context_create(engine, rabbet_allocator_system(), &context));
  RABBET_EXPECT_OK(rabbet_context_set_address(context, 0, x));
  for (size_t i = 0; i < outputs; ++i)
    RABBET_EXPECT_OK(
        rabbet_context_set_address(context, 1 + i, (int)i == bound ? x : y[i]));
  for (int twice = 0; twice < 2; ++twice) {
    memcpy(x, before, sizeof(x));
    memset(y, 0xee, sizeof(y));
    RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
    for (size_t i = 0; i < outputs; ++i)
      for (int k = 0; k < N; ++k) {
        float base = run->square[i] ? before[k] * before[k] : before[k];
        float found = (int)i == bound ? x[k] : y[i][k];
        if (found != base + (float)run->expected[i])
          fail_msg("output %zu element %d: %g instead of %g", i, k, found,
                   base + run->expected[i]);
      }
    if (bound < 0) assert_memory_equal(x, before, sizeof(x));
  }
  rabbet_context_destroy(context);
}

// Builds, runs with addresses of their own and, where an output may share that
// of the input, with one address. `aliased`: the output that may, or -1.
static size_t run_check(run_t* run, int level, int aliased) {
  rabbet_builder_config_t* config = check_config(level);
  built_t built = check_build(run->net.network, config);
  size_t outputs = rabbet_network_output_count(run->net.network);
  for (size_t i = 0; i < outputs; ++i)
    assert_int_equal(rabbet_engine_io(built.engine, 1 + i)->aliased_input,
                     (int)i == aliased ? 0 : -1);
  run_once(run, built.engine, -1);
  if (aliased >= 0) run_once(run, built.engine, aliased);
  size_t steps = rabbet_engine_layer_count(built.engine);
  check_built_end(&built);
  rabbet_builder_config_release(config);
  return steps;
}

static void run_end(run_t* run, int aliased, size_t steps) {
  for (int level = 0; level <= 5; ++level) {
    size_t found = run_check(run, level, aliased);
    if (level == 0) assert_int_equal(found, steps);
  }
  net_end(&run->net);
}

static void input_to_output(void** state) {
  (void)state;
  run_t run = run_begin();
  run_output(&run, net_plugin(&run.net, "bump", "a", run.x), 1, false);
  run_end(&run, 0, 2);
}

static void chained(void** state) {
  (void)state;
  run_t run = run_begin();
  run_output(&run,
             net_plugin(&run.net, "bump", "c",
                        net_plugin(&run.net, "bump", "b",
                                   net_plugin(&run.net, "bump", "a", run.x))),
             3, false);
  run_end(&run, 0, 4);
}

// Other readers of the input come first.
static void other_reader_first(void** state) {
  (void)state;
  run_t run = run_begin();
  run_output(&run, net_plugin(&run.net, "bump", "a", run.x), 1, false);
  run_output(&run, net_binary(&run.net, "sq", "PROD", run.x, run.x), 0, true);
  run_end(&run, 0, 3);
}

// A reader that needs the result too cannot come first: x * x + 1 is made of
// (x + 1) * x - x + 1.
static void other_reader_after(void** state) {
  (void)state;
  run_t run = run_begin();
  rabbet_tensor_t* y = net_plugin(&run.net, "bump", "a", run.x);
  run_output(&run, y, 1, false);
  rabbet_tensor_t* product = net_binary(&run.net, "p", "PROD", y, run.x);
  rabbet_tensor_t* less = net_binary(&run.net, "m", "SUB", product, run.x);
  run_output(&run, less, 0, true);
  // A copy for others, one into the output, the plugin, and one fused step.
  run_end(&run, 0, 4);
}

static void twice_from_one(void** state) {
  (void)state;
  run_t run = run_begin();
  run_output(&run, net_plugin(&run.net, "bump", "a", run.x), 1, false);
  run_output(&run, net_plugin(&run.net, "bump", "b", run.x), 1, false);
  run_end(&run, 0, 4);
}

static void constant(void** state) {
  (void)state;
  run_t run = run_begin();
  double zeros[N] = {0};
  rabbet_tensor_t* w =
      net_weights(&run.net, RABBET_DTYPE_FLOAT, DIMS(2, 2), zeros);
  rabbet_tensor_t* one = net_plugin(&run.net, "bump", "a", w);
  run_output(&run, net_binary(&run.net, "sum", "SUM", run.x, one), 1, false);
  run_output(&run, net_binary(&run.net, "sum2", "SUM", run.x, w), 0, false);
  run_end(&run, -1, 4);
}

static void intermediate(void** state) {
  (void)state;
  run_t run = run_begin();
  rabbet_tensor_t* t = net_binary(&run.net, "t", "PROD", run.x, run.x);
  rabbet_tensor_t* u = net_plugin(&run.net, "bump", "a", t);
  run_output(&run, net_plugin(&run.net, "bump", "b", u), 2, true);
  // Reads t; can and must come before "a".
  run_output(&run,
             net_binary(&run.net, "twice", "SUB",
                        net_binary(&run.net, "tt", "SUM", t, t), t),
             0, true);
  run_end(&run, -1, 4);
}

// An intermediate tensor that is an output itself stays as it is.
static void output_worked_on(void** state) {
  (void)state;
  run_t run = run_begin();
  rabbet_tensor_t* t = net_binary(&run.net, "t", "PROD", run.x, run.x);
  run_output(&run, t, 0, true);
  rabbet_tensor_t* u = net_plugin(&run.net, "bump", "a", t);
  run_output(&run, u, 1, true);
  run_output(&run, net_plugin(&run.net, "bump", "b", u), 2, true);
  run_end(&run, -1, 5);
}

static rabbet_tensor_t* reshape(net_t* net, const char* name,
                                rabbet_tensor_t* x, int64_t rows) {
  return net_add(
      net, name,
      (net_layer_t){.op = "shuffle",
                    .inputs = {x},
                    .input_count = 1,
                    .attrs = {INTS_ATTR("reshape_dims", rows, N / rows)},
                    .attr_count = 1});
}

static void through_views(void** state) {
  (void)state;
  run_t run = run_begin();
  rabbet_tensor_t* flat = reshape(&run.net, "flat", run.x, 1);
  rabbet_tensor_t* y = net_plugin(&run.net, "bump", "a", flat);
  run_output(&run, reshape(&run.net, "back", y, 2), 1, false);
  // The other view of x is read, needing y as well.
  rabbet_tensor_t* tall = reshape(&run.net, "tall", run.x, 4);
  rabbet_tensor_t* y_tall = reshape(&run.net, "y_tall", y, 4);
  rabbet_tensor_t* product = net_binary(&run.net, "p", "PROD", y_tall, tall);
  run_output(&run, net_binary(&run.net, "m", "SUB", product, tall), 0, true);
  run_end(&run, 0, 4);
}

// Sizes that only a run tells: the plan is timed and run with room for the
// largest.
static void data_dependent(void** state) {
  (void)state;
  for (int level = 0; level <= 5; ++level) {
    net_t net = net_begin(0, rabbet_allocator_system());
    rabbet_tensor_t* x = net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(5));
    rabbet_layer_t* layer = NULL;
    RABBET_EXPECT_OK(rabbet_network_add_plugin(net.network, "compact", "1",
                                               "test", "compact", &x, 1, NULL,
                                               0, &layer));
    net_output(&net,
               net_unary(&net, "neg", "NEG", rabbet_layer_output(layer, 0)),
               "y");
    rabbet_builder_config_t* config = check_config(level);
    built_t built = check_build(net.network, config);
    rabbet_context_t* context = NULL;
    RABBET_EXPECT_OK(rabbet_context_create(
        built.engine, rabbet_allocator_system(), &context));
    float in[5] = {1, 0, 2, 0, 3}, out[5] = {9, 9, 9, 9, 9};
    RABBET_EXPECT_OK(rabbet_context_set_address(context, 0, in));
    RABBET_EXPECT_OK(rabbet_context_set_address(context, 1, out));
    RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
    rabbet_dims_t dims;
    RABBET_EXPECT_OK(rabbet_context_shape(context, 1, &dims));
    assert_int_equal(dims.d[0], 3);
    float expected[3] = {-1, -2, -3};
    assert_memory_equal(out, expected, sizeof(expected));
    rabbet_context_destroy(context);
    check_built_end(&built);
    rabbet_builder_config_release(config);
    net_end(&net);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(input_to_output),
      cmocka_unit_test(chained),
      cmocka_unit_test(other_reader_first),
      cmocka_unit_test(other_reader_after),
      cmocka_unit_test(twice_from_one),
      cmocka_unit_test(constant),
      cmocka_unit_test(intermediate),
      cmocka_unit_test(output_worked_on),
      cmocka_unit_test(through_views),
      cmocka_unit_test(data_dependent),
  };
  return cmocka_run_group_tests_name("in_place", tests, test_plugins_setup,
                                     test_plugins_teardown);
}
