#include "device/cuda/products/layers.h"

#include <assert.h>
#include <stdio.h>

#include "base/strbuf.h"
#include "ops/enums.h"

_Static_assert((int)LAYERS == (int)RABBET_CUDA_EPILOGUE_MAX,
               "an operand for each layer");

typedef enum layer_spread_t {
  LAYER_NONE,    // it does not fit
  LAYER_NUMBER,  // one element
  LAYER_BIAS,    // one for each column
  LAYER_FULL,
} layer_spread_t;

// The axis along which a kernel's columns lie: channels of an image, which are
// last in memory; -1: there is none.
static int layer_columns(const rabbet_group_node_t* product, int rank) {
  if (rabbet_op_is(product->op, RABBET_OP_CONVOLUTION) ||
      rabbet_op_is(product->op, RABBET_OP_NORMALIZATION))
    return 1;
  return rabbet_node_int(product, "op1") == (int64_t)RABBET_MATRIX_VECTOR
             ? -1
             : rank - 1;
}

// How an operand is broadcast to the product's result.
static layer_spread_t layer_spread(const rabbet_group_node_t* product,
                                   const rabbet_dims_t* own,
                                   const rabbet_dims_t* full) {
  if (own->rank != full->rank) return LAYER_NONE;
  int64_t count = 1;
  for (int i = 0; i < own->rank; ++i)
    count *= own->d[i];
  if (rabbet_dims_equal(own, full)) return LAYER_FULL;
  if (count == 1) return LAYER_NUMBER;
  int columns = layer_columns(product, own->rank);
  return columns >= 0 && own->d[columns] == count &&
                 own->d[columns] == full->d[columns]
             ? LAYER_BIAS
             : LAYER_NONE;
}

static bool layers_parse(const rabbet_group_t* group, const rabbet_dims_t* dims,
                         rabbet_cuda_epilogue_t* out) {
  return rabbet_cuda_epilogue_parse(group, dims, 1, group->nodes[0].outputs[0],
                                    out);
}

// Checks the largest shapes, too: an operand that is a row, a scalar or of the
// full shape there is also one of these for smaller shapes.
bool rabbet_cuda_layers_fit(const rabbet_group_t* group,
                            const rabbet_dims_t* opt) {
  rabbet_cuda_epilogue_t e;
  if (!layers_parse(group, opt, &e)) return false;
  const rabbet_group_node_t* product = &group->nodes[0];
  int32_t y = product->outputs[0];
  for (int i = 0; i < e.count; ++i) {
    int32_t operand = e.items[i].operand;
    if (operand >= 0 &&
        (layer_spread(product, &opt[operand], &opt[y]) == LAYER_NONE ||
         layer_spread(product, &group->values[operand].max,
                      &group->values[y].max) == LAYER_NONE))
      return false;
  }
  return true;
}

bool rabbet_cuda_layers_match(const rabbet_group_t* group,
                              const rabbet_dims_t* opt) {
  return rabbet_matmul_matches(group) && rabbet_cuda_layers_fit(group, opt);
}

rabbet_dtype_t rabbet_cuda_layers_type(const rabbet_group_t* group) {
  if (!rabbet_matmul_matches(group) || group->output_count != 1)
    return RABBET_DTYPE_NONE;
  rabbet_dtype_t dtype = group->values[group->outputs[0]].dtype;
  for (size_t i = 0; i < group->input_count + group->output_count; ++i) {
    const rabbet_group_value_t* value =
        &group->values[rabbet_group_boundary(group, i)];
    if (value->dtype != dtype || value->format != RABBET_FORMAT_LINEAR)
      return RABBET_DTYPE_NONE;
  }
  return dtype;
}

// ---- Images ----------------------------------------------------------------

bool rabbet_cuda_layers_computes(rabbet_dtype_t dtype) {
  return dtype == RABBET_DTYPE_FLOAT || dtype == RABBET_DTYPE_HALF ||
         dtype == RABBET_DTYPE_BF16;
}

