#include "device/reference_kernel.h"

#include <string.h>

#include "base/math.h"
#include "ops/collective/dist_collective.h"

typedef struct reference_kernel_t {
  rabbet_kernel_t base;
  rabbet_allocator_t allocator;
  const rabbet_group_t* group;
} reference_kernel_t;

// Where a value's memory is in a call.
typedef enum reference_place_t {
  RABBET_REFERENCE_WORKSPACE = 0,  // at `offset`
  RABBET_REFERENCE_INPUT = 1,      // boundary input number `offset`
  RABBET_REFERENCE_OUTPUT = 2,
} reference_place_t;

typedef struct reference_value_t {
  rabbet_view_t view;
  reference_place_t place;
  size_t offset;
} reference_value_t;

typedef struct reference_state_t {
  rabbet_allocator_t allocator;
  reference_value_t* values;  // [group value]
  rabbet_view_t* operands;    // of one node
} reference_state_t;

// ---- Proposing

static bool reference_can(const rabbet_group_t* group) {
  for (size_t i = 0; i < group->node_count; ++i) {
    const rabbet_group_node_t* node = &group->nodes[i];
    if (!node->op->reference ||
        rabbet_collective_exchanges(node->op, node->attrs))
      return false;
  }
  return group->node_count > 0;
}

static rabbet_status_t reference_propose(const rabbet_propose_t* propose,
                                         rabbet_candidate_sink_t sink) {
  const rabbet_group_t* group = propose->group;
  size_t count = group->input_count + group->output_count;
  if (!reference_can(group)) return rabbet_ok();
  rabbet_type_format_t* tensors = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      propose->allocator, count * sizeof(*tensors), (void**)&tensors));
  bool fits = true;
  for (size_t i = 0; i < count; ++i) {
    int32_t v = rabbet_group_boundary(group, i);
    tensors[i] =
        (rabbet_type_format_t){group->values[v].dtype, RABBET_FORMAT_LINEAR};
    fits &= !propose->fixed || (propose->fixed[i].dtype == tensors[i].dtype &&
                                propose->fixed[i].format == tensors[i].format);
  }
  rabbet_candidate_t candidate = {.kernel = &rabbet_reference_kernel_class,
                                  .tactic = 0,
                                  .tactic_name = "reference",
                                  .tensors = tensors};
  rabbet_status_t status =
      fits ? sink.add(sink.context, &candidate) : rabbet_ok();
  rabbet_free(propose->allocator, tensors);
  return status;
}

// ---- The kernel

// Checks element sizes: operators that move elements copy bytes of the output's
// element size.
static bool reference_takes(const rabbet_kernel_spec_t* spec) {
  const rabbet_group_t* group = spec->group;
  if (!reference_can(group)) return false;
  for (size_t i = 0; i < group->node_count; ++i)
    if (!rabbet_group_types_fit(group, &group->nodes[i])) return false;
  return true;
}

static rabbet_status_t reference_create(const rabbet_kernel_spec_t* spec,
                                        rabbet_kernel_t** out_kernel) {
  *out_kernel = NULL;
  if (!reference_can(spec->group))
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "the catalogue has no kernel for this group");
  for (size_t i = 0; i < spec->group->value_count; ++i) {
    if (spec->group->values[i].format != RABBET_FORMAT_LINEAR)
      return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                           "a tensor has format %s; expected LINEAR",
                           rabbet_format_name(spec->group->values[i].format));
  }
  reference_kernel_t* kernel = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(spec->allocator, sizeof(*kernel), (void**)&kernel));
  kernel->base.kernel_class = &rabbet_reference_kernel_class;
  kernel->allocator = spec->allocator;
  kernel->group = spec->group;
  *out_kernel = &kernel->base;
  return rabbet_ok();
}

static void reference_destroy(rabbet_kernel_t* base) {
  if (base) rabbet_free(((reference_kernel_t*)base)->allocator, base);
}

// ---- Preparing

static rabbet_status_t reference_place_values(const rabbet_group_t* group,
                                              const rabbet_dims_t* dims,
                                              reference_value_t* values,
                                              size_t* out_workspace) {
  for (size_t i = 0; i < group->input_count; ++i) {
    values[group->inputs[i]].place = RABBET_REFERENCE_INPUT;
    values[group->inputs[i]].offset = i;
  }
  for (size_t i = 0; i < group->output_count; ++i) {
    values[group->outputs[i]].place = RABBET_REFERENCE_OUTPUT;
    values[group->outputs[i]].offset = i;
  }
  for (size_t i = 0; i < group->value_count; ++i) {
    size_t bytes = 0;
    values[i].view = (rabbet_view_t){.dtype = group->values[i].dtype,
                                     .format = RABBET_FORMAT_LINEAR,
                                     .dims = dims[i]};
    // An output's extent may be a size that the layer itself computes.
    if (values[i].place == RABBET_REFERENCE_OUTPUT) continue;
    RABBET_RETURN_IF_ERROR(rabbet_tensor_bytes(
        group->values[i].dtype, RABBET_FORMAT_LINEAR, &dims[i], &bytes));
    if (values[i].place != RABBET_REFERENCE_WORKSPACE) continue;
    values[i].offset = *out_workspace;
    if (!rabbet_checked_add(*out_workspace, bytes, out_workspace) ||
        *out_workspace > PTRDIFF_MAX - 64)
      return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                           "intermediate tensors are too large");
    *out_workspace = rabbet_align_up(*out_workspace, 64);
  }
  return rabbet_ok();
}

