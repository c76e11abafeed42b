#include "trial/worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/child.h"
#include "base/store.h"
#include "base/vec.h"
#include "core/view.h"
#include "device/device.h"
#include "device/trial.h"
#include "plan/plan.h"

// Bytes that make harmless numbers of each floating type, and of INT8.
#define TRIAL_BYTE 0x3c

typedef struct worker_t {
  int channel;
  rabbet_allocator_t allocator;
  rabbet_device_t* device;
} worker_t;

// Ends the helper if the build no longer reads its messages.
static void worker_send(const worker_t* worker, rabbet_trial_kind_t kind,
                        const void* data, size_t size) {
  if (rabbet_message_send(worker->channel, (uint32_t)kind, data, size, -1) !=
      RABBET_MESSAGE_OK)
    _exit(0);
}

static void worker_say(const worker_t* worker, rabbet_trial_kind_t kind,
                       const char* text) {
  worker_send(worker, kind, text, strlen(text) + 1);
}

static void worker_number(const worker_t* worker, rabbet_trial_kind_t kind,
                          int32_t number) {
  worker_send(worker, kind, &number, sizeof(number));
}

// ---- One question -----------------------------------------------------------

typedef struct trial_t {
  const worker_t* worker;
  rabbet_trial_question_t head;
  const int32_t* known;
  rabbet_plan_t* plan;
  const rabbet_group_t* group;
  rabbet_dims_t* dims;
  const rabbet_kernel_class_t* kernel;
  rabbet_plugin_t* plugin;
  const int64_t** host_values;
  RABBET_VEC(rabbet_answer_t) answers;  // artifacts in the plan's arena
  void** memory;                        // of the boundary; NULL: not yet
} trial_t;

static size_t trial_boundary(const trial_t* trial) {
  return trial->group->input_count + trial->group->output_count;
}

static const rabbet_group_value_t* trial_value(const trial_t* trial, size_t i) {
  const rabbet_group_t* group = trial->group;
  return &group->values[rabbet_group_boundary(group, i)];
}

static rabbet_status_t trial_add(void* context, const rabbet_answer_t* answer) {
  trial_t* trial = context;
  rabbet_answer_t copy = *answer;
  rabbet_arena_t* arena = &trial->plan->arena;
  copy.artifact.data = NULL;
  if (answer->artifact.size > 0) {
    RABBET_RETURN_IF_ERROR(
        rabbet_arena_strdup(arena, answer->artifact.name, &copy.artifact.name));
    RABBET_RETURN_IF_ERROR(rabbet_arena_copy(arena, answer->artifact.data,
                                             answer->artifact.size,
                                             (void**)&copy.artifact.data));
  }
  return RABBET_VEC_PUSH(trial->worker->allocator, &trial->answers, copy);
}

static rabbet_status_t trial_tell(const trial_t* trial, size_t number) {
  const rabbet_answer_t* answer = &trial->answers.data[number];
  rabbet_trial_found_t found = {.number = (int32_t)number,
                                .tactic = answer->tactic,
                                .artifact_size = answer->artifact.size};
  rabbet_strbuf_t message;
  memcpy(found.tactic_name, answer->tactic_name, sizeof(found.tactic_name));
  if (answer->artifact.size > 0)
    snprintf(found.artifact_name, sizeof(found.artifact_name), "%s",
             answer->artifact.name);
  rabbet_strbuf_initialize(trial->worker->allocator, &message);
  rabbet_strbuf_append(&message, &found, sizeof(found));
  rabbet_strbuf_append(&message, answer->artifact.data, answer->artifact.size);
  rabbet_status_t status = rabbet_strbuf_status(&message);
  if (rabbet_is_ok(status))
    worker_send(trial->worker, RABBET_TRIAL_FOUND, message.data, message.size);
  rabbet_strbuf_deinitialize(&message);
  return status;
}

// ---- Running ----------------------------------------------------------------

