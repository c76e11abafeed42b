// Builds on a machine that does other things meanwhile: the same choices as on
// a quiet one, and honesty where that cannot be.
#include "build_check.h"
#include "deferred_device.h"
#include "plan/plan.h"
#include "plugin_answers.h"

#define SYSTEM rabbet_allocator_system()
#define SEEDS 10
#define LAYERS 5

static deferred_machine_t machine;
static unsigned random_state;

static double chance(void) {
  return (net_random(&random_state) + 1) / 2;
}

// ---- Ways to disturb --------------------------------------------------------

static void quiet(deferred_machine_t* m, int64_t* ns) {
  (void)m, (void)ns;
}

// Another process gets the processor for some milliseconds.
static void preempted(deferred_machine_t* m, int64_t* ns) {
  if (chance() > 0.4) return;
  *ns += 1000000 + (int64_t)(chance() * 5e6);
  m->interruptions++;
}

// The processor is slower for some tens of samples, and tells it by its pace.
static int slow_for, quick_for;
static void throttled(deferred_machine_t* m, int64_t* ns) {
  if (slow_for > 0) {
    --slow_for;
    *ns += *ns / 2;
  } else if (quick_for > 0) {
    --quick_for;
  } else {
    slow_for = (int)(chance() * 40);
    quick_for = (int)(chance() * 80);
  }
  m->pace = slow_for > 0 ? 1500 : 1000;
}

// Nothing tells why a sample takes longer.
static void unexplained(deferred_machine_t* m, int64_t* ns) {
  (void)m;
  if (chance() < 0.5) *ns += (int64_t)(chance() * 0.5 * (double)*ns);
}

static void all_of_them(deferred_machine_t* m, int64_t* ns) {
  if (chance() < 0.4) preempted(m, ns);
  throttled(m, ns);
  if (chance() < 0.3) *ns += (int64_t)(chance() * 0.5 * (double)*ns);
}

static void never_quiet(deferred_machine_t* m, int64_t* ns) {
  *ns += 1000000;
  m->interruptions++;
}

// ---- A plugin whose times are known -----------------------------------------

static rabbet_status_t timed_combinations(
    void* self, const rabbet_plugin_query_t* query,
    rabbet_plugin_combination_sink_t sink) {
  (void)self, (void)query;
  static const rabbet_dtype_t types[] = {RABBET_DTYPE_FLOAT, RABBET_DTYPE_HALF};
  for (int i = 0; i < 2; ++i) {
    const rabbet_plugin_type_format_t tensors[2] = {
        {types[i], RABBET_FORMAT_LINEAR}, {types[i], RABBET_FORMAT_LINEAR}};
    RABBET_RETURN_IF_ERROR(sink.add(sink.context, tensors));
  }
  return rabbet_ok();
}

static rabbet_status_t timed_tactics(void* self,
                                     const rabbet_plugin_query_t* query,
                                     rabbet_plugin_tactic_sink_t sink) {
  (void)self, (void)query;
  for (int32_t i = 1; i <= 6; ++i)
    RABBET_RETURN_IF_ERROR(sink.add(sink.context, i));
  return rabbet_ok();
}

static rabbet_status_t timed_key(void* self, rabbet_plugin_attr_sink_t sink) {
  (void)self;
  const rabbet_attr_t key = {.name = "key",
                             .type = RABBET_ATTR_INT,
                             .data = (int64_t[]){1},
                             .count = 1};
  return sink.add(sink.context, &key);
}

// A microsecond for each element, 6% more with each tactic that is worse. HALF
// takes 8% less, and 2 us less for the two conversions, which take one each.
static rabbet_status_t timed_enqueue(void* self,
                                     const rabbet_plugin_call_t* call) {
  (void)self;
  int64_t base = 1000 * call->inputs[0].dims.d[0];
  machine.now += base + base * 6 * (call->tactic * 5 % 7) / 100;
  if (call->inputs[0].dtype == RABBET_DTYPE_HALF)
    machine.now -= 2000 + base * 8 / 100;
  return rabbet_ok();
}

static const rabbet_plugin_vtable_t timed_vtable = {
    .struct_size = sizeof(rabbet_plugin_vtable_t),
    .output_count = plugin_one_output,
    .describe = plugin_describe_like,
    .combinations = timed_combinations,
    .tactics = timed_tactics,
    .timing_key = timed_key,
    .enqueue = timed_enqueue,
};

static rabbet_status_t timed_create(void* user_data,
                                    const rabbet_plugin_create_t* args,
                                    rabbet_plugin_instance_t* out) {
  (void)user_data, (void)args;
  *out = (rabbet_plugin_instance_t){&timed_vtable, &machine};
  return rabbet_ok();
}

// ---- Builds -----------------------------------------------------------------

// Layers of different lengths, beside each other.
static net_t sample(void) {
  net_t net = net_begin(0, SYSTEM);
  for (int i = 0; i < LAYERS; ++i) {
    char name[16];
    snprintf(name, sizeof(name), "x%d", i);
    rabbet_tensor_t* x =
        net_input(&net, name, RABBET_DTYPE_FLOAT, DIMS(20 + 30 * i));
    snprintf(name, sizeof(name), "layer%d", i);
    x = net_plugin(&net, "timed", name, x);
    snprintf(name, sizeof(name), "y%d", i);
    net_output(&net, x, name);
  }
  return net;
}

