// Element-wise operators, alone and in chains.
#include <math.h>

#include "conformance/conformance.h"
#include "ops/enums.h"
#include "ops/op.h"

// The same shape with some axes of one element.
static rabbet_dims_t broadcast(conformance_t* t, rabbet_dims_t dims) {
  for (int32_t i = 0; i < dims.rank; ++i) {
    if (conformance_chance(t, 3)) dims.d[i] = 1;
  }
  return dims;
}

static int32_t apply(conformance_t* t, const char* op, const char* attr,
                     int64_t number, const int32_t* inputs, size_t count) {
  rabbet_attr_t attrs[] = {conformance_int(t, attr, number)};
  return kernel_case_op(&t->c, op, attrs, 1, inputs, count);
}

static void allow_narrow_types(conformance_t* t) {
  if (conformance_chance(t, 5)) t->c.extra_dtypes = CONFORMANCE_REALS;
}

// Where each function is defined, and how far its rounding goes.
typedef struct function_t {
  int64_t number;
  double low, high, tolerance;
} function_t;

// Exact ones first: they are not joined with others.
static const function_t unary_functions[] = {
    {4, -3, 3, 0},         {5, -3, 3, 0},         {17, -3, 3, 0},
    {18, -3, 3, 0},        {21, -2, 2, 0},        {22, -3, 3, 0},
    {23, -2, 2, 0},        {24, -2, 2, 0},        {0, -3, 3, 4e-6},
    {1, 0.25, 4, 4e-6},    {2, 0, 4, 4e-6},       {3, 0.25, 4, 4e-6},
    {6, -3, 3, 4e-6},      {7, -3, 3, 4e-6},      {8, -1, 1, 4e-6},
    {9, -3, 3, 4e-6},      {10, -3, 3, 4e-6},     {11, -0.9, 0.9, 4e-6},
    {12, -0.9, 0.9, 4e-6}, {13, -3, 3, 4e-6},     {14, -3, 3, 4e-6},
    {15, 1.25, 4, 4e-6},   {16, -0.9, 0.9, 4e-6}, {19, -3, 3, 4e-6},
};

// The first of those that the case has, out of so many.
static int64_t joined_in_turn(conformance_t* t, int64_t count) {
  return conformance_in_turn(t, (count + t->joined - 1) / t->joined) *
         t->joined;
}

static void unary(conformance_t* t) {
  kernel_case_t* c = &t->c;
  const function_t* f = unary_functions;
  f += joined_in_turn(t, sizeof(unary_functions) / sizeof(unary_functions[0]));
  conformance_set_type(t, conformance_type_in_turn(t, CONFORMANCE_REALS));
  rabbet_dims_t dims = conformance_dims(t, 1, 5);
  for (int i = 0; i < t->joined; ++i, ++f) {
    c->low = f->low;
    c->high = f->high;
    c->tolerance = f->tolerance;
    int32_t x = kernel_case_input(c, dims, false);
    kernel_case_output(c, apply(t, "unary", "op", f->number, &x, 1));
  }
}

static void unary_integers(conformance_t* t) {
  static const int64_t numbers[] = {4, 5, 21};  // ABS, NEG, SIGN
  conformance_set_type(t, conformance_type(t, 1u << RABBET_DTYPE_INT32 |
                                                  1u << RABBET_DTYPE_INT64));
  int32_t x = kernel_case_input(&t->c, conformance_dims(t, 1, 4), false);
  kernel_case_output(
      &t->c, apply(t, "unary", "op", numbers[conformance_random(t, 3)], &x, 1));
}

