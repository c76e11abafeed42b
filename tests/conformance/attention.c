// Attention and mixtures of experts.
#include <string.h>

#include "conformance/conformance.h"
#include "ops/enums.h"

typedef struct attention_case_t {
  int64_t batch, heads, rows, keys, width;
} attention_case_t;

static int32_t shuffle(conformance_t* t, int32_t value, const int64_t* shape,
                       const int64_t* order) {
  rabbet_attr_t attrs[] = {conformance_ints(t, "reshape_dims", shape, 4),
                           conformance_ints(t, "second_transpose", order, 4)};
  return kernel_case_op(&t->c, "shuffle", attrs, 2, &value, 1);
}

// A part of the last axis of [batch, rows, parts * size].
static int32_t part(conformance_t* t, int32_t value, int64_t size,
                    int64_t number) {
  const int64_t start = number * size, step = 1, axis = 2;
  rabbet_attr_t attrs[] = {conformance_ints(t, "start", &start, 1),
                           conformance_ints(t, "shape", &size, 1),
                           conformance_ints(t, "stride", &step, 1),
                           conformance_ints(t, "axes", &axis, 1)};
  return kernel_case_op(&t->c, "slice", attrs, 4, &value, 1);
}

// q, k and v: as the products read them, or [batch, rows, heads * width] with
// transposes, or slices of one tensor.
static void attention_factors(conformance_t* t, const attention_case_t* a,
                              int64_t kind, int32_t* out) {
  static const int64_t rows_first[] = {0, 2, 1, 3};
  kernel_case_t* c = &t->c;
  int64_t all = a->heads * a->width;
  int32_t joined = kind < 2
                       ? -1
                       : kernel_case_input(
                             c, KERNEL_DIMS(a->batch, a->rows, 3 * all), false);
  for (int64_t i = 0; i < 3; ++i) {
    int64_t rows = i == 0 ? a->rows : a->keys;
    if (kind == 0) {
      out[i] = kernel_case_input(
          c, KERNEL_DIMS(a->batch, a->heads, rows, a->width), false);
      continue;
    }
    const int64_t shape[] = {a->batch, rows, a->heads, a->width};
    int32_t flat = kind == 2 ? part(t, joined, all, i)
                             : kernel_case_input(
                                   c, KERNEL_DIMS(a->batch, rows, all), false);
    out[i] = shuffle(t, flat, shape, rows_first);
  }
}

static int32_t scaled(conformance_t* t, int32_t scores) {
  const float number[] = {0.25f};
  int64_t op = conformance_random(t, 3);
  if (op == 0) return scores;
  rabbet_attr_t attrs[] = {conformance_int(
      t, "op", op == 1 ? RABBET_ELEMENTWISE_PROD : RABBET_ELEMENTWISE_DIV)};
  int32_t pair[] = {
      scores, kernel_case_constant(&t->c, KERNEL_DIMS(1, 1, 1, 1), number)};
  return kernel_case_op(&t->c, "elementwise", attrs, 1, pair, 2);
}

// A constant that hides later keys, as exporters write it.
static int32_t causal_mask(conformance_t* t, const rabbet_dims_t* scores) {
  int64_t rows = scores->d[2], keys = scores->d[3];
  float* data = NULL;
  float low = conformance_chance(t, 2) ? -__builtin_inff() : -0x1p15f;
  RABBET_EXPECT_OK(rabbet_arena_allocate(
      &t->c.arena, (size_t)(rows * keys) * sizeof(*data), (void**)&data));
  for (int64_t i = 0; i < rows * keys; ++i)
    data[i] = i % keys > i / keys ? low : 0;
  return kernel_case_constant(&t->c, KERNEL_DIMS(1, 1, rows, keys), data);
}

// Places of queries (axis 2) or keys (axis 3), from `first` on.
static int32_t places(conformance_t* t, int32_t axis, int64_t count,
                      int64_t first) {
  int64_t data[2048];
  rabbet_dims_t dims = KERNEL_DIMS(1, 1, 1, 1);
  dims.d[axis] = count;
  for (int64_t i = 0; i < count; ++i)
    data[i] = first + i;
  return kernel_case_numbers(&t->c, RABBET_DTYPE_INT64, dims, data, true);
}

