// The best elements along an axis. A heap has the k best elements of a row so
// far, the worst of them on top, so most elements cost one comparison. The heap
// is sorted at the end.
#include <assert.h>
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/cpu/parallel.h"
#include "device/cpu/vectors/vectors.h"
#include "ops/enums.h"

// Larger is better; of equal keys the lower index.
typedef struct topk_item_t {
  int64_t key, index;
} topk_item_t;

typedef struct cpu_topk_state_t {
  rabbet_dtype_t dtype, index_type;
  bool smallest;
  int64_t rows, inner;  // a row's elements are `inner` apart
  int64_t count, k;
  int64_t size;       // bytes of an element
  int64_t slot_step;  // bytes of the workspace for each thread
} cpu_topk_state_t;

static rabbet_status_t cpu_topk_body(rabbet_proposal_t* proposal) {
  return rabbet_proposal_offer_linear(proposal, "heap", -1);
}

RABBET_PROPOSE_FOR(cpu_topk, TOPK)

static rabbet_status_t cpu_topk_prepare(rabbet_kernel_t* base,
                                        const rabbet_kernel_shapes_t* shapes,
                                        cpu_topk_state_t** out_state,
                                        size_t* out_workspace) {
  const rabbet_node_kernel_t* kernel = (const rabbet_node_kernel_t*)base;
  const rabbet_group_node_t* node = kernel->node;
  const rabbet_group_value_t* values = kernel->group->values;
  const rabbet_dims_t* in = &shapes->dims[node->inputs[0]];
  const rabbet_dims_t* out = &shapes->dims[node->outputs[0]];
  int32_t axis =
      __builtin_ctzll((unsigned long long)rabbet_node_int(node, "axes"));
  *out_workspace = 0;
  *out_state = NULL;
  if (out->d[axis] > in->d[axis])
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                         "layer '%s': k is %lld; axis %d has %lld elements",
                         node->name, (long long)out->d[axis], axis,
                         (long long)in->d[axis]);
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(**out_state), (void**)out_state));
  cpu_topk_state_t* state = *out_state;
  state->dtype = values[node->inputs[0]].dtype;
  state->index_type = values[node->outputs[1]].dtype;
  state->size = rabbet_dtype_bits(state->dtype) / 8;
  state->smallest = rabbet_node_int(node, "op") == RABBET_TOPK_MIN;
  state->count = in->d[axis];
  state->k = out->d[axis];
  state->rows = state->inner = 1;
  for (int32_t i = 0; i < in->rank; ++i) {
    if (i != axis) state->rows *= in->d[i];
    if (i > axis) state->inner *= in->d[i];
  }
  state->slot_step = state->k * (int64_t)sizeof(topk_item_t) +
                     RABBET_LANES * (int64_t)sizeof(int64_t);
  *out_workspace =
      (size_t)(rabbet_cpu_slots(shapes->threads) * state->slot_step);
  return rabbet_ok();
}

// ---- Keys ------------------------------------------------------------------

static inline int64_t topk_float_key(float x) {
  uint32_t bits = 0;
  if (x != x) return INT64_C(1) << 40;
  x += 0.0f;  // -0 is 0
  memcpy(&bits, &x, sizeof(bits));
  return bits >> 31 ? -(int64_t)(bits & 0x7fffffff) : (int64_t)bits;
}

static inline int64_t topk_double_key(double x) {
  int64_t bits = 0;
  if (x != x) return INT64_MAX;
  x += 0.0;
  memcpy(&bits, &x, sizeof(bits));
  return bits < 0 ? -(bits & INT64_MAX) : bits;
}

// Keys of up to RABBET_LANES elements, `step` elements apart.
static void topk_keys(const cpu_topk_state_t* state, const char* source,
                      int64_t step, int64_t count, int64_t* keys) {
#define RABBET_TOPK_KEYS(type, expression)    \
  for (int64_t i = 0; i < count; ++i) {       \
    type x = ((const type*)source)[i * step]; \
    keys[i] = (expression);                   \
  }                                           \
  break
  switch (state->dtype) {
    case RABBET_DTYPE_FLOAT:
      RABBET_TOPK_KEYS(float, topk_float_key(x));
    case RABBET_DTYPE_DOUBLE:
      RABBET_TOPK_KEYS(double, topk_double_key(x));
    case RABBET_DTYPE_HALF:
      RABBET_TOPK_KEYS(uint16_t, topk_float_key(rabbet_half_to_float(x)));
    case RABBET_DTYPE_BF16:
      RABBET_TOPK_KEYS(uint16_t, topk_float_key(rabbet_bf16_to_float(x)));
    case RABBET_DTYPE_INT8:
      RABBET_TOPK_KEYS(int8_t, x);
    case RABBET_DTYPE_UINT8:
      RABBET_TOPK_KEYS(uint8_t, x);
    case RABBET_DTYPE_INT32:
      RABBET_TOPK_KEYS(int32_t, x);
    default:
      RABBET_TOPK_KEYS(int64_t, x);
  }
#undef RABBET_TOPK_KEYS
  if (!state->smallest) return;
  for (int64_t i = 0; i < count; ++i)
    keys[i] = ~keys[i];  // reverses the order without overflow
}

