// Values of the operator fill, for its reference and for devices' kernels.
#ifndef RABBET_SRC_OPS_MOVEMENT_FILL_H_
#define RABBET_SRC_OPS_MOVEMENT_FILL_H_

#include "ops/enums.h"
#include "ops/op.h"

typedef struct rabbet_fill_plan_t {
  rabbet_fill_t operation;
  uint64_t seed;
  double alpha, beta;  // unless inputs give them
  int32_t rank;
  int64_t dims[RABBET_MAX_RANK];
} rabbet_fill_plan_t;

RABBET_PRIVATE_API void rabbet_fill_read(const rabbet_attr_t* attrs,
                                         size_t attr_count,
                                         const rabbet_dims_t* out,
                                         rabbet_fill_plan_t* out_plan);
// Elements [begin, end) of the output. `alpha` and `beta` are the inputs'
// elements in the output's type, or NULL; beta has `beta_count`.
RABBET_PRIVATE_API void rabbet_fill_run(const rabbet_fill_plan_t* plan,
                                        rabbet_dtype_t dtype, const void* alpha,
                                        const void* beta, int64_t beta_count,
                                        void* data, int64_t begin, int64_t end);

#endif  // RABBET_SRC_OPS_MOVEMENT_FILL_H_
