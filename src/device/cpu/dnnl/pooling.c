// Pooling, and reductions over all spatial axes as pooling, done by oneDNN.
#include <string.h>

#include "device/cpu/dnnl/simple.h"
#include "ops/enums.h"
#include "ops/image/window.h"

typedef struct pooling_case_t {
  rabbet_dnnl_spec_t spec;  // without types and formats
  rabbet_dims_t in, out;    // `out` with every spatial axis
  bool to_points;           // every spatial extent of the result is 1
  bool any_extent;          // the answer holds for all extents
} pooling_case_t;

static int64_t pooling_attr(const rabbet_group_node_t* node, const char* name) {
  return rabbet_attr_int(node->attrs, node->op->attr_count, name, 0);
}

static void pooling_check_points(pooling_case_t* c) {
  c->to_points = true;
  for (int i = 2; i < c->out.rank; ++i)
    c->to_points = c->to_points && c->out.d[i] == 1;
}

// ---- Reductions ------------------------------------------------------------

// Maxima are left to other kernels: oneDNN's begin with the lowest number,
// which is the maximum of a row of -infinity (a mask) then, and skip NaN.
static bool pooling_is_reduce(const rabbet_group_node_t* node, int32_t rank) {
  if (!rabbet_op_is(node->op, RABBET_OP_REDUCE) || rank < 3 || rank > 5)
    return false;
  int64_t spatial = (INT64_C(1) << rank) - 4;
  return pooling_attr(node, "op") == RABBET_REDUCE_AVG &&
         pooling_attr(node, "axes") == spatial;
}

static void pooling_from_reduce(const rabbet_dims_t* in, pooling_case_t* c) {
  c->in = c->out = *in;
  c->spec.kind = RABBET_DNNL_POOLING_AVERAGE;
  for (int i = 2; i < in->rank; ++i) {
    c->out.d[i] = 1;
    c->spec.window[i - 2] = in->d[i];
    c->spec.stride[i - 2] = 1;
  }
  c->to_points = c->any_extent = true;
}

// ---- Pooling ---------------------------------------------------------------

// Whether oneDNN computes the same: it differs for windows entirely in the
// padding, and for padding that ROUND_UP adds and does not count.
static bool pooling_agrees(const rabbet_window_t* window,
                           rabbet_dnnl_kind_t kind, const int64_t* after) {
  bool same = window->mode == RABBET_PADDING_SAME_UPPER ||
              window->mode == RABBET_PADDING_SAME_LOWER;
  for (int i = 0; i < window->spatial && !same; ++i) {
    bool counts = kind == RABBET_DNNL_POOLING_AVERAGE;
    if (window->pre[i] >= window->size[i] || after[i] >= window->size[i] ||
        (counts && after[i] > window->post[i])) {
      return false;
    }
  }
  return true;
}

// ROUND_UP adds padding of up to stride - 1 elements, depending on the extent.
// Whether oneDNN computes the same even with the most padding.
static bool pooling_agrees_rounded_up(const rabbet_window_t* window,
                                      rabbet_dnnl_kind_t kind) {
  int64_t most[RABBET_MAX_RANK];
  for (int i = 0; i < window->spatial; ++i)
    most[i] = window->post[i] + window->stride[i] - 1;
  return pooling_agrees(window, kind, most);
}

