// Conditions that must hold: assertions of the network.
//
// Conditions known to the host are checked as soon as their values are. For
// those that kernels compute, a run leaves a vector with an element for each.
// On a device that shares the host's memory it is read at the end of the run.
// Elsewhere it is copied to the host, in the stream's order, into one of
// several places, so that no thread waits: a place that still holds UNKNOWN has
// not been reached. The first call that finds a failure reports it.
#include <assert.h>
#include <string.h>

#include "runtime/runtime.h"

// Runs of a context that may be on their way.
#define RABBET_CHECK_PLACES 64
#define RABBET_CHECK_UNKNOWN (-1)

static rabbet_status_t check_failed(const rabbet_plan_check_t* check) {
  return RABBET_STATUS(RABBET_STATUS_FAILED_PRECONDITION,
                       "layer '%s' (assertion) does not hold: %s", check->layer,
                       check->message);
}

rabbet_status_t rabbet_prepared_check(const rabbet_prepared_t* prepared) {
  const rabbet_plan_sequence_t* plan = prepared->sequence->plan;
  for (size_t i = 0; i < plan->check_count; ++i) {
    const rabbet_plan_check_t* check = &plan->checks[i];
    int32_t v = plan->ios[check->io].value;
    const int64_t* values = prepared->host_values[v];
    if (check->index >= 0 || !values ||
        (prepared->parent && prepared->parent->host_values[v]))
      continue;
    for (size_t k = 0; k < plan->values[v].host_value_count; ++k)
      if (!values[k]) return check_failed(check);
  }
  return rabbet_ok();
}

// ---- Conditions that kernels compute

// First of the checks with an index, which are of one output, or NULL.
static const rabbet_plan_check_t* first_check(
    const rabbet_plan_sequence_t* plan, size_t* out_count) {
  size_t first = 0;
  while (first < plan->check_count && plan->checks[first].index < 0)
    ++first;
  *out_count = plan->check_count - first;
  return *out_count > 0 ? &plan->checks[first] : NULL;
}

static volatile int32_t* check_place(const rabbet_frame_t* frame,
                                     uint64_t number, size_t count) {
  assert(frame->check_places && count > 0);
  return frame->check_places + (number % RABBET_CHECK_PLACES) * count;
}

// Looks at elements; *out_known is false if some have not arrived.
static rabbet_status_t check_elements(const rabbet_plan_check_t* checks,
                                      size_t count,
                                      const volatile int32_t* elements,
                                      bool* out_known) {
  *out_known = true;
  for (size_t i = 0; i < count; ++i) {
    assert(checks[i].index >= 0);
    *out_known &= elements[checks[i].index] != RABBET_CHECK_UNKNOWN;
  }
  for (size_t i = 0; *out_known && i < count; ++i)
    if (!elements[checks[i].index]) return check_failed(&checks[i]);
  return rabbet_ok();
}

static rabbet_status_t frame_look_at_checks(rabbet_frame_t* frame) {
  size_t count = 0;
  const rabbet_plan_check_t* checks =
      first_check(frame->sequence->plan, &count);
  rabbet_status_t status = rabbet_ok();
  bool known = true;
  while (rabbet_is_ok(status) && known &&
         frame->checks_seen < frame->checks_made) {
    status = check_elements(
        checks, count, check_place(frame, frame->checks_seen, count), &known);
    frame->checks_seen += known;
  }
  return status;
}

rabbet_status_t rabbet_frame_reserve_checks(rabbet_frame_t* frame) {
  const rabbet_engine_t* engine = frame->context->engine;
  size_t count = 0;
  if (!first_check(frame->sequence->plan, &count) || frame->check_places ||
      engine->device->host_memory)
    return rabbet_ok();
  return rabbet_host_allocate(engine,
                              RABBET_CHECK_PLACES * count * sizeof(int32_t),
                              (void**)&frame->check_places);
}

// A free place for the next run's vector.
static rabbet_status_t free_check_place(rabbet_frame_t* frame, void* stream) {
  RABBET_RETURN_IF_ERROR(rabbet_frame_reserve_checks(frame));
  if (frame->checks_made - frame->checks_seen < RABBET_CHECK_PLACES)
    return rabbet_ok();
  // The host is RABBET_CHECK_PLACES runs ahead.
  RABBET_RETURN_IF_ERROR(rabbet_context_await(frame->context, stream));
  return frame_look_at_checks(frame);
}

rabbet_status_t rabbet_frame_take_checks(rabbet_frame_t* frame, void* stream) {
  rabbet_device_t* device = frame->context->engine->device;
  size_t count = 0;
  bool known = false;
  const rabbet_plan_check_t* checks =
      first_check(frame->sequence->plan, &count);
  if (!checks) return rabbet_ok();
  // Hidden outputs have memory of the context from the first run on.
  assert(frame->addresses[checks->io]);
  const void* elements = frame->addresses[checks->io];
  if (device->host_memory)
    return check_elements(checks, count, elements, &known);
  RABBET_RETURN_IF_ERROR(free_check_place(frame, stream));
  assert(frame->checks_seen <= frame->checks_made);
  assert(frame->checks_made - frame->checks_seen < RABBET_CHECK_PLACES);
  volatile int32_t* place = check_place(frame, frame->checks_made, count);
  for (size_t i = 0; i < count; ++i)
    place[i] = RABBET_CHECK_UNKNOWN;
  RABBET_RETURN_IF_ERROR(
      device->vtable->copy_to_host(device, (void*)(uintptr_t)place, elements,
                                   count * sizeof(int32_t), stream));
  frame->checks_made++;
  return rabbet_ok();
}

rabbet_status_t rabbet_context_look_at_checks(rabbet_context_t* context) {
  for (size_t i = 0; i < rabbet_context_frame_count(context); ++i)
    RABBET_RETURN_IF_ERROR(
        frame_look_at_checks(rabbet_context_frame(context, i)));
  return rabbet_ok();
}

rabbet_status_t rabbet_context_check(rabbet_context_t* context, void* stream) {
  rabbet_device_t* device = context->engine->device;
  uint64_t missing = 0;
  for (size_t i = 0; i < rabbet_context_frame_count(context); ++i) {
    const rabbet_frame_t* frame = rabbet_context_frame(context, i);
    missing += frame->checks_made - frame->checks_seen;
  }
  if (missing == 0 && !context->engine->exchange) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(device->vtable->synchronize(device, stream));
  RABBET_RETURN_IF_ERROR(rabbet_exchange_check(context));
  return rabbet_context_look_at_checks(context);
}
