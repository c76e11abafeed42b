// New keys or values put into a cache: for each element b of the batch,
//   output[b, .., write_indices[b] + i, ..] = update[b, .., i, ..]
// along an axis, and the cache's elements elsewhere. Without write_indices all
// begin at 0. LINEAR skips rows beyond the cache's end, CIRCULAR goes on at its
// beginning. Devices work on the cache's own memory.
#include "ops/movement/kv_cache.h"

#include <string.h>

#include "ops/enums.h"
#include "ops/rules.h"
#include "ops/walk.h"

enum { CACHE = 0, UPDATE = 1, INDICES = 2 };

static rabbet_status_t kv_cache_infer_types(const rabbet_op_infer_t* infer) {
  rabbet_dtype_t dtype = infer->inputs[CACHE].dtype;
  infer->outputs[0].dtype = dtype;
  if (infer->inputs[UPDATE].dtype == dtype) return rabbet_ok();
  return RABBET_OP_INVALID(
      "input 1 ('update') has type %s, but input 0 ('cache') has type %s; they "
      "must be equal (insert a cast)",
      rabbet_dtype_name(infer->inputs[UPDATE].dtype), rabbet_dtype_name(dtype));
}

static bool kv_cache_has_indices(const rabbet_op_infer_t* infer) {
  return infer->input_count > INDICES && infer->inputs[INDICES].present;
}

static bool kv_cache_fits(const rabbet_op_infer_t* infer, int32_t axis) {
  const rabbet_shape_t* cache = &infer->inputs[CACHE].shape;
  const rabbet_shape_t* update = &infer->inputs[UPDATE].shape;
  rabbet_expr_t ignored = RABBET_EXPR_NONE;
  int64_t most = 0, given = 0;
  bool fits = axis > 0 && update->rank == cache->rank;
  for (int32_t i = 0; fits && i < cache->rank; ++i)
    fits = i == axis ||
           rabbet_op_same_dim(infer, update->d[i], cache->d[i], &ignored);
  if (fits && rabbet_op_is_constant(infer, cache->d[axis], &most) &&
      rabbet_op_is_constant(infer, update->d[axis], &given))
    fits = given <= most;
  if (!fits || !kv_cache_has_indices(infer)) return fits;
  const rabbet_shape_t* indices = &infer->inputs[INDICES].shape;
  return indices->rank == 1 &&
         rabbet_op_same_dim(infer, indices->d[0], cache->d[0], &ignored);
}

static rabbet_status_t kv_cache_infer_shapes(const rabbet_op_infer_t* infer) {
  const rabbet_shape_t* cache = &infer->inputs[CACHE].shape;
  int32_t axis = 0;
  RABBET_RETURN_IF_ERROR(
      rabbet_op_axis("axis", RABBET_OP_INT(infer, "axis"), cache->rank, &axis));
  if (kv_cache_fits(infer, axis)) return rabbet_op_same_shape(infer);
  char a[RABBET_OP_TEXT], b[RABBET_OP_TEXT], c[RABBET_OP_TEXT];
  return RABBET_OP_INVALID(
      "input 'cache' has shape %s, 'update' %s and 'write_indices' %s; axis %d "
      "must not be 0 (the batch), the update must have the cache's shape, or "
      "be shorter along that axis, and there must be one index for each "
      "element of the batch",
      rabbet_op_shape_text(infer, cache, a),
      rabbet_op_shape_text(infer, &infer->inputs[UPDATE].shape, b),
      kv_cache_has_indices(infer)
          ? rabbet_op_shape_text(infer, &infer->inputs[INDICES].shape, c)
          : "(none)",
      axis);
}

