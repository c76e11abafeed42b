// Numbers in even steps, and operators that compare indices with such numbers.
// Extents and bounds need not be known: then a `fill` layer makes the numbers,
// in a shape that the network follows as expressions.
#include <math.h>

#include "onnx/index.h"
#include "onnx/operators.h"

// ---- Numbers in even steps -------------------------------------------------

typedef struct onnx_steps_t {
  rabbet_dtype_t dtype;
  rabbet_tensor_t* start;  // one element of dtype; NULL: 0
  rabbet_tensor_t* step;   // NULL: 1
} onnx_steps_t;

// A vector of `count` numbers.
static rabbet_tensor_t* onnx_steps(rabbet_onnx_node_t* node,
                                   const onnx_steps_t* steps,
                                   rabbet_onnx_index_t count) {
  bool known = rabbet_onnx_is_static(count);
  rabbet_tensor_t* step = steps->step;
  // LINSPACE wants a vector of steps.
  if (step && rabbet_onnx_rank(node, step) == 0)
    step = rabbet_onnx_unsqueeze(node, step, 1, 1);
  rabbet_tensor_t* inputs[] = {
      known ? NULL : rabbet_onnx_index_vector(node, &count, 1), steps->start,
      step};
  rabbet_attr_t attrs[] = {
      RABBET_ONNX_INT("operation", rabbet_onnx_enumerator(
                                       node, "fill", "operation", "LINSPACE")),
      RABBET_ONNX_INT("to_type", steps->dtype), RABBET_ONNX_FLOAT("alpha", 0),
      RABBET_ONNX_FLOAT("beta", 1), RABBET_ONNX_INTS("shape", &count.value, 1)};
  size_t input_count = step ? 3 : steps->start ? 2 : known ? 0 : 1;
  return rabbet_onnx_layer(node, "fill", inputs, input_count, attrs,
                           known ? 5 : 4);
}

rabbet_tensor_t* rabbet_onnx_indices(rabbet_onnx_node_t* node,
                                     rabbet_onnx_index_t count, int axis,
                                     int rank) {
  rabbet_dims_t dims = {.rank = rank};
  for (int i = 0; i < rank; ++i)
    dims.d[i] = i == axis ? count.value : 1;
  if (!rabbet_onnx_is_static(count)) {
    onnx_steps_t steps = {.dtype = RABBET_DTYPE_INT64};
    return rabbet_onnx_unsqueeze(node, onnx_steps(node, &steps, count),
                                 ((1u << rank) - 1) & ~(1u << axis), rank);
  }
  int64_t number;
  int64_t* data =
      rabbet_onnx_weights_room(node, RABBET_DTYPE_INT64, &dims, &number);
  for (int64_t i = 0; data && i < number; ++i)
    data[i] = i;
  return rabbet_onnx_weights(node, RABBET_DTYPE_INT64, data, &dims);
}

// ---- Range -----------------------------------------------------------------

static const int64_t onnx_longest_range = 1000000000;

// Integers of 64 bits are not all doubles, and their difference may overflow.
static int64_t onnx_range_length(const int64_t v[3]) {
  bool down = v[2] < 0;
  uint64_t step = down ? 0 - (uint64_t)v[2] : (uint64_t)v[2];
  int64_t low = down ? v[1] : v[0], high = down ? v[0] : v[1];
  if (step == 0) return INT64_MAX;
  if (low >= high) return 0;
  uint64_t count = ((uint64_t)high - (uint64_t)low - 1) / step + 1;
  return count < INT64_MAX ? (int64_t)count : INT64_MAX;
}

static rabbet_tensor_t* onnx_range_of_ints(rabbet_onnx_node_t* node,
                                           rabbet_dtype_t dtype,
                                           const int64_t v[3]) {
  rabbet_dims_t dims = {.rank = 1, .d = {onnx_range_length(v)}};
  if (dims.d[0] >= onnx_longest_range) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_OUT_OF_RANGE,
                     "a range from %lld to %lld by %lld has no valid length",
                     (long long)v[0], (long long)v[1], (long long)v[2]);
    return NULL;
  }
  int64_t count;
  void* data = rabbet_onnx_weights_room(node, dtype, &dims, &count);
  for (int64_t i = 0; data && i < count; ++i)
    rabbet_store_int64(
        dtype, data, i,
        (int64_t)((uint64_t)v[0] + (uint64_t)i * (uint64_t)v[2]));
  return rabbet_onnx_weights(node, dtype, data, &dims);
}

