#include "triton/ragged.h"

#include <string.h>

// ---- Kinds of batch inputs

static const struct {
  const char* name;
  rabbet_triton_ragged_t kind;
  int32_t rank;
} ragged_kinds[] = {
    {"BATCH_ELEMENT_COUNT", RABBET_TRITON_ELEMENT_COUNT, 1},
    {"BATCH_ACCUMULATED_ELEMENT_COUNT", RABBET_TRITON_ACCUMULATED, 1},
    {"BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO",
     RABBET_TRITON_ACCUMULATED_WITH_ZERO, 1},
    {"BATCH_MAX_ELEMENT_COUNT_AS_SHAPE", RABBET_TRITON_MAX_AS_SHAPE, 1},
    {"BATCH_ITEM_SHAPE", RABBET_TRITON_ITEM_SHAPE, 2},
    {"BATCH_ITEM_SHAPE_FLATTEN", RABBET_TRITON_ITEM_SHAPE_FLATTEN, 1},
};
enum { RAGGED_KIND_COUNT = sizeof(ragged_kinds) / sizeof(*ragged_kinds) };

// Types in which a batch input may be, the configuration's name for them and
// the largest number up to which all are exact.
static const struct {
  rabbet_dtype_t dtype;
  const char* name;
  int64_t largest;
} ragged_types[] = {
    {RABBET_DTYPE_INT32, "TYPE_INT32", INT32_MAX},
    {RABBET_DTYPE_INT64, "TYPE_INT32", INT64_MAX},
    {RABBET_DTYPE_FLOAT, "TYPE_FP32", INT64_C(1) << 24},
};
enum { RAGGED_TYPE_COUNT = sizeof(ragged_types) / sizeof(*ragged_types) };

// -1: not one of them.
static int ragged_type(rabbet_dtype_t dtype) {
  for (int i = 0; i < RAGGED_TYPE_COUNT; ++i) {
    if (ragged_types[i].dtype == dtype) return i;
  }
  return -1;
}

// ---- The configuration

static const cJSON* ragged_get(const cJSON* object, const char* key) {
  return cJSON_GetObjectItemCaseSensitive(object, key);
}

static const cJSON* ragged_first(const cJSON* config, const char* list) {
  const cJSON* entries = ragged_get(config, list);
  return entries ? entries->child : NULL;
}

static bool ragged_has_name(const cJSON* entry, const char* key,
                            const char* name) {
  const cJSON* found = NULL;
  cJSON_ArrayForEach(found, ragged_get(entry, key)) {
    const char* text = cJSON_GetStringValue(found);
    if (text && strcmp(text, name) == 0) return true;
  }
  return false;
}

static bool ragged_is_named(const cJSON* config, const char* list,
                            const char* key, const char* name) {
  const cJSON* entry = ragged_first(config, list);
  for (; entry; entry = entry->next) {
    if (ragged_has_name(entry, key, name)) return true;
  }
  return false;
}

bool rabbet_triton_is_ragged(const cJSON* config) {
  return ragged_first(config, "batch_input") ||
         ragged_first(config, "batch_output");
}

bool rabbet_triton_is_ragged_target(const cJSON* config,
                                    const rabbet_io_t* io) {
  return ragged_is_named(config, io->is_input ? "batch_input" : "batch_output",
                         "target_name", io->name);
}

bool rabbet_triton_is_ragged_source(const cJSON* config,
                                    const rabbet_io_t* io) {
  return io->is_input &&
         ragged_is_named(config, "batch_input", "source_input", io->name);
}

// -1: unknown.
static int ragged_kind(const cJSON* entry) {
  const char* name = rabbet_triton_config_text(entry, "kind");
  if (!*name) return 0;
  for (int i = 0; i < RAGGED_KIND_COUNT; ++i) {
    if (strcmp(ragged_kinds[i].name, name) == 0) return i;
  }
  return -1;
}

// Requests, or rows of requests, that a batch input has room for.
static int64_t ragged_room(rabbet_triton_ragged_t kind, int64_t size) {
  switch (kind) {
    case RABBET_TRITON_ELEMENT_COUNT:
    case RABBET_TRITON_ACCUMULATED:
    case RABBET_TRITON_ITEM_SHAPE:
      return size;
    case RABBET_TRITON_ACCUMULATED_WITH_ZERO:
      return size - 1;
    case RABBET_TRITON_MAX_AS_SHAPE:
    case RABBET_TRITON_ITEM_SHAPE_FLATTEN:
      break;
  }
  return INT64_MAX;
}

