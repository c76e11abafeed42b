// Matrix products, with what is fused into them; determinants.
#include <string.h>

#include "conformance/conformance.h"
#include "ops/enums.h"

int32_t conformance_epilogue(conformance_t* t, int32_t value) {
  kernel_case_t* c = &t->c;
  if (conformance_chance(t, 3)) {
    int32_t residual = kernel_case_input(c, c->values[value].dims, false);
    rabbet_attr_t attrs[] = {conformance_int(t, "op", 0)};
    int32_t pair[] = {value, residual};
    value = kernel_case_op(c, "elementwise", attrs, 1, pair, 2);
  }
  if (conformance_chance(t, 2)) {
    rabbet_attr_t attrs[] = {conformance_int(t, "type", 0)};
    value = kernel_case_op(c, "activation", attrs, 1, &value, 1);
  }
  return value;
}

void conformance_begin_product(conformance_t* t) {
  conformance_set_type(t, conformance_type(t, CONFORMANCE_REALS));
  if (conformance_chance(t, 2)) conformance_set_type(t, RABBET_DTYPE_FLOAT);
  t->c.low = -1;
  t->c.high = 1;
  t->c.tolerance = 2e-5;  // Winograd's sums cancel
}

void conformance_round_layers(conformance_t* t) {
  t->c.rounds_layers = strcmp(t->c.device->kind, "cuda") == 0;
}

// Operands of [batch..., m, k] x [batch..., k, n], either transposed, either
// constant, batches broadcast.
static int32_t product(conformance_t* t) {
  kernel_case_t* c = &t->c;
  static const int64_t sizes[] = {1, 2, 7, 16, 33, 64};
  int64_t m = conformance_one_of(t, sizes, 6),
          n = conformance_one_of(t, sizes, 6);
  int64_t k = conformance_one_of(t, sizes, 6);
  int32_t batch = (int32_t)conformance_random(t, 3);
  int64_t op[] = {conformance_random(t, 2), conformance_random(t, 2)};
  rabbet_dims_t a = {.rank = batch + 2}, b = {.rank = batch + 2};
  for (int32_t i = 0; i < batch; ++i) {
    a.d[i] = b.d[i] = 1 + conformance_random(t, 4);
    if (conformance_chance(t, 4)) a.d[i] = 1;
    if (conformance_chance(t, 3)) b.d[i] = 1;
  }
  a.d[batch] = op[0] ? k : m;
  a.d[batch + 1] = op[0] ? m : k;
  b.d[batch] = op[1] ? n : k;
  b.d[batch + 1] = op[1] ? k : n;
  rabbet_attr_t attrs[] = {conformance_int(t, "op0", op[0]),
                           conformance_int(t, "op1", op[1])};
  int32_t inputs[] = {kernel_case_input(c, a, false),
                      kernel_case_input(c, b, conformance_chance(t, 2))};
  return kernel_case_op(c, "matrix_multiply", attrs, 2, inputs, 2);
}

static void matrix_multiply(conformance_t* t) {
  conformance_begin_product(t);
  conformance_round_layers(t);
  int32_t value = product(t);
  if (conformance_chance(t, 3)) {
    rabbet_dims_t dims = t->c.values[value].dims;
    for (int32_t i = 0; i + 1 < dims.rank; ++i)
      dims.d[i] = 1;
    rabbet_attr_t attrs[] = {conformance_int(t, "op", 0)};
    int32_t pair[] = {value, kernel_case_input(&t->c, dims, true)};
    value = kernel_case_op(&t->c, "elementwise", attrs, 1, pair, 2);
  }
  kernel_case_output(&t->c, conformance_epilogue(t, value));
}

