#include "onnx/file/model.h"

#include <string.h>

#include "base/large_pages.h"
#include "base/math.h"
#include "onnx/file/scan.h"

// ---- Storage ---------------------------------------------------------------

static rabbet_status_t onnx_set_folder(rabbet_onnx_storage_t* storage,
                                       const char* path,
                                       const char* external_folder) {
  if (external_folder) {
    size_t size = strlen(external_folder) + 1;
    RABBET_RETURN_IF_ERROR(
        rabbet_allocate(storage->allocator, size, (void**)&storage->folder));
    memcpy(storage->folder, external_folder, size);
    return rabbet_ok();
  }
  if (!path) return rabbet_ok();
  return rabbet_path_join_beside(path, ".", storage->allocator,
                                 &storage->folder);
}

// NULL where the path names nothing.
static rabbet_status_t onnx_resolve(const char* path,
                                    rabbet_allocator_t allocator,
                                    char** out_path) {
  rabbet_status_t status = rabbet_path_resolve(path, allocator, out_path);
  if (rabbet_status_code(status) == RABBET_STATUS_OUT_OF_MEMORY) return status;
  rabbet_status_ignore(status);
  return rabbet_ok();
}

static rabbet_status_t onnx_set_real_folders(rabbet_onnx_storage_t* storage,
                                             const char* path,
                                             const char* external_folder) {
  char** folders = storage->real_folders;
  if (!storage->folder) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(
      onnx_resolve(storage->folder, storage->allocator, &folders[0]));
  if (external_folder) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(onnx_resolve(path, storage->allocator, &folders[1]));
  char* slash = folders[1] ? strrchr(folders[1], '/') : NULL;
  if (slash) slash[slash == folders[1]] = '\0';
  return rabbet_ok();
}

static rabbet_status_t onnx_storage_create(
    const char* path, const char* external_folder, rabbet_allocator_t allocator,
    rabbet_onnx_storage_t** out_storage) {
  *out_storage = NULL;
  rabbet_onnx_storage_t* storage;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(allocator, sizeof(*storage), (void**)&storage));
  storage->allocator = allocator;
  rabbet_arena_initialize(allocator, &storage->arena);
  rabbet_status_t status = onnx_set_folder(storage, path, external_folder);
  if (rabbet_is_ok(status))
    status = onnx_set_real_folders(storage, path, external_folder);
  if (rabbet_is_ok(status)) {
    *out_storage = storage;
  } else {
    rabbet_onnx_storage_destroy(storage);
  }
  return status;
}

rabbet_status_t rabbet_onnx_storage_open(const char* path,
                                         const char* external_folder,
                                         rabbet_allocator_t allocator,
                                         rabbet_onnx_storage_t** out_storage) {
  rabbet_onnx_storage_t* storage;
  *out_storage = NULL;
  RABBET_RETURN_IF_ERROR(
      onnx_storage_create(path, external_folder, allocator, &storage));
  rabbet_status_t status =
      rabbet_file_map_create(path, allocator, &storage->file);
  if (rabbet_is_ok(status)) {
    storage->data = rabbet_file_map_data(storage->file);
    storage->size = rabbet_file_map_size(storage->file);
    *out_storage = storage;
  } else {
    rabbet_onnx_storage_destroy(storage);
  }
  return status;
}

rabbet_status_t rabbet_onnx_storage_copy(const void* data, size_t size,
                                         const char* path,
                                         const char* external_folder,
                                         rabbet_allocator_t allocator,
                                         rabbet_onnx_storage_t** out_storage) {
  rabbet_onnx_storage_t* storage;
  *out_storage = NULL;
  RABBET_RETURN_IF_ERROR(
      onnx_storage_create(path, external_folder, allocator, &storage));
  void* copy = NULL;
  rabbet_status_t status =
      rabbet_arena_copy(&storage->arena, data, size, &copy);
  if (rabbet_is_ok(status)) {
    storage->data = copy;
    storage->size = size;
    *out_storage = storage;
  } else {
    rabbet_onnx_storage_destroy(storage);
  }
  return status;
}

void rabbet_onnx_storage_destroy(void* owner) {
  rabbet_onnx_storage_t* storage = owner;
  if (!storage) return;
  rabbet_allocator_t allocator = storage->allocator;
  for (size_t i = 0; i < storage->external.count; ++i) {
    rabbet_file_map_release(storage->external.data[i]);
  }
  for (size_t i = 0; i < storage->external_names.count; ++i) {
    rabbet_free(allocator, storage->external_names.data[i]);
  }
  rabbet_vec_free(allocator, &storage->external);
  rabbet_vec_free(allocator, &storage->external_names);
  rabbet_file_map_release(storage->file);
  rabbet_arena_deinitialize(&storage->arena);
  rabbet_free_aligned(allocator, storage->copies, RABBET_LARGE_PAGE);
  rabbet_free(allocator, storage->folder);
  rabbet_free(allocator, storage->real_folders[0]);
  rabbet_free(allocator, storage->real_folders[1]);
  rabbet_free(allocator, storage);
}

