// Matrix products with an element-wise epilogue, by oneDNN.
//
// A product can be oneDNN's matmul, inner product or 1x1 convolution (rows are
// pixels). Each is a method of its own, since the fastest one depends on
// shapes. Strides express transposition and broadcasting without copies;
// constant matrices are packed.
#include <string.h>

#include "device/cpu/dnnl/weighted.h"
#include "ops/products/matrix_multiply.h"

enum {
  METHOD_MATMUL = 0,
  METHOD_INNER_PRODUCT = 1,
  METHOD_CONVOLUTION = 2,
};

typedef struct matmul_case_t {
  const rabbet_group_t* group;
  const rabbet_dims_t* dims;
  rabbet_dtype_t compute;
  int method;
  const rabbet_quantized_t* quantized;  // `group` is quantized->plain; or NULL
  float* scratch;                       // see rabbet_dnnl_fused_quantize
} matmul_case_t;

// One axis of the result with the strides of everything that is indexed by it.
typedef struct rabbet_matmul_axis_t {
  int64_t size;
  int64_t a, b, y;
  int64_t operands[RABBET_DNNL_MAX_POSTS];
} rabbet_matmul_axis_t;

// Batch axes, then rows. Columns are separate.
typedef struct matmul_axes_t {
  rabbet_matmul_axis_t axes[RABBET_MAX_RANK];
  int count;
  rabbet_matmul_axis_t columns;
  int64_t k, a_column, b_row;
  int operand_count;
} matmul_axes_t;

// ---- Axes ------------------------------------------------------------------

static int64_t matmul_op(const rabbet_group_node_t* node, const char* name) {
  return rabbet_attr_int(node->attrs, node->op->attr_count, name,
                         RABBET_MATRIX_NONE);
}

// The strides of an operand over the result's axes; axes that a vector lacks
// have stride 0.
static void matmul_operand_strides(const matmul_case_t* c, int32_t operand,
                                   int index, matmul_axes_t* axes) {
  const rabbet_group_node_t* node = &c->group->nodes[0];
  const rabbet_dims_t* dims = &c->dims[operand];
  int axis = dims->rank - 1;
  int64_t stride = 1;
  axes->columns.operands[index] = 0;
  if (matmul_op(node, "op1") != RABBET_MATRIX_VECTOR) {
    axes->columns.operands[index] = dims->d[axis] == 1 ? 0 : stride;
    stride *= dims->d[axis--];
  }
  for (int i = axes->count - 1; i >= 0; --i) {
    axes->axes[i].operands[index] = 0;
    if (i == axes->count - 1 &&
        matmul_op(node, "op0") == RABBET_MATRIX_VECTOR) {
      continue;
    }
    axes->axes[i].operands[index] = dims->d[axis] == 1 ? 0 : stride;
    stride *= dims->d[axis--];
  }
}

static bool matmul_follows(int64_t outer, int64_t inner, int64_t size) {
  return outer == inner * size;
}

// Whether axis i can be merged with axis i + 1, as its outer part. Rows have
// stride 0 in b, so only axes along which b is broadcast can be merged with
// them.
static bool matmul_can_join(const matmul_axes_t* axes, int i) {
  const rabbet_matmul_axis_t* outer = &axes->axes[i];
  const rabbet_matmul_axis_t* inner = &axes->axes[i + 1];
  bool joins = matmul_follows(outer->a, inner->a, inner->size) &&
               matmul_follows(outer->b, inner->b, inner->size) &&
               matmul_follows(outer->y, inner->y, inner->size);
  for (int p = 0; joins && p < axes->operand_count; ++p)
    joins = matmul_follows(outer->operands[p], inner->operands[p], inner->size);
  return joins;
}

static void matmul_drop(matmul_axes_t* axes, int i) {
  --axes->count;
  memmove(&axes->axes[i], &axes->axes[i + 1],
          sizeof(axes->axes[0]) * (size_t)(axes->count - i));
}

// Merges axes. An axis of one element can be merged with any other.
static void matmul_join(matmul_axes_t* axes) {
  for (int i = axes->count - 2; i >= 0; --i) {
    rabbet_matmul_axis_t* outer = &axes->axes[i];
    rabbet_matmul_axis_t* inner = &axes->axes[i + 1];
    bool is_row = i + 1 == axes->count - 1;
    if (outer->size == 1) {
      matmul_drop(axes, i);
    } else if (inner->size == 1 && (!is_row || outer->b == 0)) {
      matmul_drop(axes, i + 1);
    } else if (matmul_can_join(axes, i)) {
      inner->size *= outer->size;
      matmul_drop(axes, i);
    }
  }
}

