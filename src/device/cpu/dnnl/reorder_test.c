// Conversions between formats and types, and concatenations, by oneDNN.
#include "conformance/cpu_device.h"
#include "device/cpu/cpu.h"

static const rabbet_dtype_t real_types[] = {
    RABBET_DTYPE_FLOAT, RABBET_DTYPE_HALF, RABBET_DTYPE_BF16};
static const rabbet_format_t formats[] = {
    RABBET_FORMAT_LINEAR, RABBET_FORMAT_HWC,  RABBET_FORMAT_CHW16,
    RABBET_FORMAT_CHW8,   RABBET_FORMAT_CHW4, RABBET_FORMAT_CHW32};
enum { FORMATS = 6 };

static void check_reorder(rabbet_device_t* device, rabbet_dtype_t network,
                          rabbet_dims_t dims,
                          const rabbet_type_format_t fixed[2], int expected) {
  kernel_case_t c;
  kernel_case_begin(&c, device, network);
  if (!rabbet_dtype_is_float(network)) c.low = 0, c.high = 100;
  int32_t x = kernel_case_input(&c, dims, false);
  kernel_case_output(
      &c, kernel_case_op(&c, "identity", KERNEL_NO_ATTRS, KERNEL_INPUTS(x)));
  int count = kernel_case_check(
      &c, &(kernel_case_filter_t){.kernel = "dnnl.reorder", .fixed = fixed});
  if (count != expected)
    fail_msg("%d candidates from %s %s to %s %s, expected %d", count,
             rabbet_dtype_name(fixed[0].dtype),
             rabbet_format_name(fixed[0].format),
             rabbet_dtype_name(fixed[1].dtype),
             rabbet_format_name(fixed[1].format), expected);
  kernel_case_end(&c);
}

static void formats_and_types(void** state) {
  const rabbet_dims_t dims[] = {
      KERNEL_DIMS(2, 20, 5, 3), KERNEL_DIMS(1, 32, 4, 4),
      KERNEL_DIMS(1, 3, 2, 3, 4), KERNEL_DIMS(2, 17, 6)};
  for (size_t d = 0; d < 4; ++d) {
    for (int f = 0; f < FORMATS * FORMATS; ++f) {
      for (int t = 0; t < 9; ++t) {
        const rabbet_type_format_t fixed[] = {
            {real_types[t / 3], formats[f / FORMATS]},
            {real_types[t % 3], formats[f % FORMATS]}};
        // The network's type is one of the two.
        check_reorder(*state, fixed[d % 2].dtype, dims[d], fixed, 1);
      }
    }
  }
}

static void integers(void** state) {
  const rabbet_dtype_t types[] = {RABBET_DTYPE_INT32, RABBET_DTYPE_UINT8,
                                  RABBET_DTYPE_INT8, RABBET_DTYPE_BOOL};
  for (int t = 0; t < 4; ++t) {
    for (int f = 0; f < FORMATS * FORMATS; ++f) {
      const rabbet_type_format_t fixed[] = {{types[t], formats[f / FORMATS]},
                                            {types[t], formats[f % FORMATS]}};
      check_reorder(*state, types[t], KERNEL_DIMS(1, 20, 3, 5), fixed, 1);
    }
  }
  const rabbet_type_format_t wide[] = {
      {RABBET_DTYPE_INT64, RABBET_FORMAT_LINEAR},
      {RABBET_DTYPE_INT64, RABBET_FORMAT_HWC}};
  check_reorder(*state, RABBET_DTYPE_INT64, KERNEL_DIMS(1, 4, 3, 3), wide, 0);
  const rabbet_type_format_t mixed[] = {
      {RABBET_DTYPE_INT32, RABBET_FORMAT_LINEAR},
      {RABBET_DTYPE_UINT8, RABBET_FORMAT_LINEAR}};
  check_reorder(*state, RABBET_DTYPE_INT32, KERNEL_DIMS(1, 4, 3, 3), mixed, 0);
}

// oneDNN moves 16-bit elements only with AVX-512.
static bool moves_halves(void) {
  return rabbet_cpu_isa() >= RABBET_CPU_AVX512;
}

