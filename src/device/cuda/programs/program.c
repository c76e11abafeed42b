#include "device/cuda/programs/program.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/math.h"
#include "base/strbuf.h"
#include "base/vec.h"
#include "device/cuda/programs/compile.h"
#include "device/cuda/programs/sources.h"

// ---- Artifacts in plans ----------------------------------------------------

// The artifact: this header, the cubin at 64, the PTX (with its NUL) behind it.
#define IMAGE_MAGIC 0x31494352u  // "RCI1"
#define IMAGE_HEADER 64

typedef struct program_image_t {
  uint32_t magic;
  int32_t major, minor;  // compute capability of the cubin
  uint32_t reserved;
  uint64_t cubin_size, ptx_size;
} program_image_t;

struct rabbet_cuda_program_t {
  rabbet_cuda_device_t* device;
  rabbet_refcount_t references;
  rabbet_hash_t key;
  char name[64];
  CUmodule module;
  void* image;  // as a plan keeps it; without PTX while `source` is kept
  size_t image_size;
  // The source to compile PTX from when a plan asks for it, or NULL.
  rabbet_cuda_source_t* source;
  bool compiled;   // stays loaded: a build creates the same kernel many times
  bool is_making;  // a thread makes it; others wait for `made`
};

struct rabbet_cuda_programs_t {
  rabbet_allocator_t allocator;
  pthread_mutex_t lock;
  pthread_cond_t made;
  RABBET_VEC(rabbet_cuda_program_t*) loaded;
  rabbet_hash_t headers;  // hash of all headers that sources can include
};

static void program_destroy(rabbet_cuda_program_t* program);
static rabbet_status_t program_hash_headers(rabbet_allocator_t allocator,
                                            rabbet_hash_t* out_hash);

rabbet_status_t rabbet_cuda_programs_create(
    rabbet_allocator_t allocator, rabbet_cuda_programs_t** out_programs) {
  *out_programs = NULL;
  rabbet_cuda_programs_t* programs = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(allocator, sizeof(*programs), (void**)&programs));
  programs->allocator = allocator;
  rabbet_status_t status = program_hash_headers(allocator, &programs->headers);
  if (!rabbet_is_ok(status)) {
    rabbet_free(allocator, programs);
    return status;
  }
  pthread_mutex_init(&programs->lock, NULL);
  pthread_cond_init(&programs->made, NULL);
  *out_programs = programs;
  return rabbet_ok();
}

void rabbet_cuda_programs_destroy(rabbet_cuda_programs_t* programs) {
  if (!programs) return;
  // Only compiled programs are left; others end with their last user.
  for (size_t i = 0; i < programs->loaded.count; ++i) {
    assert(programs->loaded.data[i]->compiled);
    program_destroy(programs->loaded.data[i]);
  }
  rabbet_vec_free(programs->allocator, &programs->loaded);
  pthread_cond_destroy(&programs->made);
  pthread_mutex_destroy(&programs->lock);
  rabbet_free(programs->allocator, programs);
}

// ---- Keys ------------------------------------------------------------------

static rabbet_status_t program_hash_headers(rabbet_allocator_t allocator,
                                            rabbet_hash_t* out_hash) {
  rabbet_strbuf_t buffer;
  rabbet_strbuf_initialize(allocator, &buffer);
  for (size_t i = 0; i < rabbet_cuda_header_count; ++i)
    rabbet_strbuf_printf(&buffer, "%s\n", rabbet_cuda_headers[i].text);
  rabbet_status_t status = rabbet_strbuf_status(&buffer);
  if (rabbet_is_ok(status))
    *out_hash = rabbet_hash128(rabbet_strbuf_text(&buffer),
                               strlen(rabbet_strbuf_text(&buffer)));
  rabbet_strbuf_deinitialize(&buffer);
  return status;
}

