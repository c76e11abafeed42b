// Builds a network, runs the plan, and compares its outputs with what the
// catalogue's reference kernels give for the network, layer by layer.
#ifndef RABBET_TESTS_BUILD_CHECK_H_
#define RABBET_TESTS_BUILD_CHECK_H_

#include <math.h>

#include "check.h"
#include "core/view.h"
#include "network/network.h"
#include "rabbet/builder.h"
#include "rabbet/engine.h"

#define CHECK_MAX_TENSORS 512

// ---- Making networks --------------------------------------------------------

typedef struct net_t {
  rabbet_network_t* network;
  rabbet_allocator_t allocator;
  unsigned random;
  unsigned weights;
} net_t;

static inline net_t net_begin(uint32_t flags, rabbet_allocator_t allocator) {
  net_t net = {.allocator = allocator, .random = 1};
  RABBET_EXPECT_OK(rabbet_network_create(flags, allocator, (rabbet_logger_t){0},
                                         &net.network));
  return net;
}

static inline rabbet_dims_t net_dims(int32_t rank, const int64_t* d) {
  rabbet_dims_t dims = {.rank = rank};
  for (int32_t i = 0; i < rank; ++i)
    dims.d[i] = d[i];
  return dims;
}
#define DIMS(...)                                                         \
  net_dims((int32_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), \
           (const int64_t[]){__VA_ARGS__})

static inline rabbet_tensor_t* net_input(net_t* net, const char* name,
                                         rabbet_dtype_t dtype,
                                         rabbet_dims_t dims) {
  rabbet_tensor_t* tensor = NULL;
  RABBET_EXPECT_OK(
      rabbet_network_add_input(net->network, name, dtype, &dims, &tensor));
  return tensor;
}

static inline double net_random(unsigned* state) {
  *state = *state * 1664525u + 1013904223u;
  return (double)(*state >> 8) / (1 << 23) - 1;
}

static inline rabbet_tensor_t* net_weights(net_t* net, rabbet_dtype_t dtype,
                                           rabbet_dims_t dims,
                                           const double* values) {
  int64_t count = 0;
  size_t bytes = 0;
  RABBET_EXPECT_OK(rabbet_dims_count(&dims, &count));
  RABBET_EXPECT_OK(
      rabbet_tensor_bytes(dtype, RABBET_FORMAT_LINEAR, &dims, &bytes));
  void* data = calloc(1, bytes + 1);
  for (int64_t i = 0; i < count; ++i)
    rabbet_store_double(dtype, data, i,
                        values ? values[i] : net_random(&net->random));
  rabbet_tensor_t* tensor = NULL;
  char name[32];
  snprintf(name, sizeof(name), "weights%u", net->weights++);
  rabbet_weights_t weights = {dtype, data, count};
  rabbet_status_t status = rabbet_network_add_weights(
      net->network, name, weights, &dims, true, &tensor);
  free(data);
  RABBET_EXPECT_OK(status);
  return tensor;
}
// Random FP32 weights, or one number.
#define WEIGHTS(net, ...) \
  net_weights((net), RABBET_DTYPE_FLOAT, DIMS(__VA_ARGS__), NULL)
static inline rabbet_tensor_t* net_scalar(net_t* net, int32_t rank,
                                          double value) {
  rabbet_dims_t dims = {.rank = rank};
  for (int32_t i = 0; i < rank; ++i)
    dims.d[i] = 1;
  return net_weights(net, RABBET_DTYPE_FLOAT, dims, &value);
}

typedef struct net_layer_t {
  const char* op;
  rabbet_tensor_t* inputs[6];
  size_t input_count;
  rabbet_attr_t attrs[6];
  size_t attr_count;
} net_layer_t;

static inline rabbet_tensor_t* net_add(net_t* net, const char* name,
                                       net_layer_t layer) {
  rabbet_layer_t* made = NULL;
  RABBET_EXPECT_OK(rabbet_network_add_layer(
      net->network, layer.op, name, layer.inputs, layer.input_count,
      layer.attrs, layer.attr_count, &made));
  return rabbet_layer_output(made, 0);
}

// By the plugin of the namespace "test".
static inline rabbet_tensor_t* net_plugin(net_t* net, const char* plugin,
                                          const char* name,
                                          rabbet_tensor_t* x) {
  rabbet_layer_t* layer = NULL;
  RABBET_EXPECT_OK(rabbet_network_add_plugin(net->network, plugin, "1", "test",
                                             name, &x, 1, NULL, 0, &layer));
  return rabbet_layer_output(layer, 0);
}

