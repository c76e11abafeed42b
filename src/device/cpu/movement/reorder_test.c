// Conversions between formats and types that oneDNN does not know.
#include "conformance/cpu_device.h"

static void check_reorder(rabbet_device_t* device, rabbet_dims_t dims,
                          rabbet_type_format_t from, rabbet_type_format_t to) {
  const rabbet_type_format_t fixed[] = {from, to};
  kernel_case_t c;
  kernel_case_begin(&c, device, from.dtype);
  if (!rabbet_dtype_is_float(from.dtype)) c.low = 0, c.high = 100;
  int32_t x = kernel_case_input(&c, dims, false);
  kernel_case_output(
      &c, kernel_case_op(&c, "identity", KERNEL_NO_ATTRS, KERNEL_INPUTS(x)));
  int count = kernel_case_check(
      &c, &(kernel_case_filter_t){.kernel = "cpu.reorder", .fixed = fixed});
  if (count != 1)
    fail_msg("%d candidates from %s %s to %s %s", count,
             rabbet_dtype_name(from.dtype), rabbet_format_name(from.format),
             rabbet_dtype_name(to.dtype), rabbet_format_name(to.format));
  kernel_case_end(&c);
}

static const rabbet_dims_t dims[] = {
    KERNEL_DIMS(2, 20, 5, 3), KERNEL_DIMS(1, 32, 4, 4),
    KERNEL_DIMS(1, 3, 2, 3, 4), KERNEL_DIMS(2, 17, 6)};

static void formats_and_types(void** state) {
  static const rabbet_format_t formats[] = {
      RABBET_FORMAT_LINEAR, RABBET_FORMAT_HWC,  RABBET_FORMAT_HWC8,
      RABBET_FORMAT_HWC16,  RABBET_FORMAT_CHW2, RABBET_FORMAT_CHW4,
      RABBET_FORMAT_CHW32};
  static const rabbet_dtype_t types[][2] = {
      {RABBET_DTYPE_FLOAT, RABBET_DTYPE_FLOAT},
      {RABBET_DTYPE_FLOAT, RABBET_DTYPE_HALF},
      {RABBET_DTYPE_BF16, RABBET_DTYPE_FLOAT},
      {RABBET_DTYPE_HALF, RABBET_DTYPE_BF16},
      {RABBET_DTYPE_INT64, RABBET_DTYPE_INT64},
      {RABBET_DTYPE_INT8, RABBET_DTYPE_INT8},
      {RABBET_DTYPE_BOOL, RABBET_DTYPE_BOOL}};
  for (size_t d = 0; d < 4; ++d)
    for (int f = 0; f < 49; ++f)
      for (int t = 0; t < 7; ++t)
        check_reorder(*state, dims[d],
                      (rabbet_type_format_t){types[t][0], formats[f / 7]},
                      (rabbet_type_format_t){types[t][1], formats[f % 7]});
}

static void formats_of_volumes(void** state) {
  static const rabbet_format_t formats[] = {
      RABBET_FORMAT_DHWC, RABBET_FORMAT_DHWC8, RABBET_FORMAT_CDHW32};
  for (int f = 0; f < 9; ++f)
    check_reorder(*state, dims[2],
                  (rabbet_type_format_t){RABBET_DTYPE_FLOAT, formats[f / 3]},
                  (rabbet_type_format_t){RABBET_DTYPE_FLOAT, formats[f % 3]});
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(formats_and_types),
      cmocka_unit_test(formats_of_volumes),
  };
  return cmocka_run_group_tests(tests, cpu_fixture_open, cpu_fixture_close);
}
