// What a decoder does between the product that makes queries, keys and values
// and attention: for each token, its heads of queries and keys are rotated
// (rotation.c), keys and values are put into their caches (kv_cache_update.c).
// The input has [batch, steps, heads of queries | keys | values], the caches
// [batch, heads, extent, width], tables [batch or 1, 1, steps, size or half].
#include "ops/pointwise/cached_rotation.h"

#include <string.h>

#include "core/attr_set.h"
#include "ops/enums.h"
#include "ops/movement/kv_cache.h"
#include "ops/rules.h"
#include "ops/walk.h"

enum {
  INPUT = RABBET_CACHED_INPUT,
  KEYS = RABBET_CACHED_KEYS,
  VALUES = RABBET_CACHED_VALUES,
  COSINES = RABBET_CACHED_COSINES,
  SINES = RABBET_CACHED_SINES,
  INDICES = RABBET_CACHED_INDICES,
  OPERANDS = RABBET_CACHED_OPERANDS
};

// ---- Rules -----------------------------------------------------------------

static rabbet_status_t cached_infer_types(const rabbet_op_infer_t* infer) {
  for (int i = 0; i < 3; ++i)
    infer->outputs[i].dtype = infer->inputs[INPUT].dtype;
  RABBET_RETURN_IF_ERROR(rabbet_op_same_type(infer, INPUT, KEYS));
  RABBET_RETURN_IF_ERROR(rabbet_op_same_type(infer, INPUT, VALUES));
  RABBET_RETURN_IF_ERROR(rabbet_op_same_type(infer, COSINES, SINES));
  if (infer->inputs[COSINES].dtype == RABBET_DTYPE_FLOAT) return rabbet_ok();
  return rabbet_op_same_type(infer, INPUT, COSINES);
}

static bool cached_has_indices(const rabbet_op_infer_t* infer) {
  return infer->input_count > INDICES && infer->inputs[INDICES].present;
}

// The heads of queries; 0: there are none.
static int64_t cached_queries(int64_t columns, int64_t keys, int64_t width) {
  if (keys <= 0 || width <= 0 || columns % width != 0) return 0;
  int64_t heads = columns / width;
  return keys < heads / 2 + heads % 2 ? heads - 2 * keys : 0;
}

static bool cached_turns(int64_t width, int64_t size, int64_t table) {
  return size > 0 && size % 2 == 0 && size <= width &&
         (table == size || table == size / 2);
}

static bool cached_fits(const rabbet_op_infer_t* infer, int64_t* out_queries) {
  const rabbet_shape_t* s[OPERANDS];
  int64_t columns = 0, keys = 0, width = 0, extents[2] = {0};
  int64_t size = RABBET_OP_INT(infer, "size");
  rabbet_expr_t ignored = RABBET_EXPR_NONE;
  for (size_t i = 0; i < infer->input_count; ++i)
    s[i] = &infer->inputs[i].shape;
  if (s[INPUT]->rank != 3 || s[KEYS]->rank != 4 || s[VALUES]->rank != 4 ||
      s[COSINES]->rank != 4 || s[SINES]->rank != 4)
    return false;
  bool fits =
      rabbet_op_is_constant(infer, s[INPUT]->d[2], &columns) &&
      rabbet_op_is_constant(infer, s[KEYS]->d[1], &keys) &&
      rabbet_op_is_constant(infer, s[KEYS]->d[3], &width) &&
      rabbet_op_same_dim(infer, s[INPUT]->d[0], s[KEYS]->d[0], &ignored);
  for (int32_t i = 0; fits && i < 4; ++i)
    fits = rabbet_op_same_dim(infer, s[KEYS]->d[i], s[VALUES]->d[i], &ignored);
  for (int k = 0; fits && k < 2; ++k) {
    const rabbet_shape_t* table = s[COSINES + k];
    fits = rabbet_op_is_constant(infer, table->d[3], &extents[k]) &&
           rabbet_op_equals(infer, table->d[1], 1) &&
           (rabbet_op_equals(infer, table->d[0], 1) ||
            rabbet_op_same_dim(infer, table->d[0], s[INPUT]->d[0], &ignored)) &&
           (rabbet_op_equals(infer, table->d[2], 1) ||
            rabbet_op_same_dim(infer, table->d[2], s[INPUT]->d[1], &ignored));
  }
  if (fits && cached_has_indices(infer))
    fits =
        s[INDICES]->rank == 1 &&
        rabbet_op_same_dim(infer, s[INDICES]->d[0], s[INPUT]->d[0], &ignored);
  *out_queries = cached_queries(columns, keys, width);
  return fits && *out_queries > 0 && extents[0] == extents[1] &&
         cached_turns(width, size > 0 ? size : width, extents[0]);
}

