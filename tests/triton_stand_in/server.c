#include "triton_stand_in/server.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct server_faults_t server_faults = {.fail_at = -1};
void* (*server_gpu_allocate)(size_t size);
void (*server_gpu_free)(void* memory);
static uint32_t server_major = 1, server_minor = 19;

// Of what several threads of a backend may change.
static pthread_mutex_t server_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t server_released = PTHREAD_COND_INITIALIZER;

struct TRITONSERVER_Error {
  TRITONSERVER_Error_Code code;
  char message[1024];
};

struct TRITONSERVER_Message {
  char* text;
};

#define SERVER_CHECK(condition)                                           \
  do {                                                                    \
    if (!(condition)) {                                                   \
      fprintf(stderr, "stand-in server: %s: %s\n", __func__, #condition); \
      abort();                                                            \
    }                                                                     \
  } while (0)

// ---- Errors, messages, the log

TRITONSERVER_Error* TRITONSERVER_ErrorNew(TRITONSERVER_Error_Code code,
                                          const char* message) {
  TRITONSERVER_Error* error = calloc(1, sizeof(*error));
  SERVER_CHECK(error && message);
  error->code = code;
  snprintf(error->message, sizeof(error->message), "%s", message);
  ++server_faults.errors;
  return error;
}

void TRITONSERVER_ErrorDelete(TRITONSERVER_Error* error) {
  SERVER_CHECK(error);
  --server_faults.errors;
  free(error);
}

TRITONSERVER_Error_Code TRITONSERVER_ErrorCode(TRITONSERVER_Error* error) {
  return error->code;
}

const char* TRITONSERVER_ErrorMessage(TRITONSERVER_Error* error) {
  return error->message;
}

// NULL, or the error of a call that is to fail.
static TRITONSERVER_Error* server_fault(const char* function) {
  if (server_faults.calls++ != server_faults.fail_at) return NULL;
  server_faults.failed = true;
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, function);
}
#define SERVER_MAY_FAIL()                               \
  do {                                                  \
    TRITONSERVER_Error* fault = server_fault(__func__); \
    if (fault) return fault;                            \
  } while (0)

static TRITONSERVER_Error* server_error(TRITONSERVER_Error_Code code,
                                        const char* what, const char* name) {
  char text[256];
  snprintf(text, sizeof(text), "%s '%s'", what, name);
  return TRITONSERVER_ErrorNew(code, text);
}

bool TRITONSERVER_LogIsEnabled(TRITONSERVER_LogLevel level) {
  return level != TRITONSERVER_LOG_VERBOSE;
}

TRITONSERVER_Error* TRITONSERVER_LogMessage(TRITONSERVER_LogLevel level,
                                            const char* file, int line,
                                            const char* message) {
  (void)level, (void)file, (void)line;
  SERVER_CHECK(message);
  return NULL;
}

TRITONSERVER_Error* TRITONSERVER_MessageNewFromSerializedJson(
    TRITONSERVER_Message** message, const char* text, size_t size) {
  SERVER_MAY_FAIL();
  *message = calloc(1, sizeof(**message));
  SERVER_CHECK(*message);
  (*message)->text = strndup(text, size);
  return NULL;
}

TRITONSERVER_Error* TRITONSERVER_MessageSerializeToJson(
    TRITONSERVER_Message* message, const char** text, size_t* size) {
  SERVER_MAY_FAIL();
  *text = message->text;
  *size = strlen(message->text);
  return NULL;
}

TRITONSERVER_Error* TRITONSERVER_MessageDelete(TRITONSERVER_Message* message) {
  free(message->text);
  free(message);
  return NULL;
}

// ---- Backend, models, instances

void server_set_version(uint32_t major, uint32_t minor) {
  server_major = major;
  server_minor = minor;
}

TRITONSERVER_Error* TRITONBACKEND_ApiVersion(uint32_t* major, uint32_t* minor) {
  SERVER_MAY_FAIL();
  *major = server_major;
  *minor = server_minor;
  return NULL;
}

TRITONSERVER_Error* TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(
    TRITONBACKEND_BackendAttribute* attribute,
    TRITONSERVER_InstanceGroupKind kind, uint64_t count,
    const uint64_t* device_ids, uint64_t id_count) {
  (void)kind, (void)device_ids;
  SERVER_CHECK(count > 0 && id_count == 0);
  ++attribute->groups;
  return NULL;
}

TRITONSERVER_Error* TRITONBACKEND_ModelName(TRITONBACKEND_Model* model,
                                            const char** name) {
  SERVER_MAY_FAIL();
  (void)model;
  *name = "sample";
  return NULL;
}

TRITONSERVER_Error* TRITONBACKEND_ModelVersion(TRITONBACKEND_Model* model,
                                               uint64_t* version) {
  SERVER_MAY_FAIL();
  *version = model->version;
  return NULL;
}

