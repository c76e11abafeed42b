#include "rabbet/engine.h"

#include <math.h>
#include <pthread.h>
#include <unistd.h>

#include "fuzz_plugins.h"
#include "run_check.h"
#include "runtime/runtime.h"
#include "test_plugins.h"

static void engine_facts(void** state) {
  (void)state;
  rabbet_engine_t* engine = NULL;
  void* data = NULL;
  size_t size = 0, plan_size = 0, bytes = 0;
  maker_bytes(sample_static, SYSTEM, &data, &size);
  RABBET_EXPECT_OK(
      rabbet_engine_deserialize(data, size, NULL, SYSTEM, &engine));
  const void* plan = NULL;
  rabbet_engine_plan(engine, &plan, &plan_size);
  assert_int_equal(plan_size, size);
  assert_memory_equal(plan, data, size);
  rabbet_free_aligned(SYSTEM, data, RABBET_PLAN_ALIGNMENT);
  assert_int_equal(rabbet_engine_io_count(engine), 2);
  assert_string_equal(rabbet_engine_io(engine, 0)->name, "x");
  assert_true(rabbet_engine_io(engine, 0)->is_input);
  assert_null(rabbet_engine_io(engine, 2));
  assert_int_equal(rabbet_engine_find_io(engine, "y"), 1);
  assert_int_equal(rabbet_engine_find_io(engine, "no"), -1);
  assert_int_equal(rabbet_engine_layer_count(engine), 2);
  assert_string_equal(rabbet_engine_name(engine), "sample");
  assert_string_equal(rabbet_engine_device(engine), "null");
  RABBET_EXPECT_OK(rabbet_engine_context_bytes(engine, 0, &bytes));
  assert_int_equal(bytes, 256);
  RABBET_EXPECT_ERROR(rabbet_engine_context_bytes(engine, 1, &bytes),
                      RABBET_STATUS_OUT_OF_RANGE, "profile 1");
  rabbet_engine_release(engine);
}

// ---- Errors of steps and of loading

static void replace_step_1(maker_t* m, const char* plugin) {
  m->steps[1].kernel = "plugin";
  m->steps[1].plugin_name = plugin;
  m->steps[1].plugin_version = "1";
  m->steps[1].plugin_namespace = "test";
  m->steps[1].group.nodes[0].op = rabbet_op_get(RABBET_OP_PLUGIN);
}

static void sample_failing(maker_t* m) {
  sample_static(m);
  replace_step_1(m, "fail");
}

static void sample_roomy(maker_t* m) {
  sample_static(m);
  replace_step_1(m, "roomy");
}

static void sample_roomy_dynamic(maker_t* m) {
  sample_dynamic(m);
  replace_step_1(m, "roomy");
}

// A context allocates at the maximum as much as it says that it needs.
static void memory_counts_workspaces(void** state) {
  (void)state;
  rabbet_context_t* context = run_context(sample_roomy);
  rabbet_engine_t* engine = rabbet_context_engine(context);
  size_t bytes = 0;
  float x[6] = {3, 2, 1}, y[6];
  run_bind(context, "x", x);
  run_bind(context, "y", y);
  RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
  assert_float_equal(y[0], 2, 0);
  RABBET_EXPECT_OK(rabbet_engine_context_bytes(engine, 0, &bytes));
  assert_int_equal(bytes, context->main->memory_bytes[0]);
  assert_int_equal(bytes, 256 + 2048);
  rabbet_context_destroy(context);

  context = run_context(sample_roomy_dynamic);
  engine = rabbet_context_engine(context);
  RABBET_EXPECT_OK(rabbet_engine_context_bytes(engine, 0, &bytes));
  float a[16] = {1}, b[16] = {2}, out[16], m = 0;
  int32_t n = 0;
  run_bind(context, "a", a);
  run_bind(context, "b", b);
  run_bind(context, "y", out);
  run_bind(context, "n", &n);
  run_bind(context, "m", &m);
  for (int64_t batch = 2; batch <= 8; batch += 6) {
    RABBET_EXPECT_OK(run_shape2(context, "a", batch, 2));
    RABBET_EXPECT_OK(run_shape2(context, "b", batch, 2));
    RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
    assert_float_equal(out[0], 3, 0);
    assert_int_equal(bytes == context->main->memory_bytes[0], batch == 8);
  }
  rabbet_context_destroy(context);
}

