// Reductions, normalization and softmax.
#include "conformance/conformance.h"
#include "ops/enums.h"

// Bits of some axes, at least one.
static int64_t some_axes(conformance_t* t, int32_t rank) {
  if (conformance_chance(t, 3))
    return INT64_C(1) << conformance_random(t, rank);
  return 1 + conformance_random(t, (INT64_C(1) << rank) - 1);
}

static void allow_narrow_types(conformance_t* t) {
  if (conformance_chance(t, 4)) t->c.extra_dtypes = CONFORMANCE_REALS;
}

static void reduce_one(conformance_t* t, uint32_t types) {
  kernel_case_t* c = &t->c;
  conformance_set_type(t, conformance_type(t, types));
  allow_narrow_types(t);
  int64_t op = conformance_random(t, 5);
  if (CONFORMANCE_REALS >> c->dtype & 1) {
    c->low = -1.5;
    c->high = 2;
    c->tolerance = 4e-6;
    if (op == 1) {  // products that stay in range
      c->low = 0.9;
      c->high = 1.1;
      c->tolerance = 1e-4;
      c->extra_dtypes = 0;
    }
  }
  rabbet_dims_t dims = conformance_dims(t, 1, 5);
  int32_t x = kernel_case_input(c, dims, false);
  rabbet_attr_t attrs[] = {
      conformance_int(t, "op", op),
      conformance_int(t, "axes", some_axes(t, dims.rank)),
      conformance_bool(t, "keep_dims", conformance_chance(t, 2))};
  kernel_case_output(c, kernel_case_op(c, "reduce", attrs, 3, &x, 1));
}

static void reduce(conformance_t* t) {
  reduce_one(t, CONFORMANCE_REALS);
}
static void reduce_integers(conformance_t* t) {
  reduce_one(t, CONFORMANCE_INTEGERS);
}

// A layer or two that compute from x alone, with numbers at most.
static int32_t reduce_layers(conformance_t* t, int32_t x, bool squares) {
  kernel_case_t* c = &t->c;
  rabbet_attr_t product[] = {conformance_int(t, "op", RABBET_ELEMENTWISE_PROD)};
  rabbet_attr_t sum[] = {conformance_int(t, "op", RABBET_ELEMENTWISE_SUM)};
  rabbet_attr_t absolute[] = {conformance_int(t, "op", RABBET_UNARY_ABS)};
  rabbet_attr_t root[] = {conformance_int(t, "op", RABBET_UNARY_SQRT)};
  rabbet_attr_t sigmoid[] = {
      conformance_int(t, "type", RABBET_ACTIVATION_SIGMOID)};
  int32_t inputs[] = {x, x};
  if (squares && conformance_chance(t, 2))
    return kernel_case_op(c, "elementwise", product, 1, inputs, 2);
  switch (conformance_random(t, 3)) {
    case 0:
      return kernel_case_op(c, "activation", sigmoid, 1, &x, 1);
    case 1: {
      rabbet_dims_t one = c->values[x].dims;
      for (int32_t i = 0; i < one.rank; ++i)
        one.d[i] = 1;
      int32_t number = kernel_case_input(c, one, true);
      bool reversed = conformance_chance(t, 2) && !squares;
      inputs[reversed] = x;
      inputs[!reversed] = number;
      return kernel_case_op(c, "elementwise", sum, 1, inputs, 2);
    }
    default:
      x = kernel_case_op(c, "unary", absolute, 1, &x, 1);
      return kernel_case_op(c, "unary", root, 1, &x, 1);
  }
}

// Norms and means of functions.
static void reduce_chain(conformance_t* t) {
  kernel_case_t* c = &t->c;
  conformance_set_type(t, conformance_type(t, CONFORMANCE_REALS));
  allow_narrow_types(t);
  c->low = -1.5;
  c->high = 2;
  c->tolerance = 2e-5;
  rabbet_dims_t dims = conformance_dims(t, 1, 5);
  static const int64_t ops[] = {RABBET_REDUCE_SUM, RABBET_REDUCE_MAX,
                                RABBET_REDUCE_MIN, RABBET_REDUCE_AVG};
  int32_t x = kernel_case_input(c, dims, false);
  bool before = !conformance_chance(t, 3);
  if (before) x = reduce_layers(t, x, true);
  rabbet_attr_t attrs[] = {
      conformance_int(t, "op", ops[conformance_random(t, 4)]),
      conformance_int(t, "axes", some_axes(t, dims.rank)),
      conformance_bool(t, "keep_dims", conformance_chance(t, 2))};
  x = kernel_case_op(c, "reduce", attrs, 3, &x, 1);
  if (!before || conformance_chance(t, 2)) x = reduce_layers(t, x, false);
  kernel_case_output(c, x);
}

