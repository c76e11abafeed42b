#include "check.h"
#include "core/view.h"

#define DIMS(...)                                                      \
  ((rabbet_dims_t){sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), \
                   {__VA_ARGS__}})

static void test_parse(void** state) {
  (void)state;
  for (int i = -1; i < 70; ++i) {
    rabbet_format_t format = (rabbet_format_t)i, parsed;
    const rabbet_format_info_t* info = rabbet_format_info(format);
    assert_true((info != NULL) ==
                ((i >= 0 && i <= RABBET_FORMAT_DHWC) || i == 64));
    if (!info) {
      assert_string_equal(rabbet_format_name(format), "?");
      continue;
    }
    RABBET_EXPECT_OK(rabbet_format_parse(rabbet_format_name(format), &parsed));
    assert_int_equal(parsed, format);
  }
  rabbet_format_t format;
  RABBET_EXPECT_OK(rabbet_format_parse("chw16", &format));
  assert_int_equal(format, RABBET_FORMAT_CHW16);
  RABBET_EXPECT_ERROR(rabbet_format_parse("LINAER", &format),
                      RABBET_STATUS_INVALID_ARGUMENT, "'LINEAR'");
  assert_int_equal(format, RABBET_FORMAT_NONE);
}

static void test_physical(void** state) {
  (void)state;
  const struct {
    rabbet_format_t format;
    rabbet_dims_t dims, physical;
  } rows[] = {
      {RABBET_FORMAT_LINEAR, DIMS(2, 3, 4), DIMS(2, 3, 4)},
      {RABBET_FORMAT_LINEAR, {0}, {0}},
      {RABBET_FORMAT_CHW16, DIMS(2, 17, 5, 6), DIMS(2, 2, 5, 6, 16)},
      {RABBET_FORMAT_CHW8, DIMS(2, 8, 5), DIMS(2, 1, 5, 8)},
      {RABBET_FORMAT_CDHW32, DIMS(1, 33, 2, 3, 4), DIMS(1, 2, 2, 3, 4, 32)},
      {RABBET_FORMAT_HWC, DIMS(2, 3, 5, 6), DIMS(2, 5, 6, 3)},
      {RABBET_FORMAT_HWC8, DIMS(2, 3, 5, 6), DIMS(2, 5, 6, 8)},
      {RABBET_FORMAT_DHWC8, DIMS(2, 9, 4, 5, 6), DIMS(2, 4, 5, 6, 16)},
      {RABBET_FORMAT_CHW4, DIMS(-1, -1, 5, -1), DIMS(-1, -1, 5, -1, 4)},
      {RABBET_FORMAT_HWC8, DIMS(-1, 0, 5, -1), DIMS(-1, 5, -1, 0)},
  };
  for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
    rabbet_dims_t found;
    RABBET_EXPECT_OK(
        rabbet_format_physical_dims(rows[i].format, &rows[i].dims, &found));
    assert_int_equal(found.rank, rows[i].physical.rank);
    for (int k = 0; k < found.rank; ++k)
      assert_int_equal(found.d[k], rows[i].physical.d[k]);
  }
}

static void test_physical_errors(void** state) {
  (void)state;
  rabbet_dims_t out, matrix = DIMS(2, 3), four = DIMS(1, 2, 3, 4);
  rabbet_dims_t eight = DIMS(1, 1, 1, 1, 1, 1, 1, 1), unknown = {.rank = -1};
  rabbet_dims_t wide = DIMS(1, INT64_MAX, 1);
  RABBET_EXPECT_ERROR(
      rabbet_format_physical_dims(RABBET_FORMAT_HWC, &matrix, &out),
      RABBET_STATUS_INVALID_ARGUMENT, "HWC needs rank 3");
  RABBET_EXPECT_ERROR(
      rabbet_format_physical_dims(RABBET_FORMAT_DHWC, &four, &out),
      RABBET_STATUS_INVALID_ARGUMENT, "(1, 2, 3, 4)");
  RABBET_EXPECT_ERROR(
      rabbet_format_physical_dims(RABBET_FORMAT_CHW2, &eight, &out),
      RABBET_STATUS_UNSUPPORTED, "rank 9");
  RABBET_EXPECT_ERROR(
      rabbet_format_physical_dims(RABBET_FORMAT_LINEAR, &unknown, &out),
      RABBET_STATUS_INVALID_ARGUMENT, "rank -1");
  RABBET_EXPECT_ERROR(
      rabbet_format_physical_dims((rabbet_format_t)40, &four, &out),
      RABBET_STATUS_INVALID_ARGUMENT, "40");
  RABBET_EXPECT_ERROR(
      rabbet_format_physical_dims(RABBET_FORMAT_HWC8, &wide, &out),
      RABBET_STATUS_OUT_OF_RANGE, "multiple of 8");
}

