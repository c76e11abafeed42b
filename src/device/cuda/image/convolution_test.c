// Which engines of cuDNN are offered for a convolution.
#include <string.h>

#include "conformance/kernel_case.h"
#include "cuda_stand_in/device.h"

// Offers for windows of 3 pixels with this stride: all, and of engines that
// compile a kernel for the plan (of the stand-in: engine 0 k2=2 and engine 8).
static size_t offers(rabbet_cuda_device_t* device, int64_t stride,
                     size_t* out_compiled) {
  static const kernel_case_filter_t by_cudnn = {.kernel = "cuda.convolution"};
  kernel_case_t c;
  kernel_case_candidate_t* candidates = NULL;
  const int64_t strides[] = {1, stride};
  kernel_case_begin(&c, &device->base, RABBET_DTYPE_FLOAT);
  kernel_case_output(
      &c, kernel_case_op(
              &c, "convolution",
              KERNEL_ATTRS({.name = "stride_nd",
                            .type = RABBET_ATTR_INTS,
                            .data = strides,
                            .count = 2,
                            .dtype = RABBET_DTYPE_NONE}),
              KERNEL_INPUTS(
                  kernel_case_input(&c, KERNEL_DIMS(2, 4, 5, 40), false),
                  kernel_case_input(&c, KERNEL_DIMS(6, 4, 1, 3), true), -1)));
  size_t count = kernel_case_candidates(&c, &by_cudnn, &candidates);
  *out_compiled = 0;
  for (size_t i = 0; i < count; ++i)
    *out_compiled += strstr(candidates[i].tactic_name, "k2=2") ||
                     strstr(candidates[i].tactic_name, "engine 8");
  kernel_case_end(&c);
  return count;
}

// Kernels that are compiled for a plan encode strides up to 8.
static void wide_strides(void** state) {
  size_t narrow = 0, wide = 0;
  size_t all = offers(*state, 8, &narrow), left = offers(*state, 9, &wide);
  assert_true(narrow > 0);
  assert_int_equal(wide, 0);
  assert_int_equal(left, all - narrow);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(wide_strides),
  };
  return cmocka_run_group_tests(tests, stand_in_device_setup,
                                stand_in_device_teardown);
}
