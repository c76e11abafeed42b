// The kernel class "plugin": a group of one plugin layer, on every device.
#include <stdio.h>
#include <string.h>

#include "base/math.h"
#include "core/lay_out.h"
#include "device/device.h"
#include "device/plugin_kernel.h"

// An input of the node, and its place in the group's boundary.
typedef struct plugin_operand_t {
  int32_t boundary;  // index of the boundary input; -1: omitted
  int32_t value;     // group value; -1: omitted
} plugin_operand_t;

typedef struct plugin_kernel_t {
  rabbet_kernel_t base;
  rabbet_allocator_t allocator;
  rabbet_device_t* device;  // borrowed from the spec
  const rabbet_group_t* group;
  const rabbet_group_node_t* node;
  int32_t tactic;
  plugin_operand_t operands[];  // node inputs
} plugin_kernel_t;

typedef struct plugin_state_t {
  rabbet_plugin_t* plugin;  // this context's instance
  rabbet_plugin_call_t call;
  void* host_values;  // memory of the shape inputs
  uint64_t sizes;     // outputs that are zeroed before each run, by bits
  rabbet_plugin_view_t views[];  // inputs, then outputs
} plugin_state_t;

static const rabbet_group_node_t* plugin_node(const rabbet_group_t* group) {
  if (group->node_count != 1 || !group->nodes[0].plugin) return NULL;
  return &group->nodes[0];
}

static int32_t boundary_index(const int32_t* boundary, size_t count,
                              int32_t value) {
  for (size_t i = 0; i < count; ++i) {
    if (boundary[i] == value) return (int32_t)i;
  }
  return -1;
}

// ---- Proposing -------------------------------------------------------------

typedef struct plugin_proposal_t {
  const rabbet_propose_t* propose;
  const rabbet_kernel_class_t* kernel;  // the class to offer
  const rabbet_group_node_t* node;
  rabbet_candidate_sink_t sink;
  rabbet_plugin_query_t query;
  rabbet_plugin_tensor_t* tensors;  // of the query: node inputs, then outputs
  rabbet_type_format_t* boundary;   // of the candidate
  int32_t* aliased;                 // of the candidate
  size_t offered, accepted;
  size_t apart;  // combinations with unequal tensors in the same memory
  bool cannot;   // the plugin cannot run on this device
} plugin_proposal_t;

// Value of the query's tensor i, or -1.
static int32_t query_value(const rabbet_group_node_t* node, size_t i) {
  return i < node->input_count ? node->inputs[i]
                               : node->outputs[i - node->input_count];
}

static void query_tensor(const rabbet_group_t* group, int32_t value,
                         rabbet_plugin_tensor_t* out_tensor) {
  *out_tensor = (rabbet_plugin_tensor_t){.dtype = RABBET_DTYPE_NONE,
                                         .format = RABBET_FORMAT_LINEAR};
  if (value < 0) return;
  const rabbet_group_value_t* from = &group->values[value];
  out_tensor->dtype = from->dtype;
  out_tensor->format = from->format;
  out_tensor->dims = from->dims;
  out_tensor->min = from->min;
  out_tensor->opt = from->dims;
  out_tensor->max = from->max;
  for (int32_t axis = 0; axis < from->dims.rank; ++axis) {
    if (from->min.d[axis] != from->max.d[axis]) out_tensor->dims.d[axis] = -1;
  }
}

void rabbet_plugin_query_node(const rabbet_group_t* group,
                              const rabbet_group_node_t* node,
                              const char* device,
                              rabbet_plugin_tensor_t* tensors,
                              rabbet_plugin_query_t* out_query) {
  for (size_t i = 0; i < node->input_count + node->output_count; ++i)
    query_tensor(group, query_value(node, i), &tensors[i]);
  *out_query = (rabbet_plugin_query_t){.struct_size = sizeof(*out_query),
                                       .layer_name = node->name,
                                       .device = device,
                                       .tensors = tensors,
                                       .input_count = node->input_count,
                                       .output_count = node->output_count};
}

// Whether a tensor may have this type: its own, or, in a weakly typed network,
// one that the user allowed.
static bool dtype_allowed(const rabbet_propose_t* propose,
                          rabbet_dtype_t network, rabbet_dtype_t wanted) {
  if (network == wanted) return true;
  return (propose->extra_dtypes >> wanted & 1) &&
         (network == RABBET_DTYPE_FLOAT || network == RABBET_DTYPE_HALF ||
          network == RABBET_DTYPE_BF16);
}

