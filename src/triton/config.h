// Model configurations: completed from the plan, checked against it, read.
#ifndef RABBET_SRC_TRITON_CONFIG_H_
#define RABBET_SRC_TRITON_CONFIG_H_

#include <cJSON.h>

#include "triton/plan.h"

// Where the server has an input of the plan from, or what becomes of an output.
typedef enum rabbet_triton_role_t {
  RABBET_TRITON_UNUSED = 0,  // an output that nobody can ask for
  RABBET_TRITON_TENSOR = 1,  // of requests and responses
  RABBET_TRITON_STATE = 2,   // kept for a sequence
  RABBET_TRITON_CONTROL = 3  // an input that the sequence batcher makes
} rabbet_triton_role_t;

typedef struct rabbet_triton_config_t {
  int64_t max_batch_size;       // 0: requests are not put together
  rabbet_triton_role_t* roles;  // [io]
  bool has_states;
  int64_t threads;         // 0: the plan's
  int64_t answer_threads;  // of an instance
  bool graphs;
  rabbet_allocator_t allocator;
} rabbet_triton_config_t;

// Adds to the configuration what it lacks. INVALID_ARGUMENT or UNSUPPORTED
// names what does not fit the plan.
rabbet_status_t rabbet_triton_config_complete(const rabbet_triton_plan_t* plan,
                                              cJSON* config);

// Checks a complete configuration.
rabbet_status_t rabbet_triton_config_initialize(
    const cJSON* config, const rabbet_triton_plan_t* plan,
    rabbet_allocator_t allocator, rabbet_triton_config_t* out_config);
// Zeros are fine.
void rabbet_triton_config_deinitialize(rabbet_triton_config_t* config);

// The text of a member; "" if it is absent, or no string.
const char* rabbet_triton_config_text(const cJSON* object, const char* key);
// The text of a parameter of the model; "" if it is not set.
const char* rabbet_triton_config_parameter(const cJSON* config,
                                           const char* name);
// INVALID_ARGUMENT for anything but "true" and "false"; absent is false.
rabbet_status_t rabbet_triton_config_flag(const cJSON* config, const char* name,
                                          bool* out_value);
// cJSON tells nothing else where memory is lacking.
rabbet_status_t rabbet_triton_config_no_memory(void);

#endif  // RABBET_SRC_TRITON_CONFIG_H_
