// Runs that are recorded into graphs: the same results as without, by counting
// what the device did.
#include "deferred_device.h"
#include "faults/fault_allocator.h"
#include "plan_samples.h"
#include "rabbet/engine.h"
#include "test_plugins.h"

#define SYSTEM rabbet_allocator_system()
#define COUNT 6
#define ROOM 64

static rabbet_device_t* device;

// ---- Plugins ----------------------------------------------------------------

// y = factor * x + addend; how it goes about it is the kind.
typedef enum kind_t {
  SAFE,      // says so, and is
  UNSAID,    // is safe but does not say so
  NEVER,     // says that it is not
  HOST,      // computes on the host
  CHANGING,  // does something else each time
  WAITING,   // waits for the device, and fails where that fails
  SILENT,    // waits for the device, and keeps still about its failing
  KEEPING,   // safe, and keeps something for each recording
  FAILING,   // cannot be recorded
  IN_PLACE,  // is safe, does not say so, and works in x's place
} kind_t;

typedef struct work_t {
  const float* x;
  float* y;
  float factor, addend;
} work_t;

static int calls, kept;

static void do_work(const void* args) {
  const work_t* work = args;
  for (int i = 0; i < COUNT; ++i)
    work->y[i] = work->factor * work->x[i] + work->addend;
}

static rabbet_status_t graph_describe(void* self, rabbet_dim_builder_t* builder,
                                      const rabbet_plugin_input_t* inputs,
                                      size_t input_count,
                                      rabbet_plugin_output_t* outputs) {
  (void)builder, (void)input_count;
  plugin_like(&inputs[0], &outputs[0]);
  if (*(const kind_t*)self == IN_PLACE) outputs[0].aliased_input = 0;
  return rabbet_ok();
}

static rabbet_status_t graph_enqueue(void* self,
                                     const rabbet_plugin_call_t* call) {
  kind_t kind = *(const kind_t*)self;
  work_t work = {call->inputs[0].data, call->outputs[0].data, 2, 1};
  ++calls;
  if (kind == CHANGING) work.addend = (float)calls;
  if (kind == HOST) {
    do_work(&work);
    return rabbet_ok();
  }
  rabbet_status_t status =
      deferred_launch(call->stream, do_work, &work, sizeof(work));
  if (kind == WAITING || kind == SILENT)
    status = rabbet_status_join(
        status, device->vtable->synchronize(device, call->stream));
  if (kind == SILENT) {
    rabbet_status_free(status);
    status = rabbet_ok();
  }
  return status;
}

static rabbet_plugin_capture_t graph_capture(void* self,
                                             const rabbet_plugin_call_t* call) {
  kind_t kind = *(const kind_t*)self;
  assert_int_equal(call->inputs[0].dims.d[0], 2);
  return kind == NEVER ? RABBET_PLUGIN_CAPTURE_NEVER
         : kind == UNSAID || kind == HOST || kind == IN_PLACE
             ? RABBET_PLUGIN_CAPTURE_TRIAL
         : kind == CHANGING ? RABBET_PLUGIN_CAPTURE_TRIAL
                            : RABBET_PLUGIN_CAPTURE_SAFE;
}

static rabbet_status_t graph_enqueue_captured(void* self,
                                              const rabbet_plugin_call_t* call,
                                              void** out_kept) {
  kind_t kind = *(const kind_t*)self;
  if (kind == KEEPING) {
    *out_kept = &kept;
    ++kept;
  }
  if (kind == FAILING)
    return RABBET_STATUS(RABBET_STATUS_PLUGIN, "not while it is recorded");
  return graph_enqueue(self, call);
}

static void graph_release_captured(void* self, void* given) {
  (void)self;
  assert_ptr_equal(given, &kept);
  --kept;
}

static const rabbet_plugin_vtable_t graph_vtable = {
    .struct_size = sizeof(rabbet_plugin_vtable_t),
    .output_count = plugin_one_output,
    .describe = graph_describe,
    .enqueue = graph_enqueue,
    .capture = graph_capture,
    .enqueue_captured = graph_enqueue_captured,
    .release_captured = graph_release_captured,
};

