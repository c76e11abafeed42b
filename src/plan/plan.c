#include "plan/plan.h"

#include <assert.h>

rabbet_status_t rabbet_plan_create(rabbet_allocator_t allocator,
                                   rabbet_plan_t** out_plan) {
  *out_plan = NULL;
  rabbet_plan_t* plan = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(allocator, sizeof(*plan), (void**)&plan));
  plan->allocator = allocator;
  rabbet_arena_initialize(allocator, &plan->arena);
  *out_plan = plan;
  return rabbet_ok();
}

static const int32_t plan_first_sequence[] = {0};

rabbet_status_t rabbet_plan_make_sequences(rabbet_plan_t* plan, size_t count) {
  assert(!plan->sequences && count > 0);
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &plan->arena, count, sizeof(*plan->sequences), (void**)&plan->sequences));
  plan->sequence_count = count;
  plan->entries = plan_first_sequence;
  plan->profile_count = 1;
  for (size_t i = 0; i < count; ++i) {
    plan->sequences[i].plan = plan;
    plan->sequences[i].name = "";
    plan->sequences[i].profile_count = 1;
    RABBET_RETURN_IF_ERROR(
        rabbet_expr_graph_create(plan->allocator, &plan->sequences[i].graph));
  }
  return rabbet_ok();
}

void rabbet_plan_destroy(rabbet_plan_t* plan) {
  if (!plan) return;
  rabbet_allocator_t allocator = plan->allocator;
  for (size_t i = 0; i < plan->sequence_count; ++i)
    rabbet_expr_graph_destroy(plan->sequences[i].graph);
  if (plan->file) rabbet_file_map_release(plan->file);
  rabbet_free_aligned(allocator, plan->copy, RABBET_PLAN_ALIGNMENT);
  rabbet_arena_deinitialize(&plan->arena);
  rabbet_free(allocator, plan);
}

size_t rabbet_plan_entry_profile(const rabbet_plan_t* plan, size_t profile) {
  size_t number = 0;
  assert(profile < plan->profile_count);
  for (size_t i = 0; i < profile; ++i)
    number += plan->entries[i] == plan->entries[profile];
  return number;
}

bool rabbet_plan_is_entry(const rabbet_plan_t* plan, size_t sequence) {
  for (size_t i = 0; i < plan->profile_count; ++i)
    if ((size_t)plan->entries[i] == sequence) return true;
  return false;
}

size_t rabbet_plan_step_count(const rabbet_plan_t* plan) {
  size_t count = 0;
  for (size_t i = 0; i < plan->sequence_count; ++i)
    count += plan->sequences[i].step_count;
  return count;
}

const rabbet_plan_step_t* rabbet_plan_step(const rabbet_plan_t* plan,
                                           size_t number) {
  assert(number < rabbet_plan_step_count(plan));
  const rabbet_plan_sequence_t* sequence = plan->sequences;
  for (; number >= sequence->step_count; ++sequence)
    number -= sequence->step_count;
  return &sequence->steps[number];
}

int64_t rabbet_plan_first_value(const rabbet_plan_t* plan,
                                const rabbet_plan_sequence_t* sequence) {
  int64_t first = 0;
  assert(sequence >= plan->sequences &&
         sequence <= plan->sequences + plan->sequence_count);
  for (const rabbet_plan_sequence_t* at = plan->sequences; at < sequence; ++at)
    first += (int64_t)at->value_count;
  return first;
}

const rabbet_plan_value_t* rabbet_plan_find_value(
    const rabbet_plan_t* plan, int32_t number,
    const rabbet_plan_sequence_t** out_sequence) {
  const rabbet_plan_sequence_t* sequence = plan->sequences;
  assert(number >= 0);
  for (; (size_t)number >= sequence->value_count; ++sequence) {
    assert(sequence + 1 < plan->sequences + plan->sequence_count);
    number -= (int32_t)sequence->value_count;
  }
  if (out_sequence) *out_sequence = sequence;
  return &sequence->values[number];
}
