// Runs of plans: shapes, what a run tells, memory of inputs and outputs.
#include <math.h>

#include "run_check.h"
#include "test_plugins.h"

// ---- Static shapes

static void run_static(void** state) {
  (void)state;
  rabbet_context_t* context = run_context(sample_static);
  float x[6] = {1, 2, 3, -4, -5, 6}, y[6] = {0};
  run_bind(context, "x", x);
  run_bind(context, "y", y);
  for (int i = 0; i < 3; ++i)
    RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
  static const float expected[6] = {0, 1.5f, 3, 0, 0, 7.5f};
  run_expect(y, expected, 6);
  // Other addresses are taken up.
  float x2[6] = {1, 1, 1, 1, 1, 1}, y2[6] = {0};
  run_bind(context, "x", x2);
  run_bind(context, "y", y2);
  RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
  static const float expected2[6] = {0, 0.5f, 1, 1.5f, 2, 2.5f};
  run_expect(y2, expected2, 6);
  run_expect(y, expected, 6);
  rabbet_context_destroy(context);
}

static void run_fused(void** state) {
  (void)state;
  rabbet_context_t* context = run_context(sample_fused);
  float x[4] = {0, 1, -2, 0.5f}, y[4], expected[4];
  run_bind(context, "x", x);
  run_bind(context, "y", y);
  RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
  for (int i = 0; i < 4; ++i)
    expected[i] = tanhf(x[i] + 0.25f);
  run_expect(y, expected, 4);
  rabbet_context_destroy(context);
}

