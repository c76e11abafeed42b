#include "triton/config.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "triton/ragged.h"
#include "triton/report.h"
#include "triton/text.h"

// ---- Values

// In functions of cJSON, NULL is a value that is absent.
static cJSON* config_get(const cJSON* object, const char* key) {
  return cJSON_GetObjectItemCaseSensitive(object, key);
}

static const cJSON* config_first(const cJSON* list) {
  return list ? list->child : NULL;
}

const char* rabbet_triton_config_text(const cJSON* object, const char* key) {
  const char* text = cJSON_GetStringValue(config_get(object, key));
  return text ? text : "";
}

static int64_t config_parse_integer(const char* text, int64_t fallback) {
  char* end = NULL;
  errno = 0;
  long long number = strtoll(text, &end, 10);
  return end != text && *end == 0 && errno == 0 ? number : fallback;
}

// Also of a string of digits, as protobuf writes 64-bit integers.
static int64_t config_integer(const cJSON* value, int64_t fallback) {
  if (cJSON_IsString(value))
    return config_parse_integer(value->valuestring, fallback);
  double number = cJSON_IsNumber(value) ? value->valuedouble : NAN;
  if (!(fabs(number) < 0x1p63)) return fallback;
  return (double)(int64_t)number == number ? (int64_t)number : fallback;
}

// Takes the value, NULL where memory was lacking.
static rabbet_status_t config_set(cJSON* object, const char* key,
                                  cJSON* value) {
  if (value && (config_get(object, key)
                    ? cJSON_ReplaceItemInObjectCaseSensitive(object, key, value)
                    : cJSON_AddItemToObject(object, key, value)))
    return rabbet_ok();
  cJSON_Delete(value);
  return rabbet_triton_config_no_memory();
}

rabbet_status_t rabbet_triton_config_no_memory(void) {
  return RABBET_STATUS(RABBET_STATUS_OUT_OF_MEMORY,
                       "no memory for the model's configuration");
}

// ---- Parameters

const char* rabbet_triton_config_parameter(const cJSON* config,
                                           const char* name) {
  return rabbet_triton_config_text(
      config_get(config_get(config, "parameters"), name), "string_value");
}

rabbet_status_t rabbet_triton_config_flag(const cJSON* config, const char* name,
                                          bool* out_value) {
  const char* text = rabbet_triton_config_parameter(config, name);
  *out_value = strcmp(text, "true") == 0;
  if (*out_value || !*text || strcmp(text, "false") == 0) return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                       "parameter '%s' is '%s'; expected true or false", name,
                       text);
}

// ---- Names

// The element whose member `key` is `name`; NULL: none.
static cJSON* config_find(const cJSON* list, const char* key,
                          const char* name) {
  cJSON* entry = NULL;
  cJSON_ArrayForEach(entry, list) {
    if (strcmp(rabbet_triton_config_text(entry, key), name) == 0) break;
  }
  return entry;
}

static const char* config_kind(bool is_input) {
  return is_input ? "input" : "output";
}

static cJSON* config_find_io(const cJSON* config, const rabbet_io_t* io) {
  return config_find(config_get(config, config_kind(io->is_input)), "name",
                     io->name);
}

static rabbet_triton_role_t config_role(const cJSON* config,
                                        const rabbet_io_t* io) {
  const cJSON* sequence = config_get(config, "sequence_batching");
  const char* key = io->is_input ? "input_name" : "output_name";
  if (config_find(config_get(sequence, "state"), key, io->name))
    return RABBET_TRITON_STATE;
  if (io->is_input &&
      config_find(config_get(sequence, "control_input"), "name", io->name))
    return RABBET_TRITON_CONTROL;
  if (io->is_input && rabbet_triton_is_ragged_target(config, io))
    return RABBET_TRITON_BATCH_INPUT;
  return config_find_io(config, io) ? RABBET_TRITON_TENSOR
                                    : RABBET_TRITON_UNUSED;
}

// ---- Completing

