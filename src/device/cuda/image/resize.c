// Resizing. Tables in the device's memory have the source positions and weights
// for each position of an axis. A thread computes 16 bytes of the output if
// addresses and extents are multiples of them. Bound by bytes.
#include "device/common/resize.h"

#include <string.h>

#include "core/view.h"
#include "device/cuda/image/resize_params.h"
#include "device/cuda/movement/move.h"

enum { LINE, PLANE, SPACE, ANY, RANKS };
enum { SINGLE, INSIDE, ALONG, WAYS };
enum { THREADS = 256, WIDE = 16 };

typedef struct cuda_resize_kernel_t {
  rabbet_cuda_node_t node;
  rabbet_device_t* base;
  int64_t size;                       // bytes of an element
  CUfunction functions[RANKS][WAYS];  // NULL: no such kernel
} cuda_resize_kernel_t;

typedef struct cuda_resize_state_t {
  bool is_empty;
  void* tables;  // positions, then weights
  int64_t entries;
  rabbet_cuda_launch_t single, wide;  // wide.function NULL: without
  resize_t single_parameters, wide_parameters;
} cuda_resize_state_t;

// ---- Proposing -------------------------------------------------------------

static rabbet_status_t cuda_resize_body(rabbet_proposal_t* proposal) {
  rabbet_type_format_t layouts[RABBET_CUDA_LAYOUTS];
  int count = rabbet_cuda_layouts(proposal, layouts);
  for (int i = 0; i < count; ++i) {
    rabbet_dtype_t dtype = layouts[i].dtype;
    rabbet_format_t format = layouts[i].format;
    if (!rabbet_resize_fits(proposal->propose, format)) continue;
    rabbet_proposal_set_input(proposal, 0, dtype, format);
    rabbet_proposal_set_output(proposal, dtype, format);
    RABBET_RETURN_IF_ERROR(rabbet_proposal_offer(proposal, "elements", -1));
  }
  return rabbet_ok();
}

RABBET_PROPOSE_FOR(cuda_resize, RESIZE)

// ---- The program -----------------------------------------------------------

static rabbet_status_t cuda_resize_program(rabbet_cuda_node_t* node,
                                           const rabbet_kernel_spec_t* spec) {
  static const char* const names[RANKS][WAYS] = {
      [LINE] = {"resize_line", "resize_line_inside", "resize_line_along"},
      [PLANE] = {"resize_plane", "resize_plane_inside", "resize_plane_along"},
      [SPACE] = {"resize_space", "resize_space_inside", NULL},
      [ANY] = {"resize_any", NULL, NULL}};
  static const int taps[] = {1, 2, 4};
  cuda_resize_kernel_t* kernel = (cuda_resize_kernel_t*)node;
  const rabbet_group_node_t* layer = node->node.node;
  if (!rabbet_node_is(spec->group, RABBET_OP_RESIZE))
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "layer '%s' is no resizing", layer->name);
  rabbet_dtype_t dtype = spec->group->values[layer->inputs[0]].dtype;
  int64_t mode = rabbet_node_int(layer, "resize_mode");
  const char* type = rabbet_cuda_type(dtype);
  if (!type || rabbet_dtype_bits(dtype) < 8 ||
      (mode != RABBET_INTERPOLATION_NEAREST && !rabbet_dtype_is_float(dtype)))
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "layer '%s': tensors of %s cannot be resized so",
                         layer->name, rabbet_dtype_name(dtype));
  rabbet_cuda_options_t options = {.count = 0};
  kernel->base = spec->device;
  kernel->size = rabbet_dtype_bits(dtype) / 8;
  rabbet_cuda_option(&options, "-DELEMENT=%s", type);
  rabbet_cuda_option(&options, "-DTAPS=%d", taps[mode]);
  RABBET_RETURN_IF_ERROR(
      rabbet_cuda_node_add(node, spec, "image/resize.cu", NULL, &options));
  for (int i = 0; i < RANKS * WAYS; ++i)
    if (names[i / WAYS][i % WAYS])
      RABBET_RETURN_IF_ERROR(
          rabbet_cuda_node_function(node, 0, names[i / WAYS][i % WAYS],
                                    &kernel->functions[i / WAYS][i % WAYS]));
  return rabbet_ok();
}

static rabbet_status_t cuda_resize_create(const rabbet_kernel_spec_t* spec,
                                          rabbet_kernel_t** out_kernel) {
  return rabbet_cuda_node_create(spec, &rabbet_cuda_resize,
                                 sizeof(cuda_resize_kernel_t),
                                 cuda_resize_program, out_kernel);
}

// ---- Geometry --------------------------------------------------------------

static rabbet_status_t resize_launch(const cuda_resize_kernel_t* kernel,
                                     const rabbet_resize_plan_t* plan, int way,
                                     int64_t vector, resize_t* p,
                                     rabbet_cuda_launch_t* launch) {
  const rabbet_resize_step_t* last = &plan->steps[plan->rank - 1];
  int64_t extent = way == ALONG ? last->out : plan->inner;
  p->items = plan->outer * plan->out_plane / vector;
  p->pieces = rabbet_cuda_divisor(extent / vector);
  int64_t blocks = rabbet_ceildiv(p->items, (int64_t)THREADS);
  if (blocks > INT32_MAX)
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                         "layer '%s': the output has too many elements",
                         kernel->node.node.node->name);
  int rank = plan->rank <= SPACE + 1 ? plan->rank - 1 : ANY;
  *launch = (rabbet_cuda_launch_t){.function = kernel->functions[rank][way],
                                   .grid = {(unsigned)blocks, 1, 1},
                                   .block = {THREADS, 1, 1}};
  return rabbet_ok();
}

