// Convolutions and deconvolutions with an element-wise epilogue, by oneDNN.
//
// Candidates are all pairs of formats for which oneDNN has fast code; tactics
// are its implementations: direct ones and, for 3x3 windows, Winograd's.
#include <string.h>

#include "device/cpu/dnnl/weighted.h"
#include "ops/image/convolution.h"
#include "ops/image/window.h"

enum { METHOD_DIRECT = 0, METHOD_WINOGRAD = 1 };

typedef struct convolution_case_t {
  const rabbet_group_t* group;
  const rabbet_dims_t* dims;
  rabbet_format_t in, out;
  rabbet_dtype_t compute;
  int method;
  const rabbet_quantized_t* quantized;  // `group` is quantized->plain; or NULL
  float* scratch;                       // see rabbet_dnnl_fused_quantize
} convolution_case_t;

static bool convolution_is_transposed(const rabbet_group_t* group) {
  return rabbet_op_is(group->nodes[0].op, RABBET_OP_DECONVOLUTION);
}

static bool convolution_matches(const rabbet_group_t* group) {
  if (group->node_count == 0 ||
      (!rabbet_op_is(group->nodes[0].op, RABBET_OP_CONVOLUTION) &&
       !convolution_is_transposed(group))) {
    return false;
  }
  return rabbet_group_feeds(group, &group->nodes[0]);
}

// Weights (maps, channels of a group, ...) with the groups as an axis before.
static rabbet_dnnl_layout_t convolution_weights(const rabbet_dims_t* kernel,
                                                int64_t groups,
                                                rabbet_dtype_t dtype) {
  if (groups == 1)
    return rabbet_dnnl_layout(dtype, RABBET_FORMAT_LINEAR, kernel);
  rabbet_dims_t dims = {.rank = kernel->rank + 1};
  dims.d[0] = groups;
  dims.d[1] = kernel->d[0] / groups;
  for (int i = 1; i < kernel->rank; ++i)
    dims.d[i + 1] = kernel->d[i];
  return rabbet_dnnl_layout(dtype, RABBET_FORMAT_LINEAR, &dims);
}

// Weights (channels, maps of a group, ...). oneDNN expects the axes of a
// convolution's weights, so strides describe the layout.
static rabbet_dnnl_layout_t deconvolution_weights(const rabbet_dims_t* kernel,
                                                  int64_t groups,
                                                  rabbet_dtype_t dtype) {
  rabbet_dnnl_layout_t layout = {.dtype = dtype, .order = RABBET_DNNL_STRIDED};
  int64_t taps = 1, channels = kernel->d[0] / groups, maps = kernel->d[1];
  for (int i = 2; i < kernel->rank; ++i)
    taps *= kernel->d[i];
  if (groups > 1) {
    layout.dims[layout.rank] = groups;
    layout.strides[layout.rank++] = channels * maps * taps;
  }
  layout.dims[layout.rank] = maps;
  layout.strides[layout.rank++] = taps;
  layout.dims[layout.rank] = channels;
  layout.strides[layout.rank++] = maps * taps;
  for (int i = 2; i < kernel->rank; ++i) {
    taps /= kernel->d[i];
    layout.dims[layout.rank] = kernel->d[i];
    layout.strides[layout.rank++] = taps;
  }
  return layout;
}

static rabbet_status_t convolution_window(const rabbet_group_node_t* node,
                                          const rabbet_dims_t* x,
                                          const rabbet_dims_t* kernel,
                                          const rabbet_dims_t* y,
                                          rabbet_dnnl_spec_t* spec) {
  rabbet_window_t window;
  RABBET_RETURN_IF_ERROR(rabbet_window_read(
      node->attrs, node->op->attr_count, x->rank - 2, kernel->d + 2, &window));
  for (int i = 0; i < window.spatial; ++i) {
    spec->stride[i] = window.stride[i];
    spec->dilation[i] = window.dilation[i];
    spec->window[i] = window.size[i];
  }
  (spec->kind == RABBET_DNNL_DECONVOLUTION ? rabbet_window_pads_transposed
                                           : rabbet_window_pads)(
      &window, x->d + 2, y->d + 2, spec->before, spec->after);
  return rabbet_ok();
}

