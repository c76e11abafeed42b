// Casts, of numbers or of bits, and copies. Elements are converted block by
// block, through FLOAT or INT32 if there is no direct conversion.
#include "device/cpu/cpu.h"
#include "device/cpu/movement/move.h"
#include "device/cpu/parallel.h"
#include "ops/movement/bit_cast.h"
#include "ops/movement/convert.h"

typedef struct cpu_cast_state_t {
  rabbet_dtype_t from, to;
  int64_t count;
  int64_t from_size, to_size;
  bool is_copy, of_bits;
  // One conversion, or two with a block of 4-byte lanes between them. Neither:
  // elements are converted one by one.
  rabbet_convert_fn_t first, second;
} cpu_cast_state_t;

// FLOAT between two conversions would be slow, or less exact.
static bool cast_is_direct(rabbet_dtype_t dtype) {
  return dtype == RABBET_DTYPE_FP8 || dtype == RABBET_DTYPE_E8M0 ||
         dtype == RABBET_DTYPE_DOUBLE;
}

static void cast_choose(cpu_cast_state_t* state) {
  const rabbet_vectors_t* vectors = rabbet_vectors();
  rabbet_dtype_t from = state->from, to = state->to;
  if (state->of_bits) {
    state->is_copy =
        state->from_size == state->to_size && to != RABBET_DTYPE_BOOL;
    return;
  }
  state->is_copy =
      from == to ||
      (state->from_size == 1 && state->to_size == 1 &&
       to != RABBET_DTYPE_BOOL && !cast_is_direct(from) && !cast_is_direct(to));
  if (state->is_copy || cast_is_direct(from) || cast_is_direct(to)) {
    return;
  }
  if (rabbet_dtype_is_float(from) || rabbet_dtype_is_float(to)) {
    state->first = vectors->to_float[from];
    state->second = vectors->from_float[to];
    // Rounding to nearest twice would be wrong, so the first one rounds to odd.
    if (to == RABBET_DTYPE_BF16 && vectors->to_odd_float[from]) {
      state->first = vectors->to_odd_float[from];
    }
  } else if (from == RABBET_DTYPE_INT64 && to == RABBET_DTYPE_BOOL) {
    state->first = vectors->int64_to_bool;
  } else {
    state->first = vectors->to_int32[from];
    state->second = vectors->from_int32[to];
  }
}

// ---- The class -------------------------------------------------------------

static rabbet_status_t cpu_cast_body(rabbet_proposal_t* proposal) {
  const rabbet_group_t* group = proposal->propose->group;
  const rabbet_group_node_t* node = proposal->node;
  const rabbet_format_t formats[] = {RABBET_FORMAT_LINEAR, RABBET_FORMAT_HWC,
                                     rabbet_cpu_blocked_format()};
  rabbet_dtype_t from = group->values[node->inputs[0]].dtype;
  rabbet_dtype_t to = group->values[node->outputs[0]].dtype, types[4];
  int count = rabbet_compute_types(proposal->propose, from, types);
  if (rabbet_node_is(group, RABBET_OP_BIT_CAST)) {
    types[0] = from;  // another type has other bits
    count = 1;
  }
  proposal->keeps_padding = true;
  for (int i = 0; i < 3 * count; ++i) {
    rabbet_dtype_t type = types[i / 3], target = from == to ? type : to;
    rabbet_proposal_set_input(proposal, 0, type, formats[i % 3]);
    rabbet_proposal_set_output(proposal, target, formats[i % 3]);
    bool same_size = rabbet_dtype_bits(type) == rabbet_dtype_bits(target);
    RABBET_RETURN_IF_ERROR(rabbet_proposal_offer(
        proposal, from == to ? "copy" : "cast", same_size ? 0 : -1));
  }
  return rabbet_ok();
}

