// New weights for an engine: its plan's bytes are written anew, and its
// kernels, which may keep weights in forms of their own, are made again.
#include "rabbet/refit.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/struct.h"
#include "core/lay_out.h"
#include "core/quantize.h"
#include "core/view.h"
#include "runtime/runtime.h"

struct rabbet_refitter_t {
  rabbet_allocator_t allocator;
  rabbet_engine_t* engine;
  float* ranges;               // by scale; 0: not set
  rabbet_weights_t weights[];  // data NULL: not set
};

// ---- Contexts

void rabbet_engine_add_context(rabbet_engine_t* engine,
                               rabbet_context_t* context) {
  pthread_mutex_lock(&engine->contexts_lock);
  context->next = engine->contexts;
  if (context->next) context->next->previous = context;
  engine->contexts = context;
  pthread_mutex_unlock(&engine->contexts_lock);
}

void rabbet_engine_remove_context(rabbet_engine_t* engine,
                                  rabbet_context_t* context) {
  pthread_mutex_lock(&engine->contexts_lock);
  assert(context->previous || engine->contexts == context);
  if (context->next) context->next->previous = context->previous;
  if (context->previous)
    context->previous->next = context->next;
  else
    engine->contexts = context->next;
  pthread_mutex_unlock(&engine->contexts_lock);
}

rabbet_status_t rabbet_engine_check_weights(const rabbet_engine_t* engine) {
  if (!engine->lacks_weights) return rabbet_ok();
  return RABBET_STATUS(
      RABBET_STATUS_FAILED_PRECONDITION,
      "the engine lacks %llu bytes of weights, of which the plan was stripped "
      "or "
      "whose refit failed: supply them by a refitter first",
      (unsigned long long)(engine->plan->full_size - engine->plan->kept_size));
}

// ---- Names and weights

bool rabbet_engine_is_refittable(const rabbet_engine_t* engine) {
  return engine->plan->refit_count + engine->plan->scale_count > 0;
}

void rabbet_engine_weights_bytes(const rabbet_engine_t* engine,
                                 uint64_t* out_total, uint64_t* out_stripped) {
  const rabbet_plan_t* plan = engine->plan;
  *out_total = plan->full_size > 0 ? plan->full_size : plan->weights_size;
  *out_stripped = *out_total - plan->weights_size;
}

rabbet_status_t rabbet_engine_stripped_plan(const rabbet_engine_t* engine,
                                            rabbet_allocator_t allocator,
                                            void** out_data, size_t* out_size) {
  const rabbet_plan_t* plan = engine->plan;
  uint8_t* weights = NULL;
  *out_data = NULL;
  *out_size = 0;
  if (plan->refit_count == 0)
    return RABBET_STATUS(RABBET_STATUS_FAILED_PRECONDITION,
                         "the plan was not built for refitting: without its "
                         "weights it could never run (RABBET_BUILDER_REFIT)");
  return rabbet_plan_resize_weights(engine->data, engine->size, plan->kept_size,
                                    allocator, out_data, out_size, &weights);
}

rabbet_status_t rabbet_refitter_create(rabbet_engine_t* engine,
                                       rabbet_allocator_t allocator,
                                       rabbet_refitter_t** out_refitter) {
  *out_refitter = NULL;
  if (!engine->device)
    return RABBET_STATUS(RABBET_STATUS_FAILED_PRECONDITION,
                         "the plan was loaded only to be inspected");
  if (!rabbet_engine_is_refittable(engine))
    return RABBET_STATUS(RABBET_STATUS_FAILED_PRECONDITION,
                         "the plan has no weights that can be refitted: build "
                         "it with the flag REFIT (or REFIT_INDIVIDUAL and "
                         "weights that are marked)");
  rabbet_refitter_t* refitter = NULL;
  size_t count = engine->plan->refit_count;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(allocator,
                      sizeof(*refitter) + count * sizeof(refitter->weights[0]) +
                          engine->plan->scale_count * sizeof(float),
                      (void**)&refitter));
  refitter->ranges = (float*)&refitter->weights[count];
  refitter->allocator = allocator;
  refitter->engine = engine;
  rabbet_engine_retain(engine);
  *out_refitter = refitter;
  return rabbet_ok();
}

void rabbet_refitter_destroy(rabbet_refitter_t* refitter) {
  if (!refitter) return;
  rabbet_engine_release(refitter->engine);
  rabbet_free(refitter->allocator, refitter);
}

size_t rabbet_refitter_count(const rabbet_refitter_t* refitter) {
  return refitter->engine->plan->refit_count;
}

static rabbet_status_t refitter_check(const rabbet_refitter_t* refitter,
                                      size_t index) {
  size_t count = rabbet_refitter_count(refitter);
  return index < count
             ? rabbet_ok()
             : RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                             "weights %zu: %zu can be refitted", index, count);
}

