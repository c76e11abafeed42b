#include "plan_mutate.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>

#include "plan.pb-c.h"
#include "plan_bytes.h"

#define MUTATE_MOST_MESSAGES 65536

typedef ProtobufCMessage message_t;
typedef ProtobufCFieldDescriptor field_t;

typedef struct mutator_t {
  uint64_t state;
  message_t** messages;  // of the plan, then of the donor
  size_t own_count, count;
} mutator_t;

// ---- Random numbers (splitmix64)

static uint64_t next(mutator_t* m) {
  uint64_t z = (m->state += UINT64_C(0x9e3779b97f4a7c15));
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return z ^ (z >> 31);
}

static size_t below(mutator_t* m, size_t count) {
  return count ? (size_t)(next(m) % count) : 0;
}

static int64_t number(mutator_t* m, int64_t old) {
  static const int64_t odd[] = {
      0,         -1,        40,        63,           64,         65,
      255,       256,       INT32_MAX, INT32_MIN,    1LL << 31,  1LL << 40,
      INT64_MAX, INT64_MIN, 1LL << 16, -(1LL << 20), 1000000007, 1LL << 20};
  switch (below(m, 6)) {
    case 0:
      return old < INT64_MAX ? old + 1 : old;
    case 1:
      return old > INT64_MIN ? old - 1 : old;
    case 2:
      return (int64_t)below(m, 12) - 2;
    case 3:
      return odd[below(m, sizeof(odd) / sizeof(odd[0]))];
    case 4:
      return old < INT64_MAX / 2 && old > INT64_MIN / 2 ? 2 * old : -old;
    default:
      return (int64_t)((uint64_t)old ^ UINT64_C(1) << below(m, 12));
  }
}

static double real(mutator_t* m, double old) {
  static const double odd[] = {0, -1, 1e30, -1e30, 0.5, 1e-30, 4e9, -4e9};
  size_t count = sizeof(odd) / sizeof(odd[0]), at = below(m, count + 3);
  return at < count        ? odd[at]
         : at == count     ? NAN
         : at == count + 1 ? INFINITY
                           : 2 * old + 1;
}

// ---- Reflection

static void* member(message_t* message, const field_t* field) {
  return (char*)message + field->offset;
}

static size_t* counter(message_t* message, const field_t* field) {
  return (size_t*)((char*)message + field->quantifier_offset);
}

static size_t width(const field_t* field) {
  switch (field->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FLOAT:
      return 4;
    case PROTOBUF_C_TYPE_BOOL:
      return sizeof(protobuf_c_boolean);
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE:
      return sizeof(void*);
    case PROTOBUF_C_TYPE_BYTES:
      return sizeof(ProtobufCBinaryData);
    default:
      return 8;
  }
}

static void collect(mutator_t* m, message_t* message) {
  if (m->count == MUTATE_MOST_MESSAGES) return;
  m->messages[m->count++] = message;
  for (unsigned i = 0; i < message->descriptor->n_fields; ++i) {
    const field_t* field = &message->descriptor->fields[i];
    if (field->type != PROTOBUF_C_TYPE_MESSAGE) continue;
    message_t** items = *(message_t***)member(message, field);
    for (size_t k = 0; k < *counter(message, field); ++k)
      collect(m, items[k]);
  }
}

static message_t* copy_message(const message_t* from) {
  size_t size = protobuf_c_message_get_packed_size(from);
  uint8_t* bytes = malloc(size + 1);
  protobuf_c_message_pack(from, bytes);
  message_t* copy =
      protobuf_c_message_unpack(from->descriptor, NULL, size, bytes);
  free(bytes);
  return copy;
}

// A message of that kind; of the donor's, too, unless `own`.
static message_t* pick(mutator_t* m, const ProtobufCMessageDescriptor* kind,
                       bool own) {
  size_t count = own ? m->own_count : m->count, found = 0;
  for (size_t i = 0; i < count; ++i)
    found += m->messages[i]->descriptor == kind;
  if (found == 0) return NULL;
  size_t at = below(m, found);
  for (size_t i = 0;; ++i)
    if (m->messages[i]->descriptor == kind && at-- == 0) return m->messages[i];
}

// ---- One element

static void free_element(const field_t* field, void* at) {
  if (field->type == PROTOBUF_C_TYPE_STRING &&
      *(const char**)at != (const char*)field->default_value)
    free(*(char**)at);
  if (field->type == PROTOBUF_C_TYPE_BYTES)
    free(((ProtobufCBinaryData*)at)->data);
  if (field->type == PROTOBUF_C_TYPE_MESSAGE)
    protobuf_c_message_free_unpacked(*(message_t**)at, NULL);
}