static rabbet_status_t proposal_add_tactic(void* context, int32_t tactic) {
  plugin_proposal_t* proposal = context;
  rabbet_candidate_t candidate = {.kernel = proposal->kernel,
                                  .tactic = tactic,
                                  .tensors = proposal->boundary,
                                  .aliased = proposal->aliased};
  if (tactic == 0) {
    snprintf(candidate.tactic_name, sizeof(candidate.tactic_name), "default");
  } else {
    snprintf(candidate.tactic_name, sizeof(candidate.tactic_name), "tactic %d",
             tactic);
  }
  ++proposal->accepted;
  return proposal->sink.add(proposal->sink.context, &candidate);
}

// Writes one tensor's choice to the boundary; false if the same value was
// given two choices, or one that is not allowed.
static bool proposal_place(plugin_proposal_t* proposal, size_t i,
                           rabbet_plugin_type_format_t choice) {
  const rabbet_group_t* group = proposal->propose->group;
  int32_t value = query_value(proposal->node, i);
  if (value < 0) return true;
  bool is_input = i < proposal->node->input_count;
  int32_t at = is_input
                   ? boundary_index(group->inputs, group->input_count, value)
                   : boundary_index(group->outputs, group->output_count, value);
  if (!dtype_allowed(proposal->propose, group->values[value].dtype,
                     choice.dtype)) {
    return false;
  }
  rabbet_type_format_t* slot =
      &proposal
           ->boundary[is_input ? (size_t)at : group->input_count + (size_t)at];
  if (slot->dtype != RABBET_DTYPE_NONE &&
      (slot->dtype != choice.dtype || slot->format != choice.format)) {
    return false;
  }
  *slot = (rabbet_type_format_t){choice.dtype, choice.format};
  return true;
}

// Checks that tensors that share memory have the same type and format.
static bool proposal_in_place(const plugin_proposal_t* proposal) {
  const rabbet_group_t* group = proposal->propose->group;
  for (size_t i = 0; i < group->output_count; ++i) {
    if (proposal->aliased[i] < 0) continue;
    const rabbet_type_format_t* input =
        &proposal->boundary[proposal->aliased[i]];
    const rabbet_type_format_t* output =
        &proposal->boundary[group->input_count + i];
    if (input->dtype != output->dtype || input->format != output->format)
      return false;
  }
  return true;
}

static rabbet_status_t proposal_add_combination(
    void* context, const rabbet_plugin_type_format_t* choices) {
  plugin_proposal_t* proposal = context;
  if (proposal->cannot)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "layer '%s': plugin '%s' cannot run on device '%s' in "
                         "the way that is asked for (its own function, or a "
                         "kernel made ahead of time)",
                         proposal->node->name,
                         rabbet_plugin_creator(proposal->node->plugin)->name,
                         proposal->query.device);
  const rabbet_group_t* group = proposal->propose->group;
  size_t count = proposal->query.input_count + proposal->query.output_count;
  ++proposal->offered;
  for (size_t i = 0; i < group->input_count + group->output_count; ++i) {
    proposal->boundary[i] =
        (rabbet_type_format_t){RABBET_DTYPE_NONE, RABBET_FORMAT_NONE};
  }
  for (size_t i = 0; i < count; ++i) {
    if (!proposal_place(proposal, i, choices[i])) return rabbet_ok();
    proposal->tensors[i].dtype = choices[i].dtype;
    proposal->tensors[i].format = choices[i].format;
  }
  if (!proposal_in_place(proposal)) {
    ++proposal->apart;
    return rabbet_ok();
  }
  return rabbet_plugin_tactics(
      proposal->node->plugin, &proposal->query,
      (rabbet_plugin_tactic_sink_t){proposal, proposal_add_tactic});
}

// Translates the node's aliases to numbers of boundary inputs and outputs.
static void proposal_aliases(plugin_proposal_t* proposal) {
  const rabbet_group_t* group = proposal->propose->group;
  const rabbet_group_node_t* node = proposal->node;
  for (size_t i = 0; i < group->output_count; ++i)
    proposal->aliased[i] = -1;
  for (size_t i = 0; node->aliased && i < node->output_count; ++i) {
    int32_t at =
        boundary_index(group->outputs, group->output_count, node->outputs[i]);
    if (node->aliased[i] < 0) continue;
    proposal->aliased[at] = boundary_index(group->inputs, group->input_count,
                                           node->inputs[node->aliased[i]]);
  }
}