// ---- Heaps -----------------------------------------------------------------

static inline bool topk_worse(const topk_item_t* a, const topk_item_t* b) {
  return a->key != b->key ? a->key < b->key : a->index > b->index;
}

// Moves the item down from `at` until both children are better.
static void topk_sift(topk_item_t* heap, int64_t count, int64_t at,
                      topk_item_t item) {
  assert(at >= 0 && at < count);
  for (int64_t below = 2 * at + 1; below < count; below = 2 * at + 1) {
    if (below + 1 < count && topk_worse(&heap[below + 1], &heap[below]))
      ++below;
    if (!topk_worse(&heap[below], &item)) break;
    heap[at] = heap[below];
    at = below;
  }
  heap[at] = item;
}

static void topk_sort(topk_item_t* heap, int64_t count) {
  for (int64_t left = count - 1; left > 0; --left) {
    topk_item_t worst = heap[0];
    topk_sift(heap, left, 0, heap[left]);
    heap[left] = worst;
  }
}

static void topk_find(const cpu_topk_state_t* state, const char* source,
                      int64_t* keys, topk_item_t* heap) {
  int64_t filled = 0, k = state->k;
  for (int64_t first = 0; first < state->count; first += RABBET_LANES) {
    int64_t lanes = rabbet_min_i64(RABBET_LANES, state->count - first);
    topk_keys(state, source + first * state->inner * state->size, state->inner,
              lanes, keys);
    for (int64_t i = 0; i < lanes; ++i) {
      const topk_item_t item = {keys[i], first + i};
      if (filled < k) {
        heap[filled++] = item;
        for (int64_t at = k / 2 - 1; filled == k && at >= 0; --at)
          topk_sift(heap, k, at, heap[at]);
      } else if (item.key > heap[0].key) {  // a later index is worse
        topk_sift(heap, k, 0, item);
      }
    }
  }
  assert(filled == k);
  topk_sort(heap, k);
  for (int64_t i = 1; i < k; ++i)
    assert(topk_worse(&heap[i], &heap[i - 1]));
}

// ---- Running ---------------------------------------------------------------

typedef struct topk_call_t {
  const cpu_topk_state_t* state;
  const char* source;
  char *values, *indices;
  char* workspace;
} topk_call_t;

static void topk_rows(void* context, int64_t first, int64_t last) {
  const topk_call_t* call = context;
  const cpu_topk_state_t* state = call->state;
  int64_t* keys =
      (int64_t*)(call->workspace + rabbet_cpu_slot() * state->slot_step);
  topk_item_t* heap = (topk_item_t*)(keys + RABBET_LANES);
  for (int64_t row = first; row < last; ++row) {
    int64_t outer = row / state->inner, at = row % state->inner;
    const char* source =
        call->source + (outer * state->count * state->inner + at) * state->size;
    topk_find(state, source, keys, heap);
    for (int64_t i = 0; i < state->k; ++i) {
      int64_t to = (outer * state->k + i) * state->inner + at;
      if (call->values)
        memcpy(call->values + to * state->size,
               source + heap[i].index * state->inner * state->size,
               (size_t)state->size);
      if (!call->indices) continue;
      if (state->index_type == RABBET_DTYPE_INT32)
        ((int32_t*)call->indices)[to] = (int32_t)heap[i].index;
      else
        ((int64_t*)call->indices)[to] = heap[i].index;
    }
  }
}

static rabbet_status_t cpu_topk_enqueue(rabbet_kernel_t* base,
                                        cpu_topk_state_t* state,
                                        const rabbet_kernel_call_t* call) {
  const rabbet_node_kernel_t* kernel = (const rabbet_node_kernel_t*)base;
  if (state->k == 0) return rabbet_ok();
  topk_call_t run = {.state = state,
                     .source = rabbet_node_input_at(kernel, call, 0),
                     .values = rabbet_node_output(kernel, call, 0),
                     .indices = rabbet_node_output(kernel, call, 1),
                     .workspace = call->workspace};
  rabbet_cpu_parallel(
      state->rows,
      rabbet_max_i64(1, RABBET_CPU_GRAIN_BYTES / (state->count * 8)), topk_rows,
      &run);
  return rabbet_ok();
}

RABBET_TAKES_NODE(cpu_topk, TOPK, RABBET_TAKES_UNREAD)

RABBET_NODE_CLASS_WITH(cpu_topk, "cpu.topk", 1, RABBET_KERNEL_DOUBLE);