static void copy_element(const field_t* field, const void* from, void* to) {
  memcpy(to, from, width(field));
  if (field->type == PROTOBUF_C_TYPE_STRING)
    *(char**)to = strdup(*(char* const*)from);
  if (field->type == PROTOBUF_C_TYPE_MESSAGE)
    *(message_t**)to = copy_message(*(message_t* const*)from);
  if (field->type == PROTOBUF_C_TYPE_BYTES) {
    const ProtobufCBinaryData* bytes = from;
    uint8_t* data = malloc(bytes->len + 1);
    if (bytes->len > 0) memcpy(data, bytes->data, bytes->len);
    ((ProtobufCBinaryData*)to)->data = data;
  }
}

static void change_bytes(mutator_t* m, ProtobufCBinaryData* bytes) {
  if (bytes->len > 0 && below(m, 3) > 0)
    bytes->data[below(m, bytes->len)] ^= (uint8_t)(1u << below(m, 8));
  else if (bytes->len > 0)
    bytes->len -= below(m, bytes->len) + 1;
}

static void change_element(mutator_t* m, const field_t* field, void* at) {
  switch (field->type) {
    case PROTOBUF_C_TYPE_STRING:
      if (**(char**)at && *(const char**)at != field->default_value)
        (*(char**)at)[below(m, strlen(*(char**)at))] ^= 1;
      break;
    case PROTOBUF_C_TYPE_BYTES:
      change_bytes(m, at);
      break;
    case PROTOBUF_C_TYPE_BOOL:
      *(protobuf_c_boolean*)at ^= 1;
      break;
    case PROTOBUF_C_TYPE_FLOAT:
      *(float*)at = (float)real(m, *(float*)at);
      break;
    case PROTOBUF_C_TYPE_DOUBLE:
      *(double*)at = real(m, *(double*)at);
      break;
    case PROTOBUF_C_TYPE_MESSAGE:
      break;
    default:
      if (width(field) == 4)
        *(int32_t*)at = (int32_t)number(m, *(int32_t*)at);
      else
        *(int64_t*)at = number(m, *(int64_t*)at);
  }
}

// ---- Lists

static char* element(message_t* message, const field_t* field, size_t i) {
  return *(char**)member(message, field) + i * width(field);
}

static void insert(message_t* message, const field_t* field, size_t at,
                   const void* from) {
  size_t size = width(field), *count = counter(message, field);
  char** list = member(message, field);
  char* grown = malloc((*count + 1) * size);
  copy_element(field, from, grown + at * size);
  if (*count > 0) {
    memcpy(grown, *list, at * size);
    memcpy(grown + (at + 1) * size, *list + at * size, (*count - at) * size);
    free(*list);
  }
  *list = grown;
  ++*count;
}

static void erase(message_t* message, const field_t* field, size_t at) {
  size_t size = width(field), *count = counter(message, field);
  char* list = element(message, field, 0);
  free_element(field, list + at * size);
  memmove(list + at * size, list + (at + 1) * size, (*count - at - 1) * size);
  if (--*count > 0) return;
  free(list);
  *(char**)member(message, field) = NULL;
}

static void swap(mutator_t* m, message_t* message, const field_t* field) {
  size_t count = *counter(message, field), size = width(field);
  char kept[sizeof(ProtobufCBinaryData)];
  char* a = element(message, field, below(m, count));
  char* b = element(message, field, below(m, count));
  memcpy(kept, a, size);
  memmove(a, b, size);
  memcpy(b, kept, size);
}

static void change_list(mutator_t* m, message_t* message,
                        const field_t* field) {
  size_t count = *counter(message, field);
  message_t* other = pick(m, message->descriptor, false);
  size_t others = *counter(other, field);
  switch (below(m, 6)) {
    case 0:
      if (count > 0) erase(message, field, below(m, count));
      break;
    case 1:
      if (count > 0) swap(m, message, field);
      break;
    case 2:
      if (others > 0)
        insert(message, field, below(m, count + 1),
               element(other, field, below(m, others)));
      break;
    case 3:  // in the place of another
      if (others > 0 && count > 0) {
        size_t at = below(m, count);
        insert(message, field, at, element(other, field, below(m, others)));
        erase(message, field, at + 1);
      }
      break;
    default:
      if (count > 0)
        change_element(m, field, element(message, field, below(m, count)));
  }
}

static void change_field(mutator_t* m, message_t* message) {
  const field_t* field =
      &message->descriptor->fields[below(m, message->descriptor->n_fields)];
  if (field->label == PROTOBUF_C_LABEL_REPEATED) {
    change_list(m, message, field);
    return;
  }
  void* at = member(message, field);
  message_t* other = pick(m, message->descriptor, false);
  if (below(m, 2) == 0 || field->type == PROTOBUF_C_TYPE_STRING) {
    if (other == message) return;
    free_element(field, at);
    copy_element(field, member(other, field), at);
  } else {
    change_element(m, field, at);
  }
}