// The key excludes the architecture, since a plan's PTX is also for newer ones.
static rabbet_status_t program_key(const rabbet_cuda_programs_t* programs,
                                   const rabbet_cuda_source_t* source,
                                   const char* text, rabbet_hash_t* out_key) {
  rabbet_strbuf_t buffer;
  char headers[33], own[33];
  rabbet_hash_print(programs->headers, headers);
  rabbet_hash_print(rabbet_hash128(text, strlen(text)), own);
  rabbet_strbuf_initialize(programs->allocator, &buffer);
  rabbet_strbuf_printf(&buffer, "%s\n%s\n%s\n", source->name, headers, own);
  for (size_t i = 0; i < source->option_count; ++i)
    rabbet_strbuf_printf(&buffer, "%s\n", source->options[i]);
  rabbet_status_t status = rabbet_strbuf_status(&buffer);
  if (rabbet_is_ok(status))
    *out_key = rabbet_hash128(rabbet_strbuf_text(&buffer),
                              strlen(rabbet_strbuf_text(&buffer)));
  rabbet_strbuf_deinitialize(&buffer);
  return status;
}

static const char* program_text(const rabbet_cuda_source_t* source) {
  if (source->text) return source->text;
  for (size_t i = 0; i < rabbet_cuda_source_count; ++i) {
    if (strcmp(rabbet_cuda_sources[i].name, source->name) == 0)
      return rabbet_cuda_sources[i].text;
  }
  return NULL;
}

// ---- Making one ------------------------------------------------------------

// The image of machine code and PTX (without PTX if `ptx_size` is 0).
static rabbet_status_t program_image(rabbet_cuda_program_t* program,
                                     const void* cubin, size_t cubin_size,
                                     const char* ptx, size_t ptx_size) {
  // A program without PTX must be able to compile it later.
  assert(cubin_size > 0 && (ptx_size > 0 || program->source));
  const rabbet_cuda_device_t* device = program->device;
  program_image_t header = {.magic = IMAGE_MAGIC,
                            .major = device->major,
                            .minor = device->minor,
                            .cubin_size = cubin_size,
                            .ptx_size = ptx_size};
  size_t at = IMAGE_HEADER + rabbet_align_up(cubin_size, 64);
  uint8_t* image = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(device->base.allocator, at + ptx_size, (void**)&image));
  memcpy(image, &header, sizeof(header));
  memcpy(image + IMAGE_HEADER, cubin, cubin_size);
  if (ptx_size > 0) memcpy(image + at, ptx, ptx_size);
  rabbet_free(device->base.allocator, program->image);
  program->image = image;
  program->image_size = at + ptx_size;
  return rabbet_ok();
}

static rabbet_status_t program_translate(const rabbet_cuda_program_t* program,
                                         const rabbet_cuda_source_t* source,
                                         bool specific, bool only_ptx,
                                         rabbet_nvrtc_output_t* out_code) {
  const rabbet_cuda_device_t* device = program->device;
  rabbet_nvrtc_input_t input = {.name = source->name,
                                .text = program_text(source),
                                .headers = rabbet_cuda_headers,
                                .header_count = rabbet_cuda_header_count,
                                .options = source->options,
                                .option_count = source->option_count,
                                .major = device->major,
                                .minor = device->minor,
                                .specific = specific,
                                .only_ptx = only_ptx};
  return rabbet_cuda_compile(device, &input, program->key, out_code);
}

// One allocation: the source, its options' addresses, and all texts.
static rabbet_status_t program_keep_source(rabbet_cuda_program_t* program,
                                           const rabbet_cuda_source_t* source) {
  const char* texts[] = {source->name, source->text};
  size_t list = sizeof(*source) + source->option_count * sizeof(char*);
  size_t size = list;
  for (size_t i = 0; i < 2; ++i)
    size += texts[i] ? strlen(texts[i]) + 1 : 0;
  for (size_t i = 0; i < source->option_count; ++i)
    size += strlen(source->options[i]) + 1;
  rabbet_cuda_source_t* kept = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(program->device->base.allocator, size, (void**)&kept));
  const char** options = (const char**)(kept + 1);
  char* at = (char*)kept + list;
  *kept = *source;
  kept->options = options;
  for (size_t i = 0; i < source->option_count; ++i) {
    options[i] = strcpy(at, source->options[i]);
    at += strlen(at) + 1;
  }
  kept->name = strcpy(at, source->name);
  at += strlen(at) + 1;
  if (source->text) kept->text = strcpy(at, source->text);
  assert(at + (source->text ? strlen(at) + 1 : 0) == (char*)kept + size);
  program->source = kept;
  return rabbet_ok();
}

