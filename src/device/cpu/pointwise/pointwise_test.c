// Groups of element-wise layers against the reference kernels: each operator on
// special values, narrow types, rewritten chains. Random ones are in
// conformance.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "check.h"
#include "device/device.h"

enum { MAX_VALUES = 64, MAX_NODES = 40, GUARD = 64 };

static uint64_t random_state;
static uint32_t next_random(uint32_t below) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(random_state >> 33) % below;
}

// A group under test with memory for its values.
typedef struct fixture_t {
  rabbet_group_t group;
  rabbet_group_value_t values[MAX_VALUES];
  rabbet_group_node_t nodes[MAX_NODES];
  int32_t in[MAX_NODES][3], out[MAX_NODES][1];
  rabbet_attr_t attrs[MAX_NODES][4];
  int64_t ints[MAX_NODES];
  double floats[MAX_NODES][2];
  int32_t inputs[MAX_VALUES], outputs[MAX_VALUES];
  void* expected[MAX_VALUES];
  int64_t count[MAX_VALUES];
} fixture_t;

static int32_t add_value(fixture_t* f, rabbet_dtype_t dtype,
                         rabbet_dims_t dims) {
  int32_t id = (int32_t)f->group.value_count++;
  f->values[id] = (rabbet_group_value_t){
      .dtype = dtype, .dims = dims, .min = dims, .max = dims};
  RABBET_EXPECT_OK(rabbet_dims_count(&dims, &f->count[id]));
  f->expected[id] = calloc((size_t)f->count[id] + 1, 8);
  return id;
}

static void add_node(fixture_t* f, rabbet_op_id_t id, int64_t number,
                     const int32_t* in, size_t in_count, int32_t out) {
  size_t n = f->group.node_count++;
  rabbet_group_node_t* node = &f->nodes[n];
  node->op = rabbet_op_get(id);
  node->name = "node";
  memcpy(f->in[n], in, in_count * sizeof(in[0]));
  f->out[n][0] = out;
  node->inputs = f->in[n];
  node->input_count = in_count;
  node->outputs = f->out[n];
  node->output_count = 1;
  f->ints[n] = number;
  f->floats[n][0] = 0.3;
  f->floats[n][1] = 0.9;
  for (size_t i = 0; i < node->op->attr_count; ++i) {
    const rabbet_op_attr_t* attr = &node->op->attrs[i];
    bool is_float = attr->type == RABBET_ATTR_FLOAT;
    f->attrs[n][i] = (rabbet_attr_t){
        .name = attr->name,
        .type = attr->type,
        .count = 1,
        .data = is_float ? (void*)&f->floats[n][strcmp(attr->name, "beta") == 0]
                         : (void*)&f->ints[n]};
  }
  node->attrs = f->attrs[n];
}

static void finish(fixture_t* f) {
  f->group.values = f->values;
  f->group.nodes = f->nodes;
  f->group.inputs = f->inputs;
  f->group.outputs = f->outputs;
}

static void tear_down_fixture(fixture_t* f) {
  for (size_t i = 0; i < f->group.value_count; ++i)
    free(f->expected[i]);
}

static rabbet_view_t view_of(const fixture_t* f, int32_t value) {
  return (rabbet_view_t){.data = f->expected[value],
                         .dtype = f->values[value].dtype,
                         .format = RABBET_FORMAT_LINEAR,
                         .dims = f->values[value].dims};
}

static void evaluate(fixture_t* f) {
  for (size_t i = 0; i < f->group.node_count; ++i) {
    const rabbet_group_node_t* node = &f->nodes[i];
    rabbet_view_t in[3], out = view_of(f, node->outputs[0]);
    for (size_t k = 0; k < node->input_count; ++k) {
      in[k] = view_of(f, node->inputs[k]);
    }
    rabbet_op_eval_t eval = {.op = node->op,
                             .allocator = rabbet_allocator_system(),
                             .attrs = node->attrs,
                             .attr_count = node->op->attr_count,
                             .inputs = in,
                             .input_count = node->input_count,
                             .outputs = &out,
                             .output_count = 1};
    RABBET_EXPECT_OK(node->op->reference(&eval));
  }
}

