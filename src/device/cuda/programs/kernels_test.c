// Checks which functions of our kernels run for given shapes and addresses, and
// that nothing leaks when the driver fails. The conformance suite checks
// results; here each path through a class is taken at least once.
#include "conformance/kernel_case.h"
#include "cuda_stand_in/device.h"
#include "ops/enums.h"

// ---- Cases -----------------------------------------------------------------

typedef struct row_case_t {
  const char* kernel;  // class
  const char* op;
  int64_t number, axes, groups;  // number: `op` of a reduction
  rabbet_dims_t x, scale;        // scale: rank 0: none, nor bias
  rabbet_type_format_t type;
  const char* functions[2];  // that must run
} row_case_t;

#define F32 \
  { RABBET_DTYPE_FLOAT, RABBET_FORMAT_LINEAR }
#define F16 \
  { RABBET_DTYPE_HALF, RABBET_FORMAT_LINEAR }
#define F32_HWC \
  { RABBET_DTYPE_FLOAT, RABBET_FORMAT_HWC }
#define NONE \
  { 0 }

static const row_case_t row_cases[] = {
    {"cuda.reduce",
     "reduce",
     RABBET_REDUCE_SUM,
     2,
     0,
     {2, {5, 64}},
     NONE,
     F32,
     {"rows,"}},
    {"cuda.reduce",
     "reduce",
     RABBET_REDUCE_MAX,
     2,
     0,
     {2, {5, 63}},
     NONE,
     F16,
     {"rows_single,"}},
    {"cuda.reduce",
     "reduce",
     RABBET_REDUCE_SUM,
     2,
     0,
     {2, {2, 65536}},
     NONE,
     F32,
     {"rows_part,", "finish,"}},
    {"cuda.reduce",
     "reduce",
     RABBET_REDUCE_AVG,
     6,
     0,
     {3, {1, 333, 99}},
     NONE,
     F32,
     {"rows_single_part,", "finish,"}},
    {"cuda.reduce",
     "reduce",
     RABBET_REDUCE_PROD,
     1,
     0,
     {2, {30, 40}},
     NONE,
     F32,
     {"columns,"}},
    {"cuda.reduce",
     "reduce",
     RABBET_REDUCE_MIN,
     1,
     0,
     {2, {30, 41}},
     NONE,
     F16,
     {"columns_single,"}},
    {"cuda.reduce",
     "reduce",
     RABBET_REDUCE_AVG,
     1,
     0,
     {2, {9000, 8}},
     NONE,
     F32,
     {"columns_part,", "finish,"}},
    {"cuda.reduce",
     "reduce",
     RABBET_REDUCE_SUM,
     1,
     0,
     {2, {9000, 3}},
     NONE,
     F32,
     {"columns_single_part,", "finish,"}},
    {"cuda.softmax", "softmax", 0, 2, 0, {2, {7, 64}}, NONE, F32, {"rows,"}},
    {"cuda.softmax",
     "softmax",
     0,
     2,
     0,
     {2, {7, 512}},
     NONE,
     F16,
     {"rows_held,"}},
    {"cuda.softmax",
     "softmax",
     0,
     2,
     0,
     {2, {7, 29}},
     NONE,
     F32,
     {"rows_single,"}},
    {"cuda.softmax",
     "softmax",
     0,
     2,
     0,
     {2, {7, 513}},
     NONE,
     F32,
     {"rows_staged,"}},
    {"cuda.softmax",
     "softmax",
     0,
     2,
     0,
     {2, {2, 8192}},
     NONE,
     F32,
     {"rows_long,"}},
    {"cuda.softmax",
     "softmax",
     0,
     2,
     0,
     {2, {2, 4001}},
     NONE,
     F16,
     {"rows_long,"}},
    {"cuda.softmax",
     "softmax",
     0,
     1,
     0,
     {2, {30, 40}},
     NONE,
     F32,
     {"columns,"}},
    {"cuda.softmax",
     "softmax",
     0,
     1,
     0,
     {2, {30, 41}},
     NONE,
     F16,
     {"columns_single,"}},
    {"cuda.normalization",
     "normalization",
     0,
     2,
     1,
     {2, {7, 64}},
     {2, {7, 1}},
     F32,
     {"rows,"}},
    {"cuda.normalization",
     "normalization",
     0,
     2,
     1,
     {2, {7, 512}},
     {2, {7, 1}},
     F16,
     {"rows_held,"}},
    {"cuda.normalization",
     "normalization",
     0,
     2,
     1,
     {2, {7, 72}},
     {2, {1, 72}},
     F16,
     {"rows_flat_1,"}},
    {"cuda.normalization",
     "normalization",
     0,
     2,
     1,
     {2, {3, 1500}},
     {2, {1, 1500}},
     F32,
     {"rows_flat_3,"}},
    {"cuda.normalization",
     "normalization",
     0,
     2,
     1,
     {2, {9, 200}},
     NONE,
     F32,
     {"rows_flat_1,"}},
    {"cuda.normalization",
     "normalization",
     0,
     2,
     1,
     {2, {7, 77}},
     {2, {1, 77}},
     F16,
     {"rows_flat_1_single,"}},
    {"cuda.normalization",
     "normalization",
     0,
     2,
     1,
     {2, {9, 8192}},
     {2, {1, 8192}},
     F32,
     {"rows_long,"}},
    {"cuda.normalization",
     "normalization",
     0,
     2,
     1,
     {2, {9, 4001}},
     {2, {1, 4001}},
     F32,
     {"rows_long_single,"}},
    {"cuda.normalization",
     "normalization",
     0,
     12,
     2,
     {4, {1, 6, 128, 96}},
     {4, {1, 6, 1, 1}},
     F32,
     {"rows_part,", "rows_apply,"}},
    {"cuda.normalization",
     "normalization",
     0,
     12,
     1,
     {4, {1, 3, 125, 83}},
     {4, {1, 3, 1, 1}},
     F32,
     {"rows_part_single,", "rows_apply_single,"}},
    {"cuda.normalization",
     "normalization",
     0,
     1,
     1,
     {2, {30, 40}},
     {2, {1, 40}},
     F32,
     {"columns,"}},
    {"cuda.normalization",
     "normalization",
     0,
     1,
     1,
     {2, {30, 41}},
     {2, {1, 41}},
     F32,
     {"columns_single,"}},
    {"cuda.normalization",
     "normalization",
     0,
     1,
     1,
     {2, {30, 41}},
     {2, {30, 1}},
     F32,
     {"columns_held_4_single,"}},
    {"cuda.normalization",
     "normalization",
     0,
     1,
     1,
     {2, {200, 96}},
     {2, {200, 1}},
     F32,
     {"columns_held_4,"}},
    {"cuda.normalization",
     "normalization",
     0,
     12,
     1,
     {4, {1, 8, 60, 80}},
     {4, {1, 8, 1, 1}},
     F32_HWC,
     {"columns_part,", "columns_apply,"}},
    {"cuda.normalization",
     "normalization",
     0,
     12,
     1,
     {4, {1, 3, 60, 80}},
     {4, {1, 3, 1, 1}},
     F32_HWC,
     {"columns_part_single,", "columns_apply_single,"}},
};

