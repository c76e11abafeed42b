// Non-maximum suppression. The candidates of each class of each batch, whose
// scores are above the threshold, form a heap. Boxes are taken from it unless
// they overlap an earlier one. Then the classes of a batch are merged.
#include <assert.h>

#include "device/common/nms.h"

#include "core/view.h"
#include "device/cpu/cpu.h"
#include "device/cpu/parallel.h"

typedef struct cpu_nms_state_t {
  rabbet_nms_t nms;
  rabbet_dtype_t box_type, score_type, most_type;
  rabbet_dtype_t thresholds[2];  // NONE: omitted
  bool is_long;
  int64_t lists, slots;
} cpu_nms_state_t;

// One class of one batch. keys[0, count) are candidates, a heap; chosen keys
// fill the array from its end.
typedef struct nms_list_t {
  int64_t count, taken, merged;
} nms_list_t;

static rabbet_status_t cpu_nms_body(rabbet_proposal_t* proposal) {
  return rabbet_proposal_offer(proposal, "heaps", -1);
}

RABBET_PROPOSE_FOR(cpu_nms, NMS)

static size_t cpu_nms_workspace(const cpu_nms_state_t* state) {
  const rabbet_nms_t* nms = &state->nms;
  size_t lists = (size_t)state->lists;
  return lists * (size_t)nms->boxes * sizeof(uint64_t) +
         lists * sizeof(nms_list_t) + (size_t)nms->classes * sizeof(uint64_t) +
         (size_t)(state->slots * nms->most) * sizeof(rabbet_nms_box_t);
}

static rabbet_status_t cpu_nms_prepare(rabbet_kernel_t* base,
                                       const rabbet_kernel_shapes_t* shapes,
                                       cpu_nms_state_t** out_state,
                                       size_t* out_workspace) {
  const rabbet_node_kernel_t* kernel = (const rabbet_node_kernel_t*)base;
  const rabbet_group_node_t* node = kernel->node;
  const rabbet_group_value_t* values = kernel->group->values;
  rabbet_nms_t nms;
  *out_workspace = 0;
  *out_state = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_nms_resolve_node(kernel, shapes, &nms));
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(**out_state), (void**)out_state));
  cpu_nms_state_t* state = *out_state;
  state->nms = nms;
  state->box_type = values[node->inputs[RABBET_NMS_BOXES]].dtype;
  state->score_type = values[node->inputs[RABBET_NMS_SCORES]].dtype;
  state->most_type = values[node->inputs[RABBET_NMS_MOST]].dtype;
  for (size_t i = 0; i < 2; ++i) {
    int32_t value = rabbet_node_input(node, RABBET_NMS_IOU_THRESHOLD + i);
    state->thresholds[i] = value < 0 ? RABBET_DTYPE_NONE : values[value].dtype;
  }
  state->is_long = values[node->outputs[0]].dtype == RABBET_DTYPE_INT64;
  state->lists = nms.batch * nms.classes;
  state->slots = rabbet_cpu_slots(shapes->threads);
  *out_workspace = cpu_nms_workspace(state);
  return rabbet_ok();
}

// ---- Heaps, the largest on top ---------------------------------------------

static void nms_sift(uint64_t* heap, int64_t count, int64_t at, uint64_t key) {
  for (int64_t below = 2 * at + 1; below < count; below = 2 * at + 1) {
    if (below + 1 < count && heap[below + 1] > heap[below]) ++below;
    if (heap[below] <= key) break;
    heap[at] = heap[below];
    at = below;
  }
  heap[at] = key;
}

static void nms_heap(uint64_t* heap, int64_t count) {
  for (int64_t at = count / 2 - 1; at >= 0; --at)
    nms_sift(heap, count, at, heap[at]);
}

// ---- Candidates ------------------------------------------------------------

typedef struct nms_call_t {
  const cpu_nms_state_t* state;
  const void *boxes, *scores;
  float iou, score;  // thresholds
  int64_t most;
  uint64_t *keys, *heads;
  nms_list_t* lists;
  rabbet_nms_box_t* taken;  // `nms.most` for each slot
  void* rows;
} nms_call_t;

static inline float nms_load(rabbet_dtype_t dtype, const void* data,
                             int64_t at) {
  if (dtype == RABBET_DTYPE_FLOAT) return ((const float*)data)[at];
  uint16_t bits = ((const uint16_t*)data)[at];
  return dtype == RABBET_DTYPE_HALF ? rabbet_half_to_float(bits)
                                    : rabbet_bf16_to_float(bits);
}

static uint64_t* nms_keys(const nms_call_t* call, int64_t list) {
  return call->keys + list * call->state->nms.boxes;
}

