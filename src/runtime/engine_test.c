#include "rabbet/engine.h"

#include <math.h>
#include <pthread.h>
#include <unistd.h>

#include "fuzz_plugins.h"
#include "plan_samples.h"
#include "runtime/runtime.h"
#include "test_plugins.h"

#define SYSTEM rabbet_allocator_system()

// ---- Helpers

static void make_bytes(void (*sample)(maker_t* maker), void** data,
                       size_t* size) {
  maker_t maker;
  maker_begin(&maker, SYSTEM);
  sample(&maker);
  maker_write(&maker, SYSTEM, data, size);
  maker_end(&maker);
}

static rabbet_status_t load(void (*sample)(maker_t* maker),
                            const rabbet_engine_options_t* options,
                            rabbet_engine_t** out_engine) {
  void* data = NULL;
  size_t size = 0;
  make_bytes(sample, &data, &size);
  rabbet_status_t status =
      rabbet_engine_deserialize(data, size, options, SYSTEM, out_engine);
  rabbet_free_aligned(SYSTEM, data, RABBET_PLAN_ALIGNMENT);
  return status;
}

static rabbet_context_t* make_context(void (*sample)(maker_t* maker)) {
  rabbet_engine_t* engine = NULL;
  rabbet_context_t* context = NULL;
  RABBET_EXPECT_OK(load(sample, NULL, &engine));
  RABBET_EXPECT_OK(rabbet_context_create(engine, SYSTEM, &context));
  rabbet_engine_release(engine);
  return context;
}

static size_t io_of(rabbet_context_t* context, const char* name) {
  int32_t io = rabbet_engine_find_io(rabbet_context_engine(context), name);
  assert_true(io >= 0);
  return (size_t)io;
}

static void bind(rabbet_context_t* context, const char* name, void* address) {
  RABBET_EXPECT_OK(
      rabbet_context_set_address(context, io_of(context, name), address));
}

static rabbet_status_t shape1(rabbet_context_t* context, const char* name,
                              int64_t d0) {
  rabbet_dims_t dims = {.rank = 1, .d = {d0}};
  return rabbet_context_set_input_shape(context, io_of(context, name), &dims);
}

static rabbet_status_t shape2(rabbet_context_t* context, const char* name,
                              int64_t d0, int64_t d1) {
  rabbet_dims_t dims = {.rank = 2, .d = {d0, d1}};
  return rabbet_context_set_input_shape(context, io_of(context, name), &dims);
}

static int64_t dim0(rabbet_context_t* context, const char* name) {
  rabbet_dims_t dims;
  RABBET_EXPECT_OK(rabbet_context_shape(context, io_of(context, name), &dims));
  return dims.d[0];
}

static void expect_floats(const float* found, const float* expected,
                          size_t count) {
  for (size_t i = 0; i < count; ++i)
    assert_float_equal(found[i], expected[i], 1e-6f);
}

// ---- Static shapes

static void run_static(void** state) {
  (void)state;
  rabbet_context_t* context = make_context(sample_static);
  float x[6] = {1, 2, 3, -4, -5, 6}, y[6] = {0};
  bind(context, "x", x);
  bind(context, "y", y);
  for (int i = 0; i < 3; ++i)
    RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
  static const float expected[6] = {0, 1.5f, 3, 0, 0, 7.5f};
  expect_floats(y, expected, 6);
  // Other addresses are taken up.
  float x2[6] = {1, 1, 1, 1, 1, 1}, y2[6] = {0};
  bind(context, "x", x2);
  bind(context, "y", y2);
  RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
  static const float expected2[6] = {0, 0.5f, 1, 1.5f, 2, 2.5f};
  expect_floats(y2, expected2, 6);
  expect_floats(y, expected, 6);
  rabbet_context_destroy(context);
}

static void run_fused(void** state) {
  (void)state;
  rabbet_context_t* context = make_context(sample_fused);
  float x[4] = {0, 1, -2, 0.5f}, y[4], expected[4];
  bind(context, "x", x);
  bind(context, "y", y);
  RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
  for (int i = 0; i < 4; ++i)
    expected[i] = tanhf(x[i] + 0.25f);
  expect_floats(y, expected, 4);
  rabbet_context_destroy(context);
}

static void missing_addresses(void** state) {
  (void)state;
  rabbet_context_t* context = make_context(sample_static);
  float data[7] = {0};
  RABBET_EXPECT_ERROR(rabbet_context_execute(context, NULL),
                      RABBET_STATUS_FAILED_PRECONDITION,
                      "the address of input 'x' is not set");
  bind(context, "x", data);
  RABBET_EXPECT_ERROR(rabbet_context_execute(context, NULL),
                      RABBET_STATUS_FAILED_PRECONDITION,
                      "the address of output 'y' is not set");
  RABBET_EXPECT_ERROR(
      rabbet_context_set_address(context, 0, (uint8_t*)data + 1),
      RABBET_STATUS_INVALID_ARGUMENT, "needs a multiple of 4");
  RABBET_EXPECT_ERROR(rabbet_context_set_address(context, 2, data),
                      RABBET_STATUS_OUT_OF_RANGE,
                      "2 is not an input or output");
  rabbet_context_destroy(context);
}

static void engine_facts(void** state) {
  (void)state;
  rabbet_engine_t* engine = NULL;
  void* data = NULL;
  size_t size = 0, plan_size = 0, bytes = 0;
  make_bytes(sample_static, &data, &size);
  RABBET_EXPECT_OK(
      rabbet_engine_deserialize(data, size, NULL, SYSTEM, &engine));
  const void* plan = NULL;
  rabbet_engine_plan(engine, &plan, &plan_size);
  assert_int_equal(plan_size, size);
  assert_memory_equal(plan, data, size);
  rabbet_free_aligned(SYSTEM, data, RABBET_PLAN_ALIGNMENT);
  assert_int_equal(rabbet_engine_io_count(engine), 2);
  assert_string_equal(rabbet_engine_io(engine, 0)->name, "x");
  assert_true(rabbet_engine_io(engine, 0)->is_input);
  assert_null(rabbet_engine_io(engine, 2));
  assert_int_equal(rabbet_engine_find_io(engine, "y"), 1);
  assert_int_equal(rabbet_engine_find_io(engine, "no"), -1);
  assert_int_equal(rabbet_engine_layer_count(engine), 2);
  assert_string_equal(rabbet_engine_name(engine), "sample");
  assert_string_equal(rabbet_engine_device(engine), "null");
  RABBET_EXPECT_OK(rabbet_engine_context_bytes(engine, 0, &bytes));
  assert_int_equal(bytes, 256);
  RABBET_EXPECT_ERROR(rabbet_engine_context_bytes(engine, 1, &bytes),
                      RABBET_STATUS_OUT_OF_RANGE, "profile 1");
  rabbet_engine_release(engine);
}

