// Engines on the CUDA device: built, run, recorded into graphs, timed.
#include <pthread.h>

#include "build_check.h"
#include "cuda_stand_in/stand_in.h"
#include "device/cuda/driver/driver_api.h"
#include "device/device.h"

#define SYSTEM rabbet_allocator_system()

typedef struct engine_test_t {
  net_t net;
  oracle_t* oracle;
  built_t built;
  rabbet_context_t* context;
  void* output;
  size_t bytes;
} engine_test_t;

// Transposes and slices x[2,3,8]: two steps or more, each a kernel.
static void make_network(net_t* net) {
  *net = net_begin(0, SYSTEM);
  rabbet_tensor_t* x = net_input(net, "x", RABBET_DTYPE_FLOAT, DIMS(2, 3, 8));
  rabbet_tensor_t* turned =
      net_add(net, "turn",
              (net_layer_t){.op = "shuffle",
                            .inputs = {x},
                            .input_count = 1,
                            .attrs = {INTS_ATTR("first_transpose", 2, 0, 1)},
                            .attr_count = 1});
  rabbet_tensor_t* part =
      net_add(net, "cut",
              (net_layer_t){.op = "slice",
                            .inputs = {turned},
                            .input_count = 1,
                            .attrs = {INTS_ATTR("start", 1, 0, 1),
                                      INTS_ATTR("shape", 3, 2, 2),
                                      INTS_ATTR("stride", 2, 1, 1)},
                            .attr_count = 3});
  net_output(
      net,
      net_add(net, "back",
              (net_layer_t){.op = "shuffle",
                            .inputs = {part},
                            .input_count = 1,
                            .attrs = {INTS_ATTR("first_transpose", 1, 2, 0)},
                            .attr_count = 1}),
      "y");
}

static void begin_at(engine_test_t* test, int level) {
  memset(test, 0, sizeof(*test));
  make_network(&test->net);
  test->oracle = calloc(1, sizeof(*test->oracle));
  oracle_run(test->oracle, test->net.network);
  rabbet_builder_config_t* config = check_config(level);
  RABBET_EXPECT_OK(rabbet_builder_config_set_device(config, "cuda"));
  test->built = check_build(test->net.network, config);
  rabbet_builder_config_release(config);
  RABBET_EXPECT_OK(
      rabbet_context_create(test->built.engine, SYSTEM, &test->context));
  const rabbet_view_t* x =
      &test->oracle->views[test->net.network->inputs.data[0]->id];
  RABBET_EXPECT_OK(rabbet_context_set_host_address(test->context, 0, x->data));
  RABBET_EXPECT_OK(rabbet_context_bytes(test->context, 1, &test->bytes));
  test->output = aligned_alloc(64, (test->bytes + 64) / 64 * 64);
  RABBET_EXPECT_OK(
      rabbet_context_set_host_address(test->context, 1, test->output));
}

static void begin(engine_test_t* test) {
  begin_at(test, 0);
}

static void end(engine_test_t* test) {
  rabbet_context_destroy(test->context);
  free(test->output);
  check_built_end(&test->built);
  oracle_end(test->oracle);
  free(test->oracle);
  net_end(&test->net);
  assert_int_equal(stand_in()->take_misuses(), 0);
  stand_in_alive_t alive = stand_in()->alive();
  assert_int_equal(alive.contexts + alive.allocations + alive.streams, 0);
  assert_int_equal(alive.events + alive.modules, 0);
  assert_int_equal(alive.graphs + alive.graph_execs + alive.pending, 0);
}

// New numbers each time.
static void run(engine_test_t* test, int number) {
  const rabbet_network_t* network = test->net.network;
  rabbet_view_t* x = &test->oracle->views[network->inputs.data[0]->id];
  oracle_fill(x, (unsigned)(number + 1));
  for (size_t i = 0; i < network->layers.count; ++i)
    oracle_layer(test->oracle, network->layers.data[i]);
  memset(test->output, 0xab, test->bytes);
  RABBET_EXPECT_OK(rabbet_context_execute(test->context, NULL));
  check_equal(&test->oracle->views[network->outputs.data[0]->id], test->output,
              0, "y");
}

