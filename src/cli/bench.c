#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"
#include "base/thread.h"
#include "base/vec.h"
#include "cli/build.h"
#include "cli/layer_times.h"

typedef RABBET_VEC(int64_t) rabbet_times_t;

typedef struct rabbet_bench_t {
  const rabbet_context_t* context;
  int64_t iterations;       // at least
  double warmup, duration;  // seconds, at least
  rabbet_times_t times;     // ns, one a run
} rabbet_bench_t;

static int compare_times(const void* a, const void* b) {
  int64_t x = *(const int64_t*)a, y = *(const int64_t*)b;
  return (x > y) - (x < y);
}

static rabbet_status_t bench_loop(rabbet_bench_t* bench,
                                  rabbet_context_t* context) {
  int64_t start = rabbet_time_ns();
  do {
    RABBET_RETURN_IF_ERROR(rabbet_context_execute(context, NULL));
  } while ((double)(rabbet_time_ns() - start) < bench->warmup * 1e9);
  start = rabbet_time_ns();
  int64_t now = start;
  while ((double)(now - start) < bench->duration * 1e9 ||
         (int64_t)bench->times.count < bench->iterations) {
    int64_t before = now;
    RABBET_RETURN_IF_ERROR(rabbet_context_execute(context, NULL));
    now = rabbet_time_ns();
    RABBET_RETURN_IF_ERROR(RABBET_VEC_PUSH(rabbet_allocator_system(),
                                           &bench->times, now - before));
  }
  return rabbet_ok();
}

// Nearest rank; times are sorted.
static double percentile_ms(const rabbet_times_t* times, double part) {
  size_t index = (size_t)(part * (double)(times->count - 1) + 0.5);
  return (double)times->data[index] / 1e6;
}

// Prints how the last run was launched: graphs and single steps.
static void bench_print_graphs(const rabbet_context_t* context) {
  rabbet_graph_info_t info = {.struct_size = sizeof(info)};
  if (!rabbet_context_graphs(context)) return;
  rabbet_context_graph_info(context, &info);
  printf("%llu of %llu steps replayed from graphs\n",
         (unsigned long long)info.graph_steps,
         (unsigned long long)(info.graph_steps + info.other_steps));
}

static void bench_print(rabbet_bench_t* bench, bool json) {
  rabbet_times_t* times = &bench->times;
  qsort(times->data, times->count, sizeof(times->data[0]), compare_times);
  double sum = 0;
  for (size_t i = 0; i < times->count; ++i)
    sum += (double)times->data[i] / 1e6;
  double mean = sum / (double)times->count;
  double p50 = percentile_ms(times, 0.5);
  double p90 = percentile_ms(times, 0.9);
  double p99 = percentile_ms(times, 0.99);
  double low = percentile_ms(times, 0);
  double high = percentile_ms(times, 1);
  if (json) {
    printf(
        "{\"runs\": %zu, \"mean_ms\": %.6f, \"min_ms\": %.6f, "
        "\"median_ms\": %.6f, \"p90_ms\": %.6f, \"p99_ms\": %.6f, "
        "\"max_ms\": %.6f",
        times->count, mean, low, p50, p90, p99, high);
    return;
  }
  bench_print_graphs(bench->context);
  printf(
      "%zu run%s, %.1f a second\n"
      "latency in ms: median %.4f, mean %.4f, min %.4f, p90 %.4f, p99 %.4f, "
      "max %.4f\n",
      times->count, rabbet_plural(times->count), 1e3 / mean, p50, mean, low,
      p90, p99, high);
}

// ---- Times by layer --------------------------------------------------------

static void layer_times_print(const rabbet_layer_times_t* times) {
  double total = rabbet_layer_times_sum(times);
  printf("\n%10s %6s  layer (mean of %d runs)\n", "us", "%",
         (int)RABBET_LAYER_TIMES_RUNS);
  for (size_t i = 0; i < times->layers.count; ++i) {
    const rabbet_layer_time_t* layer = &times->layers.data[i];
    rabbet_cli_print(stdout, "%10.2f %6.2f  %s\n",
                     layer->total_ms * 1e3 / RABBET_LAYER_TIMES_RUNS,
                     total > 0 ? 100 * layer->total_ms / total : 0.0,
                     layer->name);
  }
}