// Up to three layers with operands of every kind.
static int32_t chain(conformance_t* t, int32_t y) {
  kernel_case_t* c = &t->c;
  static const int64_t functions[] = {0, 1, 4, 12}, tame[] = {0, 1, 2, 4};
  for (int64_t i = conformance_random(t, 4); i > 0; --i) {
    if (conformance_chance(t, 2)) {
      rabbet_attr_t type[] = {
          conformance_int(t, "type", functions[conformance_random(t, 4)])};
      y = kernel_case_op(c, "activation", type, 1, &y, 1);
      continue;
    }
    rabbet_dims_t dims = c->values[y].dims;
    int64_t spread = conformance_random(t, 3);
    for (int32_t axis = 0; axis < 3; ++axis)
      if (spread == 0 || (spread == 1 && axis < 2)) dims.d[axis] = 1;
    rabbet_attr_t kind[] = {
        conformance_int(t, "op", tame[conformance_random(t, 4)])};
    int32_t pair[] = {y, kernel_case_input(c, dims, conformance_chance(t, 2))};
    if (conformance_chance(t, 2)) {
      int32_t swap = pair[0];
      pair[0] = pair[1];
      pair[1] = swap;
    }
    y = kernel_case_op(c, "elementwise", kind, 1, pair, 2);
  }
  return y;
}

// Few rows, or few columns, and a chain behind them.
static void thin_products(conformance_t* t) {
  kernel_case_t* c = &t->c;
  static const int64_t sizes[] = {1, 5, 8, 64, 72, 200};
  conformance_begin_product(t);
  int64_t m = 1 + conformance_random(t, 8), n = conformance_one_of(t, sizes, 6);
  int64_t k = conformance_one_of(t, sizes, 6),
          batch = 1 + conformance_random(t, 3);
  bool turned = conformance_chance(t, 4);  // the few are columns
  int64_t op[] = {conformance_random(t, 2), conformance_random(t, 2)};
  int64_t rows = turned ? n : m, columns = turned ? m : n;
  rabbet_dims_t a = {3, {batch, op[0] ? k : rows, op[0] ? rows : k}};
  rabbet_dims_t b = {3, {batch, op[1] ? columns : k, op[1] ? k : columns}};
  // All rows of the batches are then rows of one product.
  if ((turned || batch * m <= 8) && conformance_chance(t, 2)) b.d[0] = 1;
  rabbet_attr_t attrs[] = {conformance_int(t, "op0", op[0]),
                           conformance_int(t, "op1", op[1])};
  int32_t inputs[] = {kernel_case_input(c, a, false),
                      kernel_case_input(c, b, conformance_chance(t, 2))};
  int32_t y = kernel_case_op(c, "matrix_multiply", attrs, 2, inputs, 2);
  kernel_case_output(c, chain(t, y));
}

// Weights along k, of one shape for all products of a case.
static int32_t joint_product(conformance_t* t, int32_t x, rabbet_dims_t w) {
  rabbet_attr_t attrs[] = {conformance_int(t, "op0", 0),
                           conformance_int(t, "op1", 1)};
  int32_t inputs[] = {x, kernel_case_input(&t->c, w, true)};
  return kernel_case_op(&t->c, "matrix_multiply", attrs, 2, inputs, 2);
}

static int32_t rms_normalization(conformance_t* t, int32_t x) {
  kernel_case_t* c = &t->c;
  rabbet_dims_t numbers = {3, {1, 1, c->values[x].dims.d[2]}};
  rabbet_dtype_t own = conformance_chance(t, 2) ? RABBET_DTYPE_FLOAT : c->dtype;
  rabbet_attr_t attrs[] = {conformance_int(t, "axes", 4),
                           KERNEL_FLOAT("epsilon", 1e-5),
                           conformance_bool(t, "is_rms", true)};
  int32_t inputs[] = {x, kernel_case_typed_input(c, own, numbers, true)};
  return kernel_case_op(c, "normalization", attrs, 3, inputs, 2);
}

// One or two products of few rows, which may be normalized before, and a chain
// behind them.
static void joint_products(conformance_t* t) {
  kernel_case_t* c = &t->c;
  static const int64_t sizes[] = {3, 8, 24, 72}, inner[] = {5, 64, 200, 1032};
  conformance_begin_product(t);
  int64_t kind = 1 + conformance_in_turn(t, 3);
  int64_t m = 1 + conformance_random(t, 8), k = conformance_one_of(t, inner, 4);
  rabbet_dims_t w = {3, {1, conformance_one_of(t, sizes, 4), k}};
  int32_t x = kernel_case_input(c, KERNEL_DIMS(1, m, k), false);
  if (kind & 1) x = rms_normalization(t, x);
  int32_t y = joint_product(t, x, w);
  if (kind & 2) {
    int32_t pair[] = {chain(t, y), joint_product(t, x, w)};
    rabbet_attr_t op[] = {conformance_int(t, "op", conformance_random(t, 2))};
    y = kernel_case_op(c, "elementwise", op, 1, pair, 2);
  }
  kernel_case_output(c, chain(t, y));
}