static int32_t binary(conformance_t* t, int64_t op, int32_t x, int32_t y) {
  rabbet_attr_t attrs[] = {conformance_int(t, "op", op)};
  int32_t pair[] = {x, y};
  return kernel_case_op(&t->c, "elementwise", attrs, 1, pair, 2);
}

// Places too far from all others for 32 bits.
static const int64_t FAR = INT64_C(0x200000005);

// Whether a query keeps a key, by places, as masks are that are too large to be
// folded: earlier keys, or a window, which may leave a query, or all, nothing.
static int32_t band(conformance_t* t, const rabbet_dims_t* scores,
                    bool causal) {
  int64_t rows = scores->d[2], keys = scores->d[3];
  int64_t first = conformance_random(t, 3);
  int64_t last = causal ? 0 : conformance_random(t, keys) - rows / 4;
  if (!causal && conformance_chance(t, 4))
    last = conformance_chance(t, 2) ? FAR : -FAR;
  int32_t column = places(t, 3, keys, first);
  int32_t row = places(t, 2, rows, first + last + 1);
  bool reversed = conformance_chance(t, 2);
  int32_t kept =
      binary(t, reversed ? RABBET_ELEMENTWISE_GREATER : RABBET_ELEMENTWISE_LESS,
             reversed ? row : column, reversed ? column : row);
  if (causal || conformance_chance(t, 2)) return kept;
  int64_t width = conformance_chance(t, 3) ? -3 : conformance_random(t, 50);
  row = places(t, 2, rows, first + last - 1 - width);
  int32_t near = binary(t, RABBET_ELEMENTWISE_GREATER, column, row);
  return binary(t, RABBET_ELEMENTWISE_AND, kept, near);
}

static int32_t chosen(conformance_t* t, int32_t condition, int32_t x,
                      int32_t y) {
  int32_t three[] = {condition, x, y};
  return kernel_case_op(&t->c, "select", NULL, 0, three, 3);
}

static int32_t banded(conformance_t* t, int32_t scores) {
  kernel_case_t* c = &t->c;
  const rabbet_dims_t dims = c->values[scores].dims;
  bool causal = conformance_chance(t, 2);
  const float low[] = {causal ? -__builtin_inff() : -0x1p15f}, zero[] = {0};
  int32_t kept = band(t, &dims, causal);
  int32_t other = kernel_case_constant(c, KERNEL_DIMS(1, 1, 1, 1), low);
  if (conformance_chance(t, 2)) return chosen(t, kept, scores, other);
  int32_t nothing = kernel_case_constant(c, KERNEL_DIMS(1, 1, 1, 1), zero);
  return binary(t, RABBET_ELEMENTWISE_SUM, scores,
                chosen(t, kept, nothing, other));
}

static int32_t capped(conformance_t* t, int32_t scores) {
  const float cap[] = {1.5f};
  int32_t number = kernel_case_constant(&t->c, KERNEL_DIMS(1, 1, 1, 1), cap);
  rabbet_attr_t tanh[] = {conformance_int(t, "type", RABBET_ACTIVATION_TANH)};
  int32_t y = binary(t, RABBET_ELEMENTWISE_DIV, scores, number);
  y = kernel_case_op(&t->c, "activation", tanh, 1, &y, 1);
  return binary(t, RABBET_ELEMENTWISE_PROD, y, number);
}

static int32_t masked(conformance_t* t, int32_t scores) {
  rabbet_dims_t dims = t->c.values[scores].dims;
  if (conformance_chance(t, 4)) scores = capped(t, scores);
  if (conformance_chance(t, 4)) return scores;
  bool has_places = dims.d[2] > 1 && dims.d[3] > 1;
  if (has_places && conformance_chance(t, 3)) return banded(t, scores);
  if (conformance_chance(t, 3)) {
    rabbet_attr_t sum[] = {conformance_int(t, "op", RABBET_ELEMENTWISE_SUM)};
    int32_t both[] = {scores, causal_mask(t, &dims)};
    return kernel_case_op(&t->c, "elementwise", sum, 1, both, 2);
  }
  for (int32_t i = 0; i < 3; ++i)
    if (conformance_chance(t, 2)) dims.d[i] = 1;
  if (conformance_chance(t, 3)) {
    const float low[] = {-8};
    bool last = conformance_chance(t, 2);
    int32_t other = kernel_case_constant(&t->c, KERNEL_DIMS(1, 1, 1, 1), low);
    int32_t three[] = {
        kernel_case_typed_input(&t->c, RABBET_DTYPE_BOOL, dims, false),
        last ? scores : other, last ? other : scores};
    return kernel_case_op(&t->c, "select", NULL, 0, three, 3);
  }
  rabbet_attr_t attrs[] = {conformance_int(t, "op", RABBET_ELEMENTWISE_SUM)};
  int32_t pair[] = {scores, kernel_case_input(&t->c, dims, false)};
  return kernel_case_op(&t->c, "elementwise", attrs, 1, pair, 2);
}

