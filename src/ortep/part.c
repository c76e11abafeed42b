#include "ortep/part.h"

#include <string.h>

#include "ortep/build.h"
#include "ortep/gpu.h"

// Extents of dimensions that neither the model nor an option bounds.
#define PART_MOST (1 << 20)
// Plans for single sets of shapes that are kept; the oldest goes.
#define PART_MOST_PLANS 16

struct rabbet_ort_part_t {
  rabbet_ort_session_t* session;
  rabbet_arena_t arena;  // has the names
  rabbet_ort_names_t names;
  ONNXTensorElementDataType* types;  // of inputs, then outputs
  pthread_mutex_t lock;              // of all below
  bool has_model;                    // plans may be built
  rabbet_ort_model_t model;
  bool is_exact;             // each plan is for one set of shapes
  rabbet_ort_plan_t* plans;  // the one used last is not moved: runs hold them
  size_t plan_count;
};

// ---- Names and places

static rabbet_status_t part_read_values(rabbet_ort_part_t* part,
                                        const OrtNode* node, bool is_input,
                                        const char*** out_names,
                                        size_t* out_count) {
  const OrtValueInfo** infos = NULL;
  size_t count = 0;
  RABBET_RETURN_IF_ERROR(is_input ? ORT(Node_GetNumInputs, node, &count)
                                  : ORT(Node_GetNumOutputs, node, &count));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &part->arena, count, sizeof(*infos), (void**)&infos));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &part->arena, count, sizeof(**out_names), (void**)out_names));
  if (count)
    RABBET_RETURN_IF_ERROR(is_input ? ORT(Node_GetInputs, node, infos, count)
                                    : ORT(Node_GetOutputs, node, infos, count));
  for (size_t i = 0; i < count; ++i) {
    const char* name = NULL;
    if (infos[i])
      RABBET_RETURN_IF_ERROR(ORT(GetValueInfoName, infos[i], &name));
    RABBET_RETURN_IF_ERROR(
        rabbet_arena_strdup(&part->arena, name ? name : "", &(*out_names)[i]));
  }
  *out_count = count;
  return rabbet_ok();
}

static rabbet_status_t part_find_slot(const char* const* names, size_t count,
                                      const char* kind, const char* name,
                                      size_t* out_slot) {
  for (size_t i = 0; i < count; ++i) {
    if (strcmp(names[i], name) != 0) continue;
    *out_slot = i;
    return rabbet_ok();
  }
  return RABBET_STATUS(RABBET_STATUS_INTERNAL,
                       "the node that ONNX Runtime made of a part has no %s "
                       "'%s'",
                       kind, name);
}

// The model's inputs and outputs, with their places at the fused node.
static rabbet_status_t part_find_places(rabbet_ort_part_t* part,
                                        const OrtNode* node) {
  rabbet_ort_names_t* names = &part->names;
  const rabbet_ort_model_t* model = &part->model;
  const char **inputs = NULL, **outputs = NULL;
  size_t input_count = 0, output_count = 0;
  names->input_count = model->inputs.count;
  names->output_count = model->outputs.count;
  const size_t total = names->input_count + names->output_count;
  RABBET_RETURN_IF_ERROR(
      part_read_values(part, node, true, &inputs, &input_count));
  RABBET_RETURN_IF_ERROR(
      part_read_values(part, node, false, &outputs, &output_count));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &part->arena, total, sizeof(*names->inputs), (void**)&names->inputs));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &part->arena, total, sizeof(*names->input_slots),
      (void**)&names->input_slots));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &part->arena, total, sizeof(*part->types), (void**)&part->types));
  names->outputs = names->inputs + names->input_count;
  names->output_slots = names->input_slots + names->input_count;
  for (size_t i = 0; i < total; ++i) {
    const bool is_input = i < names->input_count;
    const rabbet_ort_port_t* port =
        is_input ? &model->inputs.data[i]
                 : &model->outputs.data[i - names->input_count];
    names->inputs[i] = port->name;
    part->types[i] = port->type;
    RABBET_RETURN_IF_ERROR(part_find_slot(
        is_input ? inputs : outputs, is_input ? input_count : output_count,
        is_input ? "input" : "output", port->name, &names->input_slots[i]));
  }
  return rabbet_ok();
}

