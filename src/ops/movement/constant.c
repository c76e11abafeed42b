#include <string.h>

#include "ops/rules.h"

// Constants may have packed types, although no layer computes in them.
#define CONSTANT_TYPES \
  (RABBET_T_ANY | RABBET_T(INT4) | RABBET_T(FP4) | RABBET_T(NF4))

static const rabbet_attr_t* constant_weights(const rabbet_attr_t* attrs,
                                             size_t count) {
  return rabbet_attr_find(attrs, count, "weights");
}

static rabbet_status_t constant_infer_types(const rabbet_op_infer_t* infer) {
  infer->outputs[0].dtype =
      constant_weights(infer->attrs, infer->attr_count)->dtype;
  return rabbet_ok();
}

static rabbet_status_t constant_infer_shapes(const rabbet_op_infer_t* infer) {
  const rabbet_attr_t* weights =
      constant_weights(infer->attrs, infer->attr_count);
  int64_t count = 0;
  rabbet_status_t status = rabbet_dims_count(&weights->dims, &count);
  if (rabbet_is_ok(status) && (size_t)count != weights->count) {
    status = RABBET_OP_INVALID("it has %zu elements, but its shape has %lld",
                               weights->count, (long long)count);
  }
  if (rabbet_is_ok(status)) {
    status = rabbet_shape_from_dims(infer->graph, &weights->dims,
                                    &infer->outputs[0].shape);
  }
  return RABBET_ANNOTATE(status, "attribute 'weights'");
}

static rabbet_status_t constant_infer_values(const rabbet_op_infer_t* infer) {
  rabbet_op_value_t* output = &infer->outputs[0];
  output->constant = constant_weights(infer->attrs, infer->attr_count)->data;
  return rabbet_op_values_of_constant(infer->graph, infer->arena, output);
}

static rabbet_status_t constant_reference(const rabbet_op_eval_t* eval) {
  const rabbet_attr_t* weights =
      constant_weights(eval->attrs, eval->attr_count);
  size_t size = rabbet_attr_bytes(weights);
  if (size > 0) memcpy(eval->outputs[0].data, weights->data, size);
  return rabbet_ok();
}

static const rabbet_op_operand_t constant_outputs[] = {
    {"output", 0, CONSTANT_TYPES}};
static const rabbet_op_attr_t constant_attrs[] = {
    {"weights", RABBET_ATTR_TENSOR, true, 0, 0, NULL},
};

const rabbet_op_t rabbet_op_constant = {
    .name = "constant",
    .layer_type = "CONSTANT",
    .outputs = constant_outputs,
    .output_count = RABBET_OP_COUNT_OF(constant_outputs),
    .attrs = constant_attrs,
    .attr_count = RABBET_OP_COUNT_OF(constant_attrs),
    .infer_types = constant_infer_types,
    .infer_shapes = constant_infer_shapes,
    .infer_values = constant_infer_values,
    .reference = constant_reference,
};