static rabbet_tensor_t* onnx_range_of_floats(rabbet_onnx_node_t* node,
                                             rabbet_dtype_t dtype,
                                             const double v[3]) {
  double steps = v[2] == 0 ? NAN : ceil((v[1] - v[0]) / v[2]);
  if (!(steps < (double)onnx_longest_range)) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_OUT_OF_RANGE,
                     "a range from %g to %g by %g has no valid length", v[0],
                     v[1], v[2]);
    return NULL;
  }
  rabbet_dims_t dims = {.rank = 1, .d = {steps > 0 ? (int64_t)steps : 0}};
  int64_t count;
  void* data = rabbet_onnx_weights_room(node, dtype, &dims, &count);
  for (int64_t i = 0; data && i < count; ++i)
    rabbet_store_double(dtype, data, i, v[0] + (double)i * v[2]);
  return rabbet_onnx_weights(node, dtype, data, &dims);
}

// The range if all parts are known; else, or if it fails, NULL.
static rabbet_tensor_t* onnx_range_constant(rabbet_onnx_node_t* node,
                                            rabbet_dtype_t dtype,
                                            rabbet_tensor_t* const parts[3]) {
  bool whole = true;
  int64_t ints[3] = {0};
  double floats[3] = {0};
  for (size_t i = 0; i < 3; ++i) {
    rabbet_onnx_ints_t found = rabbet_onnx_try_ints(node, parts[i]);
    if (found.present && found.count == 1) {
      ints[i] = found.data[0];
      floats[i] = (double)ints[i];
    } else if (rabbet_onnx_constant_number(node, parts[i], &floats[i])) {
      whole = false;
    } else {
      return NULL;
    }
  }
  if (!rabbet_onnx_ok(node)) return NULL;
  return whole ? onnx_range_of_ints(node, dtype, ints)
               : onnx_range_of_floats(node, dtype, floats);
}

static rabbet_onnx_index_t onnx_range_count_ints(
    rabbet_onnx_node_t* node, rabbet_tensor_t* const parts[3]) {
  rabbet_onnx_index_t start = rabbet_onnx_element(node, parts[0], 0);
  rabbet_onnx_index_t limit = rabbet_onnx_element(node, parts[1], 0);
  return rabbet_onnx_ceil_div(node,
                              rabbet_onnx_index_op(node, "SUB", limit, start),
                              rabbet_onnx_element(node, parts[2], 0));
}

static bool onnx_is_number(rabbet_onnx_node_t* node, rabbet_tensor_t* x,
                           double number) {
  double value = 0;
  return rabbet_onnx_constant_number(node, x, &value) && value == number;
}

// The number times 2^bits, if that is an integer of at most 62 bits.
static bool onnx_scaled(double number, int bits, int64_t* out_value) {
  double scaled = ldexp(number, bits);
  if (!(fabs(scaled) < 0x1p62) || scaled != floor(scaled)) return false;
  *out_value = (int64_t)scaled;
  return true;
}

// Whether its value follows from shapes, and is an integer.
static bool onnx_is_followed_integer(const rabbet_onnx_node_t* node,
                                     const rabbet_tensor_t* x) {
  int64_t bottom = 1;
  if (!x->values || x->value_count != 1) return false;
  return !x->denominators ||
         (rabbet_expr_is_constant(node->importer->network->graph,
                                  x->denominators[0], &bottom) &&
          bottom == 1);
}

// Limits that follow from shapes, as integers: start and delta are taken at
// their exact FLOAT values, which may be a little above or below the intended
// decimal number. Multiples of 2^-bits make all of them integers.
static bool onnx_range_count_exact(rabbet_onnx_node_t* node,
                                   rabbet_tensor_t* const parts[3],
                                   rabbet_onnx_index_t* out_count) {
  double start = 0, delta = 0;
  int64_t first = 0, step = 0;
  int bits = 0;
  if (!onnx_is_followed_integer(node, parts[1]) ||
      !rabbet_onnx_constant_number(node, parts[0], &start) ||
      !rabbet_onnx_constant_number(node, parts[2], &delta))
    return false;
  while (bits < 40 && (!onnx_scaled(start, bits, &first) ||
                       !onnx_scaled(delta, bits, &step)))
    ++bits;
  if (!onnx_scaled(start, bits, &first) || !onnx_scaled(delta, bits, &step))
    return false;
  rabbet_onnx_index_t limit =
      rabbet_onnx_index_op(node, "PROD", rabbet_onnx_element(node, parts[1], 0),
                           rabbet_onnx_index(INT64_C(1) << bits));
  *out_count = rabbet_onnx_ceil_div(
      node, rabbet_onnx_index_op(node, "SUB", limit, rabbet_onnx_index(first)),
      rabbet_onnx_index(step));
  return true;
}