static rabbet_status_t matmul_resolve(const matmul_case_t* c,
                                      const rabbet_epilogue_t* e,
                                      matmul_axes_t* axes) {
  const rabbet_group_node_t* node = &c->group->nodes[0];
  rabbet_matrix_product_t p;
  memset(axes, 0, sizeof(*axes));
  RABBET_RETURN_IF_ERROR(rabbet_matrix_product_resolve(
      (rabbet_matrix_op_t)matmul_op(node, "op0"), &c->dims[node->inputs[0]],
      (rabbet_matrix_op_t)matmul_op(node, "op1"), &c->dims[node->inputs[1]],
      &p));
  int64_t y = p.n;
  axes->axes[p.batch.rank] =
      (rabbet_matmul_axis_t){.size = p.m, .a = p.a_row, .y = y};
  y *= p.m;
  for (int i = p.batch.rank - 1; i >= 0; --i) {
    axes->axes[i] = (rabbet_matmul_axis_t){
        .size = p.batch.d[i], .a = p.a_batch[i], .b = p.b_batch[i], .y = y};
    y *= p.batch.d[i];
  }
  axes->count = p.batch.rank + 1;
  axes->columns = (rabbet_matmul_axis_t){.size = p.n, .b = p.b_column, .y = 1};
  axes->k = p.k;
  axes->a_column = p.a_column;
  axes->b_row = p.b_row;
  axes->operand_count = e->count;
  for (int i = 0; i < e->count; ++i) {
    if (e->items[i].is_binary)
      matmul_operand_strides(c, e->items[i].operand, i, axes);
  }
  matmul_join(axes);
  return rabbet_ok();
}

// ---- Layouts ---------------------------------------------------------------

static void matmul_push(rabbet_dnnl_layout_t* layout, int64_t size,
                        int64_t stride) {
  layout->dims[layout->rank] = size;
  layout->strides[layout->rank++] = stride;
}

// A stride of 0 becomes an axis of one element, whose stride does not matter
// but must not be 0.
static void matmul_push_broadcast(rabbet_dnnl_layout_t* layout, int64_t size,
                                  int64_t stride, int64_t dense) {
  if (stride == 0)
    matmul_push(layout, 1, dense);
  else
    matmul_push(layout, size, stride);
}

// The stride of an axis next to one of `size` elements with stride `step`. An
// axis of one element may have any stride, but the library expects one that
// leaves room for the other axis.
static int64_t matmul_stride(int64_t own_size, int64_t own, int64_t size,
                             int64_t step) {
  bool is_tight = own_size == 1 && own > 1 && own < size * step;
  return is_tight ? size * step : own;
}

static void matmul_push_matrix(rabbet_dnnl_layout_t* layout,
                               const int64_t sizes[2],
                               const int64_t strides[2]) {
  for (int i = 0; i < 2; ++i)
    matmul_push(
        layout, sizes[i],
        matmul_stride(sizes[i], strides[i], sizes[1 - i], strides[1 - i]));
}

// Layouts for oneDNN's matmul: [batch..., rows, columns].
static void matmul_as_matmul(const matmul_axes_t* axes,
                             const rabbet_epilogue_t* e,
                             rabbet_dnnl_fused_t* fused) {
  rabbet_dnnl_layout_t *a = &fused->spec.src, *b = &fused->weights_layout;
  rabbet_dnnl_layout_t *y = &fused->spec.dst, *bias = &fused->spec.bias;
  const rabbet_matmul_axis_t* rows = &axes->axes[axes->count - 1];
  const rabbet_matmul_axis_t* columns = &axes->columns;
  int64_t a_dense = rows->size * axes->k, b_dense = axes->k * columns->size;
  for (int i = 0; i < axes->count - 1; ++i) {
    const rabbet_matmul_axis_t* axis = &axes->axes[i];
    matmul_push_broadcast(a, axis->size, axis->a, a_dense);
    matmul_push_broadcast(b, axis->size, axis->b, b_dense);
    matmul_push(y, axis->size, axis->y);
    matmul_push(bias, 1, columns->size);
  }
  matmul_push_matrix(a, (const int64_t[]){rows->size, axes->k},
                     (const int64_t[]){rows->a, axes->a_column});
  matmul_push_matrix(b, (const int64_t[]){axes->k, columns->size},
                     (const int64_t[]){axes->b_row, columns->b});
  matmul_push(y, rows->size, rows->y);
  matmul_push(y, columns->size, 1);
  matmul_push(bias, 1, columns->size);
  matmul_push(bias, columns->size, 1);
  for (int p = 0; p < e->count; ++p) {
    rabbet_dnnl_layout_t* operand = &fused->operands[p];
    if (!e->items[p].is_binary) continue;
    for (int i = 0; i < axes->count; ++i)
      matmul_push_broadcast(operand, axes->axes[i].size,
                            axes->axes[i].operands[p], axes->axes[i].y);
    matmul_push_broadcast(operand, columns->size, columns->operands[p], 1);
  }
}

