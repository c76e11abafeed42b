// For which convolutions cuda.convolution.patches is offered, and which
// function and grid it launches; that results are right is the conformance
// suite's matter too.
#include "conformance/kernel_case.h"
#include "cuda_stand_in/device.h"
#include "ops/enums.h"

#define F32 RABBET_DTYPE_FLOAT
#define F16 RABBET_DTYPE_HALF
#define BF16 RABBET_DTYPE_BF16

typedef struct convolution_t {
  rabbet_dtype_t dtype;
  rabbet_dims_t x, w;
  const char *tactic, *launched;
} convolution_t;

static const convolution_t convolutions[] = {
    // Whole chunks of patches and filters, in LINEAR and with channels last.
    {F16,
     {4, {2, 3, 32, 48}},
     {4, {72, 3, 16, 16}},
     "64 x 48 x 1",
     "tiles, grid 2 1 1"},
    {BF16,
     {4, {1, 16, 22, 24}},
     {4, {96, 16, 2, 2}},
     "128 x 96 x 1",
     "tiles, grid 1 2 1"},
    {F16,
     {3, {3, 40, 80}},
     {3, {64, 40, 8}},
     "64 x 64 x 4",
     "tiles, grid 4 1 1"},
    // Patches, and filters as well, that are no whole chunks; pixels that no
    // window reaches.
    {F16,
     {4, {1, 3, 21, 18}},
     {4, {40, 3, 4, 4}},
     "64 x 48 x 1",
     "tiles, grid 1 1 1"},
    {F16,
     {4, {1, 3, 30, 45}},
     {4, {21, 3, 14, 14}},
     "64 x 48 x 1",
     "tiles_single, grid 1 1 1"},
    // Windows of one pixel.
    {BF16,
     {4, {2, 24, 9, 10}},
     {4, {64, 24, 1, 1}},
     "128 x 96 x 1",
     "tiles, grid 1 2 1"},
    // Filters of the result's shape, which is not their format.
    {F16,
     {4, {16, 16, 1, 1}},
     {4, {16, 16, 1, 1}},
     "64 x 48 x 1",
     "tiles, grid 1 1 1"},
};

static int32_t convolve(kernel_case_t* c, const convolution_t* one,
                        const int64_t* stride, const int64_t* padding,
                        int64_t groups, bool constant) {
  const size_t axes = one->w.rank == 3 ? 1 : 2;
#define AXES(key, values)                                                     \
  {                                                                           \
    .name = (key), .type = RABBET_ATTR_INTS, .data = (values), .count = axes, \
    .dtype = RABBET_DTYPE_NONE                                                \
  }
  return kernel_case_op(
      c, "convolution",
      KERNEL_ATTRS(AXES("stride_nd", stride), AXES("pre_padding", padding),
                   AXES("post_padding", padding),
                   KERNEL_INT("num_groups", groups)),
      KERNEL_INPUTS(kernel_case_input(c, one->x, false),
                    kernel_case_input(c, one->w, constant),
                    kernel_case_input(c, KERNEL_DIMS(one->w.d[0]), true)));
#undef AXES
}

// With a function and a residual after it.
static void build(kernel_case_t* c, const convolution_t* one) {
  const int64_t none[2] = {0}, sum = RABBET_ELEMENTWISE_SUM;
  int32_t y = convolve(c, one, one->w.d + 2, none, 1, true);
  rabbet_dims_t full = c->values[y].dims;
  y = kernel_case_op(
      c, "activation",
      KERNEL_ATTRS(KERNEL_INT("type", RABBET_ACTIVATION_SIGMOID)),
      KERNEL_INPUTS(y));
  kernel_case_output(
      c, kernel_case_op(c, "elementwise", KERNEL_ATTRS(KERNEL_INT("op", sum)),
                        KERNEL_INPUTS(kernel_case_input(c, full, false), y)));
}

static void launches(void** state) {
  rabbet_cuda_device_t* device = *state;
  for (size_t i = 0; i < sizeof(convolutions) / sizeof(convolutions[0]); ++i) {
    const convolution_t* one = &convolutions[i];
    const kernel_case_filter_t filter = {.kernel = "cuda.convolution.patches",
                                         .tactic = one->tactic};
    kernel_case_t c;
    kernel_case_begin(&c, &device->base, one->dtype);
    c.tolerance = 2e-5;
    build(&c, one);
    stand_in()->clear_log();
    int layouts = one->w.d[2] == 1 ? 1 : 2;  // HWC, and LINEAR
    if (kernel_case_check(&c, &filter) != layouts)
      fail_msg("case %zu is not offered in %d layouts", i, layouts);
    if (!strstr(stand_in()->log(), one->launched))
      fail_msg("case %zu did not launch %s\n%s", i, one->launched,
               stand_in()->log());
    kernel_case_end(&c);
  }
}

// Windows that overlap, are padded, or have groups; filters that are no
// constants, and FLOAT.
static void refused(void** state) {
  static const struct {
    convolution_t one;
    int64_t stride[2], padding[2], groups;
    bool constant;
  } cases[] = {
      {{F16, {4, {1, 8, 16, 16}}, {4, {16, 8, 4, 4}}, "", ""},
       {4, 3},
       {0, 0},
       1,
       true},
      {{F16, {4, {1, 8, 16, 16}}, {4, {16, 8, 4, 4}}, "", ""},
       {4, 4},
       {0, 1},
       1,
       true},
      {{F16, {4, {1, 8, 16, 16}}, {4, {16, 4, 4, 4}}, "", ""},
       {4, 4},
       {0, 0},
       2,
       true},
      {{F16, {4, {1, 8, 16, 16}}, {4, {16, 8, 4, 4}}, "", ""},
       {4, 4},
       {0, 0},
       1,
       false},
      {{F32, {4, {1, 8, 16, 16}}, {4, {16, 8, 4, 4}}, "", ""},
       {4, 4},
       {0, 0},
       1,
       true},
  };
  static const kernel_case_filter_t patches_only = {
      .kernel = "cuda.convolution.patches"};
  rabbet_cuda_device_t* device = *state;
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
    kernel_case_t c;
    kernel_case_begin(&c, &device->base, cases[i].one.dtype);
    kernel_case_output(
        &c, convolve(&c, &cases[i].one, cases[i].stride, cases[i].padding,
                     cases[i].groups, cases[i].constant));
    if (kernel_case_check(&c, &patches_only) > 0)
      fail_msg("case %zu has a candidate", i);
    kernel_case_end(&c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(launches),
      cmocka_unit_test(refused),
  };
  return cmocka_run_group_tests(tests, stand_in_device_setup,
                                stand_in_device_teardown);
}
