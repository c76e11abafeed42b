// Convolutions by oneDNN against the operators' references: geometries, types,
// formats, epilogues, dynamic shapes and several contexts.
#include <pthread.h>

#include "conformance/cpu_device.h"
#include "faults/fault_allocator.h"

static const kernel_case_filter_t convolution_only = {.kernel =
                                                          "dnnl.convolution"};

#define RELU KERNEL_ATTRS(KERNEL_INT("type", 0))
#define SUM KERNEL_ATTRS(KERNEL_INT("op", 0))
#define PROD KERNEL_ATTRS(KERNEL_INT("op", 1))
#define PAD1 KERNEL_INTS("pre_padding", 1, 1), KERNEL_INTS("post_padding", 1, 1)

// ---- Geometry --------------------------------------------------------------

typedef struct geometry_t {
  rabbet_dims_t x, kernel;
  rabbet_attr_t attrs[6];
  size_t attr_count;
  int least;  // candidates
} geometry_t;

#define GEOMETRY(x, kernel, least, ...)                                       \
  {                                                                           \
    x, kernel, {__VA_ARGS__},                                                 \
        sizeof((rabbet_attr_t[]){__VA_ARGS__}) / sizeof(rabbet_attr_t), least \
  }

static void check_geometry(rabbet_device_t* device, const geometry_t* g,
                           rabbet_dtype_t dtype, bool bias) {
  kernel_case_t c;
  kernel_case_begin(&c, device, dtype);
  if (dtype == RABBET_DTYPE_BF16) c.tolerance = 1e-5;
  int32_t x = kernel_case_input(&c, g->x, false);
  int32_t k = kernel_case_input(&c, g->kernel, true);
  int32_t b =
      bias ? kernel_case_input(&c, KERNEL_DIMS(g->kernel.d[0]), true) : -1;
  int32_t y = kernel_case_op(&c, "convolution", g->attrs, g->attr_count,
                             KERNEL_INPUTS(x, k, b));
  kernel_case_output(&c, y);
  int count = kernel_case_check(&c, &convolution_only);
  if (count < g->least)
    fail_msg("%d candidates for kernel %lldx%lld, expected %d", count,
             (long long)g->kernel.d[0], (long long)g->kernel.d[1], g->least);
  kernel_case_end(&c);
}

static void check_geometries(rabbet_device_t* device, rabbet_dtype_t dtype) {
  const geometry_t geometries[] = {
      GEOMETRY(KERNEL_DIMS(1, 16, 7, 7), KERNEL_DIMS(16, 16, 1, 1), 4,
               KERNEL_INT("num_groups", 1)),
      GEOMETRY(KERNEL_DIMS(2, 16, 9, 8), KERNEL_DIMS(32, 16, 3, 3), 5, PAD1),
      GEOMETRY(KERNEL_DIMS(1, 48, 9, 9), KERNEL_DIMS(80, 48, 3, 3), 5, PAD1),
      // channels that fill no block
      GEOMETRY(KERNEL_DIMS(1, 5, 6, 7), KERNEL_DIMS(7, 5, 3, 3), 2, PAD1),
      GEOMETRY(KERNEL_DIMS(2, 7, 5, 6), KERNEL_DIMS(3, 7, 1, 1), 2,
               KERNEL_INT("num_groups", 1)),
      GEOMETRY(KERNEL_DIMS(1, 17, 9, 8), KERNEL_DIMS(32, 17, 1, 1), 2,
               KERNEL_INT("num_groups", 1)),
      GEOMETRY(KERNEL_DIMS(1, 3, 12, 12), KERNEL_DIMS(20, 3, 7, 7), 3,
               KERNEL_INTS("stride_nd", 2, 2), KERNEL_INTS("pre_padding", 3, 3),
               KERNEL_INTS("post_padding", 3, 3)),
      // asymmetric padding, dilation, strides that leave elements over
      GEOMETRY(KERNEL_DIMS(1, 8, 11, 10), KERNEL_DIMS(8, 8, 3, 2), 2,
               KERNEL_INTS("stride_nd", 2, 3), KERNEL_INTS("pre_padding", 0, 1),
               KERNEL_INTS("post_padding", 2, 0),
               KERNEL_INTS("dilation_nd", 2, 1)),
      GEOMETRY(KERNEL_DIMS(1, 8, 8, 8), KERNEL_DIMS(8, 8, 1, 1), 2,
               KERNEL_INTS("stride_nd", 2, 2)),
      GEOMETRY(KERNEL_DIMS(1, 6, 7, 7), KERNEL_DIMS(4, 6, 3, 3), 2,
               KERNEL_INTS("stride_nd", 2, 2), KERNEL_INT("padding_mode", 2)),
      GEOMETRY(KERNEL_DIMS(1, 6, 8, 8), KERNEL_DIMS(4, 6, 3, 3), 2,
               KERNEL_INTS("stride_nd", 2, 2), KERNEL_INT("padding_mode", 3)),
      GEOMETRY(KERNEL_DIMS(1, 6, 8, 8), KERNEL_DIMS(4, 6, 3, 3), 2,
               KERNEL_INTS("stride_nd", 2, 2), KERNEL_INT("padding_mode", 1)),
      // groups and depthwise
      GEOMETRY(KERNEL_DIMS(1, 32, 6, 6), KERNEL_DIMS(32, 16, 3, 3), 2, PAD1,
               KERNEL_INT("num_groups", 2)),
      GEOMETRY(KERNEL_DIMS(1, 12, 6, 6), KERNEL_DIMS(24, 4, 3, 3), 2, PAD1,
               KERNEL_INT("num_groups", 3)),
      GEOMETRY(KERNEL_DIMS(1, 20, 9, 9), KERNEL_DIMS(20, 1, 3, 3), 2, PAD1,
               KERNEL_INT("num_groups", 20)),
      // one and three spatial axes
      GEOMETRY(KERNEL_DIMS(2, 16, 13), KERNEL_DIMS(8, 16, 3), 2,
               KERNEL_INTS("pre_padding", 1), KERNEL_INTS("post_padding", 0)),
      GEOMETRY(KERNEL_DIMS(1, 16, 4, 5, 6), KERNEL_DIMS(16, 16, 2, 3, 3), 2,
               KERNEL_INTS("pre_padding", 1, 0, 1)),
  };
  for (size_t i = 0; i < sizeof(geometries) / sizeof(geometries[0]); ++i)
    check_geometry(device, &geometries[i], dtype, i % 2 == 0);
}