// NaN and infinities.
static void reduce_special(conformance_t* t) {
  kernel_case_t* c = &t->c;
  rabbet_dims_t dims = KERNEL_DIMS(3, 5, 1 + conformance_random(t, 150));
  int32_t x = kernel_case_input(c, dims, false);
  float* data = c->reference[x];
  for (int i = 0; i < 4; ++i) {
    data[conformance_random(t, 15 * dims.d[2])] =
        i % 2 ? __builtin_inff() : -__builtin_inff();
  }
  data[conformance_random(t, 15 * dims.d[2])] = __builtin_nanf("");
  static const int64_t ops[] = {0, 2, 3, 4};
  rabbet_attr_t attrs[] = {
      conformance_int(t, "op", ops[conformance_random(t, 4)]),
      conformance_int(t, "axes", some_axes(t, 3))};
  kernel_case_output(c, kernel_case_op(c, "reduce", attrs, 2, &x, 1));
}

// Scale or bias: the input's extents on some axes, 1 on others.
static int32_t affine(conformance_t* t, rabbet_dims_t dims, bool by_channel) {
  rabbet_dims_t own = dims;
  for (int32_t i = 0; i < dims.rank; ++i) {
    bool kept = by_channel ? i == 1 : conformance_chance(t, 2);
    if (!kept) own.d[i] = 1;
  }
  return kernel_case_input(&t->c, own, conformance_chance(t, 2));
}

static int32_t normalized(conformance_t* t, rabbet_dims_t dims,
                          const rabbet_attr_t* attrs, size_t count,
                          bool by_channel) {
  kernel_case_t* c = &t->c;
  c->tolerance = 2e-5;
  int32_t inputs[] = {kernel_case_input(c, dims, false), -1, -1};
  if (!conformance_chance(t, 4)) inputs[1] = affine(t, dims, by_channel);
  if (!conformance_chance(t, 4)) inputs[2] = affine(t, dims, by_channel);
  return kernel_case_op(c, "normalization", attrs, count, inputs, 3);
}

static void normalization_finish(conformance_t* t, rabbet_dims_t dims,
                                 const rabbet_attr_t* attrs, size_t count,
                                 bool by_channel) {
  kernel_case_output(&t->c, normalized(t, dims, attrs, count, by_channel));
}

static void normalization(conformance_t* t) {
  conformance_set_type(t, conformance_type(t, CONFORMANCE_REALS));
  allow_narrow_types(t);
  rabbet_dims_t dims = conformance_dims(t, 1, 5);
  rabbet_attr_t attrs[] = {
      conformance_int(t, "axes", some_axes(t, dims.rank)),
      conformance_int(t, "is_rms", conformance_chance(t, 3))};
  normalization_finish(t, dims, attrs, 2, false);
}

static void normalization_last(conformance_t* t) {
  conformance_set_type(t, conformance_type(t, CONFORMANCE_REALS));
  rabbet_dims_t dims = KERNEL_DIMS(1 + conformance_random(t, 3),
                                   1 + conformance_random(t, 9), 0);
  if (conformance_chance(t, 2)) dims.rank = 2;
  dims.d[dims.rank - 1] = 1 + conformance_random(t, t->large ? 9000 : 900);
  // More rows than threads are resident at once have fewer threads each.
  if (!t->large && conformance_chance(t, 2)) dims.d[0] *= 100;
  rabbet_attr_t attrs[] = {
      conformance_int(t, "axes", INT64_C(1) << (dims.rank - 1)),
      conformance_int(t, "is_rms", conformance_chance(t, 2))};
  normalization_finish(t, dims, attrs, 2, false);
}

static void normalization_groups(conformance_t* t) {
  conformance_set_type(t, conformance_type(t, CONFORMANCE_REALS));
  allow_narrow_types(t);
  static const int64_t counts[] = {1, 2, 4, 8};
  int64_t groups = counts[conformance_random(t, 4)];
  int64_t each = 1 + conformance_random(t, 3) * 4;
  if (conformance_chance(t, 3)) each = 16;
  rabbet_dims_t dims =
      KERNEL_DIMS(1 + conformance_random(t, 3), groups * each,
                  1 + conformance_random(t, 8), 1 + conformance_random(t, 9));
  if (t->large) dims.d[3] *= 16;
  rabbet_attr_t attrs[] = {conformance_int(t, "axes", 12),
                           conformance_int(t, "num_groups", groups)};
  normalization_finish(t, dims, attrs, 2, true);
}