static void graphs(void** state) {
  (void)state;
  engine_test_t test;
  begin(&test);
  size_t steps = rabbet_engine_layer_count(test.built.engine);
  assert_true(steps >= 2);
  rabbet_context_set_graphs(test.context, true);
  rabbet_graph_info_t info = {.struct_size = sizeof(info)};
  for (int i = 0; i < 6; ++i) {
    stand_in()->clear_log();
    run(&test, i);
    rabbet_context_graph_info(test.context, &info);
    assert_int_equal(info.graph_steps, i == 0 ? 0 : steps);
    assert_int_equal(stand_in()->calls("cuGraphLaunch"), i == 0 ? 0 : 1);
    assert_int_equal(stand_in()->calls("cuLaunchKernelEx") > 0, i < 2);
  }
  assert_int_equal(info.recordings, 1);
  assert_int_equal(info.replays, 4);
  end(&test);
}

// Addresses that change: the driver puts the new ones into the oldest graph.
static void other_addresses(void** state) {
  (void)state;
  enum { OUTPUTS = 6 };
  engine_test_t test;
  rabbet_device_t* device = NULL;
  void* outputs[OUTPUTS];
  rabbet_graph_info_t info = {.struct_size = sizeof(info)};
  begin(&test);
  RABBET_EXPECT_OK(rabbet_device_create("cuda", SYSTEM, &device));
  rabbet_context_set_graphs(test.context, true);
  stand_in()->clear_log();
  for (int k = 0; k < OUTPUTS; ++k) {
    RABBET_EXPECT_OK(device->vtable->allocate(device, test.bytes, &outputs[k]));
    RABBET_EXPECT_OK(rabbet_context_set_address(test.context, 1, outputs[k]));
    for (int i = 0; i < 3; ++i) {
      RABBET_EXPECT_OK(rabbet_context_execute(test.context, NULL));
      RABBET_EXPECT_OK(device->vtable->copy_to_host(
          device, test.output, outputs[k], test.bytes, NULL));
      RABBET_EXPECT_OK(device->vtable->synchronize(device, NULL));
      check_equal(&test.oracle->views[test.net.network->outputs.data[0]->id],
                  test.output, 0, "y");
      RABBET_EXPECT_OK(
          device->vtable->fill(device, outputs[k], 0xab, test.bytes, NULL));
    }
  }
  rabbet_context_graph_info(test.context, &info);
  assert_int_equal(info.recordings, OUTPUTS);
  assert_int_equal(stand_in()->calls("cuGraphInstantiateWithFlags"), 4);
  assert_int_equal(stand_in()->calls("cuGraphExecUpdate"), OUTPUTS - 4);
  for (int k = 0; k < OUTPUTS; ++k)
    device->vtable->free(device, outputs[k]);
  rabbet_device_release(device);
  end(&test);
}

// Each call of the driver fails in turn, while graphs are made and replayed.
static void failing_calls(void** state) {
  (void)state;
  static const char* const names[] = {
      "cuStreamCreate",     "cuStreamBeginCapture",
      "cuStreamEndCapture", "cuGraphInstantiateWithFlags",
      "cuGraphLaunch",      "cuGraphDestroy"};
  for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); ++k) {
    engine_test_t test;
    begin(&test);
    rabbet_context_set_graphs(test.context, true);
    stand_in()->fail_call(names[k], 0, CUDA_ERROR_OUT_OF_MEMORY);
    for (int i = 0; i < 5; ++i)
      run(&test, i);
    assert_non_null(stand_in()->failed());
    stand_in()->stop_failing();
    end(&test);
  }
}

// Whatever call fails, and however often graphs were begun: nothing is left,
// and the context works when calls do again.
static void any_failing_call(void** state) {
  (void)state;
  bool failed = true;
  for (int n = 0; failed; ++n) {
    engine_test_t test;
    begin(&test);
    rabbet_context_set_graphs(test.context, true);
    stand_in()->fail_call(NULL, n, CUDA_ERROR_OUT_OF_MEMORY);
    for (int i = 0; i < 4; ++i)
      rabbet_status_ignore(rabbet_context_execute(test.context, NULL));
    failed = stand_in()->failed() != NULL;
    stand_in()->stop_failing();
    for (int i = 0; i < 4; ++i)
      run(&test, i);
    end(&test);
    assert_true(n < 1000 && (failed || n > 20));
  }
}

