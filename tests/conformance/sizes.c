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
  rabbet_dims_t dims = conformance_dims(t, 1, 5);
  rabbet_attr_t attrs[] = {conformance_int(
      t, "indices_type",
      conformance_chance(t, 2) ? RABBET_DTYPE_INT32 : RABBET_DTYPE_INT64)};
  int32_t x = kernel_case_input(c, dims, false);
  make_zeros(t, x);
  int32_t y = kernel_case_op(c, "non_zero", attrs, 1, &x, 1);
  kernel_case_told(c, y, 1, count_of(&dims));
  kernel_case_output(c, y);
  kernel_case_output(c, y + 1);
}

const conformance_family_t conformance_sizes[] = {
    {"non_zero", 200, non_zero},
    {0},
};
