// Networks twice as long take twice the work, not four times: counted in steps
// of the searches, in allocations and in bytes, not in time.
#include "build_check.h"
#include "test_plugins.h"

#define SHORT 600
// Twice, and something for sorting and for scans of short lists.
#define GROWTH 2.5

// ---- Networks ---------------------------------------------------------------

typedef rabbet_tensor_t* (*repeat_fn_t)(net_t* net, rabbet_tensor_t* x, int i);

static const char* numbered(const char* stem, int i) {
  static char names[4][32];
  static unsigned next;
  char* name = names[next++ % 4];
  snprintf(name, sizeof(names[0]), "%s%d", stem, i);
  return name;
}

static rabbet_tensor_t* softmax(net_t* net, rabbet_tensor_t* x, int i) {
  return net_add(net, numbered("softmax", i),
                 (net_layer_t){.op = "softmax",
                               .inputs = {x},
                               .input_count = 1,
                               .attrs = {INT_ATTR("axes", 2)},
                               .attr_count = 1});
}

static rabbet_tensor_t* product(net_t* net, rabbet_tensor_t* x, int i) {
  return net_add(net, numbered("product", i),
                 (net_layer_t){.op = "matrix_multiply",
                               .inputs = {x, WEIGHTS(net, 8, 8)},
                               .input_count = 2});
}

static rabbet_tensor_t* tanh_of(net_t* net, rabbet_tensor_t* x, int i) {
  return net_activation(net, numbered("tanh", i), "TANH", x);
}

static rabbet_tensor_t* pointwise(net_t* net, rabbet_tensor_t* x, int i) {
  return i % 2 ? tanh_of(net, x, i)
               : net_unary(net, numbered("abs", i), "ABS", x);
}

// Each softmax may take the layer before it, and the one behind.
static rabbet_tensor_t* alternating(net_t* net, rabbet_tensor_t* x, int i) {
  return i % 2 ? tanh_of(net, x, i) : softmax(net, x, i);
}

static rabbet_tensor_t* residual(net_t* net, rabbet_tensor_t* x, int i) {
  if (i % 3 > 0) return x;
  rabbet_tensor_t* y = tanh_of(net, product(net, x, i), i);
  return net_binary(net, numbered("sum", i), "SUM", x, y);
}

// All read one tensor, and all results are added up.
static rabbet_tensor_t* hub;
static rabbet_tensor_t* fan(net_t* net, rabbet_tensor_t* x, int i) {
  if (i == 0) hub = x;
  if (i % 2 == 0) return x;
  rabbet_tensor_t* one = softmax(net, product(net, hub, i), i);
  return net_binary(net, numbered("sum", i), "SUM", x, one);
}

// A plugin that works in place in every other layer.
static rabbet_tensor_t* in_place(net_t* net, rabbet_tensor_t* x, int i) {
  if (i % 2 == 0) return softmax(net, x, i);
  return net_plugin(net, "bump", numbered("bump", i), x);
}

static net_t network(repeat_fn_t repeat, int count) {
  net_t net = net_begin(0, rabbet_allocator_system());
  rabbet_tensor_t* x = net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(4, 8));
  for (int i = 0; i < count; ++i)
    x = repeat(&net, x, i);
  net_output(&net, x, "y");
  return net;
}

// ---- Work -------------------------------------------------------------------

typedef struct work_t {
  double steps, allocations, bytes;
} work_t;

static void* counting_resize(void* self, void* block, size_t size,
                             size_t alignment) {
  work_t* work = self;
  work->allocations += size > 0;
  work->bytes += (double)size;
  rabbet_allocator_t system = rabbet_allocator_system();
  return system.resize(system.self, block, size, alignment);
}

static work_t work_of(repeat_fn_t repeat, int count) {
  work_t work = {0};
  rabbet_allocator_t counting = {&work, counting_resize};
  net_t net = network(repeat, count);
  rabbet_builder_config_t* config = check_config(1);
  built_t built = {0};
  RABBET_EXPECT_OK(rabbet_build_plan(net.network, config, counting, &built.plan,
                                     &built.size, &built.report));
  const char* found =
      strstr(rabbet_build_report_json(built.report), "\"search_steps\": ");
  assert_non_null(found);
  work.steps = strtod(found + strlen("\"search_steps\": "), NULL);
  rabbet_engine_t* engine = NULL;
  RABBET_EXPECT_OK(rabbet_engine_deserialize(built.plan, built.size, NULL,
                                             counting, &engine));
  rabbet_engine_release(engine);
  rabbet_build_report_destroy(built.report);
  rabbet_free_aligned(counting, built.plan, 64);
  rabbet_builder_config_release(config);
  net_end(&net);
  return work;
}

static void grows_with_length(void** state) {
  repeat_fn_t repeat = *(repeat_fn_t*)*state;
  work_t once = work_of(repeat, SHORT), twice = work_of(repeat, 2 * SHORT);
  if (twice.steps > GROWTH * once.steps ||
      twice.allocations > GROWTH * once.allocations ||
      twice.bytes > GROWTH * once.bytes)
    fail_msg("steps %g -> %g, allocations %g -> %g, bytes %g -> %g", once.steps,
             twice.steps, once.allocations, twice.allocations, once.bytes,
             twice.bytes);
}

#define GROWS(repeat)                                \
  {                                                  \
    .name = #repeat, .test_func = grows_with_length, \
    .initial_state = (repeat_fn_t[]) {               \
      repeat                                         \
    }                                                \
  }

static int setup(void** state) {
  (void)state;
  test_plugins_register();
  return 0;
}

static int teardown(void** state) {
  (void)state;
  test_plugins_deregister();
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      GROWS(pointwise), GROWS(alternating), GROWS(residual),
      GROWS(fan),       GROWS(in_place),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
