// Runs of plans that exchange data with other processes (ranks).
//
// The communicator that a caller sets is not used by runs: kernels make their
// own from it, together with the other ranks, when the first run begins. So an
// exchange that is given up leaves the caller's as it was.
#include <assert.h>

#include "runtime/runtime.h"

static rabbet_status_t exchange_join(const rabbet_context_t* context,
                                     rabbet_communicator_t* communicator,
                                     bool check) {
  const rabbet_engine_t* engine = context->engine;
  for (size_t i = 0; i < engine->plan->sequence_count; ++i) {
    const rabbet_sequence_t* sequence = &engine->sequences[i];
    for (size_t s = 0; s < sequence->plan->step_count; ++s) {
      rabbet_kernel_t* kernel = sequence->steps[s].kernel;
      if (!kernel || !kernel->exchanges) continue;
      assert(kernel->kernel_class->join);
      RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
          kernel->kernel_class->join(kernel, communicator, check), "step '%s'",
          sequence->plan->steps[s].name));
    }
  }
  return rabbet_ok();
}

void rabbet_exchange_close(rabbet_context_t* context) {
  rabbet_device_t* device = context->engine->device;
  if (context->communicator)
    device->vtable->close_communicator(device, context->communicator);
  context->communicator = NULL;
  context->has_joined = false;
}

rabbet_status_t rabbet_context_set_communicator(rabbet_context_t* context,
                                                void* handle) {
  rabbet_engine_t* engine = context->engine;
  const rabbet_device_vtable_t* vtable = engine->device->vtable;
  rabbet_communicator_t* made = NULL;
  if (!engine->exchange) return rabbet_ok();
  if (handle && !vtable->open_communicator)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "device '%s' exchanges nothing with other ranks: it "
                         "takes no communicator",
                         engine->device->name);
  if (handle) {
    RABBET_RETURN_IF_ERROR(vtable->open_communicator(engine->device, handle,
                                                     engine->logger, &made));
    rabbet_status_t status = exchange_join(context, made, true);
    if (!rabbet_is_ok(status)) {
      vtable->close_communicator(engine->device, made);
      return status;
    }
  }
  // Graphs hold the communicator of their recording.
  if (context->communicator) rabbet_context_forget(context);
  rabbet_exchange_close(context);
  context->communicator = made;
  return rabbet_ok();
}

static rabbet_status_t exchange_prepare(rabbet_context_t* context,
                                        void* stream) {
  if (context->has_joined) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_context_refuse_recording(context, stream));
  RABBET_RETURN_IF_ERROR(exchange_join(context, context->communicator, false));
  context->has_joined = true;
  return rabbet_ok();
}

rabbet_status_t rabbet_exchange_begin(rabbet_context_t* context, void* stream) {
  const rabbet_engine_t* engine = context->engine;
  rabbet_device_t* device = engine->device;
  if (!engine->exchange) return rabbet_ok();
  if (!context->communicator)
    return RABBET_STATUS(RABBET_STATUS_FAILED_PRECONDITION,
                         "step '%s' exchanges data with other ranks, and the "
                         "context has no communicator: set one first",
                         engine->exchange->name);
  RABBET_RETURN_IF_ERROR(
      device->vtable->begin_exchanges(device, context->communicator));
  rabbet_status_t status = exchange_prepare(context, stream);
  return rabbet_is_ok(status) ? status
                              : rabbet_exchange_end(context, stream, status);
}

rabbet_status_t rabbet_exchange_end(rabbet_context_t* context, void* stream,
                                    rabbet_status_t status) {
  rabbet_device_t* device = context->engine->device;
  if (!context->engine->exchange) return status;
  return device->vtable->end_exchanges(device, context->communicator, stream,
                                       context->graph_info.graph_steps > 0,
                                       status);
}

rabbet_status_t rabbet_exchange_check(const rabbet_context_t* context) {
  rabbet_device_t* device = context->engine->device;
  if (!context->engine->exchange || !context->communicator) return rabbet_ok();
  return device->vtable->check_exchanges(device, context->communicator);
}

void rabbet_exchange_cancel(const rabbet_context_t* context) {
  rabbet_device_t* device = context->engine->device;
  if (context->engine->exchange && context->communicator)
    device->vtable->cancel_exchanges(device, context->communicator);
}