static void geometries_float(void** state) {
  check_geometries(*state, RABBET_DTYPE_FLOAT);
}
static void geometries_half(void** state) {
  check_geometries(*state, RABBET_DTYPE_HALF);
}
static void geometries_bf16(void** state) {
  check_geometries(*state, RABBET_DTYPE_BF16);
}

// ---- Epilogues -------------------------------------------------------------

static int32_t begin_convolution(kernel_case_t* c, rabbet_device_t* device,
                                 rabbet_dtype_t dtype, bool bias) {
  kernel_case_begin(c, device, dtype);
  if (dtype == RABBET_DTYPE_BF16) c->tolerance = 1e-5;
  int32_t x = kernel_case_input(c, KERNEL_DIMS(1, 16, 8, 8), false);
  int32_t k = kernel_case_input(c, KERNEL_DIMS(24, 16, 3, 3), true);
  int32_t b = bias ? kernel_case_input(c, KERNEL_DIMS(24), true) : -1;
  return kernel_case_op(c, "convolution", KERNEL_ATTRS(PAD1),
                        KERNEL_INPUTS(x, k, b));
}

static void end_case(kernel_case_t* c, int32_t y, int least) {
  kernel_case_output(c, y);
  int count = kernel_case_check(c, &convolution_only);
  if (count < least) fail_msg("%d candidates, expected %d", count, least);
  kernel_case_end(c);
}

static const rabbet_dtype_t real_types[] = {
    RABBET_DTYPE_FLOAT, RABBET_DTYPE_HALF, RABBET_DTYPE_BF16};

// convolution + bias, + residual, relu: as in residual networks.
static void residual(void** state) {
  for (int i = 0; i < 3; ++i) {
    for (int order = 0; order < 2; ++order) {
      kernel_case_t c;
      int32_t y = begin_convolution(&c, *state, real_types[i], true);
      int32_t r = kernel_case_input(&c, KERNEL_DIMS(1, 24, 8, 8), false);
      int32_t s =
          order ? kernel_case_op(&c, "elementwise", SUM, KERNEL_INPUTS(r, y))
                : kernel_case_op(&c, "elementwise", SUM, KERNEL_INPUTS(y, r));
      end_case(&c, kernel_case_op(&c, "activation", RELU, KERNEL_INPUTS(s)), 5);
    }
  }
}

