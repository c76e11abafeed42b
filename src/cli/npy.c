#include "cli/npy.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/file.h"

// ---- Types -----------------------------------------------------------------

typedef struct npy_type_t {
  rabbet_dtype_t dtype;
  const char* descr;  // without the byte order
} npy_type_t;

// The first entry of a dtype is the one for writing. Types that NumPy lacks are
// written as their bits.
static const npy_type_t npy_types[] = {
    {RABBET_DTYPE_FLOAT, "f4"},  {RABBET_DTYPE_HALF, "f2"},
    {RABBET_DTYPE_INT8, "i1"},   {RABBET_DTYPE_INT32, "i4"},
    {RABBET_DTYPE_BOOL, "b1"},   {RABBET_DTYPE_UINT8, "u1"},
    {RABBET_DTYPE_INT64, "i8"},  {RABBET_DTYPE_BF16, "u2"},
    {RABBET_DTYPE_FP8, "u1"},    {RABBET_DTYPE_INT4, "u1"},
    {RABBET_DTYPE_FP4, "u1"},    {RABBET_DTYPE_E8M0, "u1"},
    {RABBET_DTYPE_DOUBLE, "f8"}, {RABBET_DTYPE_NF4, "u1"},
};
enum { NPY_TYPE_COUNT = sizeof(npy_types) / sizeof(npy_types[0]) };

static const char* npy_descr(rabbet_dtype_t dtype) {
  for (int i = 0; i < NPY_TYPE_COUNT; ++i) {
    if (npy_types[i].dtype == dtype) return npy_types[i].descr;
  }
  return "u1";
}

// ---- Reading an .npy -------------------------------------------------------

// Value of a key in the header's dictionary: the text behind "'key':".
static const char* npy_field(const char* header, const char* key) {
  char quoted[32];
  snprintf(quoted, sizeof(quoted), "'%s'", key);
  const char* at = strstr(header, quoted);
  if (!at) return NULL;
  at += strlen(quoted);
  while (*at == ' ' || *at == ':')
    ++at;
  return at;
}

static rabbet_status_t npy_dtype(const char* descr, rabbet_dtype_t* out_dtype) {
  const char* type = *descr == '\'' ? descr + 1 : descr;
  if (*type == '>') {
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "big-endian elements; save with dtype.newbyteorder"
                         "('<')");
  }
  if (*type == '<' || *type == '|' || *type == '=') ++type;
  for (int i = 0; i < NPY_TYPE_COUNT; ++i) {
    size_t size = strlen(npy_types[i].descr);
    if (strncmp(type, npy_types[i].descr, size) == 0 && type[size] == '\'') {
      *out_dtype = npy_types[i].dtype;
      return rabbet_ok();
    }
  }
  const char* end = *descr ? strchr(descr + 1, *descr) : NULL;
  int size = end && end - descr < 16 ? (int)(end - descr) + 1 : 16;
  return RABBET_STATUS(
      RABBET_STATUS_UNSUPPORTED,
      "elements of type %.*s; expected f4, f2, f8, i1, i4, i8, "
      "u1, u2 (bfloat16) or b1",
      size, descr);
}

static rabbet_status_t npy_dims(const char* text, rabbet_dims_t* out) {
  *out = (rabbet_dims_t){0};
  if (*text++ != '(') {
    return RABBET_STATUS(RABBET_STATUS_DATA_LOSS, "the shape is not a tuple");
  }
  for (;;) {
    while (*text == ' ' || *text == ',')
      ++text;
    if (*text == ')') return rabbet_ok();
    if (!isdigit((unsigned char)*text)) {
      return RABBET_STATUS(RABBET_STATUS_DATA_LOSS, "the shape is not a tuple");
    }
    if (out->rank == RABBET_MAX_RANK) {
      return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED, "more than %d dimensions",
                           RABBET_MAX_RANK);
    }
    char* end = NULL;
    out->d[out->rank++] = strtoll(text, &end, 10);
    text = end;
  }
}

static rabbet_status_t npy_header(const char* header, rabbet_array_t* out) {
  const char* descr = npy_field(header, "descr");
  const char* order = npy_field(header, "fortran_order");
  const char* shape = npy_field(header, "shape");
  if (!descr || !order || !shape) {
    return RABBET_STATUS(RABBET_STATUS_DATA_LOSS,
                         "the header lacks descr, fortran_order or shape");
  }
  RABBET_RETURN_IF_ERROR(npy_dtype(descr, &out->dtype));
  RABBET_RETURN_IF_ERROR(npy_dims(shape, &out->dims));
  if (strncmp(order, "True", 4) == 0 && out->dims.rank > 1) {
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "column-major order; save numpy.ascontiguousarray(x)");
  }
  return rabbet_ok();
}