// Numbers of masks: 0 where a key is kept. Some rows keep nothing and have a
// finite number everywhere, others have -infinity where they keep nothing; with
// `zeros` everywhere.
static int32_t special_mask(conformance_t* t, const rabbet_dims_t* scores,
                            bool zeros) {
  kernel_case_t* c = &t->c;
  rabbet_dims_t dims = *scores;
  dims.d[1] = 1;
  if (conformance_chance(t, 2)) dims.d[2] = 1;
  int32_t mask = kernel_case_input(c, dims, false);
  float* data = c->reference[mask];
  float lowest = c->dtype == RABBET_DTYPE_HALF   ? -65504
                 : c->dtype == RABBET_DTYPE_BF16 ? -0x1p100f
                                                 : -__FLT_MAX__;
  for (int64_t row = 0; row < dims.d[0] * dims.d[2]; ++row) {
    bool keeps = !conformance_chance(t, 3);
    float low = (keeps || zeros) && conformance_chance(t, 2) ? -__builtin_inff()
                : conformance_chance(t, 2)                   ? lowest
                                                             : -0x1p15f;
    int64_t kept = conformance_random(t, dims.d[3]);
    for (int64_t i = 0; i < dims.d[3]; ++i)
      data[row * dims.d[3] + i] =
          keeps && (i == kept || conformance_chance(t, 3)) ? 0 : low;
  }
  return mask;
}

// isnan(x) ? 0 : x, as importers write it for rows that are masked entirely.
static int32_t without_nan(conformance_t* t, int32_t x) {
  const float zero[] = {0};
  rabbet_attr_t attrs[] = {conformance_int(t, "op", RABBET_UNARY_ISNAN)};
  int32_t nothing = kernel_case_constant(&t->c, KERNEL_DIMS(1, 1, 1, 1), zero);
  return chosen(t, kernel_case_op(&t->c, "unary", attrs, 1, &x, 1), nothing, x);
}

typedef enum masks_t { ANY_MASKS, SPECIAL_MASKS, PLACE_MASKS } masks_t;

static void attention_with(conformance_t* t, masks_t masks) {
  static const int64_t sizes[] = {1, 5, 16, 33, 40};
  static const int64_t widths[] = {8, 24, 32, 40, 64, 80, 96, 128};
  kernel_case_t* c = &t->c;
  bool special = masks == SPECIAL_MASKS, by_places = masks == PLACE_MASKS;
  const int64_t* least = sizes + by_places;  // a single one has no place
  int64_t count = 5 - by_places;
  int64_t kind = conformance_random(t, 3);
  attention_case_t a = {
      1 + conformance_random(t, 2), 1 + conformance_random(t, 2),
      conformance_one_of(t, least, count), conformance_one_of(t, least, count),
      conformance_one_of(t, widths, 8)};
  if (kind == 2) a.keys = a.rows;
  conformance_set_type(t, conformance_type(t, CONFORMANCE_REALS));
  c->low = -1;
  c->high = 1;
  c->tf32 = true;
  // Weights are rounded to the type before they meet the values.
  c->tolerance = c->dtype == RABBET_DTYPE_BF16   ? 1e-2
                 : c->dtype == RABBET_DTYPE_HALF ? 1e-3
                                                 : 3e-3;
  int32_t factors[3];
  attention_factors(t, &a, kind, factors);
  rabbet_attr_t turned[] = {conformance_int(t, "op0", 0),
                            conformance_int(t, "op1", 1)};
  rabbet_attr_t last_axis[] = {conformance_int(t, "axes", 1 << 3)};
  int32_t y = kernel_case_op(c, "matrix_multiply", turned, 2, factors, 2);
  y = scaled(t, y);
  bool zeros = special && conformance_chance(t, 2);
  if (special) {
    // Beside the lowest numbers scores have few digits left.
    c->tolerance = 2e-2;
    rabbet_attr_t sum[] = {conformance_int(t, "op", RABBET_ELEMENTWISE_SUM)};
    int32_t pair[] = {y, special_mask(t, &c->values[y].dims, zeros)};
    y = kernel_case_op(c, "elementwise", sum, 1, pair, 2);
  } else {
    y = by_places ? banded(t, y) : masked(t, y);
  }
  y = kernel_case_op(c, "softmax", last_axis, 1, &y, 1);
  if (zeros) y = without_nan(t, y);
  rabbet_attr_t plain[] = {conformance_int(t, "op0", 0),
                           conformance_int(t, "op1", 0)};
  int32_t pair[] = {y, factors[2]};
  y = kernel_case_op(c, "matrix_multiply", plain, 2, pair, 2);
  if (kind > 0) {
    static const int64_t order[] = {0, 2, 1, 3};
    rabbet_attr_t attrs[] = {conformance_ints(t, "first_transpose", order, 4)};
    y = kernel_case_op(c, "shuffle", attrs, 1, &y, 1);
  }
  kernel_case_output(c, y);
}

