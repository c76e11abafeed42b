// A question's answers and verdicts as bytes, for timing caches.
#include <assert.h>
#include <string.h>

#include "builder/propose/trial_internal.h"

typedef struct answer_head_t {
  uint32_t item_count;
  uint32_t asking_size;  // of the text, with its NUL; 0: asking did no harm
} answer_head_t;

typedef struct answer_item_t {
  int32_t tactic, verdict;
  char tactic_name[48];
  uint32_t name_size, artifact_size, reason_size, zero;
} answer_item_t;

static uint32_t answer_text_size(const char* text) {
  return text ? (uint32_t)strlen(text) + 1 : 0;
}

void rabbet_trial_write(const rabbet_trial_t* trial, rabbet_strbuf_t* out) {
  const answer_head_t head = {(uint32_t)trial->items.count,
                              answer_text_size(trial->asking)};
  rabbet_strbuf_append(out, &head, sizeof(head));
  rabbet_strbuf_append(out, trial->asking, head.asking_size);
  for (size_t i = 0; i < trial->items.count; ++i) {
    const rabbet_trial_item_t* from = &trial->items.data[i];
    const rabbet_artifact_t* artifact = &from->answer.artifact;
    assert(artifact->size <= UINT32_MAX);
    assert(artifact->size == 0 || artifact->name);
    answer_item_t item = {.tactic = from->answer.tactic,
                          .verdict = (int32_t)from->verdict,
                          .name_size = answer_text_size(artifact->name),
                          .artifact_size = (uint32_t)artifact->size,
                          .reason_size = answer_text_size(from->reason)};
    memcpy(item.tactic_name, from->answer.tactic_name,
           sizeof(item.tactic_name));
    rabbet_strbuf_append(out, &item, sizeof(item));
    rabbet_strbuf_append(out, artifact->name, item.name_size);
    rabbet_strbuf_append(out, artifact->data, item.artifact_size);
    rabbet_strbuf_append(out, from->reason, item.reason_size);
  }
}

typedef struct reader_t {
  const uint8_t* at;
  size_t left;
  rabbet_arena_t* arena;
  bool failed;
} reader_t;

static void read_into(reader_t* reader, void* out, size_t size) {
  reader->failed = reader->failed || size > reader->left;
  if (reader->failed) return;
  memcpy(out, reader->at, size);
  reader->at += size;
  reader->left -= size;
}

// NULL for 0 bytes.
static void* read_bytes(reader_t* reader, size_t size) {
  void* copy = NULL;
  reader->failed = reader->failed || size > reader->left;
  if (reader->failed || size == 0) return NULL;
  rabbet_status_t status = rabbet_arena_allocate(reader->arena, size, &copy);
  reader->failed = !rabbet_is_ok(status);
  rabbet_status_ignore(status);
  read_into(reader, copy, size);
  return reader->failed ? NULL : copy;
}

static const char* read_text(reader_t* reader, size_t size) {
  const char* text = read_bytes(reader, size);
  if (text && text[size - 1] != 0) reader->failed = true;
  return reader->failed ? NULL : text;
}

static void read_item(reader_t* reader, rabbet_trial_item_t* out) {
  answer_item_t item = {.tactic = 0};
  read_into(reader, &item, sizeof(item));
  if (reader->failed) return;
  *out = (rabbet_trial_item_t){.answer = {.tactic = item.tactic},
                               .verdict = (rabbet_verdict_t)item.verdict};
  rabbet_artifact_t* artifact = &out->answer.artifact;
  item.tactic_name[sizeof(item.tactic_name) - 1] = 0;
  memcpy(out->answer.tactic_name, item.tactic_name, sizeof(item.tactic_name));
  artifact->name = read_text(reader, item.name_size);
  artifact->data = read_bytes(reader, item.artifact_size);
  artifact->size = item.artifact_size;
  if (artifact->data)
    artifact->key = rabbet_hash128(artifact->data, artifact->size);
  out->reason = read_text(reader, item.reason_size);
  // An artifact without a name cannot be kept in a plan or a cache.
  if (artifact->size > 0 && !artifact->name) reader->failed = true;
}

bool rabbet_trial_read(const void* data, size_t size,
                       rabbet_allocator_t allocator, rabbet_trial_t* trial) {
  reader_t reader = {.at = data, .left = size, .arena = &trial->arena};
  answer_head_t head = {.item_count = 0};
  read_into(&reader, &head, sizeof(head));
  trial->asking = read_text(&reader, head.asking_size);
  for (uint32_t i = 0; !reader.failed && i < head.item_count; ++i) {
    rabbet_trial_item_t item = {.reason = NULL};
    read_item(&reader, &item);
    if (reader.failed) break;
    rabbet_status_t status = RABBET_VEC_PUSH(allocator, &trial->items, item);
    reader.failed = !rabbet_is_ok(status);
    rabbet_status_ignore(status);
  }
  return !reader.failed && reader.left == 0;
}
