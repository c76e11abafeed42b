#include "device/empty_kernel.h"

typedef struct empty_kernel_t {
  rabbet_kernel_t base;
  rabbet_allocator_t allocator;
  const rabbet_group_t* group;
} empty_kernel_t;

static bool empty_propose_one(const rabbet_propose_t* propose, size_t index,
                              rabbet_type_format_t* tensor) {
  const rabbet_group_t* group = propose->group;
  int32_t v = rabbet_group_boundary(group, index);
  *tensor =
      (rabbet_type_format_t){group->values[v].dtype, RABBET_FORMAT_LINEAR};
  return !propose->fixed || (propose->fixed[index].dtype == tensor->dtype &&
                             propose->fixed[index].format == tensor->format);
}

static rabbet_status_t empty_propose(const rabbet_propose_t* propose,
                                     rabbet_candidate_sink_t sink) {
  const rabbet_group_t* group = propose->group;
  size_t count = group->input_count + group->output_count;
  rabbet_type_format_t* tensors = NULL;
  bool fits = true;
  if (!rabbet_group_makes_nothing(group)) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      propose->allocator, count * sizeof(*tensors), (void**)&tensors));
  for (size_t i = 0; i < count; ++i)
    fits &= empty_propose_one(propose, i, &tensors[i]);
  rabbet_candidate_t candidate = {.kernel = &rabbet_empty_kernel_class,
                                  .tactic_name = "nothing",
                                  .tensors = tensors};
  rabbet_status_t status =
      fits ? sink.add(sink.context, &candidate) : rabbet_ok();
  rabbet_free(propose->allocator, tensors);
  return status;
}

static rabbet_status_t empty_create(const rabbet_kernel_spec_t* spec,
                                    rabbet_kernel_t** out_kernel) {
  empty_kernel_t* kernel = NULL;
  *out_kernel = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(spec->allocator, sizeof(*kernel), (void**)&kernel));
  kernel->base.kernel_class = &rabbet_empty_kernel_class;
  kernel->allocator = spec->allocator;
  kernel->group = spec->group;
  *out_kernel = &kernel->base;
  return rabbet_ok();
}

static void empty_destroy(rabbet_kernel_t* base) {
  if (base) rabbet_free(((empty_kernel_t*)base)->allocator, base);
}

static rabbet_status_t empty_prepare(rabbet_kernel_t* base,
                                     const rabbet_kernel_shapes_t* shapes,
                                     rabbet_kernel_state_t** out_state,
                                     size_t* out_workspace) {
  const rabbet_group_t* group = ((const empty_kernel_t*)base)->group;
  *out_state = NULL;
  *out_workspace = 0;
  for (size_t i = 0; i < group->output_count; ++i) {
    const rabbet_dims_t* dims = &shapes->dims[group->outputs[i]];
    char text[192];
    bool empty = false;
    for (int32_t axis = 0; axis < dims->rank; ++axis)
      empty |= dims->d[axis] == 0;
    if (!empty)
      return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                           "the kernel 'empty' makes no elements; output %zu "
                           "has shape %s",
                           i, rabbet_dims_print(dims, text, sizeof(text)));
  }
  return rabbet_ok();
}

static void empty_destroy_state(rabbet_kernel_t* base,
                                rabbet_kernel_state_t* state) {
  (void)base;
  (void)state;
}

static rabbet_status_t empty_enqueue(rabbet_kernel_t* base,
                                     rabbet_kernel_state_t* state,
                                     const rabbet_kernel_call_t* call) {
  (void)base;
  (void)state;
  (void)call;
  return rabbet_ok();
}

const rabbet_kernel_class_t rabbet_empty_kernel_class = {
    .struct_size = sizeof(rabbet_kernel_class_t),
    .name = "empty",
    .version = 1,
    .flags = RABBET_KERNEL_FALLBACK,
    .propose = empty_propose,
    .create = empty_create,
    .destroy = empty_destroy,
    .prepare = empty_prepare,
    .destroy_state = empty_destroy_state,
    .enqueue = empty_enqueue,
};
