// Local functions, written out where they are called.
#include <string.h>

#include "onnx/import.h"

static bool onnx_same(const char* a, const char* b) {
  return !strcmp(a ? a : "", b ? b : "");
}

const Onnx__FunctionProto* rabbet_onnx_find_function(
    const rabbet_onnx_importer_t* importer, const Onnx__NodeProto* node) {
  const Onnx__ModelProto* model = importer->model;
  const char* domain = rabbet_onnx_domain(node->domain);
  for (size_t i = 0; i < model->n_functions; ++i) {
    const Onnx__FunctionProto* function = model->functions[i];
    if (onnx_same(function->name, node->op_type) &&
        onnx_same(rabbet_onnx_domain(function->domain), domain) &&
        onnx_same(function->overload, node->overload)) {
      return function;
    }
  }
  return NULL;
}

// The call's attributes, then defaults of those that it leaves out.
static rabbet_status_t onnx_function_arguments(
    const rabbet_onnx_node_t* node, const Onnx__FunctionProto* function,
    rabbet_onnx_scope_t* body) {
  size_t most = node->attr_count + function->n_attribute_proto;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &node->importer->arena, most, sizeof(*body->arguments),
      (void**)&body->arguments));
  body->argument_count = 0;
  for (size_t i = 0; i < node->attr_count; ++i) {
    body->arguments[body->argument_count++] = node->attrs[i];
  }
  for (size_t i = 0; i < function->n_attribute_proto; ++i) {
    Onnx__AttributeProto* attr = function->attribute_proto[i];
    bool given = false;
    for (size_t j = 0; j < node->attr_count; ++j) {
      given |= onnx_same(node->attrs[j]->name, attr->name);
    }
    if (!given) body->arguments[body->argument_count++] = attr;
  }
  return rabbet_ok();
}

static rabbet_status_t onnx_bind_parameters(const rabbet_onnx_node_t* node,
                                            const Onnx__FunctionProto* function,
                                            rabbet_onnx_scope_t* body) {
  if (node->input_count > function->n_input) {
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "function '%s' has %zu inputs, but the call gives %zu",
                         function->name, function->n_input, node->input_count);
  }
  for (size_t i = 0; i < function->n_input; ++i) {
    rabbet_tensor_t* tensor = i < node->input_count ? node->inputs[i] : NULL;
    RABBET_RETURN_IF_ERROR(
        rabbet_onnx_scope_bind(body, function->input[i], tensor));
  }
  return rabbet_ok();
}

static rabbet_status_t onnx_collect_results(rabbet_onnx_node_t* node,
                                            const Onnx__FunctionProto* function,
                                            rabbet_onnx_scope_t* body) {
  if (node->output_count > function->n_output) {
    return RABBET_STATUS(
        RABBET_STATUS_INVALID_ARGUMENT,
        "function '%s' has %zu outputs, but the call takes %zu", function->name,
        function->n_output, node->output_count);
  }
  for (size_t i = 0; i < node->output_count; ++i) {
    if (!node->proto->output[i][0]) continue;
    RABBET_RETURN_IF_ERROR(
        rabbet_onnx_scope_lookup(body, function->output[i], &node->outputs[i]));
  }
  return rabbet_ok();
}

static rabbet_status_t onnx_call(rabbet_onnx_node_t* node,
                                 const Onnx__FunctionProto* function,
                                 rabbet_onnx_scope_t* body) {
  body->function = function;
  body->depth = node->scope->depth + 1;
  body->nodes = function->node;
  body->node_count = function->n_node;
  bool own = function->n_opset_import > 0;
  body->opsets = own ? function->opset_import : node->scope->opsets;
  body->opset_count = own ? function->n_opset_import : node->scope->opset_count;
  RABBET_RETURN_IF_ERROR(rabbet_arena_printf(&node->importer->arena,
                                             &body->prefix, "%s/", node->name));
  RABBET_RETURN_IF_ERROR(onnx_function_arguments(node, function, body));
  RABBET_RETURN_IF_ERROR(onnx_bind_parameters(node, function, body));
  RABBET_RETURN_IF_ERROR(rabbet_onnx_import_nodes(body));
  return onnx_collect_results(node, function, body);
}

void rabbet_onnx_import_function(rabbet_onnx_node_t* node,
                                 const Onnx__FunctionProto* function) {
  if (node->scope->depth >= RABBET_ONNX_MAX_SCOPES) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "functions call each other more than %d deep (or "
                     "themselves)",
                     RABBET_ONNX_MAX_SCOPES);
    return;
  }
  rabbet_onnx_scope_t body;
  rabbet_onnx_scope_initialize(node->importer, NULL, &body);
  body.loop = node->scope->loop;
  rabbet_onnx_fail(node, onnx_call(node, function, &body));
  rabbet_onnx_scope_deinitialize(&body);
}