// The error if the plugin accepted no combination.
static rabbet_status_t proposal_refuse(const plugin_proposal_t* proposal) {
  const char* name = rabbet_plugin_creator(proposal->node->plugin)->name;
  if (proposal->apart > 0)
    return RABBET_STATUS(
        RABBET_STATUS_UNSUPPORTED,
        "plugin '%s' offers %zu combination%s of types and formats, and none "
        "gives an output that works in place the type and format of its input",
        name, proposal->offered, rabbet_plural(proposal->offered));
  return RABBET_STATUS(
      RABBET_STATUS_UNSUPPORTED,
      "plugin '%s' offers %zu combination%s of types and formats, and none "
      "fits the network's types; allow the builder others (flags FP16, BF16), "
      "cast its inputs, or add a combination",
      name, proposal->offered, rabbet_plural(proposal->offered));
}

rabbet_status_t rabbet_plugin_propose_kind(const rabbet_propose_t* propose,
                                           rabbet_candidate_sink_t sink,
                                           const rabbet_kernel_class_t* kernel,
                                           uint32_t kind) {
  const rabbet_group_t* group = propose->group;
  const rabbet_group_node_t* node = plugin_node(group);
  if (!node) return rabbet_ok();
  uint32_t kinds = rabbet_plugin_kinds(node->plugin, propose->device->kind);
  // A plugin without a usable kind is called, too: its own error is more
  // precise.
  if (kinds != 0 && !(kinds & kind)) return rabbet_ok();
  size_t tensors = node->input_count + node->output_count;
  size_t boundary = group->input_count + group->output_count;
  plugin_proposal_t proposal = {.propose = propose,
                                .kernel = kernel,
                                .node = node,
                                .sink = sink,
                                .cannot = kinds == 0};
  rabbet_arena_t arena;
  rabbet_arena_initialize(propose->allocator, &arena);
  rabbet_status_t status = rabbet_arena_allocate_array(
      &arena, tensors, sizeof(*proposal.tensors), (void**)&proposal.tensors);
  if (rabbet_is_ok(status)) {
    status = rabbet_arena_allocate_array(&arena, boundary,
                                         sizeof(*proposal.boundary),
                                         (void**)&proposal.boundary);
  }
  if (rabbet_is_ok(status)) {
    status =
        rabbet_arena_allocate_array(&arena, group->output_count,
                                    sizeof(int32_t), (void**)&proposal.aliased);
  }
  if (rabbet_is_ok(status)) {
    rabbet_plugin_query_node(group, node, propose->device->kind,
                             proposal.tensors, &proposal.query);
    for (size_t i = 0; i < tensors; ++i)
      proposal.tensors[i].format = RABBET_FORMAT_LINEAR;
    proposal_aliases(&proposal);
    status =
        rabbet_plugin_combinations(node->plugin, &proposal.query,
                                   (rabbet_plugin_combination_sink_t){
                                       &proposal, proposal_add_combination});
  }
  if (rabbet_is_ok(status) && proposal.accepted == 0) {
    status = proposal_refuse(&proposal);
  }
  rabbet_arena_deinitialize(&arena);
  return status;
}
static rabbet_status_t plugin_propose(const rabbet_propose_t* propose,
                                      rabbet_candidate_sink_t sink) {
  return rabbet_plugin_propose_kind(propose, sink, &rabbet_plugin_kernel_class,
                                    RABBET_PLUGIN_RUNS);
}

// ---- Running ---------------------------------------------------------------

static rabbet_status_t plugin_kernel_create(const rabbet_kernel_spec_t* spec,
                                            rabbet_kernel_t** out_kernel) {
  *out_kernel = NULL;
  const rabbet_group_t* group = spec->group;
  const rabbet_group_node_t* node = plugin_node(group);
  if (!node) {
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "a plugin step must hold one plugin layer, not %zu "
                         "layers",
                         group->node_count);
  }
  plugin_kernel_t* kernel = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      spec->allocator,
      sizeof(*kernel) + node->input_count * sizeof(kernel->operands[0]),
      (void**)&kernel));
  kernel->base.kernel_class = &rabbet_plugin_kernel_class;
  kernel->allocator = spec->allocator;
  kernel->device = spec->device;
  kernel->group = group;
  kernel->node = node;
  kernel->tactic = spec->tactic;
  for (size_t i = 0; i < node->input_count; ++i) {
    kernel->operands[i].value = node->inputs[i];
    kernel->operands[i].boundary =
        boundary_index(group->inputs, group->input_count, node->inputs[i]);
  }
  *out_kernel = &kernel->base;
  return rabbet_ok();
}