// A tensor's header has some hundred bytes.
enum { MAX_HEADER = 1 << 20 };

static rabbet_status_t npy_parse(const uint8_t* data, size_t size,
                                 rabbet_arena_t* arena, rabbet_array_t* out) {
  if (size < 12 || memcmp(data, "\x93NUMPY", 6) != 0) {
    return RABBET_STATUS(RABBET_STATUS_DATA_LOSS, "it is not a .npy array");
  }
  if (data[6] < 1 || data[6] > 3) {
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "version %d of the .npy format; 1 to 3 are known",
                         data[6]);
  }
  size_t start = data[6] == 1 ? 10 : 12;
  size_t length = data[8] | (size_t)data[9] << 8;
  if (data[6] > 1) length |= (size_t)data[10] << 16 | (size_t)data[11] << 24;
  if (length > size - start || length > MAX_HEADER) {
    return RABBET_STATUS(RABBET_STATUS_DATA_LOSS,
                         "the header is cut off or too long");
  }
  const char* header = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_printf(
      arena, &header, "%.*s", (int)length, (const char*)data + start));
  RABBET_RETURN_IF_ERROR(npy_header(header, out));
  RABBET_RETURN_IF_ERROR(rabbet_tensor_bytes(out->dtype, RABBET_FORMAT_LINEAR,
                                             &out->dims, &out->bytes));
  if (size - start - length < out->bytes) {
    return RABBET_STATUS(RABBET_STATUS_DATA_LOSS,
                         "%zu bytes of elements, expected %zu",
                         size - start - length, out->bytes);
  }
  void* copy = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_copy(arena, data + start + length, out->bytes, &copy));
  out->data = copy;
  return rabbet_ok();
}

// ---- Reading an .npz (a ZIP archive) ---------------------------------------

static uint32_t read32(const uint8_t* at) {
  return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 |
         (uint32_t)at[3] << 24;
}
static uint32_t read16(const uint8_t* at) {
  return at[0] | (uint32_t)at[1] << 8;
}
static uint64_t read64(const uint8_t* at) {
  return read32(at) | (uint64_t)read32(at + 4) << 32;
}

typedef struct zip_entry_t {
  const char* name;
  uint32_t method, crc;
  uint64_t packed, size, offset;
} zip_entry_t;

static rabbet_status_t zip_damaged(const char* what) {
  return RABBET_STATUS(RABBET_STATUS_DATA_LOSS, "the archive is damaged: %s",
                       what);
}

// Reads one record of the central directory; *at moves on.
static rabbet_status_t zip_record(const uint8_t* data, size_t size, size_t* at,
                                  rabbet_arena_t* arena, zip_entry_t* out) {
  if (size - *at < 46 || read32(data + *at) != 0x02014b50) {
    return zip_damaged("its directory is cut off");
  }
  const uint8_t* record = data + *at;
  size_t name = read16(record + 28), extra = read16(record + 30);
  size_t total = 46 + name + extra + read16(record + 32);
  if (size - *at < total) return zip_damaged("a record is cut off");
  out->method = read16(record + 10);
  out->crc = read32(record + 16);
  out->packed = read32(record + 20);
  out->size = read32(record + 24);
  out->offset = read32(record + 42);
  // ZIP64: the fields that are all ones follow in the extra data, in order.
  const uint8_t* more = record + 46 + name;
  if (extra >= 4 && read16(more) == 1) {
    uint64_t* fields[] = {&out->size, &out->packed, &out->offset};
    size_t used = 4;
    for (int i = 0; i < 3; ++i) {
      if (*fields[i] != UINT32_MAX) continue;
      if (used + 8 > extra) return zip_damaged("a size is cut off");
      *fields[i] = read64(more + used);
      used += 8;
    }
  }
  *at += total;
  return rabbet_arena_printf(arena, &out->name, "%.*s", (int)name,
                             (const char*)record + 46);
}