static void failing_step(void** state) {
  (void)state;
  rabbet_context_t* context = run_context(sample_failing);
  float x[6] = {0}, y[6];
  run_bind(context, "x", x);
  run_bind(context, "y", y);
  rabbet_status_t status = rabbet_context_execute(context, NULL);
  assert_non_null(strstr(rabbet_status_message(status), "step 'relu'"));
  assert_non_null(strstr(rabbet_status_message(status), "fail"));
  RABBET_EXPECT_ERROR(status, RABBET_STATUS_PLUGIN, "it was made to fail");
  rabbet_context_destroy(context);
}

static void sample_unregistered(maker_t* m) {
  sample_failing(m);
  m->steps[1].plugin_name = "absent";
  m->steps[1].plugin_origin = "my_ops.py";
}

// One output more than the layer has.
static void sample_other_plugin(maker_t* m) {
  sample_static(m);
  replace_step_1(m, "compact");
}

static void scaled_step(maker_t* m, int32_t x, int32_t y) {
  maker_step(m, &(maker_step_t){.name = "scaled",
                                .op = RABBET_OP_PLUGIN,
                                .kernel = "plugin",
                                .plugin = "scaled",
                                .inputs = {x},
                                .input_count = 1,
                                .outputs = {y},
                                .output_count = 1})
      ->tactic = 1;
}

// y[2, 2 m] = x[2, m] beside itself, m <= 8, by fuzz_plugins.h's `scaled`, with
// tactic 1.
static void sample_scaled(maker_t* m, rabbet_dtype_t dtype, int64_t times) {
  rabbet_expr_t rows = maker_number(m, 2), columns = maker_dim(m, 0, 1, "m");
  rabbet_expr_t wide =
      maker_op(m, RABBET_EXPR_PROD, maker_number(m, times), columns);
  int32_t x = maker_io(m, "x", true, dtype, MAKER_SHAPE(rows, columns));
  int32_t y = maker_io(m, "y", false, dtype, MAKER_SHAPE(rows, wide));
  scaled_step(m, x, y);
}

static void sample_scaled_right(maker_t* m) {
  sample_scaled(m, RABBET_DTYPE_FLOAT, 2);
}

static void sample_scaled_type(maker_t* m) {
  sample_scaled(m, RABBET_DTYPE_INT32, 2);
}

static void sample_scaled_format(maker_t* m) {
  static const int64_t dims[] = {1, 4, 1, 2};
  rabbet_shape_t shape = maker_shape(m, 4, dims);
  int32_t x = maker_io(m, "x", true, RABBET_DTYPE_FLOAT, shape);
  int32_t y = maker_io(m, "y", false, RABBET_DTYPE_FLOAT, shape);
  m->values[x].format = RABBET_FORMAT_HWC;
  scaled_step(m, x, y);
}

static void sample_scaled_tactic(maker_t* m) {
  sample_scaled(m, RABBET_DTYPE_FLOAT, 2);
  m->steps[0].tactic = 3;
}

// Less room than the plugin fills.
static void sample_scaled_shape(maker_t* m) {
  sample_scaled(m, RABBET_DTYPE_FLOAT, 1);
}

