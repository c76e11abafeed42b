// From a finished cuDNN graph to a plan that executes it.
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "device/cuda/cudnn/graph.h"

enum {
  PLAN_MAX_NOTES = 16,
  PLAN_MAX_CONFIGS = 128,
  PLAN_NUMBER = (1 << 30) - 1,
};

static rabbet_status_t plan_new(const rabbet_cudnn_t* library, int type,
                                cudnnBackendDescriptor_t* out) {
  *out = NULL;
  return RABBET_CUDNN(library, cudnnBackendCreateDescriptor, (type, out));
}

static rabbet_status_t plan_set(const rabbet_cudnn_t* library,
                                cudnnBackendDescriptor_t descriptor, int name,
                                int type, int64_t count, const void* values) {
  return RABBET_CUDNN(library, cudnnBackendSetAttribute,
                      (descriptor, name, type, count, values));
}

static rabbet_status_t plan_get(const rabbet_cudnn_t* library,
                                cudnnBackendDescriptor_t descriptor, int name,
                                int type, int64_t room, int64_t* out_count,
                                void* values) {
  *out_count = 0;
  return RABBET_CUDNN(library, cudnnBackendGetAttribute,
                      (descriptor, name, type, room, out_count, values));
}

static void plan_destroy_all(const rabbet_cudnn_t* library,
                             cudnnBackendDescriptor_t* list, size_t count) {
  for (size_t i = 0; i < count; ++i)
    if (list[i]) library->cudnnBackendDestroyDescriptor(list[i]);
}

// Creates `count` descriptors for the results of a query.
static rabbet_status_t plan_new_all(const rabbet_cudnn_t* library, int type,
                                    cudnnBackendDescriptor_t* list,
                                    size_t count) {
  memset(list, 0, sizeof(*list) * count);
  for (size_t i = 0; i < count; ++i) {
    rabbet_status_t status = plan_new(library, type, &list[i]);
    if (rabbet_is_ok(status)) continue;
    plan_destroy_all(library, list, i);
    return status;
  }
  return rabbet_ok();
}

// ---- Identity of a configuration -------------------------------------------

typedef struct plan_identity_t {
  rabbet_cudnn_engine_t engine;
  int32_t notes[PLAN_MAX_NOTES];
  int64_t note_count;
  bool compiles;
} plan_identity_t;

// Whether the engine compiles its kernels for each plan.
static rabbet_status_t plan_read_behavior(const rabbet_cudnn_t* library,
                                          cudnnBackendDescriptor_t engine,
                                          bool* out_compiles) {
  int32_t notes[PLAN_MAX_NOTES];
  int64_t count = 0;
  *out_compiles = false;
  RABBET_RETURN_IF_ERROR(
      plan_get(library, engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE,
               CUDNN_TYPE_BEHAVIOR_NOTE, PLAN_MAX_NOTES, &count, notes));
  for (int64_t i = 0; i < count && i < PLAN_MAX_NOTES; ++i)
    *out_compiles |= notes[i] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
  return rabbet_ok();
}

static rabbet_status_t plan_read_engine(const rabbet_cudnn_t* library,
                                        cudnnBackendDescriptor_t config,
                                        plan_identity_t* out) {
  cudnnBackendDescriptor_t engine = NULL;
  int64_t count = 0;
  RABBET_RETURN_IF_ERROR(
      plan_new(library, CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine));
  rabbet_status_t status =
      plan_get(library, config, CUDNN_ATTR_ENGINECFG_ENGINE,
               CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine);
  if (rabbet_is_ok(status))
    status = plan_get(library, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX,
                      CUDNN_TYPE_INT64, 1, &count, &out->engine.engine);
  if (rabbet_is_ok(status))
    status =
        plan_get(library, engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                 CUDNN_TYPE_NUMERICAL_NOTE, PLAN_MAX_NOTES, &count, out->notes);
  if (rabbet_is_ok(status))
    out->note_count = count < PLAN_MAX_NOTES ? count : PLAN_MAX_NOTES;
  if (rabbet_is_ok(status))
    status = plan_read_behavior(library, engine, &out->compiles);
  library->cudnnBackendDestroyDescriptor(engine);
  return status;
}

