#include <math.h>
#include <string.h>

#include "base/text.h"
#include "core/view.h"
#include "network/inside.h"

const char* rabbet_tensor_name(const rabbet_tensor_t* tensor) {
  return tensor->name;
}

rabbet_status_t rabbet_tensor_set_name(rabbet_tensor_t* tensor,
                                       const char* name) {
  rabbet_network_t* network = tensor->network;
  RABBET_RETURN_IF_ERROR(rabbet_network_check_tensor(network, tensor));
  if (name && strcmp(name, tensor->name) == 0) {
    tensor->has_own_name = true;
    return rabbet_ok();
  }
  const char* copy = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_network_claim_tensor_name(network, name, &copy));
  RABBET_RETURN_IF_ERROR(
      rabbet_map_set(&network->tensor_names, copy, strlen(copy), tensor));
  rabbet_map_remove(&network->tensor_names, tensor->name, strlen(tensor->name));
  tensor->name = copy;
  tensor->has_own_name = true;
  return rabbet_ok();
}

// Runs inference up to the tensor.
static rabbet_status_t tensor_infer(rabbet_tensor_t* tensor) {
  RABBET_RETURN_IF_ERROR(rabbet_network_check_tensor(tensor->network, tensor));
  rabbet_layer_t* layer = tensor->producer;
  size_t count = layer ? (size_t)layer->index + 1 : 0;
  RABBET_RETURN_IF_ERROR(rabbet_network_infer_until(tensor->network, count));
  return layer && layer->is_unknown ? rabbet_layer_explain(layer) : rabbet_ok();
}

rabbet_status_t rabbet_tensor_dtype(rabbet_tensor_t* tensor,
                                    rabbet_dtype_t* out_dtype) {
  *out_dtype = RABBET_DTYPE_NONE;
  if (tensor->kind == RABBET_TENSOR_LAYER &&
      tensor->wished_dtype == RABBET_DTYPE_NONE) {
    RABBET_RETURN_IF_ERROR(tensor_infer(tensor));
  }
  *out_dtype = tensor->wished_dtype != RABBET_DTYPE_NONE ? tensor->wished_dtype
                                                         : tensor->dtype;
  return rabbet_ok();
}

rabbet_status_t rabbet_tensor_dims(rabbet_tensor_t* tensor,
                                   rabbet_dims_t* out_dims) {
  *out_dims = (rabbet_dims_t){.rank = -1};
  if (tensor->kind != RABBET_TENSOR_LAYER) {
    *out_dims = tensor->given_dims;
    return rabbet_ok();
  }
  RABBET_RETURN_IF_ERROR(tensor_infer(tensor));
  *out_dims = rabbet_shape_dims(tensor->network->graph, &tensor->shape);
  return rabbet_ok();
}

static rabbet_status_t tensor_wish_dtype(rabbet_tensor_t* tensor,
                                         rabbet_dtype_t dtype) {
  if (tensor->network->flags & RABBET_NETWORK_STRONGLY_TYPED) {
    return RABBET_STATUS(
        RABBET_STATUS_FAILED_PRECONDITION,
        "the type of tensor '%s' follows from its layer's inputs, as the "
        "network is strongly typed; add a cast layer",
        tensor->name);
  }
  tensor->wished_dtype = dtype;
  rabbet_network_layer_changed(tensor->producer);
  return rabbet_ok();
}

rabbet_dtype_t rabbet_tensor_wished_dtype(const rabbet_tensor_t* tensor) {
  return tensor->wished_dtype;
}

rabbet_status_t rabbet_tensor_set_dtype(rabbet_tensor_t* tensor,
                                        rabbet_dtype_t dtype) {
  RABBET_RETURN_IF_ERROR(rabbet_network_check_tensor(tensor->network, tensor));
  bool resets =
      dtype == RABBET_DTYPE_NONE && tensor->kind == RABBET_TENSOR_LAYER;
  if (!resets && (dtype < 0 || dtype >= RABBET_DTYPE_COUNT)) {
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "tensor '%s': %d is not a data type", tensor->name,
                         (int)dtype);
  }
  if (tensor->kind == RABBET_TENSOR_LAYER) {
    return tensor_wish_dtype(tensor, dtype);
  }
  if (tensor->kind == RABBET_TENSOR_WEIGHTS) {
    return RABBET_STATUS(RABBET_STATUS_FAILED_PRECONDITION,
                         "the type of weights '%s' is that of their data",
                         tensor->name);
  }
  // In a weakly typed network another floating type is the type in which the
  // input arrives; the builder chooses the type in which layers compute. DOUBLE
  // is never chosen in another type's place, nor another one in its place.
  bool is_wish =
      !(tensor->network->flags & RABBET_NETWORK_STRONGLY_TYPED) &&
      rabbet_dtype_is_float(tensor->dtype) && rabbet_dtype_is_float(dtype) &&
      tensor->dtype != RABBET_DTYPE_DOUBLE && dtype != RABBET_DTYPE_DOUBLE;
  tensor->wished_dtype =
      is_wish && dtype != tensor->dtype ? dtype : RABBET_DTYPE_NONE;
  if (!is_wish) tensor->dtype = dtype;
  rabbet_network_changed(tensor->network);
  return rabbet_ok();
}