// Rows for tiles of tensor cores and a chain behind them; a few products have
// tiles for each multiprocessor of a large GPU.
static void tiled_products(conformance_t* t) {
  kernel_case_t* c = &t->c;
  static const int64_t rows[] = {9, 16, 33, 48, 70}, columns[] = {64, 72, 200},
                       inner[] = {64, 72, 136, 320};
  conformance_begin_product(t);
  conformance_set_type(
      t, conformance_chance(t, 2) ? RABBET_DTYPE_HALF : RABBET_DTYPE_BF16);
  c->low = -1;
  c->high = 1;
  int64_t m = conformance_one_of(t, rows, 5),
          n = conformance_one_of(t, columns, 3);
  int64_t k = conformance_one_of(t, inner, 4), op = conformance_random(t, 2);
  int64_t batch = conformance_chance(t, 3) ? 2 : 1;
  if (conformance_chance(t, 16)) m = 1100, n = 1032, k = 72, batch = 1;
  bool shared = batch == 1 || conformance_chance(t, 2);
  rabbet_attr_t attrs[] = {conformance_int(t, "op1", op)};
  int32_t inputs[] = {
      kernel_case_input(c, KERNEL_DIMS(batch, m, k), false),
      kernel_case_input(c,
                        KERNEL_DIMS(shared ? 1 : batch, op ? n : k, op ? k : n),
                        conformance_chance(t, 2))};
  int32_t y = kernel_case_op(c, "matrix_multiply", attrs, 1, inputs, 2);
  kernel_case_output(c, chain(t, y));
}

// Weights may be laid out in another way for it.
static void matrix_multiply_tf32(conformance_t* t) {
  kernel_case_t* c = &t->c;
  static const int64_t sizes[] = {4, 8, 20, 33, 64};
  int64_t k = conformance_one_of(t, sizes, 5),
          n = conformance_one_of(t, sizes, 5);
  int64_t op = conformance_random(t, 2);
  conformance_begin_product(t);
  conformance_set_type(t, RABBET_DTYPE_FLOAT);
  c->tf32 = true;
  c->tolerance = 3e-3;
  rabbet_attr_t attrs[] = {conformance_int(t, "op0", 0),
                           conformance_int(t, "op1", op)};
  int32_t inputs[] = {
      kernel_case_input(c, KERNEL_DIMS(1 + conformance_random(t, 2), 17, k),
                        false),
      kernel_case_input(c, KERNEL_DIMS(1, op ? n : k, op ? k : n), true)};
  int32_t value = kernel_case_op(c, "matrix_multiply", attrs, 2, inputs, 2);
  if (conformance_chance(t, 2)) {
    rabbet_attr_t gelu[] = {
        conformance_int(t, "type", RABBET_ACTIVATION_GELU_ERF)};
    value = kernel_case_op(c, "activation", gelu, 1, &value, 1);
  }
  kernel_case_output(c, conformance_epilogue(t, value));
}

static void matrix_multiply_integers(conformance_t* t) {
  conformance_set_type(t, conformance_type(t, 1u << RABBET_DTYPE_INT32 |
                                                  1u << RABBET_DTYPE_INT64));
  kernel_case_output(&t->c, product(t));
}

// Sums of no products are 0, and what follows is computed of that.
static void products_of_nothing(conformance_t* t) {
  kernel_case_t* c = &t->c;
  conformance_begin_product(t);
  int64_t batch = 1 + conformance_random(t, 3),
          m = 1 + conformance_random(t, 40);
  int64_t n = 1 + conformance_random(t, 40);
  rabbet_attr_t attrs[] = {conformance_int(t, "op0", 0),
                           conformance_int(t, "op1", 0)};
  int32_t inputs[] = {kernel_case_input(c, KERNEL_DIMS(batch, m, 0), false),
                      kernel_case_input(c, KERNEL_DIMS(1, 0, n), false)};
  kernel_case_output(c,
                     kernel_case_op(c, "matrix_multiply", attrs, 2, inputs, 2));
}

