// The model's main graph: checks, inputs, nodes, outputs.
#include <string.h>

#include "base/struct.h"
#include "onnx/held.h"
#include "onnx/operators.h"
#include "onnx/part.h"

// ---- The model -------------------------------------------------------------

static rabbet_status_t onnx_check_opsets(
    const rabbet_onnx_importer_t* importer) {
  const Onnx__ModelProto* model = importer->model;
  for (size_t i = 0; i < model->n_opset_import; ++i) {
    const char* domain = rabbet_onnx_domain(model->opset_import[i]->domain);
    int64_t version = model->opset_import[i]->version;
    if (domain[0]) continue;
    if (version < 1) {
      return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                           "the model uses opset %lld; the oldest is 1",
                           (long long)version);
    }
    if (version > RABBET_ONNX_NEWEST_OPSET) {
      rabbet_log(
          importer->network->logger, RABBET_SEVERITY_WARNING,
          "the model uses opset %lld, newer than the newest that is known "
          "(%d); operators are read by their newest known definition",
          (long long)version, RABBET_ONNX_NEWEST_OPSET);
    }
  }
  return rabbet_ok();
}

static rabbet_status_t onnx_check_model(
    const rabbet_onnx_importer_t* importer) {
  const Onnx__ModelProto* model = importer->model;
  if (!model->graph) {
    return RABBET_STATUS(RABBET_STATUS_DATA_LOSS,
                         "the bytes are not an ONNX model: it has no graph");
  }
  if (model->graph->n_sparse_initializer) {
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "sparse initializers are not imported; store them as "
                         "ordinary tensors");
  }
  if (!importer->part && (rabbet_network_layer_count(importer->network) ||
                          rabbet_network_input_count(importer->network))) {
    return RABBET_STATUS(RABBET_STATUS_FAILED_PRECONDITION,
                         "a model is imported into an empty network, but this "
                         "one has %zu layers and %zu inputs",
                         rabbet_network_layer_count(importer->network),
                         rabbet_network_input_count(importer->network));
  }
  if (model->ir_version > ONNX__VERSION__IR_VERSION) {
    rabbet_log(importer->network->logger, RABBET_SEVERITY_WARNING,
               "the model's IR version is %lld, newer than the newest that is "
               "known (%d); new fields are ignored",
               (long long)model->ir_version, (int)ONNX__VERSION__IR_VERSION);
  }
  return onnx_check_opsets(importer);
}

rabbet_status_t rabbet_onnx_scope_enter(rabbet_onnx_scope_t* scope,
                                        const Onnx__GraphProto* graph) {
  scope->nodes = graph->node;
  scope->node_count = graph->n_node;
  for (size_t i = 0; i < graph->n_initializer; ++i) {
    RABBET_RETURN_IF_ERROR(
        rabbet_onnx_scope_bind_initializer(scope, graph->initializer[i]));
  }
  return rabbet_ok();
}

// ---- Inputs ----------------------------------------------------------------

// Optional inputs become inputs of the network, which each run must set.
static const Onnx__TypeProto* onnx_type_of(const Onnx__ValueInfoProto* info) {
  const Onnx__TypeProto* type = info->type;
  bool optional =
      type && type->value_case == ONNX__TYPE_PROTO__VALUE_OPTIONAL_TYPE;
  return optional ? type->optional_type->elem_type : type;
}

static rabbet_status_t onnx_input_type(const Onnx__ValueInfoProto* info,
                                       const Onnx__TypeProto__Tensor** out) {
  const Onnx__TypeProto* type = onnx_type_of(info);
  if (type && type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE &&
      type->tensor_type->shape) {
    *out = type->tensor_type;
    return rabbet_ok();
  }
  bool is_tensor =
      type && type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
  return RABBET_STATUS(
      RABBET_STATUS_UNSUPPORTED, "%s",
      is_tensor ? "its rank is not given; give the model's input a shape "
                  "(dimensions may stay symbolic)"
      : type    ? "it is not a tensor; sequences, maps and sparse tensors "
                  "cannot be inputs"
                : "it has no type");
}