int64_t rabbet_triton_ragged_limit(const cJSON* config,
                                   const rabbet_triton_plan_t* plan) {
  int64_t limit = 0;
  for (size_t p = 0; p < plan->profile_count; ++p) {
    int64_t room = INT64_MAX;
    for (size_t i = 0; i < plan->input_count; ++i) {
      const char* name = rabbet_triton_plan_io(plan, i)->name;
      const rabbet_dims_t* max = &plan->ranges[p * plan->input_count + i].max;
      const cJSON* entry = ragged_first(config, "batch_input");
      for (; entry; entry = entry->next) {
        int kind = ragged_kind(entry);
        if (kind < 0 || max->rank < 1 ||
            !ragged_has_name(entry, "target_name", name))
          continue;
        int64_t here = ragged_room(ragged_kinds[kind].kind, max->d[0]);
        if (here < room) room = here;
      }
    }
    if (room != INT64_MAX && room > limit) limit = room;
  }
  return limit;
}

// The only name in a list of an entry.
static rabbet_status_t ragged_find_source(const cJSON* entry, const char* list,
                                          const rabbet_triton_plan_t* plan,
                                          const rabbet_triton_use_t* uses,
                                          size_t* out_source) {
  const cJSON* names = ragged_get(entry, "source_input");
  const char* name =
      cJSON_GetStringValue(names && names->child ? names->child : NULL);
  if (!name || names->child->next)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "%s: source_input has %d names; expected one", list,
                         names ? cJSON_GetArraySize(names) : 0);
  int32_t io = rabbet_engine_find_io(plan->engine, name);
  if (io < 0 || io >= (int32_t)plan->input_count ||
      uses[io].role != RABBET_TRITON_TENSOR)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "%s: source_input '%s' is no input of requests", list,
                         name);
  *out_source = (size_t)io;
  return rabbet_ok();
}

static rabbet_status_t ragged_check_target(const cJSON* entry, int kind,
                                           const rabbet_io_t* io) {
  int type = ragged_type(io->dtype);
  const char* found = rabbet_triton_config_text(entry, "data_type");
  if (type < 0)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "batch_input '%s' is %s in the plan; expected INT32, "
                         "INT64 or FLOAT",
                         io->name, rabbet_dtype_name(io->dtype));
  if (strcmp(found, ragged_types[type].name) != 0)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "batch_input '%s' is %s in the configuration; the "
                         "plan's %s wants %s",
                         io->name, *found ? found : "without a type",
                         rabbet_dtype_name(io->dtype), ragged_types[type].name);
  if (io->dims.rank != ragged_kinds[kind].rank)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "batch_input '%s' has %d dimensions in the plan; %s "
                         "has %d",
                         io->name, io->dims.rank, ragged_kinds[kind].name,
                         ragged_kinds[kind].rank);
  return rabbet_ok();
}

// The target of an entry: an input or output of the plan.
static rabbet_status_t ragged_find_target(const cJSON* name, const char* list,
                                          bool is_input,
                                          const rabbet_triton_plan_t* plan,
                                          size_t* out_io) {
  const char* text = cJSON_GetStringValue(name);
  int32_t io = text ? rabbet_engine_find_io(plan->engine, text) : -1;
  if (io < 0 || rabbet_triton_plan_io(plan, (size_t)io)->is_input != is_input)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "%s: target_name '%s' is no %s of the plan", list,
                         text ? text : "", is_input ? "input" : "output");
  *out_io = (size_t)io;
  return rabbet_ok();
}

static rabbet_status_t ragged_read_input(const cJSON* entry,
                                         const rabbet_triton_plan_t* plan,
                                         rabbet_triton_use_t* uses) {
  size_t source = 0, io = 0;
  int kind = ragged_kind(entry);
  const cJSON* target = NULL;
  if (kind < 0)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "batch_input has the unknown kind '%s'",
                         rabbet_triton_config_text(entry, "kind"));
  RABBET_RETURN_IF_ERROR(
      ragged_find_source(entry, "batch_input", plan, uses, &source));
  cJSON_ArrayForEach(target, ragged_get(entry, "target_name")) {
    RABBET_RETURN_IF_ERROR(
        ragged_find_target(target, "batch_input", true, plan, &io));
    RABBET_RETURN_IF_ERROR(
        ragged_check_target(entry, kind, rabbet_triton_plan_io(plan, io)));
    if (uses[io].role != RABBET_TRITON_BATCH_INPUT)
      return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                           "batch_input '%s' is an input of requests, too",
                           cJSON_GetStringValue(target));
    uses[io].ragged = ragged_kinds[kind].kind;
    uses[io].source = source;
  }
  return rabbet_ok();
}