// Bits are moved, not values: every HALF and BF16 pattern arrives as it was.
static void bits_are_kept(void** state) {
  if (!moves_halves()) skip();
  for (int t = 1; t < 3; ++t) {
    kernel_case_t c;
    kernel_case_begin(&c, *state, real_types[t]);
    int32_t x = kernel_case_input(&c, KERNEL_DIMS(1, 16, 64, 64), false);
    kernel_case_output(
        &c, kernel_case_op(&c, "identity", KERNEL_NO_ATTRS, KERNEL_INPUTS(x)));
    const rabbet_type_format_t fixed[] = {{real_types[t], RABBET_FORMAT_LINEAR},
                                          {real_types[t], RABBET_FORMAT_CHW16}};
    kernel_case_candidate_t* candidates = NULL;
    assert_int_equal(
        kernel_case_candidates(
            &c,
            &(kernel_case_filter_t){.kernel = "dnnl.reorder", .fixed = fixed},
            &candidates),
        1);
    const rabbet_kernel_class_t* class = candidates[0].kernel;
    const rabbet_dims_t dims[] = {c.values[0].dims, c.values[1].dims};
    const rabbet_kernel_shapes_t shapes = {.dims = dims, .threads = 1};
    const rabbet_kernel_spec_t spec = {.device = c.device,
                                       .group = &candidates[0].group,
                                       .tactic = candidates[0].tactic,
                                       .allocator = c.allocator};
    rabbet_kernel_t* kernel = NULL;
    rabbet_kernel_state_t* prepared = NULL;
    size_t workspace = 0;
    kernel_case_memory_t memory;
    RABBET_EXPECT_OK(rabbet_kernel_create(class, &spec, &kernel));
    RABBET_EXPECT_OK(class->prepare(kernel, &shapes, &prepared, &workspace));
    kernel_case_fill(&c, &candidates[0], workspace, false, &memory);
    uint16_t *in = memory.inputs[0], *out = memory.outputs[0];
    for (int i = 0; i < 65536; ++i)
      in[i] = (uint16_t)i;
    RABBET_EXPECT_OK(class->enqueue(kernel, prepared, &memory.call));
    for (int i = 0; i < 65536; ++i)
      assert_int_equal(out[i % 4096 * 16 + i / 4096], in[i]);
    kernel_case_free(&c, &memory);
    class->destroy_state(kernel, prepared);
    class->destroy(kernel);
    kernel_case_end(&c);
  }
}

// ---- Concatenation ---------------------------------------------------------

static int check_concat(rabbet_device_t* device, rabbet_dtype_t dtype,
                        const rabbet_dims_t* dims, size_t count, int64_t axis) {
  kernel_case_t c;
  int32_t inputs[4];
  kernel_case_begin(&c, device, dtype);
  if (!rabbet_dtype_is_float(dtype)) c.low = 0, c.high = 100;
  for (size_t i = 0; i < count; ++i)
    inputs[i] = kernel_case_input(&c, dims[i], false);
  kernel_case_output(&c, kernel_case_op(&c, "concatenation",
                                        KERNEL_ATTRS(KERNEL_INT("axis", axis)),
                                        inputs, count));
  int found =
      kernel_case_check(&c, &(kernel_case_filter_t){.kernel = "dnnl.concat"});
  kernel_case_end(&c);
  return found;
}

static void concat(void** state) {
  const rabbet_dtype_t types[] = {RABBET_DTYPE_FLOAT, RABBET_DTYPE_HALF,
                                  RABBET_DTYPE_BF16, RABBET_DTYPE_INT32,
                                  RABBET_DTYPE_UINT8};
  const rabbet_dims_t blocks[] = {KERNEL_DIMS(2, 32, 3, 5),
                                  KERNEL_DIMS(2, 16, 3, 5),
                                  KERNEL_DIMS(2, 48, 3, 5)};
  const rabbet_dims_t odd[] = {KERNEL_DIMS(2, 5, 3, 5),
                               KERNEL_DIMS(2, 16, 3, 5)};
  const rabbet_dims_t rows[] = {KERNEL_DIMS(1, 20, 3, 5),
                                KERNEL_DIMS(1, 20, 4, 5)};
  const rabbet_dims_t flat[] = {KERNEL_DIMS(4), KERNEL_DIMS(1), KERNEL_DIMS(7)};
  for (int t = 0; t < 5; ++t) {
    if (rabbet_dtype_bits(types[t]) == 16 && !moves_halves()) continue;
    assert_true(check_concat(*state, types[t], blocks, 3, 1) >= 2);
    assert_true(check_concat(*state, types[t], odd, 2, -3) >= 1);
    assert_true(check_concat(*state, types[t], rows, 2, 2) >= 1);
    assert_true(check_concat(*state, types[t], flat, 3, 0) >= 1);
  }
  assert_int_equal(check_concat(*state, RABBET_DTYPE_INT64, flat, 3, 0), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(formats_and_types),
      cmocka_unit_test(integers),
      cmocka_unit_test(bits_are_kept),
      cmocka_unit_test(concat),
  };
  return cmocka_run_group_tests(tests, cpu_fixture_open, cpu_fixture_close);
}
