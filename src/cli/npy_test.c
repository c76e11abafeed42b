#include "cli/npy.h"

#include <unistd.h>
#include <zlib.h>

#include "base/file.h"
#include "check.h"
#include "faults/fault_allocator.h"

#define SYSTEM rabbet_allocator_system()

// In a folder of its own: archives are written beside what lies there already.
static char folder[] = "/tmp/rabbet_npy_test_XXXXXX", path[64];

static int make_path(void** state) {
  (void)state;
  if (!mkdtemp(folder)) return -1;
  snprintf(path, sizeof(path), "%s/arrays", folder);
  return 0;
}

static int remove_path(void** state) {
  (void)state;
  return unlink(path) || rmdir(folder);
}

// ---- Helpers

typedef struct bytes_t {
  uint8_t data[4096];
  size_t size;
} bytes_t;

static void put(bytes_t* out, const void* data, size_t size) {
  assert_true(out->size + size <= sizeof(out->data));
  if (size) memcpy(out->data + out->size, data, size);
  out->size += size;
}

static void put_number(bytes_t* out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i)
    put(out, &(uint8_t){(uint8_t)(value >> (8 * i))}, 1);
}

// Thousands of times, so without waiting for the disk: rabbet_file_write does,
// and file systems do when a file is emptied and written again.
static void save(const bytes_t* bytes) {
  unlink(path);
  FILE* file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(bytes->data, 1, bytes->size, file), bytes->size);
  assert_int_equal(fclose(file), 0);
}

static void load(bytes_t* out) {
  rabbet_file_map_t* map = NULL;
  RABBET_EXPECT_OK(rabbet_file_map_create(path, SYSTEM, &map));
  out->size = 0;
  put(out, rabbet_file_map_data(map), rabbet_file_map_size(map));
  rabbet_file_map_release(map);
}

// An .npy with this dictionary and these elements, format 1.0 or 2.0.
static void make_npy(int version, const char* dictionary, const void* elements,
                     size_t size, bytes_t* out) {
  out->size = 0;
  put(out, "\x93NUMPY", 6);
  put_number(out, (uint64_t)version, 2);
  put_number(out, strlen(dictionary), version == 1 ? 2 : 4);
  put(out, dictionary, strlen(dictionary));
  put(out, elements, size);
}

// An archive of one deflated entry, as numpy.savez_compressed makes it.
static void make_deflated(const char* name, const bytes_t* npy, bytes_t* out) {
  bytes_t packed = {.size = 0};
  z_stream stream = {.next_in = (Bytef*)npy->data,
                     .avail_in = (uInt)npy->size,
                     .next_out = packed.data,
                     .avail_out = sizeof(packed.data)};
  assert_int_equal(
      deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY),
      Z_OK);
  assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.size = stream.total_out;
  deflateEnd(&stream);
  uint64_t crc = crc32(0, npy->data, (uInt)npy->size);
  out->size = 0;
  for (int directory = 0; directory < 2; ++directory) {
    size_t start = out->size;
    put_number(out, directory ? 0x02014b50 : 0x04034b50, 4);
    put_number(out, 20, directory ? 4 : 2);
    put_number(out, 0, 2);
    put_number(out, Z_DEFLATED, 2);
    put_number(out, 0, 4);
    put_number(out, crc, 4);
    put_number(out, packed.size, 4);
    put_number(out, npy->size, 4);
    put_number(out, strlen(name), 2);
    put_number(out, 0, 2);
    for (int i = 0; directory && i < 14; ++i)
      put_number(out, 0, 1);
    put(out, name, strlen(name));
    if (!directory) {
      put(out, packed.data, packed.size);
      continue;
    }
    size_t size = out->size - start;
    put_number(out, 0x06054b50, 4);
    put_number(out, 0, 4);
    put_number(out, 1, 2);
    put_number(out, 1, 2);
    put_number(out, size, 4);
    put_number(out, start, 4);
    put_number(out, 0, 2);
  }
}

static const float floats[] = {1, -2, 3.5f, 0, 1e30f, -0.0f};
static const int64_t integers[] = {1, -1, INT64_MAX};
static const uint8_t flags[] = {1, 0};
static const rabbet_array_t samples[] = {
    {"x", RABBET_DTYPE_FLOAT, {.rank = 2, .d = {2, 3}}, floats, 24},
    {"/a/b:0", RABBET_DTYPE_INT64, {.rank = 1, .d = {3}}, integers, 24},
    {"wide", RABBET_DTYPE_DOUBLE, {.rank = 1, .d = {3}}, integers, 24},
    {"flags", RABBET_DTYPE_BOOL, {.rank = 1, .d = {2}}, flags, 2},
    {"scalar", RABBET_DTYPE_FLOAT, {.rank = 0}, floats, 4},
    {"empty", RABBET_DTYPE_INT32, {.rank = 2, .d = {0, 4}}, floats, 0},
};
enum { SAMPLE_COUNT = sizeof(samples) / sizeof(samples[0]) };