static void row_case_make(kernel_case_t* c, rabbet_device_t* device,
                          const row_case_t* row) {
  kernel_case_begin(c, device, row->type.dtype);
  c->tolerance = 2e-5;
  if (strcmp(row->op, "reduce") == 0 && row->number == RABBET_REDUCE_PROD)
    c->low = 0.9, c->high = 1.1;
  const rabbet_attr_t attrs[] = {KERNEL_INT("axes", row->axes),
                                 KERNEL_INT("op", row->number),
                                 KERNEL_INT("num_groups", row->groups)};
  bool is_reduce = strcmp(row->op, "reduce") == 0;
  const rabbet_attr_t norm[] = {attrs[0], attrs[2]};
  bool is_norm = strcmp(row->op, "normalization") == 0;
  int32_t inputs[3] = {kernel_case_input(c, row->x, false), -1, -1};
  if (row->scale.rank > 0) {
    inputs[1] = kernel_case_input(c, row->scale, true);
    inputs[2] = kernel_case_input(c, row->scale, false);
  }
  kernel_case_output(
      c, kernel_case_op(c, row->op, is_norm ? norm : attrs,
                        is_reduce || is_norm ? 2 : 1, inputs, is_norm ? 3 : 1));
}

static void expect_launched(const char* function, size_t at) {
  char text[64];
  snprintf(text, sizeof(text), "cuLaunchKernelEx %s", function);
  if (!strstr(stand_in()->log(), text))
    fail_msg("case %zu did not launch '%s':\n%s", at, function,
             stand_in()->log());
}

