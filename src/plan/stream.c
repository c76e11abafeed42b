#include "plan/stream.h"

#include <assert.h>
#include <string.h>

// Bytes that are hashed and written together, while the processor's cache has
// them.
#define STREAM_PIECE ((size_t)1 << 20)

static rabbet_status_t stream_put(rabbet_plan_stream_t* stream,
                                  const void* data, size_t size) {
  stream->at += size;
  if (!stream->writes || size == 0) return rabbet_ok();
  return stream->sink->write(stream->sink->context, data, size);
}

static rabbet_status_t stream_add(rabbet_plan_stream_t* stream,
                                  const void* data, size_t size) {
  const uint8_t* at = data;
  while (size > 0) {
    size_t piece = size < STREAM_PIECE ? size : STREAM_PIECE;
    rabbet_hash_stream_add(&stream->hash, at, piece);
    RABBET_RETURN_IF_ERROR(stream_put(stream, at, piece));
    at += piece;
    size -= piece;
  }
  return rabbet_ok();
}

static rabbet_status_t stream_add_zeros(rabbet_plan_stream_t* stream,
                                        uint64_t size) {
  // Not const: a library's file would have them.
  static uint8_t zeros[4096];
  while (size > 0) {
    size_t piece = size < sizeof(zeros) ? (size_t)size : sizeof(zeros);
    RABBET_RETURN_IF_ERROR(stream_add(stream, zeros, piece));
    size -= piece;
  }
  return rabbet_ok();
}

// ---- Sections

// Zeros up to `offset` from the section's beginning at `base`, then bytes.
static rabbet_status_t stream_add_at(rabbet_plan_stream_t* stream,
                                     uint64_t base, uint64_t offset,
                                     const void* data, size_t size) {
  assert(stream->at <= base + offset);
  RABBET_RETURN_IF_ERROR(stream_add_zeros(stream, base + offset - stream->at));
  return stream_add(stream, data, size);
}

static rabbet_status_t stream_device(rabbet_plan_stream_t* stream,
                                     uint64_t base) {
  return stream_add_at(stream, base, 0, stream->device, strlen(stream->device));
}

static rabbet_status_t stream_meta(rabbet_plan_stream_t* stream,
                                   uint64_t base) {
  size_t size = rabbet__plan__meta__get_packed_size(stream->meta);
  uint8_t* bytes = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate(stream->arena, size + 1, (void**)&bytes));
  rabbet__plan__meta__pack(stream->meta, bytes);
  return stream_add_at(stream, base, 0, bytes, size);
}

static rabbet_status_t stream_weights(rabbet_plan_stream_t* stream,
                                      uint64_t base) {
  const rabbet_plan_contents_t* contents = stream->contents;
  for (size_t i = 0; i < contents->blob_count; ++i) {
    const rabbet_plan_blob_t* blob = &contents->blobs[i];
    const void* data = blob->data;
    if (!data && blob->size > 0)
      RABBET_RETURN_IF_ERROR(
          contents->maker.make(contents->maker.context, i, &data));
    RABBET_RETURN_IF_ERROR(
        stream_add_at(stream, base, blob->offset, data, (size_t)blob->size));
  }
  return rabbet_ok();
}

static rabbet_status_t stream_kernels(rabbet_plan_stream_t* stream,
                                      uint64_t base) {
  const rabbet_plan_t* plan = stream->contents->plan;
  for (size_t i = 0; i < plan->artifact_count; ++i)
    RABBET_RETURN_IF_ERROR(stream_add_at(
        stream, base, stream->meta->artifacts[i]->offset,
        plan->artifacts[i].data, (size_t)plan->artifacts[i].size));
  return rabbet_ok();
}

static rabbet_status_t stream_plugins(rabbet_plan_stream_t* stream,
                                      uint64_t base) {
  const rabbet_plan_t* plan = stream->contents->plan;
  for (size_t i = 0; i < plan->carried_count; ++i)
    if (plan->carried[i].size > 0)
      RABBET_RETURN_IF_ERROR(
          stream_add_at(stream, base, stream->meta->carried[i]->offset,
                        plan->carried[i].data, (size_t)plan->carried[i].size));
  return rabbet_ok();
}

// ---- The file

typedef struct layout_t {
  uint64_t sizes[RABBET_PLAN_SECTION_LIMIT];
  uint64_t offsets[RABBET_PLAN_SECTION_LIMIT];
  uint64_t checksums[RABBET_PLAN_SECTION_LIMIT];
  uint64_t total;
  uint8_t head[RABBET_PLAN_FILE_MAX_HEAD];
  size_t head_size;
} layout_t;