// ---- Bounds

// Of an input: of the model, of the options, or else any size, with the run's
// (NULL: 1) as the usual one. False if a run had to choose.
static bool part_bounds(const rabbet_ort_part_t* part, size_t input,
                        const rabbet_dims_t* dims,
                        rabbet_ort_bounds_t* out_bounds) {
  const rabbet_ort_port_t* port = &part->model.inputs.data[input];
  bool is_known = true;
  *out_bounds = (rabbet_ort_bounds_t){
      .min = port->dims, .opt = port->dims, .max = port->dims};
  for (int32_t axis = 0; axis < port->dims.rank; ++axis) {
    if (port->dims.d[axis] >= 0) continue;
    const rabbet_ort_range_t* range = rabbet_ort_options_range(
        &part->session->options, port->name, axis, port->dim_names[axis]);
    const int64_t usual = dims ? dims->d[axis] : 1;
    is_known &= range != NULL;
    out_bounds->min.d[axis] = range ? range->min : 0;
    out_bounds->opt.d[axis] = range ? range->opt : usual;
    out_bounds->max.d[axis] = range               ? range->max
                              : usual > PART_MOST ? usual
                                                  : PART_MOST;
  }
  return is_known;
}

static rabbet_status_t part_allocate_bounds(const rabbet_ort_part_t* part,
                                            rabbet_ort_bounds_t** out_bounds) {
  return rabbet_allocate(part->session->allocator,
                         (part->names.input_count + 1) * sizeof(**out_bounds),
                         (void**)out_bounds);
}

// ---- Plans

// Takes the engine.
static rabbet_status_t part_take_engine(rabbet_ort_part_t* part,
                                        rabbet_engine_t* engine,
                                        rabbet_ort_plan_t** out_plan) {
  RABBET_RETURN_IF_ERROR(rabbet_ort_plan_take_engine(
      part->session, &part->names, part->types, engine, out_plan));
  (*out_plan)->next = part->plans;
  part->plans = *out_plan;
  ++part->plan_count;
  return rabbet_ok();
}

// Of all shapes within the bounds of the options.
static rabbet_status_t part_build_wide(rabbet_ort_part_t* part,
                                       const rabbet_ort_feed_t* feeds,
                                       rabbet_ort_plan_t** out_plan) {
  rabbet_ort_bounds_t* bounds = NULL;
  rabbet_engine_t* engine = NULL;
  RABBET_RETURN_IF_ERROR(part_allocate_bounds(part, &bounds));
  for (size_t i = 0; i < part->names.input_count; ++i)
    part_bounds(part, i, feeds ? &feeds[i].dims : NULL, &bounds[i]);
  rabbet_status_t status =
      rabbet_ort_build(part->session, &part->model, bounds, &engine);
  rabbet_free(part->session->allocator, bounds);
  return rabbet_is_ok(status) ? part_take_engine(part, engine, out_plan)
                              : status;
}

static rabbet_status_t part_build_exact(rabbet_ort_part_t* part,
                                        const rabbet_ort_feed_t* feeds,
                                        rabbet_ort_plan_t** out_plan) {
  rabbet_ort_bounds_t* bounds = NULL;
  rabbet_engine_t* engine = NULL;
  RABBET_RETURN_IF_ERROR(part_allocate_bounds(part, &bounds));
  for (size_t i = 0; i < part->names.input_count; ++i)
    bounds[i] = (rabbet_ort_bounds_t){
        .min = feeds[i].dims, .opt = feeds[i].dims, .max = feeds[i].dims};
  rabbet_status_t status =
      rabbet_ort_build(part->session, &part->model, bounds, &engine);
  rabbet_free(part->session->allocator, bounds);
  return rabbet_is_ok(status) ? part_take_engine(part, engine, out_plan)
                              : status;
}