static size_t row_candidates(kernel_case_t* c, const row_case_t* row,
                             kernel_case_candidate_t** out) {
  // Scale and bias stay LINEAR: the others' types and formats are the case's.
  kernel_case_candidate_t* all = NULL;
  size_t found = 0,
         count = kernel_case_candidates(
             c, &(kernel_case_filter_t){.kernel = row->kernel}, &all);
  *out = all;
  for (size_t i = 0; i < count; ++i) {
    if (all[i].tensors[0].format == row->type.format) {
      all[found++] = all[i];
      break;
    }
  }
  return found;
}

static void rows(void** state) {
  rabbet_cuda_device_t* device = *state;
  for (size_t i = 0; i < sizeof(row_cases) / sizeof(row_cases[0]); ++i) {
    kernel_case_t c;
    kernel_case_candidate_t* candidate = NULL;
    row_case_make(&c, &device->base, &row_cases[i]);
    assert_int_equal(row_candidates(&c, &row_cases[i], &candidate), 1);
    stand_in()->clear_log();
    kernel_case_run(&c, candidate, 1);
    for (int k = 0; k < 2 && row_cases[i].functions[k]; ++k)
      expect_launched(row_cases[i].functions[k], i);
    kernel_case_end(&c);
  }
}

// ---- Unaligned addresses ---------------------------------------------------

static void* shifted(rabbet_device_t* device, const void* from, size_t bytes,
                     size_t by, void** out_block) {
  RABBET_EXPECT_OK(device->vtable->allocate(device, bytes + by, out_block));
  void* place = (char*)*out_block + by;
  RABBET_EXPECT_OK(device->vtable->copy(device, place, from, bytes, NULL));
  return place;
}

static size_t boundary_bytes(const kernel_case_t* c,
                             const kernel_case_candidate_t* candidate,
                             int32_t value) {
  size_t bytes = 0;
  RABBET_EXPECT_OK(rabbet_tensor_bytes(candidate->values[value].dtype,
                                       candidate->values[value].format,
                                       &c->values[value].dims, &bytes));
  return bytes;
}