static void expect_array(const rabbet_array_t* found,
                         const rabbet_array_t* expected) {
  assert_int_equal(found->dtype, expected->dtype);
  assert_int_equal(found->dims.rank, expected->dims.rank);
  for (int32_t i = 0; i < found->dims.rank; ++i)
    assert_int_equal(found->dims.d[i], expected->dims.d[i]);
  assert_int_equal(found->bytes, expected->bytes);
  assert_memory_equal(found->data, expected->data, expected->bytes);
}

static void expect_read_error(rabbet_status_code_t code, const char* part) {
  rabbet_arena_t arena;
  rabbet_array_t* arrays = NULL;
  size_t count = 7;
  rabbet_arena_initialize(SYSTEM, &arena);
  rabbet_status_t status = rabbet_npy_read(path, &arena, &arrays, &count);
  assert_non_null(strstr(rabbet_status_message(status), path));
  RABBET_EXPECT_ERROR(status, code, part);
  rabbet_arena_deinitialize(&arena);
}

// ---- Sound files

static void round_trip(void** state) {
  (void)state;
  rabbet_arena_t arena;
  rabbet_array_t* arrays = NULL;
  size_t count = 0;
  RABBET_EXPECT_OK(rabbet_npz_write(path, samples, SAMPLE_COUNT, SYSTEM));
  rabbet_arena_initialize(SYSTEM, &arena);
  RABBET_EXPECT_OK(rabbet_npy_read(path, &arena, &arrays, &count));
  assert_int_equal(count, SAMPLE_COUNT);
  for (size_t i = 0; i < count; ++i) {
    assert_string_equal(arrays[i].name, samples[i].name);
    expect_array(&arrays[i], &samples[i]);
  }
  rabbet_arena_deinitialize(&arena);
}

static void no_arrays(void** state) {
  (void)state;
  rabbet_arena_t arena;
  rabbet_array_t* arrays = NULL;
  size_t count = 1;
  RABBET_EXPECT_OK(rabbet_npz_write(path, NULL, 0, SYSTEM));
  rabbet_arena_initialize(SYSTEM, &arena);
  RABBET_EXPECT_OK(rabbet_npy_read(path, &arena, &arrays, &count));
  assert_int_equal(count, 0);
  rabbet_arena_deinitialize(&arena);
}

// Sizes of the end record at their largest: those of the ZIP64 one count.
static void zip64_end(void** state) {
  (void)state;
  RABBET_EXPECT_OK(rabbet_npz_write(path, samples, SAMPLE_COUNT, SYSTEM));
  bytes_t bytes;
  load(&bytes);
  memset(bytes.data + bytes.size - 14, 0xff, 12);
  save(&bytes);
  rabbet_arena_t arena;
  rabbet_array_t* arrays = NULL;
  size_t count = 0;
  rabbet_arena_initialize(SYSTEM, &arena);
  RABBET_EXPECT_OK(rabbet_npy_read(path, &arena, &arrays, &count));
  assert_int_equal(count, SAMPLE_COUNT);
  expect_array(&arrays[1], &samples[1]);
  rabbet_arena_deinitialize(&arena);
  memset(bytes.data + bytes.size - 22 - 12, 0xff, 8);
  save(&bytes);
  expect_read_error(RABBET_STATUS_DATA_LOSS, "ZIP64");
}

static void deflated_and_version_2(void** state) {
  (void)state;
  static const char dictionary[] =
      "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n";
  for (int version = 1; version <= 3; ++version) {
    bytes_t npy, zip;
    make_npy(version, dictionary, floats, sizeof(floats), &npy);
    make_deflated("x.npy", &npy, &zip);
    for (int packed = 0; packed < 2; ++packed) {
      save(packed ? &zip : &npy);
      rabbet_arena_t arena;
      rabbet_array_t* arrays = NULL;
      size_t count = 0;
      rabbet_arena_initialize(SYSTEM, &arena);
      RABBET_EXPECT_OK(rabbet_npy_read(path, &arena, &arrays, &count));
      assert_int_equal(count, 1);
      assert_string_equal(arrays[0].name, packed ? "x" : "");
      expect_array(&arrays[0], &samples[0]);
      rabbet_arena_deinitialize(&arena);
    }
  }
}

// ---- Files that are refused

