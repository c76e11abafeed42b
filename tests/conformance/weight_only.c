// Products of floating-point numbers with weights of 4 or 8 bits that the group
// dequantizes.
#include "conformance/conformance.h"

enum { N = 0, K = 1, AXES = 2 };

static void range(conformance_t* t, double low, double high) {
  t->c.low = low;
  t->c.high = high;
}

// How the weights lie, and their scales.
typedef struct weights_t {
  rabbet_dtype_t dtype;
  bool is_turned;         // [n, k]
  int32_t batch;          // axes before, of 1
  int64_t extents[AXES];  // n and k
  int64_t blocks[AXES];   // elements with one scale
  bool is_vector;         // scales of rank 0 or 1
  rabbet_dtype_t scale;
  bool has_zeros;
} weights_t;

// Cases share a few programs, which a device takes longer to compile than to
// run.
enum { WEIGHTS = 6, TYPES = 3, PROGRAMS = 2 * WEIGHTS * TYPES };
typedef struct program_t {
  rabbet_dtype_t weights, dtype, scale;
  int64_t rows, kind, length;  // of blocks
  bool has_zeros, is_regular;  // blocks and stages of kernels are whole
} program_t;

static program_t find_program(conformance_t* t, int64_t number) {
  static const rabbet_dtype_t weights[WEIGHTS] = {
      RABBET_DTYPE_INT4, RABBET_DTYPE_INT8, RABBET_DTYPE_UINT8,
      RABBET_DTYPE_FP8,  RABBET_DTYPE_FP4,  RABBET_DTYPE_NF4};
  static const rabbet_dtype_t types[TYPES] = {
      RABBET_DTYPE_FLOAT, RABBET_DTYPE_HALF, RABBET_DTYPE_BF16};
  static const int64_t lengths[] = {16, 32, 32, 64, 128};
  static const int64_t rows[] = {2, 4, 12, 13, 21};
  uint64_t random = t->random;
  // All combinations of types and of one row or more. Neighbours differ in
  // each, so that a share has all of them.
  int64_t type = (number + number / 6) % TYPES;
  bool is_row = (number + number / 18) % 2 != 0;
  t->random = (uint64_t)number;
  program_t program = {
      .weights = weights[number % WEIGHTS],
      .dtype = types[type],
      .scale =
          conformance_chance(t, 3) ? RABBET_DTYPE_HALF : RABBET_DTYPE_FLOAT,
      .rows = is_row ? 1 : conformance_one_of(t, rows, 5),
      .kind = conformance_random(t, 6),
      .length = conformance_one_of(t, lengths, 5),
      .has_zeros = number % WEIGHTS < 3 && conformance_chance(t, 2),
      .is_regular = conformance_chance(t, 2)};
  t->random = random;
  return program;
}

// One for all, one for each column, blocks of a column, boxes.
static void find_blocks(conformance_t* t, const program_t* program,
                        weights_t* w) {
  int64_t kind = program->kind;
  w->blocks[N] = kind == 0 ? w->extents[N] : kind == 5 ? 4 : 1;
  w->blocks[K] = kind < 2 ? w->extents[K] : program->length;
  if (w->blocks[K] > w->extents[K]) w->blocks[K] = w->extents[K];
  w->is_vector = kind < 2 && conformance_chance(t, 2);
}

static rabbet_dims_t in_order(const weights_t* w, int64_t n, int64_t k) {
  rabbet_dims_t dims = {.rank = w->batch + AXES};
  for (int32_t i = 0; i < w->batch; ++i)
    dims.d[i] = 1;
  dims.d[w->batch] = w->is_turned ? n : k;
  dims.d[w->batch + 1] = w->is_turned ? k : n;
  return dims;
}

// The shape of scales.
static rabbet_dims_t of_blocks(const weights_t* w) {
  int64_t counts[AXES];
  for (int i = 0; i < AXES; ++i)
    counts[i] = (w->extents[i] + w->blocks[i] - 1) / w->blocks[i];
  if (w->is_vector && counts[N] * counts[K] == 1)
    return (rabbet_dims_t){.rank = 0};
  if (w->is_vector) return KERNEL_DIMS(counts[N]);
  return in_order(w, counts[N], counts[K]);
}

static int32_t zero_point(conformance_t* t, const weights_t* w) {
  if (!w->has_zeros) return -1;
  range(t, w->dtype == RABBET_DTYPE_UINT8 ? 100 : -5, 7);
  if (w->dtype == RABBET_DTYPE_UINT8) range(t, 100, 150);
  return kernel_case_typed_input(&t->c, w->dtype, of_blocks(w), true);
}

