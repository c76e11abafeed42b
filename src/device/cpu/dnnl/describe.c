// Specifications as oneDNN's descriptors.
#include <string.h>

#include "device/cpu/dnnl/internal.h"

// ---- Layouts ---------------------------------------------------------------

static dnnl_data_type_t describe_dtype(rabbet_dtype_t dtype) {
  switch (dtype) {
    case RABBET_DTYPE_FLOAT:
      return dnnl_f32;
    case RABBET_DTYPE_BF16:
      return dnnl_bf16;
    case RABBET_DTYPE_INT32:
      return dnnl_s32;
    case RABBET_DTYPE_INT8:
      return dnnl_s8;
    case RABBET_DTYPE_UINT8:
      return dnnl_u8;
    default:
      return dnnl_data_type_undef;
  }
}

// Tags of blocked formats by spatial axes 1, 2, 3.
static dnnl_format_tag_t blocked_tag(rabbet_format_t format, int rank) {
  static const struct {
    rabbet_format_t format;
    dnnl_format_tag_t tags[3];
  } tags[] = {
      {RABBET_FORMAT_CHW4, {dnnl_nCw4c, dnnl_nChw4c, dnnl_nCdhw4c}},
      {RABBET_FORMAT_CHW8, {dnnl_nCw8c, dnnl_nChw8c, dnnl_nCdhw8c}},
      {RABBET_FORMAT_CHW16, {dnnl_nCw16c, dnnl_nChw16c, dnnl_nCdhw16c}},
      {RABBET_FORMAT_CHW32, {dnnl_nCw32c, dnnl_nChw32c, dnnl_nCdhw32c}},
      {RABBET_FORMAT_CDHW32,
       {dnnl_format_tag_undef, dnnl_format_tag_undef, dnnl_nCdhw32c}},
  };
  if (rank < 3 || rank > 5) return dnnl_format_tag_undef;
  for (size_t i = 0; i < sizeof(tags) / sizeof(tags[0]); ++i) {
    if (tags[i].format == format) return tags[i].tags[rank - 3];
  }
  return dnnl_format_tag_undef;
}

bool rabbet_dnnl_channels_last(rabbet_format_t format, int rank) {
  return (format == RABBET_FORMAT_HWC && rank >= 3) ||
         (format == RABBET_FORMAT_DHWC && rank == 5);
}

bool rabbet_dnnl_has_format(rabbet_format_t format, int rank) {
  if (rank < 1 || rank > RABBET_DNNL_MAX_RANK) return false;
  return format == RABBET_FORMAT_LINEAR ||
         rabbet_dnnl_channels_last(format, rank) ||
         blocked_tag(format, rank) != dnnl_format_tag_undef;
}

rabbet_dnnl_layout_t rabbet_dnnl_layout(rabbet_dtype_t dtype,
                                        rabbet_format_t format,
                                        const rabbet_dims_t* dims) {
  rabbet_dnnl_layout_t layout = {.dtype = dtype,
                                 .order = RABBET_DNNL_FORMAT,
                                 .format = format,
                                 .rank = dims->rank};
  for (int i = 0; i < dims->rank; ++i)
    layout.dims[i] = dims->d[i];
  return layout;
}

static void dense_strides(const rabbet_dnnl_layout_t* layout,
                          bool channels_last, dnnl_dims_t out_strides) {
  int64_t stride = 1;
  if (channels_last) {
    out_strides[1] = 1;
    stride = layout->dims[1];
  }
  for (int i = layout->rank - 1; i >= 0; --i) {
    if (channels_last && i == 1) continue;
    out_strides[i] = stride;
    stride *= layout->dims[i];
  }
}

