#include "device/common/dynamic_quantize.h"

#include <assert.h>

#include "ops/pointwise/blocks.h"

static rabbet_status_t dynamic_quantize_body(rabbet_proposal_t* proposal) {
  return rabbet_proposal_offer(proposal, "blocks", -1);
}

rabbet_status_t rabbet_dynamic_quantize_propose(
    const rabbet_propose_t* propose, rabbet_candidate_sink_t sink,
    const rabbet_kernel_class_t* kernel) {
  return rabbet_proposal_make_for(propose, sink, RABBET_OP_DYNAMIC_QUANTIZE,
                                  kernel, dynamic_quantize_body);
}

static bool boxes_is_real(rabbet_dtype_t dtype) {
  return dtype == RABBET_DTYPE_FLOAT || dtype == RABBET_DTYPE_HALF ||
         dtype == RABBET_DTYPE_BF16;
}

rabbet_status_t rabbet_dynamic_quantize_check_types(
    const rabbet_group_t* group, const rabbet_group_node_t* node) {
  const rabbet_group_value_t* values = group->values;
  int32_t by = rabbet_node_input(node, 1);
  rabbet_dtype_t from = values[node->inputs[0]].dtype;
  rabbet_dtype_t to = values[node->outputs[0]].dtype;
  rabbet_dtype_t scale = values[node->outputs[1]].dtype;
  if (boxes_is_real(from) && (by < 0 || boxes_is_real(values[by].dtype)) &&
      (to == RABBET_DTYPE_INT8 || to == RABBET_DTYPE_FP8) &&
      (boxes_is_real(scale) || scale == RABBET_DTYPE_FP8 ||
       scale == RABBET_DTYPE_E8M0))
    return rabbet_ok();
  return RABBET_STATUS(
      RABBET_STATUS_UNSUPPORTED,
      "layer '%s': %s cannot be quantized to %s with scales of %s", node->name,
      rabbet_dtype_name(from), rabbet_dtype_name(to), rabbet_dtype_name(scale));
}

// Adds an axis before the existing ones. It is merged with the first of them if
// blocks contain that axis entirely, or if blocks have extent 1 on the new axis
// and none is cut at the tensor's end.
static void boxes_add(rabbet_quantize_boxes_t* boxes, int64_t dim,
                      int64_t block) {
  int64_t* first = &boxes->dims[0];
  int64_t* inner = &boxes->blocks[0];
  assert(block >= 1 && boxes->rank < RABBET_MAX_RANK);
  if (boxes->rank > 0 && *inner == *first) {
    *inner *= block;
    *first *= dim;
    return;
  }
  if (boxes->rank > 0 && block == 1 && *first % *inner == 0) {
    *first *= dim;
    return;
  }
  for (int32_t i = boxes->rank++; i > 0; --i) {
    boxes->dims[i] = boxes->dims[i - 1];
    boxes->blocks[i] = boxes->blocks[i - 1];
  }
  *first = dim;
  *inner = block;
}

rabbet_status_t rabbet_dynamic_quantize_boxes(
    const rabbet_group_node_t* node, const rabbet_dims_t* x,
    rabbet_quantize_boxes_t* out_boxes) {
  int64_t extents[RABBET_MAX_RANK], stride = 1;
  rabbet_dims_t blocks, scales;
  *out_boxes = (rabbet_quantize_boxes_t){.count = 1, .elements = 1};
  RABBET_RETURN_IF_ERROR(
      RABBET_ANNOTATE(rabbet_dynamic_quantize_blocks(
                          node->attrs, node->op->attr_count, x->rank, extents),
                      "layer '%s'", node->name));
  rabbet_blocks_count(x, extents, &blocks, &scales);
  for (int32_t i = x->rank - 1; i >= 0; --i) {
    if (x->d[i] == 0) out_boxes->elements = 0;
    boxes_add(out_boxes, x->d[i],
              rabbet_min_i64(blocks.d[i], rabbet_max_i64(x->d[i], 1)));
    out_boxes->count *= scales.d[i];
  }
  if (out_boxes->elements == 0) return rabbet_ok();
  for (int32_t i = out_boxes->rank - 1; i >= 0; --i) {
    out_boxes->counts[i] =
        rabbet_ceildiv(out_boxes->dims[i], out_boxes->blocks[i]);
    out_boxes->strides[i] = stride;
    out_boxes->elements *= out_boxes->blocks[i];
    stride *= out_boxes->dims[i];
  }
  int64_t blocks_of_all = 1;
  for (int32_t i = 0; i < out_boxes->rank; ++i)
    blocks_of_all *= out_boxes->counts[i];
  assert(blocks_of_all == out_boxes->count);  // merging axes keeps all blocks
  (void)blocks_of_all;
  return rabbet_ok();
}