// If machine code is for this GPU only, PTX is compiled separately when a plan
// needs it: a build discards most kernels that it tries.
static rabbet_status_t program_compile(rabbet_cuda_program_t* program,
                                       const rabbet_cuda_source_t* source) {
  const rabbet_cuda_device_t* device = program->device;
  bool specific = source->specific && device->major == 9 && device->minor == 0;
  rabbet_nvrtc_output_t code;
  if (specific) RABBET_RETURN_IF_ERROR(program_keep_source(program, source));
  RABBET_RETURN_IF_ERROR(
      program_translate(program, source, specific, false, &code));
  rabbet_status_t status =
      program_image(program, code.cubin, code.cubin_size, code.ptx,
                    specific ? 0 : code.ptx_size);
  rabbet_free(device->base.allocator, code.cubin);
  return status;
}

static rabbet_status_t program_add_ptx(rabbet_cuda_program_t* program) {
  assert(program->source && program->image);
  rabbet_allocator_t allocator = program->device->base.allocator;
  const program_image_t* header = program->image;
  rabbet_nvrtc_output_t code;
  RABBET_RETURN_IF_ERROR(
      program_translate(program, program->source, false, true, &code));
  rabbet_status_t status =
      program_image(program, (const uint8_t*)program->image + IMAGE_HEADER,
                    header->cubin_size, code.ptx, code.ptx_size);
  rabbet_free(allocator, code.cubin);
  if (!rabbet_is_ok(status)) return status;
  rabbet_free(allocator, program->source);
  program->source = NULL;
  return rabbet_ok();
}

static rabbet_status_t program_damaged(const rabbet_cuda_program_t* program) {
  return RABBET_STATUS(RABBET_STATUS_DATA_LOSS,
                       "the compiled kernel '%s' in the plan is damaged",
                       program->name);
}

// Copies the plan's bytes: modules are loaded from aligned memory, and the
// program's artifact may be needed after the plan is destroyed.
static rabbet_status_t program_take(rabbet_cuda_program_t* program,
                                    const rabbet_artifact_t* artifact) {
  program_image_t header;
  if (artifact->size < IMAGE_HEADER) return program_damaged(program);
  memcpy(&header, artifact->data, sizeof(header));
  uint64_t room = artifact->size - IMAGE_HEADER;
  if (header.magic != IMAGE_MAGIC || header.cubin_size > room ||
      header.ptx_size == 0 || header.ptx_size > room ||
      rabbet_align_up(header.cubin_size, 64) + header.ptx_size != room ||
      ((const char*)artifact->data)[artifact->size - 1] != 0)
    return program_damaged(program);
  RABBET_RETURN_IF_ERROR(rabbet_allocate(program->device->base.allocator,
                                         artifact->size, &program->image));
  memcpy(program->image, artifact->data, artifact->size);
  program->image_size = artifact->size;
  return rabbet_ok();
}

// Loads the cubin if it fits the GPU, otherwise the PTX.
static rabbet_status_t program_load(rabbet_cuda_program_t* program) {
  rabbet_cuda_device_t* device = program->device;
  const program_image_t* header = program->image;
  const uint8_t* image = (const uint8_t*)program->image + IMAGE_HEADER;
  bool fits = header->major == device->major && header->minor <= device->minor;
  assert(header->magic == IMAGE_MAGIC && (fits || header->ptx_size > 0));
  if (!fits) image += rabbet_align_up(header->cubin_size, 64);
  // Code for older GPUs has no instruction that waits for the previous kernel.
  if (header->major < 9)
    atomic_store_explicit(&device->overlaps, false, memory_order_relaxed);
  CUcontext before = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_cuda_enter(device, &before));
  rabbet_status_t status =
      RABBET_CUDA(device->driver, cuModuleLoadData, (&program->module, image));
  rabbet_cuda_leave(device, before);
  return RABBET_ANNOTATE(status, "loading the kernel '%s' (%s)", program->name,
                         fits ? "machine code" : "PTX");
}