// A plugin runs only with offered and described tensors, whatever a plan says.
static void plugins_are_asked_again(void** state) {
  (void)state;
  rabbet_engine_t* engine = NULL;
  fuzz_plugins_register();
  RABBET_EXPECT_ERROR(run_load(sample_scaled_type, NULL, &engine),
                      RABBET_STATUS_INCOMPATIBLE,
                      "types and formats (INT32 LINEAR, INT32 LINEAR) are not "
                      "among those");
  RABBET_EXPECT_ERROR(run_load(sample_scaled_format, NULL, &engine),
                      RABBET_STATUS_INCOMPATIBLE,
                      "(FLOAT HWC, FLOAT LINEAR) are not among those");
  RABBET_EXPECT_ERROR(run_load(sample_scaled_tactic, NULL, &engine),
                      RABBET_STATUS_INCOMPATIBLE,
                      "tactic 3 is not among the 2 that the plugin offers");
  float x[6] = {1, 2, 3, 4, 5, 6}, y[12] = {0};
  rabbet_context_t* context = run_context(sample_scaled_right);
  run_bind(context, "x", x);
  run_bind(context, "y", y);
  RABBET_EXPECT_OK(run_shape2(context, "x", 2, 3));
  RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
  assert_float_equal(y[8], 6, 0);
  assert_float_equal(y[9], 12, 0);
  rabbet_context_destroy(context);
  context = run_context(sample_scaled_shape);
  run_bind(context, "x", x);
  run_bind(context, "y", y);
  RABBET_EXPECT_OK(run_shape2(context, "x", 2, 3));
  RABBET_EXPECT_ERROR(rabbet_context_execute(context, NULL),
                      RABBET_STATUS_INCOMPATIBLE,
                      "makes output 0 of layer 'scaled' of shape (2, 6); the "
                      "plan has (2, 3)");
  rabbet_context_destroy(context);
  fuzz_plugins_deregister();
}

static void sample_no_kernel(maker_t* m) {
  sample_static(m);
  m->steps[0].kernel = "dnnl.magic";
}

static void sample_wrong_device(maker_t* m) {
  sample_static(m);
  m->plan->device = "cuda";
}

static void sample_other_machine(maker_t* m) {
  sample_static(m);
  m->plan->device_signature = "null of elsewhere";
}

static void count_warning(void* user_data, rabbet_severity_t severity,
                          const char* message) {
  if (severity == RABBET_SEVERITY_WARNING &&
      strstr(message, "null of elsewhere"))
    ++*(int*)user_data;
}

static void loading_errors(void** state) {
  (void)state;
  rabbet_engine_t* engine = NULL;
  int warnings = 0;
  rabbet_engine_options_t options = {
      .struct_size = sizeof(options),
      .device = "null",
      .logger = {&warnings, count_warning, RABBET_SEVERITY_WARNING}};
  RABBET_EXPECT_ERROR(run_load(sample_unregistered, NULL, &engine),
                      RABBET_STATUS_NOT_FOUND,
                      "needs the plugin 'test::absent', version '1', which was "
                      "defined in 'my_ops.py'");
  RABBET_EXPECT_ERROR(run_load(sample_other_plugin, NULL, &engine),
                      RABBET_STATUS_INCOMPATIBLE,
                      "plugin 'compact' makes 2 outputs; layer 'relu' of the "
                      "plan has 1");
  RABBET_EXPECT_ERROR(run_load(sample_no_kernel, NULL, &engine),
                      RABBET_STATUS_INCOMPATIBLE,
                      "has no kernel 'dnnl.magic'; it has reference, plugin");
  RABBET_EXPECT_ERROR(run_load(sample_wrong_device, &options, &engine),
                      RABBET_STATUS_INCOMPATIBLE, "built for device 'cuda'");
  RABBET_EXPECT_OK(run_load(sample_static, &options, &engine));
  rabbet_engine_release(engine);
  assert_int_equal(warnings, 0);
  RABBET_EXPECT_OK(run_load(sample_other_machine, &options, &engine));
  rabbet_engine_release(engine);
  assert_int_equal(warnings, 1);
  RABBET_EXPECT_ERROR(
      rabbet_engine_load("/nonexistent.plan", NULL, SYSTEM, &engine),
      RABBET_STATUS_NOT_FOUND, "/nonexistent.plan");
  RABBET_EXPECT_ERROR(rabbet_engine_deserialize("", 0, NULL, SYSTEM, &engine),
                      RABBET_STATUS_INVALID_ARGUMENT, "no bytes");
}