static void run_shifted(kernel_case_t* c,
                        const kernel_case_candidate_t* candidate) {
  rabbet_device_t* device = c->device;
  const rabbet_kernel_class_t* kernel_class = candidate->kernel;
  const rabbet_kernel_spec_t spec = {.device = device,
                                     .group = &candidate->group,
                                     .tactic = candidate->tactic,
                                     .allocator = c->allocator};
  rabbet_dims_t dims[KERNEL_CASE_MAX];
  for (size_t i = 0; i < c->value_count; ++i)
    dims[i] = c->values[i].dims;
  const rabbet_kernel_shapes_t shapes = {.dims = dims, .threads = 1};
  rabbet_kernel_t* kernel = NULL;
  rabbet_kernel_state_t* state = NULL;
  kernel_case_memory_t memory;
  size_t workspace = 0;
  void *blocks[2 * KERNEL_CASE_MAX], *inputs[KERNEL_CASE_MAX];
  void *outputs[KERNEL_CASE_MAX], *token = NULL;
  size_t size = (size_t)rabbet_dtype_bits(candidate->tensors[0].dtype) / 8,
         used = 0;
  RABBET_EXPECT_OK(rabbet_kernel_create(kernel_class, &spec, &kernel));
  RABBET_EXPECT_OK(kernel_class->prepare(kernel, &shapes, &state, &workspace));
  kernel_case_fill(c, candidate, workspace, false, &memory);
  for (size_t i = 0; i < c->input_count; ++i)
    inputs[i] = shifted(device, memory.inputs[i],
                        boundary_bytes(c, candidate, c->inputs[i]), size,
                        &blocks[used++]);
  for (size_t i = 0; i < c->output_count; ++i)
    outputs[i] = shifted(device, memory.outputs[i],
                         boundary_bytes(c, candidate, c->outputs[i]), size,
                         &blocks[used++]);
  const rabbet_kernel_call_t call = {
      .inputs = inputs, .outputs = outputs, .workspace = memory.workspace};
  RABBET_EXPECT_OK(device->vtable->begin_run(device, 1, &token));
  stand_in()->clear_log();
  RABBET_EXPECT_OK(kernel_class->enqueue(kernel, state, &call));
  device->vtable->end_run(device, token);
  for (size_t i = 0; i < c->output_count; ++i)
    RABBET_EXPECT_OK(device->vtable->copy(
        device, memory.outputs[i], outputs[i],
        boundary_bytes(c, candidate, c->outputs[i]), NULL));
  RABBET_EXPECT_OK(device->vtable->synchronize(device, NULL));
  kernel_case_verify(c, candidate, false, &memory);
  for (size_t i = 0; i < used; ++i)
    device->vtable->free(device, blocks[i]);
  kernel_case_free(c, &memory);
  kernel_class->destroy_state(kernel, state);
  kernel_class->destroy(kernel);
}

static void addresses(void** state) {
  rabbet_cuda_device_t* device = *state;
  for (size_t i = 0; i < sizeof(row_cases) / sizeof(row_cases[0]); ++i) {
    kernel_case_t c;
    kernel_case_candidate_t* candidate = NULL;
    row_case_make(&c, &device->base, &row_cases[i]);
    assert_int_equal(row_candidates(&c, &row_cases[i], &candidate), 1);
    run_shifted(&c, candidate);
    if (!strstr(stand_in()->log(), "_single"))
      fail_msg("case %zu launched what needs vectors:\n%s", i,
               stand_in()->log());
    kernel_case_end(&c);
  }
}

// ---- Chains ----------------------------------------------------------------

// y = relu(x + b) * 0.5, where the number comes with the launch.
static void chain_make(kernel_case_t* c, rabbet_device_t* device,
                       rabbet_dims_t x, rabbet_dims_t b) {
  kernel_case_begin(c, device, RABBET_DTYPE_FLOAT);
  static const float half[] = {0.5f};
  rabbet_dims_t one = {.rank = x.rank};
  for (int32_t i = 0; i < x.rank; ++i)
    one.d[i] = 1;
  int32_t sum = kernel_case_op(
      c, "elementwise", KERNEL_ATTRS(KERNEL_INT("op", RABBET_ELEMENTWISE_SUM)),
      KERNEL_INPUTS(kernel_case_input(c, x, false),
                    kernel_case_input(c, b, false)));
  int32_t relu = kernel_case_op(
      c, "activation", KERNEL_ATTRS(KERNEL_INT("type", RABBET_ACTIVATION_RELU)),
      KERNEL_INPUTS(sum));
  int32_t number = kernel_case_constant(c, one, half);
  kernel_case_output(
      c, kernel_case_op(c, "elementwise",
                        KERNEL_ATTRS(KERNEL_INT("op", RABBET_ELEMENTWISE_PROD)),
                        KERNEL_INPUTS(relu, number)));
}

