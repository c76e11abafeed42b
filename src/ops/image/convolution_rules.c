#include <math.h>

#include "core/view.h"
#include "ops/image/convolution.h"
#include "ops/rules.h"

const rabbet_op_operand_t rabbet_convolution_inputs[] = {
    {"input", 0, RABBET_T_FLOATS},
    {"kernel", 0, RABBET_T_FLOATS},
    {"bias", RABBET_OPERAND_OPTIONAL, RABBET_T_FLOATS},
};

rabbet_status_t rabbet_convolution_infer_types(const rabbet_op_infer_t* infer) {
  infer->outputs[0].dtype = infer->inputs[RABBET_CONVOLUTION_INPUT].dtype;
  return rabbet_op_same_types(infer, RABBET_CONVOLUTION_INPUT);
}

rabbet_status_t rabbet_convolution_infer_kernel(const rabbet_op_infer_t* infer,
                                                const char* axes,
                                                rabbet_dims_t* out_kernel) {
  const rabbet_shape_t* x = &infer->inputs[RABBET_CONVOLUTION_INPUT].shape;
  char text[RABBET_OP_TEXT], kernel_text[RABBET_OP_TEXT];
  if (x->rank < 3 || x->rank > 5) {
    return RABBET_OP_INVALID(
        "input 0 ('input') has shape %s; expected (batch, channels) and one to "
        "three spatial axes",
        rabbet_op_shape_text(infer, x, text));
  }
  *out_kernel = rabbet_shape_dims(
      infer->graph, &infer->inputs[RABBET_CONVOLUTION_KERNEL].shape);
  bool fits = out_kernel->rank == x->rank;
  for (int32_t i = 0; fits && i < x->rank; ++i) {
    fits = out_kernel->d[i] > 0;
  }
  if (fits) return rabbet_ok();
  return RABBET_OP_INVALID(
      "input 1 ('kernel') has shape %s and input 0 has shape %s; expected a "
      "kernel of known shape (%s, spatial...) of the same rank",
      rabbet_dims_print(out_kernel, kernel_text, sizeof kernel_text),
      rabbet_op_shape_text(infer, x, text), axes);
}

rabbet_status_t rabbet_convolution_check_bias(const rabbet_op_infer_t* infer,
                                              int64_t maps) {
  if (infer->input_count <= RABBET_CONVOLUTION_BIAS ||
      !infer->inputs[RABBET_CONVOLUTION_BIAS].present) {
    return rabbet_ok();
  }
  const rabbet_shape_t* bias = &infer->inputs[RABBET_CONVOLUTION_BIAS].shape;
  if (bias->rank == 1 && rabbet_op_equals(infer, bias->d[0], maps)) {
    return rabbet_ok();
  }
  char text[RABBET_OP_TEXT];
  return RABBET_OP_INVALID(
      "input 2 ('bias') has shape %s; expected (%lld,), one for each map",
      rabbet_op_shape_text(infer, bias, text), (long long)maps);
}

bool rabbet_convolution_is_whole(const rabbet_group_t* group,
                                 const rabbet_group_node_t* node) {
  const rabbet_group_value_t* kernel =
      &group->values[node->inputs[RABBET_CONVOLUTION_KERNEL]];
  int64_t count = 0;
  if (!kernel->constant) return false;
  rabbet_status_ignore(rabbet_dims_count(&kernel->dims, &count));
  bool is_whole = true;
  for (int64_t i = 0; is_whole && i < count; ++i) {
    const double x = rabbet_load_double(kernel->dtype, kernel->constant, i);
    is_whole = x == trunc(x);
  }
  return is_whole;
}

const rabbet_view_t* rabbet_convolution_bias(const rabbet_op_eval_t* eval) {
  bool has_bias =
      eval->input_count > RABBET_CONVOLUTION_BIAS &&
      eval->inputs[RABBET_CONVOLUTION_BIAS].dtype != RABBET_DTYPE_NONE;
  return has_bias ? &eval->inputs[RABBET_CONVOLUTION_BIAS] : NULL;
}