static void plugin_kernel_destroy(rabbet_kernel_t* base) {
  if (!base) return;
  plugin_kernel_t* kernel = (plugin_kernel_t*)base;
  rabbet_free(kernel->allocator, kernel);
}

static bool plugin_kernel_is_shape_input(const plugin_kernel_t* kernel,
                                         size_t input) {
  uint64_t mask = rabbet_plugin_shape_inputs(kernel->node->plugin);
  return input < 64 && (mask >> input & 1);
}

// Writes the host's values of all shape inputs, each in its own type, one after
// the other, and sets the views to them.
static rabbet_status_t state_host_values(const plugin_kernel_t* kernel,
                                         const rabbet_kernel_shapes_t* shapes,
                                         plugin_state_t* state) {
  size_t total = 0;
  for (size_t i = 0; i < kernel->node->input_count; ++i) {
    if (!state->views[i].is_shape_input) continue;
    size_t bytes = 0;
    RABBET_RETURN_IF_ERROR(rabbet_tensor_bytes(state->views[i].dtype,
                                               RABBET_FORMAT_LINEAR,
                                               &state->views[i].dims, &bytes));
    total += rabbet_align_up(bytes, 16);
  }
  if (total == 0) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(kernel->allocator, total, &state->host_values));
  uint8_t* next = state->host_values;
  for (size_t i = 0; i < kernel->node->input_count; ++i) {
    rabbet_plugin_view_t* view = &state->views[i];
    if (!view->is_shape_input) continue;
    const int64_t* values = shapes->host_values[kernel->operands[i].value];
    int64_t count = 0;
    RABBET_RETURN_IF_ERROR(rabbet_dims_count(&view->dims, &count));
    if (!values && count > 0) {
      return RABBET_STATUS(RABBET_STATUS_INTERNAL,
                           "the values of shape input %zu are not known to the "
                           "host",
                           i);
    }
    for (int64_t k = 0; k < count; ++k) {
      rabbet_store_int64(view->dtype, next, k, values[k]);
    }
    view->data = next;
    next += rabbet_align_up(
        (size_t)count * (size_t)rabbet_dtype_bits(view->dtype) / 8, 16);
  }
  return rabbet_ok();
}

static void state_views(const plugin_kernel_t* kernel,
                        const rabbet_kernel_shapes_t* shapes,
                        plugin_state_t* state) {
  const rabbet_group_node_t* node = kernel->node;
  for (size_t i = 0; i < node->input_count + node->output_count; ++i) {
    int32_t value = query_value(node, i);
    rabbet_plugin_view_t* view = &state->views[i];
    *view =
        (rabbet_plugin_view_t){.dtype = RABBET_DTYPE_NONE, .aliased_input = -1};
    if (value < 0) continue;
    view->dtype = kernel->group->values[value].dtype;
    view->format = kernel->group->values[value].format;
    view->dims = shapes->dims[value];
    bool open = false;
    for (int32_t axis = 0; axis < view->dims.rank; ++axis)
      open |= view->dims.d[axis] < 0;
    if (open && shapes->bytes && shapes->bytes[value] != SIZE_MAX)
      view->bytes = shapes->bytes[value];
    if (i < node->input_count) {
      view->is_shape_input = plugin_kernel_is_shape_input(kernel, i);
    } else if (node->aliased) {
      view->aliased_input = node->aliased[i - node->input_count];
    }
  }
}

// Outputs that may be size outputs: scalars of a node with a data-dependent
// extent. Kernels count in them, so they are zeroed before a run.
static uint64_t state_sizes(const rabbet_plugin_view_t* outputs, size_t count) {
  uint64_t numbers = 0;
  bool open = false;
  for (size_t i = 0; i < count && i < 64; ++i) {
    const rabbet_plugin_view_t* view = &outputs[i];
    for (int32_t axis = 0; axis < view->dims.rank; ++axis)
      open |= view->dims.d[axis] < 0;
    bool number = view->dims.rank == 0 && view->aliased_input < 0 &&
                  (view->dtype == RABBET_DTYPE_INT32 ||
                   view->dtype == RABBET_DTYPE_INT64);
    if (number) numbers |= (uint64_t)1 << i;
  }
  return open ? numbers : 0;
}