// Options of programs that were compiled for another version.
static void options_of_other_sizes(void** state) {
  (void)state;
  struct {
    rabbet_engine_options_t options;
    uint64_t added;
  } newer = {{.struct_size = sizeof(newer), .device = "null"}, 0};
  rabbet_engine_t* engine = NULL;
  RABBET_EXPECT_OK(run_load(sample_static, &newer.options, &engine));
  rabbet_engine_release(engine);
  newer.added = 1;
  RABBET_EXPECT_ERROR(
      run_load(sample_static, &newer.options, &engine),
      RABBET_STATUS_INVALID_ARGUMENT,
      "rabbet_engine_options_t: struct_size is 120, that of rabbet");
  newer.options.untrusted = true;
  newer.options.host_code_allowed = true;
  newer.options.struct_size = offsetof(rabbet_engine_options_t, untrusted);
  RABBET_EXPECT_OK(run_load(sample_static, &newer.options, &engine));
  rabbet_engine_release(engine);
  newer.options.struct_size = 0;
  RABBET_EXPECT_ERROR(run_load(sample_static, &newer.options, &engine),
                      RABBET_STATUS_INVALID_ARGUMENT,
                      "set it to sizeof(rabbet_engine_options_t)");
}

// An engine that cannot run here can be inspected.
static void inspect_only(void** state) {
  (void)state;
  void (*const samples[])(maker_t * maker) = {
      sample_unregistered, sample_no_kernel, sample_wrong_device};
  rabbet_engine_options_t options = {.struct_size = sizeof(options),
                                     .inspect_only = true};
  for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); ++i) {
    rabbet_engine_t* engine = NULL;
    char* text = NULL;
    RABBET_EXPECT_OK(run_load(samples[i], &options, &engine));
    RABBET_EXPECT_OK(rabbet_engine_inspect(engine, NULL, -1,
                                           RABBET_INSPECT_JSON, SYSTEM, &text));
    assert_non_null(strstr(text, "relu"));
    rabbet_free(SYSTEM, text);
    assert_non_null(rabbet_engine_io(engine, 0));
    assert_string_equal(rabbet_engine_device(engine),
                        samples[i] == sample_wrong_device ? "cuda" : "null");
    size_t bytes = 0;
    RABBET_EXPECT_OK(rabbet_engine_context_bytes(engine, 0, &bytes));
    rabbet_context_t* context = NULL;
    RABBET_EXPECT_ERROR(rabbet_context_create(engine, SYSTEM, &context),
                        RABBET_STATUS_FAILED_PRECONDITION, "inspect");
    void* memory = &bytes;
    RABBET_EXPECT_ERROR(rabbet_engine_allocate(engine, 4, &memory),
                        RABBET_STATUS_FAILED_PRECONDITION, "inspect");
    assert_null(memory);
    RABBET_EXPECT_ERROR(rabbet_engine_allocate_async(engine, 4, NULL, &memory),
                        RABBET_STATUS_FAILED_PRECONDITION, "inspect");
    assert_null(memory);
    RABBET_EXPECT_ERROR(rabbet_engine_copy(engine, &memory, &memory, 1, NULL),
                        RABBET_STATUS_FAILED_PRECONDITION, "inspect");
    RABBET_EXPECT_ERROR(rabbet_engine_synchronize(engine, NULL),
                        RABBET_STATUS_FAILED_PRECONDITION, "inspect");
    RABBET_EXPECT_ERROR(rabbet_engine_create_stream(engine, &memory),
                        RABBET_STATUS_FAILED_PRECONDITION, "inspect");
    RABBET_EXPECT_ERROR(
        rabbet_engine_copy_to_host(engine, &memory, &memory, 1, NULL),
        RABBET_STATUS_FAILED_PRECONDITION, "inspect");
    RABBET_EXPECT_ERROR(
        rabbet_engine_copy_to_device(engine, &memory, &memory, 1, NULL),
        RABBET_STATUS_FAILED_PRECONDITION, "inspect");
    rabbet_engine_release(engine);
  }
}

