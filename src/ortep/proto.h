// Writes protobuf messages. Failure is sticky in the buffer.
#ifndef RABBET_SRC_ORTEP_PROTO_H_
#define RABBET_SRC_ORTEP_PROTO_H_

#include "base/strbuf.h"

void rabbet_proto_int(rabbet_strbuf_t* out, uint32_t field, int64_t value);
void rabbet_proto_float(rabbet_strbuf_t* out, uint32_t field, float value);
void rabbet_proto_bytes(rabbet_strbuf_t* out, uint32_t field, const void* data,
                        size_t size);
void rabbet_proto_text(rabbet_strbuf_t* out, uint32_t field, const char* text);
// A message within the message; what is written before `end` is its content.
size_t rabbet_proto_begin(rabbet_strbuf_t* out, uint32_t field);
void rabbet_proto_end(rabbet_strbuf_t* out, size_t begin);

#endif  // RABBET_SRC_ORTEP_PROTO_H_
