// The order of steps if some work in place: other readers of their memory come
// first, if possible.
#include <assert.h>
#include <string.h>

#include "base/heap.h"
#include "builder/emit/concatenations.h"
#include "builder/emit/layout.h"

typedef struct pair_t {
  int32_t first, second;
} pair_t;

typedef RABBET_VEC(pair_t) pairs_t;

typedef struct orderer_t {
  rabbet_build_t* build;
  rabbet_layout_t* layout;
  int32_t* maker;   // step that makes each slot, or -1
  int32_t* memory;  // slot that owns each slot's memory, through views
  pairs_t before;   // a step, and one that comes after it
  bool* reached;
} orderer_t;

// The second numbers of pairs, grouped by the first: numbers[begins[i],
// begins[i + 1]) are those of i.
typedef struct lists_t {
  int32_t *begins, *numbers;
} lists_t;

static rabbet_status_t lists_create(rabbet_arena_t* arena, const pairs_t* pairs,
                                    size_t count, lists_t* out) {
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, count + 2, sizeof(int32_t), (void**)&out->begins));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, pairs->count, sizeof(int32_t), (void**)&out->numbers));
  // Filling moves each beginning to the next one, so they are stored one later.
  for (size_t i = 0; i < pairs->count; ++i) {
    assert(pairs->data[i].first >= 0 && (size_t)pairs->data[i].first < count);
    out->begins[pairs->data[i].first + 2]++;
  }
  for (size_t i = 2; i < count + 2; ++i)
    out->begins[i] += out->begins[i - 1];
  for (size_t i = 0; i < pairs->count; ++i)
    out->numbers[out->begins[pairs->data[i].first + 1]++] =
        pairs->data[i].second;
  assert(out->begins[0] == 0 && (size_t)out->begins[count] == pairs->count);
  return rabbet_ok();
}

static rabbet_status_t order_edges(orderer_t* order) {
  const rabbet_layout_t* layout = order->layout;
  for (size_t i = 0; i < layout->slots.count; ++i) {
    order->maker[i] = -1;
    order->memory[i] = (int32_t)i;
  }
  for (size_t s = 0; s < layout->steps.count; ++s) {
    const rabbet_layout_step_t* step = &layout->steps.data[s];
    size_t inputs = rabbet_layout_step_inputs(step);
    for (size_t i = 0; i < inputs; ++i) {
      int32_t maker = order->maker[step->slots[i]];
      if (maker < 0) continue;
      assert(maker < (int32_t)s);
      RABBET_RETURN_IF_ERROR(RABBET_VEC_PUSH(order->build->allocator,
                                             &order->before,
                                             ((pair_t){maker, (int32_t)s})));
    }
    for (size_t i = 0; i < rabbet_layout_step_outputs(step); ++i)
      order->maker[step->slots[inputs + i]] = (int32_t)s;
    if (rabbet_layout_step_is_view(step) && !rabbet_concatenation_is_view(step))
      order->memory[step->slots[inputs]] = order->memory[step->slots[0]];
  }
  return rabbet_ok();
}

// Marks the step and all steps that depend on it.
static void order_reach(orderer_t* order, int32_t step) {
  memset(order->reached, 0, order->layout->steps.count * sizeof(bool));
  order->reached[step] = true;
  bool changed = true;
  while (changed) {
    changed = false;
    for (size_t i = 0; i < order->before.count; ++i) {
      const pair_t* pair = &order->before.data[i];
      if (!order->reached[pair->first] || order->reached[pair->second])
        continue;
      order->reached[pair->second] = true;
      changed = true;
    }
  }
}

// Pairs of a memory and a step that reads it.
static rabbet_status_t order_readers(orderer_t* order, lists_t* out) {
  pairs_t pairs = {0};
  rabbet_status_t status = rabbet_ok();
  for (size_t s = 0; s < order->layout->steps.count; ++s) {
    const rabbet_layout_step_t* step = &order->layout->steps.data[s];
    for (size_t i = 0;
         rabbet_is_ok(status) && i < rabbet_layout_step_inputs(step); ++i)
      status = RABBET_VEC_PUSH(
          order->build->allocator, &pairs,
          ((pair_t){order->memory[step->slots[i]], (int32_t)s}));
  }
  if (rabbet_is_ok(status))
    status = lists_create(&order->build->arena, &pairs,
                          order->layout->slots.count, out);
  rabbet_vec_free(order->build->allocator, &pairs);
  return status;
}

