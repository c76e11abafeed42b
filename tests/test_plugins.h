// Plugins in C for tests, in the namespace "test".
//
//   compact  x[n] -> kept[m], count: the elements that are not 0, in order
//   bump     x -> y in x's place: every element plus 1
//   length   x[n] -> count: the first element as an integer
//   fail     x -> y: always fails
//   roomy    x -> y: equal, by way of a workspace
#ifndef RABBET_TESTS_TEST_PLUGINS_H_
#define RABBET_TESTS_TEST_PLUGINS_H_

#include "check.h"
#include "plugin_answers.h"
#include "rabbet/plugin.h"

typedef struct test_plugin_t {
  const char* name;
  int32_t outputs;
  rabbet_status_t (*describe)(void* self, rabbet_dim_builder_t* builder,
                              const rabbet_plugin_input_t* inputs,
                              size_t input_count,
                              rabbet_plugin_output_t* outputs);
  rabbet_status_t (*enqueue)(void* self, const rabbet_plugin_call_t* call);
} test_plugin_t;

static int32_t test_plugin_output_count(void* self) {
  return ((const test_plugin_t*)self)->outputs;
}

static rabbet_status_t test_describe(void* self, rabbet_dim_builder_t* builder,
                                     const rabbet_plugin_input_t* inputs,
                                     size_t input_count,
                                     rabbet_plugin_output_t* outputs) {
  return ((const test_plugin_t*)self)
      ->describe(self, builder, inputs, input_count, outputs);
}

static rabbet_status_t test_enqueue(void* self,
                                    const rabbet_plugin_call_t* call) {
  return ((const test_plugin_t*)self)->enqueue(self, call);
}

static rabbet_status_t test_describe_compact(
    void* self, rabbet_dim_builder_t* builder,
    const rabbet_plugin_input_t* inputs, size_t input_count,
    rabbet_plugin_output_t* outputs) {
  (void)self, (void)input_count;
  plugin_like(&inputs[0], &outputs[0]);
  outputs[1].dtype = RABBET_DTYPE_INT64;
  outputs[1].is_size_tensor = true;
  return rabbet_dim_size_tensor(builder, 1, inputs[0].dims[0],
                                inputs[0].dims[0], &outputs[0].dims[0]);
}

static rabbet_status_t test_enqueue_compact(void* self,
                                            const rabbet_plugin_call_t* call) {
  (void)self;
  const float* x = call->inputs[0].data;
  float* kept = call->outputs[0].data;
  int64_t count = 0;
  for (int64_t i = 0; i < call->inputs[0].dims.d[0]; ++i) {
    if (x[i] != 0) kept[count++] = x[i];
  }
  *(int64_t*)call->outputs[1].data = count;
  return rabbet_ok();
}

static rabbet_status_t test_describe_bump(void* self,
                                          rabbet_dim_builder_t* builder,
                                          const rabbet_plugin_input_t* inputs,
                                          size_t input_count,
                                          rabbet_plugin_output_t* outputs) {
  (void)self, (void)builder, (void)input_count;
  plugin_like(&inputs[0], &outputs[0]);
  outputs[0].aliased_input = 0;
  return rabbet_ok();
}

static rabbet_status_t test_enqueue_bump(void* self,
                                         const rabbet_plugin_call_t* call) {
  (void)self;
  if (call->inputs[0].data != call->outputs[0].data)
    return RABBET_STATUS(RABBET_STATUS_INTERNAL, "bump is not in place");
  int64_t count = 0;
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(&call->outputs[0].dims, &count));
  float* y = call->outputs[0].data;
  for (int64_t i = 0; i < count; ++i)
    y[i] += 1;
  return rabbet_ok();
}

static rabbet_status_t test_describe_length(void* self,
                                            rabbet_dim_builder_t* builder,
                                            const rabbet_plugin_input_t* inputs,
                                            size_t input_count,
                                            rabbet_plugin_output_t* outputs) {
  (void)self, (void)builder, (void)input_count, (void)inputs;
  outputs[0].dtype = RABBET_DTYPE_INT64;
  outputs[0].rank = 1;
  return rabbet_dim_constant(builder, 1, &outputs[0].dims[0]);
}

