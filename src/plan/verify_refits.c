// Weights and scales that can be refitted.
#include <assert.h>

#include "plan/verify.h"

// A constant with memory of its own, at `first` or behind, and its extents.
static rabbet_status_t verify_own(const rabbet_plan_t* plan, int32_t v,
                                  uint64_t first, bool is_float,
                                  const rabbet_plan_value_t** out_value,
                                  rabbet_dims_t* out_dims) {
  const rabbet_plan_sequence_t* sequence = NULL;
  int64_t count =
      rabbet_plan_first_value(plan, plan->sequences + plan->sequence_count);
  if (v < 0 || v >= count)
    return RABBET_DAMAGED("value %d of %lld", v, (long long)count);
  const rabbet_plan_value_t* value = rabbet_plan_find_value(plan, v, &sequence);
  assert(value >= sequence->values &&
         value < sequence->values + sequence->value_count);
  if (value->storage != RABBET_PLAN_STORAGE_CONSTANT || value->alias >= 0 ||
      (value->size > 0 && value->offset < first) ||
      rabbet_dtype_is_float(value->dtype) != is_float)
    return RABBET_DAMAGED("value %d ('%s') cannot be refitted", v, value->name);
  *out_value = value;
  *out_dims = rabbet_shape_dims(sequence->graph, &value->shape);
  return rabbet_ok();
}

static bool verify_is_scale(const rabbet_plan_value_t* scale,
                            const rabbet_dims_t* scales,
                            const rabbet_dims_t* dims) {
  int axes = 0;
  bool fits = dims->rank > 0 && scales->rank == dims->rank &&
              scale->dtype == RABBET_DTYPE_FLOAT &&
              scale->format == RABBET_FORMAT_LINEAR;
  for (int32_t i = 0; fits && i < dims->rank; ++i) {
    axes += scales->d[i] != 1;
    fits = dims->d[i] >= 0 && (scales->d[i] == 1 || scales->d[i] == dims->d[i]);
  }
  return fits && axes <= 1;
}

static rabbet_status_t verify_pair(const rabbet_plan_t* plan,
                                   const int32_t pair[2],
                                   rabbet_dims_t* out_dims) {
  const rabbet_plan_value_t *bytes = NULL, *scale = NULL;
  rabbet_dims_t scales;
  RABBET_RETURN_IF_ERROR(
      verify_own(plan, pair[0], plan->kept_size, false, &bytes, out_dims));
  RABBET_RETURN_IF_ERROR(
      verify_own(plan, pair[1], plan->kept_size, true, &scale, &scales));
  if (bytes->dtype != RABBET_DTYPE_INT8 ||
      !verify_is_scale(scale, &scales, out_dims))
    return RABBET_DAMAGED("'%s' is not a scale of '%s'", scale->name,
                          bytes->name);
  return rabbet_ok();
}

static rabbet_status_t verify_refit(const rabbet_plan_t* plan,
                                    const rabbet_plan_weights_t* refit) {
  if (refit->dtype < 0 || refit->dtype >= RABBET_DTYPE_COUNT ||
      !rabbet_dtype_is_float(refit->dtype))
    return RABBET_DAMAGED("%d is not a floating type", (int)refit->dtype);
  if (refit->value_count + refit->byte_count == 0)
    return RABBET_DAMAGED("it has no values");
  if (refit->byte_count > 0 && refit->dtype != RABBET_DTYPE_FLOAT)
    return RABBET_DAMAGED("8 bits are made of %s",
                          rabbet_dtype_name(refit->dtype));
  rabbet_dims_t first = {.rank = -1};
  for (size_t i = 0; i < refit->value_count + refit->byte_count; ++i) {
    const rabbet_plan_value_t* value = NULL;
    rabbet_dims_t dims;
    size_t pair = i - refit->value_count;
    if (i < refit->value_count)
      RABBET_RETURN_IF_ERROR(verify_own(plan, refit->values[i], plan->kept_size,
                                        true, &value, &dims));
    else
      RABBET_RETURN_IF_ERROR(verify_pair(plan, &refit->bytes[2 * pair], &dims));
    if (i > 0 && !rabbet_dims_equal(&first, &dims))
      return RABBET_DAMAGED("its values differ in shape");
    first = dims;
  }
  return rabbet_ok();
}

static rabbet_status_t verify_scale(const rabbet_plan_t* plan,
                                    const rabbet_plan_scale_t* scale) {
  if (scale->value_count == 0) return RABBET_DAMAGED("it has no values");
  for (size_t i = 0; i < scale->value_count; ++i) {
    const rabbet_plan_value_t* value = NULL;
    rabbet_dims_t dims;
    RABBET_RETURN_IF_ERROR(
        verify_own(plan, scale->values[i], 0, true, &value, &dims));
    for (int32_t k = 0; k < dims.rank; ++k)
      if (dims.d[k] != 1 || value->format != RABBET_FORMAT_LINEAR)
        return RABBET_DAMAGED("value '%s' is not one number", value->name);
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_verify_refits(const rabbet_plan_t* plan) {
  if (plan->kept_size > plan->full_size && plan->full_size > 0)
    return RABBET_DAMAGED("%llu bytes of weights are kept, of %llu",
                          (unsigned long long)plan->kept_size,
                          (unsigned long long)plan->full_size);
  if (plan->refit_count + plan->scale_count > 0 && plan->full_size == 0)
    return RABBET_DAMAGED(
        "there are weights to refit, but the size of all weights is missing");
  for (size_t i = 0; i < plan->refit_count; ++i)
    RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(verify_refit(plan, &plan->refits[i]),
                                           "weights '%s'",
                                           plan->refits[i].name));
  for (size_t i = 0; i < plan->scale_count; ++i)
    RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(verify_scale(plan, &plan->scales[i]),
                                           "the scale of '%s'",
                                           plan->scales[i].tensor));
  return rabbet_ok();
}
