// Grouped convolution over one, two or three spatial axes. The kernel is input
// 1: (maps, channels / groups, spatial...); the bias input 2: (maps).
#include "ops/image/convolution.h"
#include "ops/cost.h"
#include "ops/image/window.h"
#include "ops/rules.h"
#include "ops/walk.h"

enum {
  INPUT = RABBET_CONVOLUTION_INPUT,
  KERNEL = RABBET_CONVOLUTION_KERNEL,
};

static rabbet_status_t convolution_check_channels(
    const rabbet_op_infer_t* infer, const rabbet_dims_t* kernel) {
  int64_t groups = RABBET_OP_INT(infer, "num_groups"), channels = 0;
  if (groups < 1 || kernel->d[0] % groups != 0) {
    return RABBET_OP_INVALID(
        "attribute 'num_groups' is %lld; the kernel's %lld maps must divide "
        "into that many groups",
        (long long)groups, (long long)kernel->d[0]);
  }
  // An unknown number of channels is checked when the kernel runs.
  int64_t taken = 0;
  bool fits = !__builtin_mul_overflow(kernel->d[1], groups, &taken);
  if (rabbet_op_is_constant(infer, infer->inputs[INPUT].shape.d[1],
                            &channels)) {
    fits = fits && channels == taken;
  }
  if (fits) return rabbet_ok();
  return RABBET_OP_INVALID(
      "input 0 has %lld channels; a kernel of %lld channels in %lld groups "
      "takes %lld",
      (long long)channels, (long long)kernel->d[1], (long long)groups,
      (long long)taken);
}

static rabbet_status_t convolution_infer_shapes(
    const rabbet_op_infer_t* infer) {
  const rabbet_shape_t* x = &infer->inputs[INPUT].shape;
  rabbet_dims_t kernel;
  rabbet_window_t window;
  RABBET_RETURN_IF_ERROR(rabbet_convolution_infer_kernel(
      infer, "maps, channels / groups", &kernel));
  RABBET_RETURN_IF_ERROR(convolution_check_channels(infer, &kernel));
  RABBET_RETURN_IF_ERROR(rabbet_convolution_check_bias(infer, kernel.d[0]));
  RABBET_RETURN_IF_ERROR(rabbet_window_read(
      infer->attrs, infer->attr_count, x->rank - 2, kernel.d + 2, &window));
  rabbet_shape_t shape = {.rank = x->rank, .d = {x->d[0]}};
  RABBET_RETURN_IF_ERROR(
      rabbet_expr_constant(infer->graph, kernel.d[0], &shape.d[1]));
  RABBET_RETURN_IF_ERROR(
      rabbet_window_infer(infer, &window, x->d + 2, shape.d + 2));
  infer->outputs[0].shape = shape;
  return rabbet_ok();
}

// ---- Reference -------------------------------------------------------------

typedef struct convolution_t {
  const rabbet_view_t *x, *kernel, *bias, *y;
  rabbet_window_t window;
  int64_t channels;    // of a group
  rabbet_dims_t taps;  // of the window
  int64_t pre[RABBET_MAX_RANK];
  int64_t x_strides[RABBET_MAX_RANK];
  int64_t maps_per_group;
} convolution_t;

static rabbet_status_t convolution_start(const rabbet_op_eval_t* eval,
                                         convolution_t* out) {
  *out = (convolution_t){.x = &eval->inputs[INPUT],
                         .kernel = &eval->inputs[KERNEL],
                         .bias = rabbet_convolution_bias(eval),
                         .y = &eval->outputs[0]};
  const rabbet_dims_t* kernel = &out->kernel->dims;
  int64_t groups = RABBET_OP_INT(eval, "num_groups");
  if (out->x->dims.d[1] != kernel->d[1] * groups) {
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                         "the input has %lld channels; the kernel takes %lld",
                         (long long)out->x->dims.d[1],
                         (long long)(kernel->d[1] * groups));
  }
  RABBET_RETURN_IF_ERROR(rabbet_window_read(eval->attrs, eval->attr_count,
                                            kernel->rank - 2, kernel->d + 2,
                                            &out->window));
  int64_t post[RABBET_MAX_RANK];
  rabbet_window_pads(&out->window, out->x->dims.d + 2, out->y->dims.d + 2,
                     out->pre, post);
  rabbet_row_major(&out->x->dims, out->x_strides);
  out->maps_per_group = kernel->d[0] / groups;
  out->channels = kernel->d[1];
  out->taps.rank = kernel->rank - 2;
  for (int32_t i = 0; i < out->taps.rank; ++i) {
    out->taps.d[i] = kernel->d[i + 2];
  }
  return rabbet_ok();
}

