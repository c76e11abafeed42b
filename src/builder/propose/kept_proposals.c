#include "builder/propose/kept_proposals.h"

#include <assert.h>
#include <string.h>

#include "base/vec.h"
#include "builder/propose/code_identity.h"
#include "builder/propose/propose.h"
#include "core/view.h"

// Constants of at most so many elements may be read by classes while they
// propose, and so may those of groups with quantization, and integers
// (kernel.h, `propose`).
#define KEPT_ELEMENTS 16

// ---- Keys -------------------------------------------------------------------

static void key_bytes(rabbet_strbuf_t* text, const void* data, size_t size) {
  uint64_t length = size;
  rabbet_strbuf_append(text, &length, sizeof(length));
  rabbet_strbuf_append(text, data, size);
}

static void key_dims(rabbet_strbuf_t* text, const rabbet_dims_t* dims) {
  assert(dims->rank >= 0);
  key_bytes(text, dims->d, (size_t)dims->rank * sizeof(dims->d[0]));
}

static bool key_quantizes(const rabbet_group_t* group) {
  for (size_t i = 0; i < group->node_count; ++i)
    if (rabbet_op_is(group->nodes[i].op, RABBET_OP_QUANTIZE) ||
        rabbet_op_is(group->nodes[i].op, RABBET_OP_DEQUANTIZE))
      return true;
  return false;
}

// The elements, if they matter.
static rabbet_status_t key_constant(rabbet_strbuf_t* text,
                                    const rabbet_group_value_t* value,
                                    bool quantizes) {
  size_t bytes = 0;
  int64_t count = 1;
  if (!value->constant) return rabbet_ok();
  for (int32_t i = 0; i < value->dims.rank; ++i)
    count = value->dims.d[i] > KEPT_ELEMENTS ? INT32_MAX
            : count > KEPT_ELEMENTS          ? count
                                             : count * value->dims.d[i];
  if (!quantizes && rabbet_dtype_is_float(value->dtype) &&
      count > KEPT_ELEMENTS)
    return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_tensor_bytes(value->dtype, RABBET_FORMAT_LINEAR,
                                             &value->dims, &bytes));
  rabbet_hash_t hash = rabbet_hash128(value->constant, bytes);
  rabbet_strbuf_append(text, &hash, sizeof(hash));
  return rabbet_ok();
}

static rabbet_status_t key_value(rabbet_strbuf_t* text,
                                 const rabbet_group_value_t* value,
                                 bool quantizes) {
  const int32_t head[] = {(int32_t)value->dtype, (int32_t)value->format,
                          value->constant != NULL};
  rabbet_strbuf_append(text, head, sizeof(head));
  key_dims(text, &value->dims);
  key_dims(text, &value->min);
  key_dims(text, &value->max);
  return key_constant(text, value, quantizes);
}

static void key_node(rabbet_strbuf_t* text, const rabbet_group_node_t* node) {
  key_bytes(text, node->op->name, strlen(node->op->name));
  for (size_t i = 0; i < node->op->attr_count; ++i) {
    const rabbet_attr_t* attr = &node->attrs[i];
    const int32_t head[] = {(int32_t)attr->type, (int32_t)attr->dtype};
    rabbet_strbuf_append(text, head, sizeof(head));
    if (attr->type == RABBET_ATTR_TENSOR) key_dims(text, &attr->dims);
    key_bytes(text, attr->data, rabbet_attr_bytes(attr));
  }
  key_bytes(text, node->inputs, node->input_count * sizeof(node->inputs[0]));
  key_bytes(text, node->outputs, node->output_count * sizeof(node->outputs[0]));
}

static rabbet_status_t key_group(rabbet_strbuf_t* text,
                                 const rabbet_group_t* group) {
  bool quantizes = key_quantizes(group);
  for (size_t i = 0; i < group->value_count; ++i)
    RABBET_RETURN_IF_ERROR(key_value(text, &group->values[i], quantizes));
  key_bytes(text, group->inputs, group->input_count * sizeof(group->inputs[0]));
  key_bytes(text, group->outputs,
            group->output_count * sizeof(group->outputs[0]));
  for (size_t i = 0; i < group->node_count; ++i)
    key_node(text, &group->nodes[i]);
  return rabbet_ok();
}