// Kinds are as likely as each other, but for those that kernels look at.
static void change(mutator_t* m) {
  static const ProtobufCMessageDescriptor* const kinds[] = {
      &rabbet__plan__step__descriptor,
      &rabbet__plan__step__descriptor,
      &rabbet__plan__node__descriptor,
      &rabbet__plan__node__descriptor,
      &rabbet__plan__attr__descriptor,
      &rabbet__plan__attr__descriptor,
      &rabbet__plan__value__descriptor,
      &rabbet__plan__value__descriptor,
      &rabbet__plan__group_value__descriptor,
      &rabbet__plan__expr__descriptor,
      &rabbet__plan__symbol__descriptor,
      &rabbet__plan__io__descriptor,
      &rabbet__plan__range__descriptor,
      &rabbet__plan__weights__descriptor,
      &rabbet__plan__scale__descriptor,
      &rabbet__plan__check__descriptor,
      &rabbet__plan__sequence__descriptor,
      &rabbet__plan__call__descriptor,
      &rabbet__plan__meta__descriptor,
      &rabbet__plan__artifact__descriptor,
      &rabbet__plan__carried__descriptor};
  for (int tries = 0; tries < 8; ++tries) {
    message_t* message =
        pick(m, kinds[below(m, sizeof(kinds) / sizeof(kinds[0]))], true);
    if (!message) continue;
    change_field(m, message);
    return;
  }
}

static Rabbet__Plan__Sequence* a_sequence(mutator_t* m,
                                          const Rabbet__Plan__Meta* meta) {
  return meta->n_sequences ? meta->sequences[below(m, meta->n_sequences)]
                           : NULL;
}

// Fields that must agree are changed together: a type or format that a step and
// the plan would contradict each other in says nothing about kernels.
static void change_value(mutator_t* m, const Rabbet__Plan__Meta* whole) {
  const Rabbet__Plan__Sequence* meta = a_sequence(m, whole);
  if (!meta || meta->n_values == 0) return;
  Rabbet__Plan__Value* value = meta->values[below(m, meta->n_values)];
  switch (below(m, 3)) {
    case 0:
      value->dtype = (int32_t)below(m, 12);
      break;
    case 1:
      value->format = (int32_t)below(m, 8);
      break;
    default:
      if (value->n_shape > 0 && meta->n_exprs > 0)
        value->shape[below(m, value->n_shape)] =
            (int32_t)below(m, meta->n_exprs);
  }
}

static void change_kernel(mutator_t* m, const Rabbet__Plan__Meta* whole) {
  const Rabbet__Plan__Sequence* meta = a_sequence(m, whole);
  const Rabbet__Plan__Step* other =
      (Rabbet__Plan__Step*)pick(m, &rabbet__plan__step__descriptor, false);
  if (!meta || meta->n_steps == 0 || !other) return;
  Rabbet__Plan__Step* step = meta->steps[below(m, meta->n_steps)];
  char* kernel = strdup(other->kernel);
  if (step->kernel != (char*)protobuf_c_empty_string) free(step->kernel);
  step->kernel = kernel;
  step->tactic = other->tactic;
}

// ---- All

static Rabbet__Plan__Meta* read_meta(const uint8_t* data, size_t size,
                                     plan_bytes_t* parts) {
  if (size < PLAN_BYTES_HEADER || memcmp(data, "\x89RABBET\n", 8) != 0 ||
      plan_bytes_load(data + 16) != size)
    return NULL;
  *parts = plan_bytes_split(data);
  return rabbet__plan__meta__unpack(NULL, parts->size[PLAN_META],
                                    parts->section[PLAN_META]);
}

// Numbers of kernels lie at multiples of 4, those of weights anywhere.
static void change_number(mutator_t* m, uint8_t* data, size_t size) {
  if (size < 4 || below(m, 2) == 0) {
    data[below(m, size)] = (uint8_t)number(m, 0);
    return;
  }
  uint8_t* at = data + 4 * below(m, size / 4);
  int32_t value = 0;
  memcpy(&value, at, 4);
  value = (int32_t)number(m, value);
  memcpy(at, &value, 4);
}

// The section to change beside META, in one of so many plans that have it; or
// none.
static int pick_section(mutator_t* m, const plan_bytes_t* parts) {
  static const int one_of[PLAN_BYTES_SECTIONS] = {
      [PLAN_WEIGHTS] = 12, [PLAN_KERNELS] = 2, [PLAN_PLUGINS] = 6};
  for (int i = PLAN_WEIGHTS; i < PLAN_BYTES_SECTIONS; ++i)
    if (parts->size[i] > 0 && below(m, (size_t)one_of[i]) == 0) return i;
  return -1;
}

