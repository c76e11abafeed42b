// Constants in every format, against the layout written down by hand.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "builder/choose/unit.h"
#include "check.h"
#include "core/lay_out.h"
#include "core/view.h"
#include "faults/fault_allocator.h"

// Place of element (n, c, i) of [N, C, inner] as the format's definition has
// it: blocks of channels, innermost or with the other axes inside.
static int64_t expected_place(const rabbet_format_info_t* info, int64_t n,
                              int64_t c, int64_t i, int64_t channels,
                              int64_t inner) {
  int64_t blocks = (channels + info->block - 1) / info->block;
  if (info->channels_last)
    return n * inner * blocks * info->block + i * blocks * info->block + c;
  return ((n * blocks + c / info->block) * inner + i) * info->block +
         c % info->block;
}

enum { N = 2, C = 20, INNER = 6 };

static void in_every_format(void** state) {
  (void)state;
  rabbet_build_t build = {.allocator = rabbet_allocator_system()};
  float numbers[N * C * INNER];
  for (int i = 0; i < N * C * INNER; ++i)
    numbers[i] = (float)(i + 1);
  rabbet_arena_initialize(build.allocator, &build.arena);
  RABBET_EXPECT_OK(rabbet_expr_graph_create(build.allocator, &build.ir.graph));
  rabbet_ir_value_t value = {.name = "w",
                             .dtype = RABBET_DTYPE_FLOAT,
                             .constant = numbers,
                             .shape = {.rank = 5}};
  const int64_t dims[5] = {N, C, 1, 2, 3};
  for (int i = 0; i < 5; ++i)
    RABBET_EXPECT_OK(
        rabbet_expr_constant(build.ir.graph, dims[i], &value.shape.d[i]));
  RABBET_EXPECT_OK(rabbet_constants_create(&build, 1));
  for (int format = 0; format < 32; ++format) {
    const rabbet_format_info_t* info =
        rabbet_format_info((rabbet_format_t)format);
    if (!info) continue;
    for (int half = 0; half < 2; ++half) {
      rabbet_type_format_t type = {
          half ? RABBET_DTYPE_HALF : RABBET_DTYPE_FLOAT,
          (rabbet_format_t)format};
      const void *data = NULL, *again = NULL;
      size_t bytes = 0;
      double sum = 0;
      RABBET_EXPECT_OK(
          rabbet_constant_convert(&build, &value, type, &data, &bytes));
      for (int64_t i = 0; i < N * C * INNER; ++i)
        assert_true(rabbet_load_double(
                        type.dtype, data,
                        expected_place(info, i / C / INNER, i / INNER % C,
                                       i % INNER, C, INNER)) ==
                    (double)numbers[i]);
      size_t count = bytes / (half ? 2 : 4);
      for (size_t i = 0; i < count; ++i)
        sum += rabbet_load_double(type.dtype, data, (int64_t)i);
      assert_true(sum == N * C * INNER * (N * C * INNER + 1) / 2.0);  // padding
      RABBET_EXPECT_OK(
          rabbet_constant_convert(&build, &value, type, &again, &bytes));
      assert_ptr_equal(data, again);
    }
  }
  rabbet_constants_deinitialize(&build);
  rabbet_expr_graph_destroy(build.ir.graph);
  rabbet_arena_deinitialize(&build.arena);
}

// Large copies are freed together, small ones stay.
static void large_copies_are_freed(void** state) {
  (void)state;
  enum { LARGE = 1 << 22 };
  rabbet_fault_allocator_t fault;
  rabbet_fault_initialize(-1, false, &fault);
  rabbet_build_t build = {.allocator = rabbet_fault_allocator(&fault)};
  const rabbet_type_format_t half = {RABBET_DTYPE_HALF, RABBET_FORMAT_LINEAR};
  float* numbers = calloc(LARGE, sizeof(*numbers));
  const int64_t extents[2] = {LARGE, 8};
  const void *large = NULL, *small = NULL, *again = NULL;
  size_t bytes = 0;
  rabbet_ir_value_t values[2];
  assert_non_null(numbers);
  rabbet_arena_initialize(build.allocator, &build.arena);
  RABBET_EXPECT_OK(rabbet_constants_create(&build, 2));
  RABBET_EXPECT_OK(rabbet_expr_graph_create(build.allocator, &build.ir.graph));
  for (int i = 0; i < 2; ++i) {
    values[i] = (rabbet_ir_value_t){.id = i,
                                    .dtype = RABBET_DTYPE_FLOAT,
                                    .constant = numbers,
                                    .shape = {.rank = 1}};
    RABBET_EXPECT_OK(rabbet_expr_constant(build.ir.graph, extents[i],
                                          &values[i].shape.d[0]));
  }
  RABBET_EXPECT_OK(
      rabbet_constant_convert(&build, &values[1], half, &small, &bytes));
  size_t before = fault.live_bytes;
  rabbet_constant_trim(&build);
  assert_int_equal(fault.live_bytes, before);
  RABBET_EXPECT_OK(
      rabbet_constant_convert(&build, &values[0], half, &large, &bytes));
  assert_int_equal(bytes, LARGE * 2);
  assert_true(fault.live_bytes >= before + LARGE * 2);
  rabbet_constant_trim(&build);
  assert_true(fault.live_bytes < before + 4096);
  // It is made again.
  numbers[LARGE - 1] = 1;
  RABBET_EXPECT_OK(
      rabbet_constant_convert(&build, &values[0], half, &large, &bytes));
  assert_int_equal(((const uint16_t*)large)[LARGE - 1], 0x3c00);
  RABBET_EXPECT_OK(
      rabbet_constant_convert(&build, &values[1], half, &again, &bytes));
  assert_ptr_equal(small, again);
  rabbet_constants_deinitialize(&build);
  rabbet_expr_graph_destroy(build.ir.graph);
  rabbet_arena_deinitialize(&build.arena);
  rabbet_fault_deinitialize(&fault);
  free(numbers);
}

