// Debug tensors: outputs that callers do not see, and values between steps.
#include <assert.h>
#include <string.h>

#include "base/strbuf.h"
#include "runtime/runtime.h"

static size_t first_hidden(const rabbet_plan_sequence_t* plan) {
  return plan->io_count - plan->hidden_count;
}

// ---- Memory of hidden outputs

static void* hidden_reallocate(void* user_data, const char* name, void* current,
                               size_t size, size_t alignment, void* stream) {
  rabbet_frame_t* frame = user_data;
  const rabbet_plan_sequence_t* plan = frame->sequence->plan;
  rabbet_engine_t* engine = frame->context->engine;
  rabbet_device_t* device = engine->device;
  size_t io = first_hidden(plan);
  (void)alignment;
  while (strcmp(plan->ios[io].name, name) != 0) {
    ++io;
    assert(io < plan->io_count);
  }
  size_t* bytes = &frame->hidden_bytes[io - first_hidden(plan)];
  if (current && size <= *bytes) return current;
  rabbet_status_t status = rabbet_ok();
  if (current) status = device->vtable->synchronize(device, stream);
  void* memory = NULL;
  if (rabbet_is_ok(status))
    status = rabbet_memory_allocate(device, &engine->device_allocator, size,
                                    stream, &memory);
  if (!rabbet_is_ok(status)) {
    rabbet_log(engine->logger, RABBET_SEVERITY_ERROR,
               "memory for the debug tensor '%s': %s", name,
               rabbet_status_message(status));
    rabbet_status_ignore(status);
    return NULL;
  }
  rabbet_memory_free(device, &engine->device_allocator, current, stream);
  *bytes = size;
  return memory;
}

void rabbet_frame_own_hidden(rabbet_frame_t* frame) {
  const rabbet_plan_sequence_t* plan = frame->sequence->plan;
  for (size_t i = first_hidden(plan); i < plan->io_count; ++i) {
    frame->output_allocators[i] = (rabbet_output_allocator_t){

        .user_data = frame, .reallocate = hidden_reallocate};
    ++frame->allocator_count;
  }
}

void rabbet_frame_free_hidden(rabbet_frame_t* frame) {
  const rabbet_sequence_t* sequence = frame->sequence;
  if (!frame->addresses) return;
  for (size_t i = first_hidden(sequence->plan); i < sequence->plan->io_count;
       ++i)
    rabbet_memory_free(sequence->engine->device,
                       &sequence->engine->device_allocator, frame->addresses[i],
                       NULL);
}

// ---- Showing them

static void show(const rabbet_frame_t* frame, const char* name,
                 const rabbet_plan_value_t* value, const rabbet_dims_t* dims,
                 const void* data, bool on_host, void* stream) {
  rabbet_debug_tensor_t tensor = {.struct_size = sizeof(tensor),
                                  .name = name,
                                  .data = data,
                                  .on_host = on_host,
                                  .dtype = value->dtype,
                                  .format = value->format,
                                  .dims = *dims,
                                  .stream = stream};
  frame->context->debug_listener.process(
      frame->context->debug_listener.user_data, &tensor);
}

void rabbet_frame_show_debug(rabbet_frame_t* frame,
                             const rabbet_prepared_t* leaf, void* stream) {
  const rabbet_sequence_t* sequence = frame->sequence;
  const rabbet_plan_sequence_t* plan = sequence->plan;
  if (!frame->context->debug_listener.process) return;
  for (size_t i = 0; i < plan->io_count; ++i) {
    const rabbet_plan_io_t* io = &plan->ios[i];
    if (!io->is_debug || !frame->debug_on[i]) continue;
    show(frame, io->name, &plan->values[io->value], &leaf->dims[io->value],
         frame->addresses[i], io->is_shape_input, stream);
  }
}

void rabbet_frame_show_step(rabbet_frame_t* frame,
                            const rabbet_prepared_t* prepared,
                            const rabbet_run_t* run, void* stream) {
  const rabbet_plan_sequence_t* plan = frame->sequence->plan;
  const rabbet_plan_step_t* step = &plan->steps[run->step];
  for (size_t i = 0; i < step->group.output_count; ++i) {
    int32_t v = step->values[step->group.outputs[i]];
    const rabbet_plan_value_t* value = &plan->values[v];
    bool is_marked = value->storage == RABBET_PLAN_STORAGE_IO &&
                     value->alias < 0 && plan->ios[value->io].is_debug;
    if (!is_marked)
      show(frame, value->name, value, &prepared->dims[v], run->call.outputs[i],
           false, stream);
  }
}