// Strides must lead to every element exactly once, within the bytes that the
// tensor has.
static void check_strides(rabbet_format_t format, rabbet_dims_t dims) {
  rabbet_view_t view = {
      .dtype = RABBET_DTYPE_UINT8, .format = format, .dims = dims};
  int64_t strides[RABBET_MAX_RANK];
  size_t bytes = 0;
  RABBET_EXPECT_OK(rabbet_view_strides(&view, strides));
  RABBET_EXPECT_OK(
      rabbet_tensor_bytes(RABBET_DTYPE_UINT8, format, &dims, &bytes));
  char* seen = calloc(bytes + 1, 1);
  int64_t index[RABBET_MAX_RANK] = {0};
  for (;;) {
    int64_t at = 0;
    for (int i = 0; i < dims.rank; ++i)
      at += index[i] * strides[i];
    assert_in_range(at, 0, bytes - 1);
    assert_int_equal(seen[at]++, 0);
    int axis = dims.rank - 1;
    while (axis >= 0 && ++index[axis] == dims.d[axis])
      index[axis--] = 0;
    if (axis < 0) break;
  }
  free(seen);
}

static void test_strides(void** state) {
  (void)state;
  check_strides(RABBET_FORMAT_LINEAR, (rabbet_dims_t){0});
  check_strides(RABBET_FORMAT_LINEAR, DIMS(2, 3, 4));
  check_strides(RABBET_FORMAT_HWC, DIMS(2, 3, 4, 5));
  check_strides(RABBET_FORMAT_HWC8, DIMS(2, 9, 4, 5));
  check_strides(RABBET_FORMAT_DHWC8, DIMS(2, 3, 4, 5, 2));
  check_strides(RABBET_FORMAT_CHW16, DIMS(2, 9, 4, 5));
  check_strides(RABBET_FORMAT_CHW4, DIMS(2, 4, 7));
  int64_t strides[RABBET_MAX_RANK];
  rabbet_view_t view = {.format = RABBET_FORMAT_HWC8, .dims = DIMS(2, 9, 4, 5)};
  RABBET_EXPECT_OK(rabbet_view_strides(&view, strides));
  int64_t expected[] = {320, 1, 80, 16};
  for (int i = 0; i < 4; ++i)
    assert_int_equal(strides[i], expected[i]);
  view = (rabbet_view_t){.dims = DIMS(2, 0, 3)};
  RABBET_EXPECT_OK(rabbet_view_strides(&view, strides));
  assert_int_equal(strides[0], 3);
}

static void test_stride_errors(void** state) {
  (void)state;
  int64_t strides[RABBET_MAX_RANK];
  rabbet_view_t view = {.format = RABBET_FORMAT_CHW4, .dims = DIMS(1, 5, 2)};
  RABBET_EXPECT_ERROR(rabbet_view_strides(&view, strides),
                      RABBET_STATUS_UNSUPPORTED, "several blocks");
  rabbet_format_t formats[] = {RABBET_FORMAT_LINEAR, RABBET_FORMAT_HWC};
  for (int i = 0; i < 2; ++i) {
    view.format = formats[i];
    view.dims = DIMS(1, -1, 2);
    RABBET_EXPECT_ERROR(rabbet_view_strides(&view, strides),
                        RABBET_STATUS_OUT_OF_RANGE, "no strides");
    view.dims = DIMS(1, INT64_MAX / 2, 3);
    RABBET_EXPECT_ERROR(rabbet_view_strides(&view, strides),
                        RABBET_STATUS_OUT_OF_RANGE, "too large");
  }
}

static void test_bytes(void** state) {
  (void)state;
  const struct {
    rabbet_dtype_t dtype;
    rabbet_format_t format;
    rabbet_dims_t dims;
    size_t bytes;
  } rows[] = {
      {RABBET_DTYPE_FLOAT, RABBET_FORMAT_LINEAR, DIMS(2, 3), 24},
      {RABBET_DTYPE_INT64, RABBET_FORMAT_LINEAR, {0}, 8},
      {RABBET_DTYPE_INT4, RABBET_FORMAT_LINEAR, DIMS(3, 3), 5},
      {RABBET_DTYPE_HALF, RABBET_FORMAT_CHW16, DIMS(1, 17, 2, 2), 256},
      {RABBET_DTYPE_FLOAT, RABBET_FORMAT_CHW8, DIMS(1, 0, 2, 2), 0},
      {RABBET_DTYPE_FP4, RABBET_FORMAT_HWC8, DIMS(1, 3, 1, 1), 4},
  };
  size_t bytes;
  for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
    RABBET_EXPECT_OK(rabbet_tensor_bytes(rows[i].dtype, rows[i].format,
                                         &rows[i].dims, &bytes));
    assert_int_equal(bytes, rows[i].bytes);
  }
  rabbet_dims_t huge = DIMS((int64_t)1 << 58), open = DIMS(-1);
  RABBET_EXPECT_ERROR(rabbet_tensor_bytes(RABBET_DTYPE_INT64,
                                          RABBET_FORMAT_LINEAR, &huge, &bytes),
                      RABBET_STATUS_OUT_OF_RANGE, "is too large");
  RABBET_EXPECT_ERROR(rabbet_tensor_bytes(RABBET_DTYPE_INT64,
                                          RABBET_FORMAT_LINEAR, &open, &bytes),
                      RABBET_STATUS_OUT_OF_RANGE, "not known");
  RABBET_EXPECT_ERROR(rabbet_tensor_bytes(RABBET_DTYPE_NONE,
                                          RABBET_FORMAT_LINEAR, &huge, &bytes),
                      RABBET_STATUS_INVALID_ARGUMENT, "not a data type");
}