static void refused_headers(void** state) {
  (void)state;
  static const struct {
    const char* dictionary;
    rabbet_status_code_t code;
    const char* part;
  } cases[] = {
      {"{'descr': '>f4', 'fortran_order': False, 'shape': (6,), }",
       RABBET_STATUS_UNSUPPORTED, "big-endian"},
      {"{'descr': '<c8', 'fortran_order': False, 'shape': (3,), }",
       RABBET_STATUS_UNSUPPORTED, "<c8"},
      {"{'descr': '<u4', 'fortran_order': False, 'shape': (6,), }",
       RABBET_STATUS_UNSUPPORTED, "of type '<u4'; expected"},
      {"{'descr': '|O', 'fortran_order': False, 'shape': (3,), }",
       RABBET_STATUS_UNSUPPORTED, "|O"},
      {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (6,), }",
       RABBET_STATUS_UNSUPPORTED, "elements of type"},
      {"{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }",
       RABBET_STATUS_UNSUPPORTED, "ascontiguousarray"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (7,), }",
       RABBET_STATUS_DATA_LOSS, "24 bytes of elements, expected 28"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, -3), }",
       RABBET_STATUS_DATA_LOSS, "shape"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, ",
       RABBET_STATUS_DATA_LOSS, "shape"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': 6, }",
       RABBET_STATUS_DATA_LOSS, "shape"},
      {"{'descr': '<f4', 'fortran_order': False, "
       "'shape': (1,1,1,1,1,1,1,1,1), }",
       RABBET_STATUS_UNSUPPORTED, "dimensions"},
      {"{'descr': '<f4', 'shape': (6,), }", RABBET_STATUS_DATA_LOSS,
       "fortran_order"},
      {"", RABBET_STATUS_DATA_LOSS, "the header lacks"},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
    bytes_t npy;
    make_npy(1, cases[i].dictionary, floats, sizeof(floats), &npy);
    save(&npy);
    expect_read_error(cases[i].code, cases[i].part);
  }
}

static void impossible_sizes(void** state) {
  (void)state;
  bytes_t npy;
  make_npy(1,
           "{'descr': '<f4', 'fortran_order': False, 'shape': "
           "(4294967296, 4294967296, 4294967296), }",
           floats, sizeof(floats), &npy);
  save(&npy);
  rabbet_arena_t arena;
  rabbet_array_t* arrays = NULL;
  size_t count = 0;
  rabbet_arena_initialize(SYSTEM, &arena);
  rabbet_status_t status = rabbet_npy_read(path, &arena, &arrays, &count);
  assert_false(rabbet_is_ok(status));
  rabbet_status_free(status);
  rabbet_arena_deinitialize(&arena);

  make_npy(2, "", NULL, 0, &npy);
  memset(npy.data + 8, 0xff, 4);  // length of the header
  save(&npy);
  expect_read_error(RABBET_STATUS_DATA_LOSS, "header");
  npy.data[6] = 9;
  save(&npy);
  expect_read_error(RABBET_STATUS_UNSUPPORTED, "version 9");
  npy.size = 5;
  save(&npy);
  expect_read_error(RABBET_STATUS_DATA_LOSS, "not a .npy array");
}

// A directory that names one entry thirty times: its arrays would be thirty
// times the file's.
static void overlapping_entries(void** state) {
  (void)state;
  static const char* const dictionary =
      "{'descr': '|u1', 'fortran_order': False, 'shape': (800,), }";
  bytes_t npy, one, many = {.size = 0};
  uint8_t elements[800];
  for (size_t i = 0; i < sizeof(elements); ++i)
    elements[i] = (uint8_t)(i * i * 2654435761u >> 13);
  make_npy(1, dictionary, elements, sizeof(elements), &npy);
  make_deflated("x.npy", &npy, &one);
  const size_t record = 46 + strlen("x.npy"), end = 22;
  size_t start = one.size - end - record;
  put(&many, one.data, start);
  for (int i = 0; i < 30; ++i)
    put(&many, one.data + start, record);
  put(&many, one.data + one.size - end, end);
  uint8_t* numbers = many.data + many.size - end;
  numbers[8] = numbers[10] = 30;
  numbers[12] = (uint8_t)(30 * record);
  numbers[13] = (uint8_t)(30 * record >> 8);
  save(&many);
  expect_read_error(RABBET_STATUS_DATA_LOSS, "its entries overlap");
}

static void every_truncation(void** state) {
  (void)state;
  RABBET_EXPECT_OK(rabbet_npz_write(path, samples, SAMPLE_COUNT, SYSTEM));
  bytes_t whole;
  load(&whole);
  for (size_t size = 4; size < whole.size; ++size) {
    bytes_t part = whole;
    part.size = size;
    save(&part);
    expect_read_error(RABBET_STATUS_DATA_LOSS, "the archive is damaged");
  }
}

// ---- Damaged files