static rabbet_status_t graph_create(void* user_data,
                                    const rabbet_plugin_create_t* args,
                                    rabbet_plugin_instance_t* out) {
  (void)args;
  *out = (rabbet_plugin_instance_t){&graph_vtable, user_data};
  return rabbet_ok();
}

static kind_t kind_at_hand;

// relu, the plugin, relu, the plugin's result plus 1 ... : five steps.
static void sample_plugin(maker_t* m) {
  static const int64_t dims[] = {2, 3};
  static const float ones[] = {1, 1, 1, 1, 1, 1};
  rabbet_shape_t shape = maker_shape(m, 2, dims);
  int32_t x = maker_io(m, "x", true, RABBET_DTYPE_FLOAT, shape);
  int32_t w = maker_constant(m, "w", RABBET_DTYPE_FLOAT, shape, ones);
  int32_t y = maker_io(m, "y", false, RABBET_DTYPE_FLOAT, shape);
  int32_t t = maker_value(m, "t", RABBET_DTYPE_FLOAT, shape);
  int32_t u = maker_value(m, "u", RABBET_DTYPE_FLOAT, shape);
  int32_t v = maker_value(m, "v", RABBET_DTYPE_FLOAT, shape);
  int32_t s = maker_value(m, "s", RABBET_DTYPE_FLOAT, shape);
  sample_relu(m, "first", x, t);
  sample_add(m, "second", t, w, s);
  rabbet_plan_step_t* mine =
      maker_step(m, &(maker_step_t){.name = "mine",
                                    .op = RABBET_OP_PLUGIN,
                                    .kernel = "plugin",
                                    .plugin = "graph",
                                    .inputs = {s},
                                    .input_count = 1,
                                    .outputs = {u},
                                    .output_count = 1});
  static const int32_t aliased[] = {0};
  if (kind_at_hand == IN_PLACE) {
    m->values[u].alias = s;
    mine->group.nodes[0].aliased = aliased;
  }
  sample_relu(m, "fourth", u, v);
  sample_add(m, "fifth", v, w, y);
}

// The network's result.
static float expected_of(float x) {
  float sum = (x > 0 ? x : 0) + 1;
  return 2 * sum + 1 + 1;
}

// ---- Running ----------------------------------------------------------------

typedef struct heard_t {
  int count;
  char last[512];
} heard_t;

static void hear(void* user_data, rabbet_severity_t severity,
                 const char* message) {
  heard_t* heard = user_data;
  (void)severity;
  ++heard->count;
  snprintf(heard->last, sizeof(heard->last), "%s", message);
}

static heard_t heard;

static rabbet_status_t make_context(void (*sample)(maker_t* maker),
                                    rabbet_allocator_t allocator,
                                    rabbet_context_t** out_context) {
  maker_t maker;
  void* data = NULL;
  size_t size = 0;
  rabbet_engine_t* engine = NULL;
  rabbet_engine_options_t options = {
      .struct_size = sizeof(options),
      .logger = {&heard, hear, RABBET_SEVERITY_WARNING}};
  maker_begin(&maker, SYSTEM);
  sample(&maker);
  maker.plan->device = "defer";
  maker.plan->device_signature = "defer";
  maker_write(&maker, SYSTEM, &data, &size);
  maker_end(&maker);
  memset(&heard, 0, sizeof(heard));
  calls = 0;
  *out_context = NULL;
  rabbet_status_t status =
      rabbet_engine_deserialize(data, size, &options, allocator, &engine);
  rabbet_free_aligned(SYSTEM, data, RABBET_PLAN_ALIGNMENT);
  if (rabbet_is_ok(status))
    status = rabbet_context_create(engine, allocator, out_context);
  rabbet_engine_release(engine);
  if (!rabbet_is_ok(status)) return status;
  assert_false(rabbet_context_graphs(*out_context));
  rabbet_context_set_graphs(*out_context, true);
  return rabbet_ok();
}

static void* allocate(void) {
  void* memory = NULL;
  RABBET_EXPECT_OK(device->vtable->allocate(device, ROOM, &memory));
  return memory;
}

static void wait(void) {
  RABBET_EXPECT_OK(device->vtable->synchronize(device, NULL));
}

