// Nodes: the importer of each, its operands and the names of its layers.
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "onnx/held.h"
#include "onnx/operators.h"

// "node 3 'conv1' (Conv, domain 'ai.onnx', opset 17)" before the message.
static rabbet_status_t onnx_annotate_node(const rabbet_onnx_scope_t* scope,
                                          const Onnx__NodeProto* node,
                                          size_t index,
                                          rabbet_status_t status) {
  if (rabbet_is_ok(status)) return status;
  const char* domain = rabbet_onnx_domain(node->domain);
  const char* function = scope->function ? scope->function->name : NULL;
  return rabbet_status_annotate(
      status, "node %zu '%s' (%s, domain '%s', opset %lld%s%s%s)", index,
      node->name ? node->name : "", node->op_type ? node->op_type : "",
      domain[0] ? domain : "ai.onnx",
      (long long)rabbet_onnx_scope_opset(scope, domain),
      function ? ", in function '" : "", function ? function : "",
      function ? "'" : "");
}

// ---- Choice of a node's importer -------------------------------------------

typedef struct onnx_route_t {
  const rabbet_onnx_operator_t* op;
  const rabbet_plugin_creator_t* creator;  // retained
  const Onnx__FunctionProto* function;
} onnx_route_t;

static bool onnx_names_plugin(const Onnx__NodeProto* node) {
  for (size_t i = 0; i < node->n_attribute; ++i) {
    const char* name = node->attribute[i]->name;
    if (name && !strcmp(name, "plugin_namespace")) return true;
  }
  return false;
}

// ONNX Runtime has it in each operator set, and its optimizer writes it into
// models that are older than ONNX's own.
static bool onnx_is_in_each_opset(const rabbet_onnx_operator_t* op) {
  return !strcmp(op->name, "LayerNormalization");
}

// The operator's oldest version must not be newer than the model's.
static rabbet_status_t onnx_check_since(const rabbet_onnx_scope_t* scope,
                                        const rabbet_onnx_operator_t* op) {
  int64_t opset = rabbet_onnx_scope_opset(scope, op->domain);
  if (opset == 0) {
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "the model imports no version of the operator set "
                         "'%s' that the node belongs to",
                         op->domain[0] ? op->domain : "ai.onnx");
  }
  if (opset >= op->since[0] || onnx_is_in_each_opset(op)) return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                       "the operator exists from opset %d on, but the model "
                       "uses %lld",
                       op->since[0], (long long)opset);
}

static rabbet_status_t onnx_unknown(const Onnx__NodeProto* node,
                                    const char* domain) {
  const char* reason = rabbet_onnx_operator_missing(domain, node->op_type);
  if (reason) return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED, "%s", reason);
  char near_names[256];
  rabbet_onnx_operator_suggest(domain, node->op_type, near_names,
                               sizeof(near_names));
  rabbet_status_t missing = rabbet_onnx_plugin_missing(node);
  rabbet_status_t status = RABBET_STATUS(
      RABBET_STATUS_UNSUPPORTED,
      "the operator is not known: it is neither an operator of the importer "
      "nor a local function of the model%s For an operator of your own, give "
      "the file that registers it to plugins= (the command: --plugins), or "
      "import or load that file first: %s",
      near_names[0] ? near_names : ".", rabbet_status_message(missing));
  rabbet_status_free(missing);
  return status;
}

// The order: a plugin that the node asks for (or that overrides), the
// importer's own operators, the model's functions, any plugin of that name.
static rabbet_status_t onnx_route(const rabbet_onnx_scope_t* scope,
                                  const Onnx__NodeProto* node,
                                  onnx_route_t* out_route) {
  *out_route = (onnx_route_t){0};
  if (!node->op_type || !node->op_type[0]) {
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "the node names no operator");
  }
  const rabbet_onnx_importer_t* importer = scope->importer;
  if (importer->plugin_override || onnx_names_plugin(node)) {
    RABBET_RETURN_IF_ERROR(rabbet_onnx_find_plugin(node, &out_route->creator));
    if (out_route->creator) return rabbet_ok();
  }
  const char* domain = rabbet_onnx_domain(node->domain);
  out_route->op = rabbet_onnx_operator_find(domain, node->op_type);
  if (out_route->op && out_route->op->stands_in) {
    RABBET_RETURN_IF_ERROR(rabbet_onnx_find_plugin(node, &out_route->creator));
    if (out_route->creator) out_route->op = NULL;
    if (out_route->creator) return rabbet_ok();
  }
  if (out_route->op) return onnx_check_since(scope, out_route->op);
  out_route->function = rabbet_onnx_find_function(importer, node);
  if (out_route->function) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_onnx_find_plugin(node, &out_route->creator));
  if (out_route->creator) return rabbet_ok();
  return onnx_unknown(node, domain);
}

