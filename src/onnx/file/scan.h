// A first look at an ONNX file's bytes, before protobuf-c sees any of them.
//
// protobuf-c recurses once for each nested message and copies every byte, so
// the wire format is walked here first: without recursion, with bounded
// nesting, with every length checked. The walk makes a slim copy of the model
// that protobuf-c can unpack safely and that leaves out
//  - large raw tensor data: a reference to the place in the file stands for it,
//  - fields that the importer never reads (documentation, metadata, value_info,
//  ...),
//  - fields that the schema does not know.
#ifndef RABBET_SRC_ONNX_FILE_SCAN_H_
#define RABBET_SRC_ONNX_FILE_SCAN_H_

#include <protobuf-c/protobuf-c.h>

#include "base/strbuf.h"

// Nested messages, the model itself included: about 64 graphs in each other.
#define RABBET_ONNX_MAX_DEPTH 200
// Raw data longer than this stays in the file.
#define RABBET_ONNX_INLINE_BYTES 1024
// Field number of a reference: an unknown field of TensorProto, whose payload
// is a rabbet_onnx_raw_t. Unknown fields of the file itself are dropped, so a
// file cannot contain one.
#define RABBET_ONNX_RAW_FIELD 1000

// Where raw data lies in the scanned bytes; always within them.
typedef struct rabbet_onnx_raw_t {
  uint64_t offset;
  uint64_t size;
} rabbet_onnx_raw_t;

// Appends the slim copy to `slim`. DATA_LOSS names the message, the field and
// the offset at which the bytes stop making sense; UNSUPPORTED for nesting that
// is too deep.
RABBET_PRIVATE_API rabbet_status_t rabbet_onnx_scan(const uint8_t* data,
                                                    size_t size,
                                                    rabbet_strbuf_t* slim);

#endif  // RABBET_SRC_ONNX_FILE_SCAN_H_