// Sets new numbers, runs, and looks at the results.
static rabbet_status_t run(rabbet_context_t* context, void* x, void* y,
                           int number, void* stream) {
  float in[COUNT], out[COUNT];
  for (int i = 0; i < COUNT; ++i)
    in[i] = (float)((i * 5 + number * 3) % 7) - 3;
  RABBET_EXPECT_OK(
      device->vtable->copy_to_device(device, x, in, sizeof(in), stream));
  RABBET_EXPECT_OK(device->vtable->fill(device, y, 0xee, sizeof(out), stream));
  RABBET_EXPECT_OK(rabbet_context_set_address(context, 0, x));
  RABBET_EXPECT_OK(rabbet_context_set_address(context, 1, y));
  rabbet_status_t status = rabbet_context_execute(context, stream);
  wait();
  if (!rabbet_is_ok(status)) return status;
  RABBET_EXPECT_OK(
      device->vtable->copy_to_host(device, out, y, sizeof(out), stream));
  wait();
  for (int i = 0; i < COUNT; ++i)
    assert_float_equal(out[i], expected_of(in[i]), 0);
  return rabbet_ok();
}

static rabbet_graph_info_t info(const rabbet_context_t* context) {
  rabbet_graph_info_t found = {.struct_size = sizeof(found)};
  rabbet_context_graph_info(context, &found);
  return found;
}

// Whatever was recorded is gone.
static void expect_clean(void) {
  assert_int_equal(deferred_counts()->graphs, 0);
  assert_int_equal(deferred_counts()->pinned, 0);
  assert_int_equal(kept, 0);
}

// ---- Tests ------------------------------------------------------------------

// Warm-up, recording, replays: the plugin is called twice in all.
static void replays(void** state) {
  (void)state;
  for (int lazy = 0; lazy < 2; ++lazy) {
    rabbet_context_t* context = NULL;
    void *x = allocate(), *y = allocate(), *stream = NULL;
    kind_at_hand = SAFE;
    RABBET_EXPECT_OK(device->vtable->create_stream(device, &stream));
    RABBET_EXPECT_OK(make_context(sample_plugin, SYSTEM, &context));
    deferred_set_lazy(lazy);
    for (int i = 0; i < 6; ++i) {
      RABBET_EXPECT_OK(run(context, x, y, i, i % 2 ? stream : NULL));
      rabbet_graph_info_t now = info(context);
      assert_int_equal(now.graph_steps, i == 0 ? 0 : 5);
      assert_int_equal(now.other_steps, i == 0 ? 5 : 0);
      assert_int_equal(now.recordings, i == 0 ? 0 : 1);
      assert_int_equal(now.replays, i < 2 ? 0 : i - 1);
    }
    deferred_set_lazy(false);
    assert_int_equal(calls, 2);
    assert_int_equal(heard.count, 0);
    assert_int_equal(deferred_counts()->graphs, 1);
    rabbet_context_destroy(context);
    device->vtable->destroy_stream(device, stream);
    device->vtable->free(device, x);
    device->vtable->free(device, y);
    expect_clean();
  }
}

// Buffers that take turns are recorded each; a new one takes the place of the
// oldest once it comes again.
static void addresses(void** state) {
  (void)state;
  rabbet_context_t* context = NULL;
  void *x = allocate(), *y[8];
  kind_at_hand = KEEPING;
  for (int i = 0; i < 8; ++i)
    y[i] = allocate();
  RABBET_EXPECT_OK(make_context(sample_plugin, SYSTEM, &context));
  deferred_counts()->updates = 0;
  for (int i = 0; i < 12; ++i)
    RABBET_EXPECT_OK(run(context, x, y[i % 3], i, NULL));
  assert_int_equal(info(context).recordings, 3);
  assert_int_equal(info(context).replays, 12 - 6);
  assert_int_equal(kept, 3);
  // More than are remembered: never twice, never recorded, always right.
  for (int i = 0; i < 16; ++i)
    RABBET_EXPECT_OK(run(context, x, y[i % 8], i, NULL));
  assert_int_equal(deferred_counts()->updates, 0);
  for (int i = 4; i < 8; ++i) {
    for (int k = 0; k < 3; ++k)
      RABBET_EXPECT_OK(run(context, x, y[i], i + k, NULL));
    assert_int_equal(info(context).graph_steps, 5);
    assert_true(kept <= 4);
  }
  assert_true(deferred_counts()->updates > 0);
  assert_true(deferred_counts()->graphs <= 4);
  rabbet_context_destroy(context);
  device->vtable->free(device, x);
  for (int i = 0; i < 8; ++i)
    device->vtable->free(device, y[i]);
  expect_clean();
}