static int32_t weights(conformance_t* t, const weights_t* w) {
  kernel_case_t* c = &t->c;
  double most = w->dtype == RABBET_DTYPE_INT4  ? 8
                : w->dtype == RABBET_DTYPE_NF4 ? 1
                                               : 4;
  bool is_byte =
      w->dtype == RABBET_DTYPE_INT8 || w->dtype == RABBET_DTYPE_UINT8;
  range(t, is_byte ? 0 : -most, is_byte ? 250 : most);
  if (w->dtype == RABBET_DTYPE_INT8) range(t, -128, 127);
  int32_t inputs[] = {
      kernel_case_typed_input(c, w->dtype,
                              in_order(w, w->extents[N], w->extents[K]), true),
      -1, -1};
  range(t, 0.125, 0.5);
  inputs[1] = kernel_case_typed_input(c, w->scale, of_blocks(w), true);
  inputs[2] = zero_point(t, w);
  rabbet_dims_t blocks = in_order(w, w->blocks[N], w->blocks[K]);
  size_t count = w->is_vector ? 0 : (size_t)blocks.rank;
  rabbet_attr_t attrs[] = {
      conformance_int(t, "to_type", RABBET_DTYPE_FLOAT),
      conformance_int(t, "axis", w->batch + (w->is_turned ? 0 : 1)),
      conformance_ints(t, "block_shape", blocks.d, count)};
  return kernel_case_op(c, "dequantize", attrs, 3, inputs,
                        inputs[2] >= 0 ? 3 : 2);
}

// Numbers for the last axis of x, which it is normalized along.
static int32_t normalized(conformance_t* t, int32_t x) {
  kernel_case_t* c = &t->c;
  rabbet_dims_t dims = c->values[x].dims;
  for (int32_t i = 0; i + 1 < dims.rank; ++i)
    dims.d[i] = 1;
  rabbet_attr_t attrs[] = {
      conformance_int(t, "axes", INT64_C(1) << (dims.rank - 1)),
      KERNEL_FLOAT("epsilon", 1e-5), conformance_bool(t, "is_rms", true)};
  range(t, 0.5, 1.5);
  int32_t inputs[] = {
      x, kernel_case_typed_input(
             c, conformance_chance(t, 2) ? RABBET_DTYPE_FLOAT : c->dtype, dims,
             true)};
  return kernel_case_op(c, "normalization", attrs, 3, inputs, 2);
}

static void weight_only(conformance_t* t, bool is_normalized) {
  static const int64_t odd[] = {1, 16, 33, 64, 96, 100, 128, 259};
  static const int64_t even[] = {256, 512, 768};
  static const int64_t columns[] = {1, 3, 8, 33, 64, 70};
  kernel_case_t* c = &t->c;
  program_t program = find_program(t, conformance_in_turn(t, PROGRAMS));
  weights_t w = {.dtype = program.weights,
                 .is_turned = !conformance_chance(t, 3),
                 .batch = (int32_t)conformance_random(t, 3),
                 .scale = program.scale,
                 .has_zeros = program.has_zeros};
  conformance_set_type(t, program.dtype);
  c->tolerance = 4e-6;
  w.extents[N] = t->large ? 520 : conformance_one_of(t, columns, 6);
  w.extents[K] = program.is_regular ? conformance_one_of(t, even, 3)
                 : t->large         ? 1100
                                    : conformance_one_of(t, odd, 8);
  // Kernels normalize few rows, of more than one element.
  if (is_normalized && w.extents[K] == 1) w.extents[K] = 16;
  if (is_normalized && program.rows > 8) program.rows = program.rows % 8 + 1;
  find_blocks(t, &program, &w);
  rabbet_dims_t dims = {.rank = w.batch + 2};
  int64_t rows = program.rows;
  for (int32_t i = 0; i < w.batch; ++i) {
    dims.d[i] = rows % 2 == 0 && conformance_chance(t, 2) ? 2 : 1;
    rows /= dims.d[i];
  }
  dims.d[w.batch] = rows;
  dims.d[w.batch + 1] = w.extents[K];
  int32_t real = weights(t, &w);
  // Seldom powers of two: the largest is no special number.
  range(t, -1.7, 1.9);
  int32_t inputs[] = {kernel_case_input(c, dims, false), real};
  if (is_normalized) inputs[0] = normalized(t, inputs[0]);
  rabbet_attr_t attrs[] = {conformance_int(t, "op0", 0),
                           conformance_int(t, "op1", w.is_turned)};
  kernel_case_output(c,
                     kernel_case_op(c, "matrix_multiply", attrs, 2, inputs, 2));
}

static void weight_only_product(conformance_t* t) {
  weight_only(t, false);
}

// Normalized rows are rounded to their type before they are multiplied.
static void weight_only_normalized(conformance_t* t) {
  weight_only(t, true);
  if (t->c.dtype == RABBET_DTYPE_HALF) t->c.tolerance = 2e-3;
  if (t->c.dtype == RABBET_DTYPE_BF16) t->c.tolerance = 1.6e-2;
}

const conformance_family_t conformance_weight_only[] = {
    {"weight_only_product", 108, weight_only_product},
    {"weight_only_normalized", 108, weight_only_normalized},
    {0},
};