// Fractions that follow from shapes are not rounded in between.
static rabbet_onnx_index_t onnx_range_count_fractions(
    rabbet_onnx_node_t* node, rabbet_tensor_t* const parts[3]) {
  rabbet_tensor_t* x = parts[1];
  if (!onnx_is_number(node, parts[0], 0))
    x = rabbet_onnx_binary(node, "SUB", x, parts[0]);
  if (!onnx_is_number(node, parts[2], 1))
    x = rabbet_onnx_binary(node, "DIV", x, parts[2]);
  x = rabbet_onnx_unary(node, "CEIL", x);
  return rabbet_onnx_element(node, x, 0);
}

// A power of two whose product with the largest number is below 2^63. Smaller
// numbers, of 24 bits in FLOAT, lose bits only if the range has more elements
// than fit into memory.
static rabbet_tensor_t* onnx_range_scale(rabbet_onnx_node_t* node,
                                         rabbet_tensor_t* const parts[3]) {
  static const struct {
    double below, scale;
  } steps[] = {{0x1p34, 0x1p28}, {0x1p22, 0x1p40}, {0x1p2, 0x1p60}};
  rabbet_tensor_t* most = NULL;
  for (size_t i = 0; i < 3; ++i) {
    rabbet_tensor_t* size = rabbet_onnx_unary(node, "ABS", parts[i]);
    most = most ? rabbet_onnx_binary(node, "MAX", most, size) : size;
  }
  int rank = rabbet_onnx_rank(node, most);
  rabbet_dtype_t dtype = rabbet_onnx_dtype_of(node, most);
  rabbet_tensor_t* scale = rabbet_onnx_number(node, dtype, rank, 1);
  for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); ++i)
    scale = rabbet_onnx_select(
        node, rabbet_onnx_with_number(node, "LESS", most, steps[i].below),
        rabbet_onnx_number(node, dtype, rank, steps[i].scale), scale);
  return scale;
}

// FLOAT numbers known only in a run, as INT64 multiples of a small number:
// their quotient in FLOAT would be rounded, and the length off by one.
static rabbet_onnx_index_t onnx_range_count_data(
    rabbet_onnx_node_t* node, rabbet_tensor_t* const parts[3]) {
  rabbet_tensor_t* numbers[3];
  rabbet_onnx_index_t scaled[3];
  for (size_t i = 0; i < 3; ++i)
    numbers[i] = rabbet_onnx_in_float(node, parts[i]);
  rabbet_tensor_t* scale = onnx_range_scale(node, numbers);
  for (size_t i = 0; i < 3; ++i) {
    rabbet_tensor_t* x = rabbet_onnx_binary(node, "PROD", numbers[i], scale);
    scaled[i] = rabbet_onnx_element(node, x, 0);
  }
  return rabbet_onnx_ceil_div(
      node, rabbet_onnx_index_op(node, "SUB", scaled[1], scaled[0]), scaled[2]);
}

static bool onnx_is_followed(rabbet_onnx_node_t* node, rabbet_tensor_t* x) {
  double value = 0;
  return x->values || rabbet_onnx_constant_number(node, x, &value);
}

// ONNX Runtime computes ceil((limit - start) / delta) of FLOAT in DOUBLE.
static rabbet_onnx_index_t onnx_range_count_floats(
    rabbet_onnx_node_t* node, rabbet_tensor_t* const parts[3]) {
  rabbet_onnx_index_t count;
  if (onnx_range_count_exact(node, parts, &count)) return count;
  for (size_t i = 0; i < 3; ++i)
    if (!onnx_is_followed(node, parts[i]))
      return onnx_range_count_data(node, parts);
  return onnx_range_count_fractions(node, parts);
}