// ---- Dynamic shapes

static void run_dynamic(void** state) {
  (void)state;
  rabbet_context_t* context = make_context(sample_dynamic);
  float a[16], b[16], y[16], m = -1;
  int32_t n = -1;
  for (int i = 0; i < 16; ++i) {
    a[i] = (float)i;
    b[i] = (float)(i % 3) - 4;
  }
  bind(context, "a", a);
  bind(context, "b", b);
  bind(context, "y", y);
  bind(context, "n", &n);
  bind(context, "m", &m);
  // More shapes than a context keeps, some repeated.
  static const int64_t batches[] = {4, 1, 8, 0, 2, 3, 5, 6, 7, 4, 8, 1, 1};
  for (size_t k = 0; k < sizeof(batches) / sizeof(batches[0]); ++k) {
    int64_t batch = batches[k];
    RABBET_EXPECT_OK(shape2(context, "a", batch, 2));
    RABBET_EXPECT_OK(shape2(context, "b", batch, 2));
    assert_int_equal(dim0(context, "y"), batch);
    memset(y, 0x55, sizeof(y));
    RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
    for (int64_t i = 0; i < batch * 2; ++i)
      assert_float_equal(y[i], fmaxf(a[i] + b[i], 0), 1e-6f);
    if (batch < 8) assert_int_equal(((uint8_t*)&y[batch * 2])[0], 0x55);
    assert_int_equal(n, 2 * batch);
    assert_float_equal(m, (float)batch - 1, 0);
  }
  rabbet_context_destroy(context);
}

static void wrong_shapes(void** state) {
  (void)state;
  rabbet_context_t* context = make_context(sample_dynamic);
  int32_t missing = 7;
  rabbet_dims_t dims;
  size_t bytes = 0;
  RABBET_EXPECT_ERROR(rabbet_context_infer_shapes(context, &missing),
                      RABBET_STATUS_FAILED_PRECONDITION,
                      "the shape of input 'a' is not set");
  assert_int_equal(missing, 0);
  for (size_t i = 0; i < 6; ++i)
    assert_int_equal(rabbet_context_is_missing(context, i), i < 2);
  RABBET_EXPECT_OK(rabbet_context_shape(context, 2, &dims));
  assert_int_equal(dims.d[0], -1);
  assert_int_equal(dims.d[1], 2);
  RABBET_EXPECT_ERROR(rabbet_context_bytes(context, 0, &bytes),
                      RABBET_STATUS_FAILED_PRECONDITION, "'a'");
  RABBET_EXPECT_ERROR(shape2(context, "a", 9, 2), RABBET_STATUS_OUT_OF_RANGE,
                      "dimension 0 of input 'a' is 9; profile 0 allows 0 to 8");
  RABBET_EXPECT_ERROR(shape2(context, "a", 4, 3), RABBET_STATUS_OUT_OF_RANGE,
                      "dimension 1 of input 'a' is 3; it must be 2");
  RABBET_EXPECT_ERROR(shape1(context, "a", 4), RABBET_STATUS_INVALID_ARGUMENT,
                      "(-1, 2)");
  RABBET_EXPECT_ERROR(shape1(context, "y", 4), RABBET_STATUS_INVALID_ARGUMENT,
                      "'y' is an output");
  RABBET_EXPECT_OK(shape2(context, "a", 4, 2));
  assert_false(rabbet_context_is_missing(context, 0));
  assert_true(rabbet_context_is_missing(context, 1));
  RABBET_EXPECT_OK(shape2(context, "b", 5, 2));
  RABBET_EXPECT_ERROR(rabbet_context_infer_shapes(context, &missing),
                      RABBET_STATUS_INVALID_ARGUMENT,
                      "dimension 0 of input 'a' is 4 and dimension 0 of input "
                      "'b' is 5, but both are named 'batch'");
  assert_int_equal(missing, -1);
  RABBET_EXPECT_OK(shape2(context, "b", 4, 2));
  RABBET_EXPECT_OK(rabbet_context_infer_shapes(context, NULL));
  RABBET_EXPECT_OK(rabbet_context_bytes(context, 2, &bytes));
  assert_int_equal(bytes, 4 * 2 * sizeof(float));
  RABBET_EXPECT_ERROR(rabbet_context_set_profile(context, 1),
                      RABBET_STATUS_OUT_OF_RANGE, "profile 1");
  rabbet_context_destroy(context);
}

static void run_shape_input(void** state) {
  (void)state;
  rabbet_context_t* context = make_context(sample_shape_input);
  float x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, y[9];
  int32_t s = 3, missing = 0;
  bind(context, "x", x);
  bind(context, "y", y);
  RABBET_EXPECT_ERROR(rabbet_context_infer_shapes(context, &missing),
                      RABBET_STATUS_FAILED_PRECONDITION,
                      "the address of shape input 's' is not set");
  assert_int_equal(missing, 1);
  bind(context, "s", &s);
  for (int k = 0; k < 2; ++k) {
    for (s = 0; s <= 8; ++s) {
      for (int i = 0; i < 9; ++i)
        y[i] = -1;
      RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
      assert_int_equal(dim0(context, "y"), s);
      expect_floats(y, x, (size_t)s);
      assert_float_equal(y[s], -1, 0);
    }
  }
  s = 9;
  RABBET_EXPECT_ERROR(rabbet_context_execute(context, NULL),
                      RABBET_STATUS_OUT_OF_RANGE,
                      "element 0 of shape input 's' is 9; profile 0 allows 0 "
                      "to 8");
  s = 2;
  RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
  rabbet_context_destroy(context);
}

// y[s0,s1] = the corner of x[4,4], where s0 and s1 are 0 to 4.
static void sample_two_values(maker_t* m) {
  static const int64_t low[] = {0, 0}, high[] = {4, 4};
  rabbet_expr_t two = maker_number(m, 2), four = maker_number(m, 4);
  int32_t x =
      maker_io(m, "x", true, RABBET_DTYPE_FLOAT, MAKER_SHAPE(four, four));
  int32_t s = maker_io(m, "s", true, RABBET_DTYPE_INT64, MAKER_SHAPE(two));
  rabbet_expr_t sizes[2] = {maker_element(m, s, 0, RABBET_EXPR_NONE),
                            maker_element(m, s, 1, RABBET_EXPR_NONE)};
  int32_t y = maker_io(m, "y", false, RABBET_DTYPE_FLOAT,
                       MAKER_SHAPE(sizes[0], sizes[1]));
  m->ios[1].is_shape_input = true;
  m->ranges[1].min_values = low;
  m->ranges[1].opt_values = m->ranges[1].max_values = high;
  m->ranges[1].value_count = 2;
  m->values[s].host_values = maker_copy(m, sizes, sizeof(sizes));
  m->values[s].host_value_count = 2;
  maker_step(m, &(maker_step_t){.name = "slice",
                                .op = RABBET_OP_SLICE,
                                .attrs = {{.name = "start",
                                           .type = RABBET_ATTR_INTS,
                                           .data = (int64_t[]){0, 0},
                                           .count = 2}},
                                .attr_count = 1,
                                .inputs = {x, -1, s},
                                .input_count = 3,
                                .outputs = {y},
                                .output_count = 1});
}

