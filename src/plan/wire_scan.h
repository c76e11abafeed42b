// Looks over protobuf bytes before protobuf-c unpacks them: protobuf-c bounds
// neither nesting nor memory.
#ifndef RABBET_SRC_PLAN_WIRE_SCAN_H_
#define RABBET_SRC_PLAN_WIRE_SCAN_H_

#include <protobuf-c/protobuf-c.h>

#include "rabbet/allocator.h"

// DATA_LOSS unless the bytes are well-formed fields of `descriptor` throughout,
// nested at most `max_depth` deep, and unpack into at most `max_memory` bytes.
// INCOMPATIBLE for a field that the descriptor lacks. Not recursive.
rabbet_status_t rabbet_wire_scan(const ProtobufCMessageDescriptor* descriptor,
                                 const uint8_t* data, size_t size,
                                 int max_depth, size_t max_memory);

// protobuf-c's view of an allocator. The storage is the caller's and must not
// move.
typedef struct rabbet_protobuf_memory_t {
  rabbet_allocator_t allocator;
  ProtobufCAllocator adapter;
  bool exhausted;  // an allocation failed
} rabbet_protobuf_memory_t;

void rabbet_protobuf_memory_initialize(rabbet_allocator_t allocator,
                                       rabbet_protobuf_memory_t* out_memory);

#endif  // RABBET_SRC_PLAN_WIRE_SCAN_H_
