// Rotary position embedding: a row is a position of the axes before the last
// one. Results go through buffers, as output and input may share memory.
#include "ops/pointwise/rotation.h"

#include <assert.h>
#include <string.h>

#include "device/common/axes.h"
#include "device/cpu/cpu.h"
#include "device/cpu/parallel.h"
#include "device/cpu/vectors/vectors.h"

enum {
  INPUT = RABBET_ROTATION_INPUT,
  COSINES = RABBET_ROTATION_COSINES,
  SINES = RABBET_ROTATION_SINES,
  OPERANDS = RABBET_ROTATION_OPERANDS
};
enum { PIECE = 256 };  // elements that are rotated together

typedef struct cpu_rotation_state_t {
  rabbet_rotation_t rotation;
  rabbet_axes_t outer;
  int64_t rows;
  rabbet_dtype_t types[OPERANDS];
  int64_t sizes[OPERANDS];  // bytes of an element
} cpu_rotation_state_t;

// ---- The class -------------------------------------------------------------

// Whether tables differ from the input, whose type may change.
static bool rotation_is_apart(const rabbet_group_node_t* node) {
  return node->inputs[COSINES] != node->inputs[INPUT] &&
         node->inputs[SINES] != node->inputs[INPUT];
}

static rabbet_status_t cpu_rotation_body(rabbet_proposal_t* proposal) {
  if (!rotation_is_apart(proposal->node)) return rabbet_ok();
  return rabbet_cpu_offer_same(
      proposal, RABBET_CPU_OFFER_LINEAR, "rows",
      rabbet_group_input_of(proposal->propose->group,
                            proposal->node->inputs[INPUT]));
}

RABBET_PROPOSE_FOR(cpu_rotation, ROTATION)

static void rotation_set(const rabbet_node_kernel_t* kernel,
                         cpu_rotation_state_t* state) {
  const rabbet_rotation_t* r = &state->rotation;
  for (int32_t i = 0; i < r->outer.rank; ++i) {
    const int64_t strides[RABBET_AXES_OPERANDS] = {
        r->strides[INPUT][i], r->strides[COSINES][i], r->strides[SINES][i]};
    rabbet_axes_add(&state->outer, r->outer.d[i], strides);
  }
  rabbet_axes_merge(&state->outer, OPERANDS);
  state->rows = rabbet_axes_positions(&state->outer);
  for (int k = 0; k < OPERANDS; ++k) {
    state->types[k] = kernel->group->values[kernel->node->inputs[k]].dtype;
    state->sizes[k] = rabbet_dtype_bits(state->types[k]) / 8;
  }
}

static rabbet_status_t cpu_rotation_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    cpu_rotation_state_t** out_state, size_t* out_workspace) {
  const rabbet_node_kernel_t* kernel = (const rabbet_node_kernel_t*)base;
  const rabbet_group_node_t* node = kernel->node;
  cpu_rotation_state_t* state = NULL;
  *out_workspace = 0;
  *out_state = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(*state), (void**)&state));
  rabbet_status_t status = RABBET_ANNOTATE(
      rabbet_rotation_read(
          node->attrs, node->op->attr_count, &shapes->dims[node->inputs[INPUT]],
          &shapes->dims[node->inputs[COSINES]],
          &shapes->dims[node->inputs[SINES]], &state->rotation),
      "layer '%s'", node->name);
  if (rabbet_is_ok(status)) rotation_set(kernel, state);
  return rabbet_node_state_finish(base, state, status, (void**)out_state);
}

// ---- Running ---------------------------------------------------------------

typedef struct rotation_call_t {
  const cpu_rotation_state_t* state;
  const rabbet_vectors_t* vectors;
  const char* sources[OPERANDS];
  char* target;
} rotation_call_t;

// `count` elements of an operand at `at`, as floats.
static const float* rotation_load(const rotation_call_t* call, int operand,
                                  int64_t at, int64_t count, float* buffer) {
  const cpu_rotation_state_t* state = call->state;
  const char* source = call->sources[operand] + at * state->sizes[operand];
  rabbet_convert_fn_t convert = call->vectors->to_float[state->types[operand]];
  if (!convert) return (const float*)source;
  convert(source, buffer, count);
  return buffer;
}

static void rotation_store(const rotation_call_t* call, const float* y,
                           int64_t at, int64_t count) {
  const cpu_rotation_state_t* state = call->state;
  char* target = call->target + at * state->sizes[INPUT];
  rabbet_convert_fn_t convert = call->vectors->from_float[state->types[INPUT]];
  if (convert)
    convert(y, target, count);
  else
    memcpy(target, y, (size_t)count * sizeof(*y));
}