// A value accepted before another one was refused still counts.
static void refused_values(void** state) {
  (void)state;
  rabbet_context_t* context = make_context(sample_two_values);
  float x[16], y[16];
  int64_t s[2] = {2, 3};
  for (int i = 0; i < 16; ++i)
    x[i] = (float)i;
  bind(context, "x", x);
  bind(context, "y", y);
  bind(context, "s", s);
  RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
  assert_int_equal(dim0(context, "y"), 2);
  s[0] = 4;
  s[1] = 5;
  RABBET_EXPECT_ERROR(rabbet_context_execute(context, NULL),
                      RABBET_STATUS_OUT_OF_RANGE, "element 1");
  s[1] = 3;
  RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
  assert_int_equal(dim0(context, "y"), 4);
  for (int i = 0; i < 12; ++i)
    assert_float_equal(y[i], (float)(i / 3 * 4 + i % 3), 0);
  rabbet_context_destroy(context);
}

// ---- Data-dependent shapes

typedef struct grower_t {
  void* memory;
  size_t size;
  int asked, told;
  int64_t last;
  bool refuse;
} grower_t;

static void* grow(void* user_data, const char* name, void* current, size_t size,
                  size_t alignment, void* stream) {
  (void)name, (void)current, (void)stream, (void)alignment;
  grower_t* grower = user_data;
  ++grower->asked;
  if (grower->refuse) return NULL;
  if (size > grower->size) {
    free(grower->memory);
    grower->memory = malloc(size);
    grower->size = size;
  }
  return grower->memory;
}

static void told(void* user_data, const char* name, const rabbet_dims_t* dims) {
  (void)name;
  grower_t* grower = user_data;
  ++grower->told;
  grower->last = dims->d[0];
}

static void run_reads(void** state) {
  (void)state;
  rabbet_context_t* context = make_context(sample_reads);
  float x[8], y[8];
  size_t bytes = 0;
  bind(context, "x", x);
  bind(context, "y", y);
  for (unsigned bits = 0; bits < 1024; bits += 3) {
    int64_t n = 1 + bits % 8, kept = 0;
    float expected[8];
    for (int64_t i = 0; i < n; ++i) {
      x[i] = bits >> i & 1 ? (float)(i % 2 ? i + 1 : -i - 1) : 0;
      if (x[i] != 0) expected[kept++] = x[i] + fmaxf(x[i], 0);
    }
    RABBET_EXPECT_OK(shape1(context, "x", n));
    RABBET_EXPECT_OK(rabbet_context_bytes(context, 1, &bytes));
    assert_int_equal(bytes, (size_t)n * sizeof(float));
    RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
    assert_int_equal(dim0(context, "y"), kept);
    expect_floats(y, expected, (size_t)kept);
  }
  RABBET_EXPECT_OK(shape1(context, "x", 3));
  assert_int_equal(dim0(context, "y"), -1);
  rabbet_context_destroy(context);
}

static void run_counts(void** state) {
  (void)state;
  rabbet_context_t* context = make_context(sample_counts);
  float x[8], y[8];
  bind(context, "x", x);
  bind(context, "y", y);
  for (unsigned bits = 0; bits < 1024; bits += 3) {
    int64_t n = 1 + bits % 8, found = 0;
    float expected[8];
    for (int64_t i = 0; i < n; ++i) {
      x[i] = bits >> i & 1 ? -2.0f : 0;
      if (x[i] != 0) expected[found++] = (float)i;
    }
    rabbet_dims_t dims;
    RABBET_EXPECT_OK(shape1(context, "x", n));
    RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
    RABBET_EXPECT_OK(rabbet_context_shape(context, 1, &dims));
    assert_int_equal(dims.d[1], found);
    expect_floats(y, expected, (size_t)found);
  }
  rabbet_context_destroy(context);
}

static void sample_too_few(maker_t* m) {
  sample_counts_of(m, maker_dim(m, 0, 0, "n"), maker_number(m, 2));
}

// A plan that allows more than there can be is fine, one that allows less would
// let the layer write past the end.
static void bounds_of_counts(void** state) {
  (void)state;
  rabbet_context_t* context = make_context(sample_too_few);
  float x[8] = {0, 1}, y[8];
  bind(context, "x", x);
  bind(context, "y", y);
  RABBET_EXPECT_OK(shape1(context, "x", 2));
  RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
  assert_float_equal(y[0], 1, 0);
  RABBET_EXPECT_OK(shape1(context, "x", 3));
  RABBET_EXPECT_ERROR(rabbet_context_execute(context, NULL),
                      RABBET_STATUS_DATA_LOSS,
                      "layer 'non_zero' (non_zero) can make 12 bytes of output "
                      "'indices', for which there is memory of 8");
  rabbet_context_destroy(context);
}

static void output_allocators(void** state) {
  (void)state;
  rabbet_context_t* context = make_context(sample_late);
  float x[8] = {5, 1, -2, 3, 4, 5, 6, 7};
  static const float expected[] = {5, 1, 0, 3, 4};
  grower_t grower = {0};
  size_t bytes = 0;
  rabbet_output_allocator_t allocator = {
      .user_data = &grower, .reallocate = grow, .notify_shape = told};
  bind(context, "x", x);
  RABBET_EXPECT_ERROR(rabbet_context_bytes(context, 1, &bytes),
                      RABBET_STATUS_FAILED_PRECONDITION,
                      "set an output allocator");
  RABBET_EXPECT_ERROR(
      rabbet_context_set_output_allocator(context, 0, allocator),
      RABBET_STATUS_INVALID_ARGUMENT, "'x' is an input");
  RABBET_EXPECT_OK(rabbet_context_set_output_allocator(context, 1, allocator));
  for (int i = 0; i < 2; ++i)
    RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
  assert_int_equal(grower.asked, 2);
  assert_int_equal(grower.told, 2);
  assert_int_equal(grower.last, 5);
  assert_int_equal(grower.size, 5 * sizeof(float));
  assert_ptr_equal(rabbet_context_address(context, 1), grower.memory);
  expect_floats(grower.memory, expected, 5);
  x[0] = 2;
  RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
  assert_int_equal(grower.last, 2);
  x[0] = 0;
  RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
  assert_int_equal(grower.last, 0);
  grower.refuse = true;
  RABBET_EXPECT_ERROR(rabbet_context_execute(context, NULL),
                      RABBET_STATUS_OUT_OF_MEMORY, "allocator of 'z'");
  grower.refuse = false;
  x[0] = -3;
  RABBET_EXPECT_ERROR(rabbet_context_execute(context, NULL),
                      RABBET_STATUS_OUT_OF_RANGE, "dimension 0 of 'y'");
  x[0] = 4;
  RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
  assert_int_equal(grower.last, 4);
  rabbet_context_destroy(context);
  free(grower.memory);
}

