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
  // Zeros: the window's length, none, none, one, one.
  int64_t stride[2], before[2], after[2], dilation[2], groups;
  bool varies;  // the filters: they are no constants
  int layouts;  // of the image, in which it is offered: HWC is 1, LINEAR 2
  const char *tactic, *launched;
} convolution_t;

static const convolution_t convolutions[] = {
    // Whole chunks of patches and filters, in LINEAR and with channels last.
    {.dtype = F16,
     .x = {4, {2, 3, 32, 48}},
     .w = {4, {96, 3, 16, 16}},
     .layouts = 3,
     .tactic = "64 x 48 x 1",
     .launched = "tiles, grid 2 1 1"},
    {.dtype = BF16,
     .x = {4, {1, 16, 22, 24}},
     .w = {4, {72, 16, 2, 2}},
     .layouts = 3,
     .tactic = "128 x 96 x 1",
     .launched = "tiles, grid 1 2 1"},
    {.dtype = F16,
     .x = {3, {3, 40, 80}},
     .w = {3, {64, 40, 8}},
     .layouts = 3,
     .tactic = "64 x 64 x 4",
     .launched = "tiles, grid 4 1 1"},
    // Patches, and filters as well, that are no whole chunks; pixels that no
    // window reaches.
    {.dtype = F16,
     .x = {4, {1, 3, 21, 18}},
     .w = {4, {40, 3, 4, 4}},
     .layouts = 3,
     .tactic = "64 x 48 x 1",
     .launched = "tiles, grid 1 1 1"},
    {.dtype = F16,
     .x = {4, {1, 3, 30, 45}},
     .w = {4, {21, 3, 14, 14}},
     .layouts = 3,
     .tactic = "64 x 32 x 1",
     .launched = "tiles_single, grid 1 1 1"},
    // Windows of one pixel.
    {.dtype = BF16,
     .x = {4, {2, 24, 9, 10}},
     .w = {4, {64, 24, 1, 1}},
     .layouts = 1,
     .tactic = "128 x 64 x 1",
     .launched = "tiles, grid 1 2 1"},
    // Filters of the result's shape, which is not their format.
    {.dtype = F16,
     .x = {4, {16, 16, 1, 1}},
     .w = {4, {16, 16, 1, 1}},
     .layouts = 1,
     .tactic = "64 x 16 x 1",
     .launched = "tiles, grid 1 1 1"},
    // Windows that overlap, within the image: few channels in planes.
    {.dtype = F16,
     .x = {4, {1, 3, 32, 40}},
     .w = {4, {64, 3, 8, 16}},
     .stride = {8, 8},
     .layouts = 2,
     .tactic = "64 x 64 x 1",
     .launched = "tiles, grid 1 1 1"},
    // Beyond it, and with holes.
    {.dtype = BF16,
     .x = {4, {2, 3, 17, 18}},
     .w = {4, {32, 3, 3, 3}},
     .stride = {2, 2},
     .before = {1, 1},
     .after = {1, 1},
     .layouts = 2,
     .tactic = "64 x 32 x 1",
     .launched = "tiles_single, grid 1 3 1"},
    {.dtype = F16,
     .x = {4, {1, 64, 10, 10}},
     .w = {4, {64, 64, 3, 3}},
     .stride = {1, 1},
     .before = {2, 2},
     .after = {2, 2},
     .dilation = {2, 2},
     .layouts = 1,
     .tactic = "64 x 64 x 8",
     .launched = "tiles, grid 8 2 1"},
    // Groups: columns that are a tile of their own, or parts of one.
    {.dtype = F16,
     .x = {3, {2, 96, 50}},
     .w = {3, {96, 48, 32}},
     .stride = {1},
     .before = {16},
     .after = {15},
     .groups = 2,
     .layouts = 1,
     .tactic = "64 x 48 x 4",
     .launched = "tiles, grid 8 2 1"},
    {.dtype = BF16,
     .x = {4, {1, 32, 9, 7}},
     .w = {4, {40, 8, 3, 3}},
     .stride = {1, 2},
     .before = {1, 0},
     .after = {1, 3},
     .groups = 4,
     .layouts = 1,
     .tactic = "64 x 16 x 1",
     .launched = "tiles_single, grid 4 1 1"},
    // Filters that are no constants, of few columns.
    {.dtype = F16,
     .x = {4, {1, 16, 20, 20}},
     .w = {4, {5, 16, 10, 10}},
     .varies = true,
     .layouts = 3,
     .tactic = "64 x 16 x 1",
     .launched = "tiles_single, grid 1 1 1"},
    // Groups that are no whole chunks, of fewer columns than a tile.
    {.dtype = BF16,
     .x = {4, {1, 12, 8, 6}},
     .w = {4, {8, 3, 3, 1}},
     .stride = {2, 1},
     .before = {2, 0},
     .after = {2, 1},
     .groups = 4,
     .layouts = 1,
     .tactic = "64 x 16 x 1",
     .launched = "tiles_single, grid 4 1 1"},
};

static int32_t convolve(kernel_case_t* c, const convolution_t* one) {
  const size_t axes = one->w.rank == 3 ? 1 : 2;
  static const int64_t ones[] = {1, 1};
#define AXES(key, values)                                                     \
  {                                                                           \
    .name = (key), .type = RABBET_ATTR_INTS, .data = (values), .count = axes, \
    .dtype = RABBET_DTYPE_NONE                                                \
  }
  return kernel_case_op(
      c, "convolution",
      KERNEL_ATTRS(
          AXES("stride_nd", one->stride[0] ? one->stride : one->w.d + 2),
          AXES("dilation_nd", one->dilation[0] ? one->dilation : ones),
          AXES("pre_padding", one->before), AXES("post_padding", one->after),
          KERNEL_INT("num_groups", one->groups ? one->groups : 1)),
      KERNEL_INPUTS(kernel_case_input(c, one->x, false),
                    kernel_case_input(c, one->w, !one->varies),
                    kernel_case_input(c, KERNEL_DIMS(one->w.d[0]), true)));
#undef AXES
}

// With a function and a residual after it.
static void build(kernel_case_t* c, const convolution_t* one) {
  const int64_t sum = RABBET_ELEMENTWISE_SUM;
  int32_t y = convolve(c, one);
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
    int layouts = (one->layouts & 1) + (one->layouts >> 1);
    if (kernel_case_check(&c, &filter) != layouts)
      fail_msg("case %zu is not offered in %d layouts", i, layouts);
    if (!strstr(stand_in()->log(), one->launched))
      fail_msg("case %zu did not launch %s\n%s", i, one->launched,
               stand_in()->log());
    kernel_case_end(&c);
  }
}

// A filter for each channel, dense windows over many pixels, and FLOAT.
static void refused(void** state) {
  static const convolution_t cases[] = {
      {.dtype = F16,
       .x = {4, {1, 8, 16, 16}},
       .w = {4, {8, 1, 3, 3}},
       .groups = 8},
      {.dtype = F16,
       .x = {4, {1, 8, 300, 300}},
       .w = {4, {16, 8, 3, 3}},
       .stride = {1, 1}},
      {.dtype = F32, .x = {4, {1, 8, 16, 16}}, .w = {4, {16, 8, 4, 4}}},
  };
  static const kernel_case_filter_t patches_only = {
      .kernel = "cuda.convolution.patches"};
  rabbet_cuda_device_t* device = *state;
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
    kernel_case_t c;
    kernel_case_begin(&c, &device->base, cases[i].dtype);
    kernel_case_output(&c, convolve(&c, &cases[i]));
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
