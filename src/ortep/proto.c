#include "ortep/proto.h"

#include <string.h>

// How a field's content is encoded.
enum { PROTO_VARINT = 0, PROTO_SIZED = 2, PROTO_32_BITS = 5 };
// Bytes of a size that is written once the content is there: a varint may have
// more bytes than it needs.
enum { PROTO_SIZE_BYTES = 5 };

static void proto_varint(rabbet_strbuf_t* out, uint64_t value) {
  uint8_t bytes[10];
  size_t count = 0;
  do {
    bytes[count] = (uint8_t)(value & 0x7f);
    value >>= 7;
    if (value) bytes[count] |= 0x80;
    ++count;
  } while (value);
  rabbet_strbuf_append(out, bytes, count);
}

static void proto_key(rabbet_strbuf_t* out, uint32_t field, uint32_t kind) {
  proto_varint(out, (uint64_t)field << 3 | kind);
}

void rabbet_proto_int(rabbet_strbuf_t* out, uint32_t field, int64_t value) {
  proto_key(out, field, PROTO_VARINT);
  proto_varint(out, (uint64_t)value);
}

void rabbet_proto_float(rabbet_strbuf_t* out, uint32_t field, float value) {
  proto_key(out, field, PROTO_32_BITS);
  rabbet_strbuf_append(out, &value, sizeof(value));
}

void rabbet_proto_bytes(rabbet_strbuf_t* out, uint32_t field, const void* data,
                        size_t size) {
  proto_key(out, field, PROTO_SIZED);
  proto_varint(out, size);
  if (size) rabbet_strbuf_append(out, data, size);
}

void rabbet_proto_text(rabbet_strbuf_t* out, uint32_t field, const char* text) {
  rabbet_proto_bytes(out, field, text, strlen(text));
}

size_t rabbet_proto_begin(rabbet_strbuf_t* out, uint32_t field) {
  static const uint8_t later[PROTO_SIZE_BYTES] = {0};
  proto_key(out, field, PROTO_SIZED);
  rabbet_strbuf_append(out, later, sizeof(later));
  return out->size;
}

void rabbet_proto_end(rabbet_strbuf_t* out, size_t begin) {
  if (out->failed) return;
  uint64_t size = out->size - begin;
  uint8_t* bytes = (uint8_t*)out->data + begin - PROTO_SIZE_BYTES;
  for (int i = 0; i < PROTO_SIZE_BYTES; ++i, size >>= 7)
    bytes[i] = (uint8_t)((size & 0x7f) | (i + 1 < PROTO_SIZE_BYTES ? 0x80 : 0));
}