// ---- Aliases

static void run_parts(void** state) {
  (void)state;
  rabbet_context_t* context = make_context(sample_parts);
  float x[16], c[32], y[48], z[32], expected_y[48], expected_z[32];
  for (int i = 0; i < 32; ++i)
    c[i] = (float)(i % 5) / 4 - 0.5f;
  for (int i = 0; i < 16; ++i)
    x[i] = (float)(i % 3) - 1;
  for (int i = 0; i < 48; ++i)
    expected_y[i] = fmaxf(i < 16 ? x[i] : tanhf(c[i - 16]), 0);
  for (int i = 0; i < 32; ++i)
    expected_z[i] = i < 16 ? fmaxf(x[i], 0) : tanhf(x[i - 16]);
  bind(context, "x", x);
  bind(context, "c", c);
  bind(context, "y", y);
  bind(context, "z", z);
  RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
  expect_floats(y, expected_y, 48);
  expect_floats(z, expected_z, 32);
  rabbet_context_destroy(context);
}

static void run_aliases(void** state) {
  (void)state;
  rabbet_context_t* context = make_context(sample_aliases);
  float x[6] = {1, -2, 3, -4, 5, -6}, c[6] = {0, 1, 2, 3, 4, 5};
  float y[6], z[6];
  static const float expected[6] = {2, 1, 4, 1, 6, 1};
  bind(context, "x", x);
  bind(context, "c", c);
  bind(context, "y", y);
  RABBET_EXPECT_ERROR(rabbet_context_execute(context, NULL),
                      RABBET_STATUS_FAILED_PRECONDITION,
                      "set it to that of input 'c'");
  assert_int_equal(
      rabbet_engine_io(rabbet_context_engine(context), 3)->aliased_input, 1);
  // To memory of its own: the input stays as it is.
  bind(context, "z", z);
  RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
  expect_floats(y, expected, 6);
  for (int i = 0; i < 6; ++i) {
    assert_float_equal(c[i], (float)i, 0);
    assert_float_equal(z[i], (float)i + 1, 0);
  }
  // In place.
  bind(context, "z", c);
  for (int i = 0; i < 3; ++i)
    RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
  for (int i = 0; i < 6; ++i)
    assert_float_equal(c[i], (float)i + 3, 0);
  rabbet_context_destroy(context);
}

// ---- Overlapping memory

// p[2,3] = relu(x), q[2,3] = relu(p): p is written while x is read, q later.
static void sample_chain(maker_t* m) {
  static const int64_t dims[] = {2, 3};
  rabbet_shape_t shape = maker_shape(m, 2, dims);
  int32_t x = maker_io(m, "x", true, RABBET_DTYPE_FLOAT, shape);
  int32_t p = maker_io(m, "p", false, RABBET_DTYPE_FLOAT, shape);
  int32_t q = maker_io(m, "q", false, RABBET_DTYPE_FLOAT, shape);
  sample_relu(m, "first", x, p);
  sample_relu(m, "second", p, q);
}

// p is written while x is read: where they overlap, x is read from a copy.
static void overlapping_memory(void** state) {
  (void)state;
  rabbet_context_t* context = make_context(sample_chain);
  float room[20] = {0}, p[6], q[6];
  for (int at = 0; at <= 12; ++at) {
    bind(context, "x", room + 6);
    bind(context, "p", room + at);
    bind(context, "q", q);
    for (int i = 0; i < 6; ++i)
      room[6 + i] = (float)(i % 2 ? i : -i);
    RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
    for (int i = 0; i < 6; ++i) {
      assert_float_equal(room[at + i], (i % 2 ? i : 0), 0);
      assert_float_equal(q[i], (i % 2 ? i : 0), 0);
    }
  }
  // x is read no more when q is written.
  for (int at = 0; at <= 12; ++at) {
    bind(context, "p", p);
    bind(context, "q", room + at);
    for (int i = 0; i < 6; ++i)
      room[6 + i] = (float)(i % 2 ? i : -i);
    RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
    for (int i = 0; i < 6; ++i)
      assert_float_equal(room[at + i], (i % 2 ? i : 0), 0);
  }
  bind(context, "p", room + 1);
  bind(context, "q", room + 2);
  RABBET_EXPECT_ERROR(rabbet_context_execute(context, NULL),
                      RABBET_STATUS_INVALID_ARGUMENT,
                      "'p' overlaps that of output 'q'");
  rabbet_context_destroy(context);
}

// In place means at the same address; in part, the input is copied.
static void overlapping_in_part(void** state) {
  (void)state;
  rabbet_context_t* context = make_context(sample_aliases);
  float y[6], x[6] = {0};
  bind(context, "x", x);
  bind(context, "y", y);
  for (int at = 0; at <= 8; ++at) {
    float room[14] = {0}, *c = room + 4;
    for (int i = 0; i < 6; ++i)
      c[i] = (float)(i + 1);
    bind(context, "c", c);
    bind(context, "z", room + at);
    RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
    for (int i = 0; i < 6; ++i)
      assert_float_equal(room[at + i], (float)i + 2, 0);
  }
  rabbet_context_destroy(context);
}

// p[batch,2] = relu(x), 0 <= batch <= 8.
static void sample_rows(maker_t* m) {
  rabbet_expr_t batch = maker_dim(m, 0, 0, "batch"), two = maker_number(m, 2);
  rabbet_shape_t shape = MAKER_SHAPE(batch, two);
  int32_t x = maker_io(m, "x", true, RABBET_DTYPE_FLOAT, shape);
  int32_t p = maker_io(m, "p", false, RABBET_DTYPE_FLOAT, shape);
  sample_relu(m, "relu", x, p);
}

// Sizes from small to large and back, with addresses that stay: some runs copy
// the input and others do not.
static void overlaps_follow_shapes(void** state) {
  (void)state;
  rabbet_context_t* context = make_context(sample_rows);
  float room[32];
  bind(context, "x", room);
  bind(context, "p", room + 8);
  for (int round = 0; round <= 16; ++round) {
    int64_t batch = round <= 8 ? round : 16 - round;
    for (int i = 0; i < 32; ++i)
      room[i] = (float)(i % 3 - 1);
    RABBET_EXPECT_OK(shape2(context, "x", batch, 2));
    RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
    for (int i = 0; i < 24; ++i) {
      float before = (float)((i - 8) % 3 - 1);
      float expected = i < 8               ? (float)(i % 3 - 1)
                       : i < 8 + 2 * batch ? (before > 0 ? before : 0)
                                           : (float)(i % 3 - 1);
      assert_float_equal(room[i], expected, 0);
    }
  }
  rabbet_context_destroy(context);
}