// The code that proposes: the device's library, the runtime's and this one. A
// class says with a version when its times change, but not when its offers do.
static bool key_code(const rabbet_build_t* build, rabbet_strbuf_t* text) {
  const void* const places[] = {build->device->vtable,
                                rabbet_op_get(RABBET_OP_IDENTITY),
                                &rabbet_call_class};
  for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); ++i) {
    uint64_t identity = 0;
    if (!rabbet_code_identity(places[i], &identity)) return false;
    rabbet_strbuf_append(text, &identity, sizeof(identity));
  }
  return true;
}

// Hashes the part of the key that all groups of a build share.
static rabbet_status_t key_device(rabbet_build_t* build,
                                  const rabbet_asked_classes_t* classes) {
  rabbet_strbuf_t text;
  build->proposals.is_known = true;
  if (build->device->features == 0) return rabbet_ok();
  rabbet_strbuf_initialize(build->allocator, &text);
  const char* signature = build->device->vtable->signature(build->device);
  const uint32_t numbers[] = {build->device->features, build->device->traits};
  build->proposals.are_kept = key_code(build, &text);
  rabbet_strbuf_append(&text, numbers, sizeof(numbers));
  key_bytes(&text, signature, strlen(signature));
  for (size_t i = 0; i < classes->count; ++i) {
    const rabbet_kernel_class_t* kernel = classes->list[i];
    uint64_t version =
        kernel->library_version ? kernel->library_version(build->device) : 0;
    rabbet_strbuf_append(&text, &version, sizeof(version));
  }
  rabbet_status_t status = rabbet_strbuf_status(&text);
  if (rabbet_is_ok(status))
    build->proposals.device = rabbet_hash128(text.data, text.size);
  rabbet_strbuf_deinitialize(&text);
  return status;
}

static bool key_may_keep(const rabbet_build_t* build,
                         const rabbet_group_t* group) {
  int64_t flags = build->config->options[RABBET_BUILDER_OPTION_FLAGS];
  if (!build->proposals.are_kept ||
      (flags >> RABBET_BUILDER_DISABLE_TIMING_CACHE & 1) != 0)
    return false;
  for (size_t i = 0; i < group->node_count; ++i)
    if (group->nodes[i].plugin) return false;
  return true;
}

// Of the question, without padding.
typedef struct key_question_t {
  rabbet_hash_t device;
  int64_t sources;
  uint64_t formats;
  uint32_t flag, extra_dtypes;
  int32_t threads, level;
  uint32_t allowed, tf32, cold, fixed;
} key_question_t;

rabbet_status_t rabbet_kept_proposals_key(rabbet_build_t* build,
                                          const rabbet_propose_t* question,
                                          const rabbet_asked_classes_t* classes,
                                          rabbet_hash_t* out_key,
                                          bool* out_keeps) {
  const rabbet_group_t* group = question->group;
  *out_keeps = false;
  if (!build->proposals.is_known)
    RABBET_RETURN_IF_ERROR(key_device(build, classes));
  if (!key_may_keep(build, group)) return rabbet_ok();
  static_assert(sizeof(key_question_t) == 64, "no padding");
  const key_question_t head = {.device = build->proposals.device,
                               .sources = classes->sources,
                               .formats = question->formats,
                               .flag = classes->flag,
                               .extra_dtypes = question->extra_dtypes,
                               .threads = question->threads,
                               .level = question->optimization_level,
                               .allowed = classes->allowed,
                               .tf32 = question->tf32,
                               .cold = build->has_cold_weights,
                               .fixed = question->fixed != NULL};
  rabbet_strbuf_t text;
  rabbet_strbuf_initialize(build->allocator, &text);
  rabbet_strbuf_append(&text, &head, sizeof(head));
  if (question->fixed)
    rabbet_strbuf_append(
        &text, question->fixed,
        (group->input_count + group->output_count) * sizeof(*question->fixed));
  rabbet_status_t status = key_group(&text, group);
  if (rabbet_is_ok(status)) status = rabbet_strbuf_status(&text);
  if (rabbet_is_ok(status)) *out_key = rabbet_hash128(text.data, text.size);
  *out_keeps = rabbet_is_ok(status);
  rabbet_strbuf_deinitialize(&text);
  return status;
}

