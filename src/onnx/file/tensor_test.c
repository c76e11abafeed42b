#include "check.h"
#include "core/view.h"
#include "onnx/file/model.h"
#include "onnx/wire.h"

// ONNX's numbers of element types.
enum { FLOAT = 1, UINT8 = 2, INT32 = 6, INT64 = 7, STRING = 8, BOOL = 9 };
enum { HALF = 10, DOUBLE = 11, BF16 = 16, E5M2 = 19, INT4 = 22, FP6 = 27 };

typedef struct fixture_t {
  rabbet_onnx_storage_t* storage;
  rabbet_arena_t arena;
  Onnx__ModelProto* model;
  char warning[256];
} fixture_t;

static void keep_warning(void* user_data, rabbet_severity_t severity,
                         const char* message) {
  if (severity == RABBET_SEVERITY_WARNING) {
    snprintf(user_data, 256, "%s", message);
  }
}

// Reads a TensorProto (emptied) as a model's only initializer.
static rabbet_status_t read_tensor(fixture_t* f, rabbet_strbuf_t* tensor,
                                   const char* path,
                                   rabbet_onnx_constant_t* out) {
  rabbet_strbuf_t graph = wire_new();
  wire_message(&graph, 5, tensor);
  rabbet_strbuf_t model = wire_model(&graph, 17);
  *f = (fixture_t){0};
  RABBET_EXPECT_OK(rabbet_onnx_storage_copy(model.data, model.size, path, NULL,
                                            rabbet_allocator_system(),
                                            &f->storage));
  rabbet_strbuf_deinitialize(&model);
  rabbet_arena_initialize(rabbet_allocator_system(), &f->arena);
  RABBET_EXPECT_OK(rabbet_onnx_model_parse(f->storage, &f->arena, &f->model));
  rabbet_logger_t logger = {f->warning, keep_warning, RABBET_SEVERITY_WARNING};
  return rabbet_onnx_tensor_read(f->storage, logger,
                                 f->model->graph->initializer[0], out);
}

static void done(fixture_t* f) {
  rabbet_arena_deinitialize(&f->arena);
  rabbet_onnx_storage_destroy(f->storage);
}

static rabbet_strbuf_t bare(int type, int64_t count) {
  rabbet_strbuf_t tensor = wire_new();
  wire_int(&tensor, 1, count);
  wire_int(&tensor, 2, type);
  wire_string(&tensor, 8, "w");
  return tensor;
}

static void expect(rabbet_strbuf_t tensor, rabbet_dtype_t dtype,
                   const double* values, int64_t count) {
  fixture_t f;
  rabbet_onnx_constant_t constant;
  RABBET_EXPECT_OK(read_tensor(&f, &tensor, NULL, &constant));
  assert_int_equal(constant.weights.dtype, dtype);
  assert_int_equal(constant.weights.count, count);
  for (int64_t i = 0; i < count; ++i) {
    double found = rabbet_load_double(dtype, constant.weights.data, i);
    if (found != values[i]) fail_msg("element %d is %g", (int)i, found);
  }
  done(&f);
}

static void lists_of_numbers(void** state) {
  (void)state;
  rabbet_strbuf_t t = bare(FLOAT, 2);
  wire_float(&t, 4, 1.5f);
  wire_float(&t, 4, -2);
  expect(t, RABBET_DTYPE_FLOAT, (double[]){1.5, -2}, 2);
  t = bare(INT32, 2);
  wire_int(&t, 5, 7);
  wire_int(&t, 5, -7);
  expect(t, RABBET_DTYPE_INT32, (double[]){7, -7}, 2);
  t = bare(INT64, 1);
  wire_int(&t, 7, -5000000000);
  expect(t, RABBET_DTYPE_INT64, (double[]){-5000000000.0}, 1);
  t = bare(UINT8, 1);
  wire_int(&t, 5, 200);
  expect(t, RABBET_DTYPE_UINT8, (double[]){200}, 1);
  t = bare(BOOL, 2);
  wire_int(&t, 5, 5);
  wire_int(&t, 5, 0);
  expect(t, RABBET_DTYPE_BOOL, (double[]){1, 0}, 2);
}

// Half types are bits in int32_data; packed and plain lists are the same.
static void halves_in_int32_data(void** state) {
  (void)state;
  rabbet_strbuf_t t = bare(HALF, 2);
  wire_int(&t, 5, 0x3e00);
  wire_int(&t, 5, 0xc000);
  expect(t, RABBET_DTYPE_HALF, (double[]){1.5, -2}, 2);
  rabbet_strbuf_t packed = wire_new();
  wire_varint(&packed, 0x3fc0);
  wire_varint(&packed, 0xc000);
  t = bare(BF16, 2);
  wire_message(&t, 5, &packed);
  expect(t, RABBET_DTYPE_BF16, (double[]){1.5, -2}, 2);
}