static rabbet_status_t trial_fill(const trial_t* trial,
                                  const rabbet_group_value_t* value,
                                  void* memory, size_t bytes) {
  rabbet_device_t* device = trial->worker->device;
  if (value->constant && bytes > 0)
    return device->vtable->copy_to_device(device, memory, value->constant,
                                          bytes, NULL);
  bool numbers =
      rabbet_dtype_is_float(value->dtype) || value->dtype == RABBET_DTYPE_INT8;
  return device->vtable->fill(device, memory, numbers ? TRIAL_BYTE : 0, bytes,
                              NULL);
}

// Memory for the group's inputs and outputs, once for all answers.
static rabbet_status_t trial_bind(trial_t* trial) {
  rabbet_device_t* device = trial->worker->device;
  size_t count = trial_boundary(trial);
  if (trial->memory) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &trial->plan->arena, count, sizeof(void*), (void**)&trial->memory));
  for (size_t i = 0; i < count; ++i) {
    const rabbet_group_value_t* value = trial_value(trial, i);
    size_t bytes = 0;
    RABBET_RETURN_IF_ERROR(
        rabbet_tensor_bytes(value->dtype, value->format, &value->dims, &bytes));
    RABBET_RETURN_IF_ERROR(device->vtable->allocate(
        device, bytes > 0 ? bytes : 1, &trial->memory[i]));
    RABBET_RETURN_IF_ERROR(trial_fill(trial, value, trial->memory[i], bytes));
  }
  return device->vtable->synchronize(device, NULL);
}

static rabbet_status_t trial_enqueue(const trial_t* trial,
                                     rabbet_kernel_t* kernel,
                                     rabbet_kernel_state_t* state,
                                     void* workspace) {
  rabbet_device_t* device = trial->worker->device;
  const rabbet_kernel_call_t call = {
      .inputs = trial->memory,
      .outputs = trial->memory + trial->group->input_count,
      .workspace = workspace};
  void* token = NULL;
  if (device->vtable->begin_run)
    RABBET_RETURN_IF_ERROR(device->vtable->begin_run(device, 1, &token));
  rabbet_status_t status = trial->kernel->enqueue(kernel, state, &call);
  if (device->vtable->end_run) device->vtable->end_run(device, token);
  return rabbet_status_join(status, device->vtable->synchronize(device, NULL));
}

static rabbet_status_t trial_prepare(const trial_t* trial,
                                     rabbet_kernel_t* kernel,
                                     rabbet_kernel_state_t** state,
                                     void** workspace) {
  rabbet_device_t* device = trial->worker->device;
  const rabbet_kernel_shapes_t shapes = {
      .dims = trial->dims, .host_values = trial->host_values, .threads = 1};
  size_t bytes = 0;
  RABBET_RETURN_IF_ERROR(
      trial->kernel->prepare(kernel, &shapes, state, &bytes));
  if (bytes == 0) return rabbet_ok();
  return device->vtable->allocate(device, bytes, workspace);
}

// One run of an answer's kernel.
static rabbet_status_t trial_run(trial_t* trial,
                                 const rabbet_answer_t* answer) {
  rabbet_device_t* device = trial->worker->device;
  const rabbet_kernel_spec_t spec = {
      .device = device,
      .group = trial->group,
      .tactic = answer->tactic,
      .allocator = trial->worker->allocator,
      .artifacts = &answer->artifact,
      .artifact_count = answer->artifact.size > 0,
      .exact = true};
  rabbet_kernel_t* kernel = NULL;
  rabbet_kernel_state_t* state = NULL;
  void* workspace = NULL;
  RABBET_RETURN_IF_ERROR(trial_bind(trial));
  rabbet_status_t status = rabbet_kernel_create(trial->kernel, &spec, &kernel);
  if (rabbet_is_ok(status))
    status = trial_prepare(trial, kernel, &state, &workspace);
  if (rabbet_is_ok(status))
    status = trial_enqueue(trial, kernel, state, workspace);
  device->vtable->free(device, workspace);
  if (state) trial->kernel->destroy_state(kernel, state);
  if (kernel) trial->kernel->destroy(kernel);
  return status;
}

