// Non-maximum suppression. Bound by the latency of the boxes that are chosen,
// one after the other.
#include <assert.h>

#include "device/common/nms.h"

#include "device/cuda/programs/node.h"
#include "device/cuda/selection/nms_params.h"

enum { COLLECT, CUT, CHOOSE, ADD_UP, WRITE, FUNCTIONS };
enum { MOST_BLOCKS = 65535 };

typedef struct cuda_nms_kernel_t {
  rabbet_cuda_node_t node;
  CUfunction functions[FUNCTIONS];
} cuda_nms_kernel_t;

// Offsets of the parts of the workspace, in bytes.
typedef struct nms_memory_t {
  size_t keys, taken, counts, begins, ties, cuts, all;
} nms_memory_t;

typedef struct cuda_nms_state_t {
  bool has_limit;
  nms_t parameters;
  nms_memory_t memory;
  rabbet_cuda_launch_t launches[FUNCTIONS];
} cuda_nms_state_t;

static rabbet_status_t cuda_nms_body(rabbet_proposal_t* proposal) {
  return rabbet_proposal_offer(proposal, "lists", -1);
}

RABBET_PROPOSE_FOR(cuda_nms, NMS)

// The type of an input; for an omitted one any type will do.
static const char* nms_type(const rabbet_kernel_spec_t* spec, size_t index) {
  const rabbet_group_node_t* layer = &spec->group->nodes[0];
  int32_t value = rabbet_node_input(layer, index);
  return value < 0 ? "float"
                   : rabbet_cuda_type(spec->group->values[value].dtype);
}

static rabbet_status_t cuda_nms_program(rabbet_cuda_node_t* node,
                                        const rabbet_kernel_spec_t* spec) {
  static const char* const names[FUNCTIONS] = {[COLLECT] = "nms_collect",
                                               [CUT] = "nms_cut",
                                               [CHOOSE] = "nms_choose",
                                               [ADD_UP] = "nms_add_up",
                                               [WRITE] = "nms_write"};
  static const char* const types[RABBET_NMS_INPUTS] = {
      [RABBET_NMS_BOXES] = "BOX",
      [RABBET_NMS_SCORES] = "SCORE",
      [RABBET_NMS_MOST] = "MOST",
      [RABBET_NMS_IOU_THRESHOLD] = "IOU",
      [RABBET_NMS_SCORE_THRESHOLD] = "LEAST"};
  cuda_nms_kernel_t* kernel = (cuda_nms_kernel_t*)node;
  if (!rabbet_node_is(spec->group, RABBET_OP_NMS))
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "layer '%s' suppresses no boxes",
                         node->node.node->name);
  rabbet_cuda_options_t options = {.count = 0};
  for (size_t i = 0; i < RABBET_NMS_INPUTS; ++i)
    rabbet_cuda_option(&options, "-D%s=%s", types[i], nms_type(spec, i));
  RABBET_RETURN_IF_ERROR(
      rabbet_cuda_node_add(node, spec, "selection/nms.cu", NULL, &options));
  for (int i = 0; i < FUNCTIONS; ++i)
    RABBET_RETURN_IF_ERROR(
        rabbet_cuda_node_function(node, 0, names[i], &kernel->functions[i]));
  return rabbet_ok();
}

// ---- Geometry --------------------------------------------------------------

static nms_t nms_parameters(const rabbet_nms_t* nms, bool is_long) {
  return (nms_t){.lists = nms->batch * nms->classes,
                 .boxes = nms->boxes,
                 .classes = nms->classes,
                 .batch = nms->batch,
                 .score_batch = nms->score_batch,
                 .score_box = nms->score_box,
                 .score_class = nms->score_class,
                 .box_batch = nms->box_batch,
                 .box_box = nms->box_box,
                 .box_class = nms->box_class,
                 .limit = nms->limit,
                 .most = nms->most,
                 .center = nms->center,
                 .by_class = nms->by_class,
                 .is_long = is_long};
}

static size_t nms_part(size_t* all, int64_t count, size_t size) {
  assert(*all % 16 == 0 && count >= 0);
  size_t at = *all;
  *all = rabbet_align_up(at + (size_t)count * size, 16);
  return at;
}

static void nms_set_memory(cuda_nms_state_t* state) {
  const nms_t* p = &state->parameters;
  nms_memory_t* memory = &state->memory;
  memory->keys = nms_part(&memory->all, p->lists * p->boxes, sizeof(uint64_t));
  memory->taken = nms_part(&memory->all, p->lists * p->most, sizeof(uint64_t));
  memory->counts = nms_part(&memory->all, p->lists, sizeof(int32_t));
  memory->begins = nms_part(&memory->all, p->lists, sizeof(int32_t));
  if (!state->has_limit) return;
  memory->ties = nms_part(&memory->all, p->lists, sizeof(int32_t));
  memory->cuts = nms_part(&memory->all, p->batch, sizeof(uint32_t));
}

