#include "onnx/file/scan.h"

#include <assert.h>
#include <string.h>

#include "base/text.h"
#include "onnx-ml.pb-c.h"

// A message that is being walked.
typedef struct onnx_frame_t {
  const ProtobufCMessageDescriptor* type;
  size_t end;        // in the input
  size_t length_at;  // of its length prefix in the output
  uint64_t seen;     // bit i: field i of the descriptor occurred
} onnx_frame_t;

typedef struct onnx_scanner_t {
  const uint8_t* data;
  size_t at;
  size_t field_at;  // where the current field begins, for messages
  rabbet_strbuf_t* slim;
  int depth;
  onnx_frame_t frames[RABBET_ONNX_MAX_DEPTH];
} onnx_scanner_t;

enum {
  // Bytes of a length prefix in the output: patched when its message ends, so
  // always this wide (longer than needed is legal).
  RABBET_ONNX_LENGTH_BYTES = 5,
};
// protobuf itself reads no message of 2 GiB.
static const size_t onnx_max_slim = (size_t)INT32_MAX;

// Never read by the importer, in any message.
static const char* const onnx_ignored[] = {
    "configuration",           "device_configurations", "doc_string",
    "metadata_props",          "training_info",         "value_info",
    "quantization_annotation",
};

static bool onnx_is_ignored(const char* name) {
  size_t count = sizeof(onnx_ignored) / sizeof(onnx_ignored[0]);
  for (size_t i = 0; i < count; ++i) {
    if (!strcmp(onnx_ignored[i], name)) return true;
  }
  return false;
}

static rabbet_status_t onnx_damaged(const onnx_scanner_t* scanner,
                                    const char* field, const char* what) {
  const onnx_frame_t* frame = &scanner->frames[scanner->depth - 1];
  return RABBET_STATUS(
      RABBET_STATUS_DATA_LOSS,
      "the bytes are not an ONNX model: %s%s%s at offset %zu %s",
      frame->type->short_name, field ? "." : "", field ? field : "",
      scanner->field_at, what);
}

static rabbet_status_t onnx_varint(onnx_scanner_t* scanner,
                                   uint64_t* out_value) {
  size_t end = scanner->frames[scanner->depth - 1].end;
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (scanner->at == end) {
      return onnx_damaged(scanner, NULL, "ends within a number");
    }
    uint8_t byte = scanner->data[scanner->at++];
    value |= (uint64_t)(byte & 0x7f) << shift;
    if (!(byte & 0x80)) {
      *out_value = value;
      return rabbet_ok();
    }
  }
  return onnx_damaged(scanner, NULL, "holds a number of over 64 bits");
}

static void onnx_put_varint(rabbet_strbuf_t* slim, uint64_t value) {
  uint8_t bytes[10];
  size_t count = 0;
  do {
    bytes[count] = (uint8_t)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
    ++count;
    value >>= 7;
  } while (value);
  rabbet_strbuf_append(slim, bytes, count);
}

