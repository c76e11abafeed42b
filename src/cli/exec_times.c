// Timing for `rabbet exec`, and its printed figures.
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "base/strbuf.h"
#include "base/thread.h"
#include "base/vec.h"
#include "cli/exec.h"

typedef struct exec_time_t {
  double latency;  // ms, from the call until all is done
  double enqueue;  // ms, the call alone
} exec_time_t;

typedef RABBET_VEC(exec_time_t) exec_times_t;

typedef struct exec_settings_t {
  double iterations, warm_up, duration, sleep, idle, average;
  const char* percentiles;
} exec_settings_t;

static rabbet_status_t exec_settings(const rabbet_exec_t* exec,
                                     exec_settings_t* out) {
  const struct {
    const char* name;
    double low, fallback;
    double* value;
  } numbers[] = {
      {"--iterations", 0, 10, &out->iterations},
      {"--warmUp", 0, 200, &out->warm_up},
      {"--duration", 0, 3, &out->duration},
      {"--sleepTime", 0, 0, &out->sleep},
      {"--idleTime", 0, 0, &out->idle},
      {"--avgRuns", 1, 10, &out->average},
  };
  for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); ++i)
    RABBET_RETURN_IF_ERROR(
        rabbet_exec_number(exec, numbers[i].name, numbers[i].low, 1e9,
                           numbers[i].fallback, numbers[i].value));
  out->percentiles = rabbet_exec_flag(exec, "--percentile");
  if (!out->percentiles) out->percentiles = "90,95,99";
  return rabbet_ok();
}

static void exec_sleep(double milliseconds) {
  struct timespec time = {.tv_sec = (time_t)(milliseconds / 1e3)};
  time.tv_nsec = (long)((milliseconds - (double)time.tv_sec * 1e3) * 1e6);
  if (milliseconds > 0) nanosleep(&time, NULL);
}

// ---- Runs

static rabbet_status_t exec_run(rabbet_context_t* context, exec_time_t* out) {
  int64_t start = rabbet_time_ns();
  RABBET_RETURN_IF_ERROR(rabbet_context_execute(context, NULL));
  int64_t called = rabbet_time_ns();
  RABBET_RETURN_IF_ERROR(
      rabbet_engine_synchronize(rabbet_context_engine(context), NULL));
  out->enqueue = (double)(called - start) / 1e6;
  out->latency = (double)(rabbet_time_ns() - start) / 1e6;
  return rabbet_ok();
}

static rabbet_status_t exec_loop(rabbet_context_t* context,
                                 const exec_settings_t* settings,
                                 exec_times_t* times, double* out_seconds) {
  exec_time_t time;
  int64_t start = rabbet_time_ns();
  do {
    RABBET_RETURN_IF_ERROR(exec_run(context, &time));
  } while ((double)(rabbet_time_ns() - start) < settings->warm_up * 1e6);
  start = rabbet_time_ns();
  while ((double)(rabbet_time_ns() - start) < settings->duration * 1e9 ||
         (double)times->count < settings->iterations) {
    RABBET_RETURN_IF_ERROR(exec_run(context, &time));
    RABBET_RETURN_IF_ERROR(
        RABBET_VEC_PUSH(rabbet_allocator_system(), times, time));
    exec_sleep(settings->idle);
  }
  *out_seconds = (double)(rabbet_time_ns() - start) / 1e9;
  return rabbet_ok();
}

// ---- Without copies: inputs and outputs stay on the device

typedef struct exec_device_t {
  rabbet_engine_t* engine;
  void** outputs;  // [io], ours
  size_t count;
} exec_device_t;

static void exec_device_release(exec_device_t* device) {
  for (size_t i = 0; device->outputs && i < device->count; ++i)
    rabbet_engine_free(device->engine, device->outputs[i]);
  rabbet_free(rabbet_allocator_system(), device->outputs);
}

// After a run from the host, which has left the inputs on the device.
static rabbet_status_t exec_device_bind(rabbet_context_t* context,
                                        exec_device_t* device) {
  for (size_t io = 0; io < device->count; ++io) {
    const rabbet_io_t* info = rabbet_engine_io(device->engine, io);
    void* address = rabbet_context_address(context, io);
    // Shapes are read on the host, which keeps its memory.
    if (info->is_shape_input) continue;
    if (!info->is_input) {
      size_t bytes = 0;
      RABBET_RETURN_IF_ERROR(rabbet_context_set_output_allocator(
          context, io, (rabbet_output_allocator_t){0}));
      RABBET_RETURN_IF_ERROR(rabbet_context_bytes(context, io, &bytes));
      RABBET_RETURN_IF_ERROR(
          rabbet_engine_allocate(device->engine, bytes, &device->outputs[io]));
      address = device->outputs[io];
    }
    RABBET_RETURN_IF_ERROR(rabbet_context_set_address(context, io, address));
  }
  return rabbet_ok();
}