// ---- Errors of steps and of loading

static void replace_step_1(maker_t* m, const char* plugin) {
  m->steps[1].kernel = "plugin";
  m->steps[1].plugin_name = plugin;
  m->steps[1].plugin_version = "1";
  m->steps[1].plugin_namespace = "test";
  m->steps[1].group.nodes[0].op = rabbet_op_get(RABBET_OP_PLUGIN);
}

static void sample_failing(maker_t* m) {
  sample_static(m);
  replace_step_1(m, "fail");
}

static void sample_roomy(maker_t* m) {
  sample_static(m);
  replace_step_1(m, "roomy");
}

static void sample_roomy_dynamic(maker_t* m) {
  sample_dynamic(m);
  replace_step_1(m, "roomy");
}

// A context allocates at the maximum as much as it says that it needs.
static void memory_counts_workspaces(void** state) {
  (void)state;
  rabbet_context_t* context = make_context(sample_roomy);
  rabbet_engine_t* engine = rabbet_context_engine(context);
  size_t bytes = 0;
  float x[6] = {3, 2, 1}, y[6];
  bind(context, "x", x);
  bind(context, "y", y);
  RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
  assert_float_equal(y[0], 2, 0);
  RABBET_EXPECT_OK(rabbet_engine_context_bytes(engine, 0, &bytes));
  assert_int_equal(bytes, context->main->memory_bytes[0]);
  assert_int_equal(bytes, 256 + 2048);
  rabbet_context_destroy(context);

  context = make_context(sample_roomy_dynamic);
  engine = rabbet_context_engine(context);
  RABBET_EXPECT_OK(rabbet_engine_context_bytes(engine, 0, &bytes));
  float a[16] = {1}, b[16] = {2}, out[16], m = 0;
  int32_t n = 0;
  bind(context, "a", a);
  bind(context, "b", b);
  bind(context, "y", out);
  bind(context, "n", &n);
  bind(context, "m", &m);
  for (int64_t batch = 2; batch <= 8; batch += 6) {
    RABBET_EXPECT_OK(shape2(context, "a", batch, 2));
    RABBET_EXPECT_OK(shape2(context, "b", batch, 2));
    RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
    assert_float_equal(out[0], 3, 0);
    assert_int_equal(bytes == context->main->memory_bytes[0], batch == 8);
  }
  rabbet_context_destroy(context);
}

static void failing_step(void** state) {
  (void)state;
  rabbet_context_t* context = make_context(sample_failing);
  float x[6] = {0}, y[6];
  bind(context, "x", x);
  bind(context, "y", y);
  rabbet_status_t status = rabbet_context_execute(context, NULL);
  assert_non_null(strstr(rabbet_status_message(status), "step 'relu'"));
  assert_non_null(strstr(rabbet_status_message(status), "fail"));
  RABBET_EXPECT_ERROR(status, RABBET_STATUS_PLUGIN, "it was made to fail");
  rabbet_context_destroy(context);
}

static void sample_unregistered(maker_t* m) {
  sample_failing(m);
  m->steps[1].plugin_name = "absent";
  m->steps[1].plugin_origin = "my_ops.py";
}

// One output more than the layer has.
static void sample_other_plugin(maker_t* m) {
  sample_static(m);
  replace_step_1(m, "compact");
}

static void scaled_step(maker_t* m, int32_t x, int32_t y) {
  maker_step(m, &(maker_step_t){.name = "scaled",
                                .op = RABBET_OP_PLUGIN,
                                .kernel = "plugin",
                                .plugin = "scaled",
                                .inputs = {x},
                                .input_count = 1,
                                .outputs = {y},
                                .output_count = 1})
      ->tactic = 1;
}

// y[2, 2 m] = x[2, m] beside itself, m <= 8, by fuzz_plugins.h's `scaled`, with
// tactic 1.
static void sample_scaled(maker_t* m, rabbet_dtype_t dtype, int64_t times) {
  rabbet_expr_t rows = maker_number(m, 2), columns = maker_dim(m, 0, 1, "m");
  rabbet_expr_t wide =
      maker_op(m, RABBET_EXPR_PROD, maker_number(m, times), columns);
  int32_t x = maker_io(m, "x", true, dtype, MAKER_SHAPE(rows, columns));
  int32_t y = maker_io(m, "y", false, dtype, MAKER_SHAPE(rows, wide));
  scaled_step(m, x, y);
}

static void sample_scaled_right(maker_t* m) {
  sample_scaled(m, RABBET_DTYPE_FLOAT, 2);
}

static void sample_scaled_type(maker_t* m) {
  sample_scaled(m, RABBET_DTYPE_INT32, 2);
}

static void sample_scaled_format(maker_t* m) {
  static const int64_t dims[] = {1, 4, 1, 2};
  rabbet_shape_t shape = maker_shape(m, 4, dims);
  int32_t x = maker_io(m, "x", true, RABBET_DTYPE_FLOAT, shape);
  int32_t y = maker_io(m, "y", false, RABBET_DTYPE_FLOAT, shape);
  m->values[x].format = RABBET_FORMAT_HWC;
  scaled_step(m, x, y);
}

static void sample_scaled_tactic(maker_t* m) {
  sample_scaled(m, RABBET_DTYPE_FLOAT, 2);
  m->steps[0].tactic = 3;
}

// Less room than the plugin fills.
static void sample_scaled_shape(maker_t* m) {
  sample_scaled(m, RABBET_DTYPE_FLOAT, 1);
}

// A plugin runs only with offered and described tensors, whatever a plan says.
static void plugins_are_asked_again(void** state) {
  (void)state;
  rabbet_engine_t* engine = NULL;
  fuzz_plugins_register();
  RABBET_EXPECT_ERROR(load(sample_scaled_type, NULL, &engine),
                      RABBET_STATUS_INCOMPATIBLE,
                      "types and formats (INT32 LINEAR, INT32 LINEAR) are not "
                      "among those");
  RABBET_EXPECT_ERROR(load(sample_scaled_format, NULL, &engine),
                      RABBET_STATUS_INCOMPATIBLE,
                      "(FLOAT HWC, FLOAT LINEAR) are not among those");
  RABBET_EXPECT_ERROR(load(sample_scaled_tactic, NULL, &engine),
                      RABBET_STATUS_INCOMPATIBLE,
                      "tactic 3 is not among the 2 that the plugin offers");
  float x[6] = {1, 2, 3, 4, 5, 6}, y[12] = {0};
  rabbet_context_t* context = make_context(sample_scaled_right);
  bind(context, "x", x);
  bind(context, "y", y);
  RABBET_EXPECT_OK(shape2(context, "x", 2, 3));
  RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
  assert_float_equal(y[8], 6, 0);
  assert_float_equal(y[9], 12, 0);
  rabbet_context_destroy(context);
  context = make_context(sample_scaled_shape);
  bind(context, "x", x);
  bind(context, "y", y);
  RABBET_EXPECT_OK(shape2(context, "x", 2, 3));
  RABBET_EXPECT_ERROR(rabbet_context_execute(context, NULL),
                      RABBET_STATUS_INCOMPATIBLE,
                      "makes output 0 of layer 'scaled' of shape (2, 6); the "
                      "plan has (2, 3)");
  rabbet_context_destroy(context);
  fuzz_plugins_deregister();
}