static rabbet_status_t zip_inflate(const uint8_t* packed,
                                   const zip_entry_t* entry, uint8_t* out) {
  z_stream stream = {.next_in = (Bytef*)packed,
                     .avail_in = (uInt)entry->packed,
                     .next_out = out,
                     .avail_out = (uInt)entry->size};
  if (entry->packed > UINT32_MAX || entry->size > UINT32_MAX) {
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "a compressed array over 4 GB");
  }
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) {
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_MEMORY, "inflating");
  }
  int result = inflate(&stream, Z_FINISH);
  bool complete = result == Z_STREAM_END && stream.total_out == entry->size;
  inflateEnd(&stream);
  return complete ? rabbet_ok()
                  : zip_damaged("its compressed data are damaged");
}

static rabbet_status_t zip_extract(const uint8_t* data, size_t size,
                                   const zip_entry_t* entry,
                                   rabbet_arena_t* arena,
                                   const uint8_t** out_bytes) {
  if (entry->offset > size || size - entry->offset < 30) {
    return zip_damaged("an entry lies outside");
  }
  const uint8_t* local = data + entry->offset;
  if (read32(local) != 0x04034b50) {
    return zip_damaged("an entry does not begin where it should");
  }
  size_t start = 30 + read16(local + 26) + read16(local + 28);
  size_t left = size - entry->offset;
  if (left < start || left - start < entry->packed) {
    return zip_damaged("an entry is cut off");
  }
  if (entry->method == 0 && entry->packed == entry->size) {
    *out_bytes = local + start;
  } else if (entry->method == Z_DEFLATED) {
    // Deflate cannot expand more than 1032 times: bounds the memory that a
    // damaged size makes us allocate.
    if (entry->size / 1032 > entry->packed) {
      return zip_damaged("an entry's size is impossible");
    }
    void* bytes = NULL;
    RABBET_RETURN_IF_ERROR(rabbet_arena_allocate(arena, entry->size, &bytes));
    RABBET_RETURN_IF_ERROR(zip_inflate(local + start, entry, bytes));
    *out_bytes = bytes;
  } else {
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "entry '%s' is packed by method %u", entry->name,
                         entry->method);
  }
  if (crc32_z(0, *out_bytes, entry->size) != entry->crc) {
    return zip_damaged("a checksum is wrong");
  }
  return rabbet_ok();
}

// *left is the number of bytes of the file that further entries may use:
// entries that share their bytes could stand for any amount of memory.
static rabbet_status_t npz_entry(const uint8_t* data, size_t size, size_t* at,
                                 uint64_t* left, rabbet_arena_t* arena,
                                 rabbet_array_t* out) {
  zip_entry_t entry;
  const uint8_t* bytes = NULL;
  RABBET_RETURN_IF_ERROR(zip_record(data, size, at, arena, &entry));
  if (entry.packed > *left) return zip_damaged("its entries overlap");
  *left -= entry.packed;
  rabbet_status_t status = zip_extract(data, size, &entry, arena, &bytes);
  if (rabbet_is_ok(status)) {
    status = npy_parse(bytes, entry.size, arena, out);
  }
  size_t length = strlen(entry.name);
  if (length > 4 && strcmp(entry.name + length - 4, ".npy") == 0) length -= 4;
  if (rabbet_is_ok(status)) {
    status =
        rabbet_arena_printf(arena, &out->name, "%.*s", (int)length, entry.name);
  }
  return RABBET_ANNOTATE(status, "array '%s'", entry.name);
}

// Position and size of the directory.
typedef struct zip_directory_t {
  uint64_t count, size, offset;
} zip_directory_t;

// The ZIP64 end record, where the fields of the plain one at `end` are too
// small; its place is told by a locator of 20 bytes before that.
static rabbet_status_t zip64_directory(const uint8_t* data, size_t end,
                                       zip_directory_t* out) {
  if (end < 20 || read32(data + end - 20) != 0x07064b50) {
    return zip_damaged("its ZIP64 locator is missing");
  }
  uint64_t at = read64(data + end - 12);
  if (at > end || end - at < 56 || read32(data + at) != 0x06064b50) {
    return zip_damaged("its ZIP64 end record is missing");
  }
  out->count = read64(data + at + 32);
  out->size = read64(data + at + 40);
  out->offset = read64(data + at + 48);
  return rabbet_ok();
}