// Keys or values of a cache, each read by `share` neighbouring heads.
static int32_t shared_heads(conformance_t* t, const attention_case_t* a,
                            int64_t share) {
  const int64_t heads = a->heads / share;
  const int64_t start[] = {0, 0, 0, 0, 0}, stride[] = {1, 1, 0, 1, 1};
  const int64_t wide[] = {a->batch, heads, share, a->keys, a->width};
  const int64_t full[] = {a->batch, a->heads, a->keys, a->width};
  rabbet_attr_t spread[] = {conformance_ints(t, "start", start, 5),
                            conformance_ints(t, "shape", wide, 5),
                            conformance_ints(t, "stride", stride, 5)};
  rabbet_attr_t merged[] = {conformance_ints(t, "reshape_dims", full, 4)};
  int32_t y = kernel_case_input(
      &t->c, KERNEL_DIMS(a->batch, heads, 1, a->keys, a->width), false);
  y = kernel_case_op(&t->c, "slice", spread, 3, &y, 1);
  return kernel_case_op(&t->c, "shuffle", merged, 1, &y, 1);
}

// Attention of heads of which `share` neighbouring ones read the same keys.
static void attention_of_heads(conformance_t* t, const attention_case_t* a,
                               rabbet_dtype_t dtype, int64_t share,
                               int32_t (*mask)(conformance_t*, int32_t)) {
  kernel_case_t* c = &t->c;
  conformance_set_type(t, dtype);
  c->low = -1;
  c->high = 1;
  c->tf32 = true;
  c->tolerance = c->dtype == RABBET_DTYPE_BF16   ? 1e-2
                 : c->dtype == RABBET_DTYPE_HALF ? 1e-3
                                                 : 3e-3;
  int32_t factors[] = {
      kernel_case_input(c, KERNEL_DIMS(a->batch, a->heads, a->rows, a->width),
                        false),
      shared_heads(t, a, share)};
  rabbet_attr_t turned[] = {conformance_int(t, "op0", 0),
                            conformance_int(t, "op1", 1)};
  rabbet_attr_t last_axis[] = {conformance_int(t, "axes", 1 << 3)};
  rabbet_attr_t plain[] = {conformance_int(t, "op0", 0),
                           conformance_int(t, "op1", 0)};
  int32_t y = kernel_case_op(c, "matrix_multiply", turned, 2, factors, 2);
  y = mask(t, scaled(t, y));
  y = kernel_case_op(c, "softmax", last_axis, 1, &y, 1);
  int32_t pair[] = {y, shared_heads(t, a, share)};
  y = kernel_case_op(c, "matrix_multiply", plain, 2, pair, 2);
  kernel_case_output(c, y);
}