static void nms_set_launches(const cuda_nms_kernel_t* kernel,
                             cuda_nms_state_t* state) {
  const nms_t* p = &state->parameters;
  for (int i = 0; i < FUNCTIONS; ++i) {
    int64_t blocks = i == ADD_UP ? 1 : i == CUT ? p->batch : p->lists;
    if (i != CUT) blocks = rabbet_min_i64(blocks, MOST_BLOCKS);
    state->launches[i] =
        (rabbet_cuda_launch_t){.function = kernel->functions[i],
                               .grid = {(unsigned)blocks, 1, 1},
                               .block = {NMS_THREADS, 1, 1}};
  }
}

static rabbet_status_t cuda_nms_prepare(rabbet_kernel_t* base,
                                        const rabbet_kernel_shapes_t* shapes,
                                        cuda_nms_state_t** out_state,
                                        size_t* out_workspace) {
  const cuda_nms_kernel_t* kernel = (const cuda_nms_kernel_t*)base;
  const rabbet_node_kernel_t* node = &kernel->node.node;
  const rabbet_group_node_t* layer = node->node;
  rabbet_nms_t nms;
  *out_workspace = 0;
  *out_state = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_nms_resolve_node(node, shapes, &nms));
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(**out_state), (void**)out_state));
  cuda_nms_state_t* state = *out_state;
  bool is_long =
      node->group->values[layer->outputs[0]].dtype == RABBET_DTYPE_INT64;
  state->parameters = nms_parameters(&nms, is_long);
  state->has_limit = nms.limit > 0 && nms.boxes * nms.classes > nms.limit;
  nms_set_memory(state);
  nms_set_launches(kernel, state);
  *out_workspace = state->memory.all;
  return rabbet_ok();
}

// ---- Running ---------------------------------------------------------------

static rabbet_status_t nms_launch(const cuda_nms_kernel_t* kernel,
                                  const cuda_nms_state_t* state,
                                  const rabbet_kernel_call_t* call,
                                  int function, void** parameters) {
  // Only builds with a limit for all classes have memory for its cuts.
  assert(function != CUT || state->memory.cuts > 0);
  return rabbet_cuda_launch(kernel->node.device, &state->launches[function],
                            parameters, call->stream);
}

static rabbet_status_t nms_enqueue_lists(const cuda_nms_kernel_t* kernel,
                                         cuda_nms_state_t* state,
                                         const rabbet_kernel_call_t* call) {
  const rabbet_node_kernel_t* node = &kernel->node.node;
  const nms_memory_t* memory = &state->memory;
  uint8_t* workspace = call->workspace;
  const void* inputs[RABBET_NMS_INPUTS];
  for (size_t i = 0; i < RABBET_NMS_INPUTS; ++i)
    inputs[i] = rabbet_node_input_at(node, call, i);
  void *keys = workspace + memory->keys, *taken = workspace + memory->taken;
  void *counts = workspace + memory->counts, *p = &state->parameters;
  void* cuts = state->has_limit ? workspace + memory->cuts : NULL;
  void* ties = state->has_limit ? workspace + memory->ties : NULL;
  void* collect[] = {&inputs[RABBET_NMS_SCORES],
                     &inputs[RABBET_NMS_SCORE_THRESHOLD], &keys, &counts, p};
  void* cut[] = {&keys, &counts, &cuts, &ties, p};
  void* choose[] = {&inputs[RABBET_NMS_BOXES],
                    &inputs[RABBET_NMS_IOU_THRESHOLD],
                    &inputs[RABBET_NMS_MOST],
                    &keys,
                    &counts,
                    &cuts,
                    &ties,
                    &taken,
                    p};
  RABBET_RETURN_IF_ERROR(nms_launch(kernel, state, call, COLLECT, collect));
  if (state->has_limit)
    RABBET_RETURN_IF_ERROR(nms_launch(kernel, state, call, CUT, cut));
  return nms_launch(kernel, state, call, CHOOSE, choose);
}

static rabbet_status_t cuda_nms_enqueue(rabbet_kernel_t* base,
                                        cuda_nms_state_t* state,
                                        const rabbet_kernel_call_t* call) {
  const cuda_nms_kernel_t* kernel = (const cuda_nms_kernel_t*)base;
  const rabbet_node_kernel_t* node = &kernel->node.node;
  uint8_t* workspace = call->workspace;
  void* rows = rabbet_node_output(node, call, RABBET_NMS_INDICES);
  void* total = rabbet_node_output(node, call, RABBET_NMS_COUNT);
  void* taken = workspace + state->memory.taken;
  void* counts = workspace + state->memory.counts;
  void *begins = workspace + state->memory.begins, *p = &state->parameters;
  void* add_up[] = {&counts, &begins, &total, p};
  void* write[] = {&taken, &counts, &begins, &rows, p};
  if (state->parameters.lists > 0)
    RABBET_RETURN_IF_ERROR(nms_enqueue_lists(kernel, state, call));
  RABBET_RETURN_IF_ERROR(nms_launch(kernel, state, call, ADD_UP, add_up));
  if (state->parameters.lists == 0) return rabbet_ok();
  return nms_launch(kernel, state, call, WRITE, write);
}

RABBET_TAKES_NODE(cuda_nms, NMS, 0)

RABBET_CUDA_NODE_CLASS(cuda_nms, cuda_nms_kernel_t, "cuda.nms", 1);
