#include "triton/instance.h"

#include <stdlib.h>
#include <string.h>

#include "triton/report.h"

#define INSTANCE_ALIGNMENT 64

// ---- Memory

static void instance_free_memory(rabbet_triton_instance_t* instance,
                                 rabbet_triton_staging_t* staging,
                                 bool on_device) {
  if (on_device)
    rabbet_engine_free(instance->engine, staging->memory[1]);
  else
    rabbet_free_aligned(instance->model->allocator, staging->memory[0],
                        INSTANCE_ALIGNMENT);
  staging->memory[on_device] = NULL;
  staging->size[on_device] = 0;
}

rabbet_status_t rabbet_triton_instance_stage(rabbet_triton_instance_t* instance,
                                             rabbet_triton_staging_t* staging,
                                             bool on_device, size_t size,
                                             rabbet_triton_place_t* out_place) {
  *out_place = (rabbet_triton_place_t){0};
  if (size == 0) size = 1;
  if (staging->size[on_device] < size) {
    instance_free_memory(instance, staging, on_device);
    RABBET_RETURN_IF_ERROR(
        on_device
            ? rabbet_engine_allocate(instance->engine, size,
                                     &staging->memory[1])
            : rabbet_allocate_aligned(instance->model->allocator, size,
                                      INSTANCE_ALIGNMENT, &staging->memory[0]));
    staging->size[on_device] = size;
  }
  out_place->data = staging->memory[on_device];
  out_place->type =
      on_device ? TRITONSERVER_MEMORY_GPU : TRITONSERVER_MEMORY_CPU;
  out_place->id = on_device ? instance->gpu : 0;
  return rabbet_ok();
}

// ---- Outputs whose shapes a run tells

static void* told_reallocate(void* user_data, const char* name, void* current,
                             size_t size, size_t alignment, void* stream) {
  const rabbet_triton_told_t* told = user_data;
  rabbet_triton_call_t* call = told->instance->call;
  rabbet_triton_place_t* place = &call->places[told->io];
  (void)name, (void)current, (void)alignment, (void)stream;
  // The run reports that there is none.
  rabbet_status_ignore(rabbet_triton_instance_stage(
      told->instance, &call->staging[told->io], false, size, place));
  return place->data;
}

static void told_notify(void* user_data, const char* name,
                        const rabbet_dims_t* dims) {
  const rabbet_triton_told_t* told = user_data;
  (void)name;
  told->instance->call->dims[told->io] = *dims;
}

// ---- Contexts