static void memory_for_callers(void** state) {
  (void)state;
  rabbet_engine_t* engine = NULL;
  void *a = NULL, *b = NULL;
  RABBET_EXPECT_OK(run_load(sample_static, NULL, &engine));
  RABBET_EXPECT_OK(rabbet_engine_allocate(engine, 100, &a));
  RABBET_EXPECT_OK(rabbet_engine_allocate(engine, 0, &b));
  assert_non_null(b);
  assert_ptr_not_equal(a, b);
  assert_int_equal((uintptr_t)a % 256, 0);
  memset(a, 1, 100);
  RABBET_EXPECT_OK(rabbet_engine_synchronize(engine, NULL));
  RABBET_EXPECT_OK(rabbet_engine_copy_to_device(engine, a, "two", 3, NULL));
  uint8_t copied[100] = {0};
  RABBET_EXPECT_OK(rabbet_engine_copy_to_host(engine, copied, a, 100, NULL));
  assert_memory_equal(copied, a, 100);
  assert_memory_equal(copied, "two\1", 4);
  void* stream = &memory_for_callers;
  RABBET_EXPECT_OK(rabbet_engine_create_stream(engine, &stream));
  assert_null(stream);  // the device has none
  rabbet_engine_destroy_stream(engine, stream);
  rabbet_engine_free(engine, a);
  rabbet_engine_free(engine, b);
  rabbet_engine_free(engine, NULL);
  rabbet_engine_release(engine);
}

// The device has no memory in stream order: its own memory, at once.
static void memory_of_calls(void** state) {
  (void)state;
  rabbet_engine_t* engine = NULL;
  void *a = NULL, *b = NULL;
  RABBET_EXPECT_OK(run_load(sample_static, NULL, &engine));
  RABBET_EXPECT_OK(rabbet_engine_allocate_async(engine, 100, NULL, &a));
  RABBET_EXPECT_OK(rabbet_engine_allocate_async(engine, 0, NULL, &b));
  assert_non_null(b);
  rabbet_engine_free_async(engine, b, NULL);
  RABBET_EXPECT_OK(rabbet_engine_allocate_async(engine, 100, NULL, &b));
  memset(a, 3, 100);
  RABBET_EXPECT_OK(rabbet_engine_copy(engine, b, a, 100, NULL));
  assert_memory_equal(a, b, 100);
  rabbet_engine_retire(engine, a);
  rabbet_engine_free_async(engine, b, NULL);
  rabbet_engine_free_async(engine, NULL, NULL);
  rabbet_engine_retire(engine, NULL);
  rabbet_engine_release(engine);
}

typedef struct counted_t {
  size_t asked, live;
  size_t refuse;  // allocations of at least so many bytes fail
} counted_t;

static void* counted_allocate(void* user_data, size_t size, size_t alignment,
                              void* stream) {
  counted_t* counted = user_data;
  void* memory = NULL;
  (void)stream;
  ++counted->asked;
  if (size >= counted->refuse) return NULL;
  RABBET_EXPECT_OK(rabbet_allocate_aligned(SYSTEM, size, alignment, &memory));
  ++counted->live;
  return memory;
}

static void counted_free(void* user_data, void* memory, void* stream) {
  (void)stream;
  --((counted_t*)user_data)->live;
  rabbet_free_aligned(SYSTEM, memory, 256);
}

static void memory_of_calls_of_the_caller(void** state) {
  (void)state;
  rabbet_engine_t* engine = NULL;
  counted_t counted = {.refuse = 1000};
  rabbet_engine_options_t options = {
      .struct_size = sizeof(options),
      .device = "null",
      .device_allocator = {&counted, counted_allocate, counted_free}};
  void *a = NULL, *b = NULL;
  RABBET_EXPECT_OK(run_load(sample_static, &options, &engine));
  size_t before = counted.live;
  RABBET_EXPECT_OK(rabbet_engine_allocate_async(engine, 100, NULL, &a));
  RABBET_EXPECT_OK(rabbet_engine_allocate_async(engine, 100, NULL, &b));
  assert_int_equal(counted.live, before + 2);
  rabbet_engine_free_async(engine, a, NULL);
  rabbet_engine_retire(engine, b);
  assert_int_equal(counted.live, before);
  RABBET_EXPECT_ERROR(rabbet_engine_allocate_async(engine, 1000, NULL, &a),
                      RABBET_STATUS_OUT_OF_MEMORY,
                      "the caller's allocator gave no memory for 1000 bytes");
  assert_null(a);
  rabbet_engine_release(engine);
  assert_int_equal(counted.live, 0);
}

