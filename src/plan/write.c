// Plan -> bytes.
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/math.h"
#include "base/text.h"
#include "plan/stream.h"

// ---- Texts

// Texts of one field: `base` points to the message's data for it.
static rabbet_status_t check_text_field(const ProtobufCMessage* message,
                                        const ProtobufCFieldDescriptor* field,
                                        const char* base) {
  char what[96];
  bool repeated = field->label == PROTOBUF_C_LABEL_REPEATED;
  const char* const* texts = (const char* const*)(const void*)base;
  size_t count = 1;
  if (repeated) {
    memcpy(&texts, base, sizeof(texts));
    memcpy(&count, (const char*)message + field->quantifier_offset,
           sizeof(count));
  }
  snprintf(what, sizeof(what), "the plan to write: '%s' of a %s", field->name,
           message->descriptor->short_name);
  for (size_t i = 0; i < count; ++i)
    RABBET_RETURN_IF_ERROR(rabbet_text_check(what, texts[i]));
  return rabbet_ok();
}

// A plan with a text that is not UTF-8 could be written, but never read. Names
// are checked where they come in; this finds those of every other origin.
static rabbet_status_t check_texts(const ProtobufCMessage* message) {
  const ProtobufCMessageDescriptor* type = message->descriptor;
  for (unsigned i = 0; i < type->n_fields; ++i) {
    const ProtobufCFieldDescriptor* field = &type->fields[i];
    const char* base = (const char*)message + field->offset;
    if (field->type == PROTOBUF_C_TYPE_STRING)
      RABBET_RETURN_IF_ERROR(check_text_field(message, field, base));
    if (field->type != PROTOBUF_C_TYPE_MESSAGE) continue;
    assert(field->label == PROTOBUF_C_LABEL_REPEATED);
    const ProtobufCMessage* const* parts = NULL;
    size_t count = 0;
    memcpy(&parts, base, sizeof(parts));
    memcpy(&count, (const char*)message + field->quantifier_offset,
           sizeof(count));
    for (size_t k = 0; k < count; ++k)
      RABBET_RETURN_IF_ERROR(check_texts(parts[k]));
  }
  return rabbet_ok();
}

// ---- The whole

static rabbet_status_t check_blobs(const rabbet_plan_contents_t* contents,
                                   uint64_t* out_size) {
  const rabbet_plan_blob_t* blobs = contents->blobs;
  *out_size = 0;
  for (size_t i = 0; i < contents->blob_count; ++i) {
    uint64_t end = 0;
    if (blobs[i].offset < *out_size ||
        blobs[i].offset % RABBET_PLAN_ALIGNMENT != 0 ||
        !rabbet_checked_add(blobs[i].offset, blobs[i].size, &end))
      return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                           "constant %zu at %llu overlaps the one before or is "
                           "not aligned to %d",
                           i, (unsigned long long)blobs[i].offset,
                           RABBET_PLAN_ALIGNMENT);
    *out_size = end;
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_plan_write_to(const rabbet_plan_contents_t* contents,
                                     rabbet_allocator_t allocator,
                                     rabbet_plan_sink_t sink,
                                     uint64_t* out_size) {
  const rabbet_plan_t* plan = contents->plan;
  uint64_t weights_size = 0;
  *out_size = 0;
  RABBET_RETURN_IF_ERROR(check_blobs(contents, &weights_size));
  assert(plan->full_size == 0 || weights_size <= plan->full_size);
  // Sections of plans that can be refitted have either of two sizes.
  if (plan->full_size > 0)
    weights_size =
        weights_size <= plan->kept_size ? plan->kept_size : plan->full_size;
  RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
      rabbet_plan_verify(plan,
                         plan->full_size > 0 ? plan->full_size : weights_size),
      "the plan to write is wrong"));
  rabbet_arena_t arena;
  rabbet_arena_initialize(allocator, &arena);
  Rabbet__Plan__Meta meta;
  const char* device = NULL;
  rabbet_status_t status = rabbet_plan_write_meta(plan, &arena, &meta);
  if (rabbet_is_ok(status)) status = check_texts(&meta.base);
  if (rabbet_is_ok(status))
    status = rabbet_arena_printf(
        &arena, &device, "%s\n%s", plan->device ? plan->device : "",
        plan->device_signature ? plan->device_signature : "");
  if (rabbet_is_ok(status)) {
    rabbet_plan_stream_t stream = {.contents = contents,
                                   .meta = &meta,
                                   .device = device,
                                   .weights_size = weights_size,
                                   .arena = &arena,
                                   .sink = &sink};
    status = rabbet_plan_stream(&stream, out_size);
  }
  rabbet_arena_deinitialize(&arena);
  return status;
}

// ---- In memory

typedef struct block_t {
  rabbet_allocator_t allocator;
  uint8_t* data;
  size_t size, used;
} block_t;

static rabbet_status_t block_begin(void* context, uint64_t size) {
  block_t* block = context;
  block->size = (size_t)size;
  return rabbet_allocate_aligned(block->allocator, block->size,
                                 RABBET_PLAN_ALIGNMENT, (void**)&block->data);
}

static rabbet_status_t block_write(void* context, const void* data,
                                   size_t size) {
  block_t* block = context;
  assert(size <= block->size - block->used);
  memcpy(block->data + block->used, data, size);
  block->used += size;
  return rabbet_ok();
}

static rabbet_status_t block_rewrite(void* context, const void* data,
                                     size_t size) {
  block_t* block = context;
  assert(size <= block->used);
  memcpy(block->data, data, size);
  return rabbet_ok();
}

rabbet_status_t rabbet_plan_write_block(const rabbet_plan_contents_t* contents,
                                        rabbet_allocator_t work,
                                        rabbet_allocator_t allocator,
                                        void** out_data, size_t* out_size) {
  block_t block = {.allocator = allocator};
  uint64_t size = 0;
  *out_data = NULL;
  *out_size = 0;
  rabbet_status_t status =
      rabbet_plan_write_to(contents, work,
                           (rabbet_plan_sink_t){.context = &block,
                                                .begin = block_begin,
                                                .write = block_write,
                                                .rewrite = block_rewrite},
                           &size);
  if (!rabbet_is_ok(status)) {
    rabbet_free_aligned(allocator, block.data, RABBET_PLAN_ALIGNMENT);
    return status;
  }
  *out_data = block.data;
  *out_size = (size_t)size;
  return rabbet_ok();
}

rabbet_status_t rabbet_plan_write(const rabbet_plan_t* plan,
                                  const rabbet_plan_blob_t* blobs,
                                  size_t blob_count,
                                  rabbet_allocator_t allocator, void** out_data,
                                  size_t* out_size) {
  const rabbet_plan_contents_t contents = {
      .plan = plan, .blobs = blobs, .blob_count = blob_count};
  return rabbet_plan_write_block(&contents, allocator, allocator, out_data,
                                 out_size);
}