rabbet_format_t rabbet_cuda_layers_format(const rabbet_group_t* group,
                                          size_t i) {
  int32_t value = rabbet_group_boundary(group, i);
  bool is_image = value == group->nodes[0].inputs[0] ||
                  rabbet_dims_equal(&group->values[value].dims,
                                    &group->values[group->outputs[0]].dims);
  return is_image ? RABBET_FORMAT_HWC : RABBET_FORMAT_LINEAR;
}

bool rabbet_cuda_layers_take_images(const rabbet_group_t* group) {
  const rabbet_group_value_t* x = &group->values[group->nodes[0].inputs[0]];
  const rabbet_group_value_t* y = &group->values[group->outputs[0]];
  for (size_t i = 0; i < group->input_count + group->output_count; ++i) {
    const rabbet_group_value_t* value =
        &group->values[rabbet_group_boundary(group, i)];
    if (value->dtype != x->dtype || (value->format != RABBET_FORMAT_HWC &&
                                     value->format != RABBET_FORMAT_LINEAR))
      return false;
  }
  return rabbet_cuda_layers_computes(x->dtype) &&
         x->format == RABBET_FORMAT_HWC && y->format == RABBET_FORMAT_HWC;
}

// ---- Text ------------------------------------------------------------------

// Writes layer i; `operand` is its operand, if it has one.
static void layers_item(const rabbet_cuda_item_t* item, int i, int operand,
                        rabbet_strbuf_t* text) {
  static const struct {
    rabbet_op_id_t op;
    const char* prefix;
  } rows[] = {
      [RABBET_CUDA_ITEM_ACTIVATION] = {RABBET_OP_ACTIVATION, "activation"},
      [RABBET_CUDA_ITEM_UNARY] = {RABBET_OP_UNARY, "unary"},
      [RABBET_CUDA_ITEM_ELEMENTWISE] = {RABBET_OP_ELEMENTWISE, "elementwise"},
  };
  if (item->kind == RABBET_CUDA_ITEM_SWISH) {
    rabbet_strbuf_printf(text, "  x *= activation_SIGMOID(x, 0, 0);\n");
    return;
  }
  assert((size_t)item->kind < sizeof(rows) / sizeof(rows[0]) &&
         rows[item->kind].prefix);
  const rabbet_op_t* op = rabbet_op_get(rows[item->kind].op);
  rabbet_strbuf_printf(text, "  x = %s_%s(", rows[item->kind].prefix,
                       rabbet_op_enumerator_name(&op->attrs[0], item->op));
  if (item->kind == RABBET_CUDA_ITEM_ACTIVATION)
    rabbet_strbuf_printf(text, "x, p.alpha[%d], p.beta[%d]", i, i);
  else if (item->kind == RABBET_CUDA_ITEM_UNARY)
    rabbet_strbuf_printf(text, "x");
  else if (item->reversed)
    rabbet_strbuf_printf(text, "o[%d], x", operand);
  else
    rabbet_strbuf_printf(text, "x, o[%d]", operand);
  rabbet_strbuf_printf(text, ");\n");
}

// Writes the chain as a function; returns the number of its operands.
static int layers_function(const rabbet_cuda_epilogue_t* e, const char* name,
                           rabbet_strbuf_t* text) {
  int operands = 0;
  rabbet_strbuf_printf(
      text, "DEVICE float %s(float x, const layers_t& p, const float* o) {\n",
      name);
  for (int i = 0; i < e->count; ++i) {
    layers_item(&e->items[i], i, operands, text);
    operands += e->items[i].operand >= 0;
  }
  rabbet_strbuf_printf(text, "  return x;\n}\n");
  return operands;
}

static void layers_text(const rabbet_cuda_epilogue_t* e, const char* begin,
                        const char* header, rabbet_strbuf_t* text) {
  int operands = 0;
  for (int i = 0; i < e->count; ++i)
    operands += e->items[i].operand >= 0;
  rabbet_strbuf_printf(
      text,
      "%s#define OPERANDS %d\n#include "
      "\"device/cuda/pointwise/functions.cuh\"\n#include \"%s\"\n",
      begin, operands, header);
  layers_function(e, "finish", text);
}