// Whether the device is broken: every call fails.
static bool trial_is_broken(const trial_t* trial) {
  rabbet_device_t* device = trial->worker->device;
  if (!device->vtable->synchronize_all) return false;
  rabbet_status_t status = device->vtable->synchronize_all(device);
  bool broken = !rabbet_is_ok(status);
  rabbet_status_ignore(status);
  return broken;
}

static void trial_failed(const trial_t* trial, size_t number,
                         rabbet_status_t status) {
  rabbet_trial_failed_t failed = {
      .number = (int32_t)number,
      .refused = rabbet_status_code(status) == RABBET_STATUS_UNSUPPORTED};
  snprintf(failed.text, sizeof(failed.text), "%s",
           rabbet_status_message(status));
  rabbet_status_ignore(status);
  failed.sticky = trial_is_broken(trial);
  worker_send(trial->worker, RABBET_TRIAL_FAILED, &failed, sizeof(failed));
  // In a broken context even the attempt to free may crash.
  if (failed.sticky) _exit(0);
}

static bool trial_is_known(const trial_t* trial, int32_t tactic) {
  for (uint32_t i = 0; i < trial->head.known_count; ++i)
    if (trial->known[i] == tactic) return true;
  return false;
}

static rabbet_status_t trial_each(trial_t* trial) {
  int32_t passed = 0;
  for (size_t i = 0; i < trial->answers.count; ++i)
    RABBET_RETURN_IF_ERROR(trial_tell(trial, i));
  for (size_t i = 0; i < trial->answers.count; ++i) {
    const rabbet_answer_t* answer = &trial->answers.data[i];
    if (passed >= trial->head.enough) break;
    if (trial_is_known(trial, answer->tactic)) continue;
    worker_number(trial->worker, RABBET_TRIAL_BEGIN, (int32_t)i);
    rabbet_status_t status = trial_run(trial, answer);
    if (rabbet_status_code(status) == RABBET_STATUS_OUT_OF_MEMORY)
      return status;
    if (rabbet_is_ok(status)) {
      worker_number(trial->worker, RABBET_TRIAL_PASSED, (int32_t)i);
      ++passed;
    } else {
      trial_failed(trial, i, status);
    }
  }
  return rabbet_ok();
}

// ---- Reading a question -----------------------------------------------------

static rabbet_status_t trial_settings(const char* text, size_t size) {
  const char* end = text + size;
  while (text < end) {
    const char* equals = memchr(text, '=', (size_t)(end - text));
    char name[64];
    size_t length = equals ? (size_t)(equals - text) : sizeof(name);
    if (length >= sizeof(name) || !memchr(equals, 0, (size_t)(end - equals)))
      return RABBET_STATUS(RABBET_STATUS_INTERNAL, "a setting is cut off");
    memcpy(name, text, length);
    name[length] = 0;
    setenv(name, equals + 1, 1);
    text = equals + strlen(equals) + 1;
  }
  return rabbet_ok();
}

// Integers that the plan holds, as kernels get the values known to the host.
static rabbet_status_t trial_host_values(trial_t* trial) {
  rabbet_arena_t* arena = &trial->plan->arena;
  const rabbet_group_t* group = trial->group;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate_array(arena, group->value_count, sizeof(int64_t*),
                                  (void**)&trial->host_values));
  for (size_t i = 0; i < group->value_count; ++i) {
    const rabbet_group_value_t* value = &group->values[i];
    int64_t* numbers = NULL;
    int64_t count = 0;
    if (!value->constant || (value->dtype != RABBET_DTYPE_INT32 &&
                             value->dtype != RABBET_DTYPE_INT64))
      continue;
    RABBET_RETURN_IF_ERROR(rabbet_dims_count(&value->dims, &count));
    RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
        arena, (size_t)count + 1, sizeof(*numbers), (void**)&numbers));
    for (int64_t k = 0; k < count; ++k)
      numbers[k] = rabbet_load_int64(value->dtype, value->constant, k);
    trial->host_values[i] = numbers;
  }
  return rabbet_ok();
}