static rabbet_status_t cached_infer_shapes(const rabbet_op_infer_t* infer) {
  const rabbet_shape_t *x = &infer->inputs[INPUT].shape,
                       *keys = &infer->inputs[KEYS].shape;
  int64_t queries = 0;
  if (cached_fits(infer, &queries)) {
    rabbet_shape_t* y = &infer->outputs[0].shape;
    *y = *keys;
    RABBET_RETURN_IF_ERROR(
        rabbet_expr_constant(infer->graph, queries, &y->d[1]));
    y->d[0] = x->d[0];
    y->d[2] = x->d[1];
    infer->outputs[1].shape = *keys;
    infer->outputs[2].shape = infer->inputs[VALUES].shape;
    return rabbet_ok();
  }
  char a[RABBET_OP_TEXT], b[RABBET_OP_TEXT], c[RABBET_OP_TEXT],
      d[RABBET_OP_TEXT];
  return RABBET_OP_INVALID(
      "input 'input' has shape %s, 'keys' %s, 'values' %s and 'cosines' %s, "
      "attribute 'size' is %lld; the input is [batch, steps, heads of queries, "
      "keys and values], caches are [batch, heads, extent, width], tables "
      "[batch or 1, 1, steps or 1, elements or pairs of an even part of a "
      "head], and there is one index for each element of the batch",
      rabbet_op_shape_text(infer, x, a), rabbet_op_shape_text(infer, keys, b),
      rabbet_op_shape_text(infer, &infer->inputs[VALUES].shape, c),
      rabbet_op_shape_text(infer, &infer->inputs[COSINES].shape, d),
      (long long)RABBET_OP_INT(infer, "size"));
}

rabbet_status_t rabbet_cached_rotation_read(
    const rabbet_attr_t* attrs, size_t attr_count,
    const rabbet_dims_t* const operands[OPERANDS],
    rabbet_cached_rotation_t* out_rotation) {
  rabbet_cached_rotation_t* r = out_rotation;
  const rabbet_dims_t *x = operands[INPUT], *keys = operands[KEYS];
  bool fits = x->rank == 3 && keys->rank == 4 &&
              rabbet_dims_equal(keys, operands[VALUES]) &&
              operands[COSINES]->rank == 4 && operands[SINES]->rank == 4;
  *r = (rabbet_cached_rotation_t){.batch = x->d[0]};
  if (fits) {
    r->steps = x->d[1];
    r->keys = keys->d[1];
    r->extent = keys->d[2];
    r->width = keys->d[3];
    r->queries = cached_queries(x->d[2], r->keys, r->width);
    r->size = rabbet_attr_int(attrs, attr_count, "size", 0);
    if (r->size == 0) r->size = r->width;
    r->interleaved = rabbet_attr_int(attrs, attr_count, "interleaved", 0) != 0;
    r->is_whole = operands[COSINES]->d[3] == r->size;
    fits = r->queries > 0 && keys->d[0] == r->batch && r->steps <= r->extent &&
           cached_turns(r->width, r->size, operands[COSINES]->d[3]) &&
           operands[COSINES]->d[3] == operands[SINES]->d[3];
  }
  for (int k = 0; fits && k < 2; ++k) {
    const rabbet_dims_t* table = operands[COSINES + k];
    fits = table->d[1] == 1 && (table->d[0] == 1 || table->d[0] == r->batch) &&
           (table->d[2] == 1 || table->d[2] == r->steps);
    r->strides[k][0] = table->d[0] == 1 ? 0 : table->d[2] * table->d[3];
    r->strides[k][1] = table->d[2] == 1 ? 0 : table->d[3];
  }
  if (fits && operands[INDICES])
    fits = operands[INDICES]->rank == 1 && operands[INDICES]->d[0] == r->batch;
  if (fits) return rabbet_ok();
  char a[128], b[128], c[128];
  return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                       "queries, keys and values of shape %s, rotated by "
                       "tables of shape %s, do not fit caches of shape %s",
                       rabbet_dims_print(x, a, sizeof(a)),
                       rabbet_dims_print(operands[COSINES], b, sizeof(b)),
                       rabbet_dims_print(keys, c, sizeof(c)));
}

// ---- Reference -------------------------------------------------------------

// A head at element `from` of the input, to element `to` of the output.
static void cached_copy(const rabbet_view_t* x, int64_t from,
                        const rabbet_view_t* y, int64_t to, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    rabbet_copy_element(y->data, to + i, x->data, from + i,
                        rabbet_element_size(x->dtype));
}

static void cached_rotate(const rabbet_op_eval_t* eval,
                          const rabbet_cached_rotation_t* r, int64_t from,
                          const int64_t tables[2], const rabbet_view_t* y,
                          int64_t to) {
  const rabbet_view_t* x = &eval->inputs[INPUT];
  for (int64_t i = 0; i < r->size / 2; ++i) {
    const int64_t places[2] = {r->interleaved ? 2 * i : i,
                               r->interleaved ? 2 * i + 1 : i + r->size / 2};
    double part[2], turn[2][2];
    for (int k = 0; k < 2; ++k) {
      int64_t entry = r->is_whole ? places[k] : i;
      part[k] = rabbet_load_double(x->dtype, x->data, from + places[k]);
      for (int t = 0; t < 2; ++t)
        turn[t][k] = rabbet_load_double(eval->inputs[COSINES + t].dtype,
                                        eval->inputs[COSINES + t].data,
                                        tables[t] + entry);
    }
    rabbet_store_double(y->dtype, y->data, to + places[0],
                        part[0] * turn[0][0] - part[1] * turn[1][0]);
    rabbet_store_double(y->dtype, y->data, to + places[1],
                        part[1] * turn[0][1] + part[0] * turn[1][1]);
  }
  cached_copy(x, from + r->size, y, to + r->size, r->width - r->size);
}

