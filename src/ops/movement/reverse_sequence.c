// The first elements of each sequence in reverse order. Lengths below 0 count
// as 0, those beyond the axis as all of it.
#include "ops/movement/reverse_sequence.h"

#include "base/math.h"
#include "ops/rules.h"
#include "ops/walk.h"

enum { INPUT = 0, LENGTHS = 1 };

static rabbet_status_t reverse_sequence_infer_shapes(
    const rabbet_op_infer_t* infer) {
  const rabbet_shape_t* x = &infer->inputs[INPUT].shape;
  const rabbet_shape_t* lengths = &infer->inputs[LENGTHS].shape;
  int32_t batch = 0, sequence = 0;
  rabbet_expr_t dim = RABBET_EXPR_NONE;
  char text[RABBET_OP_TEXT];
  RABBET_RETURN_IF_ERROR(rabbet_op_axis(
      "batch_axis", RABBET_OP_INT(infer, "batch_axis"), x->rank, &batch));
  RABBET_RETURN_IF_ERROR(rabbet_op_axis("sequence_axis",
                                        RABBET_OP_INT(infer, "sequence_axis"),
                                        x->rank, &sequence));
  if (batch == sequence)
    return RABBET_OP_INVALID(
        "attributes 'batch_axis' and 'sequence_axis' are both axis %d; "
        "sequences lie along another axis than the batch",
        batch);
  if (lengths->rank != 1 ||
      !rabbet_op_same_dim(infer, lengths->d[0], x->d[batch], &dim))
    return RABBET_OP_INVALID(
        "input 1 ('sequence_lens') has shape %s; expected one length for each "
        "element of axis %d, the batch",
        rabbet_op_shape_text(infer, lengths, text), batch);
  return rabbet_op_same_shape(infer);
}

static int64_t reverse_sequence_product(const rabbet_dims_t* dims,
                                        int32_t begin, int32_t end) {
  int64_t product = 1;
  for (int32_t i = begin; i < end; ++i)
    product *= dims->d[i];
  return product;
}

rabbet_reverse_sequence_t rabbet_reverse_sequence_plan(
    const rabbet_dims_t* dims, int64_t batch_axis, int64_t sequence_axis) {
  int32_t batch = (int32_t)(batch_axis + (batch_axis < 0 ? dims->rank : 0));
  int32_t sequence =
      (int32_t)(sequence_axis + (sequence_axis < 0 ? dims->rank : 0));
  int32_t first = batch < sequence ? batch : sequence;
  int32_t second = batch < sequence ? sequence : batch;
  return (rabbet_reverse_sequence_t){
      .outer = reverse_sequence_product(dims, 0, first),
      .first = dims->d[first],
      .middle = reverse_sequence_product(dims, first + 1, second),
      .second = dims->d[second],
      .inner = reverse_sequence_product(dims, second + 1, dims->rank),
      .sequence_first = sequence < batch};
}

rabbet_status_t rabbet_reverse_sequence_check(
    const rabbet_reverse_sequence_t* plan, const rabbet_dims_t* lengths) {
  int64_t batch = plan->sequence_first ? plan->second : plan->first;
  if (lengths->d[0] == batch) return rabbet_ok();
  return RABBET_STATUS(
      RABBET_STATUS_OUT_OF_RANGE,
      "input 'sequence_lens' has %lld elements; expected %lld, "
      "one for each of the batch",
      (long long)lengths->d[0], (long long)batch);
}

static rabbet_status_t reverse_sequence_reference(
    const rabbet_op_eval_t* eval) {
  const rabbet_view_t *x = &eval->inputs[INPUT], *y = &eval->outputs[0];
  const rabbet_view_t* lengths = &eval->inputs[LENGTHS];
  const rabbet_dims_t* dims = &x->dims;
  int32_t batch = 0, sequence = 0;
  RABBET_RETURN_IF_ERROR(rabbet_op_axis(
      "batch_axis", RABBET_OP_INT(eval, "batch_axis"), dims->rank, &batch));
  RABBET_RETURN_IF_ERROR(rabbet_op_axis("sequence_axis",
                                        RABBET_OP_INT(eval, "sequence_axis"),
                                        dims->rank, &sequence));
  const rabbet_reverse_sequence_t plan =
      rabbet_reverse_sequence_plan(dims, batch, sequence);
  RABBET_RETURN_IF_ERROR(rabbet_reverse_sequence_check(&plan, &lengths->dims));
  int64_t strides[RABBET_MAX_RANK];
  rabbet_row_major(dims, strides);
  rabbet_walk_t walk;
  rabbet_walk_initialize(dims, &walk);
  for (; !walk.done; rabbet_walk_next(&walk)) {
    int64_t length =
        rabbet_load_int64(lengths->dtype, lengths->data, walk.at[batch]);
    int64_t at = walk.at[sequence];
    length = rabbet_min_i64(length, dims->d[sequence]);
    int64_t from = at < length ? length - 1 - at : at;
    rabbet_copy_element(y->data, walk.linear, x->data,
                        walk.linear + (from - at) * strides[sequence],
                        rabbet_element_size(x->dtype));
  }
  return rabbet_ok();
}

static const rabbet_op_operand_t reverse_sequence_inputs[] = {
    {"input", 0, RABBET_T_ANY},
    {"sequence_lens", RABBET_OPERAND_INDEX, RABBET_T_INDICES}};
static const rabbet_op_operand_t reverse_sequence_outputs[] = {
    {"output", 0, RABBET_T_ANY}};
static const rabbet_op_attr_t reverse_sequence_attrs[] = {
    {"batch_axis", RABBET_ATTR_INT, false, 1, 0, NULL},
    {"sequence_axis", RABBET_ATTR_INT, false, 0, 0, NULL},
};

const rabbet_op_t rabbet_op_reverse_sequence = {
    .name = "reverse_sequence",
    .layer_type = "REVERSE_SEQUENCE",
    .flags = RABBET_OP_MOVES_DATA,
    .inputs = reverse_sequence_inputs,
    .input_count = RABBET_OP_COUNT_OF(reverse_sequence_inputs),
    .outputs = reverse_sequence_outputs,
    .output_count = RABBET_OP_COUNT_OF(reverse_sequence_outputs),
    .attrs = reverse_sequence_attrs,
    .attr_count = RABBET_OP_COUNT_OF(reverse_sequence_attrs),
    .infer_shapes = reverse_sequence_infer_shapes,
    .reference = reverse_sequence_reference,
};
