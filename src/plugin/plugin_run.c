// Calls of a plugin of a plan: loading, running, graphs, kernels made ahead of
// time.
#include "plugin/instance.h"

#include <stdio.h>
#include <string.h>

#include "core/attr_set.h"

// ---- Load ------------------------------------------------------------------

typedef struct plugin_take_t {
  const rabbet_plugin_query_t* query;
  int32_t tactic;
  size_t offered;  // combinations, then tactics
  bool found;
} plugin_take_t;

static rabbet_status_t take_combination(
    void* context, const rabbet_plugin_type_format_t* tensors) {
  plugin_take_t* take = context;
  const rabbet_plugin_query_t* query = take->query;
  size_t count = query->input_count + query->output_count;
  bool equal = true;
  for (size_t i = 0; i < count && equal; ++i)
    equal = query->tensors[i].dtype == RABBET_DTYPE_NONE ||
            (tensors[i].dtype == query->tensors[i].dtype &&
             tensors[i].format == query->tensors[i].format);
  ++take->offered;
  take->found = take->found || equal;
  return rabbet_ok();
}

static rabbet_status_t take_tactic(void* context, int32_t tactic) {
  plugin_take_t* take = context;
  ++take->offered;
  take->found = take->found || tactic == take->tactic ||
                tactic == RABBET_PLUGIN_ANY_TACTIC;
  return rabbet_ok();
}

// A build asks with the types of the network, which a plan does not have: where
// the network was weakly typed, they were FLOAT for HALF and BF16.
static rabbet_status_t take_ask(rabbet_plugin_t* plugin, plugin_take_t* take,
                                bool as_float) {
  rabbet_plugin_query_t asked = *take->query;
  size_t count = asked.input_count + asked.output_count;
  rabbet_plugin_tensor_t* tensors = NULL;
  rabbet_allocator_t allocator = rabbet_allocator_system();
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      allocator, (count + 1) * sizeof(*tensors), (void**)&tensors));
  if (count > 0) memcpy(tensors, asked.tensors, count * sizeof(*tensors));
  for (size_t i = 0; i < count && as_float; ++i)
    if (tensors[i].dtype == RABBET_DTYPE_HALF ||
        tensors[i].dtype == RABBET_DTYPE_BF16)
      tensors[i].dtype = RABBET_DTYPE_FLOAT;
  asked.tensors = tensors;
  rabbet_status_t status = plugin->vtable.combinations(
      plugin->self, &asked,
      (rabbet_plugin_combination_sink_t){take, take_combination});
  rabbet_free(allocator, tensors);
  return status;
}

static rabbet_status_t take_types(rabbet_plugin_t* plugin,
                                  plugin_take_t* take) {
  const rabbet_plugin_query_t* query = take->query;
  size_t count = query->input_count + query->output_count;
  char text[512] = "";
  size_t length = 0;
  if (plugin->vtable.combinations) {
    rabbet_status_t status = take_ask(plugin, take, false);
    if (!take->found) {
      rabbet_status_t second = take_ask(plugin, take, true);
      if (rabbet_is_ok(status))
        status = second;
      else
        rabbet_status_ignore(second);
    }
    if (take->found)
      rabbet_status_ignore(status);
    else
      RABBET_RETURN_IF_ERROR(status);
  } else {
    take->found = true;
    for (size_t i = 0; i < count; ++i)
      take->found =
          take->found && query->tensors[i].format == RABBET_FORMAT_LINEAR;
  }
  if (take->found) return rabbet_ok();
  for (size_t i = 0; i < count && length < sizeof(text); ++i)
    length += (size_t)snprintf(text + length, sizeof(text) - length, "%s%s %s",
                               i ? ", " : "",
                               rabbet_dtype_name(query->tensors[i].dtype),
                               rabbet_format_name(query->tensors[i].format));
  return RABBET_STATUS(RABBET_STATUS_INCOMPATIBLE,
                       "the plan's types and formats (%s) are not among those "
                       "that the plugin offers on device '%s'",
                       text, query->device);
}

