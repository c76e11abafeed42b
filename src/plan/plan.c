#include "plan/plan.h"

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

rabbet_status_t rabbet_plan_make_sequences(rabbet_plan_t* plan, size_t count) {
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &plan->arena, count, sizeof(*plan->sequences), (void**)&plan->sequences));
  plan->sequence_count = count;
  for (size_t i = 0; i < count; ++i) {
    plan->sequences[i].plan = plan;
    plan->sequences[i].name = "";
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

size_t rabbet_plan_step_count(const rabbet_plan_t* plan) {
  size_t count = 0;
  for (size_t i = 0; i < plan->sequence_count; ++i)
    count += plan->sequences[i].step_count;
  return count;
}

const rabbet_plan_step_t* rabbet_plan_step(const rabbet_plan_t* plan,
                                           size_t number) {
  const rabbet_plan_sequence_t* sequence = plan->sequences;
  for (; number >= sequence->step_count; ++sequence)
    number -= sequence->step_count;
  return &sequence->steps[number];
}
