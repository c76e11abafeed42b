// Plugins in C that fuzzed plans use. They trust the runtime as the plugin
// interface lets them: types, formats, shapes, tactics and numbers of tensors
// are those that they offered and described. Attributes they check themselves.
//
//   scaled   x[n, m], FLOAT or HALF -> y[n, 2 m]: x beside x times `factor`;
//            tactics 1 and 2 are the order of the two
//   picked   x[n], FLOAT -> y[k], count: the elements above `bounds`[0], k of n
//   sourced  scaled; registered by the host of sources, which runs any source
#ifndef RABBET_TESTS_FUZZ_PLUGINS_H_
#define RABBET_TESTS_FUZZ_PLUGINS_H_

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "core/view.h"
#include "plugin_answers.h"
#include "rabbet/attr.h"
#include "rabbet/carried.h"

typedef struct fuzz_plugin_t {
  double factor;
  int64_t bounds[2];
} fuzz_plugin_t;

static void fuzz_plugin_destroy(void* self) {
  free(self);
}

// ---- scaled

static rabbet_status_t fuzz_scaled_describe(void* self,
                                            rabbet_dim_builder_t* builder,
                                            const rabbet_plugin_input_t* inputs,
                                            size_t input_count,
                                            rabbet_plugin_output_t* outputs) {
  (void)self;
  rabbet_dim_t two = 0;
  if (input_count != 1 || inputs[0].rank != 2)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT, "x has two axes");
  outputs[0].dtype = inputs[0].dtype;
  outputs[0].rank = 2;
  outputs[0].dims[0] = inputs[0].dims[0];
  RABBET_RETURN_IF_ERROR(rabbet_dim_constant(builder, 2, &two));
  return rabbet_dim_operation(builder, RABBET_DIM_PROD, two, inputs[0].dims[1],
                              &outputs[0].dims[1]);
}

static rabbet_status_t fuzz_scaled_combinations(
    void* self, const rabbet_plugin_query_t* query,
    rabbet_plugin_combination_sink_t sink) {
  (void)self;
  const rabbet_plugin_tensor_t* x = &query->tensors[0];
  for (int32_t i = 0; i < x->dims.rank; ++i)
    if (x->min.d[i] < 0 || x->min.d[i] > x->opt.d[i] ||
        x->opt.d[i] > x->max.d[i])
      return RABBET_STATUS(RABBET_STATUS_INTERNAL, "axis %d of x has no range",
                           i);
  static const rabbet_dtype_t types[] = {RABBET_DTYPE_FLOAT, RABBET_DTYPE_HALF};
  for (int i = 0; i < 2; ++i) {
    rabbet_plugin_type_format_t pair[2] = {{types[i], RABBET_FORMAT_LINEAR},
                                           {types[i], RABBET_FORMAT_LINEAR}};
    RABBET_RETURN_IF_ERROR(sink.add(sink.context, pair));
  }
  return rabbet_ok();
}

static rabbet_status_t fuzz_scaled_tactics(void* self,
                                           const rabbet_plugin_query_t* query,
                                           rabbet_plugin_tactic_sink_t sink) {
  (void)self, (void)query;
  RABBET_RETURN_IF_ERROR(sink.add(sink.context, 1));
  return sink.add(sink.context, 2);
}

static rabbet_status_t fuzz_scaled_enqueue(void* self,
                                           const rabbet_plugin_call_t* call) {
  const fuzz_plugin_t* plugin = self;
  const double factors[2][2] = {{1, plugin->factor}, {plugin->factor, 1}};
  const double* order = factors[call->tactic - 1];
  const rabbet_plugin_view_t *x = &call->inputs[0], *y = &call->outputs[0];
  int64_t rows = x->dims.d[0], columns = x->dims.d[1];
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < 2 * columns; ++c)
      rabbet_store_double(
          x->dtype, y->data, 2 * r * columns + c,
          order[c >= columns] *
              rabbet_load_double(x->dtype, x->data, r * columns + c % columns));
  return rabbet_ok();
}

static const rabbet_plugin_vtable_t fuzz_scaled_vtable = {
    .struct_size = sizeof(rabbet_plugin_vtable_t),
    .destroy = fuzz_plugin_destroy,
    .output_count = plugin_one_output,
    .describe = fuzz_scaled_describe,
    .combinations = fuzz_scaled_combinations,
    .tactics = fuzz_scaled_tactics,
    .enqueue = fuzz_scaled_enqueue,
};

// ---- picked

static int32_t fuzz_picked_outputs(void* self) {
  (void)self;
  return 2;
}

static rabbet_status_t fuzz_picked_describe(void* self,
                                            rabbet_dim_builder_t* builder,
                                            const rabbet_plugin_input_t* inputs,
                                            size_t input_count,
                                            rabbet_plugin_output_t* outputs) {
  (void)self;
  if (input_count != 1 || inputs[0].rank != 1)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT, "x has one axis");
  outputs[0].dtype = RABBET_DTYPE_FLOAT;
  outputs[0].rank = 1;
  outputs[1].dtype = RABBET_DTYPE_INT64;
  outputs[1].is_size_tensor = true;
  return rabbet_dim_size_tensor(builder, 1, inputs[0].dims[0],
                                inputs[0].dims[0], &outputs[0].dims[0]);
}

