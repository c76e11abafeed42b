// A plugin library, "abi::Scale": y = factor * x. It is compiled against the
// frozen headers, today's, and ones with a field more in each structure
// (ADDED: the name of one that is set there).
#include <string.h>

#include "rabbet/plugin.h"

static int32_t scale_output_count(void* self) {
  (void)self;
  return 1;
}

static rabbet_status_t scale_describe(void* self, rabbet_dim_builder_t* builder,
                                      const rabbet_plugin_input_t* inputs,
                                      size_t input_count,
                                      rabbet_plugin_output_t* outputs) {
  (void)self, (void)builder;
  for (size_t i = 0; i < input_count; ++i) {
    outputs[i].dtype = inputs[i].dtype;
    outputs[i].rank = inputs[i].rank;
    memcpy(outputs[i].dims, inputs[i].dims, sizeof(inputs[i].dims));
  }
  return rabbet_ok();
}

// Reads all that a query has: elements of its arrays lie where the header says.
static rabbet_status_t scale_combinations(
    void* self, const rabbet_plugin_query_t* query,
    rabbet_plugin_combination_sink_t sink) {
  rabbet_plugin_type_format_t linear[2] = {
      {RABBET_DTYPE_FLOAT, RABBET_FORMAT_LINEAR},
      {RABBET_DTYPE_FLOAT, RABBET_FORMAT_LINEAR}};
  (void)self;
  if (query->input_count != 1 || query->output_count != 1 ||
      query->tensors[0].dims.rank != 2 || query->tensors[1].max.d[1] != 3 ||
      strcmp(query->device, "cpu") != 0)
    return RABBET_STATUS(RABBET_STATUS_PLUGIN, "another query than expected");
  return sink.add(sink.context, linear);
}

static rabbet_status_t scale_serialize(void* self,
                                       rabbet_plugin_attr_sink_t sink) {
  const rabbet_attr_t factor = {
      .name = "factor", .type = RABBET_ATTR_FLOAT, .data = self, .count = 1};
  return sink.add(sink.context, &factor);
}

static rabbet_status_t scale_prepare(void* self,
                                     const rabbet_plugin_call_t* call,
                                     size_t* out_workspace, void** out_state) {
  (void)call;
  *out_workspace = 64;
  *out_state = self;
  return rabbet_ok();
}

static rabbet_status_t scale_enqueue(void* self,
                                     const rabbet_plugin_call_t* call) {
  const rabbet_plugin_view_t* from = &call->inputs[0];
  const rabbet_plugin_view_t* to = &call->outputs[0];
  int64_t count = 0;
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(&from->dims, &count));
  if (call->state != self || !call->workspace || call->input_count != 1 ||
      to->dtype != RABBET_DTYPE_FLOAT || to->dims.d[1] != 3)
    return RABBET_STATUS(RABBET_STATUS_PLUGIN, "another call than expected");
  for (int64_t i = 0; i < count; ++i)
    ((float*)to->data)[i] =
        (float)*(const double*)self * ((const float*)from->data)[i];
  return rabbet_ok();
}

static void scale_destroy(void* self) {
  rabbet_free(rabbet_allocator_system(), self);
}

static const rabbet_plugin_vtable_t scale_vtable = {
    .struct_size = sizeof(scale_vtable),
#ifdef ADDED_vtable
    .added = 1,
#endif
    .destroy = scale_destroy,
    .output_count = scale_output_count,
    .describe = scale_describe,
    .combinations = scale_combinations,
    .timing_key = scale_serialize,
    .serialize = scale_serialize,
    .prepare = scale_prepare,
    .enqueue = scale_enqueue,
};

static rabbet_status_t scale_create(void* user_data,
                                    const rabbet_plugin_create_t* args,
                                    rabbet_plugin_instance_t* out_instance) {
  (void)user_data;
  const rabbet_attr_t* factor =
      rabbet_attr_find(args->attrs, args->attr_count, "factor");
  void* self = NULL;
  if (args->struct_size < offsetof(rabbet_plugin_create_t, absent_inputs) ||
      args->absent_inputs || !args->layer_name || !factor)
    return RABBET_STATUS(RABBET_STATUS_PLUGIN, "other arguments than expected");
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(rabbet_allocator_system(), sizeof(double), &self));
  memcpy(self, factor->data, sizeof(double));
  *out_instance = (rabbet_plugin_instance_t){&scale_vtable, self};
  return rabbet_ok();
}

static rabbet_status_t scale_register(void) {
  static const rabbet_plugin_field_t fields[] = {
      {.name = "unused", .type = RABBET_ATTR_INTS},
      {.name = "factor",
#ifdef ADDED_field
       .added = 1,
#endif
       .type = RABBET_ATTR_FLOAT,
       .required = true}};
  const rabbet_plugin_creator_t creator = {.struct_size = sizeof(creator),
#ifdef ADDED_creator
                                           .added = 1,
#endif
                                           .name = "Scale",
                                           .plugin_namespace = "abi",
                                           .fields = fields,
                                           .field_count = 2,
                                           .field_size = sizeof(*fields),
                                           .create = scale_create,
                                           .input_count = 1};
  return rabbet_plugin_register(&creator);
}

RABBET_PLUGIN_LIBRARY(scale_register)
