#include "plan/wire_scan.h"

#include "base/math.h"

#define RABBET_WIRE_MAX_DEPTH 16
// Bytes that protobuf-c allocates besides contents: a record of each field
// while it parses, and malloc's own header.
#define RABBET_WIRE_FIELD_COST 64

typedef struct wire_frame_t {
  const ProtobufCMessageDescriptor* descriptor;
  size_t end;
} wire_frame_t;

typedef struct wire_scan_t {
  const uint8_t* data;
  size_t at;
  size_t memory, max_memory;
  int depth, max_depth;
  wire_frame_t frames[RABBET_WIRE_MAX_DEPTH];
} wire_scan_t;

static rabbet_status_t wire_error(const wire_scan_t* scan, const char* what) {
  return RABBET_STATUS(RABBET_STATUS_DATA_LOSS,
                       "%s at byte %zu of message '%s'", what, scan->at,
                       scan->frames[scan->depth].descriptor->short_name);
}

static rabbet_status_t wire_varint(wire_scan_t* scan, uint64_t* out_value) {
  uint64_t value = 0;
  size_t end = scan->frames[scan->depth].end;
  for (int shift = 0; shift < 70; shift += 7) {
    if (scan->at >= end) return wire_error(scan, "a number is cut off");
    uint8_t byte = scan->data[scan->at++];
    if (shift == 63 && byte > 1) break;
    value |= (uint64_t)(byte & 0x7f) << shift;
    if (!(byte & 0x80)) {
      *out_value = value;
      return rabbet_ok();
    }
  }
  return wire_error(scan, "a number is too long");
}

static rabbet_status_t wire_count(wire_scan_t* scan, size_t bytes) {
  if (rabbet_checked_add(scan->memory, bytes, &scan->memory) &&
      scan->memory <= scan->max_memory) {
    return rabbet_ok();
  }
  return RABBET_STATUS(RABBET_STATUS_DATA_LOSS,
                       "the metadata would take more than %zu bytes of memory",
                       scan->max_memory);
}

// A packed element takes at least one byte and at most eight in memory.
static rabbet_status_t wire_bytes(wire_scan_t* scan,
                                  const ProtobufCFieldDescriptor* field,
                                  size_t length) {
  if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
    if (scan->depth + 1 >= scan->max_depth)
      return wire_error(scan, "messages are nested too deep");
    scan->frames[++scan->depth] =
        (wire_frame_t){field->descriptor, scan->at + length};
    return wire_count(scan,
                      scan->frames[scan->depth].descriptor->sizeof_message +
                          RABBET_WIRE_FIELD_COST);
  }
  scan->at += length;
  bool text = field->type == PROTOBUF_C_TYPE_STRING ||
              field->type == PROTOBUF_C_TYPE_BYTES;
  if (!text && length > SIZE_MAX / 8) return wire_error(scan, "a list");
  return wire_count(scan, text ? length + 1 : length * 8);
}

static rabbet_status_t wire_field(wire_scan_t* scan) {
  const wire_frame_t* frame = &scan->frames[scan->depth];
  size_t start = scan->at;
  uint64_t key = 0, length = 0;
  RABBET_RETURN_IF_ERROR(wire_varint(scan, &key));
  const ProtobufCFieldDescriptor* field =
      key >> 3 > UINT32_MAX ? NULL
                            : protobuf_c_message_descriptor_get_field(
                                  frame->descriptor, (unsigned)(key >> 3));
  if (!field)
    return RABBET_STATUS(RABBET_STATUS_INCOMPATIBLE,
                         "message '%s' has a field %llu at byte %zu that "
                         "rabbet %s does not know",
                         frame->descriptor->short_name,
                         (unsigned long long)(key >> 3), start,
                         rabbet_version());
  RABBET_RETURN_IF_ERROR(wire_count(scan, RABBET_WIRE_FIELD_COST));
  switch (key & 7) {
    case 0:
      return wire_varint(scan, &length);
    case 1:
      length = 8;
      break;
    case 2:
      RABBET_RETURN_IF_ERROR(wire_varint(scan, &length));
      break;
    case 5:
      length = 4;
      break;
    default:
      return wire_error(scan, "an unknown wire type");
  }
  if (length > frame->end - scan->at)
    return wire_error(scan, "a field reaches past the end");
  if ((key & 7) == 2) return wire_bytes(scan, field, (size_t)length);
  scan->at += (size_t)length;
  return rabbet_ok();
}

rabbet_status_t rabbet_wire_scan(const ProtobufCMessageDescriptor* descriptor,
                                 const uint8_t* data, size_t size,
                                 int max_depth, size_t max_memory) {
  wire_scan_t scan = {.data = data,
                      .max_memory = max_memory,
                      .max_depth = max_depth < RABBET_WIRE_MAX_DEPTH
                                       ? max_depth
                                       : RABBET_WIRE_MAX_DEPTH};
  scan.frames[0] = (wire_frame_t){descriptor, size};
  while (scan.depth >= 0) {
    if (scan.at == scan.frames[scan.depth].end) {
      --scan.depth;
      continue;
    }
    RABBET_RETURN_IF_ERROR(wire_field(&scan));
  }
  return rabbet_ok();
}

static void* protobuf_alloc(void* user_data, size_t size) {
  rabbet_protobuf_memory_t* memory = user_data;
  void* block = NULL;
  rabbet_status_t status =
      rabbet_allocate(memory->allocator, size ? size : 1, &block);
  if (!rabbet_is_ok(status)) memory->exhausted = true;
  rabbet_status_ignore(status);
  return block;
}

static void protobuf_free(void* user_data, void* block) {
  rabbet_free(((rabbet_protobuf_memory_t*)user_data)->allocator, block);
}

void rabbet_protobuf_memory_initialize(rabbet_allocator_t allocator,
                                       rabbet_protobuf_memory_t* out_memory) {
  *out_memory =
      (rabbet_protobuf_memory_t){.allocator = allocator,
                                 .adapter = {.alloc = protobuf_alloc,
                                             .free = protobuf_free,
                                             .allocator_data = out_memory}};
}