// Few queries are rows of one block, and blocks of a cluster split many keys;
// more of them are also cuDNN's, which reads keys of fewer heads.
static void attention_shared(conformance_t* t) {
  static const int64_t keys[] = {7, 40, 150, 290, 560, 1100};
  static const int64_t widths[] = {24, 32, 64, 72, 128},
                       shares[] = {1, 2, 3, 4};
  int64_t share = conformance_one_of(t, shares, 4);
  attention_case_t a = {
      1 + conformance_random(t, 2), share * (1 + conformance_random(t, 2)),
      conformance_chance(t, 3) ? 6 + conformance_random(t, 55)
                               : 1 + conformance_random(t, 7) % 5,
      conformance_one_of(t, keys, 6), conformance_one_of(t, widths, 5)};
  attention_of_heads(t, &a, conformance_type(t, CONFORMANCE_REALS), share,
                     masked);
}

// A mask that hides whole tiles of keys from blocks of queries, and all keys
// from some queries. What hides is, if chosen, so high that hidden keys have
// weights.
static int32_t masked_by_tiles(conformance_t* t, int32_t scores) {
  enum { BLOCK = 64 };
  kernel_case_t* c = &t->c;
  if (conformance_chance(t, 4)) return masked(t, scores);
  rabbet_dims_t dims = c->values[scores].dims;
  bool chooses = conformance_chance(t, 2), loses = conformance_chance(t, 3);
  for (int32_t i = 0; i < 2; ++i)
    if (conformance_chance(t, 2)) dims.d[i] = 1;
  int64_t rows = dims.d[0] * dims.d[1] * dims.d[2], keys = dims.d[3];
  int64_t first = 0, kept = 0;
  uint8_t flags[1 << 17];
  if (rows * keys > (int64_t)sizeof(flags)) return masked(t, scores);
  for (int64_t row = 0; row < rows; ++row) {
    if (row % dims.d[2] % BLOCK == 0) {
      first = conformance_random(t, keys);
      kept = conformance_random(t, keys - first) + 1;
    }
    bool none = loses && conformance_chance(t, 20);
    for (int64_t i = 0; i < keys; ++i)
      flags[row * keys + i] = !none && i >= first && i < first + kept &&
                              (row % 2 == 0 || i % 7 != 3 || i == first);
  }
  const float low[] = {chooses && conformance_chance(t, 2) ? -8 : -0x1p14f};
  if (!chooses) {
    int32_t mask = kernel_case_input(c, dims, false);
    float* numbers = c->reference[mask];
    for (int64_t i = 0; i < rows * keys; ++i)
      numbers[i] = flags[i] ? 0 : low[0];
    return binary(t, RABBET_ELEMENTWISE_SUM, scores, mask);
  }
  bool keeps = conformance_chance(t, 2);
  int32_t mask = kernel_case_typed_input(c, RABBET_DTYPE_BOOL, dims, false);
  for (int64_t i = 0; i < rows * keys; ++i)
    rabbet_store_int64(RABBET_DTYPE_BOOL, c->reference[mask], i,
                       (flags[i] != 0) == keeps);
  int32_t other = kernel_case_constant(c, KERNEL_DIMS(1, 1, 1, 1), low);
  return chosen(t, mask, keeps ? scores : other, keeps ? other : scores);
}

// Many queries, which are blocks' own.
static void attention_staged(conformance_t* t) {
  static const int64_t rows[] = {60, 65, 130, 200};
  static const int64_t keys[] = {33, 64, 100, 129, 300};
  static const int64_t widths[] = {8, 24, 40, 64, 80, 128, 136, 192, 256};
  int64_t share = 1 + conformance_random(t, 2);
  attention_case_t a = {
      1 + conformance_random(t, 2), share, conformance_one_of(t, rows, 4),
      conformance_one_of(t, keys, 5), conformance_one_of(t, widths, 9)};
  attention_of_heads(
      t, &a, conformance_chance(t, 2) ? RABBET_DTYPE_HALF : RABBET_DTYPE_BF16,
      share, masked_by_tiles);
}

