#include "onnx/file/scan.h"

#include "check.h"
#include "onnx/file/model.h"
#include "onnx/wire.h"

// Scans and unpacks bytes of exactly this size (so that a sanitizer sees any
// read beyond them).
static rabbet_status_t parse(const void* data, size_t size) {
  rabbet_onnx_storage_t* storage = NULL;
  rabbet_status_t status = rabbet_onnx_storage_copy(
      data, size, NULL, NULL, rabbet_allocator_system(), &storage);
  rabbet_arena_t arena;
  rabbet_arena_initialize(rabbet_allocator_system(), &arena);
  Onnx__ModelProto* model = NULL;
  if (rabbet_is_ok(status)) {
    status = rabbet_onnx_model_parse(storage, &arena, &model);
  }
  assert_true(rabbet_is_ok(status) == (model != NULL));
  rabbet_arena_deinitialize(&arena);
  rabbet_onnx_storage_destroy(storage);
  return status;
}

static rabbet_strbuf_t small_model(size_t tensor_bytes) {
  static const char zeros[4096];
  const int64_t dims[] = {(int64_t)tensor_bytes};
  rabbet_strbuf_t graph = wire_new(), part;
  part = wire_tensor("w", 2, dims, 1, zeros, tensor_bytes);
  wire_message(&graph, 5, &part);
  part = wire_node("Relu", "x", "y");
  wire_attr_int(&part, "axis", -1);
  wire_message(&graph, 1, &part);
  part = wire_value("x", 1, dims, 1);
  wire_message(&graph, 11, &part);
  return wire_model(&graph, 17);
}

static void a_model_goes_through(void** state) {
  (void)state;
  rabbet_strbuf_t model = small_model(16);
  RABBET_EXPECT_OK(parse(model.data, model.size));
  rabbet_strbuf_deinitialize(&model);
}

// The slim copy holds a reference, and the reference points at the bytes.
static void large_raw_data_stays_in_the_file(void** state) {
  (void)state;
  const size_t size = RABBET_ONNX_INLINE_BYTES + 1;
  rabbet_strbuf_t model = small_model(size), slim = wire_new();
  model.data[model.size / 2] = 7;  // somewhere in the zeros
  RABBET_EXPECT_OK(
      rabbet_onnx_scan((const uint8_t*)model.data, model.size, &slim));
  assert_true(slim.size < 200);
  Onnx__ModelProto* message =
      onnx__model_proto__unpack(NULL, slim.size, (const uint8_t*)slim.data);
  assert_non_null(message);
  const Onnx__TensorProto* tensor = message->graph->initializer[0];
  assert_false(tensor->has_raw_data);
  assert_int_equal(tensor->base.n_unknown_fields, 1);
  rabbet_onnx_raw_t raw;
  const ProtobufCMessageUnknownField* field = tensor->base.unknown_fields;
  memcpy(&raw, field->data + field->len - sizeof(raw), sizeof(raw));
  assert_int_equal(raw.size, size);
  assert_true(raw.offset < model.size / 2);
  assert_true(raw.offset + raw.size > model.size / 2);
  onnx__model_proto__free_unpacked(message, NULL);
  rabbet_strbuf_deinitialize(&slim);
  rabbet_strbuf_deinitialize(&model);
}

// A file cannot bring references of its own.
static void unknown_fields_are_dropped(void** state) {
  (void)state;
  rabbet_onnx_raw_t raw = {.offset = 1u << 30, .size = 16};
  const int64_t dims[] = {16};
  rabbet_strbuf_t tensor = wire_tensor("w", 2, dims, 1, "", 0);
  wire_bytes(&tensor, RABBET_ONNX_RAW_FIELD, &raw, sizeof(raw));
  rabbet_strbuf_t graph = wire_new(), slim = wire_new();
  wire_message(&graph, 5, &tensor);
  rabbet_strbuf_t model = wire_model(&graph, 17);
  RABBET_EXPECT_OK(
      rabbet_onnx_scan((const uint8_t*)model.data, model.size, &slim));
  Onnx__ModelProto* message =
      onnx__model_proto__unpack(NULL, slim.size, (const uint8_t*)slim.data);
  assert_int_equal(message->graph->initializer[0]->base.n_unknown_fields, 0);
  onnx__model_proto__free_unpacked(message, NULL);
  rabbet_strbuf_deinitialize(&slim);
  rabbet_strbuf_deinitialize(&model);
}