// Pairs half of the size apart: `count` pairs from number `i` on.
static void rotation_halves(const rotation_call_t* call, const int64_t* at,
                            int64_t i, int64_t count) {
  const rabbet_rotation_t* r = &call->state->rotation;
  float parts[2][PIECE], tables[OPERANDS][PIECE], results[2][PIECE];
  const float* x[2];
  for (int k = 0; k < 2; ++k)
    x[k] = rotation_load(call, INPUT, at[INPUT] + i + k * r->size / 2, count,
                         parts[k]);
  for (int k = 0; k < 2; ++k) {
    int64_t entry = i + (r->is_whole ? k * r->size / 2 : 0);
    const float* cosine = rotation_load(call, COSINES, at[COSINES] + entry,
                                        count, tables[COSINES]);
    const float* sine =
        rotation_load(call, SINES, at[SINES] + entry, count, tables[SINES]);
    call->vectors->rotate(x[k], x[1 - k], cosine, sine, k == 0 ? -1 : 1, count,
                          results[k]);
  }
  for (int k = 0; k < 2; ++k)
    rotation_store(call, results[k], at[INPUT] + i + k * r->size / 2, count);
}

// Tables of neighbouring elements, from number `i` on; a number for each pair
// is repeated.
static const float* rotation_spread(const rotation_call_t* call, int operand,
                                    int64_t at, int64_t i, int64_t count,
                                    float* buffer) {
  if (call->state->rotation.is_whole)
    return rotation_load(call, operand, at + i, count, buffer);
  float pairs[PIECE / 2];
  const float* from =
      rotation_load(call, operand, at + i / 2, count / 2, pairs);
  for (int64_t k = 0; k < count; ++k)
    buffer[k] = from[k / 2];
  return buffer;
}

// Pairs of neighbours: `count` elements from number `i` on.
static void rotation_neighbours(const rotation_call_t* call, const int64_t* at,
                                int64_t i, int64_t count) {
  float x[PIECE], other[PIECE], cosines[PIECE], sines[PIECE], y[PIECE];
  assert(i % 2 == 0 && count % 2 == 0 && count <= PIECE);
  const float* from = rotation_load(call, INPUT, at[INPUT] + i, count, x);
  for (int64_t k = 0; k < count; k += 2) {
    other[k] = -from[k + 1];
    other[k + 1] = from[k];
  }
  call->vectors->rotate(
      from, other,
      rotation_spread(call, COSINES, at[COSINES], i, count, cosines),
      rotation_spread(call, SINES, at[SINES], i, count, sines), 1, count, y);
  rotation_store(call, y, at[INPUT] + i, count);
}

static void rotation_rows(void* context, int64_t begin, int64_t end) {
  const rotation_call_t* call = context;
  const cpu_rotation_state_t* state = call->state;
  const rabbet_rotation_t* r = &state->rotation;
  int64_t count = r->interleaved ? r->size : r->size / 2;
  int64_t rest = (r->width - r->size) * state->sizes[INPUT];
  for (int64_t row = begin; row < end; ++row) {
    int64_t at[OPERANDS];
    rabbet_axes_locate(&state->outer, row, OPERANDS, at);
    for (int64_t i = 0; i < count; i += PIECE)
      (r->interleaved ? rotation_neighbours : rotation_halves)(
          call, at, i, rabbet_min_i64(PIECE, count - i));
    int64_t behind = (at[INPUT] + r->size) * state->sizes[INPUT];
    if (rest > 0 && call->target != call->sources[INPUT])
      memcpy(call->target + behind, call->sources[INPUT] + behind,
             (size_t)rest);
  }
}

static rabbet_status_t cpu_rotation_enqueue(rabbet_kernel_t* base,
                                            cpu_rotation_state_t* state,
                                            const rabbet_kernel_call_t* call) {
  const rabbet_node_kernel_t* kernel = (const rabbet_node_kernel_t*)base;
  rotation_call_t run = {
      .state = state, .vectors = rabbet_vectors(), .target = call->outputs[0]};
  for (int k = 0; k < OPERANDS; ++k)
    run.sources[k] = rabbet_node_input_at(kernel, call, (size_t)k);
  int64_t bytes = 2 * state->rotation.width * state->sizes[INPUT];
  rabbet_cpu_parallel(
      state->rows,
      rabbet_max_i64(1, RABBET_CPU_GRAIN_BYTES / rabbet_max_i64(bytes, 1)),
      rotation_rows, &run);
  return rabbet_ok();
}

RABBET_TAKES_NODE(cpu_rotation, ROTATION, RABBET_TAKES_OTHER_TYPES)

RABBET_NODE_CLASS(cpu_rotation, "cpu.rotation", 1);
