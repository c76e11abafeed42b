// Transpose, reshape, transpose.
#include <assert.h>
#include <string.h>

#include "base/math.h"
#include "ops/rules.h"
#include "ops/walk.h"

// ---- Attributes ------------------------------------------------------------

// An empty permutation is the identity.
static rabbet_status_t shuffle_permutation(const char* name,
                                           const int64_t* values, size_t count,
                                           int32_t rank,
                                           int32_t out_axes[RABBET_MAX_RANK]) {
  for (int32_t i = 0; i < rank; ++i) {
    out_axes[i] = i;
  }
  // A permutation longer than the rank may end in axes that stay in place.
  uint32_t seen = 0;
  bool valid = count == 0 || count >= (size_t)rank;
  for (size_t i = 0; valid && i < count; ++i) {
    int64_t limit = i < (size_t)rank ? rank : (int64_t)count;
    valid = values[i] >= 0 && values[i] < limit &&
            (i < (size_t)rank || values[i] == (int64_t)i) &&
            !(i < (size_t)rank && seen & 1u << values[i]);
    if (!valid || i >= (size_t)rank) continue;
    seen |= 1u << values[i];
    out_axes[i] = (int32_t)values[i];
  }
  if (valid) return rabbet_ok();
  rabbet_dims_t given = {
      .rank = (int32_t)(count < RABBET_MAX_RANK ? count : RABBET_MAX_RANK)};
  memcpy(given.d, values, (size_t)given.rank * sizeof(*values));
  char text[RABBET_OP_TEXT];
  return RABBET_OP_INVALID(
      "attribute '%s' is %s; expected a permutation of the axes 0 to %d", name,
      rabbet_dims_print(&given, text, sizeof text), rank - 1);
}

// ---- Reshape ---------------------------------------------------------------

#define SHUFFLE_MAX_FACTORS 64

// A product as a constant times factors that are not products.
typedef struct shuffle_product_t {
  int64_t constant;
  rabbet_expr_t factors[SHUFFLE_MAX_FACTORS];
  int count;
  bool overflow;
} shuffle_product_t;

// Products nested deeper than `depth` count as factors.
static void shuffle_multiply(const rabbet_op_infer_t* infer, rabbet_expr_t expr,
                             int depth, shuffle_product_t* product) {
  const rabbet_expr_node_t* node = rabbet_expr_node(infer->graph, expr);
  if (node->op == RABBET_EXPR_CONSTANT) {
    if (__builtin_mul_overflow(product->constant, node->value,
                               &product->constant)) {
      product->overflow = true;
    }
  } else if (node->op == RABBET_EXPR_PROD && depth > 0 &&
             product->count + 2 < SHUFFLE_MAX_FACTORS) {
    shuffle_multiply(infer, node->a, depth - 1, product);
    shuffle_multiply(infer, node->b, depth - 1, product);
  } else if (product->count < SHUFFLE_MAX_FACTORS) {
    product->factors[product->count++] = expr;
  } else {
    product->overflow = true;
  }
}

// Removes common factors from both.
static void shuffle_cancel(shuffle_product_t* a, shuffle_product_t* b) {
  for (int i = 0; i < a->count; ++i) {
    for (int j = 0; j < b->count; ++j) {
      if (a->factors[i] != b->factors[j]) continue;
      a->factors[i--] = a->factors[--a->count];
      b->factors[j] = b->factors[--b->count];
      break;
    }
  }
}