static rabbet_status_t onnx_input_dims(const Onnx__TensorShapeProto* shape,
                                       rabbet_dims_t* out_dims) {
  if (shape->n_dim > RABBET_MAX_RANK) {
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "it has %zu dimensions; at most %d are possible",
                         shape->n_dim, RABBET_MAX_RANK);
  }
  out_dims->rank = (int32_t)shape->n_dim;
  for (size_t i = 0; i < shape->n_dim; ++i) {
    const Onnx__TensorShapeProto__Dimension* dim = shape->dim[i];
    bool fixed = dim->value_case ==
                     ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE &&
                 dim->dim_value >= 0;
    out_dims->d[i] = fixed ? dim->dim_value : -1;
  }
  return rabbet_ok();
}

// Names that exporters write for each dimension that they do not know:
// paddle2onnx "?", keras2onnx "None". Equal names would mean equal extents.
static bool onnx_dim_is_unknown(const char* name) {
  static const char* const names[] = {"", "?", "-1", "None"};
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i)
    if (strcmp(name, names[i]) == 0) return true;
  return false;
}

// NULL: it has none.
static const char* onnx_dim_name(const Onnx__TensorShapeProto__Dimension* dim) {
  bool named =
      dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM &&
      dim->dim_param && !onnx_dim_is_unknown(dim->dim_param);
  return named ? dim->dim_param : NULL;
}

static const rabbet_dims_t* onnx_given_dims(
    const rabbet_onnx_importer_t* importer, const char* name, size_t rank) {
  for (size_t i = 0; i < importer->input_count; ++i) {
    const rabbet_onnx_input_t* given = &importer->inputs[i];
    if (given->name && strcmp(given->name, name) == 0 &&
        given->dims.rank == (int32_t)rank)
      return &given->dims;
  }
  return NULL;
}

static rabbet_onnx_extent_t* onnx_find_extent(
    const rabbet_onnx_importer_t* importer, const char* name) {
  for (size_t i = 0; i < importer->extent_count; ++i)
    if (strcmp(importer->extents[i].name, name) == 0)
      return &importer->extents[i];
  return NULL;
}

static void onnx_note_extent(rabbet_onnx_importer_t* importer, const char* name,
                             int64_t extent) {
  rabbet_onnx_extent_t* known = onnx_find_extent(importer, name);
  if (!known)
    importer->extents[importer->extent_count++] =
        (rabbet_onnx_extent_t){name, extent};
  else if (known->extent != extent)
    known->extent = -1;
}

// Dimensions of one name have one extent, which any of their inputs may give.
static rabbet_status_t onnx_find_extents(rabbet_onnx_importer_t* importer,
                                         const Onnx__GraphProto* graph) {
  size_t most = importer->input_count * RABBET_MAX_RANK;
  importer->extent_count = 0;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &importer->arena, most, sizeof(*importer->extents),
      (void**)&importer->extents));
  for (size_t i = 0; i < graph->n_input && most > 0; ++i) {
    const Onnx__ValueInfoProto* info = graph->input[i];
    const Onnx__TypeProto__Tensor* type = NULL;
    rabbet_status_t status = onnx_input_type(info, &type);
    if (!rabbet_is_ok(status) || !info->name) {
      rabbet_status_ignore(status);
      continue;
    }
    const rabbet_dims_t* given =
        onnx_given_dims(importer, info->name, type->shape->n_dim);
    for (size_t axis = 0; given && axis < type->shape->n_dim; ++axis) {
      const char* name = onnx_dim_name(type->shape->dim[axis]);
      if (name && importer->extent_count < most)
        onnx_note_extent(importer, name, given->d[axis]);
    }
  }
  return rabbet_ok();
}