// Layouts of the epilogue's operands; those of the result's shape have its
// layout.
static void convolution_operands(const convolution_case_t* c,
                                 rabbet_dnnl_fused_t* fused) {
  const rabbet_epilogue_t* e = &fused->epilogue;
  for (int i = 0; i < e->count; ++i) {
    if (!e->items[i].is_binary) continue;
    int32_t operand = e->items[i].operand;
    bool full = rabbet_dims_equal(&c->dims[operand], &c->dims[e->result]) &&
                !c->group->values[operand].constant;
    fused->operands[i] = rabbet_dnnl_layout(
        c->compute, full ? c->out : RABBET_FORMAT_LINEAR, &c->dims[operand]);
  }
}

// *out_fits is false if oneDNN cannot fuse the epilogue.
static rabbet_status_t convolution_describe(const convolution_case_t* c,
                                            rabbet_dnnl_fused_t* fused,
                                            bool* out_fits) {
  const rabbet_group_node_t* node = &c->group->nodes[0];
  int32_t x = node->inputs[0], kernel = node->inputs[1], y = node->outputs[0];
  int64_t groups =
      rabbet_attr_int(node->attrs, node->op->attr_count, "num_groups", 1);
  memset(fused, 0, sizeof(*fused));
  *out_fits = rabbet_epilogue_parse(c->group, c->dims, 1, y, &fused->epilogue);
  if (!*out_fits) return rabbet_ok();
  fused->src = x;
  fused->weights = kernel;
  fused->bias = node->input_count > 2 ? node->inputs[2] : -1;
  rabbet_dims_t per_channel = c->dims[y];
  for (int i = 0; i < per_channel.rank; ++i)
    per_channel.d[i] = i == 1 ? c->dims[y].d[1] : 1;
  rabbet_dnnl_fused_take_bias(fused, c->group, c->dims, &per_channel);
  rabbet_dnnl_fused_find_sum(fused, c->group, c->dims);
  rabbet_dnnl_spec_t* spec = &fused->spec;
  bool transposed = convolution_is_transposed(c->group);
  spec->kind = transposed                     ? RABBET_DNNL_DECONVOLUTION
               : c->method == METHOD_WINOGRAD ? RABBET_DNNL_CONVOLUTION_WINOGRAD
                                              : RABBET_DNNL_CONVOLUTION;
  spec->src = rabbet_dnnl_layout(c->compute, c->in, &c->dims[x]);
  spec->dst = rabbet_dnnl_layout(c->compute, c->out, &c->dims[y]);
  fused->weights_layout =
      (transposed ? deconvolution_weights : convolution_weights)(
          &c->dims[kernel], groups, c->compute);
  spec->weights = fused->weights_layout;
  spec->weights.order = RABBET_DNNL_ANY;
  spec->has_bias = fused->bias >= 0;
  rabbet_dims_t maps = {.rank = 1, .d = {c->dims[y].d[1]}};
  spec->bias =
      rabbet_dnnl_layout(RABBET_DTYPE_FLOAT, RABBET_FORMAT_LINEAR, &maps);
  convolution_operands(c, fused);
  if (c->quantized)
    rabbet_dnnl_fused_quantize(fused, c->quantized, c->scratch, out_fits);
  return convolution_window(node, &c->dims[x], &c->dims[kernel], &c->dims[y],
                            spec);
}

// ---- Proposing -------------------------------------------------------------

static rabbet_status_t convolution_offer_one(
    const rabbet_dnnl_weighted_offer_t* offer, rabbet_dtype_t dtype,
    rabbet_format_t in, rabbet_format_t out, int method) {
  rabbet_dtype_t compute = method == METHOD_WINOGRAD
                               ? RABBET_DTYPE_FLOAT
                               : rabbet_dnnl_compute_type(dtype);
  const rabbet_group_t* group = offer->propose->group;
  const convolution_case_t c = {
      .group = offer->quantized ? &offer->quantized->plain : group,
      .dims = offer->dims,
      .in = in,
      .out = out,
      .compute = compute,
      .method = method,
      .quantized = offer->quantized,
      .scratch = offer->scratch,
  };
  rabbet_dnnl_fused_t fused;
  bool fits = false;
  RABBET_RETURN_IF_ERROR(convolution_describe(&c, &fused, &fits));
  if (!fits) return rabbet_ok();
  rabbet_dnnl_fused_tensors(&fused, group, c.dims,
                            offer->quantized ? RABBET_DTYPE_NONE : dtype, in,
                            out, offer->tensors);
  int32_t tactic = method << RABBET_DNNL_TACTIC_METHOD_SHIFT;
  if (compute == RABBET_DTYPE_FLOAT) tactic |= RABBET_DNNL_TACTIC_FLOAT;
  return rabbet_dnnl_fused_propose(&fused,
                                   &(rabbet_dnnl_fused_offer_t){
                                       .kernel = &rabbet_cpu_dnnl_convolution,
                                       .propose = offer->propose,
                                       .sink = offer->sink,
                                       .tensors = offer->tensors,
                                       .tactic = tactic,
                                       .prefix = "",
                                   });
}