static void missing_addresses(void** state) {
  (void)state;
  rabbet_context_t* context = run_context(sample_static);
  float data[7] = {0};
  RABBET_EXPECT_ERROR(rabbet_context_execute(context, NULL),
                      RABBET_STATUS_FAILED_PRECONDITION,
                      "the address of input 'x' is not set");
  run_bind(context, "x", data);
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

// ---- Dynamic shapes

static void run_dynamic(void** state) {
  (void)state;
  rabbet_context_t* context = run_context(sample_dynamic);
  float a[16], b[16], y[16], m = -1;
  int32_t n = -1;
  for (int i = 0; i < 16; ++i) {
    a[i] = (float)i;
    b[i] = (float)(i % 3) - 4;
  }
  run_bind(context, "a", a);
  run_bind(context, "b", b);
  run_bind(context, "y", y);
  run_bind(context, "n", &n);
  run_bind(context, "m", &m);
  // More shapes than a context keeps, some repeated.
  static const int64_t batches[] = {4, 1, 8, 0, 2, 3, 5, 6, 7, 4, 8, 1, 1};
  for (size_t k = 0; k < sizeof(batches) / sizeof(batches[0]); ++k) {
    int64_t batch = batches[k];
    RABBET_EXPECT_OK(run_shape2(context, "a", batch, 2));
    RABBET_EXPECT_OK(run_shape2(context, "b", batch, 2));
    assert_int_equal(run_dim0(context, "y"), batch);
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
  rabbet_context_t* context = run_context(sample_dynamic);
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
  RABBET_EXPECT_ERROR(run_shape2(context, "a", 9, 2),
                      RABBET_STATUS_OUT_OF_RANGE,
                      "dimension 0 of input 'a' is 9; profile 0 allows 0 to 8");
  RABBET_EXPECT_ERROR(run_shape2(context, "a", 4, 3),
                      RABBET_STATUS_OUT_OF_RANGE,
                      "dimension 1 of input 'a' is 3; it must be 2");
  RABBET_EXPECT_ERROR(run_shape1(context, "a", 4),
                      RABBET_STATUS_INVALID_ARGUMENT, "(-1, 2)");
  RABBET_EXPECT_ERROR(run_shape1(context, "y", 4),
                      RABBET_STATUS_INVALID_ARGUMENT, "'y' is an output");
  RABBET_EXPECT_OK(run_shape2(context, "a", 4, 2));
  assert_false(rabbet_context_is_missing(context, 0));
  assert_true(rabbet_context_is_missing(context, 1));
  RABBET_EXPECT_OK(run_shape2(context, "b", 5, 2));
  RABBET_EXPECT_ERROR(rabbet_context_infer_shapes(context, &missing),
                      RABBET_STATUS_INVALID_ARGUMENT,
                      "dimension 0 of input 'a' is 4 and dimension 0 of input "
                      "'b' is 5, but both are named 'batch'");
  assert_int_equal(missing, -1);
  RABBET_EXPECT_OK(run_shape2(context, "b", 4, 2));
  RABBET_EXPECT_OK(rabbet_context_infer_shapes(context, NULL));
  RABBET_EXPECT_OK(rabbet_context_bytes(context, 2, &bytes));
  assert_int_equal(bytes, 4 * 2 * sizeof(float));
  RABBET_EXPECT_ERROR(rabbet_context_set_profile(context, 1),
                      RABBET_STATUS_OUT_OF_RANGE, "profile 1");
  rabbet_context_destroy(context);
}

static void run_shape_input(void** state) {
  (void)state;
  rabbet_context_t* context = run_context(sample_shape_input);
  float x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, y[9];
  int32_t s = 3, missing = 0;
  run_bind(context, "x", x);
  run_bind(context, "y", y);
  RABBET_EXPECT_ERROR(rabbet_context_infer_shapes(context, &missing),
                      RABBET_STATUS_FAILED_PRECONDITION,
                      "the address of shape input 's' is not set");
  assert_int_equal(missing, 1);
  run_bind(context, "s", &s);
  for (int k = 0; k < 2; ++k) {
    for (s = 0; s <= 8; ++s) {
      for (int i = 0; i < 9; ++i)
        y[i] = -1;
      RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
      assert_int_equal(run_dim0(context, "y"), s);
      run_expect(y, x, (size_t)s);
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
  rabbet_context_t* context = run_context(sample_two_values);
  float x[16], y[16];
  int64_t s[2] = {2, 3};
  for (int i = 0; i < 16; ++i)
    x[i] = (float)i;
  run_bind(context, "x", x);
  run_bind(context, "y", y);
  run_bind(context, "s", s);
  RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
  assert_int_equal(run_dim0(context, "y"), 2);
  s[0] = 4;
  s[1] = 5;
  RABBET_EXPECT_ERROR(rabbet_context_execute(context, NULL),
                      RABBET_STATUS_OUT_OF_RANGE, "element 1");
  s[1] = 3;
  RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
  assert_int_equal(run_dim0(context, "y"), 4);
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
  rabbet_context_t* context = run_context(sample_reads);
  float x[8], y[8];
  size_t bytes = 0;
  run_bind(context, "x", x);
  run_bind(context, "y", y);
  for (unsigned bits = 0; bits < 1024; bits += 3) {
    int64_t n = 1 + bits % 8, kept = 0;
    float expected[8];
    for (int64_t i = 0; i < n; ++i) {
      x[i] = bits >> i & 1 ? (float)(i % 2 ? i + 1 : -i - 1) : 0;
      if (x[i] != 0) expected[kept++] = x[i] + fmaxf(x[i], 0);
    }
    RABBET_EXPECT_OK(run_shape1(context, "x", n));
    RABBET_EXPECT_OK(rabbet_context_bytes(context, 1, &bytes));
    assert_int_equal(bytes, (size_t)n * sizeof(float));
    RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
    assert_int_equal(run_dim0(context, "y"), kept);
    run_expect(y, expected, (size_t)kept);
  }
  RABBET_EXPECT_OK(run_shape1(context, "x", 3));
  assert_int_equal(run_dim0(context, "y"), -1);
  rabbet_context_destroy(context);
}

static void run_counts(void** state) {
  (void)state;
  rabbet_context_t* context = run_context(sample_counts);
  float x[8], y[8];
  run_bind(context, "x", x);
  run_bind(context, "y", y);
  for (unsigned bits = 0; bits < 1024; bits += 3) {
    int64_t n = 1 + bits % 8, found = 0;
    float expected[8];
    for (int64_t i = 0; i < n; ++i) {
      x[i] = bits >> i & 1 ? -2.0f : 0;
      if (x[i] != 0) expected[found++] = (float)i;
    }
    rabbet_dims_t dims;
    RABBET_EXPECT_OK(run_shape1(context, "x", n));
    RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
    RABBET_EXPECT_OK(rabbet_context_shape(context, 1, &dims));
    assert_int_equal(dims.d[1], found);
    run_expect(y, expected, (size_t)found);
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
  rabbet_context_t* context = run_context(sample_too_few);
  float x[8] = {0, 1}, y[8];
  run_bind(context, "x", x);
  run_bind(context, "y", y);
  RABBET_EXPECT_OK(run_shape1(context, "x", 2));
  RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
  assert_float_equal(y[0], 1, 0);
  RABBET_EXPECT_OK(run_shape1(context, "x", 3));
  RABBET_EXPECT_ERROR(rabbet_context_execute(context, NULL),
                      RABBET_STATUS_DATA_LOSS,
                      "layer 'non_zero' (non_zero) can make 12 bytes of output "
                      "'indices', for which there is memory of 8");
  rabbet_context_destroy(context);
}

static void output_allocators(void** state) {
  (void)state;
  rabbet_context_t* context = run_context(sample_late);
  float x[8] = {5, 1, -2, 3, 4, 5, 6, 7};
  static const float expected[] = {5, 1, 0, 3, 4};
  grower_t grower = {0};
  size_t bytes = 0;
  rabbet_output_allocator_t allocator = {
      .user_data = &grower, .reallocate = grow, .notify_shape = told};
  run_bind(context, "x", x);
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
  run_expect(grower.memory, expected, 5);
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
  rabbet_context_t* context = run_context(sample_parts);
  float x[16], c[32], y[48], z[32], expected_y[48], expected_z[32];
  for (int i = 0; i < 32; ++i)
    c[i] = (float)(i % 5) / 4 - 0.5f;
  for (int i = 0; i < 16; ++i)
    x[i] = (float)(i % 3) - 1;
  for (int i = 0; i < 48; ++i)
    expected_y[i] = fmaxf(i < 16 ? x[i] : tanhf(c[i - 16]), 0);
  for (int i = 0; i < 32; ++i)
    expected_z[i] = i < 16 ? fmaxf(x[i], 0) : tanhf(x[i - 16]);
  run_bind(context, "x", x);
  run_bind(context, "c", c);
  run_bind(context, "y", y);
  run_bind(context, "z", z);
  RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
  run_expect(y, expected_y, 48);
  run_expect(z, expected_z, 32);
  rabbet_context_destroy(context);
}

static void run_aliases(void** state) {
  (void)state;
  rabbet_context_t* context = run_context(sample_aliases);
  float x[6] = {1, -2, 3, -4, 5, -6}, c[6] = {0, 1, 2, 3, 4, 5};
  float y[6], z[6];
  static const float expected[6] = {2, 1, 4, 1, 6, 1};
  run_bind(context, "x", x);
  run_bind(context, "c", c);
  run_bind(context, "y", y);
  RABBET_EXPECT_ERROR(rabbet_context_execute(context, NULL),
                      RABBET_STATUS_FAILED_PRECONDITION,
                      "set it to that of input 'c'");
  assert_int_equal(
      rabbet_engine_io(rabbet_context_engine(context), 3)->aliased_input, 1);
  // To memory of its own: the input stays as it is.
  run_bind(context, "z", z);
  RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
  run_expect(y, expected, 6);
  for (int i = 0; i < 6; ++i) {
    assert_float_equal(c[i], (float)i, 0);
    assert_float_equal(z[i], (float)i + 1, 0);
  }
  // In place.
  run_bind(context, "z", c);
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
  rabbet_context_t* context = run_context(sample_chain);
  float room[20] = {0}, p[6], q[6];
  for (int at = 0; at <= 12; ++at) {
    run_bind(context, "x", room + 6);
    run_bind(context, "p", room + at);
    run_bind(context, "q", q);
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
    run_bind(context, "p", p);
    run_bind(context, "q", room + at);
    for (int i = 0; i < 6; ++i)
      room[6 + i] = (float)(i % 2 ? i : -i);
    RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
    for (int i = 0; i < 6; ++i)
      assert_float_equal(room[at + i], (i % 2 ? i : 0), 0);
  }
  run_bind(context, "p", room + 1);
  run_bind(context, "q", room + 2);
  RABBET_EXPECT_ERROR(rabbet_context_execute(context, NULL),
                      RABBET_STATUS_INVALID_ARGUMENT,
                      "'p' overlaps that of output 'q'");
  rabbet_context_destroy(context);
}

// In place means at the same address; in part, the input is copied.
static void overlapping_in_part(void** state) {
  (void)state;
  rabbet_context_t* context = run_context(sample_aliases);
  float y[6], x[6] = {0};
  run_bind(context, "x", x);
  run_bind(context, "y", y);
  for (int at = 0; at <= 8; ++at) {
    float room[14] = {0}, *c = room + 4;
    for (int i = 0; i < 6; ++i)
      c[i] = (float)(i + 1);
    run_bind(context, "c", c);
    run_bind(context, "z", room + at);
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
  rabbet_context_t* context = run_context(sample_rows);
  float room[32];
  run_bind(context, "x", room);
  run_bind(context, "p", room + 8);
  for (int round = 0; round <= 16; ++round) {
    int64_t batch = round <= 8 ? round : 16 - round;
    for (int i = 0; i < 32; ++i)
      room[i] = (float)(i % 3 - 1);
    RABBET_EXPECT_OK(run_shape2(context, "x", batch, 2));
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

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(run_static),
      cmocka_unit_test(run_fused),
      cmocka_unit_test(missing_addresses),
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
  };
  return cmocka_run_group_tests(tests, test_plugins_setup,
                                test_plugins_teardown);
}