// Kernels that may be recorded are, all others run in between and are named.
static void plugins(void** state) {
  (void)state;
  static const struct {
    kind_t kind;
    bool recorded;
    const char* message;
  } list[] = {
      {SAFE, true, NULL},
      {UNSAID, true, NULL},
      {KEEPING, true, NULL},
      {IN_PLACE, true, NULL},
      {NEVER, false, NULL},
      {HOST, false, "the results of a replay differ from those of a call"},
      {WAITING, false, "nobody can wait for a stream that records"},
      {SILENT, false, "it does something that cannot be recorded"},
      {FAILING, false, "not while it is recorded"},
  };
  for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); ++i) {
    rabbet_context_t* context = NULL;
    void *x = allocate(), *y = allocate();
    kind_at_hand = list[i].kind;
    RABBET_EXPECT_OK(make_context(sample_plugin, SYSTEM, &context));
    for (int k = 0; k < 6; ++k)
      RABBET_EXPECT_OK(run(context, x, y, k, NULL));
    rabbet_graph_info_t now = info(context);
    assert_int_equal(now.graph_steps, list[i].recorded ? 5 : 4);
    assert_int_equal(now.other_steps, list[i].recorded ? 0 : 1);
    assert_int_equal(deferred_counts()->graphs, list[i].recorded ? 1 : 2);
    if (list[i].message) {
      assert_int_equal(heard.count, 1);
      assert_non_null(strstr(heard.last,
                             "step 'mine' (kernel 'plugin') is not "
                             "recorded"));
      assert_non_null(strstr(heard.last, list[i].message));
    } else {
      assert_int_equal(heard.count, 0);
    }
    rabbet_context_destroy(context);
    device->vtable->free(device, x);
    device->vtable->free(device, y);
    expect_clean();
  }
}

// Its results cannot be foretold, but it must not be replayed.
static void changing_plugins(void** state) {
  (void)state;
  rabbet_context_t* context = NULL;
  void *x = allocate(), *y = allocate();
  float in[COUNT] = {0}, out[COUNT];
  kind_at_hand = CHANGING;
  RABBET_EXPECT_OK(make_context(sample_plugin, SYSTEM, &context));
  RABBET_EXPECT_OK(
      device->vtable->copy_to_device(device, x, in, sizeof(in), NULL));
  RABBET_EXPECT_OK(rabbet_context_set_address(context, 0, x));
  RABBET_EXPECT_OK(rabbet_context_set_address(context, 1, y));
  for (int i = 0; i < 5; ++i) {
    RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
    RABBET_EXPECT_OK(
        device->vtable->copy_to_host(device, out, y, sizeof(out), NULL));
    assert_float_equal(out[0], 2 + (float)calls + 1, 0);
  }
  assert_int_equal(info(context).other_steps, 1);
  assert_non_null(strstr(heard.last, "the results of a replay differ"));
  rabbet_context_destroy(context);
  device->vtable->free(device, x);
  device->vtable->free(device, y);
  expect_clean();
}

// Each call of the device that recording makes fails in turn: the run goes on
// without.
static void failures(void** state) {
  (void)state;
  static const kind_t kinds[] = {SAFE, UNSAID, KEEPING};
  for (int k = 0; k < 3; ++k) {
    bool failed = true;
    for (int n = 1; failed; ++n) {
      rabbet_context_t* context = NULL;
      void *x = allocate(), *y = allocate();
      kind_at_hand = kinds[k];
      RABBET_EXPECT_OK(make_context(sample_plugin, SYSTEM, &context));
      deferred_fail_recording(n);
      for (int i = 0; i < 6; ++i)
        RABBET_EXPECT_OK(run(context, x, y, i, NULL));
      failed = heard.count > 0;
      if (failed) assert_non_null(strstr(heard.last, "was made to fail"));
      assert_true(n < 100);
      deferred_fail_recording(0);
      rabbet_context_destroy(context);
      device->vtable->free(device, x);
      device->vtable->free(device, y);
      expect_clean();
    }
  }
}

