// For which convolutions cuda.convolution.depthwise is offered, and in how many
// blocks it runs; that results are right is the conformance suite's matter too.
#include "conformance/kernel_case.h"
#include "cuda_stand_in/device.h"
#include "ops/enums.h"

#define F32 RABBET_DTYPE_FLOAT
#define F16 RABBET_DTYPE_HALF
#define BF16 RABBET_DTYPE_BF16

typedef struct convolution_t {
  rabbet_dtype_t dtype;
  rabbet_dims_t x, w;
  int64_t stride, dilation, padding;
  const char *tactic, *launched;
} convolution_t;

// The stand-in has 4 multiprocessors, so 16 blocks.
static const convolution_t convolutions[] = {
    {F16,
     {4, {1, 96, 9, 10}},
     {4, {96, 1, 7, 7}},
     1,
     1,
     3,
     "4 channels, 1 x 4",
     "depthwise, grid 1 3 1"},
    // Two tiles of 24 vectors, and blocks that go on.
    {F16,
     {4, {2, 96, 29, 31}},
     {4, {96, 1, 3, 3}},
     1,
     1,
     1,
     "2 channels, 1 x 2",
     "depthwise, grid 2 8 1"},
    {BF16,
     {4, {2, 24, 17, 12}},
     {4, {24, 1, 5, 5}},
     2,
     1,
     2,
     "2 channels, 2 x 4",
     "depthwise, grid 1 1 1"},
    {F32,
     {4, {1, 20, 11, 30}},
     {4, {20, 1, 3, 3}},
     1,
     4,
     4,
     "2 channels, 1 x 8",
     "depthwise, grid 1 2 1"},
    {F16,
     {4, {1, 15, 6, 7}},
     {4, {15, 1, 3, 3}},
     1,
     1,
     1,
     "1 channels, 1 x 4",
     "depthwise, grid 1 1 1"},
    // Threads that share strips: seven rows of a window, nine, with gaps.
    {F16,
     {4, {1, 96, 9, 10}},
     {4, {96, 1, 7, 7}},
     1,
     1,
     3,
     "4 channels, 1 x 2 by 8",
     "depthwise, grid 1 15 1"},
    {F32,
     {4, {2, 22, 23, 7}},
     {4, {22, 1, 9, 3}},
     2,
     1,
     4,
     "2 channels, 1 x 4 by 8",
     "depthwise, grid 1 "},
    {BF16,
     {4, {1, 12, 17, 9}},
     {4, {12, 1, 5, 5}},
     1,
     2,
     4,
     "4 channels, 1 x 2 by 8",
     "depthwise, grid 1 "},
    {F32,
     {3, {3, 12, 40}},
     {3, {12, 1, 9}},
     3,
     2,
     8,
     "4 channels",
     "depthwise"},
};

static int32_t convolve(kernel_case_t* c, const convolution_t* one,
                        int64_t groups, bool constant) {
  const int64_t steps[] = {one->stride, one->stride},
                gaps[] = {one->dilation, one->dilation},
                pads[] = {one->padding, one->padding};
  const size_t axes = one->w.rank == 3 ? 1 : 2;
#define PAIR(key, pair)                                                     \
  {                                                                         \
    .name = (key), .type = RABBET_ATTR_INTS, .data = (pair), .count = axes, \
    .dtype = RABBET_DTYPE_NONE                                              \
  }
  return kernel_case_op(
      c, "convolution",
      KERNEL_ATTRS(PAIR("stride_nd", steps), PAIR("dilation_nd", gaps),
                   PAIR("pre_padding", pads), PAIR("post_padding", pads),
                   KERNEL_INT("num_groups", groups)),
      KERNEL_INPUTS(kernel_case_input(c, one->x, false),
                    kernel_case_input(c, one->w, constant),
                    kernel_case_input(c, KERNEL_DIMS(one->w.d[0]), true)));
#undef PAIR
}

