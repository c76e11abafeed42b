#include "device/cpu/dnnl_wrap.h"

#include <dnnl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "device/cpu/parallel.h"

struct rabbet_dnnl_t {
  rabbet_allocator_t allocator;
  dnnl_engine_t engine;
};

// Arguments of one primitive that are in use, dense.
typedef struct rabbet_dnnl_bound_t {
  int arg;
  void* pointer;  // what the memory object now points to
  dnnl_memory_desc_t layout;
} rabbet_dnnl_bound_t;

struct rabbet_dnnl_primitive_t {
  rabbet_allocator_t allocator;
  dnnl_primitive_desc_t desc;
  dnnl_primitive_t primitive;
  dnnl_stream_t stream;
  int arg_count;
  rabbet_dnnl_bound_t* bound;  // arg_count, behind this struct
  dnnl_exec_arg_t* exec;       // likewise
};

// ---- Errors ----------------------------------------------------------------

static const struct {
  dnnl_status_t status;
  rabbet_status_code_t code;
  const char* text;
} rabbet_dnnl_statuses[] = {
    {dnnl_out_of_memory, RABBET_STATUS_OUT_OF_MEMORY, "out of memory"},
    {dnnl_invalid_arguments, RABBET_STATUS_INTERNAL, "invalid arguments"},
    {dnnl_unimplemented, RABBET_STATUS_UNSUPPORTED, "unimplemented"},
    {dnnl_iterator_ends, RABBET_STATUS_NOT_FOUND, "no more implementations"},
    {dnnl_runtime_error, RABBET_STATUS_INTERNAL, "runtime error"},
    {dnnl_not_required, RABBET_STATUS_INTERNAL, "not required"},
};

static rabbet_status_t rabbet_dnnl_status(dnnl_status_t status,
                                          const char* what) {
  if (status == dnnl_success) return rabbet_ok();
  for (size_t i = 0;
       i < sizeof(rabbet_dnnl_statuses) / sizeof(rabbet_dnnl_statuses[0]);
       ++i) {
    if (rabbet_dnnl_statuses[i].status != status) continue;
    return RABBET_STATUS(rabbet_dnnl_statuses[i].code, "oneDNN: %s: %s", what,
                         rabbet_dnnl_statuses[i].text);
  }
  return RABBET_STATUS(RABBET_STATUS_INTERNAL, "oneDNN: %s: status %d", what,
                       (int)status);
}

// ---- The library -----------------------------------------------------------

rabbet_status_t rabbet_dnnl_create(rabbet_allocator_t allocator,
                                   rabbet_dnnl_t** out_dnnl) {
  *out_dnnl = NULL;
  rabbet_dnnl_t* dnnl = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(allocator, sizeof(*dnnl), (void**)&dnnl));
  dnnl->allocator = allocator;
  dnnl_status_t result = dnnl_engine_create(&dnnl->engine, dnnl_cpu, 0);
  rabbet_status_t status = rabbet_dnnl_status(result, "creating the engine");
  if (!rabbet_is_ok(status)) {
    rabbet_free(allocator, dnnl);
    return status;
  }
  *out_dnnl = dnnl;
  return rabbet_ok();
}

void rabbet_dnnl_destroy(rabbet_dnnl_t* dnnl) {
  if (!dnnl) return;
  dnnl_engine_destroy(dnnl->engine);
  rabbet_free(dnnl->allocator, dnnl);
}

void rabbet_dnnl_version(char out_text[32]) {
  const dnnl_version_t* version = dnnl_version();
  snprintf(out_text, 32, "%d.%d.%d", version->major, version->minor,
           version->patch);
}

const char* rabbet_dnnl_isa(void) {
  static const struct {
    dnnl_cpu_isa_t isa;
    const char* name;
  } names[] = {
      {dnnl_cpu_isa_avx512_core_amx, "avx512_core_amx"},
      {dnnl_cpu_isa_avx512_core_bf16, "avx512_core_bf16"},
      {dnnl_cpu_isa_avx512_core_vnni, "avx512_core_vnni"},
      {dnnl_cpu_isa_avx512_core, "avx512_core"},
      {dnnl_cpu_isa_avx2_vnni, "avx2_vnni"},
      {dnnl_cpu_isa_avx2, "avx2"},
      {dnnl_cpu_isa_avx, "avx"},
      {dnnl_cpu_isa_sse41, "sse41"},
  };
  dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
    if (names[i].isa == isa) return names[i].name;
  }
  return "generic";
}

