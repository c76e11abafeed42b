// Plans that between them hold all that a plan can hold.
#ifndef RABBET_TESTS_PLAN_SAMPLES_H_
#define RABBET_TESTS_PLAN_SAMPLES_H_

#include "plan_maker.h"

// y[2,3] = relu(x[2,3] + w[2,3]), w = -1, -0.5, 0, 0.5, 1, 1.5.
static inline void sample_static(maker_t* m) {
  static const int64_t dims[] = {2, 3};
  static const float weights[] = {-1, -0.5f, 0, 0.5f, 1, 1.5f};
  rabbet_shape_t shape = maker_shape(m, 2, dims);
  int32_t x = maker_io(m, "x", true, RABBET_DTYPE_FLOAT, shape);
  int32_t w = maker_constant(m, "w", RABBET_DTYPE_FLOAT, shape, weights);
  int32_t sum = maker_value(m, "sum", RABBET_DTYPE_FLOAT, shape);
  int32_t y = maker_io(m, "y", false, RABBET_DTYPE_FLOAT, shape);
  maker_step(m, &(maker_step_t){.name = "add",
                                .op = RABBET_OP_ELEMENTWISE,
                                .attrs = {MAKER_INT("op", 0)},
                                .attr_count = 1,
                                .inputs = {x, w},
                                .input_count = 2,
                                .outputs = {sum},
                                .output_count = 1});
  maker_step(m, &(maker_step_t){.name = "relu",
                                .op = RABBET_OP_ACTIVATION,
                                .attrs = {MAKER_INT("type", 0)},
                                .attr_count = 1,
                                .inputs = {sum},
                                .input_count = 1,
                                .outputs = {y},
                                .output_count = 1});
}

#endif  // RABBET_TESTS_PLAN_SAMPLES_H_