static void activation(conformance_t* t) {
  kernel_case_t* c = &t->c;
  conformance_set_type(t, conformance_type(t, CONFORMANCE_REALS));
  allow_narrow_types(t);
  c->tolerance = 4e-6;
  static const double alphas[] = {0.3, 1, 0.05}, betas[] = {0.9, 1.5, 0.2};
  const rabbet_op_t* op = rabbet_op_find("activation");
  int64_t count = 0;
  while (op->attrs[0].enumerators[count].name)
    ++count;
  int64_t first = joined_in_turn(t, count);
  rabbet_dims_t dims = conformance_dims(t, 1, 5);
  for (int64_t i = first; i < first + t->joined; ++i) {
    int64_t type = op->attrs[0].enumerators[i % count].value;
    double alpha = alphas[conformance_random(t, 3)];
    double beta = betas[conformance_random(t, 3)];
    rabbet_attr_t attrs[] = {conformance_int(t, "type", type),
                             KERNEL_FLOAT("alpha", alpha),
                             KERNEL_FLOAT("beta", beta)};
    int32_t x = kernel_case_input(c, dims, false);
    kernel_case_output(c, kernel_case_op(c, "activation", attrs, 3, &x, 1));
  }
}

// Two operands that broadcast to the dims.
static void two_operands(conformance_t* t, rabbet_dims_t dims,
                         int32_t inputs[2]) {
  rabbet_dims_t other = broadcast(t, dims);
  int first = (int)conformance_random(t, 2);
  inputs[first] = kernel_case_input(&t->c, dims, false);
  inputs[1 - first] = kernel_case_input(&t->c, other, conformance_chance(t, 3));
}

static void elementwise(conformance_t* t) {
  kernel_case_t* c = &t->c;
  // Comparisons, which are not done in narrow types, are not joined with
  // others.
  static const int64_t numbers[] = {0, 1, 2, 3, 4, 5, 6, 0, 11, 12, 13, 11};
  int64_t first = joined_in_turn(t, 12);
  conformance_set_type(t, conformance_type_in_turn(t, CONFORMANCE_REALS));
  if (numbers[first] < 7) allow_narrow_types(t);
  c->tolerance = 4e-6;
  rabbet_dims_t dims = conformance_dims(t, 1, 5);
  for (int i = 0; i < t->joined; ++i) {
    int64_t number = numbers[first + i];
    int32_t inputs[2];
    c->low = number == 5 || number == 6 ? 0.25 : -2;  // DIV, POW
    two_operands(t, dims, inputs);
    kernel_case_output(c, apply(t, "elementwise", "op", number, inputs, 2));
  }
}

static void elementwise_integers(conformance_t* t) {
  kernel_case_t* c = &t->c;
  static const int64_t numbers[] = {0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 13};
  conformance_set_type(t, conformance_type(t, 1u << RABBET_DTYPE_INT32 |
                                                  1u << RABBET_DTYPE_INT64));
  int64_t first = joined_in_turn(t, 13);
  rabbet_dims_t dims = conformance_dims(t, 1, 5);
  for (int64_t i = first; i < first + t->joined; ++i) {
    int32_t inputs[2];
    two_operands(t, dims, inputs);
    kernel_case_output(
        c, apply(t, "elementwise", "op", numbers[i % 13], inputs, 2));
  }
}

static void elementwise_bools(conformance_t* t) {
  conformance_set_type(t, RABBET_DTYPE_BOOL);
  t->c.low = 0;
  t->c.high = 1;
  int32_t inputs[2];
  two_operands(t, conformance_dims(t, 1, 5), inputs);
  kernel_case_output(&t->c, apply(t, "elementwise", "op",
                                  8 + conformance_random(t, 3), inputs, 2));
}

static void select_one(conformance_t* t, uint32_t types) {
  kernel_case_t* c = &t->c;
  c->exact = true;
  conformance_set_type(t, conformance_type(t, types));
  rabbet_dims_t dims = conformance_dims(t, 1, 5);
  double low = c->low, high = c->high;
  c->low = 0;
  c->high = 1;
  int32_t condition =
      kernel_case_typed_input(c, RABBET_DTYPE_BOOL, broadcast(t, dims), false);
  c->low = low;
  c->high = high;
  int32_t inputs[] = {
      condition, kernel_case_input(c, dims, false),
      kernel_case_input(c, broadcast(t, dims), conformance_chance(t, 3))};
  kernel_case_output(c, kernel_case_op(c, "select", NULL, 0, inputs, 3));
}