// One token; `at`: its row in the caches, -1: none.
static void cached_token(const rabbet_op_eval_t* eval,
                         const rabbet_cached_rotation_t* r, int64_t batch,
                         int64_t step, int64_t at) {
  const rabbet_view_t* y = eval->outputs;
  int64_t heads = r->queries + 2 * r->keys;
  const int64_t tables[2] = {
      batch * r->strides[0][0] + step * r->strides[0][1],
      batch * r->strides[1][0] + step * r->strides[1][1]};
  for (int64_t head = 0; head < heads; ++head) {
    int64_t from = ((batch * r->steps + step) * heads + head) * r->width;
    int64_t own = head - r->queries;
    if (own < 0) {
      int64_t row = (batch * r->queries + head) * r->steps + step;
      cached_rotate(eval, r, from, tables, &y[0], row * r->width);
      continue;
    }
    int64_t to =
        ((batch * r->keys + own % r->keys) * r->extent + at) * r->width;
    if (at < 0) continue;
    if (own < r->keys)
      cached_rotate(eval, r, from, tables, &y[1], to);
    else
      cached_copy(&eval->inputs[INPUT], from, &y[2], to, r->width);
  }
}

static rabbet_status_t cached_reference(const rabbet_op_eval_t* eval) {
  const rabbet_view_t* indices = &eval->inputs[INDICES];
  bool given =
      eval->input_count > INDICES && indices->dtype != RABBET_DTYPE_NONE;
  const rabbet_dims_t* operands[OPERANDS] = {NULL};
  rabbet_cached_rotation_t r;
  for (int i = 0; i < INDICES + given; ++i)
    operands[i] = &eval->inputs[i].dims;
  RABBET_RETURN_IF_ERROR(
      rabbet_cached_rotation_read(eval->attrs, eval->attr_count, operands, &r));
  for (int i = 1; i < 3; ++i) {
    const rabbet_view_t *from = &eval->inputs[i], *to = &eval->outputs[i];
    if (to->data != from->data)
      memcpy(to->data, from->data,
             (size_t)rabbet_count_of(&from->dims) *
                 rabbet_element_size(from->dtype));
  }
  const rabbet_kv_cache_rows_t rows = {.extent = r.extent, .count = r.steps};
  bool circular = RABBET_OP_INT(eval, "cache_mode") == RABBET_KV_CACHE_CIRCULAR;
  for (int64_t i = 0; i < r.batch * r.steps; ++i) {
    int64_t batch = i / r.steps, step = i % r.steps;
    int64_t first =
        given ? rabbet_load_int64(indices->dtype, indices->data, batch) : 0;
    cached_token(eval, &r, batch, step,
                 rabbet_kv_cache_place(&rows, circular, first, step));
  }
  return rabbet_ok();
}

static const rabbet_op_enumerator_t cached_modes[] = {
    RABBET_KV_CACHES(RABBET_ENUMERATOR){NULL, 0}};
static const rabbet_op_operand_t cached_inputs[] = {
    {"input", 0, RABBET_T_FLOATS},
    {"keys", 0, RABBET_T_FLOATS},
    {"values", 0, RABBET_T_FLOATS},
    {"cosines", 0, RABBET_T_FLOATS},
    {"sines", 0, RABBET_T_FLOATS},
    {"write_indices", RABBET_OPERAND_INDEX | RABBET_OPERAND_OPTIONAL,
     RABBET_T_INDICES},
};
static const rabbet_op_operand_t cached_outputs[] = {
    {"queries", 0, RABBET_T_FLOATS},
    {"keys", 0, RABBET_T_FLOATS},
    {"values", 0, RABBET_T_FLOATS},
};
static const rabbet_op_attr_t cached_attrs[] = {
    {"size", RABBET_ATTR_INT, false, 0, 0, NULL},
    {"interleaved", RABBET_ATTR_BOOL, false, 0, 0, NULL},
    {"cache_mode", RABBET_ATTR_INT, false, RABBET_KV_CACHE_LINEAR, 0,
     cached_modes},
};

const rabbet_op_t rabbet_op_cached_rotation = {
    .name = "cached_rotation",
    .layer_type = "CACHED_ROTATION",
    .inputs = cached_inputs,
    .input_count = RABBET_OP_COUNT_OF(cached_inputs),
    .outputs = cached_outputs,
    .output_count = RABBET_OP_COUNT_OF(cached_outputs),
    .attrs = cached_attrs,
    .attr_count = RABBET_OP_COUNT_OF(cached_attrs),
    .infer_types = cached_infer_types,
    .infer_shapes = cached_infer_shapes,
    .reference = cached_reference,
};