static int64_t shuffle_gcd(int64_t a, int64_t b) {
  assert(a >= 0 && b >= 0);
  while (b != 0) {
    int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

static rabbet_status_t shuffle_expression(const rabbet_op_infer_t* infer,
                                          const shuffle_product_t* product,
                                          rabbet_expr_t* out_expr) {
  RABBET_RETURN_IF_ERROR(
      rabbet_expr_constant(infer->graph, product->constant, out_expr));
  for (int i = 0; i < product->count; ++i) {
    RABBET_RETURN_IF_ERROR(rabbet_expr_binary(infer->graph, RABBET_EXPR_PROD,
                                              *out_expr, product->factors[i],
                                              out_expr));
  }
  return rabbet_ok();
}

static rabbet_status_t shuffle_mismatch(const rabbet_op_infer_t* infer,
                                        const rabbet_shape_t* from,
                                        const rabbet_shape_t* to,
                                        int32_t wildcard) {
  char a[RABBET_OP_TEXT], b[RABBET_OP_TEXT];
  return RABBET_OP_INVALID(
      "a tensor of shape %s cannot be reshaped to %s%s",
      rabbet_op_shape_text(infer, from, a), rabbet_op_shape_text(infer, to, b),
      wildcard >= 0 ? ": no extent in place of the -1 gives as many elements"
                    : ": the numbers of elements differ");
}

// Checks the numbers of elements and finds the extent in place of the -1.
static rabbet_status_t shuffle_balance(const rabbet_op_infer_t* infer,
                                       const rabbet_shape_t* from,
                                       int32_t wildcard, rabbet_shape_t* to) {
  shuffle_product_t total = {.constant = 1}, given = {.constant = 1};
  for (int32_t i = 0; i < from->rank; ++i) {
    shuffle_multiply(infer, from->d[i], SHUFFLE_MAX_FACTORS, &total);
  }
  for (int32_t i = 0; i < to->rank; ++i) {
    if (i != wildcard)
      shuffle_multiply(infer, to->d[i], SHUFFLE_MAX_FACTORS, &given);
  }
  if (total.overflow || given.overflow) {
    return RABBET_OP_INVALID("the shape has too many elements or factors");
  }
  shuffle_cancel(&total, &given);
  bool known = total.count == 0 && given.count == 0;
  if (wildcard < 0) {
    // An extent that is not known yet is checked at run time.
    bool differs = known && total.constant != given.constant;
    return differs ? shuffle_mismatch(infer, from, to, wildcard) : rabbet_ok();
  }
  if (given.constant == 0 || (known && total.constant % given.constant != 0)) {
    return shuffle_mismatch(infer, from, to, wildcard);
  }
  int64_t common = shuffle_gcd(total.constant, given.constant);
  if (common > 1) {
    total.constant /= common;
    given.constant /= common;
  }
  rabbet_expr_t divisor = RABBET_EXPR_NONE;
  RABBET_RETURN_IF_ERROR(shuffle_expression(infer, &total, &to->d[wildcard]));
  RABBET_RETURN_IF_ERROR(shuffle_expression(infer, &given, &divisor));
  return rabbet_expr_binary(infer->graph, RABBET_EXPR_FLOOR_DIV,
                            to->d[wildcard], divisor, &to->d[wildcard]);
}

// One extent of the new shape: 0 copies, -1 is the wildcard.
static rabbet_status_t shuffle_extent(const rabbet_op_infer_t* infer,
                                      const rabbet_shape_t* from, int32_t axis,
                                      bool zero_copies, rabbet_expr_t* dim,
                                      int32_t* wildcard) {
  int64_t value = 1;
  bool known = rabbet_op_is_constant(infer, *dim, &value);
  if (known && value < -1) {
    return RABBET_OP_INVALID(
        "dimension %d of the new shape is %lld; expected -1 (inferred), 0 or "
        "more",
        axis, (long long)value);
  }
  if (known && value == -1) {
    if (*wildcard >= 0) {
      return RABBET_OP_INVALID(
          "dimensions %d and %d of the new shape are -1; only one can be "
          "inferred",
          *wildcard, axis);
    }
    *wildcard = axis;
  }
  if (known && value == 0 && zero_copies) {
    if (axis >= from->rank) {
      return RABBET_OP_INVALID(
          "dimension %d of the new shape is 0, which copies that dimension of "
          "the input, but the input has rank %d (or set zero_is_placeholder to "
          "false)",
          axis, from->rank);
    }
    *dim = from->d[axis];
  }
  return rabbet_ok();
}

// An extent that is known in a run only, and then may be -1 (`is_wildcard`).
// `plain` is its value otherwise: the extent itself, or the input's extent if 0
// copies and the extent is 0.
typedef struct shuffle_read_t {
  rabbet_expr_t is_wildcard, plain;
} shuffle_read_t;

static rabbet_status_t shuffle_read_extent(const rabbet_op_infer_t* infer,
                                           const rabbet_shape_t* from,
                                           int32_t axis, bool zero_copies,
                                           rabbet_expr_t dim,
                                           shuffle_read_t* out_read) {
  rabbet_expr_t is_zero = RABBET_EXPR_NONE;
  out_read->plain = dim;
  RABBET_RETURN_IF_ERROR(rabbet_op_with_constant(infer, RABBET_EXPR_EQUAL, dim,
                                                 -1, &out_read->is_wildcard));
  if (!zero_copies || axis >= from->rank) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(
      rabbet_op_with_constant(infer, RABBET_EXPR_EQUAL, dim, 0, &is_zero));
  return rabbet_op_choose(infer, is_zero, from->d[axis], dim, &out_read->plain);
}

// *in_out_product times the extent, or times 1 for a wildcard.
static rabbet_status_t shuffle_count_in(const rabbet_op_infer_t* infer,
                                        const shuffle_read_t* read,
                                        rabbet_expr_t* in_out_product) {
  rabbet_expr_t factor = RABBET_EXPR_NONE;
  RABBET_RETURN_IF_ERROR(rabbet_expr_constant(infer->graph, 1, &factor));
  RABBET_RETURN_IF_ERROR(
      rabbet_op_choose(infer, read->is_wildcard, factor, read->plain, &factor));
  return rabbet_expr_binary(infer->graph, RABBET_EXPR_PROD, *in_out_product,
                            factor, in_out_product);
}

// Whether the host reads the elements of the new shape directly from one
// tensor. Then each of them may be -1. In a shape that layers assemble from
// several values, a -1 is a constant, and other elements are extents.
static bool shuffle_is_read(const rabbet_op_infer_t* infer,
                            const rabbet_shape_t* shape) {
  int32_t tensor = -1;
  for (int32_t i = 0; i < shape->rank; ++i) {
    const rabbet_expr_node_t* node =
        rabbet_expr_node(infer->graph, shape->d[i]);
    if (node->op != RABBET_EXPR_SYMBOL) return false;
    const rabbet_symbol_t* symbol =
        rabbet_expr_symbol(infer->graph, (size_t)node->a);
    if (i == 0) tensor = symbol->tensor;
    if (symbol->kind != RABBET_SYMBOL_VALUE || symbol->tensor != tensor ||
        symbol->index != i || symbol->upper != RABBET_EXPR_NONE)
      return false;
  }
  return shape->rank > 0;
}

// Computes the extents of such a shape.
static rabbet_status_t shuffle_settle_reads(const rabbet_op_infer_t* infer,
                                            const rabbet_shape_t* from,
                                            bool zero_copies,
                                            rabbet_shape_t* to) {
  shuffle_read_t reads[RABBET_MAX_RANK];
  rabbet_expr_t total = RABBET_EXPR_NONE, given = RABBET_EXPR_NONE;
  RABBET_RETURN_IF_ERROR(rabbet_expr_constant(infer->graph, 1, &total));
  given = total;
  for (int32_t i = 0; i < from->rank; ++i)
    RABBET_RETURN_IF_ERROR(rabbet_expr_binary(infer->graph, RABBET_EXPR_PROD,
                                              total, from->d[i], &total));
  for (int32_t i = 0; i < to->rank; ++i) {
    RABBET_RETURN_IF_ERROR(
        shuffle_read_extent(infer, from, i, zero_copies, to->d[i], &reads[i]));
    RABBET_RETURN_IF_ERROR(shuffle_count_in(infer, &reads[i], &given));
  }
  RABBET_RETURN_IF_ERROR(
      rabbet_op_with_constant(infer, RABBET_EXPR_MAX, given, 1, &given));
  RABBET_RETURN_IF_ERROR(rabbet_expr_binary(infer->graph, RABBET_EXPR_FLOOR_DIV,
                                            total, given, &total));
  for (int32_t i = 0; i < to->rank; ++i)
    RABBET_RETURN_IF_ERROR(rabbet_op_choose(infer, reads[i].is_wildcard, total,
                                            reads[i].plain, &to->d[i]));
  return rabbet_ok();
}

static rabbet_status_t shuffle_reshape(const rabbet_op_infer_t* infer,
                                       const rabbet_expr_t* dims, size_t count,
                                       rabbet_shape_t* shape) {
  if (count > RABBET_MAX_RANK) {
    return RABBET_OP_INVALID("the new shape has rank %zu; at most %d", count,
                             RABBET_MAX_RANK);
  }
  bool zero_copies = RABBET_OP_INT(infer, "zero_is_placeholder");
  rabbet_shape_t from = *shape;
  int32_t wildcard = -1;
  shape->rank = (int32_t)count;
  for (int32_t i = 0; i < shape->rank; ++i) {
    shape->d[i] = dims[i];
    RABBET_RETURN_IF_ERROR(
        shuffle_extent(infer, &from, i, zero_copies, &shape->d[i], &wildcard));
  }
  if (shuffle_is_read(infer, shape))
    RABBET_RETURN_IF_ERROR(
        shuffle_settle_reads(infer, &from, zero_copies, shape));
  return shuffle_balance(infer, &from, wildcard, shape);
}

// The new shape as expressions; *out_reshapes false if there is none.
static rabbet_status_t shuffle_new_shape(const rabbet_op_infer_t* infer,
                                         const rabbet_expr_t** out_dims,
                                         size_t* out_count,
                                         bool* out_reshapes) {
  *out_reshapes = true;
  if (infer->input_count > 1 && infer->inputs[1].present) {
    if (infer->inputs[1].shape.rank != 1) {
      char text[RABBET_OP_TEXT];
      return RABBET_OP_INVALID(
          "input 1 ('shape') has shape %s; expected a vector",
          rabbet_op_shape_text(infer, &infer->inputs[1].shape, text));
    }
    return rabbet_op_operand_values(infer, 1, out_dims, out_count);
  }
  const int64_t* ints = RABBET_OP_INTS(infer, "reshape_dims", out_count);
  rabbet_expr_t* dims = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_op_new_values(infer, *out_count, &dims));
  for (size_t i = 0; i < *out_count; ++i) {
    RABBET_RETURN_IF_ERROR(
        rabbet_expr_constant(infer->graph, ints[i], &dims[i]));
  }
  *out_dims = dims;
  *out_reshapes =
      *out_count > 0 || RABBET_OP_INT(infer, "reshape_to_scalar") != 0;
  return rabbet_ok();
}

static rabbet_status_t shuffle_transpose(const rabbet_op_infer_t* infer,
                                         const char* name,
                                         rabbet_shape_t* shape) {
  size_t count = 0;
  const int64_t* values = RABBET_OP_INTS(infer, name, &count);
  int32_t axes[RABBET_MAX_RANK];
  RABBET_RETURN_IF_ERROR(
      shuffle_permutation(name, values, count, shape->rank, axes));
  rabbet_shape_t from = *shape;
  for (int32_t i = 0; i < shape->rank; ++i) {
    shape->d[i] = from.d[axes[i]];
  }
  return rabbet_ok();
}

static rabbet_status_t shuffle_infer_types(const rabbet_op_infer_t* infer) {
  infer->outputs[0].dtype = infer->inputs[0].dtype;
  return rabbet_ok();
}

static rabbet_status_t shuffle_infer_shapes(const rabbet_op_infer_t* infer) {
  rabbet_shape_t shape = infer->inputs[0].shape;
  const rabbet_expr_t* dims = NULL;
  size_t count = 0;
  bool reshapes = false;
  RABBET_RETURN_IF_ERROR(shuffle_transpose(infer, "first_transpose", &shape));
  RABBET_RETURN_IF_ERROR(shuffle_new_shape(infer, &dims, &count, &reshapes));
  if (reshapes) {
    RABBET_RETURN_IF_ERROR(shuffle_reshape(infer, dims, count, &shape));
  }
  RABBET_RETURN_IF_ERROR(shuffle_transpose(infer, "second_transpose", &shape));
  infer->outputs[0].shape = shape;
  return rabbet_ok();
}

// ---- Reference -------------------------------------------------------------

static rabbet_status_t shuffle_axes(const rabbet_op_eval_t* eval,
                                    const char* name, int32_t rank,
                                    int32_t axes[RABBET_MAX_RANK]) {
  size_t count = 0;
  const int64_t* values = RABBET_OP_INTS(eval, name, &count);
  return shuffle_permutation(name, values, count, rank, axes);
}

static bool shuffle_keeps(const int32_t* axes, int32_t rank) {
  for (int32_t i = 0; i < rank; ++i)
    if (axes[i] != i) return false;
  return true;
}

// Rows of a target, `pitch` elements apart, whose elements lie `step` apart in
// the source, and whose first ones are neighbours there. Some rows take turns,
// so that each line of the cache is read once: weights are transposed by this
// when networks are simplified.
static void shuffle_rows(void* target, int64_t rows, int64_t pitch,
                         int64_t count, const void* source, int64_t step,
                         size_t size) {
  enum { TURN = 16 };
  for (int64_t first = 0; first < rows; first += TURN) {
    int64_t end = rabbet_min_i64(first + TURN, rows);
    for (int64_t i = 0; i < count; ++i)
      for (int64_t row = first; row < end; ++row)
        if (size == sizeof(uint32_t))
          ((uint32_t*)target)[row * pitch + i] =
              ((const uint32_t*)source)[i * step + row];
        else
          rabbet_copy_element(target, row * pitch + i, source, i * step + row,
                              size);
  }
}

// target[i] = source[axes applied]; `dims` are the source's, with elements.
static void shuffle_move(const rabbet_dims_t* dims, const int32_t* axes,
                         const void* source, void* target, size_t size) {
  if (shuffle_keeps(axes, dims->rank)) {
    memcpy(target, source, (size_t)rabbet_count_of(dims) * size);
    return;
  }
  rabbet_dims_t moved = *dims;
  int64_t from[RABBET_MAX_RANK], to[RABBET_MAX_RANK], strides[RABBET_MAX_RANK];
  int32_t last = dims->rank - 1, rows = last;
  rabbet_row_major(dims, from);
  for (int32_t i = 0; i < dims->rank; ++i) {
    moved.d[i] = dims->d[axes[i]];
    strides[i] = from[axes[i]];
    if (axes[i] == last) rows = i;
  }
  rabbet_row_major(&moved, to);
  int64_t count = moved.d[last], extent = rows == last ? 1 : moved.d[rows];
  moved.d[last] = moved.d[rows] = 1;
  rabbet_walk_t walk;
  rabbet_walk_initialize(&moved, &walk);
  rabbet_walk_add(&walk, strides, 0);
  rabbet_walk_add(&walk, to, 0);
  for (; !walk.done; rabbet_walk_next(&walk))
    shuffle_rows((char*)target + (size_t)walk.offsets[1] * size, extent,
                 to[rows], count,
                 (const char*)source + (size_t)walk.offsets[0] * size,
                 strides[last], size);
}

static rabbet_status_t shuffle_reference(const rabbet_op_eval_t* eval) {
  const rabbet_view_t* x = &eval->inputs[0];
  const rabbet_view_t* y = &eval->outputs[0];
  int32_t first[RABBET_MAX_RANK], second[RABBET_MAX_RANK];
  RABBET_RETURN_IF_ERROR(
      shuffle_axes(eval, "first_transpose", x->dims.rank, first));
  RABBET_RETURN_IF_ERROR(
      shuffle_axes(eval, "second_transpose", y->dims.rank, second));
  int64_t count = rabbet_count_of(&x->dims);
  if (count != rabbet_count_of(&y->dims)) {
    char a[128], b[128];
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                         "a tensor of shape %s cannot be shuffled to %s: the "
                         "numbers of elements differ",
                         rabbet_dims_print(&x->dims, a, sizeof a),
                         rabbet_dims_print(&y->dims, b, sizeof b));
  }
  size_t size = rabbet_element_size(x->dtype);
  rabbet_dims_t middle = y->dims;  // before the second transpose
  for (int32_t i = 0; i < y->dims.rank; ++i) {
    middle.d[second[i]] = y->dims.d[i];
  }
  void* scratch = NULL;
  if (count == 0) return rabbet_ok();
  if (shuffle_keeps(first, x->dims.rank)) {
    shuffle_move(&middle, second, x->data, y->data, size);
    return rabbet_ok();
  }
  if (shuffle_keeps(second, y->dims.rank)) {
    shuffle_move(&x->dims, first, x->data, y->data, size);
    return rabbet_ok();
  }
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(eval->allocator, (size_t)count * size, &scratch));
  shuffle_move(&x->dims, first, x->data, scratch, size);
  shuffle_move(&middle, second, scratch, y->data, size);
  rabbet_free(eval->allocator, scratch);
  return rabbet_ok();
}

