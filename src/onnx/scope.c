// Names: their values and their scopes.
#include <assert.h>
#include <string.h>

#include "onnx/held.h"

void rabbet_onnx_fail(rabbet_onnx_node_t* node, rabbet_status_t status) {
  if (rabbet_is_ok(node->status)) {
    node->status = status;
  } else {
    rabbet_status_ignore(status);
  }
}

const char* rabbet_onnx_domain(const char* domain) {
  return domain && strcmp(domain, "ai.onnx") ? domain : "";
}

void rabbet_onnx_scope_initialize(rabbet_onnx_importer_t* importer,
                                  rabbet_onnx_scope_t* parent,
                                  rabbet_onnx_scope_t* out_scope) {
  *out_scope = (rabbet_onnx_scope_t){
      .importer = importer, .parent = parent, .prefix = ""};
  rabbet_map_initialize(importer->network->allocator, &out_scope->values);
  if (!parent) return;
  out_scope->depth = parent->depth + 1;
  out_scope->opsets = parent->opsets;
  out_scope->opset_count = parent->opset_count;
  out_scope->arguments = parent->arguments;
  out_scope->argument_count = parent->argument_count;
  out_scope->function = parent->function;
  out_scope->loop = parent->loop;
}

void rabbet_onnx_scope_deinitialize(rabbet_onnx_scope_t* scope) {
  rabbet_map_deinitialize(&scope->values);
}

static rabbet_status_t onnx_bind(rabbet_onnx_scope_t* scope, const char* name,
                                 rabbet_onnx_value_t value) {
  if (rabbet_map_get_string(&scope->values, name)) {
    return RABBET_STATUS(RABBET_STATUS_ALREADY_EXISTS,
                         "the name '%s' is given to two values of one graph",
                         name);
  }
  rabbet_onnx_value_t* copy;
  RABBET_RETURN_IF_ERROR(rabbet_arena_copy(&scope->importer->arena, &value,
                                           sizeof(value), (void**)&copy));
  return rabbet_map_set(&scope->values, name, strlen(name), copy);
}

rabbet_status_t rabbet_onnx_scope_bind(rabbet_onnx_scope_t* scope,
                                       const char* name,
                                       rabbet_tensor_t* tensor) {
  return onnx_bind(scope, name, (rabbet_onnx_value_t){.tensor = tensor});
}

rabbet_status_t rabbet_onnx_scope_bind_initializer(
    rabbet_onnx_scope_t* scope, const Onnx__TensorProto* initializer) {
  if (!initializer->name || !initializer->name[0]) {
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "an initializer has no name");
  }
  return onnx_bind(scope, initializer->name,
                   (rabbet_onnx_value_t){.initializer = initializer});
}

static rabbet_status_t onnx_use_initializer(rabbet_onnx_scope_t* scope,
                                            rabbet_onnx_value_t* value) {
  assert(value->initializer && !value->tensor);
  rabbet_onnx_importer_t* importer = scope->importer;
  rabbet_onnx_constant_t constant;
  RABBET_RETURN_IF_ERROR(
      rabbet_onnx_tensor_read(importer->storage, importer->network->logger,
                              value->initializer, &constant));
  const char* name = value->initializer->name;
  if (scope->prefix[0]) {
    RABBET_RETURN_IF_ERROR(rabbet_arena_printf(&importer->arena, &name, "%s%s",
                                               scope->prefix, name));
  }
  RABBET_RETURN_IF_ERROR(
      rabbet_network_add_weights(importer->network, name, constant.weights,
                                 &constant.dims, false, &value->tensor));
  return rabbet_onnx_hold(importer, name, value->tensor,
                          value->initializer->data_type);
}