// Where element number `index` lies, and how many there are with padding.
static int64_t place_of(rabbet_format_t format, const rabbet_dims_t* dims,
                        int64_t index, int64_t* out_count) {
  const rabbet_format_info_t* info = rabbet_format_info(format);
  int64_t positions = 1, channels = dims->d[1];
  for (int i = 2; i < dims->rank; ++i)
    positions *= dims->d[i];
  int64_t padded = (channels + info->block - 1) / info->block * info->block;
  int64_t n = index / (positions * channels);
  int64_t c = index / positions % channels, at = index % positions;
  *out_count = dims->d[0] * padded * positions;
  if (info->channels_last) return (n * positions + at) * padded + c;
  return (n * padded + c / info->block * info->block) * positions +
         at * info->block + c % info->block;
}

static bool all_lie_alike(const rabbet_dims_t* dims, rabbet_format_t a,
                          rabbet_format_t b) {
  int64_t count = 1, all_a = 0, all_b = 0;
  for (int i = 0; i < dims->rank; ++i)
    count *= dims->d[i];
  for (int64_t i = 0; i < count; ++i)
    if (place_of(a, dims, i, &all_a) != place_of(b, dims, i, &all_b))
      return false;
  return all_a == all_b;
}

// Formats lie alike exactly where the function says so (where no dim of the
// shape makes a format do so by chance, 2 blocks of images are enough).
static void test_lies_alike(void** state) {
  (void)state;
  const rabbet_dims_t shapes[] = {
      DIMS(2, 32, 3, 2),    DIMS(2, 16, 3, 2), DIMS(2, 3, 3, 2),
      DIMS(2, 64, 1, 1),    DIMS(2, 1, 3, 2),  DIMS(2, 8, 1, 1),
      DIMS(2, 64, 2, 3, 2), DIMS(1, 24, 5),    DIMS(2, 20, 1, 1)};
  for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); ++s) {
    for (int a = 0; a <= RABBET_FORMAT_CHW8; ++a) {
      for (int b = 0; b <= RABBET_FORMAT_CHW8; ++b) {
        const rabbet_format_info_t* from =
            rabbet_format_info((rabbet_format_t)a);
        const rabbet_format_info_t* to = rabbet_format_info((rabbet_format_t)b);
        if (!from || !to || shapes[s].rank < from->min_rank ||
            shapes[s].rank < to->min_rank)
          continue;
        bool said = rabbet_format_lies_alike(&shapes[s], (rabbet_format_t)a,
                                             (rabbet_format_t)b);
        bool full = shapes[s].d[1] % from->block == 0 &&
                    shapes[s].d[1] % to->block == 0;
        bool same =
            all_lie_alike(&shapes[s], (rabbet_format_t)a, (rabbet_format_t)b);
        if (said) assert_true(same);
        // (One block of channels lies as channels last do: not asked for.)
        if (same && full && from->channels_last == to->channels_last)
          assert_true(said);
      }
    }
  }
  const rabbet_dims_t open = DIMS(2, -1, 3, 2), points = DIMS(-1, 32, 1, 1),
                      space = DIMS(-1, 32, -1, -1);
  assert_false(
      rabbet_format_lies_alike(&open, RABBET_FORMAT_HWC, RABBET_FORMAT_HWC8));
  assert_true(rabbet_format_lies_alike(&points, RABBET_FORMAT_LINEAR,
                                       RABBET_FORMAT_CHW32));
  assert_true(
      rabbet_format_lies_alike(&space, RABBET_FORMAT_HWC, RABBET_FORMAT_HWC8));
  assert_false(rabbet_format_lies_alike(&space, RABBET_FORMAT_HWC,
                                        RABBET_FORMAT_LINEAR));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_parse),           cmocka_unit_test(test_physical),
      cmocka_unit_test(test_physical_errors), cmocka_unit_test(test_strides),
      cmocka_unit_test(test_stride_errors),   cmocka_unit_test(test_bytes),
      cmocka_unit_test(test_lies_alike),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