// An activation, or x sigmoid(x), behind each way to normalize.
static void normalization_activated(conformance_t* t) {
  static const int64_t types[] = {
      RABBET_ACTIVATION_RELU, RABBET_ACTIVATION_LEAKY_RELU,
      RABBET_ACTIVATION_GELU_ERF, RABBET_ACTIVATION_SIGMOID};
  kernel_case_t* c = &t->c;
  conformance_set_type(t, conformance_type(t, CONFORMANCE_REALS));
  allow_narrow_types(t);
  bool last = conformance_chance(t, 2);
  int64_t groups = 1 + conformance_random(t, 2) * 3;
  rabbet_dims_t dims = KERNEL_DIMS(
      1 + conformance_random(t, 3), groups * (1 + conformance_random(t, 20)),
      1 + conformance_random(t, 8), 8 * (1 + conformance_random(t, 9)));
  rabbet_attr_t attrs[] = {conformance_int(t, "axes", last ? 8 : 12),
                           conformance_int(t, "num_groups", last ? 1 : groups)};
  int32_t y = normalized(t, dims, attrs, 2, !last);
  bool swish = conformance_chance(t, 2);
  int64_t type =
      swish ? RABBET_ACTIVATION_SIGMOID : conformance_one_of(t, types, 4);
  rabbet_attr_t activation[] = {conformance_int(t, "type", type)};
  rabbet_attr_t product[] = {conformance_int(t, "op", RABBET_ELEMENTWISE_PROD)};
  int32_t pair[] = {y, kernel_case_op(c, "activation", activation, 1, &y, 1)};
  y = swish ? kernel_case_op(c, "elementwise", product, 1, pair, 2) : pair[1];
  c->tolerance = 5e-5;
  kernel_case_output(c, y);
}

// A mean far from 0, and a number far from all others where a sum may begin.
static void normalization_far(conformance_t* t) {
  kernel_case_t* c = &t->c;
  conformance_set_type(t, RABBET_DTYPE_FLOAT);
  c->low = 1000;
  c->high = 1002;
  c->tolerance = 2e-4;
  int64_t count = 3000 + conformance_random(t, 4) * 12000;
  int64_t others = 1 + conformance_random(t, 5);
  bool columns = conformance_chance(t, 2);
  rabbet_dims_t dims =
      columns ? KERNEL_DIMS(count, others) : KERNEL_DIMS(others, count);
  int32_t x = kernel_case_input(c, dims, false);
  float* data = c->reference[x];
  static const float far[] = {1000, -60000, 16384};
  float number = far[conformance_random(t, 3)];
  for (int64_t i = 0; i < others; ++i)
    data[columns ? i : i * count] = number;
  rabbet_attr_t attrs[] = {conformance_int(t, "axes", columns ? 1 : 2)};
  kernel_case_output(c, kernel_case_op(c, "normalization", attrs, 1, &x, 1));
}

static void softmax(conformance_t* t) {
  kernel_case_t* c = &t->c;
  conformance_set_type(t, conformance_type(t, CONFORMANCE_REALS));
  allow_narrow_types(t);
  if (!c->extra_dtypes) {  // the grid of larger inputs is too fine for BF16
    c->low = -8;
    c->high = 8;
  }
  rabbet_dims_t dims = conformance_dims(t, 1, 5);
  int64_t axis = conformance_random(t, dims.rank);
  bool rows = conformance_chance(t, 30);
  if (rows) {  // of lengths that are whole vectors, and that are not
    int64_t most = conformance_chance(t, 20) ? 20000 : 2000;
    dims = KERNEL_DIMS(1 + conformance_random(t, 20),
                       20 + conformance_random(t, most));
    axis = 1;
  }
  // oneDNN sums long rows in few lanes.
  c->tolerance = t->large || rows ? 2e-5 : 2e-6;
  int32_t x = kernel_case_input(c, dims, false);
  rabbet_attr_t attrs[] = {conformance_int(t, "axes", INT64_C(1) << axis)};
  kernel_case_output(c, kernel_case_op(c, "softmax", attrs, 1, &x, 1));
}