rabbet_status_t rabbet_dnnl_desc(const rabbet_dnnl_layout_t* layout,
                                 dnnl_memory_desc_t* out_desc) {
  memset(out_desc, 0, sizeof(*out_desc));
  dnnl_data_type_t dtype = describe_dtype(layout->dtype);
  if (dtype == dnnl_data_type_undef)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED, "oneDNN has no type %s",
                         rabbet_dtype_name(layout->dtype));
  dnnl_dims_t dims = {0}, strides = {0};
  memcpy(dims, layout->dims, sizeof(layout->dims[0]) * (size_t)layout->rank);
  if (layout->order == RABBET_DNNL_ANY)
    return rabbet_dnnl_status(
        dnnl_memory_desc_init_by_tag(out_desc, layout->rank, dims, dtype,
                                     dnnl_format_tag_any),
        "describing a tensor");
  if (layout->order == RABBET_DNNL_STRIDED) {
    memcpy(strides, layout->strides,
           sizeof(layout->strides[0]) * (size_t)layout->rank);
  } else {
    if (!rabbet_dnnl_has_format(layout->format, layout->rank))
      return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                           "oneDNN has no format %s for rank %d",
                           rabbet_format_name(layout->format), layout->rank);
    dnnl_format_tag_t tag = blocked_tag(layout->format, layout->rank);
    if (tag != dnnl_format_tag_undef)
      return rabbet_dnnl_status(dnnl_memory_desc_init_by_tag(
                                    out_desc, layout->rank, dims, dtype, tag),
                                "describing a tensor");
    dense_strides(layout,
                  rabbet_dnnl_channels_last(layout->format, layout->rank),
                  strides);
  }
  return rabbet_dnnl_status(dnnl_memory_desc_init_by_strides(
                                out_desc, layout->rank, dims, dtype, strides),
                            "describing a tensor");
}

bool rabbet_dnnl_layout_equal(const void* a, const void* b) {
  return dnnl_memory_desc_equal(a, b) != 0;
}

// ---- Attributes ------------------------------------------------------------

static const dnnl_alg_kind_t functions[RABBET_DNNL_FUNCTION_COUNT] = {
    [RABBET_DNNL_RELU] = dnnl_eltwise_relu,
    [RABBET_DNNL_TANH] = dnnl_eltwise_tanh,
    [RABBET_DNNL_ELU] = dnnl_eltwise_elu,
    [RABBET_DNNL_SQUARE] = dnnl_eltwise_square,
    [RABBET_DNNL_ABS] = dnnl_eltwise_abs,
    [RABBET_DNNL_SQRT] = dnnl_eltwise_sqrt,
    [RABBET_DNNL_LINEAR] = dnnl_eltwise_linear,
    [RABBET_DNNL_SOFT_RELU] = dnnl_eltwise_soft_relu,
    [RABBET_DNNL_LOGISTIC] = dnnl_eltwise_logistic,
    [RABBET_DNNL_EXP] = dnnl_eltwise_exp,
    [RABBET_DNNL_GELU_TANH] = dnnl_eltwise_gelu_tanh,
    [RABBET_DNNL_GELU_ERF] = dnnl_eltwise_gelu_erf,
    [RABBET_DNNL_SWISH] = dnnl_eltwise_swish,
    [RABBET_DNNL_LOG] = dnnl_eltwise_log,
    [RABBET_DNNL_CLIP] = dnnl_eltwise_clip,
    [RABBET_DNNL_HARDSWISH] = dnnl_eltwise_hardswish,
};
static const dnnl_alg_kind_t binaries[RABBET_DNNL_BINARY_COUNT] = {
    [RABBET_DNNL_ADD] = dnnl_binary_add, [RABBET_DNNL_MUL] = dnnl_binary_mul,
    [RABBET_DNNL_MAX] = dnnl_binary_max, [RABBET_DNNL_MIN] = dnnl_binary_min,
    [RABBET_DNNL_DIV] = dnnl_binary_div, [RABBET_DNNL_SUB] = dnnl_binary_sub,
};

static rabbet_status_t append_post(const rabbet_dnnl_post_t* post,
                                   dnnl_post_ops_t posts) {
  if (post->kind == RABBET_DNNL_POST_SUM)
    return rabbet_dnnl_status(dnnl_post_ops_append_sum(posts, 1.0f),
                              "appending a sum");
  if (post->kind == RABBET_DNNL_POST_FUNCTION)
    return rabbet_dnnl_status(
        dnnl_post_ops_append_eltwise(posts, 1.0f, functions[post->function],
                                     post->alpha, post->beta),
        "appending a function");
  dnnl_memory_desc_t operand;
  RABBET_RETURN_IF_ERROR(rabbet_dnnl_desc(&post->operand, &operand));
  return rabbet_dnnl_status(
      dnnl_post_ops_append_binary(posts, binaries[post->binary], &operand),
      "appending a binary operation");
}