// Extents that are open in the model become those given.
static void onnx_fix_dims(const rabbet_onnx_importer_t* importer,
                          const Onnx__ValueInfoProto* info,
                          const Onnx__TensorShapeProto* shape,
                          rabbet_dims_t* dims) {
  const rabbet_dims_t* given =
      onnx_given_dims(importer, info->name, shape->n_dim);
  for (size_t axis = 0; axis < shape->n_dim; ++axis) {
    if (dims->d[axis] >= 0) continue;
    const char* name = onnx_dim_name(shape->dim[axis]);
    const rabbet_onnx_extent_t* known =
        name ? onnx_find_extent(importer, name) : NULL;
    if (known)
      dims->d[axis] = known->extent;
    else if (given)
      dims->d[axis] = given->d[axis];
  }
}

static rabbet_status_t onnx_name_dims(rabbet_tensor_t* tensor,
                                      const Onnx__TensorShapeProto* shape) {
  for (size_t i = 0; i < shape->n_dim; ++i) {
    const char* name = onnx_dim_name(shape->dim[i]);
    if (name)
      RABBET_RETURN_IF_ERROR(
          rabbet_tensor_set_dim_name(tensor, (int32_t)i, name));
  }
  return rabbet_ok();
}

static rabbet_status_t onnx_add_input(rabbet_onnx_scope_t* scope,
                                      const Onnx__ValueInfoProto* info) {
  rabbet_onnx_importer_t* importer = scope->importer;
  const Onnx__TypeProto__Tensor* type = NULL;
  RABBET_RETURN_IF_ERROR(onnx_input_type(info, &type));
  rabbet_dtype_t dtype;
  bool narrowed = false;
  rabbet_dims_t dims = {0};
  RABBET_RETURN_IF_ERROR(
      rabbet_onnx_dtype(importer->storage, type->elem_type, &dtype, &narrowed));
  RABBET_RETURN_IF_ERROR(onnx_input_dims(type->shape, &dims));
  onnx_fix_dims(importer, info, type->shape, &dims);
  if (narrowed) {
    rabbet_log(importer->network->logger, RABBET_SEVERITY_WARNING,
               "input '%s' is DOUBLE in the model and becomes FLOAT",
               info->name);
  }
  rabbet_tensor_t* tensor = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_network_add_input(importer->network, info->name,
                                                  dtype, &dims, &tensor));
  RABBET_RETURN_IF_ERROR(onnx_name_dims(tensor, type->shape));
  RABBET_RETURN_IF_ERROR(
      rabbet_onnx_hold(importer, info->name, tensor, type->elem_type));
  return rabbet_onnx_scope_bind(scope, info->name, tensor);
}

// Inputs with an initializer have a default value (before IR 4 every
// initializer was listed as an input): they have the default's value.
static rabbet_status_t onnx_add_inputs(rabbet_onnx_scope_t* scope,
                                       const Onnx__GraphProto* graph) {
  RABBET_RETURN_IF_ERROR(onnx_find_extents(scope->importer, graph));
  for (size_t i = 0; i < graph->n_input; ++i) {
    const char* name = graph->input[i]->name;
    if (!name || !name[0]) {
      return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                           "input %zu of the graph has no name", i);
    }
    const rabbet_onnx_value_t* value =
        rabbet_map_get_string(&scope->values, name);
    if (value && value->initializer) continue;
    rabbet_status_t status = onnx_add_input(scope, graph->input[i]);
    RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(status, "input '%s'", name));
  }
  return rabbet_ok();
}

// ---- Outputs ---------------------------------------------------------------

// An output must be a tensor of its own under its own name.
static bool onnx_needs_copy(const rabbet_tensor_t* tensor, const char* name) {
  return !rabbet_tensor_producer(tensor) || rabbet_tensor_is_output(tensor) ||
         rabbet_tensor_weights(tensor, &(rabbet_weights_t){0}) ||
         strcmp(rabbet_tensor_name(tensor), name) != 0;
}