// Elements of less than a byte lie side by side, the first in the low bits;
// lists have an entry for each byte, or for each element of 6 bits.
static void narrow_types_are_held_in_wider_ones(void** state) {
  (void)state;
  const int64_t dims[] = {3};
  const uint8_t nibbles[] = {0x8f, 0x07}, sixes[] = {0x88, 0x07, 0x00};
  expect(wire_tensor("w", INT4, dims, 1, nibbles, 2), RABBET_DTYPE_INT8,
         (double[]){-1, -8, 7}, 3);
  expect(wire_tensor("w", FP6, dims, 1, sixes, 3), RABBET_DTYPE_FP8,
         (double[]){1, 7, 0}, 3);
  rabbet_strbuf_t t = bare(INT4, 3);
  wire_int(&t, 5, 0x8f);
  wire_int(&t, 5, 0x07);
  expect(t, RABBET_DTYPE_INT8, (double[]){-1, -8, 7}, 3);
  t = bare(FP6, 2);
  wire_int(&t, 5, 0x08);
  wire_int(&t, 5, 0x3f);
  expect(t, RABBET_DTYPE_FP8, (double[]){1, -7.5}, 2);
  t = bare(E5M2, 2);
  wire_int(&t, 5, 0x3d);
  wire_int(&t, 5, 0xfc);
  expect(t, RABBET_DTYPE_HALF, (double[]){1.25, -__builtin_inf()}, 2);
}

static void doubles_are_rounded_with_a_warning(void** state) {
  (void)state;
  double values[] = {0.1, 1e300};
  const int64_t dims[] = {2};
  rabbet_strbuf_t t = wire_tensor("w", DOUBLE, dims, 1, values, 16);
  fixture_t f;
  rabbet_onnx_constant_t constant;
  RABBET_EXPECT_OK(read_tensor(&f, &t, NULL, &constant));
  const float* floats = constant.weights.data;
  assert_true(floats[0] == 0.1f);
  assert_true(floats[1] > 3e38f);
  assert_non_null(strstr(f.warning, "'w' is DOUBLE"));
  done(&f);
}

// Large raw data is used where it lies if it is aligned there, else copied;
// either way the address suits the type.
static void large_raw_data_is_aligned(void** state) {
  (void)state;
  static int64_t values[400];
  const int64_t dims[] = {400};
  bool in_place = false, copied = false;
  for (int i = 0; i < 400; ++i) {
    values[i] = i * 1000003LL;
  }
  for (size_t shift = 1; shift <= 8; ++shift) {
    char name[16] = "aaaaaaaaaaaaaaa";
    name[shift] = '\0';
    rabbet_strbuf_t t =
        wire_tensor(name, INT64, dims, 1, values, sizeof(values));
    fixture_t f;
    rabbet_onnx_constant_t constant;
    RABBET_EXPECT_OK(read_tensor(&f, &t, NULL, &constant));
    const uint8_t* data = constant.weights.data;
    bool inside =
        data >= f.storage->data && data < f.storage->data + f.storage->size;
    in_place |= inside;
    copied |= !inside;
    assert_int_equal((uintptr_t)data % 8, 0);
    assert_memory_equal(data, values, sizeof(values));
    done(&f);
  }
  assert_true(in_place);
  assert_true(copied);
}

static void bools_are_made_0_or_1(void** state) {
  (void)state;
  static uint8_t values[2000];
  const int64_t dims[] = {2000};
  values[1999] = 255;
  rabbet_strbuf_t t = wire_tensor("w", BOOL, dims, 1, values, sizeof(values));
  fixture_t f;
  rabbet_onnx_constant_t constant;
  RABBET_EXPECT_OK(read_tensor(&f, &t, NULL, &constant));
  assert_int_equal(((const uint8_t*)constant.weights.data)[1999], 1);
  done(&f);
}

static void expect_error(rabbet_strbuf_t tensor, const char* path,
                         rabbet_status_code_t code, const char* part) {
  fixture_t f;
  rabbet_onnx_constant_t constant;
  RABBET_EXPECT_ERROR(read_tensor(&f, &tensor, path, &constant), code, part);
  done(&f);
}

