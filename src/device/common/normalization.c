#include "device/common/normalization.h"

#include <assert.h>

static rabbet_status_t normalization_strides(rabbet_normalization_t* layer,
                                             const rabbet_dims_t* dims,
                                             size_t operand) {
  const rabbet_dims_t* x = layer->x;
  int64_t next = 1;
  bool fits = dims->rank == x->rank;
  for (int32_t i = x->rank - 1; fits && i >= 0; --i) {
    int64_t expected = i == 1 && layer->by_group ? layer->groups : x->d[i];
    layer->strides[operand][i] = dims->d[i] == 1 && expected != 1 ? 0 : next;
    fits = dims->d[i] == 1 || dims->d[i] == expected;
    next *= dims->d[i];
  }
  if (fits) return rabbet_ok();
  char a[128], b[128];
  return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                       "layer '%s': input '%s' has shape %s, which does not "
                       "broadcast to %s",
                       layer->node->name, layer->node->op->inputs[operand].name,
                       rabbet_dims_print(dims, a, sizeof(a)),
                       rabbet_dims_print(x, b, sizeof(b)));
}

rabbet_status_t rabbet_normalization_read(const rabbet_group_t* group,
                                          const rabbet_dims_t* dims,
                                          rabbet_normalization_t* out) {
  const rabbet_group_node_t* node = &group->nodes[0];
  const rabbet_dims_t* x = &dims[node->inputs[RABBET_NORMALIZE_INPUT]];
  *out = (rabbet_normalization_t){.node = node,
                                  .x = x,
                                  .groups = rabbet_node_int(node, "num_groups"),
                                  .mask = rabbet_node_int(node, "axes")};
  out->is_rms = rabbet_node_int(node, "is_rms") != 0;
  out->by_group = out->groups > 1 && !rabbet_node_int(node, "is_v2");
  if (out->groups > 1 && (x->rank < 2 || x->d[1] % out->groups != 0)) {
    char text[128];
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                         "layer '%s': the channels of shape %s do not divide "
                         "into %lld groups",
                         node->name, rabbet_dims_print(x, text, sizeof(text)),
                         (long long)out->groups);
  }
  for (size_t i = RABBET_NORMALIZE_SCALE; i <= RABBET_NORMALIZE_BIAS; ++i) {
    int32_t value = rabbet_node_input(node, i);
    if (value >= 0)
      RABBET_RETURN_IF_ERROR(normalization_strides(out, &dims[value], i));
  }
  return rabbet_ok();
}

void rabbet_normalization_split(const rabbet_normalization_t* layer,
                                int64_t step,
                                const int64_t strides[RABBET_AXES_OPERANDS],
                                int64_t out_outside[RABBET_AXES_OPERANDS],
                                int64_t out_inside[RABBET_AXES_OPERANDS]) {
  assert(layer->groups > 0 && layer->x->d[1] % layer->groups == 0);
  int64_t each = layer->x->d[1] / layer->groups;
  for (int k = 0; k < RABBET_AXES_OPERANDS; ++k) {
    bool is_one = layer->by_group && k != RABBET_NORMALIZE_INPUT;
    out_inside[k] = is_one ? 0 : strides[k];
    out_outside[k] = is_one ? layer->strides[k][1] : strides[k] * each / step;
  }
}