static rabbet_status_t plan_read_knob(const rabbet_cudnn_t* library,
                                      cudnnBackendDescriptor_t knob,
                                      int64_t out[2]) {
  int32_t type = 0;
  int64_t count = 0;
  RABBET_RETURN_IF_ERROR(plan_get(library, knob,
                                  CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE,
                                  CUDNN_TYPE_KNOB_TYPE, 1, &count, &type));
  out[0] = type;
  return plan_get(library, knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE,
                  CUDNN_TYPE_INT64, 1, &count, &out[1]);
}

static rabbet_status_t plan_read_knobs(const rabbet_cudnn_t* library,
                                       cudnnBackendDescriptor_t config,
                                       rabbet_cudnn_engine_t* out) {
  cudnnBackendDescriptor_t knobs[RABBET_CUDNN_KNOBS];
  int64_t count = 0;
  RABBET_RETURN_IF_ERROR(plan_new_all(library,
                                      CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR,
                                      knobs, RABBET_CUDNN_KNOBS));
  rabbet_status_t status = plan_get(
      library, config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
      CUDNN_TYPE_BACKEND_DESCRIPTOR, RABBET_CUDNN_KNOBS, &count, knobs);
  if (count > RABBET_CUDNN_KNOBS) count = RABBET_CUDNN_KNOBS;
  for (int64_t i = 0; rabbet_is_ok(status) && i < count; ++i)
    status = plan_read_knob(library, knobs[i], out->knobs[i]);
  out->knob_count = count;
  plan_destroy_all(library, knobs, RABBET_CUDNN_KNOBS);
  return status;
}

static bool plan_has_note(const plan_identity_t* identity, int note) {
  for (int64_t i = 0; i < identity->note_count; ++i)
    if (identity->notes[i] == note) return true;
  return false;
}

