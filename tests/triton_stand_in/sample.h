// Models for tests of the backend: plans in a folder as the server has them.
// Everything fails the running test instead of returning an error.
#ifndef RABBET_TESTS_TRITON_STAND_IN_SAMPLE_H_
#define RABBET_TESTS_TRITON_STAND_IN_SAMPLE_H_

#include "check.h"
#include "rabbet/builder.h"
#include "rabbet/plugin.h"
#include "triton/instance.h"
#include "triton_stand_in/server.h"

#define SAMPLE_ALLOCATOR rabbet_allocator_system()

// ---- Networks

typedef struct sample_net_t {
  rabbet_network_t* network;
  rabbet_profile_t* profiles[2];
} sample_net_t;

static inline rabbet_tensor_t* sample_input(sample_net_t* net, const char* name,
                                            rabbet_dtype_t dtype,
                                            rabbet_dims_t dims) {
  rabbet_tensor_t* tensor = NULL;
  RABBET_EXPECT_OK(
      rabbet_network_add_input(net->network, name, dtype, &dims, &tensor));
  return tensor;
}

static inline void sample_output(sample_net_t* net, rabbet_tensor_t* tensor,
                                 const char* name) {
  RABBET_EXPECT_OK(rabbet_tensor_set_name(tensor, name));
  RABBET_EXPECT_OK(rabbet_network_mark_output(net->network, tensor));
}

// 0 is a + b, 1 is a * b.
static inline rabbet_tensor_t* sample_combine(sample_net_t* net,
                                              rabbet_tensor_t* a,
                                              rabbet_tensor_t* b, int64_t op) {
  rabbet_layer_t* layer = NULL;
  const rabbet_attr_t attr = {
      .name = "op", .type = RABBET_ATTR_INT, .data = &op, .count = 1};
  RABBET_EXPECT_OK(rabbet_network_add_layer(net->network, "elementwise", NULL,
                                            (rabbet_tensor_t*[]){a, b}, 2,
                                            &attr, 1, &layer));
  return rabbet_layer_output(layer, 0);
}

static inline rabbet_tensor_t* sample_plugin(sample_net_t* net,
                                             const char* name,
                                             rabbet_tensor_t* x) {
  rabbet_layer_t* layer = NULL;
  RABBET_EXPECT_OK(rabbet_network_add_plugin(net->network, name, NULL, "test",
                                             name, &x, 1, NULL, 0, &layer));
  return rabbet_layer_output(layer, 0);
}

static inline void sample_range(sample_net_t* net, int profile,
                                const char* input, rabbet_dims_t min,
                                rabbet_dims_t opt, rabbet_dims_t max) {
  if (!net->profiles[profile])
    RABBET_EXPECT_OK(
        rabbet_profile_create(SAMPLE_ALLOCATOR, &net->profiles[profile]));
  RABBET_EXPECT_OK(rabbet_profile_set_shape(net->profiles[profile], input, &min,
                                            &opt, &max));
}

static inline rabbet_dims_t sample_dims(int32_t rank, const int64_t* d) {
  rabbet_dims_t dims = {.rank = rank};
  for (int32_t i = 0; i < rank; ++i)
    dims.d[i] = d[i];
  return dims;
}
#define DIMS(...)                                                            \
  sample_dims((int32_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), \
              (const int64_t[]){__VA_ARGS__})

// ---- Models

typedef struct sample_t {
  char folder[64];
  struct TRITONBACKEND_Model model;
  struct TRITONBACKEND_ModelInstance instance;
} sample_t;

static inline void sample_write(const sample_t* sample, const char* name,
                                const void* data, size_t size) {
  char path[128];
  snprintf(path, sizeof(path), "%s/1/%s", sample->folder, name);
  FILE* file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(data, 1, size, file), size);
  fclose(file);
}

static inline void sample_begin(sample_t* sample) {
  *sample = (sample_t){.folder = "/tmp/rabbet-triton-XXXXXX",
                       .model = {.version = 1, .complete = true}};
  char path[128];
  assert_non_null(mkdtemp(sample->folder));
  snprintf(path, sizeof(path), "mkdir %s/1", sample->folder);
  assert_int_equal(system(path), 0);
  sample->model.folder = sample->folder;
  sample->instance = (struct TRITONBACKEND_ModelInstance){
      .model = &sample->model, .kind = TRITONSERVER_INSTANCEGROUPKIND_CPU};
  strcpy(sample->model.config, "{\"name\":\"sample\",\"max_batch_size\":0}");
}

static inline void sample_end(sample_t* sample) {
  char command[128];
  snprintf(command, sizeof(command), "rm -r %s", sample->folder);
  assert_int_equal(system(command), 0);
}

