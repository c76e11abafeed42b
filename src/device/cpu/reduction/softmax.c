// Softmax, or its logarithm if the builder groups the two. The memory is
// [outer, count, inner]: rows if inner is 1, otherwise columns.
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/cpu/movement/move.h"
#include "device/cpu/parallel.h"

// Columns of a tile. Tiles of FLOAT with at most this many rows are copied,
// too: a contiguous copy stays in the cache, in which distant rows would evict
// each other.
enum { TILE = 64, COPIED_ROWS = 256 };

typedef struct cpu_softmax_state_t {
  rabbet_dtype_t dtype;
  int64_t size;
  int64_t outer, count, inner;
  bool log;
  int64_t tiles;         // of the columns
  int64_t buffer_bytes;  // of a thread
} cpu_softmax_state_t;

static int32_t softmax_axis(const rabbet_group_node_t* node, int32_t rank) {
  int64_t mask = rabbet_node_int(node, "axes");
  if (mask == 0) return rank > 3 ? rank - 3 : 0;
  return __builtin_ctzll((unsigned long long)mask);
}

// False if the axis is not a single axis of the memory.
static bool softmax_extents(const rabbet_group_node_t* node,
                            const rabbet_dims_t* dims, rabbet_format_t format,
                            cpu_softmax_state_t* state) {
  rabbet_box_t box;
  if (!rabbet_box(dims, format, &box)) return false;
  int32_t axis = softmax_axis(node, dims->rank);
  if (box.rank > dims->rank && axis == 1) return false;
  int64_t total = 1;
  for (int32_t i = 0; i < box.rank; ++i) {
    total *= box.extent[i];
    if (box.axis[i] != axis) continue;
    state->count = box.extent[i];
    state->inner = box.stride[i];
  }
  state->outer = total == 0 ? 0 : total / (state->count * state->inner);
  return true;
}

static rabbet_status_t cpu_softmax_body(rabbet_proposal_t* proposal) {
  const rabbet_group_t* group = proposal->propose->group;
  const rabbet_dims_t* dims = &group->values[proposal->node->inputs[0]].dims;
  bool log = rabbet_node_is_log_softmax(group);
  cpu_softmax_state_t state = {0};
  uint32_t formats = 0;
  const rabbet_format_t all[] = {RABBET_FORMAT_LINEAR, RABBET_FORMAT_HWC,
                                 rabbet_cpu_blocked_format()};
  for (int i = 0; i < 3; ++i) {
    if (softmax_extents(proposal->node, dims, all[i], &state) &&
        !(log && state.inner > 1)) {
      formats |= 1u << i;
    }
  }
  return rabbet_cpu_offer_same(proposal, formats, "three passes", 0);
}

static rabbet_status_t cpu_softmax_propose(const rabbet_propose_t* propose,
                                           rabbet_candidate_sink_t sink) {
  if (!rabbet_node_is(propose->group, RABBET_OP_SOFTMAX) &&
      !rabbet_node_is_log_softmax(propose->group)) {
    return rabbet_ok();
  }
  return rabbet_proposal_make(propose, sink, &rabbet_cpu_softmax, NULL,
                              cpu_softmax_body);
}

static bool softmax_copies(const cpu_softmax_state_t* state) {
  return state->dtype != RABBET_DTYPE_FLOAT ||
         (state->inner > 1 && state->count <= COPIED_ROWS);
}

static rabbet_status_t cpu_softmax_prepare(rabbet_kernel_t* base,
                                           const rabbet_kernel_shapes_t* shapes,
                                           cpu_softmax_state_t** out_state,
                                           size_t* out_workspace) {
  const rabbet_node_kernel_t* kernel = (const rabbet_node_kernel_t*)base;
  const rabbet_group_value_t* value =
      &kernel->group->values[kernel->node->inputs[0]];
  const rabbet_dims_t* dims = &shapes->dims[kernel->node->inputs[0]];
  cpu_softmax_state_t made = {.dtype = value->dtype,
                              .size = rabbet_dtype_bits(value->dtype) / 8,
                              .log = kernel->group->node_count == 2};
  *out_workspace = 0;
  if (!softmax_extents(kernel->node, dims, value->format, &made) ||
      (made.log && made.inner > 1)) {
    char text[128];
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "layer '%s': the kernel does not take shape %s in "
                         "format %s",
                         kernel->node->name,
                         rabbet_dims_print(dims, text, sizeof(text)),
                         rabbet_format_name(value->format));
  }
  made.tiles = made.inner > 1 ? rabbet_ceildiv(made.inner, TILE) : 1;
  if (softmax_copies(&made)) {
    int64_t lanes = made.inner > 1 ? made.count * TILE : made.count;
    made.buffer_bytes = (lanes * (int64_t)sizeof(float) + 63) / 64 * 64;
    *out_workspace =
        (size_t)(made.buffer_bytes * rabbet_cpu_slots(shapes->threads));
  }
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(made), (void**)out_state));
  **out_state = made;
  return rabbet_ok();
}