// Attention within windows of images, a product of rank 5 or 6. Axes of
// windows, rows and heads follow each other in any order, so that three of them
// before rows may be axes of their own, and a mask has any of them.
static void attention_windows(conformance_t* t) {
  static const int64_t rows[] = {1, 9, 16, 49, 70};
  static const int64_t widths[] = {8, 24, 32, 64};
  kernel_case_t* c = &t->c;
  const int64_t n = conformance_one_of(t, rows, 5);
  const int64_t d = conformance_one_of(t, widths, 4);
  int32_t deep = conformance_chance(t, 3), rank = 5 + deep;
  int64_t extents[RABBET_MAX_RANK] = {0}, shape[RABBET_MAX_RANK];
  int64_t order[RABBET_MAX_RANK], back[RABBET_MAX_RANK];
  conformance_set_type(t, conformance_type(t, CONFORMANCE_REALS));
  c->low = -1;
  c->high = 1;
  c->tf32 = true;
  c->tolerance = c->dtype == RABBET_DTYPE_BF16   ? 1e-2
                 : c->dtype == RABBET_DTYPE_HALF ? 1e-3
                                                 : 3e-3;
  for (int32_t i = 0; i < rank - 2; ++i)
    extents[i] = 1 + conformance_random(t, 3);
  if (deep) extents[0] = 1;  // three axes before rows are the most
  extents[rank - 2] = n;
  extents[rank - 1] = d;
  // How the packed product lies: [images, ..., heads, columns].
  for (int32_t i = 0; i < rank; ++i)
    order[i] = i;
  for (int32_t i = rank - 2; i > 1; --i) {
    int64_t k = 1 + conformance_random(t, i), other = order[k];
    order[k] = order[i];
    order[i] = other;
  }
  for (int32_t i = 0; i < rank; ++i) {
    shape[i] = extents[order[i]];
    back[order[i]] = i;
  }
  rabbet_dims_t packed = {.rank = rank - 1};
  memcpy(packed.d, shape, (size_t)(rank - 1) * sizeof(*shape));
  packed.d[rank - 2] *= 3 * d;
  const int64_t size = shape[rank - 2] * d, step = 1, axis = rank - 2;
  int32_t x = kernel_case_input(c, packed, false), factors[3];
  for (int64_t i = 0; i < 3; ++i) {
    const int64_t start = i * size;
    rabbet_attr_t sliced[] = {conformance_ints(t, "start", &start, 1),
                              conformance_ints(t, "shape", &size, 1),
                              conformance_ints(t, "stride", &step, 1),
                              conformance_ints(t, "axes", &axis, 1)};
    rabbet_attr_t moved[] = {
        conformance_ints(t, "reshape_dims", shape, (size_t)rank),
        conformance_ints(t, "second_transpose", back, (size_t)rank)};
    factors[i] = kernel_case_op(c, "slice", sliced, 4, &x, 1);
    factors[i] = kernel_case_op(c, "shuffle", moved, 2, &factors[i], 1);
  }
  rabbet_attr_t turned[] = {conformance_int(t, "op0", 0),
                            conformance_int(t, "op1", 1)};
  rabbet_attr_t last_axis[] = {conformance_int(t, "axes", 1 << (rank - 1))};
  rabbet_attr_t plain[] = {conformance_int(t, "op0", 0),
                           conformance_int(t, "op1", 0)};
  int32_t y = kernel_case_op(c, "matrix_multiply", turned, 2, factors, 2);
  if (conformance_chance(t, 2)) {
    rabbet_dims_t dims = c->values[y].dims;
    for (int32_t i = 0; i < rank - 2; ++i)
      if (conformance_chance(t, 2)) dims.d[i] = 1;
    y = binary(t, RABBET_ELEMENTWISE_SUM, y, kernel_case_input(c, dims, false));
  }
  y = kernel_case_op(c, "softmax", last_axis, 1, &y, 1);
  int32_t pair[] = {y, factors[2]};
  y = kernel_case_op(c, "matrix_multiply", plain, 2, pair, 2);
  if (conformance_chance(t, 3)) {
    rabbet_attr_t attrs[] = {
        conformance_ints(t, "first_transpose", order, (size_t)rank)};
    y = kernel_case_op(c, "shuffle", attrs, 1, &y, 1);
  }
  kernel_case_output(c, y);
}

static void attention(conformance_t* t) {
  attention_with(t, ANY_MASKS);
}
static void attention_places(conformance_t* t) {
  attention_with(t, PLACE_MASKS);
}
static void attention_masks(conformance_t* t) {
  attention_with(t, SPECIAL_MASKS);
}

// ---- Experts ----------------------------------------------------------------