static rabbet_status_t pooling_from_pooling(const rabbet_group_node_t* node,
                                            const rabbet_dims_t* in,
                                            const rabbet_dims_t* out,
                                            pooling_case_t* c, bool* out_fits) {
  int64_t type = pooling_attr(node, "type");
  *out_fits = type == RABBET_POOLING_MAX || type == RABBET_POOLING_AVERAGE;
  if (!*out_fits) return rabbet_ok();
  bool excludes = pooling_attr(node, "average_count_excludes_padding");
  c->in = *in;
  c->out = *out;
  c->spec.kind = type == RABBET_POOLING_MAX ? RABBET_DNNL_POOLING_MAX
                 : excludes ? RABBET_DNNL_POOLING_AVERAGE_EXCLUDE
                            : RABBET_DNNL_POOLING_AVERAGE;
  size_t count = 0;
  const int64_t* size = rabbet_attr_ints(node->attrs, node->op->attr_count,
                                         "window_size_nd", &count);
  rabbet_window_t window;
  RABBET_RETURN_IF_ERROR(rabbet_window_read(node->attrs, node->op->attr_count,
                                            (int32_t)count, size, &window));
  for (int i = 0; i < window.spatial; ++i) {
    c->spec.window[i] = window.size[i];
    c->spec.stride[i] = window.stride[i];
  }
  rabbet_window_pads(&window, in->d + 2, out->d + 2, c->spec.before,
                     c->spec.after);
  *out_fits = pooling_agrees(&window, c->spec.kind, c->spec.after);
  c->any_extent = window.mode != RABBET_PADDING_EXPLICIT_ROUND_UP ||
                  pooling_agrees_rounded_up(&window, c->spec.kind);
  pooling_check_points(c);
  return rabbet_ok();
}

static rabbet_status_t pooling_describe(const rabbet_group_t* group,
                                        const rabbet_dims_t* in,
                                        const rabbet_dims_t* out,
                                        pooling_case_t* c, bool* out_fits) {
  const rabbet_group_node_t* node = &group->nodes[0];
  memset(c, 0, sizeof(*c));
  *out_fits = true;
  if (pooling_is_reduce(node, in->rank)) {
    pooling_from_reduce(in, c);
    return rabbet_ok();
  }
  *out_fits = rabbet_op_is(node->op, RABBET_OP_POOLING);
  if (!*out_fits) return rabbet_ok();
  return pooling_from_pooling(node, in, out, c, out_fits);
}

static rabbet_dnnl_spec_t pooling_spec(const pooling_case_t* c,
                                       rabbet_dtype_t dtype,
                                       rabbet_format_t format) {
  rabbet_dnnl_spec_t spec = c->spec;
  spec.src = rabbet_dnnl_layout(dtype, format, &c->in);
  spec.dst = rabbet_dnnl_layout(dtype, format, &c->out);
  return spec;
}

// ---- Proposing -------------------------------------------------------------

static rabbet_status_t pooling_offer_format(const rabbet_propose_t* propose,
                                            rabbet_candidate_sink_t sink,
                                            const pooling_case_t* c,
                                            rabbet_dtype_t dtype,
                                            rabbet_format_t format) {
  if (!rabbet_dnnl_has_format(format, c->in.rank)) return rabbet_ok();
  rabbet_dnnl_spec_t spec =
      pooling_spec(c, rabbet_dnnl_compute_type(dtype), format);
  const rabbet_format_t outs[] = {format, RABBET_FORMAT_LINEAR};
  const rabbet_group_value_t* x =
      &propose->group->values[propose->group->inputs[0]];
  for (int i = 0; i < 2; ++i) {
    // With one point for each channel every format is LINEAR, too, if no
    // channel is padding.
    if (i == 1 && (format == RABBET_FORMAT_LINEAR || !c->to_points ||
                   !rabbet_format_is_filled(x, format))) {
      continue;
    }
    const rabbet_type_format_t tensors[] = {{dtype, format}, {dtype, outs[i]}};
    RABBET_RETURN_IF_ERROR(rabbet_dnnl_offer_first(
        propose, sink, &rabbet_cpu_dnnl_pooling, &spec, tensors, false));
  }
  return rabbet_ok();
}

// Checks the smallest and the largest shapes of the profile: the property then
// holds for all between them.
static rabbet_status_t pooling_fits_profile(const rabbet_group_t* group,
                                            pooling_case_t* c, bool* out_fits) {
  const rabbet_group_value_t* x = &group->values[group->inputs[0]];
  const rabbet_group_value_t* y = &group->values[group->outputs[0]];
  bool spatial_changes = false, points = true;
  RABBET_RETURN_IF_ERROR(
      pooling_describe(group, &x->max, &y->max, c, out_fits));
  if (!*out_fits) return rabbet_ok();
  points = c->to_points;
  RABBET_RETURN_IF_ERROR(
      pooling_describe(group, &x->dims, &y->dims, c, out_fits));
  c->to_points = c->to_points && points;
  for (int i = 2; i < x->min.rank; ++i)
    spatial_changes = spatial_changes || x->min.d[i] != x->max.d[i];
  *out_fits = *out_fits && (!spatial_changes || c->any_extent);
  return rabbet_ok();
}

