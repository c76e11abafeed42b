// Grouped deconvolution over one, two or three spatial axes: the gradient of a
// convolution with respect to its input. The kernel is input 1: (channels, maps
// / groups, spatial...); the bias input 2: (maps).
#include "ops/cost.h"
#include "ops/image/convolution.h"
#include "ops/image/window.h"
#include "ops/rules.h"
#include "ops/walk.h"

enum {
  INPUT = RABBET_CONVOLUTION_INPUT,
  KERNEL = RABBET_CONVOLUTION_KERNEL,
};

static rabbet_status_t deconvolution_check_channels(
    const rabbet_op_infer_t* infer, const rabbet_dims_t* kernel,
    int64_t* out_maps) {
  int64_t groups = RABBET_OP_INT(infer, "num_groups"), channels = 0;
  if (groups < 1 || kernel->d[0] % groups != 0 ||
      __builtin_mul_overflow(kernel->d[1], groups, out_maps)) {
    return RABBET_OP_INVALID(
        "attribute 'num_groups' is %lld; the kernel's %lld channels must "
        "divide into that many groups",
        (long long)groups, (long long)kernel->d[0]);
  }
  // An unknown number of channels is checked when the kernel runs.
  if (!rabbet_op_is_constant(infer, infer->inputs[INPUT].shape.d[1],
                             &channels) ||
      channels == kernel->d[0]) {
    return rabbet_ok();
  }
  return RABBET_OP_INVALID("input 0 has %lld channels; the kernel takes %lld",
                           (long long)channels, (long long)kernel->d[0]);
}

static rabbet_status_t deconvolution_infer_shapes(
    const rabbet_op_infer_t* infer) {
  const rabbet_shape_t* x = &infer->inputs[INPUT].shape;
  rabbet_dims_t kernel;
  rabbet_window_t window;
  int64_t maps = 0;
  RABBET_RETURN_IF_ERROR(rabbet_convolution_infer_kernel(
      infer, "channels, maps / groups", &kernel));
  RABBET_RETURN_IF_ERROR(deconvolution_check_channels(infer, &kernel, &maps));
  RABBET_RETURN_IF_ERROR(rabbet_convolution_check_bias(infer, maps));
  RABBET_RETURN_IF_ERROR(rabbet_window_read(
      infer->attrs, infer->attr_count, x->rank - 2, kernel.d + 2, &window));
  rabbet_shape_t shape = {.rank = x->rank, .d = {x->d[0]}};
  RABBET_RETURN_IF_ERROR(rabbet_expr_constant(infer->graph, maps, &shape.d[1]));
  RABBET_RETURN_IF_ERROR(
      rabbet_window_infer_transposed(infer, &window, x->d + 2, shape.d + 2));
  infer->outputs[0].shape = shape;
  return rabbet_ok();
}

// ---- Reference -------------------------------------------------------------

typedef struct deconvolution_t {
  const rabbet_view_t *x, *kernel, *bias, *y;
  rabbet_window_t window;
  rabbet_dims_t taps;  // (channels / groups, window...)
  int64_t pre[RABBET_MAX_RANK];
  int64_t x_strides[RABBET_MAX_RANK];
  int64_t kernel_strides[RABBET_MAX_RANK];
} deconvolution_t;

static rabbet_status_t deconvolution_start(const rabbet_op_eval_t* eval,
                                           deconvolution_t* out) {
  *out = (deconvolution_t){.x = &eval->inputs[INPUT],
                           .kernel = &eval->inputs[KERNEL],
                           .bias = rabbet_convolution_bias(eval),
                           .y = &eval->outputs[0]};
  const rabbet_dims_t* kernel = &out->kernel->dims;
  int64_t groups = RABBET_OP_INT(eval, "num_groups");
  if (out->x->dims.d[1] != kernel->d[0]) {
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                         "the input has %lld channels; the kernel takes %lld",
                         (long long)out->x->dims.d[1], (long long)kernel->d[0]);
  }
  RABBET_RETURN_IF_ERROR(rabbet_window_read(eval->attrs, eval->attr_count,
                                            kernel->rank - 2, kernel->d + 2,
                                            &out->window));
  int64_t post[RABBET_MAX_RANK];
  rabbet_window_pads_transposed(&out->window, out->x->dims.d + 2,
                                out->y->dims.d + 2, out->pre, post);
  rabbet_row_major(&out->x->dims, out->x_strides);
  rabbet_row_major(kernel, out->kernel_strides);
  out->taps.rank = kernel->rank - 1;
  out->taps.d[0] = kernel->d[0] / groups;
  for (int32_t i = 1; i < out->taps.rank; ++i) {
    out->taps.d[i] = kernel->d[i + 1];
  }
  return rabbet_ok();
}