TRITONSERVER_Error* TRITONBACKEND_ModelRepository(
    TRITONBACKEND_Model* model, TRITONBACKEND_ArtifactType* type,
    const char** location) {
  SERVER_MAY_FAIL();
  *type = TRITONBACKEND_ARTIFACT_FILESYSTEM;
  *location = model->folder;
  return NULL;
}

TRITONSERVER_Error* TRITONBACKEND_ModelConfig(TRITONBACKEND_Model* model,
                                              uint32_t version,
                                              TRITONSERVER_Message** config) {
  SERVER_CHECK(version == 1);
  return TRITONSERVER_MessageNewFromSerializedJson(config, model->config,
                                                   strlen(model->config));
}

TRITONSERVER_Error* TRITONBACKEND_ModelAutoCompleteConfig(
    TRITONBACKEND_Model* model, bool* complete) {
  SERVER_MAY_FAIL();
  *complete = model->complete;
  return NULL;
}

TRITONSERVER_Error* TRITONBACKEND_ModelSetConfig(TRITONBACKEND_Model* model,
                                                 uint32_t version,
                                                 TRITONSERVER_Message* config) {
  SERVER_MAY_FAIL();
  SERVER_CHECK(version == 1 && model->complete);
  snprintf(model->config, sizeof(model->config), "%s", config->text);
  return NULL;
}

TRITONSERVER_Error* TRITONBACKEND_ModelState(TRITONBACKEND_Model* model,
                                             void** state) {
  *state = model->state;
  return NULL;
}