static rabbet_status_t cpu_dnnl_pooling_propose(const rabbet_propose_t* propose,
                                                rabbet_candidate_sink_t sink) {
  const rabbet_group_t* group = propose->group;
  if (group->node_count != 1 || group->input_count != 1 ||
      group->output_count != 1 ||
      !rabbet_dtype_is_float(group->values[group->inputs[0]].dtype)) {
    return rabbet_ok();
  }
  pooling_case_t c;
  bool fits = false;
  RABBET_RETURN_IF_ERROR(pooling_fits_profile(group, &c, &fits));
  if (!fits) return rabbet_ok();
  const rabbet_format_t formats[] = {RABBET_FORMAT_LINEAR, RABBET_FORMAT_HWC,
                                     rabbet_cpu_blocked_format()};
  rabbet_dtype_t types[4];
  int count = rabbet_compute_types(
      propose, group->values[group->inputs[0]].dtype, types);
  for (int i = 0; i < count; ++i) {
    for (size_t f = 0; f < sizeof(formats) / sizeof(formats[0]); ++f) {
      RABBET_RETURN_IF_ERROR(
          pooling_offer_format(propose, sink, &c, types[i], formats[f]));
    }
  }
  return rabbet_ok();
}

// ---- Compiling -------------------------------------------------------------

// Whether the output has the input's format, in which the primitive writes, or
// is LINEAR in the case of pooling_offer_format, where both are the same in
// memory.
static bool pooling_has_formats(const rabbet_dnnl_program_t* program,
                                const pooling_case_t* c) {
  const rabbet_group_t* group = program->kernel->group;
  rabbet_format_t from = group->values[group->inputs[0]].format;
  rabbet_format_t to = group->values[group->outputs[0]].format;
  return from == to || (to == RABBET_FORMAT_LINEAR && c->to_points &&
                        c->out.d[1] % rabbet_format_info(from)->block == 0);
}

static rabbet_status_t cpu_dnnl_pooling_compile(
    rabbet_dnnl_program_t* program) {
  const rabbet_group_t* group = program->kernel->group;
  int32_t x = group->inputs[0], y = group->outputs[0];
  pooling_case_t c;
  bool fits = false;
  // Every window lies in the padding.
  if (rabbet_dnnl_has_empty_input(program))
    return rabbet_dnnl_by_reference(program);
  RABBET_RETURN_IF_ERROR(pooling_describe(group, rabbet_dnnl_dims(program, x),
                                          rabbet_dnnl_dims(program, y), &c,
                                          &fits));
  if (!fits || !pooling_has_formats(program, &c))
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "oneDNN does not pool '%s' at these shapes",
                         group->nodes[0].name);
  rabbet_dtype_t compute = rabbet_dnnl_compute_type(group->values[x].dtype);
  rabbet_dnnl_spec_t spec = pooling_spec(&c, compute, group->values[x].format);
  return rabbet_dnnl_compile_simple(program, &spec, compute, NULL, 0);
}

static bool cpu_dnnl_pooling_takes(const rabbet_kernel_spec_t* spec) {
  const rabbet_group_t* group = spec->group;
  return (rabbet_takes_node(group, RABBET_OP_POOLING, RABBET_TAKES_FORMATS) ||
          rabbet_takes_node(group, RABBET_OP_REDUCE, RABBET_TAKES_FORMATS)) &&
         rabbet_takes_reals(group);
}

RABBET_DNNL_CLASS(cpu_dnnl_pooling, "dnnl.pooling", 1);