// Rows as the batch of an inner product: [rows, k] x [columns, k].
static void matmul_as_inner_product(const matmul_axes_t* axes,
                                    const rabbet_epilogue_t* e,
                                    rabbet_dnnl_fused_t* fused) {
  const rabbet_matmul_axis_t *rows = &axes->axes[0], *columns = &axes->columns;
  matmul_push(&fused->spec.src, rows->size, rows->a);
  matmul_push(&fused->spec.src, axes->k, 1);
  matmul_push(&fused->weights_layout, columns->size, columns->b);
  matmul_push(&fused->weights_layout, axes->k, axes->b_row);
  matmul_push(&fused->spec.dst, rows->size, rows->y);
  matmul_push(&fused->spec.dst, columns->size, 1);
  matmul_push(&fused->spec.bias, columns->size, 1);
  for (int p = 0; p < e->count; ++p) {
    if (!e->items[p].is_binary) continue;
    matmul_push_broadcast(&fused->operands[p], rows->size, rows->operands[p],
                          rows->y);
    matmul_push_broadcast(&fused->operands[p], columns->size,
                          columns->operands[p], 1);
  }
}

// Rows as the pixels of one image, channels last.
static void matmul_push_image(rabbet_dnnl_layout_t* layout, int64_t channels,
                              int64_t pixels) {
  matmul_push(layout, 1, channels * pixels);
  matmul_push(layout, channels, 1);
  matmul_push(layout, 1, channels * pixels);
  matmul_push(layout, pixels, channels);
}

static void matmul_as_convolution(const matmul_axes_t* axes,
                                  const rabbet_epilogue_t* e,
                                  rabbet_dnnl_fused_t* fused) {
  const rabbet_matmul_axis_t *rows = &axes->axes[0], *columns = &axes->columns;
  rabbet_dnnl_spec_t* spec = &fused->spec;
  matmul_push_image(&spec->src, axes->k, rows->size);
  matmul_push_image(&spec->dst, columns->size, rows->size);
  matmul_push(&fused->weights_layout, columns->size, columns->b);
  matmul_push(&fused->weights_layout, axes->k, axes->b_row);
  matmul_push(&fused->weights_layout, 1, 1);
  matmul_push(&fused->weights_layout, 1, 1);
  matmul_push(&spec->bias, columns->size, 1);
  for (int i = 0; i < 2; ++i)
    spec->stride[i] = spec->dilation[i] = spec->window[i] = 1;
  for (int p = 0; p < e->count; ++p) {
    if (!e->items[p].is_binary) continue;
    matmul_push_image(&fused->operands[p],
                      columns->operands[p] ? columns->size : 1,
                      rows->operands[p] ? rows->size : 1);
  }
}

// Whether rows are one dense matrix, as inner products and convolutions need.
static bool matmul_is_plain(const matmul_axes_t* axes) {
  return axes->count == 1 && axes->a_column == 1 && axes->axes[0].a == axes->k;
}

// ---- The group -------------------------------------------------------------

static bool rabbet_matmul_matches(const rabbet_group_t* group) {
  if (group->node_count == 0 ||
      !rabbet_op_is(group->nodes[0].op, RABBET_OP_MATRIX_MULTIPLY)) {
    return false;
  }
  const rabbet_group_node_t* node = &group->nodes[0];
  return rabbet_dtype_is_float(group->values[node->inputs[0]].dtype) &&
         rabbet_group_input_of(group, node->inputs[0]) >= 0 &&
         rabbet_group_input_of(group, node->inputs[1]) >= 0;
}