static rabbet_status_t zero_points(const rabbet_dnnl_spec_t* spec,
                                   dnnl_primitive_attr_t attr) {
  const struct {
    int arg;
    int32_t zero;
  } rows[] = {{DNNL_ARG_SRC, spec->src_zero}, {DNNL_ARG_DST, spec->dst_zero}};
  for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i)
    if (rows[i].zero != 0)
      RABBET_RETURN_IF_ERROR(
          rabbet_dnnl_status(dnnl_primitive_attr_set_zero_points(
                                 attr, rows[i].arg, 1, 0, &rows[i].zero),
                             "setting zero points"));
  return rabbet_ok();
}

// The caller owns the scratch memory, so that a run allocates nothing.
rabbet_status_t rabbet_dnnl_attr(const rabbet_dnnl_spec_t* spec,
                                 dnnl_primitive_attr_t* out_attr) {
  *out_attr = NULL;
  dnnl_post_ops_t posts = NULL;
  rabbet_status_t status =
      rabbet_dnnl_status(dnnl_primitive_attr_create(out_attr), "attributes");
  if (rabbet_is_ok(status))
    status = rabbet_dnnl_status(dnnl_primitive_attr_set_scratchpad_mode(
                                    *out_attr, dnnl_scratchpad_mode_user),
                                "attributes");
  if (rabbet_is_ok(status) && spec->scale_count > 0)
    status = rabbet_dnnl_status(
        dnnl_primitive_attr_set_output_scales(
            *out_attr, spec->scale_count,
            spec->scale_count > 1 ? 1 << spec->scale_axis : 0, spec->scales),
        "setting factors");
  if (rabbet_is_ok(status)) status = zero_points(spec, *out_attr);
  if (rabbet_is_ok(status) && spec->post_count > 0)
    status = rabbet_dnnl_status(dnnl_post_ops_create(&posts), "attributes");
  for (int i = 0; rabbet_is_ok(status) && i < spec->post_count; ++i)
    status = append_post(&spec->posts[i], posts);
  if (rabbet_is_ok(status) && posts)
    status = rabbet_dnnl_status(
        dnnl_primitive_attr_set_post_ops(*out_attr, posts), "attributes");
  if (posts) dnnl_post_ops_destroy(posts);
  if (!rabbet_is_ok(status) && *out_attr) {
    dnnl_primitive_attr_destroy(*out_attr);
    *out_attr = NULL;
  }
  return status;
}

// ---- Operation descriptors -------------------------------------------------

rabbet_status_t rabbet_dnnl_spec_descs(const rabbet_dnnl_spec_t* spec,
                                       rabbet_dnnl_descs_t* out_descs) {
  memset(out_descs, 0, sizeof(*out_descs));
  RABBET_RETURN_IF_ERROR(rabbet_dnnl_desc(&spec->src, &out_descs->src));
  RABBET_RETURN_IF_ERROR(rabbet_dnnl_desc(&spec->dst, &out_descs->dst));
  if (spec->weights.rank > 0)
    RABBET_RETURN_IF_ERROR(
        rabbet_dnnl_desc(&spec->weights, &out_descs->weights));
  if (spec->has_bias) {
    RABBET_RETURN_IF_ERROR(rabbet_dnnl_desc(&spec->bias, &out_descs->bias));
    out_descs->bias_or_null = &out_descs->bias;
  }
  return rabbet_ok();
}

// oneDNN's dilation is the number of elements between two taps.
static void describe_gaps(const rabbet_dnnl_spec_t* spec,
                          dnnl_dims_t out_dilation) {
  memset(out_dilation, 0, sizeof(dnnl_dims_t));
  for (int i = 0; i < 3; ++i)
    out_dilation[i] = spec->dilation[i] - 1;
}

static dnnl_status_t describe_convolution(const rabbet_dnnl_spec_t* spec,
                                          const rabbet_dnnl_descs_t* descs,
                                          rabbet_dnnl_op_desc_t* op) {
  dnnl_dims_t dilation;
  describe_gaps(spec, dilation);
  return dnnl_dilated_convolution_forward_desc_init(
      &op->convolution, dnnl_forward_inference,
      spec->kind == RABBET_DNNL_CONVOLUTION ? dnnl_convolution_direct
                                            : dnnl_convolution_winograd,
      &descs->src, &descs->weights, descs->bias_or_null, &descs->dst,
      spec->stride, dilation, spec->before, spec->after);
}