// Index in the descriptor's fields, or -1.
static int onnx_field_index(const ProtobufCMessageDescriptor* type,
                            uint64_t number) {
  unsigned low = 0, high = type->n_fields;  // sorted by number
  while (low < high) {
    unsigned middle = (low + high) / 2;
    if (type->fields[middle].id < number) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  bool found = low < type->n_fields && type->fields[low].id == number;
  return found ? (int)low : -1;
}

static unsigned onnx_wire_type(ProtobufCType type) {
  switch (type) {
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
    case PROTOBUF_C_TYPE_MESSAGE:
      return PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED;
    case PROTOBUF_C_TYPE_FLOAT:
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_SFIXED32:
      return PROTOBUF_C_WIRE_TYPE_32BIT;
    case PROTOBUF_C_TYPE_DOUBLE:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_SFIXED64:
      return PROTOBUF_C_WIRE_TYPE_64BIT;
    default:
      return PROTOBUF_C_WIRE_TYPE_VARINT;
  }
}

static bool onnx_wire_fits(const ProtobufCFieldDescriptor* field,
                           unsigned wire) {
  unsigned expected = onnx_wire_type(field->type);
  bool packed = field->label == PROTOBUF_C_LABEL_REPEATED &&
                wire == PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED;
  return wire == expected || packed;
}

// The extent of the field's payload, whose length prefix (if any) was read.
static rabbet_status_t onnx_payload(onnx_scanner_t* scanner, unsigned wire,
                                    const char* name, size_t* out_size) {
  size_t begin = scanner->at;
  assert(begin <= scanner->frames[scanner->depth - 1].end);
  size_t left = scanner->frames[scanner->depth - 1].end - begin;
  uint64_t size = 0;
  switch (wire) {
    case PROTOBUF_C_WIRE_TYPE_VARINT: {
      uint64_t value;
      RABBET_RETURN_IF_ERROR(onnx_varint(scanner, &value));
      size = scanner->at - begin;
      scanner->at = begin;
      break;
    }
    case PROTOBUF_C_WIRE_TYPE_64BIT:
      size = 8;
      break;
    case PROTOBUF_C_WIRE_TYPE_32BIT:
      size = 4;
      break;
    case PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED:
      RABBET_RETURN_IF_ERROR(onnx_varint(scanner, &size));
      left = scanner->frames[scanner->depth - 1].end - scanner->at;
      break;
    default:
      return onnx_damaged(scanner, name, "has no legal wire type");
  }
  if (size > left) {
    return onnx_damaged(scanner, name,
                        "is longer than what holds it (a truncated file?)");
  }
  *out_size = (size_t)size;
  return rabbet_ok();
}

static rabbet_status_t onnx_enter(onnx_scanner_t* scanner,
                                  const ProtobufCFieldDescriptor* field,
                                  size_t size) {
  if (scanner->depth == RABBET_ONNX_MAX_DEPTH) {
    return RABBET_STATUS(
        RABBET_STATUS_UNSUPPORTED,
        "messages are nested more than %d deep at offset %zu (graphs within "
        "graphs, or types within types)",
        RABBET_ONNX_MAX_DEPTH, scanner->field_at);
  }
  onnx_put_varint(scanner->slim, (uint64_t)field->id << 3 |
                                     PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED);
  static const uint8_t room[RABBET_ONNX_LENGTH_BYTES] = {0};
  scanner->frames[scanner->depth++] = (onnx_frame_t){
      .type = field->descriptor,
      .end = scanner->at + size,
      .length_at = scanner->slim->size,
  };
  rabbet_strbuf_append(scanner->slim, room, sizeof(room));
  return rabbet_ok();
}

static void onnx_leave(onnx_scanner_t* scanner) {
  assert(scanner->depth > 0);
  assert(scanner->at == scanner->frames[scanner->depth - 1].end);
  const onnx_frame_t* frame = &scanner->frames[--scanner->depth];
  if (scanner->depth == 0 || scanner->slim->failed) return;
  size_t body = frame->length_at + RABBET_ONNX_LENGTH_BYTES;
  assert(body <= scanner->slim->size);
  uint64_t size = scanner->slim->size - body;
  assert(size >> (7 * RABBET_ONNX_LENGTH_BYTES) == 0);
  for (int i = 0; i < RABBET_ONNX_LENGTH_BYTES; ++i) {
    bool last = i == RABBET_ONNX_LENGTH_BYTES - 1;
    scanner->slim->data[frame->length_at + (size_t)i] =
        (char)((size >> (7 * i) & 0x7f) | (last ? 0 : 0x80));
  }
}

// A field that is no message: copied, or replaced by a reference.
static void onnx_copy(onnx_scanner_t* scanner,
                      const ProtobufCFieldDescriptor* field, unsigned wire,
                      size_t size) {
  rabbet_strbuf_t* slim = scanner->slim;
  const onnx_frame_t* frame = &scanner->frames[scanner->depth - 1];
  assert(size <= frame->end - scanner->at);
  bool reference = frame->type == &onnx__tensor_proto__descriptor &&
                   !strcmp(field->name, "raw_data") &&
                   size > RABBET_ONNX_INLINE_BYTES;
  uint64_t number = reference ? RABBET_ONNX_RAW_FIELD : field->id;
  onnx_put_varint(slim, number << 3 | wire);
  if (reference) {
    rabbet_onnx_raw_t raw = {.offset = scanner->at, .size = size};
    onnx_put_varint(slim, sizeof(raw));
    rabbet_strbuf_append(slim, &raw, sizeof(raw));
    return;
  }
  if (wire == PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED) {
    onnx_put_varint(slim, size);
  }
  rabbet_strbuf_append(slim, scanner->data + scanner->at, size);
}

// protobuf-c would merge or replace; no writer of ONNX does this.
static bool onnx_must_be_single(const ProtobufCFieldDescriptor* field) {
  return field->label != PROTOBUF_C_LABEL_REPEATED &&
         (field->type == PROTOBUF_C_TYPE_MESSAGE ||
          (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF));
}

// Names become those of layers and tensors, and a plan holds UTF-8 alone.
static rabbet_status_t onnx_check_text(const onnx_scanner_t* scanner,
                                       const char* field, size_t size) {
  const uint8_t* text = scanner->data + scanner->at;
  if (memchr(text, 0, size)) {
    return onnx_damaged(scanner, field, "holds a zero byte");
  }
  for (size_t at = 0, length; at < size; at += length) {
    length = rabbet_utf8_length_within(text + at, size - at);
    if (!length) return onnx_damaged(scanner, field, "is not UTF-8");
  }
  return rabbet_ok();
}

static rabbet_status_t onnx_scan_known(onnx_scanner_t* scanner, int index,
                                       unsigned wire) {
  onnx_frame_t* frame = &scanner->frames[scanner->depth - 1];
  const ProtobufCFieldDescriptor* field = &frame->type->fields[index];
  if (!onnx_wire_fits(field, wire)) {
    return onnx_damaged(scanner, field->name, "has another wire type");
  }
  size_t size;
  RABBET_RETURN_IF_ERROR(onnx_payload(scanner, wire, field->name, &size));
  bool repeated = index < 64 && (frame->seen >> index & 1);
  if (repeated && onnx_must_be_single(field)) {
    return onnx_damaged(scanner, field->name, "occurs a second time");
  }
  if (index < 64) frame->seen |= (uint64_t)1 << index;
  if (onnx_is_ignored(field->name)) {
    scanner->at += size;
    return rabbet_ok();
  }
  if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
    return onnx_enter(scanner, field, size);
  }
  if (field->type == PROTOBUF_C_TYPE_STRING) {
    RABBET_RETURN_IF_ERROR(onnx_check_text(scanner, field->name, size));
  }
  onnx_copy(scanner, field, wire, size);
  scanner->at += size;
  return rabbet_ok();
}