// ---- Switches

// Number `at` of a sequence's debug tensors, or NULL.
static const rabbet_plan_io_t* debug_io(const rabbet_plan_sequence_t* plan,
                                        size_t at) {
  for (size_t i = 0; i < plan->io_count; ++i)
    if (plan->ios[i].is_debug && at-- == 0) return &plan->ios[i];
  return NULL;
}

// Whether a sequence before has a debug tensor of that name: both branches of a
// conditional may need the layer, and each profile has it.
static bool debug_is_repeated(const rabbet_plan_t* plan, size_t sequence,
                              const char* name) {
  const rabbet_plan_io_t* io = NULL;
  for (size_t i = 0; i < sequence; ++i)
    for (size_t k = 0; (io = debug_io(&plan->sequences[i], k)); ++k)
      if (strcmp(io->name, name) == 0) return true;
  return false;
}

const char* rabbet_engine_debug_tensor(const rabbet_engine_t* engine,
                                       size_t index) {
  const rabbet_plan_t* plan = engine->plan;
  const rabbet_plan_io_t* io = NULL;
  for (size_t i = 0; i < plan->sequence_count; ++i)
    for (size_t k = 0; (io = debug_io(&plan->sequences[i], k)); ++k)
      if (!debug_is_repeated(plan, i, io->name) && index-- == 0)
        return io->name;
  return NULL;
}

static rabbet_status_t debug_unknown(const rabbet_context_t* context,
                                     const char* name) {
  rabbet_strbuf_t list;
  rabbet_strbuf_initialize(context->allocator, &list);
  const char* other = NULL;
  for (size_t i = 0; (other = rabbet_engine_debug_tensor(context->engine, i));
       ++i)
    rabbet_strbuf_printf(&list, "%s'%s'", i ? ", " : "", other);
  rabbet_status_t status =
      RABBET_STATUS(RABBET_STATUS_NOT_FOUND,
                    "'%s' is not a debug tensor; the network marked %s", name,
                    list.size > 0 ? rabbet_strbuf_text(&list) : "none");
  rabbet_strbuf_deinitialize(&list);
  return status;
}

// The switch of a tensor in the frame, or NULL.
static bool* debug_switch(const rabbet_frame_t* frame, const char* name) {
  const rabbet_plan_sequence_t* plan = frame->sequence->plan;
  for (size_t i = 0; i < plan->io_count; ++i)
    if (plan->ios[i].is_debug && strcmp(plan->ios[i].name, name) == 0)
      return &frame->debug_on[i];
  return NULL;
}

void rabbet_context_set_debug_listener(rabbet_context_t* context,
                                       rabbet_debug_listener_t listener) {
  context->debug_listener = listener;
}

static rabbet_status_t debug_set(rabbet_context_t* context, const char* name,
                                 bool on) {
  bool found = false;
  for (size_t i = 0; i < rabbet_context_frame_count(context); ++i) {
    bool* state = debug_switch(rabbet_context_frame(context, i), name);
    if (state) *state = on;
    found |= state != NULL;
  }
  return found ? rabbet_ok() : debug_unknown(context, name);
}

rabbet_status_t rabbet_context_set_debug_state(rabbet_context_t* context,
                                               const char* name, bool on) {
  if (name) return debug_set(context, name, on);
  if (on && !context->engine->plan->unfused_debug)
    return RABBET_STATUS(
        RABBET_STATUS_FAILED_PRECONDITION,
        "the plan was built without tensors between kernels as "
        "debug tensors: mark them in the network "
        "(mark_unfused_tensors_as_debug_tensors) and build it "
        "again");
  context->unfused_debug_on = on;
  return rabbet_ok();
}

rabbet_status_t rabbet_context_debug_state(const rabbet_context_t* context,
                                           const char* name, bool* out_on) {
  const bool* state = NULL;
  *out_on = context->unfused_debug_on;
  if (!name) return rabbet_ok();
  *out_on = false;
  for (size_t i = 0; !state && i < rabbet_context_frame_count(context); ++i)
    state = debug_switch(rabbet_context_frame(context, i), name);
  if (!state) return debug_unknown(context, name);
  *out_on = *state;
  return rabbet_ok();
}