// ---- A look ahead ----------------------------------------------------------

// Everything that cannot be imported is reported at once, not only the first.
typedef struct onnx_survey_t {
  rabbet_status_t first;
  size_t count;
  int outer;               // index of the main graph's node
  rabbet_map_t functions;  // bool: visited; true: not importable
} onnx_survey_t;

static rabbet_status_t onnx_survey_nodes(const rabbet_onnx_scope_t* scope,
                                         onnx_survey_t* survey);

// A function's errors are listed once. Other calls of it get one error each.
static rabbet_status_t onnx_survey_function(const rabbet_onnx_scope_t* scope,
                                            const Onnx__FunctionProto* function,
                                            onnx_survey_t* survey,
                                            bool* out_known_bad) {
  *out_known_bad = false;
  // Keyed by address: names may be shared by overloads.
  char key[32];
  const char* copy;
  int size = snprintf(key, sizeof(key), "%p", (const void*)function);
  bool* bad = rabbet_map_get(&survey->functions, key, (size_t)size);
  if (bad) *out_known_bad = *bad;
  if (bad) return rabbet_ok();
  if (scope->depth == RABBET_ONNX_MAX_SCOPES) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_strdup(&scope->importer->arena, key, &copy));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &scope->importer->arena, 1, sizeof(*bad), (void**)&bad));
  *bad = false;
  RABBET_RETURN_IF_ERROR(
      rabbet_map_set(&survey->functions, copy, (size_t)size, bad));
  rabbet_onnx_scope_t body = *scope;
  body.depth = scope->depth + 1;
  body.function = function;
  body.nodes = function->node;
  body.node_count = function->n_node;
  if (function->n_opset_import) {
    body.opsets = function->opset_import;
    body.opset_count = function->n_opset_import;
  }
  size_t count = survey->count;
  RABBET_RETURN_IF_ERROR(onnx_survey_nodes(&body, survey));
  *bad = survey->count > count;
  return rabbet_ok();
}

// Whether a node's operator can be imported; its attributes and inputs are not
// looked at.
static rabbet_status_t onnx_survey_node(const rabbet_onnx_scope_t* scope,
                                        const Onnx__NodeProto* node,
                                        onnx_survey_t* survey) {
  onnx_route_t route;
  bool known_bad = false;
  rabbet_status_t status = onnx_route(scope, node, &route);
  if (route.creator) rabbet_plugin_creator_release(route.creator);
  if (rabbet_is_ok(status) && route.function) {
    status = onnx_survey_function(scope, route.function, survey, &known_bad);
  }
  if (!known_bad) return status;
  return RABBET_STATUS(
      RABBET_STATUS_UNSUPPORTED,
      "the function '%s' has nodes that cannot be imported, as "
      "the error about its first call says",
      route.function->name);
}

static rabbet_status_t onnx_survey_nodes(const rabbet_onnx_scope_t* scope,
                                         onnx_survey_t* survey) {
  for (size_t i = 0; i < scope->node_count; ++i) {
    const Onnx__NodeProto* node = scope->nodes[i];
    if (scope->depth == 0) survey->outer = (int)i;
    rabbet_status_t status = onnx_survey_node(scope, node, survey);
    if (rabbet_is_ok(status)) continue;
    if (rabbet_status_code(status) == RABBET_STATUS_OUT_OF_MEMORY) {
      return status;
    }
    status = onnx_annotate_node(scope, node, i, status);
    rabbet_status_t added = rabbet_onnx_errors_add(
        scope->importer->errors, status, (int)i, survey->outer, node);
    survey->count++;
    if (rabbet_is_ok(survey->first)) {
      survey->first = status;
    } else {
      rabbet_status_ignore(status);
    }
    RABBET_RETURN_IF_ERROR(added);
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_onnx_check_support(const rabbet_onnx_scope_t* scope) {
  onnx_survey_t survey = {0};
  rabbet_map_initialize(scope->importer->network->allocator, &survey.functions);
  rabbet_status_t status = onnx_survey_nodes(scope, &survey);
  rabbet_map_deinitialize(&survey.functions);
  if (!rabbet_is_ok(status)) return rabbet_status_join(status, survey.first);
  if (survey.count < 2) return survey.first;
  return rabbet_status_annotate(
      survey.first, "%zu nodes cannot be imported; the first", survey.count);
}

// ---- Names -----------------------------------------------------------------

bool rabbet_onnx_layer_exists(const rabbet_onnx_importer_t* importer,
                              const char* name) {
  return rabbet_map_get_string(&importer->layer_names, name) ||
         rabbet_map_get_string(&importer->network->layer_names, name);
}

static rabbet_status_t onnx_node_name(rabbet_onnx_node_t* node) {
  rabbet_onnx_importer_t* importer = node->importer;
  const char* given = node->proto->name;
  if (given && given[0]) {
    RABBET_RETURN_IF_ERROR(rabbet_arena_printf(
        &importer->arena, &node->name, "%s%s", node->scope->prefix, given));
  } else {
    RABBET_RETURN_IF_ERROR(rabbet_arena_printf(
        &importer->arena, &node->name, "%s%s_%zu", node->scope->prefix,
        node->proto->op_type, node->index));
  }
  const char* base = node->name;
  for (uint64_t i = importer->node_count;
       rabbet_onnx_layer_exists(importer, node->name); ++i) {
    RABBET_RETURN_IF_ERROR(rabbet_arena_printf(
        &importer->arena, &node->name, "%s#%llu", base, (unsigned long long)i));
  }
  RABBET_RETURN_IF_ERROR(rabbet_arena_printf(&importer->arena, &node->metadata,
                                             "[ONNX Layer: %s]", node->name));
  return rabbet_map_set(&importer->layer_names, node->name, strlen(node->name),
                        node);
}

// ---- Inputs, attributes, outputs -------------------------------------------

static rabbet_status_t onnx_node_inputs(rabbet_onnx_node_t* node) {
  const Onnx__NodeProto* proto = node->proto;
  node->input_count = proto->n_input;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &node->importer->arena, proto->n_input, sizeof(*node->inputs),
      (void**)&node->inputs));
  for (size_t i = 0; i < proto->n_input; ++i) {
    if (!proto->input[i][0]) continue;
    rabbet_status_t status = rabbet_onnx_scope_lookup(
        node->scope, proto->input[i], &node->inputs[i]);
    RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(status, "input %zu", i));
  }
  // Trailing omitted inputs are as if they were not there.
  while (node->input_count && !node->inputs[node->input_count - 1]) {
    node->input_count--;
  }
  return rabbet_ok();
}