static const rabbet_op_operand_t shuffle_inputs[] = {
    {"input", 0, RABBET_T_ANY},
    {"shape", RABBET_OPERAND_OPTIONAL | RABBET_OPERAND_SHAPE, RABBET_T_INDICES},
};
static const rabbet_op_operand_t shuffle_outputs[] = {
    {"output", 0, RABBET_T_ANY}};
static const rabbet_op_attr_t shuffle_attrs[] = {
    {"first_transpose", RABBET_ATTR_INTS, false, 0, 0, NULL},
    {"reshape_dims", RABBET_ATTR_INTS, false, 0, 0, NULL},
    {"second_transpose", RABBET_ATTR_INTS, false, 0, 0, NULL},
    {"zero_is_placeholder", RABBET_ATTR_BOOL, false, 1, 0, NULL},
    {"reshape_to_scalar", RABBET_ATTR_BOOL, false, 0, 0, NULL},
};

const rabbet_op_t rabbet_op_shuffle = {
    .name = "shuffle",
    .layer_type = "SHUFFLE",
    .flags = RABBET_OP_MOVES_DATA,
    .inputs = shuffle_inputs,
    .input_count = RABBET_OP_COUNT_OF(shuffle_inputs),
    .outputs = shuffle_outputs,
    .output_count = RABBET_OP_COUNT_OF(shuffle_outputs),
    .attrs = shuffle_attrs,
    .attr_count = RABBET_OP_COUNT_OF(shuffle_attrs),
    .infer_types = shuffle_infer_types,
    .infer_shapes = shuffle_infer_shapes,
    .reference = shuffle_reference,
};