rabbet_status_t rabbet_tensor_set_dims(rabbet_tensor_t* tensor,
                                       const rabbet_dims_t* dims) {
  RABBET_RETURN_IF_ERROR(rabbet_network_check_tensor(tensor->network, tensor));
  if (tensor->kind != RABBET_TENSOR_INPUT) {
    return RABBET_STATUS(RABBET_STATUS_FAILED_PRECONDITION,
                         "the shape of tensor '%s' cannot be set; only that of "
                         "network inputs can",
                         tensor->name);
  }
  bool valid = dims->rank >= 0 && dims->rank <= RABBET_MAX_RANK;
  for (int32_t i = 0; valid && i < dims->rank; ++i) {
    valid = dims->d[i] >= -1;
  }
  if (!valid) {
    char text[128];
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "tensor '%s': %s is not a shape; dimensions are -1 "
                         "(dynamic), 0 or more, at most %d",
                         tensor->name,
                         dims->rank <= RABBET_MAX_RANK
                             ? rabbet_dims_print(dims, text, sizeof text)
                             : "a list so long",
                         RABBET_MAX_RANK);
  }
  tensor->given_dims = *dims;
  rabbet_network_changed(tensor->network);
  return rabbet_ok();
}

bool rabbet_tensor_is_input(const rabbet_tensor_t* tensor) {
  return tensor->kind == RABBET_TENSOR_INPUT;
}

bool rabbet_tensor_is_output(const rabbet_tensor_t* tensor) {
  return tensor->is_output;
}

rabbet_status_t rabbet_tensor_is_shape_tensor(rabbet_tensor_t* tensor,
                                              bool* out_is_shape_tensor) {
  *out_is_shape_tensor = false;
  // Later layers decide, if they are complete.
  RABBET_RETURN_IF_ERROR(rabbet_network_infer_until(
      tensor->network, tensor->network->layers.count));
  *out_is_shape_tensor = tensor->is_shape_tensor;
  return rabbet_ok();
}

uint64_t rabbet_tensor_allowed_formats(const rabbet_tensor_t* tensor) {
  return tensor->allowed_formats;
}

rabbet_status_t rabbet_tensor_set_allowed_formats(rabbet_tensor_t* tensor,
                                                  uint64_t formats) {
  // Formats numbered 64 and up have no bit and so cannot be asked for.
  for (int i = 0; i < 64; ++i) {
    if (!(formats >> i & 1) || rabbet_format_info((rabbet_format_t)i)) continue;
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "tensor '%s': bit %d of the allowed formats stands "
                         "for no format",
                         tensor->name, i);
  }
  if (formats == 0) {
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "tensor '%s': at least one format must be allowed",
                         tensor->name);
  }
  tensor->allowed_formats = formats;
  return rabbet_ok();
}

rabbet_status_t rabbet_tensor_set_dim_name(rabbet_tensor_t* tensor,
                                           int32_t axis, const char* name) {
  if (tensor->kind != RABBET_TENSOR_INPUT) {
    return RABBET_STATUS(RABBET_STATUS_FAILED_PRECONDITION,
                         "dimensions of tensor '%s' cannot be named; only "
                         "those of network inputs can",
                         tensor->name);
  }
  if (axis < 0 || axis >= tensor->given_dims.rank) {
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                         "tensor '%s' has rank %d and no axis %d", tensor->name,
                         tensor->given_dims.rank, axis);
  }
  const char* copy = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_text_check("the name of a dimension", name));
  if (name && *name) {
    RABBET_RETURN_IF_ERROR(
        rabbet_arena_strdup(&tensor->network->arena, name, &copy));
  }
  tensor->dim_names[axis] = copy;
  rabbet_network_changed(tensor->network);
  return rabbet_ok();
}

const char* rabbet_tensor_dim_name(const rabbet_tensor_t* tensor,
                                   int32_t axis) {
  return axis >= 0 && axis < RABBET_MAX_RANK ? tensor->dim_names[axis] : NULL;
}