// Shape that the model has where requests have another.
static const cJSON* config_dims(const cJSON* entry) {
  const cJSON* reshape = config_get(entry, "reshape");
  return reshape ? config_get(reshape, "shape") : config_get(entry, "dims");
}

static bool config_has_dims(const cJSON* entry) {
  return (size_t)cJSON_GetArraySize(config_get(entry, "dims")) > 0;
}

static rabbet_status_t config_ragged_needs_batch(void) {
  return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                       "the configuration has batch_input or batch_output, and "
                       "no max_batch_size");
}

// 0 is also the value of a size that was not given. Inputs that are given with
// all their dimensions tell that no batch is meant.
static rabbet_status_t config_find_batch(const cJSON* config,
                                         const rabbet_triton_plan_t* plan,
                                         int64_t* out_size) {
  int64_t size = config_integer(config_get(config, "max_batch_size"), 0);
  bool whole = false;
  for (size_t i = 0; i < plan->input_count; ++i) {
    const rabbet_io_t* io = rabbet_triton_plan_io(plan, i);
    const cJSON* entry = config_find_io(config, io);
    whole |=
        config_has_dims(entry) &&
        (size_t)cJSON_GetArraySize(config_dims(entry)) == (size_t)io->dims.rank;
  }
  *out_size = 0;
  if (size < 0)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "max_batch_size is %lld; expected 0 or more",
                         (long long)size);
  if (rabbet_triton_is_ragged(config)) {
    *out_size = size ? size : rabbet_triton_ragged_limit(config, plan);
    if (*out_size > 0) return rabbet_ok();
    return config_ragged_needs_batch();
  }
  if (size > 0 && plan->batch_limit == 0)
    return RABBET_STATUS(
        RABBET_STATUS_INVALID_ARGUMENT,
        "max_batch_size is %lld, but the plan is not batched: %s. Set it to 0, "
        "and give inputs and outputs all their dimensions",
        (long long)size, plan->why_not);
  if (size > plan->batch_limit)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "max_batch_size is %lld; the plan's profiles allow up "
                         "to %lld",
                         (long long)size, (long long)plan->batch_limit);
  if (size == 0 && plan->batch_limit > 1 && !whole) size = plan->batch_limit;
  *out_size = size;
  return rabbet_ok();
}

// `batched`: the plan's first dimension is the batch, which the server adds.
static rabbet_status_t config_complete_dims(const rabbet_io_t* io, bool batched,
                                            cJSON* entry) {
  // The server wants one dimension at least.
  bool scalar = io->dims.rank == batched;
  double dims[RABBET_MAX_RANK] = {1};
  for (int32_t axis = batched; axis < io->dims.rank; ++axis)
    dims[axis - batched] = (double)io->dims.d[axis];
  int count = scalar ? 1 : io->dims.rank - batched;
  RABBET_RETURN_IF_ERROR(
      config_set(entry, "dims", cJSON_CreateDoubleArray(dims, count)));
  if (!scalar) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(config_set(entry, "reshape", cJSON_CreateObject()));
  return config_set(config_get(entry, "reshape"), "shape", cJSON_CreateArray());
}

// What a user has given stays.
static rabbet_status_t config_complete_entry(const rabbet_io_t* io,
                                             bool batched, cJSON* entry) {
  const char* type = rabbet_triton_config_text(entry, "data_type");
  if (!*type || strcmp(type, "TYPE_INVALID") == 0)
    RABBET_RETURN_IF_ERROR(
        config_set(entry, "data_type",
                   cJSON_CreateString(rabbet_triton_type_name(io->dtype))));
  return config_has_dims(entry) ? rabbet_ok()
                                : config_complete_dims(io, batched, entry);
}