static void reference_destroy_state(rabbet_kernel_t* base,
                                    rabbet_kernel_state_t* prepared) {
  reference_state_t* state = (reference_state_t*)prepared;
  (void)base;
  if (!state) return;
  rabbet_free(state->allocator, state->values);
  rabbet_free(state->allocator, state->operands);
  rabbet_free(state->allocator, state);
}

static rabbet_status_t reference_prepare(rabbet_kernel_t* base,
                                         const rabbet_kernel_shapes_t* shapes,
                                         rabbet_kernel_state_t** out_state,
                                         size_t* out_workspace) {
  const reference_kernel_t* kernel = (const reference_kernel_t*)base;
  const rabbet_group_t* group = kernel->group;
  reference_state_t* state = NULL;
  size_t operands = 1;
  *out_workspace = 0;
  for (size_t i = 0; i < group->node_count; ++i) {
    size_t count = group->nodes[i].input_count + group->nodes[i].output_count;
    if (count > operands) operands = count;
  }
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(kernel->allocator, sizeof(*state), (void**)&state));
  state->allocator = kernel->allocator;
  rabbet_status_t status = rabbet_allocate(
      kernel->allocator, group->value_count * sizeof(*state->values),
      (void**)&state->values);
  if (rabbet_is_ok(status))
    status =
        rabbet_allocate(kernel->allocator, operands * sizeof(*state->operands),
                        (void**)&state->operands);
  if (rabbet_is_ok(status))
    status = reference_place_values(group, shapes->dims, state->values,
                                    out_workspace);
  if (!rabbet_is_ok(status)) {
    reference_destroy_state(base, (rabbet_kernel_state_t*)state);
    return status;
  }
  *out_state = (rabbet_kernel_state_t*)state;
  return rabbet_ok();
}

// ---- Running

static void* reference_address(const reference_value_t* value,
                               const rabbet_kernel_call_t* call) {
  switch (value->place) {
    case RABBET_REFERENCE_INPUT:
      return call->inputs[value->offset];
    case RABBET_REFERENCE_OUTPUT:
      return call->outputs[value->offset];
    default:
      return (uint8_t*)call->workspace + value->offset;
  }
}

static rabbet_status_t reference_run_node(const reference_kernel_t* kernel,
                                          const rabbet_group_node_t* node,
                                          reference_state_t* state) {
  size_t inputs = node->input_count;
  for (size_t i = 0; i < inputs + node->output_count; ++i) {
    int32_t v = i < inputs ? node->inputs[i] : node->outputs[i - inputs];
    state->operands[i] = v < 0 ? (rabbet_view_t){.dtype = RABBET_DTYPE_NONE}
                               : state->values[v].view;
  }
  rabbet_op_eval_t eval = {.op = node->op,
                           .allocator = kernel->allocator,
                           .attrs = node->attrs,
                           .attr_count = node->op->attr_count,
                           .inputs = state->operands,
                           .input_count = inputs,
                           .outputs = state->operands + inputs,
                           .output_count = node->output_count};
  return node->op->reference(&eval);
}

static rabbet_status_t reference_enqueue(rabbet_kernel_t* base,
                                         rabbet_kernel_state_t* prepared,
                                         const rabbet_kernel_call_t* call) {
  reference_state_t* state = (reference_state_t*)prepared;
  const reference_kernel_t* kernel = (const reference_kernel_t*)base;
  const rabbet_group_t* group = kernel->group;
  for (size_t i = 0; i < group->value_count; ++i)
    state->values[i].view.data = reference_address(&state->values[i], call);
  for (size_t i = 0; i < group->node_count; ++i)
    RABBET_RETURN_IF_ERROR(
        RABBET_ANNOTATE(reference_run_node(kernel, &group->nodes[i], state),
                        "layer '%s'", group->nodes[i].name));
  return rabbet_ok();
}

const rabbet_kernel_class_t rabbet_reference_kernel_class = {
    .struct_size = sizeof(rabbet_kernel_class_t),
    .name = "reference",
    .version = 1,
    .flags = RABBET_KERNEL_FALLBACK | RABBET_KERNEL_DOUBLE,
    .propose = reference_propose,
    .create = reference_create,
    .destroy = reference_destroy,
    .prepare = reference_prepare,
    .destroy_state = reference_destroy_state,
    .enqueue = reference_enqueue,
    .takes = reference_takes,
};