// The activation comes first, then the residual.
static void residual_after_activation(void** state) {
  for (int i = 0; i < 3; ++i) {
    kernel_case_t c;
    int32_t y = begin_convolution(&c, *state, real_types[i], false);
    int32_t a = kernel_case_op(&c, "activation", RELU, KERNEL_INPUTS(y));
    int32_t r = kernel_case_input(&c, KERNEL_DIMS(1, 24, 8, 8), false);
    end_case(&c, kernel_case_op(&c, "elementwise", SUM, KERNEL_INPUTS(a, r)),
             2);
  }
}

// The input of the convolution is the residual too: never in place.
static void residual_is_input(void** state) {
  kernel_case_t c;
  kernel_case_begin(&c, *state, RABBET_DTYPE_FLOAT);
  int32_t x = kernel_case_input(&c, KERNEL_DIMS(1, 16, 8, 8), false);
  int32_t k = kernel_case_input(&c, KERNEL_DIMS(16, 16, 3, 3), true);
  int32_t y = kernel_case_op(&c, "convolution", KERNEL_ATTRS(PAD1),
                             KERNEL_INPUTS(x, k));
  int32_t s = kernel_case_op(&c, "elementwise", SUM, KERNEL_INPUTS(y, x));
  kernel_case_output(&c, s);
  kernel_case_candidate_t* candidates = NULL;
  size_t count = kernel_case_candidates(&c, &convolution_only, &candidates);
  assert_true(count > 1);
  for (size_t i = 0; i < count; ++i)
    assert_int_equal(candidates[i].in_place[0], -1);
  assert_true(kernel_case_check(&c, &convolution_only) > 1);
  kernel_case_end(&c);
}

typedef struct activation_t {
  int64_t type;
  double alpha, beta;
} activation_t;

static void activations(void** state) {
  const activation_t all[] = {
      {0, 0, 0},       {1, 0, 0},    {2, 0, 0},  {3, 0.1, 0},    {4, 0.7, 0},
      {5, 1.67, 1.05}, {7, 1, 1},    {7, 1, 2},  {8, -0.5, 1.5}, {9, 0.2, 0.5},
      {10, 1, 0.6},    {10, 1.7, 1}, {12, 0, 0}, {13, 0, 0},
  };
  for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); ++i) {
    kernel_case_t c;
    int32_t y = begin_convolution(&c, *state, real_types[i % 3], true);
    // Polynomial approximations.
    if (c.dtype != RABBET_DTYPE_BF16) c.tolerance = 5e-6;
    end_case(&c,
             kernel_case_op(&c, "activation",
                            KERNEL_ATTRS(KERNEL_INT("type", all[i].type),
                                         KERNEL_FLOAT("alpha", all[i].alpha),
                                         KERNEL_FLOAT("beta", all[i].beta)),
                            KERNEL_INPUTS(y)),
             2);
  }
}

static void swish(void** state) {
  for (int hard = 0; hard < 2; ++hard) {
    kernel_case_t c;
    int32_t y = begin_convolution(&c, *state, RABBET_DTYPE_FLOAT, true);
    c.tolerance = 5e-6;
    int32_t gate =
        kernel_case_op(&c, "activation",
                       KERNEL_ATTRS(KERNEL_INT("type", hard ? 9 : 1),
                                    KERNEL_FLOAT("alpha", hard ? 1.0 / 6 : 0),
                                    KERNEL_FLOAT("beta", hard ? 0.5 : 0)),
                       KERNEL_INPUTS(y));
    end_case(
        &c, kernel_case_op(&c, "elementwise", PROD, KERNEL_INPUTS(y, gate)), 2);
  }
}

// Operands of every shape that broadcasts, constant or not, in a chain.
static void operands(void** state) {
  for (int i = 0; i < 3; ++i) {
    kernel_case_t c;
    int32_t y = begin_convolution(&c, *state, real_types[i], i == 0);
    int32_t b = kernel_case_input(&c, KERNEL_DIMS(1, 24, 1, 1), true);
    int32_t scale = kernel_case_input(&c, KERNEL_DIMS(1, 24, 1, 1), false);
    int32_t three =
        kernel_case_constant(&c, KERNEL_DIMS(1, 1, 1, 1), (float[]){3});
    y = kernel_case_op(&c, "elementwise", SUM, KERNEL_INPUTS(b, y));
    y = kernel_case_op(&c, "elementwise", PROD, KERNEL_INPUTS(y, scale));
    y = kernel_case_op(&c, "elementwise", KERNEL_ATTRS(KERNEL_INT("op", 4)),
                       KERNEL_INPUTS(three, y));
    end_case(&c, kernel_case_op(&c, "activation", RELU, KERNEL_INPUTS(y)), 1);
  }
}