// In a function's body an attribute may stand for one of the call's.
static Onnx__AttributeProto* onnx_argument(const rabbet_onnx_scope_t* scope,
                                           const char* name) {
  for (size_t i = 0; i < scope->argument_count; ++i) {
    const char* found = scope->arguments[i]->name;
    if (found && !strcmp(found, name)) return scope->arguments[i];
  }
  return NULL;
}

static rabbet_status_t onnx_node_attrs(rabbet_onnx_node_t* node) {
  const Onnx__NodeProto* proto = node->proto;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate_array(&node->importer->arena, proto->n_attribute,
                                  sizeof(*node->attrs), (void**)&node->attrs));
  for (size_t i = 0; i < proto->n_attribute; ++i) {
    Onnx__AttributeProto* attr = proto->attribute[i];
    if (attr->ref_attr_name && attr->ref_attr_name[0]) {
      const Onnx__AttributeProto* argument =
          onnx_argument(node->scope, attr->ref_attr_name);
      // An attribute that the call omits is omitted in the body, too.
      if (!argument) continue;
      Onnx__AttributeProto* renamed;
      RABBET_RETURN_IF_ERROR(rabbet_arena_copy(&node->importer->arena, argument,
                                               sizeof(*argument),
                                               (void**)&renamed));
      renamed->name = attr->name;
      attr = renamed;
    }
    assert(node->attr_count < proto->n_attribute);
    node->attrs[node->attr_count++] = attr;
  }
  return rabbet_ok();
}

// Whether the tensor was there before the node: the operator passes an input
// through (Identity, Dropout, a cast to the type that it has).
static bool onnx_passes_through(const rabbet_tensor_t* tensor,
                                size_t layers_before) {
  const rabbet_layer_t* producer = rabbet_tensor_producer(tensor);
  return rabbet_tensor_is_input(tensor) ||
         (producer && (size_t)producer->index < layers_before);
}

// Gives the output a tensor of its own under the model's name: users mark
// outputs and set types by these names. The builder removes the layer.
static void onnx_own_tensor(rabbet_onnx_node_t* node, size_t index,
                            size_t layers_before) {
  rabbet_tensor_t* tensor = node->outputs[index];
  if (!onnx_passes_through(tensor, layers_before)) return;
  node->outputs[index] =
      rabbet_onnx_layer(node, "identity", &tensor, 1, NULL, 0);
  if (rabbet_onnx_ok(node))
    rabbet_onnx_fail(
        node, rabbet_onnx_hold(node->importer, node->name, node->outputs[index],
                               rabbet_onnx_held(node->importer, tensor)));
}

// The tensor takes the ONNX name. Weights that have a name, of which other
// nodes know, keep it.
static rabbet_status_t onnx_name_output(rabbet_onnx_node_t* node,
                                        const char* name,
                                        rabbet_tensor_t* tensor) {
  if (!rabbet_tensor_producer(tensor) && tensor->has_own_name)
    return rabbet_ok();
  if (node->scope->prefix[0]) {
    RABBET_RETURN_IF_ERROR(rabbet_arena_printf(
        &node->importer->arena, &name, "%s%s", node->scope->prefix, name));
  }
  return rabbet_tensor_set_name(tensor, name);
}