rabbet_status_t rabbet_kv_cache_resolve(const rabbet_dims_t* cache,
                                        const rabbet_dims_t* update,
                                        const rabbet_dims_t* indices,
                                        int64_t axis,
                                        rabbet_kv_cache_rows_t* out_rows) {
  int32_t at = (int32_t)(axis < 0 ? axis + cache->rank : axis);
  *out_rows = (rabbet_kv_cache_rows_t){.outer = 1, .row = 1};
  bool fits = cache->rank > 1 && at > 0 && at < cache->rank &&
              update->rank == cache->rank;
  for (int32_t i = 0; fits && i < cache->rank; ++i) {
    if (i == at) continue;
    fits = update->d[i] == cache->d[i];
    if (i > 0) *(i < at ? &out_rows->outer : &out_rows->row) *= cache->d[i];
  }
  if (fits && indices)
    fits = indices->rank == 1 && indices->d[0] == cache->d[0];
  if (fits && update->d[at] <= cache->d[at]) {
    out_rows->batch = cache->d[0];
    out_rows->extent = cache->d[at];
    out_rows->count = update->d[at];
    return rabbet_ok();
  }
  char a[128], b[128], c[128] = "(none)";
  if (indices) rabbet_dims_print(indices, c, sizeof(c));
  return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                       "an update of shape %s and indices of shape %s do not "
                       "fit a cache of shape %s, written along axis %d",
                       rabbet_dims_print(update, b, sizeof(b)), c,
                       rabbet_dims_print(cache, a, sizeof(a)), at);
}

static rabbet_status_t kv_cache_reference(const rabbet_op_eval_t* eval) {
  const rabbet_view_t *x = &eval->inputs[CACHE], *y = &eval->outputs[0];
  const rabbet_view_t* update = &eval->inputs[UPDATE];
  const rabbet_view_t* indices = &eval->inputs[INDICES];
  bool circular = RABBET_OP_INT(eval, "cache_mode") == RABBET_KV_CACHE_CIRCULAR;
  bool given =
      eval->input_count > INDICES && indices->dtype != RABBET_DTYPE_NONE;
  rabbet_kv_cache_rows_t rows;
  RABBET_RETURN_IF_ERROR(rabbet_kv_cache_resolve(
      &x->dims, &update->dims, given ? &indices->dims : NULL,
      RABBET_OP_INT(eval, "axis"), &rows));
  size_t row = (size_t)rows.row * rabbet_element_size(x->dtype);
  if (y->data != x->data)
    memcpy(y->data, x->data,
           (size_t)rabbet_count_of(&x->dims) * rabbet_element_size(x->dtype));
  for (int64_t r = 0; r < rows.batch * rows.outer * rows.count; ++r) {
    int64_t slice = r / rows.count, batch = slice / rows.outer;
    int64_t first =
        given ? rabbet_load_int64(indices->dtype, indices->data, batch) : 0;
    int64_t at = rabbet_kv_cache_place(&rows, circular, first, r % rows.count);
    if (at >= 0)
      memcpy((char*)y->data + (size_t)(slice * rows.extent + at) * row,
             (const char*)update->data + (size_t)r * row, row);
  }
  return rabbet_ok();
}

static const rabbet_op_enumerator_t kv_cache_modes[] = {
    RABBET_KV_CACHES(RABBET_ENUMERATOR){NULL, 0}};
static const rabbet_op_operand_t kv_cache_inputs[] = {
    {"cache", 0, RABBET_T_ANY},
    {"update", 0, RABBET_T_ANY},
    {"write_indices", RABBET_OPERAND_INDEX | RABBET_OPERAND_OPTIONAL,
     RABBET_T_INDICES},
};
static const rabbet_op_operand_t kv_cache_outputs[] = {
    {"output", 0, RABBET_T_ANY}};
static const rabbet_op_attr_t kv_cache_attrs[] = {
    {"cache_mode", RABBET_ATTR_INT, false, RABBET_KV_CACHE_LINEAR, 0,
     kv_cache_modes},
    {"axis", RABBET_ATTR_INT, false, -2, 0, NULL},
};

const rabbet_op_t rabbet_op_kv_cache_update = {
    .name = "kv_cache_update",
    .layer_type = "KV_CACHE_UPDATE",
    .inputs = kv_cache_inputs,
    .input_count = RABBET_OP_COUNT_OF(kv_cache_inputs),
    .outputs = kv_cache_outputs,
    .output_count = RABBET_OP_COUNT_OF(kv_cache_outputs),
    .attrs = kv_cache_attrs,
    .attr_count = RABBET_OP_COUNT_OF(kv_cache_attrs),
    .infer_types = kv_cache_infer_types,
    .infer_shapes = kv_cache_infer_shapes,
    .reference = kv_cache_reference,
};
