// Times of an engine's layers, summed over some runs.
#ifndef RABBET_SRC_CLI_LAYER_TIMES_H_
#define RABBET_SRC_CLI_LAYER_TIMES_H_

#include "base/vec.h"
#include "rabbet/engine.h"

enum { RABBET_LAYER_TIMES_RUNS = 20 };

typedef struct rabbet_layer_time_t {
  const char* name;  // the engine's
  double total_ms;
} rabbet_layer_time_t;

typedef struct rabbet_layer_times_t {
  RABBET_VEC(rabbet_layer_time_t) layers;
  size_t next;  // layers are reported in the same order in every run
  rabbet_status_t status;
} rabbet_layer_times_t;

// Freed by rabbet_layer_times_deinitialize, also on failure.
rabbet_status_t rabbet_layer_times_measure(rabbet_context_t* context,
                                           rabbet_layer_times_t* out_times);
void rabbet_layer_times_deinitialize(rabbet_layer_times_t* times);
double rabbet_layer_times_sum(const rabbet_layer_times_t* times);

#endif  // RABBET_SRC_CLI_LAYER_TIMES_H_