static void onnx_import_range(rabbet_onnx_node_t* node) {
  static const char* const names[] = {"start", "limit", "delta"};
  rabbet_tensor_t* parts[3];
  for (size_t i = 0; i < 3; ++i) {
    parts[i] = rabbet_onnx_required(node, i);
    rabbet_dims_t dims = rabbet_onnx_dims(node, parts[i]);
    if (rabbet_onnx_ok(node) &&
        (dims.rank > 1 || (dims.rank == 1 && dims.d[0] != 1)))
      RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                       "input %zu ('%s', '%s') must be one number", i, names[i],
                       rabbet_tensor_name(parts[i]));
  }
  rabbet_dtype_t dtype = rabbet_onnx_dtype_of(node, parts[0]);
  if (!rabbet_onnx_ok(node)) return;
  node->outputs[0] = onnx_range_constant(node, dtype, parts);
  if (node->outputs[0] || !rabbet_onnx_ok(node)) return;
  if (onnx_is_number(node, parts[2], 0))
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "input 2 ('delta') is 0; a range needs another step");
  rabbet_onnx_index_t count = rabbet_dtype_is_float(dtype)
                                  ? onnx_range_count_floats(node, parts)
                                  : onnx_range_count_ints(node, parts);
  count = rabbet_onnx_index_op(node, "MAX", count, rabbet_onnx_index(0));
  onnx_steps_t steps = {.dtype = dtype};
  if (!onnx_is_number(node, parts[0], 0)) steps.start = parts[0];
  if (!onnx_is_number(node, parts[2], 1)) steps.step = parts[2];
  node->outputs[0] = onnx_steps(node, &steps, count);
}

// ---- Diagonals -------------------------------------------------------------

// Diagonals beyond any extent are moved to this distance.
static const int64_t onnx_max_diagonal = INT64_C(1) << 40;

typedef struct onnx_diagonal_t {
  rabbet_onnx_index_t rows, columns;
  rabbet_onnx_index_t offset;  // of the column that belongs to row 0
} onnx_diagonal_t;

static bool onnx_diagonal_is_static(const onnx_diagonal_t* d) {
  return rabbet_onnx_is_static(d->rows) && rabbet_onnx_is_static(d->columns) &&
         rabbet_onnx_is_static(d->offset);
}

// The matrix of `column OP row + offset`; op: LESS, EQUAL or GREATER. BOOL.
static rabbet_tensor_t* onnx_compare_diagonal(rabbet_onnx_node_t* node,
                                              const char* op,
                                              const onnx_diagonal_t* d) {
  rabbet_tensor_t* row = rabbet_onnx_indices(node, d->rows, 0, 2);
  rabbet_tensor_t* column = rabbet_onnx_indices(node, d->columns, 1, 2);
  if (!rabbet_onnx_is_static(d->offset) || d->offset.value != 0)
    row = rabbet_onnx_binary(node, "SUM", row,
                             rabbet_onnx_index_vector(node, &d->offset, 1));
  return rabbet_onnx_binary(node, op, column, row);
}

static int64_t onnx_clamp_diagonal(int64_t offset) {
  int64_t most = onnx_max_diagonal;
  return offset < -most ? -most : offset > most ? most : offset;
}

static void onnx_import_eye_like(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  int64_t k = rabbet_onnx_attr_int(node, "k", 0);
  rabbet_dtype_t dtype = rabbet_onnx_dtype_of(node, x);
  if (rabbet_onnx_has_attr(node, "dtype")) {
    int32_t type = (int32_t)rabbet_onnx_attr_int(node, "dtype", 1);
    rabbet_onnx_fail(node, rabbet_onnx_node_dtype(node, type, &dtype, NULL));
  }
  int rank = rabbet_onnx_rank(node, x);
  if (rabbet_onnx_ok(node) && rank != 2)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "input 0 ('%s') has rank %d; expected a matrix",
                     rabbet_tensor_name(x), rank);
  if (!rabbet_onnx_ok(node)) return;
  onnx_diagonal_t diagonal = {
      .rows = rabbet_onnx_extent(node, x, 0),
      .columns = rabbet_onnx_extent(node, x, 1),
      .offset = rabbet_onnx_index(onnx_clamp_diagonal(k))};
  node->outputs[0] = rabbet_onnx_cast(
      node, onnx_compare_diagonal(node, "EQUAL", &diagonal), dtype);
}

// The triangle of ones where everything is known, which other rules recognise.
static rabbet_tensor_t* onnx_triangle(rabbet_onnx_node_t* node,
                                      const onnx_diagonal_t* d, bool upper) {
  int64_t rows = d->rows.value, columns = d->columns.value, count;
  int64_t k = d->offset.value;
  rabbet_dims_t square = {.rank = 2, .d = {rows, columns}};
  uint8_t* keep =
      rabbet_onnx_weights_room(node, RABBET_DTYPE_BOOL, &square, &count);
  for (int64_t i = 0; keep && i < count; ++i) {
    int64_t diagonal = i / columns + k, column = i % columns;
    keep[i] = upper ? column >= diagonal : column <= diagonal;
  }
  return rabbet_onnx_weights(node, RABBET_DTYPE_BOOL, keep, &square);
}