static const rabbet_dnnl_kind_t matmul_kinds[] = {
    [METHOD_MATMUL] = RABBET_DNNL_MATMUL,
    [METHOD_INNER_PRODUCT] = RABBET_DNNL_INNER_PRODUCT,
    [METHOD_CONVOLUTION] = RABBET_DNNL_CONVOLUTION,
};

static void matmul_start(const matmul_case_t* c, rabbet_dnnl_fused_t* fused) {
  rabbet_dnnl_layout_t empty = {.dtype = c->compute,
                                .order = RABBET_DNNL_STRIDED};
  fused->spec.kind = matmul_kinds[c->method];
  fused->spec.src = fused->spec.dst = fused->spec.bias = empty;
  fused->weights_layout = empty;
  fused->spec.bias.dtype = RABBET_DTYPE_FLOAT;
  fused->spec.has_bias = fused->bias >= 0;
  for (int i = 0; i < RABBET_DNNL_MAX_POSTS; ++i)
    fused->operands[i] = empty;
}

// *out_fits is false if oneDNN cannot fuse the epilogue, or if the method does
// not apply.
static rabbet_status_t matmul_describe(const matmul_case_t* c,
                                       rabbet_dnnl_fused_t* fused,
                                       bool* out_fits) {
  const rabbet_group_node_t* node = &c->group->nodes[0];
  int32_t y = node->outputs[0];
  memset(fused, 0, sizeof(*fused));
  *out_fits = rabbet_epilogue_parse(c->group, c->dims, 1, y, &fused->epilogue);
  if (!*out_fits) return rabbet_ok();
  fused->src = node->inputs[0];
  fused->weights = node->inputs[1];
  fused->bias = -1;
  rabbet_dims_t per_column = c->dims[y];
  for (int i = 0; i < per_column.rank - 1; ++i)
    per_column.d[i] = 1;
  if (matmul_op(node, "op1") != RABBET_MATRIX_VECTOR)
    rabbet_dnnl_fused_take_bias(fused, c->group, c->dims, &per_column);
  rabbet_dnnl_fused_find_sum(fused, c->group, c->dims);
  matmul_axes_t axes;
  RABBET_RETURN_IF_ERROR(matmul_resolve(c, &fused->epilogue, &axes));
  *out_fits = c->method == METHOD_MATMUL || matmul_is_plain(&axes);
  if (!*out_fits) return rabbet_ok();
  matmul_start(c, fused);
  if (c->method == METHOD_MATMUL)
    matmul_as_matmul(&axes, &fused->epilogue, fused);
  else if (c->method == METHOD_INNER_PRODUCT)
    matmul_as_inner_product(&axes, &fused->epilogue, fused);
  else
    matmul_as_convolution(&axes, &fused->epilogue, fused);
  fused->spec.weights = fused->weights_layout;
  // Weights that change from run to run are not packed.
  if (c->group->values[fused->weights].constant)
    fused->spec.weights.order = RABBET_DNNL_ANY;
  if (c->quantized)
    rabbet_dnnl_fused_quantize(fused, c->quantized, c->scratch, out_fits);
  return rabbet_ok();
}

// ---- Proposing -------------------------------------------------------------

static rabbet_status_t matmul_offer_one(
    const rabbet_dnnl_weighted_offer_t* offer, rabbet_dtype_t dtype,
    int method) {
  static const char* const prefixes[] = {
      [METHOD_MATMUL] = "matmul/",
      [METHOD_INNER_PRODUCT] = "inner/",
      [METHOD_CONVOLUTION] = "conv1x1/",
  };
  const rabbet_group_t* group = offer->propose->group;
  const matmul_case_t c = {
      .group = offer->quantized ? &offer->quantized->plain : group,
      .dims = offer->dims,
      .compute = rabbet_dnnl_compute_type(dtype),
      .method = method,
      .quantized = offer->quantized,
      .scratch = offer->scratch,
  };
  rabbet_dnnl_fused_t fused;
  bool fits = false;
  RABBET_RETURN_IF_ERROR(matmul_describe(&c, &fused, &fits));
  if (!fits) return rabbet_ok();
  rabbet_dnnl_fused_tensors(
      &fused, group, c.dims, offer->quantized ? RABBET_DTYPE_NONE : dtype,
      RABBET_FORMAT_LINEAR, RABBET_FORMAT_LINEAR, offer->tensors);
  int32_t tactic = method << RABBET_DNNL_TACTIC_METHOD_SHIFT;
  if (c.compute == RABBET_DTYPE_FLOAT) tactic |= RABBET_DNNL_TACTIC_FLOAT;
  return rabbet_dnnl_fused_propose(&fused,
                                   &(rabbet_dnnl_fused_offer_t){
                                       .kernel = &rabbet_cpu_dnnl_matmul,
                                       .propose = offer->propose,
                                       .sink = offer->sink,
                                       .tensors = offer->tensors,
                                       .tactic = tactic,
                                       .prefix = prefixes[method],
                                   });
}