// Builds model.plan of what `make` makes.
static inline void sample_build(sample_t* sample, const char* device,
                                void (*make)(sample_net_t* net)) {
  sample_net_t net = {0};
  rabbet_builder_config_t* config = NULL;
  void* plan = NULL;
  size_t size = 0;
  sample_begin(sample);
  RABBET_EXPECT_OK(rabbet_network_create(RABBET_NETWORK_STRONGLY_TYPED,
                                         SAMPLE_ALLOCATOR, (rabbet_logger_t){0},
                                         &net.network));
  make(&net);
  RABBET_EXPECT_OK(rabbet_builder_config_create(SAMPLE_ALLOCATOR, &config));
  RABBET_EXPECT_OK(rabbet_builder_config_set_device(config, device));
  for (int i = 0; i < 2; ++i) {
    if (net.profiles[i])
      RABBET_EXPECT_OK(
          rabbet_builder_config_add_profile(config, net.profiles[i]));
    rabbet_profile_release(net.profiles[i]);
  }
  RABBET_EXPECT_OK(rabbet_build_plan(net.network, config, SAMPLE_ALLOCATOR,
                                     &plan, &size, NULL));
  sample_write(sample, "model.plan", plan, size);
  rabbet_free_aligned(SAMPLE_ALLOCATOR, plan, 64);
  rabbet_builder_config_release(config);
  rabbet_network_release(net.network);
}

// Fails the test with the error's message; frees it.
static inline void sample_expect_ok(TRITONSERVER_Error* error) {
  if (!error) return;
  print_error("%s\n", TRITONSERVER_ErrorMessage(error));
  TRITONSERVER_ErrorDelete(error);
  fail();
}

static inline void sample_expect_error(TRITONSERVER_Error* error,
                                       TRITONSERVER_Error_Code code,
                                       const char* part) {
  assert_non_null(error);
  if (!strstr(TRITONSERVER_ErrorMessage(error), part))
    print_error("found '%s'\n", TRITONSERVER_ErrorMessage(error));
  assert_non_null(strstr(TRITONSERVER_ErrorMessage(error), part));
  assert_int_equal(TRITONSERVER_ErrorCode(error), code);
  TRITONSERVER_ErrorDelete(error);
}

// Whether batches are answered on another thread however short they are.
static bool sample_answers_later;

static inline void sample_set_answers(
    const struct TRITONBACKEND_ModelInstance* instance) {
  rabbet_triton_instance_t* made = instance->state;
  if (sample_answers_later) made->answers.worth = 0;
}

static inline void sample_load(sample_t* sample) {
  sample_expect_ok(TRITONBACKEND_ModelInitialize(&sample->model));
  sample_expect_ok(TRITONBACKEND_ModelInstanceInitialize(&sample->instance));
  sample_set_answers(&sample->instance);
}

static inline void sample_unload(sample_t* sample) {
  sample_expect_ok(TRITONBACKEND_ModelInstanceFinalize(&sample->instance));
  sample_expect_ok(TRITONBACKEND_ModelFinalize(&sample->model));
  sample_end(sample);
  assert_int_equal(server_faults.errors, 0);
}

// Serves requests, each of which is answered and released once.
static inline void sample_serve(sample_t* sample,
                                struct TRITONBACKEND_Request* requests,
                                uint32_t count) {
  TRITONBACKEND_Request* list[SERVER_MAX];
  for (uint32_t i = 0; i < count; ++i)
    list[i] = &requests[i];
  sample_expect_ok(
      TRITONBACKEND_ModelInstanceExecute(&sample->instance, list, count));
  server_wait(requests, count);
  for (uint32_t i = 0; i < count; ++i) {
    assert_int_equal(requests[i].sent, 1);
    assert_int_equal(requests[i].released, 1);
    assert_int_equal(requests[i].reported, 1);
    assert_int_equal(requests[i].success, !*requests[i].error);
  }
  assert_int_equal(server_faults.errors, 0);
}

static inline void sample_expect_floats(
    const struct TRITONBACKEND_Output* output, rabbet_dims_t dims,
    const float* expected) {
  size_t count = 1;
  assert_non_null(output);
  assert_int_equal(output->type, TRITONSERVER_TYPE_FP32);
  assert_int_equal(output->rank, dims.rank);
  for (int32_t i = 0; i < dims.rank; ++i) {
    assert_int_equal(output->dims[i], dims.d[i]);
    count *= (size_t)dims.d[i];
  }
  assert_int_equal(output->buffer.size, count * sizeof(float));
  assert_memory_equal(output->buffer.data, expected, count * sizeof(float));
}

typedef struct sample_config_t {
  void (*make)(sample_net_t* net);
  const char* config;            // without the name
  const char* part;              // of the complete one, or of the error
  TRITONSERVER_Error_Code code;  // UNKNOWN: none
} sample_config_t;

static inline void sample_expect_configurations(const sample_config_t* cases,
                                                size_t count) {
  for (size_t i = 0; i < count; ++i) {
    sample_t sample;
    sample_build(&sample, "cpu", cases[i].make);
    snprintf(sample.model.config, sizeof(sample.model.config),
             "{\"name\":\"sample\",%s}", cases[i].config);
    TRITONSERVER_Error* error = TRITONBACKEND_ModelInitialize(&sample.model);
    if (cases[i].code == TRITONSERVER_ERROR_UNKNOWN) {
      sample_expect_ok(error);
      if (!strstr(sample.model.config, cases[i].part))
        print_error("case %zu: found %s\n", i, sample.model.config);
      assert_non_null(strstr(sample.model.config, cases[i].part));
    } else {
      sample_expect_error(error, cases[i].code, cases[i].part);
    }
    sample_expect_ok(TRITONBACKEND_ModelFinalize(&sample.model));
    sample_end(&sample);
    assert_int_equal(server_faults.errors, 0);
  }
}

#endif  // RABBET_TESTS_TRITON_STAND_IN_SAMPLE_H_