// Near a permutation: small numbers, and a 1 or -1 in each row.
static void near_permutation(conformance_t* t, int64_t order, float* data) {
  float step = 1;
  while (step * 14 * (float)order > 1)
    step /= 2;
  for (int64_t i = 0; i < order * order; ++i)
    data[i] = step * (float)(conformance_random(t, 15) - 7);
  for (int64_t i = 0; i < order; ++i)
    data[i * order + i] = conformance_chance(t, 2) ? 1 : -1;
}

// The reflection I - 2 v v' / (v' v), with v of 1 and -1. Its leading half is
// near singular, so that it matters which rows are pivots.
static void reflection(conformance_t* t, int64_t order, float* data) {
  uint64_t signs[4] = {0};
  char rounded[8];
  for (int64_t i = 0; i < order; ++i)
    signs[i / 64] |= (uint64_t)conformance_random(t, 2) << i % 64;
  for (int64_t i = 0; i < order * order; ++i) {
    int64_t row = i / order, column = i % order;
    bool turns =
        (signs[row / 64] >> row % 64 ^ signs[column / 64] >> column % 64) & 1;
    double value = (row == column) - (turns ? -2.0 : 2.0) / (double)order;
    rabbet_store_double(t->c.dtype, rounded, 0, value);
    data[i] = (float)rabbet_load_double(t->c.dtype, rounded, 0);
  }
}

// Its determinant is near 1 or -1, but for some with a column of zeros, or with
// NaN.
static void determinant_matrix(conformance_t* t, int64_t order, float* data) {
  if (conformance_chance(t, 2))
    reflection(t, order, data);
  else
    near_permutation(t, order, data);
  for (int64_t i = order - 1; i > 0; --i) {
    int64_t other = conformance_random(t, i + 1);
    for (int64_t k = 0; k < order; ++k) {
      float moved = data[i * order + k];
      data[i * order + k] = data[other * order + k];
      data[other * order + k] = moved;
    }
  }
  if (order == 0 || !conformance_chance(t, 6)) return;
  if (conformance_chance(t, 2))
    data[conformance_random(t, order * order)] = __builtin_nanf("");
  if (conformance_chance(t, 2)) return;
  int64_t empty = conformance_random(t, order);
  for (int64_t i = 0; i < order; ++i)
    data[i * order + empty] = 0;
}

static void determinant(conformance_t* t) {
  static const int64_t orders[] = {1, 2, 3, 4, 5, 7, 8, 9, 17, 32, 33};
  static const int64_t large[] = {96, 97, 130, 200};
  kernel_case_t* c = &t->c;
  conformance_begin_product(t);
  c->tolerance = 2e-4;
  int64_t order = conformance_one_of(t, orders, 11);
  rabbet_dims_t dims = {.rank = 2 + (int32_t)conformance_random(t, 3)};
  if (conformance_chance(t, 20)) order = 0;
  if (conformance_chance(t, 12)) {
    order = conformance_one_of(t, large, 4);
    if (conformance_chance(t, 2)) dims.rank = 2;
  }
  int64_t count = 1;
  for (int32_t i = 0; i < dims.rank - 2; ++i) {
    dims.d[i] = 1 + conformance_random(t, t->large && order < 9 ? 40 : 4);
    if (conformance_chance(t, 30)) dims.d[i] = 0;
    count *= dims.d[i];
  }
  dims.d[dims.rank - 2] = dims.d[dims.rank - 1] = order;
  int32_t x = kernel_case_input(c, dims, false);
  for (int64_t m = 0; m < count; ++m)
    determinant_matrix(t, order, (float*)c->reference[x] + m * order * order);
  kernel_case_output(c, kernel_case_op(c, "determinant", NULL, 0, &x, 1));
}

const conformance_family_t conformance_products[] = {
    {"determinant", 150, determinant},
    {"matrix_multiply", 120, matrix_multiply},
    {"thin_products", 80, thin_products},
    {"joint_products", 60, joint_products},
    {"tiled_products", 12, tiled_products},
    {"matrix_multiply_tf32", 20, matrix_multiply_tf32},
    {"matrix_multiply_integers", 10, matrix_multiply_integers},
    {"products_of_nothing", 20, products_of_nothing},
    {0},
};