// Where ranges are refused, sizes may still do.
static bool part_may_be_exact(rabbet_status_t status) {
  switch (rabbet_status_code(status)) {
    case RABBET_STATUS_OUT_OF_MEMORY:
    case RABBET_STATUS_CANCELLED:
    case RABBET_STATUS_PLUGIN:
    case RABBET_STATUS_UNAVAILABLE:
      return false;
    default:
      return true;
  }
}

// Dimensions of one name that have two extents are none.
static void part_check_names(rabbet_ort_part_t* part,
                             const rabbet_ort_feed_t* feeds) {
  const char* name = NULL;
  for (size_t i = 0; i < part->model.inputs.count; ++i) {
    const rabbet_ort_port_t* a = &part->model.inputs.data[i];
    for (int32_t k = 0; k < a->dims.rank * RABBET_MAX_RANK; ++k) {
      for (size_t j = 0; a->dim_names[k / RABBET_MAX_RANK] && j <= i; ++j) {
        const rabbet_ort_port_t* b = &part->model.inputs.data[j];
        const int32_t x = k / RABBET_MAX_RANK, y = k % RABBET_MAX_RANK;
        if (y < b->dims.rank && b->dim_names[y] &&
            strcmp(a->dim_names[x], b->dim_names[y]) == 0 &&
            feeds[i].dims.d[x] != feeds[j].dims.d[y])
          name = a->dim_names[x];
      }
    }
  }
  if (!name) return;
  rabbet_log(part->session->logger, RABBET_SEVERITY_WARNING,
             "dimensions of the name '%s' have several extents: names of "
             "dimensions are ignored",
             name);
  for (size_t i = 0; i < part->model.inputs.count; ++i)
    memset(part->model.inputs.data[i].dim_names, 0,
           sizeof(part->model.inputs.data[i].dim_names));
}

// A plan for one set of shapes may go that no run has, the oldest first.
static void part_evict(rabbet_ort_part_t* part) {
  rabbet_ort_plan_t** last = NULL;
  if (part->plan_count < PART_MOST_PLANS) return;
  for (rabbet_ort_plan_t** at = &part->plans; *at; at = &(*at)->next)
    if ((*at)->users == 0) last = at;
  if (!last) return;
  rabbet_ort_plan_t* plan = *last;
  *last = plan->next;
  --part->plan_count;
  rabbet_ort_plan_destroy(plan);
}

static rabbet_status_t part_build(rabbet_ort_part_t* part,
                                  const rabbet_ort_feed_t* feeds,
                                  rabbet_ort_plan_t** out_plan) {
  rabbet_status_t status = rabbet_ok();
  if (!part->is_exact) {
    if (feeds) part_check_names(part, feeds);
    status = part_build_wide(part, feeds, out_plan);
    if (rabbet_is_ok(status)) {
      part->has_model = false;
      rabbet_ort_model_drop(&part->model);
      return status;
    }
    if (!feeds || !part_may_be_exact(status)) return status;
    rabbet_log(part->session->logger, RABBET_SEVERITY_WARNING,
               "a plan is built for each set of shapes, as one for all is not "
               "possible: %s",
               rabbet_status_message(status));
    rabbet_status_free(status);
    part->is_exact = true;
  }
  part_evict(part);
  return part_build_exact(part, feeds, out_plan);
}

// ---- Runs