static void nms_collect(void* context, int64_t begin, int64_t end) {
  const nms_call_t* call = context;
  const rabbet_nms_t* nms = &call->state->nms;
  rabbet_dtype_t dtype = call->state->score_type;
  for (int64_t list = begin; list < end; ++list) {
    int64_t from = list / nms->classes * nms->score_batch +
                   list % nms->classes * nms->score_class;
    uint64_t* keys = nms_keys(call, list);
    int64_t count = 0;
    for (int64_t i = 0; i < nms->boxes; ++i) {
      float score = nms_load(dtype, call->scores, from + i * nms->score_box);
      if (score > call->score) keys[count++] = rabbet_nms_key(score, i);
    }
    assert(count <= nms->boxes);
    call->lists[list] = (nms_list_t){.count = count};
  }
}

// ---- The limit -------------------------------------------------------------

// The score of the candidate number `rank` of a batch, by radix selection with
// digits of 8 bits; *out_left: how many candidates of this score are among the
// best `rank`.
static uint32_t nms_cut(const nms_call_t* call, int64_t first, int64_t rank,
                        int64_t* out_left) {
  uint32_t found = 0;
  for (int shift = 24; shift >= 0; shift -= 8) {
    int64_t counts[256] = {0};
    for (int64_t list = first; list < first + call->state->nms.classes;
         ++list) {
      const uint64_t* keys = nms_keys(call, list);
      for (int64_t i = 0; i < call->lists[list].count; ++i) {
        uint32_t score = (uint32_t)(keys[i] >> 32);
        // Counts candidates with the digits found so far.
        if (((uint64_t)(score ^ found) >> (shift + 8)) == 0)
          ++counts[score >> shift & 255];
      }
    }
    int digit = 255;
    for (; digit > 0 && counts[digit] < rank; --digit)
      rank -= counts[digit];
    found |= (uint32_t)digit << shift;
  }
  *out_left = rank;
  return found;
}

// Keeps the best candidates of a batch; among equal scores those of lower
// classes, then of lower boxes.
static void nms_limit(const nms_call_t* call, int64_t batch) {
  const rabbet_nms_t* nms = &call->state->nms;
  int64_t first = batch * nms->classes, total = 0, left = 0;
  for (int64_t i = 0; i < nms->classes; ++i)
    total += call->lists[first + i].count;
  if (nms->limit == 0 || total <= nms->limit) return;
  uint32_t cut = nms_cut(call, first, nms->limit, &left);
  assert(left > 0 && left <= nms->limit);
  for (int64_t i = first; i < first + nms->classes; ++i) {
    uint64_t* keys = nms_keys(call, i);
    int64_t kept = 0;
    for (int64_t k = 0; k < call->lists[i].count; ++k) {
      uint32_t score = (uint32_t)(keys[k] >> 32);
      if (score < cut || (score == cut && left == 0)) continue;
      left -= score == cut;
      keys[kept++] = keys[k];
    }
    call->lists[i].count = kept;
  }
}

// ---- Choosing --------------------------------------------------------------

static rabbet_nms_box_t nms_find_box(const nms_call_t* call, int64_t list,
                                     uint64_t key) {
  const rabbet_nms_t* nms = &call->state->nms;
  int64_t from = list / nms->classes * nms->box_batch +
                 list % nms->classes * nms->box_class +
                 rabbet_nms_index(key) * nms->box_box;
  float at[4];
  for (int i = 0; i < 4; ++i)
    at[i] = nms_load(call->state->box_type, call->boxes, from + i);
  return rabbet_nms_box(at, nms->center);
}

static void nms_choose(const nms_call_t* call, int64_t index,
                       rabbet_nms_box_t* boxes) {
  nms_list_t* list = &call->lists[index];
  uint64_t* keys = nms_keys(call, index);
  nms_heap(keys, list->count);
  for (int64_t left = list->count; left > 0 && list->taken < call->most;
       --left) {
    uint64_t key = keys[0];
    rabbet_nms_box_t box = nms_find_box(call, index, key);
    nms_sift(keys, left - 1, 0, keys[left - 1]);
    bool good = true;
    for (int64_t i = 0; i < list->taken && good; ++i)
      good = !rabbet_nms_overlap(&box, &boxes[i], call->iou);
    if (!good) continue;
    boxes[list->taken] = box;
    // There is room at the end: at least as many keys have left the heap.
    assert(list->count - 1 - list->taken >= left - 1);
    keys[list->count - 1 - list->taken++] = key;
  }
}

static void nms_choose_some(void* context, int64_t begin, int64_t end) {
  const nms_call_t* call = context;
  rabbet_nms_box_t* boxes =
      call->taken + rabbet_cpu_slot() * call->state->nms.most;
  for (int64_t list = begin; list < end; ++list)
    nms_choose(call, list, boxes);
}

// ---- Writing ---------------------------------------------------------------

