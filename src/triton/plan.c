#include "triton/plan.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

// ---- Types

static const struct {
  rabbet_dtype_t dtype;
  TRITONSERVER_DataType type;
  const char* name;  // in configurations
} plan_types[] = {
    {RABBET_DTYPE_FLOAT, TRITONSERVER_TYPE_FP32, "TYPE_FP32"},
    {RABBET_DTYPE_HALF, TRITONSERVER_TYPE_FP16, "TYPE_FP16"},
    {RABBET_DTYPE_BF16, TRITONSERVER_TYPE_BF16, "TYPE_BF16"},
    {RABBET_DTYPE_DOUBLE, TRITONSERVER_TYPE_FP64, "TYPE_FP64"},
    {RABBET_DTYPE_INT8, TRITONSERVER_TYPE_INT8, "TYPE_INT8"},
    {RABBET_DTYPE_UINT8, TRITONSERVER_TYPE_UINT8, "TYPE_UINT8"},
    {RABBET_DTYPE_INT32, TRITONSERVER_TYPE_INT32, "TYPE_INT32"},
    {RABBET_DTYPE_INT64, TRITONSERVER_TYPE_INT64, "TYPE_INT64"},
    {RABBET_DTYPE_BOOL, TRITONSERVER_TYPE_BOOL, "TYPE_BOOL"},
};
enum { PLAN_TYPE_COUNT = sizeof(plan_types) / sizeof(*plan_types) };

TRITONSERVER_DataType rabbet_triton_type(rabbet_dtype_t dtype) {
  for (int i = 0; i < PLAN_TYPE_COUNT; ++i) {
    if (plan_types[i].dtype == dtype) return plan_types[i].type;
  }
  return TRITONSERVER_TYPE_INVALID;
}

const char* rabbet_triton_type_name(rabbet_dtype_t dtype) {
  for (int i = 0; i < PLAN_TYPE_COUNT; ++i) {
    if (plan_types[i].dtype == dtype) return plan_types[i].name;
  }
  return "";
}

static rabbet_status_t plan_check_types(const rabbet_triton_plan_t* plan) {
  for (size_t i = 0; i < plan->io_count; ++i) {
    const rabbet_io_t* io = rabbet_triton_plan_io(plan, i);
    const char* kind = io->is_input ? "input" : "output";
    if (rabbet_triton_type(io->dtype) == TRITONSERVER_TYPE_INVALID)
      return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                           "%s '%s' is %s, a type that the server lacks", kind,
                           io->name, rabbet_dtype_name(io->dtype));
    if (io->format != RABBET_FORMAT_LINEAR)
      return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                           "%s '%s' has format %s; build the plan with LINEAR "
                           "inputs and outputs to serve it",
                           kind, io->name, rabbet_format_name(io->format));
  }
  return rabbet_ok();
}

// ---- The batch

static void RABBET_PRINTF(2, 3)
    plan_is_not_batched(rabbet_triton_plan_t* plan, const char* why, ...) {
  va_list arguments;
  plan->batch_limit = 0;
  if (*plan->why_not) return;
  va_start(arguments, why);
  vsnprintf(plan->why_not, sizeof(plan->why_not), why, arguments);
  va_end(arguments);
}

static const rabbet_triton_range_t* plan_range(const rabbet_triton_plan_t* plan,
                                               size_t profile, size_t input) {
  return &plan->ranges[profile * plan->input_count + input];
}

// Whether the inputs of a profile have a first dimension that is the same.
static bool plan_inputs_share_batch(rabbet_triton_plan_t* plan,
                                    size_t profile) {
  const rabbet_triton_range_t* first = plan_range(plan, profile, 0);
  for (size_t i = 0; i < plan->input_count; ++i) {
    const rabbet_io_t* io = rabbet_triton_plan_io(plan, i);
    const rabbet_triton_range_t* range = plan_range(plan, profile, i);
    if (io->is_shape_input || io->dims.rank < 1) {
      plan_is_not_batched(plan, "input '%s' has no batch dimension", io->name);
      return false;
    }
    if (range->min.d[0] != first->min.d[0] ||
        range->max.d[0] != first->max.d[0]) {
      plan_is_not_batched(
          plan,
          "the first dimensions of inputs '%s' and '%s' have other ranges",
          rabbet_triton_plan_io(plan, 0)->name, io->name);
      return false;
    }
  }
  return plan->input_count > 0;
}

static void plan_find_batch(rabbet_triton_plan_t* plan) {
  int64_t low = INT64_MAX, high = 0;
  if (plan->input_count == 0) plan_is_not_batched(plan, "it has no inputs");
  for (size_t p = 0; p < plan->profile_count; ++p) {
    if (!plan_inputs_share_batch(plan, p)) return;
    const rabbet_triton_range_t* range = plan_range(plan, p, 0);
    if (range->min.d[0] < low) low = range->min.d[0];
    if (range->max.d[0] > high) high = range->max.d[0];
  }
  if (low > 1)
    plan_is_not_batched(plan, "the smallest batch that it takes is %lld",
                        (long long)low);
  else
    plan->batch_limit = high;
}

// ---- Shapes of outputs