static rabbet_status_t take_tactics(rabbet_plugin_t* plugin,
                                    plugin_take_t* take) {
  take->offered = 0;
  take->found = false;
  if (plugin->vtable.tactics)
    RABBET_RETURN_IF_ERROR(plugin->vtable.tactics(
        plugin->self, take->query,
        (rabbet_plugin_tactic_sink_t){take, take_tactic}));
  if (take->found || (take->offered == 0 && take->tactic == 0))
    return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_INCOMPATIBLE,
                       "the plan's tactic %d is not among the %zu that the "
                       "plugin offers",
                       take->tactic, take->offered);
}

rabbet_status_t rabbet_plugin_takes(rabbet_plugin_t* plugin,
                                    const rabbet_plugin_query_t* query,
                                    int32_t tactic) {
  plugin_take_t take = {.query = query, .tactic = tactic};
  rabbet_status_t status = take_types(plugin, &take);
  if (rabbet_is_ok(status)) status = take_tactics(plugin, &take);
  return rabbet_plugin_annotate(plugin, "loading a plan", status);
}

typedef struct attr_count_t {
  rabbet_plugin_attr_sink_t sink;
  size_t count;
} attr_count_t;

static rabbet_status_t attr_count_add(void* context,
                                      const rabbet_attr_t* attr) {
  attr_count_t* counter = context;
  if (!attr->name || !*attr->name) {
    return RABBET_STATUS(RABBET_STATUS_PLUGIN, "attribute %zu has no name",
                         counter->count);
  }
  ++counter->count;
  return counter->sink.add(counter->sink.context, attr);
}

static rabbet_status_t absent_add(const rabbet_plugin_t* plugin,
                                  rabbet_plugin_attr_sink_t sink) {
  if (!plugin->absent_inputs) return rabbet_ok();
  int64_t mask = (int64_t)plugin->absent_inputs;
  rabbet_attr_t attr = {.name = RABBET_PLUGIN_ABSENT_ATTR,
                        .type = RABBET_ATTR_INT,
                        .data = &mask,
                        .count = 1};
  return sink.add(sink.context, &attr);
}

rabbet_status_t rabbet_plugin_timing_key(rabbet_plugin_t* plugin,
                                         rabbet_plugin_attr_sink_t sink,
                                         bool* out_cacheable) {
  *out_cacheable = false;
  if (!plugin->vtable.timing_key) return rabbet_ok();
  attr_count_t counter = {.sink = sink};
  rabbet_status_t status = plugin->vtable.timing_key(
      plugin->self, (rabbet_plugin_attr_sink_t){&counter, attr_count_add});
  *out_cacheable = rabbet_is_ok(status) && counter.count > 0;
  if (*out_cacheable) status = absent_add(plugin, sink);
  return rabbet_plugin_annotate(plugin, "timing key", status);
}

rabbet_status_t rabbet_plugin_serialize(rabbet_plugin_t* plugin,
                                        const rabbet_plugin_query_t* query,
                                        int32_t tactic,
                                        rabbet_plugin_attr_sink_t sink) {
  attr_count_t counter = {.sink = sink};
  rabbet_plugin_attr_sink_t counted = {&counter, attr_count_add};
  rabbet_status_t status = rabbet_ok();
  if (plugin->vtable.serialize_chosen) {
    status =
        plugin->vtable.serialize_chosen(plugin->self, query, tactic, counted);
  } else if (plugin->vtable.serialize) {
    status = plugin->vtable.serialize(plugin->self, counted);
  }
  if (rabbet_is_ok(status)) status = absent_add(plugin, sink);
  return rabbet_plugin_annotate(plugin, "serializing", status);
}

// ---- Run -------------------------------------------------------------------