// Orders other readers of the memory before the step, unless they need its
// result.
static rabbet_status_t order_around(orderer_t* order, const lists_t* readers,
                                    size_t step) {
  const rabbet_layout_step_t* s = &order->layout->steps.data[step];
  const int32_t* aliased = s->pick.choice->candidate.aliased;
  for (size_t i = 0; i < rabbet_layout_step_outputs(s); ++i) {
    if (aliased[i] < 0) continue;
    int32_t memory = order->memory[s->slots[aliased[i]]];
    for (int32_t k = readers->begins[memory]; k < readers->begins[memory + 1];
         ++k) {
      int32_t reader = readers->numbers[k];
      if (reader == (int32_t)step) continue;
      order_reach(order, (int32_t)step);
      if (order->reached[reader]) continue;
      RABBET_RETURN_IF_ERROR(
          RABBET_VEC_PUSH(order->build->allocator, &order->before,
                          ((pair_t){reader, (int32_t)step})));
    }
  }
  return rabbet_ok();
}

// Sorts the steps so that all edges are kept; of steps that may be next, the
// first in the old order is.
static rabbet_status_t order_sort(orderer_t* order) {
  size_t count = order->layout->steps.count, ready_count = 0, placed = 0;
  int32_t *waiting = NULL, *ready = NULL;
  rabbet_layout_step_t* sorted = NULL;
  lists_t after;
  rabbet_arena_t* arena = &order->build->arena;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, count, sizeof(int32_t), (void**)&waiting));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, count, sizeof(int32_t), (void**)&ready));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, count, sizeof(*sorted), (void**)&sorted));
  RABBET_RETURN_IF_ERROR(lists_create(arena, &order->before, count, &after));
  for (size_t i = 0; i < order->before.count; ++i)
    waiting[order->before.data[i].second]++;
  for (size_t i = 0; i < count; ++i)
    if (waiting[i] == 0) rabbet_heap_push(ready, &ready_count, (int32_t)i);
  while (ready_count > 0) {
    int32_t next = rabbet_heap_pop(ready, &ready_count);
    sorted[placed++] = order->layout->steps.data[next];
    for (int32_t k = after.begins[next]; k < after.begins[next + 1]; ++k)
      if (--waiting[after.numbers[k]] == 0)
        rabbet_heap_push(ready, &ready_count, after.numbers[k]);
  }
  assert(placed == count);
  memcpy(order->layout->steps.data, sorted, count * sizeof(*sorted));
  return rabbet_ok();
}

static rabbet_status_t order_all(orderer_t* order) {
  rabbet_arena_t* arena = &order->build->arena;
  size_t slots = order->layout->slots.count;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, slots, sizeof(int32_t), (void**)&order->maker));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, slots, sizeof(int32_t), (void**)&order->memory));
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate_array(arena, order->layout->steps.count,
                                  sizeof(bool), (void**)&order->reached));
  lists_t readers;
  RABBET_RETURN_IF_ERROR(order_edges(order));
  RABBET_RETURN_IF_ERROR(order_readers(order, &readers));
  for (size_t s = 0; s < order->layout->steps.count; ++s)
    if (rabbet_layout_step_is_in_place(&order->layout->steps.data[s]))
      RABBET_RETURN_IF_ERROR(order_around(order, &readers, s));
  return order_sort(order);
}

rabbet_status_t rabbet_layout_order(rabbet_build_t* build,
                                    rabbet_layout_t* layout) {
  bool any = false;
  for (size_t s = 0; s < layout->steps.count; ++s)
    any |= rabbet_layout_step_is_in_place(&layout->steps.data[s]);
  if (!any) return rabbet_ok();
  orderer_t order = {.build = build, .layout = layout};
  rabbet_status_t status = order_all(&order);
  rabbet_vec_free(build->allocator, &order.before);
  return status;
}
