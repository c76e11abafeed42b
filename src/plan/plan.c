#include "plan/plan.h"

rabbet_status_t rabbet_plan_create(rabbet_allocator_t allocator,
                                   rabbet_plan_t** out_plan) {
  *out_plan = NULL;
  rabbet_plan_t* plan = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(allocator, sizeof(*plan), (void**)&plan));
  plan->allocator = allocator;
  rabbet_arena_initialize(allocator, &plan->arena);
  rabbet_status_t status = rabbet_expr_graph_create(allocator, &plan->graph);
  if (!rabbet_is_ok(status)) {
    rabbet_plan_destroy(plan);
    return status;
  }
  *out_plan = plan;
  return rabbet_ok();
}

void rabbet_plan_destroy(rabbet_plan_t* plan) {
  if (!plan) return;
  rabbet_allocator_t allocator = plan->allocator;
  rabbet_expr_graph_destroy(plan->graph);
  if (plan->file) rabbet_file_map_release(plan->file);
  rabbet_free_aligned(allocator, plan->copy, RABBET_PLAN_ALIGNMENT);
  rabbet_arena_deinitialize(&plan->arena);
  rabbet_free(allocator, plan);
}