static rabbet_status_t layers_refuse(const rabbet_cuda_node_t* kernel,
                                     const rabbet_group_t* group) {
  return RABBET_STATUS(RABBET_STATUS_INCOMPATIBLE,
                       "%s does not compute the epilogue of product '%s'",
                       kernel->node.base.kernel_class->name,
                       group->nodes[0].name);
}

rabbet_status_t rabbet_cuda_layers_function(const rabbet_cuda_node_t* kernel,
                                            const rabbet_group_t* group,
                                            const rabbet_dims_t* dims,
                                            const char* name,
                                            rabbet_strbuf_t* text,
                                            int* out_operands) {
  rabbet_cuda_epilogue_t epilogue;
  *out_operands = 0;
  if (!layers_parse(group, dims, &epilogue))
    return layers_refuse(kernel, group);
  *out_operands = layers_function(&epilogue, name, text);
  return rabbet_ok();
}

rabbet_status_t rabbet_cuda_layers_add(rabbet_cuda_node_t* kernel,
                                       const rabbet_kernel_spec_t* spec,
                                       const char* name, const char* begin,
                                       const char* header) {
  rabbet_dims_t* dims = NULL;
  rabbet_cuda_epilogue_t epilogue;
  rabbet_strbuf_t text;
  RABBET_RETURN_IF_ERROR(
      rabbet_group_opt_dims(spec->group, spec->allocator, &dims));
  bool fits = layers_parse(spec->group, dims, &epilogue);
  rabbet_free(spec->allocator, dims);
  if (!fits) return layers_refuse(kernel, spec->group);
  rabbet_strbuf_initialize(spec->allocator, &text);
  layers_text(&epilogue, begin, header, &text);
  rabbet_status_t status = rabbet_strbuf_status(&text);
  if (rabbet_is_ok(status))
    status = rabbet_cuda_node_add(kernel, spec, name, rabbet_strbuf_text(&text),
                                  NULL);
  rabbet_strbuf_deinitialize(&text);
  return status;
}

// ---- Operands --------------------------------------------------------------

rabbet_status_t rabbet_cuda_layers_place(
    const rabbet_cuda_node_t* kernel, const rabbet_group_t* group,
    const rabbet_dims_t* dims, const layer_operand_t* result, bool swapped,
    rabbet_cuda_layers_t* out_layers, layers_t* out_parameters) {
  const rabbet_group_node_t* product = &group->nodes[0];
  rabbet_cuda_epilogue_t e;
  bool fits = layers_parse(group, dims, &e);
  *out_layers = (rabbet_cuda_layers_t){.count = 0};
  for (int i = 0; i < e.count; ++i) {
    int32_t operand = e.items[i].operand;
    out_parameters->alpha[i] = e.items[i].alpha;
    out_parameters->beta[i] = e.items[i].beta;
    if (operand < 0) continue;
    assert(out_layers->count < LAYERS);
    int own = out_layers->count++;
    layer_operand_t* o = &out_parameters->operands[own];
    layer_spread_t spread =
        layer_spread(product, &dims[operand], &dims[product->outputs[0]]);
    fits = fits && spread != LAYER_NONE;
    out_layers->inputs[own] = rabbet_group_input_of(group, operand);
    assert(out_layers->inputs[own] >= 0);
    out_layers->is_full[own] = spread == LAYER_FULL;
    *o = spread == LAYER_FULL ? *result : (layer_operand_t){.data = NULL};
    if (spread == LAYER_BIAS) *(swapped ? &o->row : &o->column) = 1;
  }
  if (!fits)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "%s cannot compute the epilogue of product '%s' at "
                         "these shapes",
                         kernel->node.base.kernel_class->name, product->name);
  return rabbet_ok();
}