// Offsets of the input element that a tap carries to `at`, and of its weight;
// false if there is none.
static bool deconvolution_from(const deconvolution_t* c, const int64_t* at,
                               const int64_t* tap, int64_t* out_x,
                               int64_t* out_kernel) {
  const rabbet_window_t* w = &c->window;
  int64_t maps = c->kernel->dims.d[1];
  int64_t channel = at[1] / maps * c->taps.d[0] + tap[0];
  *out_x = at[0] * c->x_strides[0] + channel * c->x_strides[1];
  *out_kernel =
      channel * c->kernel_strides[0] + at[1] % maps * c->kernel_strides[1];
  for (int32_t i = 0; i < w->spatial; ++i) {
    int64_t position = at[i + 2] + c->pre[i] - tap[i + 1] * w->dilation[i];
    if (position < 0 || position % w->stride[i] != 0) return false;
    position /= w->stride[i];
    if (position >= c->x->dims.d[i + 2]) return false;
    *out_x += position * c->x_strides[i + 2];
    *out_kernel += tap[i + 1] * c->kernel_strides[i + 2];
  }
  return true;
}

static double deconvolution_element(const deconvolution_t* c,
                                    const int64_t* at) {
  double sum = 0;
  rabbet_walk_t taps;
  rabbet_walk_initialize(&c->taps, &taps);
  for (; !taps.done; rabbet_walk_next(&taps)) {
    int64_t x = 0, kernel = 0;
    if (!deconvolution_from(c, at, taps.at, &x, &kernel)) continue;
    sum += rabbet_load_double(c->x->dtype, c->x->data, x) *
           rabbet_load_double(c->kernel->dtype, c->kernel->data, kernel);
  }
  if (c->bias) {
    sum += rabbet_load_double(c->bias->dtype, c->bias->data, at[1]);
  }
  return sum;
}

static rabbet_status_t deconvolution_reference(const rabbet_op_eval_t* eval) {
  deconvolution_t c;
  RABBET_RETURN_IF_ERROR(deconvolution_start(eval, &c));
  rabbet_walk_t walk;
  rabbet_walk_initialize(&c.y->dims, &walk);
  for (; !walk.done; rabbet_walk_next(&walk)) {
    rabbet_store_double(c.y->dtype, c.y->data, walk.linear,
                        deconvolution_element(&c, walk.at));
  }
  return rabbet_ok();
}

static double deconvolution_cost(const rabbet_op_eval_t* eval) {
  return rabbet_cost_kernel(eval, 1);
}

static const rabbet_op_operand_t deconvolution_outputs[] = {
    {"output", 0, RABBET_T_FLOATS}};
static const rabbet_op_attr_t deconvolution_attrs[] = {
    {"stride_nd", RABBET_ATTR_INTS, false, 1, 0, NULL},
    {"dilation_nd", RABBET_ATTR_INTS, false, 1, 0, NULL},
    {"pre_padding", RABBET_ATTR_INTS, false, 0, 0, NULL},
    {"post_padding", RABBET_ATTR_INTS, false, 0, 0, NULL},
    {"output_padding", RABBET_ATTR_INTS, false, 0, 0, NULL},
    {"padding_mode", RABBET_ATTR_INT, false, RABBET_PADDING_EXPLICIT_ROUND_DOWN,
     0, rabbet_padding_modes},
    {"num_groups", RABBET_ATTR_INT, false, 1, 0, NULL},
};

const rabbet_op_t rabbet_op_deconvolution = {
    .name = "deconvolution",
    .layer_type = "DECONVOLUTION",
    .inputs = rabbet_convolution_inputs,
    .input_count = RABBET_CONVOLUTION_INPUTS,
    .outputs = deconvolution_outputs,
    .output_count = RABBET_OP_COUNT_OF(deconvolution_outputs),
    .attrs = deconvolution_attrs,
    .attr_count = RABBET_OP_COUNT_OF(deconvolution_attrs),
    .infer_types = rabbet_convolution_infer_types,
    .infer_shapes = deconvolution_infer_shapes,
    .reference = deconvolution_reference,
    .cost = deconvolution_cost,
};
