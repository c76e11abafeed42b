// Conversions between formats that oneDNN does not know (HWC8, CHW2, ...), and
// of types that it does not move (64 bits), element by element. Padding becomes
// 0.
//
// Bound by accesses to the side whose elements are not visited in memory order.
#include <string.h>

#include "core/view.h"
#include "device/common/node_kernel.h"
#include "device/cpu/cpu.h"
#include "device/cpu/parallel.h"
#include "ops/movement/convert.h"

// A format as strides in elements. Channel c of position p of batch n is at
//   n batch + p position + c / block channels + c % block.
typedef struct reorder_side_t {
  rabbet_dtype_t dtype;
  int64_t size;  // bytes of an element
  int64_t batch, position, block, channels;
} reorder_side_t;

typedef struct cpu_reorder_state_t {
  reorder_side_t from, to;
  int64_t batches, channels, positions;
  int64_t padded;  // channels of the target with its padding
} cpu_reorder_state_t;

// ---- Proposing -------------------------------------------------------------

static bool reorder_is_real(rabbet_dtype_t dtype) {
  return dtype == RABBET_DTYPE_FLOAT || dtype == RABBET_DTYPE_HALF ||
         dtype == RABBET_DTYPE_BF16;
}

static bool reorder_knows(rabbet_type_format_t from, rabbet_type_format_t to) {
  return rabbet_format_info(from.format) && rabbet_format_info(to.format) &&
         rabbet_dtype_bits(from.dtype) >= 8 &&
         (from.dtype == to.dtype ||
          (reorder_is_real(from.dtype) && reorder_is_real(to.dtype)));
}

static rabbet_status_t cpu_reorder_propose(const rabbet_propose_t* propose,
                                           rabbet_candidate_sink_t sink) {
  const rabbet_group_t* group = propose->group;
  if (!propose->fixed || group->input_count != 1 || group->output_count != 1 ||
      !(rabbet_node_is(group, RABBET_OP_IDENTITY) ||
        rabbet_node_is(group, RABBET_OP_CAST)) ||
      !reorder_knows(propose->fixed[0], propose->fixed[1])) {
    return rabbet_ok();
  }
  rabbet_type_format_t tensors[] = {propose->fixed[0], propose->fixed[1]};
  rabbet_candidate_t candidate = {.kernel = &rabbet_cpu_reorder,
                                  .tactic_name = "elements",
                                  .tensors = tensors};
  return rabbet_offer(propose, sink, &candidate);
}

static bool cpu_reorder_takes(const rabbet_kernel_spec_t* spec) {
  const rabbet_group_t* group = spec->group;
  const uint32_t rules = RABBET_TAKES_FORMATS | RABBET_TAKES_ANY_TYPES;
  if (!rabbet_takes_node(group, RABBET_OP_CAST, rules) &&
      !rabbet_takes_node(group, RABBET_OP_IDENTITY, rules))
    return false;
  const rabbet_group_value_t* from = &group->values[group->nodes[0].inputs[0]];
  const rabbet_group_value_t* to = &group->values[group->nodes[0].outputs[0]];
  return reorder_knows((rabbet_type_format_t){from->dtype, from->format},
                       (rabbet_type_format_t){to->dtype, to->format});
}

// ---- Preparing -------------------------------------------------------------

static reorder_side_t reorder_side(const rabbet_group_value_t* value,
                                   int64_t channels, int64_t positions) {
  const rabbet_format_info_t* info = rabbet_format_info(value->format);
  int64_t padded = rabbet_ceildiv(channels, info->block) * info->block;
  reorder_side_t side = {.dtype = value->dtype,
                         .size = rabbet_dtype_bits(value->dtype) / 8,
                         .batch = padded * positions,
                         .position = info->block,
                         .block = info->block,
                         .channels = info->block * positions};
  if (info->channels_last) {
    side.position = padded;
    side.channels = info->block;
  }
  return side;
}