static void chains(void** state) {
  rabbet_cuda_device_t* device = *state;
  const struct {
    rabbet_dims_t x, b;
    const char *function, *shifted;
  } all[] = {
      {{2, {10, 33}}, {2, {10, 33}}, "flat,", "single,"},
      {{2, {10, 32}}, {2, {10, 1}}, "rows,", "single,"},
      {{2, {10, 32}}, {2, {1, 32}}, "rows,", "single,"},
      {{2, {10, 33}}, {2, {1, 33}}, "single,", "single,"},
      {{2, {1, 3}}, {2, {1, 3}}, "single,", "single,"},
      {{2, {1024, 2048}}, {2, {1, 2048}}, "rows,", "single,"},
  };
  for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); ++i) {
    kernel_case_t c;
    kernel_case_candidate_t* candidates = NULL;
    chain_make(&c, &device->base, all[i].x, all[i].b);
    size_t count = kernel_case_candidates(
        &c, &(kernel_case_filter_t){.kernel = "cuda.pointwise"}, &candidates);
    // The last case is large: its second tactic takes four vectors to a thread.
    assert_int_equal(count, i == 5 ? 2 : 1);
    for (size_t k = 0; k < count; ++k) {
      stand_in()->clear_log();
      kernel_case_run(&c, &candidates[k], 1);
      expect_launched(all[i].function, i);
      run_shifted(&c, &candidates[k]);
      expect_launched(all[i].shifted, i);
    }
    kernel_case_end(&c);
  }
}

// Layers by numbers for each row, which come from a table.
static void table_make(kernel_case_t* c, rabbet_device_t* device,
                       rabbet_dtype_t dtype, rabbet_dims_t dims) {
  kernel_case_begin(c, device, dtype);
  c->tolerance = 1e-5;
  int32_t y = kernel_case_input(c, dims, false);
  rabbet_dims_t column = dims;
  column.d[0] = column.d[dims.rank - 1] = 1;
  for (int i = 0; i < 6; ++i)
    y = kernel_case_op(
        c, "elementwise",
        KERNEL_ATTRS(KERNEL_INT(
            "op", i % 2 ? RABBET_ELEMENTWISE_SUM : RABBET_ELEMENTWISE_PROD)),
        KERNEL_INPUTS(y, kernel_case_input(c, column, true)));
  kernel_case_output(c, y);
}

static void tables(void** state) {
  rabbet_cuda_device_t* device = *state;
  const struct {
    rabbet_dtype_t dtype;
    rabbet_dims_t dims;
    const char* function;
  } all[] = {
      {RABBET_DTYPE_FLOAT, {3, {2, 6, 16}}, "rows,"},
      {RABBET_DTYPE_HALF, {3, {2, 6, 16}}, "rows,"},
      {RABBET_DTYPE_HALF, {3, {2, 6, 12}}, "single,"},  // vectors of 8
      {RABBET_DTYPE_FLOAT,
       {3, {2, 8, 1}},
       "single,"},  // a row for each element
  };
  for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); ++i) {
    kernel_case_t c;
    table_make(&c, &device->base, all[i].dtype, all[i].dims);
    const kernel_case_filter_t filter = {.kernel = "cuda.pointwise"};
    kernel_case_candidate_t* candidates = NULL;
    // Others are of other formats.
    assert_true(kernel_case_candidates(&c, &filter, &candidates) > 0);
    stand_in()->clear_log();
    kernel_case_run(&c, &candidates[0], 1);
    expect_launched(all[i].function, i);
    run_shifted(&c, &candidates[0]);
    expect_launched("single,", i);
    kernel_case_end(&c);
  }
}