// A dimension -1 is that of the input at the same place.
static rabbet_status_t ragged_read_output(const cJSON* entry,
                                          const rabbet_triton_plan_t* plan,
                                          rabbet_triton_use_t* uses) {
  size_t source = 0, io = 0;
  const char* kind = rabbet_triton_config_text(entry, "kind");
  const cJSON* target = NULL;
  if (*kind && strcmp(kind, "BATCH_SCATTER_WITH_INPUT_SHAPE") != 0)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "batch_output has the unknown kind '%s'", kind);
  RABBET_RETURN_IF_ERROR(
      ragged_find_source(entry, "batch_output", plan, uses, &source));
  cJSON_ArrayForEach(target, ragged_get(entry, "target_name")) {
    RABBET_RETURN_IF_ERROR(
        ragged_find_target(target, "batch_output", false, plan, &io));
    rabbet_triton_use_t* use = &uses[io];
    for (int32_t axis = 0; axis < use->dims.rank; ++axis) {
      if (use->dims.d[axis] < 0 && axis >= uses[source].rank)
        return RABBET_STATUS(
            RABBET_STATUS_INVALID_ARGUMENT,
            "batch_output '%s': dimension %d is -1, and source_input '%s' has "
            "%d dimensions, batch included",
            rabbet_triton_plan_io(plan, io)->name, axis,
            rabbet_triton_plan_io(plan, source)->name, uses[source].rank);
    }
    use->is_scattered = true;
    use->source = source;
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_triton_ragged_read(const cJSON* config,
                                          const rabbet_triton_plan_t* plan,
                                          rabbet_triton_use_t* uses) {
  const cJSON* entry = ragged_first(config, "batch_input");
  for (; entry; entry = entry->next)
    RABBET_RETURN_IF_ERROR(ragged_read_input(entry, plan, uses));
  entry = ragged_first(config, "batch_output");
  for (; entry; entry = entry->next)
    RABBET_RETURN_IF_ERROR(ragged_read_output(entry, plan, uses));
  return rabbet_ok();
}

// ---- Shapes

// Products saturate: no profile allows the shape then.
static int64_t ragged_multiply(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

static int64_t ragged_add(int64_t a, int64_t b) {
  return a > INT64_MAX - b ? INT64_MAX : a + b;
}

static int64_t ragged_count(const rabbet_dims_t* dims, int32_t rank) {
  int64_t count = 1;
  for (int32_t axis = 0; axis < rank; ++axis)
    count = ragged_multiply(count, dims->d[axis]);
  return count;
}

static const rabbet_dims_t* ragged_dims(const rabbet_triton_call_t* call,
                                        uint32_t request, size_t io) {
  return &rabbet_triton_call_tensor(call, request, io)->dims;
}

// Of a batch input: its first dimension.
static int64_t ragged_size(const rabbet_triton_use_t* use,
                           const rabbet_triton_call_t* call,
                           const uint32_t* group, size_t count, int64_t rows) {
  int64_t most = 0;
  switch (use->ragged) {
    case RABBET_TRITON_ELEMENT_COUNT:
    case RABBET_TRITON_ACCUMULATED:
      return (int64_t)count;
    case RABBET_TRITON_ACCUMULATED_WITH_ZERO:
      return (int64_t)count + 1;
    case RABBET_TRITON_ITEM_SHAPE:
      return rows;
    case RABBET_TRITON_ITEM_SHAPE_FLATTEN:
      return rows * (ragged_dims(call, group[0], use->source)->rank - 1);
    case RABBET_TRITON_MAX_AS_SHAPE:
      break;
  }
  for (size_t i = 0; i < count; ++i) {
    const rabbet_dims_t* dims = ragged_dims(call, group[i], use->source);
    int64_t elements = ragged_count(dims, dims->rank);
    if (elements > most) most = elements;
  }
  return most;
}

void rabbet_triton_joined_dims(const rabbet_triton_model_t* model,
                               const rabbet_triton_call_t* call,
                               const uint32_t* group, size_t count, size_t io,
                               rabbet_dims_t* out_dims) {
  const rabbet_triton_use_t* use = &model->config.uses[io];
  const rabbet_dims_t* first = ragged_dims(call, group[0], io);
  int32_t rank = rabbet_triton_plan_io(&model->plan, io)->dims.rank;
  int64_t rows = 0, total = 0;
  for (size_t i = 0; i < count; ++i)
    rows = ragged_add(rows, call->requests[group[i]].rows);
  *out_dims = (rabbet_dims_t){.rank = rank};
  if (use->role == RABBET_TRITON_BATCH_INPUT) {
    out_dims->d[0] = ragged_size(use, call, group, count, rows);
    if (rank == 2)
      out_dims->d[1] = ragged_dims(call, group[0], use->source)->rank - 1;
  } else if (use->rank == rank) {
    *out_dims = *first;
    if (model->config.max_batch_size > 0) out_dims->d[0] = rows;
  } else {
    int32_t leading = use->rank - rank + 1;
    for (size_t i = 0; i < count; ++i)
      total = ragged_add(
          total, ragged_count(ragged_dims(call, group[i], io), leading));
    out_dims->d[0] = total;
    for (int32_t axis = 1; axis < rank; ++axis)
      out_dims->d[axis] = first->d[leading + axis - 1];
  }
}

void rabbet_triton_scattered_dims(const rabbet_triton_use_t* use,
                                  const rabbet_triton_call_t* call,
                                  size_t request, rabbet_dims_t* out_dims) {
  const rabbet_dims_t* source =
      ragged_dims(call, (uint32_t)request, use->source);
  *out_dims = use->dims;
  for (int32_t axis = 0; axis < out_dims->rank; ++axis) {
    if (out_dims->d[axis] < 0) out_dims->d[axis] = source->d[axis];
  }
}

// ---- Values

typedef struct ragged_writer_t {
  void* data;
  rabbet_dtype_t dtype;
  size_t index;
  int64_t largest;  // that was written
} ragged_writer_t;

static void ragged_write(ragged_writer_t* writer, int64_t value) {
  size_t i = writer->index++;
  if (value > writer->largest) writer->largest = value;
  if (writer->dtype == RABBET_DTYPE_INT32)
    ((int32_t*)writer->data)[i] = (int32_t)value;
  else if (writer->dtype == RABBET_DTYPE_INT64)
    ((int64_t*)writer->data)[i] = value;
  else
    ((float*)writer->data)[i] = (float)value;
}

static void ragged_write_shape(ragged_writer_t* writer, int64_t rows,
                               const rabbet_dims_t* dims) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int32_t axis = 1; axis < dims->rank; ++axis)
      ragged_write(writer, dims->d[axis]);
  }
}