// Sets the inputs' shapes to the optimum with another first dimension, unless
// `batch` is -1. Values of shape inputs are for the run to tell: outputs whose
// shapes depend on them count as data-dependent.
static rabbet_status_t plan_set_inputs(const rabbet_triton_plan_t* plan,
                                       rabbet_context_t* context,
                                       size_t profile, int64_t batch) {
  for (size_t i = 0; i < plan->input_count; ++i) {
    rabbet_dims_t dims = plan_range(plan, profile, i)->opt;
    if (batch >= 0) dims.d[0] = batch;
    RABBET_RETURN_IF_ERROR(rabbet_context_set_input_shape(context, i, &dims));
  }
  return rabbet_ok();
}

static rabbet_status_t plan_ask_outputs(rabbet_triton_plan_t* plan,
                                        rabbet_context_t* context,
                                        int64_t batch) {
  for (size_t i = plan->input_count; i < plan->io_count; ++i) {
    const rabbet_io_t* io = rabbet_triton_plan_io(plan, i);
    rabbet_dims_t dims;
    RABBET_RETURN_IF_ERROR(rabbet_context_shape(context, i, &dims));
    for (int32_t axis = 0; axis < dims.rank; ++axis) {
      if (dims.d[axis] < 0) plan->data_dependent[i] = true;
    }
    if (plan->batch_limit && (dims.rank < 1 || dims.d[0] != batch))
      plan_is_not_batched(plan, "output '%s' has no batch dimension", io->name);
  }
  return rabbet_ok();
}

static rabbet_status_t plan_ask_profile(rabbet_triton_plan_t* plan,
                                        size_t profile) {
  rabbet_context_t* context = NULL;
  const rabbet_triton_range_t* range = plan_range(plan, profile, 0);
  RABBET_RETURN_IF_ERROR(
      rabbet_context_create(plan->engine, plan->allocator, &context));
  rabbet_status_t status = rabbet_context_set_profile(context, profile);
  // Two batches tell a batch from a number that happens to be the same.
  for (int i = 0; rabbet_is_ok(status) && i < 2; ++i) {
    int64_t batch = -1;
    if (plan->batch_limit) batch = i ? range->max.d[0] : range->min.d[0];
    status = plan_set_inputs(plan, context, profile, batch);
    if (rabbet_is_ok(status)) status = plan_ask_outputs(plan, context, batch);
  }
  rabbet_context_destroy(context);
  return status;
}

// ---- The whole

static rabbet_status_t plan_read_ranges(rabbet_triton_plan_t* plan) {
  for (size_t p = 0; p < plan->profile_count; ++p) {
    for (size_t i = 0; i < plan->input_count; ++i) {
      rabbet_triton_range_t* range = &plan->ranges[p * plan->input_count + i];
      RABBET_RETURN_IF_ERROR(rabbet_engine_profile_shape(
          plan->engine, p, i, &range->min, &range->opt, &range->max));
    }
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_triton_plan_initialize(rabbet_engine_t* engine,
                                              rabbet_allocator_t allocator,
                                              rabbet_triton_plan_t* out_plan) {
  rabbet_triton_plan_t plan = {
      .allocator = allocator,
      .engine = engine,
      .io_count = rabbet_engine_io_count(engine),
      .profile_count = rabbet_engine_profile_count(engine),
  };
  *out_plan = (rabbet_triton_plan_t){0};
  while (plan.input_count < plan.io_count &&
         rabbet_engine_io(engine, plan.input_count)->is_input)
    ++plan.input_count;
  rabbet_status_t status = plan_check_types(&plan);
  if (rabbet_is_ok(status))
    status = rabbet_allocate(
        allocator, plan.profile_count * plan.input_count * sizeof(*plan.ranges),
        (void**)&plan.ranges);
  if (rabbet_is_ok(status))
    status =
        rabbet_allocate(allocator, plan.io_count * sizeof(*plan.data_dependent),
                        (void**)&plan.data_dependent);
  if (rabbet_is_ok(status)) status = plan_read_ranges(&plan);
  if (rabbet_is_ok(status)) plan_find_batch(&plan);
  for (size_t p = 0; rabbet_is_ok(status) && p < plan.profile_count; ++p)
    status = plan_ask_profile(&plan, p);
  if (rabbet_is_ok(status))
    *out_plan = plan;
  else
    rabbet_triton_plan_deinitialize(&plan);
  return status;
}

void rabbet_triton_plan_deinitialize(rabbet_triton_plan_t* plan) {
  rabbet_free(plan->allocator, plan->ranges);
  rabbet_free(plan->allocator, plan->data_dependent);
  *plan = (rabbet_triton_plan_t){0};
}

// How far shapes are from a profile's optimum; -1: outside of it.
static double plan_distance(const rabbet_triton_plan_t* plan, size_t profile,
                            const rabbet_dims_t* dims) {
  double distance = 0;
  for (size_t i = 0; i < plan->input_count; ++i) {
    const rabbet_triton_range_t* range = plan_range(plan, profile, i);
    if (dims[i].rank != range->opt.rank) return -1;
    for (int32_t axis = 0; axis < dims[i].rank; ++axis) {
      int64_t d = dims[i].d[axis];
      if (d < range->min.d[axis] || d > range->max.d[axis]) return -1;
      distance += (double)llabs(d - range->opt.d[axis]);
    }
  }
  return distance;
}

int32_t rabbet_triton_plan_profile(const rabbet_triton_plan_t* plan,
                                   const rabbet_dims_t* dims) {
  int32_t best = -1;
  double least = 0;
  for (size_t p = 0; p < plan->profile_count; ++p) {
    double distance = plan_distance(plan, p, dims);
    if (distance < 0 || (best >= 0 && distance >= least)) continue;
    best = (int32_t)p;
    least = distance;
  }
  return best;
}