typedef struct outcome_t {
  int32_t tactics[LAYERS];
  rabbet_dtype_t dtypes[LAYERS];
  size_t cached;
  bool said_busy;
} outcome_t;

static void outcome_read(const void* data, size_t size, outcome_t* out) {
  rabbet_plan_t* plan = NULL;
  int found = 0;
  RABBET_EXPECT_OK(rabbet_plan_read(data, size, NULL, SYSTEM, &plan));
  for (size_t s = 0; s < plan->sequences[0].step_count; ++s) {
    const rabbet_plan_step_t* step = &plan->sequences[0].steps[s];
    int layer = -1;
    if (sscanf(step->name, "layer%d", &layer) != 1) continue;
    out->tactics[layer] = step->tactic;
    out->dtypes[layer] = plan->sequences[0].values[step->values[0]].dtype;
    ++found;
  }
  assert_int_equal(found, LAYERS);
  rabbet_plan_destroy(plan);
}

static outcome_t build_cached(void (*disturb)(deferred_machine_t*, int64_t*),
                              int seed, rabbet_timing_cache_t* cache) {
  net_t net = sample();
  rabbet_builder_config_t* config = check_config(3);
  rabbet_build_report_t* report = NULL;
  void* plan = NULL;
  size_t size = 0;
  RABBET_EXPECT_OK(rabbet_builder_config_set_device(config, "defer"));
  RABBET_EXPECT_OK(rabbet_builder_config_set(
      config, RABBET_BUILDER_OPTION_FLAGS, 1 << RABBET_BUILDER_FP16));
  rabbet_builder_config_set_timing_cache(config, cache);
  machine = (deferred_machine_t){.pace = 1000, .disturb = disturb};
  random_state = (unsigned)seed * 7919 + 1;
  slow_for = quick_for = 0;
  deferred_set_machine(&machine);
  RABBET_EXPECT_OK(
      rabbet_build_plan(net.network, config, SYSTEM, &plan, &size, &report));
  deferred_set_machine(NULL);
  outcome_t outcome = {0};
  outcome_read(plan, size, &outcome);
  outcome.cached = rabbet_timing_cache_count(cache);
  outcome.said_busy =
      strstr(rabbet_build_report_text(report), "the machine was busy") != NULL;
  rabbet_build_report_destroy(report);
  rabbet_free_aligned(SYSTEM, plan, RABBET_PLAN_ALIGNMENT);
  rabbet_builder_config_release(config);
  net_end(&net);
  return outcome;
}

static outcome_t build(void (*disturb)(deferred_machine_t*, int64_t*),
                       int seed) {
  rabbet_timing_cache_t* cache = NULL;
  RABBET_EXPECT_OK(rabbet_timing_cache_create(NULL, 0, SYSTEM, &cache));
  outcome_t outcome = build_cached(disturb, seed, cache);
  rabbet_timing_cache_release(cache);
  return outcome;
}

// ---- Tests ------------------------------------------------------------------

static void same_choices(void** state) {
  (void)state;
  static const struct {
    const char* name;
    void (*disturb)(deferred_machine_t*, int64_t*);
  } ways[] = {{"preempted", preempted},
              {"throttled", throttled},
              {"unexplained", unexplained},
              {"all of them", all_of_them}};
  outcome_t wanted = build(quiet, 0);
  assert_false(wanted.said_busy);
  for (int i = 0; i < LAYERS; ++i) {
    assert_int_equal(wanted.tactics[i], 3);
    assert_int_equal(wanted.dtypes[i], RABBET_DTYPE_HALF);
  }
  for (size_t w = 0; w < sizeof(ways) / sizeof(ways[0]); ++w)
    for (int seed = 0; seed < SEEDS; ++seed) {
      outcome_t found = build(ways[w].disturb, seed);
      for (int i = 0; i < LAYERS; ++i)
        if (found.tactics[i] != wanted.tactics[i] ||
            found.dtypes[i] != wanted.dtypes[i])
          fail_msg("%s, seed %d: layer %d took tactic %d with %s%s",
                   ways[w].name, seed, i, found.tactics[i],
                   rabbet_dtype_name(found.dtypes[i]),
                   found.said_busy ? ", and the report says why" : "");
    }
}

// The report tells of times that could not be measured. The builds that follow
// measure them again, until three have.
static void never_quiet_is_told(void** state) {
  (void)state;
  rabbet_timing_cache_t* cache = NULL;
  RABBET_EXPECT_OK(rabbet_timing_cache_create(NULL, 0, SYSTEM, &cache));
  for (int i = 0; i < 5; ++i)
    assert_true(build_cached(never_quiet, 0, cache).said_busy == (i < 3));
  rabbet_timing_cache_release(cache);
  assert_true(build(quiet, 0).cached > LAYERS * 12);
}

static int setup(void** state) {
  (void)state;
  setenv("RABBET_LIBRARY_PATH", RABBET_DEFERRED_FOLDER, 1);
  const rabbet_plugin_creator_t creator = {.struct_size = sizeof(creator),
                                           .name = "timed",
                                           .plugin_namespace = "test",
                                           .create = timed_create,
                                           .input_count = 1};
  RABBET_EXPECT_OK(rabbet_plugin_register(&creator));
  return 0;
}

static int teardown(void** state) {
  (void)state;
  RABBET_EXPECT_OK(rabbet_plugin_deregister("timed", "1", "test"));
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(same_choices),
      cmocka_unit_test(never_quiet_is_told),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