// Of outputs that are listed, the others are not wanted.
static rabbet_status_t config_complete_entries(const rabbet_triton_plan_t* plan,
                                               bool is_input, bool batched,
                                               cJSON* config) {
  const char* kind = config_kind(is_input);
  bool all = is_input || !config_first(config_get(config, kind));
  if (!cJSON_IsArray(config_get(config, kind)))
    RABBET_RETURN_IF_ERROR(config_set(config, kind, cJSON_CreateArray()));
  for (size_t i = 0; i < plan->io_count; ++i) {
    const rabbet_io_t* io = rabbet_triton_plan_io(plan, i);
    cJSON* entry = config_find_io(config, io);
    if (io->is_input != is_input) continue;
    if (!entry) {
      if (!all || config_role(config, io) != RABBET_TRITON_UNUSED) continue;
      entry = cJSON_CreateObject();
      if (!entry || !cJSON_AddItemToArray(config_get(config, kind), entry))
        return rabbet_triton_config_no_memory();
      RABBET_RETURN_IF_ERROR(
          config_set(entry, "name", cJSON_CreateString(io->name)));
    }
    // Of these the plan has all requests in one dimension.
    bool ragged = rabbet_triton_is_ragged_source(config, io) ||
                  (!is_input && rabbet_triton_is_ragged_target(config, io));
    if (is_input && ragged && !config_has_dims(entry))
      RABBET_RETURN_IF_ERROR(
          config_set(entry, "allow_ragged_batch", cJSON_CreateTrue()));
    RABBET_RETURN_IF_ERROR(
        config_complete_entry(io, batched && !ragged, entry));
  }
  return rabbet_ok();
}

// An entry that has no counterpart would be left out of what is written.
static rabbet_status_t config_check_names(const cJSON* config,
                                          const rabbet_triton_plan_t* plan,
                                          bool is_input) {
  const char* kind = config_kind(is_input);
  const cJSON* entry = config_first(config_get(config, kind));
  for (; entry; entry = entry->next) {
    const char* name = rabbet_triton_config_text(entry, "name");
    int32_t io = rabbet_engine_find_io(plan->engine, name);
    if (io >= 0 &&
        rabbet_triton_plan_io(plan, (size_t)io)->is_input == is_input)
      continue;
    rabbet_text_t names = {.allocator = plan->allocator};
    for (size_t i = 0; i < plan->io_count; ++i) {
      const rabbet_io_t* other = rabbet_triton_plan_io(plan, i);
      if (other->is_input == is_input)
        rabbet_text_printf(&names, "%s'%s'", names.size ? ", " : "",
                           other->name);
    }
    rabbet_status_t status =
        rabbet_is_ok(names.status)
            ? RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                            "%s '%s' is not of the plan, which has %s", kind,
                            name, names.data ? names.data : "none")
            : names.status;
    rabbet_free(names.allocator, names.data);
    return status;
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_triton_config_complete(const rabbet_triton_plan_t* plan,
                                              cJSON* config) {
  static const char* const schedulers[] = {
      "dynamic_batching", "sequence_batching", "ensemble_scheduling"};
  int64_t batch = 0;
  RABBET_RETURN_IF_ERROR(config_check_names(config, plan, true));
  RABBET_RETURN_IF_ERROR(config_check_names(config, plan, false));
  RABBET_RETURN_IF_ERROR(config_find_batch(config, plan, &batch));
  RABBET_RETURN_IF_ERROR(
      config_set(config, "max_batch_size", cJSON_CreateNumber((double)batch)));
  RABBET_RETURN_IF_ERROR(
      config_complete_entries(plan, true, batch > 0, config));
  RABBET_RETURN_IF_ERROR(
      config_complete_entries(plan, false, batch > 0, config));
  for (int i = 0; i < 3; ++i) {
    if (config_get(config, schedulers[i])) return rabbet_ok();
  }
  return batch > 1
             ? config_set(config, "dynamic_batching", cJSON_CreateObject())
             : rabbet_ok();
}

// ---- Checking

static rabbet_status_t config_check_type(const cJSON* entry,
                                         const rabbet_io_t* io) {
  const char* kind = config_kind(io->is_input);
  const char* expected = rabbet_triton_type_name(io->dtype);
  const char* found = rabbet_triton_config_text(entry, "data_type");
  if (strcmp(found, expected) == 0) return rabbet_ok();
  if (strcmp(found, "TYPE_STRING") == 0)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "%s '%s' is TYPE_STRING: plans have no strings, and "
                         "this %s is %s. Turn text into numbers before, in the "
                         "client or in a model of an ensemble",
                         kind, io->name, kind, expected);
  return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                       "%s '%s' is %s in the configuration; the plan's is %s",
                       kind, io->name, *found ? found : "without a type",
                       expected);
}

