#include <string.h>

#include "base/text.h"
#include "network/inside.h"
#include "ops/collective/dist_collective.h"

// ---- Life ------------------------------------------------------------------

rabbet_status_t rabbet_network_create(uint32_t flags,
                                      rabbet_allocator_t allocator,
                                      rabbet_logger_t logger,
                                      rabbet_network_t** out_network) {
  *out_network = NULL;
  if (flags & ~(uint32_t)RABBET_NETWORK_STRONGLY_TYPED) {
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "network flags 0x%x: only STRONGLY_TYPED (0x1) is "
                         "known",
                         flags);
  }
  rabbet_network_t* network = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(allocator, sizeof(*network), (void**)&network));
  network->allocator = allocator;
  rabbet_refcount_initialize(&network->references);
  network->logger = logger;
  network->flags = flags;
  network->name = "";
  rabbet_arena_initialize(allocator, &network->arena);
  rabbet_arena_initialize(allocator, &network->infer_arena);
  rabbet_map_initialize(allocator, &network->tensor_names);
  rabbet_map_initialize(allocator, &network->layer_names);
  *out_network = network;
  return rabbet_ok();
}

void rabbet_network_retain(rabbet_network_t* network) {
  if (network) rabbet_refcount_retain(&network->references);
}

static void network_destroy(rabbet_network_t* network) {
  for (size_t i = 0; i < network->layers.count; ++i) {
    rabbet_plugin_release(network->layers.data[i]->plugin);
  }
  for (rabbet_network_owner_t* o = network->owners; o; o = o->next) {
    o->destroy(o->owner);
  }
  rabbet_expr_graph_destroy(network->graph);
  rabbet_map_deinitialize(&network->tensor_names);
  rabbet_map_deinitialize(&network->layer_names);
  rabbet_vec_free(network->allocator, &network->tensors);
  rabbet_vec_free(network->allocator, &network->layers);
  rabbet_vec_free(network->allocator, &network->inputs);
  rabbet_vec_free(network->allocator, &network->outputs);
  for (size_t i = 0; i < network->loops.count; ++i) {
    rabbet_vec_free(network->allocator, &network->loops.data[i]->layers);
  }
  rabbet_vec_free(network->allocator, &network->loops);
  rabbet_vec_free(network->allocator, &network->conditionals);
  rabbet_vec_free(network->allocator, &network->checks);
  rabbet_arena_deinitialize(&network->infer_arena);
  rabbet_arena_deinitialize(&network->arena);
  rabbet_free(network->allocator, network);
}

void rabbet_network_release(rabbet_network_t* network) {
  if (network && rabbet_refcount_release(&network->references)) {
    network_destroy(network);
  }
}

uint32_t rabbet_network_flags(const rabbet_network_t* network) {
  return network->flags;
}

const char* rabbet_network_name(const rabbet_network_t* network) {
  return network->name;
}

rabbet_status_t rabbet_network_set_name(rabbet_network_t* network,
                                        const char* name) {
  RABBET_RETURN_IF_ERROR(rabbet_text_check("the name of a network", name));
  return rabbet_arena_strdup(&network->arena, name ? name : "", &network->name);
}

rabbet_status_t rabbet_network_take_owner(rabbet_network_t* network,
                                          void* owner,
                                          void (*destroy)(void* owner)) {
  rabbet_network_owner_t* entry = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate(&network->arena, sizeof(*entry), (void**)&entry));
  *entry = (rabbet_network_owner_t){
      .next = network->owners, .owner = owner, .destroy = destroy};
  network->owners = entry;
  return rabbet_ok();
}

void rabbet_network_set_owner_check(
    rabbet_network_t* network, rabbet_status_t (*check)(const void* owner)) {
  network->owners->check = check;
}

rabbet_status_t rabbet_network_check_owners(const rabbet_network_t* network) {
  for (const rabbet_network_owner_t* o = network->owners; o; o = o->next)
    if (o->check) RABBET_RETURN_IF_ERROR(o->check(o->owner));
  return rabbet_ok();
}

// ---- Names -----------------------------------------------------------------