static void select_reals(conformance_t* t) {
  select_one(t, CONFORMANCE_REALS);
}

// Trees of bounded functions, so that rounding does not grow.
static void chain_of(conformance_t* t, bool integers) {
  kernel_case_t* c = &t->c;
  static const int64_t kinds[] = {0, 1, 2, 3, 9, 12}, tame[] = {0, 2, 3, 4};
  c->tolerance = 2e-5;
  rabbet_dims_t dims = conformance_dims(t, 1, 5);
  int32_t pool[24];
  int64_t inputs = 1 + conformance_random(t, 3), count = 0;
  for (; count < inputs; ++count) {
    pool[count] = kernel_case_input(c, count == 0 ? dims : broadcast(t, dims),
                                    conformance_chance(t, 5));
  }
  int64_t nodes = 2 + conformance_random(t, 8);
  for (int64_t i = 0; i < nodes; ++i) {
    // The first operand has the full shape, and so does the result.
    int64_t first = i == 0 ? 0 : inputs + conformance_random(t, i);
    int32_t pair[] = {pool[first], pool[conformance_random(t, count)]};
    bool binary = integers || conformance_chance(t, 2);
    if (binary && conformance_chance(t, 2)) {
      int32_t swap = pair[0];
      pair[0] = pair[1];
      pair[1] = swap;
    }
    pool[count] = !binary ? apply(t, "activation", "type",
                                  kinds[conformance_random(t, 6)], pair, 1)
                          : apply(t, "elementwise", "op",
                                  tame[conformance_random(t, 4)], pair, 2);
    ++count;
  }
  kernel_case_output(c, pool[count - 1]);
  if (nodes > 3 && conformance_chance(t, 3))
    kernel_case_output(c, pool[inputs + 1]);
}

static void chain(conformance_t* t) {
  chain_of(t, false);
}

static void chain_integers(conformance_t* t) {
  conformance_set_type(t, conformance_type(t, 1u << RABBET_DTYPE_INT32 |
                                                  1u << RABBET_DTYPE_INT64));
  chain_of(t, true);
}

// Chains longer than a device may like, with one number for each channel, one
// for all, or the first input as second operands. Factors keep values small.
static int32_t long_operand(conformance_t* t, rabbet_dims_t dims, int32_t x) {
  if (conformance_chance(t, 6)) return x;
  bool columns = !conformance_chance(t, 3);
  for (int32_t i = 0; i < dims.rank; ++i)
    if (!columns || i != (dims.rank > 1)) dims.d[i] = 1;
  return kernel_case_input(&t->c, dims, !conformance_chance(t, 12));
}

static void long_chain(conformance_t* t) {
  kernel_case_t* c = &t->c;
  static const int64_t functions[] = {0, 2, 9};  // RELU, TANH, HARD_SIGMOID
  // SUM, PROD, MAX, MIN, SUB
  static const int64_t tame[] = {0, 1, 1, 2, 3, 4};
  conformance_set_type(t, conformance_type(t, CONFORMANCE_REALS));
  allow_narrow_types(t);
  c->tolerance = 2e-5;
  c->low = -0.9;
  c->high = 0.9;
  rabbet_dims_t dims = conformance_dims(t, 1, 4);
  int32_t x = kernel_case_input(c, dims, false), y = x;
  int64_t nodes = 40 + conformance_random(t, 50);
  for (int64_t i = 0; i < nodes; ++i) {
    if (conformance_chance(t, 8)) {
      y = apply(t, "activation", "type", functions[conformance_random(t, 3)],
                &y, 1);
      continue;
    }
    int32_t pair[] = {y, long_operand(t, dims, x)};
    y = apply(t, "elementwise", "op", tame[conformance_random(t, 6)], pair, 2);
  }
  kernel_case_output(c, y);
}

// ---- Quantization ----------------------------------------------------------

#define QUANTIZED \
  (1u << RABBET_DTYPE_INT8 | 1u << RABBET_DTYPE_UINT8 | 1u << RABBET_DTYPE_FP8)

