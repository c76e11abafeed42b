// Prints an engine for `rabbet exec`: layers, their times, weights, profiles.
#include <string.h>

#include "base/file.h"
#include "base/strbuf.h"
#include "cli/exec.h"
#include "cli/layer_times.h"

// ---- Times of layers

static double exec_layer_sum(const rabbet_layer_times_t* times) {
  double sum = rabbet_layer_times_sum(times);
  return sum > 0 ? sum : 1;
}

static void exec_print_layers(const rabbet_layer_times_t* times) {
  double sum = exec_layer_sum(times);
  rabbet_exec_log('I',
                  "=== Profile (%d iterations ) ===", RABBET_LAYER_TIMES_RUNS);
  rabbet_exec_log('I', "   Time(ms)     Avg.(ms)   Time(%%)   Layer");
  for (size_t i = 0; i < times->layers.count; ++i) {
    const rabbet_layer_time_t* layer = &times->layers.data[i];
    rabbet_exec_log('I', "%11.4f  %11.4f   %7.1f   %s", layer->total_ms,
                    layer->total_ms / RABBET_LAYER_TIMES_RUNS,
                    100 * layer->total_ms / sum, layer->name);
  }
  rabbet_exec_log('I', "%11.4f  %11.4f   %7.1f   Total", sum,
                  sum / RABBET_LAYER_TIMES_RUNS, 100.0);
}

static rabbet_status_t exec_write_text(const char* path,
                                       rabbet_strbuf_t* text) {
  rabbet_status_t status = rabbet_strbuf_status(text);
  rabbet_span_t part = {(const uint8_t*)text->data, text->size};
  if (rabbet_is_ok(status)) status = rabbet_file_write(path, &part, 1);
  rabbet_strbuf_deinitialize(text);
  return status;
}

static rabbet_status_t exec_export_layers(const rabbet_layer_times_t* times,
                                          const char* path) {
  rabbet_strbuf_t text;
  double sum = exec_layer_sum(times);
  rabbet_strbuf_initialize(rabbet_allocator_system(), &text);
  rabbet_strbuf_printf(&text, "[\n  {\"count\": %d}", RABBET_LAYER_TIMES_RUNS);
  for (size_t i = 0; i < times->layers.count; ++i) {
    const rabbet_layer_time_t* layer = &times->layers.data[i];
    rabbet_strbuf_printf(&text, ",\n  {\"name\": ");
    rabbet_strbuf_json_string(&text, layer->name);
    rabbet_strbuf_printf(&text,
                         ", \"timeMs\": %.6f, \"averageMs\": %.6f, "
                         "\"percentage\": %.4f}",
                         layer->total_ms,
                         layer->total_ms / RABBET_LAYER_TIMES_RUNS,
                         100 * layer->total_ms / sum);
  }
  rabbet_strbuf_printf(&text, "\n]\n");
  return exec_write_text(path, &text);
}

static rabbet_status_t exec_profile_layers(const rabbet_exec_t* exec,
                                           rabbet_context_t* context) {
  const char* path = rabbet_exec_flag(exec, "--exportProfile");
  bool print = rabbet_exec_flag(exec, "--dumpProfile") != NULL;
  rabbet_layer_times_t times;
  if (!path && !print) return rabbet_ok();
  rabbet_status_t status = rabbet_layer_times_measure(context, &times);
  if (rabbet_is_ok(status) && print) exec_print_layers(&times);
  if (rabbet_is_ok(status) && path) status = exec_export_layers(&times, path);
  rabbet_layer_times_deinitialize(&times);
  return status;
}

// ---- Layers, weights, profiles

static rabbet_status_t exec_inspect(const rabbet_exec_t* exec,
                                    rabbet_engine_t* engine,
                                    rabbet_context_t* context) {
  rabbet_allocator_t allocator = rabbet_allocator_system();
  const char* path = rabbet_exec_flag(exec, "--exportLayerInfo");
  rabbet_status_t status = rabbet_ok();
  char* text = NULL;
  if (rabbet_exec_flag(exec, "--dumpLayerInfo")) {
    status = rabbet_engine_inspect(engine, context, -1, RABBET_INSPECT_TEXT,
                                   allocator, &text);
    if (rabbet_is_ok(status))
      rabbet_exec_log('I', "=== Layer information ===\n%s", text);
    rabbet_free(allocator, text);
  }
  if (!rabbet_is_ok(status) || !path) return status;
  RABBET_RETURN_IF_ERROR(rabbet_engine_inspect(
      engine, context, -1, RABBET_INSPECT_JSON, allocator, &text));
  rabbet_span_t part = {(const uint8_t*)text, strlen(text)};
  status = rabbet_file_write(path, &part, 1);
  rabbet_free(allocator, text);
  return status;
}

static rabbet_status_t exec_print_refit(rabbet_engine_t* engine) {
  rabbet_refitter_t* refitter = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_refitter_create(engine, rabbet_allocator_system(), &refitter));
  rabbet_exec_log('I', "=== Weights that can be refitted ===");
  for (size_t i = 0; i < rabbet_refitter_count(refitter); ++i) {
    rabbet_refit_info_t info = {.struct_size = sizeof(info)};
    char dims[192];
    rabbet_status_t status = rabbet_refitter_info(refitter, i, &info);
    if (rabbet_is_ok(status))
      rabbet_exec_log('I', "%s: %s %s, layer '%s'%s", info.name,
                      rabbet_dtype_name(info.dtype),
                      rabbet_dims_print(&info.dims, dims, sizeof(dims)),
                      info.layer, info.is_missing ? ", missing" : "");
    rabbet_status_ignore(status);
  }
  rabbet_refitter_destroy(refitter);
  return rabbet_ok();
}

static rabbet_status_t exec_print_profiles(const rabbet_engine_t* engine) {
  char texts[3][192];
  for (size_t p = 0; p < rabbet_engine_profile_count(engine); ++p) {
    rabbet_exec_log('I', "=== Optimization profile %zu ===", p);
    for (size_t i = 0; i < rabbet_engine_io_count(engine); ++i) {
      const rabbet_io_t* io = rabbet_engine_io(engine, i);
      rabbet_dims_t dims[3];
      if (!io->is_input) continue;
      RABBET_RETURN_IF_ERROR(rabbet_engine_profile_shape(engine, p, i, &dims[0],
                                                         &dims[1], &dims[2]));
      for (int k = 0; k < 3; ++k)
        rabbet_dims_print(&dims[k], texts[k], sizeof(texts[k]));
      rabbet_exec_log('I', "%s: min %s, opt %s, max %s", io->name, texts[0],
                      texts[1], texts[2]);
    }
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_exec_describe(const rabbet_exec_t* exec,
                                     rabbet_engine_t* engine,
                                     rabbet_context_t* context) {
  if (rabbet_exec_flag(exec, "--dumpOptimizationProfile"))
    RABBET_RETURN_IF_ERROR(exec_print_profiles(engine));
  if (rabbet_exec_flag(exec, "--dumpRefit"))
    RABBET_RETURN_IF_ERROR(exec_print_refit(engine));
  RABBET_RETURN_IF_ERROR(exec_inspect(exec, engine, context));
  return context ? exec_profile_layers(exec, context) : rabbet_ok();
}
