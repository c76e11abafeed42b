#define _GNU_SOURCE
#include "triton/model.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "rabbet/pyhost.h"
#include "triton/operators.h"
#include "triton/report.h"
#include "triton/text.h"

// ---- The configuration

static rabbet_status_t model_parse_config(rabbet_triton_model_t* model,
                                          const char* text, size_t size) {
  const char* end = text;
  cJSON* json = cJSON_ParseWithLengthOpts(text, size, &end, false);
  if (!json)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "JSON, byte %td: neither valid nor, if it is, "
                         "memory for it",
                         end - text);
  cJSON_Delete(model->json);
  model->json = json;
  return rabbet_ok();
}

static rabbet_status_t model_read_config(rabbet_triton_model_t* model) {
  TRITONSERVER_Message* message = NULL;
  const char* text = NULL;
  size_t size = 0;
  RABBET_RETURN_IF_ERROR(rabbet_triton_status(
      TRITONBACKEND_ModelConfig(model->handle, 1, &message)));
  rabbet_status_t status = rabbet_triton_status(
      TRITONSERVER_MessageSerializeToJson(message, &text, &size));
  if (rabbet_is_ok(status)) status = model_parse_config(model, text, size);
  status = rabbet_status_join(
      status, rabbet_triton_status(TRITONSERVER_MessageDelete(message)));
  return RABBET_ANNOTATE(status, "reading the model's configuration");
}

static rabbet_status_t model_complete_config(rabbet_triton_model_t* model) {
  TRITONSERVER_Message* message = NULL;
  bool complete = false;
  RABBET_RETURN_IF_ERROR(rabbet_triton_status(
      TRITONBACKEND_ModelAutoCompleteConfig(model->handle, &complete)));
  if (!complete) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(
      rabbet_triton_config_complete(&model->plan, model->json));
  char* text = cJSON_PrintUnformatted(model->json);
  if (!text) return rabbet_triton_config_no_memory();
  rabbet_status_t status = rabbet_triton_status(
      TRITONSERVER_MessageNewFromSerializedJson(&message, text, strlen(text)));
  if (rabbet_is_ok(status)) {
    status = rabbet_triton_status(
        TRITONBACKEND_ModelSetConfig(model->handle, 1, message));
    status = rabbet_status_join(
        status, rabbet_triton_status(TRITONSERVER_MessageDelete(message)));
  }
  cJSON_free(text);
  RABBET_RETURN_IF_ERROR(status);
  return model_read_config(model);
}

// ---- Files

static rabbet_status_t model_copy_text(rabbet_triton_model_t* model,
                                       const char* text, char** out_copy) {
  size_t size = strlen(text) + 1;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(model->allocator, size, (void**)out_copy));
  memcpy(*out_copy, text, size);
  return rabbet_ok();
}

// A file of the model: of its version, or of all versions.
static rabbet_status_t model_find_file(const rabbet_triton_model_t* model,
                                       const char* name, char** out_path) {
  TRITONBACKEND_ArtifactType type = TRITONBACKEND_ARTIFACT_FILESYSTEM;
  const char* folder = NULL;
  uint64_t version = 0;
  RABBET_RETURN_IF_ERROR(rabbet_triton_status(
      TRITONBACKEND_ModelRepository(model->handle, &type, &folder)));
  RABBET_RETURN_IF_ERROR(rabbet_triton_status(
      TRITONBACKEND_ModelVersion(model->handle, &version)));
  if (type != TRITONBACKEND_ARTIFACT_FILESYSTEM)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "the server does not give the model as files");
  rabbet_text_t path = {.allocator = model->allocator};
  rabbet_text_printf(&path, "%s/%llu/%s", folder, (unsigned long long)version,
                     name);
  if (rabbet_is_ok(path.status) && access(path.data, F_OK) != 0) {
    path.size = 0;
    rabbet_text_printf(&path, "%s/%s", folder, name);
  }
  if (rabbet_is_ok(path.status) && access(path.data, F_OK) != 0)
    path.status = RABBET_STATUS(
        RABBET_STATUS_NOT_FOUND, "neither '%s/%llu' nor '%s' has a file '%s'",
        folder, (unsigned long long)version, folder, name);
  if (rabbet_is_ok(path.status))
    *out_path = path.data;
  else
    rabbet_free(path.allocator, path.data);
  return path.status;
}

// ---- Operators

static bool model_ends_in(const char* name, const char* suffix) {
  size_t size = strlen(name), end = strlen(suffix);
  return size >= end && strcmp(name + size - end, suffix) == 0;
}

static rabbet_status_t model_load_plugin(rabbet_triton_model_t* model,
                                         const char* name) {
  char* path = NULL;
  rabbet_status_t status = rabbet_ok();
  // Anything else is the name of a module.
  if (model_ends_in(name, ".so") || model_ends_in(name, ".py"))
    status = model_find_file(model, name, &path);
  if (rabbet_is_ok(status))
    status = rabbet_triton_load_operators(path ? path : name);
  rabbet_free(model->allocator, path);
  return RABBET_ANNOTATE(status, "parameter 'plugins': '%s'", name);
}

// The parameter is the permission to run them.
static rabbet_status_t model_load_plugins(rabbet_triton_model_t* model) {
  const char* text = rabbet_triton_config_parameter(model->json, "plugins");
  RABBET_RETURN_IF_ERROR(model_copy_text(model, text, &model->plugins));
  char* rest = NULL;
  for (char* name = strtok_r(model->plugins, ", \t\n", &rest); name;
       name = strtok_r(NULL, ", \t\n", &rest))
    RABBET_RETURN_IF_ERROR(model_load_plugin(model, name));
  return rabbet_ok();
}

