#include "ortep/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/suggest.h"

// Where ONNX Runtime puts a provider's options among a session's.
#define OPTIONS_PREFIX "ep.rabbetexecutionprovider."

// ---- Values

static rabbet_status_t options_wrong(const char* key, const char* value,
                                     const char* expected) {
  return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                       "option %s=%.200s of " RABBET_ORT_EP_NAME
                       ": expected %s",
                       key, value, expected);
}

static bool options_number(const char* text, size_t size, int64_t* out) {
  char* end = NULL;
  errno = 0;
  *out = strtoll(text, &end, 10);
  return size && end == text + size && errno == 0;
}

static rabbet_status_t options_read_flag(const char* key, const char* value,
                                         bool* out) {
  const bool yes =
      !strcmp(value, "1") || !strcmp(value, "true") || !strcmp(value, "True");
  const bool no =
      !strcmp(value, "0") || !strcmp(value, "false") || !strcmp(value, "False");
  if (!yes && !no) return options_wrong(key, value, "0 or 1");
  *out = yes;
  return rabbet_ok();
}

static rabbet_status_t options_read_text(rabbet_ort_options_t* options,
                                         const char* value, const char** out) {
  *out = NULL;
  return *value ? rabbet_arena_strdup(&options->arena, value, out)
                : rabbet_ok();
}

// Calls `take` for each part of a list "a, b".
typedef rabbet_status_t (*options_take_t)(rabbet_ort_options_t* options,
                                          const char* key, const char* part);
static rabbet_status_t options_read_list(rabbet_ort_options_t* options,
                                         const char* key, const char* value,
                                         options_take_t take) {
  for (const char* at = value; *at;) {
    const char* part = NULL;
    at += strspn(at, " ,");
    size_t size = strcspn(at, ",");
    const char* next = at + size;
    while (size && at[size - 1] == ' ')
      --size;
    if (!size) break;
    RABBET_RETURN_IF_ERROR(
        rabbet_arena_printf(&options->arena, &part, "%.*s", (int)size, at));
    RABBET_RETURN_IF_ERROR(take(options, key, part));
    at = next;
  }
  return rabbet_ok();
}

static rabbet_status_t options_take_plugin(rabbet_ort_options_t* options,
                                           const char* key, const char* part) {
  (void)key;
  return RABBET_VEC_PUSH(options->arena.allocator, &options->plugins, part);
}

// "batch=8" or "batch=1:8:64".
static rabbet_status_t options_take_range(rabbet_ort_options_t* options,
                                          const char* key, const char* part) {
  const char* expected =
      "NAME=EXTENT or NAME=LEAST:USUAL:MOST for dimensions, separated by "
      "commas, where a name is a dimension's or INPUT[AXIS]";
  rabbet_ort_range_t range = {0};
  int64_t numbers[3];
  size_t count = 0;
  const char* equals = strrchr(part, '=');
  if (!equals || equals == part) return options_wrong(key, part, expected);
  for (const char* at = equals + 1; count < 3; ++count) {
    const size_t size = strcspn(at, ":");
    if (!options_number(at, size, &numbers[count]) || numbers[count] < 0)
      return options_wrong(key, part, expected);
    at += size;
    if (!*at++) {
      ++count;
      break;
    }
    if (count == 2) return options_wrong(key, part, expected);
  }
  if (count == 2) return options_wrong(key, part, expected);
  range.min = numbers[0];
  range.opt = numbers[count == 3 ? 1 : 0];
  range.max = numbers[count == 3 ? 2 : 0];
  if (range.min > range.opt || range.opt > range.max)
    return options_wrong(key, part, "LEAST <= USUAL <= MOST");
  RABBET_RETURN_IF_ERROR(rabbet_arena_printf(
      &options->arena, &range.name, "%.*s", (int)(equals - part), part));
  return RABBET_VEC_PUSH(options->arena.allocator, &options->ranges, range);
}

// ---- Keys

typedef enum options_kind_t {
  OPTIONS_TEXT,
  OPTIONS_FLAG,
  OPTIONS_NUMBER,
  OPTIONS_LIST,
} options_kind_t;

typedef struct options_key_t {
  const char* name;
  options_kind_t kind;
  size_t offset;      // of the member that has the value
  int64_t low, high;  // of a number
  options_take_t take;
} options_key_t;

#define OPTIONS_MEMBER(member) offsetof(rabbet_ort_options_t, member)
static const options_key_t options_keys[] = {
    {"device", OPTIONS_TEXT, OPTIONS_MEMBER(device), 0, 0, NULL},
    {"threads", OPTIONS_NUMBER, OPTIONS_MEMBER(threads), 0, 4096, NULL},
    {"fp16", OPTIONS_FLAG, OPTIONS_MEMBER(fp16), 0, 0, NULL},
    {"bf16", OPTIONS_FLAG, OPTIONS_MEMBER(bf16), 0, 0, NULL},
    {"tf32", OPTIONS_FLAG, OPTIONS_MEMBER(tf32), 0, 0, NULL},
    {"optimization_level", OPTIONS_NUMBER, OPTIONS_MEMBER(level), 0, 5, NULL},
    {"min_nodes", OPTIONS_NUMBER, OPTIONS_MEMBER(least_nodes), 1, 1 << 20,
     NULL},
    {"timing_cache", OPTIONS_TEXT, OPTIONS_MEMBER(timing_cache), 0, 0, NULL},
    {"plugins", OPTIONS_LIST, 0, 0, 0, options_take_plugin},
    {"dims", OPTIONS_LIST, 0, 0, 0, options_take_range},
};
enum { OPTIONS_KEY_COUNT = sizeof(options_keys) / sizeof(*options_keys) };

