// A program that makes, builds, refits and runs a network with a plugin of a
// library: y = 2 * x + w. It is compiled against the frozen headers, and ones
// with a field more in each structure.
//
//   program LIBRARY [ERROR]   ERROR: part of the error that is expected
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rabbet/rabbet.h"

#define SYSTEM rabbet_allocator_system()
#define COUNT 6

static void expect(bool holds, const char* text) {
  if (holds) return;
  fprintf(stderr, "expected: %s\n", text);
  exit(1);
}
#define EXPECT(condition) expect((condition), #condition)

static rabbet_status_t make_network(rabbet_network_t* network) {
  static const float w[COUNT] = {1, 2, 3, 4, 5, 6};
  const rabbet_dims_t dims = {.rank = 2, .d = {2, 3}};
  const double factor = 2;
  const int64_t sum_op = 0;
  const rabbet_attr_t factor_attr = {
      .name = "factor", .type = RABBET_ATTR_FLOAT, .data = &factor, .count = 1};
  const rabbet_attr_t op_attr = {
      .name = "op", .type = RABBET_ATTR_INT, .data = &sum_op, .count = 1};
  rabbet_tensor_t *x = NULL, *weights = NULL;
  rabbet_layer_t *scale = NULL, *sum = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_network_add_input(network, "x", RABBET_DTYPE_FLOAT, &dims, &x));
  RABBET_RETURN_IF_ERROR(rabbet_network_add_weights(
      network, "w", (rabbet_weights_t){RABBET_DTYPE_FLOAT, w, COUNT}, &dims,
      true, &weights));
  RABBET_RETURN_IF_ERROR(rabbet_network_add_plugin(
      network, "Scale", "1", "abi", "scale", &x, 1, &factor_attr, 1, &scale));
  rabbet_tensor_t* inputs[] = {rabbet_layer_output(scale, 0), weights};
  RABBET_RETURN_IF_ERROR(rabbet_network_add_layer(
      network, "elementwise", "sum", inputs, 2, &op_attr, 1, &sum));
  return rabbet_network_mark_output(network, rabbet_layer_output(sum, 0));
}

// ---- Building

typedef struct progress_t {
  int starts, ends, groups;
} progress_t;

static void phase_start(void* user_data, const char* phase, const char* parent,
                        int32_t steps) {
  (void)phase, (void)parent, (void)steps;
  ++((progress_t*)user_data)->starts;
}

static void phase_end(void* user_data, const char* phase) {
  (void)phase;
  ++((progress_t*)user_data)->ends;
}

// Takes every candidate, having looked at all of them.
static rabbet_status_t select_all(void* user_data,
                                  const rabbet_algorithm_context_t* context,
                                  const rabbet_algorithm_t* algorithms,
                                  size_t count, size_t* indices,
                                  size_t* out_count) {
  ++((progress_t*)user_data)->groups;
  *out_count = count;
  for (size_t i = 0; i < count; ++i) {
    indices[i] = i;
    EXPECT(context->name && algorithms[i].kernel && algorithms[i].tactic_name);
    for (size_t k = 0; k < context->input_count + context->output_count; ++k)
      EXPECT(context->shapes[k][1].d[1] == 3 &&
             algorithms[i].tensors[k].dtype == RABBET_DTYPE_FLOAT);
  }
  return rabbet_ok();
}

static rabbet_status_t build(void** out_plan, size_t* out_size) {
  progress_t progress = {0};
  rabbet_network_t* network = NULL;
  rabbet_builder_config_t* config = NULL;
  rabbet_status_t status = rabbet_network_create(
      RABBET_NETWORK_STRONGLY_TYPED, SYSTEM,
      rabbet_logger_stderr(RABBET_SEVERITY_WARNING), &network);
  if (rabbet_is_ok(status)) status = make_network(network);
  if (rabbet_is_ok(status))
    status = rabbet_builder_config_create(SYSTEM, &config);
  if (rabbet_is_ok(status))
    status = rabbet_builder_config_set_device(config, "cpu");
  if (rabbet_is_ok(status))
    status = rabbet_builder_config_set(config, RABBET_BUILDER_OPTION_FLAGS,
                                       1 << RABBET_BUILDER_REFIT);
  if (rabbet_is_ok(status)) {
    rabbet_builder_config_set_progress(
        config, (rabbet_progress_t){.user_data = &progress,
                                    .phase_start = phase_start,
                                    .phase_end = phase_end});
    rabbet_builder_config_set_selector(
        config, (rabbet_algorithm_selector_t){.user_data = &progress,
                                              .select = select_all});
    status =
        rabbet_build_plan(network, config, SYSTEM, out_plan, out_size, NULL);
    if (rabbet_is_ok(status))
      EXPECT(progress.starts > 0 && progress.starts == progress.ends &&
             progress.groups >= 2);
  }
  rabbet_builder_config_release(config);
  rabbet_network_release(network);
  return status;
}