static rabbet_status_t resize_set(const cuda_resize_kernel_t* kernel,
                                  const rabbet_resize_plan_t* plan,
                                  cuda_resize_state_t* state) {
  resize_t* p = &state->single_parameters;
  *p = (resize_t){.inner = plan->inner,
                  .in_plane = plan->in_plane,
                  .out_plane = plan->out_plane,
                  .outside = (float)plan->resize.outside,
                  .rank = plan->rank};
  if (plan->rank > RESIZE_AXES)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "layer '%s': too many axes are resized",
                         kernel->node.node.node->name);
  for (int32_t i = 0; i < plan->rank; ++i)
    p->axes[i] = (resize_axis_t){.out = rabbet_cuda_divisor(plan->steps[i].out),
                                 .stride = plan->steps[i].stride,
                                 .table = plan->steps[i].table,
                                 .taps = plan->steps[i].taps};
  state->wide_parameters = *p;
  RABBET_RETURN_IF_ERROR(
      resize_launch(kernel, plan, SINGLE, 1, p, &state->single));
  int64_t vector = WIDE / kernel->size;
  int64_t last = plan->steps[plan->rank - 1].out;
  int way = plan->inner % vector == 0                ? INSIDE
            : plan->inner == 1 && last % vector == 0 ? ALONG
                                                     : SINGLE;
  if (way == SINGLE || vector == 1) return rabbet_ok();
  return resize_launch(kernel, plan, way, vector, &state->wide_parameters,
                       &state->wide);
}

// Computes the tables on the host and copies them to the device.
static rabbet_status_t resize_upload(const cuda_resize_kernel_t* kernel,
                                     const rabbet_resize_plan_t* plan,
                                     cuda_resize_state_t* state) {
  size_t bytes = (size_t)plan->entries * (sizeof(int32_t) + sizeof(float));
  int32_t* tables = NULL;
  state->entries = plan->entries;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(kernel->node.node.allocator, bytes, (void**)&tables));
  rabbet_resize_fill(plan, tables, (float*)(tables + plan->entries));
  rabbet_status_t status =
      rabbet_cuda_upload(kernel->base, tables, bytes, &state->tables);
  rabbet_free(kernel->node.node.allocator, tables);
  return status;
}

static void cuda_resize_destroy_state(rabbet_kernel_t* base,
                                      rabbet_kernel_state_t* prepared) {
  cuda_resize_state_t* state = (cuda_resize_state_t*)prepared;
  const cuda_resize_kernel_t* kernel = (const cuda_resize_kernel_t*)base;
  if (!state) return;
  if (state->tables) kernel->base->vtable->free(kernel->base, state->tables);
  rabbet_node_state_destroy(base, (rabbet_kernel_state_t*)state);
}

static rabbet_status_t cuda_resize_prepare(rabbet_kernel_t* base,
                                           const rabbet_kernel_shapes_t* shapes,
                                           rabbet_kernel_state_t** out_state,
                                           size_t* out_workspace) {
  const cuda_resize_kernel_t* kernel = (const cuda_resize_kernel_t*)base;
  rabbet_resize_plan_t plan;
  cuda_resize_state_t* state = NULL;
  *out_workspace = 0;
  *out_state = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_resize_plan(&kernel->node.node, shapes, &plan));
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(*state), (void**)&state));
  state->is_empty = plan.is_empty;
  rabbet_status_t status = rabbet_ok();
  if (!plan.is_empty) {
    status = resize_set(kernel, &plan, state);
    if (rabbet_is_ok(status)) status = resize_upload(kernel, &plan, state);
  }
  if (rabbet_is_ok(status))
    *out_state = (rabbet_kernel_state_t*)state;
  else
    cuda_resize_destroy_state(base, (rabbet_kernel_state_t*)state);
  return status;
}

static rabbet_status_t cuda_resize_enqueue(rabbet_kernel_t* base,
                                           rabbet_kernel_state_t* prepared,
                                           const rabbet_kernel_call_t* call) {
  cuda_resize_state_t* state = (cuda_resize_state_t*)prepared;
  const cuda_resize_kernel_t* kernel = (const cuda_resize_kernel_t*)base;
  const rabbet_group_t* group = kernel->node.node.group;
  if (state->is_empty) return rabbet_ok();
  const void* in = call->inputs[rabbet_group_input_of(
      group, kernel->node.node.node->inputs[0])];
  void* out = call->outputs[0];
  const int32_t* positions = state->tables;
  const void* weights = positions + state->entries;
  bool wide =
      state->wide.function && ((uintptr_t)in | (uintptr_t)out) % WIDE == 0;
  void* parameters[] = {
      &in, &positions, &weights, &out,
      wide ? &state->wide_parameters : &state->single_parameters};
  return rabbet_cuda_launch(kernel->node.device,
                            wide ? &state->wide : &state->single, parameters,
                            call->stream);
}

RABBET_TAKES_NODE(cuda_resize, RESIZE, RABBET_TAKES_ONE_FORMAT)

const rabbet_kernel_class_t rabbet_cuda_resize = {
    .struct_size = sizeof(rabbet_kernel_class_t),
    .name = "cuda.resize",
    .version = 1,
    .propose = cuda_resize_propose,
    .create = cuda_resize_create,
    .takes = cuda_resize_takes,
    .destroy = rabbet_cuda_node_destroy,
    .prepare = cuda_resize_prepare,
    .destroy_state = cuda_resize_destroy_state,
    .enqueue = cuda_resize_enqueue,
    .artifacts = rabbet_cuda_node_artifacts,
};