// Graphs in attributes of nodes of graphs.
static rabbet_strbuf_t nested_model(int depth) {
  rabbet_strbuf_t graph = wire_new();
  for (int i = 0; i < depth; ++i) {
    rabbet_strbuf_t attr = wire_new(), node = wire_new(), outer = wire_new();
    wire_message(&attr, 6, &graph);
    wire_message(&node, 5, &attr);
    wire_message(&outer, 1, &node);
    graph = outer;
  }
  return wire_model(&graph, 17);
}

static void deep_nesting_is_an_error(void** state) {
  (void)state;
  rabbet_strbuf_t model = nested_model(60);
  RABBET_EXPECT_OK(parse(model.data, model.size));
  rabbet_strbuf_deinitialize(&model);
  model = nested_model(3000);
  assert_true(model.size < 60000);
  RABBET_EXPECT_ERROR(parse(model.data, model.size), RABBET_STATUS_UNSUPPORTED,
                      "nested");
  rabbet_strbuf_deinitialize(&model);
}

static void what_makes_no_sense_is_named(void** state) {
  (void)state;
  static const struct {
    const char* bytes;
    size_t size;
    const char* message;
  } rows[] = {
      {"", 0, "empty"},
      {"\x3a\x05\x0a", 3, "ModelProto.graph at offset 0 is longer"},
      {"\x38\x01", 2, "ModelProto.graph at offset 0 has another wire type"},
      {"\x3a\x00\x3a\x00", 4, "occurs a second time"},
      {"\x12\x02"
       "a\0",
       4, "producer_name at offset 0 holds a zero byte"},
      {"\x12\x02"
       "a\xff",
       4, "producer_name at offset 0 is not UTF-8"},
      {"\x12\x02"
       "a\xc3",
       4, "producer_name at offset 0 is not UTF-8"},
      {"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12, "64 bits"},
      {"\x08\xff", 2, "ends within a number"},
      {"\x0b", 1, "wire type"},
      {"\x00", 1, "field number"},
      {"GIF89a", 6, "not an ONNX model"},
  };
  for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
    RABBET_EXPECT_ERROR(parse(rows[i].bytes, rows[i].size),
                        RABBET_STATUS_DATA_LOSS, rows[i].message);
  }
}

static void every_truncation_ends_in_a_status(void** state) {
  (void)state;
  rabbet_strbuf_t model = small_model(1100);
  for (size_t size = 0; size < model.size; ++size) {
    // Between two fields of the model a cut is no damage; elsewhere it is.
    rabbet_status_ignore(parse(model.data, size));
  }
  rabbet_strbuf_deinitialize(&model);
}

// Two bytes in the file, some 160 in memory for each node.
static void memory_is_bounded(void** state) {
  (void)state;
  rabbet_strbuf_t graph = wire_new();
  for (int i = 0; i < 500000; ++i) {
    wire_bytes(&graph, 1, "", 0);
  }
  rabbet_strbuf_t model = wire_model(&graph, 17);
  RABBET_EXPECT_ERROR(parse(model.data, model.size), RABBET_STATUS_UNSUPPORTED,
                      "far more memory");
  rabbet_strbuf_deinitialize(&model);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_model_goes_through),
      cmocka_unit_test(large_raw_data_stays_in_the_file),
      cmocka_unit_test(unknown_fields_are_dropped),
      cmocka_unit_test(deep_nesting_is_an_error),
      cmocka_unit_test(what_makes_no_sense_is_named),
      cmocka_unit_test(every_truncation_ends_in_a_status),
      cmocka_unit_test(memory_is_bounded),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
