// Model configurations: completed from the plan, checked against it, read.
#ifndef RABBET_SRC_TRITON_CONFIG_H_
#define RABBET_SRC_TRITON_CONFIG_H_

#include <cJSON.h>

#include "triton/plan.h"

// Where the server has an input of the plan from, or what becomes of an output.
typedef enum rabbet_triton_role_t {
  RABBET_TRITON_UNUSED = 0,      // an output that nobody can ask for
  RABBET_TRITON_TENSOR = 1,      // of requests and responses
  RABBET_TRITON_STATE = 2,       // kept for a sequence
  RABBET_TRITON_CONTROL = 3,     // an input that the sequence batcher makes
  RABBET_TRITON_BATCH_INPUT = 4  // an input that tells of all requests
} rabbet_triton_role_t;

// What a batch input holds, of an input of requests.
typedef enum rabbet_triton_ragged_t {
  RABBET_TRITON_ELEMENT_COUNT = 0,  // of each request
  RABBET_TRITON_ACCUMULATED = 1,    // its sum, up to and with each request
  RABBET_TRITON_ACCUMULATED_WITH_ZERO = 2,
  RABBET_TRITON_MAX_AS_SHAPE = 3,        // no values; the size is the largest
  RABBET_TRITON_ITEM_SHAPE = 4,          // of each row of each request
  RABBET_TRITON_ITEM_SHAPE_FLATTEN = 5,  // the same in one dimension
} rabbet_triton_ragged_t;

typedef struct rabbet_triton_use_t {
  rabbet_triton_role_t role;
  // Of requests' tensors. Where an input's is larger than the plan's, requests
  // are put one after the other along the leading dimensions.
  int32_t rank;
  rabbet_triton_ragged_t ragged;  // of a batch input
  bool is_scattered;              // a batch output
  size_t source;                  // of these two: an input
  rabbet_dims_t dims;  // of an output, as the configuration has them; -1: any
} rabbet_triton_use_t;

typedef struct rabbet_triton_config_t {
  int64_t max_batch_size;     // 0: requests are not put together
  rabbet_triton_use_t* uses;  // [io]
  bool has_states;
  bool is_ragged;
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