#define INT_ATTR(key, value)                                            \
  {                                                                     \
    .name = (key), .type = RABBET_ATTR_INT, .data = (int64_t[]){value}, \
    .count = 1                                                          \
  }
#define INTS_ATTR(key, ...)                                                    \
  {                                                                            \
    .name = (key), .type = RABBET_ATTR_INTS, .data = (int64_t[]){__VA_ARGS__}, \
    .count = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)                \
  }
#define ENUM_ATTR(key, value)                                   \
  {                                                             \
    .name = (key), .type = RABBET_ATTR_STRING, .data = (value), \
    .count = strlen(value)                                      \
  }

static inline rabbet_tensor_t* net_binary(net_t* net, const char* name,
                                          const char* op, rabbet_tensor_t* a,
                                          rabbet_tensor_t* b) {
  return net_add(net, name,
                 (net_layer_t){.op = "elementwise",
                               .inputs = {a, b},
                               .input_count = 2,
                               .attrs = {ENUM_ATTR("op", op)},
                               .attr_count = 1});
}
static inline rabbet_tensor_t* net_unary(net_t* net, const char* name,
                                         const char* op, rabbet_tensor_t* a) {
  return net_add(net, name,
                 (net_layer_t){.op = "unary",
                               .inputs = {a},
                               .input_count = 1,
                               .attrs = {ENUM_ATTR("op", op)},
                               .attr_count = 1});
}
static inline rabbet_tensor_t* net_shuffle(net_t* net, const char* name,
                                           rabbet_tensor_t* x,
                                           rabbet_attr_t attr) {
  return net_add(net, name,
                 (net_layer_t){.op = "shuffle",
                               .inputs = {x},
                               .input_count = 1,
                               .attrs = {attr},
                               .attr_count = 1});
}
#define TRANSPOSE(net, name, x, ...) \
  net_shuffle(net, name, x,          \
              (rabbet_attr_t)INTS_ATTR("first_transpose", __VA_ARGS__))
#define RESHAPE(net, name, x, ...) \
  net_shuffle(net, name, x,        \
              (rabbet_attr_t)INTS_ATTR("reshape_dims", __VA_ARGS__))

static inline rabbet_tensor_t* net_activation(net_t* net, const char* name,
                                              const char* type,
                                              rabbet_tensor_t* a) {
  return net_add(net, name,
                 (net_layer_t){.op = "activation",
                               .inputs = {a},
                               .input_count = 1,
                               .attrs = {ENUM_ATTR("type", type)},
                               .attr_count = 1});
}
static inline void net_output(net_t* net, rabbet_tensor_t* tensor,
                              const char* name) {
  RABBET_EXPECT_OK(rabbet_tensor_set_name(tensor, name));
  RABBET_EXPECT_OK(rabbet_network_mark_output(net->network, tensor));
}

static inline void net_end(net_t* net) {
  rabbet_network_release(net->network);
}

// ---- Reference --------------------------------------------------------------

// Every tensor of a network of static shapes, evaluated in order.
typedef struct oracle_t {
  const rabbet_network_t* network;
  rabbet_view_t views[CHECK_MAX_TENSORS];  // by tensor number
  void* owned[CHECK_MAX_TENSORS];
} oracle_t;

static inline rabbet_view_t oracle_view(const rabbet_tensor_t* tensor) {
  return (rabbet_view_t){
      .dtype = tensor->dtype,
      .format = RABBET_FORMAT_LINEAR,
      .dims = rabbet_shape_dims(tensor->network->graph, &tensor->shape)};
}

static inline void oracle_fill(rabbet_view_t* view, unsigned seed) {
  int64_t count = 0;
  RABBET_EXPECT_OK(rabbet_dims_count(&view->dims, &count));
  for (int64_t i = 0; i < count; ++i)
    if (rabbet_dtype_is_float(view->dtype))
      rabbet_store_double(view->dtype, view->data, i, net_random(&seed));
    else
      rabbet_store_int64(view->dtype, view->data, i,
                         (int64_t)(2 + 2 * net_random(&seed)));
}

static inline void oracle_allocate(oracle_t* oracle,
                                   const rabbet_tensor_t* tensor) {
  rabbet_view_t* view = &oracle->views[tensor->id];
  *view = oracle_view(tensor);
  if (tensor->constant) {
    view->data = (void*)tensor->constant;
    return;
  }
  size_t bytes = 0;
  RABBET_EXPECT_OK(
      rabbet_tensor_bytes(view->dtype, view->format, &view->dims, &bytes));
  view->data = oracle->owned[tensor->id] = calloc(1, bytes + 64);
}

