#include "builder/output.h"

#include <assert.h>
#include <string.h>

#include "base/large_pages.h"
#include "builder/config.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

// A caller gets a plan and its report, or an error and neither.
static rabbet_status_t output_build(rabbet_network_t* network,
                                    rabbet_builder_config_t* config,
                                    const rabbet_build_output_t* output) {
  if (output->report) *output->report = NULL;
  rabbet_status_t status = rabbet_build_deliver(network, config, output);
#ifdef __GLIBC__
  // Packed weights and copies that were freed stay in the heap otherwise: more
  // than the weights of a model, for as long as the process lives.
  malloc_trim(0);
#endif
  return status;
}

// ---- Memory -----------------------------------------------------------------

typedef struct memory_t {
  rabbet_allocator_t allocator;
  void* data;
  size_t size;
} memory_t;

static rabbet_status_t memory_deliver(void* context,
                                      const rabbet_plan_contents_t* contents,
                                      rabbet_allocator_t allocator,
                                      uint64_t* out_size) {
  memory_t* memory = context;
  rabbet_status_t status = rabbet_plan_write_block(
      contents, allocator, memory->allocator, &memory->data, &memory->size);
  *out_size = memory->size;
  return status;
}

rabbet_status_t rabbet_build_plan(rabbet_network_t* network,
                                  rabbet_builder_config_t* config,
                                  rabbet_allocator_t allocator, void** out_plan,
                                  size_t* out_size,
                                  rabbet_build_report_t** out_report) {
  memory_t memory = {.allocator = allocator};
  const rabbet_build_output_t output = {.allocator = allocator,
                                        .report = out_report,
                                        .context = &memory,
                                        .deliver = memory_deliver};
  *out_plan = NULL;
  *out_size = 0;
  rabbet_status_t status = output_build(network, config, &output);
  if (!rabbet_is_ok(status)) {
    rabbet_free_aligned(allocator, memory.data, RABBET_PLAN_ALIGNMENT);
    return status;
  }
  *out_plan = memory.data;
  *out_size = memory.size;
  return rabbet_ok();
}

// ---- Files ------------------------------------------------------------------

static rabbet_status_t file_begin(void* context, uint64_t size) {
  return rabbet_file_out_reserve(context, size);
}

static rabbet_status_t file_write(void* context, const void* data,
                                  size_t size) {
  return rabbet_file_out_write(context, data, size);
}

static rabbet_status_t file_rewrite(void* context, const void* data,
                                    size_t size) {
  return rabbet_file_out_rewrite(context, data, size);
}

static rabbet_plan_sink_t file_sink(rabbet_file_out_t* out) {
  bool seekable = rabbet_file_out_is_seekable(out);
  return (rabbet_plan_sink_t){.context = out,
                              .begin = file_begin,
                              .write = file_write,
                              .rewrite = seekable ? file_rewrite : NULL};
}

typedef struct file_t {
  const char* path;
  const rabbet_plan_contents_t* contents;
  rabbet_allocator_t allocator;
  uint64_t size;
} file_t;

static rabbet_status_t file_fill(void* context, rabbet_file_out_t* out) {
  file_t* file = context;
  return rabbet_plan_write_to(file->contents, file->allocator, file_sink(out),
                              &file->size);
}

static rabbet_status_t file_deliver(void* context,
                                    const rabbet_plan_contents_t* contents,
                                    rabbet_allocator_t allocator,
                                    uint64_t* out_size) {
  file_t* file = context;
  file->contents = contents;
  file->allocator = allocator;
  rabbet_status_t status = rabbet_file_write_by(
      file->path, (rabbet_file_fill_t){.context = file, .fill = file_fill});
  *out_size = file->size;
  return status;
}

rabbet_status_t rabbet_build_plan_file(rabbet_network_t* network,
                                       rabbet_builder_config_t* config,
                                       const char* path,
                                       rabbet_allocator_t allocator,
                                       uint64_t* out_size,
                                       rabbet_build_report_t** out_report) {
  file_t file = {.path = path};
  const rabbet_build_output_t output = {.allocator = allocator,
                                        .report = out_report,
                                        .context = &file,
                                        .deliver = file_deliver};
  rabbet_status_t status = output_build(network, config, &output);
  *out_size = rabbet_is_ok(status) ? file.size : 0;
  return status;
}

// ---- Callers' functions -----------------------------------------------------

static rabbet_status_t writer_begin(void* context, uint64_t size) {
  (void)context, (void)size;
  return rabbet_ok();
}

static rabbet_status_t writer_write(void* context, const void* data,
                                    size_t size) {
  const rabbet_plan_writer_t* writer = context;
  return writer->write(writer->user_data, data, size);
}