static uint8_t* change_section(mutator_t* m, plan_bytes_t* parts, int section) {
  size_t size = parts->size[section], changes = 1 + below(m, 4);
  uint8_t* copy = malloc(size);
  memcpy(copy, parts->section[section], size);
  for (size_t i = 0; i < changes; ++i)
    change_number(m, copy, size);
  parts->section[section] = copy;
  return copy;
}

static uint8_t* join(plan_bytes_t* parts, const Rabbet__Plan__Meta* meta,
                     size_t* out_size) {
  size_t size = rabbet__plan__meta__get_packed_size(meta);
  uint8_t* bytes = malloc(size + 1);
  rabbet__plan__meta__pack(meta, bytes);
  parts->section[PLAN_META] = bytes;
  parts->size[PLAN_META] = size;
  uint8_t* file = plan_bytes_join(parts, out_size);
  free(bytes);
  return file;
}

static void change_some(mutator_t* m, Rabbet__Plan__Meta* meta,
                        Rabbet__Plan__Meta* donor) {
  size_t changes = below(m, 10) < 6 ? 1 : 1 + below(m, 4);
  for (size_t i = 0; i < changes; ++i) {
    m->count = 0;
    collect(m, &meta->base);
    m->own_count = m->count;
    if (donor) collect(m, &donor->base);
    switch (below(m, 8)) {
      case 0:
        change_value(m, meta);
        break;
      case 1:
        change_kernel(m, meta);
        break;
      default:
        change(m);
    }
  }
}

uint8_t* plan_mutate(const uint8_t* data, size_t size, const uint8_t* donor,
                     size_t donor_size, uint64_t seed, size_t* out_size) {
  plan_bytes_t parts = {{0}, {0}}, donor_parts = {{0}, {0}};
  Rabbet__Plan__Meta* meta = read_meta(data, size, &parts);
  if (!meta) return NULL;
  Rabbet__Plan__Meta* other =
      donor ? read_meta(donor, donor_size, &donor_parts) : NULL;
  mutator_t m = {.state = seed};
  m.messages = malloc(MUTATE_MOST_MESSAGES * sizeof(*m.messages));
  uint8_t* changed = NULL;
  int section = pick_section(&m, &parts);
  if (section >= 0)
    changed = change_section(&m, &parts, section);
  else
    change_some(&m, meta, other);
  uint8_t* file = join(&parts, meta, out_size);
  rabbet__plan__meta__free_unpacked(meta, NULL);
  if (other) rabbet__plan__meta__free_unpacked(other, NULL);
  free(changed);
  free(m.messages);
  return file;
}

// ---- Another device

// Kernels of the CPU whose like on CUDA has another name than "cuda." and what
// follows "cpu." or "dnnl.".
static const char* const cuda_kernels[][2] = {
    {"cpu.cast", "cuda.pointwise"},
    {"cpu.reorder", "cuda.convert"},
    {"dnnl.concat", "cuda.concatenation"},
    {"dnnl.deconvolution_blocks", "cuda.deconvolution"},
    {"dnnl.layer_norm", "cuda.normalization"},
    {"dnnl.reorder", "cuda.convert"}};

static char* move_kernel(const char* kernel) {
  char text[256];
  for (size_t i = 0; i < sizeof(cuda_kernels) / sizeof(cuda_kernels[0]); ++i)
    if (!strcmp(kernel, cuda_kernels[i][0])) return strdup(cuda_kernels[i][1]);
  const char* dot = strchr(kernel, '.');
  if (!dot) return strdup(kernel);
  snprintf(text, sizeof(text), "cuda%s", dot);
  return strdup(text);
}

static void move_step(Rabbet__Plan__Step* step) {
  char* kernel = move_kernel(step->kernel);
  if (step->kernel != (char*)protobuf_c_empty_string) free(step->kernel);
  step->kernel = kernel;
}

uint8_t* plan_move_to_cuda(const uint8_t* data, size_t size, size_t* out_size) {
  static const uint8_t device[] = "cuda\ncuda";
  plan_bytes_t parts = {{0}, {0}};
  Rabbet__Plan__Meta* meta = read_meta(data, size, &parts);
  if (!meta) return NULL;
  for (size_t k = 0; k < meta->n_sequences; ++k) {
    const Rabbet__Plan__Sequence* sequence = meta->sequences[k];
    for (size_t i = 0; i < sequence->n_steps; ++i)
      move_step(sequence->steps[i]);
  }
  parts.section[PLAN_DEVICE] = device;
  parts.size[PLAN_DEVICE] = sizeof(device) - 1;
  uint8_t* file = join(&parts, meta, out_size);
  rabbet__plan__meta__free_unpacked(meta, NULL);
  return file;
}