static rabbet_status_t test_enqueue_length(void* self,
                                           const rabbet_plugin_call_t* call) {
  (void)self;
  *(int64_t*)call->outputs[0].data =
      (int64_t) * (const float*)call->inputs[0].data;
  return rabbet_ok();
}

static rabbet_status_t test_enqueue_fail(void* self,
                                         const rabbet_plugin_call_t* call) {
  (void)self, (void)call;
  return RABBET_STATUS(RABBET_STATUS_PLUGIN, "it was made to fail");
}

// Copies its input by way of a workspace of 1000 bytes a row.
static rabbet_status_t test_prepare_roomy(void* self,
                                          const rabbet_plugin_call_t* call,
                                          size_t* out_workspace,
                                          void** out_state) {
  *out_state = NULL;
  bool roomy = strcmp(((const test_plugin_t*)self)->name, "roomy") == 0;
  *out_workspace = roomy ? 1000 * (size_t)call->outputs[0].dims.d[0] : 0;
  return rabbet_ok();
}

static rabbet_status_t test_enqueue_roomy(void* self,
                                          const rabbet_plugin_call_t* call) {
  (void)self;
  const rabbet_dims_t* dims = &call->inputs[0].dims;
  size_t bytes = sizeof(float) * (size_t)dims->d[0] * (size_t)dims->d[1];
  memset(call->workspace, 0x55, 1000 * (size_t)dims->d[0]);
  memcpy(call->workspace, call->inputs[0].data, bytes);
  memcpy(call->outputs[0].data, call->workspace, bytes);
  return rabbet_ok();
}

static test_plugin_t test_plugins[] = {
    {"compact", 2, test_describe_compact, test_enqueue_compact},
    {"bump", 1, test_describe_bump, test_enqueue_bump},
    {"length", 1, test_describe_length, test_enqueue_length},
    {"fail", 1, plugin_describe_like, test_enqueue_fail},
    {"roomy", 1, plugin_describe_like, test_enqueue_roomy},
};
#define TEST_PLUGIN_COUNT (sizeof(test_plugins) / sizeof(test_plugins[0]))

static const rabbet_plugin_vtable_t test_plugin_vtable = {
    .struct_size = sizeof(rabbet_plugin_vtable_t),
    .output_count = test_plugin_output_count,
    .describe = test_describe,
    .prepare = test_prepare_roomy,
    .enqueue = test_enqueue,
};

static rabbet_status_t test_plugin_create(void* user_data,
                                          const rabbet_plugin_create_t* args,
                                          rabbet_plugin_instance_t* out) {
  (void)args;
  *out = (rabbet_plugin_instance_t){&test_plugin_vtable, user_data};
  return rabbet_ok();
}

static inline void test_plugins_register(void) {
  for (size_t i = 0; i < TEST_PLUGIN_COUNT; ++i) {
    rabbet_plugin_creator_t creator = {.struct_size = sizeof(creator),
                                       .name = test_plugins[i].name,
                                       .plugin_namespace = "test",
                                       .origin = "test_plugins.h",
                                       .user_data = &test_plugins[i],
                                       .create = test_plugin_create,
                                       .input_count = 1};
    RABBET_EXPECT_OK(rabbet_plugin_register(&creator));
  }
}

static inline void test_plugins_deregister(void) {
  for (size_t i = 0; i < TEST_PLUGIN_COUNT; ++i)
    RABBET_EXPECT_OK(
        rabbet_plugin_deregister(test_plugins[i].name, "1", "test"));
}

// They are there for a group of tests.
static inline int test_plugins_setup(void** state) {
  (void)state;
  test_plugins_register();
  return 0;
}

static inline int test_plugins_teardown(void** state) {
  (void)state;
  test_plugins_deregister();
  return 0;
}

#endif  // RABBET_TESTS_TEST_PLUGINS_H_