// Weights and bias that change from run to run.
static void variable_weights(void** state) {
  for (int i = 0; i < 3; ++i) {
    kernel_case_t c;
    kernel_case_begin(&c, *state, real_types[i]);
    if (c.dtype == RABBET_DTYPE_BF16) c.tolerance = 1e-5;
    int32_t x = kernel_case_input(&c, KERNEL_DIMS(1, 16, 6, 6), false);
    int32_t k = kernel_case_input(&c, KERNEL_DIMS(16, 16, 3, 3), false);
    int32_t b = kernel_case_input(&c, KERNEL_DIMS(16), false);
    end_case(&c,
             kernel_case_op(&c, "convolution", KERNEL_ATTRS(PAD1),
                            KERNEL_INPUTS(x, k, b)),
             3);
  }
}

static void check_extra_types(kernel_case_t* c, int32_t y) {
  kernel_case_output(c, y);
  kernel_case_candidate_t* candidates = NULL;
  size_t count = kernel_case_candidates(c, &convolution_only, &candidates);
  int seen[RABBET_DTYPE_COUNT] = {0};
  for (size_t i = 0; i < count; ++i)
    ++seen[candidates[i].tensors[0].dtype];
  assert_true(seen[RABBET_DTYPE_FLOAT] > 0 && seen[RABBET_DTYPE_HALF] > 0 &&
              seen[RABBET_DTYPE_BF16] > 0);
  assert_int_equal(kernel_case_check(c, &convolution_only), count);
  kernel_case_end(c);
}

static void extra_types(void** state) {
  kernel_case_t c;
  int32_t y = begin_convolution(&c, *state, RABBET_DTYPE_FLOAT, true);
  c.extra_dtypes = 1u << RABBET_DTYPE_HALF | 1u << RABBET_DTYPE_BF16;
  // Weights stay FLOAT; BF16 products round them.
  c.tolerance = 2e-3;
  check_extra_types(&c, y);
}

// Only boundary values have the chosen type; the values inside keep the
// network's.
static void extra_types_of_a_chain(void** state) {
  kernel_case_t c;
  int32_t y = begin_convolution(&c, *state, RABBET_DTYPE_FLOAT, true);
  c.extra_dtypes = 1u << RABBET_DTYPE_HALF | 1u << RABBET_DTYPE_BF16;
  c.tolerance = 4e-3;
  int32_t r = kernel_case_input(&c, KERNEL_DIMS(1, 24, 8, 8), false);
  y = kernel_case_op(&c, "elementwise", SUM, KERNEL_INPUTS(y, r));
  y = kernel_case_op(&c, "activation", RELU, KERNEL_INPUTS(y));
  check_extra_types(&c, y);
}

static void fixed_formats(void** state) {
  kernel_case_t c;
  int32_t y = begin_convolution(&c, *state, RABBET_DTYPE_FLOAT, false);
  kernel_case_output(&c, y);
  const rabbet_type_format_t fixed[] = {
      {RABBET_DTYPE_FLOAT, RABBET_FORMAT_HWC},
      {RABBET_DTYPE_FLOAT, RABBET_FORMAT_LINEAR},
      {RABBET_DTYPE_FLOAT, RABBET_FORMAT_HWC},
  };
  kernel_case_candidate_t* candidates = NULL;
  size_t count = kernel_case_candidates(
      &c, &(kernel_case_filter_t){.kernel = "dnnl.convolution", .fixed = fixed},
      &candidates);
  assert_true(count > 0);
  for (size_t i = 0; i < count; ++i)
    assert_memory_equal(candidates[i].tensors, fixed, sizeof(fixed));
  kernel_case_end(&c);
}

// ---- Groups that are not for it --------------------------------------------