static rabbet_status_t part_outside(const rabbet_ort_part_t* part,
                                    const rabbet_ort_feed_t* feeds) {
  for (size_t i = 0; i < part->names.input_count; ++i) {
    const rabbet_ort_bounds_t* bounds = &part->plans->bounds[i];
    char found[200], low[200], high[200];
    bool is_outside = feeds[i].dims.rank != bounds->opt.rank;
    for (int32_t axis = 0; !is_outside && axis < bounds->opt.rank; ++axis)
      is_outside = feeds[i].dims.d[axis] < bounds->min.d[axis] ||
                   feeds[i].dims.d[axis] > bounds->max.d[axis];
    if (is_outside)
      return RABBET_STATUS(
          RABBET_STATUS_OUT_OF_RANGE,
          "input '%s' has shape %s; the plan takes %s to %s, and other ranges "
          "by option dims of " RABBET_ORT_EP_NAME,
          part->names.inputs[i],
          rabbet_dims_print(&feeds[i].dims, found, sizeof(found)),
          rabbet_dims_print(&bounds->min, low, sizeof(low)),
          rabbet_dims_print(&bounds->max, high, sizeof(high)));
  }
  return RABBET_STATUS(RABBET_STATUS_INTERNAL, "no plan takes these shapes");
}

// A plan for the shapes, held until part_release. Other runs wait while one is
// built, as they would need it, too.
static rabbet_status_t part_hold_plan(rabbet_ort_part_t* part,
                                      const rabbet_ort_feed_t* feeds,
                                      rabbet_ort_plan_t** out_plan) {
  rabbet_status_t status = rabbet_ok();
  *out_plan = NULL;
  pthread_mutex_lock(&part->lock);
  for (rabbet_ort_plan_t* plan = part->plans; plan; plan = plan->next) {
    if (!rabbet_ort_plan_covers(plan, feeds)) continue;
    *out_plan = plan;
    break;
  }
  if (!*out_plan)
    status = part->has_model ? part_build(part, feeds, out_plan)
                             : part_outside(part, feeds);
  if (rabbet_is_ok(status)) ++(*out_plan)->users;
  pthread_mutex_unlock(&part->lock);
  return status;
}

static void part_release_plan(rabbet_ort_part_t* part,
                              rabbet_ort_plan_t* plan) {
  pthread_mutex_lock(&part->lock);
  --plan->users;
  pthread_mutex_unlock(&part->lock);
}

static rabbet_status_t part_read_feed(const rabbet_ort_part_t* part,
                                      size_t input,
                                      const OrtKernelContext* kernel,
                                      rabbet_ort_feed_t* out_feed) {
  const OrtValue* value = NULL;
  OrtTensorTypeAndShapeInfo* info = NULL;
  size_t rank = 0;
  RABBET_RETURN_IF_ERROR(ORT(KernelContext_GetInput, kernel,
                             part->names.input_slots[input], &value));
  if (!value)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "input '%s' is missing", part->names.inputs[input]);
  out_feed->is_on_host = true;
  if (part->session->on_device)
    RABBET_RETURN_IF_ERROR(rabbet_ort_gpu_find_place(
        part->session->ordinal, value, "input", part->names.inputs[input],
        &out_feed->is_on_host));
  RABBET_RETURN_IF_ERROR(ORT(GetTensorData, value, &out_feed->data));
  RABBET_RETURN_IF_ERROR(ORT(GetTensorTypeAndShape, value, &info));
  rabbet_status_t status = ORT(GetDimensionsCount, info, &rank);
  if (rabbet_is_ok(status) && rank > RABBET_MAX_RANK)
    status = RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                           "input '%s' has %zu dimensions; at most %d are "
                           "possible",
                           part->names.inputs[input], rank, RABBET_MAX_RANK);
  if (rabbet_is_ok(status) && rank)
    status = ORT(GetDimensions, info, out_feed->dims.d, rank);
  out_feed->dims.rank = (int32_t)rank;
  rabbet_ort.api->ReleaseTensorTypeAndShapeInfo(info);
  return status;
}

static rabbet_status_t part_run(rabbet_ort_part_t* part,
                                rabbet_ort_feed_t* feeds,
                                OrtKernelContext* kernel) {
  rabbet_ort_plan_t* plan = NULL;
  for (size_t i = 0; i < part->names.input_count; ++i)
    RABBET_RETURN_IF_ERROR(part_read_feed(part, i, kernel, &feeds[i]));
  RABBET_RETURN_IF_ERROR(part_hold_plan(part, feeds, &plan));
  rabbet_status_t status = rabbet_ort_plan_run(plan, feeds, kernel);
  part_release_plan(part, plan);
  return status;
}