// A graph for each segment; the host reads in between.
static void segments(void** state) {
  (void)state;
  rabbet_context_t* context = NULL;
  void *x = allocate(), *y = allocate();
  RABBET_EXPECT_OK(make_context(sample_reads, SYSTEM, &context));
  RABBET_EXPECT_OK(rabbet_context_set_address(context, 0, x));
  RABBET_EXPECT_OK(rabbet_context_set_address(context, 1, y));
  deferred_set_lazy(true);
  for (int i = 0; i < 40; ++i) {
    float in[8], out[8];
    rabbet_dims_t dims = {.rank = 1, .d = {i % 4 == 3 ? 5 : 8}}, found;
    int64_t count = 0;
    for (int64_t k = 0; k < dims.d[0]; ++k)
      in[k] = (float)((k * 3 + i) % 4) - 1;
    RABBET_EXPECT_OK(rabbet_context_set_input_shape(context, 0, &dims));
    RABBET_EXPECT_OK(device->vtable->copy_to_device(
        device, x, in, (size_t)dims.d[0] * sizeof(float), NULL));
    RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
    RABBET_EXPECT_OK(rabbet_context_shape(context, 1, &found));
    RABBET_EXPECT_OK(
        device->vtable->copy_to_host(device, out, y, sizeof(out), NULL));
    wait();
    for (int64_t k = 0; k < dims.d[0]; ++k) {
      if (in[k] == 0) continue;
      assert_float_equal(out[count], in[k] + (in[k] > 0 ? in[k] : 0), 0);
      ++count;
    }
    assert_int_equal(found.d[0], count);
  }
  deferred_set_lazy(false);
  // "compact" computes on the host and is found out; the others are recorded.
  assert_int_equal(info(context).graph_steps, 2);
  assert_int_equal(info(context).other_steps, 1);
  assert_int_equal(heard.count, 1);
  rabbet_context_destroy(context);
  device->vtable->free(device, x);
  device->vtable->free(device, y);
  expect_clean();
}

// x, copied into y's memory; a plugin works on that in place.
static void sample_in_place(maker_t* m) {
  static const int64_t dims[] = {2, 3};
  static const int32_t aliased[] = {0};
  rabbet_shape_t shape = maker_shape(m, 2, dims);
  int32_t x = maker_io(m, "x", true, RABBET_DTYPE_FLOAT, shape);
  int32_t y = maker_io(m, "y", false, RABBET_DTYPE_FLOAT, shape);
  int32_t t = maker_value(m, "t", RABBET_DTYPE_FLOAT, shape);
  m->values[t].storage = RABBET_PLAN_STORAGE_IO;
  m->values[t].io = 1;
  m->values[t].alias = y;
  m->ios[1].aliased_input = 0;
  maker_step(m, &(maker_step_t){.name = "copy",
                                .op = RABBET_OP_IDENTITY,
                                .inputs = {x},
                                .input_count = 1,
                                .outputs = {t},
                                .output_count = 1});
  rabbet_plan_step_t* mine =
      maker_step(m, &(maker_step_t){.name = "mine",
                                    .op = RABBET_OP_PLUGIN,
                                    .kernel = "plugin",
                                    .plugin = "graph",
                                    .inputs = {t},
                                    .input_count = 1,
                                    .outputs = {y},
                                    .output_count = 1});
  mine->group.nodes[0].aliased = maker_copy(m, aliased, sizeof(aliased));
}

static void ignore_time(void* user_data, const char* name, float ms) {
  (void)user_data, (void)name, (void)ms;
}

