// Writes ONNX models byte by byte, for C tests: no generated code, so that it
// can also write what no generated code would.
#ifndef RABBET_TESTS_ONNX_WIRE_H_
#define RABBET_TESTS_ONNX_WIRE_H_

#include <string.h>

#include "base/strbuf.h"

static inline void wire_varint(rabbet_strbuf_t* out, uint64_t value) {
  do {
    uint8_t byte = (uint8_t)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
    rabbet_strbuf_append(out, &byte, 1);
    value >>= 7;
  } while (value);
}
static inline void wire_int(rabbet_strbuf_t* out, int field, int64_t value) {
  wire_varint(out, (uint64_t)field << 3);
  wire_varint(out, (uint64_t)value);
}
static inline void wire_float(rabbet_strbuf_t* out, int field, float value) {
  wire_varint(out, (uint64_t)field << 3 | 5);
  rabbet_strbuf_append(out, &value, sizeof(value));
}
static inline void wire_bytes(rabbet_strbuf_t* out, int field, const void* data,
                              size_t size) {
  wire_varint(out, (uint64_t)field << 3 | 2);
  wire_varint(out, size);
  rabbet_strbuf_append(out, data, size);
}
static inline void wire_string(rabbet_strbuf_t* out, int field,
                               const char* text) {
  wire_bytes(out, field, text, strlen(text));
}
// Empties `message`.
static inline void wire_message(rabbet_strbuf_t* out, int field,
                                rabbet_strbuf_t* message) {
  wire_bytes(out, field, rabbet_strbuf_text(message), message->size);
  rabbet_strbuf_deinitialize(message);
}
static inline rabbet_strbuf_t wire_new(void) {
  rabbet_strbuf_t buffer;
  rabbet_strbuf_initialize(rabbet_allocator_system(), &buffer);
  return buffer;
}

// ---- Messages --------------------------------------------------------------

// Names separated by blanks; "-" stands for an omitted one.
static inline void wire_names(rabbet_strbuf_t* out, int field,
                              const char* names) {
  while (*names) {
    size_t size = strcspn(names, " ");
    wire_bytes(out, field, names, size == 1 && *names == '-' ? 0 : size);
    names += size + (names[size] == ' ');
  }
}
// A NodeProto to which attributes can be added.
static inline rabbet_strbuf_t wire_node(const char* op_type, const char* inputs,
                                        const char* outputs) {
  rabbet_strbuf_t node = wire_new();
  wire_names(&node, 1, inputs);
  wire_names(&node, 2, outputs);
  wire_string(&node, 4, op_type);
  return node;
}
static inline void wire_attr_int(rabbet_strbuf_t* node, const char* name,
                                 int64_t value) {
  rabbet_strbuf_t attr = wire_new();
  wire_string(&attr, 1, name);
  wire_int(&attr, 3, value);
  wire_int(&attr, 20, 2);
  wire_message(node, 5, &attr);
}
static inline void wire_attr_float(rabbet_strbuf_t* node, const char* name,
                                   float value) {
  rabbet_strbuf_t attr = wire_new();
  wire_string(&attr, 1, name);
  wire_float(&attr, 2, value);
  wire_int(&attr, 20, 1);
  wire_message(node, 5, &attr);
}
static inline void wire_attr_string(rabbet_strbuf_t* node, const char* name,
                                    const char* value) {
  rabbet_strbuf_t attr = wire_new();
  wire_string(&attr, 1, name);
  wire_string(&attr, 4, value);
  wire_int(&attr, 20, 3);
  wire_message(node, 5, &attr);
}
static inline void wire_attr_ints(rabbet_strbuf_t* node, const char* name,
                                  const int64_t* values, size_t count) {
  rabbet_strbuf_t attr = wire_new();
  wire_string(&attr, 1, name);
  for (size_t i = 0; i < count; ++i) {
    wire_int(&attr, 8, values[i]);
  }
  wire_int(&attr, 20, 7);
  wire_message(node, 5, &attr);
}
// Refers to an attribute of the function around the node.
static inline void wire_attr_ref(rabbet_strbuf_t* node, const char* name,
                                 const char* argument, int type) {
  rabbet_strbuf_t attr = wire_new();
  wire_string(&attr, 1, name);
  wire_string(&attr, 21, argument);
  wire_int(&attr, 20, type);
  wire_message(node, 5, &attr);
}
// A ValueInfoProto of a tensor; dims: numbers, or < 0 for "n".
static inline rabbet_strbuf_t wire_value(const char* name, int type,
                                         const int64_t* dims, size_t rank) {
  rabbet_strbuf_t shape = wire_new(), tensor = wire_new(), kind = wire_new();
  rabbet_strbuf_t value = wire_new();
  for (size_t i = 0; i < rank; ++i) {
    rabbet_strbuf_t dim = wire_new();
    if (dims[i] < 0) {
      wire_string(&dim, 2, "n");
    } else {
      wire_int(&dim, 1, dims[i]);
    }
    wire_message(&shape, 1, &dim);
  }
  wire_int(&tensor, 1, type);
  wire_message(&tensor, 2, &shape);
  wire_message(&kind, 1, &tensor);
  wire_string(&value, 1, name);
  wire_message(&value, 2, &kind);
  return value;
}
// A TensorProto of raw data.
static inline rabbet_strbuf_t wire_tensor(const char* name, int type,
                                          const int64_t* dims, size_t rank,
                                          const void* data, size_t size) {
  rabbet_strbuf_t tensor = wire_new();
  for (size_t i = 0; i < rank; ++i) {
    wire_int(&tensor, 1, dims[i]);
  }
  wire_int(&tensor, 2, type);
  wire_string(&tensor, 8, name);
  wire_bytes(&tensor, 9, data, size);
  return tensor;
}
// A ModelProto around a GraphProto, which is emptied.
static inline rabbet_strbuf_t wire_model(rabbet_strbuf_t* graph,
                                         int64_t opset) {
  rabbet_strbuf_t model = wire_new(), set = wire_new();
  wire_int(&model, 1, 8);
  wire_message(&model, 7, graph);
  wire_string(&set, 1, "");
  wire_int(&set, 2, opset);
  wire_message(&model, 8, &set);
  return model;
}

#endif  // RABBET_TESTS_ONNX_WIRE_H_