// ---- Running ---------------------------------------------------------------

typedef struct softmax_call_t {
  const cpu_softmax_state_t* state;
  const rabbet_vectors_t* vectors;
  const char* source;
  char* target;
  char* buffers;
} softmax_call_t;

static void softmax_rows(void* context, int64_t begin, int64_t end) {
  const softmax_call_t* call = context;
  const cpu_softmax_state_t* state = call->state;
  const rabbet_vectors_t* vectors = call->vectors;
  float* buffer =
      (float*)(call->buffers + rabbet_cpu_slot() * state->buffer_bytes);
  int64_t bytes = state->count * state->size;
  for (int64_t row = begin; row < end; ++row) {
    const char* x = call->source + row * bytes;
    char* y = call->target + row * bytes;
    if (state->dtype == RABBET_DTYPE_FLOAT) {
      vectors->softmax((const float*)x, state->count, state->log, (float*)y);
    } else {
      vectors->to_float[state->dtype](x, buffer, state->count);
      vectors->softmax(buffer, state->count, state->log, buffer);
      vectors->from_float[state->dtype](buffer, y, state->count);
    }
  }
}

static void softmax_tile(const softmax_call_t* call, const char* x, char* y,
                         int64_t width) {
  const cpu_softmax_state_t* state = call->state;
  const rabbet_vectors_t* vectors = call->vectors;
  if (!softmax_copies(state)) {
    vectors->softmax_columns((const float*)x, state->count, state->inner, width,
                             (float*)y);
    return;
  }
  float* buffer =
      (float*)(call->buffers + rabbet_cpu_slot() * state->buffer_bytes);
  rabbet_convert_fn_t in = vectors->to_float[state->dtype];
  rabbet_convert_fn_t out = vectors->from_float[state->dtype];
  int64_t bytes = state->inner * state->size;
  size_t row = (size_t)(width * state->size);
  for (int64_t i = 0; i < state->count; ++i) {
    if (in) {
      in(x + i * bytes, buffer + i * TILE, width);
    } else {
      memcpy(buffer + i * TILE, x + i * bytes, row);
    }
  }
  vectors->softmax_columns(buffer, state->count, TILE, width, buffer);
  for (int64_t i = 0; i < state->count; ++i) {
    if (out) {
      out(buffer + i * TILE, y + i * bytes, width);
    } else {
      memcpy(y + i * bytes, buffer + i * TILE, row);
    }
  }
}

static void cpu_softmax_columns(void* context, int64_t begin, int64_t end) {
  const softmax_call_t* call = context;
  const cpu_softmax_state_t* state = call->state;
  for (int64_t item = begin; item < end; ++item) {
    int64_t outer = item / state->tiles, column = item % state->tiles * TILE;
    int64_t at = (outer * state->count * state->inner + column) * state->size;
    softmax_tile(call, call->source + at, call->target + at,
                 rabbet_min_i64(TILE, state->inner - column));
  }
}

static rabbet_status_t cpu_softmax_enqueue(rabbet_kernel_t* base,
                                           cpu_softmax_state_t* state,
                                           const rabbet_kernel_call_t* call) {
  (void)base;
  if (state->count == 0 || state->outer == 0) return rabbet_ok();
  softmax_call_t run = {.state = state,
                        .vectors = rabbet_vectors(),
                        .source = call->inputs[0],
                        .target = call->outputs[0],
                        .buffers = call->workspace};
  // An exponential costs about as much as moving 16 bytes.
  int64_t width = state->inner > 1 ? TILE : 1;
  rabbet_cpu_parallel(
      state->outer * state->tiles,
      rabbet_max_i64(1, RABBET_CPU_GRAIN_BYTES / 16 / (state->count * width)),
      state->inner > 1 ? cpu_softmax_columns : softmax_rows, &run);
  return rabbet_ok();
}

static bool cpu_softmax_takes(const rabbet_kernel_spec_t* spec) {
  const rabbet_group_t* group = spec->group;
  return rabbet_takes_node(group, RABBET_OP_SOFTMAX, RABBET_TAKES_ONE_FORMAT) ||
         (rabbet_node_is_log_softmax(group) &&
          rabbet_takes_tensors(
              group, RABBET_TAKES_ONE_FORMAT | RABBET_TAKES_OTHER_TYPES));
}

RABBET_NODE_CLASS(cpu_softmax, "cpu.softmax", 1);