typedef struct worker_t {
  const engine_test_t* test;
  int wrong;
} worker_t;

static void* work(void* given) {
  worker_t* worker = given;
  const engine_test_t* test = worker->test;
  const rabbet_network_t* network = test->net.network;
  rabbet_context_t* context = NULL;
  void* output = aligned_alloc(64, (test->bytes + 64) / 64 * 64);
  rabbet_status_t status =
      rabbet_context_create(test->built.engine, SYSTEM, &context);
  if (rabbet_is_ok(status))
    status = rabbet_context_set_host_address(
        context, 0, test->oracle->views[network->inputs.data[0]->id].data);
  if (rabbet_is_ok(status))
    status = rabbet_context_set_host_address(context, 1, output);
  if (rabbet_is_ok(status)) rabbet_context_set_graphs(context, true);
  for (int i = 0; i < 10 && rabbet_is_ok(status); ++i) {
    memset(output, 0xab, test->bytes);
    status = rabbet_context_execute(context, NULL);
    const void* expected =
        test->oracle->views[network->outputs.data[0]->id].data;
    worker->wrong += memcmp(output, expected, test->bytes) != 0;
  }
  rabbet_graph_info_t info = {.struct_size = sizeof(info)};
  if (context) rabbet_context_graph_info(context, &info);
  worker->wrong += info.replays != 8 || !rabbet_is_ok(status);
  rabbet_status_ignore(status);
  rabbet_context_destroy(context);
  free(output);
  return NULL;
}

// Contexts of several threads warm up, record and replay at the same time.
static void threads(void** state) {
  (void)state;
  enum { THREADS = 4 };
  engine_test_t test;
  pthread_t ids[THREADS];
  worker_t workers[THREADS];
  begin(&test);
  for (int i = 0; i < THREADS; ++i) {
    workers[i] = (worker_t){.test = &test};
    assert_int_equal(pthread_create(&ids[i], NULL, work, &workers[i]), 0);
  }
  for (int i = 0; i < THREADS; ++i) {
    pthread_join(ids[i], NULL);
    assert_int_equal(workers[i].wrong, 0);
  }
  end(&test);
}

// A build times graphs of calls, or calls as they are where that fails.
static void timed_from_graphs(void** state) {
  (void)state;
  static const char* const names[] = {
      NULL, "cuStreamCreate", "cuStreamBeginCapture", "cuStreamEndCapture",
      "cuGraphInstantiateWithFlags"};
  for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); ++k) {
    engine_test_t test;
    stand_in()->clear_log();
    if (names[k]) stand_in()->fail_call(names[k], 0, CUDA_ERROR_OUT_OF_MEMORY);
    begin_at(&test, 3);
    if (names[k]) assert_non_null(stand_in()->failed());
    stand_in()->stop_failing();
    assert_true(stand_in()->calls("cuGraphLaunch") > 0);
    for (int i = 0; i < 2; ++i)
      run(&test, i);
    end(&test);
  }
}

static void hear(void* user_data, const char* layer, float milliseconds) {
  (void)layer;
  assert_true(milliseconds >= 0);
  ++*(int*)user_data;
}

static void times(void** state) {
  (void)state;
  engine_test_t test;
  int heard = 0;
  begin(&test);
  RABBET_EXPECT_OK(rabbet_context_set_profiler(
      test.context, (rabbet_profiler_t){&heard, hear}));
  for (int i = 0; i < 3; ++i) {
    stand_in()->clear_log();
    run(&test, i);
    // Once there is memory: waits at the end, not after each step.
    if (i > 0) assert_int_equal(stand_in()->calls("cuStreamSynchronize"), 1);
  }
  assert_int_equal(heard, 3 * rabbet_engine_layer_count(test.built.engine));
  end(&test);
}

int main(void) {
  stand_in();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(graphs),
      cmocka_unit_test(other_addresses),
      cmocka_unit_test(failing_calls),
      cmocka_unit_test(any_failing_call),
      cmocka_unit_test(threads),
      cmocka_unit_test(times),
      cmocka_unit_test(timed_from_graphs),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