// Scales of one number, along one axis or more.
static int32_t quantize_scale(conformance_t* t, rabbet_dims_t dims) {
  kernel_case_t* c = &t->c;
  double low = c->low, high = c->high;
  int32_t keep = (int32_t)conformance_random(t, dims.rank + 1);
  if (!conformance_chance(t, 4))
    for (int32_t i = 0; i < dims.rank; ++i)
      dims.d[i] = i == keep ? dims.d[i] : 1;
  c->low = 0.03;
  c->high = 0.5;
  int32_t scale =
      kernel_case_typed_input(c, conformance_type(t, CONFORMANCE_REALS), dims,
                              conformance_chance(t, 2));
  c->low = low;
  c->high = high;
  return scale;
}

static int32_t quantize_zero_point(conformance_t* t, rabbet_dtype_t dtype,
                                   int32_t scale) {
  if (dtype == RABBET_DTYPE_FP8 || conformance_chance(t, 2)) return -1;
  return kernel_case_typed_input(&t->c, dtype, t->c.values[scale].dims,
                                 conformance_chance(t, 2));
}

static int32_t quantize_node(conformance_t* t, const char* op, int32_t x,
                             int32_t scale, int32_t zero, rabbet_dtype_t to) {
  rabbet_attr_t attrs[] = {conformance_int(t, "to_type", to)};
  int32_t inputs[] = {x, scale, zero};
  return kernel_case_op(&t->c, op, attrs, 1, inputs, zero >= 0 ? 3 : 2);
}

static void quantize(conformance_t* t) {
  kernel_case_t* c = &t->c;
  rabbet_dtype_t to = conformance_type(t, QUANTIZED);
  conformance_set_type(t, conformance_type(t, CONFORMANCE_REALS));
  c->exact = true;
  rabbet_dims_t dims = conformance_dims(t, 1, 5);
  c->low = -30;
  c->high = 30;
  int32_t x = kernel_case_input(c, dims, false);
  int32_t scale = quantize_scale(t, dims);
  int32_t zero = quantize_zero_point(t, to, scale);
  kernel_case_output(c, quantize_node(t, "quantize", x, scale, zero, to));
}

static void dequantize(conformance_t* t) {
  kernel_case_t* c = &t->c;
  rabbet_dtype_t from = conformance_type(t, QUANTIZED);
  conformance_set_type(t, conformance_type(t, CONFORMANCE_REALS));
  c->exact = true;
  rabbet_dims_t dims = conformance_dims(t, 1, 5);
  c->low = from == RABBET_DTYPE_UINT8 ? 0 : -128;
  c->high = from == RABBET_DTYPE_UINT8 ? 255 : 127;
  int32_t x = kernel_case_typed_input(c, from, dims, false);
  int32_t scale = quantize_scale(t, dims);
  int32_t zero = quantize_zero_point(t, from, scale);
  kernel_case_output(c,
                     quantize_node(t, "dequantize", x, scale, zero, c->dtype));
}

// Quantized numbers between element-wise layers, and there and back.
static void quantize_chain(conformance_t* t) {
  kernel_case_t* c = &t->c;
  rabbet_dtype_t type = conformance_type(t, QUANTIZED);
  c->exact = true;
  rabbet_dims_t dims = conformance_dims(t, 1, 5);
  c->low = type == RABBET_DTYPE_UINT8 ? 0 : -100;
  c->high = 100;
  int32_t x = kernel_case_typed_input(c, type, dims, false);
  int32_t scale = quantize_scale(t, dims);
  int32_t zero = quantize_zero_point(t, type, scale);
  int32_t y =
      quantize_node(t, "dequantize", x, scale, zero, RABBET_DTYPE_FLOAT);
  // RELU may make a zero of a negative one, which FP8 shows.
  y = type == RABBET_DTYPE_FP8 ? apply(t, "unary", "op", 5, &y, 1)
                               : apply(t, "activation", "type", 0, &y, 1);
  y = quantize_node(t, "quantize", y, scale, zero, type);
  if (conformance_chance(t, 2)) {
    if (conformance_chance(t, 2)) kernel_case_output(c, y);
    y = quantize_node(t, "dequantize", y, scale, -1, RABBET_DTYPE_FLOAT);
  }
  kernel_case_output(c, y);
}