rabbet_status_t rabbet_network_free_name(rabbet_network_t* network,
                                         const rabbet_map_t* names,
                                         const char* base,
                                         const char** out_name) {
  *out_name = NULL;
  if (!rabbet_map_get_string(names, base)) {
    return rabbet_arena_strdup(&network->arena, base, out_name);
  }
  // Starting at the number of names, so that the first try nearly always fits.
  for (size_t number = names->live;; ++number) {
    RABBET_RETURN_IF_ERROR(
        rabbet_arena_printf(&network->arena, out_name, "%s_%zu", base, number));
    if (!rabbet_map_get_string(names, *out_name)) return rabbet_ok();
  }
}

static rabbet_status_t network_rename(rabbet_network_t* network,
                                      rabbet_tensor_t* tensor,
                                      const char* name) {
  RABBET_RETURN_IF_ERROR(
      rabbet_map_set(&network->tensor_names, name, strlen(name), tensor));
  rabbet_map_remove(&network->tensor_names, tensor->name, strlen(tensor->name));
  tensor->name = name;
  return rabbet_ok();
}

rabbet_status_t rabbet_network_claim_tensor_name(rabbet_network_t* network,
                                                 const char* name,
                                                 const char** out_name) {
  *out_name = NULL;
  if (!name || !*name) {
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "a tensor's name must not be empty");
  }
  RABBET_RETURN_IF_ERROR(rabbet_text_check("the name of a tensor", name));
  rabbet_tensor_t* other = rabbet_map_get_string(&network->tensor_names, name);
  if (other && other->has_own_name) {
    return RABBET_STATUS(RABBET_STATUS_ALREADY_EXISTS,
                         "there is a tensor named '%s' already", name);
  }
  if (other) {
    const char* made_up = NULL;
    RABBET_RETURN_IF_ERROR(rabbet_network_free_name(
        network, &network->tensor_names, name, &made_up));
    RABBET_RETURN_IF_ERROR(network_rename(network, other, made_up));
  }
  return rabbet_arena_strdup(&network->arena, name, out_name);
}

rabbet_status_t rabbet_network_claim_layer_name(rabbet_network_t* network,
                                                const char* name,
                                                const char** out_name) {
  *out_name = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_text_check("the name of a layer", name));
  if (rabbet_map_get_string(&network->layer_names, name)) {
    return RABBET_STATUS(RABBET_STATUS_ALREADY_EXISTS,
                         "there is a layer named '%s' already", name);
  }
  return rabbet_arena_strdup(&network->arena, name, out_name);
}

// ---- Tensors ---------------------------------------------------------------

rabbet_status_t rabbet_network_new_tensor(rabbet_network_t* network,
                                          rabbet_tensor_kind_t kind,
                                          const char* name,
                                          rabbet_tensor_t** out_tensor) {
  *out_tensor = NULL;
  rabbet_tensor_t* tensor = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate(&network->arena, sizeof(*tensor), (void**)&tensor));
  tensor->network = network;
  tensor->id = -1;
  tensor->kind = kind;
  tensor->name = name;
  tensor->has_own_name = kind != RABBET_TENSOR_LAYER;
  tensor->allowed_formats = UINT64_C(1) << RABBET_FORMAT_LINEAR;
  tensor->dtype = RABBET_DTYPE_NONE;
  tensor->wished_dtype = RABBET_DTYPE_NONE;
  *out_tensor = tensor;
  return rabbet_ok();
}

rabbet_status_t rabbet_network_enter_tensor(rabbet_network_t* network,
                                            rabbet_tensor_t* tensor) {
  RABBET_RETURN_IF_ERROR(
      RABBET_VEC_RESERVE(network->allocator, &network->tensors, 1));
  RABBET_RETURN_IF_ERROR(rabbet_map_set(&network->tensor_names, tensor->name,
                                        strlen(tensor->name), tensor));
  tensor->id = (int32_t)network->tensors.count;
  network->tensors.data[network->tensors.count++] = tensor;
  return rabbet_ok();
}

rabbet_status_t rabbet_network_check_tensor(const rabbet_network_t* network,
                                            const rabbet_tensor_t* tensor) {
  if (tensor && tensor->network == network && tensor->id >= 0) {
    return rabbet_ok();
  }
  if (!tensor) {
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "a tensor is expected, but none is given");
  }
  return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT, "tensor '%s' %s",
                       tensor->name,
                       tensor->id < 0 ? "was removed from its network"
                                      : "belongs to another network");
}