// A tensor from outside becomes an input of the conditional. Constants are
// copied into the branch.
static rabbet_status_t onnx_enter_tensor(rabbet_onnx_scope_t* scope,
                                         const char* name,
                                         rabbet_tensor_t** tensor) {
  const rabbet_layer_t* producer = rabbet_tensor_producer(*tensor);
  bool is_constant =
      (*tensor)->kind == RABBET_TENSOR_WEIGHTS ||
      (producer && rabbet_op_is(producer->op, RABBET_OP_CONSTANT));
  rabbet_layer_t* layer = NULL;
  if (is_constant) return rabbet_ok();
  int32_t held = rabbet_onnx_held(scope->importer, *tensor);
  RABBET_RETURN_IF_ERROR(
      rabbet_conditional_add_input(scope->conditional, *tensor, &layer));
  *tensor = rabbet_layer_output(layer, 0);
  return rabbet_onnx_hold(scope->importer, name, *tensor, held);
}

// The list with its tensors in the branch.
static rabbet_status_t onnx_enter_list(rabbet_onnx_scope_t* scope,
                                       const char* name,
                                       rabbet_tensor_t** handle) {
  const rabbet_onnx_list_t* from = rabbet_onnx_list(*handle);
  rabbet_arena_t* arena = &scope->importer->arena;
  rabbet_onnx_list_t* list = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_copy(arena, from, sizeof(*from), (void**)&list));
  RABBET_RETURN_IF_ERROR(rabbet_arena_copy(arena, from->items,
                                           from->count * sizeof(*list->items),
                                           (void**)&list->items));
  for (size_t i = 0; i < list->count; ++i)
    RABBET_RETURN_IF_ERROR(onnx_enter_tensor(scope, name, &list->items[i]));
  if (list->told.tensor)
    RABBET_RETURN_IF_ERROR(onnx_enter_tensor(scope, name, &list->told.tensor));
  if (list->told.ends)
    RABBET_RETURN_IF_ERROR(onnx_enter_tensor(scope, name, &list->told.ends));
  *handle = &list->handle;
  return rabbet_ok();
}

static rabbet_status_t onnx_enter_branch(rabbet_onnx_scope_t* scope,
                                         const char* name,
                                         rabbet_tensor_t** tensor) {
  const rabbet_tensor_t* before = *tensor;
  if (!scope->conditional) return rabbet_ok();
  if (rabbet_onnx_list(*tensor)) {
    RABBET_RETURN_IF_ERROR(onnx_enter_list(scope, name, tensor));
    return rabbet_onnx_scope_bind(scope, name, *tensor);
  }
  RABBET_RETURN_IF_ERROR(onnx_enter_tensor(scope, name, tensor));
  if (*tensor == before) return rabbet_ok();
  return rabbet_onnx_scope_bind(scope, name, *tensor);
}

// *out_tensor is NULL if no node makes the name.
static rabbet_status_t onnx_scope_find(rabbet_onnx_scope_t* scope,
                                       const char* name,
                                       rabbet_tensor_t** out_tensor) {
  rabbet_onnx_value_t* value = rabbet_map_get_string(&scope->values, name);
  if (!value) {
    *out_tensor = NULL;
    if (!scope->parent) return rabbet_ok();
    RABBET_RETURN_IF_ERROR(onnx_scope_find(scope->parent, name, out_tensor));
    return *out_tensor ? onnx_enter_branch(scope, name, out_tensor)
                       : rabbet_ok();
  }
  if (!value->tensor && value->initializer)
    RABBET_RETURN_IF_ERROR(onnx_use_initializer(scope, value));
  *out_tensor = value->tensor;
  return rabbet_ok();
}

rabbet_status_t rabbet_onnx_scope_lookup(rabbet_onnx_scope_t* scope,
                                         const char* name,
                                         rabbet_tensor_t** out_tensor) {
  RABBET_RETURN_IF_ERROR(onnx_scope_find(scope, name, out_tensor));
  if (*out_tensor) return rabbet_ok();
  return RABBET_STATUS(
      RABBET_STATUS_NOT_FOUND,
      "'%s' is undefined: no input, initializer or node output has that name",
      name);
}

int64_t rabbet_onnx_scope_opset(const rabbet_onnx_scope_t* scope,
                                const char* domain) {
  for (size_t i = 0; i < scope->opset_count; ++i) {
    const char* found = rabbet_onnx_domain(scope->opsets[i]->domain);
    if (!strcmp(found, rabbet_onnx_domain(domain))) {
      return scope->opsets[i]->version;
    }
  }
  return 0;
}