// Plugins allocate, compile and free in `prepare`, so a GPU's context is made
// current, as in enqueue.
static rabbet_status_t plugin_enter(rabbet_device_t* device, void** out_token) {
  *out_token = NULL;
  if (device->host_memory || !device->vtable->begin_run) return rabbet_ok();
  return device->vtable->begin_run(device, 1, out_token);
}

static void plugin_leave(rabbet_device_t* device, void* token) {
  if (!device->host_memory && device->vtable->end_run)
    device->vtable->end_run(device, token);
}

static rabbet_status_t plugin_state_prepare(plugin_kernel_t* kernel,
                                            plugin_state_t* state,
                                            size_t* out_workspace) {
  void* token = NULL;
  RABBET_RETURN_IF_ERROR(plugin_enter(kernel->device, &token));
  rabbet_status_t status = rabbet_plugin_prepare(
      state->plugin, &state->call, out_workspace, &state->call.state);
  plugin_leave(kernel->device, token);
  return status;
}

static void plugin_state_unprepare(plugin_kernel_t* kernel,
                                   plugin_state_t* state) {
  if (!state->call.state) return;
  void* token = NULL;
  rabbet_status_t status = plugin_enter(kernel->device, &token);
  rabbet_plugin_destroy_state(state->plugin, state->call.state);
  if (rabbet_is_ok(status)) plugin_leave(kernel->device, token);
  rabbet_status_ignore(status);  // the host's memory is freed in any case
}

static void plugin_state_destroy(rabbet_kernel_t* base,
                                 rabbet_kernel_state_t* prepared) {
  plugin_state_t* state = (plugin_state_t*)prepared;
  if (!state) return;
  plugin_kernel_t* kernel = (plugin_kernel_t*)base;
  if (state->plugin) {
    plugin_state_unprepare(kernel, state);
    rabbet_plugin_release(state->plugin);
  }
  rabbet_free(kernel->allocator, state->host_values);
  rabbet_free(kernel->allocator, state);
}

static rabbet_status_t plugin_state_create(rabbet_kernel_t* base,
                                           const rabbet_kernel_shapes_t* shapes,
                                           rabbet_kernel_state_t** out_state,
                                           size_t* out_workspace) {
  plugin_kernel_t* kernel = (plugin_kernel_t*)base;
  const rabbet_group_node_t* node = kernel->node;
  *out_state = NULL;
  *out_workspace = 0;
  plugin_state_t* state = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      kernel->allocator,
      sizeof(*state) +
          (node->input_count + node->output_count) * sizeof(state->views[0]),
      (void**)&state));
  state_views(kernel, shapes, state);
  state->sizes =
      state_sizes(state->views + node->input_count, node->output_count);
  rabbet_status_t status = state_host_values(kernel, shapes, state);
  if (rabbet_is_ok(status)) {
    status = rabbet_plugin_clone(node->plugin, &state->plugin);
  }
  if (rabbet_is_ok(status)) {
    state->call =
        (rabbet_plugin_call_t){.layer_name = node->name,
                               .device = kernel->device->name,
                               .inputs = state->views,
                               .outputs = state->views + node->input_count,
                               .input_count = node->input_count,
                               .output_count = node->output_count,
                               .tactic = kernel->tactic,
                               .threads = shapes->threads};
    status = plugin_state_prepare(kernel, state, out_workspace);
  }
  if (!rabbet_is_ok(status)) {
    plugin_state_destroy(base, (rabbet_kernel_state_t*)state);
    return status;
  }
  *out_state = (rabbet_kernel_state_t*)state;
  return rabbet_ok();
}

static rabbet_status_t plugin_bind(const plugin_kernel_t* kernel,
                                   plugin_state_t* state,
                                   const rabbet_kernel_call_t* call) {
  const rabbet_group_node_t* node = kernel->node;
  for (size_t i = 0; i < node->input_count; ++i) {
    int32_t at = kernel->operands[i].boundary;
    if (at >= 0 && !state->views[i].is_shape_input) {
      state->views[i].data = call->inputs[at];
    }
  }
  for (size_t i = 0; i < node->output_count; ++i) {
    state->views[node->input_count + i].data = call->outputs[i];
  }
  state->call.workspace = call->workspace;
  state->call.stream = call->stream;
  rabbet_device_t* device = kernel->device;
  for (size_t i = 0; i < 64 && state->sizes >> i; ++i) {
    if (!(state->sizes >> i & 1)) continue;
    const rabbet_plugin_view_t* view = &state->call.outputs[i];
    RABBET_RETURN_IF_ERROR(device->vtable->fill(
        device, view->data, 0, (size_t)rabbet_dtype_bits(view->dtype) / 8,
        call->stream));
  }
  return device->vtable->hand_over
             ? device->vtable->hand_over(device, call->stream)
             : rabbet_ok();
}