static rabbet_dims_t refit_dims(const rabbet_plan_t* plan,
                                const rabbet_plan_weights_t* refit) {
  assert(refit->value_count + refit->byte_count > 0);
  int32_t first = refit->value_count > 0 ? refit->values[0] : refit->bytes[0];
  const rabbet_plan_sequence_t* sequence = NULL;
  const rabbet_plan_value_t* value =
      rabbet_plan_find_value(plan, first, &sequence);
  return rabbet_shape_dims(sequence->graph, &value->shape);
}

rabbet_status_t rabbet_refitter_info(const rabbet_refitter_t* refitter,
                                     size_t index,
                                     rabbet_refit_info_t* out_info) {
  RABBET_RETURN_IF_ERROR(refitter_check(refitter, index));
  const rabbet_engine_t* engine = refitter->engine;
  const rabbet_plan_weights_t* refit = &engine->plan->refits[index];
  if (out_info->struct_size < RABBET_SIZE_THROUGH(rabbet_refit_info_t, name))
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "rabbet_refit_info_t: struct_size is %u; set it to "
                         "sizeof(rabbet_refit_info_t)",
                         out_info->struct_size);
  const rabbet_refit_info_t info = {
      .name = refit->name,
      .layer = refit->layer,
      .role = refit->role,
      .dtype = refit->dtype,
      .dims = refit_dims(engine->plan, refit),
      .is_missing = engine->lacks_weights && !refitter->weights[index].data};
  rabbet_struct_write(&info, sizeof(info), out_info);
  return rabbet_ok();
}

rabbet_status_t rabbet_refitter_find(const rabbet_refitter_t* refitter,
                                     const char* name, size_t* out_index) {
  const rabbet_plan_t* plan = refitter->engine->plan;
  for (*out_index = 0; *out_index < plan->refit_count; ++*out_index)
    if (strcmp(plan->refits[*out_index].name, name) == 0) return rabbet_ok();
  *out_index = 0;
  return RABBET_STATUS(RABBET_STATUS_NOT_FOUND,
                       "no weights named '%s' can be refitted; there are %zu, "
                       "the first is '%s'",
                       name, plan->refit_count,
                       plan->refit_count ? plan->refits[0].name : "");
}

rabbet_status_t rabbet_refitter_find_role(const rabbet_refitter_t* refitter,
                                          const char* layer, int32_t role,
                                          size_t* out_index) {
  const rabbet_plan_t* plan = refitter->engine->plan;
  for (*out_index = 0; *out_index < plan->refit_count; ++*out_index) {
    const rabbet_plan_weights_t* refit = &plan->refits[*out_index];
    if (refit->role == role && strcmp(refit->layer, layer) == 0)
      return rabbet_ok();
  }
  *out_index = 0;
  return RABBET_STATUS(RABBET_STATUS_NOT_FOUND,
                       "layer '%s' has no weights of role %d that can be "
                       "refitted",
                       layer, role);
}

// ---- Setting

rabbet_status_t rabbet_refitter_set(rabbet_refitter_t* refitter, size_t index,
                                    rabbet_weights_t weights) {
  rabbet_refit_info_t info = {.struct_size = sizeof(info)};
  int64_t count = 0;
  RABBET_RETURN_IF_ERROR(rabbet_refitter_info(refitter, index, &info));
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(&info.dims, &count));
  if (weights.dtype != info.dtype || weights.count != count || !weights.data)
    return RABBET_STATUS(
        RABBET_STATUS_INVALID_ARGUMENT,
        "weights '%s' are %lld elements of %s; they cannot become %lld of %s%s",
        info.name, (long long)count, rabbet_dtype_name(info.dtype),
        (long long)weights.count, rabbet_dtype_name(weights.dtype),
        weights.data ? "" : " at no address");
  refitter->weights[index] = weights;
  return rabbet_ok();
}

rabbet_status_t rabbet_refitter_unset(rabbet_refitter_t* refitter,
                                      size_t index) {
  RABBET_RETURN_IF_ERROR(refitter_check(refitter, index));
  refitter->weights[index] = (rabbet_weights_t){0};
  return rabbet_ok();
}

rabbet_status_t rabbet_refitter_get(const rabbet_refitter_t* refitter,
                                    size_t index,
                                    rabbet_weights_t* out_weights) {
  *out_weights = (rabbet_weights_t){0};
  RABBET_RETURN_IF_ERROR(refitter_check(refitter, index));
  *out_weights = refitter->weights[index];
  return rabbet_ok();
}

// ---- Ranges

size_t rabbet_refitter_range_count(const rabbet_refitter_t* refitter) {
  return refitter->engine->plan->scale_count;
}