static rabbet_status_t fuzz_picked_combinations(
    void* self, const rabbet_plugin_query_t* query,
    rabbet_plugin_combination_sink_t sink) {
  (void)self, (void)query;
  static const rabbet_plugin_type_format_t types[] = {
      {RABBET_DTYPE_FLOAT, RABBET_FORMAT_LINEAR},
      {RABBET_DTYPE_FLOAT, RABBET_FORMAT_LINEAR},
      {RABBET_DTYPE_INT64, RABBET_FORMAT_LINEAR}};
  return sink.add(sink.context, types);
}

static rabbet_status_t fuzz_picked_enqueue(void* self,
                                           const rabbet_plugin_call_t* call) {
  const fuzz_plugin_t* plugin = self;
  const float* x = call->inputs[0].data;
  float* y = call->outputs[0].data;
  int64_t count = 0;
  for (int64_t i = 0; i < call->inputs[0].dims.d[0]; ++i)
    if (x[i] > (float)plugin->bounds[0]) y[count++] = x[i];
  *(int64_t*)call->outputs[1].data = count;
  return rabbet_ok();
}

static const rabbet_plugin_vtable_t fuzz_picked_vtable = {
    .struct_size = sizeof(rabbet_plugin_vtable_t),
    .destroy = fuzz_plugin_destroy,
    .output_count = fuzz_picked_outputs,
    .describe = fuzz_picked_describe,
    .combinations = fuzz_picked_combinations,
    .enqueue = fuzz_picked_enqueue,
};

// ---- Creators

// Of attributes that a plan may have changed in any way.
static rabbet_status_t fuzz_plugin_create(void* user_data,
                                          const rabbet_plugin_create_t* args,
                                          rabbet_plugin_instance_t* out) {
  const rabbet_attr_t* factor =
      rabbet_attr_find(args->attrs, args->attr_count, "factor");
  const rabbet_attr_t* bounds =
      rabbet_attr_find(args->attrs, args->attr_count, "bounds");
  if ((factor && factor->type != RABBET_ATTR_FLOAT) ||
      (bounds && bounds->type != RABBET_ATTR_INTS))
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "an attribute has another type");
  fuzz_plugin_t* plugin = calloc(1, sizeof(*plugin));
  if (!plugin)
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_MEMORY, "%zu bytes",
                         sizeof(*plugin));
  plugin->factor = factor ? *(const double*)factor->data : 3;
  for (size_t i = 0; bounds && i < bounds->count && i < 2; ++i)
    plugin->bounds[i] = ((const int64_t*)bounds->data)[i];
  *out = (rabbet_plugin_instance_t){user_data, plugin};
  return rabbet_ok();
}

static rabbet_status_t fuzz_plugin_register(
    const char* name, const rabbet_plugin_vtable_t* vtable) {
  rabbet_plugin_creator_t creator = {.struct_size = sizeof(creator),
                                     .name = name,
                                     .plugin_namespace = "test",
                                     .origin = "fuzz_plugins.h",
                                     .user_data = (void*)vtable,
                                     .create = fuzz_plugin_create,
                                     .input_count = 1};
  return rabbet_plugin_register(&creator);
}

// ---- The host of sources

static rabbet_status_t fuzz_host_collect(void* user_data,
                                         const rabbet_plugin_key_t* plugins,
                                         size_t plugin_count,
                                         const char* const* modules,
                                         size_t module_count,
                                         rabbet_carried_sink_t sink) {
  (void)user_data, (void)plugins, (void)plugin_count, (void)modules,
      (void)module_count, (void)sink;
  return rabbet_ok();
}

// Reads all of the modules, for a sanitizer to see.
static rabbet_status_t fuzz_host_run(void* user_data,
                                     const rabbet_carried_t* modules,
                                     size_t count) {
  volatile uint64_t* sum = user_data;
  for (size_t i = 0; i < count; ++i) {
    *sum += strlen(modules[i].name);
    *sum += rabbet_hash64(modules[i].data, modules[i].size);
    for (size_t k = 0; k < modules[i].requirement_count; ++k)
      *sum += strlen(modules[i].requirements[k]);
  }
  return fuzz_plugin_register("sourced", &fuzz_scaled_vtable);
}

static inline void fuzz_forget_source(void) {
  rabbet_status_ignore(rabbet_plugin_deregister("sourced", "1", "test"));
}

// ---- All

static inline void fuzz_plugins_register(void) {
  static volatile uint64_t sum;
  const rabbet_source_host_t host = {.struct_size = sizeof(host),
                                     .user_data = (void*)&sum,
                                     .collect = fuzz_host_collect,
                                     .run = fuzz_host_run};
  rabbet_status_ignore(fuzz_plugin_register("scaled", &fuzz_scaled_vtable));
  rabbet_status_ignore(fuzz_plugin_register("picked", &fuzz_picked_vtable));
  rabbet_status_ignore(rabbet_source_host_set(&host));
}

static inline void fuzz_plugins_deregister(void) {
  rabbet_status_ignore(rabbet_plugin_deregister("scaled", "1", "test"));
  rabbet_status_ignore(rabbet_plugin_deregister("picked", "1", "test"));
  rabbet_status_ignore(rabbet_source_host_set(NULL));
}

#endif  // RABBET_TESTS_FUZZ_PLUGINS_H_