// Weights give their name up to the output. An input keeps it, as callers set
// it by that name.
static rabbet_status_t onnx_free_name(rabbet_onnx_scope_t* scope,
                                      rabbet_tensor_t* tensor,
                                      const char** name) {
  rabbet_arena_t* arena = &scope->importer->arena;
  if (strcmp(rabbet_tensor_name(tensor), *name) != 0) return rabbet_ok();
  const char* other;
  if (rabbet_tensor_is_input(tensor)) {
    RABBET_RETURN_IF_ERROR(
        rabbet_arena_printf(arena, &other, "%s.output", *name));
    rabbet_log(scope->importer->network->logger, RABBET_SEVERITY_WARNING,
               "'%s' is both an input and an output of the model; the output "
               "is called '%s'",
               *name, other);
    *name = other;
    return rabbet_ok();
  }
  RABBET_RETURN_IF_ERROR(rabbet_arena_printf(arena, &other, "%s.value", *name));
  return rabbet_tensor_set_name(tensor, other);
}

static rabbet_status_t onnx_copy_output(rabbet_onnx_scope_t* scope,
                                        const char* name,
                                        rabbet_tensor_t** tensor) {
  RABBET_RETURN_IF_ERROR(onnx_free_name(scope, *tensor, &name));
  rabbet_layer_t* layer;
  RABBET_RETURN_IF_ERROR(rabbet_network_add_layer(
      scope->importer->network, "identity", NULL, tensor, 1, NULL, 0, &layer));
  *tensor = rabbet_layer_output(layer, 0);
  return rabbet_tensor_set_name(*tensor, name);
}

static rabbet_status_t onnx_mark_output(rabbet_onnx_scope_t* scope,
                                        const char* name,
                                        rabbet_tensor_t* tensor) {
  if (onnx_needs_copy(tensor, name)) {
    RABBET_RETURN_IF_ERROR(onnx_copy_output(scope, name, &tensor));
  }
  return rabbet_network_mark_output(scope->importer->network, tensor);
}

// The tensors of a sequence are outputs each: NAME[0], NAME[1], ...; if a run
// tells their number, one output stacks them.
static rabbet_status_t onnx_add_output(rabbet_onnx_scope_t* scope,
                                       const char* value, const char* name) {
  rabbet_tensor_t* tensor;
  RABBET_RETURN_IF_ERROR(rabbet_onnx_scope_lookup(scope, value, &tensor));
  const rabbet_onnx_list_t* list = rabbet_onnx_list(tensor);
  if (!list) return onnx_mark_output(scope, name, tensor);
  if (list->is_optional)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "it is an optional value without an element");
  if (list->told.tensor) {
    if (list->count == 0 && !list->told.ends)
      return onnx_mark_output(scope, name, list->told.tensor);
    return RABBET_STATUS(
        RABBET_STATUS_UNSUPPORTED,
        "it is a sequence of as many tensors as a run tells, "
        "which %s; concatenate it in the model",
        list->told.ends ? "differ in shape" : "has more inserted behind them");
  }
  for (size_t i = 0; i < list->count; ++i) {
    const char* item;
    RABBET_RETURN_IF_ERROR(rabbet_arena_printf(&scope->importer->arena, &item,
                                               "%s[%zu]", name, i));
    RABBET_RETURN_IF_ERROR(onnx_mark_output(scope, item, list->items[i]));
  }
  return rabbet_ok();
}

// The name of output `i`: exporters of torch list a tensor twice that the
// module returns twice.
static rabbet_status_t onnx_name_output(rabbet_onnx_scope_t* scope,
                                        const Onnx__GraphProto* graph, size_t i,
                                        const char** out_name) {
  size_t count = 1;
  *out_name = graph->output[i]->name;
  for (size_t k = 0; k < i; ++k)
    count += strcmp(graph->output[k]->name, *out_name) == 0;
  if (count == 1) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_arena_printf(&scope->importer->arena, out_name,
                                             "%s.output%zu",
                                             graph->output[i]->name, count));
  rabbet_log(scope->importer->network->logger, RABBET_SEVERITY_WARNING,
             "the model has '%s' as an output %zu times; output %zu is called "
             "'%s'",
             graph->output[i]->name, count, i, *out_name);
  return rabbet_ok();
}