static rabbet_status_t cpu_cast_propose(const rabbet_propose_t* propose,
                                        rabbet_candidate_sink_t sink) {
  if (!rabbet_node_is(propose->group, RABBET_OP_CAST) &&
      !rabbet_node_is(propose->group, RABBET_OP_BIT_CAST) &&
      !rabbet_node_is(propose->group, RABBET_OP_IDENTITY)) {
    return rabbet_ok();
  }
  return rabbet_proposal_make(propose, sink, &rabbet_cpu_cast, NULL,
                              cpu_cast_body);
}

static rabbet_status_t cpu_cast_prepare(rabbet_kernel_t* base,
                                        const rabbet_kernel_shapes_t* shapes,
                                        cpu_cast_state_t** out_state,
                                        size_t* out_workspace) {
  const rabbet_node_kernel_t* kernel = (const rabbet_node_kernel_t*)base;
  int32_t in = kernel->node->inputs[0], out = kernel->node->outputs[0];
  const rabbet_group_value_t* values = kernel->group->values;
  rabbet_dims_t physical;
  int64_t count = 0;
  *out_workspace = 0;
  RABBET_RETURN_IF_ERROR(rabbet_format_physical_dims(
      values[out].format, &shapes->dims[out], &physical));
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(&physical, &count));
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(**out_state), (void**)out_state));
  cpu_cast_state_t* state = *out_state;
  state->from = values[in].dtype;
  state->to = values[out].dtype;
  state->from_size = rabbet_dtype_bits(state->from) / 8;
  state->to_size = rabbet_dtype_bits(state->to) / 8;
  state->count = count;
  state->of_bits = rabbet_op_is(kernel->node->op, RABBET_OP_BIT_CAST);
  cast_choose(state);
  return rabbet_ok();
}

// ---- Running ---------------------------------------------------------------

typedef struct cast_call_t {
  const cpu_cast_state_t* state;
  const char* source;
  char* target;
} cast_call_t;

static void cast_block(const cpu_cast_state_t* state, const char* source,
                       char* target, int64_t count) {
  if (state->first && state->second) {
    float lanes[RABBET_LANES];
    state->first(source, lanes, count);
    state->second(lanes, target, count);
  } else if (state->first || state->second) {
    (state->first ? state->first : state->second)(source, target, count);
  } else if (state->of_bits) {
    rabbet_bit_cast(state->from, source, state->to, target, count);
  } else {
    rabbet_convert(state->from, source, state->to, target, count);
  }
}

static void cast_range(void* context, int64_t begin, int64_t end) {
  const cast_call_t* call = context;
  for (int64_t i = begin; i < end; i += RABBET_LANES) {
    cast_block(call->state, call->source + i * call->state->from_size,
               call->target + i * call->state->to_size,
               rabbet_min_i64(end - i, RABBET_LANES));
  }
}

static rabbet_status_t cpu_cast_enqueue(rabbet_kernel_t* base,
                                        cpu_cast_state_t* state,
                                        const rabbet_kernel_call_t* call) {
  (void)base;
  if (state->is_copy) {
    rabbet_copy_flat(call->outputs[0], call->inputs[0],
                     state->count * state->to_size);
    return rabbet_ok();
  }
  cast_call_t run = {state, call->inputs[0], call->outputs[0]};
  rabbet_cpu_parallel(state->count,
                      RABBET_CPU_GRAIN_BYTES /
                          (state->from_size + state->to_size) / RABBET_LANES *
                          RABBET_LANES,
                      cast_range, &run);
  return rabbet_ok();
}

static bool cpu_cast_takes(const rabbet_kernel_spec_t* spec) {
  const uint32_t rules = RABBET_TAKES_ONE_FORMAT | RABBET_TAKES_ANY_TYPES;
  return rabbet_takes_node(spec->group, RABBET_OP_CAST, rules) ||
         rabbet_takes_node(spec->group, RABBET_OP_BIT_CAST, rules) ||
         rabbet_takes_node(spec->group, RABBET_OP_IDENTITY, rules);
}

RABBET_NODE_CLASS_WITH(cpu_cast, "cpu.cast", 1, RABBET_KERNEL_DOUBLE);
