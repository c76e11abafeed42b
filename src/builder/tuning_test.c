// Timing caches, progress, errors, reports.
#include "build_check.h"
#include "test_plugins.h"

static rabbet_tensor_t* conv(net_t* net, const char* name, rabbet_tensor_t* x) {
  return net_add(net, name,
                 (net_layer_t){.op = "convolution",
                               .inputs = {x, WEIGHTS(net, 4, 4, 1, 1)},
                               .input_count = 2});
}

static net_t sample(void) {
  net_t net = net_begin(0, rabbet_allocator_system());
  rabbet_tensor_t* x =
      net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(1, 4, 6, 6));
  rabbet_tensor_t* a = net_activation(&net, "r1", "RELU", conv(&net, "c1", x));
  rabbet_tensor_t* b = net_binary(&net, "sum", "SUM", conv(&net, "c2", a), a);
  net_output(&net, net_activation(&net, "r2", "RELU", b), "y");
  return net;
}

static rabbet_status_t build_with(rabbet_network_t* network,
                                  rabbet_builder_config_t* config,
                                  built_t* out) {
  *out = (built_t){0};
  return rabbet_build_plan(network, config, rabbet_allocator_system(),
                           &out->plan, &out->size, &out->report);
}

static rabbet_timing_cache_t* cache_of(const void* data, size_t size) {
  rabbet_timing_cache_t* cache = NULL;
  RABBET_EXPECT_OK(rabbet_timing_cache_create(
      data, size, rabbet_allocator_system(), &cache));
  return cache;
}

// A second build, with the cache read back from its file, measures nothing and
// gives the same bytes; so does a third with new networks of the same layers.
static void second_build_measures_nothing(void** state) {
  (void)state;
  for (int level = 1; level <= 5; ++level) {
    net_t net = sample();
    rabbet_builder_config_t* config = check_config(level);
    RABBET_EXPECT_OK(rabbet_builder_config_set(
        config, RABBET_BUILDER_OPTION_PROFILING_VERBOSITY,
        RABBET_PROFILING_DETAILED));
    rabbet_timing_cache_t* cache = cache_of(NULL, 0);
    rabbet_builder_config_set_timing_cache(config, cache);
    built_t first = check_build_until_sure(net.network, config), second;
    assert_true(rabbet_timing_cache_count(cache) > 0);
    void* data = NULL;
    size_t size = 0;
    RABBET_EXPECT_OK(rabbet_timing_cache_serialize(
        cache, rabbet_allocator_system(), &data, &size));
    rabbet_timing_cache_t* again = cache_of(data, size);
    rabbet_builder_config_set_timing_cache(config, again);
    RABBET_EXPECT_OK(rabbet_builder_config_set(
        config, RABBET_BUILDER_OPTION_ERROR_ON_TIMING_CACHE_MISS, 1));
    net_t copy = sample();
    RABBET_EXPECT_OK(build_with(copy.network, config, &second));
    assert_non_null(
        strstr(rabbet_build_report_text(second.report), "; 0 measurements"));
    assert_int_equal(first.size, second.size);
    assert_memory_equal(first.plan, second.plan, first.size);
    assert_int_equal(rabbet_timing_cache_count(again),
                     rabbet_timing_cache_count(cache));
    check_built_end(&first);
    check_built_end(&second);
    rabbet_free(rabbet_allocator_system(), data);
    rabbet_timing_cache_release(cache);
    rabbet_timing_cache_release(again);
    rabbet_builder_config_release(config);
    net_end(&net);
    net_end(&copy);
  }
}

static void level_zero_is_deterministic(void** state) {
  (void)state;
  net_t net = sample();
  rabbet_builder_config_t* config = check_config(0);
  built_t first, second;
  RABBET_EXPECT_OK(build_with(net.network, config, &first));
  RABBET_EXPECT_OK(build_with(net.network, config, &second));
  assert_int_equal(first.size, second.size);
  assert_memory_equal(first.plan, second.plan, first.size);
  check_built_end(&first);
  check_built_end(&second);
  rabbet_builder_config_release(config);
  net_end(&net);
}

static void cache_miss(void** state) {
  (void)state;
  net_t net = sample();
  rabbet_builder_config_t* config = check_config(3);
  RABBET_EXPECT_OK(rabbet_builder_config_set(
      config, RABBET_BUILDER_OPTION_ERROR_ON_TIMING_CACHE_MISS, 1));
  built_t out;
  RABBET_EXPECT_ERROR(build_with(net.network, config, &out),
                      RABBET_STATUS_NOT_FOUND, "timing cache knows no time");
  assert_null(out.plan);
  rabbet_builder_config_release(config);
  net_end(&net);
}

