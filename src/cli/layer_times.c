#include "cli/layer_times.h"

static void layer_times_report(void* user_data, const char* layer,
                               float milliseconds) {
  rabbet_layer_times_t* times = user_data;
  if (!rabbet_is_ok(times->status)) return;
  if (times->next == times->layers.count) {
    rabbet_layer_time_t entry = {layer, 0};
    times->status =
        RABBET_VEC_PUSH(rabbet_allocator_system(), &times->layers, entry);
    if (!rabbet_is_ok(times->status)) return;
  }
  times->layers.data[times->next++].total_ms += (double)milliseconds;
}

rabbet_status_t rabbet_layer_times_measure(rabbet_context_t* context,
                                           rabbet_layer_times_t* out_times) {
  *out_times = (rabbet_layer_times_t){0};
  rabbet_status_t status = rabbet_context_set_profiler(
      context, (rabbet_profiler_t){out_times, layer_times_report});
  for (int i = 0; rabbet_is_ok(status) && i < RABBET_LAYER_TIMES_RUNS; ++i) {
    out_times->next = 0;
    status = rabbet_context_execute(context, NULL);
  }
  status = rabbet_status_join(status, out_times->status);
  out_times->status = rabbet_ok();
  return rabbet_status_join(
      status, rabbet_context_set_profiler(context, (rabbet_profiler_t){0}));
}

void rabbet_layer_times_deinitialize(rabbet_layer_times_t* times) {
  rabbet_vec_free(rabbet_allocator_system(), &times->layers);
}

double rabbet_layer_times_sum(const rabbet_layer_times_t* times) {
  double sum = 0;
  for (size_t i = 0; i < times->layers.count; ++i)
    sum += times->layers.data[i].total_ms;
  return sum;
}