// With a factor for each channel, a function and a residual after it.
static void build(kernel_case_t* c, const convolution_t* one) {
  int32_t y = convolve(c, one, one->w.d[0], true);
  rabbet_dims_t full = c->values[y].dims, factor = full;
  for (int32_t i = 0; i < factor.rank; ++i)
    if (i != 1) factor.d[i] = 1;
  const int64_t product = RABBET_ELEMENTWISE_PROD, sum = RABBET_ELEMENTWISE_SUM;
  y = kernel_case_op(c, "elementwise", KERNEL_ATTRS(KERNEL_INT("op", product)),
                     KERNEL_INPUTS(y, kernel_case_input(c, factor, true)));
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
    const kernel_case_filter_t filter = {.kernel = "cuda.convolution.depthwise",
                                         .tactic = one->tactic};
    kernel_case_t c;
    kernel_case_begin(&c, &device->base, one->dtype);
    c.tolerance = 2e-5;
    build(&c, one);
    stand_in()->clear_log();
    if (kernel_case_check(&c, &filter) < 1)
      fail_msg("case %zu has no candidate", i);
    if (!strstr(stand_in()->log(), one->launched))
      fail_msg("case %zu did not launch %s\n%s", i, one->launched,
               stand_in()->log());
    kernel_case_end(&c);
  }
}

// Up to level 3 long strips are offered where they fill 16 blocks.
static void strips(void** state) {
  static const struct {
    int64_t height;
    int level;
    size_t offered;
  } cases[] = {{9, 3, 2}, {9, 4, 4}, {60, 3, 4}, {60, 2, 4}, {60, 1, 1}};
  rabbet_cuda_device_t* device = *state;
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
    const convolution_t one = {
        F16, {4, {1, 96, cases[i].height, 10}}, {4, {96, 1, 3, 3}}, 1, 1, 1, "",
        ""};
    const kernel_case_filter_t filter = {.kernel = "cuda.convolution.depthwise",
                                         .optimization_level = cases[i].level};
    kernel_case_t c;
    kernel_case_candidate_t* candidates = NULL;
    kernel_case_begin(&c, &device->base, F16);
    kernel_case_output(&c, convolve(&c, &one, 96, true));
    assert_int_equal(kernel_case_candidates(&c, &filter, &candidates),
                     cases[i].offered);
    kernel_case_end(&c);
  }
}

// Filters that it does not have: those of several channels, several for one
// channel, those that are no constants, and windows that reach too far.
static void refused(void** state) {
  static const struct {
    convolution_t one;
    int64_t groups;
    bool constant;
  } cases[] = {
      {{F16, {4, {1, 16, 9, 9}}, {4, {16, 2, 3, 3}}, 1, 1, 1, "", ""}, 8, true},
      {{F16, {4, {1, 8, 9, 9}}, {4, {16, 1, 3, 3}}, 1, 1, 1, "", ""}, 8, true},
      {{F16, {4, {1, 16, 9, 9}}, {4, {16, 1, 3, 3}}, 1, 1, 1, "", ""},
       16,
       false},
      {{F16, {4, {1, 16, 80, 80}}, {4, {16, 1, 3, 3}}, 1, 30, 1, "", ""},
       16,
       true},
  };
  static const kernel_case_filter_t depthwise_only = {
      .kernel = "cuda.convolution.depthwise"};
  rabbet_cuda_device_t* device = *state;
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
    kernel_case_t c;
    kernel_case_begin(&c, &device->base, F16);
    kernel_case_output(
        &c, convolve(&c, &cases[i].one, cases[i].groups, cases[i].constant));
    if (kernel_case_check(&c, &depthwise_only) > 0)
      fail_msg("case %zu has a candidate", i);
    kernel_case_end(&c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(launches),
      cmocka_unit_test(strips),
      cmocka_unit_test(refused),
  };
  return cmocka_run_group_tests(tests, stand_in_device_setup,
                                stand_in_device_teardown);
}