// ---- Running a candidate ---------------------------------------------------

// Offset in the memory of `format` of the logical element `index` (row-major).
static int64_t physical(const rabbet_dims_t* dims, rabbet_format_t format,
                        int64_t index) {
  if (format == RABBET_FORMAT_LINEAR) return index;
  int64_t spatial = 1;
  for (int i = 2; i < dims->rank; ++i)
    spatial *= dims->d[i];
  int64_t c = index / spatial % dims->d[1], n = index / spatial / dims->d[1];
  int64_t s = index % spatial, channels = dims->d[1];
  if (format == RABBET_FORMAT_HWC) return (n * spatial + s) * channels + c;
  int64_t block = rabbet_format_info(format)->block;
  return ((n * (channels / block) + c / block) * spatial + s) * block +
         c % block;
}

static void* to_format(const fixture_t* f, int32_t value,
                       rabbet_format_t format) {
  size_t size = (size_t)rabbet_dtype_bits(f->values[value].dtype) / 8;
  char* memory = malloc((size_t)f->count[value] * size + GUARD);
  memset(memory, 0x5a, (size_t)f->count[value] * size + GUARD);
  for (int64_t i = 0; i < f->count[value]; ++i) {
    memcpy(memory + physical(&f->values[value].dims, format, i) * (int64_t)size,
           (char*)f->expected[value] + i * (int64_t)size, size);
  }
  return memory;
}

static double tolerance(rabbet_dtype_t dtype) {
  return dtype == RABBET_DTYPE_HALF   ? 4e-3
         : dtype == RABBET_DTYPE_BF16 ? 3e-2
                                      : 2e-5;
}

// Inside a group nothing is rounded to the narrow types, so that results may
// differ by their precision even where they are wide themselves.
static double tighter = 1;
static double group_tolerance(const fixture_t* f) {
  double widest = 0;
  for (size_t i = 0; i < f->group.value_count; ++i) {
    widest = fmax(widest, tolerance(f->values[i].dtype));
  }
  return widest * tighter;
}

static void compare(const fixture_t* f, int32_t value, rabbet_format_t format,
                    const char* memory) {
  rabbet_dtype_t dtype = f->values[value].dtype;
  for (int64_t i = 0; i < f->count[value]; ++i) {
    double expected = rabbet_load_double(dtype, f->expected[value], i);
    double found = rabbet_load_double(
        dtype, memory, physical(&f->values[value].dims, format, i));
    double allowed = group_tolerance(f) * fmax(1, fabs(expected));
    bool same = expected == found || (isnan(expected) && isnan(found));
    if (!same && !(fabs(expected - found) <= allowed)) {
      fail_msg("value %d element %lld of %lld (format %s): %g, expected %g",
               value, (long long)i, (long long)f->count[value],
               rabbet_format_name(format), found, expected);
    }
  }
  size_t bytes = (size_t)f->count[value] * (size_t)rabbet_dtype_bits(dtype) / 8;
  for (int i = 0; i < GUARD; ++i)
    assert_int_equal(memory[bytes + i], 0x5a);
}

typedef struct run_t {
  fixture_t* fixture;
  rabbet_device_t* device;
  int threads;
  int candidates;
  bool in_place;
} run_t;