static void program_destroy(rabbet_cuda_program_t* program) {
  rabbet_cuda_device_t* device = program->device;
  CUcontext before = NULL;
  if (program->module) {
    rabbet_status_t status = rabbet_cuda_enter(device, &before);
    if (rabbet_is_ok(status)) {
      device->driver->cuModuleUnload(program->module);
      rabbet_cuda_leave(device, before);
    }
    rabbet_status_ignore(status);
  }
  rabbet_free(device->base.allocator, program->source);
  rabbet_free(device->base.allocator, program->image);
  rabbet_free(device->base.allocator, program);
}

static rabbet_status_t program_create(rabbet_cuda_device_t* device,
                                      const rabbet_cuda_source_t* source,
                                      rabbet_hash_t key,
                                      rabbet_cuda_program_t** out_program) {
  rabbet_cuda_program_t* program = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(device->base.allocator,
                                         sizeof(*program), (void**)&program));
  program->device = device;
  program->key = key;
  program->is_making = true;
  snprintf(program->name, sizeof(program->name), "%s", source->name);
  rabbet_refcount_initialize(&program->references);
  *out_program = program;
  return rabbet_ok();
}

static const rabbet_artifact_t* program_artifact(
    rabbet_hash_t key, const rabbet_artifact_t* artifacts, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (artifacts[i].key.high == key.high && artifacts[i].key.low == key.low)
      return &artifacts[i];
  }
  return NULL;
}

static rabbet_status_t program_make(rabbet_cuda_program_t* program,
                                    const rabbet_cuda_source_t* source,
                                    const rabbet_artifact_t* artifacts,
                                    size_t artifact_count) {
  const rabbet_artifact_t* found =
      program_artifact(program->key, artifacts, artifact_count);
  program->compiled = !found;
  RABBET_RETURN_IF_ERROR(found ? program_take(program, found)
                               : program_compile(program, source));
  return program_load(program);
}

// The place of the key's program in the list, or the list's length.
static size_t program_find(const rabbet_cuda_programs_t* programs,
                           rabbet_hash_t key) {
  size_t i = 0;
  while (i < programs->loaded.count &&
         (programs->loaded.data[i]->key.high != key.high ||
          programs->loaded.data[i]->key.low != key.low))
    ++i;
  return i;
}

static void program_forget(rabbet_cuda_programs_t* programs,
                           const rabbet_cuda_program_t* program) {
  size_t i = program_find(programs, program->key);
  if (i < programs->loaded.count && programs->loaded.data[i] == program)
    programs->loaded.data[i] = programs->loaded.data[--programs->loaded.count];
}

// Under the lock, which is given up while the program is made: threads compile
// different programs at the same time, and each program once.
static rabbet_status_t program_add(rabbet_cuda_device_t* device,
                                   const rabbet_cuda_source_t* source,
                                   rabbet_hash_t key,
                                   const rabbet_artifact_t* artifacts,
                                   size_t artifact_count,
                                   rabbet_cuda_program_t** out_program) {
  rabbet_cuda_programs_t* programs = device->programs;
  rabbet_cuda_program_t* program = NULL;
  RABBET_RETURN_IF_ERROR(
      RABBET_VEC_RESERVE(programs->allocator, &programs->loaded, 1));
  RABBET_RETURN_IF_ERROR(program_create(device, source, key, &program));
  programs->loaded.data[programs->loaded.count++] = program;
  pthread_mutex_unlock(&programs->lock);
  rabbet_status_t status =
      program_make(program, source, artifacts, artifact_count);
  pthread_mutex_lock(&programs->lock);
  program->is_making = false;
  pthread_cond_broadcast(&programs->made);
  if (!rabbet_is_ok(status)) {
    program_forget(programs, program);
    program_destroy(program);
    return status;
  }
  if (program->compiled) rabbet_refcount_retain(&program->references);
  *out_program = program;
  return rabbet_ok();
}