static void not_a_convolution(void** state) {
  kernel_case_t c;
  kernel_case_begin(&c, *state, RABBET_DTYPE_FLOAT);
  int32_t x = kernel_case_input(&c, KERNEL_DIMS(1, 16, 6, 6), false);
  end_case(&c, kernel_case_op(&c, "activation", RELU, KERNEL_INPUTS(x)), 0);
  kernel_case_candidate_t* candidates = NULL;
  // A result in the middle is wanted too.
  int32_t y = begin_convolution(&c, *state, RABBET_DTYPE_FLOAT, false);
  int32_t a = kernel_case_op(&c, "activation", RELU, KERNEL_INPUTS(y));
  kernel_case_output(&c, y);
  kernel_case_output(&c, a);
  assert_int_equal(kernel_case_candidates(&c, &convolution_only, &candidates),
                   0);
  kernel_case_end(&c);
  // The epilogue makes the result larger.
  kernel_case_begin(&c, *state, RABBET_DTYPE_FLOAT);
  x = kernel_case_input(&c, KERNEL_DIMS(1, 4, 3, 3), false);
  int32_t k = kernel_case_input(&c, KERNEL_DIMS(4, 4, 3, 3), true);
  int32_t big = kernel_case_input(&c, KERNEL_DIMS(1, 4, 5, 5), false);
  y = kernel_case_op(&c, "convolution", KERNEL_NO_ATTRS, KERNEL_INPUTS(x, k));
  y = kernel_case_op(&c, "elementwise", SUM, KERNEL_INPUTS(y, big));
  kernel_case_output(&c, y);
  assert_int_equal(kernel_case_candidates(&c, &convolution_only, &candidates),
                   0);
  kernel_case_end(&c);
}

// ---- Shapes that change ----------------------------------------------------

// Every tactic of one shape is prepared for another, where oneDNN may lack it.
static void other_shapes(void** state) {
  kernel_case_t opt, other;
  int32_t y = begin_convolution(&opt, *state, RABBET_DTYPE_FLOAT, true);
  kernel_case_output(&opt, y);
  kernel_case_candidate_t* candidates = NULL;
  size_t count = kernel_case_candidates(&opt, &convolution_only, &candidates);
  assert_true(count >= 5);
  const int64_t sizes[][3] = {{3, 8, 8}, {1, 1, 1}, {2, 3, 17}};
  for (size_t s = 0; s < 3; ++s) {
    kernel_case_begin(&other, *state, RABBET_DTYPE_FLOAT);
    int32_t x = kernel_case_input(
        &other, KERNEL_DIMS(sizes[s][0], 16, sizes[s][1], sizes[s][2]), false);
    int32_t k = kernel_case_input(&other, KERNEL_DIMS(24, 16, 3, 3), true);
    int32_t b = kernel_case_input(&other, KERNEL_DIMS(24), true);
    kernel_case_output(&other,
                       kernel_case_op(&other, "convolution", KERNEL_ATTRS(PAD1),
                                      KERNEL_INPUTS(x, k, b)));
    for (size_t i = 0; i < count; ++i)
      kernel_case_run(&other, &candidates[i], 1);
    kernel_case_end(&other);
  }
  kernel_case_end(&opt);
}

// ---- Contexts at once ------------------------------------------------------

typedef struct runner_t {
  kernel_case_t* c;
  const kernel_case_candidate_t* candidate;
  rabbet_kernel_t* kernel;
  rabbet_kernel_state_t* state;
  kernel_case_memory_t memory;
  rabbet_status_t status;
} runner_t;

static void* run_often(void* argument) {
  runner_t* r = argument;
  rabbet_device_t* device = r->c->device;
  void* token = NULL;
  r->status = device->vtable->begin_run(device, 1, &token);
  for (int i = 0; i < 50 && rabbet_is_ok(r->status); ++i)
    r->status =
        r->candidate->kernel->enqueue(r->kernel, r->state, &r->memory.call);
  device->vtable->end_run(device, token);
  return NULL;
}

static void check_contexts(kernel_case_t* c,
                           const kernel_case_candidate_t* candidate) {
  enum { CONTEXTS = 3 };
  runner_t runners[CONTEXTS];
  pthread_t threads[CONTEXTS];
  rabbet_kernel_t* kernel = NULL;
  rabbet_dims_t dims[KERNEL_CASE_MAX];
  for (size_t i = 0; i < c->value_count; ++i)
    dims[i] = c->values[i].dims;
  const rabbet_kernel_shapes_t shapes = {.dims = dims, .threads = 1};
  const rabbet_kernel_spec_t spec = {.device = c->device,
                                     .group = &candidate->group,
                                     .tactic = candidate->tactic,
                                     .allocator = c->allocator};
  RABBET_EXPECT_OK(rabbet_kernel_create(candidate->kernel, &spec, &kernel));
  for (int i = 0; i < CONTEXTS; ++i) {
    size_t workspace = 0;
    runners[i] = (runner_t){.c = c, .candidate = candidate, .kernel = kernel};
    RABBET_EXPECT_OK(candidate->kernel->prepare(kernel, &shapes,
                                                &runners[i].state, &workspace));
    kernel_case_fill(c, candidate, workspace, false, &runners[i].memory);
  }
  for (int i = 0; i < CONTEXTS; ++i)
    assert_int_equal(pthread_create(&threads[i], NULL, run_often, &runners[i]),
                     0);
  for (int i = 0; i < CONTEXTS; ++i) {
    pthread_join(threads[i], NULL);
    RABBET_EXPECT_OK(runners[i].status);
    kernel_case_verify(c, candidate, false, &runners[i].memory);
    kernel_case_free(c, &runners[i].memory);
    candidate->kernel->destroy_state(kernel, runners[i].state);
  }
  candidate->kernel->destroy(kernel);
}