static rabbet_status_t cpu_reorder_prepare(rabbet_kernel_t* base,
                                           const rabbet_kernel_shapes_t* shapes,
                                           cpu_reorder_state_t** out_state,
                                           size_t* out_workspace) {
  const rabbet_node_kernel_t* kernel = (const rabbet_node_kernel_t*)base;
  const rabbet_group_t* group = kernel->group;
  const rabbet_group_value_t* from = &group->values[kernel->node->inputs[0]];
  const rabbet_group_value_t* to = &group->values[kernel->node->outputs[0]];
  const rabbet_dims_t* dims = &shapes->dims[kernel->node->outputs[0]];
  *out_workspace = 0;
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(**out_state), (void**)out_state));
  cpu_reorder_state_t* state = *out_state;
  // Tensors of few axes are LINEAR on both sides: one row of positions.
  state->batches = dims->rank > 2 ? dims->d[0] : 1;
  state->channels = dims->rank > 2 ? dims->d[1] : 1;
  state->positions = 1;
  for (int32_t i = dims->rank > 2 ? 2 : 0; i < dims->rank; ++i)
    state->positions *= dims->d[i];
  state->from = reorder_side(from, state->channels, state->positions);
  state->to = reorder_side(to, state->channels, state->positions);
  int64_t block = rabbet_format_info(to->format)->block;
  state->padded = rabbet_ceildiv(state->channels, block) * block;
  return rabbet_ok();
}

// ---- Running ---------------------------------------------------------------

typedef struct reorder_call_t {
  const cpu_reorder_state_t* state;
  const char* source;
  char* target;
} reorder_call_t;

static int64_t reorder_place(const reorder_side_t* side, int64_t batch,
                             int64_t channel, int64_t position) {
  return batch * side->batch + channel / side->block * side->channels +
         channel % side->block + position * side->position;
}

static void reorder_row(const reorder_call_t* call, int64_t batch,
                        int64_t channel) {
  const cpu_reorder_state_t* s = call->state;
  const reorder_side_t *from = &s->from, *to = &s->to;
  int64_t step = to->position * to->size, stride = from->position * from->size;
  char* target = call->target + reorder_place(to, batch, channel, 0) * to->size;
  if (channel >= s->channels) {
    for (int64_t p = 0; p < s->positions; ++p)
      memset(target + p * step, 0, (size_t)to->size);
    return;
  }
  const char* source =
      call->source + reorder_place(from, batch, channel, 0) * from->size;
  for (int64_t p = 0; p < s->positions; ++p, source += stride, target += step) {
    if (from->dtype != to->dtype)
      rabbet_convert(from->dtype, source, to->dtype, target, 1);
    else
      memcpy(target, source, (size_t)to->size);
  }
}

static void reorder_rows(void* context, int64_t begin, int64_t end) {
  const reorder_call_t* call = context;
  int64_t padded = call->state->padded;
  for (int64_t i = begin; i < end; ++i)
    reorder_row(call, i / padded, i % padded);
}

static rabbet_status_t cpu_reorder_enqueue(rabbet_kernel_t* base,
                                           cpu_reorder_state_t* state,
                                           const rabbet_kernel_call_t* call) {
  (void)base;
  reorder_call_t run = {state, call->inputs[0], call->outputs[0]};
  int64_t row = state->positions * (state->from.size + state->to.size);
  if (row == 0) return rabbet_ok();
  rabbet_cpu_parallel(state->batches * state->padded,
                      rabbet_max_i64(1, RABBET_CPU_GRAIN_BYTES / row),
                      reorder_rows, &run);
  return rabbet_ok();
}

static rabbet_status_t cpu_reorder_create(const rabbet_kernel_spec_t* spec,
                                          rabbet_kernel_t** out_kernel) {
  return rabbet_node_kernel_create(spec, &rabbet_cpu_reorder, out_kernel);
}

RABBET_NODE_TABLE(cpu_reorder, "cpu.reorder", 1,
                  .flags = RABBET_KERNEL_FALLBACK | RABBET_KERNEL_DOUBLE,
                  .destroy = rabbet_node_kernel_destroy);