static void load_file(void** state) {
  (void)state;
  void* data = NULL;
  size_t size = 0;
  char path[] = "/tmp/rabbet_engine_test_XXXXXX";
  int descriptor = mkstemp(path);
  assert_true(descriptor >= 0);
  close(descriptor);
  maker_bytes(sample_static, SYSTEM, &data, &size);
  RABBET_EXPECT_OK(rabbet_file_write(path, &(rabbet_span_t){data, size}, 1));
  rabbet_free_aligned(SYSTEM, data, RABBET_PLAN_ALIGNMENT);
  rabbet_engine_t* engine = NULL;
  RABBET_EXPECT_OK(rabbet_engine_load(path, NULL, SYSTEM, &engine));
  unlink(path);
  rabbet_context_t* context = NULL;
  RABBET_EXPECT_OK(rabbet_context_create(engine, SYSTEM, &context));
  rabbet_engine_release(engine);
  float x[6] = {1, 1, 1, 1, 1, 1}, y[6] = {0};
  run_bind(context, "x", x);
  run_bind(context, "y", y);
  RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
  assert_float_equal(y[5], 2.5f, 0);
  rabbet_context_destroy(context);
}

// ---- Profiler, inspector

static void count_report(void* user_data, const char* layer,
                         float milliseconds) {
  int* count = user_data;
  assert_string_equal(layer, *count % 2 ? "relu" : "add");
  assert_true(milliseconds >= 0);
  ++*count;
}

static void profiling(void** state) {
  (void)state;
  rabbet_context_t* context = run_context(sample_static);
  float x[6] = {0}, y[6];
  int count = 0;
  run_bind(context, "x", x);
  run_bind(context, "y", y);
  RABBET_EXPECT_OK(rabbet_context_set_profiler(
      context, (rabbet_profiler_t){&count, count_report}));
  RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
  RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
  assert_int_equal(count, 4);
  RABBET_EXPECT_OK(
      rabbet_context_set_profiler(context, (rabbet_profiler_t){0}));
  RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
  assert_int_equal(count, 4);
  rabbet_context_destroy(context);
}

static char* inspect(rabbet_context_t* context, bool with_context,
                     int32_t layer, rabbet_inspect_format_t format) {
  char* text = NULL;
  RABBET_EXPECT_OK(rabbet_engine_inspect(rabbet_context_engine(context),
                                         with_context ? context : NULL, layer,
                                         format, SYSTEM, &text));
  return text;
}

static void expect_inside(char* text, const char* part) {
  if (!strstr(text, part)) print_error("'%s' is not in:\n%s\n", part, text);
  assert_non_null(strstr(text, part));
}

static void inspecting(void** state) {
  (void)state;
  rabbet_context_t* context = run_context(sample_static);
  char* text = inspect(context, false, 0, RABBET_INSPECT_JSON);
  expect_inside(text, "\"Name\": \"add\", \"LayerType\": \"ELEMENTWISE\"");
  expect_inside(text,
                "\"Inputs\": [{\"Name\": \"x\", \"Dimensions\": [2, 3], "
                "\"Format/Datatype\": \"LINEAR FP32\"}");
  expect_inside(text, "\"TacticName\": \"reference\"");
  expect_inside(text, "\"TacticValue\": \"0x00000000\"");
  expect_inside(text, "\"TimeUs\": 1.500");
  expect_inside(text, "\"Alternatives\": [{\"kernel\": \"other\"");
  rabbet_free(SYSTEM, text);
  text = inspect(context, false, -1, RABBET_INSPECT_JSON);
  expect_inside(text, "\"Bindings\": [\"x\", \"y\"]");
  rabbet_free(SYSTEM, text);
  text = inspect(context, false, -1, RABBET_INSPECT_TEXT);
  expect_inside(text, "input  x: FP32 (2, 3) LINEAR");
  expect_inside(text, "\nadd    reference  reference  1.5  FP32 (2, 3) LINEAR");
  expect_inside(text, "\nrelu   reference  reference    -  ");
  rabbet_free(SYSTEM, text);
  RABBET_EXPECT_ERROR(
      rabbet_engine_inspect(rabbet_context_engine(context), NULL, 2,
                            RABBET_INSPECT_TEXT, SYSTEM, &text),
      RABBET_STATUS_OUT_OF_RANGE, "layer 2");
  rabbet_context_destroy(context);
  context = run_context(sample_dynamic);
  RABBET_EXPECT_OK(run_shape2(context, "a", 5, 2));
  RABBET_EXPECT_OK(run_shape2(context, "b", 5, 2));
  RABBET_EXPECT_OK(rabbet_context_infer_shapes(context, NULL));
  text = inspect(context, false, 1, RABBET_INSPECT_JSON);
  expect_inside(text, "\"Dimensions\": [-1, 2]");
  rabbet_free(SYSTEM, text);
  text = inspect(context, true, 1, RABBET_INSPECT_JSON);
  expect_inside(text, "\"Dimensions\": [5, 2]");
  rabbet_free(SYSTEM, text);
  rabbet_context_destroy(context);
}

