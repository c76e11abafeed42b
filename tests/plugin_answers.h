// Answers of simple plugins: one output, like the first input.
#ifndef RABBET_TESTS_PLUGIN_ANSWERS_H_
#define RABBET_TESTS_PLUGIN_ANSWERS_H_

#include <string.h>

#include "rabbet/plugin.h"

static inline int32_t plugin_one_output(void* self) {
  (void)self;
  return 1;
}

static inline void plugin_like(const rabbet_plugin_input_t* input,
                               rabbet_plugin_output_t* output) {
  output->dtype = input->dtype;
  output->rank = input->rank;
  memcpy(output->dims, input->dims, sizeof(output->dims));
}

static inline rabbet_status_t plugin_describe_like(
    void* self, rabbet_dim_builder_t* builder,
    const rabbet_plugin_input_t* inputs, size_t input_count,
    rabbet_plugin_output_t* outputs) {
  (void)self, (void)builder, (void)input_count;
  plugin_like(&inputs[0], &outputs[0]);
  return rabbet_ok();
}

#endif  // RABBET_TESTS_PLUGIN_ANSWERS_H_