rabbet_status_t rabbet_ort_part_run(rabbet_ort_part_t* part,
                                    OrtKernelContext* kernel) {
  enum { MOST = 16 };  // inputs of nearly all models
  rabbet_ort_feed_t some[MOST] = {0};
  rabbet_ort_feed_t* feeds = some;
  const size_t count = part->names.input_count;
  if (count > MOST)
    RABBET_RETURN_IF_ERROR(rabbet_allocate(
        part->session->allocator, count * sizeof(*feeds), (void**)&feeds));
  rabbet_status_t status = part_run(part, feeds, kernel);
  if (feeds != some) rabbet_free(part->session->allocator, feeds);
  return status;
}

rabbet_status_t rabbet_ort_part_plan(rabbet_ort_part_t* part,
                                     const void** out_plan, size_t* out_size) {
  rabbet_status_t status = rabbet_ok();
  rabbet_ort_plan_t* plan = part->plans;
  if (!plan) {
    rabbet_log(part->session->logger, RABBET_SEVERITY_WARNING,
               "a plan that is kept is tuned for dimensions of 1 where option "
               "'dims' gives no others");
    status = part_build(part, NULL, &plan);
  }
  if (rabbet_is_ok(status))
    rabbet_engine_plan(plan->engine, out_plan, out_size);
  return status;
}

// ---- The whole

static rabbet_status_t part_allocate(rabbet_ort_session_t* session,
                                     rabbet_ort_part_t** out_part) {
  rabbet_ort_part_t* part = NULL;
  *out_part = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(session->allocator, sizeof(*part), (void**)&part));
  part->session = session;
  rabbet_arena_initialize(session->allocator, &part->arena);
  pthread_mutex_init(&part->lock, NULL);
  *out_part = part;
  return rabbet_ok();
}

static rabbet_status_t part_write_model(rabbet_ort_part_t* part,
                                        const OrtGraph* handle) {
  rabbet_ort_graph_t graph;
  uint32_t* nodes = NULL;
  int32_t refused;
  RABBET_RETURN_IF_ERROR(
      rabbet_ort_graph_initialize(handle, part->session->allocator, &graph));
  rabbet_status_t status = rabbet_arena_allocate_array(
      &part->arena, graph.node_count, sizeof(*nodes), (void**)&nodes);
  for (uint32_t i = 0; rabbet_is_ok(status) && i < graph.node_count; ++i)
    nodes[i] = i;
  if (rabbet_is_ok(status)) {
    status = rabbet_ort_model_initialize(&graph, nodes, graph.node_count,
                                         part->session->allocator, &part->model,
                                         &refused);
    part->has_model = rabbet_is_ok(status);
    if (!part->has_model) part->model = (rabbet_ort_model_t){0};
  }
  rabbet_ort_graph_deinitialize(&graph);
  return status;
}

// Builds at once if all sizes are known, else keeps the model for a run.
static rabbet_status_t part_begin(rabbet_ort_part_t* part) {
  rabbet_ort_bounds_t bounds;
  rabbet_ort_plan_t* plan = NULL;
  bool is_known = true;
  for (size_t i = 0; i < part->names.input_count; ++i)
    is_known &= part_bounds(part, i, NULL, &bounds);
  return is_known ? part_build(part, NULL, &plan)
                  : rabbet_ort_model_keep(&part->model);
}