rabbet_status_t rabbet_onnx_storage_check(const void* owner) {
  const rabbet_onnx_storage_t* storage = owner;
  if (storage->file)
    RABBET_RETURN_IF_ERROR(rabbet_file_map_check(storage->file));
  for (size_t i = 0; i < storage->external.count; ++i)
    RABBET_RETURN_IF_ERROR(rabbet_file_map_check(storage->external.data[i]));
  return rabbet_ok();
}

// ---- Parsing ---------------------------------------------------------------

// protobuf-c's messages go to an arena, up to a limit.
typedef struct onnx_memory_t {
  rabbet_arena_t* arena;
  size_t left;
  rabbet_status_t status;  // why an allocation was refused
} onnx_memory_t;

static void* onnx_memory_allocate(void* data, size_t size) {
  onnx_memory_t* memory = data;
  if (!rabbet_is_ok(memory->status)) return NULL;
  if (size > memory->left) {
    memory->status = RABBET_STATUS(
        RABBET_STATUS_UNSUPPORTED,
        "the model's messages need far more memory than the model's size "
        "explains; it was not made by an ONNX writer");
    return NULL;
  }
  void* block = NULL;
  memory->status = rabbet_arena_allocate(memory->arena, size, &block);
  if (rabbet_is_ok(memory->status)) memory->left -= size;
  return block;
}

static void onnx_memory_free(void* data, void* block) {
  (void)data;
  (void)block;
}

// Real models need 5 to 15 bytes for each byte of the file without its large
// tensors (mostly attributes: 12 bytes in the file, some 300 in memory).
static size_t onnx_memory_limit(size_t file_size, size_t slim_size) {
  size_t size = file_size < slim_size ? file_size : slim_size;
  return ((size_t)16 << 20) + size * 48;
}

static rabbet_status_t onnx_unpack(const rabbet_strbuf_t* slim,
                                   size_t file_size, rabbet_arena_t* arena,
                                   Onnx__ModelProto** out_model) {
  onnx_memory_t memory = {.arena = arena,
                          .left = onnx_memory_limit(file_size, slim->size)};
  ProtobufCAllocator allocator = {.alloc = onnx_memory_allocate,
                                  .free = onnx_memory_free,
                                  .allocator_data = &memory};
  Onnx__ModelProto* model = onnx__model_proto__unpack(
      &allocator, slim->size, (const uint8_t*)rabbet_strbuf_text(slim));
  if (!rabbet_is_ok(memory.status)) return memory.status;
  if (!model) {
    return RABBET_STATUS(RABBET_STATUS_DATA_LOSS,
                         "the bytes are not an ONNX model: a list of numbers "
                         "within it is damaged");
  }
  *out_model = model;
  return rabbet_ok();
}

// Recognizes files that are often mistaken for models.
static rabbet_status_t onnx_check_start(const uint8_t* data, size_t size) {
  const char* what = NULL;
  if (size >= 8 && memcmp(data, "\x89RABBET\n", 8) == 0)
    what =
        "a plan, which is not built again but loaded and run (rabbet.load, "
        "'rabbet run')";
  if (size >= 4 && memcmp(data, "ftrt", 4) == 0)
    what =
        "a TensorRT engine, it seems; build from the model that it was "
        "made of";
  return what ? RABBET_STATUS(RABBET_STATUS_DATA_LOSS,
                              "the bytes are not an ONNX model: they are %s",
                              what)
              : rabbet_ok();
}

rabbet_status_t rabbet_onnx_model_parse(const rabbet_onnx_storage_t* storage,
                                        rabbet_arena_t* arena,
                                        Onnx__ModelProto** out_model) {
  *out_model = NULL;
  RABBET_RETURN_IF_ERROR(onnx_check_start(storage->data, storage->size));
  rabbet_strbuf_t slim;
  rabbet_strbuf_initialize(storage->allocator, &slim);
  rabbet_status_t status =
      rabbet_onnx_scan(storage->data, storage->size, &slim);
  if (rabbet_is_ok(status)) {
    status = onnx_unpack(&slim, storage->size, arena, out_model);
  }
  rabbet_strbuf_deinitialize(&slim);
  return status;
}