// Whether sums are FLOAT, and FLOAT is rounded to TF32 only if that is allowed.
// Transforming algorithms (Winograd, FFT) round narrow types in between.
static bool plan_is_precise(const plan_identity_t* identity,
                            const rabbet_cudnn_wish_t* wish) {
  bool is_float = wish->dtype == RABBET_DTYPE_FLOAT;
  if (plan_has_note(identity, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION))
    return false;
  if (is_float &&
      plan_has_note(identity, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS))
    return false;
  if (!is_float && (plan_has_note(identity, CUDNN_NUMERICAL_NOTE_FFT) ||
                    plan_has_note(identity, CUDNN_NUMERICAL_NOTE_WINOGRAD)))
    return false;
  return !is_float || wish->tf32 ||
         !plan_has_note(identity, CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
}

static void plan_name(rabbet_cudnn_choice_t* choice) {
  const rabbet_cudnn_engine_t* engine = &choice->engine;
  size_t room = sizeof(choice->name);
  uint64_t hash = rabbet_hash64(
      engine->knobs, sizeof(engine->knobs[0]) * (size_t)engine->knob_count);
  const uint64_t both[2] = {(uint64_t)engine->engine, hash};
  choice->number = (int32_t)(rabbet_hash64(both, sizeof(both)) & PLAN_NUMBER);
  size_t at = (size_t)snprintf(choice->name, room, "engine %lld",
                               (long long)engine->engine);
  for (int64_t i = 0; i < engine->knob_count && at < room; ++i)
    at += (size_t)snprintf(choice->name + at, room - at, " k%lld=%lld",
                           (long long)engine->knobs[i][0],
                           (long long)engine->knobs[i][1]);
}

// ---- Heuristics ------------------------------------------------------------

static bool plan_is_known(const rabbet_cudnn_choices_t* choices,
                          int32_t number) {
  for (size_t i = 0; i < choices->list.count; ++i)
    if (choices->list.data[i].number == number) return true;
  return false;
}

static size_t plan_compiling(const rabbet_cudnn_choices_t* choices) {
  size_t count = 0;
  for (size_t i = 0; i < choices->list.count; ++i)
    count += choices->list.data[i].compiles;
  return count;
}

// Adds the configuration if it is usable and new.
static rabbet_status_t plan_consider(rabbet_cudnn_choices_t* choices,
                                     const rabbet_cudnn_wish_t* wish,
                                     bool spares_compiling,
                                     cudnnBackendDescriptor_t config) {
  const rabbet_cudnn_t* library = choices->graph->library;
  plan_identity_t identity = {.note_count = 0};
  rabbet_cudnn_choice_t choice;
  RABBET_RETURN_IF_ERROR(plan_read_engine(library, config, &identity));
  if (!plan_is_precise(&identity, wish) ||
      (identity.compiles &&
       (spares_compiling || choices->graph->has_wide_stride ||
        plan_compiling(choices) >= wish->most_compiling)))
    return rabbet_ok();
  RABBET_RETURN_IF_ERROR(plan_read_knobs(library, config, &identity.engine));
  choice.engine = identity.engine;
  choice.compiles = identity.compiles;
  plan_name(&choice);
  if (plan_is_known(choices, choice.number)) return rabbet_ok();
  return RABBET_VEC_PUSH(choices->graph->allocator, &choices->list, choice);
}

static rabbet_status_t plan_collect(rabbet_cudnn_choices_t* choices,
                                    const rabbet_cudnn_wish_t* wish,
                                    bool spares_compiling,
                                    cudnnBackendDescriptor_t heuristics) {
  const rabbet_cudnn_t* library = choices->graph->library;
  cudnnBackendDescriptor_t configs[PLAN_MAX_CONFIGS];
  int64_t count = 0;
  RABBET_RETURN_IF_ERROR(
      plan_get(library, heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
               CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, NULL));
  if (count > PLAN_MAX_CONFIGS) count = PLAN_MAX_CONFIGS;
  size_t room = (size_t)count;
  if (room == 0) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(
      plan_new_all(library, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, configs, room));
  rabbet_status_t status =
      plan_get(library, heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
               CUDNN_TYPE_BACKEND_DESCRIPTOR, (int64_t)room, &count, configs);
  for (int64_t i = 0; rabbet_is_ok(status) && i < count && i < (int64_t)room &&
                      choices->list.count < wish->count;
       ++i)
    status = plan_consider(choices, wish, spares_compiling, configs[i]);
  plan_destroy_all(library, configs, room);
  return status;
}

static rabbet_status_t plan_ask(rabbet_cudnn_choices_t* choices,
                                const rabbet_cudnn_wish_t* wish, int mode) {
  const rabbet_cudnn_t* library = choices->graph->library;
  bool spares_compiling = wish->spares_compiling &&
                          mode == CUDNN_HEUR_MODE_FALLBACK &&
                          plan_compiling(choices) > 0;
  cudnnBackendDescriptor_t heuristics = NULL;
  RABBET_RETURN_IF_ERROR(
      plan_new(library, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristics));
  rabbet_status_t status =
      plan_set(library, heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
               CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &choices->graph->graph);
  if (rabbet_is_ok(status))
    status = plan_set(library, heuristics, CUDNN_ATTR_ENGINEHEUR_MODE,
                      CUDNN_TYPE_HEUR_MODE, 1, &mode);
  if (rabbet_is_ok(status))
    status = RABBET_CUDNN(library, cudnnBackendFinalize, (heuristics));
  if (rabbet_is_ok(status))
    status = plan_collect(choices, wish, spares_compiling, heuristics);
  library->cudnnBackendDestroyDescriptor(heuristics);
  // The answer may be that there is no engine.
  if (rabbet_status_code(status) != RABBET_STATUS_UNSUPPORTED) return status;
  rabbet_status_ignore(status);
  return rabbet_ok();
}

rabbet_status_t rabbet_cudnn_choices(rabbet_cudnn_graph_t* graph,
                                     const rabbet_cudnn_wish_t* wish,
                                     rabbet_cudnn_choices_t* out_choices) {
  static const int modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
  assert(graph->graph);  // finished
  *out_choices = (rabbet_cudnn_choices_t){.graph = graph};
  rabbet_status_t status = rabbet_ok();
  for (size_t i = 0; rabbet_is_ok(status) && i < 2; ++i)
    if (out_choices->list.count < wish->count)
      status = plan_ask(out_choices, wish, modes[i]);
  if (!rabbet_is_ok(status)) rabbet_cudnn_choices_end(out_choices);
  return status;
}

void rabbet_cudnn_choices_end(rabbet_cudnn_choices_t* choices) {
  if (!choices->graph) return;
  rabbet_vec_free(choices->graph->allocator, &choices->list);
  *choices = (rabbet_cudnn_choices_t){.graph = NULL};
}

// ---- Plans -----------------------------------------------------------------

// Turns any failure of an engine into UNSUPPORTED, so that others are tried.
static rabbet_status_t plan_as_unsupported(rabbet_status_t status) {
  rabbet_status_code_t code = rabbet_status_code(status);
  if (rabbet_is_ok(status) || code == RABBET_STATUS_OUT_OF_MEMORY ||
      code == RABBET_STATUS_UNAVAILABLE || code == RABBET_STATUS_UNSUPPORTED)
    return status;
  rabbet_status_t unsupported = RABBET_STATUS(RABBET_STATUS_UNSUPPORTED, "%s",
                                              rabbet_status_message(status));
  rabbet_status_ignore(status);
  return unsupported;
}

static rabbet_status_t plan_make(const rabbet_cudnn_t* library,
                                 cudnnHandle_t handle, int name, int type,
                                 int64_t count, const void* values,
                                 cudnnBackendDescriptor_t* out_plan) {
  cudnnBackendDescriptor_t plan = NULL;
  *out_plan = NULL;
  RABBET_RETURN_IF_ERROR(
      plan_new(library, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan));
  rabbet_status_t status =
      plan_set(library, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE,
               CUDNN_TYPE_HANDLE, 1, &handle);
  if (rabbet_is_ok(status))
    status = plan_set(library, plan, name, type, count, values);
  if (rabbet_is_ok(status))
    status = plan_as_unsupported(
        RABBET_CUDNN(library, cudnnBackendFinalize, (plan)));
  if (rabbet_is_ok(status))
    *out_plan = plan;
  else
    library->cudnnBackendDestroyDescriptor(plan);
  return status;
}

static rabbet_status_t config_finish(const rabbet_cudnn_t* library,
                                     cudnnBackendDescriptor_t descriptor) {
  return RABBET_CUDNN(library, cudnnBackendFinalize, (descriptor));
}

static rabbet_status_t config_knob(const rabbet_cudnn_t* library,
                                   const int64_t knob[2],
                                   cudnnBackendDescriptor_t descriptor) {
  const int32_t type = (int32_t)knob[0];
  RABBET_RETURN_IF_ERROR(plan_set(library, descriptor,
                                  CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE,
                                  CUDNN_TYPE_KNOB_TYPE, 1, &type));
  RABBET_RETURN_IF_ERROR(plan_set(library, descriptor,
                                  CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE,
                                  CUDNN_TYPE_INT64, 1, &knob[1]));
  return config_finish(library, descriptor);
}

static rabbet_status_t config_engine(const rabbet_cudnn_graph_t* graph,
                                     const rabbet_cudnn_engine_t* engine,
                                     cudnnBackendDescriptor_t descriptor) {
  const rabbet_cudnn_t* library = graph->library;
  RABBET_RETURN_IF_ERROR(
      plan_set(library, descriptor, CUDNN_ATTR_ENGINE_OPERATION_GRAPH,
               CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph->graph));
  RABBET_RETURN_IF_ERROR(plan_set(library, descriptor,
                                  CUDNN_ATTR_ENGINE_GLOBAL_INDEX,
                                  CUDNN_TYPE_INT64, 1, &engine->engine));
  return config_finish(library, descriptor);
}

// `parts`: the configuration, its engine, its knobs.
static rabbet_status_t config_fill(const rabbet_cudnn_graph_t* graph,
                                   const rabbet_cudnn_engine_t* engine,
                                   cudnnBackendDescriptor_t* parts) {
  const rabbet_cudnn_t* library = graph->library;
  RABBET_RETURN_IF_ERROR(config_engine(graph, engine, parts[1]));
  for (int64_t i = 0; i < engine->knob_count; ++i)
    RABBET_RETURN_IF_ERROR(
        config_knob(library, engine->knobs[i], parts[2 + i]));
  RABBET_RETURN_IF_ERROR(plan_set(library, parts[0],
                                  CUDNN_ATTR_ENGINECFG_ENGINE,
                                  CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &parts[1]));
  if (engine->knob_count > 0)
    RABBET_RETURN_IF_ERROR(
        plan_set(library, parts[0], CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                 CUDNN_TYPE_BACKEND_DESCRIPTOR, engine->knob_count, &parts[2]));
  return config_finish(library, parts[0]);
}

rabbet_status_t rabbet_cudnn_plan(rabbet_cudnn_graph_t* graph,
                                  cudnnHandle_t handle,
                                  const rabbet_cudnn_engine_t* engine,
                                  cudnnBackendDescriptor_t* out_plan) {
  const rabbet_cudnn_t* library = graph->library;
  cudnnBackendDescriptor_t parts[2 + RABBET_CUDNN_KNOBS] = {NULL};
  // Engines of a plan's file were checked when they were read.
  assert(engine->knob_count >= 0 && engine->knob_count <= RABBET_CUDNN_KNOBS);
  size_t count = 2 + (size_t)engine->knob_count;
  *out_plan = NULL;
  rabbet_status_t status = rabbet_ok();
  for (size_t i = 0; rabbet_is_ok(status) && i < count; ++i)
    status = plan_new(library,
                      i == 0   ? CUDNN_BACKEND_ENGINECFG_DESCRIPTOR
                      : i == 1 ? CUDNN_BACKEND_ENGINE_DESCRIPTOR
                               : CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR,
                      &parts[i]);
  // Either call may find that an engine does not support this graph.
  if (rabbet_is_ok(status))
    status = plan_as_unsupported(config_fill(graph, engine, parts));
  if (rabbet_is_ok(status))
    status = plan_make(library, handle, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                       CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &parts[0], out_plan);
  plan_destroy_all(library, parts, count);
  return status;
}

rabbet_status_t rabbet_cudnn_plan_load(const rabbet_cudnn_graph_t* graph,
                                       cudnnHandle_t handle, const char* text,
                                       size_t size,
                                       cudnnBackendDescriptor_t* out_plan) {
  return plan_make(graph->library, handle,
                   CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                   CUDNN_TYPE_CHAR, (int64_t)size, text, out_plan);
}

rabbet_status_t rabbet_cudnn_plan_save(const rabbet_cudnn_graph_t* graph,
                                       cudnnBackendDescriptor_t plan,
                                       char** out_text, size_t* out_size) {
  int64_t size = 0, written = 0;
  char* text = NULL;
  *out_text = NULL;
  *out_size = 0;
  RABBET_RETURN_IF_ERROR(plan_get(graph->library, plan,
                                  CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                  CUDNN_TYPE_CHAR, 0, &size, NULL));
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(graph->allocator, (size_t)size + 1, (void**)&text));
  rabbet_status_t status = plan_get(
      graph->library, plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
      CUDNN_TYPE_CHAR, size, &written, text);
  if (!rabbet_is_ok(status)) {
    rabbet_free(graph->allocator, text);
    return status;
  }
  *out_text = text;
  *out_size = (size_t)(written < size ? written : size);
  return rabbet_ok();
}

rabbet_status_t rabbet_cudnn_plan_workspace(const rabbet_cudnn_graph_t* graph,
                                            cudnnBackendDescriptor_t plan,
                                            size_t* out_bytes) {
  int64_t bytes = 0, count = 0;
  *out_bytes = 0;
  RABBET_RETURN_IF_ERROR(plan_get(graph->library, plan,
                                  CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                  CUDNN_TYPE_INT64, 1, &count, &bytes));
  *out_bytes = bytes > 0 ? (size_t)bytes : 0;
  return rabbet_ok();
}