// Binds a list's name in the scope alone: a network has no lists.
static rabbet_status_t onnx_bind_list(rabbet_onnx_node_t* node, size_t index) {
  return rabbet_onnx_scope_bind(node->scope, node->proto->output[index],
                                node->outputs[index]);
}

static rabbet_status_t onnx_bind_outputs(rabbet_onnx_node_t* node,
                                         size_t layers_before) {
  for (size_t i = 0; i < node->output_count; ++i) {
    const char* name = node->proto->output[i];
    if (!name[0]) continue;
    if (!node->outputs[i]) {
      return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                           "its output %zu ('%s') is not made by the importer",
                           i, name);
    }
    if (rabbet_onnx_list(node->outputs[i])) {
      RABBET_RETURN_IF_ERROR(onnx_bind_list(node, i));
      continue;
    }
    onnx_own_tensor(node, i, layers_before);
    if (!rabbet_onnx_ok(node)) return node->status;
    rabbet_tensor_t* tensor = node->outputs[i];
    // Inference runs now, so that an error names this node.
    rabbet_dims_t dims;
    RABBET_RETURN_IF_ERROR(rabbet_tensor_dims(tensor, &dims));
    RABBET_RETURN_IF_ERROR(rabbet_onnx_scope_bind(node->scope, name, tensor));
    RABBET_RETURN_IF_ERROR(onnx_name_output(node, name, tensor));
  }
  return rabbet_ok();
}

// ---- A node ----------------------------------------------------------------

static rabbet_status_t onnx_prepare(rabbet_onnx_node_t* node) {
  rabbet_onnx_importer_t* importer = node->importer;
  RABBET_RETURN_IF_ERROR(rabbet_onnx_spend(importer, 1));
  RABBET_RETURN_IF_ERROR(rabbet_onnx_spend_bytes(importer, 0));
  RABBET_RETURN_IF_ERROR(onnx_node_name(node));
  RABBET_RETURN_IF_ERROR(onnx_node_inputs(node));
  RABBET_RETURN_IF_ERROR(onnx_node_attrs(node));
  node->output_count = node->proto->n_output;
  return rabbet_arena_allocate_array(&importer->arena, node->output_count,
                                     sizeof(*node->outputs),
                                     (void**)&node->outputs);
}

static void onnx_refuse_lists(rabbet_onnx_node_t* node) {
  for (size_t i = 0; i < node->input_count; ++i) {
    const rabbet_onnx_list_t* list = rabbet_onnx_list(node->inputs[i]);
    if (!list) continue;
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "input %zu ('%s') is %s; expected a tensor", i,
                     node->proto->input[i],
                     list->is_optional ? "an optional value without an element"
                                       : "a sequence of tensors");
  }
}

static void onnx_dispatch(rabbet_onnx_node_t* node, const onnx_route_t* route) {
  assert(!route->op + !route->creator + !route->function == 2);
  bool takes_lists = route->function || (route->op && route->op->takes_lists);
  if (!takes_lists) onnx_refuse_lists(node);
  if (!rabbet_onnx_ok(node)) return;
  if (route->creator) {
    rabbet_onnx_import_plugin(node, route->creator);
  } else if (route->function) {
    rabbet_onnx_import_function(node, route->function);
  } else {
    node->variant = route->op->variant;
    if (node->output_count == 0) {
      RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                       "the node has no outputs");
    } else {
      route->op->import(node);
      rabbet_onnx_hold_outputs(node);
    }
  }
}

rabbet_status_t rabbet_onnx_import_node(rabbet_onnx_scope_t* scope,
                                        size_t index) {
  const Onnx__NodeProto* proto = scope->nodes[index];
  rabbet_onnx_node_t node = {
      .importer = scope->importer,
      .scope = scope,
      .proto = proto,
      .index = index,
      .domain = rabbet_onnx_domain(proto->domain),
      .opset = rabbet_onnx_scope_opset(scope, proto->domain),
  };
  size_t layers = rabbet_network_layer_count(scope->importer->network);
  onnx_route_t route;
  node.status = onnx_route(scope, proto, &route);
  if (rabbet_onnx_ok(&node)) node.status = onnx_prepare(&node);
  if (rabbet_onnx_ok(&node)) onnx_dispatch(&node, &route);
  if (route.creator) rabbet_plugin_creator_release(route.creator);
  if (rabbet_onnx_ok(&node)) {
    node.status = onnx_bind_outputs(&node, layers);
  }
  return onnx_annotate_node(scope, proto, index, node.status);
}