static rabbet_status_t refitter_check_range(const rabbet_refitter_t* refitter,
                                            size_t index) {
  size_t count = rabbet_refitter_range_count(refitter);
  return index < count
             ? rabbet_ok()
             : RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                             "range %zu: %zu can be refitted", index, count);
}

rabbet_status_t rabbet_refitter_range(const rabbet_refitter_t* refitter,
                                      size_t index, const char** out_tensor,
                                      float* out_range) {
  *out_tensor = NULL;
  *out_range = 0;
  RABBET_RETURN_IF_ERROR(refitter_check_range(refitter, index));
  const rabbet_plan_t* plan = refitter->engine->plan;
  const rabbet_plan_scale_t* scale = &plan->scales[index];
  const rabbet_plan_value_t* value =
      rabbet_plan_find_value(plan, scale->values[0], NULL);
  *out_tensor = scale->tensor;
  *out_range = refitter->ranges[index];
  if (*out_range == 0)
    *out_range = RABBET_QUANTIZE_STEPS *
                 (float)rabbet_load_double(value->dtype,
                                           plan->weights + value->offset, 0);
  return rabbet_ok();
}

rabbet_status_t rabbet_refitter_find_range(const rabbet_refitter_t* refitter,
                                           const char* tensor,
                                           size_t* out_index) {
  const rabbet_plan_t* plan = refitter->engine->plan;
  for (*out_index = 0; *out_index < plan->scale_count; ++*out_index)
    if (strcmp(plan->scales[*out_index].tensor, tensor) == 0)
      return rabbet_ok();
  *out_index = 0;
  return RABBET_STATUS(
      RABBET_STATUS_NOT_FOUND,
      "the engine does not read tensor '%s' as 8 bits; it reads %zu so%s%s%s",
      tensor, plan->scale_count, plan->scale_count ? ", the first is '" : "",
      plan->scale_count ? plan->scales[0].tensor : "",
      plan->scale_count ? "'" : "");
}

rabbet_status_t rabbet_refitter_set_range(rabbet_refitter_t* refitter,
                                          size_t index, float min, float max) {
  RABBET_RETURN_IF_ERROR(refitter_check_range(refitter, index));
  if (!isfinite(min) || !isfinite(max) || min > max || (min == 0 && max == 0))
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "tensor '%s': [%g, %g] is not a range; min and max "
                         "must be finite, min not above max, and not both 0",
                         refitter->engine->plan->scales[index].tensor,
                         (double)min, (double)max);
  refitter->ranges[index] = fmaxf(fabsf(min), fabsf(max));
  return rabbet_ok();
}

// ---- Committing

static rabbet_status_t refit_check_missing(const rabbet_refitter_t* refitter) {
  const rabbet_engine_t* engine = refitter->engine;
  size_t missing = 0, first = 0;
  for (size_t i = engine->plan->refit_count; i-- > 0;) {
    if (!engine->lacks_weights || refitter->weights[i].data) continue;
    ++missing;
    first = i;
  }
  if (missing == 0) return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_FAILED_PRECONDITION,
                       "%zu weights are missing, which the plan does not hold; "
                       "the first is '%s'",
                       missing, engine->plan->refits[first].name);
}

// From the first refit on the weights lie in bytes of the engine's own. The
// file's stay, as other things of the plan lie there.
static rabbet_status_t refit_own(rabbet_engine_t* engine) {
  rabbet_plan_t* plan = engine->plan;
  uint8_t* weights = NULL;
  void* data = NULL;
  size_t size = 0;
  if (engine->refitted) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(
      rabbet_plan_resize_weights(engine->data, engine->size, plan->full_size,
                                 engine->allocator, &data, &size, &weights));
  engine->refitted = data;
  engine->data = data;
  engine->size = size;
  plan->weights = weights;
  plan->weights_size = plan->full_size;
  return rabbet_ok();
}

// The axis along which scales differ, if they do.
static int32_t refit_axis(const rabbet_plan_sequence_t* sequence,
                          const rabbet_plan_value_t* scale) {
  rabbet_dims_t dims = rabbet_shape_dims(sequence->graph, &scale->shape);
  for (int32_t i = 0; i < dims.rank; ++i)
    if (dims.d[i] != 1) return i;
  return -1;
}