static dnnl_status_t describe_deconvolution(const rabbet_dnnl_spec_t* spec,
                                            const rabbet_dnnl_descs_t* descs,
                                            rabbet_dnnl_op_desc_t* op) {
  dnnl_dims_t dilation;
  describe_gaps(spec, dilation);
  return dnnl_dilated_deconvolution_forward_desc_init(
      &op->deconvolution, dnnl_forward_inference, dnnl_deconvolution_direct,
      &descs->src, &descs->weights, descs->bias_or_null, &descs->dst,
      spec->stride, dilation, spec->before, spec->after);
}

static dnnl_status_t describe_pooling(const rabbet_dnnl_spec_t* spec,
                                      const rabbet_dnnl_descs_t* descs,
                                      rabbet_dnnl_op_desc_t* op) {
  dnnl_alg_kind_t algorithm = spec->kind == RABBET_DNNL_POOLING_MAX
                                  ? dnnl_pooling_max
                              : spec->kind == RABBET_DNNL_POOLING_AVERAGE
                                  ? dnnl_pooling_avg_include_padding
                                  : dnnl_pooling_avg_exclude_padding;
  return dnnl_pooling_forward_desc_init(
      &op->pooling, dnnl_forward_inference, algorithm, &descs->src, &descs->dst,
      spec->stride, spec->window, spec->before, spec->after);
}

static dnnl_status_t describe_layer_norm(const rabbet_dnnl_spec_t* spec,
                                         const rabbet_dnnl_descs_t* descs,
                                         rabbet_dnnl_op_desc_t* op) {
  dnnl_memory_desc_t statistics;
  dnnl_dims_t strides = {0};
  int64_t stride = 1;
  for (int i = spec->src.rank - 2; i >= 0; --i) {
    strides[i] = stride;
    stride *= spec->src.dims[i];
  }
  dnnl_status_t status = dnnl_memory_desc_init_by_strides(
      &statistics, spec->src.rank - 1, spec->src.dims, dnnl_f32, strides);
  if (status != dnnl_success) return status;
  unsigned flags = (spec->has_scale ? (unsigned)dnnl_use_scale : 0u) |
                   (spec->has_shift ? (unsigned)dnnl_use_shift : 0u);
  return dnnl_layer_normalization_forward_desc_init(
      &op->layer_norm, dnnl_forward_inference, &descs->src, &statistics,
      spec->epsilon, flags);
}

dnnl_status_t rabbet_dnnl_op_desc(const rabbet_dnnl_spec_t* spec,
                                  const rabbet_dnnl_descs_t* descs,
                                  rabbet_dnnl_op_desc_t* op) {
  switch (spec->kind) {
    case RABBET_DNNL_CONVOLUTION:
    case RABBET_DNNL_CONVOLUTION_WINOGRAD:
      return describe_convolution(spec, descs, op);
    case RABBET_DNNL_DECONVOLUTION:
      return describe_deconvolution(spec, descs, op);
    case RABBET_DNNL_MATMUL:
      return dnnl_matmul_desc_init(&op->matmul, &descs->src, &descs->weights,
                                   descs->bias_or_null, &descs->dst);
    case RABBET_DNNL_INNER_PRODUCT:
      return dnnl_inner_product_forward_desc_init(
          &op->inner_product, dnnl_forward_inference, &descs->src,
          &descs->weights, descs->bias_or_null, &descs->dst);
    case RABBET_DNNL_POOLING_MAX:
    case RABBET_DNNL_POOLING_AVERAGE:
    case RABBET_DNNL_POOLING_AVERAGE_EXCLUDE:
      return describe_pooling(spec, descs, op);
    case RABBET_DNNL_SOFTMAX:
      return dnnl_softmax_forward_desc_init(
          &op->softmax, dnnl_forward_inference, &descs->src, spec->axis);
    case RABBET_DNNL_LAYER_NORM:
      return describe_layer_norm(spec, descs, op);
    case RABBET_DNNL_REORDER:
    case RABBET_DNNL_CONCAT:
      break;
  }
  return dnnl_invalid_arguments;
}