// A part of a tensor that is larger along some axes.
static int32_t part(conformance_t* t, const rabbet_dims_t* dims,
                    int32_t given) {
  kernel_case_t* c = &t->c;
  int64_t start[RABBET_MAX_RANK] = {0};
  rabbet_dims_t whole = *dims;
  // Rows have no gaps.
  int32_t rank = dims->rank;
  while (rank > 0 && dims->d[rank - 1] == 1)
    --rank;
  for (int32_t i = 0; given < 0 && i < rank; ++i) {
    static const int64_t more[] = {0, 0, 0, 1, 8, 24};
    int64_t room = conformance_one_of(t, more, 6);
    if (conformance_chance(t, 4)) room = dims->d[i];  // a half
    whole.d[i] += room;
  }
  if (given < 0) given = kernel_case_input(c, whole, false);
  whole = c->values[given].dims;
  for (int32_t i = 0; i < dims->rank; ++i) {
    int64_t room = whole.d[i] - dims->d[i];
    start[i] = conformance_chance(t, 2)   ? room
               : conformance_chance(t, 2) ? 0
                                          : conformance_random(t, room + 1);
  }
  size_t count = (size_t)dims->rank;
  rabbet_attr_t attrs[] = {conformance_ints(t, "start", start, count),
                           conformance_ints(t, "shape", dims->d, count)};
  return kernel_case_op(c, "slice", attrs, 2, &given, 1);
}

// Chains that read parts of tensors, and rows of any length beside numbers for
// each column.
static void parts(conformance_t* t) {
  kernel_case_t* c = &t->c;
  static const int64_t lengths[] = {8, 40, 64, 66, 70, 71, 145};
  conformance_set_type(t, conformance_type(t, CONFORMANCE_REALS));
  allow_narrow_types(t);
  c->tolerance = 8e-6;
  rabbet_dims_t dims = conformance_dims(t, 1, 5);
  int32_t last = dims.rank - 1;
  if (conformance_chance(t, 2)) {
    dims.d[last] = conformance_one_of(t, lengths, 7);
    if (dims.rank > 2) dims.d[0] = 1;
    if (dims.rank > 1 && t->large) dims.d[last - 1] = 500;
  }
  int32_t value = part(t, &dims, -1);
  if (conformance_chance(t, 2)) {
    // Another part of the same tensor.
    int32_t pair[] = {value, part(t, &dims, c->inputs[0])};
    value = apply(t, "elementwise", "op", 1, pair, 2);
  }
  if (conformance_chance(t, 2)) {
    int32_t pair[] = {value, conformance_chance(t, 2)
                                 ? part(t, &dims, -1)
                                 : kernel_case_input(c, dims, false)};
    value = apply(t, "elementwise", "op", 0, pair, 2);
  }
  if (conformance_chance(t, 2)) {
    int32_t pair[] = {value, kernel_case_input(c, broadcast(t, dims), true)};
    value = apply(t, "elementwise", "op", 0, pair, 2);
  }
  rabbet_attr_t relu[] = {conformance_int(t, "type", RABBET_ACTIVATION_RELU)};
  kernel_case_output(c, kernel_case_op(c, "activation", relu, 1, &value, 1));
}

const conformance_family_t conformance_pointwise[] = {
    {"unary", 150, unary},
    {"unary_integers", 20, unary_integers},
    {"activation", 120, activation},
    {"elementwise", 150, elementwise},
    {"elementwise_integers", 80, elementwise_integers},
    {"elementwise_bools", 30, elementwise_bools},
    {"select", 60, select_reals},
    {"parts", 150, parts},
    {"chain", 150, chain},
    {"chain_integers", 60, chain_integers},
    {"long_chain", 24, long_chain},
    {"quantize", 100, quantize},
    {"dequantize", 100, dequantize},
    {"quantize_chain", 100, quantize_chain},
    {0},
};