// ---- Statistics

static int exec_compare(const void* a, const void* b) {
  double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

// Of sorted numbers; nearest rank.
static double exec_percentile(const double* sorted, size_t count,
                              double percent) {
  size_t index = (size_t)(percent / 100 * (double)(count - 1) + 0.5);
  return sorted[index < count ? index : count - 1];
}

static rabbet_status_t exec_print_line(const char* name, double* values,
                                       size_t count, const char* percentiles) {
  rabbet_strbuf_t text;
  double sum = 0;
  qsort(values, count, sizeof(*values), exec_compare);
  for (size_t i = 0; i < count; ++i)
    sum += values[i];
  rabbet_strbuf_initialize(rabbet_allocator_system(), &text);
  rabbet_strbuf_printf(&text,
                       "%s: min = %g ms, max = %g ms, mean = %g ms, median = "
                       "%g ms",
                       name, values[0], values[count - 1], sum / (double)count,
                       exec_percentile(values, count, 50));
  rabbet_status_t status = rabbet_ok();
  for (const char* at = percentiles; rabbet_is_ok(status) && *at;) {
    char* end = NULL;
    double percent = strtod(at, &end);
    if (end == at || (*end && *end != ',') || percent < 0 || percent > 100)
      status = RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                             "--percentile=%s: expected numbers from 0 to 100",
                             percentiles);
    rabbet_strbuf_printf(&text, ", percentile(%g%%) = %g ms", percent,
                         exec_percentile(values, count, percent));
    at = end + (*end == ',');
  }
  if (rabbet_is_ok(status)) status = rabbet_strbuf_status(&text);
  if (rabbet_is_ok(status))
    rabbet_exec_log('I', "%s", rabbet_strbuf_text(&text));
  rabbet_strbuf_deinitialize(&text);
  return status;
}

static rabbet_status_t exec_print_field(const char* name,
                                        const exec_times_t* times,
                                        size_t offset, const char* percentiles,
                                        double* out_sum) {
  double* values = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(rabbet_allocator_system(),
                                         times->count * sizeof(*values),
                                         (void**)&values));
  *out_sum = 0;
  for (size_t i = 0; i < times->count; ++i) {
    memcpy(&values[i], (const char*)&times->data[i] + offset, sizeof(double));
    *out_sum += values[i];
  }
  rabbet_status_t status =
      exec_print_line(name, values, times->count, percentiles);
  rabbet_free(rabbet_allocator_system(), values);
  return status;
}

static void exec_print_averages(const exec_times_t* times, double average) {
  size_t step = (size_t)average, lines = times->count / step;
  rabbet_exec_log('I', "=== Trace details ===");
  rabbet_exec_log('I', "Trace averages of %zu runs:", step);
  // The first times show whether the runs have settled.
  for (size_t k = 0; k < lines && k < 10; ++k) {
    double latency = 0, enqueue = 0;
    for (size_t i = 0; i < step; ++i) {
      latency += times->data[k * step + i].latency / average;
      enqueue += times->data[k * step + i].enqueue / average;
    }
    rabbet_exec_log('I',
                    "Average on %zu runs - Host latency: %g ms (enqueue %g ms)",
                    step, latency, enqueue);
  }
}

static rabbet_status_t exec_export_times(const rabbet_exec_t* exec,
                                         const exec_times_t* times) {
  const char* path = rabbet_exec_flag(exec, "--exportTimes");
  rabbet_strbuf_t text;
  if (!path) return rabbet_ok();
  rabbet_strbuf_initialize(rabbet_allocator_system(), &text);
  rabbet_strbuf_printf(&text, "[\n");
  for (size_t i = 0; i < times->count; ++i)
    rabbet_strbuf_printf(
        &text, "%s  {\"enqueueMs\": %.6f, \"latencyMs\": %.6f}", i ? ",\n" : "",
        times->data[i].enqueue, times->data[i].latency);
  rabbet_strbuf_printf(&text, "\n]\n");
  rabbet_status_t status = rabbet_strbuf_status(&text);
  rabbet_span_t part = {(const uint8_t*)text.data, text.size};
  if (rabbet_is_ok(status)) status = rabbet_file_write(path, &part, 1);
  rabbet_strbuf_deinitialize(&text);
  return status;
}