static void nms_write(const nms_call_t* call, int64_t row, int64_t list,
                      int64_t taken) {
  const rabbet_nms_t* nms = &call->state->nms;
  assert(taken < call->lists[list].taken);
  uint64_t key = nms_keys(call, list)[call->lists[list].count - 1 - taken];
  const int64_t numbers[3] = {list / nms->classes, list % nms->classes,
                              rabbet_nms_index(key)};
  for (int64_t i = 0; i < 3; ++i) {
    if (call->state->is_long)
      ((int64_t*)call->rows)[3 * row + i] = numbers[i];
    else
      ((int32_t*)call->rows)[3 * row + i] = (int32_t)numbers[i];
  }
}

// The order in which classes are merged: by the next score, then by class.
static uint64_t nms_head(const nms_call_t* call, int64_t list) {
  const nms_list_t* at = &call->lists[list];
  uint64_t key = nms_keys(call, list)[at->count - 1 - at->merged];
  uint32_t class_index = (uint32_t)(list % call->state->nms.classes);
  return key >> 32 << 32 | (uint32_t)~class_index;
}

static int64_t nms_merge(const nms_call_t* call, int64_t batch, int64_t row) {
  int64_t classes = call->state->nms.classes, first = batch * classes;
  int64_t count = 0;
  for (int64_t i = first; i < first + classes; ++i)
    if (call->lists[i].taken > 0) call->heads[count++] = nms_head(call, i);
  nms_heap(call->heads, count);
  while (count > 0) {
    int64_t list = first + (uint32_t) ~(uint32_t)call->heads[0];
    nms_list_t* at = &call->lists[list];
    nms_write(call, row++, list, at->merged++);
    uint64_t next =
        at->merged < at->taken ? nms_head(call, list) : call->heads[--count];
    if (count > 0) nms_sift(call->heads, count, 0, next);
  }
  return row;
}

static int64_t nms_write_all(const nms_call_t* call) {
  const rabbet_nms_t* nms = &call->state->nms;
  int64_t row = 0;
  for (int64_t batch = 0; batch < nms->batch && !nms->by_class; ++batch)
    row = nms_merge(call, batch, row);
  for (int64_t list = 0; list < call->state->lists && nms->by_class; ++list)
    for (int64_t i = 0; i < call->lists[list].taken; ++i)
      nms_write(call, row++, list, i);
  return row;
}

// ---- Running ---------------------------------------------------------------

static float nms_threshold(const rabbet_node_kernel_t* kernel,
                           const cpu_nms_state_t* state,
                           const rabbet_kernel_call_t* call, size_t i) {
  if (state->thresholds[i] == RABBET_DTYPE_NONE) return 0;
  return nms_load(
      state->thresholds[i],
      rabbet_node_input_at(kernel, call, RABBET_NMS_IOU_THRESHOLD + i), 0);
}

static nms_call_t nms_call(const rabbet_node_kernel_t* kernel,
                           const cpu_nms_state_t* state,
                           const rabbet_kernel_call_t* call) {
  const void* most = rabbet_node_input_at(kernel, call, RABBET_NMS_MOST);
  int64_t wanted = state->most_type == RABBET_DTYPE_INT64
                       ? *(const int64_t*)most
                       : *(const int32_t*)most;
  nms_call_t run = {
      .state = state,
      .boxes = rabbet_node_input_at(kernel, call, RABBET_NMS_BOXES),
      .scores = rabbet_node_input_at(kernel, call, RABBET_NMS_SCORES),
      .iou = nms_threshold(kernel, state, call, 0),
      .score = nms_threshold(kernel, state, call, 1),
      .most = rabbet_min_i64(wanted, state->nms.most),
      .rows = rabbet_node_output(kernel, call, RABBET_NMS_INDICES)};
  run.keys = call->workspace;
  run.heads = run.keys + state->lists * state->nms.boxes;
  run.lists = (nms_list_t*)(run.heads + state->nms.classes);
  run.taken = (rabbet_nms_box_t*)(run.lists + state->lists);
  return run;
}

static rabbet_status_t cpu_nms_enqueue(rabbet_kernel_t* base,
                                       cpu_nms_state_t* state,
                                       const rabbet_kernel_call_t* call) {
  const rabbet_node_kernel_t* kernel = (const rabbet_node_kernel_t*)base;
  nms_call_t run = nms_call(kernel, state, call);
  int64_t bytes = rabbet_max_i64(1, state->nms.boxes * 4);
  rabbet_cpu_parallel(state->lists,
                      rabbet_max_i64(1, RABBET_CPU_GRAIN_BYTES / bytes),
                      nms_collect, &run);
  for (int64_t batch = 0; batch < state->nms.batch; ++batch)
    nms_limit(&run, batch);
  rabbet_cpu_parallel(state->lists,
                      rabbet_max_i64(1, RABBET_CPU_GRAIN_BYTES / 8 / bytes),
                      nms_choose_some, &run);
  *(int32_t*)rabbet_node_output(kernel, call, RABBET_NMS_COUNT) =
      (int32_t)nms_write_all(&run);
  return rabbet_ok();
}

RABBET_TAKES_NODE(cpu_nms, NMS, 0)

RABBET_NODE_CLASS(cpu_nms, "cpu.nms", 1);