static rabbet_status_t instance_set_up(rabbet_triton_instance_t* instance,
                                       size_t profile,
                                       rabbet_context_t* context) {
  const rabbet_triton_model_t* model = instance->model;
  RABBET_RETURN_IF_ERROR(rabbet_context_set_profile(context, profile));
  RABBET_RETURN_IF_ERROR(
      rabbet_context_set_threads(context, (int)model->config.threads));
  rabbet_context_set_graphs(context, model->config.graphs);
  for (size_t i = model->plan.input_count; i < model->plan.io_count; ++i) {
    if (!model->plan.data_dependent[i]) continue;
    RABBET_RETURN_IF_ERROR(rabbet_context_set_output_allocator(
        context, i,
        (rabbet_output_allocator_t){.user_data = &instance->told[i],
                                    .reallocate = told_reallocate,
                                    .notify_shape = told_notify,
                                    .host = true}));
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_triton_instance_context(
    rabbet_triton_instance_t* instance, size_t profile,
    rabbet_context_t** out_context) {
  rabbet_context_t** slot = &instance->contexts[profile];
  if (!*slot) {
    RABBET_RETURN_IF_ERROR(rabbet_context_create(
        instance->engine, instance->model->allocator, slot));
    rabbet_status_t status = instance_set_up(instance, profile, *slot);
    if (!rabbet_is_ok(status)) {
      rabbet_context_destroy(*slot);
      *slot = NULL;
      return status;
    }
  }
  *out_context = *slot;
  return rabbet_ok();
}

// ---- The whole

static rabbet_status_t instance_initialize(rabbet_triton_instance_t* instance) {
  rabbet_triton_model_t* model = instance->model;
  TRITONSERVER_InstanceGroupKind kind = TRITONSERVER_INSTANCEGROUPKIND_AUTO;
  int32_t gpu = -1;
  rabbet_context_t* context = NULL;
  size_t ios = model->plan.io_count;
  RABBET_RETURN_IF_ERROR(rabbet_triton_status(
      TRITONBACKEND_ModelInstanceKind(instance->handle, &kind)));
  if (kind == TRITONSERVER_INSTANCEGROUPKIND_GPU)
    RABBET_RETURN_IF_ERROR(rabbet_triton_status(
        TRITONBACKEND_ModelInstanceDeviceId(instance->handle, &gpu)));
  RABBET_RETURN_IF_ERROR(
      rabbet_triton_model_engine(model, gpu, &instance->engine));
  const struct {
    void** array;
    size_t bytes;
  } arrays[] = {
      {(void**)&instance->contexts,
       model->plan.profile_count * sizeof(*instance->contexts)},
      {(void**)&instance->staging,
       model->plan.input_count * sizeof(*instance->staging)},
      {(void**)&instance->told, ios * sizeof(*instance->told)},
  };
  for (size_t i = 0; i < sizeof(arrays) / sizeof(*arrays); ++i)
    RABBET_RETURN_IF_ERROR(
        rabbet_allocate(model->allocator, arrays[i].bytes, arrays[i].array));
  for (size_t i = 0; i < ios; ++i)
    instance->told[i] = (rabbet_triton_told_t){instance, i};
  for (int i = 0; i < RABBET_TRITON_CALLS; ++i)
    RABBET_RETURN_IF_ERROR(rabbet_triton_call_initialize(model->allocator, ios,
                                                         &instance->calls[i]));
  const char* device = rabbet_engine_device(instance->engine);
  const char* number = strchr(device, ':');
  if (model->is_cuda) instance->gpu = number ? atoi(number + 1) : 0;
  RABBET_RETURN_IF_ERROR(
      rabbet_engine_create_stream(instance->engine, &instance->stream));
  RABBET_RETURN_IF_ERROR(
      rabbet_engine_create_stream(instance->engine, &instance->answer_stream));
  // The first one now: an instance that cannot have one is not to be ready.
  RABBET_RETURN_IF_ERROR(rabbet_triton_instance_context(instance, 0, &context));
  return rabbet_triton_answers_initialize(instance);
}

rabbet_status_t rabbet_triton_instance_create(
    rabbet_triton_model_t* model, TRITONBACKEND_ModelInstance* handle,
    rabbet_triton_instance_t** out_instance) {
  rabbet_triton_instance_t* instance = NULL;
  *out_instance = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(model->allocator, sizeof(*instance), (void**)&instance));
  instance->model = model;
  instance->handle = handle;
  instance->gpu = -1;
  rabbet_status_t status = instance_initialize(instance);
  if (rabbet_is_ok(status))
    *out_instance = instance;
  else
    rabbet_triton_instance_destroy(instance);
  return status;
}

static void instance_free_staging(rabbet_triton_instance_t* instance,
                                  rabbet_triton_staging_t* staging,
                                  size_t count) {
  for (size_t i = 0; staging && i < count; ++i) {
    instance_free_memory(instance, &staging[i], false);
    instance_free_memory(instance, &staging[i], true);
  }
}

void rabbet_triton_instance_destroy(rabbet_triton_instance_t* instance) {
  if (!instance) return;
  rabbet_triton_model_t* model = instance->model;
  rabbet_triton_answers_deinitialize(instance);
  for (size_t i = 0; instance->contexts && i < model->plan.profile_count; ++i)
    rabbet_context_destroy(instance->contexts[i]);
  instance_free_staging(instance, instance->staging, model->plan.input_count);
  for (int i = 0; i < RABBET_TRITON_CALLS; ++i) {
    instance_free_staging(instance, instance->calls[i].staging,
                          model->plan.io_count);
    rabbet_triton_call_deinitialize(model->allocator, &instance->calls[i]);
  }
  if (instance->engine) {
    rabbet_engine_destroy_stream(instance->engine, instance->answer_stream);
    rabbet_engine_destroy_stream(instance->engine, instance->stream);
  }
  void* const arrays[] = {instance->contexts, instance->staging,
                          instance->told};
  for (size_t i = 0; i < sizeof(arrays) / sizeof(*arrays); ++i)
    rabbet_free(model->allocator, arrays[i]);
  rabbet_free(model->allocator, instance);
}