static rabbet_status_t exec_print(const exec_settings_t* settings,
                                  const exec_times_t* host,
                                  const exec_times_t* device, double seconds) {
  const size_t latency = offsetof(exec_time_t, latency);
  const size_t enqueue = offsetof(exec_time_t, enqueue);
  const char* percentiles = settings->percentiles;
  double total = 0, ignored = 0;
  exec_print_averages(host, settings->average);
  rabbet_exec_log('I', "=== Performance summary ===");
  rabbet_exec_log('I', "Throughput: %g qps", (double)host->count / seconds);
  RABBET_RETURN_IF_ERROR(
      exec_print_field("Latency", host, latency, percentiles, &ignored));
  RABBET_RETURN_IF_ERROR(
      exec_print_field("Enqueue Time", device, enqueue, percentiles, &ignored));
  RABBET_RETURN_IF_ERROR(exec_print_field("GPU Compute Time", device, latency,
                                          percentiles, &total));
  rabbet_exec_log('I', "Total Host Walltime: %g s", seconds);
  rabbet_exec_log('I', "Total GPU Compute Time: %g s", total / 1e3);
  rabbet_exec_log('I',
                  "Latency is from the call until the results are there, "
                  "with the copies from and to the host's memory if there are "
                  "any; compute time is without them.");
  return rabbet_ok();
}

static rabbet_status_t exec_both(const rabbet_exec_t* exec,
                                 rabbet_context_t* context,
                                 const exec_settings_t* settings,
                                 exec_times_t* host, exec_times_t* device) {
  rabbet_engine_t* engine = rabbet_context_engine(context);
  bool copies = strncmp(rabbet_engine_device(engine), "cpu", 3) != 0;
  exec_device_t ios = {.engine = engine,
                       .count = rabbet_engine_io_count(engine)};
  exec_settings_t again = *settings;
  double seconds = 0, device_seconds = 0;
  exec_time_t first;
  exec_sleep(settings->sleep);
  if (!copies) {
    RABBET_RETURN_IF_ERROR(exec_loop(context, settings, host, &seconds));
    RABBET_RETURN_IF_ERROR(exec_print(settings, host, host, seconds));
    return rabbet_exec_describe(exec, engine, context);
  }
  RABBET_RETURN_IF_ERROR(exec_run(context, &first));
  bool both = !rabbet_exec_flag(exec, "--noDataTransfers");
  if (both)
    RABBET_RETURN_IF_ERROR(exec_loop(context, settings, host, &seconds));
  if (both) again.duration /= 4;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(rabbet_allocator_system(),
                                         ios.count * sizeof(void*),
                                         (void**)&ios.outputs));
  rabbet_status_t status = exec_device_bind(context, &ios);
  if (rabbet_is_ok(status))
    status = exec_loop(context, &again, device, &device_seconds);
  if (rabbet_is_ok(status))
    status = both ? exec_print(settings, host, device, seconds)
                  : exec_print(settings, device, device, device_seconds);
  // Separate runs for the layers' times, while the context has memory for its
  // outputs.
  if (rabbet_is_ok(status))
    status = rabbet_exec_describe(exec, engine, context);
  exec_device_release(&ios);
  return status;
}

rabbet_status_t rabbet_exec_measure(const rabbet_exec_t* exec,
                                    rabbet_context_t* context,
                                    rabbet_tensor_set_t* tensors) {
  exec_settings_t settings = {0};
  exec_times_t host = {0}, device = {0};
  RABBET_RETURN_IF_ERROR(exec_settings(exec, &settings));
  rabbet_context_set_graphs(context,
                            rabbet_exec_flag(exec, "--useCudaGraph") != NULL);
  // Outputs are handled first, while they still go to the host.
  const char* path = rabbet_exec_flag(exec, "--exportOutput");
  rabbet_status_t status = rabbet_context_execute(context, NULL);
  if (rabbet_is_ok(status) && path)
    status = rabbet_tensor_set_save_outputs(tensors, path);
  if (rabbet_is_ok(status) && rabbet_exec_flag(exec, "--dumpOutput"))
    status = rabbet_tensor_set_print(tensors, stdout);
  if (rabbet_is_ok(status))
    status = exec_both(exec, context, &settings, &host, &device);
  if (rabbet_is_ok(status))
    status = exec_export_times(exec, host.count > 0 ? &host : &device);
  rabbet_vec_free(rabbet_allocator_system(), &host);
  rabbet_vec_free(rabbet_allocator_system(), &device);
  return status;
}
