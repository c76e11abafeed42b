// Facts about a plan that its configuration and its runs need.
#ifndef RABBET_SRC_TRITON_PLAN_H_
#define RABBET_SRC_TRITON_PLAN_H_

#include "rabbet/engine.h"
#include "triton/interface.h"

typedef struct rabbet_triton_range_t {
  rabbet_dims_t min, opt, max;
} rabbet_triton_range_t;

typedef struct rabbet_triton_plan_t {
  rabbet_allocator_t allocator;
  rabbet_engine_t* engine;  // borrowed; inputs and outputs are its own
  size_t io_count, input_count, profile_count;
  rabbet_triton_range_t* ranges;  // [profile][input]
  bool* data_dependent;           // [io]: a run tells the output's shape
  // The largest first dimension that all inputs and outputs share and that
  // can be 1 as well. 0: there is none, and why.
  int64_t batch_limit;
  char why_not[256];
} rabbet_triton_plan_t;

// Makes contexts of the engine, for a while, and asks them for shapes.
// UNSUPPORTED names an input or output whose type or format the server lacks.
rabbet_status_t rabbet_triton_plan_initialize(rabbet_engine_t* engine,
                                              rabbet_allocator_t allocator,
                                              rabbet_triton_plan_t* out_plan);
// Zeros are fine.
void rabbet_triton_plan_deinitialize(rabbet_triton_plan_t* plan);

static inline const rabbet_io_t* rabbet_triton_plan_io(
    const rabbet_triton_plan_t* plan, size_t io) {
  return rabbet_engine_io(plan->engine, io);
}

// The profile that allows all these shapes, of several the one whose optimum is
// nearest; -1: none does. `dims` are those of the inputs.
int32_t rabbet_triton_plan_profile(const rabbet_triton_plan_t* plan,
                                   const rabbet_dims_t* dims);

// Types that both know; INVALID and "" for others.
TRITONSERVER_DataType rabbet_triton_type(rabbet_dtype_t dtype);
const char* rabbet_triton_type_name(rabbet_dtype_t dtype);

#endif  // RABBET_SRC_TRITON_PLAN_H_