// Offset of the first channel's element under a tap; false in the padding.
static bool convolution_under(const convolution_t* c, const int64_t* at,
                              const int64_t* tap, int64_t* out_offset) {
  const rabbet_window_t* w = &c->window;
  int64_t first = at[1] / c->maps_per_group * c->channels;
  *out_offset = at[0] * c->x_strides[0] + first * c->x_strides[1];
  for (int32_t i = 0; i < w->spatial; ++i) {
    int64_t position =
        at[i + 2] * w->stride[i] + tap[i] * w->dilation[i] - c->pre[i];
    if (position < 0 || position >= c->x->dims.d[i + 2]) return false;
    *out_offset += position * c->x_strides[i + 2];
  }
  return true;
}

static double convolution_element(const convolution_t* c, const int64_t* at) {
  double sum = 0;
  int64_t window = rabbet_count_of(&c->taps);
  int64_t kernel_at = at[1] * c->channels * window;
  rabbet_walk_t taps;
  rabbet_walk_initialize(&c->taps, &taps);
  for (; !taps.done; rabbet_walk_next(&taps)) {
    int64_t offset = 0;
    if (!convolution_under(c, at, taps.at, &offset)) continue;
    for (int64_t i = 0; i < c->channels; ++i)
      sum += rabbet_load_double(c->x->dtype, c->x->data,
                                offset + i * c->x_strides[1]) *
             rabbet_load_double(c->kernel->dtype, c->kernel->data,
                                kernel_at + i * window + taps.linear);
  }
  if (c->bias) {
    sum += rabbet_load_double(c->bias->dtype, c->bias->data, at[1]);
  }
  return sum;
}

static rabbet_status_t convolution_reference(const rabbet_op_eval_t* eval) {
  convolution_t c;
  RABBET_RETURN_IF_ERROR(convolution_start(eval, &c));
  rabbet_walk_t walk;
  rabbet_walk_initialize(&c.y->dims, &walk);
  for (; !walk.done; rabbet_walk_next(&walk)) {
    rabbet_store_double(c.y->dtype, c.y->data, walk.linear,
                        convolution_element(&c, walk.at));
  }
  return rabbet_ok();
}

static double convolution_cost(const rabbet_op_eval_t* eval) {
  return rabbet_cost_kernel(eval, 0);
}

static const rabbet_op_operand_t convolution_outputs[] = {
    {"output", 0, RABBET_T_FLOATS}};
static const rabbet_op_attr_t convolution_attrs[] = {
    {"stride_nd", RABBET_ATTR_INTS, false, 1, 0, NULL},
    {"dilation_nd", RABBET_ATTR_INTS, false, 1, 0, NULL},
    {"pre_padding", RABBET_ATTR_INTS, false, 0, 0, NULL},
    {"post_padding", RABBET_ATTR_INTS, false, 0, 0, NULL},
    {"padding_mode", RABBET_ATTR_INT, false, RABBET_PADDING_EXPLICIT_ROUND_DOWN,
     0, rabbet_padding_modes},
    {"num_groups", RABBET_ATTR_INT, false, 1, 0, NULL},
};

const rabbet_op_t rabbet_op_convolution = {
    .name = "convolution",
    .layer_type = "CONVOLUTION",
    .inputs = rabbet_convolution_inputs,
    .input_count = RABBET_CONVOLUTION_INPUTS,
    .outputs = convolution_outputs,
    .output_count = RABBET_OP_COUNT_OF(convolution_outputs),
    .attrs = convolution_attrs,
    .attr_count = RABBET_OP_COUNT_OF(convolution_attrs),
    .infer_types = rabbet_convolution_infer_types,
    .infer_shapes = convolution_infer_shapes,
    .reference = convolution_reference,
    .cost = convolution_cost,
};
