// TensorProto -> element type, dims, data.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/large_pages.h"
#include "base/math.h"
#include "core/view.h"
#include "onnx/file/model.h"
#include "onnx/file/scan.h"

// ---- Where the bytes are ---------------------------------------------------

typedef struct onnx_bytes_t {
  const uint8_t* data;
  size_t size;
} onnx_bytes_t;

// The scan's reference, if there is one.
static bool onnx_raw_reference(const rabbet_onnx_storage_t* storage,
                               const Onnx__TensorProto* tensor,
                               onnx_bytes_t* out_bytes) {
  for (unsigned i = 0; i < tensor->base.n_unknown_fields; ++i) {
    const ProtobufCMessageUnknownField* field = &tensor->base.unknown_fields[i];
    rabbet_onnx_raw_t raw;
    if (field->tag != RABBET_ONNX_RAW_FIELD || field->len < sizeof(raw)) {
      continue;
    }
    // The payload follows its length prefix.
    memcpy(&raw, field->data + field->len - sizeof(raw), sizeof(raw));
    assert(raw.offset <= storage->size &&
           raw.size <= storage->size - raw.offset);
    *out_bytes = (onnx_bytes_t){storage->data + raw.offset, (size_t)raw.size};
    return true;
  }
  return false;
}

static rabbet_status_t onnx_parse_size(const char* key, const char* text,
                                       uint64_t* out_value) {
  char* end;
  bool digits = text && text[0] >= '0' && text[0] <= '9';
  unsigned long long value = digits ? strtoull(text, &end, 10) : 0;
  if (!digits || *end || value > INT64_MAX) {
    return RABBET_STATUS(RABBET_STATUS_DATA_LOSS,
                         "external data's %s is '%s', which is not a size", key,
                         text ? text : "");
  }
  *out_value = value;
  return rabbet_ok();
}

typedef struct onnx_external_t {
  const char* location;
  uint64_t offset, length;
  bool has_length;
} onnx_external_t;

static rabbet_status_t onnx_external_parse(const Onnx__TensorProto* tensor,
                                           onnx_external_t* out_external) {
  *out_external = (onnx_external_t){0};
  for (size_t i = 0; i < tensor->n_external_data; ++i) {
    const char* key = tensor->external_data[i]->key;
    const char* value = tensor->external_data[i]->value;
    if (!key) continue;
    if (!strcmp(key, "location")) out_external->location = value;
    if (!strcmp(key, "offset")) {
      RABBET_RETURN_IF_ERROR(
          onnx_parse_size(key, value, &out_external->offset));
    }
    if (!strcmp(key, "length")) {
      RABBET_RETURN_IF_ERROR(
          onnx_parse_size(key, value, &out_external->length));
      out_external->has_length = true;
    }
  }
  if (!out_external->location || !out_external->location[0]) {
    return RABBET_STATUS(RABBET_STATUS_DATA_LOSS,
                         "its data is external, but no location is given");
  }
  return rabbet_ok();
}

// Data lies beside the model, or in folders below it.
static rabbet_status_t onnx_check_location(const char* location) {
  bool escapes = location[0] == '/' || strchr(location, '\\');
  for (const char* part = location; part;) {
    const char* slash = strchr(part, '/');
    size_t size = slash ? (size_t)(slash - part) : strlen(part);
    escapes |= size == 2 && !strncmp(part, "..", 2);
    part = slash ? slash + 1 : NULL;
  }
  if (!escapes) return rabbet_ok();
  return RABBET_STATUS(
      RABBET_STATUS_INVALID_ARGUMENT,
      "external data's location '%s' leaves the model's folder; absolute "
      "paths and '..' are refused",
      location);
}

// A link must lead to a file that the location itself could name.
static rabbet_status_t onnx_check_links(const rabbet_onnx_storage_t* storage,
                                        const char* path,
                                        const char* location) {
  char* real = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_path_resolve(path, storage->allocator, &real));
  bool inside = false;
  for (size_t i = 0; i < 2; ++i) {
    const char* folder = storage->real_folders[i];
    inside |= folder && rabbet_path_is_below(real, folder);
  }
  rabbet_status_t status =
      inside ? rabbet_ok()
             : RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                             "external data's location '%s' is a link to '%s', "
                             "outside the model's folder '%s'; copy the file "
                             "there",
                             location, real, storage->folder);
  rabbet_free(storage->allocator, real);
  return status;
}