// ---- Failing calls ---------------------------------------------------------

static rabbet_status_t try_once(const kernel_case_t* c,
                                const kernel_case_candidate_t* candidate) {
  const rabbet_kernel_spec_t spec = {.device = c->device,
                                     .group = &candidate->group,
                                     .tactic = candidate->tactic,
                                     .allocator = c->allocator};
  rabbet_dims_t dims[KERNEL_CASE_MAX];
  for (size_t i = 0; i < c->value_count; ++i)
    dims[i] = c->values[i].dims;
  const rabbet_kernel_shapes_t shapes = {.dims = dims, .threads = 1};
  rabbet_kernel_t* kernel = NULL;
  rabbet_kernel_state_t* state = NULL;
  size_t workspace = 0;
  RABBET_RETURN_IF_ERROR(
      rabbet_kernel_create(candidate->kernel, &spec, &kernel));
  rabbet_status_t status =
      candidate->kernel->prepare(kernel, &shapes, &state, &workspace);
  // A preparation that failed late has a state, too.
  if (state) candidate->kernel->destroy_state(kernel, state);
  candidate->kernel->destroy(kernel);
  return status;
}

// Each call of creating and preparing fails in turn; nothing leaks.
static void fail_each(kernel_case_t* c, const char* kernel) {
  kernel_case_candidate_t* candidates = NULL;
  size_t count = kernel_case_candidates(
      c, &(kernel_case_filter_t){.kernel = kernel}, &candidates);
  assert_true(count > 0);
  stand_in_alive_t before = stand_in()->alive();
  bool failed = true;
  for (int n = 0; failed; ++n) {
    stand_in()->fail_call(NULL, n, CUDA_ERROR_OUT_OF_MEMORY);
    rabbet_status_t status = try_once(c, &candidates[0]);
    failed = stand_in()->failed() != NULL;
    stand_in()->stop_failing();
    // Failures of releases, and of restoring a context, are reported to nobody.
    if (!failed) assert_true(rabbet_is_ok(status));
    rabbet_status_ignore(status);
    stand_in_alive_t after = stand_in()->alive();
    assert_int_equal(after.modules, before.modules);
    assert_int_equal(after.allocations, before.allocations);
    if (n > 400) fail_msg("%s: there is no end of calls", kernel);
  }
}

static void failures(void** state) {
  rabbet_cuda_device_t* device = *state;
  kernel_case_t c;
  static const size_t of_each[] = {0, 8, 15};
  for (size_t i = 0; i < 3; ++i) {
    row_case_make(&c, &device->base, &row_cases[of_each[i]]);
    fail_each(&c, row_cases[of_each[i]].kernel);
    kernel_case_end(&c);
  }
  chain_make(&c, &device->base, KERNEL_DIMS(4, 8), KERNEL_DIMS(4, 8));
  fail_each(&c, "cuda.pointwise");
  kernel_case_end(&c);
  table_make(&c, &device->base, RABBET_DTYPE_FLOAT, KERNEL_DIMS(2, 6, 16));
  fail_each(&c, "cuda.pointwise");
  kernel_case_end(&c);
  kernel_case_begin(&c, &device->base, RABBET_DTYPE_FLOAT);
  int32_t x = kernel_case_input(&c, KERNEL_DIMS(4, 8), false);
  kernel_case_output(
      &c, kernel_case_op(&c, "shape", KERNEL_NO_ATTRS, KERNEL_INPUTS(x)));
  fail_each(&c, "cuda.constant_output");
  kernel_case_end(&c);
}

static int set_up(void** state) {
  *state = stand_in_device_open();
  return 0;
}

static int tear_down(void** state) {
  stand_in_device_close(*state);
  stand_in_expect_clean();
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows),     cmocka_unit_test(addresses),
      cmocka_unit_test(chains),   cmocka_unit_test(tables),
      cmocka_unit_test(failures),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