static rabbet_status_t onnx_add_outputs(rabbet_onnx_scope_t* scope,
                                        const Onnx__GraphProto* graph) {
  if (graph->n_output == 0) {
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "the graph has no outputs");
  }
  for (size_t i = 0; i < graph->n_output; ++i) {
    const char* name = graph->output[i]->name;
    if (!name || !name[0]) {
      return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                           "output %zu of the graph has no name", i);
    }
    const char* given;
    RABBET_RETURN_IF_ERROR(onnx_name_output(scope, graph, i, &given));
    rabbet_status_t status = onnx_add_output(scope, name, given);
    RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(status, "output '%s'", name));
  }
  return rabbet_ok();
}

// ---- A part of a network ---------------------------------------------------

static rabbet_status_t onnx_take_inputs(rabbet_onnx_scope_t* scope,
                                        const Onnx__GraphProto* graph) {
  const rabbet_onnx_part_t* part = scope->importer->part;
  if (graph->n_input != part->input_count ||
      graph->n_output != part->output_count)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "the graph has %zu inputs and %zu outputs; expected "
                         "%zu and %zu",
                         graph->n_input, graph->n_output, part->input_count,
                         part->output_count);
  for (size_t i = 0; i < graph->n_input; ++i)
    RABBET_RETURN_IF_ERROR(
        rabbet_onnx_scope_bind(scope, graph->input[i]->name, part->inputs[i]));
  return rabbet_ok();
}

static rabbet_status_t onnx_give_outputs(rabbet_onnx_scope_t* scope,
                                         const Onnx__GraphProto* graph) {
  const rabbet_onnx_part_t* part = scope->importer->part;
  for (size_t i = 0; i < graph->n_output; ++i) {
    RABBET_RETURN_IF_ERROR(rabbet_onnx_scope_lookup(
        scope, graph->output[i]->name, &part->outputs[i]));
    if (rabbet_onnx_list(part->outputs[i]))
      return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                           "output %zu of the graph is no tensor", i);
  }
  return rabbet_ok();
}

// ---- The import ------------------------------------------------------------

static rabbet_status_t onnx_import_graph(rabbet_onnx_scope_t* scope) {
  const Onnx__GraphProto* graph = scope->importer->model->graph;
  RABBET_RETURN_IF_ERROR(rabbet_onnx_scope_enter(scope, graph));
  rabbet_onnx_errors_set_node_count(scope->importer->errors, scope->node_count);
  RABBET_RETURN_IF_ERROR(rabbet_onnx_check_support(scope));
  bool is_part = scope->importer->part != NULL;
  RABBET_RETURN_IF_ERROR(is_part ? onnx_take_inputs(scope, graph)
                                 : onnx_add_inputs(scope, graph));
  RABBET_RETURN_IF_ERROR(rabbet_onnx_import_nodes(scope));
  if (is_part) return onnx_give_outputs(scope, graph);
  RABBET_RETURN_IF_ERROR(onnx_add_outputs(scope, graph));
  if (graph->name && graph->name[0]) {
    return rabbet_network_set_name(scope->importer->network, graph->name);
  }
  return rabbet_ok();
}

static bool onnx_has_initializer(const Onnx__GraphProto* graph,
                                 const char* name) {
  for (size_t i = 0; i < graph->n_initializer; ++i) {
    const char* other = graph->initializer[i]->name;
    if (other && strcmp(other, name) == 0) return true;
  }
  return false;
}

