// Calls of a plugin in a build: outputs, formats, tactics.
#include "plugin/instance.h"

#include <string.h>

static bool dtype_is_valid(rabbet_dtype_t dtype) {
  return dtype >= 0 && dtype < RABBET_DTYPE_COUNT;
}

static rabbet_status_t output_check(const rabbet_dim_builder_t* builder,
                                    const rabbet_plugin_output_t* output,
                                    size_t index, size_t input_count) {
  if (!dtype_is_valid(output->dtype)) {
    return RABBET_STATUS(RABBET_STATUS_PLUGIN,
                         "output %zu: %d is not a data type", index,
                         (int)output->dtype);
  }
  if (output->rank < 0 || output->rank > RABBET_MAX_RANK) {
    return RABBET_STATUS(RABBET_STATUS_PLUGIN,
                         "output %zu: rank %d, expected 0 to %d", index,
                         output->rank, RABBET_MAX_RANK);
  }
  for (int32_t axis = 0; axis < output->rank; ++axis) {
    int64_t value = 0;
    if (output->dims[axis] < 0 ||
        (size_t)output->dims[axis] >= rabbet_expr_node_count(builder->graph)) {
      return RABBET_STATUS(RABBET_STATUS_PLUGIN,
                           "output %zu: dimension %d was not set", index, axis);
    }
    if (rabbet_expr_is_constant(builder->graph, output->dims[axis], &value) &&
        value < 0) {
      return RABBET_STATUS(RABBET_STATUS_PLUGIN,
                           "output %zu: dimension %d is negative (%lld)", index,
                           axis, (long long)value);
    }
  }
  if (output->aliased_input >= (int64_t)input_count ||
      output->aliased_input < -1) {
    return RABBET_STATUS(
        RABBET_STATUS_PLUGIN,
        "output %zu is aliased to input %d, but there are %zu inputs", index,
        output->aliased_input, input_count);
  }
  if (output->is_size_tensor &&
      (output->rank != 0 || (output->dtype != RABBET_DTYPE_INT32 &&
                             output->dtype != RABBET_DTYPE_INT64))) {
    return RABBET_STATUS(RABBET_STATUS_PLUGIN,
                         "output %zu is a size tensor: it must be 0-D INT32 or "
                         "INT64, not rank %d %s",
                         index, output->rank, rabbet_dtype_name(output->dtype));
  }
  return rabbet_ok();
}