static rabbet_status_t run_candidate(void* context,
                                     const rabbet_candidate_t* candidate) {
  run_t* run = context;
  fixture_t* f = run->fixture;
  rabbet_group_t* group = &f->group;
  ++run->candidates;
  for (size_t i = 0; i < group->input_count; ++i) {
    f->values[group->inputs[i]].format = candidate->tensors[i].format;
  }
  for (size_t i = 0; i < group->output_count; ++i) {
    f->values[group->outputs[i]].format =
        candidate->tensors[group->input_count + i].format;
  }
  rabbet_kernel_spec_t spec = {.device = run->device,
                               .group = group,
                               .tactic = candidate->tactic,
                               .allocator = rabbet_allocator_system()};
  rabbet_kernel_t* kernel = NULL;
  rabbet_kernel_state_t* state = NULL;
  size_t workspace_size = 0;
  rabbet_dims_t dims[MAX_VALUES];
  const int64_t* host[MAX_VALUES] = {0};
  for (size_t i = 0; i < group->value_count; ++i)
    dims[i] = f->values[i].dims;
  rabbet_kernel_shapes_t shapes = {
      .dims = dims, .host_values = host, .threads = run->threads};
  RABBET_EXPECT_OK(rabbet_kernel_create(candidate->kernel, &spec, &kernel));
  RABBET_EXPECT_OK(
      kernel->kernel_class->prepare(kernel, &shapes, &state, &workspace_size));
  void *in[MAX_VALUES], *out[MAX_VALUES], *workspace = NULL;
  bool shared[MAX_VALUES] = {false};
  for (size_t i = 0; i < group->input_count; ++i) {
    in[i] = to_format(f, group->inputs[i], candidate->tensors[i].format);
  }
  for (size_t i = 0; i < group->output_count; ++i) {
    rabbet_format_t format = candidate->tensors[group->input_count + i].format;
    if (run->in_place && candidate->in_place[i] >= 0) {
      out[i] = in[candidate->in_place[i]];
      shared[i] = true;
    } else {
      out[i] = to_format(f, group->outputs[i], format);
      memset(out[i], 0xff,
             (size_t)f->count[group->outputs[i]] *
                 (size_t)rabbet_dtype_bits(f->values[group->outputs[i]].dtype) /
                 8);
    }
  }
  RABBET_EXPECT_OK(rabbet_allocate_aligned(
      rabbet_allocator_system(), workspace_size + 1, 256, &workspace));
  rabbet_kernel_call_t call = {
      .inputs = in, .outputs = out, .workspace = workspace};
  void* token = NULL;
  RABBET_EXPECT_OK(
      run->device->vtable->begin_run(run->device, run->threads, &token));
  RABBET_EXPECT_OK(kernel->kernel_class->enqueue(kernel, state, &call));
  run->device->vtable->end_run(run->device, token);
  for (size_t i = 0; i < group->output_count; ++i) {
    compare(f, group->outputs[i],
            candidate->tensors[group->input_count + i].format, out[i]);
    if (!shared[i]) free(out[i]);
  }
  for (size_t i = 0; i < group->input_count; ++i)
    free(in[i]);
  rabbet_free_aligned(rabbet_allocator_system(), workspace, 256);
  kernel->kernel_class->destroy_state(kernel, state);
  kernel->kernel_class->destroy(kernel);
  return rabbet_ok();
}

static int run_all(fixture_t* f, rabbet_device_t* device) {
  finish(f);
  evaluate(f);
  run_t run = {.fixture = f, .device = device};
  rabbet_propose_t propose = {.device = device,
                              .group = &f->group,
                              .threads = 1,
                              .optimization_level = 3,
                              .allocator = rabbet_allocator_system()};
  const rabbet_kernel_class_t* class =
      rabbet_device_find_kernel(device, "cpu.pointwise");
  assert_non_null(class);
  for (int i = 0; i < 4; ++i) {
    run.threads = 1 + i % 2;
    run.in_place = i / 2;
    for (size_t v = 0; v < f->group.value_count; ++v) {
      f->values[v].format = RABBET_FORMAT_LINEAR;
    }
    RABBET_EXPECT_OK(class->propose(
        &propose, (rabbet_candidate_sink_t){&run, run_candidate}));
  }
  return run.candidates;
}

