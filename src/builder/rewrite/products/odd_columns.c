// Products by constants whose rows are no whole vectors of 16 bytes: a
// vocabulary of 30522 or 50257 words. Libraries have slow kernels alone for
// rows at odd addresses, 3.3 times as slow on an H200. Columns of zeros are
// appended to the weights, and a slice takes the others of the result: a layer
// that follows reads it where it lies.
#include <assert.h>
#include <string.h>

#include "builder/ir/passes.h"
#include "core/view.h"
#include "ops/enums.h"

enum {
  ODD_VECTOR = 16,  // bytes
  // The slice's pass over the result pays in products of many sums, and where
  // neither is bound by its launch.
  ODD_INNER_LEAST = 64,
  ODD_ROWS_LEAST = 64,
};
#define ODD_WORK_LEAST (INT64_C(1) << 27)  // products of numbers

typedef struct odd_t {
  rabbet_ir_value_t* weights;
  rabbet_dims_t dims;
  int64_t inner, columns, padded;
  bool turned;  // weights lie along the sum
} odd_t;

// Elements of a vector of the narrowest type that the build may compute in; 1
// if its kernels have no use for vectors.
static int64_t odd_vector(const rabbet_build_t* build, rabbet_dtype_t dtype) {
  const uint32_t halves = 1u << RABBET_DTYPE_HALF | 1u << RABBET_DTYPE_BF16;
  if (dtype != RABBET_DTYPE_FLOAT)
    return ODD_VECTOR * 8 / rabbet_dtype_bits(dtype);
  if (build->extra_dtypes & halves) return ODD_VECTOR / 2;
  bool tf32 = build->config->options[RABBET_BUILDER_OPTION_FLAGS] >>
                  RABBET_BUILDER_TF32 &
              1;
  return tf32 ? ODD_VECTOR / 4 : 1;
}

static bool odd_weights(const rabbet_ir_t* ir, const rabbet_ir_node_t* product,
                        odd_t* out) {
  int64_t op = rabbet_ir_int(product, "op1");
  *out = (odd_t){.weights = rabbet_ir_input(ir, product, 1),
                 .turned = op == RABBET_MATRIX_TRANSPOSE};
  if (!out->weights->constant || out->weights->values ||
      out->weights->is_deferred || !rabbet_ir_is_real(out->weights->dtype) ||
      rabbet_ir_int(product, "op0") != RABBET_MATRIX_NONE ||
      (op != RABBET_MATRIX_NONE && op != RABBET_MATRIX_TRANSPOSE))
    return false;
  out->dims = rabbet_ir_dims(ir, out->weights);
  int32_t rank = out->dims.rank;
  if (rank < 2) return false;
  for (int32_t i = 0; i < rank - 2; ++i)
    if (out->dims.d[i] != 1) return false;
  out->inner = out->dims.d[out->turned ? rank - 1 : rank - 2];
  out->columns = out->dims.d[out->turned ? rank - 2 : rank - 1];
  return true;
}

// Rows are counted where all extents are constant.
static bool odd_pays(const rabbet_build_t* build,
                     const rabbet_ir_node_t* product, odd_t* odd) {
  const rabbet_ir_value_t* x = rabbet_ir_input(&build->ir, product, 0);
  rabbet_dims_t dims = rabbet_ir_dims(&build->ir, x);
  int64_t rows = 1, work = 0;
  for (int32_t i = 0; i < dims.rank - 1; ++i)
    if (dims.d[i] < 0 || __builtin_mul_overflow(rows, dims.d[i], &rows))
      return false;
  int64_t vector = odd_vector(build, odd->weights->dtype);
  odd->padded = (odd->columns + vector - 1) / vector * vector;
  return odd->padded != odd->columns && odd->inner >= ODD_INNER_LEAST &&
         odd->inner % vector == 0 && rows >= ODD_ROWS_LEAST &&
         !__builtin_mul_overflow(rows, odd->columns, &work) &&
         work >= ODD_WORK_LEAST / odd->inner;
}

static rabbet_status_t odd_pad(rabbet_build_t* build, const odd_t* odd,
                               rabbet_ir_value_t** out_value) {
  size_t element = (size_t)rabbet_dtype_bits(odd->weights->dtype) / 8;
  int64_t rows = odd->turned ? 1 : odd->inner;
  int64_t width = odd->turned ? odd->inner : 1;
  size_t from = (size_t)(odd->columns * width) * element;
  size_t to = (size_t)(odd->padded * width) * element;
  char* data = NULL;
  rabbet_dims_t dims = odd->dims;
  dims.d[dims.rank - (odd->turned ? 2 : 1)] = odd->padded;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate(&build->arena, to * (size_t)rows, (void**)&data));
  for (int64_t i = 0; i < rows; ++i) {
    char* row = data + (size_t)i * to;
    memcpy(row, (const char*)odd->weights->constant + (size_t)i * from, from);
    memset(row + from, 0, to - from);
  }
  return rabbet_ir_add_constant(&build->ir, odd->weights->name,
                                odd->weights->dtype, &dims, data, out_value);
}

static rabbet_status_t odd_replace(rabbet_build_t* build,
                                   rabbet_ir_node_t* product,
                                   const odd_t* odd) {
  rabbet_ir_t* ir = &build->ir;
  rabbet_ir_value_t* padded = NULL;
  rabbet_ir_node_t *made = NULL, *slice = NULL;
  RABBET_RETURN_IF_ERROR(odd_pad(build, odd, &padded));
  const int32_t factors[2] = {product->inputs[0], padded->id};
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_node(
      ir, RABBET_OP_MATRIX_MULTIPLY, product->name, product->attrs,
      product->op->attr_count, factors, 2, product, &made));
  const rabbet_ir_value_t* result = rabbet_ir_output(ir, made, 0);
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_slice(build, product, product->name,
                                             result->id, result->shape.rank - 1,
                                             0, odd->columns, &slice));
  if (rabbet_ir_bypass(ir, product, rabbet_ir_output(ir, slice, 0)))
    return rabbet_ok();
  rabbet_ir_kill(ir, slice);
  rabbet_ir_kill(ir, made);
  return rabbet_ok();
}

rabbet_status_t rabbet_pass_odd_columns(rabbet_build_t* build) {
  rabbet_ir_t* ir = &build->ir;
  if (!(build->device->traits & RABBET_DEVICE_ALIGNED_PRODUCTS))
    return rabbet_ok();
  for (size_t i = 0, count = ir->nodes.count; i < count; ++i) {
    rabbet_ir_node_t* node = ir->nodes.data[i];
    odd_t odd;
    if (!node->dead && rabbet_op_is(node->op, RABBET_OP_MATRIX_MULTIPLY) &&
        !rabbet_ir_has_wishes(ir, node) && odd_weights(ir, node, &odd) &&
        odd_pays(build, node, &odd))
      RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
          odd_replace(build, node, &odd),
          "appending columns to the weights of layer '%s'", node->name));
  }
  return rabbet_ir_sweep(ir);
}