// With one address for both the copy before a step that works in place is not
// there: not in a call, not in a graph, not in a run whose steps are timed.
static void copies_onto_themselves(void** state) {
  (void)state;
  rabbet_context_t* context = NULL;
  void *x = allocate(), *y = allocate();
  kind_at_hand = IN_PLACE;
  RABBET_EXPECT_OK(make_context(sample_in_place, SYSTEM, &context));
  for (int i = 0; i < 24; ++i) {
    bool same = i / 4 % 2 == 1, timed = i >= 16;
    float in[COUNT], out[COUNT];
    if (i == 16) {
      rabbet_profiler_t profiler = {.report = ignore_time};
      RABBET_EXPECT_OK(rabbet_context_set_profiler(context, profiler));
    }
    for (int k = 0; k < COUNT; ++k)
      in[k] = (float)(k + i);
    RABBET_EXPECT_OK(
        device->vtable->copy_to_device(device, x, in, sizeof(in), NULL));
    RABBET_EXPECT_OK(rabbet_context_set_address(context, 0, x));
    RABBET_EXPECT_OK(rabbet_context_set_address(context, 1, same ? x : y));
    int before = deferred_counts()->done;
    RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
    wait();
    // In the second run the plugin is tried, on memory of its own.
    // Times are taken between three events.
    int wanted = (same ? 1 : 2) + (timed ? 3 : 0);
    if (i != 1) assert_int_equal(deferred_counts()->done - before, wanted);
    if (i % 4 >= 2 && !timed) assert_int_equal(info(context).graph_steps, 2);
    RABBET_EXPECT_OK(device->vtable->copy_to_host(device, out, same ? x : y,
                                                  sizeof(out), NULL));
    wait();
    for (int k = 0; k < COUNT; ++k)
      assert_float_equal(out[k], 2 * in[k] + 1, 0);
  }
  assert_int_equal(info(context).recordings, 2);
  rabbet_context_destroy(context);
  device->vtable->free(device, x);
  device->vtable->free(device, y);
  expect_clean();
}

// A stream that its owner records gets the kernels themselves.
static void recorded_by_the_caller(void** state) {
  (void)state;
  rabbet_context_t* context = NULL;
  void *x = allocate(), *y = allocate(), *stream = NULL, *graph = NULL;
  kind_at_hand = SAFE;
  RABBET_EXPECT_OK(make_context(sample_plugin, SYSTEM, &context));
  RABBET_EXPECT_OK(device->vtable->create_stream(device, &stream));
  for (int i = 0; i < 4; ++i)
    RABBET_EXPECT_OK(run(context, x, y, i, stream));
  RABBET_EXPECT_OK(device->vtable->record_begin(device, stream));
  RABBET_EXPECT_OK(rabbet_context_execute(context, stream));
  RABBET_EXPECT_OK(device->vtable->record_end(device, stream, &graph));
  assert_int_equal(info(context).other_steps, 5);
  float in[COUNT] = {1, -1, 2, -2, 3, -3}, out[COUNT];
  RABBET_EXPECT_OK(
      device->vtable->copy_to_device(device, x, in, sizeof(in), NULL));
  RABBET_EXPECT_OK(device->vtable->launch_graph(device, graph, stream));
  RABBET_EXPECT_OK(
      device->vtable->copy_to_host(device, out, y, sizeof(out), NULL));
  for (int i = 0; i < COUNT; ++i)
    assert_float_equal(out[i], expected_of(in[i]), 0);
  device->vtable->destroy_graph(device, graph);
  rabbet_context_destroy(context);
  device->vtable->destroy_stream(device, stream);
  device->vtable->free(device, x);
  device->vtable->free(device, y);
  expect_clean();
}

static void copy_in(void* target, const float* values) {
  RABBET_EXPECT_OK(device->vtable->copy_to_device(device, target, values,
                                                  COUNT * sizeof(float), NULL));
  wait();
}

static rabbet_status_t record_run(rabbet_context_t* context, void* stream,
                                  void** graph) {
  RABBET_EXPECT_OK(device->vtable->record_begin(device, stream));
  rabbet_status_t status = rabbet_context_execute(context, stream);
  RABBET_EXPECT_OK(device->vtable->record_end(
      device, stream, rabbet_is_ok(status) ? graph : NULL));
  return status;
}