// 8 bits made of weights, as the builder makes them.
static rabbet_status_t refit_write_bytes(rabbet_engine_t* engine,
                                         const int32_t pair[2],
                                         rabbet_dims_t dims,
                                         const float* data) {
  const rabbet_plan_t* plan = engine->plan;
  uint8_t* to = (uint8_t*)(uintptr_t)plan->weights;
  const rabbet_plan_sequence_t* sequence = NULL;
  const rabbet_plan_value_t* bytes =
      rabbet_plan_find_value(plan, pair[0], NULL);
  const rabbet_plan_value_t* scale =
      rabbet_plan_find_value(plan, pair[1], &sequence);
  assert(bytes->dtype == RABBET_DTYPE_INT8);
  assert(scale->dtype == RABBET_DTYPE_FLOAT);
  int64_t count = 0;
  int8_t* made = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(&dims, &count));
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(engine->allocator, (size_t)count + 1, (void**)&made));
  // One scale for all: a tensor of one channel.
  rabbet_dims_t whole = {.rank = 2, .d = {1, count}};
  int32_t axis = refit_axis(sequence, scale);
  assert(axis < dims.rank);
  const rabbet_dims_t* along = axis < 0 ? &whole : &dims;
  float* scales = (float*)(to + scale->offset);
  rabbet_quantize_measure(along, axis < 0 ? 0 : axis, data, scales);
  rabbet_quantize_round(along, axis < 0 ? 0 : axis, data, scales, made);
  rabbet_lay_out(RABBET_DTYPE_INT8, made, &dims, RABBET_DTYPE_INT8,
                 bytes->format, to + bytes->offset);
  rabbet_free(engine->allocator, made);
  return rabbet_ok();
}

static void refit_write_range(rabbet_engine_t* engine,
                              const rabbet_plan_scale_t* scale, float range) {
  const rabbet_plan_t* plan = engine->plan;
  uint8_t* to = (uint8_t*)(uintptr_t)plan->weights;
  for (size_t i = 0; i < scale->value_count; ++i) {
    const rabbet_plan_value_t* value =
        rabbet_plan_find_value(plan, scale->values[i], NULL);
    rabbet_store_double(value->dtype, to + value->offset, 0,
                        (double)rabbet_quantize_scale(range));
  }
}

static rabbet_status_t refit_write(rabbet_engine_t* engine,
                                   const rabbet_plan_weights_t* refit,
                                   const rabbet_weights_t* weights) {
  const rabbet_plan_t* plan = engine->plan;
  uint8_t* to = (uint8_t*)(uintptr_t)plan->weights;
  // They are written into the engine's own copy, never into the file's.
  assert(engine->refitted && plan->weights_size == plan->full_size);
  rabbet_dims_t dims = refit_dims(plan, refit);
  for (size_t i = 0; i < refit->value_count; ++i) {
    const rabbet_plan_value_t* value =
        rabbet_plan_find_value(plan, refit->values[i], NULL);
    if (value->dtype == refit->dtype && value->format == RABBET_FORMAT_LINEAR)
      memcpy(to + value->offset, weights->data, (size_t)value->size);
    else
      rabbet_lay_out(refit->dtype, weights->data, &dims, value->dtype,
                     value->format, to + value->offset);
  }
  for (size_t i = 0; i < refit->byte_count; ++i)
    RABBET_RETURN_IF_ERROR(
        refit_write_bytes(engine, &refit->bytes[2 * i], dims, weights->data));
  return rabbet_ok();
}

static void refit_forget(rabbet_engine_t* engine) {
  pthread_mutex_lock(&engine->contexts_lock);
  for (rabbet_context_t* at = engine->contexts; at; at = at->next)
    rabbet_context_forget(at);
  pthread_mutex_unlock(&engine->contexts_lock);
}

static rabbet_status_t refit_kernels(rabbet_engine_t* engine) {
  refit_forget(engine);
  rabbet_engine_destroy_steps(engine);
  rabbet_plan_link_constants(engine->plan);
  RABBET_RETURN_IF_ERROR(rabbet_engine_create_steps(engine));
  return rabbet_engine_upload_weights(engine);
}

rabbet_status_t rabbet_refitter_commit(rabbet_refitter_t* refitter) {
  rabbet_engine_t* engine = refitter->engine;
  const rabbet_plan_t* plan = engine->plan;
  RABBET_RETURN_IF_ERROR(refit_check_missing(refitter));
  RABBET_RETURN_IF_ERROR(refit_own(engine));
  rabbet_status_t status = rabbet_ok();
  for (size_t i = 0; rabbet_is_ok(status) && i < plan->refit_count; ++i) {
    if (!refitter->weights[i].data) continue;
    status = refit_write(engine, &plan->refits[i], &refitter->weights[i]);
    refitter->weights[i] = (rabbet_weights_t){0};
  }
  for (size_t i = 0; rabbet_is_ok(status) && i < plan->scale_count; ++i) {
    if (refitter->ranges[i] > 0)
      refit_write_range(engine, &plan->scales[i], refitter->ranges[i]);
    refitter->ranges[i] = 0;
  }
  rabbet_plan_reseal(engine->refitted);
  if (rabbet_is_ok(status)) status = refit_kernels(engine);
  engine->lacks_weights = !rabbet_is_ok(status);
  return RABBET_ANNOTATE(status, "refitting the engine");
}