// A plugin that fails when it runs: with one way to run it the build never
// asks; where its time is wanted its failure is the build's.
static void plugin_is_run_only_if_needed(void** state) {
  (void)state;
  test_plugins_register();
  net_t net = net_begin(0, rabbet_allocator_system());
  rabbet_tensor_t* x = net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(3));
  net_output(&net, net_plugin(&net, "fail", "culprit", x), "y");
  rabbet_builder_config_t* config = check_config(5);
  built_t out;
  RABBET_EXPECT_OK(build_with(net.network, config, &out));
  check_built_end(&out);
  RABBET_EXPECT_OK(rabbet_builder_config_set(
      config, RABBET_BUILDER_OPTION_PROFILING_VERBOSITY,
      RABBET_PROFILING_DETAILED));
  RABBET_EXPECT_ERROR(build_with(net.network, config, &out),
                      RABBET_STATUS_PLUGIN, "culprit");
  rabbet_builder_config_release(config);
  net_end(&net);
  test_plugins_deregister();
}

// ---- Progress ---------------------------------------------------------------

typedef struct progress_t {
  int depth, steps, cancel_at;
  char phases[512];
} progress_t;

static void on_start(void* user_data, const char* phase, const char* parent,
                     int32_t steps) {
  progress_t* p = user_data;
  assert_true(steps >= 0);
  assert_int_equal(parent != NULL, p->depth > 0);
  p->depth++;
  strncat(p->phases, phase, sizeof(p->phases) - strlen(p->phases) - 1);
}
static bool on_step(void* user_data, const char* phase, int32_t step) {
  (void)phase, (void)step;
  progress_t* p = user_data;
  return ++p->steps != p->cancel_at;
}
static void on_end(void* user_data, const char* phase) {
  (void)phase;
  ((progress_t*)user_data)->depth--;
}

static void progress_and_cancelling(void** state) {
  (void)state;
  net_t net = sample();
  int total = 0;
  for (int cancel_at = 0; cancel_at <= total; ++cancel_at) {
    progress_t p = {.cancel_at = cancel_at ? cancel_at : -1};
    rabbet_builder_config_t* config = check_config(2);
    rabbet_builder_config_set_progress(
        config, (rabbet_progress_t){&p, on_start, on_step, on_end, NULL});
    built_t out = {0};
    rabbet_status_t status = build_with(net.network, config, &out);
    assert_int_equal(p.depth, 0);
    // Another build may need fewer steps, as its times differ.
    if (cancel_at == 0 || p.steps < cancel_at) {
      RABBET_EXPECT_OK(status);
      assert_non_null(strstr(p.phases, "Simplifying"));
      assert_non_null(strstr(p.phases, "Timing candidates"));
      if (cancel_at == 0) total = p.steps;
      assert_true(total > 5);
      check_built_end(&out);
    } else {
      RABBET_EXPECT_ERROR(status, RABBET_STATUS_CANCELLED, "cancelled");
      assert_null(out.plan);
    }
    rabbet_builder_config_release(config);
  }
  net_end(&net);
}

typedef struct asked_t {
  int steps, at_step, count, cancel_at;
} asked_t;

static bool on_asked_step(void* user_data, const char* phase, int32_t step) {
  (void)phase, (void)step;
  ((asked_t*)user_data)->steps++;
  return true;
}

static bool on_asked(void* user_data) {
  asked_t* asked = user_data;
  asked->at_step = asked->steps;
  return ++asked->count != asked->cancel_at;
}

static void measurements_are_cancelled(void** state) {
  (void)state;
  net_t net = sample();
  int total = 0, cancelled = 0;
  for (int cancel_at = 0; cancel_at <= total / 2; cancel_at += 1 + total / 16) {
    asked_t asked = {.cancel_at = cancel_at ? cancel_at : -1};
    rabbet_builder_config_t* config = check_config(3);
    rabbet_builder_config_set_progress(
        config,
        (rabbet_progress_t){&asked, NULL, on_asked_step, NULL, on_asked});
    built_t out = {0};
    rabbet_status_t status = build_with(net.network, config, &out);
    // A build beside a busy process measures again, and asks more often.
    if (cancel_at == 0 || asked.count < cancel_at) {
      RABBET_EXPECT_OK(status);
      // More often than a candidate is done, however few samples it takes.
      assert_true(2 * asked.count > 3 * asked.steps);
      if (cancel_at == 0) total = asked.count;
      check_built_end(&out);
    } else {
      cancelled++;
      RABBET_EXPECT_ERROR(status, RABBET_STATUS_CANCELLED, "cancelled");
      assert_int_equal(asked.count, cancel_at);  // not asked again
      assert_int_equal(asked.steps, asked.at_step);
      assert_null(out.plan);
    }
    rabbet_builder_config_release(config);
  }
  assert_true(cancelled > 0);
  net_end(&net);
}