static rabbet_status_t zip_find_directory(const uint8_t* data, size_t size,
                                          zip_directory_t* out) {
  // The end record is the last 22 bytes unless a comment follows it.
  size_t end = size >= 22 ? size - 22 : 0;
  size_t lowest = end > 65535 ? end - 65535 : 0;
  while (size >= 22 && end > lowest && read32(data + end) != 0x06054b50) {
    --end;
  }
  if (size < 22 || read32(data + end) != 0x06054b50) {
    return zip_damaged("it has no end record");
  }
  out->count = read16(data + end + 10);
  out->size = read32(data + end + 12);
  out->offset = read32(data + end + 16);
  if (out->count == UINT16_MAX || out->size == UINT32_MAX ||
      out->offset == UINT32_MAX) {
    RABBET_RETURN_IF_ERROR(zip64_directory(data, end, out));
  }
  // A record has at least 46 bytes, which bounds the memory that a damaged
  // count makes us allocate.
  if (out->offset > end || end - out->offset < out->size ||
      out->size / 46 < out->count) {
    return zip_damaged("its directory lies outside");
  }
  return rabbet_ok();
}

static rabbet_status_t npz_parse(const uint8_t* data, size_t size,
                                 rabbet_arena_t* arena,
                                 rabbet_array_t** out_arrays,
                                 size_t* out_count) {
  zip_directory_t directory = {0};
  RABBET_RETURN_IF_ERROR(zip_find_directory(data, size, &directory));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, directory.count, sizeof(**out_arrays), (void**)out_arrays));
  size_t at = directory.offset;
  uint64_t left = size;
  for (uint64_t i = 0; i < directory.count; ++i) {
    RABBET_RETURN_IF_ERROR(
        npz_entry(data, size, &at, &left, arena, &(*out_arrays)[i]));
  }
  if (at != directory.offset + directory.size) {
    return zip_damaged("its directory holds more than it says");
  }
  *out_count = directory.count;
  return rabbet_ok();
}

rabbet_status_t rabbet_npy_read(const char* path, rabbet_arena_t* arena,
                                rabbet_array_t** out_arrays,
                                size_t* out_count) {
  *out_arrays = NULL;
  *out_count = 0;
  rabbet_file_map_t* map = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_file_map_create(path, arena->allocator, &map));
  const uint8_t* data = rabbet_file_map_data(map);
  size_t size = rabbet_file_map_size(map);
  rabbet_status_t status;
  if (size >= 4 && memcmp(data, "PK", 2) == 0) {
    status = npz_parse(data, size, arena, out_arrays, out_count);
  } else {
    status =
        rabbet_arena_allocate(arena, sizeof(**out_arrays), (void**)out_arrays);
    if (rabbet_is_ok(status)) {
      (*out_arrays)->name = "";
      status = npy_parse(data, size, arena, *out_arrays);
      *out_count = 1;
    }
  }
  rabbet_file_map_release(map);
  return RABBET_ANNOTATE(status, "reading '%s'", path);
}

// ---- Writing an .npz -------------------------------------------------------

static void npy_write(rabbet_strbuf_t* buffer, uint64_t value, int bytes) {
  uint8_t little[8];
  for (int i = 0; i < bytes; ++i)
    little[i] = (uint8_t)(value >> (8 * i));
  rabbet_strbuf_append(buffer, little, (size_t)bytes);
}

// The .npy header, padded so that elements start at a multiple of 64.
static void npy_write_header(const rabbet_array_t* array,
                             rabbet_strbuf_t* out) {
  char shape[RABBET_MAX_RANK * 24 + 8] = "(";
  size_t used = 1;
  for (int32_t i = 0; i < array->dims.rank; ++i) {
    used += (size_t)snprintf(shape + used, sizeof(shape) - used, "%lld, ",
                             (long long)array->dims.d[i]);
  }
  const char* descr = npy_descr(array->dtype);
  char text[RABBET_MAX_RANK * 24 + 128];
  int length = snprintf(text, sizeof(text),
                        "{'descr': '%c%s', 'fortran_order': False, 'shape': "
                        "%s), }",
                        descr[1] == '1' ? '|' : '<', descr, shape);
  int padded = (10 + length + 1 + 63) / 64 * 64 - 10;
  rabbet_strbuf_append(out, "\x93NUMPY\x01\x00", 8);
  npy_write(out, (uint64_t)padded, 2);
  rabbet_strbuf_append(out, text, (size_t)length);
  for (int i = length; i < padded - 1; ++i)
    rabbet_strbuf_append(out, " ", 1);
  rabbet_strbuf_append(out, "\n", 1);
}