// Zeroes the padding of outputs: plugins may leave NaN in it, which host
// libraries would multiply by 0.
static void plugin_clear(const rabbet_plugin_view_t* view) {
  rabbet_dims_t dims = view->dims;
  const rabbet_format_info_t* info = rabbet_format_info(view->format);
  if (info->block == 1 || dims.rank < 2 || dims.d[1] % info->block == 0) return;
  size_t each = 0;  // bytes of a batch; the batch may be data-dependent
  bool open = dims.d[0] < 0;
  if (open) dims.d[0] = 1;
  for (int32_t i = 0; i < dims.rank; ++i)
    if (dims.d[i] <= 0) return;
  if (open) {
    rabbet_status_t status =
        rabbet_tensor_bytes(view->dtype, view->format, &dims, &each);
    rabbet_status_ignore(status);
    dims.d[0] = each > 0 ? (int64_t)(view->bytes / each) : 0;
  }
  rabbet_clear_padding(view->dtype, view->format, &dims, view->data);
}

static rabbet_status_t plugin_kernel_enqueue(rabbet_kernel_t* base,
                                             rabbet_kernel_state_t* prepared,
                                             const rabbet_kernel_call_t* call) {
  plugin_state_t* state = (plugin_state_t*)prepared;
  const plugin_kernel_t* kernel = (plugin_kernel_t*)base;
  RABBET_RETURN_IF_ERROR(plugin_bind(kernel, state, call));
  RABBET_RETURN_IF_ERROR(rabbet_plugin_enqueue(state->plugin, &state->call));
  for (size_t i = 0;
       kernel->device->host_memory && i < state->call.output_count; ++i)
    plugin_clear(&state->call.outputs[i]);
  return rabbet_ok();
}

// ---- Graphs ----------------------------------------------------------------

static rabbet_recordable_t plugin_kernel_recordable(
    rabbet_kernel_t* kernel, rabbet_kernel_state_t* prepared) {
  plugin_state_t* state = (plugin_state_t*)prepared;
  (void)kernel;
  switch (rabbet_plugin_capture(state->plugin, &state->call)) {
    case RABBET_PLUGIN_CAPTURE_SAFE:
      return RABBET_RECORDABLE_YES;
    case RABBET_PLUGIN_CAPTURE_NEVER:
      return RABBET_RECORDABLE_NO;
    default:
      return RABBET_RECORDABLE_UNKNOWN;
  }
}

static rabbet_status_t plugin_kernel_record(rabbet_kernel_t* base,
                                            rabbet_kernel_state_t* prepared,
                                            const rabbet_kernel_call_t* call,
                                            void** out_kept) {
  plugin_state_t* state = (plugin_state_t*)prepared;
  *out_kept = NULL;
  RABBET_RETURN_IF_ERROR(plugin_bind((plugin_kernel_t*)base, state, call));
  return rabbet_plugin_enqueue_captured(state->plugin, &state->call, out_kept);
}

static void plugin_kernel_release_recorded(rabbet_kernel_t* kernel,
                                           rabbet_kernel_state_t* prepared,
                                           void* kept) {
  plugin_state_t* state = (plugin_state_t*)prepared;
  (void)kernel;
  rabbet_plugin_release_captured(state->plugin, kept);
}

const rabbet_kernel_class_t rabbet_plugin_kernel_class = {
    .struct_size = sizeof(rabbet_kernel_class_t),
    .name = "plugin",
    .version = 1,
    .flags = RABBET_KERNEL_DOUBLE,
    .propose = plugin_propose,
    .create = plugin_kernel_create,
    .destroy = plugin_kernel_destroy,
    .prepare = plugin_state_create,
    .destroy_state = plugin_state_destroy,
    .enqueue = plugin_kernel_enqueue,
    .recordable = plugin_kernel_recordable,
    .record = plugin_kernel_record,
    .release_recorded = plugin_kernel_release_recorded,
};