// ---- Errors -----------------------------------------------------------------

static void one_of_each_is_singular(void** state) {
  (void)state;
  net_t net = net_begin(0, rabbet_allocator_system());
  rabbet_tensor_t* x = net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(2, 3));
  net_output(&net, net_activation(&net, "r", "RELU", x), "y");
  rabbet_builder_config_t* config = check_config(0);
  RABBET_EXPECT_OK(rabbet_builder_config_set_device(config, "null"));
  built_t built = check_build(net.network, config);
  const char* text = rabbet_build_report_text(built.report);
  if (!strstr(text, "\n1 layer became 1 step on null with 1 thread"))
    fail_msg("%s", text);
  check_built_end(&built);
  rabbet_builder_config_release(config);
  net_end(&net);
}

static void dynamic_inputs_need_profiles(void** state) {
  (void)state;
  net_t net = net_begin(0, rabbet_allocator_system());
  rabbet_tensor_t* x =
      net_input(&net, "pixels", RABBET_DTYPE_FLOAT, DIMS(-1, 3));
  net_output(&net, net_activation(&net, "r", "RELU", x), "y");
  rabbet_builder_config_t* config = check_config(0);
  built_t out;
  RABBET_EXPECT_ERROR(build_with(net.network, config, &out),
                      RABBET_STATUS_INVALID_ARGUMENT,
                      "input 'pixels' has dynamic dimensions");
  rabbet_profile_t* profile = NULL;
  RABBET_EXPECT_OK(rabbet_profile_create(rabbet_allocator_system(), &profile));
  RABBET_EXPECT_OK(rabbet_builder_config_add_profile(config, profile));
  RABBET_EXPECT_ERROR(build_with(net.network, config, &out),
                      RABBET_STATUS_INVALID_ARGUMENT, "a profile lacks it");
  rabbet_dims_t bad = DIMS(1, 4), low = DIMS(1, 3), high = DIMS(9, 3);
  RABBET_EXPECT_OK(
      rabbet_profile_set_shape(profile, "pixels", &bad, &bad, &bad));
  RABBET_EXPECT_ERROR(build_with(net.network, config, &out),
                      RABBET_STATUS_INVALID_ARGUMENT, "fixes it at 3");
  RABBET_EXPECT_ERROR(
      rabbet_profile_set_shape(profile, "pixels", &high, &low, &high),
      RABBET_STATUS_INVALID_ARGUMENT, "min <= opt <= max");
  RABBET_EXPECT_OK(
      rabbet_profile_set_shape(profile, "pixels", &low, &low, &high));
  RABBET_EXPECT_OK(build_with(net.network, config, &out));
  check_built_end(&out);
  rabbet_profile_release(profile);
  rabbet_builder_config_release(config);
  net_end(&net);
}

static void no_outputs(void** state) {
  (void)state;
  net_t net = net_begin(0, rabbet_allocator_system());
  net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(3));
  rabbet_builder_config_t* config = check_config(0);
  built_t out;
  RABBET_EXPECT_ERROR(build_with(net.network, config, &out),
                      RABBET_STATUS_INVALID_ARGUMENT, "no outputs");
  rabbet_builder_config_release(config);
  net_end(&net);
}

// A wish that no kernel of the device fulfils.
static void unsupported_is_named(void** state) {
  (void)state;
  net_t net = net_begin(0, rabbet_allocator_system());
  rabbet_tensor_t* x = net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(3, 2));
  rabbet_tensor_t* y = net_activation(&net, "stubborn", "RELU", x);
  rabbet_layer_t* layer = rabbet_tensor_producer(y);
  RABBET_EXPECT_OK(rabbet_layer_set_precision(layer, RABBET_DTYPE_HALF));
  net_output(&net, y, "y");
  rabbet_builder_config_t* config = check_config(0);
  RABBET_EXPECT_OK(rabbet_builder_config_set_device(config, "null"));
  built_t out;
  RABBET_EXPECT_ERROR(build_with(net.network, config, &out),
                      RABBET_STATUS_UNSUPPORTED,
                      "layer 'stubborn' (activation): device 'null'");
  RABBET_EXPECT_ERROR(build_with(net.network, config, &out),
                      RABBET_STATUS_UNSUPPORTED,
                      "reference (FLOAT LINEAR -> FLOAT LINEAR)");
  rabbet_builder_config_release(config);
  net_end(&net);
}