// ---- The plan

// Reads what must be known before the plan can be loaded: its kind of device,
// and whether it carries Python.
static rabbet_status_t model_inspect(rabbet_triton_model_t* model) {
  const rabbet_engine_options_t options = {.struct_size = sizeof(options),
                                           .inspect_only = true};
  rabbet_engine_t* engine = NULL;
  bool python = false;
  RABBET_RETURN_IF_ERROR(
      rabbet_engine_load(model->path, &options, model->allocator, &engine));
  model->is_cuda = strncmp(rabbet_engine_device(engine), "cuda", 4) == 0;
  const rabbet_carried_t* carried = NULL;
  for (size_t i = 0; (carried = rabbet_engine_carried(engine, i)); ++i)
    python |= carried->kind == RABBET_CARRIED_PYTHON;
  rabbet_engine_release(engine);
  return python && model->host_code_allowed ? rabbet_pyhost_start(NULL)
                                            : rabbet_ok();
}

// The GPU of the first instance.
static int32_t model_first_gpu(const rabbet_triton_model_t* model) {
  const cJSON* group = cJSON_GetArrayItem(
      cJSON_GetObjectItemCaseSensitive(model->json, "instance_group"), 0);
  const cJSON* gpu =
      cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(group, "gpus"), 0);
  return cJSON_IsNumber(gpu) ? gpu->valueint : -1;
}

rabbet_status_t rabbet_triton_model_engine(rabbet_triton_model_t* model,
                                           int32_t gpu,
                                           rabbet_engine_t** out_engine) {
  rabbet_triton_engine_t entry = {0};
  rabbet_engine_options_t options = {
      .struct_size = sizeof(options),
      .logger = rabbet_triton_logger(),
      .host_code_allowed = model->host_code_allowed,
  };
  *out_engine = NULL;
  if (model->is_cuda && gpu >= 0) {
    snprintf(entry.device, sizeof(entry.device), "cuda:%d", gpu);
    options.device = entry.device;
  }
  for (size_t i = 0; i < model->engine_count; ++i) {
    if (options.device && strcmp(model->engines[i].device, entry.device) != 0)
      continue;
    *out_engine = model->engines[i].engine;
    return rabbet_ok();
  }
  RABBET_RETURN_IF_ERROR(rabbet_reallocate(
      model->allocator, (model->engine_count + 1) * sizeof(*model->engines),
      (void**)&model->engines));
  RABBET_RETURN_IF_ERROR(rabbet_engine_load(model->path, &options,
                                            model->allocator, &entry.engine));
  snprintf(entry.device, sizeof(entry.device), "%s",
           rabbet_engine_device(entry.engine));
  model->engines[model->engine_count++] = entry;
  *out_engine = entry.engine;
  return rabbet_ok();
}

// ---- The whole

static rabbet_status_t model_initialize(rabbet_triton_model_t* model) {
  rabbet_engine_t* engine = NULL;
  RABBET_RETURN_IF_ERROR(model_read_config(model));
  const char* file =
      rabbet_triton_config_text(model->json, "default_model_filename");
  RABBET_RETURN_IF_ERROR(
      model_find_file(model, *file ? file : "model.plan", &model->path));
  RABBET_RETURN_IF_ERROR(rabbet_triton_config_flag(
      model->json, "host_code_allowed", &model->host_code_allowed));
  RABBET_RETURN_IF_ERROR(model_load_plugins(model));
  RABBET_RETURN_IF_ERROR(model_inspect(model));
  RABBET_RETURN_IF_ERROR(
      rabbet_triton_model_engine(model, model_first_gpu(model), &engine));
  RABBET_RETURN_IF_ERROR(
      rabbet_triton_plan_initialize(engine, model->allocator, &model->plan));
  RABBET_RETURN_IF_ERROR(model_complete_config(model));
  return rabbet_triton_config_initialize(model->json, &model->plan,
                                         model->allocator, &model->config);
}

rabbet_status_t rabbet_triton_model_create(TRITONBACKEND_Model* handle,
                                           rabbet_allocator_t allocator,
                                           rabbet_triton_model_t** out_model) {
  const char* name = "?";
  rabbet_triton_model_t* model = NULL;
  *out_model = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_triton_status(TRITONBACKEND_ModelName(handle, &name)));
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(allocator, sizeof(*model), (void**)&model));
  model->allocator = allocator;
  model->handle = handle;
  rabbet_status_t status = model_initialize(model);
  if (rabbet_is_ok(status))
    *out_model = model;
  else
    rabbet_triton_model_destroy(model);
  return RABBET_ANNOTATE(status, "model '%s'", name);
}

void rabbet_triton_model_destroy(rabbet_triton_model_t* model) {
  if (!model) return;
  rabbet_triton_config_deinitialize(&model->config);
  rabbet_triton_plan_deinitialize(&model->plan);
  for (size_t i = 0; i < model->engine_count; ++i)
    rabbet_engine_release(model->engines[i].engine);
  rabbet_free(model->allocator, model->engines);
  cJSON_Delete(model->json);
  rabbet_free(model->allocator, model->plugins);
  rabbet_free(model->allocator, model->path);
  rabbet_free(model->allocator, model);
}