static rabbet_status_t onnx_check_given(
    const rabbet_onnx_importer_t* importer) {
  const rabbet_onnx_storage_t* storage = importer->storage;
  for (size_t i = 0; i < storage->given_count; ++i) {
    if (!onnx_has_initializer(importer->model->graph, storage->given[i].name))
      return RABBET_STATUS(RABBET_STATUS_NOT_FOUND,
                           "data was given for the initializer '%s', which the "
                           "model's graph does not have",
                           storage->given[i].name);
  }
  return rabbet_ok();
}

static rabbet_status_t onnx_import_model(rabbet_onnx_importer_t* importer) {
  RABBET_RETURN_IF_ERROR(rabbet_onnx_model_parse(
      importer->storage, &importer->arena, &importer->model));
  RABBET_RETURN_IF_ERROR(onnx_check_model(importer));
  RABBET_RETURN_IF_ERROR(onnx_check_given(importer));
  RABBET_RETURN_IF_ERROR(rabbet_onnx_limits_begin(importer));
  rabbet_onnx_scope_t scope;
  rabbet_onnx_scope_initialize(importer, NULL, &scope);
  scope.opsets = importer->model->opset_import;
  scope.opset_count = importer->model->n_opset_import;
  rabbet_status_t status = onnx_import_graph(&scope);
  rabbet_onnx_scope_deinitialize(&scope);
  return status;
}

// Copies the caller's data into the storage, unless it is lent.
static rabbet_status_t onnx_take_given(rabbet_onnx_storage_t* storage,
                                       const rabbet_onnx_options_t* options) {
  rabbet_onnx_initializer_t* copies = NULL;
  size_t count = options->initializers ? options->initializer_count : 0;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &storage->arena, count, sizeof(*copies), (void**)&copies));
  RABBET_RETURN_IF_ERROR(
      RABBET_ELEMENTS_READ(rabbet_onnx_initializer_t, options->initializers,
                           options->initializer_size, count, size, copies));
  for (size_t i = 0; i < count; ++i) {
    RABBET_RETURN_IF_ERROR(
        rabbet_arena_strdup(&storage->arena, copies[i].name, &copies[i].name));
    if (options->borrow_initializers) continue;
    RABBET_RETURN_IF_ERROR(rabbet_arena_copy(&storage->arena, copies[i].data,
                                             copies[i].size,
                                             (void**)&copies[i].data));
  }
  storage->given = copies;
  storage->given_count = count;
  return rabbet_ok();
}

static rabbet_status_t onnx_take_shapes(rabbet_onnx_importer_t* importer,
                                        const rabbet_onnx_input_t* given,
                                        size_t given_size, size_t given_count,
                                        const rabbet_onnx_input_t** out_inputs,
                                        size_t* out_count) {
  rabbet_onnx_input_t* inputs = NULL;
  *out_count = given ? given_count : 0;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &importer->arena, *out_count, sizeof(*inputs), (void**)&inputs));
  *out_inputs = inputs;
  return RABBET_ELEMENTS_READ(rabbet_onnx_input_t, given, given_size,
                              *out_count, dims, inputs);
}

// Takes ownership of the storage.
static rabbet_status_t onnx_import(rabbet_network_t* network,
                                   rabbet_onnx_storage_t* storage,
                                   const rabbet_onnx_options_t* options,
                                   const rabbet_onnx_part_t* part,
                                   rabbet_onnx_errors_t* errors) {
  rabbet_status_t status =
      rabbet_network_take_owner(network, storage, rabbet_onnx_storage_destroy);
  if (!rabbet_is_ok(status)) {
    rabbet_onnx_storage_destroy(storage);
    return status;
  }
  rabbet_network_set_owner_check(network, rabbet_onnx_storage_check);
  storage->keeps_double = options->keep_double != 0;
  rabbet_onnx_importer_t importer = {
      .network = network,
      .storage = storage,
      .plugin_override = options->plugin_override,
      .refuses_open_ranks = options->refuse_open_ranks != 0,
      .part = part,
      .errors = errors};
  rabbet_arena_initialize(network->allocator, &importer.arena);
  rabbet_map_initialize(network->allocator, &importer.layer_names);
  rabbet_map_initialize(network->allocator, &importer.held);
  rabbet_map_initialize(network->allocator, &importer.captures);
  status = onnx_take_given(storage, options);
  if (rabbet_is_ok(status))
    status = onnx_take_shapes(&importer, options->inputs, options->input_size,
                              options->input_count, &importer.inputs,
                              &importer.input_count);
  if (rabbet_is_ok(status))
    status = onnx_take_shapes(&importer, options->usual_inputs,
                              options->input_size, options->usual_count,
                              &importer.usual_inputs, &importer.usual_count);
  if (rabbet_is_ok(status)) status = onnx_import_model(&importer);
  rabbet_map_deinitialize(&importer.layer_names);
  rabbet_map_deinitialize(&importer.held);
  rabbet_onnx_captures_deinitialize(&importer);
  rabbet_arena_deinitialize(&importer.arena);
  return status;
}