// Loads a library that the build has loaded, unless it is registered already.
static rabbet_status_t trial_library(const char* path, size_t size) {
  if (path[size - 1] != 0)
    return RABBET_STATUS(RABBET_STATUS_INTERNAL, "a path is cut off");
  rabbet_status_t status = rabbet_plugin_load_library(path);
  if (rabbet_status_code(status) != RABBET_STATUS_ALREADY_EXISTS) return status;
  rabbet_status_ignore(status);
  return rabbet_ok();
}

static rabbet_status_t trial_plugin(trial_t* trial) {
  const rabbet_plan_step_t* step = &trial->plan->sequences[0].steps[0];
  const rabbet_plugin_create_t args = {.layer_name = step->name,
                                       .phase = RABBET_PLUGIN_PHASE_RUNTIME,
                                       .attrs = step->plugin_attrs,
                                       .attr_count = step->plugin_attr_count};
  RABBET_RETURN_IF_ERROR(rabbet_plugin_create(
      step->plugin_name, step->plugin_version, step->plugin_namespace, &args,
      trial->worker->allocator, &trial->plugin));
  for (size_t i = 0; i < step->group.node_count; ++i)
    if (rabbet_op_is(step->group.nodes[i].op, RABBET_OP_PLUGIN))
      step->group.nodes[i].plugin = trial->plugin;
  return rabbet_ok();
}

static rabbet_status_t trial_open(trial_t* trial, const void* data,
                                  size_t size) {
  const worker_t* worker = trial->worker;
  RABBET_RETURN_IF_ERROR(
      rabbet_plan_read(data, size, NULL, worker->allocator, &trial->plan));
  if (trial->plan->sequences[0].step_count != 1)
    return RABBET_STATUS(RABBET_STATUS_INTERNAL, "not one step to try");
  const rabbet_plan_step_t* step = &trial->plan->sequences[0].steps[0];
  trial->group = &step->group;
  trial->kernel = rabbet_device_find_kernel(worker->device, step->kernel);
  if (!trial->kernel || (!trial->kernel->ask && !trial->head.is_given))
    return RABBET_STATUS(RABBET_STATUS_INTERNAL,
                         "kernel '%s' has no library to ask", step->kernel);
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &trial->plan->arena, trial->group->value_count, sizeof(*trial->dims),
      (void**)&trial->dims));
  for (size_t i = 0; i < trial->group->value_count; ++i)
    trial->dims[i] = trial->group->values[i].dims;
  RABBET_RETURN_IF_ERROR(trial_host_values(trial));
  return step->plugin_name ? trial_plugin(trial) : rabbet_ok();
}

static rabbet_status_t trial_ask(trial_t* trial) {
  const rabbet_question_t question = {.device = trial->worker->device,
                                      .kernel = trial->kernel,
                                      .group = trial->group,
                                      .dims = trial->dims,
                                      .tf32 = trial->head.tf32 != 0,
                                      .wish = trial->head.wish,
                                      .enough = trial->head.enough,
                                      .allocator = trial->worker->allocator};
  const rabbet_answer_t given = {.tactic = trial->head.tactic};
  worker_number(trial->worker, RABBET_TRIAL_BEGIN, -1);
  RABBET_RETURN_IF_ERROR(
      trial->head.is_given
          ? trial_add(trial, &given)
          : trial->kernel->ask(&question,
                               (rabbet_answer_sink_t){trial, trial_add}));
  return trial_each(trial);
}

static void trial_close(trial_t* trial) {
  rabbet_device_t* device = trial->worker->device;
  for (size_t i = 0; trial->memory && i < trial_boundary(trial); ++i)
    device->vtable->free(device, trial->memory[i]);
  rabbet_vec_free(trial->worker->allocator, &trial->answers);
  rabbet_plugin_release(trial->plugin);
  rabbet_plan_destroy(trial->plan);
}