rabbet_status_t rabbet_ort_part_create(rabbet_ort_session_t* session,
                                       const OrtGraph* graph,
                                       const OrtNode* fused_node,
                                       rabbet_ort_part_t** out_part) {
  rabbet_ort_part_t* part = NULL;
  *out_part = NULL;
  RABBET_RETURN_IF_ERROR(part_allocate(session, &part));
  rabbet_status_t status = part_write_model(part, graph);
  if (rabbet_is_ok(status)) status = part_find_places(part, fused_node);
  if (rabbet_is_ok(status)) status = part_begin(part);
  if (rabbet_is_ok(status))
    *out_part = part;
  else
    rabbet_ort_part_destroy(part);
  return status;
}

// What ONNX Runtime gives and expects at the node.
static rabbet_status_t part_read_types(rabbet_ort_part_t* part,
                                       const OrtNode* node) {
  const size_t inputs = part->names.input_count;
  const size_t total = inputs + part->names.output_count;
  const OrtValueInfo** infos = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &part->arena, total, sizeof(*infos), (void**)&infos));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &part->arena, total, sizeof(*part->types), (void**)&part->types));
  if (inputs) RABBET_RETURN_IF_ERROR(ORT(Node_GetInputs, node, infos, inputs));
  if (total > inputs)
    RABBET_RETURN_IF_ERROR(
        ORT(Node_GetOutputs, node, infos + inputs, total - inputs));
  for (size_t i = 0; i < total; ++i) {
    const OrtTypeInfo* type = NULL;
    const OrtTensorTypeAndShapeInfo* tensor = NULL;
    if (infos[i])
      RABBET_RETURN_IF_ERROR(ORT(GetValueInfoTypeInfo, infos[i], &type));
    if (type)
      RABBET_RETURN_IF_ERROR(ORT(CastTypeInfoToTensorInfo, type, &tensor));
    if (tensor)
      RABBET_RETURN_IF_ERROR(
          ORT(GetTensorElementType, tensor, &part->types[i]));
  }
  return rabbet_ok();
}

static rabbet_status_t part_name_node(rabbet_ort_part_t* part,
                                      const OrtNode* node) {
  rabbet_ort_names_t* names = &part->names;
  RABBET_RETURN_IF_ERROR(
      part_read_values(part, node, true, &names->inputs, &names->input_count));
  RABBET_RETURN_IF_ERROR(part_read_values(part, node, false, &names->outputs,
                                          &names->output_count));
  const size_t total = names->input_count + names->output_count;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &part->arena, total, sizeof(*names->input_slots),
      (void**)&names->input_slots));
  names->output_slots = names->input_slots + names->input_count;
  for (size_t i = 0; i < names->input_count; ++i)
    names->input_slots[i] = i;
  for (size_t i = 0; i < names->output_count; ++i)
    names->output_slots[i] = i;
  return part_read_types(part, node);
}

rabbet_status_t rabbet_ort_part_load(rabbet_ort_session_t* session,
                                     const OrtNode* node, const void* plan,
                                     size_t size, const char* path,
                                     rabbet_ort_part_t** out_part) {
  rabbet_ort_part_t* part = NULL;
  rabbet_engine_t* engine = NULL;
  rabbet_ort_plan_t* taken = NULL;
  *out_part = NULL;
  RABBET_RETURN_IF_ERROR(part_allocate(session, &part));
  rabbet_status_t status = part_name_node(part, node);
  if (rabbet_is_ok(status))
    status = rabbet_ort_load(session, plan, size, path, &engine);
  if (rabbet_is_ok(status)) status = part_take_engine(part, engine, &taken);
  if (rabbet_is_ok(status))
    *out_part = part;
  else
    rabbet_ort_part_destroy(part);
  return status;
}

void rabbet_ort_part_destroy(rabbet_ort_part_t* part) {
  if (!part) return;
  for (rabbet_ort_plan_t *plan = part->plans, *next; plan; plan = next) {
    next = plan->next;
    rabbet_ort_plan_destroy(plan);
  }
  if (part->model.allocator.resize) rabbet_ort_model_deinitialize(&part->model);
  pthread_mutex_destroy(&part->lock);
  rabbet_arena_deinitialize(&part->arena);
  rabbet_free(part->session->allocator, part);
}