static rabbet_status_t alias_check(const rabbet_plugin_input_t* inputs,
                                   const rabbet_plugin_output_t* outputs,
                                   size_t count) {
  for (size_t i = 0; i < count; ++i) {
    int32_t input = outputs[i].aliased_input;
    if (input < 0) continue;
    if (outputs[i].dtype != inputs[input].dtype ||
        outputs[i].rank != inputs[input].rank ||
        memcmp(outputs[i].dims, inputs[input].dims,
               (size_t)outputs[i].rank * sizeof(rabbet_dim_t)) != 0) {
      return RABBET_STATUS(RABBET_STATUS_PLUGIN,
                           "output %zu is aliased to input %d: both must have "
                           "the same type and shape",
                           i, input);
    }
    for (size_t j = 0; j < i; ++j) {
      if (outputs[j].aliased_input == input) {
        return RABBET_STATUS(RABBET_STATUS_PLUGIN,
                             "outputs %zu and %zu are both aliased to input "
                             "%d: an input can hold one output",
                             j, i, input);
      }
    }
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_plugin_describe(rabbet_plugin_t* plugin,
                                       rabbet_dim_builder_t* builder,
                                       const rabbet_plugin_input_t* inputs,
                                       size_t input_count,
                                       rabbet_plugin_output_t* outputs) {
  size_t count = builder->output_count;
  for (size_t i = 0; i < count; ++i) {
    outputs[i] = (rabbet_plugin_output_t){.dtype = RABBET_DTYPE_NONE,
                                          .aliased_input = -1};
    for (int axis = 0; axis < RABBET_MAX_RANK; ++axis) {
      outputs[i].dims[axis] = RABBET_EXPR_NONE;
    }
  }
  rabbet_status_t status = plugin->vtable.describe(
      plugin->self, builder, inputs, input_count, outputs);
  for (size_t i = 0; rabbet_is_ok(status) && i < count; ++i) {
    status = output_check(builder, &outputs[i], i, input_count);
  }
  if (rabbet_is_ok(status)) {
    status = alias_check(inputs, outputs, count);
  }
  return rabbet_plugin_annotate(plugin, "describing its outputs", status);
}

// Stands between the plugin and the caller's sink: checks and counts.
typedef struct combination_check_t {
  const rabbet_plugin_query_t* query;
  rabbet_plugin_combination_sink_t sink;
  size_t count;
} combination_check_t;

static rabbet_status_t combination_add(
    void* context, const rabbet_plugin_type_format_t* tensors) {
  combination_check_t* check = context;
  const rabbet_plugin_query_t* query = check->query;
  size_t count = query->input_count + query->output_count;
  for (size_t i = 0; i < count; ++i) {
    size_t bytes = 0;
    if (!dtype_is_valid(tensors[i].dtype)) {
      return RABBET_STATUS(
          RABBET_STATUS_PLUGIN,
          "combination %zu: %d is not a data type (tensor %zu)", check->count,
          (int)tensors[i].dtype, i);
    }
    rabbet_status_t fits = rabbet_tensor_bytes(
        tensors[i].dtype, tensors[i].format, &query->tensors[i].opt, &bytes);
    if (!rabbet_is_ok(fits)) {
      return rabbet_status_annotate(fits, "combination %zu: tensor %zu as %s",
                                    check->count, i,
                                    rabbet_format_name(tensors[i].format));
    }
  }
  ++check->count;
  return check->sink.add(check->sink.context, tensors);
}

// A plugin without `combinations` takes the network's own types in LINEAR.
static rabbet_status_t combination_add_own(combination_check_t* check) {
  const rabbet_plugin_query_t* query = check->query;
  size_t count = query->input_count + query->output_count;
  rabbet_plugin_type_format_t* own = NULL;
  rabbet_allocator_t allocator = rabbet_allocator_system();
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(allocator, (count + 1) * sizeof(*own), (void**)&own));
  for (size_t i = 0; i < count; ++i) {
    own[i].dtype = query->tensors[i].dtype;
    own[i].format = RABBET_FORMAT_LINEAR;
  }
  rabbet_status_t status = combination_add(check, own);
  rabbet_free(allocator, own);
  return status;
}

rabbet_status_t rabbet_plugin_combinations(
    rabbet_plugin_t* plugin, const rabbet_plugin_query_t* query,
    rabbet_plugin_combination_sink_t sink) {
  combination_check_t check = {.query = query, .sink = sink};
  rabbet_plugin_combination_sink_t checked = {&check, combination_add};
  rabbet_status_t status =
      plugin->vtable.combinations
          ? plugin->vtable.combinations(plugin->self, query, checked)
          : combination_add_own(&check);
  if (rabbet_is_ok(status) && check.count == 0) {
    status = RABBET_STATUS(RABBET_STATUS_PLUGIN,
                           "no combination of types and formats is supported "
                           "on device '%s'",
                           query->device);
  }
  return rabbet_plugin_annotate(plugin, "listing types and formats", status);
}

typedef struct tactic_check_t {
  rabbet_plugin_tactic_sink_t sink;
  size_t count;
} tactic_check_t;

static rabbet_status_t tactic_add(void* context, int32_t tactic) {
  tactic_check_t* check = context;
  if (tactic <= 0) {
    return RABBET_STATUS(RABBET_STATUS_PLUGIN,
                         "tactic %d: tactics are positive; 0 stands for the "
                         "default when there are none",
                         tactic);
  }
  ++check->count;
  return check->sink.add(check->sink.context, tactic);
}

rabbet_status_t rabbet_plugin_tactics(rabbet_plugin_t* plugin,
                                      const rabbet_plugin_query_t* query,
                                      rabbet_plugin_tactic_sink_t sink) {
  tactic_check_t check = {.sink = sink};
  rabbet_status_t status = rabbet_ok();
  if (plugin->vtable.tactics) {
    rabbet_plugin_tactic_sink_t checked = {&check, tactic_add};
    status = plugin->vtable.tactics(plugin->self, query, checked);
  }
  if (rabbet_is_ok(status) && check.count == 0) {
    status = sink.add(sink.context, 0);
  }
  return rabbet_plugin_annotate(plugin, "listing tactics", status);
}