static rabbet_status_t writer_deliver(void* context,
                                      const rabbet_plan_contents_t* contents,
                                      rabbet_allocator_t allocator,
                                      uint64_t* out_size) {
  return rabbet_plan_write_to(
      contents, allocator,
      (rabbet_plan_sink_t){
          .context = context, .begin = writer_begin, .write = writer_write},
      out_size);
}

rabbet_status_t rabbet_build_plan_to(rabbet_network_t* network,
                                     rabbet_builder_config_t* config,
                                     rabbet_plan_writer_t writer,
                                     rabbet_allocator_t allocator,
                                     rabbet_build_report_t** out_report) {
  const rabbet_build_output_t output = {.allocator = allocator,
                                        .report = out_report,
                                        .context = &writer,
                                        .deliver = writer_deliver};
  return output_build(network, config, &output);
}

// ---- Memory or a file without a name ----------------------------------------

typedef struct mapped_t {
  rabbet_allocator_t allocator;
  rabbet_logger_t logger;
  rabbet_file_out_t* out;
  rabbet_file_map_t* map;
} mapped_t;

static rabbet_status_t mapped_as_file(mapped_t* mapped,
                                      const rabbet_plan_contents_t* contents,
                                      rabbet_allocator_t allocator,
                                      uint64_t* out_size) {
  RABBET_RETURN_IF_ERROR(rabbet_plan_write_to(
      contents, allocator, file_sink(mapped->out), out_size));
  return rabbet_file_out_map(mapped->out, &mapped->map);
}

// Memory that a plan is written into.
typedef struct block_t {
  rabbet_allocator_t allocator;
  uint8_t* data;
  size_t size, used;
} block_t;

static rabbet_status_t block_begin(void* context, uint64_t size) {
  block_t* block = context;
  block->size = (size_t)size;
  RABBET_RETURN_IF_ERROR(rabbet_allocate_aligned(block->allocator, block->size,
                                                 RABBET_PLAN_ALIGNMENT,
                                                 (void**)&block->data));
  rabbet_use_large_pages(block->data, block->size);
  return rabbet_ok();
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

static rabbet_status_t mapped_as_memory(mapped_t* mapped,
                                        const rabbet_plan_contents_t* contents,
                                        rabbet_allocator_t allocator,
                                        uint64_t* out_size) {
  block_t block = {.allocator = mapped->allocator};
  const rabbet_plan_sink_t sink = {.context = &block,
                                   .begin = block_begin,
                                   .write = block_write,
                                   .rewrite = block_rewrite};
  rabbet_status_t status =
      rabbet_plan_write_to(contents, allocator, sink, out_size);
  if (rabbet_is_ok(status))
    status = rabbet_file_map_take_block(block.data, (size_t)*out_size,
                                        RABBET_PLAN_ALIGNMENT,
                                        mapped->allocator, &mapped->map);
  if (!rabbet_is_ok(status))
    rabbet_free_aligned(mapped->allocator, block.data, RABBET_PLAN_ALIGNMENT);
  return status;
}

static rabbet_status_t mapped_deliver(void* context,
                                      const rabbet_plan_contents_t* contents,
                                      rabbet_allocator_t allocator,
                                      uint64_t* out_size) {
  mapped_t* mapped = context;
  uint64_t weights = 0;
  for (size_t i = 0; i < contents->blob_count; ++i)
    weights += contents->blobs[i].size;
  if (weights < RABBET_BUILD_MAPPED)
    return mapped_as_memory(mapped, contents, allocator, out_size);
  rabbet_status_t status = rabbet_file_out_create_temporary(
      weights, mapped->allocator, &mapped->out);
  if (rabbet_is_ok(status))
    status = mapped_as_file(mapped, contents, allocator, out_size);
  rabbet_file_out_destroy(mapped->out);
  if (rabbet_status_code(status) != RABBET_STATUS_IO &&
      rabbet_status_code(status) != RABBET_STATUS_NOT_FOUND)
    return status;
  rabbet_log(mapped->logger, RABBET_SEVERITY_INFO,
             "the plan is kept in memory: %s", rabbet_status_message(status));
  rabbet_status_ignore(status);
  return mapped_as_memory(mapped, contents, allocator, out_size);
}

rabbet_status_t rabbet_build_plan_mapped(rabbet_network_t* network,
                                         rabbet_builder_config_t* config,
                                         rabbet_allocator_t allocator,
                                         rabbet_file_map_t** out_plan,
                                         rabbet_build_report_t** out_report) {
  mapped_t mapped = {.allocator = allocator, .logger = config->logger};
  const rabbet_build_output_t output = {.allocator = allocator,
                                        .report = out_report,
                                        .context = &mapped,
                                        .deliver = mapped_deliver};
  *out_plan = NULL;
  rabbet_status_t status = output_build(network, config, &output);
  if (rabbet_is_ok(status))
    *out_plan = mapped.map;
  else
    rabbet_file_map_release(mapped.map);
  return status;
}