static void sample_no_kernel(maker_t* m) {
  sample_static(m);
  m->steps[0].kernel = "dnnl.magic";
}

static void sample_wrong_device(maker_t* m) {
  sample_static(m);
  m->plan->device = "cuda";
}

static void sample_other_machine(maker_t* m) {
  sample_static(m);
  m->plan->device_signature = "null of elsewhere";
}

static void count_warning(void* user_data, rabbet_severity_t severity,
                          const char* message) {
  if (severity == RABBET_SEVERITY_WARNING &&
      strstr(message, "null of elsewhere"))
    ++*(int*)user_data;
}

static void loading_errors(void** state) {
  (void)state;
  rabbet_engine_t* engine = NULL;
  int warnings = 0;
  rabbet_engine_options_t options = {
      .struct_size = sizeof(options),
      .device = "null",
      .logger = {&warnings, count_warning, RABBET_SEVERITY_WARNING}};
  RABBET_EXPECT_ERROR(load(sample_unregistered, NULL, &engine),
                      RABBET_STATUS_NOT_FOUND,
                      "needs the plugin 'test::absent', version '1', which was "
                      "defined in 'my_ops.py'");
  RABBET_EXPECT_ERROR(load(sample_other_plugin, NULL, &engine),
                      RABBET_STATUS_INCOMPATIBLE,
                      "plugin 'compact' makes 2 outputs; layer 'relu' of the "
                      "plan has 1");
  RABBET_EXPECT_ERROR(load(sample_no_kernel, NULL, &engine),
                      RABBET_STATUS_INCOMPATIBLE,
                      "has no kernel 'dnnl.magic'; it has reference, plugin");
  RABBET_EXPECT_ERROR(load(sample_wrong_device, &options, &engine),
                      RABBET_STATUS_INCOMPATIBLE, "built for device 'cuda'");
  RABBET_EXPECT_OK(load(sample_static, &options, &engine));
  rabbet_engine_release(engine);
  assert_int_equal(warnings, 0);
  RABBET_EXPECT_OK(load(sample_other_machine, &options, &engine));
  rabbet_engine_release(engine);
  assert_int_equal(warnings, 1);
  RABBET_EXPECT_ERROR(
      rabbet_engine_load("/nonexistent.plan", NULL, SYSTEM, &engine),
      RABBET_STATUS_NOT_FOUND, "/nonexistent.plan");
  RABBET_EXPECT_ERROR(rabbet_engine_deserialize("", 0, NULL, SYSTEM, &engine),
                      RABBET_STATUS_INVALID_ARGUMENT, "no bytes");
}

// Options of programs that were compiled for another version.
static void options_of_other_sizes(void** state) {
  (void)state;
  struct {
    rabbet_engine_options_t options;
    uint64_t added;
  } newer = {{.struct_size = sizeof(newer), .device = "null"}, 0};
  rabbet_engine_t* engine = NULL;
  RABBET_EXPECT_OK(load(sample_static, &newer.options, &engine));
  rabbet_engine_release(engine);
  newer.added = 1;
  RABBET_EXPECT_ERROR(
      load(sample_static, &newer.options, &engine),
      RABBET_STATUS_INVALID_ARGUMENT,
      "rabbet_engine_options_t: struct_size is 104, that of rabbet");
  newer.options.untrusted = true;
  newer.options.host_code_allowed = true;
  newer.options.struct_size = offsetof(rabbet_engine_options_t, untrusted);
  RABBET_EXPECT_OK(load(sample_static, &newer.options, &engine));
  rabbet_engine_release(engine);
  newer.options.struct_size = 0;
  RABBET_EXPECT_ERROR(load(sample_static, &newer.options, &engine),
                      RABBET_STATUS_INVALID_ARGUMENT,
                      "set it to sizeof(rabbet_engine_options_t)");
}

// An engine that cannot run here can be inspected.
static void inspect_only(void** state) {
  (void)state;
  void (*const samples[])(maker_t * maker) = {
      sample_unregistered, sample_no_kernel, sample_wrong_device};
  rabbet_engine_options_t options = {.struct_size = sizeof(options),
                                     .inspect_only = true};
  for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); ++i) {
    rabbet_engine_t* engine = NULL;
    char* text = NULL;
    RABBET_EXPECT_OK(load(samples[i], &options, &engine));
    RABBET_EXPECT_OK(rabbet_engine_inspect(engine, NULL, -1,
                                           RABBET_INSPECT_JSON, SYSTEM, &text));
    assert_non_null(strstr(text, "relu"));
    rabbet_free(SYSTEM, text);
    assert_non_null(rabbet_engine_io(engine, 0));
    assert_string_equal(rabbet_engine_device(engine),
                        samples[i] == sample_wrong_device ? "cuda" : "null");
    size_t bytes = 0;
    RABBET_EXPECT_OK(rabbet_engine_context_bytes(engine, 0, &bytes));
    rabbet_context_t* context = NULL;
    RABBET_EXPECT_ERROR(rabbet_context_create(engine, SYSTEM, &context),
                        RABBET_STATUS_FAILED_PRECONDITION, "inspect");
    void* memory = &bytes;
    RABBET_EXPECT_ERROR(rabbet_engine_allocate(engine, 4, &memory),
                        RABBET_STATUS_FAILED_PRECONDITION, "inspect");
    assert_null(memory);
    RABBET_EXPECT_ERROR(rabbet_engine_allocate_async(engine, 4, NULL, &memory),
                        RABBET_STATUS_FAILED_PRECONDITION, "inspect");
    assert_null(memory);
    RABBET_EXPECT_ERROR(rabbet_engine_copy(engine, &memory, &memory, 1, NULL),
                        RABBET_STATUS_FAILED_PRECONDITION, "inspect");
    RABBET_EXPECT_ERROR(rabbet_engine_synchronize(engine, NULL),
                        RABBET_STATUS_FAILED_PRECONDITION, "inspect");
    RABBET_EXPECT_ERROR(
        rabbet_engine_copy_to_host(engine, &memory, &memory, 1, NULL),
        RABBET_STATUS_FAILED_PRECONDITION, "inspect");
    RABBET_EXPECT_ERROR(
        rabbet_engine_copy_to_device(engine, &memory, &memory, 1, NULL),
        RABBET_STATUS_FAILED_PRECONDITION, "inspect");
    rabbet_engine_release(engine);
  }
}