static rabbet_status_t onnx_map_external(rabbet_onnx_storage_t* storage,
                                         const char* location,
                                         rabbet_file_map_t** out_map) {
  rabbet_allocator_t allocator = storage->allocator;
  assert(storage->external.count == storage->external_names.count);
  for (size_t i = 0; i < storage->external.count; ++i) {
    if (!strcmp(storage->external_names.data[i], location)) {
      *out_map = storage->external.data[i];
      return rabbet_ok();
    }
  }
  // Room first, so that nothing can fail once the file is mapped.
  RABBET_RETURN_IF_ERROR(RABBET_VEC_RESERVE(allocator, &storage->external, 1));
  RABBET_RETURN_IF_ERROR(
      RABBET_VEC_RESERVE(allocator, &storage->external_names, 1));
  size_t folder = strlen(storage->folder), name = strlen(location) + 1;
  char* path;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(allocator, folder + 1 + name, (void**)&path));
  memcpy(path, storage->folder, folder);
  path[folder] = '/';
  memcpy(path + folder + 1, location, name);
  rabbet_status_t status = onnx_check_links(storage, path, location);
  if (rabbet_is_ok(status))
    status = rabbet_file_map_create(path, allocator, out_map);
  if (rabbet_is_ok(status)) {
    memmove(path, location, name);
    storage->external.data[storage->external.count++] = *out_map;
    storage->external_names.data[storage->external_names.count++] = path;
    return rabbet_ok();
  }
  rabbet_free(allocator, path);
  return rabbet_status_annotate(
      status, "opening the external data '%s' that belongs to the model",
      location);
}

static rabbet_status_t onnx_external_bytes(rabbet_onnx_storage_t* storage,
                                           const Onnx__TensorProto* tensor,
                                           size_t expected,
                                           onnx_bytes_t* out_bytes) {
  onnx_external_t external;
  RABBET_RETURN_IF_ERROR(onnx_external_parse(tensor, &external));
  RABBET_RETURN_IF_ERROR(onnx_check_location(external.location));
  if (!storage->folder) {
    return RABBET_STATUS(
        RABBET_STATUS_FAILED_PRECONDITION,
        "its data is in the file '%s', but the model came from memory without "
        "a path; give the path, or external_data_dir",
        external.location);
  }
  rabbet_file_map_t* map = NULL;
  RABBET_RETURN_IF_ERROR(onnx_map_external(storage, external.location, &map));
  uint64_t length = external.has_length ? external.length : expected;
  uint64_t file_size = rabbet_file_map_size(map);
  if (external.offset > file_size || length > file_size - external.offset) {
    return RABBET_STATUS(
        RABBET_STATUS_DATA_LOSS,
        "its data is %llu bytes at offset %llu of '%s', which has only %llu "
        "bytes",
        (unsigned long long)length, (unsigned long long)external.offset,
        external.location, (unsigned long long)file_size);
  }
  *out_bytes = (onnx_bytes_t){rabbet_file_map_data(map) + external.offset,
                              (size_t)length};
  return rabbet_ok();
}

// ---- Raw data --------------------------------------------------------------

static bool onnx_has_odd_bool(const uint8_t* data, int64_t count) {
  uint8_t all = 0;
  for (int64_t i = 0; i < count; ++i) {
    all |= data[i];
  }
  return all > 1;
}

static rabbet_status_t onnx_doubles_to_floats(rabbet_onnx_storage_t* storage,
                                              const uint8_t* data,
                                              int64_t count,
                                              const void** out_floats) {
  float* floats;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &storage->arena, (size_t)count, sizeof(float), (void**)&floats));
  for (int64_t i = 0; i < count; ++i) {
    double value;
    memcpy(&value, data + (size_t)i * sizeof(value), sizeof(value));
    floats[i] = (float)value;
  }
  *out_floats = floats;
  return rabbet_ok();
}

static bool onnx_is_held(const rabbet_onnx_type_t* type) {
  return type->holds != RABBET_ONNX_HOLDS_ITSELF;
}

// The `bits` bits at bit `at` of the data, which elements of less than a byte
// do not cross but for those of 6 bits.
static uint64_t onnx_load_bits(const uint8_t* data, size_t size, size_t at,
                               int bits) {
  uint64_t value = 0;
  size_t first = at / 8, bytes = (size_t)(bits + 7) / 8 + (at % 8 != 0);
  if (bytes > size - first) bytes = size - first;
  memcpy(&value, data + first, bytes);
  value >>= at % 8;
  return bits < 64 ? value & ((UINT64_C(1) << bits) - 1) : value;
}