rabbet_status_t rabbet_triton_ragged_fill(const rabbet_triton_model_t* model,
                                          const rabbet_triton_call_t* call,
                                          const uint32_t* group, size_t count,
                                          size_t io, void* data) {
  const rabbet_triton_use_t* use = &model->config.uses[io];
  const rabbet_io_t* info = rabbet_triton_plan_io(&model->plan, io);
  ragged_writer_t writer = {.data = data, .dtype = info->dtype};
  int64_t sum = 0, largest = ragged_types[ragged_type(info->dtype)].largest;
  if (use->ragged == RABBET_TRITON_ACCUMULATED_WITH_ZERO)
    ragged_write(&writer, 0);
  for (size_t i = 0; i < count; ++i) {
    const rabbet_dims_t* dims = ragged_dims(call, group[i], use->source);
    int64_t elements = ragged_count(dims, dims->rank);
    sum = ragged_add(sum, elements);
    switch (use->ragged) {
      case RABBET_TRITON_ELEMENT_COUNT:
        ragged_write(&writer, elements);
        break;
      case RABBET_TRITON_ACCUMULATED:
      case RABBET_TRITON_ACCUMULATED_WITH_ZERO:
        ragged_write(&writer, sum);
        break;
      case RABBET_TRITON_ITEM_SHAPE:
      case RABBET_TRITON_ITEM_SHAPE_FLATTEN:
        ragged_write_shape(&writer, call->requests[group[i]].rows, dims);
        break;
      case RABBET_TRITON_MAX_AS_SHAPE:  // its size is what it tells
        break;
    }
  }
  if (writer.largest <= largest) return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                       "batch_input '%s' would hold %lld; %s is exact up to "
                       "%lld",
                       info->name, (long long)writer.largest,
                       rabbet_dtype_name(info->dtype), (long long)largest);
}