// A triangle of ones for the last two axes chooses between x and 0.
static void onnx_import_trilu(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  bool upper = rabbet_onnx_attr_int(node, "upper", 1) != 0;
  int rank = rabbet_onnx_rank(node, x);
  if (rabbet_onnx_ok(node) && rank < 2)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "input 0 ('%s') has rank %d; expected 2 or more",
                     rabbet_tensor_name(x), rank);
  if (!rabbet_onnx_ok(node)) return;
  onnx_diagonal_t d = {.rows = rabbet_onnx_extent(node, x, rank - 2),
                       .columns = rabbet_onnx_extent(node, x, rank - 1),
                       .offset = rabbet_onnx_index(0)};
  if (rabbet_onnx_input(node, 1))
    d.offset = rabbet_onnx_element(node, node->inputs[1], 0);
  d.offset.value = onnx_clamp_diagonal(d.offset.value);
  rabbet_tensor_t* mask = NULL;
  if (onnx_diagonal_is_static(&d)) {
    mask = onnx_triangle(node, &d, upper);
  } else {
    d.offset = rabbet_onnx_index_op(node, "SUM", d.offset,
                                    rabbet_onnx_index(upper ? -1 : 1));
    mask = onnx_compare_diagonal(node, upper ? "GREATER" : "LESS", &d);
  }
  rabbet_tensor_t* zero =
      rabbet_onnx_number(node, rabbet_onnx_dtype_of(node, x), rank, 0);
  node->outputs[0] = rabbet_onnx_select(node, mask, x, zero);
}

// ---- OneHot ----------------------------------------------------------------

// indices == 0, 1, ..., depth - 1 along a new axis; below 0 counts from depth.
static rabbet_tensor_t* onnx_hot(rabbet_onnx_node_t* node,
                                 rabbet_tensor_t* indices,
                                 rabbet_onnx_index_t depth, int axis,
                                 int rank) {
  rabbet_tensor_t* end = rabbet_onnx_index_vector(node, &depth, 1);
  rabbet_tensor_t* wrapped = rabbet_onnx_select(
      node, rabbet_onnx_with_number(node, "LESS", indices, 0),
      rabbet_onnx_binary(node, "SUM", indices, end), indices);
  return rabbet_onnx_binary(node, "EQUAL", wrapped,
                            rabbet_onnx_indices(node, depth, axis, rank));
}

static void onnx_import_one_hot(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* indices = rabbet_onnx_required(node, 0);
  rabbet_tensor_t* values = rabbet_onnx_required(node, 2);
  rabbet_onnx_index_t depth =
      rabbet_onnx_element(node, rabbet_onnx_required(node, 1), 0);
  if (rabbet_onnx_ok(node) && rabbet_onnx_is_static(depth) &&
      (depth.value < 1 || depth.value > INT32_MAX))
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "input 1 ('depth') is %lld; expected 1 to %d",
                     (long long)depth.value, INT32_MAX);
  int rank = rabbet_onnx_rank(node, indices) + 1;
  int axis =
      rabbet_onnx_axis(node, rabbet_onnx_attr_int(node, "axis", -1), rank);
  if (!rabbet_onnx_ok(node)) return;
  indices = rabbet_onnx_cast(node, indices, RABBET_DTYPE_INT64);
  indices = rabbet_onnx_unsqueeze(node, indices, 1u << axis, rank);
  rabbet_tensor_t* hot = onnx_hot(node, indices, depth, axis, rank);
  rabbet_onnx_slice_t slice = rabbet_onnx_slice_all(node, values);
  slice.size[0] = rabbet_onnx_index(1);
  rabbet_tensor_t* off = rabbet_onnx_slice(node, values, &slice);
  slice.start[0] = rabbet_onnx_index(1);
  rabbet_tensor_t* on = rabbet_onnx_slice(node, values, &slice);
  node->outputs[0] = rabbet_onnx_select(node, hot, on, off);
}

RABBET_ONNX_OPERATORS(range) = {
    RABBET_ONNX_OP(EyeLike, eye_like, "", 9, 22),
    RABBET_ONNX_OP(OneHot, one_hot, "", 9, 11, 28),
    RABBET_ONNX_OP(Range, range, "", 11, 27),
    RABBET_ONNX_OP(Trilu, trilu, "", 14),
    {0},
};