// ---- Tests -----------------------------------------------------------------

static rabbet_device_t* device;

static int set_up(void** state) {
  (void)state;
  RABBET_EXPECT_OK(
      rabbet_device_create("cpu", rabbet_allocator_system(), &device));
  return 0;
}
static int tear_down(void** state) {
  (void)state;
  rabbet_device_release(device);
  return 0;
}

static void fill(fixture_t* f, int32_t value, bool positive) {
  for (int64_t i = 0; i < f->count[value]; ++i) {
    double x = (int)next_random(2001) / 1000.0 - 1;
    rabbet_dtype_t dtype = f->values[value].dtype;
    if (dtype == RABBET_DTYPE_BOOL) x = next_random(2);
    if (rabbet_dtype_is_integer(dtype)) x = (int)next_random(9) - 4;
    if (positive) x = fabs(x) + 0.25;
    rabbet_store_double(dtype, f->expected[value], i, x);
  }
}

// Each operator alone, on arguments in its domain.
static void test_each_operator(void** state) {
  (void)state;
  static const struct {
    rabbet_op_id_t op;
    int count, operands;
  } families[] = {{RABBET_OP_UNARY, 25, 1},
                  {RABBET_OP_ACTIVATION, 14, 1},
                  {RABBET_OP_ELEMENTWISE, 14, 2}};
  for (int k = 0; k < 3; ++k) {
    for (int number = 0; number < families[k].count; ++number) {
      bool logical =
          (k == 0 && number == 20) || (k == 2 && number >= 8 && number <= 10);
      bool tests = (k == 0 && number >= 23) || (k == 2 && number >= 11);
      bool positive = k == 0 && (number == 1 || number == 2 || number == 15);
      rabbet_dtype_t type = logical ? RABBET_DTYPE_BOOL : RABBET_DTYPE_FLOAT;
      fixture_t* f = calloc(1, sizeof(*f));
      rabbet_dims_t dims = {.rank = 2, .d = {3, 333}};
      int32_t in[2];
      for (int i = 0; i < families[k].operands; ++i) {
        in[i] = add_value(f, type, dims);
        fill(f, in[i], positive || (k == 2 && number == 6 && i == 0));
        if (!logical && k == 0 && number >= 17) {
          rabbet_store_double(type, f->expected[in[i]], 1, NAN);
          rabbet_store_double(type, f->expected[in[i]], 2, INFINITY);
          rabbet_store_double(type, f->expected[in[i]], 3, -2.5);
          rabbet_store_double(type, f->expected[in[i]], 4, 3e9);
        }
        if (k == 0 && number == 15) {  // acosh: from 1
          for (int64_t e = 0; e < f->count[in[i]]; ++e) {
            ((float*)f->expected[in[i]])[e] += 1;
          }
        }
        f->inputs[f->group.input_count++] = in[i];
      }
      int32_t out = add_value(f, tests ? RABBET_DTYPE_BOOL : type, dims);
      add_node(f, families[k].op, number, in, (size_t)families[k].operands,
               out);
      f->outputs[f->group.output_count++] = out;
      assert_true(run_all(f, device) > 0);
      tear_down_fixture(f);
      free(f);
    }
  }
}