static rabbet_status_t trial_answer(trial_t* trial,
                                    const rabbet_strbuf_t* data) {
  rabbet_trial_question_t* head = &trial->head;
  void* plan = NULL;
  if (data->size < sizeof(*head))
    return RABBET_STATUS(RABBET_STATUS_INTERNAL, "a question is cut off");
  memcpy(head, data->data, sizeof(*head));
  size_t at = sizeof(*head), known = head->known_count * sizeof(int32_t);
  if (known + head->settings_size + head->library_size + head->plan_size !=
      data->size - at)
    return RABBET_STATUS(RABBET_STATUS_INTERNAL, "a question is cut off");
  trial->known = (const int32_t*)(const void*)(data->data + at);
  at += known;
  RABBET_RETURN_IF_ERROR(
      trial_settings(data->data + at, (size_t)head->settings_size));
  at += (size_t)head->settings_size;
  if (head->library_size > 0)
    RABBET_RETURN_IF_ERROR(
        trial_library(data->data + at, (size_t)head->library_size));
  at += (size_t)head->library_size;
  RABBET_RETURN_IF_ERROR(rabbet_allocate_aligned(trial->worker->allocator,
                                                 (size_t)head->plan_size,
                                                 RABBET_PLAN_ALIGNMENT, &plan));
  memcpy(plan, data->data + at, (size_t)head->plan_size);
  rabbet_status_t status = trial_open(trial, plan, (size_t)head->plan_size);
  if (rabbet_is_ok(status)) status = trial_ask(trial);
  trial_close(trial);
  rabbet_free_aligned(trial->worker->allocator, plan, RABBET_PLAN_ALIGNMENT);
  return status;
}

// ---- The loop ---------------------------------------------------------------

static void worker_end(const worker_t* worker, rabbet_status_t status) {
  rabbet_trial_kind_t kind =
      rabbet_is_ok(status) ? RABBET_TRIAL_DONE
      : rabbet_status_code(status) == RABBET_STATUS_OUT_OF_MEMORY
          ? RABBET_TRIAL_SHORT
          : RABBET_TRIAL_ERROR;
  worker_say(worker, kind,
             rabbet_is_ok(status) ? "" : rabbet_status_message(status));
  rabbet_status_ignore(status);
}

static void worker_warn(void* context, rabbet_severity_t severity,
                        const char* text) {
  (void)severity;
  worker_say(context, RABBET_TRIAL_WARNING, text);
}

static void worker_hello(worker_t* worker, const rabbet_strbuf_t* data) {
  const rabbet_logger_t logger = {worker, worker_warn, RABBET_SEVERITY_WARNING};
  if (data->size == 0 || data->data[data->size - 1] != 0) _exit(1);
  rabbet_status_t status =
      rabbet_device_create(data->data, worker->allocator, &worker->device);
  if (rabbet_is_ok(status))
    status =
        rabbet_store_create(worker->allocator, logger, &worker->device->store);
  if (!rabbet_is_ok(status)) {
    worker_end(worker, status);
    return;
  }
  worker_say(worker, RABBET_TRIAL_READY,
             worker->device->vtable->signature(worker->device));
}

void rabbet_trial_serve(int channel, rabbet_allocator_t allocator) {
  worker_t worker = {.channel = channel, .allocator = allocator};
  rabbet_strbuf_t data;
  uint32_t kind = 0;
  rabbet_strbuf_initialize(allocator, &data);
  while (rabbet_message_receive(channel, -1, &kind, &data) ==
         RABBET_MESSAGE_OK) {
    if (kind == RABBET_TRIAL_HELLO && !worker.device) {
      worker_hello(&worker, &data);
    } else if (kind == RABBET_TRIAL_QUESTION && worker.device) {
      trial_t trial = {.worker = &worker};
      worker_end(&worker, trial_answer(&trial, &data));
    } else {
      break;
    }
  }
  rabbet_strbuf_deinitialize(&data);
  rabbet_device_release(worker.device);
}