static rabbet_status_t network_check_dims(const char* name,
                                          const rabbet_dims_t* dims,
                                          int64_t least) {
  if (dims->rank < 0 || dims->rank > RABBET_MAX_RANK) {
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "tensor '%s' has rank %d; expected 0 to %d", name,
                         dims->rank, RABBET_MAX_RANK);
  }
  for (int32_t i = 0; i < dims->rank; ++i) {
    if (dims->d[i] >= least) continue;
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "dimension %d of tensor '%s' is %lld; expected %s", i,
                         name, (long long)dims->d[i],
                         least < 0 ? "-1 (dynamic), 0 or more" : "0 or more");
  }
  return rabbet_ok();
}

static rabbet_status_t network_check_dtype(const char* name,
                                           rabbet_dtype_t dtype) {
  if (dtype >= 0 && dtype < RABBET_DTYPE_COUNT) return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                       "tensor '%s': %d is not a data type", name, (int)dtype);
}

rabbet_status_t rabbet_network_add_input(rabbet_network_t* network,
                                         const char* name, rabbet_dtype_t dtype,
                                         const rabbet_dims_t* dims,
                                         rabbet_tensor_t** out_tensor) {
  *out_tensor = NULL;
  const char* copy = NULL;
  rabbet_tensor_t* tensor = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_network_claim_tensor_name(network, name, &copy));
  RABBET_RETURN_IF_ERROR(network_check_dtype(name, dtype));
  RABBET_RETURN_IF_ERROR(network_check_dims(name, dims, -1));
  RABBET_RETURN_IF_ERROR(
      rabbet_network_new_tensor(network, RABBET_TENSOR_INPUT, copy, &tensor));
  tensor->dtype = dtype;
  tensor->given_dims = *dims;
  RABBET_RETURN_IF_ERROR(
      RABBET_VEC_RESERVE(network->allocator, &network->inputs, 1));
  RABBET_RETURN_IF_ERROR(rabbet_network_enter_tensor(network, tensor));
  network->inputs.data[network->inputs.count++] = tensor;
  *out_tensor = tensor;
  return rabbet_ok();
}

static rabbet_status_t network_check_weights(const char* name,
                                             const rabbet_weights_t* weights,
                                             const rabbet_dims_t* dims,
                                             size_t* out_size) {
  int64_t count = 0;
  RABBET_RETURN_IF_ERROR(network_check_dtype(name, weights->dtype));
  RABBET_RETURN_IF_ERROR(network_check_dims(name, dims, 0));
  RABBET_RETURN_IF_ERROR(
      RABBET_ANNOTATE(rabbet_dims_count(dims, &count), "weights '%s'", name));
  if (count != weights->count) {
    char text[128];
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "weights '%s' have %lld elements, but shape %s has "
                         "%lld",
                         name, (long long)weights->count,
                         rabbet_dims_print(dims, text, sizeof text),
                         (long long)count);
  }
  if (count > 0 && !weights->data) {
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "weights '%s' have no data", name);
  }
  return RABBET_ANNOTATE(
      rabbet_tensor_bytes(weights->dtype, RABBET_FORMAT_LINEAR, dims, out_size),
      "weights '%s'", name);
}

rabbet_status_t rabbet_network_add_weights(rabbet_network_t* network,
                                           const char* name,
                                           rabbet_weights_t weights,
                                           const rabbet_dims_t* dims, bool copy,
                                           rabbet_tensor_t** out_tensor) {
  *out_tensor = NULL;
  const char* own_name = NULL;
  rabbet_tensor_t* tensor = NULL;
  size_t size = 0;
  RABBET_RETURN_IF_ERROR(
      name ? rabbet_network_claim_tensor_name(network, name, &own_name)
           : rabbet_network_free_name(network, &network->tensor_names,
                                      "weights", &own_name));
  RABBET_RETURN_IF_ERROR(
      network_check_weights(own_name, &weights, dims, &size));
  RABBET_RETURN_IF_ERROR(rabbet_network_new_tensor(
      network, RABBET_TENSOR_WEIGHTS, own_name, &tensor));
  tensor->has_own_name = name != NULL;
  tensor->dtype = weights.dtype;
  tensor->given_dims = *dims;
  tensor->constant = weights.data ? weights.data : "";
  if (copy) {
    void* data = NULL;
    RABBET_RETURN_IF_ERROR(
        rabbet_arena_copy(&network->arena, tensor->constant, size, &data));
    tensor->constant = data;
  }
  RABBET_RETURN_IF_ERROR(rabbet_network_enter_tensor(network, tensor));
  *out_tensor = tensor;
  return rabbet_ok();
}

