// Shared objects, used by several threads at once: an engine, a timing cache,
// the registry of plugins, devices and their libraries. For the thread
// sanitizer, which finds what is not guarded; results are compared with the
// oracle.
#include <pthread.h>

#include "build_check.h"
#include "rabbet/plugin.h"

#define SYSTEM rabbet_allocator_system()
enum { THREADS = 4, ROUNDS = 3 };

typedef struct shared_t {
  net_t net;
  oracle_t* oracle;
  built_t built;
  rabbet_timing_cache_t* cache;
  pthread_barrier_t start;
} shared_t;

typedef struct worker_t {
  shared_t* shared;
  int number;
} worker_t;

// y = softmax(relu(conv(x)) w), x[2, c, 6, 6].
static net_t make_network(int64_t channels) {
  net_t net = net_begin(0, SYSTEM);
  rabbet_tensor_t* x =
      net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(2, channels, 6, 6));
  rabbet_tensor_t* y =
      net_add(&net, "conv",
              (net_layer_t){.op = "convolution",
                            .inputs = {x, WEIGHTS(&net, 8, channels, 3, 3)},
                            .input_count = 2});
  y = net_activation(&net, "relu", "RELU", y);
  y = net_add(&net, "product",
              (net_layer_t){.op = "matrix_multiply",
                            .inputs = {y, WEIGHTS(&net, 1, 1, 4, 5)},
                            .input_count = 2});
  y = net_add(&net, "softmax",
              (net_layer_t){.op = "softmax",
                            .inputs = {y},
                            .input_count = 1,
                            .attrs = {INT_ATTR("axes", 8)},
                            .attr_count = 1});
  net_output(&net, y, "y");
  return net;
}

static built_t build(const net_t* net, rabbet_timing_cache_t* cache,
                     int threads) {
  rabbet_builder_config_t* config = check_config(3);
  RABBET_EXPECT_OK(rabbet_builder_config_set(
      config, RABBET_BUILDER_OPTION_THREADS, threads));
  rabbet_builder_config_set_timing_cache(config, cache);
  built_t built = check_build(net->network, config);
  rabbet_builder_config_release(config);
  return built;
}

static void run(rabbet_engine_t* engine, const oracle_t* oracle) {
  const rabbet_network_t* network = oracle->network;
  const rabbet_view_t* y = &oracle->views[network->outputs.data[0]->id];
  const rabbet_view_t* x = &oracle->views[network->inputs.data[0]->id];
  float found[2 * 8 * 4 * 5];
  rabbet_context_t* context = NULL;
  RABBET_EXPECT_OK(rabbet_context_create(engine, SYSTEM, &context));
  RABBET_EXPECT_OK(rabbet_context_set_host_address(context, 0, x->data));
  RABBET_EXPECT_OK(rabbet_context_set_host_address(context, 1, found));
  for (int i = 0; i < 3; ++i) {
    memset(found, 0xab, sizeof(found));
    RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
    check_equal(y, found, 2e-3, "y");
  }
  rabbet_context_destroy(context);
}

static void build_and_run(shared_t* shared, int64_t channels, int threads) {
  net_t net = make_network(channels);
  oracle_t* oracle = calloc(1, sizeof(*oracle));
  oracle_run(oracle, net.network);
  built_t built = build(&net, shared->cache, threads);
  run(built.engine, oracle);
  check_built_end(&built);
  oracle_end(oracle);
  free(oracle);
  net_end(&net);
}

static void use_cache(rabbet_timing_cache_t* cache) {
  rabbet_timing_cache_t* own = NULL;
  void* data = NULL;
  size_t size = 0;
  RABBET_EXPECT_OK(rabbet_timing_cache_create(NULL, 0, SYSTEM, &own));
  RABBET_EXPECT_OK(rabbet_timing_cache_combine(own, cache));
  RABBET_EXPECT_OK(rabbet_timing_cache_combine(cache, own));
  RABBET_EXPECT_OK(rabbet_timing_cache_serialize(cache, SYSTEM, &data, &size));
  rabbet_free(SYSTEM, data);
  rabbet_timing_cache_release(own);
}

static rabbet_status_t create_nothing(void* user_data,
                                      const rabbet_plugin_create_t* args,
                                      rabbet_plugin_instance_t* out) {
  (void)user_data, (void)args, (void)out;
  return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED, "it makes nothing");
}

static void use_registry(int number) {
  char name[32];
  snprintf(name, sizeof(name), "of thread %d", number);
  const rabbet_plugin_creator_t creator = {.struct_size = sizeof(creator),
                                           .name = name,
                                           .plugin_namespace = "threads",
                                           .create = create_nothing};
  RABBET_EXPECT_OK(rabbet_plugin_register(&creator));
  RABBET_EXPECT_ERROR(rabbet_plugin_register(&creator),
                      RABBET_STATUS_ALREADY_EXISTS, name);
  RABBET_EXPECT_OK(rabbet_plugin_deregister(name, "1", "threads"));
}

// Threads have networks of each other's shapes, so that they time the same.
static void* work(void* given) {
  const worker_t* worker = given;
  shared_t* shared = worker->shared;
  pthread_barrier_wait(&shared->start);
  for (int i = 0; i < ROUNDS; ++i) {
    int turn = worker->number + i;
    run(shared->built.engine, shared->oracle);
    build_and_run(shared, 2 + turn % 2, 1 + turn % 2);
    use_cache(shared->cache);
    use_registry(worker->number);
  }
  return NULL;
}

static void all_at_once(void** state) {
  (void)state;
  shared_t shared = {.net = make_network(4)};
  pthread_t threads[THREADS];
  worker_t workers[THREADS];
  shared.oracle = calloc(1, sizeof(*shared.oracle));
  oracle_run(shared.oracle, shared.net.network);
  RABBET_EXPECT_OK(rabbet_timing_cache_create(NULL, 0, SYSTEM, &shared.cache));
  shared.built = build(&shared.net, shared.cache, 2);
  pthread_barrier_init(&shared.start, NULL, THREADS);
  for (int i = 0; i < THREADS; ++i) {
    workers[i] = (worker_t){&shared, i};
    assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
  }
  for (int i = 0; i < THREADS; ++i)
    pthread_join(threads[i], NULL);
  pthread_barrier_destroy(&shared.start);
  check_built_end(&shared.built);
  rabbet_timing_cache_release(shared.cache);
  oracle_end(shared.oracle);
  free(shared.oracle);
  net_end(&shared.net);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(all_at_once)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