static void test_half_types_and_select(void** state) {
  (void)state;
  static const rabbet_dtype_t types[] = {RABBET_DTYPE_HALF, RABBET_DTYPE_BF16};
  for (int i = 0; i < 2; ++i) {
    fixture_t* f = calloc(1, sizeof(*f));
    rabbet_dims_t full = {.rank = 4, .d = {2, 32, 5, 7}};
    rabbet_dims_t channel = {.rank = 4, .d = {1, 32, 1, 1}};
    int32_t x = add_value(f, types[i], full);
    int32_t bias = add_value(f, types[i], channel);
    int32_t choice = add_value(f, RABBET_DTYPE_BOOL, full);
    int32_t sum = add_value(f, types[i], full);
    int32_t picked = add_value(f, types[i], full);
    int32_t wide = add_value(f, RABBET_DTYPE_FLOAT, full);
    for (int32_t v = x; v <= choice; ++v) {
      fill(f, v, false);
      f->inputs[f->group.input_count++] = v;
    }
    add_node(f, RABBET_OP_ELEMENTWISE, 0, (int32_t[]){x, bias}, 2, sum);
    add_node(f, RABBET_OP_SELECT, 0, (int32_t[]){choice, sum, x}, 3, picked);
    add_node(f, RABBET_OP_CAST, RABBET_DTYPE_FLOAT, &picked, 1, wide);
    f->outputs[f->group.output_count++] = picked;
    f->outputs[f->group.output_count++] = wide;
    assert_true(run_all(f, device) > 0);
    tear_down_fixture(f);
    free(f);
  }
}

static int32_t add_input(fixture_t* f, rabbet_dims_t dims) {
  int32_t value = add_value(f, RABBET_DTYPE_FLOAT, dims);
  fill(f, value, false);
  f->inputs[f->group.input_count++] = value;
  return value;
}

static const rabbet_dims_t whole = {.rank = 2, .d = {3, 333}};
static const rabbet_dims_t column = {.rank = 2, .d = {3, 1}};

static void add_binary(fixture_t* f, int64_t number, int32_t a, int32_t b,
                       int32_t out) {
  add_node(f, RABBET_OP_ELEMENTWISE, number, (int32_t[]){a, b}, 2, out);
}

static void run_to(fixture_t* f, int32_t output) {
  f->outputs[f->group.output_count++] = output;
  assert_true(run_all(f, device) > 0);
  tear_down_fixture(f);
  free(f);
}

// a * b + c, c + a * b, a * b - c, c - a * b in one instruction: operands of
// all shapes, computed or not, and equal ones.
static void test_products_in_sums(void** state) {
  (void)state;
  enum { SUM = 0, PROD = 1, SUB = 4, ALIKE = 8 };
  for (int bits = 0; bits < 32; ++bits) {
    for (int alike = 0; alike < ALIKE; ++alike) {
      fixture_t* f = calloc(1, sizeof(*f));
      bool swapped = bits & 8;
      int32_t a = add_input(f, whole);
      int32_t b = alike & 1 ? a : add_input(f, bits & 1 ? column : whole);
      int32_t c = alike & 2 ? b : add_input(f, bits & 2 ? column : whole);
      if (alike & 4) {
        int32_t computed = add_value(f, RABBET_DTYPE_FLOAT, whole);
        add_node(f, RABBET_OP_ACTIVATION, 1, &a, 1, computed);
        if (c == a) c = computed;
        if (b == a) b = computed;
        a = computed;
      }
      int32_t product = add_value(f, RABBET_DTYPE_FLOAT, whole);
      int32_t sum = add_value(f, RABBET_DTYPE_FLOAT, whole);
      add_binary(f, PROD, bits & 4 ? b : a, bits & 4 ? a : b, product);
      add_binary(f, bits & 16 ? SUM : SUB, swapped ? c : product,
                 swapped ? product : c, sum);
      run_to(f, sum);
    }
  }
}

// A product that others read is kept.
static void test_products_read_twice(void** state) {
  (void)state;
  fixture_t* f = calloc(1, sizeof(*f));
  int32_t a = add_input(f, whole), b = add_input(f, column);
  int32_t product = add_value(f, RABBET_DTYPE_FLOAT, whole);
  int32_t sum = add_value(f, RABBET_DTYPE_FLOAT, whole);
  int32_t twice = add_value(f, RABBET_DTYPE_FLOAT, whole);
  add_binary(f, 1, a, b, product);
  add_binary(f, 0, product, b, sum);
  add_binary(f, 4, sum, product, twice);
  f->outputs[f->group.output_count++] = product;
  run_to(f, twice);
}