// xorshift64 (Marsaglia 2003).
static uint64_t random_next(uint64_t* state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

static void mutate(uint64_t* random, bytes_t* bytes) {
  static const uint8_t edges[] = {0, 1, 0x7f, 0x80, 0xff};
  uint64_t changes = 1 + random_next(random) % 3;
  for (uint64_t i = 0; i < changes; ++i) {
    uint8_t* at = &bytes->data[random_next(random) % bytes->size];
    switch (random_next(random) % 3) {
      case 0:
        *at ^= (uint8_t)(1 << random_next(random) % 8);
        break;
      case 1:
        *at = edges[random_next(random) % sizeof(edges)];
        break;
      default:
        *at = (uint8_t)random_next(random);
    }
  }
  if (random_next(random) % 8 == 0)
    bytes->size = 1 + random_next(random) % bytes->size;
}

// Checksums of arrays, so that reads are not optimised away.
static volatile uint32_t touched;

// Reads the file; arrays must be whole, that is, readable memory. *out_first is
// only good for its type and sizes.
static bool read_and_touch(rabbet_array_t* out_first) {
  rabbet_arena_t arena;
  rabbet_array_t* arrays = NULL;
  size_t count = 0;
  rabbet_arena_initialize(SYSTEM, &arena);
  rabbet_status_t status = rabbet_npy_read(path, &arena, &arrays, &count);
  bool ok = rabbet_is_ok(status);
  rabbet_status_free(status);
  for (size_t i = 0; ok && i < count; ++i) {
    touched += (uint32_t)crc32_z(0, arrays[i].data, arrays[i].bytes);
    touched += (uint32_t)strlen(arrays[i].name);
  }
  *out_first = ok && count ? arrays[0] : (rabbet_array_t){0};
  rabbet_arena_deinitialize(&arena);
  return ok;
}

// An archive's checksums cover its elements, so that arrays read in spite of
// damage are right.
static void damaged_archives(void** state) {
  (void)state;
  const uint64_t seed = 20240711;
  uint64_t random = seed;
  RABBET_EXPECT_OK(rabbet_npz_write(path, samples, SAMPLE_COUNT, SYSTEM));
  bytes_t stored, npy, deflated;
  load(&stored);
  make_npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n",
           floats, sizeof(floats), &npy);
  make_deflated("x.npy", &npy, &deflated);
  int refused = 0;
  for (int i = 0; i < 4000; ++i) {
    bytes_t bytes = i % 2 ? deflated : stored;
    mutate(&random, &bytes);
    save(&bytes);
    rabbet_array_t first;
    if (!read_and_touch(&first)) {
      ++refused;
    } else if (first.bytes != 24 || first.dtype != RABBET_DTYPE_FLOAT) {
      fail_msg("seed %llu, mutation %d: wrong arrays", (unsigned long long)seed,
               i);
    }
  }
  assert_true(refused > 2000);
}

// The same with sound checksums around a damaged array.
static void damaged_arrays(void** state) {
  (void)state;
  uint64_t random = 20240712;
  int refused = 0;
  for (int i = 0; i < 4000; ++i) {
    bytes_t npy, zip;
    make_npy(1 + i % 3,
             "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n",
             floats, sizeof(floats), &npy);
    mutate(&random, &npy);
    make_deflated("x.npy", &npy, &zip);
    save(i % 2 ? &zip : &npy);
    rabbet_array_t first;
    if (!read_and_touch(&first)) ++refused;
    assert_true(first.bytes <= npy.size);
  }
  assert_true(refused > 1000);
}

// ---- Memory that runs out

static rabbet_status_t write_and_read(rabbet_allocator_t allocator,
                                      void* user_data) {
  (void)user_data;
  rabbet_status_t status =
      rabbet_npz_write(path, samples, SAMPLE_COUNT, allocator);
  rabbet_arena_t arena;
  rabbet_array_t* arrays = NULL;
  size_t count = 0;
  rabbet_arena_initialize(allocator, &arena);
  if (rabbet_is_ok(status)) {
    status = rabbet_npy_read(path, &arena, &arrays, &count);
  }
  rabbet_arena_deinitialize(&arena);
  return status;
}

static void failed_allocations(void** state) {
  (void)state;
  assert_true(rabbet_fault_run(write_and_read, NULL) > 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(round_trip),
      cmocka_unit_test(no_arrays),
      cmocka_unit_test(zip64_end),
      cmocka_unit_test(deflated_and_version_2),
      cmocka_unit_test(refused_headers),
      cmocka_unit_test(impossible_sizes),
      cmocka_unit_test(overlapping_entries),
      cmocka_unit_test(every_truncation),
      cmocka_unit_test(damaged_archives),
      cmocka_unit_test(damaged_arrays),
      cmocka_unit_test(failed_allocations),
  };
  return cmocka_run_group_tests(tests, make_path, remove_path);
}