// ---- Outputs ---------------------------------------------------------------

rabbet_status_t rabbet_network_mark_output(rabbet_network_t* network,
                                           rabbet_tensor_t* tensor) {
  RABBET_RETURN_IF_ERROR(rabbet_network_check_tensor(network, tensor));
  if (tensor->is_output) return rabbet_ok();
  if (tensor->kind != RABBET_TENSOR_LAYER) {
    return RABBET_STATUS(
        RABBET_STATUS_INVALID_ARGUMENT,
        "tensor '%s' is %s, which cannot be an output itself; put an identity "
        "layer behind it and mark that layer's output",
        tensor->name,
        tensor->kind == RABBET_TENSOR_INPUT ? "a network input"
                                            : "a weights tensor");
  }
  RABBET_RETURN_IF_ERROR(
      RABBET_VEC_PUSH(network->allocator, &network->outputs, tensor));
  tensor->is_output = true;
  return rabbet_ok();
}

rabbet_status_t rabbet_network_unmark_output(rabbet_network_t* network,
                                             rabbet_tensor_t* tensor) {
  RABBET_RETURN_IF_ERROR(rabbet_network_check_tensor(network, tensor));
  for (size_t i = 0; i < network->outputs.count; ++i) {
    if (network->outputs.data[i] != tensor) continue;
    memmove(network->outputs.data + i, network->outputs.data + i + 1,
            (--network->outputs.count - i) * sizeof(tensor));
    tensor->is_output = false;
    return rabbet_ok();
  }
  return RABBET_STATUS(RABBET_STATUS_NOT_FOUND,
                       "tensor '%s' is not marked as an output", tensor->name);
}

// ---- Looking ---------------------------------------------------------------

size_t rabbet_network_input_count(const rabbet_network_t* network) {
  return network->inputs.count;
}

rabbet_tensor_t* rabbet_network_input(const rabbet_network_t* network,
                                      size_t index) {
  return index < network->inputs.count ? network->inputs.data[index] : NULL;
}

size_t rabbet_network_output_count(const rabbet_network_t* network) {
  return network->outputs.count;
}

rabbet_tensor_t* rabbet_network_output(const rabbet_network_t* network,
                                       size_t index) {
  return index < network->outputs.count ? network->outputs.data[index] : NULL;
}

size_t rabbet_network_layer_count(const rabbet_network_t* network) {
  return network->layers.count;
}

rabbet_layer_t* rabbet_network_layer(const rabbet_network_t* network,
                                     size_t index) {
  return index < network->layers.count ? network->layers.data[index] : NULL;
}

static rabbet_status_t network_check_loops(rabbet_network_t* network) {
  rabbet_regions_t regions;
  rabbet_arena_t arena;
  rabbet_arena_initialize(network->allocator, &arena);
  rabbet_status_t status = rabbet_regions_find(network, &arena, &regions);
  rabbet_arena_deinitialize(&arena);
  return status;
}

bool rabbet_network_has_results(const rabbet_network_t* network) {
  if (network->outputs.count > 0) return true;
  for (size_t i = 0; i < network->layers.count; ++i) {
    const rabbet_layer_t* layer = network->layers.data[i];
    if (rabbet_collective_exchanges(layer->op, layer->attrs)) return true;
  }
  return false;
}

rabbet_status_t rabbet_network_validate(rabbet_network_t* network) {
  RABBET_RETURN_IF_ERROR(rabbet_network_infer(network));
  if (network->loops.count > 0) {
    RABBET_RETURN_IF_ERROR(network_check_loops(network));
  }
  if (rabbet_network_has_results(network)) return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_FAILED_PRECONDITION,
                       "the network has no outputs; mark at least one tensor");
}
