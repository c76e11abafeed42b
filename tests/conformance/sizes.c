// Layers that find out by themselves how much they make.
#include "conformance/conformance.h"

static int64_t count_of(const rabbet_dims_t* dims) {
  int64_t count = 0;
  RABBET_EXPECT_OK(rabbet_dims_count(dims, &count));
  return count;
}

// ---- Elements that are not zero --------------------------------------------

// Zeros mostly, of both signs, or hardly any.
static void make_zeros(conformance_t* t, int32_t x) {
  kernel_case_t* c = &t->c;
  int64_t count = count_of(&c->values[x].dims);
  int64_t of = 1 + conformance_random(t, 6);
  bool mostly = conformance_chance(t, 2);
  for (int64_t i = 0; i < count; ++i) {
    bool zero = (conformance_random(t, of) == 0) != mostly;
    if (!zero) continue;
    bool negative = conformance_chance(t, 3);
    rabbet_store_double(c->kept[x], c->reference[x], i, negative ? -0.0 : 0.0);
  }
}

static void non_zero(conformance_t* t) {
  kernel_case_t* c = &t->c;
  conformance_set_type(
      t, conformance_type(t, CONFORMANCE_ALL | 1u << RABBET_DTYPE_BOOL));
  c->exact = true;
  rabbet_dims_t dims = conformance_dims(t, 0, 5);
  rabbet_attr_t attrs[] = {conformance_int(
      t, "indices_type",
      conformance_chance(t, 2) ? RABBET_DTYPE_INT32 : RABBET_DTYPE_INT64)};
  int32_t x = kernel_case_input(c, dims, false);
  make_zeros(t, x);
  int32_t y = kernel_case_op(c, "non_zero", attrs, 1, &x, 1);
  kernel_case_data_dependent(c, y, 1, count_of(&dims));
  kernel_case_output(c, y);
  kernel_case_output(c, y + 1);
}

// ---- Non-maximum suppression -----------------------------------------------

// Boxes of a few sizes at a few places, so that many overlap and some are
// equal; scores of which many are.
static int32_t nms_boxes(conformance_t* t, rabbet_dims_t dims) {
  int32_t boxes = kernel_case_input(&t->c, dims, false);
  for (int64_t i = 0; i < count_of(&dims); ++i)
    rabbet_store_double(t->c.kept[boxes], t->c.reference[boxes], i,
                        (double)conformance_random(t, i % 4 < 2 ? 12 : 6));
  return boxes;
}

static int32_t nms_number(conformance_t* t, double low, double high) {
  kernel_case_t* c = &t->c;
  c->low = low;
  c->high = high;
  rabbet_dims_t dims = {.rank = (int32_t)conformance_random(t, 2), .d = {1}};
  return kernel_case_input(c, dims, conformance_chance(t, 2));
}

static void nms(conformance_t* t) {
  kernel_case_t* c = &t->c;
  conformance_set_type(t, conformance_type(t, CONFORMANCE_REALS));
  c->exact = true;
  int64_t batch = 1 + conformance_random(t, 3);
  int64_t boxes = t->large ? 2000 : 1 + conformance_random(t, 90);
  int64_t classes = 1 + conformance_random(t, t->large ? 3 : 6);
  bool by_class = conformance_chance(t, 2), own = conformance_chance(t, 3);
  rabbet_dims_t shape = own ? KERNEL_DIMS(batch, boxes, classes, 4)
                            : KERNEL_DIMS(batch, boxes, 4);
  int64_t limit =
      conformance_chance(t, 2) ? 0 : 1 + conformance_random(t, boxes * classes);
  rabbet_attr_t attrs[] = {
      conformance_int(t, "bounding_box_format", conformance_random(t, 2)),
      conformance_int(t, "topk_box_limit", limit),
      conformance_int(
          t, "indices_type",
          conformance_chance(t, 2) ? RABBET_DTYPE_INT32 : RABBET_DTYPE_INT64),
      conformance_bool(t, "classes_first", by_class)};
  int64_t most = conformance_random(t, boxes + 3);
  int32_t inputs[] = {nms_boxes(t, shape), -1, -1, -1, -1};
  inputs[1] = kernel_case_input(c,
                                by_class ? KERNEL_DIMS(batch, classes, boxes)
                                         : KERNEL_DIMS(batch, boxes, classes),
                                false);
  inputs[2] = kernel_case_numbers(
      c, conformance_chance(t, 2) ? RABBET_DTYPE_INT32 : RABBET_DTYPE_INT64,
      (rabbet_dims_t){.rank = 0}, &most, conformance_chance(t, 2));
  if (!conformance_chance(t, 4)) inputs[3] = nms_number(t, 0, 0.9);
  if (!conformance_chance(t, 4)) inputs[4] = nms_number(t, -2, 1.5);
  size_t count = inputs[4] >= 0 ? 5 : inputs[3] >= 0 ? 4 : 3;
  int32_t rows = kernel_case_op(c, "nms", attrs, 4, inputs, count);
  int64_t each = most < boxes ? most : boxes;
  kernel_case_data_dependent(c, rows, 0, batch * classes * each);
  kernel_case_output(c, rows);
  kernel_case_output(c, rows + 1);
}

const conformance_family_t conformance_sizes[] = {
    {"nms", 200, nms},
    {"non_zero", 200, non_zero},
    {0},
};