// All that follows the head. Sets the checksums.
static rabbet_status_t stream_sections(rabbet_plan_stream_t* stream,
                                       layout_t* layout) {
  static rabbet_status_t (*const sections[])(rabbet_plan_stream_t*,
                                             uint64_t) = {
      [RABBET_PLAN_SECTION_DEVICE] = stream_device,
      [RABBET_PLAN_SECTION_META] = stream_meta,
      [RABBET_PLAN_SECTION_WEIGHTS] = stream_weights,
      [RABBET_PLAN_SECTION_KERNELS] = stream_kernels,
      [RABBET_PLAN_SECTION_PLUGINS] = stream_plugins};
  stream->at = layout->head_size;
  for (uint32_t id = 1; id < RABBET_PLAN_SECTION_LIMIT; ++id) {
    uint64_t offset = layout->offsets[id];
    if (offset == 0) continue;
    assert(stream->at <= offset);
    RABBET_RETURN_IF_ERROR(stream_add_zeros(stream, offset - stream->at));
    rabbet_hash_stream_begin(&stream->hash);
    RABBET_RETURN_IF_ERROR(sections[id](stream, offset));
    // An empty part may come last.
    uint64_t end = offset + layout->sizes[id];
    assert(stream->at <= end);
    RABBET_RETURN_IF_ERROR(stream_add_zeros(stream, end - stream->at));
    layout->checksums[id] = rabbet_hash_stream_end(&stream->hash);
  }
  return rabbet_ok();
}

static void stream_make_head(const rabbet_plan_stream_t* stream,
                             layout_t* layout) {
  const char* producer = stream->contents->plan->producer;
  rabbet_plan_file_head(layout->head, layout->total, producer ? producer : "",
                        layout->sizes, layout->offsets, layout->checksums);
}

static rabbet_status_t stream_head_last(rabbet_plan_stream_t* stream,
                                        layout_t* layout) {
  stream->writes = true;
  RABBET_RETURN_IF_ERROR(stream_put(stream, layout->head, layout->head_size));
  RABBET_RETURN_IF_ERROR(stream_sections(stream, layout));
  stream_make_head(stream, layout);
  return stream->sink->rewrite(stream->sink->context, layout->head,
                               layout->head_size);
}

// The checksums come first: everything is read twice.
static rabbet_status_t stream_head_first(rabbet_plan_stream_t* stream,
                                         layout_t* layout) {
  RABBET_RETURN_IF_ERROR(stream_sections(stream, layout));
  stream_make_head(stream, layout);
  stream->writes = true;
  RABBET_RETURN_IF_ERROR(stream_put(stream, layout->head, layout->head_size));
  return stream_sections(stream, layout);
}

static uint64_t stream_carried_size(const Rabbet__Plan__Meta* meta) {
  if (meta->n_carried == 0) return 0;
  const Rabbet__Plan__Carried* last = meta->carried[meta->n_carried - 1];
  return last->offset + last->size;
}

static uint64_t stream_artifacts_size(const Rabbet__Plan__Meta* meta) {
  if (meta->n_artifacts == 0) return 0;
  const Rabbet__Plan__Artifact* last = meta->artifacts[meta->n_artifacts - 1];
  return last->offset + last->size;
}

rabbet_status_t rabbet_plan_stream(rabbet_plan_stream_t* stream,
                                   uint64_t* out_size) {
  const rabbet_plan_sink_t* sink = stream->sink;
  layout_t layout = {
      .sizes = {
          [RABBET_PLAN_SECTION_DEVICE] = strlen(stream->device),
          [RABBET_PLAN_SECTION_META] =
              rabbet__plan__meta__get_packed_size(stream->meta),
          [RABBET_PLAN_SECTION_WEIGHTS] = stream->weights_size,
          [RABBET_PLAN_SECTION_KERNELS] = stream_artifacts_size(stream->meta),
          [RABBET_PLAN_SECTION_PLUGINS] = stream_carried_size(stream->meta)}};
  RABBET_RETURN_IF_ERROR(
      rabbet_plan_file_layout(layout.sizes, layout.offsets, &layout.total));
  layout.head_size = rabbet_plan_file_head_size(layout.sizes);
  RABBET_RETURN_IF_ERROR(sink->begin(sink->context, layout.total));
  RABBET_RETURN_IF_ERROR(sink->rewrite ? stream_head_last(stream, &layout)
                                       : stream_head_first(stream, &layout));
  assert(stream->at == layout.total);
  *out_size = layout.total;
  return rabbet_ok();
}