static inline void oracle_layer(oracle_t* oracle, const rabbet_layer_t* layer) {
  rabbet_view_t inputs[16], outputs[16];
  for (size_t i = 0; i < layer->input_count; ++i)
    inputs[i] = layer->inputs[i] ? oracle->views[layer->inputs[i]->id]
                                 : (rabbet_view_t){.dtype = RABBET_DTYPE_NONE};
  for (size_t i = 0; i < layer->output_count; ++i) {
    if (layer->outputs[i]->constant) return;
    outputs[i] = oracle->views[layer->outputs[i]->id];
  }
  rabbet_op_eval_t eval = {.op = layer->op,
                           .allocator = rabbet_allocator_system(),
                           .attrs = layer->attrs,
                           .attr_count = layer->op->attr_count,
                           .inputs = inputs,
                           .input_count = layer->input_count,
                           .outputs = outputs,
                           .output_count = layer->output_count};
  RABBET_EXPECT_OK(layer->op->reference(&eval));
}

static inline void oracle_run(oracle_t* oracle, rabbet_network_t* network) {
  memset(oracle, 0, sizeof(*oracle));
  oracle->network = network;
  RABBET_EXPECT_OK(rabbet_network_infer(network));
  assert_true(network->tensors.count <= CHECK_MAX_TENSORS);
  for (size_t i = 0; i < network->tensors.count; ++i)
    oracle_allocate(oracle, network->tensors.data[i]);
  for (size_t i = 0; i < network->inputs.count; ++i)
    oracle_fill(&oracle->views[network->inputs.data[i]->id],
                (unsigned)(i + 77));
  for (size_t i = 0; i < network->layers.count; ++i)
    oracle_layer(oracle, network->layers.data[i]);
}

static inline void oracle_end(oracle_t* oracle) {
  for (size_t i = 0; i < CHECK_MAX_TENSORS; ++i)
    free(oracle->owned[i]);
}

// ---- Building and running ---------------------------------------------------

typedef struct built_t {
  void* plan;
  size_t size;
  rabbet_build_report_t* report;
  rabbet_engine_t* engine;
} built_t;

// RABBET_TEST_DEVICE=cpu runs the same networks there. What is fused depends on
// the device; "null" fuses all that may be.
static inline const char* check_device(void) {
  const char* device = getenv("RABBET_TEST_DEVICE");
  return device ? device : "null";
}
#define EXPECT_STEPS(found, expected)            \
  do {                                           \
    size_t found_steps = (found);                \
    if (strcmp(check_device(), "null") == 0)     \
      assert_int_equal(found_steps, (expected)); \
  } while (0)

static inline rabbet_builder_config_t* check_config(int level) {
  rabbet_builder_config_t* config = NULL;
  RABBET_EXPECT_OK(
      rabbet_builder_config_create(rabbet_allocator_system(), &config));
  RABBET_EXPECT_OK(rabbet_builder_config_set_device(config, check_device()));
  RABBET_EXPECT_OK(rabbet_builder_config_set(
      config, RABBET_BUILDER_OPTION_OPTIMIZATION_LEVEL, level));
  RABBET_EXPECT_OK(
      rabbet_builder_config_set(config, RABBET_BUILDER_OPTION_THREADS, 1));
  return config;
}

static inline void check_add_profile(rabbet_builder_config_t* config,
                                     const char* input, rabbet_dims_t min,
                                     rabbet_dims_t opt, rabbet_dims_t max) {
  rabbet_profile_t* profile = NULL;
  RABBET_EXPECT_OK(rabbet_profile_create(rabbet_allocator_system(), &profile));
  RABBET_EXPECT_OK(rabbet_profile_set_shape(profile, input, &min, &opt, &max));
  RABBET_EXPECT_OK(rabbet_builder_config_add_profile(config, profile));
  rabbet_profile_release(profile);
}

static inline built_t check_build(rabbet_network_t* network,
                                  rabbet_builder_config_t* config) {
  built_t built = {0};
  RABBET_EXPECT_OK(rabbet_build_plan(network, config, rabbet_allocator_system(),
                                     &built.plan, &built.size, &built.report));
  RABBET_EXPECT_OK(rabbet_engine_deserialize(
      built.plan, built.size, NULL, rabbet_allocator_system(), &built.engine));
  return built;
}

static inline void check_built_end(built_t* built) {
  rabbet_engine_release(built->engine);
  rabbet_build_report_destroy(built->report);
  rabbet_free_aligned(rabbet_allocator_system(), built->plan, 64);
}