static rabbet_status_t onnx_scan_field(onnx_scanner_t* scanner) {
  scanner->field_at = scanner->at;
  uint64_t tag = 0;
  RABBET_RETURN_IF_ERROR(onnx_varint(scanner, &tag));
  unsigned wire = (unsigned)(tag & 7);
  uint64_t number = tag >> 3;
  if (number == 0 || number > 0x1fffffff) {
    return onnx_damaged(scanner, NULL, "has no legal field number");
  }
  const onnx_frame_t* frame = &scanner->frames[scanner->depth - 1];
  int index = onnx_field_index(frame->type, number);
  if (index >= 0) return onnx_scan_known(scanner, index, wire);
  size_t size;
  RABBET_RETURN_IF_ERROR(onnx_payload(scanner, wire, NULL, &size));
  scanner->at += size;
  return rabbet_ok();
}

rabbet_status_t rabbet_onnx_scan(const uint8_t* data, size_t size,
                                 rabbet_strbuf_t* slim) {
  if (size == 0) {
    return RABBET_STATUS(RABBET_STATUS_DATA_LOSS, "the ONNX model is empty");
  }
  onnx_scanner_t scanner = {.data = data, .slim = slim, .depth = 1};
  scanner.frames[0] =
      (onnx_frame_t){.type = &onnx__model_proto__descriptor, .end = size};
  rabbet_status_t status = rabbet_ok();
  while (rabbet_is_ok(status) && scanner.depth > 0) {
    if (scanner.at == scanner.frames[scanner.depth - 1].end) {
      onnx_leave(&scanner);
    } else {
      status = onnx_scan_field(&scanner);
    }
    if (slim->failed || slim->size > onnx_max_slim) break;
  }
  if (rabbet_is_ok(status)) status = rabbet_strbuf_status(slim);
  if (rabbet_is_ok(status) && slim->size > onnx_max_slim) {
    status = RABBET_STATUS(
        RABBET_STATUS_UNSUPPORTED,
        "without its large tensors the model is still over 2 GiB; store "
        "tensors as raw_data or as external data");
  }
  return status;
}