static void memory_for_callers(void** state) {
  (void)state;
  rabbet_engine_t* engine = NULL;
  void *a = NULL, *b = NULL;
  RABBET_EXPECT_OK(load(sample_static, NULL, &engine));
  RABBET_EXPECT_OK(rabbet_engine_allocate(engine, 100, &a));
  RABBET_EXPECT_OK(rabbet_engine_allocate(engine, 0, &b));
  assert_non_null(b);
  assert_ptr_not_equal(a, b);
  assert_int_equal((uintptr_t)a % 256, 0);
  memset(a, 1, 100);
  RABBET_EXPECT_OK(rabbet_engine_synchronize(engine, NULL));
  RABBET_EXPECT_OK(rabbet_engine_copy_to_device(engine, a, "two", 3, NULL));
  uint8_t copied[100] = {0};
  RABBET_EXPECT_OK(rabbet_engine_copy_to_host(engine, copied, a, 100, NULL));
  assert_memory_equal(copied, a, 100);
  assert_memory_equal(copied, "two\1", 4);
  rabbet_engine_free(engine, a);
  rabbet_engine_free(engine, b);
  rabbet_engine_free(engine, NULL);
  rabbet_engine_release(engine);
}

// The device has no memory in stream order: its own memory, at once.
static void memory_of_calls(void** state) {
  (void)state;
  rabbet_engine_t* engine = NULL;
  void *a = NULL, *b = NULL;
  RABBET_EXPECT_OK(load(sample_static, NULL, &engine));
  RABBET_EXPECT_OK(rabbet_engine_allocate_async(engine, 100, NULL, &a));
  RABBET_EXPECT_OK(rabbet_engine_allocate_async(engine, 0, NULL, &b));
  assert_non_null(b);
  rabbet_engine_free_async(engine, b, NULL);
  RABBET_EXPECT_OK(rabbet_engine_allocate_async(engine, 100, NULL, &b));
  memset(a, 3, 100);
  RABBET_EXPECT_OK(rabbet_engine_copy(engine, b, a, 100, NULL));
  assert_memory_equal(a, b, 100);
  rabbet_engine_retire(engine, a);
  rabbet_engine_free_async(engine, b, NULL);
  rabbet_engine_free_async(engine, NULL, NULL);
  rabbet_engine_retire(engine, NULL);
  rabbet_engine_release(engine);
}

typedef struct counted_t {
  size_t asked, live;
  size_t refuse;  // allocations of at least so many bytes fail
} counted_t;

static void* counted_allocate(void* user_data, size_t size, size_t alignment,
                              void* stream) {
  counted_t* counted = user_data;
  void* memory = NULL;
  (void)stream;
  ++counted->asked;
  if (size >= counted->refuse) return NULL;
  RABBET_EXPECT_OK(rabbet_allocate_aligned(SYSTEM, size, alignment, &memory));
  ++counted->live;
  return memory;
}

static void counted_free(void* user_data, void* memory, void* stream) {
  (void)stream;
  --((counted_t*)user_data)->live;
  rabbet_free_aligned(SYSTEM, memory, 256);
}

static void memory_of_calls_of_the_caller(void** state) {
  (void)state;
  rabbet_engine_t* engine = NULL;
  counted_t counted = {.refuse = 1000};
  rabbet_engine_options_t options = {
      .struct_size = sizeof(options),
      .device = "null",
      .device_allocator = {&counted, counted_allocate, counted_free}};
  void *a = NULL, *b = NULL;
  RABBET_EXPECT_OK(load(sample_static, &options, &engine));
  size_t before = counted.live;
  RABBET_EXPECT_OK(rabbet_engine_allocate_async(engine, 100, NULL, &a));
  RABBET_EXPECT_OK(rabbet_engine_allocate_async(engine, 100, NULL, &b));
  assert_int_equal(counted.live, before + 2);
  rabbet_engine_free_async(engine, a, NULL);
  rabbet_engine_retire(engine, b);
  assert_int_equal(counted.live, before);
  RABBET_EXPECT_ERROR(rabbet_engine_allocate_async(engine, 1000, NULL, &a),
                      RABBET_STATUS_OUT_OF_MEMORY,
                      "the caller's allocator gave no memory for 1000 bytes");
  assert_null(a);
  rabbet_engine_release(engine);
  assert_int_equal(counted.live, 0);
}

static void load_file(void** state) {
  (void)state;
  void* data = NULL;
  size_t size = 0;
  char path[] = "/tmp/rabbet_engine_test_XXXXXX";
  int descriptor = mkstemp(path);
  assert_true(descriptor >= 0);
  close(descriptor);
  make_bytes(sample_static, &data, &size);
  RABBET_EXPECT_OK(rabbet_file_write(path, &(rabbet_span_t){data, size}, 1));
  rabbet_free_aligned(SYSTEM, data, RABBET_PLAN_ALIGNMENT);
  rabbet_engine_t* engine = NULL;
  RABBET_EXPECT_OK(rabbet_engine_load(path, NULL, SYSTEM, &engine));
  unlink(path);
  rabbet_context_t* context = NULL;
  RABBET_EXPECT_OK(rabbet_context_create(engine, SYSTEM, &context));
  rabbet_engine_release(engine);
  float x[6] = {1, 1, 1, 1, 1, 1}, y[6] = {0};
  bind(context, "x", x);
  bind(context, "y", y);
  RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
  assert_float_equal(y[5], 2.5f, 0);
  rabbet_context_destroy(context);
}

// ---- Profiler, inspector

static void count_report(void* user_data, const char* layer,
                         float milliseconds) {
  int* count = user_data;
  assert_string_equal(layer, *count % 2 ? "relu" : "add");
  assert_true(milliseconds >= 0);
  ++*count;
}

static void profiling(void** state) {
  (void)state;
  rabbet_context_t* context = make_context(sample_static);
  float x[6] = {0}, y[6];
  int count = 0;
  bind(context, "x", x);
  bind(context, "y", y);
  RABBET_EXPECT_OK(rabbet_context_set_profiler(
      context, (rabbet_profiler_t){&count, count_report}));
  RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
  RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
  assert_int_equal(count, 4);
  RABBET_EXPECT_OK(
      rabbet_context_set_profiler(context, (rabbet_profiler_t){0}));
  RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
  assert_int_equal(count, 4);
  rabbet_context_destroy(context);
}

static char* inspect(rabbet_context_t* context, bool with_context,
                     int32_t layer, rabbet_inspect_format_t format) {
  char* text = NULL;
  RABBET_EXPECT_OK(rabbet_engine_inspect(rabbet_context_engine(context),
                                         with_context ? context : NULL, layer,
                                         format, SYSTEM, &text));
  return text;
}