// Dimensions of an entry, the batch before them.
static rabbet_dims_t config_read_dims(const cJSON* entry, bool batched) {
  rabbet_dims_t dims = {.rank = batched};
  if (batched) dims.d[0] = -1;
  for (const cJSON* i = config_first(config_dims(entry));
       i && dims.rank < RABBET_MAX_RANK; i = i->next)
    dims.d[dims.rank++] = config_integer(i, -1);
  return dims;
}

// Whether requests of different shapes are put together into fewer dimensions.
static bool config_is_joined(const cJSON* entry, const rabbet_io_t* io,
                             bool batched) {
  return io->is_input && batched && io->dims.rank > 0 &&
         cJSON_IsTrue(config_get(entry, "allow_ragged_batch")) &&
         config_read_dims(entry, true).rank > io->dims.rank;
}

// Dimensions of the configuration are the plan's, or narrower than those; of
// inputs that are joined the trailing ones, of batch outputs any: there the run
// tells whether they fit.
static rabbet_status_t config_check_dims(const cJSON* config,
                                         const cJSON* entry,
                                         const rabbet_io_t* io, bool batched) {
  char text[2][128];
  rabbet_dims_t found = config_read_dims(entry, batched);
  size_t count = (size_t)cJSON_GetArraySize(config_dims(entry)) + batched;
  bool joined = config_is_joined(entry, io, batched);
  int32_t skip = joined ? found.rank - io->dims.rank : 0;
  bool fits = count == (size_t)(io->dims.rank + skip);
  for (int32_t axis = joined || batched; fits && axis < io->dims.rank; ++axis)
    fits = found.d[axis + skip] == io->dims.d[axis] || io->dims.d[axis] < 0;
  if (!io->is_input && rabbet_triton_is_ragged_target(config, io))
    fits = count <= RABBET_MAX_RANK;
  if (fits) return rabbet_ok();
  return RABBET_STATUS(
      RABBET_STATUS_INVALID_ARGUMENT,
      "%s '%s' has shape %s in the configuration%s; the plan's is %s",
      config_kind(io->is_input), io->name,
      rabbet_dims_print(&found, text[0], sizeof(text[0])),
      batched ? ", batch included" : "",
      rabbet_dims_print(&io->dims, text[1], sizeof(text[1])));
}

static rabbet_status_t config_check_io(const cJSON* config,
                                       const rabbet_io_t* io, bool batched,
                                       rabbet_triton_role_t role) {
  const cJSON* entry = config_find_io(config, io);
  if (io->is_input && role == RABBET_TRITON_UNUSED)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "the configuration has no input '%s', which the plan "
                         "needs",
                         io->name);
  if (!entry) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(config_check_type(entry, io));
  return config_check_dims(config, entry, io, batched);
}

// The server then gives a sequence's first request memory as it is.
static void config_warn_of_states(const cJSON* config) {
  const cJSON* sequence = config_get(config, "sequence_batching");
  const cJSON* state = config_first(config_get(sequence, "state"));
  // A model may look at a control input that tells of the start.
  if (config_first(config_get(sequence, "control_input"))) return;
  for (; state; state = state->next) {
    if (config_first(config_get(state, "initial_state"))) continue;
    rabbet_log(rabbet_triton_logger(), RABBET_SEVERITY_WARNING,
               "state '%s' has no initial_state: its first value is not "
               "defined",
               rabbet_triton_config_text(state, "input_name"));
  }
}