// Maximum and minimum are NaN where an operand is.
static void test_bounds_that_are_nan(void** state) {
  (void)state;
  for (int bits = 0; bits < 32; ++bits) {
    fixture_t* f = calloc(1, sizeof(*f));
    int32_t x = add_input(f, whole);
    int32_t bound = add_input(f, bits & 1 ? column : whole);
    float* nan_of = f->expected[bits & 2 ? bound : x];
    nan_of[1] = NAN;
    if (bits & 4) ((float*)f->expected[x])[400] = NAN;
    int32_t out = add_value(f, RABBET_DTYPE_FLOAT, whole);
    add_binary(f, bits & 8 ? 2 : 3, bits & 16 ? bound : x,
               bits & 16 ? x : bound, out);
    run_to(f, out);
  }
}

// A number for each channel, in all formats, with rows of several pieces.
static void test_channel_operands(void** state) {
  (void)state;
  for (int kind = 0; kind < 4; ++kind) {
    fixture_t* f = calloc(1, sizeof(*f));
    rabbet_dims_t full = {.rank = 4, .d = {1 + kind % 2, 32, 40, 41}};
    rabbet_dims_t channels = {.rank = 4, .d = {1, 32, 1, 1}};
    rabbet_dims_t image = {.rank = 4, .d = {1, 1, 40, 41}};
    rabbet_dims_t one = {.rank = 4, .d = {1, 1, 1, 1}};
    int32_t x = add_input(f, full), w = add_input(f, channels);
    int32_t b = add_input(f, kind & 2 ? image : one);
    int32_t product = add_value(f, RABBET_DTYPE_FLOAT, full);
    int32_t sum = add_value(f, RABBET_DTYPE_FLOAT, full);
    add_binary(f, 1, w, x, product);
    add_binary(f, 0, product, b, sum);
    run_to(f, sum);
  }
}

// Empty tensors have no work.
static void test_empty_rows(void** state) {
  (void)state;
  fixture_t* f = calloc(1, sizeof(*f));
  int32_t x = add_input(f, (rabbet_dims_t){.rank = 2, .d = {3, 0}});
  int32_t w = add_input(f, (rabbet_dims_t){.rank = 2, .d = {3, 1}});
  int32_t sum =
      add_value(f, RABBET_DTYPE_FLOAT, (rabbet_dims_t){.rank = 2, .d = {3, 0}});
  add_binary(f, 0, w, x, sum);
  run_to(f, sum);
}

// From where it is all but zero to where it is x itself.
static void test_gelu_far_out(void** state) {
  (void)state;
  enum { GELU_ERF = 12, GELU_TANH = 13 };
  for (int kind = GELU_ERF; kind <= GELU_TANH; ++kind) {
    fixture_t* f = calloc(1, sizeof(*f));
    int32_t x = add_input(f, whole);
    float* values = f->expected[x];
    for (int i = 0; i < 3 * 333; ++i)
      values[i] = (float)(i - 500) / 40;
    static const float special[] = {0,    -0.0f, 1e-30f,   -1e-30f, 1e-42f,
                                    1e6f, -1e6f, -3.4e38f, 3e38f,   NAN};
    memcpy(values, special, sizeof(special));
    int32_t out = add_value(f, RABBET_DTYPE_FLOAT, whole);
    add_node(f, RABBET_OP_ACTIVATION, kind, &x, 1, out);
    tighter = 1.0 / 16;
    run_to(f, out);
    tighter = 1;
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_each_operator),
      cmocka_unit_test(test_half_types_and_select),
      cmocka_unit_test(test_products_in_sums),
      cmocka_unit_test(test_products_read_twice),
      cmocka_unit_test(test_bounds_that_are_nan),
      cmocka_unit_test(test_channel_operands),
      cmocka_unit_test(test_empty_rows),
      cmocka_unit_test(test_gelu_far_out),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