static void expect_inside(char* text, const char* part) {
  if (!strstr(text, part)) print_error("'%s' is not in:\n%s\n", part, text);
  assert_non_null(strstr(text, part));
}

static void inspecting(void** state) {
  (void)state;
  rabbet_context_t* context = make_context(sample_static);
  char* text = inspect(context, false, 0, RABBET_INSPECT_JSON);
  expect_inside(text, "\"Name\": \"add\", \"LayerType\": \"ELEMENTWISE\"");
  expect_inside(text,
                "\"Inputs\": [{\"Name\": \"x\", \"Dimensions\": [2, 3], "
                "\"Format/Datatype\": \"LINEAR FP32\"}");
  expect_inside(text, "\"TacticName\": \"reference\"");
  expect_inside(text, "\"TacticValue\": \"0x00000000\"");
  expect_inside(text, "\"TimeUs\": 1.500");
  expect_inside(text, "\"Alternatives\": [{\"kernel\": \"other\"");
  rabbet_free(SYSTEM, text);
  text = inspect(context, false, -1, RABBET_INSPECT_JSON);
  expect_inside(text, "\"Bindings\": [\"x\", \"y\"]");
  rabbet_free(SYSTEM, text);
  text = inspect(context, false, -1, RABBET_INSPECT_TEXT);
  expect_inside(text, "input  x: FP32 (2, 3) LINEAR");
  expect_inside(text, "\nadd    reference  reference  1.5  FP32 (2, 3) LINEAR");
  expect_inside(text, "\nrelu   reference  reference    -  ");
  rabbet_free(SYSTEM, text);
  RABBET_EXPECT_ERROR(
      rabbet_engine_inspect(rabbet_context_engine(context), NULL, 2,
                            RABBET_INSPECT_TEXT, SYSTEM, &text),
      RABBET_STATUS_OUT_OF_RANGE, "layer 2");
  rabbet_context_destroy(context);
  context = make_context(sample_dynamic);
  RABBET_EXPECT_OK(shape2(context, "a", 5, 2));
  RABBET_EXPECT_OK(shape2(context, "b", 5, 2));
  RABBET_EXPECT_OK(rabbet_context_infer_shapes(context, NULL));
  text = inspect(context, false, 1, RABBET_INSPECT_JSON);
  expect_inside(text, "\"Dimensions\": [-1, 2]");
  rabbet_free(SYSTEM, text);
  text = inspect(context, true, 1, RABBET_INSPECT_JSON);
  expect_inside(text, "\"Dimensions\": [5, 2]");
  rabbet_free(SYSTEM, text);
  rabbet_context_destroy(context);
}

// ---- Threads

static void threads_setting(void** state) {
  (void)state;
  rabbet_context_t* context = make_context(sample_static);
  assert_int_equal(rabbet_context_threads(context), 1);
  RABBET_EXPECT_OK(rabbet_context_set_threads(context, 3));
  assert_int_equal(rabbet_context_threads(context), 3);
  RABBET_EXPECT_ERROR(rabbet_context_set_threads(context, -1),
                      RABBET_STATUS_INVALID_ARGUMENT, "-1 threads");
  RABBET_EXPECT_OK(rabbet_context_set_threads(context, 0));
  assert_int_equal(rabbet_context_threads(context), 1);
  rabbet_context_destroy(context);
}

typedef struct worker_t {
  rabbet_engine_t* engine;
  int number, wrong;
} worker_t;

static void* work(void* argument) {
  worker_t* worker = argument;
  rabbet_context_t* context = NULL;
  rabbet_status_t status =
      rabbet_context_create(worker->engine, SYSTEM, &context);
  float x[8], y[8];
  for (int run = 0; run < 200 && rabbet_is_ok(status); ++run) {
    int n = 1 + (run + worker->number) % 8, kept = 0;
    for (int i = 0; i < n; ++i) {
      x[i] = (float)((i * 7 + run) % 3 - 1);
      kept += x[i] != 0;
    }
    rabbet_dims_t dims = {.rank = 1, .d = {n}};
    status = rabbet_context_set_input_shape(context, 0, &dims);
    if (rabbet_is_ok(status))
      status = rabbet_context_set_address(context, 0, x);
    if (rabbet_is_ok(status))
      status = rabbet_context_set_address(context, 1, y);
    if (rabbet_is_ok(status)) status = rabbet_context_execute(context, NULL);
    if (rabbet_is_ok(status)) status = rabbet_context_shape(context, 1, &dims);
    worker->wrong += dims.d[0] != kept;
    for (int i = 0; i < kept; ++i)
      worker->wrong += y[i] != -1 && y[i] != 2;
  }
  worker->wrong += !rabbet_is_ok(status);
  rabbet_status_ignore(status);
  rabbet_context_destroy(context);
  return NULL;
}

static void contexts_in_threads(void** state) {
  (void)state;
  rabbet_engine_t* engine = NULL;
  RABBET_EXPECT_OK(load(sample_reads, NULL, &engine));
  pthread_t threads[4];
  worker_t workers[4];
  for (int i = 0; i < 4; ++i) {
    workers[i] = (worker_t){.engine = engine, .number = i};
    assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
  }
  for (int i = 0; i < 4; ++i) {
    pthread_join(threads[i], NULL);
    assert_int_equal(workers[i].wrong, 0);
  }
  rabbet_engine_release(engine);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(run_static),
      cmocka_unit_test(run_fused),
      cmocka_unit_test(missing_addresses),
      cmocka_unit_test(engine_facts),
      cmocka_unit_test(run_dynamic),
      cmocka_unit_test(wrong_shapes),
      cmocka_unit_test(run_shape_input),
      cmocka_unit_test(refused_values),
      cmocka_unit_test(run_reads),
      cmocka_unit_test(run_counts),
      cmocka_unit_test(bounds_of_counts),
      cmocka_unit_test(output_allocators),
      cmocka_unit_test(run_aliases),
      cmocka_unit_test(run_parts),
      cmocka_unit_test(overlapping_memory),
      cmocka_unit_test(overlapping_in_part),
      cmocka_unit_test(overlaps_follow_shapes),
      cmocka_unit_test(failing_step),
      cmocka_unit_test(memory_counts_workspaces),
      cmocka_unit_test(loading_errors),
      cmocka_unit_test(options_of_other_sizes),
      cmocka_unit_test(plugins_are_asked_again),
      cmocka_unit_test(inspect_only),
      cmocka_unit_test(memory_for_callers),
      cmocka_unit_test(memory_of_calls),
      cmocka_unit_test(memory_of_calls_of_the_caller),
      cmocka_unit_test(load_file),
      cmocka_unit_test(profiling),
      cmocka_unit_test(inspecting),
      cmocka_unit_test(threads_setting),
      cmocka_unit_test(contexts_in_threads),
  };
  return cmocka_run_group_tests(tests, test_plugins_setup,
                                test_plugins_teardown);
}