static rabbet_status_t convolution_offer_formats(
    const rabbet_dnnl_weighted_offer_t* offer, rabbet_dtype_t dtype) {
  const rabbet_format_t linear = RABBET_FORMAT_LINEAR, hwc = RABBET_FORMAT_HWC;
  const rabbet_format_t blocked = rabbet_cpu_blocked_format();
  const rabbet_format_t pairs[][2] = {
      {linear, linear},  {hwc, hwc},     {blocked, blocked},
      {linear, blocked}, {hwc, blocked}, {blocked, hwc},
  };
  for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); ++i) {
    RABBET_RETURN_IF_ERROR(convolution_offer_one(offer, dtype, pairs[i][0],
                                                 pairs[i][1], METHOD_DIRECT));
  }
  const rabbet_group_t* group = offer->propose->group;
  if (convolution_is_transposed(group) ||
      rabbet_convolution_is_whole(group, &group->nodes[0]))
    return rabbet_ok();
  return convolution_offer_one(offer, dtype, blocked, blocked, METHOD_WINOGRAD);
}

static rabbet_status_t convolution_offer(
    const rabbet_dnnl_weighted_offer_t* offer, rabbet_dtype_t dtype) {
  if (!offer->quantized) return convolution_offer_formats(offer, dtype);
  // 8-bit sums are fastest with channels last.
  return convolution_offer_one(offer, dtype, RABBET_FORMAT_HWC,
                               RABBET_FORMAT_HWC, METHOD_DIRECT);
}

// ---- Compiling -------------------------------------------------------------

static rabbet_status_t convolution_compile(rabbet_dnnl_program_t* program,
                                           const rabbet_group_t* group,
                                           const rabbet_quantized_t* quantized,
                                           float* scratch) {
  const rabbet_group_node_t* node = &group->nodes[0];
  const rabbet_group_value_t* y =
      &program->kernel->group->values[program->kernel->group->outputs[0]];
  int32_t tactic = program->kernel->tactic;
  const convolution_case_t c = {
      .group = group,
      .quantized = quantized,
      .scratch = scratch,
      .dims = program->shapes->dims,
      .in = group->values[node->inputs[0]].format,
      .out = y->format,
      .compute = tactic & RABBET_DNNL_TACTIC_FLOAT
                     ? RABBET_DTYPE_FLOAT
                     : rabbet_dnnl_compute_type(y->dtype),
      .method = (tactic & RABBET_DNNL_TACTIC_METHOD) >>
                RABBET_DNNL_TACTIC_METHOD_SHIFT,
  };
  rabbet_dnnl_fused_t fused;
  bool fits = false;
  RABBET_RETURN_IF_ERROR(convolution_describe(&c, &fused, &fits));
  if (!fits)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "the operators after convolution '%s' cannot be fused "
                         "at these shapes",
                         node->name);
  return rabbet_dnnl_fused_compile(&fused, program);
}

static const rabbet_dnnl_weighted_t convolution_family = {
    .noun = "convolution",
    .op = RABBET_OP_CONVOLUTION,
    .matches = convolution_matches,
    .offer = convolution_offer,
    .compile = convolution_compile,
};

static rabbet_status_t cpu_dnnl_convolution_propose(
    const rabbet_propose_t* propose, rabbet_candidate_sink_t sink) {
  return rabbet_dnnl_weighted_propose(&convolution_family, propose, sink);
}

static rabbet_status_t cpu_dnnl_convolution_compile(
    rabbet_dnnl_program_t* program) {
  return rabbet_dnnl_weighted_compile(&convolution_family, program);
}

static bool cpu_dnnl_convolution_takes(const rabbet_kernel_spec_t* spec) {
  const rabbet_group_t* group = spec->group;
  rabbet_quantized_t quantized;
  if (rabbet_quantized_parse(group, RABBET_OP_CONVOLUTION, &quantized))
    return rabbet_dnnl_takes_weights(&quantized.plain);
  return convolution_matches(group) && group->output_count == 1 &&
         rabbet_takes_reals(group) && rabbet_dnnl_takes_weights(group);
}

RABBET_DNNL_CLASS(cpu_dnnl_convolution, "dnnl.convolution", 1);