// A busy machine leaves times in doubt, which the next builds with the same
// timing cache measure again.
static inline built_t check_build_until_sure(rabbet_network_t* network,
                                             rabbet_builder_config_t* config) {
  for (int i = 0;; ++i) {
    built_t built = check_build(network, config);
    const char* report = rabbet_build_report_json(built.report);
    if (strstr(report, "\"doubtful\": 0,")) return built;
    check_built_end(&built);
    if (i == 50) skip();  // the machine is too busy
  }
}

static inline void check_equal(const rabbet_view_t* expected, const void* found,
                               double tolerance, const char* name) {
  int64_t count = 0;
  RABBET_EXPECT_OK(rabbet_dims_count(&expected->dims, &count));
  for (int64_t i = 0; i < count; ++i) {
    double a = rabbet_load_double(expected->dtype, expected->data, i);
    double b = rabbet_load_double(expected->dtype, found, i);
    bool same = a == b || (isnan(a) && isnan(b)) ||
                fabs(a - b) <= tolerance * (1 + fabs(a));
    if (!same)
      fail_msg("output '%s' element %lld: expected %g, found %g", name,
               (long long)i, a, b);
  }
}

// Runs the engine on the oracle's inputs and compares its outputs with it.
static inline void check_run(const built_t* built, const oracle_t* oracle,
                             double tolerance) {
  const rabbet_network_t* network = oracle->network;
  rabbet_context_t* context = NULL;
  RABBET_EXPECT_OK(rabbet_context_create(built->engine,
                                         rabbet_allocator_system(), &context));
  void* outputs[16] = {NULL};
  size_t inputs = network->inputs.count;
  for (size_t i = 0; i < inputs; ++i) {
    const rabbet_view_t* view = &oracle->views[network->inputs.data[i]->id];
    RABBET_EXPECT_OK(rabbet_context_set_input_shape(context, i, &view->dims));
    RABBET_EXPECT_OK(rabbet_context_set_address(context, i, view->data));
  }
  for (size_t i = 0; i < network->outputs.count; ++i) {
    size_t bytes = 0;
    RABBET_EXPECT_OK(rabbet_context_bytes(context, inputs + i, &bytes));
    outputs[i] = aligned_alloc(64, (bytes + 64) / 64 * 64);
    memset(outputs[i], 0xab, bytes);
    RABBET_EXPECT_OK(
        rabbet_context_set_address(context, inputs + i, outputs[i]));
  }
  RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
  for (size_t i = 0; i < network->outputs.count; ++i) {
    const rabbet_tensor_t* tensor = network->outputs.data[i];
    check_equal(&oracle->views[tensor->id], outputs[i], tolerance,
                tensor->name);
    free(outputs[i]);
  }
  rabbet_context_destroy(context);
}

// Builds, runs, compares; returns the number of steps.
static inline size_t check_network(net_t* net, int level, double tolerance) {
  oracle_t* oracle = calloc(1, sizeof(*oracle));
  oracle_run(oracle, net->network);
  rabbet_builder_config_t* config = check_config(level);
  built_t built = check_build(net->network, config);
  check_run(&built, oracle, tolerance);
  size_t steps = rabbet_engine_layer_count(built.engine);
  check_built_end(&built);
  rabbet_builder_config_release(config);
  oracle_end(oracle);
  free(oracle);
  return steps;
}

static inline rabbet_tensor_t* net_concatenate(net_t* net, const char* name,
                                               rabbet_tensor_t* a,
                                               rabbet_tensor_t* b,
                                               int64_t axis) {
  return net_add(net, name,
                 (net_layer_t){.op = "concatenation",
                               .inputs = {a, b},
                               .input_count = 2,
                               .attrs = {INT_ATTR("axis", axis)},
                               .attr_count = 1});
}

// Checks the text of a build's report, beyond the number of steps.
static inline void expect_report(net_t* net, const char* part, bool present) {
  if (strcmp(check_device(), "null") != 0) return;
  rabbet_builder_config_t* config = check_config(0);
  built_t built = check_build(net->network, config);
  bool found = strstr(rabbet_build_report_text(built.report), part) != NULL;
  if (found != present)
    fail_msg("'%s' is %s:\n%s", part, found ? "there" : "missing",
             rabbet_build_report_text(built.report));
  check_built_end(&built);
  rabbet_builder_config_release(config);
}

#endif  // RABBET_TESTS_BUILD_CHECK_H_