rabbet_layer_t* rabbet_tensor_producer(const rabbet_tensor_t* tensor) {
  return tensor->producer;
}

bool rabbet_tensor_weights(const rabbet_tensor_t* tensor,
                           rabbet_weights_t* out_weights) {
  *out_weights = (rabbet_weights_t){.dtype = RABBET_DTYPE_NONE};
  if (tensor->kind == RABBET_TENSOR_WEIGHTS) {
    out_weights->dtype = tensor->dtype;
    out_weights->data = tensor->constant;
    // Checked when the weights were added.
    rabbet_status_ignore(
        rabbet_dims_count(&tensor->given_dims, &out_weights->count));
    return true;
  }
  const rabbet_layer_t* layer = tensor->producer;
  if (!layer || !rabbet_op_is(layer->op, RABBET_OP_CONSTANT)) return false;
  const rabbet_attr_t* attr =
      rabbet_attr_find(layer->attrs, layer->op->attr_count, "weights");
  *out_weights = (rabbet_weights_t){
      .dtype = attr->dtype, .data = attr->data, .count = (int64_t)attr->count};
  return true;
}

// ---- Debugging -------------------------------------------------------------

rabbet_status_t rabbet_tensor_set_debug(rabbet_tensor_t* tensor,
                                        bool is_debug) {
  RABBET_RETURN_IF_ERROR(rabbet_network_check_tensor(tensor->network, tensor));
  if (is_debug && tensor->kind == RABBET_TENSOR_WEIGHTS)
    return RABBET_STATUS(
        RABBET_STATUS_INVALID_ARGUMENT,
        "tensor '%s' is a weights tensor: nothing computes it, "
        "and its values are known",
        tensor->name);
  tensor->is_debug = is_debug;
  return rabbet_ok();
}

bool rabbet_tensor_is_debug(const rabbet_tensor_t* tensor) {
  return tensor->is_debug;
}

void rabbet_network_set_unfused_debug(rabbet_network_t* network,
                                      bool is_debug) {
  network->unfused_debug = is_debug;
}

bool rabbet_network_unfused_debug(const rabbet_network_t* network) {
  return network->unfused_debug;
}

// ---- Refitting -------------------------------------------------------------

rabbet_status_t rabbet_tensor_set_refittable(rabbet_tensor_t* tensor,
                                             bool is_refittable) {
  rabbet_network_t* network = tensor->network;
  RABBET_RETURN_IF_ERROR(rabbet_network_check_tensor(network, tensor));
  RABBET_RETURN_IF_ERROR(
      rabbet_network_infer_until(network, network->layers.count));
  bool is_constant = tensor->kind == RABBET_TENSOR_WEIGHTS ||
                     (tensor->producer &&
                      rabbet_op_is(tensor->producer->op, RABBET_OP_CONSTANT));
  if (is_refittable && (!is_constant || !rabbet_dtype_is_float(tensor->dtype)))
    return RABBET_STATUS(
        RABBET_STATUS_INVALID_ARGUMENT,
        "tensor '%s' is %s: weights and constants of floating types can be "
        "refitted",
        tensor->name,
        is_constant ? rabbet_dtype_name(tensor->dtype) : "computed");
  tensor->is_refittable = is_refittable;
  return rabbet_ok();
}

bool rabbet_tensor_is_refittable(const rabbet_tensor_t* tensor) {
  return tensor->is_refittable;
}

rabbet_status_t rabbet_tensor_set_range(rabbet_tensor_t* tensor, float min,
                                        float max) {
  RABBET_RETURN_IF_ERROR(rabbet_network_check_tensor(tensor->network, tensor));
  if (!isfinite(min) || !isfinite(max) || min > max || (min == 0 && max == 0)) {
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "tensor '%s': [%g, %g] is not a range; min and max "
                         "must be finite, min not above max, and not both 0",
                         tensor->name, (double)min, (double)max);
  }
  tensor->has_range = true;
  tensor->range[0] = min;
  tensor->range[1] = max;
  return rabbet_ok();
}

void rabbet_tensor_reset_range(rabbet_tensor_t* tensor) {
  tensor->has_range = false;
}

bool rabbet_tensor_range(const rabbet_tensor_t* tensor, float* out_min,
                         float* out_max) {
  *out_min = tensor->has_range ? tensor->range[0] : 0;
  *out_max = tensor->has_range ? tensor->range[1] : 0;
  return tensor->has_range;
}

rabbet_tensor_t* rabbet_network_find_tensor(const rabbet_network_t* network,
                                            const char* name) {
  return rabbet_map_get_string(&network->tensor_names, name);
}