// The logarithm, which the builder groups with it, of rows.
static void softmax_log(conformance_t* t) {
  kernel_case_t* c = &t->c;
  conformance_set_type(t, conformance_type(t, CONFORMANCE_REALS));
  c->low = -8;
  c->high = 8;
  c->tolerance = 2e-6;
  rabbet_dims_t dims = conformance_dims(t, 1, 4);
  int32_t x = kernel_case_input(c, dims, false);
  rabbet_attr_t attrs[] = {
      conformance_int(t, "axes", INT64_C(1) << (dims.rank - 1))};
  int32_t y = kernel_case_op(c, "softmax", attrs, 1, &x, 1);
  rabbet_attr_t log[] = {conformance_int(t, "op", RABBET_UNARY_LOG)};
  kernel_case_output(c, kernel_case_op(c, "unary", log, 1, &y, 1));
}

// Rows that are masked out: -infinity in part or altogether, NaN.
static void softmax_special(conformance_t* t) {
  kernel_case_t* c = &t->c;
  int64_t width = 1 + conformance_random(t, 200);
  rabbet_dims_t dims = KERNEL_DIMS(4, width);
  int32_t x = kernel_case_input(c, dims, false);
  float* data = c->reference[x];
  for (int64_t i = 0; i < width; ++i) {
    if (conformance_chance(t, 2)) data[i] = -__builtin_inff();
    data[width + i] = -__builtin_inff();
    data[2 * width + i] *= 300;
  }
  data[conformance_random(t, width)] = 1;
  data[3 * width + conformance_random(t, width)] = __builtin_nanf("");
  rabbet_attr_t attrs[] = {
      conformance_int(t, "axes", conformance_chance(t, 2) ? 2 : 1)};
  kernel_case_output(c, kernel_case_op(c, "softmax", attrs, 1, &x, 1));
}

// A table of cosines or sines: broadcast on some axes.
static int32_t rotation_table(conformance_t* t, rabbet_dims_t dims,
                              int64_t entries) {
  int32_t last = dims.rank - 1;
  for (int32_t i = 0; i < last; ++i)
    if (conformance_chance(t, 2)) dims.d[i] = 1;
  dims.d[last] = entries;
  return kernel_case_input(&t->c, dims, conformance_chance(t, 3));
}

static void rotation(conformance_t* t) {
  static const int64_t sizes[] = {2, 6, 16, 32, 64, 80};
  kernel_case_t* c = &t->c;
  conformance_set_type(t, conformance_type(t, CONFORMANCE_REALS));
  allow_narrow_types(t);
  c->tolerance = 2e-6;
  if (conformance_chance(t, 3))
    c->misaligned = (uint32_t)conformance_random(t, INT64_C(1) << 32);
  int64_t size = conformance_one_of(t, sizes, 6);
  rabbet_dims_t dims = conformance_dims(t, 1, 4);
  for (int32_t i = 0; i < dims.rank - 1; ++i)
    if (dims.d[i] > 12) dims.d[i] = 12;
  dims.d[dims.rank - 1] = size;
  if (conformance_chance(t, 3))
    dims.d[dims.rank - 1] += 1 + conformance_random(t, 64);
  int64_t entries = conformance_chance(t, 2) ? size : size / 2;
  int32_t inputs[] = {kernel_case_input(c, dims, false),
                      rotation_table(t, dims, entries),
                      rotation_table(t, dims, entries)};
  rabbet_attr_t attrs[] = {
      conformance_int(t, "size", size),
      conformance_int(t, "interleaved", conformance_chance(t, 2))};
  kernel_case_output(c, kernel_case_op(c, "rotation", attrs, 2, inputs, 3));
}

const conformance_family_t conformance_rows[] = {
    {"reduce", 300, reduce},
    {"reduce_integers", 150, reduce_integers},
    {"reduce_chain", 120, reduce_chain},
    {"reduce_special", 40, reduce_special},
    {"normalization", 200, normalization},
    {"normalization_last", 60, normalization_last},
    {"normalization_groups", 80, normalization_groups},
    {"normalization_activated", 60, normalization_activated},
    {"normalization_far", 24, normalization_far},
    {"rotation", 120, rotation},
    {"softmax", 150, softmax},
    {"softmax_log", 40, softmax_log},
    {"softmax_special", 40, softmax_special},
    {0},
};