static rabbet_status_t program_get(rabbet_cuda_device_t* device,
                                   const rabbet_cuda_source_t* source,
                                   const rabbet_artifact_t* artifacts,
                                   size_t artifact_count, bool waits,
                                   rabbet_cuda_program_t** out_program) {
  *out_program = NULL;
  rabbet_cuda_programs_t* programs = device->programs;
  const char* text = program_text(source);
  rabbet_hash_t key;
  if (!text)
    return RABBET_STATUS(RABBET_STATUS_INTERNAL, "there is no kernel file '%s'",
                         source->name);
  RABBET_RETURN_IF_ERROR(program_key(programs, source, text, &key));
  pthread_mutex_lock(&programs->lock);
  rabbet_status_t status = rabbet_ok();
  size_t at = 0;
  while ((at = program_find(programs, key)) < programs->loaded.count &&
         programs->loaded.data[at]->is_making && waits)
    pthread_cond_wait(&programs->made, &programs->lock);
  if (at < programs->loaded.count && programs->loaded.data[at]->is_making) {
    status = RABBET_STATUS(RABBET_STATUS_UNAVAILABLE,
                           "another thread makes '%s'", source->name);
  } else if (at < programs->loaded.count) {
    *out_program = programs->loaded.data[at];
    rabbet_refcount_retain(&(*out_program)->references);
  } else {
    status = program_add(device, source, key, artifacts, artifact_count,
                         out_program);
  }
  pthread_mutex_unlock(&programs->lock);
  return status;
}

rabbet_status_t rabbet_cuda_program_get(rabbet_cuda_device_t* device,
                                        const rabbet_cuda_source_t* source,
                                        const rabbet_artifact_t* artifacts,
                                        size_t artifact_count,
                                        rabbet_cuda_program_t** out_program) {
  return program_get(device, source, artifacts, artifact_count, true,
                     out_program);
}

rabbet_status_t rabbet_cuda_program_get_now(
    rabbet_cuda_device_t* device, const rabbet_cuda_source_t* source,
    const rabbet_artifact_t* artifacts, size_t artifact_count,
    rabbet_cuda_program_t** out_program) {
  return program_get(device, source, artifacts, artifact_count, false,
                     out_program);
}

rabbet_status_t rabbet_cuda_program_find(rabbet_cuda_device_t* device,
                                         const rabbet_cuda_source_t* source,
                                         const rabbet_artifact_t* artifacts,
                                         size_t artifact_count,
                                         rabbet_cuda_program_t** out_program) {
  rabbet_hash_t key;
  const char* text = program_text(source);
  *out_program = NULL;
  if (!text) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(program_key(device->programs, source, text, &key));
  return program_artifact(key, artifacts, artifact_count)
             ? rabbet_cuda_program_get(device, source, artifacts,
                                       artifact_count, out_program)
             : rabbet_ok();
}

void rabbet_cuda_program_release(rabbet_cuda_program_t* program) {
  if (!program) return;
  rabbet_cuda_programs_t* programs = program->device->programs;
  pthread_mutex_lock(&programs->lock);
  bool last = rabbet_refcount_release(&program->references);
  if (last) program_forget(programs, program);
  pthread_mutex_unlock(&programs->lock);
  if (last) program_destroy(program);
}

rabbet_status_t rabbet_cuda_program_function(rabbet_cuda_program_t* program,
                                             const char* name,
                                             CUfunction* out_function) {
  rabbet_cuda_device_t* device = program->device;
  CUcontext before = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_cuda_enter(device, &before));
  rabbet_status_t status = RABBET_CUDA(device->driver, cuModuleGetFunction,
                                       (out_function, program->module, name));
  rabbet_cuda_leave(device, before);
  return RABBET_ANNOTATE(status, "kernel '%s' of '%s'", name, program->name);
}

rabbet_status_t rabbet_cuda_program_artifact(rabbet_cuda_program_t* program,
                                             rabbet_artifact_sink_t sink) {
  rabbet_cuda_programs_t* programs = program->device->programs;
  rabbet_status_t status = rabbet_ok();
  pthread_mutex_lock(&programs->lock);
  while (program->is_making)
    pthread_cond_wait(&programs->made, &programs->lock);
  if (program->source) {
    program->is_making = true;
    pthread_mutex_unlock(&programs->lock);
    status = program_add_ptx(program);
    pthread_mutex_lock(&programs->lock);
    program->is_making = false;
    pthread_cond_broadcast(&programs->made);
  }
  pthread_mutex_unlock(&programs->lock);
  RABBET_RETURN_IF_ERROR(status);
  rabbet_artifact_t artifact = {.key = program->key,
                                .name = program->name,
                                .data = program->image,
                                .size = program->image_size};
  return sink.add(sink.context, &artifact);
}