bool rabbet_dnnl_has_byte_products(void) {
  static const char* const with[] = {"avx512_core_amx", "avx512_core_bf16",
                                     "avx512_core_vnni", "avx2_vnni"};
  const char* name = rabbet_dnnl_isa();
  for (size_t i = 0; i < sizeof(with) / sizeof(with[0]); ++i)
    if (strcmp(name, with[i]) == 0) return true;
  return false;
}

// ---- Layouts ---------------------------------------------------------------

static dnnl_data_type_t rabbet_dnnl_dtype(rabbet_dtype_t dtype) {
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
static dnnl_format_tag_t rabbet_dnnl_blocked_tag(rabbet_format_t format,
                                                 int rank) {
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

static bool rabbet_dnnl_channels_last(rabbet_format_t format, int rank) {
  return (format == RABBET_FORMAT_HWC && rank >= 3) ||
         (format == RABBET_FORMAT_DHWC && rank == 5);
}

bool rabbet_dnnl_has_format(rabbet_format_t format, int rank) {
  if (rank < 1 || rank > RABBET_DNNL_MAX_RANK) return false;
  return format == RABBET_FORMAT_LINEAR ||
         rabbet_dnnl_channels_last(format, rank) ||
         rabbet_dnnl_blocked_tag(format, rank) != dnnl_format_tag_undef;
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

static void rabbet_dnnl_dense_strides(const rabbet_dnnl_layout_t* layout,
                                      bool channels_last,
                                      dnnl_dims_t out_strides) {
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

static rabbet_status_t rabbet_dnnl_desc(const rabbet_dnnl_layout_t* layout,
                                        dnnl_memory_desc_t* out_desc) {
  memset(out_desc, 0, sizeof(*out_desc));
  dnnl_data_type_t dtype = rabbet_dnnl_dtype(layout->dtype);
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
    dnnl_format_tag_t tag =
        rabbet_dnnl_blocked_tag(layout->format, layout->rank);
    if (tag != dnnl_format_tag_undef)
      return rabbet_dnnl_status(dnnl_memory_desc_init_by_tag(
                                    out_desc, layout->rank, dims, dtype, tag),
                                "describing a tensor");
    rabbet_dnnl_dense_strides(
        layout, rabbet_dnnl_channels_last(layout->format, layout->rank),
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

static const dnnl_alg_kind_t rabbet_dnnl_functions[RABBET_DNNL_FUNCTION_COUNT] =
    {
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
static const dnnl_alg_kind_t rabbet_dnnl_binaries[RABBET_DNNL_BINARY_COUNT] = {
    [RABBET_DNNL_ADD] = dnnl_binary_add, [RABBET_DNNL_MUL] = dnnl_binary_mul,
    [RABBET_DNNL_MAX] = dnnl_binary_max, [RABBET_DNNL_MIN] = dnnl_binary_min,
    [RABBET_DNNL_DIV] = dnnl_binary_div, [RABBET_DNNL_SUB] = dnnl_binary_sub,
};

static rabbet_status_t rabbet_dnnl_append_post(const rabbet_dnnl_post_t* post,
                                               dnnl_post_ops_t posts) {
  if (post->kind == RABBET_DNNL_POST_SUM)
    return rabbet_dnnl_status(dnnl_post_ops_append_sum(posts, 1.0f),
                              "appending a sum");
  if (post->kind == RABBET_DNNL_POST_FUNCTION)
    return rabbet_dnnl_status(
        dnnl_post_ops_append_eltwise(posts, 1.0f,
                                     rabbet_dnnl_functions[post->function],
                                     post->alpha, post->beta),
        "appending a function");
  dnnl_memory_desc_t operand;
  RABBET_RETURN_IF_ERROR(rabbet_dnnl_desc(&post->operand, &operand));
  return rabbet_dnnl_status(
      dnnl_post_ops_append_binary(posts, rabbet_dnnl_binaries[post->binary],
                                  &operand),
      "appending a binary operation");
}

static rabbet_status_t rabbet_dnnl_zero_points(const rabbet_dnnl_spec_t* spec,
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

// Scratch memory is the caller's, so that a run allocates nothing.
static rabbet_status_t rabbet_dnnl_attr(const rabbet_dnnl_spec_t* spec,
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
  if (rabbet_is_ok(status)) status = rabbet_dnnl_zero_points(spec, *out_attr);
  if (rabbet_is_ok(status) && spec->post_count > 0)
    status = rabbet_dnnl_status(dnnl_post_ops_create(&posts), "attributes");
  for (int i = 0; rabbet_is_ok(status) && i < spec->post_count; ++i)
    status = rabbet_dnnl_append_post(&spec->posts[i], posts);
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

typedef union rabbet_dnnl_op_desc_t {
  dnnl_convolution_desc_t convolution;
  dnnl_deconvolution_desc_t deconvolution;
  dnnl_matmul_desc_t matmul;
  dnnl_inner_product_desc_t inner_product;
  dnnl_pooling_desc_t pooling;
  dnnl_softmax_desc_t softmax;
  dnnl_layer_normalization_desc_t layer_norm;
} rabbet_dnnl_op_desc_t;

typedef struct rabbet_dnnl_descs_t {
  dnnl_memory_desc_t src, weights, bias, dst;
  const dnnl_memory_desc_t* bias_or_null;
} rabbet_dnnl_descs_t;

static rabbet_status_t rabbet_dnnl_spec_descs(const rabbet_dnnl_spec_t* spec,
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

static dnnl_status_t rabbet_dnnl_convolution(const rabbet_dnnl_spec_t* spec,
                                             const rabbet_dnnl_descs_t* descs,
                                             rabbet_dnnl_op_desc_t* op) {
  dnnl_dims_t dilation = {0};
  for (int i = 0; i < 3; ++i)
    dilation[i] = spec->dilation[i] - 1;  // oneDNN counts the gaps
  return dnnl_dilated_convolution_forward_desc_init(
      &op->convolution, dnnl_forward_inference,
      spec->kind == RABBET_DNNL_CONVOLUTION ? dnnl_convolution_direct
                                            : dnnl_convolution_winograd,
      &descs->src, &descs->weights, descs->bias_or_null, &descs->dst,
      spec->stride, dilation, spec->before, spec->after);
}

static dnnl_status_t rabbet_dnnl_deconvolution(const rabbet_dnnl_spec_t* spec,
                                               const rabbet_dnnl_descs_t* descs,
                                               rabbet_dnnl_op_desc_t* op) {
  dnnl_dims_t dilation = {0};
  for (int i = 0; i < 3; ++i)
    dilation[i] = spec->dilation[i] - 1;  // oneDNN counts the gaps
  return dnnl_dilated_deconvolution_forward_desc_init(
      &op->deconvolution, dnnl_forward_inference, dnnl_deconvolution_direct,
      &descs->src, &descs->weights, descs->bias_or_null, &descs->dst,
      spec->stride, dilation, spec->before, spec->after);
}

static dnnl_status_t rabbet_dnnl_pooling(const rabbet_dnnl_spec_t* spec,
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

static dnnl_status_t rabbet_dnnl_layer_norm(const rabbet_dnnl_spec_t* spec,
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

static dnnl_status_t rabbet_dnnl_op_desc(const rabbet_dnnl_spec_t* spec,
                                         const rabbet_dnnl_descs_t* descs,
                                         rabbet_dnnl_op_desc_t* op) {
  switch (spec->kind) {
    case RABBET_DNNL_CONVOLUTION:
    case RABBET_DNNL_CONVOLUTION_WINOGRAD:
      return rabbet_dnnl_convolution(spec, descs, op);
    case RABBET_DNNL_DECONVOLUTION:
      return rabbet_dnnl_deconvolution(spec, descs, op);
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
      return rabbet_dnnl_pooling(spec, descs, op);
    case RABBET_DNNL_SOFTMAX:
      return dnnl_softmax_forward_desc_init(
          &op->softmax, dnnl_forward_inference, &descs->src, spec->axis);
    case RABBET_DNNL_LAYER_NORM:
      return rabbet_dnnl_layer_norm(spec, descs, op);
    case RABBET_DNNL_REORDER:
    case RABBET_DNNL_CONCAT:
      break;
  }
  return dnnl_invalid_arguments;
}

// ---- Implementations -------------------------------------------------------

// What was asked for may be impossible for oneDNN: then there is none.
static bool rabbet_dnnl_is_absent(dnnl_status_t status) {
  return status == dnnl_unimplemented || status == dnnl_invalid_arguments ||
         status == dnnl_iterator_ends;
}

static const char* rabbet_dnnl_desc_name(const_dnnl_primitive_desc_t desc) {
  const char* name = NULL;
  if (dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0,
                                (void*)&name) != dnnl_success ||
      !name) {
    return "?";
  }
  return name;
}

// 23 bits of the name, and 1 to keep it from being 0.
static int32_t rabbet_dnnl_name_hash(const char* name) {
  uint32_t hash = 2166136261u;
  for (; *name; ++name)
    hash = (hash ^ (uint8_t)*name) * 16777619u;
  return (int32_t)((hash ^ (hash >> 23)) & 0x7fffff) | (1 << 23);
}

// Whether padding is so wide that a window may see nothing else.
static bool rabbet_dnnl_sees_padding(const rabbet_dnnl_spec_t* spec) {
  for (int i = 0; i < spec->src.rank - 2; ++i) {
    int64_t extent = (spec->window[i] - 1) * spec->dilation[i] + 1;
    if (spec->before[i] >= extent || spec->after[i] >= extent) return true;
  }
  return false;
}

// Implementations of 2.6 that our tests found wanting: they count as absent.
static bool rabbet_dnnl_is_unfit(const rabbet_dnnl_spec_t* spec,
                                 const char* name) {
  // Code for processors that sum pairs of products of 8 bits in 16.
  static const char* const narrow[] = {":avx512_core", ":avx2", ":avx",
                                       ":sse41"};
  bool bytes =
      spec->weights.rank > 0 && spec->weights.dtype == RABBET_DTYPE_INT8;
  const char* isa = strrchr(name, ':');
  for (size_t i = 0; bytes && isa && i < sizeof(narrow) / sizeof(narrow[0]);
       ++i)
    if (strcmp(isa, narrow[i]) == 0) return true;
  // Convolutions by a copied matrix read posts' operands at wrong places.
  if (bytes && spec->kind == RABBET_DNNL_CONVOLUTION && strstr(name, "gemm"))
    return true;
  // Ends in code that was never written where a window sees padding alone and a
  // sum comes after.
  if (spec->kind == RABBET_DNNL_CONVOLUTION && strstr(name, "brgconv") &&
      rabbet_dnnl_sees_padding(spec))
    return true;
  if (spec->kind != RABBET_DNNL_CONVOLUTION || !strstr(name, "gemm:"))
    return false;
  // Reads a binary post's operand at wrong places.
  for (int i = 0; i < spec->post_count; ++i) {
    if (spec->posts[i].kind == RABBET_DNNL_POST_BINARY &&
        (spec->dst.order == RABBET_DNNL_STRIDED ||
         rabbet_dnnl_channels_last(spec->dst.format, spec->dst.rank))) {
      return true;
    }
  }
  return false;
}

// The implementations seen in a walk. oneDNN's iterator gives those again that
// its primitive cache holds, so that what it lists depends on what was made
// before: of each name the first counts.
typedef struct rabbet_dnnl_walk_t {
  int32_t ids[64];
  int count;
} rabbet_dnnl_walk_t;

static rabbet_dnnl_implementation_t rabbet_dnnl_describe(
    const_dnnl_primitive_desc_t desc) {
  const char* name = rabbet_dnnl_desc_name(desc);
  return (rabbet_dnnl_implementation_t){
      .id = rabbet_dnnl_name_hash(name),
      .name = name,
      .is_reference = strncmp(name, "ref", 3) == 0,
  };
}

static bool rabbet_dnnl_is_new(rabbet_dnnl_walk_t* walk, int32_t id) {
  for (int i = 0; i < walk->count; ++i)
    if (walk->ids[i] == id) return false;
  if (walk->count < 64) walk->ids[walk->count++] = id;
  return true;
}

typedef rabbet_status_t (*rabbet_dnnl_desc_visit_fn_t)(
    void* context, dnnl_primitive_desc_t desc,
    const rabbet_dnnl_implementation_t* found, bool* out_taken);

// Reorders and concatenations come without an iterator, one implementation
// each.
static rabbet_status_t rabbet_dnnl_single(rabbet_dnnl_t* dnnl,
                                          const rabbet_dnnl_spec_t* spec,
                                          const_dnnl_primitive_attr_t attr,
                                          dnnl_primitive_desc_t* out_desc) {
  *out_desc = NULL;
  dnnl_memory_desc_t dst, src;
  dnnl_status_t status = dnnl_success;
  RABBET_RETURN_IF_ERROR(rabbet_dnnl_desc(&spec->dst, &dst));
  if (spec->kind == RABBET_DNNL_REORDER) {
    RABBET_RETURN_IF_ERROR(rabbet_dnnl_desc(&spec->src, &src));
    status = dnnl_reorder_primitive_desc_create(out_desc, &src, dnnl->engine,
                                                &dst, dnnl->engine, attr);
  } else {
    dnnl_memory_desc_t sources[RABBET_DNNL_MAX_SOURCES];
    for (int i = 0; i < spec->source_count; ++i)
      RABBET_RETURN_IF_ERROR(rabbet_dnnl_desc(&spec->sources[i], &sources[i]));
    status = dnnl_concat_primitive_desc_create(out_desc, &dst,
                                               spec->source_count, spec->axis,
                                               sources, attr, dnnl->engine);
  }
  if (rabbet_dnnl_is_absent(status)) return rabbet_ok();
  return rabbet_dnnl_status(status, "describing a primitive");
}

static rabbet_status_t rabbet_dnnl_walk_single(
    rabbet_dnnl_t* dnnl, const rabbet_dnnl_spec_t* spec,
    const_dnnl_primitive_attr_t attr, rabbet_dnnl_desc_visit_fn_t visit,
    void* context) {
  dnnl_primitive_desc_t desc = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_dnnl_single(dnnl, spec, attr, &desc));
  if (!desc) return rabbet_ok();
  rabbet_dnnl_implementation_t found = rabbet_dnnl_describe(desc);
  bool taken = false;
  rabbet_status_t status = visit(context, desc, &found, &taken);
  if (!taken) dnnl_primitive_desc_destroy(desc);
  return status;
}

static rabbet_status_t rabbet_dnnl_walk_iterator(
    rabbet_dnnl_t* dnnl, const rabbet_dnnl_spec_t* spec,
    const_dnnl_primitive_attr_t attr, rabbet_dnnl_desc_visit_fn_t visit,
    void* context) {
  rabbet_dnnl_descs_t descs;
  rabbet_dnnl_op_desc_t op;
  RABBET_RETURN_IF_ERROR(rabbet_dnnl_spec_descs(spec, &descs));
  dnnl_status_t result = rabbet_dnnl_op_desc(spec, &descs, &op);
  dnnl_primitive_desc_iterator_t iterator = NULL;
  if (result == dnnl_success)
    result = dnnl_primitive_desc_iterator_create(&iterator, &op, attr,
                                                 dnnl->engine, NULL);
  if (rabbet_dnnl_is_absent(result)) return rabbet_ok();
  rabbet_status_t status =
      rabbet_dnnl_status(result, "listing implementations");
  rabbet_dnnl_walk_t walk = {0};
  bool taken = false;
  while (rabbet_is_ok(status) && result == dnnl_success && !taken) {
    dnnl_primitive_desc_t desc = dnnl_primitive_desc_iterator_fetch(iterator);
    if (!desc) {
      status = rabbet_dnnl_status(dnnl_out_of_memory, "listing");
      break;
    }
    rabbet_dnnl_implementation_t found = rabbet_dnnl_describe(desc);
    if (!rabbet_dnnl_is_unfit(spec, found.name) &&
        rabbet_dnnl_is_new(&walk, found.id))
      status = visit(context, desc, &found, &taken);
    if (!taken) dnnl_primitive_desc_destroy(desc);
    if (!taken) result = dnnl_primitive_desc_iterator_next(iterator);
  }
  if (iterator) dnnl_primitive_desc_iterator_destroy(iterator);
  return status;
}

static rabbet_status_t rabbet_dnnl_walk(rabbet_dnnl_t* dnnl,
                                        const rabbet_dnnl_spec_t* spec,
                                        rabbet_dnnl_desc_visit_fn_t visit,
                                        void* context) {
  dnnl_primitive_attr_t attr = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_dnnl_attr(spec, &attr));
  bool single =
      spec->kind == RABBET_DNNL_REORDER || spec->kind == RABBET_DNNL_CONCAT;
  rabbet_status_t status =
      (single ? rabbet_dnnl_walk_single : rabbet_dnnl_walk_iterator)(
          dnnl, spec, attr, visit, context);
  dnnl_primitive_attr_destroy(attr);
  return status;
}

typedef struct rabbet_dnnl_enumerate_t {
  rabbet_status_t (*visit)(void* context,
                           const rabbet_dnnl_implementation_t* found);
  void* context;
} rabbet_dnnl_enumerate_t;

static rabbet_status_t rabbet_dnnl_enumerate_one(
    void* context, dnnl_primitive_desc_t desc,
    const rabbet_dnnl_implementation_t* found, bool* out_taken) {
  (void)desc;
  *out_taken = false;
  rabbet_dnnl_enumerate_t* enumerate = context;
  return enumerate->visit(enumerate->context, found);
}

// With its cache oneDNN lists an implementation that was made before as the
// first, so that lists would depend on history. The cache is the process's: the
// first list that begins empties it, the last that ends gives it its size back.
static struct {
  pthread_mutex_t lock;
  int lists;
  int capacity;  // before the first, in primitives
} rabbet_dnnl_cache = {.lock = PTHREAD_MUTEX_INITIALIZER};

static rabbet_status_t rabbet_dnnl_cache_suspend(void) {
  dnnl_status_t result = dnnl_success;
  pthread_mutex_lock(&rabbet_dnnl_cache.lock);
  if (rabbet_dnnl_cache.lists == 0) {
    result = dnnl_get_primitive_cache_capacity(&rabbet_dnnl_cache.capacity);
    if (result == dnnl_success) result = dnnl_set_primitive_cache_capacity(0);
  }
  if (result == dnnl_success) ++rabbet_dnnl_cache.lists;
  pthread_mutex_unlock(&rabbet_dnnl_cache.lock);
  return rabbet_dnnl_status(result, "emptying the cache");
}

static rabbet_status_t rabbet_dnnl_cache_resume(void) {
  dnnl_status_t result = dnnl_success;
  pthread_mutex_lock(&rabbet_dnnl_cache.lock);
  if (--rabbet_dnnl_cache.lists == 0)
    result = dnnl_set_primitive_cache_capacity(rabbet_dnnl_cache.capacity);
  pthread_mutex_unlock(&rabbet_dnnl_cache.lock);
  return rabbet_dnnl_status(result, "restoring the cache");
}

rabbet_status_t rabbet_dnnl_enumerate(
    rabbet_dnnl_t* dnnl, const rabbet_dnnl_spec_t* spec, int threads,
    rabbet_status_t (*visit)(void* context,
                             const rabbet_dnnl_implementation_t* found),
    void* context) {
  rabbet_dnnl_enumerate_t enumerate = {visit, context};
  RABBET_RETURN_IF_ERROR(rabbet_dnnl_cache_suspend());
  int before = rabbet_cpu_set_threads(threads);
  rabbet_status_t status =
      rabbet_dnnl_walk(dnnl, spec, rabbet_dnnl_enumerate_one, &enumerate);
  rabbet_cpu_set_threads(before);
  return rabbet_status_join(status, rabbet_dnnl_cache_resume());
}

// ---- Primitives ------------------------------------------------------------

// oneDNN's argument number and layout query for each of ours.
static int rabbet_dnnl_arg_number(int arg) {
  static const int numbers[] = {
      [RABBET_DNNL_SRC] = DNNL_ARG_SRC,
      [RABBET_DNNL_WEIGHTS] = DNNL_ARG_WEIGHTS,
      [RABBET_DNNL_BIAS] = DNNL_ARG_BIAS,
      [RABBET_DNNL_DST] = DNNL_ARG_DST,
      [RABBET_DNNL_SCALE] = DNNL_ARG_SCALE,
      [RABBET_DNNL_SHIFT] = DNNL_ARG_SHIFT,
      [RABBET_DNNL_SCRATCHPAD] = DNNL_ARG_SCRATCHPAD,
  };
  if (arg >= RABBET_DNNL_SOURCE_FIRST)
    return DNNL_ARG_MULTIPLE_SRC + (arg - RABBET_DNNL_SOURCE_FIRST);
  if (arg >= RABBET_DNNL_POST_FIRST)
    return DNNL_ARG_ATTR_MULTIPLE_POST_OP(arg - RABBET_DNNL_POST_FIRST) |
           DNNL_ARG_SRC_1;
  return numbers[arg];
}

static void rabbet_dnnl_add_arg(rabbet_dnnl_primitive_t* primitive, int arg) {
  const dnnl_memory_desc_t* layout = dnnl_primitive_desc_query_md(
      primitive->desc, dnnl_query_exec_arg_md, rabbet_dnnl_arg_number(arg));
  if (!layout || dnnl_memory_desc_get_size(layout) == 0) return;
  primitive->bound[primitive->arg_count++] =
      (rabbet_dnnl_bound_t){.arg = arg, .layout = *layout};
}

static void rabbet_dnnl_add_args(const rabbet_dnnl_spec_t* spec,
                                 rabbet_dnnl_primitive_t* primitive) {
  if (spec->kind == RABBET_DNNL_CONCAT) {
    for (int i = 0; i < spec->source_count; ++i)
      rabbet_dnnl_add_arg(primitive, RABBET_DNNL_SOURCE(i));
  } else {
    rabbet_dnnl_add_arg(primitive, RABBET_DNNL_SRC);
  }
  if (spec->weights.rank > 0)
    rabbet_dnnl_add_arg(primitive, RABBET_DNNL_WEIGHTS);
  if (spec->has_bias) rabbet_dnnl_add_arg(primitive, RABBET_DNNL_BIAS);
  if (spec->has_scale) rabbet_dnnl_add_arg(primitive, RABBET_DNNL_SCALE);
  if (spec->has_shift) rabbet_dnnl_add_arg(primitive, RABBET_DNNL_SHIFT);
  rabbet_dnnl_add_arg(primitive, RABBET_DNNL_DST);
  rabbet_dnnl_add_arg(primitive, RABBET_DNNL_SCRATCHPAD);
  for (int i = 0; i < spec->post_count; ++i) {
    if (spec->posts[i].kind == RABBET_DNNL_POST_BINARY)
      rabbet_dnnl_add_arg(primitive, RABBET_DNNL_POST(i));
  }
}

static rabbet_status_t rabbet_dnnl_make_memories(
    rabbet_dnnl_t* dnnl, rabbet_dnnl_primitive_t* primitive) {
  for (int i = 0; i < primitive->arg_count; ++i) {
    primitive->exec[i].arg = rabbet_dnnl_arg_number(primitive->bound[i].arg);
    RABBET_RETURN_IF_ERROR(
        rabbet_dnnl_status(dnnl_memory_create(&primitive->exec[i].memory,
                                              &primitive->bound[i].layout,
                                              dnnl->engine, DNNL_MEMORY_NONE),
                           "creating a memory object"));
  }
  return rabbet_ok();
}

// Takes the descriptor in every case.
static rabbet_status_t rabbet_dnnl_primitive_make(
    rabbet_dnnl_t* dnnl, const rabbet_dnnl_spec_t* spec,
    dnnl_primitive_desc_t take_desc, rabbet_allocator_t allocator,
    rabbet_dnnl_primitive_t** out_primitive) {
  rabbet_dnnl_primitive_t* primitive = NULL;
  size_t room = 7 + RABBET_DNNL_MAX_POSTS + (size_t)spec->source_count;
  rabbet_status_t status = rabbet_allocate(
      allocator,
      sizeof(*primitive) +
          room * (sizeof(rabbet_dnnl_bound_t) + sizeof(dnnl_exec_arg_t)),
      (void**)&primitive);
  if (!rabbet_is_ok(status)) {
    dnnl_primitive_desc_destroy(take_desc);
    return status;
  }
  primitive->allocator = allocator;
  primitive->desc = take_desc;
  primitive->bound = (rabbet_dnnl_bound_t*)(primitive + 1);
  primitive->exec = (dnnl_exec_arg_t*)(primitive->bound + room);
  status = rabbet_dnnl_status(
      dnnl_primitive_create(&primitive->primitive, take_desc),
      "creating a primitive");
  if (rabbet_is_ok(status))
    status =
        rabbet_dnnl_status(dnnl_stream_create(&primitive->stream, dnnl->engine,
                                              dnnl_stream_default_flags),
                           "creating a stream");
  if (rabbet_is_ok(status)) {
    rabbet_dnnl_add_args(spec, primitive);
    status = rabbet_dnnl_make_memories(dnnl, primitive);
  }
  if (rabbet_is_ok(status)) {
    *out_primitive = primitive;
  } else {
    rabbet_dnnl_primitive_destroy(primitive);
  }
  return status;
}

typedef struct rabbet_dnnl_choice_t {
  int32_t id;
  bool any;  // some implementation was seen
  dnnl_primitive_desc_t desc;
} rabbet_dnnl_choice_t;

static rabbet_status_t rabbet_dnnl_choose(
    void* context, dnnl_primitive_desc_t desc,
    const rabbet_dnnl_implementation_t* found, bool* out_taken) {
  rabbet_dnnl_choice_t* choice = context;
  choice->any = true;
  *out_taken = choice->id == 0 || choice->id == found->id;
  if (*out_taken) choice->desc = desc;
  return rabbet_ok();
}

rabbet_status_t rabbet_dnnl_primitive_create(
    rabbet_dnnl_t* dnnl, const rabbet_dnnl_spec_t* spec, int32_t implementation,
    int threads, rabbet_allocator_t allocator,
    rabbet_dnnl_primitive_t** out_primitive) {
  *out_primitive = NULL;
  int before = rabbet_cpu_set_threads(threads);
  rabbet_dnnl_choice_t choice = {.id = implementation};
  rabbet_status_t status =
      rabbet_dnnl_walk(dnnl, spec, rabbet_dnnl_choose, &choice);
  if (rabbet_is_ok(status) && choice.desc)
    status = rabbet_dnnl_primitive_make(dnnl, spec, choice.desc, allocator,
                                        out_primitive);
  else if (rabbet_is_ok(status))
    status = RABBET_STATUS(
        choice.any ? RABBET_STATUS_NOT_FOUND : RABBET_STATUS_UNSUPPORTED,
        "oneDNN has no implementation %s for these shapes and layouts",
        choice.any ? "of that number" : "at all");
  rabbet_cpu_set_threads(before);
  return status;
}

static const rabbet_dnnl_bound_t* rabbet_dnnl_find_arg(
    const rabbet_dnnl_primitive_t* primitive, int arg) {
  for (int i = 0; i < primitive->arg_count; ++i) {
    if (primitive->bound[i].arg == arg) return &primitive->bound[i];
  }
  return NULL;
}

rabbet_status_t rabbet_dnnl_pack_create(
    rabbet_dnnl_t* dnnl, const rabbet_dnnl_layout_t* layout,
    const rabbet_dnnl_primitive_t* primitive, int arg, int threads,
    rabbet_allocator_t allocator, rabbet_dnnl_primitive_t** out_pack) {
  *out_pack = NULL;
  const rabbet_dnnl_bound_t* target = rabbet_dnnl_find_arg(primitive, arg);
  if (!target)
    return RABBET_STATUS(RABBET_STATUS_INTERNAL,
                         "primitive %s has no argument %d",
                         rabbet_dnnl_primitive_name(primitive), arg);
  dnnl_memory_desc_t source;
  RABBET_RETURN_IF_ERROR(rabbet_dnnl_desc(layout, &source));
  const rabbet_dnnl_spec_t spec = {.kind = RABBET_DNNL_REORDER};
  dnnl_primitive_attr_t attr = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_dnnl_attr(&spec, &attr));
  int before = rabbet_cpu_set_threads(threads);
  dnnl_primitive_desc_t desc = NULL;
  rabbet_status_t status = rabbet_dnnl_status(
      dnnl_reorder_primitive_desc_create(&desc, &source, dnnl->engine,
                                         &target->layout, dnnl->engine, attr),
      "packing weights");
  if (rabbet_is_ok(status))
    status = rabbet_dnnl_primitive_make(dnnl, &spec, desc, allocator, out_pack);
  rabbet_cpu_set_threads(before);
  dnnl_primitive_attr_destroy(attr);
  return status;
}

void rabbet_dnnl_primitive_destroy(rabbet_dnnl_primitive_t* primitive) {
  if (!primitive) return;
  for (int i = 0; i < primitive->arg_count; ++i)
    dnnl_memory_destroy(primitive->exec[i].memory);
  if (primitive->stream) dnnl_stream_destroy(primitive->stream);
  if (primitive->primitive) dnnl_primitive_destroy(primitive->primitive);
  dnnl_primitive_desc_destroy(primitive->desc);
  rabbet_free(primitive->allocator, primitive);
}

const char* rabbet_dnnl_primitive_name(const rabbet_dnnl_primitive_t* p) {
  return rabbet_dnnl_desc_name(p->desc);
}

size_t rabbet_dnnl_primitive_bytes(const rabbet_dnnl_primitive_t* primitive,
                                   int arg) {
  const rabbet_dnnl_bound_t* bound = rabbet_dnnl_find_arg(primitive, arg);
  return bound ? dnnl_memory_desc_get_size(&bound->layout) : 0;
}

bool rabbet_dnnl_primitive_takes(const rabbet_dnnl_primitive_t* primitive,
                                 int arg, const rabbet_dnnl_layout_t* layout) {
  const rabbet_dnnl_bound_t* bound = rabbet_dnnl_find_arg(primitive, arg);
  dnnl_memory_desc_t desc;
  rabbet_status_t status = rabbet_dnnl_desc(layout, &desc);
  bool equal = rabbet_is_ok(status) && bound &&
               dnnl_memory_desc_equal(&desc, &bound->layout);
  rabbet_status_ignore(status);
  return equal;
}

const void* rabbet_dnnl_primitive_layout(
    const rabbet_dnnl_primitive_t* primitive, int arg, size_t* out_size) {
  const rabbet_dnnl_bound_t* bound = rabbet_dnnl_find_arg(primitive, arg);
  *out_size = bound ? sizeof(bound->layout) : 0;
  return bound ? &bound->layout : NULL;
}

rabbet_status_t rabbet_dnnl_primitive_execute(
    rabbet_dnnl_primitive_t* primitive, void* const* pointers) {
  for (int i = 0; i < primitive->arg_count; ++i) {
    rabbet_dnnl_bound_t* bound = &primitive->bound[i];
    void* pointer = pointers[bound->arg];
    if (bound->pointer == pointer) continue;
    dnnl_status_t result =
        dnnl_memory_set_data_handle(primitive->exec[i].memory, pointer);
    if (result != dnnl_success)
      return rabbet_dnnl_status(result, "setting an address");
    bound->pointer = pointer;
  }
  return rabbet_dnnl_status(
      dnnl_primitive_execute(primitive->primitive, primitive->stream,
                             primitive->arg_count, primitive->exec),
      rabbet_dnnl_primitive_name(primitive));
}