static void what_does_not_fit_is_refused(void** state) {
  (void)state;
  const int64_t dims[] = {3};
  expect_error(wire_tensor("w", FLOAT, dims, 1, "12345678", 8), NULL,
               RABBET_STATUS_DATA_LOSS, "need 12 bytes, but it holds 8");
  expect_error(bare(FLOAT, 1), NULL, RABBET_STATUS_DATA_LOSS,
               "need 1 elements, but it holds 0");
  expect_error(bare(FLOAT, -1), NULL, RABBET_STATUS_OUT_OF_RANGE, "'w'");
  expect_error(bare(STRING, 1), NULL, RABBET_STATUS_UNSUPPORTED, "STRING");
  expect_error(bare(99, 1), NULL, RABBET_STATUS_UNSUPPORTED, "unknown (99)");
  rabbet_strbuf_t t = bare(FLOAT, INT64_C(1) << 40);
  wire_int(&t, 1, INT64_C(1) << 40);
  expect_error(t, NULL, RABBET_STATUS_OUT_OF_RANGE, "'w'");
}

// ---- External data ---------------------------------------------------------

static rabbet_strbuf_t external(const char* location, const char* offset,
                                const char* length) {
  const char* const rows[][2] = {
      {"location", location}, {"offset", offset}, {"length", length}};
  rabbet_strbuf_t t = bare(FLOAT, 2);
  for (size_t i = 0; i < 3; ++i) {
    if (!rows[i][1]) continue;
    rabbet_strbuf_t entry = wire_new();
    wire_string(&entry, 1, rows[i][0]);
    wire_string(&entry, 2, rows[i][1]);
    wire_message(&t, 13, &entry);
  }
  wire_int(&t, 14, 1);
  return t;
}

static void external_data_is_mapped(void** state) {
  (void)state;
  char path[] = "/tmp/rabbet-onnx-XXXXXX";
  assert_non_null(mkdtemp(path));
  char file[64], model[64];
  snprintf(file, sizeof(file), "%s/w.bin", path);
  snprintf(model, sizeof(model), "%s/model.onnx", path);
  const float data[] = {0, 1.5f, -2, 9};
  rabbet_span_t span = {data, sizeof(data)};
  RABBET_EXPECT_OK(rabbet_file_write(file, &span, 1));
  fixture_t f;
  rabbet_onnx_constant_t constant;
  rabbet_strbuf_t t = external("w.bin", "4", "8");
  RABBET_EXPECT_OK(read_tensor(&f, &t, model, &constant));
  assert_memory_equal(constant.weights.data, data + 1, 8);
  done(&f);
  t = external("./w.bin", NULL, NULL);
  RABBET_EXPECT_OK(read_tensor(&f, &t, model, &constant));
  assert_memory_equal(constant.weights.data, data, 8);
  done(&f);
  expect_error(external("w.bin", "12", "8"), model, RABBET_STATUS_DATA_LOSS,
               "has only 16 bytes");
  expect_error(external("w.bin", "9223372036854775807", NULL), model,
               RABBET_STATUS_DATA_LOSS, "has only");
  expect_error(external("w.bin", "0", "16"), model, RABBET_STATUS_DATA_LOSS,
               "need 8 bytes");
  expect_error(external("gone.bin", NULL, NULL), model, RABBET_STATUS_NOT_FOUND,
               "gone.bin");
  remove(file);
  remove(path);
}

static void external_data_stays_in_its_folder(void** state) {
  (void)state;
  static const char* const escapes[] = {"/etc/passwd", "../w", "a/../../w",
                                        "a/..",        "..",   "..\\w"};
  for (size_t i = 0; i < sizeof(escapes) / sizeof(escapes[0]); ++i) {
    expect_error(external(escapes[i], NULL, NULL), "/tmp/model.onnx",
                 RABBET_STATUS_INVALID_ARGUMENT, "leaves the model's folder");
  }
  expect_error(external("w.bin", NULL, NULL), NULL,
               RABBET_STATUS_FAILED_PRECONDITION, "external_data_dir");
  expect_error(external("w.bin", "-1", NULL), "/tmp/model.onnx",
               RABBET_STATUS_DATA_LOSS, "offset is '-1'");
  expect_error(external(NULL, NULL, NULL), "/tmp/model.onnx",
               RABBET_STATUS_DATA_LOSS, "no location");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(lists_of_numbers),
      cmocka_unit_test(halves_in_int32_data),
      cmocka_unit_test(narrow_types_are_held_in_wider_ones),
      cmocka_unit_test(doubles_are_rounded_with_a_warning),
      cmocka_unit_test(large_raw_data_is_aligned),
      cmocka_unit_test(bools_are_made_0_or_1),
      cmocka_unit_test(what_does_not_fit_is_refused),
      cmocka_unit_test(external_data_is_mapped),
      cmocka_unit_test(external_data_stays_in_its_folder),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