// Others than the backend's may be somebody else's, and are no error.
static void config_warn_of_parameters(const cJSON* config) {
  static const char* const names[] = {"plugins", "host_code_allowed", "threads",
                                      "cuda_graphs", "answer_threads"};
  const cJSON* given = config_first(config_get(config, "parameters"));
  for (; given; given = given->next) {
    bool known = !given->string;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && !known; ++i)
      known = strcmp(given->string, names[i]) == 0;
    if (!known)
      rabbet_log(rabbet_triton_logger(), RABBET_SEVERITY_WARNING,
                 "parameter '%s' is not read: expected plugins, "
                 "host_code_allowed, threads, cuda_graphs or answer_threads",
                 given->string);
  }
}

// A parameter from `least` on.
static rabbet_status_t config_number(const cJSON* config, const char* name,
                                     int64_t least, int64_t fallback,
                                     int64_t* out_value) {
  const char* text = rabbet_triton_config_parameter(config, name);
  *out_value = *text ? config_parse_integer(text, -1) : fallback;
  if (!*text || (*out_value >= least && *out_value <= INT16_MAX))
    return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                       "parameter '%s' is '%s'; expected a number from %lld to "
                       "%d",
                       name, text, (long long)least, INT16_MAX);
}

static rabbet_status_t config_read(const cJSON* config,
                                   const rabbet_triton_plan_t* plan,
                                   rabbet_triton_config_t* out) {
  int64_t completed = 0;
  out->max_batch_size = config_integer(config_get(config, "max_batch_size"), 0);
  RABBET_RETURN_IF_ERROR(config_find_batch(config, plan, &completed));
  if (rabbet_triton_is_ragged(config) && out->max_batch_size < 1)
    return config_ragged_needs_batch();
  RABBET_RETURN_IF_ERROR(config_check_names(config, plan, true));
  RABBET_RETURN_IF_ERROR(config_check_names(config, plan, false));
  bool batched = out->max_batch_size > 0;
  for (size_t i = 0; i < plan->io_count; ++i) {
    const rabbet_io_t* io = rabbet_triton_plan_io(plan, i);
    const cJSON* entry = config_find_io(config, io);
    rabbet_triton_use_t* use = &out->uses[i];
    use->role = config_role(config, io);
    out->has_states |= use->role == RABBET_TRITON_STATE;
    RABBET_RETURN_IF_ERROR(config_check_io(config, io, batched, use->role));
    use->dims = config_read_dims(entry, batched);
    use->rank =
        config_is_joined(entry, io, batched) ? use->dims.rank : io->dims.rank;
    out->is_ragged |= use->rank != io->dims.rank;
  }
  out->is_ragged |= rabbet_triton_is_ragged(config);
  RABBET_RETURN_IF_ERROR(rabbet_triton_ragged_read(config, plan, out->uses));
  config_warn_of_states(config);
  config_warn_of_parameters(config);
  RABBET_RETURN_IF_ERROR(
      rabbet_triton_config_flag(config, "cuda_graphs", &out->graphs));
  RABBET_RETURN_IF_ERROR(config_number(config, "threads", 1, 0, &out->threads));
  return config_number(config, "answer_threads", 0, 1, &out->answer_threads);
}

rabbet_status_t rabbet_triton_config_initialize(
    const cJSON* config, const rabbet_triton_plan_t* plan,
    rabbet_allocator_t allocator, rabbet_triton_config_t* out_config) {
  *out_config = (rabbet_triton_config_t){.allocator = allocator};
  rabbet_status_t status =
      rabbet_allocate(allocator, plan->io_count * sizeof(*out_config->uses),
                      (void**)&out_config->uses);
  if (rabbet_is_ok(status)) status = config_read(config, plan, out_config);
  if (!rabbet_is_ok(status)) rabbet_triton_config_deinitialize(out_config);
  return status;
}

void rabbet_triton_config_deinitialize(rabbet_triton_config_t* config) {
  rabbet_free(config->allocator, config->uses);
  *config = (rabbet_triton_config_t){0};
}