static const char* options_name_at(const void* list, size_t index) {
  (void)list;
  return options_keys[index].name;
}

static rabbet_status_t options_unknown(const char* key) {
  char near[200], known[300];
  size_t used = 0;
  for (int i = 0; i < OPTIONS_KEY_COUNT && used < sizeof(known); ++i)
    used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%s",
                             i ? ", " : "", options_keys[i].name);
  rabbet_suggest_print(key, options_name_at, NULL, OPTIONS_KEY_COUNT, near,
                       sizeof(near));
  return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                       RABBET_ORT_EP_NAME
                       " has no option '%.100s'%s; it has "
                       "%s",
                       key, near, known);
}

static rabbet_status_t options_read_number(const options_key_t* key,
                                           const char* value, int64_t* out) {
  char expected[80];
  if (options_number(value, strlen(value), out) && *out >= key->low &&
      *out <= key->high)
    return rabbet_ok();
  snprintf(expected, sizeof(expected), "a number from %lld to %lld",
           (long long)key->low, (long long)key->high);
  return options_wrong(key->name, value, expected);
}

static rabbet_status_t options_set(rabbet_ort_options_t* options,
                                   const char* name, const char* value) {
  for (int i = 0; i < OPTIONS_KEY_COUNT; ++i) {
    const options_key_t* key = &options_keys[i];
    void* member = (char*)options + key->offset;
    if (strcmp(key->name, name) != 0) continue;
    switch (key->kind) {
      case OPTIONS_TEXT:
        return options_read_text(options, value, member);
      case OPTIONS_FLAG:
        return options_read_flag(name, value, member);
      case OPTIONS_NUMBER:
        return options_read_number(key, value, member);
      case OPTIONS_LIST:
        return options_read_list(options, name, value, key->take);
    }
  }
  return options_unknown(name);
}

// ---- ONNX Runtime's own

static rabbet_status_t options_read_context(rabbet_ort_options_t* options,
                                            const OrtKeyValuePairs* pairs) {
  const char* enable = rabbet_ort.api->GetKeyValue(pairs, "ep.context_enable");
  const char* embed =
      rabbet_ort.api->GetKeyValue(pairs, "ep.context_embed_mode");
  const char* file = rabbet_ort.api->GetKeyValue(pairs, "ep.context_file_path");
  if (enable)
    RABBET_RETURN_IF_ERROR(options_read_flag("ep.context_enable", enable,
                                             &options->context_enable));
  if (embed)
    RABBET_RETURN_IF_ERROR(options_read_flag("ep.context_embed_mode", embed,
                                             &options->context_embed));
  return rabbet_arena_strdup(&options->arena, file ? file : "",
                             &options->context_file);
}

static rabbet_status_t options_read(rabbet_ort_options_t* options,
                                    const OrtKeyValuePairs* pairs) {
  const char *const *keys = NULL, *const *values = NULL;
  const size_t prefix = strlen(OPTIONS_PREFIX);
  size_t count = 0;
  rabbet_ort.api->GetKeyValuePairs(pairs, &keys, &values, &count);
  for (size_t i = 0; i < count; ++i)
    if (strncmp(keys[i], OPTIONS_PREFIX, prefix) == 0)
      RABBET_RETURN_IF_ERROR(options_set(options, keys[i] + prefix, values[i]));
  return options_read_context(options, pairs);
}

rabbet_status_t rabbet_ort_options_initialize(
    const OrtSessionOptions* session, const char* device,
    rabbet_allocator_t allocator, rabbet_ort_options_t* out_options) {
  OrtKeyValuePairs* pairs = NULL;
  *out_options = (rabbet_ort_options_t){
      .device = device, .tf32 = true, .level = -1, .least_nodes = 1};
  rabbet_arena_initialize(allocator, &out_options->arena);
  RABBET_RETURN_IF_ERROR(ORT(GetSessionOptionsConfigEntries, session, &pairs));
  rabbet_status_t status = options_read(out_options, pairs);
  rabbet_ort.api->ReleaseKeyValuePairs(pairs);
  if (!out_options->device) out_options->device = device;
  return status;
}

void rabbet_ort_options_deinitialize(rabbet_ort_options_t* options) {
  rabbet_vec_free(options->arena.allocator, &options->plugins);
  rabbet_vec_free(options->arena.allocator, &options->ranges);
  rabbet_arena_deinitialize(&options->arena);
}

static bool options_is_place(const rabbet_ort_range_t* range, const char* input,
                             int32_t axis) {
  const size_t size = strlen(input);
  char place[16];
  snprintf(place, sizeof(place), "[%d]", axis);
  return strncmp(range->name, input, size) == 0 &&
         strcmp(range->name + size, place) == 0;
}

bool rabbet_ort_range_fits(const rabbet_ort_range_t* range, const char* input,
                           int32_t axis, const char* dim_name) {
  return options_is_place(range, input, axis) ||
         (dim_name && strcmp(range->name, dim_name) == 0);
}

const rabbet_ort_range_t* rabbet_ort_options_range(
    const rabbet_ort_options_t* options, const char* input, int32_t axis,
    const char* dim_name) {
  const rabbet_ort_range_t* found = NULL;
  for (size_t i = 0; i < options->ranges.count; ++i) {
    const rabbet_ort_range_t* range = &options->ranges.data[i];
    if (options_is_place(range, input, axis)) return range;
    if (rabbet_ort_range_fits(range, input, axis, dim_name)) found = range;
  }
  return found;
}