static void contexts_at_once(void** state) {
  kernel_case_t c;
  int32_t y = begin_convolution(&c, *state, RABBET_DTYPE_FLOAT, true);
  int32_t r = kernel_case_input(&c, KERNEL_DIMS(1, 24, 8, 8), false);
  y = kernel_case_op(&c, "elementwise", SUM, KERNEL_INPUTS(y, r));
  kernel_case_output(&c, y);
  kernel_case_candidate_t* candidates = NULL;
  size_t count = kernel_case_candidates(&c, &convolution_only, &candidates);
  for (size_t i = 0; i < count; ++i)
    check_contexts(&c, &candidates[i]);
  kernel_case_end(&c);
}

// ---- Memory that runs out --------------------------------------------------

static rabbet_status_t create_and_prepare(rabbet_allocator_t allocator,
                                          void* user_data) {
  const kernel_case_candidate_t* candidate =
      ((const runner_t*)user_data)->candidate;
  kernel_case_t* c = ((runner_t*)user_data)->c;
  rabbet_dims_t dims[KERNEL_CASE_MAX];
  for (size_t i = 0; i < c->value_count; ++i)
    dims[i] = c->values[i].dims;
  const rabbet_kernel_shapes_t shapes = {.dims = dims, .threads = 1};
  rabbet_device_t* device = NULL;
  rabbet_kernel_t* kernel = NULL;
  rabbet_kernel_state_t* state = NULL;
  size_t workspace = 0;
  rabbet_status_t status = rabbet_device_open(0, allocator, &device);
  if (rabbet_is_ok(status)) {
    const rabbet_kernel_spec_t spec = {.device = device,
                                       .group = &candidate->group,
                                       .tactic = candidate->tactic,
                                       .allocator = allocator};
    status = rabbet_kernel_create(candidate->kernel, &spec, &kernel);
  }
  if (rabbet_is_ok(status))
    status = candidate->kernel->prepare(kernel, &shapes, &state, &workspace);
  if (state) candidate->kernel->destroy_state(kernel, state);
  if (kernel) candidate->kernel->destroy(kernel);
  if (device) device->vtable->destroy(device);
  return status;
}

static void memory_runs_out(void** state) {
  kernel_case_t c;
  int32_t y = begin_convolution(&c, *state, RABBET_DTYPE_HALF, true);
  int32_t r = kernel_case_input(&c, KERNEL_DIMS(1, 24, 8, 8), false);
  y = kernel_case_op(&c, "elementwise", SUM, KERNEL_INPUTS(y, r));
  kernel_case_output(&c, y);
  kernel_case_candidate_t* candidates = NULL;
  size_t count = kernel_case_candidates(&c, &convolution_only, &candidates);
  for (size_t i = 0; i < count; ++i) {
    runner_t runner = {.c = &c, .candidate = &candidates[i]};
    assert_true(rabbet_fault_run(create_and_prepare, &runner) > 5);
  }
  kernel_case_end(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(geometries_float),
      cmocka_unit_test(geometries_half),
      cmocka_unit_test(geometries_bf16),
      cmocka_unit_test(residual),
      cmocka_unit_test(residual_after_activation),
      cmocka_unit_test(residual_is_input),
      cmocka_unit_test(activations),
      cmocka_unit_test(swish),
      cmocka_unit_test(operands),
      cmocka_unit_test(variable_weights),
      cmocka_unit_test(extra_types),
      cmocka_unit_test(extra_types_of_a_chain),
      cmocka_unit_test(fixed_formats),
      cmocka_unit_test(not_a_convolution),
      cmocka_unit_test(other_shapes),
      cmocka_unit_test(contexts_at_once),
      cmocka_unit_test(memory_runs_out),
  };
  return cmocka_run_group_tests(tests, cpu_fixture_open, cpu_fixture_close);
}