static void finite_numbers_stay_finite(void** state) {
  (void)state;
  const float numbers[] = {-__FLT_MAX__, 1e9f, __builtin_inff(), 65519, 1};
  const rabbet_dims_t dims = {.rank = 1, .d = {5}};
  uint16_t half[5], bf16[5];
  rabbet_lay_out(RABBET_DTYPE_FLOAT, numbers, &dims, RABBET_DTYPE_HALF,
                 RABBET_FORMAT_LINEAR, half);
  rabbet_lay_out(RABBET_DTYPE_FLOAT, numbers, &dims, RABBET_DTYPE_BF16,
                 RABBET_FORMAT_LINEAR, bf16);
  assert_int_equal(half[0], 0xfbff);
  assert_int_equal(half[1], 0x7bff);
  assert_int_equal(half[2], 0x7c00);
  assert_int_equal(half[3], 0x7bff);
  assert_int_equal(half[4], 0x3c00);
  assert_int_equal(bf16[0], 0xff7f);
  assert_int_equal(bf16[2], 0x7f80);
}

// Types that are copied and types that are converted; one pixel, and none.
static void rows_convert_as_elements_do(void** state) {
  (void)state;
  static const rabbet_dtype_t types[][2] = {
      {RABBET_DTYPE_FLOAT, RABBET_DTYPE_BF16},
      {RABBET_DTYPE_HALF, RABBET_DTYPE_FLOAT},
      {RABBET_DTYPE_HALF, RABBET_DTYPE_HALF},
      {RABBET_DTYPE_INT8, RABBET_DTYPE_INT8},
      {RABBET_DTYPE_INT64, RABBET_DTYPE_INT64}};
  static const rabbet_format_t formats[] = {
      RABBET_FORMAT_LINEAR, RABBET_FORMAT_HWC, RABBET_FORMAT_HWC8,
      RABBET_FORMAT_CHW4};
  static const rabbet_dims_t shapes[] = {{.rank = 4, .d = {2, 5, 3, 1}},
                                         {.rank = 4, .d = {3, 11, 1, 1}},
                                         {.rank = 4, .d = {2, 0, 3, 1}}};
  for (size_t k = 0; k < 5 * 4 * 3; ++k) {
    const rabbet_dtype_t from = types[k % 5][0], to = types[k % 5][1];
    const rabbet_format_t format = formats[k / 5 % 4];
    const rabbet_dims_t* d = &shapes[k / 20];
    uint64_t source[64], made[96] = {0}, wanted[96] = {0};
    for (size_t i = 0; i < 64; ++i)
      source[i] = (i + 1) * UINT64_C(0x3c513d2fbb813a77);
    int64_t inner = d->d[2] * d->d[3];
    for (int64_t i = 0; i < d->d[0] * d->d[1] * inner; ++i) {
      int64_t at =
          expected_place(rabbet_format_info(format), i / inner / d->d[1],
                         i / inner % d->d[1], i % inner, d->d[1], inner);
      if (from != to || rabbet_dtype_is_float(from))
        rabbet_store_double(to, wanted, at,
                            rabbet_load_double(from, source, i));
      else
        rabbet_store_int64(to, wanted, at, rabbet_load_int64(from, source, i));
    }
    rabbet_lay_out(from, source, d, to, format, made);
    assert_memory_equal(made, wanted, sizeof(made));
  }
}

// Numbers of all exponents, halves between two results, and special ones.
static void floats_round_as_elements_do(void** state) {
  (void)state;
  enum { COUNT = 1 << 16 };
  static float numbers[COUNT];
  static uint16_t half[COUNT], bf16[COUNT];
  const rabbet_dims_t dims = {.rank = 1, .d = {COUNT}};
  uint32_t low[] = {0, 1, 0xfff, 0x1000, 0x1001, 0x2000, 0x3000, 0x7fff};
  for (uint32_t i = 0; i < COUNT; ++i) {
    uint32_t bits = i << 16 | (low[i % 8] ^ (i % 16 > 7 ? 0x8000u : 0));
    memcpy(&numbers[i], &bits, sizeof(bits));
  }
  rabbet_lay_out(RABBET_DTYPE_FLOAT, numbers, &dims, RABBET_DTYPE_HALF,
                 RABBET_FORMAT_LINEAR, half);
  rabbet_lay_out(RABBET_DTYPE_FLOAT, numbers, &dims, RABBET_DTYPE_BF16,
                 RABBET_FORMAT_LINEAR, bf16);
  for (int i = 0; i < COUNT; ++i) {
    uint16_t wanted = 0;
    double value = (double)numbers[i];
    bool finite = isfinite(value);
    rabbet_store_double(RABBET_DTYPE_HALF, &wanted, 0,
                        finite ? fmax(fmin(value, 65504), -65504) : value);
    assert_int_equal(half[i], wanted);
    rabbet_store_double(
        RABBET_DTYPE_BF16, &wanted, 0,
        finite ? fmax(fmin(value, 0x1.fep127), -0x1.fep127) : value);
    assert_int_equal(bf16[i], wanted);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(in_every_format),
      cmocka_unit_test(large_copies_are_freed),
      cmocka_unit_test(finite_numbers_stay_finite),
      cmocka_unit_test(rows_convert_as_elements_do),
      cmocka_unit_test(floats_round_as_elements_do)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