// ---- Bytes ------------------------------------------------------------------

enum { KEPT_IN_PLACE = 1, KEPT_ALIASED = 2, KEPT_KEY = 4 };

// Then the name, type and format of each tensor of the boundary, and the lists
// of inputs that outputs lie in.
typedef struct kept_head_t {
  rabbet_hash_t key;
  int32_t tactic;
  uint16_t kernel;  // of the device's list
  uint8_t name_size, flags;
} kept_head_t;

typedef struct kept_type_t {
  uint8_t dtype, format;
} kept_type_t;

_Static_assert(sizeof(kept_head_t) == 24, "file layout");
_Static_assert(sizeof(kept_type_t) == 2, "file layout");
_Static_assert(RABBET_DTYPE_COUNT <= UINT8_MAX, "file layout");

bool rabbet_kept_proposals_add(rabbet_strbuf_t* bytes,
                               const rabbet_group_t* group,
                               const rabbet_asked_classes_t* classes,
                               const rabbet_kept_candidate_t* kept) {
  const rabbet_candidate_t* candidate = &kept->candidate;
  size_t kernel = 0, boundary = group->input_count + group->output_count;
  while (kernel < classes->count && classes->list[kernel] != candidate->kernel)
    ++kernel;
  if (kernel == classes->count || kernel > UINT16_MAX ||
      candidate->artifact.size > 0)
    return false;
  const kept_head_t head = {
      .key = kept->key,
      .tactic = candidate->tactic,
      .kernel = (uint16_t)kernel,
      .name_size = (uint8_t)strnlen(candidate->tactic_name,
                                    sizeof(candidate->tactic_name) - 1),
      .flags = (uint8_t)((candidate->in_place ? KEPT_IN_PLACE : 0) |
                         (candidate->aliased ? KEPT_ALIASED : 0) |
                         (kept->has_key ? KEPT_KEY : 0))};
  rabbet_strbuf_append(bytes, &head, sizeof(head));
  rabbet_strbuf_append(bytes, candidate->tactic_name, head.name_size);
  for (size_t i = 0; i < boundary; ++i) {
    const kept_type_t type = {(uint8_t)candidate->tensors[i].dtype,
                              (uint8_t)candidate->tensors[i].format};
    rabbet_strbuf_append(bytes, &type, sizeof(type));
  }
  size_t list = group->output_count * sizeof(int32_t);
  if (candidate->in_place)
    rabbet_strbuf_append(bytes, candidate->in_place, list);
  if (candidate->aliased) rabbet_strbuf_append(bytes, candidate->aliased, list);
  return true;
}

rabbet_status_t rabbet_kept_proposals_put(rabbet_build_t* build,
                                          rabbet_hash_t key,
                                          const rabbet_strbuf_t* bytes) {
  // Answers have bytes.
  static const char nothing[1] = {0};
  RABBET_RETURN_IF_ERROR(rabbet_strbuf_status(bytes));
  return rabbet_timing_cache_put_answer(
      build->cache, key, bytes->size ? bytes->data : nothing,
      bytes->size ? bytes->size : sizeof(nothing));
}

// ---- Reading ----------------------------------------------------------------

typedef struct kept_reader_t {
  rabbet_build_t* build;
  const rabbet_group_t* group;
  const rabbet_asked_classes_t* classes;
  const uint8_t* at;
  size_t left;
} kept_reader_t;

static bool kept_take(kept_reader_t* reader, void* out, size_t size) {
  if (size > reader->left) return false;
  memcpy(out, reader->at, size);
  reader->at += size;
  reader->left -= size;
  return true;
}

// A list of inputs, -1 for none.
static rabbet_status_t kept_list(kept_reader_t* reader, const int32_t** out,
                                 bool* good) {
  size_t count = reader->group->output_count;
  int32_t* list = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &reader->build->arena, count, sizeof(*list), (void**)&list));
  *good = *good && kept_take(reader, list, count * sizeof(*list));
  for (size_t i = 0; *good && i < count; ++i)
    *good = list[i] >= -1 && list[i] < (int64_t)reader->group->input_count;
  *out = list;
  return rabbet_ok();
}