// Few tokens and many, experts that nobody chooses and such that do not exist.
static void moe(conformance_t* t) {
  static const int64_t types[] = {RABBET_DTYPE_INT8, RABBET_DTYPE_FP8};
  static const double limits[] = {0.75, 2};
  kernel_case_t* c = &t->c;
  conformance_set_type(t, conformance_type(t, CONFORMANCE_REALS));
  c->low = -1;
  c->high = 1;
  int64_t tokens = conformance_chance(t, 3) ? conformance_random(t, 3)
                                            : 1 + conformance_random(t, 80);
  int64_t chosen = 1 + conformance_random(t, 3);
  int64_t experts = 1 + conformance_random(t, 6);
  bool odd = conformance_chance(t, 3);
  int64_t hidden =
      odd ? 1 + conformance_random(t, 90) : 8 * (1 + conformance_random(t, 16));
  int64_t inner =
      odd ? 1 + conformance_random(t, 90) : 8 * (1 + conformance_random(t, 16));
  int64_t index[256], blocks[] = {1, 1 + conformance_random(t, 24)};
  for (int64_t i = 0; i < tokens * chosen; ++i)
    index[i] = conformance_chance(t, 20) ? experts * (i % 2 * 2 - 1)
                                         : conformance_random(t, experts);
  bool quantizes = conformance_chance(t, 4), finds = conformance_chance(t, 2);
  rabbet_attr_t attrs[] = {
      conformance_int(t, "activation_type", conformance_random(t, 2)),
      {.name = "swiglu_param_limit",
       .type = RABBET_ATTR_FLOAT,
       .data = &limits[conformance_random(t, 2)],
       .count = 1},
      {.name = "swiglu_param_beta",
       .type = RABBET_ATTR_FLOAT,
       .data = &limits[0],
       .count = 1},
      conformance_ints(t, "quantization_block_shape", blocks, finds ? 2 : 0),
      conformance_int(t, "dyn_q_output_scale_type", RABBET_DTYPE_FLOAT),
      conformance_int(
          t, "quantization_to_type",
          quantizes ? types[conformance_random(t, 2)] : RABBET_DTYPE_FLOAT)};
  size_t attr_count = conformance_chance(t, 2) ? 6 : 1;
  quantizes = quantizes && attr_count == 6;
  // Results of the first products are rounded to the type, or to 8 bits.
  c->tolerance = c->dtype == RABBET_DTYPE_BF16   ? 2e-2
                 : c->dtype == RABBET_DTYPE_HALF ? 3e-3
                                                 : 1e-5;
  if (quantizes) c->tolerance = 5e-2;
  bool biased = conformance_chance(t, 2);
  // Without gate and up, rows have the elements of the last product.
  bool is_gated = !conformance_chance(t, 4);
  quantizes = quantizes && is_gated;
  if (!is_gated) attr_count = 1;
  int32_t inputs[10] = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
  inputs[0] = kernel_case_input(
      c, KERNEL_DIMS(1, tokens, is_gated ? hidden : inner), false);
  inputs[1] = kernel_case_numbers(
      c, conformance_chance(t, 2) ? RABBET_DTYPE_INT32 : RABBET_DTYPE_INT64,
      KERNEL_DIMS(1, tokens, chosen), index, false);
  if (!conformance_chance(t, 4))
    inputs[2] = kernel_case_input(c, KERNEL_DIMS(1, tokens, chosen), false);
  for (int i = 3; i <= 4 && is_gated; ++i)
    inputs[i] = kernel_case_input(c, KERNEL_DIMS(experts, hidden, inner), true);
  inputs[5] = kernel_case_input(c, KERNEL_DIMS(experts, inner, hidden), true);
  if (biased) {
    for (int i = 6; i <= 7 && is_gated; ++i)
      inputs[i] = kernel_case_input(c, KERNEL_DIMS(experts, inner), true);
    inputs[8] = kernel_case_input(c, KERNEL_DIMS(experts, hidden), true);
  }
  c->low = c->high = 0.0625;
  if (quantizes)
    inputs[9] = kernel_case_input(c, (rabbet_dims_t){.rank = 0}, false);
  kernel_case_output(c, kernel_case_op(c, "moe", attrs, attr_count, inputs,
                                       quantizes ? 10
                                       : biased  ? 9
                                                 : 6));
}

const conformance_family_t conformance_attention[] = {
    {"attention", 12, attention},
    {"attention_masks", 12, attention_masks},
    {"attention_places", 12, attention_places},
    {"attention_shared", 8, attention_shared},
    {"attention_staged", 12, attention_staged},
    {"attention_windows", 12, attention_windows},
    {"moe", 60, moe},
    {0},
};