static rabbet_status_t onnx_options(const rabbet_onnx_options_t* given,
                                    rabbet_onnx_options_t* out) {
  return RABBET_STRUCT_READ(rabbet_onnx_options_t, given, struct_size, out);
}

// Records a failure that no node has recorded.
static rabbet_status_t onnx_finish(rabbet_onnx_errors_t* errors,
                                   const char* path, rabbet_status_t status) {
  if (!rabbet_is_ok(status) && errors && !rabbet_onnx_errors_count(errors)) {
    rabbet_status_ignore(rabbet_onnx_errors_add(errors, status, -1, -1, NULL));
  }
  return RABBET_ANNOTATE(status, "importing ONNX model%s%s%s", path ? " '" : "",
                         path ? path : "", path ? "'" : "");
}

// Imports a file, or `bytes` of which `path` is the place.
static rabbet_status_t onnx_import_from(rabbet_network_t* network,
                                        const rabbet_span_t* bytes,
                                        const char* path,
                                        const rabbet_onnx_options_t* options,
                                        rabbet_onnx_errors_t* errors) {
  rabbet_onnx_options_t known;
  rabbet_onnx_storage_t* storage = NULL;
  if (errors) rabbet_onnx_errors_clear(errors);
  rabbet_status_t status = onnx_options(options, &known);
  if (rabbet_is_ok(status) && bytes)
    status = rabbet_onnx_storage_copy(bytes->data, bytes->size, path,
                                      known.external_data_dir,
                                      network->allocator, &storage);
  else if (rabbet_is_ok(status))
    status = rabbet_onnx_storage_open(path, known.external_data_dir,
                                      network->allocator, &storage);
  if (rabbet_is_ok(status))
    status = onnx_import(network, storage, &known, NULL, errors);
  return onnx_finish(errors, path, status);
}

rabbet_status_t rabbet_onnx_import_file(rabbet_network_t* network,
                                        const char* path,
                                        const rabbet_onnx_options_t* options,
                                        rabbet_onnx_errors_t* errors) {
  return onnx_import_from(network, NULL, path, options, errors);
}

rabbet_status_t rabbet_onnx_import_memory(rabbet_network_t* network,
                                          const void* data, size_t size,
                                          const char* path,
                                          const rabbet_onnx_options_t* options,
                                          rabbet_onnx_errors_t* errors) {
  const rabbet_span_t bytes = {(const uint8_t*)data, size};
  return onnx_import_from(network, &bytes, path, options, errors);
}

rabbet_status_t rabbet_onnx_import_part(rabbet_network_t* network,
                                        const void* data, size_t size,
                                        const rabbet_onnx_part_t* part) {
  // Tensors of the network that are DOUBLE meet constants of the part.
  const rabbet_onnx_options_t options = {.struct_size = sizeof(options),
                                         .keep_double = 1};
  rabbet_onnx_storage_t* storage = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_onnx_storage_copy(
      data, size, NULL, NULL, network->allocator, &storage));
  return onnx_import(network, storage, &options, part, NULL);
}