static rabbet_status_t kept_tensors(kept_reader_t* reader,
                                    const rabbet_type_format_t** out,
                                    bool* good) {
  size_t boundary = reader->group->input_count + reader->group->output_count;
  rabbet_type_format_t* tensors = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &reader->build->arena, boundary, sizeof(*tensors), (void**)&tensors));
  for (size_t i = 0; *good && i < boundary; ++i) {
    kept_type_t type = {0};
    *good = kept_take(reader, &type, sizeof(type)) &&
            type.dtype < RABBET_DTYPE_COUNT &&
            rabbet_format_info((rabbet_format_t)type.format);
    tensors[i] = (rabbet_type_format_t){(rabbet_dtype_t)type.dtype,
                                        (rabbet_format_t)type.format};
  }
  *out = tensors;
  return rabbet_ok();
}

static rabbet_status_t kept_read(kept_reader_t* reader,
                                 rabbet_kept_candidate_t* out, bool* good) {
  kept_head_t head = {.kernel = 0};
  rabbet_candidate_t* candidate = &out->candidate;
  *good = kept_take(reader, &head, sizeof(head)) &&
          head.kernel < reader->classes->count &&
          head.name_size < sizeof(candidate->tactic_name) &&
          kept_take(reader, candidate->tactic_name, head.name_size);
  if (!*good) return rabbet_ok();
  candidate->kernel = reader->classes->list[head.kernel];
  candidate->tactic = head.tactic;
  out->key = head.key;
  out->has_key = (head.flags & KEPT_KEY) != 0;
  RABBET_RETURN_IF_ERROR(kept_tensors(reader, &candidate->tensors, good));
  if (head.flags & KEPT_IN_PLACE)
    RABBET_RETURN_IF_ERROR(kept_list(reader, &candidate->in_place, good));
  if (head.flags & KEPT_ALIASED)
    RABBET_RETURN_IF_ERROR(kept_list(reader, &candidate->aliased, good));
  return rabbet_ok();
}

static rabbet_status_t kept_read_all(kept_reader_t* reader,
                                     rabbet_kept_candidate_t** out_candidates,
                                     size_t* out_count, bool* out_good) {
  RABBET_VEC(rabbet_kept_candidate_t) list = {0};
  rabbet_allocator_t allocator = reader->build->allocator;
  rabbet_status_t status = rabbet_ok();
  *out_good = true;
  while (rabbet_is_ok(status) && *out_good && reader->left > 0) {
    rabbet_kept_candidate_t candidate = {.has_key = false};
    status = kept_read(reader, &candidate, out_good);
    if (rabbet_is_ok(status) && *out_good)
      status = RABBET_VEC_PUSH(allocator, &list, candidate);
  }
  if (rabbet_is_ok(status))
    status = rabbet_arena_copy(&reader->build->arena, list.data,
                               list.count * sizeof(*list.data),
                               (void**)out_candidates);
  *out_count = list.count;
  rabbet_vec_free(allocator, &list);
  return status;
}

rabbet_status_t rabbet_kept_proposals_find(
    rabbet_build_t* build, rabbet_hash_t key, const rabbet_group_t* group,
    const rabbet_asked_classes_t* classes,
    rabbet_kept_candidate_t** out_candidates, size_t* out_count,
    bool* out_found) {
  void* data = NULL;
  size_t size = 0;
  *out_candidates = NULL;
  *out_count = 0;
  *out_found = false;
  RABBET_RETURN_IF_ERROR(rabbet_timing_cache_find_answer(
      build->cache, key, build->allocator, &data, &size));
  if (!data) return rabbet_ok();
  // One byte says that nothing was offered.
  *out_found = size == 1;
  kept_reader_t reader = {build, group, classes, data, size};
  rabbet_status_t status =
      *out_found ? rabbet_ok()
                 : kept_read_all(&reader, out_candidates, out_count, out_found);
  rabbet_free(build->allocator, data);
  return status;
}