// ---- Threads

static void threads_setting(void** state) {
  (void)state;
  rabbet_context_t* context = run_context(sample_static);
  assert_int_equal(rabbet_context_threads(context), 1);
  RABBET_EXPECT_OK(rabbet_context_set_threads(context, 3));
  assert_int_equal(rabbet_context_threads(context), 3);
  RABBET_EXPECT_ERROR(rabbet_context_set_threads(context, -1),
                      RABBET_STATUS_INVALID_ARGUMENT, "-1 threads");
  RABBET_EXPECT_OK(rabbet_context_set_threads(context, 0));
  assert_int_equal(rabbet_context_threads(context), 1);
  rabbet_context_destroy(context);
}

typedef struct worker_t {
  rabbet_engine_t* engine;
  int number, wrong;
} worker_t;

static void* work(void* argument) {
  worker_t* worker = argument;
  rabbet_context_t* context = NULL;
  rabbet_status_t status =
      rabbet_context_create(worker->engine, SYSTEM, &context);
  float x[8], y[8];
  for (int run = 0; run < 200 && rabbet_is_ok(status); ++run) {
    int n = 1 + (run + worker->number) % 8, kept = 0;
    for (int i = 0; i < n; ++i) {
      x[i] = (float)((i * 7 + run) % 3 - 1);
      kept += x[i] != 0;
    }
    rabbet_dims_t dims = {.rank = 1, .d = {n}};
    status = rabbet_context_set_input_shape(context, 0, &dims);
    if (rabbet_is_ok(status))
      status = rabbet_context_set_address(context, 0, x);
    if (rabbet_is_ok(status))
      status = rabbet_context_set_address(context, 1, y);
    if (rabbet_is_ok(status)) status = rabbet_context_execute(context, NULL);
    if (rabbet_is_ok(status)) status = rabbet_context_shape(context, 1, &dims);
    worker->wrong += dims.d[0] != kept;
    for (int i = 0; i < kept; ++i)
      worker->wrong += y[i] != -1 && y[i] != 2;
  }
  worker->wrong += !rabbet_is_ok(status);
  rabbet_status_ignore(status);
  rabbet_context_destroy(context);
  return NULL;
}

static void contexts_in_threads(void** state) {
  (void)state;
  rabbet_engine_t* engine = NULL;
  RABBET_EXPECT_OK(run_load(sample_reads, NULL, &engine));
  pthread_t threads[4];
  worker_t workers[4];
  for (int i = 0; i < 4; ++i) {
    workers[i] = (worker_t){.engine = engine, .number = i};
    assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
  }
  for (int i = 0; i < 4; ++i) {
    pthread_join(threads[i], NULL);
    assert_int_equal(workers[i].wrong, 0);
  }
  rabbet_engine_release(engine);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(engine_facts),
      cmocka_unit_test(failing_step),
      cmocka_unit_test(memory_counts_workspaces),
      cmocka_unit_test(loading_errors),
      cmocka_unit_test(options_of_other_sizes),
      cmocka_unit_test(plugins_are_asked_again),
      cmocka_unit_test(inspect_only),
      cmocka_unit_test(memory_for_callers),
      cmocka_unit_test(memory_of_calls),
      cmocka_unit_test(memory_of_calls_of_the_caller),
      cmocka_unit_test(load_file),
      cmocka_unit_test(profiling),
      cmocka_unit_test(inspecting),
      cmocka_unit_test(threads_setting),
      cmocka_unit_test(contexts_in_threads),
  };
  return cmocka_run_group_tests(tests, test_plugins_setup,
                                test_plugins_teardown);
}
