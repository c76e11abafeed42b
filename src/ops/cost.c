#include "ops/cost.h"

#include "ops/enums.h"
#include "ops/rules.h"

double rabbet_cost_count(const rabbet_view_t* view) {
  double count = view->dtype != RABBET_DTYPE_NONE;
  for (int32_t i = 0; i < view->dims.rank; ++i)
    count *= view->dims.d[i] > 0 ? (double)view->dims.d[i] : 0;
  return count;
}

double rabbet_cost_elements(const rabbet_op_eval_t* eval) {
  double count = 1;
  for (size_t i = 0; i < eval->input_count; ++i)
    count += rabbet_cost_count(&eval->inputs[i]);
  for (size_t i = 0; i < eval->output_count; ++i)
    count += rabbet_cost_count(&eval->outputs[i]);
  return count;
}

double rabbet_cost_sorting(const rabbet_op_eval_t* eval) {
  double count = rabbet_cost_elements(eval), steps = count;
  for (double rest = count; rest > 1; rest /= 2)
    steps += count;
  return steps;
}

double rabbet_cost_kernel(const rabbet_op_eval_t* eval, int32_t maps) {
  const rabbet_dims_t* kernel = &eval->inputs[1].dims;
  double steps = rabbet_cost_count(&eval->outputs[0]);
  for (int32_t i = 0; i < kernel->rank; ++i)
    if (i != maps) steps *= (double)kernel->d[i];
  return steps + rabbet_cost_elements(eval);
}

double rabbet_cost_taps(int64_t mode) {
  return mode == RABBET_INTERPOLATION_CUBIC    ? 4
         : mode == RABBET_INTERPOLATION_LINEAR ? 2
                                               : 1;
}

double rabbet_op_steps(const rabbet_op_eval_t* eval) {
  return eval->op->cost ? eval->op->cost(eval) : rabbet_cost_elements(eval);
}

bool rabbet_op_is_slow(const rabbet_op_t* op) {
  return op->cost != NULL;
}
