// A model that the server has loaded: its plan, on each device that its
// instances are on, and its configuration.
#ifndef RABBET_SRC_TRITON_MODEL_H_
#define RABBET_SRC_TRITON_MODEL_H_

#include "triton/config.h"

typedef struct rabbet_triton_engine_t {
  char device[32];  // "cpu", "cuda:1"
  rabbet_engine_t* engine;
} rabbet_triton_engine_t;

// The server makes and destroys a model's instances one after the other, and no
// model before its instances are gone: nothing here is locked.
typedef struct rabbet_triton_model_t {
  rabbet_allocator_t allocator;
  TRITONBACKEND_Model* handle;
  char* path;              // of the plan
  char* plugins;           // the parameter's text, cut into names
  bool host_code_allowed;  // that the plan carries
  bool is_cuda;
  cJSON* json;  // the configuration
  rabbet_triton_engine_t* engines;
  size_t engine_count;
  rabbet_triton_plan_t plan;  // of the first engine; the same for all
  rabbet_triton_config_t config;
} rabbet_triton_model_t;

rabbet_status_t rabbet_triton_model_create(TRITONBACKEND_Model* handle,
                                           rabbet_allocator_t allocator,
                                           rabbet_triton_model_t** out_model);
void rabbet_triton_model_destroy(rabbet_triton_model_t* model);

// The engine on a GPU, which all instances there share; -1: where the plan
// goes by itself. Borrowed from the model.
rabbet_status_t rabbet_triton_model_engine(rabbet_triton_model_t* model,
                                           int32_t gpu,
                                           rabbet_engine_t** out_engine);

#endif  // RABBET_SRC_TRITON_MODEL_H_