rabbet_status_t rabbet_plugin_prepare(rabbet_plugin_t* plugin,
                                      const rabbet_plugin_call_t* call,
                                      size_t* out_workspace, void** out_state) {
  *out_workspace = 0;
  *out_state = NULL;
  if (!plugin->vtable.prepare) return rabbet_ok();
  return rabbet_plugin_annotate(
      plugin, "preparing",
      plugin->vtable.prepare(plugin->self, call, out_workspace, out_state));
}

void rabbet_plugin_destroy_state(rabbet_plugin_t* plugin, void* state) {
  if (state && plugin->vtable.destroy_state) {
    plugin->vtable.destroy_state(plugin->self, state);
  }
}

rabbet_status_t rabbet_plugin_enqueue(rabbet_plugin_t* plugin,
                                      const rabbet_plugin_call_t* call) {
  rabbet_status_t status = plugin->vtable.enqueue(plugin->self, call);
  if (rabbet_is_ok(status)) return status;
  return rabbet_plugin_annotate(plugin, "running", status);
}

// ---- Graphs ----------------------------------------------------------------

rabbet_plugin_capture_t rabbet_plugin_capture(
    rabbet_plugin_t* plugin, const rabbet_plugin_call_t* call) {
  if (!plugin->vtable.capture) return RABBET_PLUGIN_CAPTURE_TRIAL;
  rabbet_plugin_capture_t answer = plugin->vtable.capture(plugin->self, call);
  // An unknown answer promises nothing.
  return answer == RABBET_PLUGIN_CAPTURE_SAFE ||
                 answer == RABBET_PLUGIN_CAPTURE_NEVER
             ? answer
             : RABBET_PLUGIN_CAPTURE_TRIAL;
}

rabbet_status_t rabbet_plugin_enqueue_captured(rabbet_plugin_t* plugin,
                                               const rabbet_plugin_call_t* call,
                                               void** out_kept) {
  *out_kept = NULL;
  if (!plugin->vtable.enqueue_captured)
    return rabbet_plugin_enqueue(plugin, call);
  return rabbet_plugin_annotate(
      plugin, "being recorded",
      plugin->vtable.enqueue_captured(plugin->self, call, out_kept));
}

void rabbet_plugin_release_captured(rabbet_plugin_t* plugin, void* kept) {
  if (kept && plugin->vtable.release_captured)
    plugin->vtable.release_captured(plugin->self, kept);
}

// ---- Kernels made ahead of time --------------------------------------------

void rabbet_plugin_set_kinds(rabbet_plugin_t* plugin, uint32_t kinds) {
  plugin->allowed = kinds;
}

uint32_t rabbet_plugin_kinds(rabbet_plugin_t* plugin, const char* device) {
  const uint32_t ways = RABBET_PLUGIN_RUNS | RABBET_PLUGIN_READY;
  uint32_t there = (plugin->vtable.enqueue ? RABBET_PLUGIN_RUNS : 0) |
                   (plugin->vtable.launches ? RABBET_PLUGIN_READY : 0);
  if (plugin->vtable.kinds) there &= plugin->vtable.kinds(plugin->self, device);
  if (plugin->allowed & ways) there &= plugin->allowed;
  if (there != ways) return there;
  if (plugin->allowed & RABBET_PLUGIN_PREFER_RUNS) return RABBET_PLUGIN_RUNS;
  if (plugin->allowed & RABBET_PLUGIN_PREFER_READY) return RABBET_PLUGIN_READY;
  return there;
}

rabbet_status_t rabbet_plugin_launches(rabbet_plugin_t* plugin,
                                       rabbet_dim_builder_t* builder,
                                       const rabbet_plugin_query_t* query,
                                       int32_t tactic,
                                       const rabbet_plugin_input_t* inputs,
                                       const rabbet_plugin_output_t* outputs,
                                       rabbet_plugin_launch_sink_t sink) {
  return rabbet_plugin_annotate(
      plugin, "giving its kernels",
      plugin->vtable.launches(plugin->self, builder, query, tactic, inputs,
                              outputs, sink));
}