// Stores an element that has these bits; false for a number that its type in
// networks has no room for.
static bool onnx_store_held(const rabbet_onnx_type_t* type, uint64_t bits,
                            void* out, int64_t at) {
  if (type->holds == RABBET_ONNX_HOLDS_REAL) {
    rabbet_store_double(type->dtype, out, at,
                        rabbet_onnx_real_value(type, (uint32_t)bits));
    return true;
  }
  uint64_t sign = UINT64_C(1) << (type->bits - 1);
  bool is_negative =
      type->holds == RABBET_ONNX_HOLDS_SIGNED && (bits & sign) != 0;
  rabbet_store_int64(type->dtype, out, at,
                     (int64_t)bits - (is_negative ? 2 * (int64_t)sign : 0));
  return bits <= INT64_MAX;
}

// `stride` bits lie between the beginnings of two elements.
static rabbet_status_t onnx_use_held(rabbet_onnx_storage_t* storage,
                                     const rabbet_onnx_type_t* type,
                                     onnx_bytes_t bytes, int stride,
                                     int64_t count, const void** out_data) {
  void* held;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &storage->arena, (size_t)count,
      (size_t)rabbet_dtype_bits(type->dtype) / 8, &held));
  for (int64_t i = 0; i < count; ++i) {
    uint64_t bits = onnx_load_bits(bytes.data, bytes.size,
                                   (size_t)i * (size_t)stride, type->bits);
    if (!onnx_store_held(type, bits, held, i))
      return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                           "element %lld is %llu; numbers of UINT64 from 2^63 "
                           "on are not imported, as they become INT64",
                           (long long)i, (unsigned long long)bits);
  }
  *out_data = held;
  return rabbet_ok();
}

// Weights of a file are rarely aligned in it. Their copies lie in one block, of
// which only what is used takes memory.
static rabbet_status_t onnx_copy_raw(rabbet_onnx_storage_t* storage,
                                     onnx_bytes_t bytes, uint8_t** out_copy) {
  enum { ALIGNMENT = 64 };
  if (!storage->copies && storage->file &&
      storage->size >= 2 * RABBET_LARGE_PAGE) {
    RABBET_RETURN_IF_ERROR(
        rabbet_allocate_aligned(storage->allocator, storage->size,
                                RABBET_LARGE_PAGE, (void**)&storage->copies));
    storage->copies_size = storage->size;
    rabbet_use_large_pages(storage->copies, storage->size);
  }
  size_t begin = rabbet_align_up(storage->copies_used, ALIGNMENT);
  if (begin > storage->copies_size || bytes.size > storage->copies_size - begin)
    return rabbet_arena_copy(&storage->arena, bytes.data, bytes.size,
                             (void**)out_copy);
  *out_copy = storage->copies + begin;
  if (bytes.size > 0) memcpy(*out_copy, bytes.data, bytes.size);
  storage->copies_used = begin + bytes.size;
  return rabbet_ok();
}

static rabbet_status_t onnx_use_raw(rabbet_onnx_storage_t* storage,
                                    const rabbet_onnx_type_t* type,
                                    onnx_bytes_t bytes, int64_t count,
                                    const void** out_data) {
  if (type->dtype == RABBET_DTYPE_DOUBLE && !storage->keeps_double)
    return onnx_doubles_to_floats(storage, bytes.data, count, out_data);
  if (onnx_is_held(type))
    return onnx_use_held(storage, type, bytes, type->bits, count, out_data);
  size_t alignment = type->bits < 8 ? 1 : (size_t)type->bits / 8;
  bool odd_bool =
      type->dtype == RABBET_DTYPE_BOOL && onnx_has_odd_bool(bytes.data, count);
  if ((uintptr_t)bytes.data % alignment == 0 && !odd_bool) {
    *out_data = bytes.data;
    return rabbet_ok();
  }
  uint8_t* copy = NULL;
  RABBET_RETURN_IF_ERROR(onnx_copy_raw(storage, bytes, &copy));
  rabbet_file_map_drop(storage->file, bytes.data, bytes.size);
  for (int64_t i = 0; odd_bool && i < count; ++i) {
    copy[i] = copy[i] != 0;
  }
  *out_data = copy;
  return rabbet_ok();
}