// ---- Running

static rabbet_status_t refit(rabbet_engine_t* engine) {
  static const float w[COUNT] = {10, 20, 30, 40, 50, 60};
  rabbet_refit_info_t info = {.struct_size = sizeof(info)};
  rabbet_refitter_t* refitter = NULL;
  size_t index = 0;
  RABBET_RETURN_IF_ERROR(rabbet_refitter_create(engine, SYSTEM, &refitter));
  rabbet_status_t status = rabbet_refitter_find(refitter, "w", &index);
  if (rabbet_is_ok(status))
    status = rabbet_refitter_info(refitter, index, &info);
  if (rabbet_is_ok(status)) {
    EXPECT(info.struct_size == sizeof(info) && strcmp(info.name, "w") == 0);
    EXPECT(info.dims.rank == 2 && info.dims.d[1] == 3 && !info.is_missing);
    status = rabbet_refitter_set(
        refitter, index, (rabbet_weights_t){RABBET_DTYPE_FLOAT, w, COUNT});
  }
  if (rabbet_is_ok(status)) status = rabbet_refitter_commit(refitter);
  rabbet_refitter_destroy(refitter);
  return status;
}

static void count_layer(void* user_data, const char* layer,
                        float milliseconds) {
  EXPECT(layer && milliseconds >= 0);
  ++*(int*)user_data;
}

static rabbet_status_t execute(rabbet_context_t* context) {
  const float x[COUNT] = {0, 1, 2, 3, 4, 5};
  float y[COUNT] = {0};
  int layers = 0;
  rabbet_graph_info_t graphs = {.struct_size = sizeof(graphs)};
  RABBET_RETURN_IF_ERROR(rabbet_context_set_profiler(
      context, (rabbet_profiler_t){&layers, count_layer}));
  RABBET_RETURN_IF_ERROR(
      rabbet_context_set_address(context, 0, (void*)(uintptr_t)x));
  RABBET_RETURN_IF_ERROR(rabbet_context_set_address(context, 1, y));
  RABBET_RETURN_IF_ERROR(rabbet_context_execute(context, NULL));
  for (int i = 0; i < COUNT; ++i)
    EXPECT(y[i] == 2 * x[i] + (float)(10 * (i + 1)));
  rabbet_context_graph_info(context, &graphs);
  EXPECT(graphs.struct_size == sizeof(graphs) && graphs.recordings == 0);
  EXPECT(layers >= 2);
  return rabbet_ok();
}

static rabbet_status_t run(const void* plan, size_t size) {
  rabbet_engine_t* engine = NULL;
  rabbet_context_t* context = NULL;
  const rabbet_engine_options_t options = {
      .struct_size = sizeof(options),
#ifdef ADDED_options
      .added = 1,
#endif
      .device = "cpu",
      .logger = rabbet_logger_stderr(RABBET_SEVERITY_WARNING)};
  rabbet_status_t status =
      rabbet_engine_deserialize(plan, size, &options, SYSTEM, &engine);
  if (rabbet_is_ok(status)) {
    const rabbet_io_t* io = rabbet_engine_io(engine, 0);
    EXPECT(io && strcmp(io->name, "x") == 0 && io->dims.d[1] == 3);
    status = refit(engine);
  }
  if (rabbet_is_ok(status))
    status = rabbet_context_create(engine, SYSTEM, &context);
  if (rabbet_is_ok(status)) status = execute(context);
  rabbet_context_destroy(context);
  rabbet_engine_release(engine);
  return status;
}

int main(int argc, char** argv) {
  void* plan = NULL;
  size_t size = 0;
  const char* error = argc > 2 ? argv[2] : NULL;
  rabbet_status_t status = rabbet_plugin_load_library(argv[1]);
  if (rabbet_is_ok(status)) status = build(&plan, &size);
  if (rabbet_is_ok(status)) status = run(plan, size);
  rabbet_free_aligned(SYSTEM, plan, 64);
  const char* found =
      rabbet_is_ok(status) ? NULL : rabbet_status_message(status);
  if (found) printf("%s\n", found);
  bool good = error ? found && strstr(found, error) : !found;
  if (!good) fprintf(stderr, "expected: %s\n", error ? error : "no error");
  rabbet_status_free(status);
  return good ? 0 : 1;
}
