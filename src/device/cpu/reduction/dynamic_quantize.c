// Block quantization: scales of blocks, and elements divided by them. A thread
// reads a block twice. Bound by the bytes of the input, and by divisions.
#include "device/common/dynamic_quantize.h"

#include <math.h>
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/cpu/parallel.h"
#include "device/cpu/vectors/vectors.h"
#include "ops/pointwise/blocks.h"

typedef struct cpu_dynamic_quantize_state_t {
  rabbet_quantize_boxes_t boxes;
  rabbet_dtype_t from, to, kept;  // of input, output and scales
  rabbet_dtype_t factor;          // NONE: there is none
} cpu_dynamic_quantize_state_t;

static rabbet_status_t cpu_dynamic_quantize_propose(
    const rabbet_propose_t* propose, rabbet_candidate_sink_t sink) {
  return rabbet_dynamic_quantize_propose(propose, sink,
                                         &rabbet_cpu_dynamic_quantize);
}

static rabbet_status_t cpu_dynamic_quantize_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    cpu_dynamic_quantize_state_t** out_state, size_t* out_workspace) {
  const rabbet_node_kernel_t* kernel = (const rabbet_node_kernel_t*)base;
  const rabbet_group_node_t* node = kernel->node;
  const rabbet_group_value_t* values = kernel->group->values;
  int32_t factor = rabbet_node_input(node, 1);
  rabbet_quantize_boxes_t boxes;
  *out_workspace = 0;
  *out_state = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_dynamic_quantize_check_types(kernel->group, node));
  RABBET_RETURN_IF_ERROR(rabbet_dynamic_quantize_boxes(
      node, &shapes->dims[node->inputs[0]], &boxes));
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(**out_state), (void**)out_state));
  **out_state = (cpu_dynamic_quantize_state_t){
      .boxes = boxes,
      .from = values[node->inputs[0]].dtype,
      .to = values[node->outputs[0]].dtype,
      .kept = values[node->outputs[1]].dtype,
      .factor = factor < 0 ? RABBET_DTYPE_NONE : values[factor].dtype};
  return rabbet_ok();
}

// ---- Rows ------------------------------------------------------------------

typedef struct dynamic_call_t {
  const cpu_dynamic_quantize_state_t* state;
  rabbet_convert_fn_t to_float;  // NULL: the input is FLOAT
  int64_t size;                  // bytes of an element of the input
  const char* input;
  uint8_t* output;  // NULL: it is unused; the scales may be, too
  void* scales;
  float factor;
} dynamic_call_t;

static const float* dynamic_load(const dynamic_call_t* call, int64_t at,
                                 int64_t count, float* room) {
  const char* from = call->input + at * call->size;
  if (!call->to_float) return (const float*)(const void*)from;
  call->to_float(from, room, count);
  return room;
}

static float dynamic_row_most(const float* x, int64_t count, float most) {
  for (int64_t i = 0; i < count; ++i) {
    float a = fabsf(x[i]);
    most = a > most ? a : most;
  }
  return most;
}

// Rounds to nearest even by adding 1.5 * 2^23; NaN gives 0.
static void dynamic_row_int8(const float* x, int64_t count, float scale,
                             uint8_t* y) {
  for (int64_t i = 0; i < count; ++i) {
    float v = x[i] / scale;
    v = v < -128.0f ? -128.0f : v > 127.0f ? 127.0f : v;
    v = v == v ? v : 0.0f;
    float sum = v + 0x1.8p23f;
    int32_t bits;
    memcpy(&bits, &sum, sizeof(bits));
    y[i] = (uint8_t)bits;
  }
}

// E4M3. From 2^-6 on the bits are rounded; smaller numbers are multiples of
// 2^-9 and are rounded by an addition. Above 448 numbers saturate; NaN stays
// NaN.
static void dynamic_row_fp8(const float* x, int64_t count, float scale,
                            uint8_t* y) {
  for (int64_t i = 0; i < count; ++i) {
    float v = x[i] / scale;
    uint32_t bits, low;
    memcpy(&bits, &v, sizeof(bits));
    uint32_t sign = bits >> 24 & 0x80u;
    bits &= 0x7fffffffu;
    float small;
    memcpy(&small, &bits, sizeof(small));
    small = (small < 1.0f ? small : 0.0f) * 512.0f + 0x1p23f;
    memcpy(&low, &small, sizeof(low));
    uint32_t normal = (bits - 0x3c000000u + 0x7ffffu + (bits >> 20 & 1u)) >> 20;
    uint32_t code = bits > 0x7f800000u   ? 0x7fu
                    : bits > 0x43e00000u ? 0x7eu
                    : bits < 0x3c800000u ? low & 0xffu
                                         : normal;
    y[i] = (uint8_t)(sign | code);
  }
}