static rabbet_status_t matmul_offer_methods(
    const rabbet_dnnl_weighted_offer_t* offer, rabbet_dtype_t dtype) {
  const rabbet_group_t* group =
      offer->quantized ? &offer->quantized->plain : offer->propose->group;
  RABBET_RETURN_IF_ERROR(matmul_offer_one(offer, dtype, METHOD_MATMUL));
  // The other methods pay only if the matrix can be packed.
  if (!group->values[group->nodes[0].inputs[1]].constant ||
      offer->propose->optimization_level < 2) {
    return rabbet_ok();
  }
  RABBET_RETURN_IF_ERROR(matmul_offer_one(offer, dtype, METHOD_INNER_PRODUCT));
  return matmul_offer_one(offer, dtype, METHOD_CONVOLUTION);
}

// ---- Compiling -------------------------------------------------------------

// The tactic's method may not apply to some shapes of a profile; matmul always
// applies.
static rabbet_status_t matmul_compile(rabbet_dnnl_program_t* program,
                                      const rabbet_group_t* group,
                                      const rabbet_quantized_t* quantized,
                                      float* scratch) {
  int32_t tactic = program->kernel->tactic;
  matmul_case_t c = {
      .group = group,
      .quantized = quantized,
      .scratch = scratch,
      .dims = program->shapes->dims,
      .compute = tactic & RABBET_DNNL_TACTIC_FLOAT
                     ? RABBET_DTYPE_FLOAT
                     : rabbet_dnnl_compute_type(
                           group->values[group->outputs[0]].dtype),
      .method = (tactic & RABBET_DNNL_TACTIC_METHOD) >>
                RABBET_DNNL_TACTIC_METHOD_SHIFT,
  };
  if (c.method > METHOD_CONVOLUTION)
    return RABBET_STATUS(RABBET_STATUS_INCOMPATIBLE, "unknown tactic 0x%x",
                         (unsigned)tactic);
  rabbet_dnnl_fused_t fused;
  bool fits = false;
  RABBET_RETURN_IF_ERROR(matmul_describe(&c, &fused, &fits));
  if (!fits && c.method != METHOD_MATMUL) {
    c.method = METHOD_MATMUL;
    RABBET_RETURN_IF_ERROR(matmul_describe(&c, &fused, &fits));
  }
  if (!fits)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "the operators after matrix product '%s' cannot be "
                         "fused at these shapes",
                         group->nodes[0].name);
  return rabbet_dnnl_fused_compile(&fused, program);
}

static const rabbet_dnnl_weighted_t matmul_family = {
    .noun = "product",
    .op = RABBET_OP_MATRIX_MULTIPLY,
    .matches = rabbet_matmul_matches,
    .offer = matmul_offer_methods,
    .compile = matmul_compile,
};

static rabbet_status_t cpu_dnnl_matmul_propose(const rabbet_propose_t* propose,
                                               rabbet_candidate_sink_t sink) {
  return rabbet_dnnl_weighted_propose(&matmul_family, propose, sink);
}

static rabbet_status_t cpu_dnnl_matmul_compile(rabbet_dnnl_program_t* program) {
  return rabbet_dnnl_weighted_compile(&matmul_family, program);
}

static bool cpu_dnnl_matmul_takes(const rabbet_kernel_spec_t* spec) {
  const rabbet_group_t* group = spec->group;
  rabbet_quantized_t quantized;
  if (rabbet_quantized_parse(group, RABBET_OP_MATRIX_MULTIPLY, &quantized))
    return rabbet_takes_linear(group);
  return rabbet_matmul_matches(group) && group->output_count == 1 &&
         rabbet_takes_reals(group) && rabbet_takes_linear(group);
}

RABBET_DNNL_CLASS(cpu_dnnl_matmul, "dnnl.matmul", 1);