// ---- Lists of numbers ------------------------------------------------------

static size_t onnx_list_count(const Onnx__TensorProto* tensor,
                              rabbet_onnx_list_kind_t list) {
  switch (list) {
    case RABBET_ONNX_LIST_FLOATS:
      return tensor->n_float_data;
    case RABBET_ONNX_LIST_INT32S:
      return tensor->n_int32_data;
    case RABBET_ONNX_LIST_INT64S:
      return tensor->n_int64_data;
    case RABBET_ONNX_LIST_UINT64S:
      return tensor->n_uint64_data;
    case RABBET_ONNX_LIST_DOUBLES:
      return tensor->n_double_data;
    case RABBET_ONNX_LIST_NONE:
      break;
  }
  return 0;
}

// Elements of 2 or 4 bits share the entries of a list, as they share bytes.
static bool onnx_packs_in_lists(const rabbet_onnx_type_t* type) {
  return type->bits < 6;
}

// Elements of int32_data are narrowed to the type's width; those under a byte
// come as whole bytes.
static void onnx_narrow(const int32_t* values, size_t count, int bits,
                        bool is_bool, uint8_t* out) {
  for (size_t i = 0; i < count; ++i) {
    uint32_t value = (uint32_t)values[i];
    if (is_bool) value = value != 0;
    uint16_t half = (uint16_t)value;
    if (bits == 32) memcpy(out + 4 * i, &value, 4);
    if (bits == 16) memcpy(out + 2 * i, &half, 2);
    if (bits <= 8) out[i] = (uint8_t)value;
  }
}

static rabbet_status_t onnx_use_list(rabbet_onnx_storage_t* storage,
                                     const rabbet_onnx_type_t* type,
                                     const Onnx__TensorProto* tensor,
                                     size_t bytes, int64_t elements,
                                     const void** out_data) {
  size_t count = onnx_list_count(tensor, type->list);
  if (type->dtype == RABBET_DTYPE_DOUBLE && !storage->keeps_double)
    return onnx_doubles_to_floats(storage, (const uint8_t*)tensor->double_data,
                                  (int64_t)count, out_data);
  uint8_t* data;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate(&storage->arena, bytes, (void**)&data));
  *out_data = data;
  if (count == 0) return rabbet_ok();
  if (type->list == RABBET_ONNX_LIST_UINT64S) {
    for (size_t i = 0; i < count; ++i)
      memcpy(data + i * bytes / count, &tensor->uint64_data[i], bytes / count);
  } else if (type->list == RABBET_ONNX_LIST_FLOATS) {
    memcpy(data, tensor->float_data, bytes);
  } else if (type->list == RABBET_ONNX_LIST_DOUBLES) {
    memcpy(data, tensor->double_data, bytes);
  } else if (type->list == RABBET_ONNX_LIST_INT64S) {
    memcpy(data, tensor->int64_data, bytes);
  } else {
    onnx_narrow(tensor->int32_data, count, type->bits,
                type->dtype == RABBET_DTYPE_BOOL, data);
  }
  if (!onnx_is_held(type)) return rabbet_ok();
  const onnx_bytes_t held = {data, bytes};
  int stride =
      onnx_packs_in_lists(type) ? type->bits : (int)(8 * bytes / count);
  return onnx_use_held(storage, type, held, stride, elements, out_data);
}

// ---- The whole -------------------------------------------------------------

static rabbet_status_t onnx_tensor_dims(const Onnx__TensorProto* tensor,
                                        rabbet_dims_t* out_dims,
                                        int64_t* out_count) {
  if (tensor->n_dims > RABBET_MAX_RANK) {
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "it has %zu dimensions; at most %d are possible",
                         tensor->n_dims, RABBET_MAX_RANK);
  }
  *out_dims = (rabbet_dims_t){.rank = (int32_t)tensor->n_dims};
  for (size_t i = 0; i < tensor->n_dims; ++i) {
    out_dims->d[i] = tensor->dims[i];
  }
  return rabbet_dims_count(out_dims, out_count);
}