static rabbet_status_t layer_times_print_json(
    const rabbet_layer_times_t* times) {
  rabbet_strbuf_t text;
  rabbet_strbuf_initialize(rabbet_allocator_system(), &text);
  for (size_t i = 0; i < times->layers.count; ++i) {
    const rabbet_layer_time_t* layer = &times->layers.data[i];
    rabbet_strbuf_printf(&text, "%s\n {\"name\": ", i ? "," : "");
    rabbet_strbuf_json_string(&text, layer->name);
    rabbet_strbuf_printf(&text, ", \"mean_ms\": %.6f}",
                         layer->total_ms / RABBET_LAYER_TIMES_RUNS);
  }
  rabbet_status_t status = rabbet_strbuf_status(&text);
  if (rabbet_is_ok(status)) {
    printf(", \"layers\": [%s]", rabbet_strbuf_text(&text));
  }
  rabbet_strbuf_deinitialize(&text);
  return status;
}

static rabbet_status_t bench_layers(rabbet_context_t* context, bool json) {
  rabbet_layer_times_t times;
  rabbet_status_t status = rabbet_layer_times_measure(context, &times);
  if (rabbet_is_ok(status) && json) {
    status = layer_times_print_json(&times);
  } else if (rabbet_is_ok(status)) {
    layer_times_print(&times);
  }
  rabbet_layer_times_deinitialize(&times);
  return status;
}

// ---- The command -----------------------------------------------------------

static rabbet_status_t bench_context(const rabbet_arguments_t* arguments,
                                     rabbet_context_t* context) {
  rabbet_bench_t bench = {.context = context};
  rabbet_context_set_graphs(context,
                            rabbet_argument_flag(arguments, "--graphs"));
  RABBET_RETURN_IF_ERROR(rabbet_argument_int(
      arguments, "--iterations", 1, 1000000000, 10, &bench.iterations));
  RABBET_RETURN_IF_ERROR(
      rabbet_argument_seconds(arguments, "--warmup", 0.2, &bench.warmup));
  RABBET_RETURN_IF_ERROR(
      rabbet_argument_seconds(arguments, "--duration", 3, &bench.duration));
  rabbet_tensor_set_t* tensors = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_tensor_set_create(arguments, context, &tensors));
  rabbet_status_t status = bench_loop(&bench, context);
  if (rabbet_is_ok(status)) {
    bool json = rabbet_argument_flag(arguments, "--json");
    bench_print(&bench, json);
    if (rabbet_argument_flag(arguments, "--layers")) {
      status = bench_layers(context, json);
    }
    if (json) printf("}\n");
  }
  rabbet_vec_free(rabbet_allocator_system(), &bench.times);
  rabbet_tensor_set_destroy(tensors);
  return status;
}

static rabbet_status_t bench_run(const rabbet_arguments_t* arguments) {
  RABBET_RETURN_IF_ERROR(rabbet_cli_load_plugins(arguments));
  rabbet_session_t session;
  RABBET_RETURN_IF_ERROR(
      rabbet_session_open(arguments, arguments->operands[0], &session));
  rabbet_status_t status = bench_context(arguments, session.context);
  rabbet_session_close(&session);
  return status;
}

static const rabbet_option_t bench_options[] = {
    {"--inputs", RABBET_OPTION_LIST, "FILE.npz",
     "inputs by name; or NAME=FILE.npy. Others are random"},
    {"--seed", RABBET_OPTION_VALUE, "N", "of the random inputs (default 0)"},
    {"--iterations", RABBET_OPTION_VALUE, "N", "runs, at least (default 10)"},
    {"--duration", RABBET_OPTION_VALUE, "SECONDS", "at least (default 3)"},
    {"--warmup", RABBET_OPTION_VALUE, "SECONDS", "before it (default 0.2)"},
    {"--layers", RABBET_OPTION_FLAG, NULL, "time each layer, too"},
    {"--graphs", RABBET_OPTION_FLAG, NULL,
     "replay runs from CUDA graphs where they can be recorded"},
    {"--json", RABBET_OPTION_FLAG, NULL, "print JSON"},
    {"--profile-index", RABBET_OPTION_VALUE, "N", "optimization profile"},
    RABBET_LOAD_OPTIONS,
    RABBET_BUILD_OPTIONS,
};

const rabbet_command_t rabbet_command_bench = {
    .name = "bench",
    .operands = "PLAN|MODEL.onnx",
    .summary = "time a plan (a model is built first)",
    .options = bench_options,
    .option_count = sizeof(bench_options) / sizeof(bench_options[0]),
    .min_operands = 1,
    .max_operands = 1,
    .run = bench_run,
};