// The first run is the caller's recording: refused with a word about what to
// do, and possible once the run was prepared. The input, which lies under the
// output, is copied in each replay.
static void first_run_recorded_by_the_caller(void** state) {
  (void)state;
  static const float in[COUNT] = {1, -1, 2, -2, 3, -3};
  void *memory = allocate(), *stream = NULL;
  kind_at_hand = SAFE;
  RABBET_EXPECT_OK(device->vtable->create_stream(device, &stream));
  for (int way = 0; way < 3; ++way) {
    rabbet_context_t* context = NULL;
    void *graph = NULL, *output = (uint8_t*)memory + (way == 2 ? 8 : 32);
    float out[COUNT];
    RABBET_EXPECT_OK(make_context(sample_plugin, SYSTEM, &context));
    RABBET_EXPECT_OK(rabbet_context_set_address(context, 0, memory));
    rabbet_context_prepare_early(context);  // y is not there yet
    RABBET_EXPECT_OK(rabbet_context_set_address(context, 1, output));
    RABBET_EXPECT_ERROR(record_run(context, stream, &graph),
                        RABBET_STATUS_FAILED_PRECONDITION,
                        "call rabbet_context_prepare");
    if (way == 1)
      rabbet_context_prepare_early(context);
    else
      RABBET_EXPECT_OK(rabbet_context_prepare(context));
    assert_int_equal(calls, 0);
    RABBET_EXPECT_OK(record_run(context, stream, &graph));
    assert_int_equal(calls, 1);
    for (int i = 0; i < 2; ++i) {
      copy_in(memory, in);
      RABBET_EXPECT_OK(device->vtable->launch_graph(device, graph, stream));
      wait();
      RABBET_EXPECT_OK(device->vtable->copy_to_host(device, out, output,
                                                    sizeof(out), stream));
      wait();
      for (int k = 0; k < COUNT; ++k)
        assert_float_equal(out[k], expected_of(in[k]), 0);
    }
    device->vtable->destroy_graph(device, graph);
    rabbet_context_destroy(context);
  }
  device->vtable->destroy_stream(device, stream);
  device->vtable->free(device, memory);
  expect_clean();
}

// ---- Allocations that fail --------------------------------------------------

static rabbet_status_t use_graphs(rabbet_allocator_t allocator,
                                  void* user_data) {
  void** memory = user_data;
  rabbet_context_t* context = NULL;
  rabbet_status_t status = make_context(sample_plugin, allocator, &context);
  for (int i = 0; i < 12 && rabbet_is_ok(status); ++i)
    status = run(context, memory[0], memory[1 + i / 2 % 6], i, NULL);
  rabbet_context_destroy(context);
  assert_int_equal(kept, 0);
  return status;
}

static void allocations(void** state) {
  (void)state;
  void* memory[7];
  static const kind_t kinds[] = {UNSAID, KEEPING};
  for (int i = 0; i < 7; ++i)
    memory[i] = allocate();
  for (int i = 0; i < 2; ++i) {
    kind_at_hand = kinds[i];
    assert_true(rabbet_fault_run_tolerant(use_graphs, memory) > 50);
    expect_clean();
  }
  for (int i = 0; i < 7; ++i)
    device->vtable->free(device, memory[i]);
}

static int setup(void** state) {
  (void)state;
  setenv("RABBET_LIBRARY_PATH", RABBET_DEFERRED_FOLDER, 1);
  test_plugins_register();
  rabbet_plugin_creator_t creator = {.struct_size = sizeof(creator),
                                     .name = "graph",
                                     .plugin_namespace = "test",
                                     .user_data = &kind_at_hand,
                                     .create = graph_create,
                                     .input_count = 1};
  RABBET_EXPECT_OK(rabbet_plugin_register(&creator));
  RABBET_EXPECT_OK(rabbet_device_create("defer", SYSTEM, &device));
  return 0;
}

static int teardown(void** state) {
  (void)state;
  rabbet_device_release(device);
  RABBET_EXPECT_OK(rabbet_plugin_deregister("graph", "1", "test"));
  test_plugins_deregister();
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(replays),
      cmocka_unit_test(addresses),
      cmocka_unit_test(plugins),
      cmocka_unit_test(changing_plugins),
      cmocka_unit_test(failures),
      cmocka_unit_test(segments),
      cmocka_unit_test(copies_onto_themselves),
      cmocka_unit_test(recorded_by_the_caller),
      cmocka_unit_test(first_run_recorded_by_the_caller),
      cmocka_unit_test(allocations),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
