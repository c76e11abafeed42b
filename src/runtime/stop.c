// Ends runs early: limits of iterations, and callers that cancel.
#include "runtime/runtime.h"
#include "runtime/share.h"

rabbet_status_t rabbet_check_iteration_limit(int64_t limit) {
  return limit >= 0 ? rabbet_ok()
                    : RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                                    "iteration limit %lld; expected a number "
                                    "from 0 (no limit) on",
                                    (long long)limit);
}

rabbet_status_t rabbet_context_set_iteration_limit(rabbet_context_t* context,
                                                   int64_t limit) {
  RABBET_RETURN_IF_ERROR(rabbet_check_iteration_limit(limit));
  context->iteration_limit = limit;
  return rabbet_ok();
}

int64_t rabbet_context_iteration_limit(const rabbet_context_t* context) {
  return context->iteration_limit;
}

void rabbet_context_set_interrupt(rabbet_context_t* context,
                                  rabbet_interrupt_t interrupt) {
  context->interrupt = interrupt;
}

// Runs have numbers, so that a late call does not end a run that began after
// it. The number only grows: of two callers the one with the older run may be
// the second.
bool rabbet_context_cancel(rabbet_context_t* context) {
  uint64_t run = atomic_load(&context->present_run);
  uint64_t before = atomic_load(&context->cancelled_run);
  while (before < run &&
         !atomic_compare_exchange_weak(&context->cancelled_run, &before, run)) {
  }
  if (run > 0) rabbet_exchange_cancel(context);
  return run > 0;
}

rabbet_status_t rabbet_context_cancelled(void) {
  return RABBET_STATUS(RABBET_STATUS_CANCELLED, "the run was cancelled");
}

rabbet_status_t rabbet_context_next_iteration(const rabbet_context_t* context,
                                              int64_t trip) {
  const rabbet_interrupt_t* interrupt = &context->interrupt;
  if (context->iteration_limit > 0 && trip >= context->iteration_limit)
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                         "the loop does not end within %lld iterations, the "
                         "context's limit",
                         (long long)context->iteration_limit);
  if (rabbet_context_is_cancelled(context)) return rabbet_context_cancelled();
  return interrupt->check ? interrupt->check(interrupt->user_data)
                          : rabbet_ok();
}