// Fields that the local header and the directory share. Sizes are in a ZIP64
// extra field always: simple, and good for arrays of any size.
static void zip_common(rabbet_strbuf_t* out, uint32_t crc, const char* name,
                       size_t extra) {
  npy_write(out, 45, 2);  // version needed
  npy_write(out, 0, 2);
  npy_write(out, 0, 2);       // stored
  npy_write(out, 0, 2);       // time
  npy_write(out, 0x0021, 2);  // 1980-01-01: equal arrays, equal bytes
  npy_write(out, crc, 4);
  npy_write(out, UINT32_MAX, 4);
  npy_write(out, UINT32_MAX, 4);
  npy_write(out, strlen(name) + 4, 2);
  npy_write(out, extra, 2);
}

static void npz_write_entry(const rabbet_array_t* array, rabbet_strbuf_t* out,
                            rabbet_strbuf_t* directory) {
  rabbet_strbuf_t header;
  rabbet_strbuf_initialize(out->allocator, &header);
  npy_write_header(array, &header);
  if (header.failed) out->failed = true;
  uint32_t crc = (uint32_t)crc32_z(0, (const Bytef*)header.data, header.size);
  crc = (uint32_t)crc32_z(crc, array->data, array->bytes);
  uint64_t size = header.size + array->bytes, offset = out->size;

  npy_write(out, 0x04034b50, 4);
  zip_common(out, crc, array->name, 20);
  rabbet_strbuf_printf(out, "%s.npy", array->name);
  npy_write(out, 1, 2);
  npy_write(out, 16, 2);
  npy_write(out, size, 8);
  npy_write(out, size, 8);
  rabbet_strbuf_append(out, header.data, header.size);
  rabbet_strbuf_append(out, array->data, array->bytes);

  npy_write(directory, 0x02014b50, 4);
  npy_write(directory, 45, 2);
  zip_common(directory, crc, array->name, 28);
  npy_write(directory, 0, 2);
  npy_write(directory, 0, 2);
  npy_write(directory, 0, 2);
  npy_write(directory, 0, 4);
  npy_write(directory, UINT32_MAX, 4);
  rabbet_strbuf_printf(directory, "%s.npy", array->name);
  npy_write(directory, 1, 2);
  npy_write(directory, 24, 2);
  npy_write(directory, size, 8);
  npy_write(directory, size, 8);
  npy_write(directory, offset, 8);
  rabbet_strbuf_deinitialize(&header);
}

static void zip_end(rabbet_strbuf_t* out, size_t count, size_t size,
                    uint64_t offset) {
  uint64_t record = out->size;
  npy_write(out, 0x06064b50, 4);  // ZIP64 end record and its locator
  npy_write(out, 44, 8);
  npy_write(out, 45, 2);
  npy_write(out, 45, 2);
  npy_write(out, 0, 8);
  npy_write(out, count, 8);
  npy_write(out, count, 8);
  npy_write(out, size, 8);
  npy_write(out, offset, 8);
  npy_write(out, 0x07064b50, 4);
  npy_write(out, 0, 4);
  npy_write(out, record, 8);
  npy_write(out, 1, 4);
  npy_write(out, 0x06054b50, 4);
  npy_write(out, 0, 4);
  npy_write(out, count > UINT16_MAX ? UINT16_MAX : count, 2);
  npy_write(out, count > UINT16_MAX ? UINT16_MAX : count, 2);
  npy_write(out, size > UINT32_MAX ? UINT32_MAX : size, 4);
  npy_write(out, offset > UINT32_MAX ? UINT32_MAX : offset, 4);
  npy_write(out, 0, 2);
}

rabbet_status_t rabbet_npz_write(const char* path, const rabbet_array_t* arrays,
                                 size_t count, rabbet_allocator_t allocator) {
  rabbet_strbuf_t out, directory;
  rabbet_strbuf_initialize(allocator, &out);
  rabbet_strbuf_initialize(allocator, &directory);
  for (size_t i = 0; i < count; ++i) {
    npz_write_entry(&arrays[i], &out, &directory);
  }
  uint64_t offset = out.size;
  rabbet_strbuf_append(&out, directory.data, directory.size);
  zip_end(&out, count, directory.size, offset);
  rabbet_status_t status = rabbet_strbuf_status(&out);
  if (rabbet_is_ok(status)) status = rabbet_strbuf_status(&directory);
  if (rabbet_is_ok(status)) {
    rabbet_span_t part = {out.data, out.size};
    status = rabbet_file_write(path, &part, 1);
  }
  rabbet_strbuf_deinitialize(&out);
  rabbet_strbuf_deinitialize(&directory);
  return status;
}
