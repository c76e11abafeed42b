// A network, the oracle's results and an engine for the stand-in GPU.
#ifndef RABBET_TESTS_CUDA_MADE_H_
#define RABBET_TESTS_CUDA_MADE_H_

#include "build_check.h"
#include "cuda_stand_in/stand_in.h"

#define SYSTEM rabbet_allocator_system()

typedef struct made_t {
  net_t net;
  oracle_t* oracle;
  built_t built;
} made_t;

static inline void make(made_t* made, int level, int64_t flags) {
  made->oracle = calloc(1, sizeof(*made->oracle));
  oracle_run(made->oracle, made->net.network);
  rabbet_builder_config_t* config = check_config(level);
  RABBET_EXPECT_OK(rabbet_builder_config_set_device(config, "cuda"));
  RABBET_EXPECT_OK(
      rabbet_builder_config_set(config, RABBET_BUILDER_OPTION_FLAGS, flags));
  made->built = check_build(made->net.network, config);
  rabbet_builder_config_release(config);
}

static inline void run(const made_t* made, double tolerance) {
  const rabbet_network_t* network = made->net.network;
  rabbet_context_t* context = NULL;
  size_t inputs = network->inputs.count, bytes = 0;
  RABBET_EXPECT_OK(rabbet_context_create(made->built.engine, SYSTEM, &context));
  for (size_t i = 0; i < inputs; ++i) {
    const rabbet_view_t* view =
        &made->oracle->views[network->inputs.data[i]->id];
    RABBET_EXPECT_OK(rabbet_context_set_input_shape(context, i, &view->dims));
    RABBET_EXPECT_OK(rabbet_context_set_host_address(context, i, view->data));
  }
  RABBET_EXPECT_OK(rabbet_context_bytes(context, inputs, &bytes));
  void* output = aligned_alloc(64, (bytes + 64) / 64 * 64);
  memset(output, 0xab, bytes);
  RABBET_EXPECT_OK(rabbet_context_set_host_address(context, inputs, output));
  RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
  check_equal(&made->oracle->views[network->outputs.data[0]->id], output,
              tolerance, "y");
  free(output);
  rabbet_context_destroy(context);
}

static inline void unmake(made_t* made) {
  check_built_end(&made->built);
  oracle_end(made->oracle);
  free(made->oracle);
  net_end(&made->net);
  assert_int_equal(stand_in()->take_misuses(), 0);
}

#endif  // RABBET_TESTS_CUDA_MADE_H_