TRITONSERVER_Error* TRITONBACKEND_ModelSetState(TRITONBACKEND_Model* model,
                                                void* state) {
  SERVER_MAY_FAIL();
  model->state = state;
  return NULL;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceModel(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Model** model) {
  SERVER_MAY_FAIL();
  *model = instance->model;
  return NULL;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceKind(
    TRITONBACKEND_ModelInstance* instance,
    TRITONSERVER_InstanceGroupKind* kind) {
  SERVER_MAY_FAIL();
  *kind = instance->kind;
  return NULL;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceDeviceId(
    TRITONBACKEND_ModelInstance* instance, int32_t* id) {
  SERVER_MAY_FAIL();
  *id = instance->gpu;
  return NULL;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceState(
    TRITONBACKEND_ModelInstance* instance, void** state) {
  *state = instance->state;
  return NULL;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceSetState(
    TRITONBACKEND_ModelInstance* instance, void* state) {
  SERVER_MAY_FAIL();
  instance->state = state;
  return NULL;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportStatistics(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request,
    bool success, uint64_t begin, uint64_t compute_begin, uint64_t compute_end,
    uint64_t end) {
  (void)instance;
  SERVER_CHECK(!request->released);
  if (success)
    SERVER_CHECK(begin && begin <= compute_begin &&
                 compute_begin <= compute_end && compute_end <= end);
  ++request->reported;
  request->success = success;
  SERVER_MAY_FAIL();
  return NULL;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportBatchStatistics(
    TRITONBACKEND_ModelInstance* instance, uint64_t batch_size, uint64_t begin,
    uint64_t compute_begin, uint64_t compute_end, uint64_t end) {
  SERVER_CHECK(begin && begin <= compute_begin &&
               compute_begin <= compute_end && compute_end <= end);
  pthread_mutex_lock(&server_lock);
  ++instance->batches;
  instance->rows += batch_size;
  if (batch_size > instance->largest) instance->largest = batch_size;
  pthread_mutex_unlock(&server_lock);
  SERVER_MAY_FAIL();
  return NULL;
}

// ---- Requests

struct TRITONBACKEND_Input* server_add_input(
    struct TRITONBACKEND_Request* request, const char* name, uint32_t rank,
    const int64_t* dims, void* data, size_t size) {
  SERVER_CHECK(request->input_count < SERVER_MAX && rank <= RABBET_MAX_RANK);
  struct TRITONBACKEND_Input* input = &request->inputs[request->input_count++];
  *input =
      (struct TRITONBACKEND_Input){.name = name,
                                   .rank = rank,
                                   .buffers = {{.data = data, .size = size}},
                                   .buffer_count = 1};
  for (uint32_t i = 0; i < rank; ++i)
    input->dims[i] = dims[i];
  return input;
}

TRITONSERVER_Error* TRITONBACKEND_RequestIsCancelled(
    TRITONBACKEND_Request* request, bool* is_cancelled) {
  SERVER_CHECK(!request->released);
  SERVER_MAY_FAIL();
  *is_cancelled = request->cancelled;
  return NULL;
}

TRITONSERVER_Error* TRITONBACKEND_RequestInput(TRITONBACKEND_Request* request,
                                               const char* name,
                                               TRITONBACKEND_Input** input) {
  SERVER_CHECK(!request->released);
  SERVER_MAY_FAIL();
  for (uint32_t i = 0; i < request->input_count; ++i) {
    *input = &request->inputs[i];
    if (strcmp((*input)->name, name) == 0) return NULL;
  }
  return server_error(TRITONSERVER_ERROR_INVALID_ARG, "no input", name);
}

TRITONSERVER_Error* TRITONBACKEND_RequestOutputCount(
    TRITONBACKEND_Request* request, uint32_t* count) {
  SERVER_MAY_FAIL();
  *count = request->wanted_count;
  return NULL;
}

TRITONSERVER_Error* TRITONBACKEND_RequestOutputName(
    TRITONBACKEND_Request* request, uint32_t index, const char** name) {
  SERVER_MAY_FAIL();
  SERVER_CHECK(index < request->wanted_count);
  *name = request->wanted[index];
  return NULL;
}

TRITONSERVER_Error* TRITONBACKEND_RequestOutputBufferProperties(
    TRITONBACKEND_Request* request, const char* name, size_t* size,
    TRITONSERVER_MemoryType* type, int64_t* id) {
  (void)name, (void)size;
  SERVER_MAY_FAIL();
  *type = request->memory;
  *id = 0;
  return NULL;
}

TRITONSERVER_Error* TRITONBACKEND_RequestRelease(TRITONBACKEND_Request* request,
                                                 uint32_t flags) {
  SERVER_CHECK(flags == TRITONSERVER_REQUEST_RELEASE_ALL);
  SERVER_CHECK(request->released == 0);
  pthread_mutex_lock(&server_lock);
  ++request->released;
  pthread_cond_broadcast(&server_released);
  pthread_mutex_unlock(&server_lock);
  return NULL;
}

void server_wait(struct TRITONBACKEND_Request* requests, size_t count) {
  pthread_mutex_lock(&server_lock);
  for (size_t i = 0; i < count; ++i)
    while (!requests[i].released)
      pthread_cond_wait(&server_released, &server_lock);
  pthread_mutex_unlock(&server_lock);
}

TRITONSERVER_Error* TRITONBACKEND_InputProperties(
    TRITONBACKEND_Input* input, const char** name, TRITONSERVER_DataType* type,
    const int64_t** dims, uint32_t* rank, uint64_t* size,
    uint32_t* buffer_count) {
  SERVER_MAY_FAIL();
  SERVER_CHECK(!name && !type);
  *dims = input->dims;
  *rank = input->rank;
  *buffer_count = input->buffer_count;
  *size = 0;
  for (uint32_t i = 0; i < input->buffer_count; ++i)
    *size += input->buffers[i].size;
  return NULL;
}

TRITONSERVER_Error* TRITONBACKEND_InputBuffer(TRITONBACKEND_Input* input,
                                              uint32_t index, const void** data,
                                              uint64_t* size,
                                              TRITONSERVER_MemoryType* type,
                                              int64_t* id) {
  SERVER_MAY_FAIL();
  SERVER_CHECK(index < input->buffer_count);
  *data = input->buffers[index].data;
  *size = input->buffers[index].size;
  *type = input->buffers[index].type;
  *id = 0;
  return NULL;
}

// ---- Responses

TRITONSERVER_Error* TRITONBACKEND_ResponseNew(TRITONBACKEND_Response** response,
                                              TRITONBACKEND_Request* request) {
  SERVER_MAY_FAIL();
  SERVER_CHECK(!request->response.request);
  request->response.request = request;
  *response = &request->response;
  return NULL;
}

static void server_describe(struct TRITONBACKEND_Output* tensor,
                            const char* name, TRITONSERVER_DataType type,
                            const int64_t* dims, uint32_t rank) {
  tensor->name = name;
  tensor->type = type;
  tensor->rank = rank;
  for (uint32_t i = 0; i < rank; ++i)
    tensor->dims[i] = dims[i];
}

static void server_give_memory(const struct TRITONBACKEND_Request* request,
                               server_buffer_t* buffer, uint64_t size) {
  bool gpu = request->memory == TRITONSERVER_MEMORY_GPU;
  SERVER_CHECK(!buffer->data);
  if (gpu)
    buffer->data = server_gpu_allocate(size ? size : 1);
  else
    buffer->data = (char*)malloc(size + request->misaligned + 1);
  SERVER_CHECK(buffer->data);
  if (!gpu) buffer->data = (char*)buffer->data + request->misaligned;
  buffer->size = size;
  buffer->type = request->memory;
}

static void server_take_memory(const struct TRITONBACKEND_Request* request,
                               const server_buffer_t* buffer) {
  if (!buffer->data) return;
  if (buffer->type == TRITONSERVER_MEMORY_GPU)
    server_gpu_free(buffer->data);
  else
    free((char*)buffer->data - request->misaligned);
}

TRITONSERVER_Error* TRITONBACKEND_ResponseOutput(
    TRITONBACKEND_Response* response, TRITONBACKEND_Output** output,
    const char* name, TRITONSERVER_DataType type, const int64_t* dims,
    uint32_t rank) {
  SERVER_MAY_FAIL();
  SERVER_CHECK(!server_output(response->request, name));
  SERVER_CHECK(response->count < SERVER_MAX && !response->request->sent);
  *output = &response->outputs[response->count++];
  (*output)->request = response->request;
  server_describe(*output, name, type, dims, rank);
  return NULL;
}

TRITONSERVER_Error* TRITONBACKEND_OutputBuffer(TRITONBACKEND_Output* output,
                                               void** data, uint64_t size,
                                               TRITONSERVER_MemoryType* type,
                                               int64_t* id) {
  SERVER_MAY_FAIL();
  server_give_memory(output->request, &output->buffer, size);
  *data = output->buffer.data;
  *type = output->buffer.type;
  *id = 0;
  return NULL;
}

TRITONSERVER_Error* TRITONBACKEND_ResponseSend(TRITONBACKEND_Response* response,
                                               uint32_t flags,
                                               TRITONSERVER_Error* error) {
  struct TRITONBACKEND_Request* request = response->request;
  SERVER_CHECK(flags == TRITONSERVER_RESPONSE_COMPLETE_FINAL);
  SERVER_CHECK(request && !request->sent && !request->released);
  ++request->sent;
  if (error) {
    request->code = error->code;
    snprintf(request->error, sizeof(request->error), "%.*s",
             (int)sizeof(request->error) - 1, error->message);
  }
  return NULL;
}

const struct TRITONBACKEND_Output* server_output(
    const struct TRITONBACKEND_Request* request, const char* name) {
  for (uint32_t i = 0; i < request->response.count; ++i) {
    const struct TRITONBACKEND_Output* output = &request->response.outputs[i];
    if (strcmp(output->name, name) == 0) return output;
  }
  return NULL;
}

// ---- States

struct TRITONBACKEND_State* server_state(struct TRITONBACKEND_Request* request,
                                         const char* name) {
  for (uint32_t i = 0; i < request->state_count; ++i) {
    if (strcmp(request->states[i].tensor.name, name) == 0)
      return &request->states[i];
  }
  return NULL;
}

TRITONSERVER_Error* TRITONBACKEND_StateNew(TRITONBACKEND_State** state,
                                           TRITONBACKEND_Request* request,
                                           const char* name,
                                           TRITONSERVER_DataType type,
                                           const int64_t* dims, uint32_t rank) {
  SERVER_MAY_FAIL();
  SERVER_CHECK(!request->released && request->state_count < SERVER_MAX);
  SERVER_CHECK(!server_state(request, name));
  *state = &request->states[request->state_count++];
  (*state)->tensor.request = request;
  server_describe(&(*state)->tensor, name, type, dims, rank);
  return NULL;
}

TRITONSERVER_Error* TRITONBACKEND_StateBuffer(TRITONBACKEND_State* state,
                                              void** data, uint64_t size,
                                              TRITONSERVER_MemoryType* type,
                                              int64_t* id) {
  struct TRITONBACKEND_Request* request = state->tensor.request;
  SERVER_MAY_FAIL();
  if (request->same_buffer) {
    TRITONBACKEND_Input* input = NULL;
    TRITONSERVER_Error* error =
        TRITONBACKEND_RequestInput(request, request->same_buffer, &input);
    if (error) return error;
    SERVER_CHECK(input->buffers[0].size == size);
    state->tensor.buffer = input->buffers[0];
    state->is_borrowed = true;
  } else {
    server_give_memory(request, &state->tensor.buffer, size);
  }
  *data = state->tensor.buffer.data;
  *type = state->tensor.buffer.type;
  *id = 0;
  return NULL;
}

TRITONSERVER_Error* TRITONBACKEND_StateUpdate(TRITONBACKEND_State* state) {
  SERVER_MAY_FAIL();
  SERVER_CHECK(state && !state->updated && !state->tensor.request->released);
  state->updated = true;
  return NULL;
}

void server_forget(struct TRITONBACKEND_Request* request) {
  for (uint32_t i = 0; i < request->response.count; ++i)
    server_take_memory(request, &request->response.outputs[i].buffer);
  for (uint32_t i = 0; i < request->state_count; ++i) {
    if (!request->states[i].is_borrowed)
      server_take_memory(request, &request->states[i].tensor.buffer);
  }
}