static void options_are_checked(void** state) {
  (void)state;
  rabbet_builder_config_t* config = check_config(0);
  RABBET_EXPECT_ERROR(rabbet_builder_config_set(
                          config, RABBET_BUILDER_OPTION_OPTIMIZATION_LEVEL, 6),
                      RABBET_STATUS_OUT_OF_RANGE,
                      "'optimization_level' must be from 0 to 5");
  RABBET_EXPECT_ERROR(
      rabbet_builder_config_set(config, (rabbet_builder_option_t)99, 0),
      RABBET_STATUS_INVALID_ARGUMENT, "option 99");
  RABBET_EXPECT_OK(rabbet_builder_config_set_device(config, "no-device!"));
  net_t net = sample();
  built_t out;
  RABBET_EXPECT_ERROR(build_with(net.network, config, &out),
                      RABBET_STATUS_INVALID_ARGUMENT, "no-device!");
  rabbet_builder_config_release(config);
  net_end(&net);
}

// ---- Several profiles, names of dimensions ----------------------------------

static void dynamic_batch(void** state) {
  (void)state;
  net_t net = net_begin(0, rabbet_allocator_system());
  rabbet_tensor_t* x =
      net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(-1, 4, 6, 6));
  rabbet_tensor_t* y = net_activation(&net, "r", "RELU", conv(&net, "c", x));
  y = net_add(&net, "flat",
              (net_layer_t){.op = "shuffle",
                            .inputs = {y},
                            .input_count = 1,
                            .attrs = {INTS_ATTR("reshape_dims", 0, -1)},
                            .attr_count = 1});
  net_output(&net, y, "y");
  rabbet_builder_config_t* config = check_config(3);
  for (int64_t p = 1; p <= 2; ++p)
    check_add_profile(config, "x", DIMS(1, 4, 6, 6), DIMS(2 * p, 4, 6, 6),
                      DIMS(4 * p, 4, 6, 6));
  built_t built = check_build(net.network, config);
  assert_int_equal(rabbet_engine_profile_count(built.engine), 2);
  for (int64_t batch = 1; batch <= 4; ++batch) {
    // The oracle wants static shapes: the same network with this batch.
    rabbet_dims_t dims = DIMS(batch, 4, 6, 6);
    RABBET_EXPECT_OK(rabbet_tensor_set_dims(x, &dims));
    oracle_t* oracle = calloc(1, sizeof(*oracle));
    oracle_run(oracle, net.network);
    check_run(&built, oracle, 1e-5);
    oracle_end(oracle);
    free(oracle);
  }
  check_built_end(&built);
  rabbet_builder_config_release(config);
  net_end(&net);
}

// ---- The report -------------------------------------------------------------

static void report_tells_what_was_done(void** state) {
  (void)state;
  net_t net = sample();
  rabbet_builder_config_t* config = check_config(0);
  RABBET_EXPECT_OK(rabbet_builder_config_set_device(config, "null"));
  built_t built = check_build(net.network, config);
  const char* text = rabbet_build_report_text(built.report);
  const char* parts[] = {"layer",
                         "types",
                         "formats",
                         "tactic",
                         "time us",
                         "c1 + r1",
                         "LINEAR -> LINEAR",
                         "reference",
                         "5 layers became 2 steps on null with 1 thread"};
  for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); ++i)
    if (!strstr(text, parts[i])) fail_msg("'%s' is not in\n%s", parts[i], text);
  const char* json = rabbet_build_report_json(built.report);
  assert_non_null(strstr(json, "\"layers\": [\"c1\", \"r1\"]"));
  check_built_end(&built);
  rabbet_builder_config_release(config);
  net_end(&net);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(second_build_measures_nothing),
      cmocka_unit_test(level_zero_is_deterministic),
      cmocka_unit_test(cache_miss),
      cmocka_unit_test(plugin_is_run_only_if_needed),
      cmocka_unit_test(progress_and_cancelling),
      cmocka_unit_test(measurements_are_cancelled),
      cmocka_unit_test(one_of_each_is_singular),
      cmocka_unit_test(dynamic_inputs_need_profiles),
      cmocka_unit_test(no_outputs),
      cmocka_unit_test(unsupported_is_named),
      cmocka_unit_test(options_are_checked),
      cmocka_unit_test(dynamic_batch),
      cmocka_unit_test(report_tells_what_was_done),
  };
  return cmocka_run_group_tests_name("tuning", tests, NULL, NULL);
}
