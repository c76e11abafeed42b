#include "builder/emit/emit_plugin.h"

#include <assert.h>

#include "base/vec.h"
#include "device/plugin_kernel.h"

typedef struct plugin_sink_t {
  rabbet_arena_t* arena;
  rabbet_allocator_t allocator;
  RABBET_VEC(rabbet_attr_t) attrs;
} plugin_sink_t;

static rabbet_status_t plugin_add_attr(void* context,
                                       const rabbet_attr_t* attr) {
  plugin_sink_t* sink = context;
  rabbet_attr_t copy;
  RABBET_RETURN_IF_ERROR(rabbet_attr_copy(sink->arena, attr, &copy));
  return RABBET_VEC_PUSH(sink->allocator, &sink->attrs, copy);
}

static rabbet_status_t plugin_emit_name(rabbet_arena_t* arena,
                                        const rabbet_plugin_creator_t* creator,
                                        rabbet_plan_step_t* step) {
  const struct {
    const char* text;
    const char** place;
  } texts[] = {
      {creator->name, &step->plugin_name},
      {creator->version ? creator->version : "1", &step->plugin_version},
      {creator->plugin_namespace ? creator->plugin_namespace : "",
       &step->plugin_namespace},
      {creator->origin ? creator->origin : "", &step->plugin_origin},
  };
  for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); ++i)
    RABBET_RETURN_IF_ERROR(
        rabbet_arena_strdup(arena, texts[i].text, texts[i].place));
  return rabbet_ok();
}

rabbet_status_t rabbet_emit_plugin(rabbet_plan_t* plan,
                                   rabbet_allocator_t allocator,
                                   const rabbet_plugin_layer_t* layer,
                                   rabbet_plan_step_t* step) {
  const rabbet_group_node_t* node = layer->node;
  assert(!step->plugin_name);  // a step has one plugin
  plugin_sink_t sink = {.arena = &plan->arena, .allocator = allocator};
  rabbet_plugin_tensor_t* tensors = NULL;
  rabbet_plugin_query_t query;
  RABBET_RETURN_IF_ERROR(plugin_emit_name(
      &plan->arena, rabbet_plugin_creator(layer->plugin), step));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &plan->arena, node->input_count + node->output_count, sizeof(*tensors),
      (void**)&tensors));
  rabbet_plugin_query_node(&step->group, node, layer->device, tensors, &query);
  rabbet_status_t status = rabbet_plugin_serialize(
      layer->plugin, &query, step->tactic,
      (rabbet_plugin_attr_sink_t){&sink, plugin_add_attr});
  step->plugin_attr_count = sink.attrs.count;
  if (rabbet_is_ok(status))
    status = rabbet_arena_copy(&plan->arena, sink.attrs.data,
                               sink.attrs.count * sizeof(rabbet_attr_t),
                               (void**)&step->plugin_attrs);
  rabbet_vec_free(allocator, &sink.attrs);
  return status;
}