static rabbet_status_t onnx_expected_bytes(const rabbet_onnx_type_t* type,
                                           int64_t count, size_t* out_bytes) {
  int64_t bits;
  if (!rabbet_checked_mul(count, (int64_t)type->bits, &bits) ||
      bits > INT64_MAX - 7) {
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                         "it has %lld elements, too many to address",
                         (long long)count);
  }
  *out_bytes = (size_t)(bits + 7) / 8;
  return rabbet_ok();
}

static rabbet_status_t onnx_check_size(const char* unit, size_t found,
                                       size_t expected) {
  if (found == expected) return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_DATA_LOSS,
                       "its dimensions and type need %zu %s, but it holds %zu",
                       expected, unit, found);
}

static const rabbet_onnx_initializer_t* onnx_find_given(
    const rabbet_onnx_storage_t* storage, const char* name) {
  for (size_t i = 0; name && i < storage->given_count; ++i)
    if (!strcmp(storage->given[i].name, name)) return &storage->given[i];
  return NULL;
}

static rabbet_status_t onnx_tensor_data(rabbet_onnx_storage_t* storage,
                                        const rabbet_onnx_type_t* type,
                                        const Onnx__TensorProto* tensor,
                                        int64_t count, const void** out_data) {
  size_t expected = 0;
  RABBET_RETURN_IF_ERROR(onnx_expected_bytes(type, count, &expected));
  onnx_bytes_t bytes = {tensor->raw_data.data, tensor->raw_data.len};
  bool raw = tensor->has_raw_data;
  const rabbet_onnx_initializer_t* given =
      onnx_find_given(storage, tensor->name);
  if (given) {
    bytes = (onnx_bytes_t){given->data, given->size};
    raw = true;
  } else if (tensor->data_location ==
             ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL) {
    RABBET_RETURN_IF_ERROR(
        onnx_external_bytes(storage, tensor, expected, &bytes));
    raw = true;
  } else if (onnx_raw_reference(storage, tensor, &bytes)) {
    raw = true;
  }
  if (raw) {
    RABBET_RETURN_IF_ERROR(onnx_check_size("bytes", bytes.size, expected));
    // Inline raw data lies in the messages, which go before the weights do.
    if (bytes.data == tensor->raw_data.data && bytes.size) {
      void* copy;
      RABBET_RETURN_IF_ERROR(
          rabbet_arena_copy(&storage->arena, bytes.data, bytes.size, &copy));
      bytes.data = copy;
    }
    return onnx_use_raw(storage, type, bytes, count, out_data);
  }
  size_t entries = onnx_packs_in_lists(type) ? expected : (size_t)count;
  if (type->bits == 6) expected = entries;
  RABBET_RETURN_IF_ERROR(onnx_check_size(
      "elements", onnx_list_count(tensor, type->list), entries));
  return onnx_use_list(storage, type, tensor, expected, count, out_data);
}

static rabbet_status_t onnx_tensor_read_named(
    rabbet_onnx_storage_t* storage, rabbet_logger_t logger,
    const Onnx__TensorProto* tensor, rabbet_onnx_constant_t* out_constant) {
  if (tensor->segment) {
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "it is stored in segments, which no writer does");
  }
  bool narrowed = false;
  rabbet_dtype_t dtype;
  RABBET_RETURN_IF_ERROR(
      rabbet_onnx_dtype(storage, tensor->data_type, &dtype, &narrowed));
  int64_t count;
  RABBET_RETURN_IF_ERROR(onnx_tensor_dims(tensor, &out_constant->dims, &count));
  out_constant->weights =
      (rabbet_weights_t){.dtype = dtype, .data = NULL, .count = count};
  RABBET_RETURN_IF_ERROR(
      onnx_tensor_data(storage, rabbet_onnx_type(tensor->data_type), tensor,
                       count, &out_constant->weights.data));
  if (narrowed) {
    rabbet_log(logger, RABBET_SEVERITY_WARNING,
               "tensor '%s' is DOUBLE and is rounded to FLOAT",
               tensor->name ? tensor->name : "");
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_onnx_tensor_read(rabbet_onnx_storage_t* storage,
                                        rabbet_logger_t logger,
                                        const Onnx__TensorProto* tensor,
                                        rabbet_onnx_constant_t* out_constant) {
  *out_constant = (rabbet_onnx_constant_t){0};
  rabbet_status_t status =
      onnx_tensor_read_named(storage, logger, tensor, out_constant);
  return RABBET_ANNOTATE(status, "tensor '%s'",
                         tensor->name ? tensor->name : "");
}