// ---- Blocks ----------------------------------------------------------------

// Quantizes one block, which may be cut at the tensor's end.
typedef struct dynamic_block_t {
  int64_t first, rows, row;
  int64_t extents[RABBET_MAX_RANK];
} dynamic_block_t;

static void dynamic_find(const rabbet_quantize_boxes_t* boxes, int64_t number,
                         dynamic_block_t* block) {
  block->first = 0;
  block->rows = 1;
  for (int32_t i = boxes->rank - 1; i >= 0; --i) {
    int64_t at = number % boxes->counts[i] * boxes->blocks[i];
    number /= boxes->counts[i];
    block->extents[i] = rabbet_min_i64(boxes->blocks[i], boxes->dims[i] - at);
    block->first += at * boxes->strides[i];
    if (i < boxes->rank - 1) block->rows *= block->extents[i];
  }
  block->row = block->extents[boxes->rank - 1];
}

static int64_t dynamic_row(const rabbet_quantize_boxes_t* boxes,
                           const dynamic_block_t* block, int64_t row) {
  int64_t at = block->first;
  for (int32_t i = boxes->rank - 2; i >= 0; --i) {
    at += row % block->extents[i] * boxes->strides[i];
    row /= block->extents[i];
  }
  return at;
}

static float dynamic_most(const dynamic_call_t* call,
                          const dynamic_block_t* block) {
  float room[RABBET_LANES], most = 0;
  for (int64_t r = 0; r < block->rows; ++r) {
    int64_t at = dynamic_row(&call->state->boxes, block, r);
    for (int64_t i = 0; i < block->row; i += RABBET_LANES) {
      int64_t count = rabbet_min_i64(RABBET_LANES, block->row - i);
      most = dynamic_row_most(dynamic_load(call, at + i, count, room), count,
                              most);
    }
  }
  return most;
}

static void dynamic_write(const dynamic_call_t* call,
                          const dynamic_block_t* block, float scale) {
  float room[RABBET_LANES];
  bool is_fp8 = call->state->to == RABBET_DTYPE_FP8;
  for (int64_t r = 0; r < block->rows; ++r) {
    int64_t at = dynamic_row(&call->state->boxes, block, r);
    for (int64_t i = 0; i < block->row; i += RABBET_LANES) {
      int64_t count = rabbet_min_i64(RABBET_LANES, block->row - i);
      uint8_t* y = call->output + at + i;
      if (scale == 0)
        memset(y, 0, (size_t)count);
      else
        (is_fp8 ? dynamic_row_fp8 : dynamic_row_int8)(
            dynamic_load(call, at + i, count, room), count, scale, y);
    }
  }
}

static void dynamic_part(void* context, int64_t begin, int64_t end) {
  const dynamic_call_t* call = context;
  const cpu_dynamic_quantize_state_t* state = call->state;
  dynamic_block_t block = {.rows = 0};
  for (int64_t b = begin; b < end; ++b) {
    float stored = 0;
    if (state->boxes.elements > 0) dynamic_find(&state->boxes, b, &block);
    float scale = rabbet_dynamic_quantize_scale(state->to, state->kept,
                                                dynamic_most(call, &block),
                                                call->factor, &stored);
    if (call->scales) rabbet_store_double(state->kept, call->scales, b, stored);
    if (call->output) dynamic_write(call, &block, scale);
  }
}

static rabbet_status_t cpu_dynamic_quantize_enqueue(
    rabbet_kernel_t* base, cpu_dynamic_quantize_state_t* state,
    const rabbet_kernel_call_t* call) {
  const rabbet_node_kernel_t* kernel = (const rabbet_node_kernel_t*)base;
  dynamic_call_t run = {.state = state,
                        .to_float = rabbet_vectors()->to_float[state->from],
                        .size = rabbet_dtype_bits(state->from) / 8,
                        .input = rabbet_node_input_at(kernel, call, 0),
                        .output = rabbet_node_output(kernel, call, 0),
                        .scales = rabbet_node_output(kernel, call, 1),
                        .factor = 1};
  if (state->factor != RABBET_DTYPE_NONE)
    run.factor = (float)rabbet_load_double(
        state->factor, rabbet_node_input_at(kernel, call, 1), 0);
  int64_t bytes = rabbet_max_i64(1, state->boxes.elements * run.size);
  rabbet_cpu_parallel(state->boxes.count,
                      rabbet_ceildiv(RABBET_CPU_GRAIN_BYTES / 4, bytes),
                      dynamic_part, &run);
  return rabbet_ok();
}

RABBET_TAKES_NODE(cpu_dynamic_quantize, DYNAMIC_QUANTIZE, RABBET_TAKES_UNREAD)

RABBET_NODE_CLASS(cpu_dynamic_quantize, "cpu.dynamic_quantize", 1);
